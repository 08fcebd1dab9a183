//! Decode attention: few queries, many keys, with split-KV.

use std::f32::consts::LOG2_E;

use bytemuck::{Pod, Zeroable};
use warpwave_gpu::{Arg, DeviceInfo, Launch, Stream, Vendor};

use super::with_codes;
use crate::attention::options::{AttentionOptions, CacheScales, KeyValues};
use crate::attention::{CODES, MAX_HEAD_DIM, USUAL_HEAD_DIM};
use crate::common::heads::{HeadStrides, check_dtype, check_shape, packed, pointer, sizes, small, strides_i32, width};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::{Kernels, check_no_overlap, check_same_dtype, launch_error, shape_error};
use crate::program::{Program, SourceFile, source_file};
use crate::view::{View, ViewMut};

const KERNELS: &[&str] = &["_split", "_combine"];
static MMA: SourceFile = source_file!("attention/decode_mma.cu", KERNELS);
static SIMT: SourceFile = source_file!("attention/decode_simt.cu", KERNELS);

/// Rows of queries, and keys, of a tile on the matrix units.
const TILE: usize = 16;
/// Rows of queries per block of the SIMT kernel.
const MAX_ROWS: usize = 4;
/// Fewer keys are not worth a split of their own.
const MIN_SPLIT_KEYS: usize = 64;
/// The most KV splits: 16 threads combine four each.
const MAX_SPLITS: usize = 64;

/// Parameters of the kernels.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Params {
    q: HeadStrides,
    k: HeadStrides,
    v: HeadStrides,
    out: HeadStrides,
    table: [i32; 2],
    tree: [i32; 2],
    slopes: [i32; 2],
    lengths: i32,
    sinks: i32,
    tokens: i32,
    heads: i32,
    group: i32,
    keys: i32,
    block_keys: i32,
    blocks: i32,
    splits: i32,
    left: i32,
    right: i32,
    vector_queries: i32,
    wide: i32,
    padding: i32,
    scale: f32,
    cap: f32,
}

/// A kernel and its shape.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Variant {
    /// On matrix units; `half_tile` if there are at most 8 rows.
    Mma { waves: u32, half_tile: bool },
    Simt {
        waves: u32,
        rows: u32,
        vectors: bool,
        /// Pipeline stages: keys of a lane in flight, and the one it works on.
        stages: u32,
    },
}

impl Variant {
    /// The program for calls with a tree mask.
    fn tree_program(self, types: [DType; 2], dim: usize, paged: bool) -> Program {
        self.program(types, dim, paged).with("TREE", 1)
    }

    fn program(self, types: [DType; 2], dim: usize, paged: bool) -> Program {
        let (types, dim, paged) = (types.map(DType::name), ("DIM", dim as u32), ("PAGED", paged.into()));
        match self {
            Variant::Mma { waves, half_tile } => {
                Program::new(&MMA, "decode_mma", &types, &[dim, paged, ("WAVES", waves), ("HALF_TILE", half_tile.into())])
            }
            Variant::Simt { waves, rows, vectors, stages } => {
                let constants = [dim, paged, ("WAVES", waves), ("ROWS", rows), ("VECTORS", vectors.into()), ("STAGES", stages)];
                Program::new(&SIMT, "decode_simt", &types, &constants)
            }
        }
    }

    /// Returns the dynamic shared memory in bytes: two tiles of keys and values per wave and the queries (`Mma`), or each lane's keys and
    /// values (`Simt`).
    fn shared(self, dtype: DType, dim: usize, wave: u32) -> u32 {
        let (size, columns) = (dtype.size() as u32, if dim <= 32 { 32 } else { dim.next_multiple_of(64) });
        match self {
            Variant::Mma { waves, .. } => (4 * waves + 1) * TILE as u32 * size * columns as u32,
            // The waves' results reuse this memory.
            Variant::Simt { waves, rows, stages, .. } => {
                let each = each_lane(dim);
                let lanes = (dim.next_power_of_two() as u32 / each).clamp(4, 32);
                (2 * stages * waves * wave * each * size).max(4 * waves * rows * lanes * each)
            }
        }
    }

