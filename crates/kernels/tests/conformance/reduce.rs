//! Reductions of each type over axes of each layout, against a reference in `f64` and 128-bit integers.
//!
//! Some types and layouts by default; all of them with `WARPWAVE_TEST_FULL=1`.

use std::collections::BTreeSet;

use warpwave_kernels::{DType, Layout, Reduce, View, ViewMut};

use crate::common::values::{Value, decode, encode, range, round, ulp, wrap};
use crate::common::{Random, full, seed};
use crate::suite::{Suite, on_each_device, places, room};

/// The input's layout, the axes that go, and the result's strides if they are not those of rows without gaps.
pub const ARRANGEMENTS: [&str; 22] = [
    "rows",
    "short rows",
    "rows of packs",
    "odd rows",
    "long rows",
    "one long row",
    "everything",
    "columns",
    "odd columns",
    "tall columns",
    "one column",
    "in the middle",
    "outer and inner",
    "columns of columns",
    "transposed",
    "repeated, and summed",
    "repeated, and kept",
    "every other",
    "six dimensions",
    "one element",
    "no axes",
    "no results",
];

pub fn arrangement(name: &str, random: &mut Random) -> (Layout, Vec<usize>) {
    let contiguous = |shape: &[usize]| Layout::contiguous(shape).unwrap();
    let offset = |layout: Layout, offset: usize| Layout::new(layout.shape(), layout.strides(), offset).unwrap();
    let some = |random: &mut Random, most: usize| 1 + random.below(most);
    match name {
        "rows" => (offset(contiguous(&[7, some(random, 700)]), random.below(9)), vec![1]),
        "short rows" => (contiguous(&[some(random, 90), some(random, 12)]), vec![1]),
        "rows of packs" => (Layout::rows(9, 256, 256 + 16 * random.below(3), 16 * random.below(3)).unwrap(), vec![1]),
        "odd rows" => {
            let columns = some(random, 300);
            (Layout::rows(9, columns, columns + random.below(5), random.below(7)).unwrap(), vec![1])
        }
        "long rows" => (contiguous(&[3, 4000 + random.below(3000)]), vec![1]),
        "one long row" => (contiguous(&[70_000 + random.below(5000)]), vec![0]),
        "everything" => (contiguous(&[5, 11, some(random, 170)]), vec![0, 1, 2]),
        "columns" => (contiguous(&[some(random, 300), 64]), vec![0]),
        "odd columns" => (offset(contiguous(&[some(random, 200), some(random, 60)]), random.below(9)), vec![0]),
        "tall columns" => (contiguous(&[5000 + random.below(5000), 8]), vec![0]),
        "one column" => (Layout::rows(300, 1, 7, 2).unwrap(), vec![0]),
        "in the middle" => (contiguous(&[4, some(random, 50), 32]), vec![1]),
        "outer and inner" => (contiguous(&[6, 5, 32 + random.below(20)]), vec![2, 0]),
        "columns of columns" => (contiguous(&[5, 3, some(random, 40), 32]), vec![0, 2]),
        "transposed" => (contiguous(&[some(random, 40), 3, some(random, 50)]).transpose(0, 2).unwrap(), vec![2]),
        "repeated, and summed" => (contiguous(&[1, 30]).broadcast_to(&[40, 30]).unwrap(), vec![0]),
        "repeated, and kept" => (contiguous(&[1, 30, 50]).broadcast_to(&[7, 30, 50]).unwrap(), vec![2]),
        "every other" => (Layout::new(&[11, 19, 20], &[900, 45, 2], random.below(9)).unwrap(), vec![1, 2]),
        "six dimensions" => (Layout::new(&[2, 3, 2, 5, 3, 4], &[1, 7, 30, 100, 700, 3000], 3).unwrap(), vec![1, 3, 4]),
        "one element" => (offset(contiguous(&[1, 1]), random.below(5)), vec![random.below(2)]),
        "no axes" => (contiguous(&[some(random, 20), 24]), vec![]),
        "no results" => (contiguous(&[0, 7]), vec![1]),
        _ => unreachable!("{name}"),
    }
}

