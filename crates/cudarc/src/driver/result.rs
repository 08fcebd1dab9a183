//! Calls of the driver below the safe types, as far as candle uses them.

pub use crate::error::DriverError;

/// Queries of devices.
pub mod device {
    use super::DriverError;
    use crate::driver::sys::{CUdevice, CUdevice_attribute};
    use crate::gpu::Gpu;

    /// Returns a property of a device that a context is open for.
    ///
    /// # Safety
    /// None is needed; the real crate's function is unsafe.
    pub unsafe fn get_attribute(device: CUdevice, attribute: CUdevice_attribute) -> Result<i32, DriverError> {
        Ok(Gpu::by_number(device)?.attribute(attribute))
    }
}
