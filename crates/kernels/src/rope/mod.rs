//! Rotary position embedding (RoPE).

pub(crate) mod append;

use std::f64::consts::{LN_2, TAU};

use bytemuck::{Pod, Zeroable};
use warpwave_gpu::Stream;

use crate::common::heads::{
    FLOATS, HeadStrides, INDEX_DTYPES, check_dtype, check_shape, packed, pointer, sizes, small, strides_i32, wide_row_launch, width,
};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::{Kernels, check_no_overlap, check_same_dtype, launch_error, shape_error};
use crate::program::{Program, SourceFile, source_file};
use crate::view::{View, ViewMut};

static ROPE: SourceFile = source_file!("rope/rope.cu", &[""]);

/// Which elements of a head form a rotated pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RopePairs {
    /// Adjacent elements, as in GPT-J: (0, 1), (2, 3), …
    Interleaved,
    /// Element i of the first half with element i of the second, as in GPT-NeoX and Llama.
    Halves,
}

/// Rotation angles of the pairs.
#[derive(Debug, Clone, Copy)]
pub enum RopeAngles<'a> {
    /// The pair's frequency times the token's position; see [`RopeScaling::frequencies`].
    Frequencies {
        /// `f32` of (pairs). The first 2 · pairs elements of a head are rotated; the others are copied.
        frequencies: View<'a>,
        /// Factor of cosine and sine: 1, or YaRN's attention factor.
        factor: f64,
    },
    /// Tables of (positions, pairs), `f32` or of the elements' type. Positions beyond the table use its last row.
    Tables {
        /// The cosines.
        cos: View<'a>,
        /// The sines.
        sin: View<'a>,
    },
}

/// Positions of the tokens.
#[derive(Debug, Clone, Copy)]
pub enum Positions<'a> {
    /// Consecutive from this position, in each sequence.
    From(usize),
    /// Position ids, `i32`, `u32` or `i64` of (sequences, tokens), or (tokens) for all sequences. Exact up to 2²⁴.
    Ids(View<'a>),
}

/// A rotary embedding.
#[derive(Debug, Clone, Copy)]
pub struct Rope<'a> {
    /// The pairs.
    pub pairs: RopePairs,
    /// The angles.
    pub angles: RopeAngles<'a>,
    /// The positions.
    pub positions: Positions<'a>,
}

/// Frequency scaling for contexts longer than the training context.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum RopeScaling {
    /// No scaling.
    None,
    /// Position interpolation: frequencies are divided by a factor.
    Linear(f64),
    /// NTK-aware: a larger base divides the lowest frequency by the factor and keeps the highest.
    Ntk(f64),
    /// Llama 3: low frequencies are divided, high ones kept.
    Llama3 {
        /// Divisor of low frequencies.
        factor: f64,
        /// `low_freq_factor`: frequencies with fewer periods in the original context are low.
        low: f64,
        /// `high_freq_factor`: frequencies with more periods are high.
        high: f64,
        /// The original context length.
        original: usize,
    },
    /// YaRN.
    Yarn {
        /// Divisor of low frequencies.
        factor: f64,
        /// `beta_fast`: frequencies with more rotations in the original context are kept; usually 32.
        fast: f64,
        /// `beta_slow`: frequencies with fewer rotations are divided; usually 1.
        slow: f64,
        /// The original context length.
        original: usize,
        /// Whether the ends of the ramp between kept and divided frequencies are rounded to whole pairs; usually true.
        truncate: bool,
    },
}

impl RopeScaling {
    /// Returns the frequencies of the pairs of `rotated` elements, and the factor of [`RopeAngles::Frequencies`].
    pub fn frequencies(self, rotated: usize, base: f64) -> (Vec<f32>, f64) {
        let n = rotated as f64;
        let base = if let RopeScaling::Ntk(factor) = self { base * factor.powf(n / (n - 2.0)) } else { base };
        let scaled = |i: usize| {
            let frequency = base.powf(-2.0 * i as f64 / n);
            match self {
                RopeScaling::None | RopeScaling::Ntk(_) => frequency,
                RopeScaling::Linear(factor) => frequency / factor,
                RopeScaling::Llama3 { factor, low, high, original } => {
                    let times = original as f64 * frequency / TAU;
                    let kept = ((times - low) / (high - low)).clamp(0.0, 1.0);
                    frequency * (kept + (1.0 - kept) / factor)
                }
                RopeScaling::Yarn { factor, fast, slow, original, truncate } => {
                    let pair_of = |turns: f64| n * (original as f64 / (turns * TAU)).ln() / (2.0 * base.ln());
                    let (first, last) = (pair_of(fast), pair_of(slow));
                    let (first, last) = if truncate { (first.floor(), last.ceil()) } else { (first, last) };
                    let (first, last) = (first.max(0.0), last.min(n - 1.0));
                    let kept = 1.0 - ((i as f64 - first) / (last - first).max(0.001)).clamp(0.0, 1.0);
                    frequency * (kept + (1.0 - kept) / factor)
                }
            }
        };
        let factor = match self {
            RopeScaling::Yarn { factor, .. } if factor > 1.0 => 0.1 * factor.log2() * LN_2 + 1.0,
            _ => 1.0,
        };
        ((0..rotated / 2).map(|i| scaled(i) as f32).collect(), factor)
    }
}

