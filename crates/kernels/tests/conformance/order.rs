//! Sorted rows and their first elements, against a stable sort of the values.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use warpwave_kernels::{DType, Layout};

use crate::common::values::{Value, draw, encode, round, wrap};
use crate::common::{Random, full, seed};
use crate::host::{Host, arranged, indices};
use crate::suite::{Suite, on_each_device};

/// NaN is the largest, and both zeros are equal.
pub fn compare(a: Value, b: Value) -> Ordering {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => a.cmp(&b),
        (a, b) => match (a.real().is_nan(), b.real().is_nan()) {
            (false, false) => a.real().partial_cmp(&b.real()).unwrap(),
            (a, b) => a.cmp(&b),
        },
    }
}

/// Rows of `n`, of which `k` are asked for; all of them by sort and argsort.
#[derive(Debug, Clone, Copy)]
struct Case {
    outer: &'static [usize],
    n: usize,
    k: Option<usize>,
    x: &'static str,
    out: &'static str,
}

const fn case(outer: &'static [usize], n: usize, k: Option<usize>, x: &'static str, out: &'static str) -> Case {
    Case { outer, n, k, x, out }
}

/// From one element to rows that take several launches; each kernel in its default size and its limits.
const CASES: [Case; 28] = [
    case(&[3], 100, None, "contiguous", "contiguous"),
    case(&[3], 100, Some(7), "contiguous", "contiguous"),
    case(&[2], 4500, Some(9), "contiguous", "contiguous"),
    case(&[2], 1100, None, "offset", "every third"),
    case(&[3], 400, None, "contiguous", "contiguous"),
    case(&[2], 1000, None, "contiguous", "transposed"),
    case(&[2], 1000, Some(40), "contiguous", "transposed"),
    case(&[2, 3], 65, None, "transposed", "transposed"),
    case(&[2, 3], 65, Some(65), "transposed", "transposed"),
    case(&[4], 300, Some(129), "every third", "every third"),
    case(&[5], 1, None, "contiguous", "contiguous"),
    case(&[5], 1, Some(1), "contiguous", "contiguous"),
    case(&[], 256, None, "contiguous", "contiguous"),
    case(&[], 256, Some(256), "offset", "contiguous"),
    case(&[3], 64, Some(1), "repeated", "contiguous"),
    case(&[3], 63, None, "repeated", "apart"),
    case(&[0], 5, None, "contiguous", "contiguous"),
    case(&[3], 0, None, "contiguous", "contiguous"),
    case(&[3], 5, Some(0), "contiguous", "contiguous"),
    case(&[2, 2, 1, 2, 3], 20, Some(6), "transposed", "every third"),
    case(&[1], 257, Some(100), "contiguous", "contiguous"),
    case(&[1], 4096, Some(512), "contiguous", "contiguous"),
    case(&[1], 5000, Some(600), "contiguous", "contiguous"),
    case(&[1], 9000, Some(300), "apart", "contiguous"),
    case(&[1], 4097, Some(1030), "contiguous", "contiguous"),
    case(&[2], 20000, None, "contiguous", "contiguous"),
    case(&[1], 40000, Some(2100), "contiguous", "contiguous"),
    case(&[1], 151_936, Some(50), "contiguous", "contiguous"),
];

/// What is asked for: sort with and without indices, and the others as they are called.
const SORTS: [&str; 3] = ["argsort", "sort", "sort values"];

/// Elements of a row by their position.
type Pattern<'a> = &'a dyn Fn(usize, &mut Random) -> Vec<u8>;

/// `types` are those of the elements and of the indices.
fn run(suite: &Suite, op: &str, case: Case, types: [DType; 2], largest: bool, pattern: Option<Pattern<'_>>, random: &mut Random) {
    let [dtype, index] = types;
    let what = format!("{op} {case:?} of {dtype}, largest {largest}, indices {index}");
    let Case { outer, n, k, .. } = case;
    let shape = |last: usize| [outer, &[last]].concat();
    let mut x = Host::random(dtype, arranged(case.x, &shape(n), random), random);
    if let Some(pattern) = pattern {
        for (i, at) in indices(&shape(n)).iter().enumerate() {
            let element = pattern(i % n, random);
            x.set(x.place(at), &element);
        }
    }
    let kept = k.unwrap_or(n);
    let out = |dtype: DType, random: &mut Random| {
        let layout = arranged(case.out, &shape(kept), random);
        Host::of(dtype, layout, || vec![random.next_u64() as u8; dtype.size()])
    };
    let (mut values, mut found) = (out(dtype, random), out(index, random));
    let from = x.upload(suite);
    let (mut values_out, mut found_out) = (values.upload(suite), found.upload(suite));
    {
        let (kernels, stream, x) = (&suite.kernels, &suite.stream, x.view(&from));
        let (mut values, mut found) = (values.view_mut(&mut values_out), found.view_mut(&mut found_out));
        match op {
            "topk" => kernels.topk(stream, &x, largest, &mut values, &mut found),
            "argsort" => kernels.argsort(stream, &x, largest, &mut found),
            "sort" => kernels.sort(stream, &x, largest, &mut values, Some(&mut found)),
            _ => kernels.sort(stream, &x, largest, &mut values, None),
        }
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    }
    for row in indices(outer) {
        let at = |i: usize| [&row[..], &[i]].concat();
        let numbers: Vec<Value> = (0..n).map(|i| x.value(x.place(&at(i)))).collect();
        let mut order: Vec<usize> = (0..n).collect();
        order.sort_by(|a, b| if largest { compare(numbers[*b], numbers[*a]) } else { compare(numbers[*a], numbers[*b]) });
        for (i, from) in order.into_iter().take(kept).enumerate() {
            if op != "sort values" {
                let place = found.place(&at(i));
                found.set(place, &(from as u64).to_le_bytes()[..index.size()]);
            }
            if op != "argsort" {
                let element = x.element(x.place(&at(from))).to_vec();
                values.set(values.place(&at(i)), &element);
            }
        }
    }
    found.must_be(&suite.stream.download(&found_out).unwrap(), &format!("{what}, indices"));
    values.must_be(&suite.stream.download(&values_out).unwrap(), &format!("{what}, values"));
}