    fn rows(self) -> usize {
        match self {
            Variant::Mma { .. } => TILE,
            Variant::Simt { rows, .. } => rows as usize,
        }
    }

    fn waves(self) -> u32 {
        match self {
            Variant::Mma { waves, .. } | Variant::Simt { waves, .. } => waves,
        }
    }
}

/// Elements of a key per lane of the SIMT kernel, of at most 32 lanes.
fn each_lane(dim: usize) -> u32 {
    if dim <= USUAL_HEAD_DIM { 8 } else { 16 }
}

/// Returns the variants to try, best first; the first that fits the shared memory is used. `units` is the vendor if its matrix units can be
/// used, `copies` asks for more copies in flight, and `alone` says that all blocks run at once however the keys are split.
fn variants(units: Option<Vendor>, copies: bool, dim: usize, rows: usize, alone: bool, vectors: bool) -> impl Iterator<Item = Variant> {
    let tiles: &[u32] = match units {
        Some(Vendor::Nvidia) if dim <= 64 && !alone => &[6, 4, 2, 1],
        Some(Vendor::Nvidia) if dim <= 128 => &[4, 2, 1],
        Some(Vendor::Nvidia) => &[3, 2, 1],
        Some(Vendor::Amd) => &[4, 2, 1],
        None => &[],
    };
    // On AMD a lane has only one row.
    let half_tile = rows <= TILE / 2 && units == Some(Vendor::Nvidia);
    let tiles = tiles.iter().map(move |waves| Variant::Mma { waves: *waves, half_tile });
    let rows = rows.next_power_of_two().min(MAX_ROWS) as u32;
    let many = (copies && vectors).then_some((8, 4));
    let plain = many.into_iter().chain([8, 4, 2, 1].map(|waves| (waves, 2)));
    tiles.chain(plain.map(move |(waves, stages)| Variant::Simt { waves, rows, vectors, stages }))
}

const OP: &str = "decode_attention";

fn bad(reason: String) -> Error {
    Error::BadArgument { op: OP.to_owned(), reason }
}

impl Kernels {
    /// Computes attention for few queries and many keys (decode), with the keys split across blocks (split-KV).
    ///
    /// Queries are (sequences, tokens, heads, head_dim): `f32`, `f16` or `bf16`, head_dim up to 512, with grouped KV heads. The result has
    /// the same type or is `f32`. Queries that see no key yield zeros. NaN propagates as in [`Kernels::attention`].
    pub fn decode_attention(
        &self,
        stream: &Stream,
        q: &View<'_>,
        kv: &KeyValues<'_>,
        options: &AttentionOptions<'_>,
        out: &mut ViewMut<'_>,
    ) -> Result<()> {
        self.decode(stream, q, (kv, None), options, out)
    }

    /// Computes [`Kernels::decode_attention`] over a quantized cache, whose codes are the keys and values.
    pub fn decode_attention_quantized(
        &self,
        stream: &Stream,
        q: &View<'_>,
        kv: &KeyValues<'_>,
        scales: &CacheScales<'_>,
        options: &AttentionOptions<'_>,
        out: &mut ViewMut<'_>,
    ) -> Result<()> {
        self.decode(stream, q, (kv, Some(scales)), options, out)
    }