/// Parameters of the kernel.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Params {
    x: HeadStrides,
    out: HeadStrides,
    positions: [i32; 2],
    angles: [i32; 2],
    sin_strides: [i32; 2],
    tokens: i32,
    rows: i32,
    table_rows: i32,
    heads: i32,
    pairs: i32,
    rest: i32,
    start: i32,
    padding: i32,
    factor: f64,
}

const OP: &str = "rope";
/// Heads per thread, as in the kernel.
const HEADS: usize = 2;

fn program(table: bool, types: [DType; 3], pairs: RopePairs, vectors: bool) -> Program {
    let constants = [("VECTORS", vectors.into()), ("INTERLEAVED", (pairs == RopePairs::Interleaved).into())];
    Program::new(&ROPE, if table { "rope_table" } else { OP }, &types.map(DType::name), &constants)
}

impl Kernels {
    /// Rotates the pairs of views of (sequences, tokens, heads, head_dim), with any strides.
    pub fn rope(&self, stream: &Stream, rope: &Rope<'_>, x: &View<'_>, out: &mut ViewMut<'_>) -> Result<()> {
        self.rope_to(stream, rope, *x, out.as_view())
    }

    /// Like [`Kernels::rope`], in place.
    pub fn rope_in_place(&self, stream: &Stream, rope: &Rope<'_>, x: &mut ViewMut<'_>) -> Result<()> {
        self.rope_to(stream, rope, x.as_view(), x.as_view())
    }

    fn rope_to(&self, stream: &Stream, rope: &Rope<'_>, x: View<'_>, out: View<'_>) -> Result<()> {
        let dtype = x.dtype();
        check_dtype(OP, "input", &x, &FLOATS)?;
        check_same_dtype(OP, "result", out, dtype)?;
        let [sequences, tokens, heads, dim] = sizes(OP, "input", &x, "sequences, tokens, heads, head_dim")?;
        check_shape(OP, "result", &out, x.layout().shape())?;
        let (pairs, rows, angles, more, factor) = match rope.angles {
            RopeAngles::Frequencies { frequencies, factor } => {
                check_same_dtype(OP, "frequencies", frequencies, DType::F32)?;
                let [pairs] = sizes(OP, "frequencies", &frequencies, "pairs")?;
                (pairs, 0, ("frequencies", frequencies), None, factor)
            }
            RopeAngles::Tables { cos, sin } => {
                check_dtype(OP, "cosines", &cos, &[DType::F32, dtype])?;
                check_same_dtype(OP, "sines", sin, cos.dtype())?;
                let [rows, pairs] = sizes(OP, "cosines", &cos, "positions, pairs")?;
                check_shape(OP, "sines", &sin, cos.layout().shape())?;
                if let Positions::From(start) = rope.positions
                    && start.checked_add(tokens).is_none_or(|end| end > rows)
                {
                    return Err(shape_error(
                        OP,
                        "cosines",
                        &cos,
                        format!("that covers positions {start}..{}", start.saturating_add(tokens)),
                    ));
                }
                if rows == 0 && !out.layout().is_empty() {
                    return Err(shape_error(OP, "cosines", &cos, "of at least one position"));
                }
                (pairs, rows, ("cosines", cos), Some(("sines", sin)), 1.0)
            }
        };
        if 2 * pairs > dim || pairs == 0 {
            return Err(shape_error(OP, angles.0, &angles.1, format!("of 1 to {} pairs", dim / 2)));
        }
        let (start, positions) = match rope.positions {
            Positions::From(start) => (start, None),
            Positions::Ids(positions) => {
                check_dtype(OP, "positions", &positions, &INDEX_DTYPES)?;
                let layout = positions.layout().broadcast_to(&[sequences, tokens]);
                let layout = layout.map_err(|_| shape_error(OP, "positions", &positions, format!("[{sequences}, {tokens}]")))?;
                (0, Some(("positions", positions.with_layout(layout)?)))
            }
        };
        let others = [Some(angles), more, positions];
        self.check_devices(OP, stream, [("input", x), ("result", out)].into_iter().chain(others.into_iter().flatten()))?;
        for (what, view) in others.into_iter().flatten() {
            check_no_overlap(OP, what, &view, &out)?;
        }
        if x.aliases(&out) {
            return Err(Error::Overlap { op: OP.to_owned(), what: "input partially overlaps the result".to_owned() });
        }
        if out.layout().is_empty() {
            return Ok(());
        }
        // In place, unrotated elements need no copy.
        let rest = if x.overlaps(&out) { 0 } else { dim - 2 * pairs };
        let each = width(&[dtype]);
        let vectors = pairs.is_multiple_of(each) && packed(&x, each) && packed(&out, each);
        let each = if vectors { each } else { 1 };
        let small = |number| small(OP, "tokens, heads or head_dim", number);
        let position_strides = positions.map(|(_, positions)| strides_i32(OP, &positions)).transpose()?;
        let angle_strides = if more.is_some() { strides_i32(OP, &angles.1)? } else { [0, strides_i32::<1>(OP, &angles.1)?[0]] };
        let sin_strides = more.map(|(_, sin)| strides_i32(OP, &sin)).transpose()?;
        let params = Params {
            x: HeadStrides::of(OP, &x)?,
            out: HeadStrides::of(OP, &out)?,
            positions: position_strides.unwrap_or_default(),
            angles: angle_strides,
            sin_strides: sin_strides.unwrap_or_default(),
            tokens: small(heads.saturating_mul(dim)).and(small(tokens))?,
            rows: small(sequences.saturating_mul(tokens))?,
            table_rows: small(rows)?,
            heads: small(heads)?,
            pairs: small(pairs)?,
            rest: small(rest)?,
            start: small(start)?,
            padding: 0,
            factor,
        };
        let count = positions.map_or(DType::I32, |(_, positions)| positions.dtype());
        let kernels = self.load(&program(more.is_some(), [dtype, count, angles.1.dtype()], rope.pairs, vectors))?;
        let items = (pairs + rest) / each * heads.div_ceil(HEADS);
        let launch = wide_row_launch(sequences * tokens, items, self.device().info().compute_units);
        // Cosine and sine per pair and row of the block.
        let shared = 2 * dtype.size().max(4) * pairs * launch.block[1] as usize;
        if shared > self.device().info().shared_per_block {
            return Err(Error::BadArgument { op: OP.to_owned(), reason: format!("{pairs} pairs per head do not fit in shared memory") });
        }
        let args = (
            x.start(),
            out.start(),
            pointer(positions.map(|(_, positions)| positions)),
            angles.1.start(),
            pointer(more.map(|(_, sin)| sin)),
            warpwave_gpu::Arg::value(&params),
        );
        // SAFETY: the kernel was compiled for these types and this layout; all views were checked against their memory, and only the result
        // is written.
        unsafe { kernels[0].launch(stream, launch.shared(shared as u32).pdl(), args) }.map_err(launch_error(OP))
    }
}

