//! Operations on tensors of any shape and type: by the kernel library on a GPU, by plain loops on the CPU, with the same meaning.

use std::sync::Arc;

use warpwave_kernels::{Binary, DType, Matmul, Norm, Reduce, Scalar, Unary, ViewMut};

use crate::device::{Device, Gpu};
use crate::error::{Error, Result, shape};
use crate::product::Multiply;
use crate::tensor::Tensor;
use crate::values::Values;

fn refused(op: &'static str, dtype: DType) -> Error {
    Error::Type { op, what: "the tensor", found: dtype, expected: "types that it is defined for" }
}

/// The shape that both can be repeated to.
fn common(op: &'static str, a: &[usize], b: &[usize]) -> Result<Vec<usize>> {
    let rank = a.len().max(b.len());
    let size = |shape: &[usize], d: usize| (d + shape.len()).checked_sub(rank).map_or(1, |d| shape[d]);
    (0..rank)
        .map(|d| match (size(a, d), size(b, d)) {
            (x, y) if x == y || y == 1 => Ok(x),
            (1, y) => Ok(y),
            _ => Err(shape(op, format!("{a:?} and {b:?} cannot be repeated to one shape"))),
        })
        .collect()
}

/// What an operation of floats of both widths is.
trait Float: Copy + PartialOrd {
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
                        // 0.5 · (1 + tanh(y)) is sigmoid(2y), which cancels nothing.
                        let y = (2.0 * std::f64::consts::FRAC_1_PI).sqrt() as $ty * (x + 0.044715 * x * x * x);
                        if x == <$ty>::NEG_INFINITY { -0.0 } else { x * sigmoid(2.0 * y) }
                    }
                    Unary::GeluErf if x == <$ty>::NEG_INFINITY => -0.0,
                    // 1 + erf(y) is erfc(-y), which cancels nothing.
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
                        let (low, high) = (number(low) as $ty, number(high) as $ty);
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

fn number(scalar: Scalar) -> f64 {
    match scalar {
        Scalar::Int(value) => value as f64,
        Scalar::Float(value) => value,
    }
}

