//! Mixture of experts: routing tokens to experts, and grouped matrix products.
//!
//! [`Kernels::moe_route`] chooses the experts of each token, [`Kernels::moe_sort`] groups these assignments by expert into tiles, and
//! [`Kernels::grouped_matmul`] multiplies each assignment with its expert's matrix in one launch, which reads only matrices of chosen
//! experts. [`Kernels::moe_combine`] sums the results of each token.

use bytemuck::{Pod, Zeroable};
use warpwave_gpu::{Arg, Launch, Stream};

use crate::common::heads::{check_dtype, check_shape, packed, pointer, sizes, small};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::{Kernels, check_no_overlap, check_same_dtype, launch_error, shape_error};
use crate::program::{Program, SourceFile, source_file};
use crate::quant::gemm_f16::{ExpertMatrices, Format, Tile};
use crate::quant::view::{Quant, QuantView};
use crate::view::{View, ViewMut};

static ROUTE: SourceFile = source_file!("moe/route.cu", &[""]);
static SORT: SourceFile = source_file!("moe/sort.cu", &[""]);
static COMBINE: SourceFile = source_file!("moe/combine.cu", &[""]);
static GROUPED: SourceFile = source_file!("moe/grouped.cu", &[""]);

const FLOATS: [DType; 3] = [DType::F32, DType::F16, DType::Bf16];
/// The most experts, and the most of a token: what the kernels' shared memory and lanes suffice for.
const MAX_EXPERTS: usize = 1024;
const MAX_USED: usize = 32;
/// Tokens per block of the routing kernel, 32 lanes each.
const ROUTE_TOKENS: usize = 4;
/// Threads of a block of the product, and rows of weights per wave.
const THREADS: u32 = 128;
const PER_WAVE: u32 = 4;
/// The most rows of a tile, and of one that is not for matrix units; the most tiles.
const MAX_TILE_ROWS: usize = 128;
const MAX_SIMT_ROWS: usize = 8;
const MAX_TILES: usize = 0xffff;

/// How router logits become the scores of experts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ExpertScore {
    /// Softmax over all experts.
    Softmax,
    /// A sigmoid of each.
    Sigmoid,
    /// Softmax over the chosen experts.
    ChosenSoftmax,
    /// Phi-MoE's sparse mixer: for each choice, a softmax over the remaining experts whose logits are within this tolerance of the largest.
    SparseMixer {
        /// Half of the tolerance, relative to the larger logit (`router_jitter_noise`).
        epsilon: f32,
    },
}

/// How the experts of a token are chosen and weighted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Routing {
    /// Experts per token.
    pub used: usize,
    /// Scores by which experts are chosen and weighted.
    pub score: ExpertScore,
    /// Whether the weights of a token are divided by their sum.
    pub normalize: bool,
    /// Factor of the weights.
    pub scale: f32,
    /// Groups of consecutive experts; 1 for none.
    pub groups: usize,
    /// Groups whose experts are eligible: those with the best score.
    pub used_groups: usize,
    /// Whether a group's score is the sum of its two best experts', instead of that of its best.
    pub group_sum_of_two: bool,
}

impl Routing {
    /// Routing without groups.
    pub fn new(used: usize, score: ExpertScore) -> Routing {
        Routing { used, score, normalize: false, scale: 1.0, groups: 1, used_groups: 1, group_sum_of_two: false }
    }

    /// Fails unless this routing is possible with that many experts.
    pub fn check(&self, experts: usize) -> Result<()> {
        let bad = |reason: String| Err(Error::BadArgument { op: "moe_route".to_owned(), reason });
        let Routing { used, groups, used_groups, .. } = *self;
        if experts == 0 || experts > MAX_EXPERTS {
            return bad(format!("expected 1 to {MAX_EXPERTS} experts, got {experts}"));
        }
        if used == 0 || used > experts.min(MAX_USED) {
            return bad(format!("expected 1 to {} experts per token, got {used}", experts.min(MAX_USED)));
        }
        if groups == 0 || groups > MAX_USED || !experts.is_multiple_of(groups) {
            return bad(format!("{experts} experts cannot be divided into {groups} groups"));
        }
        if used_groups == 0 || used_groups > groups || used > experts / groups * used_groups {
            return bad(format!("{used} experts per token cannot be chosen from {used_groups} of {groups} groups of {experts} experts"));
        }
        Ok(())
    }
}

