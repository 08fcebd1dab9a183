//! Random elements that depend on a seed and their index only: the same numbers on every device.

use bytemuck::{Pod, Zeroable};
use warpwave_gpu::{Arg, Launch, Stream};

use crate::dtype::{DType, Scalar};
use crate::elementwise::plan::{Operand, PACK, merged, to_dims};
use crate::error::{Error, Result};
use crate::kernels::{Kernels, dtype_error, launch_error, shape_error};
use crate::layout::{Layout, MAX_DIMS};
use crate::program::{Program, SourceFile, bits_type, source_file};
use crate::view::{View, ViewMut};

static RANDOM: SourceFile = source_file!("random/random.cu", &["_contiguous", "_strided"]);

const FLOATS: [DType; 4] = [DType::F32, DType::F16, DType::Bf16, DType::F64];
const INTEGERS: [DType; 5] = [DType::U8, DType::I16, DType::I32, DType::U32, DType::I64];

/// Threads of a block.
const BLOCK: u32 = 256;

/// Blocks per multiprocessor: those of a larger launch would spend a tenth of their time on their first instructions.
const BLOCKS: u32 = 64;

/// A place in the random numbers of a seed, counted in blocks of four 32-bit words: Philox 4x32-10.
///
/// The seed is the key of the generator, the position the lower half of its counter, and the stream the upper half.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Pod, Zeroable)]
#[repr(C)]
pub struct Philox {
    /// The seed.
    pub seed: u64,
    /// Streams of one seed are independent.
    pub stream: u64,
    /// The number of the first block.
    pub position: u64,
}

impl Philox {
    /// Returns the words of the block `index` after the position.
    #[inline(always)]
    pub fn block(&self, index: u64) -> [u32; 4] {
        let position = self.position.wrapping_add(index);
        let [mut a, mut b, mut c, mut d] = [position as u32, (position >> 32) as u32, self.stream as u32, (self.stream >> 32) as u32];
        let [mut k, mut l] = [self.seed as u32, (self.seed >> 32) as u32];
        for _ in 0..10 {
            let (first, second) = (0xD251_1F53 * u64::from(a), 0xCD9E_8D57 * u64::from(c));
            [a, b, c, d] = [(second >> 32) as u32 ^ b ^ k, second as u32, (first >> 32) as u32 ^ d ^ l, first as u32];
            k = k.wrapping_add(0x9E37_79B9);
            l = l.wrapping_add(0xBB67_AE85);
        }
        [a, b, c, d]
    }
}

/// How random elements are distributed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Distribution {
    /// Floats of `low..high`, evenly distributed in steps of at most 2^-24 of the interval (2^-53 for `f64`).
    Uniform {
        /// The lower bound.
        low: f64,
        /// The upper bound, which is excluded, also after rounding.
        high: f64,
    },
    /// Normally distributed floats.
    Normal {
        /// The mean.
        mean: f64,
        /// The standard deviation.
        deviation: f64,
    },
    /// Integers of `low..high`.
    Integers {
        /// The lower bound.
        low: i128,
        /// The upper bound, which is excluded.
        high: i128,
    },
    /// 1 with a probability in steps of 2^-32, else 0; of any type but fp8.
    Bernoulli {
        /// The probability of 1.
        probability: f64,
    },
}

/// A [`Distribution`] in numbers of an element type, as devices compute with it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Draw {
    /// `(low + unit * scale).clamp(first, last)`, in `f64` for `f64` and in `f32` for other types.
    Uniform {
        /// The lower bound.
        low: f64,
        /// The size of the interval.
        scale: f64,
        /// The first element of the interval.
        first: f64,
        /// The last element of the interval.
        last: f64,
    },
    /// `mean + normal * deviation`.
    Normal {
        /// The mean.
        mean: f64,
        /// The standard deviation.
        deviation: f64,
    },
    /// `low + bits * range / 2^64`, for 64 random bits.
    Integers {
        /// The lower bound.
        low: i64,
        /// The number of integers; 0 is 2^64.
        range: u64,
    },
    /// `one` if a word is below the threshold, else 0.
    Bernoulli {
        /// The threshold, up to 2^32.
        threshold: u64,
        /// The bits of 1.
        one: u64,
    },
}

/// Parameters of the kernels; mirrors `Draw` in `random.cu`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Params {
    floats: [f64; 4],
    ints: [u64; 2],
}

