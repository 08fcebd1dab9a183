//! New keys and values into a cache.

use bytemuck::{Pod, Zeroable};
use warpwave_gpu::{Arg, Stream};

use crate::dtype::DType;
use crate::error::Result;
use crate::headers;
use crate::heads::{COUNTS, FLOATS, Steps, few, one_of, over_rows, packed, pointer, same_shape, sizes, small, width};
use crate::kernels::{Kernels, apart, refused, same_type, wrong_shape};
use crate::source::{File, Recipe};
use crate::view::{View, ViewMut};

static APPEND: File = File {
    name: "append.cu",
    texts: &[headers::TYPES, headers::PACK, headers::HEADS, headers::EARLY, include_str!("cu/append.cu")],
    kernels: &[""],
};

/// Where tokens go in a cache. Counts are `i32`, `u32` or `i64`; a place that the cache does not have is left out.
#[derive(Debug, Clone, Copy)]
pub enum AppendAt<'a> {
    /// From this place on, in each sequence of a cache of (sequences, keys, heads, elements).
    Start(usize),
    /// The same with a place for each sequence: (sequences).
    Starts(View<'a>),
    /// Into a pool of (blocks, keys of a block, heads, elements), from a place on for each sequence.
    Paged {
        /// The first place of each sequence: (sequences).
        starts: View<'a>,
        /// The blocks of each sequence, `i32` or `u32` of (sequences, blocks of the longest).
        table: View<'a>,
    },
    /// Into such a pool, with a slot for each token, of (sequences, tokens): block · keys of a block + place in the block. Negative
    /// ones are left out.
    Slots(View<'a>),
}

/// As the struct of the kernels.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Numbers {
    keys: Steps,
    values: Steps,
    key_cache: Steps,
    value_cache: Steps,
    places: [i32; 2],
    table: [i32; 2],
    tokens: i32,
    rows: i32,
    blocks: i32,
    block_keys: i32,
    table_blocks: i32,
    heads: i32,
    dim: i32,
    padding: i32,
    start: i64,
}

const OP: &str = "append";

/// What a cache can be of.
const CACHED: [DType; 6] = [DType::F32, DType::F16, DType::Bf16, DType::F64, DType::F8E4M3, DType::F8E5M2];

fn recipe(slots: bool, types: [DType; 3], vectors: bool) -> Recipe {
    Recipe::new(&APPEND, if slots { "append_slots" } else { OP }, &types.map(DType::name), &[("VECTORS", vectors.into())])
}

