//! Quantized weights of each type: what they stand for, how they are made, and their products with vectors.
//!
//! Some pairs of operation and type by default, each of both among them; all pairs with `WARPWAVE_TEST_FULL=1`.

mod grouped;
mod reference;

use std::collections::BTreeSet;

use half::f16;
use reference::{Varlen, pack_int4, pack_int8, pack_q8k, pack32, searched};
use warpwave_gpu::{Buffer, Stream};
use warpwave_kernels::{ActivationPrecision, DType, Error, Kernels, Layout, Quant, QuantView, QuantViewMut, View, ViewMut};

use crate::common::values::{Value, decode, encode, format, round, ulp};
use crate::common::{Random, devices, full, seed};
use crate::suite::{BEHIND, Suite, on_each_device, places, room};

const OPS: [&str; 7] =
    ["quantize", "dequantize", "quant_matmul", "quant_matmul rounded", "quant_matmul float16", "quant_matmul int8", "quant_matmul tiles"];
const PRECISIONS: [ActivationPrecision; 4] =
    [ActivationPrecision::F32, ActivationPrecision::Int16, ActivationPrecision::Float16, ActivationPrecision::Int8];
const FLOATS: [DType; 3] = [DType::F32, DType::F16, DType::Bf16];

/// Random blocks. Scales are of ordinary size, or any.
fn draw(quant: Quant, rows: usize, columns: usize, any: bool, random: &mut Random) -> Varlen {
    let blocks = rows * columns / quant.block_size();
    let mut codes: Vec<u8> = (0..blocks * quant.block_bytes()).map(|_| random.next_u64() as u8).collect();
    let scale = |random: &mut Random| -> f32 {
        let extremes = [0.0, 65504.0, -65504.0, f32::from(f16::from_bits(1)), -f32::from(f16::from_bits(77)), 1.0];
        let value = if any && random.below(3) == 0 { extremes[random.below(6)] } else { (random.unit() as f32 - 0.3) * 0.05 };
        f16::from_f32(value).to_f32()
    };
    let at: &[usize] = match quant {
        Quant::Q4_0 | Quant::Q5_0 | Quant::Q8_0 | Quant::Iq4Nl | Quant::Iq4Xs => &[0],
        Quant::Q2K => &[80, 82],
        Quant::Q3K => &[108],
        Quant::Q6K => &[208],
        Quant::Int8 | Quant::Int4(_) | Quant::Q8K | Quant::Mxfp4 => &[],
        _ => &[0, 2],
    };
    for block in codes.chunks_mut(quant.block_bytes()) {
        for at in at {
            block[*at..at + 2].copy_from_slice(&f16::from_f32(scale(random)).to_le_bytes());
        }
        match quant {
            Quant::Q8K => block[..4].copy_from_slice(&scale(random).to_le_bytes()),
            // The smallest scales are subnormal.
            Quant::Mxfp4 if any && random.below(3) == 0 => block[0] = [0, 1, 2, 60, 180][random.below(5)],
            Quant::Mxfp4 => block[0] = 110 + random.below(20) as u8,
            _ => {}
        }
        if any && random.below(8) == 0 {
            block.fill(0);
        }
    }
    let scales = match quant {
        Quant::Int8 => rows,
        Quant::Int4(group) => rows * columns / group,
        _ => 0,
    };
    let zeros = (matches!(quant, Quant::Int4(_)) && random.below(2) == 0).then(|| (0..scales).map(|_| random.below(16) as u8).collect());
    Varlen { quant, shape: [rows, columns], codes, scales: (0..scales).map(|_| scale(random)).collect(), zeros }
}

/// Quantized rows on a device, with bytes in front and behind that are not theirs.
struct OnDevice {
    codes: Buffer<u8>,
    floats: Buffer<f32>,
    halves: Buffer<f16>,
    zeros: Option<Buffer<u8>>,
    front: usize,
}

