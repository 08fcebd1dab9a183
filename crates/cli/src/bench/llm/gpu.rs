//! GPU details of `warpwave bench llm`: bandwidth, FLOP/s, memory, and the time of each kernel.

use std::io::Write;

use serde_json::{Value, json};
use warpwave_llm::{Config, LanguageModel, Logits, Sequence};
use warpwave_tensor::Gpu;

use super::super::super::{Context, Failure, Outcome, human_bytes};
use super::super::kernels::{self, KernelTotal};
use super::super::ops;
use super::Options;

/// Decode steps whose kernels are timed; the median step is reported.
const STEPS: usize = 5;

/// GPU measurements of one run.
pub struct GpuReport {
    /// Bytes of weights and KV cache read per decode step.
    bytes: f64,
    /// Bytes per second of device-to-device copies.
    ceiling: f64,
    /// Floating-point operations of the prefill.
    flops: f64,
    /// FLOP/s of the vendor BLAS.
    library: Option<f64>,
    memory: Memory,
    /// KernelTotal of a decode step, slowest first.
    kernels: Vec<KernelTotal>,
}

/// Memory use of a device in bytes.
pub struct Memory {
    estimated: u64,
    /// Peak of the memory pool.
    peak: u64,
    /// Memory used by the driver in addition.
    driver: u64,
}

impl Memory {
    /// Returns the memory used so far.
    pub fn used(gpu: &Gpu, loaded: &LanguageModel) -> Result<Memory, Failure> {
        let device = gpu.stream.device();
        let (pool, free) = (device.pool_stats(), device.memory()?.free as u64);
        let used = loaded.budget.devices[0].free.map_or(0, |before| before.saturating_sub(free));
        let driver = used.saturating_sub(pool.allocated as u64);
        Ok(Memory { estimated: loaded.budget.devices[0].estimate.total(), peak: pool.peak_allocated as u64, driver })
    }

    fn ratio(&self) -> f64 {
        (self.peak + self.driver) as f64 / self.estimated as f64
    }
}

impl GpuReport {
    pub fn of(
        context: &Context<'_>,
        gpu: &Gpu,
        loaded: &mut LanguageModel,
        options: &Options,
        prompt: &[u32],
        memory: Memory,
    ) -> Result<GpuReport, Failure> {
        let middle = f64::from(options.prompt) + f64::from(options.tokens) / 2.0;
        let bytes = loaded.runner.model().bytes_per_token() as f64 + loaded.budget.devices[0].estimate.kv_per_token as f64 * middle;
        let device = gpu.stream.device();
        let kernels = decode_kernels(gpu, loaded, prompt)?;
        let ceiling = ops::ceiling(device, &context.jit)? * 1e9;
        let library = ops::library_product(device, &context.jit)?.map(|tflops| tflops * 1e12);
        Ok(GpuReport { bytes, ceiling, flops: flops(loaded.checkpoint.config(), prompt.len()), library, memory, kernels })
    }

    /// Returns the sum of the kernel times in seconds.
    fn kernel_seconds(&self) -> f64 {
        self.kernels.iter().map(|kernels| kernels.seconds).sum()
    }

    pub fn json(&self, [prefill, decode]: [f64; 2], prompt: f64) -> Value {
        let kernels: Vec<Value> = (self.kernels.iter()).map(KernelTotal::json).collect();
        let arithmetic = self.flops / prompt * prefill;
        json!({
            "bytes_per_token": self.bytes,
            "decode_gb_per_s": self.bytes * decode / 1e9,
            "ceiling_gb_per_s": self.ceiling / 1e9,
            "share_of_ceiling": self.bytes * decode / self.ceiling,
            "prefill_tflops": arithmetic / 1e12,
            "library_tflops": self.library.map(|library| library / 1e12),
            "share_of_library": self.library.map(|library| arithmetic / library),
            "memory": {
                "estimated": self.memory.estimated, "peak": self.memory.peak, "driver": self.memory.driver, "ratio": self.memory.ratio(),
            },
            "token_seconds": 1.0 / decode,
            "kernel_seconds": self.kernel_seconds(),
            "kernels": kernels,
        })
    }

    pub fn print(&self, out: &mut dyn Write, [prefill, decode]: [f64; 2], prompt: f64) -> Outcome {
        writeln!(
            out,
            "decode reads {:.3} GB per token: {:.0} GB/s, {:.3} of device copy bandwidth ({:.0} GB/s)",
            self.bytes / 1e9,
            self.bytes * decode / 1e9,
            self.bytes * decode / self.ceiling,
            self.ceiling / 1e9
        )?;
        let arithmetic = self.flops / prompt * prefill;
        write!(out, "prefill: {:.1} TFLOP/s", arithmetic / 1e12)?;
        match self.library {
            Some(library) => writeln!(out, ", {:.3} of vendor BLAS throughput ({:.0} TFLOP/s)", arithmetic / library, library / 1e12)?,
            None => writeln!(out)?,
        }
        let Memory { estimated, peak, driver } = self.memory;
        let human = |bytes: u64| human_bytes(usize::try_from(bytes).unwrap_or(usize::MAX));
        writeln!(
            out,
            "memory: peak {} plus {} used by the driver; estimate {}, ratio {:.3}",
            human(peak),
            human(driver),
            human(estimated),
            self.memory.ratio()
        )?;
        let (kernels, token) = (self.kernel_seconds(), 1.0 / decode);
        writeln!(
            out,
            "decode step: {:.1} us; total kernel time: {:.1} us, ratio {:.3}",
            token * 1e6,
            kernels * 1e6,
            token / kernels.max(1e-12)
        )?;
        kernels::print(out, &self.kernels, usize::MAX)
    }
}

/// Times each kernel of the decode step after a prompt.
fn decode_kernels(gpu: &Gpu, loaded: &mut LanguageModel, prompt: &[u32]) -> Result<Vec<KernelTotal>, Failure> {
    let runner = &mut loaded.runner;
    let mut sequence = Sequence::default();
    runner.use_graphs(false);
    let mut measure = || -> Result<_, Failure> {
        runner.forward(&mut [(&mut sequence, prompt)], Logits::Last)?;
        kernels::totals(&gpu.stream, STEPS, || {
            let before = sequence.len();
            runner.forward(&mut [(&mut sequence, &prompt[..1])], Logits::Last)?;
            runner.truncate(&mut sequence, before);
            Ok(())
        })
    };
    let measured = measure();
    runner.use_graphs(true);
    runner.release(sequence);
    measured
}

/// Returns the floating-point operations of a prefill: all matrices and attention for each token, the output matrix for the last.
fn flops(config: &Config, tokens: usize) -> f64 {
    let [hidden, heads, kv_heads, head_dim, feed, layers, vocab, tokens] =
        [config.hidden, config.heads, config.kv_heads, config.head_dim, config.feed_forward, config.layers, config.vocab, tokens]
            .map(|number| number as f64);
    let matrices = hidden * (2.0 * heads + 2.0 * kv_heads) * head_dim + 3.0 * hidden * feed;
    let attention = 2.0 * heads * head_dim * (tokens + 1.0) / 2.0;
    2.0 * (tokens * layers * (matrices + attention) + hidden * vocab)
}
