//! Softmax and the norms of each type over rows of each layout, against a reference in `f64`.
//!
//! Some types and layouts by default; all of them with `WARPWAVE_TEST_FULL=1`.

use std::collections::BTreeSet;

use warpwave_gpu::Buffer;
use warpwave_kernels::{DType, Layout, Norm, View, ViewMut};

use crate::common::values::{Value, decode, encode, round};
use crate::common::{Random, full, seed};
use crate::reduce::{exact_sum, share, step};
use crate::suite::{Suite, on_each_device, places, room};

const OPS: [&str; 8] =
    ["softmax", "log_softmax", "rms_norm", "add_rms_norm", "layer_norm", "add_layer_norm", "group_norm", "group_norm_silu"];
const TYPES: [DType; 4] = [DType::F16, DType::Bf16, DType::F32, DType::F64];
/// Operations of f32 whose results may be of 16 bits, and these.
const NARROWED: [(&str, DType); 4] =
    [("rms_norm", DType::Bf16), ("add_rms_norm", DType::F16), ("rms_norm", DType::F16), ("add_rms_norm", DType::Bf16)];

const ARRANGEMENTS: [&str; 21] = [
    "rows of packs",
    "short rows",
    "odd rows",
    "rows apart",
    "each its own phase",
    "wide rows",
    "wide odd rows",
    "long rows",
    "long odd rows",
    "longer rows",
    "very long rows",
    "transposed",
    "an axis in the middle",
    "repeated rows",
    "every other",
    "four dimensions",
    "one element",
    "no elements",
    // More than the device has units: they are divided otherwise.
    "many rows",
    "many wide rows",
    "many long rows",
];

/// The layouts of the input, the result and the residual, and the axis of a softmax.
fn arrangement(name: &str, random: &mut Random) -> ([Layout; 3], usize) {
    let contiguous = |shape: &[usize]| Layout::contiguous(shape).unwrap();
    let offset = |layout: Layout, offset: usize| Layout::new(layout.shape(), layout.strides(), offset).unwrap();
    let rows = |n: usize, rows: usize| [contiguous(&[rows, n]); 3];
    match name {
        "rows of packs" => (rows(64 * (1 + random.below(16)), 5), 1),
        "short rows" => (rows(1 + random.below(20), 67), 1),
        "odd rows" => (rows(1 + random.below(900), 7), 1),
        "rows apart" => ([0, 1, 2].map(|k| Layout::rows(5, 256, 256 + 16 * k, 16 * k).unwrap()), 1),
        "each its own phase" => {
            let n = 50 + random.below(300);
            ([0; 3].map(|_| Layout::rows(5, n, n + random.below(4), random.below(9)).unwrap()), 1)
        }
        "wide rows" => (rows(2048 + 512 * random.below(4), 3), 1),
        "wide odd rows" => (rows(2000 + random.below(2000), 3), 1),
        "long rows" => (rows(9216, 2), 1),
        "long odd rows" => (rows(34_000 + 2 * random.below(500) + 1, 1), 1),
        "longer rows" => (rows(20_480, 3), 1),
        "very long rows" => (rows(34_816, 1), 1),
        "transposed" => {
            let transposed = contiguous(&[33, 40]).transpose(0, 1).unwrap();
            ([transposed, contiguous(&[40, 33]), transposed], 1)
        }
        "an axis in the middle" => ([contiguous(&[3, 20, 45]); 3], 1),
        "repeated rows" => {
            let all = contiguous(&[6, 130]);
            ([contiguous(&[1, 130]).broadcast_to(&[6, 130]).unwrap(), all, all], 1)
        }
        "every other" => ([0, 1, 2].map(|k| Layout::new(&[9, 30], &[100, 3], k).unwrap()), 1),
        "four dimensions" => {
            let all = contiguous(&[2, 3, 5, 24]);
            (
                [all, all.transpose(1, 2).unwrap(), all].map(|layout| {
                    if layout.shape() == all.shape() { layout } else { Layout::new(all.shape(), &[360, 24, 72, 1], 0).unwrap() }
                }),
                random.below(4),
            )
        }
        "one element" => ([offset(contiguous(&[1, 1]), random.below(3)); 3], 1),
        "no elements" => ([contiguous(&[3, 0]); 3], 1),
        "many rows" => (rows(8 * (1 + random.below(130)), 310 + random.below(20)), 1),
        "many wide rows" => (rows(1024 + 512 * random.below(7), 310), 1),
        "many long rows" => (rows(20_480, 200), 1),
        _ => unreachable!("{name}"),
    }
}

