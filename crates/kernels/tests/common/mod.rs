//! The devices that the suites run on, and what they share with the other suites of the workspace.
#![allow(dead_code, unused_imports)]

pub mod values;

use std::sync::OnceLock;

use warpwave_gpu::{Device, Devices};
pub use warpwave_test_support::{Random, full_run as full, require, seed, virtual_devices};

/// Virtual AMD GPUs, if a compiler for them is installed, and every GPU of the machine. By default a seed selects one CDNA and one RDNA
/// architecture; `WARPWAVE_TEST_FULL=1` and `WARPWAVE_VGPU_DEVICES` select more.
pub fn devices() -> Vec<Device> {
    const CDNA: [&str; 2] = ["gfx90a", "gfx942"];
    const RDNA: [&str; 3] = ["gfx1030", "gfx1100", "gfx1201"];
    static CHOSEN: OnceLock<Vec<&str>> = OnceLock::new();
    let archs = CHOSEN.get_or_init(|| {
        if full() || std::env::var_os("WARPWAVE_VGPU_DEVICES").is_some() {
            return CDNA.into_iter().chain(RDNA).collect();
        }
        let seed = seed() as usize;
        vec![CDNA[seed % CDNA.len()], RDNA[seed / CDNA.len() % RDNA.len()]]
    });
    let mut devices = virtual_devices(archs);
    devices.extend(Devices::hardware().physical().into_iter().map(Result::unwrap));
    devices
}
