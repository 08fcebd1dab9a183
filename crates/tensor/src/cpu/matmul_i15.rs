//! Integer matrix products with activations rounded to 15 bits, stored as two signed bytes.
//!
//! One byte would be faster, but its errors add up over the layers: token probabilities of a small model are off by a third. With two
//! bytes they are off by less than a thousandth, and weights are still read and unpacked once.

use std::marker::PhantomData;
use std::sync::Mutex;

use super::interleaved::{Format, Unit};
use super::matmul::Out;
use super::pool::parallel;
use super::simd::{Isa, Kernel, LANES, Simd, dispatch, tile_rows, unrolled};

/// The largest code.
const MAX_CODE: f32 = 127.0 * 128.0;

/// Rows of activations as integers of up to ±127 · 128, with a scale for each 32 columns. Rows of a tile are interleaved: their first 32
/// columns, then the next, and so on; scales and sums likewise.
#[derive(Debug, Default)]
pub(super) struct Activations {
    columns: usize,
    /// High bytes, in units of 128, and low bytes.
    codes: Vec<[[u8; 32]; 2]>,
    scales: Vec<f32>,
    /// Scale times sum of each 32 codes, or each 16.
    sums: Vec<[f32; 2]>,
    /// Initial value of integer sums, for formats whose zero code is not 0: for each 32 columns, or each 16.
    starts: Vec<[i32; 2]>,
}

impl Activations {
    /// Rounds rows. A block with NaN or infinity gets a NaN scale.
    pub fn round<F: Format>(&mut self, isa: Isa, x: &[f32], columns: usize) {
        let (x, units) = (x.as_chunks::<32>().0, columns / 32);
        self.columns = columns;
        self.codes.resize(x.len(), [[0; 32]; 2]);
        self.scales.resize(x.len(), 0.0);
        self.sums.resize(x.len(), [0.0; 2]);
        self.starts.resize(x.len(), [0; 2]);
        // A multiple of the largest tile.
        let each = 64 * units;
        let codes = x.chunks(each).zip(self.codes.chunks_mut(each)).zip(self.scales.chunks_mut(each));
        let tasks = codes.zip(self.sums.chunks_mut(each).zip(self.starts.chunks_mut(each)));
        let round = |((x, codes), scales), (sums, starts)| {
            Mutex::new(Some(Round { x, units, codes, scales, sums, starts, format: PhantomData::<F> }))
        };
        let tasks: Vec<_> = tasks.map(|(first, second)| round(first, second)).collect();
        parallel(tasks.len(), &|i| {
            let task = tasks[i].lock().ok().and_then(|mut task| task.take());
            if let Some(task) = task {
                dispatch(isa, task);
            }
        });
    }
}

struct Round<'a, F> {
    x: &'a [[f32; 32]],
    units: usize,
    codes: &'a mut [[[u8; 32]; 2]],
    scales: &'a mut [f32],
    sums: &'a mut [[f32; 2]],
    starts: &'a mut [[i32; 2]],
    format: PhantomData<F>,
}

impl<F: Format> Kernel for Round<'_, F> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd>(self) {
        let (units, rows) = (self.units, self.x.len() / self.units);
        let zero = if F::SIGNED { S::SIGNED_ZERO } else { F::ZERO };
        let mut row = 0;
        while row < rows {
            let tile = tile_rows::<S>(rows - row);
            for t in 0..tile {
                let mut at = row * units + t;
                for x in &self.x[(row + t) * units..][..units] {
                    let (scale, sums) = round(x, &mut self.codes[at]);
                    let sum = sums[0] + sums[1];
                    self.scales[at] = scale;
                    if F::MINIMUM {
                        self.sums[at] = if F::SPLIT { sums.map(|sum| scale * sum as f32) } else { [scale * sum as f32, 0.0] };
                    }
                    if F::SPLIT {
                        self.starts[at] = [-zero * sums[0], -zero * sums[1]];
                    } else if zero != 0 {
                        self.starts[at] = [-zero * sum, 0];
                    }
                    at += tile;
                }
            }
            row += tile;
        }
    }
}

