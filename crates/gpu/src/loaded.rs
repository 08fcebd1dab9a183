//! The drivers that this process has loaded already.
//!
//! A library that is loaded into any program must not start a GPU driver that the program does not use, and must use the program's own
//! instance of the one that it does. So nothing is searched for here: the loader is asked what there is. It counts what it loads, and the
//! names are only looked at again when that count has changed.

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

/// A driver library that the program loaded. It is started when first used.
pub struct Loaded {
    vendor: Vendor,
    path: PathBuf,
    table: Table,
    driver: OnceLock<Result<Arc<Driver>>>,
    /// AMD's: it stands in for the vendor's, or the machine has AMD's kernel driver.
    can_start: bool,
}

/// In the order they were found. Two of one vendor may be there: a network library brings the vendor's HIP into programs that use
/// another one, or none.
static LOADED: [OnceLock<Loaded>; 4] = [const { OnceLock::new() }; 4];

/// The drivers that are loaded: `libcuda.so.1` and `libamdhip64.so`, one that stands in for it included.
#[inline]
pub fn all() -> impl Iterator<Item = &'static Loaded> {
    look();
    LOADED.iter().map_while(OnceLock::get)
}

impl Loaded {
    /// Opens what the loader has already: the same instance.
    fn open(vendor: Vendor, path: PathBuf) -> Result<Loaded> {
        let library = Library::open_file("a loaded driver", &path)?;
        let can_start =
            library.symbol(VIRTUAL_MARKER).is_some() || ["/dev/kfd", "/dev/dxg"].iter().any(|device| Path::new(device).exists());
        Ok(Loaded { vendor, path, table: Table::new(vendor, Source::Library(library)), driver: OnceLock::new(), can_start })
    }

    /// The driver, started now if it was not yet.
    pub fn driver(&self) -> Result<&Arc<Driver>> {
        let start = || {
            let label = if self.vendor == Vendor::Nvidia { "cuda" } else { "rocm" };
            Driver::of_library(label, self.vendor, Library::open_file("a loaded driver", &self.path)?, self.path.clone())
        };
        self.driver.get_or_init(start).as_ref().map_err(Clone::clone)
    }

    /// Whose API it speaks.
    pub fn vendor(&self) -> Vendor {
        self.vendor
    }

    /// Whether memory of it can exist: the program has started it. CUDA tells; HIP starts with the first call, whatever it is, so
    /// that a program with HIP counts as one that uses it, on a machine that has AMD's kernel driver.
    pub fn is_started(&self) -> bool {
        if self.driver.get().is_some() {
            return true;
        }
        match self.vendor {
            Vendor::Nvidia => !matches!(vendor::current(&self.table), Err(Failure::Code { code: code::NOT_INITIALIZED, .. })),
            Vendor::Amd => self.can_start,
        }
    }
}

/// What the loader had loaded when its list was read; 0 before.
static SEEN: AtomicU64 = AtomicU64::new(0);

#[inline]
fn look() {
    let now = loads();
    if now != SEEN.load(Ordering::Acquire) {
        look_again(now);
    }
}

#[cold]
fn look_again(now: u64) {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for path in objects() {
        let name = path.file_name().unwrap_or_default().as_bytes();
        let vendor = match name {
            _ if name.starts_with(b"libcuda.so.1") => Vendor::Nvidia,
            _ if name.starts_with(b"libamdhip64.so") => Vendor::Amd,
            _ => continue,
        };
        if LOADED.iter().any(|place| place.get().is_some_and(|known| known.path == path)) {
            continue;
        }
        match (Loaded::open(vendor, path), LOADED.iter().find(|place| place.get().is_none())) {
            (Ok(loaded), Some(place)) => drop(place.set(loaded)),
            (Ok(loaded), None) => tracing::warn!(library = %loaded.path.display(), "more drivers than can be used"),
            (Err(error), _) => tracing::warn!(%error, "a loaded driver cannot be opened"),
        }
    }
    SEEN.store(now, Ordering::Release);
}

/// How many objects were loaded so far.
fn loads() -> u64 {
    unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, _size: usize, out: *mut c_void) -> c_int {
        // SAFETY: the loader hands a live object, `loads` its counter.
        unsafe { *out.cast::<u64>() = (*info).dlpi_adds };
        1
    }
    let mut adds = 0u64;
    // SAFETY: the function fits, and `adds` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut adds).cast()) };
    adds
}

/// The files of all objects.
fn objects() -> Vec<PathBuf> {
    unsafe extern "C" fn each(info: *mut libc::dl_phdr_info, _size: usize, out: *mut c_void) -> c_int {
        // SAFETY: the loader hands a live object with a NUL-terminated name, `objects` its list.
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