    fn decode(
        &self,
        stream: &Stream,
        q: &View<'_>,
        (kv, scales): (&KeyValues<'_>, Option<&CacheScales<'_>>),
        options: &AttentionOptions<'_>,
        out: &mut ViewMut<'_>,
    ) -> Result<()> {
        let (q, out, dtype) = (*q, out.as_view(), q.dtype());
        check_dtype(OP, "queries", &q, &[DType::F32, DType::F16, DType::Bf16])?;
        let cached = scales.map_or(dtype, |scales| scales.codes.dtype());
        check_same_dtype(OP, "keys", kv.keys, cached)?;
        check_same_dtype(OP, "values", kv.values, cached)?;
        check_dtype(OP, "result", &out, &[dtype, DType::F32])?;
        let [sequences, tokens, heads, dim] = sizes(OP, "queries", &q, "sequences, tokens, heads, head_dim")?;
        let [blocks, block_keys, kv_heads, _] = sizes(OP, "keys", &kv.keys, "sequences or blocks, block size, heads, head_dim")?;
        check_shape(OP, "result", &out, q.layout().shape())?;
        check_shape(OP, "values", &kv.values, kv.keys.layout().shape())?;
        let fits = kv_heads > 0 && heads.is_multiple_of(kv_heads) && (kv.table.is_some() || blocks == sequences);
        if !fits || kv.keys.layout().shape()[3] != dim {
            return Err(shape_error(
                OP,
                "keys",
                &kv.keys,
                format!(
                    "with the same number of sequences and head_dim as {:?}, and a number of KV heads that divides its number of query heads",
                    q.layout().shape()
                ),
            ));
        }
        let scale_strides = scales.map(|scales| scales.check_attention(OP, &kv.keys, options)).transpose()?;
        let mut keys = block_keys;
        if let Some(table) = &kv.table {
            check_dtype(OP, "block table", table, &[DType::I32, DType::U32])?;
            let [_, most] = sizes(OP, "block table", table, "sequences, blocks")?;
            check_shape(OP, "block table", table, &[sequences, most])?;
            keys = most.saturating_mul(block_keys);
        }
        if let Some(lengths) = &kv.lengths {
            check_dtype(OP, "lengths", lengths, &[DType::I32, DType::U32])?;
            check_shape(OP, "lengths", lengths, &[sequences])?;
        }
        options.check(OP, sequences, heads, &[sequences, tokens])?;
        if !(1..=MAX_HEAD_DIM).contains(&dim) && !q.layout().is_empty() {
            return Err(shape_error(OP, "queries", &q, format!("with head_dim 1 to {MAX_HEAD_DIM}")));
        }
        let inputs = [Some(("queries", q)), Some(("keys", kv.keys)), Some(("values", kv.values))];
        let others = [kv.table.map(|v| ("block table", v)), kv.lengths.map(|v| ("lengths", v))];
        let optional = options.views().map(|(what, view)| view.map(|view| (what, view)));
        let scale_views = || scales.into_iter().flat_map(CacheScales::views);
        let inputs = || inputs.into_iter().chain(others).chain(optional).flatten().chain(scale_views());
        self.check_devices(OP, stream, inputs().chain([("result", out)]))?;
        for (what, view) in inputs() {
            check_no_overlap(OP, what, &view, &out)?;
        }
        let rows = sequences.checked_mul(tokens).and_then(|n| n.checked_mul(heads)).unwrap_or(usize::MAX);
        let largest = [rows, keys, blocks, block_keys, tokens * heads].into_iter().max().unwrap_or(0);
        let Some(group) = heads.checked_div(kv_heads).filter(|_| largest < 1 << 30) else {
            return Err(bad(format!("{largest} queries or keys exceed the limit of 2^30")));
        };
        if out.layout().is_empty() {
            return Ok(());
        }
        if sequences > 65535 || kv_heads * (tokens * group) > 65535 {
            return Err(bad(format!("{sequences} sequences with {tokens} tokens of {heads} heads exceed the maximum grid size")));
        }

        let info = self.device().info();
        let variant = self.variant(&q, (kv, scales.is_some()), tokens * group, sequences * kv_heads)?;
        let groups = (tokens * group).div_ceil(variant.rows());
        let alone = alone(sequences * kv_heads, tokens * group, info.compute_units as usize);
        let program = if options.tree.is_some() { Variant::tree_program } else { Variant::program };
        let program = program(variant, [dtype, out.dtype()], dim, kv.table.is_some());
        let kernels = self.load(&scales.map_or(program, |scales| with_codes(program, scales.codes)))?;
        let threads = variant.waves() * info.wave_size;
        // Tiles of the matrix units have the type of the queries.
        let staged = if matches!(variant, Variant::Simt { .. }) { cached } else { dtype };
        let mut shared = variant.shared(staged, dim, info.wave_size);
        if matches!(variant, Variant::Mma { waves: 4, .. }) && info.vendor == Vendor::Nvidia && dim > 64 && !alone {
            // More than a third of a multiprocessor: with many blocks, two at a time read faster than three, and fewer multiprocessors idle
            // at the end.
            shared = shared.max(info.shared_per_block_max as u32 / 3 + 1024);
        }
        let splits = splits(&Share {
            blocks: sequences * kv_heads * groups,
            keys,
            key_bytes: 2 * dim * cached.size(),
            units: info.compute_units as usize,
            // If the driver does not answer, two blocks are likely.
            at_once: kernels[0].active_blocks(threads, shared).unwrap_or(2).max(1) as usize,
            enough: if variant.waves() == 6 { 1.0 } else { 2.0 },
        });
        let [left, right] = options.window.bounds(1 << 30);
        let [sequence_slopes, head_slopes] = options.slope_strides();
        let params = Params {
            q: HeadStrides::of(OP, &q)?,
            k: HeadStrides::of(OP, &kv.keys)?,
            v: HeadStrides::of(OP, &kv.values)?,
            out: HeadStrides::of(OP, &out)?,
            table: kv.table.map(|table| strides_i32(OP, &table)).transpose()?.unwrap_or_default(),
            tree: options.tree.map(|tree| strides_i32(OP, &tree)).transpose()?.unwrap_or_default(),
            slopes: [small(OP, "a stride", sequence_slopes)?, small(OP, "a stride", head_slopes)?],
            lengths: kv.lengths.map_or(Ok([0]), |lengths| strides_i32(OP, &lengths))?[0],
            sinks: options.sinks.map_or(Ok([0]), |sinks| strides_i32(OP, &sinks))?[0],
            tokens: tokens as i32,
            heads: heads as i32,
            group: group as i32,
            keys: keys as i32,
            block_keys: block_keys as i32,
            blocks: blocks as i32,
            splits: splits as i32,
            left,
            right,
            vector_queries: packed(&q, width(&[dtype])).into(),
            wide: kv.lengths.is_some_and(|lengths| lengths.dtype() == DType::U32).into(),
            padding: 0,
            scale: options.soft_cap.map_or(options.scale * LOG2_E, |cap| options.scale / cap),
            cap: options.soft_cap.map_or(0.0, |cap| cap * LOG2_E),
        };
        // Partial results and the logarithms of their sums; freed in stream order.
        let parts = if splits > 1 { rows * splits } else { 0 };
        let partial = stream.alloc::<f32>(parts * dim).map_err(launch_error(OP))?;
        let logs = stream.alloc::<f32>(parts).map_err(launch_error(OP))?;
        let launch = Launch::new([splits as u32, (kv_heads * groups) as u32, sequences as u32], [threads, 1, 1]);
        let args = (
            q.start(),
            kv.keys.start(),
            kv.values.start(),
            out.start(),
            &partial,
            &logs,
            pointer(kv.table),
            pointer(kv.lengths),
            pointer(options.alibi),
            pointer(options.sinks),
            pointer(options.tree),
            Arg::value(&params),
        );
        let launch = launch.shared(shared).pdl();
        // SAFETY: the kernel was compiled for this type, head_dim and layout, and with scales if there are some; it ignores lengths and
        // blocks that are out of range, all views were checked against their memory, and it writes only the result or the partial results.
        let launched = unsafe {
            match (scales, &scale_strides) {
                (Some(scales), Some(strides)) => {
                    let (q, k, v, out, partial, logs, table, lengths, slopes, sinks, tree, params) = args;
                    let (key_scales, value_scales, strides) = (scales.keys.start(), scales.values.start(), Arg::value(strides));
                    let args =
                        (q, k, v, out, partial, logs, table, lengths, slopes, sinks, tree, params, key_scales, value_scales, strides);
                    kernels[0].launch(stream, launch, args)
                }
                _ => kernels[0].launch(stream, launch, args),
            }
        };
        launched.map_err(launch_error(OP))?;
        if splits == 1 {
            return Ok(());
        }
        // One thread in y per split, or per four: larger blocks would wait for the split kernel's blocks to end.
        let down = splits.next_power_of_two().min(16);
        let launch = Launch::new([rows as u32, 1, 1], [32, down as u32, 1]).shared((4 * down * dim) as u32).pdl();
        // SAFETY: as above; the previous launch writes every split, and the kernel waits for it.
        unsafe { kernels[1].launch(stream, launch, (out.start(), &partial, &logs, pointer(options.sinks), Arg::value(&params))) }
            .map_err(launch_error(OP))
    }

