//! Normalization, gated units, embeddings and rotary embeddings.

use warpwave_kernels::{DType, Glu, RopePairs};

use crate::backend::{RopeArgs, RopeTables, WeightFormat, Weights};
use crate::error::{Result, shape, wrong_type};
use crate::ops::check_float;
use crate::tensor::Tensor;

/// Rotary position embedding: the frequencies of the element pairs, on a device.
#[derive(Debug, Clone)]
pub struct Rope {
    /// Which elements of a head form a pair.
    pub pairs: RopePairs,
    /// `f32` of (pairs). The first `2 · pairs` elements of a head are rotated, the others stay.
    pub frequencies: Tensor,
    /// Multiplies cosines and sines; 1, or YaRN's attention factor.
    pub factor: f64,
}

/// A [`Rope`] at the positions of a batch, shared by all layers.
pub struct RopePositions<'a> {
    rope: &'a Rope,
    positions: &'a Tensor,
    tables: Option<RopeTables>,
}

impl Rope {
    /// Prepares rotation at positions of `u32`, one for each token.
    pub fn at<'a>(&'a self, positions: &'a Tensor) -> Result<RopePositions<'a>> {
        let op = "rope";
        if self.frequencies.dtype() != DType::F32 || self.frequencies.rank() != 1 {
            return Err(shape(op, format!("expected one-dimensional f32 frequencies, got {:?}", self.frequencies)));
        }
        if positions.dtype() != DType::U32 {
            return Err(wrong_type(op, "the position ids", positions.dtype(), "u32"));
        }
        positions.check_same_device(op, "the frequencies", &self.frequencies)?;
        let tables = positions.device().backend().rope_tables(&self.frequencies.operand(), self.factor, &positions.operand())?;
        Ok(RopePositions { rope: self, positions, tables })
    }
}

impl RopePositions<'_> {
    /// Fails unless `heads` is (tokens, heads, head_dim) of these positions.
    pub(crate) fn check(&self, heads: &Tensor) -> Result<()> {
        let [tokens, _, head_dim] = *heads.shape() else {
            return Err(shape("rope", format!("expected (tokens, heads, head_dim), got {:?}", heads.shape())));
        };
        heads.check_same_device("rope", "the position ids", self.positions)?;
        check_float("rope", "the tensor", heads.dtype())?;
        let (positions, pairs) = (self.positions.len(), self.rope.frequencies.len());
        if self.positions.shape() != [tokens] {
            return Err(shape("rope", format!("expected {tokens} positions, one per token, got {positions}")));
        }
        if 2 * pairs > head_dim {
            return Err(shape("rope", format!("{pairs} rotary pairs do not fit in head_dim {head_dim}")));
        }
        Ok(())
    }

    pub(crate) fn args(&self) -> RopeArgs<'_> {
        RopeArgs {
            pairs: self.rope.pairs,
            frequencies: self.rope.frequencies.operand(),
            factor: self.rope.factor,
            positions: self.positions.operand(),
            tables: self.tables.as_ref(),
        }
    }
}

/// Fails unless a result can have type `to`: the input's, or 16 bits for an `f32` input.
fn check_result(op: &'static str, from: DType, to: DType) -> Result<()> {
    match (from, to) {
        (DType::F32, DType::F16 | DType::Bf16) => Ok(()),
        _ if from == to => Ok(()),
        _ => Err(wrong_type(op, "the result", to, "the type of the input, or f16 or bf16 for an f32 input")),
    }
}

impl Tensor {
    /// Returns `x / √(mean(x²) + epsilon) · weight` along the last dimension.
    pub fn rms_norm(&self, weight: &Tensor, epsilon: f32) -> Result<Tensor> {
        self.rms_norm_as(weight, epsilon, self.dtype())
    }

    /// As [`Tensor::rms_norm`], with a result of type `to`: this tensor's, or 16 bits if this one is `f32`.
    pub fn rms_norm_as(&self, weight: &Tensor, epsilon: f32, to: DType) -> Result<Tensor> {
        let op = "rms_norm";
        self.check_norm(op, weight, epsilon)?;
        check_result(op, self.dtype(), to)?;
        Tensor::build(self.device(), to, self.shape(), |backend, out| backend.rms_norm(&self.operand(), &weight.operand(), epsilon, out))
    }

    /// Adds `x` to this tensor, and returns the RMS norm of the sum as [`Tensor::rms_norm_as`] does.
    pub fn add_rms_norm(&mut self, x: &Tensor, weight: &Tensor, epsilon: f32, to: DType) -> Result<Tensor> {
        let op = "add_rms_norm";
        self.check_same_shape(op, x)?;
        self.check_same_kind(op, "the tensor to add", x)?;
        self.check_norm(op, weight, epsilon)?;
        check_result(op, self.dtype(), to)?;
        let (device, shape) = (self.device().clone(), self.shape().to_vec());
        let mut residual = self.operand_mut()?;
        Tensor::build(&device, to, &shape, |backend, out| {
            backend.add_rms_norm(&mut residual, &x.operand(), &weight.operand(), epsilon, out)
        })
    }

