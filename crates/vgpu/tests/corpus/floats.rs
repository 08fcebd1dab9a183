//! Elementwise f32 and f64 operations.

use super::case::{Case, Run};
use super::data::Tolerance::{Near, Ulps};
use super::data::{ROUNDED, power_of_two};
use super::elementwise::{binary, binary_near, ternary, unary, unary_near};
use super::math::{erf, frexp, rint};
use super::rng::Rng;

const MATH: &str = "float_math.cu";
const PARTS: &str = "float_parts.cu";
const DOUBLE: &str = "double_math.cu";

/// Every kind of number: normal, denormal, zeros, infinities, not a number.
fn any32(r: &mut Rng, n: usize) -> Vec<f32> {
    let corners = [0.0, -0.0, 1.0, -1.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX, f32::MIN_POSITIVE, 1e-42, 0.5, -2.5];
    let one = |i: usize, r: &mut Rng| if i.is_multiple_of(9) { corners[r.below(12)] } else { f32::from_bits(r.next() as u32) };
    // Some instructions quiet signaling NaNs and others do not.
    (0..n).map(|i| one(i, r)).map(|x| if x.is_nan() { f32::NAN } else { x }).collect()
}

fn any64(r: &mut Rng, n: usize) -> Vec<f64> {
    let corners = [0.0, -0.0, 1.0, -1.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, f64::MAX, f64::MIN_POSITIVE, 5e-324, 0.5, -2.5];
    let one = |i: usize, r: &mut Rng| if i.is_multiple_of(9) { corners[r.below(12)] } else { f64::from_bits(r.next()) };
    (0..n).map(|i| one(i, r)).map(|x| if x.is_nan() { f64::NAN } else { x }).collect()
}

/// Numbers about 1, whose sums and products are numbers.
fn tame32(r: &mut Rng, n: usize) -> Vec<f32> {
    r.f32s(n, -1000.0, 1000.0)
}

fn tame64(r: &mut Rng, n: usize) -> Vec<f64> {
    r.f64s(n, -1000.0, 1000.0)
}

/// Of every magnitude, and positive.
fn wide32(r: &mut Rng, n: usize) -> Vec<f32> {
    (0..n).map(|_| r.real(-80.0, 80.0).exp() as f32).collect()
}

fn wide64(r: &mut Rng, n: usize) -> Vec<f64> {
    (0..n).map(|_| r.real(-600.0, 600.0).exp()).collect()
}

/// Halves among them, where rounding modes differ.
fn fractions32(r: &mut Rng, n: usize) -> Vec<f32> {
    (0..n).map(|i| if i % 3 == 0 { r.below(2000) as f32 / 2.0 - 500.0 } else { r.real(-500.0, 500.0) as f32 }).collect()
}

fn fractions64(r: &mut Rng, n: usize) -> Vec<f64> {
    (0..n).map(|i| if i % 3 == 0 { r.below(2000) as f64 / 2.0 - 500.0 } else { r.real(-500.0, 500.0) }).collect()
}

/// Numbers whose sums, products and quotients are numbers: one NaN is as good as another, so they are left out where bits are compared.
fn pair32(r: &mut Rng, n: usize) -> (Vec<f32>, Vec<f32>) {
    (tame32(r, n), wide32(r, n))
}

fn pair64(r: &mut Rng, n: usize) -> (Vec<f64>, Vec<f64>) {
    (tame64(r, n), wide64(r, n))
}

