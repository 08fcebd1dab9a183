//! Elementwise operations.

use warpwave_gpu::Buffer;
use warpwave_kernels::{Binary, DType, Layout, Scalar, Unary, View, ViewMut};

use super::case::{Bench, Case, Run, Sizes, Work, torch_type};

/// Bytes that a case moves at least on a real device.
const TRAFFIC: usize = 1 << 30;

pub fn cases(sizes: Sizes) -> Vec<Case> {
    use DType::{Bf16, F16, F32, F64, I32, I64, U8};
    let mut cases =
        vec![fill(sizes, F32), copy(sizes, F32, true), copy(sizes, Bf16, true), copy(sizes, F32, false), copy(sizes, Bf16, false)];
    for (op, call) in [
        (Unary::Exp, "torch.exp(x)"),
        (Unary::Log, "torch.log(x)"),
        (Unary::Sin, "torch.sin(x)"),
        (Unary::Cos, "torch.cos(x)"),
        (Unary::Tanh, "torch.tanh(x)"),
        (Unary::Neg, "torch.neg(x)"),
        (Unary::Recip, "torch.reciprocal(x)"),
        (Unary::Sqr, "torch.square(x)"),
        (Unary::Sqrt, "torch.sqrt(x)"),
        (Unary::Rsqrt, "torch.rsqrt(x)"),
        (Unary::Gelu, "F.gelu(x, approximate='tanh')"),
        (Unary::GeluErf, "F.gelu(x)"),
        (Unary::Erf, "torch.erf(x)"),
        (Unary::Relu, "F.relu(x)"),
        (Unary::Silu, "F.silu(x)"),
        (Unary::Sigmoid, "torch.sigmoid(x)"),
        (Unary::Abs, "torch.abs(x)"),
        (Unary::Floor, "torch.floor(x)"),
        (Unary::Ceil, "torch.ceil(x)"),
        (Unary::Round, "torch.round(x)"),
        (Unary::Sign, "torch.sign(x)"),
        (Unary::Elu(1.0), "F.elu(x)"),
        (Unary::Powf(2.5), "torch.pow(x, 2.5)"),
        (Unary::Clamp(Scalar::Float(-0.5), Scalar::Float(1.0)), "torch.clamp(x, -0.5, 1.0)"),
    ] {
        cases.extend([F32, Bf16].map(|dtype| unary(sizes, op, dtype, call)));
    }
    cases.extend([F16, F64].map(|dtype| unary(sizes, Unary::Silu, dtype, "F.silu(x)")));
    for (op, call) in [
        (Binary::Add, "torch.add(a, b)"),
        (Binary::Sub, "torch.sub(a, b)"),
        (Binary::Mul, "torch.mul(a, b)"),
        (Binary::Div, "torch.div(a, b)"),
        (Binary::Max, "torch.maximum(a, b)"),
        (Binary::Min, "torch.minimum(a, b)"),
        (Binary::Pow, "torch.pow(a, b)"),
        (Binary::Lt, "torch.lt(a, b)"),
    ] {
        cases.extend([F32, Bf16].map(|dtype| binary(sizes, op, dtype, call)));
    }
    for (op, call) in [
        (Binary::Eq, "torch.eq(a, b)"),
        (Binary::Ne, "torch.ne(a, b)"),
        (Binary::Le, "torch.le(a, b)"),
        (Binary::Gt, "torch.gt(a, b)"),
        (Binary::Ge, "torch.ge(a, b)"),
    ] {
        cases.push(binary(sizes, op, Bf16, call));
    }
    cases.extend([F64, I32, I64, U8].map(|dtype| binary(sizes, Binary::Add, dtype, "torch.add(a, b)")));
    cases.extend([F32, Bf16].map(|dtype| select(sizes, dtype)));
    cases.extend([F32, Bf16].map(|dtype| affine(sizes, dtype)));
    for (from, to) in [
        (F32, Bf16),
        (Bf16, F32),
        (F32, F16),
        (F16, Bf16),
        (F32, F64),
        (F64, F32),
        (I32, F32),
        (F32, I32),
        (U8, F32),
        (F32, U8),
        (I64, I32),
    ] {
        cases.push(cast(sizes, from, to));
    }
    for fp8 in [DType::F8E4M3, DType::F8E5M2] {
        cases.extend([(F32, fp8), (fp8, Bf16)].map(|(from, to)| cast(sizes, from, to)));
    }
    cases
}

