//! A vendor's driver: finding, opening and initializing it, and its devices.

use std::ffi::c_void;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use crate::device::{Device, DeviceInner};
use crate::error::{Error, Result};
use crate::library::{Library, Search, VIRTUAL_MARKER, python_folders, versioned_folders};
use crate::table::{Failure, Source, Table, Vendor};
use crate::vendor::{self, MemoryKind, code};

/// A driver's version: 12.9 for CUDA, 6.2.41133 for HIP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Major.
    pub major: u32,
    /// Minor.
    pub minor: u32,
    /// Patch; 0 for CUDA.
    pub patch: u32,
}

impl Version {
    /// Decodes the vendor's number: CUDA 12090, HIP 60241133.
    pub fn from_number(vendor: Vendor, number: i32) -> Version {
        let n = number.max(0).unsigned_abs();
        match vendor {
            Vendor::Nvidia => Version { major: n / 1000, minor: n % 1000 / 10, patch: 0 },
            Vendor::Amd => Version { major: n / 10_000_000, minor: n / 100_000 % 100, patch: n % 100_000 },
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)?;
        if self.patch > 0 { write!(f, ".{}", self.patch) } else { Ok(()) }
    }
}

/// An initialized driver.
pub struct Driver {
    pub(crate) table: Table,
    label: String,
    library: PathBuf,
    version: Version,
    names: Vec<String>,
    is_virtual: bool,
    /// Devices opened so far: opening one again returns the same device with the same pool.
    opened: Mutex<Vec<Weak<DeviceInner>>>,
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Driver({} {} from {})", self.label, self.version, self.library.display())
    }
}

/// Returns where to look for the CUDA driver. Never `libcuda.so`, which is the toolkit's stub.
pub fn cuda_search() -> Search {
    let mut folders: Vec<PathBuf> = [
        "/usr/lib/wsl/lib",
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib64",
        "/usr/local/nvidia/lib64",
        "/run/opengl-driver/lib",
        "/usr/lib/aarch64-linux-gnu/nvidia",
    ]
    .map(PathBuf::from)
    .to_vec();
    folders.extend(versioned_folders("/usr/local", "cuda", "lib64"));
    folders.extend(versioned_folders("/usr/local", "cuda", "compat"));
    Search { what: "the CUDA driver", variable: "WARPWAVE_CUDA_LIB", names: vec!["libcuda.so.1".to_owned()], folders }
}

/// Returns where to look for the HIP runtime. Wheels ship only versioned names.
pub fn hip_search() -> Search {
    let names = ["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"].map(str::to_owned).to_vec();
    Search { what: "the HIP runtime", variable: "WARPWAVE_HIP_LIB", names, folders: rocm_library_folders() }
}

/// Returns the folders that may hold ROCm's libraries.
pub fn rocm_library_folders() -> Vec<PathBuf> {
    let from_env = ["ROCM_PATH", "HIP_PATH"].into_iter().filter_map(std::env::var_os).map(PathBuf::from);
    let mut folders: Vec<PathBuf> = from_env.flat_map(|root| [root.join("lib"), root.join("lib64")]).collect();
    folders.extend(versioned_folders("/opt", "rocm", "lib"));
    folders.extend(versioned_folders("/opt", "rocm", "lib64"));
    folders.extend(["/usr/lib/x86_64-linux-gnu", "/usr/lib64"].map(PathBuf::from));
    for packages in python_folders() {
        folders.push(packages.join("_rocm_sdk_core/lib"));
        folders.push(packages.join("torch/lib"));
    }
    folders
}

impl Driver {
    /// Returns the CUDA driver of this machine, opened once per process.
    pub fn cuda() -> Result<Arc<Driver>> {
        static CUDA: OnceLock<Result<Arc<Driver>>> = OnceLock::new();
        CUDA.get_or_init(|| Driver::open("cuda", Vendor::Nvidia, &cuda_search())).clone()
    }

    /// Returns the HIP runtime of this machine, opened once per process.
    pub fn rocm() -> Result<Arc<Driver>> {
        static ROCM: OnceLock<Result<Arc<Driver>>> = OnceLock::new();
        ROCM.get_or_init(|| Driver::open("rocm", Vendor::Amd, &hip_search())).clone()
    }

