//! Convolutions of image models.

use warpwave_kernels::{Conv, DType, Layout, View, ViewMut};

use super::case::{Bench, Case, Run, Sizes, Work, torch_type};

/// Images, channels, height and width, filters, kernel size.
const SHAPES: [[usize; 6]; 12] = [
    [2, 320, 64, 64, 320, 3],
    [2, 640, 32, 32, 640, 3],
    [2, 1280, 16, 16, 1280, 3],
    [2, 1280, 8, 8, 1280, 3],
    [2, 320, 128, 128, 320, 3],
    [2, 640, 64, 64, 640, 3],
    [2, 1280, 32, 32, 1280, 3],
    [1, 512, 512, 512, 512, 3],
    [1, 128, 1024, 1024, 128, 3],
    [8, 320, 64, 64, 320, 3],
    [2, 2560, 16, 16, 1280, 3],
    [2, 320, 64, 64, 320, 1],
];

#[derive(Clone, Copy)]
struct Call {
    dtype: DType,
    shape: [usize; 6],
    nhwc: bool,
    groups: usize,
    transposed: bool,
}

pub fn cases(sizes: Sizes) -> Vec<Case> {
    let usual = Call { dtype: DType::Bf16, shape: SHAPES[0], nhwc: true, groups: 1, transposed: false };
    let mut calls: Vec<Call> = [true, false].into_iter().flat_map(|nhwc| SHAPES.map(|shape| Call { shape, nhwc, ..usual })).collect();
    calls.extend([
        Call { dtype: DType::F16, ..usual },
        Call { dtype: DType::F32, ..usual },
        Call { dtype: DType::F32, nhwc: false, ..usual },
    ]);
    calls.extend([true, false].map(|nhwc| Call { groups: 320, nhwc, ..usual }));
    calls.push(Call { transposed: true, ..usual });
    let small = |[n, c, h, w, f, k]: [usize; 6]| [n, sizes.of(c, 16), sizes.of(h, h.min(8)), sizes.of(w, w.min(8)), sizes.of(f, 16), k];
    let shrink =
        |call: Call| Call { shape: small(call.shape), groups: if call.groups == 1 { 1 } else { sizes.of(call.groups, 16) }, ..call };
    calls.into_iter().map(|call| case(shrink(call))).collect()
}

/// The logical (images, channels, height, width) of memory that is NHWC or NCHW.
pub fn layout([n, c, h, w]: [usize; 4], nhwc: bool) -> Result<Layout, warpwave_kernels::Error> {
    if nhwc { Layout::new(&[n, c, h, w], &[h * w * c, 1, w * c, c], 0) } else { Layout::contiguous(&[n, c, h, w]) }
}

fn case(call: Call) -> Case {
    let Call { dtype, shape: [n, c, h, w, filters, k], nhwc, groups, transposed } = call;
    let (x, out) = ([n, c, h, w], [n, filters, h, w]);
    let weights = if transposed { [c, filters / groups, k, k] } else { [filters, c / groups, k, k] };
    let make = move |bench: &Bench| {
        let (kernels, stream) = (bench.kernels.clone(), bench.stream.clone());
        let fill = |shape: [usize; 4]| bench.normal(dtype, shape.iter().product());
        let (from, weight) = (fill(x)?, fill(weights)?);
        let mut to = bench.room(dtype, out.iter().product())?;
        let conv = Conv::new().padding(k / 2).groups(groups);
        let run: Run = Box::new(move || {
            let from = View::of_bytes(&from, dtype, layout(x, nhwc)?)?;
            let weight = View::of_bytes(&weight, dtype, layout(weights, nhwc)?)?;
            let mut to = ViewMut::of_bytes(&mut to, dtype, layout(out, nhwc)?)?;
            match transposed {
                true => Ok(kernels.conv_transpose2d(&stream, &conv, &from, &weight, None, &mut to)?),
                false => Ok(kernels.conv2d(&stream, &conv, &from, &weight, None, &mut to)?),
            }
        });
        Ok(run)
    };
    let (op, call) = if transposed { ("conv_transpose2d", "F.conv_transpose2d") } else { ("conv2d", "F.conv2d") };
    let order = if nhwc { "NHWC" } else { "NCHW" };
    let depthwise = if groups > 1 { " depthwise" } else { "" };
    let name = format!("{op} {dtype} {order} {n}x{c}x{h}x{w} to {filters} {k}x{k}{depthwise}");
    let work = if groups > 1 {
        Work::Bytes(((x.iter().product::<usize>() + out.iter().product::<usize>()) * dtype.size()) as u64)
    } else {
        Work::Flops((2 * n * h * w * c * filters * k * k) as u64)
    };
    let format = if nhwc { ".to(memory_format=torch.channels_last)" } else { "" };
    let tensor = |shape: [usize; 4]| {
        let [a, b, c, d] = shape;
        format!("randn({a}, {b}, {c}, {d}, dtype={}){format}", torch_type(dtype))
    };
    let setup = format!("x, w = {}, {}", tensor(x), tensor(weights));
    Case::new(name, work, make).torch(setup, format!("{call}(x, w, padding={}, groups={groups})", k / 2))
}
