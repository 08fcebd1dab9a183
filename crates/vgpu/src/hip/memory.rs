//! Memory allocation and pointer attributes.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use super::capture;
use super::error::{HipError, Status};
use super::runtime::{Device, Runtime, lock, runtime};
use super::stream;
use super::types::{DevicePtr, Handle, Out};
use crate::memory::{Allocation, Memory, MemoryKind};

/// `hipMemAttachGlobal`.
const ATTACH_GLOBAL: c_uint = 1;
/// `hipMemAttachHost`.
const ATTACH_HOST: c_uint = 2;
/// `hipCpuDeviceId`.
const CPU: c_int = -1;

/// `hipMemoryType`, from HIP 6 on.
const TYPE_HOST: c_int = 1;
const TYPE_DEVICE: c_int = 2;
const TYPE_MANAGED: c_int = 3;

/// `hipPointer_attribute`.
mod pointer_attr {
    use std::ffi::c_int;
    pub const MEMORY_TYPE: c_int = 2;
    pub const DEVICE_POINTER: c_int = 3;
    pub const HOST_POINTER: c_int = 4;
    pub const SYNC_MEMOPS: c_int = 6;
    pub const BUFFER_ID: c_int = 7;
    pub const IS_MANAGED: c_int = 8;
    pub const DEVICE_ORDINAL: c_int = 9;
    pub const RANGE_START_ADDR: c_int = 11;
    pub const RANGE_SIZE: c_int = 12;
    pub const MAPPED: c_int = 13;
}

/// Allocates memory that counts against the device's total.
fn allocate(runtime: &Runtime, device: &Arc<Device>, bytes: usize, kind: MemoryKind) -> Result<u64, HipError> {
    let mut used = lock(&device.used);
    let after = used.checked_add(bytes as u64).filter(|after| *after <= device.total).ok_or(HipError::OUT_OF_MEMORY)?;
    let address = runtime.memory.allocate(bytes, kind).ok_or(HipError::OUT_OF_MEMORY)?;
    *used = after;
    Ok(address)
}

/// Frees an allocation of a fitting kind, once no queued work can access it.
fn release(runtime: &Runtime, address: u64, fits: impl Fn(MemoryKind) -> bool) -> Status {
    let found = runtime.memory.allocation_at(address).filter(|a| fits(a.kind)).ok_or(HipError::INVALID_VALUE)?;
    runtime.synchronize_all()?;
    if !runtime.memory.free(address) {
        return Err(HipError::INVALID_VALUE);
    }
    if let MemoryKind::Device(ordinal) | MemoryKind::Managed(ordinal) = found.kind
        && let Some(device) = runtime.devices.get(ordinal as usize)
    {
        let mut used = lock(&device.used);
        *used = used.saturating_sub(found.bytes);
    }
    Ok(())
}

/// Frees all memory of a device.
pub(super) fn release_all(runtime: &Runtime, device: &Device) {
    for allocation in runtime.memory.allocations() {
        if allocation.kind == MemoryKind::Device(device.ordinal) || allocation.kind == MemoryKind::Managed(device.ordinal) {
            let _ = release(runtime, allocation.start, |_| true);
        }
    }
}

pub(super) fn malloc(out: Out<DevicePtr>, bytes: usize) -> Status {
    runtime()?.healthy()?;
    if out.is_null() {
        return Err(HipError::INVALID_VALUE);
    }
    out.put(allocate_device(bytes)?)
}

/// Allocates memory of the current device; 0 for no bytes.
pub(super) fn allocate_device(bytes: usize) -> Result<DevicePtr, HipError> {
    let runtime = runtime()?;
    let device = runtime.healthy()?;
    capture::reject_during()?;
    if bytes == 0 { Ok(0) } else { allocate(runtime, device, bytes, MemoryKind::Device(device.ordinal)) }
}

pub(super) fn malloc_async(out: Out<DevicePtr>, bytes: usize, stream: Handle) -> Status {
    stream::of(stream)?.device.check()?;
    malloc(out, bytes)
}

pub(super) fn free(address: DevicePtr) -> Status {
    let runtime = runtime()?;
    capture::reject_during()?;
    if address == 0 {
        return Ok(());
    }
    release(runtime, address, |kind| matches!(kind, MemoryKind::Device(_) | MemoryKind::Managed(_)))
}

