//! `warpwave bench ops`: speed of each operation against device copy bandwidth and a peer, in the same run.

mod attention;
mod case;
mod conv;
mod cpu;
mod elementwise;
mod experts;
mod image;
mod index;
mod matrix;
mod plot;
mod quant;
mod random;
mod reduce;
mod sort;
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

/// Bytes moved by the copy that measures device bandwidth: half read, half written.
const COPIED: usize = 2 << 30;
/// Measurements of an operation, interleaved with the peer.
const ROUNDS: usize = 3;

#[derive(clap::Args)]
#[command(after_help = "Example: warpwave bench ops --device cuda:0 --filter softmax --peer torch --plot ops.svg\n\n\
    Values are medians; runs alternate with the baseline, and the L2 cache is flushed before each run. Fractions are relative to the \
    bandwidth of a 1 GiB device-to-device copy (reads plus writes). `x peer` above 1 means faster than the baseline.")]
pub(super) struct Options {
    /// Run on this device: cuda:0, rocm:1, vgpu:gfx90a (virtual: small sizes; timings are not meaningful), or auto (the first GPU found).
    #[arg(long, env = "WARPWAVE_DEVICE", default_value = "auto")]
    device: String,
    /// Run only operations whose name contains one of these words, comma-separated.
    #[arg(long, value_name = "WORDS")]
    filter: Option<String>,
    /// Compare with this baseline: PyTorch on the same GPU, or the CPU.
    #[arg(long, value_name = "torch|cpu")]
    peer: Option<PeerName>,
    /// Benchmark feed-forward matmuls, prefill attention and decode attention at these batch sizes instead, e.g. 1,2,4,8.
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..))]
    batch: Vec<u16>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Plot the achieved fraction of copy bandwidth, with the baseline, to an SVG file.
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// List the operations without measuring.
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
    /// Seconds of the peer, or why it failed.
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

    /// Returns the fraction of device copy bandwidth.
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
    let cases = chosen(Sizes { small }, &options.batch, options.filter.as_deref())?;
    if options.list {
        for case in &cases {
            writeln!(context.out, "{}", case.name)?;
        }
        return Ok(());
    }
    let mut torch = match options.peer {
        Some(PeerName::Torch) if small => {
            return Err(usage("PyTorch does not run on a virtual device; use --peer cpu or a CUDA device"));
        }
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
        // Interleaved: the clock drops under load and recovers.
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
    // The card may have been cooler at first.
    ceiling = ceiling.max(copies(&bench, &mut timer, Sizes { small })?);
    let peer = torch.map_or_else(|| options.peer.map(|_| "the CPU".to_owned()), |peer| Some(peer.name.clone()));
    if let Some(file) = &options.plot {
        let text = plot::svg(&format!("{}, fraction of copy bandwidth ({ceiling:.0} GB/s)", device.info().model), ceiling, &rows);
        std::fs::write(file, text).map_err(|error| failed(format!("{}: {error}", file.display())))?;
    }
    report(context, options.json, &device.info().model, peer.as_deref(), ceiling, &rows)
}

fn chosen(sizes: Sizes, batch: &[u16], filter: Option<&str>) -> Result<Vec<Case>, Failure> {
    let mut cases = if batch.is_empty() { all_cases(sizes) } else { batch_cases(sizes, batch) };
    if let Some(filter) = filter {
        let words: Vec<&str> = filter.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
        cases.retain(|case| words.iter().any(|word| case.name.contains(word)));
        if cases.is_empty() {
            return Err(usage(format!("unknown operation `{filter}`; see `warpwave bench ops --list`")));
        }
    }
    Ok(cases)
}

/// Returns the operations of a language model for each batch size.
fn batch_cases(sizes: Sizes, batch: &[u16]) -> Vec<Case> {
    let batch: Vec<usize> = batch.iter().map(|size| usize::from(*size)).collect();
    let mut cases = matrix::batch_cases(sizes, &batch);
    cases.extend(attention::batch_cases(sizes, &batch));
    cases.extend(transformer::batch_cases(sizes, &batch));
    cases
}

fn all_cases(sizes: Sizes) -> Vec<Case> {
    let mut cases: Vec<Case> = elementwise::cases(sizes);
    cases.extend(cpu::cases(sizes));
    cases.extend(index::cases(sizes));
    cases.extend(sort::cases(sizes));
    cases.extend(reduce::cases(sizes));
    cases.extend(matrix::cases(sizes));
    cases.extend(conv::cases(sizes));
    cases.extend(image::cases(sizes));
    cases.extend(attention::cases(sizes));
    cases.extend(transformer::cases(sizes));
    cases.extend(quant::cases(sizes));
    cases.extend(experts::cases(sizes));
    cases.extend(random::cases(sizes));
    cases
}

fn named(name: &str, failure: Failure) -> Failure {
    Failure { message: format!("{name}: {}", failure.message), ..failure }
}

/// Returns the bandwidth of device-to-device copies in GB/s.
pub(super) fn ceiling(device: &warpwave_gpu::Device, jit: &warpwave_jit::Jit) -> Result<f64, Failure> {
    let small = device.info().is_virtual;
    let bench = Bench::new(device, jit)?;
    copies(&bench, &mut Timer::new(&bench, small)?, Sizes { small })
}

/// Returns the TFLOP/s of the vendor BLAS with large `bf16` matrices; `None` on a virtual device or without a library.
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

/// Measures the bandwidth of a driver copy in GB/s.
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
    let versus = peer.map_or_else(String::new, |peer| format!(", vs {peer}"));
    writeln!(context.out, "{model}, copy bandwidth {ceiling:.0} GB/s{versus}")?;
    let wide = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    writeln!(context.out, "{:wide$} {:>9}         {:>8} {:>9} {:>7}", "", "ours", "of copy", "peer", "x peer")?;
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
            writeln!(context.err, "warpwave: {}: the baseline failed: {reason}", row.name)?;
        }
    }
    Ok(())
}
