//! VOP3P: packed 16-bit operations, mixed precision, dot products, packed f32.

use super::convert::{E4M3, E5M2, ocp_to_f32};
use super::{Semantics, single};
use crate::exec::decoded::{OperandType, SourceKind, Step};
use crate::exec::float::{
    F16, HALF, SINGLE, bf16_to_f32, fma16, fused, max_num32, max32, maximum32, min_num32, min32, minimum32, narrow16,
};
use crate::exec::simd::simd_variants;
use crate::exec::valu::{apply_input_mode, apply_output_modifiers, source};
use crate::exec::wave::{LANES, Lanes, Wave};
use crate::exec::{Env, Outcome};

/// Returns a source's halves for the low and the high result, with neg applied.
#[inline(always)]
fn halves(s: &Step, n: usize, value: u32, float: bool) -> (u16, u16) {
    let (low, high) = (value >> (16 * (s.inst.op_sel >> n & 1)), value >> (16 * (s.inst.op_sel_hi >> n & 1)));
    if float {
        (low as u16 ^ u16::from(s.inst.neg >> n & 1) << 15, high as u16 ^ u16::from(s.inst.neg_hi >> n & 1) << 15)
    } else {
        (low as u16, high as u16)
    }
}

/// A packed 16-bit operation.
pub trait Halves: 'static {
    /// Whether neg applies.
    const FLOAT: bool;
    /// Computes one half.
    fn f(a: u16, b: u16, c: u16, clamp: bool) -> u16;
}

simd_variants!(on_halves, both, Halves);

#[inline(always)]
fn both<O: Halves>(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    let (mut a, mut b, mut c) = (Lanes([0; LANES]), Lanes([0; LANES]), Lanes([0; LANES]));
    let mut out = Lanes([0; LANES]);
    if O::FLOAT && !w.mode.is_default() {
        nondefault_mode(w, s, &mut out);
    } else {
        let (a, b, c) = (source(w, s, 0, &mut a), source(w, s, 1, &mut b), source(w, s, 2, &mut c));
        for lane in 0..LANES {
            let (al, ah) = halves(s, 0, a.0[lane], O::FLOAT);
            let (bl, bh) = halves(s, 1, b.0[lane], O::FLOAT);
            let (cl, ch) = halves(s, 2, c.0[lane], O::FLOAT);
            out.0[lane] = u32::from(O::f(al, bl, cl, s.inst.clamp)) | u32::from(O::f(ah, bh, ch, s.inst.clamp)) << 16;
        }
    }
    w.write_vgpr(s.inst.dst, &out);
    Outcome::Continue
}

/// Runs a packed f16 operation in a non-default `MODE`.
#[inline(never)]
fn nondefault_mode(w: &Wave, s: &Step, out: &mut Lanes) {
    let mut buffers = [Lanes([0; LANES]); 3];
    let [a, b, c] = [0, 1, 2].map(|n| *source(w, s, n, &mut buffers[n]));
    let mode = w.mode.round64();
    let one = |sources: [u16; 3]| {
        let halves = sources.map(|bits| F16(apply_input_mode(bits.into(), 16, w) as u16).to_f32());
        let ([a, b, _], [x, y, z]) = (halves, halves.map(f64::from));
        let bits = match s.inst.desc.semantics {
            "v_pk_fma_f16" | "v_pk_fmac_f16" => fused(x, y, z, HALF, mode),
            "v_pk_add_f16" => fused(x, 1.0, y, HALF, mode),
            "v_pk_mul_f16" => fused(x, y, 0f64.copysign(x) * 1f64.copysign(y), HALF, mode),
            "v_pk_min_f16" => F16::from_f32(min32(a, b)).0.into(),
            "v_pk_min_num_f16" => F16::from_f32(min_num32(a, b)).0.into(),
            "v_pk_max_num_f16" => F16::from_f32(max_num32(a, b)).0.into(),
            "v_pk_minimum_f16" => F16::from_f32(minimum32(a, b)).0.into(),
            "v_pk_maximum_f16" => F16::from_f32(maximum32(a, b)).0.into(),
            _ => F16::from_f32(max32(a, b)).0.into(),
        };
        apply_output_modifiers(bits, 16, w, s) as u32
    };
    for lane in 0..LANES {
        let [a, b, c] = [a, b, c].map(|lanes| lanes.0[lane]);
        let [(al, ah), (bl, bh), (cl, ch)] = [halves(s, 0, a, true), halves(s, 1, b, true), halves(s, 2, c, true)];
        out.0[lane] = one([al, bl, cl]) | one([ah, bh, ch]) << 16;
    }
}

