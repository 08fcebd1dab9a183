//! `warpwave bench ops`: each operation's speed, beside what the device can do and beside a peer, in the same run.

mod attention;
mod case;
mod cpu;
mod elementwise;
mod index;
mod matrix;
mod plot;
mod quant;
mod reduce;
mod time;
mod torch;
mod transformer;

use std::path::PathBuf;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use warpwave_kernels::DType;

use super::super::{Context, Failure, Outcome, failed, usage};
use super::median;
use case::{Bench, Case, Run, Sizes, Work};
use time::Timer;

/// Bytes that a copy between two places of the device moves, to know what it can do: half read, half written.
const COPIED: usize = 2 << 30;
/// Measurements of an operation, ours and the peer's by turns.
const ROUNDS: usize = 3;

#[derive(clap::Args)]
#[command(after_help = "Example: warpwave bench ops --device cuda:0 --filter softmax --peer torch --plot ops.svg\n\n\
    Figures are medians, ours and the peer's by turns, with the cache emptied before each run. The ceiling is the device's own copy of 1 GiB, \
    reading and writing counted; `x peer` above 1 means faster than the peer.")]
pub(super) struct Options {
    /// The device: cuda:0, rocm:1, vgpu:gfx90a (virtual: small sizes, and its speed means nothing), or auto for the first there is.
    #[arg(long, env = "WARPWAVE_DEVICE", default_value = "auto")]
    device: String,
    /// Only operations whose name contains one of these words, separated by commas.
    #[arg(long, value_name = "WORDS")]
    filter: Option<String>,
    /// Who does the same beside us: PyTorch on the same GPU, or this machine's CPU.
    #[arg(long, value_name = "torch|cpu")]
    peer: Option<PeerName>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Draw the shares of the ceiling, ours and the peer's, into an SVG file.
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Print the names of the operations, and measure nothing.
    #[arg(long)]
    list: bool,
}

#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
enum PeerName {
    Torch,
    Cpu,
}

/// A measured operation.
struct Row {
    name: String,
    work: Work,
    seconds: f64,
    /// The peer's seconds, or why there are none.
    peer: Option<Result<f64, String>>,
}

impl Row {
    /// GB/s, TFLOP/s or µs.
    fn figure(&self, seconds: f64) -> f64 {
        match self.work {
            Work::Bytes(bytes) => bytes as f64 / seconds / 1e9,
            Work::Flops(flops) => flops as f64 / seconds / 1e12,
            Work::Small => seconds * 1e6,
        }
    }

    fn unit(&self) -> &'static str {
        match self.work {
            Work::Bytes(_) => "GB/s",
            Work::Flops(_) => "TFLOP/s",
            Work::Small => "µs",
        }
    }

    /// The share of what the device's copies reach.
    fn share(&self, ceiling: f64) -> Option<f64> {
        matches!(self.work, Work::Bytes(_)).then(|| self.figure(self.seconds) / ceiling)
    }

    fn ratio(&self) -> Option<f64> {
        self.peer_seconds().map(|peer| peer / self.seconds)
    }

    fn peer_seconds(&self) -> Option<f64> {
        self.peer.as_ref().and_then(|peer| peer.as_ref().ok()).copied()
    }
}

