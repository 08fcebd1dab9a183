//! Attention without a cache: one head after the other, in blocks of queries.

use super::matmul::{Matrix, Precision, matmul};
use super::ops::{scale as multiply, softmax};
use super::values::{Values, floats};
use crate::backend::{Operand, OperandMut};
use crate::error::Result;

/// Scores that are held at once.
const SCORES: usize = 1 << 20;

/// Queries, keys and values are (rows, tokens, heads, dim); the bias is (heads, queries, keys).
pub(super) fn dense_attention(qkv: [&Operand<'_>; 3], scale: f32, bias: Option<&Operand<'_>>, out: &mut OperandMut<'_>) -> Result<()> {
    let [rows, queries, heads, dim] = [0, 1, 2, 3].map(|d| qkv[0].layout.shape()[d]);
    let keys = qkv[1].layout.shape()[1];
    let bias = bias.map(floats).transpose()?;
    let mut result = vec![0.0f32; rows * queries * heads * dim];
    if result.is_empty() {
        return Values::F32(result).store(out);
    }
    let step = (SCORES / keys).clamp(1, queries);
    let (mut scores, mut part) = (vec![0.0f32; step * keys], vec![0.0f32; step * dim]);
    for task in 0..rows * heads {
        let (row, head) = (task / heads, task % heads);
        let of_head = |x: &Operand<'_>| Ok::<_, crate::Error>(x.layout.narrow(0, row, 1)?.narrow(2, head, 1)?);
        let mut q = floats(&qkv[0].with_layout(of_head(qkv[0])?))?.into_owned();
        multiply(&mut q, scale);
        let k = floats(&qkv[1].with_layout(of_head(qkv[1])?))?;
        // Products take the second factor by columns.
        let v = floats(&qkv[2].with_layout(of_head(qkv[2])?.transpose(1, 3)?))?;
        for (block, q) in q.chunks(step * dim).enumerate() {
            let (first, count) = (block * step, q.len() / dim);
            let (scores, part) = (&mut scores[..count * keys], &mut part[..count * dim]);
            matmul(Matrix::F32(&k), keys, dim, q, count, scores, Precision::Exact);
            if let Some(bias) = &bias {
                let bias = &bias[(head * queries + first) * keys..][..count * keys];
                scores.iter_mut().zip(bias).for_each(|(score, bias)| *score += bias);
            }
            softmax(scores, keys);
            matmul(Matrix::F32(&v), dim, keys, scores, count, part, Precision::Exact);
            for (i, part) in part.chunks_exact(dim).enumerate() {
                result[((row * queries + first + i) * heads + head) * dim..][..dim].copy_from_slice(part);
            }
        }
    }
    Values::F32(result).store(out)
}
