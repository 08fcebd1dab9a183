//! The kernel corpus: CUDA sources in `corpus/`, translated, compiled for each architecture of the virtual GPU, run there, and compared
//! with references written in Rust.
//!
//! A kernel is a function in a `.cu` file and an entry in one of the modules below: its name, its file, and a function that makes inputs,
//! launch and expected outputs. Each run has fresh inputs; the seed is printed, and `WARPWAVE_TEST_SEED` gives it again. By default each
//! source is compiled for one architecture at one level of optimisation, as the seed has it; `WARPWAVE_TEST_FULL=1` runs all.

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

    /// Every kernel with its reference.
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
use corpus::machine::{self, ARCHS, LEVELS};
use corpus::rng::{self, Rng};
use corpus::runner::{self, Failure};
use corpus::talk;
use warpwave_gpu::Module;
use warpwave_jit::{CompilerChoice, Jit, Target};
use warpwave_vgpu::exec::SimdLevel;

/// Sources whose kernels have tests of their own.
const ELSEWHERE: &[&str] = &["print.cu"];

/// One source for one architecture at one level.
struct Work<'a> {
    source: &'static str,
    cases: Vec<&'a Case>,
    arch: String,
    level: &'static str,
}

/// What a run does: all of it, or for each source one choice that the seed makes, and one more for what that architecture lacks.
fn plan<'a>(cases: &'a [Case], seed: u64) -> Vec<Work<'a>> {
    let mut sources: BTreeMap<&'static str, Vec<&Case>> = BTreeMap::new();
    for case in cases {
        sources.entry(case.source).or_default().push(case);
    }
    let mut plan = Vec::new();
    for (source, cases) in sources {
        let mut choices: Vec<(&str, &'static str)> = ARCHS.iter().flat_map(|arch| LEVELS.map(|level| (*arch, level))).collect();
        let mut rng = Rng::new(seed, &[source]);
        (1..choices.len()).for_each(|i| choices.swap(i, rng.below(i + 1)));
        let mut left: BTreeSet<&str> = cases.iter().map(|case| case.kernel.as_str()).collect();
        for (arch, level) in choices {
            let there: Vec<&Case> = cases.iter().copied().filter(|case| case.runs_on(arch)).collect();
            let new = there.iter().filter(|case| left.remove(case.kernel.as_str())).count();
            if new > 0 || machine::is_set("WARPWAVE_TEST_FULL") {
                plan.push(Work { source, cases: there, arch: arch.to_owned(), level });
            }
        }
    }
    plan
}

/// Does the work on as many threads as there are cores. Returns what went wrong.
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
    assert!(failures.is_empty(), "{} failures with WARPWAVE_TEST_SEED={seed}:\n{}", failures.len(), failures.join("\n"));
}

fn build(jit: &Jit, work: &Work<'_>) -> Result<warpwave_jit::Built, String> {
    let target: Target = work.arch.parse().map_err(|error| format!("{error}"))?;
    let built = jit.build(&machine::source(work.source, work.level), &target, CompilerChoice::Clang);
    built.map_err(|error| format!("{} for {} {}: {error}", work.source, work.arch, work.level))
}

#[test]
fn every_kernel_has_one_reference_and_every_reference_a_kernel() {
    let Some(jit) = machine::jit() else { return };
    let cases = corpus::cases();
    let names: BTreeSet<&str> = cases.iter().map(|case| case.kernel.as_str()).collect();
    assert_eq!(names.len(), cases.len(), "a kernel has two entries");
    assert!(names.len() >= 120, "only {} kernels", names.len());
    println!("{} kernels with references in {} sources", names.len(), cases.iter().map(|c| c.source).collect::<BTreeSet<_>>().len());
    let seed = rng::seed();
    println!("WARPWAVE_TEST_SEED={seed}");
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

/// A reference is a function of its seed, and its arguments are those of the kernel.
#[test]
fn references_are_made_again_from_their_seed() {
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
fn every_kernel_computes_what_its_reference_says() {
    let cases = corpus::cases();
    let seed = rng::seed();
    println!("WARPWAVE_TEST_SEED={seed}");
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
            match runner::check(case, &module, &stream, seed) {
                Ok(()) => {}
                Err(Failure::Wrong(why)) => failures.push(format!("{place}: {why}")),
                Err(Failure::Stuck) => {
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

/// Lane operations a second of each kernel over twenty launches in a row, and the median of all. Only when asked for, with nothing else
/// running: `WARPWAVE_VGPU_THREADS=1 cargo test --release -p warpwave-vgpu --test corpus -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement: it wants a release build and a quiet machine"]
fn the_median_kernel_is_fast_enough() {
    const LAUNCHES: usize = 20;
    let Some(jit) = machine::jit() else { return };
    let (cases, devices, seed) = (corpus::cases(), machine::devices(), rng::seed());
    let mut speeds: Vec<(f64, &str)> = Vec::new();
    for arch in ARCHS.iter().rev() {
        let mut sources: BTreeMap<&'static str, Vec<&Case>> = BTreeMap::new();
        // Each kernel once: on the latest architecture that has it.
        for case in cases.iter().filter(|case| case.runs_on(arch) && speeds.iter().all(|(_, kernel)| *kernel != case.kernel)) {
            sources.entry(case.source).or_default().push(case);
        }
        for (source, cases) in sources {
            let work = Work { source, cases, arch: (*arch).to_owned(), level: LEVELS[0] };
            let module = Module::load(&devices[arch], &build(&jit, &work).unwrap().compiled.binary).unwrap();
            let stream = devices[arch].stream().unwrap();
            for case in &work.cases {
                let best = match runner::measure(case, &module, &stream, seed, LAUNCHES) {
                    Ok(best) => best,
                    Err(Failure::Wrong(why)) => panic!("{} on {arch}: {why}", case.kernel),
                    Err(Failure::Stuck) => panic!("{} on {arch} does not end", case.kernel),
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
    assert!(cfg!(debug_assertions) || median >= least, "less than the {least} G/s that are promised");
}

/// Not a test of its own: the process in which those below run their kernels.
#[test]
fn child_of_the_tests_of_printing() {
    talk::child();
}

#[test]
fn what_kernels_print_arrives() {
    talk::printed_words_arrive();
}

#[test]
fn an_assertion_that_fails_is_an_error_of_the_launch() {
    talk::assertions_pass_or_stop_the_kernel();
}

#[test]
fn textures_are_refused_when_they_are_compiled() {
    talk::textures_are_refused_with_words();
}
