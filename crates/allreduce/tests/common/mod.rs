//! Contexts for the tests.
#![allow(dead_code)] // each test program uses a part

use warpwave_allreduce::gpu::DeviceContext;
use warpwave_gpu::Devices;
use warpwave_jit::Jit;
use warpwave_test_support::virtual_device;

/// Returns contexts for a virtual AMD GPU, if a compiler for it is installed, and for every GPU of the machine.
pub fn contexts() -> Vec<DeviceContext> {
    let devices = virtual_device("gfx90a").into_iter().chain(Devices::hardware().physical().into_iter().map(Result::unwrap));
    devices.map(|device| DeviceContext::new(device, Jit::default())).collect()
}
