//! Machines without a compiler: models run from archives of the kernel library.
//!
//! A model is first run with an archive that lacks its kernels, which logs each one. All must be in the list that archives are made from.
//! Then it runs from an archive of these alone, with every compiler hidden. `WARPWAVE_TEST_FULL=1` compiles the whole library instead and
//! runs more models.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use warpwave_jit::{ArchiveBuilder, Jit, KernelSource, Target};
use warpwave_kernels::{add_programs, compile_archive, programs_for};
use warpwave_test_support::{compiles_for, full_run, workspace_root};

/// The virtual GPU and the architecture.
const ARCH: &str = "gfx90a";
const DEVICE: &str = "vgpu:gfx90a";

/// The real program, with archives and without GPUs.
fn program(line: &[&str], archives: &Path) -> Command {
    let beside = workspace_root().join("bin/warpwave");
    let path = if beside.exists() { beside } else { PathBuf::from(env!("CARGO_BIN_EXE_warpwave")) };
    let mut command = Command::new(path);
    command.args(line).env("WARPWAVE_ARCHIVES", archives).env_remove("WARPWAVE_DEVICE").env_remove("WARPWAVE_VGPU_DEVICES");
    command.env("WARPWAVE_CUDA_LIB", "/nonexistent/libcuda.so.1").env("WARPWAVE_HIP_LIB", "/nonexistent/libamdhip64.so");
    command
}

/// The same on a machine without a compiler and without a cache.
fn without_compiler(line: &[&str], archives: &Path) -> Command {
    let mut command = program(line, archives);
    for variable in ["WARPWAVE_CLANG", "WARPWAVE_HIPRTC_LIB", "WARPWAVE_NVRTC_LIB"] {
        command.env(variable, "/nonexistent/compiler");
    }
    command.env("WARPWAVE_CACHE", "off");
    command
}

fn succeeded(mut command: Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

fn oracle(family: &str) -> String {
    workspace_root().join("crates/llm/tests/oracles").join(family).display().to_string()
}

/// Command lines that run models and write what they compute to `out`, or print it.
fn workloads(out: &Path) -> Vec<Vec<String>> {
    let words = |line: &[&str]| line.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let generate = |family: &str, more: &[&str]| {
        let model = oracle(family);
        let line = ["generate", &model, "--device", DEVICE, "--ids", "5,9,40,7,3", "--max-tokens", "4", "--ignore-eos", "--json"];
        [words(&line), words(more)].concat()
    };
    let mut all = vec![generate("llama3", &["--temperature", "0.8", "--seed", "1"])];
    if full_run() {
        let others = ["deepseek_v3", "gemma3", "gpt_oss_mxfp4", "mixtral", "phimoe", "qwen3_moe", "starcoder2"];
        all.extend(others.map(|family| generate(family, &[])));
        for name in ["sd15", "sdxl", "flux-schnell"] {
            let model = workspace_root().join("crates/diffusion/tests/fixtures/models").join(name).display().to_string();
            let out = out.display().to_string();
            all.push(words(&["image", "--model", &model, "a cat", "--device", DEVICE, "--steps", "2", "--seed", "1", "--output", &out]));
        }
    }
    all
}

/// The name and the macros of a source, as the log has them.
fn described(source: &KernelSource) -> String {
    let macros = source.defines().iter().map(|(name, value)| format!(" {name}={value}"));
    std::iter::once(source.name().to_owned()).chain(macros).collect()
}

/// The kernels that a run did not find in its archives.
fn missed(log: &str) -> BTreeSet<String> {
    let lines = log.lines().filter(|line| line.contains("not in the archives"));
    let kernel = |line: &str| Some(line.split_once("kernel=\"")?.1.split_once('"')?.0.to_owned());
    lines.map(|line| kernel(line).unwrap_or_else(|| panic!("{line}"))).collect()
}

#[test]
fn models_run_from_archives_without_a_compiler() {
    if !compiles_for(ARCH) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let target: Target = ARCH.parse().unwrap();
    let file = folder.path().join("kernels.wwa");

    // An archive for the architecture that has none of the kernels.
    let mut other = ArchiveBuilder::new();
    other.add("other", &KernelSource::from_text("other.cu", "").unwrap(), target, b"code");
    std::fs::write(&file, other.finish()).unwrap();
    let mut kernels = BTreeSet::new();
    let mut answers = Vec::new();
    let out = folder.path().join("out.png");
    for line in &workloads(&out) {
        let line: Vec<&str> = line.iter().map(String::as_str).collect();
        let mut command = program(&line, folder.path());
        command.env("WARPWAVE_LOG", "warpwave_jit=debug");
        let output = succeeded(command);
        let requested = missed(&String::from_utf8_lossy(&output.stderr));
        assert!(requested.len() > 5, "{line:?}: {requested:?}");
        kernels.extend(requested);
        answers.push(answer(&output, &out));
        let refused = without_compiler(&line, folder.path()).output().unwrap();
        let message = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(1), "{message}");
        for word in ["kernel archives for gfx90a", "do not contain", "warpwave/", "apt install clang"] {
            assert!(message.contains(word), "{message}");
        }
    }

    let all: HashMap<String, (String, KernelSource)> =
        programs_for(target).into_iter().map(|(label, source)| (described(&source), (label, source))).collect();
    let requested = kernels.iter().map(|kernel| all.get(kernel).cloned().unwrap_or_else(|| panic!("not in the list: {kernel}")));
    let requested: Vec<(String, KernelSource)> = requested.collect();

    let (mut archive, jit) = (ArchiveBuilder::new(), Jit::default());
    if full_run() {
        compile_archive(&mut archive, &jit, target, &|_| ()).unwrap();
    } else {
        add_programs(&mut archive, &jit, target, &requested, &|_| ()).unwrap();
    }
    let programs = archive.len();
    std::fs::write(&file, archive.finish()).unwrap();
    for (line, expected) in workloads(&out).iter().zip(answers) {
        let line: Vec<&str> = line.iter().map(String::as_str).collect();
        assert_eq!(answer(&succeeded(without_compiler(&line, folder.path())), &out), expected, "{line:?}");
    }

    let path = file.display().to_string();
    let shown: Value = serde_json::from_slice(&succeeded(program(&["inspect", &path, "--json"], folder.path())).stdout).unwrap();
    assert_eq!(shown["targets"], serde_json::json!([{ "target": ARCH, "programs": programs }]));
    let doctor = |line: &[&str]| {
        let mut command = without_compiler(line, folder.path());
        // Installed or not, hipRTC is not needed.
        command.env("WARPWAVE_VGPU_DEVICES", ARCH).env_remove("WARPWAVE_HIPRTC_LIB");
        succeeded(command)
    };
    let report: Value = serde_json::from_slice(&doctor(&["doctor", "--json"]).stdout).unwrap();
    assert_eq!(report["archives"][0]["targets"][0]["programs"], programs);
    assert_eq!(report["compilers"][1]["name"], "hipRTC (AMD)");
    assert_eq!(report["compilers"][1]["ok"], true, "{report}");
    let report = String::from_utf8(doctor(&["doctor"]).stdout).unwrap();
    assert!(report.contains(&format!("{path}: gfx90a ({programs} programs)")), "{report}");
}

