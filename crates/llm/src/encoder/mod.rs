//! Encoders, which turn texts into embeddings: BERT and models of its architecture.
//!
//! An [`EncoderCheckpoint`] is the model's files, an [`Encoder`] its weights on a device, an [`EncoderTokenizer`] turns texts into tokens.
//! Attention is bidirectional; padded positions of a batch are masked, so that a batch gives what each text gives alone.

mod files;
mod tokenizer;

use warpwave_kernels::{DType, Unary};
use warpwave_tensor::{Device, Linear, Matrix, Precision, Tensor};
use warpwave_weights::Kind;

use crate::error::{Error, Result};
pub use files::EncoderCheckpoint;
pub use tokenizer::EncoderTokenizer;

/// Positions of a step, with padding: larger batches are computed in several steps, for the scores of attention take memory.
const STEP: usize = 4096;

/// How the states of a text's tokens become one vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EncoderPooling {
    /// Their mean.
    Mean,
    /// The first one.
    Cls,
}

/// The architecture of an encoder.
#[derive(Debug, Clone, PartialEq)]
pub struct EncoderConfig {
    /// Vocabulary size.
    pub vocab: usize,
    /// Hidden size: elements of an embedding.
    pub hidden: usize,
    /// Number of layers.
    pub layers: usize,
    /// Number of attention heads.
    pub heads: usize,
    /// Intermediate size of the feed-forward.
    pub feed_forward: usize,
    /// The longest text in tokens.
    pub context: usize,
    /// Rows of the position embedding: the context or more.
    pub positions: usize,
    /// Number of token types (segments).
    pub token_types: usize,
    /// Epsilon of the norms.
    pub norm_eps: f32,
    /// Activation of the feed-forward.
    pub activation: Unary,
    /// How states become one vector.
    pub pooling: EncoderPooling,
    /// Whether embeddings are scaled to length 1.
    pub normalize: bool,
}

/// The tokens of a text.
#[derive(Debug, Clone, Copy)]
pub struct EncoderInput<'a> {
    /// The token ids.
    pub tokens: &'a [u32],
    /// The type (segment) of each token; `None`: all 0.
    pub types: Option<&'a [u32]>,
}

impl<'a> EncoderInput<'a> {
    /// An input of one segment.
    pub fn new(tokens: &'a [u32]) -> EncoderInput<'a> {
        EncoderInput { tokens, types: None }
    }
}

/// An encoder on a device.
pub struct Encoder {
    config: EncoderConfig,
    device: Device,
    words: Matrix,
    positions: Tensor,
    types: Tensor,
    norm: Norm,
    layers: Vec<Layer>,
}

struct Layer {
    qkv: Linear,
    attention_out: Linear,
    attention_norm: Norm,
    up: Linear,
    down: Linear,
    norm: Norm,
}

struct Norm {
    weight: Tensor,
    bias: Tensor,
}

impl Encoder {
    /// Loads the weights to a device.
    pub fn load(files: &EncoderCheckpoint, device: &Device) -> Result<Encoder> {
        let config = files.config().clone();
        let EncoderConfig { hidden, .. } = config;
        let tensor = |name: &str| -> Result<Tensor> {
            let info = files.need(name)?;
            Ok(Tensor::new(&files.get_f32(name)?, info.shape, device)?)
        };
        let norm = |name: &str| -> Result<Norm> {
            Ok(Norm { weight: tensor(&format!("{name}.weight"))?, bias: tensor(&format!("{name}.bias"))? })
        };
        let matrix = |name: &str| -> Result<Matrix> {
            let name = format!("{name}.weight");
            let weight = files.need(&name)?;
            match (weight.kind, weight.shape) {
                (Kind::Quant(quant), &[rows, columns]) => Ok(Matrix::quantized(quant, weight.bytes, rows, columns, device)?),
                _ => Ok(Matrix::plain(tensor(&name)?)?),
            }
        };
        let linear = |names: &[String]| -> Result<Linear> {
            let parts = names.iter().map(|name| matrix(name)).collect::<Result<Vec<_>>>()?;
            let biases = names.iter().map(|name| tensor(&format!("{name}.bias"))).collect::<Result<Vec<_>>>()?;
            Ok(Linear::new(parts, Some(Tensor::cat(&biases, 0)?))?)
        };
        let mut layers = Vec::new();
        for number in 0..config.layers {
            let name = |part: &str| format!("blk.{number}.{part}");
            layers.push(Layer {
                qkv: linear(&["attn_q", "attn_k", "attn_v"].map(name))?,
                attention_out: linear(&[name("attn_output")])?,
                attention_norm: norm(&name("attn_output_norm"))?,
                up: linear(&[name("ffn_up")])?,
                down: linear(&[name("ffn_down")])?,
                norm: norm(&name("layer_output_norm"))?,
            });
        }
        debug_assert!(layers.iter().all(|layer| layer.attention_norm.weight.len() == hidden));
        Ok(Encoder {
            device: device.clone(),
            words: matrix("token_embd")?,
            positions: tensor("position_embd.weight")?,
            types: tensor("token_types.weight")?,
            norm: norm("token_embd_norm")?,
            layers,
            config,
        })
    }

    /// Returns the architecture.
    pub fn config(&self) -> &EncoderConfig {
        &self.config
    }

