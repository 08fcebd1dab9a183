//! Weights that vectors are multiplied with: plain or quantised.

use std::sync::Arc;

use warpwave_kernels::{Activations, Binary, DType, Matmul, Quant, QuantView, View, ViewMut};

use crate::cpu::{self, Precision};
use crate::device::{Device, Gpu};
use crate::error::{Error, Result, shape};
use crate::tensor::Tensor;

const OP: &str = "a product";

/// Vectors from which on a GPU multiplies faster with the weights as `f16` in matrix units.
const MANY: usize = 32;
/// What vectors are multiplied with before they become `f16`, whose numbers end at 65504: models have larger ones.
const SHRINK: f64 = 1.0 / 16.0;

/// A matrix of weights, a row for each element of the result.
#[derive(Debug, Clone)]
pub struct Matrix {
    rows: usize,
    columns: usize,
    data: Data,
}

#[derive(Debug, Clone)]
enum Data {
    Plain(Tensor),
    /// Blocks in bytes on a GPU, row by row.
    Quant(Quant, Tensor),
    /// Blocks on the CPU, arranged for its products.
    Packed(Arc<cpu::Packed>),
}

impl Matrix {
    /// Plain weights, of rows and columns.
    pub fn plain(weights: Tensor) -> Result<Matrix> {
        let [rows, columns] = *weights.shape() else {
            return Err(shape("a matrix", format!("{:?} is no shape of rows and columns", weights.shape())));
        };
        Ok(Matrix { rows, columns, data: Data::Plain(weights.contiguous()?) })
    }

    /// Quantised weights in blocks of GGUF's types.
    pub fn quantised(quant: Quant, blocks: &[u8], rows: usize, columns: usize, device: &Device) -> Result<Matrix> {
        let bytes = quant.row_bytes(columns).and_then(|bytes| bytes.checked_mul(rows));
        if quant.gguf_type().is_none() || bytes != Some(blocks.len()) {
            return Err(shape("a matrix", format!("{} bytes are no {rows} rows of {columns} columns of {quant}", blocks.len())));
        }
        let data = match device {
            Device::Cpu => Data::Packed(Arc::new(cpu::Packed::new(quant, rows, columns, blocks))),
            Device::Gpu(_) => Data::Quant(quant, Tensor::from_bytes(blocks, DType::U8, &[blocks.len()], device)?),
        };
        Ok(Matrix { rows, columns, data })
    }

    /// Rows: elements of a result.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns: elements of a vector.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Where it is.
    pub fn device(&self) -> &Device {
        match &self.data {
            Data::Plain(weights) | Data::Quant(_, weights) => weights.device(),
            Data::Packed(_) => &Device::Cpu,
        }
    }

    /// Bytes of its memory.
    pub fn bytes(&self) -> usize {
        match &self.data {
            Data::Plain(weights) | Data::Quant(_, weights) => weights.len() * weights.dtype().size(),
            Data::Packed(packed) => packed.size(),
        }
    }

    /// The type of plain weights.
    pub fn dtype(&self) -> Option<DType> {
        match &self.data {
            Data::Plain(weights) => Some(weights.dtype()),
            Data::Quant(..) | Data::Packed(_) => None,
        }
    }

