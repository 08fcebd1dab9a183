//! Messages on standard error.
//!
//! They have Warpwave's form, or CAIL's when a `CAIL_*` variable is set, so that scripts written for CAIL find the lines they search for:
//!
//! | message | Warpwave | CAIL |
//! |---|---|---|
//! | first call (debug) | `warpwave-mpi: initialized: …` | `[cail] initialized: …` |
//! | each call (debug) | `warpwave-mpi: rank 0 of 2: F32 Sum, 4096 bytes: ring (…)` | `[cail] algorithm=ring (…)` |
//! | warning | `warpwave-mpi: …` | `[cail WARN] …` |
//! | invalid setting | `warpwave-mpi: …` | `[cail ERROR] …` |
//!
//! `WARPWAVE_MPI_DEBUG=1` or `CAIL_DEBUG=1` enables the debug messages; `CAIL_WARN=0` disables the warnings. Every rank prints its own
//! lines. The text in parentheses is the reason for the choice.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::io::Write as _;
use std::sync::{Mutex, OnceLock};

use crate::abi::Mpi;
use crate::comm::lock;
use crate::settings::{CommSettings, ProcessSettings};

/// The severity of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Debug,
    Warn,
    Error,
}

/// Formats one line.
fn format(cail: bool, level: Level, text: &dyn Display) -> String {
    let prefix = match (cail, level) {
        (false, _) => "warpwave-mpi:",
        (true, Level::Debug) => "[cail]",
        (true, Level::Warn) => "[cail WARN]",
        (true, Level::Error) => "[cail ERROR]",
    };
    format!("{prefix} {text}\n")
}

fn print(level: Level, text: &dyn Display) {
    let line = format(ProcessSettings::get().cail, level, text);
    // One write, because the ranks share standard error.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Prints a warning, unless warnings are disabled.
pub fn warn(text: impl Display) {
    if ProcessSettings::get().warn {
        print(Level::Warn, &text);
    }
}

/// Prints a warning once per process: for conditions that repeat with every call.
pub fn warn_once(text: impl Display) {
    static PRINTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let text = text.to_string();
    if lock(&PRINTED).insert(text.clone()) {
        warn(text);
    }
}

/// Prints that a setting is invalid and what is used instead.
pub fn invalid_setting(text: impl Display) {
    print(Level::Error, &text);
}

/// Prints once what this process runs with, if debug messages are enabled.
pub(crate) fn initialized(mpi: &Mpi) {
    static DONE: OnceLock<()> = OnceLock::new();
    let settings = ProcessSettings::get();
    if settings.debug {
        DONE.get_or_init(|| {
            let (version, forced) = (env!("CARGO_PKG_VERSION"), CommSettings::from_env().forced());
            let forced = forced.map_or_else(|| "auto".to_owned(), |selection| selection.to_string());
            print(Level::Debug, &format_args!("initialized: version={version} mpi=\"{}\" algo={forced}", mpi.version));
        });
    }
}

/// What a debug message says of a call.
pub(crate) struct CallInfo<'a> {
    pub rank: usize,
    pub ranks: usize,
    pub bytes: u64,
    /// Datatype and operator.
    pub operation: &'a str,
    pub algorithm: &'a str,
    pub reason: &'a str,
}

impl CallInfo<'_> {
    fn text(&self, cail: bool) -> String {
        let CallInfo { rank, ranks, bytes, operation, algorithm, reason } = self;
        if cail {
            format!("algorithm={algorithm} ({reason}; {operation}, {bytes} bytes, rank {rank} of {ranks})")
        } else {
            format!("rank {rank} of {ranks}: {operation}, {bytes} bytes: {algorithm} ({reason})")
        }
    }

    /// Prints which algorithm was chosen for a call. The caller checks that debug messages are enabled.
    #[cold]
    pub fn print(&self) {
        print(Level::Debug, &self.text(ProcessSettings::get().cail));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_the_form_that_is_searched_for() {
        let call = CallInfo { rank: 0, ranks: 2, bytes: 4096, operation: "F32 Sum", algorithm: "ring", reason: "set by CAIL_ALGO" };
        let line = format(true, Level::Debug, &call.text(true));
        assert_eq!(line, "[cail] algorithm=ring (set by CAIL_ALGO; F32 Sum, 4096 bytes, rank 0 of 2)\n");
        let line = format(false, Level::Debug, &call.text(false));
        assert_eq!(line, "warpwave-mpi: rank 0 of 2: F32 Sum, 4096 bytes: ring (set by CAIL_ALGO)\n");
        assert_eq!(format(true, Level::Warn, &"x"), "[cail WARN] x\n");
        assert_eq!(format(true, Level::Error, &"x"), "[cail ERROR] x\n");
        assert_eq!(format(false, Level::Error, &"x"), "warpwave-mpi: x\n");
    }
}
