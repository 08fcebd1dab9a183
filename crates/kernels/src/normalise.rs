//! Rows brought to a common size: softmax and the norms.

use bytemuck::{Pod, Zeroable};
use warpwave_gpu::{Arg, Launch, Stream};

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::headers;
use crate::kernels::{Kernels, apart, refused, same_type, wrong_shape, wrong_type};
use crate::plan::divisor;
use crate::reduce::bad;
use crate::source::{File, Recipe};
use crate::view::{View, ViewMut};
use crate::walk::{Dim, PACK, Walk, merged, packs_fit};

const TEXTS: &[&str] = &[headers::TYPES, headers::PACK, headers::TEAM, headers::EARLY, include_str!("cu/normalise.cu")];
static SHORT: File = File { name: "normalise.cu", texts: TEXTS, kernels: &["_registers", "_edges"] };
static WIDE: File = File { name: "normalise_wide.cu", texts: TEXTS, kernels: &["_registers"] };
static CLUSTERS: File = File { name: "normalise_clusters.cu", texts: TEXTS, kernels: &["_clusters"] };
static LONG: File = File { name: "normalise_long.cu", texts: TEXTS, kernels: &["_staged", "_long", "_strided"] };

/// Threads of a block at most.
const MOST_THREADS: usize = 512;
/// Packs of a row that a thread keeps in registers.
const ITEMS: [u32; 4] = [1, 2, 4, 8];
/// Channels of a group whose weights wait in shared memory at most: as in the kernels. Rows that share a block have fewer packs.
const MOST_CHANNELS: usize = 1024;
/// Where the blocks of a cluster have a row together: how many, their threads, the packs of each, and how many rows are on their way.
const PARTS: usize = 2;
const PART_THREADS: usize = 512;
const PART_ITEMS: usize = 8;
const STAGES: usize = 3;
/// Packs beyond which exponentials would not fit the registers with their row.
const MOST_OF_EXPONENTIALS: usize = 256;

/// As the struct of the kernels.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
struct Lines {
    n: u64,
    spatial: u64,
    groups: u64,
    magic: u32,
    shift: u32,
    weight_step: u64,
    bias_step: u64,
    epsilon: f64,
    walk: Walk,
}

/// A norm's numbers: what it multiplies by, what it adds, and what keeps it from dividing by zero.
#[derive(Debug, Clone, Copy)]
pub struct Norm<'a> {
    /// A factor for each element of a row (of [`Kernels::group_norm`] for each channel), of the input's type or f32; 1 if there is none.
    pub weight: Option<View<'a>>,
    /// A term likewise, of the weight's type; 0 if there is none. [`Kernels::rms_norm`] takes none.
    pub bias: Option<View<'a>>,
    /// Added to the mean square, or to the variance.
    pub epsilon: f64,
}

/// A checked call but for what all have in common.
struct Call<'a> {
    op: &'static str,
    x: View<'a>,
    residual: Option<View<'a>>,
    norm: Option<Norm<'a>>,
    out: View<'a>,
    /// Dimensions of a row: the last axes, or the one of a softmax.
    axes: std::ops::Range<usize>,
    /// Of a norm of groups.
    groups: usize,
}

/// Whether threads have no registers for many packs.
fn thin(dtype: DType, residual: bool) -> bool {
    residual && dtype.size() == 2
}

/// Packs that each thread keeps in registers where more are in shared memory. Of a softmax only the longest rows have threads enough.
fn held(dtype: DType, softmax: bool, packs: usize) -> u32 {
    match dtype.size() {
        _ if softmax => 8 * u32::from(dtype == DType::F32 && packs > 4 * MOST_THREADS),
        2 => 4,
        _ => 8,
    }
}

/// The types of a norm's weight, and of its results where they are not of the input's.
type Kinds = Option<(DType, Option<DType>)>;

