//! Runs one case on one device.

use std::ffi::c_void;
use std::time::{Duration, Instant};

use warpwave_gpu::{Arg, Buffer, Device, Handle, Kernel, Module, Stream, Vendor};
use warpwave_vgpu::exec::totals;

use super::case::{Case, Expect, Gpu, Run, Value};
use super::data::ElemType;
use super::rng::Rng;

/// Fills output buffers and the guard after every buffer.
const POISON: u8 = 0xa5;
const GUARD: usize = 256;

/// The timeout of a kernel, generous enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Why a case failed.
pub enum Failure {
    /// A wrong result, described.
    Wrong(String),
    /// The kernel did not end; its stream and module must not be used any more.
    Timeout,
}

impl From<String> for Failure {
    fn from(why: String) -> Failure {
        Failure::Wrong(why)
    }
}

/// A case on a device: its inputs and the kernel.
struct Prepared<'a> {
    run: Run,
    kernel: Kernel,
    module: &'a Module,
    stream: &'a Stream,
}

impl<'a> Prepared<'a> {
    fn new(case: &Case, module: &'a Module, stream: &'a Stream, seed: u64, wave: usize) -> Result<Prepared<'a>, Failure> {
        let gpu = Gpu { arch: stream.device().info().arch.base().to_string(), wave };
        let run = (case.make)(&mut Rng::new(seed, &[&case.kernel, &gpu.arch]), &gpu);
        let kernel = module.kernel(&case.kernel).map_err(|error| error.to_string())?;
        Ok(Prepared { run, kernel, module, stream })
    }

    /// Launches several times, each time with the original inputs; returns the buffers' contents.
    fn launch(&self, times: usize) -> Result<Vec<Buffer<u8>>, Failure> {
        for (name, bytes) in &self.run.globals {
            write_global(self.stream.device(), self.module, self.stream, name, bytes)?;
        }
        let uploaded = || upload(&self.run, self.stream).map_err(|error| error.to_string());
        let (inputs, mut buffers) = (if times > 1 { uploaded()? } else { Vec::new() }, uploaded()?);
        for time in 0..times {
            for (input, buffer) in inputs.iter().zip(&mut buffers).filter(|_| time > 0) {
                self.stream.copy(input, buffer).map_err(|error| error.to_string())?;
            }
            let mut room = buffers.iter_mut();
            let values = self.run.args.iter().filter_map(|value| match value {
                Value::Scalar(bytes) => Some(Arg::bytes(bytes)),
                Value::Buffer { .. } => room.next().map(Arg::from),
            });
            let args: Vec<Arg<'_>> = values.collect();
            // SAFETY: the case was written for the kernel; what is wrong in either shows on a virtual device, and harms nothing else.
            let launched = unsafe { self.kernel.launch(self.stream, self.run.launch, &args[..]) };
            launched.map_err(|error| error.to_string())?;
        }
        if !finishes(self.stream)? {
            // The kernel still uses them.
            std::mem::forget((inputs, buffers));
            return Err(Failure::Timeout);
        }
        Ok(buffers)
    }
}

/// Runs a case, compiled for `wave` lanes, and compares the result with the reference.
pub fn check(case: &Case, module: &Module, stream: &Stream, seed: u64, wave: usize) -> Result<(), Failure> {
    let prepared = Prepared::new(case, module, stream, seed, wave)?;
    let buffers = prepared.launch(1)?;
    for (number, (value, buffer)) in buffer_args(&prepared.run).zip(&buffers).enumerate() {
        let bytes = stream.download(buffer).map_err(|error| error.to_string())?;
        compare(value, &bytes).map_err(|why| format!("buffer {number}: {why}"))?;
    }
    Ok(())
}

/// Speed of a kernel's launches.
pub struct Speed {
    /// Time of the first launches of the module.
    pub first: Duration,
    /// Lane operations per second, the best of the rounds.
    pub best: f64,
}

/// Measures `rounds` of `times` launches each.
pub fn measure(
    case: &Case,
    module: &Module,
    stream: &Stream,
    seed: u64,
    wave: usize,
    [rounds, times]: [usize; 2],
) -> Result<Speed, Failure> {
    let prepared = Prepared::new(case, module, stream, seed, wave)?;
    let mut speed = Speed { first: Duration::ZERO, best: 0.0 };
    for round in 0..rounds {
        let before = totals();
        prepared.launch(times)?;
        let after = totals();
        let time = after.time - before.time;
        if round == 0 {
            speed.first = time;
        }
        speed.best = speed.best.max((after.lane_operations - before.lane_operations) as f64 / time.as_secs_f64());
    }
    Ok(speed)
}

