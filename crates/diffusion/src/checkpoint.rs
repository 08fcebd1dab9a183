//! Recognizes and opens checkpoints.

mod folder;
mod random;
mod single;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use warpwave_kernels::DType;
use warpwave_tensor::Device;

use crate::config::{ClipConfig, FluxConfig, T5Config, UnetConfig, VaeConfig};
use crate::error::Result;
use crate::generate::Request;
use crate::info::ModelInfo;
use crate::memory::{self, MemoryEstimate};
use crate::model::Model;
use crate::names::Naming;
use crate::tokenizer::Tokenizer;
use crate::weights::Part;

pub(crate) use folder::part;
pub use random::RandomModel;

/// What a checkpoint is completed with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// A folder in the diffusers layout, for what a single file lacks: tokenizers, configurations, and whole networks.
    pub base: Option<PathBuf>,
    /// A file or folder with another autoencoder.
    pub vae: Option<PathBuf>,
}

/// How to load a model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LoadOptions {
    /// The type of weights and computation: `f32`, `f16` or `bf16`. By default `f32` on the CPU; on GPUs `bf16` for Flux, else `f16`.
    ///
    /// What overflows in `f16` is computed in a larger type: T5 in `bf16`, and autoencoders in `f32` unless their configuration allows it.
    pub dtype: Option<DType>,
    /// Load each text encoder and the autoencoder when it is used, and free it afterwards. Images take longer and need less memory:
    /// [`Checkpoint::memory`] tells how much.
    pub on_demand: bool,
}

/// The denoiser's sizes.
pub(crate) enum DenoiserConfig {
    Unet(UnetConfig),
    Flux(FluxConfig),
}

/// A text encoder's sizes.
pub(crate) enum TextConfig {
    Clip(ClipConfig),
    T5(T5Config),
}

pub(crate) struct TextPart {
    pub part: Part,
    pub config: TextConfig,
}

/// The files of all networks.
pub(crate) struct Parts {
    pub denoiser: Part,
    pub denoiser_config: DenoiserConfig,
    pub vae: Part,
    pub vae_config: VaeConfig,
    pub text: Vec<TextPart>,
    /// `None` for a text encoder whose tokenizer is nowhere.
    pub tokenizers: Vec<Option<Tokenizer>>,
}

impl Parts {
    /// The denoiser's original names, which LoRAs use.
    pub fn original(&self) -> Naming {
        match &self.denoiser_config {
            DenoiserConfig::Unet(config) => Naming::Unet { layers: config.layers },
            DenoiserConfig::Flux(config) => Naming::Flux { width: config.width() },
        }
    }

    fn all(&self) -> impl Iterator<Item = &Part> {
        [&self.denoiser, &self.vae].into_iter().chain(self.text.iter().map(|text| &text.part))
    }
}

/// A recognized model: a folder in the diffusers layout, or a single file.
#[derive(Clone)]
pub struct Checkpoint {
    info: ModelInfo,
    parts: Arc<Parts>,
}

impl fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpoint").field("info", &self.info).finish_non_exhaustive()
    }
}

impl Checkpoint {
    /// Opens a folder with `model_index.json`, or a single `.safetensors` file. Weights are mapped, not read.
    pub fn open(path: impl AsRef<Path>) -> Result<Checkpoint> {
        Checkpoint::open_with(path, &OpenOptions::default())
    }

    /// Opens a folder or a single file, completed by others.
    ///
    /// A single file has no tokenizers: without a base, they are looked for in the folders `tokenizer` and `tokenizer_2` next to it.
    pub fn open_with(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Checkpoint> {
        let path = path.as_ref();
        let (mut info, parts) = if path.is_dir() { folder::open(path, options)? } else { single::open(path, options)? };
        for part in parts.all() {
            let (parameters, bytes) = part.count();
            info.parameters += parameters;
            info.bytes += bytes;
        }
        Ok(Checkpoint { info, parts: Arc::new(parts) })
    }

    /// Returns the facts about the model.
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    pub(crate) fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Estimates the memory that loading with these options and a request take on a device, without reading weights.
    pub fn memory(&self, device: &Device, options: LoadOptions, request: &Request) -> Result<MemoryEstimate> {
        memory::estimate(self, device, options, request)
    }

    /// Loads the weights to a device.
    pub fn load(&self, device: &Device, options: LoadOptions) -> Result<Model> {
        Model::load(self, device, options)
    }
}
