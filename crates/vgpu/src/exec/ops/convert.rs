//! Conversions between number formats.

use super::ops;
use crate::exec::float::*;
use crate::exec::valu::Unused;

/// Rounds to the nearest integer; values out of range saturate, NaN becomes 0. The product is exact in f64, so it rounds once.
fn unorm(value: f32, max: f64) -> u32 {
    (f64::from(value).clamp(0.0, 1.0) * max).round_ties_even() as u32
}

fn snorm(value: f32, max: f64) -> u32 {
    (f64::from(value).clamp(-1.0, 1.0) * max).round_ties_even() as i32 as u32
}

/// Decodes an 8-bit float of `exponent` and `mantissa` bits (FNUZ): the bias is one more than IEEE's, and -0 encodes NaN.
fn f8_to_f32(bits: u8, exponent: u32, mantissa: u32) -> f32 {
    if bits == 0x80 {
        return f32::NAN;
    }
    let bias = 1 << (exponent - 1);
    let e = i32::from(bits & 0x7f) >> mantissa;
    let m = f64::from(u32::from(bits) & ((1 << mantissa) - 1)) / f64::from(1u32 << mantissa);
    let value = if e == 0 { m * 2f64.powi(1 - bias) } else { (1.0 + m) * 2f64.powi(e - bias) };
    (if bits & 0x80 != 0 { -value } else { value }) as f32
}

/// Decodes fp8 (E4M3 FNUZ).
pub fn fp8_to_f32(bits: u8) -> f32 {
    f8_to_f32(bits, 4, 3)
}

/// Decodes bf8 (E5M2 FNUZ).
pub fn bf8_to_f32(bits: u8) -> f32 {
    f8_to_f32(bits, 5, 2)
}

/// Returns exponent and mantissa of a positive number as a code, which exceeds the format on overflow. Without `noise` it rounds to nearest
/// even; with it, the noise is added below the last bit and the rest truncated.
fn rounded_code(magnitude: f64, bias: i32, mantissa: u32, noise: Option<u32>) -> u32 {
    let e = (frexp_exponent(magnitude) - 1).max(1 - bias);
    let scaled = magnitude * 2f64.powi(mantissa as i32 - e);
    let steps = match noise {
        None => scaled.round_ties_even(),
        Some(noise) => (scaled + f64::from(noise) / 4_294_967_296.0).floor(),
    } as u32;
    let full = 1 << mantissa;
    let (e, steps) = if steps >= 2 * full { (e + 1, steps / 2) } else { (e, steps) };
    if steps < full { steps } else { ((e + bias) as u32) << mantissa | (steps - full) }
}

/// Encodes an 8-bit float (FNUZ); overflow, infinity and NaN become NaN. Without `noise` it rounds to nearest even; with it, the noise is added
/// below the last bit and the rest truncated.
fn f32_to_f8(value: f32, exponent: u32, mantissa: u32, noise: Option<u32>) -> u8 {
    if !value.is_finite() {
        return 0x80;
    }
    let sign = if value.is_sign_negative() { 0x80 } else { 0 };
    let bias = 1 << (exponent - 1);
    let magnitude = f64::from(value.abs());
    if magnitude == 0.0 {
        return 0;
    }
    let code = rounded_code(magnitude, bias, mantissa, noise);
    // The format has no infinities: overflow is NaN.
    if code > 0x7f {
        return 0x80;
    }
    let code = code as u8;
    // The format has no -0: its code is NaN.
    if code == 0 { 0 } else { sign | code }
}

/// An 8-bit float format of the Open Compute Project: bits of the mantissa, the exponent's bias, and whether it has infinities.
#[derive(Clone, Copy)]
pub struct Ocp {
    mantissa: u32,
    bias: i32,
    infinities: bool,
}

