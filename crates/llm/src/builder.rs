//! Opens a model, checks that it fits, and loads it.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use warpwave_tensor::{Device, KvCacheType, Precision};
use warpwave_weights::Kind;

use crate::budget::{MemoryBudget, MemoryShortage};
use crate::checkpoint::{Checkpoint, MemoryPlan};
use crate::error::{Error, Result};
use crate::generate::{Generation, Request};
use crate::model::{LoadOptions, Model};
use crate::runner::{Runner, RunnerOptions, Sequence};
use crate::tokenizer::Tokenizer;

/// Opens a model, checks that it fits into memory, and loads it.
///
/// ```no_run
/// use warpwave_llm::{ModelBuilder, Precision};
/// let model = ModelBuilder::new("model.gguf").context(2048).precision(Precision::Exact).load()?;
/// # Ok::<(), warpwave_llm::Error>(())
/// ```
pub struct ModelBuilder<'p> {
    source: Source,
    devices: Vec<Device>,
    weights: Option<Kind>,
    precision: Precision,
    context: Option<usize>,
    cache_tokens: Option<usize>,
    kv_cache: Option<KvCacheType>,
    chunk: Option<usize>,
    graphs: bool,
    progress: Option<Box<dyn FnMut(u64, u64) + 'p>>,
}

enum Source {
    Path(PathBuf),
    Checkpoint(Box<Checkpoint>),
}

impl<'p> ModelBuilder<'p> {
    /// Starts with a `.gguf` file, or a Hugging Face folder with `config.json` and safetensors.
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self::of(Source::Path(path.as_ref().to_owned()))
    }

    /// Starts with an open checkpoint.
    pub fn from_checkpoint(checkpoint: Checkpoint) -> Self {
        Self::of(Source::Checkpoint(Box::new(checkpoint)))
    }

    fn of(source: Source) -> Self {
        ModelBuilder {
            source,
            devices: vec![Device::Cpu],
            weights: None,
            precision: Precision::Fast,
            context: None,
            cache_tokens: None,
            kv_cache: None,
            chunk: None,
            graphs: true,
            progress: None,
        }
    }

    /// Sets the device. Default: the CPU.
    #[must_use]
    pub fn device(self, device: Device) -> Self {
        self.devices([device])
    }

    /// Sets several devices that share the model (tensor parallel): all GPUs, of any vendor, or all CPUs.
    #[must_use]
    pub fn devices(mut self, devices: impl IntoIterator<Item = Device>) -> Self {
        self.devices = devices.into_iter().collect();
        self
    }

    /// Converts the weight matrices while loading. Default: the file's types.
    #[must_use]
    pub fn weights(mut self, kind: impl Into<Option<Kind>>) -> Self {
        self.weights = kind.into();
        self
    }

    /// Sets the precision of products with quantized weights. Default: [`Precision::Fast`].
    #[must_use]
    pub fn precision(mut self, precision: Precision) -> Self {
        self.precision = precision;
        self
    }

    /// Sets the context length in tokens. Default: [`Config::default_context`](crate::Config::default_context).
    #[must_use]
    pub fn context(mut self, tokens: impl Into<Option<usize>>) -> Self {
        self.context = tokens.into();
        self
    }

    /// Sets the capacity of the KV cache in tokens, for several sequences at once. Default: the context length.
    #[must_use]
    pub fn cache_tokens(mut self, tokens: impl Into<Option<usize>>) -> Self {
        self.cache_tokens = tokens.into();
        self
    }

    /// Sets the type of the KV cache. Default: [`Model::kv_cache_type`].
    #[must_use]
    pub fn kv_cache(mut self, kind: impl Into<Option<KvCacheType>>) -> Self {
        self.kv_cache = kind.into();
        self
    }

    /// Sets the maximum number of tokens computed in one step. Default: [`RunnerOptions::default_chunk`], or less if memory is short.
    #[must_use]
    pub fn chunk(mut self, tokens: impl Into<Option<usize>>) -> Self {
        self.chunk = tokens.into();
        self
    }

    /// Sets whether decode steps are captured as graphs. Default: yes.
    #[must_use]
    pub fn graphs(mut self, on: bool) -> Self {
        self.graphs = on;
        self
    }

    /// Reports the bytes of weights that are loaded, and those of all.
    #[must_use]
    pub fn progress(mut self, progress: impl FnMut(u64, u64) + 'p) -> Self {
        self.progress = Some(Box::new(progress));
        self
    }

    /// Opens the files, checks that the model fits, and loads it. A model that does not fit is [`Error::DoesNotFit`].
    pub fn load(self) -> Result<LanguageModel> {
        let checkpoint = match self.source {
            Source::Path(path) => Checkpoint::open(path)?,
            Source::Checkpoint(checkpoint) => *checkpoint,
        };
        let context = self.context.unwrap_or_else(|| checkpoint.config().default_context());
        let plan = MemoryPlan {
            devices: self.devices,
            weights: self.weights,
            precision: self.precision,
            kv_cache: self.kv_cache,
            context,
            cache_tokens: self.cache_tokens,
            chunk: self.chunk,
        };
        let budget = MemoryBudget::new(&checkpoint, plan)?;
        if budget.fits() == Some(false) {
            let (model, alternatives) = (checkpoint.path().to_owned(), budget.alternatives(&checkpoint));
            return Err(Error::DoesNotFit(Box::new(MemoryShortage { model, budget, alternatives })));
        }
        let started = Instant::now();
        let devices = &budget.plan.devices;
        let options = LoadOptions { weights: self.weights, precision: self.precision, context: Some(context) };
        let (mut progress, mut loaded, total) = (self.progress, 0, budget.weights());
        let mut report = |bytes: usize| {
            loaded += bytes as u64;
            if let Some(progress) = &mut progress {
                progress(loaded, total);
            }
        };
        let model = Model::load_tensor_parallel(&checkpoint, devices, options, &mut report)?;
        // Without a given chunk, or one reduced for the estimate, the runner probes how much memory there is.
        let default_chunk = RunnerOptions::default_chunk(budget.plan.first_device()?);
        let chunk = budget.plan.chunk.filter(|chunk| self.chunk.is_some() || *chunk < default_chunk);
        let kv_cache = Some(budget.kv_cache);
        let options = RunnerOptions { context, cache_tokens: self.cache_tokens, kv_cache, chunk, graphs: self.graphs };
        let runner = Runner::new(model, options)?;
        devices.iter().try_for_each(Device::synchronize)?;
        let load_time = started.elapsed();
        Ok(LanguageModel { checkpoint, runner, budget, load_time, tokenizer: OnceLock::new(), sequence: Sequence::default() })
    }
}

