//! Products of several vectors with quantized weights as f16, on matrix units.

use bytemuck::{Pod, Zeroable};
use warpwave_gpu::{Arch, Arg, Buffer, DeviceInfo, Launch, MatrixUnits, Stream};

use super::{FLOATS, grid_size, row_and_column_strides};
use crate::common::heads::pointer;
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::{Kernels, launch_error};
use crate::layout::Layout;
use crate::matmul::Matmul;
use crate::program::{Program, SourceFile, source_file};
use crate::quant::view::{Quant, QuantView};
use crate::view::{View, ViewMut};

static GEMM: SourceFile = source_file!("quant/gemm_f16.cu", &[""]);
static GEMM_SM90A: SourceFile = source_file!("quant/gemm_f16_sm90a.cu", &[""]);
static PACK: SourceFile = source_file!("quant/pack.cu", &[""]);
static FINISH: SourceFile = source_file!("quant/finish.cu", &[""]);

/// From this number of vectors on, NVIDIA's library is faster, including the time to dequantize for it: in general, and than wgmma.
const LIBRARY_FROM: usize = 256;
const LIBRARY_FROM_SM90A: usize = 1024;
/// From this number of vectors on, wgmma is faster.
const SM90A_FROM: usize = 65;
/// The largest workspace for sums of blocks that share the columns, in bytes, and the most such blocks.
const MAX_PARTIAL: usize = 64 << 20;
const MAX_PARTS: usize = 16;

/// Mirrors `GemmParams` in `gemm_f16.cu`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct GemmParams {
    weights_row: u64,
    out_row: u64,
    out_stride: u64,
    rows: u32,
    units: u32,
    vectors: u32,
    chunks: u32,
    parts: u32,
    prefetchable: u32,
    share: u32,
    unused: u32,
}

#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct PackParams {
    x_row: u64,
    x_stride: u64,
    vectors: u32,
    columns: u32,
    chunks: u32,
    unused: u32,
}

#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct FinishParams {
    out_row: u64,
    out_stride: u64,
    rows: u32,
    vectors: u32,
    parts: u32,
    unused: u32,
}

/// The tile of a block: vectors; waves along the rows, the vectors and the columns; tiles of 16 rows per wave; stages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tile {
    vectors: u32,
    waves: [u32; 3],
    height: u32,
    stages: u32,
}

const fn tile(vectors: u32, waves: [u32; 3], height: u32) -> Tile {
    Tile { vectors, waves, height, stages: 0 }
}

/// Tiles for NVIDIA by the vectors they are for. With few, waves divide the columns, so that all multiprocessors have rows and many bytes
/// are in flight; with many, they share vectors in shared memory, whose bandwidth is the limit.
const NVIDIA: [Tile; 4] = [tile(16, [4, 1, 4], 1), tile(32, [4, 1, 2], 1), tile(64, [4, 2, 1], 2), tile(128, [4, 2, 1], 2)];
/// The same for AMD, with 64 KiB of shared memory and synchronous copies.
const AMD: [Tile; 3] = [tile(16, [4, 1, 1], 1), tile(32, [4, 1, 1], 1), tile(64, [4, 1, 1], 1)];
const MAX_STAGES: u32 = 4;

/// The type of weights: quantized, or `f16` or `bf16` (experts).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Quant(Quant),
    Plain(DType),
}

