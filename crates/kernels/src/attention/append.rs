//! Appending keys and values to a KV cache.

use bytemuck::{Pod, Zeroable};
use warpwave_gpu::{Arg, Launch, Stream};

use crate::attention::CODES;
use crate::attention::options::{CacheCodes, CacheScales, CacheScalesMut};
use crate::common::heads::{
    FLOATS, HeadStrides, INDEX_DTYPES, check_dtype, check_shape, packed, pointer, row_launch, sizes, small, strides_i32, width,
};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::{Kernels, check_no_overlap, check_same_dtype, launch_error, shape_error};
use crate::program::{Program, SourceFile, source_file};
use crate::view::{View, ViewMut};

static APPEND: SourceFile = source_file!("attention/append.cu", &[""]);

/// Positions of new tokens in a KV cache. Position views are `i32`, `u32` or `i64`; tokens at positions outside the cache are skipped.
#[derive(Debug, Clone, Copy)]
pub enum CachePositions<'a> {
    /// The same start position for every sequence of a cache of (sequences, keys, heads, head_dim).
    Start(usize),
    /// A start position per sequence: (sequences).
    Starts(View<'a>),
    /// A paged cache of (blocks, block size, heads, head_dim), with a start position per sequence.
    Paged {
        /// The start position of each sequence: (sequences).
        starts: View<'a>,
        /// The block table: `i32` or `u32` of (sequences, max blocks per sequence).
        table: View<'a>,
    },
    /// A paged cache, with a slot per token: (sequences, tokens), slot = block · block size + offset in the block. Negative slots are
    /// skipped.
    Slots(View<'a>),
}

/// Parameters of the kernel.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Params {
    keys: HeadStrides,
    values: HeadStrides,
    key_cache: HeadStrides,
    value_cache: HeadStrides,
    positions: [i32; 2],
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

/// Element types of a cache.
const CACHED: [DType; 6] = [DType::F32, DType::F16, DType::Bf16, DType::F64, DType::F8E4M3, DType::F8E5M2];

fn program(slots: bool, types: [DType; 3], vectors: bool) -> Program {
    Program::new(&APPEND, if slots { "append_slots" } else { OP }, &types.map(DType::name), &[("VECTORS", vectors.into())])
}

/// The program that writes to a quantized cache.
fn quantizing(slots: bool, from: DType, count: DType, codes: CacheCodes) -> Program {
    program(slots, [from, codes.dtype(), count], false).with("CODES", codes.constant())
}

/// Heads of a block of the quantizing kernel; each takes 32 lanes.
const HEADS: usize = 8;

impl Kernels {
    /// Writes keys and values of (sequences, tokens, heads, head_dim), in any layout, into a cache, which may have another element type. No
    /// two tokens may have the same position.
    pub fn append(
        &self,
        stream: &Stream,
        (keys, values): (&View<'_>, &View<'_>),
        at: CachePositions<'_>,
        (key_cache, value_cache): (&mut ViewMut<'_>, &mut ViewMut<'_>),
    ) -> Result<()> {
        self.append_as(stream, (keys, values), at, (key_cache, value_cache), None)
    }

    /// [`Kernels::append`] to a quantized cache: `key_cache` and `value_cache` have the codes.
    pub fn append_quantized(
        &self,
        stream: &Stream,
        (keys, values): (&View<'_>, &View<'_>),
        at: CachePositions<'_>,
        (key_cache, value_cache): (&mut ViewMut<'_>, &mut ViewMut<'_>),
        scales: &mut CacheScalesMut<'_>,
    ) -> Result<()> {
        self.append_as(stream, (keys, values), at, (key_cache, value_cache), Some(scales.as_view()))
    }

    fn append_as(
        &self,
        stream: &Stream,
        (keys, values): (&View<'_>, &View<'_>),
        at: CachePositions<'_>,
        (key_cache, value_cache): (&mut ViewMut<'_>, &mut ViewMut<'_>),
        scales: Option<CacheScales<'_>>,
    ) -> Result<()> {
        let (keys, values, key_cache, value_cache) = (*keys, *values, key_cache.as_view(), value_cache.as_view());
        check_dtype(OP, "keys", &keys, &FLOATS)?;
        check_same_dtype(OP, "values", values, keys.dtype())?;
        if scales.is_none() {
            check_dtype(OP, "key cache", &key_cache, &CACHED)?;
        }
        check_same_dtype(OP, "value cache", value_cache, key_cache.dtype())?;
        let [sequences, tokens, heads, dim] = sizes(OP, "keys", &keys, "sequences, tokens, heads, head_dim")?;
        check_shape(OP, "values", &values, keys.layout().shape())?;
        let [blocks, block_keys, cache_heads, cache_dim] =
            sizes(OP, "key cache", &key_cache, "sequences or blocks, block size, heads, head_dim")?;
        check_shape(OP, "value cache", &value_cache, key_cache.layout().shape())?;
        let scale_strides = scales.map(|scales| scales.check(OP, &key_cache)).transpose()?;
        let paged = matches!(at, CachePositions::Paged { .. } | CachePositions::Slots(_));
        if (cache_heads, cache_dim) != (heads, dim) || (!paged && blocks != sequences) {
            let expected = format!("that matches keys of shape {:?}", keys.layout().shape());
            return Err(shape_error(OP, "key cache", &key_cache, expected));
        }
        let (start, positions, table) = match at {
            CachePositions::Start(start) => {
                if start.checked_add(tokens).is_none_or(|end| end > block_keys) {
                    let expected = format!("with space for {tokens} tokens from position {start}");
                    return Err(shape_error(OP, "key cache", &key_cache, expected));
                }
                (start, None, None)
            }
            CachePositions::Starts(starts) => (0, Some(starts), None),
            CachePositions::Paged { starts, table } => (0, Some(starts), Some(table)),
            CachePositions::Slots(slots) => (0, Some(slots), None),
        };
        let by_slot = matches!(at, CachePositions::Slots(_));
        if let Some(positions) = &positions {
            check_dtype(OP, "positions", positions, &INDEX_DTYPES)?;
            let expected = [sequences, tokens];
            check_shape(OP, "positions", positions, if by_slot { &expected } else { &expected[..1] })?;
        }
        let mut table_blocks = 0;
        if let Some(table) = &table {
            check_dtype(OP, "block table", table, &[DType::I32, DType::U32])?;
            [_, table_blocks] = sizes(OP, "block table", table, "sequences, blocks")?;
            check_shape(OP, "block table", table, &[sequences, table_blocks])?;
        }
        let inputs =
            [Some(("keys", keys)), Some(("values", values)), positions.map(|v| ("positions", v)), table.map(|v| ("block table", v))];
        let scale_views = scales.iter().flat_map(CacheScales::views);
        let caches: Vec<_> = [("key cache", key_cache), ("value cache", value_cache)].into_iter().chain(scale_views).collect();
        self.check_devices(OP, stream, inputs.into_iter().flatten().chain(caches.iter().copied()))?;
        for (what, view) in inputs.into_iter().flatten() {
            caches.iter().try_for_each(|(_, cache)| check_no_overlap(OP, what, &view, cache))?;
        }
        if keys.layout().is_empty() || key_cache.layout().is_empty() || (table.is_some() && table_blocks == 0) {
            return Ok(());
        }
        let each = width(&[keys.dtype(), key_cache.dtype()]);
        let vectors = [keys, values, key_cache, value_cache].iter().all(|view| packed(view, each));
        let small = |number| small(OP, "tokens, heads or head_dim", number);
        let params = Params {
            keys: HeadStrides::of(OP, &keys)?,
            values: HeadStrides::of(OP, &values)?,
            key_cache: HeadStrides::of(OP, &key_cache)?,
            value_cache: HeadStrides::of(OP, &value_cache)?,
            positions: positions.map(|positions| strides_i32(OP, &positions)).transpose()?.unwrap_or_default(),
            table: table.map(|table| strides_i32(OP, &table)).transpose()?.unwrap_or_default(),
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
        let count = positions.map_or(DType::I32, |positions| positions.dtype());
        if let (Some(scales), Some(strides)) = (scales, scale_strides) {
            let kernels = self.load(&quantizing(by_slot, keys.dtype(), count, scales.codes))?;
            let blocks = (sequences * tokens * heads * 2).div_ceil(HEADS).clamp(1, 1 << 22);
            let args = (
                keys.start(),
                values.start(),
                key_cache.start(),
                value_cache.start(),
                scales.keys.start(),
                scales.values.start(),
                pointer(positions),
                pointer(table),
                Arg::value(&params),
                Arg::value(&strides),
            );
            let launch = Launch::new([blocks as u32, 1, 1], [32, HEADS as u32, 1]);
            // SAFETY: as below; the scales were checked to match the caches.
            return unsafe { kernels[0].launch(stream, launch.pdl(), args) }.map_err(launch_error(OP));
        }
        let kernels = self.load(&program(by_slot, [keys.dtype(), key_cache.dtype(), count], vectors))?;
        let items = heads * dim / if vectors { each } else { 1 };
        let args =
            (keys.start(), values.start(), key_cache.start(), value_cache.start(), pointer(positions), pointer(table), Arg::value(&params));
        // SAFETY: the kernel was compiled for these types and this layout; positions outside the caches are skipped, all views were checked
        // against their memory, and only the caches are written.
        unsafe { kernels[0].launch(stream, row_launch(sequences * tokens, items).pdl(), args) }.map_err(launch_error(OP))
    }
}

/// Lists the programs: all pairs of types, some of the layouts.
pub(crate) fn programs() -> Vec<Program> {
    let pairs = FLOATS.into_iter().flat_map(|from| CACHED.map(|to| (from, to)));
    let plain = pairs.flat_map(|(from, to)| [true, false].map(|vectors| program(!vectors, [from, to, DType::I32], vectors)));
    let quantized = FLOATS.into_iter().zip([true, false].into_iter().cycle());
    plain.chain(quantized.flat_map(|(from, slots)| CODES.map(|codes| quantizing(slots, from, DType::I32, codes)))).collect()
}

/// Lists the programs of models: slots in `u32`, as a step's input has them.
pub(crate) fn of_models() -> Vec<Program> {
    let pairs = FLOATS.into_iter().flat_map(|from| CACHED.map(|to| (from, to)));
    let plain = pairs.flat_map(|(from, to)| [true, false].map(|vectors| program(true, [from, to, DType::U32], vectors)));
    plain.chain(FLOATS.into_iter().flat_map(|from| CODES.map(|codes| quantizing(true, from, DType::U32, codes)))).collect()
}
