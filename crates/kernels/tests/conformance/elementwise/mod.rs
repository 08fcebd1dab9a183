//! Each operation of each type in each layout, on each device there is, against a reference of its own.
//!
//! Some pairs of operation and type by default, each operation among them; all pairs in all layouts with `WARPWAVE_TEST_FULL=1`.

pub mod reference;

use std::collections::BTreeSet;

use reference::{Op, reference};
use warpwave_gpu::{Arg, Launch};
use warpwave_jit::Jit;
use warpwave_kernels::{Binary, DType, Layout, Scalar, Unary, View, ViewMut, programs};

use crate::common::values::{Value, decode, draw};
use crate::common::{Random, devices, full, seed};
use crate::suite::{Suite, on_each_device, places, room, share};

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
    for dtype in DType::COMPUTE {
        pairs.extend(unary.clone().filter(|op| op.takes(dtype)).map(|op| (Op::Unary(op), dtype)));
        pairs.extend(Binary::ALL.into_iter().filter(|op| op.takes(dtype)).map(|op| (Op::Binary(op), dtype)));
        let rest = [Op::Copy, Op::Affine(-3.0, 7.0), Op::Affine(1.7, -0.3), Op::Fill(-2.7), Op::Fill(1e6)];
        pairs.extend(rest.into_iter().map(|op| (op, dtype)));
        pairs.extend(DType::COMPUTE.into_iter().filter(|condition| condition.is_integer()).map(|condition| (Op::Where(condition), dtype)));
        pairs.extend(DType::COMPUTE.into_iter().map(|to| (Op::Cast(to), dtype)));
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
    let (mut seen, mut more) = (BTreeSet::new(), 0);
    pairs.retain(|(op, _)| {
        let first = seen.insert(op.name());
        more += usize::from(!first);
        first || more <= MORE
    });
    pairs
}