impl Format {
    fn name(self) -> &'static str {
        match self {
            Format::Quant(quant) => quant.cuda_name(),
            Format::Plain(dtype) => dtype.name(),
        }
    }

    /// Whether the kernel reads words of 16 bytes of a row, so that rows must be aligned to them.
    fn is_aligned(self) -> bool {
        match self {
            Format::Quant(quant) => matches!(quant, Quant::Q4K | Quant::Q5K | Quant::Int8 | Quant::Int4(_)),
            Format::Plain(_) => true,
        }
    }

    /// Columns of a chunk: `Operand::COLUMNS`.
    fn columns(self) -> usize {
        match self {
            Format::Quant(_) => 256,
            Format::Plain(_) => 128,
        }
    }

    /// Bytes of a row of a chunk, and the same in shared memory: `ChunkRows::STRIDE`.
    fn chunk(self) -> (usize, usize) {
        match self {
            Format::Quant(quant) => {
                let bytes = self.columns() / quant.block_size() * quant.block_bytes();
                let pieces = if self.is_aligned() { bytes / 16 } else { (bytes + 30) / 16 };
                (bytes, ((pieces + 1) | 1) * 16)
            }
            Format::Plain(_) => (self.columns() * 2, self.columns() * 2 + 32),
        }
    }

    /// A type whose columns the kernels take in the same order, and for which activations have the same type.
    fn order(self) -> &'static str {
        match self {
            Format::Quant(Quant::Q4K | Quant::Q5K) => Quant::Q4K.cuda_name(),
            Format::Quant(Quant::Q2K | Quant::Q3K | Quant::Q6K) => Quant::Q6K.cuda_name(),
            // Units are consecutive.
            Format::Quant(_) => Quant::Q4_0.cuda_name(),
            Format::Plain(dtype) => dtype.name(),
        }
    }

    /// Whether weights with this address and row pitch can be read.
    pub(crate) fn fits(self, address: u64, row_bytes: usize) -> bool {
        !self.is_aligned() || (address.is_multiple_of(16) && row_bytes.is_multiple_of(16))
    }
}

impl Tile {
    /// Rows of weights.
    pub(crate) fn rows(&self) -> usize {
        (16 * self.height * self.waves[0]) as usize
    }

    /// Vectors.
    pub(crate) fn vectors(&self) -> usize {
        self.vectors as usize
    }

    /// Dynamic shared memory in bytes.
    fn shared(&self, format: Format) -> usize {
        let [_, _, deep] = self.waves.map(|waves| waves as usize);
        let vectors = self.vectors as usize;
        let stage = deep * (self.rows() * format.chunk().1 + vectors * format.columns() * 2);
        let sums = deep * vectors * (self.rows() + 4) * 4;
        (self.stages as usize * stage).max(sums)
    }

    /// The tile for a number of vectors: the smallest that has them all, or the largest that fits shared memory.
    pub(crate) fn choose(info: &DeviceInfo, format: Format, vectors: usize) -> Option<Tile> {
        let (tiles, least): (&[Tile], u32) = match info.matrix_units {
            MatrixUnits::TensorCores => (&NVIDIA, 2),
            MatrixUnits::Mfma | MatrixUnits::Wmma => (&AMD, 1),
            MatrixUnits::None => return None,
        };
        let (most, limit) = (if least == 1 { 1 } else { MAX_STAGES }, info.shared_per_block_max);
        // Fewer columns at a time, or rows, where shared memory is small.
        let fitting = |tile: &Tile| {
            let Tile { waves: [rows, vectors, deep], height, .. } = *tile;
            let sizes = [(deep, height), (deep / 2, height), (deep / 4, height), (deep, height / 2)];
            let possible = sizes.into_iter().filter(|(deep, height)| deep * height > 0);
            let mut all = possible.flat_map(|(deep, height)| (least..=most).rev().map(move |stages| (deep, height, stages)));
            let tile = |(deep, height, stages)| Tile { waves: [rows, vectors, deep], height, stages, ..*tile };
            all.find_map(|sizes| Some(tile(sizes)).filter(|tile| tile.shared(format) <= limit))
        };
        let wanted = tiles.iter().position(|tile| tile.vectors as usize >= vectors).unwrap_or(tiles.len() - 1);
        tiles[..=wanted].iter().rev().find_map(fitting)
    }
}

/// The kernel of a product, with how many blocks share the columns.
struct Plan {
    program: Program,
    rows: usize,
    vectors: usize,
    threads: u32,
    shared: usize,
    parts: usize,
}

/// A product's sizes.
#[derive(Clone, Copy)]
struct Sizes {
    rows: usize,
    vectors: usize,
    chunks: usize,
    /// Multiprocessors.
    units: usize,
}

