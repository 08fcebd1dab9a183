//! A decoder of any of the families: weights on a device, or divided among several, and what becomes of tokens.

use std::collections::HashMap;

use warpwave_kernels::{Binary, DType};
use warpwave_tensor::{AttentionParams, Batch, Device, KvCache, Linear, Matrix, Precision, Rope, RopePositions, Tensor, check_host_memory};
use warpwave_weights::{Kind, TensorInfo};

use crate::checkpoint::{Checkpoint, Moments, Plan, Weight, cache_type};
use crate::config::{Config, RopeConfig};
use crate::error::{Error, Result};
use crate::share::Share;

/// The type of what flows between the layers.
pub(crate) const FLOW: DType = DType::F32;

/// Tokens whose bytes hardly count.
pub(crate) const FEW: usize = 64;

/// The type of gates and what they are multiplied with, for so many tokens: not rounded unless there are so many that their bytes count.
pub(crate) fn gates(dtype: DType, tokens: usize) -> DType {
    if tokens <= FEW { FLOW } else { dtype }
}

/// Which logits are wanted of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Those behind the last token of each sequence.
    Last,
    /// Those behind every token.
    All,
}

/// How a model is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadOptions {
    /// What matrices become; as they are in the file without it.
    pub matrices: Option<Kind>,
    /// How exactly products with quantised weights are computed.
    pub precision: Precision,
    /// Tokens that a sequence will have at most, which some models stretch their angles by; the model's own number without it.
    pub context: Option<usize>,
}

impl Default for LoadOptions {
    fn default() -> Self {
        LoadOptions { matrices: None, precision: Precision::Fast, context: None }
    }
}

/// A model on a device, or divided among several.
pub struct Model {
    config: Config,
    /// The type of what is multiplied with matrices. What flows between the layers and is added to is `f32`: each layer's sum rounded to
    /// 16 bits would make a token depend on the order of sums.
    dtype: DType,
    precision: Precision,
    /// The type of the matrices, as far as computing with them goes.
    matrices: Kind,
    /// On the first device.
    embedding: Matrix,
    shards: Vec<Shard>,
}

/// What a device has of a model.
struct Shard {
    device: Device,
    /// With its own heads and elements in place of all.
    config: Config,
    layers: Vec<Layer>,
    norm: Tensor,
    /// Where the output is the embedding the first device has it alone.
    output: Option<Linear>,
    rope: Rope,
    rope_windowed: Option<Rope>,
}

struct Layer {
    attention_norm: Tensor,
    qkv: Linear,
    /// Norms of each head of queries and of keys.
    head_norms: Option<(Tensor, Tensor)>,
    attention_out: Linear,
    attention_post_norm: Option<Tensor>,
    feed_norm: Tensor,
    gate_up: Linear,
    down: Linear,
    feed_post_norm: Option<Tensor>,
    windowed: bool,
}

/// Tokens on their way through the layers, on one device.
struct Flow<'a> {
    shard: &'a Shard,
    cache: &'a mut KvCache,
    step: &'a Batch,
    rope: RopePositions<'a>,
    windowed: Option<RopePositions<'a>>,
    x: Tensor,
    /// What the next products are computed from.
    h: Tensor,
}

/// Takes weights of a file to devices.
struct Loader<'a> {
    checkpoint: &'a Checkpoint,
    /// The weights as they will be.
    infos: HashMap<String, TensorInfo>,
    places: Vec<Place>,
    options: LoadOptions,
    dtype: DType,
    progress: &'a mut dyn FnMut(usize),
}

/// A device that weights go to.
struct Place {
    device: Device,
    share: Share,
    /// Bytes of weights that are still to come.
    rest: u64,
}

impl<'a> Loader<'a> {
    /// Counts the bytes of a weight that is read now.
    fn read(&mut self, name: &str) {
        let Some(info) = self.infos.get(name) else { return };
        for place in &mut self.places {
            let bytes = place.share.bytes(info);
            place.rest = place.rest.saturating_sub(bytes);
            (self.progress)(bytes as usize);
        }
    }

