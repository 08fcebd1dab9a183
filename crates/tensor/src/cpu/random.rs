//! Random elements, bit for bit those of `kernels/src/random/random.cu` (normal `f64` up to the last places).

use bytemuck::Pod;
use half::{bf16, f16};
use warpwave_kernels::{DType, Distribution, Draw, Philox};

use super::ops::by_rows;
use super::simd::{Isa, Kernel, Simd, dispatch};
use super::values;
use crate::backend::OperandMut;
use crate::error::Result;

/// Elements of a task, whole blocks of each kind.
const ROW: usize = 4096;

/// Fills a slice with the elements of blocks: `EACH` of each.
struct Fill<'a, T, const EACH: usize, F> {
    at: Philox,
    first: u64,
    of_block: F,
    out: &'a mut [T],
}

impl<T: Pod, const EACH: usize, F: OfBlock<T, EACH>> Kernel for Fill<'_, T, EACH, F> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self) {
        let (blocks, rest) = self.out.as_chunks_mut::<EACH>();
        let last = self.first + blocks.len() as u64;
        for (block, out) in (self.first..).zip(blocks) {
            *out = self.of_block.elements(self.at.block(block));
        }
        if !rest.is_empty() {
            rest.copy_from_slice(&self.of_block.elements(self.at.block(last))[..rest.len()]);
        }
    }
}

/// The elements of a block of words. A trait, since closures cannot be forced inline.
trait OfBlock<T, const EACH: usize>: Copy + Sync {
    fn elements(&self, words: [u32; 4]) -> [T; EACH];
}

fn fill<T: Pod + Send, const EACH: usize>(at: Philox, of_block: impl OfBlock<T, EACH>, out: &mut OperandMut<'_>) -> Result<()> {
    let isa = Isa::current();
    values::write::<T>(out, |out| {
        by_rows(out, ROW, &|row, out| {
            let first = (row * (ROW / EACH)) as u64;
            dispatch(isa, Fill { at, first, of_block, out });
        });
        Ok(())
    })
}

#[inline(always)]
fn pairs([a, b, c, d]: [u32; 4]) -> [u64; 2] {
    [u64::from(b) << 32 | u64::from(a), u64::from(d) << 32 | u64::from(c)]
}

/// A float type that `f32` rounds to.
trait Float: Pod + Send {
    fn rounded(x: f32) -> Self;
}

impl Float for f32 {
    #[inline(always)]
    fn rounded(x: f32) -> f32 {
        x
    }
}

impl Float for f16 {
    #[inline(always)]
    fn rounded(x: f32) -> f16 {
        f16::from_f32(x)
    }
}

impl Float for bf16 {
    #[inline(always)]
    fn rounded(x: f32) -> bf16 {
        bf16::from_f32(x)
    }
}

/// Low bound, size of the interval, first and last element.
#[derive(Clone, Copy)]
struct Uniform<M>([M; 4]);

impl<T: Float> OfBlock<T, 4> for Uniform<f32> {
    #[inline(always)]
    fn elements(&self, words: [u32; 4]) -> [T; 4] {
        let [low, scale, first, last] = self.0;
        words.map(|word| T::rounded(((word >> 8) as f32 * 2f32.powi(-24) * scale + low).clamp(first, last)))
    }
}

impl OfBlock<f64, 2> for Uniform<f64> {
    #[inline(always)]
    fn elements(&self, words: [u32; 4]) -> [f64; 2] {
        let [low, scale, first, last] = self.0;
        pairs(words).map(|bits| ((bits >> 11) as f64 * 2f64.powi(-53) * scale + low).clamp(first, last))
    }
}

/// Mean and deviation.
#[derive(Clone, Copy)]
struct Normal<M>([M; 2]);

/// The natural logarithm of 2 in its first ten bits: multiples by exponents are exact.
const LN_2_HIGH: f32 = 355.0 / 512.0;

/// Two normal numbers of a radius and an angle (Box-Muller), in the operations of the kernel: all are rounded as IEEE 754 says.
#[inline(always)]
fn box_muller(first: u32, second: u32) -> [f32; 2] {
    let bits = (first as f32).mul_add(2.328_306_4e-10, 1.164_153_2e-10).to_bits();
    let whole = bits.wrapping_sub(0x3f35_04f3) & 0xff80_0000;
    let (exponent, t) = ((whole as i32 >> 23) as f32, f32::from_bits(bits.wrapping_sub(whole)) - 1.0);
    let square = t * t;
    let p = 0.067_466_01f32.mul_add(t, -0.116_756_41);
    let p = p.mul_add(t, 0.118_881_75);
    let p = p.mul_add(t, -0.124_055_915);
    let p = p.mul_add(t, 0.142_195_51);
    let p = p.mul_add(t, -0.166_679_96);
    let p = p.mul_add(t, 0.200_021_19);
    let p = p.mul_add(t, -0.250_000_1);
    let p = p.mul_add(t, 0.333_333_13);
    let rest = square.mul_add(-0.5, exponent.mul_add(-0.000_212_194_44, t * square * p));
    let radius = (-2.0 * exponent.mul_add(LN_2_HIGH, t + rest)).sqrt();
    let quarter = second.wrapping_add(0x2000_0000) >> 30;
    let left = second.wrapping_sub(quarter << 30) as i32 as f32;
    let angle = left.mul_add(1.462_918_1e-9, left * -4.070_940_3e-17);
    let u = angle * angle;
    let sine = u.mul_add(-0.000_195_172_98, 0.008_332_178).mul_add(u, -0.166_666_55).mul_add(angle * u, angle);
    let cosine = u.mul_add(2.443_845e-5, -0.001_388_736_8).mul_add(u, 0.041_666_646).mul_add(u, -0.5).mul_add(u, 1.0);
    rotated(quarter, radius, sine, cosine)
}

