//! What the suites share: the example sources, and a JIT with a cache of its own.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use warpwave_gpu::{Device, Driver, Vendor};
use warpwave_jit::cache::Cache;
use warpwave_jit::{CompilerChoice, Jit, Job, KernelSource, Target, Toolchains, compile};

/// The folder of the example kernels: beside the repository, or where the bundle for GPU machines says.
pub fn kernels() -> PathBuf {
    match std::env::var_os("WARPWAVE_ROOT") {
        Some(root) => Path::new(&root).join("examples/kernels"),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/kernels"),
    }
}

/// An example kernel.
pub fn example(name: &str) -> KernelSource {
    KernelSource::from_file(kernels().join(name)).unwrap()
}

/// The JIT of the environment.
pub fn jit() -> Jit {
    Jit::default()
}

/// The virtual AMD GPUs; none where no compiler makes code for them.
pub fn virtual_devices() -> Vec<Device> {
    static DRIVER: OnceLock<Arc<Driver>> = OnceLock::new();
    let there = Toolchains::find().choose(&"gfx90a".parse().unwrap(), CompilerChoice::Clang).is_ok();
    if !require(there, "no clang with its linker to compile for the virtual GPU") {
        return Vec::new();
    }
    let start = || {
        let names = warpwave_vgpu::hip::Config::from_env().unwrap().names();
        // SAFETY: the virtual GPU's functions have the shapes of HIP's, which the table's rows declare.
        unsafe { Driver::in_process("vgpu", Vendor::Amd, warpwave_vgpu::hip::lookup, Some(names)) }.unwrap()
    };
    let driver = DRIVER.get_or_init(start);
    (0..driver.device_names().len()).map(|ordinal| driver.device(ordinal).unwrap()).collect()
}

/// Whether a tool is there; without it the test is skipped, or fails if `WARPWAVE_REQUIRE_ALL=1`.
pub fn require(there: bool, what: &str) -> bool {
    if !there {
        assert!(std::env::var_os("WARPWAVE_REQUIRE_ALL").is_none_or(|v| v != "1"), "{what}, and WARPWAVE_REQUIRE_ALL is set");
        eprintln!("skipped: {what}");
    }
    there
}

/// A JIT with an empty cache; `None` where no compiler makes code for `target` (clang may lack its linker).
pub fn temporary_jit(target: &Target) -> Option<(Jit, tempfile::TempDir)> {
    let toolchains = Toolchains::find();
    let probe = KernelSource::from_text("probe.cu", "extern \"C\" __global__ void probe() {}").unwrap();
    let probed = compile(&Job { source: &probe, target, compiler: CompilerChoice::Auto }, &toolchains);
    if let Err(error) = probed {
        require(false, &format!("no compiler for {target}: {error}"));
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    Some((Jit::with_toolchains(Cache::at(folder.path().join("cache"), 1 << 30), toolchains), folder))
}

/// The same with clang: hipRTC has HIP's headers in place of ours.
pub fn clang_jit(target: &Target) -> Option<(Jit, tempfile::TempDir)> {
    let there = Toolchains::find().choose(target, CompilerChoice::Clang).is_ok();
    if require(there, "no clang with its linker") { temporary_jit(target) } else { None }
}
