//! Options that prefill and decode attention share.

use crate::error::{Error, Result};
use crate::kernels::{check_same_dtype, shape_error};
use crate::view::View;
use crate::{DType, Layout};

/// The keys that a query sees, by their distance from its own position, which counts as seen. As the window sizes of flash-attn, where
/// `None` is -1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Window {
    /// Keys before the query's position; `None`: all.
    pub left: Option<usize>,
    /// Keys after the query's position; `None`: all. 0 is a causal mask.
    pub right: Option<usize>,
}

impl Window {
    /// All keys.
    pub const FULL: Window = Window { left: None, right: None };
    /// Causal mask: the keys up to the query's position.
    pub const CAUSAL: Window = Window { left: None, right: Some(0) };

    /// Returns the causal sliding window of `keys` keys, the query's own included.
    pub fn sliding(keys: usize) -> Window {
        Window { left: Some(keys.saturating_sub(1)), right: Some(0) }
    }

    /// Whether a query at `position` sees the key at `key`.
    pub fn sees(self, position: i64, key: i64) -> bool {
        let within =
            |bound: Option<usize>, distance: i64| bound.is_none_or(|bound| i64::try_from(bound).is_ok_and(|bound| distance <= bound));
        within(self.left, position.saturating_sub(key)) && within(self.right, key.saturating_sub(position))
    }

    /// The bounds as numbers below `limit`.
    pub(crate) fn bounds(self, limit: usize) -> [i32; 2] {
        [self.left, self.right].map(|bound| bound.unwrap_or(limit).min(limit - 1) as i32)
    }
}

/// Masking and scaling of attention. A query's position is that of its token among the keys; the last query has the position of the last
/// key.
#[derive(Debug, Clone, Copy)]
pub struct AttentionOptions<'a> {
    /// Factor of the scores, usually 1/√head_dim.
    pub scale: f32,
    /// The keys that a query sees.
    pub window: Window,
    /// Soft cap: scores become `cap · tanh(score / cap)` before biases are added.
    pub soft_cap: Option<f32>,
    /// ALiBi slopes, `f32` of (query heads), or of (sequences, query heads): slope · distance is subtracted from a score.
    pub alibi: Option<View<'a>>,
    /// Attention sinks, `f32` of (query heads): another score of each softmax, which has no value. Not scaled or capped.
    pub sinks: Option<View<'a>>,
    /// Tree mask, for the drafts of speculative decoding: `i64` of (sequences, queries), or of (rows) for varlen queries. The last 64
    /// queries of a sequence, or all if it has fewer, are its drafts. Bit j of a query's word says whether it sees the key of draft j,
    /// whatever the window; the window decides about earlier keys.
    pub tree: Option<View<'a>>,
}

impl AttentionOptions<'_> {
    /// The most drafts of a sequence with a tree mask: bits of a query's word.
    pub const MAX_DRAFTS: usize = 64;

    /// No mask: each query sees all keys.
    pub fn new(scale: f32) -> Self {
        AttentionOptions { scale, window: Window::FULL, soft_cap: None, alibi: None, sinks: None, tree: None }
    }

    /// Causal mask.
    pub fn causal(scale: f32) -> Self {
        AttentionOptions { window: Window::CAUSAL, ..AttentionOptions::new(scale) }
    }

    /// Checks numbers, types and shapes; `tree` is the shape of the tree mask.
    pub(crate) fn check(&self, op: &str, sequences: usize, heads: usize, tree: &[usize]) -> Result<()> {
        if !self.scale.is_finite() || self.soft_cap.is_some_and(|cap| !(cap.is_finite() && cap > 0.0)) {
            let reason = format!("scale must be finite, and soft_cap finite and > 0; got {} and {:?}", self.scale, self.soft_cap);
            return Err(Error::BadArgument { op: op.to_owned(), reason });
        }
        if let Some(slopes) = &self.alibi {
            check_same_dtype(op, "ALiBi slopes", *slopes, DType::F32)?;
            let shape = slopes.layout().shape();
            if shape != [heads] && shape != [sequences, heads] {
                return Err(shape_error(op, "ALiBi slopes", slopes, format!("[{heads}] or [{sequences}, {heads}]")));
            }
        }
        let others = [("attention sinks", self.sinks, DType::F32, &[heads][..]), ("tree mask", self.tree, DType::I64, tree)];
        for (what, view, dtype, shape) in others {
            let Some(view) = view else { continue };
            check_same_dtype(op, what, view, dtype)?;
            if view.layout().shape() != shape {
                return Err(shape_error(op, what, &view, format!("{shape:?}")));
            }
        }
        Ok(())
    }

    /// The optional views, with their names.
    pub(crate) fn views(&self) -> [(&'static str, Option<View<'_>>); 3] {
        [("ALiBi slopes", self.alibi), ("attention sinks", self.sinks), ("tree mask", self.tree)]
    }

    /// Strides of the slopes: between sequences and between heads.
    pub(crate) fn slope_strides(&self) -> [usize; 2] {
        match self.alibi.as_ref().map(View::layout).map(Layout::strides) {
            Some([head]) => [0, *head],
            Some([sequence, head]) => [*sequence, *head],
            _ => [0, 0],
        }
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
