//! What is known of a checkpoint before its weights are loaded.

use serde::Serialize;

/// A family of models.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// Stable Diffusion 1.x: one text encoder, cross attention of width 768.
    Sd1,
    /// Stable Diffusion 2.x: one text encoder, cross attention of width 1024.
    Sd2,
    /// Stable Diffusion XL: two text encoders, pooled text and sizes as conditioning.
    Sdxl,
    /// Flux schnell: a rectified-flow transformer without guidance.
    FluxSchnell,
    /// Flux dev: a rectified-flow transformer with a guidance embedding.
    FluxDev,
}

impl Family {
    /// Whether the denoiser is Flux's transformer.
    pub fn is_flux(self) -> bool {
        matches!(self, Family::FluxSchnell | Family::FluxDev)
    }
}

/// What the denoiser predicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Prediction {
    /// The noise.
    Epsilon,
    /// The velocity α · noise − σ · image.
    V,
    /// The direction of a rectified flow: noise − image.
    Flow,
}

/// The architecture of a text encoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TextEncoderKind {
    /// CLIP: rows of 77 ids with BOS and EOS.
    Clip,
    /// T5: rows with EOS and padding.
    T5,
}

/// A text encoder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TextEncoderInfo {
    /// The architecture.
    pub kind: TextEncoderKind,
    /// Ids of a padded row: 77 of CLIP; of T5 512, or 256 of Flux schnell. T5 takes other lengths too.
    pub row_length: usize,
    /// The id that fills a row.
    pub pad: u32,
}

/// The facts about a model that samplers and commands need.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ModelInfo {
    /// The family.
    pub family: Family,
    /// What the denoiser predicts.
    pub prediction: Prediction,
    /// Whether the denoiser takes 9 channels: latents, mask, and the latents of the masked image.
    pub inpaint: bool,
    /// Channels of latents: 4, of Flux 16.
    pub latent_channels: usize,
    /// Pixels of a latent in each direction: 8.
    pub latent_scale: usize,
    /// Images must be multiples of this many pixels.
    pub size_multiple: usize,
    /// The side of the images the model was trained with.
    pub default_size: usize,
    /// The model's latents are (autoencoder's latents − `vae_shift`) · `vae_scaling`.
    pub vae_scaling: f64,
    /// See `vae_scaling`; 0 except of Flux.
    pub vae_shift: f64,
    /// The text encoders, in the order of [`crate::Tokens`].
    pub text_encoders: Vec<TextEncoderInfo>,
    /// Whether a missing negative prompt is all zeros instead of an encoded empty text (XL's `force_zeros_for_empty_prompt`).
    pub zeros_for_no_negative: bool,
    /// `scheduler_config.json`; `None` in single files.
    pub scheduler_config: Option<serde_json::Value>,
    /// Weights of all parts.
    pub parameters: u64,
    /// Bytes of the weights in the files.
    pub bytes: u64,
}
