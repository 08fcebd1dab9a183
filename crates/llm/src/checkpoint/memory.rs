//! Estimates the memory of a model before it is loaded.
//!
//! Weights and KV cache have known sizes. Activations are the peak of what [`crate::Model`]'s forward pass holds at the same time: the points
//! of a layer where memory is allocated are repeated here.

use std::collections::HashMap;

use warpwave_kernels::DType;
use warpwave_tensor::{BLOCK_SIZE, Device, Precision};
use warpwave_weights::Kind;

use super::Checkpoint;
use super::error::Result;
use crate::config::{Config, Family};
use crate::model::{RESIDUAL, SMALL_STEP, gate_type};
use crate::runner::RunnerOptions;
use crate::tensor_parallel::ShardPlan;

/// Workspace of the GPU vendors' matrix libraries.
const WORKSPACE: u64 = 32 << 20;
/// The number of rows from which GPUs multiply quantized weights as `f16`.
const DEQUANTIZE_ROWS: usize = 32;
/// Approximate memory of a GPU's driver and libraries for code loaded at first use.
const CODE: u64 = 128 << 20;

/// Where and how a model is to run, as far as memory is concerned.
#[derive(Debug, Clone)]
pub struct MemoryPlan {
    /// One device, or several that share the model (tensor parallel): all GPUs or all CPUs.
    pub devices: Vec<Device>,
    /// Type that weight matrices are converted to. Default: the file's types.
    pub weights: Option<Kind>,
    /// Precision of products with quantized weights.
    pub precision: Precision,
    /// Element type of the KV cache. Default: [`Checkpoint::kv_cache_type`].
    pub kv_cache: Option<DType>,
    /// The context length in tokens.
    pub context: usize,
    /// The maximum number of tokens computed in one step. Default: [`RunnerOptions::default_chunk`].
    pub chunk: Option<usize>,
}

impl MemoryPlan {
    /// Returns a plan with defaults: the file's weight types, fast precision, default KV cache and chunk.
    pub fn new(devices: impl IntoIterator<Item = Device>, context: usize) -> MemoryPlan {
        let devices = devices.into_iter().collect();
        MemoryPlan { devices, weights: None, precision: Precision::Fast, kv_cache: None, context, chunk: None }
    }

    pub(crate) fn first_device(&self) -> Result<&Device, crate::Error> {
        self.devices.first().ok_or_else(|| crate::Error::Devices(String::new()))
    }

    /// Tokens of the largest step on a device.
    fn step_tokens(&self, device: &Device) -> usize {
        self.chunk.unwrap_or_else(|| RunnerOptions::default_chunk(device)).clamp(1, self.context.max(1))
    }
}

/// Bytes that a model needs on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryEstimate {
    /// Weights.
    pub weights: u64,
    /// KV cache of one token, in all layers.
    pub kv_per_token: u64,
    /// KV cache of the whole context.
    pub kv: u64,
    /// Activations of the largest prompt chunk, and the logits of its last token.
    pub activations: u64,
    /// On GPUs: workspaces of products and attention, memory of captured decode graphs, unused memory in the pool, and the driver's code.
    pub scratch: u64,
}

/// Allocations that are live at the same time within a layer.
#[derive(Default)]
pub(crate) struct LiveMemory {
    /// Peak of the activations, and with workspaces.
    activations: u64,
    peak: u64,
    /// The maximum number of live allocations of each size.
    counts: HashMap<u64, u64>,
}

impl LiveMemory {
    /// Adds a point in time: sizes of live activations and of workspaces.
    fn add(&mut self, activations: &[u64], workspaces: &[u64]) {
        let mut counts = HashMap::new();
        activations.iter().chain(workspaces).filter(|size| **size > 0).for_each(|size| *counts.entry(*size).or_insert(0u64) += 1);
        for (size, count) in counts {
            let most = self.counts.entry(size).or_insert(0);
            *most = count.max(*most);
        }
        let sum = |from: u64, sizes: &[u64]| sizes.iter().fold(from, |sum, size| sum.saturating_add(*size));
        self.activations = self.activations.max(sum(0, activations));
        self.peak = self.peak.max(sum(sum(0, activations), workspaces));
    }

    /// Bytes that a GPU's pool should hold so that each allocation size has its own memory: returning memory to the driver and
    /// allocating other sizes at each layer would stall the GPU.
    pub fn pooled(&self) -> u64 {
        self.counts.iter().fold(0u64, |sum, (size, count)| sum.saturating_add(size.saturating_mul(*count)))
    }
}

fn product(numbers: &[usize]) -> u64 {
    numbers.iter().fold(1u64, |product, number| product.saturating_mul(*number as u64))
}

impl MemoryEstimate {
    /// Returns the sum of all parts.
    pub fn total(&self) -> u64 {
        [self.weights, self.kv, self.activations, self.scratch].into_iter().fold(0, u64::saturating_add)
    }