/// How operands lie; the result's layout first.
const ARRANGEMENTS: [&str; 15] = [
    "contiguous",
    "one element",
    "no elements",
    "long",
    "offset alike",
    "offset each",
    "rows of packs",
    "odd rows",
    "transposed",
    "transposed tiles",
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
        // More than a tile each way, with and without room for packs.
        "transposed tiles" => {
            let (rows, columns) = (64 + 8 * random.below(17), 60 + 4 * random.below(40));
            let (gap, start) = if random.below(2) == 0 { (0, 0) } else { (16 * random.below(2), 16 * random.below(3) + random.below(2)) };
            each(&mut |k| match k {
                0 => offset(Layout::contiguous(&[2, rows, columns]).unwrap(), start),
                _ => Layout::new(&[2, rows, columns], &[columns * (rows + gap) + 16, 1, rows + gap], start).unwrap(),
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

fn launch(suite: &Suite, op: Op, inputs: &[View<'_>], out: &mut ViewMut<'_>) {
    let (kernels, stream) = (&suite.kernels, &suite.stream);
    match op {
        Op::Unary(op) => kernels.unary(stream, op, &inputs[0], out),
        Op::Binary(op) => kernels.binary(stream, op, &inputs[0], &inputs[1], out),
        Op::Where(_) => kernels.where_cond(stream, &inputs[0], &inputs[1], &inputs[2], out),
        Op::Affine(factor, term) => kernels.affine(stream, &inputs[0], factor, term, out),
        Op::Fill(value) => kernels.fill(stream, value, out),
        Op::Copy => kernels.copy(stream, &inputs[0], out),
        Op::Cast(_) => kernels.cast(stream, &inputs[0], out),
    }
    .unwrap_or_else(|error| panic!("{op:?}: {error}"));
}

/// Runs one case; the largest share of its tolerance that an element took.
fn case(suite: &Suite, op: Op, dtype: DType, name: &str, random: &mut Random) -> f64 {
    let (types, result) = op.types(dtype);
    let layouts = arrangement(name, types.len() + 1, random);
    let (out_layout, in_layouts) = layouts.split_first().unwrap();
    let data: Vec<Vec<u8>> = types
        .iter()
        .zip(in_layouts)
        .map(|(dtype, layout)| (0..room(layout, *dtype) / dtype.size()).flat_map(|_| draw(*dtype, random)).collect())
        .collect();
    let poison: Vec<u8> = (0..room(out_layout, result)).map(|_| random.next_u64() as u8).collect();
    let buffers: Vec<_> = data.iter().map(|bytes| suite.stream.upload(bytes).unwrap()).collect();
    let mut out = suite.stream.upload(&poison).unwrap();
    let views: Vec<View<'_>> = buffers
        .iter()
        .zip(types.iter().zip(in_layouts))
        .map(|(buffer, (dtype, layout))| View::of_bytes(buffer, *dtype, *layout).unwrap())
        .collect();
    launch(suite, op, &views, &mut ViewMut::of_bytes(&mut out, result, *out_layout).unwrap());
    let found = suite.stream.download(&out).unwrap();

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
            Op::Where(_) => Some(if inputs[0] == Value::Int(0) { 2 } else { 1 }),
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

#[test]
fn every_operation_agrees_with_the_reference() {
    let seed = seed();
    let pairs = pairs(&mut Random::new(seed));
    let known: BTreeSet<&str> = all_pairs().iter().map(|(op, _)| op.name()).collect();
    on_each_device(&known, |suite, table| {
        for (i, (op, dtype)) in pairs.iter().enumerate() {
            let mut random = Random::new(seed + 1 + i as u64);
            let some = random.below(ARRANGEMENTS.len());
            for (j, name) in ARRANGEMENTS.iter().enumerate() {
                // Always those that end in different kernels, and some of the others.
                if full() || j == 0 || (j + some).is_multiple_of(3) {
                    table.note(op.name(), *dtype, case(suite, *op, *dtype, name, &mut random));
                }
            }
        }
    });
}

/// Tiles that are whole go another way than those at the edges.
#[test]
fn transposing_copies_agree_with_the_reference() {
    let mut random = Random::new(seed());
    for device in devices() {
        let suite = Suite::new(&device);
        for dtype in [DType::U8, DType::Bf16, DType::F32, DType::I64] {
            (0..8).for_each(|_| assert_eq!(case(&suite, Op::Copy, dtype, "transposed tiles", &mut random), 0.0));
        }
    }
}

/// Exponents end in different ways: what each alone decides is looked at once.
#[test]
fn powers_of_any_exponent_agree_with_the_reference() {
    let exponents = [0.0, 1.0, 2.0, 5.0, -1.0, -2.0, 0.5, -0.3, 12.7, -37.0, 300.5, 9999.0, 20_000.0, 3e9, f64::INFINITY, f64::NAN];
    let mut random = Random::new(seed());
    for device in devices() {
        let suite = Suite::new(&device);
        for dtype in [DType::F32, DType::Bf16] {
            for exponent in exponents {
                case(&suite, Op::Unary(Unary::Powf(exponent)), dtype, "contiguous", &mut random);
            }
        }
        case(&suite, Op::Binary(Binary::Pow), DType::F32, "long", &mut random);
    }
}

#[test]
fn in_place_results_equal_out_of_place_results() {
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
fn the_64_bit_kernel_agrees_with_the_reference() {
    let mut random = Random::new(seed());
    let (_, source) = programs().into_iter().find(|(name, _)| name.starts_with("sub_f32_")).unwrap();
    for device in devices() {
        let stream = device.stream().unwrap();
        let kernel = Jit::default().load(&device, &source).unwrap().kernel("sub_f32_scalar64").unwrap();
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

/// On GPUs with enough memory; virtual ones take minutes.
#[test]
fn more_than_2_to_the_31_elements_are_processed() {
    const LEN: usize = (1 << 31) + 4099;
    for device in devices().iter().filter(|device| !device.info().is_virtual) {
        if device.memory().unwrap().free < 16 << 30 {
            eprintln!("skipped on {}: too little memory", device.name());
            continue;
        }
        let Suite { kernels, stream } = Suite::new(device);
        let (mut x, mut out) = (stream.alloc::<u8>(LEN).unwrap(), stream.alloc::<u8>(LEN).unwrap());
        let row = Layout::contiguous(&[LEN]).unwrap();
        // Rows of 7 elements, and columns of 7: element offsets differ between the two.
        let (rows, columns) = (LEN / 7, 7);
        let straight = Layout::contiguous(&[rows, columns]).unwrap();
        let transposed = Layout::new(&[rows, columns], &[1, rows], 0).unwrap();
        kernels.fill(&stream, 3, &mut ViewMut::of_bytes(&mut x, DType::U8, row).unwrap()).unwrap();
        let marks = [0, 1, 77_777, (1 << 31) - 1, 1 << 31, (1 << 31) + 1, rows * columns - 1];
        for (i, mark) in marks.into_iter().enumerate() {
            stream.copy_from_host(&[50 + i as u8], x.slice_mut(mark..mark + 1).unwrap()).unwrap();
        }
        let at = |out: &warpwave_gpu::Buffer<u8>, place: usize| stream.download(out.slice(place..place + 1).unwrap()).unwrap()[0];
        let view = View::of_bytes(&x, DType::U8, row).unwrap();
        kernels.binary(&stream, Binary::Add, &view, &view, &mut ViewMut::of_bytes(&mut out, DType::U8, row).unwrap()).unwrap();
        for (i, mark) in marks.into_iter().enumerate() {
            assert_eq!(at(&out, mark), 100 + 2 * i as u8, "element {mark} of a row");
        }
        assert_eq!((at(&out, LEN - 1), at(&out, (1 << 31) + 2)), (6, 6));
        let view = View::of_bytes(&x, DType::U8, transposed).unwrap();
        let mut to = ViewMut::of_bytes(&mut out, DType::U8, straight).unwrap();
        kernels.unary(&stream, Unary::Sqr, &view, &mut to).unwrap();
        for (i, mark) in marks.into_iter().enumerate() {
            let value = 50 + i as u8;
            assert_eq!(at(&out, mark % rows * columns + mark / rows), value.wrapping_mul(value), "element {mark} transposed");
        }
        let mut to = ViewMut::of_bytes(&mut out, DType::U8, straight).unwrap();
        kernels.copy(&stream, &view, &mut to).unwrap();
        for (i, mark) in marks.into_iter().enumerate() {
            assert_eq!(at(&out, mark % rows * columns + mark / rows), 50 + i as u8, "element {mark} copied");
        }
    }
}
