//! Streams: queues of work that a device runs in order. Every allocation, copy and launch names one.

use std::ffi::c_void;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytemuck::Pod;

use crate::args::Args;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::event::{Event, done};
use crate::graph::Capture;
use crate::memory::{Block, Buffer, HostBuffer, Slice, SliceMut, mark_used};
use crate::table::{Copy2d, Copy2dSide, DevicePtr, Failure, Handle, Table};
use crate::timing::KernelTime;
use crate::vendor;

/// A queue of work on a device. Cheap to clone; usable from any thread.
#[derive(Clone)]
pub struct Stream(Arc<StreamInner>);

struct StreamInner {
    device: Device,
    raw: Handle,
    id: u64,
    /// Whether `capture` is set; the launch path reads only this.
    capturing: AtomicBool,
    capture: Mutex<Option<Arc<Capture>>>,
    /// Read-locked while work is enqueued, write-locked while a capture begins or ends: no other thread enqueues between the driver's state
    /// change and ours.
    gate: RwLock<()>,
    /// Whether each kernel is timed, and the times so far.
    measured: (AtomicBool, Mutex<Vec<KernelTime>>),
}

// SAFETY: a stream handle may be used from any thread.
unsafe impl Send for StreamInner {}
// SAFETY: as above.
unsafe impl Sync for StreamInner {}

impl PartialEq for Stream {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
impl Eq for Stream {}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stream({} on {})", self.0.id, self.0.device.name())
    }
}

/// The least and the greatest priority of a device's streams. Lower numbers run first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Priorities {
    /// Runs last.
    pub least: i32,
    /// Runs first.
    pub greatest: i32,
}

/// Not synchronized with the legacy default stream, which other libraries in the process may use.
const NON_BLOCKING: u32 = 1;

impl Device {
    /// Creates a stream of default priority.
    pub fn stream(&self) -> Result<Stream> {
        Stream::new(self, NON_BLOCKING, 0)
    }

    /// Creates a stream that synchronizes with the legacy default stream: its work starts after earlier work there, and later work there
    /// starts after it.
    pub fn blocking_stream(&self) -> Result<Stream> {
        const BLOCKING: u32 = 0;
        Stream::new(self, BLOCKING, 0)
    }

    /// Creates a stream with a priority from [`Device::stream_priorities`]; drivers clamp other values.
    pub fn stream_with_priority(&self, priority: i32) -> Result<Stream> {
        Stream::new(self, NON_BLOCKING, priority)
    }

    /// Returns the range of stream priorities: 0 to -5 on NVIDIA, 1 to -1 on AMD.
    pub fn stream_priorities(&self) -> Result<Priorities> {
        let (mut least, mut greatest) = (0, 0);
        let table = self.activate()?;
        // SAFETY: the outputs outlive the call.
        self.check(unsafe { table.stream_priority_range(&mut least, &mut greatest) })?;
        Ok(Priorities { least, greatest })
    }
}

impl Stream {
    fn new(device: &Device, flags: u32, priority: i32) -> Result<Stream> {
        // 0 is the pool's list of blocks that no stream uses.
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let table = device.activate()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the output outlives the call.
        device.check(unsafe { table.stream_create(&mut raw, flags, priority) })?;
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Ok(Stream(Arc::new(StreamInner {
            device: device.clone(),
            raw,
            id,
            capturing: AtomicBool::new(false),
            capture: Mutex::default(),
            gate: RwLock::default(),
            measured: Default::default(),
        })))
    }

    /// Returns its device.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// Blocks until all queued work is done.
    pub fn synchronize(&self) -> Result<()> {
        self.refuse_capture("synchronizing the stream")?;
        let table = self.device().activate()?;
        // SAFETY: the handle is live.
        self.device().check(unsafe { table.stream_synchronize(self.raw()) })
    }

    /// Returns whether all queued work is done.
    pub fn is_done(&self) -> Result<bool> {
        self.refuse_capture("querying the stream")?;
        let table = self.device().activate()?;
        // SAFETY: the handle is live.
        done(unsafe { table.stream_query(self.raw()) }).map_err(|failure| self.device().error(failure))
    }