fn recipe(op: &'static str, from: DType, kinds: Kinds, items: u32, held: u32, residual: bool) -> Recipe {
    let file = match items {
        0 => &LONG,
        _ if items == 8 || op == "group_norm" => &WIDE,
        _ => &SHORT,
    };
    let types: Vec<_> = std::iter::once(from)
        .chain(kinds.into_iter().flat_map(|(weight, to)| std::iter::once(weight).chain(to)))
        .map(DType::name)
        .collect();
    // As many as hide one another's waiting, as far as the registers reach.
    let greedy = thin(from, residual) || (kinds.is_none() && (from != DType::F32 || items == 8));
    let blocks = match items {
        _ if from == DType::F64 => 1,
        0 | 8 => 2 - u32::from(greedy),
        _ => 3 - u32::from(greedy || from.size() == 2 || op == "group_norm"),
    };
    let numbers =
        [("ITEMS", items), ("RESIDUAL", u32::from(residual)), ("THREADS", MOST_THREADS as u32), ("BLOCKS", blocks), ("HELD", held)];
    Recipe::new(file, op, &types, &numbers)
}

/// Of rows that clusters have.
fn clusters(op: &'static str, from: DType, weight: DType) -> Recipe {
    let numbers = [
        ("ITEMS", PART_ITEMS as u32),
        ("RESIDUAL", 0),
        ("THREADS", PART_THREADS as u32),
        ("BLOCKS", 1),
        ("PARTS", PARTS as u32),
        ("STAGES", STAGES as u32),
    ];
    Recipe::new(&CLUSTERS, op, &[from.name(), weight.name()], &numbers)
}

impl Kernels {
    /// `out = e^x / Σ e^x` along an axis. A row of nothing but -∞ becomes NaN.
    pub fn softmax(&self, stream: &Stream, x: &View<'_>, axis: usize, out: &mut ViewMut<'_>) -> Result<()> {
        self.along(stream, "softmax", *x, axis, out.as_view())
    }

    /// `x = e^x / Σ e^x` along an axis.
    pub fn softmax_in_place(&self, stream: &Stream, x: &mut ViewMut<'_>, axis: usize) -> Result<()> {
        self.along(stream, "softmax", x.as_view(), axis, x.as_view())
    }

    /// `out = x - ln Σ e^x` along an axis.
    pub fn log_softmax(&self, stream: &Stream, x: &View<'_>, axis: usize, out: &mut ViewMut<'_>) -> Result<()> {
        self.along(stream, "log_softmax", *x, axis, out.as_view())
    }

    fn along(&self, stream: &Stream, op: &'static str, x: View<'_>, axis: usize, out: View<'_>) -> Result<()> {
        if axis >= x.layout().shape().len() {
            return Err(bad(op, format!("there is no axis {axis} in the shape {:?}", x.layout().shape())));
        }
        self.normalise(stream, &Call { op, x, residual: None, norm: None, out, axes: axis..axis + 1, groups: 1 })
    }

    /// `out = x / √(mean(x²) + ε) · weight` along the last axis. Of f32 the result may be of 16 bits.
    pub fn rms_norm(&self, stream: &Stream, x: &View<'_>, norm: &Norm<'_>, out: &mut ViewMut<'_>) -> Result<()> {
        self.last_axis(stream, "rms_norm", *x, None, norm, out.as_view())
    }

    /// `residual = residual + x`, rounded, then `out = rms_norm(residual)`: in one go. Of f32 the result may be of 16 bits.
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

    /// `out = (x - mean(x)) / √(variance(x) + ε) · weight + bias` along the last axis.
    pub fn layer_norm(&self, stream: &Stream, x: &View<'_>, norm: &Norm<'_>, out: &mut ViewMut<'_>) -> Result<()> {
        self.last_axis(stream, "layer_norm", *x, None, norm, out.as_view())
    }

