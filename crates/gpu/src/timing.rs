//! Per-kernel timing.

use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::error::Result;
use crate::event::Event;
use crate::stream::Stream;

/// How long the device waits for the host before a kernel.
const HOST_TIMEOUT: Duration = Duration::from_secs(2);

/// The device time of one kernel or one call of a vendor library.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelTime {
    /// The kernel's symbol; `library` for a call of a library.
    pub name: String,
    /// Seconds between two events around it, which includes a little of the events' own cost.
    pub seconds: f64,
}

impl Stream {
    /// Runs `work` and times each kernel it queues on this stream. Kernels are serialized, and the device waits for the host before each, so
    /// that launch overhead is not included. The whole takes much longer than without timing.
    pub fn time_kernels<R>(&self, work: impl FnOnce() -> R) -> Result<(R, Vec<KernelTime>)> {
        /// Ends the timing, also if `work` panics.
        struct Measuring<'a>(&'a Stream);
        impl Drop for Measuring<'_> {
            fn drop(&mut self) {
                self.0.measured().0.store(false, Ordering::Release);
            }
        }
        self.synchronize()?;
        self.times().clear();
        self.measured().0.store(true, Ordering::Release);
        let measuring = Measuring(self);
        let result = work();
        drop(measuring);
        Ok((result, std::mem::take(&mut *self.times())))
    }

    #[inline]
    pub(crate) fn measures(&self) -> bool {
        self.measured().0.load(Ordering::Acquire) && !self.is_capturing()
    }

    fn times(&self) -> std::sync::MutexGuard<'_, Vec<KernelTime>> {
        self.measured().1.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enqueues a kernel between two events, after a host function that waits until all of it is enqueued.
    #[cold]
    pub(crate) fn measure<R>(&self, name: &str, enqueue: impl FnOnce() -> Result<R>) -> Result<R> {
        let (start, end) = (Event::new(self.device())?, Event::new(self.device())?);
        let (queued, waits) = mpsc::channel::<()>();
        let waits = Arc::new(Mutex::new(waits));
        // If `enqueue` synchronizes the stream, the timeout prevents a deadlock; only this time is wrong then.
        self.on_host(move || _ = waits.lock().map(|waits| waits.recv_timeout(HOST_TIMEOUT)))?;
        start.record(self)?;
        let result = enqueue()?;
        end.record(self)?;
        // Every return path drops the sender, which releases the device.
        drop(queued);
        end.synchronize()?;
        self.times().push(KernelTime { name: name.to_owned(), seconds: f64::from(start.elapsed_ms(&end)?) / 1e3 });
        Ok(result)
    }
}
