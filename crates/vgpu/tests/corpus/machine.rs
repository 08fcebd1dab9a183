//! The compiler and the devices of the corpus.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use warpwave_gpu::{Device, Devices, Driver, Vendor};
use warpwave_jit::{CompilerChoice, Jit, KernelSource, Target};
use warpwave_test_support::require;
use warpwave_vgpu::hip::{self, Config};

/// The architectures of the virtual GPU.
pub const ARCHS: [&str; 8] = ["gfx906", "gfx908", "gfx90a", "gfx942", "gfx1010", "gfx1030", "gfx1100", "gfx1201"];

/// Optimized and unoptimized.
pub const LEVELS: [&str; 2] = ["-O3", "-O0"];

/// Optimized, for the wave size of RDNA that is not its default.
pub const WAVE64: &str = "-O3 -mwavefrontsize64 -UWARPWAVE_WAVE_SIZE -DWARPWAVE_WAVE_SIZE=64";

/// Returns the compiler options to try for a source and an architecture. Before gfx12, shuffles do not reach across the halves of a
/// wave64.
pub fn levels(source: &str, arch: &str) -> Vec<&'static str> {
    let text = std::fs::read_to_string(folder().join(source)).unwrap_or_default();
    let shuffles = ["shfl", "wmma", "reduce.h", "__any", "__all", "match_"].iter().any(|word| text.contains(word));
    let wave64 = arch == "gfx1201" || arch.starts_with("gfx1") && !shuffles;
    LEVELS.into_iter().chain(wave64.then_some(WAVE64)).collect()
}

/// The folder of the sources.
pub fn folder() -> PathBuf {
    match std::env::var_os("WARPWAVE_ROOT") {
        Some(root) => Path::new(&root).join("crates/vgpu/corpus"),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus"),
    }
}

/// A source of the corpus, to be compiled at a level.
pub fn source(name: &str, level: &str) -> KernelSource {
    let source = KernelSource::from_file(folder().join(name)).unwrap_or_else(|error| panic!("{error}"));
    level.split(' ').fold(source, KernelSource::option)
}

/// Returns the JIT; `None` without a clang for AMD: the test is skipped, unless `WARPWAVE_REQUIRE_ALL=1`.
pub fn jit() -> Option<Jit> {
    let jit = Jit::default();
    let probe = KernelSource::from_text("probe.cu", "extern \"C\" __global__ void probe() {}").unwrap();
    let missing = ARCHS.iter().find_map(|arch| {
        let target: Target = arch.parse().unwrap();
        jit.build(&probe, &target, CompilerChoice::Clang).err().map(|error| format!("clang for {arch}: {error}"))
    });
    require(missing.is_none(), missing.as_deref().unwrap_or_default()).then_some(jit)
}

/// The virtual devices by architecture.
pub fn devices() -> HashMap<&'static str, Device> {
    let names = Config::from_env().unwrap_or_else(|error| panic!("{error}")).names();
    // SAFETY: the virtual GPU's functions have the shapes of HIP's, which the table's rows declare.
    let driver = unsafe { Driver::in_process("vgpu", Vendor::Amd, hip::lookup, Some(names)) }.unwrap();
    let mut gpus = Devices::default();
    gpus.register("vgpu", Ok(driver));
    ARCHS.iter().map(|arch| (*arch, gpus.get(&format!("vgpu:{arch}")).unwrap())).collect()
}
