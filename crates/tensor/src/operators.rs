//! Operators: `&a + &b`, `&a * 2.0`, `-&a`. As in candle they return a [`Result`], since shapes may not fit.
//!
//! Scalars are `f64` and `i64` alone, so that the type of a literal is never ambiguous.

use std::ops::{Add, Div, Mul, Neg, Sub};

use warpwave_kernels::{Binary, Scalar};

use crate::error::Result;
use crate::tensor::Tensor;

/// Implements an operator between tensors, results of tensors and scalars.
macro_rules! operator {
    ($trait:ident, $method:ident, $op:expr) => {
        operator!(@tensors $trait, $method, $op; Tensor, Tensor; Tensor, &Tensor; &Tensor, Tensor; &Tensor, &Tensor);
        operator!(@results $trait, $method, $op; Tensor, &Tensor);
        operator!(@scalars $trait, $method, $op; f64, i64);
    };
    (@results $trait:ident, $method:ident, $op:expr; $($left:ty),*) => { $(
        // Chains: `a + b * c`.
        impl $trait<Result<Tensor>> for $left {
            type Output = Result<Tensor>;
            fn $method(self, other: Result<Tensor>) -> Result<Tensor> {
                Tensor::binary(&self, $op, &other?)
            }
        }
    )* };
    (@tensors $trait:ident, $method:ident, $op:expr; $($left:ty, $right:ty);*) => { $(
        impl $trait<$right> for $left {
            type Output = Result<Tensor>;
            fn $method(self, other: $right) -> Result<Tensor> {
                // By reference: an owned operand is freed afterwards.
                Tensor::binary(&self, $op, &other)
            }
        }
    )* };
    (@scalars $trait:ident, $method:ident, $op:expr; $($scalar:ty),*) => { $(
        impl $trait<$scalar> for &Tensor {
            type Output = Result<Tensor>;
            fn $method(self, scalar: $scalar) -> Result<Tensor> {
                self.binary_scalar($op, scalar)
            }
        }

        impl $trait<$scalar> for Tensor {
            type Output = Result<Tensor>;
            fn $method(self, scalar: $scalar) -> Result<Tensor> {
                self.binary_scalar($op, scalar)
            }
        }

        impl $trait<&Tensor> for $scalar {
            type Output = Result<Tensor>;
            fn $method(self, tensor: &Tensor) -> Result<Tensor> {
                tensor.scalar_binary($op, self)
            }
        }

        impl $trait<Tensor> for $scalar {
            type Output = Result<Tensor>;
            fn $method(self, tensor: Tensor) -> Result<Tensor> {
                tensor.scalar_binary($op, self)
            }
        }
    )* };
}
operator!(Add, add, Binary::Add);
operator!(Sub, sub, Binary::Sub);
operator!(Mul, mul, Binary::Mul);
operator!(Div, div, Binary::Div);

impl Neg for &Tensor {
    type Output = Result<Tensor>;
    fn neg(self) -> Result<Tensor> {
        Tensor::neg(self)
    }
}

impl Neg for Tensor {
    type Output = Result<Tensor>;
    fn neg(self) -> Result<Tensor> {
        Tensor::neg(&self)
    }
}

impl Tensor {
    /// `op(scalar, x)` of each element.
    fn scalar_binary(&self, op: Binary, scalar: impl Into<Scalar>) -> Result<Tensor> {
        match op {
            // These commute.
            Binary::Add | Binary::Mul => self.binary_scalar(op, scalar),
            _ => self.scalar_like(op.name(), scalar.into())?.binary(op, self),
        }
    }
}