/// fp8 of gfx12: no infinities; all bits but the sign set is NaN.
pub const E4M3: Ocp = Ocp { mantissa: 3, bias: 7, infinities: false };
/// bf8 of gfx12: like IEEE.
pub const E5M2: Ocp = Ocp { mantissa: 2, bias: 15, infinities: true };

/// Decodes an OCP 8-bit float.
pub fn ocp_to_f32(bits: u8, format: Ocp) -> f32 {
    let Ocp { mantissa, bias, infinities } = format;
    let magnitude = u32::from(bits & 0x7f);
    let (e, m) = ((magnitude >> mantissa) as i32, magnitude & ((1 << mantissa) - 1));
    let fraction = f64::from(m) / f64::from(1u32 << mantissa);
    let value = match () {
        () if infinities && magnitude == 0x7c => f64::INFINITY,
        () if infinities && magnitude > 0x7c || magnitude == 0x7f => f64::NAN,
        () if e == 0 => fraction * 2f64.powi(1 - bias),
        () => (1.0 + fraction) * 2f64.powi(e - bias),
    };
    (if bits & 0x80 != 0 { -value } else { value }) as f32
}

/// Encodes an OCP 8-bit float; overflow is infinity, or NaN without infinities. Without `noise` it rounds to nearest even; with it, the
/// noise is added below the last bit and the rest truncated.
pub fn f32_to_ocp(value: f32, format: Ocp, noise: Option<u32>) -> u8 {
    let Ocp { mantissa, bias, infinities } = format;
    let sign = if value.is_sign_negative() { 0x80 } else { 0 };
    let overflow = sign | if infinities { 0x7c } else { 0x7f };
    if value.is_nan() {
        return sign | 0x7f;
    }
    if value.is_infinite() {
        return overflow;
    }
    let magnitude = f64::from(value.abs());
    if magnitude == 0.0 {
        return sign;
    }
    let code = rounded_code(magnitude, bias, mantissa, noise);
    if code > if infinities { 0x7b } else { 0x7e } { overflow } else { sign | code as u8 }
}

fn pair_from8(bits: u16, format: Ocp) -> u64 {
    let [low, high] = bits.to_le_bytes().map(|byte| u64::from(ocp_to_f32(byte, format).to_bits()));
    low | high << 32
}

fn pair_to8(a: f32, b: f32, format: Ocp) -> u16 {
    u16::from_le_bytes([f32_to_ocp(a, format, None), f32_to_ocp(b, format, None)])
}

/// Rounds a pair of f32 to fp8 or bf8.
fn pair8(a: f32, b: f32, exponent: u32, mantissa: u32) -> u16 {
    u16::from(f32_to_f8(a, exponent, mantissa, None)) | u16::from(f32_to_f8(b, exponent, mantissa, None)) << 8
}

fn pkrtz(a: f32, b: f32) -> u32 {
    u32::from(narrow16(a, rounding::ZERO).0) | u32::from(narrow16(b, rounding::ZERO).0) << 16
}

