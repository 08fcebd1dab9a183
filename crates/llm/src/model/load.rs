//! Loads weights from a checkpoint to devices.

use std::borrow::Cow;
use std::collections::HashMap;

use warpwave_kernels::{DType, Routing};
use warpwave_tensor::{Device, Experts, Linear, Matrix, Rope, Tensor, check_host_memory};
use warpwave_weights::{Kind, TensorInfo};

use super::{FeedForward, Latent, Layer, LoadOptions, Mlp, Model, Moe, Norm, Projections, RESIDUAL, Shard, device_names};
use crate::checkpoint::{Checkpoint, Weight};
use crate::config::{Config, Family, MlaConfig, NormKind, RopeConfig};
use crate::error::{Error, Result};
use crate::tensor_parallel::ShardPlan;

/// Loads the weights of a checkpoint to all devices.
struct Loader<'a> {
    checkpoint: &'a Checkpoint,
    /// The weights as they will be on the devices.
    infos: HashMap<String, TensorInfo>,
    targets: Vec<Target>,
    options: LoadOptions,
    dtype: DType,
    progress: &'a mut dyn FnMut(usize),
}

/// A device that weights are loaded to.
struct Target {
    device: Device,
    plan: ShardPlan,
    /// Bytes of weights still to be loaded.
    rest: u64,
}

impl<'a> Loader<'a> {
    /// Whether the model is loaded without data: the shapes of the weights suffice, and no file is read.
    fn is_meta(&self) -> bool {
        matches!(self.targets.first(), Some(Target { device: Device::Meta(_), .. }))
    }

    /// Counts the bytes of a weight that is being loaded.
    fn count(&mut self, name: &str) {
        let Some(info) = self.infos.get(name) else { return };
        for target in &mut self.targets {
            let bytes = target.plan.bytes(info);
            target.rest = target.rest.saturating_sub(bytes);
            (self.progress)(bytes as usize);
        }
    }

    /// Loads a norm's weights to each device.
    fn vector(&mut self, name: &str, dtype: DType) -> Result<Vec<Tensor>> {
        self.count(name);
        if self.is_meta() {
            let len = self.infos.get(name).map_or(0, |info| info.shape.iter().product());
            return self.targets.iter().map(|target| Ok(Tensor::zeros(dtype, &[len], &target.device)?)).collect();
        }
        let floats = self.checkpoint.get_f32(name)?;
        let host = Tensor::new(&floats, &[floats.len()], &Device::Cpu)?.cast(dtype)?;
        self.targets.iter().map(|target| target.name_failure(name, host.to_device(&target.device))).collect()
    }

    fn optional_vector(&mut self, name: &str, dtype: DType) -> Result<Option<Vec<Tensor>>> {
        if self.checkpoint.has(name) { self.vector(name, dtype).map(Some) } else { Ok(None) }
    }

    /// Loads a norm of the residual stream to each device, if the model has it.
    fn norm(&mut self, name: &str) -> Result<Vec<Option<Norm>>> {
        let Some(weights) = self.optional_vector(&format!("{name}.weight"), RESIDUAL)? else {
            return Ok(vec![None; self.targets.len()]);
        };
        let Config { norm, norm_eps: epsilon, .. } = *self.checkpoint.config();
        let biases: Vec<Option<Tensor>> = match norm {
            NormKind::Rms => vec![None; weights.len()],
            NormKind::Layer => self.vector(&format!("{name}.bias"), RESIDUAL)?.into_iter().map(Some).collect(),
        };
        Ok(weights.into_iter().zip(biases).map(|(weight, bias)| Some(Norm { weight, bias, epsilon })).collect())
    }

