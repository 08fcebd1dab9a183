//! Status codes.

use std::ffi::CStr;

/// A status that a function returns instead of success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status(pub u32);

/// What the functions of the modules return.
pub type Result<T = ()> = std::result::Result<T, Status>;

macro_rules! statuses {
    ($($name:ident = $value:literal, $text:literal;)*) => {
        impl Status {
            $(#[doc = concat!("`", $text, "`")] pub const $name: Status = Status($value);)*
        }

        /// Returns a description of a status; `None` for an unknown one.
        pub fn describe(status: u32) -> Option<&'static CStr> {
            match status {
                0 => Some(c"HSA_STATUS_SUCCESS: the function succeeded"),
                1 => Some(c"HSA_STATUS_INFO_BREAK: the callback ended the iteration"),
                $($value => Some(const { match CStr::from_bytes_with_nul(concat!($text, "\0").as_bytes()) {
                    Ok(text) => text,
                    Err(_) => panic!("a description contains a NUL"),
                } }),)*
                _ => None,
            }
        }
    };
}

statuses! {
    ERROR = 0x1000, "HSA_STATUS_ERROR: the virtual GPU does not support the request";
    INVALID_ARGUMENT = 0x1001, "HSA_STATUS_ERROR_INVALID_ARGUMENT: an argument is invalid";
    INVALID_QUEUE_CREATION = 0x1002, "HSA_STATUS_ERROR_INVALID_QUEUE_CREATION: the queue type is not supported";
    INVALID_ALLOCATION = 0x1003, "HSA_STATUS_ERROR_INVALID_ALLOCATION: the allocation is invalid";
    INVALID_AGENT = 0x1004, "HSA_STATUS_ERROR_INVALID_AGENT: the agent is invalid";
    INVALID_REGION = 0x1005, "HSA_STATUS_ERROR_INVALID_REGION: the region is invalid";
    INVALID_SIGNAL = 0x1006, "HSA_STATUS_ERROR_INVALID_SIGNAL: the signal is invalid";
    INVALID_QUEUE = 0x1007, "HSA_STATUS_ERROR_INVALID_QUEUE: the queue is invalid";
    OUT_OF_RESOURCES = 0x1008, "HSA_STATUS_ERROR_OUT_OF_RESOURCES: out of memory or another resource";
    INVALID_PACKET_FORMAT = 0x1009, "HSA_STATUS_ERROR_INVALID_PACKET_FORMAT: the packet is malformed";
    NOT_INITIALIZED = 0x100B, "HSA_STATUS_ERROR_NOT_INITIALIZED: hsa_init was not called";
    REFCOUNT_OVERFLOW = 0x100C, "HSA_STATUS_ERROR_REFCOUNT_OVERFLOW: too many calls to hsa_init";
    INCOMPATIBLE_ARGUMENTS = 0x100D, "HSA_STATUS_ERROR_INCOMPATIBLE_ARGUMENTS: the arguments are incompatible";
    INVALID_ISA = 0x100F, "HSA_STATUS_ERROR_INVALID_ISA: the instruction set architecture is invalid";
    INVALID_CODE_OBJECT = 0x1010, "HSA_STATUS_ERROR_INVALID_CODE_OBJECT: the code object is invalid";
    INVALID_EXECUTABLE = 0x1011, "HSA_STATUS_ERROR_INVALID_EXECUTABLE: the executable is invalid";
    FROZEN_EXECUTABLE = 0x1012, "HSA_STATUS_ERROR_FROZEN_EXECUTABLE: the executable is frozen";
    INVALID_SYMBOL_NAME = 0x1013, "HSA_STATUS_ERROR_INVALID_SYMBOL_NAME: no symbol has this name";
    EXCEPTION = 0x1016, "HSA_STATUS_ERROR_EXCEPTION: a kernel trapped";
    INVALID_ISA_NAME = 0x1017, "HSA_STATUS_ERROR_INVALID_ISA_NAME: no instruction set architecture has this name";
    INVALID_CODE_SYMBOL = 0x1018, "HSA_STATUS_ERROR_INVALID_CODE_SYMBOL: the symbol is invalid";
    INVALID_EXECUTABLE_SYMBOL = 0x1019, "HSA_STATUS_ERROR_INVALID_EXECUTABLE_SYMBOL: the symbol is invalid";
    INVALID_FILE = 0x1020, "HSA_STATUS_ERROR_INVALID_FILE: the file cannot be read";
    INVALID_CODE_OBJECT_READER = 0x1021, "HSA_STATUS_ERROR_INVALID_CODE_OBJECT_READER: the code object reader is invalid";
    INVALID_CACHE = 0x1022, "HSA_STATUS_ERROR_INVALID_CACHE: the cache is invalid";
    INVALID_WAVEFRONT = 0x1023, "HSA_STATUS_ERROR_INVALID_WAVEFRONT: the wavefront is invalid";
    INVALID_SIGNAL_GROUP = 0x1024, "HSA_STATUS_ERROR_INVALID_SIGNAL_GROUP: the signal group is invalid";
    INVALID_MEMORY_POOL = 40, "HSA_STATUS_ERROR_INVALID_MEMORY_POOL: the memory pool is invalid";
    MEMORY_APERTURE_VIOLATION = 41, "HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION: a kernel accessed LDS or scratch out of range";
    ILLEGAL_INSTRUCTION = 42, "HSA_STATUS_ERROR_ILLEGAL_INSTRUCTION: a kernel executed an illegal or unsupported instruction";
    MEMORY_FAULT = 43, "HSA_STATUS_ERROR_MEMORY_FAULT: a kernel accessed memory out of range";
}
