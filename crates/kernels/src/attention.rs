//! Attention of many queries: `softmax(q · kᵀ) · v`, its scores never in memory.

use bytemuck::{Pod, Zeroable};
use warpwave_gpu::{Arch, Arg, DeviceInfo, Launch, MatrixUnits, Stream, Vendor};

use crate::attention_options::{AttentionOptions, KeyValues};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::headers;
use crate::kernels::{Kernels, apart, refused, same_type, wrong_shape, wrong_type};
use crate::source::{File, Recipe};
use crate::view::{View, ViewMut};

const OP: &str = "attention";
const SHARED: &str = include_str!("cu/attention.cuh");
const PANELS: &str = include_str!("cu/panels.cuh");
static PLAIN: File = File { name: "flash_plain.cu", texts: &[headers::TYPES, SHARED, include_str!("cu/flash_plain.cu")], kernels: &[""] };
static TILES: File =
    File { name: "flash.cu", texts: &[headers::TYPES, headers::TILE, SHARED, PANELS, include_str!("cu/flash.cu")], kernels: &[""] };
static HOPPER: File = File {
    name: "flash_sm90a.cu",
    texts: &["// warpwave: needs sm_90a\n", headers::TYPES, headers::TILE, SHARED, PANELS, include_str!("cu/flash_sm90a.cu")],
    kernels: &[""],
};

/// Heads are at most so large.
const MOST_DIM: usize = 256;
/// Rows of a sequence at most; places and windows add up in 32 bits.
const MOST_ROWS: usize = 1 << 29;
const TYPES_TAKEN: [DType; 3] = [DType::F32, DType::F16, DType::Bf16];

/// Sequences one behind the other, without gaps: where each starts, and behind the last one where it ends, `u32` or `i32` of
/// (sequences + 1). Starts that lie beyond the rows, or before the start before them, are held to what there is.
#[derive(Debug, Clone, Copy)]
pub struct Packed<'a> {
    /// The queries' starts; the queries and the result are of (rows, heads, dimension).
    pub queries: View<'a>,
    /// Queries of the longest sequence: of longer ones, those behind are not computed.
    pub longest: usize,
    /// The keys' starts; keys and values are of (rows, heads, dimension). Without it they are as [`KeyValues`] says.
    pub keys: Option<View<'a>>,
}

/// Steps between sequences (or blocks of a table), rows and heads.
#[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
#[repr(C)]
struct Steps {
    sequence: i64,
    row: i64,
    head: i64,
}

/// The struct of the kernels.
#[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
#[repr(C)]
struct Shape {
    q: Steps,
    k: Steps,
    v: Steps,
    out: Steps,
    lse: Steps,
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
    together: i32,
    pairs: i32,
    scale: f32,
    cap: f32,
    slopes: i32,
    aligned: i32,
    wide: i32,
}

/// A program, and how it is launched.
#[derive(Debug, Clone, Copy)]
struct Choice {
    recipe: Recipe,
    /// Queries of a block.
    queries: u32,
    threads: u32,
    shared: u32,
}

/// Rows of shared memory are of panels of 64 elements.
fn panels(dim: u32) -> u32 {
    dim.next_multiple_of(64)
}

/// With `much` shared memory there are more keys for each query that is read.
fn plain(dtype: DType, dim: u32, much: bool) -> Choice {
    // 64 KiB are all that AMD has.
    let (queries, keys) = match (much, dim <= 128) {
        (true, true) => (64, 64),
        (true, false) | (false, true) => (64, 32),
        (false, false) => (32, 16),
    };
    let recipe = Recipe::new(&PLAIN, "flash_plain", &[dtype.name()], &[("D", dim), ("BM", queries), ("BN", keys)]);
    Choice { recipe, queries, threads: 256, shared: 4 * ((queries + keys) * (dim + 4) + queries * (keys + 4)) }
}

