//! What the suites share: the example sources, and a JIT with a cache of its own.
#![allow(dead_code)]

use std::path::PathBuf;

use warpwave_gpu::Device;
use warpwave_jit::cache::Cache;
use warpwave_jit::{CompilerChoice, Jit, Job, KernelSource, Target, Toolchains, compile};
use warpwave_test_support::{compiles_for, require, virtual_driver, workspace_root};

/// The folder of the example kernels.
pub fn kernels() -> PathBuf {
    workspace_root().join("examples/kernels")
}

/// An example kernel.
pub fn example(name: &str) -> KernelSource {
    KernelSource::from_file(kernels().join(name)).unwrap()
}

/// The JIT of the environment.
pub fn jit() -> Jit {
    Jit::default()
}

/// The virtual AMD GPUs of `WARPWAVE_VGPU_DEVICES`; none without a compiler for them.
pub fn virtual_devices() -> Vec<Device> {
    if !compiles_for("gfx90a") {
        return Vec::new();
    }
    let driver = virtual_driver();
    (0..driver.device_names().len()).map(|ordinal| driver.device(ordinal).unwrap()).collect()
}

/// A JIT with an empty cache; `None` where no compiler makes code for `target` (clang may lack its linker).
pub fn temporary_jit(target: &Target) -> Option<(Jit, tempfile::TempDir)> {
    let toolchains = Toolchains::find();
    let probe = KernelSource::from_text("probe.cu", "extern \"C\" __global__ void probe() {}").unwrap();
    let probed = compile(&Job { source: &probe, target, compiler: CompilerChoice::Auto }, &toolchains);
    if let Err(error) = probed {
        require(false, &format!("a compiler for {target}: {error}"));
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    Some((Jit::with_toolchains(Cache::at(folder.path().join("cache"), 1 << 30), toolchains, Vec::new()), folder))
}

/// The same with clang: hipRTC has HIP's headers in place of ours.
pub fn clang_jit(target: &Target) -> Option<(Jit, tempfile::TempDir)> {
    let present = Toolchains::find().choose(target, CompilerChoice::Clang).is_ok();
    if require(present, "clang with its linker") { temporary_jit(target) } else { None }
}
