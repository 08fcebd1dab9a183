//! C types of the HIP functions.

use std::ffi::{CStr, c_char, c_int, c_void};

use super::error::{HipError, Status};

/// A device address, which is a host address.
pub type DevicePtr = u64;
/// An opaque handle, never dereferenced.
pub type Handle = *mut c_void;
/// `hipHostFn_t`.
pub type HostFunction = Option<unsafe extern "C" fn(*mut c_void)>;
/// `hipStreamCallback_t`.
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

/// `hipExtent`: width in bytes, height in rows, depth in slices.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct Extent {
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) depth: usize,
}

/// `hipPos`: bytes, rows, slices.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Position {
    pub(super) x: usize,
    pub(super) y: usize,
    pub(super) z: usize,
}

/// `hipPitchedPtr`: rows are `pitch` bytes apart, slices `pitch * ysize`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct PitchedPtr {
    pub(super) ptr: DevicePtr,
    pub(super) pitch: usize,
    pub(super) xsize: usize,
    pub(super) ysize: usize,
}

/// `hipMemcpy3DParms`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Copy3D {
    pub(super) from_array: Handle,
    pub(super) from_position: Position,
    pub(super) from: PitchedPtr,
    pub(super) to_array: Handle,
    pub(super) to_position: Position,
    pub(super) to: PitchedPtr,
    pub(super) extent: Extent,
    pub(super) kind: c_int,
}

/// An output parameter: null, or valid for reads and writes of `T` (also unaligned) during the call.
///
/// It has no constructor: values come from C callers of `unsafe` functions, who promise this.
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Writes the value; fails for null.
    pub(super) fn put(self, value: T) -> Status {
        if self.0.is_null() {
            return Err(HipError::INVALID_VALUE);
        }
        // SAFETY: it is not null, and so valid for writes.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// Writes the value, unless the pointer is null.
    pub(super) fn put_if_non_null(self, value: T) {
        if !self.0.is_null() {
            let _ = self.put(value);
        }
    }

    /// Writes zeros, unless the pointer is null.
    pub(super) fn clear(&self) {
        if !self.0.is_null() {
            // SAFETY: it is not null, and so valid for writes; zeros are valid for every output type.
            unsafe { self.0.cast::<u8>().write_bytes(0, size_of::<T>()) };
        }
    }

    pub(super) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Returns the pointer.
    pub(super) fn raw(&self) -> *mut T {
        self.0
    }
}

/// A C string parameter: null, or terminated by a NUL. As with [`Out`], C callers promise this.
#[repr(transparent)]
pub struct Text(*const c_char);

impl Text {
    pub(super) fn read(&self) -> Result<String, HipError> {
        if self.0.is_null() {
            return Err(HipError::INVALID_VALUE);
        }
        // SAFETY: it is not null, and so terminated by a NUL.
        let text = unsafe { CStr::from_ptr(self.0) };
        Ok(text.to_string_lossy().into_owned())
    }
}

/// Writes text with a NUL, truncated to `length` bytes.
///
/// # Safety
/// `out` must have room for `length` bytes, unless it is null.
pub(super) unsafe fn put_text(out: &Out<c_char>, length: c_int, text: &str) -> Status {
    let size = usize::try_from(length).unwrap_or(0);
    if out.is_null() || size == 0 {
        return Err(HipError::INVALID_VALUE);
    }
    let kept = text.len().min(size - 1);
    // SAFETY: the caller promises room for `length` bytes; the text is truncated to it.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), out.raw(), kept);
        out.raw().add(kept).write(0);
    }
    Ok(())
}
