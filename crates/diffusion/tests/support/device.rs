//! The device that models are compared with the reference on.

use warpwave_gpu::{DeviceSpec, Devices};
use warpwave_jit::Jit;
use warpwave_tensor::Device;
use warpwave_test_support::virtual_device;

/// Returns the device that `WARPWAVE_DEVICE` names (`cuda:0`, `rocm:0`, `vgpu:gfx90a`), or the CPU.
pub fn device() -> Device {
    thread_local!(static DEVICE: Device = open());
    DEVICE.with(Device::clone)
}

fn open() -> Device {
    let gpu = match DeviceSpec::from_env().unwrap() {
        DeviceSpec::Auto | DeviceSpec::Cpu => return Device::Cpu,
        DeviceSpec::Named(name) => match name.strip_prefix("vgpu:") {
            Some(arch) => virtual_device(arch).unwrap_or_else(|| panic!("no compiler for {arch}")),
            None => Devices::hardware().get(&name).unwrap(),
        },
    };
    Device::gpu(&gpu, &Jit::default()).unwrap()
}
