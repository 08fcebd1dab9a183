//! Reductions.

pub(crate) mod scan;

use bytemuck::{Pod, Zeroable};
use warpwave_gpu::{Arg, Launch, Stream};

use crate::common::rows::{Dim, PACK, RowDims, count, merged, packs_are_aligned};
use crate::dtype::{DType, Scalar};
use crate::error::{Error, Result};
use crate::kernels::{Kernels, check_no_overlap, dtype_error, launch_error, shape_error};
use crate::layout::Layout;
use crate::program::{Program, SourceFile, source_file};
use crate::view::{View, ViewMut};

static REDUCE: SourceFile = source_file!("reduce/reduce.cu", &["_rows", "_columns", "_column", "_any", "_finish"]);

/// A reduction.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Reduce {
    /// Sum. Integers wrap and may yield `i64`; f16, bf16 and fp8 are accumulated in f32 and may yield it.
    Sum,
    /// Product, with the same types.
    Prod,
    /// Minimum; NaN if any is NaN.
    Min,
    /// Maximum; NaN if any is NaN.
    Max,
    /// Index of the minimum, or of the first NaN; the first of equals. `u32` or `i64`.
    ArgMin,
    /// Index of the maximum, or of the first NaN; the first of equals.
    ArgMax,
    /// Whether any element is not 0, as a `u8` of 0 or 1.
    Any,
    /// Whether all elements are not 0.
    All,
    /// Mean of floats; f16, bf16 and fp8 may yield f32.
    Mean,
    /// Variance, likewise: the sum of squared deviations divided by the count minus this correction.
    Var(f64),
}

impl Reduce {
    /// All reductions, with example parameters.
    pub const ALL: [Reduce; 10] = [
        Reduce::Sum,
        Reduce::Prod,
        Reduce::Min,
        Reduce::Max,
        Reduce::ArgMin,
        Reduce::ArgMax,
        Reduce::Any,
        Reduce::All,
        Reduce::Mean,
        Reduce::Var(1.0),
    ];

    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Reduce::Sum => "sum",
            Reduce::Prod => "prod",
            Reduce::Min => "min",
            Reduce::Max => "max",
            Reduce::ArgMin => "argmin",
            Reduce::ArgMax => "argmax",
            Reduce::Any => "any",
            Reduce::All => "all",
            Reduce::Mean => "mean",
            Reduce::Var(_) => "var",
        }
    }

    /// The supported result types for an element type; empty if unsupported.
    pub fn results(self, dtype: DType) -> Vec<DType> {
        let wider = match dtype {
            DType::U8 | DType::I16 | DType::I32 | DType::U32 => Some(DType::I64),
            DType::F16 | DType::Bf16 | DType::F8E4M3 | DType::F8E5M2 => Some(DType::F32),
            _ => None,
        };
        match self {
            Reduce::Mean | Reduce::Var(_) if dtype.is_integer() => vec![],
            Reduce::Sum | Reduce::Prod | Reduce::Mean | Reduce::Var(_) => std::iter::once(dtype).chain(wider).collect(),
            Reduce::Min | Reduce::Max => vec![dtype],
            Reduce::ArgMin | Reduce::ArgMax => vec![DType::U32, DType::I64],
            Reduce::Any | Reduce::All => vec![DType::U8],
        }
    }

    /// Whether the result is an index.
    fn is_index(self) -> bool {
        matches!(self, Reduce::ArgMin | Reduce::ArgMax)
    }

    /// The result for no elements; `None` for indices and extrema.
    fn of_nothing(self) -> Option<Scalar> {
        match self {
            Reduce::Sum | Reduce::Any => Some(Scalar::Int(0)),
            Reduce::Prod | Reduce::All => Some(Scalar::Int(1)),
            Reduce::Mean | Reduce::Var(_) => Some(Scalar::Float(f64::NAN)),
            _ => None,
        }
    }

    fn program(self, from: DType, to: DType) -> Program {
        Program::new(&REDUCE, self.name(), &[from.name(), to.name()], &[("UNROLL", 4)])
    }
}

/// Parameters of the kernels.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
struct Job {
    n: u64,
    part: u64,
    parts: u64,
    outer: u64,
    step: u64,
    across: u64,
    divisor: f64,
    row_dims: RowDims,
}