fn tiles(dtype: DType, dim: u32, vendor: Vendor, wave: u32) -> Choice {
    let (each, keys) = match (vendor, dim) {
        (Vendor::Nvidia, ..=64) => (2, 64),
        (Vendor::Nvidia, ..=128) => (2, 48),
        (Vendor::Nvidia, _) => (1, 64),
        (Vendor::Amd, ..=192) => (1, 32),
        (Vendor::Amd, _) => (1, 16),
    };
    let waves = 4;
    let numbers = [("D", dim), ("BN", keys), ("MT", each), ("WAVES", waves)];
    let queries = waves * each * 16;
    Choice {
        recipe: Recipe::new(&TILES, "flash", &[dtype.name()], &numbers),
        queries,
        threads: waves * wave,
        shared: (queries + 2 * keys) * panels(dim) * 2,
    }
}

fn hopper(dtype: DType, dim: u32, paged: bool) -> Choice {
    // Three groups need the registers that fetching pages takes.
    let (groups, stages, keys) = (if dim <= 64 && !paged { 3 } else { 2 }, 2, if dim <= 128 { 128 } else { 64 });
    let numbers = [("D", dim), ("BN", keys), ("GROUPS", groups), ("STAGES", stages), ("PAGED", paged.into())];
    let queries = 64 * groups;
    Choice {
        recipe: Recipe::new(&HOPPER, "flash_hopper", &[dtype.name()], &numbers),
        queries,
        threads: 128 * (groups + 1),
        // Tiles begin at multiples of 1024 bytes; behind them are the barriers, and which keys are missing.
        shared: 1024 + (queries + 2 * stages * keys) * panels(dim) * 2 + 40 * stages,
    }
}

/// Whether `tile.cuh` has matrix units there.
fn has_matrix_units(info: &DeviceInfo) -> bool {
    matches!(info.matrix_units, MatrixUnits::TensorCores | MatrixUnits::Mfma)
}

fn choose(info: &DeviceInfo, dtype: DType, dim: usize, aligned: bool, paged: bool) -> Choice {
    let dim = (dim as u32).next_multiple_of(32);
    if dtype == DType::F32 || !has_matrix_units(info) {
        let much = plain(dtype, dim, true);
        // Two blocks at a time, so that one computes while the other reads; 1 KiB of each is the driver's.
        let fits = info.vendor == Vendor::Nvidia && 2 * (much.shared as usize + 1024) <= info.shared_per_unit;
        if fits { much } else { plain(dtype, dim, false) }
    } else if info.arch == Arch::compute_capability(9, 0) && aligned {
        hopper(dtype, dim, paged)
    } else {
        tiles(dtype, dim, info.vendor, info.wave_size)
    }
}

/// Every program of attention.
pub(crate) fn recipes() -> Vec<Recipe> {
    let dims = || (32..=MOST_DIM as u32).step_by(32);
    let mut recipes = Vec::new();
    for (dtype, dim) in TYPES_TAKEN.into_iter().flat_map(|dtype| dims().map(move |dim| (dtype, dim))) {
        recipes.extend([false, true].map(|much| plain(dtype, dim, much).recipe));
        if dtype != DType::F32 {
            recipes.extend([Vendor::Nvidia, Vendor::Amd].map(|vendor| tiles(dtype, dim, vendor, 64).recipe));
            recipes.extend([false, true].map(|paged| hopper(dtype, dim, paged).recipe));
        }
    }
    recipes
}

fn bad(reason: impl Into<String>) -> Error {
    Error::BadArgument { op: OP.to_owned(), reason: reason.into() }
}

/// A table of whole numbers of this shape, in order.
fn check_table(what: &'static str, view: &View<'_>, shape: &[usize]) -> Result<()> {
    if ![DType::U32, DType::I32].contains(&view.dtype()) {
        return Err(wrong_type(OP, what, view.dtype(), "u32 or i32"));
    }
    check_ordered(what, view, shape)
}

