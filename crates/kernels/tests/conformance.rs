//! Each operation of each type in each layout, on each device there is, against a reference of its own.
//!
//! Some pairs of operation and type by default, each operation among them; all pairs in all layouts with `WARPWAVE_TEST_FULL=1`.

mod common;
mod reference;

use std::collections::BTreeMap;

use common::values::{Value, decode, draw, round, ulp};
use common::{Random, devices, full, seed};
use reference::{Op, reference, tolerance};
use warpwave_gpu::{Arg, Device, Launch, Stream};
use warpwave_jit::Jit;
use warpwave_kernels::{Binary, DType, Kernels, Layout, Scalar, Unary, View, ViewMut, programs};

/// Every operation of every type that it takes.
fn all_pairs() -> Vec<(Op, DType)> {
    use Unary::{Clamp, Elu, Powf};
    // Those with numbers are there with numbers of their own.
    let plain = Unary::ALL.into_iter().filter(|op| !matches!(op, Elu(_) | Powf(_) | Clamp(..)));
    let unary = plain.chain([
        Elu(1.5),
        Elu(0.3),
        Powf(2.0),
        Powf(-1.7),
        Clamp(Scalar::Float(-1.5), Scalar::Float(2.25)),
        Clamp(3.into(), 100.into()),
    ]);
    let mut pairs = Vec::new();
    for dtype in DType::ALL {
        pairs.extend(unary.clone().filter(|op| op.takes(dtype)).map(|op| (Op::Unary(op), dtype)));
        pairs.extend(Binary::ALL.into_iter().filter(|op| op.takes(dtype)).map(|op| (Op::Binary(op), dtype)));
        let rest = [Op::Where, Op::Copy, Op::Affine(-3.0, 7.0), Op::Affine(1.7, -0.3), Op::Fill(-2.7), Op::Fill(1e6)];
        pairs.extend(rest.into_iter().map(|op| (op, dtype)));
        pairs.extend(DType::ALL.into_iter().map(|to| (Op::Cast(to), dtype)));
    }
    pairs
}

/// The pairs of a run: all, or each operation once and some more.
fn pairs(random: &mut Random) -> Vec<(Op, DType)> {
    let mut pairs = all_pairs();
    if full() {
        return pairs;
    }
    for i in (1..pairs.len()).rev() {
        pairs.swap(i, random.below(i + 1));
    }
    // Nearly all the time of a run goes into compiling.
    const MORE: usize = 6;
    let (mut seen, mut more) = (std::collections::BTreeSet::new(), 0);
    pairs.retain(|(op, _)| {
        let first = seen.insert(op.name());
        more += usize::from(!first);
        first || more <= MORE
    });
    pairs
}

/// How operands lie; the result's layout first.
const ARRANGEMENTS: [&str; 14] = [
    "contiguous",
    "one element",
    "no elements",
    "long",
    "offset alike",
    "offset each",
    "rows of packs",
    "odd rows",
    "transposed",
    "all transposed",
    "repeated rows",
    "repeated columns",
    "every other",
    "six dimensions",
];