/// The most bytes of a partial result: count, mean and squares in f64.
const KNOWN: usize = 24;
/// Threads of a block.
const BLOCK: usize = 256;
/// Blocks that saturate a multiprocessor.
const ENOUGH: usize = 4;
/// Bytes that are worth a block of their own.
const WORTH_A_BLOCK: usize = 32 << 10;
/// The most elements of a part: 32 bits count them.
const MOST_OF_A_PART: usize = 1 << 30;
/// The most blocks in the second dimension of a grid.
const MOST_DOWN: usize = 65535;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Variant {
    Rows,
    /// Vectorized or scalar.
    Columns {
        packs: bool,
    },
    Any,
}

/// The launches of a reduction; the second merges the partial results of the first, `known` of them.
#[derive(Debug, Clone, PartialEq)]
struct Plan {
    variant: Variant,
    /// The reduced dimensions, if there are several.
    within: RowDims,
    job: Job,
    launch: Launch,
    known: usize,
    finish: Option<(Job, Launch)>,
}

/// A power of two, no larger than useful.
fn lanes(useful: usize, most: usize) -> usize {
    useful.clamp(1, most).next_power_of_two().min(most)
}

/// Whole warps of rows, one row per team of threads.
fn teams(team: usize, rows: usize) -> Launch {
    let per_block = (BLOCK / team).max(1);
    let blocks = rows.div_ceil(per_block).clamp(1, 1 << 30);
    Launch::new([blocks as u32, 1, 1], [team as u32, per_block as u32, 1])
}

/// Returns size and number of parts of `n` elements, given the blocks without parts and the blocks that saturate the device; a part has at
/// least `worth` elements.
fn parts(n: usize, blocks: usize, enough: usize, worth: usize, most: usize) -> (usize, usize) {
    let wanted = (enough / blocks.max(1)).min(n / worth.max(1)).clamp(1, most);
    let part = n.div_ceil(wanted).next_multiple_of(if wanted > 1 { 64 } else { 1 }).clamp(1, MOST_OF_A_PART);
    (part, n.div_ceil(part).max(1))
}