/// An element: of ordinary size, so that sums and products stay within the type, and rarely one of the awkward.
pub fn element(op: &str, dtype: DType, awkward: bool, random: &mut Random) -> Vec<u8> {
    if dtype.is_integer() {
        let (low, high) = range(dtype);
        let value = match random.below(if awkward { 16 } else { 12 }) {
            0..10 => wrap(dtype, random.below(7) as i128 - 3),
            // Odd numbers: a product of even ones is soon 0.
            10 | 11 => wrap(dtype, i128::from(random.next_u64()) | 1),
            _ => [low, high, 0, high - 1][random.below(4)],
        };
        return encode(dtype, Value::Int(if op == "all" && value == 0 && random.below(64) > 0 { 1 } else { value }));
    }
    let value = match (awkward && random.below(40) == 0, op) {
        (true, _) => [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 0.0, -0.0, 1.5, 1.5][random.below(7)],
        (_, "prod") => (0.9 + 0.2 * random.unit()) * if random.below(2) == 0 { -1.0 } else { 1.0 },
        (_, "any") => {
            if random.below(500) == 0 {
                0.5
            } else {
                0.0
            }
        }
        _ => 4.0 * random.unit() - 2.0,
    };
    encode(dtype, Value::Real(round(dtype, value)))
}

/// The step of the type that is computed in.
pub fn step(dtype: DType) -> f64 {
    if dtype == DType::F64 { 2f64.powi(-53) } else { 2f64.powi(-24) }
}

/// A sum with what each addition loses.
pub fn exact_sum(values: impl IntoIterator<Item = f64>) -> f64 {
    let (mut sum, mut lost) = (0f64, 0f64);
    for value in values {
        let next = sum + value;
        lost += if sum.abs() >= value.abs() { (sum - next) + value } else { (value - next) + sum };
        sum = next;
    }
    if lost.is_finite() { sum + lost } else { sum }
}

/// The result, and how far off it may be before it is rounded to its type; without a number it is exact.
fn reference(op: Reduce, from: DType, to: DType, values: &[Value]) -> (Value, Option<f64>) {
    let n = values.len() as f64;
    if from.is_integer() || matches!(op, Reduce::Any | Reduce::All | Reduce::ArgMin | Reduce::ArgMax | Reduce::Min | Reduce::Max) {
        let key = |value: &Value| match value {
            Value::Int(value) => (false, *value as f64, *value),
            Value::Real(value) => (value.is_nan(), *value, 0),
        };
        // NaN is before all, and the first before its equals.
        let first = |less: bool| {
            let before = |a: &Value, b: &Value| {
                let ((a_nan, a, a_int), (b_nan, b, b_int)) = (key(a), key(b));
                if from.is_integer() {
                    if less { a_int < b_int } else { a_int > b_int }
                } else {
                    !b_nan && (a_nan || if less { a < b } else { a > b })
                }
            };
            (1..values.len()).fold(0, |best, i| if before(&values[i], &values[best]) { i } else { best })
        };
        let truth = |value: &Value| !matches!(value, Value::Int(0)) && !matches!(value, Value::Real(value) if *value == 0.0);
        let int = |value: &Value| value.int();
        let value = match op {
            Reduce::Any => Value::Int(values.iter().any(truth).into()),
            Reduce::All => Value::Int(values.iter().all(truth).into()),
            Reduce::ArgMin => Value::Int(first(true) as i128),
            Reduce::ArgMax => Value::Int(first(false) as i128),
            Reduce::Min => values[first(true)],
            Reduce::Max => values[first(false)],
            Reduce::Sum => Value::Int(values.iter().map(int).fold(0, |a, b| wrap(to, a + b))),
            Reduce::Prod => Value::Int(values.iter().map(int).fold(1, |a, b| wrap(to, a * b))),
            _ => unreachable!(),
        };
        return (value, None);
    }
    let reals = || values.iter().map(|value| value.real());
    let (sum, size) = (exact_sum(reals()), exact_sum(reals().map(f64::abs)));
    let step = step(from);
    let (value, off) = match op {
        Reduce::Sum => (sum, 24.0 * step * size),
        Reduce::Mean => (sum / n, 25.0 * step * size / n),
        Reduce::Prod => {
            let product: f64 = reals().product();
            (product, n * step * product.abs() + 1e-40)
        }
        Reduce::Var(correction) => {
            let mean = sum / n;
            let divisor = (n - correction).max(0.0);
            let variance = exact_sum(reals().map(|x| (x - mean) * (x - mean))) / divisor;
            (variance, step * (40.0 * variance + 20.0 * mean.abs() * variance.sqrt()) + 8.0 * (step * mean).powi(2) * n / divisor)
        }
        _ => unreachable!(),
    };
    (Value::Real(value), Some(off))
}