    /// A vector of a layer's numbers, on each device.
    fn vector(&mut self, name: &str, dtype: DType) -> Result<Vec<Tensor>> {
        let floats = self.checkpoint.numbers(name)?;
        self.read(name);
        let here = Tensor::new(&floats, &[floats.len()], &Device::Cpu)?.cast(dtype)?;
        self.places.iter().map(|place| place.at(name, here.to_device(&place.device))).collect()
    }

    fn optional_vector(&mut self, name: &str, dtype: DType) -> Result<Option<Vec<Tensor>>> {
        if self.checkpoint.has(name) { self.vector(name, dtype).map(Some) } else { Ok(None) }
    }

    /// Matrices whose products lie side by side: each device's part of them.
    fn linear(&mut self, names: &[String]) -> Result<Vec<Linear>> {
        let mut weights = Vec::new();
        let mut biases = Vec::new();
        for name in names {
            let (name, bias) = (format!("{name}.weight"), format!("{name}.bias"));
            weights.push((self.weight(&name)?, name));
            if self.checkpoint.has(&bias) {
                self.read(&bias);
                biases.push((self.checkpoint.numbers(&bias)?, bias));
            }
        }
        self.places.iter().map(|place| place.linear(&weights, &biases, self.dtype)).collect()
    }

    /// A weight of the type that was asked for, still on the host.
    fn weight(&mut self, name: &str) -> Result<Weight<'a>> {
        // What is not read in place is a copy of about this size.
        let size = self.infos.get(name).and_then(|info| info.kind.bytes(&info.shape).ok()).unwrap_or(0);
        self.read(name);
        let rest = self.places.iter().map(|place| place.rest).sum();
        check_host_memory(size).map_err(|error| Error::from(error).at(|| format!("the weight {name}"), rest))?;
        Ok(self.checkpoint.get_as(name, self.options.matrices)?)
    }
}

impl Place {
    /// Says what memory was missing for.
    fn at<T>(&self, name: &str, taken: warpwave_tensor::Result<T>) -> Result<T> {
        taken.map_err(|error| Error::from(error).at(|| format!("the weight {name}"), self.rest))
    }

    /// The device's part of matrices: one matrix if they are of one type, for one product is quicker than several.
    fn linear(&self, weights: &[(Weight<'_>, String)], biases: &[(Vec<f32>, String)], dtype: DType) -> Result<Linear> {
        let name = weights.iter().map(|(_, name)| &**name).collect::<Vec<_>>().join(" and ");
        let ask = |bytes: usize| self.at(&name, check_host_memory(bytes));
        let cut = |(weight, name): &'_ (Weight<'_>, String)| self.share.cut(name, weight.shape[0]);
        let parts = weights.iter().map(|weight| cut(weight).of(&weight.0, ask)).collect::<Result<Vec<_>>>()?;
        let same = parts.windows(2).all(|pair| pair[0].kind == pair[1].kind);
        let parts = if same && parts.len() > 1 {
            let rows = parts.iter().map(|part| part.shape[0]).sum();
            let size = parts.iter().map(|part| part.bytes.len()).sum();
            ask(size)?;
            let mut bytes = Vec::with_capacity(size);
            parts.iter().for_each(|part| bytes.extend_from_slice(&part.bytes));
            vec![self.matrix(&name, parts[0].kind, &bytes, rows, parts[0].shape[1])?]
        } else {
            let matrix = |part: &Weight<'_>| self.matrix(&name, part.kind, &part.bytes, part.shape[0], part.shape[1]);
            parts.iter().map(matrix).collect::<Result<_>>()?
        };
        let biases: Vec<f32> = biases.iter().flat_map(|(bias, name)| self.share.cut(name, bias.len()).of_numbers(bias)).collect();
        let bias = match biases.len() {
            0 => None,
            n => Some(Tensor::new(&biases, &[n], &Device::Cpu)?.cast(dtype)?.to_device(&self.device)?),
        };
        Ok(Linear::new(parts, bias)?)
    }

    fn matrix(&self, name: &str, kind: Kind, bytes: &[u8], rows: usize, columns: usize) -> Result<Matrix> {
        if self.device.is_cpu() {
            self.at(name, check_host_memory(bytes.len()))?;
        }
        let matrix = match kind {
            Kind::Plain(dtype) => Tensor::from_bytes(bytes, dtype, &[rows, columns], &self.device).and_then(Matrix::plain),
            Kind::Quant(quant) => Matrix::quantized(quant, bytes, rows, columns, &self.device),
        };
        self.at(name, matrix)
    }

    fn rope(&self, rope: &RopeConfig, config: &Config, context: usize) -> Result<Rope> {
        let (frequencies, factor) = rope.frequencies(context);
        let frequencies = Tensor::new(&frequencies, &[frequencies.len()], &self.device)?;
        Ok(Rope { pairs: config.pairs, frequencies, factor })
    }
}

impl Model {
    /// Loads a model to a device. `progress` hears of the bytes that were read, piece by piece. If it fails, all memory goes back.
    pub fn load(checkpoint: &Checkpoint, device: &Device, options: LoadOptions, progress: &mut dyn FnMut(usize)) -> Result<Model> {
        Model::load_divided(checkpoint, std::slice::from_ref(device), options, progress)
    }

