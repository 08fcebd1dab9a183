//! Softmax and normalization of rows.

mod channels_last;

use bytemuck::{Pod, Zeroable};
use warpwave_gpu::{Arg, Launch, Stream};

use crate::common::rows::{Dim, PACK, RowDims, merged, packs_are_aligned};
use crate::dtype::DType;
use crate::elementwise::Unary;
use crate::elementwise::plan::divisor;
use crate::error::{Error, Result};
use crate::kernels::{Kernels, check_no_overlap, check_same_dtype, dtype_error, launch_error, shape_error};
use crate::program::{Program, SourceFile, source_file};
use crate::reduce::bad;
use crate::view::{View, ViewMut};

static SHORT: SourceFile = source_file!("norm/norm.cu", &["_registers", "_edges"]);
static WIDE: SourceFile = source_file!("norm/norm.cu", &["_registers"]);
static CLUSTERS: SourceFile = source_file!("norm/norm.cu", &["_clusters"]);
static LONG: SourceFile = source_file!("norm/norm.cu", &["_staged", "_long", "_strided"]);

/// The most threads of a block.
const MAX_THREADS: usize = 512;
/// Vectors of a row per thread in registers.
const ITEMS: [u32; 4] = [1, 2, 4, 8];
/// The most channels of a group whose weights are cached in shared memory, as in the kernels.
const MAX_CHANNELS: usize = 1024;
/// Rows shared by the blocks of a cluster: blocks, threads per block, vectors per thread, and rows in flight.
const PARTS: usize = 2;
const PART_THREADS: usize = 512;
const PART_ITEMS: usize = 8;
const STAGES: usize = 3;
/// Rows of more vectors do not fit the registers together with their exponentials.
const MAX_SOFTMAX_PACKS: usize = 256;

/// Parameters of the kernels.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
struct NormParams {
    n: u64,
    spatial: u64,
    groups: u64,
    magic: u32,
    shift: u32,
    weight_stride: u64,
    bias_stride: u64,
    epsilon: f64,
    row_dims: RowDims,
}

/// Weight, bias and epsilon of a normalization.
#[derive(Debug, Clone, Copy)]
pub struct Norm<'a> {
    /// Factor per element of a row ([`Kernels::group_norm`]: per channel), of the input's type or f32; 1 if `None`.
    pub weight: Option<View<'a>>,
    /// Term per element, of the weight's type; 0 if `None`. [`Kernels::rms_norm`] does not support it.
    pub bias: Option<View<'a>>,
    /// Added to the mean square or the variance.
    pub epsilon: f64,
}

/// A call, before the common checks.
struct Call<'a> {
    op: &'static str,
    x: View<'a>,
    residual: Option<View<'a>>,
    norm: Option<Norm<'a>>,
    out: View<'a>,
    /// Dimensions of a row: the last axes, or the softmax axis.
    axes: std::ops::Range<usize>,
    /// Groups of a group norm.
    groups: usize,
    /// Whether a group norm is followed by SiLU.
    silu: bool,
}

/// Whether registers are too scarce for many vectors per thread.
fn has_few_registers(dtype: DType, residual: bool) -> bool {
    residual && dtype.size() == 2
}

/// Vectors per thread in registers where the rest of the row is in shared memory. Of softmax only the longest rows have enough threads.
fn register_packs(dtype: DType, softmax: bool, packs: usize) -> u32 {
    match dtype.size() {
        _ if softmax => 8 * u32::from(dtype == DType::F32 && packs > 4 * MAX_THREADS),
        2 => 4,
        _ => 8,
    }
}

/// The weight's type, and the result's if it differs from the input's.
type Kinds = Option<(DType, Option<DType>)>;

