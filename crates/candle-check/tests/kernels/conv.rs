//! Convolutions, pooling, resampling.

use candle_core::{DType, Device, Tensor};
use warpwave_gpu::Kernel;

use crate::bench::{A, Bench, Checked, Form, Input, Plan, Random, values, wide};
use crate::types::{Near, Ty};

pub fn plan(name: &str) -> Option<Plan> {
    let (stem, ty) = Ty::at_end(name)?;
    let case: fn(&mut Bench, &Kernel, Ty, Form) -> Checked = match stem {
        "conv1d" => conv1d,
        "conv2d" => conv2d,
        "conv_transpose1d" => conv_transpose1d,
        "conv_transpose2d" => conv_transpose2d,
        "avg_pool2d" => |bench, kernel, ty, form| pool(bench, kernel, ty, form, false),
        "max_pool2d" => |bench, kernel, ty, form| pool(bench, kernel, ty, form, true),
        "upsample_nearest2d" => nearest,
        "upsample_bilinear2d" => bilinear,
        "im2col" => im2col,
        "im2col1d" => im2col1d,
        "col2im1d" => col2im1d,
        _ => return None,
    };
    // The last one takes no layout.
    let forms = if stem == "col2im1d" { &[Form::Plain, Form::Offset][..] } else { &[Form::Plain, Form::Offset, Form::Strided] };
    Some(Box::new(move |bench, kernel| {
        forms.iter().try_for_each(|form| case(bench, kernel, ty, *form).map_err(|error| format!("{form:?}: {error}").into()))
    }))
}

/// Elements of images and filters, small enough that no sum overflows the type.
fn element(ty: Ty) -> impl Fn(&mut Random) -> f64 {
    move |random| if ty.is_float() { random.float(-2.0, 2.0) } else { random.int(0, 3) }
}

/// candle convolves floats only: integers this small are exact there. Contiguous, because its 1D convolution on the CPU is wrong for
/// strided inputs.
fn float(input: &Input) -> Checked<Tensor> {
    Ok(input.tensor.to_dtype(DType::F64)?.contiguous()?)
}

/// The error of a sum of `steps` products in the kernel's accumulator type.
fn compare_sums(bench: &Bench, out: &crate::bench::Output, wanted: &Tensor, mass: &Tensor, steps: usize) -> Checked {
    let adder = if out.ty == Ty::F64 { Ty::F64 } else { Ty::F32 };
    let mass = values(mass)?;
    let near = |i: usize| match out.ty.is_float() {
        true => Near::Within(adder.epsilon() * steps as f64 * mass[i]),
        false => Near::Exact,
    };
    bench.compare_each("", out, &values(wanted)?, near)
}

fn pair(bench: &mut Bench, ty: Ty, form: Form, image: &[usize], filter: &[usize]) -> Checked<(Input, Input, A<'static>)> {
    let x = bench.input(ty, image, form, element(ty))?;
    let k = bench.input(ty, filter, form, element(ty))?;
    let info = A::Info([x.info(), k.info()].concat());
    Ok((x, k, info))
}

fn conv1d(bench: &mut Bench, kernel: &Kernel, ty: Ty, form: Form) -> Checked {
    let (x, k, info) = pair(bench, ty, form, &[2, 3, 11], &[4, 3, 3])?;
    // The kernel multiplies the stride by the dilation, candle on the CPU does not: only 1 gives the same result.
    let (stride, padding, dilation) = (2, 1, 1);
    let right = |x: Tensor, k: Tensor| x.conv1d(&k, padding, stride, dilation, 1);
    let wanted = right(float(&x)?, float(&k)?)?;
    let out = bench.output(ty, wanted.elem_count())?;
    let numbers = [x.len(), wanted.dim(2)?, stride, padding, dilation].map(A::Size);
    let arguments: Vec<A<'_>> = numbers.into_iter().chain([info, A::In(&x), A::In(&k), A::Out(&out)]).collect();
    bench.run(kernel, wide(wanted.elem_count()), &arguments)?;
    compare_sums(bench, &out, &wanted, &right(float(&x)?.abs()?, float(&k)?.abs()?)?, 9)
}

