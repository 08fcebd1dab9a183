//! candle's CUDA kernels, as they are, for AMD: none is lost.
//!
//! The sources come from the registry (`candle-kernels` on crates.io) and are only read. Without a network and without the crate in
//! cargo's cache the test is skipped with a line that says so; with `WARPWAVE_REQUIRE_ALL=1` that is a failure. `WARPWAVE_TEST_FULL=1`
//! compiles for more GPUs and with full optimization.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use warpwave_jit::{CompilerChoice, Job, KernelSource, Target, Toolchains, compile, kernels};
use warpwave_test_support::{full_run, require};

const FILES: [&str; 11] = ["quantized", "binary", "unary", "indexing", "reduce", "conv", "cast", "affine", "fill", "sort", "ternary"];

/// The folder of the sources.
fn sources() -> Option<PathBuf> {
    let folder = tempfile::tempdir().ok()?;
    let manifest = "[package]\nname = \"probe\"\nversion = \"0.0.0\"\nedition = \"2021\"\n[dependencies]\n\
        candle-kernels = { version = \"=0.11.1\", optional = true }\n[workspace]\n";
    std::fs::create_dir(folder.path().join("src")).ok()?;
    std::fs::write(folder.path().join("src/lib.rs"), "").ok()?;
    std::fs::write(folder.path().join("Cargo.toml"), manifest).ok()?;
    let cargo = |args: &[&str]| {
        let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        Command::new(program).args(args).current_dir(folder.path()).output().ok().filter(|output| output.status.success())
    };
    cargo(&["fetch", "--offline"]).or_else(|| cargo(&["fetch"]))?;
    let output = cargo(&["metadata", "--offline", "--all-features", "--format-version", "1"])?;
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
    let package = metadata["packages"].as_array()?.iter().find(|p| p["name"] == "candle-kernels")?;
    Some(Path::new(package["manifest_path"].as_str()?).parent()?.join("src"))
}

fn source(folder: &Path, file: &str, arch: u32) -> KernelSource {
    KernelSource::from_file(folder.join(file).with_extension("cu")).unwrap().define("WARPWAVE_CUDA_ARCH", arch.to_string())
}

/// The kernels that other programs know by name: `extern "C"`.
fn expected(source: &KernelSource) -> BTreeSet<String> {
    kernels(source).unwrap().into_iter().filter(|k| k.extern_c).map(|k| k.name).collect()
}

/// The kernels that compiled code has, for every file, on two threads.
fn compiled(
    folder: &Path,
    files: &[&'static str],
    arch: u32,
    target: &str,
    tools: &Toolchains,
    full: bool,
) -> Vec<(&'static str, BTreeSet<String>)> {
    let target: Target = target.parse().unwrap();
    let next = AtomicUsize::new(0);
    let empty = tempfile::tempdir().unwrap();
    std::fs::write(empty.path().join("cmath"), "#define INFINITY __int_as_float(0x7f800000)\n").unwrap();
    let work = || {
        let mut done = Vec::new();
        while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            let mut source = source(folder, file, arch);
            if target.to_string().starts_with("sm_") {
                // NVRTC has no <cmath>, and most of its contents built in.
                source = KernelSource::from_file(folder.join(file).with_extension("cu")).unwrap().include_dir(empty.path()).unwrap();
            } else if !full {
                // Optimization changes no kernel's presence, and is most of the time.
                source = source.option("-O1");
            }
            let made = compile(&Job { source: &source, target: &target, compiler: CompilerChoice::Auto }, tools)
                .unwrap_or_else(|error| panic!("{file} for {target}: {error}"));
            assert!(!made.notes.iter().any(|n| n.code == "WW0310" || n.code == "WW0305"), "{file}: {:?}", made.notes);
            done.push((*file, made.code_object.kernels.iter().map(|k| k.name.clone()).filter(|name| !name.starts_with("_Z")).collect()));
        }
        done
    };
    std::thread::scope(|scope| {
        let second = scope.spawn(work);
        let mut all = work();
        all.extend(second.join().unwrap());
        all.sort();
        all
    })
}

fn total(rows: &[(&str, BTreeSet<String>)]) -> usize {
    rows.iter().map(|(_, names)| names.len()).sum()
}

#[test]
fn every_kernel_of_candle_is_in_the_code_for_amd() {
    let Some(folder) = sources() else {
        require(false, "the sources of candle-kernels 0.11.1");
        return;
    };
    // Counted without any compiler.
    let count = |arch| FILES.iter().map(|file| expected(&source(&folder, file, arch)).len()).sum::<usize>();
    let counts = (count(800), count(900));
    println!("in the sources: {} kernels with the guards of sm_80, {} with those of sm_90", counts.0, counts.1);
    assert_eq!(counts, (705, 755));

    let tools = Toolchains::find();
    let full = full_run();
    if require(tools.choose(&"gfx90a".parse().unwrap(), CompilerChoice::Auto).is_ok(), "a compiler for AMD GPUs") {
        let targets: &[&str] = if full { &["gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"] } else { &["gfx90a"] };
        for target in targets {
            let rows = compiled(&folder, &FILES, 900, target, &tools, full);
            println!("{target}: {} kernels", total(&rows));
            for (file, names) in &rows {
                assert_eq!(*names, expected(&source(&folder, file, 900)), "{file} for {target}");
            }
            assert_eq!(total(&rows), 755);
        }
        // The older architecture's guards: the files where they make a difference.
        let differ: Vec<&str> =
            FILES.into_iter().filter(|f| expected(&source(&folder, f, 800)) != expected(&source(&folder, f, 900))).collect();
        for (file, names) in compiled(&folder, &differ, 800, "gfx90a", &tools, false) {
            assert_eq!(names, expected(&source(&folder, file, 800)), "{file} with the guards of sm_80");
        }
    }
}

#[test]
fn nvidias_compiler_makes_the_same_kernels() {
    let Some(folder) = sources() else {
        require(false, "the sources of candle-kernels 0.11.1");
        return;
    };
    let tools = Toolchains::find();
    if tools.choose(&"sm_90".parse().unwrap(), CompilerChoice::Auto).is_err() {
        require(false, "NVRTC");
        return;
    }
    // Those that take NVRTC seconds, not minutes.
    let full = full_run();
    let files = if full { &FILES[..] } else { &["reduce", "indexing", "ternary", "affine", "fill"] };
    for (target, arch) in [("sm_80", 800), ("sm_90", 900)] {
        let rows = compiled(&folder, files, arch, target, &tools, full);
        println!("{target}: {} kernels of {files:?}", total(&rows));
        for (file, names) in &rows {
            assert_eq!(*names, expected(&source(&folder, file, arch)), "{file} for {target}");
        }
    }
}