impl Sizes {
    /// How many blocks share the columns: as many as shorten the time, and that time in microseconds, estimated for an H200. Tiles are of
    /// rows, vectors and chunks; `teraflops` is what matrix units reach.
    fn parts(&self, format: Format, tile: [usize; 3], teraflops: f64) -> (usize, f64) {
        let Sizes { rows, vectors, chunks, units } = *self;
        let [tile_rows, tile_vectors, deep] = tile;
        let steps = chunks.div_ceil(deep);
        let blocks = rows.div_ceil(tile_rows) * vectors.div_ceil(tile_vectors);
        // The share of a block on one of 132 multiprocessors of 4,000 GB/s and those teraflops.
        let read = (format.chunk().0 * deep * tile_rows) as f64 / 30e3;
        let step = read.max((format.columns() * deep * tile_rows * tile_vectors * 2) as f64 * 132.0 / (teraflops * 1e6));
        let time = |parts: usize| {
            let rounds = (blocks * parts).div_ceil(units.max(1));
            let sum = if parts == 1 { 0.0 } else { 3.0 + (parts * vectors * rows * 8) as f64 / 3e6 };
            rounds as f64 * steps.div_ceil(parts) as f64 * step + sum
        };
        let possible = (1..=MAX_PARTS.min(steps)).filter(|parts| *parts == 1 || parts * vectors * rows * 4 <= MAX_PARTIAL);
        let parts = possible.min_by(|a, b| time(*a).total_cmp(&time(*b))).unwrap_or(1);
        (parts, time(parts))
    }
}

/// Teraflops of `mma.sync` and of wgmma in these kernels, estimated.
const TERAFLOPS: f64 = 350.0;
const TERAFLOPS_SM90A: f64 = 550.0;

impl Plan {
    /// `None` if the device has no matrix units.
    fn choose(info: &DeviceInfo, quant: Quant, out: DType, sizes: Sizes) -> Option<Plan> {
        let format = Format::Quant(quant);
        let tile = Tile::choose(info, format, sizes.vectors)?;
        if sizes.vectors >= SM90A_FROM && is_sm90(info) {
            return Plan::sm90a(info, format, out, sizes);
        }
        let deep = tile.waves[2] as usize;
        let (parts, _) = sizes.parts(format, [tile.rows(), tile.vectors(), deep], TERAFLOPS);
        let (threads, shared) = (tile.waves.iter().product::<u32>() * info.wave_size, tile.shared(format));
        Some(Plan { program: program(DENSE, format, out, &tile), rows: tile.rows(), vectors: tile.vectors(), threads, shared, parts })
    }

    /// The faster of the tiles for wgmma.
    fn sm90a(info: &DeviceInfo, format: Format, out: DType, sizes: Sizes) -> Option<Plan> {
        let tiles = SM90A_VECTORS.map(|vectors| (vectors, sizes.parts(format, [SM90A_ROWS, vectors as usize, 1], TERAFLOPS_SM90A)));
        let fitting = tiles.into_iter().filter(|(vectors, _)| sm90a_shared(format, *vectors) <= info.shared_per_block_max);
        let (vectors, (parts, _)) = fitting.min_by(|a, b| a.1.1.total_cmp(&b.1.1))?;
        let program = sm90a_program(format, out, vectors);
        let shared = sm90a_shared(format, vectors);
        Some(Plan { program, rows: SM90A_ROWS, vectors: vectors as usize, threads: 256, shared, parts })
    }
}

/// Rows and vectors of the tiles of `gemm_f16_sm90a.cu`.
const SM90A_ROWS: usize = 128;
const SM90A_VECTORS: [u32; 2] = [128, 256];

/// Whether a device executes wgmma.
fn is_sm90(info: &DeviceInfo) -> bool {
    info.arch == Arch::compute_capability(9, 0)
}

/// Its shared memory: four panels aligned to 1024 bytes, two chunks of weights; later sums.
fn sm90a_shared(format: Format, vectors: u32) -> usize {
    let vectors = vectors as usize;
    1024 + (4 * vectors * 128 + 2 * SM90A_ROWS * format.chunk().1).max(vectors * (SM90A_ROWS + 4) * 4)
}

fn sm90a_program(format: Format, out: DType, vectors: u32) -> Program {
    Program::new(&GEMM_SM90A, "quant_gemm_f16_sm90a", &[format.name(), out.name()], &[("VECTORS", vectors)])
}

/// A program of `gemm_f16.cu`.
fn program(op: &'static str, format: Format, out: DType, tile: &Tile) -> Program {
    let [rows, vectors, columns] = tile.waves;
    let constants =
        [("VECTORS", tile.vectors), ("WM", rows), ("WN", vectors), ("WK", columns), ("MI", tile.height), ("STAGES", tile.stages)];
    Program::new(&GEMM, op, &[format.name(), out.name()], &constants)
}

fn pack_program(format: Format, x: DType) -> Program {
    Program::new(&PACK, "quant_pack", &[format.order(), x.name()], &[])
}

