//! Random tensors: by their definition on the CPU, and the same on every device.

use std::collections::BTreeSet;

use warpwave_kernels::{DType, Distribution, Philox};
use warpwave_tensor::cpu::Isa;
use warpwave_tensor::{Device, Random, Tensor};
use warpwave_test_support::seed;

use crate::common;
use crate::reference::decode;

const FLOATS: [DType; 4] = [DType::F32, DType::F16, DType::Bf16, DType::F64];
const INTEGERS: [DType; 5] = [DType::U8, DType::I16, DType::I32, DType::U32, DType::I64];

/// Distributions with types that they take.
fn samples() -> Vec<(Distribution, DType)> {
    let floats = [
        Distribution::Uniform { low: 0.0, high: 1.0 },
        Distribution::Uniform { low: -2.5, high: 0.3 },
        Distribution::Normal { mean: 0.0, deviation: 1.0 },
        Distribution::Normal { mean: -0.7, deviation: 3.1 },
    ];
    let [few, bernoulli] = [Distribution::Integers { low: 3, high: 100 }, Distribution::Bernoulli { probability: 0.3 }];
    let mut samples: Vec<_> = FLOATS.into_iter().flat_map(|dtype| floats.map(|distribution| (distribution, dtype))).collect();
    samples.extend(INTEGERS.map(|dtype| (few, dtype)));
    samples.extend([DType::U8, DType::Bf16, DType::F32, DType::I64].map(|dtype| (bernoulli, dtype)));
    samples.push((Distribution::PERMUTATION_KEYS, DType::I64));
    samples
}

fn values(x: &Tensor) -> Vec<f64> {
    x.host_bytes().unwrap().chunks(x.dtype().size()).map(|bytes| decode(x.dtype(), bytes)).collect()
}

/// Element `i` by the definition of its distribution, in f64; and the rounding error of f32 or of the type.
fn expected(distribution: Distribution, dtype: DType, at: Philox, i: usize) -> (f64, f64) {
    let each = distribution.elements_per_block(dtype);
    let words = at.block((i / each) as u64).map(f64::from);
    // Uniform numbers of one or of two words.
    let unit = |k: usize| match each {
        4 => words[k] * 2f64.powi(-32),
        _ => (words[2 * k + 1] + words[2 * k] * 2f64.powi(-32)) * 2f64.powi(-32),
    };
    let epsilon = match dtype {
        DType::F64 => 2f64.powi(-50),
        DType::F16 => 2f64.powi(-10),
        DType::Bf16 => 2f64.powi(-7),
        _ => 2f64.powi(-22),
    };
    match distribution {
        Distribution::Uniform { low, high } => (low + unit(i % each) * (high - low), epsilon * low.abs().max(high.abs())),
        Distribution::Normal { mean, deviation } => {
            let first = unit((i % each) & !1);
            // Never 0.
            let first = if dtype == DType::F64 {
                // The upper 53 bits: a sum of both words in f64 may be rounded up to the next of them.
                let bits = (words[1] as u64) << 32 | words[0] as u64;
                ((bits >> 11) + 1) as f64 * 2f64.powi(-53)
            } else {
                first + 2f64.powi(-33)
            };
            let radius = (-2.0 * first.min(1.0).ln()).sqrt();
            // Quarter turns are exact: an angle of several radians would be rounded by as much as is allowed.
            let turns = unit((i % each) | 1);
            let quarter = (turns * 4.0).round();
            let (sine, cosine) = ((turns - quarter / 4.0) * std::f64::consts::TAU).sin_cos();
            let (cosine, sine) = match quarter as u32 % 4 {
                0 => (cosine, sine),
                1 => (-sine, cosine),
                2 => (-cosine, -sine),
                _ => (sine, -cosine),
            };
            let normal = radius * if i.is_multiple_of(2) { cosine } else { sine };
            // A radius near 0 is made of a number near 1, which has few digits below it.
            (mean + deviation * normal, epsilon * (mean.abs() + deviation * radius + deviation / radius))
        }
        Distribution::Integers { low, high } => (low as f64 + (unit(i % 2) * (high - low) as f64).floor(), 0.0),
        Distribution::Bernoulli { probability } => (f64::from(words[i % 4] < (probability * 2f64.powi(32)).round()), 0.0),
    }
}

