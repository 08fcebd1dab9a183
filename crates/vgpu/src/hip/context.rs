//! Contexts of the driver API, and settings that have no effect on a virtual device.
//!
//! A device has one context, so a context's handle stands for its device, and making it current selects the device.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::Mutex;

use super::device;
use super::error::{HipError, Status};
use super::memory;
use super::properties;
use super::runtime::{CURRENT, lock, runtime};
use super::stream;
use super::types::{DevicePtr, Handle, Out, Text};

thread_local! {
    /// The devices that were current before pushed contexts.
    static BELOW: RefCell<Vec<c_int>> = const { RefCell::new(Vec::new()) };
}

fn handle(device: c_int) -> Handle {
    (device as usize + 1) as Handle
}

/// Returns the device of a context.
fn device_of(context: Handle) -> Result<c_int, HipError> {
    let device = c_int::try_from(context as usize).ok().and_then(|number| number.checked_sub(1)).ok_or(HipError::INVALID_CONTEXT)?;
    runtime()?.device(device).map(|_| device).map_err(|_| HipError::INVALID_CONTEXT)
}

pub(super) fn create(out: Out<Handle>, _flags: c_uint, device: c_int) -> Status {
    runtime()?.device(device)?;
    out.put(handle(device))?;
    push(handle(device))
}

/// A destroyed context is not current any more.
pub(super) fn destroy(context: Handle) -> Status {
    if device_of(context)? == CURRENT.get()
        && let Some(below) = BELOW.with_borrow_mut(Vec::pop)
    {
        CURRENT.set(below);
    }
    Ok(())
}

pub(super) fn push(context: Handle) -> Status {
    let device = device_of(context)?;
    BELOW.with_borrow_mut(|below| below.push(CURRENT.replace(device)));
    Ok(())
}

pub(super) fn pop(out: Out<Handle>) -> Status {
    let below = BELOW.with_borrow_mut(Vec::pop).ok_or(HipError::INVALID_CONTEXT)?;
    out.put_if_non_null(handle(CURRENT.replace(below)));
    Ok(())
}

pub(super) fn set_current(context: Handle) -> Status {
    if !context.is_null() {
        CURRENT.set(device_of(context)?);
    }
    Ok(())
}

pub(super) fn current(out: Out<Handle>) -> Status {
    runtime()?.current()?;
    out.put(handle(CURRENT.get()))
}

pub(super) fn enable_peer(context: Handle, flags: c_uint) -> Status {
    device::enable_peer(device_of(context)?, flags)
}

pub(super) fn disable_peer(context: Handle) -> Status {
    device::disable_peer(device_of(context)?)
}

pub(super) fn retain(out: Out<Handle>, device: c_int) -> Status {
    runtime()?.device(device)?;
    out.put(handle(device))
}

pub(super) fn release(device: c_int) -> Status {
    runtime()?.device(device).map(drop)
}

pub(super) fn state(device: c_int, flags: Out<c_uint>, active: Out<c_int>) -> Status {
    runtime()?.device(device)?;
    flags.put_if_non_null(0);
    active.put_if_non_null(1);
    Ok(())
}

/// `hipLimit_t`: stack bytes, bytes of the buffer of `printf`, bytes of the heap of `malloc`.
const LIMITS: [usize; 3] = [1024, 1 << 20, 8 << 20];

static CHANGED_LIMITS: Mutex<Option<HashMap<c_int, usize>>> = Mutex::new(None);

/// Remembers the value; nothing here is limited by it.
pub(super) fn set_limit(limit: c_int, value: usize) -> Status {
    runtime()?.current()?;
    if !(0..LIMITS.len() as c_int).contains(&limit) {
        return Err(HipError::UNSUPPORTED_LIMIT);
    }
    lock(&CHANGED_LIMITS).get_or_insert_default().insert(limit, value);
    Ok(())
}

pub(super) fn limit(out: Out<usize>, limit: c_int) -> Status {
    runtime()?.current()?;
    let default = usize::try_from(limit).ok().and_then(|limit| LIMITS.get(limit)).copied().ok_or(HipError::UNSUPPORTED_LIMIT)?;
    out.put(lock(&CHANGED_LIMITS).as_ref().and_then(|changed| changed.get(&limit)).copied().unwrap_or(default))
}

/// Accepts a preference for caches or shared memory banks, which AMD's GPUs do not have.
pub(super) fn set_preference(_preference: c_int) -> Status {
    runtime()?.current().map(drop)
}

pub(super) fn set_function_preference(_host: *const c_void, preference: c_int) -> Status {
    set_preference(preference)
}

/// Returns no preference.
pub(super) fn preference(out: Out<c_int>) -> Status {
    runtime()?.current()?;
    out.put(0)
}

/// Returns the default flags.
pub(super) fn flags(out: Out<c_uint>) -> Status {
    runtime()?.current()?;
    out.put(0)
}

/// Accepts the start and stop of a profiler, which the virtual GPU does not have.
pub(super) fn profiler() -> Status {
    runtime().map(drop)
}

pub(super) fn capability(major: Out<c_int>, minor: Out<c_int>, device: c_int) -> Status {
    let capability = properties::capability(runtime()?.device(device)?.arch);
    major.put(capability.0 as c_int)?;
    minor.put(capability.1 as c_int)
}

pub(super) fn by_pci_bus_id(out: Out<c_int>, text: Text) -> Status {
    let text = text.read()?;
    let devices = &runtime()?.devices;
    let fits = |ordinal: &usize| {
        let (domain, bus) = device::pci(&devices[*ordinal]);
        text.eq_ignore_ascii_case(&format!("{domain:04x}:{bus:02x}:00.0"))
    };
    let found = (0..devices.len()).find(fits).ok_or(HipError::INVALID_VALUE)?;
    out.put(found as c_int)
}

/// Checks the request only: memory does not move.
pub(super) fn advise(address: DevicePtr, bytes: usize, _advice: c_int, device: c_int) -> Status {
    memory::prefetch_async(address, bytes, device, std::ptr::null_mut())
}

/// Managed memory is accessible from every stream.
pub(super) fn attach(stream: Handle, _address: DevicePtr, _bytes: usize, _flags: c_uint) -> Status {
    stream::of(stream).map(drop)
}