impl OnDevice {
    fn new(stream: &Stream, packed: &Varlen, front: usize) -> OnDevice {
        let codes = [&vec![0xa5; front][..], &packed.codes, &[0x5a; BEHIND]].concat();
        let halves: Vec<f16> = packed.scales.iter().map(|scale| f16::from_f32(*scale)).collect();
        OnDevice {
            codes: stream.upload(&codes).unwrap(),
            floats: stream.upload(&packed.scales).unwrap(),
            halves: stream.upload(&halves).unwrap(),
            zeros: packed.zeros.as_ref().map(|zeros| stream.upload(zeros).unwrap()),
            front,
        }
    }

    fn view(&self, quant: Quant, [rows, columns]: [usize; 2]) -> QuantView<'_> {
        let codes = self.codes.slice(self.front..).unwrap();
        match quant {
            Quant::Int8 => QuantView::int8(codes, &self.floats, rows, columns),
            Quant::Int4(group) => QuantView::int4(codes, &self.halves, self.zeros.as_ref().map(|zeros| zeros.view()), group, rows, columns),
            _ => QuantView::new(quant, codes, rows, columns),
        }
        .unwrap()
    }

    fn view_mut(&mut self, quant: Quant, [rows, columns]: [usize; 2]) -> QuantViewMut<'_> {
        let codes = self.codes.slice_mut(self.front..).unwrap();
        match quant {
            Quant::Int8 => QuantViewMut::int8(codes, &mut self.floats, rows, columns),
            Quant::Int4(group) => {
                QuantViewMut::int4(codes, &mut self.halves, self.zeros.as_mut().map(|zeros| zeros.view_mut()), group, rows, columns)
            }
            _ => QuantViewMut::new(quant, codes, rows, columns),
        }
        .unwrap()
    }
}

/// A matrix's layout: without gaps, with gaps and offset, or transposed.
fn matrix(rows: usize, columns: usize, random: &mut Random) -> Layout {
    match random.below(4) {
        0 | 1 => Layout::contiguous(&[rows, columns]).unwrap(),
        2 => Layout::rows(rows, columns, columns + random.below(9), random.below(9)).unwrap(),
        _ => Layout::contiguous(&[columns, rows]).unwrap().transpose(0, 1).unwrap(),
    }
}

/// Where the bytes of a view may begin.
fn front(random: &mut Random, quant: Quant) -> usize {
    let least = match quant {
        Quant::Mxfp4 => 1 + 2 * random.below(4),
        Quant::Q4_0 | Quant::Q5_0 | Quant::Q8_0 | Quant::Q3K | Quant::Q6K | Quant::Iq4Nl => 2,
        _ => 8,
    };
    [0, 0, 16, 4, least][random.below(5)]
}

/// Compares a result with what is wanted and how far it may be off; the largest share of that. What lies beside is as it was.
fn compare(what: &str, dtype: DType, layout: &Layout, poison: &[u8], found: &[u8], wanted: &[(f64, f64)]) -> f64 {
    let (mut untouched, mut worst) = (poison.to_vec(), 0f64);
    for (place, (wanted, allowed)) in places(layout).into_iter().zip(wanted) {
        let at = place * dtype.size()..(place + 1) * dtype.size();
        let value = decode(dtype, &found[at.clone()]).real();
        untouched[at.clone()].copy_from_slice(&found[at]);
        // Infinity is where the next number would be.
        let largest = format(dtype).2;
        let at = if value.is_infinite() { (largest + ulp(dtype, largest)).copysign(value) } else { value };
        let off = (at - wanted).abs();
        let share = if value == round(dtype, *wanted) { 0.0 } else { off / (allowed + ulp(dtype, *wanted) / 2.0) };
        assert!(share <= 1.0, "{what} to {dtype}, {layout:?}: {value} at {place} should be {wanted} within {allowed}");
        worst = worst.max(share);
    }
    assert!(untouched == found, "{what} to {dtype}: something beside the result was written");
    worst
}

