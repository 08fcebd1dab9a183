//! A decoder-only transformer on one or several devices.

mod load;

use warpwave_kernels::{Binary, DType, Glu, Routing, Unary, Window};
use warpwave_tensor::{
    AttentionInputs, AttentionParams, Batch, Device, Experts, KvCache, KvCacheType, Linear, Matrix, Precision, Rope, RopePositions, Tensor,
};
use warpwave_weights::Kind;

use crate::checkpoint::{StepMemory, kv_cache_type};
use crate::config::{Config, MlaConfig};
use crate::error::{Error, Result};

/// Element type of the residual stream.
const RESIDUAL: DType = DType::F32;

/// The largest step whose feed-forward activations stay `f32`: for so few tokens their bytes hardly matter.
pub(crate) const SMALL_STEP: usize = 64;

/// The type of gate and up projections in a step of `tokens`: `f32`, except in large steps, where bytes matter.
fn gate_type(dtype: DType, tokens: usize) -> DType {
    if tokens <= SMALL_STEP { RESIDUAL } else { dtype }
}

/// The activation of a gated unit.
fn activation(glu: Glu) -> Unary {
    match glu {
        Glu::Gelu => Unary::Gelu,
        Glu::GeluErf => Unary::GeluErf,
        Glu::Relu => Unary::Relu,
        Glu::Sigmoid => Unary::Sigmoid,
        _ => Unary::Silu,
    }
}

/// Which logits a step returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Logits {
    /// Those after the last token of each sequence.
    Last,
    /// Those after every token.
    All,
    /// None, but the hidden states after the last norm, of every token.
    Hidden,
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
    norm: Option<Norm>,
    /// Tied to the embedding, it is on the first device only.
    output: Option<Linear>,
    rope: Rope,
    rope_sliding: Option<Rope>,
}

struct Layer {
    attention_norm: Option<Norm>,
    projections: Projections,
    /// Norms of Q and K: per head, or over all heads.
    qk_norms: Option<(Tensor, Tensor)>,
    /// Attention sinks, one per head.
    sinks: Option<Tensor>,
    attention_out: Linear,
    attention_post_norm: Option<Norm>,
    ffn_norm: Option<Norm>,
    feed_forward: FeedForward,
    ffn_post_norm: Option<Norm>,
    sliding: bool,
}

/// The projections of queries, keys and values.
#[derive(Clone)]
enum Projections {
    Qkv(Linear),
    Latent(Box<Latent>),
}

/// Latent attention: see [`MlaConfig`].
#[derive(Clone)]
struct Latent {
    sizes: MlaConfig,
    /// The projection to the queries' latent vector, and its norm.
    q_a: Option<(Linear, Tensor)>,
    q_b: Linear,
    /// To the latent vector of keys and values, and the rotated key that all heads share.
    kv_a: Linear,
    kv_norm: Tensor,
    kv_b: Linear,
}

/// The feed-forward of a layer.
#[derive(Clone)]
enum FeedForward {
    Dense(Box<Mlp>),
    Experts(Box<Moe>),
}

/// A feed-forward that all tokens use.
#[derive(Clone)]
struct Mlp {
    /// Gate and up projections, or up projections alone.
    gate_up: Linear,
    down: Linear,
}

/// Experts of which each token uses some.
#[derive(Clone)]
struct Moe {
    routing: Routing,
    router: Linear,
    /// Added to the scores for the choice.
    choice_bias: Option<Tensor>,
    gate_up: Experts,
    down: Experts,
    /// The shared expert, and its gate.
    shared: Option<(Mlp, Option<Linear>)>,
}

/// A norm of the residual stream, or of what is added to it.
#[derive(Clone)]
struct Norm {
    weight: Tensor,
    /// LayerNorm has a bias, an RMS norm has none.
    bias: Option<Tensor>,
    epsilon: f32,
}

impl Norm {
    fn forward(&self, x: &Tensor, to: DType) -> Result<Tensor> {
        Ok(match &self.bias {
            None => x.rms_norm_as(&self.weight, self.epsilon, to)?,
            Some(bias) => x.layer_norm(&self.weight, bias, self.epsilon)?.cast(to)?,
        })
    }
}

