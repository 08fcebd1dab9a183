//! f32, f64 and f16 arithmetic.

use super::ops;
use super::power::{NO_NUMBER, exp2, log2};
use crate::exec::float::*;
use crate::exec::valu::Unused;

/// Flushes denormals, as unfused multiply-adds and approximations do in every `MODE`.
#[inline(always)]
fn zeroed(value: f32) -> f32 {
    f32::from_bits(flush32(value.to_bits()))
}

/// Computes an unfused multiply-add: both operations round.
#[inline(always)]
fn mad32(a: f32, b: f32, c: f32) -> f32 {
    zeroed(zeroed(zeroed(a) * zeroed(b)) + zeroed(c))
}

/// Multiplies; zero times anything is zero.
#[inline(always)]
fn legacy(a: f32, b: f32) -> f32 {
    if a == 0.0 || b == 0.0 { 0.0 } else { a * b }
}

/// Replaces a fraction that was rounded up to 1 by the largest number below it; NaN stays NaN.
fn below_one<T: PartialOrd>(fraction: T, most: T) -> T {
    if fraction > most { most } else { fraction }
}

fn fract32(value: f32) -> f32 {
    below_one(value - value.floor(), f32::from_bits(0x3f7f_ffff))
}

fn fract64(value: f64) -> f64 {
    below_one(value - value.floor(), f64::from_bits(0x3fef_ffff_ffff_ffff))
}

fn fused32(a: f32, b: f32, c: f32, mode: u32) -> f32 {
    f32::from_bits(fused(a.into(), b.into(), c.into(), SINGLE, mode) as u32)
}

fn sum32(a: f32, b: f32, mode: u32) -> f32 {
    fused32(a, 1.0, b, mode)
}

fn product32(a: f32, b: f32, mode: u32) -> f32 {
    // Adding a zero of the product's sign changes nothing.
    fused32(a, b, 0f32.copysign(f32::from_bits(a.to_bits() ^ b.to_bits())), mode)
}

/// [`legacy`] in rounding mode `mode`.
fn legacy_rounded(a: f32, b: f32, mode: u32) -> f32 {
    if a == 0.0 || b == 0.0 { 0.0 } else { product32(a, b, mode) }
}

/// [`mad32`] in rounding mode `mode`.
fn mad32_rounded(a: f32, b: f32, c: f32, mode: u32) -> f32 {
    zeroed(sum32(zeroed(product32(zeroed(a), zeroed(b), mode)), zeroed(c), mode))
}

fn fused64(a: f64, b: f64, c: f64, mode: u32) -> f64 {
    f64::from_bits(fused(a, b, c, DOUBLE, mode))
}

fn product64(a: f64, b: f64, mode: u32) -> f64 {
    fused64(a, b, 0f64.copysign(f64::from_bits(a.to_bits() ^ b.to_bits())), mode)
}

fn fused16(a: F16, b: F16, c: F16, mode: u32) -> F16 {
    F16(fused(wide(a), wide(b), wide(c), HALF, mode) as u16)
}

fn sum16(a: F16, b: F16, mode: u32) -> F16 {
    fused16(a, F16(0x3c00), b, mode)
}

fn product16(a: F16, b: F16, mode: u32) -> F16 {
    fused16(a, b, F16((a.0 ^ b.0) & 0x8000), mode)
}

/// Negates.
fn minus(value: F16) -> F16 {
    F16(value.0 ^ 0x8000)
}

fn mad16_rounded(a: F16, b: F16, c: F16, mode: u32) -> F16 {
    sum16(product16(a, b, mode), c, mode)
}

/// Computes sin(2π · `turns`); exact where the result is 0, 1 or -1.
fn sine(turns: f32) -> f32 {
    if turns.is_infinite() {
        return NO_NUMBER;
    }
    // Subtracting whole turns is exact; a zero keeps its sign.
    let wide = f64::from(turns);
    let part = if turns == 0.0 { wide } else { wide - wide.round_ties_even() };
    // Fold at the quarter turns, so that half a turn gives exactly 0.
    let folded = if part.abs() > 0.25 { 0.5f64.copysign(part) - part } else { part };
    (folded * std::f64::consts::TAU).sin() as f32
}

