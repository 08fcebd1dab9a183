//! Quantized weights: quantization, dequantization and matrix products.

pub(crate) mod gemm_f16;
pub(crate) mod view;

use bytemuck::{Pod, Zeroable};
use warpwave_gpu::{Arg, AsyncCopy, DeviceInfo, Launch, Stream, Vendor};

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::{Kernels, check_no_overlap, dtype_error, launch_error, shape_error};
use crate::layout::Layout;
use crate::matmul::has_mma;
use crate::program::{Program, SourceFile, source_file};
use crate::quant::view::{Quant, QuantView, QuantViewMut};
use crate::view::{View, ViewMut};

static QUANTIZE: SourceFile = source_file!("quant/quantize.cu", &[""]);
static QUANTIZE_WIDE: SourceFile = source_file!("quant/quantize_wide.cu", &[""]);
static DEQUANTIZE: SourceFile = source_file!("quant/dequantize.cu", &[""]);
static GEMV_SIMT: SourceFile = source_file!("quant/gemv_simt.cu", &[""]);
static GEMV_MMA: SourceFile = source_file!("quant/gemv_mma.cu", &[""]);
static GEMV_INT16: SourceFile = source_file!("quant/gemv_int16_sm90.cu", &[""]);
static GEMM: SourceFile = source_file!("quant/gemm.cu", &[""]);

#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct QuantizeParams {
    x_row: u64,
    x_stride: u64,
    out_row: u64,
    rows: u64,
    columns: u64,
    wide: u64,
}

#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct DequantizeParams {
    weights_row: u64,
    out_row: u64,
    out_stride: u64,
    rows: u64,
    units: u64,
    wide: u32,
    unused: u32,
}

#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct GemvSimtParams {
    weights_row: u64,
    x_row: u64,
    x_stride: u64,
    out_row: u64,
    out_stride: u64,
    rows: u32,
    units: u32,
    vectors: u32,
    panel: u32,
    width: u32,
    blocks: u32,
    wide: u32,
    unused: u32,
}

#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct GemvMmaParams {
    weights_row: u64,
    x_row: u64,
    x_stride: u64,
    out_row: u64,
    out_stride: u64,
    rows: u32,
    units: u32,
    vectors: u32,
    wide: u32,
    prefetchable: u32,
    unused: u32,
}

#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct GemmParams {
    weights_row: u64,
    x_row: u64,
    out_row: u64,
    out_stride: u64,
    rows: u32,
    units: u32,
    vectors: u32,
    tiles: u32,
}

/// The precision of activations in a product with quantized weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ActivationPrecision {
    /// f32: exact but for f32 rounding. On NVIDIA's matrix units each element is first rounded to 2⁻⁴³ of the largest in its chunk of 256,
    /// and a NaN or infinite element makes the results NaN.
    F32,
    /// May be rounded to 16-bit fixed point: on NVIDIA's matrix units each element becomes an integer in ±32512 relative to the largest in
    /// its block of 32; a NaN or infinite element makes the results NaN. Elsewhere as [`ActivationPrecision::F32`].
    Int16,
    /// May be 16-bit floats, activations and dequantized weights, whose products are added in f32 on matrix units: the fastest for several
    /// vectors. Both are rounded to `f16`; with many vectors (256 or more, 1,024 on Hopper), the vendor's library multiplies 16-bit activations
    /// as they are with weights rounded to their type. Activations above 2²⁰ or weights above 4,094 may become infinite; activations below
    /// 2⁻¹⁰ and weights below 2⁻¹⁸ lose precision. A single vector, and devices without matrix units: as [`ActivationPrecision::Int16`].
    Float16,
    /// 8-bit: activations are quantized to [`Quant::Q8_1`] first, which is the fastest for one vector.
    Int8,
}

const FLOATS: [DType; 3] = [DType::F32, DType::F16, DType::Bf16];
const THREADS: u32 = 256;
const MAX_BLOCKS: usize = 1 << 20;

/// Fails if a type is not a supported float.
fn check_float(op: &str, what: &'static str, dtype: DType) -> Result<()> {
    if FLOATS.contains(&dtype) { Ok(()) } else { Err(dtype_error(op, what, dtype, "f32, f16 or bf16")) }
}

/// Returns the row stride and the column stride.
fn row_and_column_strides(view: &View<'_>) -> (u64, u64) {
    match *view.layout().strides() {
        [step] => (0, step as u64),
        [row, step] => (row as u64, step as u64),
        _ => (0, 0),
    }
}

/// Device limits that matter to matrix-vector products.
#[derive(Debug, Clone, Copy)]
struct DeviceLimits {
    lanes: u32,
    /// The most shared memory of a block, in bytes.
    shared: usize,
    multiprocessors: usize,
    /// Whether the device has asynchronous copies to shared memory.
    copies: bool,
}