/// The weights of all experts.
#[derive(Debug, Clone, Copy)]
#[allow(clippy::large_enum_variant, reason = "views of memory, made for one call and passed by reference")]
pub enum ExpertWeights<'a> {
    /// `f32`, `f16` or `bf16` of (experts, rows, columns), contiguous.
    Plain(View<'a>),
    /// Quantized in GGUF blocks: the matrices of this many experts, one after the other.
    Quant(QuantView<'a>, usize),
}

/// The order of a grouped product: what [`Kernels::moe_sort`] writes.
#[derive(Debug, Clone, Copy)]
pub struct ExpertTiles<'a> {
    /// `u32` of (assignments): assignments by expert.
    pub order: View<'a>,
    /// `u32` of (tiles, 3): expert, first place in the order, assignments.
    pub tiles: View<'a>,
    /// The most assignments of a tile.
    pub rows: usize,
}

impl ExpertTiles<'_> {
    /// Returns the rows of a tile that suit this many assignments: 1, 2, 4 or 8.
    pub fn rows_for(assignments: usize, experts: usize) -> usize {
        // As many as an expert gets on average: rows that are not used are computed nevertheless.
        (assignments / experts.max(1)).clamp(1, 8).next_power_of_two()
    }

    /// Returns the most tiles that assignments can take.
    pub fn count(assignments: usize, experts: usize, rows: usize) -> usize {
        // Each expert has at most one tile that is not full.
        (assignments / rows.max(1) + experts).min(assignments)
    }
}

/// The matrices of all experts, checked, with a bias each that is not.
#[derive(Clone, Copy)]
struct Matrices<'a> {
    experts: usize,
    rows: usize,
    columns: usize,
    codes: View<'a>,
    row_bytes: usize,
    bias: Option<View<'a>>,
    /// For matrix units, unless they are `f32`.
    format: Option<Format>,
}

impl<'a> Matrices<'a> {
    fn of(op: &'static str, weights: &ExpertWeights<'a>, bias: Option<&View<'a>>) -> Result<Matrices<'a>> {
        let bias = bias.copied();
        match weights {
            ExpertWeights::Plain(view) => {
                check_dtype(op, "weights", view, &FLOATS)?;
                let [experts, rows, columns] = sizes(op, "weights", view, "experts, rows, columns")?;
                check_contiguous(op, "weights", view)?;
                let format = (view.dtype() != DType::F32).then_some(Format::Plain(view.dtype()));
                Ok(Matrices { experts, rows, columns, codes: *view, row_bytes: columns * view.dtype().size(), bias, format })
            }
            ExpertWeights::Quant(view, experts) => {
                let ([rows, columns], experts) = (view.shape(), *experts);
                if experts == 0 || !rows.is_multiple_of(experts) || matches!(view.quant(), Quant::Int8 | Quant::Int4(_)) {
                    let reason =
                        format!("expected a GGUF type and rows divisible by the {experts} experts, got {} with {rows} rows", view.quant());
                    return Err(Error::BadArgument { op: op.to_owned(), reason });
                }
                let format = Some(Format::Quant(view.quant()));
                Ok(Matrices { experts, rows: rows / experts, columns, codes: view.codes, row_bytes: view.row_bytes(), bias, format })
            }
        }
    }
}

#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct RouteParams {
    tokens: i32,
    experts: i32,
    used: i32,
    groups: i32,
    used_groups: i32,
    sum_of_two: i32,
    normalize: i32,
    scale: f32,
    epsilon: f32,
    padding: i32,
}

#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct SortParams {
    assignments: u32,
    experts: u32,
    tile: u32,
    tiles: u32,
}