/// Computes cos(2π · `turns`), as [`sine`].
fn cosine(turns: f32) -> f32 {
    if turns.is_infinite() {
        return NO_NUMBER;
    }
    let wide = f64::from(turns);
    let part = (wide - wide.round_ties_even()).abs();
    // Near a quarter turn the sine of the remainder is more accurate; near 0 the cosine itself.
    if part > 0.125 { ((0.25 - part) * std::f64::consts::TAU).sin() as f32 } else { (part * std::f64::consts::TAU).cos() as f32 }
}

fn ldexp32(value: f32, exponent: i32) -> f32 {
    // f64 represents every f32 times a relevant power of two, so this rounds once.
    ldexp64(f64::from(value), exponent.clamp(-400, 400)) as f32
}

fn half(value: f32) -> F16 {
    F16::from_f32(value)
}

fn half_of(value: f64) -> F16 {
    F16::from_f64(value)
}

fn wide(value: F16) -> f64 {
    f64::from(value.to_f32())
}

fn min16(a: F16, b: F16) -> F16 {
    half(min32(a.to_f32(), b.to_f32()))
}

fn max16(a: F16, b: F16) -> F16 {
    half(max32(a.to_f32(), b.to_f32()))
}

/// Returns the median by the given minimum and maximum; with a NaN, the minimum.
fn median_by(a: f32, b: f32, c: f32, min: fn(f32, f32) -> f32, max: fn(f32, f32) -> f32) -> f32 {
    if a.is_nan() || b.is_nan() || c.is_nan() {
        return min(min(a, b), c);
    }
    let most = max(max(a, b), c);
    if most == a {
        max(b, c)
    } else if most == b {
        max(a, c)
    } else {
        max(a, b)
    }
}

fn median32(a: f32, b: f32, c: f32) -> f32 {
    median_by(a, b, c, min32, max32)
}

fn min_num16(a: F16, b: F16) -> F16 {
    half(min_num32(a.to_f32(), b.to_f32()))
}

fn max_num16(a: F16, b: F16) -> F16 {
    half(max_num32(a.to_f32(), b.to_f32()))
}

fn minimum16(a: F16, b: F16) -> F16 {
    half(minimum32(a.to_f32(), b.to_f32()))
}

fn maximum16(a: F16, b: F16) -> F16 {
    half(maximum32(a.to_f32(), b.to_f32()))
}

/// [`median32`] of gfx12.
fn median_num(a: f32, b: f32, c: f32) -> f32 {
    median_by(a, b, c, min_num32, max_num32)
}

/// Computes a fused multiply-add in which zero times anything is zero.
#[inline(always)]
fn legacy_fused(a: f32, b: f32, c: f32) -> f32 {
    if a == 0.0 || b == 0.0 { c } else { a.mul_add(b, c) }
}

fn legacy_fused_rounded(a: f32, b: f32, c: f32, mode: u32) -> f32 {
    if a == 0.0 || b == 0.0 { c } else { fused32(a, b, c, mode) }
}

/// The last step of a division: special values, else the quotient with the correct sign.
fn fixup32(quotient: f32, denominator: f32, numerator: f32) -> f32 {
    let sign = numerator.is_sign_negative() ^ denominator.is_sign_negative();
    let signed = |value: f32| if sign { -value } else { value };
    if numerator.is_nan() {
        f32::from_bits(quiet32(numerator.to_bits()))
    } else if denominator.is_nan() {
        f32::from_bits(quiet32(denominator.to_bits()))
    } else if (numerator == 0.0 && denominator == 0.0) || (numerator.is_infinite() && denominator.is_infinite()) {
        f32::from_bits(0xffc0_0000)
    } else if denominator == 0.0 || numerator.is_infinite() {
        signed(f32::INFINITY)
    } else if denominator.is_infinite() || numerator == 0.0 {
        signed(0.0)
    } else if quotient.is_nan() {
        // The estimate failed; hardware returns infinity.
        signed(f32::INFINITY)
    } else {
        let exponent = |value: f32| frexp_exponent(f64::from(value));
        match exponent(numerator) - exponent(denominator) {
            ..-150 => signed(0.0),
            129.. => signed(f32::INFINITY),
            _ => signed(quotient.abs()),
        }
    }
}

