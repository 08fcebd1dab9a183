//! The CPU backend: SIMD kernels for the `f32` operations of models, plain loops for everything else.

use std::borrow::Cow;

use half::{bf16, f16};
use warpwave_kernels::{Binary, Conv, DType, Distribution, Glu, Layout, PadMode, Philox, Quant, Reduce, Routing, Scalar, Unary};

use super::attention::{AttentionExtras, Cache, Heads, Sequence, append_codes, append_to};
use super::cache_codes::{Codes, CodesMut};
use super::elementwise::{self, Float};
use super::matmul::Matrix;
use super::matmul_f32::Dense;
use super::values::{self, Values, floats, ints};
use super::{Interleaved, Precision, gemm, index, moe, ops, sort};
use crate::backend::{
    AttentionArgs, Backend, Bins, CacheOperands, GroupedArgs, ImageOp, Operand, OperandMut, RopeArgs, RopeTables, Scatter, Storage,
    WeightFormat, Weights,
};
use crate::device::check_host_memory;
use crate::error::{Result, wrong_device, wrong_type};
use crate::kv_cache::{BLOCK_SIZE, cache_codes};

/// The host's processor.
pub(crate) struct Cpu;

/// Allocations from this size on are checked first, since a failing one would abort. Checking smaller ones, which the allocator keeps,
/// would cost time.
const CHECKED_ALLOCATION: usize = 64 << 20;

/// Changes float elements as `f32`, in place where they are `f32`.
fn update_floats(x: &mut OperandMut<'_>, change: impl FnOnce(&mut [f32])) -> Result<()> {
    if x.dtype == DType::F32 {
        return values::update(x, |x| {
            change(x);
            Ok(())
        });
    }
    let mut values = floats(&x.as_operand())?.into_owned();
    change(&mut values);
    Values::F32(values).store(x)
}

/// Writes float elements that `fill` gives as `f32`.
fn write_floats(out: &mut OperandMut<'_>, fill: impl FnOnce(&mut [f32]) -> Result<()>) -> Result<()> {
    if out.dtype == DType::F32 {
        return values::write(out, fill);
    }
    let mut values = vec![0.0; out.layout.len()];
    fill(&mut values)?;
    Values::F32(values).store(out)
}

fn weights<'a>(weights: &Weights<'a>) -> Result<Matrix<'a>> {
    fn elements<'a, T: bytemuck::Pod>(weights: &Weights<'a>) -> Result<&'a [T]> {
        Ok(&values::memory(weights.storage)?[..weights.rows * weights.columns])
    }
    Ok(match (weights.storage, weights.format) {
        (Storage::CpuWeights(interleaved), _) => Matrix::Interleaved(interleaved),
        (_, WeightFormat::Plain(DType::F32)) => Matrix::F32(elements(weights)?),
        (_, WeightFormat::Plain(DType::F16)) => Matrix::F16(elements(weights)?),
        (_, WeightFormat::Plain(DType::Bf16)) => Matrix::Bf16(elements(weights)?),
        (_, WeightFormat::Plain(found)) => return Err(wrong_type("linear", "the matrix", found, "f32, f16, bf16 or f64")),
        (other, WeightFormat::Quant(_)) => return Err(wrong_device("linear", "the matrix", other.kind(), "cpu")),
    })
}

fn cache<'a>(blocks: &Operand<'a>, scales: Option<&Operand<'a>>) -> Result<Cache<'a>> {
    fn elements<'a, T: bytemuck::Pod>(blocks: &Operand<'a>) -> Result<&'a [T]> {
        Ok(&values::memory(blocks.storage)?[..blocks.layout.len()])
    }
    if let Some(scales) = scales {
        return Ok(Cache::Codes(Codes { kind: cache_codes(blocks.dtype), codes: elements(blocks)?, scales: elements(scales)? }));
    }
    Ok(match blocks.dtype {
        DType::F32 => Cache::F32(elements(blocks)?),
        DType::F16 => Cache::F16(elements(blocks)?),
        _ => Cache::Bf16(elements(blocks)?),
    })
}