    /// Opens and initializes the driver that `search` finds.
    pub fn open(label: &str, vendor: Vendor, search: &Search) -> Result<Arc<Driver>> {
        let library = Library::open(search)?;
        let path = library.path(match vendor {
            Vendor::Nvidia => "cuInit",
            Vendor::Amd => "hipInit",
        });
        Driver::from_library(label, vendor, library, path)
    }

    /// Initializes the driver of an open library.
    pub(crate) fn from_library(label: &str, vendor: Vendor, library: Library, path: PathBuf) -> Result<Arc<Driver>> {
        Driver::start(label, Table::new(vendor, Source::Library(library)), path, None)
    }

    /// Creates a driver from functions in this process: `lookup` returns the address of a vendor symbol.
    ///
    /// `names` are the device names after the colon; by default they are numbered.
    ///
    /// # Safety
    /// Each address must be a function with the C signature that the table's row declares.
    pub unsafe fn in_process(
        label: &str,
        vendor: Vendor,
        lookup: fn(&str) -> Option<*const c_void>,
        names: Option<Vec<String>>,
    ) -> Result<Arc<Driver>> {
        Driver::start(label, Table::new(vendor, Source::InProcess(lookup)), PathBuf::from("(in process)"), names)
    }

    fn start(label: &str, table: Table, library: PathBuf, names: Option<Vec<String>>) -> Result<Arc<Driver>> {
        let fail = |failure| to_error(&table, label, &library, failure);
        // SAFETY: the flags must be 0.
        let count = match unsafe { table.init(0) } {
            Ok(()) => {
                let mut count = 0;
                // SAFETY: `count` outlives the call.
                match unsafe { table.device_count(&mut count) } {
                    Ok(()) => usize::try_from(count).unwrap_or(0),
                    Err(failure) if is_no_device(failure) => 0,
                    Err(failure) => return Err(fail(failure)),
                }
            }
            // A library without a card is a driver without devices, not an error.
            Err(failure) if is_no_device(failure) => 0,
            Err(failure) => return Err(fail(failure)),
        };
        let mut number = 0;
        // SAFETY: `number` outlives the call.
        unsafe { table.driver_version(&mut number) }.map_err(fail)?;
        let version = Version::from_number(table.vendor(), number);
        let suffixes = names.unwrap_or_else(|| (0..count).map(|i| i.to_string()).collect());
        let names = suffixes.iter().take(count).map(|s| format!("{label}:{s}")).collect();
        tracing::debug!(%label, %version, devices = count, library = %library.display(), "driver started");
        let is_virtual = table.source().symbol(VIRTUAL_MARKER).is_some();
        Ok(Arc::new(Driver { table, label: label.to_owned(), library, version, names, is_virtual, opened: Mutex::default() }))
    }

    /// Returns the part of its devices' names before the colon: `cuda`, `rocm`, `vgpu`.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Returns the vendor whose API it implements.
    pub fn vendor(&self) -> Vendor {
        self.table.vendor()
    }

    /// Returns the library's path.
    pub fn library(&self) -> &std::path::Path {
        &self.library
    }

    /// Returns the version it reports.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns whether its devices are emulated by the CPU.
    pub fn is_virtual(&self) -> bool {
        self.is_virtual
    }

    /// Returns whether its functions are part of this process rather than of a library.
    pub fn is_in_process(&self) -> bool {
        matches!(self.table.source(), Source::InProcess(_))
    }

    /// Returns the names of its devices.
    pub fn device_names(&self) -> &[String] {
        &self.names
    }

