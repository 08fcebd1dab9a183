//! Language models: `warpwave generate`, `chat`, `embed` and `model`.
//!
//! This module has what the commands share: model and device options, the memory check, and the loaded model.

pub(super) mod chat;
mod default_model;
pub(super) mod embed;
pub(super) mod generate;
mod hub;
mod info;
pub(super) mod interrupt;
mod memory;
pub(super) mod model;
mod sampling;
pub(super) mod template;

use std::path::{Path, PathBuf};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use warpwave_gpu::{DeviceSpec, Selection};
use warpwave_kernels::{DType, Quant};
use warpwave_llm::{Checkpoint, Error, KvCacheType, LanguageModel, ModelBuilder, Precision};
use warpwave_tensor::Device;
use warpwave_weights::Kind;

use super::{Context, Failure, failed, usage};

/// Model, device and data type options.
#[derive(clap::Args, Clone)]
pub(super) struct ModelArgs {
    /// Model: a .gguf file, a directory with config.json and safetensors, or a Hugging Face Hub model (ORG/NAME or
    /// ORG/NAME:FILE.gguf); default: SmolLM2-135M-Instruct (see `warpwave model get`).
    #[arg(value_name = "MODEL")]
    pub model: Option<PathBuf>,
    /// Run on this device: cpu, cuda:0, rocm:1, vgpu:gfx90a (virtual), or auto (the first GPU, else the CPU); a list such as
    /// cuda:0,cuda:1 uses tensor parallelism.
    #[arg(long, env = "WARPWAVE_DEVICE", default_value = "auto")]
    pub device: String,
    /// Set the context length in tokens (prompt plus output); default: 4096, or the model's limit if smaller.
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..))]
    pub context: Option<u32>,
    /// Capacity of the KV cache in tokens, for several sequences; default: the context.
    #[arg(skip)]
    pub cache_tokens: Option<usize>,
    /// Set the activation precision for quantized weights: fast (int8 or f16) or exact (f32).
    #[arg(long, value_enum, default_value = "fast")]
    pub precision: PrecisionArg,
    /// Convert the weights to this type while loading.
    #[arg(long = "dtype", alias = "as", value_name = "f32|f16|bf16|q8_0|q4_k|...", value_parser = parse_weight_type)]
    pub kind: Option<Kind>,
    /// Set the KV cache type; default: f32 on the CPU; on a GPU, the weight type, or f16 for quantized weights with --precision fast.
    #[arg(long = "kv-cache-type", alias = "cache", value_name = "f32|f16|bf16|f8e4m3|q8_0", value_parser = parse_cache_type)]
    pub cache: Option<KvCacheType>,
    /// Set the prefill chunk size in tokens; default: 512 on the CPU; on a GPU, 2048 or 4096 depending on its number of SMs or CUs, reduced if GPU memory is low.
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..))]
    pub chunk: Option<u32>,
    /// Set the number of CPU threads; default: all cores.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: Option<u16>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum PrecisionArg {
    Fast,
    Exact,
}

/// The quantized types that weights can be converted to.
const QUANTS: [Quant; 13] = [
    Quant::Q8_0,
    Quant::Q6K,
    Quant::Q5K,
    Quant::Q4K,
    Quant::Q3K,
    Quant::Q2K,
    Quant::Q5_1,
    Quant::Q5_0,
    Quant::Q4_1,
    Quant::Q4_0,
    Quant::Iq4Nl,
    Quant::Iq4Xs,
    Quant::Mxfp4,
];

/// Parses a type that weights can be converted to.
pub(super) fn parse_weight_type(name: &str) -> Result<Kind, String> {
    let quant = QUANTS.into_iter().find(|quant| quant.name() == name).map(Kind::Quant);
    let plain = [DType::F32, DType::F16, DType::Bf16].into_iter().find(|dtype| dtype.name() == name).map(Kind::Plain);
    let listed = || QUANTS.map(Quant::name).join(", ");
    quant.or(plain).ok_or_else(|| format!("expected f32, f16, bf16, or one of {}", listed()))
}

fn parse_cache_type(name: &str) -> Result<KvCacheType, String> {
    name.parse().map_err(|_| "expected f32, f16, bf16, f8e4m3 or q8_0".to_owned())
}

/// Converts a library error to a failure, with the options that help.
pub(super) fn advise(error: Error) -> Failure {
    let message = match &error {
        Error::DoesNotFit(shortage) => memory::refusal(shortage),
        Error::OutOfMemory { .. } => format!(
            "{error}; to reduce memory use, try --dtype q4_k or q8_0 (weights), a smaller --context or --kv-cache-type q8_0 (KV cache), \
             or a smaller --chunk"
        ),
        Error::CacheFull { .. } | Error::ContextExceeded { .. } | Error::PromptTooLong { .. } => format!("{error}; increase --context"),
        _ => error.to_string(),
    };
    failed(message)
}

