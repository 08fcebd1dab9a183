//! Elementwise operations, reductions, indexing and matrix products, on every device.

use warpwave_kernels::{Binary, DType, Reduce, Scalar, Unary};

use crate::backend::Scatter;
use crate::dim::{self, Dim};
use crate::error::{Error, Result, shape, wrong_type};
use crate::tensor::Tensor;

/// The expected types of operations that do not support integers.
const FLOATS: &str = "a float type";

fn unsupported(op: &'static str, dtype: DType, expected: &'static str) -> Error {
    wrong_type(op, "the tensor", dtype, expected)
}

/// Fails for types other than `f32`, `f64`, `f16` and `bf16`.
pub(crate) fn check_float(op: &'static str, what: &'static str, dtype: DType) -> Result<()> {
    match dtype {
        DType::F32 | DType::F64 | DType::F16 | DType::Bf16 => Ok(()),
        found => Err(wrong_type(op, what, found, "f32, f64, f16 or bf16")),
    }
}

/// The shape that both shapes broadcast to.
fn broadcast(op: &'static str, a: &[usize], b: &[usize]) -> Result<Vec<usize>> {
    let rank = a.len().max(b.len());
    let size = |shape: &[usize], d: usize| (d + shape.len()).checked_sub(rank).map_or(1, |d| shape[d]);
    (0..rank)
        .map(|d| match (size(a, d), size(b, d)) {
            (x, y) if x == y || y == 1 => Ok(x),
            (1, y) => Ok(y),
            _ => Err(shape(op, format!("shapes {a:?} and {b:?} cannot be broadcast together"))),
        })
        .collect()
}

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident => $op:ident;)*) => {
        impl Tensor { $(
            $(#[$doc])*
            pub fn $name(&self) -> Result<Tensor> {
                self.unary(Unary::$op)
            }
        )* }
    };
}
unary! {
    /// Returns eˣ of each element.
    exp => Exp;
    /// Returns the natural logarithm of each element.
    log => Log;
    /// Returns the sine of each element.
    sin => Sin;
    /// Returns the cosine of each element.
    cos => Cos;
    /// Returns the hyperbolic tangent of each element.
    tanh => Tanh;
    /// Returns −x of each element.
    neg => Neg;
    /// Returns 1/x of each element.
    recip => Recip;
    /// Returns x² of each element.
    sqr => Sqr;
    /// Returns the square root of each element.
    sqrt => Sqrt;
    /// Returns 1/√x of each element.
    rsqrt => Rsqrt;
    /// Returns GELU of each element, by its tanh approximation.
    gelu => Gelu;
    /// Returns GELU of each element, by the error function.
    gelu_erf => GeluErf;
    /// Returns the error function of each element.
    erf => Erf;
    /// Returns max(x, 0) of each element.
    relu => Relu;
    /// Returns x · sigmoid(x) of each element.
    silu => Silu;
    /// Returns 1 / (1 + e⁻ˣ) of each element.
    sigmoid => Sigmoid;
    /// Returns |x| of each element.
    abs => Abs;
    /// Rounds each element down.
    floor => Floor;
    /// Rounds each element up.
    ceil => Ceil;
    /// Rounds each element to the nearest integer, halves away from zero.
    round => Round;
    /// Returns −1, 0 or 1 for each element.
    sign => Sign;
}

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident => $op:ident;)*) => {
        impl Tensor { $(
            $(#[$doc])*
            pub fn $name(&self, other: &Tensor) -> Result<Tensor> {
                self.binary(Binary::$op, other)
            }
        )* }
    };
}
binary! {
    /// Returns a + b, broadcast.
    add => Add;
    /// Returns a − b, broadcast.
    sub => Sub;
    /// Returns a · b elementwise, broadcast.
    mul => Mul;
    /// Returns a / b, broadcast. Integers truncate; integer division by zero yields 0.
    div => Div;
    /// Returns the larger of a and b, broadcast; NaN if either is.
    maximum => Max;
    /// Returns the smaller of a and b, broadcast; NaN if either is.
    minimum => Min;
    /// Returns a to the power of b, broadcast.
    pow => Pow;
    /// Returns a = b as `u8` 0 or 1, broadcast.
    eq => Eq;
    /// Returns a ≠ b as `u8` 0 or 1, broadcast.
    ne => Ne;
    /// Returns a < b as `u8` 0 or 1, broadcast.
    lt => Lt;
    /// Returns a ≤ b as `u8` 0 or 1, broadcast.
    le => Le;
    /// Returns a > b as `u8` 0 or 1, broadcast.
    gt => Gt;
    /// Returns a ≥ b as `u8` 0 or 1, broadcast.
    ge => Ge;
}

