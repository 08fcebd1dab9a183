//! What layers of models are made of.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use warpwave_kernels::{Binary, DType, Glu, Norm, Places, RopeAngles, RopePairs, Unary};

use crate::cpu;
use crate::device::Device;
use crate::error::{Error, Result, shape};
use crate::tensor::Tensor;
use crate::values::Values;

/// How positions turn queries and keys: the frequencies of the pairs, on a device.
#[derive(Debug, Clone)]
pub struct Rope {
    /// Which elements are turned together.
    pub pairs: RopePairs,
    /// `f32`, one for each pair.
    pub frequencies: Tensor,
    /// What cosines and sines are multiplied with.
    pub factor: f64,
}

/// [`Rope`] at the positions of some tokens.
pub struct RopeAt<'a> {
    rope: &'a Rope,
    positions: &'a Tensor,
    /// On the CPU the cosines and sines, which all layers share.
    tables: Option<(Vec<f32>, Vec<f32>)>,
}

impl Rope {
    /// At positions of `u32`, one for each token.
    pub fn at<'a>(&'a self, positions: &'a Tensor) -> Result<RopeAt<'a>> {
        let tables = match positions.device() {
            Device::Gpu(_) => None,
            Device::Cpu => Some(cpu::rope_tables(&self.frequencies.host::<f32>()?, self.factor, &positions.host::<u32>()?)),
        };
        Ok(RopeAt { rope: self, positions, tables })
    }
}

impl RopeAt<'_> {
    /// Refuses heads of (tokens, heads, elements) that it is not for.
    pub(crate) fn check(&self, heads: &Tensor) -> Result<()> {
        let [tokens, _, dim] = *heads.shape() else {
            return Err(shape("rope", format!("{:?} are no tokens of heads", heads.shape())));
        };
        let RopeAt { rope, positions, .. } = self;
        if positions.shape() != [tokens] || rope.frequencies.len() * 2 > dim {
            let (places, pairs) = (positions.len(), rope.frequencies.len());
            return Err(shape("rope", format!("{places} positions and {pairs} pairs for {:?}", heads.shape())));
        }
        Ok(())
    }

    /// As the kernels take it.
    pub(crate) fn on_gpu(&self) -> Result<warpwave_kernels::Rope<'_>> {
        let angles = RopeAngles::Frequencies { frequencies: self.rope.frequencies.view()?, factor: self.rope.factor };
        Ok(warpwave_kernels::Rope { pairs: self.rope.pairs, angles, places: Places::Given(self.positions.view()?) })
    }
}

impl Tensor {
    /// The same numbers in another type, rounded to nearest.
    pub fn cast(&self, dtype: DType) -> Result<Tensor> {
        if self.dtype() == dtype {
            return Ok(self.clone());
        }
        match self.device() {
            Device::Gpu(gpu) => {
                let view = self.view()?;
                Tensor::on_gpu(gpu, dtype, self.shape(), |out| gpu.kernels.cast(&gpu.stream, &view, out))
            }
            Device::Cpu => Values::of(self)?.into_tensor(dtype, self.shape()),
        }
    }

    /// The elements of a tensor of floats, wherever it is, as `f32`.
    pub fn floats(&self) -> Result<Vec<f32>> {
        let here = self.to_device(&Device::Cpu)?;
        let mut floats = vec![0.0; here.len()];
        match here.dtype() {
            DType::F32 => return here.to_vec(),
            DType::F16 => here.host::<f16>()?.convert_to_f32_slice(&mut floats),
            DType::Bf16 => here.host::<bf16>()?.convert_to_f32_slice(&mut floats),
            found => return Err(Error::Type { op: "floats", what: "the tensor", found, expected: "f32, f16 or bf16" }),
        }
        Ok(floats)
    }

