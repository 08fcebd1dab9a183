//! Sampling on the host: frequencies, filters and edge cases.

use std::collections::HashMap;

use warpwave_jit::Jit;
use warpwave_kernels::{Kernels, Layout, Penalties, RandomSource, Sampling, View, ViewMut};
use warpwave_llm::{Sampler, TextError};
use warpwave_test_support::virtual_device;

const LOGITS: [f32; 8] = [1.0, -0.5, 2.5, 0.0, 2.0, -3.0, 1.5, 0.7];

fn sampler(temperature: f32, top_k: usize, top_p: f32, min_p: f32) -> Sampler {
    Sampler { sampling: Sampling { temperature, top_k, top_p, min_p }, seed: 7, ..Sampler::default() }
}

fn counts(sampler: &Sampler, logits: &[f32], draws: u64) -> Vec<f64> {
    let mut counts = vec![0.0; logits.len()];
    for number in 0..draws {
        counts[sampler.sample(&mut logits.to_vec(), &[], number, 0).expect("a token").id as usize] += 1.0;
    }
    counts
}

/// The weights of the tokens that should be kept, by sorting.
fn weights(logits: &[f32], sampling: &Sampling) -> Vec<f64> {
    let mut weights: Vec<f64> = logits.iter().map(|x| f64::from(x / sampling.temperature).exp()).collect();
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
    let drop = |weights: &mut Vec<f64>, order: &mut Vec<usize>, keep: usize| {
        order.drain(keep.min(order.len())..).for_each(|token| weights[token] = 0.0);
    };
    if sampling.top_k > 0 {
        drop(&mut weights, &mut order, sampling.top_k);
    }
    let all: f64 = weights.iter().sum();
    let mut sum = 0.0;
    let enough = order.iter().position(|token| {
        sum += weights[*token];
        sum >= f64::from(sampling.top_p) * all
    });
    drop(&mut weights, &mut order, enough.map_or(logits.len(), |last| last + 1));
    let least = weights.iter().copied().fold(0.0, f64::max) * f64::from(sampling.min_p);
    weights.into_iter().map(|weight| if weight >= least { weight } else { 0.0 }).collect()
}