    /// The same, divided among devices: each has some heads and a part of each feed-forward, and the terms that they compute are added. GPUs
    /// may be of different kinds and vendors.
    pub fn load_divided(
        checkpoint: &Checkpoint,
        devices: &[Device],
        options: LoadOptions,
        progress: &mut dyn FnMut(usize),
    ) -> Result<Model> {
        let gpus = devices.iter().filter_map(|device| if let Device::Gpu(gpu) = device { Some(gpu.stream.device()) } else { None });
        for (one, other) in gpus.clone().flat_map(|one| gpus.clone().map(move |other| (one, other))).filter(|(one, other)| one != other) {
            // Copies go straight where they can; where not they go through the host.
            let _ = one.enable_access(other);
        }
        let loaded = Model::load_parts(checkpoint, devices, options, progress);
        if loaded.is_err() {
            // The first failure counts, not one to clean up behind it.
            devices.iter().for_each(|device| _ = device.trim());
        }
        loaded
    }

    fn load_parts(checkpoint: &Checkpoint, devices: &[Device], options: LoadOptions, progress: &mut dyn FnMut(usize)) -> Result<Model> {
        let config = checkpoint.config().clone();
        let first = devices.first().filter(|first| devices.iter().all(|device| device.is_cpu() == first.is_cpu()));
        let first = first.ok_or_else(|| Error::Devices(names(devices)))?;
        // Quantised weights are multiplied with f32; plain ones of one type with that, which on a CPU is f32 again.
        let dtype = checkpoint.multiplied(options.matrices, first)?;
        let infos = checkpoint.converted(options.matrices)?;
        let place = |(share, device): (Share, &Device)| {
            let rest = infos.iter().map(|info| share.bytes(info)).sum();
            Place { device: device.clone(), share, rest }
        };
        let places = Share::divide(&config, &infos, devices.len())?.into_iter().zip(devices).map(place).collect();
        let infos = infos.into_iter().map(|info| (info.name.clone(), info)).collect();
        let mut loader = Loader { checkpoint, infos, places, options, dtype, progress };
        let name = "token_embd.weight";
        let embedding = loader.weight(name)?;
        let embedding = loader.places[0].matrix(name, embedding.kind, &embedding.bytes, embedding.shape[0], embedding.shape[1])?;
        let output = match checkpoint.has("output.weight") {
            true => loader.linear(&["output".to_owned()])?,
            false => vec![Linear::new(vec![embedding.clone()], None)?],
        };
        let mut output = output.into_iter();
        let norm = loader.vector("output_norm.weight", FLOW)?;
        let context = options.context.unwrap_or(config.context);
        let mut shards = Vec::new();
        for (place, norm) in loader.places.iter().zip(norm) {
            let rope = |rope: &RopeConfig| place.rope(rope, &config, context);
            let (rope, rope_windowed) = (rope(&config.rope)?, config.rope_windowed.as_ref().map(rope).transpose()?);
            let (device, config) = (place.device.clone(), place.share.config.clone());
            shards.push(Shard { device, config, layers: Vec::new(), norm, output: output.next(), rope, rope_windowed });
        }
        for layer in 0..config.layers {
            let layers = Layer::load(&mut loader, layer, config.windowed[layer])?;
            shards.iter_mut().zip(layers).for_each(|(shard, layer)| shard.layers.push(layer));
        }
        let (precision, matrices) = (options.precision, checkpoint.main_kind(options.matrices)?);
        Ok(Model { config, dtype, precision, matrices, embedding, shards })
    }

