//! Attention over a paged KV cache, with online softmax.

use half::{bf16, f16};
use warpwave_kernels::{AttentionOptions, Window};

use super::cache_codes::{Codes, CodesMut};
use super::math::{exp, tanh};
use super::matmul::Out;
use super::matmul_f32::{Dense, tile, tile_across};
use super::pool::{parallel, threads};
use super::simd::{Isa, Kernel, LANES, Simd, dispatch, tile_rows, unrolled};

/// Keys or values: (blocks, block size, heads, head_dim).
#[derive(Debug, Clone, Copy)]
pub enum Cache<'a> {
    /// `f32`.
    F32(&'a [f32]),
    /// `f16`.
    F16(&'a [f16]),
    /// `bf16`.
    Bf16(&'a [bf16]),
    /// Quantized.
    Codes(Codes<'a>),
}

/// A mutable [`Cache`].
#[derive(Debug)]
pub enum CacheMut<'a> {
    /// `f32`.
    F32(&'a mut [f32]),
    /// `f16`.
    F16(&'a mut [f16]),
    /// `bf16`.
    Bf16(&'a mut [bf16]),
}

/// A sequence and its cached keys.
#[derive(Debug, Clone, Copy)]
pub struct Sequence<'a> {
    /// Blocks of its keys and values, in order.
    pub table: &'a [u32],
    /// Number of keys; the last query is at the position of the last key.
    pub keys: usize,
    /// Number of queries.
    pub queries: usize,
}

/// Sizes and parameters of attention.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Heads {
    /// Query heads: a multiple of `kv_heads`; consecutive ones share a KV head (GQA).
    pub heads: usize,
    /// KV heads.
    pub kv_heads: usize,
    /// head_dim.
    pub dim: usize,
    /// Keys of a cache block.
    pub block: usize,
    /// Multiplies scores.
    pub scale: f32,
    /// The keys that a query attends to.
    pub window: Window,
    /// Soft cap: scores become `cap · tanh(score / cap)`.
    pub soft_cap: Option<f32>,
}

/// Optional inputs of attention.
#[derive(Debug, Clone, Copy, Default)]
pub struct AttentionExtras<'a> {
    /// Another logit per query head, which has no value.
    pub sinks: Option<&'a [f32]>,
    /// A tree mask, a word per token. The last 64 tokens of a sequence are its drafts, or all if it has fewer: bit j of a token's word says
    /// whether it attends to draft j, whatever the window.
    pub tree: Option<&'a [u64]>,
}

/// Writes keys or values of (tokens, heads, head_dim) to a cache with `block` keys per block, from a sequence's position `start` on.
///
/// # Panics
/// If the table or the cache is too short.
pub fn append(cache: CacheMut<'_>, block: usize, table: &[u32], start: usize, row: usize, x: &[f32]) {
    match cache {
        CacheMut::F32(cache) => append_to(cache, block, table, start, row, x),
        CacheMut::F16(cache) => append_to(cache, block, table, start, row, x),
        CacheMut::Bf16(cache) => append_to(cache, block, table, start, row, x),
    }
}

/// The slots of rows, each with its elements.
fn slots<'a>(block: usize, table: &'a [u32], start: usize, row: usize, x: &'a [f32]) -> impl Iterator<Item = (usize, &'a [f32])> {
    assert!(x.is_empty() || x.len().is_multiple_of(row), "expected rows of {row} elements, got {} elements in total", x.len());
    let place = move |i: usize| table[(start + i) / block] as usize * block + (start + i) % block;
    x.chunks_exact(row.max(1)).enumerate().map(move |(i, x)| (place(i), x))
}

pub(super) fn append_codes(cache: &mut CodesMut<'_>, dim: usize, block: usize, table: &[u32], start: usize, row: usize, x: &[f32]) {
    for (slot, x) in slots(block, table, start, row, x) {
        x.chunks_exact(dim.max(1)).enumerate().for_each(|(head, x)| cache.put(slot * (row / dim) + head, x));
    }
}

pub(super) fn append_to<D: Dense>(cache: &mut [D], block: usize, table: &[u32], start: usize, row: usize, x: &[f32]) {
    for (slot, x) in slots(block, table, start, row, x) {
        for (to, x) in cache[slot * row..][..row].iter_mut().zip(x) {
            *to = D::from_f32(*x);
        }
    }
}

/// Where attention reads keys or values.
trait Source: Copy + Sync {
    type Element: Dense;
    /// The elements, if they can be read in place.
    fn in_place(&self) -> Option<&[Self::Element]>;
    fn prefetch<S: Simd>(&self, at: usize, dim: usize);
    /// Converts a head's elements, from element `at`.
    fn load<S: Simd>(&self, at: usize, to: &mut [f32]);
}

impl<D: Dense> Source for &[D] {
    type Element = D;
    #[inline(always)]
    fn in_place(&self) -> Option<&[D]> {
        Some(self)
    }
    #[inline(always)]
    fn prefetch<S: Simd>(&self, at: usize, dim: usize) {
        S::prefetch(bytemuck::cast_slice(&self[at..][..dim]));
    }
    #[inline(always)]
    fn load<S: Simd>(&self, at: usize, to: &mut [f32]) {
        let dim = to.len();
        let (from, last) = self[at..][..dim].as_chunks::<LANES>();
        let (to, rest) = to.as_chunks_mut::<LANES>();
        for (to, from) in to.iter_mut().zip(from) {
            S::store(D::lanes::<S>(from), to);
        }
        for (to, from) in rest.iter_mut().zip(last) {
            *to = from.to_f32();
        }
    }
}

impl Source for Codes<'_> {
    type Element = f32;
    #[inline(always)]
    fn in_place(&self) -> Option<&[f32]> {
        None
    }
    #[inline(always)]
    fn prefetch<S: Simd>(&self, at: usize, dim: usize) {
        S::prefetch(&self.codes[at..][..dim]);
    }
    #[inline(always)]
    fn load<S: Simd>(&self, at: usize, to: &mut [f32]) {
        self.get(at, to);
    }
}

