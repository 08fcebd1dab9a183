//! Rotary embedding and KV cache append in one launch.

use bytemuck::{Pod, Zeroable};
use warpwave_gpu::{Arg, Stream};

use crate::common::heads::{
    HeadStrides, INDEX_DTYPES, check_dtype, check_shape, packed, sizes, small, strides_i32, wide_row_launch, width,
};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::{Kernels, check_no_overlap, check_same_dtype, launch_error, shape_error};
use crate::program::{Program, SourceFile, source_file};
use crate::rope::{Positions, Rope, RopeAngles, RopePairs};
use crate::view::{View, ViewMut};

static ROPE_APPEND: SourceFile = source_file!("rope/rope_append.cu", &[""]);

/// Parameters of the kernel.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Params {
    from: [HeadStrides; 3],
    to: [HeadStrides; 3],
    positions: [i32; 2],
    slots: [i32; 2],
    frequencies: i32,
    tokens: i32,
    rows: i32,
    heads: i32,
    kv_heads: i32,
    dim: i32,
    pairs: i32,
    blocks: i32,
    block_keys: i32,
    padding: i32,
    factor: f64,
}

const OP: &str = "rope_append";
const TYPES: [DType; 3] = [DType::F32, DType::F16, DType::Bf16];

fn program(types: [DType; 3], pairs: RopePairs, vectors: bool) -> Program {
    let constants = [("VECTORS", vectors.into()), ("INTERLEAVED", (pairs == RopePairs::Interleaved).into())];
    Program::new(&ROPE_APPEND, OP, &types.map(DType::name), &constants)
}

