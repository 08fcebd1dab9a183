//! A decoder-only transformer on one or several devices.

mod load;

use warpwave_kernels::{Binary, DType};
use warpwave_tensor::{AttentionParams, Batch, Device, KvCache, Linear, Matrix, Precision, Rope, RopePositions, Tensor};
use warpwave_weights::Kind;

use crate::checkpoint::{StepMemory, kv_cache_type};
use crate::config::Config;
use crate::error::{Error, Result};

/// Element type of the residual stream.
const RESIDUAL: DType = DType::F32;

/// The largest step whose feed-forward activations stay `f32`: for so few tokens their bytes hardly matter.
pub(crate) const SMALL_STEP: usize = 64;

/// The type of gate and up projections in a step of `tokens`: `f32`, except in large steps, where bytes matter.
fn gate_type(dtype: DType, tokens: usize) -> DType {
    if tokens <= SMALL_STEP { RESIDUAL } else { dtype }
}

/// Which logits a step returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Logits {
    /// Those after the last token of each sequence.
    Last,
    /// Those after every token.
    All,
}

/// Options of [`Model::load`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadOptions {
    /// Type that weight matrices are converted to. Default: the file's types.
    pub weights: Option<Kind>,
    /// Precision of products with quantized weights.
    pub precision: Precision,
    /// The context length, which some models scale their RoPE by. Default: the model's own.
    pub context: Option<usize>,
}

impl Default for LoadOptions {
    fn default() -> Self {
        LoadOptions { weights: None, precision: Precision::Fast, context: None }
    }
}

/// A model on one device, or split over several (tensor parallel).
pub struct Model {
    config: Config,
    /// The type of the inputs of matrix products. The residual stream stays `f32`: rounding it in each layer would make tokens depend on
    /// the order of sums.
    dtype: DType,
    precision: Precision,
    /// The main type of the weight matrices.
    weights: Kind,
    /// On the first device.
    embedding: Matrix,
    shards: Vec<Shard>,
    /// On GPUs: the model without data, to count the memory of a step.
    meta: Option<Box<Model>>,
}

/// A device's part of a model.
struct Shard {
    device: Device,
    /// The configuration with this device's heads and feed-forward elements.
    config: Config,
    layers: Vec<Layer>,
    norm: Tensor,
    /// Tied to the embedding, it is on the first device only.
    output: Option<Linear>,
    rope: Rope,
    rope_sliding: Option<Rope>,
}

struct Layer {
    attention_norm: Tensor,
    qkv: Linear,
    /// Per-head norms of Q and K.
    qk_norms: Option<(Tensor, Tensor)>,
    attention_out: Linear,
    attention_post_norm: Option<Tensor>,
    ffn_norm: Tensor,
    gate_up: Linear,
    down: Linear,
    ffn_post_norm: Option<Tensor>,
    sliding: bool,
}

/// The state of a forward pass on one device.
struct ShardState<'a> {
    shard: &'a Shard,
    cache: &'a mut KvCache,
    step: &'a Batch,
    rope: RopePositions<'a>,
    rope_sliding: Option<RopePositions<'a>>,
    /// The residual stream.
    x: Tensor,
    /// The normalized input of the next product.
    h: Tensor,
}

impl Model {
    /// Returns the architecture.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the first device, which computes the logits.
    pub fn device(&self) -> &Device {
        &self.shards[0].device
    }

    /// Returns all devices.
    pub fn devices(&self) -> impl ExactSizeIterator<Item = &Device> {
        self.shards.iter().map(|shard| &shard.device)
    }

    /// Returns the names of all devices, separated by commas.
    pub fn device_names(&self) -> String {
        device_names(self.devices())
    }

    /// Returns the default element type of the KV cache.
    pub fn kv_cache_type(&self) -> DType {
        kv_cache_type(self.weights, self.precision, !self.device().is_cpu())
    }

