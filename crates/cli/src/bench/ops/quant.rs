//! Quantized weights.

use half::f16;
use warpwave_gpu::Buffer;
use warpwave_kernels::{ActivationPrecision, DType, Layout, Matmul, Quant, QuantView, QuantViewMut, View, ViewMut};

use super::super::super::Failure;
use super::case::{Bench, Case, Run, Sizes, Work};

pub fn cases(sizes: Sizes) -> Vec<Case> {
    let (large, medium) = (sizes.of(16384, 256), sizes.of(8192, 256));
    let types: Vec<Quant> = Quant::ALL.into_iter().filter(|quant| !matches!(quant, Quant::Int4(32 | 64))).collect();
    let mut cases = Vec::new();
    for quant in &types {
        cases.extend([DType::F32, DType::F16].map(|dtype| dequantize(*quant, dtype, large, large)));
    }
    cases.extend([Quant::Q4K, Quant::Q8_0].map(|quant| dequantize(quant, DType::Bf16, large, large)));
    for quant in &types {
        for activations in [ActivationPrecision::F32, ActivationPrecision::Int8] {
            cases.push(product(*quant, activations, large, large, 1));
        }
    }
    // What a language model of 8 billion weights has, a token at a time.
    for quant in [Quant::Q4K, Quant::Q6K, Quant::Q8_0] {
        for (rows, columns) in [(4096, 4096), (14_336, 4096), (4096, 14_336)] {
            for activations in [ActivationPrecision::F32, ActivationPrecision::Int16] {
                cases.push(product(quant, activations, sizes.of(rows, 256), sizes.of(columns, 2048), 1));
            }
        }
    }
    for quant in [Quant::Q4_0, Quant::Q4K, Quant::Q8_0] {
        cases.push(product(quant, ActivationPrecision::Int16, large, large, 1));
        cases.push(product(quant, ActivationPrecision::Int16, large, large, 4));
        cases.push(product(quant, ActivationPrecision::Int8, medium, sizes.of(28672, 512), 1));
        cases.push(product(quant, ActivationPrecision::Int8, large, large, 8));
        cases.push(product(quant, ActivationPrecision::Int8, medium, medium, sizes.of(512, 16)));
        cases.push(quantize(quant, large, large));
    }
    for quant in [Quant::Q4K, Quant::Q8_0] {
        cases.extend([8, 16].map(|vectors| product(quant, ActivationPrecision::F32, large, large, vectors)));
    }
    // Prompts and batches of a language model.
    for quant in [Quant::Q4K, Quant::Q8_0, Quant::Q4_0, Quant::Mxfp4] {
        let vectors = [(2, 2), (8, 3), (16, 8), (32, 9), (64, 16), (128, 17), (512, 33)].map(|(real, small)| sizes.of(real, small));
        cases.extend(vectors.map(|vectors| product(quant, ActivationPrecision::Float16, medium, medium, vectors)));
    }
    cases.extend([64, 128, 512].map(|vectors| dequantized_product(Quant::Q4K, medium, medium, sizes.of(vectors, vectors / 32))));
    cases.push(product_q8(Quant::Q4K, large, large));
    cases
}

/// Random weights, with the number of their bytes.
pub(super) struct Weights {
    quant: Quant,
    shape: [usize; 2],
    codes: Buffer<u8>,
    rows: Buffer<f32>,
    groups: Buffer<f16>,
}

fn bytes(quant: Quant, rows: usize, columns: usize) -> usize {
    let beside = match quant {
        Quant::Int8 => rows * 4,
        Quant::Int4(group) => rows * columns / group * 2,
        _ => 0,
    };
    rows * columns / quant.block_size() * quant.block_bytes() + beside
}

impl Weights {
    fn room(bench: &Bench, quant: Quant, rows: usize, columns: usize) -> Result<Weights, Failure> {
        let stream = &bench.stream;
        Ok(Weights {
            quant,
            shape: [rows, columns],
            codes: stream.alloc(rows * columns / quant.block_size() * quant.block_bytes())?,
            rows: stream.alloc(if quant == Quant::Int8 { rows } else { 0 })?,
            groups: stream.alloc(if let Quant::Int4(group) = quant { rows * columns / group } else { 0 })?,
        })
    }