    /// Selects the variant for `rows` rows of queries per KV head and `blocks` pairs of sequence and KV head.
    fn variant(&self, q: &View<'_>, (kv, quantized): (&KeyValues<'_>, bool), rows: usize, blocks: usize) -> Result<Variant> {
        let (info, dim, dtype) = (self.device().info(), q.layout().shape()[3], q.dtype());
        // A lane reads eight codes at a time.
        let each = if quantized { each_lane(USUAL_HEAD_DIM) as usize } else { width(&[dtype]) };
        let vectors = packed(&kv.keys, each) && packed(&kv.values, each);
        let whole_tiles = kv.table.is_none() || kv.keys.layout().shape()[1].is_multiple_of(TILE);
        let alone = alone(blocks, rows, info.compute_units as usize);
        // With many sequences, more blocks are faster than more copies per block. The kernel has the scales of two stages only.
        let few_blocks = 2 * blocks <= info.compute_units as usize && !quantized;
        choose(info, dtype, dim, &Rows { rows, vectors, whole_tiles, alone, few_blocks }).map_err(|needed| {
            let shared = shared_limit(info);
            bad(format!("needs {needed} bytes of shared memory per block, but the device has {shared}"))
        })
    }
}

/// What the variant depends on besides the types.
struct Rows {
    /// Rows of queries per KV head.
    rows: usize,
    /// Whether keys and values consist of aligned vectors.
    vectors: bool,
    /// Whether tiles of keys do not cross blocks of the cache.
    whole_tiles: bool,
    alone: bool,
    few_blocks: bool,
}

