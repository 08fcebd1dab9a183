//! `warpwave mpi run`.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use super::super::{Context, Outcome, failed};
use super::launcher::{linked, resolve};
use super::{Job, Launcher, LauncherArgs, algorithms, ranks, shell_quote};

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  warpwave mpi run -n 4 --stats -- ./prog input.dat\n  \
    warpwave mpi run -n 4 --algo 'native:0-64k;ring:64k-' --dry-run -- ./prog\n\n\
    Uses the MPI that the program is linked against, unless --mpi is given. Exits with the exit code of the launcher.")]
pub(super) struct Options {
    /// Start N ranks.
    #[arg(short = 'n', long = "np", value_name = "N", value_parser = ranks)]
    np: u32,
    #[command(flatten)]
    launcher: LauncherArgs,
    /// Force an algorithm for all sizes (ring) or per size range (native:0-64k;ring:64k-); auto uses the tuning table. Algorithms:
    /// native, recursive_doubling, ring, segmented_ring, rabenseifner, hierarchical, ipc, nccl.
    #[arg(long, value_name = "ALGO", value_parser = algorithms)]
    algo: Option<String>,
    /// Print call counters of each rank at MPI_Finalize.
    #[arg(long)]
    stats: bool,
    /// Print the command line without running it.
    #[arg(long)]
    dry_run: bool,
    /// Program and its arguments.
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

pub(super) fn run(context: &mut Context<'_>, options: &Options) -> Outcome {
    let program = resolve(&options.program[0].to_string_lossy())?;
    let linked = linked(&program);
    let launcher = Launcher::choose(options.launcher.mpi.as_deref(), linked)?;
    if let Some(family) = linked.filter(|family| *family != launcher.family) {
        let (theirs, ours) = (family.title(), launcher.family.title());
        writeln!(
            context.err,
            "warpwave: {} is linked against {theirs}, but the launcher is {ours}; each rank may run alone (MPI_COMM_WORLD of size 1). \
             Select the matching launcher with --mpi",
            program.display()
        )?;
    }
    let mut job = Job::new(&options.launcher, options.np, launcher)?;
    job.env.extend(options.algo.iter().map(|algo| ("WARPWAVE_MPI_ALGO", algo.clone())));
    job.env.extend(options.stats.then(|| ("WARPWAVE_MPI_STATS", "1".to_owned())));
    let line = job.command_line(options.program.iter().cloned());
    if options.dry_run {
        let words: Vec<String> = line.iter().map(|word| shell_quote(&word.to_string_lossy())).collect();
        return Ok(writeln!(context.out, "{}", words.join(" "))?);
    }
    job.check_root()?;
    // Replaces this process, so that signals and the exit code are the launcher's.
    let error = Command::new(&line[0]).args(&line[1..]).exec();
    Err(failed(format!("{}: {error}", line[0].to_string_lossy())))
}
