//! Language models: `warpwave generate`, `chat` and `model`.
//!
//! What the commands share is here: which model on which device, whether it fits, and the loaded model.

pub(super) mod chat;
mod default_model;
pub(super) mod generate;
mod hub;
mod info;
mod interrupt;
mod memory;
pub(super) mod model;
mod picking;
pub(super) mod template;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use warpwave_gpu::{Preference, Selection};
use warpwave_kernels::{DType, Quant};
use warpwave_llm::{
    Checkpoint, Ended, Generated, LoadOptions, Model, Piece, Precision, Request, Runner, RunnerOptions, Sequence, Tokenizer,
};
use warpwave_tensor::Device;
use warpwave_weights::Kind;

use super::{Context, Failure, failed, usage};

/// Tokens of a text where nothing else is said: most models were made for more, and the cache takes memory for each.
const CONTEXT: usize = 4096;

/// Which model, where, and in which types.
#[derive(clap::Args, Clone)]
pub(super) struct Which {
    /// A .gguf file, a folder with config.json and safetensors, or a model of the Hugging Face hub (ORG/NAME, or ORG/NAME:FILE.gguf);
    /// without it the small default model.
    #[arg(value_name = "MODEL")]
    pub model: Option<PathBuf>,
    /// The device: cpu, cuda:0, rocm:1, vgpu:gfx90a (virtual), or auto for the first GPU, else the CPU; or GPUs that share the model, as
    /// cuda:0,cuda:1.
    #[arg(long, env = "WARPWAVE_DEVICE", default_value = "auto")]
    pub device: String,
    /// Tokens of prompt and answer together; default 4096, or fewer if the model was made for fewer.
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..))]
    pub context: Option<u32>,
    /// With quantised weights: fast rounds activations a little, exact computes in f32.
    #[arg(long, value_enum, default_value = "fast")]
    pub precision: Exactness,
    /// Convert the weights while loading.
    #[arg(long = "as", value_name = "f32|f16|bf16|q8_0|q4_k", value_parser = kind)]
    pub kind: Option<Kind>,
    /// The type of keys and values; default f32, on a GPU that of plain weights, or f16 with fast products of quantised ones.
    #[arg(long, value_name = "f16|bf16|f32", value_parser = cache_type)]
    pub cache: Option<DType>,
    /// Tokens of a prompt that are computed at once; default 512, on a GPU 2048 or 4096, or fewer if memory is short.
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..))]
    pub chunk: Option<u32>,
    /// Threads of the CPU; default all.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: Option<u16>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Exactness {
    Fast,
    Exact,
}

/// A type that weights can be converted to.
pub(super) fn kind(name: &str) -> Result<Kind, String> {
    let quant = [Quant::Q8_0, Quant::Q4K].into_iter().find(|quant| quant.name() == name).map(Kind::Quant);
    let plain = [DType::F32, DType::F16, DType::Bf16].into_iter().find(|dtype| dtype.name() == name).map(Kind::Plain);
    quant.or(plain).ok_or_else(|| "weights become f32, f16, bf16, q8_0 or q4_k".to_owned())
}

fn cache_type(name: &str) -> Result<DType, String> {
    let types = [DType::F16, DType::Bf16, DType::F32];
    types.into_iter().find(|dtype| dtype.name() == name).ok_or_else(|| "keys and values are f16, bf16 or f32".to_owned())
}

/// A model on its device, ready for tokens.
pub(super) struct Loaded {
    pub checkpoint: Checkpoint,
    pub runner: Runner,
    /// Tokens that there is room for.
    pub context: usize,
    pub load_time: Duration,
    /// What it was thought to take on each device, and what was free before.
    pub parts: Vec<memory::Part>,
}

impl Loaded {
    /// Goes on with a text, at most to the end of the context: the cache, made of whole blocks, may have room for more.
    fn generate(
        &mut self,
        sequence: &mut Sequence,
        text: &[u32],
        tokenizer: Option<&Tokenizer>,
        request: &Request,
        listen: &mut dyn FnMut(&Piece) -> ControlFlow<()>,
    ) -> warpwave_llm::Result<Generated> {
        let tokens = request.tokens.min(self.context.saturating_sub(text.len()));
        let within = Request { tokens, ..request.clone() };
        let mut made = self.runner.generate(sequence, text, tokenizer, &within, listen)?;
        if made.ended == Ended::Tokens && tokens < request.tokens {
            made.ended = Ended::Room;
        }
        Ok(made)
    }
}

impl Which {
    /// The model's files: those that were named, or the default model's.
    pub fn open(&self, context: &mut Context<'_>) -> Result<(PathBuf, Checkpoint), Failure> {
        let path = match &self.model {
            Some(path) => locate(context, path)?,
            None => default_model::find(context)?,
        };
        let checkpoint = Checkpoint::open(&path)?;
        Ok((path, checkpoint))
    }

