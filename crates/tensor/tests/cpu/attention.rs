//! Attention over a paged KV cache against an `f64` reference.

use crate::common::{Random, everywhere};
use half::{bf16, f16};
use warpwave_kernels::Window;
use warpwave_tensor::cpu::{AttentionExtras, Cache, CacheMut, Heads, Sequence, append, attention, attention_with};

struct Case {
    heads: Heads,
    sinks: bool,
    tree: bool,
    /// Keys and queries of each sequence.
    sequences: Vec<[usize; 2]>,
}

fn plain(heads: usize, kv_heads: usize, dim: usize) -> Heads {
    Heads { heads, kv_heads, dim, block: 16, scale: 0.3, window: Window::CAUSAL, soft_cap: None }
}

fn cases() -> Vec<Case> {
    let within = |left, right| Window { left: Some(left), right: Some(right) };
    let case = |heads, sequences| Case { heads, sinks: false, tree: false, sequences };
    vec![
        case(plain(1, 1, 8), vec![[1, 1]]),
        case(plain(9, 3, 64), vec![[70, 1], [16, 1], [1, 1]]),
        case(plain(9, 3, 64), vec![[70, 70]]),
        case(plain(4, 2, 24), vec![[150, 33], [0, 0], [20, 20], [65, 2]]),
        case(Heads { window: Window::sliding(12), ..plain(4, 4, 16) }, vec![[90, 40], [12, 12], [5, 1]]),
        case(Heads { soft_cap: Some(2.0), window: Window::sliding(1), ..plain(2, 1, 40) }, vec![[30, 30]]),
        case(Heads { soft_cap: Some(1.5), block: 5, ..plain(6, 2, 128) }, vec![[77, 3]]),
        case(plain(64, 1, 8), vec![[20, 2]]),
        case(Heads { window: within(12, 70), ..plain(4, 4, 16) }, vec![[190, 90], [12, 12], [5, 1]]),
        case(Heads { window: Window { left: Some(3), right: None }, ..plain(2, 1, 40) }, vec![[130, 30], [70, 2]]),
        case(Heads { window: Window::FULL, ..plain(4, 2, 24) }, vec![[100, 33], [3, 3]]),
        Case { sinks: true, ..case(Heads { window: within(5, 2), ..plain(6, 2, 32) }, vec![[100, 20], [9, 1]]) },
        Case { tree: true, ..case(plain(6, 2, 32), vec![[100, 20], [9, 9], [70, 1], [130, 100]]) },
        Case { tree: true, sinks: true, ..case(Heads { window: within(5, 0), ..plain(2, 1, 72) }, vec![[100, 64], [9, 9], [200, 3]]) },
    ]
}

/// Random block tables of the sequences, and the number of blocks. Unwritten keys are NaN.
fn tables(random: &mut Random, case: &Case) -> (Vec<Vec<u32>>, usize) {
    let needed: Vec<usize> = case.sequences.iter().map(|[keys, _]| keys.div_ceil(case.heads.block)).collect();
    let blocks = needed.iter().sum::<usize>() + 3;
    let mut order: Vec<u32> = (0..blocks as u32).collect();
    for i in (1..blocks).rev() {
        order.swap(i, random.below(i + 1));
    }
    let mut order = order.into_iter();
    (needed.iter().map(|count| order.by_ref().take(*count).collect()).collect(), blocks)
}

fn reference(case: &Case, q: &[f32], keys: &[Vec<f64>], values: &[Vec<f64>], sinks: &[f32], words: &[u64]) -> Vec<f64> {
    let Heads { heads, kv_heads, dim, scale, window, soft_cap, .. } = case.heads;
    let (mut out, mut token) = (Vec::new(), 0);
    for (s, [count, queries]) in case.sequences.iter().enumerate() {
        for position in count - queries..*count {
            for head in 0..heads {
                let q = &q[(token * heads + head) * dim..][..dim];
                let kv = head / (heads / kv_heads);
                let draft = count - queries.min(&64);
                let sees = |p: &usize| match case.tree && *p >= draft {
                    true => words[token] >> (p - draft) & 1 == 1,
                    false => window.left.is_none_or(|left| position <= p + left) && window.right.is_none_or(|right| *p <= position + right),
                };
                let score = |p: usize| {
                    let key = &keys[s][(p * kv_heads + kv) * dim..][..dim];
                    let score = q.iter().zip(key).map(|(q, k)| f64::from(*q) * k).sum::<f64>() * f64::from(scale);
                    soft_cap.map_or(score, |cap| f64::from(cap) * (score / f64::from(cap)).tanh())
                };
                let seen: Vec<(usize, f64)> = (0..*count).filter(sees).map(|p| (p, score(p).exp())).collect();
                let sink = if case.sinks { f64::from(sinks[head]).exp() } else { 0.0 };
                let total: f64 = sink + seen.iter().map(|(_, share)| share).sum::<f64>();
                for d in 0..dim {
                    let value = |p: usize| values[s][(p * kv_heads + kv) * dim + d];
                    let sum: f64 = seen.iter().map(|(p, share)| share * value(*p)).sum();
                    out.push(if total == 0.0 { 0.0 } else { sum / total });
                }
            }
            token += 1;
        }
    }
    out
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    F32,
    F16,
    Bf16,
}

