//! Attention where numbers end: NaN, scores far beyond what powers hold, queries that see nothing, lengths beyond all there is.
//!
//! What the result may be off is as in the usual cases.

use std::collections::BTreeSet;

use warpwave_kernels::{AttentionOptions, DType, KeyValues, Layout, Window};

use crate::common::{Random, full, seed};
use crate::decode::allowed;
use crate::field::{Field, worst_of};
use crate::suite::{Suite, on_each_device};

/// Who computes it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum By {
    Attention,
    Decode,
    /// Keys and values whose elements are apart, which `decode_attention` reads one by one.
    Apart,
}

/// Queries of (sequences, tokens, heads, elements), and keys and values of as many heads as they say.
struct Numbers {
    sequences: usize,
    tokens: usize,
    heads: usize,
    kv_heads: usize,
    keys: usize,
    dim: usize,
    q: Vec<f64>,
    k: Vec<f64>,
    v: Vec<f64>,
    /// `u32`.
    lengths: Option<Vec<f64>>,
    window: Window,
}

impl Numbers {
    fn random(dim: usize, random: &mut Random) -> Numbers {
        let (sequences, tokens, heads, kv_heads, keys) = (2, 1 + random.below(20), 4, 2, 50 + random.below(100));
        let mut draw = |len: usize| (0..len).map(|_| random.unit() * 4.0 - 2.0).collect();
        let (q, k, v) =
            (draw(sequences * tokens * heads * dim), draw(sequences * keys * kv_heads * dim), draw(sequences * keys * kv_heads * dim));
        Numbers { sequences, tokens, heads, kv_heads, keys, dim, q, k, v, lengths: None, window: Window::CAUSAL }
    }

    /// The first element of a key or value.
    fn at(&self, sequence: usize, key: usize, kv_head: usize) -> usize {
        ((sequence * self.keys + key) * self.kv_heads + kv_head) * self.dim
    }

    /// Runs it, and compares; the largest share of the tolerance.
    fn check(&self, suite: &Suite, by: By, dtype: DType, what: &str) -> f64 {
        let (stream, dim) = (&suite.stream, self.dim);
        let shape = [self.sequences, self.tokens, self.heads, dim];
        let kv_shape = [self.sequences, self.keys, self.kv_heads, dim];
        let layout = |shape: &[usize]| Layout::contiguous(shape).unwrap();
        let kv_layout = match by {
            By::Apart => {
                let token = self.kv_heads * 2 * dim;
                Layout::new(&kv_shape, &[self.keys * token, token, 2 * dim, 2], 0).unwrap()
            }
            _ => layout(&kv_shape),
        };
        let q = Field::of(stream, dtype, layout(&shape), &self.q);
        let (k, v) = (Field::of(stream, dtype, kv_layout, &self.k), Field::of(stream, dtype, kv_layout, &self.v));
        let lengths = self.lengths.as_ref().map(|lengths| Field::of(stream, DType::U32, layout(&[self.sequences]), lengths));
        let mut out = Field::drawn(stream, dtype, layout(&shape), || 77.0);
        let kv = KeyValues { keys: k.view(), values: v.view(), table: None, lengths: lengths.as_ref().map(Field::view) };
        let options = AttentionOptions { window: self.window, ..AttentionOptions::new(1.0 / (dim as f32).sqrt()) };
        let queued = match by {
            By::Attention => suite.kernels.attention(stream, &q.view(), &kv, &options, &mut out.view_mut(), None),
            _ => suite.kernels.decode_attention(stream, &q.view(), &kv, &options, &mut out.view_mut()),
        };
        queued.unwrap_or_else(|error| panic!("{what}: {error}"));

        let (q, k, v) = (q.values(), k.values(), v.values());
        let mut wanted = Vec::new();
        for row in 0..self.sequences * self.tokens * self.heads {
            let (s, t, h) = (row / self.heads / self.tokens, row / self.heads % self.tokens, row % self.heads);
            let len = self.lengths.as_ref().map_or(self.keys, |lengths| (lengths[s] as usize).min(self.keys)) as i64;
            let place = len - self.tokens as i64 + t as i64;
            let sees = |key: i64| {
                let Window { left, right } = self.window;
                left.is_none_or(|left| place - key <= left as i64) && right.is_none_or(|right| key - place <= right as i64)
            };
            let kv_head = h / (self.heads / self.kv_heads);
            let seen: Vec<usize> = (0..len).filter(|key| sees(*key)).map(|key| self.at(s, key as usize, kv_head)).collect();
            let score = |at: &usize| (0..dim).map(|e| q[row * dim + e] * k[at + e]).sum::<f64>() * f64::from(options.scale);
            let scores: Vec<f64> = seen.iter().map(score).collect();
            // `f64::max` looks away from NaN; the sum does not.
            let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let powers: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
            let total: f64 = powers.iter().sum();
            wanted.extend((0..dim).map(|e| {
                let terms = || seen.iter().zip(&powers).map(|(at, power)| (power / total, v[at + e]));
                (terms().map(|(weight, value)| weight * value).sum(), allowed(suite, dtype, terms()))
            }));
        }
        worst_of(dtype, &format!("{what} by {by:?} in {dtype}, {shape:?} to {kv_shape:?}"), &out.found(stream, what), wanted.into_iter())
    }
}

