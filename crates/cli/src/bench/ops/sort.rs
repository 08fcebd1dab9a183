//! Rows in order, distinct elements, and counting.

use warpwave_gpu::Slice;
use warpwave_kernels::{DType, Layout, View, ViewMut};

use super::case::{Bench, Case, Run, Sizes, Work, torch_type};

pub fn cases(sizes: Sizes) -> Vec<Case> {
    use DType::{Bf16, F32, I32, I64, U8};
    vec![
        topk(F32, sizes.of(16_384, 4), sizes.of(4096, 512), 8),
        topk(F32, sizes.of(16_384, 4), sizes.of(4096, 512), 64),
        topk(Bf16, sizes.of(16_384, 4), sizes.of(4096, 512), 64),
        topk(F32, sizes.of(16_384, 2), sizes.of(4096, 1500), 1024),
        topk(F32, sizes.of(65_536, 16), 128, 8),
        topk(F32, sizes.of(32, 1), sizes.of(151_936, 5000), 50),
        topk(F32, 1, sizes.of(151_936, 5000), 50),
        topk(F32, 1, sizes.of(151_936, 5000), 1024),
        topk(F32, sizes.of(64, 1), sizes.of(151_936, 5000), 256),
        topk(F32, sizes.of(64, 1), sizes.of(151_936, 5000), 1024),
        topk(F32, sizes.of(8, 1), sizes.of(32_000, 5000), 256),
        topk(F32, sizes.of(64, 1), sizes.of(151_936, 10_000), sizes.of(16_384, 5000)),
        argsort(F32, sizes.of(16_384, 4), sizes.of(1024, 200)),
        argsort(Bf16, sizes.of(16_384, 4), sizes.of(1024, 200)),
        argsort(F32, sizes.of(4096, 2), sizes.of(4096, 1000)),
        argsort(F32, sizes.of(1024, 1), sizes.of(16_384, 2000)),
        sort(F32, sizes.of(1 << 28, 20_000)),
        sort(I32, sizes.of(1 << 28, 20_000)),
        sort(I64, sizes.of(1 << 27, 20_000)),
        sort(F32, sizes.of(1 << 24, 20_000)),
        sort(Bf16, sizes.of(1 << 28, 20_000)),
        unique(I32, sizes.of(1 << 26, 5000)),
        histogram(F32, sizes.of(1 << 28, 5000), 256),
        bincount(U8, sizes.of(1 << 28, 5000), 256),
    ]
}

fn topk(dtype: DType, rows: usize, n: usize, k: usize) -> Case {
    let make = move |bench: &Bench| {
        let (kernels, stream) = (bench.kernels.clone(), bench.stream.clone());
        let (x, mut values) = (bench.normal(dtype, rows * n)?, bench.room(dtype, rows * k)?);
        let mut indices = bench.stream.alloc::<i64>(rows * k)?;
        let run: Run = Box::new(move || {
            let (from, to) = (Layout::contiguous(&[rows, n])?, Layout::contiguous(&[rows, k])?);
            let (mut values, mut indices) = (ViewMut::of_bytes(&mut values, dtype, to)?, ViewMut::new(&mut indices, to)?);
            Ok(kernels.topk(&stream, &View::of_bytes(Slice::from(&x), dtype, from)?, true, &mut values, &mut indices)?)
        });
        Ok(run)
    };
    let setup = format!("x = randn({rows}, {n}, dtype={})", torch_type(dtype));
    Case::new(format!("topk {dtype} {rows}x{n}, k {k}"), Work::Small, make).torch(setup, format!("torch.topk(x, {k})"))
}

fn argsort(dtype: DType, rows: usize, n: usize) -> Case {
    let make = move |bench: &Bench| {
        let (kernels, stream) = (bench.kernels.clone(), bench.stream.clone());
        let (x, mut indices) = (bench.normal(dtype, rows * n)?, bench.stream.alloc::<i64>(rows * n)?);
        let layout = Layout::contiguous(&[rows, n])?;
        let run: Run = Box::new(move || {
            let x = View::of_bytes(&x, dtype, layout)?;
            Ok(kernels.argsort(&stream, &x, false, &mut ViewMut::new(&mut indices, layout)?)?)
        });
        Ok(run)
    };
    // Ours is stable; PyTorch's need not be, whichever is faster.
    let setup = format!("x = randn({rows}, {n}, dtype={})", torch_type(dtype));
    Case::new(format!("argsort {dtype} {rows}x{n}"), Work::Small, make).torch(setup, "torch.argsort(x, dim=-1)")
}

