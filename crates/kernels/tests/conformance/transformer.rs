//! Rotary embedding, cache append, gated units, and attention in its parts.

use std::collections::BTreeSet;

use warpwave_kernels::{CachePositions, DType, Glu, Layout, Positions, Rope, RopeAngles, RopePairs, RopeScaling, Unary};

use crate::common::values::{Value, round};
use crate::common::{Random, full, seed};
use crate::elementwise::reference::{Op, reference};
use crate::field::{Field, arranged, worst_of};
use crate::suite::{Suite, on_each_device, share};

const FLOATS: [DType; 4] = [DType::F32, DType::F16, DType::Bf16, DType::F64];
const COUNTS: [DType; 3] = [DType::I32, DType::U32, DType::I64];

/// What the computation itself may be off, of numbers of size 1.
fn computed(dtype: DType) -> f64 {
    if dtype == DType::F64 { 2e-15 } else { 6e-7 }
}

fn rope(suite: &Suite, dtype: DType, table: bool, random: &mut Random) -> f64 {
    let stream = &suite.stream;
    let tokens = [0, 1, 5, 9][random.below(4)];
    let (sequences, heads) = (1 + random.below(3), 1 + random.below(9));
    let dim = [2, 16, 24, 64, 128, 7][random.below(6)];
    let pairs = if random.below(3) == 0 { 1 + random.below(dim / 2) } else { dim / 2 };
    let shape = [sequences, tokens, heads, dim];
    let kind = if random.below(2) == 0 { RopePairs::Interleaved } else { RopePairs::Halves };
    let what = format!("rope of {dtype} {shape:?}, {pairs} pairs, {kind:?}, table {table}");

    // Angles are right up to places of 2²⁴; tables end before.
    let most: usize = if table || random.below(2) == 0 { 1000 } else { 1 << 24 };
    let start = random.below(most - 20);
    let count = COUNTS[random.below(3)];
    let given = random.below(3);
    let places_shape: &[usize] = if given == 1 { &[sequences, tokens] } else { &[tokens] };
    let places = Field::drawn(stream, count, arranged(places_shape, random), || random.below(most) as f64);
    let place = |s: usize, t: usize| match given {
        0 => (start + t) as f64,
        1 => places.values()[s * tokens + t],
        _ => places.values()[t],
    };
    let (frequencies, factor) =
        RopeScaling::Yarn { factor: 4.0, fast: 32.0, slow: 1.0, original: 512, truncate: true }.frequencies(2 * pairs, 10000.0);
    let numbers: Vec<f64> = frequencies.iter().map(|x| f64::from(*x)).collect();
    let frequencies = Field::of(stream, DType::F32, arranged(&[pairs], random), &numbers);
    let table_type = if random.below(2) == 0 { DType::F32 } else { dtype };
    let angle = |place: f64, pair: usize| (place * numbers[pair]).sin_cos();
    let all: Vec<(f64, f64)> = if table {
        (0..most).flat_map(|place| (0..pairs).map(move |pair| (place, pair))).map(|(p, i)| angle(p as f64, i)).collect()
    } else {
        vec![]
    };
    let table_shape = Layout::contiguous(&[all.len() / pairs, pairs]).unwrap();
    let cos = Field::of(stream, table_type, table_shape, &all.iter().map(|x| x.1).collect::<Vec<_>>());
    let sin = Field::of(stream, table_type, table_shape, &all.iter().map(|x| x.0).collect::<Vec<_>>());
    let (cosines, sines) = (cos.values(), sin.values());
    let turn = |place: f64, pair: usize| match table {
        true => (sines[place as usize * pairs + pair], cosines[place as usize * pairs + pair]),
        false => {
            let (sin, cos) = angle(place, pair);
            (sin * factor, cos * factor)
        }
    };
    let angles = match table {
        true => RopeAngles::Tables { cos: cos.view(), sin: sin.view() },
        false => RopeAngles::Frequencies { frequencies: frequencies.view(), factor },
    };
    let rope = Rope { pairs: kind, angles, positions: if given == 0 { Positions::From(start) } else { Positions::Ids(places.view()) } };

    let mut x = Field::random(stream, dtype, arranged(&shape, random), random);
    let values = x.values();
    let mut wanted = Vec::new();
    for (row, head) in values.chunks(dim).enumerate() {
        let (s, t) = (row / (tokens * heads), row / heads % tokens);
        wanted.extend(rotated(dtype, head, kind, pairs, |pair| turn(place(s, t), pair)));
    }
    if random.below(2) == 0 {
        suite.kernels.rope_in_place(stream, &rope, &mut x.view_mut()).unwrap();
        return worst_of(dtype, &what, &x.found(stream, &what), wanted.into_iter());
    }
    let mut out = Field::random(stream, dtype, arranged(&shape, random), random);
    suite.kernels.rope(stream, &rope, &x.view(), &mut out.view_mut()).unwrap();
    worst_of(dtype, &what, &out.found(stream, &what), wanted.into_iter())
}