impl Distribution {
    /// Returns the name.
    pub fn name(&self) -> &'static str {
        match self {
            Distribution::Uniform { .. } => "uniform",
            Distribution::Normal { .. } => "normal",
            Distribution::Integers { .. } => "integers",
            Distribution::Bernoulli { .. } => "bernoulli",
        }
    }

    /// Returns the number of elements that a block of four words gives: element `i` is from block `i / elements_per_block`.
    pub fn elements_per_block(&self, dtype: DType) -> usize {
        match self {
            Distribution::Integers { .. } => 2,
            Distribution::Uniform { .. } | Distribution::Normal { .. } if dtype == DType::F64 => 2,
            _ => 4,
        }
    }

    /// Returns the parameters for elements of a type. Fails if the type does not fit the distribution or its parameters.
    pub fn draw(&self, dtype: DType) -> Result<Draw> {
        let op = self.name();
        let bad = |reason: String| Error::BadArgument { op: op.to_owned(), reason };
        let (integer, float) = (INTEGERS.contains(&dtype), FLOATS.contains(&dtype));
        let (fits, expected) = match self {
            Distribution::Integers { .. } => (integer, "u8, i16, i32, u32 or i64"),
            Distribution::Bernoulli { .. } => (integer || float, "u8, i16, i32, u32, i64, f32, f16, bf16 or f64"),
            _ => (float, "f32, f16, bf16 or f64"),
        };
        if !fits {
            return Err(dtype_error(op, "result", dtype, expected));
        }
        match *self {
            Distribution::Uniform { low, high } => {
                let (first, last) = (at_least(low, dtype), below(high, dtype));
                let scale = if dtype == DType::F64 { high - low } else { f64::from((high - low) as f32) };
                if first.is_nan() || last.is_nan() || first > last {
                    return Err(bad(format!("expected low < high with at least one {dtype} value in the range, got {low:?}..{high:?}")));
                }
                if nearest(low, dtype).is_infinite() || nearest(high, dtype).is_infinite() || scale.is_infinite() {
                    return Err(bad(format!("{low:?}..{high:?} exceeds the range of {dtype}")));
                }
                Ok(Draw::Uniform { low: if dtype == DType::F64 { low } else { f64::from(low as f32) }, scale, first, last })
            }
            Distribution::Normal { mean, deviation } => {
                if !(mean.is_finite() && deviation.is_finite() && deviation >= 0.0) {
                    return Err(bad(format!(
                        "expected a finite mean and a finite standard deviation >= 0, got {mean:?} and {deviation:?}"
                    )));
                }
                Ok(Draw::Normal { mean, deviation })
            }
            Distribution::Integers { low, high } => {
                let (least, most) = dtype.int_range().unwrap_or((0, 0));
                if low >= high || low < least || high - 1 > most {
                    return Err(bad(format!("expected low < high within {least}..={most} ({dtype}), got {low}..{high}")));
                }
                Ok(Draw::Integers { low: low as i64, range: (high - low) as u64 })
            }
            Distribution::Bernoulli { probability } => {
                if !(0.0..=1.0).contains(&probability) {
                    return Err(bad(format!("expected a probability from 0 to 1, got {probability:?}")));
                }
                let threshold = (probability * 4_294_967_296.0).round() as u64;
                Ok(Draw::Bernoulli { threshold, one: Scalar::Int(1).to_bits(dtype) })
            }
        }
    }

    fn program(&self, dtype: DType) -> Program {
        let ty = if matches!(self, Distribution::Bernoulli { .. }) { bits_type(dtype) } else { dtype.name() };
        Program::new(&RANDOM, self.name(), &[ty], &[])
    }
}

impl From<Draw> for Params {
    fn from(draw: Draw) -> Params {
        let (floats, ints) = match draw {
            Draw::Uniform { low, scale, first, last } => ([low, scale, first, last], [0; 2]),
            Draw::Normal { mean, deviation } => ([mean, deviation, 0.0, 0.0], [0; 2]),
            Draw::Integers { low, range } => ([0.0; 4], [low as u64, range]),
            Draw::Bernoulli { threshold, one } => ([0.0; 4], [threshold, one]),
        };
        Params { floats, ints }
    }
}

/// The nearest number of a float type.
fn nearest(value: f64, dtype: DType) -> f64 {
    decoded(Scalar::Float(value).to_bits(dtype), dtype)
}

fn decoded(bits: u64, dtype: DType) -> f64 {
    match dtype {
        DType::F16 => half::f16::from_bits(bits as u16).to_f64(),
        DType::Bf16 => half::bf16::from_bits(bits as u16).to_f64(),
        DType::F32 => f32::from_bits(bits as u32).into(),
        _ => f64::from_bits(bits),
    }
}

