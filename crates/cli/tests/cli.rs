//! End-to-end tests of the command: results on fake devices, messages and exit codes for invalid input.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use serde_json::Value;
use warpwave_cli::array::Array;
use warpwave_cli::npy;
use warpwave_gpu::fake::{Fake, Fakes};
use warpwave_kernels::DType;
use warpwave_test_support::{require, workspace_root};

/// Exit code and output of a command line.
struct Answer {
    code: u8,
    out: String,
    err: String,
}

fn kernel(name: &str) -> String {
    workspace_root().join("examples/kernels").join(name).display().to_string()
}

/// Runs a command line in this process, on the devices of `fakes`.
fn on(fakes: &Fakes, line: &[&str]) -> Answer {
    static CACHE: OnceLock<tempfile::TempDir> = OnceLock::new();
    let cache = CACHE.get_or_init(|| tempfile::tempdir().unwrap());
    // SAFETY: installing fakes takes a lock, so tests of this binary that get here run one at a time.
    unsafe {
        std::env::set_var("WARPWAVE_CACHE_DIR", cache.path());
        std::env::remove_var("WARPWAVE_DEVICE");
    }
    let args = std::iter::once("warpwave").chain(line.iter().copied()).map(OsString::from);
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = warpwave_cli::main(args, || fakes.devices(), &mut out, &mut err);
    Answer { code, out: String::from_utf8(out).unwrap(), err: String::from_utf8(err).unwrap() }
}

/// Runs the real program, with the drivers of this machine hidden.
fn program(line: &[&str]) -> Output {
    program_with(line, "WARPWAVE_TEST_UNUSED", "")
}

fn program_with(line: &[&str], variable: &str, value: &str) -> Output {
    let beside = workspace_root().join("bin/warpwave");
    let path = if beside.exists() { beside } else { PathBuf::from(env!("CARGO_BIN_EXE_warpwave")) };
    let mut command = Command::new(path);
    command.args(line).env("WARPWAVE_CUDA_LIB", "/nonexistent/libcuda.so.1").env("WARPWAVE_HIP_LIB", "/nonexistent/libamdhip64.so");
    command.env_remove("WARPWAVE_DEVICE").env_remove("WARPWAVE_VGPU_DEVICES").env(variable, value).output().unwrap()
}

fn amd() -> Fakes {
    let fakes = Fakes::install([Fake::amd().devices(2)]);
    fakes.kernel("vector_add", &[8, 8, 8, 4], |call| {
        let n = call.value::<i32>(3) as usize;
        // SAFETY: the tests give buffers of n elements.
        let (a, b, c) = unsafe { (call.memory::<f32>(0, n), call.memory::<f32>(1, n), call.memory::<f32>(2, n)) };
        c.iter_mut().zip(a.iter().zip(&*b)).for_each(|(c, (a, b))| *c = a + b);
    });
    fakes
}

const ADD: &[&str] = &["--kernel", "vector_add", "--grid", "4", "--block", "256"];
const ADD_ARGS: &[&str] = &["--arg", "f32[1000]=iota", "--arg", "f32[1000]=ones", "--arg", "f32[1000]=zeros", "--arg", "i32:1000"];

/// Returns whether a compiler for AMD GPUs is available; tests without it use the embedded kernel.
fn have_clang() -> bool {
    let fakes = amd();
    // An old hipRTC supports only the first of these.
    let answer = on(&fakes, &["compile", &kernel("vector_add.cu"), "--target", "gfx90a,gfx1100,gfx942"]);
    if answer.code != 0 {
        eprintln!("{}", answer.err);
    }
    require(answer.code == 0, "a compiler for AMD GPUs")
}

#[test]
fn devices_without_drivers_exits_with_0() {
    let output = program(&["devices", "--json"]);
    assert_eq!(output.status.code(), Some(0));
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["devices"], serde_json::json!([]));
    for backend in value["backends"].as_array().unwrap() {
        assert_eq!(backend["state"], "absent");
        assert!(backend["tried"][0].as_str().unwrap().contains("/nonexistent/lib"), "{backend}");
        assert!(backend["reason"].as_str().unwrap().contains("WARPWAVE_"), "{backend}");
    }
    let output = program(&["devices"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&output.stdout).contains("No GPU found"));
}

