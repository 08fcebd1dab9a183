//! Options that prefill and decode attention share.

use crate::common::heads::{HeadStrides, check_shape};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::{check_same_dtype, dtype_error};
use crate::view::{View, ViewMut};

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