    /// Records an event after the work queued so far.
    pub fn record(&self) -> Result<Event> {
        let event = Event::new(self.device())?;
        event.record(self)?;
        Ok(event)
    }

    /// Makes later work on this stream wait for `event`, which may belong to another device of the same driver.
    pub fn wait(&self, event: &Event) -> Result<()> {
        if !Arc::ptr_eq(event.device().driver(), self.device().driver()) {
            return Err(wrong_device("the event", self.device(), event.device()));
        }
        let capture = event.capture();
        // Waiting for a captured event adds this stream to the capture.
        let (_exclusive, _shared) = if capture.is_some() { (Some(self.enter_exclusive()), None) } else { (None, Some(self.enter())) };
        let _no_waits = capture.is_some().then(|| self.device().block_waits());
        let table = self.device().activate()?;
        // SAFETY: both handles are live.
        self.device().check(unsafe { table.stream_wait_event(self.raw(), event.raw(), 0) })?;
        if let Some(capture) = capture.filter(|_| !self.is_capturing()) {
            capture.join(self);
        }
        Ok(())
    }

    /// Runs `function` on a driver thread after the work queued so far. It must not call this crate.
    pub fn on_host(&self, function: impl FnOnce() + Send + 'static) -> Result<()> {
        let _gate = self.enter();
        // A graph could run it more than once.
        self.refuse_capture("a host function")?;
        let table = self.device().activate()?;
        let data: *mut c_void = Box::into_raw(Box::new(Box::new(function) as Boxed)).cast();
        // SAFETY: the box is taken back by exactly one of the calls below, or here when they fail.
        let mut outcome = unsafe { table.launch_host_function(self.raw(), run_boxed, data) };
        if matches!(outcome, Err(Failure::MissingSymbol(_))) {
            // HIP before 5.3.
            // SAFETY: as above.
            outcome = unsafe { table.stream_add_callback(self.raw(), run_boxed_callback, data, 0) };
        }
        if outcome.is_err() {
            // SAFETY: the driver did not take the box.
            drop(unsafe { Box::from_raw(data.cast::<Boxed>()) });
        }
        self.device().check(outcome)
    }

    /// Allocates `len` elements, uninitialized.
    pub fn alloc<T: Pod>(&self, len: usize) -> Result<Buffer<T>> {
        Buffer::alloc(self, len)
    }

    /// Allocates `len` elements, zeroed.
    pub fn alloc_zeroed<T: Pod>(&self, len: usize) -> Result<Buffer<T>> {
        let mut buffer = self.alloc(len)?;
        self.zero(&mut buffer)?;
        Ok(buffer)
    }

    /// Allocates a buffer with a copy of `data`.
    pub fn upload<T: Pod>(&self, data: &[T]) -> Result<Buffer<T>> {
        let mut buffer = self.alloc(data.len())?;
        self.copy_from_host(data, &mut buffer)?;
        Ok(buffer)
    }

