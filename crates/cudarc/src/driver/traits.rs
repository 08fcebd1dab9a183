//! What elements, device memory and host memory have in common.

use std::marker::PhantomData;
use std::sync::Arc;

use super::slice::{CudaSlice, CudaView, CudaViewMut};
use super::stream::CudaStream;
use super::sys;

/// Types whose bytes kernels accept, and for which any bytes that a kernel writes are a value.
///
/// # Safety
/// Both must hold.
pub unsafe trait DeviceRepr {}

/// Types for which zeros are a value.
///
/// # Safety
/// It must hold.
pub unsafe trait ValidAsZeroBits {}

macro_rules! elements {
    ($($ty:ty),* $(,)?) => { $(
        // SAFETY: plain numbers.
        unsafe impl DeviceRepr for $ty {}
        // SAFETY: as above.
        unsafe impl ValidAsZeroBits for $ty {}
    )* };
}
elements!(
    bool,
    i8,
    i16,
    i32,
    i64,
    i128,
    isize,
    u8,
    u16,
    u32,
    u64,
    u128,
    usize,
    f32,
    f64,
    half::f16,
    half::bf16,
    float8::F8E4M3,
    float8::F8E5M2
);

// SAFETY: an array is its elements.
unsafe impl<T: DeviceRepr, const N: usize> DeviceRepr for [T; N] {}
// SAFETY: as above.
unsafe impl<T: ValidAsZeroBits, const N: usize> ValidAsZeroBits for [T; N] {}

/// Elements in device memory.
pub trait DeviceSlice<T> {
    /// Returns the number of elements.
    fn len(&self) -> usize;

    /// Returns the number of bytes.
    fn num_bytes(&self) -> usize {
        self.len() * size_of::<T>()
    }

    /// Returns whether it has no elements.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the stream it was allocated on.
    fn stream(&self) -> &Arc<CudaStream>;
}

/// Keeps the borrow of memory whose address was given out, until the work that uses it is queued.
#[must_use]
pub struct SyncOnDrop<'a>(PhantomData<&'a CudaStream>);

impl SyncOnDrop<'_> {
    pub(crate) fn new() -> SyncOnDrop<'static> {
        SyncOnDrop(PhantomData)
    }
}

impl Drop for SyncOnDrop<'_> {
    // Streams are ordered when the address is given out: nothing is left to do. Callers name the guards that they drop.
    fn drop(&mut self) {}
}

/// Device memory that can be read by address.
pub trait DevicePtr<T>: DeviceSlice<T> {
    /// Returns the address for work on a stream, which waits for work on other streams that uses this memory.
    fn device_ptr<'a>(&'a self, stream: &'a CudaStream) -> (sys::CUdeviceptr, SyncOnDrop<'a>);
}

/// Device memory that can be written by address.
pub trait DevicePtrMut<T>: DeviceSlice<T> {
    /// Returns the address for work on a stream, which waits for work on other streams that uses this memory.
    fn device_ptr_mut<'a>(&'a mut self, stream: &'a CudaStream) -> (sys::CUdeviceptr, SyncOnDrop<'a>);
}

macro_rules! device_memory {
    ($($ty:ty: $($more:ident)?),*) => { $(
        impl<T> DeviceSlice<T> for $ty {
            fn len(&self) -> usize {
                self.len()
            }

            fn stream(&self) -> &Arc<CudaStream> {
                self.stream()
            }
        }

        impl<T> DevicePtr<T> for $ty {
            fn device_ptr<'a>(&'a self, stream: &'a CudaStream) -> (sys::CUdeviceptr, SyncOnDrop<'a>) {
                (self.address_for(stream), SyncOnDrop::new())
            }
        }
        $( device_memory!(@$more $ty); )?
    )* };
    (@mutable $ty:ty) => {
        impl<T> DevicePtrMut<T> for $ty {
            fn device_ptr_mut<'a>(&'a mut self, stream: &'a CudaStream) -> (sys::CUdeviceptr, SyncOnDrop<'a>) {
                (self.address_for(stream), SyncOnDrop::new())
            }
        }
    };
}
device_memory!(CudaSlice<T>: mutable, CudaView<'_, T>:, CudaViewMut<'_, T>: mutable);

/// Elements in host memory.
pub trait HostSlice<T> {
    /// Returns the number of elements.
    fn len(&self) -> usize;

    /// Returns whether it has no elements.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the elements, for a copy on a stream.
    ///
    /// # Safety
    /// The guard must live until the copy is done.
    unsafe fn stream_synced_slice<'a>(&'a self, stream: &'a CudaStream) -> (&'a [T], SyncOnDrop<'a>);

    /// Returns the elements, for a copy on a stream to them.
    ///
    /// # Safety
    /// The guard must live until the copy is done.
    unsafe fn stream_synced_mut_slice<'a>(&'a mut self, stream: &'a CudaStream) -> (&'a mut [T], SyncOnDrop<'a>);
}

macro_rules! host_memory {
    ($([$($generic:tt)*] $ty:ty),*) => { $(
        impl<T, $($generic)*> HostSlice<T> for $ty {
            fn len(&self) -> usize {
                self[..].len()
            }

            unsafe fn stream_synced_slice<'a>(&'a self, _stream: &'a CudaStream) -> (&'a [T], SyncOnDrop<'a>) {
                (&self[..], SyncOnDrop::new())
            }

            unsafe fn stream_synced_mut_slice<'a>(&'a mut self, _stream: &'a CudaStream) -> (&'a mut [T], SyncOnDrop<'a>) {
                (&mut self[..], SyncOnDrop::new())
            }
        }
    )* };
}
host_memory!([] [T], [] Vec<T>, [const N: usize] [T; N]);
