//! The contract between tensors and devices: one trait, implemented by the CPU, by GPUs and by the meta device.
//!
//! Tensor methods validate shapes, types and devices, allocate the result through [`Backend::alloc`], and call one method here.
//! A backend only computes: it reads [`Operand`]s of any stride, and writes an [`OperandMut`] whose shape already fits. Results are
//! contiguous unless the method says otherwise; in-place operands may have any non-overlapping strides.
//!
//! Work may be queued: [`Backend::download`] and [`Backend::synchronize`] wait for it. Integer indices that are out of range read 0 and
//! write nothing.

use std::borrow::Cow;

use warpwave_gpu::Buffer;
use warpwave_kernels::{
    Binary, Conv, DType, Distribution, Glu, Layout, PadMode, Philox, Pool, Quant, Reduce, RopePairs, Routing, Scalar, Unary,
};

use crate::cpu::{Interleaved, Precision};
use crate::error::Result;
use crate::kv_cache::AttentionParams;
use crate::meta::Allocation;

/// Memory of a device.
pub(crate) enum Storage {
    /// Host memory, aligned to 8 bytes so that it can be read as any element type.
    Cpu(Vec<u64>),
    /// Quantized weights in the CPU's interleaved order.
    CpuWeights(Interleaved),
    /// Device memory.
    Gpu(Buffer<u8>),
    /// A size without data, counted until it is dropped.
    Meta(#[expect(dead_code, reason = "held for its Drop")] Allocation),
}

/// A tensor to read.
#[derive(Clone, Copy)]
pub(crate) struct Operand<'a> {
    pub storage: &'a Storage,
    pub dtype: DType,
    pub layout: Layout,
}

/// A tensor to write.
pub(crate) struct OperandMut<'a> {
    pub storage: &'a mut Storage,
    pub dtype: DType,
    pub layout: Layout,
}

/// Pooling and resampling of (images, channels, height, width).
#[derive(Debug, Clone, Copy)]
pub(crate) enum ImageOp {
    AvgPool(Pool),
    MaxPool(Pool),
    Nearest,
    Bilinear {
        align_corners: bool,
    },
    /// To (images, positions high, positions wide, taps) of a kernel of this size.
    Im2Col([usize; 2], Conv),
    /// From such columns.
    Col2Im([usize; 2], Conv),
}

impl ImageOp {
    /// Whether elements are only copied.
    pub fn copies(&self) -> bool {
        matches!(self, ImageOp::Nearest | ImageOp::Im2Col(..))
    }
}

/// How the weights of a [`crate::Matrix`] are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WeightFormat {
    /// Row-major elements.
    Plain(DType),
    /// Blocks as [`Backend::quantized`] stores them.
    Quant(Quant),
}

/// A matrix of weights, (rows, columns).
#[derive(Clone, Copy)]
pub(crate) struct Weights<'a> {
    pub storage: &'a Storage,
    pub format: WeightFormat,
    pub rows: usize,
    pub columns: usize,
}

/// How elements are placed by indices.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Scatter {
    /// Replaces elements; of equal indices the last one's stays, or any if not `ordered`.
    Set { ordered: bool },
    /// Adds elements. If not `ordered`, in any order and rounded each time.
    Add { ordered: bool },
    /// Adds slices: one index for each position of the dimension.
    AddSlices { ordered: bool },
}

/// What a bin counts.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Bins {
    /// The integer that is its number.
    Integers,
    /// A part of the numbers between two limits.
    Between(f64, f64),
}

/// Rotary embedding at the positions of some tokens.
#[derive(Clone, Copy)]
pub(crate) struct RopeArgs<'a> {
    pub pairs: RopePairs,
    /// `f32` of (pairs).
    pub frequencies: Operand<'a>,
    /// Multiplies cosines and sines.
    pub factor: f64,
    /// `u32` of (tokens).
    pub positions: Operand<'a>,
    /// What [`Backend::rope_tables`] returned for these positions.
    pub tables: Option<&'a RopeTables>,
}

/// Cosines and sines of (tokens, pairs).
pub(crate) type RopeTables = (Vec<f32>, Vec<f32>);

/// A layer's key and value blocks, and their scales if they are quantized.
pub(crate) struct CacheOperands<'a, 'b> {
    pub elements: [&'a mut OperandMut<'b>; 2],
    pub scales: Option<[&'a mut OperandMut<'b>; 2]>,
}

