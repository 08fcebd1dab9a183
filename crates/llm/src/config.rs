//! What a model is: its family, sizes and constants, wherever they were read from.

use warpwave_kernels::{Glu, RopePairs, RopeScaling};

/// A family of models: which parts a layer has, and in which order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Llama 2 and 3, SmolLM2.
    Llama,
    /// Mistral: Llama with a sliding window.
    Mistral,
    /// Qwen 2 and 2.5: biases on queries, keys and values.
    Qwen2,
    /// Qwen 3: queries and keys are normalised per head.
    Qwen3,
    /// Gemma 2: norms before and behind, soft caps, every second layer with a window.
    Gemma2,
    /// Gemma 3: as Gemma 2, with normalised queries and keys, without caps, and angles of its own in layers with a window.
    Gemma3,
    /// Phi 3: queries, keys and values in one matrix; gate and up in one.
    Phi3,
}

/// How positions turn queries and keys.
#[derive(Debug, Clone, PartialEq)]
pub struct RopeConfig {
    /// The base of the angles.
    pub base: f64,
    /// Elements of a head that are turned.
    pub rotated: usize,
    /// How the angles are stretched.
    pub scaling: RopeScaling,
    /// What each pair's frequency is divided by, besides; empty where there are none. Llama 3's stretching comes as these.
    pub factors: Vec<f32>,
    /// Other factors for long texts.
    pub long: Option<LongRope>,
    /// What cosine and sine are multiplied by, where it is not what `scaling` gives.
    pub attention: Option<f64>,
}

/// Factors of frequencies for long texts.
#[derive(Debug, Clone, PartialEq)]
pub struct LongRope {
    /// They hold where a text may have more positions than these.
    pub beyond: usize,
    /// What each pair's frequency is divided by.
    pub factors: Vec<f32>,
}

impl RopeConfig {
    /// Angles that are not stretched.
    pub fn plain(base: f64, rotated: usize) -> RopeConfig {
        RopeConfig { base, rotated, scaling: RopeScaling::None, factors: Vec::new(), long: None, attention: None }
    }

    /// The frequencies of the pairs for texts of up to `context` positions, and what cosine and sine are multiplied by.
    pub fn frequencies(&self, context: usize) -> (Vec<f32>, f64) {
        let (mut frequencies, factor) = self.scaling.frequencies(self.rotated, self.base);
        let long = self.long.as_ref().filter(|long| context > long.beyond);
        let factors = long.map_or(&self.factors, |long| &long.factors);
        frequencies.iter_mut().zip(factors).for_each(|(frequency, factor)| *frequency /= factor);
        (frequencies, self.attention.unwrap_or(factor))
    }
}

/// What a model is. Weights come in the conventions of GGUF files, whichever file they are read from: names, the order of the rows of
/// queries and keys (`pairs`), norms with their 1 already added.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The family.
    pub family: Family,
    /// What the file calls the model.
    pub name: Option<String>,
    /// Tokens of the vocabulary: rows of the embedding.
    pub vocab: usize,
    /// Elements of a token's vector.
    pub hidden: usize,
    /// Layers.
    pub layers: usize,
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys and of values.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Elements between the feed-forward matrices.
    pub feed_forward: usize,
    /// Positions that the model was made for.
    pub context: usize,
    /// What norms add to the mean square.
    pub norm_eps: f32,
    /// The angles.
    pub rope: RopeConfig,
    /// The angles of layers with a window, where they differ.
    pub rope_windowed: Option<RopeConfig>,
    /// Which elements of a head are turned together.
    pub pairs: RopePairs,
    /// Keys that a layer with a window sees, its own included.
    pub window: Option<usize>,
    /// Whether each layer has the window.
    pub windowed: Vec<bool>,
    /// What scores are multiplied by.
    pub score_scale: f32,
    /// The soft cap of scores.
    pub score_cap: Option<f32>,
    /// The soft cap of logits.
    pub logit_cap: Option<f32>,
    /// What embeddings are multiplied by.
    pub embedding_scale: f32,
    /// The gate of the feed-forward part.
    pub glu: Glu,
    /// The token that begins a text.
    pub bos: Option<u32>,
    /// The tokens that end one.
    pub eos: Vec<u32>,
}
