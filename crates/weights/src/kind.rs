//! Element types, and tensors of a file.

use std::fmt;

use warpwave_kernels::{DType, Quant};

/// The element type of a tensor: plain or block-quantized.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Individual elements.
    Plain(DType),
    /// Blocks of quantized elements.
    Quant(Quant),
}

/// GGUF's type numbers of plain types.
const PLAIN: [(u32, DType); 7] =
    [(0, DType::F32), (1, DType::F16), (25, DType::I16), (26, DType::I32), (27, DType::I64), (28, DType::F64), (30, DType::Bf16)];

/// GGUF's unsupported types, for error messages.
const UNSUPPORTED: [(u32, &str); 13] = [
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (24, "I8"),
    (29, "IQ1_M"),
    (34, "TQ1_0"),
    (35, "TQ2_0"),
    (40, "NVFP4"),
    (41, "Q1_0"),
    (42, "Q2_0"),
];

impl Kind {
    /// Returns the type of a GGUF type number, or the reason why it is unsupported.
    pub fn from_gguf(number: u32) -> Result<Kind, String> {
        let plain = PLAIN.into_iter().find(|(known, _)| *known == number).map(|(_, dtype)| Kind::Plain(dtype));
        plain.or_else(|| Quant::from_gguf(number).map(Kind::Quant)).ok_or_else(|| {
            match UNSUPPORTED.into_iter().find(|(known, _)| *known == number) {
                Some((_, name)) => {
                    format!("unsupported type {number} ({name}); use a file with f32, f16, bf16, q4_0 to q8_0, q2_k to q6_k, iq4_nl, iq4_xs or mxfp4")
                }
                None => format!("unknown type {number}"),
            }
        })
    }

    /// Returns the GGUF type number.
    pub fn gguf_type(self) -> Option<u32> {
        match self {
            Kind::Plain(dtype) => PLAIN.into_iter().find(|(_, known)| *known == dtype).map(|(number, _)| number),
            Kind::Quant(quant) => quant.gguf_type(),
        }
    }

    /// Returns elements and bytes of a block.
    pub fn block(self) -> (usize, usize) {
        match self {
            Kind::Plain(dtype) => (1, dtype.size()),
            Kind::Quant(quant) => (quant.block_size(), quant.block_bytes()),
        }
    }

    /// Returns the bytes of a tensor of this shape, outermost dimension first, or the reason why the shape is invalid.
    pub fn bytes(self, shape: &[usize]) -> Result<usize, String> {
        let (block, bytes) = self.block();
        let columns = shape.last().copied().unwrap_or(1);
        if block == 0 || !columns.is_multiple_of(block) {
            return Err(format!("row length {columns} is not a multiple of the {self} block size {block}"));
        }
        let row = (columns / block).checked_mul(bytes);
        let rows = shape.split_last().map_or(&[][..], |(_, rows)| rows);
        let total = rows.iter().fold(row, |product, dim| product?.checked_mul(*dim));
        // With a dimension of 0 the other dimensions must still multiply without overflow.
        let fits = shape.iter().try_fold(1usize, |product, dim| product.checked_mul((*dim).max(1)));
        total.zip(fits).map(|(total, _)| total).ok_or_else(|| format!("the size of shape {shape:?} overflows"))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Plain(dtype) => dtype.fmt(f),
            Kind::Quant(quant) => quant.fmt(f),
        }
    }
}

/// Name, type and shape of a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// The name.
    pub name: String,
    /// The element type.
    pub kind: Kind,
    /// The dimensions, outermost first; the last is contiguous.
    pub shape: Vec<usize>,
}

/// A tensor of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tensor<'a> {
    /// The name.
    pub name: &'a str,
    /// The element type.
    pub kind: Kind,
    /// The dimensions, outermost first; the last is contiguous.
    pub shape: &'a [usize],
    /// The elements.
    pub bytes: &'a [u8],
}
