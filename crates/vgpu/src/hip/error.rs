//! HIP's error codes with their names and texts, and the detailed texts of faults.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::{Mutex, PoisonError};

use super::types::Out;
use crate::fault::Fault;

/// A HIP error code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HipError(pub c_int);

/// The result of a HIP function.
pub type Status = Result<(), HipError>;

macro_rules! codes {
    ( $( $name:ident = $number:literal $hip:literal $text:literal; )* ) => {
        #[allow(missing_docs, dead_code)]
        impl HipError {
            $( pub const $name: HipError = HipError($number); )*
        }

        fn known(code: c_int) -> Option<(&'static CStr, &'static CStr)> {
            match code {
                $( $number => Some(($hip, $text)), )*
                _ => None,
            }
        }
    };
}

codes! {
    SUCCESS = 0 c"hipSuccess" c"no error";
    INVALID_VALUE = 1 c"hipErrorInvalidValue" c"invalid argument";
    OUT_OF_MEMORY = 2 c"hipErrorOutOfMemory" c"out of memory";
    NOT_INITIALIZED = 3 c"hipErrorNotInitialized" c"initialization error";
    INVALID_CONFIGURATION = 9 c"hipErrorInvalidConfiguration" c"invalid configuration argument";
    INVALID_SYMBOL = 13 c"hipErrorInvalidSymbol" c"invalid device symbol";
    INVALID_DIRECTION = 21 c"hipErrorInvalidMemcpyDirection" c"invalid copy direction for memcpy";
    MISSING_CONFIGURATION = 52 c"hipErrorMissingConfiguration" c"__global__ function call is not configured";
    INVALID_FUNCTION = 98 c"hipErrorInvalidDeviceFunction" c"invalid device function";
    NO_DEVICE = 100 c"hipErrorNoDevice" c"no ROCm-capable device is detected";
    INVALID_DEVICE = 101 c"hipErrorInvalidDevice" c"invalid device ordinal";
    INVALID_IMAGE = 200 c"hipErrorInvalidImage" c"device kernel image is invalid";
    INVALID_CONTEXT = 201 c"hipErrorInvalidContext" c"invalid device context";
    NO_BINARY_FOR_GPU = 209 c"hipErrorNoBinaryForGpu" c"no kernel image is available for execution on the device";
    UNSUPPORTED_LIMIT = 215 c"hipErrorUnsupportedLimit" c"limit is not supported on this architecture";
    FILE_NOT_FOUND = 301 c"hipErrorFileNotFound" c"file not found";
    UNDEFINED_SYMBOL = 302 c"hipErrorSharedObjectSymbolNotFound" c"shared object symbol not found";
    INVALID_HANDLE = 400 c"hipErrorInvalidHandle" c"invalid resource handle";
    ILLEGAL_STATE = 401 c"hipErrorIllegalState" c"the operation cannot be performed in the present state";
    NOT_FOUND = 500 c"hipErrorNotFound" c"named symbol not found";
    NOT_READY = 600 c"hipErrorNotReady" c"device not ready";
    ILLEGAL_ADDRESS = 700 c"hipErrorIllegalAddress" c"an illegal memory access was encountered";
    TIMED_OUT = 702 c"hipErrorLaunchTimeOut" c"the launch timed out and was terminated";
    PEER_ALREADY_ENABLED = 704 c"hipErrorPeerAccessAlreadyEnabled" c"peer access is already enabled";
    PEER_NOT_ENABLED = 705 c"hipErrorPeerAccessNotEnabled" c"peer access has not been enabled";
    ASSERT = 710 c"hipErrorAssert" c"device-side assert triggered";
    ALREADY_REGISTERED = 712 c"hipErrorHostMemoryAlreadyRegistered" c"part or all of the requested memory range is already mapped";
    NOT_REGISTERED = 713 c"hipErrorHostMemoryNotRegistered" c"pointer does not correspond to a registered memory region";
    LAUNCH_FAILURE = 719 c"hipErrorLaunchFailure" c"unspecified launch failure";
    COOPERATIVE_TOO_LARGE = 720 c"hipErrorCooperativeLaunchTooLarge" c"too many blocks in cooperative launch";
    NOT_SUPPORTED = 801 c"hipErrorNotSupported" c"operation not supported";
    CAPTURE_UNSUPPORTED = 900 c"hipErrorStreamCaptureUnsupported" c"operation not permitted when stream is capturing";
    CAPTURE_INVALIDATED = 901 c"hipErrorStreamCaptureInvalidated" c"operation failed due to a previous error during capture";
    CAPTURE_MERGE = 902 c"hipErrorStreamCaptureMerge" c"operation would result in a merge of separate capture sequences";
    CAPTURE_UNMATCHED = 903 c"hipErrorStreamCaptureUnmatched" c"capture was not ended in the same stream as it began";
    CAPTURE_UNJOINED = 904 c"hipErrorStreamCaptureUnjoined" c"capturing stream has unjoined work";
    CAPTURE_ISOLATION = 905 c"hipErrorStreamCaptureIsolation" c"dependency created on uncaptured work in another stream";
    CAPTURE_IMPLICIT = 906 c"hipErrorStreamCaptureImplicit" c"operation would make the legacy stream depend on a capturing blocking stream";
    CAPTURED_EVENT = 907 c"hipErrorCapturedEvent" c"operation not permitted on an event last recorded in a capturing stream";
    CAPTURE_WRONG_THREAD = 908 c"hipErrorStreamCaptureWrongThread" c"attempt to terminate a thread-local capture sequence from another thread";
    GRAPH_UPDATE_FAILED = 910 c"hipErrorGraphExecUpdateFailure" c"the graph update was not performed because it included changes which violated constraints";
    UNKNOWN = 999 c"hipErrorUnknown" c"unknown error";
}

