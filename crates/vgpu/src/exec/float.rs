//! Float formats and operations that Rust lacks.

/// An f16, as bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct F16(pub u16);

impl F16 {
    /// Converts exactly.
    #[inline(always)]
    pub fn to_f32(self) -> f32 {
        let bits = u32::from(self.0);
        let sign = (bits & 0x8000) << 16;
        let magnitude = bits & 0x7fff;
        // After the shift the exponent is 112 too small; the multiplication corrects it, for denormals too.
        let scaled = f32::from_bits(magnitude << 13) * f32::from_bits(0x7780_0000);
        let special = 0x7f80_0000 | (magnitude & 0x3ff) << 13;
        let value = if magnitude >= 0x7c00 { special } else { scaled.to_bits() };
        f32::from_bits(sign | value)
    }

    /// Rounds to nearest even.
    #[inline(always)]
    pub fn from_f32(value: f32) -> F16 {
        let bits = value.to_bits();
        let sign = (bits >> 16 & 0x8000) as u16;
        let magnitude = bits & 0x7fff_ffff;
        // Normal results: round the dropped 13 bits; the carry may reach infinity, as it should.
        let normal = (magnitude.wrapping_sub(0x3800_0000).wrapping_add(0xfff + (magnitude >> 13 & 1)) >> 13) as u16;
        // Small ones: adding 0.5 aligns the last bit with that of f16's denormals.
        let small = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0x3f00_0000) as u16;
        let nan = 0x7e00 | (magnitude >> 13 & 0x3ff) as u16;
        let half = if magnitude > 0x7f80_0000 {
            nan
        } else if magnitude >= 0x4780_0000 {
            0x7c00
        } else if magnitude < 0x3880_0000 {
            small
        } else {
            normal
        };
        F16(sign | half)
    }

    /// Rounds to nearest even, once.
    pub fn from_f64(value: f64) -> F16 {
        F16(f64_to_f16(value))
    }
}

/// Rounds to nearest f16, ties to even, once.
pub fn f64_to_f16(value: f64) -> u16 {
    F16::from_f32(round_to_odd(value)).0
}

/// Rounds to f32 so that another rounding to fewer bits is correct: an inexact result gets an odd last bit.
pub fn round_to_odd(value: f64) -> f32 {
    let near = value as f32;
    if f64::from(near) == value || near.is_nan() {
        return near;
    }
    // Toward zero, then sticky.
    let bits = near.to_bits();
    let toward_zero = if f64::from(near).abs() > value.abs() { bits - 1 } else { bits };
    f32::from_bits(toward_zero | 1)
}

/// Computes an f16 fused multiply-add, rounded once.
pub fn fma16(a: F16, b: F16, c: F16) -> F16 {
    // The product is exact in f64; the sum may not be: keep the dropped part as a sticky bit.
    let product = f64::from(a.to_f32()) * f64::from(b.to_f32());
    let addend = f64::from(c.to_f32());
    F16::from_f64(odd_sum(product, addend))
}

/// Computes `a + b` in f64, rounded to odd.
pub fn odd_sum(a: f64, b: f64) -> f64 {
    let sum = a + b;
    if !sum.is_finite() {
        return sum;
    }
    let part = sum - a;
    let error = (a - (sum - part)) + (b - part);
    if error == 0.0 {
        return sum;
    }
    let bits = sum.to_bits();
    let away = (error > 0.0) == (sum > 0.0);
    f64::from_bits(if away { bits } else { bits - 1 } | 1)
}