/// Layouts for groups of channels: `[n, channels, …]`.
fn grouped(name: &str, random: &mut Random) -> ([Layout; 3], usize) {
    let contiguous = |shape: &[usize]| Layout::contiguous(shape).unwrap();
    // Channels adjacent in memory.
    let nhwc = |shape: &[usize; 4]| contiguous(shape).transpose(1, 3).unwrap();
    match name {
        "long rows" => ([nhwc(&[2, 32, 31, 320]); 3], 32),
        "wide odd rows" => ([nhwc(&[1, 9, 11, 30]); 3], [1, 3, 30][random.below(3)]),
        "four dimensions" => ([nhwc(&[3, 1 + random.below(70), 5, 8 * (1 + random.below(20))]); 3], [1, 2, 4, 8][random.below(4)]),
        "many long rows" => ([nhwc(&[1, 500, 560, 8]); 3], 4),
        "longer rows" => ([nhwc(&[2, 3, 3, 2560]); 3], 32),
        "rows apart" => {
            let apart = |pixel: usize| Layout::new(&[2, 48, 5, 7], &[5 * 7 * pixel + 32, 1, 7 * pixel, pixel], 16).unwrap();
            ([apart(64), apart(48), apart(48)], 6)
        }
        "repeated rows" => ([nhwc(&[2, 5, 7, 24]), contiguous(&[2, 24, 7, 5]), contiguous(&[2, 24, 7, 5])], 3),
        "rows of packs" => ([contiguous(&[2, 6, 16, 8]); 3], 3),
        "odd rows" => ([contiguous(&[2, 6, 1 + random.below(40)]); 3], 2),
        "wide rows" => ([contiguous(&[1, 4, 32, 40]); 3], 2),
        "long odd rows" => ([contiguous(&[1, 2, 34_001]); 3], 2),
        "very long rows" => ([contiguous(&[1, 4, 17_408]); 3], 2),
        "transposed" => ([contiguous(&[2, 5, 7, 8]).transpose(1, 3).unwrap(), contiguous(&[2, 8, 7, 5]), contiguous(&[2, 8, 7, 5])], 4),
        "short rows" => ([contiguous(&[5, 12]); 3], 4),
        "many rows" | "many wide rows" => ([contiguous(&[80, 8, 8 * (1 + random.below(60))]); 3], 4),
        _ => ([contiguous(&[3, 4, 5, 6]); 3], [1, 2, 4][random.below(3)]),
    }
}

fn draw(dtype: DType, n: usize, random: &mut Random) -> Vec<u8> {
    let shift = [0.0, 0.0, 3.0][random.below(3)];
    (0..n).flat_map(|_| encode(dtype, Value::Real(round(dtype, shift + 8.0 * random.unit() - 4.0)))).collect()
}

fn reals(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    bytes.chunks(dtype.size()).map(|bytes| decode(dtype, bytes).real()).collect()
}

/// A row's results, and how far off each may be.
fn reference(
    op: &str,
    dtype: DType,
    x: &[f64],
    weight: impl Fn(usize) -> f64,
    bias: impl Fn(usize) -> f64,
    epsilon: f64,
    rounding: f64,
) -> Vec<(f64, f64)> {
    let (n, step) = (x.len() as f64, step(dtype));
    // Exponentials of 16-bit elements are the hardware's.
    let close = if dtype.size() == 2 { 4.0 } else { 1.0 };
    match op {
        "softmax" | "log_softmax" => {
            let most = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let total = exact_sum(x.iter().map(|x| (x - most).exp()));
            let one = |x: &f64| match op {
                "softmax" => {
                    let value = (x - most).exp() / total;
                    (value, step * value * (40.0 + 4.0 * close * (x - most).abs()))
                }
                _ => (x - most - total.ln(), step * (8.0 * (x - most).abs() + 8.0 * total.ln().abs() + 40.0)),
            };
            x.iter().map(one).collect()
        }
        "rms_norm" | "add_rms_norm" => {
            let scale = 1.0 / (exact_sum(x.iter().map(|x| x * x)) / n + epsilon).sqrt();
            x.iter().enumerate().map(|(i, x)| (x * scale * weight(i), step * 40.0 * (x * scale * weight(i)).abs())).collect()
        }
        _ => {
            let mean = exact_sum(x.iter().copied()) / n;
            let variance = exact_sum(x.iter().map(|x| (x - mean) * (x - mean))) / n;
            let scale = 1.0 / (variance + epsilon).sqrt();
            let size = x.iter().fold(0.0, |size: f64, x| size.max(x.abs()));
            let one = |(i, x): (usize, &f64)| {
                let value = (x - mean) * scale * weight(i);
                let off = step * (60.0 * value.abs() + 30.0 * (scale * weight(i)).abs() * size + 2.0 * bias(i).abs());
                if op != "group_norm_silu" {
                    return (value + bias(i), off);
                }
                // Its slope is at most 1.1. Where it is a kernel of its own, its input is rounded.
                let off = off + rounding * (value + bias(i)).abs();
                let silu = (value + bias(i)) / (1.0 + (-value - bias(i)).exp());
                // The result may be rounded in the next binade.
                let next = rounding * silu.abs();
                (silu, 1.1 * off + next + step * (16.0 * close * silu.abs() + close))
            };
            x.iter().enumerate().map(one).collect()
        }
    }
}

