//! A call's stay on a device: its streams, and the memory it borrows.

use std::cell::Cell;
use std::ffi::c_void;
use std::marker::PhantomData;

use warpwave_gpu::{Buffer, CurrentDevice, DevicePtr, Event, HostBuffer, Stream};

use super::{DeviceContext, Kernels, Result, lock};
use crate::schedule::Take;

/// Page-locked buffers that a context keeps for later calls.
const STAGING_KEPT: usize = 8;
const SMALLEST_STAGING: usize = 64 << 10;

/// One call's stay on a device. The thread's current device is restored when it ends.
pub struct Visit<'c> {
    context: &'c DeviceContext,
    _current: CurrentDevice<'c>,
}

impl<'c> Visit<'c> {
    pub(super) fn new(context: &'c DeviceContext) -> Result<Visit<'c>> {
        Ok(Visit { context, _current: context.device.driver().keep_current()? })
    }

    /// A stream for this visit alone.
    pub fn lane(&self) -> Result<Lane<'_>> {
        let known = lock(&self.context.streams).pop();
        let stream = match known {
            Some(stream) => stream,
            None => self.context.device.blocking_stream()?,
        };
        Ok(Lane { context: self.context, stream, busy: Cell::new(false), _visit: PhantomData })
    }
}

/// A stream, and work on the program's memory in its order. When it is dropped, its work is done.
pub struct Lane<'v> {
    context: &'v DeviceContext,
    stream: Stream,
    /// Work was queued and not waited for.
    busy: Cell<bool>,
    _visit: PhantomData<&'v Visit<'v>>,
}

impl Lane<'_> {
    fn stream(&self) -> &Stream {
        self.busy.set(true);
        &self.stream
    }

    /// Queues a copy to the host.
    ///
    /// # Safety
    /// Both must be valid for `bytes` bytes until this lane is waited for.
    pub unsafe fn to_host(&self, to: *mut c_void, from: DevicePtr, bytes: usize) -> Result<()> {
        // SAFETY: the caller vouches for both.
        Ok(unsafe { self.stream().copy_raw_to_host(from, to, bytes) }?)
    }

    /// Queues a copy from the host.
    ///
    /// # Safety
    /// As [`Lane::to_host`].
    pub unsafe fn from_host(&self, to: DevicePtr, from: *const c_void, bytes: usize) -> Result<()> {
        // SAFETY: the caller vouches for both.
        Ok(unsafe { self.stream().copy_raw_from_host(from, to, bytes) }?)
    }

    /// Queues a copy on the device.
    ///
    /// # Safety
    /// As [`Lane::to_host`].
    pub unsafe fn copy(&self, to: DevicePtr, from: DevicePtr, bytes: usize) -> Result<()> {
        // SAFETY: the caller vouches for both.
        Ok(unsafe { self.stream().copy_raw(from, to, bytes) }?)
    }

    /// Queues the combination of `n` elements at `other` into those at `own`; padding in `own` stays as it is.
    ///
    /// # Safety
    /// Both must be memory of this device, of `n` elements each, that do not overlap and live until this lane is waited for.
    pub unsafe fn combine(&self, kernels: &Kernels, own: DevicePtr, other: DevicePtr, n: usize, take: Take) -> Result<()> {
        // SAFETY: the caller vouches for both.
        unsafe { kernels.combine(self.stream(), own, other, n, take) }
    }

    /// Queues `out = ((p0 op p1) op p2) …` of 1 to [`super::PEERS`] peers.
    ///
    /// # Safety
    /// As [`Lane::combine`], for memory that this device can address; `out` may be one of the peers.
    pub unsafe fn combine_all(&self, kernels: &Kernels, out: DevicePtr, peers: &[DevicePtr], n: usize) -> Result<()> {
        // SAFETY: the caller vouches for them.
        unsafe { kernels.combine_all(self.stream(), out, peers, n) }
    }

    /// Waits until all its work is done.
    pub fn synchronize(&self) -> Result<()> {
        self.stream.synchronize()?;
        self.busy.set(false);
        Ok(())
    }

    /// Marks the work queued so far.
    pub fn mark(&self) -> Result<Mark<'_>> {
        let known = lock(&self.context.events).pop();
        let event = match known {
            Some(event) => event,
            None => Event::without_timing(&self.context.device)?,
        };
        event.record(&self.stream)?;
        Ok(Mark { context: self.context, event: Some(event) })
    }

    /// Lets work queued from now on wait for a mark of another lane.
    pub fn wait(&self, mark: &Mark<'_>) -> Result<()> {
        mark.event.as_ref().map_or(Ok(()), |event| self.stream().wait(event))?;
        Ok(())
    }

    /// Page-locked memory of at least `bytes` bytes, with whatever it holds.
    pub fn staging(&self, bytes: usize) -> Result<Staging<'_>> {
        let mut kept = lock(&self.context.staging);
        let fitting = (0..kept.len()).filter(|i| kept[*i].len() >= bytes).min_by_key(|i| kept[*i].len());
        let known = fitting.map(|i| kept.swap_remove(i));
        drop(kept);
        let buffer = match known {
            Some(buffer) => buffer,
            None => HostBuffer::zeroed(&self.context.device, bytes.next_power_of_two().max(SMALLEST_STAGING))?,
        };
        Ok(Staging { lane: self, buffer: Some(buffer) })
    }

    /// Device memory of `bytes` bytes, with whatever it holds. It comes from the device's pool, in this lane's order.
    pub fn scratch(&self, bytes: usize) -> Result<Scratch<'_>> {
        Ok(Scratch { buffer: self.stream.alloc(bytes)?, _lane: PhantomData })
    }

    /// Waits for its work, whatever it takes; whether it is done.
    fn settle(&self) -> bool {
        !self.busy.get() || self.synchronize().is_ok() || self.context.device.synchronize().is_ok()
    }
}

