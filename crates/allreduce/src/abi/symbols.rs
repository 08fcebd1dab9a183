//! Finds the MPI library among the libraries loaded into this process.

use std::ffi::{CStr, CString, c_void};

/// MPI library names, for processes that load MPI outside the global scope, as Python modules do.
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

/// A scope in which symbols are looked up.
pub struct SymbolScope {
    /// Handle for `dlsym`: the global scope or one library.
    handle: *mut c_void,
}

impl SymbolScope {
    /// Returns the scope that contains this process's MPI library.
    pub fn loaded() -> Option<SymbolScope> {
        // The global scope first: executables hold copies of Open MPI's variables (copy relocations).
        let global = SymbolScope { handle: libc::RTLD_DEFAULT };
        if global.symbol("PMPI_Allreduce").is_some() {
            return Some(global);
        }
        SONAMES.iter().find_map(|name| {
            let name = CString::new(*name).ok()?;
            // SAFETY: RTLD_NOLOAD loads nothing and runs no initializers.
            let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
            let scope = SymbolScope { handle };
            (!handle.is_null() && scope.symbol("PMPI_Allreduce").is_some()).then_some(scope)
        })
    }

    /// Returns the address of a function or variable.
    pub fn symbol(&self, name: &str) -> Option<*const c_void> {
        if name.is_empty() {
            return None;
        }
        let name = CString::new(name).ok()?;
        // SAFETY: the handle is valid for the life of the process; the name is NUL-terminated.
        let found = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        (!found.is_null()).then_some(found.cast_const())
    }

    /// Returns the file that contains a symbol.
    pub fn library_of(&self, name: &str) -> Option<String> {
        let address = self.symbol(name)?;
        let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: dladdr accepts any address and fills `info` when it returns non-zero.
        if unsafe { libc::dladdr(address, info.as_mut_ptr()) } == 0 {
            return None;
        }
        // SAFETY: initialized above; all zeros is a valid value too.
        let info = unsafe { info.assume_init() };
        if info.dli_fname.is_null() {
            return None;
        }
        // SAFETY: a C string that lives as long as the library.
        Some(unsafe { CStr::from_ptr(info.dli_fname) }.to_string_lossy().into_owned())
    }
}