fn dequantize(suite: &Suite, quant: Quant, dtype: DType, random: &mut Random) -> f64 {
    let (rows, columns) = (1 + random.below(6), 256 * (1 + random.below(3)));
    let packed = draw(quant, rows, columns, true, random);
    let device = OnDevice::new(&suite.stream, &packed, front(random, quant));
    let layout = matrix(rows, columns, random);
    let poison: Vec<u8> = (0..room(&layout, dtype)).map(|_| random.next_u64() as u8).collect();
    let mut out = suite.stream.upload(&poison).unwrap();
    let mut view = ViewMut::of_bytes(&mut out, dtype, layout).unwrap();
    suite.kernels.dequantize(&suite.stream, &device.view(quant, packed.shape), &mut view).unwrap();
    let found = suite.stream.download(&out).unwrap();
    // Rounded to f32 first, then to the result's type: nothing may be off.
    let exact = |row, column| round(DType::F32, packed.weight(row, column).value());
    let wanted: Vec<f64> = (0..rows).flat_map(|row| (0..columns).map(move |column| exact(row, column))).collect();
    let mut untouched = poison;
    for (place, wanted) in places(&layout).into_iter().zip(wanted) {
        let at = place * dtype.size()..(place + 1) * dtype.size();
        let value = decode(dtype, &found[at.clone()]).real();
        assert_eq!(value, round(dtype, wanted), "{quant} to {dtype}, {layout:?}, at {place}");
        untouched[at.clone()].copy_from_slice(&found[at]);
    }
    assert!(untouched == found, "{quant} to {dtype}: something beside the result was written");
    0.0
}

/// Numbers to quantize: of ordinary size, with runs of zeros, of equal ones, and of very small and large ones. Among the rough ones are
/// such as have many in the middle between codes.
fn numbers(n: usize, dtype: DType, rough: bool, random: &mut Random) -> Vec<f32> {
    let mut numbers = Vec::new();
    while numbers.len() < n {
        let (kind, one) = (random.below(12), random.unit() * 4.0 - 2.0);
        for _ in 0..32 {
            let value = random.unit() + random.unit() + random.unit() - 1.5;
            numbers.push(match kind {
                0 => 0.0,
                1 => one,
                2 => value * 1e-6,
                3 => value * 3e4,
                4 => value.abs(),
                5 if rough => (value * 4.0).round() / 4.0,
                _ => value,
            });
        }
    }
    numbers.truncate(n);
    numbers.into_iter().map(|value| round(dtype, value) as f32).collect()
}

/// Elements of a type at the places of a layout, with others between.
fn placed(values: &[f32], dtype: DType, layout: &Layout) -> Vec<u8> {
    let mut bytes = vec![0xff; room(layout, dtype)];
    for (place, value) in places(layout).into_iter().zip(values) {
        bytes[place * dtype.size()..][..dtype.size()].copy_from_slice(&encode(dtype, Value::Real(f64::from(*value))));
    }
    bytes
}

