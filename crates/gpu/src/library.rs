//! Finding and opening vendor libraries at run time.
//!
//! Libraries are opened with `RTLD_NOW | RTLD_LOCAL` (NCCL and RCCL export the same names) and never closed: drivers start threads and
//! register exit handlers.

use std::ffi::{CString, c_void};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Where to look for one library.
#[derive(Debug, Clone)]
pub struct Search {
    /// The library in messages: `the CUDA driver`.
    pub what: &'static str,
    /// Environment variable with a path that replaces the search.
    pub variable: &'static str,
    /// File names in order of preference. Versioned names first: the plain name is often missing or a stub.
    pub names: Vec<String>,
    /// Folders to try after the loader's search path.
    pub folders: Vec<PathBuf>,
}

/// The symbol that marks a driver as the virtual GPU. A library that exports it is opened only where a variable names its file and is
/// skipped by searches, so that an emulated GPU is never taken for hardware.
pub const VIRTUAL_MARKER: &str = "warpwave_virtual_gpu";

/// An opened library.
#[derive(Debug)]
pub struct Library {
    handle: ManuallyDrop<libloading::os::unix::Library>,
    opened_as: PathBuf,
}

impl Library {
    /// Opens the first library of `search` that loads.
    pub fn open(search: &Search) -> Result<Library> {
        let mut tried = Vec::new();
        let candidates = search.candidates();
        let overridden = std::env::var_os(search.variable).is_some_and(|v| !v.is_empty());
        for candidate in candidates {
            // A bare name goes to the loader; an absolute path only if the file exists, to keep the list of failures short.
            if candidate.is_absolute() && !candidate.exists() && !overridden {
                tried.push(format!("{}: no such file", candidate.display()));
                continue;
            }
            let flags = libc::RTLD_NOW | libc::RTLD_LOCAL;
            // SAFETY: running a vendor library's initializers is the purpose of this call; the file was chosen by the user's override or
            // by the documented search order.
            match unsafe { libloading::os::unix::Library::open(Some(&candidate), flags) } {
                Ok(handle) => {
                    tracing::debug!(library = search.what, path = %candidate.display(), "opened");
                    let library = Library { handle: ManuallyDrop::new(handle), opened_as: candidate };
                    if overridden || library.symbol(VIRTUAL_MARKER).is_none() {
                        return Ok(library);
                    }
                    tried.push(format!("{} is the virtual GPU library; set {} to use it", library.opened_as.display(), search.variable));
                }
                Err(error) => tried.push(describe_failure(&candidate, &error)),
            }
        }
        let reason = if overridden {
            format!("cannot open the file set in {}", search.variable)
        } else {
            format!("not installed or not in the search path; set {} to its path", search.variable)
        };
        Err(Error::NotAvailable { library: search.what.to_owned(), tried, reason })
    }

    /// Opens a file without a search.
    pub fn open_file(what: &'static str, path: &Path) -> Result<Library> {
        let flags = libc::RTLD_NOW | libc::RTLD_LOCAL;
        // SAFETY: running a vendor library's initializers is the purpose of this call; the caller chose the file.
        match unsafe { libloading::os::unix::Library::open(Some(path), flags) } {
            Ok(handle) => Ok(Library { handle: ManuallyDrop::new(handle), opened_as: path.to_owned() }),
            Err(error) => {
                let reason = format!("cannot open {}", path.display());
                Err(Error::NotAvailable { library: what.to_owned(), tried: vec![describe_failure(path, &error)], reason })
            }
        }
    }

    /// Returns the address of `symbol`, or `None` if the library does not export it.
    pub fn symbol(&self, symbol: &str) -> Option<*const c_void> {
        let name = CString::new(symbol).ok()?;
        // SAFETY: the type is a plain address; callers cast it to the type that their table row declares.
        let found = unsafe { self.handle.get::<*const c_void>(name.as_bytes_with_nul()) }.ok()?;
        let address = found.into_raw().cast_const();
        (!address.is_null()).then_some(address)
    }

    /// Returns the library's file as the loader reports it, or the name it was opened by. `symbol` is any symbol it exports.
    pub fn path(&self, symbol: &str) -> PathBuf {
        self.symbol(symbol).and_then(path_of_address).unwrap_or_else(|| self.opened_as.clone())
    }
}

impl Search {
    /// Returns the files to try, in order.
    pub fn candidates(&self) -> Vec<PathBuf> {
        if let Some(chosen) = std::env::var_os(self.variable).filter(|v| !v.is_empty()) {
            return vec![PathBuf::from(chosen)];
        }
        let by_loader = self.names.iter().map(PathBuf::from);
        let by_folder = self.folders.iter().flat_map(|f| self.names.iter().map(move |n| f.join(n)));
        by_loader.chain(by_folder).collect()
    }
}

fn describe_failure(candidate: &Path, error: &dyn std::error::Error) -> String {
    let text = error.source().map_or_else(|| error.to_string(), ToString::to_string);
    let name = candidate.display().to_string();
    // dlerror usually starts with the file name.
    if text.starts_with(&name) { text } else { format!("{name}: {text}") }
}

fn path_of_address(address: *const c_void) -> Option<PathBuf> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: dladdr accepts any address and fills `info` when it returns non-zero.
    let known = unsafe { libc::dladdr(address, info.as_mut_ptr()) } != 0;
    // SAFETY: zeroed is a valid Dl_info (null pointers).
    let info = unsafe { info.assume_init() };
    if !known || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: dladdr returned a NUL-terminated string owned by the loader, alive as long as the library.
    let name = unsafe { std::ffi::CStr::from_ptr(info.dli_fname) };
    let path = PathBuf::from(name.to_str().ok()?);
    Some(path.canonicalize().unwrap_or(path))
}

/// Returns the existing folders `parent/prefix*`, newest version first, with `tail` appended.
pub fn versioned_folders(parent: &str, prefix: &str, tail: &str) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(parent) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.flatten().filter_map(|e| e.file_name().into_string().ok()).filter(|n| n.starts_with(prefix)).collect();
    names.sort_by_key(|n| std::cmp::Reverse(version_key(n)));
    names.into_iter().map(|n| Path::new(parent).join(n).join(tail)).collect()
}

fn version_key(name: &str) -> Vec<u32> {
    name.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
}

/// Returns the `site-packages` folders of Python environments, where vendors' wheels install their libraries.
pub fn python_folders() -> Vec<PathBuf> {
    let mut roots: Vec<PathBuf> = Vec::new();
    roots.extend(std::env::var_os("VIRTUAL_ENV").map(PathBuf::from));
    if let Some(path) = std::env::var_os("PATH") {
        // `…/bin/python3` belongs to `…/lib/python3.x/site-packages`.
        let bins = std::env::split_paths(&path).filter(|p| p.ends_with("bin") && p.join("python3").exists());
        roots.extend(bins.filter_map(|p| p.parent().map(Path::to_path_buf)));
    }
    roots.extend(std::env::var_os("HOME").map(|h| PathBuf::from(h).join(".local")));
    roots.push("/usr/local".into());
    let mut found = Vec::new();
    for root in roots {
        let lib = root.join("lib");
        for tail in ["site-packages", "dist-packages"] {
            for folder in versioned_folders(&lib.to_string_lossy(), "python3", tail) {
                if folder.is_dir() && !found.contains(&folder) {
                    found.push(folder);
                }
            }
        }
    }
    found
}