fn check_ordered(what: &'static str, view: &View<'_>, shape: &[usize]) -> Result<()> {
    if view.layout().shape() != shape {
        return Err(wrong_shape(OP, what, view, format!("{shape:?} would fit")));
    }
    if !view.layout().is_contiguous() {
        return Err(bad(format!("{what} must be contiguous")));
    }
    Ok(())
}

/// Sequences, rows, heads and dimension of a view; packed rows are of one sequence.
fn check_rows(what: &'static str, view: &View<'_>, packed: bool) -> Result<[usize; 4]> {
    match *view.layout().shape() {
        [sequences, rows, heads, dim] if !packed => Ok([sequences, rows, heads, dim]),
        [rows, heads, dim] if packed => Ok([1, rows, heads, dim]),
        _ => Err(wrong_shape(OP, what, view, format!("it takes ({}rows, heads, dimension)", if packed { "" } else { "sequences, " }))),
    }
}

/// The strides of a checked view.
fn steps(view: &View<'_>) -> Steps {
    // Where there is one alone the next is never read, but its address counts.
    let dims = view.layout().shape().iter().zip(view.layout().strides());
    let strides: Vec<i64> = dims.map(|(size, stride)| if *size == 1 { 0 } else { *stride as i64 }).collect();
    match strides[..] {
        [sequence, row, head, _] => Steps { sequence, row, head },
        [row, head, _] => Steps { sequence: 0, row, head },
        _ => Steps::default(),
    }
}

/// Whether each row begins at a multiple of 16 bytes.
fn is_aligned(view: &View<'_>) -> bool {
    let (layout, size) = (view.layout(), view.dtype().size());
    let mut dims = layout.shape().iter().zip(layout.strides()).rev().skip(1);
    view.address().is_multiple_of(16) && dims.all(|(n, stride)| *n <= 1 || stride.is_multiple_of(16 / size))
}

impl Kernels {
    /// `out = softmax(q · kᵀ · scale) · v` for each head, `out` and `q` of (sequences, queries, heads, dimension): f32, f16 or bf16, f16 and
    /// bf16 with sums in f32. Heads of keys and values may be fewer, each for as many neighbouring heads of queries. The dimension is a
    /// multiple of 8 up to 256, its elements side by side; other strides are free. A query that sees no key gets zeros.
    ///
    /// NaN in a query or a key reaches the queries that see it, and no others. Values that are NaN or infinite may reach queries near
    /// those that see them too: what is not seen is multiplied with 0. What lies behind the lengths reaches none.
    ///
    /// `lse`, an `f32` of (sequences, heads, queries), gets the logarithms of the sums of the scores' powers: −∞ where there are none.
    pub fn attention(
        &self,
        stream: &Stream,
        q: &View<'_>,
        keys: &KeyValues<'_>,
        options: &AttentionOptions<'_>,
        out: &mut ViewMut<'_>,
        lse: Option<&mut ViewMut<'_>>,
    ) -> Result<()> {
        self.attend(stream, q, keys, options, None, out.as_view(), lse.map(|lse| lse.as_view()))
    }

    /// The same of packed sequences: `out` and `q` are of (rows, heads, dimension), and `lse` of (heads, rows).
    #[allow(clippy::too_many_arguments)]
    pub fn attention_packed(
        &self,
        stream: &Stream,
        q: &View<'_>,
        keys: &KeyValues<'_>,
        packed: &Packed<'_>,
        options: &AttentionOptions<'_>,
        out: &mut ViewMut<'_>,
        lse: Option<&mut ViewMut<'_>>,
    ) -> Result<()> {
        self.attend(stream, q, keys, options, Some(packed), out.as_view(), lse.map(|lse| lse.as_view()))
    }

