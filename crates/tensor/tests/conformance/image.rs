//! Pooling, resampling, im2col and padding, by their definitions.

use warpwave_kernels::{Conv, PadMode, Pool, Scalar};
use warpwave_tensor::Tensor;

use crate::Context;
use crate::reference::{Reference, compare};

/// An element of a plane; 0 outside.
fn at(x: &Reference, [n, c]: [usize; 2], [y, column]: [i64; 2]) -> Option<f64> {
    let inside = (0..x.shape[2] as i64).contains(&y) && (0..x.shape[3] as i64).contains(&column);
    inside.then(|| x.at(&[n, c, y as usize, column as usize]))
}

fn taps(kernel: [usize; 2]) -> impl Iterator<Item = [usize; 2]> {
    (0..kernel[0]).flat_map(move |r| (0..kernel[1]).map(move |s| [r, s]))
}

/// The same image with adjacent channels, as a permuted tensor.
fn nhwc(x: &Tensor) -> Tensor {
    x.permute(&[0, 2, 3, 1]).unwrap().copied().unwrap().permute(&[0, 3, 1, 2]).unwrap()
}

/// Compares a result for both orders of memory; the order is kept.
fn compare_both(what: &str, x: &Tensor, call: &dyn Fn(&Tensor) -> Tensor, wanted: &Reference, ulps: f64, scale: f64) {
    compare(what, &call(x), wanted, ulps, scale);
    let out = call(&nhwc(x));
    assert_eq!(out.layout().strides()[1], 1, "{what}: the result is NHWC too");
    compare(what, &out, wanted, ulps, scale);
}

pub fn pool(context: &mut Context<'_>) {
    for (kernel, stride, padding, count_include_pad) in
        context.sample([([2, 2], [2, 2], [0, 0], true), ([3, 2], [1, 2], [1, 1], true), ([2, 4], [2, 1], [1, 2], false)], 1)
    {
        let pool = Pool { count_include_pad, ..Pool::new(kernel).stride(stride).padding(padding) };
        let (x, reference) = context.input(&[2, 3, 6, 5]);
        let to = pool.output_shape(&reference.shape).unwrap();
        let met = |index: &[usize]| -> Vec<f64> {
            let place = |tap: [usize; 2]| [0, 1].map(|d| (index[2 + d] * stride[d] + tap[d]) as i64 - padding[d] as i64);
            taps(kernel).filter_map(|tap| at(&reference, [index[0], index[1]], place(tap))).collect()
        };
        let max = Reference::new(&to, |index| met(index).into_iter().fold(f64::NEG_INFINITY, f64::max));
        compare_both("max_pool2d", &x, &|x| x.max_pool2d(&pool).unwrap(), &max, 0.0, 0.0);
        let average = Reference::new(&to, |index| {
            let met = met(index);
            met.iter().sum::<f64>() / if count_include_pad { kernel[0] * kernel[1] } else { met.len() } as f64
        });
        compare_both("avg_pool2d", &x, &|x| x.avg_pool2d(&pool).unwrap(), &average, 2.0, 4.0);
    }
    let (x, _) = context.input(&[1, 2, 3]);
    assert!(x.avg_pool2d(&Pool::new([1, 1])).unwrap_err().to_string().contains("expected 4-D"));
}

pub fn upsample(context: &mut Context<'_>) {
    for (height, width) in context.sample([(6, 15), (2, 2), (4, 7)], 1) {
        let (x, reference) = context.input(&[2, 3, 4, 5]);
        let to = [2, 3, height, width];
        let nearest = |index: &[usize]| {
            let [y, column] = [0, 1].map(|d| (index[2 + d] * reference.shape[2 + d] / to[2 + d]) as i64);
            at(&reference, [index[0], index[1]], [y, column]).unwrap()
        };
        compare_both("upsample_nearest2d", &x, &|x| x.upsample_nearest2d(height, width).unwrap(), &Reference::new(&to, nearest), 0.0, 0.0);
        if context.dtype.is_integer() || context.dtype.size() == 1 {
            assert!(x.upsample_bilinear2d(2, 2, false).is_err());
            continue;
        }
        for align_corners in [false, true] {
            let bilinear = |index: &[usize]| {
                let [y, column] = [0, 1].map(|d| {
                    let (at, size, out) = (index[2 + d] as f64, reference.shape[2 + d] as f64, to[2 + d] as f64);
                    if align_corners { at * (size - 1.0) / (out - 1.0) } else { ((at + 0.5) * size / out - 0.5).max(0.0) }
                });
                let pixel = |y: f64, column: f64| {
                    let [y, column] = [y.min(reference.shape[2] as f64 - 1.0), column.min(reference.shape[3] as f64 - 1.0)];
                    at(&reference, [index[0], index[1]], [y as i64, column as i64]).unwrap()
                };
                let row = |y: f64| {
                    let share = column - column.floor();
                    (1.0 - share) * pixel(y, column.floor()) + share * pixel(y, column.floor() + 1.0)
                };
                let share = y - y.floor();
                (1.0 - share) * row(y.floor()) + share * row(y.floor() + 1.0)
            };
            let call = |x: &Tensor| x.upsample_bilinear2d(height, width, align_corners).unwrap();
            compare_both("upsample_bilinear2d", &x, &call, &Reference::new(&to, bilinear), 4.0, 4.0);
        }
    }
    let (x, reference) = context.input(&[2, 3, 4]);
    let wanted = Reference::new(&[2, 3, 9], |index| reference.at(&[index[0], index[1], index[2] * 4 / 9]));
    compare("upsample_nearest1d", &x.upsample_nearest1d(9).unwrap(), &wanted, 0.0, 0.0);
    assert!(context.input(&[1, 1, 0, 2]).0.upsample_nearest2d(1, 1).unwrap_err().to_string().contains("has no elements"));
}

