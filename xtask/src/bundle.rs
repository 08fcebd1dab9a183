//! `cargo xtask bundle`: packs the built tests and the command into a folder that runs on a machine without Rust.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::demo::example_kernels;
use crate::run::{self, Doing, Result, Workspace, cargo, copy, create_folder, failed, say};

/// The script that runs the bundle.
const RUN_SCRIPT: &str = include_str!("bundle_run.sh");

/// Archive of the programs; `run.sh` unpacks it.
const ARCHIVE: &str = "programs.tar.xz";

/// Tiny models with reference outputs, at the same paths below `WARPWAVE_ROOT`.
const FIXTURES: [&str; 2] = ["crates/llm/tests/oracles", "crates/diffusion/tests/fixtures"];

/// Maximum size of the archive.
const MAX_BYTES: u64 = 60 << 20;

/// Test programs that do not use a GPU and are not packed.
const NEED_NO_GPU: &[&str] = &[
    "cache_torture",
    "candle",
    "checkpoint",
    "converted_tokenizer",
    "cpu",
    "disasm",
    "book",
    "examples_on_fakes",
    "fuzz",
    "hipify",
    "host_memory",
    "lanes_on_host",
    "numpy",
    "text_sampling",
    "text_template",
    "text_tokenizer",
];

/// Packages whose tests need no GPU but files that are not packed.
const NOT_PACKED: &[&str] = &[
    "xtask",
    "warpwave-hipify",
    "warpwave-vgpu",
    "warpwave-libamdhip64",
    "warpwave-libhsa",
    "warpwave-candle-check",
    "warpwave-weights",
    "cudarc",
    "cudaforge",
];

/// Tests of the virtual GPU that are packed: random programs, for `run.sh --fuzz` on a machine with many cores.
const FUZZ_TESTS: &[&str] = &["differential", "hostile"];

/// Sources of the code objects that `hostile` changes, and their targets. They are packed compiled: a machine without clang runs them too.
const FUZZ_SOURCES: &[(&str, &str)] = &[
    ("atomics", "gfx90a,gfx1030,gfx1100"),
    ("block", "gfx90a,gfx1030,gfx1100"),
    ("calls", "gfx90a,gfx1030,gfx1100"),
    ("matmul", "gfx90a,gfx1030,gfx1100"),
    ("memory", "gfx90a,gfx1030,gfx1100"),
    ("mfma", "gfx90a"),
    ("scratch", "gfx90a,gfx1030,gfx1100"),
    ("wave", "gfx90a,gfx1030,gfx1100"),
];

/// A test program or example built by cargo.
#[derive(Debug, PartialEq, Eq)]
struct Program {
    package: String,
    /// Cargo target: the library, or the file in `tests/`.
    target: String,
    kind: String,
    path: PathBuf,
}

impl Program {
    /// Returns its path in the bundle. Tests are named PACKAGE.KIND.TARGET; `run.sh` selects packages by prefix. Examples keep their
    /// names, because a test runs them.
    fn bundle_path(&self) -> String {
        match self.kind.as_str() {
            "example" => format!("examples/{}", self.target),
            kind => format!("tests/{}.{kind}.{}", self.package, self.target),
        }
    }
}

/// Runs the command.
pub fn main() -> Result<()> {
    build(&Workspace::find()?).map(drop)
}

/// Builds the bundle and returns its folder.
pub fn build(workspace: &Workspace) -> Result<PathBuf> {
    say("building the release tests (several minutes from scratch)");
    let excluded = NOT_PACKED.iter().flat_map(|package| ["--exclude", package]);
    let mut programs = build_tests(workspace, ["--workspace"].into_iter().chain(excluded))?;
    let fuzz = FUZZ_TESTS.iter().flat_map(|test| ["--test", test]);
    programs.extend(build_tests(workspace, ["-p", "warpwave-vgpu"].into_iter().chain(fuzz))?);
    workspace.build_command()?;
    let folder = workspace.empty_folder("bundle")?;
    pack(workspace, &programs, &folder)?;
    report(&folder, &programs)?;
    Ok(folder)
}

/// Builds the tests that `selection` names.
fn build_tests<'a>(workspace: &Workspace, selection: impl Iterator<Item = &'a str>) -> Result<Vec<Program>> {
    let mut build = cargo();
    build.current_dir(&workspace.root);
    build.args(["test", "--release", "--no-run", "--message-format=json-render-diagnostics"]).args(selection);
    // Only stdout is captured: progress and compiler messages stay on the terminal.
    let built = build.stderr(Stdio::inherit()).output().doing(|| "run cargo test --no-run".into())?;
    if !built.status.success() {
        return failed("the release tests do not build; see the output above");
    }
    let programs = programs_in(&String::from_utf8_lossy(&built.stdout), &workspace.members);
    if programs.is_empty() {
        return failed("cargo built no test programs; check `cargo test --release --workspace --no-run`");
    }
    Ok(programs)
}

