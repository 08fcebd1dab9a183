//! Elements by their indices, against loops over them.

use std::collections::BTreeSet;

use warpwave_kernels::{DType, Layout};

use crate::common::values::{Value, decode, encode, range, round, wrap};
use crate::common::{Random, full, seed};
use crate::host::{Host, arranged, indices};
use crate::suite::{Suite, Table, on_each_device, share};

const INDICES: [DType; 5] = [DType::U8, DType::I16, DType::I32, DType::U32, DType::I64];
const OPS: [&str; 7] = ["gather", "index_select", "embedding", "scatter", "scatter_add", "index_add", "masked_fill"];

/// Indices of a dimension, some of them none.
fn ids(dtype: DType, layout: Layout, places: usize, random: &mut Random) -> Host {
    let (low, high) = range(dtype);
    Host::of(dtype, layout, || {
        let id = match random.below(12) {
            0 => [-1, places as i128, low, high, places as i128 + 1][random.below(5)],
            _ => random.below(places.max(1)) as i128,
        };
        encode(dtype, Value::Int(wrap(dtype, id)))
    })
}

/// The place that an index leads to.
fn place(ids: &Host, at: &[usize], places: usize) -> Option<usize> {
    usize::try_from(ids.value(ids.place(at)).int()).ok().filter(|place| *place < places)
}

fn changed(index: &[usize], d: usize, to: usize) -> Vec<usize> {
    let mut index = index.to_vec();
    index[d] = to;
    index
}

/// Shape of the input or the target, the indexed dimension, and how many of it there are indices for.
#[derive(Debug, Clone, Copy)]
struct Case {
    shape: &'static [usize],
    axis: usize,
    length: usize,
    data: &'static str,
    index: &'static str,
    out: &'static str,
}

const fn case(shape: &'static [usize], axis: usize, length: usize, data: &'static str, index: &'static str, out: &'static str) -> Case {
    Case { shape, axis, length, data, index, out }
}

const CASES: [Case; 14] = [
    case(&[9, 32], 0, 20, "contiguous", "contiguous", "contiguous"),
    case(&[5, 32], 1, 48, "contiguous", "contiguous", "contiguous"),
    case(&[3, 7, 16], 1, 9, "apart", "offset", "apart"),
    case(&[6, 5], 0, 11, "offset", "every third", "offset"),
    case(&[4, 6, 5], 2, 7, "turned", "turned", "every third"),
    case(&[4, 6, 5], 1, 8, "every third", "contiguous", "turned"),
    case(&[300], 0, 700, "contiguous", "contiguous", "contiguous"),
    case(&[4, 16], 1, 16, "repeated", "contiguous", "contiguous"),
    case(&[4, 16], 1, 5, "contiguous", "repeated", "contiguous"),
    case(&[1, 1], 0, 1, "contiguous", "contiguous", "contiguous"),
    case(&[4, 3], 0, 0, "contiguous", "contiguous", "contiguous"),
    case(&[0, 3], 0, 5, "contiguous", "contiguous", "contiguous"),
    case(&[2, 3, 2, 2, 3, 4], 3, 5, "turned", "apart", "contiguous"),
    case(&[7, 48], 0, 40, "apart", "offset", "contiguous"),
];