#[test]
fn frequencies_match_probabilities() {
    // The 1 - 1e-4 quantile of chi-square for these degrees of freedom; the seed is fixed.
    let limit = [0.0, 15.14, 18.42, 21.11, 23.51, 25.74, 27.86, 29.88];
    for sampling in [
        sampler(1.0, 0, 1.0, 0.0),
        sampler(0.5, 0, 1.0, 0.0),
        sampler(2.0, 0, 1.0, 0.0),
        sampler(1.0, 3, 1.0, 0.0),
        sampler(1.0, 0, 0.8, 0.0),
        sampler(1.3, 0, 1.0, 0.2),
        sampler(1.5, 6, 0.9, 0.25),
    ] {
        let expected = weights(&LOGITS, &sampling.sampling);
        let (total, draws) = (expected.iter().sum::<f64>(), 20_000);
        let found = counts(&sampling, &LOGITS, draws);
        let mut chi_square = 0.0;
        for (found, weight) in found.iter().zip(&expected) {
            let expected = weight / total * draws as f64;
            assert!(expected > 0.0 || *found == 0.0, "{:?}: a removed token was sampled: {found:?}", sampling.sampling);
            chi_square += if expected > 0.0 { (found - expected).powi(2) / expected } else { 0.0 };
        }
        let degrees = expected.iter().filter(|weight| **weight > 0.0).count() - 1;
        assert!(chi_square < limit[degrees], "{:?}: chi-square {chi_square} with {degrees} degrees of freedom", sampling.sampling);
        // The test can fail: the same counts do not fit a flatter distribution.
        if degrees > 0 {
            let flat = draws as f64 / (degrees + 1) as f64;
            let kept = found.iter().zip(&expected).filter(|(_, weight)| **weight > 0.0);
            assert!(kept.map(|(found, _)| (found - flat).powi(2) / flat).sum::<f64>() > limit[degrees]);
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_tokens_and_another_does_not() {
    let draw = |seed| {
        let sampler = Sampler { seed, ..sampler(1.0, 0, 1.0, 0.0) };
        (0..64).map(|number| sampler.sample(&mut LOGITS.to_vec(), &[], number, 0).expect("a token").id).collect::<Vec<_>>()
    };
    assert_eq!(draw(3), draw(3));
    assert_ne!(draw(3), draw(4));
}

#[test]
fn edges() {
    let pick = |sampler: &Sampler, logits: &[f32]| sampler.sample(&mut logits.to_vec(), &[], 5, 3).expect("a token");
    let greedy = Sampler::default();
    assert_eq!(pick(&greedy, &LOGITS).id, 2);
    // Of equals the first.
    assert_eq!(pick(&greedy, &[1.0, 3.0, 3.0]).id, 1);
    assert_eq!(pick(&greedy, &[0.0, -0.0]).id, 0);
    // One token; more to keep than there are; nothing of the probability; all of it.
    for (top_k, top_p, min_p) in [(1, 1.0, 0.0), (0, 0.0, 0.0), (0, 1.0, 1.0), (1000, 0.0, 0.0), (1, 0.0, 1.0)] {
        let sampler = sampler(1.0, top_k, top_p, min_p);
        assert!((0..50).all(|number| sampler.sample(&mut LOGITS.to_vec(), &[], number, 0).expect("a token").id == 2));
    }
    assert_eq!(counts(&sampler(1.0, 1000, 1.0, 0.0), &LOGITS, 500), counts(&sampler(1.0, 0, 1.0, 0.0), &LOGITS, 500));
    // Ties with the last kept token are kept.
    assert!(counts(&sampler(1.0, 1, 1.0, 0.0), &[1.0, 1.0, 0.0], 200).iter().take(2).all(|count| *count > 50.0));
    // NaN is never sampled, and infinity always is.
    let nan = f32::NAN;
    assert_eq!(pick(&greedy, &[nan, -1.0, nan]).id, 1);
    assert_eq!(counts(&sampler(1.0, 0, 1.0, 0.0), &[nan, -1.0, f32::NEG_INFINITY], 100)[1], 100.0);
    assert_eq!(counts(&sampler(1.0, 0, 0.9, 0.1), &[nan, f32::INFINITY, 3.0], 100)[1], 100.0);
    // Nothing is likely: still a token, and any.
    for logits in [[nan; 4], [f32::NEG_INFINITY; 4]] {
        let sampled = pick(&greedy, &logits);
        assert_eq!(sampled.id, 0);
        assert!((sampled.logprob - 0.25f32.ln()).abs() < 1e-6);
        assert!(counts(&sampler(1.0, 0, 0.99, 0.5), &logits, 400).iter().all(|count| *count > 50.0));
    }
    // The smallest and largest temperatures that have an inverse.
    assert_eq!(counts(&sampler(1e-38, 0, 1.0, 0.0), &LOGITS, 100)[2], 100.0);
    assert!(counts(&sampler(1e38, 0, 1.0, 0.0), &LOGITS, 800).iter().all(|count| *count > 50.0));
    assert!(matches!(greedy.sample(&mut [], &[], 0, 0), Err(TextError::Sampling { name: "number of logits", .. })));
    let many = &mut vec![0.0; 1 << 20];
    assert!(sampler(1.0, 0, 1.0, 0.0).sample(many, &[], 0, 0).is_err());
    assert!(greedy.sample(many, &[], 0, 0).is_ok());
}

#[test]
fn invalid_parameters_are_refused_by_name() {
    let nan = f32::NAN;
    let penalties =
        |repetition, presence, frequency| Sampler { penalties: Penalties { repetition, presence, frequency }, ..Sampler::default() };
    for (bad, said) in [
        (sampler(-1.0, 0, 1.0, 0.0), "temperature must be 0, or finite and >= 3e-39, got -1"),
        (sampler(nan, 0, 1.0, 0.0), "got NaN"),
        (sampler(f32::INFINITY, 0, 1.0, 0.0), "got inf"),
        (sampler(1e-40, 0, 1.0, 0.0), "temperature"),
        (sampler(1.0, 0, 1.1, 0.0), "top_p must be from 0 to 1, got 1.1"),
        (sampler(1.0, 0, nan, 0.0), "top_p must be from 0 to 1, got NaN"),
        (sampler(1.0, 0, 1.0, -0.1), "min_p must be from 0 to 1, got -0.1"),
        (penalties(0.0, 0.0, 0.0), "repetition penalty must be finite and > 0, got 0"),
        (penalties(1.0, nan, 0.0), "presence penalty must be finite, got NaN"),
        (penalties(1.0, 0.0, f32::INFINITY), "frequency penalty must be finite, got inf"),
        (Sampler { bias: HashMap::from([(1, nan)]), ..Sampler::default() }, "logit bias must be a number, got NaN"),
    ] {
        let error = bad.sample(&mut LOGITS.to_vec(), &[], 0, 0).expect_err("a refusal").to_string();
        assert!(error.contains(said), "{error}, not {said}");
    }
}

#[test]
fn bias_and_penalties_change_logits_as_they_say() {
    let sampler = Sampler {
        penalties: Penalties { repetition: 2.0, presence: 0.25, frequency: 0.5 },
        penalty_window: 4,
        bias: HashMap::from([(3, 5.0), (1, f32::NEG_INFINITY), (99, 1.0)]),
        ..Sampler::default()
    };
    let mut logits = LOGITS;
    // Token 7 is outside the window; 99 is out of range; 2 occurs twice.
    let sampled = sampler.sample(&mut logits, &[7, 2, 99, 2, 5], 0, 2).expect("a token");
    let expected = [1.0, f32::NEG_INFINITY, 2.5 / 2.0 - 0.25 - 2.0 * 0.5, 5.0, 2.0, -3.0 * 2.0 - 0.25 - 0.5, 1.5, 0.7];
    assert_eq!(logits, expected);
    assert_eq!(sampled.id, 3);
    // Bias comes before penalties.
    let sampler = Sampler { bias: HashMap::from([(0, 3.0)]), penalty_window: usize::MAX, ..sampler };
    let mut logits = LOGITS;
    sampler.sample(&mut logits, &[0], 0, 0).expect("a token");
    assert_eq!(logits[0], 4.0 / 2.0 - 0.25 - 0.5);
    let mut logits = LOGITS;
    Sampler { penalty_window: 0, bias: HashMap::new(), ..sampler }.sample(&mut logits, &[0, 1, 2], 0, 0).expect("a token");
    assert_eq!(logits, LOGITS);
}

#[test]
fn logarithms_are_those_before_temperature() {
    let sum: f64 = LOGITS.iter().map(|x| f64::from(*x).exp()).sum();
    let log = |token: usize| (f64::from(LOGITS[token]) - sum.ln()) as f32;
    let sampler = sampler(0.3, 2, 0.5, 0.1);
    let sampled = sampler.sample(&mut LOGITS.to_vec(), &[], 11, 20).expect("a token");
    assert!((sampled.logprob - log(sampled.id as usize)).abs() < 1e-6);
    assert_eq!(sampled.top_logprobs.iter().map(|(token, _)| *token).collect::<Vec<_>>(), [2, 4, 6, 0, 7, 3, 1, 5]);
    assert!(sampled.top_logprobs.iter().all(|(token, found)| (found - log(*token as usize)).abs() < 1e-6));
    assert!((sampled.top_logprobs.iter().map(|(_, log)| f64::from(*log).exp()).sum::<f64>() - 1.0).abs() < 1e-6);
    assert_eq!(sampler.sample(&mut LOGITS.to_vec(), &[], 11, 3).expect("a token").top_logprobs, sampled.top_logprobs[..3]);
}

/// The kernels pick the same tokens of the same logits and seed.
#[test]
fn a_gpu_picks_the_same_tokens() {
    let Some(device) = virtual_device("gfx90a") else { return };
    let (kernels, stream) = (Kernels::new(&device, &Jit::default()), device.stream().expect("a stream"));
    let (rows, vocabulary) = (24, 90);
    // With ties and a NaN.
    let logits: Vec<f32> =
        (0..rows * vocabulary).map(|i| if i % 97 == 5 { f32::NAN } else { ((i * 37 % 101) as f32).sqrt() - 4.0 }).collect();
    let text: Vec<u32> = (0..rows * 9).map(|i| (i * i % 100) as u32).collect();
    let layout = |shape: &[usize]| Layout::contiguous(shape).expect("a layout");
    let penalties = Penalties { repetition: 1.3, presence: 0.2, frequency: 0.1 };
    for sampling in [(0.0, 0, 1.0, 0.0), (1.0, 0, 1.0, 0.0), (0.7, 20, 0.9, 0.05), (1.5, 0, 0.6, 0.0)] {
        let (temperature, top_k, top_p, min_p) = sampling;
        let sampler = Sampler { penalties, seed: 99, ..sampler(temperature, top_k, top_p, min_p) };
        let mut on_device = stream.upload(&logits).expect("memory");
        let texts = stream.upload(&text).expect("memory");
        let (mut tokens, mut logs) = (stream.upload(&vec![0u32; rows]).expect("memory"), stream.upload(&vec![0f32; rows]).expect("memory"));
        let mut view = ViewMut::new(&mut on_device, layout(&[rows, vocabulary])).expect("a view");
        kernels.penalize(&stream, &penalties, &View::new(&texts, layout(&[rows, 9])).expect("a view"), &mut view).expect("penalties");
        let mut outs =
            (ViewMut::new(&mut tokens, layout(&[rows])).expect("a view"), ViewMut::new(&mut logs, layout(&[rows])).expect("a view"));
        let random = RandomSource::Seed { seed: 99, offset: 1000 };
        kernels.sample(&stream, &view.as_view(), &sampler.sampling, random, &mut outs.0, Some(&mut outs.1)).expect("tokens");
        let (tokens, logs) = (stream.download(&tokens).expect("tokens"), stream.download(&logs).expect("logarithms"));
        for (row, (token, log)) in tokens.into_iter().zip(logs).enumerate() {
            let mut own = logits[row * vocabulary..][..vocabulary].to_vec();
            let sampled = sampler.sample(&mut own, &text[row * 9..][..9], 1000 + row as u64, 0).expect("a token");
            assert_eq!(sampled.id, token, "row {row} of {sampling:?}");
            assert!((sampled.logprob - log).abs() < 1e-5, "row {row} of {sampling:?}: {} and {log}", sampled.logprob);
        }
    }
}
