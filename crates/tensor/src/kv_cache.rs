//! Paged KV cache: keys and values in blocks that sequences take as they grow.

use std::fmt;
use std::str::FromStr;

use warpwave_kernels::{AttentionOptions, CacheCodes, DType, Window};

use crate::backend::{AttentionArgs, CacheOperands};
use crate::batch::Batch;
use crate::device::Device;
use crate::error::{Result, shape, wrong_device};
use crate::nn::RopePositions;
use crate::ops::check_float;
use crate::tensor::Tensor;

/// Keys of a block.
pub const BLOCK_SIZE: usize = 16;

/// The largest head_dim of a quantized cache, on every device: that of the GPU kernels.
const MAX_QUANTIZED_HEAD_DIM: usize = 256;

/// How a [`KvCache`] stores elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KvCacheType {
    /// `f32`.
    F32,
    /// `f16`.
    F16,
    /// `bf16`.
    Bf16,
    /// OCP's fp8 with a 4-bit exponent, with a scale of `f16` for each head of a token.
    F8E4M3,
    /// GGUF's `Q8_0`: signed bytes, with a scale of `f16` for each 32 elements of a head.
    Q8_0,
}

impl KvCacheType {
    /// All types.
    pub const ALL: [KvCacheType; 5] = [KvCacheType::F32, KvCacheType::F16, KvCacheType::Bf16, KvCacheType::F8E4M3, KvCacheType::Q8_0];

    /// Returns the name, such as `q8_0`.
    pub fn name(self) -> &'static str {
        match self {
            KvCacheType::Q8_0 => "q8_0",
            other => other.element().name(),
        }
    }

    /// Returns the bytes of a token's head.
    pub fn head_bytes(self, head_dim: usize) -> usize {
        let scales = self.codes().map_or(0, |codes| codes.groups(head_dim) * DType::F16.size());
        head_dim.saturating_mul(self.element().size()).saturating_add(scales)
    }

    /// The type of elements or codes.
    fn element(self) -> DType {
        match self {
            KvCacheType::F32 => DType::F32,
            KvCacheType::F16 => DType::F16,
            KvCacheType::Bf16 => DType::Bf16,
            KvCacheType::F8E4M3 => CacheCodes::F8E4M3.dtype(),
            KvCacheType::Q8_0 => CacheCodes::Q8_0.dtype(),
        }
    }

    fn codes(self) -> Option<CacheCodes> {
        match self {
            KvCacheType::F8E4M3 => Some(CacheCodes::F8E4M3),
            KvCacheType::Q8_0 => Some(CacheCodes::Q8_0),
            _ => None,
        }
    }
}

/// The codes of a quantized cache, from their type.
pub(crate) fn cache_codes(dtype: DType) -> CacheCodes {
    if dtype == DType::U8 { CacheCodes::Q8_0 } else { CacheCodes::F8E4M3 }
}

impl fmt::Display for KvCacheType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that is not a [`KvCacheType`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown type {name:?} of a KV cache; valid types: f32, f16, bf16, f8e4m3, q8_0")]
pub struct ParseKvCacheTypeError {
    /// The name.
    pub name: String,
}

impl FromStr for KvCacheType {
    type Err = ParseKvCacheTypeError;

    fn from_str(name: &str) -> std::result::Result<KvCacheType, ParseKvCacheTypeError> {
        let found = KvCacheType::ALL.into_iter().find(|known| known.name().eq_ignore_ascii_case(name));
        found.ok_or_else(|| ParseKvCacheTypeError { name: name.to_owned() })
    }
}

/// A layer's part of a [`KvCache`].
struct Pools {
    /// Keys and values of (blocks, [`BLOCK_SIZE`], kv_heads, head_dim).
    elements: [Tensor; 2],
    /// Their scales, if they are quantized.
    scales: Option<[Tensor; 2]>,
}

/// A pool of key and value blocks for each layer.
pub struct KvCache {
    layers: Vec<Pools>,
    kind: KvCacheType,
}

/// Parameters of a layer's attention.
#[derive(Debug, Clone, Copy)]
pub struct AttentionParams {
    /// Multiplies scores.
    pub scale: f32,
    /// The keys that a token attends to; causal attention is [`Window::CAUSAL`].
    pub window: Window,
    /// Soft cap of scores.
    pub soft_cap: Option<f32>,
    /// Type of the result.
    pub dtype: DType,
}

/// Optional inputs of a layer's attention.
#[derive(Debug, Clone, Copy, Default)]
pub struct AttentionInputs<'a> {
    /// Attention sinks, `f32` of (heads): another logit of each softmax, which has no value.
    pub sinks: Option<&'a Tensor>,
    /// Tree mask, `i64` of (tokens), for the drafts of speculative decoding. The last 64 tokens of a sequence, or all if it has fewer, are
    /// its drafts. Bit j of a token's word says whether it attends to draft j, whatever the window; the window decides about earlier keys.
    pub tree: Option<&'a Tensor>,
}

