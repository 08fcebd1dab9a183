//! `warpwave mpi tune`: measures every algorithm and writes the best for each size to a tuning table.

use std::path::PathBuf;

use warpwave_allreduce::abi::Flavor;
use warpwave_allreduce::settings::default_table_path;
use warpwave_allreduce::table::{Algorithm, Memory, ParseError, Selection, Table, format_size};

use super::super::{Context, Failure, Outcome, failed, usage};
use super::MeasureArgs;
use super::bench::{Row, collect, job, write_file};

#[derive(clap::Args)]
#[command(after_help = "Example: warpwave mpi tune -n 4 --mpi openmpi\n\n\
    Replaces the rule for this MPI, memory type and number of ranks; keeps other rules. \
    Programs load the default table, or the file set in WARPWAVE_MPI_TABLE.")]
pub(super) struct Options {
    #[command(flatten)]
    measure: MeasureArgs,
    /// Update this table [default: ~/.config/warpwave/mpi.table].
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print the rule without writing it.
    #[arg(long)]
    dry_run: bool,
}

/// An algorithm replaces another if its time is below this fraction; smaller differences are noise.
const MIN_SPEEDUP: f64 = 0.95;

/// The best trial for a size.
struct Pick {
    /// Index of the trial; `None` is the MPI library.
    trial: Option<usize>,
    /// Speedup over the MPI library.
    speedup: f64,
}

pub(super) fn run(context: &mut Context<'_>, options: &Options) -> Outcome {
    let measure = &options.measure;
    if measure.np < 2 {
        return Err(usage("tune needs at least 2 ranks, got 1; pass --np 2 or more"));
    }
    let memory = if measure.device == "cpu" { Memory::Host } else { Memory::Device };
    let path = options
        .output
        .clone()
        .or_else(default_table_path)
        .ok_or_else(|| usage("HOME and XDG_CONFIG_HOME are not set; pass a file with -o"))?;
    // Read the table first: a parse error should not appear after an hour of measuring.
    let old = table_text(&path)?;
    let mut job = job(measure)?;
    let (mut flavor, mut trials) = (String::new(), Vec::<(Algorithm, Vec<Row>)>::new());
    for algorithm in candidates(memory) {
        job.env = vec![("WARPWAVE_MPI_ALGO", algorithm.name().to_owned())];
        match collect(context, &job, measure, algorithm.name()) {
            Ok((head, rows)) => {
                flavor = head["flavor"].as_str().unwrap_or_default().to_owned();
                trials.push((algorithm, rows));
            }
            // IPC and NCCL are not available on every machine.
            Err(failure) if algorithm.needs_device_buffers() => {
                writeln!(context.err, "skipping {}: {}", algorithm.name(), failure.message)?
            }
            Err(failure) => return Err(failure),
        }
    }
    let picks = pick_best(&trials);
    let chosen: Vec<Algorithm> = picks.iter().map(|pick| pick.trial.map_or(Algorithm::Native, |trial| trials[trial].0)).collect();
    let known = [Flavor::OpenMpi, Flavor::Mpich, Flavor::Standard].into_iter().find(|known| known.name() == flavor);
    let known = known.ok_or_else(|| failed(format!("unsupported MPI {flavor:?} reported by the ranks")))?;
    let before = old.parse::<Table>().unwrap_or_default().selection(known, memory, measure.np as usize);
    let selection = ranges(&measure.sizes.0, &chosen, &before)?;
    let memory_name = if memory == Memory::Host { "host" } else { "device" };
    let rule = format!("{flavor:8} {memory_name:7} {:<6} {selection}", measure.np);
    writeln!(context.out, "{:>10} {:>12} {:>12} {:>7}  algorithm", "bytes", "MPI µs", "chosen µs", "speedup")?;
    for ((pick, algorithm), size) in picks.iter().zip(&chosen).zip(0..) {
        let row = &trials[pick.trial.unwrap_or(0)].1[size];
        let time = if pick.trial.is_some() { row.ours } else { row.baselines[0].1 };
        writeln!(context.out, "{:>10} {:>12.2} {time:>12.2} {:>7.3}  {}", row.bytes, time * pick.speedup, pick.speedup, algorithm.name())?;
    }
    writeln!(context.out, "{rule}")?;
    if options.dry_run {
        return Ok(());
    }
    write_file(&path, &updated(&old, &rule))?;
    writeln!(context.out, "written to {}", path.display())?;
    let other = std::env::var_os("WARPWAVE_MPI_TABLE").filter(|other| !other.is_empty() && **other != *path);
    if let Some(other) = other {
        writeln!(
            context.err,
            "warpwave: WARPWAVE_MPI_TABLE={} is set, so programs will use that table instead of this one",
            other.to_string_lossy()
        )?;
    } else if options.output.is_some() && options.output != default_table_path() {
        writeln!(context.err, "warpwave: to use this table, set WARPWAVE_MPI_TABLE={}", path.display())?;
    }
    Ok(())
}

/// Returns the algorithms to measure. On a GPU they include `native`, which stages through the host.
fn candidates(memory: Memory) -> Vec<Algorithm> {
    let applies =
        |algorithm: &Algorithm| memory == Memory::Device || !(algorithm.needs_device_buffers() || *algorithm == Algorithm::Native);
    Algorithm::ALL.into_iter().filter(applies).collect()
}

