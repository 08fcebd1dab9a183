//! Layers that the networks share. Images are (images, height, width, channels) in memory.

use warpwave_kernels::{Conv, PadMode, Scalar};
use warpwave_tensor::{Linear as TensorLinear, Precision, Tensor};

use crate::error::Result;

/// A linear layer of any number of leading dimensions.
#[derive(Debug, Clone)]
pub(crate) struct Linear {
    inner: TensorLinear,
    outputs: usize,
}

impl Linear {
    pub fn new(inner: TensorLinear, outputs: usize) -> Linear {
        Linear { inner, outputs }
    }

    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut shape = x.shape().to_vec();
        let last = shape.len() - 1;
        let rows: usize = shape[..last].iter().product();
        let flat = x.reshape(&[rows, shape[last]])?;
        shape[last] = self.outputs;
        Ok(self.inner.forward(&flat, x.dtype(), Precision::Exact)?.reshape(&shape)?)
    }
}

/// A convolution with an odd kernel.
#[derive(Debug, Clone)]
pub(crate) struct Conv2d {
    weight: Tensor,
    bias: Option<Tensor>,
    conv: Conv,
}

impl Conv2d {
    /// Takes weights of (filters, channels, height, width), and keeps them in the order of images in memory.
    pub fn new(weight: &Tensor, bias: Option<Tensor>) -> Result<Conv2d> {
        let weight = weight.permute(&[0, 2, 3, 1])?.contiguous()?.permute(&[0, 3, 1, 2])?;
        let conv = Conv::new().padding(weight.size(2) / 2);
        Ok(Conv2d { weight, bias, conv })
    }

    pub fn strided(self, stride: usize) -> Conv2d {
        Conv2d { conv: self.conv.stride(stride), ..self }
    }

    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.run(x, &self.conv)
    }

    /// With zeros at the right and the bottom only.
    pub fn forward_padded_after(&self, x: &Tensor) -> Result<Tensor> {
        let padded = x.pad(&[(0, 0), (0, 1), (0, 1), (0, 0)], PadMode::Constant(Scalar::Float(0.0)))?;
        self.run(&padded, &self.conv.padding(0))
    }

    fn run(&self, x: &Tensor, conv: &Conv) -> Result<Tensor> {
        let out = x.permute(&[0, 3, 1, 2])?.conv2d(&self.weight, self.bias.as_ref(), conv)?;
        Ok(out.permute(&[0, 2, 3, 1])?.contiguous()?)
    }
}

/// Scale and shift of a normalization, over the last dimension or groups of it.
#[derive(Debug, Clone)]
pub(crate) struct LayerNorm {
    pub weight: Tensor,
    pub bias: Tensor,
    pub eps: f32,
}

impl LayerNorm {
    /// Normalizes the last dimension.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(x.layer_norm(&self.weight, &self.bias, self.eps)?)
    }

    /// Normalizes groups of channels of (images, height, width, channels).
    pub fn grouped(&self, x: &Tensor, groups: usize) -> Result<Tensor> {
        let out = x.permute(&[0, 3, 1, 2])?.group_norm(groups, &self.weight, &self.bias, self.eps)?;
        Ok(out.permute(&[0, 2, 3, 1])?.contiguous()?)
    }

    /// [`LayerNorm::grouped`] followed by SiLU.
    pub fn grouped_silu(&self, x: &Tensor, groups: usize) -> Result<Tensor> {
        let out = x.permute(&[0, 3, 1, 2])?.group_norm_silu(groups, &self.weight, &self.bias, self.eps)?;
        Ok(out.permute(&[0, 2, 3, 1])?.contiguous()?)
    }
}

/// Doubles the size of images, or resizes them to that of `like`.
pub(crate) fn upsample(x: &Tensor, [height, width]: [usize; 2]) -> Result<Tensor> {
    let out = x.permute(&[0, 3, 1, 2])?.upsample_nearest2d(height, width)?;
    Ok(out.permute(&[0, 2, 3, 1])?.contiguous()?)
}

/// Attention of queries of (rows, queries, channels) over keys and values of (rows, keys, channels), split into heads.
///
/// `bias` of (heads, queries, keys) is added to the scores, which are `scale · q · k` in `f32`.
pub(crate) fn attention(q: &Tensor, k: &Tensor, v: &Tensor, heads: usize, scale: f32, bias: Option<&Tensor>) -> Result<Tensor> {
    let split = |x: &Tensor| x.reshape(&[x.size(0), x.size(1), heads, x.size(2) / heads]);
    Ok(split(q)?.attention(&split(k)?, &split(v)?, scale, bias)?.reshape(q.shape())?)
}

/// Cosines and then sines of `value` times the frequencies 10000^(−i / half), as a row of `f32`.
pub(crate) fn sinusoids(value: f32, size: usize) -> Vec<f32> {
    let half = size / 2;
    let angle = |i: usize| value * (-(10000f64.ln()) * i as f64 / half as f64).exp() as f32;
    (0..half).map(|i| angle(i).cos()).chain((0..half).map(|i| angle(i).sin())).collect()
}