impl DeviceLimits {
    fn of(info: &DeviceInfo) -> DeviceLimits {
        let copies = info.vendor == Vendor::Nvidia;
        DeviceLimits { lanes: info.wave_size, shared: info.shared_per_block_max, multiprocessors: info.compute_units as usize, copies }
    }
}

/// Launch configuration of the SIMT matrix-vector kernel.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Plan {
    /// Rows per wave, vectors per launch, chunks in flight, threads per block, unrolled units per lane.
    rows: u32,
    vectors: u32,
    stages: u32,
    threads: u32,
    unroll: u32,
    /// Units of a panel of activations in shared memory.
    panel: usize,
    shared: usize,
}

/// Units per chunk that a wave copies.
const CHUNK: usize = 64;
/// Bytes that may be read beyond the last chunk.
const BEHIND: usize = 16;

/// The fastest configuration on an H200: one large block per multiprocessor, two chunks in flight per wave.
fn plan(limits: DeviceLimits, quant: Quant, exact: bool, vectors: usize, rows: usize, units: usize) -> Plan {
    let chunk = CHUNK * 32 / quant.block_size() * quant.block_bytes();
    let most = match limits.shared >> 10 {
        96.. => 8,
        64.. => 4,
        _ => 1,
    };
    let vectors = vectors.next_power_of_two().min(most);
    // Bytes of all vectors' part of a unit.
    let unit = if exact { 128 * vectors + 16 } else { 4 * ((9 * vectors) | 1) };
    let (few_bits, many_bits) = (chunk <= 1280, chunk > 1600);
    let mut each = match (exact, many_bits) {
        (true, _) if few_bits && vectors <= 2 => 4,
        (false, true) if vectors == 1 => 1,
        _ => 2,
    };
    let few_rows = rows.div_ceil(each) <= limits.multiprocessors * 8;
    let threads = if limits.shared < 160 << 10 || few_rows { 256 } else { 512 };
    let waves = (threads / limits.lanes) as usize;
    // At least one chunk of activations must fit.
    let budget = (limits.shared * 5 / 8).min(limits.shared.saturating_sub(unit * CHUNK + BEHIND));
    while each > 1 && waves * each * chunk > budget {
        each /= 2;
    }
    let stage = waves * each * chunk;
    let stages = if limits.copies { (budget / stage).clamp(1, 2) } else { 1 };
    let ring = stages * stage + BEHIND;
    let chunks = units.div_ceil(CHUNK).max(1);
    let panel = chunks.min(limits.shared.saturating_sub(ring) / (unit * CHUNK)).max(1) * CHUNK;
    let shared = panel * unit + ring;
    let unroll = if each <= 2 && vectors == 1 { 2 } else { 1 };
    Plan { rows: each as u32, vectors: vectors as u32, stages: stages as u32, threads, unroll, panel, shared }
}

fn simt_program(quant: Quant, x: &'static str, out: DType, plan: &Plan) -> Program {
    let Plan { rows, vectors, stages, threads, unroll, .. } = *plan;
    let constants = [("ROWS", rows), ("VECTORS", vectors), ("STAGES", stages), ("THREADS", threads), ("UNROLL", unroll)];
    Program::new(&GEMV_SIMT, "quant_gemv_simt", &[quant.cuda_name(), x, out.name()], &constants)
}

/// Launch configuration of the matrix-vector kernels on NVIDIA's matrix units.
#[derive(Debug, Clone, Copy, PartialEq)]
struct MmaPlan {
    int16: bool,
    /// Vectors per block.
    vectors: u32,
    threads: u32,
    stages: u32,
    shared: usize,
}

/// From this number of vectors on, products of f16 on matrix units are faster.
const FLOAT16_FROM: usize = 2;
/// Up to this many vectors the int16 kernel is faster.
const FEW: usize = 32;
/// The most stages of weights in flight.
const MAX_STAGES: usize = 5;
/// Rows of an mma tile.
const TILE_ROWS: usize = 16;

/// Whether the matrix-vector kernels on matrix units know the type; the others are computed by the SIMT kernel.
fn has_mma_codes(quant: Quant) -> bool {
    !matches!(quant, Quant::Q2K | Quant::Q3K | Quant::Q8K | Quant::Iq4Nl | Quant::Iq4Xs | Quant::Mxfp4)
}

/// Bytes of a staged chunk of 256 columns of [`TILE_ROWS`] rows, and of its separate scales, as in the kernels.
fn stage_bytes(quant: Quant) -> usize {
    let chunk = 8 * 32 / quant.block_size() * quant.block_bytes();
    let row = match quant {
        Quant::Q4K => 160,
        Quant::Q5K => 224,
        Quant::Q6K => 240,
        _ => chunk + (1 - chunk / 16 % 2) * 16,
    };
    let scales = if quant.gguf_type().is_none() { 16 } else { 0 };
    TILE_ROWS * (row + scales)
}