fn functions32() -> Vec<Case> {
    let near = unary_near::<f32, f32>;
    vec![
        near("exp_f32", MATH, |r, n| r.f32s(n, -100.0, 88.0), f64::exp, Ulps(3.0)),
        near("exp2_f32", MATH, |r, n| r.f32s(n, -140.0, 127.0), f64::exp2, Ulps(3.0)),
        near("exp10_f32", MATH, |r, n| r.f32s(n, -40.0, 38.0), |x| 10f64.powf(x), Ulps(3.0)),
        near("expm1_f32", MATH, |r, n| r.f32s(n, -5.0, 20.0), f64::exp_m1, Ulps(3.0)),
        near("log_f32", MATH, wide32, f64::ln, Ulps(3.0)),
        near("log2_f32", MATH, wide32, f64::log2, Ulps(3.0)),
        near("log10_f32", MATH, wide32, f64::log10, Ulps(3.0)),
        near("log1p_f32", MATH, |r, n| r.f32s(n, -0.9, 3.0), f64::ln_1p, Ulps(2.0)),
        near("sin_f32", MATH, |r, n| r.f32s(n, -20.0, 20.0), f64::sin, Ulps(4.0)),
        near("cos_f32", MATH, |r, n| r.f32s(n, -20.0, 20.0), f64::cos, Ulps(4.0)),
        near("sin_large_f32", MATH, |r, n| r.f32s(n, 1e5, 1e9), f64::sin, Ulps(4.0)),
        near("tan_f32", MATH, |r, n| r.f32s(n, -10.0, 10.0), f64::tan, Ulps(5.0)),
        near("asin_f32", MATH, |r, n| r.f32s(n, -1.0, 1.0), f64::asin, Ulps(4.0)),
        near("acos_f32", MATH, |r, n| r.f32s(n, -1.0, 1.0), f64::acos, Ulps(4.0)),
        near("atan_f32", MATH, |r, n| r.f32s(n, -50.0, 50.0), f64::atan, Ulps(5.0)),
        near("sinh_f32", MATH, |r, n| r.f32s(n, -20.0, 20.0), f64::sinh, Ulps(4.0)),
        near("cosh_f32", MATH, |r, n| r.f32s(n, -20.0, 20.0), f64::cosh, Ulps(4.0)),
        near("tanh_f32", MATH, |r, n| r.f32s(n, -6.0, 6.0), f64::tanh, Ulps(5.0)),
        near("erf_f32", MATH, |r, n| r.f32s(n, -4.0, 4.0), erf, Ulps(16.0)),
        near("sqrt_f32", MATH, wide32, f64::sqrt, ROUNDED),
        near("rsqrt_f32", MATH, wide32, |x| 1.0 / x.sqrt(), Ulps(2.0)),
        near("cbrt_f32", MATH, tame32, f64::cbrt, Ulps(2.0)),
        near("rcp_f32", MATH, wide32, |x| 1.0 / x, ROUNDED),
        near("fast_exp_f32", MATH, |r, n| r.f32s(n, -10.0, 10.0), f64::exp, Near(4e-6, 0.0)),
        near("fast_log_f32", MATH, |r, n| r.f32s(n, 0.1, 100.0), f64::ln, Near(4e-6, 4e-7)),
        near("fast_sin_f32", MATH, |r, n| r.f32s(n, -3.0, 3.0), f64::sin, Near(0.0, 1e-6)),
        near("fast_cos_f32", MATH, |r, n| r.f32s(n, -3.0, 3.0), f64::cos, Near(0.0, 1e-6)),
        near("sigmoid_f32", MATH, |r, n| r.f32s(n, -20.0, 20.0), |x| 1.0 / (1.0 + (-x).exp()), Ulps(6.0)),
        near("silu_f32", MATH, |r, n| r.f32s(n, -20.0, 20.0), |x| x / (1.0 + (-x).exp()), Ulps(6.0)),
        near("gelu_f32", MATH, |r, n| r.f32s(n, -3.0, 3.0), |x| 0.5 * x * (1.0 + erf(x / 2f64.sqrt())), Near(1e-5, 1e-6)),
        binary_near("pow_f32", MATH, |r, n| (r.f32s(n, 0.01, 50.0), r.f32s(n, -8.0, 8.0)), f64::powf, Ulps(16.0)),
        binary_near("atan2_f32", MATH, |r, n| (tame32(r, n), tame32(r, n)), f64::atan2, Ulps(6.0)),
        binary_near("hypot_f32", MATH, |r, n| (tame32(r, n), tame32(r, n)), f64::hypot, Ulps(4.0)),
        binary::<f32, f32>("fmod_f32", MATH, |r, n| (tame32(r, n), r.f32s(n, 0.01, 30.0)), |a, b| a % b),
        binary_near("remainder_f32", MATH, |r, n| (tame32(r, n), r.f32s(n, 0.5, 30.0)), |a, b| a - b * rint(a / b), Near(0.0, 1e-9)),
    ]
}

