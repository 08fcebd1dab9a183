//! Estimates the memory of a model before it is loaded.
//!
//! Weights and KV cache have known sizes. Activations are counted: the forward pass runs on meta devices, which allocate nothing.

use warpwave_kernels::DType;
use warpwave_tensor::{BLOCK_SIZE, Batch, Device, KvCacheType, MemoryUse, Precision};
use warpwave_weights::Kind;

use super::Checkpoint;
use super::convert::ROUTER;
use super::error::Result;
use super::tensors::is_vector;
use crate::config::Config;
use crate::model::{LoadOptions, Logits, Model, SMALL_STEP};
use crate::runner::{RunnerOptions, Sequence};
use crate::tensor_parallel::ShardPlan;

/// Workspace of the GPU vendors' matrix libraries.
const WORKSPACE: u64 = 32 << 20;
/// The largest step that is counted; larger ones are extrapolated, because memory grows linearly.
const MAX_COUNTED: usize = 8192;
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
    /// Type of the KV cache. Default: [`Checkpoint::kv_cache_type`].
    pub kv_cache: Option<KvCacheType>,
    /// The context length in tokens.
    pub context: usize,
    /// Capacity of the KV cache in tokens, of all sequences together. Default: `context`.
    pub cache_tokens: Option<usize>,
    /// The maximum number of tokens computed in one step. Default: [`RunnerOptions::default_chunk`].
    pub chunk: Option<usize>,
}

impl MemoryPlan {
    /// Returns a plan with defaults: the file's weight types, fast precision, default KV cache and chunk.
    pub fn new(devices: impl IntoIterator<Item = Device>, context: usize) -> MemoryPlan {
        let devices = devices.into_iter().collect();
        MemoryPlan { devices, weights: None, precision: Precision::Fast, kv_cache: None, context, cache_tokens: None, chunk: None }
    }

    pub(crate) fn first_device(&self) -> Result<&Device, crate::Error> {
        self.devices.first().ok_or_else(|| crate::Error::Devices(String::new()))
    }

    /// Capacity of the KV cache in tokens.
    pub(crate) fn capacity(&self) -> usize {
        self.cache_tokens.unwrap_or(self.context)
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
    /// The whole KV cache.
    pub kv: u64,
    /// Activations of the largest prompt chunk, with converted weights and inputs of its products, and the logits of its last token.
    pub activations: u64,
    /// On GPUs: workspace of the matrix library, memory of captured decode graphs, unused memory in the pool, and the driver's code.
    pub scratch: u64,
}

/// Memory of a step on a device, counted by running it without data.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StepMemory {
    /// The peak of what the step allocates.
    peak: u64,
    /// What a pool holds that keeps memory for each allocation size: returning memory to the driver and allocating other sizes at each
    /// layer would stall the GPU. A captured graph keeps as much.
    pooled: u64,
}

impl StepMemory {
    /// Counts a step of `tokens` on each device of a model without data. Steps of more than [`MAX_COUNTED`] tokens are extrapolated.
    pub fn count(model: &Model, tokens: usize, kv_cache: KvCacheType) -> crate::error::Result<Vec<StepMemory>> {
        let Some(rest) = tokens.checked_sub(MAX_COUNTED).filter(|rest| *rest > 0) else {
            return StepMemory::run(model, tokens.max(1), kv_cache);
        };
        let [half, full] = [MAX_COUNTED / 2, MAX_COUNTED].map(|tokens| StepMemory::run(model, tokens, kv_cache));
        let grow = |half: u64, full: u64| {
            let more = u128::from(full.saturating_sub(half)) * rest as u128 / (MAX_COUNTED / 2) as u128;
            full.saturating_add(u64::try_from(more).unwrap_or(u64::MAX))
        };
        let grown = half?
            .into_iter()
            .zip(full?)
            .map(|(half, full)| StepMemory { peak: grow(half.peak, full.peak), pooled: grow(half.pooled, full.pooled) });
        Ok(grown.collect())
    }