/// Query rows (token and head) of a task. They share a KV head.
const ROWS: usize = 48;
/// Keys of a tile.
const KEYS: usize = 64;
/// Row stride of a panel: one more than the keys, since addresses 4 KiB apart share a set of the L1 cache.
const PANEL_STRIDE: usize = KEYS + 1;
/// Blocks to prefetch ahead: those of long contexts are no longer in the processor's cache.
const PREFETCH_BLOCKS: usize = 2;
/// The largest head_dim.
pub(crate) const MAX_HEAD_DIM: usize = 512;

/// Attention of variable-length sequences. Queries and results are (tokens, heads, head_dim), packed sequence after sequence. A
/// query without keys gives zeros.
///
/// # Panics
/// If sizes do not match, a block table is too short or out of range, or head_dim exceeds 512.
pub fn attention(q: &[f32], keys: Cache<'_>, values: Cache<'_>, sequences: &[Sequence<'_>], heads: &Heads, out: &mut [f32]) {
    attention_with(q, keys, values, sequences, heads, &AttentionExtras::default(), out);
}

/// [`attention`] with sinks and a tree mask.
///
/// # Panics
/// As [`attention`], or unless there is one sink per query head and one word per token.
pub fn attention_with(
    q: &[f32],
    keys: Cache<'_>,
    values: Cache<'_>,
    sequences: &[Sequence<'_>],
    heads: &Heads,
    extras: &AttentionExtras<'_>,
    out: &mut [f32],
) {
    assert!(extras.sinks.is_none_or(|sinks| sinks.len() == heads.heads), "expected one sink per query head");
    let Heads { kv_heads, dim, block, .. } = *heads;
    let tokens: usize = sequences.iter().map(|sequence| sequence.queries).sum();
    assert!(extras.tree.is_none_or(|tree| tree.len() == tokens), "expected one word of the tree mask per token");
    assert!(kv_heads > 0 && heads.heads.is_multiple_of(kv_heads) && block > 0, "{heads:?}");
    assert!(dim <= MAX_HEAD_DIM, "head_dim {dim} exceeds {MAX_HEAD_DIM}");
    let len = tokens * heads.heads * dim;
    assert!(q.len() == len && out.len() == len, "query or output length does not match {tokens} tokens of {heads:?}");
    if q.is_empty() {
        return;
    }
    for sequence in sequences {
        assert!(sequence.queries <= sequence.keys, "{} queries need at least as many keys, got {}", sequence.queries, sequence.keys);
        let (blocks, keys) = (sequence.table.len(), sequence.keys);
        assert!(keys.div_ceil(block) <= blocks, "{blocks} blocks are too few for {keys} keys");
    }
    match (keys, values) {
        (Cache::F32(keys), Cache::F32(values)) => attend(q, keys, values, sequences, heads, extras, out),
        (Cache::F16(keys), Cache::F16(values)) => attend(q, keys, values, sequences, heads, extras, out),
        (Cache::Bf16(keys), Cache::Bf16(values)) => attend(q, keys, values, sequences, heads, extras, out),
        (Cache::Codes(keys), Cache::Codes(values)) => attend(q, keys, values, sequences, heads, extras, out),
        _ => panic!("keys and values have different types"),
    }
}

fn attend<C: Source>(
    q: &[f32],
    keys: C,
    values: C,
    sequences: &[Sequence<'_>],
    heads: &Heads,
    extras: &AttentionExtras<'_>,
    out: &mut [f32],
) {
    let (isa, group) = (Isa::current(), heads.heads / heads.kv_heads);
    // A task is some queries of a sequence and one KV head: (sequence, its first token, KV head, first query, queries).
    let each = (ROWS / group).max(1);
    let (mut tasks, mut first, mut work) = (Vec::new(), 0, 0);
    for sequence in sequences {
        for from in (0..sequence.queries).step_by(each) {
            let count = each.min(sequence.queries - from);
            tasks.extend((0..heads.kv_heads).map(|head| (sequence, first, head, from, count)));
            work += count * heads.heads * (sequence.keys - sequence.queries + from);
        }
        first += sequence.queries;
    }
    // Longest first, for balance.
    tasks.reverse();
    let out = Out::new(out, heads.dim);
    let task = |i: usize| {
        let (sequence, first, head, from, count) = tasks[i];
        dispatch(isa, Task { q, keys, values, sequence, heads, extras, first, head, from, count, out });
    };
    if threads() == 1 || work * heads.dim < 1 << 15 { (0..tasks.len()).for_each(task) } else { parallel(tasks.len(), &task) }
}

/// Attention of some queries of a sequence with one KV head.
struct Task<'a, C> {
    q: &'a [f32],
    keys: C,
    values: C,
    sequence: &'a Sequence<'a>,
    heads: &'a Heads,
    extras: &'a AttentionExtras<'a>,
    /// The sequence's first token in the batch.
    first: usize,
    /// The KV head.
    head: usize,
    /// The first query, and the number of queries.
    from: usize,
    count: usize,
    out: Out<'a>,
}

/// Up to 16 query rows, one per lane, and their online softmax state.
struct Rows {
    /// Scaled queries, column-major.
    q: Vec<[f32; LANES]>,
    /// Scaled queries, row-major; as many rows as `sums`.
    rows: Vec<f32>,
    /// Weighted sums of values, row-major; padded to a multiple of 4 rows, since fewer accumulators do not hide FMA latency.
    sums: Vec<f32>,
    /// Running maximum and sum of exponentials.
    max: [f32; LANES],
    total: [f32; LANES],
    /// Positions, and words of the tree mask.
    positions: [usize; LANES],
    words: [u64; LANES],
}

/// The keys that rows attend to.
#[derive(Debug, Clone, Copy)]
struct Mask {
    window: Window,
    /// The first draft of a tree mask; without a mask, the number of keys.
    draft: usize,
}

impl<C: Source> Kernel for Task<'_, C> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd>(self) {
        let Heads { kv_heads, dim, block, window, .. } = *self.heads;
        let stride = kv_heads * dim;
        let group = self.heads.heads / self.heads.kv_heads;
        let (rows, padded) = (self.count * group, dim.next_multiple_of(LANES));
        let position = self.sequence.keys - self.sequence.queries + self.from;
        let row_of = |r: usize| (self.first + self.from + r / group) * self.heads.heads + self.head * group + r % group;
        let mut all: Vec<Rows> = (0..rows).step_by(LANES).map(|r| self.rows(position, r, LANES.min(rows - r))).collect();
        let mut scores = vec![[0.0; LANES]; KEYS];
        let few = rows <= FEW_ROWS;
        let in_place = if few { self.keys.in_place().zip(self.values.in_place()) } else { None };
        let mut keys = vec![0.0; if in_place.is_some() { 0 } else { KEYS * dim }];
        // With few rows the values, else one of them.
        let mut row_values = vec![
            0.0;
            if in_place.is_some() {
                0
            } else if few {
                KEYS * dim
            } else {
                padded
            }
        ];
        // Panels of 16 columns of all values.
        let mut values = vec![[0.0; LANES]; if few { 0 } else { padded / LANES * PANEL_STRIDE }];
        let key_count = self.sequence.keys;
        let mut start = window.left.map_or(0, |left| position.saturating_sub(left));
        let mut end = window.right.map_or(key_count, |right| (position + self.count).saturating_add(right).min(key_count));
        let mut mask = Mask { window, draft: key_count };
        if self.extras.tree.is_some() {
            mask.draft = key_count - self.sequence.queries.min(AttentionOptions::MAX_DRAFTS);
            (start, end) = (start.min(mask.draft), key_count);
        }
        for start in (start..end).step_by(KEYS) {
            let count = KEYS.min(end - start);
            let mut done = 0;
            let mut offsets = [0; KEYS];
            while done < count {
                let (page, first) = ((start + done) / block, (start + done) % block);
                let run = (block - first).min(count - done);
                let at = self.offset(page, first);
                let later = (page + PREFETCH_BLOCKS < end.div_ceil(block)).then(|| self.offset(page + PREFETCH_BLOCKS, first));
                for i in 0..run {
                    let (j, at) = (done + i, at + i * stride);
                    if let Some(later) = later {
                        self.keys.prefetch::<S>(later + i * stride, dim);
                        self.values.prefetch::<S>(later + i * stride, dim);
                    }
                    offsets[j] = at;
                    if in_place.is_some() {
                        continue;
                    }
                    self.keys.load::<S>(at, &mut keys[j * dim..][..dim]);
                    if few {
                        offsets[j] = j * dim;
                        self.values.load::<S>(at, &mut row_values[j * dim..][..dim]);
                        continue;
                    }
                    self.values.load::<S>(at, &mut row_values[..dim]);
                    for (g, from) in row_values.as_chunks::<LANES>().0.iter().enumerate() {
                        S::store(S::load(from), &mut values[g * PANEL_STRIDE + j]);
                    }
                }
                done += run;
            }
            if few {
                let (own, offsets, scores) = (&mut all[0], &offsets[..count], &mut scores[..count]);
                match in_place {
                    Some((keys, _)) => few_scores::<S, C::Element>(keys, own, offsets, scores),
                    None => few_scores::<S, f32>(&keys, own, offsets, scores),
                }
                let factors = online_softmax(own, scores, start, mask, self.heads.soft_cap);
                match in_place {
                    Some((_, values)) => few_mix::<S, C::Element>(values, own, offsets, scores, &factors),
                    None => few_mix::<S, f32>(&row_values, own, offsets, scores, &factors),
                }
                continue;
            }
            for (g, own) in all.iter_mut().enumerate() {
                let lanes = LANES.min(rows - g * LANES);
                let keys = &keys[..count * dim];
                many_scores::<S>(own, keys, &mut scores);
                let factors = online_softmax(own, &mut scores[..count], start, mask, self.heads.soft_cap);
                let (mut lane, x) = (0, &scores[..count]);
                while lane < lanes {
                    let tile = tile_rows::<S>((lanes - lane).next_multiple_of(4));
                    for (g, panel) in values.chunks_exact(PANEL_STRIDE).enumerate() {
                        let sums = &mut own.sums[lane * padded + g * LANES..];
                        let factors = &factors[lane..lane + tile];
                        match tile {
                            16 if S::WIDE_TILES => mix::<S, 16>(&panel[..count], x, lane, factors, sums, padded),
                            8 if S::WIDE_TILES => mix::<S, 8>(&panel[..count], x, lane, factors, sums, padded),
                            _ => mix::<S, 4>(&panel[..count], x, lane, factors, sums, padded),
                        }
                    }
                    lane += tile;
                }
            }
        }
        for r in 0..rows {
            let (own, lane) = (&all[r / LANES], r % LANES);
            let sink = self.extras.sinks.map_or(0.0, |sinks| exp(sinks[self.head * group + r % group] - own.max[lane]));
            let total = own.total[lane] + sink;
            let factor = if total == 0.0 { 0.0 } else { 1.0 / total };
            for (g, sums) in own.sums[lane * padded..][..padded].as_chunks::<LANES>().0.iter().enumerate() {
                self.out.put(row_of(r), g * LANES, &sums.map(|sum| sum * factor));
            }
        }
    }
}

