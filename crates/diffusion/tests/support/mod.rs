//! What the tests of samplers and pipelines share.
#![allow(dead_code)] // no test uses all of it

pub mod device;
pub mod reference;

use std::collections::HashMap;
use std::path::PathBuf;

use warpwave_diffusion::{Family, ModelInfo, Prediction};
use warpwave_tensor::{Device, Tensor, safetensors};

/// The folder of the reference values, which diffusers 0.35.2 and torch 2.6 computed on a CPU in `f32`. Of a run's latents the last are
/// kept.
pub fn fixtures() -> PathBuf {
    warpwave_test_support::workspace_root().join("crates/diffusion/tests/fixtures")
}

/// The tensors of a reference file.
pub fn load(file: &str) -> HashMap<String, Tensor> {
    safetensors::load(fixtures().join(file), &Device::Cpu).unwrap()
}

/// A model for which only the kind of its noise schedule matters.
pub fn info(prediction: Prediction, scheduler_config: serde_json::Value) -> ModelInfo {
    ModelInfo {
        family: if prediction == Prediction::Flow { Family::FluxDev } else { Family::Sd1 },
        prediction,
        inpaint: false,
        latent_channels: 4,
        latent_scale: 8,
        size_multiple: 8,
        default_size: 512,
        vae_scaling: 1.0,
        vae_shift: 0.0,
        text_encoders: Vec::new(),
        zeros_for_no_negative: false,
        scheduler_config: Some(scheduler_config),
        parameters: 0,
        bytes: 0,
    }
}
