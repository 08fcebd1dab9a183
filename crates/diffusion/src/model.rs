//! A loaded model: tokenizers, text encoders, denoiser and autoencoder.

use std::fmt;
use std::path::Path;

use warpwave_kernels::DType;
use warpwave_tensor::{Device, Tensor};

use crate::checkpoint::{Checkpoint, DenoiserConfig, LoadOptions, TextConfig};
use crate::clip::Clip;
use crate::error::{Result, bad_argument};
use crate::flux::Flux;
use crate::info::ModelInfo;
use crate::lora::{AllLoras, Network};
use crate::t5::T5;
use crate::tiles;
use crate::tokenizer::Tokenizer;
use crate::unet::Unet;
use crate::vae::Vae;
use crate::weights::Loader;

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

pub(crate) enum Denoiser {
    Unet(Box<Unet>),
    Flux(Box<Flux>),
}

enum TextEncoder {
    Clip(Box<Clip>),
    T5(Box<T5>),
}

/// A loaded model.
pub struct Model {
    checkpoint: Checkpoint,
    device: Device,
    dtype: DType,
    text: Vec<Held<TextEncoder>>,
    pub(crate) denoiser: Denoiser,
    vae: Held<Vae>,
    /// The networks that LoRAs change now.
    changed: Vec<Network>,
    /// The LoRAs that text encoders get when they are loaded for a use.
    loras: Option<AllLoras>,
}

/// A network that stays loaded, or is loaded for each use.
enum Held<T> {
    Loaded(Box<T>),
    OnDemand,
}

impl<T> Held<T> {
    fn new(on_demand: bool, load: impl FnOnce() -> Result<T>) -> Result<Held<T>> {
        if on_demand { Ok(Held::OnDemand) } else { Ok(Held::Loaded(Box::new(load()?))) }
    }

    /// Calls `run` with the network. What was loaded for it is freed, with the memory that the call left in the pool.
    fn with<R>(&self, device: &Device, load: impl FnOnce() -> Result<T>, run: impl FnOnce(&T) -> Result<R>) -> Result<R> {
        match self {
            Held::Loaded(network) => run(network),
            Held::OnDemand => {
                // Before, the pool may hold the memory of other calls.
                device.trim()?;
                let network = load()?;
                let result = run(&network)?;
                drop(network);
                device.trim()?;
                Ok(result)
            }
        }
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let info = self.checkpoint.info();
        f.debug_struct("Model").field("info", info).field("device", &self.device).field("dtype", &self.dtype).finish_non_exhaustive()
    }
}

impl Model {
    pub(crate) fn load(checkpoint: &Checkpoint, device: &Device, options: LoadOptions) -> Result<Model> {
        let info = checkpoint.info();
        let default = match device.is_cpu() {
            true => DType::F32,
            false if info.family.is_flux() => DType::Bf16,
            false => DType::F16,
        };
        let dtype = options.dtype.unwrap_or(default);
        if !matches!(dtype, DType::F32 | DType::F16 | DType::Bf16) {
            return Err(bad_argument("load", format!("expected f32, f16 or bf16, got {dtype}")));
        }
        let parts = checkpoint.parts();
        let on_demand = options.on_demand;
        let text = |i| Held::new(on_demand, || load_text(checkpoint, i, device, dtype, None));
        Ok(Model {
            denoiser: load_denoiser(checkpoint, device, dtype, None)?,
            text: (0..parts.text.len()).map(text).collect::<Result<_>>()?,
            vae: Held::new(on_demand, || load_vae(checkpoint, device, dtype))?,
            checkpoint: checkpoint.clone(),
            device: device.clone(),
            dtype,
            changed: Vec::new(),
            loras: None,
        })
    }

    /// Calls `run` with a text encoder.
    fn with_text<R>(&self, i: usize, run: impl FnOnce(&TextEncoder) -> Result<R>) -> Result<R> {
        let load = || load_text(&self.checkpoint, i, &self.device, self.dtype, self.loras.as_ref());
        self.text[i].with(&self.device, load, run)
    }

    fn with_clip<R>(&self, i: usize, run: impl FnOnce(&Clip) -> Result<R>) -> Result<R> {
        self.with_text(i, |text| match text {
            TextEncoder::Clip(clip) => run(clip),
            TextEncoder::T5(_) => Err(bad_argument("encode", format!("text encoder {i} is not CLIP"))),
        })
    }

    fn with_vae<R>(&self, run: impl FnOnce(&Vae) -> Result<R>) -> Result<R> {
        self.vae.with(&self.device, || load_vae(&self.checkpoint, &self.device, self.dtype), run)
    }

    /// Returns the facts about the model.
    pub fn info(&self) -> &ModelInfo {
        self.checkpoint.info()
    }