/// The share of the tolerance, half a unit in the result's last place and what the computation may be off, that a result takes.
pub fn share(to: DType, found: Value, wanted: Value, off: Option<f64>) -> f64 {
    let (Value::Real(found), Value::Real(wanted)) = (found, wanted) else { return if found == wanted { 0.0 } else { f64::INFINITY } };
    let nearest = round(to, wanted);
    if found == nearest || (found.is_nan() && nearest.is_nan()) {
        return 0.0;
    }
    let Some(off) = off else { return f64::INFINITY };
    let share = (found - wanted).abs() / (0.5 * ulp(to, wanted) + off);
    if share.is_nan() { f64::INFINITY } else { share }
}

fn case(suite: &Suite, op: Reduce, from: DType, to: DType, name: &str, random: &mut Random) -> f64 {
    let (layout, axes) = arrangement(name, random);
    let kept: Vec<usize> = (0..layout.shape().len()).filter(|d| !axes.contains(d)).collect();
    let keep = random.below(2) == 0;
    let shape: Vec<usize> = match keep {
        true => (0..layout.shape().len()).map(|d| if axes.contains(&d) { 1 } else { layout.shape()[d] }).collect(),
        false => kept.iter().map(|d| layout.shape()[*d]).collect(),
    };
    let dense = Layout::contiguous(&shape).unwrap();
    let gap = 1 + random.below(2);
    let out_layout = Layout::new(&shape, &dense.strides().iter().map(|stride| stride * gap).collect::<Vec<_>>(), random.below(4)).unwrap();

    let awkward = random.below(3) == 0;
    let data: Vec<u8> = (0..room(&layout, from) / from.size()).flat_map(|_| element(op.name(), from, awkward, random)).collect();
    let poison: Vec<u8> = (0..room(&out_layout, to)).map(|_| random.next_u64() as u8).collect();
    let input = suite.stream.upload(&data).unwrap();
    let mut out = suite.stream.upload(&poison).unwrap();
    let x = View::of_bytes(&input, from, layout).unwrap();
    let mut run = || {
        let mut result = ViewMut::of_bytes(&mut out, to, out_layout).unwrap();
        suite.kernels.reduce(&suite.stream, op, &x, &axes, &mut result).unwrap_or_else(|error| panic!("{op:?} of {from}, {name}: {error}"));
        suite.stream.download(&out).unwrap()
    };
    let found = run();
    assert!(run() == found, "{op:?} of {from}, {name}: another result the second time");

    // The elements of each result, in the order of the axes.
    let mut of_result: Vec<Vec<Value>> = vec![Vec::new(); dense.len()];
    let strides: Vec<usize> = {
        let kept_shape: Vec<usize> = kept.iter().map(|d| layout.shape()[*d]).collect();
        let dense = Layout::contiguous(&kept_shape).unwrap();
        let mut strides = vec![0; layout.shape().len()];
        kept.iter().enumerate().for_each(|(i, d)| strides[*d] = dense.strides()[i]);
        strides
    };
    let to_result = places(&Layout::new(layout.shape(), &strides, 0).unwrap());
    for (place, result) in places(&layout).into_iter().zip(to_result) {
        of_result[result].push(decode(from, &data[place * from.size()..][..from.size()]));
    }
    let (mut untouched, mut worst) = (poison, 0f64);
    for (i, place) in places(&out_layout).into_iter().enumerate() {
        let bytes = &found[place * to.size()..][..to.size()];
        untouched[place * to.size()..][..to.size()].copy_from_slice(bytes);
        let (wanted, off) = reference(op, from, to, &of_result[i]);
        let share = share(to, decode(to, bytes), wanted, off);
        assert!(
            share <= 1.0,
            "{op:?} of {from} to {to}, {name}, {layout:?} over {axes:?}: result {i} of {} elements is {:?}, should be {wanted:?} ± {off:?}",
            of_result[i].len(),
            decode(to, bytes)
        );
        worst = worst.max(share);
    }
    assert!(untouched == found, "{op:?} of {from}, {name}: something beside the result was written");
    worst
}