fn int_unary(x: i64, op: Unary) -> i64 {
    let bound = |scalar| match scalar {
        Scalar::Int(value) => value,
        Scalar::Float(value) => value as i64,
    };
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

impl Tensor {
    /// A tensor on this one's device that `fill` queues the writing of.
    fn queued(
        gpu: &Arc<Gpu>,
        dtype: DType,
        to: &[usize],
        fill: impl FnOnce(&Gpu, &mut ViewMut<'_>) -> warpwave_kernels::Result<()>,
    ) -> Result<Tensor> {
        Tensor::on_gpu(gpu, dtype, to, |out| fill(gpu, out))
    }

    /// A function of each element.
    pub fn unary(&self, op: Unary) -> Result<Tensor> {
        if !op.takes(self.dtype()) {
            return Err(refused(op.name(), self.dtype()));
        }
        match self.device() {
            Device::Gpu(gpu) => {
                let x = self.view()?;
                Tensor::queued(gpu, self.dtype(), self.shape(), |gpu, out| gpu.kernels.unary(&gpu.stream, op, &x, out))
            }
            Device::Cpu => {
                let values = match Values::of(self)? {
                    Values::F32(x) => Values::F32(x.into_iter().map(|x| x.unary(op)).collect()),
                    Values::F64(x) => Values::F64(x.into_iter().map(|x| x.unary(op)).collect()),
                    Values::I64(x) => Values::I64(x.into_iter().map(|x| int_unary(x, op)).collect()),
                };
                values.into_tensor(self.dtype(), self.shape())
            }
        }
    }

    /// A function of the elements of two tensors of one type, repeated to one shape. Comparisons give a `u8` of 0 or 1.
    pub fn binary(&self, op: Binary, other: &Tensor) -> Result<Tensor> {
        let to = common(op.name(), self.shape(), other.shape())?;
        self.same_kind(op.name(), other)?;
        if !op.takes(self.dtype()) {
            return Err(refused(op.name(), self.dtype()));
        }
        let (a, b) = (self.broadcast_to(&to)?, other.broadcast_to(&to)?);
        let dtype = if op.is_comparison() { DType::U8 } else { self.dtype() };
        match self.device() {
            Device::Gpu(gpu) => {
                let (a, b) = (a.view()?, b.view()?);
                Tensor::queued(gpu, dtype, &to, |gpu, out| gpu.kernels.binary(&gpu.stream, op, &a, &b, out))
            }
            Device::Cpu => {
                let values = match (Values::of(&a)?, Values::of(&b)?) {
                    (Values::F32(a), Values::F32(b)) => Values::F32(pairs(&a, &b, |a, b| a.binary(op, b))),
                    (Values::F64(a), Values::F64(b)) => Values::F64(pairs(&a, &b, |a, b| a.binary(op, b))),
                    (Values::I64(a), Values::I64(b)) => Values::I64(pairs(&a, &b, |a, b| int_binary(a, op, b))),
                    _ => return Err(refused(op.name(), other.dtype())),
                };
                values.into_tensor(dtype, &to)
            }
        }
    }

    /// `factor · x + term` of each element.
    pub fn affine(&self, factor: impl Into<Scalar>, term: impl Into<Scalar>) -> Result<Tensor> {
        let (factor, term) = (factor.into(), term.into());
        match self.device() {
            Device::Gpu(gpu) => {
                let x = self.view()?;
                Tensor::queued(gpu, self.dtype(), self.shape(), |gpu, out| gpu.kernels.affine(&gpu.stream, &x, factor, term, out))
            }
            Device::Cpu => {
                let [factor, term] = [factor, term].map(|scalar| Values::repeated(scalar, self.dtype(), 1));
                let values = match (Values::of(self)?, factor, term) {
                    (Values::F32(x), Values::F32(f), Values::F32(t)) => Values::F32(x.into_iter().map(|x| x.mul_add(f[0], t[0])).collect()),
                    (Values::F64(x), Values::F64(f), Values::F64(t)) => Values::F64(x.into_iter().map(|x| x.mul_add(f[0], t[0])).collect()),
                    (Values::I64(x), Values::I64(f), Values::I64(t)) => {
                        Values::I64(x.into_iter().map(|x| x.wrapping_mul(f[0]).wrapping_add(t[0])).collect())
                    }
                    _ => return Err(refused("affine", self.dtype())),
                };
                values.into_tensor(self.dtype(), self.shape())
            }
        }
    }

    /// Elements of `yes` where this tensor of `u8` is not 0, else those of `no`.
    pub fn where_cond(&self, yes: &Tensor, no: &Tensor) -> Result<Tensor> {
        let op = "where";
        yes.same_kind(op, no)?;
        let to = common(op, &common(op, yes.shape(), no.shape())?, self.shape())?;
        let (condition, a, b) = (self.broadcast_to(&to)?, yes.broadcast_to(&to)?, no.broadcast_to(&to)?);
        match self.device() {
            Device::Gpu(gpu) => {
                let (condition, a, b) = (condition.view()?, a.view()?, b.view()?);
                Tensor::queued(gpu, yes.dtype(), &to, |gpu, out| gpu.kernels.where_cond(&gpu.stream, &condition, &a, &b, out))
            }
            Device::Cpu => {
                let condition = condition.host::<u8>()?.into_owned();
                let size = yes.dtype().size();
                let (a, b) = (a.host_bytes()?, b.host_bytes()?);
                let from = a.chunks_exact(size).zip(b.chunks_exact(size));
                let bytes: Vec<u8> = condition.iter().zip(from).flat_map(|(c, (a, b))| if *c != 0 { a } else { b }).copied().collect();
                Tensor::from_bytes(&bytes, yes.dtype(), &to, &Device::Cpu)
            }
        }
    }

    /// What becomes of the elements along some dimensions, which become 1.
    pub fn reduce(&self, op: Reduce, axes: &[usize]) -> Result<Tensor> {
        let Some(dtype) = op.results(self.dtype()).first().copied() else { return Err(refused(op.name(), self.dtype())) };
        if let Some(axis) = axes.iter().find(|axis| **axis >= self.shape().len()) {
            return Err(shape(op.name(), format!("there is no dimension {axis} in {:?}", self.shape())));
        }
        let kept: Vec<usize> = self.shape().iter().enumerate().map(|(d, size)| if axes.contains(&d) { 1 } else { *size }).collect();
        match self.device() {
            Device::Gpu(gpu) => {
                let x = self.view()?;
                let rest: Vec<usize> = self.shape().iter().enumerate().filter(|(d, _)| !axes.contains(d)).map(|(_, size)| *size).collect();
                let out = Tensor::queued(gpu, dtype, &rest, |gpu, out| gpu.kernels.reduce(&gpu.stream, op, &x, axes, out))?;
                out.reshape(&kept)
            }
            Device::Cpu => crate::reduce::reduce(self, op, axes, dtype)?.reshape(&kept),
        }
    }

    /// `e^x / Σ e^x` along a dimension.
    pub fn softmax(&self, axis: usize) -> Result<Tensor> {
        self.along("softmax", axis, false)
    }

    /// `x - ln Σ e^x` along a dimension.
    pub fn log_softmax(&self, axis: usize) -> Result<Tensor> {
        self.along("log_softmax", axis, true)
    }

    fn along(&self, op: &'static str, axis: usize, log: bool) -> Result<Tensor> {
        if self.dtype().is_integer() {
            return Err(refused(op, self.dtype()));
        }
        if axis >= self.shape().len() {
            return Err(shape(op, format!("there is no dimension {axis} in {:?}", self.shape())));
        }
        if let Device::Gpu(gpu) = self.device() {
            let x = self.view()?;
            return Tensor::queued(gpu, self.dtype(), self.shape(), |gpu, out| match log {
                true => gpu.kernels.log_softmax(&gpu.stream, &x, axis, out),
                false => gpu.kernels.softmax(&gpu.stream, &x, axis, out),
            });
        }
        let last = self.shape().len() - 1;
        let rows = self.transpose(axis, last)?;
        let size = self.shape()[axis].max(1);
        fn row<T: Float + std::ops::Sub<Output = T> + std::ops::Div<Output = T> + std::iter::Sum>(x: &mut [T], log: bool) {
            let most = x.iter().copied().fold(T::of(f64::NEG_INFINITY), |a, b| a.binary(Binary::Max, b));
            let sum: T = x.iter().map(|x| (*x - most).unary(Unary::Exp)).sum();
            let ln = sum.unary(Unary::Log);
            x.iter_mut().for_each(|x| *x = if log { *x - most - ln } else { (*x - most).unary(Unary::Exp) / sum });
        }
        let values = match Values::of(&rows)? {
            Values::F32(mut x) => {
                x.chunks_exact_mut(size).for_each(|x| row(x, log));
                Values::F32(x)
            }
            Values::F64(mut x) => {
                x.chunks_exact_mut(size).for_each(|x| row(x, log));
                Values::F64(x)
            }
            Values::I64(_) => return Err(refused(op, self.dtype())),
        };
        values.into_tensor(self.dtype(), rows.shape())?.transpose(axis, last)?.contiguous()
    }

    /// `(x - mean(x)) / √(variance(x) + ε) · weight + bias` along the last dimension.
    pub fn layer_norm(&self, weight: &Tensor, bias: &Tensor, epsilon: f32) -> Result<Tensor> {
        match self.device() {
            Device::Gpu(gpu) => {
                let norm = Norm { weight: Some(weight.view()?), bias: Some(bias.view()?), epsilon: epsilon.into() };
                let x = self.view()?;
                Tensor::queued(gpu, self.dtype(), self.shape(), |gpu, out| gpu.kernels.layer_norm(&gpu.stream, &x, &norm, out))
            }
            Device::Cpu => {
                let last = self.shape().len().saturating_sub(1);
                let wide = |x: &Tensor| x.cast(if self.dtype() == DType::F64 { DType::F64 } else { DType::F32 });
                let x = wide(self)?;
                let centred = x.binary(Binary::Sub, &x.reduce(Reduce::Mean, &[last])?)?;
                let variance = centred.unary(Unary::Sqr)?.reduce(Reduce::Mean, &[last])?;
                let scale = variance.affine(1.0, epsilon)?.unary(Unary::Rsqrt)?;
                let normal = centred.binary(Binary::Mul, &scale)?;
                normal.binary(Binary::Mul, &wide(weight)?)?.binary(Binary::Add, &wide(bias)?)?.cast(self.dtype())
            }
        }
    }

    /// The matrix product of (…, m, k) and (…, k, n); dimensions in front are repeated to one shape.
    pub fn matmul(&self, other: &Tensor) -> Result<Tensor> {
        let op = "matmul";
        self.same_kind(op, other)?;
        let ([.., m, k], [.., k2, n]) = (self.shape(), other.shape()) else {
            return Err(shape(op, format!("{:?} and {:?} are no matrices", self.shape(), other.shape())));
        };
        let (m, k, n) = (*m, *k, *n);
        if k != *k2 {
            return Err(shape(op, format!("{:?} and {:?} have no common inner size", self.shape(), other.shape())));
        }
        let batch = common(op, &self.shape()[..self.shape().len() - 2], &other.shape()[..other.shape().len() - 2])?;
        let to: Vec<usize> = batch.iter().copied().chain([m, n]).collect();
        if let Device::Gpu(gpu) = self.device() {
            let (a, b) = (self.view()?, other.view()?);
            return Tensor::queued(gpu, self.dtype(), &to, |gpu, out| gpu.kernels.matmul(&gpu.stream, &Matmul::new(), &a, &b, out));
        }
        let with = |tail: [usize; 2]| batch.iter().copied().chain(tail).collect::<Vec<_>>();
        let (a, b) = (self.broadcast_to(&with([m, k]))?, other.broadcast_to(&with([k, n]))?);
        let batches: usize = batch.iter().product();
        let values = match (Values::of(&a)?, Values::of(&b)?) {
            (Values::F32(a), Values::F32(b)) => Values::F32(product(&a, &b, [batches, m, k, n])),
            (Values::F64(a), Values::F64(b)) => Values::F64(product(&a, &b, [batches, m, k, n])),
            _ => return Err(refused(op, self.dtype())),
        };
        values.into_tensor(self.dtype(), &to)
    }

    fn same_kind(&self, op: &'static str, other: &Tensor) -> Result<()> {
        if self.dtype() != other.dtype() {
            return Err(Error::Type { op, what: "the other tensor", found: other.dtype(), expected: self.dtype().name() });
        }
        if self.device() != other.device() {
            let (found, expected) = (other.device().name().to_owned(), self.device().name().to_owned());
            return Err(Error::Device { op, what: "the other tensor", found, expected });
        }
        Ok(())
    }
}

/// Products of matrices that lie without gaps.
fn product<T: Multiply>(a: &[T], b: &[T], [batches, m, k, n]: [usize; 4]) -> Vec<T> {
    let mut out = vec![T::ZERO; batches * m * n];
    for i in 0..batches {
        T::multiply(&a[i * m * k..(i + 1) * m * k], &b[i * k * n..(i + 1) * k * n], &mut out[i * m * n..(i + 1) * m * n], [m, k, n]);
    }
    out
}