    /// Estimates a device's part of a model: `config` has its heads and feed-forward elements, `weights` are its bytes of weights, `kind`
    /// is their main type.
    pub fn new(config: &Config, weights: u64, kind: Kind, device: &Device, plan: &MemoryPlan) -> MemoryEstimate {
        let gpu = !device.is_cpu();
        let dtype = activation_type(kind, gpu);
        let kv_cache = plan.kv_cache.unwrap_or_else(|| kv_cache_type(kind, plan.precision, gpu));
        let kv_per_token = product(&[2, config.layers, config.kv_heads, config.head_dim, kv_cache.size()]);
        let kv = kv_per_token.saturating_mul(plan.context.checked_next_multiple_of(BLOCK_SIZE).unwrap_or(plan.context) as u64);
        let step = LiveMemory::of_step(config, kind, device, plan);
        let logits = product(&[config.vocab, 4]);
        let scratch = match gpu {
            false => step.peak - step.activations,
            true => {
                let code = if device.is_virtual() { 0 } else { CODE };
                let pooled = step.pooled() - step.activations;
                let graphs = if plan.devices.len() > 1 { 0 } else { graph_bytes(config, dtype, plan.context) };
                [pooled, graphs, code].into_iter().fold(0, u64::saturating_add)
            }
        };
        MemoryEstimate { weights, kv_per_token, kv, activations: step.activations.saturating_add(logits), scratch }
    }
}

/// Bytes of captured decode steps. Each keeps the memory of all its allocations, of all layers; there is one per power of two of the
/// block table's width.
fn graph_bytes(config: &Config, dtype: DType, context: usize) -> u64 {
    let Config { hidden, feed_forward, heads, kv_heads, head_dim, layers, vocab, .. } = *config;
    let [q, kv] = [heads, kv_heads].map(|heads| heads.saturating_mul(head_dim));
    let narrow = [hidden, hidden, q, kv, kv, q, q, feed_forward];
    let narrow = narrow.iter().fold(0u64, |sum, width| sum.saturating_add(product(&[*width, dtype.size()])));
    let wide = product(&[2, hidden, RESIDUAL.size()]).saturating_add(product(&[2, feed_forward, gate_type(dtype, 1).size()]));
    let each = narrow.saturating_add(wide).saturating_mul(layers as u64).saturating_add(product(&[2, vocab, 4]));
    // Block tables have at least 16 columns.
    let graphs = u64::from(context.div_ceil(16 * BLOCK_SIZE).max(1).checked_next_power_of_two().map_or(63, usize::ilog2)) + 1;
    // Split-KV attention keeps partial results, about one per 256 keys.
    let splits: usize = (0..graphs).map(|graph| (1usize << graph.min(6)).max(4)).sum();
    each.saturating_mul(graphs).saturating_add(product(&[splits, q, 4, layers]))
}

impl LiveMemory {
    /// Returns the live allocations of a layer in the plan's largest step.
    pub fn of_step(config: &Config, kind: Kind, device: &Device, plan: &MemoryPlan) -> LiveMemory {
        let Config { hidden, feed_forward, heads, kv_heads, head_dim, .. } = *config;
        let gpu = !device.is_cpu();
        let dtype = activation_type(kind, gpu);
        let kv_cache = plan.kv_cache.unwrap_or_else(|| kv_cache_type(kind, plan.precision, gpu));
        let tokens = plan.step_tokens(device);
        let [q_width, kv_width] = [heads, kv_heads].map(|heads| heads.saturating_mul(head_dim));
        let qkv_width = q_width.saturating_add(kv_width).saturating_add(kv_width);
        let of = |width: usize, size: usize| product(&[tokens, width, size]);
        let [x, update] = [of(hidden, RESIDUAL.size()); 2];
        let [h, qkv, q, gated] = [hidden, qkv_width, q_width, feed_forward].map(|width| of(width, dtype.size()));
        // The last chunk of a prompt may be a small step.
        let gate_up_of = |tokens: usize| product(&[tokens, feed_forward, 2, gate_type(dtype, tokens).size()]);
        let gate_up = gate_up_of(tokens).max(gate_up_of(tokens.min(SMALL_STEP)));
        // With a KV cache of another type, the attention output exists in both types.
        let other = if kv_cache != dtype && gpu { of(q_width, kv_cache.size()) } else { 0 };
        // QK norms copy Q and K out of the QKV product. On a CPU they are always copied, and rotated in place.
        let copies = matches!(config.family, Family::Qwen3 | Family::Gemma3) || !gpu;
        let post = matches!(config.family, Family::Gemma2 | Family::Gemma3);
        let (q_copy, k_copy) = if copies { (q, of(kv_width, dtype.size())) } else { (0, 0) };
        let rotated_q = if gpu { of(q_width, kv_cache.size()) } else { 0 };
        // Dequantized weights, and the input scaled in f32 and then in f16; then the library's workspace.
        let as_f16 = matches!(kind, Kind::Quant(_)) && gpu && plan.precision == Precision::Fast && tokens >= DEQUANTIZE_ROWS;
        let library = if gpu && !device.is_virtual() { WORKSPACE } else { 0 };
        let workspaces = |rows: usize, columns: usize| match as_f16 {
            true => {
                let (weights, input) = (product(&[rows, columns, 2]), of(columns, 2));
                [[weights, input, of(columns, 4)], [weights, input, library]]
            }
            false => [[0, 0, 0], [0, 0, library]],
        };
        let mut live = LiveMemory::default();
        for (activations, rows, columns) in [
            (&[x, h, qkv][..], qkv_width, hidden),
            (&[x, h, q, update], hidden, q_width),
            (&[x, h, gate_up], feed_forward.saturating_mul(2), hidden),
            (&[x, h, gated, update], hidden, feed_forward),
        ] {
            workspaces(rows, columns).iter().for_each(|workspaces| live.add(activations, workspaces));
        }
        live.add(&[x, h, qkv, q_copy, k_copy, rotated_q], &[]);
        live.add(&[x, h, q], &[if gpu { rotated_q } else { q }, other]);
        live.add(&[x, h, gate_up, gated], &[]);
        // The next norm, or the post-norm of the update.
        live.add(&[x, h, update, if post { update } else { h }], &[]);
        // Tensor parallel: partial sums of all devices, the sum, and with more than two devices an intermediate one.
        let devices = plan.devices.len();
        if devices > 1 {
            live.add(&[&[x, h][..], &vec![update; devices + if devices > 2 { 2 } else { 1 }]].concat(), &[]);
        }
        live
    }
}

