//! Streams and events.

use std::sync::Arc;

use warpwave::gpu::{Event, Stream};

use super::context::CudaContext;
use super::sys;
use crate::error::DriverError;
use crate::gpu::Queue;

/// A queue of work on a device.
pub struct CudaStream {
    context: Arc<CudaContext>,
    queue: Arc<Queue>,
}

impl std::fmt::Debug for CudaStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CudaStream({:?})", self.queue.stream)
    }
}

impl PartialEq for CudaStream {
    fn eq(&self, other: &CudaStream) -> bool {
        self.queue.stream == other.queue.stream
    }
}
impl Eq for CudaStream {}

impl CudaStream {
    pub(crate) fn new(context: &Arc<CudaContext>, queue: Arc<Queue>) -> Arc<CudaStream> {
        Arc::new(CudaStream { context: context.clone(), queue })
    }

    /// The stream below.
    pub(crate) fn raw(&self) -> &Stream {
        &self.queue.stream
    }

    /// Returns its context.
    pub fn context(&self) -> &Arc<CudaContext> {
        &self.context
    }

    /// Returns the driver's handle.
    pub fn cu_stream(&self) -> sys::CUstream {
        self.queue.stream.raw().cast()
    }

    /// Waits for all queued work, and returns the error of an earlier call that could not return it.
    pub fn synchronize(&self) -> Result<(), DriverError> {
        self.raw().synchronize()?;
        self.context.gpu.check()
    }

    /// Returns whether it is being captured to a graph: never.
    pub fn capture_status(&self) -> Result<sys::CUstreamCaptureStatus, DriverError> {
        Ok(sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
    }

    /// Creates a stream whose work runs after the work queued here so far.
    pub fn fork(&self) -> Result<Arc<CudaStream>, DriverError> {
        let stream = self.context.new_stream()?;
        stream.join(self)?;
        Ok(stream)
    }

    /// Records an event after the work queued so far; one that cannot measure time where `flags` is `None`.
    pub fn record_event(&self, flags: Option<sys::CUevent_flags>) -> Result<CudaEvent, DriverError> {
        let event = self.context.new_event(flags)?;
        event.record(self)?;
        Ok(event)
    }

    /// Makes later work wait for an event.
    pub fn wait(&self, event: &CudaEvent) -> Result<(), DriverError> {
        Ok(self.raw().wait(&event.event)?)
    }

    /// Makes later work wait for the work queued on another stream so far.
    pub fn join(&self, other: &CudaStream) -> Result<(), DriverError> {
        self.wait(&other.record_event(None)?)
    }
}

/// A point in a stream's work.
pub struct CudaEvent {
    context: Arc<CudaContext>,
    event: Event,
}

impl std::fmt::Debug for CudaEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CudaEvent({:?})", self.context)
    }
}

impl CudaEvent {
    pub(crate) fn new(context: &Arc<CudaContext>, flags: Option<sys::CUevent_flags>) -> Result<CudaEvent, DriverError> {
        let device = &context.gpu.device;
        let event = match flags {
            None | Some(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING) => Event::without_timing(device)?,
            Some(_) => Event::new(device)?,
        };
        Ok(CudaEvent { context: context.clone(), event })
    }

    /// Returns its context.
    pub fn context(&self) -> &Arc<CudaContext> {
        &self.context
    }

    /// Records it after the work queued on a stream so far.
    pub fn record(&self, stream: &CudaStream) -> Result<(), DriverError> {
        Ok(self.event.record(stream.raw())?)
    }

    /// Waits for the work before it.
    pub fn synchronize(&self) -> Result<(), DriverError> {
        Ok(self.event.synchronize()?)
    }

    /// Returns whether the work before it is done. An error counts as not done.
    pub fn is_complete(&self) -> bool {
        self.event.is_done().unwrap_or(false)
    }

    /// Returns the milliseconds from this event to another.
    pub fn elapsed_ms(&self, end: &CudaEvent) -> Result<f32, DriverError> {
        Ok(self.event.elapsed_ms(&end.event)?)
    }
}
