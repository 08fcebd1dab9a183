//! Quantized KV caches: what is appended, and attention over it.

use std::collections::BTreeSet;

use warpwave_kernels::{
    AttentionOptions, CacheCodes, CachePositions, CacheScales, CacheScalesMut, DType, KeyValues, Layout, Varlen, View, ViewMut, Window,
};

use crate::common::{Random, full, seed};
use crate::decode::allowed;
use crate::field::{Field, arranged, worst_of};
use crate::suite::{Suite, on_each_device};

const BOTH: [CacheCodes; 2] = [CacheCodes::Q8_0, CacheCodes::F8E4M3];

/// A quantized tensor of (blocks or sequences, keys, heads, head_dim).
struct Quantized {
    kind: CacheCodes,
    codes: Field,
    scales: Field,
}

/// Sizes with the last dimension replaced by the groups.
fn groups(kind: CacheCodes, shape: &[usize]) -> Vec<usize> {
    let (dim, outer) = shape.split_last().unwrap();
    let groups = if kind == CacheCodes::Q8_0 { dim.div_ceil(32) } else { 1 };
    [outer, &[groups]].concat()
}

impl Quantized {
    /// Random codes and scales; the values are mostly below 4. `aligned` if rows are to be read as vectors.
    fn random(suite: &Suite, kind: CacheCodes, shape: &[usize], aligned: bool, random: &mut Random) -> Quantized {
        let layout = match aligned {
            true => Layout::contiguous(shape).unwrap(),
            // Any strides but that of a head's elements.
            false => loop {
                let layout = arranged(shape, random);
                if layout.strides().last() == Some(&1) {
                    break layout;
                }
            },
        };
        let mut scales = Layout::contiguous(&groups(kind, shape)).unwrap();
        if !aligned {
            let strides: Vec<usize> = scales.strides().iter().map(|stride| if *stride == 1 { 1 } else { stride * 3 }).collect();
            scales = Layout::new(scales.shape(), &strides, 2).unwrap();
        }
        let unit = if kind == CacheCodes::Q8_0 { 1.0 / 64.0 } else { 1.0 };
        let code = |random: &mut Random| if kind == CacheCodes::Q8_0 { random.below(256) as f64 } else { random.unit() * 4.0 - 2.0 };
        let codes = Field::drawn(&suite.stream, kind.dtype(), layout, || code(random));
        let scales = Field::drawn(&suite.stream, DType::F16, scales, || (0.2 + random.unit()) * unit);
        Quantized { kind, codes, scales }
    }

    /// Codes times scales, in the order of the indices.
    fn decoded(kind: CacheCodes, dim: usize, codes: &[f64], scales: &[f64]) -> Vec<f64> {
        let per_head = if kind == CacheCodes::Q8_0 { dim.div_ceil(32) } else { 1 };
        let code = |code: f64| if kind == CacheCodes::Q8_0 && code >= 128.0 { code - 256.0 } else { code };
        let scale = |i: usize| scales[i / dim * per_head + if kind == CacheCodes::Q8_0 { i % dim / 32 } else { 0 }];
        codes.iter().enumerate().map(|(i, found)| code(*found) * scale(i)).collect()
    }

    fn values(&self) -> Vec<f64> {
        let dim = *self.codes.layout.shape().last().unwrap();
        Quantized::decoded(self.kind, dim, &self.codes.values(), &self.scales.values())
    }
}

/// What quantization may be off: half a step of a group's codes, and the rounding of its scale.
fn step(kind: CacheCodes, x: f64, largest: f64) -> f64 {
    match kind {
        // The scale is rounded to f16 after the codes are computed; below 2^-14 it loses bits.
        // The scale is computed in `f32`.
        CacheCodes::Q8_0 => largest * (0.5 / 127.0 + 2f64.powi(-11)) * (1.0 + 2f64.powi(-20)) + 127.0 * 2f64.powi(-25),
        CacheCodes::F8E4M3 => {
            let scale = (largest / 448.0).max(2f64.powi(-14)) * (1.0 + 2f64.powi(-11));
            (x.abs() * 2f64.powi(-4)).max(scale * 2f64.powi(-10)) * (1.0 + 2f64.powi(-10)) + (x.abs() - 448.0 * scale).max(0.0)
        }
    }
}

