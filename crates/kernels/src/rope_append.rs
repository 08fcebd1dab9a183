//! Rotary embedding and the append to a cache in one launch.

use bytemuck::{Pod, Zeroable};
use warpwave_gpu::{Arg, Stream};

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::headers;
use crate::heads::{COUNTS, Steps, few, one_of, packed, same_shape, sizes, small, spread_over_rows, width};
use crate::kernels::{Kernels, apart, refused, same_type, wrong_shape};
use crate::rope::{Places, Rope, RopeAngles, RopePairs};
use crate::source::{File, Recipe};
use crate::view::{View, ViewMut};

static ROPE_APPEND: File = File {
    name: "rope_append.cu",
    texts: &[
        headers::TYPES,
        headers::PACK,
        headers::HEADS,
        headers::EARLY,
        include_str!("cu/angles.cuh"),
        include_str!("cu/rope_append.cu"),
    ],
    kernels: &[""],
};

/// As the struct of the kernels.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Numbers {
    from: [Steps; 3],
    to: [Steps; 3],
    places: [i32; 2],
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

fn recipe(types: [DType; 3], pairs: RopePairs, vectors: bool) -> Recipe {
    let numbers = [("VECTORS", vectors.into()), ("TOGETHER", (pairs == RopePairs::Neighbours).into())];
    Recipe::new(&ROPE_APPEND, OP, &types.map(DType::name), &numbers)
}

