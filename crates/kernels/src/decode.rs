//! Attention of few queries to many keys, as when a text goes on one token at a time.

use std::f32::consts::LOG2_E;

use bytemuck::{Pod, Zeroable};
use warpwave_gpu::{Arg, Launch, MatrixUnits, Stream, Vendor};

use crate::attention_options::{AttentionOptions, KeyValues};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::headers;
use crate::heads::{Steps, few, one_of, packed, pointer, same_shape, sizes, width};
use crate::kernels::{Kernels, apart, refused, same_type, wrong_shape};
use crate::source::{File, Recipe};
use crate::view::{View, ViewMut};

const COMMON: &str = include_str!("cu/decode.cuh");
const KERNELS: &[&str] = &["_parts", "_combine"];
static TILES: File = File {
    name: "decode_tile.cu",
    texts: &[headers::TYPES, headers::TILE, headers::HEADS, headers::EARLY, COMMON, include_str!("cu/decode_tile.cu")],
    kernels: KERNELS,
};
static PLAIN: File = File {
    name: "decode_plain.cu",
    texts: &[headers::TYPES, headers::HEADS, headers::EARLY, COMMON, include_str!("cu/decode_plain.cu")],
    kernels: KERNELS,
};

/// Elements of a head at most.
const MOST_DIM: usize = 256;
/// Rows of queries, and keys, that matrix units take at a time.
const TILE: usize = 16;
/// Rows that a block of the other kernel has at most.
const MOST_ROWS: usize = 4;
/// Keys for which a part of its own is worth its while.
const LEAST_KEYS: usize = 64;
/// Parts at most: 16 threads have four each.
const MOST_SPLITS: usize = 64;

/// As the struct of the kernels.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Numbers {
    q: Steps,
    k: Steps,
    v: Steps,
    out: Steps,
    table: [i32; 2],
    lengths: i32,
    slopes: i32,
    tokens: i32,
    heads: i32,
    group: i32,
    keys: i32,
    block_keys: i32,
    blocks: i32,
    splits: i32,
    causal: i32,
    window: i32,
    whole_queries: i32,
    wide: i32,
    padding: i32,
    scale: f32,
    cap: f32,
}

/// Which kernel, and its shape.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    /// `few` where 8 rows are enough.
    Tiles { waves: u32, few: bool },
    Plain {
        waves: u32,
        rows: u32,
        vectors: bool,
        /// Keys of a lane on their way, and the one that it works on.
        stages: u32,
    },
}

impl Way {
    fn recipe(self, types: [DType; 2], dim: usize, paged: bool) -> Recipe {
        let (types, dim, paged) = (types.map(DType::name), ("DIM", dim as u32), ("PAGED", paged.into()));
        match self {
            Way::Tiles { waves, few } => Recipe::new(&TILES, "decode_tiles", &types, &[dim, paged, ("WAVES", waves), ("FEW", few.into())]),
            Way::Plain { waves, rows, vectors, stages } => {
                let numbers = [dim, paged, ("WAVES", waves), ("ROWS", rows), ("VECTORS", vectors.into()), ("STAGES", stages)];
                Recipe::new(&PLAIN, "decode_plain", &types, &numbers)
            }
        }
    }

    /// Bytes of shared memory that a launch asks for: two tiles of keys and values for each wave, and the queries; or what each lane has of
    /// its keys and values.
    fn shared(self, dtype: DType, dim: usize, wave: u32) -> u32 {
        let (size, columns) = (dtype.size() as u32, if dim <= 32 { 32 } else { dim.next_multiple_of(64) });
        match self {
            Way::Tiles { waves, .. } => (4 * waves + 1) * TILE as u32 * size * columns as u32,
            // The results of the waves come to lie there in the end.
            Way::Plain { waves, rows, stages, .. } => {
                let lanes = (dim.next_power_of_two() as u32 / EACH_LANE).clamp(4, 32);
                (2 * stages * waves * wave * EACH_LANE * size).max(4 * waves * rows * lanes * EACH_LANE)
            }
        }
    }