/// Detailed texts of faults and failed loads, in place of the general text of their code. Callers may keep the pointers forever.
static DETAILS: Mutex<Option<HashMap<c_int, &'static CStr>>> = Mutex::new(None);

/// Sets the text of `code`.
pub(super) fn set_detail(code: HipError, sentence: &str) {
    let text = CString::new(sentence.replace('\0', " ")).unwrap_or_default();
    let mut details = DETAILS.lock().unwrap_or_else(PoisonError::into_inner);
    let details = details.get_or_insert_with(HashMap::new);
    if details.get(&code.0).is_none_or(|old| *old != text.as_c_str()) {
        details.insert(code.0, Box::leak(text.into_boxed_c_str()));
    }
}

/// Returns the error code of a fault, as AMD's drivers report it.
pub(super) fn from_fault(fault: &Fault) -> HipError {
    match fault {
        Fault::Memory { .. } | Fault::Lds { .. } | Fault::Scratch { .. } | Fault::Misaligned { .. } => HipError::ILLEGAL_ADDRESS,
        Fault::Trap { .. } => HipError::ASSERT,
        Fault::LimitExceeded { .. } => HipError::TIMED_OUT,
        _ => HipError::LAUNCH_FAILURE,
    }
}

fn name_of(code: c_int) -> &'static CStr {
    known(code).map_or(c"hipErrorUnknown", |(name, _)| name)
}

fn text_of(code: c_int) -> &'static CStr {
    let details = DETAILS.lock().unwrap_or_else(PoisonError::into_inner);
    let details = details.as_ref().and_then(|details| details.get(&code).copied());
    details.or_else(|| known(code).map(|(_, text)| text)).unwrap_or(c"unknown error")
}

pub(super) fn error_name(code: c_int) -> *const c_char {
    name_of(code).as_ptr()
}

pub(super) fn error_string(code: c_int) -> *const c_char {
    text_of(code).as_ptr()
}

pub(super) fn driver_error_name(code: c_int, out: Out<*const c_char>) -> Status {
    known(code).ok_or(HipError::INVALID_VALUE)?;
    out.put(error_name(code))
}

pub(super) fn driver_error_string(code: c_int, out: Out<*const c_char>) -> Status {
    known(code).ok_or(HipError::INVALID_VALUE)?;
    out.put(error_string(code))
}

thread_local! {
    static LAST: Cell<c_int> = const { Cell::new(0) };
}

/// Runs a function's body: catches panics, and records an error as the thread's last error.
pub(super) fn guard(body: impl FnOnce() -> Status) -> c_int {
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or(Err(HipError::UNKNOWN));
    let code = outcome.err().map_or(0, |code| code.0);
    if code != 0 && code != HipError::NOT_READY.0 {
        LAST.set(code);
    }
    code
}

/// Runs the body of a function that does not return an error code; returns the default after a panic.
pub(super) fn guard_default<T: PanicDefault>(body: impl FnOnce() -> T) -> T {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or_else(|_| T::panic_default())
}

/// What a function returns after a panic.
pub(super) trait PanicDefault {
    fn panic_default() -> Self;
}

impl PanicDefault for () {
    fn panic_default() {}
}

impl PanicDefault for c_int {
    fn panic_default() -> c_int {
        HipError::UNKNOWN.0
    }
}

impl PanicDefault for *const c_char {
    fn panic_default() -> *const c_char {
        c"".as_ptr()
    }
}

impl PanicDefault for *mut c_void {
    fn panic_default() -> *mut c_void {
        std::ptr::null_mut()
    }
}

pub(super) fn get_last_error() -> c_int {
    LAST.replace(0)
}

pub(super) fn peek_at_last_error() -> c_int {
    LAST.get()
}