    pub(super) fn new(bench: &Bench, quant: Quant, rows: usize, columns: usize) -> Result<Weights, Failure> {
        let mut weights = Weights::room(bench, quant, rows, columns)?;
        let numbers = bench.normal(DType::F16, rows * columns)?;
        let numbers = View::of_bytes(&numbers, DType::F16, Layout::contiguous(&[rows, columns])?)?;
        bench.kernels.quantize(&bench.stream, &numbers, &mut weights.view_mut()?)?;
        bench.stream.synchronize()?;
        Ok(weights)
    }

    pub(super) fn view(&self) -> Result<QuantView<'_>, warpwave_kernels::Error> {
        let [rows, columns] = self.shape;
        match self.quant {
            Quant::Int8 => QuantView::int8(&self.codes, &self.rows, rows, columns),
            Quant::Int4(group) => QuantView::int4(&self.codes, &self.groups, None, group, rows, columns),
            _ => QuantView::new(self.quant, &self.codes, rows, columns),
        }
    }

    fn view_mut(&mut self) -> Result<QuantViewMut<'_>, warpwave_kernels::Error> {
        let [rows, columns] = self.shape;
        match self.quant {
            Quant::Int8 => QuantViewMut::int8(&mut self.codes, &mut self.rows, rows, columns),
            Quant::Int4(group) => QuantViewMut::int4(&mut self.codes, &mut self.groups, None, group, rows, columns),
            _ => QuantViewMut::new(self.quant, &mut self.codes, rows, columns),
        }
    }
}

fn quantize(quant: Quant, rows: usize, columns: usize) -> Case {
    let make = move |bench: &Bench| {
        let (kernels, stream) = (bench.kernels.clone(), bench.stream.clone());
        let (mut weights, numbers) = (Weights::room(bench, quant, rows, columns)?, bench.normal(DType::F32, rows * columns)?);
        let run: Run = Box::new(move || {
            let numbers = View::of_bytes(&numbers, DType::F32, Layout::contiguous(&[rows, columns])?)?;
            Ok(kernels.quantize(&stream, &numbers, &mut weights.view_mut()?)?)
        });
        Ok(run)
    };
    Case::new(
        format!("quantize f32 to {quant} {rows}x{columns}"),
        Work::Bytes((bytes(quant, rows, columns) + 4 * rows * columns) as u64),
        make,
    )
}

fn dequantize(quant: Quant, dtype: DType, rows: usize, columns: usize) -> Case {
    let make = move |bench: &Bench| {
        let (kernels, stream) = (bench.kernels.clone(), bench.stream.clone());
        let (weights, mut out) = (Weights::new(bench, quant, rows, columns)?, bench.room(dtype, rows * columns)?);
        let run: Run = Box::new(move || {
            let mut out = ViewMut::of_bytes(&mut out, dtype, Layout::contiguous(&[rows, columns])?)?;
            Ok(kernels.dequantize(&stream, &weights.view()?, &mut out)?)
        });
        Ok(run)
    };
    let work = Work::Bytes((bytes(quant, rows, columns) + dtype.size() * rows * columns) as u64);
    Case::new(format!("dequantize {quant} to {dtype} {rows}x{columns}"), work, make)
}