fn arrangement(name: &str, operands: usize, random: &mut Random) -> Vec<Layout> {
    let each = |make: &mut dyn FnMut(usize) -> Layout| (0..operands).map(make).collect::<Vec<_>>();
    let offset = |layout: Layout, offset: usize| Layout::new(layout.shape(), layout.strides(), offset).unwrap();
    let row = |n: usize| Layout::contiguous(&[n]).unwrap();
    match name {
        "contiguous" => each(&mut |_| Layout::contiguous(&[7, 11, 13]).unwrap()),
        "one element" => each(&mut |k| offset(Layout::contiguous(&[]).unwrap(), k)),
        "no elements" => each(&mut |_| Layout::contiguous(&[3, 0, 5]).unwrap()),
        "long" => {
            let n = 8192 + random.below(2000);
            each(&mut |_| row(n))
        }
        "offset alike" => {
            let (n, start) = (1 + random.below(600), 1 + random.below(16));
            each(&mut |_| offset(row(n), start))
        }
        "offset each" => {
            let n = 1 + random.below(600);
            each(&mut |_| offset(row(n), random.below(17)))
        }
        "rows of packs" => each(&mut |_| Layout::rows(9, 32, 32 + 16 * random.below(3), 16 * random.below(3)).unwrap()),
        "odd rows" => {
            let columns = 1 + random.below(40);
            each(&mut |_| Layout::rows(9, columns, columns + random.below(5), random.below(7)).unwrap())
        }
        "transposed" => {
            let (rows, columns) = (1 + random.below(30), 1 + random.below(40));
            each(&mut |k| match k {
                1 => Layout::contiguous(&[columns, rows]).unwrap().transpose(0, 1).unwrap(),
                _ => Layout::contiguous(&[rows, columns]).unwrap(),
            })
        }
        "all transposed" => each(&mut |_| Layout::contiguous(&[5, 6, 33]).unwrap().transpose(0, 2).unwrap()),
        "repeated rows" => each(&mut |k| match k {
            0 => Layout::contiguous(&[6, 10, 48]).unwrap(),
            _ => Layout::contiguous(if k % 2 == 0 { &[1, 48] } else { &[10, 48] }).unwrap().broadcast_to(&[6, 10, 48]).unwrap(),
        }),
        "repeated columns" => each(&mut |k| match k {
            0 => Layout::contiguous(&[21, 32]).unwrap(),
            1 => Layout::contiguous(&[21, 1]).unwrap().broadcast_to(&[21, 32]).unwrap(),
            _ => offset(Layout::contiguous(&[1, 1]).unwrap().broadcast_to(&[21, 32]).unwrap(), 3),
        }),
        "every other" => each(&mut |k| match k {
            0 => Layout::new(&[11, 19], &[60, 3], 2).unwrap(),
            _ => Layout::new(&[11, 19], &[50, 2], random.below(9)).unwrap(),
        }),
        "six dimensions" => each(&mut |k| {
            let layout = Layout::contiguous(&[2, 3, 2, 5, 3, 4]).unwrap();
            if k == 0 { layout } else { Layout::new(layout.shape(), &[1, 7, 30, 100, 700, 3000], k).unwrap() }
        }),
        _ => unreachable!(),
    }
}

/// Every index's place, in the order of the indices.
fn places(layout: &Layout) -> Vec<usize> {
    let mut places = vec![layout.offset()];
    for (size, stride) in layout.shape().iter().zip(layout.strides()) {
        places = places.iter().flat_map(|place| (0..*size).map(move |i| place + i * stride)).collect();
    }
    places
}

/// Elements behind the last that a layout reaches: they must stay as they are.
const BEHIND: usize = 5;

fn room(layout: &Layout, dtype: DType) -> usize {
    let last = places(layout).into_iter().max().unwrap_or(0);
    (last + 1 + BEHIND) * dtype.size()
}

struct Suite {
    kernels: Kernels,
    stream: Stream,
}

impl Suite {
    fn new(device: &Device) -> Suite {
        Suite { kernels: Kernels::new(device, &Jit::default()), stream: device.stream().unwrap() }
    }

