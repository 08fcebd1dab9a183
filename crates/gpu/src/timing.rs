//! How long each kernel of some work takes by itself.

use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::error::Result;
use crate::event::Event;
use crate::stream::Stream;

/// How long the device waits for the host before a kernel.
const PATIENCE: Duration = Duration::from_secs(2);

/// What one kernel, or one call of a vendor's library, took on the device.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelTime {
    /// The kernel's symbol; `library` for a call of a library.
    pub name: String,
    /// Seconds between two events right before and behind it; a little of it is the events' own.
    pub seconds: f64,
}

impl Stream {
    /// Does `work`, and measures each kernel that it queues on this stream: none begins before the one in front of it has ended, and the
    /// device waits for the host before each, so that no launch is among the times. All of it takes far longer than without.
    pub fn time_kernels<R>(&self, work: impl FnOnce() -> R) -> Result<(R, Vec<KernelTime>)> {
        /// Ends the measuring, also when `work` panics.
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

    /// Queues a kernel between two events, behind a function that waits until all of that is queued.
    #[cold]
    pub(crate) fn measure<R>(&self, name: &str, queue: impl FnOnce() -> Result<R>) -> Result<R> {
        let (start, end) = (Event::new(self.device())?, Event::new(self.device())?);
        let (queued, waits) = mpsc::channel::<()>();
        let waits = Arc::new(Mutex::new(waits));
        // Whoever waits for the stream while queueing must not wait for ever: then this time is wrong, and the others are right.
        self.on_host(move || _ = waits.lock().map(|waits| waits.recv_timeout(PATIENCE)))?;
        start.record(self)?;
        let result = queue()?;
        end.record(self)?;
        // On any way out of here the sender is gone, and the device goes on.
        drop(queued);
        end.synchronize()?;
        self.times().push(KernelTime { name: name.to_owned(), seconds: f64::from(start.elapsed_ms(&end)?) / 1e3 });
        Ok(result)
    }
}