/// With one vector beside the bytes of the weights, with many by its arithmetic; the peer has weights of bf16.
fn product(quant: Quant, activations: ActivationPrecision, rows: usize, columns: usize, vectors: usize) -> Case {
    let make = move |bench: &Bench| {
        let (kernels, stream) = (bench.kernels.clone(), bench.stream.clone());
        let weights = Weights::new(bench, quant, rows, columns)?;
        let (x, mut out) = (bench.normal(DType::Bf16, vectors * columns)?, bench.room(DType::Bf16, vectors * rows)?);
        let run: Run = Box::new(move || {
            let x = View::of_bytes(&x, DType::Bf16, Layout::contiguous(&[vectors, columns])?)?;
            let mut out = ViewMut::of_bytes(&mut out, DType::Bf16, Layout::contiguous(&[vectors, rows])?)?;
            Ok(kernels.quant_matmul(&stream, &weights.view()?, &x, &mut out, activations)?)
        });
        Ok(run)
    };
    let how = match activations {
        ActivationPrecision::F32 => "exact",
        ActivationPrecision::Int16 => "rounded",
        ActivationPrecision::Float16 => "float16",
        ActivationPrecision::Int8 => "int8",
    };
    let work = match vectors {
        0..=8 => Work::Bytes((bytes(quant, rows, columns) + 2 * vectors * (rows + columns)) as u64),
        _ => Work::Flops(2 * (rows * columns * vectors) as u64),
    };
    let plural = if vectors == 1 { "" } else { "s" };
    let name = format!("quant_matmul {quant} {how} {rows}x{columns}, {vectors} vector{plural}");
    beside_bf16(Case::new(name, work, make), rows, columns, vectors)
}

/// The alternative to [`ActivationPrecision::Float16`]: weights are dequantized to bf16 for the library at each product.
fn dequantized_product(quant: Quant, rows: usize, columns: usize, vectors: usize) -> Case {
    let make = move |bench: &Bench| {
        let (kernels, stream) = (bench.kernels.clone(), bench.stream.clone());
        let (weights, mut plain) = (Weights::new(bench, quant, rows, columns)?, bench.room(DType::Bf16, rows * columns)?);
        let (x, mut out) = (bench.normal(DType::Bf16, vectors * columns)?, bench.room(DType::Bf16, vectors * rows)?);
        let run: Run = Box::new(move || {
            let layout = Layout::contiguous(&[rows, columns])?;
            kernels.dequantize(&stream, &weights.view()?, &mut ViewMut::of_bytes(&mut plain, DType::Bf16, layout)?)?;
            let plain = View::of_bytes(&plain, DType::Bf16, layout.transpose(0, 1)?)?;
            let x = View::of_bytes(&x, DType::Bf16, Layout::contiguous(&[vectors, columns])?)?;
            let mut out = ViewMut::of_bytes(&mut out, DType::Bf16, Layout::contiguous(&[vectors, rows])?)?;
            Ok(kernels.matmul(&stream, &Matmul::new(), &x, &plain, &mut out)?)
        });
        Ok(run)
    };
    let name = format!("dequantize {quant} and matmul {rows}x{columns}, {vectors} vectors");
    beside_bf16(Case::new(name, Work::Flops(2 * (rows * columns * vectors) as u64), make), rows, columns, vectors)
}

/// One vector that is quantized beforehand.
fn product_q8(quant: Quant, rows: usize, columns: usize) -> Case {
    let make = move |bench: &Bench| {
        let (kernels, stream) = (bench.kernels.clone(), bench.stream.clone());
        let (weights, x) = (Weights::new(bench, quant, rows, columns)?, Weights::new(bench, Quant::Q8_1, 1, columns)?);
        let mut out = bench.room(DType::Bf16, rows)?;
        let run: Run = Box::new(move || {
            let mut out = ViewMut::of_bytes(&mut out, DType::Bf16, Layout::contiguous(&[1, rows])?)?;
            Ok(kernels.quant_matmul_q8(&stream, &weights.view()?, &x.view()?, &mut out)?)
        });
        Ok(run)
    };
    let work = Work::Bytes((bytes(quant, rows, columns) + bytes(Quant::Q8_1, 1, columns) + 2 * rows) as u64);
    beside_bf16(Case::new(format!("quant_matmul_q8 {quant} {rows}x{columns}, 1 vector"), work, make), rows, columns, 1)
}

fn beside_bf16(case: Case, rows: usize, columns: usize, vectors: usize) -> Case {
    case.torch(
        format!("w = randn({rows}, {columns}, dtype=torch.bfloat16); x = randn({vectors}, {columns}, dtype=torch.bfloat16)"),
        "x @ w.t()",
    )
}
