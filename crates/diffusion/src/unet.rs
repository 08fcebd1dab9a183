//! The UNet of Stable Diffusion 1.x, 2.x and XL.

use warpwave_kernels::{DType, Glu};
use warpwave_tensor::Tensor;

use crate::config::UnetConfig;
use crate::error::{Result, bad_argument};
use crate::nn::{Conv2d, LayerNorm, Linear, attention, sinusoids, upsample};
use crate::weights::Loader;

#[derive(Debug)]
pub(crate) struct Resnet {
    norm1: LayerNorm,
    conv1: Conv2d,
    time: Option<Linear>,
    norm2: LayerNorm,
    conv2: Conv2d,
    shortcut: Option<Conv2d>,
    groups: usize,
}

impl Resnet {
    /// `time` is the width of the time embedding; an autoencoder has none.
    pub fn load(loader: &Loader<'_>, inputs: usize, outputs: usize, time: Option<usize>, groups: usize, eps: f32) -> Result<Resnet> {
        Ok(Resnet {
            norm1: loader.norm("norm1", inputs, eps)?,
            conv1: loader.conv("conv1", inputs, outputs, 3)?,
            time: time.map(|time| loader.linear("time_emb_proj", time, outputs, true)).transpose()?,
            norm2: loader.norm("norm2", outputs, eps)?,
            conv2: loader.conv("conv2", outputs, outputs, 3)?,
            shortcut: if inputs == outputs { None } else { Some(loader.conv("conv_shortcut", inputs, outputs, 1)?) },
            groups,
        })
    }

    /// `time` is the activated time embedding, (images, width).
    pub fn forward(&self, x: &Tensor, time: Option<&Tensor>) -> Result<Tensor> {
        let mut hidden = self.conv1.forward(&self.norm1.grouped_silu(x, self.groups)?)?;
        if let Some((linear, time)) = self.time.as_ref().zip(time) {
            hidden = (hidden + linear.forward(time)?.unsqueeze(1)?.unsqueeze(1)?)?;
        }
        let hidden = self.conv2.forward(&self.norm2.grouped_silu(&hidden, self.groups)?)?;
        let skip = match &self.shortcut {
            Some(shortcut) => shortcut.forward(x)?,
            None => x.clone(),
        };
        Ok((hidden + skip)?)
    }
}

#[derive(Debug)]
struct Attention {
    qkv: [Linear; 3],
    out: Linear,
    heads: usize,
    scale: f32,
}

impl Attention {
    fn load(loader: &Loader<'_>, width: usize, keys: usize, heads: usize) -> Result<Attention> {
        Ok(Attention {
            qkv: [
                loader.linear("to_q", width, width, false)?,
                loader.linear("to_k", keys, width, false)?,
                loader.linear("to_v", keys, width, false)?,
            ],
            out: loader.linear("to_out.0", width, width, true)?,
            heads,
            scale: 1.0 / ((width / heads) as f32).sqrt(),
        })
    }

    fn forward(&self, x: &Tensor, context: &Tensor) -> Result<Tensor> {
        let [q, k, v] = &self.qkv;
        let (q, k, v) = (q.forward(x)?, k.forward(context)?, v.forward(context)?);
        self.out.forward(&attention(&q, &k, &v, self.heads, self.scale, None)?)
    }
}

#[derive(Debug)]
struct Block {
    norms: [LayerNorm; 3],
    own: Attention,
    cross: Attention,
    gated: Linear,
    down: Linear,
}

impl Block {
    fn load(loader: &Loader<'_>, width: usize, cross: usize, heads: usize) -> Result<Block> {
        let norm = |i: usize| loader.norm(&format!("norm{i}"), width, 1e-5);
        Ok(Block {
            norms: [norm(1)?, norm(2)?, norm(3)?],
            own: Attention::load(&loader.at("attn1"), width, width, heads)?,
            cross: Attention::load(&loader.at("attn2"), width, cross, heads)?,
            gated: loader.linear_swapped("ff.net.0.proj", width, 8 * width)?,
            down: loader.linear("ff.net.2", 4 * width, width, true)?,
        })
    }

    fn forward(&self, x: &Tensor, context: &Tensor) -> Result<Tensor> {
        let normal = self.norms[0].forward(x)?;
        let x = (x + self.own.forward(&normal, &normal)?)?;
        let x = (&x + self.cross.forward(&self.norms[1].forward(&x)?, context)?)?;
        let hidden = self.gated.forward(&self.norms[2].forward(&x)?)?;
        Ok((&x + self.down.forward(&hidden.glu(Glu::GeluErf, x.dtype())?)?)?)
    }
}

#[derive(Debug)]
struct Transformer {
    norm: LayerNorm,
    groups: usize,
    /// 1 × 1 convolutions are linear layers too.
    proj_in: Linear,
    blocks: Vec<Block>,
    proj_out: Linear,
}

