//! Elementwise and row-wise `f32` operations on slices.

use warpwave_kernels::{Glu, RopePairs};

use super::math::{exp, gelu_tanh, sigmoid, silu, tanh};
use super::pool::{parallel, threads};
use super::simd::{Isa, Kernel, Simd, dispatch};

/// Elements below which one thread is faster than several.
const SERIAL_BELOW: usize = 1 << 15;

/// Calls `run` with each row of the result and its index, on several threads.
pub(super) fn by_rows<T: Send>(out: &mut [T], columns: usize, run: &(dyn Fn(usize, &mut [T]) + Sync)) {
    if out.is_empty() || columns == 0 {
        return;
    }
    let rows = out.len().div_ceil(columns);
    let parts = if out.len() < SERIAL_BELOW { 1 } else { rows.min(4 * threads()) };
    let each = rows.div_ceil(parts);
    let chunks: Vec<_> = out.chunks_mut(each * columns).map(std::sync::Mutex::new).collect();
    parallel(chunks.len(), &|i| {
        if let Ok(mut chunk) = chunks[i].lock() {
            chunk.chunks_mut(columns).enumerate().for_each(|(r, row)| run(i * each + r, row));
        }
    });
}

/// Loops that the compiler vectorizes for each instruction set.
macro_rules! kernels {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $ty:ty),* } -> $out:ty { $($body:tt)* })*) => { $(
        $(#[$doc])*
        struct $name<'a> { $($field: $ty),* }
        impl<'a> Kernel for $name<'a> {
            type Out = $out;
            #[inline(always)]
            fn run<S: Simd>(self) -> $out {
                let $name { $($field),* } = self;
                $($body)*
            }
        }
    )* };
}

/// Sums in 32 independent accumulators: faster and more accurate than one.
#[inline(always)]
fn sum(x: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    let (many, rest) = x.as_chunks::<32>();
    let mut sums = [0f32; 32];
    for x in many {
        for i in 0..32 {
            sums[i] += f(x[i]);
        }
    }
    for (sum, x) in sums.iter_mut().zip(rest) {
        *sum += f(*x);
    }
    for apart in [16, 8, 4, 2, 1] {
        for i in 0..apart {
            sums[i] += sums[i + apart];
        }
    }
    sums[0]
}

/// The maximum, or NaN if any element is.
#[inline(always)]
fn max(x: &[f32]) -> f32 {
    let (many, rest) = x.as_chunks::<32>();
    let mut max = [f32::NEG_INFINITY; 32];
    for x in many {
        for i in 0..32 {
            max[i] = larger(max[i], x[i]);
        }
    }
    for (max, x) in max.iter_mut().zip(rest) {
        *max = larger(*max, *x);
    }
    max.into_iter().fold(f32::NEG_INFINITY, larger)
}

#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if a >= b || a.is_nan() { a } else { b }
}

kernels! {
    Norm { x: &'a [f32], weight: Option<&'a [f32]>, eps: f32, out: &'a mut [f32] } -> () {
        let factor = 1.0 / (sum(x, |x| x * x) / x.len() as f32 + eps).sqrt();
        match weight {
            Some(weight) => {
                for ((out, x), w) in out.iter_mut().zip(x).zip(weight) {
                    *out = x * factor * w;
                }
            }
            None => {
                for (out, x) in out.iter_mut().zip(x) {
                    *out = x * factor;
                }
            }
        }
    }
    Add { x: &'a [f32], out: &'a mut [f32] } -> () {
        for (out, x) in out.iter_mut().zip(x) {
            *out += x;
        }
    }
    Scale { out: &'a mut [f32], factor: f32 } -> () {
        for out in out {
            *out *= factor;
        }
    }
    Silu { up: &'a [f32], out: &'a mut [f32] } -> () {
        for (out, up) in out.iter_mut().zip(up) {
            *out = silu(*out) * up;
        }
    }
    Gelu { up: &'a [f32], out: &'a mut [f32] } -> () {
        for (out, up) in out.iter_mut().zip(up) {
            *out = gelu_tanh(*out) * up;
        }
    }
    GeluErf { up: &'a [f32], out: &'a mut [f32] } -> () {
        for (out, up) in out.iter_mut().zip(up) {
            // 1 + erf(y) is erfc(-y), without cancellation.
            let gelu = 0.5 * *out * libm::erfcf(-*out * std::f32::consts::FRAC_1_SQRT_2);
            *out = if *out == f32::NEG_INFINITY { -0.0 } else { gelu } * up;
        }
    }
    Relu { up: &'a [f32], out: &'a mut [f32] } -> () {
        for (out, up) in out.iter_mut().zip(up) {
            // Not `max`: NaN stays.
            *out = if *out < 0.0 { 0.0 } else { *out } * up;
        }
    }
    Sigmoid { up: &'a [f32], out: &'a mut [f32] } -> () {
        for (out, up) in out.iter_mut().zip(up) {
            *out = sigmoid(*out) * up;
        }
    }
    Clamped { up: &'a [f32], out: &'a mut [f32] } -> () {
        for (out, up) in out.iter_mut().zip(up) {
            // Not `min` and `max`: NaN stays.
            let gate = if *out > 7.0 { 7.0 } else { *out };
            *out = gate * sigmoid(1.702 * gate) * (up.clamp(-7.0, 7.0) + 1.0);
        }
    }
    Cap { out: &'a mut [f32], cap: f32 } -> () {
        for out in out {
            *out = cap * tanh(*out / cap);
        }
    }
    Softmax { out: &'a mut [f32] } -> () {
        let max = max(out);
        // A fully masked row becomes zeros.
        let max = if max == f32::NEG_INFINITY { 0.0 } else { max };
        for out in &mut *out {
            *out = exp(*out - max);
        }
        let total = sum(out, |x| x);
        let factor = if total == 0.0 { 0.0 } else { 1.0 / total };
        for out in out {
            *out *= factor;
        }
    }
    LogSumExp { x: &'a [f32] } -> f32 {
        let max = max(x);
        if max.is_finite() { sum(x, |x| exp(x - max)).ln() + max } else { max }
    }
    Rotate { row: &'a mut [f32], cos: &'a [f32], sin: &'a [f32], halves: bool } -> () {
        let pairs = cos.len();
        if halves {
            let (first, second) = row.split_at_mut(pairs);
            for (((a, b), cos), sin) in first.iter_mut().zip(second).zip(cos).zip(sin) {
                (*a, *b) = (*a * cos - *b * sin, *a * sin + *b * cos);
            }
        } else {
            for (([a, b], cos), sin) in row.as_chunks_mut::<2>().0.iter_mut().zip(cos).zip(sin) {
                (*a, *b) = (*a * cos - *b * sin, *a * sin + *b * cos);
            }
        }
    }
}