fn append(suite: &Suite, dtype: DType, kind: CacheCodes, random: &mut Random) -> f64 {
    let stream = &suite.stream;
    let (sequences, tokens, heads) = (1 + random.below(3), [1, 7][random.below(2)], 1 + random.below(4));
    let dim = [8, 32, 40, 128, 256][random.below(5)];
    let paged = random.below(2) == 0;
    let shape = [sequences, tokens, heads, dim];
    let room = if paged { [sequences + 3, 16, heads, dim] } else { [sequences, 20, heads, dim] };
    let what = format!("append of {dtype} to {kind:?}, {shape:?} into {room:?}, paged {paged}");
    // Groups of large, of small and of no values.
    let mut count = 0;
    let layouts = [0; 2].map(|_| arranged(&shape, random));
    let [keys, values] = layouts.map(|layout| {
        let mut size = 1.0;
        Field::drawn(stream, dtype, layout, || {
            count += 1;
            if count % 24 == 1 {
                size = [1.0, 100.0, 1e-3, 0.0, 1e-6][random.below(5)];
            }
            (random.unit() * 4.0 - 2.0) * size
        })
    });
    let [mut key_cache, mut value_cache] = [0; 2].map(|_| Quantized::random(suite, kind, &room, false, random));
    let starts = Field::drawn(stream, DType::I32, arranged(&[sequences], random), || random.below(22) as f64 - 1.0);
    let mut free: Vec<usize> = (0..room[0] * room[1]).collect();
    (0..free.len()).for_each(|i| free.swap(i, i + random.below(room[0] * room[1] - i)));
    let slots: Vec<f64> = (0..sequences * tokens).map(|i| if i % 5 == 3 { -1.0 } else { free[i] as f64 }).collect();
    let by_slot = Field::of(stream, DType::I32, arranged(&[sequences, tokens], random), &slots);
    let at = if paged { CachePositions::Slots(by_slot.view()) } else { CachePositions::Starts(starts.view()) };
    let place = |s: usize, t: usize| -> Option<usize> {
        if paged {
            return usize::try_from(slots[s * tokens + t] as i64).ok();
        }
        let position = starts.values()[s] as i64 + t as i64;
        usize::try_from(position).ok().filter(|position| *position < room[1]).map(|position| s * room[1] + position)
    };
    let mut scales = CacheScalesMut { codes: kind, keys: key_cache.scales.view_mut(), values: value_cache.scales.view_mut() };
    let caches = (&mut key_cache.codes.view_mut(), &mut value_cache.codes.view_mut());
    suite.kernels.append_quantized(stream, (&keys.view(), &values.view()), at, caches, &mut scales).unwrap();
    let mut worst: f64 = 0.0;
    for (source, cache) in [(keys, key_cache), (values, value_cache)] {
        let from = source.values();
        let (codes, scales) = (cache.codes.found(stream, &what), cache.scales.found(stream, &what));
        let (before, found) = (cache.values(), Quantized::decoded(kind, dim, &codes, &scales));
        let mut appended = BTreeSet::new();
        for (s, t) in (0..sequences).flat_map(|s| (0..tokens).map(move |t| (s, t))) {
            let Some(to) = place(s, t) else { continue };
            appended.insert(to);
            for h in 0..heads {
                let row = &from[((s * tokens + t) * heads + h) * dim..][..dim];
                for (e, x) in row.iter().enumerate() {
                    let group = if kind == CacheCodes::Q8_0 { &row[e / 32 * 32..dim.min(e / 32 * 32 + 32)] } else { row };
                    let largest = group.iter().fold(0.0f64, |most, x| most.max(x.abs()));
                    let found = found[(to * heads + h) * dim + e];
                    let share = (found - x).abs() / step(kind, *x, largest);
                    assert!(share <= 1.0, "{what}: element {e} is {found}, should be {x} of at most {largest}: {share}");
                    worst = worst.max(share);
                }
            }
        }
        for slot in (0..room[0] * room[1]).filter(|slot| !appended.contains(slot)) {
            let row = slot * heads * dim..(slot + 1) * heads * dim;
            assert_eq!(before[row.clone()], found[row], "{what}: slot {slot} was written");
        }
    }
    worst
}

