//! A decoder of any of the families: weights on a device, and what becomes of tokens.

use warpwave_kernels::DType;
use warpwave_tensor::{Attend, Device, KvCache, Linear, Matrix, Precision, Rope, RopeAt, Step, Tensor, ask_for};
use warpwave_weights::Kind;

use crate::checkpoint::{Checkpoint, Moments, Plan, Weight, cache_type};
use crate::config::{Config, RopeConfig};
use crate::error::{Error, Result};

/// The type of what flows between the layers.
pub(crate) const FLOW: DType = DType::F32;

/// Tokens whose bytes hardly count.
pub(crate) const FEW: usize = 64;

/// The type of gates and what they are multiplied with, for so many tokens: not rounded unless there are so many that their bytes count.
pub(crate) fn gates(dtype: DType, tokens: usize) -> DType {
    if tokens <= FEW { FLOW } else { dtype }
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

/// A model on a device.
pub struct Model {
    config: Config,
    device: Device,
    /// The type of what is multiplied with matrices. What flows between the layers and is added to is `f32`: each layer's sum rounded to
    /// 16 bits would make a token depend on the order of sums.
    dtype: DType,
    precision: Precision,
    /// The type of the matrices, as far as computing with them goes.
    matrices: Kind,
    embedding: Matrix,
    layers: Vec<Layer>,
    norm: Tensor,
    output: Linear,
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

/// Takes weights of a file to a device.
struct Loader<'a> {
    checkpoint: &'a Checkpoint,
    device: &'a Device,
    options: LoadOptions,
    dtype: DType,
    progress: &'a mut dyn FnMut(usize),
    /// Bytes of weights that are still to come.
    rest: u64,
}

impl<'a> Loader<'a> {
    /// Counts bytes that were read.
    fn read(&mut self, bytes: usize) {
        self.rest = self.rest.saturating_sub(bytes as u64);
        (self.progress)(bytes);
    }

    /// Says what memory was missing for.
    fn at<T>(&self, name: &str, taken: Result<T>) -> Result<T> {
        taken.map_err(|error| error.at(self.device.name(), || format!("the weight {name}"), self.rest))
    }

    /// A vector of a layer's numbers.
    fn vector(&mut self, name: &str, dtype: DType) -> Result<Tensor> {
        let floats = self.checkpoint.numbers(name)?;
        self.read(floats.len() * 4);
        let here = Tensor::new(&floats, &[floats.len()], &Device::Cpu)?.cast(dtype)?;
        self.at(name, here.to_device(self.device).map_err(Error::from))
    }

    fn optional_vector(&mut self, name: &str, dtype: DType) -> Result<Option<Tensor>> {
        if self.checkpoint.has(name) { self.vector(name, dtype).map(Some) } else { Ok(None) }
    }

    /// Matrices whose products lie side by side: one if they are of one type, for one product is quicker than several.
    fn linear(&mut self, names: &[String]) -> Result<Linear> {
        let mut weights = Vec::new();
        let mut biases = Vec::new();
        let weight_names: Vec<String> = names.iter().map(|name| format!("{name}.weight")).collect();
        for (name, weight_name) in names.iter().zip(&weight_names) {
            weights.push(self.weight(weight_name)?);
            let bias = format!("{name}.bias");
            if self.checkpoint.has(&bias) {
                biases.extend(self.checkpoint.numbers(&bias)?);
            }
        }
        let name = weight_names.join(" and ");
        let same = weights.windows(2).all(|pair| pair[0].kind == pair[1].kind);
        let parts = if same && weights.len() > 1 {
            let rows = weights.iter().map(|weight| weight.shape[0]).sum();
            let size = weights.iter().map(|weight| weight.bytes.len()).sum();
            self.at(&name, ask_for(size).map_err(Error::from))?;
            let mut bytes = Vec::with_capacity(size);
            weights.iter().for_each(|weight| bytes.extend_from_slice(&weight.bytes));
            vec![self.matrix(&name, weights[0].kind, &bytes, rows, weights[0].shape[1])?]
        } else {
            let matrix = |weight: &Weight<'_>| self.matrix(&name, weight.kind, &weight.bytes, weight.shape[0], weight.shape[1]);
            weights.iter().map(matrix).collect::<Result<_>>()?
        };
        let bias = match biases.len() {
            0 => None,
            n => Some(Tensor::new(&biases, &[n], &Device::Cpu)?.cast(self.dtype)?.to_device(self.device)?),
        };
        Ok(Linear::new(parts, bias)?)
    }

    /// A weight of the type that was asked for, still on the host.
    fn weight(&mut self, name: &str) -> Result<Weight<'a>> {
        // What is not read in place is a copy of about this size.
        let size = self.checkpoint.size_as(name, self.options.matrices)?;
        self.read(size);
        self.at(name, ask_for(size).map_err(Error::from))?;
        Ok(self.checkpoint.get_as(name, self.options.matrices)?)
    }

    fn matrix(&self, name: &str, kind: Kind, bytes: &[u8], rows: usize, columns: usize) -> Result<Matrix> {
        if self.device.is_cpu() {
            self.at(name, ask_for(bytes.len()).map_err(Error::from))?;
        }
        let matrix = match kind {
            Kind::Plain(dtype) => Tensor::from_bytes(bytes, dtype, &[rows, columns], self.device).and_then(Matrix::plain),
            Kind::Quant(quant) => Matrix::quantised(quant, bytes, rows, columns, self.device),
        };
        self.at(name, matrix.map_err(Error::from))
    }

    fn rope(&self, rope: &RopeConfig, config: &Config, context: usize) -> Result<Rope> {
        let (frequencies, factor) = rope.frequencies(context);
        let frequencies = Tensor::new(&frequencies, &[frequencies.len()], self.device)?;
        Ok(Rope { pairs: config.pairs, frequencies, factor })
    }
}

