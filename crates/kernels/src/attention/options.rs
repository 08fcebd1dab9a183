//! Options that prefill and decode attention share.

use crate::attention::USUAL_HEAD_DIM;
use crate::common::heads::{HeadStrides, check_shape};
use crate::error::{Error, Result};
use crate::kernels::{check_same_dtype, dtype_error, shape_error};
use crate::view::{View, ViewMut};
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

/// Elements of a head that share a scale in a cache of [`CacheCodes::Q8_0`].
const GROUP: usize = 32;

/// How a quantized KV cache stores an element in a byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheCodes {
    /// GGUF's `Q8_0`, with codes and scales apart: signed bytes (in views of `u8`), and a scale for each 32 elements of a head.
    Q8_0,
    /// `f8e4m3` as OCP defines it, on every device, with a scale for each head of a token.
    F8E4M3,
}

impl CacheCodes {
    /// Returns the element type of the codes.
    pub fn dtype(self) -> DType {
        match self {
            CacheCodes::Q8_0 => DType::U8,
            CacheCodes::F8E4M3 => DType::F8E4M3,
        }
    }

    /// Returns the number of scales of a token's head.
    pub fn groups(self, head_dim: usize) -> usize {
        match self {
            CacheCodes::Q8_0 => head_dim.div_ceil(GROUP),
            CacheCodes::F8E4M3 => 1,
        }
    }

    /// The value of the macro `CODES`.
    pub(crate) fn constant(self) -> u32 {
        match self {
            CacheCodes::Q8_0 => 1,
            CacheCodes::F8E4M3 => 2,
        }
    }
}

/// Scales of the keys and values of a quantized cache, whose codes are the cache's elements: `f16` of (sequences or blocks, keys, heads,
/// [`CacheCodes::groups`]), with consecutive groups.
///
/// An element is its code times its scale. A group with a value that is not finite has a scale of NaN.
#[derive(Debug, Clone, Copy)]
pub struct CacheScales<'a> {
    /// How elements are stored.
    pub codes: CacheCodes,
    /// Scales of the keys.
    pub keys: View<'a>,
    /// Scales of the values.
    pub values: View<'a>,
}

/// Scales of a quantized cache to append to; see [`CacheScales`].
#[derive(Debug)]
pub struct CacheScalesMut<'a> {
    /// How elements are stored.
    pub codes: CacheCodes,
    /// Scales of the keys.
    pub keys: ViewMut<'a>,
    /// Scales of the values.
    pub values: ViewMut<'a>,
}

impl CacheScalesMut<'_> {
    /// The same scales, to read.
    pub(crate) fn as_view(&self) -> CacheScales<'_> {
        CacheScales { codes: self.codes, keys: self.keys.as_view(), values: self.values.as_view() }
    }
}

/// Strides of the scales of keys and values; mirrors `CodeScales` in `codes.cuh`.
pub(crate) type ScaleStrides = [HeadStrides; 2];

impl<'a> CacheScales<'a> {
    /// Names and views.
    pub(crate) fn views(&self) -> [(&'static str, View<'a>); 2] {
        [("key scales", self.keys), ("value scales", self.values)]
    }

    /// Checks the scales of a cache that attention reads; returns their strides.
    pub(crate) fn check_attention(&self, op: &str, keys: &View<'_>, options: &AttentionOptions<'_>) -> Result<ScaleStrides> {
        let bad = |reason| Error::BadArgument { op: op.to_owned(), reason };
        if options.tree.is_some() {
            return Err(bad("a tree mask cannot be combined with a quantized cache".to_owned()));
        }
        match keys.layout().shape().last() {
            Some(&dim) if dim > USUAL_HEAD_DIM => {
                Err(bad(format!("head_dim {dim} exceeds the limit of quantized caches, {USUAL_HEAD_DIM}")))
            }
            _ => self.check(op, keys),
        }
    }

    /// Checks the scales of a cache; returns their strides.
    pub(crate) fn check(&self, op: &str, keys: &View<'_>) -> Result<ScaleStrides> {
        let codes = self.codes.dtype();
        if keys.dtype() != codes {
            return Err(dtype_error(op, "key cache", keys.dtype(), codes.name()));
        }
        let mut shape = keys.layout().shape().to_vec();
        if let Some(dim) = shape.last_mut() {
            *dim = self.codes.groups(*dim);
        }
        for (what, view) in self.views() {
            check_same_dtype(op, what, view, DType::F16)?;
            check_shape(op, what, &view, &shape)?;
            if view.layout().strides().last().is_some_and(|stride| *stride != 1) {
                let reason = format!("{what}: the last dimension must be contiguous (stride 1)");
                return Err(Error::BadArgument { op: op.to_owned(), reason });
            }
        }
        Ok([HeadStrides::of(op, &self.keys)?, HeadStrides::of(op, &self.values)?])
    }
}