    fn rows(self) -> usize {
        match self {
            Way::Tiles { .. } => TILE,
            Way::Plain { rows, .. } => rows as usize,
        }
    }

    fn waves(self) -> u32 {
        match self {
            Way::Tiles { waves, .. } | Way::Plain { waves, .. } => waves,
        }
    }
}

/// Elements of a key that a lane of the plain kernel has.
const EACH_LANE: u32 = 8;

/// The ways to try, the best first, as far as shared memory goes; `units` are the vendor's whose matrix units can be used, and `copies`
/// says that more copies should go on while a wave computes. `alone` says that there are few enough blocks for all to run at once, whatever they are
/// split into.
fn ways(units: Option<Vendor>, copies: bool, dim: usize, rows: usize, alone: bool, vectors: bool) -> impl Iterator<Item = Way> {
    let tiles: &[u32] = match units {
        Some(Vendor::Nvidia) if dim <= 64 && !alone => &[6, 4, 2, 1],
        Some(Vendor::Nvidia) if dim <= 128 => &[4, 2, 1],
        Some(Vendor::Nvidia) => &[3, 2, 1],
        Some(Vendor::Amd) => &[4, 2, 1],
        None => &[],
    };
    // Of AMD's a lane has one row anyway.
    let few = rows <= TILE / 2 && units == Some(Vendor::Nvidia);
    let tiles = tiles.iter().map(move |waves| Way::Tiles { waves: *waves, few });
    let rows = rows.next_power_of_two().min(MOST_ROWS) as u32;
    let many = (copies && vectors).then_some((8, 4));
    let plain = many.into_iter().chain([8, 4, 2, 1].map(|waves| (waves, 2)));
    tiles.chain(plain.map(move |(waves, stages)| Way::Plain { waves, rows, vectors, stages }))
}

const OP: &str = "decode_attention";

fn bad(reason: String) -> Error {
    Error::BadArgument { op: OP.to_owned(), reason }
}