impl Projections {
    fn bytes(&self) -> usize {
        match self {
            Projections::Qkv(qkv) => qkv.bytes(),
            Projections::Latent(latent) => {
                let Latent { q_a, q_b, kv_a, kv_b, .. } = &**latent;
                q_a.as_ref().map_or(0, |(q_a, _)| q_a.bytes()) + q_b.bytes() + kv_a.bytes() + kv_b.bytes()
            }
        }
    }
}

impl FeedForward {
    /// The bytes of weights that a token reads.
    fn bytes_per_token(&self) -> usize {
        match self {
            FeedForward::Experts(experts) => {
                let Moe { routing, router, gate_up, down, shared, .. } = &**experts;
                let of_experts = (gate_up.bytes() + down.bytes()) / gate_up.len().max(1) * routing.used;
                of_experts + router.bytes() + shared.as_ref().map_or(0, |(mlp, _)| mlp.bytes())
            }
            FeedForward::Dense(mlp) => mlp.bytes(),
        }
    }
}

impl Mlp {
    fn bytes(&self) -> usize {
        self.gate_up.bytes() + self.down.bytes()
    }
}

/// Adds an update to the residual stream, and returns the input of the next block: normalized, if that has a norm.
fn add_and_normalize(x: &mut Tensor, update: &Tensor, norm: Option<&Norm>, to: DType) -> Result<Tensor> {
    match norm {
        Some(Norm { weight, bias: None, epsilon }) => Ok(x.add_rms_norm(update, weight, *epsilon, to)?),
        norm => {
            x.add_in_place(update)?;
            normalized(x, norm, to)
        }
    }
}

