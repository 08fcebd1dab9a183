//! The devices of this machine, with the virtual ones.

#[cfg(feature = "vgpu")]
pub use virtual_gpu::{DEFAULT_VIRTUAL, virtual_driver};
use warpwave_gpu::Gpus;

/// Returns the GPUs of this machine, as [`Gpus::discover`] finds them, and with the feature `vgpu` the virtual AMD GPUs (`vgpu:gfx90a`).
pub fn discover() -> Gpus {
    #[cfg_attr(not(feature = "vgpu"), expect(unused_mut))]
    let mut gpus = Gpus::discover();
    #[cfg(feature = "vgpu")]
    gpus.add_virtual(virtual_gpu::LABEL, virtual_driver());
    gpus
}

#[cfg(feature = "vgpu")]
mod virtual_gpu {
    use std::sync::{Arc, OnceLock};

    use warpwave_gpu::{Driver, Error, Result, Vendor};
    use warpwave_vgpu::hip;

    /// The prefix of the virtual devices' names.
    pub const LABEL: &str = "vgpu";

    /// The virtual device that kernels run on when there is no GPU and none was named.
    pub const DEFAULT_VIRTUAL: &str = "vgpu:gfx90a";

    /// Returns the driver of the virtual AMD GPUs, started once per process.
    pub fn virtual_driver() -> Result<Arc<Driver>> {
        static DRIVER: OnceLock<Result<Arc<Driver>>> = OnceLock::new();
        let start = || {
            let config = hip::Config::from_env().map_err(|reason| Error::NotAvailable {
                library: "the virtual GPU".to_owned(),
                tried: Vec::new(),
                reason,
            })?;
            // SAFETY: the virtual GPU's functions have the shapes of HIP's, which the table's rows declare.
            unsafe { Driver::in_process(LABEL, Vendor::Amd, hip::lookup, Some(config.names())) }
        };
        DRIVER.get_or_init(start).clone()
    }
}
