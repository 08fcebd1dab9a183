//! Quantized matrices: dequantization, row lookup, and products with vectors and matrices.

use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{DType, Device, Tensor};
use half::f16;
use warpwave_gpu::{Buffer, Kernel, Launch};

use crate::bench::{A, Bench, Checked, Form, Output, Plan, Random, values};
use crate::types::{Near, Ty};

/// Rows of the right matrix are padded to this.
const PADDING: usize = 512;

/// Elements of a `q8_1` block, and its bytes: scale and sum as f16, then the quants.
const Q8_1: (usize, usize) = (32, 36);

/// `q4_0`, `q2_K`, `q2_k` and `q2k`.
fn format(name: &str) -> Option<GgmlDType> {
    Some(match name.replace('_', "").to_lowercase().as_str() {
        "q40" => GgmlDType::Q4_0,
        "q41" => GgmlDType::Q4_1,
        "q50" => GgmlDType::Q5_0,
        "q51" => GgmlDType::Q5_1,
        "q80" => GgmlDType::Q8_0,
        "q2k" => GgmlDType::Q2K,
        "q3k" => GgmlDType::Q3K,
        "q4k" => GgmlDType::Q4K,
        "q5k" => GgmlDType::Q5K,
        "q6k" => GgmlDType::Q6K,
        "q8k" => GgmlDType::Q8K,
        _ => return None,
    })
}

pub fn plan(name: &str) -> Option<Plan> {
    if name == "quantize_q8_1" {
        return Some(Box::new(quantize));
    }
    if let Some(rest) = name.strip_prefix("dequantize_block_") {
        let (of, ty) = Ty::at_end(rest)?;
        let of = format(of)?;
        return Some(Box::new(move |bench, kernel| dequantize(bench, kernel, of, ty)));
    }
    if let Some(of) = name.strip_prefix("get_rows_") {
        if let Some(ty) = Ty::named(of) {
            return Some(Box::new(move |bench, kernel| float_rows(bench, kernel, ty)));
        }
        let of = format(of)?;
        return Some(Box::new(move |bench, kernel| rows(bench, kernel, of)));
    }
    if let Some(of) = name.strip_prefix("dequantize_mul_mat_vec_") {
        let of = format(of.strip_suffix("_cuda").unwrap_or(of))?;
        return Some(Box::new(move |bench, kernel| float_vector(bench, kernel, of)));
    }
    if let Some(rest) = name.strip_prefix("mul_mat_vec_") {
        let (of, columns) = rest.split_once("_q8_1_cuda")?;
        let (of, columns) = (format(of)?, columns.parse().ok()?);
        return Some(Box::new(move |bench, kernel| vectors(bench, kernel, of, columns)));
    }
    if let Some(rest) = name.strip_prefix("indexed_moe_forward_") {
        let of = format(rest.strip_suffix("_q8_1")?)?;
        return Some(Box::new(move |bench, kernel| experts(bench, kernel, of)));
    }
    let of = format(name.strip_prefix("mul_mat_")?)?;
    Some(Box::new(move |bench, kernel| matrix(bench, kernel, of)))
}

/// A quantized matrix on the device, and candle's dequantized values.
struct Weights {
    memory: Buffer<u8>,
    right: Tensor,
    most: f64,
}

impl Weights {
    fn new(bench: &mut Bench, of: GgmlDType, rows: usize, columns: usize) -> Checked<Weights> {
        let list: Vec<f32> = (0..rows * columns).map(|_| bench.random.float(-2.0, 2.0) as f32).collect();
        let packed = QTensor::quantize(&Tensor::from_vec(list, (rows, columns), &Device::Cpu)?, of)?;
        let right = packed.dequantize(&Device::Cpu)?.to_dtype(DType::F64)?;
        let most = values(&right)?.into_iter().fold(0.0, |a: f64, b| a.max(b.abs()));
        // candle keeps the same padding after the data.
        let margin = vec![0; PADDING * of.type_size() / of.block_size()];
        let memory = bench.upload(&[&packed.data()?[..], &margin].concat())?;
        Ok(Weights { memory, right, most })
    }
}

/// A matrix that `q8_1` represents exactly, with its sums, so that quantization adds no error.
struct Packed {
    memory: Buffer<u8>,
    right: Tensor,
}