fn normalized(x: &Tensor, norm: Option<&Norm>, to: DType) -> Result<Tensor> {
    match norm {
        Some(norm) => norm.forward(x, to),
        None => Ok(x.cast(to)?),
    }
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

impl Shard {
    /// The norm before a layer, or after the last one.
    fn norm_before(&self, number: usize) -> Option<&Norm> {
        self.layers.get(number).map_or(self.norm.as_ref(), |layer| layer.attention_norm.as_ref())
    }
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

    /// Returns the default type of the KV cache.
    pub fn kv_cache_type(&self) -> KvCacheType {
        kv_cache_type(self.weights, self.precision, !self.device().is_cpu())
    }

    /// Bytes of a token in the KV cache of one of the devices.
    pub(crate) fn kv_bytes_per_token(&self, number: usize, kind: KvCacheType) -> usize {
        let config = &self.shards[number].config;
        KvCache::bytes_per_token(kind, config.layers, config.kv_heads, config.head_dim)
    }

    /// Creates the KV cache of one of the devices.
    pub(crate) fn new_cache(&self, number: usize, kind: KvCacheType, blocks: usize) -> Result<KvCache> {
        let Shard { device, config, .. } = &self.shards[number];
        Ok(KvCache::new(device, kind, config.layers, blocks, config.kv_heads, config.head_dim)?)
    }

    /// Bytes that the pool of one of the GPUs should hold for steps of `tokens`.
    pub(crate) fn step_bytes(&self, number: usize, tokens: usize, kv_cache: KvCacheType) -> Result<u64> {
        let Some(meta) = &self.meta else { return Ok(0) };
        Ok(StepMemory::count(meta, tokens, kv_cache)?[number].reserved(&self.shards[number].device))
    }

    /// Returns the bytes of the weights that a decode step reads. Of the embedding that is one row, which is not counted.
    pub fn bytes_per_token(&self) -> usize {
        let layer = |layer: &Layer| layer.projections.bytes() + layer.attention_out.bytes() + layer.feed_forward.bytes_per_token();
        let shard = |shard: &Shard| shard.layers.iter().map(layer).sum::<usize>() + shard.output.as_ref().map_or(0, Linear::bytes);
        self.shards.iter().map(shard).sum()
    }

    /// Computes logits, `f32` of (rows, vocabulary), on the first device. `caches` and `steps` have one entry per device.
    pub(crate) fn forward(&self, caches: &mut [KvCache], steps: &[Batch], logits: Logits) -> Result<Tensor> {
        let config = &self.config;
        if config.layers == 0 {
            return Err(Error::NoLayers);
        }
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
            let h = normalized(&x, shard.norm_before(0), self.dtype)?;
            states.push(ShardState { shard, cache, step, rope, rope_sliding, x, h });
        }
        drop(x);
        for number in 0..config.layers {
            // Tensors are freed before the next are allocated: the peak is what a chunk costs.
            if config.parallel {
                let partial = states.iter_mut().map(|state| self.parallel_blocks(number, state)).collect::<Result<_>>()?;
                self.add(&mut states, partial, |_| None, |shard| shard.norm_before(number + 1))?;
                continue;
            }
            let partial = states.iter_mut().map(|state| self.attention(number, state)).collect::<Result<_>>()?;
            self.add(
                &mut states,
                partial,
                |shard| shard.layers[number].attention_post_norm.as_ref(),
                |shard| shard.layers[number].ffn_norm.as_ref(),
            )?;
            let partial = states.iter().map(|state| self.feed_forward(number, state)).collect::<Result<_>>()?;
            self.add(&mut states, partial, |shard| shard.layers[number].ffn_post_norm.as_ref(), |shard| shard.norm_before(number + 1))?;
        }
        if logits == Logits::Hidden {
            // All devices have the same.
            return states.into_iter().next().map(|state| state.h).ok_or(Error::NoLayers);
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
        if config.logit_scale != 1.0 {
            logits.scale_in_place(config.logit_scale)?;
        }
        if let Some(cap) = config.logit_softcap {
            logits.soft_cap_in_place(cap)?;
        }
        Ok(logits)
    }

    fn linear(&self, linear: &Linear, x: &Tensor, to: DType) -> Result<Tensor> {
        Ok(linear.forward(x, to, self.precision)?)
    }

    /// Adds the devices' partial sums of a block to the residual stream, and normalizes it for the next block. `post` and `next` are the norms
    /// after this block and before the next.
    fn add(
        &self,
        states: &mut [ShardState<'_>],
        partial: Vec<Tensor>,
        post: impl Fn(&Shard) -> Option<&Norm>,
        next: impl Fn(&Shard) -> Option<&Norm>,
    ) -> Result<()> {
        for (state, mut sum) in states.iter_mut().zip(all_reduce(partial)?) {
            if let Some(norm) = post(state.shard) {
                sum = norm.forward(&sum, RESIDUAL)?;
            }
            if self.config.residual_scale != 1.0 {
                sum.scale_in_place(self.config.residual_scale)?;
            }
            state.h = add_and_normalize(&mut state.x, &sum, next(state.shard), self.dtype)?;
        }
        Ok(())
    }

    /// A device's partial sum of a layer whose attention and feed-forward are parallel.
    fn parallel_blocks(&self, number: usize, state: &mut ShardState<'_>) -> Result<Tensor> {
        let mut sum = self.attention(number, state)?;
        // Without a norm of its own, the feed-forward has attention's input.
        if let Some(norm) = &state.shard.layers[number].ffn_norm {
            state.h = norm.forward(&state.x, self.dtype)?;
        }
        sum.add_in_place(&self.feed_forward(number, state)?)?;
        Ok(sum)
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
        let window = self.config.sliding_window.filter(|_| layer.sliding).map_or(Window::CAUSAL, Window::sliding);
        let params =
            AttentionParams { scale: self.config.attention_scale, window, soft_cap: self.config.attention_softcap, dtype: self.dtype };
        let qkv = match &layer.projections {
            Projections::Qkv(qkv) => qkv,
            Projections::Latent(latent) => {
                let [q, k, v] = self.latent(latent, h)?;
                let q = cache.rope_append(number, rope, q, k, &v, step)?;
                drop(v);
                let values = latent.sizes.value_dim;
                let out = cache.attend(number, &q, step, &params)?.reshape(&[h.size(0), heads, head_dim])?;
                return Ok(out.narrow(2, 0, values)?.reshape(&[h.size(0), heads * values])?);
            }
        };
        let rows = self.linear(qkv, h, self.dtype)?;
        let qkv = rows.reshape(&[h.size(0), heads + 2 * kv_heads, head_dim])?;
        let (mut q, mut k) = (qkv.narrow(1, 0, heads)?, qkv.narrow(1, heads, kv_heads)?);
        if let Some((q_norm, k_norm)) = &layer.qk_norms {
            let norm = |heads: &Tensor, start: usize, weight: &Tensor| match weight.len() == head_dim {
                true => heads.rms_norm(weight, self.config.norm_eps),
                false => rows.narrow(1, start, weight.len())?.rms_norm(weight, self.config.norm_eps)?.reshape(heads.shape()),
            };
            (q, k) = (norm(&q, 0, q_norm)?, norm(&k, heads * head_dim, k_norm)?);
        }
        drop(rows);
        let q = cache.rope_append(number, rope, q, k, &qkv.narrow(1, heads + kv_heads, kv_heads)?, step)?;
        drop(qkv);
        let inputs = AttentionInputs { sinks: layer.sinks.as_ref(), ..AttentionInputs::default() };
        Ok(cache.attend_with(number, &q, step, &params, &inputs)?)
    }

    /// Queries, keys and values of latent attention, (tokens, heads, head_dim) each: keys expanded, values padded with zeros. The rotated
    /// elements come first, as [`KvCache`] wants them; the order of elements does not change the scores.
    fn latent(&self, latent: &Latent, h: &Tensor) -> Result<[Tensor; 3]> {
        let Config { heads, head_dim, norm_eps, .. } = self.config;
        let MlaConfig { kv_lora, value_dim, .. } = latent.sizes;
        let (tokens, rotated) = (h.size(0), self.config.rope.rotary_dim);
        let keys = head_dim - rotated;
        let q = match &latent.q_a {
            Some((q_a, norm)) => self.linear(&latent.q_b, &self.linear(q_a, h, self.dtype)?.rms_norm(norm, norm_eps)?, self.dtype)?,
            None => self.linear(&latent.q_b, h, self.dtype)?,
        };
        let q = q.reshape(&[tokens, heads, head_dim])?;
        let q = Tensor::cat(&[q.narrow(2, keys, rotated)?, q.narrow(2, 0, keys)?], 2)?;
        let kv = self.linear(&latent.kv_a, h, self.dtype)?;
        let shared =
            kv.narrow(1, kv_lora, rotated)?.contiguous()?.reshape(&[tokens, 1, rotated])?.broadcast_to(&[tokens, heads, rotated])?;
        let kv = self.linear(&latent.kv_b, &kv.narrow(1, 0, kv_lora)?.rms_norm(&latent.kv_norm, norm_eps)?, self.dtype)?;
        let kv = kv.reshape(&[tokens, heads, keys + value_dim])?;
        let k = Tensor::cat(&[shared, kv.narrow(2, 0, keys)?], 2)?;
        let padding = Tensor::zeros(self.dtype, &[tokens, heads, head_dim - value_dim], h.device())?;
        let v = Tensor::cat(&[kv.narrow(2, keys, value_dim)?, padding], 2)?;
        Ok([q, k, v])
    }

    /// A device's partial sum of a layer's feed-forward.
    fn feed_forward(&self, number: usize, state: &ShardState<'_>) -> Result<Tensor> {
        let h = &state.h;
        match &state.shard.layers[number].feed_forward {
            FeedForward::Experts(experts) => self.experts(experts, h),
            FeedForward::Dense(mlp) => self.mlp(mlp, h),
        }
    }

    fn mlp(&self, mlp: &Mlp, h: &Tensor) -> Result<Tensor> {
        let inner = self.activated(self.linear(&mlp.gate_up, h, gate_type(self.dtype, h.size(0)))?)?;
        self.linear(&mlp.down, &inner, RESIDUAL)
    }

    /// The activation of gate and up projections.
    fn activated(&self, up: Tensor) -> Result<Tensor> {
        match self.config.gated {
            true => Ok(up.glu(self.config.glu, self.dtype)?),
            false => Ok(up.unary(activation(self.config.glu))?.cast(self.dtype)?),
        }
    }

    fn experts(&self, experts: &Moe, h: &Tensor) -> Result<Tensor> {
        let choice = self.linear(&experts.router, h, DType::F32)?.route(&experts.routing, experts.choice_bias.as_ref())?;
        let to = gate_type(self.dtype, h.size(0));
        let inner = self.activated(experts.gate_up.forward(h, &choice, to, self.precision)?)?;
        let results = experts.down.forward(&inner, &choice, RESIDUAL, self.precision)?;
        drop(inner);
        let mut sum = choice.combine(&results)?;
        drop(results);
        if let Some((mlp, gate)) = &experts.shared {
            let mut shared = self.mlp(mlp, h)?;
            if let Some(gate) = gate {
                shared = shared.mul(&self.linear(gate, h, RESIDUAL)?.sigmoid()?)?;
            }
            sum.add_in_place(&shared)?;
        }
        Ok(sum)
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