/// Attention of variable-length sequences over a paged KV cache.
pub(crate) struct AttentionArgs<'a> {
    /// (tokens, heads, head_dim) in the type of [`Backend::attention_types`], with consecutive elements of a head.
    pub queries: Operand<'a>,
    /// Key and value blocks, (blocks, block size, kv_heads, head_dim).
    pub cache: [Operand<'a>; 2],
    /// The scales of a quantized cache, whose codes `cache` has.
    pub scales: Option<[Operand<'a>; 2]>,
    /// `u32` of (sequences + 1): each sequence's first token.
    pub query_starts: Operand<'a>,
    /// `u32` of (sequences): cached keys of each sequence.
    pub kv_lengths: Operand<'a>,
    /// `u32` of (sequences, blocks).
    pub block_table: Operand<'a>,
    pub max_query_len: usize,
    /// Every sequence has `max_query_len` queries, few of them, and `queries` is contiguous.
    pub decode: bool,
    pub params: &'a AttentionParams,
    /// `f32` of (heads): another logit per head, which has no value.
    pub sinks: Option<Operand<'a>>,
    /// `i64` of (tokens): which drafts each token attends to.
    pub tree: Option<Operand<'a>>,
}

/// Assignments of tokens to experts, by expert: what [`Backend::sort_experts`] writes.
#[derive(Clone, Copy)]
pub(crate) struct ExpertOrder<'a> {
    pub order: Operand<'a>,
    pub tiles: Operand<'a>,
    pub tile_rows: usize,
}

/// Products with the matrices of experts.
pub(crate) struct GroupedArgs<'a> {
    /// One matrix with the rows of all experts, or one per expert.
    pub weights: &'a [Weights<'a>],
    pub experts: usize,
    /// Rows of an expert.
    pub rows: usize,
    /// `u32` of (tokens, used).
    pub ids: Operand<'a>,
    /// On devices other than the CPU.
    pub order: Option<ExpertOrder<'a>>,
    /// (tokens or assignments, columns), contiguous.
    pub x: Operand<'a>,
    /// `f32` of (experts, rows).
    pub bias: Option<Operand<'a>>,
    pub precision: Precision,
}