    /// Returns the device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the type of weights and computation.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    fn tokenizer(&self, call: &'static str, encoder: usize) -> Result<&Tokenizer> {
        let tokenizers = &self.checkpoint.parts().tokenizers;
        let Some(tokenizer) = tokenizers.get(encoder) else {
            return Err(bad_argument(call, format!("text encoder {encoder} is out of range: the model has {}", tokenizers.len())));
        };
        tokenizer.as_ref().ok_or_else(|| {
            let reason = "the file has no tokenizer; pass a base directory in the diffusers layout, or copy its tokenizer and \
                          tokenizer_2 directories next to the file";
            bad_argument(call, reason)
        })
    }

    /// Returns the ids of a text for a text encoder, without BOS, EOS and padding.
    pub fn tokenize(&self, encoder: usize, text: &str) -> Result<Vec<u32>> {
        self.tokenizer("tokenize", encoder)?.encode(text)
    }

    /// Returns a row of `length` ids for a text encoder: BOS where it has one, the ids, EOS and padding. Ids that do not fit are cut off.
    pub fn row(&self, encoder: usize, ids: &[u32], length: usize) -> Result<Vec<u32>> {
        if !(2..=1 << 16).contains(&length) {
            return Err(bad_argument("row", format!("expected a length from 2 to 65536, got {length}")));
        }
        Ok(self.tokenizer("row", encoder)?.row(ids, length))
    }

    /// Encodes texts. `clip_skip` leaves out that many of CLIP's last layers, in addition to those the family leaves out.
    ///
    /// The rows of the context are those of the tokens; chunks of one text are joined with
    /// `context.reshape(&[1, chunks * tokens, width])`, and its pooled text is that of the first chunk.
    pub fn encode(&self, tokens: &Tokens, clip_skip: usize) -> Result<Conditioning> {
        let found: Vec<usize> = tokens.encoders.iter().map(Vec::len).collect();
        if found.len() != self.text.len() || found.iter().any(|rows| *rows != found[0]) {
            let reason = format!("expected the same number of rows for each of {} text encoders, got {found:?}", self.text.len());
            return Err(bad_argument("encode", reason));
        }
        let rows = |i: usize| tokens.encoders.get(i).map_or(&[][..], Vec::as_slice);
        let is_t5 = |config: &TextConfig| matches!(config, TextConfig::T5(_));
        match &self.checkpoint.parts().text[..] {
            [_] => Ok(Conditioning { context: self.with_clip(0, |clip| clip.encode(rows(0), clip_skip, true))?.states, pooled: None }),
            [_, second] if is_t5(&second.config) => {
                let context = self.with_text(1, |text| match text {
                    TextEncoder::T5(t5) => t5.encode(rows(1)),
                    TextEncoder::Clip(_) => Err(bad_argument("encode", "text encoder 1 is not T5")),
                })?;
                let pooled = self.with_clip(0, |clip| clip.encode(rows(0), clip_skip, true))?.pooled;
                Ok(Conditioning { context, pooled: Some(pooled) })
            }
            [_, _] => {
                let skip = clip_skip.saturating_add(1);
                let first = self.with_clip(0, |clip| clip.encode(rows(0), skip, false))?;
                let second = self.with_clip(1, |clip| clip.encode(rows(1), skip, false))?;
                Ok(Conditioning { context: Tensor::cat(&[first.states, second.states], 2)?, pooled: Some(second.pooled) })
            }
            other => Err(bad_argument("encode", format!("expected one or two text encoders, got {}", other.len()))),
        }
    }

    /// Returns the output of the denoiser for `f32` latents of (images, channels, height, width), in their shape: of a 9-channel model the
    /// first 4 channels.
    ///
    /// `timestep` is 0 to 999, also between integers; of Flux it is σ, 0 to 1. The conditioning has as many rows as there are images.
    pub fn denoise(&self, latents: &Tensor, timestep: f32, conditioning: &Conditioning, extra: &Extra) -> Result<Tensor> {
        let time = self.time(timestep)?;
        let fixed = self.fixed(latents.shape(), conditioning, extra)?;
        self.forward(latents, &Tensor::new(&time, &[1, time.len()], latents.device())?, &fixed)
    }

    /// Decodes the autoencoder's latents (not scaled) to an image of −1 to 1, `f32` of (images, 3, height, width).
    ///
    /// `tile` bounds the memory: larger images are decoded in tiles of that many pixels, a multiple of 64, which are blended where they
    /// overlap. Tiles differ slightly from the whole, since each has its own normalization.
    pub fn vae_decode(&self, latents: &Tensor, tile: Option<usize>) -> Result<Tensor> {
        self.with_vae(|vae| decode(vae, latents, tile))
    }

    /// Decodes several latents one after the other.
    pub(crate) fn vae_decode_each<R>(
        &self,
        latents: impl Iterator<Item = Result<Tensor>>,
        tile: Option<usize>,
        take: impl Fn(Tensor) -> Result<R>,
    ) -> Result<Vec<R>> {
        self.with_vae(|vae| latents.map(|latents| take(decode(vae, &latents?, tile)?)).collect())
    }

    /// Encodes an image of −1 to 1, `f32` of (images, 3, height, width). Returns mean and logarithm of the variance of the autoencoder's
    /// latents (not scaled). `tile` as in [`Model::vae_decode`].
    pub fn vae_encode(&self, image: &Tensor, tile: Option<usize>) -> Result<(Tensor, Tensor)> {
        self.with_vae(|vae| {
            let scale = vae.factor();
            match tiles::size("vae_encode", tile, scale)? {
                Some(tile) if image.rank() == 4 && image.size(2).max(image.size(3)) > tile => {
                    vae.check_image(image)?;
                    let moments = tiles::run(image, tile, 1, scale, &|part| {
                        let (mean, logvar) = vae.encode(part)?;
                        Ok(Tensor::cat(&[mean, logvar], 1)?)
                    })?;
                    let channels = moments.size(1) / 2;
                    Ok((moments.narrow(1, 0, channels)?.contiguous()?, moments.narrow(1, channels, channels)?.contiguous()?))
                }
                _ => vae.encode(image),
            }
        })
    }

    /// Applies LoRA files with their strengths, instead of those applied before. With an empty list the weights are bit-equal to the
    /// checkpoint's again.
    ///
    /// The changed networks are loaded again from the checkpoint. If this fails, the model stays as it was.
    pub fn set_loras<P: AsRef<Path>>(&mut self, loras: &[(P, f32)]) -> Result<()> {
        let parts = self.checkpoint.parts();
        let all = AllLoras::read(loras, parts.original())?;
        let touched = |network: Network| all.of(network).is_some() || self.changed.contains(&network);
        let denoiser = match touched(Network::Denoiser) {
            true => Some(load_denoiser(&self.checkpoint, &self.device, self.dtype, Some(&all))?),
            false => None,
        };
        let text = (0..self.text.len()).filter(|i| touched(Network::Text(*i)));
        let load = |i| Ok((i, load_text(&self.checkpoint, i, &self.device, self.dtype, Some(&all))?));
        let text = text.map(load).collect::<Result<Vec<_>>>()?;
        all.check_used()?;
        if let Some(denoiser) = denoiser {
            self.denoiser = denoiser;
        }
        for (i, encoder) in text {
            if let Held::Loaded(held) = &mut self.text[i] {
                **held = encoder;
            }
        }
        self.changed = all.networks();
        // Networks that stay loaded have them in their weights.
        self.loras = self.text.iter().any(|text| matches!(text, Held::OnDemand)).then_some(all);
        Ok(())
    }
}

