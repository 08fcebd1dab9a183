//! Attention over a cache of keys and values in blocks.

use half::{bf16, f16};

use super::exact::{Dense, tile, tile_across};
use super::math::{exp, tanh};
use super::matmul::Out;
use super::pool::{parallel, threads};
use super::simd::{Kernel, LANES, Path, Simd, dispatch, tile_rows, unrolled};

/// Keys or values: (blocks, places of a block, heads, elements of a head).
#[derive(Debug, Clone, Copy)]
pub enum Cache<'a> {
    /// `f32`.
    F32(&'a [f32]),
    /// `f16`.
    F16(&'a [f16]),
    /// `bf16`.
    Bf16(&'a [bf16]),
}

/// [`Cache`], to write.
#[derive(Debug)]
pub enum CacheMut<'a> {
    /// `f32`.
    F32(&'a mut [f32]),
    /// `f16`.
    F16(&'a mut [f16]),
    /// `bf16`.
    Bf16(&'a mut [bf16]),
}

/// A sequence of tokens with its keys.
#[derive(Debug, Clone, Copy)]
pub struct Sequence<'a> {
    /// The blocks of its keys and values, in order.
    pub table: &'a [u32],
    /// How many keys there are; the last query's place is the last key's.
    pub keys: usize,
    /// How many of its tokens ask.
    pub queries: usize,
}

/// Sizes of heads, and how queries see keys.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Heads {
    /// Heads of queries: a multiple of `kv_heads`; as many in a row share keys.
    pub heads: usize,
    /// Heads of keys and of values.
    pub kv_heads: usize,
    /// Elements of a head.
    pub dim: usize,
    /// Places of a block of the cache.
    pub block: usize,
    /// What scores are multiplied with.
    pub scale: f32,
    /// Of the keys those alone that are fewer than so many places away.
    pub window: Option<usize>,
    /// Scores become `cap · tanh(score / cap)`.
    pub soft_cap: Option<f32>,
}

/// Writes keys or values of (tokens, heads, elements) into a cache of `block` places each, from a sequence's place `start` on.
///
/// # Panics
/// If the table has no block for a place, or the cache no such block.
pub fn append(cache: CacheMut<'_>, block: usize, table: &[u32], start: usize, row: usize, x: &[f32]) {
    match cache {
        CacheMut::F32(cache) => append_to(cache, block, table, start, row, x),
        CacheMut::F16(cache) => append_to(cache, block, table, start, row, x),
        CacheMut::Bf16(cache) => append_to(cache, block, table, start, row, x),
    }
}

fn append_to<D: Dense>(cache: &mut [D], block: usize, table: &[u32], start: usize, row: usize, x: &[f32]) {
    assert!(x.is_empty() || x.len().is_multiple_of(row), "rows of {row} numbers");
    if row == 0 {
        return;
    }
    for (i, x) in x.chunks_exact(row).enumerate() {
        let place = start + i;
        let slot = table[place / block] as usize * block + place % block;
        for (to, x) in cache[slot * row..][..row].iter_mut().zip(x) {
            *to = D::from_number(*x);
        }
    }
}

/// Rows of queries, a token's head each, that share keys and are computed together.
const ROWS: usize = 48;
/// Keys that are taken at a time.
const KEYS: usize = 64;
/// Room for them: one more, for what lies a multiple of 4 KiB apart has one place in the cache.
const ROOM: usize = KEYS + 1;
/// Pages by which the cache is asked for before its keys are needed: of long texts they are no longer near the processor.
const AHEAD: usize = 2;
/// Elements of a head at most.
const MOST: usize = 512;

/// Each query's mean of the values it sees, weighted by the softmax of its products with their keys: a query sees its own place's key and
/// those before it. Queries and results are of (tokens, heads, elements), the tokens of one sequence behind those of another. A query that
/// sees no key gives zeros.
///
/// # Panics
/// If sizes do not fit each other, a table has too few blocks or names one that the cache has not, or a head has more than 512 elements.
pub fn attention(q: &[f32], keys: Cache<'_>, values: Cache<'_>, sequences: &[Sequence<'_>], heads: &Heads, out: &mut [f32]) {
    let Heads { kv_heads, dim, block, .. } = *heads;
    let tokens: usize = sequences.iter().map(|sequence| sequence.queries).sum();
    assert!(kv_heads > 0 && heads.heads.is_multiple_of(kv_heads) && block > 0, "{heads:?}");
    assert!(dim <= MOST, "a head has at most {MOST} elements, not {dim}");
    assert!(q.len() == tokens * heads.heads * dim && out.len() == q.len(), "{tokens} queries of {heads:?}");
    if q.is_empty() {
        return;
    }
    for sequence in sequences {
        assert!(sequence.queries <= sequence.keys, "{} queries with {} keys", sequence.queries, sequence.keys);
        assert!(sequence.keys.div_ceil(block) <= sequence.table.len(), "{} blocks for {} keys", sequence.table.len(), sequence.keys);
    }
    match (keys, values) {
        (Cache::F32(keys), Cache::F32(values)) => attend(q, keys, values, sequences, heads, out),
        (Cache::F16(keys), Cache::F16(values)) => attend(q, keys, values, sequences, heads, out),
        (Cache::Bf16(keys), Cache::Bf16(values)) => attend(q, keys, values, sequences, heads, out),
        _ => panic!("keys and values are of one type"),
    }
}

fn attend<D: Dense>(q: &[f32], keys: &[D], values: &[D], sequences: &[Sequence<'_>], heads: &Heads, out: &mut [f32]) {
    let (path, group) = (Path::current(), heads.heads / heads.kv_heads);
    // Some queries of a sequence with one head of keys: (sequence, its first token, head of keys, first query, how many).
    let each = (ROWS / group).max(1);
    let (mut parts, mut first, mut work) = (Vec::new(), 0, 0);
    for sequence in sequences {
        for from in (0..sequence.queries).step_by(each) {
            let count = each.min(sequence.queries - from);
            parts.extend((0..heads.kv_heads).map(|head| (sequence, first, head, from, count)));
            work += count * heads.heads * (sequence.keys - sequence.queries + from);
        }
        first += sequence.queries;
    }
    // The longest first.
    parts.reverse();
    let out = Out::new(out, heads.dim);
    let part = |i: usize| {
        let (sequence, first, head, from, count) = parts[i];
        dispatch(path, Part { q, keys, values, sequence, heads, first, head, from, count, out });
    };
    if threads() == 1 || work * heads.dim < 1 << 15 { (0..parts.len()).for_each(part) } else { parallel(parts.len(), &part) }
}

/// Some queries of a sequence with one head of keys.
struct Part<'a, D> {
    q: &'a [f32],
    keys: &'a [D],
    values: &'a [D],
    sequence: &'a Sequence<'a>,
    heads: &'a Heads,
    /// The sequence's first token among all, the head of keys, its first query here, and how many.
    first: usize,
    head: usize,
    from: usize,
    count: usize,
    out: Out<'a>,
}

/// Up to 16 rows of a part, in the lanes of vectors, and what is remembered of them while it goes through the keys.
struct Rows {
    /// Queries, scaled: each element's of all rows together.
    q: Vec<[f32; LANES]>,
    /// The same row by row, as many rows as `sums` has.
    plain: Vec<f32>,
    /// Elements of each row; of a multiple of 4 rows, for sums of fewer wait for each other.
    sums: Vec<f32>,
    most: [f32; LANES],
    total: [f32; LANES],
    /// The last place that a row sees.
    last: [usize; LANES],
}

impl<D: Dense> Kernel for Part<'_, D> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd>(self) {
        let Heads { kv_heads, dim, block, window, .. } = *self.heads;
        let step = kv_heads * dim;
        let group = self.heads.heads / self.heads.kv_heads;
        let (rows, padded) = (self.count * group, dim.next_multiple_of(LANES));
        let place = self.sequence.keys - self.sequence.queries + self.from;
        let row_of = |r: usize| (self.first + self.from + r / group) * self.heads.heads + self.head * group + r % group;
        let mut all: Vec<Rows> = (0..rows).step_by(LANES).map(|r| self.rows(place, r, LANES.min(rows - r))).collect();
        let mut scores = vec![[0.0; LANES]; KEYS];
        let few = rows <= FEW;
        let mut keys = vec![0.0; if few { 0 } else { KEYS * dim }];
        // 16 elements of each value, then the next 16.
        let mut values = vec![[0.0; LANES]; if few { 0 } else { padded / LANES * ROOM }];
        let (start, end) = (window.map_or(0, |window| (place + 1).saturating_sub(window)), place + self.count);
        for start in (start..end).step_by(KEYS) {
            let count = KEYS.min(end - start);
            let mut done = 0;
            let mut places = [0; KEYS];
            while done < count {
                let (page, first) = ((start + done) / block, (start + done) % block);
                let run = (block - first).min(count - done);
                let at = self.at(page, first);
                let later = (page + AHEAD < end.div_ceil(block)).then(|| self.at(page + AHEAD, first));
                for i in 0..run {
                    let (j, at) = (done + i, at + i * step);
                    if let Some(later) = later {
                        S::prefetch(bytemuck::cast_slice(&self.keys[later + i * step..][..dim]));
                        S::prefetch(bytemuck::cast_slice(&self.values[later + i * step..][..dim]));
                    }
                    places[j] = at;
                    if few {
                        continue;
                    }
                    let (from, last) = self.keys[at..][..dim].as_chunks::<LANES>();
                    let (to, rest) = keys[j * dim..][..dim].as_chunks_mut::<LANES>();
                    for (to, from) in to.iter_mut().zip(from) {
                        S::store(D::lanes::<S>(from), to);
                    }
                    for (to, from) in rest.iter_mut().zip(last) {
                        *to = from.number();
                    }
                    let (from, last) = self.values[at..][..dim].as_chunks::<LANES>();
                    for (g, from) in from.iter().enumerate() {
                        S::store(D::lanes::<S>(from), &mut values[g * ROOM + j]);
                    }
                    for (to, from) in values[dim / LANES * ROOM..].iter_mut().skip(j).take(1).flatten().zip(last) {
                        *to = from.number();
                    }
                }
                done += run;
            }
            if few {
                let (own, places, scores) = (&mut all[0], &places[..count], &mut scores[..count]);
                self.few_scores::<S>(own, places, scores);
                let factors = shares(own, scores, start, window, self.heads.soft_cap);
                self.few_mix::<S>(own, places, scores, &factors);
                continue;
            }
            for (g, own) in all.iter_mut().enumerate() {
                let lanes = LANES.min(rows - g * LANES);
                let keys = &keys[..count * dim];
                many_scores::<S>(own, keys, &mut scores);
                let factors = shares(own, &mut scores[..count], start, window, self.heads.soft_cap);
                let (mut lane, x) = (0, &scores[..count]);
                while lane < lanes {
                    let tile = tile_rows::<S>((lanes - lane).next_multiple_of(4));
                    for (g, panel) in values.chunks_exact(ROOM).enumerate() {
                        let sums = &mut own.sums[lane * padded + g * LANES..];
                        let factors = &factors[lane..lane + tile];
                        match tile {
                            16 if S::MANY => mix::<S, 16>(&panel[..count], x, lane, factors, sums, padded),
                            8 if S::MANY => mix::<S, 8>(&panel[..count], x, lane, factors, sums, padded),
                            _ => mix::<S, 4>(&panel[..count], x, lane, factors, sums, padded),
                        }
                    }
                    lane += tile;
                }
            }
        }
        for r in 0..rows {
            let (own, lane) = (&all[r / LANES], r % LANES);
            let total = own.total[lane];
            let factor = if total == 0.0 { 0.0 } else { 1.0 / total };
            for (g, sums) in own.sums[lane * padded..][..padded].as_chunks::<LANES>().0.iter().enumerate() {
                self.out.put(row_of(r), g * LANES, &sums.map(|sum| sum * factor));
            }
        }
    }
}

/// Rows for which keys and values are not worth being made into panels, but read where they are.
const FEW: usize = 8;

impl<D: Dense> Part<'_, D> {
    /// Where a key begins, by its page in the table and its place there.
    #[inline(always)]
    fn at(&self, page: usize, place: usize) -> usize {
        let Heads { kv_heads, dim, block, .. } = *self.heads;
        ((self.sequence.table[page] as usize * block + place) * kv_heads + self.head) * dim
    }

    /// Scores of keys with few rows, four at a time. What is behind the whole vectors of a head comes by itself, for it may call functions,
    /// and then sums would not stay in registers.
    #[inline(always)]
    fn few_scores<S: Simd>(&self, own: &Rows, places: &[usize], scores: &mut [[f32; LANES]]) {
        let dim = self.heads.dim;
        let whole = dim / LANES * LANES;
        for (lane, q) in own.plain.chunks_exact(4 * dim).enumerate() {
            let each: [&[[f32; LANES]]; 4] = std::array::from_fn(|t| q[t * dim..][..whole].as_chunks().0);
            for (at, scores) in places.iter().zip(&mut *scores) {
                let sums = few_products::<S, D, 4>(self.keys[*at..][..whole].as_chunks().0, each);
                unrolled!(4, |t| {
                    scores[4 * lane + t] = S::sum(sums[t]);
                });
            }
            if whole < dim {
                for (at, scores) in places.iter().zip(&mut *scores) {
                    for (score, q) in scores[4 * lane..].iter_mut().zip(q.chunks_exact(dim)) {
                        let parts = q[whole..].iter().zip(&self.keys[at + whole..]);
                        *score += parts.map(|(q, key)| q * key.number()).sum::<f32>();
                    }
                }
            }
        }
    }

    /// Sums of values, as the scores of few rows say.
    #[inline(always)]
    fn few_mix<S: Simd>(&self, own: &mut Rows, places: &[usize], scores: &[[f32; LANES]], factors: &[f32; LANES]) {
        let (dim, padded) = (self.heads.dim, self.heads.dim.next_multiple_of(LANES));
        let whole = dim / LANES * LANES;
        for (lane, sums) in own.sums.chunks_exact_mut(4 * padded).enumerate() {
            let lane = 4 * lane;
            for from in (0..whole).step_by(LANES) {
                let more = self.few_sums::<S, 4>(places, scores, from, lane);
                unrolled!(4, |t| {
                    if let Some(sums) = sums[t * padded + from..].first_chunk_mut() {
                        let total = S::fma(S::load(sums), S::splat(factors[lane + t]), more[t]);
                        S::store(total, sums);
                    }
                });
            }
            for (t, sums) in sums.chunks_exact_mut(padded).enumerate() {
                for (i, sum) in sums[whole..dim].iter_mut().enumerate() {
                    let parts = places.iter().zip(scores).map(|(at, scores)| scores[lane + t] * self.values[at + whole + i].number());
                    *sum = *sum * factors[lane + t] + parts.sum::<f32>();
                }
            }
        }
    }

    #[inline(always)]
    fn few_sums<S: Simd, const T: usize>(&self, places: &[usize], scores: &[[f32; LANES]], from: usize, lane: usize) -> [S::F; T] {
        let mut sums = [S::splat(0.0); T];
        for (at, scores) in places.iter().zip(scores) {
            let (value, scores) = (&self.values[at + from..][..LANES].as_chunks().0[0], &scores[lane..lane + T]);
            let value = D::lanes::<S>(value);
            unrolled!(T, |t| {
                sums[t] = S::fma(value, S::splat(scores[t]), sums[t]);
            });
        }
        sums
    }

    /// Rows from one on, before they saw any key.
    fn rows(&self, place: usize, from: usize, count: usize) -> Rows {
        let Heads { heads, kv_heads, dim, scale, .. } = *self.heads;
        let group = heads / kv_heads;
        let mut q = vec![[0.0; LANES]; dim];
        let mut plain = vec![0.0; count.next_multiple_of(4) * dim];
        for lane in 0..count {
            let (token, head) = ((from + lane) / group, (from + lane) % group);
            let row = (self.first + self.from + token) * heads + self.head * group + head;
            for ((q, plain), x) in q.iter_mut().zip(&mut plain[lane * dim..]).zip(&self.q[row * dim..][..dim]) {
                q[lane] = x * scale;
                *plain = q[lane];
            }
        }
        Rows {
            q,
            plain,
            sums: vec![0.0; count.next_multiple_of(4) * dim.next_multiple_of(LANES)],
            most: [f32::NEG_INFINITY; LANES],
            total: [0.0; LANES],
            last: std::array::from_fn(|lane| place + (from + lane.min(count - 1)) / group),
        }
    }
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

/// Scores of each key with all rows.
#[inline(always)]
fn many_scores<S: Simd>(rows: &Rows, keys: &[f32], scores: &mut [[f32; LANES]]) {
    let (dim, mut j) = (rows.q.len(), 0);
    let count = keys.len() / dim;
    while j < count {
        let tile = tile_rows::<S>(count - j);
        let (keys, scores) = (&keys[j * dim..], &mut scores[j..j + tile]);
        match tile {
            16 if S::MANY => score::<S, 16>(rows, keys, scores),
            8 if S::MANY => score::<S, 8>(rows, keys, scores),
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

/// Sums of 16 elements of some rows: what they were times their factors, and the values as the scores say.
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

/// Makes scores into shares of what the largest so far has, zero for keys that a row does not see, and says what the sums until now count.
#[inline(always)]
fn shares(rows: &mut Rows, scores: &mut [[f32; LANES]], start: usize, window: Option<usize>, cap: Option<f32>) -> [f32; LANES] {
    if let Some(cap) = cap {
        for score in scores.as_flattened_mut() {
            *score = cap * tanh(*score / cap);
        }
    }
    // Keys from and to which each row sees.
    let to = rows.last.map(|last| (last + 1).saturating_sub(start).min(scores.len()) as u32);
    let from = rows.last.map(|last| window.map_or(0, |window| (last + 1).saturating_sub(window).saturating_sub(start)) as u32);
    if to.iter().any(|to| *to < scores.len() as u32) || from.iter().any(|from| *from > 0) {
        for (j, scores) in scores.iter_mut().enumerate() {
            let j = j as u32;
            for lane in 0..LANES {
                scores[lane] = if (j >= from[lane]) & (j < to[lane]) { scores[lane] } else { f32::NEG_INFINITY };
            }
        }
    }
    let mut most = rows.most;
    for scores in &*scores {
        for lane in 0..LANES {
            let (a, b) = (most[lane], scores[lane]);
            most[lane] = if (a >= b) | a.is_nan() { a } else { b };
        }
    }
    let mut factors = [0.0; LANES];
    let mut base = [0.0; LANES];
    for lane in 0..LANES {
        // Nothing seen yet: all shares become 0.
        base[lane] = if most[lane] == f32::NEG_INFINITY { 0.0 } else { most[lane] };
        factors[lane] = exp(rows.most[lane] - base[lane]);
    }
    rows.most = most;
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