/// Writes rows to slots of a cache.
fn append_rows(x: &[f32], row: usize, slots: &[i64], cache: &mut OperandMut<'_>, scales: Option<&mut OperandMut<'_>>) -> Result<()> {
    fn each<D: Dense>(x: &[f32], row: usize, slots: &[i64], cache: &mut OperandMut<'_>) -> Result<()> {
        values::update::<D>(cache, |cache| {
            for (slot, x) in slots.iter().zip(x.chunks_exact(row.max(1))) {
                // Each slot is a block of one key.
                append_to(cache, 1, &[*slot as u32], 0, row, x);
            }
            Ok(())
        })
    }
    if let Some(scales) = scales {
        let (kind, dim) = (cache_codes(cache.dtype), cache.layout.shape()[3]);
        let (codes, scales) = (values::memory_mut(cache.storage)?, values::memory_mut(scales.storage)?);
        let mut codes = CodesMut { kind, codes, scales };
        for (slot, x) in slots.iter().zip(x.chunks_exact(row.max(1))) {
            append_codes(&mut codes, dim, 1, &[*slot as u32], 0, row, x);
        }
        return Ok(());
    }
    match cache.dtype {
        DType::F32 => each::<f32>(x, row, slots, cache),
        DType::F16 => each::<f16>(x, row, slots, cache),
        _ => each::<bf16>(x, row, slots, cache),
    }
}

/// Rotates heads of (tokens, heads, head_dim) in place.
fn rotate(rope: &RopeArgs<'_>, shape: &[usize], x: &mut [f32]) -> Result<()> {
    let computed;
    let (cos, sin) = match rope.tables {
        Some(tables) => tables,
        None => {
            computed = tables(&rope.frequencies, rope.factor, &rope.positions)?;
            &computed
        }
    };
    let (heads, dim) = (shape[1], shape[2]);
    ops::rope(rope.pairs, x, heads * dim, heads, dim, cos, sin);
    Ok(())
}

fn tables(frequencies: &Operand<'_>, factor: f64, positions: &Operand<'_>) -> Result<RopeTables> {
    Ok(ops::rope_tables(&values::read::<f32>(frequencies)?, factor, &values::read::<u32>(positions)?))
}

impl Backend for Cpu {
    fn alloc(&self, bytes: usize) -> Result<Storage> {
        if bytes >= CHECKED_ALLOCATION {
            check_host_memory(bytes)?;
        }
        Ok(Storage::Cpu(vec![0; bytes.div_ceil(8)]))
    }

    fn alloc_zeroed(&self, bytes: usize) -> Result<Storage> {
        self.alloc(bytes)
    }

    fn upload(&self, data: &[u8]) -> Result<Storage> {
        let mut storage = self.alloc(data.len())?;
        if let Storage::Cpu(words) = &mut storage {
            bytemuck::cast_slice_mut(words)[..data.len()].copy_from_slice(data);
        }
        Ok(storage)
    }

    fn quantized(&self, quant: Quant, rows: usize, columns: usize, blocks: &[u8]) -> Result<Storage> {
        Ok(Storage::CpuWeights(Interleaved::new(quant, rows, columns, blocks)))
    }

