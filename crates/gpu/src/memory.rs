//! Memory that a device can access: [`Buffer`] on the device, [`HostBuffer`] page-locked on the host, [`UnifiedBuffer`] migrated between
//! both; and bounds-checked views of them.
//!
//! Elements are plain data ([`Pod`]): every byte pattern is a valid value, so reading what a kernel wrote is never undefined behavior.

use std::any::Any;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Bound, RangeBounds};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytemuck::Pod;

use crate::device::Device;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::host_view::{HostView, HostViewMut};
use crate::stream::Stream;
use crate::table::{DevicePtr, Vendor};
use crate::vendor::MemoryKind;

/// One allocation, alive while a buffer, a view or a graph uses it.
pub(crate) struct Block {
    device: Device,
    ptr: DevicePtr,
    bytes: usize,
    origin: Origin,
    uses: Mutex<Uses>,
    /// Whether work that was captured on a stream other than its own uses it.
    shared: AtomicBool,
}

/// Current users of a block.
#[derive(Default)]
struct Uses {
    queued: Vec<Use>,
    /// Host views. Only graph launches could write to memory under a view.
    views: usize,
    /// Graph launches that are being enqueued.
    launches: usize,
}

enum Origin {
    /// From the pool, for work on this stream.
    Pool { stream: Stream, held: usize },
    /// A driver allocation of its own.
    Dedicated,
    /// No memory: a buffer without elements.
    Empty,
    /// Page-locked by the driver.
    Pinned { host: *mut c_void },
    /// Memory of the application, page-locked in place. The owner, if any, lives as long as the registration.
    Registered { host: *mut c_void, owner: ManuallyDrop<Option<Box<dyn Any + Send + Sync>>> },
    /// Unified memory.
    Managed,
}

// SAFETY: the host addresses are owned by the block and handed out under the buffers' borrow rules.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

/// Queued work that may use a block.
enum Use {
    /// Anywhere on this stream (device memory: only matters when the block is freed).
    On(Stream),
    /// Up to this event (memory the host reads).
    Until(u64, Event),
}

impl Block {
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The size that was requested.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether captured work on a stream other than its own uses it.
    pub fn is_shared(&self) -> bool {
        self.shared.load(Ordering::Acquire)
    }

    pub fn kind(&self) -> MemoryKind {
        match self.origin {
            Origin::Pool { .. } | Origin::Dedicated | Origin::Empty => MemoryKind::Device,
            Origin::Pinned { .. } | Origin::Registered { .. } => MemoryKind::Host,
            Origin::Managed => MemoryKind::Unified,
        }
    }

    /// Records that work just queued on `stream` uses this block.
    pub fn used_on(self: &Arc<Self>, stream: &Stream) -> Result<()> {
        if let Some(capture) = stream.capture() {
            if !matches!(&self.origin, Origin::Pool { stream: home, .. } if home == stream) {
                self.shared.store(true, Ordering::Release);
            }
            // The graph may run at any later time, so it keeps the block alive.
            capture.keep(self);
            return Ok(());
        }
        match &self.origin {
            Origin::Pool { stream: home, .. } if home == stream => Ok(()),
            Origin::Empty => Ok(()),
            Origin::Pool { .. } => {
                let mut uses = self.uses();
                if !uses.queued.iter().any(|u| matches!(u, Use::On(known) if known == stream)) {
                    uses.queued.push(Use::On(stream.clone()));
                }
                Ok(())
            }
            _ => self.used_until_now(stream).inspect_err(|_| {
                // Without an event the queued work cannot be waited for later: wait here, or leak the memory.
                if stream.finish().is_err() {
                    std::mem::forget(self.clone());
                }
            }),
        }
    }

    /// Records an event after the work queued on `stream`.
    fn used_until_now(&self, stream: &Stream) -> Result<()> {
        let mut uses = self.uses();
        for known in &uses.queued {
            if let Use::Until(id, event) = known
                && *id == stream.id()
            {
                return event.record_within(stream);
            }
        }
        // The stream may belong to a peer of the block's device.
        let event = Event::without_timing(stream.device())?;
        event.record_within(stream)?;
        uses.queued.push(Use::Until(stream.id(), event));
        Ok(())
    }