/// Up to this many rows, keys and values are read in place instead of through panels.
const FEW_ROWS: usize = 8;

impl<C: Source> Task<'_, C> {
    /// The offset of a key, by its index in the block table and in the block.
    #[inline(always)]
    fn offset(&self, page: usize, index: usize) -> usize {
        let Heads { kv_heads, dim, block, .. } = *self.heads;
        ((self.sequence.table[page] as usize * block + index) * kv_heads + self.head) * dim
    }

    /// The initial state of query rows.
    fn rows(&self, position: usize, from: usize, count: usize) -> Rows {
        let Heads { heads, kv_heads, dim, scale, .. } = *self.heads;
        let group = heads / kv_heads;
        let mut q = vec![[0.0; LANES]; dim];
        let mut rows = vec![0.0; count.next_multiple_of(4) * dim];
        for lane in 0..count {
            let (token, head) = ((from + lane) / group, (from + lane) % group);
            let row = (self.first + self.from + token) * heads + self.head * group + head;
            for ((q, rows), x) in q.iter_mut().zip(&mut rows[lane * dim..]).zip(&self.q[row * dim..][..dim]) {
                q[lane] = x * scale;
                *rows = q[lane];
            }
        }
        Rows {
            q,
            rows,
            sums: vec![0.0; count.next_multiple_of(4) * dim.next_multiple_of(LANES)],
            max: [f32::NEG_INFINITY; LANES],
            total: [0.0; LANES],
            positions: std::array::from_fn(|lane| position + (from + lane.min(count - 1)) / group),
            words: std::array::from_fn(|lane| {
                self.extras.tree.map_or(0, |tree| tree[self.first + self.from + (from + lane.min(count - 1)) / group])
            }),
        }
    }
}