fn conv2d(bench: &mut Bench, kernel: &Kernel, ty: Ty, form: Form) -> Checked {
    for (stride, padding, dilation) in [(1, 0, 1), (2, 1, 2)] {
        let (x, k, info) = pair(bench, ty, form, &[2, 3, 7, 9], &[2, 3, 2, 3])?;
        let right = |x: Tensor, k: Tensor| x.conv2d(&k, padding, stride, dilation, 1);
        let wanted = right(float(&x)?, float(&k)?)?;
        let out = bench.output(ty, wanted.elem_count())?;
        let numbers = [x.len(), wanted.dim(3)?, wanted.dim(2)?, stride, padding, dilation].map(A::Size);
        let arguments: Vec<A<'_>> = numbers.into_iter().chain([info, A::In(&x), A::In(&k), A::Out(&out)]).collect();
        bench.run(kernel, wide(wanted.elem_count()), &arguments)?;
        compare_sums(bench, &out, &wanted, &right(float(&x)?.abs()?, float(&k)?.abs()?)?, 18)?;
    }
    Ok(())
}

fn conv_transpose1d(bench: &mut Bench, kernel: &Kernel, ty: Ty, form: Form) -> Checked {
    let (x, k, info) = pair(bench, ty, form, &[2, 3, 7], &[3, 4, 3])?;
    let (stride, padding, out_padding, dilation) = (2, 1, 1, 2);
    let right = |x: Tensor, k: Tensor| x.conv_transpose1d(&k, padding, out_padding, stride, dilation, 1);
    let wanted = right(float(&x)?, float(&k)?)?;
    let out = bench.output(ty, wanted.elem_count())?;
    let numbers = [x.len(), wanted.dim(2)?, stride, padding, out_padding, dilation].map(A::Size);
    let arguments: Vec<A<'_>> = numbers.into_iter().chain([info, A::In(&x), A::In(&k), A::Out(&out)]).collect();
    bench.run(kernel, wide(wanted.elem_count()), &arguments)?;
    compare_sums(bench, &out, &wanted, &right(float(&x)?.abs()?, float(&k)?.abs()?)?, 9)
}

fn conv_transpose2d(bench: &mut Bench, kernel: &Kernel, ty: Ty, form: Form) -> Checked {
    let (x, k, info) = pair(bench, ty, form, &[2, 3, 4, 5], &[3, 2, 3, 2])?;
    let (stride, padding, out_padding, dilation) = (2, 1, 1, 1);
    let right = |x: Tensor, k: Tensor| x.conv_transpose2d(&k, padding, out_padding, stride, dilation);
    let wanted = right(float(&x)?, float(&k)?)?;
    let out = bench.output(ty, wanted.elem_count())?;
    let numbers = [x.len(), wanted.dim(3)?, wanted.dim(2)?, stride, padding, out_padding, dilation].map(A::Size);
    let arguments: Vec<A<'_>> = numbers.into_iter().chain([info, A::In(&x), A::In(&k), A::Out(&out)]).collect();
    bench.run(kernel, wide(wanted.elem_count()), &arguments)?;
    compare_sums(bench, &out, &wanted, &right(float(&x)?.abs()?, float(&k)?.abs()?)?, 18)
}