fn parts32() -> Vec<Case> {
    let exact = unary::<f32, f32>;
    vec![
        binary("add_f32", PARTS, pair32, |a: f32, b| a + b),
        binary("sub_f32", PARTS, pair32, |a: f32, b| a - b),
        binary("mul_f32", PARTS, pair32, |a: f32, b| a * b),
        binary("div_f32", PARTS, pair32, |a: f32, b| a / b),
        binary_near::<f32>("min_f32", PARTS, |r, n| (any32(r, n), any32(r, n)), f64::min, ROUNDED),
        binary_near::<f32>("max_f32", PARTS, |r, n| (any32(r, n), any32(r, n)), f64::max, ROUNDED),
        binary("copysign_f32", PARTS, |r, n| (any32(r, n), any32(r, n)), f32::copysign),
        ternary("fma_f32", PARTS, |r, n| [tame32(r, n), tame32(r, n), tame32(r, n)], f32::mul_add),
        exact("floor_f32", PARTS, fractions32, f32::floor),
        exact("ceil_f32", PARTS, fractions32, f32::ceil),
        exact("rint_f32", PARTS, fractions32, f32::round_ties_even),
        exact("trunc_f32", PARTS, fractions32, f32::trunc),
        exact("round_f32", PARTS, fractions32, f32::round),
        exact("abs_f32", PARTS, any32, f32::abs),
        exact("neg_f32", PARTS, any32, |x| -x),
        exact("saturate_f32", PARTS, |r, n| r.f32s(n, -1.0, 2.0), |x| x.clamp(0.0, 1.0)),
        unary("bits_f32", PARTS, any32, |x: f32| x.to_bits()),
        unary("class_f32", PARTS, any32, |x: f32| {
            i32::from(x.is_nan()) | i32::from(x.is_infinite()) << 1 | i32::from(x.is_finite()) << 2 | i32::from(x.is_sign_negative()) << 3
        }),
        binary("compare_f32", PARTS, |r, n| (fractions32(r, n).into_iter().chain(any32(r, n)).take(n).collect(), any32(r, n)), compare),
        Case::new("ldexp_f32", PARTS, |r, _| {
            let (x, e) = (r.f32s(300, -4.0, 4.0), (0..300).map(|_| r.below(280) as i32 - 150).collect::<Vec<_>>());
            let expected = x.iter().zip(&e).map(|(x, e)| f64::from(*x) * power_of_two(*e)).collect();
            Run::flat(300).input(&x).input(&e).close::<f32>(expected, ROUNDED).n(300)
        }),
        Case::new("frexp_f32", PARTS, |r, _| {
            let x: Vec<f32> = wide32(r, 300).into_iter().zip(0..).map(|(x, i)| if i % 2 == 0 { x } else { -x }).collect();
            let (m, e): (Vec<f32>, Vec<i32>) = x.iter().map(|x| frexp(f64::from(*x))).map(|(m, e)| (m as f32, e)).unzip();
            Run::flat(300).input(&x).exact(&m).exact(&e).n(300)
        }),
        Case::new("modf_f32", PARTS, |r, _| {
            let x = fractions32(r, 300);
            let fraction: Vec<f32> = x.iter().map(|x| x.fract().copysign(*x)).collect();
            let whole: Vec<f32> = x.iter().map(|x| x.trunc()).collect();
            Run::flat(300).input(&x).exact(&fraction).exact(&whole).n(300)
        }),
        Case::new("sincos_f32", PARTS, |r, _| {
            let x = r.f32s(300, -30.0, 30.0);
            let sine = x.iter().map(|x| f64::from(*x).sin()).collect();
            let cosine = x.iter().map(|x| f64::from(*x).cos()).collect();
            Run::flat(300).input(&x).close::<f32>(sine, Ulps(4.0)).close::<f32>(cosine, Ulps(4.0)).n(300)
        }),
        Case::new("round_to_int_f32", PARTS, |r, _| {
            // Out of range saturates here, and NaN becomes 0.
            let x: Vec<f32> = fractions32(r, 300).into_iter().zip(any32(r, 300)).zip(0..).map(|((a, b), i)| [a, b][i % 2]).collect();
            let by = |f: fn(f32) -> f32| x.iter().map(|x| f(*x) as i32).collect::<Vec<_>>();
            let run = Run::flat(300).input(&x).exact(&by(f32::round_ties_even)).exact(&by(f32::trunc));
            run.exact(&by(f32::ceil)).exact(&by(f32::floor)).n(300)
        }),
    ]
}

fn compare(a: f32, b: f32) -> i32 {
    let tests = [a < b, a <= b, a > b, a >= b, a == b, a != b, a.partial_cmp(&b) != Some(std::cmp::Ordering::Less)];
    tests.iter().zip(0..).map(|(test, bit)| i32::from(*test) << bit).sum()
}