#[test]
fn doctor_suggests_fixes() {
    // On a machine with a card this hides its driver, which is then an error.
    let output = program(&["doctor"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let hardware = Path::new("/dev/nvidia0").exists() || Path::new("/dev/kfd").exists() || Path::new("/dev/dxg").exists();
    assert_eq!(output.status.code(), Some(i32::from(hardware)), "{text}");
    assert!(text.contains("fix:") && text.contains("cuda") && text.contains("rocm") && text.contains("clang"), "{text}");
    let json: Value = serde_json::from_slice(&program(&["doctor", "--json"]).stdout).unwrap();
    let names: Vec<_> = json["backends"].as_array().unwrap().iter().map(|backend| backend["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["cuda", "rocm", "vgpu"]);
}

#[test]
fn virtual_devices_are_listed_separately_and_used_with_a_notice() {
    let text = String::from_utf8(program(&["devices"]).stdout).unwrap();
    assert!(text.contains("Virtual GPUs") && text.contains("vgpu:gfx90a") && text.contains("MI210"), "{text}");
    let value: Value = serde_json::from_slice(&program(&["devices", "--json"]).stdout).unwrap();
    assert_eq!(value["devices"], serde_json::json!([]));
    assert_eq!(value["virtual_devices"][0]["name"], "vgpu:gfx90a");
    assert_eq!(value["virtual_devices"][0]["arch"], "gfx90a:sramecc+:xnack-");
    // Without a GPU, `auto` is the virtual one, with a notice.
    let output = program(&[&["run"], ADD, ADD_ARGS, &["--print", "2"]].concat());
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{err}");
    assert!(err.contains("no GPU found; using the virtual GPU vgpu:gfx90a"), "{err}");
    assert!(out.contains("vector_add on vgpu:gfx90a") && out.contains("2: f32[1000] = 1.0, 2.0"), "{out}");
    if have_clang() {
        let output = program(&["compile", &kernel("vector_add.cu"), "--device", "vgpu:gfx942"]);
        assert!(String::from_utf8_lossy(&output.stdout).contains("gfx942:sramecc+:xnack-: "), "{output:?}");
    }
    let output = program(&["compile", &kernel("vector_add.cu"), "--device", "vgpu:gfx1"]);
    assert!(output.status.code() == Some(2) && String::from_utf8_lossy(&output.stderr).contains("vgpu:gfx1"), "{output:?}");
    // Invalid settings are reported; without virtual devices `run` fails.
    let output = program_with(&["devices"], "WARPWAVE_VGPU_DEVICES", "gfx90a,gfx1");
    assert!(String::from_utf8_lossy(&output.stdout).contains("gfx1"), "{output:?}");
    let output = program_with(&[&["run"], ADD, ADD_ARGS].concat(), "WARPWAVE_VGPU_DEVICES", "none");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no GPU found:"), "{output:?}");
}

#[test]
fn devices_lists_the_available_devices() {
    let fakes = Fakes::install([Fake::nvidia(), Fake::amd().devices(2)]);
    let answer = on(&fakes, &["devices"]);
    assert_eq!(answer.code, 0);
    for word in ["cuda:0", "rocm:0", "rocm:1", "gfx90a:sramecc+:xnack-", "wave size 64", "CDNA2 (tier 1)", "Fake H100"] {
        assert!(answer.out.contains(word), "{word} in {}", answer.out);
    }
    let value: Value = serde_json::from_str(&on(&fakes, &["devices", "--json"]).out).unwrap();
    assert_eq!(value["devices"][2]["name"], "rocm:1");
    assert_eq!(value["devices"][1]["wave_size"], 64);
    assert_eq!(value["backends"][1]["version"], "6.2.41133");
}

#[test]
fn run_prints_saves_and_reports_results_as_json() {
    if !have_clang() {
        return;
    }
    let fakes = amd();
    let folder = tempfile::tempdir().unwrap();
    let saved = folder.path().join("sum.npy");
    let save = format!("2={}", saved.display());
    let file = kernel("vector_add.cu");
    let line = [&["run", &file], ADD, ADD_ARGS, &["--print", "4", "--time", "--save", &save]].concat();
    let answer = on(&fakes, &line);
    assert_eq!(answer.code, 0, "{}", answer.err);
    assert!(answer.out.contains("vector_add on rocm:0") && answer.out.contains("2: f32[1000] = 1.0, 2.0, 3.0, 4.0"), "{}", answer.out);
    assert!(answer.out.contains("median of 20 launches"), "{}", answer.out);
    let sum = npy::read_file(&saved).unwrap();
    assert_eq!((sum.dtype, sum.shape.as_slice()), (DType::F32, &[1000usize][..]));
    assert_eq!(f32::from_le_bytes(sum.bytes[3996..].try_into().unwrap()), 1000.0);
    // The saved file is an input too.
    let again = format!("f32[]=@{}", saved.display());
    let line = [&["run", &file], ADD, &["--arg", &again, "--arg", &again, "--arg", "f32[1000]", "--arg", "i32:1000", "--json"]].concat();
    let value: Value = serde_json::from_str(&on(&fakes, &line).out).unwrap();
    assert_eq!(value["buffers"][2]["head"][1], "4.0");
    assert_eq!(value["device"], "rocm:0");
}

#[test]
fn run_takes_compiled_code_and_the_embedded_kernel() {
    let fakes = amd();
    let line = [&["run"], ADD, ADD_ARGS, &["--print", "2"]].concat();
    let answer = on(&fakes, &line);
    assert_eq!(answer.code, 0, "{}", answer.err);
    assert!(answer.out.contains("2: f32[1000] = 1.0, 2.0"), "{}", answer.out);
    let bundle = kernel("vector_add.wwb");
    let line = [&["run", &bundle, "--device", "rocm:1"], ADD, ADD_ARGS].concat();
    assert_eq!(on(&fakes, &line).code, 0);
}

#[test]
fn compare_runs_on_two_devices_and_reports_differences() {
    let fakes = amd();
    let line = [&["run", "--device", "rocm:0", "--compare", "rocm:1", "--tol", "1e-6"], ADD, ADD_ARGS].concat();
    let answer = on(&fakes, &line);
    assert_eq!(answer.code, 0, "{}", answer.err);
    assert!(answer.out.contains("rocm:0 vs rocm:1"), "{}", answer.out);
    // A kernel that counts its launches differs between the two.
    let count = std::sync::atomic::AtomicU32::new(0);
    fakes.kernel("vector_add", &[8, 8, 8, 4], move |call| {
        // SAFETY: the buffer has 1000 elements.
        let out = unsafe { call.memory::<f32>(2, 1000) };
        out[7] = count.fetch_add(1, std::sync::atomic::Ordering::SeqCst) as f32;
    });
    let answer = on(&fakes, &line);
    assert_eq!(answer.code, 1);
    assert!(answer.err.contains("differ") && answer.err.contains('7'), "{}", answer.err);
}

#[test]
fn invalid_input_is_reported_with_the_right_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let whole = path("whole.npy");
    npy::write_file(&whole, &Array::new(DType::F64, vec![4], vec![0; 32]).unwrap()).unwrap();
    let bytes = std::fs::read(&whole).unwrap();
    std::fs::write(path("cut.npy"), &bytes[..bytes.len() - 5]).unwrap();
    std::fs::write(path("bad.cu"), "\n\n__global__ void k( {\n").unwrap();
    std::fs::write(path("damaged.wwb"), "WWBNDL01 nonsense").unwrap();
    std::fs::write(path("damaged.hsaco"), "\x7fELF nonsense").unwrap();
    let (cut, wrong, bad) = (format!("f64[4]=@{}", path("cut.npy")), format!("f32[4]=@{whole}"), path("bad.cu"));
    let (missing, no_file) = (path("missing.cu"), format!("f32[4]=@{}", path("none.npy")));
    let (bundle, hsaco) = (path("damaged.wwb"), path("damaged.hsaco"));
    let add = ["--kernel", "vector_add", "--grid", "1", "--block", "64"];
    let clang = have_clang();
    let source = kernel("vector_add.cu");
    let fakes = amd();
    let mut cases: Vec<(Vec<&str>, u8, Vec<&str>)> = vec![
        (vec!["run", &missing, "--kernel", "k", "--grid", "1", "--block", "1"], 1, vec!["missing.cu"]),
        (vec!["run", &bundle, "--kernel", "k", "--grid", "1", "--block", "1"], 1, vec!["bundle"]),
        (vec!["run", &hsaco, "--kernel", "k", "--grid", "1", "--block", "1"], 1, vec!["rocm:0"]),
        ([&["run", "--device", "rocm:9"], &add[..]].concat(), 2, vec!["rocm:9", "rocm:0, rocm:1"]),
        ([&["run", "--device", "cpu"], &add[..]].concat(), 2, vec!["cpu", "rocm:0"]),
        ([&["run", "--arg", "f32[4"], &add[..]].concat(), 2, vec!["^"]),
        ([&["run", "--arg", "f33:1"], &add[..]].concat(), 2, vec!["f33", "bf16"]),
        ([&["run", "--arg", "u8:300"], &add[..]].concat(), 2, vec!["300"]),
        ([&["run", "--arg", &cut], &add[..]].concat(), 1, vec!["cut.npy"]),
        ([&["run", "--arg", &wrong], &add[..]].concat(), 1, vec!["f64", "f32"]),
        ([&["run", "--arg", &no_file], &add[..]].concat(), 1, vec!["none.npy"]),
        ([&["run", "--save", "1=x.npy", "--arg", "f32:1"], &add[..]].concat(), 2, vec!["--save 1"]),
        ([&["run", "--arg", "f32[4]"], &add[..]].concat(), 1, vec!["expected 4 arguments", "got 1"]),
        (
            [&["run", "--arg", "f32[4]", "--arg", "f32[4]", "--arg", "f32[4]", "--arg", "f64:4"], &add[..]].concat(),
            1,
            vec!["argument 3", "expected 4 bytes"],
        ),
        (
            [&["run", "--arg", "u64:4", "--arg", "f32[4]", "--arg", "f32[4]", "--arg", "i32:4"], &add[..]].concat(),
            2,
            vec!["argument 0", "pointer"],
        ),
        (
            [&["run", "--arg", "f32[4]", "--arg", "f32[4]", "--arg", "f32[4]", "--arg", "i32[4]"], &add[..]].concat(),
            2,
            vec!["argument 3", "value"],
        ),
        (vec!["run", "--kernel", "vector_add", "--grid", "0", "--block", "1"], 2, vec!["at least 1"]),
        (vec!["run", "--kernel", "vector_add", "--grid", "1,2,3,4", "--block", "1"], 2, vec!["X,Y,Z"]),
        (vec!["run", "--kernel", "none_such", "--grid", "1", "--block", "1"], 1, vec!["none_such", "vector_add"]),
        (vec!["compile", &source, "--target", "gfx"], 2, vec!["gfx90a"]),
        (vec!["compile", &source, "--target", "sm_90", "-D", "1x"], 2, vec!["macro"]),
        (vec!["compile", &missing, "--target", "gfx90a"], 1, vec!["missing.cu"]),
        (vec!["inspect", &hsaco], 1, vec!["damaged.hsaco"]),
        (vec!["nonsense"], 2, vec!["nonsense"]),
        (vec!["bench", "launch", "--device", "vgpu:gfx90a"], 2, vec!["vgpu:gfx90a"]),
    ];
    let long_block = [&["run", "--kernel", "vector_add", "--grid", "1", "--block", "2048"], ADD_ARGS].concat();
    cases.push((long_block, 1, vec!["2048", "1024"]));
    let wide_grid = [&["run", "--kernel", "vector_add", "--grid", "4294967295", "--block", "64"], ADD_ARGS].concat();
    cases.push((wide_grid, 1, vec!["4294967295"]));
    if clang {
        cases.push((vec!["compile", &bad, "--target", "gfx90a"], 1, vec!["bad.cu:3:"]));
        cases.push((vec!["run", &bad, "--kernel", "k", "--grid", "1", "--block", "1"], 1, vec!["bad.cu:3:"]));
        cases.push((vec!["run", &source, "--kernel", "vector_sub", "--grid", "1", "--block", "1"], 1, vec!["vector_sub", "vector_add"]));
        cases.push((vec!["compile", &source, "--target", "gfx90a,gfx9ff"], 1, vec!["gfx9ff"]));
    }
    for (line, code, words) in cases {
        let answer = on(&fakes, &line);
        assert_eq!(answer.code, code, "{line:?}: {}{}", answer.out, answer.err);
        for word in words {
            assert!(answer.err.contains(word), "{line:?} should name {word}: {}", answer.err);
        }
        assert!(!answer.err.contains("panicked"), "{line:?}: {}", answer.err);
    }
}

#[test]
fn show_hip_prints_the_translation_and_its_diagnostics() {
    if !have_clang() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("k.cu").display().to_string();
    let text = "#if __CUDA_ARCH__ >= 800\nextern \"C\" __global__ void a(int *x) { *x = 1; }\n#endif\n\
        #ifndef __HIP_PLATFORM_AMD__\nextern \"C\" __global__ void lost() {}\n#endif\n";
    std::fs::write(&file, text).unwrap();
    let fakes = amd();
    let answer = on(&fakes, &["compile", &file, "--target", "gfx90a", "--show-hip"]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    assert!(answer.out.contains("#if WARPWAVE_CUDA_ARCH >= 800\n"), "{}", answer.out);
    assert!(answer.err.contains("k.cu:5:28: WW0310 warning: kernel `lost` is missing"), "{}", answer.err);
    let answer = on(&fakes, &["compile", &file, "--target", "gfx90a", "--show-hip", "--json"]);
    let value: Value = serde_json::from_str(&answer.out).unwrap();
    assert_eq!(value["targets"][0]["notes"][0]["code"], "WW0310");
    assert!(value["targets"][0]["hip"][0]["text"].as_str().unwrap().contains("WARPWAVE_CUDA_ARCH"));
}

#[test]
fn compile_writes_one_file_per_target_and_hits_the_cache_next_time() {
    if !have_clang() {
        return;
    }
    let fakes = amd();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("new/folder").display().to_string();
    let bundle = folder.path().join("k.wwb").display().to_string();
    let file = kernel("saxpy.cu");
    let line = ["compile", &file, "--target", "gfx90a,gfx1100,gfx942:sramecc+:xnack-", "-o", &out, "--bundle", &bundle, "--json"];
    let first: Value = serde_json::from_str(&on(&fakes, &line).out).unwrap();
    let second: Value = serde_json::from_str(&on(&fakes, &line).out).unwrap();
    for (value, cached) in [(&first, false), (&second, true)] {
        for target in value["targets"].as_array().unwrap() {
            assert_eq!((target["ok"].as_bool(), target["cached"].as_bool()), (Some(true), Some(cached)));
            assert!(target["kernels"][0]["registers"].as_u64().unwrap() > 0);
        }
    }
    let mut names: Vec<String> = std::fs::read_dir(&out).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["saxpy.gfx1100.hsaco", "saxpy.gfx90a.hsaco", "saxpy.gfx942-sramecc+-xnack-.hsaco"]);
    let shown = on(&fakes, &["inspect", &bundle]);
    assert!(shown.out.contains("gfx1100") && shown.out.contains("saxpy(4 B, pointer, pointer, 4 B)"), "{}", shown.out);
}

#[test]
fn the_cache_can_be_inspected_verified_and_cleared() {
    let fakes = amd();
    let path = on(&fakes, &["cache", "path"]).out;
    assert!(Path::new(path.trim()).is_absolute(), "{path}");
    if have_clang_inside(&fakes) {
        let stats: Value = serde_json::from_str(&on(&fakes, &["cache", "stats", "--json", "--list"]).out).unwrap();
        assert!(stats["entries"].as_u64().unwrap() >= 1);
        assert!(stats["list"].as_array().unwrap().iter().any(|e| e["kernels"][0] == "vector_add"), "{stats}");
    }
    assert!(on(&fakes, &["cache", "verify"]).out.contains("0 corrupt"));
    assert_eq!(on(&fakes, &["cache", "clear"]).code, 0);
    let stats: Value = serde_json::from_str(&on(&fakes, &["cache", "stats", "--json"]).out).unwrap();
    assert_eq!(stats["entries"], 0);
}

/// A closed standard output changes neither the work nor the exit code.
#[test]
fn a_closed_pipe_does_not_change_the_result() {
    if !have_clang() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("wrong.cu"), "extern \"C\" __global__ void wrong() { nothing }").unwrap();
    let (good, wrong) = (kernel("vector_add.cu"), path("wrong.cu"));
    let with_bundle = |file: &str, bundle: &str| {
        let fakes = amd();
        let line = ["warpwave", "compile", file, "--target", "gfx90a", "--bundle", bundle].map(OsString::from);
        let (gone, mut writer) = std::io::pipe().unwrap();
        drop(gone);
        warpwave_cli::main(line, || fakes.devices(), &mut writer, &mut Vec::new())
    };
    assert_eq!(with_bundle(&good, &path("good.wwb")), 0);
    assert!(folder.path().join("good.wwb").exists(), "the bundle was not written");
    assert_eq!(with_bundle(&wrong, &path("wrong.wwb")), 1);
}

fn have_clang_inside(fakes: &Fakes) -> bool {
    on(fakes, &["compile", &kernel("vector_add.cu"), "--target", "gfx90a"]).code == 0
}

#[test]
fn every_command_has_help_with_an_example() {
    fn check(command: &mut clap::Command, name: &str) {
        let text = command.render_long_help().to_string();
        assert!(text.contains("Example") && text.contains(name), "{name}: {text}");
        for sub in command.get_subcommands_mut().filter(|sub| sub.get_name() != "help" && !sub.is_hide_set()) {
            let name = format!("{name} {}", sub.get_name());
            check(sub, &name);
        }
    }
    let mut command = warpwave_cli::command();
    command.build();
    check(&mut command, "warpwave");
    assert_eq!(program(&["devices", "--help"]).status.code(), Some(0));
    for shell in ["bash", "zsh", "fish"] {
        assert!(!program(&["completions", shell]).stdout.is_empty());
    }
}

#[test]
fn bench_ops_runs_selected_operations_and_rejects_unknown_ones() {
    let refused = |line: &[&str], words: &str| {
        let output = program(line);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && text.contains(words), "{line:?}: {text}");
    };
    refused(&["bench", "ops", "--device", "vgpu:gfx90a", "--filter", "nosuch"], "--list");
    refused(&["bench", "ops", "--device", "vgpu:gfx90a", "--peer", "torch"], "virtual");
    refused(&["bench", "ops", "--device", "vgpu:gfx90a", "--peer", "numpy"], "torch");
    refused(&["tune", "--device", "vgpu:gfx90a"], "virtual");
    let list = String::from_utf8(program(&["bench", "ops", "--device", "vgpu:gfx90a", "--list"]).stdout).unwrap();
    assert!(list.lines().count() > 50 && list.contains("cast f32 to bf16"), "{list}");
    let list = String::from_utf8(program(&["bench", "ops", "--device", "vgpu:gfx90a", "--batch", "1,4", "--list"]).stdout).unwrap();
    for name in ["matvec bf16 1x", "matvec bf16 4x", "attention causal bf16 4x", "decode attention bf16 1x", "decode attention bf16 4x"] {
        assert!(list.contains(name), "{name}: {list}");
    }
    refused(&["bench", "ops", "--device", "vgpu:gfx90a", "--batch", "0"], "--batch");
    if !have_clang() {
        return;
    }
    let output = program(&["bench", "ops", "--device", "vgpu:gfx90a", "--batch", "1,2", "--filter", "decode", "--json"]);
    let value: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    assert_eq!(value["rows"].as_array().unwrap().len(), 4, "{value}");
    let folder = tempfile::tempdir().unwrap();
    let plot = folder.path().join("ops.svg");
    let line = ["bench", "ops", "--device", "vgpu:gfx90a", "--filter", "add f32,fill", "--json", "--plot", plot.to_str().unwrap()];
    let output = program(&line);
    let value: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let rows = value["rows"].as_array().unwrap();
    assert!(rows.len() >= 2 && rows.iter().all(|row| row["figure"].as_f64().unwrap() > 0.0), "{value}");
    assert!(std::fs::read_to_string(plot).unwrap().contains("add f32"));
}

#[test]
fn bench_prints_ratios_on_any_device() {
    let fakes = amd();
    for bench in ["launch", "memory"] {
        let answer = on(&fakes, &["bench", bench, "--json"]);
        assert_eq!(answer.code, 0, "{}", answer.err);
        let value: Value = serde_json::from_str(&answer.out).unwrap();
        for row in value["rows"].as_array().unwrap() {
            assert!(row["ratio"].as_f64().unwrap().is_finite(), "{row}");
        }
        assert!(on(&fakes, &["bench", bench]).out.contains("ratio"));
    }
}