/// Returns the plan where this was fastest on an H200 and the activations fit shared memory: one float vector with weights of few bits, or
/// 5 to 8 vectors of Q8_1.
fn mma_plan(shared: usize, quant: Quant, exact: bool, vectors: usize, units: usize) -> Option<MmaPlan> {
    let many_bits = matches!(quant, Quant::Q8_0 | Quant::Q8_1 | Quant::Int8);
    let fastest = if exact { vectors == 1 && !many_bits } else { (5..=8).contains(&vectors) };
    if !fastest || !has_mma_codes(quant) {
        return None;
    }
    let (chunks, vectors) = (units.div_ceil(8), if vectors == 1 { 1 } else { 8 });
    let sums = if matches!(quant, Quant::Q4_1 | Quant::Q5_1 | Quant::Q4K | Quant::Q5K) { vectors * 4 } else { 0 };
    // Digits of 32 columns, their scale and their sum.
    let unit = if vectors == 1 { 6 * 32 + 4 } else { 8 * (32 + 4) } + sums;
    let plan = |threads: u32, stages: usize| {
        // Sums of several tiles are buffered before waves combine them.
        let held = if vectors == 1 { 8 } else { 1 };
        let wave = TILE_ROWS * held * vectors * 4 + stages * stage_bytes(quant);
        let shared = chunks * 8 * unit + threads as usize / 32 * wave + BEHIND;
        MmaPlan { int16: false, vectors: vectors as u32, threads, stages: stages as u32, shared }
    };
    [plan(512, 2), plan(256, 2)].into_iter().find(|plan| plan.shared <= shared)
}

/// Returns the plan of the int16 kernel: one block per multiprocessor with as many stages as fit. The next product's block replaces it as
/// soon as it ends and prefetches its weights while smaller kernels run.
fn int16_plan(shared: usize, quant: Quant, vectors: usize, units: usize) -> Option<MmaPlan> {
    if vectors > FEW || quant.gguf_type().is_none() || !has_mma_codes(quant) {
        return None;
    }
    let chunk = 8 * 32 / quant.block_size() * quant.block_bytes();
    let gap = if matches!(quant, Quant::Q4K | Quant::Q5K) { 32 } else { 16 };
    let plan = |vectors: usize, threads: usize| {
        let waves = threads / 32;
        // Digits of 32 columns, their scale and sum; buffered sums of tiles; barriers.
        let others = units.div_ceil(8) * 8 * vectors * (64 + 8) + 8 * waves * TILE_ROWS * 4 + 128;
        let stage = TILE_ROWS * (waves * chunk + gap);
        let stages = (shared.saturating_sub(others) / stage).min(MAX_STAGES);
        (stages >= 2).then(|| {
            let shared = others + stages * stage;
            let [vectors, threads, stages] = [vectors, threads, stages].map(|n| n as u32);
            MmaPlan { int16: true, vectors, threads, stages, shared }
        })
    };
    let most = vectors.next_power_of_two().min(4);
    plan(most, 512).or_else(|| plan(most, 256)).or_else(|| plan(1, 256))
}

fn mma_program(quant: Quant, x: &'static str, out: DType, plan: &MmaPlan) -> Program {
    let constants = [("VECTORS", plan.vectors), ("THREADS", plan.threads), ("STAGES", plan.stages)];
    let (file, op) = if plan.int16 { (&GEMV_INT16, "quant_gemv_int16") } else { (&GEMV_MMA, "quant_gemv_mma") };
    Program::new(file, op, &[quant.cuda_name(), x, out.name()], &constants)
}

fn quantize_program(quant: Quant, dtype: DType) -> Program {
    let op = match quant {
        Quant::Int8 => "quantize_rows",
        Quant::Int4(_) => "quantize_groups",
        _ => "quantize",
    };
    Program::new(&QUANTIZE, op, &[quant.cuda_name(), dtype.name()], &[])
}

/// Types that [`QUANTIZE_WIDE`] writes.
const WIDE: [Quant; 3] = [Quant::Q4_0, Quant::Q8_0, Quant::Q8_1];

fn quantize_wide_program(quant: Quant, dtype: DType) -> Program {
    Program::new(&QUANTIZE_WIDE, "quantize_wide", &[quant.cuda_name(), dtype.name()], &[])
}

fn dequantize_program(quant: Quant, dtype: DType) -> Program {
    Program::new(&DEQUANTIZE, "dequantize", &[quant.cuda_name(), dtype.name()], &[("UNROLL", 1)])
}

