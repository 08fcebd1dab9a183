//! The GPU backend: kernels of `warpwave-kernels`, queued on one stream per device.

use std::borrow::Cow;

use warpwave_gpu::{Buffer, Slice, Stream};
use warpwave_kernels::{
    ActivationPrecision, AttentionOptions, Binary, CachePositions, CacheScales, CacheScalesMut, Conv, DType, Distribution, ExpertTiles,
    ExpertWeights, Glu, Kernels, KeyValues, Layout, Matmul, Norm, PadMode, Philox, Positions, Quant, QuantView, Reduce, Rope, RopeAngles,
    Routing, Scalar, Unary, Varlen, View, ViewMut,
};

use crate::backend::{
    AttentionArgs, Backend, Bins, CacheOperands, GroupedArgs, ImageOp, Operand, OperandMut, RopeArgs, RopeTables, Scatter, Storage,
    WeightFormat, Weights,
};
use crate::cpu::Precision;
use crate::error::{Result, wrong_device};
use crate::kv_cache::cache_codes;

/// A GPU ready for work: its kernels, and the stream that all tensor operations are queued on.
pub struct Gpu {
    /// The kernel library.
    pub kernels: Kernels,
    /// The stream of all tensor operations.
    pub stream: Stream,
}

/// From this number of vectors on, products with quantized weights are faster with weights dequantized to `f16` for matrix units.
const DEQUANTIZE_FROM: usize = 32;
/// Scales activations down before they become `f16`, whose largest value is 65504: models have larger ones. The product is scaled back.
const F16_SCALE: f64 = 1.0 / 16.0;

/// A temporary tensor.
pub(crate) struct Temporary {
    storage: Storage,
    dtype: DType,
    layout: Layout,
}

impl Temporary {
    fn new(
        backend: &dyn Backend,
        dtype: DType,
        shape: &[usize],
        fill: impl FnOnce(&mut OperandMut<'_>) -> Result<()>,
    ) -> Result<Temporary> {
        let layout = Layout::contiguous(shape)?;
        let mut storage = backend.alloc(layout.len() * dtype.size())?;
        fill(&mut OperandMut::new(&mut storage, dtype, layout))?;
        Ok(Temporary { storage, dtype, layout })
    }

    fn operand(&self) -> Operand<'_> {
        Operand { storage: &self.storage, dtype: self.dtype, layout: self.layout }
    }
}

/// Operands of a matrix product, converted for matrix units where that pays.
pub(crate) struct LinearOperands {
    /// `f16` weights, dequantized for this product.
    weights: Option<Temporary>,
    /// Converted activations.
    x: Option<Temporary>,
    /// Whether activations were scaled by [`F16_SCALE`].
    scaled: bool,
}

