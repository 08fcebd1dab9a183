//! Messages on standard error. `WARPWAVE_LOG=debug` adds the calls that are not supported.

use std::fmt::Arguments;
use std::sync::OnceLock;

/// Prints what a program's author must know: a fault, or code that cannot be loaded.
pub fn warn(message: Arguments<'_>) {
    eprintln!("warpwave: hsa: {message}");
}

/// Prints a detail if `WARPWAVE_LOG` is `debug` or `trace`.
pub fn debug(message: Arguments<'_>) {
    static ENABLED: OnceLock<bool> = OnceLock::new();
    if *ENABLED.get_or_init(|| std::env::var("WARPWAVE_LOG").is_ok_and(|level| level == "debug" || level == "trace")) {
        eprintln!("warpwave: hsa: {message}");
    }
}
