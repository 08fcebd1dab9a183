//! The kernel corpus: CUDA sources in `corpus/`, translated and compiled for each architecture, run on the virtual GPU, and compared with
//! references written in Rust.
//!
//! A kernel is a function in a `.cu` file and an entry in one of the modules below: name, file, and a function that creates inputs, launch
//! and expected outputs. Inputs are random; the seed is printed, and `WARPWAVE_SEED` repeats it. By default the seed selects one
//! architecture and optimization level for each source; `WARPWAVE_TEST_FULL=1` runs all.

mod corpus {
    pub mod atomics;
    pub mod block;
    pub mod calls;
    pub mod case;
    pub mod casts;
    pub mod convolution;
    pub mod data;
    pub mod elementwise;
    pub mod floats;
    pub mod integers;
    pub mod machine;
    pub mod math;
    pub mod memory;
    pub mod numeric;
    pub mod ordering;
    pub mod products;
    pub mod rng;
    pub mod rows;
    pub mod runner;
    pub mod scratch;
    pub mod shapes;
    pub mod small_floats;
    pub mod sorting;
    pub mod talk;
    pub mod wave;

    use case::Case;

    /// Returns every kernel with its reference.
    pub fn cases() -> Vec<Case> {
        let all = [
            floats::cases(),
            small_floats::cases(),
            integers::cases(),
            casts::cases(),
            wave::cases(),
            block::cases(),
            rows::cases(),
            products::cases(),
            sorting::cases(),
            convolution::cases(),
            atomics::cases(),
            scratch::cases(),
            calls::cases(),
            memory::cases(),
            shapes::cases(),
            ordering::cases(),
            numeric::cases(),
        ];
        all.into_iter().flatten().collect()
    }
}

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use corpus::case::{Case, Gpu};
use corpus::machine::{self, ARCHS, LEVELS, WAVE64};
use corpus::rng::Rng;
use corpus::runner::{self, Failure};
use corpus::talk;
use warpwave_gpu::{Device, Module};
use warpwave_jit::{CompilerChoice, Jit, Target};
use warpwave_test_support::{full_run, seed};
use warpwave_vgpu::exec::{SimdLevel, count_cpu_time};

/// Sources whose kernels have tests of their own.
const ELSEWHERE: &[&str] = &["print.cu"];

/// One source for one architecture at one optimization level.
struct Work<'a> {
    source: &'static str,
    cases: Vec<&'a Case>,
    arch: String,
    level: &'static str,
}

/// Returns the runs: all of them, or one for each source as the seed selects, and another for kernels that its architecture lacks.
fn plan<'a>(cases: &'a [Case], seed: u64) -> Vec<Work<'a>> {
    let mut sources: BTreeMap<&'static str, Vec<&Case>> = BTreeMap::new();
    for case in cases {
        sources.entry(case.source).or_default().push(case);
    }
    let mut plan = Vec::new();
    for (source, cases) in sources {
        let mut choices: Vec<(&str, &'static str)> =
            ARCHS.iter().flat_map(|arch| machine::levels(source, arch).into_iter().map(|level| (*arch, level))).collect();
        let mut rng = Rng::new(seed, &[source]);
        (1..choices.len()).for_each(|i| choices.swap(i, rng.below(i + 1)));
        let mut left: BTreeSet<&str> = cases.iter().map(|case| case.kernel.as_str()).collect();
        for (arch, level) in choices {
            let there: Vec<&Case> = cases.iter().copied().filter(|case| case.runs_on(arch)).collect();
            let new = there.iter().filter(|case| left.remove(case.kernel.as_str())).count();
            if new > 0 || full_run() && !there.is_empty() {
                plan.push(Work { source, cases: there, arch: arch.to_owned(), level });
            }
        }
    }
    plan
}

/// Processes the runs on all cores. Returns the failures.
fn in_parallel<'a>(work: &[Work<'a>], one: impl Fn(&Work<'a>) -> Vec<String> + Sync) -> Vec<String> {
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while let Some(work) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let wrong = one(work);
                    failures.lock().unwrap().extend(wrong);
                }
            });
        }
    });
    failures.into_inner().unwrap()
}

fn report(failures: Vec<String>, seed: u64) {
    assert!(failures.is_empty(), "{} failures with WARPWAVE_SEED={seed}:\n{}", failures.len(), failures.join("\n"));
}

fn build(jit: &Jit, work: &Work<'_>) -> Result<warpwave_jit::Built, String> {
    let target: Target = work.arch.parse().map_err(|error| format!("{error}"))?;
    let built = jit.build(&machine::source(work.source, work.level), &target, CompilerChoice::Clang);
    built.map_err(|error| format!("{} for {} {}: {error}", work.source, work.arch, work.level))
}

