//! The driver libraries that this process has already loaded.
//!
//! An interposer must not initialize a GPU driver that the program does not use, and must use the program's own instance. So this module
//! searches no files: it reads the dynamic loader's list, and again only when the loader's count of loaded objects has changed.

use std::ffi::{CStr, OsStr, c_int, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::driver::Driver;
use crate::error::Result;
use crate::library::{Library, VIRTUAL_MARKER};
use crate::table::{Failure, Source, Table, Vendor};
use crate::vendor::{self, code};

/// A driver library that the program loaded. It is initialized at its first use.
pub struct LoadedDriver {
    vendor: Vendor,
    path: PathBuf,
    table: Table,
    driver: OnceLock<Result<Arc<Driver>>>,
    /// For HIP: whether it is the virtual GPU, or the machine has AMD's kernel driver.
    can_start: bool,
}

/// In the order they were found. There may be two of one vendor: a network library can load the vendor's HIP into programs that use
/// another one, or none.
static LOADED: [OnceLock<LoadedDriver>; 4] = [const { OnceLock::new() }; 4];

/// Returns the loaded drivers: `libcuda.so.1` and `libamdhip64.so`, the virtual GPU's included.
#[inline]
pub fn all() -> impl Iterator<Item = &'static LoadedDriver> {
    refresh();
    LOADED.iter().map_while(OnceLock::get)
}

impl LoadedDriver {
    /// Opens the instance that the loader has already.
    fn open(vendor: Vendor, path: PathBuf) -> Result<LoadedDriver> {
        let library = Library::open_file("a loaded driver", &path)?;
        let can_start =
            library.symbol(VIRTUAL_MARKER).is_some() || ["/dev/kfd", "/dev/dxg"].iter().any(|device| Path::new(device).exists());
        Ok(LoadedDriver { vendor, path, table: Table::new(vendor, Source::Library(library)), driver: OnceLock::new(), can_start })
    }

    /// Returns the driver, initialized now if needed.
    pub fn driver(&self) -> Result<&Arc<Driver>> {
        let start = || {
            let label = if self.vendor == Vendor::Nvidia { "cuda" } else { "rocm" };
            Driver::from_library(label, self.vendor, Library::open_file("a loaded driver", &self.path)?, self.path.clone())
        };
        self.driver.get_or_init(start).as_ref().map_err(Clone::clone)
    }

    /// Returns the vendor whose API it implements.
    pub fn vendor(&self) -> Vendor {
        self.vendor
    }

    /// Returns whether the program has initialized it, so that its memory can exist. CUDA reports this; HIP initializes itself at the first
    /// call, so a loaded HIP counts as initialized on a machine with AMD's kernel driver.
    pub fn is_initialized(&self) -> bool {
        if self.driver.get().is_some() {
            return true;
        }
        match self.vendor {
            Vendor::Nvidia => !matches!(vendor::current(&self.table), Err(Failure::Code { code: code::NOT_INITIALIZED, .. })),
            Vendor::Amd => self.can_start,
        }
    }
}

/// The loader's count when its list was last read; 0 before.
static SEEN: AtomicU64 = AtomicU64::new(0);

#[inline]
fn refresh() {
    let now = load_count();
    if now != SEEN.load(Ordering::Acquire) {
        read_list(now);
    }
}

#[cold]
fn read_list(now: u64) {
    static LOCK: Mutex<()> = Mutex::new(());
    let _lock = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    for path in objects() {
        let name = path.file_name().unwrap_or_default().as_bytes();
        let vendor = match name {
            _ if name.starts_with(b"libcuda.so.1") => Vendor::Nvidia,
            _ if name.starts_with(b"libamdhip64.so") => Vendor::Amd,
            _ => continue,
        };
        if LOADED.iter().any(|slot| slot.get().is_some_and(|known| known.path == path)) {
            continue;
        }
        match (LoadedDriver::open(vendor, path), LOADED.iter().find(|slot| slot.get().is_none())) {
            (Ok(loaded), Some(slot)) => drop(slot.set(loaded)),
            (Ok(loaded), None) => {
                let (limit, path) = (LOADED.len(), loaded.path.display());
                tracing::warn!("too many drivers are loaded (at most {limit}); ignoring {path}");
            }
            (Err(error), _) => tracing::warn!(%error, "cannot open the GPU driver library that this process has already loaded"),
        }
    }
    SEEN.store(now, Ordering::Release);
}

/// Returns the loader's count of loaded objects.
fn load_count() -> u64 {
    unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, _size: usize, out: *mut c_void) -> c_int {
        // SAFETY: the loader passes a live object, `load_count` its counter.
        unsafe { *out.cast::<u64>() = (*info).dlpi_adds };
        1
    }
    let mut adds = 0u64;
    // SAFETY: the function fits, and `adds` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut adds).cast()) };
    adds
}

/// Returns the files of all loaded objects.
fn objects() -> Vec<PathBuf> {
    unsafe extern "C" fn each(info: *mut libc::dl_phdr_info, _size: usize, out: *mut c_void) -> c_int {
        // SAFETY: the loader passes a live object with a NUL-terminated name, `objects` its list.
        let (name, list) = unsafe { ((*info).dlpi_name, &mut *out.cast::<Vec<PathBuf>>()) };
        if !name.is_null() {
            // SAFETY: as above.
            list.push(PathBuf::from(OsStr::from_bytes(unsafe { CStr::from_ptr(name) }.to_bytes())));
        }
        0
    }
    let mut list: Vec<PathBuf> = Vec::new();
    // SAFETY: the function fits, and `list` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut list).cast()) };
    list
}