    /// Loads matrices that are multiplied with the same input, concatenated by rows: each device's part of them. Biases are of type
    /// `bias_dtype`.
    fn linear(&mut self, names: &[String], bias_dtype: DType) -> Result<Vec<Linear>> {
        let mut weights = Vec::new();
        let mut biases = Vec::new();
        let biased = names.iter().any(|name| self.checkpoint.has(&format!("{name}.bias")));
        for name in names {
            let (name, bias) = (format!("{name}.weight"), format!("{name}.bias"));
            let weight = self.weight(&name)?;
            if self.checkpoint.has(&bias) {
                self.count(&bias);
                let floats = if self.is_meta() { vec![0.0; weight.shape[0]] } else { self.checkpoint.get_f32(&bias)? };
                biases.push((floats, bias));
            } else if biased {
                biases.push((vec![0.0; weight.shape[0]], bias));
            }
            weights.push((weight, name));
        }
        self.targets.iter().map(|target| target.linear(&weights, &biases, bias_dtype)).collect()
    }

    /// Reads a weight to the host, converted if requested.
    fn weight(&mut self, name: &str) -> Result<Weight<'a>> {
        // A weight that is not used in place is a copy of about this size.
        let size = self.infos.get(name).and_then(|info| info.kind.bytes(&info.shape).ok()).unwrap_or(0);
        self.count(name);
        if let (true, Some(info)) = (self.is_meta(), self.infos.get(name)) {
            return Ok(Weight { kind: info.kind, shape: info.shape.clone(), bytes: Cow::Borrowed(&[]) });
        }
        let rest = self.targets.iter().map(|target| target.rest).sum();
        check_host_memory(size).map_err(|error| Error::from(error).out_of_memory_for(|| format!("weight {name}"), rest))?;
        Ok(self.checkpoint.get_as(name, self.options.weights)?)
    }

    /// Loads the projections of queries, keys and values to each device.
    fn projections(&mut self, layer: usize) -> Result<Vec<Projections>> {
        let (dtype, name) = (self.dtype, |part: &str| format!("blk.{layer}.{part}"));
        if let Some(sizes) = &self.checkpoint.config().mla {
            return Ok(vec![Projections::Latent(Box::new(self.latent(layer, sizes)?))]);
        }
        let qkv = match self.checkpoint.has(&name("attn_qkv.weight")) {
            true => vec![name("attn_qkv")],
            false => ["attn_q", "attn_k", "attn_v"].map(name).to_vec(),
        };
        Ok(self.linear(&qkv, dtype)?.into_iter().map(Projections::Qkv).collect())
    }

    /// Loads the projections of latent attention to the device. There is one: the latent vector is not split.
    fn latent(&mut self, layer: usize, sizes: &MlaConfig) -> Result<Latent> {
        let name = |part: &str| format!("blk.{layer}.attn_{part}");
        let [two_steps, split] = ["q_a", "k_b"].map(|part| self.checkpoint.has(&format!("{}.weight", name(part))));
        let mut linear = |part: &str| Ok::<_, Error>(self.linear(&[name(part)], DType::F32)?.swap_remove(0));
        let kv_a = linear("kv_a_mqa")?;
        let q_a = if two_steps { Some(linear("q_a")?) } else { None };
        let q_b = linear(if two_steps { "q_b" } else { "q" })?;
        let kv_b = if split { self.joined_kv_b(layer, sizes)? } else { self.linear(&[name("kv_b")], DType::F32)?.swap_remove(0) };
        let mut norm = |part: &str| Ok::<_, Error>(self.vector(&format!("{}.weight", name(part)), DType::F32)?.swap_remove(0));
        let kv_norm = norm("kv_a_norm")?;
        let q_a = q_a.map(|q_a| Ok::<_, Error>((q_a, norm("q_a_norm")?))).transpose()?;
        Ok(Latent { sizes: sizes.clone(), q_a, q_b, kv_a, kv_norm, kv_b })
    }

    /// Joins the key and value projections of newer GGUF files, of which the keys' are transposed per head.
    fn joined_kv_b(&mut self, layer: usize, sizes: &MlaConfig) -> Result<Linear> {
        let Config { heads, head_dim, rope, .. } = self.checkpoint.config();
        let (keys, values, lora) = (head_dim - rope.rotary_dim, sizes.value_dim, sizes.kv_lora);
        let mut part = |part: &str| Ok::<_, Error>(self.vector(&format!("blk.{layer}.attn_{part}_b.weight"), DType::F32)?.swap_remove(0));
        let (k, v) = (part("k")?, part("v")?);
        let k = k.reshape(&[*heads, lora, keys])?.transpose(1, 2)?;
        let joined = Tensor::cat(&[k, v.reshape(&[*heads, values, lora])?], 1)?;
        Ok(Linear::new(vec![Matrix::plain(joined.reshape(&[heads * (keys + values), lora])?.cast(self.dtype)?)?], None)?)
    }

    /// Loads a feed-forward to each device; `ending` is that of its names.
    fn mlp(&mut self, layer: usize, ending: &str) -> Result<Vec<Mlp>> {
        let name = |part: &str| format!("blk.{layer}.ffn_{part}{ending}");
        let gate_up = match self.checkpoint.has(&format!("{}.weight", name("gate"))) {
            true => vec![name("gate"), name("up")],
            false => vec![name("up")],
        };
        let gate_up = self.linear(&gate_up, RESIDUAL)?;
        let down = self.linear(&[name("down")], RESIDUAL)?;
        Ok(gate_up.into_iter().zip(down).map(|(gate_up, down)| Mlp { gate_up, down }).collect())
    }

    /// Loads the experts of a layer to the device. There is one: experts are not split.
    fn moe(&mut self, layer: usize, routing: Routing) -> Result<Vec<FeedForward>> {
        let name = |part: &str| format!("blk.{layer}.ffn_{part}");
        let router = self.float_matrix(&name("gate_inp"))?;
        let choice_bias = format!("blk.{layer}.exp_probs_b.bias");
        let choice_bias = self.optional_vector(&choice_bias, DType::F32)?.map(|mut bias| bias.swap_remove(0));
        let gate_up = self.experts(&[name("gate_exps"), name("up_exps")])?;
        let down = self.experts(&[name("down_exps")])?;
        let shared = match self.checkpoint.has(&name("up_shexp.weight")) {
            true => self.mlp(layer, "_shexp")?.pop(),
            false => None,
        };
        let gate = name("gate_inp_shexp");
        let gate = if self.checkpoint.has(&format!("{gate}.weight")) { Some(self.float_matrix(&gate)?) } else { None };
        Ok(vec![FeedForward::Experts(Box::new(Moe {
            routing,
            router,
            choice_bias,
            gate_up,
            down,
            shared: shared.map(|shared| (shared, gate)),
        }))])
    }

    /// Loads a small matrix in `f32`, with its bias: scores of experts are not rounded.
    fn float_matrix(&mut self, name: &str) -> Result<Linear> {
        let hidden = self.checkpoint.config().hidden;
        let vector = self.vector(&format!("{name}.weight"), DType::F32)?.swap_remove(0);
        let bias = self.optional_vector(&format!("{name}.bias"), DType::F32)?.map(|mut bias| bias.swap_remove(0));
        Ok(Linear::new(vec![Matrix::plain(vector.reshape(&[vector.len() / hidden, hidden])?)?], bias)?)
    }

    /// Loads the matrices of all experts, those of an expert concatenated by rows.
    fn experts(&mut self, names: &[String]) -> Result<Experts> {
        let name = names.join(" and ");
        let weights = names.iter().map(|name| self.weight(&format!("{name}.weight"))).collect::<Result<Vec<_>>>()?;
        let (kind, shape) = (weights[0].kind, &weights[0].shape);
        if let Some(other) = weights.iter().find(|weight| weight.kind != kind) {
            return Err(Error::ExpertTypes { name, found: [kind, other.kind] });
        }
        let [experts, columns] = [0, 2].map(|d| shape[d]);
        let rows = weights.iter().map(|weight| weight.shape[1]).sum();
        let size: usize = weights.iter().map(|weight| weight.bytes.len()).sum();
        let target = &self.targets[0];
        target.name_failure(&name, check_host_memory(if weights.len() > 1 || target.device == Device::Cpu { size } else { 0 }))?;
        let bytes: Cow<'_, [u8]> = match &weights[..] {
            [one] => Cow::Borrowed(&*one.bytes),
            several => {
                let mut bytes = Vec::with_capacity(size);
                for expert in 0..experts {
                    for weight in several {
                        let each = weight.bytes.len() / experts;
                        bytes.extend_from_slice(&weight.bytes[expert * each..(expert + 1) * each]);
                    }
                }
                bytes.into()
            }
        };
        let shape = [experts, rows, columns];
        let loaded = match (kind, &target.device) {
            (Kind::Plain(dtype), Device::Meta(_)) => {
                Tensor::zeros(dtype, &shape, &target.device).and_then(|weights| Experts::plain(&weights))
            }
            (Kind::Plain(dtype), device) => Tensor::from_bytes(&bytes, dtype, &shape, device).and_then(|weights| Experts::plain(&weights)),
            (Kind::Quant(quant), device) => Experts::quantized(quant, &bytes, shape, device),
        };
        let loaded = target.name_failure(&name, loaded)?;
        if !self.checkpoint.has(&format!("{}.bias", names[0])) {
            return Ok(loaded);
        }
        let biases = names.iter().map(|name| Ok(self.vector(&format!("{name}.bias"), DType::F32)?.swap_remove(0)));
        let biases = biases.collect::<Result<Vec<_>>>()?;
        let biases = biases.iter().map(|bias| bias.reshape(&[experts, bias.len() / experts]));
        let biases = Tensor::cat(&biases.collect::<warpwave_tensor::Result<Vec<_>>>()?, 1)?;
        Ok(loaded.with_bias(&biases)?)
    }

    /// Loads a layer to each device.
    fn layer(&mut self, layer: usize, sliding: bool) -> Result<Vec<Layer>> {
        let (dtype, name) = (self.dtype, |part: &str| format!("blk.{layer}.{part}"));
        let q_norm = self.optional_vector(&name("attn_q_norm.weight"), dtype)?;
        let k_norm = self.optional_vector(&name("attn_k_norm.weight"), dtype)?;
        // Falcon's second norm is attention's, and the first then the feed-forward's.
        let norms = match self.checkpoint.has(&name("attn_norm_2.weight")) {
            true => ["attn_norm_2", "attn_norm"],
            false => ["attn_norm", "ffn_norm"],
        };
        let attention_norm = self.norm(&name(norms[0]))?;
        let projections = self.projections(layer)?;
        let sinks = self.optional_vector(&name("attn_sinks.weight"), DType::F32)?;
        let attention_out = self.linear(&[name("attn_output")], RESIDUAL)?;
        // gpt-oss has no norm after attention: this is the name of the feed-forward's.
        let named_post = self.checkpoint.config().family == Family::GptOss;
        let attention_post_norm = if named_post { vec![None; self.targets.len()] } else { self.norm(&name("post_attention_norm"))? };
        let ffn_norm = self.norm(&name(if named_post { "post_attention_norm" } else { norms[1] }))?;
        let moe = self.checkpoint.config().moe.as_ref().filter(|moe| moe.sparse_layers[layer]);
        let feed_forward = match moe {
            Some(moe) => self.moe(layer, moe.routing)?,
            None => self.mlp(layer, "")?.into_iter().map(|mlp| FeedForward::Dense(Box::new(mlp))).collect(),
        };
        let ffn_post_norm = self.norm(&name("post_ffw_norm"))?;
        let at = |vectors: &Option<Vec<Tensor>>, n: usize| vectors.as_ref().map(|vectors| vectors[n].clone());
        let on = |n: usize| Layer {
            attention_norm: attention_norm[n].clone(),
            projections: projections[n].clone(),
            qk_norms: at(&q_norm, n).zip(at(&k_norm, n)),
            sinks: at(&sinks, n),
            attention_out: attention_out[n].clone(),
            attention_post_norm: attention_post_norm[n].clone(),
            ffn_norm: ffn_norm[n].clone(),
            feed_forward: feed_forward[n].clone(),
            ffn_post_norm: ffn_post_norm[n].clone(),
            sliding,
        };
        Ok((0..self.targets.len()).map(on).collect())
    }
}