    /// Waits until no queued work uses this block. Uses that cannot be waited for stay in the list.
    fn wait_for_uses(uses: &mut Uses) -> Result<()> {
        while let Some(known) = uses.queued.last() {
            match known {
                Use::On(stream) => stream.synchronize()?,
                Use::Until(_, event) => event.synchronize()?,
            }
            uses.queued.pop();
        }
        Ok(())
    }

    /// Begins a host view: waits for queued work and blocks graph launches.
    pub fn begin_view(&self) -> Result<()> {
        loop {
            let mut uses = self.uses();
            if uses.launches == 0 {
                Block::wait_for_uses(&mut uses)?;
                uses.views += 1;
                return Ok(());
            }
            drop(uses);
            // Another thread is enqueueing a graph, which takes microseconds.
            std::thread::yield_now();
        }
    }

    pub fn end_view(&self) {
        self.uses().views -= 1;
    }

    /// Blocks host views for a graph launch; returns false if one exists.
    pub fn begin_launch(&self) -> bool {
        let mut uses = self.uses();
        let free = uses.views == 0;
        uses.launches += usize::from(free);
        free
    }

    pub fn end_launch(&self) {
        self.uses().launches -= 1;
    }

    fn uses(&self) -> std::sync::MutexGuard<'_, Uses> {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn new(device: &Device, ptr: DevicePtr, bytes: usize, origin: Origin) -> Arc<Block> {
        Arc::new(Block { device: device.clone(), ptr, bytes, origin, uses: Mutex::default(), shared: AtomicBool::new(false) })
    }

    fn pooled(stream: &Stream, bytes: usize) -> Result<Arc<Block>> {
        let device = stream.device();
        if bytes == 0 {
            return Ok(Block::new(device, 0, 0, Origin::Empty));
        }
        let _gate = stream.enter();
        let capture = stream.capture();
        if let Some(block) = capture.as_ref().and_then(|capture| capture.reuse(stream, bytes)) {
            return Ok(block);
        }
        let (ptr, held) = device.0.pool.take(stream, bytes)?;
        let block = Block::new(device, ptr, bytes, Origin::Pool { stream: stream.clone(), held });
        if let Some(capture) = capture {
            capture.keep_own(&block, stream);
        }
        Ok(block)
    }
}

/// Records for every block that work just queued on `stream` uses it; returns the first failure after all.
pub(crate) fn mark_used<'a>(blocks: impl IntoIterator<Item = &'a Arc<Block>>, stream: &Stream) -> Result<()> {
    blocks.into_iter().map(|block| block.used_on(stream)).fold(Ok(()), Result::and)
}

impl Drop for Block {
    fn drop(&mut self) {
        let uses = self.uses.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Origin::Pool { stream, held } = &self.origin {
            let queued = std::mem::take(&mut uses.queued);
            let others = queued.into_iter().filter_map(|u| if let Use::On(stream) = u { Some(stream) } else { None }).collect();
            return self.device.0.pool.give_back(&self.device, (self.ptr, *held, self.bytes), stream, others);
        }
        let waited = Block::wait_for_uses(uses).and_then(|()| self.device.activate());
        let outcome = waited.and_then(|table| {
            // SAFETY: the block owns the memory, and no queued work uses it any more.
            self.device.check(unsafe {
                match &self.origin {
                    Origin::Pool { .. } | Origin::Empty => Ok(()),
                    Origin::Pinned { host } => table.host_free(*host),
                    Origin::Registered { host, .. } => table.host_unregister(*host),
                    Origin::Dedicated | Origin::Managed => table.mem_free(self.ptr),
                }
            })
        });
        match outcome {
            Ok(()) => {
                if let Origin::Registered { owner, .. } = &mut self.origin {
                    // SAFETY: nothing uses it after this.
                    unsafe { ManuallyDrop::drop(owner) };
                }
            }
            // The device may still write to it, so it must not be freed.
            Err(error) => tracing::warn!(%error, "memory could not be freed and was leaked"),
        }
    }
}

