//! Quantized types and views of quantized weights.

use std::fmt;

use bytemuck::{Pod, Zeroable};
use half::f16;
use warpwave_gpu::{Arg, Slice, SliceMut};

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::view::{View, ViewMut};

/// A quantized type: blocks of low-bit weights with shared scales.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Quant {
    /// GGUF: blocks of 32, 4 bits, a scale.
    Q4_0,
    /// GGUF: blocks of 32, 4 bits, a scale and a minimum.
    Q4_1,
    /// GGUF: blocks of 32, 5 bits, a scale.
    Q5_0,
    /// GGUF: blocks of 32, 5 bits, a scale and a minimum.
    Q5_1,
    /// GGUF: blocks of 32, 8 bits, a scale.
    Q8_0,
    /// GGUF: blocks of 32, 8 bits, a scale, and the scaled sum.
    Q8_1,
    /// GGUF: blocks of 256, 2 bits, 4-bit scales and minima per 16.
    Q2K,
    /// GGUF: blocks of 256, 3 bits, 6-bit scales per 16.
    Q3K,
    /// GGUF: blocks of 256, 4 bits, 6-bit scales and minima per 32.
    Q4K,
    /// GGUF: blocks of 256, 5 bits, 6-bit scales and minima per 32.
    Q5K,
    /// GGUF: blocks of 256, 6 bits, 8-bit scales per 16.
    Q6K,
    /// GGUF: blocks of 256, 8 bits, an `f32` scale, and sums of 16.
    Q8K,
    /// GGUF: blocks of 32, 4 bits that select one of 16 fixed values, a scale.
    Iq4Nl,
    /// GGUF: blocks of 256, 4 bits that select one of 16 fixed values, 6-bit scales per 32.
    Iq4Xs,
    /// GGUF, OCP MX: blocks of 32 numbers of 4 bits (e2m1), a power of two (e8m0) as scale. 255, NaN in OCP's definition, is 2^128 here, as
    /// in GGUF.
    Mxfp4,
    /// 8 bits with an `f32` scale per row.
    Int8,
    /// 4 bits with an `f16` scale per group of 32, 64 or 128, and optional zero points (default 8). Of each 32 weights, byte *i* holds
    /// weight *i* in its low nibble and weight *i* + 16 in its high nibble.
    Int4(usize),
}

impl Quant {
    /// All types.
    pub const ALL: [Quant; 19] = [
        Quant::Q4_0,
        Quant::Q4_1,
        Quant::Q5_0,
        Quant::Q5_1,
        Quant::Q8_0,
        Quant::Q8_1,
        Quant::Q2K,
        Quant::Q3K,
        Quant::Q4K,
        Quant::Q5K,
        Quant::Q6K,
        Quant::Q8K,
        Quant::Iq4Nl,
        Quant::Iq4Xs,
        Quant::Mxfp4,
        Quant::Int8,
        Quant::Int4(32),
        Quant::Int4(64),
        Quant::Int4(128),
    ];

