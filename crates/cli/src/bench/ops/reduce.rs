//! Reductions, running sums, softmax and the norms.

use warpwave_kernels::{DType, Kernels, Layout, Norm, Reduce, View, ViewMut};

use warpwave_gpu::Stream;

use super::super::super::Failure;
use super::case::{Bench, Case, Run, Sizes, Work, torch_type};

/// Bytes of an input on a real device: reading it is what a reduction does.
const INPUT: usize = 1 << 30;

pub fn cases(sizes: Sizes) -> Vec<Case> {
    use DType::{Bf16, F16, F32};
    let mut cases = Vec::new();
    for (op, call) in [
        (Reduce::Sum, "x.sum({})"),
        (Reduce::Max, "x.amax({})"),
        (Reduce::ArgMax, "x.argmax({})"),
        (Reduce::Mean, "x.mean({})"),
        (Reduce::Var(1.0), "x.var({})"),
    ] {
        for dtype in [F32, Bf16] {
            cases.extend([Over::Last(4096), Over::First(4096), Over::All].map(|over| reduce(sizes, op, dtype, over, call)));
        }
    }
    for over in [Over::Last(1024), Over::Last(8192), Over::Last(32768), Over::First(512)] {
        cases.extend([F32, Bf16].map(|dtype| reduce(sizes, Reduce::Sum, dtype, over, "x.sum({})")));
    }
    for (op, call) in [
        (Reduce::Prod, "x.prod({})"),
        (Reduce::Min, "x.amin({})"),
        (Reduce::ArgMin, "x.argmin({})"),
        (Reduce::Any, "x.any({})"),
        (Reduce::All, "x.all({})"),
    ] {
        cases.push(reduce(sizes, op, F32, Over::Last(4096), call));
    }
    for over in [Over::Last(4096), Over::First(4096)] {
        cases.extend([F32, Bf16].map(|dtype| cumsum(sizes, dtype, over)));
    }
    for columns in [1024, 4096, 8192, 32768] {
        for dtype in [F32, Bf16] {
            cases.push(softmax(sizes, dtype, columns, false));
            cases.extend(["rms_norm", "layer_norm"].map(|op| norm(sizes, op, dtype, columns)));
        }
    }
    for dtype in [F32, Bf16] {
        cases.push(softmax(sizes, dtype, 4096, true));
        cases.extend(["add_rms_norm", "add_layer_norm"].map(|op| norm(sizes, op, dtype, 4096)));
        for silu in [false, true] {
            cases.extend([(256, 64), (512, 16)].map(|(channels, side)| group_norm(sizes, dtype, channels, side, silu)));
        }
    }
    cases.push(softmax(sizes, F16, 4096, false));
    cases.push(norm(sizes, "rms_norm", F16, 4096));
    cases
}

/// Which axis of a matrix goes, with the number of its columns.
#[derive(Clone, Copy)]
enum Over {
    Last(usize),
    First(usize),
    All,
}

impl Over {
    /// Rows and columns of a matrix that is read.
    fn shape(self, sizes: Sizes, dtype: DType) -> [usize; 2] {
        let columns = match self {
            Over::Last(columns) | Over::First(columns) => columns,
            Over::All => 4096,
        };
        [sizes.of(INPUT / dtype.size() / columns, 8), sizes.of(columns, columns.min(512))]
    }

    fn axes(self) -> &'static [usize] {
        match self {
            Over::Last(_) => &[1],
            Over::First(_) => &[0],
            Over::All => &[0, 1],
        }
    }

    fn words(self) -> &'static str {
        match self {
            Over::Last(_) => "last axis of",
            Over::First(_) => "first axis of",
            Over::All => "all of",
        }
    }

    /// As PyTorch's argument.
    fn argument(self) -> &'static str {
        match self {
            Over::Last(_) => "-1",
            Over::First(_) => "0",
            Over::All => "",
        }
    }
}