impl Model {
    /// Loads a model to a device. `progress` hears of the bytes that were read, piece by piece. If it fails, all memory goes back.
    pub fn load(checkpoint: &Checkpoint, device: &Device, options: LoadOptions, progress: &mut dyn FnMut(usize)) -> Result<Model> {
        let loaded = Model::load_parts(checkpoint, device, options, progress);
        if loaded.is_err() {
            // The first failure counts, not one to clean up behind it.
            let _ = device.trim();
        }
        loaded
    }

    fn load_parts(checkpoint: &Checkpoint, device: &Device, options: LoadOptions, progress: &mut dyn FnMut(usize)) -> Result<Model> {
        let config = checkpoint.config().clone();
        // Quantised weights are multiplied with f32; plain ones of one type with that, which on a CPU is f32 again.
        let dtype = checkpoint.multiplied(options.matrices, device)?;
        let infos = checkpoint.converted(options.matrices)?;
        let rest = infos.iter().map(|info| info.kind.bytes(&info.shape).unwrap_or(0) as u64).sum();
        let mut loader = Loader { checkpoint, device, options, dtype, progress, rest };
        let name = "token_embd.weight";
        let embedding = loader.weight(name)?;
        let embedding = loader.matrix(name, embedding.kind, &embedding.bytes, embedding.shape[0], embedding.shape[1])?;
        let output = match checkpoint.has("output.weight") {
            true => loader.linear(&["output".to_owned()])?,
            false => Linear::new(vec![embedding.clone()], None)?,
        };
        let norm = loader.vector("output_norm.weight", FLOW)?;
        let layers = (0..config.layers).map(|layer| Layer::load(&mut loader, layer, config.windowed[layer])).collect::<Result<_>>()?;
        let rope = loader.rope(&config.rope, &config, options.context.unwrap_or(config.context))?;
        let rope_windowed =
            config.rope_windowed.as_ref().map(|rope| loader.rope(rope, &config, options.context.unwrap_or(config.context))).transpose()?;
        let device = device.clone();
        let (precision, matrices) = (options.precision, checkpoint.main_kind(options.matrices)?);
        Ok(Model { config, device, dtype, precision, matrices, embedding, layers, norm, output, rope, rope_windowed })
    }

    /// What it is.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Where it is.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The type of keys and values where none is asked for.
    pub fn cache_type(&self) -> DType {
        cache_type(self.matrices, self.precision, !self.device.is_cpu())
    }

    /// Bytes that a GPU's pool should hold for steps of so many tokens, with keys and values of a type.
    pub(crate) fn step_bytes(&self, tokens: usize, cache: DType) -> u64 {
        let (device, precision) = (self.device.clone(), self.precision);
        let plan = Plan { device, matrices: None, precision, cache: Some(cache), context: tokens, chunk: tokens };
        Moments::of(&self.config, self.matrices, &plan).apart()
    }

    /// Bytes of the matrices that a token's computation reads; of the embedding it reads a row.
    pub fn bytes_per_token(&self) -> usize {
        let layer = |layer: &Layer| layer.qkv.bytes() + layer.attention_out.bytes() + layer.gate_up.bytes() + layer.down.bytes();
        self.layers.iter().map(layer).sum::<usize>() + self.output.bytes()
    }

