//! clang, for AMD: one process, no HIP installation.
//!
//! The source and what it includes reach clang through a file system overlay: exactly the bytes that were read (and translated),
//! under the names the user knows. Settings from the environment and from configuration files are shut out, for no cache key
//! would know of them.

use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;
use tempfile::TempDir;

use super::{CompileError, Job, beginning, defines};
use crate::headers;
use crate::toolchain::ClangTool;
use crate::translate::TranslatedSource;

/// Since which release clang knows an architecture. Older ones are known by all releases that are tried (15 on).
const KNOWN_SINCE: &[(&str, u32)] = &[
    ("gfx940", 16),
    ("gfx941", 17),
    ("gfx942", 17),
    ("gfx950", 20),
    ("gfx1150", 17),
    ("gfx1151", 17),
    ("gfx1152", 19),
    ("gfx1153", 20),
    ("gfx1200", 18),
    ("gfx1201", 18),
    ("gfx1250", 21),
    ("gfx9-generic", 19),
    ("gfx9-4-generic", 20),
    ("gfx10-1-generic", 19),
    ("gfx10-3-generic", 19),
    ("gfx11-generic", 19),
    ("gfx12-generic", 20),
];

/// Variables that change what clang reads or does.
const SHUT_OUT: &[&str] = &[
    "CPATH",
    "C_INCLUDE_PATH",
    "CPLUS_INCLUDE_PATH",
    "CCC_OVERRIDE_OPTIONS",
    "HIP_PATH",
    "ROCM_PATH",
    "HIP_DEVICE_LIB_PATH",
    "SOURCE_DATE_EPOCH",
];

/// The folder that in-memory headers appear in; it exists only in the file system overlay.
const IN_MEMORY: &str = "/warpwave/source";

const INSTALL_LIBRARY: &str = "`apt install rocm-device-libs`, or set WARPWAVE_DEVICE_LIBS to the directory that contains ocml.bc";

/// The options, apart from those that name temporary files.
pub(super) fn flags(job: &Job<'_>) -> Vec<String> {
    let mut flags: Vec<String> =
        ["-x", "hip", "--offload-device-only", "--no-gpu-bundle-output", "--no-default-config"].map(str::to_owned).into();
    flags.push(format!("--offload-arch={}", job.target));
    // The same defaults as nvcc: fused multiply-add allowed, denormals kept, division and square root correctly rounded.
    // Nothing about contraction: what HIP does by itself, as NVRTC, is to fuse products and sums across statements but not where a
    // pragma says no. AMD's math library and the `__fmul_rn` family rely on that, and `-ffp-contract=fast` would override it.
    flags.extend(["-O3", "-std=c++17", "-fdeclspec", "-fshow-overloads=best"].map(str::to_owned));
    // Nothing of the machine's own headers or libraries; an id made from the file's path would differ from run to run.
    flags.extend(["-nogpuinc", "-nogpulib", "-nostdinc", "-fuse-cuid=none", "-fno-color-diagnostics"].map(str::to_owned));
    let format = if job.target.is_generic() { 6 } else { 5 };
    flags.push(format!("-mcode-object-version={format}"));
    flags.push(format!("-DWARPWAVE_CODE_OBJECT_VERSION={format}"));
    flags.extend(defines(job));
    flags.extend(job.source.folder().map(|f| format!("-iquote{}", absolute(f).display())));
    flags.extend(job.source.has_in_memory_includes().then(|| format!("-I{IN_MEMORY}")));
    flags.extend(job.source.include_dirs().iter().map(|f| format!("-I{}", absolute(f).display())));
    flags.extend([
        "-isystem".to_owned(),
        headers::FOLDER.to_owned(),
        "-include".to_owned(),
        format!("{}/{}", headers::FOLDER, headers::PRELUDE),
    ]);
    flags.extend(job.source.options().iter().cloned());
    flags
}

/// Runs clang. Returns the code object and the messages.
pub(super) fn compile(job: &Job<'_>, text: &TranslatedSource<'_>, tool: &ClangTool) -> Result<(Vec<u8>, String), CompileError> {
    let work = tempfile::Builder::new().prefix("warpwave-").tempdir().map_err(|e| io("cannot create a temporary directory", e))?;
    let main = write_inputs(job, text, &work)?;
    let output = work.path().join("out.hsaco");
    // A device library made by a newer LLVM than this clang cannot be read; the next may be older.
    let mut folders = tool.device_libs.iter().map(Some).collect::<Vec<_>>();
    if folders.is_empty() {
        folders.push(None);
    }
    let mut last = None;
    for folder in folders {
        let mut command = Command::new(&tool.path);
        command.args(flags(job)).arg("-ivfsoverlay").arg(work.path().join("overlay.json"));
        for library in libraries(job, folder) {
            command.args(["-Xclang", "-mlink-builtin-bitcode", "-Xclang"]).arg(library);
        }
        command.arg("-o").arg(&output).arg(&main);
        let ran = run(&mut command, tool, &work)?;
        let log = clean(&String::from_utf8_lossy(&ran.stderr), job, &main);
        if ran.status.success() {
            let binary = std::fs::read(&output).map_err(|e| io("clang wrote no code object", e))?;
            return Ok((binary, log));
        }
        let unreadable_library = folder.is_some_and(|f| log.contains(&*f.to_string_lossy()) && log.contains(".bc"));
        last = Some(log);
        if !unreadable_library {
            break;
        }
    }
    Err(failure(job, tool, last.unwrap_or_default()))
}