/// Keys that are one direction times a number, a different one for each: one has by far the largest score.
fn large(dtype: DType, dim: usize, random: &mut Random) -> Numbers {
    let mut numbers = Numbers::random(dim, random);
    let size = match dtype {
        DType::F16 => 6e4,
        _ => 1e15 / (dim as f64).sqrt(),
    };
    let mut order: Vec<usize> = (0..numbers.keys).collect();
    (1..numbers.keys).for_each(|i| order.swap(i, random.below(i + 1)));
    let sign = |e: usize| if e.is_multiple_of(3) { -1.0 } else { 1.0 };
    for (i, x) in numbers.q.iter_mut().enumerate() {
        // Some rows with the largest scores above zero, some below.
        *x = size * sign(i % dim) * if (i / dim).is_multiple_of(3) { -1.0 } else { 1.0 };
    }
    for (i, x) in numbers.k.iter_mut().enumerate() {
        let key = order[i / dim / numbers.kv_heads % numbers.keys];
        *x = size * sign(i % dim) * (key + 1) as f64 / 256.0;
    }
    numbers
}

#[test]
fn attention_handles_extreme_values() {
    let seed = seed();
    let known =
        BTreeSet::from(["NaN in queries", "NaN in keys", "NaN in values", "NaN behind the end", "large scores", "nothing seen", "lengths"]);
    on_each_device(&known, |suite, table| {
        let random = &mut Random::new(seed);
        let every =
            [By::Attention, By::Decode, By::Apart].into_iter().flat_map(|by| [DType::F32, DType::F16, DType::Bf16].map(|ty| (by, ty)));
        for (i, (by, dtype)) in every.enumerate() {
            // One of the types of 16 bits by default.
            if !full() && dtype == [DType::F16, DType::Bf16][(seed as usize + i / 3) % 2] {
                continue;
            }
            let dims: &[usize] = if full() { &[8, 16, 64, 80, 128, 256] } else { &[[16, 64, 128][(seed as usize + i) % 3]] };
            for &dim in dims {
                let mut run = |name: &str, numbers: Numbers| table.note(name, dtype, numbers.check(suite, by, dtype, name));
                let mut numbers = Numbers::random(dim, random);
                let row = random.below(numbers.q.len() / dim);
                numbers.q[row * dim + random.below(dim)] = f64::NAN;
                run("NaN in queries", numbers);

                // Those before its place do not see it.
                let mut numbers = Numbers::random(dim, random);
                let at = numbers.at(1, numbers.keys - 1 - random.below(numbers.tokens), 0);
                numbers.k[at + random.below(dim)] = f64::NAN;
                run("NaN in keys", numbers);

                // All see it, and one column has it.
                let mut numbers = Numbers::random(dim, random);
                let at = numbers.at(0, random.below(numbers.keys - numbers.tokens), 1);
                numbers.v[at + random.below(dim)] = f64::NAN;
                run("NaN in values", numbers);

                let mut numbers = Numbers::random(dim, random);
                let len = numbers.keys - 1 - random.below(20);
                numbers.lengths = Some(vec![len as f64; 2]);
                for key in len..numbers.keys {
                    let at = numbers.at(0, key, 0);
                    let end = at + numbers.kv_heads * dim;
                    numbers.k[at..end].fill(f64::NAN);
                    numbers.v[at..end].fill(f64::INFINITY);
                }
                run("NaN behind the end", numbers);

                run("large scores", large(dtype, dim, random));
                run("large scores", Numbers { window: Window::FULL, ..large(dtype, dim, random) });

                let numbers = Numbers::random(dim, random);
                let lengths = vec![0.0, random.below(numbers.tokens + 1) as f64];
                run("nothing seen", Numbers { lengths: Some(lengths), ..numbers });

                let numbers = Numbers::random(dim, random);
                let lengths = vec![f64::from(u32::MAX), 2f64.powi(31)];
                run("lengths", Numbers { lengths: Some(lengths), window: Window::sliding(30), ..numbers });
            }
        }
    });
}
