//! Copies and memsets.

use std::ffi::{c_int, c_void};

use super::capture;
use super::error::{HipError, Status};
use super::runtime::runtime;
use super::stream::{self, Marker};
use super::types::{DevicePtr, Handle};
use super::work::Operation;
use crate::memory::MemoryKind;

/// `hipMemcpyHostToHost` … `hipMemcpyDefault`.
const HOST_TO_DEVICE: c_int = 1;
const DEVICE_TO_HOST: c_int = 2;
const DEVICE_TO_DEVICE: c_int = 3;
const DEFAULT: c_int = 4;

/// What one side of a copy may be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// Registered memory only.
    Device,
    /// Any memory.
    Any,
}

/// The rows of a copy; one row for a 1D copy.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub bytes: usize,
    pub rows: usize,
    pub to_pitch: usize,
    pub from_pitch: usize,
}

impl Shape {
    fn plain(bytes: usize) -> Shape {
        Shape { bytes, rows: 1, to_pitch: bytes, from_pitch: bytes }
    }

    /// Returns the bytes from the first to the last one for a pitch.
    fn span(&self, pitch: usize) -> Option<u64> {
        let before = self.rows.checked_sub(1)?.checked_mul(pitch)?;
        before.checked_add(self.bytes).map(|span| span as u64)
    }
}

/// Returns whether the memory is registered. Fails when it must be and is not, or when the range exceeds its allocation.
fn check_range(address: u64, bytes: u64, side: Side) -> Result<bool, HipError> {
    let memory = &runtime()?.memory;
    match memory.find(address) {
        Some(_) => memory.find_range(address, bytes).map(|_| true).ok_or(HipError::INVALID_VALUE),
        None if side == Side::Any && address != 0 => Ok(false),
        None => Err(HipError::INVALID_VALUE),
    }
}

/// Queues a copy. A copy of unregistered memory is done when this returns, because nothing keeps that memory alive.
///
/// # Safety
/// Host memory that is not registered must be valid for the copy until it is done.
pub(super) unsafe fn queue(to: u64, from: u64, shape: Shape, sides: [Side; 2], stream: Handle) -> Status {
    let stream = stream::of(stream)?;
    stream.device.check()?;
    if shape.bytes == 0 || shape.rows == 0 {
        return Ok(());
    }
    if shape.rows > 1 && (shape.to_pitch < shape.bytes || shape.from_pitch < shape.bytes) {
        return Err(HipError::INVALID_VALUE);
    }
    let span = |pitch| shape.span(pitch).ok_or(HipError::INVALID_VALUE);
    let kept = check_range(to, span(shape.to_pitch)?, sides[0])? & check_range(from, span(shape.from_pitch)?, sides[1])?;
    let Shape { bytes, rows, to_pitch, from_pitch } = shape;
    stream.submit(Operation::Copy { to, from, bytes, rows, to_pitch, from_pitch })?;
    if !kept && let Some(mark) = stream.pending() {
        mark.wait()?;
        stream.device.check()?;
    }
    Ok(())
}

pub(super) fn sides(kind: c_int) -> Result<[Side; 2], HipError> {
    match kind {
        0 | DEFAULT => Ok([Side::Any, Side::Any]),
        HOST_TO_DEVICE => Ok([Side::Device, Side::Any]),
        DEVICE_TO_HOST => Ok([Side::Any, Side::Device]),
        DEVICE_TO_DEVICE => Ok([Side::Device, Side::Device]),
        _ => Err(HipError::INVALID_DIRECTION),
    }
}

/// Waits for the work of a synchronous call.
pub(super) fn finish(stream: Handle) -> Status {
    let stream = stream::of(stream)?;
    stream.sync_markers()?.iter().try_for_each(Marker::wait)?;
    stream.device.check()
}

/// # Safety
/// Host memory that is not registered must be valid for the copy until it is done.
pub(super) unsafe fn to_device_async(to: DevicePtr, from: *const c_void, bytes: usize, stream: Handle) -> Status {
    // SAFETY: the caller's promise.
    unsafe { queue(to, from as u64, Shape::plain(bytes), [Side::Device, Side::Any], stream) }
}