fn gemm_program(quant: Quant, out: DType) -> Program {
    Program::new(&GEMM, "quant_gemm", &[quant.cuda_name(), out.name()], &[])
}

/// Shared memory of the GEMM kernel in bytes; the size of its `SharedTile`.
fn tile_bytes(quant: Quant) -> usize {
    let parts = if matches!(quant, Quant::Q2K | Quant::Q3K | Quant::Q6K) { 2 } else { 1 };
    let sums = if quant == Quant::Q2K { 2 } else { 1 };
    128 * 128 * parts + 64 * 128 + 4 * parts * 128 * 8 + 4 * sums * 64 * 8
}

/// Lists the programs.
pub(crate) fn programs() -> Vec<Program> {
    let mut programs = gemm_f16::common_programs();
    programs.extend(WIDE.iter().flat_map(|quant| FLOATS.map(|dtype| quantize_wide_program(*quant, dtype))));
    for quant in Quant::ALL.into_iter().filter(|quant| !matches!(quant, Quant::Int4(32 | 64))) {
        for dtype in FLOATS {
            programs.extend([quantize_program(quant, dtype), dequantize_program(quant, dtype)]);
        }
        programs.push(gemm_program(quant, DType::F32));
        programs.extend(gemm_f16::programs(quant));
        let large = DeviceLimits { lanes: 32, shared: 227 << 10, multiprocessors: 132, copies: true };
        let small = DeviceLimits { lanes: 64, shared: 64 << 10, multiprocessors: 304, copies: false };
        for (limits, vectors) in [(large, 1), (small, 1), (small, 4)] {
            for (exact, x) in [(true, "f32"), (false, "q8_1")] {
                programs.push(simt_program(quant, x, DType::F32, &plan(limits, quant, exact, vectors, 1 << 14, 512)));
            }
        }
        for (x, exact, vectors) in [("f32", true, 1), ("q8_1", false, 8)] {
            programs.extend(mma_plan(large.shared, quant, exact, vectors, 128).map(|plan| mma_program(quant, x, DType::F32, &plan)));
        }
        for vectors in [1, 4] {
            programs.extend(int16_plan(large.shared, quant, vectors, 128).map(|plan| mma_program(quant, "f32", DType::F32, &plan)));
        }
    }
    programs
}

/// Lists the programs that models load on a device: of GGUF types, with float activations and results of one type.
///
/// Models pass `f32` activations to [`ActivationPrecision::Int16`] and never quantize activations.
pub(crate) fn of_models(info: &DeviceInfo) -> Vec<Program> {
    /// Plans depend on the number of columns up to this one.
    const MAX_CHUNKS: usize = 1024;
    let limits = DeviceLimits { multiprocessors: 1, ..DeviceLimits::of(info) };
    let mut programs = Vec::new();
    for quant in Quant::ALL.into_iter().filter(|quant| quant.gguf_type().is_some()) {
        for dtype in FLOATS {
            programs.push(dequantize_program(quant, dtype));
            for (vectors, rows) in [1, 2, 4, 8].into_iter().flat_map(|vectors| [(vectors, 1), (vectors, 1 << 20)]) {
                programs.push(simt_program(quant, dtype.name(), dtype, &plan(limits, quant, true, vectors, rows, CHUNK)));
            }
        }
        // Tensor cores only.
        for units in (1..=MAX_CHUNKS).map(|chunks| 8 * chunks).filter(|_| has_mma(info)) {
            let plan = mma_plan(info.shared_per_block_max, quant, true, 1, units);
            programs.extend(FLOATS.iter().filter_map(|dtype| Some(mma_program(quant, dtype.name(), *dtype, &plan?))));
            let plans = [1, 2, 3].map(|vectors| int16_plan(info.shared_per_block_max, quant, vectors, units));
            let plans = plans.into_iter().flatten().filter(|_| info.async_copy == AsyncCopy::Bulk);
            programs.extend(plans.map(|plan| mma_program(quant, DType::F32.name(), DType::F32, &plan)));
        }
    }
    programs
}

/// Activations: floats, or rows of Q8_1 of that many bytes.
#[derive(Clone, Copy)]
struct Input<'a> {
    data: View<'a>,
    blocks: Option<usize>,
    int16: bool,
}