fn quantize(suite: &Suite, quant: Quant, dtype: DType, random: &mut Random) -> f64 {
    // Types compared by their error only: enough elements that chance does not favor one side.
    let by_error = quant.block_size() == 256 || quant == Quant::Iq4Nl;
    let (rows, columns) = if by_error { (2, 256 * 8) } else { (1 + random.below(4), 256 * (1 + random.below(3))) };
    let x = numbers(rows * columns, dtype, !by_error, random);
    let layout = matrix(rows, columns, random);
    let input = suite.stream.upload(&placed(&x, dtype, &layout)).unwrap();
    let mut wanted = draw(quant, rows, columns, false, random);
    let mut device = OnDevice::new(&suite.stream, &wanted, front(random, quant));
    let view = View::of_bytes(&input, dtype, layout).unwrap();
    suite.kernels.quantize(&suite.stream, &view, &mut device.view_mut(quant, wanted.shape)).unwrap();
    let bytes = suite.stream.download(&device.codes).unwrap();
    let (before, rest) = bytes.split_at(device.front);
    let (codes, behind) = rest.split_at(wanted.codes.len());
    assert!(before.iter().all(|byte| *byte == 0xa5) && behind == [0x5a; BEHIND], "{quant}: something beside the blocks was written");
    match quant {
        Quant::Q2K | Quant::Q3K | Quant::Q4K | Quant::Q5K | Quant::Q6K | Quant::Iq4Nl | Quant::Iq4Xs => {
            let found = Varlen { codes: codes.to_vec(), ..wanted };
            return errors(&x, &found);
        }
        Quant::Q8K => wanted.codes = x.chunks(256).flat_map(pack_q8k).collect(),
        Quant::Int8 => {
            let packed: Vec<_> = x.chunks(columns).map(pack_int8).collect();
            wanted.scales = packed.iter().map(|row| row.1).collect();
            wanted.codes = packed.into_iter().flat_map(|row| row.0).collect();
            assert_eq!(suite.stream.download(&device.floats).unwrap(), wanted.scales, "{quant} of {dtype}");
        }
        Quant::Int4(group) => {
            let packed: Vec<_> = x.chunks(group).map(|group| pack_int4(group, wanted.zeros.is_some())).collect();
            let scales: Vec<f16> = packed.iter().map(|group| group.1).collect();
            assert_eq!(suite.stream.download(&device.halves).unwrap(), scales, "{quant} of {dtype}");
            if let Some(zeros) = &device.zeros {
                assert_eq!(suite.stream.download(zeros).unwrap(), packed.iter().map(|group| group.2).collect::<Vec<_>>());
            }
            wanted.codes = packed.into_iter().flat_map(|group| group.0).collect();
        }
        _ => wanted.codes = x.chunks(32).flat_map(|block| pack32(quant, block)).collect(),
    }
    for (i, (found, wanted)) in codes.chunks(quant.block_bytes()).zip(wanted.codes.chunks(quant.block_bytes())).enumerate() {
        assert_eq!(found, wanted, "{quant} of {dtype}, block {i}: {:?}", &x[i * quant.block_size()..][..quant.block_size()]);
    }
    0.0
}

/// The error of blocks of 256 beside that of a plain search, which they may exceed by a few parts in a hundred.
fn errors(x: &[f32], found: &Varlen) -> f64 {
    let columns = found.shape[1];
    let (mut own, mut plain) = (0.0, 0.0);
    // Errors are weighted by squares, or by magnitudes.
    let power = if matches!(found.quant, Quant::Q2K | Quant::Q4K | Quant::Q5K) { 3 } else { 4 };
    for (i, block) in x.chunks(256).enumerate() {
        // Each block counts alike, whatever its size.
        let size: f64 = block.iter().map(|v| f64::from(*v).abs().powi(power)).sum();
        for (k, (v, (other, weight))) in block.iter().zip(searched(found.quant, block)).enumerate() {
            let (v, value) = (f64::from(*v), found.weight(i * 256 / columns, i * 256 % columns + k).value());
            own += weight * (value - v).powi(2) / size.max(1e-300);
            plain += weight * (other - v).powi(2) / size.max(1e-300);
        }
    }
    let allowed = 1.04 * plain + 1e-9;
    assert!(own <= allowed, "{}: off by {own}, a plain search by {plain}", found.quant);
    own / allowed
}