/// Which elements make a row: by the index in the shape, rows of indices into the list of all elements.
fn rows(shape: &[usize], op: &str, axis: usize, groups: usize) -> Vec<Vec<usize>> {
    let dense = Layout::contiguous(shape).unwrap();
    let of = |strides: &[usize]| places(&Layout::new(shape, strides, 0).unwrap());
    let mut strides = vec![0; shape.len()];
    let count = if op.starts_with("group_norm") {
        // The rows are counted by batch and channel, several channels of which are one.
        strides[0] = shape[1];
        strides[1] = 1;
        shape[0] * groups
    } else {
        let kept: Vec<usize> = (0..shape.len()).filter(|d| *d != axis).collect();
        let short = Layout::contiguous(&kept.iter().map(|d| shape[*d]).collect::<Vec<_>>()).unwrap();
        kept.iter().enumerate().for_each(|(i, d)| strides[*d] = short.strides()[i]);
        short.len()
    };
    let per = if op.starts_with("group_norm") { (shape[1] / groups).max(1) } else { 1 };
    let mut rows = vec![Vec::new(); count];
    of(&strides).into_iter().zip(of(dense.strides())).for_each(|(row, i)| rows[row / per].push(i));
    rows
}

fn case(suite: &Suite, op: &str, dtype: DType, to: DType, name: &str, random: &mut Random) -> f64 {
    let (layouts, axis) = if op.starts_with("group_norm") { grouped(name, random) } else { arrangement(name, random) };
    let groups = if op.starts_with("group_norm") { axis } else { 1 };
    let [layout, out_layout, residual_layout] = layouts;
    let shape = layout.shape().to_vec();
    let axis = if op.ends_with("softmax") { axis } else { shape.len() - 1 };
    let added = op.starts_with("add_");
    let per_row = if op.starts_with("group_norm") { shape[1] } else { shape[axis] };
    let size = dtype.size();

    let data = draw(dtype, room(&layout, dtype) / size, random);
    let residual_data = draw(dtype, room(&residual_layout, dtype) / size, random);
    let poison: Vec<u8> = (0..room(&out_layout, to)).map(|_| random.next_u64() as u8).collect();
    let kind = if random.below(2) == 0 { dtype } else { DType::F32 };
    let step_of = |random: &mut Random| 1 + random.below(8) / 7;
    let line = |random: &mut Random| Layout::new(&[per_row], &[step_of(random)], [0, 0, 3][random.below(3)]).unwrap();
    let vectors: Vec<(Layout, Vec<u8>)> = (0..2)
        .map(|_| {
            let layout = line(random);
            let bytes = draw(kind, room(&layout, kind) / kind.size(), random);
            (layout, bytes)
        })
        .collect();
    let [has_weight, has_bias] = [0; 2].map(|_| random.below(4) > 0);
    let has_bias = has_bias && !op.ends_with("rms_norm");
    let epsilon = [1e-5, 1e-6, 0.1][random.below(3)];

    let upload = |bytes: &Vec<u8>| suite.stream.upload(bytes).unwrap();
    let (input, mut residual, mut out) = (upload(&data), upload(&residual_data), upload(&poison));
    let buffers: Vec<Buffer<u8>> = vectors.iter().map(|(_, bytes)| upload(bytes)).collect();
    let vector = |k: usize| View::of_bytes(&buffers[k], kind, vectors[k].0).unwrap();
    let x = View::of_bytes(&input, dtype, layout).unwrap();
    let norm = Norm { weight: has_weight.then(|| vector(0)), bias: has_bias.then(|| vector(1)), epsilon };
    {
        let (kernels, stream) = (&suite.kernels, &suite.stream);
        let mut result = ViewMut::of_bytes(&mut out, to, out_layout).unwrap();
        let mut sum = ViewMut::of_bytes(&mut residual, dtype, residual_layout).unwrap();
        match op {
            "softmax" => kernels.softmax(stream, &x, axis, &mut result),
            "log_softmax" => kernels.log_softmax(stream, &x, axis, &mut result),
            "rms_norm" => kernels.rms_norm(stream, &x, &norm, &mut result),
            "layer_norm" => kernels.layer_norm(stream, &x, &norm, &mut result),
            "add_rms_norm" => kernels.add_rms_norm(stream, &x, &mut sum, &norm, &mut result),
            "add_layer_norm" => kernels.add_layer_norm(stream, &x, &mut sum, &norm, &mut result),
            _ => kernels.group_norm(stream, &x, groups, &norm, op == "group_norm_silu", &mut result),
        }
        .unwrap_or_else(|error| panic!("{op} of {dtype}, {name}: {error}"));
    }
    let found = suite.stream.download(&out).unwrap();
    let found_sum = suite.stream.download(&residual).unwrap();

    let all = |layout: &Layout, bytes: &[u8]| -> Vec<f64> {
        places(layout).into_iter().map(|place| decode(dtype, &bytes[place * size..][..size]).real()).collect()
    };
    let mut values = all(&layout, &data);
    let mut untouched_sum = residual_data.clone();
    if added {
        let before = all(&residual_layout, &residual_data);
        for (i, place) in places(&residual_layout).into_iter().enumerate() {
            // Two elements of 16 bits: their sum is rounded once, by way of an f32 that holds it or is as good.
            let exact = if dtype == DType::F64 { values[i] + before[i] } else { f64::from(values[i] as f32 + before[i] as f32) };
            values[i] = round(dtype, exact);
            let bytes = encode(dtype, Value::Real(values[i]));
            untouched_sum[place * size..][..size].copy_from_slice(&bytes);
        }
    }
    assert!(found_sum == untouched_sum, "{op} of {dtype}, {name}: the residual is not the sum");
    let numbers = |(layout, bytes): &(Layout, Vec<u8>)| {
        let all = reals(kind, bytes);
        places(layout).into_iter().map(|place| all[place]).collect::<Vec<_>>()
    };
    let parameters: Vec<Vec<f64>> = vectors.iter().map(numbers).collect();
    let spatial: usize = if op.starts_with("group_norm") { shape[2..].iter().product() } else { 1 };

    let rounding = match dtype {
        _ if spatial > 1 && layout.strides()[1] == 1 && out_layout.strides()[1] == 1 => 0.0,
        DType::Bf16 => 2f64.powi(-8),
        DType::F16 => 2f64.powi(-11),
        _ => 0.0,
    };
    let out_places = places(&out_layout);
    let (mut untouched, mut worst) = (poison, 0f64);
    for (r, row) in rows(&shape, op, axis, groups).into_iter().enumerate() {
        let x: Vec<f64> = row.iter().map(|i| values[*i]).collect();
        let channel = |i: usize| if op.starts_with("group_norm") { r % groups * (shape[1] / groups) + i / spatial } else { i };
        let weight = |i: usize| if has_weight { parameters[0][channel(i)] } else { 1.0 };
        let bias = |i: usize| if has_bias { parameters[1][channel(i)] } else { 0.0 };
        let wanted = reference(op, dtype, &x, weight, bias, epsilon, rounding);
        for (j, (i, (wanted, off))) in row.iter().zip(wanted).enumerate() {
            let place = out_places[*i] * to.size();
            untouched[place..][..to.size()].copy_from_slice(&found[place..][..to.size()]);
            let value = decode(to, &found[place..][..to.size()]);
            let share = share(to, value, Value::Real(wanted), Some(off));
            assert!(
                share <= 1.0,
                "{op} of {dtype} with {kind} to {to} ({has_weight} {has_bias}), {name}, {layouts:?}: element {j} of row {r} of {} is {value:?}, should be {wanted} ± {off}",
                row.len()
            );
            worst = worst.max(share);
        }
    }
    assert!(untouched == found, "{op} of {dtype}, {name}: something beside the result was written");
    worst
}