/// Parses the test programs and examples from cargo's JSON messages.
fn programs_in(messages: &str, members: &[(String, String)]) -> Vec<Program> {
    let names: BTreeMap<&str, &str> = members.iter().map(|(id, name)| (id.as_str(), name.as_str())).collect();
    let parse = |line: &str| -> Option<Program> {
        let message: Value = serde_json::from_str(line).ok()?;
        let is_test = message["profile"]["test"] == true && !NEED_NO_GPU.iter().any(|name| message["target"]["name"] == *name);
        let wanted = is_test || message["target"]["kind"][0] == "example";
        if message["reason"] != "compiler-artifact" || !wanted {
            return None;
        }
        let path = message["executable"].as_str()?;
        let text = |value: &Value| value.as_str().unwrap_or("unknown").to_owned();
        Some(Program {
            package: names.get(message["package_id"].as_str()?).copied().unwrap_or("unknown").to_owned(),
            target: text(&message["target"]["name"]),
            kind: text(&message["target"]["kind"][0]),
            path: path.into(),
        })
    };
    let mut programs: Vec<Program> = messages.lines().filter_map(parse).collect();
    programs.sort_by_key(Program::bundle_path);
    programs
}

fn pack(workspace: &Workspace, programs: &[Program], folder: &Path) -> Result<()> {
    for part in ["tests", "bin", "lib", "examples/kernels"] {
        create_folder(&folder.join(part))?;
    }
    let stripper = run::quiet(Command::new("strip").arg("--version")).is_some();
    let copy_stripped = |from: &Path, to: &Path| {
        copy(from, to)?;
        if stripper { run::checked(Command::new("strip").arg(to)) } else { Ok(()) }
    };
    for program in programs {
        copy_stripped(&program.path, &folder.join(program.bundle_path()))?;
    }
    copy_stripped(&workspace.command(), &folder.join("bin/warpwave"))?;
    copy_stripped(&workspace.mpi_library(), &folder.join("lib/libwarpwave_mpi.so"))?;
    for kernel in example_kernels(&workspace.root) {
        copy(&kernel, &folder.join("examples/kernels").join(kernel.file_name().unwrap_or_default()))?;
    }
    for fixtures in FIXTURES {
        copy_folder(&workspace.root.join(fixtures), &folder.join(fixtures))?;
    }
    let objects = folder.join("fuzz");
    create_folder(&objects)?;
    for (source, targets) in FUZZ_SOURCES {
        let mut compile = Command::new(workspace.command());
        compile.arg("compile").arg(workspace.root.join(format!("crates/vgpu/corpus/{source}.cu")));
        run::checked(compile.args(["--target", targets, "--output"]).arg(&objects))?;
    }
    // All programs contain the same libraries: a large window compresses them to a tenth.
    let packed = ["tests", "bin", "lib", "examples", "crates", "fuzz"];
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(folder).args(["-I", "xz --lzma2=preset=0,dict=128MiB", "-cf"]).arg(folder.join(ARCHIVE)).args(packed);
    run::checked(&mut tar)?;
    for part in packed {
        std::fs::remove_dir_all(folder.join(part)).doing(|| format!("remove {part}"))?;
    }
    write_script(&folder.join("run.sh"))
}

/// Copies a folder of files and folders.
fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    create_folder(to)?;
    for entry in std::fs::read_dir(from).doing(|| format!("read {}", from.display()))?.flatten() {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() { copy_folder(&from, &to)? } else { copy(&from, &to)? }
    }
    Ok(())
}

fn write_script(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let doing = || format!("write {}", path.display());
    std::fs::write(path, RUN_SCRIPT).doing(doing)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).doing(doing)
}