/// Scores of keys with few rows, four at a time. The remainder of head_dim is a separate loop: its conversions may be function calls,
/// which would spill the accumulators.
#[inline(always)]
fn few_scores<S: Simd, D: Dense>(keys: &[D], own: &Rows, offsets: &[usize], scores: &mut [[f32; LANES]]) {
    let dim = own.q.len();
    let whole = dim / LANES * LANES;
    for (lane, q) in own.rows.chunks_exact(4 * dim).enumerate() {
        let each: [&[[f32; LANES]]; 4] = std::array::from_fn(|t| q[t * dim..][..whole].as_chunks().0);
        for (at, scores) in offsets.iter().zip(&mut *scores) {
            let sums = few_products::<S, D, 4>(keys[*at..][..whole].as_chunks().0, each);
            unrolled!(4, |t| {
                scores[4 * lane + t] = S::sum(sums[t]);
            });
        }
        if whole < dim {
            for (at, scores) in offsets.iter().zip(&mut *scores) {
                for (score, q) in scores[4 * lane..].iter_mut().zip(q.chunks_exact(dim)) {
                    let parts = q[whole..].iter().zip(&keys[at + whole..]);
                    *score += parts.map(|(q, key)| q * key.to_f32()).sum::<f32>();
                }
            }
        }
    }
}

