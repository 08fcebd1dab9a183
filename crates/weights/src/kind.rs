//! Types of tensors, and tensors as they lie in a file.

use std::fmt;

use warpwave_kernels::{DType, Quant};

/// The type of a tensor's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Elements one by one.
    Plain(DType),
    /// Elements in blocks.
    Quant(Quant),
}

/// Numbers of GGUF's types that are elements one by one.
const PLAIN: [(u32, DType); 7] =
    [(0, DType::F32), (1, DType::F16), (25, DType::I16), (26, DType::I32), (27, DType::I64), (28, DType::F64), (30, DType::Bf16)];

/// Names of GGUF's types that are not read, for the error's sake.
const UNREAD: [(u32, &str); 19] = [
    (10, "Q2_K"),
    (11, "Q3_K"),
    (15, "Q8_K"),
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (20, "IQ4_NL"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (23, "IQ4_XS"),
    (24, "I8"),
    (29, "IQ1_M"),
    (34, "TQ1_0"),
    (35, "TQ2_0"),
    (39, "MXFP4"),
    (40, "NVFP4"),
    (41, "Q1_0"),
    (42, "Q2_0"),
];

impl Kind {
    /// The type of this number in GGUF files; otherwise what to say about it.
    pub fn from_gguf(number: u32) -> Result<Kind, String> {
        let plain = PLAIN.into_iter().find(|(known, _)| *known == number).map(|(_, dtype)| Kind::Plain(dtype));
        plain.or_else(|| Quant::from_gguf(number).map(Kind::Quant)).ok_or_else(|| {
            match UNREAD.into_iter().find(|(known, _)| *known == number) {
                Some((_, name)) => format!("type {number} ({name}) is not read; take a file of f32, f16, bf16, q4_0 … q8_0 or q4_k … q6_k"),
                None => format!("type {number} is none of GGUF's"),
            }
        })
    }

    /// Its number in GGUF files.
    pub fn gguf_type(self) -> Option<u32> {
        match self {
            Kind::Plain(dtype) => PLAIN.into_iter().find(|(_, known)| *known == dtype).map(|(number, _)| number),
            Kind::Quant(quant) => quant.gguf_type(),
        }
    }

    /// Elements of a block, and its bytes.
    pub fn block(self) -> (usize, usize) {
        match self {
            Kind::Plain(dtype) => (1, dtype.size()),
            Kind::Quant(quant) => (quant.block_size(), quant.block_bytes()),
        }
    }

    /// Bytes of a tensor of this shape, outermost dimension first; otherwise why there is none.
    pub fn bytes(self, shape: &[usize]) -> Result<usize, String> {
        let (block, bytes) = self.block();
        let columns = shape.last().copied().unwrap_or(1);
        if block == 0 || !columns.is_multiple_of(block) {
            return Err(format!("rows of {columns} elements are no whole blocks of {block} of {self}"));
        }
        let row = (columns / block).checked_mul(bytes);
        let rows = shape.split_last().map_or(&[][..], |(_, rows)| rows);
        let total = rows.iter().fold(row, |product, dim| product?.checked_mul(*dim));
        // With a dimension of 0 the others could still be beyond any memory; products of them have to fit wherever they are made.
        let fits = shape.iter().try_fold(1usize, |product, dim| product.checked_mul((*dim).max(1)));
        total.zip(fits).map(|(total, _)| total).ok_or_else(|| format!("{shape:?} elements are too many for any memory"))
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

/// A tensor without its elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// Its name.
    pub name: String,
    /// The type of its elements.
    pub kind: Kind,
    /// Its dimensions, outermost first: elements of the last lie side by side.
    pub shape: Vec<usize>,
}

/// A tensor as it lies in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tensor<'a> {
    /// Its name.
    pub name: &'a str,
    /// The type of its elements.
    pub kind: Kind,
    /// Its dimensions, outermost first: elements of the last lie side by side.
    pub shape: &'a [usize],
    /// Its elements.
    pub bytes: &'a [u8],
}