    #[allow(clippy::too_many_arguments)]
    fn attend(
        &self,
        stream: &Stream,
        q: &View<'_>,
        keys: &KeyValues<'_>,
        options: &AttentionOptions<'_>,
        packed: Option<&Packed<'_>>,
        out: View<'_>,
        lse: Option<View<'_>>,
    ) -> Result<()> {
        let (k, v) = (keys.keys, keys.values);
        let kv_starts = packed.and_then(|packed| packed.keys);
        let tables = [
            ("the slopes", options.alibi),
            ("the starts of the queries", packed.map(|packed| packed.queries)),
            ("the starts of the keys", kv_starts),
            ("the numbers of keys", keys.lengths),
            ("the table", keys.table),
        ];
        let there = tables.iter().filter_map(|(what, view)| Some((*what, (*view)?)));
        let inputs: Vec<_> = [("the queries", *q), ("the keys", k), ("the values", v)].into_iter().chain(there).collect();
        let results = [("the result", out)].into_iter().chain(lse.map(|lse| ("the logarithms", lse)));
        self.check_devices(OP, stream, inputs.iter().copied().chain(results))?;

        let mut shape = check(q, keys, options, packed, &out, lse.as_ref())?;
        for (what, input) in &inputs {
            apart(OP, what, input, &out)?;
            lse.iter().try_for_each(|lse| apart(OP, what, input, lse))?;
        }
        lse.iter().try_for_each(|lse| apart(OP, "the array of logarithms", lse, &out))?;
        if out.layout().is_empty() || shape.q_len == 0 || shape.pairs == 0 {
            return Ok(());
        }

        let aligned = [*q, k, v, out].iter().all(is_aligned);
        let choice = choose(self.device().info(), q.dtype(), shape.dim as usize, aligned, keys.table.is_some());
        shape.aligned = aligned.into();
        shape.tiles = (shape.q_len as u32).div_ceil(choice.queries) as i32;
        shape.together = together(&shape, q.dtype().size(), self.device().info().l2_bytes);
        let Some(blocks) = (shape.tiles as u32).checked_mul(shape.pairs as u32).filter(|blocks| *blocks < 1 << 31) else {
            return Err(bad("more blocks of queries than a launch can have"));
        };
        let kernel = &self.load(&choice.recipe)?[0];
        let [slopes, q_starts, kv_starts, lengths, table] = tables.map(|(_, view)| pointer(view));
        let launch = Launch::new([blocks, 1, 1], [choice.threads, 1, 1]).shared(choice.shared);
        let [q, k, v, out] = [*q, k, v, out].map(|view| Arg::from(view.start()));
        let arguments = (q, k, v, slopes, q_starts, kv_starts, lengths, table, Arg::value(&shape), out, pointer(lse));
        // SAFETY: the kernel was made for this type and takes these arguments. The views' shapes were checked against each other and their
        // places against their memory; what the tables say is held to those shapes in the kernel. It writes the result and the logarithms
        // alone, which overlap nothing.
        unsafe { kernel.launch(stream, launch, arguments) }.map_err(refused(OP))
    }
}

