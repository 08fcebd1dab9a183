//! Convolutions over random strides, paddings, dilations and groups, in NCHW, NHWC and other layouts, against direct sums in f64.
//!
//! What a result may differ by: f32's precision times the root of the number of terms, of the sum of their sizes, and one rounding.

use std::collections::BTreeSet;

use warpwave_kernels::{Activation, Conv, DType, Layout, View, ViewMut};

use crate::common::values::{Value, decode, encode, round, ulp};
use crate::common::{Random, full, seed};
use crate::suite::{Suite, on_each_device, places, room};

#[derive(Debug, Clone)]
struct Case {
    dtype: DType,
    transposed: bool,
    x: [usize; 4],
    filters: usize,
    kernel: [usize; 2],
    conv: Conv,
    bias: bool,
    /// Of the input, the weights and the result.
    kinds: [usize; 3],
}

/// NCHW, NHWC, and NHWC with gaps.
pub fn layout(kind: usize, shape: [usize; 4]) -> Layout {
    let [_, c, h, w] = shape;
    let strides = match kind {
        0 => [c * h * w, h * w, w, 1],
        1 => [h * w * c, 1, w * c, c],
        _ => [h * (w * (c + 3) + 5), 1, w * (c + 3) + 5, c + 3],
    };
    Layout::new(&shape, &strides, if kind == 2 { 3 } else { 0 }).unwrap()
}

struct Operand {
    layout: Layout,
    bytes: Vec<u8>,
}

/// Whatever lies between and behind the elements is NaN.
fn operand(dtype: DType, layout: Layout, random: &mut Random) -> Operand {
    let mut bytes: Vec<u8> = encode(dtype, Value::Real(f64::NAN)).repeat(room(&layout, dtype) / dtype.size());
    for place in places(&layout) {
        let value = Value::Real(round(dtype, random.unit() * 2.0 - 1.0));
        bytes[place * dtype.size()..][..dtype.size()].copy_from_slice(&encode(dtype, value));
    }
    Operand { layout, bytes }
}

impl Operand {
    fn at(&self, dtype: DType, index: [usize; 4]) -> f64 {
        let place = self.layout.offset() + (0..4).map(|d| index[d] * self.layout.strides()[d]).sum::<usize>();
        decode(dtype, &self.bytes[place * dtype.size()..][..dtype.size()]).real()
    }
}

fn activate(x: f64, activation: Option<Activation>) -> f64 {
    match activation {
        Some(Activation::Relu) => x.max(0.0),
        Some(Activation::Silu) => x / (1.0 + (-x).exp()),
        Some(Activation::Gelu) => 0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)).tanh()),
        _ => x,
    }
}

/// The products that reach a result.
#[derive(Clone, Copy, Default)]
struct Sum {
    value: f64,
    /// Of the products' sizes.
    sizes: f64,
    /// Of the sizes of products with an f16 below its normal numbers, which gfx90a's matrix units take for 0.
    subnormal: f64,
}

