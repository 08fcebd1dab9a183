//! Cumulative sums (scan).

use bytemuck::{Pod, Zeroable};
use warpwave_gpu::{Arg, Launch, Stream};

use crate::common::rows::{Dim, PACK, RowDims, count, merged, packs_are_aligned};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::{Kernels, dtype_error, launch_error, shape_error};
use crate::matmul::has_mma;
use crate::program::{Program, SourceFile, source_file};
use crate::reduce::{Reduce, bad};
use crate::view::{View, ViewMut};

static SCAN: SourceFile = source_file!("reduce/scan.cu", &["_rows", "_rows_scalar", "_columns", "_columns_scalar"]);

const OP: &str = "cumsum";
/// The most threads of a block, and the fewest where a block has rows of its own.
const THREADS: usize = 256;
const FEWEST: usize = 128;
/// Strided rows are scanned side by side from this many adjacent rows on.
const MIN_ADJACENT_ROWS: usize = 32;
/// The most threads across adjacent rows.
const ACROSS: usize = 8;
/// Vectors per thread along a row, and below one another, in registers or in shared memory; and parts of adjacent rows per look-back group,
/// as in the kernels.
const ALONG: usize = 8;
const BELOW: usize = 16;
const QUEUED: usize = 16;
/// For fp8, whose rounding takes many of AMD's scalar registers.
const FEW: usize = 2;
const GROUP: usize = 16;
/// The most blocks in a grid's first dimension.
const MAX_BLOCKS: usize = 1 << 30;

/// Parameters of the kernels.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct ScanParams {
    n: u64,
    parts: u64,
    in_stride: u64,
    out_stride: u64,
    row_dims: RowDims,
}

/// Vectors per thread along a row, and below one another.
fn packs(from: DType, to: DType) -> [usize; 2] {
    let few = [from, to].iter().any(|dtype| matches!(dtype, DType::F8E4M3 | DType::F8E5M2));
    if few { [FEW; 2] } else { [ALONG, BELOW] }
}

fn program(from: DType, to: DType) -> Program {
    let [along, below] = packs(from, to).map(|packs| packs as u32);
    let constants = [("ROW_PACKS", along), ("COLUMN_PACKS", below), ("ASYNC_PACKS", QUEUED as u32), ("ACROSS", ACROSS as u32)];
    Program::new(&SCAN, OP, &[from.name(), to.name()], &constants)
}

impl Kernels {
    /// Computes the cumulative sum along an axis. The types are those of [`Reduce::Sum`].
    pub fn cumsum(&self, stream: &Stream, x: &View<'_>, axis: usize, out: &mut ViewMut<'_>) -> Result<()> {
        let (from, to, view) = (x.dtype(), out.dtype(), out.as_view());
        let known = Reduce::Sum.results(from);
        if !known.contains(&to) {
            let known: Vec<_> = known.iter().map(|dtype| dtype.name()).collect();
            return Err(dtype_error(OP, "result", to, known.join(" or ")));
        }
        self.check_devices(OP, stream, [("result", view), ("input", *x)].into_iter())?;
        let shape = x.layout().shape();
        if axis >= shape.len() {
            return Err(bad(OP, format!("dimension {axis} is out of range for shape {shape:?}")));
        }
        if view.layout().shape() != shape {
            return Err(shape_error(OP, "result", &view, format!("{shape:?}")));
        }
        if x.overlaps(&view) {
            return Err(Error::Overlap { op: OP.to_owned(), what: "input overlaps the result".to_owned() });
        }
        if view.layout().is_empty() {
            return Ok(());
        }
        let dim = |d: usize| Dim { size: shape[d], strides: [x.layout().strides()[d], view.layout().strides()[d], 0] };
        let (along, around) = (dim(axis), merged((0..shape.len()).rev().filter(|d| *d != axis).map(dim), true));
        let lines = count(&around);
        // Adjacent rows are scanned side by side, unless rows are contiguous.
        let side = along.strides[0] != 1 && lines >= MIN_ADJACENT_ROWS;
        let mut dims = around;
        // The vectorized dimension: adjacent rows, or a row's own elements.
        let vectorized = if side { dims[0] } else { along };
        let others = if side { [&dims[1..], &[along]].concat() } else { dims.clone() };
        let mut width = PACK / from.size().max(to.size()).max(2);
        let fits = |k: usize, view: &View<'_>| {
            vectorized.strides[k] == 1 && packs_are_aligned(k, view.address(), view.dtype().size(), width, &others)
        };
        let packed = vectorized.size.is_multiple_of(width) && fits(0, x) && fits(1, &view);
        if !packed {
            width = 1;
        }
        if side {
            dims[0] = Dim { size: vectorized.size / width, strides: vectorized.strides.map(|stride| stride * width) };
        }
        // Full vectors are copied asynchronously.
        let queues = side && packed && from.size() * width == PACK && has_mma(self.device().info());
        let [each_along, each_below] = packs(from, to);
        let each_below = if queues { QUEUED } else { each_below };
        let (row_dims, packs) = (RowDims::over(&dims), along.size.div_ceil(if side { each_below } else { each_along * width }));
        let rows = row_dims.n as usize;
        // The block shape, parts of a row, look-back group size, and number of blocks.
        let (block, parts, group, blocks) = if side {
            let across = rows.next_power_of_two().min(ACROSS);
            let parts = packs.div_ceil(THREADS / across);
            ([across, THREADS / across], parts, GROUP, rows.div_ceil(across) * parts)
        } else {
            let team = packs.next_power_of_two().min(THREADS);
            let (teams, parts) = ((FEWEST / team).max(1), packs.div_ceil(team));
            ([team, teams], parts, team, (rows * parts).div_ceil(teams))
        };
        let params = ScanParams {
            n: along.size as u64,
            parts: parts as u64,
            in_stride: along.strides[0] as u64,
            out_stride: along.strides[1] as u64,
            row_dims,
        };
        // Flagged words for the sum of each part and the prefix of each group, after a counter, as in the kernels.
        let posts = rows * (parts + parts / group) * if side { width } else { 1 };
        let words = if parts > 1 { 2 + posts * to.size().div_ceil(4) } else { 0 };
        let mut words = stream.alloc_zeroed::<u64>(words).map_err(launch_error(OP))?;
        let words = if parts > 1 { Arg::from(&mut words) } else { Arg::from(0u64) };
        let grid = [blocks.min(MAX_BLOCKS) as u32, blocks.div_ceil(MAX_BLOCKS) as u32, 1];
        let shared = if queues { QUEUED * THREADS * PACK } else { 0 };
        let launch = Launch::new(grid, [block[0] as u32, block[1] as u32, 1]).shared(shared as u32);
        let kernel = &self.load(&program(from, to))?[2 * usize::from(side) + usize::from(!packed)];
        // SAFETY: the kernels were compiled for these types and take these arguments; all views were checked against their memory, each
        // element of the result is written once, and there is space for every look-back word.
        unsafe { kernel.launch(stream, launch, (x.start(), view.start(), words, Arg::value(&params))) }.map_err(launch_error(OP))
    }
}

/// Lists the programs.
pub(crate) fn programs() -> Vec<Program> {
    DType::COMPUTE.into_iter().flat_map(|from| Reduce::Sum.results(from).into_iter().map(move |to| program(from, to))).collect()
}
