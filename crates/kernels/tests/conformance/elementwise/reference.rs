//! What each operation computes, in `f64` and 128-bit integers, and how far a kernel may be from it.

use warpwave_kernels::{Binary, DType, Scalar, Unary};

use crate::common::values::{Value, range, round, round_int, wrap};

/// An operation of the suite.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Op {
    Unary(Unary),
    Binary(Binary),
    /// With a condition of this type.
    Where(DType),
    Affine(f64, f64),
    Fill(f64),
    Copy,
    Cast(DType),
}

impl Op {
    pub fn name(self) -> &'static str {
        match self {
            Op::Unary(op) => op.name(),
            Op::Binary(op) => op.name(),
            Op::Where(_) => "where",
            Op::Affine(..) => "affine",
            Op::Fill(_) => "fill",
            Op::Copy => "copy",
            Op::Cast(_) => "cast",
        }
    }

    /// The types of its inputs and of its result.
    pub fn types(self, dtype: DType) -> (Vec<DType>, DType) {
        match self {
            Op::Unary(_) | Op::Affine(..) | Op::Copy => (vec![dtype], dtype),
            Op::Binary(op) => (vec![dtype; 2], if op.is_comparison() { DType::U8 } else { dtype }),
            Op::Where(condition) => (vec![condition, dtype, dtype], dtype),
            Op::Fill(_) => (vec![], dtype),
            Op::Cast(to) => (vec![dtype], to),
        }
    }
}

/// What comes out, and how many units in the last place of an `f32` (or of an `f64`, if that is the type) it may be off before it is
/// rounded to its type. Without a number it must be the nearest there is.
pub fn reference(op: Op, dtype: DType, inputs: &[Value]) -> (Value, Option<f64>) {
    match op {
        Op::Copy => (inputs[0], None),
        Op::Where(_) => (if inputs[0].int() != 0 { inputs[1] } else { inputs[2] }, None),
        Op::Fill(value) if dtype.is_integer() => (Value::Int(wrap(dtype, value as i64 as i128)), None),
        Op::Fill(value) => (Value::Real(round(dtype, value)), None),
        Op::Cast(to) => (cast(inputs[0], to), None),
        Op::Affine(factor, term) if dtype.is_integer() => {
            (Value::Int(wrap(dtype, inputs[0].int() * (factor as i128) + term as i128)), None)
        }
        Op::Affine(factor, term) => {
            let [factor, term] = [factor, term].map(|scalar| scalar_of(dtype, scalar));
            (Value::Real(inputs[0].real().mul_add(factor, term)), Some(0.51))
        }
        Op::Unary(op) if dtype.is_integer() => (Value::Int(wrap(dtype, whole(op, dtype, inputs[0].int()))), None),
        Op::Unary(op) => {
            let (value, ulps) = real(op, dtype, inputs[0].real());
            (Value::Real(value), (ulps > 0.0).then_some(ulps))
        }
        Op::Binary(op) => binary(op, dtype, inputs[0], inputs[1]),
    }
}

/// Numbers of a call as the computation has them.
fn scalar_of(dtype: DType, scalar: f64) -> f64 {
    if dtype == DType::F64 { scalar } else { round(DType::F32, scalar) }
}

fn cast(value: Value, to: DType) -> Value {
    match (value, to.is_integer()) {
        (Value::Int(value), true) => Value::Int(wrap(to, value)),
        (Value::Int(value), false) => Value::Real(round_int(to, value)),
        (Value::Real(value), true) if value.is_nan() => Value::Int(0),
        (Value::Real(value), true) => Value::Int((value.trunc() as i128).clamp(range(to).0, range(to).1)),
        (Value::Real(value), false) => Value::Real(round(to, value)),
    }
}

