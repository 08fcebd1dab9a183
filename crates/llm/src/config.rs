//! The architecture of a model: family, sizes and constants, whichever file they come from.

use warpwave_kernels::{Glu, RopePairs, RopeScaling};

/// The context length where none is given: most models support more, and the KV cache takes memory for each token.
const DEFAULT_CONTEXT: usize = 4096;

/// A model family: which parts a layer has, and in which order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Llama 2 and 3, SmolLM2.
    Llama,
    /// Mistral: Llama with a sliding window.
    Mistral,
    /// Qwen 2 and 2.5: QKV biases.
    Qwen2,
    /// Qwen 3: QK norm per head.
    Qwen3,
    /// Gemma 2: pre- and post-norms, soft caps, sliding window in every second layer.
    Gemma2,
    /// Gemma 3: as Gemma 2 with QK norm, without soft caps, and with another RoPE base in sliding-window layers.
    Gemma3,
    /// Phi 3: fused QKV and fused gate-up matrices.
    Phi3,
}

/// Rotary position embedding (RoPE).
#[derive(Debug, Clone, PartialEq)]
pub struct RopeConfig {
    /// The frequency base (`rope_theta`).
    pub base: f64,
    /// Elements of a head that are rotated.
    pub rotary_dim: usize,
    /// Context extension.
    pub scaling: RopeScaling,
    /// Divisors of each pair's frequency; empty for none. Llama 3's scaling is stored this way.
    pub frequency_factors: Vec<f32>,
    /// Other divisors for long contexts (LongRoPE).
    pub long: Option<LongRope>,
    /// Factor of cosine and sine, if it is not the one that `scaling` implies.
    pub attention_factor: Option<f64>,
}

/// Frequency divisors for long contexts (LongRoPE).
#[derive(Debug, Clone, PartialEq)]
pub struct LongRope {
    /// The context beyond which they apply.
    pub original_context: usize,
    /// Divisors of each pair's frequency.
    pub frequency_factors: Vec<f32>,
}

impl RopeConfig {
    /// Creates a configuration without context extension.
    pub fn plain(base: f64, rotary_dim: usize) -> RopeConfig {
        RopeConfig { base, rotary_dim, scaling: RopeScaling::None, frequency_factors: Vec::new(), long: None, attention_factor: None }
    }

    /// Returns each pair's frequency for contexts of up to `context` positions, and the factor of cosine and sine.
    pub fn frequencies(&self, context: usize) -> (Vec<f32>, f64) {
        let (mut frequencies, factor) = self.scaling.frequencies(self.rotary_dim, self.base);
        let long = self.long.as_ref().filter(|long| context > long.original_context);
        let factors = long.map_or(&self.frequency_factors, |long| &long.frequency_factors);
        frequencies.iter_mut().zip(factors).for_each(|(frequency, factor)| *frequency /= factor);
        (frequencies, self.attention_factor.unwrap_or(factor))
    }
}

/// The architecture of a model.
///
/// Weights follow GGUF's conventions, whichever file they are read from: tensor names, the row order of Q and K (`pairs`), and norm weights
/// that include Gemma's + 1.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The family.
    pub family: Family,
    /// The model's name in the file.
    pub name: Option<String>,
    /// Vocabulary size: rows of the embedding.
    pub vocab: usize,
    /// Hidden size.
    pub hidden: usize,
    /// Number of layers.
    pub layers: usize,
    /// Number of query heads.
    pub heads: usize,
    /// Number of KV heads.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Intermediate size of the feed-forward.
    pub feed_forward: usize,
    /// Positions that the model was trained for.
    pub context: usize,
    /// Epsilon of the RMS norms.
    pub norm_eps: f32,
    /// RoPE.
    pub rope: RopeConfig,
    /// RoPE of sliding-window layers, if it differs.
    pub rope_sliding: Option<RopeConfig>,
    /// Which elements of a head form a RoPE pair.
    pub pairs: RopePairs,
    /// Keys that a sliding-window layer attends to, including the query's own position.
    pub sliding_window: Option<usize>,
    /// Whether each layer has the sliding window.
    pub sliding_layers: Vec<bool>,
    /// Scale of the attention scores.
    pub attention_scale: f32,
    /// Soft cap of the attention scores.
    pub attention_softcap: Option<f32>,
    /// Soft cap of the logits.
    pub logit_softcap: Option<f32>,
    /// Factor of the embeddings.
    pub embedding_scale: f32,
    /// Activation of the gated feed-forward.
    pub glu: Glu,
    /// The beginning-of-sequence token.
    pub bos: Option<u32>,
    /// The end-of-sequence tokens.
    pub eos: Vec<u32>,
}

impl Config {
    /// Returns the context length to use where none is given: at most 4096 tokens.
    pub fn default_context(&self) -> usize {
        self.context.min(DEFAULT_CONTEXT)
    }
}