/// Elements and 64-bit indices.
fn sort(dtype: DType, n: usize) -> Case {
    let make = move |bench: &Bench| {
        let (kernels, stream) = (bench.kernels.clone(), bench.stream.clone());
        // Integers of all bits: normal ones would be few.
        let x = if dtype.is_integer() { bench.bytes(n * dtype.size())? } else { bench.normal(dtype, n)? };
        let (mut values, mut indices) = (bench.room(dtype, n)?, bench.stream.alloc::<i64>(n)?);
        let layout = Layout::contiguous(&[n])?;
        let run: Run = Box::new(move || {
            let (mut values, mut indices) = (ViewMut::of_bytes(&mut values, dtype, layout)?, ViewMut::new(&mut indices, layout)?);
            Ok(kernels.sort(&stream, &View::of_bytes(&x, dtype, layout)?, false, &mut values, Some(&mut indices))?)
        });
        Ok(run)
    };
    let ty = torch_type(dtype);
    let setup = if dtype.is_integer() {
        let limit = 1u64 << (8 * dtype.size() - 1);
        format!("x = randint(-{limit}, {}, ({n},)).to({ty})", limit - 1)
    } else {
        format!("x = randn({n}, dtype={ty})")
    };
    Case::new(format!("sort {dtype} {n}"), Work::Small, make).torch(setup, "torch.sort(x, stable=True)")
}

fn unique(dtype: DType, n: usize) -> Case {
    let kinds = n / 16;
    let make = move |bench: &Bench| {
        let (kernels, stream) = (bench.kernels.clone(), bench.stream.clone());
        let x = super::index::ids(bench, n, kinds)?;
        let (mut values, mut inverse) = (bench.room(dtype, n)?, bench.stream.alloc::<i64>(n)?);
        let mut counts = bench.stream.alloc::<i64>(n)?;
        let layout = Layout::contiguous(&[n])?;
        let run: Run = Box::new(move || {
            let (mut inverse, mut counts) = (ViewMut::new(&mut inverse, layout)?, ViewMut::new(&mut counts, layout)?);
            let x = View::of_bytes(Slice::from(&x).into_bytes(), dtype, layout)?;
            kernels.unique(&stream, &x, &mut ViewMut::of_bytes(&mut values, dtype, layout)?, Some(&mut inverse), Some(&mut counts))?;
            Ok(())
        });
        Ok(run)
    };
    let setup = format!("x = randint(0, {kinds}, ({n},)).to({})", torch_type(dtype));
    Case::new(format!("unique {dtype} {n}"), Work::Small, make).torch(setup, "torch.unique(x, return_inverse=True, return_counts=True)")
}

fn histogram(dtype: DType, n: usize, bins: usize) -> Case {
    let make = move |bench: &Bench| {
        let (kernels, stream) = (bench.kernels.clone(), bench.stream.clone());
        let (x, mut counts) = (bench.normal(dtype, n)?, bench.stream.alloc::<i64>(bins)?);
        let run: Run = Box::new(move || {
            let mut counts = ViewMut::new(&mut counts, Layout::contiguous(&[bins])?)?;
            Ok(kernels.histogram(&stream, &View::of_bytes(&x, dtype, Layout::contiguous(&[n])?)?, -4.0, 4.0, &mut counts)?)
        });
        Ok(run)
    };
    let setup = format!("x = randn({n}, dtype={})", torch_type(dtype));
    Case::new(format!("histogram {dtype} {n}, {bins} bins"), Work::Bytes((n * dtype.size()) as u64), make)
        .torch(setup, format!("torch.histc(x, {bins}, -4, 4)"))
}

fn bincount(dtype: DType, n: usize, bins: usize) -> Case {
    let make = move |bench: &Bench| {
        let (kernels, stream) = (bench.kernels.clone(), bench.stream.clone());
        let (x, mut counts) = (bench.bytes(n * dtype.size())?, bench.stream.alloc::<i64>(bins)?);
        let run: Run = Box::new(move || {
            let mut counts = ViewMut::new(&mut counts, Layout::contiguous(&[bins])?)?;
            Ok(kernels.bincount(&stream, &View::of_bytes(&x, dtype, Layout::contiguous(&[n])?)?, &mut counts)?)
        });
        Ok(run)
    };
    let setup = format!("x = randint(0, {bins}, ({n},)).to({})", torch_type(dtype));
    Case::new(format!("bincount {dtype} {n}, {bins} bins"), Work::Bytes((n * dtype.size()) as u64), make)
        .torch(setup, format!("torch.bincount(x, minlength={bins})"))
}