impl Packed {
    fn new(bench: &mut Bench, rows: usize, columns: usize) -> Checked<Packed> {
        let (mut bytes, mut list) = (Vec::new(), Vec::new());
        for _ in 0..rows {
            for block in 0..columns.next_multiple_of(PADDING) / Q8_1.0 {
                if block * Q8_1.0 >= columns {
                    bytes.extend([0; Q8_1.1]);
                    continue;
                }
                let (scale, quants) = block_of(&mut bench.random);
                let sum: f64 = quants.iter().map(|q| f64::from(*q)).sum();
                bytes.extend(f16::from_f64(scale).to_le_bytes());
                bytes.extend(f16::from_f64(scale * sum).to_le_bytes());
                bytes.extend(quants.iter().map(|q| *q as u8));
                list.extend(quants.iter().map(|q| scale * f64::from(*q)));
            }
        }
        Ok(Packed { memory: bench.upload(&bytes)?, right: Tensor::from_vec(list, (rows, columns), &Device::Cpu)? })
    }
}

/// A power-of-two scale, and quants whose sum is exact in f16.
fn block_of(random: &mut Random) -> (f64, Vec<i8>) {
    let scale = 2f64.powi(-random.int(4, 8) as i32);
    loop {
        let quants: Vec<i8> = (0..Q8_1.0).map(|_| random.int(-127, 127) as i8).collect();
        if quants.iter().map(|q| i32::from(*q)).sum::<i32>().abs() <= 2048 {
            return (scale, quants);
        }
    }
}

/// Compares a product with candle's in doubles. The kernel accumulates in `float` and subtracts quant offsets from the sums, so the
/// largest element determines the tolerance.
fn compare_product(bench: &Bench, what: &str, out: &Output, weights: &Tensor, most: f64, right: &Tensor) -> Checked {
    let wanted = values(&right.matmul(&weights.t()?.contiguous()?)?)?;
    let mass = values(&right.abs()?.sum(1)?)?;
    let rows = weights.dim(0)?;
    bench.compare_each(what, out, &wanted, |i| Near::Within(32.0 * Ty::F32.epsilon() * most * mass[i / rows]))
}

fn dequantize(bench: &mut Bench, kernel: &Kernel, of: GgmlDType, ty: Ty) -> Checked {
    use GgmlDType::{Q2K, Q3K, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0, Q8K};
    for (rows, columns) in [(1, 256), (3, 768)] {
        let weights = Weights::new(bench, of, rows, columns)?;
        let n = rows * columns;
        let (blocks, threads, count) = match of {
            Q4_0 | Q4_1 | Q8_0 => (n.div_ceil(256), 32, Some(n / 32)),
            Q5_0 | Q5_1 => (n.div_ceil(512), 256, Some(n)),
            Q4K | Q8K => (n / 256, 32, None),
            Q2K | Q3K | Q5K | Q6K => (n / 256, 64, None),
            _ => return Err(format!("{of:?} has no shape of launch").into()),
        };
        let out = bench.output(ty, n)?;
        let arguments: Vec<A<'_>> = [A::Bytes(&weights.memory), A::Out(&out)].into_iter().chain(count.map(A::Int)).collect();
        bench.run(kernel, Launch::new([blocks as u32, 1, 1], [threads, 1, 1]), &arguments)?;
        // A product and an offset, rounded once or twice.
        let near = Near::Within(2.0 * Ty::F32.epsilon() * weights.most);
        bench.compare(&format!("{rows} × {columns}"), &out, &weights.right, near)?;
    }
    Ok(())
}

/// candle's launch for row lookups.
fn row_launch(ids: usize, columns: usize, each: usize) -> Launch {
    Launch::new([ids as u32, columns.div_ceil(each * 256) as u32, 1], [256, 1, 1])
}

fn row_ids(bench: &mut Bench, rows: usize) -> Checked<(crate::bench::Input, Tensor)> {
    let ids = bench.input(Ty::U32, &[5], Form::Offset, |random| random.int(0, rows as i64 - 1))?;
    let right = ids.tensor.contiguous()?;
    Ok((ids, right))
}

fn float_rows(bench: &mut Bench, kernel: &Kernel, ty: Ty) -> Checked {
    let (rows, columns) = (7, 300);
    for form in [Form::Plain, Form::Offset] {
        let table = bench.input(ty, &[rows, columns], form, |random| random.float(-9.0, 9.0))?;
        let (ids, right) = row_ids(bench, rows)?;
        let out = bench.output(Ty::F32, ids.len() * columns)?;
        let arguments = [A::In(&table), A::In(&ids), A::Out(&out), A::Long(columns as i64), A::Size(columns * ty.bytes())];
        bench.run(kernel, row_launch(ids.len(), columns, 1), &arguments)?;
        bench.compare(&format!("{form:?}"), &out, &table.tensor.contiguous()?.index_select(&right, 0)?, Near::Exact)?;
    }
    Ok(())
}

