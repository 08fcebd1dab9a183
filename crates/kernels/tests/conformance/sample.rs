//! Picking tokens: the tokens themselves where they are certain, and how often they are picked.

use std::collections::BTreeSet;

use warpwave_kernels::{DType, Layout, Penalties, RandomSource, Sampling};

use crate::common::values::round;
use crate::common::{Random, devices, full, seed};
use crate::field::{Field, arranged, worst_of};
use crate::suite::{Suite, on_each_device};

const LOGITS: [DType; 3] = [DType::F32, DType::F16, DType::Bf16];

/// The weights of the tokens that are kept; the others' are 0. None if rounding could decide which are.
fn kept(logits: &[f64], sampling: &Sampling) -> Option<Vec<f64>> {
    let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut weights: Vec<f64> = logits.iter().map(|x| ((x - largest) / f64::from(sampling.temperature)).exp()).collect();
    let cut = |weights: &mut [f64], least: f64| weights.iter_mut().zip(logits).for_each(|(w, x)| *w = if *x >= least { *w } else { 0.0 });
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
    if sampling.top_k > 0 && sampling.top_k < logits.len() {
        cut(&mut weights, logits[order[sampling.top_k - 1]]);
    }
    if sampling.top_p < 1.0 {
        let wanted = f64::from(sampling.top_p) * weights.iter().sum::<f64>();
        let mut sum = 0.0;
        let last = order.iter().position(|i| {
            sum += weights[*i];
            sum >= wanted
        });
        if (sum - wanted).abs() < 1e-5 * wanted || (wanted - (sum - weights[order[last?]])).abs() < 1e-5 * wanted {
            return None;
        }
        cut(&mut weights, logits[order[last?]]);
    }
    let min_p = f64::from(sampling.min_p);
    let close = weights.iter().any(|w| (w - min_p).abs() < 1e-5 * min_p);
    weights.iter_mut().for_each(|w| *w = if *w >= min_p { *w } else { 0.0 });
    (!close).then_some(weights)
}

/// Tokens of given random numbers: those in whose share of the probability each lies.
fn given(suite: &Suite, dtype: DType, random: &mut Random) -> f64 {
    let stream = &suite.stream;
    let vocabulary = [1, 3, 40, 600, 5000, 9000][random.below(6)];
    let rows = if vocabulary < 1000 { 8 + random.below(20) } else { 4 };
    // Many alike, more than are kept aside, or few.
    let spread = if vocabulary == 9000 { 0.0 } else { [0.3, 4.0, 12.0][random.below(3)] };
    let logits = Field::drawn(stream, dtype, arranged(&[rows, vocabulary], random), || (random.unit() + random.unit() - 1.0) * spread);
    let sampling = Sampling {
        temperature: [0.5, 1.0, 1.7][random.below(3)],
        top_k: [0, 1, 5, 200][random.below(4)],
        top_p: [1.0, 0.9, 0.31][random.below(3)],
        min_p: [0.0, 0.0, 0.07][random.below(3)],
    };
    let what = format!("{rows} × {vocabulary} of {dtype}, {sampling:?}");
    let uniform = Field::drawn(stream, DType::F32, arranged(&[rows], random), || random.unit());
    let mut tokens = Field::drawn(stream, DType::U32, arranged(&[rows], random), || 77.0);
    let mut logs = Field::random(stream, DType::F32, arranged(&[rows], random), random);
    let randomness = RandomSource::Values(uniform.view());
    suite.kernels.sample(stream, &logits.view(), &sampling, randomness, &mut tokens.view_mut(), Some(&mut logs.view_mut())).unwrap();
    let (values, uniform) = (logits.values(), uniform.values());
    let picked = tokens.found(stream, &what);
    for (row, token) in values.chunks(vocabulary).zip(&picked).enumerate().map(|(i, (logits, token))| ((i, logits), *token as usize)) {
        let (i, logits) = row;
        assert!(token < vocabulary, "{what}: row {i} has token {token}");
        let Some(weights) = kept(logits, &sampling) else { continue };
        assert!(weights[token] > 0.0, "{what}: row {i} has token {token}, which is not kept");
        let total: f64 = weights.iter().sum();
        let before: f64 = weights[..token].iter().sum::<f64>() / total;
        let share = weights[token] / total;
        assert!(uniform[i] > before - 1e-5 && uniform[i] < before + share + 1e-5, "{what}: row {i} has token {token} for {}", uniform[i]);
    }
    let wanted = values.chunks(vocabulary).zip(&picked).map(|(logits, token)| {
        let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = logits.iter().map(|x| (x - largest).exp()).sum();
        (logits[*token as usize] - largest - sum.ln(), 1e-5)
    });
    worst_of(DType::F32, &what, &logs.found(stream, &what), wanted)
}

