//! Random elements: bit for bit those of a generator written here, on every device and in every layout; and their distributions.

use std::collections::BTreeSet;

use warpwave_kernels::{DType, Distribution, Layout, Philox, ViewMut};

use crate::common::values::{Value, decode, range, round, ulp};
use crate::common::{Random, devices, full, seed};
use crate::field::Field;
use crate::host::arranged;
use crate::suite::{Suite, on_each_device};

const FLOATS: [DType; 4] = [DType::F32, DType::F16, DType::Bf16, DType::F64];
const INTEGERS: [DType; 5] = [DType::U8, DType::I16, DType::I32, DType::U32, DType::I64];

/// Philox 4x32-10 as its paper defines it, over pairs of (left, right) words.
fn words(at: Philox, index: u64) -> [u32; 4] {
    let counter = u128::from(at.stream) << 64 | u128::from(at.position.wrapping_add(index));
    let mut x: Vec<u64> = (0..4).map(|i| (counter >> (32 * i)) as u64 & 0xffff_ffff).collect();
    for round in 0..10u64 {
        let key = |half: u64, weyl: u64| ((half & 0xffff_ffff) + round * weyl) & 0xffff_ffff;
        let (first, second) = (x[0] * 0xD251_1F53, x[2] * 0xCD9E_8D57);
        let keys = [key(at.seed, 0x9E37_79B9), key(at.seed >> 32, 0xBB67_AE85)];
        x = vec![(second >> 32) ^ x[1] ^ keys[0], second & 0xffff_ffff, (first >> 32) ^ x[3] ^ keys[1], first & 0xffff_ffff];
    }
    [0, 1, 2, 3].map(|i| x[i] as u32)
}

/// The word of an element with 32 bits of its own, and the 64 bits of one with as many.
fn word(at: Philox, i: usize) -> u32 {
    words(at, i as u64 / 4)[i % 4]
}
fn bits(at: Philox, i: usize) -> u64 {
    let words = words(at, i as u64 / 2);
    u64::from(words[i % 2 * 2 + 1]) << 32 | u64::from(words[i % 2 * 2])
}

/// The standard normal number of an element: a radius of one uniform number, and the cosine or sine of another.
fn normal(at: Philox, i: usize, dtype: DType) -> f64 {
    // The angle as the nearest number of quarter turns and the rest, so that sines are as exact near 0 as elsewhere.
    let (unit, quarter, rest) = if dtype == DType::F64 {
        let second = i128::from(bits(at, i | 1));
        let quarter = (second + (1 << 61)) >> 62;
        (((bits(at, i & !1) >> 11) + 1) as f64 * 2f64.powi(-53), quarter as i64, (second - (quarter << 62)) as f64 * 2f64.powi(-62))
    } else {
        // These numbers are rounded to f32.
        let second = i64::from(word(at, i | 1));
        let quarter = (second + (1 << 29)) >> 30;
        let unit = round(DType::F32, round(DType::F32, f64::from(word(at, i & !1))) * 2f64.powi(-32) + 2f64.powi(-33));
        (unit, quarter, round(DType::F32, (second - (quarter << 30)) as f64 * 2f64.powi(-30)))
    };
    let (sine, cosine) = (rest * std::f64::consts::FRAC_PI_2).sin_cos();
    let part = match (quarter + i64::from(i.is_multiple_of(2))) % 4 {
        0 => sine,
        1 => cosine,
        2 => -sine,
        _ => -cosine,
    };
    (-2.0 * unit.ln()).sqrt() * part
}

/// The next number of a type in a direction; the distance is half as large below a power of two.
fn next(dtype: DType, value: f64, direction: f64) -> f64 {
    let step = |share: f64| round(dtype, value + direction * share * ulp(dtype, value));
    if step(0.375) == value { step(0.75) } else { step(0.375) }
}

