//! Attention of few queries to many keys.

use std::collections::BTreeSet;

use warpwave_kernels::{AttentionOptions, DType, KeyValues, Layout, Window};

use crate::common::{Random, full, seed};
use crate::field::{Field, arranged, worst_of};
use crate::suite::{Suite, on_each_device};

/// What the computation may be off, of a mean of numbers of size 1: with matrix units weights are rounded to the type.
fn computed(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2f64.powi(-10),
        DType::Bf16 => 2f64.powi(-7),
        _ => 2f64.powi(-18),
    }
}

/// What a sum of values with weights may be off. The matrix units of gfx90a take what is below `f16`'s normal numbers for zero.
pub fn allowed(suite: &Suite, dtype: DType, terms: impl Iterator<Item = (f64, f64)>) -> f64 {
    let zeros = dtype == DType::F16 && suite.stream.device().info().arch.base().to_string() == "gfx90a";
    let of = |value: f64| if zeros && value.abs() < 2f64.powi(-14) { 1.0 } else { computed(dtype) };
    terms.map(|(weight, value)| (weight * value).abs() * of(value)).sum()
}

/// With `parts` several blocks share the keys.
fn case(suite: &Suite, dtype: DType, dim: usize, plain: bool, parts: bool, random: &mut Random) -> f64 {
    let stream = &suite.stream;
    let (mut sequences, mut tokens, mut kv_heads) = (1 + random.below(3), [1, 1, 3, 16][random.below(4)], 1 + random.below(2));
    if parts {
        (sequences, tokens, kv_heads) = (1, 1, 1);
    }
    let group = [1, 3, 4, 8][random.below(4)];
    let heads = kv_heads * group;
    // More parts than a thread of those who put them together takes at a time.
    let most: usize = if parts { [1000, 4200][random.below(2)] } else { [1, 30, 300][random.below(3)] };
    let paged = random.below(2) == 0;
    let block_keys = if plain { 1 + random.below(20) } else { 16 * (1 + random.below(2)) };
    let blocks = if paged { most.div_ceil(block_keys) } else { 1 };
    let keys = if paged { blocks * block_keys } else { most };

    let options = AttentionOptions {
        scale: 1.0 / (dim as f32).sqrt(),
        window: Window {
            left: (random.below(3) == 0).then(|| random.below(50)),
            right: [None, Some(0), Some(0), Some(random.below(20))][random.below(4)],
        },
        soft_cap: (random.below(3) == 0).then_some(1.5),
        ..AttentionOptions::new(0.0)
    };
    let (with_sinks, with_tree) = (random.below(3) == 0, random.below(3) == 0);
    let what = format!(
        "decode of {dtype}: {sequences} × {tokens} × {heads}/{kv_heads} × {dim}, {keys} keys, paged {paged}, {options:?}, plain {plain}, sinks {with_sinks}, tree {with_tree}"
    );
    let shape = [sequences, tokens, heads, dim];
    let q = Field::random(stream, dtype, arranged(&shape, random), random);
    let to = if random.below(3) == 0 { DType::F32 } else { dtype };
    let mut out = Field::random(stream, to, arranged(&shape, random), random);
    let pool = if paged { sequences * blocks + 2 } else { sequences };
    let kv_shape = [pool, if paged { block_keys } else { keys }, kv_heads, dim];
    let kv_layout = |random: &mut Random| match (plain, random.below(2)) {
        (false, 0) => Layout::contiguous(&kv_shape).unwrap(),
        (false, _) => {
            let gap = dim.next_multiple_of(8) + 8;
            Layout::new(&kv_shape, &[gap * kv_shape[1] * kv_heads, gap, gap * kv_shape[1], 1], 8).unwrap()
        }
        (true, _) => arranged(&kv_shape, random),
    };
    let [k, v] = [0; 2].map(|_| Field::random(stream, dtype, kv_layout(random), random));
    let mut order: Vec<f64> = (0..pool).map(|i| i as f64).collect();
    (0..pool).for_each(|i| order.swap(i, i + random.below(pool - i)));
    // One block is nowhere: its keys are not there.
    if random.below(3) == 0 {
        order[0] = if random.below(2) == 0 { -1.0 } else { pool as f64 };
    }
    let table = Field::of(stream, DType::I32, arranged(&[sequences, blocks], random), &order[..sequences * blocks.min(pool)]);
    let lengths = Field::drawn(stream, DType::I32, arranged(&[sequences], random), || random.below(keys + 3) as f64 - 1.0);
    let slope_shape = if random.below(2) == 0 { vec![heads] } else { vec![sequences, heads] };
    let slopes = Field::drawn(stream, DType::F32, arranged(&slope_shape, random), || random.unit() * 0.2);
    let sinks = Field::drawn(stream, DType::F32, arranged(&[heads], random), || random.unit() * 6.0 - 3.0);
    // Drafts of up to 50: numbers in f64 have no more bits.
    let words = Field::drawn(stream, DType::I64, arranged(&[sequences, tokens], random), || random.below(1 << 50) as f64);
    let (given, sloped) = (random.below(3) > 0, random.below(3) == 0);
    let kv = KeyValues { keys: k.view(), values: v.view(), table: paged.then(|| table.view()), lengths: given.then(|| lengths.view()) };
    let options = AttentionOptions {
        alibi: sloped.then(|| slopes.view()),
        sinks: with_sinks.then(|| sinks.view()),
        tree: with_tree.then(|| words.view()),
        ..options
    };
    suite.kernels.decode_attention(stream, &q.view(), &kv, &options, &mut out.view_mut()).unwrap_or_else(|error| panic!("{what}: {error}"));

    let (queries, k, v, table, lengths, slopes) = (q.values(), k.values(), v.values(), table.values(), lengths.values(), slopes.values());
    let (sinks, words) = (sinks.values(), words.values());
    let mut wanted = Vec::new();
    for row in 0..sequences * tokens * heads {
        let (s, t, h) = (row / heads / tokens, row / heads % tokens, row % heads);
        let len = if given { (lengths[s].max(0.0) as usize).min(keys) } else { keys };
        let len = len as i64;
        let place = len - tokens as i64 + t as i64;
        let mut seen = Vec::new();
        for key in 0..len {
            let draft = key - (len - tokens as i64);
            let hidden = match with_tree && draft >= 0 {
                true => words[s * tokens + t] as i64 >> draft & 1 == 0,
                false => {
                    let Window { left, right } = options.window;
                    left.is_some_and(|left| place - key > left as i64) || right.is_some_and(|right| key - place > right as i64)
                }
            };
            let (block, within) = match paged {
                true => (table[s * blocks + key as usize / block_keys], key as usize % block_keys),
                false => (s as f64, key as usize),
            };
            if hidden || block < 0.0 || block >= pool as f64 {
                continue;
            }
            let at = ((block as usize * kv_shape[1] + within) * kv_heads + h / group) * dim;
            let mut score: f64 = (0..dim).map(|e| queries[row * dim + e] * k[at + e]).sum::<f64>() * f64::from(options.scale);
            if let Some(cap) = options.soft_cap {
                score = f64::from(cap) * (score / f64::from(cap)).tanh();
            }
            if sloped {
                score -= slopes[(s * heads + h) % slopes.len()] * (place - key).abs() as f64;
            }
            seen.push((score, at));
        }
        let sink = if with_sinks { sinks[h] } else { f64::NEG_INFINITY };
        let largest = seen.iter().map(|(score, _)| *score).fold(sink, f64::max);
        let powers: f64 = seen.iter().map(|(score, _)| (score - largest).exp()).sum();
        let total = powers + if with_sinks { (sink - largest).exp() } else { 0.0 };
        wanted.extend((0..dim).map(|e| {
            let terms = || seen.iter().map(|(score, at)| ((score - largest).exp() / total, v[at + e]));
            (terms().map(|(weight, value)| weight * value).sum(), allowed(suite, dtype, terms()))
        }));
    }
    worst_of(to, &what, &out.found(stream, &what), wanted.into_iter())
}