/// Half a unit of the last place of 1: tiles of the matrix units have elements rounded to the type of the queries.
fn rounding(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2f64.powi(-11),
        DType::Bf16 => 2f64.powi(-8),
        _ => 2f64.powi(-22),
    }
}

fn attend(suite: &Suite, dtype: DType, kind: CacheCodes, decode: bool, random: &mut Random) -> f64 {
    let stream = &suite.stream;
    let dim = [16, 64, 72, 128, 256][random.below(5)];
    let (sequences, kv_heads, group) = (1 + random.below(3), 1 + random.below(2), [1, 3, 4, 8][random.below(4)]);
    let (heads, tokens) = (kv_heads * group, if decode { [1, 1, 3][random.below(3)] } else { [5, 70][random.below(2)] });
    let (paged, aligned) = (random.below(2) == 0, random.below(3) > 0);
    let most: usize = [if decode { 30 } else { 100 }, 300][random.below(2)];
    let block = if paged { [16, 16, 7][random.below(3)] } else { most };
    let blocks = most.div_ceil(block);
    let pool = if paged { sequences * blocks + 2 } else { sequences };
    let keys = blocks * block;
    let options = AttentionOptions {
        window: Window {
            left: (random.below(3) == 0).then(|| random.below(50)),
            right: [None, Some(0), Some(0), Some(random.below(20))][random.below(4)],
        },
        soft_cap: (random.below(3) == 0).then_some(3.0),
        ..AttentionOptions::new(1.0 / (dim as f32).sqrt())
    };
    let with_sinks = random.below(3) == 0;
    let what = format!(
        "attention of {dtype} over {kind:?}: {sequences} x {tokens} x {heads}/{kv_heads} x {dim}, {keys} keys, decode {decode}, paged {paged}, \
         aligned {aligned}, sinks {with_sinks}, {options:?}"
    );
    let shape = [sequences, tokens, heads, dim];
    let q = Field::random(stream, dtype, Layout::contiguous(&shape).unwrap(), random);
    let mut out = Field::random(stream, dtype, Layout::contiguous(&shape).unwrap(), random);
    let [k, v] = [0; 2].map(|_| Quantized::random(suite, kind, &[pool, block, kv_heads, dim], aligned, random));
    let mut order: Vec<f64> = (0..pool).map(|i| i as f64).collect();
    (0..pool).for_each(|i| order.swap(i, i + random.below(pool - i)));
    let table = Field::of(stream, DType::U32, Layout::contiguous(&[sequences, blocks]).unwrap(), &order[..sequences * blocks.min(pool)]);
    let lengths =
        Field::drawn(stream, DType::U32, Layout::contiguous(&[sequences]).unwrap(), || (tokens + random.below(keys)).min(keys) as f64);
    let sinks = Field::drawn(stream, DType::F32, Layout::contiguous(&[heads]).unwrap(), || random.unit() * 6.0 - 3.0);
    let options = AttentionOptions { sinks: with_sinks.then(|| sinks.view()), ..options };
    let starts: Vec<f64> = (0..=sequences).map(|s| (s * tokens) as f64).collect();
    let starts = Field::of(stream, DType::U32, Layout::contiguous(&[sequences + 1]).unwrap(), &starts);
    let kv = KeyValues { keys: k.codes.view(), values: v.codes.view(), table: paged.then(|| table.view()), lengths: Some(lengths.view()) };
    let scales = CacheScales { codes: kind, keys: k.scales.view(), values: v.scales.view() };
    let packed = Layout::contiguous(&[sequences * tokens, heads, dim]).unwrap();
    let done = if decode {
        suite.kernels.decode_attention_quantized(stream, &q.view(), &kv, &scales, &options, &mut out.view_mut())
    } else if random.below(2) == 0 {
        suite.kernels.attention_quantized(stream, &q.view(), &kv, &scales, &options, &mut out.view_mut(), None)
    } else {
        let varlen = Varlen { q_starts: starts.view(), max_q_len: tokens, kv_starts: None };
        let rows = View::of_bytes(&q.buffer, dtype, packed).unwrap();
        let mut result = ViewMut::of_bytes(&mut out.buffer, dtype, packed).unwrap();
        suite.kernels.attention_varlen_quantized(stream, &rows, &kv, &scales, &varlen, &options, &mut result, None)
    };
    done.unwrap_or_else(|error| panic!("{what}: {error}"));

    let (queries, k, v, table, lengths, sinks) = (q.values(), k.values(), v.values(), table.values(), lengths.values(), sinks.values());
    let mut wanted = Vec::new();
    for row in 0..sequences * tokens * heads {
        let (s, t, h) = (row / heads / tokens, row / heads % tokens, row % heads);
        let (len, own) = (lengths[s] as usize, lengths[s] as usize - tokens + t);
        let Window { left, right } = options.window;
        let first = left.map_or(0, |left| own.saturating_sub(left));
        let end = right.map_or(len, |right| len.min(own + right + 1));
        let (mut seen, mut off): (Vec<(f64, usize)>, f64) = (Vec::new(), 0.0);
        for key in first..end {
            let (block_of, within) = if paged { (table[s * blocks + key / block] as usize, key % block) } else { (s, key) };
            let at = ((block_of * block + within) * kv_heads + h / group) * dim;
            let products = || (0..dim).map(|e| queries[row * dim + e] * k[at + e] * f64::from(options.scale));
            let mut score: f64 = products().sum();
            off = off.max(products().map(f64::abs).sum::<f64>() * rounding(dtype));
            if let Some(cap) = options.soft_cap {
                score = f64::from(cap) * (score / f64::from(cap)).tanh();
            }
            seen.push((score, at));
        }
        let sink = if with_sinks { sinks[h] } else { f64::NEG_INFINITY };
        let largest = seen.iter().map(|(score, _)| *score).fold(sink, f64::max);
        let total: f64 = seen.iter().map(|(score, _)| (score - largest).exp()).sum::<f64>() + (sink - largest).exp();
        wanted.extend((0..dim).map(|e| {
            let terms = || seen.iter().map(|(score, at)| ((score - largest).exp() / total, v[at + e]));
            let size: f64 = terms().map(|(weight, value)| (weight * value).abs()).sum();
            let error = allowed(suite, dtype, terms()) + size * (2.0 * off + rounding(dtype));
            (terms().map(|(weight, value)| weight * value).sum(), error)
        }));
    }
    worst_of(dtype, &what, &out.found(stream, &what), wanted.into_iter())
}