fn program(op: &'static str, from: DType, kinds: Kinds, items: u32, held: u32, residual: bool) -> Program {
    let file = match items {
        0 => &LONG,
        _ if items == 8 || op == "group_norm" => &WIDE,
        _ => &SHORT,
    };
    let types: Vec<_> = std::iter::once(from)
        .chain(kinds.into_iter().flat_map(|(weight, to)| std::iter::once(weight).chain(to)))
        .map(DType::name)
        .collect();
    // Resident blocks that hide latency, as far as registers allow.
    let greedy = has_few_registers(from, residual) || (kinds.is_none() && (from != DType::F32 || items == 8));
    let blocks = match items {
        _ if from == DType::F64 => 1,
        0 | 8 => 2 - u32::from(greedy),
        _ => 3 - u32::from(greedy || from.size() == 2 || op == "group_norm"),
    };
    let constants = [
        ("ITEMS", items),
        ("RESIDUAL", u32::from(residual)),
        ("THREADS", MAX_THREADS as u32),
        ("BLOCKS", blocks),
        ("REGISTER_PACKS", held),
    ];
    Program::new(file, op, &types, &constants)
}

/// The program for clusters.
fn clusters(op: &'static str, from: DType, weight: DType) -> Program {
    let constants = [
        ("ITEMS", PART_ITEMS as u32),
        ("RESIDUAL", 0),
        ("THREADS", PART_THREADS as u32),
        ("BLOCKS", 1),
        ("CLUSTER_BLOCKS", PARTS as u32),
        ("STAGES", STAGES as u32),
    ];
    Program::new(&CLUSTERS, op, &[from.name(), weight.name()], &constants)
}

impl Kernels {
    /// Computes `out = e^x / Σ e^x` along an axis. A row of only -∞ becomes NaN.
    pub fn softmax(&self, stream: &Stream, x: &View<'_>, axis: usize, out: &mut ViewMut<'_>) -> Result<()> {
        self.along(stream, "softmax", *x, axis, out.as_view())
    }

    /// Computes `x = e^x / Σ e^x` along an axis.
    pub fn softmax_in_place(&self, stream: &Stream, x: &mut ViewMut<'_>, axis: usize) -> Result<()> {
        self.along(stream, "softmax", x.as_view(), axis, x.as_view())
    }

    /// Computes `out = x - ln Σ e^x` along an axis.
    pub fn log_softmax(&self, stream: &Stream, x: &View<'_>, axis: usize, out: &mut ViewMut<'_>) -> Result<()> {
        self.along(stream, "log_softmax", *x, axis, out.as_view())
    }

    fn along(&self, stream: &Stream, op: &'static str, x: View<'_>, axis: usize, out: View<'_>) -> Result<()> {
        if axis >= x.layout().shape().len() {
            return Err(bad(op, format!("dimension {axis} is out of range for shape {:?}", x.layout().shape())));
        }
        self.normalize(stream, &Call { op, x, residual: None, norm: None, out, axes: axis..axis + 1, groups: 1, silu: false })
    }

    /// Computes `out = x / √(mean(x²) + ε) · weight` along the last axis. An f32 input may yield a 16-bit result.
    pub fn rms_norm(&self, stream: &Stream, x: &View<'_>, norm: &Norm<'_>, out: &mut ViewMut<'_>) -> Result<()> {
        self.last_axis(stream, "rms_norm", *x, None, norm, out.as_view())
    }

    /// Computes `residual = residual + x`, rounded, then `out = rms_norm(residual)`, fused. An f32 input may yield a 16-bit result.
    pub fn add_rms_norm(
        &self,
        stream: &Stream,
        x: &View<'_>,
        residual: &mut ViewMut<'_>,
        norm: &Norm<'_>,
        out: &mut ViewMut<'_>,
    ) -> Result<()> {
        self.last_axis(stream, "rms_norm", *x, Some(residual.as_view()), norm, out.as_view())
    }

    /// Computes `out = (x - mean(x)) / √(variance(x) + ε) · weight + bias` along the last axis.
    pub fn layer_norm(&self, stream: &Stream, x: &View<'_>, norm: &Norm<'_>, out: &mut ViewMut<'_>) -> Result<()> {
        self.last_axis(stream, "layer_norm", *x, None, norm, out.as_view())
    }

