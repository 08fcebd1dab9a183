//! Information about the system, and extensions.

use std::ffi::{c_char, c_void};

use crate::executable::loader;
use crate::log;
use crate::runtime::{lock, put, runtime, write};
use crate::status::{self, Result, Status};
use crate::types::SystemEventCallback;

/// `HSA_EXTENSION_AMD_LOADER`.
const LOADER: u16 = 0x201;
const VERSION: (u16, u16) = (1, 1);

/// Ticks of the system clock in a second: they are nanoseconds.
pub const TICKS_PER_SECOND: u64 = 1_000_000_000;

/// Returns the system clock.
pub fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is writable.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut time) };
    time.tv_sec as u64 * TICKS_PER_SECOND + time.tv_nsec as u64
}

/// Attributes of `hsa_system_get_info`.
mod info {
    pub const VERSION_MAJOR: u32 = 0;
    pub const VERSION_MINOR: u32 = 1;
    pub const TIMESTAMP: u32 = 2;
    pub const TIMESTAMP_FREQUENCY: u32 = 3;
    pub const SIGNAL_MAX_WAIT: u32 = 4;
    pub const ENDIANNESS: u32 = 5;
    pub const MACHINE_MODEL: u32 = 6;
    pub const EXTENSIONS: u32 = 7;
    pub const BUILD_VERSION: u32 = 0x200;
    pub const SVM_SUPPORTED: u32 = 0x201;
    pub const SVM_ACCESSIBLE_BY_DEFAULT: u32 = 0x202;
    pub const MWAITX_ENABLED: u32 = 0x203;
    pub const DMABUF_SUPPORTED: u32 = 0x204;
    pub const VIRTUAL_MEM_API_SUPPORTED: u32 = 0x205;
    pub const XNACK_ENABLED: u32 = 0x206;
    pub const EXT_VERSION_MAJOR: u32 = 0x207;
    pub const EXT_VERSION_MINOR: u32 = 0x208;
}

/// # Safety
/// `to` must be null or writable for the attribute's type.
pub unsafe fn hsa_system_get_info(attribute: u32, to: *mut c_void) -> Result {
    runtime()?;
    // SAFETY: the caller's promise.
    unsafe {
        match attribute {
            info::VERSION_MAJOR | info::EXT_VERSION_MAJOR => put(to, VERSION.0),
            info::VERSION_MINOR | info::EXT_VERSION_MINOR => put(to, VERSION.1),
            info::TIMESTAMP => put(to, now()),
            info::TIMESTAMP_FREQUENCY => put(to, TICKS_PER_SECOND),
            info::SIGNAL_MAX_WAIT => put(to, u64::MAX),
            // Little-endian.
            info::ENDIANNESS => put(to, 0u32),
            // 64 bits.
            info::MACHINE_MODEL => put(to, 1u32),
            info::EXTENSIONS => {
                let mut bits = [0u8; 128];
                bits[usize::from(LOADER / 8)] |= 1 << (LOADER % 8);
                put(to, bits)
            }
            info::BUILD_VERSION => put(to, concat!("warpwave ", env!("CARGO_PKG_VERSION"), "\0").as_ptr()),
            info::SVM_SUPPORTED
            | info::SVM_ACCESSIBLE_BY_DEFAULT
            | info::MWAITX_ENABLED
            | info::DMABUF_SUPPORTED
            | info::VIRTUAL_MEM_API_SUPPORTED
            | info::XNACK_ENABLED => put(to, false),
            _ => {
                log::debug(format_args!("unknown system attribute {attribute:#x}"));
                Err(Status::INVALID_ARGUMENT)
            }
        }
    }
}

/// # Safety
/// `to` must be null or writable.
pub unsafe fn hsa_status_string(code: u32, to: *mut *const c_char) -> Result {
    let text = status::describe(code).ok_or(Status::INVALID_ARGUMENT)?;
    // SAFETY: the caller's promise.
    unsafe { write(to, text.as_ptr()) }
}

fn supports(extension: u16, major: u16) -> bool {
    extension == LOADER && major == 1
}

/// # Safety
/// `to` must be null or writable.
pub unsafe fn hsa_system_extension_supported(extension: u16, major: u16, minor: u16, to: *mut bool) -> Result {
    runtime()?;
    // SAFETY: the caller's promise.
    unsafe { write(to, supports(extension, major) && minor <= loader::MINOR_VERSION) }
}

/// # Safety
/// `minor` and `to` must be null or writable.
pub unsafe fn hsa_system_major_extension_supported(extension: u16, major: u16, minor: *mut u16, to: *mut bool) -> Result {
    runtime()?;
    let supported = supports(extension, major);
    // SAFETY: the caller's promise.
    unsafe {
        if supported {
            write(minor, loader::MINOR_VERSION)?;
        }
        write(to, supported)
    }
}

/// # Safety
/// `to` must be null or writable.
pub unsafe fn hsa_agent_extension_supported(extension: u16, agent: u64, major: u16, minor: u16, to: *mut bool) -> Result {
    runtime()?.agent(agent)?;
    // SAFETY: the caller's promise.
    unsafe { hsa_system_extension_supported(extension, major, minor, to) }
}

/// # Safety
/// `table` must be null or have `bytes` writable bytes.
pub unsafe fn hsa_system_get_major_extension_table(extension: u16, major: u16, bytes: usize, table: *mut c_void) -> Result {
    runtime()?;
    if table.is_null() || !supports(extension, major) {
        return Err(Status::INVALID_ARGUMENT);
    }
    let functions = loader::table();
    let bytes = bytes.min(size_of_val(&functions));
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(functions.as_ptr().cast::<u8>(), table.cast::<u8>(), bytes) };
    Ok(())
}

/// # Safety
/// `table` must be null or have room for the table of this version.
pub unsafe fn hsa_system_get_extension_table(extension: u16, major: u16, minor: u16, table: *mut c_void) -> Result {
    let functions = loader::functions_of(minor).ok_or(Status::INVALID_ARGUMENT)?;
    // SAFETY: the caller's promise.
    unsafe { hsa_system_get_major_extension_table(extension, major, functions * size_of::<usize>(), table) }
}

pub fn hsa_amd_register_system_event_handler(callback: SystemEventCallback, data: *mut c_void) -> Result {
    *lock(&runtime()?.fault_callback) = (callback, data as usize);
    Ok(())
}

/// Accepts a mask of what to log: this library has `WARPWAVE_LOG` instead.
pub fn hsa_amd_enable_logging(_flags: *mut u8, _file: *mut c_void) -> Result {
    runtime().map(|_| ())
}
