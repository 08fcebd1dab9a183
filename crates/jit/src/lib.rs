//! CUDA C++ source to GPU code: read, translate, compile.
//!
//! [`KernelSource`] reads a source and everything it includes; [`Toolchains`] finds the compilers of this machine without starting
//! any; [`compile()`] turns a [`Job`] into machine code of its [`Target`] and tells which kernels are in it. NVIDIA targets go to
//! NVRTC as they are. AMD targets go to clang with Warpwave's own headers, which need no HIP installation, or to hipRTC.
//!
//! What this crate promises: sources and compilers are untrusted input, and whatever they do ends in a value or an error that names
//! the file, the compiler and the target. What it leaves to the caller: that a kernel is right, and that it is launched with the
//! arguments it declares.
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

pub use bundle::{Bundle, BundleError, Part};
pub use compile::{CompileError, Compiled, CompilerChoice, Job, compile, compile_with, key_material};
pub use headers::compatibility_header;
pub use jit::{Built, Jit, JitError};
pub use kernels::kernels;
pub use source::{Included, KernelSource, SourceError};
pub use target::{InvalidTarget, Target};
pub use toolchain::{AskEachTime, ClangTool, Identity, NoCompiler, RtcTool, Tool, Toolchains, VersionMemo};
pub use translate::{HipFile, Note, TRANSLATOR_VERSION, TranslateError};