/// Frees after all queued work, which is later than necessary.
pub(super) fn free_async(address: DevicePtr, stream: Handle) -> Status {
    stream::of(stream)?;
    free(address)
}

pub(super) fn info(free: Out<usize>, total: Out<usize>) -> Status {
    let device = runtime()?.healthy()?;
    let used = *lock(&device.used);
    // What the device may still allocate.
    free.put_if_non_null(device.total.saturating_sub(used) as usize);
    total.put_if_non_null(device.total as usize);
    Ok(())
}

pub(super) fn host_malloc(out: Out<*mut c_void>, bytes: usize, _flags: c_uint) -> Status {
    let runtime = runtime()?;
    runtime.healthy()?;
    if out.is_null() {
        return Err(HipError::INVALID_VALUE);
    }
    capture::reject_during()?;
    if bytes == 0 {
        return out.put(std::ptr::null_mut());
    }
    let address = runtime.memory.allocate(bytes, MemoryKind::Host).ok_or(HipError::OUT_OF_MEMORY)?;
    out.put(address as *mut c_void)
}

pub(super) fn malloc_host(out: Out<*mut c_void>, bytes: usize) -> Status {
    host_malloc(out, bytes, 0)
}

pub(super) fn host_free(address: *mut c_void) -> Status {
    let runtime = runtime()?;
    capture::reject_during()?;
    if address.is_null() {
        return Ok(());
    }
    release(runtime, address as u64, |kind| kind == MemoryKind::Host)
}

/// Returns whether a range overlaps an allocation.
fn overlaps(memory: &Memory, start: u64, end: u64) -> bool {
    memory.find(start).is_some() || memory.allocations().iter().any(|a| a.start < end && start < a.end())
}

/// # Safety
/// The range must stay allocated, readable and writable until `host_unregister`.
pub(super) unsafe fn host_register(address: *mut c_void, bytes: usize, flags: c_uint) -> Status {
    /// Portable, mapped, I/O memory, read-only.
    const KNOWN: c_uint = 0xF;
    let runtime = runtime()?;
    runtime.healthy()?;
    let start = address as u64;
    let end = start.checked_add(bytes as u64).filter(|end| *end > start && start != 0).ok_or(HipError::INVALID_VALUE)?;
    if flags & !KNOWN != 0 {
        return Err(HipError::INVALID_VALUE);
    }
    capture::reject_during()?;
    if overlaps(&runtime.memory, start, end) {
        return Err(HipError::ALREADY_REGISTERED);
    }
    // SAFETY: the caller's promise; `host_unregister` waits for all work before the range is removed.
    unsafe { runtime.memory.register(Allocation { start, bytes: bytes as u64, kind: MemoryKind::Registered, read_only: false }) };
    Ok(())
}

pub(super) fn host_unregister(address: *mut c_void) -> Status {
    let runtime = runtime()?;
    if address.is_null() {
        return Err(HipError::INVALID_VALUE);
    }
    capture::reject_during()?;
    let known = runtime.memory.allocation_at(address as u64).is_some_and(|a| a.kind == MemoryKind::Registered);
    if !known {
        return Err(HipError::NOT_REGISTERED);
    }
    runtime.synchronize_all()?;
    runtime.memory.unregister(address as u64).map(drop).ok_or(HipError::NOT_REGISTERED)
}

pub(super) fn host_device_pointer(out: Out<DevicePtr>, host: *mut c_void, flags: c_uint) -> Status {
    let found = runtime()?.memory.find(host as u64).filter(|a| matches!(a.kind, MemoryKind::Host | MemoryKind::Registered));
    if found.is_none() || flags != 0 {
        return Err(HipError::INVALID_VALUE);
    }
    out.put(host as u64)
}

pub(super) fn managed(out: Out<DevicePtr>, bytes: usize, flags: c_uint) -> Status {
    let runtime = runtime()?;
    let device = runtime.healthy()?;
    if out.is_null() || bytes == 0 || (flags != ATTACH_GLOBAL && flags != ATTACH_HOST) {
        return Err(HipError::INVALID_VALUE);
    }
    capture::reject_during()?;
    out.put(allocate(runtime, device, bytes, MemoryKind::Managed(device.ordinal))?)
}