    /// What it is.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Where it is; the first of its devices, which has the logits.
    pub fn device(&self) -> &Device {
        &self.shards[0].device
    }

    /// All devices that have a part of it.
    pub fn devices(&self) -> impl ExactSizeIterator<Item = &Device> {
        self.shards.iter().map(|shard| &shard.device)
    }

    /// The names of its devices.
    pub fn place(&self) -> String {
        names(self.devices())
    }

    /// The type of keys and values where none is asked for.
    pub fn cache_type(&self) -> DType {
        cache_type(self.matrices, self.precision, !self.device().is_cpu())
    }

    /// Bytes of the keys and values of a token, on one of the devices.
    pub(crate) fn kv_bytes(&self, number: usize, dtype: DType) -> usize {
        let config = &self.shards[number].config;
        KvCache::bytes_per_token(dtype, config.layers, config.kv_heads, config.head_dim)
    }

    /// A cache on one of the devices.
    pub(crate) fn cache_on(&self, number: usize, dtype: DType, blocks: usize) -> Result<KvCache> {
        let Shard { device, config, .. } = &self.shards[number];
        Ok(KvCache::new(device, dtype, config.layers, blocks, config.kv_heads, config.head_dim)?)
    }

    /// Bytes that the pool of one of the GPUs should hold for steps of so many tokens, with keys and values of a type.
    pub(crate) fn step_bytes(&self, number: usize, tokens: usize, cache: DType) -> u64 {
        let (devices, precision) = (self.devices().cloned().collect(), self.precision);
        let plan = Plan { devices, matrices: None, precision, cache: Some(cache), context: tokens, chunk: tokens };
        let Shard { device, config, .. } = &self.shards[number];
        Moments::of(config, self.matrices, device, &plan).apart()
    }

    /// Bytes of the matrices that a token's computation reads; of the embedding it reads a row.
    pub fn bytes_per_token(&self) -> usize {
        let layer = |layer: &Layer| layer.qkv.bytes() + layer.attention_out.bytes() + layer.gate_up.bytes() + layer.down.bytes();
        let shard = |shard: &Shard| shard.layers.iter().map(layer).sum::<usize>() + shard.output.as_ref().map_or(0, Linear::bytes);
        self.shards.iter().map(shard).sum()
    }

