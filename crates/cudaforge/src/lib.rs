//! A drop-in replacement for the crate [cudaforge](https://crates.io/crates/cudaforge), which builds CUDA kernels in build scripts.
//!
//! Build scripts that use it run unchanged, without nvcc and without a GPU: nothing is compiled. [`KernelBuilder::build_ptx`] packs each
//! source with the headers it includes into one text, which replaces the PTX. Warpwave's replacement for `cudarc` compiles the
//! kernels of such a [container](container) for the current device when a program loads them. [`KernelBuilder::build_lib`] writes empty
//! libraries that satisfy the linker; the functions of the real one are in that `cudarc`.
//!
//! It promises that every text is UTF-8 and complete: a header that is found is in the container, one that is not is left to the compiler.
//! It leaves to the caller to link with Warpwave's `cudarc`, which both crates are patched in for:
//!
//! ```toml
//! [patch.crates-io]
//! cudarc = { path = "/path/to/warpwave/crates/cudarc" }
//! cudaforge = { path = "/path/to/warpwave/crates/cudaforge" }
//! ```
//!
//! A build script:
//!
//! ```no_run
//! # fn main() -> cudaforge::Result<()> {
//! let out = std::path::PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default());
//! cudaforge::KernelBuilder::new().source_dir("src").build_ptx()?.write(out.join("ptx.rs"))?;
//! # Ok(())
//! # }
//! ```
#![warn(missing_docs)]

mod builder;
pub mod container;
mod sources;

use std::path::PathBuf;

pub use builder::{KernelBuilder, PtxOutput};

/// The result of a build step.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why sources cannot be packed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A source or folder does not exist.
    #[error("the CUDA source {} does not exist", .0.display())]
    SourcePathNotFound(PathBuf),
    /// A file cannot be read or written.
    #[error("cannot {action} {}: {error}", path.display())]
    File {
        /// `read` or `write`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        error: std::io::Error,
    },
    /// Cargo did not set a variable that build scripts need.
    #[error("the environment variable {0} is not set; call this from a build script")]
    NoVariable(&'static str),
    /// Two files would be included by the same name, or a name cannot be stored.
    #[error("{source_file}: cannot pack the included file `{name}`: {reason}", source_file = source_file.display())]
    Include {
        /// The source.
        source_file: PathBuf,
        /// The name in its `#include`.
        name: String,
        /// Why not.
        reason: String,
    },
    /// What the real crate does with nvcc, this one cannot.
    #[error("{0} is not supported by Warpwave's replacement for cudaforge, which neither compiles host code nor downloads sources")]
    Unsupported(String),
}

/// An architecture of NVIDIA's, by its compute capability.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GpuArch(usize);

impl GpuArch {
    /// Creates it from a number such as 90.
    pub fn new(base: usize) -> GpuArch {
        GpuArch(base)
    }

    /// Returns the number.
    pub fn base(&self) -> usize {
        self.0
    }
}

/// Returns 90: kernels see the branches of `__CUDA_ARCH__` for it on AMD GPUs, and those of their own on NVIDIA GPUs, when they are
/// compiled at run time.
pub fn detect_compute_cap() -> Result<GpuArch> {
    Ok(GpuArch(90))
}
