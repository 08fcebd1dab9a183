//! The virtual AMD GPUs as devices.

use std::sync::{Arc, OnceLock};

use warpwave_gpu::{Device, Driver, Vendor};
use warpwave_jit::{CompilerChoice, Toolchains};
use warpwave_vgpu::hip::{Config, lookup};

use crate::require;

/// Returns whether clang compiles for an AMD architecture here; without it the caller's test is skipped, as with [`require`].
pub fn compiles_for(arch: &str) -> bool {
    let target = arch.parse().unwrap_or_else(|error| panic!("{arch}: {error}"));
    require(Toolchains::find().choose(&target, CompilerChoice::Clang).is_ok(), "clang with lld (apt install clang-19 lld-19)")
}

/// Returns the architectures of the virtual GPUs, and their driver.
fn start() -> &'static (Vec<String>, Arc<Driver>) {
    static DRIVER: OnceLock<(Vec<String>, Arc<Driver>)> = OnceLock::new();
    DRIVER.get_or_init(|| {
        let names = Config::from_env().unwrap_or_else(|reason| panic!("{reason}")).names();
        // SAFETY: the virtual GPU's functions have the signatures of HIP's, which the rows of the table declare.
        let driver = unsafe { Driver::in_process("vgpu", Vendor::Amd, lookup, Some(names.clone())) };
        (names, driver.unwrap_or_else(|error| panic!("{error}")))
    })
}

/// Returns the driver of the virtual GPUs. It needs no compiler, but kernels for its devices do.
pub fn virtual_driver() -> Arc<Driver> {
    start().1.clone()
}

/// Returns the virtual GPUs of these architectures that `WARPWAVE_VGPU_DEVICES` has.
///
/// None without a compiler for them. None either if `WARPWAVE_HIP_LIB` names a HIP library: such a run tests the library's devices.
pub fn virtual_devices(archs: &[&str]) -> Vec<Device> {
    if std::env::var_os("WARPWAVE_HIP_LIB").is_some() || !archs.iter().all(|arch| compiles_for(arch)) {
        return Vec::new();
    }
    let (names, driver) = start();
    let chosen = names.iter().enumerate().filter(|(_, name)| archs.contains(&name.as_str()));
    chosen.map(|(ordinal, _)| driver.device(ordinal).unwrap_or_else(|error| panic!("{error}"))).collect()
}

/// Returns the first virtual GPU of an architecture; `None` without a compiler for it.
pub fn virtual_device(arch: &str) -> Option<Device> {
    virtual_devices(&[arch]).into_iter().next()
}
