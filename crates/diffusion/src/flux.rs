//! Flux's transformer.

use warpwave_kernels::DType;
use warpwave_tensor::{Device, Tensor};

use crate::config::FluxConfig;
use crate::error::{Result, bad_argument};
use crate::nn::{LayerNorm, Linear, attention, sinusoids};
use crate::weights::Loader;

const EPS: f32 = 1e-6;
/// Width of the sinusoids of timestep and guidance, and what both are multiplied by.
const SINUSOIDS: usize = 256;
const TIME_SCALE: f32 = 1000.0;
/// Base of the rotary embedding's frequencies.
const THETA: f64 = 10000.0;

/// Queries, keys and values of one stream.
#[derive(Debug)]
struct Qkv {
    linear: [Linear; 3],
    norms: [Tensor; 2],
}

impl Qkv {
    fn load(loader: &Loader<'_>, names: [&str; 3], norms: [&str; 2], width: usize, head_dim: usize) -> Result<Qkv> {
        let linear = |name: &str| loader.linear(name, width, width, true);
        let norm = |name: &str| loader.tensor(&format!("{name}.weight"), &[head_dim]);
        Ok(Qkv { linear: [linear(names[0])?, linear(names[1])?, linear(names[2])?], norms: [norm(norms[0])?, norm(norms[1])?] })
    }

    /// (rows, tokens, heads, head_dim) each; queries and keys normalized.
    fn forward(&self, x: &Tensor, heads: usize) -> Result<[Tensor; 3]> {
        let split = |linear: &Linear| -> Result<Tensor> {
            let out = linear.forward(x)?;
            Ok(out.reshape(&[x.size(0), x.size(1), heads, out.size(2) / heads])?)
        };
        let [q, k, v] = &self.linear;
        Ok([split(q)?.rms_norm(&self.norms[0], EPS)?, split(k)?.rms_norm(&self.norms[1], EPS)?, split(v)?])
    }
}

/// One stream of a block with two.
#[derive(Debug)]
struct Stream {
    modulation: Linear,
    qkv: Qkv,
    out: Linear,
    up: Linear,
    down: Linear,
}

#[derive(Debug)]
struct Double {
    image: Stream,
    text: Stream,
}

#[derive(Debug)]
struct Single {
    modulation: Linear,
    qkv: Qkv,
    up: Linear,
    out: Linear,
}

#[derive(Debug)]
pub(crate) struct Flux {
    config: FluxConfig,
    dtype: DType,
    image_in: Linear,
    text_in: Linear,
    time: [Linear; 2],
    guidance: Option<[Linear; 2]>,
    pooled: [Linear; 2],
    double: Vec<Double>,
    single: Vec<Single>,
    modulation_out: Linear,
    out: Linear,
    /// Normalization without scale and shift.
    norm: LayerNorm,
}

/// Inputs that are the same in all steps of a run.
#[derive(Debug)]
pub(crate) struct Fixed {
    /// The projected text, (images, tokens, width).
    text: Tensor,
    /// The embeddings of the pooled text, (images, width), and of the guidance scale.
    pooled: Tensor,
    guidance: Option<Tensor>,
    rotation: Rotation,
}

/// Cosines and sines of (1, tokens, 1, pairs, 1).
#[derive(Debug)]
struct Rotation(Tensor, Tensor);