fn rows(bench: &mut Bench, kernel: &Kernel, of: GgmlDType) -> Checked {
    let (rows, columns) = (7, 768);
    let weights = Weights::new(bench, of, rows, columns)?;
    let (ids, right) = row_ids(bench, rows)?;
    let launch = match of {
        GgmlDType::Q4K => Launch::new([ids.len() as u32, 3, 1], [32, 1, 1]),
        _ if of.block_size() == 256 => Launch::new([ids.len() as u32, 3, 1], [64, 1, 1]),
        _ => row_launch(ids.len(), columns, 2),
    };
    let out = bench.output(Ty::F32, ids.len() * columns)?;
    let stride = columns * of.type_size() / of.block_size();
    let arguments = [A::Bytes(&weights.memory), A::In(&ids), A::Out(&out), A::Long(columns as i64), A::Size(stride)];
    bench.run(kernel, launch, &arguments)?;
    bench.compare("", &out, &weights.right.index_select(&right, 0)?, Near::Within(2.0 * Ty::F32.epsilon() * weights.most))
}

fn float_vector(bench: &mut Bench, kernel: &Kernel, of: GgmlDType) -> Checked {
    for (rows, columns, form) in [(6, 512, Form::Plain), (3, 768, Form::Offset)] {
        let weights = Weights::new(bench, of, rows, columns)?;
        // The kernels read pairs and quads of floats at any offset.
        let vector = bench.input(Ty::F32, &[1, columns], form, |random| random.float(-2.0, 2.0))?;
        let out = bench.output(Ty::F32, rows)?;
        let mut arguments = vec![A::Bytes(&weights.memory), A::In(&vector), A::Out(&out), A::Int(columns)];
        // This one takes the number of rows from the grid.
        arguments.extend((of != GgmlDType::Q5K).then_some(A::Int(rows)));
        bench.run(kernel, Launch::new([rows as u32, 1, 1], [32, 1, 1]), &arguments)?;
        compare_product(bench, &format!("{rows} × {columns}"), &out, &weights.right, weights.most, &vector.tensor)?;
    }
    Ok(())
}

fn vectors(bench: &mut Bench, kernel: &Kernel, of: GgmlDType, count: usize) -> Checked {
    for (rows, columns) in [(6, 512), (4, 768)] {
        let weights = Weights::new(bench, of, rows, columns)?;
        let right = Packed::new(bench, count, columns)?;
        let (blocks, warps) = match count {
            1 => (rows, 4),
            2..=4 => (rows.div_ceil(2), 4),
            _ => (rows.div_ceil(2), 2),
        };
        let out = bench.output(Ty::F32, rows * count)?;
        let numbers = [columns, rows, columns.next_multiple_of(PADDING), rows].map(A::Int);
        let arguments: Vec<A<'_>> = [A::Bytes(&weights.memory), A::Bytes(&right.memory), A::Out(&out)].into_iter().chain(numbers).collect();
        bench.run(kernel, Launch::new([blocks as u32, 1, 1], [32, warps, 1]), &arguments)?;
        compare_product(bench, &format!("{rows} × {columns}"), &out, &weights.right, weights.most, &right.right)?;
    }
    Ok(())
}

fn matrix(bench: &mut Bench, kernel: &Kernel, of: GgmlDType) -> Checked {
    let (tile_x, tile_y) = match of {
        GgmlDType::Q5_0 | GgmlDType::Q5_1 | GgmlDType::Q8_0 => (128, 64),
        GgmlDType::Q3K => (128, 128),
        GgmlDType::Q6K => (64, 64),
        _ => (64, 128),
    };
    for (rows, columns, count) in [(40, 256, 9), (130, 512, 3)] {
        let weights = Weights::new(bench, of, rows, columns)?;
        let right = Packed::new(bench, count, columns)?;
        let grid = [rows.div_ceil(tile_y) as u32, count.div_ceil(tile_x) as u32, 1];
        let out = bench.output(Ty::F32, rows * count)?;
        let numbers = [columns, rows, count, columns.next_multiple_of(PADDING), rows].map(A::Int);
        let arguments: Vec<A<'_>> = [A::Bytes(&weights.memory), A::Bytes(&right.memory), A::Out(&out)].into_iter().chain(numbers).collect();
        bench.run(kernel, Launch::new(grid, [32, 4, 1]), &arguments)?;
        compare_product(bench, &format!("{rows} × {columns} × {count}"), &out, &weights.right, weights.most, &right.right)?;
    }
    Ok(())
}

