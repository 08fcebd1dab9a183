//! Streams of a call on a device, and the memory it borrows.

use std::cell::Cell;
use std::ffi::c_void;
use std::marker::PhantomData;

use warpwave_gpu::{Buffer, CurrentDevice, DevicePtr, Event, HostBuffer, Stream};

use super::{DeviceContext, Kernels, Result};
use crate::comm::lock;
use crate::schedule::RecvAction;

/// Number of staging buffers that a context keeps.
const STAGING_KEPT: usize = 8;
const SMALLEST_STAGING: usize = 64 << 10;

/// Use of a device by one call. Restores the thread's current device when dropped.
pub struct DeviceGuard<'c> {
    context: &'c DeviceContext,
    _current: CurrentDevice<'c>,
}

impl<'c> DeviceGuard<'c> {
    pub(super) fn new(context: &'c DeviceContext) -> Result<DeviceGuard<'c>> {
        Ok(DeviceGuard { context, _current: context.device.driver().keep_current()? })
    }

    /// Takes a stream from the context's pool, or creates one.
    pub fn stream(&self) -> Result<PooledStream<'_>> {
        let pooled = lock(&self.context.streams).pop();
        let stream = match pooled {
            Some(stream) => stream,
            None => self.context.device.blocking_stream()?,
        };
        Ok(PooledStream { context: self.context, stream, busy: Cell::new(false), _guard: PhantomData })
    }
}

/// A stream of the context's pool. Dropping it waits for its work and returns it to the pool.
pub struct PooledStream<'g> {
    context: &'g DeviceContext,
    stream: Stream,
    /// Work was enqueued since the last synchronization.
    busy: Cell<bool>,
    _guard: PhantomData<&'g DeviceGuard<'g>>,
}

impl PooledStream<'_> {
    fn enqueue(&self) -> &Stream {
        self.busy.set(true);
        &self.stream
    }

    /// Enqueues a copy to the host.
    ///
    /// # Safety
    /// Both pointers must be valid for `bytes` bytes until this stream is synchronized.
    pub unsafe fn copy_to_host(&self, to: *mut c_void, from: DevicePtr, bytes: usize) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        Ok(unsafe { self.enqueue().copy_raw_to_host(from, to, bytes) }?)
    }

    /// Enqueues a copy from the host.
    ///
    /// # Safety
    /// As [`PooledStream::copy_to_host`].
    pub unsafe fn copy_from_host(&self, to: DevicePtr, from: *const c_void, bytes: usize) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        Ok(unsafe { self.enqueue().copy_raw_from_host(from, to, bytes) }?)
    }

    /// Enqueues a copy on the device.
    ///
    /// # Safety
    /// As [`PooledStream::copy_to_host`].
    pub unsafe fn copy(&self, to: DevicePtr, from: DevicePtr, bytes: usize) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        Ok(unsafe { self.enqueue().copy_raw(from, to, bytes) }?)
    }

    /// Enqueues the copy or reduction of `n` elements at `input` into those at `inout`. Padding in `inout` is left unchanged.
    ///
    /// # Safety
    /// Both must be memory of this device with `n` elements, must not overlap, and must stay valid until this stream is synchronized.
    pub unsafe fn apply(&self, kernels: &Kernels, inout: DevicePtr, input: DevicePtr, n: usize, action: RecvAction) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        unsafe { kernels.apply(self.enqueue(), inout, input, n, action) }
    }

    /// Enqueues `out = ((p0 op p1) op p2) …` of 1 to [`super::MAX_PEERS`] buffers.
    ///
    /// # Safety
    /// As [`PooledStream::apply`], for memory that this device can access; `out` may be one of the peers.
    pub unsafe fn reduce_peers(&self, kernels: &Kernels, out: DevicePtr, peers: &[DevicePtr], n: usize) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        unsafe { kernels.reduce_peers(self.enqueue(), out, peers, n) }
    }

    /// Waits for all work on this stream.
    pub fn synchronize(&self) -> Result<()> {
        self.stream.synchronize()?;
        self.busy.set(false);
        Ok(())
    }

    /// Records an event after the work enqueued so far.
    pub fn record_event(&self) -> Result<PooledEvent<'_>> {
        let pooled = lock(&self.context.events).pop();
        let event = match pooled {
            Some(event) => event,
            None => Event::without_timing(&self.context.device)?,
        };
        event.record(&self.stream)?;
        Ok(PooledEvent { context: self.context, event: Some(event) })
    }

    /// Makes work enqueued from now on wait for an event.
    pub fn wait_event(&self, event: &PooledEvent<'_>) -> Result<()> {
        event.event.as_ref().map_or(Ok(()), |event| self.enqueue().wait(event))?;
        Ok(())
    }

    /// Returns uninitialized pinned memory of at least `bytes` bytes.
    pub fn staging(&self, bytes: usize) -> Result<StagingBuffer<'_>> {
        let mut kept = lock(&self.context.staging);
        let fitting = (0..kept.len()).filter(|i| kept[*i].len() >= bytes).min_by_key(|i| kept[*i].len());
        let pooled = fitting.map(|i| kept.swap_remove(i));
        drop(kept);
        let buffer = match pooled {
            Some(buffer) => buffer,
            None => HostBuffer::zeroed(&self.context.device, bytes.next_power_of_two().max(SMALLEST_STAGING))?,
        };
        Ok(StagingBuffer { stream: self, buffer: Some(buffer) })
    }

    /// Returns uninitialized device memory of `bytes` bytes, allocated from the device's pool in stream order.
    pub fn scratch(&self, bytes: usize) -> Result<ScratchBuffer<'_>> {
        Ok(ScratchBuffer { buffer: self.stream.alloc(bytes)?, _stream: PhantomData })
    }

    /// Waits for outstanding work and returns whether it has completed, with a device-wide synchronization as a last resort.
    fn drain(&self) -> bool {
        !self.busy.get() || self.synchronize().is_ok() || self.context.device.synchronize().is_ok()
    }
}