/// A head whose pairs are rotated by angles of these sines and cosines, and how much it may be off.
fn rotated(dtype: DType, head: &[f64], kind: RopePairs, pairs: usize, angle: impl Fn(usize) -> (f64, f64)) -> Vec<(f64, f64)> {
    let turn = |i: usize| {
        if i >= 2 * pairs {
            return (head[i], 0.0);
        }
        let (pair, second) = if kind == RopePairs::Interleaved { (i / 2, i % 2 == 1) } else { (i % pairs, i >= pairs) };
        let [a, b] = if kind == RopePairs::Interleaved { [2 * pair, 2 * pair + 1] } else { [pair, pair + pairs] }.map(|i| head[i]);
        let (sin, cos) = angle(pair);
        let error = (a.abs() + b.abs()) * computed(dtype);
        (if second { a * sin + b * cos } else { a * cos - b * sin }, error)
    };
    (0..head.len()).map(turn).collect()
}

fn rope_append(suite: &Suite, dtype: DType, to: DType, random: &mut Random) -> f64 {
    let stream = &suite.stream;
    let (sequences, tokens) = (1 + random.below(3), [0, 1, 1, 9][random.below(4)]);
    let (heads, kv_heads) = (1 + random.below(9), 1 + random.below(4));
    let dim = [2, 16, 24, 64, 128, 7][random.below(6)];
    let pairs = if random.below(3) == 0 { 1 + random.below(dim / 2) } else { dim / 2 };
    let kind = if random.below(2) == 0 { RopePairs::Interleaved } else { RopePairs::Halves };
    let what = format!("rope_append of {dtype} to {to}, {sequences}x{tokens}, {heads}/{kv_heads} heads of {dim}, {pairs} pairs, {kind:?}");
    let [q_shape, kv_shape] = [heads, kv_heads].map(|heads| [sequences, tokens, heads, dim]);
    let room = [sequences * tokens + 2, [4, 16][random.below(2)], kv_heads, dim];
    let queries = Field::random(stream, dtype, arranged(&q_shape, random), random);
    let [keys, values] = [0; 2].map(|_| Field::random(stream, dtype, arranged(&kv_shape, random), random));
    let mut out = Field::random(stream, to, arranged(&q_shape, random), random);
    let [mut key_cache, mut value_cache] = [0; 2].map(|_| Field::random(stream, to, arranged(&room, random), random));
    let count = COUNTS[random.below(3)];
    let each_has = random.below(2) == 0;
    let places_shape: &[usize] = if each_has { &[sequences, tokens] } else { &[tokens] };
    let places = Field::drawn(stream, count, arranged(places_shape, random), || random.below(1000) as f64);
    // Every third token is nowhere; the others lie apart.
    let nowhere = [-1.0, 1e9][usize::from(count == DType::U32)];
    let slot = |i: usize| if i % 3 == 2 { nowhere } else { (i * room[1] + i % room[1]) as f64 };
    let numbers: Vec<f64> = (0..sequences * tokens).map(slot).collect();
    let slots = Field::of(stream, count, arranged(&[sequences, tokens], random), &numbers);
    let (frequencies, factor) =
        RopeScaling::Yarn { factor: 4.0, fast: 32.0, slow: 1.0, original: 512, truncate: true }.frequencies(2 * pairs, 10000.0);
    let each: Vec<f64> = frequencies.iter().map(|x| f64::from(*x)).collect();
    let frequencies = Field::of(stream, DType::F32, arranged(&[pairs], random), &each);
    let angles = RopeAngles::Frequencies { frequencies: frequencies.view(), factor };
    let rope = Rope { pairs: kind, angles, positions: Positions::Ids(places.view()) };
    let caches = (&mut key_cache.view_mut(), &mut value_cache.view_mut());
    let inputs = [&queries.view(), &keys.view(), &values.view()];
    suite.kernels.rope_append(stream, &rope, inputs, &slots.view(), &mut out.view_mut(), caches).unwrap();

    let angle = |token: usize, pair: usize| {
        let (sin, cos) = (places.values()[if each_has { token } else { token % tokens }] * each[pair]).sin_cos();
        (sin * factor, cos * factor)
    };
    let turn = |x: &Field, heads: usize| -> Vec<(f64, f64)> {
        let values = x.values();
        let of = |(row, head): (usize, &[f64])| rotated(dtype, head, kind, pairs, |pair| angle(row / heads, pair));
        values.chunks(dim).enumerate().flat_map(of).collect()
    };
    let mut worst = worst_of(to, &what, &out.found(stream, &what), turn(&queries, heads).into_iter());
    let moved: Vec<(f64, f64)> = values.values().iter().map(|x| (*x, 0.0)).collect();
    for (cache, new) in [(key_cache, turn(&keys, kv_heads)), (value_cache, moved)] {
        // What is not written stays.
        let mut wanted: Vec<(f64, f64)> = cache.values().iter().map(|x| (*x, 0.0)).collect();
        for (slot, row) in numbers.iter().zip(new.chunks(kv_heads * dim)).filter(|(slot, _)| **slot != nowhere) {
            wanted[*slot as usize * kv_heads * dim..][..kv_heads * dim].copy_from_slice(row);
        }
        worst = worst.max(worst_of(to, &what, &cache.found(stream, &what), wanted.into_iter()));
    }
    worst
}

