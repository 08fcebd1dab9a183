//! What is behind a GPU's figures: bytes, arithmetic, memory, and each kernel by itself.

use std::collections::HashMap;
use std::io::Write;

use serde_json::{Value, json};
use warpwave_llm::{Config, Sequence, Wanted};
use warpwave_tensor::Gpu;

use super::super::super::llm::Loaded;
use super::super::super::{Context, Failure, Outcome, human_bytes};
use super::super::ops;
use super::Options;

/// Steps whose kernels are measured; the one in the middle counts.
const STEPS: usize = 5;

/// Kernels of one name in a token's step.
struct Kernels {
    name: String,
    count: usize,
    seconds: f64,
}

/// What was measured beside the rates.
pub struct Facts {
    /// Bytes of weights, keys and values that a token's step reads.
    bytes: f64,
    /// Bytes per second of the device's copies.
    ceiling: f64,
    /// Additions and multiplications of the prompt.
    flops: f64,
    /// Those per second of the vendor's library.
    library: Option<f64>,
    memory: Memory,
    /// The kernels of a token's step, the slowest first.
    kernels: Vec<Kernels>,
}

/// Bytes of a device.
pub struct Memory {
    estimated: u64,
    /// The most that we had, and what the driver took beside that.
    peak: u64,
    driver: u64,
}

impl Memory {
    /// What was taken until now.
    pub fn taken(gpu: &Gpu, loaded: &Loaded) -> Result<Memory, Failure> {
        let device = gpu.stream.device();
        let (pool, free) = (device.pool_stats(), device.memory()?.free as u64);
        let taken = loaded.parts[0].free.map_or(0, |before| before.saturating_sub(free));
        let driver = taken.saturating_sub(pool.allocated as u64);
        Ok(Memory { estimated: loaded.parts[0].memory.total(), peak: pool.peak_allocated as u64, driver })
    }

    fn ratio(&self) -> f64 {
        (self.peak + self.driver) as f64 / self.estimated as f64
    }
}

impl Facts {
    pub fn of(
        context: &Context<'_>,
        gpu: &Gpu,
        loaded: &mut Loaded,
        options: &Options,
        prompt: &[u32],
        memory: Memory,
    ) -> Result<Facts, Failure> {
        let middle = f64::from(options.prompt) + f64::from(options.tokens) / 2.0;
        let bytes = loaded.runner.model().bytes_per_token() as f64 + loaded.parts[0].memory.kv_per_token as f64 * middle;
        let device = gpu.stream.device();
        let kernels = kernels(gpu, loaded, prompt)?;
        let ceiling = ops::ceiling(device, &context.jit)? * 1e9;
        let library = ops::library_product(device, &context.jit)?.map(|tflops| tflops * 1e12);
        Ok(Facts { bytes, ceiling, flops: flops(loaded.checkpoint.config(), prompt.len()), library, memory, kernels })
    }

    /// Seconds of all kernels, one after the other.
    fn alone(&self) -> f64 {
        self.kernels.iter().map(|kernels| kernels.seconds).sum()
    }

