//! Quantised weights: making and undoing them, and products with vectors.

use bytemuck::{Pod, Zeroable};
use warpwave_gpu::{Arg, AsyncCopy, DeviceInfo, Launch, Stream, Vendor};

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::headers;
use crate::kernels::{Kernels, apart, refused, wrong_shape, wrong_type};
use crate::layout::Layout;
use crate::matmul::has_mma;
use crate::quant_view::{Quant, QuantView, QuantViewMut};
use crate::source::{File, Recipe};
use crate::view::{View, ViewMut};

const BLOCKS: &str = include_str!("cu/blocks.cuh");
static QUANTISE: File =
    File { name: "quantise.cu", texts: &[headers::TYPES, BLOCKS, include_str!("cu/quantise.cu")], kernels: &["_blocks"] };
static DEQUANTISE: File =
    File { name: "dequantise.cu", texts: &[headers::TYPES, BLOCKS, include_str!("cu/dequantise.cu")], kernels: &["_pieces"] };
static VECTOR: File =
    File { name: "quant_vector.cu", texts: &[headers::TYPES, BLOCKS, include_str!("cu/quant_vector.cu")], kernels: &["_products"] };
const STAGE: &str = include_str!("cu/quant_stage.cuh");
static DIGITS: File = File {
    name: "quant_digits.cu",
    texts: &[headers::TYPES, BLOCKS, headers::EARLY, STAGE, include_str!("cu/quant_digits.cu")],
    kernels: &["_digits"],
};
static ROUNDED: File = File {
    name: "quant_rounded.cu",
    texts: &[headers::TYPES, BLOCKS, headers::EARLY, STAGE, include_str!("cu/quant_rounded.cu")],
    kernels: &["_rounded"],
};
static MATRIX: File = File {
    name: "quant_matrix.cu",
    texts: &[headers::TYPES, BLOCKS, headers::TILE, include_str!("cu/quant_matrix.cu")],
    kernels: &["_tiles"],
};

#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Source {
    x_row: u64,
    x_step: u64,
    out_row: u64,
    rows: u64,
    columns: u64,
}

#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Rows {
    weights_row: u64,
    out_row: u64,
    out_step: u64,
    rows: u64,
    units: u64,
    wide: u32,
    unused: u32,
}

#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct VectorProduct {
    weights_row: u64,
    x_row: u64,
    x_step: u64,
    out_row: u64,
    out_step: u64,
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
struct DigitsProduct {
    weights_row: u64,
    x_row: u64,
    x_step: u64,
    out_row: u64,
    out_step: u64,
    rows: u32,
    units: u32,
    vectors: u32,
    wide: u32,
    settled: u32,
    unused: u32,
}

#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct MatrixProduct {
    weights_row: u64,
    x_row: u64,
    out_row: u64,
    out_step: u64,
    rows: u32,
    units: u32,
    vectors: u32,
    tiles: u32,
}

/// What the vectors of a product are computed with as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Activations {
    /// Floats: the product is exact but for the rounding of `f32`. Where NVIDIA's matrix units compute it, each element of a vector is
    /// first rounded to 2⁻⁴³ of the largest of its 256 neighbours, and one that is no finite number makes the results NaN.
    Exact,
    /// Floats that may be rounded: where NVIDIA's matrix units compute the product, each element becomes a whole number of up to ±32512
    /// times the largest of its 32 neighbours; one that is no finite number makes the results NaN. Elsewhere the product is exact.
    Rounded,
    /// Whole numbers of 8 bits: they are quantised to [`Quant::Q8_1`] first, which is faster.
    Int8,
}

const FLOATS: [DType; 3] = [DType::F32, DType::F16, DType::Bf16];
const THREADS: u32 = 256;
const MOST_BLOCKS: usize = 1 << 20;

/// Refuses what is no float that kernels are made for.
fn float(op: &str, what: &'static str, dtype: DType) -> Result<()> {
    if FLOATS.contains(&dtype) { Ok(()) } else { Err(wrong_type(op, what, dtype, "f32, f16 or bf16")) }
}

/// Strides of the last two dimensions.
fn steps(view: &View<'_>) -> (u64, u64) {
    match *view.layout().strides() {
        [step] => (0, step as u64),
        [row, step] => (row as u64, step as u64),
        _ => (0, 0),
    }
}