#[test]
fn random_tensors_match_their_definition_on_the_cpu() {
    let at = Philox { seed: seed(), stream: 3, position: u64::MAX - 100 };
    for (distribution, dtype) in samples() {
        // More than a task of a thread, and parts of blocks.
        let x = Random::at(at).tensor(distribution, dtype, &[3, 13_001], &Device::Cpu).unwrap();
        assert_eq!((x.shape(), x.dtype()), (&[3, 13_001][..], dtype));
        let exact = distribution == Distribution::PERMUTATION_KEYS;
        for (i, found) in values(&x).into_iter().enumerate().filter(|_| !exact) {
            let (wanted, error) = expected(distribution, dtype, at, i);
            assert!(
                (found - wanted).abs() <= error,
                "{distribution:?} of {dtype}: element {i} is {found}, expected {wanted} within {error}"
            );
            if let Distribution::Uniform { low, high } = distribution {
                assert!(low <= found && found < high, "{distribution:?} of {dtype}: element {i} is {found}");
            }
        }
        for isa in Isa::available() {
            let same = isa.force(|| Random::at(at).tensor(distribution, dtype, &[3, 13_001], &Device::Cpu)).unwrap();
            assert!(x.host_bytes().unwrap() == same.host_bytes().unwrap(), "{distribution:?} of {dtype} with {isa:?}");
        }
    }
}

#[test]
fn random_tensors_are_the_same_on_every_device() {
    let at = Philox { seed: seed(), stream: 0, position: 1 << 40 };
    for device in common::devices() {
        let (here, there) = (Random::at(at), Random::at(at));
        for (distribution, dtype) in samples() {
            let [a, b] = [(&here, &Device::Cpu), (&there, &device)]
                .map(|(random, device)| random.tensor(distribution, dtype, &[2, 501], device).unwrap());
            if dtype == DType::F64 && matches!(distribution, Distribution::Normal { .. }) {
                // Logarithms and sines are those of each platform.
                let close = |(a, b): (f64, f64)| (a - b).abs() <= 4.0 * 2f64.powi(-52) * (a.abs() + 1.0);
                assert!(values(&a).into_iter().zip(values(&b)).all(close), "{distribution:?} of {dtype} on {device}");
            } else {
                assert!(a.host_bytes().unwrap() == b.host_bytes().unwrap(), "{distribution:?} of {dtype} on {device}");
            }
        }
        for n in [0, 1, 1000] {
            let order = there.permutation(n, &device).unwrap().to_vec::<u32>().unwrap();
            assert_eq!(order, here.permutation(n, &Device::Cpu).unwrap().to_vec::<u32>().unwrap(), "{n} on {device}");
            assert!(order.iter().copied().collect::<BTreeSet<u32>>().into_iter().eq(0..n as u32), "{n} on {device}");
        }
        assert_eq!(here.state(), there.state());
    }
}

#[test]
fn a_state_repeats_what_follows() {
    let random = Random::new(7);
    let draw = |random: &Random| values(&random.normal(0.0, 1.0, DType::F32, &[5], &Device::Cpu).unwrap());
    let first = draw(&random);
    assert_eq!((random.seed(), random.state()), (7, Philox { seed: 7, stream: 0, position: 2 }), "5 elements are of two blocks");
    let (state, second) = (random.state(), draw(&random));
    assert!(first != second);
    random.set_state(state);
    assert_eq!(draw(&random), second);
    random.set_seed(7);
    assert_eq!(draw(&random), first);
    assert!(draw(&Random::new(8)) != first && draw(&Random::at(Philox { stream: 1, ..Random::new(7).state() })) != first);
    // What is rejected takes no numbers.
    let state = random.state();
    let cpu = &Device::Cpu;
    for (rejected, reason) in [
        (random.uniform(1.0, 1.0, DType::F32, &[2], cpu), "expected low < high with at least one f32 value in the range, got 1.0..1.0"),
        (random.uniform(0.0, 1.0, DType::I32, &[2], cpu), "expected f32, f16, bf16 or f64, got i32"),
        (random.integers(0..300, DType::U8, &[2], cpu), "expected low < high within 0..=255 (u8), got 0..300"),
        (random.bernoulli(1.5, DType::U8, &[2], cpu), "expected a probability from 0 to 1, got 1.5"),
        (random.normal(0.0, -1.0, DType::F32, &[2], cpu), "a finite standard deviation >= 0"),
    ] {
        assert!(rejected.unwrap_err().to_string().contains(reason), "{reason}");
    }
    assert_eq!(random.state(), state);
}

#[test]
fn threads_share_a_source_without_repeating_numbers() {
    let random = Random::new(seed());
    let draws = |random: &Random| random.integers(0..1i64 << 62, DType::I64, &[3], &Device::Cpu).unwrap().to_vec::<i64>().unwrap();
    let threads: BTreeSet<Vec<i64>> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..4).map(|_| scope.spawn(|| (0..100).map(|_| draws(&random)).collect::<Vec<_>>())).collect();
        running.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let alone = Random::new(random.seed());
    let one: BTreeSet<Vec<i64>> = (0..400).map(|_| draws(&alone)).collect();
    assert!(threads == one && one.len() == 400);
    assert_eq!(random.state(), alone.state());
}