/// Checks the request only: memory does not move.
pub(super) fn prefetch_async(address: DevicePtr, bytes: usize, device: c_int, stream: Handle) -> Status {
    let runtime = runtime()?;
    let stream = stream::of(stream)?;
    stream.device.check()?;
    if device != CPU {
        runtime.device(device)?;
    }
    let found = runtime.memory.find_range(address, bytes as u64).filter(|a| matches!(a.kind, MemoryKind::Managed(_)));
    found.map(drop).ok_or(HipError::INVALID_VALUE)
}

fn type_of(kind: MemoryKind) -> c_int {
    match kind {
        MemoryKind::Device(_) | MemoryKind::CodeObject(_) => TYPE_DEVICE,
        MemoryKind::Host | MemoryKind::Registered => TYPE_HOST,
        MemoryKind::Managed(_) => TYPE_MANAGED,
    }
}

fn device_of(kind: MemoryKind) -> c_int {
    match kind {
        MemoryKind::Device(n) | MemoryKind::CodeObject(n) | MemoryKind::Managed(n) => c_int::try_from(n).unwrap_or(0),
        MemoryKind::Host | MemoryKind::Registered => 0,
    }
}

/// Returns a pointer attribute ([`pointer_attr`]).
///
/// # Safety
/// `out` must have room for a value of the attribute's type, unless it is null.
pub(super) unsafe fn pointer_attribute(out: Out<c_void>, attribute: c_int, address: DevicePtr) -> Status {
    if out.is_null() {
        return Err(HipError::INVALID_VALUE);
    }
    let found = runtime()?.memory.find(address).ok_or(HipError::INVALID_VALUE)?;
    let value = out.raw();
    let host = type_of(found.kind) != TYPE_DEVICE;
    // SAFETY: the caller's promise.
    unsafe {
        match attribute {
            pointer_attr::MEMORY_TYPE => value.cast::<c_int>().write_unaligned(type_of(found.kind)),
            pointer_attr::DEVICE_POINTER => value.cast::<u64>().write_unaligned(address),
            pointer_attr::HOST_POINTER if host => value.cast::<u64>().write_unaligned(address),
            pointer_attr::SYNC_MEMOPS => value.cast::<c_int>().write_unaligned(1),
            pointer_attr::BUFFER_ID => value.cast::<u64>().write_unaligned(found.start),
            pointer_attr::IS_MANAGED => value.cast::<u8>().write_unaligned(u8::from(matches!(found.kind, MemoryKind::Managed(_)))),
            pointer_attr::DEVICE_ORDINAL => value.cast::<c_int>().write_unaligned(device_of(found.kind)),
            pointer_attr::RANGE_START_ADDR => value.cast::<u64>().write_unaligned(found.start),
            pointer_attr::RANGE_SIZE => value.cast::<usize>().write_unaligned(found.bytes as usize),
            pointer_attr::MAPPED => value.cast::<u8>().write_unaligned(1),
            _ => return Err(HipError::INVALID_VALUE),
        }
    }
    Ok(())
}

/// `hipPointerAttribute_t`.
#[repr(C)]
pub struct PointerAttributes {
    memory_type: c_int,
    device: c_int,
    device_pointer: u64,
    host_pointer: u64,
    managed: c_int,
    flags: c_uint,
}

pub(super) fn pointer_attributes(out: Out<PointerAttributes>, address: *const c_void) -> Status {
    let address = address as u64;
    let found = runtime()?.memory.find(address).ok_or(HipError::INVALID_VALUE)?;
    let memory_type = type_of(found.kind);
    out.put(PointerAttributes {
        memory_type,
        device: device_of(found.kind),
        device_pointer: address,
        host_pointer: if memory_type == TYPE_DEVICE { 0 } else { address },
        managed: c_int::from(memory_type == TYPE_MANAGED),
        flags: 0,
    })
}

pub(super) fn address_range(base: Out<DevicePtr>, bytes: Out<usize>, address: DevicePtr) -> Status {
    let found = runtime()?.memory.find(address).ok_or(HipError::NOT_FOUND)?;
    base.put_if_non_null(found.start);
    bytes.put_if_non_null(found.bytes as usize);
    Ok(())
}