fn byte_len<T>(len: usize) -> Result<usize> {
    const { assert!(size_of::<T>() > 0, "zero-sized elements are unsupported") };
    len.checked_mul(size_of::<T>())
        .filter(|bytes| isize::try_from(*bytes).is_ok())
        .ok_or(Error::TooLarge { len, element_bytes: size_of::<T>() })
}

/// Elements in device memory, freed when dropped. Created by [`Stream::alloc`], [`Stream::upload`] and others.
pub struct Buffer<T> {
    block: Arc<Block>,
    len: usize,
    _element: PhantomData<T>,
}

impl<T: Pod> Buffer<T> {
    pub(crate) fn alloc(stream: &Stream, len: usize) -> Result<Buffer<T>> {
        Ok(Buffer { block: Block::pooled(stream, byte_len::<T>(len)?)?, len, _element: PhantomData })
    }

    /// Allocates `len` elements outside of the pool, for memory that is shared with other processes ([`Buffer::ipc_handle`]).
    pub fn dedicated(device: &Device, len: usize) -> Result<Buffer<T>> {
        /// Drivers combine smaller allocations into one of this size, and a handle opens all of it.
        const GRANULE: usize = 2 << 20;
        let bytes = byte_len::<T>(len)?;
        let Some(held) = bytes.checked_next_multiple_of(GRANULE).filter(|held| *held > 0) else {
            return Ok(Buffer { block: Block::new(device, 0, 0, Origin::Empty), len, _element: PhantomData });
        };
        let table = device.activate()?;
        let mut ptr = 0;
        // SAFETY: the output outlives the call.
        device.check(unsafe { table.mem_alloc(&mut ptr, held) })?;
        Ok(Buffer { block: Block::new(device, ptr, bytes, Origin::Dedicated), len, _element: PhantomData })
    }

    pub(crate) fn is_dedicated(&self) -> bool {
        matches!(self.block.origin, Origin::Dedicated)
    }
}

/// Elements in page-locked host memory that the device can access.
///
/// Copies to and from it are asynchronous; accessing it on the host waits for the copies that use it.
pub struct HostBuffer<T> {
    block: Arc<Block>,
    len: usize,
    _element: PhantomData<T>,
}

impl<T: Pod> HostBuffer<T> {
    /// Allocates zeroed page-locked memory.
    pub fn zeroed(device: &Device, len: usize) -> Result<HostBuffer<T>> {
        /// Valid in every context, and mapped into the device's address space.
        const PORTABLE_MAPPED: u32 = 1 | 2;
        let bytes = byte_len::<T>(len)?;
        if bytes == 0 {
            return Ok(HostBuffer { block: Block::new(device, 0, 0, Origin::Empty), len, _element: PhantomData });
        }
        let table = device.activate()?;
        let mut host = std::ptr::null_mut();
        // SAFETY: the output outlives the call.
        device.check(unsafe { table.host_alloc(&mut host, bytes, PORTABLE_MAPPED) })?;
        // SAFETY: the driver gave `bytes` bytes.
        unsafe { std::ptr::write_bytes(host.cast::<u8>(), 0, bytes) };
        HostBuffer::map(device, host, bytes, Origin::Pinned { host }, len)
    }

    /// Page-locks a vector in place: the device accesses the application's memory without a copy.
    pub fn from_vec(device: &Device, mut data: Vec<T>) -> Result<HostBuffer<T>>
    where
        T: Send + Sync,
    {
        let (host, len) = (data.as_mut_ptr(), data.len());
        // SAFETY: the vector is moved into the buffer and not touched before it is dropped; its heap memory stays in place.
        unsafe { HostBuffer::register(device, host, len, Some(Box::new(data))) }
    }

    /// Page-locks memory of the application, such as a mapped file or another library's buffer.
    ///
    /// # Safety
    /// `len` elements at `host` must stay valid and be accessed through this buffer alone until it is dropped.
    pub unsafe fn from_raw(device: &Device, host: *mut T, len: usize) -> Result<HostBuffer<T>> {
        // SAFETY: the caller guarantees it.
        unsafe { HostBuffer::register(device, host, len, None) }
    }