/// Element `i`, and how far a device may be off.
fn expected(distribution: Distribution, dtype: DType, at: Philox, i: usize) -> (Value, f64) {
    match distribution {
        Distribution::Uniform { low, high } => {
            let math = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
            let unit = match dtype {
                DType::F64 => (bits(at, i) >> 11) as f64 * 2f64.powi(-53),
                _ => f64::from(word(at, i) >> 8) * 2f64.powi(-24),
            };
            let scaled = round(math, round(math, unit * round(math, high - low)) + round(math, low));
            let mut value = round(dtype, scaled);
            // An element beyond the bounds becomes the nearest within.
            while value >= high {
                value = next(dtype, value, -1.0);
            }
            while value < low {
                value = next(dtype, value, 1.0);
            }
            (Value::Real(value), 0.0)
        }
        Distribution::Normal { mean, deviation } => {
            let math = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
            let (mean, deviation) = (round(math, mean), round(math, deviation));
            let value = normal(at, i, dtype) * deviation + mean;
            // The reference of f64 is rounded itself.
            let roundings = if dtype == DType::F64 { 2.0 } else { 0.5 };
            let error = 4.0 * ulp(math, value - mean) + roundings * ulp(math, value);
            (Value::Real(value), error + if math == dtype { 0.0 } else { 0.5 * ulp(dtype, value) })
        }
        Distribution::Integers { low, high } => (Value::Int(low + ((bits(at, i) as u128 * (high - low) as u128) >> 64) as i128), 0.0),
        Distribution::Bernoulli { probability } => {
            let one = f64::from(word(at, i)) < (probability * 2f64.powi(32)).round();
            (if dtype.is_integer() { Value::Int(one.into()) } else { Value::Real(one.into()) }, 0.0)
        }
    }
}

fn place(random: &mut Random) -> Philox {
    // Some positions wrap around.
    let position = if random.below(4) == 0 { u64::MAX - random.below(9) as u64 } else { random.next_u64() };
    Philox { seed: random.next_u64(), stream: [0, random.next_u64()][random.below(2)], position }
}

fn drawn(suite: &Suite, distribution: Distribution, dtype: DType, at: Philox, layout: Layout) -> Vec<Value> {
    let mut field = Field::drawn(&suite.stream, dtype, layout, || 77.0);
    suite.kernels.random(&suite.stream, &distribution, at, &mut field.view_mut()).unwrap();
    let what = format!("{distribution:?} of {dtype}, {layout:?}");
    // The memory beside the elements is checked here; an f64 cannot hold integers of 64 bits.
    field.found(&suite.stream, &what);
    let bytes = suite.stream.download(&field.buffer).unwrap();
    let places = crate::suite::places(&layout);
    places.into_iter().map(|place| decode(dtype, &bytes[place * dtype.size()..][..dtype.size()])).collect()
}

fn check(suite: &Suite, distribution: Distribution, dtype: DType, random: &mut Random) -> f64 {
    let shape: &[usize] = [&[1031][..], &[3, 5, 7], &[2, 64], &[1], &[0, 3], &[4, 3, 2, 3, 2, 2]][random.below(6)];
    let name = ["contiguous", "contiguous", "offset", "apart", "transposed", "every third"][random.below(6)];
    let (layout, at) = (arranged(name, shape, random), place(random));
    let mut worst = 0f64;
    for (i, found) in drawn(suite, distribution, dtype, at, layout).into_iter().enumerate() {
        let (wanted, error) = expected(distribution, dtype, at, i);
        let share = match (found, wanted) {
            (found, wanted) if found == wanted => 0.0,
            (Value::Real(found), Value::Real(wanted)) if error > 0.0 => (found - wanted).abs() / error,
            _ => f64::INFINITY,
        };
        assert!(share <= 1.0, "{distribution:?} of {dtype}, {layout:?}, {at:x?}: element {i} is {found:?}, expected {wanted:?}");
        worst = worst.max(share);
    }
    worst
}