/// What a device has for a product with few vectors.
#[derive(Debug, Clone, Copy)]
struct Room {
    lanes: u32,
    /// Bytes of shared memory that a block can have.
    shared: usize,
    multiprocessors: usize,
    /// Whether copies into shared memory go on while a wave computes.
    copies: bool,
}

impl Room {
    fn of(info: &DeviceInfo) -> Room {
        let copies = info.vendor == Vendor::Nvidia;
        Room { lanes: info.wave_size, shared: info.shared_per_block_max, multiprocessors: info.compute_units as usize, copies }
    }
}

/// How a product with few vectors is launched.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Plan {
    /// Rows of a wave, vectors of a launch, chunks under way, threads of a block, units of a lane at once.
    rows: u32,
    vectors: u32,
    stages: u32,
    threads: u32,
    unroll: u32,
    /// Units of a panel.
    panel: usize,
    shared: usize,
}

/// Units that a wave copies at once.
const CHUNK: usize = 64;
/// Bytes behind the last chunk that are read with it.
const BEHIND: usize = 16;

/// By what was fastest on an H200: one large block on each multiprocessor, and two chunks of each wave under way.
fn plan(room: Room, quant: Quant, exact: bool, vectors: usize, rows: usize, units: usize) -> Plan {
    let chunk = CHUNK * 32 / quant.block_size() * quant.block_bytes();
    let most = match room.shared >> 10 {
        96.. => 8,
        64.. => 4,
        _ => 1,
    };
    let vectors = vectors.next_power_of_two().min(most);
    // Bytes of the vectors' part of a unit.
    let unit = if exact { 128 * vectors + 16 } else { 4 * ((9 * vectors) | 1) };
    let (few_bits, many_bits) = (chunk <= 1280, chunk > 1600);
    let mut each = match (exact, many_bits) {
        (true, _) if few_bits && vectors <= 2 => 4,
        (false, true) if vectors == 1 => 1,
        _ => 2,
    };
    let few_rows = rows.div_ceil(each) <= room.multiprocessors * 8;
    let threads = if room.shared < 160 << 10 || few_rows { 256 } else { 512 };
    let waves = (threads / room.lanes) as usize;
    // The vectors want at least a chunk's columns.
    let budget = (room.shared * 5 / 8).min(room.shared.saturating_sub(unit * CHUNK + BEHIND));
    while each > 1 && waves * each * chunk > budget {
        each /= 2;
    }
    let stage = waves * each * chunk;
    let stages = if room.copies { (budget / stage).clamp(1, 2) } else { 1 };
    let ring = stages * stage + BEHIND;
    let chunks = units.div_ceil(CHUNK).max(1);
    let panel = chunks.min(room.shared.saturating_sub(ring) / (unit * CHUNK)).max(1) * CHUNK;
    let shared = panel * unit + ring;
    let unroll = if each <= 2 && vectors == 1 { 2 } else { 1 };
    Plan { rows: each as u32, vectors: vectors as u32, stages: stages as u32, threads, unroll, panel, shared }
}

fn vector_recipe(quant: Quant, x: &'static str, out: DType, plan: &Plan) -> Recipe {
    let Plan { rows, vectors, stages, threads, unroll, .. } = *plan;
    let numbers = [("ROWS", rows), ("VECTORS", vectors), ("STAGES", stages), ("THREADS", threads), ("UNROLL", unroll)];
    Recipe::new(&VECTOR, "quant_matmul", &[quant.cuda_name(), x, out.name()], &numbers)
}

/// How a product with few vectors is launched on NVIDIA's matrix units.
#[derive(Debug, Clone, Copy, PartialEq)]
struct DigitsPlan {
    rounded: bool,
    /// Vectors of a block of threads.
    vectors: u32,
    threads: u32,
    stages: u32,
    shared: usize,
}

/// Vectors up to which rounding them is faster.
const FEW: usize = 32;
/// Strips of weights under way at most.
const MOST_STAGES: usize = 5;
/// Rows that the matrix units take at once.
const TILE_ROWS: usize = 16;

/// Bytes of a chunk of 256 columns of [`TILE_ROWS`] rows that are staged, as the kernels have it, and of the scales beside them.
fn stage_bytes(quant: Quant) -> usize {
    let chunk = 8 * 32 / quant.block_size() * quant.block_bytes();
    let row = match quant {
        Quant::Q4K => 160,
        Quant::Q5K => 224,
        Quant::Q6K => 240,
        _ => chunk + (1 - chunk / 16 % 2) * 16,
    };
    let beside = if quant.gguf_type().is_none() { 16 } else { 0 };
    TILE_ROWS * (row + beside)
}