    /// Computes `residual = residual + x`, rounded, then `out = layer_norm(residual)`, fused.
    pub fn add_layer_norm(
        &self,
        stream: &Stream,
        x: &View<'_>,
        residual: &mut ViewMut<'_>,
        norm: &Norm<'_>,
        out: &mut ViewMut<'_>,
    ) -> Result<()> {
        self.last_axis(stream, "layer_norm", *x, Some(residual.as_view()), norm, out.as_view())
    }

    fn last_axis(
        &self,
        stream: &Stream,
        op: &'static str,
        x: View<'_>,
        residual: Option<View<'_>>,
        norm: &Norm<'_>,
        out: View<'_>,
    ) -> Result<()> {
        let rank = x.layout().shape().len();
        if rank == 0 {
            return Err(shape_error(op, "input", &x, "of at least one dimension"));
        }
        if op == "rms_norm" && norm.bias.is_some() {
            return Err(bad(op, "a bias is not supported".to_owned()));
        }
        self.normalize(stream, &Call { op, x, residual, norm: Some(*norm), out, axes: rank - 1..rank, groups: 1, silu: false })
    }

    /// Normalizes each group of channels like [`Kernels::layer_norm`], with a weight and bias per channel; with `silu`, then computes
    /// `out = out / (1 + e^-out)`. Axis 1 is the channels. Images whose channels are adjacent in memory are fast.
    pub fn group_norm(
        &self,
        stream: &Stream,
        x: &View<'_>,
        groups: usize,
        norm: &Norm<'_>,
        silu: bool,
        out: &mut ViewMut<'_>,
    ) -> Result<()> {
        let (op, shape) = ("group_norm", x.layout().shape());
        if shape.len() < 2 {
            return Err(shape_error(op, "input", x, "(batch, channels, ...)"));
        }
        if groups == 0 || !shape[1].is_multiple_of(groups) {
            return Err(bad(op, format!("{} channels cannot be divided into {groups} groups", shape[1])));
        }
        self.normalize(
            stream,
            &Call { op, x: *x, residual: None, norm: Some(*norm), out: out.as_view(), axes: 1..shape.len(), groups, silu },
        )
    }

    /// Runs the common checks, then launches.
    fn normalize(&self, stream: &Stream, call: &Call<'_>) -> Result<()> {
        let Call { op, x, residual, norm, out, .. } = call;
        let dtype = x.dtype();
        if !matches!(dtype, DType::F16 | DType::Bf16 | DType::F32 | DType::F64) {
            return Err(dtype_error(op, "input", dtype, "f16, bf16, f32 or f64"));
        }
        let shape = x.layout().shape();
        let weight = norm.and_then(|norm| norm.weight).map(|view| ("weight", view));
        let bias = norm.and_then(|norm| norm.bias).map(|view| ("bias", view));
        let residual = residual.map(|view| ("residual", view));
        let views = [("result", *out), ("input", *x)].into_iter().chain(residual).chain(weight).chain(bias);
        self.check_devices(op, stream, views)?;
        let narrowed = *op == "rms_norm" && dtype == DType::F32;
        if out.dtype() != dtype && !(narrowed && matches!(out.dtype(), DType::F16 | DType::Bf16)) {
            let expected = if narrowed { "f32, f16 or bf16".to_owned() } else { dtype.to_string() };
            return Err(dtype_error(op, "result", out.dtype(), expected));
        }
        for (what, view) in std::iter::once(("result", *out)).chain(residual) {
            if view.layout().shape() != shape {
                return Err(shape_error(op, what, &view, format!("{shape:?}")));
            }
        }
        // With no channels nothing is divided, and the shape is valid.
        let per_row = if call.groups > 1 || call.axes.len() > 1 { shape[1] } else { shape[call.axes.start] };
        let kind = weight.or(bias).map_or(dtype, |(_, view)| view.dtype());
        for (what, view) in weight.into_iter().chain(bias) {
            if kind != dtype && kind != DType::F32 {
                return Err(dtype_error(op, what, kind, format!("{dtype} or f32")));
            }
            check_same_dtype(op, what, view, kind)?;
            if view.layout().shape() != [per_row] {
                return Err(shape_error(op, what, &view, format!("[{per_row}]")));
            }
            check_no_overlap(op, what, &view, out)?;
        }
        if norm.is_some_and(|norm| norm.epsilon.is_nan() || norm.epsilon < 0.0) {
            return Err(bad(op, "epsilon must be >= 0".to_owned()));
        }
        if x.aliases(out) {
            return Err(Error::Overlap { op: (*op).to_owned(), what: "input partially overlaps the result".to_owned() });
        }
        if let Some((what, view)) = residual {
            check_same_dtype(op, what, view, dtype)?;
            check_no_overlap(op, "input", x, &view)?;
            check_no_overlap(op, what, &view, out)?;
            for (what, weight) in weight.into_iter().chain(bias) {
                check_no_overlap(op, what, &weight, &view)?;
            }
        }
        if out.layout().is_empty() {
            return Ok(());
        }
        match (norm, channels_last::Plan::new(x, out, call.groups)) {
            (Some(norm), Some(plan)) if *op == "group_norm" => plan.launch(self, stream, [x, out], (norm, kind), call.groups, call.silu),
            _ => {
                self.launch_norm(stream, call, kind)?;
                if call.silu { self.unary_to(stream, Unary::Silu, *out, *out) } else { Ok(()) }
            }
        }
    }

