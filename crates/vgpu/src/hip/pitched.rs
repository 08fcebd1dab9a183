//! Pitched memory, and 2D and 3D memsets and copies.

use std::ffi::{c_int, c_void};

use super::capture;
use super::copy::{self, Shape};
use super::error::{HipError, Status};
use super::memory;
use super::types::{Copy3D, DevicePtr, Extent, Handle, Out, PitchedPtr};

/// Rows start at multiples of this, as on AMD's GPUs.
const ROW_ALIGNMENT: usize = 256;

/// Returns the pitch for rows of `width` bytes, and the bytes of `rows` rows.
fn layout(width: usize, rows: usize) -> Result<(usize, usize), HipError> {
    let pitch = width.checked_next_multiple_of(ROW_ALIGNMENT).ok_or(HipError::OUT_OF_MEMORY)?;
    Ok((pitch, pitch.checked_mul(rows).ok_or(HipError::OUT_OF_MEMORY)?))
}

pub(super) fn malloc(out: Out<DevicePtr>, pitch: Out<usize>, width: usize, rows: usize) -> Status {
    if out.is_null() || pitch.is_null() {
        return Err(HipError::INVALID_VALUE);
    }
    let (row, bytes) = layout(width, rows)?;
    memory::malloc(out, bytes)?;
    pitch.put(row)
}

/// The driver API's form; elements of any size start at aligned addresses.
pub(super) fn mem_alloc(out: Out<DevicePtr>, pitch: Out<usize>, width: usize, rows: usize, element: u32) -> Status {
    if !matches!(element, 4 | 8 | 16) {
        return Err(HipError::INVALID_VALUE);
    }
    malloc(out, pitch, width, rows)
}

pub(super) fn malloc_3d(out: Out<PitchedPtr>, extent: Extent) -> Status {
    if out.is_null() {
        return Err(HipError::INVALID_VALUE);
    }
    let rows = extent.height.checked_mul(extent.depth).ok_or(HipError::OUT_OF_MEMORY)?;
    let (pitch, bytes) = layout(extent.width, rows)?;
    let ptr = memory::allocate_device(bytes)?;
    out.put(PitchedPtr { ptr, pitch, xsize: extent.width, ysize: extent.height })
}

/// Only the low byte of `value` is used, as with `memset`.
pub(super) fn set_2d_async(at: *mut c_void, pitch: usize, value: c_int, width: usize, rows: usize, stream: Handle) -> Status {
    let shape = Shape { bytes: width, rows, to_pitch: pitch, from_pitch: 0 };
    copy::fill_rows(at as u64, u32::from(value.to_le_bytes()[0]), 1, shape, stream)
}

pub(super) fn set_2d(at: *mut c_void, pitch: usize, value: c_int, width: usize, rows: usize) -> Status {
    capture::reject_during()?;
    set_2d_async(at, pitch, value, width, rows, std::ptr::null_mut())?;
    copy::finish(std::ptr::null_mut())
}

pub(super) fn set_3d_async(at: PitchedPtr, value: c_int, extent: Extent, stream: Handle) -> Status {
    for slice in 0..extent.depth {
        let start = offset(at, 0, 0, slice)?;
        set_2d_async(start as *mut c_void, at.pitch, value, extent.width, extent.height, stream)?;
    }
    Ok(())
}

pub(super) fn set_3d(at: PitchedPtr, value: c_int, extent: Extent) -> Status {
    capture::reject_during()?;
    set_3d_async(at, value, extent, std::ptr::null_mut())?;
    copy::finish(std::ptr::null_mut())
}

/// Returns the address of a byte in pitched memory.
fn offset(base: PitchedPtr, x: usize, y: usize, z: usize) -> Result<u64, HipError> {
    let row = z.checked_mul(base.ysize).and_then(|rows| rows.checked_add(y));
    let bytes = row.and_then(|row| row.checked_mul(base.pitch)).and_then(|bytes| bytes.checked_add(x));
    bytes.and_then(|bytes| base.ptr.checked_add(bytes as u64)).ok_or(HipError::INVALID_VALUE)
}

/// Copies between pitched memory; the virtual GPU has no arrays.
///
/// # Safety
/// `parameters` must be null or valid; host memory that is not registered must be valid for the copy until it is done.
pub(super) unsafe fn copy_3d_async(parameters: *const Copy3D, stream: Handle) -> Status {
    if parameters.is_null() {
        return Err(HipError::INVALID_VALUE);
    }
    // SAFETY: it is not null, and so valid.
    let Copy3D { from_array, from_position, from, to_array, to_position, to, extent, kind } = unsafe { parameters.read_unaligned() };
    if !from_array.is_null() || !to_array.is_null() {
        return Err(HipError::NOT_SUPPORTED);
    }
    let sides = copy::sides(kind)?;
    let shape = Shape { bytes: extent.width, rows: extent.height, to_pitch: to.pitch, from_pitch: from.pitch };
    for slice in 0..extent.depth {
        let target = offset(to, to_position.x, to_position.y, to_position.z + slice)?;
        let source = offset(from, from_position.x, from_position.y, from_position.z + slice)?;
        // SAFETY: the caller's promise.
        unsafe { copy::queue(target, source, shape, sides, stream) }?;
    }
    Ok(())
}

/// # Safety
/// As [`copy_3d_async`].
pub(super) unsafe fn copy_3d(parameters: *const Copy3D) -> Status {
    capture::reject_during()?;
    // SAFETY: the caller's promise.
    unsafe { copy_3d_async(parameters, std::ptr::null_mut()) }?;
    copy::finish(std::ptr::null_mut())
}
