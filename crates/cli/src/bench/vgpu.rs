//! `warpwave bench vgpu`: speed of the virtual GPU in lane operations per second, by SIMD level and thread count.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use warpwave_gpu::Launch;
use warpwave_jit::cache::Cache;
use warpwave_jit::{Jit, KernelSource};
use warpwave_vgpu::exec::{SimdLevel, totals};

use super::super::{Context, Failure, Outcome, failed};
use super::{Bound, Row, median, report};

/// Matrix dimension.
const SIDE: usize = 1024;
/// Kernels other than matmul, and their number of elements.
const OTHERS: [&str; 8] = ["saxpy", "gelu", "softmax", "shuffles", "halves", "doubles", "hashes", "transpose"];
const ELEMENTS: usize = 1 << 20;
/// Matrix dimension for the comparison with another emulator.
const PEER_SIDE: usize = 256;
/// The same matmul in tinygrad; prints seconds.
const TINYGRAD: &str = "
import time
from tinygrad import Tensor, Device
n = 256
a, b = Tensor.rand(n, n).realize(), Tensor.rand(n, n).realize()
times = []
for _ in range(4):
    start = time.perf_counter()
    (a @ b).realize()
    Device[Device.DEFAULT].synchronize()
    times.append(time.perf_counter() - start)
print(min(times))
";
/// Runs of each kernel; the fastest counts, since only other load makes a run slower.
const RUNS: usize = 3;

#[derive(clap::Args)]
#[command(after_help = "Example: warpwave bench vgpu --device vgpu:gfx942 --json")]
pub(super) struct Options {
    /// Run on this virtual device.
    #[arg(long, default_value = warpwave::DEFAULT_VIRTUAL)]
    device: String,
    /// Compare with the AMD emulator of this tinygrad checkout.
    #[arg(long, value_name = "DIR")]
    tinygrad: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Internal: measure in this process with the settings of its environment.
    #[arg(long, hide = true)]
    inside: bool,
}

pub(super) fn run(context: &mut Context<'_>, options: &Options) -> Outcome {
    if !context.device(&options.device)?.info().is_virtual {
        return Err(failed(format!("`{}` is not a virtual device; try {}", options.device, warpwave::DEFAULT_VIRTUAL)));
    }
    if options.inside {
        let figures = measure(context, options)?;
        return context.print_json(&figures);
    }
    let best = SimdLevel::best();
    let mut rows = Vec::new();
    let mut fastest = 0.0;
    for (level, product, middle) in [(SimdLevel::Avx512, 1.0, 0.5), (SimdLevel::Avx2, 0.6, 0.3), (SimdLevel::Portable, 0.0, 0.0)] {
        if level > best {
            continue;
        }
        let figures = in_child(options, level, 1)?;
        let target = |limit: f64| (limit > 0.0).then_some((Bound::AtLeast, limit));
        let speed = figures["matmul"].as_f64().unwrap_or(f64::NAN);
        let others: Vec<f64> = OTHERS.iter().filter_map(|name| figures[name].as_f64()).collect();
        rows.push(row(format!("matmul f32 {SIDE}^3, {}, 1 thread", level.name()), speed, target(product)));
        rows.push(row(format!("median of the other {} kernels, {}", others.len(), level.name()), median(others), target(middle)));
        if level == best {
            fastest = speed;
        }
    }
    let two = in_child(options, best, 2)?["matmul"].as_f64().unwrap_or(f64::NAN);
    let mut threads = row("matmul, 2 threads vs 1".to_owned(), two, Some((Bound::AtLeast, 1.6)));
    threads.raw = Some(fastest);
    threads.ratio = two / fastest;
    rows.push(threads);
    if let Some(folder) = &options.tinygrad {
        let ours = in_child(options, best, 1)?["peer_seconds"].as_f64().unwrap_or(f64::NAN);
        let theirs = tinygrad(folder)?;
        let what = format!("matmul f32 {PEER_SIDE}^3, vs tinygrad emulator (RDNA 3)");
        rows.push(Row { what, ours: ours * 1e3, raw: Some(theirs * 1e3), unit: "ms", ratio: theirs / ours, target: None });
    }
    report(context, options.json, &options.device, rows)
}