fn box_muller_f64(first: u64, second: u64) -> [f64; 2] {
    let radius = (-2.0 * (((first >> 11) + 1) as f64 * 2f64.powi(-53)).ln()).sqrt();
    let quarter = second.wrapping_add(1 << 61) >> 62;
    let angle = second.wrapping_sub(quarter << 62) as i64 as f64 * (std::f64::consts::FRAC_PI_2 * 2f64.powi(-62));
    rotated(quarter as u32, radius, angle.sin(), angle.cos())
}

/// Cosine and sine of an angle plus a number of quarter turns, times the radius.
#[inline(always)]
fn rotated<M: Copy + std::ops::Mul<Output = M> + std::ops::Neg<Output = M>>(quarter: u32, radius: M, sine: M, cosine: M) -> [M; 2] {
    let (c, s) = if quarter & 1 == 1 { (sine, cosine) } else { (cosine, sine) };
    let signed = |x: M, negative: bool| if negative { -x } else { x };
    [radius * signed(c, (quarter + 1) & 2 != 0), radius * signed(s, quarter & 2 != 0)]
}

impl<T: Float> OfBlock<T, 4> for Normal<f32> {
    #[inline(always)]
    fn elements(&self, [a, b, c, d]: [u32; 4]) -> [T; 4] {
        let [mean, deviation] = self.0;
        let ([x, y], [z, w]) = (box_muller(a, b), box_muller(c, d));
        [x, y, z, w].map(|normal| T::rounded(normal.mul_add(deviation, mean)))
    }
}

impl OfBlock<f64, 2> for Normal<f64> {
    #[inline(always)]
    fn elements(&self, words: [u32; 4]) -> [f64; 2] {
        let ([mean, deviation], [first, second]) = (self.0, pairs(words));
        box_muller_f64(first, second).map(|normal| normal.mul_add(deviation, mean))
    }
}

/// The lowest integer, and how many there are; 0 is 2^64.
#[derive(Clone, Copy)]
struct Integers(i64, u64);

macro_rules! integers {
    ($($ty:ty)*) => { $(
        impl OfBlock<$ty, 2> for Integers {
            #[inline(always)]
            fn elements(&self, words: [u32; 4]) -> [$ty; 2] {
                let Integers(low, range) = *self;
                let scaled = |bits: u64| if range == 0 { bits } else { ((u128::from(bits) * u128::from(range)) >> 64) as u64 };
                pairs(words).map(|bits| low.wrapping_add(scaled(bits) as i64) as $ty)
            }
        }
    )* };
}
integers!(u8 i16 i32 u32 i64);

/// The threshold of words, and the element below it.
#[derive(Clone, Copy)]
struct Bernoulli<T>(u64, T);

impl<T: Pod + Sync> OfBlock<T, 4> for Bernoulli<T> {
    #[inline(always)]
    fn elements(&self, words: [u32; 4]) -> [T; 4] {
        words.map(|word| if u64::from(word) < self.0 { self.1 } else { T::zeroed() })
    }
}

pub(super) fn random(distribution: &Distribution, at: Philox, out: &mut OperandMut<'_>) -> Result<()> {
    match (distribution.draw(out.dtype)?, out.dtype) {
        (Draw::Uniform { low, scale, first, last }, dtype) => {
            let wide = Uniform([low, scale, first, last]);
            let narrow = Uniform(wide.0.map(|x| x as f32));
            match dtype {
                DType::F32 => fill::<f32, 4>(at, narrow, out),
                DType::F16 => fill::<f16, 4>(at, narrow, out),
                DType::Bf16 => fill::<bf16, 4>(at, narrow, out),
                _ => fill(at, wide, out),
            }
        }
        (Draw::Normal { mean, deviation }, dtype) => {
            let narrow = Normal([mean as f32, deviation as f32]);
            match dtype {
                DType::F32 => fill::<f32, 4>(at, narrow, out),
                DType::F16 => fill::<f16, 4>(at, narrow, out),
                DType::Bf16 => fill::<bf16, 4>(at, narrow, out),
                _ => fill(at, Normal([mean, deviation]), out),
            }
        }
        (Draw::Integers { low, range }, dtype) => {
            let integers = Integers(low, range);
            match dtype {
                DType::U8 => fill::<u8, 2>(at, integers, out),
                DType::I16 => fill::<i16, 2>(at, integers, out),
                DType::I32 => fill::<i32, 2>(at, integers, out),
                DType::U32 => fill::<u32, 2>(at, integers, out),
                _ => fill::<i64, 2>(at, integers, out),
            }
        }
        (Draw::Bernoulli { threshold, one }, dtype) => match dtype.size() {
            1 => fill(at, Bernoulli(threshold, one as u8), out),
            2 => fill(at, Bernoulli(threshold, one as u16), out),
            4 => fill(at, Bernoulli(threshold, one as u32), out),
            _ => fill(at, Bernoulli(threshold, one), out),
        },
    }
}

/// The order of as many random integers.
pub(super) fn permutation(at: Philox, out: &mut OperandMut<'_>) -> Result<()> {
    // All 64-bit integers.
    let keys = Integers(i64::MIN, 0);
    values::write::<u32>(out, |out| {
        let key = |i: u32| -> i64 { keys.elements(at.block(u64::from(i) / 2))[i as usize % 2] };
        let mut order: Vec<(i64, u32)> = (0..out.len() as u32).map(|i| (key(i), i)).collect();
        order.sort_unstable();
        out.iter_mut().zip(order).for_each(|(out, (_, i))| *out = i);
        Ok(())
    })
}
