//! `warpwave mpi run`.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use super::super::{Context, Outcome, failed};
use super::launcher::{linked, resolve};
use super::{Choice, Job, Launcher, algorithms, quoted, ranks};

#[derive(clap::Args)]
#[command(after_help = "Example:\n  warpwave mpi run -np 4 --stats -- ./prog input.dat\n  \
    warpwave mpi run -np 4 --algo 'native:0-64k;ring:64k-' --dry-run -- ./prog\n\n\
    The MPI is the one that the program is linked to, unless --mpi names another. The exit code is the launcher's.")]
pub(super) struct Options {
    /// Ranks.
    #[arg(short = 'n', long = "np", value_name = "N", value_parser = ranks)]
    np: u32,
    #[command(flatten)]
    choice: Choice,
    /// An algorithm for all sizes or by size; auto: as the table says.
    #[arg(long, value_name = "ALGO", value_parser = algorithms)]
    algo: Option<String>,
    /// Each rank prints at its end what was done.
    #[arg(long)]
    stats: bool,
    /// Print the command line and start nothing.
    #[arg(long)]
    dry_run: bool,
    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

pub(super) fn run(context: &mut Context<'_>, options: &Options) -> Outcome {
    let program = resolve(&options.program[0].to_string_lossy())?;
    let linked = linked(&program);
    let launcher = Launcher::choose(options.choice.mpi.as_deref(), linked)?;
    if let Some(family) = linked.filter(|family| *family != launcher.family) {
        let (theirs, ours) = (family.title(), launcher.family.title());
        writeln!(context.err, "warpwave: {} is linked to {theirs}; started by {ours} each rank may be alone", program.display())?;
    }
    let mut job = Job::new(&options.choice, options.np, launcher)?;
    job.set.extend(options.algo.iter().map(|algo| ("WARPWAVE_MPI_ALGO", algo.clone())));
    job.set.extend(options.stats.then(|| ("WARPWAVE_MPI_STATS", "1".to_owned())));
    let line = job.line(options.program.iter().cloned());
    if options.dry_run {
        let words: Vec<String> = line.iter().map(|word| quoted(&word.to_string_lossy())).collect();
        return Ok(writeln!(context.out, "{}", words.join(" "))?);
    }
    // In this process's place: its signals and its exit code are the launcher's.
    let error = Command::new(&line[0]).args(&line[1..]).exec();
    Err(failed(format!("{}: {error}", line[0].to_string_lossy())))
}