pub(super) fn run(context: &mut Context<'_>, options: &Options) -> Outcome {
    let device = context.device(&options.device)?;
    let small = device.info().is_virtual;
    let cases = chosen(Sizes { small }, options.filter.as_deref())?;
    if options.list {
        for case in &cases {
            writeln!(context.out, "{}", case.name)?;
        }
        return Ok(());
    }
    let mut torch = match options.peer {
        Some(PeerName::Torch) if small => return Err(usage("PyTorch does not run on a virtual device")),
        Some(PeerName::Torch) => Some(torch::Peer::start()?),
        _ => None,
    };
    let bench = Bench::new(&device, &context.jit)?;
    let mut timer = Timer::new(&bench, small)?;
    let bar = ProgressBar::new(cases.len() as u64 + 1);
    bar.set_style(ProgressStyle::with_template("{bar:30} {pos}/{len} {wide_msg}").unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message("copy");
    let mut ceiling = copies(&bench, &mut timer, Sizes { small })?;
    let mut rows = Vec::new();
    for case in cases {
        bar.inc(1);
        bar.set_message(case.name.clone());
        let mut run = (case.make)(&bench).map_err(|failure| named(&case.name, failure))?;
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        let span = if matches!(case.work, Work::Flops(_)) { time::LONG_SPAN } else { time::SPAN };
        // By turns: a card's clock goes down while it is at work, and up again.
        for round in 0..if small { 1 } else { ROUNDS } {
            ours.push(timer.seconds(&mut run, span).map_err(|failure| named(&case.name, failure))?);
            if let (Some(torch), Some(expression)) = (&mut torch, &case.torch) {
                theirs.push(torch.seconds((round == 0).then_some(expression), span, round + 1 == ROUNDS)?);
            }
        }
        drop(run);
        bench.stream.synchronize()?;
        device.trim_pool()?;
        let peer = match (theirs.into_iter().collect::<Result<Vec<f64>, String>>(), options.peer, case.cpu) {
            (_, Some(PeerName::Cpu), Some(make)) => Some(Ok(time::on_cpu(&mut make())?)),
            (Ok(times), ..) if times.is_empty() => None,
            (times, ..) => Some(times.map(median)),
        };
        rows.push(Row { name: case.name, work: case.work, seconds: median(ours), peer });
    }
    bar.finish_and_clear();
    // The card may have been colder at first.
    ceiling = ceiling.max(copies(&bench, &mut timer, Sizes { small })?);
    let peer = torch.map_or_else(|| options.peer.map(|_| "the CPU".to_owned()), |peer| Some(peer.name.clone()));
    if let Some(file) = &options.plot {
        let text = plot::svg(&format!("{}, share of its copies ({ceiling:.0} GB/s)", device.info().model), ceiling, &rows);
        std::fs::write(file, text).map_err(|error| failed(format!("{}: {error}", file.display())))?;
    }
    report(context, options.json, &device.info().model, peer.as_deref(), ceiling, &rows)
}

fn chosen(sizes: Sizes, filter: Option<&str>) -> Result<Vec<Case>, Failure> {
    let mut cases: Vec<Case> = elementwise::cases(sizes);
    cases.extend(cpu::cases(sizes));
    cases.extend(index::cases(sizes));
    cases.extend(reduce::cases(sizes));
    cases.extend(matrix::cases(sizes));
    cases.extend(attention::cases(sizes));
    cases.extend(transformer::cases(sizes));
    cases.extend(quant::cases(sizes));
    if let Some(filter) = filter {
        let words: Vec<&str> = filter.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
        cases.retain(|case| words.iter().any(|word| case.name.contains(word)));
        if cases.is_empty() {
            return Err(usage(format!("no operation's name contains `{filter}`; `warpwave bench ops --list` has them all")));
        }
    }
    Ok(cases)
}

fn named(name: &str, failure: Failure) -> Failure {
    Failure { message: format!("{name}: {}", failure.message), ..failure }
}

/// GB/s of a device's own copies.
pub(super) fn ceiling(device: &warpwave_gpu::Device, jit: &warpwave_jit::Jit) -> Result<f64, Failure> {
    let small = device.info().is_virtual;
    let bench = Bench::new(device, jit)?;
    copies(&bench, &mut Timer::new(&bench, small)?, Sizes { small })
}

/// TFLOP/s of the vendor's library with large matrices of `bf16`; none on a virtual device, or where there is no library.
pub(super) fn library_product(device: &warpwave_gpu::Device, jit: &warpwave_jit::Jit) -> Result<Option<f64>, Failure> {
    let bench = Bench::new(device, jit)?;
    if device.info().is_virtual || bench.kernels.matmul_library().is_err() {
        return Ok(None);
    }
    let case = matrix::weights();
    let Work::Flops(flops) = case.work else { return Ok(None) };
    let mut run = (case.make)(&bench)?;
    let seconds = Timer::new(&bench, false)?.seconds(&mut run, time::LONG_SPAN)?;
    Ok(Some(flops as f64 / seconds / 1e12))
}

/// GB/s of a copy by the driver.
fn copies(bench: &Bench, timer: &mut Timer, sizes: Sizes) -> Result<f64, Failure> {
    let len = sizes.of(COPIED / 2, 1 << 16);
    let (from, mut to, stream) = (bench.normal(DType::F32, len / 4)?, bench.room(DType::U8, len)?, bench.stream.clone());
    let mut run: Run = Box::new(move || Ok(stream.copy(&from, &mut to)?));
    Ok(2.0 * len as f64 / timer.seconds(&mut run, time::SPAN)? / 1e9)
}

fn report(context: &mut Context<'_>, json: bool, model: &str, peer: Option<&str>, ceiling: f64, rows: &[Row]) -> Outcome {
    if json {
        let all: Vec<Value> = rows
            .iter()
            .map(|row| {
                let peer = row.peer_seconds().map(|seconds| row.figure(seconds));
                let failed = row.peer.as_ref().and_then(|peer| peer.as_ref().err());
                json!({
                    "op": row.name, "seconds": row.seconds, "figure": row.figure(row.seconds), "unit": row.unit(),
                    "share_of_ceiling": row.share(ceiling), "peer": peer, "peer_failed": failed, "ratio": row.ratio(),
                })
            })
            .collect();
        return context.print_json(&json!({ "device": model, "ceiling_gb_per_s": ceiling, "peer": peer, "rows": all }));
    }
    let beside = peer.map_or_else(String::new, |peer| format!(", beside {peer}"));
    writeln!(context.out, "{model}, copies at {ceiling:.0} GB/s{beside}")?;
    let wide = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    writeln!(context.out, "{:wide$} {:>9}         {:>8} {:>9} {:>7}", "", "ours", "ceiling", "peer", "x peer")?;
    for row in rows {
        let share = row.share(ceiling).map_or_else(|| "-".to_owned(), |share| format!("{share:.3}"));
        let peer = match &row.peer {
            None => "-".to_owned(),
            Some(Ok(seconds)) => format!("{:.1}", row.figure(*seconds)),
            Some(Err(_)) => "failed".to_owned(),
        };
        let ratio = row.ratio().map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.3}"));
        writeln!(context.out, "{:wide$} {:>9.1} {:7} {share:>8} {peer:>9} {ratio:>7}", row.name, row.figure(row.seconds), row.unit())?;
    }
    for row in rows {
        if let Some(Err(reason)) = &row.peer {
            writeln!(context.err, "warpwave: {}: the peer failed: {reason}", row.name)?;
        }
    }
    Ok(())
}
