//! The keys and values of tokens that were seen, in blocks that sequences take as they grow.

use warpwave_kernels::{AppendAt, AttentionOptions, DType, KeyValues, Packed};

use crate::cpu;
use crate::device::Device;
use crate::error::{Error, Result, shape};
use crate::nn::RopeAt;
use crate::step::Step;
use crate::tensor::Tensor;

/// Keys of a block.
pub const BLOCK: usize = 16;

/// A pool of blocks for each layer.
pub struct KvCache {
    layers: Vec<(Tensor, Tensor)>,
    dtype: DType,
}

/// How a layer looks at keys.
#[derive(Debug, Clone, Copy)]
pub struct Attend {
    /// What scores are multiplied with.
    pub scale: f32,
    /// Keys that a token sees, its own included.
    pub window: Option<usize>,
    /// The soft cap of scores.
    pub cap: Option<f32>,
    /// The type of what is found.
    pub to: DType,
}

impl KvCache {
    /// Room for `blocks` blocks in each layer.
    pub fn new(device: &Device, dtype: DType, layers: usize, blocks: usize, kv_heads: usize, head_dim: usize) -> Result<KvCache> {
        if !matches!(dtype, DType::F32 | DType::F16 | DType::Bf16) {
            return Err(Error::Type { op: "a cache", what: "what it holds", found: dtype, expected: "f32, f16 or bf16" });
        }
        let most = if device.is_cpu() { 512 } else { 256 };
        if head_dim > most {
            return Err(shape("a cache", format!("heads have {head_dim} elements; attention on {device} takes up to {most}")));
        }
        let pool = || Tensor::zeros(dtype, &[blocks, BLOCK, kv_heads, head_dim], device);
        let layers = (0..layers).map(|_| Ok((pool()?, pool()?))).collect::<Result<_>>()?;
        Ok(KvCache { layers, dtype })
    }

    /// Bytes of a token in all layers.
    pub fn bytes_per_token(dtype: DType, layers: usize, kv_heads: usize, head_dim: usize) -> usize {
        2 * layers * kv_heads * head_dim * dtype.size()
    }

    /// Turns queries and keys as the positions say, and puts keys and values where the step says. Gives the queries, on a GPU in the cache's
    /// type. All are of (tokens, heads, elements).
    pub fn append_turned(
        &mut self,
        layer: usize,
        rope: &RopeAt<'_>,
        mut queries: Tensor,
        mut keys: Tensor,
        values: &Tensor,
        step: &Step,
    ) -> Result<Tensor> {
        let [tokens, _, dim] = self.check_new(layer, &keys, values, step)?;
        self.check("append", layer, step, [("the queries", &queries)])?;
        rope.check(&queries)?;
        rope.check(&keys)?;
        let Device::Gpu(gpu) = queries.device().clone() else {
            queries.rope_in_place(rope)?;
            keys.rope_in_place(rope)?;
            self.append(layer, &keys, values, step)?;
            return Ok(queries);
        };
        let heads = queries.size(1);
        let (key_pool, value_pool) = &mut self.layers[layer];
        let (queries, keys, values, slots) = (queries.as_one()?, keys.as_one()?, values.as_one()?, step.slots()?);
        let (queries, keys, values, slots) = (queries.view()?, keys.view()?, values.view()?, slots.view()?);
        let (rope, mut key_pool, mut value_pool) = (rope.on_gpu()?, key_pool.view_mut()?, value_pool.view_mut()?);
        let turned = Tensor::on_gpu(&gpu, self.dtype, &[1, tokens, heads, dim], |out| {
            gpu.kernels.rope_append(&gpu.stream, &rope, [&queries, &keys, &values], &slots, out, (&mut key_pool, &mut value_pool))
        })?;
        turned.reshape(&[tokens, heads, dim])
    }

    /// Refuses keys and values that the cache is not for. Gives the shape of both.
    fn check_new(&self, layer: usize, keys: &Tensor, values: &Tensor, step: &Step) -> Result<[usize; 3]> {
        let op = "append";
        let [tokens, heads, dim] = *keys.shape() else { return Err(shape(op, format!("{:?} are no keys", keys.shape()))) };
        if values.shape() != keys.shape() {
            return Err(shape(op, format!("values of {:?} for keys of {:?}", values.shape(), keys.shape())));
        }
        step.check_tokens(op, tokens)?;
        self.check(op, layer, step, [("the keys", keys), ("the values", values)])?;
        let (pool, _) = &self.layers[layer];
        if pool.shape()[2..] != [heads, dim] {
            return Err(shape(op, format!("keys of {heads} heads of {dim} for a cache of {:?}", &pool.shape()[2..])));
        }
        Ok([tokens, heads, dim])
    }

    /// Puts the keys and values of (tokens, heads, elements) where the step says.
    pub fn append(&mut self, layer: usize, keys: &Tensor, values: &Tensor, step: &Step) -> Result<()> {
        let [_, heads, dim] = self.check_new(layer, keys, values, step)?;
        let (key_pool, value_pool) = &mut self.layers[layer];
        match keys.device().clone() {
            Device::Gpu(gpu) => {
                let (keys, values, slots) = (keys.as_one()?, values.as_one()?, step.slots()?);
                let pools = (&mut key_pool.view_mut()?, &mut value_pool.view_mut()?);
                Ok(gpu.kernels.append(&gpu.stream, (&keys.view()?, &values.view()?), AppendAt::Slots(slots.view()?), pools)?)
            }
            Device::Cpu => {
                let slots = step.slots()?;
                let slots = slots.host::<u32>()?;
                for (pool, x) in [(key_pool, keys), (value_pool, values)] {
                    let x = x.host::<f32>()?;
                    for (slot, row) in slots.iter().zip(x.chunks_exact((heads * dim).max(1))) {
                        // A place is a block of its own for this: of one key.
                        cpu::append(cpu_pool_mut(pool)?, 1, &[*slot], 0, heads * dim, row);
                    }
                }
                Ok(())
            }
        }
    }