#[inline(always)]
fn clamped(value: F16, clamp: bool) -> u16 {
    if !clamp {
        return value.0;
    }
    let wide = value.to_f32();
    if wide.is_nan() { 0 } else { F16::from_f32(wide.clamp(0.0, 1.0)).0 }
}

macro_rules! pairs {
    ($($name:ident, $float:literal, |$a:ident, $b:ident, $c:ident, $clamp:ident| $body:expr;)*) => {
        $(
            #[allow(non_camel_case_types)]
            struct $name;
            impl Halves for $name {
                const FLOAT: bool = $float;
                #[inline(always)]
                fn f($a: u16, $b: u16, $c: u16, $clamp: bool) -> u16 { $body }
            }
        )*
        fn find_pair(name: &str) -> Option<Semantics> {
            let variants = match name {
                $( stringify!($name) => on_halves::<$name>(), )*
                _ => return None,
            };
            let ty = if name.ends_with("_f16") { OperandType::B16 } else { OperandType::B32 };
            Some(Semantics { variants, types: [ty; 3], accumulate: false })
        }
    };
}

#[inline(always)]
fn f(bits: u16) -> f32 {
    F16(bits).to_f32()
}

fn i(bits: u16) -> i32 {
    i32::from(bits as i16)
}

/// Converts an integer result: wraps, or clamps to the range.
fn fit(value: i32, clamp: bool, signed: bool) -> u16 {
    match (clamp, signed) {
        (false, _) => value as u16,
        (true, true) => value.clamp(-0x8000, 0x7fff) as u16,
        (true, false) => value.clamp(0, 0xffff) as u16,
    }
}

pairs! {
    v_pk_mad_i16, false, |a, b, c, clamp| fit(i(a).wrapping_mul(i(b)).wrapping_add(i(c)), clamp, true);
    v_pk_mad_u16, false, |a, b, c, clamp| {
        let sum = u32::from(a) * u32::from(b) + u32::from(c);
        if clamp { sum.min(0xffff) as u16 } else { sum as u16 }
    };
    v_pk_mul_lo_u16, false, |a, b, _c, _clamp| a.wrapping_mul(b);
    v_pk_add_i16, false, |a, b, _c, clamp| fit(i(a) + i(b), clamp, true);
    v_pk_sub_i16, false, |a, b, _c, clamp| fit(i(a) - i(b), clamp, true);
    v_pk_add_u16, false, |a, b, _c, clamp| fit(i32::from(a) + i32::from(b), clamp, false);
    v_pk_sub_u16, false, |a, b, _c, clamp| fit(i32::from(a) - i32::from(b), clamp, false);
    v_pk_lshlrev_b16, false, |a, b, _c, _clamp| b << (a & 15);
    v_pk_lshrrev_b16, false, |a, b, _c, _clamp| b >> (a & 15);
    v_pk_ashrrev_i16, false, |a, b, _c, _clamp| (b as i16 >> (a & 15)) as u16;
    v_pk_max_i16, false, |a, b, _c, _clamp| i(a).max(i(b)) as u16;
    v_pk_min_i16, false, |a, b, _c, _clamp| i(a).min(i(b)) as u16;
    v_pk_max_u16, false, |a, b, _c, _clamp| a.max(b);
    v_pk_min_u16, false, |a, b, _c, _clamp| a.min(b);
    v_pk_fma_f16, true, |a, b, c, clamp| clamped(fma16(F16(a), F16(b), F16(c)), clamp);
    v_pk_add_f16, true, |a, b, _c, clamp| clamped(F16::from_f32(f(a) + f(b)), clamp);
    v_pk_mul_f16, true, |a, b, _c, clamp| clamped(F16::from_f32(f(a) * f(b)), clamp);
    v_pk_min_f16, true, |a, b, _c, clamp| clamped(F16::from_f32(min32(f(a), f(b))), clamp);
    v_pk_max_f16, true, |a, b, _c, clamp| clamped(F16::from_f32(max32(f(a), f(b))), clamp);
    v_pk_min_num_f16, true, |a, b, _c, clamp| clamped(F16::from_f32(min_num32(f(a), f(b))), clamp);
    v_pk_max_num_f16, true, |a, b, _c, clamp| clamped(F16::from_f32(max_num32(f(a), f(b))), clamp);
    v_pk_minimum_f16, true, |a, b, _c, clamp| clamped(F16::from_f32(minimum32(f(a), f(b))), clamp);
    v_pk_maximum_f16, true, |a, b, _c, clamp| clamped(F16::from_f32(maximum32(f(a), f(b))), clamp);
}

