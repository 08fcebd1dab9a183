//! Events.

use std::ffi::c_uint;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use super::capture::CapturePoint;
use super::error::{HipError, Status};
use super::runtime::{Device, lock, runtime};
use super::stream::{self, Marker};
use super::types::{Handle, Out};

/// `hipEventDisableTiming`.
const NO_TIMING: c_uint = 2;
/// All flags: scheduling, timing, IPC, and cache control.
const KNOWN_FLAGS: c_uint = 0x1 | 0x2 | 0x4 | 0x2000_0000 | 0x4000_0000 | 0x8000_0000;
/// `hipEventInterprocess`.
const INTERPROCESS: c_uint = 4;

/// An event: a position in a stream's work.
pub(super) struct Event {
    device: Arc<Device>,
    timed: bool,
    recorded: Mutex<Recorded>,
}

#[derive(Clone, Default)]
enum Recorded {
    #[default]
    Never,
    Queued(Marker, Arc<OnceLock<Instant>>),
    Captured(CapturePoint),
}

impl Event {
    /// Returns the capture point it stands for, while that capture is in progress.
    pub fn captured(&self) -> Option<CapturePoint> {
        match &*lock(&self.recorded) {
            Recorded::Captured(point) if point.is_open() => Some(point.clone()),
            _ => None,
        }
    }

    pub fn mark(&self) -> Option<Marker> {
        match &*lock(&self.recorded) {
            Recorded::Queued(mark, _) => Some(mark.clone()),
            _ => None,
        }
    }

    /// Returns what was recorded. As in HIP, an event that was never recorded counts as complete.
    fn check(&self) -> Result<Recorded, HipError> {
        self.device.check()?;
        let recorded = lock(&self.recorded).clone();
        match recorded {
            Recorded::Captured(_) => Err(HipError::CAPTURED_EVENT),
            recorded => Ok(recorded),
        }
    }
}

pub(super) fn create(out: Out<Handle>) -> Status {
    create_with_flags(out, 0)
}

pub(super) fn create_with_flags(out: Out<Handle>, flags: c_uint) -> Status {
    let runtime = runtime()?;
    let device = runtime.healthy()?.clone();
    if out.is_null() || flags & !KNOWN_FLAGS != 0 {
        return Err(HipError::INVALID_VALUE);
    }
    if flags & INTERPROCESS != 0 {
        return Err(HipError::NOT_SUPPORTED);
    }
    let event = Event { device, timed: flags & NO_TIMING == 0, recorded: Mutex::default() };
    out.put(runtime.events.add(Arc::new(event)))
}

/// Work that waits for it keeps its marker.
pub(super) fn destroy(handle: Handle) -> Status {
    runtime()?.events.remove(handle).map(drop)
}

pub(super) fn record(handle: Handle, stream: Handle) -> Status {
    let (event, stream) = (runtime()?.events.get(handle)?, stream::of(stream)?);
    stream.device.check()?;
    if !Arc::ptr_eq(&event.device, &stream.device) {
        return Err(HipError::INVALID_HANDLE);
    }
    let point = lock(&stream.state).capture.as_ref().map(super::capture::CaptureState::point);
    let recorded = match point {
        Some(point) => Recorded::Captured(point),
        None => {
            let (mark, time) = stream::record_timestamp(&stream)?;
            Recorded::Queued(mark, time)
        }
    };
    *lock(&event.recorded) = recorded;
    Ok(())
}

pub(super) fn synchronize(handle: Handle) -> Status {
    let event = runtime()?.events.get(handle)?;
    if let Recorded::Queued(mark, _) = event.check()? {
        mark.wait()?;
    }
    event.device.check()
}

pub(super) fn query(handle: Handle) -> Status {
    match runtime()?.events.get(handle)?.check()? {
        Recorded::Queued(mark, _) if !mark.is_done() => Err(HipError::NOT_READY),
        _ => Ok(()),
    }
}

pub(super) fn elapsed(out: Out<f32>, start: Handle, end: Handle) -> Status {
    if out.is_null() {
        return Err(HipError::INVALID_VALUE);
    }
    let events = &runtime()?.events;
    let (start, end) = (events.get(start)?, events.get(end)?);
    let time = |event: &Event| match event.check()? {
        Recorded::Queued(mark, time) if event.timed => {
            if !mark.is_done() {
                return Err(HipError::NOT_READY);
            }
            time.get().copied().ok_or(HipError::NOT_READY)
        }
        _ => Err(HipError::INVALID_HANDLE),
    };
    let (start, end) = (time(&start)?, time(&end)?);
    let milliseconds = match end.checked_duration_since(start) {
        Some(after) => after.as_secs_f64() * 1e3,
        None => -(start - end).as_secs_f64() * 1e3,
    };
    out.put(milliseconds as f32)
}