macro_rules! reductions {
    ($($(#[$doc:meta])* $name:ident, $keepdim:ident => $op:expr;)*) => {
        impl Tensor { $(
            $(#[$doc])*
            pub fn $name(&self, dims: &[impl Dim]) -> Result<Tensor> {
                self.reduced($op, dims, false)
            }

            #[doc = concat!("As [`Tensor::", stringify!($name), "`], with reduced dimensions kept as size 1.")]
            pub fn $keepdim(&self, dims: &[impl Dim]) -> Result<Tensor> {
                self.reduced($op, dims, true)
            }
        )* }
    };
}
reductions! {
    /// Returns the sum along dimensions.
    sum, sum_keepdim => Reduce::Sum;
    /// Returns the mean along dimensions.
    mean, mean_keepdim => Reduce::Mean;
    /// Returns the variance along dimensions, divided by n − 1.
    var, var_keepdim => Reduce::Var(1.0);
    /// Returns the largest element along dimensions; NaN if there is one.
    max, max_keepdim => Reduce::Max;
    /// Returns the smallest element along dimensions; NaN if there is one.
    min, min_keepdim => Reduce::Min;
}

impl Tensor {
    /// Applies a function to each element.
    pub fn unary(&self, op: Unary) -> Result<Tensor> {
        if !op.takes(self.dtype()) {
            let expected = if op.takes(DType::I32) { "i16, i32, i64 or a float type" } else { FLOATS };
            return Err(unsupported(op.name(), self.dtype(), expected));
        }
        Tensor::build(self.device(), self.dtype(), self.shape(), |backend, out| backend.unary(op, &self.operand(), out))
    }

    /// Returns x to the power of `exponent` of each element.
    pub fn powf(&self, exponent: f64) -> Result<Tensor> {
        self.unary(Unary::Powf(exponent))
    }

    /// Clamps each element to bounds; NaN stays.
    pub fn clamp(&self, low: impl Into<Scalar>, high: impl Into<Scalar>) -> Result<Tensor> {
        self.unary(Unary::Clamp(low.into(), high.into()))
    }

    /// Returns x, or α · (eˣ − 1) where x is not positive, of each element.
    pub fn elu(&self, alpha: f64) -> Result<Tensor> {
        self.unary(Unary::Elu(alpha))
    }

    /// Applies a function to the elements of two tensors of one type, broadcast to one shape. Comparisons give a `u8` of 0 or 1.
    pub fn binary(&self, op: Binary, other: &Tensor) -> Result<Tensor> {
        let to = broadcast(op.name(), self.shape(), other.shape())?;
        self.check_same_kind(op.name(), "the second tensor", other)?;
        if !op.takes(self.dtype()) {
            return Err(unsupported(op.name(), self.dtype(), FLOATS));
        }
        let (a, b) = (self.broadcast_to(&to)?, other.broadcast_to(&to)?);
        let dtype = if op.is_comparison() { DType::U8 } else { self.dtype() };
        Tensor::build(self.device(), dtype, &to, |backend, out| backend.binary(op, &a.operand(), &b.operand(), out))
    }

    /// Applies a function to each element and a scalar. An integer tensor takes integer scalars only.
    pub fn binary_scalar(&self, op: Binary, scalar: impl Into<Scalar>) -> Result<Tensor> {
        let scalar = scalar.into();
        self.check_scalar(op.name(), scalar)?;
        let negated = match scalar {
            Scalar::Int(value) => Scalar::Int(value.wrapping_neg()),
            Scalar::Float(value) => Scalar::Float(-value),
        };
        match op {
            // One kernel instead of two.
            Binary::Add => self.affine(1, scalar),
            Binary::Sub => self.affine(1, negated),
            Binary::Mul => self.affine(scalar, 0),
            _ => self.binary(op, &self.scalar_like(op.name(), scalar)?),
        }
    }

    /// A tensor without dimensions, of this tensor's type and device.
    pub(crate) fn scalar_like(&self, op: &'static str, scalar: Scalar) -> Result<Tensor> {
        self.check_scalar(op, scalar)?;
        Tensor::full(scalar, self.dtype(), &[], self.device())
    }

    fn check_scalar(&self, op: &'static str, scalar: Scalar) -> Result<()> {
        match scalar {
            Scalar::Float(value) if self.dtype().is_integer() => {
                Err(shape(op, format!("cannot combine a tensor of {} with the float {value}; cast the tensor first", self.dtype())))
            }
            _ => Ok(()),
        }
    }

    /// Returns `factor · x + term` of each element.
    pub fn affine(&self, factor: impl Into<Scalar>, term: impl Into<Scalar>) -> Result<Tensor> {
        let (factor, term) = (factor.into(), term.into());
        Tensor::build(self.device(), self.dtype(), self.shape(), |backend, out| backend.affine(&self.operand(), factor, term, out))
    }

    /// Adds a tensor of the same shape in place.
    pub fn add_in_place(&mut self, other: &Tensor) -> Result<()> {
        self.check_same_shape("add", other)?;
        self.check_same_kind("add", "the second tensor", other)?;
        let device = self.device().clone();
        device.backend().binary_in_place(Binary::Add, &mut self.operand_mut()?, &other.operand())
    }

    /// Multiplies each element by a scalar in place.
    pub fn scale_in_place(&mut self, factor: f32) -> Result<()> {
        let device = self.device().clone();
        device.backend().affine_in_place(&mut self.operand_mut()?, factor.into(), 0.0.into())
    }

    /// Replaces each element by `cap · tanh(x / cap)`.
    pub fn soft_cap_in_place(&mut self, cap: f32) -> Result<()> {
        if self.dtype().is_integer() {
            return Err(unsupported("soft_cap", self.dtype(), FLOATS));
        }
        let device = self.device().clone();
        device.backend().soft_cap_in_place(&mut self.operand_mut()?, cap)
    }

    /// Selects elements of `yes` where this tensor of integers is not 0, and of `no` elsewhere; all are broadcast.
    pub fn where_cond(&self, yes: &Tensor, no: &Tensor) -> Result<Tensor> {
        let op = "where_cond";
        if !self.dtype().is_integer() {
            return Err(wrong_type(op, "the condition", self.dtype(), "an integer type"));
        }
        yes.check_same_kind(op, "the third tensor", no)?;
        self.check_same_device(op, "the second tensor", yes)?;
        let to = broadcast(op, &broadcast(op, yes.shape(), no.shape())?, self.shape())?;
        let (condition, yes, no) = (self.broadcast_to(&to)?, yes.broadcast_to(&to)?, no.broadcast_to(&to)?);
        Tensor::build(self.device(), yes.dtype(), &to, |backend, out| {
            backend.where_cond(&condition.operand(), &yes.operand(), &no.operand(), out)
        })
    }

    /// Reduces dimensions to size 1.
    pub fn reduce(&self, op: Reduce, dims: &[impl Dim]) -> Result<Tensor> {
        self.reduced(op, dims, true)
    }

    fn reduced(&self, op: Reduce, dims: &[impl Dim], keepdim: bool) -> Result<Tensor> {
        let Some(dtype) = op.results(self.dtype()).first().copied() else {
            return Err(unsupported(op.name(), self.dtype(), FLOATS));
        };
        let dims = dim::indices(op.name(), dims, self.shape())?;
        let sizes = self.shape().iter().copied().enumerate();
        let rest: Vec<usize> = sizes.clone().filter(|(d, _)| !dims.contains(d)).map(|(_, size)| size).collect();
        let out = Tensor::build(self.device(), dtype, &rest, |backend, out| backend.reduce(op, &self.operand(), &dims, out))?;
        if !keepdim {
            return Ok(out);
        }
        out.reshape(&sizes.map(|(d, size)| if dims.contains(&d) { 1 } else { size }).collect::<Vec<_>>())
    }

    /// Returns the index of the first largest element along a dimension, as `u32`; NaN is largest.
    pub fn argmax(&self, dim: impl Dim) -> Result<Tensor> {
        self.reduced(Reduce::ArgMax, &[dim], false)
    }

    /// Returns the index of the first smallest element along a dimension, as `u32`; NaN is smallest.
    pub fn argmin(&self, dim: impl Dim) -> Result<Tensor> {
        self.reduced(Reduce::ArgMin, &[dim], false)
    }

    /// Returns `eˣ / Σ eˣ` along a dimension.
    pub fn softmax(&self, dim: impl Dim) -> Result<Tensor> {
        self.softmax_along("softmax", dim, false)
    }

    /// Returns `x - ln Σ eˣ` along a dimension.
    pub fn log_softmax(&self, dim: impl Dim) -> Result<Tensor> {
        self.softmax_along("log_softmax", dim, true)
    }

    fn softmax_along(&self, op: &'static str, dim: impl Dim, log: bool) -> Result<Tensor> {
        check_float(op, "the tensor", self.dtype())?;
        let dim = dim::index(op, dim, self.shape())?;
        Tensor::build(self.device(), self.dtype(), self.shape(), |backend, out| backend.softmax(&self.operand(), dim, log, out))
    }

    /// Returns the matrix product of (…, m, k) and (…, k, n); leading dimensions are broadcast.
    pub fn matmul(&self, other: &Tensor) -> Result<Tensor> {
        let op = "matmul";
        self.check_same_kind(op, "the second matrix", other)?;
        check_float(op, "the first matrix", self.dtype())?;
        let ([batch_a @ .., m, k], [batch_b @ .., k2, n]) = (self.shape(), other.shape()) else {
            return Err(shape(op, format!("expected matrices, got {:?} and {:?}", self.shape(), other.shape())));
        };
        if k != k2 {
            return Err(shape(op, format!("inner dimensions of {:?} and {:?} do not match", self.shape(), other.shape())));
        }
        let to: Vec<usize> = broadcast(op, batch_a, batch_b)?.into_iter().chain([*m, *n]).collect();
        Tensor::build(self.device(), self.dtype(), &to, |backend, out| backend.matmul(&self.operand(), &other.operand(), out))
    }

    /// Gathers elements along a dimension: `out[i][j][k] = x[i][indices[i][j][k]][k]` for dimension 1. Out-of-range indices read 0.
    pub fn gather(&self, indices: &Tensor, dim: impl Dim) -> Result<Tensor> {
        let op = "gather";
        let dim = self.check_indices(op, indices, dim)?;
        self.check_covers(op, "the tensor", indices.shape(), dim)?;
        Tensor::build(self.device(), self.dtype(), indices.shape(), |backend, out| {
            backend.gather(&self.operand(), &indices.operand(), dim, out)
        })
    }

    /// Selects positions of a dimension by a one-dimensional tensor of integers. Out-of-range indices read 0.
    pub fn index_select(&self, indices: &Tensor, dim: impl Dim) -> Result<Tensor> {
        let op = "index_select";
        let dim = self.check_indices(op, indices, dim)?;
        let mut to = self.shape().to_vec();
        to[dim] = check_vector(op, indices)?;
        Tensor::build(self.device(), self.dtype(), &to, |backend, out| backend.index_select(&self.operand(), &indices.operand(), dim, out))
    }

    /// Returns a copy with elements of `x` at indices along a dimension: `out[i][indices[i][j][k]][k] = x[i][j][k]` for dimension 1. Of
    /// equal indices the last wins; out-of-range indices write nothing.
    pub fn scatter(&self, indices: &Tensor, x: &Tensor, dim: impl Dim) -> Result<Tensor> {
        self.scattered("scatter", Scatter::Set { ordered: true }, indices, x, dim)
    }

    /// Returns a copy with elements of `x` added at indices along a dimension, as [`Tensor::scatter`] places them.
    ///
    /// Deterministic: added in order and rounded once.
    pub fn scatter_add(&self, indices: &Tensor, x: &Tensor, dim: impl Dim) -> Result<Tensor> {
        self.scattered("scatter_add", Scatter::Add { ordered: true }, indices, x, dim)
    }

    /// As [`Tensor::scatter`], but of equal indices any wins: faster on a GPU.
    pub fn scatter_unordered(&self, indices: &Tensor, x: &Tensor, dim: impl Dim) -> Result<Tensor> {
        self.scattered("scatter_unordered", Scatter::Set { ordered: false }, indices, x, dim)
    }

    /// As [`Tensor::scatter_add`], but in any order and rounded after each addition: faster on a GPU, where floating-point results may
    /// differ between runs.
    pub fn scatter_add_unordered(&self, indices: &Tensor, x: &Tensor, dim: impl Dim) -> Result<Tensor> {
        self.scattered("scatter_add_unordered", Scatter::Add { ordered: false }, indices, x, dim)
    }

    fn scattered(&self, op: &'static str, kind: Scatter, indices: &Tensor, x: &Tensor, dim: impl Dim) -> Result<Tensor> {
        let dim = self.check_scatter(op, indices, x, dim)?;
        let mut out = self.copied()?;
        self.device().backend().scatter(kind, &mut out.operand_mut()?, &indices.operand(), &x.operand(), dim)?;
        Ok(out)
    }

    /// Returns a copy with slices of `x` added at positions of a dimension: `out[i][indices[j]][k] += x[i][j][k]` for dimension 1.
    /// Out-of-range indices write nothing.
    pub fn index_add(&self, indices: &Tensor, x: &Tensor, dim: impl Dim) -> Result<Tensor> {
        self.slices_added("index_add", true, indices, x, dim)
    }

    /// As [`Tensor::index_add`], but like [`Tensor::scatter_add_unordered`].
    pub fn index_add_unordered(&self, indices: &Tensor, x: &Tensor, dim: impl Dim) -> Result<Tensor> {
        self.slices_added("index_add_unordered", false, indices, x, dim)
    }

    fn slices_added(&self, op: &'static str, ordered: bool, indices: &Tensor, x: &Tensor, dim: impl Dim) -> Result<Tensor> {
        let dim = self.check_indices(op, indices, dim)?;
        self.check_same_kind(op, "the tensor to add", x)?;
        let mut expected = self.shape().to_vec();
        expected[dim] = check_vector(op, indices)?;
        if x.shape() != expected {
            return Err(shape(op, format!("the tensor to add has shape {:?}, expected {expected:?}", x.shape())));
        }
        let mut out = self.copied()?;
        let kind = Scatter::AddSlices { ordered };
        self.device().backend().scatter(kind, &mut out.operand_mut()?, &indices.operand(), &x.operand(), dim)?;
        Ok(out)
    }

    fn check_indices(&self, op: &'static str, indices: &Tensor, dim: impl Dim) -> Result<usize> {
        if !indices.dtype().is_integer() {
            return Err(wrong_type(op, "the indices", indices.dtype(), "an integer type"));
        }
        self.check_same_device(op, "the indices", indices)?;
        dim::index(op, dim, self.shape())
    }

    /// Fails if another dimension than `dim` is smaller than that of the indices.
    fn check_covers(&self, op: &'static str, what: &str, indices: &[usize], dim: usize) -> Result<()> {
        let fits = self.rank() == indices.len() && (0..indices.len()).all(|d| d == dim || self.shape()[d] >= indices[d]);
        if fits {
            return Ok(());
        }
        let from = self.shape();
        Err(shape(op, format!("{what} of shape {from:?} is too small for indices of shape {indices:?} (in a dimension other than {dim})")))
    }

    fn check_scatter(&self, op: &'static str, indices: &Tensor, x: &Tensor, dim: impl Dim) -> Result<usize> {
        let dim = self.check_indices(op, indices, dim)?;
        self.check_same_kind(op, "the source tensor", x)?;
        if x.shape() != indices.shape() {
            return Err(shape(
                op,
                format!("the source tensor has shape {:?}, but the indices have shape {:?}", x.shape(), indices.shape()),
            ));
        }
        self.check_covers(op, "the tensor", indices.shape(), dim)?;
        Ok(dim)
    }

    pub(crate) fn check_same_shape(&self, op: &'static str, other: &Tensor) -> Result<()> {
        if self.shape() == other.shape() {
            return Ok(());
        }
        Err(shape(op, format!("expected two tensors of the same shape, got {:?} and {:?}", self.shape(), other.shape())))
    }
}

fn check_vector(op: &'static str, indices: &Tensor) -> Result<usize> {
    match *indices.shape() {
        [count] => Ok(count),
        _ => Err(shape(op, format!("expected one-dimensional indices, got {:?}", indices.shape()))),
    }
}
