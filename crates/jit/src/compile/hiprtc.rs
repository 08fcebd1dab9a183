//! hipRTC, for AMD, if clang is missing or the user chooses it.
//!
//! hipRTC has HIP's headers built in; the prelude adds only what HIP lacks. Some versions abort the whole process when they are
//! given an architecture they do not know, so a table says which know which, and the rest is refused before the call.

use std::borrow::Cow;
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use tempfile::TempDir;
use warpwave_gpu::Vendor;

use super::{CompileError, Job, beginning, defines, line_directive};
use crate::headers;
use crate::rtc::{self, Output};
use crate::source::KernelSource;
use crate::toolchain::RtcTool;
use crate::translate::TranslatedSource;

/// Since which HIP version an architecture is known. Those not listed are refused: an abort cannot be caught.
const KNOWN_SINCE: &[(&str, (i32, i32))] = &[
    ("gfx803", (4, 0)),
    ("gfx900", (4, 0)),
    ("gfx906", (4, 0)),
    ("gfx908", (4, 0)),
    ("gfx90a", (4, 3)),
    ("gfx90c", (4, 3)),
    ("gfx1010", (4, 0)),
    ("gfx1011", (4, 0)),
    ("gfx1012", (4, 0)),
    ("gfx1030", (4, 3)),
    ("gfx1031", (4, 3)),
    ("gfx1032", (4, 3)),
    ("gfx1100", (5, 4)),
    ("gfx1101", (5, 5)),
    ("gfx1102", (5, 5)),
    ("gfx942", (6, 0)),
    ("gfx1103", (6, 1)),
    ("gfx1150", (6, 2)),
    ("gfx1151", (6, 2)),
    ("gfx1200", (6, 3)),
    ("gfx1201", (6, 3)),
    ("gfx950", (6, 5)),
];

/// hipRTC is not documented as thread-safe in every version, so one compilation runs at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// The options.
pub(super) fn flags(job: &Job<'_>) -> Vec<String> {
    let mut flags = vec![format!("--offload-arch={}", job.target)];
    flags.extend(["-O3", "-std=c++17"].map(str::to_owned));
    flags.extend(defines(job));
    flags.extend(job.source.folder().map(|f| format!("-iquote{}", f.display())));
    flags.extend(job.source.include_dirs().iter().map(|f| format!("-I{}", f.display())));
    flags.extend(job.source.options().iter().cloned());
    flags
}

/// Calls hipRTC. Returns the code object and the messages.
pub(super) fn compile(job: &Job<'_>, translated: &TranslatedSource<'_>, tool: &RtcTool) -> Result<(Vec<u8>, String), CompileError> {
    let table = rtc::open(Vendor::Amd, &tool.path)?;
    let version = rtc::hip_version(&table, &tool.path)?;
    let compiler = format!("hipRTC {}.{}", version.0, version.1);
    guard(job, &compiler, version)?;
    let source = job.source;
    let text = format!("#include \"{}\"\n{}", headers::PRELUDE, beginning(source)) + &translated.main;
    let mut given: Vec<(&str, &str)> =
        ["warpwave_prelude.h", "warpwave/hiprtc.h"].iter().filter_map(|n| Some((*n, headers::text(n)?))).collect();
    for name in source.unresolved() {
        // The half header under CUDA's name is HIP's own here, which is built in.
        let text = if name == "cuda_fp16.h" || name == "cuda_bf16.h" { Some("#pragma once\n") } else { headers::text(name) };
        given.extend(text.map(|t| (name.as_str(), t)));
    }
    let mirror = mirror(source, translated)?;
    let outcome = {
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        // In front of all others: hipRTC looks into folders before it looks at the headers it was given.
        let mut flags: Vec<String> =
            mirror.iter().flat_map(|m| ["-iquote", "-I"].map(|option| format!("{option}{}", m.path().display()))).collect();
        flags.extend(self::flags(job));
        flags.push(format!("-DWARPWAVE_HIPRTC_VERSION={}", version.0 * 100 + version.1));
        rtc::compile(&table, source.name(), &text, &given, &flags, Output::Code)?
    };
    if let Some(path) = source.changed_on_disk() {
        return Err(CompileError::SourceChanged { path: path.to_owned() });
    }
    outcome.binary.map(|binary| (binary, outcome.log.clone())).ok_or_else(|| CompileError::Failed {
        compiler,
        target: job.target.to_string(),
        source_name: source.name().to_owned(),
        log: outcome.log,
        help: None,
    })
}

/// A folder with the included files as translated, and with in-memory headers; `None` if the files on disk will do.
fn mirror(source: &KernelSource, translated: &TranslatedSource<'_>) -> Result<Option<TempDir>, CompileError> {
    if !source.has_in_memory_includes() && !translated.includes.iter().any(|text| matches!(text, Cow::Owned(_))) {
        return Ok(None);
    }
    let io = |error| CompileError::Io { what: "cannot write translated headers".to_owned(), error };
    let folder = tempfile::Builder::new().prefix("warpwave-").tempdir().map_err(io)?;
    for (file, text) in source.includes().iter().zip(&translated.includes) {
        let name = included_as(source, &file.path);
        // A name that leaves its folder is left to the disk; what its guards lose is reported after compiling.
        if Path::new(&name).components().any(|part| !matches!(part, Component::Normal(_))) {
            continue;
        }
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap_or(folder.path())).map_err(io)?;
        std::fs::write(path, line_directive(&file.path.to_string_lossy()) + text).map_err(io)?;
    }
    Ok(Some(folder))
}

/// The name by which a file is included: its path below the folder it was found through.
fn included_as(source: &KernelSource, path: &Path) -> String {
    let folders = source.folder().into_iter().chain(source.include_dirs().iter().map(PathBuf::as_path));
    let below = folders.filter_map(|folder| path.strip_prefix(folder).ok()).min_by_key(|rest| rest.as_os_str().len());
    below.unwrap_or(path).to_string_lossy().into_owned()
}

/// Rejects architectures that would make hipRTC abort the process.
fn guard(job: &Job<'_>, compiler: &str, version: (i32, i32)) -> Result<(), CompileError> {
    let refuse =
        |help: String| Err(CompileError::UnknownArchitecture { compiler: compiler.to_owned(), target: job.target.to_string(), help });
    match KNOWN_SINCE.iter().find(|(name, _)| *name == job.target.base_name()) {
        Some((_, since)) if version >= *since => Ok(()),
        Some((_, (major, minor))) => {
            refuse(format!("requires HIP {major}.{minor} or later, or a newer clang (`apt install clang-19 lld-19 rocm-device-libs`)"))
        }
        None => {
            refuse("no known HIP version supports this target, and hipRTC aborts the process on unsupported targets; use clang".to_owned())
        }
    }
}