#[test]
fn every_kernel_has_exactly_one_reference() {
    let Some(jit) = machine::jit() else { return };
    let cases = corpus::cases();
    let names: BTreeSet<&str> = cases.iter().map(|case| case.kernel.as_str()).collect();
    assert_eq!(names.len(), cases.len(), "a kernel has two entries");
    assert!(names.len() >= 120, "only {} kernels", names.len());
    println!("{} kernels with references in {} sources", names.len(), cases.iter().map(|c| c.source).collect::<BTreeSet<_>>().len());
    let seed = seed();
    let failures = in_parallel(&plan(&cases, seed), |work| {
        let built = match build(&jit, work) {
            Ok(built) => built,
            Err(error) => return vec![error],
        };
        let compiled: BTreeSet<&str> = built.compiled.code_object.kernels.iter().map(|kernel| kernel.name.as_str()).collect();
        let listed: BTreeSet<&str> = work.cases.iter().map(|case| case.kernel.as_str()).collect();
        let differ = compiled.symmetric_difference(&listed);
        differ
            .map(|name| format!("{} for {} {}: {name} is only in the code or only in the table", work.source, work.arch, work.level))
            .collect()
    });
    report(failures, seed);
    let files = std::fs::read_dir(machine::folder()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let unused: Vec<String> = files
        .filter(|name| name.ends_with(".cu") && !ELSEWHERE.contains(&name.as_str()) && cases.iter().all(|case| case.source != name))
        .collect();
    assert!(unused.is_empty(), "no case uses {unused:?}");
}

/// A reference depends on its seed only, and its arguments are those of the kernel.
#[test]
fn references_are_reproducible_from_their_seed() {
    for case in corpus::cases() {
        for wave in [32, 64] {
            let gpu = Gpu { arch: "gfx90a".to_owned(), wave };
            let [one, other] = [0; 2].map(|_| (case.make)(&mut Rng::new(7, &[&case.kernel]), &gpu));
            assert_eq!(one.args.len(), other.args.len(), "{}", case.kernel);
            assert_eq!(one.launch, other.launch, "{}", case.kernel);
            for (one, other) in one.args.iter().zip(&other.args) {
                assert!(runner::same(one, other), "{}", case.kernel);
            }
        }
    }
}

#[test]
fn every_kernel_matches_its_reference() {
    let cases = corpus::cases();
    let seed = seed();
    let Some(jit) = machine::jit() else { return };
    let devices = machine::devices();
    let ran = AtomicUsize::new(0);
    let failures = in_parallel(&plan(&cases, seed), |work| {
        let device = &devices[work.arch.as_str()];
        let loaded = build(&jit, work).and_then(|built| {
            let module = Module::load(device, &built.compiled.binary).map_err(|error| error.to_string())?;
            Ok((module, device.stream().map_err(|error| error.to_string())?))
        });
        let (module, stream) = match loaded {
            Ok(loaded) => loaded,
            Err(error) => return vec![format!("{}: {error}", work.source)],
        };
        let mut failures = Vec::new();
        for case in &work.cases {
            ran.fetch_add(1, Ordering::Relaxed);
            let place = format!("{} ({}) on {} at {}", case.kernel, work.source, work.arch, work.level);
            let wave = if work.level == WAVE64 { 64 } else { device.info().wave_size as usize };
            match runner::check(case, &module, &stream, seed, wave) {
                Ok(()) => {}
                Err(Failure::Wrong(why)) => failures.push(format!("{place}: {why}")),
                Err(Failure::Timeout) => {
                    failures.push(format!("{place}: does not end"));
                    std::mem::forget((module, stream));
                    break;
                }
            }
        }
        failures
    });
    println!("{} runs of {} kernels", ran.into_inner(), cases.len());
    report(failures, seed);
}

/// A kernel's lane operations per second and the time of its first launches, interpreted and with native code.
struct Speeds {
    kernel: String,
    arch: &'static str,
    best: [f64; 2],
    first: [Duration; 2],
}

impl Speeds {
    /// Returns the time of the first launches relative to interpretation.
    fn start(&self) -> f64 {
        self.first[1].as_secs_f64() / self.first[0].as_secs_f64()
    }
}

/// Measures a kernel in fresh modules: the first ten launches, whose code is translated meanwhile, and then ten rounds of twenty.
fn speeds(case: &Case, arch: &'static str, binary: &[u8], device: &Device, seed: u64, repeats: usize) -> Speeds {
    let (stream, wave) = (device.stream().unwrap(), device.info().wave_size as usize);
    let mut speeds = Speeds { kernel: case.kernel.to_string(), arch, best: [0.0; 2], first: [Duration::MAX; 2] };
    for repeat in 0..2 * repeats {
        let native = repeat % 2;
        // SAFETY: no other thread reads the environment: the launches before have ended.
        unsafe { std::env::set_var("WARPWAVE_VGPU_NATIVE", ["0", "1"][native]) };
        let module = Module::load(device, binary).unwrap();
        let measured = |rounds| match runner::measure(case, &module, &stream, seed, wave, rounds) {
            Ok(speed) => speed,
            Err(Failure::Wrong(why)) => panic!("{} on {arch}: {why}", case.kernel),
            Err(Failure::Timeout) => panic!("{} on {arch} timed out", case.kernel),
        };
        speeds.first[native] = speeds.first[native].min(measured([1, 10]).first);
        if repeat / 2 == 0 {
            speeds.best[native] = measured([10, 20]).best;
        }
    }
    speeds
}

/// Prints the lane operations per second of each kernel, interpreted and with native code, the medians, and the kernels whose first ten
/// launches take longer with native code. Time is the CPU time of the thread that runs wavefronts, so that other processes matter little.
/// `WARPWAVE_BENCH_KERNELS` selects kernels by a part of their name:
/// `WARPWAVE_VGPU_THREADS=1 cargo test --release -p warpwave-vgpu --test corpus -- --ignored --nocapture`.
#[test]
#[ignore = "benchmark: needs a release build"]
fn median_speed() {
    let Some(jit) = machine::jit() else { return };
    count_cpu_time();
    let wanted = std::env::var("WARPWAVE_BENCH_KERNELS").unwrap_or_default();
    let (cases, devices, seed) = (corpus::cases(), machine::devices(), seed());
    let mut all: Vec<Speeds> = Vec::new();
    for arch in ["gfx942", "gfx90a", "gfx908", "gfx1100"] {
        let mut sources: BTreeMap<&'static str, Vec<&Case>> = BTreeMap::new();
        // Each kernel once, on the latest architecture with 64 lanes that has it; matrix products also on RDNA.
        let is_new = |case: &Case| all.iter().all(|speeds| *speeds.kernel != *case.kernel) || case.kernel.starts_with("wmma");
        for case in cases.iter().filter(|case| case.runs_on(arch) && is_new(case) && case.kernel.contains(&wanted)) {
            sources.entry(case.source).or_default().push(case);
        }
        for (source, cases) in sources {
            let work = Work { source, cases, arch: arch.to_owned(), level: LEVELS[0] };
            let binary = build(&jit, &work).unwrap().compiled.binary.clone();
            for case in &work.cases {
                let speeds_of = |repeats| speeds(case, arch, &binary, &devices[arch], seed, repeats);
                let mut measured = speeds_of(3);
                if measured.start() > 1.05 {
                    // The launches are short: another process may have run.
                    measured = speeds_of(30);
                }
                all.push(measured);
            }
        }
    }
    all.sort_by(|a, b| a.best[1].total_cmp(&b.best[1]));
    println!("G lane operations/s: interpreted, native, ratio; time of the first 10 launches relative to interpretation");
    for Speeds { kernel, arch, best, .. } in &all {
        println!("{:7.3} {:7.3} {:6.2} {kernel} ({arch})", best[0] / 1e9, best[1] / 1e9, best[1] / best[0]);
    }
    let slow: Vec<&Speeds> = all.iter().filter(|speeds| speeds.start() > 1.05).collect();
    for speeds in &slow {
        println!("first 10 launches: {:5.2} x {} ({})", speeds.start(), speeds.kernel, speeds.arch);
    }
    println!("{} of {} kernels take more than 5 % longer for their first 10 launches", slow.len(), all.len());
    let level = SimdLevel::detect();
    let median = |n: usize| {
        let mut values: Vec<f64> = all.iter().map(|speeds| speeds.best[n] / 1e9).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let threads = std::env::var("WARPWAVE_VGPU_THREADS").unwrap_or_else(|_| "all".to_owned());
    println!("corpus median: interpreted {:.2}, native {:.2} G/s ({}, threads: {threads})", median(0), median(1), level.name());
    let least = match level {
        SimdLevel::Avx512 => 0.5,
        SimdLevel::Avx2 => 0.3,
        SimdLevel::Portable => 0.0,
    };
    assert!(cfg!(debug_assertions) || median(1) >= least, "below the promised {least} G/s");
}

/// Not a test: the child process in which the tests below run their kernels.
#[test]
fn child_of_the_hostcall_tests() {
    talk::child();
}

#[test]
fn printf_output_arrives() {
    talk::printf_output_arrives();
}

#[test]
fn a_failed_assertion_is_a_launch_error() {
    talk::assertions_pass_or_trap();
}

#[test]
fn textures_are_compile_errors() {
    talk::textures_are_rejected();
}
