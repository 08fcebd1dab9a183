//! The devices that the suites run on, and random numbers.
#![allow(dead_code)]

pub mod values;

use std::io::Write;
use std::sync::{Arc, OnceLock};

use warpwave_gpu::{Device, Devices, Driver, Vendor};
use warpwave_jit::{CompilerChoice, Toolchains};

/// Virtual AMD GPUs of both architectures, unless no compiler makes code for them, and every GPU of the machine.
pub fn devices() -> Vec<Device> {
    let mut devices = virtual_devices(&["gfx90a", "gfx942"]);
    devices.extend(Devices::hardware().physical().into_iter().map(Result::unwrap));
    devices
}

/// The virtual GPUs of these architectures that there are; none without a compiler for them.
pub fn virtual_devices(wanted: &[&str]) -> Vec<Device> {
    static DRIVER: OnceLock<Arc<Driver>> = OnceLock::new();
    if !require(Toolchains::find().choose(&"gfx90a".parse().unwrap(), CompilerChoice::Clang).is_ok(), "no clang with its linker") {
        return Vec::new();
    }
    let names = warpwave_vgpu::hip::Config::from_env().unwrap().names();
    let start = || {
        // SAFETY: the virtual GPU's functions have the shapes of HIP's, which the table's rows declare.
        unsafe { Driver::in_process("vgpu", Vendor::Amd, warpwave_vgpu::hip::lookup, Some(names.clone())) }.unwrap()
    };
    let driver = DRIVER.get_or_init(start);
    let there = names.iter().enumerate().filter(|(_, name)| wanted.contains(&name.as_str()));
    there.map(|(ordinal, _)| driver.device(ordinal).unwrap()).collect()
}

/// Whether a tool is there; without it the test is skipped, or fails if `WARPWAVE_REQUIRE_ALL=1`.
pub fn require(there: bool, what: &str) -> bool {
    if !there {
        assert!(std::env::var_os("WARPWAVE_REQUIRE_ALL").is_none_or(|v| v != "1"), "{what}, and WARPWAVE_REQUIRE_ALL is set");
        eprintln!("skipped: {what}");
    }
    there
}

/// Whether every case is to be run.
pub fn full() -> bool {
    std::env::var_os("WARPWAVE_TEST_FULL").is_some_and(|value| value == "1")
}

/// A fresh seed, or the one of `WARPWAVE_SEED`; printed.
pub fn seed() -> u64 {
    let given = std::env::var("WARPWAVE_SEED").ok().map(|text| text.parse().expect("WARPWAVE_SEED is a number"));
    let fresh = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64 & 0xffff_ffff;
    let seed = given.unwrap_or_else(fresh);
    // Not by the macros, whose words are kept back where a test passes.
    _ = writeln!(std::io::stderr(), "WARPWAVE_SEED={seed} repeats this run");
    seed
}

/// Random numbers that a seed repeats.
pub struct Random(u64);

impl Random {
    /// From a seed; adjacent seeds are uncorrelated.
    pub fn new(seed: u64) -> Random {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03 | 1);
        (0..4).for_each(|_| _ = random.next());
        random
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        ((self.next() >> 33) % limit as u64) as usize
    }

    /// From 0 to 1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / 2f64.powi(53)
    }
}
