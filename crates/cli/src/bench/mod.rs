//! `warpwave bench`: this layer beside raw driver calls, in the same run.

mod compile;
mod launch;
mod llm;
mod memory;
mod ops;
mod python;
mod vgpu;

use serde_json::{Value, json};
use warpwave_gpu::Device;

use super::{Context, Outcome};

#[derive(clap::Args)]
#[command(
    after_help = "Example: warpwave bench launch --device cuda:0 --json\n\nFigures are ratios to the raw driver calls measured in turn with ours; medians."
)]
pub(super) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// What a launch through this layer costs beside a raw one.
    Launch(Common),
    /// Pooled allocation, pinned copies, and memory held beyond need.
    Memory(Common),
    /// Compile times, and the time from request to module when the cache has it.
    Compile(compile::Options),
    /// Tokens per second of a language model, beside llama.cpp.
    Llm(Box<llm::Options>),
    /// The kernel library's operations, beside the device's copies and a peer.
    Ops(ops::Options),
    /// How fast the virtual GPU interprets, in lane-operations per second.
    Vgpu(vgpu::Options),
}

#[derive(clap::Args)]
struct Common {
    /// The device: cuda:0, rocm:1, vgpu:gfx90a (virtual), or auto for the first there is.
    #[arg(long, env = "WARPWAVE_DEVICE", default_value = "auto")]
    device: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// A measured figure, and what it has to be.
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
    fn holds(&self) -> Option<bool> {
        self.target.map(|(bound, limit)| match bound {
            Bound::AtMost => self.ratio <= limit,
            Bound::AtLeast => self.ratio >= limit,
        })
    }
}

pub(super) fn run(context: &mut Context<'_>, args: &Args) -> Outcome {
    match &args.what {
        What::Launch(common) => {
            let device = context.device(&common.device)?;
            let rows = for_real_ones(&device, launch::measure(&device)?);
            report(context, common.json, device.info().model.as_str(), rows)
        }
        What::Memory(common) => {
            let device = context.device(&common.device)?;
            let rows = for_real_ones(&device, memory::measure(&device)?);
            report(context, common.json, device.info().model.as_str(), rows)
        }
        What::Compile(options) => compile::run(context, options),
        What::Llm(options) => llm::run(context, options),
        What::Ops(options) => ops::run(context, options),
        What::Vgpu(options) => vgpu::run(context, options),
    }
}

/// The targets are for real GPUs: a virtual one has no driver whose cost could be compared.
fn for_real_ones(device: &Device, mut rows: Vec<Row>) -> Vec<Row> {
    if device.name().starts_with("vgpu:") {
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
                json!({ "what": row.what, "ours": row.ours, "raw": row.raw, "unit": row.unit, "ratio": row.ratio, "target": target, "holds": row.holds() })
            })
            .collect();
        return context.print_json(&json!({ "device": model, "rows": all }));
    }
    writeln!(context.out, "{model}\n{:44} {:>12} {:>12} {:>9}  target", "", "ours", "raw", "ratio")?;
    for row in &rows {
        let raw = row.raw.map_or_else(|| "-".to_owned(), |raw| format!("{raw:.3}"));
        let target = match (row.target, row.holds()) {
            (Some((bound, limit)), Some(holds)) => {
                format!("{} {limit} {}", if bound == Bound::AtMost { "<=" } else { ">=" }, if holds { "holds" } else { "DOES NOT HOLD" })
            }
            _ => String::new(),
        };
        writeln!(context.out, "{:44} {:>12.3} {raw:>12} {:>9.3}  {target}", format!("{} ({})", row.what, row.unit), row.ours, row.ratio)?;
    }
    Ok(())
}

pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
