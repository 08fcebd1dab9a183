//! The kernel library, compiled in a build script.

use std::path::{Path, PathBuf};

use warpwave_jit::{ArchiveBuilder, Jit, Target};
use warpwave_kernels::compile_archive;

use crate::{Error, output};

/// The kernels that Warpwave's models use, to compile for several targets into one archive.
///
/// `build.rs`:
///
/// ```no_run
/// # fn main() -> Result<(), warpwave_build::Error> {
/// warpwave_build::KernelLibrary::new(["gfx90a", "sm_90a"]).compile("kernels.wwa")?;
/// # Ok(())
/// # }
/// ```
///
/// The program embeds the archive and loads kernels from it:
///
/// ```ignore
/// let archive = Archive::from_static(include_bytes!(concat!(env!("OUT_DIR"), "/kernels.wwa")))?;
/// let device = Device::gpu(&gpu, &Jit::with_archives(vec![archive]))?;
/// ```
///
/// A target takes minutes. Compiled kernels are kept in the kernel cache, so that the next build is fast.
#[derive(Debug, Clone)]
pub struct KernelLibrary {
    targets: Vec<String>,
}

impl KernelLibrary {
    /// Names the targets: `gfx90a`, `sm_90a`.
    pub fn new<S: Into<String>>(targets: impl IntoIterator<Item = S>) -> KernelLibrary {
        KernelLibrary { targets: targets.into_iter().map(Into::into).collect() }
    }

    /// Compiles for every target and writes the archive to `OUT_DIR/name`; returns its path. For build scripts: prints cargo's
    /// `rerun-if` lines.
    pub fn compile(&self, name: &str) -> Result<PathBuf, Error> {
        let path = output(name)?;
        // Without such a line cargo would run the script again whenever a file of the package changes.
        println!("cargo::rerun-if-changed=build.rs");
        self.compile_into(&path)?;
        Ok(path)
    }

    /// Compiles for every target and writes the archive to a file.
    pub fn compile_into(&self, path: &Path) -> Result<(), Error> {
        let targets: Vec<Target> = self.targets.iter().map(|target| target.parse()).collect::<Result<_, _>>()?;
        if targets.is_empty() {
            return Err(Error::NoLibraryTargets);
        }
        let (jit, mut archive) = (Jit::default(), ArchiveBuilder::new());
        for target in targets {
            compile_archive(&mut archive, &jit, target, &|_| ())?;
        }
        std::fs::write(path, archive.finish()).map_err(|error| Error::Write { path: path.to_owned(), error })
    }
}
