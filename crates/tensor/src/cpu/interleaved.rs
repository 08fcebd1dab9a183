//! Quantized weights with 16 rows interleaved, so that a vector holds the same columns of 16 rows.
//!
//! Blocks of 16 rows become one: each word of codes, each scale and each byte of scales is followed by those of the other rows. The size
//! stays the same, and matrix products need neither shuffles nor horizontal sums.

use bytemuck::{Pod, Zeroable};
use warpwave_kernels::Quant;

use super::pool::parallel;
use super::quant::{IQ4_VALUES, MXFP4_VALUES};
use super::simd::{LANES, Simd};

/// Quantized weights in the order that matrix products read.
#[derive(Debug, Clone)]
pub struct Interleaved {
    quant: Quant,
    rows: usize,
    columns: usize,
    /// Aligned, so that no vector spans two cache lines.
    lines: Vec<Line>,
    size: usize,
}

#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// A field of a block: offset, bytes of an element, elements.
type Field = (usize, usize, usize);

fn fields(quant: Quant) -> &'static [Field] {
    match quant {
        Quant::Q4_0 => &[(0, 2, 1), (2, 4, 4)],
        Quant::Q4_1 => &[(0, 2, 2), (4, 4, 4)],
        Quant::Q5_0 => &[(0, 2, 1), (2, 4, 1), (6, 4, 4)],
        Quant::Q5_1 => &[(0, 2, 2), (4, 4, 1), (8, 4, 4)],
        Quant::Q8_0 => &[(0, 2, 1), (2, 4, 8)],
        Quant::Q8_1 => &[(0, 2, 2), (4, 4, 8)],
        Quant::Q2K => &[(0, 1, 16), (16, 4, 16), (80, 2, 2)],
        Quant::Q3K => &[(0, 4, 8), (32, 4, 16), (96, 1, 12), (108, 2, 1)],
        Quant::Q4K => &[(0, 2, 2), (4, 1, 12), (16, 4, 32)],
        Quant::Q5K => &[(0, 2, 2), (4, 1, 12), (16, 4, 8), (48, 4, 32)],
        Quant::Q6K => &[(0, 4, 32), (128, 4, 16), (192, 1, 16), (208, 2, 1)],
        Quant::Q8K => &[(0, 4, 65), (260, 2, 16)],
        Quant::Iq4Nl => &[(0, 2, 1), (2, 4, 4)],
        Quant::Iq4Xs => &[(0, 2, 1), (2, 1, 6), (8, 4, 32)],
        Quant::Mxfp4 => &[(0, 1, 1), (1, 4, 4)],
        _ => panic!("{quant} stores its scales outside its blocks, which is not supported here"),
    }
}

/// The offset of the fifth bits in a block of 32.
fn high_bits(quant: Quant) -> Option<usize> {
    match quant {
        Quant::Q5_0 => Some(2),
        Quant::Q5_1 => Some(4),
        _ => None,
    }
}

/// Reorders the fifth bits so that a shift aligns those of a word of codes with its bytes: bit `4w + b` becomes bit `w` of byte `b`.
fn spread(bits: u32) -> u32 {
    (0..32).map(|i| (bits >> i & 1) << (i % 4 * 8 + i / 4)).sum()
}