fn whole(op: Unary, dtype: DType, x: i128) -> i128 {
    let bound = |scalar: Scalar| match scalar {
        Scalar::Int(value) => value.clamp(range(dtype).0, range(dtype).1),
        Scalar::Float(value) => (value.trunc() as i128).clamp(range(dtype).0, range(dtype).1),
    };
    match op {
        Unary::Neg => -x,
        Unary::Abs => x.abs(),
        Unary::Sign => x.signum(),
        Unary::Sqr => x * x,
        Unary::Relu => x.max(0),
        Unary::Clamp(low, high) => x.max(bound(low)).min(bound(high)),
        _ => unreachable!(),
    }
}

/// The functions of floats: the value, and the tolerance of the computation; 0 is correctly rounded.
fn real(op: Unary, dtype: DType, x: f64) -> (f64, f64) {
    let sigmoid = |x: f64| if x < 0.0 { x.exp() / (1.0 + x.exp()) } else { 1.0 / (1.0 + (-x).exp()) };
    let bound = |scalar: Scalar| match scalar {
        Scalar::Int(value) => scalar_of(dtype, value as f64),
        Scalar::Float(value) => scalar_of(dtype, value),
    };
    // Where the tolerance grows with the input, a reference in f64 is as far off as a kernel in f64.
    let both = if dtype == DType::F64 { 2.0 } else { 1.0 };
    // Types whose rounding hides it are computed with fewer digits; the exponential with as many fewer as its argument has before the point.
    let quick = |ulps: f64| if dtype.size() < 4 { ulps } else { 0.0 };
    let far = quick(1.5 * x.abs().min(200.0));
    match op {
        Unary::Exp => (x.exp(), 2.0 + far),
        Unary::Log => (x.ln(), 3.0 + quick(24.0)),
        Unary::Sin => (x.sin(), 3.0 + quick(24.0)),
        Unary::Cos => (x.cos(), 3.0 + quick(24.0)),
        Unary::Tanh => (x.tanh(), 4.0 + quick(20.0)),
        Unary::Neg => (-x, 0.0),
        Unary::Recip => (1.0 / x, quick(3.0)),
        Unary::Sqr => (x * x, 0.0),
        Unary::Sqrt => (x.sqrt(), quick(3.0)),
        Unary::Rsqrt => (1.0 / x.sqrt(), 3.0),
        Unary::Relu => (if x < 0.0 { 0.0 } else { x }, 0.0),
        Unary::Abs => (x.abs(), 0.0),
        Unary::Floor => (x.floor(), 0.0),
        Unary::Ceil => (x.ceil(), 0.0),
        Unary::Round => (x.round(), 0.0),
        Unary::Sign => (f64::from(i8::from(x > 0.0) - i8::from(x < 0.0)), 0.0),
        Unary::Sigmoid => (sigmoid(x), 4.0 + far),
        Unary::Silu => {
            // Where the exponential is so small that digits are missing, its last one counts x times.
            let missing = x < if dtype == DType::F64 { -708.0 } else { -87.0 };
            (if x == f64::NEG_INFINITY { f64::NAN } else { x * sigmoid(x) }, 5.0 + far + if missing { x.abs().min(800.0) } else { 0.0 })
        }
        Unary::Gelu => {
            let twice = 2.0 * (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
            // The exponential of a large number is as far off as that number's last bits.
            (if x == f64::NEG_INFINITY { f64::NAN } else { x * sigmoid(twice) }, 6.0 + 3.0 * both * twice.abs().min(800.0))
        }
        Unary::GeluErf => (0.5 * x * erfc(-x * std::f64::consts::FRAC_1_SQRT_2), 8.0 + quick(32.0) + 2.0 * both * (x * x).min(1600.0)),
        // Near zero one minus the complement would have no digits left.
        Unary::Erf => (if x.abs() < 2.0 { erf_near_zero(x) } else { 1.0 - erfc(x) }, 8.0 + quick(24.0)),
        Unary::Elu(alpha) => (if x > 0.0 { x } else { scalar_of(dtype, alpha) * x.exp_m1() }, 4.0 + quick(8.0) + far),
        Unary::Powf(exponent) => (x.powf(scalar_of(dtype, exponent)), power_ulps(dtype, x, exponent)),
        Unary::Clamp(low, high) => {
            let (low, high) = (bound(low), bound(high));
            (
                if x < low {
                    low
                } else if x > high {
                    high
                } else {
                    x
                },
                0.0,
            )
        }
        _ => unreachable!("{op:?} has no reference"),
    }
}

/// A power's tolerance: where few digits suffice, the logarithm's last ones count as often as the exponent says.
fn power_ulps(dtype: DType, x: f64, y: f64) -> f64 {
    let log = x.abs().log2().abs().clamp(1.0, 1e3);
    16.0 + if dtype.size() < 4 { 4.0 * (y.abs() * log).min(1e4) } else { 0.0 }
}

/// The error function's series of positive terms: 2/√π · e^(−x²) · Σ 2ⁿ x²ⁿ⁺¹ / (2n+1)!!.
fn erf_near_zero(x: f64) -> f64 {
    // From the inside, where what is rounded counts least.
    let sum = (1..60).rev().fold(1.0, |sum: f64, n| sum.mul_add(2.0 * x * x / f64::from(2 * n + 1), 1.0));
    std::f64::consts::FRAC_2_SQRT_PI * x * exp_of_minus_square(x) * sum
}

/// The complementary error function, to nearly all digits however small it is.
fn erfc(x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    // Up to here one minus the other function loses a digit at most.
    if x < 0.5 {
        return if x < -0.5 { 2.0 - erfc(-x) } else { 1.0 - erf_near_zero(x) };
    }
    if x > 30.0 {
        return 0.0;
    }
    // e^(−x²)/√π · 1/(x + (1/2)/(x + (2/2)/(x + (3/2)/(x + …)))), from the inside.
    let terms = if x < 2.0 { 3000 } else { 400 };
    let fraction = (1..terms).rev().fold(x, |below, n| x + f64::from(n) / 2.0 / below);
    exp_of_minus_square(x) / fraction / std::f64::consts::PI.sqrt()
}

/// The square in two parts: one would lose digits of the exponential.
fn exp_of_minus_square(x: f64) -> f64 {
    let high = x * x;
    (-high).exp() * (1.0 - x.mul_add(x, -high))
}

fn binary(op: Binary, dtype: DType, a: Value, b: Value) -> (Value, Option<f64>) {
    if op.is_comparison() {
        let order = match (a, b) {
            (Value::Int(a), Value::Int(b)) => Some(a.cmp(&b)),
            _ => a.real().partial_cmp(&b.real()),
        };
        let holds = match op {
            Binary::Eq => order.is_some_and(|o| o.is_eq()),
            Binary::Ne => order.is_none_or(|o| o.is_ne()),
            Binary::Lt => order.is_some_and(|o| o.is_lt()),
            Binary::Le => order.is_some_and(|o| o.is_le()),
            Binary::Gt => order.is_some_and(|o| o.is_gt()),
            _ => order.is_some_and(|o| o.is_ge()),
        };
        return (Value::Int(holds.into()), None);
    }
    if let (Value::Int(a), Value::Int(b)) = (a, b) {
        let value = match op {
            Binary::Add => a + b,
            Binary::Sub => a - b,
            Binary::Mul => a * b,
            Binary::Div => a.checked_div(b).unwrap_or(0),
            Binary::Max => a.max(b),
            _ => a.min(b),
        };
        return (Value::Int(wrap(dtype, value)), None);
    }
    let (a, b) = (a.real(), b.real());
    let nan = a.is_nan() || b.is_nan();
    let value = match op {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Mul => a * b,
        Binary::Div => a / b,
        Binary::Max => {
            if nan {
                f64::NAN
            } else {
                a.max(b)
            }
        }
        Binary::Min => {
            if nan {
                f64::NAN
            } else {
                a.min(b)
            }
        }
        // Even of NaN; the host's function makes an exception of signalling ones, which GPUs do not know.
        _ if a == 1.0 || b == 0.0 => 1.0,
        _ => a.powf(b),
    };
    (Value::Real(value), (op == Binary::Pow).then(|| power_ulps(dtype, a, b)))
}
