//! Device functions: enumeration, the current device, peer access.

use std::ffi::{CString, c_char, c_int, c_uint};

use super::capture;
use super::error::{HipError, Status};
use super::runtime::{CURRENT, Device, lock, runtime};
use super::stream::Marker;
use super::types::{Out, put_text};

/// HIP 6.4: 10⁷·major + 10⁵·minor + patch.
const VERSION: c_int = 60_400_000;

pub(super) fn init(flags: c_uint) -> Status {
    if flags != 0 {
        return Err(HipError::INVALID_VALUE);
    }
    if runtime()?.devices.is_empty() { Err(HipError::NO_DEVICE) } else { Ok(()) }
}

pub(super) fn version(out: Out<c_int>) -> Status {
    out.put(VERSION)
}

pub(super) fn count(out: Out<c_int>) -> Status {
    let devices = runtime()?.devices.len();
    out.put(c_int::try_from(devices).unwrap_or(c_int::MAX))?;
    if devices == 0 { Err(HipError::NO_DEVICE) } else { Ok(()) }
}

pub(super) fn get(out: Out<c_int>, ordinal: c_int) -> Status {
    runtime()?.device(ordinal)?;
    out.put(ordinal)
}

pub(super) fn set_current(ordinal: c_int) -> Status {
    runtime()?.device(ordinal)?;
    CURRENT.set(ordinal);
    Ok(())
}

pub(super) fn current(out: Out<c_int>) -> Status {
    runtime()?.current()?;
    out.put(CURRENT.get())
}

/// # Safety
/// `out` must have room for `length` bytes, unless it is null.
pub(super) unsafe fn name(out: Out<c_char>, length: c_int, device: c_int) -> Status {
    let name = runtime()?.device(device)?.model.name;
    // SAFETY: the caller's promise.
    unsafe { put_text(&out, length, name) }
}

pub(super) fn total_memory(out: Out<usize>, device: c_int) -> Status {
    out.put(runtime()?.device(device)?.total as usize)
}

/// Returns PCI domain and bus: a bus for each device, in a domain that no machine has.
pub(super) fn pci(device: &Device) -> (c_int, c_int) {
    (0xFFFF, c_int::try_from(device.ordinal).unwrap_or(0) + 1)
}

/// # Safety
/// `out` must have room for `length` bytes, unless it is null.
pub(super) unsafe fn pci_bus_id(out: Out<c_char>, length: c_int, device: c_int) -> Status {
    let (domain, bus) = pci(runtime()?.device(device)?);
    // SAFETY: the caller's promise.
    unsafe { put_text(&out, length, &format!("{domain:04x}:{bus:02x}:00.0")) }
}

/// Returns sixteen hexadecimal digits, as AMD's drivers do.
pub(super) fn uuid_digits(device: &Device) -> [u8; 16] {
    let text = format!("76677075{:08x}", device.ordinal);
    text.as_bytes().try_into().unwrap_or([b'0'; 16])
}

pub(super) fn uuid(out: Out<[u8; 16]>, device: c_int) -> Status {
    out.put(uuid_digits(runtime()?.device(device)?))
}

/// Waits for all work of the device. Fails during a capture on one of its streams, and invalidates the capture.
pub(super) fn synchronize() -> Status {
    let device = runtime()?.current()?;
    for stream in device.streams() {
        if let Some(capturing) = &lock(&stream.state).capture {
            capturing.capture.invalidate();
            return Err(HipError::CAPTURE_UNSUPPORTED);
        }
    }
    device.marks().iter().try_for_each(Marker::wait)?;
    device.check()
}

/// Frees the device's memory and clears a fault.
pub(super) fn reset() -> Status {
    let runtime = runtime()?;
    let device = runtime.current()?;
    capture::reject_during()?;
    device.marks().iter().try_for_each(Marker::wait)?;
    super::memory::release_all(runtime, device);
    lock(&device.peers).clear();
    device.clear_fault();
    Ok(())
}

pub(super) fn can_access_peer(out: Out<c_int>, device: c_int, peer: c_int) -> Status {
    let runtime = runtime()?;
    runtime.device(device)?;
    runtime.device(peer)?;
    out.put(c_int::from(device != peer))
}

pub(super) fn enable_peer(peer: c_int, flags: c_uint) -> Status {
    let runtime = runtime()?;
    let device = runtime.healthy()?;
    if runtime.device(peer)?.ordinal == device.ordinal || flags != 0 {
        return Err(if flags == 0 { HipError::INVALID_DEVICE } else { HipError::INVALID_VALUE });
    }
    if lock(&device.peers).insert(peer) { Ok(()) } else { Err(HipError::PEER_ALREADY_ENABLED) }
}

pub(super) fn disable_peer(peer: c_int) -> Status {
    let runtime = runtime()?;
    runtime.device(peer)?;
    if lock(&runtime.current()?.peers).remove(&peer) { Ok(()) } else { Err(HipError::PEER_NOT_ENABLED) }
}

/// The flags select how a thread waits: here it always sleeps.
pub(super) fn set_flags(_flags: c_uint) -> Status {
    runtime()?.current().map(drop)
}

/// Returns a C string that lives as long as the process. The same text gives the same pointer.
pub(super) fn leak(text: &str) -> *const c_char {
    use std::collections::HashSet;
    use std::ffi::CStr;
    use std::sync::Mutex;
    static KEPT: Mutex<Option<HashSet<&'static CStr>>> = Mutex::new(None);
    let text = CString::new(text).unwrap_or_default();
    let mut kept = lock(&KEPT);
    let kept = kept.get_or_insert_with(HashSet::new);
    if let Some(known) = kept.get(text.as_c_str()) {
        return known.as_ptr();
    }
    let text: &'static CStr = Box::leak(text.into_boxed_c_str());
    kept.insert(text);
    text.as_ptr()
}