/// Converts bf16 to f32, exactly.
#[inline(always)]
pub fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// Rounds to nearest bf16, ties to even.
pub fn f32_to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    (bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

/// Flushes denormals to zero, keeping the sign.
#[inline(always)]
pub fn flush32(bits: u32) -> u32 {
    if bits & 0x7f80_0000 == 0 { bits & 0x8000_0000 } else { bits }
}

/// Flushes denormals to zero, keeping the sign.
#[inline(always)]
pub fn flush64(bits: u64) -> u64 {
    if bits & 0x7ff0_0000_0000_0000 == 0 { bits & 0x8000_0000_0000_0000 } else { bits }
}

/// Quiets a signaling NaN.
#[inline(always)]
pub fn quiet32(bits: u32) -> u32 {
    if bits & 0x7fff_ffff > 0x7f80_0000 { bits | 0x0040_0000 } else { bits }
}

/// Quiets a signaling NaN.
#[inline(always)]
pub fn quiet64(bits: u64) -> u64 {
    if bits & 0x7fff_ffff_ffff_ffff > 0x7ff0_0000_0000_0000 { bits | 0x0008_0000_0000_0000 } else { bits }
}

/// Quiets a signaling NaN.
#[inline(always)]
pub fn quiet16(bits: u16) -> u16 {
    if bits & 0x7fff > 0x7c00 { bits | 0x0200 } else { bits }
}

macro_rules! extremes {
    ($min:ident, $max:ident, $float:ty, $quiet_bit:expr, $quiet:ident) => {
        /// Returns the smaller value. Signaling NaNs win, quiet NaNs lose, -0 is less than +0.
        #[inline(always)]
        pub fn $min(a: $float, b: $float) -> $float {
            let less = if a < b || (a == b && a.is_sign_negative()) { a } else { b };
            nan_rules!(a, b, less, $float, $quiet_bit, $quiet)
        }

        /// Returns the greater value. Signaling NaNs win, quiet NaNs lose, +0 is greater than -0.
        #[inline(always)]
        pub fn $max(a: $float, b: $float) -> $float {
            let more = if a > b || (a == b && b.is_sign_negative()) { a } else { b };
            nan_rules!(a, b, more, $float, $quiet_bit, $quiet)
        }
    };
}
/// The minima and maxima of gfx12 (IEEE 754-2019).
macro_rules! new_extremes {
    ($float:ty, $quiet_bit:expr, $quiet:ident, $nan_of:ident, $min_num:ident, $max_num:ident, $minimum:ident, $maximum:ident) => {
        /// Returns the smaller number; a NaN only if both are. -0 is less than +0.
        #[inline(always)]
        pub fn $min_num(a: $float, b: $float) -> $float {
            if a.is_nan() && b.is_nan() {
                <$float>::from_bits($quiet(a.to_bits()))
            } else if b.is_nan() || a < b || (a == b && a.is_sign_negative()) {
                a
            } else {
                b
            }
        }

        /// Returns the greater number; a NaN only if both are. +0 is greater than -0.
        #[inline(always)]
        pub fn $max_num(a: $float, b: $float) -> $float {
            if a.is_nan() && b.is_nan() {
                <$float>::from_bits($quiet(a.to_bits()))
            } else if b.is_nan() || a > b || (a == b && b.is_sign_negative()) {
                a
            } else {
                b
            }
        }

        /// Returns the NaN that wins: a signaling one before a quiet one, the first before the second.
        fn $nan_of(a: $float, b: $float) -> $float {
            let signals = |x: $float| x.is_nan() && x.to_bits() & $quiet_bit == 0;
            let winner = if signals(a) || a.is_nan() && !signals(b) { a } else { b };
            <$float>::from_bits($quiet(winner.to_bits()))
        }

        /// Returns the smaller value, or a NaN: a signaling one first.
        #[inline(always)]
        pub fn $minimum(a: $float, b: $float) -> $float {
            if a.is_nan() || b.is_nan() { $nan_of(a, b) } else { $min_num(a, b) }
        }

        /// Returns the greater value, or a NaN: a signaling one first.
        #[inline(always)]
        pub fn $maximum(a: $float, b: $float) -> $float {
            if a.is_nan() || b.is_nan() { $nan_of(a, b) } else { $max_num(a, b) }
        }
    };
}

new_extremes!(f32, 0x0040_0000, quiet32, nan_of32, min_num32, max_num32, minimum32, maximum32);
new_extremes!(f64, 0x0008_0000_0000_0000, quiet64, nan_of64, min_num64, max_num64, minimum64, maximum64);

macro_rules! nan_rules {
    ($a:ident, $b:ident, $else:ident, $float:ty, $quiet_bit:expr, $quiet:ident) => {{
        let signals = |x: $float| x.is_nan() && x.to_bits() & $quiet_bit == 0;
        let plain = if $a.is_nan() {
            $b
        } else if $b.is_nan() {
            $a
        } else {
            $else
        };
        let loud = if signals($a) {
            $a
        } else if signals($b) {
            $b
        } else {
            plain
        };
        <$float>::from_bits($quiet(loud.to_bits()))
    }};
}
extremes!(min32, max32, f32, 0x0040_0000, quiet32);
extremes!(min64, max64, f64, 0x0008_0000_0000_0000, quiet64);

/// Rounding modes, as `MODE` numbers them; 0 is nearest even.
pub mod rounding {
    /// Toward +∞.
    pub const UP: u32 = 1;
    /// Toward -∞.
    pub const DOWN: u32 = 2;
    /// Toward zero.
    pub const ZERO: u32 = 3;
}

/// A binary float format: exponent bits and fraction bits.
pub type Format = (u32, u32);
/// f16.
pub const HALF: Format = (5, 10);
/// f32.
pub const SINGLE: Format = (8, 23);
/// f64.
pub const DOUBLE: Format = (11, 52);

/// Returns a finite number as sign, integer and power of two.
fn parts(value: f64) -> (bool, u128, i32) {
    let bits = value.to_bits();
    let exponent = (bits >> 52 & 0x7ff) as i32;
    let mantissa = u128::from(bits & ((1 << 52) - 1) | if exponent == 0 { 0 } else { 1 << 52 });
    (bits >> 63 != 0, mantissa, exponent.max(1) - 1075)
}

/// Rounds `mantissa · 2^exponent` to `format` in rounding mode `mode`. The lowest mantissa bit may be sticky.
pub fn rounded(negative: bool, mantissa: u128, exponent: i32, (exponents, fraction): Format, mode: u32) -> u64 {
    let sign = u64::from(negative) << (exponents + fraction);
    if mantissa == 0 {
        return sign;
    }
    let bias = (1 << (exponents - 1)) - 1;
    let top = (127 - mantissa.leading_zeros() as i32 + exponent).max(1 - bias);
    let dropped = top - fraction as i32 - exponent;
    let (kept, half, more) = match dropped {
        ..=0 => (mantissa << -dropped, false, false),
        1..=127 => (mantissa >> dropped, mantissa >> (dropped - 1) & 1 != 0, mantissa & ((1 << (dropped - 1)) - 1) != 0),
        _ => (0, false, true),
    };
    let away = match mode {
        rounding::UP => !negative && (half || more),
        rounding::DOWN => negative && (half || more),
        rounding::ZERO => false,
        _ => half && (more || kept & 1 != 0),
    };
    let mut bits = kept as u64 + u64::from(away);
    // A carry out of the fraction increments the exponent.
    if bits >> fraction != 0 {
        bits = bits.saturating_add(((top + bias - 1) as u64).min(1 << exponents) << fraction);
    }
    let infinity = ((1 << exponents) - 1) << fraction;
    if bits >= infinity {
        let beyond = match mode {
            rounding::UP => !negative,
            rounding::DOWN => negative,
            rounding::ZERO => false,
            _ => true,
        };
        bits = infinity - u64::from(!beyond);
    }
    sign | bits
}

/// Computes `a · b + c` in `format`, rounded once in rounding mode `mode`. All three are values of `format`.
pub fn fused(a: f64, b: f64, c: f64, format: Format, mode: u32) -> u64 {
    fused_scaled([a, b, c], 0, format, mode)
}

/// Computes `(a · b + c) · 2^scale`, as [`fused`].
pub fn fused_scaled([a, b, c]: [f64; 3], scale: i32, format: Format, mode: u32) -> u64 {
    if !(a.is_finite() && b.is_finite() && c.is_finite()) {
        let value = a.mul_add(b, c);
        return match format {
            HALF => F16::from_f64(value).0.into(),
            SINGLE => u64::from((value as f32).to_bits()),
            _ => value.to_bits(),
        };
    }
    let ((a_sign, a, a_exponent), (b_sign, b, b_exponent), (c_sign, c, c_exponent)) = (parts(a), parts(b), parts(c));
    let (p_sign, p, p_exponent) = (a_sign != b_sign, a * b, a_exponent + b_exponent);
    if p == 0 || c == 0 {
        let negative = match (p, c) {
            (0, 0) if p_sign != c_sign => mode == rounding::DOWN,
            (0, _) => c_sign,
            _ => p_sign,
        };
        return rounded(negative, p | c, if p == 0 { c_exponent } else { p_exponent } + scale, format, mode);
    }
    // Normalize both to highest bit 125, then shift the smaller one down; dropped bits stay as a sticky bit.
    let lifted = |mantissa: u128, exponent: i32| {
        let up = mantissa.leading_zeros() as i32 - 2;
        (mantissa << up, exponent - up)
    };
    let ((p, p_exponent), (c, c_exponent)) = (lifted(p, p_exponent), lifted(c, c_exponent));
    let lowered = |mantissa: u128, by: i32| match by {
        0 => mantissa,
        1..=127 => mantissa >> by | u128::from(mantissa & ((1 << by) - 1) != 0),
        _ => 1,
    };
    let exponent = p_exponent.max(c_exponent);
    let (p, c) = (lowered(p, exponent - p_exponent), lowered(c, exponent - c_exponent));
    let (negative, sum) = match (p_sign == c_sign, p.cmp(&c)) {
        (true, _) => (p_sign, p + c),
        (false, std::cmp::Ordering::Greater) => (p_sign, p - c),
        (false, std::cmp::Ordering::Less) => (c_sign, c - p),
        (false, std::cmp::Ordering::Equal) => (mode == rounding::DOWN, 0),
    };
    rounded(negative, sum, exponent + scale, format, mode)
}

/// Computes `value · 2^exponent` in `format`, rounded once in rounding mode `mode`.
pub fn scaled(value: f64, exponent: i32, format: Format, mode: u32) -> u64 {
    if !value.is_finite() {
        return fused(value, 1.0, 0.0, format, mode);
    }
    let (negative, mantissa, own) = parts(value);
    rounded(negative, mantissa, own + exponent.clamp(-5000, 5000), format, mode)
}

/// Rounds an f64 to f32 in rounding mode `mode`.
pub fn narrow32(value: f64, mode: u32) -> f32 {
    if mode == 0 { value as f32 } else { f32::from_bits(scaled(value, 0, SINGLE, mode) as u32) }
}

/// Rounds an f32 to f16 in rounding mode `mode`.
pub fn narrow16(value: f32, mode: u32) -> F16 {
    let near = F16::from_f32(value);
    let back = near.to_f32();
    if mode == 0 || back == value || back.is_nan() {
        return near;
    }
    let toward_zero = if back.abs() > value.abs() { F16(near.0 - 1) } else { near };
    let away = F16(toward_zero.0 + 1);
    match (mode, value > 0.0) {
        (rounding::ZERO, _) | (rounding::UP, false) | (rounding::DOWN, true) => toward_zero,
        _ => away,
    }
}

/// Returns the exponent that puts the mantissa into [0.5, 1); 0 for zeros, infinities and NaNs.
pub fn frexp_exponent(value: f64) -> i32 {
    if value == 0.0 || !value.is_finite() {
        return 0;
    }
    let bits = value.to_bits();
    let exponent = (bits >> 52 & 0x7ff) as i32;
    if exponent == 0 { (value * 2f64.powi(64)).to_bits().wrapping_shr(52) as i32 % 2048 - 1022 - 64 } else { exponent - 1022 }
}

/// Returns the signed mantissa in [0.5, 1); zeros, infinities and NaNs unchanged.
pub fn frexp_mantissa(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let value = if value.abs() < f64::MIN_POSITIVE { value * 2f64.powi(64) } else { value };
    f64::from_bits(value.to_bits() & !(0x7ff << 52) | 1022 << 52)
}

/// Computes `value · 2^exponent`, rounded once.
pub fn ldexp64(value: f64, exponent: i32) -> f64 {
    if value == 0.0 || !value.is_finite() || exponent == 0 {
        return f64::from_bits(quiet64(value.to_bits()));
    }
    let mut exponent = exponent.clamp(-2200, 2200);
    let mut value = value;
    while exponent > 1000 {
        value *= 2f64.powi(1000);
        exponent -= 1000;
    }
    // Scale down in exact steps; only the last one rounds.
    if exponent < -1000 {
        let (mantissa, scale) = (frexp_mantissa(value), frexp_exponent(value));
        let total = scale + exponent;
        if total < -1080 {
            return 0f64.copysign(value);
        }
        if total >= -1021 {
            return mantissa * 2f64.powi(total.max(-1022) + 1) * 0.5;
        }
        return (mantissa * 2f64.powi(-1000)) * 2f64.powi(total + 1000);
    }
    let (mantissa, scale) = (frexp_mantissa(value), frexp_exponent(value));
    let total = scale + exponent;
    if total >= -1021 {
        // Normal: two exact steps.
        let half = total / 2;
        return mantissa * 2f64.powi(half) * 2f64.powi(total - half);
    }
    if total < -1080 {
        return 0f64.copysign(value);
    }
    (mantissa * 2f64.powi(-1000)) * 2f64.powi(total + 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_survives_the_way_through_f32() {
        for bits in 0..=u16::MAX {
            let half = F16(bits);
            let back = F16::from_f32(half.to_f32());
            if bits & 0x7fff > 0x7c00 {
                assert_eq!(back.0 | 0x200, bits | 0x200);
            } else {
                assert_eq!(back, half);
            }
        }
    }

    #[test]
    fn halfway_cases_go_to_even() {
        for bits in (0..0x7bffu16).step_by(7) {
            let (low, high) = (F16(bits).to_f32(), F16(bits + 1).to_f32());
            let middle = (low + high) / 2.0;
            let even = if bits & 1 == 0 { bits } else { bits + 1 };
            assert_eq!(F16::from_f32(middle).0, even, "{bits:#x}");
            assert_eq!(F16::from_f32(middle.next_down()).0, bits);
            assert_eq!(F16::from_f32(middle.next_up()).0, bits + 1);
        }
        assert_eq!(F16::from_f32(65519.996).0, 0x7bff);
        assert_eq!(F16::from_f32(65520.0).0, 0x7c00);
    }

    #[test]
    fn ldexp_rounds_once() {
        assert_eq!(ldexp64(1.0, -1074), f64::from_bits(1));
        assert_eq!(ldexp64(1.5, -1074), f64::from_bits(2));
        assert_eq!(ldexp64(1.0, -1075), 0.0);
        assert_eq!(ldexp64(1.0, 1023), 2f64.powi(1023));
        assert_eq!(ldexp64(1.0, 1024), f64::INFINITY);
        assert_eq!(ldexp64(f64::from_bits(1), 1074), 1.0);
        assert_eq!(ldexp64(f64::from_bits(1), 2097), 2f64.powi(1023));
        assert_eq!(ldexp64(2f64.powi(1023), -2097), f64::from_bits(1));
    }

    #[test]
    fn frexp_takes_denormals_apart() {
        for value in [1.0, -3.5, f64::from_bits(1), f64::MIN_POSITIVE, f64::MAX, 1e-310] {
            let (m, e) = (frexp_mantissa(value), frexp_exponent(value));
            assert!((0.5..1.0).contains(&m.abs()), "{value} {m}");
            assert_eq!(ldexp64(m, e), value);
        }
    }

    #[test]
    fn directed_rounding_brackets_the_value() {
        let third = 1.0f64 / 3.0;
        let (down, up) = (narrow32(third, rounding::DOWN), narrow32(third, rounding::UP));
        assert!(f64::from(down) < third && third < f64::from(up) && down.next_up() == up);
        assert_eq!(narrow32(1e300, rounding::ZERO), f32::MAX);
        assert_eq!(narrow16(1.0 / 3.0, rounding::ZERO).0 + 1, narrow16(1.0 / 3.0, rounding::UP).0);
    }
}
