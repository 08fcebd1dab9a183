//! Finding the compilers of this machine without running or opening them.
//!
//! A cache hit must start no process and open no 100 MB library, so the search looks at file names only. Versions are queried through a
//! [`VersionCache`], which may store them under the compiler's [`Identity`].

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use warpwave_gpu::Vendor;
use warpwave_gpu::library::{python_folders, versioned_folders};

use crate::compile::{CompileError, CompilerChoice};
use crate::rtc;
use crate::target::Target;

/// clang releases to search on `PATH`, newest first. Older ones lack options this crate uses.
const CLANG_VERSIONS: std::ops::RangeInclusive<u32> = 15..=22;
const NVRTC_NAMES: &[&str] = &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2"];
const HIPRTC_NAMES: &[&str] = &["libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so.5"];
/// Before ROCm 7 the runtime library includes hipRTC.
const HIP_NAMES: &[&str] = &["libamdhip64.so.6", "libamdhip64.so.5"];

/// The compilers found, each list in order of preference.
#[derive(Debug, Clone, Default)]
pub struct Toolchains {
    /// clang, for AMD.
    pub clang: Vec<Tool>,
    /// hipRTC, for AMD.
    pub hiprtc: Vec<Tool>,
    /// NVRTC, for NVIDIA.
    pub nvrtc: Vec<Tool>,
    searched: [Vec<String>; 3],
}

/// A compiler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tool {
    /// clang as a process.
    Clang(ClangTool),
    /// NVRTC as a library.
    Nvrtc(RtcTool),
    /// hipRTC as a library.
    HipRtc(RtcTool),
}

/// clang and the device libraries it may link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClangTool {
    /// The program.
    pub path: PathBuf,
    /// Folders with `ocml.bc` in the order to try them: bitcode of a newer LLVM than this clang is unreadable.
    pub device_libs: Vec<PathBuf>,
}

/// A runtime compiler's library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RtcTool {
    /// The library.
    pub path: PathBuf,
    /// Folders with the vendor's headers (`cuda_fp16.h`).
    pub include_dirs: Vec<PathBuf>,
}

/// Path, size and modification time of a compiler's files. Equal identities are the same compiler.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Identity(String);

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A cache of compiler versions.
pub trait VersionCache {
    /// Returns the version of `identity`: stored, or from `query`, which runs the compiler.
    fn version(&self, identity: &Identity, query: &mut dyn FnMut() -> Result<String, CompileError>) -> Result<String, CompileError>;
}

/// Stores nothing: every request runs the compiler.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoVersionCache;

impl VersionCache for NoVersionCache {
    fn version(&self, _: &Identity, query: &mut dyn FnMut() -> Result<String, CompileError>) -> Result<String, CompileError> {
        query()
    }
}

/// No compiler was found for a target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no compiler found for {target}. Install one: `{install}`. Searched: {}", shortened(searched))]
pub struct NoCompiler {
    /// The target, with the compiler if one was requested.
    pub target: String,
    /// The command that installs one.
    pub install: &'static str,
    /// The files that were tried.
    pub searched: Vec<String>,
}

/// Lists the first paths; a machine with a long `PATH` has hundreds.
fn shortened(paths: &[String]) -> String {
    const SHOWN: usize = 12;
    let mut text = paths.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    if paths.len() > SHOWN {
        text += &format!(" and {} more", paths.len() - SHOWN);
    }
    text
}

const INSTALL_CLANG: &str = "apt install clang-19 lld-19 rocm-device-libs";
const INSTALL_HIPRTC: &str = "apt install libamdhip64-dev";
const INSTALL_NVRTC: &str = "pip install nvidia-cuda-nvrtc-cu12 nvidia-cuda-runtime-cu12";

