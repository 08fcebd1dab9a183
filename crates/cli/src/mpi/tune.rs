//! `warpwave mpi tune`: each algorithm measured on this machine, the best of each size kept in a table.

use std::path::PathBuf;

use warpwave_allreduce::abi::Flavor;
use warpwave_allreduce::settings::tuned_path;
use warpwave_allreduce::table::{Algorithm, BadTable, Memory, Sizes, Table, short};

use super::super::{Context, Failure, Outcome, failed, usage};
use super::Measure;
use super::bench::{Row, collect, job, write_file};

#[derive(clap::Args)]
#[command(after_help = "Example: warpwave mpi tune -np 4 --mpi openmpi\n\n\
    The rule for this MPI, kind of memory and number of ranks is replaced in the table; others stay. \
    Programs find the table by themselves, or by WARPWAVE_MPI_TABLE.")]
pub(super) struct Options {
    #[command(flatten)]
    measure: Measure,
    /// The table; else ~/.config/warpwave/mpi.table.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Measure and print the rule, and write nothing.
    #[arg(long)]
    dry_run: bool,
}

/// An algorithm must take less than this part of another's time to replace it: less is noise.
const FASTER: f64 = 0.95;

/// What was chosen for a size, and its time as a part of the MPI's.
struct Pick {
    trial: Option<usize>,
    /// How many times faster than the MPI's way.
    gain: f64,
}

pub(super) fn run(context: &mut Context<'_>, options: &Options) -> Outcome {
    let measure = &options.measure;
    if measure.np < 2 {
        return Err(usage("with one rank there is nothing to choose: -np must be at least 2"));
    }
    let memory = if measure.device == "cpu" { Memory::Host } else { Memory::Device };
    let path =
        options.output.clone().or_else(tuned_path).ok_or_else(|| usage("neither HOME nor XDG_CONFIG_HOME is set; name a file with -o"))?;
    // Read first: a table that cannot be read is not worth an hour of measuring.
    let old = table_text(&path)?;
    let mut job = job(measure)?;
    let (mut flavor, mut trials) = (String::new(), Vec::<(Algorithm, Vec<Row>)>::new());
    for algorithm in candidates(memory) {
        job.set = vec![("WARPWAVE_MPI_ALGO", algorithm.name().to_owned())];
        match collect(context, &job, measure, algorithm.name()) {
            Ok((head, rows)) => {
                flavor = head["flavor"].as_str().unwrap_or_default().to_owned();
                trials.push((algorithm, rows));
            }
            // Not every machine has what these need.
            Err(failure) if algorithm.needs_devices() => writeln!(context.err, "{} is left out: {}", algorithm.name(), failure.message)?,
            Err(failure) => return Err(failure),
        }
    }
    let picks = pick(&trials);
    let chosen: Vec<Algorithm> = picks.iter().map(|pick| pick.trial.map_or(Algorithm::Native, |trial| trials[trial].0)).collect();
    let known = [Flavor::OpenMpi, Flavor::Mpich, Flavor::Standard].into_iter().find(|known| known.name() == flavor);
    let known = known.ok_or_else(|| failed(format!("the ranks told of an unknown MPI, {flavor:?}")))?;
    let before = old.parse::<Table>().unwrap_or_default().sizes(known, memory, measure.np as usize);
    let sizes = ranges(&measure.sizes.0, &chosen, &before)?;
    let place = if memory == Memory::Host { "host" } else { "device" };
    let rule = format!("{flavor:8} {place:7} {:<6} {sizes}", measure.np);
    writeln!(context.out, "{:>10} {:>12} {:>12} {:>7}  algorithm", "bytes", "MPI µs", "chosen µs", "gain")?;
    for ((pick, algorithm), size) in picks.iter().zip(&chosen).zip(0..) {
        let row = &trials[pick.trial.unwrap_or(0)].1[size];
        let time = if pick.trial.is_some() { row.ours } else { row.peers[0].1 };
        writeln!(context.out, "{:>10} {:>12.2} {time:>12.2} {:>7.3}  {}", row.bytes, time * pick.gain, pick.gain, algorithm.name())?;
    }
    writeln!(context.out, "{rule}")?;
    if options.dry_run {
        return Ok(());
    }
    write_file(&path, &updated(&old, &rule))?;
    writeln!(context.out, "written to {}", path.display())?;
    let other = std::env::var_os("WARPWAVE_MPI_TABLE").filter(|other| !other.is_empty() && **other != *path);
    if let Some(other) = other {
        writeln!(context.err, "warpwave: WARPWAVE_MPI_TABLE names another table, {}, which is used instead", other.to_string_lossy())?;
    } else if options.output.is_some() && options.output != tuned_path() {
        writeln!(context.err, "warpwave: programs use it with WARPWAVE_MPI_TABLE={}", path.display())?;
    }
    Ok(())
}

/// What is tried. On a GPU the library's own way around the MPI is among it.
fn candidates(memory: Memory) -> Vec<Algorithm> {
    let fits = |algorithm: &Algorithm| memory == Memory::Device || !(algorithm.needs_devices() || *algorithm == Algorithm::Native);
    Algorithm::ALL.into_iter().filter(fits).collect()
}

