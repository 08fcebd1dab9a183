//! Buffers on GPUs: the virtual AMD GPU, each rank with a device of its own, and an NVIDIA GPU where there is one.

mod common;

use std::path::PathBuf;

use common::{Kind, Mpi, Run, full, library, seed, skip};

/// The virtual GPU as a library, built beside the test.
fn virtual_gpu() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let found = own.ancestors().skip(1).take(2).map(|folder| folder.join("libamdhip64.so")).find(|file| file.exists());
    found.expect("cargo builds the virtual GPU before the tests")
}

/// Whether a card of NVIDIA's is here.
fn has_nvidia() -> bool {
    std::path::Path::new("/dev/nvidiactl").exists()
}

fn check(mpi: &Mpi, np: usize, algorithm: &str, memory: &str, least: u64, arguments: &str) {
    check_with(mpi, np, algorithm, memory, least, arguments, |run| run);
}

fn check_with(mpi: &Mpi, np: usize, algorithm: &str, memory: &str, least: u64, arguments: &str, more: impl FnOnce(Run) -> Run) {
    let program = mpi.compile("matrix.c", &[]);
    let run = mpi.run(&program, np).preloaded(algorithm).limit(400).args(["--memory", memory]).args(arguments.split_whitespace());
    let mut run = more(run);
    if !has_nvidia() {
        let library = virtual_gpu();
        run = run.variable("WARPWAVE_HIP_LIB", library.to_str().unwrap());
        run = run.variable("WARPWAVE_VGPU_DEVICES", "gfx90a,gfx942,gfx908").variable("WARPWAVE_VGPU_THREADS", "1");
    }
    let ended = run.go();
    let right = ended.success && ended.out.lines().any(|line| line.starts_with("cases ") && line.contains(" wrong 0 "));
    ended.check(right, &format!("{:?}, np {np}, {algorithm}, {memory}", mpi.kind));
    ended.check(!ended.err.contains("no kernel for"), "the kernels were not used");
    for stats in ended.stats(np) {
        let (device, handled) = (stats["device"].as_u64().unwrap_or(0), stats[algorithm].as_u64().unwrap_or(0));
        ended.check(device > 0 && handled >= least, &format!("{handled} calls by {algorithm}, {device} on a device: {stats}"));
    }
    println!("{:?}, np {np}, {algorithm}, {memory}: {:.1} s", mpi.kind, ended.took.as_secs_f64());
}

fn has_compiler() -> bool {
    let found =
        has_nvidia() || std::process::Command::new("clang-19").arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        skip("no clang-19 to compile the kernels with");
    }
    found
}

/// Few types, every operation and step: what differs between them is the kernels', which have a test of their own.
#[test]
fn every_kind_of_memory_with_every_algorithm() {
    if !has_compiler() {
        return;
    }
    let seed = seed();
    for mpi in Mpi::all() {
        // Above the size from which the ranks ask each other, and in several segments.
        let sample = if full() { 8 } else { 48 };
        let arguments = format!("--short --base 20000 --sample {sample} --seed {seed}");
        let sizes: &[usize] = if mpi.kind == Kind::OpenMpi { &[2, 3] } else { &[2] };
        for &np in sizes {
            for algorithm in ["recursive_doubling", "ring", "segmented_ring", "rabenseifner", "hierarchical"] {
                check(&mpi, np, algorithm, "turns", 1, &arguments);
            }
            for memory in ["device", "managed", "mixed"] {
                check(&mpi, np, "rabenseifner", memory, 1, &arguments);
            }
        }
    }
}

/// Ranks that share a card read each other's memory; no message carries elements.
#[test]
fn ranks_read_each_others_memory() {
    if !has_nvidia() {
        // The virtual GPU's memory belongs to one process.
        return println!("no NVIDIA GPU here");
    }
    let seed = seed();
    for mpi in Mpi::all() {
        for np in [2, 3, 5] {
            for memory in ["device", "managed"] {
                check(&mpi, np, "ipc", memory, 1, &format!("--short --base 20000 --sample 4 --seed {seed}"));
            }
            // Above a slot's size, and in parts.
            check(&mpi, np, "ipc", "device", 1, &format!("--short --base 6000000 --sample 60 --seed {seed}"));
        }
        // More ranks than a kernel takes buffers, each with its part.
        check(&mpi, 9, "ipc", "device", 1, &format!("--short --base 600000 --sample 20 --seed {seed}"));
    }
}

/// All types, short: each rank brings its elements to the host, or leaves them to the MPI, whatever the type.
#[test]
fn short_buffers_of_every_type() {
    let seed = seed();
    for mpi in Mpi::all() {
        let sample = if full() { 4 } else { 32 };
        let arguments = format!("--base 50 --sample {sample} --seed {seed}");
        check(&mpi, 2, "recursive_doubling", "turns", 1, &arguments);
        check(&mpi, 2, "native", "turns", 1, &format!("{arguments} --native"));
    }
}

/// Both ways that this machine has no real part for, on the virtual GPU, whose memory the host can read.
#[test]
fn an_mpi_that_takes_device_addresses_and_rccl() {
    if !has_compiler() || has_nvidia() {
        return;
    }
    let seed = seed();
    for mpi in Mpi::all() {
        // Enough cases that some are of a type and operation that RCCL has.
        let arguments = format!("--short --native --base 20000 --sample {} --seed {seed}", if full() { 2 } else { 6 });
        let aware = mpi.compile("aware.c", &["-shared", "-fPIC"]);
        let preload = format!("{}:{}", library().display(), aware.display());
        check_with(&mpi, 2, "rabenseifner", "turns", 1, &arguments, |run| run.variable("LD_PRELOAD", preload));
        let rccl = mpi.compile("rccl.c", &["-shared", "-fPIC"]);
        check_with(&mpi, 2, "nccl", "device", 1, &arguments, |run| run.variable("WARPWAVE_RCCL_LIB", rccl.display().to_string()));
    }
}
