//! Elements by their indices, against loops over them.

use std::collections::BTreeSet;

use warpwave_gpu::{Arg, HostBuffer, Launch};
use warpwave_jit::Jit;
use warpwave_kernels::{DType, Layout, View, ViewMut, programs};

use crate::common::values::{Value, decode, encode, format, range, round, ulp, wrap};
use crate::common::{Random, devices, full, seed};
use crate::host::{Host, arranged, indices};
use crate::suite::{Suite, Table, on_each_device, share};

const INDICES: [DType; 5] = [DType::U8, DType::I16, DType::I32, DType::U32, DType::I64];
const OPS: [&str; 10] = [
    "gather",
    "index_select",
    "embedding",
    "scatter",
    "scatter_add",
    "index_add",
    "scatter_unordered",
    "scatter_add_unordered",
    "index_add_unordered",
    "masked_fill",
];

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
    case(&[4, 6, 5], 2, 7, "transposed", "transposed", "every third"),
    case(&[4, 6, 5], 1, 8, "every third", "contiguous", "transposed"),
    case(&[300], 0, 200, "contiguous", "contiguous", "contiguous"),
    case(&[4, 16], 1, 16, "repeated", "contiguous", "contiguous"),
    case(&[4, 16], 1, 5, "contiguous", "repeated", "contiguous"),
    case(&[1, 1], 0, 1, "contiguous", "contiguous", "contiguous"),
    case(&[4, 3], 0, 0, "contiguous", "contiguous", "contiguous"),
    case(&[0, 3], 0, 5, "contiguous", "contiguous", "contiguous"),
    case(&[2, 3, 2, 2, 3, 4], 3, 5, "transposed", "apart", "contiguous"),
    case(&[7, 48], 0, 40, "apart", "offset", "contiguous"),
];

