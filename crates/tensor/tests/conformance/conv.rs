//! Convolutions, by their definition.

use warpwave_kernels::{Activation, Conv};
use warpwave_tensor::Tensor;

use crate::Context;
use crate::reference::{Reference, compare};

/// The position that meets a tap, if it is inside.
fn meets(conv: &Conv, d: usize, at: usize, tap: usize, size: usize) -> Option<usize> {
    (at * conv.stride[d] + tap * conv.dilation[d]).checked_sub(conv.padding[d]).filter(|place| *place < size)
}

fn expected(x: &Reference, w: &Reference, bias: &Reference, conv: &Conv, transposed: bool) -> Reference {
    let shape = conv.output_shape(&x.shape, &w.shape, transposed).unwrap();
    let (per_in, per_out) = (x.shape[1] / conv.groups, shape[1] / conv.groups);
    let sum = |index: &[usize]| {
        let (group, mut sum) = (index[1] / per_out, bias.values[index[1]]);
        for (c, r) in (0..per_in).flat_map(|c| (0..w.shape[2]).map(move |r| (c, r))) {
            for s in 0..w.shape[3] {
                let channel = group * per_in + c;
                if transposed {
                    let weight = w.at(&[channel, index[1] % per_out, r, s]);
                    let hits =
                        |d: usize, tap: usize| (0..x.shape[2 + d]).find(|i| meets(conv, d, *i, tap, shape[2 + d]) == Some(index[2 + d]));
                    if let (Some(y), Some(column)) = (hits(0, r), hits(1, s)) {
                        sum += x.at(&[index[0], channel, y, column]) * weight;
                    }
                } else if let (Some(y), Some(column)) = (meets(conv, 0, index[2], r, x.shape[2]), meets(conv, 1, index[3], s, x.shape[3])) {
                    sum += x.at(&[index[0], channel, y, column]) * w.at(&[index[1], c, r, s]);
                }
            }
        }
        if conv.activation.is_some() { sum / (1.0 + (-sum).exp()) } else { sum }
    };
    Reference::new(&shape, sum)
}

pub fn conv(context: &mut Context<'_>) {
    for (channels, filters, groups) in context.sample([(8, 10, 1), (6, 9, 3), (4, 4, 4)], 2) {
        for transposed in [false, true] {
            let weights = if transposed { [channels, filters / groups, 3, 2] } else { [filters, channels / groups, 3, 2] };
            let (x, x_reference) = context.input_within(&[2, channels, 6, 5], 1.0);
            let (w, w_reference) = context.input_within(&weights, 1.0);
            let (bias, bias_reference) = context.input_within(&[filters], 1.0);
            let mut conv = Conv { padding: [1, 0], dilation: [1, 2], ..Conv::new().stride(2).groups(groups) };
            if transposed {
                conv.output_padding = [1, 0];
            } else {
                conv.activation = Some(Activation::Silu);
            }
            let call = |x: &Tensor| if transposed { x.conv_transpose2d(&w, Some(&bias), &conv) } else { x.conv2d(&w, Some(&bias), &conv) };
            let wanted = expected(&x_reference, &w_reference, &bias_reference, &conv, transposed);
            // At most 49 terms of size 1.
            compare("conv2d", &call(&x).unwrap(), &wanted, 8.0, 16.0);
            let nhwc = x.permute(&[0, 2, 3, 1]).unwrap().copied().unwrap().permute(&[0, 3, 1, 2]).unwrap();
            let out = call(&nhwc).unwrap();
            assert_eq!(out.layout().strides()[1], 1, "the result is NHWC too");
            compare("conv2d of NHWC", &out, &wanted, 8.0, 16.0);
        }
    }
    let (x, x_reference) = context.input_within(&[2, 3, 9], 1.0);
    let (w, w_reference) = context.input_within(&[4, 3, 3], 1.0);
    let flat = |x: &Reference| Reference { shape: vec![x.shape[0], x.shape[1], 1, x.shape[2]], values: x.values.clone() };
    let (conv, zero) = (Conv::new().stride(2).padding(1), Reference { shape: vec![4], values: vec![0.0; 4] });
    let one = Conv { stride: [1, 2], padding: [0, 1], ..conv };
    let mut wanted = expected(&flat(&x_reference), &flat(&w_reference), &zero, &one, false);
    wanted.shape.remove(2);
    compare("conv1d", &x.conv1d(&w, None, &conv).unwrap(), &wanted, 8.0, 4.0);
    let (w, w_reference) = context.input_within(&[3, 4, 3], 1.0);
    let mut wanted = expected(&flat(&x_reference), &flat(&w_reference), &zero, &one, true);
    wanted.shape.remove(2);
    compare("conv_transpose1d", &x.conv_transpose1d(&w, None, &conv).unwrap(), &wanted, 8.0, 4.0);
    let (empty, _) = context.input(&[0, 5, 3]);
    assert!(empty.conv1d(&w, None, &conv).unwrap_err().to_string().contains("do not fit"));
    let (empty, _) = context.input(&[0, 3, 3]);
    assert_eq!(empty.conv_transpose1d(&w, None, &conv).unwrap().shape(), [0, 4, 5]);
}