fn append(suite: &Suite, dtype: DType, to: DType, slots: bool, random: &mut Random) -> f64 {
    let stream = &suite.stream;
    let (sequences, tokens, heads) = (1 + random.below(3), [0, 1, 7][random.below(3)], 1 + random.below(4));
    let dim = [1, 16, 40, 128][random.below(4)];
    let shape = [sequences, tokens, heads, dim];
    let kind = if slots { 3 } else { random.below(3) };
    let (block_keys, table_blocks) = ([4, 16][random.below(2)], 4);
    let room = if kind >= 2 { [sequences * table_blocks + 2, block_keys, heads, dim] } else { [sequences, 20, heads, dim] };
    let what = format!("append of {dtype} to {to}, {shape:?} into {room:?}, way {kind}");
    let [keys, values] = [0; 2].map(|_| Field::random(stream, dtype, arranged(&shape, random), random));
    let [mut key_cache, mut value_cache] = [0; 2].map(|_| Field::random(stream, to, arranged(&room, random), random));
    let count = COUNTS[random.below(3)];
    let start = random.below(14);
    // Some do not fit, and are left out.
    let starts = Field::drawn(stream, count, arranged(&[sequences], random), || random.below(18) as f64);
    let mut free: Vec<usize> = (0..room[0] * block_keys).collect();
    (0..free.len()).for_each(|i| free.swap(i, i + random.below(room[0] * block_keys - i)));
    let out_of_range = [-1.0, 1e9][usize::from(count == DType::U32)];
    let numbers: Vec<f64> = (0..sequences * tokens)
        .map(|i| if i % 5 == 3 { out_of_range } else { free.get(i).map_or(out_of_range, |slot| *slot as f64) })
        .collect();
    let by_slot = Field::of(stream, count, arranged(&[sequences, tokens], random), &numbers);
    let blocks: Vec<f64> = (0..sequences * table_blocks).rev().map(|i| if i == 1 { 1e6 } else { i as f64 }).collect();
    let table = Field::of(stream, DType::I32, arranged(&[sequences, table_blocks], random), &blocks);
    let at = match kind {
        0 => CachePositions::Start(start.min(13)),
        1 => CachePositions::Starts(starts.view()),
        2 => CachePositions::Paged { starts: starts.view(), table: table.view() },
        _ => CachePositions::Slots(by_slot.view()),
    };
    let place = |s: usize, t: usize| -> Option<usize> {
        let (block, within) = match kind {
            0 => (s, start.min(13) + t),
            1 => (s, starts.values()[s] as usize + t),
            2 => {
                let place = starts.values()[s] as usize + t;
                (
                    *blocks.get(s * table_blocks + place / block_keys).filter(|_| place / block_keys < table_blocks)? as usize,
                    place % block_keys,
                )
            }
            _ => (usize::try_from(numbers[s * tokens + t] as i64).ok()? / block_keys, numbers[s * tokens + t] as usize % block_keys),
        };
        (block < room[0] && within < room[1]).then_some((block * room[1] + within) * heads * dim)
    };
    let caches = (&mut key_cache.view_mut(), &mut value_cache.view_mut());
    suite.kernels.append(stream, (&keys.view(), &values.view()), at, caches).unwrap();
    for (source, cache) in [(keys, key_cache), (values, value_cache)] {
        let (from, mut wanted) = (source.values(), cache.values());
        for s in 0..sequences {
            for t in 0..tokens {
                let Some(place) = place(s, t) else { continue };
                let row = &from[(s * tokens + t) * heads * dim..][..heads * dim];
                wanted[place..][..heads * dim].iter_mut().zip(row).for_each(|(to_value, value)| *to_value = round(to, *value));
            }
        }
        assert!(cache.found(stream, &what) == wanted, "{what}");
    }
    0.0
}

