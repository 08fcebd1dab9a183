//! `warpwave mpi`: programs with `libwarpwave_mpi.so` in front of their MPI, measured and tuned.

mod bench;
mod info;
mod launcher;
mod library;
mod plot;
mod run;
mod tune;
mod worker;

use std::ffi::OsString;

use warpwave_allreduce::table::{BadTable, Sizes, bytes};

use super::{Context, Failure, Outcome, usage};
use launcher::{Job, Launcher};

#[derive(clap::Args)]
#[command(after_help = "Example: warpwave mpi run -np 4 -- ./prog")]
pub(super) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Start a program on several ranks, its MPI_Allreduce done by this library.
    Run(run::Options),
    /// Measure MPI_Allreduce of this library beside the MPI's own, in the same run.
    Bench(bench::Options),
    /// Measure each algorithm on this machine and keep the best for each size.
    Tune(tune::Options),
    /// Show the MPIs of this machine, the library and the table of algorithms.
    Info(info::Options),
    /// One rank of a measurement; started by `bench` and `tune`.
    #[command(hide = true)]
    Worker(worker::Options),
}

/// Which MPI, and how its launcher is called.
#[derive(clap::Args)]
struct Choice {
    /// The MPI: openmpi, mpich, or the path of a launcher.
    #[arg(long, value_name = "MPI")]
    mpi: Option<String>,
    /// Further words for the launcher, such as "--host a,b".
    #[arg(long, value_name = "WORDS", default_value = "", hide_default_value = true, allow_hyphen_values = true)]
    launcher_args: String,
}

/// What `bench` and `tune` measure.
#[derive(clap::Args)]
struct Measure {
    /// Ranks.
    #[arg(short = 'n', long = "np", value_name = "N", default_value_t = 2, value_parser = ranks)]
    np: u32,
    #[command(flatten)]
    choice: Choice,
    /// The MPI's library file, if it is not beside the launcher.
    #[arg(long, value_name = "FILE")]
    mpi_library: Option<std::path::PathBuf>,
    /// Where the buffers are: cpu, or GPUs such as cuda:0 or cuda:0,cuda:1 for the ranks in turn.
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Bytes: a range such as 4-16m, or a list such as 64,8k,1m-4m.
    #[arg(long, default_value = "4-16m", value_parser = sizes)]
    sizes: SizeList,
    /// Runs of each, taking turns; the median counts.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Send and receive buffer are the same (MPI_IN_PLACE).
    #[arg(long)]
    in_place: bool,
}

#[derive(Debug, Clone, PartialEq)]
struct SizeList(Vec<u64>);

pub(super) fn run(context: &mut Context<'_>, args: &Args) -> Outcome {
    match &args.what {
        What::Run(options) => run::run(context, options),
        What::Bench(options) => bench::run(context, options),
        What::Tune(options) => tune::run(context, options),
        What::Info(options) => info::run(context, options),
        What::Worker(options) => worker::run(context, options),
    }
}

/// Launchers of MPI take `-np`, which is two options to everybody else: it is `--np` here.
pub(super) fn spelled(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut args: Vec<OsString> = args.into_iter().collect();
    if args.get(1).is_some_and(|command| command == "mpi") {
        args.iter_mut().take_while(|word| *word != "--").filter(|word| *word == "-np").for_each(|word| *word = "--np".into());
    }
    args
}

fn ranks(text: &str) -> Result<u32, String> {
    text.parse().ok().filter(|n| (1..=1 << 20).contains(n)).ok_or_else(|| "expected a number of ranks, at least 1".to_owned())
}

/// Floats are 4 bytes, and MPI counts them in 31 bits.
fn sizes(text: &str) -> Result<SizeList, String> {
    let size = |text: &str| match bytes(text) {
        Ok(n) if n >= 4 && n % 4 == 0 && n <= 4 << 30 => Ok(n),
        Ok(n) => Err(format!("{n} bytes are no whole floats up to 4g")),
        Err(BadTable(why)) => Err(why),
    };
    let mut all = Vec::new();
    for part in text.split(',') {
        let Some((from, to)) = part.split_once('-') else {
            all.push(size(part)?);
            continue;
        };
        let (mut at, to) = (size(from)?, size(to)?);
        if at > to {
            return Err(format!("the range {part:?} is empty"));
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

/// The value for `WARPWAVE_MPI_ALGO`, checked here: in the ranks it would only be a warning.
fn algorithms(text: &str) -> Result<String, String> {
    if text != "auto" {
        text.parse::<Sizes>().map_err(|BadTable(why)| why)?;
    }
    Ok(text.to_owned())
}

/// Splits as a shell does, with quotes and without anything else.
fn words(text: &str) -> Result<Vec<String>, Failure> {
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
    if quote.is_some() { Err(usage(format!("--launcher-args: a quote is left open in {text:?}"))) } else { Ok(all) }
}

/// `sh` reads it back as one word.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn np_is_an_option_until_the_program_begins() {
        let line = ["warpwave", "mpi", "run", "-np", "4", "--", "prog", "-np", "5"].map(OsString::from);
        assert_eq!(spelled(line), ["warpwave", "mpi", "run", "--np", "4", "--", "prog", "-np", "5"]);
        let line = ["warpwave", "run", "-np"].map(OsString::from);
        assert_eq!(spelled(line.clone()), line);
    }

    #[test]
    fn sizes_grow_by_four_and_then_by_two() {
        assert_eq!(sizes("4-4k").unwrap().0, [4, 16, 64, 256, 1024, 2048, 4096]);
        assert_eq!(sizes("1m,8,8").unwrap().0, [8, 1 << 20]);
        for (text, part) in [("3", "no whole floats"), ("8k-4k", "empty"), ("", "no size"), ("5g", "no whole floats"), ("4-", "no size")] {
            let error = sizes(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn words_are_a_shell_s() {
        assert_eq!(words(r#" --host a,b  --x 'one word' "" "#).unwrap(), ["--host", "a,b", "--x", "one word", ""]);
        assert!(words("'open").is_err());
        assert_eq!([quoted("a=/b:c"), quoted("two words"), quoted("it's"), quoted("")], ["a=/b:c", "'two words'", r"'it'\''s'", "''"]);
    }
}
