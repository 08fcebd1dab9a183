//! `warpwave bench`: benchmarks, each measured against a baseline in the same run.

mod compile;
mod image;
mod kernels;
mod launch;
mod llm;
mod memory;
mod ops;
mod python;
mod serve;
mod vgpu;

use serde_json::{Value, json};
use warpwave_gpu::Device;

use super::{Context, Outcome};

#[derive(clap::Args)]
#[command(
    after_help = "Example: warpwave bench launch --device cuda:0 --json\n\n`launch` and `memory` compare warpwave with raw driver calls, interleaved in the same run; values are medians."
)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Measure kernel launch overhead relative to a raw driver launch.
    #[command(after_help = "Example: warpwave bench launch --device cuda:0")]
    Launch(Common),
    /// Measure pool allocation time, pinned copy bandwidth and pool memory overhead.
    #[command(after_help = "Example: warpwave bench memory --device cuda:0")]
    Memory(Common),
    /// Measure compile time, and load time on a cache hit.
    Compile(compile::Options),
    /// Measure prefill and decode throughput of a language model.
    Llm(Box<llm::Options>),
    /// Measure denoising steps and decoding of image models, optionally against diffusers.
    Image(Box<image::Options>),
    /// Measure a server under load: TTFT, ITL, TPOT and throughput by number of streams.
    Serve(Box<serve::Options>),
    /// Benchmark kernel library operations relative to copy bandwidth and to a baseline (PyTorch or CPU).
    Ops(ops::Options),
    /// Measure the speed of the virtual GPU in lane operations per second.
    Vgpu(vgpu::Options),
}

#[derive(clap::Args)]
struct Common {
    /// Run on this device: cuda:0, rocm:1, vgpu:gfx90a (virtual), or auto (the first GPU found).
    #[arg(long, env = "WARPWAVE_DEVICE", default_value = "auto")]
    device: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// A measurement and its target.
struct Row {
    what: String,
    ours: f64,
    raw: Option<f64>,
    unit: &'static str,
    ratio: f64,
    target: Option<(Bound, f64)>,
}

#[derive(Clone, Copy, PartialEq)]
enum Bound {
    AtMost,
    AtLeast,
}

impl Row {
    fn meets_target(&self) -> Option<bool> {
        self.target.map(|(bound, limit)| match bound {
            Bound::AtMost => self.ratio <= limit,
            Bound::AtLeast => self.ratio >= limit,
        })
    }
}

pub(super) fn run(context: &mut Context<'_>, args: &Args) -> Outcome {
    match &args.command {
        Command::Launch(common) => {
            let device = context.device(&common.device)?;
            let rows = without_virtual_targets(&device, launch::measure(&device)?);
            report(context, common.json, device.info().model.as_str(), rows)
        }
        Command::Memory(common) => {
            let device = context.device(&common.device)?;
            let rows = without_virtual_targets(&device, memory::measure(&device)?);
            report(context, common.json, device.info().model.as_str(), rows)
        }
        Command::Compile(options) => compile::run(context, options),
        Command::Llm(options) => llm::run(context, options),
        Command::Image(options) => image::run(context, options),
        Command::Serve(options) => serve::run(context, options),
        Command::Ops(options) => ops::run(context, options),
        Command::Vgpu(options) => vgpu::run(context, options),
    }
}

/// Removes the targets on a virtual device, which has no driver to compare with.
fn without_virtual_targets(device: &Device, mut rows: Vec<Row>) -> Vec<Row> {
    if device.info().is_virtual {
        rows.iter_mut().for_each(|row| row.target = None);
    }
    rows
}

fn report(context: &mut Context<'_>, json: bool, model: &str, rows: Vec<Row>) -> Outcome {
    if json {
        let all: Vec<Value> = rows
            .iter()
            .map(|row| {
                let target = row.target.map(|(bound, limit)| format!("{} {limit}", if bound == Bound::AtMost { "<=" } else { ">=" }));
                json!({ "what": row.what, "ours": row.ours, "raw": row.raw, "unit": row.unit, "ratio": row.ratio, "target": target, "holds": row.meets_target() })
            })
            .collect();
        return context.print_json(&json!({ "device": model, "rows": all }));
    }
    writeln!(context.out, "{model}\n{:44} {:>12} {:>12} {:>9}  target", "", "ours", "raw", "ratio")?;
    for row in &rows {
        let raw = row.raw.map_or_else(|| "-".to_owned(), |raw| format!("{raw:.3}"));
        let target = match (row.target, row.meets_target()) {
            (Some((bound, limit)), Some(holds)) => {
                format!("{} {limit} {}", if bound == Bound::AtMost { "<=" } else { ">=" }, if holds { "met" } else { "MISSED" })
            }
            _ => String::new(),
        };
        writeln!(context.out, "{:44} {:>12.3} {raw:>12} {:>9.3}  {target}", format!("{} ({})", row.what, row.unit), row.ours, row.ratio)?;
    }
    Ok(())
}

/// Returns the median; NaN if empty.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
