//! Matrix products in `f32`: 16 rows of weights are unpacked to a column-major panel, and tiles of sums stay in registers.

use std::marker::PhantomData;

use super::interleaved::{Format, Unit};
use super::matmul::Out;
use super::simd::{Kernel, LANES, Simd, tile_rows, unrolled};

/// Columns of a panel: the panel and its activations fit the L1 cache.
pub(super) const COLUMNS: usize = 256;

pub(super) type Panel = [[f32; LANES]; COLUMNS];

/// Dequantizes columns of 16 rows of interleaved weights, from a multiple of 256 on.
pub(super) struct Unpack<'a, F> {
    pub group: &'a [u8],
    pub from: usize,
    pub out: &'a mut [[f32; LANES]],
    pub format: PhantomData<F>,
}

impl<F: Format> Kernel for Unpack<'_, F> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd>(self) {
        let (each, zero) = (F::COLUMNS / 32, S::splat_i(if F::SIGNED { -S::SIGNED_ZERO } else { -F::ZERO }));
        for (u, out) in self.out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let u = self.from / 32 + u;
            let block = &self.group[u / each * F::BYTES * LANES..][..F::BYTES * LANES];
            let Unit { codes, d, m } = F::unit::<S>(block, u % each);
            for (k, out) in out.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                for (byte, out) in out.iter_mut().enumerate() {
                    let mut code = S::and(S::shr(codes[k], 8 * byte as u32), S::splat_i(255));
                    if F::SIGNED && S::SIGNED_ZERO == 0 {
                        // Sign extension.
                        code = S::add_i(S::and(S::add_i(code, S::splat_i(128)), S::splat_i(255)), S::splat_i(-128));
                    }
                    let code = S::to_f(S::add_i(code, zero));
                    let (d, m) = (d[usize::from(k >= 4)], m[usize::from(k >= 4)]);
                    S::store(if F::MINIMUM { S::fma(d, code, m) } else { S::mul(d, code) }, out);
                }
            }
        }
    }
}

/// Multiplies a panel with rows of activations, and writes or adds to the result.
pub(super) struct Products<'a> {
    pub panel: &'a [[f32; LANES]],
    /// Activations from the panel's first column on, and their row stride.
    pub x: &'a [f32],
    pub stride: usize,
    /// Range of rows of activations.
    pub tokens: (usize, usize),
    pub out: Out<'a>,
    pub row: usize,
    pub add: bool,
}

impl Kernel for Products<'_> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd>(self) {
        let (mut token, end) = self.tokens;
        while token < end {
            let rows = tile_rows::<S>(end - token);
            match rows {
                16 if S::WIDE_TILES => self.tile::<S, 16, 1>(token),
                8 if S::WIDE_TILES => self.tile::<S, 8, 1>(token),
                4 => self.tile::<S, 4, 1>(token),
                2 => self.tile::<S, 2, 4>(token),
                _ => self.tile::<S, 1, 8>(token),
            }
            token += rows;
        }
    }
}

impl Products<'_> {
    #[inline(always)]
    fn tile<S: Simd, const T: usize, const CHAINS: usize>(&self, token: usize) {
        let x = std::array::from_fn(|t| &self.x[(token + t) * self.stride..][..self.panel.len()]);
        let totals = tile::<S, T, CHAINS>(self.panel, x);
        unrolled!(T, |t| {
            let mut values = [0.0; LANES];
            S::store(totals[t], &mut values);
            if self.add {
                self.out.add(token + t, self.row, &values);
            } else {
                self.out.put(token + t, self.row, &values);
            }
        });
    }
}

/// Dot products of a panel's columns with rows. With few rows each sum has several accumulators (`CHAINS`), to hide FMA latency.
#[inline(always)]
pub(super) fn tile<S: Simd, const T: usize, const CHAINS: usize>(panel: &[[f32; LANES]], x: [&[f32]; T]) -> [S::F; T] {
    // Eight columns for each bounds check.
    let mut sums = [[S::splat(0.0); CHAINS]; T];
    let (whole, rest) = panel.as_chunks::<8>();
    for (i, w) in whole.iter().enumerate() {
        let x: [&[f32; 8]; T] = std::array::from_fn(|t| &x[t].as_chunks().0[i]);
        for c in 0..8 {
            let w = S::load(&w[c]);
            unrolled!(T, |t| {
                sums[t][c % CHAINS] = S::fma(w, S::splat(x[t][c]), sums[t][c % CHAINS]);
            });
        }
    }
    for (i, w) in rest.iter().enumerate() {
        unrolled!(T, |t| {
            sums[t][0] = S::fma(S::load(w), S::splat(x[t][whole.len() * 8 + i]), sums[t][0]);
        });
    }
    let mut totals = [S::splat(0.0); T];
    unrolled!(T, |t| {
        totals[t] = sums[t][0];
        for sum in &sums[t][1..] {
            totals[t] = S::add(totals[t], *sum);
        }
    });
    totals
}