impl Kernels {
    /// Applies [`Kernels::rope`] to queries and keys and [`Kernels::append`]s keys and values to a paged cache, in one launch.
    ///
    /// Queries, keys and values are (sequences, tokens, heads, head_dim) of `f32`, `f16` or `bf16`, in any layout; the cache is (blocks,
    /// block size, heads, head_dim). The rotated queries and the cache share one type, which may differ from the input's. The rope takes
    /// frequencies and position ids. `slots`, (sequences, tokens) of the position ids' type, are those of
    /// [`CachePositions::Slots`](crate::CachePositions::Slots): no two tokens may share one.
    pub fn rope_append(
        &self,
        stream: &Stream,
        rope: &Rope<'_>,
        [queries, keys, values]: [&View<'_>; 3],
        slots: &View<'_>,
        out: &mut ViewMut<'_>,
        (key_cache, value_cache): (&mut ViewMut<'_>, &mut ViewMut<'_>),
    ) -> Result<()> {
        let [queries, keys, values, slots] = [*queries, *keys, *values, *slots];
        let (out, key_cache, value_cache) = (out.as_view(), key_cache.as_view(), value_cache.as_view());
        let (RopeAngles::Frequencies { frequencies, factor }, Positions::Ids(positions)) = (rope.angles, rope.positions) else {
            return Err(Error::BadArgument { op: OP.to_owned(), reason: "expected RopeAngles::Frequencies and Positions::Ids".to_owned() });
        };
        check_dtype(OP, "queries", &queries, &TYPES)?;
        check_same_dtype(OP, "keys", keys, queries.dtype())?;
        check_same_dtype(OP, "values", values, queries.dtype())?;
        check_dtype(OP, "result", &out, &TYPES)?;
        check_same_dtype(OP, "key cache", key_cache, out.dtype())?;
        check_same_dtype(OP, "value cache", value_cache, out.dtype())?;
        check_same_dtype(OP, "frequencies", frequencies, DType::F32)?;
        check_dtype(OP, "positions", &positions, &INDEX_DTYPES)?;
        check_same_dtype(OP, "slots", slots, positions.dtype())?;
        let [sequences, tokens, heads, dim] = sizes(OP, "queries", &queries, "sequences, tokens, heads, head_dim")?;
        let [_, _, kv_heads, _] = sizes(OP, "keys", &keys, "sequences, tokens, heads, head_dim")?;
        let [blocks, block_keys, _, _] = sizes(OP, "key cache", &key_cache, "blocks, block size, heads, head_dim")?;
        let [pairs] = sizes(OP, "frequencies", &frequencies, "pairs")?;
        check_shape(OP, "result", &out, queries.layout().shape())?;
        check_shape(OP, "keys", &keys, &[sequences, tokens, kv_heads, dim])?;
        check_shape(OP, "values", &values, keys.layout().shape())?;
        check_shape(OP, "key cache", &key_cache, &[blocks, block_keys, kv_heads, dim])?;
        check_shape(OP, "value cache", &value_cache, key_cache.layout().shape())?;
        check_shape(OP, "slots", &slots, &[sequences, tokens])?;
        let positions_layout = positions.layout().broadcast_to(&[sequences, tokens]);
        let positions_layout =
            positions_layout.map_err(|_| shape_error(OP, "positions", &positions, format!("[{sequences}, {tokens}]")))?;
        let positions = positions.with_layout(positions_layout)?;
        if 2 * pairs > dim || pairs == 0 {
            return Err(shape_error(OP, "frequencies", &frequencies, format!("of 1 to {} pairs", dim / 2)));
        }
        let inputs = [
            ("queries", queries),
            ("keys", keys),
            ("values", values),
            ("frequencies", frequencies),
            ("positions", positions),
            ("slots", slots),
        ];
        let outputs = [("result", out), ("key cache", key_cache), ("value cache", value_cache)];
        self.check_devices(OP, stream, inputs.into_iter().chain(outputs))?;
        for (what, view) in inputs {
            outputs.iter().try_for_each(|(_, output)| check_no_overlap(OP, what, &view, output))?;
        }
        check_no_overlap(OP, "key cache", &key_cache, &out)?;
        check_no_overlap(OP, "value cache", &value_cache, &out)?;
        check_no_overlap(OP, "value cache", &value_cache, &key_cache)?;
        if queries.layout().is_empty() && keys.layout().is_empty() {
            return Ok(());
        }
        let each = width(&[queries.dtype(), out.dtype()]);
        let all = [queries, keys, values, out, key_cache, value_cache];
        let vectors = pairs.is_multiple_of(each) && all.iter().all(|view| packed(view, each));
        let small = |number| small(OP, "tokens, heads or head_dim", number);
        let params = Params {
            from: [HeadStrides::of(OP, &queries)?, HeadStrides::of(OP, &keys)?, HeadStrides::of(OP, &values)?],
            to: [HeadStrides::of(OP, &out)?, HeadStrides::of(OP, &key_cache)?, HeadStrides::of(OP, &value_cache)?],
            positions: strides_i32(OP, &positions)?,
            slots: strides_i32(OP, &slots)?,
            frequencies: strides_i32::<1>(OP, &frequencies)?[0],
            tokens: small((heads + 2 * kv_heads).saturating_mul(dim)).and(small(tokens))?,
            rows: small(sequences.saturating_mul(tokens))?,
            heads: small(heads)?,
            kv_heads: small(kv_heads)?,
            dim: small(dim)?,
            pairs: small(pairs)?,
            // Blocks of size 0 hold nothing.
            blocks: small(if block_keys == 0 { 0 } else { blocks })?,
            block_keys: small(block_keys.max(1))?,
            padding: 0,
            factor,
        };
        let kernels = self.load(&program([queries.dtype(), out.dtype(), positions.dtype()], rope.pairs, vectors))?;
        let each = if vectors { each } else { 1 };
        let items = (dim / each).div_ceil(2) * (heads + 2 * kv_heads);
        let launch = wide_row_launch(sequences * tokens, items, self.device().info().compute_units);
        // Cosine and sine per pair and row of the block.
        let shared = 2 * size_of::<f32>() * pairs * launch.block[1] as usize;
        if shared > self.device().info().shared_per_block {
            return Err(Error::BadArgument { op: OP.to_owned(), reason: format!("{pairs} pairs per head do not fit in shared memory") });
        }
        let args = (
            queries.start(),
            keys.start(),
            values.start(),
            out.start(),
            key_cache.start(),
            value_cache.start(),
            positions.start(),
            slots.start(),
            frequencies.start(),
            Arg::value(&params),
        );
        // SAFETY: the kernel was compiled for these types and this layout; slots outside the cache are skipped, all views were checked
        // against their memory, and only the result and the cache are written.
        unsafe { kernels[0].launch(stream, launch.shared(shared as u32).pdl(), args) }.map_err(launch_error(OP))
    }
}

/// Lists the programs: all types, some of the layouts.
pub(crate) fn programs() -> Vec<Program> {
    let types = TYPES.into_iter().flat_map(|from| TYPES.map(|to| [from, to, DType::U32]));
    types.flat_map(|types| [true, false].map(|vectors| program(types, RopePairs::Halves, vectors))).collect()
}

/// Lists the programs of models: positions in `u32`, as a step's input has them.
pub(crate) fn of_models() -> Vec<Program> {
    let types = TYPES.into_iter().flat_map(|from| TYPES.map(|to| [from, to, DType::U32]));
    let pairs = types.flat_map(|types| [RopePairs::Interleaved, RopePairs::Halves].map(|pairs| (types, pairs)));
    pairs.flat_map(|(types, pairs)| [true, false].map(|vectors| program(types, pairs, vectors))).collect()
}