    pub fn precision(&self) -> Precision {
        if self.precision == Exactness::Fast { Precision::Fast } else { Precision::Exact }
    }

    /// Tokens that the cache is made for.
    pub fn context(&self, checkpoint: &Checkpoint) -> usize {
        self.context.map_or(checkpoint.config().context.min(CONTEXT), |tokens| tokens as usize)
    }

    /// Loads the model if it fits.
    pub fn load(&self, context: &mut Context<'_>) -> Result<Loaded, Failure> {
        let (path, checkpoint) = self.open(context)?;
        self.load_checkpoint(context, &path.display().to_string(), checkpoint)
    }

    /// The same for a model that is open; `name` is for messages.
    pub fn load_checkpoint(&self, context: &mut Context<'_>, name: &str, checkpoint: Checkpoint) -> Result<Loaded, Failure> {
        let devices = devices(context, &self.device)?;
        let tokens = self.context(&checkpoint);
        let made_for = checkpoint.config().context;
        if tokens > made_for {
            writeln!(context.err, "warpwave: --context {tokens} is more than the {made_for} positions that the model was made for")?;
        }
        let need = memory::Need::of(&checkpoint, &devices, self, tokens)?;
        if let Some(message) = need.refusal(&checkpoint, name)? {
            return Err(failed(message));
        }
        let bar = bytes_bar(need.parts.iter().map(|part| part.memory.weights).sum(), "loading");
        let started = Instant::now();
        let options = LoadOptions { matrices: self.kind, precision: self.precision(), context: Some(tokens) };
        let model = Model::load_divided(&checkpoint, &devices, options, &mut |bytes| bar.inc(bytes as u64))?;
        // Where nobody said how many, it looks itself how many there is memory for.
        let chunk = Some(need.plan.chunk).filter(|chunk| self.chunk.is_some() || *chunk < RunnerOptions::chunk_on(&devices[0]));
        let runner = Runner::new(model, RunnerOptions { room: tokens, cache: Some(need.cache), chunk, graphs: true })?;
        devices.iter().try_for_each(Device::synchronize)?;
        bar.finish_and_clear();
        Ok(Loaded { checkpoint, runner, context: tokens, load_time: started.elapsed(), parts: need.parts })
    }

    /// Does something with the threads that were asked for.
    pub fn with_threads<R>(&self, run: impl FnOnce() -> R) -> R {
        warpwave_tensor::cpu::with_threads(self.threads.map_or(0, usize::from), run)
    }
}

/// A model's file or folder: as it was named, or that of a name of the Hugging Face hub.
pub(super) fn locate(context: &mut Context<'_>, path: &Path) -> Result<PathBuf, Failure> {
    if path.exists() {
        return Ok(path.to_owned());
    }
    match path.to_str().and_then(hub::Id::parse) {
        Some(id) => hub::find(context, &id),
        None => Err(failed(format!(
            "{}: there is no such file or folder; a model of Hugging Face is named as ORG/NAME or ORG/NAME:FILE.gguf",
            path.display()
        ))),
    }
}

/// The devices of a `--device` list.
fn devices(context: &mut Context<'_>, names: &str) -> Result<Vec<Device>, Failure> {
    let mut devices: Vec<Device> = Vec::new();
    for name in names.split(',') {
        let device = device(context, name.trim())?;
        if !device.is_cpu() && devices.iter().any(|other| other.name() == device.name()) {
            return Err(usage(format!("--device {names}: {device} is named twice")));
        }
        devices.push(device);
    }
    Ok(devices)
}

/// The device of a `--device` name, the CPU among them.
pub(super) fn device(context: &mut Context<'_>, name: &str) -> Result<Device, Failure> {
    let gpu = match Preference::from(name) {
        Preference::Cpu => return Ok(Device::Cpu),
        Preference::Auto => match (context.gpus)().select(&Preference::Auto)? {
            Selection::Gpu(gpu) => gpu,
            Selection::Cpu { .. } => return Ok(Device::Cpu),
        },
        Preference::Device(name) => context.device(&name)?,
    };
    Ok(Device::gpu(&gpu, &context.jit)?)
}

/// A bar on a terminal, for bytes.
fn bytes_bar(total: u64, what: &'static str) -> ProgressBar {
    let bar = ProgressBar::new(total);
    let style = ProgressStyle::with_template("{msg} {bar:30} {bytes}/{total_bytes} {bytes_per_sec}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message(what);
    bar
}

/// Tokens per second, if there were any.
fn rate(tokens: usize, time: Duration) -> Option<f64> {
    (tokens > 0 && !time.is_zero()).then(|| tokens as f64 / time.as_secs_f64())
}