#[test]
fn every_reduction_agrees_with_the_reference() {
    let seed = seed();
    let mut random = Random::new(seed);
    let mut triples: Vec<(Reduce, DType, DType)> = Vec::new();
    for op in Reduce::ALL.into_iter().chain([Reduce::Var(0.0)]) {
        let all: Vec<_> = DType::COMPUTE.into_iter().flat_map(|from| op.results(from).into_iter().map(move |to| (op, from, to))).collect();
        // Nearly all the time of a run goes into compiling.
        let some = random.below(all.len());
        triples.extend(all.into_iter().enumerate().filter(|(i, _)| full() || *i == some).map(|(_, triple)| triple));
    }
    let known: BTreeSet<&str> = Reduce::ALL.iter().map(|op| op.name()).collect();
    on_each_device(&known, |suite, table| {
        for (i, (op, from, to)) in triples.iter().enumerate() {
            let mut random = Random::new(seed + 1 + i as u64);
            let some = random.below(ARRANGEMENTS.len());
            for (j, name) in ARRANGEMENTS.iter().enumerate() {
                if full() || (j + some).is_multiple_of(3) {
                    table.note(op.name(), *from, case(suite, *op, *from, *to, name, &mut random));
                }
            }
        }
    });
}

/// Running sums along an axis; the share of the tolerance that the worst took.
fn running(suite: &Suite, from: DType, to: DType, name: &str, random: &mut Random) -> f64 {
    let (layout, axes) = arrangement(name, random);
    let shape = layout.shape();
    let axis = axes.first().copied().unwrap_or(0);
    let dense = Layout::contiguous(shape).unwrap();
    let gap = 1 + random.below(2);
    let out_layout = Layout::new(shape, &dense.strides().iter().map(|stride| stride * gap).collect::<Vec<_>>(), random.below(4)).unwrap();
    let data: Vec<u8> = (0..room(&layout, from) / from.size()).flat_map(|_| element("sum", from, false, random)).collect();
    let poison: Vec<u8> = (0..room(&out_layout, to)).map(|_| random.next_u64() as u8).collect();
    let input = suite.stream.upload(&data).unwrap();
    let mut out = suite.stream.upload(&poison).unwrap();
    let x = View::of_bytes(&input, from, layout).unwrap();
    let mut result = ViewMut::of_bytes(&mut out, to, out_layout).unwrap();
    suite.kernels.cumsum(&suite.stream, &x, axis, &mut result).unwrap_or_else(|error| panic!("cumsum of {from}, {name}: {error}"));
    let found = suite.stream.download(&out).unwrap();

    let (in_places, out_places) = (places(&layout), places(&out_layout));
    let (mut untouched, mut worst) = (poison, 0f64);
    let step_along = dense.strides()[axis];
    for first in (0..dense.len()).filter(|i| (i / step_along).is_multiple_of(shape[axis])) {
        let (mut whole, mut sum, mut lost, mut size) = (0i128, 0f64, 0f64, 0f64);
        for i in (0..shape[axis]).map(|k| first + k * step_along) {
            let place = out_places[i] * to.size();
            untouched[place..][..to.size()].copy_from_slice(&found[place..][..to.size()]);
            let wanted = match decode(from, &data[in_places[i] * from.size()..][..from.size()]) {
                Value::Int(value) => {
                    whole = wrap(to, whole + value);
                    (Value::Int(whole), None)
                }
                Value::Real(value) => {
                    let next = sum + value;
                    lost += if sum.abs() >= value.abs() { (sum - next) + value } else { (value - next) + sum };
                    (sum, size) = (next, size + value.abs());
                    (Value::Real(sum + lost), Some(32.0 * step(from) * size))
                }
            };
            let value = decode(to, &found[place..][..to.size()]);
            let share = share(to, value, wanted.0, wanted.1);
            assert!(
                share <= 1.0,
                "cumsum of {from} to {to}, {name}, {layout:?} along {axis}: element {i} is {value:?}, should be {wanted:?}"
            );
            worst = worst.max(share);
        }
    }
    assert!(untouched == found, "cumsum of {from}, {name}: something beside the result was written");
    worst
}

