//! How much memory a model takes, before it is loaded.
//!
//! Weights, keys and values are what they are. Between the layers it is what [`crate::Model::forward`] holds at once: the moments of a
//! layer are gone through here as they are there, and the fullest one counts.

use std::collections::HashMap;

use warpwave_kernels::DType;
use warpwave_tensor::{BLOCK_SIZE, Device, Precision};
use warpwave_weights::Kind;

use super::Checkpoint;
use super::error::Result;
use crate::config::{Config, Family};
use crate::model::{FEW, FLOW, gates};
use crate::share::Share;

/// What GPUs' libraries of products work in.
const WORKSPACE: u64 = 32 << 20;
/// Vectors from which on GPUs multiply with quantised weights as `f16`.
const MANY: usize = 32;
/// What a GPU's driver and library take for their code when it is first used, or thereabouts.
const CODE: u64 = 128 << 20;

/// How a model is to run, as far as memory goes.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Where: on one device, or divided among several, all GPUs or all CPUs.
    pub devices: Vec<Device>,
    /// What matrices become; as they are in the file without it.
    pub matrices: Option<Kind>,
    /// How exactly products with quantised weights are computed.
    pub precision: Precision,
    /// The type of keys and values; without it what [`Checkpoint::cache_type`] says.
    pub cache: Option<DType>,
    /// Tokens that there is room for.
    pub context: usize,
    /// Tokens that are computed at once at most.
    pub chunk: usize,
}

/// Bytes that a model takes on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Weights.
    pub weights: u64,
    /// Keys and values of a token, in all layers.
    pub kv_per_token: u64,
    /// Keys and values of the whole context.
    pub kv: u64,
    /// What is between layers while a piece of a prompt is computed, with the logits of the last token.
    pub activations: u64,
    /// What products and attention work in, what the steps of decoding that are captured as graphs keep, memory that is kept for later
    /// because it was of another size, and the driver's code: all on a GPU alone.
    pub scratch: u64,
}

/// Sizes of what is there at a layer's moments.
#[derive(Default)]
pub(crate) struct Moments {
    /// The most bytes between layers, and with what products work in.
    between: u64,
    fullest: u64,
    /// The most of each size at any moment.
    most: HashMap<u64, u64>,
}

impl Moments {
    /// A moment: what is between layers, and what is worked in.
    fn add(&mut self, there: &[u64], work: &[u64]) {
        let mut here = HashMap::new();
        there.iter().chain(work).filter(|size| **size > 0).for_each(|size| *here.entry(*size).or_insert(0u64) += 1);
        for (size, count) in here {
            let most = self.most.entry(size).or_insert(0);
            *most = count.max(*most);
        }
        let sum = |from: u64, sizes: &[u64]| sizes.iter().fold(from, |sum, size| sum.saturating_add(*size));
        self.between = self.between.max(sum(0, there));
        self.fullest = self.fullest.max(sum(sum(0, there), work));
    }

    /// Bytes of one piece of memory for each: what a GPU's pool should hold, for where it has to give some back at each layer to take
    /// others, everything waits.
    pub fn apart(&self) -> u64 {
        self.most.iter().fold(0u64, |sum, (size, count)| sum.saturating_add(size.saturating_mul(*count)))
    }
}

fn product(numbers: &[usize]) -> u64 {
    numbers.iter().fold(1u64, |product, number| product.saturating_mul(*number as u64))
}

impl Memory {
    /// All of it.
    pub fn total(&self) -> u64 {
        [self.weights, self.kv, self.activations, self.scratch].into_iter().fold(0, u64::saturating_add)
    }

