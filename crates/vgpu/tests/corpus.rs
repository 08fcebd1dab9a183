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

use corpus::case::{Case, Gpu};
use corpus::machine::{self, ARCHS, LEVELS, WAVE64};
use corpus::rng::Rng;
use corpus::runner::{self, Failure};
use corpus::talk;
use warpwave_gpu::Module;
use warpwave_jit::{CompilerChoice, Jit, Target};
use warpwave_test_support::{full_run, seed};
use warpwave_vgpu::exec::SimdLevel;

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

/// Prints the lane operations per second of each kernel over twenty launches, and the median. Needs an idle machine:
/// `WARPWAVE_VGPU_THREADS=1 cargo test --release -p warpwave-vgpu --test corpus -- --ignored --nocapture`.
#[test]
#[ignore = "benchmark: needs a release build and an idle machine"]
fn median_speed() {
    const LAUNCHES: usize = 20;
    let Some(jit) = machine::jit() else { return };
    let (cases, devices, seed) = (corpus::cases(), machine::devices(), seed());
    let mut speeds: Vec<(f64, &str)> = Vec::new();
    for arch in ["gfx942", "gfx90a", "gfx908"].iter() {
        let mut sources: BTreeMap<&'static str, Vec<&Case>> = BTreeMap::new();
        // Each kernel once: on the latest architecture with 64 lanes that has it.
        for case in cases.iter().filter(|case| case.runs_on(arch) && speeds.iter().all(|(_, kernel)| *kernel != case.kernel)) {
            sources.entry(case.source).or_default().push(case);
        }
        for (source, cases) in sources {
            let work = Work { source, cases, arch: (*arch).to_owned(), level: LEVELS[0] };
            let module = Module::load(&devices[arch], &build(&jit, &work).unwrap().compiled.binary).unwrap();
            let stream = devices[arch].stream().unwrap();
            for case in &work.cases {
                let wave = devices[arch].info().wave_size as usize;
                let best = match runner::measure(case, &module, &stream, seed, wave, LAUNCHES) {
                    Ok(best) => best,
                    Err(Failure::Wrong(why)) => panic!("{} on {arch}: {why}", case.kernel),
                    Err(Failure::Timeout) => panic!("{} on {arch} timed out", case.kernel),
                };
                speeds.push((best / 1e9, &case.kernel));
            }
        }
    }
    speeds.sort_by(|a, b| a.0.total_cmp(&b.0));
    for (speed, kernel) in &speeds {
        println!("{speed:7.3} G/s  {kernel}");
    }
    let (median, level) = (speeds[speeds.len() / 2].0, SimdLevel::detect());
    let threads = std::env::var("WARPWAVE_VGPU_THREADS").unwrap_or_else(|_| "all".to_owned());
    println!("corpus median {median:.2} G/s over {} kernels ({}, threads: {threads})", speeds.len(), level.name());
    let least = match level {
        SimdLevel::Avx512 => 0.5,
        SimdLevel::Avx2 => 0.3,
        SimdLevel::Portable => 0.0,
    };
    assert!(cfg!(debug_assertions) || median >= least, "below the promised {least} G/s");
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