#[test]
fn cumulative_sums_agree_with_the_reference() {
    let seed = seed();
    let all: Vec<_> = DType::COMPUTE.into_iter().flat_map(|from| Reduce::Sum.results(from).into_iter().map(move |to| (from, to))).collect();
    let known = BTreeSet::from(["cumsum"]);
    on_each_device(&known, |suite, table| {
        for (i, (from, to)) in all.iter().enumerate().filter(|(i, _)| full() || i % 9 == seed as usize % 9) {
            let mut random = Random::new(seed + 1 + i as u64);
            for name in ARRANGEMENTS.iter().filter(|name| !["one element", "no axes"].contains(name) || full()) {
                table.note("cumsum", *from, running(suite, *from, *to, name, &mut random));
            }
        }
    });
}

#[test]
fn empty_reductions_have_sums_but_no_extrema() {
    for device in crate::common::devices() {
        let suite = Suite::new(&device);
        let nothing = suite.stream.alloc::<f32>(0).unwrap();
        let x = View::new(&nothing, Layout::contiguous(&[3, 0]).unwrap()).unwrap();
        let three = Layout::contiguous(&[3]).unwrap();
        for (op, wanted) in [(Reduce::Sum, 0.0), (Reduce::Prod, 1.0), (Reduce::Mean, f32::NAN), (Reduce::Var(1.0), f32::NAN)] {
            let mut out = suite.stream.upload(&[7f32; 4]).unwrap();
            suite.kernels.reduce(&suite.stream, op, &x, &[1], &mut ViewMut::new(&mut out, three).unwrap()).unwrap();
            let found = suite.stream.download(&out).unwrap();
            let same = |found: &f32| *found == wanted || (found.is_nan() && wanted.is_nan());
            assert!(found[..3].iter().all(same) && found[3] == 7.0, "{op:?}: {found:?}");
        }
        for (op, wanted) in [(Reduce::Any, 0), (Reduce::All, 1)] {
            let mut out = suite.stream.upload(&[7u8; 4]).unwrap();
            suite.kernels.reduce(&suite.stream, op, &x, &[1], &mut ViewMut::new(&mut out, three).unwrap()).unwrap();
            assert_eq!(suite.stream.download(&out).unwrap(), [wanted, wanted, wanted, 7]);
        }
        let mut out = suite.stream.upload(&[7f32; 3]).unwrap();
        let refused = suite.kernels.reduce(&suite.stream, Reduce::Max, &x, &[1], &mut ViewMut::new(&mut out, three).unwrap());
        assert!(matches!(refused, Err(warpwave_kernels::Error::BadArgument { .. })));
        assert_eq!(suite.stream.download(&out).unwrap(), [7.0; 3]);
    }
}

/// A large mean takes no digits from a variance.
#[test]
fn variances_do_not_cancel() {
    let mut random = Random::new(seed());
    for device in crate::common::devices() {
        let suite = Suite::new(&device);
        for (shape, axis) in [([4, 3000], 1), ([3000, 4], 0)] {
            let values: Vec<f32> = (0..12_000).map(|_| 10_000.0 + random.unit() as f32).collect();
            let input = suite.stream.upload(&values).unwrap();
            let mut out = suite.stream.upload(&[0f32; 4]).unwrap();
            let x = View::new(&input, Layout::contiguous(&shape).unwrap()).unwrap();
            let mut result = ViewMut::new(&mut out, Layout::contiguous(&[4]).unwrap()).unwrap();
            suite.kernels.reduce(&suite.stream, Reduce::Var(1.0), &x, &[axis], &mut result).unwrap();
            for (i, found) in suite.stream.download(&out).unwrap().into_iter().enumerate() {
                let mine = |j: usize| f64::from(if axis == 1 { values[i * 3000 + j] } else { values[j * 4 + i] });
                let mean = (0..3000).map(mine).sum::<f64>() / 3000.0;
                let wanted = (0..3000).map(|j| (mine(j) - mean).powi(2)).sum::<f64>() / 2999.0;
                assert!((f64::from(found) / wanted - 1.0).abs() < 1e-3, "{found}, should be {wanted}");
            }
        }
    }
}
