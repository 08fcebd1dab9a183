//! Convolutions: im2col and matrix products, one image and group at a time, in strips of bounded size.

use std::ops::Range;

use warpwave_kernels::{Activation, Conv, Unary};

use super::elementwise::Float;
use super::gemm::Gemm;
use super::pool::parallel;
use super::values::{Values, floats};
use crate::backend::{Operand, OperandMut};
use crate::error::Result;

/// Sizes of one group of one image.
#[derive(Clone, Copy)]
struct Sizes {
    channels: usize,
    filters: usize,
    /// Of the input and the result.
    from: [usize; 2],
    to: [usize; 2],
    kernel: [usize; 2],
}

/// A slice whose disjoint parts are written by several threads.
struct Parts(*mut f32);

// SAFETY: every task writes a part of its own.
unsafe impl Sync for Parts {}

/// Positions along one dimension that a tap connects: those of the padded side for `0..count` of the side that moves by the stride.
fn tap(conv: &Conv, d: usize, tap: usize, at: usize, size: usize) -> Option<usize> {
    (at * conv.stride[d] + tap * conv.dilation[d]).checked_sub(conv.padding[d]).filter(|place| *place < size)
}

/// Elements of columns that are held at once: large images are convolved in strips.
const COLUMNS: usize = 1 << 24;

/// Rows of `columns`, one for each channel and tap, hold what the tap meets at each position of the rows `strip` of a result of `width`;
/// zeros outside `padded`.
fn im2col(
    conv: &Conv,
    x: &[f32],
    channels: usize,
    padded: [usize; 2],
    (strip, width): (Range<usize>, usize),
    kernel: [usize; 2],
    columns: &mut [f32],
) {
    let (plane, row) = (padded[0] * padded[1], strip.len() * width);
    let target = Parts(columns.as_mut_ptr());
    let taps = kernel[0] * kernel[1];
    assert!(columns.len() == channels * taps * row && x.len() == channels * plane, "buffer lengths do not match the convolution's shapes");
    parallel(channels * taps, &|task| {
        let target = &target;
        let (c, r, s) = (task / taps, task % taps / kernel[1], task % kernel[1]);
        // SAFETY: the length was checked above, and each task has a row of its own.
        let out = unsafe { std::slice::from_raw_parts_mut(target.0.add(task * row), row) };
        for (y, out) in out.chunks_exact_mut(width.max(1)).enumerate() {
            let from = tap(conv, 0, r, strip.start + y, padded[0]).map(|y| &x[c * plane + y * padded[1]..][..padded[1]]);
            for (column, out) in out.iter_mut().enumerate() {
                *out = from.zip(tap(conv, 1, s, column, padded[1])).map_or(0.0, |(from, column)| from[column]);
            }
        }
    });
}

/// Adds rows of `columns` to the positions that [`im2col`] reads them from.
fn col2im(conv: &Conv, columns: &[f32], channels: usize, padded: [usize; 2], moving: [usize; 2], kernel: [usize; 2], out: &mut [f32]) {
    let (plane, row) = (padded[0] * padded[1], moving[0] * moving[1]);
    let target = Parts(out.as_mut_ptr());
    let taps = kernel[0] * kernel[1];
    assert!(
        columns.len() == channels * taps * row && out.len() == channels * plane,
        "buffer lengths do not match the convolution's shapes"
    );
    parallel(channels, &|c| {
        let target = &target;
        // SAFETY: the length was checked above, and each task has a plane of its own.
        let out = unsafe { std::slice::from_raw_parts_mut(target.0.add(c * plane), plane) };
        for t in 0..taps {
            let from = &columns[(c * taps + t) * row..][..row];
            for (y, from) in from.chunks_exact(moving[1].max(1)).enumerate() {
                let Some(to_y) = tap(conv, 0, t / kernel[1], y, padded[0]) else { continue };
                for (column, from) in from.iter().enumerate() {
                    if let Some(to_x) = tap(conv, 1, t % kernel[1], column, padded[1]) {
                        out[to_y * padded[1] + to_x] += from;
                    }
                }
            }
        }
    });
}

