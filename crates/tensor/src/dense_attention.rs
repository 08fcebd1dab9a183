//! Attention without a cache: every query sees every key.

use warpwave_kernels::DType;

use crate::error::{Result, shape, wrong_type};
use crate::tensor::Tensor;

/// Scores that are held at once, where a device has no kernel that needs none of them.
const SCORES: usize = 1 << 24;

impl Tensor {
    /// Returns `softmax(q · kᵀ · scale + bias) · v` of each head, of `f32`, `f16` or `bf16` and computed in `f32`.
    ///
    /// Queries (this tensor) and the result are (rows, queries, heads, head_dim), keys and values (rows, keys, heads, head_dim) with at
    /// least one key. The bias is `f32` of (heads or 1, queries, keys).
    pub fn attention(&self, keys: &Tensor, values: &Tensor, scale: f32, bias: Option<&Tensor>) -> Result<Tensor> {
        let op = "attention";
        let &[rows, queries, heads, dim] = self.shape() else {
            return Err(shape(op, format!("expected queries of (rows, queries, heads, head_dim), got {:?}", self.shape())));
        };
        if !matches!(self.dtype(), DType::F32 | DType::F16 | DType::Bf16) {
            return Err(wrong_type(op, "the query tensor", self.dtype(), "f32, f16 or bf16"));
        }
        self.check_same_kind(op, "the key tensor", keys)?;
        self.check_same_kind(op, "the value tensor", values)?;
        let count = keys.size(1);
        if keys.shape() != [rows, count, heads, dim] || count == 0 || values.shape() != keys.shape() {
            let found = [keys.shape(), values.shape()];
            let reason = format!("expected keys and values of ({rows}, at least 1, {heads}, {dim}), got {:?} and {:?}", found[0], found[1]);
            return Err(shape(op, reason));
        }
        let bias = bias.map(|bias| self.check_bias(bias, [heads, queries, count])).transpose()?;
        if self.is_empty() {
            return Tensor::zeros(self.dtype(), self.shape(), self.device());
        }
        if self.device().backend().has_dense_attention(dim, bias.is_some()) {
            let bias = bias.as_ref().map(Tensor::operand);
            // Kernels read heads of consecutive elements.
            let dense = |x: &Tensor| if x.layout().strides()[3] == 1 { Ok(x.clone()) } else { x.contiguous() };
            let (q, k, v) = (dense(self)?, dense(keys)?, dense(values)?);
            let qkv = [&q.operand(), &k.operand(), &v.operand()];
            return Tensor::build(self.device(), self.dtype(), self.shape(), |backend, out| {
                backend.dense_attention(qkv, scale, bias.as_ref(), out)
            });
        }
        let by_head = |x: &Tensor| -> Result<Tensor> { x.cast(DType::F32)?.transpose(1, 2) };
        let (q, k, v) = (by_head(&self.affine(scale, 0.0)?)?, by_head(keys)?.t()?, by_head(values)?);
        let step = (SCORES / (rows * heads * count)).clamp(1, queries);
        let parts = (0..queries).step_by(step).map(|start| {
            let len = step.min(queries - start);
            let mut scores = q.narrow(2, start, len)?.matmul(&k)?;
            if let Some(bias) = &bias {
                scores = scores.add(&bias.narrow(1, start, len)?)?;
            }
            scores.softmax(-1)?.matmul(&v)
        });
        Tensor::cat(&parts.collect::<Result<Vec<_>>>()?, 2)?.transpose(1, 2)?.cast(self.dtype())?.contiguous()
    }

    /// The bias of all heads.
    fn check_bias(&self, bias: &Tensor, to: [usize; 3]) -> Result<Tensor> {
        let op = "attention";
        self.check_same_device(op, "the bias", bias)?;
        if bias.dtype() != DType::F32 {
            return Err(wrong_type(op, "the bias", bias.dtype(), "f32"));
        }
        if bias.rank() != 3 || bias.shape()[1..] != to[1..] || ![1, to[0]].contains(&bias.size(0)) {
            return Err(shape(op, format!("expected a bias of shape {to:?} or with 1 head, got {:?}", bias.shape())));
        }
        bias.broadcast_to(&to)
    }
}