/// Plans a reduction of an input at an address with elements of `size` bytes. Dimensions come innermost first, with the strides of the
/// input and the result.
fn plan(kept: &[Dim], reduced: &[Dim], address: u64, size: usize, index: bool, divisor: f64, enough: usize) -> Plan {
    let results = count(kept);
    let width = PACK / size;
    let lone = [Dim { size: 1, strides: [0; 3] }];
    let reduced = if reduced.is_empty() { &lone[..] } else { reduced };
    let within = RowDims::over(reduced);
    let job = |n, (part, parts): (usize, usize), outer, step, across, row_dims| {
        let [n, part, parts, outer, step, across] = [n, part, parts, outer, step, across].map(|number| number as u64);
        Job { n, part, parts, outer, step, across, divisor, row_dims }
    };
    let finish = |items: usize, step, across, team| {
        let finish = job(items, (0, 1), 1, step, across, RowDims::over(kept));
        (finish, teams(team, results))
    };
    let row = reduced[0];
    if row.strides[0] == 1 && (reduced.len() == 1 || row.size >= 32) {
        let outer = count(&reduced[1..]);
        let rows = results * outer;
        // Many vectors per thread, if there are rows enough for all threads: merging costs more than accumulating.
        let packs = row.size.div_ceil(width);
        let few = lanes((enough * BLOCK).div_ceil(rows), BLOCK);
        let team = lanes(packs / 64, 128).max(8).max(few.min(lanes(packs / 4, BLOCK))).min(lanes(packs, BLOCK));
        let (part, parts) = parts(row.size, rows.div_ceil(BLOCK / team), enough, WORTH_A_BLOCK / size, usize::MAX);
        let job = job(row.size, (part, parts), outer, 1, 1, RowDims::over(reduced[1..].iter().chain(kept)));
        let items = outer * parts;
        let known = if items > 1 { rows * parts } else { 0 };
        let finish = (items > 1).then(|| finish(items, 1, items, lanes(items / 4, BLOCK)));
        return Plan { variant: Variant::Rows, within, job, launch: teams(team, rows * parts), known, finish };
    }
    if let Some(columns) = kept.first().filter(|columns| columns.strides[0] == 1) {
        // Indices count the innermost dimension first; otherwise the longest dimension is iterated.
        let down = if index { 0 } else { (0..reduced.len()).rev().max_by_key(|d| reduced[*d].size).unwrap_or(0) };
        let others: Vec<Dim> = (0..reduced.len()).filter(|d| *d != down).map(|d| reduced[d]).collect();
        let (outer, down) = (count(&others), reduced[down]);
        let wide = width.min(8);
        let packs = wide > 1
            && columns.size.is_multiple_of(wide)
            && packs_are_aligned(0, address, size, wide, kept[1..].iter().chain(&others).chain([&down]));
        let wide = if packs { wide } else { 1 };
        let mut around = kept.to_vec();
        around[0] = Dim { size: columns.size / wide, strides: columns.strides.map(|stride| stride * wide) };
        let all = results / wide * outer;
        let side = lanes(all.min(around[0].size), 32);
        let block = [side, BLOCK / side];
        let tiles = all.div_ceil(side);
        let (part, parts) = parts(down.size, tiles, enough, (WORTH_A_BLOCK / size).div_ceil(side * wide).max(4 * block[1]), MOST_DOWN);
        let mut row_dims = RowDims::over(around.iter().chain(&others));
        row_dims.n = (results / wide) as u64;
        let job = job(down.size, (part, parts), outer, down.strides[0], columns.strides[1], row_dims);
        let items = outer * parts;
        let known = if items > 1 { results * items } else { 0 };
        let finish = (items > 1).then(|| finish(items, results, 1, lanes(items / 4, 32)));
        // A grid that is too large is rejected by the launch.
        let [tiles, parts] = [tiles, parts].map(|n| u32::try_from(n).unwrap_or(u32::MAX));
        let launch = Launch::new([tiles, parts, 1], [block[0] as u32, block[1] as u32, 1]);
        return Plan { variant: Variant::Columns { packs }, within, job, launch, known, finish };
    }
    let n = count(reduced);
    let team = lanes(n, BLOCK);
    let (part, parts) = parts(n, results.div_ceil(BLOCK / team), enough, WORTH_A_BLOCK / size, usize::MAX);
    let known = if parts > 1 { results * parts } else { 0 };
    let finish = (parts > 1).then(|| finish(parts, 1, parts, lanes(parts / 4, BLOCK)));
    let job = job(n, (part, parts), 1, 1, 1, RowDims::over(kept));
    Plan { variant: Variant::Any, within, job, launch: teams(team, results * parts), known, finish }
}

/// Marks the reduced axes; fails if one is out of range or repeated.
fn chosen(op: &str, layout: &Layout, axes: &[usize]) -> Result<Vec<bool>> {
    let mut chosen = vec![false; layout.shape().len()];
    for axis in axes {
        match chosen.get_mut(*axis) {
            Some(chosen) if !*chosen => *chosen = true,
            Some(_) => return Err(bad(op, format!("dimension {axis} is given twice"))),
            None => return Err(bad(op, format!("dimension {axis} is out of range for shape {:?}", layout.shape()))),
        }
    }
    Ok(chosen)
}

pub(crate) fn bad(op: &str, reason: String) -> Error {
    Error::BadArgument { op: op.to_owned(), reason }
}