fn example(op: &str, dtype: DType, random: &mut Random) -> Distribution {
    let (low, high) = if dtype.is_integer() { range(dtype) } else { (0, 0) };
    let reach = high - low + 1;
    match op {
        "uniform" => {
            let low = [0.0, -1.0, random.unit() * 8.0 - 4.0][random.below(3)];
            Distribution::Uniform { low, high: low + [1.0, 2.0, 0.125 + random.unit()][random.below(3)] }
        }
        "normal" => {
            let [mean, deviation] = [[0.0, 1.0], [random.unit() * 4.0 - 2.0, random.unit() * 3.0], [1.0, 0.0]][random.below(3)];
            Distribution::Normal { mean, deviation }
        }
        "integers" => {
            let (a, b) = (low + random.below(reach as usize) as i128, low + random.below(reach as usize) as i128);
            let (low, high) =
                [(low, high + 1), (a.min(b), a.max(b) + 1), (high, high + 1), (a, (a + 1 + random.below(5) as i128).min(high + 1))]
                    [random.below(4)];
            Distribution::Integers { low, high }
        }
        _ => Distribution::Bernoulli { probability: [0.0, 1.0, 0.5, random.unit()][random.below(4)] },
    }
}

#[test]
fn random_elements_match_the_reference() {
    let seed = seed();
    on_each_device(&BTreeSet::from(["uniform", "normal", "integers", "bernoulli"]), |suite, table| {
        let mut random = Random::new(seed ^ 0x7a);
        for (op, types) in [
            ("uniform", FLOATS.to_vec()),
            ("normal", FLOATS.to_vec()),
            ("integers", INTEGERS.to_vec()),
            ("bernoulli", [&FLOATS[..], &INTEGERS[..]].concat()),
        ] {
            let mut types = types;
            while !full() && types.len() > 2 {
                types.swap_remove(random.below(types.len()));
            }
            for dtype in types {
                for _ in 0..if full() { 60 } else { 15 } {
                    let distribution = example(op, dtype, &mut random);
                    table.note(op, dtype, check(suite, distribution, dtype, &mut random));
                }
            }
        }
    });
}

#[test]
fn elements_depend_on_their_position_only() {
    let random = &mut Random::new(seed());
    let (at, layout) = (place(random), Layout::contiguous(&[5000]).unwrap());
    let mut first: Option<Vec<Vec<Value>>> = None;
    for device in devices() {
        let suite = Suite::new(&device);
        let [normal, bernoulli] = [Distribution::Normal { mean: 0.5, deviation: 2.0 }, Distribution::Bernoulli { probability: 0.3 }];
        let [uniform, integers] = [Distribution::Uniform { low: -3.0, high: 0.7 }, Distribution::Integers { low: -5, high: 1 << 40 }];
        let mut found = Vec::new();
        for (distribution, dtype) in [
            (normal, DType::F32),
            (normal, DType::F16),
            (uniform, DType::F32),
            (uniform, DType::F64),
            (integers, DType::I64),
            (bernoulli, DType::U8),
        ] {
            let all = drawn(&suite, distribution, dtype, at, layout);
            // The second half by itself.
            let each = distribution.elements_per_block(dtype);
            let later = Philox { position: at.position.wrapping_add((2000 / each) as u64), ..at };
            let rest = drawn(&suite, distribution, dtype, later, Layout::contiguous(&[3000]).unwrap());
            assert!(all[2000..] == rest[..], "{distribution:?} of {dtype} on {}", device.name());
            for other in [Philox { seed: at.seed ^ 1 << 50, ..at }, Philox { stream: at.stream ^ 1 << 33, ..at }] {
                let others = drawn(&suite, distribution, dtype, other, layout);
                let same = all.iter().zip(&others).filter(|(a, b)| a == b).count();
                let most = if matches!(distribution, Distribution::Bernoulli { .. }) { 3400 } else { 20 };
                assert!(same < most, "{distribution:?}: {same} of 5000 elements are the same with {other:x?}");
            }
            found.push(all);
        }
        // Also those that the reference allows some error.
        let first = first.get_or_insert_with(|| found.clone());
        assert!(*first == found, "{} has other elements than the first device", device.name());
    }
}

