//! Pooling, resampling, im2col and padding.

use warpwave_kernels::{Conv, PadMode, Pool};

use crate::backend::{Backend, ImageOp, OperandMut};
use crate::error::{Result, shape};
use crate::ops::check_float;
use crate::tensor::Tensor;

impl Tensor {
    /// Returns the averages of windows of (images, channels, height, width), of `f32`, `f16`, `bf16` or `f64`.
    ///
    /// Strides are arbitrary. If channels are adjacent in memory (NHWC: a permuted tensor), they are in the result too.
    pub fn avg_pool2d(&self, pool: &Pool) -> Result<Tensor> {
        self.pooled("avg_pool2d", pool, ImageOp::AvgPool(*pool))
    }

    /// Returns the maxima of windows; NaN if a window has one. See [`Tensor::avg_pool2d`].
    pub fn max_pool2d(&self, pool: &Pool) -> Result<Tensor> {
        self.pooled("max_pool2d", pool, ImageOp::MaxPool(*pool))
    }

    fn pooled(&self, op: &'static str, pool: &Pool, image_op: ImageOp) -> Result<Tensor> {
        check_float(op, "the tensor", self.dtype())?;
        let to = pool.output_shape(self.shape()).map_err(|reason| shape(op, reason))?;
        self.build_image(to, |backend, out| backend.image(&image_op, &self.operand(), out))
    }

    /// Resizes (images, channels, length) to another length by repeating or dropping elements; see [`Tensor::upsample_nearest2d`].
    pub fn upsample_nearest1d(&self, length: usize) -> Result<Tensor> {
        if self.rank() != 3 {
            return Err(shape("upsample_nearest1d", format!("expected (images, channels, length), got {:?}", self.shape())));
        }
        self.unsqueeze(2)?.upsampled("upsample_nearest1d", [1, length], ImageOp::Nearest)?.squeeze(2)
    }

    /// Resizes (images, channels, height, width) by repeating or dropping elements: position `i` of `m` is position `i · n / m` of `n`,
    /// rounded down. Channels that are adjacent in memory stay so.
    pub fn upsample_nearest2d(&self, height: usize, width: usize) -> Result<Tensor> {
        self.upsampled("upsample_nearest2d", [height, width], ImageOp::Nearest)
    }

    /// Resizes (images, channels, height, width) of `f32`, `f16`, `bf16` or `f64` by bilinear interpolation.
    ///
    /// Pixels are areas, whose outer edges meet; with `align_corners` they are points, of which the outer ones meet. Channels that are
    /// adjacent in memory stay so.
    pub fn upsample_bilinear2d(&self, height: usize, width: usize, align_corners: bool) -> Result<Tensor> {
        check_float("upsample_bilinear2d", "the tensor", self.dtype())?;
        self.upsampled("upsample_bilinear2d", [height, width], ImageOp::Bilinear { align_corners })
    }

    fn upsampled(&self, op: &'static str, [height, width]: [usize; 2], image_op: ImageOp) -> Result<Tensor> {
        let &[images, channels, from_height, from_width] = self.shape() else {
            return Err(shape(op, format!("expected (images, channels, height, width), got {:?}", self.shape())));
        };
        if [from_height, from_width].contains(&0) && ![images, channels, height, width].contains(&0) {
            return Err(shape(op, format!("an input of {from_height} × {from_width} has no elements")));
        }
        self.build_image([images, channels, height, width], |backend, out| backend.image(&image_op, &self.operand(), out))
    }

    /// Returns what each position of a kernel meets in (images, channels, height, width), zeros outside: (images, positions high, positions
    /// wide, channels · kernel height · kernel width). Groups and epilogue of `conv` do not count.
    pub fn im2col(&self, kernel: [usize; 2], conv: &Conv) -> Result<Tensor> {
        let to = conv.columns_shape(self.shape(), kernel).map_err(|reason| shape("im2col", reason))?;
        Tensor::build(self.device(), self.dtype(), &to, |backend, out| backend.image(&ImageOp::Im2Col(kernel, *conv), &self.operand(), out))
    }

    /// Returns images of (height, width) with columns added up where [`Tensor::im2col`] takes them from, of `f32`, `f16`, `bf16` or `f64`.
    pub fn col2im(&self, kernel: [usize; 2], conv: &Conv, [height, width]: [usize; 2]) -> Result<Tensor> {
        let op = "col2im";
        check_float(op, "the tensor", self.dtype())?;
        let &[images, .., taps] = self.shape() else {
            return Err(shape(
                op,
                format!("expected (images, output height, output width, channels * kernel size), got {:?}", self.shape()),
            ));
        };
        let channels = taps / kernel.iter().fold(1usize, |n, size| n.saturating_mul(*size)).max(1);
        let to = [images, channels, height, width];
        let expected = conv.columns_shape(&to, kernel).map_err(|reason| shape(op, reason))?;
        if self.shape() != expected {
            return Err(shape(op, format!("expected columns of shape {expected:?} for images of shape {to:?}, got {:?}", self.shape())));
        }
        Tensor::build(self.device(), self.dtype(), &to, |backend, out| backend.image(&ImageOp::Col2Im(kernel, *conv), &self.operand(), out))
    }

    /// Returns a copy with positions added before and after each dimension, in the order of the dimensions.
    pub fn pad(&self, pads: &[(usize, usize)], mode: PadMode) -> Result<Tensor> {
        let to = mode.output_shape(self.shape(), pads).map_err(|reason| shape("pad", reason))?;
        let before: Vec<usize> = pads.iter().map(|(before, _)| *before).collect();
        Tensor::build(self.device(), self.dtype(), &to, |backend, out| backend.pad(mode, &before, &self.operand(), out))
    }

    /// Allocates images and lets `fill` write them. If this tensor's channels are adjacent in memory, theirs are too.
    pub(crate) fn build_image(
        &self,
        [images, channels, height, width]: [usize; 4],
        fill: impl FnOnce(&dyn Backend, &mut OperandMut<'_>) -> Result<()>,
    ) -> Result<Tensor> {
        let channels_last = self.shape()[1] > 1 && self.layout().strides()[1] == 1 && !self.layout().is_contiguous();
        if !channels_last {
            return Tensor::build(self.device(), self.dtype(), &[images, channels, height, width], fill);
        }
        let out = Tensor::build(self.device(), self.dtype(), &[images, height, width, channels], |backend, out| {
            let layout = out.layout.transpose(2, 3)?.transpose(1, 2)?;
            fill(backend, &mut OperandMut::new(out.storage, out.dtype, layout))
        })?;
        out.permute(&[0, 3, 1, 2])
    }
}
