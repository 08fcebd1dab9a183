//! Helpers shared by the test suites of the workspace.
//!
//! - Requirements: a test that lacks a tool is skipped with a message, and fails if `WARPWAVE_REQUIRE_ALL=1` ([`require`]).
//! - Samples: large case matrices are sampled unless `WARPWAVE_TEST_FULL=1` ([`full_run`]).
//! - Seeds: each run draws fresh inputs and prints its seed; `WARPWAVE_SEED` repeats it ([`seed`], [`Random`]).
//! - Files: tests find the workspace through `WARPWAVE_ROOT`, or at the path they were built in ([`workspace_root`]).
//!
//! The feature `devices` adds the virtual AMD GPUs.
//!
//! ```
//! use warpwave_test_support::{Random, require, seed};
//!
//! if require(std::path::Path::new("/").exists(), "a root folder") {
//!     let mut random = Random::new(seed());
//!     assert!(random.below(10) < 10);
//! }
//! ```
#![warn(missing_docs)]

#[cfg(feature = "devices")]
mod devices;
mod random;

use std::io::Write;
use std::path::{Path, PathBuf};

#[cfg(feature = "devices")]
pub use devices::{compiles_for, virtual_device, virtual_devices, virtual_driver};
pub use random::Random;

/// Whether the variable is set to `1`.
fn is_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| value == "1")
}

/// Returns whether what a test needs is present. If not, prints that the test is skipped.
///
/// # Panics
/// If it is not present and `WARPWAVE_REQUIRE_ALL=1`.
pub fn require(present: bool, what: &str) -> bool {
    if !present {
        assert!(!is_set("WARPWAVE_REQUIRE_ALL"), "missing: {what}; WARPWAVE_REQUIRE_ALL=1 allows no test to be skipped");
        eprintln!("skipped: missing {what}");
    }
    present
}

/// Returns whether every case of the large matrices shall run (`WARPWAVE_TEST_FULL=1`).
pub fn full_run() -> bool {
    is_set("WARPWAVE_TEST_FULL")
}

/// Returns a fresh seed, or that of `WARPWAVE_SEED`, and prints it.
pub fn seed() -> u64 {
    let given =
        std::env::var("WARPWAVE_SEED").ok().map(|text| text.parse().unwrap_or_else(|_| panic!("WARPWAVE_SEED={text} is not an integer")));
    let fresh = || std::time::UNIX_EPOCH.elapsed().map_or(1, |time| time.as_nanos() as u64 & 0xffff_ffff);
    let seed = given.unwrap_or_else(fresh);
    // Written directly: the test harness discards what passing tests print with the macros.
    _ = writeln!(std::io::stderr(), "WARPWAVE_SEED={seed} repeats this run");
    seed
}

/// Returns the folder of the workspace: `WARPWAVE_ROOT`, or the path the test was built in.
pub fn workspace_root() -> PathBuf {
    std::env::var_os("WARPWAVE_ROOT").map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."), PathBuf::from)
}

/// Returns the file of SmolLM2-135M-Instruct (`WARPWAVE_TEST_MODEL`); `None` if the test is to be skipped.
pub fn test_model() -> Option<PathBuf> {
    let file = std::env::var_os("WARPWAVE_TEST_MODEL").map(PathBuf::from);
    require(file.is_some(), "WARPWAVE_TEST_MODEL, the path of SmolLM2-135M-Instruct.Q4_1.gguf");
    file
}
