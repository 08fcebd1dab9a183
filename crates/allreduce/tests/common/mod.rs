//! The devices that the suites run on.
#![allow(dead_code)]

use std::sync::{Arc, OnceLock};

use warpwave_allreduce::gpu::DeviceContext;
use warpwave_gpu::{Devices, Driver, Vendor};
use warpwave_jit::{CompilerChoice, Jit, Toolchains};

/// A virtual AMD GPU, unless no compiler makes code for it, and every GPU of the machine.
pub fn contexts() -> Vec<DeviceContext> {
    static DRIVER: OnceLock<Arc<Driver>> = OnceLock::new();
    let mut devices = Vec::new();
    if require(Toolchains::find().choose(&"gfx90a".parse().unwrap(), CompilerChoice::Clang).is_ok(), "no clang with its linker") {
        let start = || {
            let names = warpwave_vgpu::hip::Config::from_env().unwrap().names();
            // SAFETY: the virtual GPU's functions have the shapes of HIP's, which the table's rows declare.
            unsafe { Driver::in_process("vgpu", Vendor::Amd, warpwave_vgpu::hip::lookup, Some(names)) }.unwrap()
        };
        devices.push(DRIVER.get_or_init(start).device(0).unwrap());
    }
    devices.extend(Devices::hardware().physical().into_iter().map(Result::unwrap));
    devices.into_iter().map(|device| DeviceContext::new(device, Jit::default())).collect()
}

/// Whether a tool is there; without it the test is skipped, or fails if `WARPWAVE_REQUIRE_ALL=1`.
pub fn require(there: bool, what: &str) -> bool {
    if !there {
        assert!(std::env::var_os("WARPWAVE_REQUIRE_ALL").is_none_or(|v| v != "1"), "{what}, and WARPWAVE_REQUIRE_ALL is set");
        eprintln!("skipped: {what}");
    }
    there
}

/// Random numbers that are the same each time.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 33) % limit
    }
}
