//! Attention over a paged KV cache against an `f64` reference.

use crate::common::{Random, everywhere};
use half::{bf16, f16};
use warpwave_tensor::cpu::{Cache, CacheMut, Heads, Sequence, append, attention};

struct Case {
    heads: Heads,
    /// Keys and queries of each sequence.
    sequences: Vec<[usize; 2]>,
}

fn plain(heads: usize, kv_heads: usize, dim: usize) -> Heads {
    Heads { heads, kv_heads, dim, block: 16, scale: 0.3, window: None, soft_cap: None }
}

fn cases() -> Vec<Case> {
    vec![
        Case { heads: plain(1, 1, 8), sequences: vec![[1, 1]] },
        Case { heads: plain(9, 3, 64), sequences: vec![[70, 1], [16, 1], [1, 1]] },
        Case { heads: plain(9, 3, 64), sequences: vec![[70, 70]] },
        Case { heads: plain(4, 2, 24), sequences: vec![[150, 33], [0, 0], [20, 20], [65, 2]] },
        Case { heads: Heads { window: Some(12), ..plain(4, 4, 16) }, sequences: vec![[90, 40], [12, 12], [5, 1]] },
        Case { heads: Heads { soft_cap: Some(2.0), window: Some(1), ..plain(2, 1, 40) }, sequences: vec![[30, 30]] },
        Case { heads: Heads { soft_cap: Some(1.5), block: 5, ..plain(6, 2, 128) }, sequences: vec![[77, 3]] },
        Case { heads: plain(64, 1, 8), sequences: vec![[20, 2]] },
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

fn reference(case: &Case, q: &[f32], keys: &[Vec<f64>], values: &[Vec<f64>]) -> Vec<f64> {
    let Heads { heads, kv_heads, dim, scale, window, soft_cap, .. } = case.heads;
    let (mut out, mut token) = (Vec::new(), 0);
    for (s, [count, queries]) in case.sequences.iter().enumerate() {
        for position in count - queries..*count {
            for head in 0..heads {
                let q = &q[(token * heads + head) * dim..][..dim];
                let kv = head / (heads / kv_heads);
                let first = window.map_or(0, |window| (position + 1).saturating_sub(window));
                let score = |p: usize| {
                    let key = &keys[s][(p * kv_heads + kv) * dim..][..dim];
                    let score = q.iter().zip(key).map(|(q, k)| f64::from(*q) * k).sum::<f64>() * f64::from(scale);
                    soft_cap.map_or(score, |cap| f64::from(cap) * (score / f64::from(cap)).tanh())
                };
                let scores: Vec<f64> = (first..=position).map(|p| score(p).exp()).collect();
                let total: f64 = scores.iter().sum();
                for d in 0..dim {
                    let value = |i: usize| values[s][((first + i) * kv_heads + kv) * dim + d];
                    out.push(scores.iter().enumerate().map(|(i, share)| share * value(i)).sum::<f64>() / total);
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
        let kv: Vec<[Vec<f32>; 2]> =
            case.sequences.iter().map(|[keys, _]| [random.normals(keys * row), random.normals(keys * row)]).collect();
        for kind in [Kind::F32, Kind::F16, Kind::Bf16] {
            let through = |x: &f32| match kind {
                Kind::F32 => f64::from(*x),
                Kind::F16 => f16::from_f32(*x).to_f64(),
                Kind::Bf16 => bf16::from_f32(*x).to_f64(),
            };
            let wide = |which: usize| kv.iter().map(|both| both[which].iter().map(through).collect()).collect::<Vec<Vec<f64>>>();
            let expected = reference(&case, &q, &wide(0), &wide(1));
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
                attention(&q, keys, values, &sequences, &case.heads, &mut out);
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
