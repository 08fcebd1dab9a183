//! Memory that a device can address: [`Buffer`] on the device, [`HostBuffer`] page-locked on the host,
//! [`UnifiedBuffer`] in both places; and checked views of them.
//!
//! Elements are plain data ([`Pod`]): any bytes a kernel leaves behind are a valid value. So a kernel can spoil data,
//! but reading it back is never undefined.

use std::any::Any;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Bound, RangeBounds};
use std::sync::{Arc, Mutex, PoisonError};

use bytemuck::Pod;

use crate::device::Device;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::host_view::{HostView, HostViewMut};
use crate::stream::Stream;
use crate::table::{DevicePtr, Vendor};
use crate::vendor::MemoryKind;

/// One allocation, alive while a buffer, a view or a graph refers to it.
pub(crate) struct Block {
    device: Device,
    ptr: DevicePtr,
    bytes: usize,
    origin: Origin,
    uses: Mutex<Uses>,
}

/// Who may touch a block now.
#[derive(Default)]
struct Uses {
    queued: Vec<Use>,
    /// Views that the host holds. Only safe launches of graphs could write behind them.
    views: usize,
    /// Graph launches that are being queued.
    launches: usize,
}

enum Origin {
    /// From the pool, for work on this stream.
    Pool { stream: Stream, held: usize },
    /// An allocation of the driver's that this block alone has.
    Dedicated,
    /// Nothing: a buffer of no elements.
    Empty,
    /// Page-locked by the driver.
    Pinned { host: *mut c_void },
    /// The application's own memory, page-locked in place. The owner, if any, lives as long as the registration.
    Registered { host: *mut c_void, owner: ManuallyDrop<Option<Box<dyn Any + Send + Sync>>> },
    /// Unified.
    Managed,
}

// SAFETY: the host addresses are owned by the block and handed out under the buffers' borrow rules.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

/// Work that may still touch a block.
enum Use {
    /// Somewhere on this stream (device memory: only matters when the block is freed).
    On(Stream),
    /// Up to this event (memory the host reads: must be waited for precisely).
    Until(u64, Event),
}

impl Block {
    pub fn device(&self) -> &Device {
        &self.device
    }

    pub fn kind(&self) -> MemoryKind {
        match self.origin {
            Origin::Pool { .. } | Origin::Dedicated | Origin::Empty => MemoryKind::Device,
            Origin::Pinned { .. } | Origin::Registered { .. } => MemoryKind::Host,
            Origin::Managed => MemoryKind::Unified,
        }
    }

    /// Remembers that work on `stream`, queued just now, touches this block.
    pub fn used_on(self: &Arc<Self>, stream: &Stream) -> Result<()> {
        if let Some(capture) = stream.capture() {
            // The graph may run at any later time: it keeps what it touches.
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
                // Without an event nobody would wait for the queued work: wait here, or never free the memory.
                if stream.finish().is_err() {
                    std::mem::forget(self.clone());
                }
            }),
        }
    }

    /// Marks the end of the work queued on `stream` with an event.
    fn used_until_now(&self, stream: &Stream) -> Result<()> {
        let mut uses = self.uses();
        for known in &uses.queued {
            if let Use::Until(id, event) = known
                && *id == stream.id()
            {
                return event.record_within(stream);
            }
        }
        // The stream's device: a peer's stream may have done the work.
        let event = Event::without_timing(stream.device())?;
        event.record_within(stream)?;
        uses.queued.push(Use::Until(stream.id(), event));
        Ok(())
    }

    /// Waits until no queued work touches this block. What could not be waited for stays in the list.
    fn settle(uses: &mut Uses) -> Result<()> {
        while let Some(known) = uses.queued.last() {
            match known {
                Use::On(stream) => stream.synchronize()?,
                Use::Until(_, event) => event.synchronize()?,
            }
            uses.queued.pop();
        }
        Ok(())
    }

    /// Lets the host look: waits for queued work, and keeps graphs from being launched on it.
    pub fn begin_view(&self) -> Result<()> {
        loop {
            let mut uses = self.uses();
            if uses.launches == 0 {
                Block::settle(&mut uses)?;
                uses.views += 1;
                return Ok(());
            }
            drop(uses);
            // Another thread queues a graph just now: a matter of microseconds.
            std::thread::yield_now();
        }
    }

    pub fn end_view(&self) {
        self.uses().views -= 1;
    }

    /// Keeps the host from looking; whether it does not look now.
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
        Arc::new(Block { device: device.clone(), ptr, bytes, origin, uses: Mutex::default() })
    }

    fn pooled(stream: &Stream, bytes: usize) -> Result<Arc<Block>> {
        let device = stream.device();
        if bytes == 0 {
            return Ok(Block::new(device, 0, 0, Origin::Empty));
        }
        let _gate = stream.enter();
        let (ptr, held) = device.0.pool.take(stream, bytes)?;
        let block = Block::new(device, ptr, bytes, Origin::Pool { stream: stream.clone(), held });
        if let Some(capture) = stream.capture() {
            capture.keep(&block);
        }
        Ok(block)
    }
}