#[test]
fn attention_matches_the_reference() {
    let mut random = Random::new("attention");
    for (number, case) in cases().into_iter().enumerate() {
        let Heads { heads, kv_heads, dim, block, .. } = case.heads;
        let (tables, blocks) = tables(&mut random, &case);
        let row = kv_heads * dim;
        let queries: usize = case.sequences.iter().map(|[_, queries]| queries).sum();
        let q = random.normals(queries * heads * dim);
        let (sinks, words): (_, Vec<u64>) = (random.normals(heads), (0..queries).map(|_| random.bits()).collect());
        let extras = AttentionExtras { sinks: case.sinks.then_some(&sinks[..]), tree: case.tree.then_some(&words[..]) };
        let kv: Vec<[Vec<f32>; 2]> =
            case.sequences.iter().map(|[keys, _]| [random.normals(keys * row), random.normals(keys * row)]).collect();
        for kind in [Kind::F32, Kind::F16, Kind::Bf16] {
            let through = |x: &f32| match kind {
                Kind::F32 => f64::from(*x),
                Kind::F16 => f16::from_f32(*x).to_f64(),
                Kind::Bf16 => bf16::from_f32(*x).to_f64(),
            };
            let wide = |which: usize| kv.iter().map(|both| both[which].iter().map(through).collect()).collect::<Vec<Vec<f64>>>();
            let expected = reference(&case, &q, &wide(0), &wide(1), &sinks, &words);
            let size = blocks * block * row;
            let mut plain = [vec![f32::NAN; size], vec![f32::NAN; size]];
            let mut halves = [vec![f16::NAN; size], vec![f16::NAN; size]];
            let mut brains = [vec![bf16::NAN; size], vec![bf16::NAN; size]];
            for (both, table) in kv.iter().zip(&tables) {
                for which in 0..2 {
                    // In two chunks, as a long prompt arrives.
                    let (first, second) = both[which].split_at(both[which].len() / row / 3 * row);
                    for (start, x) in [(0, first), (first.len() / row, second)] {
                        let cache = match kind {
                            Kind::F32 => CacheMut::F32(&mut plain[which]),
                            Kind::F16 => CacheMut::F16(&mut halves[which]),
                            Kind::Bf16 => CacheMut::Bf16(&mut brains[which]),
                        };
                        append(cache, block, table, start, row, x);
                    }
                }
            }
            let [keys, values] = [0, 1].map(|which| match kind {
                Kind::F32 => Cache::F32(&plain[which]),
                Kind::F16 => Cache::F16(&halves[which]),
                Kind::Bf16 => Cache::Bf16(&brains[which]),
            });
            let sequences: Vec<Sequence<'_>> = case
                .sequences
                .iter()
                .zip(&tables)
                .map(|([keys, queries], table)| Sequence { table, keys: *keys, queries: *queries })
                .collect();
            everywhere(|isa, threads| {
                let mut out = vec![f32::NAN; q.len()];
                attention_with(&q, keys, values, &sequences, &case.heads, &extras, &mut out);
                for (i, (out, expected)) in out.iter().zip(&expected).enumerate() {
                    let off = (f64::from(*out) - expected).abs();
                    assert!(off < 5e-6, "case {number} {kind:?} {isa:?} {threads}: element {i} is {out}, not {expected}");
                }
            });
        }
    }
}

#[test]
fn a_nan_query_affects_only_its_own_row() {
    let heads = plain(2, 1, 16);
    let cache = vec![0.5f32; 16 * 16];
    let mut q = vec![0.1; 3 * 2 * 16];
    q[2 * 16 + 3] = f32::NAN;
    let sequences = [Sequence { table: &[0], keys: 3, queries: 3 }];
    everywhere(|_, _| {
        let mut out = vec![0.0; q.len()];
        attention(&q, Cache::F32(&cache), Cache::F32(&cache), &sequences, &heads, &mut out);
        for (r, row) in out.chunks(16).enumerate() {
            assert!(row.iter().all(|v| v.is_nan() == (r == 2) && (r == 2 || (v - 0.5).abs() < 1e-6)), "row {r}: {row:?}");
        }
    });
}

#[test]
fn scores_far_apart_do_not_overflow() {
    let heads = Heads { scale: 1.0, ..plain(1, 1, 8) };
    let mut keys = vec![0.0f32; 80 * 8];
    let mut values = vec![0.0f32; 80 * 8];
    for place in 0..80 {
        keys[place * 8] = if place == 70 { 500.0 } else { -500.0 };
        values[place * 8] = place as f32;
    }
    let mut q = vec![0.0; 8];
    q[0] = 1.0;
    let sequences = [Sequence { table: &[0, 1, 2, 3, 4], keys: 80, queries: 1 }];
    everywhere(|_, _| {
        let mut out = vec![0.0; 8];
        attention(&q, Cache::F32(&keys), Cache::F32(&values), &sequences, &heads, &mut out);
        assert_eq!(out[0], 70.0);
    });
}