#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct CombineParams {
    elements: u64,
    columns: u32,
    used: u32,
}

#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct GroupedParams {
    rows: u32,
    columns: u32,
    share: u32,
    padding: u32,
    weights_row: u64,
    x_row: u64,
    out_row: u64,
}

fn route_program(score: ExpertScore) -> Program {
    let number = match score {
        ExpertScore::Softmax => 0,
        ExpertScore::Sigmoid => 1,
        ExpertScore::ChosenSoftmax => 2,
        ExpertScore::SparseMixer { .. } => 3,
    };
    Program::new(&ROUTE, "moe_route", &[], &[("SCORE", number)])
}

fn grouped_program(weights: &'static str, quantized: bool, x: DType, out: DType, rows: usize, vectors: bool) -> Program {
    let constants = [("ROWS", rows as u32), ("QUANTIZED", quantized.into()), ("VECTORS", vectors.into())];
    Program::new(&GROUPED, "grouped", &[weights, x.name(), out.name()], &constants)
}

/// Fails unless a view is contiguous.
fn check_contiguous(op: &str, what: &'static str, view: &View<'_>) -> Result<()> {
    if view.layout().is_contiguous() { Ok(()) } else { Err(shape_error(op, what, view, "contiguous rows")) }
}

impl Kernels {
    /// Chooses experts: writes the experts, `u32`, and their weights, `f32`, of (tokens, used).
    ///
    /// `logits` are `f32` of (tokens, experts). `bias`, `f32` of (experts), is added to the scores for the choice, not for the weights. Of
    /// equal scores the first expert wins.
    pub fn moe_route(
        &self,
        stream: &Stream,
        routing: &Routing,
        logits: &View<'_>,
        bias: Option<&View<'_>>,
        ids: &mut ViewMut<'_>,
        weights: &mut ViewMut<'_>,
    ) -> Result<()> {
        let op = "moe_route";
        let [tokens, experts] = sizes(op, "logits", logits, "tokens, experts")?;
        routing.check(experts)?;
        let (ids, weights) = (ids.as_view(), weights.as_view());
        check_same_dtype(op, "logits", *logits, DType::F32)?;
        check_same_dtype(op, "experts", ids, DType::U32)?;
        check_same_dtype(op, "weights", weights, DType::F32)?;
        let bias = bias.map(|bias| ("bias", *bias));
        let views = [("logits", *logits), ("experts", ids), ("weights", weights)].into_iter().chain(bias);
        self.check_devices(op, stream, views.clone())?;
        if let Some((what, bias)) = bias {
            check_same_dtype(op, what, bias, DType::F32)?;
            check_shape(op, what, &bias, &[experts])?;
        }
        for (what, view) in views {
            check_contiguous(op, what, &view)?;
        }
        for (what, view) in [("experts", ids), ("weights", weights)] {
            check_shape(op, what, &view, &[tokens, routing.used])?;
            for (input, other) in [("logits", *logits)].into_iter().chain(bias) {
                check_no_overlap(op, input, &other, &view)?;
            }
        }
        check_no_overlap(op, "experts", &ids, &weights)?;
        if tokens == 0 {
            return Ok(());
        }
        let small = |number: usize| small(op, "tokens", number);
        let epsilon = if let ExpertScore::SparseMixer { epsilon } = routing.score { epsilon } else { 0.0 };
        let params = RouteParams {
            tokens: small(tokens)?,
            experts: small(experts)?,
            used: small(routing.used)?,
            groups: small(routing.groups)?,
            used_groups: small(routing.used_groups)?,
            sum_of_two: routing.group_sum_of_two.into(),
            normalize: routing.normalize.into(),
            scale: routing.scale,
            epsilon,
            padding: 0,
        };
        let kernels = self.load(&route_program(routing.score))?;
        let shared = (ROUTE_TOKENS * 2 * experts * size_of::<f32>()) as u32;
        let launch = Launch::new([tokens.div_ceil(ROUTE_TOKENS) as u32, 1, 1], [32, ROUTE_TOKENS as u32, 1]);
        let args = (logits.start(), pointer(bias.map(|(_, bias)| bias)), ids.start(), weights.start(), Arg::value(&params));
        // SAFETY: the kernel takes these arguments; all views are contiguous, of the shapes and types it expects.
        unsafe { kernels[0].launch(stream, launch.shared(shared).pdl(), args) }.map_err(launch_error(op))
    }