impl Kernels {
    /// Computes `out = op(x)` over these axes, in any order; with no axes each element is reduced by itself.
    ///
    /// The result has the input's shape without the axes, or with size 1 there. An index counts along the reduced axes in row-major order.
    ///
    /// The order of float additions depends only on the layout and the device: results are deterministic.
    pub fn reduce(&self, stream: &Stream, op: Reduce, x: &View<'_>, axes: &[usize], out: &mut ViewMut<'_>) -> Result<()> {
        let (name, from, to) = (op.name(), x.dtype(), out.dtype());
        let known = op.results(from);
        if known.is_empty() {
            return Err(dtype_error(name, "input", from, "a float"));
        }
        if !known.contains(&to) {
            let known: Vec<_> = known.iter().map(|dtype| dtype.name()).collect();
            return Err(dtype_error(name, "result", to, known.join(" or ")));
        }
        let view = out.as_view();
        self.check_devices(name, stream, [("result", view), ("input", *x)].into_iter())?;
        let chosen = chosen(name, x.layout(), axes)?;
        let (kept, reduced) = dims(name, x, &view, &chosen)?;
        check_no_overlap(name, "input", x, &view)?;
        if view.layout().is_empty() {
            return Ok(());
        }
        let n = count(&reduced);
        if n == 0 {
            let Some(value) = op.of_nothing() else { return Err(bad(name, format!("shape {:?} has no elements", x.layout().shape()))) };
            return self.fill(stream, value, out);
        }
        if op.is_index() && to == DType::U32 && u32::try_from(n - 1).is_err() {
            return Err(dtype_error(name, "result", to, "i64 (more elements than u32 can index)"));
        }
        // Broadcast inputs may have more elements than a launch and its parts can count.
        if x.layout().len() > 1 << 48 {
            return Err(bad(name, format!("{} elements exceed the limit of 2^48", x.layout().len())));
        }
        let (kept, reduced) = (merged(kept, true), merged(reduced, !op.is_index()));
        let correction = if let Reduce::Var(correction) = op { correction } else { 0.0 };
        let enough = self.device().info().compute_units as usize * ENOUGH;
        let plan = plan(&kept, &reduced, x.address(), from.size(), op.is_index(), n as f64 - correction, enough);
        let kernels = self.load(&op.program(from, to))?;
        let mut known = stream.alloc::<u8>(plan.known * KNOWN).map_err(launch_error(name))?;
        let to = Arg::from(view.start());
        let parts = if plan.known > 0 { Arg::from(&mut known) } else { Arg::from(0u64) };
        let args = (x.start(), to, parts, Arg::value(&plan.job));
        // SAFETY: the kernels were compiled for these types and take these arguments; all views were checked against their memory, and
        // there is space for every partial result.
        let launched = unsafe {
            match plan.variant {
                Variant::Rows => kernels[0].launch(stream, plan.launch, args),
                Variant::Columns { packs } => kernels[if packs { 1 } else { 2 }].launch(stream, plan.launch, args),
                Variant::Any => kernels[3].launch(stream, plan.launch, (args.0, args.1, args.2, args.3, Arg::value(&plan.within))),
            }
        };
        launched.map_err(launch_error(name))?;
        if let Some((job, launch)) = &plan.finish {
            // SAFETY: as above; the previous launch wrote all partial results.
            unsafe { kernels[4].launch(stream, *launch, (to, &known, Arg::value(job))) }.map_err(launch_error(name))?;
        }
        Ok(())
    }
}

/// Returns the kept and the reduced dimensions, innermost first, with the strides of the input and the result.
fn dims(op: &str, x: &View<'_>, out: &View<'_>, chosen: &[bool]) -> Result<(Vec<Dim>, Vec<Dim>)> {
    let (shape, strides, to) = (x.layout().shape(), x.layout().strides(), out.layout());
    let kept: Vec<usize> = (0..shape.len()).filter(|d| !chosen[*d]).collect();
    let short: Vec<usize> = kept.iter().map(|d| shape[*d]).collect();
    let long: Vec<usize> = (0..shape.len()).map(|d| if chosen[d] { 1 } else { shape[d] }).collect();
    let strides_out: Vec<usize> = if to.shape() == short {
        to.strides().to_vec()
    } else if to.shape() == long {
        kept.iter().map(|d| to.strides()[*d]).collect()
    } else {
        return Err(shape_error(op, "result", out, format!("{short:?} or {long:?}")));
    };
    let kept = kept.iter().zip(strides_out).rev().map(|(d, out)| Dim { size: shape[*d], strides: [strides[*d], out, 0] });
    let reduced = (0..shape.len()).rev().filter(|d| chosen[*d]).map(|d| Dim { size: shape[d], strides: [strides[d], 0, 0] });
    Ok((kept.collect(), reduced.collect()))
}

/// Lists the programs.
pub(crate) fn programs() -> Vec<Program> {
    let pairs = Reduce::ALL.into_iter().flat_map(|op| DType::COMPUTE.map(|from| (op, from)));
    pairs.flat_map(|(op, from)| op.results(from).into_iter().map(move |to| op.program(from, to))).collect()
}
