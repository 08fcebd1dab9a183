//! `cargo xtask test`: the whole test suite with every tool it can use.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use clap::Args;

use crate::run::{self, Result, Steps, Workspace, cargo, failed, say};
use crate::tools::{Set, Tools};

/// Options of `cargo xtask test`.
#[derive(Args)]
pub struct Options {
    /// Run every case of the big matrices, not a sample
    #[arg(long)]
    full: bool,
    /// Install nothing; run what the tools that are there allow
    #[arg(long)]
    no_install: bool,
    /// Names of tests to run, and other arguments for the test programs
    #[arg(last = true, value_name = "FILTER")]
    filter: Vec<OsString>,
}

/// The test programs that run on every device there is.
const DEVICE_SUITES: [&str; 4] = ["conformance", "graphs", "pool", "devices"];

/// Makes tests that lack a tool fail instead of skip.
const REQUIRE_ALL: &str = "WARPWAVE_REQUIRE_ALL";

/// Runs the command.
pub fn main(options: &Options) -> Result<()> {
    let workspace = Workspace::find()?;
    let mut steps = Steps::default();
    let mut missing = Vec::new();
    let result = all_steps(&workspace, options, &mut steps, &mut missing);
    steps.print();
    if !missing.is_empty() {
        println!("\nWARNING: NOT EVERYTHING IS TESTED. These tools are missing, and the tests that need them do not run:");
        missing.iter().for_each(|what| println!("  - {what}"));
        if options.no_install {
            println!("Without --no-install, cargo xtask test installs them or says how.");
        }
    }
    result
}

fn all_steps(workspace: &Workspace, options: &Options, steps: &mut Steps, missing: &mut Vec<&'static str>) -> Result<()> {
    say("looking for the tools the tests call");
    let tools = steps.step("tools", || Tools::ensure(workspace, Set::Test, !options.no_install))?;
    tools.print();
    *missing = tools.missing();
    // Set by whoever must not miss anything, such as CI: then stop before the long build, not after it.
    if !missing.is_empty() && std::env::var_os(REQUIRE_ALL).is_some_and(|v| v == "1") {
        return failed(format!(
            "tools are missing (listed above) and {REQUIRE_ALL}=1 allows no test to be skipped; install them or unset it"
        ));
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
    // All failures in one run: each costs the reader a round otherwise.
    let mut all = test(&["--no-fail-fast", "--"]);
    all.args(&options.filter);
    steps.step("tests and doc tests", || run::checked(&mut all))?;
    say("running the device suites once more, through libamdhip64.so");
    // The whole workspace again, or cargo would choose other features and build everything anew.
    let mut library = test(&["--no-fail-fast"]);
    // The way to the device is another, the arithmetic is not: a sample of the cases is enough.
    library.env_remove("WARPWAVE_TEST_FULL");
    library.args(DEVICE_SUITES.iter().flat_map(|name| ["--test", name])).arg("--").args(&options.filter);
    library.env("WARPWAVE_HIP_LIB", workspace.stand_in_library()).env("WARPWAVE_VGPU_DEVICES", "gfx90a");
    steps.step("device suites, as a library", || run::checked(&mut library))
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
