//! Sorting, distinct elements, and counting.

use warpwave_kernels::DType;

use crate::backend::Bins;
use crate::dim::{self, Dim};
use crate::error::{Result, shape, wrong_type};
use crate::tensor::Tensor;

/// The distinct elements of a tensor. See [`Tensor::unique_all`].
#[derive(Debug, Clone)]
pub struct Unique {
    /// The distinct elements, ascending.
    pub values: Tensor,
    /// The position in `values` of each element, `u32` of the tensor's shape.
    pub inverse: Tensor,
    /// How often each of `values` occurs, `u32`.
    pub counts: Tensor,
}

impl Tensor {
    /// Sorts along a dimension. Returns the sorted elements, and the index each had, as `u32`.
    ///
    /// Stable, ascending or descending. NaN is the largest, and both zeros are equal.
    pub fn sort(&self, dim: impl Dim, descending: bool) -> Result<(Tensor, Tensor)> {
        let dim = dim::index("sort", dim, self.shape())?;
        self.first("sort", self.shape()[dim], dim, descending)
    }

    /// Returns the indices that sort the tensor along a dimension, as [`Tensor::sort`] does.
    pub fn argsort(&self, dim: impl Dim, descending: bool) -> Result<Tensor> {
        let dim = dim::index("argsort", dim, self.shape())?;
        let mut indices = uninitialized(self, DType::U32, self.shape())?;
        self.order("argsort", dim, descending, None, &mut indices)?;
        Ok(indices)
    }

    /// Returns the `k` largest or smallest elements along a dimension, in order, and their indices, as `u32`.
    ///
    /// Of equal elements the first ones are taken. NaN is the largest.
    pub fn topk(&self, k: usize, dim: impl Dim, largest: bool) -> Result<(Tensor, Tensor)> {
        let dim = dim::index("topk", dim, self.shape())?;
        if k > self.shape()[dim] {
            return Err(shape("topk", format!("expected k of at most {}, the size of dimension {dim}, got {k}", self.shape()[dim])));
        }
        self.first("topk", k, dim, largest)
    }

    /// The first `k` elements in order, and their indices.
    fn first(&self, op: &'static str, k: usize, dim: usize, descending: bool) -> Result<(Tensor, Tensor)> {
        let mut to = self.shape().to_vec();
        to[dim] = k;
        let (mut values, mut indices) = (uninitialized(self, self.dtype(), &to)?, uninitialized(self, DType::U32, &to)?);
        self.order(op, dim, descending, Some(&mut values), &mut indices)?;
        Ok((values, indices))
    }

    fn order(&self, op: &'static str, dim: usize, descending: bool, values: Option<&mut Tensor>, indices: &mut Tensor) -> Result<()> {
        if u32::try_from(self.shape()[dim]).is_err() {
            return Err(shape(op, format!("dimension {dim} of {:?} exceeds the limit of 2^32 - 1 elements", self.shape())));
        }
        // Backends sort along the last dimension.
        let last = self.rank() - 1;
        let x = self.transpose(dim, last)?;
        let mut values = values.map(Tensor::operand_mut).transpose()?;
        if let Some(values) = &mut values {
            values.layout = values.layout.transpose(dim, last)?;
        }
        let mut indices = indices.operand_mut()?;
        indices.layout = indices.layout.transpose(dim, last)?;
        self.device().backend().order(&x.operand(), descending, values.as_mut(), &mut indices)
    }

    /// Returns the distinct elements, ascending, in one dimension.
    ///
    /// NaNs are equal to each other, and so are both zeros: of equal elements the first is kept. Waits for the device.
    pub fn unique_values(&self) -> Result<Tensor> {
        let (flat, mut values) = (self.reshape(&[self.len()])?, uninitialized(self, self.dtype(), &[self.len()])?);
        let found = self.device().backend().unique(&flat.operand(), &mut values.operand_mut()?, None)?;
        values.narrow(0, 0, found)?.copied()
    }

    /// Returns the distinct elements, where each element is among them, and how often each occurs. See [`Tensor::unique_values`].
    pub fn unique_all(&self) -> Result<Unique> {
        let (n, row) = (self.len(), [self.len()]);
        if u32::try_from(n).is_err() {
            return Err(shape("unique", format!("{n} elements exceed the limit of 2^32 - 1")));
        }
        let (flat, mut values) = (self.reshape(&row)?, uninitialized(self, self.dtype(), &row)?);
        let (mut inverse, mut counts) = (uninitialized(self, DType::U32, &row)?, uninitialized(self, DType::U32, &row)?);
        let more = Some((&mut inverse.operand_mut()?, &mut counts.operand_mut()?));
        let found = self.device().backend().unique(&flat.operand(), &mut values.operand_mut()?, more)?;
        let first = |all: Tensor| all.narrow(0, 0, found)?.copied();
        Ok(Unique { values: first(values)?, inverse: inverse.reshape(self.shape())?, counts: first(counts)? })
    }

    /// Counts how often each integer below `bins` occurs, as `i64`; others are not counted.
    pub fn bincount(&self, bins: usize) -> Result<Tensor> {
        if !self.dtype().is_integer() {
            return Err(wrong_type("bincount", "the tensor", self.dtype(), "an integer type"));
        }
        self.counted(bins, Bins::Integers)
    }

    /// Counts elements in `bins` bins of equal width between `low` and `high`, as `i64`; those outside, and NaN, are not counted.
    ///
    /// `high` itself is in the last bin.
    pub fn histogram(&self, bins: usize, low: f64, high: f64) -> Result<Tensor> {
        if !(low < high && (bins as f64 / (high - low)).is_finite()) {
            return Err(shape("histogram", format!("expected finite limits with low < high, got {low} and {high}")));
        }
        self.counted(bins, Bins::Between(low, high))
    }

    fn counted(&self, bins: usize, kind: Bins) -> Result<Tensor> {
        Tensor::build(self.device(), DType::I64, &[bins], |backend, out| backend.histogram(&self.operand(), kind, out))
    }
}

/// A tensor on the device of `like` that something is about to fill.
fn uninitialized(like: &Tensor, dtype: DType, shape: &[usize]) -> Result<Tensor> {
    Tensor::build(like.device(), dtype, shape, |_, _| Ok(()))
}