/// Returns the best trial for each size. Times are compared relative to the baseline of the same run.
fn pick_best(trials: &[(Algorithm, Vec<Row>)]) -> Vec<Pick> {
    let ratios = |size: usize| trials.iter().map(move |(algorithm, rows)| (*algorithm, rows[size].ratio())).enumerate();
    let sizes = trials.first().map_or(0, |(_, rows)| rows.len());
    let pick = |size: usize| {
        // On the host the MPI library is the baseline of the ratios; on a GPU it is one of the trials.
        let native = ratios(size).find(|(_, (algorithm, _))| *algorithm == Algorithm::Native);
        let (mut trial, native) = native.map_or((None, 1.0), |(index, (_, ratio))| (Some(index), ratio));
        let mut best = native;
        for (index, (_, ratio)) in ratios(size) {
            if ratio < best * MIN_SPEEDUP {
                (trial, best) = (Some(index), ratio);
            }
        }
        Pick { trial, speedup: native / best }
    };
    (0..sizes).map(pick).collect()
}

/// Merges adjacent sizes with the same algorithm into ranges. Larger sizes than measured keep the previous algorithms.
fn ranges(sizes: &[u64], chosen: &[Algorithm], before: &Selection) -> Result<Selection, Failure> {
    let mut starts: Vec<(u64, Algorithm)> = sizes.iter().copied().zip(chosen.iter().copied()).collect();
    if let Some(first) = starts.first_mut() {
        first.0 = 0;
    }
    let beyond = sizes.last().map_or(0, |last| last * 2);
    let powers = std::iter::successors(Some(beyond.max(1)), |size| size.checked_mul(2)).take_while(|size| *size <= 1 << 40);
    starts.extend(powers.map(|size| (size, before.get(size).unwrap_or(Algorithm::Native))));
    starts.dedup_by_key(|(_, algorithm)| *algorithm);
    let end = |index: usize| starts.get(index + 1).map_or_else(String::new, |(next, _)| format_size(*next));
    let parts =
        starts.iter().enumerate().map(|(index, (from, algorithm))| format!("{}:{}-{}", algorithm.name(), format_size(*from), end(index)));
    parts.collect::<Vec<_>>().join(";").parse().map_err(|ParseError(why)| failed(why))
}

/// Returns the text of the table, or of the built-in one if the file does not exist.
fn table_text(path: &PathBuf) -> Result<String, Failure> {
    match std::fs::read_to_string(path) {
        Ok(text) => match text.parse::<Table>() {
            Ok(_) => Ok(text),
            Err(ParseError(why)) => Err(failed(format!("{}: {why}; correct it, or write to another file with -o", path.display()))),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Ok(format!("# MPI     memory  ranks  sizes in bytes; the first matching rule applies\n{}", Table::built_in()))
        }
        Err(error) => Err(failed(format!("{}: {error}", path.display()))),
    }
}

/// Returns the table with `rule` first, without the older rule for the same calls.
fn updated(text: &str, rule: &str) -> String {
    let key = |line: &str| -> Vec<String> {
        let words = line.split('#').next().unwrap_or_default().split_whitespace();
        words.take(3).map(str::to_owned).collect()
    };
    let mut lines: Vec<&str> = text.lines().filter(|line| key(line) != key(rule)).collect();
    let first = lines.iter().position(|line| !key(line).is_empty()).unwrap_or(lines.len());
    lines.insert(first, rule);
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_sizes_are_merged_and_larger_ones_kept() {
        use Algorithm::{Native, Rabenseifner, Ring};
        let before: Selection = "native:0-8m;ring:8m-".parse().unwrap();
        let text = |sizes: &[u64], chosen: &[Algorithm]| ranges(sizes, chosen, &before).unwrap().to_string();
        assert_eq!(text(&[4, 1024, 4096], &[Native, Native, Ring]), "native:0-4k;ring:4k-8k;native:8k-8m;ring:8m-");
        assert_eq!(text(&[4, 16 << 20], &[Native, Rabenseifner]), "native:0-16m;rabenseifner:16m-32m;ring:32m-");
        assert_eq!(text(&[1 << 20], &[Ring]), "ring:0-2m;native:2m-8m;ring:8m-");
    }

    #[test]
    fn the_rule_for_the_same_calls_is_replaced() {
        let text = "# mine\nopenmpi host 2 ring\nopenmpi host 4 ring # four\nany host 2- native\n";
        let rule = "openmpi  host    2      native:0-";
        assert_eq!(updated(text, rule), format!("# mine\n{rule}\nopenmpi host 4 ring # four\nany host 2- native\n"));
        assert_eq!(updated("", rule), format!("{rule}\n"));
    }

    #[test]
    fn only_a_clear_speedup_replaces_the_mpi_library() {
        let row = |ratio: f64| Row::for_tests(4, 10.0, 10.0 * ratio);
        let trials =
            [(Algorithm::Ring, vec![row(0.97), row(0.5), row(2.0)]), (Algorithm::Rabenseifner, vec![row(0.96), row(0.49), row(0.9)])];
        let picks = pick_best(&trials);
        assert_eq!(picks.iter().map(|pick| pick.trial).collect::<Vec<_>>(), [None, Some(0), Some(1)]);
        assert_eq!([picks[0].speedup, picks[1].speedup], [1.0, 2.0]);
        // On a GPU the native trial is the reference.
        let trials = [(Algorithm::Native, vec![row(0.5)]), (Algorithm::Ring, vec![row(0.49)])];
        assert_eq!(pick_best(&trials)[0].trial, Some(0));
    }
}
