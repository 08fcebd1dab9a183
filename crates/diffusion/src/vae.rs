//! The autoencoder between images and latents.

use warpwave_kernels::DType;
use warpwave_tensor::Tensor;

use crate::config::VaeConfig;
use crate::error::{Result, bad_argument};
use crate::nn::{Conv2d, LayerNorm, Linear, attention, upsample};
use crate::unet::Resnet;
use crate::weights::Loader;

const EPS: f32 = 1e-6;
/// Bounds of the logarithm of the variance.
const LOGVAR: (f64, f64) = (-30.0, 20.0);

#[derive(Debug)]
struct Middle {
    resnets: [Resnet; 2],
    norm: LayerNorm,
    qkv: [Linear; 3],
    out: Linear,
    groups: usize,
}

impl Middle {
    fn load(loader: &Loader<'_>, channels: usize, groups: usize) -> Result<Middle> {
        let resnet = |i: usize| Resnet::load(&loader.at(&format!("resnets.{i}")), channels, channels, None, groups, EPS);
        let attention = loader.at("attentions.0");
        let linear = |name: &str| attention.linear(name, channels, channels, true);
        Ok(Middle {
            resnets: [resnet(0)?, resnet(1)?],
            norm: attention.norm("group_norm", channels, EPS)?,
            qkv: [linear("to_q")?, linear("to_k")?, linear("to_v")?],
            out: linear("to_out.0")?,
            groups,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.resnets[0].forward(x, None)?;
        let [images, height, width, channels] = [0, 1, 2, 3].map(|d| x.size(d));
        let normal = self.norm.grouped(&x, self.groups)?.reshape(&[images, height * width, channels])?;
        let [q, k, v] = &self.qkv;
        let scale = 1.0 / (channels as f32).sqrt();
        let attended = attention(&q.forward(&normal)?, &k.forward(&normal)?, &v.forward(&normal)?, 1, scale, None)?;
        let x = (&x + self.out.forward(&attended)?.reshape(x.shape())?)?;
        self.resnets[1].forward(&x, None)
    }
}

#[derive(Debug)]
struct Level {
    resnets: Vec<Resnet>,
    sampler: Option<Conv2d>,
}

#[derive(Debug)]
struct Half {
    conv_in: Conv2d,
    levels: Vec<Level>,
    middle: Middle,
    norm_out: LayerNorm,
    conv_out: Conv2d,
}

#[derive(Debug)]
pub(crate) struct Vae {
    config: VaeConfig,
    dtype: DType,
    encoder: Half,
    decoder: Half,
    /// After the encoder and before the decoder.
    quant: Option<[Conv2d; 2]>,
}

impl Vae {
    pub fn load(config: &VaeConfig, loader: &Loader<'_>) -> Result<Vae> {
        let (channels, groups, latent) = (&config.channels, config.groups, config.latent_channels);
        let top = channels.len() - 1;
        let resnets = |loader: &Loader<'_>, inputs: usize, outputs: usize, count: usize| {
            let resnet = |i: usize| {
                let inputs = if i == 0 { inputs } else { outputs };
                Resnet::load(&loader.at(&format!("resnets.{i}")), inputs, outputs, None, groups, EPS)
            };
            (0..count).map(resnet).collect::<Result<Vec<_>>>()
        };
        let encoder = loader.at("encoder");
        let down = |level: usize| {
            let loader = encoder.at(&format!("down_blocks.{level}"));
            let (inputs, outputs) = (channels[level.saturating_sub(1)], channels[level]);
            let sampler = if level == top { None } else { Some(loader.conv("downsamplers.0.conv", outputs, outputs, 3)?.strided(2)) };
            Ok(Level { resnets: resnets(&loader, inputs, outputs, config.layers)?, sampler })
        };
        let decoder = loader.at("decoder");
        let up = |i: usize| {
            let loader = decoder.at(&format!("up_blocks.{i}"));
            let (inputs, outputs) = (channels[(top - i + 1).min(top)], channels[top - i]);
            let sampler = if i == top { None } else { Some(loader.conv("upsamplers.0.conv", outputs, outputs, 3)?) };
            Ok(Level { resnets: resnets(&loader, inputs, outputs, config.layers + 1)?, sampler })
        };
        let quant = match config.quant_convs {
            true => Some([loader.conv("quant_conv", 2 * latent, 2 * latent, 1)?, loader.conv("post_quant_conv", latent, latent, 1)?]),
            false => None,
        };
        Ok(Vae {
            dtype: loader.dtype(),
            encoder: Half {
                conv_in: encoder.conv("conv_in", 3, channels[0], 3)?,
                levels: (0..=top).map(down).collect::<Result<_>>()?,
                middle: Middle::load(&encoder.at("mid_block"), channels[top], groups)?,
                norm_out: encoder.norm("conv_norm_out", channels[top], EPS)?,
                conv_out: encoder.conv("conv_out", channels[top], 2 * latent, 3)?,
            },
            decoder: Half {
                conv_in: decoder.conv("conv_in", latent, channels[top], 3)?,
                levels: (0..=top).map(up).collect::<Result<_>>()?,
                middle: Middle::load(&decoder.at("mid_block"), channels[top], groups)?,
                norm_out: decoder.norm("conv_norm_out", channels[0], EPS)?,
                conv_out: decoder.conv("conv_out", channels[0], 3, 3)?,
            },
            quant,
            config: config.clone(),
        })
    }

    /// Pixels of a latent in each direction.
    pub fn factor(&self) -> usize {
        1 << (self.config.channels.len() - 1)
    }

    fn pixels(&self, x: &Tensor) -> Result<Tensor> {
        Ok(x.cast(self.dtype)?.permute(&[0, 2, 3, 1])?.contiguous()?)
    }

    /// Decodes (images, channels, height, width) to images of −1 to 1.
    pub fn decode(&self, latents: &Tensor) -> Result<Tensor> {
        let channels = self.config.latent_channels;
        if latents.rank() != 4 || latents.size(1) != channels || latents.is_empty() {
            let reason = format!("expected latents of shape (images, {channels}, height, width), got {:?}", latents.shape());
            return Err(bad_argument("vae_decode", reason));
        }
        let mut x = self.pixels(latents)?;
        if let Some([_, quant]) = &self.quant {
            x = quant.forward(&x)?;
        }
        let half = &self.decoder;
        x = half.middle.forward(&half.conv_in.forward(&x)?)?;
        for level in &half.levels {
            for resnet in &level.resnets {
                x = resnet.forward(&x, None)?;
            }
            if let Some(sampler) = &level.sampler {
                x = sampler.forward(&upsample(&x, [2 * x.size(1), 2 * x.size(2)])?)?;
            }
        }
        Ok(self.finish(half, &x)?.permute(&[0, 3, 1, 2])?.contiguous()?.cast(DType::F32)?)
    }

    /// Fails unless images can be encoded.
    pub fn check_image(&self, images: &Tensor) -> Result<()> {
        let factor = self.factor();
        let fits = images.rank() == 4 && images.size(1) == 3 && !images.is_empty();
        if fits && images.size(2).is_multiple_of(factor) && images.size(3).is_multiple_of(factor) {
            return Ok(());
        }
        let reason = format!("expected (images, 3, height, width) in multiples of {factor}, got {:?}", images.shape());
        Err(bad_argument("vae_encode", reason))
    }

    /// Encodes images of −1 to 1 to mean and logarithm of the variance.
    pub fn encode(&self, images: &Tensor) -> Result<(Tensor, Tensor)> {
        self.check_image(images)?;
        let half = &self.encoder;
        let mut x = half.conv_in.forward(&self.pixels(images)?)?;
        for level in &half.levels {
            for resnet in &level.resnets {
                x = resnet.forward(&x, None)?;
            }
            if let Some(sampler) = &level.sampler {
                x = sampler.forward_padded_after(&x)?;
            }
        }
        x = self.finish(half, &half.middle.forward(&x)?)?;
        if let Some([quant, _]) = &self.quant {
            x = quant.forward(&x)?;
        }
        let moments = x.permute(&[0, 3, 1, 2])?.contiguous()?.cast(DType::F32)?;
        let channels = self.config.latent_channels;
        let mean = moments.narrow(1, 0, channels)?.contiguous()?;
        let logvar = moments.narrow(1, channels, channels)?.clamp(LOGVAR.0, LOGVAR.1)?;
        Ok((mean, logvar))
    }

    fn finish(&self, half: &Half, x: &Tensor) -> Result<Tensor> {
        half.conv_out.forward(&half.norm_out.grouped_silu(x, self.config.groups)?)
    }
}
