//! Pooling, resampling, im2col and padding, one result after the other.

use warpwave_kernels::{Conv, Layout, PadMode};

use super::values::{self, Values};
use crate::backend::{ImageOp, Operand, OperandMut};
use crate::error::{Result, wrong_type};

/// A type that averages and interpolations are computed in.
trait Math:
    Copy
    + PartialOrd
    + std::ops::Add<Output = Self>
    + std::ops::Sub<Output = Self>
    + std::ops::Mul<Output = Self>
    + std::ops::Div<Output = Self>
{
    fn of(x: f64) -> Self;
}

impl Math for f32 {
    fn of(x: f64) -> f32 {
        x as f32
    }
}

impl Math for f64 {
    fn of(x: f64) -> f64 {
        x
    }
}

/// The position that a tap of a window meets, if it is inside.
fn tap(conv: &Conv, d: usize, window: usize, tap: usize, size: usize) -> Option<usize> {
    (window * conv.stride[d] + tap * conv.dilation[d]).checked_sub(conv.padding[d]).filter(|at| *at < size)
}

/// The window whose tap meets a position, if there is one.
fn window(conv: &Conv, d: usize, at: usize, tap: usize, windows: usize) -> Option<usize> {
    let start = (at + conv.padding[d]).checked_sub(tap * conv.dilation[d])?;
    start.is_multiple_of(conv.stride[d]).then(|| start / conv.stride[d]).filter(|window| *window < windows)
}

/// The positions that a result lies between, and the weight of the second.
fn between<M: Math>(to: usize, size: usize, out: usize, align_corners: bool) -> (usize, usize, M) {
    let (numerator, denominator) = match align_corners {
        true => (to * (size - 1), out.saturating_sub(1).max(1)),
        false => (((2 * to + 1) * size).saturating_sub(out), 2 * out),
    };
    let low = numerator / denominator;
    (low, (low + 1).min(size - 1), M::of((numerator % denominator) as f64) / M::of(denominator as f64))
}

/// A plane of an image, as wide as a row.
struct Plane<'a, T> {
    x: &'a [T],
    height: usize,
    width: usize,
}

impl<T: Copy> Plane<'_, T> {
    fn at(&self, y: usize, x: usize) -> T {
        self.x[y * self.width + x]
    }
}

/// Results of an operation that computes with elements; `to` is the shape of the result.
fn computed<M: Math>(op: &ImageOp, x: &[M], from: &[usize], to: &[usize]) -> Vec<M> {
    if let ImageOp::Col2Im(kernel, conv) = op {
        return added(conv, *kernel, x, from, to);
    }
    let (height, width) = (from[2], from[3]);
    let mut out = Vec::with_capacity(to.iter().product());
    for plane in 0..to[0] * to[1] {
        let plane = Plane { x: &x[plane * height * width..][..height * width], height, width };
        for (y, x) in (0..to[2]).flat_map(|y| (0..to[3]).map(move |x| (y, x))) {
            out.push(match op {
                ImageOp::Bilinear { align_corners } => {
                    let ((top, bottom, down), (left, right, along)) =
                        (between::<M>(y, height, to[2], *align_corners), between::<M>(x, width, to[3], *align_corners));
                    let row = |y| plane.at(y, left) + along * (plane.at(y, right) - plane.at(y, left));
                    row(top) + down * (row(bottom) - row(top))
                }
                ImageOp::AvgPool(pool) | ImageOp::MaxPool(pool) => {
                    let conv = Conv { stride: pool.stride, padding: pool.padding, ..Conv::new() };
                    let taps = (0..pool.kernel[0]).flat_map(|r| (0..pool.kernel[1]).map(move |s| (r, s)));
                    let inside = taps.filter_map(|(r, s)| Some((tap(&conv, 0, y, r, plane.height)?, tap(&conv, 1, x, s, plane.width)?)));
                    let met = inside.map(|(y, x)| plane.at(y, x));
                    if matches!(op, ImageOp::MaxPool(_)) {
                        // Comparisons with NaN are false: the first one stays.
                        let larger = |a: M, b: M| if a >= b || a.partial_cmp(&a).is_none() { a } else { b };
                        met.reduce(larger).unwrap_or(M::of(f64::NAN))
                    } else {
                        let (count, sum) = met.fold((0, M::of(0.0)), |(count, sum), x| (count + 1, sum + x));
                        sum / M::of(if pool.count_include_pad { pool.kernel[0] * pool.kernel[1] } else { count } as f64)
                    }
                }
                ImageOp::Nearest | ImageOp::Im2Col(..) | ImageOp::Col2Im(..) => M::of(f64::NAN),
            });
        }
    }
    out
}

