//! Compiler statistics of the kernels: registers fit, nothing is spilled, and no program takes long to compile.
//!
//! Some programs by default, all of them with `WARPWAVE_TEST_FULL=1`.

mod common;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use common::{Random, full, require, seed};
use warpwave_gpu::Vendor;
use warpwave_jit::cache::Cache;
use warpwave_jit::{CompilerChoice, Jit, KernelSource, Target};
use warpwave_kernels::programs;

/// Vector and scalar registers that kernels off the hot path may spill: f64 constants, strides and addresses of kernels for any layout.
/// AMD's scalar registers spill to lanes of vector registers.
const FEW: (u32, u32) = (8, 24);

/// The maximum compile time of a program.
const LONGEST: Duration = Duration::from_secs(5);

/// Kernels that most of the time is spent in.
const HOT: &[&str] = &[
    "add_f32",
    "mul_bf16",
    "silu_bf16",
    "gelu_f16",
    "cast_f32_bf16",
    "cast_f8e4m3_f16",
    "copy_u16",
    "affine_f32",
    "where_u16",
    "sum_bf16_bf16",
    "argmax_f32_u32",
    "softmax_bf16_items0",
    "rms_norm_bf16_bf16_items8",
    "rms_norm_f32_f32_bf16_items8",
    "layer_norm_f32_f32_items8",
    "cumsum_f32_f32",
    "gather_u16_u32",
    "scatter_add_f32_i64",
    "topk_f32",
    "argsort_f32",
    "flash_mma_bf16_d64",
    "flash_mma_bf16_d128",
    "flash_sm90a_bf16_d64",
    "flash_sm90a_bf16_d128",
    "flash_sm90a_f16_d128",
    "flash_simt_f32_d128",
    "swiglu_bf16",
    "swiglu_f32_bf16",
    "rope_bf16_i32_f32",
    "append_f32_bf16_i32",
    "rope_append_bf16_bf16_u32",
    "rope_append_f16_f16_u32",
    "rope_append_f32_f16_u32",
    "rope_append_f32_f32_u32",
    "decode_mma_bf16_bf16_dim128",
    "decode_simt_f32_f32_dim128",
    "sample_f32",
    "greedy_f32",
    "dequantize_q4_k_f16",
    "quant_gemv_simt_q4_0_f32_f32",
    "quant_gemv_simt_q4_0_q8_1_f32",
    "quant_gemv_mma_q4_0_f32_f32",
    "quant_gemv_mma_q4_k_f32_f32",
    "quant_gemv_mma_q8_0_q8_1_f32",
    "quant_gemv_int16_q4_k_f32_f32",
    "quant_gemv_int16_q8_0_f32_f32",
    "select_f32",
    "quant_gemm_q4_0_f32",
    "quant_gemm_f16_q4_k_bf16",
    "quant_gemm_f16_sm90a_q4_k_bf16",
    "grouped_f16_bf16_bf16",
    "grouped_swiglu_f16_q4_k_bf16",
    "quantize_wide_q8_0_f32",
    "gemm_mma_bf16_bf16_layout0_large1",
    "gemm_mma_bf16_bf16_layout2_large1",
    "gemv_bf16_bf16_vectors1",
];

/// Hot kernels that failed to compile with older compilers.
const OLD: &[&str] = &["gemv_bf16_bf16_vectors1", "flash_simt_f32_d128", "rms_norm_bf16_bf16_items8", "silu_bf16"];

/// Whether a program has this name, with any numbers.
fn is(program: &str, name: &str) -> bool {
    program.strip_prefix(name).is_some_and(|numbers| numbers.is_empty() || numbers.starts_with('_'))
}

/// Programs for tree masks, which only drafts of speculation have, are not.
fn is_hot(program: &str) -> bool {
    !program.ends_with("_tree1") && HOT.iter().any(|hot| is(program, hot))
}

/// Returns clang for AMD, because the installed hipRTC may be old.
fn compiler(target: &Target) -> CompilerChoice {
    if target.vendor() == Vendor::Amd { CompilerChoice::Clang } else { CompilerChoice::Nvrtc }
}