/// Returns the time of tinygrad's emulator in seconds.
fn tinygrad(folder: &Path) -> Result<f64, Failure> {
    let mut command = Command::new("python3");
    command.args(["-c", TINYGRAD]).current_dir(folder).env("PYTHONPATH", folder).env("DEV", "MOCK+AMD:LLVM");
    let output = command.output().map_err(|error| failed(format!("python3: {error}")))?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().map_err(|_| {
        let errors = String::from_utf8_lossy(&output.stderr);
        let last = errors.lines().last().unwrap_or("no message").to_owned();
        failed(format!("tinygrad emulator failed in {}: {last}", folder.display()))
    })
}

fn row(what: String, speed: f64, target: Option<(Bound, f64)>) -> Row {
    Row { what, ours: speed, raw: None, unit: "G lane ops/s", ratio: speed, target }
}

/// Measures in a child process: the settings are read once per process.
fn in_child(options: &Options, level: SimdLevel, threads: usize) -> Result<Value, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["bench", "vgpu", "--inside", "--device", &options.device]);
    command.env("WARPWAVE_VGPU_SIMD", level.name()).env("WARPWAVE_VGPU_THREADS", threads.to_string());
    let output = command.output()?;
    if !output.status.success() {
        return Err(failed(format!("benchmark process failed: {}", String::from_utf8_lossy(&output.stderr))));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Returns G lane operations per second of each kernel.
fn measure(context: &mut Context<'_>, options: &Options) -> Result<Value, Failure> {
    let device = context.device(&options.device)?;
    let source = KernelSource::from_text("bench_vgpu.cu", include_str!("vgpu.cu"))?;
    let module = Jit::new(Cache::from_env()).load(&device, &source)?;
    let stream = device.stream()?;
    let values: Vec<f32> = (0..SIDE * SIDE).map(|i| (i * 7919 % 1000) as f32 / 500.0 - 1.0).collect();
    let (x, y) = (stream.upload(&values)?, stream.upload(&values)?);
    let mut out = stream.upload(&values)?;
    let mut figures = json!({});
    for name in OTHERS.into_iter().chain(["matmul"]) {
        let kernel = module.kernel(name)?;
        let (launch, n) = if name == "matmul" {
            let tiles = (SIDE / 64) as u32;
            (Launch::new([tiles, tiles, 1], [16, 16, 1]), SIDE)
        } else {
            (Launch::for_elements(ELEMENTS, 256), ELEMENTS)
        };
        let mut best = 0f64;
        for _ in 0..RUNS {
            let before = totals();
            // SAFETY: the arguments have the types of the kernel's parameters, and it stays within their elements.
            unsafe { kernel.launch(&stream, launch, (&x, &y, &mut out, n as i32))? };
            stream.synchronize()?;
            let after = totals();
            let time = (after.time - before.time).as_secs_f64();
            best = best.max((after.lane_operations - before.lane_operations) as f64 / time / 1e9);
        }
        figures[name] = json!(best);
    }
    let (kernel, tiles) = (module.kernel("matmul")?, (PEER_SIDE / 64) as u32);
    let mut least = f64::INFINITY;
    for _ in 0..RUNS {
        let before = totals();
        let launch = Launch::new([tiles, tiles, 1], [16, 16, 1]);
        // SAFETY: as above; the matrices are smaller.
        unsafe { kernel.launch(&stream, launch, (&x, &y, &mut out, PEER_SIDE as i32))? };
        stream.synchronize()?;
        least = least.min((totals().time - before.time).as_secs_f64());
    }
    figures["peer_seconds"] = json!(least);
    Ok(figures)
}