    /// Bytes of a token in the KV cache of one of the devices.
    pub(crate) fn kv_bytes_per_token(&self, number: usize, dtype: DType) -> usize {
        let config = &self.shards[number].config;
        KvCache::bytes_per_token(dtype, config.layers, config.kv_heads, config.head_dim)
    }

    /// Creates the KV cache of one of the devices.
    pub(crate) fn new_cache(&self, number: usize, dtype: DType, blocks: usize) -> Result<KvCache> {
        let Shard { device, config, .. } = &self.shards[number];
        Ok(KvCache::new(device, dtype, config.layers, blocks, config.kv_heads, config.head_dim)?)
    }

    /// Bytes that the pool of one of the GPUs should hold for steps of `tokens`.
    pub(crate) fn step_bytes(&self, number: usize, tokens: usize, kv_cache: DType) -> Result<u64> {
        let Some(meta) = &self.meta else { return Ok(0) };
        Ok(StepMemory::count(meta, tokens, kv_cache)?[number].reserved(&self.shards[number].device))
    }

    /// Returns the bytes of the weights that a decode step reads. Of the embedding that is one row, which is not counted.
    pub fn bytes_per_token(&self) -> usize {
        let layer = |layer: &Layer| layer.qkv.bytes() + layer.attention_out.bytes() + layer.gate_up.bytes() + layer.down.bytes();
        let shard = |shard: &Shard| shard.layers.iter().map(layer).sum::<usize>() + shard.output.as_ref().map_or(0, Linear::bytes);
        self.shards.iter().map(shard).sum()
    }

    /// Computes logits, `f32` of (rows, vocabulary), on the first device. `caches` and `steps` have one entry per device.
    pub(crate) fn forward(&self, caches: &mut [KvCache], steps: &[Batch], logits: Logits) -> Result<Tensor> {
        let (config, epsilon) = (&self.config, self.config.norm_eps);
        assert!(
            caches.len() == self.shards.len() && steps.len() == self.shards.len(),
            "internal error: expected one KV cache and one step per device"
        );
        let mut x = self.embedding.embedding(&steps[0].token_ids()?, RESIDUAL)?;
        if config.embedding_scale != 1.0 {
            x.scale_in_place(config.embedding_scale)?;
        }
        let positions = steps.iter().map(Batch::positions).collect::<warpwave_tensor::Result<Vec<_>>>()?;
        let mut states = Vec::new();
        for (((shard, cache), step), positions) in self.shards.iter().zip(caches).zip(steps).zip(&positions) {
            let rope = shard.rope.at(positions)?;
            let rope_sliding = shard.rope_sliding.as_ref().map(|rope| rope.at(positions)).transpose()?;
            let x = x.to_device(&shard.device)?;
            let h = x.rms_norm_as(&shard.layers.first().ok_or(Error::NoLayers)?.attention_norm, epsilon, self.dtype)?;
            states.push(ShardState { shard, cache, step, rope, rope_sliding, x, h });
        }
        drop(x);
        for number in 0..config.layers {
            // Tensors are freed before the next are allocated: the peak is what a chunk costs.
            let partial = states.iter_mut().map(|state| self.attention(number, state)).collect::<Result<_>>()?;
            for (state, mut sum) in states.iter_mut().zip(all_reduce(partial)?) {
                let layer = &state.shard.layers[number];
                if let Some(norm) = &layer.attention_post_norm {
                    sum = sum.rms_norm(norm, epsilon)?;
                }
                state.h = state.x.add_rms_norm(&sum, &layer.ffn_norm, epsilon, self.dtype)?;
            }
            let partial = states.iter().map(|state| self.feed_forward(number, state)).collect::<Result<_>>()?;
            for (state, mut sum) in states.iter_mut().zip(all_reduce(partial)?) {
                if let Some(norm) = &state.shard.layers[number].ffn_post_norm {
                    sum = sum.rms_norm(norm, epsilon)?;
                }
                let next = state.shard.layers.get(number + 1).map_or(&state.shard.norm, |layer| &layer.attention_norm);
                state.h = state.x.add_rms_norm(&sum, next, epsilon, self.dtype)?;
            }
        }
        let mut parts = Vec::new();
        for ShardState { shard, step, h, .. } in states {
            let Some(output) = &shard.output else { continue };
            let all = logits == Logits::All || step.tokens() == step.sequences();
            let h = if all { h } else { h.embedding(&step.last_tokens()?)? };
            parts.push(self.linear(output, &h, DType::F32)?.to_device(self.device())?);
        }
        let mut logits = Tensor::cat(&parts, 1)?;
        // A shared tensor would be copied before it is written in place.
        drop(parts);
        if let Some(cap) = config.logit_softcap {
            logits.soft_cap_in_place(cap)?;
        }
        Ok(logits)
    }

