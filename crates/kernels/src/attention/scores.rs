//! Unfused attention, for any shape: the scores, and the weighted sum of values. Both are one matrix product per head.

use warpwave_gpu::Stream;

use crate::common::heads::{FLOATS, check_dtype, check_shape, sizes};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::{Kernels, check_no_overlap, check_same_dtype, launch_error, shape_error};
use crate::layout::Layout;
use crate::matmul::Matmul;
use crate::view::{View, ViewMut};

/// Splits the head dimension into (KV heads, query heads per KV head): (sequences, KV heads, heads each, rows, columns). `order` gives the
/// dimensions of sequences, heads, rows and columns.
fn by_head(layout: &Layout, order: [usize; 4], each: usize) -> Result<Layout> {
    let [s, h, r, c] = order;
    let (shape, strides) = (layout.shape(), layout.strides());
    Layout::new(
        &[shape[s], shape[h] / each, each, shape[r], shape[c]],
        &[strides[s], strides[h] * each, strides[h], strides[r], strides[c]],
        layout.offset(),
    )
}

impl Kernels {
    /// Computes `out = q · kᵀ · scale + mask`: (sequences, heads, queries, keys) from queries and keys of (sequences, tokens, heads,
    /// head_dim).
    ///
    /// Query heads may share KV heads. The mask is `f32` or of the same type, and broadcast. As in [`Kernels::matmul`], AMD's gfx90a
    /// flushes subnormal `f16` to 0.
    pub fn attention_scores(
        &self,
        stream: &Stream,
        (q, k): (&View<'_>, &View<'_>),
        scale: f64,
        mask: Option<&View<'_>>,
        out: &mut ViewMut<'_>,
    ) -> Result<()> {
        let op = "scores";
        let [sequences, queries, heads, dim] = sizes(op, "queries", q, "sequences, tokens, heads, head_dim")?;
        let [_, keys, kv_heads, _] = sizes(op, "keys", k, "sequences, tokens, heads, head_dim")?;
        if k.layout().shape() != [sequences, keys, kv_heads, dim] || kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
            return Err(shape_error(
                op,
                "keys",
                k,
                format!(
                    "with the same number of sequences and head_dim as {:?}, and a number of KV heads that divides its number of query heads",
                    q.layout().shape()
                ),
            ));
        }
        let (shape, each) = ([sequences, heads, queries, keys], heads / kv_heads);
        let mask = match mask {
            Some(mask) => {
                check_dtype(op, "mask", mask, &[DType::F32, q.dtype()])?;
                let layout = mask.layout().broadcast_to(&shape);
                Some(mask.with_layout(layout.map_err(|_| shape_error(op, "mask", mask, format!("that broadcasts to {shape:?}")))?)?)
            }
            None => None,
        };
        self.check_parts(stream, op, [("queries", *q), ("keys", *k)], mask, out, shape)?;
        if out.layout().is_empty() {
            return Ok(());
        }
        let a = q.with_layout(by_head(q.layout(), [0, 2, 1, 3], each)?)?;
        let b = k.with_layout(by_head(k.layout(), [0, 2, 3, 1], 1)?)?;
        let product = Matmul::new().scaled(scale, 0.0);
        let by_heads = |layout: &Layout| by_head(layout, [0, 1, 2, 3], each);
        match mask {
            // Added before rounding: in the mask's type or the result's, whichever is wider.
            Some(mask) if mask.dtype() != out.dtype() => {
                let dtype = if out.dtype() == DType::F64 { DType::F64 } else { mask.dtype() };
                let dense = Layout::contiguous(&shape)?;
                let mut sums = stream.alloc::<u8>(dense.len() * dtype.size()).map_err(launch_error(op))?;
                let mut sums = ViewMut::of_bytes(&mut sums, dtype, dense)?;
                self.cast(stream, &mask, &mut sums)?;
                self.multiply(stream, &product.scaled(scale, 1.0), a, b, sums.as_view().with_layout(by_heads(&dense)?)?)?;
                self.cast(stream, &sums.as_view(), out)
            }
            mask => {
                let mask = mask.map(|mask| mask.with_layout(by_heads(mask.layout())?)).transpose()?;
                let product = mask.map_or(product, |mask| product.bias(mask));
                self.multiply(stream, &product, a, b, out.as_view().with_layout(by_heads(out.layout())?)?)
            }
        }
    }

    /// Computes `out = weights · v`: (sequences, tokens, heads, head_dim) from weights of (sequences, heads, queries, keys).
    ///
    /// As in [`Kernels::matmul`], AMD's gfx90a flushes subnormal `f16` to 0, which weights over more than 16384 keys may all be.
    pub fn weighted_sum(&self, stream: &Stream, weights: &View<'_>, v: &View<'_>, out: &mut ViewMut<'_>) -> Result<()> {
        let op = "weighted_sum";
        let [sequences, heads, queries, keys] = sizes(op, "weights", weights, "sequences, heads, queries, keys")?;
        let [_, _, kv_heads, dim] = sizes(op, "values", v, "sequences, tokens, heads, head_dim")?;
        if v.layout().shape() != [sequences, keys, kv_heads, dim] || kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
            return Err(shape_error(
                op,
                "values",
                v,
                format!("that matches the attention weights of shape {:?}", weights.layout().shape()),
            ));
        }
        let each = heads / kv_heads;
        let inputs = [("weights", *weights), ("values", *v)];
        self.check_parts(stream, op, inputs, None, out, [sequences, queries, heads, dim])?;
        if out.layout().is_empty() {
            return Ok(());
        }
        let a = weights.with_layout(by_head(weights.layout(), [0, 1, 2, 3], each)?)?;
        let b = v.with_layout(by_head(v.layout(), [0, 2, 1, 3], 1)?)?;
        let layout = by_head(out.layout(), [0, 2, 1, 3], each)?;
        self.multiply(stream, &Matmul::new(), a, b, out.as_view().with_layout(layout)?)
    }

    fn check_parts(
        &self,
        stream: &Stream,
        op: &'static str,
        [a, b]: [(&'static str, View<'_>); 2],
        mask: Option<View<'_>>,
        out: &ViewMut<'_>,
        shape: [usize; 4],
    ) -> Result<()> {
        let (out, dtype) = (out.as_view(), a.1.dtype());
        check_dtype(op, a.0, &a.1, &FLOATS)?;
        check_same_dtype(op, b.0, b.1, dtype)?;
        check_same_dtype(op, "result", out, dtype)?;
        check_shape(op, "result", &out, &shape)?;
        let inputs = [Some(a), Some(b), mask.map(|mask| ("mask", mask))];
        self.check_devices(op, stream, inputs.into_iter().flatten().chain([("result", out)]))?;
        inputs.into_iter().flatten().try_for_each(|(what, view)| check_no_overlap(op, what, &view, &out))
    }
}