/// As [`fixup32`].
fn fixup64(quotient: f64, denominator: f64, numerator: f64) -> f64 {
    let sign = numerator.is_sign_negative() ^ denominator.is_sign_negative();
    let signed = |value: f64| if sign { -value } else { value };
    if numerator.is_nan() {
        f64::from_bits(quiet64(numerator.to_bits()))
    } else if denominator.is_nan() {
        f64::from_bits(quiet64(denominator.to_bits()))
    } else if (numerator == 0.0 && denominator == 0.0) || (numerator.is_infinite() && denominator.is_infinite()) {
        f64::from_bits(0xfff8_0000_0000_0000)
    } else if denominator == 0.0 || numerator.is_infinite() {
        signed(f64::INFINITY)
    } else if denominator.is_infinite() || numerator == 0.0 {
        signed(0.0)
    } else if quotient.is_nan() {
        // The estimate failed; hardware returns infinity.
        signed(f64::INFINITY)
    } else {
        match frexp_exponent(numerator) - frexp_exponent(denominator) {
            ..-1075 => signed(0.0),
            1025.. => signed(f64::INFINITY),
            _ => signed(quotient.abs()),
        }
    }
}

fn fixup16(quotient: F16, denominator: F16, numerator: F16) -> F16 {
    let (d, n) = (denominator.to_f32(), numerator.to_f32());
    let special = fixup32(1.0, d, n);
    if n.is_nan() || d.is_nan() || special.is_nan() || special.is_infinite() || special == 0.0 {
        return half(special);
    }
    let sign = (numerator.0 ^ denominator.0) & 0x8000;
    F16(quotient.0 & 0x7fff | sign)
}

/// Bits of 2/π, most significant first: the multiplier of argument reduction.
const TWO_OVER_PI: [u64; 19] = [
    0xa2f9_836e_4e44_1529,
    0xfc27_57d1_f534_ddc0,
    0xdb62_9599_3c43_9041,
    0xfe51_63ab_debb_c561,
    0xb724_6e3a_424d_d2e0,
    0x0649_2eea_09d1_921c,
    0xfe1d_eb1c_b129_a73e,
    0xe882_35f5_2ebb_4484,
    0xe99c_7026_b45f_7e41,
    0x3991_d639_8353_39f4,
    0x9c84_5f8b_bdf9_283b,
    0x1ff8_97ff_de05_980f,
    0xef2f_118b_5a0a_6d1f,
    0x6d36_7ecf_27cb_09b7,
    0x4f46_3f66_9e5f_ea2d,
    0x7527_bac7_ebe5_f17b,
    0x3d07_39f7_8a52_92ea,
    0x6bfb_5fb1_1f8d_5d08,
    0x5603_3046_fc7b_6bab,
];

/// Returns the segment of 2/π that reduces an argument of the magnitude of `value`.
fn trig_segment(value: f64, segment: u32) -> f64 {
    let exponent = (value.to_bits() >> 52 & 0x7ff) as i32;
    let mut shift = (segment & 31) * 53;
    if exponent > 1077 {
        shift += (exponent - 1077) as u32;
    }
    // 53 bits of the constant, starting at `shift`.
    let mut bits = 0u64;
    for n in 0..53 {
        let at = shift + n;
        let word = TWO_OVER_PI.get((at / 64) as usize).copied().unwrap_or(0);
        bits = bits << 1 | word >> (63 - at % 64) & 1;
    }
    let mut scale = -53 - shift as i32;
    if exponent >= 1968 {
        scale += 128;
    }
    ldexp64(bits as f64, scale)
}

