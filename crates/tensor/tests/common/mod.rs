//! The devices that tensors and models are tested on.
#![allow(dead_code)]

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use warpwave_gpu::{Devices, Driver, Vendor};
use warpwave_jit::{CompilerChoice, Jit, Toolchains};
use warpwave_tensor::Device;

/// Whether all cases run instead of a sample.
pub fn full() -> bool {
    std::env::var_os("WARPWAVE_TEST_FULL").is_some_and(|value| value == "1")
}

/// The path of SmolLM2-135M-Instruct.Q4_1.gguf, from `WARPWAVE_TEST_MODEL`.
pub fn model() -> Option<PathBuf> {
    let file = std::env::var_os("WARPWAVE_TEST_MODEL").map(PathBuf::from);
    if file.is_none() {
        assert!(std::env::var_os("WARPWAVE_REQUIRE_ALL").is_none_or(|v| v != "1"), "WARPWAVE_TEST_MODEL is not set");
        eprintln!("skipped: WARPWAVE_TEST_MODEL is not set");
    }
    file
}

/// The CPU, a virtual AMD GPU if clang can compile for it, and every GPU of the machine.
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
    static DRIVER: OnceLock<Arc<Driver>> = OnceLock::new();
    let there = Toolchains::find().choose(&arch.parse().unwrap(), CompilerChoice::Clang).is_ok();
    assert!(there || std::env::var_os("WARPWAVE_REQUIRE_ALL").is_none_or(|v| v != "1"), "no clang with its linker");
    if !there {
        return None;
    }
    let names = warpwave_vgpu::hip::Config::from_env().unwrap().names();
    let ordinal = names.iter().position(|name| name == arch).unwrap();
    let start = || {
        // SAFETY: the virtual GPU's functions have the shapes of HIP's, which the table's rows declare.
        unsafe { Driver::in_process("vgpu", Vendor::Amd, warpwave_vgpu::hip::lookup, Some(names.clone())) }.unwrap()
    };
    Some(Device::gpu(&DRIVER.get_or_init(start).device(ordinal).unwrap(), &Jit::default()).unwrap())
}