impl Kernels {
    /// Quantizes the rows of a matrix of `f32`, `f16` or `bf16`. GGUF types with blocks of 32 round as defined by GGUF.
    pub fn quantize(&self, stream: &Stream, x: &View<'_>, out: &mut QuantViewMut<'_>) -> Result<()> {
        let out = out.as_view();
        let op = format!("quantize {}", out.quant);
        check_float(&op, "input", x.dtype())?;
        if x.layout().shape() != out.shape {
            return Err(shape_error(&op, "input", x, format!("{:?}", out.shape)));
        }
        self.check_devices(&op, stream, out.parts().chain([("input", *x)]))?;
        for (_, part) in out.parts() {
            check_no_overlap(&op, "input", x, &part)?;
        }
        let [rows, columns] = out.shape;
        if rows * columns == 0 {
            return Ok(());
        }
        let wide = x.layout().is_contiguous() && x.address().is_multiple_of(16);
        if wide && out.codes.address().is_multiple_of(16) && WIDE.contains(&out.quant) {
            let kernels = self.load(&quantize_wide_program(out.quant, x.dtype()))?;
            let blocks = rows * columns / 32;
            let each = 8 * 4 * 16 / x.dtype().size();
            let launch = Launch::new([blocks.div_ceil(each).min(MAX_BLOCKS) as u32, 1, 1], [THREADS, 1, 1]);
            // SAFETY: the kernel takes these arguments; x and the blocks are contiguous and aligned, and have this many blocks.
            let launched = unsafe { kernels[0].launch(stream, launch, (out.codes.start(), x.start(), blocks as u64)) };
            return launched.map_err(launch_error(&op));
        }
        let kernels = self.load(&quantize_program(out.quant, x.dtype()))?;
        let waves = if out.quant == Quant::Int8 { rows } else { (rows * (columns / out.quant.block_size())).div_ceil(8) };
        let launch = Launch::new([waves.min(MAX_BLOCKS) as u32, 1, 1], [THREADS, 1, 1]);
        let (x_row, x_stride) = row_and_column_strides(x);
        let source = QuantizeParams {
            x_row,
            x_stride,
            out_row: out.row_bytes() as u64,
            rows: rows as u64,
            columns: columns as u64,
            wide: wide.into(),
        };
        let ([codes, scales, zeros], groups) = (out.args(), out.groups());
        let args = (codes, scales, zeros, x.start(), Arg::value(&source), Arg::value(&groups));
        // SAFETY: the kernel takes these arguments; it reads the input at its strides and writes whole blocks of rows, as checked.
        unsafe { kernels[0].launch(stream, launch, args) }.map_err(launch_error(&op))
    }

    /// Dequantizes weights to `f32`, or rounded to `f16` or `bf16`.
    pub fn dequantize(&self, stream: &Stream, weights: &QuantView<'_>, out: &mut ViewMut<'_>) -> Result<()> {
        let out = out.as_view();
        let op = format!("dequantize {}", weights.quant);
        check_float(&op, "result", out.dtype())?;
        let [rows, columns] = weights.shape;
        if out.layout().shape() != weights.shape {
            return Err(shape_error(&op, "result", &out, format!("{:?}", weights.shape)));
        }
        self.check_devices(&op, stream, weights.parts().chain([("result", out)]))?;
        for (what, part) in weights.parts() {
            check_no_overlap(&op, what, &part, &out)?;
        }
        if rows * columns == 0 {
            return Ok(());
        }
        let program = dequantize_program(weights.quant, out.dtype());
        let kernels = self.load(&program)?;
        let (out_row, out_stride) = row_and_column_strides(&out);
        let size = out.dtype().size() as u64;
        let wide = out_stride == 1 && out.address().is_multiple_of(16) && (rows == 1 || (out_row * size).is_multiple_of(16));
        // Contiguous rows are one row, unless scales are per row.
        let one = out.layout().is_contiguous() && weights.quant != Quant::Int8;
        let (rows, columns) = if one { (1, rows * columns) } else { (rows, columns) };
        // A thread produces 16 bytes of the result per run.
        let threads = columns / 32 * out.dtype().size();
        let blocks = threads.div_ceil((THREADS * program.constant("UNROLL")) as usize).min(MAX_BLOCKS) as u32;
        let launch = Launch::new([blocks, rows.min(1 << 15) as u32, 1], [THREADS, 1, 1]);
        let weights_row = weights.row_bytes() as u64;
        let units = columns as u64 / 32;
        let shape = DequantizeParams { weights_row, out_row, out_stride, rows: rows as u64, units, wide: wide.into(), unused: 0 };
        let ([codes, scales, zeros], groups) = (weights.args(), weights.groups());
        let args = (out.start(), codes, scales, zeros, Arg::value(&groups), Arg::value(&shape));
        // SAFETY: the kernel takes these arguments; it reads whole blocks and writes the result at its strides, as checked.
        unsafe { kernels[0].launch(stream, launch, args) }.map_err(launch_error(&op))
    }