impl Transformer {
    fn load(loader: &Loader<'_>, config: &UnetConfig, width: usize, heads: usize, depth: usize) -> Result<Transformer> {
        let block = |i: usize| Block::load(&loader.at(&format!("transformer_blocks.{i}")), width, config.cross, heads);
        Ok(Transformer {
            norm: loader.norm("norm", width, 1e-6)?,
            groups: config.groups,
            proj_in: loader.linear("proj_in", width, width, true)?,
            blocks: (0..depth).map(block).collect::<Result<_>>()?,
            proj_out: loader.linear("proj_out", width, width, true)?,
        })
    }

    fn forward(&self, x: &Tensor, context: &Tensor) -> Result<Tensor> {
        let [images, height, width, channels] = [0, 1, 2, 3].map(|d| x.size(d));
        let normal = self.norm.grouped(x, self.groups)?.reshape(&[images, height * width, channels])?;
        let mut hidden = self.proj_in.forward(&normal)?;
        for block in &self.blocks {
            hidden = block.forward(&hidden, context)?;
        }
        Ok((x + self.proj_out.forward(&hidden)?.reshape(x.shape())?)?)
    }
}

/// ResNets, each with its transformer, and what changes the size after them.
#[derive(Debug)]
struct Level {
    layers: Vec<(Resnet, Option<Transformer>)>,
    sampler: Option<Conv2d>,
}

#[derive(Debug)]
pub(crate) struct Unet {
    config: UnetConfig,
    dtype: DType,
    time: [Linear; 2],
    added: Option<[Linear; 2]>,
    conv_in: Conv2d,
    down: Vec<Level>,
    mid: (Resnet, Transformer, Resnet),
    up: Vec<Level>,
    norm_out: LayerNorm,
    conv_out: Conv2d,
}

/// What XL is conditioned on besides text.
pub(crate) struct Added<'a> {
    /// (images, width)
    pub pooled: &'a Tensor,
    pub sizes: [f32; 6],
}

/// Inputs that are the same in all steps of a run.
#[derive(Debug)]
pub(crate) struct Fixed {
    /// (images, tokens, width)
    context: Tensor,
    /// XL: the embedding of sizes and pooled text, (images, width).
    added: Option<Tensor>,
}