fn row(len: usize) -> Result<Layout, warpwave_kernels::Error> {
    Layout::contiguous(&[len])
}

/// Returns the number of elements that move the given total at the given bytes per element.
fn elements(sizes: Sizes, bytes: usize) -> usize {
    sizes.of(TRAFFIC / bytes, 4096)
}

fn millions(len: usize) -> String {
    if len >= 1 << 20 { format!("{}M", len >> 20) } else { len.to_string() }
}

fn views<'a>(
    input: &'a Buffer<u8>,
    from: DType,
    out: &'a mut Buffer<u8>,
    to: DType,
    len: usize,
) -> Result<(View<'a>, ViewMut<'a>), warpwave_kernels::Error> {
    Ok((View::of_bytes(input, from, row(len)?)?, ViewMut::of_bytes(out, to, row(len)?)?))
}

fn fill(sizes: Sizes, dtype: DType) -> Case {
    let len = elements(sizes, dtype.size());
    let make = move |bench: &Bench| {
        let (kernels, stream, mut out) = (bench.kernels.clone(), bench.stream.clone(), bench.room(dtype, len)?);
        let run: Run = Box::new(move || Ok(kernels.fill(&stream, 1.5, &mut ViewMut::of_bytes(&mut out, dtype, row(len)?)?)?));
        Ok(run)
    };
    let name = format!("fill {dtype} {}", millions(len));
    Case::new(name, Work::Bytes((len * dtype.size()) as u64), make)
        .torch(format!("x = torch.empty({len}, dtype={}, device='cuda')", torch_type(dtype)), "x.fill_(1.5)")
}

/// A copy, contiguous or transposed.
fn copy(sizes: Sizes, dtype: DType, straight: bool) -> Case {
    let (rows, columns) = (sizes.of(8192, 64), elements(sizes, 2 * dtype.size()) / sizes.of(8192, 64));
    let make = move |bench: &Bench| {
        let (kernels, stream) = (bench.kernels.clone(), bench.stream.clone());
        let (input, mut out) = (bench.normal(dtype, rows * columns)?, bench.room(dtype, rows * columns)?);
        let to = Layout::contiguous(&[rows, columns])?;
        let from = if straight { to } else { Layout::contiguous(&[columns, rows])?.transpose(0, 1)? };
        let run: Run = Box::new(move || {
            let (x, mut y) = (View::of_bytes(&input, dtype, from)?, ViewMut::of_bytes(&mut out, dtype, to)?);
            Ok(kernels.copy(&stream, &x, &mut y)?)
        });
        Ok(run)
    };
    let (op, turn) = if straight { ("copy", "") } else { ("copy transposed", ".t()") };
    let shape = if straight { format!("{rows}, {columns}") } else { format!("{columns}, {rows}") };
    Case::new(format!("{op} {dtype} {rows}x{columns}"), Work::Bytes((2 * rows * columns * dtype.size()) as u64), make).torch(
        format!("x = randn({shape}, dtype={0}){turn}; y = torch.empty({rows}, {columns}, dtype={0}, device='cuda')", torch_type(dtype)),
        "y.copy_(x)",
    )
}

fn unary(sizes: Sizes, op: Unary, dtype: DType, call: &str) -> Case {
    let len = elements(sizes, 2 * dtype.size());
    let make = move |bench: &Bench| {
        let (kernels, stream) = (bench.kernels.clone(), bench.stream.clone());
        let (input, mut out) = (bench.normal(dtype, len)?, bench.room(dtype, len)?);
        let run: Run = Box::new(move || {
            let (x, mut y) = views(&input, dtype, &mut out, dtype, len)?;
            Ok(kernels.unary(&stream, op, &x, &mut y)?)
        });
        Ok(run)
    };
    Case::new(format!("{} {dtype} {}", op.name(), millions(len)), Work::Bytes((2 * len * dtype.size()) as u64), make)
        .torch(format!("x = randn({len}, dtype={})", torch_type(dtype)), call)
}

