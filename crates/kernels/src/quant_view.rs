//! Quantised types, and device memory of them.

use std::fmt;

use bytemuck::{Pod, Zeroable};
use half::f16;
use warpwave_gpu::{Arg, Slice, SliceMut};

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::view::{View, ViewMut};

/// A quantised type: weights of few bits in blocks that share scales.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Quant {
    /// GGUF: 32 of 4 bits, a scale.
    Q4_0,
    /// GGUF: 32 of 4 bits, a scale and a minimum.
    Q4_1,
    /// GGUF: 32 of 5 bits, a scale.
    Q5_0,
    /// GGUF: 32 of 5 bits, a scale and a minimum.
    Q5_1,
    /// GGUF: 32 of 8 bits, a scale.
    Q8_0,
    /// GGUF: 32 of 8 bits, a scale, and that times their sum.
    Q8_1,
    /// GGUF: 256 of 4 bits, scales and minima of 6 bits for each 32.
    Q4K,
    /// GGUF: 256 of 5 bits, scales and minima of 6 bits for each 32.
    Q5K,
    /// GGUF: 256 of 6 bits, scales of 8 bits for each 16.
    Q6K,
    /// Bytes with an `f32` scale of each row.
    Int8,
    /// 4 bits with an `f16` scale of each group of 32, 64 or 128, and, if wanted, the code that means 0 (otherwise 8). Of each 32, byte
    /// *i* has number *i* in its lower half and number *i* + 16 in its upper.
    Int4(usize),
}

impl Quant {
    /// All of them.
    pub const ALL: [Quant; 13] = [
        Quant::Q4_0,
        Quant::Q4_1,
        Quant::Q5_0,
        Quant::Q5_1,
        Quant::Q8_0,
        Quant::Q8_1,
        Quant::Q4K,
        Quant::Q5K,
        Quant::Q6K,
        Quant::Int8,
        Quant::Int4(32),
        Quant::Int4(64),
        Quant::Int4(128),
    ];

    /// Its name: GGUF's in small letters, `int8`, `int4`.
    pub fn name(self) -> &'static str {
        match self {
            Quant::Int8 => "int8",
            Quant::Int4(_) => "int4",
            _ => self.cuda_name(),
        }
    }

    /// Its name in the kernels.
    pub(crate) fn cuda_name(self) -> &'static str {
        match self {
            Quant::Q4_0 => "q4_0",
            Quant::Q4_1 => "q4_1",
            Quant::Q5_0 => "q5_0",
            Quant::Q5_1 => "q5_1",
            Quant::Q8_0 => "q8_0",
            Quant::Q8_1 => "q8_1",
            Quant::Q4K => "q4_k",
            Quant::Q5K => "q5_k",
            Quant::Q6K => "q6_k",
            Quant::Int8 => "int8_rows",
            Quant::Int4(_) => "int4_groups",
        }
    }

    /// Its number in GGUF files.
    pub fn gguf_type(self) -> Option<u32> {
        match self {
            Quant::Q4_0 => Some(2),
            Quant::Q4_1 => Some(3),
            Quant::Q5_0 => Some(6),
            Quant::Q5_1 => Some(7),
            Quant::Q8_0 => Some(8),
            Quant::Q8_1 => Some(9),
            Quant::Q4K => Some(12),
            Quant::Q5K => Some(13),
            Quant::Q6K => Some(14),
            Quant::Int8 | Quant::Int4(_) => None,
        }
    }

    /// The type of this number in GGUF files.
    pub fn from_gguf(number: u32) -> Option<Quant> {
        Quant::ALL.into_iter().find(|quant| quant.gguf_type() == Some(number))
    }

    /// Weights of a block: columns are a multiple of them.
    pub fn block_size(self) -> usize {
        match self {
            Quant::Q4K | Quant::Q5K | Quant::Q6K => 256,
            Quant::Int4(group) => group,
            _ => 32,
        }
    }

    /// Bytes of a block.
    pub fn block_bytes(self) -> usize {
        match self {
            Quant::Q4_0 => 18,
            Quant::Q4_1 => 20,
            Quant::Q5_0 => 22,
            Quant::Q5_1 => 24,
            Quant::Q8_0 => 34,
            Quant::Q8_1 => 36,
            Quant::Q4K => 144,
            Quant::Q5K => 176,
            Quant::Q6K => 210,
            Quant::Int8 => 32,
            Quant::Int4(group) => group / 2,
        }
    }

    /// Bytes of a row, if it is of whole blocks.
    pub fn row_bytes(self, columns: usize) -> Option<usize> {
        let block = self.block_size();
        (block > 0 && columns.is_multiple_of(block)).then(|| columns / block * self.block_bytes())
    }

    /// What an address must be a multiple of, as the type of such numbers.
    pub(crate) fn alignment(self) -> DType {
        match self {
            Quant::Q4_0 | Quant::Q5_0 | Quant::Q8_0 | Quant::Q6K => DType::F16,
            _ => DType::U32,
        }
    }
}