/// The least number of a float type that is not below a value.
fn at_least(value: f64, dtype: DType) -> f64 {
    let near = nearest(value, dtype);
    if near >= value || near.is_nan() {
        return near;
    }
    // Bits of positive numbers are in their order, those of negative ones in the opposite one.
    let bits = Scalar::Float(near).to_bits(dtype);
    decoded(if near >= 0.0 { Scalar::Float(near.abs()).to_bits(dtype) + 1 } else { bits - 1 }, dtype)
}

/// The largest number of a float type that is below a value.
fn below(value: f64, dtype: DType) -> f64 {
    let near = nearest(value, dtype);
    if near < value || near.is_nan() {
        return near;
    }
    let bits = Scalar::Float(near.abs()).to_bits(dtype);
    match near {
        0.0 => -decoded(1, dtype),
        0.0.. => decoded(bits - 1, dtype),
        _ => -decoded(bits + 1, dtype),
    }
}

impl Kernels {
    /// Fills `out` with random elements. In row-major order, element `i` depends on the distribution, `at` and `i` only, bit for bit on
    /// every device (normal `f64` within 4 units of the last place).
    ///
    /// The next call continues at `at.position` plus the number of elements divided by [`Distribution::elements_per_block`], rounded up.
    pub fn random(&self, stream: &Stream, distribution: &Distribution, at: Philox, out: &mut ViewMut<'_>) -> Result<()> {
        let (op, out) = (distribution.name(), out.as_view());
        self.check_devices(op, stream, [("result", out)].into_iter())?;
        let params = Params::from(distribution.draw(out.dtype())?);
        if out.layout().is_empty() {
            return Ok(());
        }
        let kernels = self.load(&distribution.program(out.dtype()))?;
        let (memory, n) = (Arg::from(out.start()), out.layout().len() as u64);
        let (at, params) = (Arg::value(&at), Arg::value(&params));
        let threads = |each: usize| {
            let blocks = n.div_ceil(each as u64).div_ceil(BLOCK.into()).min((BLOCKS * self.device().info().compute_units.max(1)).into());
            Launch::new([blocks as u32, 1, 1], [BLOCK, 1, 1])
        };
        let launched = if out.layout().is_contiguous() && out.address().is_multiple_of(PACK as u64) {
            let launch = threads((PACK / out.dtype().size()).max(distribution.elements_per_block(out.dtype())));
            // SAFETY: the kernel was compiled for this type and takes these arguments; it writes the elements of a view that was checked
            // against its memory.
            unsafe { kernels[0].launch(stream, launch, (memory, at, params, n)) }
        } else {
            // Dimensions are sorted by the strides of the first operand: in row-major order.
            let operand = |layout: &Layout| {
                let mut strides = [0; MAX_DIMS];
                strides[..layout.strides().len()].copy_from_slice(layout.strides());
                Operand { address: 0, size: 1, strides }
            };
            let order = Layout::contiguous(out.layout().shape())?;
            let dims = to_dims(&merged(order.shape(), &[operand(&order), operand(out.layout())]));
            let launch = threads(distribution.elements_per_block(out.dtype()));
            // SAFETY: as above.
            unsafe { kernels[1].launch(stream, launch, (memory, at, params, Arg::value(&dims))) }
        };
        launched.map_err(launch_error(op))
    }

    /// Writes a random permutation of `0..n` to `n` elements of `u32` or `i64`: the order of `n` random 64-bit integers.
    ///
    /// It takes the blocks of as many [`Distribution::Integers`].
    pub fn permutation(&self, stream: &Stream, at: Philox, out: &mut ViewMut<'_>) -> Result<()> {
        let op = "permutation";
        let [n] = *out.layout().shape() else { return Err(shape_error(op, "result", &out.as_view(), "(elements)")) };
        self.check_devices(op, stream, [("result", out.as_view())].into_iter())?;
        let layout = Layout::contiguous(&[n])?;
        let mut keys = stream.alloc::<i64>(n).map_err(launch_error(op))?;
        self.random(stream, &Distribution::PERMUTATION_KEYS, at, &mut ViewMut::new(&mut keys, layout)?)?;
        self.argsort(stream, &View::new(&keys, layout)?, false, out)
    }
}

impl Distribution {
    /// The integers that [`Kernels::permutation`] sorts.
    pub const PERMUTATION_KEYS: Distribution = Distribution::Integers { low: i64::MIN as i128, high: i64::MAX as i128 + 1 };
}

