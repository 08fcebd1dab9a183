//! CLIP's text encoder.

use warpwave_kernels::DType;
use warpwave_tensor::Tensor;

use crate::config::{ClipActivation, ClipConfig};
use crate::error::{Result, bad_argument};
use crate::nn::{LayerNorm, Linear, attention};
use crate::weights::Loader;

#[derive(Debug)]
struct Layer {
    norms: [LayerNorm; 2],
    qkv: [Linear; 3],
    out: Linear,
    fc1: Linear,
    fc2: Linear,
}

#[derive(Debug)]
pub(crate) struct Clip {
    config: ClipConfig,
    tokens: Tensor,
    positions: Tensor,
    layers: Vec<Layer>,
    norm: LayerNorm,
    projection: Option<Linear>,
}

/// What the encoder computes of rows of ids.
pub(crate) struct ClipOutput {
    /// The chosen layer's states, (rows, tokens, width).
    pub states: Tensor,
    /// The normalized and projected last state at the end of the text, (rows, width).
    pub pooled: Tensor,
}

impl Clip {
    pub fn load(config: &ClipConfig, loader: &Loader<'_>) -> Result<Clip> {
        let (width, feed_forward) = (config.width, config.feed_forward);
        let text = loader.at("text_model");
        let layer = |i: usize| {
            let loader = text.at(&format!("encoder.layers.{i}"));
            let projection = |name: &str| loader.linear(&format!("self_attn.{name}_proj"), width, width, true);
            Ok(Layer {
                norms: [loader.norm("layer_norm1", width, config.eps)?, loader.norm("layer_norm2", width, config.eps)?],
                qkv: [projection("q")?, projection("k")?, projection("v")?],
                out: projection("out")?,
                fc1: loader.linear("mlp.fc1", width, feed_forward, true)?,
                fc2: loader.linear("mlp.fc2", feed_forward, width, true)?,
            })
        };
        Ok(Clip {
            tokens: text.tensor("embeddings.token_embedding.weight", &[config.vocab, width])?,
            positions: text.tensor("embeddings.position_embedding.weight", &[config.positions, width])?,
            layers: (0..config.layers).map(layer).collect::<Result<_>>()?,
            norm: text.norm("final_layer_norm", width, config.eps)?,
            projection: config.projection.map(|outputs| loader.linear("text_projection", width, outputs, false)).transpose()?,
            config: config.clone(),
        })
    }

    /// Encodes rows of equal length. The states are those after all layers but the last `skip`, with the final norm if `normalize`.
    pub fn encode(&self, rows: &[Vec<u32>], skip: usize, normalize: bool) -> Result<ClipOutput> {
        let config = &self.config;
        let length = rows.first().map_or(0, Vec::len);
        if length == 0 || length > config.positions || rows.iter().any(|row| row.len() != length) {
            let found: Vec<usize> = rows.iter().map(Vec::len).collect();
            return Err(bad_argument("encode", format!("expected rows of equal length, 1 to {}, got {found:?}", config.positions)));
        }
        let ids = rows.concat();
        if let Some(id) = ids.iter().find(|id| **id as usize >= config.vocab) {
            return Err(bad_argument("encode", format!("token id {id} is out of range: the vocabulary has {} tokens", config.vocab)));
        }
        if skip >= config.layers {
            return Err(bad_argument("encode", format!("cannot skip {skip} of {} layers", config.layers)));
        }
        let device = self.tokens.device();
        let ids_tensor = Tensor::new(&ids, &[ids.len()], device)?;
        let embedded = self.tokens.embedding(&ids_tensor)?.reshape(&[rows.len(), length, config.width])?;
        let mut x = (embedded + self.positions.narrow(0, 0, length)?)?;
        let causal: Vec<f32> = (0..length * length).map(|i| if i % length > i / length { f32::NEG_INFINITY } else { 0.0 }).collect();
        let causal = Tensor::new(&causal, &[1, length, length], device)?;
        let mut states = None;
        for (i, layer) in self.layers.iter().enumerate() {
            x = layer.forward(&x, config, &causal)?;
            if i + 1 + skip == self.layers.len() {
                states = Some(x.clone());
            }
        }
        let last = self.norm.forward(&x)?;
        let states = states.unwrap_or(x);
        let states = if normalize { self.norm.forward(&states)? } else { states };
        let ends = rows.iter().enumerate().map(|(i, row)| (i * length + self.end(row)) as u32).collect::<Vec<_>>();
        let ends = Tensor::new(&ends, &[rows.len()], device)?;
        let pooled = last.reshape(&[rows.len() * length, config.width])?.index_select(&ends, 0)?;
        let pooled = match &self.projection {
            Some(projection) => projection.forward(&pooled)?,
            None => pooled,
        };
        Ok(ClipOutput { states: states.cast(DType::F32)?, pooled: pooled.cast(DType::F32)? })
    }

    /// The position of the end of a text.
    fn end(&self, row: &[u32]) -> usize {
        let end = match self.config.eos {
            Some(eos) => Some(eos),
            None => row.iter().max().copied(),
        };
        row.iter().position(|id| Some(*id) == end).unwrap_or(0)
    }
}

impl Layer {
    fn forward(&self, x: &Tensor, config: &ClipConfig, causal: &Tensor) -> Result<Tensor> {
        let normal = self.norms[0].forward(x)?;
        let [q, k, v] = &self.qkv;
        let scale = 1.0 / ((config.width / config.heads) as f32).sqrt();
        let attended = attention(&q.forward(&normal)?, &k.forward(&normal)?, &v.forward(&normal)?, config.heads, scale, Some(causal))?;
        let x = (x + self.out.forward(&attended)?)?;
        let hidden = self.fc1.forward(&self.norms[1].forward(&x)?)?;
        let hidden = match config.activation {
            ClipActivation::Gelu => hidden.gelu_erf()?,
            ClipActivation::QuickGelu => (&hidden * (&hidden * 1.702)?.sigmoid())?,
        };
        Ok((x + self.fc2.forward(&hidden)?)?)
    }
}