#[test]
fn quantized_caches_agree_with_the_reference() {
    let seed = seed();
    let known = BTreeSet::from(["append, codes", "decode, codes", "prefill, codes"]);
    on_each_device(&known, |suite, table| {
        let random = &mut Random::new(seed);
        for (kind, dtype) in BOTH.into_iter().flat_map(|kind| [DType::F32, DType::F16, DType::Bf16].map(|dtype| (kind, dtype))) {
            for _ in 0..if full() { 20 } else { 3 } {
                table.note("append, codes", dtype, append(suite, dtype, kind, random));
            }
            for _ in 0..if full() { 12 } else { 2 } {
                table.note("decode, codes", dtype, attend(suite, dtype, kind, true, random));
                table.note("prefill, codes", dtype, attend(suite, dtype, kind, false, random));
            }
        }
    });
}

/// A group with a value that is not finite becomes NaN, and no other group does; values beyond f16's scales saturate.
#[test]
fn values_that_are_not_finite_stay_in_their_group() {
    on_each_device(&BTreeSet::from(["append, NaN"]), |suite, table| {
        let (stream, dim) = (&suite.stream, 64);
        for (kind, bad) in BOTH.into_iter().flat_map(|kind| [f64::NAN, f64::INFINITY, 1e30].map(|bad| (kind, bad))) {
            let values: Vec<f64> = (0..2 * dim).map(|i| if i == 3 { bad } else { 1.0 }).collect();
            let from = Field::of(stream, DType::F32, Layout::contiguous(&[1, 1, 2, dim]).unwrap(), &values);
            let random = &mut Random::new(1);
            let [mut k, mut v] = [0; 2].map(|_| Quantized::random(suite, kind, &[1, 1, 2, dim], true, random));
            let mut scales = CacheScalesMut { codes: kind, keys: k.scales.view_mut(), values: v.scales.view_mut() };
            let caches = (&mut k.codes.view_mut(), &mut v.codes.view_mut());
            let inputs = (&from.view(), &from.view());
            suite.kernels.append_quantized(stream, inputs, CachePositions::Start(0), caches, &mut scales).unwrap();
            let found = Quantized::decoded(kind, dim, &k.codes.found(stream, "codes"), &k.scales.found(stream, "scales"));
            let group = if kind == CacheCodes::Q8_0 { 32 } else { dim };
            for (i, found) in found.iter().enumerate() {
                match (i < group, bad == 1e30) {
                    (true, false) => assert!(found.is_nan(), "{kind:?} {bad}: element {i} is {found}"),
                    (true, true) => assert!(if i == 3 { *found > 1e6 } else { found.abs() <= 1.0 }, "{kind:?}: element {i} is {found}"),
                    (false, _) => assert!((found - 1.0).abs() < 0.01, "{kind:?} {bad}: element {i} is {found}"),
                }
            }
            table.note("append, NaN", DType::F32, 0.0);
        }
    });
}