    /// Groups assignments by expert: `ids` are `u32` of (tokens, used), below `experts`. Larger ones are left out. `order` is `u32` of
    /// (assignments), `tiles` `u32` of ([`ExpertTiles::count`], 3) for tiles of `rows`.
    pub fn moe_sort(
        &self,
        stream: &Stream,
        ids: &View<'_>,
        experts: usize,
        rows: usize,
        order: &mut ViewMut<'_>,
        tiles: &mut ViewMut<'_>,
    ) -> Result<()> {
        let op = "moe_sort";
        let (order, tiles) = (order.as_view(), tiles.as_view());
        let assignments = ids.layout().len();
        for (what, view) in [("experts", *ids), ("order", order), ("tiles", tiles)] {
            check_same_dtype(op, what, view, DType::U32)?;
            check_contiguous(op, what, &view)?;
        }
        self.check_devices(op, stream, [("experts", *ids), ("order", order), ("tiles", tiles)].into_iter())?;
        if experts == 0 || experts > MAX_EXPERTS || rows == 0 {
            let reason = format!("expected 1 to {MAX_EXPERTS} experts and tiles of at least one row, got {experts} and {rows}");
            return Err(Error::BadArgument { op: op.to_owned(), reason });
        }
        let count = ExpertTiles::count(assignments, experts, rows);
        check_shape(op, "order", &order, &[assignments])?;
        check_shape(op, "tiles", &tiles, &[count, 3])?;
        check_no_overlap(op, "experts", ids, &order)?;
        check_no_overlap(op, "experts", ids, &tiles)?;
        check_no_overlap(op, "order", &order, &tiles)?;
        if assignments == 0 {
            return Ok(());
        }
        let small = |number: usize| small(op, "assignments", number).map(|number| number as u32);
        let params = SortParams { assignments: small(assignments)?, experts: small(experts)?, tile: small(rows)?, tiles: small(count)? };
        let kernels = self.load(&Program::new(&SORT, op, &[], &[]))?;
        let threads = assignments.next_multiple_of(64).clamp(64, 1024) as u32;
        let launch = Launch::new([1, 1, 1], [threads, 1, 1]).shared(((3 * experts + 1) * size_of::<u32>()) as u32).pdl();
        let args = (ids.start(), order.start(), tiles.start(), Arg::value(&params));
        // SAFETY: the kernel takes these arguments; the views are contiguous, and hold all assignments and tiles.
        unsafe { kernels[0].launch(stream, launch, args) }.map_err(launch_error(op))
    }