fn pool(bench: &mut Bench, kernel: &Kernel, ty: Ty, form: Form, largest: bool) -> Checked {
    // A quarter is exact, and so is the mean of integers before truncation.
    let (size, stride) = if ty.is_float() || largest { ((3, 2), (2, 1)) } else { ((2, 2), (2, 1)) };
    let x = bench.input(ty, &[2, 3, 7, 9], form, |random| if ty.is_float() { random.float(-2.0, 2.0) } else { random.int(0, 60) })?;
    let right = |x: Tensor| if largest { x.max_pool2d_with_stride(size, stride) } else { x.avg_pool2d_with_stride(size, stride) };
    let mut wanted = right(float(&x)?)?;
    if !ty.is_float() {
        wanted = wanted.floor()?;
    }
    let out = bench.output(ty, wanted.elem_count())?;
    let numbers = [x.len(), size.0, size.1, stride.0, stride.1].map(A::Size);
    let arguments: Vec<A<'_>> = numbers.into_iter().chain([A::Info(x.info()), A::In(&x), A::Out(&out)]).collect();
    bench.run(kernel, wide(wanted.elem_count()), &arguments)?;
    if largest {
        return bench.compare("", &out, &wanted, Near::Exact);
    }
    // 1 / size is a `float` in the kernel, even for doubles.
    let mass = values(&right(float(&x)?.abs()?)?)?;
    let near = |i: usize| if ty.is_float() { Near::Within(Ty::F32.epsilon() * 7.0 * mass[i]) } else { Near::Exact };
    bench.compare_each("", &out, &values(&wanted)?, near)
}

fn nearest(bench: &mut Bench, kernel: &Kernel, ty: Ty, form: Form) -> Checked {
    for (rows, columns) in [(10, 12), (3, 4), (7, 5)] {
        let x = bench.input(ty, &[2, 3, 5, 6], form, element(ty))?;
        let wanted = x.tensor.upsample_nearest2d(rows, columns)?;
        let out = bench.output(ty, wanted.elem_count())?;
        let scales = [A::Double(5.0 / rows as f64), A::Double(6.0 / columns as f64)];
        let arguments: Vec<A<'_>> =
            [A::Size(rows), A::Size(columns)].into_iter().chain(scales).chain([A::Info(x.info()), A::In(&x), A::Out(&out)]).collect();
        bench.run(kernel, wide(wanted.elem_count()), &arguments)?;
        bench.compare(&format!("to {rows} × {columns}"), &out, &wanted, Near::Exact)?;
    }
    Ok(())
}

fn bilinear(bench: &mut Bench, kernel: &Kernel, ty: Ty, form: Form) -> Checked {
    // Powers of two: the weights are exact, so integers truncate to the same.
    for (rows, columns, align, scaled) in [(8, 16, false, false), (8, 16, false, true), (7, 15, true, false), (2, 4, false, false)] {
        let x = bench.input(ty, &[2, 2, 4, 8], form, |random| if ty.is_float() { random.float(-2.0, 2.0) } else { random.int(0, 90) })?;
        let input = float(&x)?;
        let mut wanted = match scaled {
            true => input.upsample_bilinear2d_with_scale(rows as f64 / 4.0, columns as f64 / 8.0, align)?,
            false => input.upsample_bilinear2d(rows, columns, align)?,
        };
        if !ty.is_float() {
            wanted = wanted.floor()?;
        }
        let out = bench.output(ty, wanted.elem_count())?;
        let factor = |to: usize, from: f64| A::Double(if scaled { to as f64 / from } else { 0.0 });
        let scales = [A::Bool(scaled), factor(rows, 4.0), A::Bool(scaled), factor(columns, 8.0)];
        let head = [A::Size(columns), A::Size(rows), A::Bool(align)];
        let arguments: Vec<A<'_>> = head.into_iter().chain(scales).chain([A::Info(x.info()), A::In(&x), A::Out(&out)]).collect();
        bench.run(kernel, wide(wanted.elem_count()), &arguments)?;
        let near = if ty.is_float() { Near::Within(8.0 * 2.0 * f64::EPSILON) } else { Near::Exact };
        bench.compare(&format!("to {rows} × {columns}, corners {align}"), &out, &wanted, near)?;
    }
    Ok(())
}

/// The elements under a window of an image; zero in the padding.
fn seen(place: usize, padding: usize, length: usize) -> Option<usize> {
    place.checked_sub(padding).filter(|place| *place < length)
}