fn shared_limit(info: &DeviceInfo) -> usize {
    info.shared_per_block_max.max(info.shared_per_block)
}

/// Selects the best variant that fits the shared memory; the error is the least amount that is needed.
fn choose(info: &DeviceInfo, dtype: DType, dim: usize, of: &Rows) -> Result<Variant, usize> {
    // The accumulators of more columns exceed the registers of a wave.
    let fits = dtype != DType::F32 && of.vectors && of.whole_tiles && dim.is_multiple_of(TILE) && dim <= USUAL_HEAD_DIM;
    let units = Some(info.vendor).filter(|_| super::has_matrix_units(info) && fits);
    let copies = info.vendor == Vendor::Nvidia && of.few_blocks;
    let mut needed = usize::MAX;
    let found = variants(units, copies, dim, of.rows, of.alone, of.vectors).find(|variant| {
        // The kernels use a little static shared memory too.
        let bytes = variant.shared(dtype, dim, info.wave_size) as usize + 1024;
        needed = needed.min(bytes);
        bytes <= shared_limit(info)
    });
    found.ok_or(needed)
}

/// Whether that many blocks run at once with tiles of that many rows.
fn alone(blocks: usize, rows: usize, units: usize) -> bool {
    blocks * rows.div_ceil(TILE) <= 3 * units
}

/// The work of a launch without splits.
struct Share {
    blocks: usize,
    keys: usize,
    key_bytes: usize,
    units: usize,
    /// Resident blocks per multiprocessor.
    at_once: usize,
    /// Resident blocks per multiprocessor that saturate its memory bandwidth.
    enough: f64,
}

