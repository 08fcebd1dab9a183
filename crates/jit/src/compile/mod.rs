//! Compilation of one job to one code object.
//!
//! For every compiler: temporary files are removed when the call returns, an error contains the compiler's whole log with files and lines of
//! the user's source, and the output is parsed before it is returned. Calls may come from any thread.

mod clang;
mod hiprtc;
mod nvrtc;

use std::path::PathBuf;

use warpwave_gpu::Vendor;
use warpwave_gpu::code_object::{CodeObject, CodeObjectError};

use crate::headers;
use crate::kernels;
use crate::source::KernelSource;
use crate::target::Target;
use crate::toolchain::{NoCompiler, Tool, Toolchains};
use crate::translate::{HipFile, Note, TRANSLATOR_VERSION, TranslateError, TranslatedSource};

/// A compilation job.
#[derive(Debug, Clone, Copy)]
pub struct Job<'a> {
    /// The source, with its macros and options.
    pub source: &'a KernelSource,
    /// The architecture.
    pub target: &'a Target,
    /// The compiler to use.
    pub compiler: CompilerChoice,
}

/// The compiler to use for a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CompilerChoice {
    /// NVRTC for NVIDIA; clang for AMD, or hipRTC if clang is missing.
    #[default]
    Auto,
    /// clang, for AMD.
    Clang,
    /// hipRTC, for AMD.
    HipRtc,
    /// NVRTC, for NVIDIA.
    Nvrtc,
}

/// Compiled code.
#[derive(Debug, Clone)]
pub struct Compiled {
    /// The code object.
    pub binary: Vec<u8>,
    /// The compiler's messages: warnings, and NVRTC's register report.
    pub log: String,
    /// The kernels in `binary`.
    pub code_object: CodeObject,
    /// Diagnostics of the translation for AMD; empty for NVIDIA.
    pub notes: Vec<Note>,
    /// The HIP source compiled for AMD and the changed includes; empty for NVIDIA.
    pub hip: Vec<HipFile>,
}