fn doubles() -> Vec<Case> {
    let exact = unary::<f64, f64>;
    let near = unary_near::<f64, f64>;
    vec![
        binary("add_f64", DOUBLE, pair64, |a: f64, b| a + b),
        binary("sub_f64", DOUBLE, pair64, |a: f64, b| a - b),
        binary("mul_f64", DOUBLE, pair64, |a: f64, b| a * b),
        binary("div_f64", DOUBLE, pair64, |a: f64, b| a / b),
        binary_near::<f64>("min_f64", DOUBLE, |r, n| (any64(r, n), any64(r, n)), f64::min, ROUNDED),
        binary_near::<f64>("max_f64", DOUBLE, |r, n| (any64(r, n), any64(r, n)), f64::max, ROUNDED),
        binary("copysign_f64", DOUBLE, |r, n| (any64(r, n), any64(r, n)), f64::copysign),
        binary::<f64, f64>("fmod_f64", DOUBLE, |r, n| (tame64(r, n), r.f64s(n, 0.01, 30.0)), |a, b| a % b),
        binary_near::<f64>("pow_f64", DOUBLE, |r, n| (r.f64s(n, 0.01, 50.0), r.f64s(n, -20.0, 20.0)), f64::powf, Ulps(16.0)),
        ternary("fma_f64", DOUBLE, |r, n| [tame64(r, n), tame64(r, n), tame64(r, n)], f64::mul_add),
        exact("floor_f64", DOUBLE, fractions64, f64::floor),
        exact("ceil_f64", DOUBLE, fractions64, f64::ceil),
        exact("rint_f64", DOUBLE, fractions64, f64::round_ties_even),
        exact("trunc_f64", DOUBLE, fractions64, f64::trunc),
        exact("round_f64", DOUBLE, fractions64, f64::round),
        exact("sqrt_f64", DOUBLE, wide64, f64::sqrt),
        exact("rcp_f64", DOUBLE, wide64, |x| 1.0 / x),
        near("rsqrt_f64", DOUBLE, wide64, |x| 1.0 / x.sqrt(), Ulps(2.5)),
        near("cbrt_f64", DOUBLE, tame64, f64::cbrt, Ulps(3.0)),
        near("exp_f64", DOUBLE, |r, n| r.f64s(n, -700.0, 700.0), f64::exp, Ulps(4.0)),
        near("exp2_f64", DOUBLE, |r, n| r.f64s(n, -1000.0, 1000.0), f64::exp2, Ulps(4.0)),
        near("log_f64", DOUBLE, wide64, f64::ln, Ulps(4.0)),
        near("log2_f64", DOUBLE, wide64, f64::log2, Ulps(4.0)),
        near("sin_f64", DOUBLE, |r, n| r.f64s(n, -1e6, 1e6), f64::sin, Ulps(5.0)),
        near("cos_f64", DOUBLE, |r, n| r.f64s(n, -50.0, 50.0), f64::cos, Ulps(5.0)),
        near("tan_f64", DOUBLE, |r, n| r.f64s(n, -10.0, 10.0), f64::tan, Ulps(6.0)),
        near("atan_f64", DOUBLE, |r, n| r.f64s(n, -50.0, 50.0), f64::atan, Ulps(6.0)),
        near("tanh_f64", DOUBLE, |r, n| r.f64s(n, -6.0, 6.0), f64::tanh, Ulps(6.0)),
        near("erf_f64", DOUBLE, |r, n| r.f64s(n, -4.0, 4.0), erf, Ulps(32.0)),
        Case::new("ldexp_f64", DOUBLE, |r, _| {
            let (x, e) = (r.f64s(300, -4.0, 4.0), (0..300).map(|_| r.below(1800) as i32 - 900).collect::<Vec<_>>());
            let expected: Vec<f64> = x.iter().zip(&e).map(|(x, e)| x * power_of_two(*e)).collect();
            Run::flat(300).input(&x).input(&e).exact(&expected).n(300)
        }),
        Case::new("frexp_f64", DOUBLE, |r, _| {
            let x = wide64(r, 300);
            let (m, e): (Vec<f64>, Vec<i32>) = x.iter().map(|x| frexp(*x)).unzip();
            Run::flat(300).input(&x).exact(&m).exact(&e).n(300)
        }),
    ]
}

pub fn cases() -> Vec<Case> {
    [functions32(), parts32(), doubles()].into_iter().flatten().collect()
}
