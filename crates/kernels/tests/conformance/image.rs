//! Pooling, resampling, im2col and padding of random sizes, in NCHW, NHWC and with gaps, against loops in f64.

use std::collections::BTreeSet;

use warpwave_kernels::{Conv, DType, Layout, PadMode, Pool, Scalar};

use crate::common::values::{Value, decode, encode, round};
use crate::common::{Random, full, seed};
use crate::conv::layout;
use crate::field::{Field, worst_of};
use crate::host::{arranged, indices};
use crate::suite::{Suite, on_each_device};

const OPS: [&str; 7] = ["avg_pool2d", "max_pool2d", "upsample_nearest2d", "upsample_bilinear2d", "im2col", "col2im", "pad"];
const FLOATS: [DType; 4] = [DType::F32, DType::F16, DType::Bf16, DType::F64];

fn field(suite: &Suite, dtype: DType, layout: Layout, random: &mut Random) -> Field {
    let limit = if dtype.is_signed() { 100.0 } else { 0.0 };
    Field::drawn(&suite.stream, dtype, layout, || random.uniform(-limit, 100.0))
}

/// Values by (image, channel, row, column).
struct Image {
    shape: [usize; 4],
    values: Vec<f64>,
}

impl Image {
    fn of(field: &Field) -> Image {
        Image { shape: std::array::from_fn(|d| field.layout.shape()[d]), values: field.values() }
    }

    /// None outside.
    fn get(&self, n: usize, c: usize, y: i64, x: i64) -> Option<f64> {
        let [_, channels, height, width] = self.shape;
        let inside = (0..height as i64).contains(&y) && (0..width as i64).contains(&x);
        inside.then(|| self.values[((n * channels + c) * height + y as usize) * width + x as usize])
    }
}

/// A result's unrounded value and its error in units of 2^-24 (2^-52 for f64).
type Wanted = Vec<(f64, f64)>;

fn pooled(image: &Image, pool: &Pool, shape: [usize; 4], max: bool) -> Wanted {
    let one = |at: Vec<usize>| {
        let mut met = Vec::new();
        for (r, s) in (0..pool.kernel[0]).flat_map(|r| (0..pool.kernel[1]).map(move |s| (r, s))) {
            let place = |d: usize, tap: usize| (at[2 + d] * pool.stride[d] + tap) as i64 - pool.padding[d] as i64;
            met.extend(image.get(at[0], at[1], place(0, r), place(1, s)));
        }
        if max {
            return (if met.iter().any(|x| x.is_nan()) { f64::NAN } else { met.iter().copied().fold(f64::NEG_INFINITY, f64::max) }, 0.0);
        }
        let count = if pool.count_include_pad { pool.kernel[0] * pool.kernel[1] } else { met.len() } as f64;
        (met.iter().sum::<f64>() / count, 2.0 * met.iter().map(|x| x.abs()).sum::<f64>() + 1e-30)
    };
    indices(&shape).into_iter().map(one).collect()
}

/// The coordinate in the input of a position of the result.
fn coordinate(to: usize, size: usize, out: usize, align_corners: bool) -> f64 {
    match align_corners {
        true if out == 1 => 0.0,
        true => to as f64 * (size - 1) as f64 / (out - 1) as f64,
        false => ((to as f64 + 0.5) * size as f64 / out as f64 - 0.5).max(0.0),
    }
}

fn bilinear(image: &Image, shape: [usize; 4], align_corners: bool) -> Wanted {
    let one = |at: Vec<usize>| {
        let [y, x] = [0, 1].map(|d| coordinate(at[2 + d], image.shape[2 + d], shape[2 + d], align_corners));
        let mut sum = 0.0;
        // Each pixel's weight falls from 1 to 0 within a pixel's distance; beyond the edge lies the last one.
        for (row, column) in (0..=image.shape[2]).flat_map(|row| (0..=image.shape[3]).map(move |column| (row, column))) {
            let weight = (1.0 - (y - row as f64).abs()).max(0.0) * (1.0 - (x - column as f64).abs()).max(0.0);
            if weight > 0.0 {
                let [row, column] = [row.min(image.shape[2] - 1), column.min(image.shape[3] - 1)];
                sum += weight * image.get(at[0], at[1], row as i64, column as i64).unwrap();
            }
        }
        (sum, 1000.0)
    };
    indices(&shape).into_iter().map(one).collect()
}

