//! Finding the MPI among the libraries of this process.

use std::ffi::{CStr, CString, c_void};

/// Names under which MPIs are installed, for processes that keep theirs out of the global scope (Python's modules do).
const SONAMES: &[&str] = &[
    "libmpi.so.40",
    "libmpi.so.12",
    "libmpich.so.12",
    "libmpi_abi.so.0",
    "libmpi_abi.so.1",
    "libmpi_cray.so.12",
    "libmpi_gnu_123.so.12",
    "libmpi_ibm.so.3",
    "libmpi.so.20",
    "libmpi.so",
];

/// Where to look for symbols.
pub struct Finder {
    /// For `dlsym`: the process's global scope, or one library.
    scope: *mut c_void,
}

impl Finder {
    /// The scope in which this process's MPI is.
    pub fn loaded() -> Option<Finder> {
        // Variables must come from the global scope where they are there: programs hold copies of Open MPI's.
        let global = Finder { scope: libc::RTLD_DEFAULT };
        if global.symbol("PMPI_Allreduce").is_some() {
            return Some(global);
        }
        SONAMES.iter().find_map(|name| {
            let name = CString::new(*name).ok()?;
            // SAFETY: with RTLD_NOLOAD nothing is loaded or started.
            let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
            let finder = Finder { scope: handle };
            (!handle.is_null() && finder.symbol("PMPI_Allreduce").is_some()).then_some(finder)
        })
    }

    /// The address of a function or variable.
    pub fn symbol(&self, name: &str) -> Option<*const c_void> {
        if name.is_empty() {
            return None;
        }
        let name = CString::new(name).ok()?;
        // SAFETY: the scope is valid for the life of the process, the name ends with 0.
        let found = unsafe { libc::dlsym(self.scope, name.as_ptr()) };
        (!found.is_null()).then_some(found.cast_const())
    }

    /// The file that holds a symbol.
    pub fn library_of(&self, name: &str) -> Option<String> {
        let address = self.symbol(name)?;
        let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: dladdr accepts any address and fills `info` when it returns non-zero.
        if unsafe { libc::dladdr(address, info.as_mut_ptr()) } == 0 {
            return None;
        }
        // SAFETY: filled above; all bits zero are a valid value as well.
        let info = unsafe { info.assume_init() };
        if info.dli_fname.is_null() {
            return None;
        }
        // SAFETY: a C string that lives as long as the library.
        Some(unsafe { CStr::from_ptr(info.dli_fname) }.to_string_lossy().into_owned())
    }
}