    /// The logits, `f32` of (wanted, vocabulary), on the first device. Each device has its cache and the step's numbers.
    pub(crate) fn forward(&self, caches: &mut [KvCache], steps: &[Batch], wanted: Wanted) -> Result<Tensor> {
        let (config, epsilon) = (&self.config, self.config.norm_eps);
        assert!(caches.len() == self.shards.len() && steps.len() == self.shards.len(), "one cache and one step for each device");
        let mut x = self.embedding.embedding(&steps[0].token_ids()?, FLOW)?;
        if config.embedding_scale != 1.0 {
            x.scale_in_place(config.embedding_scale)?;
        }
        let positions = steps.iter().map(Batch::positions).collect::<warpwave_tensor::Result<Vec<_>>>()?;
        let mut flows = Vec::new();
        for (((shard, cache), step), positions) in self.shards.iter().zip(caches).zip(steps).zip(&positions) {
            let (rope, windowed) = (shard.rope.at(positions)?, shard.rope_windowed.as_ref().map(|rope| rope.at(positions)).transpose()?);
            let x = x.to_device(&shard.device)?;
            let h = x.rms_norm_as(&shard.layers.first().ok_or(Error::NoLayers)?.attention_norm, epsilon, self.dtype)?;
            flows.push(Flow { shard, cache, step, rope, windowed, x, h });
        }
        drop(x);
        for number in 0..config.layers {
            // What is no longer needed goes before more is taken: the fullest moment is what a prompt's piece costs.
            let found = flows.iter_mut().map(|flow| self.attention(number, flow)).collect::<Result<_>>()?;
            for (flow, mut found) in flows.iter_mut().zip(summed(found)?) {
                let layer = &flow.shard.layers[number];
                if let Some(norm) = &layer.attention_post_norm {
                    found = found.rms_norm(norm, epsilon)?;
                }
                flow.h = flow.x.add_rms_norm(&found, &layer.feed_norm, epsilon, self.dtype)?;
            }
            let fed = flows.iter().map(|flow| self.feed_forward(number, flow)).collect::<Result<_>>()?;
            for (flow, mut fed) in flows.iter_mut().zip(summed(fed)?) {
                if let Some(norm) = &flow.shard.layers[number].feed_post_norm {
                    fed = fed.rms_norm(norm, epsilon)?;
                }
                let next = flow.shard.layers.get(number + 1).map_or(&flow.shard.norm, |layer| &layer.attention_norm);
                flow.h = flow.x.add_rms_norm(&fed, next, epsilon, self.dtype)?;
            }
        }
        let mut parts = Vec::new();
        for Flow { shard, step, h, .. } in flows {
            let Some(output) = &shard.output else { continue };
            let all = wanted == Wanted::All || step.tokens() == step.sequences();
            let h = if all { h } else { h.embedding(&step.last_tokens()?)? };
            parts.push(self.product(output, &h, DType::F32)?.to_device(self.device())?);
        }
        let mut logits = Tensor::cat(&parts, 1)?;
        // Or what is written to in place would be shared, and copied first.
        drop(parts);
        if let Some(cap) = config.logit_cap {
            logits.soft_cap_in_place(cap)?;
        }
        Ok(logits)
    }

    fn product(&self, linear: &Linear, x: &Tensor, to: DType) -> Result<Tensor> {
        Ok(linear.forward(x, to, self.precision)?)
    }

    /// A device's term of what a layer's attention adds.
    fn attention(&self, number: usize, flow: &mut Flow<'_>) -> Result<Tensor> {
        let found = self.attend(number, flow)?;
        self.product(&flow.shard.layers[number].attention_out, &found, FLOW)
    }

    fn attend(&self, number: usize, flow: &mut Flow<'_>) -> Result<Tensor> {
        let Flow { shard, cache, step, rope, windowed, h, .. } = flow;
        let layer = &shard.layers[number];
        let Config { heads, kv_heads, head_dim, .. } = shard.config;
        let rope = windowed.as_ref().filter(|_| layer.windowed).unwrap_or(rope);
        let qkv = self.product(&layer.qkv, h, self.dtype)?.reshape(&[h.size(0), heads + 2 * kv_heads, head_dim])?;
        let (mut queries, mut keys) = (qkv.narrow(1, 0, heads)?, qkv.narrow(1, heads, kv_heads)?);
        if let Some((query_norm, key_norm)) = &layer.head_norms {
            queries = queries.rms_norm(query_norm, self.config.norm_eps)?;
            keys = keys.rms_norm(key_norm, self.config.norm_eps)?;
        }
        let queries = cache.rope_append(number, rope, queries, keys, &qkv.narrow(1, heads + kv_heads, kv_heads)?, step)?;
        drop(qkv);
        let window = self.config.window.filter(|_| layer.windowed);
        let how = AttentionParams { scale: self.config.score_scale, window, soft_cap: self.config.score_cap, dtype: self.dtype };
        Ok(cache.attend(number, &queries, step, &how)?)
    }