fn binary(sizes: Sizes, op: Binary, dtype: DType, call: &str) -> Case {
    let result = if op.is_comparison() { DType::U8 } else { dtype };
    let bytes = 2 * dtype.size() + result.size();
    let len = elements(sizes, bytes) / 4096 * 4096;
    let make = move |bench: &Bench| {
        let (kernels, stream) = (bench.kernels.clone(), bench.stream.clone());
        let (a, b, mut out) = (bench.normal(dtype, len)?, bench.normal(dtype, len)?, bench.room(result, len)?);
        let run: Run = Box::new(move || {
            let (x, mut y) = views(&a, dtype, &mut out, result, len)?;
            Ok(kernels.binary(&stream, op, &x, &View::of_bytes(&b, dtype, row(len)?)?, &mut y)?)
        });
        Ok(run)
    };
    Case::new(format!("{} {dtype} {}", op.name(), millions(len)), Work::Bytes((len * bytes) as u64), make)
        .torch(format!("a = randn({len}, dtype={0}); b = randn({len}, dtype={0})", torch_type(dtype)), call)
}

fn select(sizes: Sizes, dtype: DType) -> Case {
    let bytes = 3 * dtype.size() + 1;
    let len = elements(sizes, bytes) / 4096 * 4096;
    let make = move |bench: &Bench| {
        let (kernels, stream) = (bench.kernels.clone(), bench.stream.clone());
        let (which, mut out) = (bench.normal(DType::U8, len)?, bench.room(dtype, len)?);
        let (a, b) = (bench.normal(dtype, len)?, bench.normal(dtype, len)?);
        let run: Run = Box::new(move || {
            let (x, mut y) = views(&a, dtype, &mut out, dtype, len)?;
            let (which, b) = (View::of_bytes(&which, DType::U8, row(len)?)?, View::of_bytes(&b, dtype, row(len)?)?);
            Ok(kernels.where_cond(&stream, &which, &x, &b, &mut y)?)
        });
        Ok(run)
    };
    let setup = format!("w = randn({len}) > 0; a = randn({len}, dtype={0}); b = randn({len}, dtype={0})", torch_type(dtype));
    Case::new(format!("where {dtype} {}", millions(len)), Work::Bytes((len * bytes) as u64), make).torch(setup, "torch.where(w, a, b)")
}

fn affine(sizes: Sizes, dtype: DType) -> Case {
    let len = elements(sizes, 2 * dtype.size());
    let make = move |bench: &Bench| {
        let (kernels, stream) = (bench.kernels.clone(), bench.stream.clone());
        let (input, mut out) = (bench.normal(dtype, len)?, bench.room(dtype, len)?);
        let run: Run = Box::new(move || {
            let (x, mut y) = views(&input, dtype, &mut out, dtype, len)?;
            Ok(kernels.affine(&stream, &x, 1.5, -0.25, &mut y)?)
        });
        Ok(run)
    };
    // PyTorch has one pass for a product or a sum: the product alone is its best.
    Case::new(format!("affine {dtype} {}", millions(len)), Work::Bytes((2 * len * dtype.size()) as u64), make)
        .torch(format!("x = randn({len}, dtype={})", torch_type(dtype)), "x * 1.5")
}

fn cast(sizes: Sizes, from: DType, to: DType) -> Case {
    let len = elements(sizes, from.size() + to.size()) / 4096 * 4096;
    let make = move |bench: &Bench| {
        let (kernels, stream) = (bench.kernels.clone(), bench.stream.clone());
        let (input, mut out) = (bench.normal(from, len)?, bench.room(to, len)?);
        let run: Run = Box::new(move || {
            let (x, mut y) = views(&input, from, &mut out, to, len)?;
            Ok(kernels.cast(&stream, &x, &mut y)?)
        });
        Ok(run)
    };
    Case::new(format!("cast {from} to {to} {}", millions(len)), Work::Bytes((len * (from.size() + to.size())) as u64), make)
        .torch(format!("x = randn({len}).to({})", torch_type(from)), format!("x.to({})", torch_type(to)))
}
