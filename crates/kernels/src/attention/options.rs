//! Options that prefill and decode attention share.

use crate::view::View;

/// Masking and scaling of attention. A query's position is that of its token among the keys; the last query has the position of the last
/// key.
#[derive(Debug, Clone, Copy)]
pub struct AttentionOptions<'a> {
    /// Factor of the scores, usually 1/√head_dim.
    pub scale: f32,
    /// Whether a query sees only keys up to its own position.
    pub causal: bool,
    /// Sliding window: a query sees only keys fewer than this many positions away; 1 means only its own.
    pub window: Option<usize>,
    /// Soft cap: scores become `cap · tanh(score / cap)` before biases are added.
    pub soft_cap: Option<f32>,
    /// ALiBi slopes, `f32` of (query heads): slope · distance is subtracted from a score.
    pub alibi: Option<View<'a>>,
}

impl AttentionOptions<'_> {
    /// No mask: each query sees all keys.
    pub fn new(scale: f32) -> Self {
        AttentionOptions { scale, causal: false, window: None, soft_cap: None, alibi: None }
    }

    /// Causal mask.
    pub fn causal(scale: f32) -> Self {
        AttentionOptions { causal: true, ..AttentionOptions::new(scale) }
    }
}

/// Keys and values, with any strides.
#[derive(Debug, Clone, Copy)]
pub struct KeyValues<'a> {
    /// (sequences, keys, heads, head_dim); with `table`, (blocks, block size, heads, head_dim).
    pub keys: View<'a>,
    /// Same shape as `keys`.
    pub values: View<'a>,
    /// Block table of a paged cache: `u32` or `i32` of (sequences, max blocks per sequence). Keys of out-of-range blocks are masked.
    pub table: Option<View<'a>>,
    /// Number of keys per sequence, `u32` or `i32` of (sequences); all if `None`. Larger values are clamped.
    pub lengths: Option<View<'a>>,
}