ops! {
    v_cvt_i32_f64(a: f64) -> i32 { a as i32 };
    v_cvt_u32_f64(a: f64) -> u32 { a as u32 };
    v_cvt_f64_i32(a: i32) -> f64 { f64::from(a) };
    v_cvt_f64_u32(a: u32) -> f64 { f64::from(a) };
    v_cvt_f32_i32(a: i32) -> f32 { a as f32 } { fn rounded(a: i32, _: Unused, _: Unused, mode: u32) -> f32 { narrow32(f64::from(a), mode) } };
    v_cvt_f32_u32(a: u32) -> f32 { a as f32 } { fn rounded(a: u32, _: Unused, _: Unused, mode: u32) -> f32 { narrow32(f64::from(a), mode) } };
    v_cvt_u32_f32(a: f32) -> u32 { a as u32 };
    v_cvt_i32_f32(a: f32) -> i32 { a as i32 };
    v_cvt_f16_f32(a: f32) -> F16 { F16::from_f32(a) } { fn rounded(a: f32, _: Unused, _: Unused, mode: u32) -> F16 { narrow16(a, mode) } };
    v_cvt_f32_f16(a: F16) -> f32 { F16(quiet16(a.0)).to_f32() };
    v_cvt_rpi_i32_f32(a: f32) -> i32 { (a + 0.5).floor() as i32 };
    v_cvt_flr_i32_f32(a: f32) -> i32 { a.floor() as i32 };
    v_cvt_off_f32_i4(a: u32) -> f32 { ((a << 28) as i32 >> 28) as f32 / 16.0 };
    v_cvt_f32_f64(a: f64) -> f32 { a as f32 } { fn rounded(a: f64, _: Unused, _: Unused, mode: u32) -> f32 { narrow32(a, mode) } };
    v_cvt_f64_f32(a: f32) -> f64 { f64::from(a) };
    v_cvt_f32_ubyte0(a: u32) -> f32 { (a & 0xff) as f32 };
    v_cvt_f32_ubyte1(a: u32) -> f32 { (a >> 8 & 0xff) as f32 };
    v_cvt_f32_ubyte2(a: u32) -> f32 { (a >> 16 & 0xff) as f32 };
    v_cvt_f32_ubyte3(a: u32) -> f32 { (a >> 24) as f32 };
    v_cvt_f16_u16(a: u16) -> F16 { F16::from_f32(f32::from(a)) } { fn rounded(a: u16, _: Unused, _: Unused, mode: u32) -> F16 { narrow16(f32::from(a), mode) } };
    v_cvt_f16_i16(a: i16) -> F16 { F16::from_f32(f32::from(a)) } { fn rounded(a: i16, _: Unused, _: Unused, mode: u32) -> F16 { narrow16(f32::from(a), mode) } };
    v_cvt_u16_f16(a: F16) -> u16 { a.to_f32() as u16 };
    v_cvt_i16_f16(a: F16) -> i16 { a.to_f32() as i16 };
    v_cvt_norm_i16_f16(a: F16) -> u16 { snorm(a.to_f32(), 32767.0) as u16 };
    v_cvt_norm_u16_f16(a: F16) -> u16 { unorm(a.to_f32(), 65535.0) as u16 };
    v_cvt_pknorm_i16_f32(a: f32, b: f32) -> u32 { snorm(a, 32767.0) & 0xffff | snorm(b, 32767.0) << 16 };
    v_cvt_pknorm_u16_f32(a: f32, b: f32) -> u32 { unorm(a, 65535.0) | unorm(b, 65535.0) << 16 };
    v_cvt_pknorm_i16_f16(a: F16, b: F16) -> u32 { snorm(a.to_f32(), 32767.0) & 0xffff | snorm(b.to_f32(), 32767.0) << 16 };
    v_cvt_pknorm_u16_f16(a: F16, b: F16) -> u32 { unorm(a.to_f32(), 65535.0) | unorm(b.to_f32(), 65535.0) << 16 };
    v_cvt_pkrtz_f16_f32(a: f32, b: f32) -> u32 { pkrtz(a, b) };
    v_cvt_pk_u8_f32(a: f32, b: u32, c: u32) -> u32 {
        let shift = 8 * (b & 3);
        c & !(0xff << shift) | u32::from(a.round_ties_even() as u8) << shift
    };
    v_cvt_pkaccum_u8_f32(a: f32, b: u32, c: u32) -> u32 {
        let shift = 8 * (b & 3);
        c & !(0xff << shift) | u32::from(a.round_ties_even() as u8) << shift
    } { const ACCUMULATE: bool = true; };

    v_cvt_pk_i16_f32(a: f32, b: f32) -> u32 { u32::from(a as i16 as u16) | u32::from(b as i16 as u16) << 16 };
    v_cvt_pk_u16_f32(a: f32, b: f32) -> u32 { u32::from(a as u16) | u32::from(b as u16) << 16 };

    v_cvt_pk_f32_ocp_fp8(a: u16) -> u64 { pair_from8(a, E4M3) };
    v_cvt_pk_f32_ocp_bf8(a: u16) -> u64 { pair_from8(a, E5M2) };
    v_cvt_pk_ocp_fp8_f32(a: f32, b: f32) -> u16 { pair_to8(a, b, E4M3) };
    v_cvt_pk_ocp_bf8_f32(a: f32, b: f32) -> u16 { pair_to8(a, b, E5M2) };

    v_cvt_f32_fp8(a: u32) -> f32 { fp8_to_f32(a as u8) };
    v_cvt_f32_bf8(a: u32) -> f32 { bf8_to_f32(a as u8) };
    v_cvt_pk_f32_fp8(a: u32) -> u64 { u64::from(fp8_to_f32(a as u8).to_bits()) | u64::from(fp8_to_f32((a >> 8) as u8).to_bits()) << 32 };
    v_cvt_pk_f32_bf8(a: u32) -> u64 { u64::from(bf8_to_f32(a as u8).to_bits()) | u64::from(bf8_to_f32((a >> 8) as u8).to_bits()) << 32 };
    v_cvt_pk_fp8_f32(a: f32, b: f32) -> u16 { pair8(a, b, 4, 3) } { const KEEP: bool = true; };
    v_cvt_pk_bf8_f32(a: f32, b: f32) -> u16 { pair8(a, b, 5, 2) } { const KEEP: bool = true; };
}

