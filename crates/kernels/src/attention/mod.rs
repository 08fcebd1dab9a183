//! Flash attention: `softmax(q · kᵀ) · v` with an online softmax; scores are never stored.

pub(crate) mod append;
pub(crate) mod decode;
pub(crate) mod options;
mod scores;

use bytemuck::{Pod, Zeroable};
use warpwave_gpu::{Arch, Arg, DeviceInfo, Launch, MatrixUnits, Stream, Vendor};

use crate::attention::options::{AttentionOptions, CacheCodes, CacheScales, KeyValues};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::{Kernels, check_no_overlap, check_same_dtype, dtype_error, launch_error, shape_error};
use crate::program::{Program, SourceFile, source_file};
use crate::view::{View, ViewMut};

const OP: &str = "attention";
static SIMT: SourceFile = source_file!("attention/flash_simt.cu", &[""]);
static MMA: SourceFile = source_file!("attention/flash_mma.cu", &[""]);
static SM90A: SourceFile = source_file!("attention/flash_sm90a.cu", &[""]);

/// The largest head_dim.
pub(crate) const MAX_HEAD_DIM: usize = 512;
/// The largest head_dim of Hopper's kernel, of decode on matrix units, and of the programs that are compiled ahead of time.
pub(crate) const USUAL_HEAD_DIM: usize = 256;
/// The longest sequence: positions plus windows must fit 32 bits.
const MAX_ROWS: usize = 1 << 29;
/// Both kinds of codes of quantized caches.
pub(crate) const CODES: [CacheCodes; 2] = [CacheCodes::Q8_0, CacheCodes::F8E4M3];
const DTYPES: [DType; 3] = [DType::F32, DType::F16, DType::Bf16];

/// Variable-length (varlen) sequences, concatenated without padding.
///
/// Start offsets are `u32` or `i32` of (sequences + 1), the last being the total (cu_seqlens). Offsets that are out of range or decreasing
/// are clamped.
#[derive(Debug, Clone, Copy)]
pub struct Varlen<'a> {
    /// Start offsets of the queries; queries and result are (rows, heads, head_dim).
    pub q_starts: View<'a>,
    /// Length of the longest query sequence; queries beyond it are not computed.
    pub max_q_len: usize,
    /// Start offsets of the keys; keys and values are (rows, heads, head_dim). If `None`, [`KeyValues`] applies.
    pub kv_starts: Option<View<'a>>,
}

/// Strides between sequences (or cache blocks), rows and heads.
#[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
#[repr(C)]
struct RowStrides {
    sequence: i64,
    row: i64,
    head: i64,
}

/// Parameters of the kernels; mirrors `Attention` in `attention.cuh`.
#[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
#[repr(C)]
struct Shape {
    q: RowStrides,
    k: RowStrides,
    v: RowStrides,
    out: RowStrides,
    lse: RowStrides,
    q_len: i32,
    kv_len: i32,
    q_rows: i32,
    kv_rows: i32,
    heads: i32,
    group: i32,
    dim: i32,
    page: i32,
    columns: i32,
    pages: i32,
    left: i32,
    right: i32,
    tiles: i32,
    batch: i32,
    pairs: i32,
    scale: f32,
    cap: f32,
    slopes: i32,
    aligned: i32,
    wide: i32,
}

/// A program and its launch configuration.
#[derive(Debug, Clone, Copy)]
struct Variant {
    program: Program,
    /// Queries per block.
    queries: u32,
    threads: u32,
    shared: u32,
}

/// Rounds up to the panels of 64 elements that a row takes in shared memory.
fn panels(dim: u32) -> u32 {
    dim.next_multiple_of(64)
}

/// What a program is specialized for besides the device.
#[derive(Debug, Clone, Copy)]
struct Kind {
    dtype: DType,
    /// head_dim, rounded up to 32.
    dim: u32,
    /// Whether there is a tree mask.
    tree: bool,
}

