//! The devices that tensors and models are tested on.
#![allow(dead_code)]

use warpwave_gpu::Devices;
use warpwave_jit::Jit;
use warpwave_tensor::Device;
use warpwave_test_support::virtual_device;

/// The CPU, a virtual AMD GPU if a compiler for it is installed, and every GPU of the machine.
pub fn devices() -> Vec<Device> {
    let mut devices = vec![Device::Cpu];
    devices.extend(virtual_gpu("gfx90a"));
    devices.extend(gpus());
    devices
}

/// Devices for tensor parallelism: the CPU twice, two virtual GPUs of different architectures, and every GPU of the machine with itself and
/// with the next.
pub fn groups() -> Vec<Vec<Device>> {
    let mut groups = vec![vec![Device::Cpu; 2]];
    groups.extend(virtual_gpu("gfx90a").zip(virtual_gpu("gfx942")).map(|(a, b)| vec![a, b]));
    groups.extend(gpus().into_iter().zip(gpus()).map(|(a, b)| vec![a, b]));
    let gpus = gpus();
    groups.extend(gpus.windows(2).map(<[Device]>::to_vec));
    groups
}

fn gpus() -> Vec<Device> {
    Devices::hardware().physical().into_iter().map(|device| Device::gpu(&device.unwrap(), &Jit::default()).unwrap()).collect()
}

fn virtual_gpu(arch: &str) -> Option<Device> {
    Some(Device::gpu(&virtual_device(arch)?, &Jit::default()).unwrap())
}