    /// Of a model with these bytes of weights on a device, whose matrices are of one plain type or quantised (`matrices`). Where others have
    /// parts of it, heads and what else is divided are the device's own.
    pub fn new(config: &Config, weights: u64, matrices: Kind, device: &Device, plan: &Plan) -> Memory {
        let gpu = !device.is_cpu();
        let dtype = multiplied(matrices, gpu);
        let cache = plan.cache.unwrap_or_else(|| cache_type(matrices, plan.precision, gpu));
        let kv_per_token = product(&[2, config.layers, config.kv_heads, config.head_dim, cache.size()]);
        let kv = kv_per_token.saturating_mul(plan.context.checked_next_multiple_of(BLOCK_SIZE).unwrap_or(plan.context) as u64);
        let moments = Moments::of(config, matrices, device, plan);
        let logits = product(&[config.vocab, 4]);
        let scratch = match gpu {
            false => moments.fullest - moments.between,
            true => {
                let code = if device.is_virtual() { 0 } else { CODE };
                let beside = moments.apart() - moments.between;
                let captured = if plan.devices.len() > 1 { 0 } else { captured(config, dtype, plan.context) };
                [beside, captured, code].into_iter().fold(0, u64::saturating_add)
            }
        };
        Memory { weights, kv_per_token, kv, activations: moments.between.saturating_add(logits), scratch }
    }
}

/// What captured steps keep. One of one token keeps all that it takes on its way, in each layer; there is one for each doubling of the
/// context.
fn captured(config: &Config, dtype: DType, context: usize) -> u64 {
    let Config { hidden, feed_forward, heads, kv_heads, head_dim, layers, vocab, .. } = *config;
    let [queries, keys] = [heads, kv_heads].map(|heads| heads.saturating_mul(head_dim));
    let taken = [hidden, hidden, queries, keys, keys, queries, queries, feed_forward];
    let taken = taken.iter().fold(0u64, |sum, width| sum.saturating_add(product(&[*width, dtype.size()])));
    let wide = product(&[2, hidden, FLOW.size()]).saturating_add(product(&[2, feed_forward, gates(dtype, 1).size()]));
    let each = taken.saturating_add(wide).saturating_mul(layers as u64).saturating_add(product(&[2, vocab, 4]));
    // As wide as the table of blocks, and from 16 on.
    let graphs = u64::from(context.div_ceil(16 * BLOCK_SIZE).max(1).checked_next_power_of_two().map_or(63, usize::ilog2)) + 1;
    // Attention is divided into parts, about one for 256 keys, whose results lie beside each other.
    let parts: usize = (0..graphs).map(|graph| (1usize << graph.min(6)).max(4)).sum();
    each.saturating_mul(graphs).saturating_add(product(&[parts, queries, 4, layers]))
}

impl Moments {
    /// Those of a layer, for as many tokens as are computed at once.
    pub fn of(config: &Config, matrices: Kind, device: &Device, plan: &Plan) -> Moments {
        let Config { hidden, feed_forward, heads, kv_heads, head_dim, .. } = *config;
        let gpu = !device.is_cpu();
        let dtype = multiplied(matrices, gpu);
        let cache = plan.cache.unwrap_or_else(|| cache_type(matrices, plan.precision, gpu));
        let tokens = plan.chunk.clamp(1, plan.context.max(1));
        let [queries, keys] = [heads, kv_heads].map(|heads| heads.saturating_mul(head_dim));
        let all = queries.saturating_add(keys).saturating_add(keys);
        let of = |width: usize, size: usize| product(&[tokens, width, size]);
        let [x, found] = [of(hidden, FLOW.size()); 2];
        let [h, qkv, q, gated] = [hidden, all, queries, feed_forward].map(|width| of(width, dtype.size()));
        // The last piece of a prompt may have few tokens.
        let gates_of = |tokens: usize| product(&[tokens, feed_forward, 2, gates(dtype, tokens).size()]);
        let gate_up = gates_of(tokens).max(gates_of(tokens.min(FEW)));
        // Where the cache is of another type, what is found is there in both.
        let other = if cache != dtype && gpu { of(queries, cache.size()) } else { 0 };
        // Queries and keys with norms of their own leave their product; on a CPU all do, and are turned where they are.
        let leave = matches!(config.family, Family::Qwen3 | Family::Gemma3) || !gpu;
        let post = matches!(config.family, Family::Gemma2 | Family::Gemma3);
        let (own_q, own_k) = if leave { (q, of(keys, dtype.size())) } else { (0, 0) };
        let turned = if gpu { of(queries, cache.size()) } else { 0 };
        // Weights as f16 beside the vectors as f32, made smaller, and as f16; and then the library at work.
        let as_f16 = matches!(matrices, Kind::Quant(_)) && gpu && plan.precision == Precision::Fast && tokens >= MANY;
        let library = if gpu && !device.is_virtual() { WORKSPACE } else { 0 };
        let work = |rows: usize, columns: usize| match as_f16 {
            true => {
                let (weights, vectors) = (product(&[rows, columns, 2]), of(columns, 2));
                [[weights, vectors, of(columns, 4)], [weights, vectors, library]]
            }
            false => [[0, 0, 0], [0, 0, library]],
        };
        let mut moments = Moments::default();
        for (there, rows, columns) in [
            (&[x, h, qkv][..], all, hidden),
            (&[x, h, q, found], hidden, queries),
            (&[x, h, gate_up], feed_forward.saturating_mul(2), hidden),
            (&[x, h, gated, found], hidden, feed_forward),
        ] {
            work(rows, columns).iter().for_each(|work| moments.add(there, work));
        }
        moments.add(&[x, h, qkv, own_q, own_k, turned], &[]);
        moments.add(&[x, h, q], &[if gpu { turned } else { q }, other]);
        moments.add(&[x, h, gate_up, gated], &[]);
        // The next norm, or before it one of what was found.
        moments.add(&[x, h, found, if post { found } else { h }], &[]);
        // The terms of all devices, the sum, and where there are more than two that of those before.
        let devices = plan.devices.len();
        if devices > 1 {
            moments.add(&[&[x, h][..], &vec![found; devices + if devices > 2 { 2 } else { 1 }]].concat(), &[]);
        }
        moments
    }
}

