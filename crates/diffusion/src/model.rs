//! A loaded model: tokenizers, text encoders, denoiser and autoencoder.

use std::path::Path;

use warpwave_kernels::DType;
use warpwave_tensor::{Device, Tensor};

use crate::checkpoint::{Checkpoint, LoadOptions};
use crate::error::{Result, bad_argument};
use crate::info::ModelInfo;

/// Padded ids of texts. See [`Model::row`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tokens {
    /// Of each text encoder its rows, as many for each encoder: the texts of a batch, or the chunks of a long text.
    pub encoders: Vec<Vec<Vec<u32>>>,
}

/// What the denoiser is conditioned on.
#[derive(Debug, Clone)]
pub struct Conditioning {
    /// `f32` of (rows, tokens, width).
    pub context: Tensor,
    /// `f32` of (rows, width): XL and Flux.
    pub pooled: Option<Tensor>,
}

/// Further inputs of the denoiser, the same for all images of a batch.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Extra {
    /// XL: original height and width, top and left of the crop, target height and width.
    pub time_ids: Option<[f32; 6]>,
    /// Flux dev: the guidance scale.
    pub guidance: Option<f32>,
}

/// A loaded model.
#[derive(Debug)]
pub struct Model {
    info: ModelInfo,
    device: Device,
    dtype: DType,
}

impl Model {
    pub(crate) fn load(checkpoint: &Checkpoint, device: &Device, options: LoadOptions) -> Result<Model> {
        let dtype = options.dtype.unwrap_or(DType::F32);
        Ok(Model { info: checkpoint.info().clone(), device: device.clone(), dtype })
    }

    /// Returns the facts about the model.
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// Returns the device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the type of weights and computation.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the ids of a text for a text encoder, without BOS, EOS and padding.
    pub fn tokenize(&self, encoder: usize, text: &str) -> Result<Vec<u32>> {
        Err(bad_argument("tokenize", format!("no text encoder {encoder} for {text:?}")))
    }

    /// Returns a row of `length` ids for a text encoder: BOS where it has one, the ids, EOS and padding. Ids that do not fit are cut off.
    pub fn row(&self, encoder: usize, ids: &[u32], length: usize) -> Result<Vec<u32>> {
        Err(bad_argument("row", format!("no text encoder {encoder} for {} ids in {length}", ids.len())))
    }

    /// Encodes texts. `clip_skip` leaves out that many of CLIP's last layers, in addition to those the family leaves out.
    ///
    /// The rows of the context are those of the tokens; chunks of one text are joined with
    /// `context.reshape(&[1, chunks * tokens, width])`, and its pooled text is that of the first chunk.
    pub fn encode(&self, tokens: &Tokens, clip_skip: usize) -> Result<Conditioning> {
        Err(bad_argument("encode", format!("{} encoders, {clip_skip}", tokens.encoders.len())))
    }

    /// Returns the output of the denoiser for `f32` latents of (images, channels, height, width), in their shape: of a 9-channel model the
    /// first 4 channels.
    ///
    /// `timestep` is 0 to 999, also between integers; of Flux it is σ, 0 to 1. The conditioning has as many rows as there are images.
    pub fn denoise(&self, latents: &Tensor, timestep: f32, conditioning: &Conditioning, extra: &Extra) -> Result<Tensor> {
        Err(bad_argument("denoise", format!("{latents:?} {timestep} {conditioning:?} {extra:?}")))
    }

    /// Decodes the autoencoder's latents (not scaled) to an image of −1 to 1, `f32` of (images, 3, height, width).
    ///
    /// `tile` bounds the memory: larger images are decoded in tiles of that many pixels, a multiple of 64, which are blended where they
    /// overlap.
    pub fn vae_decode(&self, latents: &Tensor, tile: Option<usize>) -> Result<Tensor> {
        Err(bad_argument("vae_decode", format!("{latents:?} {tile:?}")))
    }

    /// Encodes an image of −1 to 1, `f32` of (images, 3, height, width). Returns mean and logarithm of the variance of the autoencoder's
    /// latents (not scaled). `tile` as in [`Model::vae_decode`].
    pub fn vae_encode(&self, image: &Tensor, tile: Option<usize>) -> Result<(Tensor, Tensor)> {
        Err(bad_argument("vae_encode", format!("{image:?} {tile:?}")))
    }

    /// Applies LoRA files with their strengths, instead of those applied before. With an empty list the weights are bit-equal to the
    /// checkpoint's again.
    pub fn set_loras<P: AsRef<Path>>(&mut self, loras: &[(P, f32)]) -> Result<()> {
        match loras.first() {
            Some((path, _)) => Err(bad_argument("set_loras", path.as_ref().display().to_string())),
            None => Ok(()),
        }
    }
}