/// The type of the inputs of matrix products: that of plain 16-bit weights on a GPU, else `f32`.
fn activation_type(kind: Kind, gpu: bool) -> DType {
    match kind {
        Kind::Plain(dtype @ (DType::F16 | DType::Bf16)) if gpu => dtype,
        _ => DType::F32,
    }
}

/// See [`Checkpoint::kv_cache_type`].
pub(crate) fn kv_cache_type(kind: Kind, precision: Precision, gpu: bool) -> DType {
    match kind {
        // Rounding K and V costs less accuracy than fast products do, and attention in 16 bits is several times as fast.
        Kind::Quant(_) if gpu && precision == Precision::Fast => DType::F16,
        _ => activation_type(kind, gpu),
    }
}

impl Checkpoint {
    /// Estimates the memory of the model on each device of a plan.
    pub fn memory(&self, plan: &MemoryPlan) -> crate::error::Result<Vec<MemoryEstimate>> {
        let infos = self.converted(plan.weights)?;
        let shards = ShardPlan::new(&self.config, &infos, plan.devices.len())?;
        let estimate = |(shard, device): (&ShardPlan, &Device)| {
            let weights = infos.iter().map(|info| shard.bytes(info)).fold(0, u64::saturating_add);
            MemoryEstimate::new(&shard.config, weights, main_kind(&infos), device, plan)
        };
        Ok(shards.iter().zip(&plan.devices).map(estimate).collect())
    }

    /// The type that decides how products are computed, see [`main_kind`].
    pub(crate) fn main_kind(&self, weights: Option<Kind>) -> Result<Kind> {
        Ok(main_kind(&self.converted(weights)?))
    }

    /// Returns the default element type of the KV cache: on a GPU that of plain 16-bit weights, and `f16` for quantized weights with
    /// [`Precision::Fast`]; otherwise `f32`.
    pub fn kv_cache_type(&self, weights: Option<Kind>, precision: Precision, device: &Device) -> Result<DType> {
        Ok(kv_cache_type(self.main_kind(weights)?, precision, !device.is_cpu()))
    }

    /// The type of the inputs of matrix products on a device.
    pub(crate) fn activation_type(&self, weights: Option<Kind>, device: &Device) -> Result<DType> {
        Ok(activation_type(self.main_kind(weights)?, !device.is_cpu()))
    }
}

/// The first quantized type of the matrices, or their plain type if all have the same, otherwise `f32`.
fn main_kind(infos: &[warpwave_weights::TensorInfo]) -> Kind {
    let mut kinds = infos.iter().filter(|info| info.shape.len() > 1).map(|info| info.kind);
    let first = kinds.next().unwrap_or(Kind::Plain(DType::F32));
    let quant = kinds.clone().chain([first]).find(|kind| matches!(kind, Kind::Quant(_)));
    quant.unwrap_or(if kinds.all(|kind| kind == first) { first } else { Kind::Plain(DType::F32) })
}