/// A device that stores tensors and computes with them.
pub(crate) trait Backend {
    // Memory. `alloc` may return uninitialized memory; all memory of tensors and temporaries comes from these four.
    fn alloc(&self, bytes: usize) -> Result<Storage>;
    fn alloc_zeroed(&self, bytes: usize) -> Result<Storage>;
    fn upload(&self, data: &[u8]) -> Result<Storage>;
    /// Stores quantized weights in the order that [`Backend::linear`] reads best; without data only their size is known.
    fn quantized(&self, quant: Quant, rows: usize, columns: usize, blocks: &[u8]) -> Result<Storage>;
    /// Row-major bytes of a tensor, borrowed where the device shares memory with the host.
    fn download<'a>(&self, x: &Operand<'a>) -> Result<Cow<'a, [u8]>>;
    fn synchronize(&self) -> Result<()>;

    // Elementwise. Inputs are broadcast to the shape of the result.
    fn copy(&self, x: &Operand<'_>, out: &mut OperandMut<'_>) -> Result<()>;
    fn cast(&self, x: &Operand<'_>, out: &mut OperandMut<'_>) -> Result<()>;
    fn fill(&self, value: Scalar, out: &mut OperandMut<'_>) -> Result<()>;
    fn unary(&self, op: Unary, x: &Operand<'_>, out: &mut OperandMut<'_>) -> Result<()>;
    fn binary(&self, op: Binary, a: &Operand<'_>, b: &Operand<'_>, out: &mut OperandMut<'_>) -> Result<()>;
    fn binary_in_place(&self, op: Binary, a: &mut OperandMut<'_>, b: &Operand<'_>) -> Result<()>;
    fn affine(&self, x: &Operand<'_>, factor: Scalar, term: Scalar, out: &mut OperandMut<'_>) -> Result<()>;
    fn affine_in_place(&self, x: &mut OperandMut<'_>, factor: Scalar, term: Scalar) -> Result<()>;
    /// `x = cap · tanh(x / cap)`.
    fn soft_cap_in_place(&self, x: &mut OperandMut<'_>, cap: f32) -> Result<()>;
    /// The condition is of any integer type.
    fn where_cond(&self, condition: &Operand<'_>, yes: &Operand<'_>, no: &Operand<'_>, out: &mut OperandMut<'_>) -> Result<()>;

    // Random numbers, from a position on. `out` is contiguous.
    fn random(&self, distribution: &Distribution, at: Philox, out: &mut OperandMut<'_>) -> Result<()>;
    /// A permutation as `u32`.
    fn permutation(&self, at: Philox, out: &mut OperandMut<'_>) -> Result<()>;

    // Reductions and normalization.
    /// `out` has the dimensions that are not in `dims`.
    fn reduce(&self, op: Reduce, x: &Operand<'_>, dims: &[usize], out: &mut OperandMut<'_>) -> Result<()>;
    fn softmax(&self, x: &Operand<'_>, dim: usize, log: bool, out: &mut OperandMut<'_>) -> Result<()>;
    fn layer_norm(&self, x: &Operand<'_>, weight: &Operand<'_>, bias: &Operand<'_>, eps: f32, out: &mut OperandMut<'_>) -> Result<()>;
    /// Groups of channels of (images, channels, height, width), with `silu` followed by SiLU; `out` has any strides.
    #[expect(clippy::too_many_arguments, reason = "an operation with its parameters")]
    fn group_norm(
        &self,
        x: &Operand<'_>,
        groups: usize,
        weight: &Operand<'_>,
        bias: &Operand<'_>,
        eps: f32,
        silu: bool,
        out: &mut OperandMut<'_>,
    ) -> Result<()>;
    fn rms_norm(&self, x: &Operand<'_>, weight: &Operand<'_>, eps: f32, out: &mut OperandMut<'_>) -> Result<()>;
    /// `residual += x`, then `out = rms_norm(residual)`.
    fn add_rms_norm(
        &self,
        residual: &mut OperandMut<'_>,
        x: &Operand<'_>,
        weight: &Operand<'_>,
        eps: f32,
        out: &mut OperandMut<'_>,
    ) -> Result<()>;
    /// `out = f(gate) · up` of rows that hold gates in their first half.
    fn glu(&self, op: Glu, x: &Operand<'_>, out: &mut OperandMut<'_>) -> Result<()>;

    // Indexing. `indices` are integers, one-dimensional in `index_select`, `Scatter::AddSlices` and `embedding`.
    fn gather(&self, x: &Operand<'_>, indices: &Operand<'_>, dim: usize, out: &mut OperandMut<'_>) -> Result<()>;
    fn index_select(&self, x: &Operand<'_>, indices: &Operand<'_>, dim: usize, out: &mut OperandMut<'_>) -> Result<()>;
    fn scatter(&self, kind: Scatter, out: &mut OperandMut<'_>, indices: &Operand<'_>, x: &Operand<'_>, dim: usize) -> Result<()>;
    /// Rows of a matrix, converted to the type of the result.
    fn embedding(&self, table: &Weights<'_>, ids: &Operand<'_>, out: &mut OperandMut<'_>) -> Result<()>;

    // Sorting and counting.
    /// Sorts the first elements of rows along the last dimension, as many as the results have; `indices` are `u32`.
    fn order(&self, x: &Operand<'_>, descending: bool, values: Option<&mut OperandMut<'_>>, indices: &mut OperandMut<'_>) -> Result<()>;
    /// Writes the distinct elements of a row to the start of `out`, and the `u32` positions and counts, all of the row's size; returns
    /// their number.
    fn unique(&self, x: &Operand<'_>, out: &mut OperandMut<'_>, more: Option<(&mut OperandMut<'_>, &mut OperandMut<'_>)>) -> Result<usize>;
    /// Counts elements by bins, as `i64`.
    fn histogram(&self, x: &Operand<'_>, bins: Bins, out: &mut OperandMut<'_>) -> Result<()>;

    // Matrix products.
    fn matmul(&self, a: &Operand<'_>, b: &Operand<'_>, out: &mut OperandMut<'_>) -> Result<()>;
    /// `out = x · weightsᵀ + bias`, of (vectors, columns) and (vectors, rows); `bias` is broadcast, `out` has any row stride.
    fn linear(
        &self,
        weights: &Weights<'_>,
        x: &Operand<'_>,
        bias: Option<&Operand<'_>>,
        out: &mut OperandMut<'_>,
        precision: Precision,
    ) -> Result<()>;

    // Mixture of experts. Operands are contiguous.
    /// Writes `u32` experts and `f32` weights of (tokens, used), from `f32` logits of (tokens, experts).
    fn route(
        &self,
        routing: &Routing,
        logits: &Operand<'_>,
        bias: Option<&Operand<'_>>,
        ids: &mut OperandMut<'_>,
        weights: &mut OperandMut<'_>,
    ) -> Result<()>;
    /// Orders assignments by expert, in tiles of at most `tile_rows`. Not called on the CPU.
    fn sort_experts(
        &self,
        ids: &Operand<'_>,
        experts: usize,
        tile_rows: usize,
        order: &mut OperandMut<'_>,
        tiles: &mut OperandMut<'_>,
    ) -> Result<()>;
    /// `out` is (assignments, rows).
    fn grouped_linear(&self, args: &GroupedArgs<'_>, out: &mut OperandMut<'_>) -> Result<()>;
    /// `out[t] = Σ weights[t][j] · x[t][j]`, of `f32`.
    fn combine_experts(&self, x: &Operand<'_>, weights: &Operand<'_>, out: &mut OperandMut<'_>) -> Result<()>;

    // Convolutions.
    /// 2-D, of (images, channels, height, width) in `f32`, `f16` or `bf16`; `out` has any strides.
    fn conv2d(
        &self,
        conv: &Conv,
        transposed: bool,
        x: &Operand<'_>,
        weight: &Operand<'_>,
        bias: Option<&Operand<'_>>,
        out: &mut OperandMut<'_>,
    ) -> Result<()>;

    // Images.
    /// Those that compute take floats but fp8, those that copy any type; `out` has any strides.
    fn image(&self, op: &ImageOp, x: &Operand<'_>, out: &mut OperandMut<'_>) -> Result<()>;
    /// A copy with `before` positions before each dimension, and what is left after it.
    fn pad(&self, mode: PadMode, before: &[usize], x: &Operand<'_>, out: &mut OperandMut<'_>) -> Result<()>;

    // Attention.
    /// Cosines and sines, where the backend wants them computed once for all layers.
    fn rope_tables(&self, frequencies: &Operand<'_>, factor: f64, positions: &Operand<'_>) -> Result<Option<RopeTables>>;
    /// Rotates `x` of (tokens, heads, head_dim).
    fn rope_in_place(&self, rope: &RopeArgs<'_>, x: &mut OperandMut<'_>) -> Result<()>;
    /// Writes keys and values of (tokens, kv_heads, head_dim) to `u32` slots of the cache.
    fn append(&self, kv: [&Operand<'_>; 2], slots: &Operand<'_>, cache: CacheOperands<'_, '_>) -> Result<()>;
    /// Rotates queries into `out` and keys into the cache, and writes values to the cache, which is not quantized.
    fn rope_append(
        &self,
        rope: &RopeArgs<'_>,
        qkv: [&Operand<'_>; 3],
        slots: &Operand<'_>,
        out: &mut OperandMut<'_>,
        cache: [&mut OperandMut<'_>; 2],
    ) -> Result<()>;
    /// The types of queries and results of [`Backend::attention`] over a cache of `cache`, where `wanted` is the caller's result type. For
    /// a quantized cache, `cache` is the type of the queries there are.
    fn attention_types(&self, cache: DType, wanted: DType, decode: bool) -> [DType; 2];
    fn attention(&self, args: &AttentionArgs<'_>, out: &mut OperandMut<'_>) -> Result<()>;
    /// Whether [`Backend::dense_attention`] has this head_dim, with or without a bias.
    fn has_dense_attention(&self, head_dim: usize, bias: bool) -> bool;
    /// Every query sees every key: of (rows, tokens, heads, head_dim) with consecutive elements of a head, and a bias of (heads, queries,
    /// keys).
    fn dense_attention(&self, qkv: [&Operand<'_>; 3], scale: f32, bias: Option<&Operand<'_>>, out: &mut OperandMut<'_>) -> Result<()>;
    /// The largest head_dim of [`Backend::attention`].
    fn max_head_dim(&self) -> usize;
}

impl Operand<'_> {
    /// The same elements with another layout of the same memory.
    pub fn with_layout(self, layout: Layout) -> Self {
        Operand { layout, ..self }
    }
}

impl<'a> OperandMut<'a> {
    pub fn new(storage: &'a mut Storage, dtype: DType, layout: Layout) -> OperandMut<'a> {
        OperandMut { storage, dtype, layout }
    }

    /// The same tensor, to read.
    pub fn as_operand(&self) -> Operand<'_> {
        Operand { storage: self.storage, dtype: self.dtype, layout: self.layout }
    }
}