/// With `many` there are more rows than a device computes at a time.
fn product(suite: &Suite, op: &str, quant: Quant, dtype: DType, many: bool, random: &mut Random) -> f64 {
    let vectors = match op {
        "quant_matmul tiles" => 9 + random.below(90),
        "quant_matmul int8" => [1, 1, 2, 3, 4, 7, 8][random.below(7)],
        // More take too long on a virtual GPU.
        "quant_matmul float16" => [2, 8, 17, 31, 64, 65, 129, 200][random.below(if suite.is_virtual() { 6 } else { 8 })],
        _ => [1, 1, 2, 3, 4, 7, 8, 9, 17, 33][random.below(10)],
    };
    // More than a chunk sometimes, more rows than two waves have, and a part of a tile.
    let (rows, columns) = (1 + random.below(21), 256 * [1, 2, 3, 9][random.below(4)]);
    let columns = if quant.block_size() <= 128 && random.below(2) == 0 { columns + 128 } else { columns };
    let tiled = matches!(op, "quant_matmul tiles" | "quant_matmul float16");
    let rows = if tiled && random.below(4) == 0 { rows + 120 } else { rows };
    let (rows, columns) =
        if many { (if vectors > 9 { 500 } else { 5000 } + random.below(1000), columns.min(512)) } else { (rows, columns) };
    let packed = draw(quant, rows, columns, dtype == DType::F32 && op != "quant_matmul float16" && random.below(3) == 0, random);
    // Of ordinary magnitude, or adjacent ones of very different magnitudes.
    let rough = random.below(3) == 0;
    let size = |random: &mut Random| if rough { [1.0, 1e-4, 0.03, 2e3][random.below(4)] } else { 1.0 };
    let x: Vec<f32> = (0..vectors * columns).map(|_| round(dtype, (random.unit() * 2.0 - 1.0) * size(random)) as f32).collect();
    let (x_layout, layout) = (matrix(vectors, columns, random), matrix(vectors, rows, random));
    let input = suite.stream.upload(&placed(&x, dtype, &x_layout)).unwrap();
    let device = OnDevice::new(&suite.stream, &packed, front(random, quant));
    let poison: Vec<u8> = (0..room(&layout, dtype)).map(|_| random.next_u64() as u8).collect();
    let mut out = suite.stream.upload(&poison).unwrap();
    let (weights, view) = (device.view(quant, packed.shape), View::of_bytes(&input, dtype, x_layout).unwrap());
    // They are: what was before this has come to its end.
    let weights = if random.below(2) == 0 { weights.prefetchable() } else { weights };
    let activations = match op {
        "quant_matmul" => ActivationPrecision::F32,
        "quant_matmul rounded" => ActivationPrecision::Int16,
        "quant_matmul float16" => ActivationPrecision::Float16,
        _ => ActivationPrecision::Int8,
    };
    let mut target = ViewMut::of_bytes(&mut out, dtype, layout).unwrap();
    suite.kernels.quant_matmul(&suite.stream, &weights, &view, &mut target, activations).unwrap();
    let found = suite.stream.download(&out).unwrap();

    let exact: Vec<f64> = match activations {
        ActivationPrecision::F32 | ActivationPrecision::Int16 | ActivationPrecision::Float16 => x.iter().map(|v| f64::from(*v)).collect(),
        ActivationPrecision::Int8 => {
            let codes = x.chunks(32).flat_map(|block| pack32(Quant::Q8_1, block)).collect();
            let packed = Varlen { quant: Quant::Q8_1, shape: [vectors, columns], codes, scales: Vec::new(), zeros: None };
            (0..vectors * columns).map(|i| packed.weight(i / columns, i % columns).value()).collect()
        }
    };
    let weight: Vec<_> = (0..rows * columns).map(|i| packed.weight(i / columns, i % columns)).collect();
    let mut wanted = Vec::new();
    for x in exact.chunks(columns) {
        // How far each element may be from what it was: half a unit of the integer, and a little, for what it is multiplied with to
        // become one is rounded too.
        let off = |block: &[f64]| block.iter().fold(0f64, |most, x| most.max(x.abs())) / 32512.0 * 0.51;
        let off: Vec<f64> = x.chunks(32).map(|x| if activations == ActivationPrecision::Int16 { off(x) } else { 0.0 }).collect();
        for w in weight.chunks(columns) {
            let sum: f64 = w.iter().zip(x).map(|(w, x)| w.value() * x).sum();
            let size: f64 = w.iter().zip(x).map(|(w, x)| w.size() * x.abs()).sum();
            let rounded: f64 = w.iter().enumerate().map(|(i, w)| w.size() * off[i / 32]).sum();
            // Activations, scales, minimums and weights are rounded to f16; a sixteenth of x and 16 times the weights may be flushed to 0.
            let tiny: f64 = w.iter().zip(x).map(|(w, x)| w.size() * 2f64.powi(-10) + x.abs() * 2f64.powi(-18)).sum();
            let half = if op == "quant_matmul float16" { 3.01 * size * 2f64.powi(-11) + tiny } else { 0.0 };
            wanted.push((sum, 24.0 * size * 2f64.powi(-24) + rounded + half));
        }
    }
    compare(&format!("{op} of {quant}, {rows} × {columns} with {vectors}"), dtype, &layout, &poison, &found, &wanted)
}