    /// `residual = residual + x`, rounded, then `out = layer_norm(residual)`: in one go.
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
            return Err(wrong_shape(op, "the input", &x, "a row has an axis"));
        }
        if op == "rms_norm" && norm.bias.is_some() {
            return Err(bad(op, "it takes no bias".to_owned()));
        }
        self.normalise(stream, &Call { op, x, residual, norm: Some(*norm), out, axes: rank - 1..rank, groups: 1 })
    }

    /// The same with all elements of a group of channels for a row, and a weight and a bias for each channel. Channels are axis 1.
    pub fn group_norm(&self, stream: &Stream, x: &View<'_>, groups: usize, norm: &Norm<'_>, out: &mut ViewMut<'_>) -> Result<()> {
        let (op, shape) = ("group_norm", x.layout().shape());
        if shape.len() < 2 {
            return Err(wrong_shape(op, "the input", x, "its axis 1 is the channels"));
        }
        if groups == 0 || !shape[1].is_multiple_of(groups) {
            return Err(bad(op, format!("{} channels do not make {groups} groups", shape[1])));
        }
        let out = out.as_view();
        self.normalise(stream, &Call { op, x: *x, residual: None, norm: Some(*norm), out, axes: 1..shape.len(), groups })
    }

    /// Checks what all of them have in common, then launches.
    fn normalise(&self, stream: &Stream, call: &Call<'_>) -> Result<()> {
        let Call { op, x, residual, norm, out, .. } = call;
        let dtype = x.dtype();
        if !matches!(dtype, DType::F16 | DType::Bf16 | DType::F32 | DType::F64) {
            return Err(wrong_type(op, "the input", dtype, "f16, bf16, f32 or f64"));
        }
        let shape = x.layout().shape();
        let weight = norm.and_then(|norm| norm.weight).map(|view| ("the weight", view));
        let bias = norm.and_then(|norm| norm.bias).map(|view| ("the bias", view));
        let residual = residual.map(|view| ("the residual", view));
        let views = [("the result", *out), ("the input", *x)].into_iter().chain(residual).chain(weight).chain(bias);
        self.check_devices(op, stream, views)?;
        let narrowed = *op == "rms_norm" && dtype == DType::F32;
        if out.dtype() != dtype && !(narrowed && matches!(out.dtype(), DType::F16 | DType::Bf16)) {
            let expected = if narrowed { "f32, f16 or bf16".to_owned() } else { dtype.to_string() };
            return Err(wrong_type(op, "the result", out.dtype(), expected));
        }
        for (what, view) in std::iter::once(("the result", *out)).chain(residual) {
            if view.layout().shape() != shape {
                return Err(wrong_shape(op, what, &view, format!("the input has {shape:?}")));
            }
        }
        // Of no channels nothing is divided, and the shape is right.
        let per_row = if call.groups > 1 || call.axes.len() > 1 { shape[1] } else { shape[call.axes.start] };
        let kind = weight.or(bias).map_or(dtype, |(_, view)| view.dtype());
        for (what, view) in weight.into_iter().chain(bias) {
            if kind != dtype && kind != DType::F32 {
                return Err(wrong_type(op, what, kind, format!("{dtype} or f32")));
            }
            same_type(op, what, view, kind)?;
            if view.layout().shape() != [per_row] {
                return Err(wrong_shape(op, what, &view, format!("it is [{per_row}]")));
            }
            apart(op, what, &view, out)?;
        }
        if norm.is_some_and(|norm| norm.epsilon.is_nan() || norm.epsilon < 0.0) {
            return Err(bad(op, "ε is not negative".to_owned()));
        }
        if x.clashes(out) {
            return Err(Error::Overlap {
                op: (*op).to_owned(),
                what: "the input overlaps the result, and is not the same elements".to_owned(),
            });
        }
        if let Some((what, view)) = residual {
            same_type(op, what, view, dtype)?;
            apart(op, "the input", x, &view)?;
            apart(op, what, &view, out)?;
            for (what, weight) in weight.into_iter().chain(bias) {
                apart(op, what, &weight, &view)?;
            }
        }
        if out.layout().is_empty() {
            return Ok(());
        }
        self.launch_lines(stream, call, kind)
    }

    fn launch_lines(&self, stream: &Stream, call: &Call<'_>, kind: DType) -> Result<()> {
        let Call { op, x, residual, norm, out, axes, groups } = call;
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
            // The walk finds a row's group by counting it first.
            kept.insert(0, Dim { size: *groups, strides: of_groups });
        }
        let n: usize = row.iter().map(|dim| dim.size).product();
        let row = merged(row, false);
        let kept = if grouped { kept } else { merged(kept, true) };
        let step = |view: Option<View<'_>>| view.map_or(0, |view| if n > 1 || grouped { view.layout().strides()[0] } else { 0 });
        let (weight, bias) = (norm.and_then(|norm| norm.weight), norm.and_then(|norm| norm.bias));
        let (magic, shift) = divisor(spatial as u64);
        let lines = Lines {
            n: n as u64,
            spatial: spatial as u64,
            groups: *groups as u64,
            magic,
            shift,
            weight_step: step(weight) as u64,
            bias_step: step(bias) as u64,
            epsilon: norm.map_or(0.0, |norm| norm.epsilon),
            walk: Walk::over(&kept),
        };
        let operands = [(0, Some(*x)), (1, Some(*out)), (2, *residual)];
        let in_a_row = match row[..] {
            [] => true,
            [row] => operands.iter().all(|(k, view)| view.is_none() || row.strides[*k] == 1),
            _ => false,
        };
        let width = PACK / dtype.size();
        let fits = n.is_multiple_of(width)
            && (!grouped || (spatial.is_multiple_of(width) && n <= MOST_CHANNELS * spatial))
            && operands.iter().all(|(k, view)| view.is_none_or(|view| packs_fit(*k, view.address(), view.dtype().size(), width, &kept)))
            && (grouped
                || [weight, bias].into_iter().flatten().all(|view| step(Some(view)) == 1 && view.address().is_multiple_of(PACK as u64)));
        let rows = lines.walk.n as usize;
        // Some of it is the kernels' own.
        let own = if grouped { 2 * MOST_CHANNELS * 8 } else { 0 } + 1024;
        let shared = self.device().info().shared_per_block_max.saturating_sub(own);
        let packs = n.div_ceil(width) + usize::from(!fits);
        let held = held(dtype, norm.is_none(), packs);
        // Only where the weights, read for each row, would be most of what is read.
        let clustered = *op == "layer_norm" && residual.is_none() && dtype == DType::F32 && self.device().info().clusters;
        let way = match in_a_row {
            true => way(&Rows {
                rows,
                few: rows <= self.device().info().compute_units as usize,
                packs,
                fits,
                grouped,
                softmax: norm.is_none(),
                clustered,
                thin: thin(dtype, residual.is_some()),
                held: held as usize * MOST_THREADS,
                shared,
            }),
            false => strided(rows),
        };
        let to = Some(out.dtype()).filter(|to| *to != dtype);
        let kernels = self.load(&match norm {
            Some(_) if way.clusters => clusters(op, dtype, kind),
            _ => recipe(op, dtype, norm.map(|_| (kind, to)), way.items, held, residual.is_some()),
        })?;
        let mut launch = way.launch.pdl();
        if way.clusters {
            // As many as run at once; without an answer of the driver's one block of a unit is likely.
            let [threads, ..] = launch.block;
            let at_once = self.device().info().compute_units * kernels[0].active_blocks(threads, launch.shared).unwrap_or(1);
            launch.grid[0] = PARTS as u32 * (at_once / PARTS as u32).clamp(1, launch.grid[0]);
        }
        let args = (x.start(), pointer(*residual), pointer(weight), pointer(bias), out.start(), Arg::value(&lines));
        let within = Walk::over(&row);
        // SAFETY: the kernels were made for these types and take these arguments; the walks reach the places of the views, which were
        // checked against their memory when they were made, and the result and the residual, which are written, have each place once.
        let launched = unsafe {
            match in_a_row {
                true => kernels[way.kernel].launch(stream, launch, args),
                false => kernels[way.kernel].launch(stream, launch, (args.0, args.1, args.2, args.3, args.4, args.5, Arg::value(&within))),
            }
        };
        launched.map_err(refused(op))
    }
}