    /// Multiplies each assignment with its expert's matrix, and adds the expert's row of `bias`, `f32` of (experts, rows).
    ///
    /// `x` is (assignments / share, columns): assignment `i` has row `i / share`. The result is (assignments, rows). Both are `f32`, `f16` or
    /// `bf16` with adjacent elements of a row. Sums are `f32`. With tiles of [`Kernels::matrix_tile_rows`], products are those of 16-bit
    /// floats on matrix units: activations are rounded to the type of the weights, or with quantized weights both are rounded to `f16`, as
    /// with [`ActivationPrecision::Float16`](crate::ActivationPrecision::Float16). With smaller tiles they are exact.
    pub fn grouped_matmul(
        &self,
        stream: &Stream,
        weights: &ExpertWeights<'_>,
        tiles: &ExpertTiles<'_>,
        x: &View<'_>,
        bias: Option<&View<'_>>,
        out: &mut ViewMut<'_>,
    ) -> Result<()> {
        let op = "grouped_matmul";
        let out = out.as_view();
        let matrix = Matrices::of(op, weights, bias)?;
        let count = self.check_grouped(op, stream, &[matrix], tiles, x, &out)?;
        if out.layout().is_empty() {
            return Ok(());
        }
        if tiles.rows > MAX_SIMT_ROWS {
            let views = [tiles.order, tiles.tiles, *x, out];
            return self.grouped_on_matrix_units(op, stream, &[matrix], tiles.rows, views);
        }
        let small = |number: usize| small(op, "rows or columns", number).map(|number| number as u32);
        let assignments = out.layout().shape()[0];
        let params = GroupedParams {
            rows: small(matrix.rows)?,
            columns: small(matrix.columns)?,
            share: small(assignments / x.layout().shape()[0])?,
            padding: 0,
            weights_row: matrix.row_bytes as u64,
            x_row: x.layout().strides()[0] as u64,
            out_row: out.layout().strides()[0] as u64,
        };
        let (name, quantized, vectors) = match weights {
            ExpertWeights::Plain(view) => {
                (view.dtype().name(), false, packed(view, 8.min(16 / view.dtype().size())) && matrix.columns.is_multiple_of(8))
            }
            ExpertWeights::Quant(view, _) => (view.quant().cuda_name(), true, false),
        };
        let kernels = self.load(&grouped_program(name, quantized, x.dtype(), out.dtype(), tiles.rows, vectors))?;
        let per_block = THREADS / self.device().info().wave_size.max(1) * PER_WAVE;
        let launch = Launch::new([small(count)?, params.rows.div_ceil(per_block), 1], [THREADS, 1, 1]).pdl();
        let args = (
            matrix.codes.start(),
            x.start(),
            tiles.order.start(),
            tiles.tiles.start(),
            pointer(matrix.bias),
            out.start(),
            Arg::value(&params),
        );
        // SAFETY: the kernel was compiled for these types; shapes were checked, and the tiles are those of `moe_sort`, whose experts and
        // assignments are in range.
        unsafe { kernels[0].launch(stream, launch, args) }.map_err(launch_error(op))
    }