/// Lists the programs: all types, some of the layouts.
pub(crate) fn programs() -> Vec<Program> {
    let mut programs = Vec::new();
    for dtype in FLOATS {
        for pairs in [RopePairs::Interleaved, RopePairs::Halves] {
            programs.extend([true, false].map(|vectors| program(false, [dtype, DType::I32, DType::F32], pairs, vectors)));
        }
        programs.push(program(true, [dtype, DType::I64, dtype], RopePairs::Halves, true));
    }
    programs
}

/// Lists the programs of models: frequencies, and positions in `u32`, as a step's input has them.
pub(crate) fn of_models() -> Vec<Program> {
    let pairs = FLOATS.into_iter().flat_map(|dtype| [RopePairs::Interleaved, RopePairs::Halves].map(|pairs| (dtype, pairs)));
    let types = |dtype| [dtype, DType::U32, DType::F32];
    pairs.flat_map(|(dtype, pairs)| [true, false].map(|vectors| program(false, types(dtype), pairs, vectors))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequencies_are_scaled_as_published() {
        let (plain, factor) = RopeScaling::None.frequencies(128, 10000.0);
        assert_eq!((plain.len(), plain[0], factor), (64, 1.0, 1.0));
        assert!((f64::from(plain[1]) - 10000f64.powf(-1.0 / 64.0)).abs() < 1e-7);
        let (linear, _) = RopeScaling::Linear(4.0).frequencies(128, 10000.0);
        assert!(linear.iter().zip(&plain).all(|(a, b)| *a == b / 4.0));
        let (ntk, _) = RopeScaling::Ntk(4.0).frequencies(128, 10000.0);
        assert!(ntk[0] == 1.0 && (ntk[63] * 4.0 / plain[63] - 1.0).abs() < 1e-5);
        let llama = RopeScaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, original: 8192 };
        let ((llama, _), (whole, _)) = (llama.frequencies(128, 500_000.0), RopeScaling::None.frequencies(128, 500_000.0));
        assert!(llama[0] == whole[0] && (llama[63] * 8.0 / whole[63] - 1.0).abs() < 1e-6);
        assert!(llama.iter().zip(&whole).any(|(a, b)| *a < b * 0.99 && *a > b / 7.9), "some lie between");
        let yarn = RopeScaling::Yarn { factor: 4.0, fast: 32.0, slow: 1.0, original: 32768, truncate: true };
        let ((yarn, factor), (whole, _)) = (yarn.frequencies(128, 1e6), RopeScaling::None.frequencies(128, 1e6));
        assert!((factor - 1.138_629_436).abs() < 1e-8);
        assert!(yarn[0] == whole[0] && (yarn[63] * 4.0 / whole[63] - 1.0).abs() < 1e-6);
    }
}
