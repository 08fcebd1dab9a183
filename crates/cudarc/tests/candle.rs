//! Unmodified candle on Warpwave's devices, through the crates that replace `cudarc` and `cudaforge`.
//!
//! By default, kernels of each of candle's files are packed as its build script does and loaded one by one. `WARPWAVE_TEST_FULL=1` builds
//! and runs `examples/candle`, which takes minutes.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use cudarc::driver::CudaContext;
use warpwave::jit::{KernelSource, kernels};
use warpwave_test_support::{Random, full_run, require, seed, virtual_device, workspace_root};

/// Runs cargo in the folder of the example.
fn cargo(args: &[&str]) -> Option<Output> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let root = workspace_root();
    let mut command = Command::new(program);
    command.args(args).current_dir(root.join("examples/candle")).env("WARPWAVE_DEVICE", "vgpu:gfx90a");
    // Not that of the workspace, which is locked while its tests are built.
    command.env("CARGO_TARGET_DIR", root.join("target/candle-example"));
    command.output().ok()
}

/// Returns the manifests of all packages below the example; fetches them if needed.
fn manifests() -> Option<Vec<PathBuf>> {
    let output = cargo(&["metadata", "--locked", "--format-version", "1"])?;
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(!log.contains("--locked"), "the example's lock file is out of date; run `cargo update -w` in examples/candle: {log}");
    if !output.status.success() {
        return None;
    }
    let text = String::from_utf8(output.stdout).ok()?;
    let path = |rest: &str| rest.split_once('"').map(|(path, _)| PathBuf::from(path));
    Some(text.split("\"manifest_path\":\"").skip(1).filter_map(path).collect())
}

/// Returns the folder of candle's CUDA sources.
fn sources() -> Option<PathBuf> {
    let found = manifests()?.into_iter().find(|path| path.ends_with("candle-kernels-0.11.1/Cargo.toml"))?;
    Some(found.parent()?.join("src"))
}

#[test]
fn the_example_resolves_to_our_crates() {
    let manifests = manifests();
    if !require(manifests.is_some(), "candle 0.11.1 and what it depends on") {
        return;
    }
    let crates = workspace_root().join("crates").canonicalize().unwrap();
    for name in ["cudarc", "cudaforge"] {
        let end = Path::new(name).join("Cargo.toml");
        let is_ours = |path: &&PathBuf| path.ends_with(&end) && path.starts_with(&crates);
        assert_eq!(manifests.iter().flatten().filter(is_ours).count(), 1, "{name}");
        let published = |path: &&PathBuf| path.iter().any(|part| part.to_string_lossy().starts_with(&format!("{name}-0.")));
        assert_eq!(manifests.iter().flatten().find(published), None);
    }
}

/// Returns the number of kernels that are loaded from each file.
fn sample() -> usize {
    if full_run() { 10 } else { 1 }
}

#[test]
fn kernels_are_packed_and_loaded_one_by_one() {
    let device = virtual_device("gfx90a");
    let sources = sources();
    if !require(device.is_some(), "a compiler for gfx90a") || !require(sources.is_some(), "the sources of candle-kernels 0.11.1") {
        return;
    }
    let (Some(device), Some(sources)) = (device, sources) else { return };
    let out = tempfile::tempdir().unwrap();
    // As in candle's build script.
    let builder = cudaforge::KernelBuilder::new().source_dir(&sources).exclude(&["moe_*.cu", "mmvq_gguf.cu", "mmq_*.cu"]);
    builder.arg("-std=c++17").out_dir(out.path()).build_ptx().unwrap().write(out.path().join("ptx.rs")).unwrap();
    let names = std::fs::read_to_string(out.path().join("ptx.rs")).unwrap();
    let names: Vec<&str> = names.lines().filter_map(|line| line.strip_prefix("pub const ")?.split(':').next()).collect();
    let expected = ["AFFINE", "BINARY", "CAST", "CONV", "FILL", "INDEXING", "QUANTIZED", "REDUCE", "SORT", "TERNARY", "UNARY"];
    assert_eq!(names, expected);

    let context = CudaContext::of_device(&device).unwrap();
    let mut random = Random::new(seed());
    let mut total = 0;
    for name in names {
        let file = name.to_lowercase();
        let source = KernelSource::from_file(sources.join(&file).with_extension("cu")).unwrap();
        let all: Vec<String> = kernels(&source).unwrap().into_iter().filter(|k| k.extern_c && !k.template).map(|k| k.name).collect();
        total += all.len();
        let module = context.load_module(std::fs::read_to_string(out.path().join(format!("{file}.cu.txt"))).unwrap().into()).unwrap();
        for _ in 0..sample() {
            let kernel = random.pick(&all);
            module.load_function(kernel).unwrap_or_else(|error| panic!("{file}: {kernel}: {error}"));
        }
        let error = module.load_function("no_such_kernel").unwrap_err().to_string();
        assert!(error.contains("no_such_kernel"), "{error}");
    }
    assert_eq!(total, 755);
}

#[test]
fn the_example_runs() {
    if !full_run() || !require(virtual_device("gfx90a").is_some(), "a compiler for gfx90a") {
        return;
    }
    let output = cargo(&["run", "--locked"]).unwrap();
    let (out, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{log}\n{out}");
    for line in ["3 rows agree with the CPU", "20 rows agree with the CPU", "random numbers repeat"] {
        assert!(out.contains(line), "`{line}` is missing:\n{out}");
    }
}