impl Kernels {
    /// Attention of queries of (sequences, tokens, heads, elements) to keys and values, best for few tokens and many keys: the keys are
    /// split among blocks, whose results are put together. `f32`, `f16` or `bf16`, up to 256 elements of a head, which several heads of
    /// queries may share. The result is of their type, or `f32`. Queries that see no key give zeros. NaN goes the same ways as in [`Kernels::attention`].
    pub fn decode_attention(
        &self,
        stream: &Stream,
        q: &View<'_>,
        kv: &KeyValues<'_>,
        options: &AttentionOptions<'_>,
        out: &mut ViewMut<'_>,
    ) -> Result<()> {
        let (q, out, dtype) = (*q, out.as_view(), q.dtype());
        one_of(OP, "the queries", &q, &[DType::F32, DType::F16, DType::Bf16])?;
        same_type(OP, "the keys", kv.keys, dtype)?;
        same_type(OP, "the values", kv.values, dtype)?;
        one_of(OP, "the result", &out, &[dtype, DType::F32])?;
        let [sequences, tokens, heads, dim] = sizes(OP, "the queries", &q, "sequences, tokens, heads, elements")?;
        let [blocks, block_keys, kv_heads, _] = sizes(OP, "the keys", &kv.keys, "sequences or blocks, keys, heads, elements")?;
        same_shape(OP, "the result", &out, q.layout().shape())?;
        same_shape(OP, "the values", &kv.values, kv.keys.layout().shape())?;
        let fits = kv_heads > 0 && heads.is_multiple_of(kv_heads) && (kv.table.is_some() || blocks == sequences);
        if !fits || kv.keys.layout().shape()[3] != dim {
            return Err(wrong_shape(OP, "the keys", &kv.keys, format!("the queries have {:?}", q.layout().shape())));
        }
        let mut keys = block_keys;
        if let Some(table) = &kv.table {
            one_of(OP, "the table", table, &[DType::I32, DType::U32])?;
            let [_, most] = sizes(OP, "the table", table, "sequences, blocks")?;
            same_shape(OP, "the table", table, &[sequences, most])?;
            keys = most.saturating_mul(block_keys);
        }
        if let Some(lengths) = &kv.lengths {
            one_of(OP, "the lengths", lengths, &[DType::I32, DType::U32])?;
            same_shape(OP, "the lengths", lengths, &[sequences])?;
        }
        if let Some(slopes) = &options.alibi {
            same_type(OP, "the slopes", *slopes, DType::F32)?;
            same_shape(OP, "the slopes", slopes, &[heads])?;
        }
        if !(1..=MOST_DIM).contains(&dim) && !q.layout().is_empty() {
            return Err(wrong_shape(OP, "the queries", &q, format!("a head has at most {MOST_DIM} elements")));
        }
        if !options.scale.is_finite() || options.soft_cap.is_some_and(|cap| !cap.is_finite() || cap <= 0.0) || options.window == Some(0) {
            return Err(bad("the scale is a number, the soft cap one above 0, and a window has at least one key".to_owned()));
        }
        let inputs = [Some(("the queries", q)), Some(("the keys", kv.keys)), Some(("the values", kv.values))];
        let others = [kv.table.map(|v| ("the table", v)), kv.lengths.map(|v| ("the lengths", v)), options.alibi.map(|v| ("the slopes", v))];
        let inputs = || inputs.into_iter().chain(others).flatten();
        self.check_devices(OP, stream, inputs().chain([("the result", out)]))?;
        for (what, view) in inputs() {
            apart(OP, what, &view, &out)?;
        }
        let rows = sequences.checked_mul(tokens).and_then(|n| n.checked_mul(heads)).unwrap_or(usize::MAX);
        let small = [rows, keys, blocks, block_keys, tokens * heads].into_iter().max().unwrap_or(0);
        let Some(group) = heads.checked_div(kv_heads).filter(|_| small < 1 << 30) else {
            return Err(bad(format!("{small} queries or keys are too many")));
        };
        if out.layout().is_empty() {
            return Ok(());
        }
        if sequences > 65535 || kv_heads * (tokens * group) > 65535 {
            return Err(bad(format!("{sequences} sequences with {tokens} tokens of {heads} heads are more than a launch takes")));
        }

        let info = self.device().info();
        let way = self.way(&q, kv, tokens * group, sequences * kv_heads)?;
        let groups = (tokens * group).div_ceil(way.rows());
        let alone = alone(sequences * kv_heads, tokens * group, info.compute_units as usize);
        let kernels = self.load(&way.recipe([dtype, out.dtype()], dim, kv.table.is_some()))?;
        let threads = way.waves() * info.wave_size;
        let mut shared = way.shared(dtype, dim, info.wave_size);
        if matches!(way, Way::Tiles { waves: 4, .. }) && info.vendor == Vendor::Nvidia && dim > 64 && !alone {
            // More than a third of what a unit has: of many blocks two at once read faster than three, and when the last run fewer units are
            // without work.
            shared = shared.max(info.shared_per_block_max as u32 / 3 + 1024);
        }
        let splits = splits(&Share {
            blocks: sequences * kv_heads * groups,
            keys,
            key_bytes: 2 * dim * dtype.size(),
            units: info.compute_units as usize,
            // Without an answer of the driver's two are likely.
            at_once: kernels[0].active_blocks(threads, shared).unwrap_or(2).max(1) as usize,
            enough: if way.waves() == 6 { 1.0 } else { 2.0 },
        });
        let numbers = Numbers {
            q: Steps::of(OP, &q)?,
            k: Steps::of(OP, &kv.keys)?,
            v: Steps::of(OP, &kv.values)?,
            out: Steps::of(OP, &out)?,
            table: kv.table.map(|table| few(OP, &table)).transpose()?.unwrap_or_default(),
            lengths: kv.lengths.map_or(Ok([0]), |lengths| few(OP, &lengths))?[0],
            slopes: options.alibi.map_or(Ok([0]), |slopes| few(OP, &slopes))?[0],
            tokens: tokens as i32,
            heads: heads as i32,
            group: group as i32,
            keys: keys as i32,
            block_keys: block_keys as i32,
            blocks: blocks as i32,
            splits: splits as i32,
            causal: options.causal.into(),
            // Wider than all keys is none.
            window: options.window.map_or(0, |window| window.min(1 << 30) as i32),
            whole_queries: packed(&q, width(&[dtype])).into(),
            wide: kv.lengths.is_some_and(|lengths| lengths.dtype() == DType::U32).into(),
            padding: 0,
            scale: options.soft_cap.map_or(options.scale * LOG2_E, |cap| options.scale / cap),
            cap: options.soft_cap.map_or(0.0, |cap| cap * LOG2_E),
        };
        // The parts' results and the logarithms of their sums; the memory goes back in the stream's order.
        let parts = if splits > 1 { rows * splits } else { 0 };
        let partial = stream.alloc::<f32>(parts * dim).map_err(refused(OP))?;
        let logs = stream.alloc::<f32>(parts).map_err(refused(OP))?;
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
            Arg::value(&numbers),
        );
        // SAFETY: the kernel was made for this type, size and layout; lengths and blocks that are not there are not followed, the others'
        // places were checked against their memory, and it writes the result or the memory for parts alone.
        unsafe { kernels[0].launch(stream, launch.shared(shared).pdl(), args) }.map_err(refused(OP))?;
        if splits == 1 {
            return Ok(());
        }
        // A thread in y for each part, or for up to four: with more they would wait for room beside the parts' blocks.
        let down = splits.next_power_of_two().min(16);
        let launch = Launch::new([rows as u32, 1, 1], [32, down as u32, 1]).shared((4 * down * dim) as u32).pdl();
        // SAFETY: as above; every part was written by the launch before, whose end the kernel waits for.
        unsafe { kernels[1].launch(stream, launch, (out.start(), &partial, &logs, Arg::value(&numbers))) }.map_err(refused(OP))
    }

    /// For so many rows of queries to the same keys, and so many such.
    fn way(&self, q: &View<'_>, kv: &KeyValues<'_>, rows: usize, blocks: usize) -> Result<Way> {
        let (info, dim, dtype) = (self.device().info(), q.layout().shape()[3], q.dtype());
        let each = width(&[dtype]);
        let vectors = packed(&kv.keys, each) && packed(&kv.values, each);
        let matrix_units = matches!(info.matrix_units, MatrixUnits::TensorCores | MatrixUnits::Mfma);
        let whole_tiles = kv.table.is_none() || kv.keys.layout().shape()[1].is_multiple_of(TILE);
        let fits = dtype != DType::F32 && vectors && whole_tiles && dim.is_multiple_of(TILE);
        // A little more is taken by what the waves tell each other.
        let shared = info.shared_per_block_max.max(info.shared_per_block);
        let alone = alone(blocks, rows, info.compute_units as usize);
        let units = Some(info.vendor).filter(|_| matrix_units && fits);
        // With many sequences more blocks beside each other do better than more copies of each.
        let copies = info.vendor == Vendor::Nvidia && 2 * blocks <= info.compute_units as usize;
        let mut ways = ways(units, copies, dim, rows, alone, vectors);
        ways.find(|way| way.shared(dtype, dim, info.wave_size) as usize + 1024 <= shared)
            .ok_or_else(|| bad(format!("{} bytes of shared memory are too few", shared)))
    }
}