    /// The rows of these numbers, of `u32`, as a type that models compute with: what tokens stand for.
    pub fn embedding(&self, ids: &Tensor, dtype: DType) -> Result<Tensor> {
        let to = [ids.len(), self.columns];
        match (self.device(), &self.data) {
            (Device::Cpu, _) | (_, Data::Packed(_)) => {
                let ids = ids.host::<u32>()?;
                if let Some(id) = ids.iter().find(|id| **id as usize >= self.rows) {
                    return Err(shape("an embedding", format!("there is no row {id} in {} rows", self.rows)));
                }
                Tensor::on_cpu(&to, |out: &mut [f32]| {
                    cpu::rows(self.cpu()?, self.columns, &ids, out);
                    Ok(())
                })
            }
            (Device::Gpu(gpu), Data::Plain(weights)) => {
                let (table, ids) = (weights.view()?, ids.view()?);
                let rows = Tensor::on_gpu(gpu, weights.dtype(), &to, |out| gpu.kernels.embedding(&gpu.stream, &table, &ids, out))?;
                rows.cast(dtype)
            }
            (Device::Gpu(gpu), Data::Quant(quant, blocks)) => {
                // The blocks of the rows first, then their numbers.
                let bytes = blocks.len() / self.rows.max(1);
                let table = blocks.reshape(&[self.rows, bytes])?;
                let (table, numbers) = (table.view()?, ids.view()?);
                let rows =
                    Tensor::on_gpu(gpu, DType::U8, &[ids.len(), bytes], |out| gpu.kernels.embedding(&gpu.stream, &table, &numbers, out))?;
                let rows = QuantView::new(*quant, rows.gpu_memory()?, ids.len(), self.columns)?;
                Tensor::on_gpu(gpu, dtype, &to, |out| gpu.kernels.dequantise(&gpu.stream, &rows, out))
            }
        }
    }
}

/// One product after the other: matrices of the same columns, whose results lie side by side.
#[derive(Debug, Clone)]
pub struct Linear {
    parts: Vec<Matrix>,
    bias: Option<Tensor>,
    rows: usize,
}

impl Linear {
    /// Products with each matrix, and what is added to them.
    pub fn new(parts: Vec<Matrix>, bias: Option<Tensor>) -> Result<Linear> {
        let Some(first) = parts.first() else { return Err(shape(OP, "of no matrices there is no product")) };
        if let Some(other) = parts.iter().find(|part| part.columns != first.columns) {
            return Err(shape(OP, format!("one matrix has {} columns, another {}", first.columns, other.columns)));
        }
        let rows = parts.iter().map(|part| part.rows).sum();
        if let Some(bias) = &bias
            && bias.shape() != [rows]
        {
            return Err(shape(OP, format!("a bias of {:?} for {rows} results", bias.shape())));
        }
        Ok(Linear { parts, bias, rows })
    }

    /// Elements of a result.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes of the weights.
    pub fn bytes(&self) -> usize {
        self.parts.iter().map(Matrix::bytes).sum()
    }

    /// The products of vectors of (vectors, columns) with the rows, as (vectors, rows) of the type `to`; on a CPU `f32`.
    pub fn forward(&self, x: &Tensor, to: DType, precision: Precision) -> Result<Tensor> {
        let columns = self.parts[0].columns;
        let [vectors, found] = *x.shape() else { return Err(shape(OP, format!("{:?} are no vectors", x.shape()))) };
        if found != columns {
            return Err(shape(OP, format!("vectors of {found} elements for {columns} columns")));
        }
        match x.device() {
            Device::Cpu => self.forward_cpu(x, vectors, precision),
            Device::Gpu(gpu) => {
                let mut out = Tensor::on_gpu(gpu, to, &[vectors, self.rows], |_| Ok(()))?;
                let mut at = 0;
                for part in &self.parts {
                    let bias = self.bias.as_ref().map(|bias| bias.narrow(0, at, part.rows)?.cast(to)?.broadcast_to(&[vectors, part.rows]));
                    let bias = bias.transpose()?;
                    let bias = bias.as_ref().map(Tensor::view).transpose()?;
                    let layout = out.layout().narrow(1, at, part.rows)?;
                    part.multiply(gpu, x, bias, &mut out.view_mut_of(layout)?, precision)?;
                    at += part.rows;
                }
                Ok(out)
            }
        }
    }