#[test]
fn every_norm_agrees_with_the_reference() {
    let seed = seed();
    let known: BTreeSet<&str> = OPS.into();
    on_each_device(&known, |suite, table| {
        let same = OPS.iter().flat_map(|op| TYPES.map(|dtype| (*op, dtype, dtype)));
        let narrowed = NARROWED.map(|(op, to)| (op, DType::F32, to));
        for (i, (op, dtype, to)) in same.chain(narrowed).enumerate() {
            let mut random = Random::new(seed + 1 + i as u64);
            // Nearly all the time of a run goes into compiling.
            if !full() && i % TYPES.len() != (seed as usize + i / TYPES.len()) % TYPES.len() {
                continue;
            }
            let some = random.below(ARRANGEMENTS.len());
            for (j, name) in ARRANGEMENTS.iter().enumerate() {
                if (full() || (j + some).is_multiple_of(4)) && (suite.fills() || *name != "many long rows") {
                    table.note(op, to, case(suite, op, dtype, to, name, &mut random));
                }
            }
        }
    });
}

/// Infinities are what a mask is made of.
#[test]
fn softmax_handles_infinities() {
    for device in crate::common::devices() {
        let Suite { kernels, stream } = Suite::new(&device);
        for n in [7, 64, 2000, 2048, 40_001] {
            let row = |k: usize| match k {
                0 => vec![f32::NEG_INFINITY; n],
                1 => (0..n).map(|i| if i == n - 2 { 3.0 } else { f32::NEG_INFINITY }).collect(),
                2 => (0..n).map(|i| if i == 1 { f32::NAN } else { 1.0 }).collect(),
                3 => (0..n).map(|i| if i % 2 == 0 { f32::NEG_INFINITY } else { 1.0 }).collect(),
                // Exponentials of these alone are zero, and of their distances from zero infinite.
                4 => (0..n).map(|i| if i < n / 2 { f32::NEG_INFINITY } else { -100.0 }).collect(),
                _ => vec![-1e30; n],
            };
            let values: Vec<f32> = (0..6).flat_map(row).collect();
            let mut data = stream.upload(&values).unwrap();
            kernels.softmax_in_place(&stream, &mut ViewMut::new(&mut data, Layout::contiguous(&[6, n]).unwrap()).unwrap(), 1).unwrap();
            let found = stream.download(&data).unwrap();
            assert!(found[..n].iter().all(|value| value.is_nan()), "nothing but -∞, {n}");
            assert!(found[n..2 * n].iter().enumerate().all(|(i, value)| *value == f32::from(u8::from(i == n - 2))), "one number, {n}");
            assert!(found[2 * n..3 * n].iter().all(|value| value.is_nan()), "NaN, {n}");
            let each = 1.0 / (n / 2) as f32;
            let right = |(i, value): (usize, &f32)| if i % 2 == 0 { *value == 0.0 } else { (value / each - 1.0).abs() < 1e-5 };
            assert!(found[3 * n..4 * n].iter().enumerate().all(right), "a mask, {n}");
            let (far, each) = (&found[4 * n..5 * n], 1.0 / (n - n / 2) as f32);
            let right = |(i, value): (usize, &f32)| if i < n / 2 { *value == 0.0 } else { (value / each - 1.0).abs() < 1e-5 };
            assert!(far.iter().enumerate().all(right), "far below zero, {n}: {far:?}");
            assert!(found[5 * n..].iter().all(|value| (value * n as f32 - 1.0).abs() < 1e-4), "very far below zero, {n}");
            // The same along the first axis, and of 16 bits.
            let transposed = Layout::contiguous(&[6, n]).unwrap().transpose(0, 1).unwrap();
            let mut out = stream.alloc::<f32>(6 * n).unwrap();
            let from = stream.upload(&values).unwrap();
            let (x, mut y) = (View::new(&from, transposed).unwrap(), ViewMut::new(&mut out, transposed).unwrap());
            kernels.softmax(&stream, &x, 0, &mut y).unwrap();
            let across = stream.download(&out).unwrap();
            let near = |(a, b): (&f32, &f32)| (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-5 * b.abs();
            assert!(across.iter().zip(&found).all(near), "along the first axis, {n}");
            let narrow: Vec<half::bf16> = values.iter().map(|value| half::bf16::from_f32(*value)).collect();
            let mut data = stream.upload(&narrow).unwrap();
            let rows = Layout::contiguous(&[6, n]).unwrap();
            kernels.softmax_in_place(&stream, &mut ViewMut::new(&mut data, rows).unwrap(), 1).unwrap();
            let narrow = stream.download(&data).unwrap();
            let near = |(a, b): (&half::bf16, &f32)| (a.is_nan() && b.is_nan()) || (a.to_f32() - b).abs() <= 4e-3 * b.abs();
            assert!(narrow.iter().zip(&found).all(near), "of 16 bits, {n}");
        }
    }
}