impl ModelArgs {
    /// Opens the given model, or the default model.
    pub fn open(&self, context: &mut Context<'_>) -> Result<Checkpoint, Failure> {
        let path = match &self.model {
            Some(path) => locate(context, path)?,
            None => default_model::find(context)?,
        };
        Ok(Checkpoint::open(&path)?)
    }

    pub fn precision(&self) -> Precision {
        if self.precision == PrecisionArg::Fast { Precision::Fast } else { Precision::Exact }
    }

    /// Returns the context length in tokens.
    pub fn context(&self, checkpoint: &Checkpoint) -> usize {
        self.context.map_or(checkpoint.config().default_context(), |tokens| tokens as usize)
    }

    /// Opens and loads the model if it fits into memory.
    pub fn load(&self, context: &mut Context<'_>) -> Result<LanguageModel, Failure> {
        let checkpoint = self.open(context)?;
        self.load_checkpoint(context, checkpoint)
    }

    /// Loads an open model if it fits into memory.
    pub fn load_checkpoint(&self, context: &mut Context<'_>, checkpoint: Checkpoint) -> Result<LanguageModel, Failure> {
        self.load_reporting(context, checkpoint, |_, _| ())
    }

    /// As [`ModelArgs::load_checkpoint`], and reports the bytes that are loaded and those of all.
    pub fn load_reporting(
        &self,
        context: &mut Context<'_>,
        checkpoint: Checkpoint,
        report: impl Fn(u64, u64),
    ) -> Result<LanguageModel, Failure> {
        let devices = devices(context, &self.device)?;
        let tokens = self.context(&checkpoint);
        let limit = checkpoint.config().context;
        if tokens > limit {
            writeln!(context.err, "warpwave: --context {tokens} exceeds the maximum context of the model, {limit}")?;
        }
        let bar = bytes_bar(0, "loading");
        let builder = ModelBuilder::from_checkpoint(checkpoint)
            .devices(devices)
            .weights(self.kind)
            .precision(self.precision())
            .context(tokens)
            .cache_tokens(self.cache_tokens)
            .kv_cache(self.cache)
            .chunk(self.chunk.map(|chunk| chunk as usize))
            .progress(|done, total| {
                report(done, total);
                bar.set_length(total);
                bar.set_position(done);
            });
        let loaded = builder.load();
        bar.finish_and_clear();
        loaded.map_err(advise)
    }

    /// Runs `run` with `--threads` CPU threads.
    pub fn with_threads<R>(&self, run: impl FnOnce() -> R) -> R {
        warpwave_tensor::cpu::with_threads(self.threads.map_or(0, usize::from), run)
    }
}

/// Resolves a path or a Hugging Face Hub name to a file or directory; downloads hub models.
pub(super) fn locate(context: &mut Context<'_>, path: &Path) -> Result<PathBuf, Failure> {
    if path.exists() {
        return Ok(path.to_owned());
    }
    match path.to_str().and_then(hub::ModelId::parse) {
        Some(id) => hub::find(context, &id),
        None => Err(failed(format!(
            "{}: file or directory not found; Hugging Face models are named ORG/NAME or ORG/NAME:FILE.gguf",
            path.display()
        ))),
    }
}

/// Resolves a `--device` list.
pub(super) fn devices(context: &mut Context<'_>, names: &str) -> Result<Vec<Device>, Failure> {
    let mut devices: Vec<Device> = Vec::new();
    for name in names.split(',') {
        let device = device(context, name.trim())?;
        if !device.is_cpu() && devices.iter().any(|other| other.name() == device.name()) {
            return Err(usage(format!("--device {names}: duplicate device {device}")));
        }
        devices.push(device);
    }
    Ok(devices)
}

/// Resolves a `--device` name; includes the CPU.
pub(super) fn device(context: &mut Context<'_>, name: &str) -> Result<Device, Failure> {
    let gpu = match name.parse().map_err(|error: warpwave_gpu::Error| usage(error.to_string()))? {
        DeviceSpec::Cpu => return Ok(Device::Cpu),
        DeviceSpec::Auto => match (context.gpus)().select(&DeviceSpec::Auto)? {
            Selection::Gpu(gpu) => gpu,
            Selection::Cpu { .. } => return Ok(Device::Cpu),
        },
        DeviceSpec::Named(name) => context.device(&name)?,
    };
    Ok(Device::gpu(&gpu, &context.jit)?)
}

/// Creates a progress bar for bytes.
fn bytes_bar(total: u64, label: &'static str) -> ProgressBar {
    let bar = ProgressBar::new(total);
    let style = ProgressStyle::with_template("{msg} {bar:30} {bytes}/{total_bytes} {bytes_per_sec}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message(label);
    bar
}

/// Returns tokens per second; `None` without tokens or time.
fn rate(tokens: usize, time: Duration) -> Option<f64> {
    (tokens > 0 && !time.is_zero()).then(|| tokens as f64 / time.as_secs_f64())
}
