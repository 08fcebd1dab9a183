//! Allocations and copies. All are in the order of their stream.

use std::sync::Arc;

use super::slice::CudaSlice;
use super::stream::CudaStream;
use super::traits::{DevicePtr, DevicePtrMut, DeviceRepr, HostSlice, ValidAsZeroBits};
use crate::error::DriverError;
use crate::gpu::Part;

type Result<T> = std::result::Result<T, DriverError>;

/// The bytes of elements.
fn bytes_of<T: DeviceRepr>(elements: &[T]) -> &[u8] {
    // SAFETY: the elements are plain values; their bytes are only copied to the device.
    unsafe { std::slice::from_raw_parts(elements.as_ptr().cast(), size_of_val(elements)) }
}

/// The bytes of elements, to be overwritten.
fn bytes_of_mut<T: DeviceRepr>(elements: &mut [T]) -> &mut [u8] {
    // SAFETY: any bytes from a device are values of the elements, as `DeviceRepr` says.
    unsafe { std::slice::from_raw_parts_mut(elements.as_mut_ptr().cast(), size_of_val(elements)) }
}

fn byte_len<T>(len: usize) -> Result<usize> {
    let too_large = || DriverError::invalid(&format!("{len} elements of {} bytes exceed the address space", size_of::<T>()));
    len.checked_mul(size_of::<T>()).filter(|bytes| isize::try_from(*bytes).is_ok()).ok_or_else(too_large)
}

fn too_short(destination: usize, source: usize) -> DriverError {
    DriverError::invalid(&format!("cannot copy {source} elements to a slice of {destination}"))
}

impl CudaStream {
    /// Allocates elements, uninitialized.
    ///
    /// # Safety
    /// They must be written before they are read.
    pub unsafe fn alloc<T: DeviceRepr>(self: &Arc<Self>, len: usize) -> Result<CudaSlice<T>> {
        let memory = self.context().gpu.alloc(self.raw(), byte_len::<T>(len)?)?;
        Ok(CudaSlice::new(memory, len, self))
    }

    /// Allocates elements, zeroed.
    pub fn alloc_zeros<T: DeviceRepr + ValidAsZeroBits>(self: &Arc<Self>, len: usize) -> Result<CudaSlice<T>> {
        // SAFETY: they are written next.
        let mut slice = unsafe { self.alloc(len) }?;
        self.memset_zeros(&mut slice)?;
        Ok(slice)
    }

    /// Queues a fill with zeros.
    pub fn memset_zeros<T: DeviceRepr + ValidAsZeroBits, Dst: DevicePtrMut<T>>(&self, destination: &mut Dst) -> Result<()> {
        let bytes = byte_len::<T>(destination.len())?;
        let Some(part) = self.destination(destination, bytes)? else { return Ok(()) };
        // SAFETY: the destination is borrowed exclusively, and the fill is queued before this returns.
        Ok(self.raw().zero(unsafe { part.slice()?.assume_mut() })?)
    }

    /// Allocates a copy of host memory.
    pub fn clone_htod<T: DeviceRepr, Src: HostSlice<T> + ?Sized>(self: &Arc<Self>, source: &Src) -> Result<CudaSlice<T>> {
        // SAFETY: they are written next.
        let mut slice = unsafe { self.alloc(source.len()) }?;
        self.memcpy_htod(source, &mut slice)?;
        Ok(slice)
    }

    /// Copies from host memory to the beginning of a destination, and waits for the copy.
    pub fn memcpy_htod<T: DeviceRepr, Src: HostSlice<T> + ?Sized, Dst: DevicePtrMut<T>>(
        &self,
        source: &Src,
        destination: &mut Dst,
    ) -> Result<()> {
        if destination.len() < source.len() {
            return Err(too_short(destination.len(), source.len()));
        }
        // SAFETY: the copy is done before this returns.
        let (source, _guard) = unsafe { source.stream_synced_slice(self) };
        let source = bytes_of(source);
        let Some(part) = self.destination(destination, source.len())? else { return Ok(()) };
        // SAFETY: the destination is borrowed exclusively.
        Ok(self.raw().copy_from_host(source, unsafe { part.slice()?.assume_mut() })?)
    }

