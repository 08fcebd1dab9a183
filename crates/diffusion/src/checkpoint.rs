//! Recognizes and opens checkpoints.

use std::path::Path;

use warpwave_kernels::DType;
use warpwave_tensor::Device;

use crate::error::{Error, Result};
use crate::info::ModelInfo;
use crate::model::Model;

/// How to load a model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LoadOptions {
    /// The type of weights and computation: `f32`, `f16` or `bf16`. By default `f32` on the CPU; on GPUs `bf16` for Flux, else `f16`.
    pub dtype: Option<DType>,
}

/// A recognized model: a folder in the diffusers layout, or a single file.
#[derive(Debug)]
pub struct Checkpoint {
    info: ModelInfo,
}

impl Checkpoint {
    /// Opens a folder with `model_index.json`, or a single `.safetensors` file. Weights are mapped, not read.
    pub fn open(path: impl AsRef<Path>) -> Result<Checkpoint> {
        let path = path.as_ref().display().to_string();
        Err(Error::Unknown { path, reason: "not a model".into() })
    }

    /// Returns the facts about the model.
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// Loads the weights to a device.
    pub fn load(&self, device: &Device, options: LoadOptions) -> Result<Model> {
        Model::load(self, device, options)
    }
}