/// Columns added up where they are from.
fn added<M: Math>(conv: &Conv, kernel: [usize; 2], columns: &[M], from: &[usize], to: &[usize]) -> Vec<M> {
    let (rows, across, taps) = (from[1], from[2], from[3]);
    let mut out = Vec::with_capacity(to.iter().product());
    for (plane, y, x) in (0..to[0] * to[1]).flat_map(|plane| (0..to[2]).flat_map(move |y| (0..to[3]).map(move |x| (plane, y, x)))) {
        let (image, channel) = (plane / to[1], plane % to[1]);
        let mut sum = M::of(0.0);
        for (r, s) in (0..kernel[0]).flat_map(|r| (0..kernel[1]).map(move |s| (r, s))) {
            if let (Some(row), Some(column)) = (window(conv, 0, y, r, rows), window(conv, 1, x, s, across)) {
                let tap = (channel * kernel[0] + r) * kernel[1] + s;
                sum = sum + columns[((image * rows + row) * across + column) * taps + tap];
            }
        }
        out.push(sum);
    }
    out
}

pub(super) fn image(op: &ImageOp, x: &Operand<'_>, out: &mut OperandMut<'_>) -> Result<()> {
    let (from, to) = (x.layout.shape().to_vec(), out.layout.shape().to_vec());
    if op.copies() {
        let (height, width) = (from[2], from[3]);
        return copied(x, out, |index| match op {
            ImageOp::Im2Col(kernel, conv) => {
                let (channel, tap_index) = (index[3] / (kernel[0] * kernel[1]), index[3] % (kernel[0] * kernel[1]));
                let y = tap(conv, 0, index[1], tap_index / kernel[1], height)?;
                Some(vec![index[0], channel, y, tap(conv, 1, index[2], tap_index % kernel[1], width)?])
            }
            _ => Some(vec![index[0], index[1], index[2] * height / to[2], index[3] * width / to[3]]),
        });
    }
    let values = match Values::of(x)? {
        Values::F32(x) => Values::F32(computed(op, &x, &from, &to)),
        Values::F64(x) => Values::F64(computed(op, &x, &from, &to)),
        Values::I64(_) => return Err(wrong_type("image", "the tensor", x.dtype, "a float type")),
    };
    values.store(out)
}

pub(super) fn pad(mode: PadMode, before: &[usize], x: &Operand<'_>, out: &mut OperandMut<'_>) -> Result<()> {
    if let PadMode::Constant(value) = mode {
        let bits = value.to_bits(out.dtype).to_le_bytes();
        let all: Vec<u8> = bits[..out.dtype.size()].repeat(out.layout.len());
        values::write_bytes(out, &all)?;
        let mut inner = out.layout;
        for (d, (before, size)) in before.iter().zip(x.layout.shape()).enumerate() {
            inner = inner.narrow(d, *before, *size)?;
        }
        return values::write_bytes(&mut OperandMut::new(out.storage, out.dtype, inner), &values::bytes(x)?);
    }
    let from = x.layout.shape().to_vec();
    let within = |d: usize, at: usize| {
        let last = from[d] as i64 - 1;
        let at = at as i64 - before[d] as i64;
        let at = match mode {
            PadMode::Reflect if at < 0 => -at,
            PadMode::Reflect if at > last => 2 * last - at,
            _ => at.clamp(0, last),
        };
        at as usize
    };
    copied(x, out, |index| Some(index.iter().enumerate().map(|(d, at)| within(d, *at)).collect()))
}

/// Copies the element at `source` of each index; zero without a source.
fn copied(x: &Operand<'_>, out: &mut OperandMut<'_>, source: impl Fn(&[usize]) -> Option<Vec<usize>>) -> Result<()> {
    let (size, bytes, shape) = (out.dtype.size(), values::bytes(x)?, out.layout.shape().to_vec());
    let dense = Layout::contiguous(x.layout.shape())?;
    let mut copy = vec![0; out.layout.len() * size];
    super::index::walk(&shape, |i, index| {
        if let Some(from) = source(index) {
            let at: usize = from.iter().zip(dense.strides()).map(|(at, stride)| at * stride).sum();
            copy[i * size..][..size].copy_from_slice(&bytes[at * size..][..size]);
        }
    });
    values::write_bytes(out, &copy)
}