/// Rounds an f32 to fp8 or bf8 stochastically.
pub fn stochastic8(value: f32, noise: u32, bf8: bool) -> u8 {
    if bf8 { f32_to_f8(value, 5, 2, Some(noise)) } else { f32_to_f8(value, 4, 3, Some(noise)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_eight_bit_float_survives_the_way_through_f32() {
        for bits in 0..=255u8 {
            for (exponent, mantissa) in [(4, 3), (5, 2)] {
                let value = f8_to_f32(bits, exponent, mantissa);
                assert_eq!(f32_to_f8(value, exponent, mantissa, None), bits, "{value}");
            }
        }
        assert_eq!(fp8_to_f32(0x7f), 240.0);
        assert_eq!(bf8_to_f32(0x7f), 57344.0);
        assert_eq!(fp8_to_f32(0x40), 1.0);
    }

    #[test]
    fn every_ocp_float_survives_the_way_through_f32() {
        for bits in 0..=255u8 {
            for format in [E4M3, E5M2] {
                let value = ocp_to_f32(bits, format);
                let code = f32_to_ocp(value, format, None);
                assert!(code == bits || value.is_nan() && ocp_to_f32(code, format).is_nan(), "{bits:#x}: {value}");
            }
        }
        assert_eq!((ocp_to_f32(0x7e, E4M3), ocp_to_f32(0x7b, E5M2), ocp_to_f32(0x38, E4M3)), (448.0, 57344.0, 1.0));
        assert_eq!((ocp_to_f32(0x01, E4M3), ocp_to_f32(0x01, E5M2)), (2f32.powi(-9), 2f32.powi(-16)));
        // Ties go to even; what is half a step above the largest number or more overflows.
        assert_eq!((f32_to_ocp(1.0625, E4M3, None), f32_to_ocp(-1.1875, E4M3, None)), (0x38, 0xba));
        assert_eq!((f32_to_ocp(463.0, E4M3, None), f32_to_ocp(464.0, E4M3, None), f32_to_ocp(465.0, E4M3, None)), (0x7e, 0x7e, 0x7f));
        assert_eq!((f32_to_ocp(1e9, E5M2, None), f32_to_ocp(f32::NEG_INFINITY, E5M2, None)), (0x7c, 0xfc));
        // The noise decides on a value between two codes.
        assert_eq!((f32_to_ocp(1.0625, E4M3, Some(0)), f32_to_ocp(1.0625, E4M3, Some(u32::MAX))), (0x38, 0x39));
    }
}