    fn run(model: &Model, tokens: usize, kv_cache: KvCacheType) -> crate::error::Result<Vec<StepMemory>> {
        let blocks = tokens.div_ceil(BLOCK_SIZE);
        let devices: Vec<Device> = model.devices().cloned().collect();
        let caches = (0..devices.len()).map(|number| model.new_cache(number, kv_cache, blocks));
        let mut caches = caches.collect::<crate::error::Result<Vec<_>>>()?;
        let metas = || devices.iter().filter_map(|device| if let Device::Meta(meta) = device { Some(meta) } else { None });
        metas().for_each(|meta| meta.reset_peak());
        let before: Vec<u64> = metas().map(|meta| meta.memory().current).collect();
        let input = Sequence::input_of(tokens);
        let batches = devices.iter().map(|device| Batch::new(&input, device)).collect::<warpwave_tensor::Result<Vec<_>>>()?;
        let logits = model.forward(&mut caches, &batches, Logits::Last)?;
        drop((logits, batches));
        let of = |(memory, before): (MemoryUse, u64)| StepMemory {
            peak: memory.peak.saturating_sub(before),
            pooled: memory.pooled.saturating_sub(before),
        };
        Ok(metas().map(|meta| meta.memory()).zip(before).map(of).collect())
    }

    /// Bytes that a GPU should hold in its pool for the step, including the matrix library's workspace.
    pub fn reserved(&self, device: &Device) -> u64 {
        self.pooled.saturating_add(library_workspace(device))
    }

    fn max(self, other: StepMemory) -> StepMemory {
        StepMemory { peak: self.peak.max(other.peak), pooled: self.pooled.max(other.pooled) }
    }
}

fn library_workspace(device: &Device) -> u64 {
    if device.is_cpu() || device.is_virtual() { 0 } else { WORKSPACE }
}

fn product(numbers: &[usize]) -> u64 {
    numbers.iter().fold(1u64, |product, number| product.saturating_mul(*number as u64))
}

impl MemoryEstimate {
    /// Returns the sum of all parts.
    pub fn total(&self) -> u64 {
        [self.weights, self.kv, self.activations, self.scratch].into_iter().fold(0, u64::saturating_add)
    }

    /// Estimates a device's part of a model: `config` has its heads and feed-forward elements, `weights` are its bytes of weights. `steps` are
    /// the largest step and a decode step.
    fn new(
        config: &Config,
        weights: u64,
        steps: [StepMemory; 2],
        device: &Device,
        plan: &MemoryPlan,
        kv_cache: KvCacheType,
    ) -> MemoryEstimate {
        let kv_per_token = product(&[2, config.layers, config.kv_heads, kv_cache.head_bytes(config.head_dim)]);
        let capacity = plan.capacity();
        let kv = kv_per_token.saturating_mul(capacity.checked_next_multiple_of(BLOCK_SIZE).unwrap_or(capacity) as u64);
        let [step, decode] = steps;
        let scratch = if device.is_cpu() {
            0
        } else {
            let code = if device.is_virtual() { 0 } else { CODE };
            let graphs = if plan.devices.len() > 1 { 0 } else { graph_bytes(config, decode, plan.context) };
            [step.reserved(device) - step.peak, graphs, code].into_iter().fold(0, u64::saturating_add)
        };
        MemoryEstimate { weights, kv_per_token, kv, activations: step.peak, scratch }
    }
}

/// Bytes of captured decode steps; there is one per power of two of the block table's width.
fn graph_bytes(config: &Config, decode: StepMemory, context: usize) -> u64 {
    // Block tables have at least 16 columns.
    let graphs = u64::from(context.div_ceil(16 * BLOCK_SIZE).max(1).checked_next_power_of_two().map_or(63, usize::ilog2)) + 1;
    // Split-KV attention keeps partial results, about one per 256 keys. The logits are copied out of the graph.
    let splits: usize = (0..graphs).map(|graph| (1usize << graph.min(6)).max(4)).sum();
    let partial = product(&[splits, config.heads, config.head_dim, 4]);
    let each = decode.pooled.saturating_add(product(&[config.vocab, 4]));
    each.saturating_mul(graphs).saturating_add(partial)
}

