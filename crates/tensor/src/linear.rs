//! Weight matrices, plain or quantized, and linear layers.

use std::sync::Arc;

use warpwave_kernels::{DType, Quant};

use crate::backend::{OperandMut, Storage, WeightFormat, Weights};
use crate::cpu::{Interleaved, Precision};
use crate::device::Device;
use crate::error::{Result, shape, wrong_device};
use crate::nn::check_ids;
use crate::ops::check_float;
use crate::tensor::Tensor;

const OP: &str = "linear";

/// A weight matrix of (rows, columns): rows are output features.
#[derive(Clone)]
pub struct Matrix {
    rows: usize,
    columns: usize,
    format: WeightFormat,
    /// Plain weights; the storage alone where they are quantized.
    data: Data,
    device: Device,
}

#[derive(Clone)]
enum Data {
    Plain(Tensor),
    Quant(Arc<Storage>),
}

impl std::fmt::Debug for Matrix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}[{}, {}] on {}", self.format, self.rows, self.columns, self.device)
    }
}

impl Matrix {
    /// Creates a matrix of plain weights.
    pub fn plain(weights: Tensor) -> Result<Matrix> {
        let [rows, columns] = *weights.shape() else {
            return Err(shape("matrix", format!("expected (rows, columns), got {:?}", weights.shape())));
        };
        let weights = if weights.layout().is_contiguous() && weights.layout().offset() == 0 { weights } else { weights.copied()? };
        let (format, device) = (WeightFormat::Plain(weights.dtype()), weights.device().clone());
        Ok(Matrix { rows, columns, format, data: Data::Plain(weights), device })
    }

    /// Creates a matrix of quantized weights from GGUF blocks, row by row.
    pub fn quantized(quant: Quant, blocks: &[u8], rows: usize, columns: usize, device: &Device) -> Result<Matrix> {
        let bytes = quant.row_bytes(columns).and_then(|bytes| bytes.checked_mul(rows));
        if quant.gguf_type().is_none() || bytes != Some(blocks.len()) {
            let reason = match bytes.filter(|_| quant.gguf_type().is_some()) {
                Some(bytes) => format!("expected {bytes} bytes for {rows} rows of {columns} columns of {quant}, got {}", blocks.len()),
                None => format!("{rows} rows of {columns} columns cannot be stored as GGUF blocks of {quant}"),
            };
            return Err(shape("matrix", reason));
        }
        Matrix::stored(quant, blocks, rows, columns, device)
    }

    /// Creates a matrix of quantized weights on a meta device, which needs no blocks.
    pub fn quantized_meta(quant: Quant, rows: usize, columns: usize, device: &Device) -> Result<Matrix> {
        if !matches!(device, Device::Meta(_)) {
            return Err(wrong_device("matrix", "the matrix", device.name(), "meta"));
        }
        Matrix::stored(quant, &[], rows, columns, device)
    }

    fn stored(quant: Quant, blocks: &[u8], rows: usize, columns: usize, device: &Device) -> Result<Matrix> {
        let data = Data::Quant(Arc::new(device.backend().quantized(quant, rows, columns, blocks)?));
        Ok(Matrix { rows, columns, format: WeightFormat::Quant(quant), data, device: device.clone() })
    }

    /// Returns the number of rows: output features.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the number of columns: input features.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Returns the device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the bytes of the weights in memory.
    pub fn bytes(&self) -> usize {
        match self.format {
            WeightFormat::Plain(dtype) => self.rows * self.columns * dtype.size(),
            WeightFormat::Quant(quant) => {
                let rows = if self.device.is_cpu() { Interleaved::padded_rows(self.rows) } else { self.rows };
                rows * quant.row_bytes(self.columns).unwrap_or(0)
            }
        }
    }

    /// Returns the type of plain weights.
    pub fn dtype(&self) -> Option<DType> {
        match self.format {
            WeightFormat::Plain(dtype) => Some(dtype),
            WeightFormat::Quant(_) => None,
        }
    }

