//! Convolutions: im2col and matrix products, one image and group at a time, in strips of bounded size. Images whose channels are adjacent
//! keep that order.

use std::ops::Range;

use warpwave_kernels::{Activation, Conv, Layout, Unary};

use super::elementwise::Float;
use super::gemm::Gemm;
use super::matmul::{Matrix, Precision, matmul};
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

/// Rows of `columns`, one for each position of the rows `strip` of a result of `width`, hold the pixels that the kernel meets there; zeros
/// outside. The input is (height, width, channels).
fn im2row(
    conv: &Conv,
    x: &[f32],
    channels: usize,
    from: [usize; 2],
    (strip, width): (Range<usize>, usize),
    kernel: [usize; 2],
    columns: &mut [f32],
) {
    let row = kernel[0] * kernel[1] * channels;
    let target = Parts(columns.as_mut_ptr());
    assert!(columns.len() == strip.len() * width * row && x.len() == from[0] * from[1] * channels, "lengths do not match the shapes");
    parallel(strip.len(), &|task| {
        let target = &target;
        // SAFETY: the length was checked above, and each task has rows of its own.
        let out = unsafe { std::slice::from_raw_parts_mut(target.0.add(task * width * row), width * row) };
        for (i, out) in out.chunks_exact_mut(channels).enumerate() {
            let (column, r, s) = (i * channels / row, i / kernel[1] % kernel[0], i % kernel[1]);
            match tap(conv, 0, r, strip.start + task, from[0]).zip(tap(conv, 1, s, column, from[1])) {
                Some((y, x_at)) => out.copy_from_slice(&x[(y * from[1] + x_at) * channels..][..channels]),
                None => out.fill(0.0),
            }
        }
    });
}

/// The result of images whose channels are adjacent, (images, height, width, filters): without a copy in another order.
fn channels_last(conv: &Conv, x: &Operand<'_>, weight: &Operand<'_>, to: [usize; 4]) -> Result<Vec<f32>> {
    let pixels = |layout: Layout| layout.transpose(1, 2)?.transpose(2, 3);
    let [filters, _, high, wide] = [0, 1, 2, 3].map(|d| weight.layout.shape()[d]);
    let [images, channels, height, width] = [0, 1, 2, 3].map(|d| x.layout.shape()[d]);
    let (x, weight) = (floats(&x.with_layout(pixels(x.layout)?))?, floats(&weight.with_layout(pixels(weight.layout)?))?);
    let (depth, positions) = (high * wide * channels, to[2] * to[3]);
    let mut result = vec![0.0; images * positions * filters];
    if result.is_empty() || x.is_empty() || weight.is_empty() {
        return Ok(result);
    }
    let product = |x: &[f32], out: &mut [f32]| {
        matmul(Matrix::F32(&weight), filters, depth, x, out.len() / filters, out, Precision::Exact);
    };
    let plain = Conv { activation: None, groups: conv.groups, ..Conv::default() };
    if [high, wide] == [1, 1] && (Conv { activation: None, ..*conv }) == plain {
        product(&x, &mut result);
        return Ok(result);
    }
    let rows = (COLUMNS / (depth * to[3])).clamp(1, to[2]);
    let mut columns = Vec::new();
    for (x, out) in x.chunks_exact(height * width * channels).zip(result.chunks_exact_mut(positions * filters)) {
        for (i, out) in out.chunks_mut(rows * to[3] * filters).enumerate() {
            let strip = i * rows..(i * rows + rows).min(to[2]);
            columns.resize(strip.len() * to[3] * depth, 0.0);
            im2row(conv, x, channels, [height, width], (strip, to[3]), [high, wide], &mut columns);
            product(&columns, out);
        }
    }
    Ok(result)
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
    let last = x.layout.strides()[1] == 1 && from[1] > 1 && !transposed && conv.groups == 1;
    let mut weights = if last { Vec::new() } else { floats(weight)?.into_owned() };
    if transposed {
        // (channels, filters, taps) of each group to (filters, taps, channels).
        let row = sizes.filters * shape[2] * shape[3];
        for group in weights.chunks_exact_mut(weight_len.max(1)) {
            let old = group.to_vec();
            group.iter_mut().enumerate().for_each(|(i, w)| *w = old[i % sizes.channels * row + i / sizes.channels]);
        }
    }
    let mut result = match last {
        true => channels_last(conv, x, weight, [to[0], to[1], to[2], to[3]])?,
        false => vec![0.0; out.layout.len()],
    };
    if !last && x_len * out_len * weight_len > 0 {
        let (x, mut columns) = (floats(x)?, Vec::new());
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
    // A run has one bias, or one of each filter.
    let run = if last { to[1] } else { to[2] * to[3] };
    for (i, run) in result.chunks_exact_mut(run.max(1)).enumerate() {
        match &bias {
            Some(bias) if last => run.iter_mut().zip(bias.iter()).for_each(|(x, bias)| *x += bias),
            Some(bias) => run.iter_mut().for_each(|x| *x += bias[i % to[1]]),
            None => {}
        }
        if let Some(activation) = activation {
            run.iter_mut().for_each(|x| *x = x.unary(activation));
        }
    }
    let layout = if last { out.layout.transpose(1, 2)?.transpose(2, 3)? } else { out.layout };
    Values::F32(result).store(&mut OperandMut::new(out.storage, out.dtype, layout))
}
