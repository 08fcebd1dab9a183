//! Rotary embedding.

use std::f64::consts::{LN_2, TAU};

use bytemuck::{Pod, Zeroable};
use warpwave_gpu::Stream;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::headers;
use crate::heads::{COUNTS, FLOATS, Steps, few, one_of, packed, pointer, same_shape, sizes, small, spread_over_rows, width};
use crate::kernels::{Kernels, apart, refused, same_type, wrong_shape};
use crate::source::{File, Recipe};
use crate::view::{View, ViewMut};

static ROPE: File = File {
    name: "rope.cu",
    texts: &[headers::TYPES, headers::PACK, headers::HEADS, headers::EARLY, include_str!("cu/angles.cuh"), include_str!("cu/rope.cu")],
    kernels: &[""],
};

/// Which elements of a head are turned together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RopePairs {
    /// Neighbours, as in GPT-J: (0, 1), (2, 3), …
    Neighbours,
    /// Those of the first half with those of the second, as in GPT-NeoX and Llama.
    Halves,
}

/// By how much pairs are turned.
#[derive(Debug, Clone, Copy)]
pub enum RopeAngles<'a> {
    /// A pair's frequency times the token's place; see [`RopeScaling::frequencies`].
    Frequencies {
        /// `f32` of (pairs). Twice as many elements of a head are turned, the first ones; the others stay.
        frequencies: View<'a>,
        /// What cosine and sine are multiplied with: 1, or what YaRN gives.
        factor: f64,
    },
    /// Cosines and sines by place, (places, pairs), as `f32` or of the elements' type. A place beyond them has those of the last.
    Tables {
        /// The cosines.
        cos: View<'a>,
        /// The sines.
        sin: View<'a>,
    },
}

/// The places of the tokens.
#[derive(Debug, Clone, Copy)]
pub enum Places<'a> {
    /// One after the other from here on, in each sequence.
    From(usize),
    /// `i32`, `u32` or `i64` of (sequences, tokens), or of (tokens) for all sequences. Up to 2²⁴ they are exact.
    Given(View<'a>),
}

/// A rotary embedding.
#[derive(Debug, Clone, Copy)]
pub struct Rope<'a> {
    /// The pairs.
    pub pairs: RopePairs,
    /// The angles.
    pub angles: RopeAngles<'a>,
    /// The places.
    pub places: Places<'a>,
}

/// How frequencies are changed for texts longer than those learnt from.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// Divided by a factor.
    Linear(f64),
    /// By a larger base: the lowest frequency is divided by the factor, the highest stays.
    Ntk(f64),
    /// As Llama 3 does: low frequencies are divided, high ones stay.
    Llama3 {
        /// What low frequencies are divided by.
        factor: f64,
        /// Waves that fit fewer times into the original length are low.
        low: f64,
        /// Waves that fit more times are high.
        high: f64,
        /// The length that was learnt from.
        original: usize,
    },
    /// YaRN.
    Yarn {
        /// What low frequencies are divided by.
        factor: f64,
        /// Turns within the original length above which a frequency stays; usually 32.
        fast: f64,
        /// Turns below which it is divided; usually 1.
        slow: f64,
        /// The length that was learnt from.
        original: usize,
    },
}