/// RMS norm of each row of `weight.len()` elements: `x · w / √(mean(x²) + eps)`. For a norm of each head, rows are heads.
///
/// # Panics
/// If `x` and `out` differ in length or are not a multiple of the row length.
pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let columns = weight.len();
    let (len, to) = (x.len(), out.len());
    assert_eq!(len, to, "input and output have different lengths");
    assert!(x.is_empty() || len.is_multiple_of(columns), "expected whole rows of {columns} elements, got {len} elements");
    let isa = Isa::current();
    by_rows(out, columns, &|r, out| dispatch(isa, Norm { x: &x[r * columns..][..columns], weight: Some(weight), eps, out }));
}

/// [`rms_norm`] in place.
///
/// # Panics
/// If `x` is not a multiple of the row length.
pub fn rms_norm_in_place(x: &mut [f32], weight: &[f32], eps: f32) {
    let columns = weight.len();
    let len = x.len();
    assert!(x.is_empty() || len.is_multiple_of(columns), "expected whole rows of {columns} elements, got {len} elements");
    let isa = Isa::current();
    by_rows(x, columns, &|_, row| {
        let from = row.to_vec();
        dispatch(isa, Norm { x: &from, weight: Some(weight), eps, out: row });
    });
}

/// `out += x`; a shorter `x`, such as a bias, is added to each row of that length.
///
/// # Panics
/// If `out` is not a multiple of that length.
pub fn add(out: &mut [f32], x: &[f32]) {
    let (row, len) = (x.len(), out.len());
    assert!(out.is_empty() || len.is_multiple_of(row), "expected rows of {row} elements, got {len} elements in total");
    let isa = Isa::current();
    if out.len() == x.len() {
        const EACH: usize = 4096;
        by_rows(out, EACH, &|r, out| dispatch(isa, Add { x: &x[r * EACH..][..out.len()], out }));
    } else {
        by_rows(out, x.len(), &|_, out| dispatch(isa, Add { x, out }));
    }
}

/// `x *= factor`.
pub fn scale(x: &mut [f32], factor: f32) {
    let isa = Isa::current();
    by_rows(x, 4096, &|_, out| dispatch(isa, Scale { out, factor }));
}

/// `out = f(out) · up`.
fn gate(isa: Isa, op: Glu, up: &[f32], out: &mut [f32]) {
    match op {
        Glu::Silu => dispatch(isa, Silu { up, out }),
        Glu::Gelu => dispatch(isa, Gelu { up, out }),
        Glu::GeluErf => dispatch(isa, GeluErf { up, out }),
        Glu::Relu => dispatch(isa, Relu { up, out }),
        Glu::Clamped => dispatch(isa, Clamped { up, out }),
        _ => dispatch(isa, Sigmoid { up, out }),
    }
}

/// Gated unit: `gates = f(gates) · up`.
///
/// # Panics
/// If the lengths differ.
pub fn glu(op: Glu, gates: &mut [f32], up: &[f32]) {
    assert_eq!(gates.len(), up.len(), "gate and up projections have different lengths");
    const EACH: usize = 1024;
    let isa = Isa::current();
    by_rows(gates, EACH, &|r, out| gate(isa, op, &up[r * EACH..][..out.len()], out));
}

