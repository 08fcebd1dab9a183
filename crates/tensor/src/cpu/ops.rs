//! What is computed number by number, or row by row.

use super::math::{exp, gelu_tanh, silu, tanh};
use super::pool::{parallel, threads};
use super::simd::{Kernel, Path, Simd, dispatch};

/// Numbers below which other threads are not worth their while.
const FEW: usize = 1 << 15;

/// Calls `run` with rows of the result and their number, on several threads.
fn by_rows(out: &mut [f32], columns: usize, run: &(dyn Fn(usize, &mut [f32]) + Sync)) {
    if out.is_empty() || columns == 0 {
        return;
    }
    let rows = out.len().div_ceil(columns);
    let parts = if out.len() < FEW { 1 } else { rows.min(4 * threads()) };
    let each = rows.div_ceil(parts);
    let chunks: Vec<_> = out.chunks_mut(each * columns).map(std::sync::Mutex::new).collect();
    parallel(chunks.len(), &|i| {
        if let Ok(mut chunk) = chunks[i].lock() {
            chunk.chunks_mut(columns).enumerate().for_each(|(r, row)| run(i * each + r, row));
        }
    });
}

/// A loop over numbers that becomes vectors with the instructions of a path.
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

/// A sum in 32 chains: as exact as it is quick.
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

/// The largest, or NaN if one is.
#[inline(always)]
fn most(x: &[f32]) -> f32 {
    let (many, rest) = x.as_chunks::<32>();
    let mut most = [f32::NEG_INFINITY; 32];
    for x in many {
        for i in 0..32 {
            most[i] = larger(most[i], x[i]);
        }
    }
    for (most, x) in most.iter_mut().zip(rest) {
        *most = larger(*most, *x);
    }
    most.into_iter().fold(f32::NEG_INFINITY, larger)
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
    Cap { out: &'a mut [f32], cap: f32 } -> () {
        for out in out {
            *out = cap * tanh(*out / cap);
        }
    }
    Softmax { out: &'a mut [f32] } -> () {
        let most = most(out);
        // All of them out of reach: none has a share.
        let most = if most == f32::NEG_INFINITY { 0.0 } else { most };
        for out in &mut *out {
            *out = exp(*out - most);
        }
        let total = sum(out, |x| x);
        let factor = if total == 0.0 { 0.0 } else { 1.0 / total };
        for out in out {
            *out *= factor;
        }
    }
    LogSumExp { x: &'a [f32] } -> f32 {
        let most = most(x);
        if most.is_finite() { sum(x, |x| exp(x - most)).ln() + most } else { most }
    }
    Turn { row: &'a mut [f32], cos: &'a [f32], sin: &'a [f32], halves: bool } -> () {
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

/// Each row of `weight.len()` numbers over the root of its mean square, times the weights: `x · w / √(mean(x²) + eps)`. For a norm of each
/// head rows are heads.
///
/// # Panics
/// If `x` and `out` are not of the same whole rows.
pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let columns = weight.len();
    assert!(x.len() == out.len() && (x.is_empty() || x.len().is_multiple_of(columns)), "rows of {columns} numbers");
    let path = Path::current();
    by_rows(out, columns, &|r, out| dispatch(path, Norm { x: &x[r * columns..][..columns], weight: Some(weight), eps, out }));
}

/// [`rms_norm`] in place.
///
/// # Panics
/// If `x` is not of whole rows.
pub fn rms_norm_in_place(x: &mut [f32], weight: &[f32], eps: f32) {
    let columns = weight.len();
    assert!(x.is_empty() || x.len().is_multiple_of(columns), "rows of {columns} numbers");
    let path = Path::current();
    by_rows(x, columns, &|_, row| {
        let from = row.to_vec();
        dispatch(path, Norm { x: &from, weight: Some(weight), eps, out: row });
    });
}

/// `out += x`; a shorter `x`, such as a bias, is added to each row of its length.
///
/// # Panics
/// If `out` is not of whole rows of that length.
pub fn add(out: &mut [f32], x: &[f32]) {
    assert!(out.is_empty() || out.len().is_multiple_of(x.len()), "rows of {} numbers", x.len());
    let path = Path::current();
    if out.len() == x.len() {
        const EACH: usize = 4096;
        by_rows(out, EACH, &|r, out| dispatch(path, Add { x: &x[r * EACH..][..out.len()], out }));
    } else {
        by_rows(out, x.len(), &|_, out| dispatch(path, Add { x, out }));
    }
}

/// `x *= factor`.
pub fn scale(x: &mut [f32], factor: f32) {
    let path = Path::current();
    by_rows(x, 4096, &|_, out| dispatch(path, Scale { out, factor }));
}

/// The gate of a feed-forward part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Gate {
    /// x · sigmoid(x)
    Silu,
    /// GELU by its approximation with tanh.
    GeluTanh,
}