/// Where a view starts; null without one.
fn pointer(view: Option<View<'_>>) -> Arg<'_> {
    view.map_or(Arg::from(0u64), |view| Arg::from(view.start()))
}

/// Everything but devices and overlap.
fn check(
    q: &View<'_>,
    keys: &KeyValues<'_>,
    options: &AttentionOptions<'_>,
    packed: Option<&Packed<'_>>,
    out: &View<'_>,
    lse: Option<&View<'_>>,
) -> Result<Shape> {
    let (k, v, dtype) = (&keys.keys, &keys.values, q.dtype());
    if !TYPES_TAKEN.contains(&dtype) {
        return Err(wrong_type(OP, "the queries", dtype, "f32, f16 or bf16"));
    }
    for (what, view) in [("the keys", k), ("the values", v), ("the result", out)] {
        same_type(OP, what, *view, dtype)?;
    }
    let kv_packed = packed.and_then(|packed| packed.keys);
    if kv_packed.is_some() && (keys.table.is_some() || keys.lengths.is_some()) {
        return Err(bad("packed keys have neither a table nor numbers of keys"));
    }
    let [mut sequences, q_rows, heads, dim] = check_rows("the queries", q, packed.is_some())?;
    let [kv_sequences, kv_rows, kv_heads, _] = check_rows("the keys", k, kv_packed.is_some())?;
    if dim == 0 || !dim.is_multiple_of(8) || dim > MOST_DIM {
        return Err(wrong_shape(OP, "the queries", q, format!("the dimension is a multiple of 8 up to {MOST_DIM}")));
    }
    if let Some(packed) = packed {
        let starts = packed.queries.layout().len();
        check_table("the starts of the queries", &packed.queries, &[starts.max(1)])?;
        sequences = starts - 1;
    }
    let same_shape = |what, view: &View<'_>, like: &View<'_>| match view.layout().shape() == like.layout().shape() {
        true => Ok(()),
        false => Err(wrong_shape(OP, what, view, format!("{:?} would fit", like.layout().shape()))),
    };
    same_shape("the result", out, q)?;
    same_shape("the values", v, k)?;
    if k.layout().shape().last() != Some(&dim) {
        return Err(wrong_shape(OP, "the keys", k, format!("the queries' dimension is {dim}")));
    }
    if kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
        return Err(wrong_shape(OP, "the keys", k, format!("the queries' {heads} heads are no multiple of its heads")));
    }
    if keys.table.is_none() && kv_packed.is_none() && kv_sequences != sequences {
        return Err(wrong_shape(OP, "the keys", k, format!("there are {sequences} sequences of queries")));
    }
    for (what, view) in [("the queries", q), ("the keys", k), ("the values", v), ("the result", out)] {
        if view.layout().strides().last() != Some(&1) {
            return Err(bad(format!("{what}: the elements of a head must lie side by side")));
        }
    }
    let mut columns = 0;
    if let Some(table) = &keys.table {
        columns = table.layout().shape().last().copied().unwrap_or(0);
        check_table("the table", table, &[sequences, columns])?;
    }
    if let Some(starts) = &kv_packed {
        check_table("the starts of the keys", starts, &[sequences + 1])?;
    }
    if let Some(lengths) = &keys.lengths {
        check_table("the numbers of keys", lengths, &[sequences])?;
    }
    if let Some(slopes) = &options.alibi {
        same_type(OP, "the slopes", *slopes, DType::F32)?;
        check_ordered("the slopes", slopes, &[heads])?;
    }
    if let Some(lse) = lse {
        same_type(OP, "the logarithms", *lse, DType::F32)?;
        let expected = if packed.is_some() { vec![heads, q_rows] } else { vec![sequences, heads, q_rows] };
        if lse.layout().shape() != expected {
            return Err(wrong_shape(OP, "the logarithms", lse, format!("{expected:?} would fit")));
        }
    }
    if !options.scale.is_finite() || options.soft_cap.is_some_and(|cap| !(cap.is_finite() && cap > 0.0)) {
        return Err(bad("the scale must be finite, and a soft cap finite and above 0"));
    }
    if options.window == Some(0) {
        return Err(bad("a window of 0 shows nothing"));
    }
    let q_len = packed.map_or(q_rows, |packed| packed.longest.min(q_rows));
    let kv_len = if keys.table.is_some() { kv_rows.saturating_mul(columns) } else { kv_rows };
    if [q_rows, kv_rows, kv_len, kv_sequences, columns].iter().any(|rows| *rows >= MOST_ROWS) {
        return Err(bad(format!("sequences have at most {MOST_ROWS} rows")));
    }
    let Some(pairs) = sequences.checked_mul(heads).filter(|pairs| *pairs < MOST_ROWS) else {
        return Err(bad(format!("{sequences} sequences of {heads} heads are too many")));
    };
    let window = options.window.unwrap_or(MOST_ROWS).min(MOST_ROWS) as i32 - 1;
    let lse_steps = |lse: &View<'_>| match *lse.layout().strides() {
        [sequence, head, row] => Steps { sequence: sequence as i64, row: row as i64, head: head as i64 },
        [head, row] => Steps { sequence: 0, row: row as i64, head: head as i64 },
        _ => Steps::default(),
    };
    Ok(Shape {
        q: steps(q),
        k: steps(k),
        v: steps(v),
        out: steps(out),
        lse: lse.map(lse_steps).unwrap_or_default(),
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
        left: window,
        right: if options.causal { 0 } else { window },
        pairs: pairs as i32,
        scale: options.scale,
        cap: options.soft_cap.unwrap_or(0.0),
        wide: [packed.map(|packed| packed.queries), kv_packed, keys.lengths]
            .iter()
            .enumerate()
            .map(|(bit, table)| i32::from(table.is_some_and(|table| table.dtype() == DType::U32)) << bit)
            .sum(),
        ..Shape::default()
    })
}