/// The best trial for each size; `None` is the MPI itself. Times are compared through the MPI's of the same run.
fn pick(trials: &[(Algorithm, Vec<Row>)]) -> Vec<Pick> {
    let ratios = |size: usize| trials.iter().map(move |(algorithm, rows)| (*algorithm, rows[size].ratio())).enumerate();
    let sizes = trials.first().map_or(0, |(_, rows)| rows.len());
    let best = |size: usize| {
        // On the host the MPI's own call is what the ratios are to; on a GPU it is a trial like the others.
        let native = ratios(size).find(|(_, (algorithm, _))| *algorithm == Algorithm::Native);
        let (mut trial, native) = native.map_or((None, 1.0), |(index, (_, ratio))| (Some(index), ratio));
        let mut least = native;
        for (index, (_, ratio)) in ratios(size) {
            if ratio < least * FASTER {
                (trial, least) = (Some(index), ratio);
            }
        }
        Pick { trial, gain: native / least }
    };
    (0..sizes).map(best).collect()
}

/// Neighbours with the same algorithm as one range. Beyond what was measured stays what was before.
fn ranges(sizes: &[u64], chosen: &[Algorithm], before: &Sizes) -> Result<Sizes, Failure> {
    let mut starts: Vec<(u64, Algorithm)> = sizes.iter().copied().zip(chosen.iter().copied()).collect();
    if let Some(first) = starts.first_mut() {
        first.0 = 0;
    }
    let beyond = sizes.last().map_or(0, |last| last * 2);
    let powers = std::iter::successors(Some(beyond.max(1)), |size| size.checked_mul(2)).take_while(|size| *size <= 1 << 40);
    starts.extend(powers.map(|size| (size, before.get(size).unwrap_or(Algorithm::Native))));
    starts.dedup_by_key(|(_, algorithm)| *algorithm);
    let end = |index: usize| starts.get(index + 1).map_or_else(String::new, |(next, _)| short(*next));
    let parts = starts.iter().enumerate().map(|(index, (from, algorithm))| format!("{}:{}-{}", algorithm.name(), short(*from), end(index)));
    parts.collect::<Vec<_>>().join(";").parse().map_err(|BadTable(why)| failed(why))
}

/// The table as it is, or the built-in one.
fn table_text(path: &PathBuf) -> Result<String, Failure> {
    match std::fs::read_to_string(path) {
        Ok(text) => match text.parse::<Table>() {
            Ok(_) => Ok(text),
            Err(BadTable(why)) => Err(failed(format!("{}: {why}; mend it, or write to another file with -o", path.display()))),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Ok(format!("# MPI     memory  ranks  sizes in bytes; the first rule that fits counts\n{}", Table::built_in()))
        }
        Err(error) => Err(failed(format!("{}: {error}", path.display()))),
    }
}

/// The text with `rule` before all others, in the place of an older one for the same calls.
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
    fn neighbours_become_ranges_and_the_rest_stays() {
        use Algorithm::{Native, Rabenseifner, Ring};
        let before: Sizes = "native:0-8m;ring:8m-".parse().unwrap();
        let text = |sizes: &[u64], chosen: &[Algorithm]| ranges(sizes, chosen, &before).unwrap().to_string();
        assert_eq!(text(&[4, 1024, 4096], &[Native, Native, Ring]), "native:0-4k;ring:4k-8k;native:8k-8m;ring:8m-");
        assert_eq!(text(&[4, 16 << 20], &[Native, Rabenseifner]), "native:0-16m;rabenseifner:16m-32m;ring:32m-");
        assert_eq!(text(&[1 << 20], &[Ring]), "ring:0-2m;native:2m-8m;ring:8m-");
    }

    #[test]
    fn the_rule_of_the_same_calls_is_replaced() {
        let text = "# mine\nopenmpi host 2 ring\nopenmpi host 4 ring # four\nany host 2- native\n";
        let rule = "openmpi  host    2      native:0-";
        assert_eq!(updated(text, rule), format!("# mine\n{rule}\nopenmpi host 4 ring # four\nany host 2- native\n"));
        assert_eq!(updated("", rule), format!("{rule}\n"));
    }

    #[test]
    fn only_a_clear_gain_replaces_the_mpi() {
        let row = |ratio: f64| Row::for_tests(4, 10.0, 10.0 * ratio);
        let trials =
            [(Algorithm::Ring, vec![row(0.97), row(0.5), row(2.0)]), (Algorithm::Rabenseifner, vec![row(0.96), row(0.49), row(0.9)])];
        let picks = pick(&trials);
        assert_eq!(picks.iter().map(|pick| pick.trial).collect::<Vec<_>>(), [None, Some(0), Some(1)]);
        assert_eq!([picks[0].gain, picks[1].gain], [1.0, 2.0]);
        // On a GPU the library's way around the MPI is what counts as the MPI.
        let trials = [(Algorithm::Native, vec![row(0.5)]), (Algorithm::Ring, vec![row(0.49)])];
        assert_eq!(pick(&trials)[0].trial, Some(0));
    }
}