/// Attention over quantized caches has no tree masks and no larger heads: both are errors.
#[test]
fn what_quantized_caches_do_not_support_is_an_error() {
    on_each_device(&BTreeSet::from(["codes, errors"]), |suite, table| {
        let stream = &suite.stream;
        for (dim, with_tree, reason) in [(64, true, "a tree mask cannot be combined"), (264, false, "head_dim 264 exceeds the limit")] {
            let random = &mut Random::new(1);
            let shape = [1, 2, 1, dim];
            let [k, v] = [0; 2].map(|_| Quantized::random(suite, CacheCodes::Q8_0, &shape, true, random));
            let q = Field::random(stream, DType::F32, Layout::contiguous(&shape).unwrap(), random);
            let mut out = Field::random(stream, DType::F32, Layout::contiguous(&shape).unwrap(), random);
            let words = Field::of(stream, DType::I64, Layout::contiguous(&[1, 2]).unwrap(), &[1.0, 3.0]);
            let options = AttentionOptions { tree: with_tree.then(|| words.view()), ..AttentionOptions::causal(1.0) };
            let kv = KeyValues { keys: k.codes.view(), values: v.codes.view(), table: None, lengths: None };
            let scales = CacheScales { codes: CacheCodes::Q8_0, keys: k.scales.view(), values: v.scales.view() };
            let mut out = out.view_mut();
            let decode = suite.kernels.decode_attention_quantized(stream, &q.view(), &kv, &scales, &options, &mut out);
            let prefill = suite.kernels.attention_quantized(stream, &q.view(), &kv, &scales, &options, &mut out, None);
            for result in [decode, prefill] {
                let error = result.unwrap_err().to_string();
                assert!(error.contains(reason), "{error}");
            }
        }
        table.note("codes, errors", DType::F32, 0.0);
    });
}