    /// Multiplies vectors with the rows of quantized weights.
    ///
    /// `x` is (columns) or (vectors, columns), `out` (rows) or (vectors, rows), of `f32`, `f16` or `bf16`.
    pub fn quant_matmul(
        &self,
        stream: &Stream,
        weights: &QuantView<'_>,
        x: &View<'_>,
        out: &mut ViewMut<'_>,
        activations: ActivationPrecision,
    ) -> Result<()> {
        let op = format!("quant_matmul {}", weights.quant);
        check_float(&op, "input", x.dtype())?;
        let columns = weights.shape[1];
        let vectors = match *x.layout().shape() {
            [found] if found == columns => 1,
            [vectors, found] if found == columns => vectors,
            _ => return Err(shape_error(&op, "input", x, format!("[{columns}] or [vectors, {columns}]"))),
        };
        let int16 = matches!(activations, ActivationPrecision::Int16 | ActivationPrecision::Float16);
        let floats = Input { data: *x, blocks: None, int16 };
        if activations == ActivationPrecision::Float16 && vectors >= FLOAT16_FROM {
            self.check_product(stream, &op, weights, floats, vectors, &out.as_view())?;
            let work = gemm_f16::Operands { op: &op, weights, x: *x, vectors };
            if weights.shape.iter().all(|size| *size > 0) && self.product_f16(stream, &work, out)? {
                return Ok(());
            }
        }
        if activations != ActivationPrecision::Int8 {
            return self.product(stream, &op, weights, floats, vectors, out);
        }
        self.check_product(stream, &op, weights, floats, vectors, &out.as_view())?;
        if vectors * columns == 0 {
            return self.product(stream, &op, weights, floats, vectors, out);
        }
        let bytes = vectors * (columns / 32) * Quant::Q8_1.block_bytes();
        let mut blocks = stream.alloc::<u8>(bytes).map_err(launch_error(&op))?;
        let (row, step) = row_and_column_strides(x);
        let layout = Layout::new(&[vectors, columns], &[row as usize, step as usize], 0)?;
        let rows = View::of_bytes(x.start(), x.dtype(), layout)?;
        self.quantize(stream, &rows, &mut QuantViewMut::new(Quant::Q8_1, &mut blocks, vectors, columns)?)?;
        self.quant_matmul_q8(stream, weights, &QuantView::new(Quant::Q8_1, &blocks, vectors, columns)?, out)
    }

    /// Like [`Kernels::quant_matmul`], with activations already quantized to [`Quant::Q8_1`].
    pub fn quant_matmul_q8(&self, stream: &Stream, weights: &QuantView<'_>, x: &QuantView<'_>, out: &mut ViewMut<'_>) -> Result<()> {
        let op = format!("quant_matmul {}", weights.quant);
        if x.quant != Quant::Q8_1 {
            return Err(Error::BadArgument { op, reason: format!("input: expected q8_1, got {}", x.quant) });
        }
        if x.shape[1] != weights.shape[1] {
            let reason = format!("the input has {} columns, but the weights have {}", x.shape[1], weights.shape[1]);
            return Err(Error::BadArgument { op, reason });
        }
        self.product(stream, &op, weights, Input { data: x.codes, blocks: Some(x.row_bytes()), int16: false }, x.shape[0], out)
    }

    fn check_product(
        &self,
        stream: &Stream,
        op: &str,
        weights: &QuantView<'_>,
        x: Input<'_>,
        vectors: usize,
        out: &View<'_>,
    ) -> Result<()> {
        check_float(op, "result", out.dtype())?;
        let rows = weights.shape[0];
        let fits = match *out.layout().shape() {
            [found] => found == rows && vectors == 1,
            [several, found] => several == vectors && found == rows,
            _ => false,
        };
        if !fits {
            return Err(shape_error(op, "result", out, format!("[{vectors}, {rows}]")));
        }
        if vectors >= 1 << 31 {
            return Err(Error::BadArgument { op: op.to_owned(), reason: format!("{vectors} vectors exceed the limit of 2^31") });
        }
        let inputs = || weights.parts().chain([("input", x.data)]);
        self.check_devices(op, stream, inputs().chain([("result", *out)]))?;
        inputs().try_for_each(|(what, part)| check_no_overlap(op, what, &part, out))
    }