/// The position of the input that a tap meets.
fn met(conv: &Conv, window: [usize; 2], tap: [usize; 2]) -> [i64; 2] {
    [0, 1].map(|d| (window[d] * conv.stride[d] + tap[d] * conv.dilation[d]) as i64 - conv.padding[d] as i64)
}

fn run(suite: &Suite, op: &str, dtype: DType, random: &mut Random) -> f64 {
    let (kernels, stream) = (&suite.kernels, &suite.stream);
    let pick = |low: usize, high: usize, random: &mut Random| [0, 1].map(|_| low + random.below(high - low + 1));
    let kinds = pick(0, 2, random);
    let shape = [1 + random.below(2), [1, 3, 8][random.below(3)], 5 + random.below(5), 5 + random.below(7)];
    let kernel = pick(1, 3, random);
    let conv = Conv { stride: pick(1, 3, random), dilation: pick(1, 2, random), padding: pick(0, 2, random), ..Conv::new() };
    let mut x = field(suite, dtype, layout(kinds[0], shape), random);
    let (out, wanted): (Field, Wanted) = match op {
        "avg_pool2d" | "max_pool2d" => {
            let padding = [0, 1].map(|d| random.below(kernel[d] / 2 + 1));
            let pool = Pool { count_include_pad: random.below(2) == 0, ..Pool::new(kernel).stride(conv.stride).padding(padding) };
            if op == "max_pool2d" && random.below(2) == 0 {
                let mut values = x.values();
                let at = random.below(values.len());
                values[at] = f64::NAN;
                x = Field::of(stream, dtype, x.layout, &values);
            }
            let shape = pool.output_shape(&shape).unwrap();
            let mut out = field(suite, dtype, layout(kinds[1], shape), random);
            match op {
                "avg_pool2d" => kernels.avg_pool2d(stream, &pool, &x.view(), &mut out.view_mut()).unwrap(),
                _ => kernels.max_pool2d(stream, &pool, &x.view(), &mut out.view_mut()).unwrap(),
            }
            (out, pooled(&Image::of(&x), &pool, shape, op == "max_pool2d"))
        }
        "upsample_nearest2d" => {
            let [height, width] = pick(1, 23, random);
            let to = [shape[0], shape[1], height, width];
            let mut out = field(suite, dtype, layout(kinds[1], to), random);
            kernels.upsample_nearest2d(stream, &x.view(), &mut out.view_mut()).unwrap();
            let image = Image::of(&x);
            let source = |at: usize, d: usize| (0..shape[d]).rfind(|i| i * to[d] <= at * shape[d]).unwrap() as i64;
            let one = |at: Vec<usize>| (image.get(at[0], at[1], source(at[2], 2), source(at[3], 3)).unwrap(), 0.0);
            (out, indices(&to).into_iter().map(one).collect())
        }
        "upsample_bilinear2d" => {
            let [height, width] = pick(1, 23, random);
            let (to, align_corners) = ([shape[0], shape[1], height, width], random.below(2) == 0);
            let mut out = field(suite, dtype, layout(kinds[1], to), random);
            kernels.upsample_bilinear2d(stream, align_corners, &x.view(), &mut out.view_mut()).unwrap();
            (out, bilinear(&Image::of(&x), to, align_corners))
        }
        "im2col" => {
            let to = conv.columns_shape(&shape, kernel).unwrap();
            let mut out = field(suite, dtype, layout(kinds[1], to), random);
            kernels.im2col(stream, kernel, &conv, &x.view(), &mut out.view_mut()).unwrap();
            let image = Image::of(&x);
            let one = |at: Vec<usize>| {
                let tap = [at[3] / kernel[1] % kernel[0], at[3] % kernel[1]];
                let [y, column] = met(&conv, [at[1], at[2]], tap);
                (image.get(at[0], at[3] / (kernel[0] * kernel[1]), y, column).unwrap_or(0.0), 0.0)
            };
            (out, indices(&to).into_iter().map(one).collect())
        }
        _ => {
            let columns = conv.columns_shape(&shape, kernel).unwrap();
            let x = field(suite, dtype, layout(kinds[0], columns), random);
            let mut out = field(suite, dtype, layout(kinds[1], shape), random);
            kernels.col2im(stream, kernel, &conv, &x.view(), &mut out.view_mut()).unwrap();
            let mut sums = Image { shape, values: vec![0.0; shape.iter().product()] };
            for (at, value) in indices(&columns).into_iter().zip(x.values()) {
                let tap = [at[3] / kernel[1] % kernel[0], at[3] % kernel[1]];
                let [y, column] = met(&conv, [at[1], at[2]], tap);
                let channel = at[3] / (kernel[0] * kernel[1]);
                if sums.get(at[0], channel, y, column).is_some() {
                    sums.values[((at[0] * shape[1] + channel) * shape[2] + y as usize) * shape[3] + column as usize] += value;
                }
            }
            (out, sums.values.into_iter().map(|sum| (sum, 3000.0)).collect())
        }
    };
    let what = format!("{op} of {dtype}, {shape:?} by {kernel:?}, {conv:?}, layouts {kinds:?}");
    let unit = if dtype == DType::F64 { 2f64.powi(-52) } else { 2f64.powi(-24) };
    let found = out.found(stream, &what);
    if dtype.is_integer() {
        assert!(found.iter().zip(&wanted).all(|(found, (wanted, _))| found == wanted), "{what}");
        return 0.0;
    }
    worst_of(dtype, &what, &found, wanted.into_iter().map(|(wanted, units)| (wanted, units * unit)))
}

