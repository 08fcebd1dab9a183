//! The drivers that this process has loaded already.
//!
//! A library that is loaded into any program must not start a GPU driver that the program does not use, and must use the program's own
//! instance of the one that it does. So nothing is searched for here: the loader is asked what there is. It counts what it loads, and the
//! names are only looked at again when that count has changed.

use std::ffi::{CStr, OsStr, c_int, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::driver::Driver;
use crate::error::Result;
use crate::library::Library;
use crate::table::{Failure, Source, Table, Vendor};
use crate::vendor::{self, code};

/// A driver library that the program loaded. It is started when first used.
pub struct Loaded {
    vendor: Vendor,
    path: PathBuf,
    table: Table,
    driver: OnceLock<Result<Arc<Driver>>>,
}

static CUDA: OnceLock<Loaded> = OnceLock::new();
static HIP: OnceLock<Loaded> = OnceLock::new();

/// The CUDA driver, `libcuda.so.1`, if the program loaded it.
pub fn cuda() -> Option<&'static Loaded> {
    look();
    CUDA.get()
}

/// The HIP runtime, `libamdhip64.so`, if the program loaded it; one that stands in for it counts.
pub fn hip() -> Option<&'static Loaded> {
    look();
    HIP.get()
}

/// Both of them that are there.
#[inline]
pub fn all() -> impl Iterator<Item = &'static Loaded> {
    look();
    [CUDA.get(), HIP.get()].into_iter().flatten()
}

impl Loaded {
    /// Opens what the loader has already: the same instance.
    fn open(vendor: Vendor, path: PathBuf) -> Result<Loaded> {
        let table = Table::new(vendor, Source::Library(Library::open_file("a loaded driver", &path)?));
        Ok(Loaded { vendor, path, table, driver: OnceLock::new() })
    }

    /// The driver, started now if it was not yet.
    pub fn driver(&self) -> Result<&Arc<Driver>> {
        let start = || {
            let label = if self.vendor == Vendor::Nvidia { "cuda" } else { "rocm" };
            Driver::of_library(label, self.vendor, Library::open_file("a loaded driver", &self.path)?, self.path.clone())
        };
        self.driver.get_or_init(start).as_ref().map_err(Clone::clone)
    }

    /// Whether memory of it can exist: the program has started it. CUDA tells; HIP starts with the first call, whatever it is, so
    /// that a program with HIP counts as one that uses it.
    pub fn is_started(&self) -> bool {
        let started = |answer| !matches!(answer, Err(Failure::Code { code: code::NOT_INITIALIZED, .. }));
        self.driver.get().is_some() || self.vendor == Vendor::Amd || started(vendor::current(&self.table).map(drop))
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
        let (vendor, place) = match name {
            _ if name.starts_with(b"libcuda.so.1") => (Vendor::Nvidia, &CUDA),
            _ if name.starts_with(b"libamdhip64.so") => (Vendor::Amd, &HIP),
            _ => continue,
        };
        if place.get().is_none() {
            match Loaded::open(vendor, path) {
                Ok(loaded) => drop(place.set(loaded)),
                Err(error) => tracing::warn!(%error, "a loaded driver cannot be opened"),
            }
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