fn pointer(view: Option<View<'_>>) -> Arg<'_> {
    view.map_or(Arg::from(0u64), |view| Arg::from(view.start()))
}

/// A recipe's number of packs in a thread, and the kernel in its list.
struct Way {
    /// Whether clusters have rows; the launch's blocks are rows then.
    clusters: bool,
    items: u32,
    kernel: usize,
    launch: Launch,
}

/// Rows whose elements lie side by side.
struct Rows {
    rows: usize,
    /// Whether they are so few that what each takes counts.
    few: bool,
    /// Of a row, those that are cut off counted.
    packs: usize,
    /// Whether none is cut off, in any operand.
    fits: bool,
    grouped: bool,
    softmax: bool,
    /// Whether clusters may have rows.
    clustered: bool,
    thin: bool,
    /// Packs that are in registers where others are in shared memory.
    held: usize,
    /// Bytes of shared memory that a block may have.
    shared: usize,
}

fn way(rows: &Rows) -> Way {
    let Rows { rows, few, packs, fits, grouped, softmax, clustered, thin, held, shared } = *rows;
    let most = match (softmax, fits) {
        (true, true) => MOST_OF_EXPONENTIALS,
        (_, true) => 8 * MOST_THREADS,
        (_, false) => 4 * MOST_THREADS,
    };
    let (parts, room) = (PARTS * PART_THREADS * PART_ITEMS, STAGES * PART_THREADS * PART_ITEMS * PACK);
    if clustered && fits && packs > most && packs <= parts && room <= shared {
        let launch = Launch::new([rows as u32, 1, 1], [PART_THREADS as u32, 1, 1]).shared(room as u32);
        return Way { clusters: true, items: PART_ITEMS as u32, kernel: 0, launch };
    }
    if packs > most && fits && packs.saturating_sub(held) * PACK <= shared {
        let threads = if softmax && held == 0 { (packs / 8).next_power_of_two().clamp(128, MOST_THREADS) } else { MOST_THREADS };
        let launch = Launch::new([rows as u32, 1, 1], [threads as u32, 1, 1]);
        return Way { clusters: false, items: 0, kernel: 0, launch: launch.shared((packs.saturating_sub(held) * PACK) as u32) };
    }
    if packs > most.max(4 * MOST_THREADS) || (grouped && !fits) {
        return Way { clusters: false, items: 0, kernel: 1, launch: Launch::new([rows as u32, 1, 1], [MOST_THREADS as u32, 1, 1]) };
    }
    // Few threads with much to do each: they wait for one another less.
    let items = match packs {
        _ if few => packs.div_ceil(MOST_THREADS).next_power_of_two(),
        0..=16 => 1,
        17..=32 => 2,
        33..=64 => 4,
        65..=256 if softmax => 4,
        _ if !fits || (thin && packs <= 4 * MOST_THREADS) => 4,
        _ => 8,
    };
    let team = packs.div_ceil(items).next_power_of_two();
    let per_block = (128 / team).max(1);
    let launch = Launch::new([rows.div_ceil(per_block) as u32, 1, 1], [team as u32, per_block as u32, 1]);
    Way { clusters: false, items: items as u32, kernel: usize::from(!fits), launch }
}

/// For rows of any layout, side by side.
fn strided(rows: usize) -> Way {
    let side = rows.clamp(1, 32).next_power_of_two();
    Way {
        clusters: false,
        items: 0,
        kernel: 2,
        launch: Launch::new([rows.div_ceil(side) as u32, 1, 1], [side as u32, (256 / side) as u32, 1]),
    }
}

/// Every program of these operations.
pub(crate) fn recipes() -> Vec<Recipe> {
    let mut recipes = vec![clusters("layer_norm", DType::F32, DType::F32)];
    for dtype in [DType::F16, DType::Bf16, DType::F32, DType::F64] {
        for items in std::iter::once(0).chain(ITEMS) {
            let softmaxes = ["softmax", "log_softmax"];
            recipes.extend(softmaxes.map(|op| recipe(op, dtype, None, items, 0, false)));
            if items == 0 && dtype == DType::F32 {
                recipes.extend(softmaxes.map(|op| recipe(op, dtype, None, items, held(dtype, true, usize::MAX), false)));
            }
            let (narrow, held) = (dtype != DType::F32, held(dtype, false, 0));
            for kind in std::iter::once(dtype).chain(narrow.then_some(DType::F32)) {
                recipes
                    .extend(["rms_norm", "layer_norm", "group_norm"].map(|op| recipe(op, dtype, Some((kind, None)), items, held, false)));
                recipes.extend(["rms_norm", "layer_norm"].map(|op| recipe(op, dtype, Some((kind, None)), items, held, true)));
            }
        }
    }
    for (to, items) in [DType::F16, DType::Bf16].into_iter().flat_map(|to| std::iter::once(0).chain(ITEMS).map(move |items| (to, items))) {
        let (kinds, held) = (Some((DType::F32, Some(to))), held(DType::F32, false, 0));
        recipes.extend([false, true].map(|residual| recipe("rms_norm", DType::F32, kinds, items, held, residual)));
    }
    recipes
}
