//! Compiles CUDA kernels in a build script, so that a program needs no compiler where it runs.
//!
//! `build.rs`:
//!
//! ```no_run
//! # fn main() -> Result<(), warpwave_build::Error> {
//! warpwave_build::Kernels::new("kernels/scale.cu").targets(["gfx90a", "gfx1100", "sm_90"]).compile("scale.wwb")?;
//! # Ok(())
//! # }
//! ```
//!
//! The program embeds the bundle and loads the code that fits its device:
//!
//! ```ignore
//! let bundle = warpwave::jit::embed!(concat!(env!("OUT_DIR"), "/scale.wwb"))?;
//! let kernel = bundle.load(&warpwave::device("auto")?)?.kernel("scale")?;
//! ```
//!
//! With the feature `kernels`, `KernelLibrary` compiles the kernels of Warpwave's own models, for a program that runs models without a
//! compiler.
//!
//! What this crate promises: the bundle has code for every requested target, or [`Kernels::compile`] returns an error that names the source, the target
//! and the compiler's message; cargo runs the build script again when the source, a file it includes or a compiler variable changes. What it leaves to the
//! caller: clang for AMD targets and NVRTC for NVIDIA targets must be installed where the program is built.
#![warn(missing_docs)]

#[cfg(feature = "kernels")]
mod library;

use std::path::{Path, PathBuf};

#[cfg(feature = "kernels")]
pub use library::KernelLibrary;
use warpwave_jit::{Bundle, CompileError, InvalidTarget, Jit, KernelSource, SourceError, Target};

/// Environment variables that choose a compiler.
const COMPILER_VARIABLES: [&str; 5] =
    ["WARPWAVE_CLANG", "WARPWAVE_DEVICE_LIBS", "WARPWAVE_HIPRTC_LIB", "WARPWAVE_NVRTC_LIB", "WARPWAVE_CUDA_INCLUDE"];

/// Why kernels could not be compiled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The source or a file it includes cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A target is not an architecture.
    #[error(transparent)]
    Target(#[from] InvalidTarget),
    /// No target was given.
    #[error("{}: no targets; add .targets([\"gfx90a\", \"sm_90\"])", path.display())]
    NoTargets {
        /// The source.
        path: PathBuf,
    },
    /// The compiler is missing or rejected the source.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// A kernel of the library cannot be compiled.
    #[cfg(feature = "kernels")]
    #[error(transparent)]
    Library(#[from] warpwave_kernels::ArchiveFailure),
    /// No target was given for the kernel library.
    #[error("no targets for the kernel library; name some: KernelLibrary::new([\"gfx90a\", \"sm_90a\"])")]
    NoLibraryTargets,
    /// `OUT_DIR` is not set.
    #[error("OUT_DIR is not set; call compile() from a build script, or compile_into() elsewhere")]
    NoOutDir,
    /// The bundle cannot be written.
    #[error("cannot write {}: {error}", path.display())]
    Write {
        /// The bundle.
        path: PathBuf,
        /// The system's answer.
        #[source]
        error: std::io::Error,
    },
}

/// Returns `OUT_DIR/name`, and asks cargo to run the build script again if a compiler changes.
fn output(name: &str) -> Result<PathBuf, Error> {
    let folder = std::env::var_os("OUT_DIR").map(PathBuf::from).ok_or(Error::NoOutDir)?;
    COMPILER_VARIABLES.iter().for_each(|variable| println!("cargo::rerun-if-env-changed={variable}"));
    Ok(folder.join(name))
}

/// A CUDA source to compile for several targets.
#[derive(Debug, Clone)]
pub struct Kernels {
    path: PathBuf,
    targets: Vec<String>,
    include_dirs: Vec<PathBuf>,
    defines: Vec<(String, String)>,
}

impl Kernels {
    /// Names a CUDA C++ file, relative to the package's folder.
    pub fn new(path: impl Into<PathBuf>) -> Kernels {
        Kernels { path: path.into(), targets: Vec::new(), include_dirs: Vec::new(), defines: Vec::new() }
    }

    /// Adds targets: `gfx90a`, `sm_90`, `compute_80`.
    pub fn targets<S: Into<String>>(mut self, targets: impl IntoIterator<Item = S>) -> Kernels {
        self.targets.extend(targets.into_iter().map(Into::into));
        self
    }

    /// Adds a folder to search for included files.
    pub fn include(mut self, folder: impl Into<PathBuf>) -> Kernels {
        self.include_dirs.push(folder.into());
        self
    }

    /// Defines a macro.
    pub fn define(mut self, name: impl Into<String>, value: impl Into<String>) -> Kernels {
        self.defines.push((name.into(), value.into()));
        self
    }

    /// Compiles for every target and writes the bundle to `OUT_DIR/name`; returns its path. For build scripts: prints cargo's
    /// `rerun-if-changed` lines.
    pub fn compile(&self, name: &str) -> Result<PathBuf, Error> {
        // Before the first error: cargo must run the script again when the cause is fixed.
        let path = output(name)?;
        println!("cargo::rerun-if-changed={}", self.path.display());
        let source = self.source()?;
        source.includes().iter().for_each(|included| println!("cargo::rerun-if-changed={}", included.path.display()));
        self.write(&source, &path)?;
        Ok(path)
    }

    /// Compiles for every target and writes the bundle to a file.
    pub fn compile_into(&self, path: &Path) -> Result<(), Error> {
        self.write(&self.source()?, path)
    }

    fn source(&self) -> Result<KernelSource, Error> {
        let mut source = KernelSource::from_file(&self.path)?;
        for folder in &self.include_dirs {
            source = source.include_dir(folder)?;
        }
        for (name, value) in &self.defines {
            source = source.define(name, value);
        }
        Ok(source)
    }

    fn write(&self, source: &KernelSource, path: &Path) -> Result<(), Error> {
        let targets: Vec<Target> = self.targets.iter().map(|target| target.parse()).collect::<Result<_, _>>()?;
        if targets.is_empty() {
            return Err(Error::NoTargets { path: self.path.clone() });
        }
        let bundle = Bundle::compile(&Jit::default(), source, &targets)?;
        std::fs::write(path, bundle.to_bytes()).map_err(|error| Error::Write { path: path.to_owned(), error })
    }
}