/// The result of one operation as it should be, and the operation.
fn run(suite: &Suite, op: &str, case: Case, dtype: DType, index: DType, random: &mut Random) -> f64 {
    let what = format!("{op} of {dtype} by {index}, {case:?}");
    let Case { shape, axis, length, .. } = case;
    let (kernels, stream) = (&suite.kernels, &suite.stream);
    let picked = changed(shape, axis, length);
    let scatters = ["scatter", "scatter_add", "index_add"].contains(&op);
    // What is gathered from or scattered to has the case's shape. What is repeated is read only.
    let written = |name: &'static str| if name == "repeated" { "contiguous" } else { name };
    let (in_shape, out_shape) = match op {
        "embedding" => (vec![shape[axis], 16], vec![2, length, 16]),
        "masked_fill" => (shape.to_vec(), shape.to_vec()),
        _ if scatters => (picked.clone(), shape.to_vec()),
        _ => (shape.to_vec(), picked.clone()),
    };
    let data_layout = arranged(case.data, &in_shape, random);
    let out_layout = arranged(written(case.out), &out_shape, random);
    let index_shape = match op {
        "index_select" | "index_add" => vec![length],
        "embedding" => vec![2, length],
        "masked_fill" => shape.to_vec(),
        _ => picked.clone(),
    };
    let index = if op == "masked_fill" { DType::U8 } else { index };
    let index_layout =
        arranged(if index_shape.len() == 1 && case.index == "repeated" { "offset" } else { case.index }, &index_shape, random);
    // Sums of whole small numbers and halves are exact in most types; the others round.
    let x = Host::random(dtype, data_layout, random);
    let ids = ids(index, index_layout, shape[axis], random);
    let out = Host::random(dtype, out_layout, random);

    let (from, by, mut to) = (x.upload(suite), ids.upload(suite), out.upload(suite));
    let (x_view, ids_view) = (x.view(&from), ids.view(&by));
    {
        let mut out = out.view_mut(&mut to);
        match op {
            "gather" => kernels.gather(stream, &x_view, &ids_view, axis, &mut out),
            "index_select" => kernels.index_select(stream, &x_view, &ids_view, axis, &mut out),
            "embedding" => kernels.embedding(stream, &x_view, &ids_view, &mut out),
            "scatter" => kernels.scatter(stream, &mut out, &ids_view, &x_view, axis),
            "scatter_add" => kernels.scatter_add(stream, &mut out, &ids_view, &x_view, axis),
            "index_add" => kernels.index_add(stream, &mut out, &ids_view, &x_view, axis),
            _ => kernels.masked_fill(stream, &x_view, &ids_view, -3, &mut out),
        }
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    }
    let found = stream.download(&to).unwrap();

    let mut wanted = Host { dtype, layout: out.layout, bytes: out.bytes.clone() };
    if op.ends_with("_add") {
        return sums(&out, &x, &ids, case, &found, &what);
    }
    let zero = vec![0; dtype.size()];
    if op == "scatter" {
        for at in indices(&picked) {
            if let Some(p) = place(&ids, &at, shape[axis]) {
                wanted.set(wanted.place(&changed(&at, axis, p)), x.element(x.place(&at)));
            }
        }
    } else {
        for at in indices(&out_shape) {
            let element = match op {
                "gather" => place(&ids, &at, shape[axis]).map(|p| x.place(&changed(&at, axis, p))),
                "index_select" => place(&ids, &at[axis..=axis], shape[axis]).map(|p| x.place(&changed(&at, axis, p))),
                "embedding" => place(&ids, &at[..2], shape[axis]).map(|p| x.place(&[p, at[2]])),
                _ => Some(x.place(&at)),
            };
            let filled = op == "masked_fill" && ids.value(ids.place(&at)) != Value::Int(0);
            let bytes = match element {
                Some(_) if filled => encode(dtype, if dtype.is_integer() { Value::Int(wrap(dtype, -3)) } else { Value::Real(-3.0) }),
                Some(place) => x.element(place).to_vec(),
                None => zero.clone(),
            };
            wanted.set(wanted.place(&at), &bytes);
        }
    }
    wanted.must_be(&found, &what);
    0.0
}

/// Sums are compared within the rounding of each addition in the type that is computed in; whole numbers exactly.
fn sums(out: &Host, x: &Host, ids: &Host, case: Case, found: &[u8], what: &str) -> f64 {
    let (dtype, Case { shape, axis, length, .. }) = (out.dtype, case);
    let one = ids.layout.shape().len() == 1 && shape.len() != 1;
    let mut worst = 0f64;
    let mut untouched = Host { dtype, layout: out.layout, bytes: out.bytes.clone() };
    for at in indices(shape) {
        let to = out.place(&at);
        let hits: Vec<Value> = (0..length)
            .filter(|j| {
                let from = changed(&at, axis, *j);
                place(ids, if one { &from[axis..=axis] } else { &from }, shape[axis]) == Some(at[axis])
            })
            .map(|j| x.value(x.place(&changed(&at, axis, j))))
            .collect();
        let element = &found[to * dtype.size()..][..dtype.size()];
        let (start, result) = (out.value(to), decode(dtype, element));
        if hits.is_empty() {
            continue;
        }
        untouched.set(to, element);
        let taken = match start {
            Value::Int(start) => {
                let sum = wrap(dtype, start + hits.iter().map(|hit| hit.int()).sum::<i128>());
                if result == Value::Int(sum) { 0.0 } else { f64::INFINITY }
            }
            Value::Real(start) => {
                // In order, as floats of the type that is computed in: only f64 differs from the exact sum in nothing but rounding.
                let math = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
                let sum = hits.iter().fold(start, |sum, hit| round(math, sum + hit.real()));
                share(dtype, result, Value::Real(sum), None)
            }
        };
        assert!(taken <= 1.0, "{what}: {at:?} is {result:?}, from {start:?} and {hits:?}");
        worst = worst.max(taken);
    }
    untouched.must_be(found, what);
    worst
}

fn some(suite: &Suite, table: &mut Table, op: &'static str, dtype: DType, index: DType, seed: u64, cases: usize) {
    let mut random = Random::new(seed);
    let start = random.below(CASES.len());
    for i in 0..cases {
        let case = CASES[(start + i) % CASES.len()];
        let share = run(suite, op, case, dtype, index, &mut random);
        table.note(op, dtype, share);
    }
}

#[test]
fn indices_lead_to_their_elements() {
    let seed = seed();
    let known = BTreeSet::from(OPS);
    on_each_device(&known, |suite, table| {
        for (i, op) in OPS.into_iter().enumerate() {
            if full() {
                for (j, dtype) in DType::ALL.into_iter().enumerate() {
                    for (k, index) in INDICES.into_iter().enumerate() {
                        some(suite, table, op, dtype, index, seed + (i * 10_000 + j * 100 + k) as u64, CASES.len());
                    }
                }
                continue;
            }
            // Each operation with two types of each, in all cases.
            let mut random = Random::new(seed + i as u64);
            for pair in 0..2 {
                let (dtype, index) = (DType::ALL[random.below(DType::ALL.len())], INDICES[random.below(INDICES.len())]);
                some(suite, table, op, dtype, index, seed + (i * 10 + pair) as u64, CASES.len());
            }
        }
    });
}
