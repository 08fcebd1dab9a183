//! Executable memory.

use std::io;
use std::ptr::NonNull;

/// Machine code in pages that are readable and executable, never writable at the same time.
#[derive(Debug)]
pub struct CodePages {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the pages do not change after `new`.
unsafe impl Send for CodePages {}
// SAFETY: the pages do not change after `new`.
unsafe impl Sync for CodePages {}

impl CodePages {
    /// Copies machine code into pages of its own. Fails where the system forbids executable memory.
    pub fn new(code: &[u8]) -> io::Result<CodePages> {
        let bytes = code.len().max(1);
        // SAFETY: an anonymous mapping at an address that the system chooses affects no other memory.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let Some(start) = NonNull::new(start.cast::<u8>()) else { return Err(io::ErrorKind::OutOfMemory.into()) };
        // From here on `drop` unmaps it.
        let pages = CodePages { start, bytes };
        // SAFETY: the mapping is at least as long as the code, and writable.
        unsafe { std::ptr::copy_nonoverlapping(code.as_ptr(), start.as_ptr(), code.len()) };
        // SAFETY: the range is the mapping.
        if unsafe { libc::mprotect(start.as_ptr().cast(), bytes, libc::PROT_READ | libc::PROT_EXEC) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(pages)
    }

    /// Returns the address of the first byte.
    pub fn start(&self) -> *const u8 {
        self.start.as_ptr()
    }
}

impl Drop for CodePages {
    fn drop(&mut self) {
        // SAFETY: the range is the mapping, and nothing executes it: whoever does holds the owner.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