/// The tokens that a run printed, or the image that it wrote.
fn answer(output: &Output, file: &Path) -> (Value, Vec<u8>) {
    match std::fs::read(file) {
        Ok(image) => {
            std::fs::remove_file(file).unwrap();
            (Value::Null, image)
        }
        Err(_) => {
            let text = String::from_utf8_lossy(&output.stdout);
            let printed: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
            assert_eq!(printed["ids"].as_array().map(Vec::len), Some(4), "{printed}");
            (printed["logprobs"].clone(), Vec::new())
        }
    }
}

#[test]
fn without_a_compiler_or_archives_the_error_says_what_to_install() {
    let folder = tempfile::tempdir().unwrap();
    let model = oracle("llama3");
    let line = ["generate", &model, "--device", DEVICE, "--ids", "5,9", "--max-tokens", "1"];
    let output = without_compiler(&line, folder.path()).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("apt install clang") && !message.contains("archives for"), "{message}");
}

#[test]
fn archives_that_cannot_be_compiled_name_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out").display().to_string();
    let line = ["compile", "--kernel-library", "--target", ARCH, "--output", &out];
    let output = without_compiler(&line, folder.path()).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("cannot compile") && message.contains("for gfx90a") && message.contains("apt install"), "{message}");
    assert!(!folder.path().join("out/kernels-gfx90a.wwa").exists());
    for (line, code, word) in [
        (vec!["compile", "--kernel-library", "--target", ARCH], 2, "--output"),
        (vec!["compile", "--kernel-library", "--target", "gfx803", "--output", &out], 1, "gfx803"),
        (vec!["inspect", "/nonexistent/kernels.wwa"], 1, "/nonexistent/kernels.wwa"),
    ] {
        let output = program(&line, folder.path()).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{line:?}: {message}");
        assert!(message.contains(word), "{line:?}: {message}");
    }
}