/// Lists the programs.
pub(crate) fn programs() -> Vec<Program> {
    let mut programs = Vec::new();
    for dtype in FLOATS {
        programs.push(Distribution::Uniform { low: 0.0, high: 1.0 }.program(dtype));
        programs.push(Distribution::Normal { mean: 0.0, deviation: 1.0 }.program(dtype));
    }
    programs.extend(INTEGERS.map(|dtype| Distribution::PERMUTATION_KEYS.program(dtype)));
    programs.extend([DType::U8, DType::F16, DType::F32, DType::F64].map(|ty| Distribution::Bernoulli { probability: 0.5 }.program(ty)));
    programs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_those_of_the_published_test_vectors() {
        // Random123's kat_vectors, philox4x32 with 10 rounds: counter, key, words.
        for (counter, seed, words) in [
            ([0; 2], 0, [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([u64::MAX; 2], u64::MAX, [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            ([0x85a3_08d3_243f_6a88, 0x0370_7344_1319_8a2e], 0x299f_31d0_a409_3822, [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]),
        ] {
            let at = Philox { seed, stream: counter[1], position: counter[0] };
            assert_eq!(at.block(0), words, "{at:x?}");
            assert_eq!(Philox { position: counter[0].wrapping_sub(5), ..at }.block(5), words, "{at:x?}");
        }
    }

    #[test]
    fn intervals_end_at_elements_of_their_type() {
        let ends = |low, high, dtype| match (Distribution::Uniform { low, high }).draw(dtype) {
            Ok(Draw::Uniform { first, last, .. }) => (first, last),
            other => panic!("{low}..{high} of {dtype}: {other:?}"),
        };
        assert_eq!(ends(0.0, 1.0, DType::F16), (0.0, 1.0 - 2f64.powi(-11)));
        assert_eq!(ends(0.0, 1.0, DType::Bf16), (0.0, 1.0 - 2f64.powi(-8)));
        assert_eq!(ends(0.0, 1.0, DType::F32), (0.0, 1.0 - 2f64.powi(-24)));
        assert_eq!(ends(0.0, 1.0, DType::F64), (0.0, 1.0 - 2f64.powi(-53)));
        assert_eq!(ends(-1.0, 0.0, DType::F16), (-1.0, -(2f64.powi(-24))));
        assert_eq!(ends(-2.0, -1.0, DType::F16), (-2.0, -1.0 - 2f64.powi(-10)));
        // Bounds that f16 does not have.
        assert_eq!(ends(0.1, 1.0 + 2f64.powi(-13), DType::F16), (f64::from_bits(0x3fb9_9c00_0000_0000), 1.0));
        assert_eq!(ends(-1.0 - 2f64.powi(-13), -0.5, DType::F16), (-1.0, -0.5 - 2f64.powi(-11)));
    }

    #[test]
    fn parameters_that_do_not_fit_are_rejected() {
        let uniform = |low, high| Distribution::Uniform { low, high };
        let integers = |low, high| Distribution::Integers { low, high };
        for (distribution, dtype) in [
            (uniform(1.0, 1.0), DType::F64),
            (uniform(1.0, 0.0), DType::F32),
            (uniform(f64::NAN, 1.0), DType::F32),
            (uniform(0.0, f64::INFINITY), DType::F64),
            (uniform(0.0, 1e6), DType::F16),
            (uniform(-f64::MAX, f64::MAX), DType::F64),
            (uniform(1.0001, 1.0002), DType::F16),
            (integers(3, 3), DType::I32),
            (integers(0, 257), DType::U8),
            (integers(-1, 5), DType::U32),
            (integers(0, (1 << 63) + 1), DType::I64),
            (Distribution::Normal { mean: 0.0, deviation: -1.0 }, DType::F32),
            (Distribution::Normal { mean: f64::NAN, deviation: 1.0 }, DType::F32),
            (Distribution::Bernoulli { probability: 1.5 }, DType::U8),
            (Distribution::Bernoulli { probability: f64::NAN }, DType::U8),
        ] {
            assert!(matches!(distribution.draw(dtype), Err(Error::BadArgument { .. })), "{distribution:?} of {dtype}");
        }
        for (distribution, dtype) in
            [(uniform(0.0, 1.0), DType::I32), (integers(0, 2), DType::F32), (Distribution::Bernoulli { probability: 0.5 }, DType::F8E4M3)]
        {
            assert!(matches!(distribution.draw(dtype), Err(Error::WrongType { .. })), "{distribution:?} of {dtype}");
        }
        assert_eq!(Distribution::PERMUTATION_KEYS.draw(DType::I64).unwrap(), Draw::Integers { low: i64::MIN, range: 0 });
        assert_eq!(integers(0, 256).draw(DType::U8).unwrap(), Draw::Integers { low: 0, range: 256 });
    }
}