fn im2col(bench: &mut Bench, kernel: &Kernel, ty: Ty, form: Form) -> Checked {
    let (dims, size) = ([2, 3, 6, 7], (2, 3));
    for (stride, padding, dilation) in [(1, 0, 1), (2, 1, 2)] {
        let x = bench.input(ty, &dims, form, element(ty))?;
        let places = |length: usize, size: usize| (length + 2 * padding - dilation * (size - 1) - 1) / stride + 1;
        let (rows, columns) = (places(dims[2], size.0), places(dims[3], size.1));
        let values = x.values()?;
        let mut wanted = Vec::new();
        for (b, h, w) in triples(dims[0], rows, columns) {
            for (c, i, j) in triples(dims[1], size.0, size.1) {
                let place = seen(h * stride + i * dilation, padding, dims[2]).zip(seen(w * stride + j * dilation, padding, dims[3]));
                wanted.push(place.map_or(0.0, |(h, w)| values[((b * dims[1] + c) * dims[2] + h) * dims[3] + w]));
            }
        }
        let out = bench.output(ty, wanted.len())?;
        let numbers = [wanted.len(), rows, columns, size.0, size.1, stride, padding, dilation].map(A::Size);
        let arguments: Vec<A<'_>> = numbers.into_iter().chain([A::Info(x.info()), A::In(&x), A::Out(&out)]).collect();
        bench.run(kernel, wide(wanted.len()), &arguments)?;
        bench.compare_each("", &out, &wanted, |_| Near::Exact)?;
    }
    Ok(())
}

fn im2col1d(bench: &mut Bench, kernel: &Kernel, ty: Ty, form: Form) -> Checked {
    let (dims, size, stride, padding, dilation) = ([2, 3, 11], 3, 2, 1, 2);
    let x = bench.input(ty, &dims, form, element(ty))?;
    let places = (dims[2] + 2 * padding - dilation * (size - 1) - 1) / stride + 1;
    let values = x.values()?;
    let mut wanted = Vec::new();
    for (b, l, c) in triples(dims[0], places, dims[1]) {
        for k in 0..size {
            let place = seen(l * stride + k * dilation, padding, dims[2]);
            wanted.push(place.map_or(0.0, |l| values[(b * dims[1] + c) * dims[2] + l]));
        }
    }
    let out = bench.output(ty, wanted.len())?;
    let threads = wanted.len() / size;
    let numbers = [threads, places, size, stride, padding, dilation].map(A::Size);
    let arguments: Vec<A<'_>> = numbers.into_iter().chain([A::Info(x.info()), A::In(&x), A::Out(&out)]).collect();
    bench.run(kernel, wide(threads), &arguments)?;
    bench.compare_each("", &out, &wanted, |_| Near::Exact)
}

fn col2im1d(bench: &mut Bench, kernel: &Kernel, ty: Ty, form: Form) -> Checked {
    let (batch, length, channels, size, stride) = (2, 5, 3, 4, 2);
    let x = bench.input(ty, &[batch, length, channels, size], form, element(ty))?;
    let places = (length - 1) * stride + size;
    // A transposed convolution of one channel with ones, for each column.
    let scatter = |source: &[f64]| {
        let mut sums = vec![0.0; batch * channels * places];
        for (b, l, c) in triples(batch, length, channels) {
            for k in 0..size {
                sums[(b * channels + c) * places + l * stride + k] += source[((b * length + l) * channels + c) * size + k];
            }
        }
        sums
    };
    let source = x.values()?;
    let (wanted, mass) = (scatter(&source), scatter(&source.iter().map(|x| x.abs()).collect::<Vec<_>>()));
    let out = bench.output(ty, wanted.len())?;
    let numbers = [wanted.len(), places, length, channels, size, stride].map(A::Size);
    let arguments: Vec<A<'_>> = numbers.into_iter().chain([A::In(&x), A::Out(&out)]).collect();
    bench.run(kernel, wide(wanted.len()), &arguments)?;
    let wanted = Tensor::from_vec(wanted, batch * channels * places, &Device::Cpu)?;
    // At most two elements overlap.
    let near = |i: usize| if ty.is_float() { Near::Within(0.5 * ty.epsilon() * mass[i]) } else { Near::Exact };
    bench.compare_each("", &out, &values(&wanted)?, near)
}

fn triples(a: usize, b: usize, c: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..a).flat_map(move |i| (0..b).flat_map(move |j| (0..c).map(move |k| (i, j, k))))
}