/// Returns a source of `v_fma_mix`: f32, or half a register as f16. `neg_hi` is abs here.
fn mixed(w: &Wave, s: &Step, n: usize) -> [f32; LANES] {
    let mut buffer = Lanes([0; LANES]);
    let is_half = s.inst.op_sel_hi >> n & 1 != 0;
    let raw = if s.kind[n] == SourceKind::Constant {
        let ty = if is_half { OperandType::B16 } else { OperandType::B32 };
        Lanes([crate::exec::decoded::constant(s.inst.src[n], s.inst.literal, ty) as u32; LANES])
    } else {
        *source(w, s, n, &mut buffer)
    };
    raw.0.map(|bits| {
        let mut value = match (is_half, s.inst.op_sel >> n & 1 != 0) {
            (false, _) => f32::from_bits(apply_input_mode(bits.into(), 32, w) as u32),
            (true, false) => f(apply_input_mode((bits & 0xffff).into(), 16, w) as u16),
            (true, true) => f(apply_input_mode((bits >> 16).into(), 16, w) as u16),
        };
        if s.inst.neg_hi >> n & 1 != 0 {
            value = value.abs();
        }
        if s.inst.neg >> n & 1 != 0 { -value } else { value }
    })
}

/// `v_fma_mix_f32`, `v_fma_mixlo_f16`, `v_fma_mixhi_f16`: computed in f32; the latter two round the result again, to f16.
fn mix(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    let (a, b, c) = (mixed(w, s, 0), mixed(w, s, 1), mixed(w, s, 2));
    let mut out = *w.vgpr(s.inst.dst);
    for lane in 0..LANES {
        let sum = match w.mode.round32() {
            0 => a[lane].mul_add(b[lane], c[lane]),
            mode => f32::from_bits(fused(a[lane].into(), b[lane].into(), c[lane].into(), SINGLE, mode) as u32),
        };
        let half = || apply_output_modifiers(narrow16(sum, w.mode.round64()).0.into(), 16, w, s) as u32;
        let old = out.0[lane];
        out.0[lane] = match s.inst.desc.semantics {
            "v_fma_mixlo_f16" => old & 0xffff_0000 | half(),
            "v_fma_mixhi_f16" => old & 0xffff | half() << 16,
            _ => apply_output_modifiers(sum.to_bits().into(), 32, w, s) as u32,
        };
    }
    w.write_vgpr(s.inst.dst, &out);
    Outcome::Continue
}

fn signed_parts(value: u32, bits: u32) -> impl Iterator<Item = i64> {
    (0..32 / bits).map(move |n| i64::from((value << (32 - bits * (n + 1))) as i32 >> (32 - bits)))
}

fn unsigned_parts(value: u32, bits: u32) -> impl Iterator<Item = i64> {
    (0..32 / bits).map(move |n| i64::from(value >> (bits * n) & ((1 << bits) - 1)))
}

fn dot(a: impl Iterator<Item = i64>, b: impl Iterator<Item = i64>) -> i64 {
    a.zip(b).map(|(x, y)| x * y).sum()
}

/// Dot product of two i16 pairs, accumulated.
pub fn dot2_i16(a: u32, b: u32, c: u32) -> u32 {
    (dot(signed_parts(a, 16), signed_parts(b, 16)) as u32).wrapping_add(c)
}

