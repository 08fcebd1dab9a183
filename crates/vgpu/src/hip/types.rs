//! The C types of HIP's functions.

use std::ffi::{CStr, c_char, c_int, c_void};

use super::error::{HipError, Status};

/// A device address, which is a host address here.
pub type DevicePtr = u64;
/// An opaque handle: a number, never an address that is followed.
pub type Handle = *mut c_void;
/// A function that a stream runs on the host.
pub type HostFunction = Option<unsafe extern "C" fn(*mut c_void)>;
/// HIP's older form of it.
pub type StreamCallback = Option<unsafe extern "C" fn(Handle, c_int, *mut c_void)>;

/// `dim3`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Dim3 {
    x: u32,
    y: u32,
    z: u32,
}

impl Dim3 {
    pub(super) fn all(self) -> [u32; 3] {
        [self.x, self.y, self.z]
    }
}

/// Where a call writes an answer.
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Writes it.
    pub(super) fn put(self, value: T) -> Status {
        if self.0.is_null() {
            return Err(HipError::INVALID_VALUE);
        }
        // SAFETY: it is not null, and what else a C caller hands over it promises to be room for this type.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// Writes it where the caller asked for it.
    pub(super) fn put_if_non_null(self, value: T) {
        if !self.0.is_null() {
            let _ = self.put(value);
        }
    }

    /// Zeroes, where the caller gave room: an answer for calls that fail later.
    pub(super) fn clear(&self) {
        if !self.0.is_null() {
            // SAFETY: as above; all types that are answered may be zero.
            unsafe { self.0.cast::<u8>().write_bytes(0, size_of::<T>()) };
        }
    }

    pub(super) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// The bytes behind it, for structs that are written field by field.
    pub(super) fn raw(&self) -> *mut T {
        self.0
    }
}

/// A C string that a call is given.
#[repr(transparent)]
pub struct Text(*const c_char);

impl Text {
    pub(super) fn read(&self) -> Result<String, HipError> {
        if self.0.is_null() {
            return Err(HipError::INVALID_VALUE);
        }
        // SAFETY: it is not null, and a C caller promises that it ends with a NUL.
        let text = unsafe { CStr::from_ptr(self.0) };
        Ok(text.to_string_lossy().into_owned())
    }
}

/// Writes text with its NUL into room of `length` bytes, cut where it must be.
///
/// # Safety
/// `out` must have room for `length` bytes, unless it is null.
pub(super) unsafe fn put_text(out: &Out<c_char>, length: c_int, text: &str) -> Status {
    let room = usize::try_from(length).unwrap_or(0);
    if out.is_null() || room == 0 {
        return Err(HipError::INVALID_VALUE);
    }
    let kept = text.len().min(room - 1);
    // SAFETY: the caller promises room for `length` bytes, and this many with the NUL fit.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), out.raw(), kept);
        out.raw().add(kept).write(0);
    }
    Ok(())
}