impl Toolchains {
    /// Searches for compilers. `WARPWAVE_CLANG`, `WARPWAVE_NVRTC_LIB` and `WARPWAVE_HIPRTC_LIB` replace the search; otherwise the vendors'
    /// folders, `PATH`, the loader's folders and Python packages are searched.
    pub fn find() -> Toolchains {
        let packages = packages();
        let mut found = Toolchains::default();
        let libs = device_libs(&packages);
        for path in search(&clang_candidates(), &mut found.searched[0]) {
            // Without its linker it can only make an object file, which no driver loads.
            if !has_linker(&path) {
                found.searched[0].push(format!("{} (its linker lld is missing)", path.display()));
                continue;
            }
            found.clang.push(Tool::Clang(ClangTool { device_libs: libs_for(&path, &libs), path }));
        }
        for path in search(&library_candidates("WARPWAVE_NVRTC_LIB", NVRTC_NAMES, &nvrtc_folders(&packages)), &mut found.searched[1]) {
            found.nvrtc.push(Tool::Nvrtc(RtcTool { include_dirs: cuda_include_dirs(&path, &packages), path }));
        }
        let names = [HIPRTC_NAMES, HIP_NAMES].concat();
        // The compiler must match the HIP library: prefer the one beside a library that the user chose.
        let beside: Vec<PathBuf> = file_variable("WARPWAVE_HIP_LIB").and_then(|f| f.parent().map(Path::to_owned)).into_iter().collect();
        let mut candidates = library_candidates("WARPWAVE_HIPRTC_LIB", &names, &beside);
        candidates.extend(library_candidates("WARPWAVE_HIPRTC_LIB", &names, &hip_folders(&packages)));
        for path in search(&candidates, &mut found.searched[2]) {
            found.hiprtc.push(Tool::HipRtc(RtcTool { path, include_dirs: Vec::new() }));
        }
        found
    }

    /// Returns the compiler to use for `target`.
    pub fn choose(&self, target: &Target, choice: CompilerChoice) -> Result<&Tool, NoCompiler> {
        use CompilerChoice::{Auto, Clang, HipRtc, Nvrtc};
        let found = match (target.vendor(), choice) {
            (Vendor::Nvidia, Auto | Nvrtc) => self.nvrtc.first(),
            // A clang that the user chose is not replaced by hipRTC.
            (Vendor::Amd, Auto) if variable("WARPWAVE_CLANG").is_some() => self.clang.first(),
            (Vendor::Amd, Auto) => self.clang.first().or(self.hiprtc.first()),
            (Vendor::Amd, Clang) => self.clang.first(),
            (Vendor::Amd, HipRtc) => self.hiprtc.first(),
            // The compiler does not support this vendor.
            (Vendor::Nvidia, Clang | HipRtc) | (Vendor::Amd, Nvrtc) => None,
        };
        found.ok_or_else(|| {
            let [clang, nvrtc, hiprtc] = &self.searched;
            let (install, searched) = match (target.vendor(), choice) {
                (Vendor::Nvidia, _) => (INSTALL_NVRTC, nvrtc.clone()),
                (Vendor::Amd, HipRtc) => (INSTALL_HIPRTC, hiprtc.clone()),
                (Vendor::Amd, _) => (INSTALL_CLANG, [&clang[..], &hiprtc[..]].concat()),
            };
            let target = match choice {
                Auto => target.to_string(),
                other => format!("{target} with {other:?}"),
            };
            NoCompiler { target, install, searched }
        })
    }
}

impl Tool {
    /// Returns `clang`, `NVRTC` or `hipRTC`.
    pub fn name(&self) -> &'static str {
        match self {
            Tool::Clang(_) => "clang",
            Tool::Nvrtc(_) => "NVRTC",
            Tool::HipRtc(_) => "hipRTC",
        }
    }

    /// Returns the path of the program or library.
    pub fn path(&self) -> &Path {
        match self {
            Tool::Clang(tool) => &tool.path,
            Tool::Nvrtc(tool) | Tool::HipRtc(tool) => &tool.path,
        }
    }

    /// Returns its identity, from file metadata alone.
    pub fn identity(&self) -> Identity {
        let mut files = vec![self.path().to_owned()];
        match self {
            Tool::Clang(tool) => files.extend(tool.device_libs.iter().map(|f| f.join("ocml.bc"))),
            // One file per header package: the toolkit's, and CCCL's, which is updated separately.
            Tool::Nvrtc(tool) | Tool::HipRtc(tool) => {
                files.extend(
                    tool.include_dirs.iter().flat_map(|f| [f.join("cuda_fp16.h"), f.join("cuda/std/version"), f.join("cub/version.cuh")]),
                );
            }
        }
        Identity(files.iter().map(|f| stamp(f)).collect::<Vec<_>>().join("; "))
    }

    /// Returns its version string.
    pub fn version(&self, cache: &dyn VersionCache) -> Result<String, CompileError> {
        cache.version(&self.identity(), &mut || match self {
            Tool::Clang(tool) => clang_version(&tool.path),
            Tool::Nvrtc(tool) => rtc::version_text(Vendor::Nvidia, &tool.path),
            Tool::HipRtc(tool) => rtc::version_text(Vendor::Amd, &tool.path),
        })
    }
}