/// Where it was fastest on an H200, if the vectors fit the shared memory: with one vector of floats if weights are of few bits, and with
/// more than four of Q8_1.
fn digits_plan(shared: usize, quant: Quant, exact: bool, vectors: usize, units: usize) -> Option<DigitsPlan> {
    let many_bits = matches!(quant, Quant::Q8_0 | Quant::Q8_1 | Quant::Int8);
    let fastest = if exact { vectors == 1 && !many_bits } else { (5..=8).contains(&vectors) };
    if !fastest {
        return None;
    }
    let (chunks, vectors) = (units.div_ceil(8), if vectors == 1 { 1 } else { 8 });
    let sums = if matches!(quant, Quant::Q4_1 | Quant::Q5_1 | Quant::Q4K | Quant::Q5K) { vectors * 4 } else { 0 };
    // The digits of 32 columns, what they count, and their sum.
    let unit = if vectors == 1 { 6 * 32 + 4 } else { 8 * (32 + 4) } + sums;
    let plan = |threads: u32, stages: usize| {
        // The sums of some tiles wait for those of other waves.
        let held = if vectors == 1 { 8 } else { 1 };
        let wave = TILE_ROWS * held * vectors * 4 + stages * stage_bytes(quant);
        let shared = chunks * 8 * unit + threads as usize / 32 * wave + BEHIND;
        DigitsPlan { rounded: false, vectors: vectors as u32, threads, stages: stages as u32, shared }
    };
    [plan(512, 2), plan(256, 2)].into_iter().find(|plan| plan.shared <= shared)
}

/// The same with vectors that are rounded. As much as fits is under way: one block on each multiprocessor, which the next product's takes
/// over as soon as it ends, and asks for its own weights while smaller kernels run.
fn rounded_plan(shared: usize, quant: Quant, vectors: usize, units: usize) -> Option<DigitsPlan> {
    if vectors > FEW || quant.gguf_type().is_none() {
        return None;
    }
    let chunk = 8 * 32 / quant.block_size() * quant.block_bytes();
    let gap = if matches!(quant, Quant::Q4K | Quant::Q5K) { 32 } else { 16 };
    let plan = |vectors: usize, threads: usize| {
        let waves = threads / 32;
        // The digits of 32 columns, what they count and their sum; the sums of some tiles, which wait for those of other waves; and the
        // barriers.
        let others = units.div_ceil(8) * 8 * vectors * (64 + 8) + 8 * waves * TILE_ROWS * 4 + 128;
        let stage = TILE_ROWS * (waves * chunk + gap);
        let stages = (shared.saturating_sub(others) / stage).min(MOST_STAGES);
        (stages >= 2).then(|| {
            let shared = others + stages * stage;
            let [vectors, threads, stages] = [vectors, threads, stages].map(|n| n as u32);
            DigitsPlan { rounded: true, vectors, threads, stages, shared }
        })
    };
    let most = vectors.next_power_of_two().min(4);
    plan(most, 512).or_else(|| plan(most, 256)).or_else(|| plan(1, 256))
}

fn digits_recipe(quant: Quant, x: &'static str, out: DType, plan: &DigitsPlan) -> Recipe {
    let numbers = [("VECTORS", plan.vectors), ("THREADS", plan.threads), ("STAGES", plan.stages)];
    let (file, op) = if plan.rounded { (&ROUNDED, "quant_rounded") } else { (&DIGITS, "quant_digits") };
    Recipe::new(file, op, &[quant.cuda_name(), x, out.name()], &numbers)
}

fn quantise_recipe(quant: Quant, dtype: DType) -> Recipe {
    let op = match quant {
        Quant::Int8 => "quantise_rows",
        Quant::Int4(_) => "quantise_groups",
        _ => "quantise",
    };
    Recipe::new(&QUANTISE, op, &[quant.cuda_name(), dtype.name()], &[])
}

fn dequantise_recipe(quant: Quant, dtype: DType) -> Recipe {
    Recipe::new(&DEQUANTISE, "dequantise", &[quant.cuda_name(), dtype.name()], &[("UNROLL", 1)])
}