/// Dot product of four i8 pairs, accumulated.
pub fn dot4_i8(a: u32, b: u32, c: u32) -> u32 {
    (dot(signed_parts(a, 8), signed_parts(b, 8)) as u32).wrapping_add(c)
}

/// Dot product of eight i4 pairs, accumulated.
pub fn dot8_i4(a: u32, b: u32, c: u32) -> u32 {
    (dot(signed_parts(a, 4), signed_parts(b, 4)) as u32).wrapping_add(c)
}

/// Dot product of two f16 pairs, accumulated in f32.
pub fn dot2_f16(a: u32, b: u32, c: f32) -> f32 {
    let low = f64::from(f(a as u16)) * f64::from(f(b as u16));
    let high = f64::from(f((a >> 16) as u16)) * f64::from(f((b >> 16) as u16));
    (low + high + f64::from(c)) as f32
}

/// Integer dot products with clamp.
fn dots(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    let (mut a, mut b, mut c) = (Lanes([0; LANES]), Lanes([0; LANES]), Lanes([0; LANES]));
    let (a, b, c) = (*source(w, s, 0, &mut a), *source(w, s, 1, &mut b), *source(w, s, 2, &mut c));
    let mut out = Lanes([0; LANES]);
    let (signed, bits) = match s.inst.desc.semantics {
        "v_dot2_i32_i16" => (true, 16),
        "v_dot2_u32_u16" => (false, 16),
        "v_dot4_i32_i8" => (true, 8),
        "v_dot4_u32_u8" => (false, 8),
        "v_dot8_i32_i4" => (true, 4),
        _ => (false, 4),
    };
    for lane in 0..LANES {
        let (x, y, z) = (a.0[lane], b.0[lane], c.0[lane]);
        let sum = if signed {
            dot(signed_parts(x, bits), signed_parts(y, bits)) + i64::from(z as i32)
        } else {
            dot(unsigned_parts(x, bits), unsigned_parts(y, bits)) + i64::from(z)
        };
        out.0[lane] = match (s.inst.clamp, signed) {
            (false, _) => sum as u32,
            (true, true) => sum.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as u32,
            (true, false) => sum.clamp(0, i64::from(u32::MAX)) as u32,
        };
    }
    w.write_vgpr(s.inst.dst, &out);
    Outcome::Continue
}

/// `v_dot4_i32_iu8` and `v_dot8_i32_iu4`: neg says whether each source is signed.
fn mixed_sign_dots(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    let (mut a, mut b, mut c) = (Lanes([0; LANES]), Lanes([0; LANES]), Lanes([0; LANES]));
    let (a, b, c) = (*source(w, s, 0, &mut a), *source(w, s, 1, &mut b), *source(w, s, 2, &mut c));
    let bits = if s.inst.desc.semantics == "v_dot4_i32_iu8" { 8 } else { 4 };
    let parts = |n: usize, value: u32| -> Vec<i64> {
        if s.inst.neg >> n & 1 != 0 { signed_parts(value, bits).collect() } else { unsigned_parts(value, bits).collect() }
    };
    let out = Lanes(std::array::from_fn(|lane| {
        let sum = dot(parts(0, a.0[lane]).into_iter(), parts(1, b.0[lane]).into_iter()) + i64::from(c.0[lane] as i32);
        if s.inst.clamp { sum.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as u32 } else { sum as u32 }
    }));
    w.write_vgpr(s.inst.dst, &out);
    Outcome::Continue
}