impl RopeScaling {
    /// The frequencies of the pairs of `rotated` elements, and the factor of [`RopeAngles::Frequencies`].
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
                RopeScaling::Yarn { factor, fast, slow, original } => {
                    let pair_of = |turns: f64| n * (original as f64 / (turns * TAU)).ln() / (2.0 * base.ln());
                    let (first, last) = (pair_of(fast).floor().max(0.0), pair_of(slow).ceil().min(n - 1.0));
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

/// As the struct of the kernels.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Numbers {
    x: Steps,
    out: Steps,
    places: [i32; 2],
    angles: [i32; 2],
    more_angles: [i32; 2],
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
/// Heads that a thread has, as in the kernels.
const HEADS: usize = 2;

fn recipe(table: bool, types: [DType; 3], pairs: RopePairs, vectors: bool) -> Recipe {
    let numbers = [("VECTORS", vectors.into()), ("TOGETHER", (pairs == RopePairs::Neighbours).into())];
    Recipe::new(&ROPE, if table { "rope_table" } else { OP }, &types.map(DType::name), &numbers)
}

impl Kernels {
    /// Turns the pairs of views of (sequences, tokens, heads, elements), which may lie in any order by their strides.
    pub fn rope(&self, stream: &Stream, rope: &Rope<'_>, x: &View<'_>, out: &mut ViewMut<'_>) -> Result<()> {
        self.rope_to(stream, rope, *x, out.as_view())
    }

    /// The same in place.
    pub fn rope_in_place(&self, stream: &Stream, rope: &Rope<'_>, x: &mut ViewMut<'_>) -> Result<()> {
        self.rope_to(stream, rope, x.as_view(), x.as_view())
    }

    fn rope_to(&self, stream: &Stream, rope: &Rope<'_>, x: View<'_>, out: View<'_>) -> Result<()> {
        let dtype = x.dtype();
        one_of(OP, "the input", &x, &FLOATS)?;
        same_type(OP, "the result", out, dtype)?;
        let [sequences, tokens, heads, dim] = sizes(OP, "the input", &x, "sequences, tokens, heads, elements")?;
        same_shape(OP, "the result", &out, x.layout().shape())?;
        let (pairs, rows, angles, more, factor) = match rope.angles {
            RopeAngles::Frequencies { frequencies, factor } => {
                same_type(OP, "the frequencies", frequencies, DType::F32)?;
                let [pairs] = sizes(OP, "the frequencies", &frequencies, "pairs")?;
                (pairs, 0, ("the frequencies", frequencies), None, factor)
            }
            RopeAngles::Tables { cos, sin } => {
                one_of(OP, "the cosines", &cos, &[DType::F32, dtype])?;
                same_type(OP, "the sines", sin, cos.dtype())?;
                let [rows, pairs] = sizes(OP, "the cosines", &cos, "places, pairs")?;
                same_shape(OP, "the sines", &sin, cos.layout().shape())?;
                if let Places::From(start) = rope.places
                    && start.checked_add(tokens).is_none_or(|end| end > rows)
                {
                    return Err(wrong_shape(OP, "the cosines", &cos, format!("{tokens} tokens from place {start} on need more places")));
                }
                if rows == 0 && !out.layout().is_empty() {
                    return Err(wrong_shape(OP, "the cosines", &cos, "there is a place at least"));
                }
                (pairs, rows, ("the cosines", cos), Some(("the sines", sin)), 1.0)
            }
        };
        if 2 * pairs > dim || pairs == 0 {
            return Err(wrong_shape(OP, angles.0, &angles.1, format!("a head has {dim} elements, two for each pair")));
        }
        let (start, places) = match rope.places {
            Places::From(start) => (start, None),
            Places::Given(places) => {
                one_of(OP, "the places", &places, &COUNTS)?;
                let layout = places.layout().broadcast_to(&[sequences, tokens]);
                let layout = layout.map_err(|_| wrong_shape(OP, "the places", &places, format!("it takes [{sequences}, {tokens}]")))?;
                (0, Some(("the places", places.with_layout(layout)?)))
            }
        };
        let others = [Some(angles), more, places];
        self.check_devices(OP, stream, [("the input", x), ("the result", out)].into_iter().chain(others.into_iter().flatten()))?;
        for (what, view) in others.into_iter().flatten() {
            apart(OP, what, &view, &out)?;
        }
        if x.clashes(&out) {
            return Err(Error::Overlap {
                op: OP.to_owned(),
                what: "the input overlaps the result, and is not the same elements".to_owned(),
            });
        }
        if out.layout().is_empty() {
            return Ok(());
        }
        // What is only moved is there already.
        let rest = if x.overlaps(&out) { 0 } else { dim - 2 * pairs };
        let each = width(&[dtype]);
        let vectors = pairs.is_multiple_of(each) && packed(&x, each) && packed(&out, each);
        let each = if vectors { each } else { 1 };
        let small = |number| small(OP, "tokens, heads or elements", number);
        let places_steps = places.map(|(_, places)| few(OP, &places)).transpose()?;
        let angle_steps = if more.is_some() { few(OP, &angles.1)? } else { [0, few::<1>(OP, &angles.1)?[0]] };
        let more_steps = more.map(|(_, sin)| few(OP, &sin)).transpose()?;
        let numbers = Numbers {
            x: Steps::of(OP, &x)?,
            out: Steps::of(OP, &out)?,
            places: places_steps.unwrap_or_default(),
            angles: angle_steps,
            more_angles: more_steps.unwrap_or_default(),
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
        let count = places.map_or(DType::I32, |(_, places)| places.dtype());
        let kernels = self.load(&recipe(more.is_some(), [dtype, count, angles.1.dtype()], rope.pairs, vectors))?;
        let items = (pairs + rest) / each * heads.div_ceil(HEADS);
        let launch = spread_over_rows(sequences * tokens, items, self.device().info().compute_units);
        // Cosine and sine of each pair of the block's rows.
        let shared = 2 * dtype.size().max(4) * pairs * launch.block[1] as usize;
        if shared > self.device().info().shared_per_block {
            return Err(Error::BadArgument { op: OP.to_owned(), reason: format!("{pairs} pairs of a head are too many") });
        }
        let args = (
            x.start(),
            out.start(),
            pointer(places.map(|(_, places)| places)),
            angles.1.start(),
            pointer(more.map(|(_, sin)| sin)),
            warpwave_gpu::Arg::value(&numbers),
        );
        // SAFETY: the kernel was made for these types and this layout; all places it reaches are the views', which were checked against
        // their memory, and it writes the result's alone.
        unsafe { kernels[0].launch(stream, launch.shared(shared as u32).pdl(), args) }.map_err(refused(OP))
    }
}

/// Programs of this operation: all types, some of the layouts.
pub(crate) fn recipes() -> Vec<Recipe> {
    let mut recipes = Vec::new();
    for dtype in FLOATS {
        for pairs in [RopePairs::Neighbours, RopePairs::Halves] {
            recipes.extend([true, false].map(|vectors| recipe(false, [dtype, DType::I32, DType::F32], pairs, vectors)));
        }
        recipes.push(recipe(true, [dtype, DType::I64, dtype], RopePairs::Halves, true));
    }
    recipes
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
        let yarn = RopeScaling::Yarn { factor: 4.0, fast: 32.0, slow: 1.0, original: 32768 };
        let ((yarn, factor), (whole, _)) = (yarn.frequencies(128, 1e6), RopeScaling::None.frequencies(128, 1e6));
        assert!((factor - 1.138_629_436).abs() < 1e-8);
        assert!(yarn[0] == whole[0] && (yarn[63] * 4.0 / whole[63] - 1.0).abs() < 1e-6);
    }
}