    /// Adds another tensor of the same shape to this one.
    pub fn add_in_place(&mut self, other: &Tensor) -> Result<()> {
        self.same("add", other)?;
        match self.device().clone() {
            Device::Gpu(gpu) => Ok(gpu.kernels.binary_in_place(&gpu.stream, Binary::Add, &mut self.view_mut()?, &other.view()?)?),
            Device::Cpu => {
                let other = other.host::<f32>()?;
                cpu::add(self.host_mut::<f32>()?, &other);
                Ok(())
            }
        }
    }

    /// Multiplies each element by a number.
    pub fn scale_in_place(&mut self, factor: f32) -> Result<()> {
        match self.device().clone() {
            Device::Gpu(gpu) => Ok(gpu.kernels.affine_in_place(&gpu.stream, &mut self.view_mut()?, factor, 0.0f32)?),
            Device::Cpu => {
                cpu::scale(self.host_mut::<f32>()?, factor);
                Ok(())
            }
        }
    }

    /// `cap · tanh(x / cap)` of each element.
    pub fn soft_cap_in_place(&mut self, cap: f32) -> Result<()> {
        match self.device().clone() {
            Device::Gpu(gpu) => {
                let mut view = self.view_mut()?;
                gpu.kernels.affine_in_place(&gpu.stream, &mut view, 1.0 / cap, 0.0f32)?;
                gpu.kernels.unary_in_place(&gpu.stream, Unary::Tanh, &mut view)?;
                Ok(gpu.kernels.affine_in_place(&gpu.stream, &mut view, cap, 0.0f32)?)
            }
            Device::Cpu => {
                cpu::soft_cap(self.host_mut::<f32>()?, cap);
                Ok(())
            }
        }
    }

    /// `x / √(mean(x²) + ε) · weight` along the last dimension.
    pub fn rms_norm(&self, weight: &Tensor, epsilon: f32) -> Result<Tensor> {
        self.rms_norm_as(weight, epsilon, self.dtype())
    }

    /// The same as another type: of `f32` results may be of 16 bits.
    pub fn rms_norm_as(&self, weight: &Tensor, epsilon: f32, to: DType) -> Result<Tensor> {
        self.check_norm(weight)?;
        match self.device() {
            Device::Gpu(gpu) => {
                let norm = Norm { weight: Some(weight.view()?), bias: None, epsilon: epsilon.into() };
                let view = self.view()?;
                Tensor::on_gpu(gpu, to, self.shape(), |out| gpu.kernels.rms_norm(&gpu.stream, &view, &norm, out))
            }
            Device::Cpu => {
                let (x, weight) = (self.host::<f32>()?, weight.host::<f32>()?);
                Tensor::on_cpu(self.shape(), |out| {
                    cpu::rms_norm(&x, &weight, epsilon, out);
                    Ok(())
                })?
                .cast(to)
            }
        }
    }

    /// Adds `x` to this tensor, and gives the norm of the sum as a type: this one's, or where this is of `f32` one of 16 bits.
    pub fn add_rms_norm(&mut self, x: &Tensor, weight: &Tensor, epsilon: f32, to: DType) -> Result<Tensor> {
        self.same("add_rms_norm", x)?;
        self.check_norm(weight)?;
        match self.device().clone() {
            Device::Gpu(gpu) => {
                let norm = Norm { weight: Some(weight.view()?), bias: None, epsilon: epsilon.into() };
                let shape = self.shape().to_vec();
                let (mut residual, x) = (self.view_mut()?, x.view()?);
                Tensor::on_gpu(&gpu, to, &shape, |out| gpu.kernels.add_rms_norm(&gpu.stream, &x, &mut residual, &norm, out))
            }
            Device::Cpu => {
                self.add_in_place(x)?;
                self.rms_norm_as(weight, epsilon, to)
            }
        }
    }