/// Remembers for every block that work on `stream`, queued just now, touches it; the first failure is told at the end.
pub(crate) fn mark_used<'a>(blocks: impl IntoIterator<Item = &'a Arc<Block>>, stream: &Stream) -> Result<()> {
    blocks.into_iter().map(|block| block.used_on(stream)).fold(Ok(()), Result::and)
}

impl Drop for Block {
    fn drop(&mut self) {
        let uses = self.uses.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Origin::Pool { stream, held } = &self.origin {
            let queued = std::mem::take(&mut uses.queued);
            let others = queued.into_iter().filter_map(|u| if let Use::On(stream) = u { Some(stream) } else { None }).collect();
            return self.device.0.pool.give(&self.device, (self.ptr, *held, self.bytes), stream, others);
        }
        let settled = Block::settle(uses).and_then(|()| self.device.activate());
        let outcome = settled.and_then(|table| {
            // SAFETY: the block owns the memory, and no queued work touches it any more.
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
            // Memory that a device may still write to is better leaked than freed.
            Err(error) => tracing::warn!(%error, "releasing memory failed; it is leaked"),
        }
    }
}

fn byte_len<T>(len: usize) -> Result<usize> {
    const { assert!(size_of::<T>() > 0, "elements of no size have no memory to speak of") };
    len.checked_mul(size_of::<T>())
        .filter(|bytes| isize::try_from(*bytes).is_ok())
        .ok_or(Error::TooLarge { len, element_bytes: size_of::<T>() })
}

/// Elements on a device, freed when dropped. Made by [`Stream::alloc`] and its kin.
pub struct Buffer<T> {
    block: Arc<Block>,
    len: usize,
    _element: PhantomData<T>,
}

impl<T: Pod> Buffer<T> {
    pub(crate) fn alloc(stream: &Stream, len: usize) -> Result<Buffer<T>> {
        Ok(Buffer { block: Block::pooled(stream, byte_len::<T>(len)?)?, len, _element: PhantomData })
    }

