//! T5's encoder.

use warpwave_kernels::DType;
use warpwave_tensor::Tensor;

use crate::config::T5Config;
use crate::error::{Result, bad_argument};
use crate::nn::{Linear, attention};
use crate::weights::Loader;

/// The longest row: scores are (heads, length, length).
const MAX_LENGTH: usize = 4096;

#[derive(Debug)]
struct Layer {
    norms: [Tensor; 2],
    qkv: [Linear; 3],
    out: Linear,
    gate: Linear,
    up: Linear,
    down: Linear,
}

#[derive(Debug)]
pub(crate) struct T5 {
    config: T5Config,
    tokens: Tensor,
    /// (buckets, heads)
    bias: Tensor,
    layers: Vec<Layer>,
    norm: Tensor,
}

impl T5 {
    pub fn load(config: &T5Config, loader: &Loader<'_>) -> Result<T5> {
        let (width, inner, feed_forward) = (config.width, config.heads * config.head_dim, config.feed_forward);
        let layer = |i: usize| {
            let block = loader.at(&format!("encoder.block.{i}"));
            let (attention, dense) = (block.at("layer.0"), block.at("layer.1"));
            let projection = |name: &str| attention.linear(&format!("SelfAttention.{name}"), width, inner, false);
            Ok(Layer {
                norms: [attention.tensor("layer_norm.weight", &[width])?, dense.tensor("layer_norm.weight", &[width])?],
                qkv: [projection("q")?, projection("k")?, projection("v")?],
                out: attention.linear("SelfAttention.o", inner, width, false)?,
                gate: dense.linear("DenseReluDense.wi_0", width, feed_forward, false)?,
                up: dense.linear("DenseReluDense.wi_1", width, feed_forward, false)?,
                down: dense.linear("DenseReluDense.wo", feed_forward, width, false)?,
            })
        };
        // The token embedding has two names.
        let tokens = if loader.has("shared.weight") { "shared.weight" } else { "encoder.embed_tokens.weight" };
        let bias = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight";
        Ok(T5 {
            tokens: loader.tensor(tokens, &[config.vocab, width])?,
            bias: loader.tensor(bias, &[config.buckets, config.heads])?.cast(DType::F32)?,
            layers: (0..config.layers).map(layer).collect::<Result<_>>()?,
            norm: loader.tensor("encoder.final_layer_norm.weight", &[width])?,
            config: config.clone(),
        })
    }

    /// Encodes rows of equal length to `f32` of (rows, tokens, width).
    pub fn encode(&self, rows: &[Vec<u32>]) -> Result<Tensor> {
        let config = &self.config;
        let length = rows.first().map_or(0, Vec::len);
        if length == 0 || length > MAX_LENGTH || rows.iter().any(|row| row.len() != length) {
            let found: Vec<usize> = rows.iter().map(Vec::len).collect();
            return Err(bad_argument("encode", format!("expected rows of equal length, 1 to {MAX_LENGTH}, got {found:?}")));
        }
        let ids = rows.concat();
        if let Some(id) = ids.iter().find(|id| **id as usize >= config.vocab) {
            return Err(bad_argument("encode", format!("token id {id} is out of range: the vocabulary has {} tokens", config.vocab)));
        }
        let device = self.tokens.device();
        let ids = Tensor::new(&ids, &[ids.len()], device)?;
        let mut x = self.tokens.embedding(&ids)?.reshape(&[rows.len(), length, config.width])?;
        let buckets: Vec<u32> = (0..length * length).map(|i| self.bucket(i / length, i % length)).collect();
        let buckets = Tensor::new(&buckets, &[buckets.len()], device)?;
        let bias = self.bias.embedding(&buckets)?.reshape(&[length, length, config.heads])?.permute(&[2, 0, 1])?;
        for layer in &self.layers {
            let normal = x.rms_norm(&layer.norms[0], config.eps)?;
            let [q, k, v] = &layer.qkv;
            let (q, k, v) = (q.forward(&normal)?, k.forward(&normal)?, v.forward(&normal)?);
            x = (x + layer.out.forward(&attention(&q, &k, &v, config.heads, 1.0, Some(&bias))?)?)?;
            let normal = x.rms_norm(&layer.norms[1], config.eps)?;
            let hidden = (layer.gate.forward(&normal)?.gelu()? * layer.up.forward(&normal)?)?;
            x = (x + layer.down.forward(&hidden)?)?;
        }
        Ok(x.rms_norm(&self.norm, config.eps)?.cast(DType::F32)?)
    }

    /// The bucket of the distance from a query to a key: half of them for keys after it, and of each half the first half exact, the rest
    /// logarithmic.
    fn bucket(&self, query: usize, key: usize) -> u32 {
        let half = self.config.buckets / 2;
        let side = if key > query { half } else { 0 };
        let (distance, exact) = (key.abs_diff(query), half / 2);
        if distance < exact {
            return (side + distance) as u32;
        }
        let ratio = (distance as f32 / exact as f32).ln() / (self.config.max_distance as f32 / exact as f32).ln();
        let bucket = exact + (ratio * (half - exact) as f32) as usize;
        (side + bucket.min(half - 1)) as u32
    }
}