/// `gate = f(gate) · up`.
///
/// # Panics
/// If they are not of one length.
pub fn glu(kind: Gate, gate: &mut [f32], up: &[f32]) {
    assert_eq!(gate.len(), up.len(), "gate and up");
    const EACH: usize = 1024;
    let path = Path::current();
    by_rows(gate, EACH, &|r, out| {
        let up = &up[r * EACH..][..out.len()];
        match kind {
            Gate::Silu => dispatch(path, Silu { up, out }),
            Gate::GeluTanh => dispatch(path, Gelu { up, out }),
        }
    });
}

/// Gate and up in one row each, `columns` of both behind one another: `out[r] = f(both[r][..columns]) · both[r][columns..]`.
///
/// # Panics
/// If `both` has not two rows for each of `out`.
pub fn glu_rows(kind: Gate, both: &[f32], columns: usize, out: &mut [f32]) {
    assert!(both.len() == 2 * out.len() && (out.is_empty() || out.len().is_multiple_of(columns)), "rows of {columns} numbers");
    let path = Path::current();
    by_rows(out, columns, &|r, out| {
        let (gate, up) = both[2 * r * columns..][..2 * columns].split_at(columns);
        out.copy_from_slice(gate);
        match kind {
            Gate::Silu => dispatch(path, Silu { up, out }),
            Gate::GeluTanh => dispatch(path, Gelu { up, out }),
        }
    });
}

/// `x = cap · tanh(x / cap)`.
pub fn soft_cap(x: &mut [f32], cap: f32) {
    let path = Path::current();
    by_rows(x, 4096, &|_, out| dispatch(path, Cap { out, cap }));
}

/// Each row's shares of the sum of its exponentials. A row of negative infinities alone becomes zeros; one with a NaN or an infinity
/// becomes NaN.
///
/// # Panics
/// If `x` is not of whole rows.
pub fn softmax(x: &mut [f32], columns: usize) {
    assert!(x.is_empty() || x.len().is_multiple_of(columns), "rows of {columns} numbers");
    let path = Path::current();
    by_rows(x, columns, &|_, out| dispatch(path, Softmax { out }));
}

/// The logarithm of the sum of exponentials; of nothing, negative infinity.
pub fn log_sum_exp(x: &[f32]) -> f32 {
    dispatch(Path::current(), LogSumExp { x })
}

/// The place of the largest number, the first of equal ones; NaN counts as lowest. Of nothing, 0.
pub fn argmax(x: &[f32]) -> usize {
    let mut best = (0, f32::NEG_INFINITY);
    for (i, value) in x.iter().enumerate() {
        if *value > best.1 {
            best = (i, *value);
        }
    }
    if best.1 == f32::NEG_INFINITY { x.iter().position(|value| *value == f32::NEG_INFINITY).unwrap_or(0) } else { best.0 }
}

/// Cosines and sines of the angles `place · frequency`, times `factor`: (places, frequencies) each.
pub fn rope_tables(frequencies: &[f32], factor: f64, places: &[u32]) -> (Vec<f32>, Vec<f32>) {
    // In f32, as those who trained the models did it; the functions of it in f64.
    let angle = |place: u32, frequency: f32| f64::from(place as f32 * frequency).sin_cos();
    let each = places.iter().flat_map(|place| frequencies.iter().map(move |frequency| angle(*place, *frequency)));
    each.map(|(sin, cos)| ((cos * factor) as f32, (sin * factor) as f32)).unzip()
}

/// Which elements of a head are turned together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pairs {
    /// (0, 1), (2, 3), …
    Neighbours,
    /// Those of the first half of what is turned with those of the second.
    Halves,
}

/// Turns the first elements of each head of `x` of (tokens, heads, dim), by cosines and sines of (tokens, pairs). A token has `row`
/// numbers; those behind its heads stay.
///
/// # Panics
/// If the sizes do not fit each other.
pub fn rope(pairs: Pairs, x: &mut [f32], row: usize, heads: usize, dim: usize, cos: &[f32], sin: &[f32]) {
    if x.is_empty() {
        return;
    }
    assert!(row > 0 && heads * dim <= row && x.len().is_multiple_of(row) && cos.len() == sin.len(), "heads of {dim} numbers");
    let tokens = x.len() / row;
    assert!(cos.len().is_multiple_of(tokens) && 2 * (cos.len() / tokens) <= dim, "angles of {tokens} tokens");
    let (count, path) = (cos.len() / tokens, Path::current());
    by_rows(x, row, &|t, x| {
        let (cos, sin) = (&cos[t * count..][..count], &sin[t * count..][..count]);
        for head in x[..heads * dim].chunks_exact_mut(dim) {
            dispatch(path, Turn { row: &mut head[..2 * count], cos, sin, halves: pairs == Pairs::Halves });
        }
    });
}