fn matrix_recipe(quant: Quant, out: DType) -> Recipe {
    Recipe::new(&MATRIX, "quant_tiles", &[quant.cuda_name(), out.name()], &[])
}

/// Bytes of the shared memory of a tile, as its struct has them.
fn tile_bytes(quant: Quant) -> usize {
    let parts = if quant == Quant::Q6K { 2 } else { 1 };
    128 * 128 * parts + 64 * 128 + 4 * parts * 128 * 8 + 4 * 64 * 8
}

/// The programs of this family.
pub(crate) fn recipes() -> Vec<Recipe> {
    let mut recipes = Vec::new();
    for quant in Quant::ALL.into_iter().filter(|quant| !matches!(quant, Quant::Int4(32 | 64))) {
        for dtype in FLOATS {
            recipes.extend([quantise_recipe(quant, dtype), dequantise_recipe(quant, dtype)]);
        }
        recipes.push(matrix_recipe(quant, DType::F32));
        let large = Room { lanes: 32, shared: 227 << 10, multiprocessors: 132, copies: true };
        let small = Room { lanes: 64, shared: 64 << 10, multiprocessors: 304, copies: false };
        for (room, vectors) in [(large, 1), (small, 1), (small, 4)] {
            for (exact, x) in [(true, "f32"), (false, "q8_1")] {
                recipes.push(vector_recipe(quant, x, DType::F32, &plan(room, quant, exact, vectors, 1 << 14, 512)));
            }
        }
        for (x, exact, vectors) in [("f32", true, 1), ("q8_1", false, 8)] {
            recipes.extend(digits_plan(large.shared, quant, exact, vectors, 128).map(|plan| digits_recipe(quant, x, DType::F32, &plan)));
        }
        for vectors in [1, 4] {
            recipes.extend(rounded_plan(large.shared, quant, vectors, 128).map(|plan| digits_recipe(quant, "f32", DType::F32, &plan)));
        }
    }
    recipes
}

/// Vectors of a product: floats, or rows of so many bytes of Q8_1.
#[derive(Clone, Copy)]
struct Given<'a> {
    data: View<'a>,
    blocks: Option<usize>,
    rounded: bool,
}

impl Kernels {
    /// Quantises the rows of a matrix of `f32`, `f16` or `bf16`. GGUF's types with blocks of 32 round as their definition does.
    pub fn quantise(&self, stream: &Stream, x: &View<'_>, out: &mut QuantViewMut<'_>) -> Result<()> {
        let out = out.as_view();
        let op = format!("quantise {}", out.quant);
        float(&op, "the input", x.dtype())?;
        if x.layout().shape() != out.shape {
            return Err(wrong_shape(&op, "the input", x, format!("the result has {:?}", out.shape)));
        }
        self.check_devices(&op, stream, out.parts().chain([("the input", *x)]))?;
        for (_, part) in out.parts() {
            apart(&op, "the input", x, &part)?;
        }
        let [rows, columns] = out.shape;
        if rows * columns == 0 {
            return Ok(());
        }
        let kernels = self.load(&quantise_recipe(out.quant, x.dtype()))?;
        let waves = if out.quant == Quant::Int8 { rows } else { (rows * (columns / out.quant.block_size())).div_ceil(8) };
        let launch = Launch::new([waves.min(MOST_BLOCKS) as u32, 1, 1], [THREADS, 1, 1]);
        let (x_row, x_step) = steps(x);
        let source = Source { x_row, x_step, out_row: out.row_bytes() as u64, rows: rows as u64, columns: columns as u64 };
        let ([codes, scales, zeros], groups) = (out.args(), out.groups());
        let args = (codes, scales, zeros, x.start(), Arg::value(&source), Arg::value(&groups));
        // SAFETY: the kernel takes these; it reads the input at its strides and writes whole blocks of the rows, as the views were checked.
        unsafe { kernels[0].launch(stream, launch, args) }.map_err(refused(&op))
    }