fn greedy(suite: &Suite, dtype: DType, random: &mut Random) -> f64 {
    let stream = &suite.stream;
    // Several parts, the last of them not full.
    let (rows, vocabulary) = (1 + random.below(5), [1, 2, 700, 4096, 9001][random.below(5)]);
    let layout = arranged(&[rows, vocabulary], random);
    // Few different ones: many are alike. Some are NaN.
    let endless = random.below(20) == 0;
    let draw = || [f64::NAN, f64::NEG_INFINITY, -0.0, 0.0, 1.0, -3.0, if endless { f64::INFINITY } else { 2.5 }][random.below(7)];
    let logits = Field::drawn(stream, dtype, layout, draw);
    let mut tokens = Field::drawn(stream, DType::U32, arranged(&[rows], random), || 77.0);
    let mut logs = Field::drawn(stream, DType::F32, arranged(&[rows], random), || 77.0);
    let with_logs = random.below(4) > 0;
    let seed = RandomSource::Seed { seed: 1, offset: 0 };
    let mut log_view = logs.view_mut();
    let asked = with_logs.then_some(&mut log_view);
    suite.kernels.sample(stream, &logits.view(), &Sampling::GREEDY, seed, &mut tokens.view_mut(), asked).unwrap();
    let what = format!("the largest of {rows} × {vocabulary} of {dtype}");
    let (mut picked, mut likely) = (Vec::new(), Vec::new());
    for row in logits.values().chunks(vocabulary) {
        let number = |x: &f64| if x.is_nan() { f64::NEG_INFINITY } else { *x };
        let largest = row.iter().map(number).fold(f64::NEG_INFINITY, f64::max);
        picked.push(row.iter().position(|x| number(x) == largest).unwrap() as f64);
        let sum: f64 = row.iter().map(|x| if number(x) == largest { 1.0 } else { (number(x) - largest).exp() }).sum();
        likely.push(if with_logs { (-sum.ln(), 1e-6 * (1.0 + sum.ln())) } else { (77.0, 0.0) });
    }
    assert_eq!(tokens.found(stream, &what), picked, "{what}");
    worst_of(DType::F32, &what, &logs.found(stream, &what), likely.into_iter())
}

fn penalty(suite: &Suite, dtype: DType, random: &mut Random) -> f64 {
    let stream = &suite.stream;
    let (rows, vocabulary, length) = (1 + random.below(4), 1 + random.below(60), random.below(90));
    let mut logits = Field::random(stream, dtype, arranged(&[rows, vocabulary], random), random);
    let text = Field::drawn(stream, [DType::I32, DType::U32, DType::I64][random.below(3)], arranged(&[rows, length], random), || {
        random.below(vocabulary + 5) as f64
    });
    let penalties = Penalties { repetition: 1.25, presence: 0.5, frequency: 0.125 };
    suite.kernels.penalize(stream, &penalties, &text.view(), &mut logits.view_mut()).unwrap();
    let text = text.values();
    let wanted = logits.values().into_iter().enumerate().map(|(i, x)| {
        let count = text[i / vocabulary * length..][..length].iter().filter(|token| **token as usize == i % vocabulary).count() as f64;
        let scaled = if x > 0.0 { x / 1.25 } else { x * 1.25 };
        (if count > 0.0 { scaled - 0.5 - 0.125 * count } else { x }, 1e-6)
    });
    let what = format!("penalties of {rows} × {vocabulary} of {dtype}, {length} tokens");
    let wanted: Vec<(f64, f64)> = wanted.collect();
    worst_of(dtype, &what, &logits.found(stream, &what), wanted.into_iter())
}

#[test]
fn sampled_tokens_follow_the_random_numbers() {
    let seed = seed();
    let known = BTreeSet::from(["sample", "sample, greedy", "penalty"]);
    on_each_device(&known, |suite, table| {
        let random = &mut Random::new(seed);
        let types = if full() { LOGITS.to_vec() } else { vec![LOGITS[random.below(3)]] };
        for dtype in types {
            (0..if full() { 60 } else { 10 }).for_each(|_| table.note("sample", dtype, given(suite, dtype, random)));
            (0..3).for_each(|_| table.note("sample, greedy", dtype, greedy(suite, dtype, random)));
            (0..3).for_each(|_| table.note("penalty", dtype, penalty(suite, dtype, random)));
        }
    });
}

#[test]
fn seeded_tokens_have_the_expected_frequencies() {
    let seed = seed();
    for device in devices() {
        let Suite { kernels, stream } = Suite::new(&device);
        let rows = 1500;
        let values: Vec<f64> = [0.5, -1.0, 2.0, 1.5, 0.0, -0.5, 1.0, f64::NEG_INFINITY].map(|x| round(DType::F32, x)).to_vec();
        let logits = Field::of(&stream, DType::F32, Layout::contiguous(&[8]).unwrap(), &values);
        let view = warpwave_kernels::View::of_bytes(&logits.buffer, DType::F32, logits.layout.broadcast_to(&[rows, 8]).unwrap()).unwrap();
        let sampling = Sampling { temperature: 1.3, top_k: 6, top_p: 1.0, min_p: 0.0 };
        let draw = |seed: u64, offset: u64| -> Vec<u32> {
            let mut tokens = stream.alloc::<u32>(rows).unwrap();
            let mut out = warpwave_kernels::ViewMut::new(&mut tokens, Layout::contiguous(&[rows]).unwrap()).unwrap();
            kernels.sample(&stream, &view, &sampling, RandomSource::Seed { seed, offset }, &mut out, None).unwrap();
            stream.download(&tokens).unwrap()
        };
        let first = draw(seed, 0);
        assert_eq!(first, draw(seed, 0), "a seed repeats its tokens");
        assert_eq!(first[100..], draw(seed, 100)[..rows - 100], "row i has number offset + i");
        let tokens: Vec<u32> = [first.clone(), draw(seed ^ 1 << 40, 0), draw(seed, 1 << 33)].concat();
        assert!(tokens[..rows] != tokens[rows..2 * rows] && tokens[..rows] != tokens[2 * rows..], "other seeds and numbers give others");
        let weights = kept(&values, &sampling).unwrap();
        let total: f64 = weights.iter().sum();
        let mut statistic = 0.0;
        for (token, weight) in weights.iter().enumerate() {
            let (count, expected) = (tokens.iter().filter(|t| **t as usize == token).count() as f64, weight / total * tokens.len() as f64);
            assert!(*weight > 0.0 || count == 0.0, "token {token} is not kept");
            statistic += if *weight > 0.0 { (count - expected).powi(2) / expected } else { 0.0 };
        }
        // Of 6 kinds it is above 40 once in ten million runs.
        assert!(statistic < 40.0, "χ² is {statistic} on {}", device.name());
    }
}