fn cube(a: f32, b: f32, c: f32) -> (f32, f32, f32, f32) {
    let (x, y, z) = (a.abs(), b.abs(), c.abs());
    if z >= x && z >= y {
        (if c < 0.0 { 5.0 } else { 4.0 }, if c < 0.0 { -a } else { a }, -b, 2.0 * c)
    } else if y >= x {
        (if b < 0.0 { 3.0 } else { 2.0 }, a, if b < 0.0 { -c } else { c }, 2.0 * b)
    } else {
        (if a < 0.0 { 1.0 } else { 0.0 }, if a < 0.0 { c } else { -c }, -b, 2.0 * a)
    }
}

ops! {
    v_add_f32(a: f32, b: f32) -> f32 { a + b } { fn rounded(a: f32, b: f32, _: Unused, mode: u32) -> f32 { sum32(a, b, mode) } };
    v_sub_f32(a: f32, b: f32) -> f32 { a - b } { fn rounded(a: f32, b: f32, _: Unused, mode: u32) -> f32 { sum32(a, -b, mode) } };
    v_subrev_f32(a: f32, b: f32) -> f32 { b - a } { fn rounded(a: f32, b: f32, _: Unused, mode: u32) -> f32 { sum32(b, -a, mode) } };
    v_mul_f32(a: f32, b: f32) -> f32 { a * b }
        { fn rounded(a: f32, b: f32, _: Unused, mode: u32) -> f32 { product32(a, b, mode) } };
    v_mul_legacy_f32(a: f32, b: f32) -> f32 { legacy(a, b) }
        { fn rounded(a: f32, b: f32, _: Unused, mode: u32) -> f32 { legacy_rounded(a, b, mode) } };
    v_min_f32(a: f32, b: f32) -> f32 { min32(a, b) };
    v_max_f32(a: f32, b: f32) -> f32 { max32(a, b) };
    v_mac_f32(a: f32, b: f32, c: f32) -> f32 { mad32(a, b, c) }
        { const ACCUMULATE: bool = true; fn rounded(a: f32, b: f32, c: f32, mode: u32) -> f32 { mad32_rounded(a, b, c, mode) } };
    v_mad_f32(a: f32, b: f32, c: f32) -> f32 { mad32(a, b, c) }
        { fn rounded(a: f32, b: f32, c: f32, mode: u32) -> f32 { mad32_rounded(a, b, c, mode) } };
    v_mad_legacy_f32(a: f32, b: f32, c: f32) -> f32 { zeroed(zeroed(legacy(zeroed(a), zeroed(b))) + zeroed(c)) }
        { fn rounded(a: f32, b: f32, c: f32, mode: u32) -> f32 {
            zeroed(sum32(zeroed(legacy_rounded(zeroed(a), zeroed(b), mode)), zeroed(c), mode))
        } };
    v_fmac_f32(a: f32, b: f32, c: f32) -> f32 { a.mul_add(b, c) }
        { const ACCUMULATE: bool = true; fn rounded(a: f32, b: f32, c: f32, mode: u32) -> f32 { fused32(a, b, c, mode) } };
    v_fma_f32(a: f32, b: f32, c: f32) -> f32 { a.mul_add(b, c) }
        { fn rounded(a: f32, b: f32, c: f32, mode: u32) -> f32 { fused32(a, b, c, mode) } };
    v_min3_f32(a: f32, b: f32, c: f32) -> f32 { min32(min32(a, b), c) };
    v_max3_f32(a: f32, b: f32, c: f32) -> f32 { max32(max32(a, b), c) };
    v_med3_f32(a: f32, b: f32, c: f32) -> f32 { median32(a, b, c) };
    v_div_fixup_f32(a: f32, b: f32, c: f32) -> f32 { fixup32(a, b, c) };
    v_ldexp_f32(a: f32, b: i32) -> f32 { ldexp32(a, b) }
        { fn rounded(a: f32, b: i32, _: Unused, mode: u32) -> f32 { f32::from_bits(scaled(a.into(), b, SINGLE, mode) as u32) } };
    v_cubeid_f32(a: f32, b: f32, c: f32) -> f32 { cube(a, b, c).0 };
    v_cubesc_f32(a: f32, b: f32, c: f32) -> f32 { cube(a, b, c).1 };
    v_cubetc_f32(a: f32, b: f32, c: f32) -> f32 { cube(a, b, c).2 };
    v_cubema_f32(a: f32, b: f32, c: f32) -> f32 { cube(a, b, c).3 };

    v_fract_f32(a: f32) -> f32 { fract32(a) };
    v_trunc_f32(a: f32) -> f32 { a.trunc() };
    v_ceil_f32(a: f32) -> f32 { a.ceil() };
    v_rndne_f32(a: f32) -> f32 { a.round_ties_even() };
    v_floor_f32(a: f32) -> f32 { a.floor() };
    v_exp_f32(a: f32) -> f32 { zeroed(exp2(zeroed(a))) };
    v_exp_legacy_f32(a: f32) -> f32 { zeroed(exp2(zeroed(a))) };
    v_log_f32(a: f32) -> f32 { log2(zeroed(a)) };
    v_log_legacy_f32(a: f32) -> f32 { log2(zeroed(a)) };
    v_rcp_f32(a: f32) -> f32 { zeroed(1.0 / zeroed(a)) };
    v_rcp_iflag_f32(a: f32) -> f32 { zeroed(1.0 / zeroed(a)) };
    v_rsq_f32(a: f32) -> f32 { (1.0 / f64::from(zeroed(a)).sqrt()) as f32 };
    v_sqrt_f32(a: f32) -> f32 { zeroed(a).sqrt() };
    v_sin_f32(a: f32) -> f32 { sine(a) };
    v_cos_f32(a: f32) -> f32 { cosine(a) };
    v_frexp_exp_i32_f32(a: f32) -> i32 { frexp_exponent(f64::from(a)) };
    v_frexp_mant_f32(a: f32) -> f32 { frexp_mantissa(f64::from(a)) as f32 };

    v_add_f64(a: f64, b: f64) -> f64 { a + b } { fn rounded(a: f64, b: f64, _: Unused, mode: u32) -> f64 { fused64(a, 1.0, b, mode) } };
    v_mul_f64(a: f64, b: f64) -> f64 { a * b }
        { fn rounded(a: f64, b: f64, _: Unused, mode: u32) -> f64 { product64(a, b, mode) } };
    v_min_f64(a: f64, b: f64) -> f64 { min64(a, b) };
    v_max_f64(a: f64, b: f64) -> f64 { max64(a, b) };
    v_fma_f64(a: f64, b: f64, c: f64) -> f64 { a.mul_add(b, c) }
        { fn rounded(a: f64, b: f64, c: f64, mode: u32) -> f64 { fused64(a, b, c, mode) } };
    v_fmac_f64(a: f64, b: f64, c: f64) -> f64 { a.mul_add(b, c) }
        { const ACCUMULATE: bool = true; fn rounded(a: f64, b: f64, c: f64, mode: u32) -> f64 { fused64(a, b, c, mode) } };
    v_div_fixup_f64(a: f64, b: f64, c: f64) -> f64 { fixup64(a, b, c) };
    v_ldexp_f64(a: f64, b: i32) -> f64 { ldexp64(a, b) }
        { fn rounded(a: f64, b: i32, _: Unused, mode: u32) -> f64 { f64::from_bits(scaled(a, b, DOUBLE, mode)) } };
    v_trig_preop_f64(a: f64, b: u32) -> f64 { trig_segment(a, b) };
    v_trunc_f64(a: f64) -> f64 { a.trunc() };
    v_ceil_f64(a: f64) -> f64 { a.ceil() };
    v_rndne_f64(a: f64) -> f64 { a.round_ties_even() };
    v_floor_f64(a: f64) -> f64 { a.floor() };
    v_fract_f64(a: f64) -> f64 { fract64(a) };
    v_rcp_f64(a: f64) -> f64 { 1.0 / a };
    v_rsq_f64(a: f64) -> f64 { 1.0 / a.sqrt() };
    v_sqrt_f64(a: f64) -> f64 { a.sqrt() };
    v_frexp_exp_i32_f64(a: f64) -> i32 { frexp_exponent(a) };
    v_frexp_mant_f64(a: f64) -> f64 { frexp_mantissa(a) };

    v_add_f16(a: F16, b: F16) -> F16 { half(a.to_f32() + b.to_f32()) }
        { fn rounded(a: F16, b: F16, _: Unused, mode: u32) -> F16 { sum16(a, b, mode) } };
    v_sub_f16(a: F16, b: F16) -> F16 { half(a.to_f32() - b.to_f32()) }
        { fn rounded(a: F16, b: F16, _: Unused, mode: u32) -> F16 { sum16(a, minus(b), mode) } };
    v_subrev_f16(a: F16, b: F16) -> F16 { half(b.to_f32() - a.to_f32()) }
        { fn rounded(a: F16, b: F16, _: Unused, mode: u32) -> F16 { sum16(b, minus(a), mode) } };
    v_mul_f16(a: F16, b: F16) -> F16 { half(a.to_f32() * b.to_f32()) }
        { fn rounded(a: F16, b: F16, _: Unused, mode: u32) -> F16 { product16(a, b, mode) } };
    v_mac_f16(a: F16, b: F16, c: F16) -> F16 { half(half(a.to_f32() * b.to_f32()).to_f32() + c.to_f32()) }
        { const ACCUMULATE: bool = true; fn rounded(a: F16, b: F16, c: F16, mode: u32) -> F16 { mad16_rounded(a, b, c, mode) } };
    v_mad_f16(a: F16, b: F16, c: F16) -> F16 { half(half(a.to_f32() * b.to_f32()).to_f32() + c.to_f32()) }
        { const KEEP: bool = true; fn rounded(a: F16, b: F16, c: F16, mode: u32) -> F16 { mad16_rounded(a, b, c, mode) } };
    v_mad_legacy_f16(a: F16, b: F16, c: F16) -> F16 { half(half(a.to_f32() * b.to_f32()).to_f32() + c.to_f32()) }
        { fn rounded(a: F16, b: F16, c: F16, mode: u32) -> F16 { mad16_rounded(a, b, c, mode) } };
    v_fma_f16(a: F16, b: F16, c: F16) -> F16 { fma16(a, b, c) }
        { const KEEP: bool = true; fn rounded(a: F16, b: F16, c: F16, mode: u32) -> F16 { fused16(a, b, c, mode) } };
    v_fma_legacy_f16(a: F16, b: F16, c: F16) -> F16 { fma16(a, b, c) }
        { fn rounded(a: F16, b: F16, c: F16, mode: u32) -> F16 { fused16(a, b, c, mode) } };
    v_div_fixup_f16(a: F16, b: F16, c: F16) -> F16 { fixup16(a, b, c) } { const KEEP: bool = true; };
    v_div_fixup_legacy_f16(a: F16, b: F16, c: F16) -> F16 { fixup16(a, b, c) };
    v_min_f16(a: F16, b: F16) -> F16 { min16(a, b) };
    v_max_f16(a: F16, b: F16) -> F16 { max16(a, b) };
    v_min3_f16(a: F16, b: F16, c: F16) -> F16 { min16(min16(a, b), c) } { const KEEP: bool = true; };
    v_max3_f16(a: F16, b: F16, c: F16) -> F16 { max16(max16(a, b), c) } { const KEEP: bool = true; };
    v_med3_f16(a: F16, b: F16, c: F16) -> F16 { half(median32(a.to_f32(), b.to_f32(), c.to_f32())) } { const KEEP: bool = true; };
    v_ldexp_f16(a: F16, b: i16) -> F16 { half_of(ldexp64(wide(a), i32::from(b))) }
        { fn rounded(a: F16, b: i16, _: Unused, mode: u32) -> F16 { F16(scaled(wide(a), b.into(), HALF, mode) as u16) } };
    v_rcp_f16(a: F16) -> F16 { half_of(1.0 / wide(a)) };
    v_sqrt_f16(a: F16) -> F16 { half_of(wide(a).sqrt()) };
    v_rsq_f16(a: F16) -> F16 { half_of(1.0 / wide(a).sqrt()) };
    v_log_f16(a: F16) -> F16 { half_of(wide(a).log2()) };
    v_exp_f16(a: F16) -> F16 { half_of(wide(a).exp2()) };
    v_frexp_mant_f16(a: F16) -> F16 { half_of(frexp_mantissa(wide(a))) };
    v_frexp_exp_i16_f16(a: F16) -> i16 { frexp_exponent(wide(a)) as i16 };
    v_floor_f16(a: F16) -> F16 { half(a.to_f32().floor()) };
    v_ceil_f16(a: F16) -> F16 { half(a.to_f32().ceil()) };
    v_trunc_f16(a: F16) -> F16 { half(a.to_f32().trunc()) };
    v_rndne_f16(a: F16) -> F16 { half(a.to_f32().round_ties_even()) };
    v_fract_f16(a: F16) -> F16 { let x = a.to_f32(); half(below_one(x - x.floor(), F16(0x3bff).to_f32())) };
    v_sin_f16(a: F16) -> F16 { half(sine(a.to_f32())) };
    v_cos_f16(a: F16) -> F16 { half(cosine(a.to_f32())) };
    v_pack_b32_f16(a: F16, b: F16) -> u32 { u32::from(a.0) | u32::from(b.0) << 16 };
    v_fmac_f16(a: F16, b: F16, c: F16) -> F16 { fma16(a, b, c) }
        { const ACCUMULATE: bool = true; fn rounded(a: F16, b: F16, c: F16, mode: u32) -> F16 { fused16(a, b, c, mode) } };
    v_fma_legacy_f32(a: f32, b: f32, c: f32) -> f32 { legacy_fused(a, b, c) }
        { fn rounded(a: f32, b: f32, c: f32, mode: u32) -> f32 { legacy_fused_rounded(a, b, c, mode) } };
    v_fmac_legacy_f32(a: f32, b: f32, c: f32) -> f32 { legacy_fused(a, b, c) }
        { const ACCUMULATE: bool = true; fn rounded(a: f32, b: f32, c: f32, mode: u32) -> f32 { legacy_fused_rounded(a, b, c, mode) } };
    v_mac_legacy_f32(a: f32, b: f32, c: f32) -> f32 { zeroed(zeroed(legacy(zeroed(a), zeroed(b))) + zeroed(c)) }
        { const ACCUMULATE: bool = true; fn rounded(a: f32, b: f32, c: f32, mode: u32) -> f32 {
            zeroed(sum32(zeroed(legacy_rounded(zeroed(a), zeroed(b), mode)), zeroed(c), mode))
        } };
    v_mullit_f32(a: f32, b: f32, c: f32) -> f32 {
        if b == f32::MIN || b == f32::NEG_INFINITY || b.is_nan() || c.is_nan() || c <= 0.0 { f32::MIN } else { a * b }
    };
    v_maxmin_f32(a: f32, b: f32, c: f32) -> f32 { min32(max32(a, b), c) };
    v_minmax_f32(a: f32, b: f32, c: f32) -> f32 { max32(min32(a, b), c) };
    v_maxmin_f16(a: F16, b: F16, c: F16) -> F16 { min16(max16(a, b), c) };
    v_minmax_f16(a: F16, b: F16, c: F16) -> F16 { max16(min16(a, b), c) };

    v_min_num_f32(a: f32, b: f32) -> f32 { min_num32(a, b) };
    v_max_num_f32(a: f32, b: f32) -> f32 { max_num32(a, b) };
    v_minimum_f32(a: f32, b: f32) -> f32 { minimum32(a, b) };
    v_maximum_f32(a: f32, b: f32) -> f32 { maximum32(a, b) };
    v_min_num_f64(a: f64, b: f64) -> f64 { min_num64(a, b) };
    v_max_num_f64(a: f64, b: f64) -> f64 { max_num64(a, b) };
    v_minimum_f64(a: f64, b: f64) -> f64 { minimum64(a, b) };
    v_maximum_f64(a: f64, b: f64) -> f64 { maximum64(a, b) };
    v_min_num_f16(a: F16, b: F16) -> F16 { min_num16(a, b) };
    v_max_num_f16(a: F16, b: F16) -> F16 { max_num16(a, b) };
    v_minimum_f16(a: F16, b: F16) -> F16 { minimum16(a, b) };
    v_maximum_f16(a: F16, b: F16) -> F16 { maximum16(a, b) };
    v_min3_num_f32(a: f32, b: f32, c: f32) -> f32 { min_num32(min_num32(a, b), c) };
    v_max3_num_f32(a: f32, b: f32, c: f32) -> f32 { max_num32(max_num32(a, b), c) };
    v_minimum3_f32(a: f32, b: f32, c: f32) -> f32 { minimum32(minimum32(a, b), c) };
    v_maximum3_f32(a: f32, b: f32, c: f32) -> f32 { maximum32(maximum32(a, b), c) };
    v_minmax_num_f32(a: f32, b: f32, c: f32) -> f32 { max_num32(min_num32(a, b), c) };
    v_maxmin_num_f32(a: f32, b: f32, c: f32) -> f32 { min_num32(max_num32(a, b), c) };
    v_minimummaximum_f32(a: f32, b: f32, c: f32) -> f32 { maximum32(minimum32(a, b), c) };
    v_maximumminimum_f32(a: f32, b: f32, c: f32) -> f32 { minimum32(maximum32(a, b), c) };
    v_min3_num_f16(a: F16, b: F16, c: F16) -> F16 { min_num16(min_num16(a, b), c) };
    v_max3_num_f16(a: F16, b: F16, c: F16) -> F16 { max_num16(max_num16(a, b), c) };
    v_minimum3_f16(a: F16, b: F16, c: F16) -> F16 { minimum16(minimum16(a, b), c) };
    v_maximum3_f16(a: F16, b: F16, c: F16) -> F16 { maximum16(maximum16(a, b), c) };
    v_minmax_num_f16(a: F16, b: F16, c: F16) -> F16 { max_num16(min_num16(a, b), c) };
    v_maxmin_num_f16(a: F16, b: F16, c: F16) -> F16 { min_num16(max_num16(a, b), c) };
    v_minimummaximum_f16(a: F16, b: F16, c: F16) -> F16 { maximum16(minimum16(a, b), c) };
    v_maximumminimum_f16(a: F16, b: F16, c: F16) -> F16 { minimum16(maximum16(a, b), c) };
    v_med3_num_f32(a: f32, b: f32, c: f32) -> f32 { median_num(a, b, c) };
    v_med3_num_f16(a: F16, b: F16, c: F16) -> F16 { half(median_num(a.to_f32(), b.to_f32(), c.to_f32())) };

    v_dot2c_f32_f16(a: u32, b: u32, c: f32) -> f32 { super::packed::dot2_f16(a, b, c) } { const ACCUMULATE: bool = true; };
}