impl fmt::Display for Quant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Rows of quantised weights to read, one behind the other.
#[derive(Debug, Clone, Copy)]
pub struct QuantView<'a> {
    pub(crate) quant: Quant,
    pub(crate) shape: [usize; 2],
    pub(crate) codes: View<'a>,
    pub(crate) scales: Option<View<'a>>,
    pub(crate) zeros: Option<View<'a>>,
    pub(crate) settled: bool,
}

/// Rows of quantised weights to write, one behind the other.
#[derive(Debug)]
pub struct QuantViewMut<'a> {
    pub(crate) quant: Quant,
    pub(crate) shape: [usize; 2],
    pub(crate) codes: ViewMut<'a>,
    pub(crate) scales: Option<ViewMut<'a>>,
    pub(crate) zeros: Option<ViewMut<'a>>,
}

/// The layouts of codes, scales and zeros.
fn layouts(quant: Quant, address: u64, rows: usize, columns: usize) -> Result<[Layout; 3]> {
    let bad = |reason: String| Error::BadArgument { op: format!("a view of {quant}"), reason };
    if let Quant::Int4(group) = quant
        && ![32, 64, 128].contains(&group)
    {
        return Err(bad(format!("groups are of 32, 64 or 128, not {group}")));
    }
    let Some(bytes) = quant.row_bytes(columns) else {
        return Err(bad(format!("{columns} columns are no whole blocks of {}", quant.block_size())));
    };
    if rows.max(columns) >= 1 << 31 {
        return Err(bad(format!("{rows} rows of {columns} columns are more than 2³¹")));
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
        None => Err(Error::BadArgument { op: format!("a view of {quant}"), reason: "its scales are not in its blocks".to_owned() }),
    }
}

macro_rules! views {
    ($view:ident, $inner:ident, $slice:ident $(, $more:ident)?) => {
        impl<'a> $view<'a> {
            /// Blocks of GGUF's types.
            pub fn new(quant: Quant, data: impl Into<$slice<'a, u8>>, rows: usize, columns: usize) -> Result<$view<'a>> {
                only_gguf(quant)?;
                let data = data.into();
                let [codes, ..] = layouts(quant, data.device_ptr(), rows, columns)?;
                let codes = $inner::of_bytes(data, DType::U8, codes)?;
                Ok($view { quant, shape: [rows, columns], codes, scales: None, zeros: None $(, $more: false)? })
            }

            /// Bytes with a scale of each row.
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

            /// 4 bits with a scale of each group, and the code that means 0 unless that is 8.
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
views!(QuantView, View, Slice, settled);
views!(QuantViewMut, ViewMut, SliceMut);

impl QuantViewMut<'_> {
    /// The same, to read.
    pub fn as_view(&self) -> QuantView<'_> {
        let [scales, zeros] = [&self.scales, &self.zeros].map(|part| part.as_ref().map(ViewMut::as_view));
        QuantView { quant: self.quant, shape: self.shape, codes: self.codes.as_view(), scales, zeros, settled: false }
    }
}

impl<'a> QuantView<'a> {
    /// The same with a promise: nothing that is queued writes this memory. Products then read it before their turn comes, while the work
    /// before them still runs. If the promise is not kept they are wrong.
    pub fn settled(self) -> QuantView<'a> {
        QuantView { settled: true, ..self }
    }

    pub(crate) fn parts(&self) -> impl Iterator<Item = (&'static str, View<'a>)> + use<'a> {
        let beside = [("the scales", self.scales), ("the zeros", self.zeros)];
        std::iter::once(("the quantised weights", self.codes)).chain(beside.into_iter().filter_map(|(what, view)| Some((what, view?))))
    }

    pub(crate) fn row_bytes(&self) -> usize {
        self.shape[1] / self.quant.block_size() * self.quant.block_bytes()
    }

    /// Codes, scales and zeros as a kernel takes them.
    pub(crate) fn args(&self) -> [Arg<'a>; 3] {
        let beside = |view: Option<View<'a>>| view.map_or(Arg::from(0u64), |view| Arg::from(view.start()));
        [Arg::from(self.codes.start()), beside(self.scales), beside(self.zeros)]
    }

    pub(crate) fn groups(&self) -> Groups {
        match self.quant {
            Quant::Int4(group) => Groups { shift: (group / 32).ilog2(), in_row: (self.shape[1] / group) as u32 },
            _ => Groups { shift: 0, in_row: 1 },
        }
    }
}

/// As the struct of the kernels.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Groups {
    pub shift: u32,
    pub in_row: u32,
}
