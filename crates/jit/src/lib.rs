//! CUDA C++ source to GPU code: read, translate, compile.
//!
//! [`KernelSource`] reads a source and everything it includes; [`Toolchains`] finds the compilers of this machine without running them;
//! [`compile()`] turns a [`Job`] into machine code for its [`Target`]; [`Jit`] adds the disk cache and [archives](archive) of code compiled
//! ahead of time, and loads the result on a device. NVIDIA
//! targets are compiled by NVRTC unchanged. AMD targets are translated and compiled by clang with Warpwave's own headers, which need no HIP
//! installation, or by hipRTC.
//!
//! Sources and compilers are untrusted input: every failure is an error that names the file, the compiler and the target. The caller is
//! responsible for what a kernel does and for launching it with the arguments it declares.
//!
//! ```no_run
//! use warpwave_jit::{CompilerChoice, Job, KernelSource, Toolchains, compile};
//!
//! let source = KernelSource::from_file("examples/kernels/vector_add.cu")?;
//! let target = "gfx90a".parse()?;
//! let job = Job { source: &source, target: &target, compiler: CompilerChoice::Auto };
//! let compiled = compile(&job, &Toolchains::find())?;
//! for kernel in &compiled.code_object.kernels {
//!     println!("{}: {} arguments", kernel.name, kernel.explicit_args().count());
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![warn(missing_docs)]

pub mod archive;
mod bundle;
pub mod cache;
mod compile;
mod headers;
mod jit;
mod kernels;
mod rtc;
mod source;
mod target;
mod toolchain;
mod translate;

pub use archive::{Archive, ArchiveBuilder, ArchiveError};
pub use bundle::{Bundle, BundleError, Part};
pub use compile::{CompileError, Compiled, CompilerChoice, Job, compile, compile_with, key_material};
pub use headers::compatibility_header;
pub use jit::{Built, Jit, JitError};
pub use kernels::kernels;
pub use source::{Included, KernelSource, SourceError};
pub use target::{InvalidTarget, Target};
pub use toolchain::{ClangTool, Identity, NoCompiler, NoVersionCache, RtcTool, Tool, Toolchains, VersionCache};
pub use translate::{HipFile, Note, TRANSLATOR_VERSION, TranslateError};