impl Target {
    /// Adds the weight's name to an out-of-memory error.
    fn name_failure<T>(&self, name: &str, result: warpwave_tensor::Result<T>) -> Result<T> {
        result.map_err(|error| Error::from(error).out_of_memory_for(|| format!("weight {name}"), self.rest))
    }

    /// This device's part of concatenated matrices: one matrix if they are of one type, because one product is faster than several.
    fn linear(&self, weights: &[(Weight<'_>, String)], biases: &[(Vec<f32>, String)], bias_dtype: DType) -> Result<Linear> {
        let name = weights.iter().map(|(_, name)| &**name).collect::<Vec<_>>().join(" and ");
        let reserve = |bytes: usize| self.name_failure(&name, check_host_memory(bytes));
        let split = |(weight, name): &'_ (Weight<'_>, String)| self.plan.split(name, weight.shape[0]);
        let parts = weights.iter().map(|weight| split(weight).of_matrix(&weight.0, reserve)).collect::<Result<Vec<_>>>()?;
        let same = parts.windows(2).all(|pair| pair[0].kind == pair[1].kind);
        let parts = if same && parts.len() > 1 {
            let rows = parts.iter().map(|part| part.shape[0]).sum();
            let size = parts.iter().map(|part| part.bytes.len()).sum();
            reserve(size)?;
            let mut bytes = Vec::with_capacity(size);
            parts.iter().for_each(|part| bytes.extend_from_slice(&part.bytes));
            vec![self.matrix(&name, parts[0].kind, &bytes, rows, parts[0].shape[1])?]
        } else {
            let matrix = |part: &Weight<'_>| self.matrix(&name, part.kind, &part.bytes, part.shape[0], part.shape[1]);
            parts.iter().map(matrix).collect::<Result<_>>()?
        };
        let biases: Vec<f32> = biases.iter().flat_map(|(bias, name)| self.plan.split_vector(name, bias)).collect();
        let bias = match biases.len() {
            0 => None,
            n => Some(Tensor::new(&biases, &[n], &Device::Cpu)?.cast(bias_dtype)?.to_device(&self.device)?),
        };
        Ok(Linear::new(parts, bias)?)
    }

    fn matrix(&self, name: &str, kind: Kind, bytes: &[u8], rows: usize, columns: usize) -> Result<Matrix> {
        if self.device == Device::Cpu {
            self.name_failure(name, check_host_memory(bytes.len()))?;
        }
        let matrix = match (kind, &self.device) {
            (Kind::Plain(dtype), Device::Meta(_)) => Tensor::zeros(dtype, &[rows, columns], &self.device).and_then(Matrix::plain),
            (Kind::Quant(quant), Device::Meta(_)) => Matrix::quantized_meta(quant, rows, columns, &self.device),
            (Kind::Plain(dtype), _) => Tensor::from_bytes(bytes, dtype, &[rows, columns], &self.device).and_then(Matrix::plain),
            (Kind::Quant(quant), _) => Matrix::quantized(quant, bytes, rows, columns, &self.device),
        };
        self.name_failure(name, matrix)
    }

    fn rope(&self, rope: &RopeConfig, config: &Config, context: usize) -> Result<Rope> {
        let (frequencies, factor) = rope.frequencies(context);
        let frequencies = Tensor::new(&frequencies, &[frequencies.len()], &self.device)?;
        Ok(Rope { pairs: config.pairs, frequencies, factor })
    }
}

impl Model {
    /// Loads a model to a device. `progress` receives the bytes of each weight as it is loaded. On failure all memory is freed.
    pub fn load(checkpoint: &Checkpoint, device: &Device, options: LoadOptions, progress: &mut dyn FnMut(usize)) -> Result<Model> {
        Model::load_tensor_parallel(checkpoint, std::slice::from_ref(device), options, progress)
    }