/// Whether as many blocks with tiles of so many rows run at once.
fn alone(blocks: usize, rows: usize, units: usize) -> bool {
    blocks * rows.div_ceil(TILE) <= 3 * units
}

/// What the blocks of a launch without splits have to do.
struct Share {
    blocks: usize,
    keys: usize,
    key_bytes: usize,
    units: usize,
    /// Blocks that a unit takes at a time.
    at_once: usize,
    /// Blocks that it needs to read as fast as it can.
    enough: f64,
}

/// Parts that the keys are split into, by an estimate of the bytes that a unit reads until all are done: its share of all; at the end, where
/// fewer blocks than enough are left, a part of one block; a fifth of what units with more blocks than others have more; and, as bytes, the
/// time that further rounds of blocks and putting parts together take, as measured on an H200.
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
    (1..=(share.keys / LEAST_KEYS).clamp(1, MOST_SPLITS)).min_by(|a, b| cost(*a).total_cmp(&cost(*b))).unwrap_or(1)
}

/// Programs of this operation: all types, some of the sizes.
pub(crate) fn recipes() -> Vec<Recipe> {
    let mut recipes = Vec::new();
    for paged in [false, true] {
        for dim in [32, 64, 128, 256] {
            for (units, rows) in [(Vendor::Nvidia, 8), (Vendor::Nvidia, 16), (Vendor::Amd, 16)] {
                let way = [true, false].map(|alone| ways(Some(units), false, dim, rows, alone, true).next());
                let way = if way[0] == way[1] { vec![way[0]] } else { way.to_vec() };
                recipes.extend(
                    way.into_iter().flatten().flat_map(|way| [DType::F16, DType::Bf16].map(|dtype| way.recipe([dtype; 2], dim, paged))),
                );
            }
            let plain = |rows, stages| Way::Plain { waves: 8, rows, vectors: true, stages };
            recipes.extend([(1, 4), (2, 2), (4, 4), (4, 2)].map(|(rows, stages)| plain(rows, stages).recipe([DType::F32; 2], dim, paged)));
        }
        recipes.push(Way::Plain { waves: 4, rows: 4, vectors: false, stages: 2 }.recipe([DType::Bf16, DType::F32], 80, paged));
    }
    recipes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_split_where_blocks_are_few() {
        let parts = |blocks, keys| splits(&Share { blocks, keys, key_bytes: 512, units: 132, at_once: 3, enough: 2.0 });
        // The best of those that were measured, or nearly.
        assert_eq!((parts(256, 8192), parts(32, 8192), parts(8, 65536)), (1, 8, 32));
        assert_eq!((parts(8, 512), parts(8, 4096)), (8, 16));
        let many = |blocks, keys| splits(&Share { blocks, keys, key_bytes: 512, units: 132, at_once: 2, enough: 2.0 });
        assert_eq!([many(1024, 2048), many(512, 2048)], [1; 2]);
        assert_eq!(parts(1, 100), 1);
        assert_eq!(splits(&Share { blocks: 1, keys: 1000, key_bytes: 2048, units: 304, at_once: 2, enough: 2.0 }), 15);
    }

    #[test]
    fn what_is_on_its_way_fits_into_shared_memory() {
        let shared = |way: Way, dtype, dim, wave| way.shared(dtype, dim, wave);
        assert_eq!(shared(Way::Tiles { waves: 6, few: true }, DType::Bf16, 128, 32), 25 * 4096);
        assert_eq!(shared(Way::Tiles { waves: 1, few: false }, DType::F16, 96, 64), 5 * 4096);
        assert_eq!(shared(Way::Plain { waves: 8, rows: 4, vectors: true, stages: 2 }, DType::F32, 128, 32), 32768);
        let least = ways(Some(Vendor::Amd), false, 128, 5, true, false).last().unwrap();
        assert_eq!(least, Way::Plain { waves: 1, rows: 4, vectors: false, stages: 2 });
    }
}