/// A loaded model, ready to generate.
pub struct LanguageModel {
    /// The model's files.
    pub checkpoint: Checkpoint,
    /// The model on its devices, with the KV cache.
    pub runner: Runner,
    /// The memory estimate, and what was free before loading.
    pub budget: MemoryBudget,
    /// How long loading took.
    pub load_time: Duration,
    tokenizer: OnceLock<Tokenizer>,
    /// The sequence of [`LanguageModel::generate`].
    sequence: Sequence,
}

impl LanguageModel {
    /// Returns the model's tokenizer. It is read at the first call.
    pub fn tokenizer(&self) -> Result<&Tokenizer> {
        if let Some(tokenizer) = self.tokenizer.get() {
            return Ok(tokenizer);
        }
        let tokenizer = self.checkpoint.tokenizer()?;
        Ok(self.tokenizer.get_or_init(|| tokenizer))
    }

    /// Starts generating after a text prompt.
    ///
    /// Each call starts a new sequence. To keep a conversation in the KV cache, or to prompt with token ids, use [`Runner::generate`].
    pub fn generate<'a>(&'a mut self, prompt: &str, request: &'a Request) -> Result<Generation<'a>> {
        let prompt = self.tokenizer()?.encode_prompt(prompt, true)?;
        self.runner.truncate(&mut self.sequence, 0);
        self.runner.generate(&mut self.sequence, &prompt, self.tokenizer.get(), request)
    }
}