fn pad(suite: &Suite, dtype: DType, random: &mut Random) -> f64 {
    let shape: &[usize] = [&[7][..], &[3, 5], &[2, 3, 4], &[2, 2, 3, 2, 2, 3], &[1, 8, 5, 6]][random.below(5)];
    let mode = [PadMode::Constant(Scalar::Int(3)), PadMode::Reflect, PadMode::Replicate][random.below(3)];
    let most = |size: usize| if mode == PadMode::Reflect { size } else { 4 };
    let pads: Vec<(usize, usize)> = shape.iter().map(|size| (random.below(most(*size)), random.below(most(*size)))).collect();
    let to = mode.output_shape(shape, &pads).unwrap();
    let names = ["contiguous", "offset", "apart", "transposed", "every third"];
    let x = field(suite, dtype, arranged(names[random.below(5)], shape, random), random);
    let mut out = field(suite, dtype, arranged(names[random.below(5)], &to, random), random);
    let before: Vec<usize> = pads.iter().map(|(before, _)| *before).collect();
    suite.kernels.pad(&suite.stream, mode, &before, &x.view(), &mut out.view_mut()).unwrap();
    let values = x.values();
    // Mirrors position by position: a walk that turns around at the ends.
    let walked = |size: usize, steps: i64| {
        let (mut at, mut direction) = (0i64, steps.signum());
        for _ in 0..steps.abs() {
            if !(0..size as i64).contains(&(at + direction)) {
                direction = -direction;
            }
            at += direction;
        }
        at
    };
    let element = |index: &[usize]| {
        let mut place = 0;
        for (d, at) in index.iter().enumerate() {
            let at = *at as i64 - before[d] as i64;
            let at = match mode {
                PadMode::Constant(_) if !(0..shape[d] as i64).contains(&at) => return None,
                PadMode::Reflect => walked(shape[d], at),
                _ => at.max(0).min(shape[d] as i64 - 1),
            };
            place = place * shape[d] + at as usize;
        }
        Some(values[place])
    };
    let wanted: Vec<f64> = indices(&to).iter().map(|index| element(index).unwrap_or(3.0)).collect();
    let what = format!("pad of {dtype}, {shape:?} by {pads:?}, {mode:?}");
    assert_eq!(out.found(&suite.stream, &what), wanted, "{what}");
    0.0
}