    /// The numbers that quantised weights stand for, as `f32` or rounded from it to `f16` or `bf16`.
    pub fn dequantise(&self, stream: &Stream, weights: &QuantView<'_>, out: &mut ViewMut<'_>) -> Result<()> {
        let out = out.as_view();
        let op = format!("dequantise {}", weights.quant);
        float(&op, "the result", out.dtype())?;
        let [rows, columns] = weights.shape;
        if out.layout().shape() != weights.shape {
            return Err(wrong_shape(&op, "the result", &out, format!("the weights have {:?}", weights.shape)));
        }
        self.check_devices(&op, stream, weights.parts().chain([("the result", out)]))?;
        for (what, part) in weights.parts() {
            apart(&op, what, &part, &out)?;
        }
        if rows * columns == 0 {
            return Ok(());
        }
        let recipe = dequantise_recipe(weights.quant, out.dtype());
        let kernels = self.load(&recipe)?;
        let (out_row, out_step) = steps(&out);
        let size = out.dtype().size() as u64;
        let wide = out_step == 1 && out.address().is_multiple_of(16) && (rows == 1 || (out_row * size).is_multiple_of(16));
        // Without gaps all rows are one; but scales of rows need to know them.
        let one = out.layout().is_contiguous() && weights.quant != Quant::Int8;
        let (rows, columns) = if one { (1, rows * columns) } else { (rows, columns) };
        // A thread has as many words of each run of a unit as make 16 bytes of the result.
        let threads = columns / 32 * out.dtype().size();
        let blocks = threads.div_ceil((THREADS * recipe.number("UNROLL")) as usize).min(MOST_BLOCKS) as u32;
        let launch = Launch::new([blocks, rows.min(1 << 15) as u32, 1], [THREADS, 1, 1]);
        let weights_row = weights.row_bytes() as u64;
        let units = columns as u64 / 32;
        let shape = Rows { weights_row, out_row, out_step, rows: rows as u64, units, wide: wide.into(), unused: 0 };
        let ([codes, scales, zeros], groups) = (weights.args(), weights.groups());
        let args = (out.start(), codes, scales, zeros, Arg::value(&groups), Arg::value(&shape));
        // SAFETY: the kernel takes these; it reads whole blocks and writes the result at its strides, as the views were checked.
        unsafe { kernels[0].launch(stream, launch, args) }.map_err(refused(&op))
    }

    /// Products of vectors with the rows of quantised weights: `x` is a vector of as many elements as the weights have columns, or rows of
    /// such; `out` has an element for each of the weights' rows, or rows of such. All floats are `f32`, `f16` or `bf16`.
    pub fn quant_matmul(
        &self,
        stream: &Stream,
        weights: &QuantView<'_>,
        x: &View<'_>,
        out: &mut ViewMut<'_>,
        activations: Activations,
    ) -> Result<()> {
        let op = format!("quant_matmul {}", weights.quant);
        float(&op, "the input", x.dtype())?;
        let columns = weights.shape[1];
        let vectors = match *x.layout().shape() {
            [found] if found == columns => 1,
            [vectors, found] if found == columns => vectors,
            _ => return Err(wrong_shape(&op, "the input", x, format!("the weights have {columns} columns"))),
        };
        let floats = Given { data: *x, blocks: None, rounded: activations == Activations::Rounded };
        if activations != Activations::Int8 {
            return self.product(stream, &op, weights, floats, vectors, out);
        }
        self.check_product(stream, &op, weights, floats, vectors, &out.as_view())?;
        if vectors * columns == 0 {
            return self.product(stream, &op, weights, floats, vectors, out);
        }
        let bytes = vectors * (columns / 32) * Quant::Q8_1.block_bytes();
        let mut blocks = stream.alloc::<u8>(bytes).map_err(refused(&op))?;
        let (row, step) = steps(x);
        let layout = Layout::new(&[vectors, columns], &[row as usize, step as usize], 0)?;
        let rows = View::of_bytes(x.start(), x.dtype(), layout)?;
        self.quantise(stream, &rows, &mut QuantViewMut::new(Quant::Q8_1, &mut blocks, vectors, columns)?)?;
        self.quant_matmul_q8(stream, weights, &QuantView::new(Quant::Q8_1, &blocks, vectors, columns)?, out)
    }

    /// The same, with vectors that are quantised already: rows of [`Quant::Q8_1`].
    pub fn quant_matmul_q8(&self, stream: &Stream, weights: &QuantView<'_>, x: &QuantView<'_>, out: &mut ViewMut<'_>) -> Result<()> {
        let op = format!("quant_matmul {}", weights.quant);
        if x.quant != Quant::Q8_1 {
            return Err(Error::BadArgument { op, reason: format!("the input is of {}; it takes q8_1", x.quant) });
        }
        if x.shape[1] != weights.shape[1] {
            let reason = format!("the input has {} columns, the weights have {}", x.shape[1], weights.shape[1]);
            return Err(Error::BadArgument { op, reason });
        }
        self.product(stream, &op, weights, Given { data: x.codes, blocks: Some(x.row_bytes()), rounded: false }, x.shape[0], out)
    }