fn reduce(sizes: Sizes, op: Reduce, dtype: DType, over: Over, call: &str) -> Case {
    let shape = over.shape(sizes, dtype);
    let to = op.results(dtype).first().copied().unwrap_or(dtype);
    let results: usize = (0..2).filter(|axis| !over.axes().contains(axis)).map(|axis| shape[axis]).product();
    let make = move |bench: &Bench| {
        let (kernels, stream) = (bench.kernels.clone(), bench.stream.clone());
        let (input, mut out) = (bench.normal(dtype, shape[0] * shape[1])?, bench.room(to, results)?);
        let kept: Vec<usize> = (0..2).map(|axis| if over.axes().contains(&axis) { 1 } else { shape[axis] }).collect();
        let (from, kept) = (Layout::contiguous(&shape)?, Layout::contiguous(&kept)?);
        let run: Run = Box::new(move || {
            let (x, mut y) = (View::of_bytes(&input, dtype, from)?, ViewMut::of_bytes(&mut out, to, kept)?);
            Ok(kernels.reduce(&stream, op, &x, over.axes(), &mut y)?)
        });
        Ok(run)
    };
    let name = format!("{} {} {dtype} {}x{}", op.name(), over.words(), shape[0], shape[1]);
    let bytes = shape[0] * shape[1] * dtype.size() + results * to.size();
    Case::new(name, Work::Bytes(bytes as u64), make).torch(matrix(shape, dtype), call.replace("{}", over.argument()))
}

fn matrix(shape: [usize; 2], dtype: DType) -> String {
    format!("x = randn({}, {}, dtype={})", shape[0], shape[1], torch_type(dtype))
}

/// An operation from a matrix to one of the same shape, of half the size of what a reduction reads.
fn rows(
    sizes: Sizes,
    dtype: DType,
    columns: usize,
    run: impl Fn(&Kernels, &Stream, &View<'_>, &mut ViewMut<'_>) -> Result<(), warpwave_kernels::Error> + 'static,
) -> ([usize; 2], impl FnOnce(&Bench) -> Result<Run, Failure>) {
    let shape = [sizes.of(INPUT / 2 / dtype.size() / columns, 8), sizes.of(columns, columns.min(512))];
    let make = move |bench: &Bench| {
        let (kernels, stream) = (bench.kernels.clone(), bench.stream.clone());
        let (input, mut out) = (bench.normal(dtype, shape[0] * shape[1])?, bench.room(dtype, shape[0] * shape[1])?);
        let layout = Layout::contiguous(&shape)?;
        let timed: Run = Box::new(move || {
            let (x, mut y) = (View::of_bytes(&input, dtype, layout)?, ViewMut::of_bytes(&mut out, dtype, layout)?);
            Ok(run(&kernels, &stream, &x, &mut y)?)
        });
        Ok(timed)
    };
    (shape, make)
}

fn moved(shape: [usize; 2], dtype: DType, times: usize) -> Work {
    Work::Bytes((times * shape[0] * shape[1] * dtype.size()) as u64)
}

fn softmax(sizes: Sizes, dtype: DType, columns: usize, log: bool) -> Case {
    let (shape, make) = rows(sizes, dtype, columns, move |kernels, stream, x, out| match log {
        true => kernels.log_softmax(stream, x, 1, out),
        false => kernels.softmax(stream, x, 1, out),
    });
    let name = if log { "log_softmax" } else { "softmax" };
    Case::new(format!("{name} {dtype} {}x{}", shape[0], shape[1]), moved(shape, dtype, 2), make)
        .torch(matrix(shape, dtype), format!("torch.{name}(x, -1)"))
}

fn cumsum(sizes: Sizes, dtype: DType, over: Over) -> Case {
    let axis = over.axes()[0];
    let (shape, make) = rows(sizes, dtype, 4096, move |kernels, stream, x, out| kernels.cumsum(stream, x, axis, out));
    Case::new(format!("cumsum {} {dtype} {}x{}", over.words(), shape[0], shape[1]), moved(shape, dtype, 2), make)
        .torch(matrix(shape, dtype), format!("torch.cumsum(x, {axis})"))
}