/// Adds values weighted by the scores of few rows.
#[inline(always)]
fn few_mix<S: Simd, D: Dense>(values: &[D], own: &mut Rows, offsets: &[usize], scores: &[[f32; LANES]], factors: &[f32; LANES]) {
    let (dim, padded) = (own.q.len(), own.q.len().next_multiple_of(LANES));
    let whole = dim / LANES * LANES;
    for (lane, sums) in own.sums.chunks_exact_mut(4 * padded).enumerate() {
        let lane = 4 * lane;
        for from in (0..whole).step_by(LANES) {
            let more = few_sums::<S, D, 4>(values, offsets, scores, from, lane);
            unrolled!(4, |t| {
                if let Some(sums) = sums[t * padded + from..].first_chunk_mut() {
                    let total = S::fma(S::load(sums), S::splat(factors[lane + t]), more[t]);
                    S::store(total, sums);
                }
            });
        }
        for (t, sums) in sums.chunks_exact_mut(padded).enumerate() {
            for (i, sum) in sums[whole..dim].iter_mut().enumerate() {
                let parts = offsets.iter().zip(scores).map(|(at, scores)| scores[lane + t] * values[at + whole + i].to_f32());
                *sum = *sum * factors[lane + t] + parts.sum::<f32>();
            }
        }
    }
}