impl KvCache {
    /// Allocates `blocks` blocks for each layer.
    pub fn new(device: &Device, kind: KvCacheType, layers: usize, blocks: usize, kv_heads: usize, head_dim: usize) -> Result<KvCache> {
        let op = "KV cache";
        let max = device.backend().max_head_dim();
        if kind.codes().is_some() && head_dim > MAX_QUANTIZED_HEAD_DIM {
            let reason = format!("a cache of type {kind} supports up to {MAX_QUANTIZED_HEAD_DIM}");
            return Err(shape(op, format!("head_dim {head_dim} is not supported; {reason}")));
        }
        if head_dim > max {
            return Err(shape(op, format!("head_dim {head_dim} is not supported; attention on {device} supports up to {max}")));
        }
        let pools = |dtype, columns| {
            let pool = || Tensor::zeros(dtype, &[blocks, BLOCK_SIZE, kv_heads, columns], device);
            Result::Ok([pool()?, pool()?])
        };
        let layer = |_| {
            let scales = kind.codes().map(|codes| pools(DType::F16, codes.groups(head_dim))).transpose()?;
            Ok(Pools { elements: pools(kind.element(), head_dim)?, scales })
        };
        Ok(KvCache { layers: (0..layers).map(layer).collect::<Result<_>>()?, kind })
    }

    /// Returns the bytes of a token in all layers.
    pub fn bytes_per_token(kind: KvCacheType, layers: usize, kv_heads: usize, head_dim: usize) -> usize {
        2 * layers * kv_heads * kind.head_bytes(head_dim)
    }

    /// The type that decides those of attention: the cache's elements, or the queries if the cache is quantized.
    fn computed(&self, queries: DType) -> DType {
        match (self.kind.codes(), queries) {
            (None, _) => self.kind.element(),
            (Some(_), DType::F16 | DType::Bf16) => queries,
            (Some(_), _) => DType::F32,
        }
    }

    /// Applies rotary embedding to queries and keys, writes keys and values to the batch's slots, and returns the queries for
    /// [`KvCache::attend`]. All are (tokens, heads, head_dim); queries and keys are freed on return.
    pub fn rope_append(
        &mut self,
        layer: usize,
        rope: &RopePositions<'_>,
        mut queries: Tensor,
        mut keys: Tensor,
        values: &Tensor,
        batch: &Batch,
    ) -> Result<Tensor> {
        self.check_new(layer, &keys, values, batch)?;
        self.check("append", layer, batch, [("the query tensor", &queries)])?;
        rope.check(&queries)?;
        rope.check(&keys)?;
        queries.check_same_kind("append", "the key tensor", &keys)?;
        if self.kind.codes().is_some() {
            queries.rope_in_place(rope)?;
            keys.rope_in_place(rope)?;
            self.append(layer, &keys, values, batch)?;
            return Ok(queries);
        }
        let (slots, cache_type) = (batch.slots()?, self.kind.element());
        let [key_pool, value_pool] = &mut self.layers[layer].elements;
        let device = queries.device().clone();
        let [dtype, _] = device.backend().attention_types(cache_type, cache_type, false);
        let (mut key_pool, mut value_pool) = (key_pool.operand_mut()?, value_pool.operand_mut()?);
        Tensor::build(&device, dtype, queries.shape(), |backend, out| {
            let qkv = [&queries.operand(), &keys.operand(), &values.operand()];
            backend.rope_append(&rope.args(), qkv, &slots.operand(), out, [&mut key_pool, &mut value_pool])
        })
    }

    /// Writes keys and values of (tokens, kv_heads, head_dim) to the batch's slots.
    pub fn append(&mut self, layer: usize, keys: &Tensor, values: &Tensor, batch: &Batch) -> Result<()> {
        self.check_new(layer, keys, values, batch)?;
        let slots = batch.slots()?;
        let Pools { elements: [key_pool, value_pool], scales } = &mut self.layers[layer];
        let (mut key_pool, mut value_pool) = (key_pool.operand_mut()?, value_pool.operand_mut()?);
        let scales = scales.as_mut().map(|[keys, values]| Result::Ok([keys.operand_mut()?, values.operand_mut()?]));
        let mut scales = scales.transpose()?;
        let cache = CacheOperands { elements: [&mut key_pool, &mut value_pool], scales: scales.as_mut().map(<[_; 2]>::each_mut) };
        keys.device().backend().append([&keys.operand(), &values.operand()], &slots.operand(), cache)
    }

    /// Returns attention of queries of (tokens, heads, head_dim) over the cached keys and values of their sequences, as
    /// (tokens, heads · head_dim).
    pub fn attend(&self, layer: usize, queries: &Tensor, batch: &Batch, params: &AttentionParams) -> Result<Tensor> {
        self.attend_with(layer, queries, batch, params, &AttentionInputs::default())
    }

