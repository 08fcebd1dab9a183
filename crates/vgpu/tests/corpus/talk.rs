//! Hostcalls of the corpus: printf, failed assertions, and rejected translations. Each kernel runs in a child process, whose output is
//! read and whose device may fail.

use std::process::Command;

use warpwave_gpu::{Launch, Module};
use warpwave_jit::{CompilerChoice, KernelSource, Target};

use super::machine::{self, ARCHS, LEVELS};
use super::rng::Rng;

const SOURCE: &str = "print.cu";
const CHILD: &str = "WARPWAVE_CORPUS_CHILD";

/// Runs what the parent requested: a kernel of `print.cu`, an architecture and a level. The last line reports how the launch ended.
pub fn child() {
    let Ok(task) = std::env::var(CHILD) else { return };
    // The test harness began a line with the test's name.
    println!();
    let Some(jit) = machine::jit() else { return };
    let [kernel, arch, level] = <[&str; 3]>::try_from(task.split(' ').collect::<Vec<_>>()).unwrap();
    let target: Target = arch.parse().unwrap();
    let built = jit.build(&machine::source(SOURCE, level), &target, CompilerChoice::Clang).unwrap();
    let device = &machine::devices()[arch];
    let stream = device.stream().unwrap();
    let function = Module::load(device, &built.compiled.binary).unwrap().kernel(kernel).unwrap();
    let x = stream.upload(&(0..64).collect::<Vec<i32>>()).unwrap();
    let mut y = stream.alloc_zeroed::<i32>(64).unwrap();
    let (one, launch) = (Launch::new([2, 1, 1], [64, 1, 1]), Launch::new([1, 1, 1], [64, 1, 1]));
    // SAFETY: the types are the kernels', and they stay within 64 elements.
    let launched = unsafe {
        match kernel {
            "print_words" => function.launch(&stream, one, (-42i32,)),
            "print_lanes" => function.launch(&stream, launch, (&x,)),
            _ => function.launch(&stream, launch, (&x, &mut y)),
        }
    };
    let ended = launched.and_then(|()| stream.synchronize()).and_then(|()| stream.download(&y));
    match ended {
        Ok(y) => println!("\nended: {}", y.iter().sum::<i32>()),
        Err(error) => println!("\nended: {error}"),
    }
    // A device that trapped need not be cleaned up.
    std::process::exit(0);
}

/// Returns the output lines of a kernel's process; `None` without a compiler.
fn ask(kernel: &str, arch: &str, level: &str) -> Option<Vec<String>> {
    machine::jit()?;
    let this = std::env::current_exe().unwrap();
    let arguments = ["--exact", "child_of_the_hostcall_tests", "--nocapture", "--test-threads=1"];
    let output = Command::new(this).args(arguments).env(CHILD, format!("{kernel} {arch} {level}")).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("ended: "), "{kernel} on {arch} at {level}:\n{text}\n{}", String::from_utf8_lossy(&output.stderr));
    Some(text.lines().map(str::to_owned).collect())
}

/// One architecture and level that the seed selects, or all.
fn places() -> Vec<(&'static str, &'static str)> {
    let all: Vec<_> = ARCHS.iter().flat_map(|arch| LEVELS.map(|level| (*arch, level))).collect();
    if warpwave_test_support::full_run() { all } else { vec![all[Rng::new(warpwave_test_support::seed(), &["print"]).below(all.len())]] }
}

pub fn printf_output_arrives() {
    for (arch, level) in places() {
        let Some(lines) = ask("print_words", arch, level) else { return };
        let said: Vec<_> = lines.iter().filter(|line| line.contains("corpus:")).collect();
        assert_eq!(said, ["corpus: -42 7 1099511627776  2.50 words x%"], "{arch} {level}: {lines:?}");
        let Some(lines) = ask("print_lanes", arch, level) else { return };
        let mut lanes: Vec<&str> = lines.iter().map(String::as_str).filter(|line| line.starts_with("lane ")).collect();
        let mut expected: Vec<String> = (0..64).filter(|lane| lane % 2 == 1).map(|lane| format!("lane {lane} has {lane}")).collect();
        lanes.sort_unstable();
        expected.sort_unstable();
        assert_eq!(lanes, expected, "{arch} {level}");
    }
}

pub fn assertions_pass_or_trap() {
    for (arch, level) in places() {
        let end = |kernel: &str| Some(ask(kernel, arch, level)?.into_iter().find(|line| line.starts_with("ended: ")).unwrap_or_default());
        let Some(passed) = end("assert_passes") else { return };
        assert_eq!(passed, format!("ended: {}", (1..=64).sum::<i32>()), "{arch} {level}");
        let failed = end("assert_fails").unwrap_or_default();
        // An error message, not a sum.
        assert!(failed.trim_start_matches("ended: ").parse::<i64>().is_err(), "{arch} {level}: a failed assertion went by: {failed}");
    }
}

pub fn textures_are_rejected() {
    let Some(jit) = machine::jit() else { return };
    let text = [
        "extern \"C\" __global__ void sample(cudaTextureObject_t image, float *out) {",
        "    out[threadIdx.x] = tex2D<float>(image, 0.5f, threadIdx.x);",
        "}",
    ];
    let source = KernelSource::from_text("sample.cu", text.join("\n")).unwrap();
    for arch in ARCHS {
        let error = jit.build(&source, &arch.parse().unwrap(), CompilerChoice::Clang).expect_err("textures are not supported").to_string();
        assert!(error.contains("sample.cu") && (error.contains("tex2D") || error.contains("exture")), "{arch}: {error}");
    }
}
