//! Running sums.

use bytemuck::{Pod, Zeroable};
use warpwave_gpu::{Arg, Launch, Stream};

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::headers;
use crate::kernels::{Kernels, refused, wrong_shape, wrong_type};
use crate::matmul::has_mma;
use crate::reduce::{Reduce, bad};
use crate::source::{File, Recipe};
use crate::view::{View, ViewMut};
use crate::walk::{Dim, PACK, Walk, count, merged, packs_fit};

static SCAN: File = File {
    name: "scan.cu",
    texts: &[headers::TYPES, headers::PACK, headers::TEAM, include_str!("cu/scan.cu")],
    kernels: &["_lines", "_lines_single", "_side", "_side_single"],
};

const OP: &str = "cumsum";
/// Threads of a block at most, and at least where they have lines for themselves.
const THREADS: usize = 256;
const FEWEST: usize = 128;
/// Neighbouring lines that are walked together at least.
const NEIGHBOURS: usize = 32;
/// Threads beside each other that walk them at most.
const ACROSS: usize = 8;
/// Packs of a thread along a line, and below one another, in registers or in shared memory; and parts of neighbouring lines whose sums are
/// posted one by one: as in the kernels.
const ALONG: usize = 8;
const BELOW: usize = 16;
const QUEUED: usize = 16;
/// Of fp8, whose roundings take many scalar registers of AMD's.
const FEW: usize = 2;
const GROUP: usize = 16;
/// Blocks in a grid's first direction.
const MOST_BLOCKS: usize = 1 << 30;

/// As the struct of the kernels.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Job {
    n: u64,
    parts: u64,
    step_in: u64,
    step_out: u64,
    walk: Walk,
}

/// Packs of a thread along a line, and below one another.
fn packs(from: DType, to: DType) -> [usize; 2] {
    let few = [from, to].iter().any(|dtype| matches!(dtype, DType::F8E4M3 | DType::F8E5M2));
    if few { [FEW; 2] } else { [ALONG, BELOW] }
}

fn recipe(from: DType, to: DType) -> Recipe {
    let [along, below] = packs(from, to).map(|packs| packs as u32);
    let numbers = [("ALONG", along), ("BELOW", below), ("QUEUED", QUEUED as u32), ("ACROSS", ACROSS as u32)];
    Recipe::new(&SCAN, OP, &[from.name(), to.name()], &numbers)
}

impl Kernels {
    /// Each element of the result is the sum of all up to it along an axis. The types are those of [`Reduce::Sum`].
    pub fn cumsum(&self, stream: &Stream, x: &View<'_>, axis: usize, out: &mut ViewMut<'_>) -> Result<()> {
        let (from, to, view) = (x.dtype(), out.dtype(), out.as_view());
        let known = Reduce::Sum.results(from);
        if !known.contains(&to) {
            let known: Vec<_> = known.iter().map(|dtype| dtype.name()).collect();
            return Err(wrong_type(OP, "the result", to, known.join(" or ")));
        }
        self.check_devices(OP, stream, [("the result", view), ("the input", *x)].into_iter())?;
        let shape = x.layout().shape();
        if axis >= shape.len() {
            return Err(bad(OP, format!("there is no axis {axis} in the shape {shape:?}")));
        }
        if view.layout().shape() != shape {
            return Err(wrong_shape(OP, "the result", &view, format!("the input has {shape:?}")));
        }
        if x.overlaps(&view) {
            return Err(Error::Overlap { op: OP.to_owned(), what: "the input overlaps the result".to_owned() });
        }
        if view.layout().is_empty() {
            return Ok(());
        }
        let dim = |d: usize| Dim { size: shape[d], strides: [x.layout().strides()[d], view.layout().strides()[d], 0] };
        let (along, around) = (dim(axis), merged((0..shape.len()).rev().filter(|d| *d != axis).map(dim), true));
        let lines = count(&around);
        // Neighbouring lines are walked together, unless the elements of one are neighbours.
        let side = along.strides[0] != 1 && lines >= NEIGHBOURS;
        let mut dims = around;
        // What lies in packs: the lines beside one another, or a line's own elements.
        let beside = if side { dims[0] } else { along };
        let apart = if side { [&dims[1..], &[along]].concat() } else { dims.clone() };
        let mut width = PACK / from.size().max(to.size()).max(2);
        let fits = |k: usize, view: &View<'_>| beside.strides[k] == 1 && packs_fit(k, view.address(), view.dtype().size(), width, &apart);
        let packed = beside.size.is_multiple_of(width) && fits(0, x) && fits(1, &view);
        if !packed {
            width = 1;
        }
        if side {
            dims[0] = Dim { size: beside.size / width, strides: beside.strides.map(|stride| stride * width) };
        }
        // Copies of whole packs go on by themselves.
        let queues = side && packed && from.size() * width == PACK && has_mma(self.device().info());
        let [each_along, each_below] = packs(from, to);
        let each_below = if queues { QUEUED } else { each_below };
        let (walk, packs) = (Walk::over(&dims), along.size.div_ceil(if side { each_below } else { each_along * width }));
        let rows = walk.n as usize;
        // Blocks of (threads beside each other, others), parts of a line and what is posted together, and the blocks for all.
        let (block, parts, group, blocks) = if side {
            let across = rows.next_power_of_two().min(ACROSS);
            let parts = packs.div_ceil(THREADS / across);
            ([across, THREADS / across], parts, GROUP, rows.div_ceil(across) * parts)
        } else {
            let team = packs.next_power_of_two().min(THREADS);
            let (teams, parts) = ((FEWEST / team).max(1), packs.div_ceil(team));
            ([team, teams], parts, team, (rows * parts).div_ceil(teams))
        };
        let job =
            Job { n: along.size as u64, parts: parts as u64, step_in: along.strides[0] as u64, step_out: along.strides[1] as u64, walk };
        // Words with flags for the sums of each part, and of all before each group of them, behind a counter: as in the kernels.
        let posts = rows * (parts + parts / group) * if side { width } else { 1 };
        let words = if parts > 1 { 2 + posts * to.size().div_ceil(4) } else { 0 };
        let mut words = stream.alloc_zeroed::<u64>(words).map_err(refused(OP))?;
        let words = if parts > 1 { Arg::from(&mut words) } else { Arg::from(0u64) };
        let grid = [blocks.min(MOST_BLOCKS) as u32, blocks.div_ceil(MOST_BLOCKS) as u32, 1];
        let shared = if queues { QUEUED * THREADS * PACK } else { 0 };
        let launch = Launch::new(grid, [block[0] as u32, block[1] as u32, 1]).shared(shared as u32);
        let kernel = &self.load(&recipe(from, to))?[2 * usize::from(side) + usize::from(!packed)];
        // SAFETY: the kernels were made for these types and take these arguments; the walk reaches the places of the views, which were
        // checked against their memory when they were made, each place of the result once, and there is room for every post.
        unsafe { kernel.launch(stream, launch, (x.start(), view.start(), words, Arg::value(&job))) }.map_err(refused(OP))
    }
}

/// Every program of these operations.
pub(crate) fn recipes() -> Vec<Recipe> {
    DType::ALL.into_iter().flat_map(|from| Reduce::Sum.results(from).into_iter().map(move |to| recipe(from, to))).collect()
}
