//! Contexts: the entry to a device.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use warpwave::gpu::Device;

use super::stream::{CudaEvent, CudaStream};
use super::sys;
use crate::error::DriverError;
use crate::gpu::{Catalog, Gpu};

/// A device. Contexts of one device share its memory, its default stream and its kernels.
pub struct CudaContext {
    pub(crate) gpu: Arc<Gpu>,
    ordinal: usize,
    tracking: AtomicBool,
}

impl std::fmt::Debug for CudaContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CudaContext({}, {})", self.ordinal, self.gpu.device.name())
    }
}

impl PartialEq for CudaContext {
    fn eq(&self, other: &CudaContext) -> bool {
        Arc::ptr_eq(&self.gpu, &other.gpu)
    }
}
impl Eq for CudaContext {}

impl CudaContext {
    /// Opens a device by its number: NVIDIA's, then AMD's, then virtual ones where the environment lists them; first the one that
    /// `WARPWAVE_DEVICE` names.
    pub fn new(ordinal: usize) -> Result<Arc<CudaContext>, DriverError> {
        CudaContext::open(&Catalog::new()?.open(ordinal)?, ordinal)
    }

    /// Opens a device of Warpwave's. The real crate does not have this function.
    pub fn of_device(device: &Device) -> Result<Arc<CudaContext>, DriverError> {
        CudaContext::open(device, 0)
    }

    fn open(device: &Device, ordinal: usize) -> Result<Arc<CudaContext>, DriverError> {
        Ok(Arc::new(CudaContext { gpu: Gpu::of(device)?, ordinal, tracking: AtomicBool::new(true) }))
    }

    /// Returns the number of devices.
    pub fn device_count() -> Result<i32, DriverError> {
        Ok(i32::try_from(Catalog::new()?.len()).unwrap_or(i32::MAX))
    }

    /// Returns the number it was opened by.
    pub fn ordinal(&self) -> usize {
        self.ordinal
    }

    /// Returns the vendor's name of the model.
    pub fn name(&self) -> Result<String, DriverError> {
        Ok(self.gpu.device.info().model.clone())
    }

    /// Returns the device of Warpwave's. The real crate does not have this function.
    pub fn device(&self) -> &Device {
        &self.gpu.device
    }

    /// Returns the device for [`super::result::device::get_attribute`].
    pub fn cu_device(&self) -> sys::CUdevice {
        self.gpu.number()
    }

    /// Returns a property.
    pub fn attribute(&self, attribute: sys::CUdevice_attribute) -> Result<i32, DriverError> {
        Ok(self.gpu.attribute(attribute))
    }

    /// Returns the compute capability; 9.0 on AMD GPUs, whose kernels see the branches for it.
    pub fn compute_capability(&self) -> Result<(i32, i32), DriverError> {
        use sys::CUdevice_attribute as A;
        let [major, minor] = [A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR];
        Ok((self.gpu.attribute(major), self.gpu.attribute(minor)))
    }

    /// Returns free and total bytes of memory.
    pub fn mem_get_info(&self) -> Result<(usize, usize), DriverError> {
        let memory = self.gpu.device.memory()?;
        Ok((memory.free, memory.total))
    }

    /// Makes the device current on the thread, for other libraries.
    pub fn bind_to_thread(&self) -> Result<(), DriverError> {
        Ok(self.gpu.device.make_current()?)
    }

    /// Waits for all work on the device.
    pub fn synchronize(&self) -> Result<(), DriverError> {
        self.gpu.device.synchronize()?;
        self.gpu.check()
    }

    /// Returns the stream of everything that does not ask for its own; one for all threads.
    pub fn default_stream(self: &Arc<Self>) -> Arc<CudaStream> {
        CudaStream::new(self, self.gpu.default_queue())
    }

    /// Returns the default stream: all threads share it, so their work is in one order.
    pub fn per_thread_stream(self: &Arc<Self>) -> Arc<CudaStream> {
        self.default_stream()
    }

    /// Creates a stream.
    pub fn new_stream(self: &Arc<Self>) -> Result<Arc<CudaStream>, DriverError> {
        Ok(CudaStream::new(self, self.gpu.new_queue()?))
    }

    /// Creates an event; one that cannot measure time where `flags` is `None`.
    pub fn new_event(self: &Arc<Self>, flags: Option<sys::CUevent_flags>) -> Result<CudaEvent, DriverError> {
        CudaEvent::new(self, flags)
    }

    /// Says that the caller orders work on different streams. It is kept in order anyway; only [`CudaContext::is_event_tracking`] changes.
    ///
    /// # Safety
    /// None is needed; the real crate's function is unsafe.
    pub unsafe fn disable_event_tracking(&self) {
        self.tracking.store(false, Ordering::Relaxed);
    }

    /// Takes [`CudaContext::disable_event_tracking`] back.
    ///
    /// # Safety
    /// None is needed; the real crate's function is unsafe.
    pub unsafe fn enable_event_tracking(&self) {
        self.tracking.store(true, Ordering::Relaxed);
    }

    /// Returns whether [`CudaContext::disable_event_tracking`] was not called.
    pub fn is_event_tracking(&self) -> bool {
        self.tracking.load(Ordering::Relaxed)
    }

    /// Returns the error of an earlier call that could not return it, once.
    pub fn check_err(&self) -> Result<(), DriverError> {
        self.gpu.check()
    }

    /// Remembers an error for the next call that can return one.
    pub fn record_err<T>(&self, result: Result<T, DriverError>) {
        if let Err(error) = result {
            self.gpu.record(error);
        }
    }
}