/// Undoes [`spread`].
fn unspread(bits: u32) -> u32 {
    (0..32).map(|i| (bits >> (i % 4 * 8 + i / 4) & 1) << i).sum()
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Interleaves up to 16 rows of blocks; lanes of missing rows are left unchanged.
pub(super) fn interleave_group(quant: Quant, rows: &[u8], row_bytes: usize, out: &mut [u8]) {
    let bytes = quant.block_bytes();
    for (r, row) in rows.chunks_exact(row_bytes).enumerate() {
        for (block, out) in row.chunks_exact(bytes).zip(out.chunks_exact_mut(bytes * LANES)) {
            for &(start, size, count) in fields(quant) {
                let to = &mut out[start * LANES..][..size * count * LANES];
                let from = &block[start..][..size * count];
                match size {
                    1 => put::<1>(from, to, r),
                    2 => put::<2>(from, to, r),
                    _ => put::<4>(from, to, r),
                }
            }
            if let Some(at) = high_bits(quant) {
                let bits = spread(word(block, at));
                out[at * LANES + r * 4..][..4].copy_from_slice(&bits.to_le_bytes());
            }
        }
    }
}

#[inline]
fn put<const SIZE: usize>(from: &[u8], to: &mut [u8], row: usize) {
    let (from, to) = (from.as_chunks::<SIZE>().0, to.as_chunks_mut::<SIZE>().0);
    for (from, to) in from.iter().zip(to.chunks_exact_mut(LANES)) {
        to[row] = *from;
    }
}

impl Interleaved {
    /// Interleaves row-major blocks.
    ///
    /// # Panics
    /// If `data` does not have the size of these rows and columns, or for `Int8` and `Int4`, whose scales are not in their blocks.
    pub fn new(quant: Quant, rows: usize, columns: usize, data: &[u8]) -> Interleaved {
        let row_bytes =
            quant.row_bytes(columns).unwrap_or_else(|| panic!("{columns} columns are not a multiple of the block size of {quant}"));
        assert_eq!(Some(data.len()), rows.checked_mul(row_bytes), "data length of a {rows}x{columns} {quant} matrix in bytes");
        fields(quant);
        let (size, group) = (Interleaved::padded_rows(rows) * row_bytes, row_bytes * LANES);
        let mut lines = vec![Line::zeroed(); size.div_ceil(64)];
        if group > 0 {
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut lines);
            let groups: Vec<_> = data.chunks(group).zip(bytes.chunks_exact_mut(group)).map(std::sync::Mutex::new).collect();
            parallel(groups.len(), &|i| {
                if let Ok(mut group) = groups[i].lock() {
                    let (rows, out) = &mut *group;
                    interleave_group(quant, rows, row_bytes, out);
                }
            });
        }
        Interleaved { quant, rows, columns, lines, size }
    }

    /// Returns the number of rows that are stored: a multiple of 16.
    pub fn padded_rows(rows: usize) -> usize {
        rows.next_multiple_of(LANES)
    }

    /// Returns the quantization type.
    pub fn quant(&self) -> Quant {
        self.quant
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the number of columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Returns the size in bytes, for rows rounded up to a multiple of 16.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Copies the blocks of a row in their original order.
    ///
    /// # Panics
    /// If `row` is out of range, or `out` does not have the size of a row.
    pub fn row(&self, row: usize, out: &mut [u8]) {
        assert!(row < self.rows, "row {row} is out of range for {} rows", self.rows);
        let (bytes, row_bytes) = (self.quant.block_bytes(), self.size / self.rows.next_multiple_of(LANES));
        assert_eq!(out.len(), row_bytes, "wrong byte length of a row");
        let (group, r) = (row / LANES, row % LANES);
        let blocks = self.group(group).chunks_exact(bytes * LANES);
        for (block, out) in blocks.zip(out.chunks_exact_mut(bytes)) {
            for &(start, size, count) in fields(self.quant) {
                for e in 0..count {
                    out[start + e * size..][..size].copy_from_slice(&block[start * LANES + (e * LANES + r) * size..][..size]);
                }
            }
            if let Some(at) = high_bits(self.quant) {
                let bits = unspread(word(out, at));
                out[at..at + 4].copy_from_slice(&bits.to_le_bytes());
            }
        }
    }

    /// The blocks of 16 rows.
    pub(super) fn group(&self, i: usize) -> &[u8] {
        let bytes = self.size / self.rows.div_ceil(LANES).max(1);
        &bytemuck::cast_slice(&self.lines)[i * bytes..][..bytes]
    }
}

/// 32 columns of 16 rows: vector `w` of `codes` has columns `4w` to `4w + 3`. A weight is d · (code - ZERO) + m; in SPLIT formats the
/// second 16 columns have their own scale and minimum.
#[derive(Clone, Copy)]
pub(super) struct Unit<S: Simd> {
    pub codes: [S::I; 8],
    pub d: [S::F; 2],
    pub m: [S::F; 2],
}

/// A quantization format, interleaved.
pub(super) trait Format: Send {
    /// Columns of a block.
    const COLUMNS: usize;
    /// Bytes of a row's block.
    const BYTES: usize;
    /// The code of the value 0.
    const ZERO: i32 = 0;
    /// Codes are signed bytes, see [`Simd::dot_signed`].
    const SIGNED: bool = false;
    /// The format has minimums (`m`).
    const MINIMUM: bool = false;
    /// Each 16 columns have their own scale and minimum.
    const SPLIT: bool = false;

    /// Unit `i` of a block of 16 rows.
    fn unit<S: Simd>(block: &[u8], i: usize) -> Unit<S>;
}

#[inline(always)]
fn at<const N: usize>(block: &[u8], from: usize) -> &[u8; N] {
    block[from..].first_chunk().expect("internal error: field outside the block")
}

/// Word `w` of a field that starts at byte `start` of a row's block.
#[inline(always)]
fn words<S: Simd>(block: &[u8], start: usize, w: usize) -> S::I {
    S::words(at(block, (start + 4 * w) * LANES))
}

#[inline(always)]
fn half_at<S: Simd>(block: &[u8], start: usize) -> S::F {
    S::f16(at(block, start * LANES))
}

/// 4-bit codes of 32 columns, in 4 words.
#[inline(always)]
fn nibbles<S: Simd>(block: &[u8], start: usize) -> [S::I; 8] {
    let (mut codes, low) = ([S::splat_i(0); 8], S::splat_i(0x0f0f0f0f));
    for w in 0..4 {
        let both = words::<S>(block, start, w);
        codes[w] = S::and(both, low);
        codes[w + 4] = S::and(S::shr(both, 4), low);
    }
    codes
}

/// 5-bit codes of 32 columns.
#[inline(always)]
fn five_bits<S: Simd>(block: &[u8], start: usize, fifths: usize) -> [S::I; 8] {
    let (mut codes, bits) = (nibbles::<S>(block, start), words::<S>(block, fifths, 0));
    for (w, code) in codes.iter_mut().enumerate() {
        *code = S::or(*code, S::shl(S::and(S::shr(bits, w as u32), S::splat_i(0x01010101)), 4));
    }
    codes
}

#[inline(always)]
fn signed<S: Simd>(block: &[u8], start: usize, i: usize) -> [S::I; 8] {
    let mut codes = [S::splat_i(0); 8];
    for (w, code) in codes.iter_mut().enumerate() {
        *code = S::signed(words::<S>(block, start, i * 8 + w));
    }
    codes
}

/// Scale and minimum of run `i` of Q4_K and Q5_K.
#[inline(always)]
fn six_bits<S: Simd>(block: &[u8], i: usize) -> (S::F, S::F) {
    let byte = |b: usize| S::bytes(at(block, (4 + b) * LANES));
    let (six, four) = (S::splat_i(63), S::splat_i(15));
    let (d, m) = if i < 4 {
        (S::and(byte(i), six), S::and(byte(i + 4), six))
    } else {
        let both = byte(i + 4);
        let upper = |b: usize| S::shl(S::shr(byte(b), 6), 4);
        (S::or(S::and(both, four), upper(i - 4)), S::or(S::shr(both, 4), upper(i)))
    };
    let minimum = S::mul(half_at::<S>(block, 2), S::splat(-1.0));
    (S::mul(half_at::<S>(block, 0), S::to_f(d)), S::mul(minimum, S::to_f(m)))
}

/// Codes of run `i` of Q4_K and Q5_K: two runs share 8 words.
#[inline(always)]
fn run_nibbles<S: Simd>(block: &[u8], start: usize, i: usize) -> [S::I; 8] {
    let mut codes = [S::splat_i(0); 8];
    for (w, code) in codes.iter_mut().enumerate() {
        *code = S::and(S::shr(words::<S>(block, start, i / 2 * 8 + w), (i % 2 * 4) as u32), S::splat_i(0x0f0f0f0f));
    }
    codes
}

/// 4-bit codes of 32 columns, looked up in a table of signed bytes.
#[inline(always)]
fn looked_up<S: Simd>(table: &[i8; 16], block: &[u8], start: usize) -> [S::I; 8] {
    nibbles::<S>(block, start).map(|codes| S::signed(S::look_up(table, codes)))
}

/// 2-bit codes of run `i` of Q2_K and Q3_K: four runs share 8 words.
#[inline(always)]
fn run_quarters<S: Simd>(block: &[u8], start: usize, i: usize) -> [S::I; 8] {
    let mut codes = [S::splat_i(0); 8];
    for (w, code) in codes.iter_mut().enumerate() {
        *code = S::and(S::shr(words::<S>(block, start, i / 4 * 8 + w), (i % 4 * 2) as u32), S::splat_i(0x03030303));
    }
    codes
}

/// The power of two that an e8m0 byte stands for, halved because codes are doubled: 2^(e - 128).
#[inline(always)]
fn e8m0<S: Simd>(block: &[u8]) -> S::F {
    let e = S::bytes(at(block, 0));
    // A product, because the exponent field alone cannot hold the smallest, which are subnormal.
    let power = |e: S::I| S::from_bits(S::shl(S::add_i(S::shr(e, 1), S::splat_i(63)), 23));
    S::mul(power(e), power(S::add_i(e, S::splat_i(1))))
}

macro_rules! formats {
    ($($name:ident ($columns:literal, $bytes:literal) { $(const $flag:ident: $ty:ty = $value:expr;)* } |$block:ident, $i:ident| $unit:expr)*) => { $(
        pub(super) struct $name;
        impl Format for $name {
            const COLUMNS: usize = $columns;
            const BYTES: usize = $bytes;
            $(const $flag: $ty = $value;)*
            #[inline(always)]
            fn unit<S: Simd>($block: &[u8], $i: usize) -> Unit<S> {
                assert!($block.len() == Self::BYTES * LANES);
                let (codes, d, m) = $unit;
                Unit { codes, d, m }
            }
        }
    )* };
}
formats! {
    Q4_0 (32, 18) { const ZERO: i32 = 8; } |block, _i| (nibbles::<S>(block, 2), [half_at::<S>(block, 0); 2], [S::splat(0.0); 2])
    Q4_1 (32, 20) { const MINIMUM: bool = true; } |block, _i|
        (nibbles::<S>(block, 4), [half_at::<S>(block, 0); 2], [half_at::<S>(block, 2); 2])
    Q5_0 (32, 22) { const ZERO: i32 = 16; } |block, _i| (five_bits::<S>(block, 6, 2), [half_at::<S>(block, 0); 2], [S::splat(0.0); 2])
    Q5_1 (32, 24) { const MINIMUM: bool = true; }
        |block, _i| (five_bits::<S>(block, 8, 4), [half_at::<S>(block, 0); 2], [half_at::<S>(block, 2); 2])
    Q8_0 (32, 34) { const SIGNED: bool = true; } |block, _i| (signed::<S>(block, 2, 0), [half_at::<S>(block, 0); 2], [S::splat(0.0); 2])
    Q8_1 (32, 36) { const SIGNED: bool = true; } |block, _i| (signed::<S>(block, 4, 0), [half_at::<S>(block, 0); 2], [S::splat(0.0); 2])
    Q4K (256, 144) { const MINIMUM: bool = true; } |block, i| {
        let (d, m) = six_bits::<S>(block, i);
        (run_nibbles::<S>(block, 16, i), [d; 2], [m; 2])
    }
    Q5K (256, 176) { const MINIMUM: bool = true; } |block, i| {
        let ((d, m), mut codes) = (six_bits::<S>(block, i), run_nibbles::<S>(block, 48, i));
        for (w, code) in codes.iter_mut().enumerate() {
            let fifths = S::and(S::shr(words::<S>(block, 16, w), i as u32), S::splat_i(0x01010101));
            *code = S::or(*code, S::shl(fifths, 4));
        }
        (codes, [d; 2], [m; 2])
    }
    Q6K (256, 210) { const ZERO: i32 = 32; const SPLIT: bool = true; } |block, i| {
        let (part, quarter, mut codes) = (i / 4, i % 4, [S::splat_i(0); 8]);
        for (w, code) in codes.iter_mut().enumerate() {
            let low = S::shr(words::<S>(block, 0, part * 16 + quarter % 2 * 8 + w), (quarter / 2 * 4) as u32);
            let high = S::shr(words::<S>(block, 128, part * 8 + w), (quarter * 2) as u32);
            *code = S::or(S::and(low, S::splat_i(0x0f0f0f0f)), S::shl(S::and(high, S::splat_i(0x03030303)), 4));
        }
        let d = half_at::<S>(block, 208);
        let run = |run: usize| S::mul(d, S::to_f(S::signed_bytes(at(block, (192 + 2 * i + run) * LANES))));
        (codes, [run(0), run(1)], [S::splat(0.0); 2])
    }
    Q2K (256, 84) { const MINIMUM: bool = true; const SPLIT: bool = true; } |block, i| {
        let (d, minimum) = (half_at::<S>(block, 80), S::mul(half_at::<S>(block, 82), S::splat(-1.0)));
        let parts = [0, 1].map(|run| S::bytes(at(block, (2 * i + run) * LANES)));
        let d = parts.map(|part| S::mul(d, S::to_f(S::and(part, S::splat_i(15)))));
        (run_quarters::<S>(block, 16, i), d, parts.map(|part| S::mul(minimum, S::to_f(S::shr(part, 4)))))
    }
    Q3K (256, 110) { const ZERO: i32 = 4; const SPLIT: bool = true; } |block, i| {
        let mut codes = run_quarters::<S>(block, 32, i);
        for (w, code) in codes.iter_mut().enumerate() {
            let third = S::and(S::shr(words::<S>(block, 0, w), i as u32), S::splat_i(0x01010101));
            *code = S::or(*code, S::shl(third, 2));
        }
        let (d, byte) = (half_at::<S>(block, 108), |b: usize| S::bytes(at(block, (96 + b) * LANES)));
        let run = |run: usize| {
            let low = S::and(S::shr(byte(run % 8), (run / 8 * 4) as u32), S::splat_i(15));
            let high = S::and(S::shr(byte(8 + run % 4), (run / 4 * 2) as u32), S::splat_i(3));
            S::mul(d, S::to_f(S::add_i(S::or(low, S::shl(high, 4)), S::splat_i(-32))))
        };
        (codes, [run(2 * i), run(2 * i + 1)], [S::splat(0.0); 2])
    }
    Q8K (256, 292) { const SIGNED: bool = true; }
        |block, i| (signed::<S>(block, 4, i), [S::from_bits(words::<S>(block, 0, 0)); 2], [S::splat(0.0); 2])
    Iq4Nl (32, 18) { const SIGNED: bool = true; }
        |block, _i| (looked_up::<S>(&IQ4_VALUES, block, 2), [half_at::<S>(block, 0); 2], [S::splat(0.0); 2])
    Iq4Xs (256, 136) { const SIGNED: bool = true; } |block, i| {
        let byte = |b: usize| S::bytes(at(block, b * LANES));
        let low = S::and(S::shr(byte(4 + i / 2), (i % 2 * 4) as u32), S::splat_i(15));
        let high = S::and(S::shr(byte(2 + i / 4), (i % 4 * 2) as u32), S::splat_i(3));
        let part = S::to_f(S::add_i(S::or(low, S::shl(high, 4)), S::splat_i(-32)));
        (looked_up::<S>(&IQ4_VALUES, block, 8 + 16 * i), [S::mul(half_at::<S>(block, 0), part); 2], [S::splat(0.0); 2])
    }
    Mxfp4 (32, 17) { const SIGNED: bool = true; }
        |block, _i| (looked_up::<S>(&MXFP4_VALUES, block, 1), [e8m0::<S>(block); 2], [S::splat(0.0); 2])
}

/// Evaluates an expression with `F` as the format of a quantization type.
macro_rules! with_format {
    ($quant:expr, $f:ident => $run:expr) => {
        match $quant {
            Quant::Q4_0 => {
                type $f = $crate::cpu::interleaved::Q4_0;
                $run
            }
            Quant::Q4_1 => {
                type $f = $crate::cpu::interleaved::Q4_1;
                $run
            }
            Quant::Q5_0 => {
                type $f = $crate::cpu::interleaved::Q5_0;
                $run
            }
            Quant::Q5_1 => {
                type $f = $crate::cpu::interleaved::Q5_1;
                $run
            }
            Quant::Q8_0 => {
                type $f = $crate::cpu::interleaved::Q8_0;
                $run
            }
            Quant::Q8_1 => {
                type $f = $crate::cpu::interleaved::Q8_1;
                $run
            }
            Quant::Q2K => {
                type $f = $crate::cpu::interleaved::Q2K;
                $run
            }
            Quant::Q3K => {
                type $f = $crate::cpu::interleaved::Q3K;
                $run
            }
            Quant::Q4K => {
                type $f = $crate::cpu::interleaved::Q4K;
                $run
            }
            Quant::Q5K => {
                type $f = $crate::cpu::interleaved::Q5K;
                $run
            }
            Quant::Q6K => {
                type $f = $crate::cpu::interleaved::Q6K;
                $run
            }
            Quant::Q8K => {
                type $f = $crate::cpu::interleaved::Q8K;
                $run
            }
            Quant::Iq4Nl => {
                type $f = $crate::cpu::interleaved::Iq4Nl;
                $run
            }
            Quant::Iq4Xs => {
                type $f = $crate::cpu::interleaved::Iq4Xs;
                $run
            }
            Quant::Mxfp4 => {
                type $f = $crate::cpu::interleaved::Mxfp4;
                $run
            }
            quant => panic!("{quant} stores its scales outside its blocks, which is not supported here"),
        }
    };
}
pub(super) use with_format;