    /// Copies the elements to the host.
    pub fn download<'a, T: Pod>(&self, source: impl Into<Slice<'a, T>>) -> Result<Vec<T>> {
        let source = source.into();
        let mut data = vec![T::zeroed(); source.len()];
        self.copy_to_host(source, &mut data)?;
        Ok(data)
    }

    /// Copies from host memory and waits for the copy.
    pub fn copy_from_host<'a, T: Pod>(&self, source: &[T], destination: impl Into<SliceMut<'a, T>>) -> Result<()> {
        let _gate = self.enter();
        // A graph would read the slice after its borrow ended.
        self.refuse_capture("a copy from pageable host memory")?;
        let destination = destination.into();
        self.check_copy(source.len(), destination.len(), &[destination.block])?;
        if source.is_empty() {
            return Ok(());
        }
        let table = self.device().activate()?;
        // SAFETY: both ranges are live and as long as checked; the wait below ends the use of `source`.
        let queued = unsafe { table.copy_h2d_async(destination.device_ptr(), source.as_ptr().cast(), destination.bytes(), self.raw()) };
        self.device().check(queued)?;
        self.finish_copy(destination.block)
    }

    /// Copies to host memory and waits for the copy.
    pub fn copy_to_host<'a, T: Pod>(&self, source: impl Into<Slice<'a, T>>, destination: &mut [T]) -> Result<()> {
        let _gate = self.enter();
        self.refuse_capture("a copy to pageable host memory")?;
        let source = source.into();
        self.check_copy(source.len(), destination.len(), &[source.block])?;
        if source.is_empty() {
            return Ok(());
        }
        let table = self.device().activate()?;
        // SAFETY: both ranges are live and as long as checked; the wait below ends the use of `destination`.
        let queued = unsafe { table.copy_d2h_async(destination.as_mut_ptr().cast(), source.device_ptr(), source.bytes(), self.raw()) };
        self.device().check(queued)?;
        self.finish_copy(source.block)
    }

    /// Queues a copy from page-locked memory. Changing that memory later waits for the copy.
    pub fn copy_from_pinned<'a, T: Pod>(&self, source: &HostBuffer<T>, destination: impl Into<SliceMut<'a, T>>) -> Result<()> {
        let _gate = self.enter();
        let destination = destination.into();
        let view = source.view();
        self.check_copy(view.len(), destination.len(), &[view.block, destination.block])?;
        if view.is_empty() {
            return Ok(());
        }
        let table = self.device().activate()?;
        // SAFETY: both ranges are live and as long as checked; the blocks remember the use.
        let queued = unsafe { table.copy_h2d_async(destination.device_ptr(), source.host_ptr().cast(), destination.bytes(), self.raw()) };
        self.device().check(queued)?;
        mark_used([view.block, destination.block], self)
    }

    /// Queues a copy to page-locked memory. Reading that memory waits for the copy.
    pub fn copy_to_pinned<'a, T: Pod>(&self, source: impl Into<Slice<'a, T>>, destination: &mut HostBuffer<T>) -> Result<()> {
        let _gate = self.enter();
        let source = source.into();
        let host = destination.host_ptr();
        let view = destination.view_mut();
        self.check_copy(source.len(), view.len(), &[source.block, view.block])?;
        if source.is_empty() {
            return Ok(());
        }
        let table = self.device().activate()?;
        // SAFETY: both ranges are live and as long as checked; the blocks remember the use.
        let queued = unsafe { table.copy_d2h_async(host.cast(), source.device_ptr(), source.bytes(), self.raw()) };
        self.device().check(queued)?;
        mark_used([view.block, source.block], self)
    }

    /// Queues a copy within the device.
    pub fn copy<'a, 'b, T: Pod>(&self, source: impl Into<Slice<'a, T>>, destination: impl Into<SliceMut<'b, T>>) -> Result<()> {
        let _gate = self.enter();
        let (source, destination) = (source.into(), destination.into());
        self.check_copy(source.len(), destination.len(), &[source.block, destination.block])?;
        if source.is_empty() {
            return Ok(());
        }
        let table = self.device().activate()?;
        // SAFETY: both ranges are live and as long as checked; the blocks remember the use.
        let queued = unsafe { table.copy_d2d_async(destination.device_ptr(), source.device_ptr(), source.bytes(), self.raw()) };
        self.device().check(queued)?;
        mark_used([source.block, destination.block], self)
    }

    /// Queues a copy of `height` rows of `width` elements within the device. Rows begin `source_pitch` and `destination_pitch` elements
    /// apart.
    pub fn copy_2d<'a, 'b, T: Pod>(
        &self,
        source: impl Into<Slice<'a, T>>,
        source_pitch: usize,
        destination: impl Into<SliceMut<'b, T>>,
        destination_pitch: usize,
        [width, height]: [usize; 2],
    ) -> Result<()> {
        let _gate = self.enter();
        let (source, destination) = (source.into(), destination.into());
        self.check_copy(0, 0, &[source.block, destination.block])?;
        if width == 0 || height == 0 {
            return Ok(());
        }
        // A single row has no pitch, whatever was given.
        let [source_pitch, destination_pitch] = [source_pitch, destination_pitch].map(|pitch| if height == 1 { width } else { pitch });
        check_rows(source_pitch, width, height, source.len())?;
        check_rows(destination_pitch, width, height, destination.len())?;
        let table = self.device().activate()?;
        let bytes = size_of::<T>();
        let memory_type = vendor::device_memory_type(self.device().info().vendor, self.device().driver().version().major);
        let side = |device, pitch: usize| {
            let null = std::ptr::null_mut();
            Copy2dSide { x: 0, y: 0, memory_type, host: null, device, array: null, pitch: pitch * bytes }
        };
        let (from, to) = (source.device_ptr(), destination.device_ptr());
        let copy = Copy2d { source: side(from, source_pitch), destination: side(to, destination_pitch), width: width * bytes, height };
        // SAFETY: both ranges are live and as long as checked; the blocks remember the use.
        let mut queued = unsafe { table.copy_2d_async(&copy, self.raw()) };
        if matches!(queued, Err(Failure::MissingSymbol(_))) {
            let mut rows = 0..height as u64;
            queued = rows.try_for_each(|row| {
                let (from, to) = (from + row * copy.source.pitch as u64, to + row * copy.destination.pitch as u64);
                // SAFETY: as above.
                unsafe { table.copy_d2d_async(to, from, copy.width, self.raw()) }
            });
        }
        self.device().check(queued)?;
        mark_used([source.block, destination.block], self)
    }

    /// Copies from this stream's device to another device of either vendor.
    ///
    /// Between devices of one driver the copy is direct and queued on this stream, and `to` waits for it. Across drivers the data goes
    /// through the host, and the call waits for it.
    pub fn copy_to_peer<'a, 'b, T: Pod>(
        &self,
        source: impl Into<Slice<'a, T>>,
        to: &Stream,
        destination: impl Into<SliceMut<'b, T>>,
    ) -> Result<()> {
        let (source, destination) = (source.into(), destination.into());
        self.check_copy(source.len(), destination.len(), &[source.block])?;
        to.check_device(destination.block, "the destination")?;
        if source.is_empty() {
            return Ok(());
        }
        if !Arc::ptr_eq(self.device().driver(), to.device().driver()) {
            let data = self.download(source)?;
            return to.copy_from_host(&data, destination);
        }
        // Earlier work on `to` may still use the destination.
        let [before, done] = [Event::without_timing(to.device())?, Event::without_timing(self.device())?];
        before.record(to)?;
        self.wait(&before)?;
        let followed = {
            let _gate = self.enter();
            let table = self.device().activate()?;
            let (dst, src, bytes) = (destination.device_ptr(), source.device_ptr(), source.bytes());
            // SAFETY: both ranges are live and as long as checked; the blocks remember the use.
            let queued = unsafe {
                match self.device() == to.device() {
                    true => table.copy_d2d_async(dst, src, bytes, self.raw()),
                    false => vendor::copy_peer(table, (dst, to.device().context()), (src, self.device().context()), bytes, self.raw()),
                }
            };
            self.device().check(queued)?;
            let used = mark_used([source.block], self);
            match done.record_within(self) {
                Ok(()) if self.capture().is_none() => used.map(|()| true),
                recorded => mark_used([destination.block], self).and(used).and(recorded).map(|()| false),
            }?
        };
        let waits = to.wait(&done);
        if followed {
            // Later work on `to` runs after the copy, so the destination belongs to that stream again.
            let last_user = if waits.is_ok() { to } else { self };
            let _gate = last_user.enter();
            mark_used([destination.block], last_user)?;
        }
        waits
    }

    /// Queues a copy from a device address, which may come from another library, to host memory.
    ///
    /// # Safety
    /// Both must be valid for `bytes` bytes, `destination` for writing, and stay so until the copy is done.
    pub unsafe fn copy_raw_to_host(&self, source: DevicePtr, destination: *mut c_void, bytes: usize) -> Result<()> {
        // SAFETY: the caller guarantees both.
        self.copy_raw_with(bytes, |table, stream| unsafe { table.copy_d2h_async(destination, source, bytes, stream) })
    }

    /// Queues a copy from host memory to a device address.
    ///
    /// # Safety
    /// As [`Stream::copy_raw_to_host`].
    pub unsafe fn copy_raw_from_host(&self, source: *const c_void, destination: DevicePtr, bytes: usize) -> Result<()> {
        // SAFETY: the caller guarantees both.
        self.copy_raw_with(bytes, |table, stream| unsafe { table.copy_h2d_async(destination, source, bytes, stream) })
    }

    /// Queues a copy between device addresses.
    ///
    /// # Safety
    /// As [`Stream::copy_raw_to_host`].
    pub unsafe fn copy_raw(&self, source: DevicePtr, destination: DevicePtr, bytes: usize) -> Result<()> {
        // SAFETY: the caller guarantees both.
        self.copy_raw_with(bytes, |table, stream| unsafe { table.copy_d2d_async(destination, source, bytes, stream) })
    }

    fn copy_raw_with(&self, bytes: usize, copy: impl FnOnce(&Table, Handle) -> Result<(), Failure>) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let _gate = self.enter();
        self.device().check(copy(self.device().activate()?, self.raw()))
    }

    /// Queues a fill with zeros.
    pub fn zero<'a, T: Pod>(&self, destination: impl Into<SliceMut<'a, T>>) -> Result<()> {
        let destination = destination.into();
        let (ptr, bytes) = (destination.device_ptr(), destination.bytes());
        self.fill_with(destination, |table, stream| {
            // SAFETY: the range is live; the block remembers the use.
            unsafe { table.fill_u8_async(ptr, 0, bytes, stream) }
        })
    }

    /// Queues a fill of every element with `value`. Elements must have 1, 2 or 4 bytes, as drivers require.
    pub fn fill<'a, T: Pod>(&self, destination: impl Into<SliceMut<'a, T>>, value: T) -> Result<()> {
        let destination = destination.into();
        let (ptr, len) = (destination.device_ptr(), destination.len());
        let bytes = bytemuck::bytes_of(&value);
        match *bytes {
            // SAFETY: the range is live; the block remembers the use.
            [a] => self.fill_with(destination, |table, stream| unsafe { table.fill_u8_async(ptr, a, len, stream) }),
            [a, b] => {
                // SAFETY: as above.
                self.fill_with(destination, |table, stream| unsafe { table.fill_u16_async(ptr, u16::from_ne_bytes([a, b]), len, stream) })
            }
            [a, b, c, d] => {
                // SAFETY: as above.
                self.fill_with(destination, |table, stream| unsafe {
                    table.fill_u32_async(ptr, u32::from_ne_bytes([a, b, c, d]), len, stream)
                })
            }
            _ => Err(Error::Unsupported {
                what: format!("filling elements of {} bytes", bytes.len()),
                device: self.device().name().to_owned(),
            }),
        }
    }

    fn fill_with<T: Pod>(&self, destination: SliceMut<'_, T>, fill: impl FnOnce(&Table, Handle) -> Result<(), Failure>) -> Result<()> {
        let _gate = self.enter();
        self.check_device(destination.block, "the destination")?;
        if destination.is_empty() {
            return Ok(());
        }
        let table = self.device().activate()?;
        self.device().check(fill(table, self.raw()))?;
        destination.block.used_on(self)
    }

    fn check_copy(&self, source_len: usize, destination_len: usize, blocks: &[&Arc<Block>]) -> Result<()> {
        if source_len != destination_len {
            return Err(Error::LengthMismatch { source_len, destination_len });
        }
        blocks.iter().try_for_each(|block| self.check_device(block, "a buffer"))
    }

    pub(crate) fn check_device(&self, block: &Block, what: &str) -> Result<()> {
        self.check_same_device(block.device(), what)
    }

    pub(crate) fn check_same_device(&self, device: &Device, what: &str) -> Result<()> {
        if device == self.device() { Ok(()) } else { Err(wrong_device(what, self.device(), device)) }
    }

    fn refuse_capture(&self, what: &'static str) -> Result<()> {
        if self.is_capturing() { Err(Error::Capturing { what }) } else { Ok(()) }
    }

    /// Waits for a copy with pageable memory: the borrow of the slice must outlive it.
    fn finish_copy(&self, block: &Arc<Block>) -> Result<()> {
        let marked = block.used_on(self);
        self.finish().and(marked)
    }

    /// Waits for all queued work. If synchronizing the stream fails, synchronizes the device; if that fails too, the device is lost and runs
    /// nothing any more.
    pub(crate) fn finish(&self) -> Result<()> {
        let table = &self.device().driver().table;
        // SAFETY: the handle is live.
        let outcome = unsafe { table.stream_synchronize(self.raw()) };
        if outcome.is_err() {
            let _ = self.device().synchronize();
        }
        self.device().check(outcome)
    }

    /// Returns the driver's handle, for the vendor's other libraries. It is valid as long as the stream lives.
    pub fn raw(&self) -> Handle {
        self.0.raw
    }

    /// Lets a vendor library enqueue work on this stream: `enqueue` gets the driver's handle, with the device current. `touched` are the
    /// buffers that the work reads or writes.
    pub fn enqueue_external<'a, R>(&self, touched: impl Args<'a>, enqueue: impl FnOnce(Handle) -> R) -> Result<R> {
        let touched = touched.into_array();
        let blocks = || touched.as_ref().iter().filter_map(|arg| arg.block);
        blocks().try_for_each(|block| self.check_device(block, "a buffer"))?;
        self.device().activate()?;
        let enqueue = || {
            let _gate = self.enter();
            let result = enqueue(self.raw());
            mark_used(blocks(), self)?;
            Ok(result)
        };
        if self.measures() { self.measure("library", enqueue) } else { enqueue() }
    }

    #[inline]
    pub(crate) fn measured(&self) -> &(AtomicBool, Mutex<Vec<KernelTime>>) {
        &self.0.measured
    }

    pub(crate) fn id(&self) -> u64 {
        self.0.id
    }

    /// Held while work is enqueued and its buffers are marked.
    #[inline]
    pub(crate) fn enter(&self) -> RwLockReadGuard<'_, ()> {
        self.0.gate.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Held while a capture begins, ends, or adds this stream.
    pub(crate) fn enter_exclusive(&self) -> RwLockWriteGuard<'_, ()> {
        self.0.gate.write().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    pub(crate) fn is_capturing(&self) -> bool {
        self.0.capturing.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn capture(&self) -> Option<Arc<Capture>> {
        if !self.is_capturing() {
            return None;
        }
        self.0.capture.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_capture(&self, capture: Option<Arc<Capture>>) {
        self.0.capturing.store(capture.is_some(), Ordering::Release);
        *self.0.capture.lock().unwrap_or_else(PoisonError::into_inner) = capture;
    }
}

impl Drop for StreamInner {
    fn drop(&mut self) {
        if let Ok(table) = self.device.activate() {
            self.device.0.pool.retire_stream(&self.device, table, self.id, self.raw);
            // SAFETY: the handle is ours, and this is its last use. The driver finishes what is queued.
            let _ = unsafe { table.stream_destroy(self.raw) };
        }
    }
}

/// Checks that `height` rows of `width` elements, `pitch` apart, are within `len` elements and do not overlap.
fn check_rows(pitch: usize, width: usize, height: usize, len: usize) -> Result<()> {
    let end = height.saturating_sub(1).saturating_mul(pitch).saturating_add(width);
    if end > len || width > pitch { Err(Error::OutOfBounds { start: 0, end, len }) } else { Ok(()) }
}

#[cold]
fn wrong_device(what: &str, expected: &Device, actual: &Device) -> Error {
    Error::WrongDevice { what: what.to_owned(), expected: expected.name().to_owned(), actual: actual.name().to_owned() }
}

type Boxed = Box<dyn FnOnce() + Send>;

unsafe extern "C" fn run_boxed(data: *mut c_void) {
    // SAFETY: `on_host` made the box for exactly one run.
    let function = unsafe { Box::from_raw(data.cast::<Boxed>()) };
    // Unwinding into the driver would be undefined.
    if std::panic::catch_unwind(AssertUnwindSafe(function)).is_err() {
        tracing::error!("a host function queued on a stream panicked");
    }
}

unsafe extern "C" fn run_boxed_callback(_stream: Handle, _status: i32, data: *mut c_void) {
    // SAFETY: as above.
    unsafe { run_boxed(data) }
}