    /// Computes silu(x · gate) · (x · up) for each assignment and its expert's matrices, of one type and shape, on matrix units. `biases` are
    /// those of gate and up.
    ///
    /// As [`Kernels::grouped_matmul`] with tiles of [`Kernels::matrix_tile_rows`], but for one launch that reads activations once.
    #[allow(clippy::too_many_arguments, reason = "two matrices with their biases")]
    pub fn grouped_swiglu(
        &self,
        stream: &Stream,
        gate: &ExpertWeights<'_>,
        up: &ExpertWeights<'_>,
        tiles: &ExpertTiles<'_>,
        x: &View<'_>,
        biases: Option<[&View<'_>; 2]>,
        out: &mut ViewMut<'_>,
    ) -> Result<()> {
        let op = "grouped_swiglu";
        let out = out.as_view();
        let matrices = [Matrices::of(op, gate, biases.map(|[gate, _]| gate))?, Matrices::of(op, up, biases.map(|[_, up]| up))?];
        let shape = |matrix: &Matrices<'_>| (matrix.experts, matrix.rows, matrix.columns, matrix.format);
        if shape(&matrices[0]) != shape(&matrices[1]) {
            return Err(Error::BadArgument { op: op.to_owned(), reason: "expected gate and up of one type and shape".to_owned() });
        }
        self.check_grouped(op, stream, &matrices, tiles, x, &out)?;
        if out.layout().is_empty() {
            return Ok(());
        }
        self.grouped_on_matrix_units(op, stream, &matrices, tiles.rows, [tiles.order, tiles.tiles, *x, out])
    }

    /// Returns the rows of a tile that suit this many assignments on matrix units: 16 to 128; `None` if the device has none, or not for these
    /// weights.
    pub fn matrix_tile_rows(&self, weights: &ExpertWeights<'_>, assignments: usize) -> Option<usize> {
        let matrix = Matrices::of("grouped_matmul", weights, None).ok()?;
        let format = matrix.format.filter(|format| format.fits(matrix.codes.address(), matrix.row_bytes))?;
        // As many as an expert gets on average: a tile that is not full costs as much.
        let average = assignments.div_ceil(matrix.experts.max(1));
        Tile::choose(self.device().info(), format, average).map(|tile| tile.vectors())
    }

    fn grouped_on_matrix_units(
        &self,
        op: &str,
        stream: &Stream,
        matrices: &[Matrices<'_>],
        tile_rows: usize,
        views: [View<'_>; 4],
    ) -> Result<()> {
        let count = views[1].layout().shape()[0];
        if count > MAX_TILES {
            return Err(Error::BadArgument { op: op.to_owned(), reason: format!("{count} tiles exceed the limit of {MAX_TILES}") });
        }
        let unsupported = || {
            let reason =
                format!("tiles of {tile_rows} rows need matrix units and aligned weights that are not f32; see `matrix_tile_rows`");
            Error::BadArgument { op: op.to_owned(), reason }
        };
        let operands: Vec<ExpertMatrices<'_>> = matrices
            .iter()
            .map(|matrix| {
                let format = matrix.format.filter(|format| format.fits(matrix.codes.address(), matrix.row_bytes))?;
                let Matrices { codes, row_bytes, rows, columns, bias, .. } = *matrix;
                Some(ExpertMatrices { format, codes, row_bytes, rows, columns, bias })
            })
            .collect::<Option<_>>()
            .ok_or_else(unsupported)?;
        let info = self.device().info();
        let tile = Tile::choose(info, operands[0].format, tile_rows).filter(|tile| tile.vectors() == tile_rows).ok_or_else(unsupported)?;
        self.grouped_product_f16(stream, op, &tile, &operands, views)
    }

    /// Checks the operands of a grouped product. Returns the number of tiles.
    fn check_grouped(
        &self,
        op: &'static str,
        stream: &Stream,
        matrices: &[Matrices<'_>],
        tiles: &ExpertTiles<'_>,
        x: &View<'_>,
        out: &View<'_>,
    ) -> Result<usize> {
        check_dtype(op, "input", x, &FLOATS)?;
        check_dtype(op, "result", out, &FLOATS)?;
        let Matrices { experts, rows, columns, .. } = matrices[0];
        let [x_rows, found] = sizes(op, "input", x, "rows, columns")?;
        let [assignments, _] = sizes(op, "result", out, "assignments, rows")?;
        check_shape(op, "result", out, &[assignments, rows])?;
        check_shape(op, "order", &tiles.order, &[assignments])?;
        if found != columns || (x_rows == 0) != (assignments == 0) || (x_rows > 0 && !assignments.is_multiple_of(x_rows)) {
            return Err(shape_error(op, "input", x, format!("[{assignments} / n, {columns}]")));
        }
        let count = ExpertTiles::count(assignments, experts, tiles.rows);
        check_shape(op, "tiles", &tiles.tiles, &[count, 3])?;
        if !tiles.rows.is_power_of_two() || tiles.rows > MAX_TILE_ROWS {
            return Err(Error::BadArgument {
                op: op.to_owned(),
                reason: format!("expected tiles of a power of two up to {MAX_TILE_ROWS} rows, got {}", tiles.rows),
            });
        }
        for (what, view) in [("order", tiles.order), ("tiles", tiles.tiles)] {
            check_same_dtype(op, what, view, DType::U32)?;
            check_contiguous(op, what, &view)?;
        }
        let biases = || matrices.iter().filter_map(|matrix| Some(("bias", matrix.bias?)));
        for (what, bias) in biases() {
            check_same_dtype(op, what, bias, DType::F32)?;
            check_shape(op, what, &bias, &[experts, rows])?;
            check_contiguous(op, what, &bias)?;
        }
        for (what, view) in [("input", *x), ("result", *out)] {
            if columns > 1 && view.layout().strides()[1] != 1 && view.layout().shape()[1] > 1 {
                return Err(shape_error(op, what, &view, "contiguous rows"));
            }
        }
        let weights = matrices.iter().map(|matrix| ("weights", matrix.codes));
        let inputs = weights.chain([("input", *x), ("order", tiles.order), ("tiles", tiles.tiles)]).chain(biases());
        self.check_devices(op, stream, inputs.clone().chain([("result", *out)]))?;
        for (what, view) in inputs {
            check_no_overlap(op, what, &view, out)?;
        }
        Ok(count)
    }

    /// Sums the results of each token's experts: `x` is `f32` of (tokens · used, columns), `weights` `f32` of (tokens, used), and the result
    /// `f32` of (tokens, columns).
    pub fn moe_combine(&self, stream: &Stream, x: &View<'_>, weights: &View<'_>, out: &mut ViewMut<'_>) -> Result<()> {
        let op = "moe_combine";
        let out = out.as_view();
        let [tokens, used] = sizes(op, "weights", weights, "tokens, used")?;
        let [_, columns] = sizes(op, "result", &out, "tokens, columns")?;
        check_shape(op, "input", x, &[tokens * used, columns])?;
        check_shape(op, "result", &out, &[tokens, columns])?;
        for (what, view) in [("input", *x), ("weights", *weights), ("result", out)] {
            check_same_dtype(op, what, view, DType::F32)?;
            check_contiguous(op, what, &view)?;
        }
        self.check_devices(op, stream, [("input", *x), ("weights", *weights), ("result", out)].into_iter())?;
        check_no_overlap(op, "input", x, &out)?;
        check_no_overlap(op, "weights", weights, &out)?;
        if out.layout().is_empty() {
            return Ok(());
        }
        let elements = tokens * columns;
        let small = |number: usize| small(op, "columns", number).map(|number| number as u32);
        let params = CombineParams { elements: elements as u64, columns: small(columns)?, used: small(used)? };
        let kernels = self.load(&Program::new(&COMBINE, op, &[], &[]))?;
        let launch = Launch::new([elements.div_ceil(256).min(1 << 16) as u32, 1, 1], [256, 1, 1]).pdl();
        let args = (x.start(), weights.start(), out.start(), Arg::value(&params));
        // SAFETY: the kernel takes these arguments; the views are contiguous `f32` of the shapes it expects.
        unsafe { kernels[0].launch(stream, launch, args) }.map_err(launch_error(op))
    }
}

/// The programs that do not depend on the weights.
fn common() -> Vec<Program> {
    let scores = [ExpertScore::Softmax, ExpertScore::Sigmoid, ExpertScore::ChosenSoftmax, ExpertScore::SparseMixer { epsilon: 0.0 }];
    let mut programs: Vec<Program> = scores.map(route_program).to_vec();
    programs.extend([Program::new(&SORT, "moe_sort", &[], &[]), Program::new(&COMBINE, "moe_combine", &[], &[])]);
    programs
}

fn gguf_quants() -> impl Iterator<Item = Quant> {
    Quant::ALL.into_iter().filter(|quant| quant.gguf_type().is_some())
}

/// Lists the programs: all weight types, some of the other types.
pub(crate) fn programs() -> Vec<Program> {
    let mut programs = common();
    for rows in [1, 8] {
        for dtype in FLOATS {
            programs.push(grouped_program(dtype.name(), false, dtype, DType::F32, rows, true));
        }
        programs.extend(gguf_quants().map(|quant| grouped_program(quant.cuda_name(), true, DType::F32, DType::F32, rows, false)));
    }
    programs
}

/// Lists the programs of models: with quantized weights, activations are `f32`; otherwise `f32` or of the weights' type.
pub(crate) fn of_models() -> Vec<Program> {
    let mut programs = common();
    for rows in [1, 2, 4, 8] {
        for dtype in FLOATS {
            for (x, out) in [(dtype, dtype), (dtype, DType::F32), (DType::F32, dtype), (DType::F32, DType::F32)] {
                programs.extend([true, false].map(|vectors| grouped_program(dtype.name(), false, x, out, rows, vectors)));
            }
        }
        programs.extend(gguf_quants().map(|quant| grouped_program(quant.cuda_name(), true, DType::F32, DType::F32, rows, false)));
    }
    programs
}