/// Returns path, size and modification time of a file, with links resolved.
fn stamp(path: &Path) -> String {
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let Ok(facts) = real.metadata() else { return format!("{} (absent)", real.display()) };
    let since = facts.modified().ok().and_then(|t| t.duration_since(std::time::UNIX_EPOCH).ok()).unwrap_or_default();
    format!("{} {} {}.{:09}", real.display(), facts.len(), since.as_secs(), since.subsec_nanos())
}

fn clang_version(path: &Path) -> Result<String, CompileError> {
    let io = |error| CompileError::Io { what: format!("cannot run {} --version", path.display()), error };
    let output = Command::new(path).arg("--version").env("LC_ALL", "C").stdin(Stdio::null()).output().map_err(io)?;
    if !output.status.success() {
        return Err(io(std::io::Error::other(format!("exited with {}", output.status))));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}

/// Returns the existing files among the candidates, each real file once. Adds all candidates to `log`.
fn search(candidates: &[PathBuf], log: &mut Vec<String>) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    let mut real = Vec::new();
    for candidate in candidates {
        log.push(candidate.display().to_string());
        if let Ok(file) = candidate.canonicalize()
            && file.is_file()
            && !real.contains(&file)
        {
            real.push(file);
            found.push(candidate.clone());
        }
    }
    found
}

fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from)
}

/// Returns a file that the user chose as an absolute path: the loader searches for names without a slash.
fn file_variable(name: &str) -> Option<PathBuf> {
    variable(name).map(|path| std::path::absolute(&path).unwrap_or(path))
}

fn path_folders() -> Vec<PathBuf> {
    std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default()
}

/// Returns Python's package folders, those of `PYTHONPATH` first.
fn packages() -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = std::env::var_os("PYTHONPATH").map(|p| std::env::split_paths(&p).collect()).unwrap_or_default();
    all.extend(python_folders());
    all
}

fn clang_candidates() -> Vec<PathBuf> {
    if let Some(chosen) = variable("WARPWAVE_CLANG") {
        // A bare name is looked up like a command.
        return if chosen.components().count() > 1 { vec![chosen] } else { path_folders().into_iter().map(|f| f.join(&chosen)).collect() };
    }
    let mut all = Vec::new();
    all.extend(variable("ROCM_PATH").map(|f| f.join("llvm/bin/clang")));
    all.extend(versioned_folders("/opt", "rocm", "llvm/bin/clang"));
    let names = CLANG_VERSIONS.rev().map(|v| format!("clang-{v}")).chain(["clang".to_owned()]);
    for name in names {
        all.extend(path_folders().into_iter().map(|f| f.join(&name)));
    }
    all
}

/// Returns whether clang will find `lld`: beside itself, with links resolved, or on `PATH`.
fn has_linker(clang: &Path) -> bool {
    let beside = [clang.to_owned(), clang.canonicalize().unwrap_or_default()].into_iter().filter_map(|c| c.parent().map(Path::to_owned));
    beside.chain(path_folders()).any(|folder| folder.join("lld").exists())
}