/// Rounds a block. Returns its scale and the sums of each 16 codes.
#[inline(always)]
fn round(x: &[f32; 32], codes: &mut [[u8; 32]; 2]) -> (f32, [i32; 2]) {
    // Bits of magnitudes are ordered like the values; NaN and infinity are above all.
    let mut max = 0i32;
    for x in x {
        max = max.max((x.to_bits() & 0x7fff_ffff) as i32);
    }
    let max = f32::from_bits(max as u32);
    // Blocks that are too small or not finite get codes of 0.
    let factor = if (1e-36..=f32::MAX).contains(&max) { MAX_CODE / max } else { 0.0 };
    // Adding 1.5 · 2²³ rounds to an integer in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let mut values = [0i32; 32];
    for (value, x) in values.iter_mut().zip(x) {
        *value = (x * factor + ROUND).to_bits() as i32 - ROUND.to_bits() as i32;
    }
    let [high, low] = codes;
    for ((high, low), value) in high.iter_mut().zip(low).zip(values) {
        // Rounds to a multiple of 128: the remainder is in -64..64.
        let whole = (value + 64) >> 7;
        *high = whole as u8;
        *low = (value - (whole << 7)) as u8;
    }
    let mut sums = [0; 2];
    for (sum, values) in sums.iter_mut().zip(values.as_chunks::<16>().0) {
        for value in values {
            *sum += value;
        }
    }
    (if max <= f32::MAX { max * (1.0 / MAX_CODE) } else { f32::NAN }, sums)
}

/// Multiplies 16 rows of weights with a range of rows of activations.
pub(super) struct Products<'a, F> {
    pub group: &'a [u8],
    pub x: &'a Activations,
    /// Range of rows of activations.
    pub tokens: (usize, usize),
    pub out: Out<'a>,
    pub row: usize,
    pub format: PhantomData<F>,
}

impl<F: Format> Kernel for Products<'_, F> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd>(self) {
        let (mut token, end) = self.tokens;
        while token < end {
            let rows = tile_rows::<S>(end - token);
            match rows {
                16 if S::WIDE_TILES => self.tile::<S, 16>(token),
                8 if S::WIDE_TILES => self.tile::<S, 8>(token),
                4 => self.tile::<S, 4>(token),
                2 => self.tile::<S, 2>(token),
                _ => self.tile::<S, 1>(token),
            }
            token += rows;
        }
    }
}

impl<F: Format> Products<'_, F> {
    #[inline(always)]
    fn tile<S: Simd, const T: usize>(&self, token: usize) {
        let (units, each) = (self.x.columns / 32, F::COLUMNS / 32);
        let (from, count) = (token * units, T * units);
        let codes = self.x.codes[from..][..count].as_chunks::<T>().0;
        let scales = self.x.scales[from..][..count].as_chunks::<T>().0;
        let sums = self.x.sums[from..][..count].as_chunks::<T>().0;
        let starts = self.x.starts[from..][..count].as_chunks::<T>().0;
        let mut totals = [S::splat(0.0); T];
        for (b, block) in self.group.chunks_exact(F::BYTES * LANES).enumerate() {
            for i in 0..each {
                let Unit { codes: w, d, m } = F::unit::<S>(block, i);
                let u = b * each + i;
                let (codes, scales, sums, starts) = (&codes[u], &scales[u], &sums[u], &starts[u]);
                unrolled!(T, |t| {
                    let (start, scale) = (&starts[t], S::splat(scales[t]));
                    let [high, low] = [0, 1].map(|byte: usize| codes[t][byte].as_chunks::<4>().0);
                    let starts_at_zero = F::ZERO == 0 && (!F::SIGNED || S::SIGNED_ZERO == 0);
                    let both = |start: i32, range: std::ops::Range<usize>| {
                        let mut sum = S::splat_i(0);
                        for (w, x) in w[range.clone()].iter().zip(&high[range.clone()]) {
                            sum = dot::<S, F>(sum, *w, *x);
                        }
                        sum = S::shl(sum, 7);
                        if !starts_at_zero {
                            sum = S::add_i(sum, S::splat_i(start));
                        }
                        for (w, x) in w[range.clone()].iter().zip(&low[range]) {
                            sum = dot::<S, F>(sum, *w, *x);
                        }
                        S::mul(S::to_f(sum), scale)
                    };
                    if F::SPLIT {
                        totals[t] = S::fma(both(start[0], 0..4), d[0], totals[t]);
                        totals[t] = S::fma(both(start[1], 4..8), d[1], totals[t]);
                    } else {
                        totals[t] = S::fma(both(start[0], 0..8), d[1], totals[t]);
                    }
                    if F::MINIMUM {
                        totals[t] = S::fma(S::splat(sums[t][0]), m[0], totals[t]);
                        if F::SPLIT {
                            totals[t] = S::fma(S::splat(sums[t][1]), m[1], totals[t]);
                        }
                    }
                });
            }
        }
        unrolled!(T, |t| {
            let mut values = [0.0; LANES];
            S::store(totals[t], &mut values);
            self.out.put(token + t, self.row, &values);
        });
    }
}

#[inline(always)]
fn dot<S: Simd, F: Format>(sum: S::I, codes: S::I, x: [u8; 4]) -> S::I {
    let x = i32::from_le_bytes(x);
    if F::SIGNED { S::dot_signed(sum, codes, x) } else { S::dot(sum, codes, x) }
}
