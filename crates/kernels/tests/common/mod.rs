//! The devices that the suites run on, and what they share with the other suites of the workspace.
#![allow(dead_code, unused_imports)]

pub mod values;

use warpwave_gpu::{Device, Devices};
pub use warpwave_test_support::{Random, full_run as full, require, seed, virtual_devices};

/// Virtual AMD GPUs of both architectures, if a compiler for them is installed, and every GPU of the machine.
pub fn devices() -> Vec<Device> {
    let mut devices = virtual_devices(&["gfx90a", "gfx942"]);
    devices.extend(Devices::hardware().physical().into_iter().map(Result::unwrap));
    devices
}
