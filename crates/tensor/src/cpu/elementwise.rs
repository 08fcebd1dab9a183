//! Elementwise operations and softmax for every element type, computed in `f32`, `f64` or `i64`.

use warpwave_kernels::{Binary, DType, Scalar, Unary};

use super::values::{self, Values};
use crate::backend::{Operand, OperandMut};
use crate::error::{Error, Result, wrong_type};

/// Operations of `f32` and `f64`.
pub(super) trait Float: Copy + PartialOrd {
    fn of(value: f64) -> Self;
    fn unary(self, op: Unary) -> Self;
    fn binary(self, op: Binary, other: Self) -> Self;
}

macro_rules! floats {
    ($ty:ty, $erf:path, $erfc:path) => {
        impl Float for $ty {
            fn of(value: f64) -> Self {
                value as $ty
            }

            fn unary(self, op: Unary) -> Self {
                let x = self;
                let sigmoid = |x: $ty| 1.0 / (1.0 + (-x).exp());
                match op {
                    Unary::Exp => x.exp(),
                    Unary::Log => x.ln(),
                    Unary::Sin => x.sin(),
                    Unary::Cos => x.cos(),
                    Unary::Tanh => x.tanh(),
                    Unary::Neg => -x,
                    Unary::Recip => 1.0 / x,
                    Unary::Sqr => x * x,
                    Unary::Sqrt => x.sqrt(),
                    Unary::Rsqrt => 1.0 / x.sqrt(),
                    Unary::Gelu => {
                        // 0.5 · (1 + tanh(y)) is sigmoid(2y), without cancellation.
                        let y = (2.0 * std::f64::consts::FRAC_1_PI).sqrt() as $ty * (x + 0.044715 * x * x * x);
                        if x == <$ty>::NEG_INFINITY { -0.0 } else { x * sigmoid(2.0 * y) }
                    }
                    Unary::GeluErf if x == <$ty>::NEG_INFINITY => -0.0,
                    // 1 + erf(y) is erfc(-y), without cancellation.
                    Unary::GeluErf => 0.5 * x * $erfc(-x * std::f64::consts::FRAC_1_SQRT_2 as $ty),
                    Unary::Erf => $erf(x),
                    Unary::Relu => {
                        if x < 0.0 {
                            0.0
                        } else {
                            x
                        }
                    }
                    Unary::Silu if x == <$ty>::NEG_INFINITY => -0.0,
                    Unary::Silu => x * sigmoid(x),
                    Unary::Sigmoid => sigmoid(x),
                    Unary::Abs => x.abs(),
                    Unary::Floor => x.floor(),
                    Unary::Ceil => x.ceil(),
                    Unary::Round => x.round(),
                    Unary::Sign if x.is_nan() || x == 0.0 => 0.0,
                    Unary::Sign => x.signum(),
                    Unary::Elu(alpha) => {
                        if x > 0.0 {
                            x
                        } else {
                            alpha as $ty * x.exp_m1()
                        }
                    }
                    Unary::Powf(exponent) => x.powf(exponent as $ty),
                    Unary::Clamp(low, high) => {
                        let (low, high) = (low.to_f64() as $ty, high.to_f64() as $ty);
                        if x < low {
                            low
                        } else if x > high {
                            high
                        } else {
                            x
                        }
                    }
                    _ => <$ty>::NAN,
                }
            }

            fn binary(self, op: Binary, other: Self) -> Self {
                let (a, b) = (self, other);
                let truth = |truth: bool| if truth { 1.0 } else { 0.0 };
                match op {
                    Binary::Add => a + b,
                    Binary::Sub => a - b,
                    Binary::Mul => a * b,
                    Binary::Div => a / b,
                    Binary::Max => {
                        if a.is_nan() || a > b {
                            a
                        } else {
                            b
                        }
                    }
                    Binary::Min => {
                        if a.is_nan() || a < b {
                            a
                        } else {
                            b
                        }
                    }
                    Binary::Pow => a.powf(b),
                    Binary::Eq => truth(a == b),
                    Binary::Ne => truth(a != b),
                    Binary::Lt => truth(a < b),
                    Binary::Le => truth(a <= b),
                    Binary::Gt => truth(a > b),
                    Binary::Ge => truth(a >= b),
                    _ => <$ty>::NAN,
                }
            }
        }
    };
}
floats!(f32, libm::erff, libm::erfcf);
floats!(f64, libm::erf, libm::erfc);