    /// # Safety
    /// As `from_raw`; an owner keeps the memory valid.
    unsafe fn register(device: &Device, host: *mut T, len: usize, owner: Option<Box<dyn Any + Send + Sync>>) -> Result<HostBuffer<T>> {
        const PORTABLE_MAPPED: u32 = 1 | 2;
        let bytes = byte_len::<T>(len)?;
        if bytes == 0 {
            return Ok(HostBuffer { block: Block::new(device, 0, 0, Origin::Empty), len, _element: PhantomData });
        }
        let table = device.activate()?;
        let host = host.cast::<c_void>();
        // SAFETY: the caller guarantees that the range is valid.
        device.check(unsafe { table.host_register(host, bytes, PORTABLE_MAPPED) })?;
        HostBuffer::map(device, host, bytes, Origin::Registered { host, owner: ManuallyDrop::new(owner) }, len)
    }

    fn map(device: &Device, host: *mut c_void, bytes: usize, origin: Origin, len: usize) -> Result<HostBuffer<T>> {
        let table = device.activate()?;
        let mut ptr = 0;
        // SAFETY: the output outlives the call, and `host` is page-locked and mapped.
        let mapped = device.check(unsafe { table.host_device_pointer(&mut ptr, host, 0) });
        // Created before the check, so that a failure releases the memory.
        let block = Block::new(device, ptr, bytes, origin);
        mapped?;
        Ok(HostBuffer { block, len, _element: PhantomData })
    }

    /// Returns the host address. Accesses through it do not wait for queued work.
    pub fn host_ptr(&self) -> *mut T {
        match self.block.origin {
            Origin::Pinned { host } | Origin::Registered { host, .. } => host.cast(),
            _ => std::ptr::NonNull::dangling().as_ptr(),
        }
    }
}

/// Elements in unified (managed) memory: one address for host and device, migrated by the driver.
pub struct UnifiedBuffer<T> {
    block: Arc<Block>,
    len: usize,
    _element: PhantomData<T>,
}

impl<T: Pod> UnifiedBuffer<T> {
    /// Allocates zeroed unified memory.
    pub fn zeroed(device: &Device, len: usize) -> Result<UnifiedBuffer<T>> {
        const GLOBAL: u32 = 1;
        let info = device.info();
        // On an NVIDIA device without concurrent access, host access to any unified memory faults while any kernel runs, which no borrow
        // can rule out. AMD falls back to host memory, which does not fault.
        if !info.unified_memory || info.vendor == Vendor::Nvidia && !info.concurrent_unified {
            return Err(Error::Unsupported { what: "unified memory".to_owned(), device: device.name().to_owned() });
        }
        let bytes = byte_len::<T>(len)?;
        if bytes == 0 {
            return Ok(UnifiedBuffer { block: Block::new(device, 0, 0, Origin::Empty), len, _element: PhantomData });
        }
        let table = device.activate()?;
        let mut ptr = 0;
        // SAFETY: the output outlives the call.
        device.check(unsafe { table.managed_alloc(&mut ptr, bytes, GLOBAL) })?;
        let mut buffer = UnifiedBuffer { block: Block::new(device, ptr, bytes, Origin::Managed), len, _element: PhantomData };
        bytemuck::fill_zeroes(&mut buffer.as_mut_slice()?);
        Ok(buffer)
    }

    /// Queues a prefetch to `stream`'s device.
    pub fn prefetch_to_device(&self, stream: &Stream) -> Result<()> {
        self.prefetch(stream, stream.device().context().ordinal)
    }

    /// Queues a prefetch to the host.
    pub fn prefetch_to_host(&self, stream: &Stream) -> Result<()> {
        const HOST: i32 = -1;
        self.prefetch(stream, HOST)
    }