/// The type of the inputs of matrix products: that of plain 16-bit weights on a GPU, else `f32`.
fn activation_type(kind: Kind, gpu: bool) -> DType {
    match kind {
        Kind::Plain(dtype @ (DType::F16 | DType::Bf16)) if gpu => dtype,
        _ => DType::F32,
    }
}

/// See [`Checkpoint::kv_cache_type`].
pub(crate) fn kv_cache_type(kind: Kind, precision: Precision, gpu: bool) -> KvCacheType {
    match (kind, activation_type(kind, gpu)) {
        // Rounding K and V costs less accuracy than fast products do, and attention in 16 bits is several times as fast.
        (Kind::Quant(_), _) if gpu && precision == Precision::Fast => KvCacheType::F16,
        (_, DType::F16) => KvCacheType::F16,
        (_, DType::Bf16) => KvCacheType::Bf16,
        _ => KvCacheType::F32,
    }
}

impl Checkpoint {
    /// Estimates the memory of the model on each device of a plan.
    pub fn memory(&self, plan: &MemoryPlan) -> crate::error::Result<Vec<MemoryEstimate>> {
        let infos = self.converted(plan.weights)?;
        let shards = ShardPlan::new(&self.config, &infos, plan.devices.len())?;
        let options = LoadOptions { weights: plan.weights, precision: plan.precision, context: Some(plan.context) };
        let model = Model::meta(self, &plan.devices, options)?;
        let kv_cache = plan.kv_cache.unwrap_or_else(|| model.kv_cache_type());
        let tokens = plan.step_tokens(plan.first_device()?);
        let [largest, small, decode] = [tokens, tokens.min(SMALL_STEP), 1].map(|tokens| StepMemory::count(&model, tokens, kv_cache));
        // The last chunk of a prompt may be a small step, whose gates are `f32`.
        let steps = largest?.into_iter().zip(small?).map(|(largest, small)| largest.max(small)).zip(decode?);
        let estimate = |((shard, device), (step, decode)): ((&ShardPlan, &Device), (StepMemory, StepMemory))| {
            let weights = infos.iter().map(|info| shard.bytes(info)).fold(0, u64::saturating_add);
            MemoryEstimate::new(&shard.config, weights, [step, decode], device, plan, kv_cache)
        };
        Ok(shards.iter().zip(&plan.devices).zip(steps).map(estimate).collect())
    }

    /// The type that decides how products are computed, see [`main_kind`].
    pub(crate) fn main_kind(&self, weights: Option<Kind>) -> Result<Kind> {
        Ok(main_kind(&self.converted(weights)?))
    }

    /// Returns the default type of the KV cache: on a GPU that of plain 16-bit weights, and `f16` for quantized weights with
    /// [`Precision::Fast`]; otherwise `f32`.
    pub fn kv_cache_type(&self, weights: Option<Kind>, precision: Precision, device: &Device) -> Result<KvCacheType> {
        Ok(kv_cache_type(self.main_kind(weights)?, precision, !device.is_cpu()))
    }

    /// The type of the inputs of matrix products on a device.
    pub(crate) fn activation_type(&self, weights: Option<Kind>, device: &Device) -> Result<DType> {
        Ok(activation_type(self.main_kind(weights)?, !device.is_cpu()))
    }
}

/// The first quantized type of the matrices, or their plain type if all have the same, otherwise `f32`.
fn main_kind(infos: &[warpwave_weights::TensorInfo]) -> Kind {
    let matrices = infos.iter().filter(|info| !is_vector(&info.name, &info.shape) && !info.name.contains(ROUTER));
    let mut kinds = matrices.map(|info| info.kind);
    let first = kinds.next().unwrap_or(Kind::Plain(DType::F32));
    let quant = kinds.clone().chain([first]).find(|kind| matches!(kind, Kind::Quant(_)));
    quant.unwrap_or(if kinds.all(|kind| kind == first) { first } else { Kind::Plain(DType::F32) })
}