#[test]
fn rows_are_sorted() {
    let seed = seed();
    let known = BTreeSet::from(["argsort", "sort", "sort values", "topk"]);
    // By default one type beside f32, in some cases: nearly all the time goes into compiling.
    let other = DType::COMPUTE[Random::new(seed).below(DType::COMPUTE.len())];
    on_each_device(&known, |suite, table| {
        for (i, case) in CASES.into_iter().enumerate() {
            for (j, dtype) in DType::COMPUTE.into_iter().enumerate() {
                let mut random = Random::new(seed + (i * 100 + j) as u64);
                let chosen = dtype == DType::F32 && (i < 16 || case.n > 1000) || dtype == other && i < 5;
                if !full() && !chosen {
                    continue;
                }
                let largest = random.below(2) == 0;
                for largest in if full() { vec![false, true] } else { vec![largest] } {
                    let index = [DType::U32, DType::I64][random.below(2)];
                    // Sometimes equal ones in masses: three values and no more.
                    let some: Vec<Vec<u8>> = (0..3).map(|_| draw(dtype, &mut random)).collect();
                    let few: Pattern<'_> = &|_, random| some[random.below(3)].clone();
                    let few = (random.below(4) == 0).then_some(few);
                    let op = if case.k.is_some() { "topk" } else { SORTS[(i + j + seed as usize) % 3] };
                    run(suite, op, case, [dtype, index], largest, few, &mut random);
                    table.note(op, dtype, 0.0);
                }
            }
        }
    });
}

/// Rows of several tiles, full ones and others, in orders that digits are unlike in. All types: they differ in passes and keys.
#[test]
fn long_rows_are_sorted_in_any_order() {
    let seed = seed();
    on_each_device(&BTreeSet::from(SORTS), |suite, table| {
        for (i, dtype) in DType::COMPUTE.into_iter().enumerate() {
            let mut random = Random::new(seed + i as u64);
            if !full() && dtype != DType::F32 && random.below(4) > 0 {
                continue;
            }
            let number = |i: usize| match dtype.is_integer() {
                true => encode(dtype, Value::Int(wrap(dtype, i as i128 - 5000))),
                false => encode(dtype, Value::Real(round(dtype, i as f64 / 8.0 - 600.0))),
            };
            let orders: [Pattern<'_>; 5] = [
                &|_, _| number(77),
                &|i, _| number(i),
                &|i, _| number(40_000 - i),
                &|_, random| draw(dtype, random),
                // One key and a few others.
                &|_, random| if random.below(100) == 0 { draw(dtype, random) } else { number(3) },
            ];
            // Multiples of all types' tiles (3840, 6144 and 7680), of some, one more, and less than two.
            let sizes: [(&'static [usize], usize); 4] = [(&[], 30_720), (&[2], 15_361), (&[], 8193), (&[3], 12_288)];
            for (j, pattern) in orders.into_iter().enumerate() {
                let (outer, n) = sizes[(random.below(4) + j) % 4];
                let x = ["contiguous", "every third", "transposed", "offset"][random.below(4)];
                let case = case(outer, n, None, x, ["contiguous", "transposed"][random.below(2)]);
                let (op, index) = (SORTS[(j + random.below(3)) % 3], [DType::U32, DType::I64][random.below(2)]);
                run(suite, op, case, [dtype, index], random.below(2) == 0, Some(pattern), &mut random);
                table.note(op, dtype, 0.0);
            }
        }
    });
}

/// Equal elements, and rows made against the way the first are looked for.
#[test]
fn topk_finds_elements_at_any_position() {
    let seed = seed();
    on_each_device(&BTreeSet::from(["topk"]), |suite, table| {
        let mut random = Random::new(seed);
        for (k, stand) in [(60, 0), (200, 1), (33, 2)] {
            let n = 4096;
            let x: Vec<f32> = (0..n)
                .map(|i| match stand {
                    // All large ones with few threads; rising; one value.
                    0 => {
                        if i % 256 < 40 {
                            1e6 + i as f32
                        } else {
                            random.unit() as f32
                        }
                    }
                    1 => i as f32,
                    _ => 7.0,
                })
                .collect();
            let (from, mut values) = (suite.stream.upload(&x).unwrap(), suite.stream.upload(&vec![-1f32; k]).unwrap());
            let mut found = suite.stream.upload(&vec![0u32; k]).unwrap();
            let row = |n: usize| Layout::contiguous(&[n]).unwrap();
            let view = |n| warpwave_kernels::View::new(&from, row(n)).unwrap();
            let mut values_view = warpwave_kernels::ViewMut::new(&mut values, row(k)).unwrap();
            let mut found_view = warpwave_kernels::ViewMut::new(&mut found, row(k)).unwrap();
            suite.kernels.topk(&suite.stream, &view(n), true, &mut values_view, &mut found_view).unwrap();
            let mut order: Vec<usize> = (0..n).collect();
            order.sort_by(|a, b| x[*b].total_cmp(&x[*a]));
            let found: Vec<usize> = suite.stream.download(&found).unwrap().into_iter().map(|i| i as usize).collect();
            assert_eq!(found, order[..k], "k {k}, way {stand}");
            table.note("topk", DType::F32, 0.0);
        }
    });
}