    /// The logits, `f32` of (wanted, vocabulary), of the tokens `wanted` (numbers of `u32` among the step's tokens), or of all.
    pub fn forward(&self, cache: &mut KvCache, step: &Step, wanted: Option<&Tensor>) -> Result<Tensor> {
        let (config, epsilon) = (&self.config, self.config.norm_eps);
        let mut x = self.embedding.embedding(&step.ids()?, FLOW)?;
        if config.embedding_scale != 1.0 {
            x.scale_in_place(config.embedding_scale)?;
        }
        let positions = step.positions()?;
        let rope = self.rope.at(&positions)?;
        let windowed = self.rope_windowed.as_ref().map(|rope| rope.at(&positions)).transpose()?;
        let gates = gates(self.dtype, x.size(0));
        let mut h = x.rms_norm_as(&self.layers.first().ok_or(Error::NoLayers)?.attention_norm, epsilon, self.dtype)?;
        for (number, layer) in self.layers.iter().enumerate() {
            let rope = windowed.as_ref().filter(|_| layer.windowed).unwrap_or(&rope);
            // What is no longer needed goes before more is taken: the fullest moment is what a prompt's piece costs.
            let mut found = self.attention(number, layer, rope, &h, cache, step)?;
            if let Some(norm) = &layer.attention_post_norm {
                found = found.rms_norm(norm, epsilon)?;
            }
            h = x.add_rms_norm(&found, &layer.feed_norm, epsilon, self.dtype)?;
            drop(found);
            let gated = self.product(&layer.gate_up, &h, gates)?.glu(config.glu, self.dtype)?;
            let mut fed = self.product(&layer.down, &gated, FLOW)?;
            drop(gated);
            if let Some(norm) = &layer.feed_post_norm {
                fed = fed.rms_norm(norm, epsilon)?;
            }
            let next = self.layers.get(number + 1).map_or(&self.norm, |layer| &layer.attention_norm);
            h = x.add_rms_norm(&fed, next, epsilon, self.dtype)?;
        }
        if let Some(wanted) = wanted {
            h = h.rows(wanted)?;
        }
        let mut logits = self.product(&self.output, &h, DType::F32)?;
        if let Some(cap) = config.logit_cap {
            logits.soft_cap_in_place(cap)?;
        }
        Ok(logits)
    }

    fn product(&self, linear: &Linear, x: &Tensor, to: DType) -> Result<Tensor> {
        Ok(linear.forward(x, to, self.precision)?)
    }

    fn attention(&self, number: usize, layer: &Layer, rope: &RopeAt<'_>, h: &Tensor, cache: &mut KvCache, step: &Step) -> Result<Tensor> {
        let found = self.attend(number, layer, rope, h, cache, step)?;
        self.product(&layer.attention_out, &found, FLOW)
    }

    fn attend(&self, number: usize, layer: &Layer, rope: &RopeAt<'_>, h: &Tensor, cache: &mut KvCache, step: &Step) -> Result<Tensor> {
        let Config { heads, kv_heads, head_dim, .. } = self.config;
        let qkv = self.product(&layer.qkv, h, self.dtype)?.reshape(&[h.size(0), heads + 2 * kv_heads, head_dim])?;
        let (mut queries, mut keys) = (qkv.narrow(1, 0, heads)?, qkv.narrow(1, heads, kv_heads)?);
        if let Some((query_norm, key_norm)) = &layer.head_norms {
            queries = queries.rms_norm(query_norm, self.config.norm_eps)?;
            keys = keys.rms_norm(key_norm, self.config.norm_eps)?;
        }
        let queries = cache.append_turned(number, rope, queries, keys, &qkv.narrow(1, heads + kv_heads, kv_heads)?, step)?;
        drop(qkv);
        let window = self.config.window.filter(|_| layer.windowed);
        let how = Attend { scale: self.config.score_scale, window, cap: self.config.score_cap, to: self.dtype };
        Ok(cache.attend(number, &queries, step, &how)?)
    }
}

impl Layer {
    fn load(loader: &mut Loader<'_>, layer: usize, windowed: bool) -> Result<Layer> {
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
        Ok(Layer {
            attention_norm: loader.vector(&name("attn_norm.weight"), FLOW)?,
            qkv: loader.linear(&qkv)?,
            head_norms: query_norm.zip(key_norm),
            attention_out: loader.linear(&[name("attn_output")])?,
            attention_post_norm: loader.optional_vector(&name("post_attention_norm.weight"), FLOW)?,
            feed_norm: loader.vector(&name("ffn_norm.weight"), FLOW)?,
            gate_up: loader.linear(&gate_up)?,
            down: loader.linear(&[name("ffn_down")])?,
            feed_post_norm: loader.optional_vector(&name("post_ffw_norm.weight"), FLOW)?,
            windowed,
        })
    }
}