/// Each operation and each type, or all pairs.
fn pairs(random: &mut Random) -> Vec<(&'static str, Quant, DType)> {
    let mut pairs = Vec::new();
    for quant in Quant::ALL {
        for op in OPS {
            pairs.extend(FLOATS.map(|dtype| (op, quant, dtype)));
        }
    }
    if full() {
        return pairs;
    }
    for i in (1..pairs.len()).rev() {
        pairs.swap(i, random.below(i + 1));
    }
    let (mut ops, mut types, mut more) = (BTreeSet::new(), BTreeSet::new(), 0);
    pairs.retain(|(op, quant, _)| {
        let first = ops.insert(*op) | types.insert(format!("{quant:?}"));
        more += usize::from(!first);
        first || more <= 2
    });
    pairs
}

#[test]
fn quantized_weights_agree_with_the_reference() {
    let seed = seed();
    let pairs = pairs(&mut Random::new(seed));
    on_each_device(&BTreeSet::from(OPS), |suite, table| {
        for (i, (op, quant, dtype)) in pairs.iter().enumerate() {
            let mut random = Random::new(seed + 1 + i as u64);
            for repeat in 0..3 {
                let share = match *op {
                    "quantize" => quantize(suite, *quant, *dtype, &mut random),
                    "dequantize" => dequantize(suite, *quant, *dtype, &mut random),
                    op => product(suite, op, *quant, *dtype, repeat == 2 && suite.fills(), &mut random),
                };
                table.note(op, *dtype, share);
            }
        }
    });
}

#[test]
fn empty_quantized_products() {
    for device in devices() {
        let Suite { kernels, stream } = Suite::new(&device);
        let empty = stream.alloc::<u8>(0).unwrap();
        let x = stream.alloc::<f32>(0).unwrap();
        let mut out = stream.upload(&[7f32; 6]).unwrap();
        let none = QuantView::new(Quant::Q4_0, &empty, 3, 0).unwrap();
        for activations in PRECISIONS {
            stream.fill(&mut out, 7f32).unwrap();
            let x = View::new(&x, Layout::contiguous(&[2, 0]).unwrap()).unwrap();
            let mut view = ViewMut::new(&mut out, Layout::contiguous(&[2, 3]).unwrap()).unwrap();
            kernels.quant_matmul(&stream, &none, &x, &mut view, activations).unwrap();
            assert_eq!(stream.download(&out).unwrap(), [0f32; 6], "sums of nothing are 0");
        }
        let mut rest = ViewMut::new(&mut out, Layout::contiguous(&[0, 64]).unwrap()).unwrap();
        kernels.dequantize(&stream, &QuantView::new(Quant::Q4_0, &empty, 0, 64).unwrap(), &mut rest).unwrap();
    }
}