    /// The name: GGUF's in lower case, `int8`, `int4`.
    pub fn name(self) -> &'static str {
        match self {
            Quant::Int8 => "int8",
            Quant::Int4(_) => "int4",
            _ => self.cuda_name(),
        }
    }

    /// The name in the kernels.
    pub(crate) fn cuda_name(self) -> &'static str {
        match self {
            Quant::Q4_0 => "q4_0",
            Quant::Q4_1 => "q4_1",
            Quant::Q5_0 => "q5_0",
            Quant::Q5_1 => "q5_1",
            Quant::Q8_0 => "q8_0",
            Quant::Q8_1 => "q8_1",
            Quant::Q2K => "q2_k",
            Quant::Q3K => "q3_k",
            Quant::Q4K => "q4_k",
            Quant::Q5K => "q5_k",
            Quant::Q6K => "q6_k",
            Quant::Q8K => "q8_k",
            Quant::Iq4Nl => "iq4_nl",
            Quant::Iq4Xs => "iq4_xs",
            Quant::Mxfp4 => "mxfp4",
            Quant::Int8 => "int8_rows",
            Quant::Int4(_) => "int4_groups",
        }
    }

    /// The type id in GGUF files.
    pub fn gguf_type(self) -> Option<u32> {
        match self {
            Quant::Q4_0 => Some(2),
            Quant::Q4_1 => Some(3),
            Quant::Q5_0 => Some(6),
            Quant::Q5_1 => Some(7),
            Quant::Q8_0 => Some(8),
            Quant::Q8_1 => Some(9),
            Quant::Q2K => Some(10),
            Quant::Q3K => Some(11),
            Quant::Q4K => Some(12),
            Quant::Q5K => Some(13),
            Quant::Q6K => Some(14),
            Quant::Q8K => Some(15),
            Quant::Iq4Nl => Some(20),
            Quant::Iq4Xs => Some(23),
            Quant::Mxfp4 => Some(39),
            Quant::Int8 | Quant::Int4(_) => None,
        }
    }

    /// The type with this id in GGUF files.
    pub fn from_gguf(number: u32) -> Option<Quant> {
        Quant::ALL.into_iter().find(|quant| quant.gguf_type() == Some(number))
    }

    /// Weights per block; the number of columns is a multiple of it.
    pub fn block_size(self) -> usize {
        match self {
            Quant::Q2K | Quant::Q3K | Quant::Q4K | Quant::Q5K | Quant::Q6K | Quant::Q8K | Quant::Iq4Xs => 256,
            Quant::Int4(group) => group,
            _ => 32,
        }
    }

    /// Bytes per block.
    pub fn block_bytes(self) -> usize {
        match self {
            Quant::Q4_0 => 18,
            Quant::Q4_1 => 20,
            Quant::Q5_0 => 22,
            Quant::Q5_1 => 24,
            Quant::Q8_0 => 34,
            Quant::Q8_1 => 36,
            Quant::Q2K => 84,
            Quant::Q3K => 110,
            Quant::Q4K => 144,
            Quant::Q5K => 176,
            Quant::Q6K => 210,
            Quant::Q8K => 292,
            Quant::Iq4Nl => 18,
            Quant::Iq4Xs => 136,
            Quant::Mxfp4 => 17,
            Quant::Int8 => 32,
            Quant::Int4(group) => group / 2,
        }
    }

    /// Bytes per row, or `None` if `columns` is not a multiple of the block size.
    pub fn row_bytes(self, columns: usize) -> Option<usize> {
        let block = self.block_size();
        (block > 0 && columns.is_multiple_of(block)).then(|| columns / block * self.block_bytes())
    }

    /// The required alignment, as a type of that size.
    pub(crate) fn alignment(self) -> DType {
        match self {
            Quant::Mxfp4 => DType::U8,
            Quant::Q4_0 | Quant::Q5_0 | Quant::Q8_0 | Quant::Q3K | Quant::Q6K | Quant::Iq4Nl => DType::F16,
            _ => DType::U32,
        }
    }
}

impl fmt::Display for Quant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Contiguous rows of quantized weights to read.
#[derive(Debug, Clone, Copy)]
pub struct QuantView<'a> {
    pub(crate) quant: Quant,
    pub(crate) shape: [usize; 2],
    pub(crate) codes: View<'a>,
    pub(crate) scales: Option<View<'a>>,
    pub(crate) zeros: Option<View<'a>>,
    pub(crate) prefetchable: bool,
}

/// Contiguous rows of quantized weights to write.
#[derive(Debug)]
pub struct QuantViewMut<'a> {
    pub(crate) quant: Quant,
    pub(crate) shape: [usize; 2],
    pub(crate) codes: ViewMut<'a>,
    pub(crate) scales: Option<ViewMut<'a>>,
    pub(crate) zeros: Option<ViewMut<'a>>,
}

/// The layouts of codes, scales and zero points.
fn layouts(quant: Quant, address: u64, rows: usize, columns: usize) -> Result<[Layout; 3]> {
    let bad = |reason: String| Error::BadArgument { op: format!("view of {quant}"), reason };
    if let Quant::Int4(group) = quant
        && ![32, 64, 128].contains(&group)
    {
        return Err(bad(format!("expected groups of 32, 64 or 128, got {group}")));
    }
    let Some(bytes) = quant.row_bytes(columns) else {
        return Err(bad(format!("{columns} columns are not a multiple of the block size {}", quant.block_size())));
    };
    if rows.max(columns) >= 1 << 31 {
        return Err(bad(format!("{rows} rows or {columns} columns exceed the limit of 2^31")));
    }
    let dtype = quant.alignment();
    if rows * bytes > 0 && !address.is_multiple_of(dtype.size() as u64) {
        return Err(Error::Misaligned { address, dtype });
    }
    let groups = if quant == Quant::Int8 { 1 } else { columns / quant.block_size() };
    let groups = Layout::contiguous(&[rows, groups])?;
    Ok([Layout::contiguous(&[rows, bytes])?, groups, groups])
}

fn only_gguf(quant: Quant) -> Result<()> {
    match quant.gguf_type() {
        Some(_) => Ok(()),
        None => {
            let reason = "this type stores its scales separately; construct the view with `int8` or `int4`".to_owned();
            Err(Error::BadArgument { op: format!("view of {quant}"), reason })
        }
    }
}