/// Serializes the tests: a compiler of another test would distort the measured compile times.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn hot_kernels_spill_nothing_and_others_little() {
    let _turn = turn();
    let mut random = Random::new(seed());
    // Cached code has no compile time.
    let jit = if full() { Jit::new(Cache::disabled()) } else { Jit::default() };
    let all = programs();
    // All hot kernels, a sample of the others.
    assert!(HOT.iter().all(|name| all.iter().any(|(known, _)| is(known, name))), "a hot program is gone");
    let chosen: Vec<_> = all.iter().filter(|(name, _)| full() || is_hot(name) || random.below(50) == 0).collect();
    // With the target features of the devices: the other suites have filled the cache for these targets.
    let mut wrong = Vec::new();
    for target in ["gfx90a:sramecc+:xnack-", "gfx942:sramecc+:xnack-", "sm_90"] {
        let target: Target = target.parse().unwrap();
        if !require(jit.toolchains().choose(&target, compiler(&target)).is_ok(), &format!("a compiler for {target}")) {
            continue;
        }
        let looks = in_parallel(&chosen, |part| look(&jit, &target, part));
        let kernels: usize = looks.iter().map(|look| look.kernels).sum();
        let (most, longest) = (looks.iter().map(|look| look.registers).max(), looks.iter().map(|look| look.longest.clone()).max());
        let (most, (longest, slowest)) = (most.unwrap_or(0), longest.unwrap_or_default());
        eprintln!("{target}: {kernels} kernels of {} programs, at most {most} registers, longest compile {longest:.1?}", chosen.len());
        wrong.extend(looks.into_iter().flat_map(|look| look.spilled));
        if longest > LONGEST {
            wrong.push(format!("{target}: {slowest} took {longest:?} to compile"));
        }
    }
    assert!(wrong.is_empty(), "spilled vector and scalar registers, and slow compiles: {wrong:#?}");
}

/// Calls `f` with parts of `items`, on one thread per core: compilers are processes.
fn in_parallel<T: Sync, R: Send>(items: &[T], f: impl Fn(&[T]) -> R + Sync) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        let running: Vec<_> = items.chunks(items.len().div_ceil(threads).max(1)).map(|part| scope.spawn(|| f(part))).collect();
        running.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

/// Returns the CPU time of this thread.
fn thread_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

/// What was seen of some programs.
#[derive(Default)]
struct Look {
    kernels: usize,
    registers: u32,
    longest: (Duration, String),
    spilled: Vec<String>,
}

fn look(jit: &Jit, target: &Target, programs: &[&(String, KernelSource)]) -> Look {
    let mut seen = Look::default();
    for (name, source) in programs {
        let target = (*target).for_source(source);
        let built = jit.build(source, &target, compiler(&target)).unwrap_or_else(|error| panic!("{name} for {target}: {error}"));
        let found = &built.compiled.code_object.kernels;
        assert!(!found.is_empty(), "{name} for {target}");
        for kernel in found {
            let (vector, scalar) = (kernel.vgpr_spills, kernel.sgpr_spills);
            let most = if is_hot(name) { (0, 0) } else { FEW };
            if vector > most.0 || scalar > most.1 {
                seen.spilled.push(format!("{target}: {name}: {vector} + {scalar}"));
            }
            seen.registers = seen.registers.max(kernel.vgprs);
        }
        seen.kernels += found.len();
        let mut took = built.took;
        for _ in 0..2 {
            // Compile again: other processes may have slowed the first compile.
            if took > LONGEST {
                let before = thread_time();
                took = took.min(Jit::new(Cache::disabled()).build(source, &target, compiler(&target)).unwrap().took);
                // NVRTC compiles in this thread.
                if target.vendor() == Vendor::Nvidia {
                    took = took.min(thread_time() - before);
                }
            }
        }
        seen.longest = seen.longest.max((took, name.clone()));
    }
    seen
}