#[test]
fn images_match_loops() {
    on_each_device(&BTreeSet::from(OPS), |suite, table| {
        let mut random = Random::new(seed() ^ 0x1a);
        for op in OPS {
            let copies = ["upsample_nearest2d", "im2col", "pad"].contains(&op);
            let mut types = if copies { DType::COMPUTE[..9].to_vec() } else { FLOATS.to_vec() };
            while !full() && types.len() > 2 {
                types.swap_remove(random.below(types.len()));
            }
            for dtype in types {
                for _ in 0..if full() { 40 } else { 8 } {
                    let worst = if op == "pad" { pad(suite, dtype, &mut random) } else { run(suite, op, dtype, &mut random) };
                    table.note(op, dtype, worst);
                }
            }
        }
    });
}

#[test]
fn constants_keep_their_bits() {
    // fp8 has no Rust type.
    for device in crate::common::devices() {
        let suite = Suite::new(&device);
        let x = suite.stream.upload(&[0x3au8, 0xff, 0x80]).unwrap();
        let mut out = suite.stream.upload(&[0u8; 6]).unwrap();
        let from = warpwave_kernels::View::of_bytes(&x, DType::F8E4M3, Layout::contiguous(&[3]).unwrap()).unwrap();
        let mut to = warpwave_kernels::ViewMut::of_bytes(&mut out, DType::F8E4M3, Layout::contiguous(&[6]).unwrap()).unwrap();
        suite.kernels.pad(&suite.stream, PadMode::Constant(1.0.into()), &[1], &from, &mut to).unwrap();
        let one = encode(DType::F8E4M3, Value::Real(1.0))[0];
        assert_eq!(suite.stream.download(&out).unwrap(), [one, 0x3a, 0xff, 0x80, one, one]);
        assert_eq!(decode(DType::F8E4M3, &[one]), Value::Real(round(DType::F8E4M3, 1.0)));
    }
}

#[test]
fn what_does_not_fit_is_rejected() {
    for device in crate::common::devices() {
        let Suite { kernels, stream } = Suite::new(&device);
        let memory = stream.upload(&[0f32; 64]).unwrap();
        let mut room = stream.upload(&[-77f32; 64]).unwrap();
        let shape = |shape: &[usize]| Layout::contiguous(shape).unwrap();
        let x = warpwave_kernels::View::new(&memory, shape(&[1, 2, 4, 4])).unwrap();
        let whole = warpwave_kernels::View::of_bytes(memory.slice(..).unwrap().into_bytes(), DType::I32, shape(&[1, 2, 4, 4])).unwrap();
        let mut out = warpwave_kernels::ViewMut::new(&mut room, shape(&[1, 2, 2, 2])).unwrap();
        let pool = Pool::new([2, 2]);
        for (rejected, reason) in [
            (kernels.avg_pool2d(&stream, &pool.padding([2, 0]), &x, &mut out), "exceeds half the window"),
            (kernels.max_pool2d(&stream, &Pool::new([5, 1]), &x, &mut out), "exceeds the padded input size 4"),
            (kernels.max_pool2d(&stream, &pool.stride([1, 1]), &x, &mut out), "expected shape [1, 2, 3, 3]"),
            (kernels.avg_pool2d(&stream, &pool, &whole, &mut out), "expected f32, f16, bf16 or f64"),
            (kernels.pad(&stream, PadMode::Reflect, &[0, 0, 0, 0], &x, &mut out), "expected shape at least"),
            (kernels.im2col(&stream, [2, 2], &Conv::new(), &x, &mut out), "expected shape [1, 3, 3, 8]"),
            (kernels.col2im(&stream, [2, 2], &Conv::new(), &x, &mut out), "expected shape [1, 1, 1, 8]"),
        ] {
            let error = rejected.unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
        assert!(PadMode::Reflect.output_shape(&[3], &[(3, 0)]).is_err() && PadMode::Reflect.output_shape(&[3], &[(2, 2)]).is_ok());
        assert!(PadMode::Replicate.output_shape(&[0], &[(1, 0)]).is_err() && PadMode::Replicate.output_shape(&[3], &[]).is_err());
        assert!(stream.download(&room).unwrap().iter().all(|x| *x == -77.0), "something was written");
    }
}
