//! Ctrl-C handling during generation: the first press stops generation, the second ends the program.

use std::sync::atomic::{AtomicBool, Ordering};

static PRESSED: AtomicBool = AtomicBool::new(false);

extern "C" fn pressed(_: libc::c_int) {
    PRESSED.store(true, Ordering::Relaxed);
}

/// Guard that catches the first Ctrl-C; the second has the default action.
pub(crate) struct Interrupt {
    before: libc::sigaction,
}

impl Interrupt {
    /// Installs the handler.
    pub fn listen() -> Interrupt {
        PRESSED.store(false, Ordering::Relaxed);
        // SAFETY: an all-zero sigaction is valid: default action, no flags, empty mask.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = pressed as extern "C" fn(libc::c_int) as libc::sighandler_t;
        // SA_RESETHAND restores the default action, so that a second Ctrl-C ends the program.
        action.sa_flags = libc::SA_RESETHAND | libc::SA_RESTART;
        // SAFETY: as above; overwritten with the previous action.
        let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: both structs outlive the call, and the handler only stores to an atomic, which is async-signal-safe.
        unsafe { libc::sigaction(libc::SIGINT, &action, &mut before) };
        Interrupt { before }
    }

    pub fn pressed(&self) -> bool {
        PRESSED.load(Ordering::Relaxed)
    }
}

impl Drop for Interrupt {
    fn drop(&mut self) {
        // SAFETY: `before` was filled in by sigaction.
        unsafe { libc::sigaction(libc::SIGINT, &self.before, std::ptr::null_mut()) };
    }
}
