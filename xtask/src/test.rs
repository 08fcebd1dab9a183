//! `cargo xtask test`: the whole test suite with all tools.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use clap::Args;

use crate::book;
use crate::run::{self, Result, Steps, Workspace, cargo, failed, say};
use crate::timing::Timings;
use crate::tools::{Set, Tools};

/// Options of `cargo xtask test`.
#[derive(Args)]
pub struct Options {
    /// Run every case of large test matrices instead of a sample
    #[arg(long)]
    full: bool,
    /// Install nothing; skip tests whose tools are missing
    #[arg(long)]
    no_install: bool,
    /// Names of tests to run, and other arguments for the test programs
    #[arg(last = true, value_name = "FILTER")]
    filter: Vec<OsString>,
}

/// Test programs that run on every available device.
const DEVICE_SUITES: [&str; 4] = ["conformance", "graphs", "pool", "devices"];

/// Makes tests fail instead of skip if a tool is missing.
const REQUIRE_ALL: &str = "WARPWAVE_REQUIRE_ALL";

/// Runs the command.
pub fn main(options: &Options) -> Result<()> {
    let workspace = Workspace::find()?;
    let mut steps = Steps::default();
    let mut missing = Vec::new();
    let mut timings = Timings::new(test_threads(&options.filter));
    let result = all_steps(&workspace, options, &mut steps, &mut missing, &mut timings);
    timings.print();
    steps.print();
    if !missing.is_empty() {
        println!("\nWARNING: SOME TESTS WERE SKIPPED, because these tools are missing:");
        missing.iter().for_each(|tool| println!("  - {tool}"));
        if options.no_install {
            println!("Run without --no-install to install them.");
        }
    }
    result
}

fn all_steps(
    workspace: &Workspace,
    options: &Options,
    steps: &mut Steps,
    missing: &mut Vec<&'static str>,
    timings: &mut Timings,
) -> Result<()> {
    say("looking for tools");
    let tools = steps.step("tools", || Tools::ensure(workspace, Set::Test, !options.no_install))?;
    tools.print();
    *missing = tools.missing();
    // With REQUIRE_ALL (CI), fail before the long build.
    if !missing.is_empty() && std::env::var_os(REQUIRE_ALL).is_some_and(|v| v == "1") {
        return failed(format!("tools are missing (see above) and {REQUIRE_ALL}=1 does not allow skipped tests; install them or unset it"));
    }
    let cache = workspace.empty_folder("test-cache")?;
    let test = |arguments: &[&str]| {
        let mut command = cargo();
        command.current_dir(&workspace.root).args(["test", "--workspace"]).args(arguments);
        set_variables(&mut command, &tools, &cache, options.full);
        command
    };
    say("building the tests");
    steps.step("build", || run::checked(&mut test(&["--no-run"])))?;
    say(if options.full { "running the tests, all cases" } else { "running the tests" });
    // Report all failures in one run.
    let mut all = test(&["--no-fail-fast", "--"]);
    all.args(&options.filter);
    steps.step("tests and doc tests", || timings.run(&mut all))?;
    say("running the device suites again through libamdhip64.so");
    // All kinds of cards, or one: the first run has them all in the process.
    for device in if options.full { &["gfx90a", "gfx1030", "gfx1100"][..] } else { &["gfx90a"] } {
        // The whole workspace again: otherwise cargo selects other features and rebuilds everything.
        let mut library = test(&["--no-fail-fast"]);
        // Only the path to the device differs, not the arithmetic: a sample is enough.
        library.env_remove("WARPWAVE_TEST_FULL");
        library.args(DEVICE_SUITES.iter().flat_map(|name| ["--test", name])).arg("--").args(&options.filter);
        library.env("WARPWAVE_HIP_LIB", workspace.stand_in_library()).env("WARPWAVE_VGPU_DEVICES", device);
        steps.step(&format!("{device} as a library"), || timings.run(&mut library))?;
    }
    if options.full { steps.step("book", || book::build(workspace)) } else { Ok(()) }
}

/// Returns the number of tests a program runs in parallel, as the test harness chooses it.
fn test_threads(arguments: &[OsString]) -> usize {
    let words: Vec<&str> = arguments.iter().filter_map(|word| word.to_str()).collect();
    let given = words.iter().enumerate().find_map(|(index, word)| match word.strip_prefix("--test-threads") {
        Some("") => words.get(index + 1)?.parse().ok(),
        Some(value) => value.strip_prefix('=')?.parse().ok(),
        None => None,
    });
    let from_environment = || std::env::var("RUST_TEST_THREADS").ok()?.parse().ok();
    given.or_else(from_environment).unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
}

fn set_variables(command: &mut Command, tools: &Tools, cache: &Path, full: bool) {
    command.envs(tools.variables()).env("WARPWAVE_CACHE_DIR", cache);
    if tools.missing().is_empty() {
        command.env(REQUIRE_ALL, "1");
    }
    if full {
        command.env("WARPWAVE_TEST_FULL", "1");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_threads_is_read_from_the_arguments() {
        let threads = |words: &[&str]| test_threads(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(threads(&["cache", "--test-threads=3"]), 3);
        assert_eq!(threads(&["--test-threads", "5", "cache"]), 5);
        assert!(threads(&["cache"]) >= 1);
    }
}