/// The type of what is multiplied with matrices: that of plain weights of 16 bits on a GPU.
fn multiplied(matrices: Kind, gpu: bool) -> DType {
    match matrices {
        Kind::Plain(dtype @ (DType::F16 | DType::Bf16)) if gpu => dtype,
        _ => DType::F32,
    }
}

/// See [`Checkpoint::cache_type`].
pub(crate) fn cache_type(matrices: Kind, precision: Precision, gpu: bool) -> DType {
    match matrices {
        // Rounding them is less than what rounding the vectors of products does, and GPUs attend to 16 bits several times as fast.
        Kind::Quant(_) if gpu && precision == Precision::Fast => DType::F16,
        _ => multiplied(matrices, gpu),
    }
}

impl Checkpoint {
    /// How much memory the model takes, on each device.
    pub fn memory(&self, plan: &Plan) -> crate::error::Result<Vec<Memory>> {
        let infos = self.converted(plan.matrices)?;
        let shares = Share::divide(&self.config, &infos, plan.devices.len())?;
        let memory = |(share, device): (&Share, &Device)| {
            let weights = infos.iter().map(|info| share.bytes(info)).fold(0, u64::saturating_add);
            Memory::new(&share.config, weights, main_kind(&infos), device, plan)
        };
        Ok(shares.iter().zip(&plan.devices).map(memory).collect())
    }

    /// The type of the matrices, as far as computing with them goes.
    pub(crate) fn main_kind(&self, matrices: Option<Kind>) -> Result<Kind> {
        Ok(main_kind(&self.converted(matrices)?))
    }

    /// The type of keys and values on a device where none is asked for: that of plain weights of 16 bits on a GPU, `f16` there beside
    /// quantised ones that are multiplied fast, `f32` elsewhere.
    pub fn cache_type(&self, matrices: Option<Kind>, precision: Precision, device: &Device) -> Result<DType> {
        Ok(cache_type(self.main_kind(matrices)?, precision, !device.is_cpu()))
    }

    /// The type of what is multiplied with the model's matrices on a device.
    pub(crate) fn multiplied(&self, matrices: Option<Kind>, device: &Device) -> Result<DType> {
        Ok(multiplied(self.main_kind(matrices)?, !device.is_cpu()))
    }
}

/// The type of all matrices where they are plain and of one type; `f32` is what is computed with where plain ones are of several.
fn main_kind(infos: &[warpwave_weights::TensorInfo]) -> Kind {
    let mut kinds = infos.iter().filter(|info| info.shape.len() > 1).map(|info| info.kind);
    let first = kinds.next().unwrap_or(Kind::Plain(DType::F32));
    let quant = kinds.clone().chain([first]).find(|kind| matches!(kind, Kind::Quant(_)));
    quant.unwrap_or(if kinds.all(|kind| kind == first) { first } else { Kind::Plain(DType::F32) })
}