pub fn im2col(context: &mut Context<'_>) {
    let (kernel, conv) = ([3, 2], Conv { padding: [1, 0], stride: [1, 2], dilation: [2, 1], ..Conv::new() });
    let (x, reference) = context.input_within(&[2, 3, 6, 5], 1.9);
    let to = conv.columns_shape(&reference.shape, kernel).unwrap();
    let place = |index: &[usize]| {
        let tap = [index[3] / 2 % 3, index[3] % 2];
        let place = [0, 1].map(|d| (index[1 + d] * conv.stride[d] + tap[d] * conv.dilation[d]) as i64 - conv.padding[d] as i64);
        ([index[0], index[3] / 6], place)
    };
    let wanted = Reference::new(&to, |index| {
        let (plane, place) = place(index);
        at(&reference, plane, place).unwrap_or(0.0)
    });
    let columns = x.im2col(kernel, &conv).unwrap();
    compare("im2col", &columns, &wanted, 0.0, 0.0);
    if context.dtype.is_integer() || context.dtype.size() == 1 {
        assert!(columns.col2im(kernel, &conv, [6, 5]).is_err());
        return;
    }
    // Each element as often as a tap meets it.
    let mut counts = Reference::new(&reference.shape, |_| 0.0);
    for index in crate::reference::indices(&to) {
        let ([n, c], place) = place(&index);
        if at(&counts, [n, c], place).is_some() {
            counts.values[((n * 3 + c) * 6 + place[0] as usize) * 5 + place[1] as usize] += 1.0;
        }
    }
    let wanted = Reference::new(&reference.shape, |index| counts.at(index) * reference.at(index));
    compare("col2im", &columns.col2im(kernel, &conv, [6, 5]).unwrap(), &wanted, 2.0, 4.0);
}

pub fn pad(context: &mut Context<'_>) {
    let (shape, pads) = ([3, 4, 2], [(1, 2), (0, 3), (1, 1)]);
    for mode in [PadMode::Constant(Scalar::Int(2)), PadMode::Reflect, PadMode::Replicate] {
        let (x, reference) = context.input(&shape);
        let to = [6, 7, 4];
        let wanted = Reference::new(&to, |index| {
            let at = [0, 1, 2].map(|d| index[d] as i64 - pads[d].0 as i64);
            let from = [0, 1, 2].map(|d| {
                let last = shape[d] as i64 - 1;
                match mode {
                    PadMode::Reflect => last - (at[d].abs() - last).abs(),
                    _ => at[d].clamp(0, last),
                }
            });
            let constant = matches!(mode, PadMode::Constant(_)) && at != from;
            if constant { 2.0 } else { reference.at(&from.map(|at| at as usize)) }
        });
        compare("pad", &x.pad(&pads, mode).unwrap(), &wanted, 0.0, 0.0);
    }
    let (x, _) = context.input(&[2, 0]);
    let padded = x.pad(&[(0, 1), (1, 0)], PadMode::Constant(Scalar::Int(1))).unwrap();
    compare("pad of nothing", &padded, &Reference::new(&[3, 1], |_| 1.0), 0.0, 0.0);
    assert!(x.pad(&[(0, 0), (1, 0)], PadMode::Replicate).unwrap_err().to_string().contains("cannot pad a dimension of size 0"));
}
