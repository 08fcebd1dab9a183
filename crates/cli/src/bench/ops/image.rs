//! Pooling, resampling, im2col and padding of images.

use warpwave_kernels::{Conv, DType, Layout, PadMode, Pool, View, ViewMut};

use super::case::{Bench, Case, Run, Sizes, Work, torch_type};
use super::conv::layout;

#[derive(Clone, Copy)]
enum Op {
    Average,
    Max,
    Nearest,
    Bilinear,
    Columns,
    Reflect,
}

pub fn cases(sizes: Sizes) -> Vec<Case> {
    let mut cases = Vec::new();
    for (op, dtype) in [
        (Op::Average, DType::Bf16),
        (Op::Max, DType::Bf16),
        (Op::Nearest, DType::Bf16),
        (Op::Bilinear, DType::F32),
        (Op::Columns, DType::Bf16),
        (Op::Reflect, DType::F32),
    ] {
        cases.extend([false, true].map(|nhwc| case(sizes, op, dtype, nhwc)));
    }
    cases
}

fn case(sizes: Sizes, op: Op, dtype: DType, nhwc: bool) -> Case {
    let [n, c, size] = [8, sizes.of(320, 8), sizes.of(128, 8)];
    let (x, pool, conv) = ([n, c, size, size], Pool::new([2, 2]), Conv::new().padding(1));
    let (name, call, to) = match op {
        Op::Average => ("avg_pool2d", "F.avg_pool2d(x, 2)", [n, c, size / 2, size / 2]),
        Op::Max => ("max_pool2d", "F.max_pool2d(x, 2)", [n, c, size / 2, size / 2]),
        Op::Nearest => ("upsample_nearest2d", "F.interpolate(x, scale_factor=2, mode='nearest')", [n, c, 2 * size, 2 * size]),
        Op::Bilinear => ("upsample_bilinear2d", "F.interpolate(x, scale_factor=2, mode='bilinear')", [n, c, 2 * size, 2 * size]),
        Op::Columns => ("im2col", "F.unfold(x, 3, padding=1)", [n, size, size, 9 * c]),
        Op::Reflect => ("pad reflect", "F.pad(x, (2, 2, 2, 2), mode='reflect')", [n, c, size + 4, size + 4]),
    };
    let make = move |bench: &Bench| {
        let (kernels, stream) = (bench.kernels.clone(), bench.stream.clone());
        let (from, mut out) = (bench.normal(dtype, x.iter().product())?, bench.room(dtype, to.iter().product())?);
        let to = if matches!(op, Op::Columns) { Layout::contiguous(&to)? } else { layout(to, nhwc)? };
        let run: Run = Box::new(move || {
            let from = View::of_bytes(&from, dtype, layout(x, nhwc)?)?;
            let mut out = ViewMut::of_bytes(&mut out, dtype, to)?;
            Ok(match op {
                Op::Average => kernels.avg_pool2d(&stream, &pool, &from, &mut out),
                Op::Max => kernels.max_pool2d(&stream, &pool, &from, &mut out),
                Op::Nearest => kernels.upsample_nearest2d(&stream, &from, &mut out),
                Op::Bilinear => kernels.upsample_bilinear2d(&stream, false, &from, &mut out),
                Op::Columns => kernels.im2col(&stream, [3, 3], &conv, &from, &mut out),
                Op::Reflect => kernels.pad(&stream, PadMode::Reflect, &[0, 0, 2, 2], &from, &mut out),
            }?)
        });
        Ok(run)
    };
    let format = if nhwc { ".to(memory_format=torch.channels_last)" } else { "" };
    let setup = format!("x = randn({n}, {c}, {size}, {size}, dtype={}){format}", torch_type(dtype));
    let bytes = (x.iter().product::<usize>() + to.iter().product::<usize>()) * dtype.size();
    let order = if nhwc { "NHWC" } else { "NCHW" };
    Case::new(format!("{name} {dtype} {order} {n}x{c}x{size}x{size}"), Work::Bytes(bytes as u64), make).torch(setup, call)
}