/// Every product that reaches a result, by walking the input as the definition of each operation does.
fn sums(case: &Case, shape: [usize; 4], x: &Operand, w: &Operand) -> Vec<Sum> {
    let Conv { stride, padding, dilation, groups, .. } = case.conv;
    let [images, channels, height, width] = case.x;
    let (per_in, per_out) = (channels / groups, case.filters / groups);
    let mut out = vec![Sum::default(); shape.iter().product()];
    let mut add = |n: usize, f: usize, [y, x]: [usize; 2], input: f64, weight: f64| {
        let at = &mut out[((n * shape[1] + f) * shape[2] + y) * shape[3] + x];
        let product = input * weight;
        at.value += product;
        at.sizes += product.abs();
        if case.dtype == DType::F16 && input.abs().min(weight.abs()) < 2f64.powi(-14) {
            at.subnormal += product.abs();
        }
    };
    // The other end of a tap: its position times the stride, shifted; none outside.
    let reach = |at: usize, tap: usize, d: usize, size: usize| {
        let place = (at * stride[d] + tap * dilation[d]) as i64 - padding[d] as i64;
        usize::try_from(place).ok().filter(|place| *place < size)
    };
    for n in 0..images {
        for c in 0..channels {
            for local in 0..per_out {
                let f = c / per_in * per_out + local;
                for r in 0..case.kernel[0] {
                    for s in 0..case.kernel[1] {
                        if case.transposed {
                            let weight = w.at(case.dtype, [c, local, r, s]);
                            for (y, column) in (0..height).flat_map(|y| (0..width).map(move |x| (y, x))) {
                                if let (Some(to_y), Some(to_x)) = (reach(y, r, 0, shape[2]), reach(column, s, 1, shape[3])) {
                                    add(n, f, [to_y, to_x], x.at(case.dtype, [n, c, y, column]), weight);
                                }
                            }
                        } else {
                            let weight = w.at(case.dtype, [f, c % per_in, r, s]);
                            for (y, column) in (0..shape[2]).flat_map(|y| (0..shape[3]).map(move |x| (y, x))) {
                                if let (Some(from_y), Some(from_x)) = (reach(y, r, 0, height), reach(column, s, 1, width)) {
                                    add(n, f, [y, column], x.at(case.dtype, [n, c, from_y, from_x]), weight);
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    out
}

/// Runs a case; the largest share of its tolerance that an element took.
fn run(suite: &Suite, case: &Case, random: &mut Random) -> f64 {
    let (dtype, groups) = (case.dtype, case.conv.groups);
    let [r, s] = case.kernel;
    let weights = if case.transposed { [case.x[1], case.filters / groups, r, s] } else { [case.filters, case.x[1] / groups, r, s] };
    let shape = case.conv.output_shape(&case.x, &weights, case.transposed).unwrap_or_else(|error| panic!("{case:?}: {error}"));
    let x = operand(dtype, layout(case.kinds[0], case.x), random);
    let w = operand(dtype, layout(case.kinds[1], weights), random);
    let out = operand(dtype, layout(case.kinds[2], shape), random);
    let bias = operand(dtype, Layout::new(&[case.filters], &[2], 1).unwrap(), random);
    let stream = &suite.stream;
    let [on_x, on_w, on_bias] = [&x, &w, &bias].map(|operand| stream.upload(&operand.bytes).unwrap());
    let mut on_out = stream.upload(&out.bytes).unwrap();
    let view = |memory, layout| View::of_bytes(memory, dtype, layout).unwrap();
    let (view_x, view_w, view_bias) = (view(&on_x, x.layout), view(&on_w, w.layout), view(&on_bias, bias.layout));
    let view_bias = case.bias.then_some(&view_bias);
    let mut view_out = ViewMut::of_bytes(&mut on_out, dtype, out.layout).unwrap();
    let kernels = &suite.kernels;
    let outcome = match case.transposed {
        true => kernels.conv_transpose2d(stream, &case.conv, &view_x, &view_w, view_bias, &mut view_out),
        false => kernels.conv2d(stream, &case.conv, &view_x, &view_w, view_bias, &mut view_out),
    };
    outcome.unwrap_or_else(|error| panic!("{case:?}: {error}"));
    let found = stream.download(&on_out).unwrap();

    let terms = (weights[0] * weights[1] * r * s / if case.transposed { weights[1] } else { weights[0] }) as f64;
    let (mut untouched, mut worst) = (out.bytes.clone(), 0f64);
    for ((i, place), sum) in places(&out.layout).into_iter().enumerate().zip(sums(case, shape, &x, &w)) {
        let range = place * dtype.size()..(place + 1) * dtype.size();
        untouched[range.clone()].copy_from_slice(&found[range.clone()]);
        let filter = i / (shape[2] * shape[3]) % shape[1];
        let add = if case.bias {
            let at = bias.layout.offset() + filter * bias.layout.strides()[0];
            decode(dtype, &bias.bytes[at * dtype.size()..][..dtype.size()]).real()
        } else {
            0.0
        };
        let wanted = activate(sum.value + add, case.conv.activation);
        let size = sum.sizes + add.abs();
        // The slope of an activation is below 1.2.
        let tolerance = 2f64.powi(-24) * (4.0 + 2.0 * terms.sqrt()) * size
            + 0.5 * ulp(dtype, wanted)
            + 8.0 * ulp(DType::F32, wanted)
            + 1.2 * sum.subnormal;
        let value = decode(dtype, &found[range]).real();
        let share = (value - wanted).abs() / tolerance;
        assert!(share <= 1.0, "{case:?}: element {i} is {value}, expected {wanted} within {tolerance}");
        worst = worst.max(share);
    }
    assert!(untouched == found, "{case:?}: wrote beside the result");
    worst
}

fn random_case(dtype: DType, transposed: bool, random: &mut Random) -> Case {
    // Depthwise, groups of whole and odd chunks, one group.
    let [groups, per_in, per_out] =
        [[5, 1, 1], [4, 1, 2], [2, 3, 9], [3, 8, 8], [1, 3, 20], [1, 16, 70], [1, 40, 8], [2, 16, 24], [1, 72, 33]][random.below(9)];
    let pair = |low: usize, high: usize, random: &mut Random| [0, 1].map(|_| low + random.below(high - low + 1));
    let (stride, dilation) = (pair(1, 3, random), pair(1, 2, random));
    let kernel = pair(1, 3, random);
    let mut padding = pair(0, 2, random);
    // A transposed convolution must keep some of its result.
    if transposed {
        padding = [0, 1].map(|d| padding[d].min(dilation[d] * (kernel[d] - 1) / 2));
    }
    let output_padding = [0, 1].map(|d| if transposed { random.below(stride[d].max(dilation[d])) } else { 0 });
    let activation = [None, Some(Activation::Silu), Some(Activation::Relu), Some(Activation::Gelu)][random.below(4)];
    let x = [1 + random.below(2), groups * per_in, 5 + random.below(6), 5 + random.below(8)];
    Case {
        dtype,
        transposed,
        x,
        filters: groups * per_out,
        kernel,
        conv: Conv { stride, padding, dilation, groups, output_padding, activation },
        bias: random.below(2) == 0,
        kinds: [random.below(3), random.below(3), random.below(3)],
    }
}

/// Channels and filters in multiples of 8, which Hopper's copy engine and wgmma take: few pixels with many taps (split), pixels that cross
/// images and rows within a tile, and all tile sizes where it does not take minutes.
fn whole_chunks(is_virtual: bool) -> Vec<Case> {
    let usual = Case {
        dtype: DType::Bf16,
        transposed: false,
        x: [2, 72, 9, 7],
        filters: 88,
        kernel: [3, 3],
        conv: Conv::new().padding(1),
        bias: true,
        kinds: [1, 1, 1],
    };
    let mut cases = vec![
        usual.clone(),
        Case {
            dtype: DType::F16,
            conv: Conv::new().padding(2).dilation(2).activation(Activation::Silu),
            kinds: [0, 0, 0],
            ..usual.clone()
        },
        Case {
            x: [3, 8, 17, 5],
            conv: Conv { stride: [2, 3], padding: [0, 1], ..Conv::new() },
            bias: false,
            kinds: [2, 2, 2],
            ..usual.clone()
        },
        // 1 × 1 in NCHW, a matrix product.
        Case {
            x: [2, 40, 5, 7],
            filters: 24,
            kernel: [1, 1],
            conv: Conv::new().activation(Activation::Relu),
            kinds: [0, 0, 0],
            ..usual.clone()
        },
        Case { x: [1, 136, 1, 9], filters: 8, kernel: [1, 5], conv: Conv { padding: [0, 2], ..Conv::new() }, ..usual.clone() },
    ];
    if !is_virtual {
        for (filters, [height, width]) in [(64, [150, 120]), (160, [61, 143]), (256, [140, 125]), (128, [230, 151]), (320, [190, 97])] {
            cases.push(Case { x: [1, 24, height, width], filters, ..usual.clone() });
        }
    }
    cases
}

#[test]
fn convolutions_match_direct_sums() {
    on_each_device(&BTreeSet::from(["conv2d", "conv_transpose2d"]), |suite, table| {
        let mut random = Random::new(seed() ^ 0xc0);
        // Enough pixels for large tiles on every device.
        let case = Case {
            dtype: DType::Bf16,
            transposed: false,
            x: [1, 8, 130, 131],
            filters: 11,
            kernel: [1, 2],
            conv: Conv::new(),
            bias: true,
            kinds: [1, 0, 1],
        };
        table.note("conv2d", case.dtype, run(suite, &case, &mut random));
        for case in whole_chunks(suite.stream.device().info().is_virtual) {
            table.note("conv2d", case.dtype, run(suite, &case, &mut random));
        }
        for (transposed, op) in [(false, "conv2d"), (true, "conv_transpose2d")] {
            let mut types = vec![DType::F32, DType::F16, DType::Bf16];
            if !full() {
                types.remove(1 + random.below(2));
            }
            for dtype in types {
                for _ in 0..if full() { 60 } else { 8 } {
                    let case = random_case(dtype, transposed, &mut random);
                    let worst = run(suite, &case, &mut random);
                    table.note(op, dtype, worst);
                }
            }
        }
    });
}