/// How many pairs of sequence and head are worked on at once: where the blocks of a pair differ in work, those of several are mixed so that
/// the long ones come first; but their keys and values should stay in the cache.
fn together(shape: &Shape, size: usize, cache: usize) -> i32 {
    let bytes = 2 * shape.kv_len as usize * shape.dim as usize * size / shape.group.max(1) as usize;
    let fit = (cache / 2 / bytes.max(1)).clamp(1, 64) as i32;
    if shape.right < shape.kv_len { fit.min(shape.pairs) } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernels are compiled with must fit the smallest shared memory that they are used with.
    #[test]
    fn tiles_fit_shared_memory() {
        for dim in (32..=256).step_by(32) {
            assert!(plain(DType::F32, dim, false).shared <= 64 << 10, "{dim}");
            assert!(plain(DType::F32, dim, true).shared <= 113 << 10, "{dim}");
            assert!(tiles(DType::F16, dim, Vendor::Amd, 64).shared <= 64 << 10, "{dim}");
            assert!(tiles(DType::F16, dim, Vendor::Nvidia, 32).shared <= 99 << 10, "{dim}");
            assert!(hopper(DType::F16, dim, false).shared <= 227 << 10, "{dim}");
        }
    }

    /// Borrows keep views of safe code apart: only in here can they be made to overlap.
    #[test]
    fn results_overlap_nothing() {
        let names = warpwave_vgpu::hip::Config::from_env().unwrap().names();
        // SAFETY: the virtual GPU's functions have the shapes of HIP's, which the table's rows declare.
        let driver = unsafe { warpwave_gpu::Driver::in_process("vgpu", Vendor::Amd, warpwave_vgpu::hip::lookup, Some(names)) }.unwrap();
        let device = driver.device(0).unwrap();
        let (kernels, stream) = (Kernels::new(&device, &warpwave_jit::Jit::default()), device.stream().unwrap());
        let buffer = stream.upload(&vec![0u8; 4096]).unwrap();
        let view = |shape: &[usize], offset: usize, dtype| {
            let strides = crate::Layout::contiguous(shape).unwrap().strides().to_vec();
            View::of_bytes(&buffer, dtype, crate::Layout::new(shape, &strides, offset).unwrap()).unwrap()
        };
        // 64 elements each, one behind the other.
        let part = |i: usize| view(&[1, 2, 1, 32], 64 * i, DType::F16);
        let lse = |i: usize| view(&[1, 1, 2], 32 * i, DType::F32);
        let run = |out: usize, lse_at: usize| {
            let keys = KeyValues { keys: part(1), values: part(2), table: None, lengths: None };
            kernels.attend(&stream, &part(0), &keys, &AttentionOptions::new(1.0), None, part(out), Some(lse(lse_at)))
        };
        for (out, lse_at) in [(0, 5), (1, 5), (2, 5), (4, 0), (4, 2), (4, 4)] {
            assert!(matches!(run(out, lse_at), Err(Error::Overlap { .. })), "{out} {lse_at}");
        }
        assert!(stream.download(&buffer).unwrap().iter().all(|byte| *byte == 0));
    }
}