    pub fn json(&self, [prefill, decode]: [f64; 2], prompt: f64) -> Value {
        let kernels: Vec<Value> = (self.kernels.iter())
            .map(|kernels| json!({ "name": kernels.name, "launches": kernels.count, "seconds": kernels.seconds }))
            .collect();
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
            "kernels_alone_seconds": self.alone(),
            "kernels": kernels,
        })
    }

    pub fn print(&self, out: &mut dyn Write, [prefill, decode]: [f64; 2], prompt: f64) -> Outcome {
        writeln!(
            out,
            "decode reads {:.3} GB a token: {:.0} GB/s, {:.3} of the device's copies ({:.0} GB/s)",
            self.bytes / 1e9,
            self.bytes * decode / 1e9,
            self.bytes * decode / self.ceiling,
            self.ceiling / 1e9
        )?;
        let arithmetic = self.flops / prompt * prefill;
        write!(out, "prefill computes {:.1} TFLOP/s", arithmetic / 1e12)?;
        match self.library {
            Some(library) => writeln!(out, ", {:.3} of the library's products ({:.0} TFLOP/s)", arithmetic / library, library / 1e12)?,
            None => writeln!(out)?,
        }
        let Memory { estimated, peak, driver } = self.memory;
        let human = |bytes: u64| human_bytes(usize::try_from(bytes).unwrap_or(usize::MAX));
        writeln!(
            out,
            "memory: {} at most, and {} of the driver's; estimated {}: {:.3} of it",
            human(peak),
            human(driver),
            human(estimated),
            self.memory.ratio()
        )?;
        let (alone, token) = (self.alone(), 1.0 / decode);
        writeln!(
            out,
            "a token takes {:.1} us, its kernels one by one {:.1} us: {:.3} of it",
            token * 1e6,
            alone * 1e6,
            token / alone.max(1e-12)
        )?;
        for Kernels { name, count, seconds } in &self.kernels {
            writeln!(out, "  {:>9.1} us  {count:>4} x {:>7.1}  {name}", seconds * 1e6, seconds * 1e6 / *count as f64)?;
        }
        Ok(())
    }
}

/// The kernels of the token behind a prompt, each measured by itself, on memory as the kernels before it left it.
fn kernels(gpu: &Gpu, loaded: &mut Loaded, prompt: &[u32]) -> Result<Vec<Kernels>, Failure> {
    let runner = &mut loaded.runner;
    let mut sequence = Sequence::default();
    runner.use_graphs(false);
    let mut measure = || -> Result<_, Failure> {
        // Of nothing: what the events themselves take.
        let (empty, nothing) = gpu.stream.time_kernels(|| (0..9).try_for_each(|_| gpu.stream.through_library((), |_| ())))?;
        empty?;
        let nothing = super::median(nothing.iter().map(|time| time.seconds).collect());
        runner.feed(&mut [(&mut sequence, prompt)], Wanted::Last)?;
        let mut steps = Vec::new();
        for _ in 0..STEPS {
            let before = sequence.len();
            let (logits, times) = gpu.stream.time_kernels(|| runner.feed(&mut [(&mut sequence, &prompt[..1])], Wanted::Last))?;
            logits?;
            runner.truncate(&mut sequence, before);
            steps.push(times);
        }
        steps.sort_by(|a, b| {
            let sum = |times: &[warpwave_gpu::KernelTime]| times.iter().map(|time| time.seconds).sum::<f64>();
            sum(a).total_cmp(&sum(b))
        });
        let mut by_name = HashMap::new();
        for time in &steps[STEPS / 2] {
            let kernels = by_name.entry(time.name.clone()).or_insert_with(|| Kernels { name: time.name.clone(), count: 0, seconds: 0.0 });
            kernels.count += 1;
            kernels.seconds += (time.seconds - nothing).max(0.0);
        }
        let mut all: Vec<Kernels> = by_name.into_values().collect();
        all.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        Ok(all)
    };
    let measured = measure();
    runner.use_graphs(true);
    runner.release(sequence);
    measured
}

/// Additions and multiplications of a prompt: each token by each layer's matrices, and with the tokens before it; the last by the output's.
fn flops(config: &Config, tokens: usize) -> f64 {
    let [hidden, heads, kv_heads, head_dim, feed, layers, vocab, tokens] =
        [config.hidden, config.heads, config.kv_heads, config.head_dim, config.feed_forward, config.layers, config.vocab, tokens]
            .map(|number| number as f64);
    let matrices = hidden * (2.0 * heads + 2.0 * kv_heads) * head_dim + 3.0 * hidden * feed;
    let attention = 2.0 * heads * head_dim * (tokens + 1.0) / 2.0;
    2.0 * (tokens * layers * (matrices + attention) + hidden * vocab)
}