    /// Room for `len` elements in an allocation of its own, which goes back to the driver and not to the pool: for memory that other
    /// processes are to share ([`Buffer::ipc_handle`]).
    pub fn dedicated(device: &Device, len: usize) -> Result<Buffer<T>> {
        /// Drivers put smaller allocations together into one of this size, and a handle opens all of it.
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

/// Elements in page-locked host memory that the device can address too.
///
/// Copies to and from it are asynchronous; reading or writing it on the host first waits for the copies that touch it.
pub struct HostBuffer<T> {
    block: Arc<Block>,
    len: usize,
    _element: PhantomData<T>,
}

impl<T: Pod> HostBuffer<T> {
    /// Zeroed page-locked memory.
    pub fn zeroed(device: &Device, len: usize) -> Result<HostBuffer<T>> {
        /// Known to every context, and mapped into the device's address space.
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

    /// Page-locks a vector in place, without a copy: the device reads and writes the application's own memory.
    pub fn from_vec(device: &Device, mut data: Vec<T>) -> Result<HostBuffer<T>>
    where
        T: Send + Sync,
    {
        let (host, len) = (data.as_mut_ptr(), data.len());
        // SAFETY: the vector is moved into the buffer and not touched before it is dropped; its heap memory stays in place.
        unsafe { HostBuffer::register(device, host, len, Some(Box::new(data))) }
    }

    /// Page-locks memory of the application: a mapped file, a buffer of another library.
    ///
    /// # Safety
    /// `len` elements at `host` must stay valid, and be used through this buffer alone, until it is dropped.
    pub unsafe fn from_raw(device: &Device, host: *mut T, len: usize) -> Result<HostBuffer<T>> {
        // SAFETY: as the caller vouches.
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
        // SAFETY: the caller vouches for the range.
        device.check(unsafe { table.host_register(host, bytes, PORTABLE_MAPPED) })?;
        HostBuffer::map(device, host, bytes, Origin::Registered { host, owner: ManuallyDrop::new(owner) }, len)
    }

    fn map(device: &Device, host: *mut c_void, bytes: usize, origin: Origin, len: usize) -> Result<HostBuffer<T>> {
        let table = device.activate()?;
        let mut ptr = 0;
        // SAFETY: the output outlives the call, and `host` is page-locked and mapped.
        let mapped = device.check(unsafe { table.host_device_pointer(&mut ptr, host, 0) });
        // Made before the check, so that a failure releases the memory.
        let block = Block::new(device, ptr, bytes, origin);
        mapped?;
        Ok(HostBuffer { block, len, _element: PhantomData })
    }

    /// The host's address. What goes through it is not checked against queued work.
    pub fn host_ptr(&self) -> *mut T {
        match self.block.origin {
            Origin::Pinned { host } | Origin::Registered { host, .. } => host.cast(),
            _ => std::ptr::NonNull::dangling().as_ptr(),
        }
    }
}

/// Elements in unified memory: one address for host and device, moved by the driver.
pub struct UnifiedBuffer<T> {
    block: Arc<Block>,
    len: usize,
    _element: PhantomData<T>,
}

impl<T: Pod> UnifiedBuffer<T> {
    /// Zeroed unified memory.
    pub fn zeroed(device: &Device, len: usize) -> Result<UnifiedBuffer<T>> {
        const GLOBAL: u32 = 1;
        let info = device.info();
        // Where an NVIDIA device has no concurrent access, any running kernel makes any access of the host to any unified memory
        // fault: no borrow could promise that away. AMD's fallback is host memory, which does not.
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

    /// Asks the driver to move the memory to `stream`'s device ahead of use.
    pub fn prefetch_to_device(&self, stream: &Stream) -> Result<()> {
        self.prefetch(stream, stream.device().seat().ordinal)
    }

    /// Asks the driver to move the memory to the host ahead of use.
    pub fn prefetch_to_host(&self, stream: &Stream) -> Result<()> {
        const HOST: i32 = -1;
        self.prefetch(stream, HOST)
    }

    fn prefetch(&self, stream: &Stream, place: i32) -> Result<()> {
        let _gate = stream.enter();
        stream.check_device(&self.block, "the unified buffer")?;
        if self.len == 0 || !self.block.device.info().concurrent_unified {
            // Without concurrent access the driver moves the whole allocation at launches anyway.
            return Ok(());
        }
        let table = stream.device().activate()?;
        // SAFETY: the block is live, and the stream is.
        stream.device().check(unsafe { table.mem_prefetch_async(self.block.ptr, self.block.bytes, place, stream.raw()) })?;
        self.block.used_on(stream)
    }

    fn host_ptr(&self) -> *mut T {
        if self.len == 0 { std::ptr::NonNull::dangling().as_ptr() } else { self.block.ptr as *mut T }
    }
}

macro_rules! host_access {
    ($buffer:ident) => {
        impl<T: Pod> $buffer<T> {
            /// The elements, once no queued work touches them.
            pub fn as_slice(&self) -> Result<HostView<'_, T>> {
                self.block.begin_view()?;
                // SAFETY: `len` plain elements, and the work that could write them is done; new work needs `&mut self`, or is refused.
                Ok(HostView::new(unsafe { std::slice::from_raw_parts(self.host_ptr(), self.len) }, &self.block))
            }

            /// The elements, once no queued work touches them.
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
            /// Elements.
            pub fn len(&self) -> usize {
                self.len
            }

            /// Whether there are none.
            pub fn is_empty(&self) -> bool {
                self.len == 0
            }

            /// The device that addresses it.
            pub fn device(&self) -> &Device {
                &self.block.device
            }

            /// Where it lives.
            pub fn kind(&self) -> MemoryKind {
                self.block.kind()
            }

            /// The device's address.
            pub fn device_ptr(&self) -> DevicePtr {
                self.block.ptr
            }

            /// A view of all of it.
            pub fn view(&self) -> Slice<'_, T> {
                Slice { block: &self.block, start: 0, len: self.len, _element: PhantomData }
            }

            /// A writable view of all of it.
            pub fn view_mut(&mut self) -> SliceMut<'_, T> {
                SliceMut { block: &self.block, start: 0, len: self.len, _element: PhantomData }
            }

            /// A view of some elements.
            pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Slice<'_, T>> {
                self.view().slice(range)
            }

            /// A writable view of some elements.
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
    /// A view of some of its elements.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Slice<'a, T>> {
        let (start, len) = resolve(range, self.len)?;
        Ok(Slice { start: self.start + start, len, ..*self })
    }

    /// The same memory as bytes.
    pub fn into_bytes(self) -> Slice<'a, u8> {
        Slice { block: self.block, start: self.start * size_of::<T>(), len: self.bytes(), _element: PhantomData }
    }
}

impl<'a, T: Pod> SliceMut<'a, T> {
    /// The same elements, to read.
    pub fn as_view(&self) -> Slice<'_, T> {
        Slice { block: self.block, start: self.start, len: self.len, _element: PhantomData }
    }

    /// The same memory as bytes.
    pub fn into_bytes(self) -> SliceMut<'a, u8> {
        SliceMut { block: self.block, start: self.start * size_of::<T>(), len: self.bytes(), _element: PhantomData }
    }

    /// Two views that do not overlap: before and from `middle`.
    pub fn split_at(self, middle: usize) -> Result<(SliceMut<'a, T>, SliceMut<'a, T>)> {
        let (_, front) = resolve(..middle, self.len)?;
        let back = SliceMut { block: self.block, start: self.start + front, len: self.len - front, _element: PhantomData };
        Ok((SliceMut { len: front, ..self }, back))
    }
}

macro_rules! view {
    ($view:ident) => {
        impl<T: Pod> $view<'_, T> {
            /// Elements.
            pub fn len(&self) -> usize {
                self.len
            }

            /// Whether there are none.
            pub fn is_empty(&self) -> bool {
                self.len == 0
            }

            /// The device that addresses it.
            pub fn device(&self) -> &Device {
                &self.block.device
            }

            /// The device's address of the first element.
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

/// Address and size of memory that something else owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryRange {
    /// The device's address.
    pub ptr: DevicePtr,
    /// Its size.
    pub bytes: usize,
}
