//! The entry point: devices by name, the virtual GPU among them.

#[cfg(feature = "vgpu")]
pub use virtual_gpu::{DEFAULT_VIRTUAL, VIRTUAL_LABEL, virtual_driver};
use warpwave_gpu::{Device, DeviceSpec, Devices, Result};

/// Returns the registry of devices: CUDA, ROCm and, with the feature `vgpu`, the virtual AMD GPUs. Lists available backends, and for
/// the others the reason.
pub fn devices() -> Devices {
    #[cfg_attr(not(feature = "vgpu"), expect(unused_mut))]
    let mut devices = Devices::hardware();
    #[cfg(feature = "vgpu")]
    devices.register_virtual(VIRTUAL_LABEL, virtual_driver());
    devices
}

/// Opens a device to run kernels on: `auto`, `cuda:0`, `rocm:1`, `vgpu:gfx90a`.
///
/// `auto` is the device that `WARPWAVE_DEVICE` names; if that is unset or `auto`, the first GPU, CUDA before ROCm; without a GPU, the
/// virtual GPU, with a warning in the log. The same name gives the same device with the same memory pool.
///
/// ```
/// let device = warpwave::device("auto")?;
/// println!("{}: {}, {}", device.name(), device.info().model, device.info().arch);
/// # Ok::<(), warpwave::gpu::Error>(())
/// ```
pub fn device(name: &str) -> Result<Device> {
    let spec = name.parse::<DeviceSpec>()?.or_env()?;
    let device = devices().open(&spec)?;
    if spec == DeviceSpec::Auto && device.info().is_virtual {
        tracing::warn!(device = device.name(), "no GPU found; kernels run on the virtual GPU");
    }
    Ok(device)
}

/// Opens a device for tensors: a name as for [`device`], or `cpu`. `auto` is the CPU where no GPU is found and `WARPWAVE_DEVICE` is unset.
///
/// ```
/// let device = warpwave::tensor_device("cpu")?;
/// let ones = warpwave::tensor::Tensor::new(&[1.0f32; 6], &[2, 3], &device)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[cfg(feature = "tensor")]
pub fn tensor_device(name: &str) -> warpwave_tensor::Result<warpwave_tensor::Device> {
    use warpwave_gpu::Selection;

    let spec = name.parse::<DeviceSpec>()?.or_env()?;
    match devices().select(&spec)? {
        Selection::Gpu(gpu) => warpwave_tensor::Device::gpu(&gpu, &warpwave_jit::Jit::default()),
        Selection::Cpu { .. } => Ok(warpwave_tensor::Device::Cpu),
    }
}

#[cfg(feature = "vgpu")]
mod virtual_gpu {
    use std::sync::{Arc, OnceLock};

    use warpwave_gpu::{Driver, Error, Result, Vendor};
    use warpwave_vgpu::hip;

    /// The backend of the virtual GPUs: the part of their names before the colon.
    pub const VIRTUAL_LABEL: &str = "vgpu";

    /// The virtual GPU of a default configuration that is listed first.
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
            unsafe { Driver::in_process(VIRTUAL_LABEL, Vendor::Amd, hip::lookup, Some(config.names())) }
        };
        DRIVER.get_or_init(start).clone()
    }
}