/// [`tile`] with column-major rows: `T` of 16, from row `from` on.
#[inline(always)]
pub(super) fn tile_across<S: Simd, const T: usize>(panel: &[[f32; LANES]], x: &[[f32; LANES]], from: usize) -> [S::F; T] {
    let mut sums = [S::splat(0.0); T];
    for (w, x) in panel.iter().zip(x) {
        let (w, x) = (S::load(w), &x[from..from + T]);
        unrolled!(T, |t| {
            sums[t] = S::fma(w, S::splat(x[t]), sums[t]);
        });
    }
    sums
}

/// An element type of plain weights.
pub(super) trait Dense: Copy + Send + Sync + bytemuck::Pod {
    fn lanes<S: Simd>(from: &[Self; LANES]) -> S::F;
    fn to_f32(self) -> f32;
    fn from_f32(x: f32) -> Self;
}

impl Dense for f32 {
    #[inline(always)]
    fn lanes<S: Simd>(from: &[f32; LANES]) -> S::F {
        S::load(from)
    }
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }
    #[inline(always)]
    fn from_f32(x: f32) -> f32 {
        x
    }
}

impl Dense for half::f16 {
    #[inline(always)]
    fn lanes<S: Simd>(from: &[half::f16; LANES]) -> S::F {
        S::f16(bytemuck::cast_ref(from))
    }
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self.to_f32()
    }
    #[inline(always)]
    fn from_f32(x: f32) -> half::f16 {
        half::f16::from_f32(x)
    }
}

impl Dense for half::bf16 {
    #[inline(always)]
    fn lanes<S: Simd>(from: &[half::bf16; LANES]) -> S::F {
        S::bf16(bytemuck::cast_ref(from))
    }
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self.to_f32()
    }
    #[inline(always)]
    fn from_f32(x: f32) -> half::bf16 {
        half::bf16::from_f32(x)
    }
}

/// Transposes columns of up to 16 rows to a panel; rows are `stride` apart, missing ones are zero.
pub(super) struct Transpose<'a, D> {
    pub rows: &'a [D],
    pub stride: usize,
    pub count: usize,
    pub out: &'a mut [[f32; LANES]],
}

impl<D: Dense> Kernel for Transpose<'_, D> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd>(self) {
        let columns = self.out.len();
        if self.count < LANES {
            self.out.fill([0.0; LANES]);
        }
        for r in 0..self.count {
            let row = &self.rows[r * self.stride..][..columns];
            let (whole, rest) = row.as_chunks::<LANES>();
            let mut out = self.out.chunks_mut(LANES);
            for (from, out) in whole.iter().zip(&mut out) {
                let mut values = [0.0; LANES];
                S::store(D::lanes::<S>(from), &mut values);
                for (out, value) in out.iter_mut().zip(values) {
                    out[r] = value;
                }
            }
            let first = columns - rest.len();
            for (out, value) in self.out[first..].iter_mut().zip(rest) {
                out[r] = value.to_f32();
            }
        }
    }
}

/// Dot products of rows with one row of activations, four at a time, without a panel: each weight is read once.
pub(super) struct Rows<'a, D> {
    pub rows: &'a [D],
    pub x: &'a [f32],
    pub out: &'a mut [f32],
}

impl<D: Dense> Kernel for Rows<'_, D> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd>(self) {
        let columns = self.x.len();
        let (many, rest) = self.out.as_chunks_mut::<4>();
        let done = 4 * many.len();
        for (i, out) in many.iter_mut().enumerate() {
            *out = dots::<S, D, 4>(std::array::from_fn(|r| &self.rows[(4 * i + r) * columns..][..columns]), self.x);
        }
        for (i, out) in rest.iter_mut().enumerate() {
            [*out] = dots::<S, D, 1>([&self.rows[(done + i) * columns..][..columns]], self.x);
        }
    }
}

#[inline(always)]
fn dots<S: Simd, D: Dense, const R: usize>(rows: [&[D]; R], x: &[f32]) -> [f32; R] {
    let (whole, rest) = x.as_chunks::<LANES>();
    let each: [&[[D; LANES]]; R] = std::array::from_fn(|r| &rows[r].as_chunks().0[..whole.len()]);
    let mut sums = [[S::splat(0.0); 2]; R];
    for (i, x) in whole.iter().enumerate() {
        let x = S::load(x);
        for r in 0..R {
            let sum = &mut sums[r][i % 2];
            *sum = S::fma(D::lanes::<S>(&each[r][i]), x, *sum);
        }
    }
    std::array::from_fn(|r| {
        let first = whole.len() * LANES;
        let sum = S::sum(S::add(sums[r][0], sums[r][1]));
        rest.iter().zip(&rows[r][first..]).fold(sum, |sum, (x, w)| sum + x * w.to_f32())
    })
}