    /// `f(gate) · up` of rows that have the gates first and the other factors behind them, as a type: this one's, or where this is of
    /// `f32` one of 16 bits.
    pub fn glu(&self, glu: Glu, dtype: DType) -> Result<Tensor> {
        let Some((last, outer)) = self.shape().split_last().filter(|(last, _)| last.is_multiple_of(2)) else {
            return Err(shape("a gate", format!("the rows of {:?} are not two halves", self.shape())));
        };
        let to: Vec<usize> = outer.iter().copied().chain([last / 2]).collect();
        match self.device() {
            Device::Gpu(gpu) => {
                let view = self.view()?;
                Tensor::on_gpu(gpu, dtype, &to, |out| gpu.kernels.glu_halves(&gpu.stream, glu, &view, out))
            }
            Device::Cpu => {
                let x = self.host::<f32>()?;
                Tensor::on_cpu(&to, |out| {
                    let gate = match glu {
                        Glu::Silu => cpu::Gate::Silu,
                        Glu::Gelu => cpu::Gate::GeluTanh,
                        other => return Err(shape("a gate", format!("{other:?} is not there on the CPU"))),
                    };
                    cpu::glu_rows(gate, &x, last / 2, out);
                    Ok(())
                })?
                .cast(dtype)
            }
        }
    }

    /// Turns heads of (tokens, heads, elements).
    pub fn rope_in_place(&mut self, at: &RopeAt<'_>) -> Result<()> {
        let [_, heads, dim] = *self.shape() else {
            return Err(shape("rope", format!("{:?} are no tokens of heads", self.shape())));
        };
        at.check(self)?;
        let RopeAt { rope, positions, tables } = at;
        match (self.device().clone(), tables) {
            (Device::Gpu(gpu), _) => {
                let layout = *self.as_one()?.layout();
                Ok(gpu.kernels.rope_in_place(&gpu.stream, &at.on_gpu()?, &mut self.view_mut_of(layout)?)?)
            }
            (Device::Cpu, Some((cos, sin))) => {
                let pairs = match rope.pairs {
                    RopePairs::Neighbours => cpu::Pairs::Neighbours,
                    RopePairs::Halves => cpu::Pairs::Halves,
                };
                cpu::rope(pairs, self.host_mut::<f32>()?, heads * dim, heads, dim, cos, sin);
                Ok(())
            }
            (Device::Cpu, None) => Err(self.elsewhere("rope", positions)),
        }
    }

    /// Some rows of a matrix, by numbers of `u32`.
    pub fn rows(&self, numbers: &Tensor) -> Result<Tensor> {
        let [rows, columns] = *self.shape() else { return Err(shape("rows", format!("{:?} is no matrix", self.shape()))) };
        let to = [numbers.len(), columns];
        match self.device() {
            Device::Gpu(gpu) => {
                let (view, numbers) = (self.view()?, numbers.view()?);
                Tensor::on_gpu(gpu, self.dtype(), &to, |out| gpu.kernels.embedding(&gpu.stream, &view, &numbers, out))
            }
            Device::Cpu => {
                let (x, numbers) = (self.host::<f32>()?, numbers.host::<u32>()?);
                Tensor::on_cpu(&to, |out: &mut [f32]| {
                    for (number, out) in numbers.iter().zip(out.chunks_exact_mut(columns)) {
                        let at = *number as usize;
                        if at >= rows {
                            return Err(shape("rows", format!("there is no row {at} in {rows} rows")));
                        }
                        out.copy_from_slice(&x[at * columns..(at + 1) * columns]);
                    }
                    Ok(())
                })
            }
        }
    }

    fn same(&self, op: &'static str, other: &Tensor) -> Result<()> {
        if self.shape() != other.shape() {
            return Err(shape(op, format!("{:?} and {:?} are different shapes", self.shape(), other.shape())));
        }
        if self.device() != other.device() {
            return Err(self.elsewhere(op, other));
        }
        Ok(())
    }

    fn elsewhere(&self, op: &'static str, other: &Tensor) -> Error {
        let (found, expected) = (other.device().name().to_owned(), self.device().name().to_owned());
        Error::Device { op, what: "the other tensor", found, expected }
    }

    fn check_norm(&self, weight: &Tensor) -> Result<()> {
        match self.shape().last() {
            Some(last) if weight.shape() == [*last] => Ok(()),
            _ => Err(shape("a norm", format!("a weight of {:?} for {:?}", weight.shape(), self.shape()))),
        }
    }
}