impl Kernels {
    /// Writes keys and values of (sequences, tokens, heads, elements), in any layout, into a cache, which may be of another type.
    /// No two tokens may have one place.
    pub fn append(
        &self,
        stream: &Stream,
        (keys, values): (&View<'_>, &View<'_>),
        at: AppendAt<'_>,
        (key_cache, value_cache): (&mut ViewMut<'_>, &mut ViewMut<'_>),
    ) -> Result<()> {
        let (keys, values, key_cache, value_cache) = (*keys, *values, key_cache.as_view(), value_cache.as_view());
        one_of(OP, "the keys", &keys, &FLOATS)?;
        same_type(OP, "the values", values, keys.dtype())?;
        one_of(OP, "the cache of keys", &key_cache, &CACHED)?;
        same_type(OP, "the cache of values", value_cache, key_cache.dtype())?;
        let [sequences, tokens, heads, dim] = sizes(OP, "the keys", &keys, "sequences, tokens, heads, elements")?;
        same_shape(OP, "the values", &values, keys.layout().shape())?;
        let [blocks, block_keys, cache_heads, cache_dim] =
            sizes(OP, "the cache of keys", &key_cache, "sequences or blocks, keys, heads, elements")?;
        same_shape(OP, "the cache of values", &value_cache, key_cache.layout().shape())?;
        let paged = matches!(at, AppendAt::Paged { .. } | AppendAt::Slots(_));
        if (cache_heads, cache_dim) != (heads, dim) || (!paged && blocks != sequences) {
            let expected = format!("the keys have {:?}", keys.layout().shape());
            return Err(wrong_shape(OP, "the cache of keys", &key_cache, expected));
        }
        let (start, places, table) = match at {
            AppendAt::Start(start) => {
                if start.checked_add(tokens).is_none_or(|end| end > block_keys) {
                    let expected = format!("{tokens} tokens from place {start} on do not fit");
                    return Err(wrong_shape(OP, "the cache of keys", &key_cache, expected));
                }
                (start, None, None)
            }
            AppendAt::Starts(starts) => (0, Some(starts), None),
            AppendAt::Paged { starts, table } => (0, Some(starts), Some(table)),
            AppendAt::Slots(slots) => (0, Some(slots), None),
        };
        let by_slot = matches!(at, AppendAt::Slots(_));
        if let Some(places) = &places {
            one_of(OP, "the places", places, &COUNTS)?;
            let expected = [sequences, tokens];
            same_shape(OP, "the places", places, if by_slot { &expected } else { &expected[..1] })?;
        }
        let mut table_blocks = 0;
        if let Some(table) = &table {
            one_of(OP, "the table", table, &[DType::I32, DType::U32])?;
            [_, table_blocks] = sizes(OP, "the table", table, "sequences, blocks")?;
            same_shape(OP, "the table", table, &[sequences, table_blocks])?;
        }
        let inputs =
            [Some(("the keys", keys)), Some(("the values", values)), places.map(|v| ("the places", v)), table.map(|v| ("the table", v))];
        let caches = [("the cache of keys", key_cache), ("the cache of values", value_cache)];
        self.check_devices(OP, stream, inputs.into_iter().flatten().chain(caches))?;
        for (what, view) in inputs.into_iter().flatten() {
            caches.iter().try_for_each(|(_, cache)| apart(OP, what, &view, cache))?;
        }
        if keys.layout().is_empty() || key_cache.layout().is_empty() || (table.is_some() && table_blocks == 0) {
            return Ok(());
        }
        let each = width(&[keys.dtype(), key_cache.dtype()]);
        let vectors = [keys, values, key_cache, value_cache].iter().all(|view| packed(view, each));
        let small = |number| small(OP, "tokens, heads or elements", number);
        let numbers = Numbers {
            keys: Steps::of(OP, &keys)?,
            values: Steps::of(OP, &values)?,
            key_cache: Steps::of(OP, &key_cache)?,
            value_cache: Steps::of(OP, &value_cache)?,
            places: places.map(|places| few(OP, &places)).transpose()?.unwrap_or_default(),
            table: table.map(|table| few(OP, &table)).transpose()?.unwrap_or_default(),
            tokens: small(heads.saturating_mul(dim)).and(small(tokens))?,
            rows: small(sequences.saturating_mul(tokens))?,
            blocks: small(blocks)?,
            block_keys: small(block_keys)?,
            table_blocks: small(table_blocks)?,
            heads: small(heads)?,
            dim: small(dim)?,
            padding: 0,
            start: start as i64,
        };
        let count = places.map_or(DType::I32, |places| places.dtype());
        let kernels = self.load(&recipe(by_slot, [keys.dtype(), key_cache.dtype(), count], vectors))?;
        let items = heads * dim / if vectors { each } else { 1 };
        let args =
            (keys.start(), values.start(), key_cache.start(), value_cache.start(), pointer(places), pointer(table), Arg::value(&numbers));
        // SAFETY: the kernel was made for these types and this layout; places that the caches do not have are left out, the others were
        // checked against their memory, and it writes the caches alone.
        unsafe { kernels[0].launch(stream, over_rows(sequences * tokens, items).pdl(), args) }.map_err(refused(OP))
    }
}

/// Programs of this operation: all pairs of types, some of the layouts.
pub(crate) fn recipes() -> Vec<Recipe> {
    let pairs = FLOATS.into_iter().flat_map(|from| CACHED.map(|to| (from, to)));
    pairs.flat_map(|(from, to)| [true, false].map(|vectors| recipe(!vectors, [from, to, DType::I32], vectors))).collect()
}
