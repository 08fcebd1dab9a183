//! Development commands: `cargo xtask check`, `test`, `lint`, `demo`, `book`, `bundle`, `dist`.

mod apt;
mod book;
mod bundle;
mod check;
mod demo;
mod dist;
mod lint;
mod run;
mod test;
mod timing;
mod tools;
mod words;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Development commands of the project
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", after_help = "Example: cargo xtask test")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Check formatting, clippy and unit tests of the changed crates
    ///
    /// Changed are files that differ from the merge base with main, edited files and untracked files.
    #[command(after_help = "Examples:\n  cargo xtask check\n  cargo xtask check --package warpwave-gpu --tests -- pool")]
    Check(check::Options),
    /// Install missing tools, then run the whole test suite
    ///
    /// Missing tools (clang, ROCm device libraries, HIP headers, NVRTC, CUDA headers, numpy, a small language model) are installed with apt
    /// and, below target/, with pip. Without permission to install, the command to run is printed and the tests run with the available tools.
    #[command(after_help = "Examples:\n  cargo xtask test\n  cargo xtask test --full\n  cargo xtask test --no-install -- cache")]
    Test(test::Options),
    /// Compile and run a CUDA kernel for AMD and NVIDIA GPUs, then run a language model
    ///
    /// Installs a compiler for each vendor and downloads a small model if missing. Every command is printed, so that it can be repeated.
    #[command(after_help = "Example: cargo xtask demo")]
    Demo,
    /// Check formatting, clippy and the house rules
    #[command(after_help = "Examples:\n  cargo xtask lint\n  cargo xtask lint --words")]
    Lint(lint::Options),
    /// Build the pages of docs/ as a book in target/book
    ///
    /// Uses mdBook from PATH, or installs it below target/.
    #[command(after_help = "Example: cargo xtask book")]
    Book,
    /// Pack the built tests and the command to run on a machine without Rust
    ///
    /// Writes target/bundle. Copy the folder to a GPU machine and start its run.sh.
    #[command(after_help = "Example: cargo xtask bundle && target/bundle/run.sh --bench")]
    Bundle,
    /// Make the release tarball in target/dist
    #[command(after_help = "Examples:\n  cargo xtask dist\n  cargo xtask dist --kernels gfx90a,sm_90a")]
    Dist(dist::Options),
}

fn main() -> ExitCode {
    let result = match Cli::parse().task {
        Task::Check(options) => check::main(&options),
        Task::Test(options) => test::main(&options),
        Task::Demo => demo::main(),
        Task::Lint(options) => lint::main(&options),
        Task::Book => book::main(),
        Task::Bundle => bundle::main(),
        Task::Dist(options) => dist::main(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            // Usage errors exit with 2, in clap.
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