impl Flux {
    pub fn load(config: &FluxConfig, loader: &Loader<'_>) -> Result<Flux> {
        let (width, feed_forward, head_dim) = (config.width(), config.feed_forward, config.head_dim);
        let embedder = |name: &str, inputs: usize| -> Result<[Linear; 2]> {
            let loader = loader.at(&format!("time_text_embed.{name}"));
            Ok([loader.linear("linear_1", inputs, width, true)?, loader.linear("linear_2", width, width, true)?])
        };
        let double = |i: usize| {
            let loader = loader.at(&format!("transformer_blocks.{i}"));
            let stream = |modulation: &str, names: [&str; 3], norms: [&str; 2], out: &str, mlp: &str| -> Result<Stream> {
                Ok(Stream {
                    modulation: loader.linear(modulation, width, 6 * width, true)?,
                    qkv: Qkv::load(&loader.at("attn"), names, norms, width, head_dim)?,
                    out: loader.linear(out, width, width, true)?,
                    up: loader.linear(&format!("{mlp}.net.0.proj"), width, feed_forward, true)?,
                    down: loader.linear(&format!("{mlp}.net.2"), feed_forward, width, true)?,
                })
            };
            let added = ["add_q_proj", "add_k_proj", "add_v_proj"];
            Ok(Double {
                image: stream("norm1.linear", ["to_q", "to_k", "to_v"], ["norm_q", "norm_k"], "attn.to_out.0", "ff")?,
                text: stream("norm1_context.linear", added, ["norm_added_q", "norm_added_k"], "attn.to_add_out", "ff_context")?,
            })
        };
        let single = |i: usize| {
            let loader = loader.at(&format!("single_transformer_blocks.{i}"));
            Ok(Single {
                modulation: loader.linear("norm.linear", width, 3 * width, true)?,
                qkv: Qkv::load(&loader.at("attn"), ["to_q", "to_k", "to_v"], ["norm_q", "norm_k"], width, head_dim)?,
                up: loader.linear("proj_mlp", width, feed_forward, true)?,
                out: loader.linear("proj_out", width + feed_forward, width, true)?,
            })
        };
        let (device, dtype) = (loader.device(), loader.dtype());
        Ok(Flux {
            image_in: loader.linear("x_embedder", config.in_channels, width, true)?,
            text_in: loader.linear("context_embedder", config.text, width, true)?,
            time: embedder("timestep_embedder", SINUSOIDS)?,
            guidance: config.guidance.then(|| embedder("guidance_embedder", SINUSOIDS)).transpose()?,
            pooled: embedder("text_embedder", config.pooled)?,
            double: (0..config.double_blocks).map(double).collect::<Result<_>>()?,
            single: (0..config.single_blocks).map(single).collect::<Result<_>>()?,
            modulation_out: loader.linear("norm_out.linear", width, 2 * width, true)?,
            out: loader.linear("proj_out", width, config.in_channels, true)?,
            norm: LayerNorm { weight: Tensor::ones(dtype, &[width], device)?, bias: Tensor::zeros(dtype, &[width], device)?, eps: EPS },
            dtype,
            config: config.clone(),
        })
    }

    /// Prepares a context of (images, tokens, width) and pooled text of (images, width) for latents of (images, channels, height, width).
    pub fn prepare(&self, latents: &[usize], context: &Tensor, pooled: &Tensor, guidance: Option<f32>) -> Result<Fixed> {
        let config = &self.config;
        let [images, height, width] = self.check(latents)?;
        if context.rank() != 3 || context.size(0) != images || context.size(2) != config.text {
            let reason = format!("expected a context of ({images}, tokens, {}), got {:?}", config.text, context.shape());
            return Err(bad_argument("denoise", reason));
        }
        let tokens = context.size(1);
        if pooled.shape() != [images, config.pooled] {
            let reason = format!("expected pooled text of ({images}, {}), got {:?}", config.pooled, pooled.shape());
            return Err(bad_argument("denoise", reason));
        }
        let guidance = match (&self.guidance, guidance) {
            (None, _) => None,
            (Some(layers), Some(guidance)) => {
                let row = Tensor::new(&self.sinusoids(guidance), &[1, SINUSOIDS], context.device())?;
                Some(embed(layers, &row.cast(self.dtype)?)?)
            }
            (Some(_), None) => return Err(bad_argument("denoise", "this model needs a guidance scale")),
        };
        Ok(Fixed {
            text: self.text_in.forward(&context.cast(self.dtype)?)?,
            pooled: embed(&self.pooled, &pooled.cast(self.dtype)?)?,
            guidance,
            rotation: self.rotation(tokens, height / 2, width / 2, context.device())?,
        })
    }

    /// Returns images, height and width of latents.
    fn check(&self, latents: &[usize]) -> Result<[usize; 3]> {
        let channels = self.config.in_channels / 4;
        match *latents {
            [images, found, height, width]
                if found == channels && height.is_multiple_of(2) && width.is_multiple_of(2) && images * height * width > 0 =>
            {
                Ok([images, height, width])
            }
            _ => {
                let reason = format!("expected latents of shape (images, {channels}, even height, even width), got {latents:?}");
                Err(bad_argument("denoise", reason))
            }
        }
    }

