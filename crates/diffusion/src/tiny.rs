//! TAESD: a small autoencoder for previews.

use std::path::Path;

use warpwave_kernels::DType;
use warpwave_tensor::{Device, Tensor};

use crate::checkpoint;
use crate::config::{TinyConfig, TinyHalf};
use crate::error::{Result, bad_argument};
use crate::json::Config;
use crate::nn::{Conv2d, upsample};
use crate::weights::Loader;

/// Where the decoder softly limits latents.
const LIMIT: f64 = 3.0;

#[derive(Debug)]
enum Layer {
    Conv(Box<Conv2d>),
    Relu,
    Double,
    /// Three convolutions around which the input is added.
    Block(Box<[Conv2d; 3]>),
}

/// A preview autoencoder (TAESD), in `f32`. It takes latents as samplers have them, scaled.
#[derive(Debug)]
pub struct TinyAutoencoder {
    encoder: Vec<Layer>,
    decoder: Vec<Layer>,
    latent_channels: usize,
    factor: usize,
}

impl TinyAutoencoder {
    /// Opens a folder with `config.json` and weights in the diffusers layout, and loads it to a device.
    pub fn open(folder: impl AsRef<Path>, device: &Device) -> Result<TinyAutoencoder> {
        let folder = folder.as_ref();
        let config = TinyConfig::read(&Config::read(&folder.join("config.json"))?)?;
        let part = checkpoint::part(folder)?;
        let loader = Loader::new(&part, device, DType::F32, None);
        let latent = config.latent_channels;
        Ok(TinyAutoencoder {
            encoder: encoder(&config.encoder, &loader.at("encoder"), latent)?,
            decoder: decoder(&config.decoder, &loader.at("decoder"), latent)?,
            latent_channels: latent,
            factor: 1 << (config.encoder.blocks.len() - 1),
        })
    }

    /// Decodes `f32` latents of (images, channels, height, width) to images of −1 to 1.
    pub fn decode(&self, latents: &Tensor) -> Result<Tensor> {
        let channels = self.latent_channels;
        if latents.rank() != 4 || latents.size(1) != channels || latents.is_empty() {
            let reason = format!("expected latents of shape (images, {channels}, height, width), got {:?}", latents.shape());
            return Err(bad_argument("decode", reason));
        }
        let limited = ((latents / LIMIT)?.tanh()? * LIMIT)?;
        Ok(((run(&self.decoder, &limited)? * 2.0)? - 1.0)?)
    }

    /// Encodes `f32` images of −1 to 1, (images, 3, height, width), to latents.
    pub fn encode(&self, images: &Tensor) -> Result<Tensor> {
        let factor = self.factor;
        let fits = images.rank() == 4 && images.size(1) == 3 && !images.is_empty();
        if !fits || !images.size(2).is_multiple_of(factor) || !images.size(3).is_multiple_of(factor) {
            let reason = format!("expected (images, 3, height, width) in multiples of {factor}, got {:?}", images.shape());
            return Err(bad_argument("encode", reason));
        }
        run(&self.encoder, &(images * 0.5)?.affine(1.0, 0.5)?)
    }
}

fn conv(conv: Conv2d) -> Layer {
    Layer::Conv(Box::new(conv))
}

fn block(loader: &Loader<'_>, layer: usize, channels: usize) -> Result<Layer> {
    let conv = |i: usize| loader.conv(&format!("layers.{layer}.conv.{i}"), channels, channels, 3);
    Ok(Layer::Block(Box::new([conv(0)?, conv(2)?, conv(4)?])))
}

fn encoder(config: &TinyHalf, loader: &Loader<'_>, latent: usize) -> Result<Vec<Layer>> {
    let channels = config.channels;
    let mut layers = Vec::new();
    for (level, blocks) in config.blocks.iter().enumerate() {
        let name = format!("layers.{}", layers.len());
        layers.push(conv(match level {
            0 => loader.conv(&name, 3, channels, 3)?,
            _ => loader.conv_without_bias(&name, channels, channels, 3)?.strided(2),
        }));
        for _ in 0..*blocks {
            layers.push(block(loader, layers.len(), channels)?);
        }
    }
    layers.push(conv(loader.conv(&format!("layers.{}", layers.len()), channels, latent, 3)?));
    Ok(layers)
}

fn decoder(config: &TinyHalf, loader: &Loader<'_>, latent: usize) -> Result<Vec<Layer>> {
    let channels = config.channels;
    let mut layers = vec![conv(loader.conv("layers.0", latent, channels, 3)?), Layer::Relu];
    for (level, blocks) in config.blocks.iter().enumerate() {
        for _ in 0..*blocks {
            layers.push(block(loader, layers.len(), channels)?);
        }
        let last = level + 1 == config.blocks.len();
        if !last {
            layers.push(Layer::Double);
        }
        let name = format!("layers.{}", layers.len());
        layers.push(conv(match last {
            true => loader.conv(&name, channels, 3, 3)?,
            false => loader.conv_without_bias(&name, channels, channels, 3)?,
        }));
    }
    Ok(layers)
}

fn run(layers: &[Layer], x: &Tensor) -> Result<Tensor> {
    let mut x = x.permute(&[0, 2, 3, 1])?.contiguous()?;
    for layer in layers {
        x = match layer {
            Layer::Conv(conv) => conv.forward(&x)?,
            Layer::Relu => x.relu()?,
            Layer::Double => upsample(&x, [2 * x.size(1), 2 * x.size(2)])?,
            Layer::Block(convolutions) => {
                let [first, second, third] = &**convolutions;
                let hidden = second.forward(&first.forward(&x)?.relu()?)?.relu()?;
                (third.forward(&hidden)? + x)?.relu()?
            }
        };
    }
    Ok(x.permute(&[0, 3, 1, 2])?.contiguous()?)
}