fn int_unary(x: i64, op: Unary, dtype: DType) -> i64 {
    // Bounds saturate to the element type.
    let (lowest, highest) = match dtype {
        DType::U8 => (0, i64::from(u8::MAX)),
        DType::I16 => (i64::from(i16::MIN), i64::from(i16::MAX)),
        DType::I32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
        DType::U32 => (0, i64::from(u32::MAX)),
        _ => (i64::MIN, i64::MAX),
    };
    let bound = |scalar: Scalar| scalar.to_i64().clamp(lowest, highest);
    match op {
        Unary::Neg => x.wrapping_neg(),
        Unary::Sqr => x.wrapping_mul(x),
        Unary::Relu => x.max(0),
        Unary::Abs => x.wrapping_abs(),
        Unary::Sign => x.signum(),
        Unary::Clamp(low, high) => {
            if x < bound(low) {
                bound(low)
            } else {
                x.min(bound(high))
            }
        }
        _ => 0,
    }
}

fn int_binary(a: i64, op: Binary, b: i64) -> i64 {
    match op {
        Binary::Add => a.wrapping_add(b),
        Binary::Sub => a.wrapping_sub(b),
        Binary::Mul => a.wrapping_mul(b),
        Binary::Div => {
            if b == 0 {
                0
            } else {
                a.wrapping_div(b)
            }
        }
        Binary::Max => a.max(b),
        Binary::Min => a.min(b),
        Binary::Eq => (a == b).into(),
        Binary::Ne => (a != b).into(),
        Binary::Lt => (a < b).into(),
        Binary::Le => (a <= b).into(),
        Binary::Gt => (a > b).into(),
        Binary::Ge => (a >= b).into(),
        _ => 0,
    }
}

fn pairs<T: Copy>(a: &[T], b: &[T], f: impl Fn(T, T) -> T) -> Vec<T> {
    a.iter().zip(b).map(|(a, b)| f(*a, *b)).collect()
}

fn mixed(op: &'static str, found: DType) -> Error {
    wrong_type(op, "the second tensor", found, "the type of the first")
}

pub(super) fn unary(op: Unary, x: &Operand<'_>, out: &mut OperandMut<'_>) -> Result<()> {
    let values = match Values::of(x)? {
        Values::F32(x) => Values::F32(x.into_iter().map(|x| x.unary(op)).collect()),
        Values::F64(x) => Values::F64(x.into_iter().map(|x| x.unary(op)).collect()),
        Values::I64(all) => Values::I64(all.into_iter().map(|value| int_unary(value, op, x.dtype)).collect()),
    };
    values.store(out)
}

pub(super) fn binary(op: Binary, a: &Operand<'_>, b: &Operand<'_>) -> Result<Values> {
    Ok(match (Values::of(a)?, Values::of(b)?) {
        (Values::F32(a), Values::F32(b)) => Values::F32(pairs(&a, &b, |a, b| a.binary(op, b))),
        (Values::F64(a), Values::F64(b)) => Values::F64(pairs(&a, &b, |a, b| a.binary(op, b))),
        (Values::I64(a), Values::I64(b)) => Values::I64(pairs(&a, &b, |a, b| int_binary(a, op, b))),
        _ => return Err(mixed(op.name(), b.dtype)),
    })
}

pub(super) fn affine(x: &Operand<'_>, factor: Scalar, term: Scalar) -> Result<Values> {
    let [factor, term] = [factor, term].map(|scalar| Values::scalar(scalar, x.dtype));
    Ok(match (Values::of(x)?, factor, term) {
        (Values::F32(x), Values::F32(f), Values::F32(t)) => Values::F32(x.into_iter().map(|x| x.mul_add(f[0], t[0])).collect()),
        (Values::F64(x), Values::F64(f), Values::F64(t)) => Values::F64(x.into_iter().map(|x| x.mul_add(f[0], t[0])).collect()),
        (Values::I64(x), Values::I64(f), Values::I64(t)) => {
            Values::I64(x.into_iter().map(|x| x.wrapping_mul(f[0]).wrapping_add(t[0])).collect())
        }
        _ => return Err(mixed("affine", x.dtype)),
    })
}