/// Converts the operands of [`Backend::linear`]. The meta device calls it too, so that both allocate the same temporaries.
pub(crate) fn linear_operands(
    backend: &dyn Backend,
    weights: &Weights<'_>,
    x: &Operand<'_>,
    precision: Precision,
    dequantize: impl FnOnce(&mut OperandMut<'_>) -> Result<()>,
) -> Result<LinearOperands> {
    let shape = x.layout.shape();
    let (plain, to) = match weights.format {
        WeightFormat::Plain(dtype) => (None, dtype),
        WeightFormat::Quant(_) if precision == Precision::Fast && shape[0] >= DEQUANTIZE_FROM => {
            (Some(Temporary::new(backend, DType::F16, &[weights.rows, weights.columns], dequantize)?), DType::F16)
        }
        WeightFormat::Quant(_) => return Ok(LinearOperands { weights: None, x: None, scaled: false }),
    };
    let scaled = plain.is_some() || (x.dtype, to) == (DType::F32, DType::F16);
    let converted = if scaled {
        let small = Temporary::new(backend, x.dtype, shape, |out| backend.affine(x, F16_SCALE.into(), 0.0.into(), out))?;
        if x.dtype == to { Some(small) } else { Some(Temporary::new(backend, to, shape, |out| backend.cast(&small.operand(), out))?) }
    } else if x.dtype != to {
        Some(Temporary::new(backend, to, shape, |out| backend.cast(x, out))?)
    } else {
        None
    };
    Ok(LinearOperands { weights: plain, x: converted, scaled })
}

/// The type and shape of what [`Backend::embedding`] reads from a table before it converts it to `to`, if it has to.
pub(crate) fn embedding_rows(table: &Weights<'_>, ids: usize, to: DType) -> Option<(DType, [usize; 2])> {
    match table.format {
        WeightFormat::Plain(dtype) => (dtype != to).then_some((dtype, [ids, table.columns])),
        WeightFormat::Quant(quant) => Some((DType::U8, [ids, quant.row_bytes(table.columns).unwrap_or(0)])),
    }
}

/// The types of queries and results of attention kernels.
pub(crate) fn attention_types(cache: DType, wanted: DType, decode: bool) -> [DType; 2] {
    [cache, if decode && wanted == DType::F32 { wanted } else { cache }]
}

/// The largest head_dim of the attention kernels.
pub(crate) const MAX_HEAD_DIM: usize = 512;

fn buffer(storage: &Storage) -> Result<&Buffer<u8>> {
    match storage {
        Storage::Gpu(buffer) => Ok(buffer),
        _ => Err(wrong_device("view", "the tensor", storage.kind(), "a GPU")),
    }
}

/// The bytes of a contiguous tensor.
fn bytes<'a>(x: &Operand<'a>) -> Result<Slice<'a, u8>> {
    let start = if x.layout.is_empty() { 0 } else { x.layout.offset() * x.dtype.size() };
    Ok(buffer(x.storage)?.slice(start..start + x.layout.len() * x.dtype.size())?)
}

pub(crate) fn view<'a>(x: &Operand<'a>) -> Result<View<'a>> {
    Ok(View::of_bytes(buffer(x.storage)?, x.dtype, x.layout)?)
}

pub(crate) fn view_mut<'a>(x: &'a mut OperandMut<'_>) -> Result<ViewMut<'a>> {
    view_mut_as(x, x.layout)
}

/// A view that outlives the operand it is made of.
pub(crate) fn into_view_mut(x: OperandMut<'_>) -> Result<ViewMut<'_>> {
    match x.storage {
        Storage::Gpu(buffer) => Ok(ViewMut::of_bytes(buffer, x.dtype, x.layout)?),
        other => Err(wrong_device("view", "the tensor", other.kind(), "a GPU")),
    }
}

fn view_mut_as<'a>(x: &'a mut OperandMut<'_>, layout: Layout) -> Result<ViewMut<'a>> {
    match &mut *x.storage {
        Storage::Gpu(buffer) => Ok(ViewMut::of_bytes(buffer, x.dtype, layout)?),
        other => Err(wrong_device("view", "the tensor", other.kind(), "a GPU")),
    }
}

/// A layout of (tokens, ...) as (sequences, `each`, ...).
fn batched(layout: &Layout, each: usize) -> Result<Layout> {
    let (mut shape, mut strides) = (layout.shape().to_vec(), layout.strides().to_vec());
    let (tokens, stride) = (shape[0], strides[0]);
    shape[0] = each;
    shape.insert(0, tokens / each.max(1));
    strides.insert(0, stride * each);
    Ok(Layout::new(&shape, &strides, layout.offset())?)
}

/// A layout with a dimension of size 1 inserted before dimension `d`.
fn unsqueezed(layout: &Layout, d: usize) -> Result<Layout> {
    let (mut shape, mut strides) = (layout.shape().to_vec(), layout.strides().to_vec());
    // The stride that a contiguous tensor has there.
    let stride = layout.strides().get(d).zip(layout.shape().get(d)).map_or(1, |(stride, size)| stride * size.max(&1));
    shape.insert(d, 1);
    strides.insert(d, stride);
    Ok(Layout::new(&shape, &strides, layout.offset())?)
}

/// A view with a leading dimension of size 1: one sequence of tokens.
fn one_sequence<'a>(x: &Operand<'a>) -> Result<View<'a>> {
    view(&x.with_layout(unsqueezed(&x.layout, 0)?))
}