impl Kernels {
    /// What [`Kernels::rope`] does to queries and keys, and [`Kernels::append`] with the keys and values into a pool of (blocks, keys of a
    /// block, heads, elements), in one launch: the step of a language model between two products. Queries, keys and values are of
    /// (sequences, tokens, heads, elements), in any layout; the turned queries and the pools are of one type, which may be another. The rope
    /// is one of frequencies and given places; `slots`, of the places' type and (sequences, tokens), are as those of
    /// [`AppendAt::Slots`](crate::AppendAt::Slots): no two tokens may have one. `f32`, `f16` and `bf16`.
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
        let (RopeAngles::Frequencies { frequencies, factor }, Places::Given(places)) = (rope.angles, rope.places) else {
            return Err(Error::BadArgument { op: OP.to_owned(), reason: "it takes frequencies, and places that are given".to_owned() });
        };
        one_of(OP, "the queries", &queries, &TYPES)?;
        same_type(OP, "the keys", keys, queries.dtype())?;
        same_type(OP, "the values", values, queries.dtype())?;
        one_of(OP, "the result", &out, &TYPES)?;
        same_type(OP, "the cache of keys", key_cache, out.dtype())?;
        same_type(OP, "the cache of values", value_cache, out.dtype())?;
        same_type(OP, "the frequencies", frequencies, DType::F32)?;
        one_of(OP, "the places", &places, &COUNTS)?;
        same_type(OP, "the slots", slots, places.dtype())?;
        let [sequences, tokens, heads, dim] = sizes(OP, "the queries", &queries, "sequences, tokens, heads, elements")?;
        let [_, _, kv_heads, _] = sizes(OP, "the keys", &keys, "sequences, tokens, heads, elements")?;
        let [blocks, block_keys, _, _] = sizes(OP, "the cache of keys", &key_cache, "blocks, keys, heads, elements")?;
        let [pairs] = sizes(OP, "the frequencies", &frequencies, "pairs")?;
        same_shape(OP, "the result", &out, queries.layout().shape())?;
        same_shape(OP, "the keys", &keys, &[sequences, tokens, kv_heads, dim])?;
        same_shape(OP, "the values", &values, keys.layout().shape())?;
        same_shape(OP, "the cache of keys", &key_cache, &[blocks, block_keys, kv_heads, dim])?;
        same_shape(OP, "the cache of values", &value_cache, key_cache.layout().shape())?;
        same_shape(OP, "the slots", &slots, &[sequences, tokens])?;
        let places_layout = places.layout().broadcast_to(&[sequences, tokens]);
        let places_layout =
            places_layout.map_err(|_| wrong_shape(OP, "the places", &places, format!("it takes [{sequences}, {tokens}]")))?;
        let places = places.with_layout(places_layout)?;
        if 2 * pairs > dim || pairs == 0 {
            return Err(wrong_shape(OP, "the frequencies", &frequencies, format!("a head has {dim} elements, two for each pair")));
        }
        let inputs = [
            ("the queries", queries),
            ("the keys", keys),
            ("the values", values),
            ("the frequencies", frequencies),
            ("the places", places),
            ("the slots", slots),
        ];
        let outputs = [("the result", out), ("the cache of keys", key_cache), ("the cache of values", value_cache)];
        self.check_devices(OP, stream, inputs.into_iter().chain(outputs))?;
        for (what, view) in inputs {
            outputs.iter().try_for_each(|(_, output)| apart(OP, what, &view, output))?;
        }
        apart(OP, "the cache of keys", &key_cache, &out)?;
        apart(OP, "the cache of values", &value_cache, &out)?;
        apart(OP, "the cache of values", &value_cache, &key_cache)?;
        if queries.layout().is_empty() && keys.layout().is_empty() {
            return Ok(());
        }
        let each = width(&[queries.dtype(), out.dtype()]);
        let all = [queries, keys, values, out, key_cache, value_cache];
        let vectors = pairs.is_multiple_of(each) && all.iter().all(|view| packed(view, each));
        let small = |number| small(OP, "tokens, heads or elements", number);
        let numbers = Numbers {
            from: [Steps::of(OP, &queries)?, Steps::of(OP, &keys)?, Steps::of(OP, &values)?],
            to: [Steps::of(OP, &out)?, Steps::of(OP, &key_cache)?, Steps::of(OP, &value_cache)?],
            places: few(OP, &places)?,
            slots: few(OP, &slots)?,
            frequencies: few::<1>(OP, &frequencies)?[0],
            tokens: small((heads + 2 * kv_heads).saturating_mul(dim)).and(small(tokens))?,
            rows: small(sequences.saturating_mul(tokens))?,
            heads: small(heads)?,
            kv_heads: small(kv_heads)?,
            dim: small(dim)?,
            pairs: small(pairs)?,
            // Blocks without keys hold nothing.
            blocks: small(if block_keys == 0 { 0 } else { blocks })?,
            block_keys: small(block_keys.max(1))?,
            padding: 0,
            factor,
        };
        let kernels = self.load(&recipe([queries.dtype(), out.dtype(), places.dtype()], rope.pairs, vectors))?;
        let each = if vectors { each } else { 1 };
        let items = (dim / each).div_ceil(2) * (heads + 2 * kv_heads);
        let launch = spread_over_rows(sequences * tokens, items, self.device().info().compute_units);
        // Cosine and sine of each pair of the block's rows.
        let shared = 2 * size_of::<f32>() * pairs * launch.block[1] as usize;
        if shared > self.device().info().shared_per_block {
            return Err(Error::BadArgument { op: OP.to_owned(), reason: format!("{pairs} pairs of a head are too many") });
        }
        let args = (
            queries.start(),
            keys.start(),
            values.start(),
            out.start(),
            key_cache.start(),
            value_cache.start(),
            places.start(),
            slots.start(),
            frequencies.start(),
            Arg::value(&numbers),
        );
        // SAFETY: the kernel was made for these types and this layout; slots that the pools do not have are left out, all other places are
        // the views', which were checked against their memory, and it writes the result's and the pools' alone.
        unsafe { kernels[0].launch(stream, launch.shared(shared as u32).pdl(), args) }.map_err(refused(OP))
    }
}

/// Programs of this operation: all types, some of the layouts.
pub(crate) fn recipes() -> Vec<Recipe> {
    let types = TYPES.into_iter().flat_map(|from| TYPES.map(|to| [from, to, DType::U32]));
    types.flat_map(|types| [true, false].map(|vectors| recipe(types, RopePairs::Halves, vectors))).collect()
}