#[inline(always)]
fn few_sums<S: Simd, D: Dense, const T: usize>(
    values: &[D],
    offsets: &[usize],
    scores: &[[f32; LANES]],
    from: usize,
    lane: usize,
) -> [S::F; T] {
    let mut sums = [S::splat(0.0); T];
    for (at, scores) in offsets.iter().zip(scores) {
        let (value, scores) = (&values[at + from..][..LANES].as_chunks().0[0], &scores[lane..lane + T]);
        let value = D::lanes::<S>(value);
        unrolled!(T, |t| {
            sums[t] = S::fma(value, S::splat(scores[t]), sums[t]);
        });
    }
    sums
}

#[inline(always)]
fn few_products<S: Simd, D: Dense, const T: usize>(key: &[[D; LANES]], q: [&[[f32; LANES]]; T]) -> [S::F; T] {
    let mut sums = [S::splat(0.0); T];
    for (i, key) in key.iter().enumerate() {
        let key = D::lanes::<S>(key);
        unrolled!(T, |t| {
            sums[t] = S::fma(S::load(&q[t][i]), key, sums[t]);
        });
    }
    sums
}

/// Scores of all rows with each key.
#[inline(always)]
fn many_scores<S: Simd>(rows: &Rows, keys: &[f32], scores: &mut [[f32; LANES]]) {
    let (dim, mut j) = (rows.q.len(), 0);
    let count = keys.len() / dim;
    while j < count {
        let tile = tile_rows::<S>(count - j);
        let (keys, scores) = (&keys[j * dim..], &mut scores[j..j + tile]);
        match tile {
            16 if S::WIDE_TILES => score::<S, 16>(rows, keys, scores),
            8 if S::WIDE_TILES => score::<S, 8>(rows, keys, scores),
            4 => score::<S, 4>(rows, keys, scores),
            2 => score::<S, 2>(rows, keys, scores),
            _ => score::<S, 1>(rows, keys, scores),
        }
        j += tile;
    }
}

