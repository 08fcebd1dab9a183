//! Running sums.

use bytemuck::{Pod, Zeroable};
use warpwave_gpu::{Arg, Launch, Stream};

use crate::dtype::DType;
use crate::elementwise::{PACK as PACK_TEXT, TYPES};
use crate::error::{Error, Result};
use crate::kernels::{Kernels, refused, wrong_shape, wrong_type};
use crate::reduce::{Reduce, TEAM, bad};
use crate::source::{File, Recipe};
use crate::view::{View, ViewMut};
use crate::walk::{Dim, Walk, count, merged};

static SCAN: File =
    File { name: "scan.cu", texts: &[TYPES, PACK_TEXT, TEAM, include_str!("cu/scan.cu")], kernels: &["_lines", "_side", "_carry"] };

const OP: &str = "cumsum";
/// Threads of a block.
const BLOCK: usize = 256;
/// Elements of a part at least.
const PART: usize = 8192;
/// The same where a thread walks them alone.
const PART_OF_A_THREAD: usize = 512;
/// Blocks that keep a multiprocessor busy.
const ENOUGH: usize = 8;
/// Blocks in the second dimension of a grid.
const MOST_DOWN: usize = 65535;

/// As the struct of the kernels.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Job {
    n: u64,
    part: u64,
    parts: u64,
    step_in: u64,
    step_out: u64,
    results: u64,
    walk: Walk,
}

fn recipe(from: DType, to: DType) -> Recipe {
    Recipe::new(&SCAN, OP, &[from.name(), to.name()], &[])
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
        let side = along.strides[0] != 1 && lines >= 32;
        let enough = self.device().info().compute_units as usize * ENOUGH;
        let (blocks, least, most) = if side { (lines.div_ceil(BLOCK), PART_OF_A_THREAD, MOST_DOWN) } else { (lines, PART, usize::MAX) };
        let wanted = (enough / blocks).min(along.size / least).clamp(1, most);
        let part = along.size.div_ceil(wanted).next_multiple_of(64);
        let parts = along.size.div_ceil(part);
        let [n, part, parts_wide, step_in, step_out] = [along.size, part, parts, along.strides[0], along.strides[1]].map(|n| n as u64);
        let job = |results| Job { n, part, parts: parts_wide, step_in, step_out, results, walk: Walk::over(&around) };
        let launch = match side {
            true => Launch::new([blocks as u32, parts as u32, 1], [BLOCK as u32, 1, 1]),
            false => Launch::new([(lines * parts).min(1 << 30) as u32, 1, 1], [BLOCK as u32, 1, 1]),
        };
        let kernels = self.load(&recipe(from, to))?;
        let kernel = &kernels[usize::from(side)];
        let mut sums = stream.alloc::<u64>(if parts > 1 { lines * parts } else { 0 }).map_err(refused(OP))?;
        let target = view.start();
        let sums_of_parts = if parts > 1 { Arg::from(&mut sums) } else { Arg::from(0u64) };
        if parts > 1 {
            let carry = Launch::new([lines.min(1 << 30) as u32, 1, 1], [BLOCK as u32, 1, 1]);
            // SAFETY: the kernels were made for these types and take these arguments; the walk reaches the places of the views, which
            // were checked against their memory when they were made, and there is room for the sum of each part.
            unsafe {
                kernel.launch(stream, launch, (x.start(), target, sums_of_parts, Arg::value(&job(0)))).map_err(refused(OP))?;
                kernels[2].launch(stream, carry, (sums_of_parts, Arg::value(&job(0)))).map_err(refused(OP))?;
            }
        }
        // SAFETY: as above; each place of the result is written once.
        unsafe { kernel.launch(stream, launch, (x.start(), target, sums_of_parts, Arg::value(&job(1)))) }.map_err(refused(OP))
    }
}

/// Every program of these operations.
pub(crate) fn recipes() -> Vec<Recipe> {
    DType::ALL.into_iter().flat_map(|from| Reduce::Sum.results(from).into_iter().map(move |to| recipe(from, to))).collect()
}