/// Returns all folders with the device library.
fn device_libs(packages: &[PathBuf]) -> Vec<PathBuf> {
    let mut all = Vec::new();
    if let Some(chosen) = variable("WARPWAVE_DEVICE_LIBS") {
        return vec![chosen];
    }
    all.extend(variable("ROCM_PATH").map(|f| f.join("amdgcn/bitcode")));
    all.extend(versioned_folders("/opt", "rocm", "amdgcn/bitcode"));
    all.extend(
        ["/usr/lib/x86_64-linux-gnu/amdgcn/bitcode", "/usr/lib64/amdgcn/bitcode", "/usr/lib/amdgcn/bitcode", "/usr/amdgcn/bitcode"]
            .map(PathBuf::from),
    );
    for tail in ["amdgcn/bitcode", "lib/amdgcn/bitcode"] {
        all.extend(versioned_folders("/usr/lib/clang", "", tail));
        all.extend(versioned_folders("/usr/lib64/clang", "", tail));
    }
    // The packages of Debian 13 and Ubuntu 24.04, which may belong to another clang than the one found.
    all.extend(CLANG_VERSIONS.rev().map(|v| PathBuf::from(format!("/usr/lib/llvm-{v}/lib/clang/{v}/amdgcn/bitcode"))));
    all.extend(packages.iter().map(|f| f.join("_rocm_sdk_core/lib/llvm/amdgcn/bitcode")));
    all.retain(|f| f.join("ocml.bc").is_file());
    all
}

/// Returns the device libraries in the order to try with one clang: its own installation first.
fn libs_for(clang: &Path, all: &[PathBuf]) -> Vec<PathBuf> {
    let real = clang.canonicalize().unwrap_or_else(|_| clang.to_owned());
    // `<root>/llvm/bin/clang` belongs to `<root>/amdgcn/bitcode`.
    let own = real.ancestors().nth(3).map(|root| root.join("amdgcn/bitcode")).filter(|f| f.join("ocml.bc").is_file());
    let mut ordered: Vec<PathBuf> = own.filter(|_| variable("WARPWAVE_DEVICE_LIBS").is_none()).into_iter().collect();
    for folder in all {
        if !ordered.contains(folder) {
            ordered.push(folder.clone());
        }
    }
    ordered
}

/// Combines names and folders: all folders for the newest name first, since the newest compiler supports the most GPUs.
fn library_candidates(override_variable: &str, names: &[&str], folders: &[PathBuf]) -> Vec<PathBuf> {
    if let Some(chosen) = file_variable(override_variable) {
        return vec![chosen];
    }
    names.iter().flat_map(|name| folders.iter().map(move |f| f.join(name))).collect()
}

/// Returns the dynamic loader's folders: `LD_LIBRARY_PATH`, its configuration, its defaults.
fn loader_folders() -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = std::env::var_os("LD_LIBRARY_PATH").map(|p| std::env::split_paths(&p).collect()).unwrap_or_default();
    let mut files = vec![PathBuf::from("/etc/ld.so.conf")];
    files.extend(std::fs::read_dir("/etc/ld.so.conf.d").into_iter().flatten().flatten().map(|e| e.path()));
    files.sort();
    for file in files {
        let Ok(text) = std::fs::read_to_string(file) else { continue };
        all.extend(text.lines().map(str::trim).filter(|l| l.starts_with('/')).map(PathBuf::from));
    }
    all.extend(["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"].map(PathBuf::from));
    all.retain(|f| !f.as_os_str().is_empty());
    all.dedup();
    all
}

fn nvrtc_folders(packages: &[PathBuf]) -> Vec<PathBuf> {
    let mut all = loader_folders();
    all.extend(["CUDA_HOME", "CUDA_PATH"].iter().filter_map(|v| variable(v)).map(|f| f.join("lib64")));
    all.extend(versioned_folders("/usr/local", "cuda", "lib64"));
    all.extend(versioned_folders("/usr/local", "cuda", "targets/x86_64-linux/lib"));
    all.extend(packages.iter().flat_map(|f| [f.join("nvidia/cu13/lib"), f.join("nvidia/cuda_nvrtc/lib")]));
    all
}

fn hip_folders(packages: &[PathBuf]) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = Vec::new();
    all.extend(["HIP_PATH", "ROCM_PATH"].iter().filter_map(|v| variable(v)).flat_map(|f| [f.join("lib"), f.join("lib64")]));
    all.extend(loader_folders());
    all.extend(versioned_folders("/opt", "rocm", "lib"));
    all.extend(versioned_folders("/opt", "rocm", "lib64"));
    all.extend(packages.iter().map(|f| f.join("_rocm_sdk_core/lib")));
    all
}

