//! `warpwave mpi info`.

use serde_json::{Value, json};
use warpwave_allreduce::settings::{Shared, tuned_path};

use super::super::{Context, Outcome};
use super::{Launcher, library};

#[derive(clap::Args)]
#[command(after_help = "Example: warpwave mpi info --json | jq -r '.mpis[].launcher'\n\nExits 0 on a machine without an MPI.")]
pub(super) struct Options {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(context: &mut Context<'_>, options: &Options) -> Outcome {
    let launchers = Launcher::all();
    let library = library::find();
    let named = std::env::var("WARPWAVE_MPI_TABLE").ok().filter(|name| !name.trim().is_empty());
    let source = named.or_else(|| Some(tuned_path().filter(|path| path.exists())?.display().to_string()));
    let table = Shared::from_environment().text();
    if options.json {
        let mpis: Vec<Value> =
            launchers.iter().map(|found| json!({ "mpi": found.family.name(), "version": found.version, "launcher": found.path })).collect();
        return context.print_json(&json!({
            "mpis": mpis,
            "library": library.as_ref().ok(),
            "library_error": library.as_ref().err().map(|failure| &failure.message),
            "table": source,
            "rules": table.lines().collect::<Vec<_>>(),
        }));
    }
    let out = &mut context.out;
    if launchers.is_empty() {
        writeln!(out, "no MPI found in PATH: install one (apt install openmpi-bin, or mpich)")?;
    }
    for found in &launchers {
        writeln!(out, "{:8} {} {}", found.family.name(), found.version, found.path.display())?;
    }
    match &library {
        Ok(path) => writeln!(out, "library  {}", path.display())?,
        Err(failure) => writeln!(out, "library  absent: {}", failure.message)?,
    }
    writeln!(out, "table    {}", source.as_deref().unwrap_or("built in; `warpwave mpi tune` measures one for this machine"))?;
    for line in table.lines() {
        writeln!(out, "  {line}")?;
    }
    Ok(())
}