#[test]
fn invalid_quantized_views_and_calls_are_rejected() {
    let devices = devices();
    for (k, device) in devices.iter().enumerate() {
        let Suite { kernels, stream } = Suite::new(device);
        let mut bytes = stream.upload(&[1u8; 4 * 72]).unwrap();
        let whole = || bytes.view();
        assert!(matches!(QuantView::new(Quant::Q4_0, whole(), 4, 100), Err(Error::BadArgument { .. })));
        assert!(matches!(QuantView::new(Quant::Q4K, whole(), 1, 128), Err(Error::BadArgument { .. })));
        assert!(matches!(QuantView::new(Quant::Int8, whole(), 1, 128), Err(Error::BadArgument { .. })));
        assert!(matches!(QuantView::new(Quant::Q4_0, whole(), 5, 128), Err(Error::OutOfBounds { .. })));
        assert!(matches!(QuantView::new(Quant::Q4_0, bytes.slice(1..).unwrap(), 1, 128), Err(Error::Misaligned { .. })));
        assert!(matches!(QuantView::new(Quant::Q4_1, bytes.slice(2..).unwrap(), 1, 128), Err(Error::Misaligned { .. })));
        assert!(matches!(QuantView::new(Quant::Q4_0, whole(), 1 << 40, 128), Err(Error::BadArgument { .. })));
        let (scales, halves) = (stream.alloc_zeroed::<f32>(1).unwrap(), stream.alloc_zeroed::<f16>(1).unwrap());
        assert!(matches!(QuantView::int8(whole(), &scales, 2, 128), Err(Error::OutOfBounds { .. })));
        assert!(matches!(QuantView::int4(whole(), &halves, None, 64, 1, 128), Err(Error::OutOfBounds { .. })));
        assert!(matches!(QuantView::int4(whole(), &halves, None, 48, 1, 96), Err(Error::BadArgument { .. })));

        let (floats, doubles) = (stream.alloc_zeroed::<f32>(4 * 128).unwrap(), stream.alloc_zeroed::<f64>(4 * 128).unwrap());
        let layout = |shape: &[usize]| Layout::contiguous(shape).unwrap();
        let x = View::new(&floats, layout(&[2, 128])).unwrap();
        let refuses =
            |what: &str, out: &[usize], expected: fn(&Error) -> bool, run: &dyn Fn(&Kernels, &mut ViewMut<'_>) -> Result<(), Error>| {
                let mut poisoned = stream.upload(&[-77f32; 4 * 128]).unwrap();
                let error = run(&kernels, &mut ViewMut::new(&mut poisoned, layout(out)).unwrap()).expect_err(what);
                assert!(expected(&error), "{what}: {error}");
                assert!(stream.download(&poisoned).unwrap().iter().all(|value| *value == -77.0), "{what}: something was written");
            };
        let shape: fn(&Error) -> bool = |error| matches!(error, Error::WrongShape { .. });
        let dtype: fn(&Error) -> bool = |error| matches!(error, Error::WrongType { .. });
        let bad: fn(&Error) -> bool = |error| matches!(error, Error::BadArgument { .. });
        let elsewhere: fn(&Error) -> bool = |error| matches!(error, Error::WrongDevice { .. });
        let w = QuantView::new(Quant::Q4_0, &bytes, 4, 128).unwrap();
        refuses("another shape", &[4, 64], shape, &|kernels, out| kernels.dequantize(&stream, &w, out));
        for activations in PRECISIONS {
            refuses("more rows", &[2, 5], shape, &|kernels, out| kernels.quant_matmul(&stream, &w, &x, out, activations));
            refuses("one vector", &[4], shape, &|kernels, out| kernels.quant_matmul(&stream, &w, &x, out, activations));
            let short = View::new(&floats, layout(&[2, 96])).unwrap();
            refuses("fewer columns", &[2, 4], shape, &|kernels, out| kernels.quant_matmul(&stream, &w, &short, out, activations));
            let double = View::new(&doubles, layout(&[2, 128])).unwrap();
            refuses("doubles", &[2, 4], dtype, &|kernels, out| kernels.quant_matmul(&stream, &w, &double, out, activations));
        }
        refuses("vectors that are not Q8_1", &[4, 4], bad, &|kernels, out| kernels.quant_matmul_q8(&stream, &w, &w, out));
        let wrong = View::new(&floats, layout(&[4, 96])).unwrap();
        let refused = kernels.quantize(&stream, &wrong, &mut QuantViewMut::new(Quant::Q4_0, &mut bytes, 4, 128).unwrap());
        assert!(matches!(refused, Err(Error::WrongShape { .. })));
        assert!(stream.download(&bytes).unwrap().iter().all(|byte| *byte == 1));
        if let Some(other) = devices.get(k + 1) {
            let far = other.stream().unwrap();
            let there = far.upload(&[1u8; 4 * 72]).unwrap();
            let there = QuantView::new(Quant::Q4_0, &there, 4, 128).unwrap();
            refuses("weights elsewhere", &[4, 128], elsewhere, &|kernels, out| kernels.dequantize(&stream, &there, out));
            refuses("weights elsewhere", &[2, 4], elsewhere, &|kernels, out| {
                kernels.quant_matmul(&stream, &there, &x, out, ActivationPrecision::Int8)
            });
        }
    }
}