fn finish_program(out: DType) -> Program {
    Program::new(&FINISH, "quant_finish", &[out.name()], &[])
}

const DENSE: &str = "quant_gemm_f16";
const GROUPED: &str = "grouped_f16";
const GROUPED_SWIGLU: &str = "grouped_swiglu_f16";

/// Lists the programs: all types, some of the tiles.
pub(super) fn programs(quant: Quant) -> Vec<Program> {
    let format = Format::Quant(quant);
    let mut programs = vec![program(DENSE, format, DType::F32, &Tile { stages: 1, ..AMD[0] })];
    if matches!(quant, Quant::Q4_0 | Quant::Q4K | Quant::Q8_0 | Quant::Mxfp4) {
        programs.extend(NVIDIA.iter().map(|tile| program(DENSE, format, DType::Bf16, &Tile { stages: 2, ..*tile })));
        programs.extend([GROUPED, GROUPED_SWIGLU].map(|op| program(op, format, DType::Bf16, &Tile { stages: 2, ..NVIDIA[3] })));
        programs.extend(SM90A_VECTORS.map(|vectors| sm90a_program(format, DType::Bf16, vectors)));
    }
    programs
}

/// Lists the programs that do not depend on quantized weights.
pub(super) fn common_programs() -> Vec<Program> {
    let plain = [DType::F16, DType::Bf16].map(Format::Plain);
    let orders = [Quant::Q4_0, Quant::Q4K, Quant::Q6K].map(Format::Quant).into_iter().chain(plain);
    let mut programs: Vec<Program> = orders.flat_map(|format| FLOATS.map(|dtype| pack_program(format, dtype))).collect();
    programs.extend(FLOATS.map(finish_program));
    for (format, op) in plain.into_iter().flat_map(|format| [GROUPED, GROUPED_SWIGLU].map(|op| (format, op))) {
        let tiles = [Tile { stages: 1, ..AMD[0] }, Tile { stages: 2, ..NVIDIA[0] }, Tile { stages: 2, ..NVIDIA[3] }];
        programs.extend(tiles.iter().map(|tile| program(op, format, DType::Bf16, tile)));
    }
    programs
}

/// Weights of experts and their bias: the address and shape of contiguous matrices.
#[derive(Clone, Copy)]
pub(crate) struct ExpertMatrices<'a> {
    pub format: Format,
    pub codes: View<'a>,
    pub row_bytes: usize,
    pub rows: usize,
    pub columns: usize,
    pub bias: Option<View<'a>>,
}

/// A product with its operands.
pub(super) struct Operands<'a> {
    pub op: &'a str,
    pub weights: &'a QuantView<'a>,
    pub x: View<'a>,
    pub vectors: usize,
}

