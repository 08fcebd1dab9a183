//! Powers and logarithms of two, in f64 and without branches, so that the compiler vectorizes them. They round to the nearest f32 but for
//! rare near ties.

/// The NaN that approximations return outside their domain.
pub const NO_NUMBER: f32 = f32::from_bits(0xffc0_0000);

/// 1.5 · 2^52: an f64 of this magnitude has its integer in the low bits.
const MAGIC: f64 = 6_755_399_441_055_744.0;

/// The coefficients of e^x, the highest power first: 1 / 13! to 1 / 0!.
const EXPONENTIAL: [f64; 14] = [
    1.0 / 6_227_020_800.0,
    1.0 / 479_001_600.0,
    1.0 / 39_916_800.0,
    1.0 / 3_628_800.0,
    1.0 / 362_880.0,
    1.0 / 40_320.0,
    1.0 / 5040.0,
    1.0 / 720.0,
    1.0 / 120.0,
    1.0 / 24.0,
    1.0 / 6.0,
    0.5,
    1.0,
    1.0,
];

/// The coefficients of the odd powers of `atanh`, the highest first: 1 / 21 to 1 / 3, 1.
const ARTANH: [f64; 11] =
    [1.0 / 21.0, 1.0 / 19.0, 1.0 / 17.0, 1.0 / 15.0, 1.0 / 13.0, 1.0 / 11.0, 1.0 / 9.0, 1.0 / 7.0, 1.0 / 5.0, 1.0 / 3.0, 1.0];

#[inline(always)]
fn polynomial<const N: usize>(coefficients: &[f64; N], x: f64) -> f64 {
    let mut sum = coefficients[0];
    for coefficient in &coefficients[1..] {
        sum = sum.mul_add(x, *coefficient);
    }
    sum
}

/// Computes 2^`value`.
#[inline(always)]
pub fn exp2(value: f32) -> f32 {
    // Beyond these limits an f32 is 0 or infinite. NaN stays.
    let x = f64::from(value);
    let x = if x > 1000.0 { 1000.0 } else { x };
    let x = if x < -1000.0 { -1000.0 } else { x };
    let shifted = x + MAGIC;
    let scale = f64::from_bits(shifted.to_bits().wrapping_add(1023) << 52);
    let part = x - (shifted - MAGIC);
    (polynomial(&EXPONENTIAL, part * std::f64::consts::LN_2) * scale) as f32
}

/// Computes the logarithm to base 2 of a number that is not denormal.
#[inline(always)]
pub fn log2(value: f32) -> f32 {
    // The mantissa is in [√½, √2).
    let bits = f64::from(value).to_bits();
    let exponent = (bits.wrapping_sub(std::f64::consts::FRAC_1_SQRT_2.to_bits()) as i64 >> 52) as i32;
    let mantissa = f64::from_bits(bits.wrapping_sub((exponent as i64 as u64) << 52));
    let quotient = (mantissa - 1.0) / (mantissa + 1.0);
    let series = polynomial(&ARTANH, quotient * quotient) * (2.0 * std::f64::consts::LOG2_E);
    let result = quotient.mul_add(series, f64::from(exponent)) as f32;
    let result = if value == 0.0 { f32::NEG_INFINITY } else { result };
    let result = if value == f32::INFINITY { f32::INFINITY } else { result };
    let result = if value < 0.0 { NO_NUMBER } else { result };
    // Quiet.
    if value.is_nan() { value + value } else { result }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether a result is the rounded one or its neighbor.
    fn is_close(one: f32, exact: f64) -> bool {
        let near = exact as f32;
        one == near || one == near.next_up() || one == near.next_down()
    }

    #[test]
    fn results_are_those_of_the_math_library() {
        let (mut differ, mut count) = (0, 0);
        for n in 0..200_000u32 {
            let bits = n.wrapping_mul(0x9e37_79b1);
            let value = f32::from_bits(bits);
            let small = (f64::from(n) / 500.0 - 200.0) as f32;
            for value in [value, small] {
                if !value.is_nan() {
                    let exact = f64::from(value).exp2();
                    assert!(is_close(exp2(value), exact), "2^{value:e}");
                    differ += u32::from(exp2(value) != exact as f32);
                }
                if value.is_normal() && value > 0.0 {
                    let exact = f64::from(value).log2();
                    assert!(is_close(log2(value), exact), "log2 of {value:e}");
                    differ += u32::from(log2(value) != exact as f32);
                }
                count += 2;
            }
        }
        assert!(differ < count / 100_000, "{differ} of {count} results differ");
    }

    #[test]
    fn special_values_are_exact() {
        for n in -149..128 {
            assert_eq!(exp2(n as f32), 2f64.powi(n) as f32);
        }
        for n in -126..128 {
            assert_eq!(log2(2f64.powi(n) as f32), n as f32);
        }
        assert_eq!((exp2(f32::INFINITY), exp2(f32::NEG_INFINITY)), (f32::INFINITY, 0.0));
        assert_eq!((log2(f32::INFINITY), log2(0.0), log2(-0.0)), (f32::INFINITY, f32::NEG_INFINITY, f32::NEG_INFINITY));
        assert!(exp2(f32::NAN).is_nan() && log2(f32::NAN).is_nan() && log2(-1.0).is_nan() && log2(f32::NEG_INFINITY).is_nan());
    }
}