    /// The input that a timestep (σ), or a guidance scale, becomes.
    pub fn sinusoids(&self, value: f32) -> Vec<f32> {
        sinusoids(value * TIME_SCALE, SINUSOIDS)
    }

    /// `latents` are (images, channels, height, width) in `f32`, and so is the result; `time` are the sinusoids of the timestep, (1, n).
    pub fn forward(&self, latents: &Tensor, time: &Tensor, fixed: &Fixed) -> Result<Tensor> {
        let [_, height, width] = self.check(latents.shape())?;
        let (mut text, rotation) = (fixed.text.clone(), &fixed.rotation);
        let tokens = text.size(1);
        let condition = self.condition(time, fixed)?;
        let mut image = self.image_in.forward(&pack(latents)?.cast(self.dtype)?)?;
        for block in &self.double {
            (image, text) = self.double(block, &image, &text, &condition, rotation)?;
        }
        let mut x = Tensor::cat(&[text, image], 1)?;
        for block in &self.single {
            x = self.single(block, &x, &condition, rotation)?;
        }
        let image = x.narrow(1, tokens, x.size(1) - tokens)?.contiguous()?;
        let [scale, shift] = chunks::<2>(&self.modulation_out.forward(&condition)?)?;
        let out = self.out.forward(&self.modulated(&image, &shift, &scale)?)?;
        unpack(&out.cast(DType::F32)?, height, width)
    }

    /// The activated embedding of timestep, guidance and pooled text, (images, width).
    fn condition(&self, time: &Tensor, fixed: &Fixed) -> Result<Tensor> {
        let mut condition = embed(&self.time, &time.cast(self.dtype)?)?;
        if let Some(guidance) = &fixed.guidance {
            condition = (condition + guidance)?;
        }
        Ok((&fixed.pooled + condition)?.silu()?)
    }

    /// `norm(x) · (1 + scale) + shift`.
    fn modulated(&self, x: &Tensor, shift: &Tensor, scale: &Tensor) -> Result<Tensor> {
        Ok(((self.norm.forward(x)? * (scale + 1.0)?)? + shift)?)
    }

    fn double(&self, block: &Double, image: &Tensor, text: &Tensor, condition: &Tensor, rotation: &Rotation) -> Result<(Tensor, Tensor)> {
        let heads = self.config.heads;
        let tokens = text.size(1);
        let modulations = [&block.image, &block.text].map(|stream| chunks::<6>(&stream.modulation.forward(condition)?));
        let [image_mod, text_mod] = modulations;
        let (image_mod, text_mod) = (image_mod?, text_mod?);
        let qkv = |stream: &Stream, x: &Tensor, modulation: &[Tensor; 6]| {
            stream.qkv.forward(&self.modulated(x, &modulation[0], &modulation[1])?, heads)
        };
        let (of_text, of_image) = (qkv(&block.text, text, &text_mod)?, qkv(&block.image, image, &image_mod)?);
        let joined = of_text.into_iter().zip(of_image).map(|(text, image)| Ok(Tensor::cat(&[text, image], 1)?));
        let joined = joined.collect::<Result<Vec<_>>>()?;
        let attended = self.attend(&joined, rotation)?;
        let finish = |stream: &Stream, x: &Tensor, attended: &Tensor, modulation: &[Tensor; 6]| -> Result<Tensor> {
            let x = (x + (stream.out.forward(attended)? * &modulation[2])?)?;
            let hidden = stream.up.forward(&self.modulated(&x, &modulation[3], &modulation[4])?)?.gelu()?;
            Ok((&x + (stream.down.forward(&hidden)? * &modulation[5])?)?)
        };
        let of_text = attended.narrow(1, 0, tokens)?.contiguous()?;
        let of_image = attended.narrow(1, tokens, attended.size(1) - tokens)?.contiguous()?;
        Ok((finish(&block.image, image, &of_image, &image_mod)?, finish(&block.text, text, &of_text, &text_mod)?))
    }

    fn single(&self, block: &Single, x: &Tensor, condition: &Tensor, rotation: &Rotation) -> Result<Tensor> {
        let [shift, scale, gate] = chunks::<3>(&block.modulation.forward(condition)?)?;
        let normal = self.modulated(x, &shift, &scale)?;
        let attended = self.attend(&block.qkv.forward(&normal, self.config.heads)?, rotation)?;
        let hidden = block.up.forward(&normal)?.gelu()?;
        Ok((x + (block.out.forward(&Tensor::cat(&[attended, hidden], 2)?)? * gate)?)?)
    }