    fn launch_norm(&self, stream: &Stream, call: &Call<'_>, kind: DType) -> Result<()> {
        let Call { op, x, residual, norm, out, axes, groups, .. } = call;
        let (shape, dtype) = (x.layout().shape(), x.dtype());
        let strides = |d: usize| {
            let residual = residual.map_or(0, |view| view.layout().strides()[d]);
            [x.layout().strides()[d], out.layout().strides()[d], residual]
        };
        let mut row: Vec<Dim> = axes.clone().rev().map(|d| Dim { size: shape[d], strides: strides(d) }).collect();
        let mut kept: Vec<Dim> =
            (0..shape.len()).rev().filter(|d| !axes.contains(d)).map(|d| Dim { size: shape[d], strides: strides(d) }).collect();
        let grouped = *op == "group_norm";
        let spatial = if grouped { shape[2..].iter().product() } else { 1 };
        if let (true, Some(channels)) = (grouped, row.last_mut()) {
            channels.size /= groups;
            let of_groups = channels.strides.map(|stride| stride * channels.size);
            // The kernel derives a row's group from the innermost dimension.
            kept.insert(0, Dim { size: *groups, strides: of_groups });
        }
        let n: usize = row.iter().map(|dim| dim.size).product();
        let row = merged(row, false);
        let kept = if grouped { kept } else { merged(kept, true) };
        let step = |view: Option<View<'_>>| view.map_or(0, |view| if n > 1 || grouped { view.layout().strides()[0] } else { 0 });
        let (weight, bias) = (norm.and_then(|norm| norm.weight), norm.and_then(|norm| norm.bias));
        let (magic, shift) = divisor(spatial as u64);
        let params = NormParams {
            n: n as u64,
            spatial: spatial as u64,
            groups: *groups as u64,
            magic,
            shift,
            weight_stride: step(weight) as u64,
            bias_stride: step(bias) as u64,
            epsilon: norm.map_or(0.0, |norm| norm.epsilon),
            row_dims: RowDims::over(&kept),
        };
        let operands = [(0, Some(*x)), (1, Some(*out)), (2, *residual)];
        let in_a_row = match row[..] {
            [] => true,
            [row] => operands.iter().all(|(k, view)| view.is_none() || row.strides[*k] == 1),
            _ => false,
        };
        let width = PACK / dtype.size();
        let fits = n.is_multiple_of(width)
            && (!grouped || (spatial.is_multiple_of(width) && n <= MAX_CHANNELS * spatial))
            && operands
                .iter()
                .all(|(k, view)| view.is_none_or(|view| packs_are_aligned(*k, view.address(), view.dtype().size(), width, &kept)))
            && (grouped
                || [weight, bias].into_iter().flatten().all(|view| step(Some(view)) == 1 && view.address().is_multiple_of(PACK as u64)));
        let rows = params.row_dims.n as usize;
        // The kernels have static shared memory too.
        let own = if grouped { 2 * MAX_CHANNELS * 8 } else { 0 } + 1024;
        let shared = self.device().info().shared_per_block_max.saturating_sub(own);
        let packs = n.div_ceil(width) + usize::from(!fits);
        let held = register_packs(dtype, norm.is_none(), packs);
        // Only where reading the weights per row would dominate.
        let clustered = *op == "layer_norm" && residual.is_none() && dtype == DType::F32 && self.device().info().clusters;
        let variant = match in_a_row {
            true => select(&Rows {
                rows,
                few: rows <= self.device().info().compute_units as usize,
                packs,
                fits,
                grouped,
                softmax: norm.is_none(),
                clustered,
                thin: has_few_registers(dtype, residual.is_some()),
                held: held as usize * MAX_THREADS,
                shared,
            }),
            false => strided(rows),
        };
        let to = Some(out.dtype()).filter(|to| *to != dtype);
        let kernels = self.load(&match norm {
            Some(_) if variant.clusters => clusters(op, dtype, kind),
            _ => program(op, dtype, norm.map(|_| (kind, to)), variant.items, held, residual.is_some()),
        })?;
        let mut launch = variant.launch.pdl();
        if variant.clusters {
            // As many as are resident; if the driver does not answer, one per multiprocessor is likely.
            let [threads, ..] = launch.block;
            let at_once = self.device().info().compute_units * kernels[0].active_blocks(threads, launch.shared).unwrap_or(1);
            launch.grid[0] = PARTS as u32 * (at_once / PARTS as u32).clamp(1, launch.grid[0]);
        }
        let args = (x.start(), pointer(*residual), pointer(weight), pointer(bias), out.start(), Arg::value(&params));
        let within = RowDims::over(&row);
        // SAFETY: the kernels were compiled for these types and take these arguments; all views were checked against their memory, and the
        // elements of the result and the residual, which are written, are distinct.
        let launched = unsafe {
            match in_a_row {
                true => kernels[variant.kernel].launch(stream, launch, args),
                false => {
                    kernels[variant.kernel].launch(stream, launch, (args.0, args.1, args.2, args.3, args.4, args.5, Arg::value(&within)))
                }
            }
        };
        launched.map_err(launch_error(op))
    }
}