    /// As [`KvCache::attend`], with attention sinks and a tree mask.
    pub fn attend_with(
        &self,
        layer: usize,
        queries: &Tensor,
        batch: &Batch,
        params: &AttentionParams,
        inputs: &AttentionInputs<'_>,
    ) -> Result<Tensor> {
        let op = "attention";
        let [tokens, heads, head_dim] = *queries.shape() else {
            return Err(shape(op, format!("expected queries of shape (tokens, heads, head_dim), got {:?}", queries.shape())));
        };
        batch.check_tokens(op, tokens)?;
        self.check(op, layer, batch, [("the query tensor", queries)])?;
        check_float(op, "the query tensor", queries.dtype())?;
        check_float(op, "the result", params.dtype)?;
        let Pools { elements: [keys, values], scales } = &self.layers[layer];
        let [kv_heads, key_dim] = [keys.size(2), keys.size(3)];
        if head_dim != key_dim || kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
            let rule = "expected the KV cache's head_dim and a multiple of its heads";
            let found = format!("{heads} query heads with head_dim {head_dim} for {kv_heads} KV heads with head_dim {key_dim}");
            return Err(shape(op, format!("{rule}, got {found}")));
        }
        let checked = [("the sinks", inputs.sinks, DType::F32, heads), ("the tree mask", inputs.tree, DType::I64, tokens)];
        for (what, input, dtype, len) in checked {
            let Some(input) = input else { continue };
            queries.check_same_device(op, what, input)?;
            if input.dtype() != dtype || input.shape() != [len] {
                return Err(shape(op, format!("expected {what} of {dtype} and shape [{len}], got {input:?}")));
            }
        }
        let [sinks, tree] = [inputs.sinks, inputs.tree].map(|input| input.map(Tensor::contiguous).transpose());
        let (sinks, tree) = (sinks?, tree?);
        // Drafts are few: their keys are split as those of one query are.
        let (longest, most) = (batch.max_query_len(), if tree.is_some() { AttentionOptions::MAX_DRAFTS } else { 1 });
        let decode = (1..=most).contains(&longest) && batch.sequences() * longest == tokens;
        let device = queries.device();
        let [query_type, out_type] = device.backend().attention_types(self.computed(queries.dtype()), params.dtype, decode);
        let queries = queries.cast(query_type)?;
        // Kernels read heads of consecutive elements.
        let strided = queries.layout().strides().last() != Some(&1);
        let queries = if decode || strided { queries.contiguous()? } else { queries };
        let (query_starts, kv_lengths, block_table) = (batch.query_starts()?, batch.kv_lengths()?, batch.block_table()?);
        let args = AttentionArgs {
            queries: queries.operand(),
            cache: [keys.operand(), values.operand()],
            scales: scales.as_ref().map(|scales| scales.each_ref().map(Tensor::operand)),
            query_starts: query_starts.operand(),
            kv_lengths: kv_lengths.operand(),
            block_table: block_table.operand(),
            max_query_len: batch.max_query_len(),
            decode,
            params,
            sinks: sinks.as_ref().map(Tensor::operand),
            tree: tree.as_ref().map(Tensor::operand),
        };
        let out = Tensor::build(device, out_type, &[tokens, heads, head_dim], |backend, out| backend.attention(&args, out))?;
        out.reshape(&[tokens, heads * head_dim])?.cast(params.dtype)
    }

    /// Fails unless keys and values fit the cache and the batch.
    fn check_new(&self, layer: usize, keys: &Tensor, values: &Tensor, batch: &Batch) -> Result<()> {
        let op = "append";
        let [tokens, heads, head_dim] = *keys.shape() else {
            return Err(shape(op, format!("expected keys of shape (tokens, kv_heads, head_dim), got {:?}", keys.shape())));
        };
        if values.shape() != keys.shape() {
            return Err(shape(op, format!("keys and values must have the same shape, got {:?} and {:?}", keys.shape(), values.shape())));
        }
        batch.check_tokens(op, tokens)?;
        self.check(op, layer, batch, [("the key tensor", keys), ("the value tensor", values)])?;
        check_float(op, "the key tensor", keys.dtype())?;
        keys.check_same_kind(op, "the value tensor", values)?;
        let [pool, _] = &self.layers[layer].elements;
        if pool.shape()[2..] != [heads, head_dim] {
            let [kv_heads, key_dim] = [pool.size(2), pool.size(3)];
            let reason = format!("got {heads} heads with head_dim {head_dim}, but the cache has {kv_heads} with head_dim {key_dim}");
            return Err(shape(op, reason));
        }
        Ok(())
    }

    /// Fails for layers and blocks that are out of range, and for tensors on another device.
    fn check<const N: usize>(&self, op: &'static str, layer: usize, batch: &Batch, tensors: [(&'static str, &Tensor); N]) -> Result<()> {
        let Some(Pools { elements: [pool, _], .. }) = self.layers.get(layer) else {
            return Err(shape(op, format!("layer {layer} is out of range for a cache of {} layers", self.layers.len())));
        };
        if batch.blocks() > pool.size(0) {
            return Err(shape(op, format!("block {} is out of range for a cache of {} blocks", batch.blocks() - 1, pool.size(0))));
        }
        let devices = tensors.map(|(what, tensor)| (what, tensor.device()));
        match devices.into_iter().chain([("the batch", batch.device())]).find(|(_, found)| *found != pool.device()) {
            Some((what, found)) => Err(wrong_device(op, what, found.name(), pool.device().name())),
            None => Ok(()),
        }
    }
}