impl Kind {
    fn program(self, file: &'static SourceFile, op: &'static str, constants: &[(&'static str, u32)]) -> Program {
        let program = Program::new(file, op, &[self.dtype.name()], constants);
        if self.tree { program.with("TREE", 1) } else { program }
    }
}

/// With `large_smem`, more keys are staged per query.
fn simt(kind: Kind, large_smem: bool) -> Variant {
    let dim = kind.dim;
    // AMD has 64 KiB.
    let (queries, keys) = match (large_smem, dim) {
        (true, ..=128) => (64, 64),
        (true, ..=256) | (false, ..=128) => (64, 32),
        (true, _) => (32, 32),
        (false, ..=256) => (32, 16),
        (false, _) => (16, 16),
    };
    // Keys and values of large heads are loaded in two parts.
    let columns = if dim <= 256 { dim } else { (dim / 2).next_multiple_of(64) };
    Variant {
        program: kind.program(&SIMT, "flash_simt", &[("D", dim), ("BM", queries), ("BN", keys)]),
        queries,
        threads: 256,
        shared: 4 * (queries * (dim + 4) + keys * (columns + 4) + queries * (keys + 4)),
    }
}

fn mma(kind: Kind, vendor: Vendor, wave: u32) -> Variant {
    let dim = kind.dim;
    let (each, keys) = match (vendor, dim) {
        // The words of more queries exceed the registers.
        (Vendor::Nvidia, ..=256) if kind.tree => (1, 64),
        (Vendor::Nvidia, ..=64) => (2, 64),
        (Vendor::Nvidia, ..=128) => (2, 48),
        (Vendor::Nvidia, ..=256) => (1, 64),
        (Vendor::Nvidia, _) | (Vendor::Amd, ..=192) => (1, 32),
        (Vendor::Amd, _) => (1, 16),
    };
    // The accumulators of more columns exceed the registers of one wave.
    let (waves, split) = (4, if dim <= 256 { 1 } else { 2 });
    let constants = [("D", dim), ("BN", keys), ("MT", each), ("WAVES", waves), ("SPLIT", split)];
    let queries = waves / split * each * 16;
    Variant {
        program: kind.program(&MMA, "flash_mma", &constants[..if split == 1 { 4 } else { 5 }]),
        queries,
        threads: waves * wave,
        shared: (queries + 2 * keys) * panels(dim) * 2,
    }
}

fn sm90a(kind: Kind, paged: bool) -> Variant {
    let dim = kind.dim;
    // The page loader needs the registers of a third group.
    let (groups, stages, keys) = (if dim <= 64 && !paged { 3 } else { 2 }, 2, if dim <= 128 { 128 } else { 64 });
    let constants = [("D", dim), ("BN", keys), ("GROUPS", groups), ("STAGES", stages), ("PAGED", paged.into())];
    let queries = 64 * groups;
    Variant {
        program: kind.program(&SM90A, "flash_sm90a", &constants),
        queries,
        threads: 128 * (groups + 1),
        // Tiles are aligned to 1024 bytes; the barriers and the missing-key flags follow.
        shared: 1024 + (queries + 2 * stages * keys) * panels(dim) * 2 + 40 * stages,
    }
}

/// Whether `tile.cuh` uses matrix units on this device.
pub(crate) fn has_matrix_units(info: &DeviceInfo) -> bool {
    info.matrix_units != MatrixUnits::None
}

fn choose(info: &DeviceInfo, kind: Kind, aligned: bool, paged: bool) -> Variant {
    if kind.dtype == DType::F32 || !has_matrix_units(info) {
        let large_smem = simt(kind, true);
        // Two resident blocks, so that one computes while the other loads; the driver reserves 1 KiB each.
        let fits = info.vendor == Vendor::Nvidia && 2 * (large_smem.shared as usize + 1024) <= info.shared_per_unit;
        if fits { large_smem } else { simt(kind, false) }
    } else if info.arch == Arch::compute_capability(9, 0) && aligned && !kind.tree && kind.dim <= USUAL_HEAD_DIM as u32 {
        sm90a(kind, paged)
    } else {
        mma(kind, info.vendor, info.wave_size)
    }
}

/// The program for a quantized cache.
pub(crate) fn with_codes(program: Program, codes: CacheCodes) -> Program {
    let op = match program.op {
        "flash_mma" => "flash_codes_mma",
        "flash_simt" => "flash_codes_simt",
        "decode_mma" => "decode_codes_mma",
        _ => "decode_codes_simt",
    };
    Program { op, ..program }.with("CODES", codes.constant())
}

/// Matrix units with a quantized cache: conversions need registers, so a wave has fewer queries and keys.
fn quantized_mma(kind: Kind, wave: u32) -> Variant {
    let dim = kind.dim;
    let (waves, keys) = (4, if dim <= 192 { 32 } else { 16 });
    let constants = [("D", dim), ("BN", keys), ("MT", 1), ("WAVES", waves)];
    Variant {
        program: kind.program(&MMA, "flash_mma", &constants),
        queries: waves * 16,
        threads: waves * wave,
        shared: (waves * 16 + 2 * keys) * panels(dim) * 2,
    }
}

/// The variant for a quantized cache, whose elements are converted on their way to shared memory.
fn quantized(info: &DeviceInfo, kind: Kind, codes: CacheCodes) -> Variant {
    let variant = match kind.dtype == DType::F32 || !has_matrix_units(info) {
        true => simt(kind, false),
        false => quantized_mma(kind, info.wave_size),
    };
    Variant { program: with_codes(variant.program, codes), ..variant }
}

/// The head_dims whose programs for quantized caches are listed for models; those of others are compiled at first use.
pub(crate) const QUANTIZED_HEAD_DIMS: [usize; 4] = [64, 96, 128, 256];

/// Lists the programs: all of the usual sizes, some of the larger ones, with tree masks and for quantized caches.
pub(crate) fn programs() -> Vec<Program> {
    let usual = (32..=USUAL_HEAD_DIM as u32).step_by(32).map(|dim| (dim, false));
    let others = [(64, true), (128, true), (288, false), (384, false), (512, false), (512, true)];
    let mut programs = Vec::new();
    for (dim, tree) in usual.chain(others) {
        for kind in DTYPES.map(|dtype| Kind { dtype, dim, tree }) {
            programs.extend([false, true].map(|large_smem| simt(kind, large_smem).program));
            if kind.dtype != DType::F32 {
                programs.extend([Vendor::Nvidia, Vendor::Amd].map(|vendor| mma(kind, vendor, 64).program));
                if dim <= USUAL_HEAD_DIM as u32 && !tree {
                    programs.extend([false, true].map(|paged| sm90a(kind, paged).program));
                }
            }
        }
    }
    let [wide, half] = [(DType::F32, 64), (DType::Bf16, 128)].map(|(dtype, dim)| Kind { dtype, dim, tree: false });
    for variant in [simt(wide, false), quantized_mma(half, 32)] {
        programs.extend(CODES.map(|codes| with_codes(variant.program, codes)));
    }
    programs
}

/// Lists the programs of a device.
pub(crate) fn of_models(info: &DeviceInfo) -> Vec<Program> {
    let kinds = (32..=USUAL_HEAD_DIM as u32).step_by(32).flat_map(|dim| DTYPES.map(|dtype| Kind { dtype, dim, tree: false }));
    let layouts = [(true, true), (true, false), (false, true), (false, false)];
    let plain = kinds.flat_map(|kind| layouts.map(|(aligned, paged)| choose(info, kind, aligned, paged).program));
    let quantized_kinds = DTYPES.into_iter().flat_map(|dtype| QUANTIZED_HEAD_DIMS.map(|dim| Kind { dtype, dim: dim as u32, tree: false }));
    let of_codes = quantized_kinds.flat_map(|kind| CODES.map(|codes| quantized(info, kind, codes).program));
    plain.chain(of_codes).collect()
}

fn bad(reason: impl Into<String>) -> Error {
    Error::BadArgument { op: OP.to_owned(), reason: reason.into() }
}

/// Checks a contiguous table of integers.
fn check_table(what: &'static str, view: &View<'_>, shape: &[usize]) -> Result<()> {
    if ![DType::U32, DType::I32].contains(&view.dtype()) {
        return Err(dtype_error(OP, what, view.dtype(), "u32 or i32"));
    }
    check_ordered(what, view, shape)
}

fn check_ordered(what: &'static str, view: &View<'_>, shape: &[usize]) -> Result<()> {
    if view.layout().shape() != shape {
        return Err(shape_error(OP, what, view, format!("{shape:?}")));
    }
    if !view.layout().is_contiguous() {
        return Err(bad(format!("{what} must be contiguous")));
    }
    Ok(())
}

/// Returns (sequences, rows, heads, head_dim) of a view; varlen rows count as one sequence.
fn check_rows(what: &'static str, view: &View<'_>, varlen: bool) -> Result<[usize; 4]> {
    match *view.layout().shape() {
        [sequences, rows, heads, dim] if !varlen => Ok([sequences, rows, heads, dim]),
        [rows, heads, dim] if varlen => Ok([1, rows, heads, dim]),
        _ => Err(shape_error(OP, what, view, format!("({}rows, heads, head_dim)", if varlen { "" } else { "sequences, " }))),
    }
}

/// The strides of a checked view.
fn row_strides(view: &View<'_>) -> RowStrides {
    // The stride of a dimension of size 1 is not used, but would overflow address arithmetic.
    let dims = view.layout().shape().iter().zip(view.layout().strides());
    let strides: Vec<i64> = dims.map(|(size, stride)| if *size == 1 { 0 } else { *stride as i64 }).collect();
    match strides[..] {
        [sequence, row, head, _] => RowStrides { sequence, row, head },
        [row, head, _] => RowStrides { sequence: 0, row, head },
        _ => RowStrides::default(),
    }
}

/// Whether each row is aligned to a number of bytes.
fn is_aligned(view: &View<'_>, bytes: usize) -> bool {
    let (layout, size) = (view.layout(), view.dtype().size());
    let mut dims = layout.shape().iter().zip(layout.strides()).rev().skip(1);
    view.address().is_multiple_of(bytes as u64) && dims.all(|(n, stride)| *n <= 1 || stride.is_multiple_of(bytes / size))
}

impl Kernels {
    /// Computes `out = softmax(q · kᵀ · scale) · v` per head.
    ///
    /// `out` and `q` are (sequences, queries, heads, head_dim): f32, f16 or bf16, accumulated in f32. Keys and values may have fewer heads
    /// (grouped-query attention). head_dim is a multiple of 8 up to 512 and contiguous; other strides are free. A query that sees no key
    /// yields zeros.
    ///
    /// NaN in a query or key affects only the queries that see it. NaN or infinite values may also affect neighboring queries: masked keys
    /// are multiplied by 0. Keys beyond `lengths` affect none.
    ///
    /// `lse`, `f32` of (sequences, heads, queries), receives the log-sum-exp of the scores, the sink's included: −∞ for a query that sees
    /// no key and has no sink.
    pub fn attention(
        &self,
        stream: &Stream,
        q: &View<'_>,
        keys: &KeyValues<'_>,
        options: &AttentionOptions<'_>,
        out: &mut ViewMut<'_>,
        lse: Option<&mut ViewMut<'_>>,
    ) -> Result<()> {
        self.attend(stream, q, (keys, None), options, None, out.as_view(), lse.map(|lse| lse.as_view()))
    }

    /// Computes [`Kernels::attention`] over a quantized cache, whose codes are the keys and values.
    #[allow(clippy::too_many_arguments)]
    pub fn attention_quantized(
        &self,
        stream: &Stream,
        q: &View<'_>,
        keys: &KeyValues<'_>,
        scales: &CacheScales<'_>,
        options: &AttentionOptions<'_>,
        out: &mut ViewMut<'_>,
        lse: Option<&mut ViewMut<'_>>,
    ) -> Result<()> {
        self.attend(stream, q, (keys, Some(scales)), options, None, out.as_view(), lse.map(|lse| lse.as_view()))
    }

    /// Computes [`Kernels::attention_varlen`] over a quantized cache, whose codes are the keys and values; `kv_starts` must be `None`.
    #[allow(clippy::too_many_arguments)]
    pub fn attention_varlen_quantized(
        &self,
        stream: &Stream,
        q: &View<'_>,
        keys: &KeyValues<'_>,
        scales: &CacheScales<'_>,
        varlen: &Varlen<'_>,
        options: &AttentionOptions<'_>,
        out: &mut ViewMut<'_>,
        lse: Option<&mut ViewMut<'_>>,
    ) -> Result<()> {
        self.attend(stream, q, (keys, Some(scales)), options, Some(varlen), out.as_view(), lse.map(|lse| lse.as_view()))
    }

    /// Computes [`Kernels::attention`] for varlen sequences: `out` and `q` are (rows, heads, head_dim), `lse` is (heads, rows).
    #[allow(clippy::too_many_arguments)]
    pub fn attention_varlen(
        &self,
        stream: &Stream,
        q: &View<'_>,
        keys: &KeyValues<'_>,
        varlen: &Varlen<'_>,
        options: &AttentionOptions<'_>,
        out: &mut ViewMut<'_>,
        lse: Option<&mut ViewMut<'_>>,
    ) -> Result<()> {
        self.attend(stream, q, (keys, None), options, Some(varlen), out.as_view(), lse.map(|lse| lse.as_view()))
    }

    #[allow(clippy::too_many_arguments)]
    fn attend(
        &self,
        stream: &Stream,
        q: &View<'_>,
        (keys, scales): (&KeyValues<'_>, Option<&CacheScales<'_>>),
        options: &AttentionOptions<'_>,
        varlen: Option<&Varlen<'_>>,
        out: View<'_>,
        lse: Option<View<'_>>,
    ) -> Result<()> {
        let (k, v) = (keys.keys, keys.values);
        let kv_starts = varlen.and_then(|varlen| varlen.kv_starts);
        let [slopes, sinks, tree] = options.views();
        let tables = [
            slopes,
            ("q_starts", varlen.map(|varlen| varlen.q_starts)),
            ("kv_starts", kv_starts),
            ("lengths", keys.lengths),
            ("block table", keys.table),
            tree,
            sinks,
        ];
        let there = tables.iter().filter_map(|(what, view)| Some((*what, (*view)?)));
        let scale_views = scales.into_iter().flat_map(CacheScales::views);
        let inputs: Vec<_> = [("queries", *q), ("keys", k), ("values", v)].into_iter().chain(there).chain(scale_views).collect();
        let results = [("result", out)].into_iter().chain(lse.map(|lse| ("log-sum-exp", lse)));
        self.check_devices(OP, stream, inputs.iter().copied().chain(results))?;

        let mut shape = check(q, (keys, scales.map(|scales| scales.codes)), options, varlen, &out, lse.as_ref())?;
        let scale_strides = scales.map(|scales| scales.check_attention(OP, &k, options)).transpose()?;
        for (what, input) in &inputs {
            check_no_overlap(OP, what, input, &out)?;
            lse.iter().try_for_each(|lse| check_no_overlap(OP, what, input, lse))?;
        }
        lse.iter().try_for_each(|lse| check_no_overlap(OP, "log-sum-exp", lse, &out))?;
        if out.layout().is_empty() || shape.q_len == 0 || shape.pairs == 0 {
            return Ok(());
        }

        // Eight codes are read at a time.
        let cache = if scales.is_some() { 8 } else { 16 };
        let aligned = [(q, 16), (&k, cache), (&v, cache), (&out, 16)].iter().all(|(view, bytes)| is_aligned(view, *bytes));
        let info = self.device().info();
        let kind = Kind { dtype: q.dtype(), dim: (shape.dim as u32).next_multiple_of(32), tree: options.tree.is_some() };
        let variant = match scales {
            None => choose(info, kind, aligned, keys.table.is_some()),
            Some(scales) => quantized(info, kind, scales.codes),
        };
        shape.aligned = aligned.into();
        shape.tiles = (shape.q_len as u32).div_ceil(variant.queries) as i32;
        shape.batch = pair_batch(&shape, q.dtype().size(), self.device().info().l2_bytes);
        let Some(blocks) = (shape.tiles as u32).checked_mul(shape.pairs as u32).filter(|blocks| *blocks < 1 << 31) else {
            return Err(bad("too many queries for one launch (exceeds the maximum grid size)"));
        };
        let kernel = &self.load(&variant.program)?[0];
        let [slopes, q_starts, kv_starts, lengths, table, tree, sinks] = tables.map(|(_, view)| pointer(view));
        let launch = Launch::new([blocks, 1, 1], [variant.threads, 1, 1]).shared(variant.shared);
        let [q, k, v, out] = [*q, k, v, out].map(|view| Arg::from(view.start()));
        let (shape, lse) = (Arg::value(&shape), pointer(lse));
        // SAFETY: the kernel was compiled for this type and takes these arguments. The views' shapes were checked against each other and
        // against their memory; table entries are clamped in the kernel. Only the result and the log-sum-exps are written, which overlap
        // nothing.
        let launched = unsafe {
            match (scales, &scale_strides) {
                (Some(scales), Some(strides)) => {
                    let [key_scales, value_scales] = [scales.keys, scales.values].map(|view| Arg::from(view.start()));
                    let strides = Arg::value(strides);
                    let arguments = (
                        q,
                        k,
                        v,
                        slopes,
                        q_starts,
                        kv_starts,
                        lengths,
                        table,
                        tree,
                        sinks,
                        shape,
                        out,
                        lse,
                        key_scales,
                        value_scales,
                        strides,
                    );
                    kernel.launch(stream, launch, arguments)
                }
                _ => {
                    let arguments = (q, k, v, slopes, q_starts, kv_starts, lengths, table, tree, sinks, shape, out, lse);
                    kernel.launch(stream, launch, arguments)
                }
            }
        };
        launched.map_err(launch_error(OP))
    }
}

/// The start of a view; null if `None`.
fn pointer(view: Option<View<'_>>) -> Arg<'_> {
    view.map_or(Arg::from(0u64), |view| Arg::from(view.start()))
}

/// Checks everything but devices and overlap.
fn check(
    q: &View<'_>,
    (keys, codes): (&KeyValues<'_>, Option<CacheCodes>),
    options: &AttentionOptions<'_>,
    varlen: Option<&Varlen<'_>>,
    out: &View<'_>,
    lse: Option<&View<'_>>,
) -> Result<Shape> {
    let (k, v, dtype) = (&keys.keys, &keys.values, q.dtype());
    if !DTYPES.contains(&dtype) {
        return Err(dtype_error(OP, "queries", dtype, "f32, f16 or bf16"));
    }
    let cached = codes.map_or(dtype, CacheCodes::dtype);
    for (what, view, dtype) in [("keys", k, cached), ("values", v, cached), ("result", out, dtype)] {
        check_same_dtype(OP, what, *view, dtype)?;
    }
    let kv_varlen = varlen.and_then(|varlen| varlen.kv_starts);
    if kv_varlen.is_some() && codes.is_some() {
        return Err(bad("kv_starts cannot be combined with a quantized cache"));
    }
    if kv_varlen.is_some() && (keys.table.is_some() || keys.lengths.is_some()) {
        return Err(bad("kv_starts cannot be combined with a block table or lengths"));
    }
    let [mut sequences, q_rows, heads, dim] = check_rows("queries", q, varlen.is_some())?;
    let [kv_sequences, kv_rows, kv_heads, _] = check_rows("keys", k, kv_varlen.is_some())?;
    if dim == 0 || !dim.is_multiple_of(8) || dim > MAX_HEAD_DIM {
        return Err(shape_error(OP, "queries", q, format!("with head_dim a multiple of 8 up to {MAX_HEAD_DIM}")));
    }
    if let Some(varlen) = varlen {
        let starts = varlen.q_starts.layout().len();
        check_table("q_starts", &varlen.q_starts, &[starts.max(1)])?;
        sequences = starts - 1;
    }
    let check_shape = |what, view: &View<'_>, like: &View<'_>| match view.layout().shape() == like.layout().shape() {
        true => Ok(()),
        false => Err(shape_error(OP, what, view, format!("{:?}", like.layout().shape()))),
    };
    check_shape("result", out, q)?;
    check_shape("values", v, k)?;
    if k.layout().shape().last() != Some(&dim) {
        return Err(shape_error(OP, "keys", k, format!("with head_dim {dim}")));
    }
    if kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
        return Err(shape_error(OP, "keys", k, format!("with a number of KV heads that divides the {heads} query heads")));
    }
    if keys.table.is_none() && kv_varlen.is_none() && kv_sequences != sequences {
        return Err(shape_error(OP, "keys", k, format!("with {sequences} sequences")));
    }
    for (what, view) in [("queries", q), ("keys", k), ("values", v), ("result", out)] {
        if view.layout().strides().last() != Some(&1) {
            return Err(bad(format!("{what}: the head_dim dimension must be contiguous (stride 1)")));
        }
    }
    let mut columns = 0;
    if let Some(table) = &keys.table {
        columns = table.layout().shape().last().copied().unwrap_or(0);
        check_table("block table", table, &[sequences, columns])?;
    }
    if let Some(starts) = &kv_varlen {
        check_table("kv_starts", starts, &[sequences + 1])?;
    }
    if let Some(lengths) = &keys.lengths {
        check_table("lengths", lengths, &[sequences])?;
    }
    let words = [sequences, q_rows];
    options.check(OP, sequences, heads, if varlen.is_some() { &words[1..] } else { &words })?;
    if let Some((what, _)) = options.views().iter().find(|(_, view)| view.is_some_and(|view| !view.layout().is_contiguous())) {
        return Err(bad(format!("{what} must be contiguous")));
    }
    if let Some(lse) = lse {
        check_same_dtype(OP, "log-sum-exp", *lse, DType::F32)?;
        let expected = if varlen.is_some() { vec![heads, q_rows] } else { vec![sequences, heads, q_rows] };
        if lse.layout().shape() != expected {
            return Err(shape_error(OP, "log-sum-exp", lse, format!("{expected:?}")));
        }
    }
    let q_len = varlen.map_or(q_rows, |varlen| varlen.max_q_len.min(q_rows));
    let kv_len = if keys.table.is_some() { kv_rows.saturating_mul(columns) } else { kv_rows };
    if let Some(size) = [q_rows, kv_rows, kv_len, kv_sequences, columns].into_iter().find(|size| *size >= MAX_ROWS) {
        return Err(bad(format!("a dimension of {size} exceeds the limit of {} tokens, sequences or blocks", MAX_ROWS - 1)));
    }
    let Some(pairs) = sequences.checked_mul(heads).filter(|pairs| *pairs < MAX_ROWS) else {
        return Err(bad(format!("{sequences} sequences of {heads} heads exceed the limit of {MAX_ROWS}")));
    };
    let [left, right] = options.window.bounds(MAX_ROWS);
    let lse_strides = |lse: &View<'_>| match *lse.layout().strides() {
        [sequence, head, row] => RowStrides { sequence: sequence as i64, row: row as i64, head: head as i64 },
        [head, row] => RowStrides { sequence: 0, row: row as i64, head: head as i64 },
        _ => RowStrides::default(),
    };
    Ok(Shape {
        q: row_strides(q),
        k: row_strides(k),
        v: row_strides(v),
        out: row_strides(out),
        lse: lse.map(lse_strides).unwrap_or_default(),
        q_len: q_len as i32,
        kv_len: kv_len as i32,
        q_rows: q_rows as i32,
        kv_rows: kv_rows as i32,
        heads: heads as i32,
        group: (heads / kv_heads) as i32,
        dim: dim as i32,
        page: kv_rows as i32,
        columns: columns as i32,
        pages: kv_sequences as i32,
        left,
        right,
        pairs: pairs as i32,
        scale: options.scale,
        cap: options.soft_cap.unwrap_or(0.0),
        slopes: options.slope_strides()[0] as i32,
        wide: [varlen.map(|varlen| varlen.q_starts), kv_varlen, keys.lengths]
            .iter()
            .enumerate()
            .map(|(bit, table)| i32::from(table.is_some_and(|table| table.dtype() == DType::U32)) << bit)
            .sum(),
        ..Shape::default()
    })
}

/// Returns how many (sequence, head) pairs are scheduled together. Where tiles differ in work, several pairs are interleaved so that long
/// tiles start first, as far as their keys and values fit the L2 cache.
fn pair_batch(shape: &Shape, size: usize, cache: usize) -> i32 {
    let bytes = 2 * shape.kv_len as usize * shape.dim as usize * size / shape.group.max(1) as usize;
    let fit = (cache / 2 / bytes.max(1)).clamp(1, 64) as i32;
    if shape.right < shape.kv_len { fit.min(shape.pairs) } else { 1 }
}

#[cfg(test)]
mod tests {
    use warpwave_test_support::virtual_driver;

    use super::*;

    /// Shared memory must fit the smallest devices a variant is used on.
    #[test]
    fn tiles_fit_shared_memory() {
        for dim in (32..=MAX_HEAD_DIM as u32).step_by(32) {
            let [wide, half] = [DType::F32, DType::F16].map(|dtype| Kind { dtype, dim, tree: false });
            assert!(simt(wide, false).shared <= 64 << 10, "{dim}");
            assert!(simt(wide, true).shared <= 113 << 10, "{dim}");
            assert!(mma(half, Vendor::Amd, 64).shared <= 64 << 10, "{dim}");
            assert!(mma(half, Vendor::Nvidia, 32).shared <= 99 << 10, "{dim}");
            assert!(dim > USUAL_HEAD_DIM as u32 || sm90a(half, false).shared <= 227 << 10, "{dim}");
        }
    }

    /// Safe code cannot create overlapping views: only tests inside the crate can.
    #[test]
    fn results_overlap_nothing() {
        let device = virtual_driver().device(0).unwrap();
        let (kernels, stream) = (Kernels::new(&device, &warpwave_jit::Jit::default()), device.stream().unwrap());
        let buffer = stream.upload(&vec![0u8; 4096]).unwrap();
        let view = |shape: &[usize], offset: usize, dtype| {
            let strides = crate::Layout::contiguous(shape).unwrap().strides().to_vec();
            View::of_bytes(&buffer, dtype, crate::Layout::new(shape, &strides, offset).unwrap()).unwrap()
        };
        // 64 elements each, consecutive.
        let part = |i: usize| view(&[1, 2, 1, 32], 64 * i, DType::F16);
        let lse = |i: usize| view(&[1, 1, 2], 32 * i, DType::F32);
        let run = |out: usize, lse_at: usize| {
            let keys = KeyValues { keys: part(1), values: part(2), table: None, lengths: None };
            kernels.attend(&stream, &part(0), (&keys, None), &AttentionOptions::new(1.0), None, part(out), Some(lse(lse_at)))
        };
        for (out, lse_at) in [(0, 5), (1, 5), (2, 5), (4, 0), (4, 2), (4, 4)] {
            assert!(matches!(run(out, lse_at), Err(Error::Overlap { .. })), "{out} {lse_at}");
        }
        assert!(stream.download(&buffer).unwrap().iter().all(|byte| *byte == 0));
    }
}
