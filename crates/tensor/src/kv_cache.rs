//! Paged KV cache: keys and values in blocks that sequences take as they grow.

use warpwave_kernels::{AttentionOptions, DType, Window};

use crate::backend::AttentionArgs;
use crate::batch::Batch;
use crate::device::Device;
use crate::error::{Result, shape, wrong_device, wrong_type};
use crate::nn::RopePositions;
use crate::ops::check_float;
use crate::tensor::Tensor;

/// Keys of a block.
pub const BLOCK_SIZE: usize = 16;

/// A pool of key and value blocks for each layer.
pub struct KvCache {
    /// Keys and values of (blocks, [`BLOCK_SIZE`], kv_heads, head_dim).
    layers: Vec<[Tensor; 2]>,
    dtype: DType,
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
    pub fn new(device: &Device, dtype: DType, layers: usize, blocks: usize, kv_heads: usize, head_dim: usize) -> Result<KvCache> {
        let op = "KV cache";
        if !matches!(dtype, DType::F32 | DType::F16 | DType::Bf16) {
            return Err(wrong_type(op, "the cache", dtype, "f32, f16 or bf16"));
        }
        let max = device.backend().max_head_dim();
        if head_dim > max {
            return Err(shape(op, format!("head_dim {head_dim} is not supported; attention on {device} supports up to {max}")));
        }
        let pool = || Tensor::zeros(dtype, &[blocks, BLOCK_SIZE, kv_heads, head_dim], device);
        let layers = (0..layers).map(|_| Ok([pool()?, pool()?])).collect::<Result<_>>()?;
        Ok(KvCache { layers, dtype })
    }

    /// Returns the bytes of a token in all layers.
    pub fn bytes_per_token(dtype: DType, layers: usize, kv_heads: usize, head_dim: usize) -> usize {
        2 * layers * kv_heads * head_dim * dtype.size()
    }

    /// Applies rotary embedding to queries and keys, writes keys and values to the batch's slots, and returns the queries for
    /// [`KvCache::attend`]. All are (tokens, heads, head_dim); queries and keys are freed on return.
    pub fn rope_append(
        &mut self,
        layer: usize,
        rope: &RopePositions<'_>,
        queries: Tensor,
        keys: Tensor,
        values: &Tensor,
        batch: &Batch,
    ) -> Result<Tensor> {
        self.check_new(layer, &keys, values, batch)?;
        self.check("append", layer, batch, [("the query tensor", &queries)])?;
        rope.check(&queries)?;
        rope.check(&keys)?;
        queries.check_same_kind("append", "the key tensor", &keys)?;
        let (slots, cache_type) = (batch.slots()?, self.dtype);
        let [key_pool, value_pool] = &mut self.layers[layer];
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
        let [key_pool, value_pool] = &mut self.layers[layer];
        let cache = [&mut key_pool.operand_mut()?, &mut value_pool.operand_mut()?];
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
        let [keys, values] = &self.layers[layer];
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
        let [query_type, out_type] = device.backend().attention_types(self.dtype, params.dtype, decode);
        let queries = queries.cast(query_type)?;
        // Kernels read heads of consecutive elements.
        let strided = queries.layout().strides().last() != Some(&1);
        let queries = if decode || strided { queries.contiguous()? } else { queries };
        let (query_starts, kv_lengths, block_table) = (batch.query_starts()?, batch.kv_lengths()?, batch.block_table()?);
        let args = AttentionArgs {
            queries: queries.operand(),
            cache: [keys.operand(), values.operand()],
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
        let [pool, _] = &self.layers[layer];
        if pool.shape()[2..] != [heads, head_dim] {
            let [kv_heads, key_dim] = [pool.size(2), pool.size(3)];
            let reason = format!("got {heads} heads with head_dim {head_dim}, but the cache has {kv_heads} with head_dim {key_dim}");
            return Err(shape(op, reason));
        }
        Ok(())
    }

    /// Fails for layers and blocks that are out of range, and for tensors on another device.
    fn check<const N: usize>(&self, op: &'static str, layer: usize, batch: &Batch, tensors: [(&'static str, &Tensor); N]) -> Result<()> {
        let Some([pool, _]) = self.layers.get(layer) else {
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