impl Drop for PooledStream<'_> {
    fn drop(&mut self) {
        if self.drain() {
            lock(&self.context.streams).push(self.stream.clone());
        }
    }
}

/// An event of the context's pool.
pub struct PooledEvent<'c> {
    context: &'c DeviceContext,
    event: Option<Event>,
}

impl PooledEvent<'_> {
    /// Returns whether the work before the event has completed.
    pub fn is_done(&self) -> Result<bool> {
        Ok(self.event.as_ref().map_or(Ok(true), Event::is_done)?)
    }

    /// Makes work enqueued on `stream` from now on wait for the event.
    pub fn block_stream(&self, stream: &Stream) -> Result<()> {
        Ok(self.event.as_ref().map_or(Ok(()), |event| stream.wait(event))?)
    }

    /// Waits for the work before the event.
    pub fn synchronize(&self) -> Result<()> {
        Ok(self.event.as_ref().map_or(Ok(()), Event::synchronize)?)
    }
}

impl Drop for PooledEvent<'_> {
    fn drop(&mut self) {
        lock(&self.context.events).extend(self.event.take());
    }
}

/// Pinned memory for copies between host and device. Dropping it waits for its stream and returns it to the pool.
pub struct StagingBuffer<'s> {
    stream: &'s PooledStream<'s>,
    buffer: Option<HostBuffer<u8>>,
}

impl StagingBuffer<'_> {
    /// Returns the host address.
    pub fn as_ptr(&self) -> *mut c_void {
        self.buffer.as_ref().map_or(std::ptr::null_mut(), |buffer| buffer.host_ptr().cast())
    }

    /// Returns the size in bytes, which may exceed the requested size.
    pub fn bytes(&self) -> usize {
        self.buffer.as_ref().map_or(0, HostBuffer::len)
    }
}

impl Drop for StagingBuffer<'_> {
    fn drop(&mut self) {
        let Some(buffer) = self.buffer.take() else { return };
        if !self.stream.drain() {
            // The device may still write to it.
            return std::mem::forget(buffer);
        }
        let mut kept = lock(&self.stream.context.staging);
        kept.push(buffer);
        let smallest = (0..kept.len()).min_by_key(|i| kept[*i].len()).filter(|_| kept.len() > STAGING_KEPT);
        let surplus = smallest.map(|i| kept.swap_remove(i));
        // Freeing pinned memory may block in the driver: release the lock first.
        drop(kept);
        drop(surplus);
    }
}

/// Device memory of the device's pool, freed in stream order when dropped.
pub struct ScratchBuffer<'s> {
    buffer: Buffer<u8>,
    _stream: PhantomData<&'s PooledStream<'s>>,
}

impl ScratchBuffer<'_> {
    /// Returns the device address.
    pub fn address(&self) -> DevicePtr {
        self.buffer.device_ptr()
    }
}