#[test]
fn blocks_are_those_of_the_published_test_vectors() {
    // Random123's kat_vectors, philox4x32 with 10 rounds: counter, key, words.
    let vectors = [
        ([0u64; 2], 0, [0x6627_e8d5u32, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
        ([u64::MAX; 2], u64::MAX, [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
        ([0x85a3_08d3_243f_6a88, 0x0370_7344_1319_8a2e], 0x299f_31d0_a409_3822, [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]),
    ];
    for device in devices() {
        let Suite { kernels, stream } = Suite::new(&device);
        for (counter, seed, wanted) in vectors {
            let at = Philox { seed, stream: counter[1], position: counter[0] };
            let mut out = stream.alloc::<i64>(2).unwrap();
            let mut view = ViewMut::new(&mut out, Layout::contiguous(&[2]).unwrap()).unwrap();
            // Every 64-bit integer: the words themselves, the highest bit inverted.
            kernels.random(&stream, &Distribution::PERMUTATION_KEYS, at, &mut view).unwrap();
            let found = stream.download(&out).unwrap().into_iter().flat_map(|x| [x as u32, (x >> 32) as u32 ^ 0x8000_0000]);
            assert_eq!(found.collect::<Vec<u32>>(), wanted, "{}", device.name());
            assert_eq!(words(at, 0), wanted, "the reference");
        }
    }
}

/// The largest distance of the elements' distribution function from the expected one, times the root of their number. It exceeds 2.8 once
/// in three million samples.
fn kolmogorov(mut elements: Vec<f64>, cumulative: impl Fn(f64) -> f64) -> f64 {
    elements.sort_by(f64::total_cmp);
    let n = elements.len() as f64;
    let distance = |(i, x): (usize, &f64)| (cumulative(*x) - i as f64 / n).abs().max((cumulative(*x) - (i + 1) as f64 / n).abs());
    elements.iter().enumerate().map(distance).fold(0.0, f64::max) * n.sqrt()
}

/// The normal distribution function, by Simpson's rule.
fn normal_cumulative(x: f64) -> f64 {
    let (steps, x) = (2000, x.clamp(-9.0, 9.0));
    let h = x / f64::from(steps);
    let density = |x: f64| (-0.5 * x * x).exp() / std::f64::consts::TAU.sqrt();
    let sum: f64 =
        (0..=steps).map(|i| [1.0, if i % 2 == 1 { 4.0 } else { 2.0 }][usize::from(i > 0 && i < steps)] * density(f64::from(i) * h)).sum();
    0.5 + sum * h / 3.0
}

#[test]
fn elements_have_their_distributions() {
    let random = &mut Random::new(seed());
    let n = 1 << 15;
    let layout = Layout::contiguous(&[n]).unwrap();
    for device in devices() {
        let suite = Suite::new(&device);
        let mut of = |distribution: Distribution, dtype: DType| -> Vec<f64> {
            let number = |value| match value {
                Value::Real(x) => x,
                Value::Int(x) => x as f64,
            };
            drawn(&suite, distribution, dtype, place(random), layout).into_iter().map(number).collect()
        };
        // A mean of n independent terms is off by more than 5.5 standard deviations once in 26 million samples.
        let bound = 5.5 / (n as f64).sqrt();
        for dtype in [DType::F32, DType::F64] {
            let found = of(Distribution::Uniform { low: -1.0, high: 3.0 }, dtype);
            let distance = kolmogorov(found.clone(), |x| ((x + 1.0) / 4.0).clamp(0.0, 1.0));
            assert!(distance < 2.8, "uniform {dtype}: Kolmogorov's statistic is {distance}");
            let found = of(Distribution::Normal { mean: 2.0, deviation: 0.5 }, dtype);
            let z: Vec<f64> = found.iter().map(|x| (x - 2.0) / 0.5).collect();
            let distance = kolmogorov(z.iter().copied().step_by(8).collect(), normal_cumulative);
            assert!(distance < 2.8, "normal {dtype}: Kolmogorov's statistic is {distance}");
            // Powers and products of neighbors, the latter's variance, and their means' bounds.
            let mean = |f: &dyn Fn(usize) -> f64| (0..n - 3).map(f).sum::<f64>() / (n - 3) as f64;
            for (what, found, wanted, deviation) in [
                ("mean", mean(&|i| z[i]), 0.0, 1.0),
                ("variance", mean(&|i| z[i].powi(2)), 1.0, 2f64.sqrt()),
                ("third moment", mean(&|i| z[i].powi(3)), 0.0, 15f64.sqrt()),
                ("fourth moment", mean(&|i| z[i].powi(4)), 3.0, 96f64.sqrt()),
                ("product with the next", mean(&|i| z[i] * z[i + 1]), 0.0, 1.0),
                ("product with the second next", mean(&|i| z[i] * z[i + 2]), 0.0, 1.0),
                ("product of squares", mean(&|i| (z[i] * z[i + 1]).powi(2)), 1.0, 8f64.sqrt()),
            ] {
                // Fourth powers have long tails.
                assert!((found - wanted).abs() < 1.5 * bound * deviation, "normal {dtype}: the {what} is {found}, expected {wanted}");
            }
        }
        let found = of(Distribution::Bernoulli { probability: 0.2 }, DType::U8);
        let mean = found.iter().sum::<f64>() / n as f64;
        assert!((mean - 0.2).abs() < bound * 0.4, "bernoulli: the mean is {mean}");
        let found = of(Distribution::Integers { low: -3, high: 4 }, DType::I32);
        let counts: Vec<f64> = (-3..4).map(|value| found.iter().filter(|x| **x == f64::from(value)).count() as f64).collect();
        assert_eq!(counts.iter().sum::<f64>(), n as f64, "integers beyond their range: {counts:?}");
        let each = n as f64 / 7.0;
        let statistic: f64 = counts.iter().map(|count| (count - each).powi(2) / each).sum();
        // Of 7 kinds it is above 42 once in five million samples.
        assert!(statistic < 42.0, "integers: χ² is {statistic}");
    }
}

/// Rounding reaches the excluded bound, but no element does.
#[test]
fn intervals_exclude_their_upper_bound() {
    let random = &mut Random::new(seed());
    for device in devices() {
        let suite = Suite::new(&device);
        for dtype in [DType::F16, DType::Bf16, DType::F32] {
            // One element in 512 (bf16), 8192 (f16) or 4 (f32) rounds to the bound.
            let (low, high, n) = match dtype {
                DType::F32 => (16_777_214.0, 16_777_216.0, 4096),
                DType::F16 => (-8.0, 8.0, 1 << 16),
                _ => (0.0, 1.0, 1 << 14),
            };
            let distribution = Distribution::Uniform { low, high };
            let found = drawn(&suite, distribution, dtype, place(random), Layout::contiguous(&[n]).unwrap());
            let most = found.iter().map(|x| x.real()).fold(f64::NEG_INFINITY, f64::max);
            assert_eq!(most, next(dtype, high, -1.0), "the largest element of {distribution:?} of {dtype}");
            assert!(found.iter().all(|x| x.real() >= low));
        }
    }
}

#[test]
fn permutations_have_each_index_once() {
    let random = &mut Random::new(seed());
    for device in devices() {
        let Suite { kernels, stream } = Suite::new(&device);
        for n in [0, 1, 2, 7, 1000, 5000] {
            let at = place(random);
            let layout = Layout::contiguous(&[n]).unwrap();
            let (mut narrow, mut wide) = (stream.alloc::<u32>(n).unwrap(), stream.alloc::<i64>(n).unwrap());
            kernels.permutation(&stream, at, &mut ViewMut::new(&mut narrow, layout).unwrap()).unwrap();
            kernels.permutation(&stream, at, &mut ViewMut::new(&mut wide, layout).unwrap()).unwrap();
            let found: Vec<usize> = stream.download(&narrow).unwrap().into_iter().map(|i| i as usize).collect();
            let mut wanted: Vec<usize> = (0..n).collect();
            let key = |i: usize| bits(at, i) as i64 ^ i64::MIN;
            wanted.sort_by_key(|i| key(*i));
            assert_eq!(found, wanted, "{n} on {}", device.name());
            assert!(stream.download(&wide).unwrap().iter().map(|i| *i as usize).eq(wanted), "{n} on {}", device.name());
            // One element stays where it was, on average.
            assert!(n < 1000 || found.iter().enumerate().filter(|(i, x)| i == *x).count() < 16);
        }
    }
}