    /// Returns the table's symbols that the library does not export. Such calls fail with [`Error::MissingSymbol`].
    pub fn missing_symbols(&self) -> Vec<&'static str> {
        let wanted = Table::ROWS.iter().filter_map(|row| row.symbol(self.vendor()));
        wanted.filter(|symbol| self.table.source().symbol(symbol).is_none()).collect()
    }

    /// Returns the address of any symbol of the library, for calls that the table does not have.
    pub fn symbol(&self, name: &str) -> Option<*const c_void> {
        self.table.source().symbol(name)
    }

    /// Opens a device. Opening it again while it is open returns the same device.
    pub fn device(self: &Arc<Self>, ordinal: usize) -> Result<Device> {
        let name = self
            .names
            .get(ordinal)
            .ok_or_else(|| Error::UnknownDevice { name: format!("{}:{ordinal}", self.label), available: self.names.clone() })?;
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if opened.len() <= ordinal {
            opened.resize_with(ordinal + 1, Weak::new);
        }
        if let Some(device) = opened[ordinal].upgrade() {
            return Ok(Device(device));
        }
        let device = Device::open(self, ordinal, name)?;
        opened[ordinal] = Arc::downgrade(&device.0);
        Ok(device)
    }

    /// Returns the kind of memory at `pointer`; `None` for pageable host memory.
    pub fn memory_kind_of(&self, pointer: u64) -> Result<Option<MemoryKind>> {
        let attribute = |number| {
            let mut value = 0u32;
            // SAFETY: these attributes are 32 bits wide (`IS_MANAGED` fewer), and any address may be queried.
            let outcome = unsafe { self.table.pointer_attribute((&raw mut value).cast(), number, pointer) };
            outcome.map(|()| value)
        };
        // HIP keeps a sticky last error, which querying a host address must not change.
        // SAFETY: no arguments.
        let clean = unsafe { self.table.peek_at_last_error() }.is_ok();
        let kind = match attribute(vendor::POINTER_MEMORY_TYPE) {
            Ok(number) => vendor::memory_kind(self.vendor(), self.version.major, number),
            // Unknown to the driver.
            Err(Failure::Code { code: code::INVALID_VALUE | code::NOT_FOUND, .. }) => {
                if clean {
                    // SAFETY: no arguments.
                    let _ = unsafe { self.table.get_last_error() };
                }
                return Ok(None);
            }
            Err(failure) => return Err(self.error(&self.label, failure)),
        };
        // CUDA reports managed memory as device memory, with this flag.
        let managed = attribute(vendor::POINTER_IS_MANAGED).is_ok_and(|flag| flag & 1 == 1);
        Ok(kind.map(|kind| if managed { MemoryKind::Unified } else { kind }))
    }

    /// Returns the ordinal of the device that `pointer` belongs to.
    pub fn device_of(&self, pointer: u64) -> Option<usize> {
        let mut ordinal = -1i32;
        // SAFETY: the attribute is 32 bits wide, and any address may be queried.
        unsafe { self.table.pointer_attribute((&raw mut ordinal).cast(), vendor::POINTER_DEVICE_ORDINAL, pointer) }.ok()?;
        usize::try_from(ordinal).ok()
    }

    /// Converts a failed call to an error that names the device.
    pub(crate) fn error(&self, device: &str, failure: Failure) -> Error {
        to_error(&self.table, device, &self.library, failure)
    }
}

fn is_no_device(failure: Failure) -> bool {
    // HIP returns 101 for the first call and 100 for later ones.
    matches!(failure, Failure::Code { code: code::NO_DEVICE | code::INVALID_DEVICE, .. })
}

#[cold]
fn to_error(table: &Table, device: &str, library: &std::path::Path, failure: Failure) -> Error {
    match failure {
        Failure::MissingSymbol(symbol) => Error::MissingSymbol { symbol, library: library.display().to_string() },
        Failure::NoSuchCall(row) => Error::Unsupported { what: row.replace('_', " "), device: device.to_owned() },
        Failure::Code { call, code } => {
            let (name, text) = vendor::error_text(table, code);
            if code::is_fatal(code) {
                let hint = match table.source() {
                    Source::Library(_) => ". The usual cause is an out-of-bounds access in a kernel",
                    Source::InProcess(_) => "",
                };
                return Error::DeviceLost { call, device: device.to_owned(), code, name, text, hint };
            }
            Error::Driver { call, device: device.to_owned(), code, name, text }
        }
    }
}