/// Returns the number of KV splits.
///
/// Minimizes the estimated bytes a multiprocessor reads until all are done: its share of the total; the tail with too few blocks to
/// saturate bandwidth; a fifth of the imbalance; and, in bytes, the cost of further waves of blocks and of combining, as measured on an
/// H200.
fn splits(share: &Share) -> usize {
    let (units, slots) = (share.units.max(1) as f64, (share.units * share.at_once).max(1));
    let cost = |splits: usize| {
        let (blocks, bytes) = (share.blocks * splits, (share.keys.div_ceil(splits) * share.key_bytes) as f64);
        let rounds = (blocks - 1) / slots;
        let last = blocks - rounds * slots;
        let alone = (1.0 - last as f64 / (share.enough * units)).max(0.0);
        let even = blocks as f64 * bytes / units;
        let uneven = (blocks as f64 / units).ceil() * bytes - even;
        let together = if splits > 1 { 70e3 + 5e3 * splits as f64 + if splits > 32 { 100e3 } else { 0.0 } } else { 0.0 };
        even + alone * bytes + 0.2 * uneven + 150e3 * rounds as f64 + together
    };
    (1..=(share.keys / MIN_SPLIT_KEYS).clamp(1, MAX_SPLITS)).min_by(|a, b| cost(*a).total_cmp(&cost(*b))).unwrap_or(1)
}

/// Lists the programs: all types, some of the sizes.
pub(crate) fn programs() -> Vec<Program> {
    let mut programs = Vec::new();
    for paged in [false, true] {
        for dim in [32, 64, 128, 256] {
            for (units, rows) in [(Vendor::Nvidia, 8), (Vendor::Nvidia, 16), (Vendor::Amd, 16)] {
                let variant = [true, false].map(|alone| variants(Some(units), false, dim, rows, alone, true).next());
                let variant = if variant[0] == variant[1] { vec![variant[0]] } else { variant.to_vec() };
                programs.extend(
                    variant
                        .into_iter()
                        .flatten()
                        .flat_map(|variant| [DType::F16, DType::Bf16].map(|dtype| variant.program([dtype; 2], dim, paged))),
                );
            }
            let plain = |rows, stages| Variant::Simt { waves: 8, rows, vectors: true, stages };
            programs
                .extend([(1, 4), (2, 2), (4, 4), (4, 2)].map(|(rows, stages)| plain(rows, stages).program([DType::F32; 2], dim, paged)));
        }
        let simt = |vectors| Variant::Simt { waves: 4, rows: 4, vectors, stages: 2 };
        let odd = simt(false).program([DType::Bf16, DType::F32], 80, paged);
        programs.push(odd);
        programs.extend([320, 512].map(|dim| simt(true).program([DType::Bf16; 2], dim, paged)));
        programs.push(simt(true).tree_program([DType::F32; 2], 64, paged));
        programs.push(Variant::Mma { waves: 4, half_tile: false }.tree_program([DType::F16; 2], 128, paged));
        for codes in CODES {
            let tiles = [(Vendor::Nvidia, 8), (Vendor::Amd, 16)];
            let tiles = tiles.iter().filter_map(|(units, rows)| variants(Some(*units), false, 128, *rows, true, true).next());
            let tiles = tiles.map(|variant| variant.program([DType::Bf16; 2], 128, paged));
            programs.extend(tiles.chain([odd]).map(|program| with_codes(program, codes)));
        }
    }
    programs
}

/// The head_dims of models: multiples of 16, and of 8 where there are few.
fn head_dims() -> impl Iterator<Item = usize> {
    (8..=USUAL_HEAD_DIM).step_by(8).filter(|dim| dim.is_multiple_of(16) || *dim <= 128)
}