/// # Safety
/// Host memory that is not registered must be valid for the copy until it is done.
pub(super) unsafe fn to_host_async(to: *mut c_void, from: DevicePtr, bytes: usize, stream: Handle) -> Status {
    // SAFETY: the caller's promise.
    unsafe { queue(to as u64, from, Shape::plain(bytes), [Side::Any, Side::Device], stream) }
}

pub(super) fn device_to_device_async(to: DevicePtr, from: DevicePtr, bytes: usize, stream: Handle) -> Status {
    // SAFETY: both sides must be registered memory.
    unsafe { queue(to, from, Shape::plain(bytes), [Side::Device, Side::Device], stream) }
}

/// # Safety
/// Host memory that is not registered must be valid for the copy until it is done.
pub(super) unsafe fn to_device(to: DevicePtr, from: *const c_void, bytes: usize) -> Status {
    capture::reject_during()?;
    // SAFETY: the caller's promise.
    unsafe { to_device_async(to, from, bytes, std::ptr::null_mut()) }?;
    finish(std::ptr::null_mut())
}

/// # Safety
/// Host memory that is not registered must be valid for the copy until it is done.
pub(super) unsafe fn to_host(to: *mut c_void, from: DevicePtr, bytes: usize) -> Status {
    capture::reject_during()?;
    // SAFETY: the caller's promise.
    unsafe { to_host_async(to, from, bytes, std::ptr::null_mut()) }?;
    finish(std::ptr::null_mut())
}

pub(super) fn device_to_device(to: DevicePtr, from: DevicePtr, bytes: usize) -> Status {
    capture::reject_during()?;
    device_to_device_async(to, from, bytes, std::ptr::null_mut())?;
    finish(std::ptr::null_mut())
}

/// # Safety
/// Host memory that is not registered must be valid for the copy until it is done.
pub(super) unsafe fn copy_async(to: *mut c_void, from: *const c_void, bytes: usize, kind: c_int, stream: Handle) -> Status {
    // SAFETY: the caller's promise.
    unsafe { queue(to as u64, from as u64, Shape::plain(bytes), sides(kind)?, stream) }
}

/// # Safety
/// Host memory that is not registered must be valid for the copy until it is done.
pub(super) unsafe fn copy(to: *mut c_void, from: *const c_void, bytes: usize, kind: c_int) -> Status {
    capture::reject_during()?;
    // SAFETY: the caller's promise.
    unsafe { copy_async(to, from, bytes, kind, std::ptr::null_mut()) }?;
    finish(std::ptr::null_mut())
}

/// # Safety
/// Host memory that is not registered must be valid for the copy until it is done.
pub(super) unsafe fn copy_with_stream(to: *mut c_void, from: *const c_void, bytes: usize, kind: c_int, stream: Handle) -> Status {
    capture::reject_during()?;
    // SAFETY: the caller's promise.
    unsafe { copy_async(to, from, bytes, kind, stream) }?;
    finish(stream)
}

/// # Safety
/// Host memory that is not registered must be valid for the copy until it is done.
#[allow(clippy::too_many_arguments)]
pub(super) unsafe fn copy_2d_async(
    to: *mut c_void,
    to_pitch: usize,
    from: *const c_void,
    from_pitch: usize,
    bytes: usize,
    rows: usize,
    kind: c_int,
    stream: Handle,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { queue(to as u64, from as u64, Shape { bytes, rows, to_pitch, from_pitch }, sides(kind)?, stream) }
}

/// # Safety
/// Host memory that is not registered must be valid for the copy until it is done.
pub(super) unsafe fn copy_2d(
    to: *mut c_void,
    to_pitch: usize,
    from: *const c_void,
    from_pitch: usize,
    bytes: usize,
    rows: usize,
    kind: c_int,
) -> Status {
    capture::reject_during()?;
    // SAFETY: the caller's promise.
    unsafe { copy_2d_async(to, to_pitch, from, from_pitch, bytes, rows, kind, std::ptr::null_mut()) }?;
    finish(std::ptr::null_mut())
}

