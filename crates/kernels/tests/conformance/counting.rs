//! Distinct elements and histograms, against maps and loops.

use std::collections::BTreeSet;

use warpwave_kernels::{DType, Layout};

use crate::common::values::{Value, draw, encode, range, round, wrap};
use crate::common::{Random, full, seed};
use crate::host::{Host, arranged, indices};
use crate::order::compare;
use crate::suite::{Suite, on_each_device};

/// One of few elements, now and then any.
fn few(dtype: DType, kinds: usize, random: &mut Random) -> Vec<u8> {
    if random.below(20) == 0 {
        return draw(dtype, random);
    }
    let number = random.below(kinds) as i128 - 3;
    let value = if dtype.is_integer() { Value::Int(wrap(dtype, number)) } else { Value::Real(round(dtype, number as f64)) };
    encode(dtype, value)
}

fn unique(suite: &Suite, dtype: DType, n: usize, kinds: usize, index: DType, random: &mut Random) {
    let what = format!("unique of {n} {dtype}, {kinds} kinds, indices {index}");
    let x = Host::of(dtype, arranged(["contiguous", "every third"][random.below(2)], &[n], random), || few(dtype, kinds, random));
    let row = Layout::contiguous(&[n]).unwrap();
    let out = |dtype: DType, random: &mut Random| Host::of(dtype, row, || vec![random.next_u64() as u8; dtype.size()]);
    let [mut values, mut inverse, mut counts] = [dtype, index, index].map(|dtype| out(dtype, random));
    let from = x.upload(suite);
    let [mut to_values, mut to_inverse, mut to_counts] = [&values, &inverse, &counts].map(|out| out.upload(suite));
    let (with_inverse, with_counts) = (random.below(4) > 0, random.below(4) > 0);
    let found = {
        let mut values = values.view_mut(&mut to_values);
        let (mut inverse, mut counts) = (inverse.view_mut(&mut to_inverse), counts.view_mut(&mut to_counts));
        let (inverse, counts) = (with_inverse.then_some(&mut inverse), with_counts.then_some(&mut counts));
        suite.kernels.unique(&suite.stream, &x.view(&from), &mut values, inverse, counts).unwrap_or_else(|error| panic!("{what}: {error}"))
    };
    let value = |i: usize| x.value(x.place(&[i]));
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|a, b| compare(value(*a), value(*b)));
    let runs: Vec<&[usize]> = order.chunk_by(|a, b| compare(value(*a), value(*b)).is_eq()).collect();
    assert_eq!(found, runs.len(), "{what}");
    let number = |x: usize| (x as u64).to_le_bytes()[..index.size()].to_vec();
    for (run, at) in runs.iter().enumerate() {
        values.set(run, x.element(x.place(&[at[0]])));
        if with_counts {
            counts.set(run, &number(at.len()));
        }
        for i in at.iter().filter(|_| with_inverse) {
            inverse.set(*i, &number(run));
        }
    }
    // What follows the distinct elements has no meaning.
    let mut bytes = suite.stream.download(&to_values).unwrap();
    bytes[runs.len() * dtype.size()..n * dtype.size()].copy_from_slice(&values.bytes[runs.len() * dtype.size()..n * dtype.size()]);
    values.must_be(&bytes, &format!("{what}, values"));
    inverse.must_be(&suite.stream.download(&to_inverse).unwrap(), &format!("{what}, inverse"));
    counts.must_be(&suite.stream.download(&to_counts).unwrap(), &format!("{what}, counts"));
}

/// The bin of an element, computed as the documentation says.
fn bin(dtype: DType, x: Value, bins: usize, low: f64, high: f64) -> Option<usize> {
    let x = match x {
        Value::Int(x) => x as f64,
        Value::Real(x) => x,
    };
    let scale = bins as f64 / (high - low);
    let wide = dtype == DType::F64 || (dtype.is_integer() && dtype.size() >= 4);
    let place = if wide { (x - low) * scale } else { f64::from((x as f32 - low as f32) * scale as f32) };
    (low <= x && x <= high).then(|| (place as usize).min(bins - 1))
}