/// The device library's parts a source needs: math always, the rest only for `printf` (the hostcall protocol) and barriers of a grid.
fn libraries(job: &Job<'_>, folder: Option<&PathBuf>) -> Vec<PathBuf> {
    let Some(folder) = folder else { return Vec::new() };
    let more =
        job.source.files().iter().any(|(_, text)| text.contains("printf") || text.contains("this_grid") || text.contains("grid_group"));
    let names: &[&str] = if more { &["ocml.bc", "ockl.bc"] } else { &["ocml.bc"] };
    names.iter().map(|n| folder.join(n)).collect()
}

fn run(command: &mut Command, tool: &ClangTool, work: &TempDir) -> Result<std::process::Output, CompileError> {
    for name in SHUT_OUT {
        command.env_remove(name);
    }
    // clang keeps its own temporary files where ours are, so that they go with them even if it is killed.
    command.env("LC_ALL", "C").env("TMPDIR", work.path()).stdin(Stdio::null()).current_dir(work.path());
    tracing::debug!(?command, "running clang");
    command.output().map_err(|e| io(&format!("cannot run {}", tool.path.display()), e))
}

/// Writes the source, the headers and the overlay. Returns the source's place.
fn write_inputs(job: &Job<'_>, text: &TranslatedSource<'_>, work: &TempDir) -> Result<PathBuf, CompileError> {
    let write = |path: &Path, text: &str| std::fs::write(path, text).map_err(|e| io("cannot write temporary files", e));
    let source = job.source;
    let main = work.path().join("main.hip");
    write(&main, &(beginning(source) + &text.main))?;
    let mut roots = Vec::new();
    let mut map = |virtual_path: &Path, text: &str| {
        let real = work.path().join(format!("file{}", roots.len()));
        roots.push(json!({ "name": virtual_path.to_string_lossy(), "type": "file", "external-contents": real.to_string_lossy() }));
        write(&real, text)
    };
    for (file, text) in source.includes().iter().zip(&text.includes) {
        map(&if file.in_memory { Path::new(IN_MEMORY).join(&file.path) } else { absolute(&file.path) }, text)?;
    }
    for (name, text) in headers::FILES {
        map(&Path::new(headers::FOLDER).join(name), text)?;
    }
    let overlay = json!({ "version": 0, "case-sensitive": "true", "use-external-names": "false", "roots": roots });
    write(&work.path().join("overlay.json"), &overlay.to_string())?;
    Ok(main)
}

/// An absolute path without `.` and `..`, which is how clang looks files up in an overlay.
fn absolute(path: &Path) -> PathBuf {
    let full = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut clean = PathBuf::new();
    for part in full.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(clean.pop()),
            other => clean.push(other),
        }
    }
    clean
}

/// The log with the user's names for the temporary source and for in-memory headers.
fn clean(log: &str, job: &Job<'_>, main: &Path) -> String {
    log.replace(&*main.to_string_lossy(), job.source.name()).replace(&format!("{IN_MEMORY}/"), "")
}

fn failure(job: &Job<'_>, tool: &ClangTool, log: String) -> CompileError {
    let compiler = tool.path.display().to_string();
    let target = job.target.to_string();
    let unknown = ["unsupported HIP gpu architecture", "invalid target ID", "unknown target CPU", "not a valid value"];
    if unknown.iter().any(|text| log.contains(text)) && log.contains(&job.target.base_name()) {
        let help = match KNOWN_SINCE.iter().find(|(name, _)| *name == job.target.base_name()) {
            Some((_, since)) => {
                format!("requires clang {since} or later (`apt install clang-{since} lld-{since}`, or set WARPWAVE_CLANG)")
            }
            None => format!("try a newer clang (set WARPWAVE_CLANG). Compiler message: {}", log.trim()),
        };
        return CompileError::UnknownArchitecture { compiler, target, help };
    }
    let help = if log.contains("__ocml_") || log.contains("__ockl_") {
        let found = if tool.device_libs.is_empty() { "were not found" } else { "lack a function" };
        Some(format!("the ROCm device libraries {found}: {INSTALL_LIBRARY}"))
    } else if log.contains("ocml.bc") || log.contains("ockl.bc") {
        Some(format!("the ROCm device libraries are unreadable, most likely built by a newer LLVM than this clang: {INSTALL_LIBRARY}"))
    } else if log.contains("lld") && (log.contains("unable to execute") || log.contains("doesn't exist")) {
        Some("clang needs the lld linker: `apt install lld-19` (same version as clang)".to_owned())
    } else {
        None
    };
    CompileError::Failed { compiler, target, source_name: job.source.name().to_owned(), log, help: help.map(Into::into) }
}

fn io(what: &str, error: std::io::Error) -> CompileError {
    CompileError::Io { what: what.to_owned(), error }
}