    fn launch(&self, op: Op, inputs: &[View<'_>], out: &mut ViewMut<'_>) {
        let (kernels, stream) = (&self.kernels, &self.stream);
        match op {
            Op::Unary(op) => kernels.unary(stream, op, &inputs[0], out),
            Op::Binary(op) => kernels.binary(stream, op, &inputs[0], &inputs[1], out),
            Op::Where => kernels.where_cond(stream, &inputs[0], &inputs[1], &inputs[2], out),
            Op::Affine(factor, term) => kernels.affine(stream, &inputs[0], factor, term, out),
            Op::Fill(value) => kernels.fill(stream, value, out),
            Op::Copy => kernels.copy(stream, &inputs[0], out),
            Op::Cast(_) => kernels.cast(stream, &inputs[0], out),
        }
        .unwrap_or_else(|error| panic!("{op:?}: {error}"));
    }

    /// Runs one case; the largest share of its tolerance that an element took.
    fn case(&self, op: Op, dtype: DType, name: &str, random: &mut Random) -> f64 {
        let (types, result) = op.types(dtype);
        let layouts = arrangement(name, types.len() + 1, random);
        let (out_layout, in_layouts) = layouts.split_first().unwrap();
        let data: Vec<Vec<u8>> = types
            .iter()
            .zip(in_layouts)
            .map(|(dtype, layout)| (0..room(layout, *dtype) / dtype.size()).flat_map(|_| draw(*dtype, random)).collect())
            .collect();
        let poison: Vec<u8> = (0..room(out_layout, result)).map(|_| random.next() as u8).collect();
        let buffers: Vec<_> = data.iter().map(|bytes| self.stream.upload(bytes).unwrap()).collect();
        let mut out = self.stream.upload(&poison).unwrap();
        let views: Vec<View<'_>> = buffers
            .iter()
            .zip(types.iter().zip(in_layouts))
            .map(|(buffer, (dtype, layout))| View::of_bytes(buffer, *dtype, *layout).unwrap())
            .collect();
        self.launch(op, &views, &mut ViewMut::of_bytes(&mut out, result, *out_layout).unwrap());
        let found = self.stream.download(&out).unwrap();

        let (mut untouched, mut worst) = (poison, 0f64);
        let in_places: Vec<Vec<usize>> = in_layouts.iter().map(places).collect();
        for (i, place) in places(out_layout).into_iter().enumerate() {
            let element = |k: usize| &data[k][in_places[k][i] * types[k].size()..][..types[k].size()];
            let inputs: Vec<Value> = (0..types.len()).map(|k| decode(types[k], element(k))).collect();
            let bytes = &found[place * result.size()..][..result.size()];
            untouched[place * result.size()..][..result.size()].copy_from_slice(bytes);
            let (wanted, ulps) = reference(op, dtype, &inputs);
            // What is only moved keeps its bits.
            let moved = match op {
                Op::Copy => Some(0),
                Op::Cast(to) if to == dtype => Some(0),
                Op::Where => Some(if inputs[0] == Value::Int(0) { 2 } else { 1 }),
                _ => None,
            };
            let share = match moved {
                Some(k) if element(k) == bytes => 0.0,
                Some(_) => f64::INFINITY,
                None => share(result, decode(result, bytes), wanted, ulps),
            };
            let fits = share <= 1.0;
            assert!(
                fits,
                "{op:?} of {dtype}, {name}, {layouts:?}: element {i} of {inputs:?} is {:?}, should be {wanted:?}: {share} of the tolerance",
                decode(result, bytes)
            );
            worst = worst.max(share);
        }
        assert!(untouched == found, "{op:?} of {dtype}, {name}: something beside the result was written");
        worst
    }
}

/// The share of its tolerance that a result takes; above 1 it is wrong.
fn share(dtype: DType, found: Value, wanted: Value, ulps: Option<f64>) -> f64 {
    let wrong = |wrong: bool| if wrong { f64::INFINITY } else { 0.0 };
    let (Value::Real(found), Value::Real(wanted)) = (found, wanted) else { return wrong(found != wanted) };
    let nearest = round(dtype, wanted);
    if found == nearest || (found.is_nan() && nearest.is_nan()) {
        return 0.0;
    }
    let Some(ulps) = ulps else { return f64::INFINITY };
    if found.is_nan() || nearest.is_nan() || wanted.is_infinite() {
        return f64::INFINITY;
    }
    // Infinity is where the next number would be.
    let largest = common::values::format(dtype).2;
    let at = if found.is_infinite() { (largest / 2.0 + ulp(dtype, largest) / 2.0).copysign(found) } else { found / 2.0 };
    let limit = round(dtype, wanted).clamp(-largest, largest);
    let reference = if wanted.abs() > largest { limit } else { wanted };
    (at - reference / 2.0).abs() * 2.0 / ulp(dtype, reference) / tolerance(dtype, ulps)
}

#[test]
fn every_operation_agrees_with_the_reference() {
    let seed = seed();
    let pairs = pairs(&mut Random::new(seed));
    let devices = devices();
    let run = |device: &Device| {
        let suite = Suite::new(device);
        let mut rows: BTreeMap<&str, (usize, Vec<DType>, f64)> = BTreeMap::new();
        for (i, (op, dtype)) in pairs.iter().enumerate() {
            let mut random = Random::new(seed + 1 + i as u64);
            let some = random.below(ARRANGEMENTS.len());
            for (j, name) in ARRANGEMENTS.iter().enumerate() {
                // Always those that end in different kernels, and some of the others.
                if !full() && j > 0 && !(j + some).is_multiple_of(3) {
                    continue;
                }
                let worst = suite.case(*op, *dtype, name, &mut random);
                let row = rows.entry(op.name()).or_default();
                row.0 += 1;
                row.2 = row.2.max(worst);
                if !row.1.contains(dtype) {
                    row.1.push(*dtype);
                }
            }
        }
        rows
    };
    // The compiler runs beside the devices: one thread for each.
    let tables: Vec<_> = std::thread::scope(|scope| {
        let running: Vec<_> = devices.iter().map(|device| scope.spawn(|| run(device))).collect();
        running.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    let total: usize = tables.iter().flat_map(BTreeMap::values).map(|row| row.0).sum();
    eprintln!("{total} cases; cases, types and the largest share of the tolerance:");
    eprintln!("{:10}{}", "op", devices.iter().map(|device| format!("{:>28}", device.name())).collect::<String>());
    let known: std::collections::BTreeSet<&str> = all_pairs().iter().map(|(op, _)| op.name()).collect();
    for op in known {
        let cell = |table: &BTreeMap<&str, (usize, Vec<DType>, f64)>| {
            let (cases, types, worst) = table.get(op).unwrap_or_else(|| panic!("{op} was left out"));
            format!("{:>28}", format!("{cases} cases, {} types, {worst:.2}", types.len()))
        };
        eprintln!("{op:10}{}", tables.iter().map(cell).collect::<String>());
    }
}

#[test]
fn results_in_place_are_those_elsewhere() {
    let mut random = Random::new(seed());
    for device in devices() {
        let Suite { kernels, stream } = Suite::new(&device);
        let bytes: Vec<u8> = (0..900).flat_map(|_| draw(DType::F32, &mut random)).collect();
        let layout = Layout::rows(20, 30, 44, 3).unwrap();
        let (mut here, from) = (stream.upload(&bytes).unwrap(), stream.upload(&bytes).unwrap());
        let mut there = stream.upload(&bytes).unwrap();
        let source = View::of_bytes(&from, DType::F32, layout).unwrap();
        let repeated = View::of_bytes(&from, DType::F32, Layout::rows(20, 30, 0, 7).unwrap()).unwrap();
        for step in 0..3 {
            let mut other = ViewMut::of_bytes(&mut there, DType::F32, layout).unwrap();
            let mut own = ViewMut::of_bytes(&mut here, DType::F32, layout).unwrap();
            kernels.copy(&stream, &source, &mut own).unwrap();
            match step {
                0 => {
                    kernels.unary(&stream, Unary::Silu, &source, &mut other).unwrap();
                    kernels.unary_in_place(&stream, Unary::Silu, &mut own).unwrap();
                }
                1 => {
                    kernels.binary(&stream, Binary::Mul, &source, &repeated, &mut other).unwrap();
                    kernels.binary_in_place(&stream, Binary::Mul, &mut own, &repeated).unwrap();
                }
                _ => {
                    kernels.affine(&stream, &source, 2.5, 1, &mut other).unwrap();
                    kernels.affine_in_place(&stream, &mut own, 2.5, 1).unwrap();
                }
            }
            assert!(stream.download(&here).unwrap() == stream.download(&there).unwrap(), "step {step} on {}", device.name());
        }
    }
}

/// No test has memory for more elements than 32 bits count: the kernel for them is launched by hand, on few.
#[test]
fn the_kernel_of_64_bits_agrees_with_the_reference() {
    let mut random = Random::new(seed());
    let (_, source) = programs().into_iter().find(|(name, _)| name == "sub_f32").unwrap();
    for device in devices() {
        let stream = device.stream().unwrap();
        let kernel = Jit::default().load(&device, &source).unwrap().kernel("sub_f32_single64").unwrap();
        let mut numbers = |n: usize| (0..n).map(|_| random.unit() as f32).collect::<Vec<_>>();
        let (a, b) = (numbers(7 * 11 * 13), numbers(13));
        let (device_a, device_b) = (stream.upload(&a).unwrap(), stream.upload(&b).unwrap());
        let mut out = stream.upload(&numbers(7 * 11 * 13)).unwrap();
        // The innermost dimension first: the first input lies the other way round, the second is repeated.
        let mut dims = vec![0u64; 38];
        dims[..5].copy_from_slice(&[7 * 11 * 13, 3, 13, 11, 7]);
        for (operand, strides) in [[1, 13, 143], [77, 7, 1], [1, 0, 0]].iter().enumerate() {
            dims[14 + 6 * operand..][..3].copy_from_slice(strides);
        }
        let (none, scalars) = (0u64, [0u64; 4]);
        let args = (&mut out, &device_a, &device_b, none, Arg::value(&scalars), Arg::bytes(bytemuck::cast_slice(&dims)));
        // SAFETY: these are its parameters, and the strides stay within the buffers.
        unsafe { kernel.launch(&stream, Launch::new([3, 1, 1], [64, 1, 1]), args) }.unwrap();
        let found = stream.download(&out).unwrap();
        for (i, found) in found.into_iter().enumerate() {
            let (x, y, z) = (i % 13, i / 13 % 11, i / 143);
            assert_eq!(found, a[x * 77 + y * 7 + z] - b[x], "element {i} on {}", device.name());
        }
    }
}
