//! `warpwave mpi`: runs, benchmarks and tunes programs with `libwarpwave_mpi.so` preloaded.

mod bench;
mod info;
mod launcher;
mod library;
mod run;
mod tune;
mod worker;

use std::ffi::OsString;

use warpwave_allreduce::table::{ParseError, Selection, parse_size};

use super::{Context, Failure, Outcome, usage};
use launcher::{Job, Launcher};

#[derive(clap::Args)]
#[command(after_help = "Example: warpwave mpi run -n 4 -- ./prog")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Run a program with libwarpwave_mpi.so preloaded.
    Run(run::Options),
    /// Benchmark warpwave's MPI_Allreduce against the MPI library's.
    Bench(bench::Options),
    /// Measure every algorithm and write a tuning table.
    Tune(tune::Options),
    /// Show the installed MPI libraries, libwarpwave_mpi.so and the tuning table.
    Info(info::Options),
    /// Run one rank of a measurement (started by `bench` and `tune`).
    #[command(hide = true)]
    Worker(worker::Options),
}

/// The MPI launcher and its arguments.
#[derive(clap::Args)]
struct LauncherArgs {
    /// Use this MPI: openmpi, mpich, or the path of a launcher.
    #[arg(long, value_name = "MPI")]
    mpi: Option<String>,
    /// Pass extra arguments to the launcher, such as "--host a,b".
    #[arg(long, value_name = "ARGS", default_value = "", hide_default_value = true, allow_hyphen_values = true)]
    launcher_args: String,
    /// Allow Open MPI to run as root (common in containers).
    #[arg(long)]
    allow_run_as_root: bool,
}

/// What `bench` and `tune` measure.
#[derive(clap::Args)]
struct MeasureArgs {
    /// Start N ranks.
    #[arg(short = 'n', long = "np", value_name = "N", default_value_t = 2, value_parser = ranks)]
    np: u32,
    #[command(flatten)]
    launcher: LauncherArgs,
    /// Load this MPI library; needed if it is not installed next to the launcher.
    #[arg(long, value_name = "FILE")]
    mpi_library: Option<std::path::PathBuf>,
    /// Allocate the buffers in host memory (cpu) or on GPUs such as cuda:0 or cuda:0,cuda:1 (assigned to ranks round-robin).
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Measure these message sizes in bytes: a range such as 4-16m (4 bytes to 16 MiB), or a list such as 64,8k,1m-4m.
    #[arg(long, default_value = "4-16m", value_parser = sizes)]
    sizes: SizeList,
    /// Perform N interleaved runs and report the median.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Use MPI_IN_PLACE.
    #[arg(long)]
    in_place: bool,
}

#[derive(Debug, Clone, PartialEq)]
struct SizeList(Vec<u64>);

pub(super) fn run(context: &mut Context<'_>, args: &Args) -> Outcome {
    match &args.command {
        Command::Run(options) => run::run(context, options),
        Command::Bench(options) => bench::run(context, options),
        Command::Tune(options) => tune::run(context, options),
        Command::Info(options) => info::run(context, options),
        Command::Worker(options) => worker::run(context, options),
    }
}

/// Replaces `-np`, which MPI launchers accept and clap would read as two short options, by `--np`.
pub(super) fn normalize_np(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut args: Vec<OsString> = args.into_iter().collect();
    if args.get(1).is_some_and(|command| command == "mpi") {
        args.iter_mut().take_while(|word| *word != "--").filter(|word| *word == "-np").for_each(|word| *word = "--np".into());
    }
    args
}

fn ranks(text: &str) -> Result<u32, String> {
    text.parse().ok().filter(|n| (1..=1 << 20).contains(n)).ok_or_else(|| format!("expected 1 to {} ranks, got {text}", 1 << 20))
}

/// Parses message sizes. Elements are 4-byte floats, and MPI counts are 31-bit integers.
fn sizes(text: &str) -> Result<SizeList, String> {
    let size = |text: &str| match parse_size(text) {
        Ok(n) if n >= 4 && n % 4 == 0 && n <= 4 << 30 => Ok(n),
        Ok(n) => Err(format!("invalid size {n}; expected a multiple of 4 bytes, up to 4g")),
        Err(ParseError(why)) => Err(why),
    };
    let mut all = Vec::new();
    for part in text.split(',') {
        let Some((from, to)) = part.split_once('-') else {
            all.push(size(part)?);
            continue;
        };
        let (mut at, to) = (size(from)?, size(to)?);
        if at > to {
            return Err(format!("empty size range {part:?}; expected FROM-TO with FROM <= TO"));
        }
        while at <= to {
            all.push(at);
            at *= if at < 1024 { 4 } else { 2 };
        }
    }
    all.sort_unstable();
    all.dedup();
    Ok(SizeList(all))
}

/// Validates a value for `WARPWAVE_MPI_ALGO`, which would only be a warning in the ranks.
fn algorithms(text: &str) -> Result<String, String> {
    if text != "auto" {
        text.parse::<Selection>().map_err(|ParseError(why)| why)?;
    }
    Ok(text.to_owned())
}

/// Splits into words as a shell does: whitespace and quotes, no escapes.
fn split_words(text: &str) -> Result<Vec<String>, Failure> {
    let (mut all, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in text.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => word.get_or_insert_default().push(c),
            None if c == '"' || c == '\'' => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if c.is_whitespace() => all.extend(word.take()),
            None => word.get_or_insert_default().push(c),
        }
    }
    all.extend(word);
    if quote.is_some() { Err(usage(format!("--launcher-args: unclosed quote in {text:?}"))) } else { Ok(all) }
}

/// Quotes a word for `sh`.
fn shell_quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn np_is_normalized_before_the_program() {
        let line = ["warpwave", "mpi", "run", "-np", "4", "--", "prog", "-np", "5"].map(OsString::from);
        assert_eq!(normalize_np(line), ["warpwave", "mpi", "run", "--np", "4", "--", "prog", "-np", "5"]);
        let line = ["warpwave", "run", "-np"].map(OsString::from);
        assert_eq!(normalize_np(line.clone()), line);
    }

    #[test]
    fn sizes_grow_by_four_and_then_by_two() {
        assert_eq!(sizes("4-4k").unwrap().0, [4, 16, 64, 256, 1024, 2048, 4096]);
        assert_eq!(sizes("1m,8,8").unwrap().0, [8, 1 << 20]);
        for (text, part) in
            [("3", "multiple of 4"), ("8k-4k", "empty"), ("", "invalid size"), ("5g", "multiple of 4"), ("4-", "invalid size")]
        {
            let error = sizes(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn words_are_split_and_quoted_as_in_a_shell() {
        assert_eq!(split_words(r#" --host a,b  --x 'one word' "" "#).unwrap(), ["--host", "a,b", "--x", "one word", ""]);
        assert!(split_words("'open").is_err());
        assert_eq!(
            [shell_quote("a=/b:c"), shell_quote("two words"), shell_quote("it's"), shell_quote("")],
            ["a=/b:c", "'two words'", r"'it'\''s'", "''"]
        );
    }
}