impl Kernels {
    /// Multiplies in f16 if the device has matrix units and the weights are aligned; returns whether it has.
    pub(super) fn product_f16(&self, stream: &Stream, work: &Operands<'_>, target: &mut ViewMut<'_>) -> Result<bool> {
        let Operands { op, weights, x, vectors } = *work;
        let info: &DeviceInfo = self.device().info();
        let [rows, columns] = weights.shape;
        let weights_row = weights.row_bytes();
        let (format, out) = (Format::Quant(weights.quant), target.dtype());
        let sizes = Sizes { rows, vectors, chunks: columns.div_ceil(format.columns()), units: info.compute_units as usize };
        let plan = Plan::choose(info, weights.quant, out, sizes).filter(|_| format.fits(weights.codes.address(), weights_row));
        let Some(Plan { program, rows: tile_rows, vectors: tile_vectors, threads, shared, parts }) = plan else { return Ok(false) };
        let groups = vectors.div_ceil(tile_vectors);
        // The second dimension of a grid is limited.
        if groups > 0xffff {
            return Ok(false);
        }
        let from = if is_sm90(info) { LIBRARY_FROM_SM90A } else { LIBRARY_FROM };
        if vectors >= from && self.product_by_library(stream, work, target)? {
            return Ok(true);
        }
        let out = target.as_view();
        let packed = self.pack(stream, op, format, &x, vectors, columns)?;
        let mut partial: Buffer<f32> = stream.alloc(if parts > 1 { parts * vectors * rows } else { 0 }).map_err(launch_error(op))?;
        let (out_row, out_stride) = row_and_column_strides(&out);
        let params = GemmParams {
            weights_row: weights_row as u64,
            out_row,
            out_stride,
            rows: rows as u32,
            units: (columns / 32) as u32,
            vectors: vectors as u32,
            chunks: sizes.chunks as u32,
            parts: parts as u32,
            prefetchable: weights.prefetchable.into(),
            share: 1,
            unused: 0,
        };
        let grid = [grid_size(op, rows.div_ceil(tile_rows))?, groups as u32, parts as u32];
        let launch = Launch::new(grid, [threads, 1, 1]).shared(shared as u32).pdl();
        let kernels = self.load(&program)?;
        let ([codes, scales, zeros], of_groups) = (weights.args(), weights.groups());
        let to = if parts > 1 { Arg::from(&mut partial) } else { Arg::from(0u64) };
        let args = (out.start(), to, codes, scales, zeros, Arg::value(&of_groups), &packed, Arg::value(&params));
        // SAFETY: the kernel takes these arguments; it reads whole blocks and packed vectors, and writes the result at its strides, or a
        // partial sum of each element and part. What it reads before the previous kernel ends is prefetchable.
        unsafe { kernels[0].launch(stream, launch, args) }.map_err(launch_error(op))?;
        if parts > 1 {
            let params = FinishParams { out_row, out_stride, rows: rows as u32, vectors: vectors as u32, parts: parts as u32, unused: 0 };
            let blocks = (rows * vectors).div_ceil(256).min(1 << 16) as u32;
            let kernels = self.load(&finish_program(out.dtype()))?;
            let launch = Launch::new([blocks, 1, 1], [256, 1, 1]).pdl();
            // SAFETY: as above; the kernel reads all partial sums and writes each element of the result once.
            unsafe { kernels[0].launch(stream, launch, (out.start(), &partial, Arg::value(&params))) }.map_err(launch_error(op))?;
        }
        Ok(true)
    }

    /// Packs rows of activations: whole chunks of 16-bit floats.
    fn pack(&self, stream: &Stream, op: &str, format: Format, x: &View<'_>, vectors: usize, columns: usize) -> Result<Buffer<u16>> {
        let (chunks, chunk) = (columns.div_ceil(format.columns()), format.columns());
        let mut packed: Buffer<u16> = stream.alloc(vectors * chunks * chunk).map_err(launch_error(op))?;
        let (x_row, x_stride) = row_and_column_strides(x);
        let params = PackParams { x_row, x_stride, vectors: vectors as u32, columns: columns as u32, chunks: chunks as u32, unused: 0 };
        let blocks = (vectors * chunks * chunk / 8).div_ceil(256).min(1 << 16) as u32;
        let kernels = self.load(&pack_program(format, x.dtype()))?;
        let launch = Launch::new([blocks, 1, 1], [256, 1, 1]).pdl();
        // SAFETY: the kernel takes these arguments; it reads x at its strides and writes whole chunks of all vectors.
        unsafe { kernels[0].launch(stream, launch, (&mut packed, x.start(), Arg::value(&params))) }.map_err(launch_error(op))?;
        Ok(packed)
    }