fn norm(sizes: Sizes, op: &'static str, dtype: DType, columns: usize) -> Case {
    let shape = [sizes.of(INPUT / 2 / dtype.size() / columns, 8), sizes.of(columns, columns.min(512))];
    let (added, layer) = (op.starts_with("add_"), op.ends_with("layer_norm"));
    let make = move |bench: &Bench| {
        let (kernels, stream, len) = (bench.kernels.clone(), bench.stream.clone(), shape[0] * shape[1]);
        let (input, mut out) = (bench.normal(dtype, len)?, bench.room(dtype, len)?);
        let mut residual = bench.normal(dtype, if added { len } else { 0 })?;
        let (weight, bias) = (bench.normal(dtype, shape[1])?, bench.normal(dtype, shape[1])?);
        let (layout, line) = (Layout::contiguous(&shape)?, Layout::contiguous(&[shape[1]])?);
        let run: Run = Box::new(move || {
            let (x, mut y) = (View::of_bytes(&input, dtype, layout)?, ViewMut::of_bytes(&mut out, dtype, layout)?);
            let (weight, bias) = (View::of_bytes(&weight, dtype, line)?, View::of_bytes(&bias, dtype, line)?);
            let norm = Norm { weight: Some(weight), bias: layer.then_some(bias), epsilon: 1e-5 };
            if added {
                let mut residual = ViewMut::of_bytes(&mut residual, dtype, layout)?;
                let add = if layer { Kernels::add_layer_norm } else { Kernels::add_rms_norm };
                return Ok(add(&kernels, &stream, &x, &mut residual, &norm, &mut y)?);
            }
            let norm_of = if layer { Kernels::layer_norm } else { Kernels::rms_norm };
            Ok(norm_of(&kernels, &stream, &x, &norm, &mut y)?)
        });
        Ok(run)
    };
    let [rows, columns] = shape;
    let weights = format!("; w = randn({columns}, dtype={0}); b = randn({columns}, dtype={0})", torch_type(dtype));
    let other = if added { format!("; r = randn({rows}, {columns}, dtype={})", torch_type(dtype)) } else { String::new() };
    let x = if added { "r.add_(x)" } else { "x" };
    let call = if layer { format!("F.layer_norm({x}, ({columns},), w, b)") } else { format!("F.rms_norm({x}, ({columns},), w, 1e-5)") };
    Case::new(format!("{op} {dtype} {rows}x{columns}"), moved(shape, dtype, if added { 4 } else { 2 }), make)
        .torch(matrix(shape, dtype) + &weights + &other, call)
}

/// In NHWC with SiLU, as image models have it.
fn group_norm(sizes: Sizes, dtype: DType, channels: usize, side: usize, silu: bool) -> Case {
    let [channels, side] = [sizes.of(channels, 32), sizes.of(side, 8)];
    let shape = [sizes.of(INPUT / 2 / dtype.size() / (channels * side * side), 1), channels, side, side];
    let len: usize = shape.iter().product();
    let make = move |bench: &Bench| {
        let (kernels, stream) = (bench.kernels.clone(), bench.stream.clone());
        let (input, mut out) = (bench.normal(dtype, len)?, bench.room(dtype, len)?);
        let (weight, bias) = (bench.normal(dtype, channels)?, bench.normal(dtype, channels)?);
        let nhwc = Layout::contiguous(&[shape[0], side, side, channels])?.transpose(1, 3)?;
        let (layout, line) = (if silu { nhwc } else { Layout::contiguous(&shape)? }, Layout::contiguous(&[channels])?);
        let run: Run = Box::new(move || {
            let (x, mut y) = (View::of_bytes(&input, dtype, layout)?, ViewMut::of_bytes(&mut out, dtype, layout)?);
            let (weight, bias) = (View::of_bytes(&weight, dtype, line)?, View::of_bytes(&bias, dtype, line)?);
            Ok(kernels.group_norm(&stream, &x, 32, &Norm { weight: Some(weight), bias: Some(bias), epsilon: 1e-5 }, silu, &mut y)?)
        });
        Ok(run)
    };
    let [batch, _, _, _] = shape;
    let ty = torch_type(dtype);
    let setup = format!(
        "x = randn({batch}, {channels}, {side}, {side}, dtype={ty}){}; w = randn({channels}, dtype={ty}); b = randn({channels}, dtype={ty})",
        if silu { ".to(memory_format=torch.channels_last)" } else { "" }
    );
    let name = if silu { "group_norm silu NHWC" } else { "group_norm" };
    Case::new(format!("{name} {dtype} {batch}x{channels}x{side}x{side}"), Work::Bytes((2 * len * dtype.size()) as u64), make)
        .torch(setup, if silu { "F.silu(F.group_norm(x, 32, w, b))" } else { "F.group_norm(x, 32, w, b)" })
}