    pub(crate) fn weights(&self) -> Weights<'_> {
        let storage = match &self.data {
            Data::Plain(weights) => weights.operand().storage,
            Data::Quant(storage) => storage,
        };
        Weights { storage, format: self.format, rows: self.rows, columns: self.columns }
    }

    /// Returns the rows of token ids as type `dtype`. Out-of-range ids read zeros.
    pub fn embedding(&self, ids: &Tensor, dtype: DType) -> Result<Tensor> {
        let op = "embedding";
        check_ids(op, ids)?;
        check_float(op, "the result", dtype)?;
        if ids.device() != &self.device {
            return Err(wrong_device(op, "the ids", ids.device().name(), self.device.name()));
        }
        Tensor::build(&self.device, dtype, &[ids.len(), self.columns], |backend, out| {
            backend.embedding(&self.weights(), &ids.operand(), out)
        })
    }
}

/// A linear layer: matrices of the same columns whose outputs are concatenated, and a bias.
#[derive(Debug, Clone)]
pub struct Linear {
    parts: Vec<Matrix>,
    bias: Option<Tensor>,
    rows: usize,
}

impl Linear {
    /// Creates a layer. The bias covers the outputs of all matrices.
    pub fn new(parts: Vec<Matrix>, bias: Option<Tensor>) -> Result<Linear> {
        let Some(first) = parts.first() else { return Err(shape(OP, "Linear needs at least one weight matrix")) };
        for part in &parts {
            if part.columns != first.columns {
                let reason = format!("weight matrices must have the same number of columns, got {} and {}", first.columns, part.columns);
                return Err(shape(OP, reason));
            }
            if part.device != first.device {
                return Err(wrong_device(OP, "a weight matrix", part.device.name(), first.device.name()));
            }
        }
        let rows = parts.iter().map(|part| part.rows).sum();
        if let Some(bias) = &bias {
            if bias.shape() != [rows] {
                return Err(shape(OP, format!("expected a bias of shape [{rows}], got {:?}", bias.shape())));
            }
            if bias.device() != &first.device {
                return Err(wrong_device(OP, "the bias", bias.device().name(), first.device.name()));
            }
        }
        Ok(Linear { parts, bias, rows })
    }

    /// Returns the number of output features.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the bytes of the weights in memory.
    pub fn bytes(&self) -> usize {
        self.parts.iter().map(Matrix::bytes).sum()
    }

    /// Returns `x · weightsᵀ + bias` of (vectors, columns) as (vectors, rows) of type `to`.
    pub fn forward(&self, x: &Tensor, to: DType, precision: Precision) -> Result<Tensor> {
        let (columns, device) = (self.parts[0].columns, &self.parts[0].device);
        let [vectors, found] = *x.shape() else {
            return Err(shape(OP, format!("expected (vectors, columns), got {:?}", x.shape())));
        };
        if found != columns {
            return Err(shape(OP, format!("expected vectors of {columns} elements, got {found}")));
        }
        if x.device() != device {
            return Err(wrong_device(OP, "the input", x.device().name(), device.name()));
        }
        check_float(OP, "the input", x.dtype())?;
        check_float(OP, "the result", to)?;
        Tensor::build(device, to, &[vectors, self.rows], |backend, out| {
            let mut start = 0;
            for part in &self.parts {
                let bias = self.bias.as_ref().map(|bias| bias.narrow(0, start, part.rows)?.cast(to)?.broadcast_to(&[vectors, part.rows]));
                let bias = bias.transpose()?;
                let bias = bias.as_ref().map(Tensor::operand);
                let layout = out.layout.narrow(1, start, part.rows)?;
                let mut out = OperandMut::new(out.storage, out.dtype, layout);
                backend.linear(&part.weights(), &x.operand(), bias.as_ref(), &mut out, precision)?;
                start += part.rows;
            }
            Ok(())
        })
    }
}
