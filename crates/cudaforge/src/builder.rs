//! The builder that build scripts use.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use crate::sources::{Selection, gather};
use crate::{Error, Result, container};

/// Collects sources and settings of a build. Settings for nvcc are accepted and have no effect, except for `-D` and `-I`.
#[derive(Debug, Clone, Default)]
pub struct KernelBuilder {
    selection: Selection,
    folders: Vec<PathBuf>,
    defines: Vec<(String, String)>,
    out: Option<PathBuf>,
    cutlass: bool,
}

impl KernelBuilder {
    /// Creates a builder that packs all sources below `src`.
    pub fn new() -> KernelBuilder {
        KernelBuilder::default()
    }

    /// Adds the `.cu` files below a folder.
    pub fn source_dir(mut self, folder: impl AsRef<Path>) -> KernelBuilder {
        self.selection.folders.push(folder.as_ref().to_owned());
        self
    }

    /// Adds files.
    pub fn source_files<P: AsRef<Path>>(mut self, files: impl IntoIterator<Item = P>) -> KernelBuilder {
        self.selection.files.extend(files.into_iter().map(|file| file.as_ref().to_owned()));
        self
    }

    /// Adds the `.cu` files that match a pattern.
    pub fn source_glob(mut self, pattern: &str) -> KernelBuilder {
        self.selection.patterns.push(pattern.to_owned());
        self
    }

    /// Leaves out files by patterns for their names, or for their paths where a pattern contains a slash.
    pub fn exclude(mut self, patterns: &[&str]) -> KernelBuilder {
        self.selection.excluded.extend(patterns.iter().map(|pattern| (*pattern).to_owned()));
        self
    }

    /// Adds a folder to search for headers.
    pub fn include_path(mut self, folder: impl Into<PathBuf>) -> KernelBuilder {
        self.folders.push(folder.into());
        self
    }

    /// Takes an option for nvcc. Macros and include folders take effect, the others do not.
    pub fn arg(mut self, option: &str) -> KernelBuilder {
        if let Some(define) = option.strip_prefix("-D") {
            let (name, value) = define.split_once('=').unwrap_or((define, "1"));
            self.defines.push((name.to_owned(), value.to_owned()));
        } else if let Some(folder) = option.strip_prefix("-I") {
            self.folders.push(PathBuf::from(folder));
        }
        self
    }

    /// Takes several options for nvcc.
    pub fn args<S: AsRef<str>>(self, options: impl IntoIterator<Item = S>) -> KernelBuilder {
        options.into_iter().fold(self, |builder, option| builder.arg(option.as_ref()))
    }

    /// Takes files whose changes repeat the build; cargo is told about every packed file anyway.
    pub fn watch<P: AsRef<Path>>(self, _paths: impl IntoIterator<Item = P>) -> KernelBuilder {
        self
    }

    /// Takes an architecture; the kernels are compiled for the device at run time.
    pub fn compute_cap(self, _capability: usize) -> KernelBuilder {
        self
    }

    /// Takes a share of the machine's threads; packing needs one.
    pub fn thread_percentage(self, _share: f32) -> KernelBuilder {
        self
    }

    /// Takes a number of threads; packing needs one.
    pub fn max_threads(self, _threads: usize) -> KernelBuilder {
        self
    }

    /// Sets the folder for the results instead of `OUT_DIR`.
    pub fn out_dir(mut self, folder: impl Into<PathBuf>) -> KernelBuilder {
        self.out = Some(folder.into());
        self
    }

    /// Asks for NVIDIA's CUTLASS. The build fails: kernels that need it do not compile for AMD GPUs.
    pub fn with_cutlass(mut self, _commit: Option<&str>) -> KernelBuilder {
        self.cutlass = true;
        self
    }

    fn out(&self) -> Result<PathBuf> {
        let variable = || std::env::var_os("OUT_DIR").map(PathBuf::from);
        self.out.clone().or_else(variable).ok_or(Error::NoVariable("OUT_DIR"))
    }

    fn refuse_cutlass(&self) -> Result<()> {
        if self.cutlass { Err(Error::Unsupported("CUTLASS (candle-flash-attn)".to_owned())) } else { Ok(()) }
    }

    /// Packs each source with its headers into `OUT_DIR/NAME.cu.txt`.
    pub fn build_ptx(&self) -> Result<PtxOutput> {
        self.refuse_cutlass()?;
        let out = self.out()?;
        let mut containers = Vec::new();
        for source in self.selection.resolve()? {
            let (mut files, read) = gather(&source, &self.folders)?;
            read.iter().for_each(|path| println!("cargo:rerun-if-changed={}", path.display()));
            let defines: String = self.defines.iter().map(|(name, value)| format!("#define {name} {value}\n")).collect();
            if !defines.is_empty() {
                files[0].1 = format!("{defines}#line 1\n{}", files[0].1);
            }
            let text = container::pack(files.iter().map(|(name, text)| (name.as_str(), text.as_str())));
            let stem = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let path = out.join(format!("{stem}.cu.txt"));
            write(&path, text.as_bytes())?;
            containers.push((stem, path));
        }
        Ok(PtxOutput { containers })
    }

    /// Writes an empty static library, and an empty `libcudart.a` beside it: the functions of the sources are in Warpwave's `cudarc`, and
    /// the CUDA runtime is not needed.
    ///
    /// Where no C++ library is installed for the linker, an empty `libstdc++.a` takes its place.
    pub fn build_lib(&self, library: impl Into<PathBuf>) -> Result<()> {
        self.refuse_cutlass()?;
        // The sources must exist as for the real crate.
        self.selection.resolve()?;
        let library = library.into();
        write(&library, EMPTY_ARCHIVE)?;
        let folder = library.parent().map(Path::to_owned).unwrap_or_default();
        write(&folder.join("libcudart.a"), EMPTY_ARCHIVE)?;
        if !has_cpp_library() {
            write(&folder.join("libstdc++.a"), EMPTY_ARCHIVE)?;
        }
        Ok(())
    }
}

const EMPTY_ARCHIVE: &[u8] = b"!<arch>\n";

/// Whether the C compiler, which links Rust programs, finds the C++ library. It answers with a path if so, else with the name.
fn has_cpp_library() -> bool {
    ["libstdc++.so", "libstdc++.a"].iter().any(|name| {
        let output = std::process::Command::new("cc").arg(format!("-print-file-name={name}")).output();
        output.is_ok_and(|output| output.status.success() && output.stdout.contains(&b'/'))
    })
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    std::fs::write(path, bytes).map_err(|error| Error::File { action: "write", path: path.to_owned(), error })
}

/// Packed sources.
#[derive(Debug)]
pub struct PtxOutput {
    containers: Vec<(String, PathBuf)>,
}

impl PtxOutput {
    /// Writes a Rust file with one `pub const NAME: &str` per source.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        let mut text = String::new();
        for (stem, container) in &self.containers {
            let name = stem.to_uppercase().replace(['.', '-'], "_");
            // Writing to a string cannot fail. The path as a literal: it may contain any character.
            let _ = writeln!(text, "pub const {name}: &str = include_str!({:?});", container.to_string_lossy());
        }
        write(path.as_ref(), text.as_bytes())
    }
}