impl Unet {
    pub fn load(config: &UnetConfig, loader: &Loader<'_>) -> Result<Unet> {
        let channels = &config.channels;
        let (base, top) = (channels[0], channels.len() - 1);
        let time = 4 * base;
        let resnet = |loader: &Loader<'_>, inputs, outputs| Resnet::load(loader, inputs, outputs, Some(time), config.groups, config.eps);
        let transformer = |loader: &Loader<'_>, level: usize, depth: usize| match depth {
            0 => Ok(None),
            _ => Transformer::load(loader, config, channels[level], config.heads[level], depth).map(Some),
        };
        let embedding = |name: &str, inputs: usize| -> Result<[Linear; 2]> {
            let loader = loader.at(name);
            Ok([loader.linear("linear_1", inputs, time, true)?, loader.linear("linear_2", time, time, true)?])
        };
        let mut skips = vec![base];
        let mut down = Vec::new();
        let mut width = base;
        for (level, outputs) in channels.iter().copied().enumerate() {
            let loader = loader.at(&format!("down_blocks.{level}"));
            let mut layers = Vec::new();
            for i in 0..config.layers {
                let attention = transformer(&loader.at(&format!("attentions.{i}")), level, config.depth[level])?;
                layers.push((resnet(&loader.at(&format!("resnets.{i}")), width, outputs)?, attention));
                width = outputs;
                skips.push(width);
            }
            let sampler = if level == top { None } else { Some(loader.conv("downsamplers.0.conv", width, width, 3)?.strided(2)) };
            skips.extend(sampler.is_some().then_some(width));
            down.push(Level { layers, sampler });
        }
        let loader_mid = loader.at("mid_block");
        let attention = Transformer::load(&loader_mid.at("attentions.0"), config, width, config.heads[top], config.mid_depth)?;
        let mid = (resnet(&loader_mid.at("resnets.0"), width, width)?, attention, resnet(&loader_mid.at("resnets.1"), width, width)?);
        let mut up = Vec::new();
        for (i, outputs) in channels.iter().copied().rev().enumerate() {
            let (level, loader) = (top - i, loader.at(&format!("up_blocks.{i}")));
            let mut layers = Vec::new();
            for j in 0..=config.layers {
                let skip = skips.pop().unwrap_or(0);
                let attention = transformer(&loader.at(&format!("attentions.{j}")), level, config.depth[level])?;
                layers.push((resnet(&loader.at(&format!("resnets.{j}")), width + skip, outputs)?, attention));
                width = outputs;
            }
            let sampler = if level == 0 { None } else { Some(loader.conv("upsamplers.0.conv", width, width, 3)?) };
            up.push(Level { layers, sampler });
        }
        Ok(Unet {
            dtype: loader.dtype(),
            time: embedding("time_embedding", base)?,
            added: config.added.map(|(_, inputs)| embedding("add_embedding", inputs)).transpose()?,
            conv_in: loader.conv("conv_in", config.in_channels, base, 3)?,
            down,
            mid,
            up,
            norm_out: loader.norm("conv_norm_out", base, config.eps)?,
            conv_out: loader.conv("conv_out", base, config.out_channels, 3)?,
            config: config.clone(),
        })
    }

    /// Prepares a context of (images, tokens, width).
    pub fn prepare(&self, images: usize, context: &Tensor, added: Option<&Added<'_>>) -> Result<Fixed> {
        if context.rank() != 3 || context.size(0) != images || context.size(2) != self.config.cross {
            let reason = format!("expected a context of ({images}, tokens, {}), got {:?}", self.config.cross, context.shape());
            return Err(bad_argument("denoise", reason));
        }
        let added = match (&self.added, self.config.added) {
            (Some(layers), Some((size, inputs))) => Some(self.embed_added(layers, size, inputs, images, added)?),
            _ => None,
        };
        Ok(Fixed { context: context.cast(self.dtype)?, added })
    }

    /// The input that a timestep becomes.
    pub fn sinusoids(&self, timestep: f32) -> Vec<f32> {
        sinusoids(timestep, self.config.channels[0])
    }

    /// `latents` are (images, channels, height, width) in `f32`, and so is the result; `time` are the sinusoids of the timestep, (1, n).
    pub fn forward(&self, latents: &Tensor, time: &Tensor, fixed: &Fixed) -> Result<Tensor> {
        let config = &self.config;
        let images = latents.size(0);
        if latents.rank() != 4 || latents.size(1) != config.in_channels || latents.is_empty() {
            let reason = format!("expected latents of shape (images, {}, height, width), got {:?}", config.in_channels, latents.shape());
            return Err(bad_argument("denoise", reason));
        }
        let context = &fixed.context;
        let time = self.embed_time(time, images, fixed)?;
        let time = Some(&time);
        let mut x = self.conv_in.forward(&latents.cast(self.dtype)?.permute(&[0, 2, 3, 1])?.contiguous()?)?;
        let mut skips = vec![x.clone()];
        for level in &self.down {
            for (resnet, attention) in &level.layers {
                x = resnet.forward(&x, time)?;
                if let Some(attention) = attention {
                    x = attention.forward(&x, context)?;
                }
                skips.push(x.clone());
            }
            if let Some(sampler) = &level.sampler {
                x = sampler.forward(&x)?;
                skips.push(x.clone());
            }
        }
        let (first, attention, second) = &self.mid;
        x = second.forward(&attention.forward(&first.forward(&x, time)?, context)?, time)?;
        for level in &self.up {
            for (resnet, attention) in &level.layers {
                let skip = skips.pop().ok_or_else(|| {
                    bad_argument("denoise", "the UNet's up blocks need more skip connections than its down blocks provide")
                })?;
                x = resnet.forward(&Tensor::cat(&[x, skip], 3)?, time)?;
                if let Some(attention) = attention {
                    x = attention.forward(&x, context)?;
                }
            }
            if let Some((sampler, skip)) = level.sampler.as_ref().zip(skips.last()) {
                // An odd level on the way down is not half of the one above.
                x = sampler.forward(&upsample(&x, [skip.size(1), skip.size(2)])?)?;
            }
        }
        let out = self.conv_out.forward(&self.norm_out.grouped_silu(&x, config.groups)?)?;
        Ok(out.permute(&[0, 3, 1, 2])?.contiguous()?.cast(DType::F32)?)
    }

    /// The embedding of XL's pooled text and sizes: (images, width).
    fn embed_added(&self, layers: &[Linear; 2], size: usize, inputs: usize, images: usize, added: Option<&Added<'_>>) -> Result<Tensor> {
        let Some(added) = added else {
            return Err(bad_argument("denoise", "this model needs pooled text and six time ids"));
        };
        let pooled = inputs - 6 * size;
        if added.pooled.shape() != [images, pooled] {
            let reason = format!("expected pooled text of ({images}, {pooled}), got {:?}", added.pooled.shape());
            return Err(bad_argument("denoise", reason));
        }
        let sizes = added.sizes.iter().flat_map(|value| sinusoids(*value, size)).collect::<Vec<_>>();
        let sizes = Tensor::new(&sizes, &[1, sizes.len()], added.pooled.device())?.cast(self.dtype)?.broadcast_to(&[images, 6 * size])?;
        embed(layers, &Tensor::cat(&[added.pooled.cast(self.dtype)?, sizes], 1)?)
    }

    /// The activated embedding of the timestep, and of what XL adds: (images, width).
    fn embed_time(&self, time: &Tensor, images: usize, fixed: &Fixed) -> Result<Tensor> {
        let mut time = embed(&self.time, &time.cast(self.dtype)?)?;
        if let Some(added) = &fixed.added {
            time = (added + time)?;
        }
        let width = time.size(1);
        Ok(time.broadcast_to(&[images, width])?.silu()?)
    }
}

fn embed([first, second]: &[Linear; 2], x: &Tensor) -> Result<Tensor> {
    second.forward(&first.forward(x)?.silu()?)
}