fn experts(bench: &mut Bench, kernel: &Kernel, of: GgmlDType) -> Checked {
    // The kernel counts an expert's bytes in blocks of 256, so for q8_0's blocks of 32 only the first expert is correct.
    let count = if of == GgmlDType::Q8_0 { 1 } else { 3 };
    let (rows, columns, batch, top) = (5, 512, 2, 2);
    let weights = Weights::new(bench, of, count * rows, columns)?;
    let ids = bench.input(Ty::U32, &[batch * top], Form::Plain, |random| random.int(0, count as i64 - 1))?;
    for each in [1, top] {
        let right = Packed::new(bench, batch * each, columns)?;
        let out = bench.output(Ty::F32, batch * top * rows)?;
        let numbers = [rows, columns, batch, top, columns.next_multiple_of(PADDING), each].map(A::Int);
        let memory = [A::Bytes(&weights.memory), A::Bytes(&right.memory), A::In(&ids), A::Out(&out)];
        let arguments: Vec<A<'_>> = memory.into_iter().chain(numbers).collect();
        bench.run(kernel, Launch::new([rows as u32, batch as u32, top as u32], [32, 4, 1]), &arguments)?;
        let mut wanted = Vec::new();
        for (task, expert) in ids.values()?.into_iter().enumerate() {
            let matrix = weights.right.narrow(0, expert as usize * rows, rows)?;
            let vector = right.right.narrow(0, if each == 1 { task / top } else { task }, 1)?;
            wanted.extend(values(&vector.matmul(&matrix.t()?.contiguous()?)?)?);
        }
        let mass = values(&right.right.abs()?.sum(1)?)?.into_iter().fold(0.0, f64::max);
        let near = Near::Within(32.0 * Ty::F32.epsilon() * weights.most * mass);
        bench.compare_each(&format!("{each} vectors each"), &out, &wanted, |_| near)?;
    }
    Ok(())
}

fn quantize(bench: &mut Bench, kernel: &Kernel) -> Checked {
    for (rows, columns, form) in [(3, 512, Form::Plain), (2, 480, Form::Offset)] {
        let x = bench.input(Ty::F32, &[rows, columns], form, |random| random.float(-3.0, 3.0))?;
        let padded = columns.next_multiple_of(PADDING);
        let out = bench.output(Ty::U8, rows * padded / Q8_1.0 * Q8_1.1)?;
        let grid = [padded.div_ceil(256) as u32, rows as u32, 1];
        bench.run(kernel, Launch::new(grid, [256, 1, 1]), &[A::In(&x), A::Out(&out), A::Int(columns), A::Int(padded)])?;
        let got = bench.read_bytes(&out)?;
        let single = x.tensor.to_dtype(DType::F32)?.contiguous()?;
        let candle = QTensor::quantize(&single, GgmlDType::Q8_1)?;
        let candle = candle.data()?;
        let input = x.values()?;
        let per_row = padded / Q8_1.0;
        for (number, block) in got.chunks_exact(Q8_1.1).enumerate() {
            let (row, place) = (number / per_row, number % per_row * Q8_1.0);
            let at = |what: &str| format!("{rows} × {columns}: {what} of the block at row {row}, column {place}");
            if place >= columns {
                if block.iter().any(|byte| *byte != 0) {
                    return Err(at("the padding").into());
                }
                continue;
            }
            let elements = &input[row * columns + place..][..Q8_1.0];
            let wanted = &candle[(row * columns + place) / Q8_1.0 * Q8_1.1..][..Q8_1.1];
            let half = |bytes: &[u8]| f16::from_le_bytes([bytes[0], bytes[1]]).to_f64();
            if !Near::Ulps(1.0).accepts(Ty::F16, half(block), half(wanted)) {
                return Err(at("the scale").into());
            }
            let sum: f64 = elements.iter().sum();
            let mass: f64 = elements.iter().map(|x| x.abs()).sum();
            if !Near::Within(5.0 * Ty::F32.epsilon() * mass).accepts(Ty::F16, half(&block[2..]), sum) {
                return Err(at("the sum").into());
            }
            let scale = elements.iter().fold(0.0, |a: f64, b| a.max(b.abs())) / 127.0;
            for i in 0..Q8_1.0 {
                let (got, wanted) = (block[4 + i] as i8, wanted[4 + i] as i8);
                // Halfway between two quants either is correct: candle multiplies by the inverse, the kernel divides.
                let tie = ((elements[i] / scale).fract().abs() - 0.5).abs() < 1e-4;
                if got != wanted && !(tie && got.abs_diff(wanted) == 1) {
                    return Err(format!("{}: {got}, not {wanted}", at(&format!("quant {i}"))).into());
                }
            }
        }
    }
    Ok(())
}
