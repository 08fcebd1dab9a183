//! Convolutions.

use warpwave_kernels::{Conv, DType};

use crate::error::{Result, shape, wrong_type};
use crate::tensor::Tensor;

impl Tensor {
    /// Returns the convolution of (images, channels, length) with weights of (filters, channels / groups, kernel length).
    ///
    /// Of `conv` the second of each pair counts; see [`Tensor::conv2d`].
    pub fn conv1d(&self, weight: &Tensor, bias: Option<&Tensor>, conv: &Conv) -> Result<Tensor> {
        self.convolved_1d("conv1d", weight, bias, conv, false)
    }

    /// Returns the convolution of (images, channels, height, width) with weights of (filters, channels / groups, kernel height, kernel
    /// width), plus a bias of (filters), of `f32`, `f16` or `bf16`.
    ///
    /// Strides are arbitrary. If channels are adjacent in memory (NHWC: a permuted tensor), they are in the result too.
    pub fn conv2d(&self, weight: &Tensor, bias: Option<&Tensor>, conv: &Conv) -> Result<Tensor> {
        self.convolved("conv2d", weight, bias, conv, false)
    }

    /// Returns the transposed convolution of (images, channels, length) with weights of (channels, filters / groups, kernel length).
    ///
    /// Of `conv` the second of each pair counts; see [`Tensor::conv2d`].
    pub fn conv_transpose1d(&self, weight: &Tensor, bias: Option<&Tensor>, conv: &Conv) -> Result<Tensor> {
        self.convolved_1d("conv_transpose1d", weight, bias, conv, true)
    }

    /// Returns the transposed convolution of (images, channels, height, width) with weights of (channels, filters / groups, kernel height,
    /// kernel width); otherwise as [`Tensor::conv2d`].
    pub fn conv_transpose2d(&self, weight: &Tensor, bias: Option<&Tensor>, conv: &Conv) -> Result<Tensor> {
        self.convolved("conv_transpose2d", weight, bias, conv, true)
    }

    fn convolved_1d(&self, op: &'static str, weight: &Tensor, bias: Option<&Tensor>, conv: &Conv, transposed: bool) -> Result<Tensor> {
        if self.rank() != 3 || weight.rank() != 3 {
            let reason = format!("expected 3-D input and weights, got shapes {:?} and {:?}", self.shape(), weight.shape());
            return Err(shape(op, reason));
        }
        let flat = Conv {
            stride: [1, conv.stride[1]],
            padding: [0, conv.padding[1]],
            dilation: [1, conv.dilation[1]],
            output_padding: [0, conv.output_padding[1]],
            ..*conv
        };
        self.unsqueeze(2)?.convolved(op, &weight.unsqueeze(2)?, bias, &flat, transposed)?.squeeze(2)
    }

    fn convolved(&self, op: &'static str, weight: &Tensor, bias: Option<&Tensor>, conv: &Conv, transposed: bool) -> Result<Tensor> {
        if !matches!(self.dtype(), DType::F32 | DType::F16 | DType::Bf16) {
            return Err(wrong_type(op, "the tensor", self.dtype(), "f32, f16 or bf16"));
        }
        self.check_same_kind(op, "the weights", weight)?;
        let [images, filters, height, width] =
            conv.output_shape(self.shape(), weight.shape(), transposed).map_err(|reason| shape(op, reason))?;
        if let Some(bias) = bias {
            self.check_same_kind(op, "the bias", bias)?;
            if bias.shape() != [filters] {
                return Err(shape(op, format!("expected a bias of shape [{filters}], got {:?}", bias.shape())));
            }
        }
        let operand = bias.map(Tensor::operand);
        self.build_image([images, filters, height, width], |backend, out| {
            backend.conv2d(conv, transposed, &self.operand(), &weight.operand(), operand.as_ref(), out)
        })
    }
}