#[test]
fn decode_attention_agrees_with_the_reference() {
    let seed = seed();
    let known = BTreeSet::from(["decode, tiles", "decode, plain", "decode, parts"]);
    on_each_device(&known, |suite, table| {
        let random = &mut Random::new(seed);
        let cases = if full() { 40 } else { 4 };
        let some = |random: &mut Random, dims: &[usize]| if full() { dims.to_vec() } else { vec![dims[random.below(dims.len())]] };
        for dtype in [DType::F16, DType::Bf16] {
            for dim in some(random, &[16, 32, 64, 80, 128, 256, 512]) {
                (0..cases).for_each(|_| table.note("decode, tiles", dtype, case(suite, dtype, dim, false, false, random)));
            }
        }
        for (dtype, plain) in [(DType::F32, true), (DType::Bf16, false)] {
            (0..if full() { 10 } else { 1 }).for_each(|_| table.note("decode, parts", dtype, case(suite, dtype, 256, plain, true, random)));
        }
        for dtype in [DType::F32, [DType::F16, DType::Bf16][random.below(2)]] {
            for dim in some(random, &[8, 16, 32, 64, 72, 128, 256, 33, 264, 320, 512]) {
                (0..cases).for_each(|_| table.note("decode, plain", dtype, case(suite, dtype, dim, true, false, random)));
            }
        }
    });
}