    fn prefetch(&self, stream: &Stream, location: i32) -> Result<()> {
        let _gate = stream.enter();
        stream.check_device(&self.block, "the unified buffer")?;
        if self.len == 0 || !self.block.device.info().concurrent_unified {
            // Without concurrent access the driver migrates the whole allocation at launches anyway.
            return Ok(());
        }
        let table = stream.device().activate()?;
        // SAFETY: the block is live, and the stream is.
        stream.device().check(unsafe { table.mem_prefetch_async(self.block.ptr, self.block.bytes, location, stream.raw()) })?;
        self.block.used_on(stream)
    }

    fn host_ptr(&self) -> *mut T {
        if self.len == 0 { std::ptr::NonNull::dangling().as_ptr() } else { self.block.ptr as *mut T }
    }
}

macro_rules! host_access {
    ($buffer:ident) => {
        impl<T: Pod> $buffer<T> {
            /// Waits for queued work that uses the elements and returns them.
            pub fn as_slice(&self) -> Result<HostView<'_, T>> {
                self.block.begin_view()?;
                // SAFETY: `len` plain elements, and the work that could write them is done; new work needs `&mut self`, or is refused.
                Ok(HostView::new(unsafe { std::slice::from_raw_parts(self.host_ptr(), self.len) }, &self.block))
            }

            /// Waits for queued work that uses the elements and returns them for writing.
            pub fn as_mut_slice(&mut self) -> Result<HostViewMut<'_, T>> {
                self.block.begin_view()?;
                // SAFETY: as above, and the borrow is exclusive.
                Ok(HostViewMut::new(unsafe { std::slice::from_raw_parts_mut(self.host_ptr(), self.len) }, &self.block))
            }
        }
    };
}
host_access!(HostBuffer);
host_access!(UnifiedBuffer);

macro_rules! common {
    ($buffer:ident) => {
        impl<T: Pod> $buffer<T> {
            /// Returns the number of elements.
            pub fn len(&self) -> usize {
                self.len
            }

            /// Returns whether it has no elements.
            pub fn is_empty(&self) -> bool {
                self.len == 0
            }

            /// Returns its device.
            pub fn device(&self) -> &Device {
                &self.block.device
            }

            /// Returns the kind of memory.
            pub fn kind(&self) -> MemoryKind {
                self.block.kind()
            }

            /// Returns the device address.
            pub fn device_ptr(&self) -> DevicePtr {
                self.block.ptr
            }

            /// Returns a view of all elements.
            pub fn view(&self) -> Slice<'_, T> {
                Slice { block: &self.block, start: 0, len: self.len, _element: PhantomData }
            }

            /// Returns a writable view of all elements.
            pub fn view_mut(&mut self) -> SliceMut<'_, T> {
                SliceMut { block: &self.block, start: 0, len: self.len, _element: PhantomData }
            }

            /// Returns a view of a range of elements.
            pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Slice<'_, T>> {
                self.view().slice(range)
            }

            /// Returns a writable view of a range of elements.
            pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> Result<SliceMut<'_, T>> {
                let (start, len) = resolve(range, self.len)?;
                Ok(SliceMut { block: &self.block, start, len, _element: PhantomData })
            }
        }

        impl<T> std::fmt::Debug for $buffer<T> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let element = std::any::type_name::<T>();
                write!(f, "{}<{element}>({} elements on {})", stringify!($buffer), self.len, self.block.device.name())
            }
        }

        impl<'a, T: Pod> From<&'a $buffer<T>> for Slice<'a, T> {
            fn from(buffer: &'a $buffer<T>) -> Self {
                buffer.view()
            }
        }

        impl<'a, T: Pod> From<&'a mut $buffer<T>> for SliceMut<'a, T> {
            fn from(buffer: &'a mut $buffer<T>) -> Self {
                buffer.view_mut()
            }
        }
    };
}
common!(Buffer);
common!(HostBuffer);
common!(UnifiedBuffer);

/// A view of elements that a device can read.
pub struct Slice<'a, T> {
    pub(crate) block: &'a Arc<Block>,
    start: usize,
    len: usize,
    _element: PhantomData<T>,
}

impl<T> Clone for Slice<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Slice<'_, T> {}