pub(super) fn where_cond(condition: &Operand<'_>, yes: &Operand<'_>, no: &Operand<'_>, out: &mut OperandMut<'_>) -> Result<()> {
    let (condition, size) = ((values::bytes(condition)?, condition.dtype.size()), out.dtype.size());
    let (yes, no) = (values::bytes(yes)?, values::bytes(no)?);
    let pairs = yes.chunks_exact(size).zip(no.chunks_exact(size));
    let is_set = condition.0.chunks_exact(condition.1).map(|bytes| bytes.iter().any(|byte| *byte != 0));
    let bytes: Vec<u8> = is_set.zip(pairs).flat_map(|(set, (yes, no))| if set { yes } else { no }).copied().collect();
    values::write_bytes(out, &bytes)
}

/// Softmax along one dimension.
pub(super) fn softmax(x: &Operand<'_>, dim: usize, log: bool, out: &mut OperandMut<'_>) -> Result<()> {
    fn row<T: Float + std::ops::Sub<Output = T> + std::ops::Div<Output = T> + std::iter::Sum>(x: &mut [T], log: bool) {
        let max = x.iter().copied().fold(T::of(f64::NEG_INFINITY), |a, b| a.binary(Binary::Max, b));
        let sum: T = x.iter().map(|x| (*x - max).unary(Unary::Exp)).sum();
        let ln = sum.unary(Unary::Log);
        x.iter_mut().for_each(|x| *x = if log { *x - max - ln } else { (*x - max).unary(Unary::Exp) / sum });
    }
    let last = x.layout.shape().len() - 1;
    let size = x.layout.shape()[dim].max(1);
    let rows = x.with_layout(x.layout.transpose(dim, last)?);
    let values = match Values::of(&rows)? {
        Values::F32(mut x) => {
            x.chunks_exact_mut(size).for_each(|x| row(x, log));
            Values::F32(x)
        }
        Values::F64(mut x) => {
            x.chunks_exact_mut(size).for_each(|x| row(x, log));
            Values::F64(x)
        }
        Values::I64(_) => return Err(wrong_type("softmax", "the tensor", x.dtype, "a float type")),
    };
    let layout = out.layout.transpose(dim, last)?;
    values.store(&mut OperandMut::new(out.storage, out.dtype, layout))
}

/// `(x - mean) / √(variance + eps) · weight + bias` along the last dimension, computed in `f64`.
pub(super) fn layer_norm(x: &Operand<'_>, weight: &Operand<'_>, bias: &Operand<'_>, eps: f32, out: &mut OperandMut<'_>) -> Result<()> {
    let (mut x, weight, bias) = (doubles(x)?, doubles(weight)?, doubles(bias)?);
    for row in x.chunks_exact_mut(weight.len().max(1)) {
        let n = row.len() as f64;
        let mean = row.iter().sum::<f64>() / n;
        let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n;
        let factor = 1.0 / (variance + f64::from(eps)).sqrt();
        row.iter_mut().zip(weight.iter().zip(&bias)).for_each(|(x, (w, b))| *x = (*x - mean) * factor * w + b);
    }
    Values::F64(x).store(out)
}

/// `x / √(mean(x²) + eps) · weight` along the last dimension, computed in `f64`.
pub(super) fn rms_norm(x: &Operand<'_>, weight: &Operand<'_>, eps: f32, out: &mut OperandMut<'_>) -> Result<()> {
    let (mut x, weight) = (doubles(x)?, doubles(weight)?);
    for row in x.chunks_exact_mut(weight.len().max(1)) {
        let mean = row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64;
        let factor = 1.0 / (mean + f64::from(eps)).sqrt();
        row.iter_mut().zip(&weight).for_each(|(x, w)| *x *= factor * w);
    }
    Values::F64(x).store(out)
}

/// Elements as `f64`.
pub(super) fn doubles(x: &Operand<'_>) -> Result<Vec<f64>> {
    Ok(match Values::of(x)? {
        Values::F32(x) => x.into_iter().map(f64::from).collect(),
        Values::F64(x) => x,
        Values::I64(x) => x.into_iter().map(|x| x as f64).collect(),
    })
}