/// The result of one group of one image; `weight` is (filters, channels, taps), transposed (filters, taps, channels).
fn group(conv: &Conv, transposed: bool, sizes: Sizes, x: &[f32], weight: &[f32], columns: &mut Vec<f32>, out: &mut [f32]) {
    let Sizes { channels, filters, from, to, kernel } = sizes;
    let taps = kernel[0] * kernel[1];
    if transposed {
        columns.resize(filters * taps * from[0] * from[1], 0.0);
        f32::gemm(weight, x, columns, [filters * taps, channels, from[0] * from[1]]);
        col2im(conv, columns, filters, to, from, kernel, out);
    } else {
        let (depth, plane) = (channels * taps, to[0] * to[1]);
        let rows = (COLUMNS / (depth * to[1])).clamp(1, to[0]);
        let mut part = Vec::new();
        for start in (0..to[0]).step_by(rows) {
            let strip = start..(start + rows).min(to[0]);
            let (first, positions) = (start * to[1], strip.len() * to[1]);
            columns.resize(depth * positions, 0.0);
            im2col(conv, x, channels, from, (strip, to[1]), kernel, columns);
            if positions == plane {
                f32::gemm(weight, columns, out, [filters, depth, plane]);
                break;
            }
            part.resize(filters * positions, 0.0);
            f32::gemm(weight, columns, &mut part, [filters, depth, positions]);
            for (out, part) in out.chunks_exact_mut(plane).zip(part.chunks_exact(positions)) {
                out[first..first + positions].copy_from_slice(part);
            }
        }
    }
}

pub(super) fn conv2d(
    conv: &Conv,
    transposed: bool,
    x: &Operand<'_>,
    weight: &Operand<'_>,
    bias: Option<&Operand<'_>>,
    out: &mut OperandMut<'_>,
) -> Result<()> {
    let (from, to, shape) = (x.layout.shape(), out.layout.shape().to_vec(), weight.layout.shape());
    let sizes = Sizes {
        channels: from[1] / conv.groups,
        filters: to[1] / conv.groups,
        from: [from[2], from[3]],
        to: [to[2], to[3]],
        kernel: [shape[2], shape[3]],
    };
    let (x_len, out_len) = (sizes.channels * from[2] * from[3], sizes.filters * to[2] * to[3]);
    let weight_len = sizes.channels * sizes.filters * shape[2] * shape[3];
    let mut weights = floats(weight)?.into_owned();
    if transposed {
        // (channels, filters, taps) of each group to (filters, taps, channels).
        let row = sizes.filters * shape[2] * shape[3];
        for group in weights.chunks_exact_mut(weight_len.max(1)) {
            let old = group.to_vec();
            group.iter_mut().enumerate().for_each(|(i, w)| *w = old[i % sizes.channels * row + i / sizes.channels]);
        }
    }
    let (x, mut result, mut columns) = (floats(x)?, vec![0.0; out.layout.len()], Vec::new());
    if x_len * out_len * weight_len > 0 {
        for (i, out) in result.chunks_exact_mut(out_len).enumerate() {
            let weight = &weights[i % conv.groups * weight_len..][..weight_len];
            group(conv, transposed, sizes, &x[i * x_len..][..x_len], weight, &mut columns, out);
        }
    }
    let activation = conv.activation.map(|activation| match activation {
        Activation::Relu => Unary::Relu,
        Activation::Gelu => Unary::Gelu,
        Activation::GeluErf => Unary::GeluErf,
        Activation::Silu => Unary::Silu,
        Activation::Sigmoid => Unary::Sigmoid,
        _ => Unary::Tanh,
    });
    let bias = bias.map(floats).transpose()?;
    for (i, plane) in result.chunks_exact_mut((to[2] * to[3]).max(1)).enumerate() {
        if let Some(bias) = &bias {
            plane.iter_mut().for_each(|x| *x += bias[i % to[1]]);
        }
        if let Some(activation) = activation {
            plane.iter_mut().for_each(|x| *x = x.unary(activation));
        }
    }
    Values::F32(result).store(out)
}