    /// A device's term of what a layer's feed-forward adds.
    fn feed_forward(&self, number: usize, flow: &Flow<'_>) -> Result<Tensor> {
        let (layer, h) = (&flow.shard.layers[number], &flow.h);
        let gated = self.product(&layer.gate_up, h, gates(self.dtype, h.size(0)))?.glu(self.config.glu, self.dtype)?;
        self.product(&layer.down, &gated, FLOW)
    }
}

/// The sum of the devices' terms, on each of them: added in one order, so that it is the same everywhere.
fn summed(terms: Vec<Tensor>) -> Result<Vec<Tensor>> {
    if let [_] = terms[..] {
        return Ok(terms);
    }
    // All copies before the sums, not to wait for them one by one.
    let there = |device: &Device| terms.iter().map(|term| term.to_device(device)).collect::<warpwave_tensor::Result<Vec<_>>>();
    let copies = terms.iter().map(|term| there(term.device())).collect::<warpwave_tensor::Result<Vec<_>>>()?;
    let sum = |terms: Vec<Tensor>| {
        let mut sum = terms[0].clone();
        for term in &terms[1..] {
            sum = sum.binary(Binary::Add, term)?;
        }
        Ok(sum)
    };
    copies.into_iter().map(sum).collect()
}

fn names<'a>(devices: impl IntoIterator<Item = &'a Device>) -> String {
    devices.into_iter().map(Device::name).collect::<Vec<_>>().join(",")
}

impl Layer {
    /// A layer on each device.
    fn load(loader: &mut Loader<'_>, layer: usize, windowed: bool) -> Result<Vec<Layer>> {
        let (dtype, name) = (loader.dtype, |part: &str| format!("blk.{layer}.{part}"));
        let fused = |loader: &Loader<'_>, one: &str, parts: &[&str]| match loader.checkpoint.has(&name(&format!("{one}.weight"))) {
            true => vec![name(one)],
            false => parts.iter().map(|part| name(part)).collect::<Vec<_>>(),
        };
        let qkv = fused(loader, "attn_qkv", &["attn_q", "attn_k", "attn_v"]);
        let gate_up = match loader.checkpoint.has(&name("ffn_gate.weight")) {
            true => vec![name("ffn_gate"), name("ffn_up")],
            false => vec![name("ffn_up")],
        };
        let query_norm = loader.optional_vector(&name("attn_q_norm.weight"), dtype)?;
        let key_norm = loader.optional_vector(&name("attn_k_norm.weight"), dtype)?;
        let attention_norm = loader.vector(&name("attn_norm.weight"), FLOW)?;
        let qkv = loader.linear(&qkv)?;
        let attention_out = loader.linear(&[name("attn_output")])?;
        let attention_post_norm = loader.optional_vector(&name("post_attention_norm.weight"), FLOW)?;
        let feed_norm = loader.vector(&name("ffn_norm.weight"), FLOW)?;
        let gate_up = loader.linear(&gate_up)?;
        let down = loader.linear(&[name("ffn_down")])?;
        let feed_post_norm = loader.optional_vector(&name("post_ffw_norm.weight"), FLOW)?;
        let at = |vectors: &Option<Vec<Tensor>>, n: usize| vectors.as_ref().map(|vectors| vectors[n].clone());
        let on = |n: usize| Layer {
            attention_norm: attention_norm[n].clone(),
            qkv: qkv[n].clone(),
            head_norms: at(&query_norm, n).zip(at(&key_norm, n)),
            attention_out: attention_out[n].clone(),
            attention_post_norm: at(&attention_post_norm, n),
            feed_norm: feed_norm[n].clone(),
            gate_up: gate_up[n].clone(),
            down: down[n].clone(),
            feed_post_norm: at(&feed_post_norm, n),
            windowed,
        };
        Ok((0..loader.places.len()).map(on).collect())
    }
}