/// Lists the programs that models load on a device: with paged caches of whole vectors and tiles.
pub(crate) fn of_models(info: &DeviceInfo) -> Vec<Program> {
    let mut programs = Vec::new();
    for (dim, dtype) in head_dims().flat_map(|dim| [DType::F32, DType::F16, DType::Bf16].map(|dtype| (dim, dtype))) {
        for (alone, few_blocks) in [(true, true), (true, false), (false, true), (false, false)] {
            for rows in [1, 2, MAX_ROWS, TILE] {
                let of = Rows { rows, vectors: true, whole_tiles: true, alone, few_blocks };
                let variant = choose(info, dtype, dim, &of).ok();
                programs
                    .extend(variant.into_iter().flat_map(|variant| [dtype, DType::F32].map(|to| variant.program([dtype, to], dim, true))));
                let quantized = variant.filter(|_| super::QUANTIZED_HEAD_DIMS.contains(&dim) && !few_blocks);
                for codes in CODES {
                    let program = |variant: Variant, to| with_codes(variant.program([dtype, to], dim, true), codes);
                    programs.extend(quantized.into_iter().flat_map(|variant| [dtype, DType::F32].map(|to| program(variant, to))));
                }
            }
        }
    }
    programs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_split_where_blocks_are_few() {
        let parts = |blocks, keys| splits(&Share { blocks, keys, key_bytes: 512, units: 132, at_once: 3, enough: 2.0 });
        // The best of those measured, or close to it.
        assert_eq!((parts(256, 8192), parts(32, 8192), parts(8, 65536)), (1, 8, 32));
        assert_eq!((parts(8, 512), parts(8, 4096)), (8, 16));
        let many = |blocks, keys| splits(&Share { blocks, keys, key_bytes: 512, units: 132, at_once: 2, enough: 2.0 });
        assert_eq!([many(1024, 2048), many(512, 2048)], [1; 2]);
        assert_eq!(parts(1, 100), 1);
        assert_eq!(splits(&Share { blocks: 1, keys: 1000, key_bytes: 2048, units: 304, at_once: 2, enough: 2.0 }), 15);
    }

    #[test]
    fn what_is_on_its_way_fits_into_shared_memory() {
        let shared = |variant: Variant, dtype, dim, wave| variant.shared(dtype, dim, wave);
        assert_eq!(shared(Variant::Mma { waves: 6, half_tile: true }, DType::Bf16, 128, 32), 25 * 4096);
        assert_eq!(shared(Variant::Mma { waves: 1, half_tile: false }, DType::F16, 96, 64), 5 * 4096);
        assert_eq!(shared(Variant::Simt { waves: 8, rows: 4, vectors: true, stages: 2 }, DType::F32, 128, 32), 32768);
        let least = variants(Some(Vendor::Amd), false, 128, 5, true, false).last().unwrap();
        assert_eq!(least, Variant::Simt { waves: 1, rows: 4, vectors: false, stages: 2 });
    }
    #[test]
    fn variants_of_any_step_are_among_the_programs_of_models() {
        for (arch, shared) in [("gfx90a", 64), ("gfx1030", 64), ("gfx1100", 64), ("sm_80", 163), ("sm_89", 99), ("sm_90", 227)] {
            let info = DeviceInfo { shared_per_block_max: shared << 10, ..DeviceInfo::of_arch(arch.parse().unwrap()) };
            let known: std::collections::HashSet<Program> = of_models(&info).into_iter().collect();
            for (rows, blocks) in (1..=40).flat_map(|rows| [1, 7, 64, 500, 5000].map(|blocks| (rows, blocks))) {
                for (dim, dtype, units) in head_dims()
                    .zip([DType::F32, DType::F16, DType::Bf16].into_iter().cycle())
                    .flat_map(|(dim, dtype)| [20, 132, 304].map(|units| (dim, dtype, units)))
                {
                    let of =
                        Rows { rows, vectors: true, whole_tiles: true, alone: alone(blocks, rows, units), few_blocks: 2 * blocks <= units };
                    let variant = choose(&info, dtype, dim, &of).unwrap();
                    for to in [dtype, DType::F32] {
                        assert!(known.contains(&variant.program([dtype, to], dim, true)), "{arch} {dim} {rows} {blocks}: {variant:?}");
                    }
                }
            }
        }
    }
}
