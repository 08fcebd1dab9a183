//! The architecture of a model: family, sizes and constants, whichever file they come from.

use warpwave_kernels::{Glu, RopePairs, RopeScaling, Routing};

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
    /// Gemma 1: norm weights without their + 1, scaled embeddings.
    Gemma,
    /// Phi 1 and 2: LayerNorm, parallel blocks, partial RoPE.
    Phi,
    /// OLMo 2: norms after the blocks only, QK norm over all heads.
    Olmo2,
    /// Granite 3: Llama with factors of embeddings, scores, residuals and logits.
    Granite,
    /// StableLM 2: LayerNorm, partial RoPE.
    StableLm,
    /// StarCoder 2: LayerNorm, biases, ungated feed-forward, sliding window.
    Starcoder2,
    /// GPT-NeoX and Pythia: LayerNorm, fused QKV, parallel blocks with a norm each.
    GptNeox,
    /// Falcon: LayerNorm, fused QKV, parallel blocks.
    Falcon,
    /// Mixtral: Llama with experts.
    Mixtral,
    /// Qwen 1.5 and 2 with experts and a gated shared expert.
    Qwen2Moe,
    /// Qwen 3 with experts.
    Qwen3Moe,
    /// Phi 3.5 with experts: LayerNorm, sparse-mixer routing.
    PhiMoe,
    /// DeepSeek 2 and 3: latent attention, experts with shared ones.
    Deepseek,
    /// gpt-oss: attention sinks, experts with biases, sliding window in every second layer.
    GptOss,
}

/// Multi-head latent attention (MLA): keys and values are projected from a common latent vector. The KV cache holds them expanded.
///
/// Of [`Config::head_dim`] elements of a query or key, [`RopeConfig::rotary_dim`] are rotated; those of a key are shared by all heads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MlaConfig {
    /// Size of the latent vector that queries are projected from; `None`: directly from the hidden state.
    pub q_lora: Option<usize>,
    /// Size of the latent vector of keys and values.
    pub kv_lora: usize,
    /// Elements of a value head, at most [`Config::head_dim`].
    pub value_dim: usize,
}

/// Mixture of experts: feed-forwards of which each token uses some.
#[derive(Debug, Clone, PartialEq)]
pub struct MoeConfig {
    /// Number of experts.
    pub experts: usize,
    /// Intermediate size of an expert.
    pub feed_forward: usize,
    /// Intermediate size of the shared expert, which every token uses; 0 without one.
    pub shared_feed_forward: usize,
    /// How the experts of a token are chosen and weighted.
    pub routing: Routing,
    /// Whether each layer has experts; others have a dense feed-forward.
    pub sparse_layers: Vec<bool>,
}

/// The normalization of the residual stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NormKind {
    /// x / √(mean(x²) + ε) · weight.
    Rms,
    /// (x − mean(x)) / √(variance(x) + ε) · weight + bias.
    Layer,
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
    /// The normalization.
    pub norm: NormKind,
    /// Epsilon of the norms.
    pub norm_eps: f32,
    /// Whether attention and feed-forward read the same residual stream and are added together, instead of one after the other.
    pub parallel: bool,
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
    /// Factor of what a block adds to the residual stream.
    pub residual_scale: f32,
    /// Factor of the logits.
    pub logit_scale: f32,
    /// Activation of the feed-forward.
    pub glu: Glu,
    /// Whether the feed-forward is gated: f(gate) · up instead of f(up).
    pub gated: bool,
    /// Latent attention, if the model has it.
    pub mla: Option<MlaConfig>,
    /// Experts, if the model has them.
    pub moe: Option<MoeConfig>,
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