    /// The grouped product of checked operands on matrix units: of one matrix per expert, or silu(first) · second. The tiles have the
    /// vectors of `tile`; assignment `i` has row `i / share` of x.
    pub(crate) fn grouped_product_f16(
        &self,
        stream: &Stream,
        op: &str,
        tile: &Tile,
        matrices: &[ExpertMatrices<'_>],
        [order, tiles, x, out]: [View<'_>; 4],
    ) -> Result<()> {
        let first = &matrices[0];
        let second = matrices.last().filter(|_| matrices.len() > 1);
        let ([x_rows, count, assignments], columns) = ([x, tiles, out].map(|view| view.layout().shape()[0]), first.columns);
        let packed = self.pack(stream, op, first.format, &x, x_rows, columns)?;
        let params = GemmParams {
            weights_row: first.row_bytes as u64,
            out_row: out.layout().strides()[0] as u64,
            out_stride: 1,
            rows: first.rows as u32,
            units: columns.div_ceil(32) as u32,
            vectors: assignments as u32,
            chunks: columns.div_ceil(first.format.columns()) as u32,
            parts: 1,
            prefetchable: 0,
            share: (assignments / x_rows) as u32,
            unused: 0,
        };
        let program = program(if second.is_some() { GROUPED_SWIGLU } else { GROUPED }, first.format, out.dtype(), tile);
        let kernels = self.load(&program)?;
        let grid = [grid_size(op, (first.rows * matrices.len()).div_ceil(tile.rows()))?, count as u32, 1];
        let threads = tile.waves.iter().product::<u32>() * self.device().info().wave_size;
        let launch = Launch::new(grid, [threads, 1, 1]).shared(tile.shared(first.format) as u32).pdl();
        let args = (
            out.start(),
            first.codes.start(),
            pointer(second.map(|second| second.codes)),
            &packed,
            order.start(),
            tiles.start(),
            pointer(first.bias),
            pointer(second.and_then(|second| second.bias)),
            Arg::value(&params),
        );
        // SAFETY: the kernel was compiled for these types and this tile; shapes were checked, and the tiles are those of `moe_sort`, whose
        // experts and assignments are in range.
        unsafe { kernels[0].launch(stream, launch, args) }.map_err(launch_error(op))
    }

    /// Dequantizes to the type of `x` and multiplies with the library; returns false for types or devices it is not for.
    fn product_by_library(&self, stream: &Stream, work: &Operands<'_>, target: &mut ViewMut<'_>) -> Result<bool> {
        let Operands { op, weights, x, vectors } = *work;
        let dtype = x.dtype();
        let fits = matches!(dtype, DType::F16 | DType::Bf16) && [dtype, DType::F32].contains(&target.dtype());
        if !fits || self.matmul_library().is_err() {
            return Ok(false);
        }
        let [rows, columns] = weights.shape;
        let mut plain: Buffer<u8> = stream.alloc(2 * rows * columns).map_err(launch_error(op))?;
        let layout = Layout::contiguous(&[rows, columns])?;
        self.dequantize(stream, weights, &mut ViewMut::of_bytes(&mut plain, dtype, layout)?)?;
        let plain = View::of_bytes(&plain, dtype, layout.transpose(0, 1)?)?;
        debug_assert_eq!(x.layout().shape(), [vectors, columns]);
        self.matmul(stream, &Matmul::new(), &x, &plain, target)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_a_tile_that_fits() {
        for (arch, shared) in [("gfx90a", 64), ("gfx1100", 64), ("sm_80", 163), ("sm_89", 99), ("sm_90", 227)] {
            let info = DeviceInfo { shared_per_block_max: shared << 10, ..DeviceInfo::of_arch(arch.parse().unwrap()) };
            for quant in Quant::ALL {
                for vectors in [2, 16, 17, 64, 100, 1000] {
                    let format = Format::Quant(quant);
                    let tile = Tile::choose(&info, format, vectors).unwrap_or_else(|| panic!("{arch} {quant} {vectors}"));
                    assert!(tile.shared(format) <= shared << 10, "{arch} {quant}: {tile:?}");
                }
            }
        }
        assert_eq!(Tile::choose(&DeviceInfo::of_arch("sm_75".parse().unwrap()), Format::Quant(Quant::Q4K), 8), None);
    }

    #[test]
    fn weights_of_experts_have_tiles_for_few_and_many() {
        for (arch, shared) in [("gfx90a", 64), ("sm_80", 163), ("sm_89", 99), ("sm_90", 227)] {
            let info = DeviceInfo { shared_per_block_max: shared << 10, ..DeviceInfo::of_arch(arch.parse().unwrap()) };
            let tile = |vectors| Tile::choose(&info, Format::Plain(DType::Bf16), vectors).unwrap().vectors();
            assert_eq!(tile(1), 16, "{arch}");
            assert!(tile(1000) >= 64, "{arch}");
            // Tiles of a size suit as many vectors.
            assert_eq!(tile(tile(1000)), tile(1000));
        }
    }

    #[test]
    fn few_rows_share_the_columns() {
        let parts =
            |rows| Sizes { rows, vectors: 128, chunks: 32, units: 132 }.parts(Format::Quant(Quant::Q4K), [128, 128, 1], TERAFLOPS).0;
        assert!(parts(1024) > 2);
        assert_eq!(parts(1 << 17), 1);
    }

    #[test]
    fn tiles_for_wgmma_fit() {
        for format in Quant::ALL.map(Format::Quant) {
            assert!(SM90A_VECTORS.iter().all(|vectors| sm90a_shared(format, *vectors) <= 227 << 10), "{format:?}");
        }
    }
}