/// Checks that each side is on the device that the caller names, unless it is host or managed memory.
pub(super) fn peer_async(to: DevicePtr, to_device: c_int, from: DevicePtr, from_device: c_int, bytes: usize, stream: Handle) -> Status {
    let runtime = runtime()?;
    for (address, device) in [(to, to_device), (from, from_device)] {
        let ordinal = runtime.device(device)?.ordinal;
        if let Some(MemoryKind::Device(owner) | MemoryKind::CodeObject(owner)) = runtime.memory.find(address).map(|a| a.kind)
            && owner != ordinal
        {
            return Err(HipError::INVALID_VALUE);
        }
    }
    device_to_device_async(to, from, bytes, stream)
}

pub(super) fn peer(to: DevicePtr, to_device: c_int, from: DevicePtr, from_device: c_int, bytes: usize) -> Status {
    capture::reject_during()?;
    peer_async(to, to_device, from, from_device, bytes, std::ptr::null_mut())?;
    finish(std::ptr::null_mut())
}

fn fill(at: u64, value: u32, width: usize, count: usize, stream: Handle) -> Status {
    let bytes = count.checked_mul(width).ok_or(HipError::INVALID_VALUE)?;
    fill_rows(at, value, width, Shape { bytes, rows: 1, to_pitch: bytes, from_pitch: 0 }, stream)
}

/// Fills rows of `shape.bytes` bytes that are `shape.to_pitch` bytes apart.
pub(super) fn fill_rows(at: u64, value: u32, width: usize, shape: Shape, stream: Handle) -> Status {
    let stream = stream::of(stream)?;
    stream.device.check()?;
    let Shape { bytes, rows, to_pitch: pitch, .. } = shape;
    if bytes == 0 || rows == 0 {
        return Ok(());
    }
    if rows > 1 && pitch < bytes {
        return Err(HipError::INVALID_VALUE);
    }
    check_range(at, shape.span(pitch).ok_or(HipError::INVALID_VALUE)?, Side::Device)?;
    stream.submit(Operation::Fill { at, value, width, count: bytes / width, rows, pitch })
}

pub(super) fn fill_u8_async(at: DevicePtr, value: u8, count: usize, stream: Handle) -> Status {
    fill(at, u32::from(value), 1, count, stream)
}

pub(super) fn fill_u16_async(at: DevicePtr, value: u16, count: usize, stream: Handle) -> Status {
    fill(at, u32::from(value), 2, count, stream)
}

pub(super) fn fill_u32_async(at: DevicePtr, value: u32, count: usize, stream: Handle) -> Status {
    fill(at, value, 4, count, stream)
}

/// Only the low byte of `value` is used, as with `memset`.
pub(super) fn set_async(at: *mut c_void, value: c_int, bytes: usize, stream: Handle) -> Status {
    fill(at as u64, u32::from(value.to_le_bytes()[0]), 1, bytes, stream)
}

pub(super) fn set(at: *mut c_void, value: c_int, bytes: usize) -> Status {
    capture::reject_during()?;
    set_async(at, value, bytes, std::ptr::null_mut())?;
    finish(std::ptr::null_mut())
}

pub(super) fn fill_u8(at: DevicePtr, value: u8, count: usize) -> Status {
    capture::reject_during()?;
    fill_u8_async(at, value, count, std::ptr::null_mut())?;
    finish(std::ptr::null_mut())
}

pub(super) fn fill_u16(at: DevicePtr, value: u16, count: usize) -> Status {
    capture::reject_during()?;
    fill_u16_async(at, value, count, std::ptr::null_mut())?;
    finish(std::ptr::null_mut())
}

pub(super) fn fill_u32(at: DevicePtr, value: u32, count: usize) -> Status {
    capture::reject_during()?;
    fill_u32_async(at, value, count, std::ptr::null_mut())?;
    finish(std::ptr::null_mut())
}