    /// Returns the device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the embeddings of texts, in their order. They do not depend on which texts are computed together.
    pub fn embed(&self, batch: &[EncoderInput<'_>]) -> Result<Vec<Vec<f32>>> {
        batch.iter().try_for_each(|input| self.check(input))?;
        // Texts of similar length together: little padding.
        let mut order: Vec<usize> = (0..batch.len()).collect();
        order.sort_by_key(|index| batch[*index].tokens.len());
        let mut vectors = vec![Vec::new(); batch.len()];
        let mut rest = &order[..];
        while !rest.is_empty() {
            let fits = |count: usize| rest.get(count - 1).is_some_and(|last| batch[*last].tokens.len() * count <= STEP);
            let count = (1..=rest.len()).take_while(|count| *count == 1 || fits(*count)).last().unwrap_or(1);
            let (now, later) = rest.split_at(count);
            rest = later;
            let inputs: Vec<EncoderInput<'_>> = now.iter().map(|index| batch[*index]).collect();
            let states = self.hidden_states(&inputs)?;
            let (longest, states) = (states.size(1), states.to_vec::<f32>()?);
            for ((index, input), states) in now.iter().zip(&inputs).zip(states.chunks_exact(longest * self.config.hidden)) {
                vectors[*index] = self.pooled(&states[..input.tokens.len() * self.config.hidden]);
            }
        }
        Ok(vectors)
    }

    /// The embedding of a text from its states.
    fn pooled(&self, states: &[f32]) -> Vec<f32> {
        let hidden = self.config.hidden;
        let tokens = match self.config.pooling {
            EncoderPooling::Mean => states.len() / hidden,
            EncoderPooling::Cls => 1,
        };
        let mean = |i: usize| (0..tokens).map(|token| f64::from(states[token * hidden + i])).sum::<f64>() / tokens as f64;
        let vector: Vec<f64> = (0..hidden).map(mean).collect();
        let length = vector.iter().map(|value| value * value).sum::<f64>().sqrt();
        let length = if self.config.normalize && length > 0.0 { length } else { 1.0 };
        vector.into_iter().map(|value| (value / length) as f32).collect()
    }

    fn check(&self, input: &EncoderInput<'_>) -> Result<()> {
        let EncoderConfig { vocab, context, token_types, .. } = self.config;
        let tokens = input.tokens.len();
        if tokens == 0 || input.types.is_some_and(|types| types.len() != tokens) {
            return Err(Error::NoTokens);
        }
        if tokens > context {
            return Err(Error::ContextExceeded { tokens, context });
        }
        let outside = |ids: &[u32], count: usize| ids.iter().copied().find(|id| *id as usize >= count);
        if let Some(token) = outside(input.tokens, vocab) {
            return Err(Error::TokenOutOfRange { token, vocab });
        }
        match input.types.and_then(|types| outside(types, token_types)) {
            Some(token) => Err(Error::TokenOutOfRange { token, vocab: token_types }),
            None => Ok(()),
        }
    }

    /// Returns the states after the last layer, `f32` of (texts, longest, hidden). Those beyond a text's end have no meaning.
    pub fn hidden_states(&self, batch: &[EncoderInput<'_>]) -> Result<Tensor> {
        batch.iter().try_for_each(|input| self.check(input))?;
        let EncoderConfig { hidden, heads, norm_eps, activation, .. } = self.config;
        let (texts, longest) = (batch.len(), batch.iter().map(|input| input.tokens.len()).max().ok_or(Error::NoTokens)?);
        let [mut tokens, mut types, mut positions] = [(); 3].map(|()| vec![0u32; texts * longest]);
        let mut mask = vec![f32::NEG_INFINITY; texts * longest];
        for (number, input) in batch.iter().enumerate() {
            let row = number * longest..number * longest + input.tokens.len();
            tokens[row.clone()].copy_from_slice(input.tokens);
            if let Some(own) = input.types {
                types[row.clone()].copy_from_slice(own);
            }
            positions[row.clone()].iter_mut().enumerate().for_each(|(position, to)| *to = position as u32);
            mask[row].fill(0.0);
        }
        let rows = texts * longest;
        let ids = |ids: &[u32]| Tensor::new(ids, &[rows], &self.device);
        let mask = match mask.contains(&f32::NEG_INFINITY) {
            true => Some(Tensor::new(&mask, &[texts, 1, 1, longest], &self.device)?),
            false => None,
        };
        let mut x = self.words.embedding(&ids(&tokens)?, DType::F32)?;
        x.add_in_place(&self.positions.embedding(&ids(&positions)?)?)?;
        x.add_in_place(&self.types.embedding(&ids(&types)?)?)?;
        let normalized = |x: &Tensor, norm: &Norm| x.layer_norm(&norm.weight, &norm.bias, norm_eps);
        let linear = |linear: &Linear, x: &Tensor| linear.forward(x, DType::F32, Precision::Exact);
        x = normalized(&x, &self.norm)?;
        let head_dim = hidden / heads;
        for layer in &self.layers {
            let qkv = linear(&layer.qkv, &x)?;
            let part = |number: usize| -> warpwave_tensor::Result<Tensor> {
                let part = qkv.narrow(1, number * hidden, hidden)?.contiguous()?;
                part.reshape(&[texts, longest, heads, head_dim])?.transpose(1, 2)?.contiguous()
            };
            let mut scores = part(0)?.matmul(&part(1)?.transpose(2, 3)?)?;
            scores.scale_in_place(1.0 / (head_dim as f32).sqrt())?;
            if let Some(mask) = &mask {
                scores = scores.add(mask)?;
            }
            let attended = scores.softmax(3)?.matmul(&part(2)?)?;
            drop(scores);
            let attended = attended.transpose(1, 2)?.contiguous()?.reshape(&[rows, hidden])?;
            x.add_in_place(&linear(&layer.attention_out, &attended)?)?;
            x = normalized(&x, &layer.attention_norm)?;
            let inner = linear(&layer.up, &x)?.unary(activation)?;
            x.add_in_place(&linear(&layer.down, &inner)?)?;
            x = normalized(&x, &layer.norm)?;
        }
        Ok(x.reshape(&[texts, longest, hidden])?)
    }
}