/// Why compilation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// The compiler rejected the source.
    #[error("{compiler} failed to compile {source_name} for {target}:\n{log}{}", hint(help))]
    Failed {
        /// The compiler.
        compiler: String,
        /// The architecture.
        target: String,
        /// The source's file or name.
        source_name: String,
        /// The compiler's log.
        log: String,
        /// What to do, if known.
        help: Option<Box<str>>,
    },
    /// The compiler does not support the architecture.
    #[error("{compiler} does not support {target}: {help}")]
    UnknownArchitecture {
        /// The compiler.
        compiler: String,
        /// The architecture.
        target: String,
        /// Which version supports it.
        help: String,
    },
    /// No compiler for this target is installed.
    #[error(transparent)]
    NoCompiler(#[from] NoCompiler),
    /// The source cannot be translated for this target.
    #[error(transparent)]
    Translate(#[from] TranslateError),
    /// An included file changed during compilation: the code would not match the cache key.
    #[error("{} changed during compilation; compile again", path.display())]
    SourceChanged {
        /// The file.
        path: PathBuf,
    },
    /// The compiler could not be run, or its files could not be written.
    #[error("{what}: {error}")]
    Io {
        /// What was being done.
        what: String,
        /// The system's error.
        #[source]
        error: std::io::Error,
    },
    /// The runtime compiler's library cannot be used.
    #[error(transparent)]
    Library(warpwave_gpu::Error),
    /// A call into the runtime compiler failed for a reason other than the source.
    #[error("{compiler}: {call} failed: {text}")]
    Call {
        /// The compiler.
        compiler: String,
        /// The call.
        call: &'static str,
        /// The error.
        text: String,
    },
    /// An option or macro cannot be passed to a compiler.
    #[error("compiler option {option:?} {reason}")]
    BadOption {
        /// The option.
        option: String,
        /// Why not.
        reason: String,
    },
    /// The compiler succeeded, but its output is not a code object.
    #[error("{compiler} returned invalid code for {target}: {error}")]
    BadOutput {
        /// The compiler.
        compiler: String,
        /// The architecture.
        target: String,
        /// What is wrong with it.
        #[source]
        error: CodeObjectError,
    },
}

fn hint(help: &Option<Box<str>>) -> String {
    help.as_ref().map(|h| format!("\n{h}")).unwrap_or_default()
}

/// Compiles `job` with its compiler from `toolchains`.
pub fn compile(job: &Job<'_>, toolchains: &Toolchains) -> Result<Compiled, CompileError> {
    let tool = toolchains.choose(job.target, job.compiler)?;
    compile_with(job, tool)
}

/// Compiles `job` with a given compiler.
pub fn compile_with(job: &Job<'_>, tool: &Tool) -> Result<Compiled, CompileError> {
    for option in job.source.options().iter().chain(job.source.defines().iter().flat_map(|(n, v)| [n, v])) {
        if option.contains('\0') {
            return Err(CompileError::BadOption { option: option.clone(), reason: "contains a NUL byte".to_owned() });
        }
    }
    let translated = TranslatedSource::new(job.source, job.target)?;
    let outcome = match tool {
        Tool::Clang(clang) => clang::compile(job, &translated, clang),
        Tool::Nvrtc(nvrtc) => nvrtc::compile(job, nvrtc),
        Tool::HipRtc(hiprtc) => hiprtc::compile(job, &translated, hiprtc),
    };
    let (binary, log) = outcome.map_err(|error| with_notes(error, &translated.notes))?;
    let code_object = CodeObject::parse(&binary).map_err(|error| CompileError::BadOutput {
        compiler: tool.name().to_owned(),
        target: job.target.to_string(),
        error,
    })?;
    let mut notes: Vec<Note> = Vec::new();
    let mut hip = Vec::new();
    if job.target.vendor() == Vendor::Amd {
        hip = translated.hip(job.source);
        notes.extend(translated.notes.into_iter().map(Note::after_success));
        notes.extend(kernels::lost(job.source, &code_object));
    }
    let mut compiled = Compiled { binary, log, code_object, notes, hip };
    if matches!(tool, Tool::Nvrtc(_)) {
        nvrtc::read_spills(&mut compiled);
    }
    tracing::debug!(source = job.source.name(), target = %job.target, bytes = compiled.binary.len(), kernels = compiled.code_object.kernels.len(), "compiled");
    Ok(compiled)
}

/// Adds the translator's diagnostics to a compiler error: an untranslated instruction explains the compiler's message.
fn with_notes(error: CompileError, notes: &[Note]) -> CompileError {
    match error {
        CompileError::Failed { compiler, target, source_name, log, help } => {
            let notes: String = notes.iter().filter(|note| note.matters()).map(|note| format!("{note}\n")).collect();
            CompileError::Failed { compiler, target, source_name, log: notes + &log, help }
        }
        other => other,
    }
}

/// Returns the inputs of [`compile_with`] other than the compiler's version, as labels and values in a fixed order, for a cache key.
pub fn key_material(job: &Job<'_>, tool: &Tool) -> Vec<(String, String)> {
    let mut parts = vec![
        ("target".to_owned(), job.target.to_string()),
        ("compiler".to_owned(), tool.name().to_owned()),
        ("identity".to_owned(), tool.identity().to_string()),
        ("translator".to_owned(), TRANSLATOR_VERSION.to_string()),
    ];
    let flags = match tool {
        Tool::Clang(_) => clang::flags(job),
        Tool::Nvrtc(tool) => nvrtc::flags(job, tool),
        Tool::HipRtc(_) => hiprtc::flags(job),
    };
    parts.extend(flags.into_iter().map(|flag| ("flag".to_owned(), flag)));
    parts.extend(job.source.defines().iter().map(|(name, value)| (format!("macro {name}"), value.clone())));
    parts.extend(job.source.files().into_iter().map(|(name, text)| (format!("file {name}"), text.to_owned())));
    // The C headers reach NVRTC too; the rest only AMD. One rule for both costs a few recompilations after an update.
    parts.extend(headers::digests().iter().cloned());
    parts
}

/// `-Dname=value` for the macros that every compiler gets, and for those of the source's own that headers are to see. [`beginning`] has the
/// others.
fn defines(job: &Job<'_>) -> Vec<String> {
    let mut all = vec![format!("-DWARPWAVE_WAVE_SIZE={}", job.target.wave_size())];
    if job.target.vendor() == Vendor::Amd {
        // Every AMD target parses into a version; 0 would only make the device library choose its oldest code.
        all.push(format!("-DWARPWAVE_ISA_VERSION={}", job.target.amd_isa_version().unwrap_or(0)));
    }
    let own = job.source.defines().iter().filter(|(name, _)| is_for_headers(name));
    all.extend(own.map(|(name, value)| format!("-D{name}={value}")));
    all
}

/// Whether the headers in front of a source are to see a macro: a name of the compiler's, of a vendor's, or of ours.
fn is_for_headers(name: &str) -> bool {
    ["_", "CUDA", "HIP", "NV", "ROCM", "WARPWAVE"].iter().any(|start| name.starts_with(start)) || name == "NDEBUG"
}

/// What stands in front of a source, behind the headers that every source gets: its macros. As options they would change those headers, the
/// compilers' own and ours, whose templates have parameters called `T` and `U`.
fn beginning(source: &KernelSource) -> String {
    let own = source.defines().iter().filter(|(name, _)| !is_for_headers(name));
    // As in an option, a macro ends with its line.
    let own: String = own.map(|(name, value)| format!("#define {name} {}\n", value.lines().next().unwrap_or_default())).collect();
    line_directive("<macros>") + &own + &line_directive(source.name())
}

/// `#line` in front of a text, so that messages name the user's file.
fn line_directive(name: &str) -> String {
    format!("#line 1 \"{}\"\n", name.replace('\\', "\\\\").replace('"', "\\\""))
}
