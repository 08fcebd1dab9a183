//! Ctrl-C while a text is generated: the first ends the text, the second the program.

use std::sync::atomic::{AtomicBool, Ordering};

static PRESSED: AtomicBool = AtomicBool::new(false);

extern "C" fn pressed(_: libc::c_int) {
    PRESSED.store(true, Ordering::Relaxed);
}

/// While it lives, Ctrl-C is heard of rather than deadly: once.
pub(super) struct Interrupt {
    before: libc::sigaction,
}

impl Interrupt {
    pub fn listen() -> Interrupt {
        PRESSED.store(false, Ordering::Relaxed);
        // SAFETY: all zeros are an action (the default one) without flags and with an empty mask.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = pressed as extern "C" fn(libc::c_int) as libc::sighandler_t;
        // The second one finds the default action, which ends the program.
        action.sa_flags = libc::SA_RESETHAND | libc::SA_RESTART;
        // SAFETY: as above; it is overwritten with what was there.
        let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: both outlive the call, and the handler does nothing but store to an atomic, which signals may.
        unsafe { libc::sigaction(libc::SIGINT, &action, &mut before) };
        Interrupt { before }
    }

    pub fn pressed(&self) -> bool {
        PRESSED.load(Ordering::Relaxed)
    }
}

impl Drop for Interrupt {
    fn drop(&mut self) {
        // SAFETY: it is what the system gave us.
        unsafe { libc::sigaction(libc::SIGINT, &self.before, std::ptr::null_mut()) };
    }
}