/// Returns the folders with CUDA's headers: the one the user chose, or those beside the NVRTC library.
fn cuda_include_dirs(nvrtc: &Path, packages: &[PathBuf]) -> Vec<PathBuf> {
    if let Some(chosen) = file_variable("WARPWAVE_CUDA_INCLUDE") {
        // The wheels have `cuda/std` in a package beside it.
        let cccl = chosen.ancestors().nth(2).map(|f| f.join("cuda_cccl/include")).filter(|f| f.join("cuda/std").is_dir());
        return std::iter::once(chosen).chain(cccl).collect();
    }
    let real = nvrtc.canonicalize().unwrap_or_else(|_| nvrtc.to_owned());
    let mut all = Vec::new();
    if let Some(root) = real.parent().and_then(Path::parent) {
        all.push(root.join("include"));
        // Wheels of CUDA 12 have one folder per component: `nvidia/cuda_nvrtc`, `nvidia/cuda_runtime`.
        all.extend(root.parent().into_iter().flat_map(|f| [f.join("cuda_runtime/include"), f.join("cuda_cccl/include")]));
    }
    all.extend(packages.iter().flat_map(|f| [f.join("nvidia/cu13/include"), f.join("nvidia/cuda_runtime/include")]));
    all.extend(versioned_folders("/usr/local", "cuda", "include"));
    all.push("/usr/include".into());
    // Only the first folder with the half header: headers of two CUDA versions must not be mixed.
    let main = all.iter().find(|f| f.join("cuda_fp16.h").is_file()).cloned();
    // CUDA 13 has CCCL in a folder of its own.
    let cccl = all.iter().flat_map(|f| [f.clone(), f.join("cccl")]).find(|f| f.join("cuda/std").is_dir());
    let mut chosen: Vec<PathBuf> = main.into_iter().chain(cccl).collect();
    chosen.dedup();
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_found_says_what_to_install() {
        let none = Toolchains {
            searched: [vec!["/bin/clang-19".to_owned()], vec!["/lib/libnvrtc.so.12".to_owned()], vec![]],
            ..Default::default()
        };
        let amd = none.choose(&"gfx90a".parse().unwrap(), CompilerChoice::Auto).unwrap_err().to_string();
        assert!(amd.contains("gfx90a") && amd.contains(INSTALL_CLANG) && amd.contains("/bin/clang-19"), "{amd}");
        let nvidia = none.choose(&"sm_90".parse().unwrap(), CompilerChoice::Auto).unwrap_err().to_string();
        assert!(nvidia.contains(INSTALL_NVRTC) && nvidia.contains("libnvrtc.so.12"), "{nvidia}");
    }

    #[test]
    fn a_compiler_of_the_other_vendor_is_not_chosen() {
        let all = Toolchains::find();
        assert!(all.choose(&"sm_90".parse().unwrap(), CompilerChoice::Clang).is_err());
        assert!(all.choose(&"gfx90a".parse().unwrap(), CompilerChoice::Nvrtc).is_err());
    }

    #[test]
    fn identities_change_with_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("libnvrtc.so.12");
        std::fs::write(&path, "1").unwrap();
        let tool = Tool::Nvrtc(RtcTool { path: path.clone(), include_dirs: vec![] });
        let before = tool.identity();
        assert_eq!(before, tool.identity());
        std::fs::write(&path, "12").unwrap();
        assert_ne!(before, tool.identity());
    }

    #[test]
    fn a_memo_that_knows_starts_nothing() {
        struct Knows;
        impl VersionCache for Knows {
            fn version(&self, _: &Identity, _: &mut dyn FnMut() -> Result<String, CompileError>) -> Result<String, CompileError> {
                Ok("remembered".to_owned())
            }
        }
        let tool = Tool::Clang(ClangTool { path: "/nowhere/clang".into(), device_libs: vec![] });
        assert_eq!(tool.version(&Knows).unwrap(), "remembered");
        assert!(tool.version(&NoVersionCache).is_err());
    }
}
