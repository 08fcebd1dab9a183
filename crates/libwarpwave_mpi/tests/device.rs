//! Buffers in device memory: virtual AMD GPUs, a different one for each rank, or an NVIDIA GPU if present.

mod common;

use common::{Kind, Mpi, Run, full, has_nvidia, library, require, seed, virtual_gpu_env};

fn check(mpi: &Mpi, np: usize, algorithm: &str, memory: &str, min: u64, arguments: &str) {
    check_with(mpi, np, algorithm, memory, min, arguments, |run| run);
}

fn check_with(mpi: &Mpi, np: usize, algorithm: &str, memory: &str, min: u64, arguments: &str, more: impl FnOnce(Run) -> Run) {
    let program = mpi.compile("matrix.c", &[]);
    let run = mpi.run(&program, np).preloaded(algorithm).limit(400).args(["--memory", memory]).args(arguments.split_whitespace());
    let ended = virtual_gpu_env(more(run)).go();
    let right = ended.success && ended.out.lines().any(|line| line.starts_with("cases ") && line.contains(" wrong 0 "));
    ended.check(right, &format!("{:?}, np {np}, {algorithm}, {memory}", mpi.kind));
    ended.check(!ended.err.contains("cannot build the"), "the kernels were not used");
    for stats in ended.stats(np) {
        let (device, handled) = (stats["device"].as_u64().unwrap_or(0), stats[algorithm].as_u64().unwrap_or(0));
        ended.check(device > 0 && handled >= min, &format!("{handled} calls by {algorithm}, {device} on a device: {stats}"));
    }
    println!("{:?}, np {np}, {algorithm}, {memory}: {:.1} s", mpi.kind, ended.took.as_secs_f64());
}

fn has_compiler() -> bool {
    let clang = || std::process::Command::new("clang-19").arg("--version").output().is_ok_and(|output| output.status.success());
    require(has_nvidia() || clang(), "clang-19 to compile the kernels")
}

/// A few datatypes with every operator and algorithm; every datatype is covered by the kernel tests and by CAIL's cases.
#[test]
fn every_kind_of_memory_with_every_algorithm() {
    if !has_compiler() {
        return;
    }
    let seed = seed();
    for mpi in Mpi::all() {
        // Above the size from which the ranks agree on the kind of memory, and in several segments.
        let sample = if full() { 8 } else { 48 };
        let arguments = format!("--short --base 20000 --sample {sample} --seed {seed}");
        let sizes: &[usize] = if mpi.kind == Kind::OpenMpi { &[2, 3] } else { &[2] };
        for &np in sizes {
            for algorithm in ["recursive_doubling", "ring", "segmented_ring", "rabenseifner", "hierarchical"] {
                check(&mpi, np, algorithm, "rotate", 1, &arguments);
            }
            for memory in ["device", "managed", "mixed"] {
                check(&mpi, np, "rabenseifner", memory, 1, &arguments);
            }
        }
    }
}

/// IPC: ranks that share a GPU read each other's memory; messages carry no elements.
#[test]
fn ranks_read_each_others_memory() {
    if !has_nvidia() {
        // The virtual GPU's memory belongs to one process.
        return println!("skipped: no NVIDIA GPU");
    }
    let seed = seed();
    for mpi in Mpi::all() {
        for np in [2, 3, 5] {
            for memory in ["device", "managed"] {
                check(&mpi, np, "ipc", memory, 1, &format!("--short --base 20000 --sample 4 --seed {seed}"));
            }
            // More than a slot, in chunks.
            check(&mpi, np, "ipc", "device", 1, &format!("--short --base 6000000 --sample 60 --seed {seed}"));
        }
        // More ranks than a kernel has buffers, in two stages.
        check(&mpi, 9, "ipc", "device", 1, &format!("--short --base 600000 --sample 20 --seed {seed}"));
    }
}

/// Every datatype in small messages: each rank copies its elements to the host, or the MPI library is called with host copies.
#[test]
fn small_messages_of_every_datatype() {
    let seed = seed();
    for mpi in Mpi::all() {
        let sample = if full() { 4 } else { 32 };
        let arguments = format!("--base 50 --sample {sample} --seed {seed}");
        check(&mpi, 2, "recursive_doubling", "rotate", 1, &arguments);
        check(&mpi, 2, "native", "rotate", 1, &format!("{arguments} --native"));
    }
}

/// GPU-aware MPI and RCCL, both mocked on the virtual GPU, whose memory the host can access.
#[test]
fn gpu_aware_mpi_and_rccl() {
    if !has_compiler() || has_nvidia() {
        return;
    }
    let seed = seed();
    for mpi in Mpi::all() {
        // Enough cases that RCCL supports some of them.
        let arguments = format!("--short --native --base 20000 --sample {} --seed {seed}", if full() { 2 } else { 6 });
        let aware = mpi.compile("aware.c", &["-shared", "-fPIC"]);
        let preload = format!("{}:{}", library().display(), aware.display());
        check_with(&mpi, 2, "rabenseifner", "rotate", 1, &arguments, |run| run.variable("LD_PRELOAD", preload));
        let rccl = mpi.compile("rccl.c", &["-shared", "-fPIC"]);
        check_with(&mpi, 2, "nccl", "device", 1, &arguments, |run| run.variable("WARPWAVE_RCCL_LIB", rccl.display().to_string()));
    }
}

/// 20 datatypes, 4 operators, normal and in place: CAIL's 160 cases on device memory. All of them in a full run, otherwise a sample.
#[test]
fn cail_cases_on_device_memory() {
    if !has_compiler() {
        return;
    }
    let seed = seed();
    for mpi in Mpi::all() {
        let program = mpi.compile("matrix.c", &[]);
        let algorithms: &[&str] = if full() { &["recursive_doubling", "ring", "rabenseifner"] } else { &["rabenseifner"] };
        for algorithm in algorithms {
            // Above the size from which kernels reduce.
            let run = mpi.run(&program, 2).preloaded(algorithm).limit(500).args(["--cail", "--memory", "device", "--base", "20000"]);
            let run = if full() { run } else { run.args(["--sample", "16", "--seed", &seed.to_string()]) };
            let ended = virtual_gpu_env(run).go();
            let result = ended.out.lines().find_map(|line| line.split_once('/')).unwrap_or(("", "-"));
            ended.check(ended.success && result.0 == result.1, &format!("{:?}, {algorithm}", mpi.kind));
            ended.check(!full() || result.0 == "160", "not all cases were run");
            ended.check(!ended.err.contains("cannot build the"), "the kernels were not used");
            for stats in ended.stats(2) {
                let (device, cases) = (stats["device"].as_u64().unwrap_or(0), result.1.parse().unwrap_or(u64::MAX));
                ended.check(device >= cases, &format!("{device} calls on a device, expected {cases}: {stats}"));
            }
            println!("{:?}, {algorithm}: {}/{} on device memory, {:.1} s", mpi.kind, result.0, result.1, ended.took.as_secs_f64());
        }
    }
}
