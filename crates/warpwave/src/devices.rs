//! The devices of this machine, with the virtual ones.

use std::sync::{Arc, OnceLock};

use warpwave_gpu::{Driver, Error, Gpus, Result, Vendor};
use warpwave_vgpu::hip;

/// The label of the virtual devices: the part of their names before the colon.
const LABEL: &str = "vgpu";

/// The virtual device that kernels run on when there is no GPU and none was named.
pub const DEFAULT_VIRTUAL: &str = "vgpu:gfx90a";

/// The GPUs of this machine, as [`Gpus::discover`] finds them, and the virtual AMD GPUs (`vgpu:gfx90a`).
pub fn discover() -> Gpus {
    let mut gpus = Gpus::discover();
    gpus.add_virtual(LABEL, virtual_driver());
    gpus
}

/// The driver of the virtual AMD GPUs, started once per process.
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