/// A view of elements that a device can write.
pub struct SliceMut<'a, T> {
    pub(crate) block: &'a Arc<Block>,
    start: usize,
    len: usize,
    _element: PhantomData<T>,
}

impl<T> std::fmt::Debug for Slice<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Slice({}..{} on {})", self.start, self.start + self.len, self.block.device.name())
    }
}

impl<T> std::fmt::Debug for SliceMut<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SliceMut({}..{} on {})", self.start, self.start + self.len, self.block.device.name())
    }
}

impl<'a, T: Pod> Slice<'a, T> {
    /// Returns a view of a range of its elements.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Slice<'a, T>> {
        let (start, len) = resolve(range, self.len)?;
        Ok(Slice { start: self.start + start, len, ..*self })
    }

    /// Whether the memory around it, up to multiples of `granule` bytes on both sides, belongs to its buffer's allocation. Allocations of the
    /// pool are padded; memory of the application need not be.
    pub fn is_padded_to(&self, granule: u64) -> bool {
        let held = match &self.block.origin {
            Origin::Pool { held, .. } => *held,
            _ => self.block.bytes,
        };
        let (start, end) = (self.device_ptr(), self.device_ptr() + self.bytes() as u64);
        start / granule * granule >= self.block.ptr && end.next_multiple_of(granule) <= self.block.ptr + held as u64
    }

    /// Returns the same memory as bytes.
    pub fn into_bytes(self) -> Slice<'a, u8> {
        Slice { block: self.block, start: self.start * size_of::<T>(), len: self.bytes(), _element: PhantomData }
    }

    /// Returns a writable view of the same elements, for callers that know by other means that they may be written.
    ///
    /// # Safety
    /// Until the work that uses the result has been queued, no other view of these elements may be in use.
    pub unsafe fn assume_mut(self) -> SliceMut<'a, T> {
        SliceMut { block: self.block, start: self.start, len: self.len, _element: PhantomData }
    }
}

impl<'a, T: Pod> SliceMut<'a, T> {
    /// Returns a readable view of the same elements.
    pub fn as_view(&self) -> Slice<'_, T> {
        Slice { block: self.block, start: self.start, len: self.len, _element: PhantomData }
    }

    /// Returns the same memory as bytes.
    pub fn into_bytes(self) -> SliceMut<'a, u8> {
        SliceMut { block: self.block, start: self.start * size_of::<T>(), len: self.bytes(), _element: PhantomData }
    }

    /// Splits the view into two: the elements before `middle` and the rest.
    pub fn split_at(self, middle: usize) -> Result<(SliceMut<'a, T>, SliceMut<'a, T>)> {
        let (_, front) = resolve(..middle, self.len)?;
        let back = SliceMut { block: self.block, start: self.start + front, len: self.len - front, _element: PhantomData };
        Ok((SliceMut { len: front, ..self }, back))
    }
}

macro_rules! view {
    ($view:ident) => {
        impl<T: Pod> $view<'_, T> {
            /// Returns the number of elements.
            pub fn len(&self) -> usize {
                self.len
            }

            /// Returns whether it has no elements.
            pub fn is_empty(&self) -> bool {
                self.len == 0
            }

            /// Returns its device.
            pub fn device(&self) -> &Device {
                &self.block.device
            }

            /// Returns the device address of the first element.
            pub fn device_ptr(&self) -> DevicePtr {
                self.block.ptr + (self.start * size_of::<T>()) as u64
            }

            pub(crate) fn bytes(&self) -> usize {
                self.len * size_of::<T>()
            }
        }
    };
}
view!(Slice);
view!(SliceMut);

fn resolve(range: impl RangeBounds<usize>, len: usize) -> Result<(usize, usize)> {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(start) => start.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(end) => end.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => len,
    };
    if start > end || end > len {
        return Err(Error::OutOfBounds { start, end, len });
    }
    Ok((start, end - start))
}

/// Address and size of memory owned by something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryRange {
    /// Device address.
    pub ptr: DevicePtr,
    /// Size in bytes.
    pub bytes: usize,
}
