//! `warpwave mpi info`.

use serde_json::{Value, json};
use warpwave_allreduce::settings::{CommSettings, default_table_path};

use super::super::{Context, Outcome};
use super::{Launcher, library};

#[derive(clap::Args)]
#[command(after_help = "Example: warpwave mpi info --json | jq -r '.mpis[].launcher'\n\nExit code: 0, even if no MPI is installed.")]
pub(super) struct Options {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(context: &mut Context<'_>, options: &Options) -> Outcome {
    let launchers = Launcher::all();
    let library = library::find();
    let named = std::env::var("WARPWAVE_MPI_TABLE").ok().filter(|name| !name.trim().is_empty());
    let source = named.or_else(|| Some(default_table_path().filter(|path| path.exists())?.display().to_string()));
    let rules: Vec<String> = CommSettings::from_env().rules().collect();
    if options.json {
        let mpis: Vec<Value> =
            launchers.iter().map(|found| json!({ "mpi": found.family.name(), "version": found.version, "launcher": found.path })).collect();
        return context.print_json(&json!({
            "mpis": mpis,
            "library": library.as_ref().ok(),
            "library_error": library.as_ref().err().map(|failure| &failure.message),
            "table": source,
            "rules": rules,
        }));
    }
    let out = &mut context.out;
    if launchers.is_empty() {
        writeln!(out, "no MPI launcher found in PATH; install one (apt install openmpi-bin, or mpich)")?;
    }
    for found in &launchers {
        writeln!(out, "{:8} {} {}", found.family.name(), found.version, found.path.display())?;
    }
    match &library {
        Ok(path) => writeln!(out, "library  {}", path.display())?,
        Err(failure) => writeln!(out, "library  not found: {}", failure.message)?,
    }
    writeln!(out, "table    {}", source.as_deref().unwrap_or("built-in (run `warpwave mpi tune` to generate one for this machine)"))?;
    for rule in rules {
        writeln!(out, "  {rule}")?;
    }
    Ok(())
}
