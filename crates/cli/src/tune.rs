//! `warpwave tune`: autotunes kernel parameters for a GPU model and saves them.

use serde_json::json;
use warpwave_kernels::{Tuning, TuningParam, tune};

use super::{Context, Outcome, failed, usage};

/// Bytes read or written by each measured operation.
const BYTES: usize = 512 << 20;

#[derive(clap::Args)]
#[command(after_help = "Example: warpwave tune --device cuda:0\n\n\
    Results are saved next to the kernel cache, per GPU model, and used by later runs. They affect speed only.")]
pub(super) struct Args {
    /// Tune for this device: cuda:0, rocm:1, or auto (the first GPU found).
    #[arg(long, env = "WARPWAVE_DEVICE", default_value = "auto")]
    device: String,
    /// Measure and print without saving.
    #[arg(long)]
    dry_run: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(context: &mut Context<'_>, args: &Args) -> Outcome {
    let device = context.device(&args.device)?;
    if device.info().is_virtual {
        return Err(usage(format!("{} is a virtual device; tuning needs a physical GPU", device.name())));
    }
    let cache = context.jit.cache().path().map(ToOwned::to_owned);
    if cache.is_none() && !args.dry_run {
        return Err(failed("the cache is disabled, so results cannot be saved; use --dry-run to measure only"));
    }
    let model = device.info().model.clone();
    let mut trials = Vec::new();
    let tuning = tune(&device, &context.jit, BYTES, |trial| {
        let _ = writeln!(
            context.err,
            "{:14} {:4} {:10.1} µs{}",
            trial.param.name(),
            trial.value,
            trial.micros,
            if trial.kept { "  best" } else { "" }
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
        let chosen: serde_json::Map<_, _> =
            TuningParam::ALL.iter().map(|param| (param.name().to_owned(), json!(tuning.get(*param)))).collect();
        let tried: Vec<_> = trials.iter().map(|t| json!({ "param": t.param.name(), "value": t.value, "micros": t.micros })).collect();
        return context.print_json(&json!({ "device": model, "chosen": chosen, "tried": tried, "file": file }));
    }
    let chosen: Vec<String> = TuningParam::ALL.iter().map(|param| format!("{} {}", param.name(), tuning.get(*param))).collect();
    writeln!(context.out, "{model}: {}", chosen.join(", "))?;
    if let Some(file) = file {
        writeln!(context.out, "saved to {}", file.display())?;
    }
    Ok(())
}
