//! Elements by their indices.

use warpwave_gpu::Buffer;
use warpwave_kernels::{Binary, DType, Kernels, Layout, View, ViewMut};

use super::super::super::Failure;
use super::case::{Bench, Case, Run, Sizes, Work, torch_type};

pub fn cases(sizes: Sizes) -> Vec<Case> {
    let table = sizes.of(151_936, 500);
    vec![
        embedding(sizes, table, sizes.of(65_536, 64), false),
        embedding(sizes, table, sizes.of(4096, 16), true),
        index_select(sizes),
        gather(sizes),
        scatter(sizes, false, true),
        scatter(sizes, true, true),
        scatter(sizes, false, false),
        scatter(sizes, true, false),
        masked_fill(sizes, DType::Bf16),
        index_add(sizes, true),
        index_add(sizes, false),
    ]
}

/// Indices below a limit, each made by the multiplication of a random number.
pub fn ids(bench: &Bench, count: usize, limit: usize) -> Result<Buffer<u32>, Failure> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (((state >> 32) * limit as u64) >> 32) as u32
    };
    Ok(bench.stream.upload(&(0..count).map(|_| next()).collect::<Vec<_>>())?)
}

fn embedding(sizes: Sizes, rows: usize, count: usize, small: bool) -> Case {
    let (dtype, columns) = (DType::Bf16, sizes.of(4096, 64));
    let make = move |bench: &Bench| {
        let (kernels, stream) = (bench.kernels.clone(), bench.stream.clone());
        let (table, mut out) = (bench.normal(dtype, rows * columns)?, bench.room(dtype, count * columns)?);
        let ids = ids(bench, count, rows)?;
        let run: Run = Box::new(move || {
            let table = View::of_bytes(&table, dtype, Layout::contiguous(&[rows, columns])?)?;
            let mut out = ViewMut::of_bytes(&mut out, dtype, Layout::contiguous(&[count, columns])?)?;
            Ok(kernels.embedding(&stream, &table, &View::new(&ids, Layout::contiguous(&[count])?)?, &mut out)?)
        });
        Ok(run)
    };
    let work = if small { Work::Small } else { Work::Bytes((2 * count * columns * dtype.size()) as u64) };
    let setup = format!("t = randn({rows}, {columns}, dtype={}); i = randint(0, {rows}, ({count},))", torch_type(dtype));
    Case::new(format!("embedding {dtype} {rows}x{columns}, {count} ids"), work, make).torch(setup, "F.embedding(i, t)")
}

fn index_select(sizes: Sizes) -> Case {
    let (dtype, rows, columns, count) = (DType::F32, sizes.of(65_536, 64), sizes.of(4096, 64), sizes.of(32_768, 32));
    let make = move |bench: &Bench| {
        let (kernels, stream) = (bench.kernels.clone(), bench.stream.clone());
        let (x, mut out) = (bench.normal(dtype, rows * columns)?, bench.room(dtype, count * columns)?);
        let ids = ids(bench, count, rows)?;
        let run: Run = Box::new(move || {
            let x = View::of_bytes(&x, dtype, Layout::contiguous(&[rows, columns])?)?;
            let mut out = ViewMut::of_bytes(&mut out, dtype, Layout::contiguous(&[count, columns])?)?;
            Ok(kernels.index_select(&stream, &x, &View::new(&ids, Layout::contiguous(&[count])?)?, 0, &mut out)?)
        });
        Ok(run)
    };
    let setup = format!("x = randn({rows}, {columns}); i = randint(0, {rows}, ({count},))");
    Case::new(
        format!("index_select {dtype} {rows}x{columns}, {count} rows"),
        Work::Bytes((2 * count * columns * dtype.size()) as u64),
        make,
    )
    .torch(setup, "torch.index_select(x, 0, i)")
}

fn gather(sizes: Sizes) -> Case {
    let (dtype, rows, columns) = (DType::F32, sizes.of(16_384, 16), sizes.of(4096, 64));
    let make = move |bench: &Bench| {
        let (kernels, stream) = (bench.kernels.clone(), bench.stream.clone());
        let (x, mut out) = (bench.normal(dtype, rows * columns)?, bench.room(dtype, rows * columns)?);
        let layout = Layout::contiguous(&[rows, columns])?;
        let mut ids = bench.stream.alloc::<i64>(rows * columns)?;
        // Every row's own random order.
        kernels.argsort(&stream, &View::of_bytes(&x, dtype, layout)?, false, &mut ViewMut::new(&mut ids, layout)?)?;
        let run: Run = Box::new(move || {
            let (x, ids) = (View::of_bytes(&x, dtype, layout)?, View::new(&ids, layout)?);
            Ok(kernels.gather(&stream, &x, &ids, 1, &mut ViewMut::of_bytes(&mut out, dtype, layout)?)?)
        });
        Ok(run)
    };
    let setup = format!("x = randn({rows}, {columns}); i = randn({rows}, {columns}).argsort(dim=1)");
    Case::new(format!("gather {dtype} {rows}x{columns}"), Work::Bytes((rows * columns * 16) as u64), make)
        .torch(setup, "torch.gather(x, 1, i)")
}