/// Waits for the stream, with a timeout.
fn finishes(stream: &Stream) -> Result<bool, String> {
    let start = Instant::now();
    let mut pause = Duration::from_micros(50);
    while !stream.is_done().map_err(|error| error.to_string())? {
        if start.elapsed() > PATIENCE {
            return Ok(false);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(5));
    }
    stream.synchronize().map_err(|error| error.to_string())?;
    Ok(true)
}

fn buffer_args(run: &Run) -> impl Iterator<Item = &Value> {
    run.args.iter().filter(|value| matches!(value, Value::Buffer { .. }))
}

/// Creates every buffer argument on the device, with a guard after it.
fn upload(run: &Run, stream: &Stream) -> warpwave_gpu::Result<Vec<Buffer<u8>>> {
    let bytes = |value: &Value| match value {
        Value::Scalar(_) => Vec::new(),
        Value::Buffer { kind, len, before, .. } => {
            let mut bytes = before.clone().unwrap_or_else(|| vec![POISON; len * kind.size()]);
            bytes.extend([POISON; GUARD]);
            bytes
        }
    };
    buffer_args(run).map(|value| stream.upload(&bytes(value))).collect()
}

fn compare(value: &Value, bytes: &[u8]) -> Result<(), String> {
    let Value::Buffer { kind, len, after, .. } = value else { return Ok(()) };
    let (data, guard) = bytes.split_at(len * kind.size());
    if let Some(place) = guard.iter().position(|byte| *byte != POISON) {
        return Err(format!("written beyond its end, {place} bytes behind it"));
    }
    match after {
        Expect::Exact(expected) => exactly(*kind, data, expected),
        Expect::Judged(judge) => judge(data),
        Expect::Close(expected, tolerance) => {
            let elements = data.chunks_exact(kind.size()).map(|bytes| kind.read(bytes));
            let mut wrong = elements.zip(expected).enumerate().filter_map(|(index, (got, expected))| {
                tolerance.refuses(*kind, got, *expected).map(|why| format!("[{index}]: got {got:e}, expected {expected:e} ({why})"))
            });
            wrong.next().map_or(Ok(()), |first| Err(format!("{first}; {} more", wrong.count())))
        }
    }
}

fn exactly(kind: ElemType, got: &[u8], expected: &[u8]) -> Result<(), String> {
    let size = kind.size();
    let mut wrong = got.chunks_exact(size).zip(expected.chunks_exact(size)).enumerate().filter(|(_, (got, expected))| got != expected);
    let Some((index, (one, other))) = wrong.next() else { return Ok(()) };
    let hex = |bytes: &[u8]| bytes.iter().rev().map(|byte| format!("{byte:02x}")).collect::<String>();
    let show = |bytes: &[u8]| format!("{:?} (0x{})", kind.read(bytes), hex(bytes));
    Err(format!("[{index}]: got {}, expected {}; {} more", show(one), show(other), wrong.count()))
}

/// Copies bytes into a module variable with the driver's call, because the safe layer only returns its address.
fn write_global(device: &Device, module: &Module, stream: &Stream, name: &str, bytes: &[u8]) -> Result<(), String> {
    let range = module.global(name).map_err(|error| error.to_string())?;
    if range.bytes != bytes.len() {
        return Err(format!("the variable {name} has {} bytes, the case gives {}", range.bytes, bytes.len()));
    }
    let symbol = match device.info().vendor {
        Vendor::Nvidia => "cuMemcpyHtoDAsync_v2",
        Vendor::Amd => "hipMemcpyHtoDAsync",
    };
    let copy = device.driver().symbol(symbol).ok_or_else(|| format!("the driver has no {symbol}"))?;
    // SAFETY: the shape that the driver table declares for this symbol.
    let copy = unsafe { std::mem::transmute::<*const c_void, unsafe extern "C" fn(u64, *const c_void, usize, Handle) -> i32>(copy) };
    // SAFETY: the range is the variable's, and the bytes live until the stream is done.
    let code = unsafe { copy(range.ptr, bytes.as_ptr().cast(), bytes.len(), stream.raw()) };
    if code != 0 {
        return Err(format!("{symbol} answers {code} for {name}"));
    }
    stream.synchronize().map_err(|error| error.to_string())
}

/// Returns whether two instances of an argument are equal. Judges cannot be compared, only their inputs.
pub fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Scalar(a), Value::Scalar(b)) => a == b,
        (Value::Buffer { len: n, before: a, after: x, .. }, Value::Buffer { len: m, before: b, after: y, .. }) => {
            let same_after = match (x, y) {
                (Expect::Exact(x), Expect::Exact(y)) => x == y,
                (Expect::Close(x, _), Expect::Close(y, _)) => x.iter().map(|x| x.to_bits()).eq(y.iter().map(|y| y.to_bits())),
                (Expect::Judged(_), Expect::Judged(_)) => true,
                _ => false,
            };
            n == m && a == b && same_after
        }
        _ => false,
    }
}