fn glu(suite: &Suite, op: Glu, dtype: DType, to: DType, random: &mut Random) -> f64 {
    let stream = &suite.stream;
    let shape = [1 + random.below(20), [1, 64, 33, 0][random.below(4)]];
    let what = format!("{} of {dtype} to {to}, {shape:?}", op.name());
    let f = |x: f64| match op {
        Glu::Silu => (Unary::Silu, x),
        Glu::Gelu => (Unary::Gelu, x),
        Glu::GeluErf => (Unary::GeluErf, x),
        Glu::Relu => (Unary::Relu, x),
        Glu::Sigmoid => (Unary::Sigmoid, x),
        Glu::Clamped => (Unary::Sigmoid, 1.702 * x.min(7.0)),
        _ => unreachable!("{op:?} has no reference"),
    };
    let mut out = Field::random(stream, to, arranged(&shape, random), random);
    let draw = |random: &mut Random| random.unit() * 12.0 - 6.0;
    let (gates, ups);
    if random.below(2) == 0 {
        let x = Field::drawn(stream, dtype, arranged(&[shape[0], 2 * shape[1]], random), || draw(random));
        suite.kernels.glu_halves(stream, op, &x.view(), &mut out.view_mut()).unwrap();
        let values = x.values();
        let half =
            |start: usize| (0..shape[0]).flat_map(|row| values[row * 2 * shape[1] + start..][..shape[1]].to_vec()).collect::<Vec<_>>();
        (gates, ups) = (half(0), half(shape[1]));
    } else {
        let [gate, up] = [0; 2].map(|_| Field::drawn(stream, dtype, arranged(&shape, random), || draw(random)));
        suite.kernels.glu(stream, op, &gate.view(), &up.view(), &mut out.view_mut()).unwrap();
        (gates, ups) = (gate.values(), up.values());
    }
    let mut worst: f64 = 0.0;
    for (i, found) in out.found(stream, &what).into_iter().enumerate() {
        let (unary, x) = f(gates[i]);
        // Of types of 16 bits the error function alone has the digits that they keep.
        let exact = dtype != DType::F64 && op != Glu::GeluErf;
        let (value, ulps) = reference(Op::Unary(unary), if exact { DType::F32 } else { dtype }, &[Value::Real(x)]);
        // Of the product that the sigmoid is taken of, rounding counts ten times.
        let (wanted, more) = match op {
            Glu::Clamped => (value.real() * gates[i].min(7.0) * (ups[i].clamp(-7.0, 7.0) + 1.0), 10.0),
            _ => (value.real() * ups[i], 2.0),
        };
        let share = share(to, Value::Real(found), Value::Real(wanted), Some(ulps.unwrap_or(0.5) + more));
        assert!(share <= 1.0, "{what}: element {i} is {found}, should be {wanted}: {share} of the tolerance");
        worst = worst.max(share);
    }
    worst
}

