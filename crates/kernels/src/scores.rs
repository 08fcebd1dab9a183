//! Attention in its parts, for any shape: the scores, and the sum that they are the weights of. Both are products of matrices, one for each
//! head.

use warpwave_gpu::Stream;

use crate::dtype::DType;
use crate::error::Result;
use crate::heads::{FLOATS, one_of, same_shape, sizes};
use crate::kernels::{Kernels, apart, refused, same_type, wrong_shape};
use crate::layout::Layout;
use crate::matmul::Matmul;
use crate::view::{View, ViewMut};

/// Dimensions in another order, that of the heads divided into those of keys and those that share one: (sequences, heads of keys, heads
/// of each, rows, columns). `order` says where sequences, heads, rows and columns are.
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
    /// `out = q · kᵀ · scale + mask`: (sequences, heads, queries, keys) of queries and keys of (sequences, tokens, heads, elements). Several
    /// heads of queries may share one of keys. The mask is `f32` or of the same type, and repeated to the result's shape. As in
    /// [`Kernels::matmul`], AMD's gfx90a takes `f16` too small to be normal numbers for 0.
    pub fn attention_scores(
        &self,
        stream: &Stream,
        (q, k): (&View<'_>, &View<'_>),
        scale: f64,
        mask: Option<&View<'_>>,
        out: &mut ViewMut<'_>,
    ) -> Result<()> {
        let op = "scores";
        let [sequences, queries, heads, dim] = sizes(op, "the queries", q, "sequences, tokens, heads, elements")?;
        let [_, keys, kv_heads, _] = sizes(op, "the keys", k, "sequences, tokens, heads, elements")?;
        if k.layout().shape() != [sequences, keys, kv_heads, dim] || kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
            return Err(wrong_shape(op, "the keys", k, format!("the queries have {:?}", q.layout().shape())));
        }
        let (shape, each) = ([sequences, heads, queries, keys], heads / kv_heads);
        let mask = match mask {
            Some(mask) => {
                one_of(op, "the mask", mask, &[DType::F32, q.dtype()])?;
                let layout = mask.layout().broadcast_to(&shape);
                Some(mask.with_layout(layout.map_err(|_| wrong_shape(op, "the mask", mask, format!("the scores have {shape:?}")))?)?)
            }
            None => None,
        };
        self.check_parts(stream, op, [("the queries", *q), ("the keys", *k)], mask, out, shape)?;
        if out.layout().is_empty() {
            return Ok(());
        }
        let a = q.with_layout(by_head(q.layout(), [0, 2, 1, 3], each)?)?;
        let b = k.with_layout(by_head(k.layout(), [0, 2, 3, 1], 1)?)?;
        let product = Matmul::new().scaled(scale, 0.0);
        let by_heads = |layout: &Layout| by_head(layout, [0, 1, 2, 3], each);
        match mask {
            // It is added before anything is rounded: in its own type, or in the result's where that has more digits.
            Some(mask) if mask.dtype() != out.dtype() => {
                let dtype = if out.dtype() == DType::F64 { DType::F64 } else { mask.dtype() };
                let dense = Layout::contiguous(&shape)?;
                let mut sums = stream.alloc::<u8>(dense.len() * dtype.size()).map_err(refused(op))?;
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

    /// `out = weights · v`: (sequences, tokens, heads, elements) of weights (sequences, heads, queries, keys) and such values. As in
    /// [`Kernels::matmul`], AMD's gfx90a takes `f16` too small to be normal numbers for 0: weights of more than 16384 keys may all be.
    pub fn weighted_sum(&self, stream: &Stream, weights: &View<'_>, v: &View<'_>, out: &mut ViewMut<'_>) -> Result<()> {
        let op = "weighted_sum";
        let [sequences, heads, queries, keys] = sizes(op, "the weights", weights, "sequences, heads, queries, keys")?;
        let [_, _, kv_heads, dim] = sizes(op, "the values", v, "sequences, tokens, heads, elements")?;
        if v.layout().shape() != [sequences, keys, kv_heads, dim] || kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
            return Err(wrong_shape(op, "the values", v, format!("the weights have {:?}", weights.layout().shape())));
        }
        let each = heads / kv_heads;
        let inputs = [("the weights", *weights), ("the values", *v)];
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
        one_of(op, a.0, &a.1, &FLOATS)?;
        same_type(op, b.0, b.1, dtype)?;
        same_type(op, "the result", out, dtype)?;
        same_shape(op, "the result", &out, &shape)?;
        let inputs = [Some(a), Some(b), mask.map(|mask| ("the mask", mask))];
        self.check_devices(op, stream, inputs.into_iter().flatten().chain([("the result", out)]))?;
        inputs.into_iter().flatten().try_for_each(|(what, view)| apart(op, what, &view, &out))
    }
}