impl Drop for Lane<'_> {
    fn drop(&mut self) {
        if self.settle() {
            lock(&self.context.streams).push(self.stream.clone());
        }
    }
}

/// A mark in a lane's work.
pub struct Mark<'c> {
    context: &'c DeviceContext,
    event: Option<Event>,
}

impl Mark<'_> {
    /// Whether the marked work is done.
    pub fn is_done(&self) -> Result<bool> {
        Ok(self.event.as_ref().map_or(Ok(true), Event::is_done)?)
    }

    /// Lets work queued on `stream` from now on wait for it.
    pub fn before(&self, stream: &Stream) -> Result<()> {
        Ok(self.event.as_ref().map_or(Ok(()), |event| stream.wait(event))?)
    }

    /// Waits until it is.
    pub fn synchronize(&self) -> Result<()> {
        Ok(self.event.as_ref().map_or(Ok(()), Event::synchronize)?)
    }
}

impl Drop for Mark<'_> {
    fn drop(&mut self) {
        lock(&self.context.events).extend(self.event.take());
    }
}

/// Page-locked memory, kept for later calls when dropped; what its lane does with it is waited for first.
pub struct Staging<'l> {
    lane: &'l Lane<'l>,
    buffer: Option<HostBuffer<u8>>,
}

impl Staging<'_> {
    /// Its address.
    pub fn as_ptr(&self) -> *mut c_void {
        self.buffer.as_ref().map_or(std::ptr::null_mut(), |buffer| buffer.host_ptr().cast())
    }

    /// Its size, which may be more than was asked for.
    pub fn bytes(&self) -> usize {
        self.buffer.as_ref().map_or(0, HostBuffer::len)
    }
}

impl Drop for Staging<'_> {
    fn drop(&mut self) {
        let Some(buffer) = self.buffer.take() else { return };
        if !self.lane.settle() {
            // A device that cannot be waited for may still write to it.
            return std::mem::forget(buffer);
        }
        let mut kept = lock(&self.lane.context.staging);
        kept.push(buffer);
        let smallest = (0..kept.len()).min_by_key(|i| kept[*i].len()).filter(|_| kept.len() > STAGING_KEPT);
        let surplus = smallest.map(|i| kept.swap_remove(i));
        // Freeing waits for the driver: not under the lock.
        drop(kept);
        drop(surplus);
    }
}

/// Device memory that goes back to the pool when dropped, for work of the same lane or for others once it is done.
pub struct Scratch<'l> {
    buffer: Buffer<u8>,
    _lane: PhantomData<&'l Lane<'l>>,
}

impl Scratch<'_> {
    /// Its address.
    pub fn address(&self) -> DevicePtr {
        self.buffer.device_ptr()
    }
}