    fn linear(&self, linear: &Linear, x: &Tensor, to: DType) -> Result<Tensor> {
        Ok(linear.forward(x, to, self.precision)?)
    }

    /// A device's partial sum of a layer's attention block.
    fn attention(&self, number: usize, state: &mut ShardState<'_>) -> Result<Tensor> {
        let heads = self.attend(number, state)?;
        self.linear(&state.shard.layers[number].attention_out, &heads, RESIDUAL)
    }

    fn attend(&self, number: usize, state: &mut ShardState<'_>) -> Result<Tensor> {
        let ShardState { shard, cache, step, rope, rope_sliding, h, .. } = state;
        let layer = &shard.layers[number];
        let Config { heads, kv_heads, head_dim, .. } = shard.config;
        let rope = rope_sliding.as_ref().filter(|_| layer.sliding).unwrap_or(rope);
        let qkv = self.linear(&layer.qkv, h, self.dtype)?.reshape(&[h.size(0), heads + 2 * kv_heads, head_dim])?;
        let (mut q, mut k) = (qkv.narrow(1, 0, heads)?, qkv.narrow(1, heads, kv_heads)?);
        if let Some((q_norm, k_norm)) = &layer.qk_norms {
            q = q.rms_norm(q_norm, self.config.norm_eps)?;
            k = k.rms_norm(k_norm, self.config.norm_eps)?;
        }
        let q = cache.rope_append(number, rope, q, k, &qkv.narrow(1, heads + kv_heads, kv_heads)?, step)?;
        drop(qkv);
        let window = self.config.sliding_window.filter(|_| layer.sliding);
        let params =
            AttentionParams { scale: self.config.attention_scale, window, soft_cap: self.config.attention_softcap, dtype: self.dtype };
        Ok(cache.attend(number, &q, step, &params)?)
    }

    /// A device's partial sum of a layer's feed-forward.
    fn feed_forward(&self, number: usize, state: &ShardState<'_>) -> Result<Tensor> {
        let (layer, h) = (&state.shard.layers[number], &state.h);
        let gated = self.linear(&layer.gate_up, h, gate_type(self.dtype, h.size(0)))?.glu(self.config.glu, self.dtype)?;
        self.linear(&layer.down, &gated, RESIDUAL)
    }
}

/// Sums the devices' partial results, on each device. The order of the sum is the same everywhere, and so is the result.
fn all_reduce(partial: Vec<Tensor>) -> Result<Vec<Tensor>> {
    if let [_] = partial[..] {
        return Ok(partial);
    }
    // All copies are queued before the first sum waits for one.
    let there = |device: &Device| partial.iter().map(|term| term.to_device(device)).collect::<warpwave_tensor::Result<Vec<_>>>();
    let copies = partial.iter().map(|term| there(term.device())).collect::<warpwave_tensor::Result<Vec<_>>>()?;
    let sum = |terms: Vec<Tensor>| {
        let mut sum = terms[0].clone();
        for term in &terms[1..] {
            sum = sum.binary(Binary::Add, term)?;
        }
        Ok(sum)
    };
    copies.into_iter().map(sum).collect()
}

fn device_names<'a>(devices: impl IntoIterator<Item = &'a Device>) -> String {
    devices.into_iter().map(Device::name).collect::<Vec<_>>().join(",")
}