fn histogram(suite: &Suite, op: &str, dtype: DType, case: (&[usize], usize, &str), index: DType, random: &mut Random) {
    let (shape, bins, layout) = case;
    let what = format!("{op} of {shape:?} {dtype}, {layout}, {bins} bins of {index}");
    // Limits that every type has exactly.
    let (low, high) = [(-8.0, 8.0), (0.0, 1.0), (-2.0, 120.0)][random.below(3)];
    let (least, most) = if dtype.is_integer() { range(dtype) } else { (0, 0) };
    let x = Host::of(dtype, arranged(layout, shape, random), || match random.below(8) {
        0..4 => draw(dtype, random),
        4 => encode(dtype, if dtype.is_integer() { Value::Int(wrap(dtype, high as i128)) } else { Value::Real(high) }),
        _ => match dtype.is_integer() {
            true => encode(dtype, Value::Int((random.below(bins + 3) as i128 - 1).clamp(least, most))),
            false => encode(dtype, Value::Real(round(dtype, random.unit() * (high - low) + low))),
        },
    });
    let mut counts = Host::of(index, Layout::contiguous(&[bins]).unwrap(), || vec![0x55; index.size()]);
    let (from, mut to) = (x.upload(suite), counts.upload(suite));
    {
        let mut out = counts.view_mut(&mut to);
        match op {
            "bincount" => suite.kernels.bincount(&suite.stream, &x.view(&from), &mut out),
            _ => suite.kernels.histogram(&suite.stream, &x.view(&from), low, high, &mut out),
        }
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    }
    let mut found = vec![0u64; bins];
    for at in indices(shape) {
        let value = x.value(x.place(&at));
        let bin = match (op, value) {
            ("bincount", value) => usize::try_from(value.int()).ok().filter(|bin| *bin < bins),
            _ => bin(dtype, value, bins, low, high),
        };
        bin.into_iter().for_each(|bin| found[bin] += 1);
    }
    found.iter().enumerate().for_each(|(bin, count)| counts.set(bin, &count.to_le_bytes()[..index.size()]));
    counts.must_be(&suite.stream.download(&to).unwrap(), &what);
}

#[test]
fn distinct_elements_and_bins_are_counted() {
    let seed = seed();
    let other = DType::COMPUTE[Random::new(seed).below(DType::COMPUTE.len())];
    on_each_device(&BTreeSet::from(["unique", "bincount", "histogram"]), |suite, table| {
        for (i, dtype) in DType::COMPUTE.into_iter().enumerate() {
            if !full() && ![DType::F32, DType::I64, other].contains(&dtype) {
                continue;
            }
            let mut random = Random::new(seed + i as u64);
            // One tile of the runs' kernel is 2048, of a long sort 7680.
            for (n, kinds) in [(0, 5), (1, 5), (100, 1), (2048, 40), (2049, 1), (9001, 3000)] {
                let index = [DType::U32, DType::I64][random.below(2)];
                unique(suite, dtype, n, kinds, index, &mut random);
                table.note("unique", dtype, 0.0);
            }
            let cases: [(&[usize], usize, &str); 7] = [
                (&[5000], 10, "contiguous"),
                (&[4096], 256, "contiguous"),
                (&[3, 5, 7], 100, "transposed"),
                (&[999], 9000, "every third"),
                (&[4, 20], 33, "repeated"),
                (&[0], 7, "contiguous"),
                (&[5], 0, "contiguous"),
            ];
            let index = [DType::U32, DType::I64][random.below(2)];
            for case in cases {
                if case.1 > 0 {
                    histogram(suite, "histogram", dtype, case, index, &mut random);
                    table.note("histogram", dtype, 0.0);
                }
                if dtype.is_integer() {
                    histogram(suite, "bincount", dtype, case, index, &mut random);
                    table.note("bincount", dtype, 0.0);
                }
            }
        }
    });
}