/// The result of one operation as it should be, and the operation.
fn run(suite: &Suite, op: &str, case: Case, dtype: DType, index: DType, random: &mut Random) -> f64 {
    let what = format!("{op} of {dtype} by {index}, {case:?}");
    let Case { shape, axis, length, .. } = case;
    let (kernels, stream) = (&suite.kernels, &suite.stream);
    let picked = changed(shape, axis, length);
    let scatters = op.starts_with("scatter") || op.starts_with("index_add");
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
        "index_select" | "index_add" | "index_add_unordered" => vec![length],
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
            "scatter_unordered" => kernels.scatter_unordered(stream, &mut out, &ids_view, &x_view, axis),
            "scatter_add_unordered" => kernels.scatter_add_unordered(stream, &mut out, &ids_view, &x_view, axis),
            "index_add_unordered" => kernels.index_add_unordered(stream, &mut out, &ids_view, &x_view, axis),
            _ => kernels.masked_fill(stream, &x_view, &ids_view, -3, &mut out),
        }
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    }
    let found = stream.download(&to).unwrap();

    let mut wanted = Host { dtype, layout: out.layout, bytes: out.bytes.clone() };
    if scatters && op != "scatter" {
        return scattered(op, &out, &x, &ids, case, &found, &what);
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

/// The share of the tolerance that a sum in any order takes: each addition is rounded, at most at the sum of all magnitudes.
fn unordered_share(dtype: DType, start: f64, hits: &[f64], result: f64) -> f64 {
    let all = || hits.iter().copied().chain([start]);
    let magnitude: f64 = all().map(f64::abs).sum();
    if all().any(f64::is_nan) {
        return if result.is_nan() { 0.0 } else { f64::INFINITY };
    }
    // Where an addition can overflow, the order decides.
    if magnitude > format(dtype).2 {
        return 0.0;
    }
    let share = (result - all().sum::<f64>()).abs() / (hits.len() as f64 * ulp(dtype, magnitude));
    if share.is_nan() { f64::INFINITY } else { share }
}

/// Sums are compared within the rounding of each addition in the type that is computed in; integers exactly. Without an order, an element is
/// any of those set.
fn scattered(op: &str, out: &Host, x: &Host, ids: &Host, case: Case, found: &[u8], what: &str) -> f64 {
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
            _ if op == "scatter_unordered" => {
                // NaN is compared as such: a hit's bits are lost in its value.
                let nan = |value: Value| matches!(value, Value::Real(x) if x.is_nan());
                let any = hits.iter().any(|hit| encode(dtype, *hit) == element || (nan(*hit) && nan(result)));
                if any { 0.0 } else { f64::INFINITY }
            }
            Value::Real(start) if op.ends_with("_unordered") => {
                unordered_share(dtype, start, &hits.iter().map(|hit| hit.real()).collect::<Vec<_>>(), result.real())
            }
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
fn gather_and_scatter_agree_with_the_reference() {
    let seed = seed();
    let known = BTreeSet::from(OPS);
    on_each_device(&known, |suite, table| {
        for (i, op) in OPS.into_iter().enumerate() {
            if full() {
                for (j, dtype) in DType::COMPUTE.into_iter().enumerate() {
                    for (k, index) in INDICES.into_iter().enumerate() {
                        some(suite, table, op, dtype, index, seed + (i * 10_000 + j * 100 + k) as u64, CASES.len());
                    }
                }
                continue;
            }
            // Each operation with a type of its own, and two types of indices for all: nearly all the time goes into compiling.
            let mut random = Random::new(seed + i as u64);
            let (dtype, index) = (DType::COMPUTE[random.below(DType::COMPUTE.len())], INDICES[(seed as usize + i % 2) % INDICES.len()]);
            some(suite, table, op, dtype, index, seed + i as u64, CASES.len());
        }
    });
}

/// No test has memory for more elements than 32 bits count: the kernels for them are launched by hand, on few.
#[test]
fn the_64_bit_index_kernels_agree_with_the_reference() {
    let mut random = Random::new(seed());
    let find = |name: &str| programs().into_iter().find(|(known, _)| known.starts_with(name)).unwrap().1;
    let (rows, columns, picked) = (5, 13, 7);
    for device in devices() {
        let (jit, stream) = (Jit::default(), device.stream().unwrap());
        let kernel = |name: &str, kernel: &str| jit.load(&device, &find(name)).unwrap().kernel(kernel).unwrap();
        let x: Vec<u32> = (0..rows * columns).map(|_| random.next_u64() as u32).collect();
        let mut ids: Vec<u32> = (0..picked).map(|_| random.below(rows + 1) as u32).collect();
        let (on_device, mut out) = (stream.upload(&x).unwrap(), stream.upload(&vec![77u32; picked * columns]).unwrap());
        let dims = |strides: &[[u64; 2]]| {
            let mut dims = vec![0u64; 38];
            dims[..4].copy_from_slice(&[(picked * columns) as u64, 2, columns as u64, picked as u64]);
            strides.iter().enumerate().for_each(|(k, strides)| dims[14 + 6 * k..][..2].copy_from_slice(strides));
            dims
        };
        let (places, wide) = (rows as u64, columns as u64);
        let launch = Launch::new([2, 1, 1], [64, 1, 1]);
        let on_ids = stream.upload(&ids).unwrap();
        let (axis, walked) = ([places, wide, 0, 0, 0], dims(&[[1, wide], [0, 1], [1, 0]]));
        let args = (&mut out, &on_ids, &on_device, Arg::value(&axis), Arg::bytes(bytemuck::cast_slice(&walked)));
        // SAFETY: these are its parameters, and the strides stay within the buffers.
        unsafe { kernel("gather_u32_u32", "gather_u32_u32_scalar64").launch(&stream, launch, args) }.unwrap();
        let gathered = stream.download(&out).unwrap();
        for (i, found) in gathered.iter().enumerate() {
            let wanted = x.get(ids[i / columns] as usize * columns + i % columns).copied().unwrap_or(0);
            assert_eq!(*found, wanted, "element {i} on {}", device.name());
        }
        // Rows of what was gathered are added where they came from: sorted indices, in their order.
        let mut order: Vec<u32> = (0..picked as u32).collect();
        order.sort_by_key(|i| ids[*i as usize]);
        let mut wanted = x.clone();
        for (i, id) in ids.iter().enumerate().filter(|(_, id)| (**id as usize) < rows) {
            (0..columns).for_each(|c| {
                wanted[*id as usize * columns + c] = wanted[*id as usize * columns + c].wrapping_add(gathered[i * columns + c])
            });
        }
        ids.sort_unstable();
        let (mut sums, sorted, order) = (stream.upload(&x).unwrap(), stream.upload(&ids).unwrap(), stream.upload(&order).unwrap());
        let (axis, walked) = ([places, wide, picked as u64, wide, 1], dims(&[[1, wide], [0, 1], [1, 0], [0, 1]]));
        let args = (&mut sums, &sorted, &order, &out, Arg::value(&axis), Arg::bytes(bytemuck::cast_slice(&walked)));
        // SAFETY: as above.
        unsafe { kernel("scatter_add_u32_u32", "scatter_add_u32_u32_scalar64").launch(&stream, launch, args) }.unwrap();
        assert_eq!(stream.download(&sums).unwrap(), wanted, "sums on {}", device.name());
    }
}

/// Additions to narrow elements exchange words. Memory of the application may end within one: nothing beside it is touched, which virtual
/// GPUs check, and the bytes around it show.
#[test]
fn unordered_additions_stay_inside_memory_of_odd_size() {
    for device in devices() {
        let suite = Suite::new(&device);
        let stream = &suite.stream;
        for dtype in [DType::U8, DType::I16, DType::F16, DType::Bf16] {
            let size = dtype.size();
            for elements in [1usize, 2, 3, 5, 7, 1023] {
                let x = vec![
                    encode(dtype, if matches!(dtype, DType::U8 | DType::I16) { Value::Int(1) } else { Value::Real(1.0) });
                    2 * elements
                ];
                let ids: Vec<u32> = (0..2 * elements as u32).map(|i| i % elements as u32).collect();
                let (x, ids) = (stream.upload(&x.concat()).unwrap(), stream.upload(&ids).unwrap());
                let layout = |len: usize| Layout::contiguous(&[len]).unwrap();
                let x = View::of_bytes(&x, dtype, layout(2 * elements)).unwrap();
                let ids = View::new(&ids, layout(2 * elements)).unwrap();
                // Exactly as long as its elements.
                let mut out = HostBuffer::from_vec(&device, vec![0u8; elements * size]).unwrap();
                {
                    let mut out = ViewMut::of_bytes(&mut out, dtype, layout(elements)).unwrap();
                    suite.kernels.scatter_add_unordered(stream, &mut out, &ids, &x, 0).unwrap();
                    suite.kernels.index_add_unordered(stream, &mut out, &ids, &x, 0).unwrap();
                }
                stream.synchronize().unwrap();
                let found = out.as_slice().unwrap().to_vec();
                let four = encode(dtype, if matches!(dtype, DType::U8 | DType::I16) { Value::Int(4) } else { Value::Real(4.0) });
                assert_eq!(found, four.repeat(elements), "{dtype} on {}", device.name());
            }
        }
    }
}