    fn check_product(
        &self,
        stream: &Stream,
        op: &str,
        weights: &QuantView<'_>,
        x: Given<'_>,
        vectors: usize,
        out: &View<'_>,
    ) -> Result<()> {
        float(op, "the result", out.dtype())?;
        let rows = weights.shape[0];
        let fits = match *out.layout().shape() {
            [found] => found == rows && vectors == 1,
            [several, found] => several == vectors && found == rows,
            _ => false,
        };
        if !fits {
            return Err(wrong_shape(op, "the result", out, format!("{vectors} vectors and {rows} rows give [{vectors}, {rows}]")));
        }
        if vectors >= 1 << 31 {
            return Err(Error::BadArgument { op: op.to_owned(), reason: format!("{vectors} vectors are more than 2³¹") });
        }
        let inputs = || weights.parts().chain([("the input", x.data)]);
        self.check_devices(op, stream, inputs().chain([("the result", *out)]))?;
        inputs().try_for_each(|(what, part)| apart(op, what, &part, out))
    }

    fn product(
        &self,
        stream: &Stream,
        op: &str,
        weights: &QuantView<'_>,
        x: Given<'_>,
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
        let (out_row, out_step) = steps(&out);
        let ([codes, scales, zeros], groups) = (weights.args(), weights.groups());
        let (weights_row, units) = (weights.row_bytes() as u64, columns / 32);
        if let Some(x_row) = x.blocks
            && vectors > 8
        {
            let kernels = self.load(&matrix_recipe(weights.quant, out.dtype()))?;
            let tiles = rows.div_ceil(128);
            let [rows, units, vectors] = [rows, units, vectors].map(|n| n as u32);
            let x_row = x_row as u64;
            let shape = MatrixProduct { weights_row, x_row, out_row, out_step, rows, units, vectors, tiles: tiles as u32 };
            let blocks = blocks_of(op, tiles * (vectors as usize).div_ceil(64))?;
            let launch = Launch::new([blocks, 1, 1], [THREADS, 1, 1]).shared(tile_bytes(weights.quant) as u32);
            let args = (out.start(), codes, scales, zeros, Arg::value(&groups), x.data.start(), Arg::value(&shape));
            // SAFETY: the kernel takes these; it reads whole blocks and writes the result at its strides, as the views were checked.
            return unsafe { kernels[0].launch(stream, launch, args) }.map_err(refused(op));
        }
        let info: &DeviceInfo = self.device().info();
        let aligned = |bytes: u64| weights.codes.address().is_multiple_of(bytes) && weights_row.is_multiple_of(bytes);
        // Scales of groups are copied as the codes are, and zeros are not.
        let beside = |scales: View<'_>| scales.address().is_multiple_of(16) && columns.is_multiple_of(256) && weights.zeros.is_none();
        let beside = !matches!(weights.quant, Quant::Int4(_)) || weights.scales.is_some_and(beside);
        let shared = info.shared_per_block_max;
        let rounded =
            (x.rounded && info.async_copy == AsyncCopy::Bulk).then(|| rounded_plan(shared, weights.quant, vectors, units)).flatten();
        if let Some(plan) = rounded.or_else(|| digits_plan(shared, weights.quant, x.blocks.is_none(), vectors, units))
            && has_mma(info)
            && aligned(16)
            && beside
            // Places in a tile have 32 bits.
            && weights_row < 1 << 28
        {
            let (name, (x_row, x_step)) = match x.blocks {
                None => (x.data.dtype().name(), steps(&x.data)),
                Some(bytes) => ("q8_1", (bytes as u64, 1)),
            };
            let kernels = self.load(&digits_recipe(weights.quant, name, out.dtype(), &plan))?;
            // Of several vectors of floats each begins at four.
            let wide = x_step == 1 && x.data.address().is_multiple_of(16) && (vectors == 1 || x_row.is_multiple_of(4));
            let blocks = rows.div_ceil(TILE_ROWS).min(info.compute_units as usize) as u32;
            // A wave that copies, beside those that compute.
            let copying = if plan.rounded { info.wave_size } else { 0 };
            let times = vectors.div_ceil(plan.vectors as usize) as u32;
            let [rows, units, vectors] = [rows, units, vectors].map(|n| n as u32);
            let (wide, settled) = (wide.into(), weights.settled.into());
            let shape = DigitsProduct { weights_row, x_row, x_step, out_row, out_step, rows, units, vectors, wide, settled, unused: 0 };
            let launch = Launch::new([blocks, times, 1], [plan.threads + copying, 1, 1]).shared(plan.shared as u32).pdl();
            let [to, from] = [&out, &x.data].map(|view| Arg::from(view.start()));
            let (groups, shape) = (Arg::value(&groups), Arg::value(&shape));
            let args: &[Arg<'_>] = if plan.rounded { &[to, codes, from, shape] } else { &[to, codes, scales, groups, from, shape] };
            // SAFETY: the kernel takes these; it reads whole blocks and the vectors at their strides and writes the result at its strides,
            // as the views were checked. What it reads before its turn is settled.
            return unsafe { kernels[0].launch(stream, launch, args) }.map_err(refused(op));
        }
        let plan = plan(Room::of(info), weights.quant, x.blocks.is_none(), vectors, rows, units);
        let (name, (x_row, x_step), size) = match x.blocks {
            None => (x.data.dtype().name(), steps(&x.data), x.data.dtype().size() as u64),
            Some(bytes) => ("q8_1", (bytes as u64, 1), 1),
        };
        let wide = x_step == 1 && x.data.address().is_multiple_of(16) && (vectors == 1 || (x_row * size).is_multiple_of(16));
        let kernels = self.load(&vector_recipe(weights.quant, name, out.dtype(), &plan))?;
        let waves = (plan.threads / info.wave_size) as usize;
        let blocks = rows.div_ceil(plan.rows as usize * waves).clamp(1, info.compute_units as usize);
        let width = [16, 4].into_iter().find(|bytes| aligned(*bytes)).unwrap_or(2);
        let shape = VectorProduct {
            weights_row,
            x_row,
            x_step,
            out_row,
            out_step,
            rows: rows as u32,
            units: units as u32,
            vectors: vectors as u32,
            panel: plan.panel as u32,
            width: width as u32,
            blocks: blocks as u32,
            wide: wide.into(),
            unused: 0,
        };
        let grid = blocks_of(op, blocks * vectors.div_ceil(plan.vectors as usize))?;
        let launch = Launch::new([grid, 1, 1], [plan.threads, 1, 1]).shared(plan.shared as u32);
        let args = (out.start(), codes, scales, zeros, Arg::value(&groups), x.data.start(), Arg::value(&shape));
        // SAFETY: the kernel takes these; it reads whole blocks and the vectors at their strides and writes the result at its strides, as
        // the views were checked.
        unsafe { kernels[0].launch(stream, launch, args) }.map_err(refused(op))
    }
}

/// The number of blocks as a launch takes it.
fn blocks_of(op: &str, blocks: usize) -> Result<u32> {
    let most = i32::MAX as usize;
    if blocks <= most {
        return Ok(blocks as u32);
    }
    Err(Error::BadArgument { op: op.to_owned(), reason: "it has more rows and vectors than one launch takes".to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_plan_fits_its_device() {
        for quant in Quant::ALL {
            for (lanes, shared) in [(32, 227 << 10), (64, 64 << 10), (32, 64 << 10), (32, 99 << 10), (32, 163 << 10), (32, 48 << 10)] {
                let room = Room { lanes, shared, multiprocessors: 100, copies: lanes == 32 };
                for (vectors, units) in [1, 2, 3, 8, 100].into_iter().flat_map(|n| [1, 8, 18, 512, 896, 5000].map(|units| (n, units))) {
                    for (exact, rows) in [(true, 7), (true, 1 << 16), (false, 1), (false, 1 << 16)] {
                        let plan = plan(room, quant, exact, vectors, rows, units);
                        assert!(plan.shared <= shared, "{quant} {room:?} {vectors} {units} {exact}: {plan:?}");
                        assert!(plan.panel.is_multiple_of(CHUNK) && plan.panel > 0);
                        assert!(digits_plan(shared, quant, exact, vectors, units).is_none_or(|plan| plan.shared <= shared));
                        assert!(rounded_plan(shared, quant, vectors, units).is_none_or(|plan| plan.shared <= shared));
                    }
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
