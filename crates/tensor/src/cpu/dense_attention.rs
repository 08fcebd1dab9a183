//! Attention without a cache: blocks of queries of a head, each on one thread.

use gemm::Parallelism;

use super::ops::softmax;
use super::pool::parallel;
use super::values::{Values, floats};
use crate::backend::{Operand, OperandMut};
use crate::error::Result;

/// Queries of a task.
const QUERIES: usize = 64;

/// The result, of which every task writes a part of its own.
struct Parts(*mut f32);

// SAFETY: tasks write disjoint elements.
unsafe impl Sync for Parts {}

/// Queries, keys and values are (rows, tokens, heads, dim); the bias is (heads, queries, keys).
pub(super) fn dense_attention(qkv: [&Operand<'_>; 3], scale: f32, bias: Option<&Operand<'_>>, out: &mut OperandMut<'_>) -> Result<()> {
    let [rows, queries, heads, dim] = [0, 1, 2, 3].map(|d| qkv[0].layout.shape()[d]);
    let keys = qkv[1].layout.shape()[1];
    let [q, k, v] = [floats(qkv[0])?, floats(qkv[1])?, floats(qkv[2])?];
    let bias = bias.map(floats).transpose()?;
    let mut result = vec![0.0f32; rows * queries * heads * dim];
    let stride = heads * dim;
    assert!(q.len() == result.len() && k.len() == rows * keys * stride && v.len() == k.len(), "lengths do not match the shapes");
    assert!(bias.as_ref().is_none_or(|bias| bias.len() == heads * queries * keys), "the bias does not match the shapes");
    let blocks = queries.div_ceil(QUERIES);
    let target = Parts(result.as_mut_ptr());
    parallel(if result.is_empty() { 0 } else { rows * heads * blocks }, &|task| {
        let target = &target;
        let (row, head, first) = (task / (heads * blocks), task / blocks % heads, task % blocks * QUERIES);
        let count = QUERIES.min(queries - first);
        let mut scores = vec![0.0f32; count * keys];
        let start = (row * queries + first) * stride + head * dim;
        let (q, k) = (&q[start..], &k[row * keys * stride + head * dim..]);
        let v = &v[row * keys * stride + head * dim..];
        let strides = [stride as isize, keys as isize];
        // SAFETY: row i of q and of the result starts at i · stride, and row j of k and v at j · stride; each has `dim` elements, and the
        // last ones end within the slices, whose lengths were checked above. The scores are (count, keys).
        unsafe {
            product([count, keys, dim], scores.as_mut_ptr(), strides[1], q.as_ptr(), strides[0], k.as_ptr(), [strides[0], 1], scale);
        }
        if let Some(bias) = &bias {
            let bias = &bias[(head * queries + first) * keys..][..count * keys];
            scores.iter_mut().zip(bias).for_each(|(score, bias)| *score += bias);
        }
        softmax(&mut scores, keys);
        // SAFETY: as above; tasks have different queries or heads, so that no other one writes these elements.
        unsafe {
            let out = target.0.add(start);
            product([count, dim, keys], out, strides[0], scores.as_ptr(), strides[1], v.as_ptr(), [1, strides[0]], 1.0);
        }
    });
    Values::F32(result).store(out)
}

/// `out = scale · a · b` of m × k and k × n on this thread. Columns of `a` and `out` are adjacent; `b` has a stride for columns and rows.
///
/// # Safety
/// All elements are in memory that may be read, those of `out` in memory that may be written.
#[allow(clippy::too_many_arguments)]
unsafe fn product(
    [m, n, k]: [usize; 3],
    out: *mut f32,
    out_row: isize,
    a: *const f32,
    a_row: isize,
    b: *const f32,
    [b_column, b_row]: [isize; 2],
    scale: f32,
) {
    // SAFETY: the caller's promise.
    unsafe {
        gemm::gemm(m, n, k, out, 1, out_row, false, a, 1, a_row, b, b_column, b_row, 0.0, scale, false, false, false, Parallelism::None);
    }
}