fn parts(suite: &Suite, weighted: bool, dtype: DType, random: &mut Random) -> f64 {
    let stream = &suite.stream;
    let (sequences, queries, kv_heads, group) = (1 + random.below(2), 1 + random.below(4), 1 + random.below(3), 1 + random.below(3));
    let (keys, dim, heads) = ([0, 1, 9][random.below(3)], [1, 16, 33][random.below(3)], kv_heads * group);
    let (queries, keys, dim) = if suite.fills() && random.below(4) == 0 { (150, 200, 128) } else { (queries, keys, dim) };
    let what = format!("weighted {weighted} of {dtype}, {queries} queries, {keys} keys, {heads} heads, {dim} elements");
    let kv = Field::random(stream, dtype, arranged(&[sequences, keys, kv_heads, dim], random), random);
    let kv_at = |s: usize, k: usize, h: usize, e: usize| ((s * keys + k) * kv_heads + h / group) * dim + e;
    let (scores, tokens) = ([sequences, heads, queries, keys], [sequences, queries, heads, dim]);
    let first = Field::random(stream, dtype, arranged(if weighted { &scores } else { &tokens }, random), random);
    let mut out = Field::random(stream, dtype, arranged(if weighted { &tokens } else { &scores }, random), random);
    let mask_type = if random.below(3) == 0 { dtype } else { DType::F32 };
    let mask = Field::random(stream, mask_type, arranged(&[queries, keys], random), random);
    let masked = random.below(2) == 0;
    if weighted {
        suite.kernels.weighted_sum(stream, &first.view(), &kv.view(), &mut out.view_mut()).unwrap();
    } else {
        let mask = masked.then(|| mask.view());
        suite.kernels.attention_scores(stream, (&first.view(), &kv.view()), 0.3, mask.as_ref(), &mut out.view_mut()).unwrap();
    }
    let (a, b, mask) = (first.values(), kv.values(), mask.values());
    let factor = if dtype == DType::F64 { 0.3 } else { f64::from(0.3f32) };
    let shape = if weighted { tokens } else { scores };
    let wanted = (0..shape.iter().product()).map(|i: usize| {
        let (e, z, y, s) = (i % shape[3], i / shape[3] % shape[2], i / shape[3] / shape[2] % shape[1], i / shape[3] / shape[2] / shape[1]);
        let pairs: Vec<[f64; 2]> = match weighted {
            true => (0..keys).map(|k| [a[((s * heads + z) * queries + y) * keys + k], b[kv_at(s, k, z, e)]]).collect(),
            false => (0..dim).map(|d| [a[((s * queries + z) * heads + y) * dim + d] * factor, b[kv_at(s, e, y, d)]]).collect(),
        };
        let more = if !weighted && masked { mask[z * keys + e] } else { 0.0 };
        let size = pairs.iter().map(|[a, b]| (a * b).abs()).sum::<f64>() + more.abs();
        // The matrix units of gfx90a take what is below `f16`'s normal numbers for zero.
        let tiny = |[a, b]: &&[f64; 2]| a.abs().min(b.abs()) < 2f64.powi(-14);
        let tiny: f64 = if dtype == DType::F16 { pairs.iter().filter(tiny).map(|[a, b]| (a * b).abs()).sum() } else { 0.0 };
        let sums = computed(dtype) * (1.0 + (pairs.len() as f64).sqrt() / 2.0);
        (pairs.iter().map(|[a, b]| a * b).sum::<f64>() + more, size * sums + tiny)
    });
    worst_of(dtype, &what, &out.found(stream, &what), wanted)
}

#[test]
fn every_operation_agrees_with_the_reference() {
    let seed = seed();
    let known: BTreeSet<&str> = Glu::ALL
        .into_iter()
        .map(Glu::name)
        .chain(["rope", "rope_table", "rope_append", "append", "append_slots", "scores", "weighted_sum"])
        .collect();
    on_each_device(&known, |suite, table| {
        let random = &mut Random::new(seed);
        // Nearly all the time of a run goes into compiling: several cases of few types.
        let types =
            |random: &mut Random, some: usize| if full() { FLOATS.to_vec() } else { (0..some).map(|_| FLOATS[random.below(4)]).collect() };
        let cases = if full() { 24 } else { 3 };
        for tables in [false, true] {
            for dtype in types(random, 2) {
                (0..cases).for_each(|_| table.note(if tables { "rope_table" } else { "rope" }, dtype, rope(suite, dtype, tables, random)));
            }
        }
        for dtype in types(random, 2).into_iter().filter(|dtype| *dtype != DType::F64).chain([DType::F32]) {
            for to in if full() { FLOATS[..3].to_vec() } else { vec![FLOATS[random.below(3)]] } {
                (0..if full() { cases } else { 2 * cases })
                    .for_each(|_| table.note("rope_append", dtype, rope_append(suite, dtype, to, random)));
            }
        }
        for slots in [false, true] {
            for dtype in types(random, 1) {
                let narrow = [DType::F8E4M3, DType::F8E5M2];
                let some = vec![FLOATS[random.below(4)], narrow[random.below(2)]];
                for to in if full() { [&FLOATS[..], &narrow].concat() } else { some } {
                    (0..cases.min(12)).for_each(|_| {
                        table.note(if slots { "append_slots" } else { "append" }, dtype, append(suite, dtype, to, slots, random))
                    });
                }
            }
        }
        for op in Glu::ALL {
            let same = types(random, 1).into_iter().map(|dtype| (dtype, dtype));
            let narrowed = [DType::F16, DType::Bf16].map(|to| (DType::F32, to));
            for (dtype, to) in same.chain(narrowed.into_iter().filter(|_| full() || op == Glu::Silu)) {
                (0..cases).for_each(|_| table.note(op.name(), to, glu(suite, op, dtype, to, random)));
            }
        }
        for weighted in [false, true] {
            for dtype in types(random, 1) {
                (0..cases).for_each(|_| {
                    table.note(if weighted { "weighted_sum" } else { "scores" }, dtype, parts(suite, weighted, dtype, random))
                });
            }
        }
    });
}