macro_rules! views {
    ($view:ident, $inner:ident, $slice:ident $(, $more:ident)?) => {
        impl<'a> $view<'a> {
            /// Creates a view of GGUF blocks.
            pub fn new(quant: Quant, data: impl Into<$slice<'a, u8>>, rows: usize, columns: usize) -> Result<$view<'a>> {
                only_gguf(quant)?;
                let data = data.into();
                let [codes, ..] = layouts(quant, data.device_ptr(), rows, columns)?;
                let codes = $inner::of_bytes(data, DType::U8, codes)?;
                Ok($view { quant, shape: [rows, columns], codes, scales: None, zeros: None $(, $more: false)? })
            }

            /// Creates a view of bytes with a scale per row.
            pub fn int8(
                codes: impl Into<$slice<'a, u8>>,
                scales: impl Into<$slice<'a, f32>>,
                rows: usize,
                columns: usize,
            ) -> Result<$view<'a>> {
                let data = codes.into();
                let [codes, each, _] = layouts(Quant::Int8, data.device_ptr(), rows, columns)?;
                let codes = $inner::of_bytes(data, DType::U8, codes)?;
                let scales = Some($inner::new(scales.into(), each)?);
                Ok($view { quant: Quant::Int8, shape: [rows, columns], codes, scales, zeros: None $(, $more: false)? })
            }

            /// Creates a view of 4-bit weights with a scale per group, and zero points unless all are 8.
            pub fn int4(
                codes: impl Into<$slice<'a, u8>>,
                scales: impl Into<$slice<'a, f16>>,
                zeros: Option<$slice<'a, u8>>,
                group: usize,
                rows: usize,
                columns: usize,
            ) -> Result<$view<'a>> {
                let (quant, data) = (Quant::Int4(group), codes.into());
                let [codes, each, _] = layouts(quant, data.device_ptr(), rows, columns)?;
                let codes = $inner::of_bytes(data, DType::U8, codes)?;
                let scales = Some($inner::new(scales.into(), each)?);
                let zeros = zeros.map(|zeros| $inner::of_bytes(zeros, DType::U8, each)).transpose()?;
                Ok($view { quant, shape: [rows, columns], codes, scales, zeros $(, $more: false)? })
            }

            /// The type.
            pub fn quant(&self) -> Quant {
                self.quant
            }

            /// Rows and columns.
            pub fn shape(&self) -> [usize; 2] {
                self.shape
            }
        }
    };
}
views!(QuantView, View, Slice, prefetchable);
views!(QuantViewMut, ViewMut, SliceMut);

impl QuantViewMut<'_> {
    /// A read-only view of the same weights.
    pub fn as_view(&self) -> QuantView<'_> {
        let [scales, zeros] = [&self.scales, &self.zeros].map(|part| part.as_ref().map(ViewMut::as_view));
        QuantView { quant: self.quant, shape: self.shape, codes: self.codes.as_view(), scales, zeros, prefetchable: false }
    }
}

impl<'a> QuantView<'a> {
    /// Promises that no queued work writes this memory. Products may then prefetch it while previous work still runs; if the promise is
    /// broken, their results are wrong.
    pub fn prefetchable(self) -> QuantView<'a> {
        QuantView { prefetchable: true, ..self }
    }

    pub(crate) fn parts(&self) -> impl Iterator<Item = (&'static str, View<'a>)> + use<'a> {
        let optional = [("scales", self.scales), ("zeros", self.zeros)];
        std::iter::once(("weights", self.codes)).chain(optional.into_iter().filter_map(|(what, view)| Some((what, view?))))
    }

    pub(crate) fn row_bytes(&self) -> usize {
        self.shape[1] / self.quant.block_size() * self.quant.block_bytes()
    }

    /// Codes, scales and zero points as kernel arguments.
    pub(crate) fn args(&self) -> [Arg<'a>; 3] {
        let optional = |view: Option<View<'a>>| view.map_or(Arg::from(0u64), |view| Arg::from(view.start()));
        [Arg::from(self.codes.start()), optional(self.scales), optional(self.zeros)]
    }

    pub(crate) fn groups(&self) -> Groups {
        match self.quant {
            Quant::Int4(group) => Groups { shift: (group / 32).ilog2(), in_row: (self.shape[1] / group) as u32 },
            _ => Groups { shift: 0, in_row: 1 },
        }
    }
}

/// Parameters of the kernels.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Groups {
    pub shift: u32,
    pub in_row: u32,
}