    /// Returns `(x - mean(x)) / √(variance(x) + epsilon) · weight + bias` along the last dimension.
    pub fn layer_norm(&self, weight: &Tensor, bias: &Tensor, epsilon: f32) -> Result<Tensor> {
        let op = "layer_norm";
        self.check_norm(op, weight, epsilon)?;
        self.check_norm(op, bias, epsilon)?;
        weight.check_same_kind(op, "the bias", bias)?;
        Tensor::build(self.device(), self.dtype(), self.shape(), |backend, out| {
            backend.layer_norm(&self.operand(), &weight.operand(), &bias.operand(), epsilon, out)
        })
    }

    /// Normalizes groups of channels of (images, channels, height, width), of `f32`, `f16` or `bf16`: `(x - mean) / √(variance + epsilon)`,
    /// times the channel's weight, plus its bias. Channels that are adjacent in memory stay so.
    pub fn group_norm(&self, groups: usize, weight: &Tensor, bias: &Tensor, epsilon: f32) -> Result<Tensor> {
        self.normalize_groups(groups, weight, bias, epsilon, false)
    }

    /// Returns [`Tensor::group_norm`] followed by [`Tensor::silu`], fused.
    pub fn group_norm_silu(&self, groups: usize, weight: &Tensor, bias: &Tensor, epsilon: f32) -> Result<Tensor> {
        self.normalize_groups(groups, weight, bias, epsilon, true)
    }

    fn normalize_groups(&self, groups: usize, weight: &Tensor, bias: &Tensor, epsilon: f32, silu: bool) -> Result<Tensor> {
        let op = "group_norm";
        let &[images, channels, height, width] = self.shape() else {
            return Err(shape(op, format!("expected (images, channels, height, width), got {:?}", self.shape())));
        };
        if groups == 0 || !channels.is_multiple_of(groups) {
            return Err(shape(op, format!("{channels} channels cannot be split into {groups} groups")));
        }
        if self.dtype() == DType::F64 {
            return Err(wrong_type(op, "the tensor", self.dtype(), "f32, f16 or bf16"));
        }
        let pixels = self.permute(&[0, 2, 3, 1])?;
        pixels.check_norm(op, weight, epsilon)?;
        pixels.check_norm(op, bias, epsilon)?;
        weight.check_same_kind(op, "the bias", bias)?;
        self.build_image([images, channels, height, width], |backend, out| {
            backend.group_norm(&self.operand(), groups, &weight.operand(), &bias.operand(), epsilon, silu, out)
        })
    }

    fn check_norm(&self, op: &'static str, weight: &Tensor, epsilon: f32) -> Result<()> {
        check_float(op, "the tensor", self.dtype())?;
        self.check_same_device(op, "the weight", weight)?;
        if weight.dtype() != self.dtype() && weight.dtype() != DType::F32 {
            return Err(wrong_type(op, "the weight", weight.dtype(), "f32, or the type of the input"));
        }
        if epsilon.is_nan() || epsilon < 0.0 {
            return Err(shape(op, format!("epsilon must be >= 0, got {epsilon}")));
        }
        match self.shape().last() {
            Some(last) if weight.shape() == [*last] => Ok(()),
            _ => Err(shape(op, format!("weight of shape {:?} does not match the last dimension of {:?}", weight.shape(), self.shape()))),
        }
    }

    /// Returns `f(gate) · up` of rows that hold gates in their first half, as type `dtype`: this tensor's, or 16 bits if this one is `f32`.
    pub fn glu(&self, op: Glu, dtype: DType) -> Result<Tensor> {
        check_float(op.name(), "the tensor", self.dtype())?;
        check_result(op.name(), self.dtype(), dtype)?;
        let Some((last, outer)) = self.shape().split_last().filter(|(last, _)| last.is_multiple_of(2)) else {
            return Err(shape(op.name(), format!("expected an even last dimension, got shape {:?}", self.shape())));
        };
        let to: Vec<usize> = outer.iter().copied().chain([last / 2]).collect();
        Tensor::build(self.device(), dtype, &to, |backend, out| backend.glu(op, &self.operand(), out))
    }

    /// Applies rotary embedding to (tokens, heads, head_dim) in place.
    pub fn rope_in_place(&mut self, rope: &RopePositions<'_>) -> Result<()> {
        rope.check(self)?;
        let device = self.device().clone();
        device.backend().rope_in_place(&rope.args(), &mut self.operand_mut()?)
    }

    /// Returns rows of a matrix by a one-dimensional tensor of integers. Out-of-range indices read zeros.
    pub fn embedding(&self, ids: &Tensor) -> Result<Tensor> {
        let op = "embedding";
        let [rows, columns] = *self.shape() else {
            return Err(shape(op, format!("expected a matrix, got shape {:?}", self.shape())));
        };
        check_ids(op, ids)?;
        self.check_same_device(op, "the ids", ids)?;
        let table = self.contiguous()?;
        if table.layout().offset() != 0 {
            return self.index_select(ids, 0);
        }
        let format = WeightFormat::Plain(self.dtype());
        Tensor::build(self.device(), self.dtype(), &[ids.len(), columns], |backend, out| {
            backend.embedding(&Weights { storage: table.operand().storage, format, rows, columns }, &ids.operand(), out)
        })
    }
}

pub(crate) fn check_ids(op: &'static str, ids: &Tensor) -> Result<()> {
    if !ids.dtype().is_integer() {
        return Err(wrong_type(op, "the ids", ids.dtype(), "an integer type"));
    }
    match ids.rank() {
        1 => Ok(()),
        _ => Err(shape(op, format!("expected one-dimensional ids, got {:?}", ids.shape()))),
    }
}
