//! `warpwave tune`: finds the kernels' fastest settings on a GPU model, and keeps them.

use serde_json::json;
use warpwave_kernels::{Knob, Tuning, tune};

use super::{Context, Outcome, failed, usage};

/// Bytes that each measured operation reads or writes.
const BYTES: usize = 512 << 20;

#[derive(clap::Args)]
#[command(after_help = "Example: warpwave tune --device cuda:0\n\n\
    The choices are kept beside the kernel cache, for each GPU model, and used from the next start on. They change speed, never results.")]
pub(super) struct Args {
    /// The device: cuda:0, rocm:1, or auto for the first there is.
    #[arg(long, env = "WARPWAVE_DEVICE", default_value = "auto")]
    device: String,
    /// Measure and print, and keep nothing.
    #[arg(long)]
    dry_run: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(context: &mut Context<'_>, args: &Args) -> Outcome {
    let device = context.device(&args.device)?;
    if device.name().starts_with("vgpu:") {
        return Err(usage(format!("{} is virtual: how fast it is says nothing about a GPU", device.name())));
    }
    let cache = context.jit.cache().path().map(ToOwned::to_owned);
    if cache.is_none() && !args.dry_run {
        return Err(failed("the cache is switched off: there is no place to keep the choices; `--dry-run` only measures"));
    }
    let model = device.info().model.clone();
    let mut trials = Vec::new();
    let tuning = tune(&device, &context.jit, BYTES, |trial| {
        let _ = writeln!(
            context.err,
            "{:14} {:4} {:10.1} µs{}",
            trial.knob.name(),
            trial.value,
            trial.micros,
            if trial.kept { "  kept" } else { "" }
        );
        trials.push(trial);
    })?;
    let file = match cache.filter(|_| !args.dry_run) {
        Some(cache) => {
            Some(tuning.save(&cache, &model).map_err(|error| failed(format!("{}: {error}", Tuning::file(&cache, &model).display())))?)
        }
        None => None,
    };
    if args.json {
        let chosen: serde_json::Map<_, _> = Knob::ALL.iter().map(|knob| (knob.name().to_owned(), json!(tuning.get(*knob)))).collect();
        let tried: Vec<_> = trials.iter().map(|t| json!({ "knob": t.knob.name(), "value": t.value, "micros": t.micros })).collect();
        return context.print_json(&json!({ "device": model, "chosen": chosen, "tried": tried, "file": file }));
    }
    let chosen: Vec<String> = Knob::ALL.iter().map(|knob| format!("{} {}", knob.name(), tuning.get(*knob))).collect();
    writeln!(context.out, "{model}: {}", chosen.join(", "))?;
    if let Some(file) = file {
        writeln!(context.out, "kept in {}", file.display())?;
    }
    Ok(())
}
