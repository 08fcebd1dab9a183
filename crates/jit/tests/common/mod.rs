//! What the suites share: the example sources, and a JIT with a cache of its own.
#![allow(dead_code)]

use std::path::{Path, PathBuf};

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
