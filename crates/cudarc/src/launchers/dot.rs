//! The launcher of `dot.cu`: products for formats and indirections that Warpwave's kernel library does not have.

use bytemuck::{Pod, Zeroable};
use warpwave::gpu::{Arg, Kernel, Launch, Slice, Stream};
use warpwave::jit::KernelSource;
use warpwave::kernels::DType;

use crate::error::DriverError;
use crate::gpu::Gpu;

/// How rows are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    F32,
    F16,
    Bf16,
    Q8_0,
    Q8_1,
    Q2K,
    Q3K,
    Q4K,
    Q5K,
    Q6K,
}

impl Format {
    fn cuda_name(self) -> &'static str {
        match self {
            Format::F32 => "f32_rows",
            Format::F16 => "f16_rows",
            Format::Bf16 => "bf16_rows",
            Format::Q8_0 => "q8_0",
            Format::Q8_1 => "q8_1",
            Format::Q2K => "q2_k",
            Format::Q3K => "q3_k",
            Format::Q4K => "q4_k",
            Format::Q5K => "q5_k",
            Format::Q6K => "q6_k",
        }
    }

    /// Elements and bytes of a block.
    fn block(self) -> (usize, usize) {
        match self {
            Format::F32 => (16, 64),
            Format::F16 | Format::Bf16 => (16, 32),
            Format::Q8_0 => (32, 34),
            Format::Q8_1 => (32, 36),
            Format::Q2K => (256, 84),
            Format::Q3K => (256, 110),
            Format::Q4K => (256, 144),
            Format::Q5K => (256, 176),
            Format::Q6K => (256, 210),
        }
    }

    /// Bytes of a row.
    pub fn row_bytes(self, columns: usize) -> Result<usize, DriverError> {
        let (elements, bytes) = self.block();
        if columns.is_multiple_of(elements) {
            return Ok(columns / elements * bytes);
        }
        Err(DriverError::invalid(&format!("{columns} columns are not a multiple of {elements}, the block size of {}", self.cuda_name())))
    }
}

/// Parameters of the kernel; mirrors `Params` in `dot.cu`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Params {
    w_row: u64,
    w_expert: u64,
    x_row: u64,
    out_row: u64,
    columns: u32,
    entries: u32,
    x_rows: u32,
    top: u32,
    experts: u32,
    unused: u32,
}

/// A product.
pub(super) struct Dot<'a> {
    pub weights: (Format, Slice<'a, u8>),
    pub vectors: (Format, Slice<'a, u8>),
    pub out: (DType, Slice<'a, u8>),
    /// Rows of an expert's weights, columns, and rows of the vectors.
    pub rows: usize,
    pub columns: usize,
    pub vector_rows: usize,
    /// Rows of the result.
    pub entries: usize,
    pub routes: Option<Routes<'a>>,
}

/// Which expert's weights an entry takes.
pub(super) struct Routes<'a> {
    pub tokens: Slice<'a, u8>,
    pub experts: Slice<'a, u8>,
    pub scales: Option<Slice<'a, u8>>,
    pub count: usize,
    /// Entries that share a vector.
    pub top: usize,
}

/// The most blocks in the second direction that all devices allow.
const MAX_ENTRIES: usize = 65_535;

impl Dot<'_> {
    pub fn launch(&self, gpu: &Gpu, stream: &Stream) -> Result<(), DriverError> {
        let number = |what: &str, value: usize| {
            u32::try_from(value).map_err(|_| DriverError::invalid(&format!("{what}: {value} exceeds the limit of 2^32 - 1")))
        };
        let w_row = self.weights.0.row_bytes(self.columns)?;
        if self.rows == 0 || self.entries == 0 {
            return Ok(());
        }
        if self.entries > MAX_ENTRIES {
            return Err(DriverError::invalid(&format!("{} vectors exceed the limit of {MAX_ENTRIES}", self.entries)));
        }
        let params = Params {
            w_row: w_row as u64,
            w_expert: (w_row * self.rows) as u64,
            x_row: self.vectors.0.row_bytes(self.columns)? as u64,
            out_row: self.rows as u64,
            columns: number("columns", self.columns)?,
            entries: number("vectors", self.entries)?,
            x_rows: number("vectors", self.vector_rows)?,
            top: number("experts per token", self.routes.as_ref().map_or(0, |routes| routes.top))?,
            experts: number("experts", self.routes.as_ref().map_or(0, |routes| routes.count))?,
            unused: 0,
        };
        let kernel = self.kernel(gpu)?;
        let pointer = |slice: Option<Slice<'_, u8>>| slice.map_or(0u64, |slice| slice.device_ptr());
        let routes = self.routes.as_ref();
        let [tokens, experts, scales] = [routes.map(|r| r.tokens), routes.map(|r| r.experts), routes.and_then(|r| r.scales)].map(pointer);
        let args = (self.out.1, self.weights.1, self.vectors.1, tokens, experts, scales, Arg::value(&params));
        let launch = Launch::new([number("rows", self.rows)?, self.entries as u32, 1], [64, 1, 1]);
        // SAFETY: the kernel takes these arguments; the caller made the parts of memory as long as the sizes say, and the kernel checks what
        // the routes say against them.
        Ok(unsafe { kernel.launch(stream, launch, args) }?)
    }

    fn kernel(&self, gpu: &Gpu) -> Result<Kernel, DriverError> {
        let out = match self.out.0 {
            DType::F16 => "__half",
            DType::Bf16 => "__nv_bfloat16",
            _ => "float",
        };
        let source = KernelSource::from_text("dot.cu", include_str!("dot.cu"))?;
        let source = source.define("W", self.weights.0.cuda_name()).define("X", self.vectors.0.cuda_name()).define("OUT", out);
        gpu.load(&source, "dot")
    }
}