    fn forward_cpu(&self, x: &Tensor, vectors: usize, precision: Precision) -> Result<Tensor> {
        let x = x.host::<f32>()?;
        let columns = self.parts[0].columns;
        let mut out = Tensor::on_cpu(&[vectors, self.rows], |out: &mut [f32]| {
            if let [part] = &self.parts[..] {
                cpu::matmul(part.cpu()?, part.rows, columns, &x, vectors, out, precision);
                return Ok(());
            }
            let mut at = 0;
            for part in &self.parts {
                let mut beside = vec![0.0; vectors * part.rows];
                cpu::matmul(part.cpu()?, part.rows, columns, &x, vectors, &mut beside, precision);
                for (out, beside) in out.chunks_exact_mut(self.rows).zip(beside.chunks_exact(part.rows)) {
                    out[at..at + part.rows].copy_from_slice(beside);
                }
                at += part.rows;
            }
            Ok(())
        })?;
        if let Some(bias) = &self.bias {
            let bias = bias.host::<f32>()?;
            cpu::add(out.host_mut::<f32>()?, &bias);
        }
        Ok(out)
    }
}

impl Matrix {
    fn cpu(&self) -> Result<cpu::Matrix<'_>> {
        Ok(match &self.data {
            Data::Packed(packed) => cpu::Matrix::Packed(packed),
            Data::Quant(quant, blocks) => cpu::Matrix::Quant(*quant, blocks.host_slice()?),
            Data::Plain(weights) => match weights.dtype() {
                DType::F32 => cpu::Matrix::F32(weights.host_slice()?),
                DType::F16 => cpu::Matrix::F16(weights.host_slice()?),
                DType::Bf16 => cpu::Matrix::Bf16(weights.host_slice()?),
                found => return Err(Error::Type { op: OP, what: "the matrix", found, expected: "f32, f16, bf16" }),
            },
        })
    }

    /// Queues the products of vectors with the rows.
    fn multiply(&self, gpu: &Arc<Gpu>, x: &Tensor, bias: Option<View<'_>>, out: &mut ViewMut<'_>, precision: Precision) -> Result<()> {
        match &self.data {
            Data::Packed(_) => {
                let (found, expected) = ("cpu".to_owned(), x.device().name().to_owned());
                Err(Error::Device { op: OP, what: "the matrix", found, expected })
            }
            Data::Plain(weights) => {
                // What may not fit f16 is made smaller before, and its products larger.
                let shrink = (x.dtype(), weights.dtype()) == (DType::F32, DType::F16);
                let x = if shrink { x.affine(SHRINK, 0.0)?.cast(DType::F16)? } else { x.cast(weights.dtype())? };
                let columns = weights.transpose(0, 1)?;
                let matmul = bias.map_or(Matmul::new(), |bias| Matmul::new().bias(bias));
                let matmul = if shrink { matmul.scaled(1.0 / SHRINK, 0.0) } else { matmul };
                Ok(gpu.kernels.matmul(&gpu.stream, &matmul, &x.view()?, &columns.view()?, out)?)
            }
            Data::Quant(quant, blocks) => {
                let weights = QuantView::new(*quant, blocks.gpu_memory()?, self.rows, self.columns)?.settled();
                let vectors = x.size(0);
                if precision == Precision::Fast && vectors >= MANY {
                    let (kernels, stream) = (&gpu.kernels, &gpu.stream);
                    let plain =
                        Tensor::on_gpu(gpu, DType::F16, &[self.rows, self.columns], |out| kernels.dequantise(stream, &weights, out))?;
                    let x = x.affine(SHRINK, 0.0)?.cast(DType::F16)?;
                    let matmul = Matmul::new().scaled(1.0 / SHRINK, 0.0);
                    kernels.matmul(stream, &matmul, &x.view()?, &plain.transpose(0, 1)?.view()?, out)?;
                } else {
                    let activations = if precision == Precision::Fast { Activations::Rounded } else { Activations::Exact };
                    gpu.kernels.quant_matmul(&gpu.stream, &weights, &x.view()?, out, activations)?;
                }
                match bias {
                    Some(bias) => Ok(gpu.kernels.binary_in_place(&gpu.stream, Binary::Add, out, &bias)?),
                    None => Ok(()),
                }
            }
        }
    }
}