    /// Loads a model to several devices: each holds some heads and a part of each feed-forward, and partial results are summed. The GPUs
    /// may be of different models and vendors.
    pub fn load_tensor_parallel(
        checkpoint: &Checkpoint,
        devices: &[Device],
        options: LoadOptions,
        progress: &mut dyn FnMut(usize),
    ) -> Result<Model> {
        let gpus = devices.iter().filter_map(|device| if let Device::Gpu(gpu) = device { Some(gpu.stream.device()) } else { None });
        for (one, other) in gpus.clone().flat_map(|one| gpus.clone().map(move |other| (one, other))).filter(|(one, other)| one != other) {
            // Without peer access copies go through the host.
            let _ = one.enable_access(other);
        }
        let loaded = Model::load_shards(checkpoint, devices, options, progress);
        if loaded.is_err() {
            // The first failure counts, not one of the cleanup.
            devices.iter().for_each(|device| _ = device.trim());
        }
        loaded
    }

    fn load_shards(checkpoint: &Checkpoint, devices: &[Device], options: LoadOptions, progress: &mut dyn FnMut(usize)) -> Result<Model> {
        let config = checkpoint.config().clone();
        let first = devices.first().filter(|first| devices.iter().all(|device| device.is_cpu() == first.is_cpu()));
        let first = first.ok_or_else(|| Error::Devices(device_names(devices)))?;
        let dtype = checkpoint.activation_type(options.weights, first)?;
        let infos = checkpoint.converted(options.weights)?;
        let target = |(plan, device): (ShardPlan, &Device)| {
            let rest = infos.iter().map(|info| plan.bytes(info)).sum();
            Target { device: device.clone(), plan, rest }
        };
        let targets = ShardPlan::new(&config, &infos, devices.len())?.into_iter().zip(devices).map(target).collect();
        let infos = infos.into_iter().map(|info| (info.name.clone(), info)).collect();
        let mut loader = Loader { checkpoint, infos, targets, options, dtype, progress };
        let name = "token_embd.weight";
        let embedding = loader.weight(name)?;
        let embedding = loader.targets[0].matrix(name, embedding.kind, &embedding.bytes, embedding.shape[0], embedding.shape[1])?;
        let output = match checkpoint.has("output.weight") {
            true => loader.linear(&["output".to_owned()], DType::F32)?,
            false => vec![Linear::new(vec![embedding.clone()], None)?],
        };
        let mut output = output.into_iter();
        let norms = loader.norm("output_norm")?;
        let context = options.context.unwrap_or(config.context);
        let mut shards = Vec::new();
        for (target, norm) in loader.targets.iter().zip(norms) {
            let rope = |rope: &RopeConfig| target.rope(rope, &config, context);
            let (rope, rope_sliding) = (rope(&config.rope)?, config.rope_sliding.as_ref().map(rope).transpose()?);
            let (device, config) = (target.device.clone(), target.plan.config.clone());
            shards.push(Shard { device, config, layers: Vec::new(), norm, output: output.next(), rope, rope_sliding });
        }
        for layer in 0..config.layers {
            let layers = loader.layer(layer, config.sliding_layers[layer])?;
            shards.iter_mut().zip(layers).for_each(|(shard, layer)| shard.layers.push(layer));
        }
        let (precision, weights) = (options.precision, checkpoint.main_kind(options.weights)?);
        // A runner on GPUs reserves the memory of a step, which is counted on the model without data.
        let meta = match first {
            Device::Gpu(_) => Some(Box::new(Model::meta(checkpoint, devices, options)?)),
            Device::Cpu | Device::Meta(_) => None,
        };
        Ok(Model { config, dtype, precision, weights, embedding, shards, meta })
    }

    /// Creates the model without data, on meta devices: running it counts memory.
    pub(crate) fn meta(checkpoint: &Checkpoint, devices: &[Device], options: LoadOptions) -> Result<Model> {
        let devices: Vec<Device> = devices.iter().map(Device::meta).collect();
        Model::load_shards(checkpoint, &devices, options, &mut |_| ())
    }
}