/// `v_dot2_f32_bf16` and `v_dot4_f32_fp8_bf8` and the like: products are exact, the sum rounds once.
fn small_float_dots(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    let (mut a, mut b, mut c) = (Lanes([0; LANES]), Lanes([0; LANES]), Lanes([0; LANES]));
    let (a, b, c) = (*source(w, s, 0, &mut a), *source(w, s, 1, &mut b), *source(w, s, 2, &mut c));
    let (bits, types) = match s.inst.desc.semantics.strip_prefix("v_dot4_f32_") {
        Some(types) => (8, types.split_once('_').unwrap_or((types, types))),
        None => (16, ("bf16", "bf16")),
    };
    let parts = |value: u32, ty: &str, n: usize| -> Vec<f64> {
        let (low, high) = halves(s, n, value, true);
        let part = |at: u32| {
            let number = match ty {
                "fp8" => ocp_to_f32((value >> (bits * at)) as u8, E4M3),
                "bf8" => ocp_to_f32((value >> (bits * at)) as u8, E5M2),
                _ => bf16_to_f32(if at == 0 { low } else { high }),
            };
            f64::from(number)
        };
        (0..32 / bits).map(part).collect()
    };
    let out = Lanes(std::array::from_fn(|lane| {
        let (x, y) = (parts(a.0[lane], types.0, 0), parts(b.0[lane], types.1, 1));
        let mut addend = f64::from(f32::from_bits(c.0[lane]));
        if s.inst.neg_hi & 4 != 0 {
            addend = addend.abs();
        }
        if s.inst.neg & 4 != 0 {
            addend = -addend;
        }
        let sum = x.iter().zip(&y).fold(addend, |sum, (x, y)| sum + x * y) as f32;
        apply_output_modifiers(sum.to_bits().into(), 32, w, s) as u32
    }));
    w.write_vgpr(s.inst.dst, &out);
    Outcome::Continue
}

fn dot2_halves(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    let (mut a, mut b, mut c) = (Lanes([0; LANES]), Lanes([0; LANES]), Lanes([0; LANES]));
    let (a, b, c) = (*source(w, s, 0, &mut a), *source(w, s, 1, &mut b), *source(w, s, 2, &mut c));
    let mut out = Lanes([0; LANES]);
    for lane in 0..LANES {
        let join = |(low, high): (u16, u16)| u32::from(low) | u32::from(high) << 16;
        let (x, y) = (join(halves(s, 0, a.0[lane], true)), join(halves(s, 1, b.0[lane], true)));
        let mut addend = f32::from_bits(c.0[lane]);
        if s.inst.neg & 4 != 0 {
            addend = -addend;
        }
        let sum = dot2_f16(x, y, addend);
        out.0[lane] = if s.inst.clamp { if sum.is_nan() { 0.0 } else { sum.clamp(0.0, 1.0) } } else { sum }.to_bits();
    }
    w.write_vgpr(s.inst.dst, &out);
    Outcome::Continue
}

/// A packed f32 operation.
pub trait Pair: 'static {
    /// Computes one of the two results.
    fn f(a: f32, b: f32, c: f32) -> f32;
    /// The number of sources.
    const SOURCES: usize;
}

/// Returns the register of a source for the low result (`select` is `op_sel`) or the high one (`op_sel_hi`).
#[inline(always)]
fn half_of_pair<'a>(w: &'a Wave, s: &Step, n: usize, select: u8, buffer: &'a mut Lanes) -> &'a Lanes {
    let number = s.inst.src[n] + u16::from(select >> n & 1);
    match s.kind[n] {
        SourceKind::Vector => return w.vgpr(number),
        SourceKind::Scalar => *buffer = Lanes([w.scalar(number); LANES]),
        SourceKind::Constant => *buffer = Lanes([s.constant[n] as u32; LANES]),
    }
    buffer
}

simd_variants!(on_pairs, pairs_f32, Pair);

#[inline(always)]
fn pairs_f32<O: Pair>(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    let mut out = [Lanes([0; LANES]); 2];
    for (out, (select, negate)) in out.iter_mut().zip([(s.inst.op_sel, s.inst.neg), (s.inst.op_sel_hi, s.inst.neg_hi)]) {
        let (mut a, mut b, mut c) = (Lanes([0; LANES]), Lanes([0; LANES]), Lanes([0; LANES]));
        let a = half_of_pair(w, s, 0, select, &mut a);
        let b = half_of_pair(w, s, 1, select, &mut b);
        let c = if O::SOURCES == 3 { half_of_pair(w, s, 2, select, &mut c) } else { &c };
        let sign = [0, 1, 2].map(|n| u32::from(negate >> n & 1) << 31);
        if !w.mode.is_default() {
            nondefault_mode_pair(w, s, [a, b, c], sign, out);
            continue;
        }
        for lane in 0..LANES {
            let value = O::f(f32::from_bits(a.0[lane] ^ sign[0]), f32::from_bits(b.0[lane] ^ sign[1]), f32::from_bits(c.0[lane] ^ sign[2]));
            out.0[lane] = value.to_bits();
        }
        if s.inst.clamp {
            out.0.iter_mut().for_each(|bits| {
                let value = f32::from_bits(*bits);
                *bits = if value.is_nan() { 0 } else { value.clamp(0.0, 1.0).to_bits() };
            });
        }
    }
    w.write_vgpr(s.inst.dst, &out[0]);
    w.write_vgpr(s.inst.dst + 1, &out[1]);
    Outcome::Continue
}