/// Gated unit of rows that hold gates in their first half: `out[r] = f(x[r][..columns]) · x[r][columns..]`.
///
/// # Panics
/// If `x` does not have twice the elements of `out`.
pub fn glu_rows(op: Glu, x: &[f32], columns: usize, out: &mut [f32]) {
    let len = out.len();
    assert_eq!(x.len(), 2 * len, "the input must have twice as many elements as the output");
    assert!(out.is_empty() || len.is_multiple_of(columns), "expected whole rows of {columns} elements, got {len} elements");
    let isa = Isa::current();
    by_rows(out, columns, &|r, out| {
        let (gates, up) = x[2 * r * columns..][..2 * columns].split_at(columns);
        out.copy_from_slice(gates);
        gate(isa, op, up, out);
    });
}

/// `x = cap · tanh(x / cap)`.
pub fn soft_cap(x: &mut [f32], cap: f32) {
    let isa = Isa::current();
    by_rows(x, 4096, &|_, out| dispatch(isa, Cap { out, cap }));
}

/// Softmax of each row. A row of negative infinities becomes zeros; a row with NaN or infinity becomes NaN.
///
/// # Panics
/// If `x` is not a multiple of the row length.
pub fn softmax(x: &mut [f32], columns: usize) {
    let len = x.len();
    assert!(x.is_empty() || len.is_multiple_of(columns), "expected whole rows of {columns} elements, got {len} elements");
    let isa = Isa::current();
    by_rows(x, columns, &|_, out| dispatch(isa, Softmax { out }));
}

/// The logarithm of the sum of exponentials; negative infinity for an empty slice.
pub fn log_sum_exp(x: &[f32]) -> f32 {
    dispatch(Isa::current(), LogSumExp { x })
}

/// The index of the first maximum; NaN counts as lowest. 0 for an empty slice.
pub fn argmax(x: &[f32]) -> usize {
    let mut best = (0, f32::NEG_INFINITY);
    for (i, value) in x.iter().enumerate() {
        if *value > best.1 {
            best = (i, *value);
        }
    }
    if best.1 == f32::NEG_INFINITY { x.iter().position(|value| *value == f32::NEG_INFINITY).unwrap_or(0) } else { best.0 }
}

/// Cosines and sines of the angles `position · frequency`, times `factor`: (positions, frequencies) each.
pub fn rope_tables(frequencies: &[f32], factor: f64, positions: &[u32]) -> (Vec<f32>, Vec<f32>) {
    // Angles in f32, as in training; their sines and cosines in f64.
    let angle = |position: u32, frequency: f32| f64::from(position as f32 * frequency).sin_cos();
    let each = positions.iter().flat_map(|position| frequencies.iter().map(move |frequency| angle(*position, *frequency)));
    each.map(|(sin, cos)| ((cos * factor) as f32, (sin * factor) as f32)).unzip()
}

/// Rotates one head at a position, in `f64`.
pub(super) fn rotate_f64(pairs: RopePairs, head: &mut [f64], position: u32, frequencies: &[f32], factor: f64) {
    for (i, frequency) in frequencies.iter().enumerate() {
        let (sin, cos) = f64::from(position as f32 * frequency).sin_cos();
        let (a, b) = if pairs == RopePairs::Halves { (i, i + frequencies.len()) } else { (2 * i, 2 * i + 1) };
        let (x, y) = (head[a], head[b]);
        (head[a], head[b]) = (factor * (x * cos - y * sin), factor * (x * sin + y * cos));
    }
}

/// Rotates the first elements of each head of `x` of (tokens, heads, dim), by cosines and sines of (tokens, pairs). A token has `row`
/// elements; those after its heads stay.
///
/// # Panics
/// If the sizes do not match.
pub fn rope(pairs: RopePairs, x: &mut [f32], row: usize, heads: usize, dim: usize, cos: &[f32], sin: &[f32]) {
    if x.is_empty() {
        return;
    }
    assert!(
        row > 0 && heads * dim <= row && x.len().is_multiple_of(row) && cos.len() == sin.len(),
        "expected rows of {heads} heads with head_dim {dim}, got {} elements in total",
        x.len()
    );
    let tokens = x.len() / row;
    let (len, count, isa) = (cos.len(), cos.len() / tokens, Isa::current());
    assert!(
        len.is_multiple_of(tokens) && 2 * count <= dim,
        "expected at most {} cosines for each of {tokens} tokens, got {len} in total",
        dim / 2
    );
    by_rows(x, row, &|t, x| {
        let (cos, sin) = (&cos[t * count..][..count], &sin[t * count..][..count]);
        for head in x[..heads * dim].chunks_exact_mut(dim) {
            dispatch(isa, Rotate { row: &mut head[..2 * count], cos, sin, halves: pairs == RopePairs::Halves });
        }
    });
}
