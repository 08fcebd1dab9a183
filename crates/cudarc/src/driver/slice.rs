//! Elements in device memory, and views of them.

use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use super::context::CudaContext;
use super::stream::CudaStream;
use super::sys;
use super::traits::DeviceRepr;
use crate::error::DriverError;
use crate::gpu::Memory;

/// Elements in device memory, freed in stream order when dropped.
pub struct CudaSlice<T> {
    memory: Arc<Memory>,
    len: usize,
    stream: Arc<CudaStream>,
    _element: PhantomData<*const T>,
}

// SAFETY: the elements are in device memory, and reach the host only as copies.
unsafe impl<T> Send for CudaSlice<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for CudaSlice<T> {}

/// A view of elements.
pub struct CudaView<'a, T> {
    memory: &'a Arc<Memory>,
    start: usize,
    len: usize,
    stream: &'a Arc<CudaStream>,
    _element: PhantomData<&'a [T]>,
}

/// A writable view of elements.
pub struct CudaViewMut<'a, T> {
    memory: &'a Arc<Memory>,
    start: usize,
    len: usize,
    stream: &'a Arc<CudaStream>,
    _element: PhantomData<&'a mut [T]>,
}

// SAFETY: as for `CudaSlice`.
unsafe impl<T> Send for CudaView<'_, T> {}
// SAFETY: as above.
unsafe impl<T> Sync for CudaView<'_, T> {}
// SAFETY: as above.
unsafe impl<T> Send for CudaViewMut<'_, T> {}
// SAFETY: as above.
unsafe impl<T> Sync for CudaViewMut<'_, T> {}

impl<T> Clone for CudaView<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for CudaView<'_, T> {}

/// Resolves a range: start and length. `None` if it exceeds `len`.
fn resolve(range: impl RangeBounds<usize>, len: usize) -> Option<(usize, usize)> {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(start) => start.checked_add(1)?,
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(end) => end.checked_add(1)?,
        Bound::Excluded(end) => *end,
        Bound::Unbounded => len,
    };
    (start <= end && end <= len).then(|| (start, end - start))
}

impl<T> CudaSlice<T> {
    pub(crate) fn new(memory: Arc<Memory>, len: usize, stream: &Arc<CudaStream>) -> CudaSlice<T> {
        CudaSlice { memory, len, stream: stream.clone(), _element: PhantomData }
    }

    /// Returns the context it belongs to.
    pub fn context(&self) -> &Arc<CudaContext> {
        self.stream.context()
    }

    /// Returns the number of its device.
    pub fn ordinal(&self) -> usize {
        self.context().ordinal()
    }

    /// Returns a view of all elements.
    pub fn as_view(&self) -> CudaView<'_, T> {
        CudaView { memory: &self.memory, start: 0, len: self.len, stream: &self.stream, _element: PhantomData }
    }

    /// Returns a writable view of all elements.
    pub fn as_view_mut(&mut self) -> CudaViewMut<'_, T> {
        CudaViewMut { memory: &self.memory, start: 0, len: self.len, stream: &self.stream, _element: PhantomData }
    }

    /// Returns a view of a range.
    ///
    /// # Panics
    /// If the range exceeds the elements, as slices of the standard library do.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> CudaView<'_, T> {
        self.as_view().slice(range)
    }

    /// Returns a view of a range, or `None` if it exceeds the elements.
    pub fn try_slice(&self, range: impl RangeBounds<usize>) -> Option<CudaView<'_, T>> {
        self.as_view().try_slice(range)
    }

    /// Returns a writable view of a range.
    ///
    /// # Panics
    /// If the range exceeds the elements.
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> CudaViewMut<'_, T> {
        let len = self.len;
        match self.try_slice_mut(range) {
            Some(view) => view,
            None => panic!("the range is out of bounds: the slice has {len} elements"),
        }
    }

    /// Returns a writable view of a range, or `None` if it exceeds the elements.
    pub fn try_slice_mut(&mut self, range: impl RangeBounds<usize>) -> Option<CudaViewMut<'_, T>> {
        let (start, len) = resolve(range, self.len)?;
        Some(CudaViewMut { memory: &self.memory, start, len, stream: &self.stream, _element: PhantomData })
    }
}

impl<T: DeviceRepr> CudaSlice<T> {
    /// Copies the elements on the device, on the stream they were allocated on.
    pub fn try_clone(&self) -> Result<CudaSlice<T>, DriverError> {
        self.stream.clone_dtod(self)
    }
}

impl<T: DeviceRepr> Clone for CudaSlice<T> {
    /// # Panics
    /// If the device is out of memory or lost; [`CudaSlice::try_clone`] returns the error.
    fn clone(&self) -> Self {
        self.try_clone().unwrap_or_else(|error| panic!("cannot copy a device slice: {error}"))
    }
}

impl<'a, T> CudaView<'a, T> {
    /// Returns a view of a range.
    ///
    /// # Panics
    /// If the range exceeds the elements.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> CudaView<'a, T> {
        match self.try_slice(range) {
            Some(view) => view,
            None => panic!("the range is out of bounds: the slice has {} elements", self.len),
        }
    }

    /// Returns a view of a range, or `None` if it exceeds the elements.
    pub fn try_slice(&self, range: impl RangeBounds<usize>) -> Option<CudaView<'a, T>> {
        let (start, len) = resolve(range, self.len)?;
        Some(CudaView { start: self.start + start, len, ..*self })
    }
}

impl<T> CudaViewMut<'_, T> {
    /// Returns a readable view of the same elements.
    pub fn as_view(&self) -> CudaView<'_, T> {
        CudaView { memory: self.memory, start: self.start, len: self.len, stream: self.stream, _element: PhantomData }
    }

    /// Returns a writable view of a range.
    ///
    /// # Panics
    /// If the range exceeds the elements.
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> CudaViewMut<'_, T> {
        match resolve(range, self.len) {
            Some((start, len)) => {
                CudaViewMut { memory: self.memory, start: self.start + start, len, stream: self.stream, _element: PhantomData }
            }
            None => panic!("the range is out of bounds: the slice has {} elements", self.len),
        }
    }
}

macro_rules! common {
    ($($ty:ty, $name:literal, |$slice:ident| $start:expr;)*) => { $(
        impl<T> $ty {
            /// Returns the number of elements.
            pub fn len(&self) -> usize {
                self.len
            }

            /// Returns whether it has no elements.
            pub fn is_empty(&self) -> bool {
                self.len == 0
            }

            /// Returns the stream it was allocated on.
            pub fn stream(&self) -> &Arc<CudaStream> {
                &self.stream
            }

            /// The memory, and the elements' offset and size in bytes.
            pub(crate) fn place(&self) -> (&Arc<Memory>, usize, usize) {
                let $slice = self;
                (&self.memory, $start * size_of::<T>(), self.len * size_of::<T>())
            }

            /// The address, for work on a stream. An error is returned by the next call.
            pub(crate) fn address_for(&self, stream: &CudaStream) -> sys::CUdeviceptr {
                let (memory, start, _) = self.place();
                stream.context().record_err(memory.acquire_external(stream.raw()));
                memory.address() + start as u64
            }
        }

        impl<T> std::fmt::Debug for $ty {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!($name, "<{}>({} elements on {:?})"), std::any::type_name::<T>(), self.len, self.stream().context())
            }
        }
    )* };
}
common! {
    CudaSlice<T>, "CudaSlice", |_slice| 0;
    CudaView<'_, T>, "CudaView", |view| view.start;
    CudaViewMut<'_, T>, "CudaViewMut", |view| view.start;
}