    fn product(
        &self,
        stream: &Stream,
        op: &str,
        weights: &QuantView<'_>,
        x: Input<'_>,
        vectors: usize,
        target: &mut ViewMut<'_>,
    ) -> Result<()> {
        let out = target.as_view();
        self.check_product(stream, op, weights, x, vectors, &out)?;
        let [rows, columns] = weights.shape;
        if columns == 0 {
            return self.fill(stream, 0, target);
        }
        if vectors * rows == 0 {
            return Ok(());
        }
        let (out_row, out_stride) = row_and_column_strides(&out);
        let ([codes, scales, zeros], groups) = (weights.args(), weights.groups());
        let (weights_row, units) = (weights.row_bytes() as u64, columns / 32);
        if let Some(x_row) = x.blocks
            && vectors > 8
        {
            let kernels = self.load(&gemm_program(weights.quant, out.dtype()))?;
            let tiles = rows.div_ceil(128);
            let [rows, units, vectors] = [rows, units, vectors].map(|n| n as u32);
            let x_row = x_row as u64;
            let shape = GemmParams { weights_row, x_row, out_row, out_stride, rows, units, vectors, tiles: tiles as u32 };
            let blocks = grid_size(op, tiles * (vectors as usize).div_ceil(64))?;
            let launch = Launch::new([blocks, 1, 1], [THREADS, 1, 1]).shared(tile_bytes(weights.quant) as u32);
            let args = (out.start(), codes, scales, zeros, Arg::value(&groups), x.data.start(), Arg::value(&shape));
            // SAFETY: the kernel takes these arguments; it reads whole blocks and writes the result at its strides, as checked.
            return unsafe { kernels[0].launch(stream, launch, args) }.map_err(launch_error(op));
        }
        let info: &DeviceInfo = self.device().info();
        let aligned = |bytes: u64| weights.codes.address().is_multiple_of(bytes) && weights_row.is_multiple_of(bytes);
        // Group scales are copied with the codes; zero points are not supported.
        let copyable = |scales: View<'_>| scales.address().is_multiple_of(16) && columns.is_multiple_of(256) && weights.zeros.is_none();
        let scales_fit = !matches!(weights.quant, Quant::Int4(_)) || weights.scales.is_some_and(copyable);
        let shared = info.shared_per_block_max;
        let rounded = (x.int16 && info.async_copy == AsyncCopy::Bulk).then(|| int16_plan(shared, weights.quant, vectors, units)).flatten();
        if let Some(plan) = rounded.or_else(|| mma_plan(shared, weights.quant, x.blocks.is_none(), vectors, units))
            && has_mma(info)
            && aligned(16)
            && scales_fit
            // Offsets within a tile have 32 bits.
            && weights_row < 1 << 28
        {
            let (name, (x_row, x_stride)) = match x.blocks {
                None => (x.data.dtype().name(), row_and_column_strides(&x.data)),
                Some(bytes) => ("q8_1", (bytes as u64, 1)),
            };
            let kernels = self.load(&mma_program(weights.quant, name, out.dtype(), &plan))?;
            // With several vectors, each must start at a multiple of four elements.
            let wide = x_stride == 1 && x.data.address().is_multiple_of(16) && (vectors == 1 || x_row.is_multiple_of(4));
            let blocks = rows.div_ceil(TILE_ROWS).min(info.compute_units as usize) as u32;
            // One more wave copies.
            let copying = if plan.int16 { info.wave_size } else { 0 };
            let times = vectors.div_ceil(plan.vectors as usize) as u32;
            let [rows, units, vectors] = [rows, units, vectors].map(|n| n as u32);
            let (wide, prefetchable) = (wide.into(), weights.prefetchable.into());
            let shape =
                GemvMmaParams { weights_row, x_row, x_stride, out_row, out_stride, rows, units, vectors, wide, prefetchable, unused: 0 };
            let launch = Launch::new([blocks, times, 1], [plan.threads + copying, 1, 1]).shared(plan.shared as u32).pdl();
            let [to, from] = [&out, &x.data].map(|view| Arg::from(view.start()));
            let (groups, shape) = (Arg::value(&groups), Arg::value(&shape));
            let args: &[Arg<'_>] = if plan.int16 { &[to, codes, from, shape] } else { &[to, codes, scales, groups, from, shape] };
            // SAFETY: the kernel takes these arguments; it reads whole blocks and the activations at their strides and writes the result at
            // its strides, as checked. What it reads before the previous kernel ends is prefetchable.
            return unsafe { kernels[0].launch(stream, launch, args) }.map_err(launch_error(op));
        }
        let plan = plan(DeviceLimits::of(info), weights.quant, x.blocks.is_none(), vectors, rows, units);
        let (name, (x_row, x_stride), size) = match x.blocks {
            None => (x.data.dtype().name(), row_and_column_strides(&x.data), x.data.dtype().size() as u64),
            Some(bytes) => ("q8_1", (bytes as u64, 1), 1),
        };
        let wide = x_stride == 1 && x.data.address().is_multiple_of(16) && (vectors == 1 || (x_row * size).is_multiple_of(16));
        let kernels = self.load(&simt_program(weights.quant, name, out.dtype(), &plan))?;
        let waves = (plan.threads / info.wave_size) as usize;
        let blocks = rows.div_ceil(plan.rows as usize * waves).clamp(1, info.compute_units as usize);
        let width = [16, 4, 2].into_iter().find(|bytes| aligned(*bytes)).unwrap_or(1);
        let shape = GemvSimtParams {
            weights_row,
            x_row,
            x_stride,
            out_row,
            out_stride,
            rows: rows as u32,
            units: units as u32,
            vectors: vectors as u32,
            panel: plan.panel as u32,
            width: width as u32,
            blocks: blocks as u32,
            wide: wide.into(),
            unused: 0,
        };
        let grid = grid_size(op, blocks * vectors.div_ceil(plan.vectors as usize))?;
        let launch = Launch::new([grid, 1, 1], [plan.threads, 1, 1]).shared(plan.shared as u32);
        let args = (out.start(), codes, scales, zeros, Arg::value(&groups), x.data.start(), Arg::value(&shape));
        // SAFETY: the kernel takes these arguments; it reads whole blocks and the activations at their strides and writes the result at its
        // strides, as checked.
        unsafe { kernels[0].launch(stream, launch, args) }.map_err(launch_error(op))
    }
}

/// Checks a grid size.
fn grid_size(op: &str, blocks: usize) -> Result<u32> {
    let most = i32::MAX as usize;
    if blocks <= most {
        return Ok(blocks as u32);
    }
    Err(Error::BadArgument { op: op.to_owned(), reason: "too many rows and vectors for one launch".to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_plan_fits_its_device() {
        for quant in Quant::ALL {
            for (lanes, shared) in [(32, 227 << 10), (64, 64 << 10), (32, 64 << 10), (32, 99 << 10), (32, 163 << 10), (32, 48 << 10)] {
                let limits = DeviceLimits { lanes, shared, multiprocessors: 100, copies: lanes == 32 };
                for (vectors, units) in [1, 2, 3, 8, 100].into_iter().flat_map(|n| [1, 8, 18, 512, 896, 5000].map(|units| (n, units))) {
                    for (exact, rows) in [(true, 7), (true, 1 << 16), (false, 1), (false, 1 << 16)] {
                        let plan = plan(limits, quant, exact, vectors, rows, units);
                        assert!(plan.shared <= shared, "{quant} {limits:?} {vectors} {units} {exact}: {plan:?}");
                        assert!(plan.panel.is_multiple_of(CHUNK) && plan.panel > 0);
                        assert!(mma_plan(shared, quant, exact, vectors, units).is_none_or(|plan| plan.shared <= shared));
                        assert!(int16_plan(shared, quant, vectors, units).is_none_or(|plan| plan.shared <= shared));
                    }
                }
            }
        }
    }

    /// Whatever the shape, the kernel that a model's product selects is among those compiled ahead of time.
    #[test]
    fn plans_of_any_shape_are_among_the_programs_of_models() {
        let mut random = warpwave_test_support::Random::new(1);
        let mut below = |most: usize| random.below(most);
        for (arch, shared) in [("gfx90a", 64), ("gfx1100", 64), ("sm_80", 163), ("sm_89", 99), ("sm_90", 227)] {
            let info = DeviceInfo { shared_per_block_max: shared << 10, ..DeviceInfo::of_arch(arch.parse().unwrap()) };
            let known: std::collections::HashSet<Program> = of_models(&info).into_iter().collect();
            for _ in 0..20_000 {
                let info = DeviceInfo { compute_units: 1 + below(400) as u32, ..info.clone() };
                let quant = Quant::ALL[below(15)];
                let dtype = FLOATS[below(3)];
                let most = 128 << below(4);
                let (vectors, rows, units) = (1 + below(40), 1 << below(18), 8 * (1 + below(most)));
                let mut found =
                    vec![simt_program(quant, dtype.name(), dtype, &plan(DeviceLimits::of(&info), quant, true, vectors, rows, units))];
                if has_mma(&info) {
                    let plan = mma_plan(info.shared_per_block_max, quant, true, vectors, units);
                    found.extend(plan.map(|plan| mma_program(quant, dtype.name(), dtype, &plan)));
                }
                if info.async_copy == AsyncCopy::Bulk {
                    let plan = int16_plan(info.shared_per_block_max, quant, vectors, units);
                    found.extend(plan.map(|plan| mma_program(quant, "f32", DType::F32, &plan)));
                }
                for program in found {
                    assert!(known.contains(&program), "{arch} {quant} {vectors} {rows} {units}: {program:?}");
                }
            }
        }
    }

    #[test]
    fn numbers_of_gguf() {
        for quant in Quant::ALL {
            assert!(quant.gguf_type().is_none_or(|number| Quant::from_gguf(number) == Some(quant)));
        }
        assert_eq!(Quant::from_gguf(0), None);
        assert_eq!(Quant::Q6K.row_bytes(512), Some(420));
        assert_eq!(Quant::Q6K.row_bytes(300), None);
    }
}