fn pointer(view: Option<View<'_>>) -> Arg<'_> {
    view.map_or(Arg::from(0u64), |view| Arg::from(view.start()))
}

/// A kernel of a program and its launch.
struct Variant {
    /// Whether a cluster handles a row; the grid then counts rows.
    clusters: bool,
    items: u32,
    kernel: usize,
    launch: Launch,
}

/// Rows with contiguous elements.
struct Rows {
    rows: usize,
    /// Whether there are so few rows that latency matters.
    few: bool,
    /// Vectors per row, partial ones included.
    packs: usize,
    /// Whether there are only full, aligned vectors, in every operand.
    fits: bool,
    grouped: bool,
    softmax: bool,
    /// Whether clusters may be used.
    clustered: bool,
    thin: bool,
    /// Vectors in registers where others are in shared memory.
    held: usize,
    /// The most shared memory of a block, in bytes.
    shared: usize,
}

fn select(rows: &Rows) -> Variant {
    let Rows { rows, few, packs, fits, grouped, softmax, clustered, thin, held, shared } = *rows;
    let most = match (softmax, fits) {
        (true, true) => MAX_SOFTMAX_PACKS,
        (_, true) => 8 * MAX_THREADS,
        (_, false) => 4 * MAX_THREADS,
    };
    let (parts, stage_bytes) = (PARTS * PART_THREADS * PART_ITEMS, STAGES * PART_THREADS * PART_ITEMS * PACK);
    if clustered && fits && packs > most && packs <= parts && stage_bytes <= shared {
        let launch = Launch::new([rows as u32, 1, 1], [PART_THREADS as u32, 1, 1]).shared(stage_bytes as u32);
        return Variant { clusters: true, items: PART_ITEMS as u32, kernel: 0, launch };
    }
    if packs > most && fits && packs.saturating_sub(held) * PACK <= shared {
        let threads = if softmax && held == 0 { (packs / 8).next_power_of_two().clamp(128, MAX_THREADS) } else { MAX_THREADS };
        let launch = Launch::new([rows as u32, 1, 1], [threads as u32, 1, 1]);
        return Variant { clusters: false, items: 0, kernel: 0, launch: launch.shared((packs.saturating_sub(held) * PACK) as u32) };
    }
    if packs > most.max(4 * MAX_THREADS) || (grouped && !fits) {
        return Variant { clusters: false, items: 0, kernel: 1, launch: Launch::new([rows as u32, 1, 1], [MAX_THREADS as u32, 1, 1]) };
    }
    // Few threads with many elements each synchronize less.
    let items = match packs {
        _ if few => packs.div_ceil(MAX_THREADS).next_power_of_two(),
        0..=16 => 1,
        17..=32 => 2,
        33..=64 => 4,
        65..=256 if softmax => 4,
        _ if !fits || (thin && packs <= 4 * MAX_THREADS) => 4,
        _ => 8,
    };
    let team = packs.div_ceil(items).next_power_of_two();
    let per_block = (128 / team).max(1);
    let launch = Launch::new([rows.div_ceil(per_block) as u32, 1, 1], [team as u32, per_block as u32, 1]);
    Variant { clusters: false, items: items as u32, kernel: usize::from(!fits), launch }
}

/// For rows of any layout.
fn strided(rows: usize) -> Variant {
    let side = rows.clamp(1, 32).next_power_of_two();
    Variant {
        clusters: false,
        items: 0,
        kernel: 2,
        launch: Launch::new([rows.div_ceil(side) as u32, 1, 1], [side as u32, (256 / side) as u32, 1]),
    }
}

/// Lists the programs.
pub(crate) fn programs() -> Vec<Program> {
    let mut programs = channels_last::programs();
    programs.push(clusters("layer_norm", DType::F32, DType::F32));
    for dtype in [DType::F16, DType::Bf16, DType::F32, DType::F64] {
        for items in std::iter::once(0).chain(ITEMS) {
            let softmaxes = ["softmax", "log_softmax"];
            programs.extend(softmaxes.map(|op| program(op, dtype, None, items, 0, false)));
            if items == 0 && dtype == DType::F32 {
                programs.extend(softmaxes.map(|op| program(op, dtype, None, items, register_packs(dtype, true, usize::MAX), false)));
            }
            let (narrow, held) = (dtype != DType::F32, register_packs(dtype, false, 0));
            for kind in std::iter::once(dtype).chain(narrow.then_some(DType::F32)) {
                programs
                    .extend(["rms_norm", "layer_norm", "group_norm"].map(|op| program(op, dtype, Some((kind, None)), items, held, false)));
                programs.extend(["rms_norm", "layer_norm"].map(|op| program(op, dtype, Some((kind, None)), items, held, true)));
            }
        }
    }
    for (to, items) in [DType::F16, DType::Bf16].into_iter().flat_map(|to| std::iter::once(0).chain(ITEMS).map(move |items| (to, items))) {
        let (kinds, held) = (Some((DType::F32, Some(to))), register_packs(DType::F32, false, 0));
        programs.extend([false, true].map(|residual| program("rms_norm", DType::F32, kinds, items, held, residual)));
    }
    programs
}