fn load_denoiser(checkpoint: &Checkpoint, device: &Device, dtype: DType, loras: Option<&AllLoras>) -> Result<Denoiser> {
    let parts = checkpoint.parts();
    let loader = Loader::new(&parts.denoiser, device, dtype, loras.and_then(|all| all.of(Network::Denoiser)));
    Ok(match &parts.denoiser_config {
        DenoiserConfig::Unet(config) => Denoiser::Unet(Box::new(Unet::load(config, &loader)?)),
        DenoiserConfig::Flux(config) => Denoiser::Flux(Box::new(Flux::load(config, &loader)?)),
    })
}

fn decode(vae: &Vae, latents: &Tensor, tile: Option<usize>) -> Result<Tensor> {
    let scale = vae.factor();
    match tiles::size("vae_decode", tile, scale)? {
        Some(tile) if latents.rank() == 4 && latents.size(2).max(latents.size(3)) > tile / scale => {
            tiles::run(latents, tile / scale, scale, 1, &|part| vae.decode(part))
        }
        _ => vae.decode(latents),
    }
}

fn load_vae(checkpoint: &Checkpoint, device: &Device, dtype: DType) -> Result<Vae> {
    let parts = checkpoint.parts();
    let upcast = dtype == DType::F16 && parts.vae_config.upcast;
    Vae::load(&parts.vae_config, &Loader::new(&parts.vae, device, if upcast { DType::F32 } else { dtype }, None))
}

fn load_text(checkpoint: &Checkpoint, i: usize, device: &Device, dtype: DType, loras: Option<&AllLoras>) -> Result<TextEncoder> {
    let text = &checkpoint.parts().text[i];
    let loras = loras.and_then(|all| all.of(Network::Text(i)));
    let loader = |dtype| Loader::new(&text.part, device, dtype, loras);
    Ok(match &text.config {
        TextConfig::Clip(config) => TextEncoder::Clip(Box::new(Clip::load(config, &loader(dtype))?)),
        // T5 overflows in f16.
        TextConfig::T5(config) if dtype == DType::F16 => TextEncoder::T5(Box::new(T5::load(config, &loader(DType::Bf16))?)),
        TextConfig::T5(config) => TextEncoder::T5(Box::new(T5::load(config, &loader(dtype))?)),
    })
}