/// Runs one half of a packed f32 operation in a non-default `MODE`.
#[inline(never)]
fn nondefault_mode_pair(w: &Wave, s: &Step, sources: [&Lanes; 3], sign: [u32; 3], out: &mut Lanes) {
    for lane in 0..LANES {
        let [a, b, c] =
            [0, 1, 2].map(|n| f64::from(f32::from_bits(apply_input_mode(u64::from(sources[n].0[lane] ^ sign[n]), 32, w) as u32)));
        let mode = w.mode.round32();
        let bits = match s.inst.desc.semantics {
            "v_pk_fma_f32" => fused(a, b, c, SINGLE, mode),
            "v_pk_mul_f32" => fused(a, b, 0f64.copysign(a) * 1f64.copysign(b), SINGLE, mode),
            _ => fused(a, 1.0, b, SINGLE, mode),
        };
        out.0[lane] = apply_output_modifiers(bits, 32, w, s) as u32;
    }
}

struct Fma;
impl Pair for Fma {
    const SOURCES: usize = 3;
    #[inline(always)]
    fn f(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }
}

struct Mul;
impl Pair for Mul {
    const SOURCES: usize = 2;
    #[inline(always)]
    fn f(a: f32, b: f32, _: f32) -> f32 {
        a * b
    }
}

struct Add;
impl Pair for Add {
    const SOURCES: usize = 2;
    #[inline(always)]
    fn f(a: f32, b: f32, _: f32) -> f32 {
        a + b
    }
}

/// `v_pk_mov_b32`: the low result from the first source, the high one from the second, each by `op_sel`.
fn move_pair(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    let (mut a, mut b) = (Lanes([0; LANES]), Lanes([0; LANES]));
    let low = *half_of_pair(w, s, 0, s.inst.op_sel, &mut a);
    let high = *half_of_pair(w, s, 1, s.inst.op_sel, &mut b);
    w.write_vgpr(s.inst.dst, &low);
    w.write_vgpr(s.inst.dst + 1, &high);
    Outcome::Continue
}

/// Returns the semantics of the instruction called `name`.
pub fn find(name: &str) -> Option<Semantics> {
    if let Some(entry) = find_pair(name) {
        return Some(entry);
    }
    let types = [OperandType::B32; 3];
    Some(match name {
        "v_fma_mix_f32" | "v_fma_mixlo_f16" | "v_fma_mixhi_f16" => single(mix, types),
        "v_dot2_f32_f16" => single(dot2_halves, [OperandType::B16, OperandType::B16, OperandType::B32]),
        "v_dot2_i32_i16" | "v_dot2_u32_u16" | "v_dot4_i32_i8" | "v_dot4_u32_u8" | "v_dot8_i32_i4" | "v_dot8_u32_u4" => single(dots, types),
        "v_dot4_i32_iu8" | "v_dot8_i32_iu4" => single(mixed_sign_dots, types),
        "v_dot2_f32_bf16" | "v_dot4_f32_fp8_bf8" | "v_dot4_f32_bf8_fp8" | "v_dot4_f32_fp8_fp8" | "v_dot4_f32_bf8_bf8" => {
            single(small_float_dots, types)
        }
        "v_pk_fma_f32" => Semantics { variants: on_pairs::<Fma>(), types, accumulate: false },
        "v_pk_mul_f32" => Semantics { variants: on_pairs::<Mul>(), types, accumulate: false },
        "v_pk_add_f32" => Semantics { variants: on_pairs::<Add>(), types, accumulate: false },
        "v_pk_mov_b32" => single(move_pair, types),
        _ => return None,
    })
}