    fn download<'a>(&self, x: &Operand<'a>) -> Result<Cow<'a, [u8]>> {
        values::bytes(x)
    }

    fn synchronize(&self) -> Result<()> {
        Ok(())
    }

    fn copy(&self, x: &Operand<'_>, out: &mut OperandMut<'_>) -> Result<()> {
        values::write_bytes(out, &values::bytes(x)?)
    }

    fn cast(&self, x: &Operand<'_>, out: &mut OperandMut<'_>) -> Result<()> {
        if x.dtype == out.dtype { self.copy(x, out) } else { Values::of(x)?.store(out) }
    }

    fn fill(&self, value: Scalar, out: &mut OperandMut<'_>) -> Result<()> {
        let n = out.layout.len();
        // As written: an integer may have more digits than the type that is computed in.
        match value {
            Scalar::Int(value) => Values::I64(vec![value as i64; n]).store(out),
            Scalar::Float(value) if out.dtype.is_integer() => Values::I64(vec![value as i64; n]).store(out),
            Scalar::Float(value) => Values::F64(vec![value; n]).store(out),
        }
    }

    fn unary(&self, op: Unary, x: &Operand<'_>, out: &mut OperandMut<'_>) -> Result<()> {
        elementwise::unary(op, x, out)
    }

    fn binary(&self, op: Binary, a: &Operand<'_>, b: &Operand<'_>, out: &mut OperandMut<'_>) -> Result<()> {
        elementwise::binary(op, a, b)?.store(out)
    }

    fn binary_in_place(&self, op: Binary, a: &mut OperandMut<'_>, b: &Operand<'_>) -> Result<()> {
        if op == Binary::Add && a.dtype == DType::F32 && b.dtype == DType::F32 {
            let b = values::read::<f32>(b)?;
            return update_floats(a, |a| {
                if !a.is_empty() {
                    ops::add(a, &b)
                }
            });
        }
        elementwise::binary(op, &a.as_operand(), b)?.store(a)
    }

    fn affine(&self, x: &Operand<'_>, factor: Scalar, term: Scalar, out: &mut OperandMut<'_>) -> Result<()> {
        elementwise::affine(x, factor, term)?.store(out)
    }

    fn affine_in_place(&self, x: &mut OperandMut<'_>, factor: Scalar, term: Scalar) -> Result<()> {
        if let (DType::F32, Values::F32(factor), Values::F32(term)) =
            (x.dtype, Values::scalar(factor, x.dtype), Values::scalar(term, x.dtype))
            && term[0] == 0.0
        {
            return update_floats(x, |x| ops::scale(x, factor[0]));
        }
        elementwise::affine(&x.as_operand(), factor, term)?.store(x)
    }

    fn soft_cap_in_place(&self, x: &mut OperandMut<'_>, cap: f32) -> Result<()> {
        if x.dtype == DType::F64 {
            let cap = f64::from(cap);
            let capped = elementwise::doubles(&x.as_operand())?.into_iter().map(|x| cap * (x / cap).tanh()).collect();
            return Values::F64(capped).store(x);
        }
        update_floats(x, |x| ops::soft_cap(x, cap))
    }

    fn where_cond(&self, condition: &Operand<'_>, yes: &Operand<'_>, no: &Operand<'_>, out: &mut OperandMut<'_>) -> Result<()> {
        elementwise::where_cond(condition, yes, no, out)
    }

    fn random(&self, distribution: &Distribution, at: Philox, out: &mut OperandMut<'_>) -> Result<()> {
        super::random::random(distribution, at, out)
    }

    fn permutation(&self, at: Philox, out: &mut OperandMut<'_>) -> Result<()> {
        super::random::permutation(at, out)
    }

    fn reduce(&self, op: Reduce, x: &Operand<'_>, dims: &[usize], out: &mut OperandMut<'_>) -> Result<()> {
        super::reduce::reduce(op, x, dims, out)
    }

    fn softmax(&self, x: &Operand<'_>, dim: usize, log: bool, out: &mut OperandMut<'_>) -> Result<()> {
        elementwise::softmax(x, dim, log, out)
    }

    fn layer_norm(&self, x: &Operand<'_>, weight: &Operand<'_>, bias: &Operand<'_>, eps: f32, out: &mut OperandMut<'_>) -> Result<()> {
        elementwise::layer_norm(x, weight, bias, eps, out)
    }

    fn group_norm(
        &self,
        x: &Operand<'_>,
        groups: usize,
        weight: &Operand<'_>,
        bias: &Operand<'_>,
        eps: f32,
        silu: bool,
        out: &mut OperandMut<'_>,
    ) -> Result<()> {
        super::group_norm::group_norm(x, groups, weight, bias, eps, silu, out)
    }

    fn rms_norm(&self, x: &Operand<'_>, weight: &Operand<'_>, eps: f32, out: &mut OperandMut<'_>) -> Result<()> {
        if x.dtype == DType::F64 {
            return elementwise::rms_norm(x, weight, eps, out);
        }
        let (x, weight) = (floats(x)?, floats(weight)?);
        write_floats(out, |out| {
            ops::rms_norm(&x, &weight, eps, out);
            Ok(())
        })
    }

    fn add_rms_norm(
        &self,
        residual: &mut OperandMut<'_>,
        x: &Operand<'_>,
        weight: &Operand<'_>,
        eps: f32,
        out: &mut OperandMut<'_>,
    ) -> Result<()> {
        self.binary_in_place(Binary::Add, residual, x)?;
        self.rms_norm(&residual.as_operand(), weight, eps, out)
    }

    fn glu(&self, op: Glu, x: &Operand<'_>, out: &mut OperandMut<'_>) -> Result<()> {
        let columns = out.layout.shape().last().copied().unwrap_or(1);
        if x.dtype == DType::F64 {
            let gate = match op {
                Glu::Silu => Unary::Silu,
                Glu::Gelu => Unary::Gelu,
                Glu::GeluErf => Unary::GeluErf,
                Glu::Relu => Unary::Relu,
                _ => Unary::Sigmoid,
            };
            let x = elementwise::doubles(x)?;
            let rows = x.chunks_exact(2 * columns.max(1)).map(|row| row.split_at(columns));
            let clamped = |g: f64, up: f64| g.min(7.0) * (1.702 * g.min(7.0)).unary(Unary::Sigmoid) * (up.clamp(-7.0, 7.0) + 1.0);
            let each = |g: &f64, up: &f64| if op == Glu::Clamped { clamped(*g, *up) } else { g.unary(gate) * up };
            let gated = rows.flat_map(|(gates, up)| gates.iter().zip(up).map(|(g, up)| each(g, up))).collect();
            return Values::F64(gated).store(out);
        }
        let x = floats(x)?;
        write_floats(out, |out| {
            ops::glu_rows(op, &x, columns, out);
            Ok(())
        })
    }

    fn gather(&self, x: &Operand<'_>, indices: &Operand<'_>, dim: usize, out: &mut OperandMut<'_>) -> Result<()> {
        index::gather(x, indices, dim, out)
    }

    fn index_select(&self, x: &Operand<'_>, indices: &Operand<'_>, dim: usize, out: &mut OperandMut<'_>) -> Result<()> {
        index::index_select(x, indices, dim, out)
    }

    fn scatter(&self, kind: Scatter, out: &mut OperandMut<'_>, indices: &Operand<'_>, x: &Operand<'_>, dim: usize) -> Result<()> {
        match kind {
            // In order, which is one of any.
            Scatter::Set { .. } => index::scatter(out, indices, x, dim),
            Scatter::Add { .. } => index::scatter_add(out, indices, x, dim, false),
            Scatter::AddSlices { .. } => index::scatter_add(out, indices, x, dim, true),
        }
    }

    fn order(&self, x: &Operand<'_>, descending: bool, values: Option<&mut OperandMut<'_>>, indices: &mut OperandMut<'_>) -> Result<()> {
        sort::order(x, descending, values, indices)
    }

    fn unique(&self, x: &Operand<'_>, out: &mut OperandMut<'_>, more: Option<(&mut OperandMut<'_>, &mut OperandMut<'_>)>) -> Result<usize> {
        sort::unique(x, out, more)
    }

    fn histogram(&self, x: &Operand<'_>, bins: Bins, out: &mut OperandMut<'_>) -> Result<()> {
        sort::histogram(x, bins, out)
    }

    fn embedding(&self, table: &Weights<'_>, ids: &Operand<'_>, out: &mut OperandMut<'_>) -> Result<()> {
        let ids = ints(ids)?;
        if let WeightFormat::Plain(dtype) = table.format
            && (dtype == out.dtype || !matches!(dtype, DType::F32 | DType::F16 | DType::Bf16))
        {
            let all = Operand { storage: table.storage, dtype, layout: Layout::contiguous(&[table.rows, table.columns])? };
            let rows = index::select_rows(&values::bytes(&all)?, table.columns * dtype.size(), table.rows, 1, &ids);
            let rows = self.upload(&rows)?;
            return self.cast(&Operand { storage: &rows, dtype, layout: Layout::contiguous(&[ids.len(), table.columns])? }, out);
        }
        let matrix = weights(table)?;
        write_floats(out, |out| {
            for (id, out) in ids.iter().zip(out.chunks_exact_mut(table.columns.max(1))) {
                match usize::try_from(*id).ok().filter(|id| *id < table.rows) {
                    Some(id) => matrix.row(id, out),
                    None => out.fill(0.0),
                }
            }
            Ok(())
        })
    }

    fn matmul(&self, a: &Operand<'_>, b: &Operand<'_>, out: &mut OperandMut<'_>) -> Result<()> {
        let shape = out.layout.shape().to_vec();
        let (batch, mn) = shape.split_at(shape.len() - 2);
        let (m, n, k) = (mn[0], mn[1], a.layout.shape().last().copied().unwrap_or(0));
        let with = |rows: usize, columns: usize| batch.iter().copied().chain([rows, columns]).collect::<Vec<_>>();
        let a = a.with_layout(a.layout.broadcast_to(&with(m, k))?);
        let b = b.with_layout(b.layout.broadcast_to(&with(k, n))?);
        let sizes = [batch.iter().product(), m, k, n];
        let product = match (Values::of(&a)?, Values::of(&b)?) {
            (Values::F32(a), Values::F32(b)) => Values::F32(gemm::batched(&a, &b, sizes)),
            (Values::F64(a), Values::F64(b)) => Values::F64(gemm::batched(&a, &b, sizes)),
            _ => return Err(wrong_type("matmul", "the first matrix", a.dtype, "f32, f64, f16 or bf16")),
        };
        product.store(out)
    }

    fn linear(
        &self,
        matrix: &Weights<'_>,
        x: &Operand<'_>,
        bias: Option<&Operand<'_>>,
        out: &mut OperandMut<'_>,
        precision: Precision,
    ) -> Result<()> {
        let [vectors, columns] = [x.layout.shape()[0], matrix.columns];
        // One row: it is broadcast to all vectors.
        let bias = match bias {
            Some(bias) if vectors > 0 => Some(bias.with_layout(bias.layout.narrow(0, 0, 1)?)),
            _ => None,
        };
        if matrix.format == WeightFormat::Plain(DType::F64) {
            let layout = Layout::contiguous(&[matrix.rows, columns])?.transpose(0, 1)?;
            let transposed = elementwise::doubles(&Operand { storage: matrix.storage, dtype: DType::F64, layout })?;
            let mut product = gemm::batched(&elementwise::doubles(x)?, &transposed, [1, vectors, columns, matrix.rows]);
            if let Some(bias) = &bias {
                let bias = elementwise::doubles(bias)?;
                let rows = product.chunks_exact_mut(bias.len().max(1));
                rows.for_each(|row| row.iter_mut().zip(&bias).for_each(|(x, bias)| *x += bias));
            }
            return Values::F64(product).store(out);
        }
        let (matrix, rows, x) = (weights(matrix)?, matrix.rows, floats(x)?);
        let bias = bias.as_ref().map(floats).transpose()?;
        write_floats(out, |out| {
            super::matmul(matrix, rows, columns, &x, vectors, out, precision);
            if let Some(bias) = &bias
                && !out.is_empty()
            {
                ops::add(out, bias);
            }
            Ok(())
        })
    }

    fn route(
        &self,
        routing: &Routing,
        logits: &Operand<'_>,
        bias: Option<&Operand<'_>>,
        ids: &mut OperandMut<'_>,
        weights: &mut OperandMut<'_>,
    ) -> Result<()> {
        let experts = logits.layout.shape()[1];
        let (logits, bias) = (values::read::<f32>(logits)?, bias.map(values::read::<f32>).transpose()?);
        values::write::<u32>(ids, |ids| {
            values::write::<f32>(weights, |weights| {
                let each = ids.chunks_exact_mut(routing.used).zip(weights.chunks_exact_mut(routing.used));
                for (logits, (ids, weights)) in logits.chunks_exact(experts).zip(each) {
                    moe::route(routing, logits, bias.as_deref(), ids, weights);
                }
                Ok(())
            })
        })
    }

    fn sort_experts(&self, _: &Operand<'_>, _: usize, _: usize, _: &mut OperandMut<'_>, _: &mut OperandMut<'_>) -> Result<()> {
        Ok(())
    }

    fn grouped_linear(&self, args: &GroupedArgs<'_>, out: &mut OperandMut<'_>) -> Result<()> {
        let [x_rows, columns] = [0, 1].map(|d| args.x.layout.shape()[d]);
        let (ids, x, bias) = (values::read::<u32>(&args.ids)?, floats(&args.x)?, args.bias.as_ref().map(values::read::<f32>).transpose()?);
        let (experts, rows) = (args.experts, args.rows);
        // An expert's matrix: one of several, or rows of the only one.
        let mut matrices = Vec::new();
        for expert in 0..experts {
            matrices.push(match args.weights {
                [all] => weights(all)?.rows(expert * rows..(expert + 1) * rows, columns),
                each => weights(&each[expert])?,
            });
        }
        let share = ids.len().checked_div(x_rows).unwrap_or(1).max(1);
        let grouped = moe::Grouped { experts, rows, columns, ids: &ids, x: &x, share, bias: bias.as_deref(), precision: args.precision };
        write_floats(out, |out| {
            grouped.run(|expert| matrices[expert], out);
            Ok(())
        })
    }

    fn combine_experts(&self, x: &Operand<'_>, weights: &Operand<'_>, out: &mut OperandMut<'_>) -> Result<()> {
        let [columns, used] = [x.layout.shape()[1], weights.layout.shape()[1]];
        let (x, weights) = (values::read::<f32>(x)?, values::read::<f32>(weights)?);
        values::write::<f32>(out, |out| {
            moe::combine(&x, &weights, columns, used, out);
            Ok(())
        })
    }

    fn conv2d(
        &self,
        conv: &Conv,
        transposed: bool,
        x: &Operand<'_>,
        weight: &Operand<'_>,
        bias: Option<&Operand<'_>>,
        out: &mut OperandMut<'_>,
    ) -> Result<()> {
        super::conv::conv2d(conv, transposed, x, weight, bias, out)
    }

    fn image(&self, op: &ImageOp, x: &Operand<'_>, out: &mut OperandMut<'_>) -> Result<()> {
        super::image::image(op, x, out)
    }

    fn pad(&self, mode: PadMode, before: &[usize], x: &Operand<'_>, out: &mut OperandMut<'_>) -> Result<()> {
        super::image::pad(mode, before, x, out)
    }

    fn rope_tables(&self, frequencies: &Operand<'_>, factor: f64, positions: &Operand<'_>) -> Result<Option<RopeTables>> {
        tables(frequencies, factor, positions).map(Some)
    }

    fn rope_in_place(&self, rope: &RopeArgs<'_>, x: &mut OperandMut<'_>) -> Result<()> {
        let shape = x.layout.shape().to_vec();
        if x.dtype != DType::F64 {
            let mut rotated = Ok(());
            update_floats(x, |x| rotated = rotate(rope, &shape, x))?;
            return rotated;
        }
        let (frequencies, positions) = (values::read::<f32>(&rope.frequencies)?, values::read::<u32>(&rope.positions)?);
        let mut heads = elementwise::doubles(&x.as_operand())?;
        for (i, head) in heads.chunks_exact_mut(shape[2].max(1)).enumerate() {
            ops::rotate_f64(rope.pairs, head, positions[i / shape[1].max(1)], &frequencies, rope.factor);
        }
        Values::F64(heads).store(x)
    }

    fn append(&self, [keys, values]: [&Operand<'_>; 2], slots: &Operand<'_>, cache: CacheOperands<'_, '_>) -> Result<()> {
        let (slots, row) = (ints(slots)?, keys.layout.shape()[1..].iter().product());
        let [key_scales, value_scales] = cache.scales.map_or([None, None], |scales| scales.map(Some));
        let [key_cache, value_cache] = cache.elements;
        append_rows(&floats(keys)?, row, &slots, key_cache, key_scales)?;
        append_rows(&floats(values)?, row, &slots, value_cache, value_scales)
    }

    fn rope_append(
        &self,
        rope: &RopeArgs<'_>,
        [queries, keys, values]: [&Operand<'_>; 3],
        slots: &Operand<'_>,
        out: &mut OperandMut<'_>,
        [key_cache, value_cache]: [&mut OperandMut<'_>; 2],
    ) -> Result<()> {
        let unrotated = floats(queries)?;
        write_floats(out, |out| {
            out.copy_from_slice(&unrotated);
            rotate(rope, queries.layout.shape(), out)
        })?;
        let mut rotated = floats(keys)?.into_owned();
        rotate(rope, keys.layout.shape(), &mut rotated)?;
        let (slots, row) = (ints(slots)?, keys.layout.shape()[1..].iter().product());
        append_rows(&rotated, row, &slots, key_cache, None)?;
        append_rows(&floats(values)?, row, &slots, value_cache, None)
    }

    fn attention_types(&self, _: DType, _: DType, _: bool) -> [DType; 2] {
        [DType::F32; 2]
    }

    fn attention(&self, args: &AttentionArgs<'_>, out: &mut OperandMut<'_>) -> Result<()> {
        let [_, heads, head_dim] = [0, 1, 2].map(|d| args.queries.layout.shape()[d]);
        let (queries, [keys, values]) = (values::read::<f32>(&args.queries)?, args.cache);
        let starts = values::read::<u32>(&args.query_starts)?;
        let (lengths, table) = (values::read::<u32>(&args.kv_lengths)?, values::read::<u32>(&args.block_table)?);
        let width = args.block_table.layout.shape()[1];
        let sequence = |i: usize| {
            let (keys, queries) = (lengths[i] as usize, (starts[i + 1] - starts[i]) as usize);
            Sequence { table: &table[i * width..i * width + keys.div_ceil(BLOCK_SIZE)], keys, queries }
        };
        let sequences: Vec<Sequence<'_>> = (0..lengths.len()).map(sequence).collect();
        let heads = Heads {
            heads,
            kv_heads: keys.layout.shape()[2],
            dim: head_dim,
            block: BLOCK_SIZE,
            scale: args.params.scale,
            window: args.params.window,
            soft_cap: args.params.soft_cap,
        };
        let sinks = args.sinks.as_ref().map(values::read::<f32>).transpose()?;
        let tree: Option<Vec<u64>> = match &args.tree {
            Some(tree) => Some(values::read::<i64>(tree)?.iter().map(|word| *word as u64).collect()),
            None => None,
        };
        let extras = AttentionExtras { sinks: sinks.as_deref(), tree: tree.as_deref() };
        values::write::<f32>(out, |out| {
            let [key_scales, value_scales] = args.scales.as_ref().map_or([None, None], |scales| scales.each_ref().map(Some));
            let (keys, values) = (cache(&keys, key_scales)?, cache(&values, value_scales)?);
            super::attention::attention_with(&queries, keys, values, &sequences, &heads, &extras, out);
            Ok(())
        })
    }

    fn has_dense_attention(&self, _: usize, _: bool) -> bool {
        true
    }

    fn dense_attention(&self, qkv: [&Operand<'_>; 3], scale: f32, bias: Option<&Operand<'_>>, out: &mut OperandMut<'_>) -> Result<()> {
        super::dense_attention::dense_attention(qkv, scale, bias, out)
    }

    fn max_head_dim(&self) -> usize {
        super::attention::MAX_HEAD_DIM
    }
}