fn rope_view<'a>(rope: &RopeArgs<'a>) -> Result<Rope<'a>> {
    let angles = RopeAngles::Frequencies { frequencies: view(&rope.frequencies)?, factor: rope.factor };
    Ok(Rope { pairs: rope.pairs, angles, positions: Positions::Ids(view(&rope.positions)?) })
}

impl Gpu {
    fn quant_view<'a>(&self, weights: &Weights<'a>, quant: Quant) -> Result<QuantView<'a>> {
        Ok(QuantView::new(quant, buffer(weights.storage)?, weights.rows, weights.columns)?.prefetchable())
    }
}

impl Backend for Gpu {
    fn alloc(&self, bytes: usize) -> Result<Storage> {
        Ok(Storage::Gpu(self.stream.alloc(bytes)?))
    }

    fn alloc_zeroed(&self, bytes: usize) -> Result<Storage> {
        Ok(Storage::Gpu(self.stream.alloc_zeroed(bytes)?))
    }

    fn upload(&self, data: &[u8]) -> Result<Storage> {
        Ok(Storage::Gpu(self.stream.upload(data)?))
    }

    fn quantized(&self, _: Quant, _: usize, _: usize, blocks: &[u8]) -> Result<Storage> {
        self.upload(blocks)
    }

    fn download<'a>(&self, x: &Operand<'a>) -> Result<Cow<'a, [u8]>> {
        if x.layout.is_contiguous() {
            return Ok(Cow::Owned(self.stream.download(bytes(x)?)?));
        }
        let dense = Temporary::new(self, x.dtype, x.layout.shape(), |out| self.copy(x, out))?;
        Ok(Cow::Owned(self.stream.download(bytes(&dense.operand())?)?))
    }

    fn synchronize(&self) -> Result<()> {
        Ok(self.stream.synchronize()?)
    }

    fn copy(&self, x: &Operand<'_>, out: &mut OperandMut<'_>) -> Result<()> {
        Ok(self.kernels.copy(&self.stream, &view(x)?, &mut view_mut(out)?)?)
    }

    fn cast(&self, x: &Operand<'_>, out: &mut OperandMut<'_>) -> Result<()> {
        Ok(self.kernels.cast(&self.stream, &view(x)?, &mut view_mut(out)?)?)
    }

    fn fill(&self, value: Scalar, out: &mut OperandMut<'_>) -> Result<()> {
        Ok(self.kernels.fill(&self.stream, value, &mut view_mut(out)?)?)
    }

    fn unary(&self, op: Unary, x: &Operand<'_>, out: &mut OperandMut<'_>) -> Result<()> {
        Ok(self.kernels.unary(&self.stream, op, &view(x)?, &mut view_mut(out)?)?)
    }

    fn binary(&self, op: Binary, a: &Operand<'_>, b: &Operand<'_>, out: &mut OperandMut<'_>) -> Result<()> {
        Ok(self.kernels.binary(&self.stream, op, &view(a)?, &view(b)?, &mut view_mut(out)?)?)
    }

    fn binary_in_place(&self, op: Binary, a: &mut OperandMut<'_>, b: &Operand<'_>) -> Result<()> {
        Ok(self.kernels.binary_in_place(&self.stream, op, &mut view_mut(a)?, &view(b)?)?)
    }

    fn affine(&self, x: &Operand<'_>, factor: Scalar, term: Scalar, out: &mut OperandMut<'_>) -> Result<()> {
        Ok(self.kernels.affine(&self.stream, &view(x)?, factor, term, &mut view_mut(out)?)?)
    }

    fn affine_in_place(&self, x: &mut OperandMut<'_>, factor: Scalar, term: Scalar) -> Result<()> {
        Ok(self.kernels.affine_in_place(&self.stream, &mut view_mut(x)?, factor, term)?)
    }

    fn soft_cap_in_place(&self, x: &mut OperandMut<'_>, cap: f32) -> Result<()> {
        let mut x = view_mut(x)?;
        self.kernels.affine_in_place(&self.stream, &mut x, 1.0 / cap, 0.0f32)?;
        self.kernels.unary_in_place(&self.stream, Unary::Tanh, &mut x)?;
        Ok(self.kernels.affine_in_place(&self.stream, &mut x, cap, 0.0f32)?)
    }

    fn where_cond(&self, condition: &Operand<'_>, yes: &Operand<'_>, no: &Operand<'_>, out: &mut OperandMut<'_>) -> Result<()> {
        Ok(self.kernels.where_cond(&self.stream, &view(condition)?, &view(yes)?, &view(no)?, &mut view_mut(out)?)?)
    }

    fn random(&self, distribution: &Distribution, at: Philox, out: &mut OperandMut<'_>) -> Result<()> {
        Ok(self.kernels.random(&self.stream, distribution, at, &mut view_mut(out)?)?)
    }

    fn permutation(&self, at: Philox, out: &mut OperandMut<'_>) -> Result<()> {
        Ok(self.kernels.permutation(&self.stream, at, &mut view_mut(out)?)?)
    }

    fn reduce(&self, op: Reduce, x: &Operand<'_>, dims: &[usize], out: &mut OperandMut<'_>) -> Result<()> {
        Ok(self.kernels.reduce(&self.stream, op, &view(x)?, dims, &mut view_mut(out)?)?)
    }

    fn softmax(&self, x: &Operand<'_>, dim: usize, log: bool, out: &mut OperandMut<'_>) -> Result<()> {
        let (x, mut out) = (view(x)?, view_mut(out)?);
        let done = match log {
            true => self.kernels.log_softmax(&self.stream, &x, dim, &mut out),
            false => self.kernels.softmax(&self.stream, &x, dim, &mut out),
        };
        Ok(done?)
    }

    fn layer_norm(&self, x: &Operand<'_>, weight: &Operand<'_>, bias: &Operand<'_>, eps: f32, out: &mut OperandMut<'_>) -> Result<()> {
        let norm = Norm { weight: Some(view(weight)?), bias: Some(view(bias)?), epsilon: eps.into() };
        Ok(self.kernels.layer_norm(&self.stream, &view(x)?, &norm, &mut view_mut(out)?)?)
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
        let norm = Norm { weight: Some(view(weight)?), bias: Some(view(bias)?), epsilon: eps.into() };
        Ok(self.kernels.group_norm(&self.stream, &view(x)?, groups, &norm, silu, &mut view_mut(out)?)?)
    }

    fn rms_norm(&self, x: &Operand<'_>, weight: &Operand<'_>, eps: f32, out: &mut OperandMut<'_>) -> Result<()> {
        let norm = Norm { weight: Some(view(weight)?), bias: None, epsilon: eps.into() };
        Ok(self.kernels.rms_norm(&self.stream, &view(x)?, &norm, &mut view_mut(out)?)?)
    }

    fn add_rms_norm(
        &self,
        residual: &mut OperandMut<'_>,
        x: &Operand<'_>,
        weight: &Operand<'_>,
        eps: f32,
        out: &mut OperandMut<'_>,
    ) -> Result<()> {
        let norm = Norm { weight: Some(view(weight)?), bias: None, epsilon: eps.into() };
        Ok(self.kernels.add_rms_norm(&self.stream, &view(x)?, &mut view_mut(residual)?, &norm, &mut view_mut(out)?)?)
    }

    fn glu(&self, op: Glu, x: &Operand<'_>, out: &mut OperandMut<'_>) -> Result<()> {
        Ok(self.kernels.glu_halves(&self.stream, op, &view(x)?, &mut view_mut(out)?)?)
    }

    fn gather(&self, x: &Operand<'_>, indices: &Operand<'_>, dim: usize, out: &mut OperandMut<'_>) -> Result<()> {
        Ok(self.kernels.gather(&self.stream, &view(x)?, &view(indices)?, dim, &mut view_mut(out)?)?)
    }

    fn index_select(&self, x: &Operand<'_>, indices: &Operand<'_>, dim: usize, out: &mut OperandMut<'_>) -> Result<()> {
        Ok(self.kernels.index_select(&self.stream, &view(x)?, &view(indices)?, dim, &mut view_mut(out)?)?)
    }

    fn scatter(&self, kind: Scatter, out: &mut OperandMut<'_>, indices: &Operand<'_>, x: &Operand<'_>, dim: usize) -> Result<()> {
        let scattered = match kind {
            Scatter::Set { ordered: true } => Kernels::scatter,
            Scatter::Set { ordered: false } => Kernels::scatter_unordered,
            Scatter::Add { ordered: true } => Kernels::scatter_add,
            Scatter::Add { ordered: false } => Kernels::scatter_add_unordered,
            Scatter::AddSlices { ordered: true } => Kernels::index_add,
            Scatter::AddSlices { ordered: false } => Kernels::index_add_unordered,
        };
        Ok(scattered(&self.kernels, &self.stream, &mut view_mut(out)?, &view(indices)?, &view(x)?, dim)?)
    }

    fn order(&self, x: &Operand<'_>, descending: bool, values: Option<&mut OperandMut<'_>>, indices: &mut OperandMut<'_>) -> Result<()> {
        let (x, mut indices) = (view(x)?, view_mut(indices)?);
        let whole = x.layout().shape() == indices.layout().shape();
        let mut values = values.map(view_mut).transpose()?;
        match &mut values {
            Some(values) if whole => self.kernels.sort(&self.stream, &x, descending, values, Some(&mut indices))?,
            Some(values) => self.kernels.topk(&self.stream, &x, descending, values, &mut indices)?,
            None => self.kernels.argsort(&self.stream, &x, descending, &mut indices)?,
        }
        Ok(())
    }

    fn unique(&self, x: &Operand<'_>, out: &mut OperandMut<'_>, more: Option<(&mut OperandMut<'_>, &mut OperandMut<'_>)>) -> Result<usize> {
        let (x, mut values) = (view(x)?, view_mut(out)?);
        Ok(match more {
            Some((inverse, counts)) => {
                let (mut inverse, mut counts) = (view_mut(inverse)?, view_mut(counts)?);
                self.kernels.unique(&self.stream, &x, &mut values, Some(&mut inverse), Some(&mut counts))?
            }
            None => self.kernels.unique(&self.stream, &x, &mut values, None, None)?,
        })
    }

    fn histogram(&self, x: &Operand<'_>, bins: Bins, out: &mut OperandMut<'_>) -> Result<()> {
        let (x, mut out) = (view(x)?, view_mut(out)?);
        match bins {
            Bins::Integers => self.kernels.bincount(&self.stream, &x, &mut out)?,
            Bins::Between(low, high) => self.kernels.histogram(&self.stream, &x, low, high, &mut out)?,
        }
        Ok(())
    }

    fn embedding(&self, table: &Weights<'_>, ids: &Operand<'_>, out: &mut OperandMut<'_>) -> Result<()> {
        let (stored, columns) = match table.format {
            WeightFormat::Plain(dtype) => (dtype, table.columns),
            WeightFormat::Quant(quant) => (DType::U8, quant.row_bytes(table.columns).unwrap_or(0)),
        };
        let all = Operand { storage: table.storage, dtype: stored, layout: Layout::contiguous(&[table.rows, columns])? };
        let (all, ids) = (view(&all)?, view(ids)?);
        let count = ids.layout().len();
        let Some((dtype, shape)) = embedding_rows(table, count, out.dtype) else {
            return Ok(self.kernels.embedding(&self.stream, &all, &ids, &mut view_mut(out)?)?);
        };
        let select = |rows: &mut OperandMut<'_>| Ok(self.kernels.embedding(&self.stream, &all, &ids, &mut view_mut(rows)?)?);
        let rows = Temporary::new(self, dtype, &shape, select)?;
        match table.format {
            WeightFormat::Plain(_) => self.cast(&rows.operand(), out),
            WeightFormat::Quant(quant) => {
                let rows = QuantView::new(quant, bytes(&rows.operand())?, count, table.columns)?;
                Ok(self.kernels.dequantize(&self.stream, &rows, &mut view_mut(out)?)?)
            }
        }
    }

    fn matmul(&self, a: &Operand<'_>, b: &Operand<'_>, out: &mut OperandMut<'_>) -> Result<()> {
        Ok(self.kernels.matmul(&self.stream, &Matmul::new(), &view(a)?, &view(b)?, &mut view_mut(out)?)?)
    }

    fn linear(
        &self,
        weights: &Weights<'_>,
        x: &Operand<'_>,
        bias: Option<&Operand<'_>>,
        out: &mut OperandMut<'_>,
        precision: Precision,
    ) -> Result<()> {
        let dequantize = |out: &mut OperandMut<'_>| match weights.format {
            WeightFormat::Quant(quant) => {
                Ok(self.kernels.dequantize(&self.stream, &self.quant_view(weights, quant)?, &mut view_mut(out)?)?)
            }
            WeightFormat::Plain(_) => Ok(()),
        };
        let operands = linear_operands(self, weights, x, precision, dequantize)?;
        let converted = operands.x.as_ref().map_or(*x, Temporary::operand);
        let bias = bias.map(view).transpose()?;
        let mut out = view_mut(out)?;
        let epilogue = if operands.scaled { Matmul::new().scaled(1.0 / F16_SCALE, 0.0) } else { Matmul::new() };
        let multiply = |weights: Operand<'_>, epilogue: &Matmul<'_>, out: &mut ViewMut<'_>| -> Result<()> {
            let columns = view(&weights.with_layout(weights.layout.transpose(0, 1)?))?;
            Ok(self.kernels.matmul(&self.stream, epilogue, &view(&converted)?, &columns, out)?)
        };
        match (weights.format, &operands.weights) {
            (WeightFormat::Plain(dtype), _) => {
                let layout = Layout::contiguous(&[weights.rows, weights.columns])?;
                let epilogue = bias.map_or(epilogue, |bias| epilogue.bias(bias));
                return multiply(Operand { storage: weights.storage, dtype, layout }, &epilogue, &mut out);
            }
            (WeightFormat::Quant(_), Some(dequantized)) => multiply(dequantized.operand(), &epilogue, &mut out)?,
            (WeightFormat::Quant(quant), None) => {
                let activations = if precision == Precision::Fast { ActivationPrecision::Int16 } else { ActivationPrecision::F32 };
                let weights = self.quant_view(weights, quant)?;
                self.kernels.quant_matmul(&self.stream, &weights, &view(x)?, &mut out, activations)?;
            }
        }
        match bias {
            Some(bias) => Ok(self.kernels.binary_in_place(&self.stream, Binary::Add, &mut out, &bias)?),
            None => Ok(()),
        }
    }

    fn route(
        &self,
        routing: &Routing,
        logits: &Operand<'_>,
        bias: Option<&Operand<'_>>,
        ids: &mut OperandMut<'_>,
        weights: &mut OperandMut<'_>,
    ) -> Result<()> {
        let bias = bias.map(view).transpose()?;
        let (mut ids, mut weights) = (view_mut(ids)?, view_mut(weights)?);
        Ok(self.kernels.moe_route(&self.stream, routing, &view(logits)?, bias.as_ref(), &mut ids, &mut weights)?)
    }

    fn sort_experts(
        &self,
        ids: &Operand<'_>,
        experts: usize,
        tile_rows: usize,
        order: &mut OperandMut<'_>,
        tiles: &mut OperandMut<'_>,
    ) -> Result<()> {
        Ok(self.kernels.moe_sort(&self.stream, &view(ids)?, experts, tile_rows, &mut view_mut(order)?, &mut view_mut(tiles)?)?)
    }

    fn grouped_linear(&self, args: &GroupedArgs<'_>, out: &mut OperandMut<'_>) -> Result<()> {
        let ([all], Some(order)) = (args.weights, &args.order) else {
            return Err(wrong_device("grouped_matmul", "the experts", "cpu", "a GPU"));
        };
        let weights = match all.format {
            WeightFormat::Plain(dtype) => {
                let layout = Layout::contiguous(&[args.experts, args.rows, all.columns])?;
                ExpertWeights::Plain(view(&Operand { storage: all.storage, dtype, layout })?)
            }
            WeightFormat::Quant(quant) => ExpertWeights::Quant(self.quant_view(all, quant)?, args.experts),
        };
        let tiles = ExpertTiles { order: view(&order.order)?, tiles: view(&order.tiles)?, rows: order.tile_rows };
        let bias = args.bias.as_ref().map(view).transpose()?;
        Ok(self.kernels.grouped_matmul(&self.stream, &weights, &tiles, &view(&args.x)?, bias.as_ref(), &mut view_mut(out)?)?)
    }

    fn combine_experts(&self, x: &Operand<'_>, weights: &Operand<'_>, out: &mut OperandMut<'_>) -> Result<()> {
        Ok(self.kernels.moe_combine(&self.stream, &view(x)?, &view(weights)?, &mut view_mut(out)?)?)
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
        let (x, weight, bias) = (view(x)?, view(weight)?, bias.map(view).transpose()?);
        let mut out = view_mut(out)?;
        let done = match transposed {
            true => self.kernels.conv_transpose2d(&self.stream, conv, &x, &weight, bias.as_ref(), &mut out),
            false => self.kernels.conv2d(&self.stream, conv, &x, &weight, bias.as_ref(), &mut out),
        };
        Ok(done?)
    }

    fn image(&self, op: &ImageOp, x: &Operand<'_>, out: &mut OperandMut<'_>) -> Result<()> {
        let (kernels, stream, x, mut out) = (&self.kernels, &self.stream, view(x)?, view_mut(out)?);
        let done = match op {
            ImageOp::AvgPool(pool) => kernels.avg_pool2d(stream, pool, &x, &mut out),
            ImageOp::MaxPool(pool) => kernels.max_pool2d(stream, pool, &x, &mut out),
            ImageOp::Nearest => kernels.upsample_nearest2d(stream, &x, &mut out),
            ImageOp::Bilinear { align_corners } => kernels.upsample_bilinear2d(stream, *align_corners, &x, &mut out),
            ImageOp::Im2Col(kernel, conv) => kernels.im2col(stream, *kernel, conv, &x, &mut out),
            ImageOp::Col2Im(kernel, conv) => kernels.col2im(stream, *kernel, conv, &x, &mut out),
        };
        Ok(done?)
    }

    fn pad(&self, mode: PadMode, before: &[usize], x: &Operand<'_>, out: &mut OperandMut<'_>) -> Result<()> {
        Ok(self.kernels.pad(&self.stream, mode, before, &view(x)?, &mut view_mut(out)?)?)
    }

    fn rope_tables(&self, _: &Operand<'_>, _: f64, _: &Operand<'_>) -> Result<Option<RopeTables>> {
        Ok(None)
    }

    fn rope_in_place(&self, rope: &RopeArgs<'_>, x: &mut OperandMut<'_>) -> Result<()> {
        let layout = unsqueezed(&x.layout, 0)?;
        Ok(self.kernels.rope_in_place(&self.stream, &rope_view(rope)?, &mut view_mut_as(x, layout)?)?)
    }

    fn append(&self, [keys, values]: [&Operand<'_>; 2], slots: &Operand<'_>, cache: CacheOperands<'_, '_>) -> Result<()> {
        let (keys, values, slots) = (one_sequence(keys)?, one_sequence(values)?, CachePositions::Slots(one_sequence(slots)?));
        let [key_cache, value_cache] = cache.elements;
        let codes = cache_codes(key_cache.dtype);
        let pools = (&mut view_mut(key_cache)?, &mut view_mut(value_cache)?);
        let Some([key_scales, value_scales]) = cache.scales else {
            return Ok(self.kernels.append(&self.stream, (&keys, &values), slots, pools)?);
        };
        let mut scales = CacheScalesMut { codes, keys: view_mut(key_scales)?, values: view_mut(value_scales)? };
        Ok(self.kernels.append_quantized(&self.stream, (&keys, &values), slots, pools, &mut scales)?)
    }

    fn rope_append(
        &self,
        rope: &RopeArgs<'_>,
        [queries, keys, values]: [&Operand<'_>; 3],
        slots: &Operand<'_>,
        out: &mut OperandMut<'_>,
        [key_cache, value_cache]: [&mut OperandMut<'_>; 2],
    ) -> Result<()> {
        let qkv = [&one_sequence(queries)?, &one_sequence(keys)?, &one_sequence(values)?];
        let layout = unsqueezed(&out.layout, 0)?;
        let cache = (&mut view_mut(key_cache)?, &mut view_mut(value_cache)?);
        let (rope, slots, mut out) = (rope_view(rope)?, one_sequence(slots)?, view_mut_as(out, layout)?);
        Ok(self.kernels.rope_append(&self.stream, &rope, qkv, &slots, &mut out, cache)?)
    }

    fn attention_types(&self, cache: DType, wanted: DType, decode: bool) -> [DType; 2] {
        attention_types(cache, wanted, decode)
    }

    fn attention(&self, args: &AttentionArgs<'_>, out: &mut OperandMut<'_>) -> Result<()> {
        let [keys, values] = args.cache;
        let kv = KeyValues {
            keys: view(&keys)?,
            values: view(&values)?,
            table: Some(view(&args.block_table)?),
            lengths: Some(view(&args.kv_lengths)?),
        };
        let scales = args.scales.as_ref().map(|[of_keys, of_values]| {
            Result::Ok(CacheScales { codes: cache_codes(keys.dtype), keys: view(of_keys)?, values: view(of_values)? })
        });
        let scales = scales.transpose()?;
        let params = args.params;
        let sinks = args.sinks.as_ref().map(view).transpose()?;
        let options = AttentionOptions { window: params.window, soft_cap: params.soft_cap, sinks, ..AttentionOptions::new(params.scale) };
        if args.decode {
            let batched = |layout: &Layout| batched(layout, args.max_query_len);
            let queries = view(&args.queries.with_layout(batched(&args.queries.layout)?))?;
            let tree = args.tree.map(|tree| view(&tree.with_layout(batched(&tree.layout)?))).transpose()?;
            let layout = batched(&out.layout)?;
            let options = AttentionOptions { tree, ..options };
            let mut out = view_mut_as(out, layout)?;
            match &scales {
                Some(scales) => self.kernels.decode_attention_quantized(&self.stream, &queries, &kv, scales, &options, &mut out)?,
                None => self.kernels.decode_attention(&self.stream, &queries, &kv, &options, &mut out)?,
            }
            return Ok(());
        }
        let varlen = Varlen { q_starts: view(&args.query_starts)?, max_q_len: args.max_query_len, kv_starts: None };
        let options = AttentionOptions { tree: args.tree.as_ref().map(view).transpose()?, ..options };
        let (queries, mut out) = (view(&args.queries)?, view_mut(out)?);
        match &scales {
            Some(scales) => {
                self.kernels.attention_varlen_quantized(&self.stream, &queries, &kv, scales, &varlen, &options, &mut out, None)?
            }
            None => self.kernels.attention_varlen(&self.stream, &queries, &kv, &varlen, &options, &mut out, None)?,
        }
        Ok(())
    }

    fn has_dense_attention(&self, head_dim: usize, bias: bool) -> bool {
        // Larger heads, which image decoders have in f32, are left to matrix products.
        !bias && head_dim.is_multiple_of(8) && head_dim <= 256
    }

    fn dense_attention(&self, qkv: [&Operand<'_>; 3], scale: f32, _: Option<&Operand<'_>>, out: &mut OperandMut<'_>) -> Result<()> {
        let keys = KeyValues { keys: view(qkv[1])?, values: view(qkv[2])?, table: None, lengths: None };
        let options = AttentionOptions::new(scale);
        Ok(self.kernels.attention(&self.stream, &view(qkv[0])?, &keys, &options, &mut view_mut(out)?, None)?)
    }

    fn max_head_dim(&self) -> usize {
        MAX_HEAD_DIM
    }
}