    fn attend(&self, qkv: &[Tensor], rotation: &Rotation) -> Result<Tensor> {
        let [q, k, v] = qkv else { return Err(bad_argument("attention", "internal error: expected queries, keys and values")) };
        let (rows, tokens) = (q.size(0), q.size(1));
        let flat = |x: &Tensor| -> Result<Tensor> { Ok(x.reshape(&[rows, tokens, self.config.width()])?) };
        let scale = 1.0 / (self.config.head_dim as f32).sqrt();
        attention(&flat(&rotation.apply(q)?)?, &flat(&rotation.apply(k)?)?, &flat(v)?, self.config.heads, scale, None)
    }

    /// Text has position (0, 0, 0), a patch (0, y, x).
    fn rotation(&self, tokens: usize, height: usize, width: usize, device: &Device) -> Result<Rotation> {
        let text = std::iter::repeat_n([0, 0, 0], tokens);
        let image = (0..height * width).map(|i| [0, i / width, i % width]);
        let pairs = self.config.head_dim / 2;
        let (mut cos, mut sin) = (Vec::new(), Vec::new());
        for position in text.chain(image) {
            for (axis, size) in position.into_iter().zip(&self.config.axes) {
                for i in 0..size / 2 {
                    let angle = axis as f64 / THETA.powf(2.0 * i as f64 / *size as f64);
                    cos.push(angle.cos() as f32);
                    sin.push(angle.sin() as f32);
                }
            }
        }
        let shape = [1, tokens + height * width, 1, pairs, 1];
        Ok(Rotation(Tensor::new(&cos, &shape, device)?, Tensor::new(&sin, &shape, device)?))
    }
}

impl Rotation {
    /// Rotates adjacent pairs of (rows, tokens, heads, head_dim), in `f32`.
    fn apply(&self, x: &Tensor) -> Result<Tensor> {
        let [rows, tokens, heads, head_dim] = [0, 1, 2, 3].map(|d| x.size(d));
        let pairs = x.cast(DType::F32)?.reshape(&[rows, tokens, heads, head_dim / 2, 2])?;
        let (a, b) = (pairs.narrow(4, 0, 1)?, pairs.narrow(4, 1, 1)?);
        let Rotation(cos, sin) = self;
        let rotated = [((&a * cos)? - (&b * sin)?)?, ((&a * sin)? + (&b * cos)?)?];
        Ok(Tensor::cat(&rotated, 4)?.reshape(x.shape())?.cast(x.dtype())?)
    }
}

fn embed([first, second]: &[Linear; 2], x: &Tensor) -> Result<Tensor> {
    second.forward(&first.forward(x)?.silu()?)
}

/// Splits (images, N · width) into N of (images, 1, width).
fn chunks<const N: usize>(x: &Tensor) -> Result<[Tensor; N]> {
    let width = x.size(1) / N;
    let parts = (0..N).map(|i| Ok(x.narrow(1, i * width, width)?.unsqueeze(1)?)).collect::<Result<Vec<_>>>()?;
    parts.try_into().map_err(|_| bad_argument("chunks", "internal error: wrong number of parts"))
}

/// Turns (images, channels, height, width) into patches: (images, height / 2 · width / 2, channels · 4).
pub(crate) fn pack(latents: &Tensor) -> Result<Tensor> {
    let [images, channels, height, width] = [0, 1, 2, 3].map(|d| latents.size(d));
    let split = latents.reshape(&[images, channels, height / 2, 2, width / 2, 2])?.permute(&[0, 2, 4, 1, 3, 5])?;
    Ok(split.reshape(&[images, height / 2 * (width / 2), channels * 4])?)
}

/// Turns patches back into (images, channels, height, width).
pub(crate) fn unpack(patches: &Tensor, height: usize, width: usize) -> Result<Tensor> {
    let (images, channels) = (patches.size(0), patches.size(2) / 4);
    let split = patches.reshape(&[images, height / 2, width / 2, channels, 2, 2])?.permute(&[0, 3, 1, 4, 2, 5])?;
    Ok(split.reshape(&[images, channels, height, width])?)
}