#[inline(always)]
fn score<S: Simd, const T: usize>(rows: &Rows, keys: &[f32], scores: &mut [[f32; LANES]]) {
    let dim = rows.q.len();
    let sums = tile::<S, T, 1>(&rows.q, std::array::from_fn(|t| &keys[t * dim..][..dim]));
    unrolled!(T, |t| {
        S::store(sums[t], &mut scores[t]);
    });
}

/// Rescales 16 columns of weighted sums, and adds values weighted by the scores.
#[inline(always)]
fn mix<S: Simd, const T: usize>(
    panel: &[[f32; LANES]],
    scores: &[[f32; LANES]],
    lane: usize,
    factors: &[f32],
    sums: &mut [f32],
    padded: usize,
) {
    let more = tile_across::<S, T>(panel, scores, lane);
    unrolled!(T, |t| {
        if let Some(sums) = sums[t * padded..].first_chunk_mut() {
            let total = S::fma(S::load(sums), S::splat(factors[t]), more[t]);
            S::store(total, sums);
        }
    });
}

/// One step of online softmax: turns scores into exponentials relative to the running maximum, zero for masked keys, and returns the
/// factors by which previous sums are rescaled.
#[inline(always)]
fn online_softmax(rows: &mut Rows, scores: &mut [[f32; LANES]], start: usize, mask: Mask, cap: Option<f32>) -> [f32; LANES] {
    if let Some(cap) = cap {
        for score in scores.as_flattened_mut() {
            *score = cap * tanh(*score / cap);
        }
    }
    // The range of keys that each row attends to; the tree mask decides about the drafts after it.
    let Window { left, right } = mask.window;
    let before = mask.draft.saturating_sub(start).min(scores.len());
    let (earlier, drafts) = scores.split_at_mut(before);
    let within = |position: usize| position.saturating_sub(start).min(before) as u32;
    let to = rows.positions.map(|position| right.map_or(before as u32, |right| within((position + 1).saturating_add(right))));
    let from = rows.positions.map(|position| left.map_or(0, |left| within(position.saturating_sub(left))));
    if to.iter().any(|to| *to < before as u32) || from.iter().any(|from| *from > 0) {
        for (j, scores) in earlier.iter_mut().enumerate() {
            let j = j as u32;
            for lane in 0..LANES {
                scores[lane] = if (j >= from[lane]) & (j < to[lane]) { scores[lane] } else { f32::NEG_INFINITY };
            }
        }
    }
    for (i, scores) in drafts.iter_mut().enumerate() {
        let number = start + before + i - mask.draft;
        for (score, word) in scores.iter_mut().zip(&rows.words) {
            *score = if word >> number & 1 == 1 { *score } else { f32::NEG_INFINITY };
        }
    }
    let mut max = rows.max;
    for scores in &*scores {
        for lane in 0..LANES {
            let (a, b) = (max[lane], scores[lane]);
            max[lane] = if (a >= b) | a.is_nan() { a } else { b };
        }
    }
    let mut factors = [0.0; LANES];
    let mut base = [0.0; LANES];
    for lane in 0..LANES {
        // All keys masked so far: exponentials become 0.
        base[lane] = if max[lane] == f32::NEG_INFINITY { 0.0 } else { max[lane] };
        factors[lane] = exp(rows.max[lane] - base[lane]);
    }
    rows.max = max;
    let mut total = [0.0; LANES];
    for scores in scores {
        for lane in 0..LANES {
            scores[lane] = exp(scores[lane] - base[lane]);
            total[lane] += scores[lane];
        }
    }
    for lane in 0..LANES {
        rows.total[lane] = rows.total[lane] * factors[lane] + total[lane];
    }
    factors
}