/// Each CUDA file compiles by itself, given the include folder: macros that programs define have defaults.
#[test]
fn every_cuda_file_compiles_alone() {
    let _turn = turn();
    let jit = Jit::default();
    let folder = tempfile::tempdir().unwrap();
    let mut files = BTreeSet::new();
    for (_, source) in programs() {
        let path = source.name().strip_prefix("warpwave/").unwrap().to_owned();
        if files.insert(path.clone()) {
            let headers = source.includes().iter().map(|file| (file.path.to_str().unwrap(), file.text.as_str()));
            for (path, text) in headers.chain([(path.as_str(), source.text())]) {
                let path = folder.path().join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            }
        }
    }
    // Where the sources are available: no file is without programs.
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    if sources.is_dir() {
        let folders = std::fs::read_dir(&sources).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
        let found = folders.flat_map(|folder| std::fs::read_dir(folder).unwrap()).map(|entry| entry.unwrap().path());
        let found = found.filter(|path| path.extension().is_some_and(|extension| extension == "cu"));
        let found: BTreeSet<String> = found.map(|path| path.strip_prefix(&sources).unwrap().to_str().unwrap().to_owned()).collect();
        assert_eq!(found, files);
    }
    for target in ["gfx90a", "sm_90"] {
        let target: Target = target.parse().unwrap();
        if !require(jit.toolchains().choose(&target, compiler(&target)).is_ok(), &format!("a compiler for {target}")) {
            continue;
        }
        for file in &files {
            let source = KernelSource::from_file(folder.path().join(file)).unwrap().include_dir(folder.path()).unwrap();
            let target = target.for_source(&source);
            let built = jit.build(&source, &target, compiler(&target)).unwrap_or_else(|error| panic!("{file} for {target}: {error}"));
            assert!(!built.compiled.code_object.kernels.is_empty(), "{file} for {target}");
        }
    }
}

/// hipRTC, which a ROCm machine has without clang and which is often older, compiles the programs too.
#[test]
fn hiprtc_compiles_the_programs() {
    let _turn = turn();
    let mut random = Random::new(seed());
    let jit = Jit::default();
    let all = programs();
    let target: Target = "gfx90a:sramecc+:xnack-".parse().unwrap();
    if !require(jit.toolchains().choose(&target, CompilerChoice::HipRtc).is_ok(), "hipRTC") {
        return;
    }
    let some = if full() { 10 } else { 100 };
    let always = |name: &str| if full() { is_hot(name) } else { OLD.iter().any(|old| is(name, old)) };
    let chosen: Vec<_> = all.iter().filter(|(name, _)| always(name) || random.below(some) == 0).collect();
    assert!(OLD.iter().all(|name| chosen.iter().any(|(known, _)| is(known, name))));
    let wrong = in_parallel(&chosen, |part| {
        let failure = |(name, source): &&(String, KernelSource)| {
            jit.build(source, &target, CompilerChoice::HipRtc).err().map(|error| format!("{name}: {error}"))
        };
        part.iter().filter_map(failure).collect::<Vec<String>>()
    })
    .concat();
    eprintln!("{} programs", chosen.len());
    assert!(wrong.is_empty(), "{} of {}: {}", wrong.len(), chosen.len(), wrong.join("\n"));
}

/// GPUs that the suites do not run on: AMD with 32 lanes per wave, and matrix units of other generations.
#[test]
fn programs_compile_for_other_architectures() {
    let _turn = turn();
    let mut random = Random::new(seed());
    let jit = Jit::default();
    let all = programs();
    for target in ["gfx908", "gfx1030", "gfx1100", "gfx1201", "sm_75", "sm_80", "sm_89", "sm_120"] {
        let target: Target = target.parse().unwrap();
        if !require(jit.toolchains().choose(&target, compiler(&target)).is_ok(), &format!("a compiler for {target}")) {
            continue;
        }
        let chosen: Vec<_> = (0..if full() { 24 } else { 4 }).map(|_| &all[random.below(all.len())]).collect();
        let looks = in_parallel(&chosen, |part| look(&jit, &target, part));
        let kernels: usize = looks.iter().map(|look| look.kernels).sum();
        let longest = looks.iter().map(|look| look.longest.0).max().unwrap_or_default();
        let spilled: Vec<&String> = looks.iter().flat_map(|look| &look.spilled).collect();
        let more = if spilled.is_empty() { String::new() } else { format!(", spills beyond the limit: {spilled:?}") };
        eprintln!("{target}: {kernels} kernels of {} programs, longest compile {longest:.1?}{more}", chosen.len());
    }
}
