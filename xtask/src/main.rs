//! The project's own commands: `cargo xtask test`, `demo`, `lint`, `bundle`, `dist`.

mod apt;
mod bundle;
mod demo;
mod dist;
mod lint;
mod run;
mod test;
mod tools;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The project's own commands
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", after_help = "Example: cargo xtask test")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Install the tools the tests call, then run the whole test suite
    ///
    /// Missing tools (clang, AMD's device libraries, HIP's headers, NVRTC, CUDA's headers, numpy, a small language model) are installed with apt and,
    /// below target/, with pip. Without the right to do so the one command to run is printed, and the tests run with what
    /// there is.
    #[command(after_help = "Examples:\n  cargo xtask test\n  cargo xtask test --full\n  cargo xtask test --no-install -- cache")]
    Test(test::Options),
    /// Compile one CUDA kernel for AMD and NVIDIA GPUs and run it on the one that is here; then ask a language model
    ///
    /// Installs a compiler for each vendor and fetches a small model if it is missing and may. Every command is shown, so that it can be repeated.
    #[command(after_help = "Example: cargo xtask demo")]
    Demo,
    /// Check formatting, clippy and the house rules
    #[command(after_help = "Example: cargo xtask lint")]
    Lint,
    /// Pack the built tests and the command to run on a machine without Rust
    ///
    /// Writes target/bundle. Copy the folder to a GPU machine and start its run.sh.
    #[command(after_help = "Example: cargo xtask bundle && target/bundle/run.sh --bench")]
    Bundle,
    /// Make the release tarball in target/dist
    #[command(after_help = "Example: cargo xtask dist")]
    Dist,
}

fn main() -> ExitCode {
    let result = match Cli::parse().task {
        Task::Test(options) => test::main(&options),
        Task::Demo => demo::main(),
        Task::Lint => lint::main(),
        Task::Bundle => bundle::main(),
        Task::Dist => dist::main(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            // Bad usage is 2, and clap has dealt with it above.
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn every_command_shows_an_example_in_its_help() {
        let mut cli = Cli::command();
        cli.build();
        for task in cli.get_subcommands().filter(|task| task.get_name() != "help") {
            let help = task.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains(&format!("cargo xtask {}", task.get_name())), "{}", task.get_name());
        }
    }

    #[test]
    fn filters_come_after_two_dashes() {
        assert!(Cli::try_parse_from(["xtask", "test", "--full", "--", "cache", "--nocapture"]).is_ok());
        assert!(Cli::try_parse_from(["xtask", "test", "cache"]).is_err());
    }
}