    /// Returns a copy in host memory.
    pub fn clone_dtoh<T: DeviceRepr, Src: DevicePtr<T>>(&self, source: &Src) -> Result<Vec<T>> {
        let mut data: Vec<T> = Vec::with_capacity(source.len());
        let bytes = byte_len::<T>(source.len())?;
        // SAFETY: the vector has room for the elements; zeros make the bytes initialized, before the copy makes them values.
        let room = unsafe {
            std::ptr::write_bytes(data.as_mut_ptr().cast::<u8>(), 0, bytes);
            std::slice::from_raw_parts_mut(data.as_mut_ptr().cast::<u8>(), bytes)
        };
        self.download(source, room)?;
        // SAFETY: any bytes from a device are values of the elements, as `DeviceRepr` says, and all were copied.
        unsafe { data.set_len(source.len()) };
        Ok(data)
    }

    /// Copies to the beginning of host memory, and waits for the copy.
    pub fn memcpy_dtoh<T: DeviceRepr, Src: DevicePtr<T>, Dst: HostSlice<T> + ?Sized>(
        &self,
        source: &Src,
        destination: &mut Dst,
    ) -> Result<()> {
        if destination.len() < source.len() {
            return Err(too_short(destination.len(), source.len()));
        }
        // SAFETY: the copy is done before this returns.
        let (destination, _guard) = unsafe { destination.stream_synced_mut_slice(self) };
        self.download(source, bytes_of_mut(&mut destination[..source.len()]))
    }

    /// Copies on the device to the beginning of a destination. The two may be on different devices.
    pub fn memcpy_dtod<T, Src: DevicePtr<T>, Dst: DevicePtrMut<T>>(&self, source: &Src, destination: &mut Dst) -> Result<()> {
        if destination.len() < source.len() {
            return Err(too_short(destination.len(), source.len()));
        }
        let bytes = byte_len::<T>(source.len())?;
        let (from, to) = (source.stream().clone(), destination.stream().clone());
        if from.context() == to.context() {
            let (Some(source), Some(destination)) = (self.source(source, bytes)?, self.destination(destination, bytes)?) else {
                return Ok(());
            };
            // SAFETY: the destination is borrowed exclusively.
            return Ok(self.raw().copy(source.slice()?, unsafe { destination.slice()?.assume_mut() })?);
        }
        // Each side's work is in the order of its own stream.
        let (Some(source), Some(destination)) = (from.source(source, bytes)?, to.destination(destination, bytes)?) else {
            return Ok(());
        };
        // SAFETY: as above.
        Ok(from.raw().copy_to_peer(source.slice()?, to.raw(), unsafe { destination.slice()?.assume_mut() })?)
    }

    /// Allocates a copy on this stream's device.
    pub fn clone_dtod<T: DeviceRepr, Src: DevicePtr<T>>(self: &Arc<Self>, source: &Src) -> Result<CudaSlice<T>> {
        // SAFETY: they are written next.
        let mut slice = unsafe { self.alloc(source.len()) }?;
        self.memcpy_dtod(source, &mut slice)?;
        Ok(slice)
    }

    fn download<T, Src: DevicePtr<T>>(&self, source: &Src, destination: &mut [u8]) -> Result<()> {
        let part = self.source(source, destination.len())?;
        if let Some(part) = part {
            self.raw().copy_to_host(part.slice()?, destination)?;
        }
        self.context().gpu.check()
    }

    /// The memory of a source, for work on this stream; `None` without bytes.
    fn source<T, Src: DevicePtr<T>>(&self, source: &Src, bytes: usize) -> Result<Option<Part>> {
        let (address, _guard) = source.device_ptr(self);
        self.find(source.stream(), address, bytes)
    }

    fn destination<T, Dst: DevicePtrMut<T>>(&self, destination: &mut Dst, bytes: usize) -> Result<Option<Part>> {
        let owner = destination.stream().clone();
        let (address, _guard) = destination.device_ptr_mut(self);
        self.find(&owner, address, bytes)
    }

    /// Finds memory by its address. Reports what getting the address could not.
    fn find(&self, owner: &CudaStream, address: u64, bytes: usize) -> Result<Option<Part>> {
        self.context().gpu.check()?;
        if bytes == 0 {
            return Ok(None);
        }
        owner.context().gpu.find_range(address, bytes, "a copy").map(Some)
    }
}
