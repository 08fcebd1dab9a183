//! Events: points in a stream's work to wait for, and to measure time between.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::device::Device;
use crate::error::{Error, Result};
use crate::graph::Capture;
use crate::stream::Stream;
use crate::table::{Failure, Handle};
use crate::vendor::code;

/// A point in a stream's work.
pub struct Event {
    device: Device,
    raw: Handle,
    /// The capture it was last recorded in; a stream that waits for it joins that capture.
    capture: Mutex<Weak<Capture>>,
}

// SAFETY: an event handle may be used from any thread.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// Creates an event that can measure time.
    pub fn new(device: &Device) -> Result<Event> {
        Event::with_flags(device, 0)
    }

    /// Creates an event for ordering only, which is cheaper.
    pub fn without_timing(device: &Device) -> Result<Event> {
        const DISABLE_TIMING: u32 = 2;
        Event::with_flags(device, DISABLE_TIMING)
    }

    fn with_flags(device: &Device, flags: u32) -> Result<Event> {
        let table = device.activate()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the output outlives the call.
        device.check(unsafe { table.event_create(&mut raw, flags) })?;
        Ok(Event { device: device.clone(), raw, capture: Mutex::default() })
    }

    /// Records the event after the work queued on `stream` so far.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        let _gate = stream.enter();
        self.record_within(stream)
    }

    /// Does the same for a caller that has entered the stream.
    pub(crate) fn record_within(&self, stream: &Stream) -> Result<()> {
        stream.check_same_device(&self.device, "the event")?;
        let table = self.device.activate()?;
        // SAFETY: both handles are live.
        self.device.check(unsafe { table.event_record(self.raw, stream.raw()) })?;
        let capture = stream.capture().as_ref().map_or_else(Weak::new, Arc::downgrade);
        *self.capture.lock().unwrap_or_else(PoisonError::into_inner) = capture;
        Ok(())
    }

    /// Blocks until the work before the event is done.
    pub fn synchronize(&self) -> Result<()> {
        let table = self.device.activate()?;
        // SAFETY: the handle is live.
        self.device.check(unsafe { table.event_synchronize(self.raw) })
    }

    /// Returns whether the work before the event is done.
    pub fn is_done(&self) -> Result<bool> {
        let table = self.device.activate()?;
        // SAFETY: the handle is live.
        done(unsafe { table.event_query(self.raw) }).map_err(|failure| self.device.error(failure))
    }

    /// Returns the milliseconds from this event to `end`. Both must be done and belong to the same device.
    pub fn elapsed_ms(&self, end: &Event) -> Result<f32> {
        if end.device != self.device {
            let (expected, actual) = (self.device.name().to_owned(), end.device.name().to_owned());
            return Err(Error::WrongDevice { what: "the other event".to_owned(), expected, actual });
        }
        let table = self.device.activate()?;
        let mut ms = 0.0;
        // SAFETY: the output outlives the call, and both handles are live.
        self.device.check(unsafe { table.event_elapsed(&mut ms, self.raw, end.raw) })?;
        Ok(ms)
    }

    pub(crate) fn raw(&self) -> Handle {
        self.raw
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    pub(crate) fn capture(&self) -> Option<Arc<Capture>> {
        self.capture.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Ok(table) = self.device.activate() {
            // SAFETY: the handle is ours, and this is its last use. The driver keeps what queued work needs.
            let _ = unsafe { table.event_destroy(self.raw) };
        }
    }
}

/// Converts the result of a query: "not ready" is not an error.
pub(crate) fn done(outcome: Result<(), Failure>) -> Result<bool, Failure> {
    match outcome {
        Ok(()) => Ok(true),
        Err(Failure::Code { code: code::NOT_READY, .. }) => Ok(false),
        Err(failure) => Err(failure),
    }
}