    /// What queries of (tokens, heads, elements) find among the keys of their sequences.
    pub fn attend(&self, layer: usize, queries: &Tensor, step: &Step, how: &Attend) -> Result<Tensor> {
        let op = "attention";
        let [tokens, heads, dim] = *queries.shape() else { return Err(shape(op, format!("{:?} are no queries", queries.shape()))) };
        step.check_tokens(op, tokens)?;
        self.check(op, layer, step, [("the queries", queries)])?;
        let (key_pool, value_pool) = &self.layers[layer];
        let [kv_heads, key_dim] = [key_pool.size(2), key_pool.size(3)];
        if dim != key_dim || kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
            return Err(shape(op, format!("queries of {heads} heads of {dim} for keys of {kv_heads} heads of {key_dim}")));
        }
        let (starts, lengths, table) = (step.starts()?, step.lengths()?, step.table()?);
        match queries.device() {
            Device::Gpu(gpu) => {
                let queries = queries.cast(self.dtype)?;
                let (table, lengths) = (Some(table.view()?), Some(lengths.view()?));
                let kv = KeyValues { keys: key_pool.view()?, values: value_pool.view()?, table, lengths };
                let options = AttentionOptions { window: how.window, soft_cap: how.cap, ..AttentionOptions::causal(how.scale) };
                let sequences = step.sequences();
                let (kernels, stream) = (&gpu.kernels, &gpu.stream);
                let found = if step.longest() == 1 && sequences == tokens {
                    let queries = queries.reshape(&[sequences, 1, heads, dim])?;
                    let queries = queries.view()?;
                    let dtype = if how.to == DType::F32 { how.to } else { self.dtype };
                    let to = [sequences, 1, heads, dim];
                    Tensor::on_gpu(gpu, dtype, &to, |out| kernels.decode_attention(stream, &queries, &kv, &options, out))?
                } else {
                    let packed = Packed { queries: starts.view()?, longest: step.longest(), keys: None };
                    let queries = queries.view()?;
                    let to = [tokens, heads, dim];
                    Tensor::on_gpu(gpu, self.dtype, &to, |out| {
                        kernels.attention_packed(stream, &queries, &kv, &packed, &options, out, None)
                    })?
                };
                found.reshape(&[tokens, heads * dim])?.cast(how.to)
            }
            Device::Cpu => {
                let queries = queries.host::<f32>()?;
                let (starts, lengths, blocks) = (starts.host::<u32>()?, lengths.host::<u32>()?, table.host::<u32>()?);
                let width = table.size(1);
                let sequences: Vec<cpu::Sequence<'_>> = (0..lengths.len())
                    .map(|i| {
                        let (keys, queries) = (lengths[i] as usize, (starts[i + 1] - starts[i]) as usize);
                        cpu::Sequence { table: &blocks[i * width..i * width + keys.div_ceil(BLOCK)], keys, queries }
                    })
                    .collect();
                let heads_of = cpu::Heads { heads, kv_heads, dim, block: BLOCK, scale: how.scale, window: how.window, soft_cap: how.cap };
                let found = Tensor::on_cpu(&[tokens, heads * dim], |out| {
                    cpu::attention(&queries, cpu_pool(key_pool)?, cpu_pool(value_pool)?, &sequences, &heads_of, out);
                    Ok(())
                });
                found?.cast(how.to)
            }
        }
    }

    /// Refuses layers and blocks that there are not, and what is on another device.
    fn check<const N: usize>(&self, op: &'static str, layer: usize, step: &Step, tensors: [(&'static str, &Tensor); N]) -> Result<()> {
        let Some((pool, _)) = self.layers.get(layer) else {
            return Err(shape(op, format!("there is no layer {layer} in {}", self.layers.len())));
        };
        if step.blocks() > pool.size(0) {
            return Err(shape(op, format!("the step needs block {}, and there are {}", step.blocks() - 1, pool.size(0))));
        }
        let devices = tensors.map(|(what, tensor)| (what, tensor.device()));
        if let Some((what, found)) = devices.into_iter().chain([("the step", step.device())]).find(|(_, found)| *found != pool.device()) {
            let (found, expected) = (found.name().to_owned(), pool.device().name().to_owned());
            return Err(Error::Device { op, what, found, expected });
        }
        Ok(())
    }
}

fn cpu_pool(pool: &Tensor) -> Result<cpu::Cache<'_>> {
    Ok(match pool.dtype() {
        DType::F32 => cpu::Cache::F32(pool.host_slice()?),
        DType::F16 => cpu::Cache::F16(pool.host_slice()?),
        _ => cpu::Cache::Bf16(pool.host_slice()?),
    })
}

fn cpu_pool_mut(pool: &mut Tensor) -> Result<cpu::CacheMut<'_>> {
    Ok(match pool.dtype() {
        DType::F32 => cpu::CacheMut::F32(pool.host_mut()?),
        DType::F16 => cpu::CacheMut::F16(pool.host_mut()?),
        _ => cpu::CacheMut::Bf16(pool.host_mut()?),
    })
}