fn report(folder: &Path, programs: &[Program]) -> Result<()> {
    let archive = folder.join(ARCHIVE);
    let bytes = std::fs::metadata(&archive).doing(|| format!("read {}", archive.display()))?.len();
    println!("{}: {} programs, {} in total", folder.display(), programs.len(), mebibytes(bytes));
    if bytes > MAX_BYTES {
        return failed(format!("the bundle exceeds {}; pack fewer or smaller test programs", mebibytes(MAX_BYTES)));
    }
    println!("Copy the folder to a GPU machine and run ./run.sh there (see ./run.sh --help).");
    Ok(())
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes an executable shell script.
    fn script(path: &Path, text: &str) {
        use std::os::unix::fs::PermissionsExt;
        std::fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Runs `run.sh --report` with fake programs; returns its exit code and the report.
    fn report_of(conformance: &str, devices: &str) -> (Option<i32>, String) {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        create_folder(&path("tests")).unwrap();
        create_folder(&path("bin")).unwrap();
        write_script(&path("run.sh")).unwrap();
        script(&path("tests/warpwave-gpu.test.conformance"), conformance);
        let answers = format!(
            "case \"$*\" in 'devices --json') echo '{devices}' ;; 'doctor --json') echo '{{\"broken\": true}}'; exit 1 ;;
            --version) echo 'warpwave 1.2.3' ;; bench*) echo '{{\"figure\": 1.5}}' ;; *) echo ran ;; esac"
        );
        script(&path("bin/warpwave"), &answers);
        let status = Command::new(path("run.sh")).args(["--report", "card.json"]).current_dir(folder.path()).output().unwrap();
        (status.status.code(), std::fs::read_to_string(path("card.json")).unwrap())
    }

    #[test]
    fn a_report_is_json_with_every_step_and_the_log_of_a_failed_one() {
        let devices = r#"{"devices": [{"name": "rocm:0"}]}"#;
        let suite = r#"printf 'a "quote", a \\ and a\ttab\001\n'; echo 'test result: FAILED. 3 passed; 2 failed; 0 ignored'; exit 101"#;
        let (code, text) = report_of(suite, devices);
        let report: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert_eq!(code, Some(1));
        assert_eq!(report["warpwave"], "warpwave 1.2.3");
        assert_eq!(report["device"], "rocm:0");
        assert_eq!(report["doctor"]["broken"], true, "a failed check is a fact to report");
        assert_eq!(report["benches"]["ops"]["figure"], 1.5);
        let step = &report["steps"][0];
        assert_eq!((&step["result"], &step["passed"], &step["failed"]), (&"failed".into(), &3.into(), &2.into()));
        assert!(step["log"].as_str().unwrap().starts_with("a \"quote\", a \\ and a\ttab\n"), "{step}");
        assert_eq!(report["steps"].as_array().unwrap().iter().filter(|step| step["result"] == "ok").count(), 4);
    }

    #[test]
    fn a_report_without_a_gpu_fails() {
        let (code, text) = report_of("exit 0", r#"{"devices": []}"#);
        assert_eq!((code, text.as_str()), (Some(1), ""));
    }

    #[test]
    fn only_tests_and_examples_are_packed() {
        let artifact = |name: &str, kind: &str, test: bool, executable: Value| {
            serde_json::json!({
                "reason": "compiler-artifact", "package_id": "path+file:///w/crates/gpu#warpwave-gpu@0.1.0",
                "target": { "name": name, "kind": [kind] }, "profile": { "test": test }, "executable": executable,
            })
            .to_string()
        };
        let messages = [
            artifact("warpwave_gpu", "lib", true, "/t/warpwave_gpu-1".into()),
            artifact("driver", "test", true, "/t/driver-2".into()),
            artifact("01-allocate", "example", false, "/t/01-allocate".into()),
            artifact("warpwave_gpu", "lib", false, Value::Null),
            artifact("warpwave", "bin", false, "/t/warpwave".into()),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
            "a line that is not JSON".to_owned(),
        ];
        let members = [("path+file:///w/crates/gpu#warpwave-gpu@0.1.0".to_owned(), "warpwave-gpu".to_owned())];
        let names: Vec<String> = programs_in(&messages.join("\n"), &members).iter().map(Program::bundle_path).collect();
        assert_eq!(names, ["examples/01-allocate", "tests/warpwave-gpu.lib.warpwave_gpu", "tests/warpwave-gpu.test.driver"]);
    }

    #[test]
    fn the_script_runs_the_demo_command() {
        let words: Vec<&str> = RUN_SCRIPT.split_whitespace().map(|word| word.trim_matches('\'')).collect();
        let wanted: Vec<&str> = ["run", crate::demo::KERNEL].into_iter().chain(crate::demo::RUN_ARGUMENTS).collect();
        assert!(words.windows(wanted.len()).any(|window| window == wanted));
    }

    #[test]
    fn the_script_is_valid_bash() {
        let status = Command::new("bash").args(["-n", "-c", RUN_SCRIPT]).status();
        assert!(status.expect("bash starts").success());
    }
}