/// What the name of a scatter without an order says after the operation.
fn order(ordered: bool) -> &'static str {
    if ordered { "" } else { " unordered" }
}

/// Each element to a place of its own, or two to a place, where they are added.
fn scatter(sizes: Sizes, add: bool, ordered: bool) -> Case {
    let (dtype, rows, columns) = (DType::F32, sizes.of(16_384, 16), sizes.of(4096, 64));
    let make = move |bench: &Bench| {
        let (kernels, stream) = (bench.kernels.clone(), bench.stream.clone());
        let (x, mut out) = (bench.normal(dtype, rows * columns)?, bench.normal(dtype, rows * columns)?);
        let layout = Layout::contiguous(&[rows, columns])?;
        let mut ids = bench.stream.alloc::<i64>(rows * columns)?;
        let mut places = ViewMut::new(&mut ids, layout)?;
        kernels.argsort(&stream, &View::of_bytes(&x, dtype, layout)?, false, &mut places)?;
        if add {
            let two = stream.upload(&[2i64])?;
            let twos = View::new(&two, Layout::contiguous(&[1])?.broadcast_to(&[rows, columns])?)?;
            kernels.binary_in_place(&stream, Binary::Div, &mut places, &twos)?;
        }
        let scattered = match (add, ordered) {
            (true, true) => Kernels::scatter_add,
            (true, false) => Kernels::scatter_add_unordered,
            (false, true) => Kernels::scatter,
            (false, false) => Kernels::scatter_unordered,
        };
        let run: Run = Box::new(move || {
            let (x, ids) = (View::of_bytes(&x, dtype, layout)?, View::new(&ids, layout)?);
            Ok(scattered(&kernels, &stream, &mut ViewMut::of_bytes(&mut out, dtype, layout)?, &ids, &x, 1)?)
        });
        Ok(run)
    };
    let (op, half) = if add { ("scatter_add", " // 2") } else { ("scatter", "") };
    // PyTorch adds in no certain order.
    let setup = format!("o = randn({rows}, {columns}); x = randn({rows}, {columns}); i = randn({rows}, {columns}).argsort(dim=1){half}");
    Case::new(format!("{op}{} {dtype} {rows}x{columns}", order(ordered)), Work::Small, make).torch(setup, format!("o.{op}_(1, i, x)"))
}

fn masked_fill(sizes: Sizes, dtype: DType) -> Case {
    let len = sizes.of((1 << 30) / 5, 4096) / 4096 * 4096;
    let make = move |bench: &Bench| {
        let (kernels, stream) = (bench.kernels.clone(), bench.stream.clone());
        let (x, mask, mut out) = (bench.normal(dtype, len)?, bench.normal(DType::U8, len)?, bench.room(dtype, len)?);
        let layout = Layout::contiguous(&[len])?;
        let run: Run = Box::new(move || {
            let (x, mask) = (View::of_bytes(&x, dtype, layout)?, View::of_bytes(&mask, DType::U8, layout)?);
            Ok(kernels.masked_fill(&stream, &x, &mask, f64::NEG_INFINITY, &mut ViewMut::of_bytes(&mut out, dtype, layout)?)?)
        });
        Ok(run)
    };
    let setup = format!("x = randn({len}, dtype={}); m = randn({len}) > 0", torch_type(dtype));
    Case::new(format!("masked_fill {dtype} {len}"), Work::Bytes((len * (2 * dtype.size() + 1)) as u64), make)
        .torch(setup, "x.masked_fill(m, float('-inf'))")
}

fn index_add(sizes: Sizes, ordered: bool) -> Case {
    let (dtype, rows, columns) = (DType::F32, sizes.of(65_536, 64), sizes.of(1024, 64));
    let make = move |bench: &Bench| {
        let (kernels, stream) = (bench.kernels.clone(), bench.stream.clone());
        let (x, mut out) = (bench.normal(dtype, rows * columns)?, bench.normal(dtype, rows * columns)?);
        let ids = ids(bench, rows, rows)?;
        let layout = Layout::contiguous(&[rows, columns])?;
        let added = if ordered { Kernels::index_add } else { Kernels::index_add_unordered };
        let run: Run = Box::new(move || {
            let (x, ids) = (View::of_bytes(&x, dtype, layout)?, View::new(&ids, Layout::contiguous(&[rows])?)?);
            Ok(added(&kernels, &stream, &mut ViewMut::of_bytes(&mut out, dtype, layout)?, &ids, &x, 0)?)
        });
        Ok(run)
    };
    let setup = format!("o = randn({rows}, {columns}); x = randn({rows}, {columns}); i = randint(0, {rows}, ({rows},))");
    Case::new(format!("index_add{} {dtype} {rows}x{columns}", order(ordered)), Work::Small, make).torch(setup, "o.index_add_(0, i, x)")
}
