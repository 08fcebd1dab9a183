//! Tensor parallelism: splits a model over several devices.
//!
//! Attention heads and feed-forward elements are split: QKV and gate-up matrices by rows, output and down matrices by columns. Each device
//! computes a partial sum of the residual update, and the partial sums are added. Each weight is read by one device only.

use std::borrow::Cow;
use std::ops::Range;

use warpwave_weights::{Kind, TensorInfo};

use crate::checkpoint::Weight;
use crate::config::Config;
use crate::error::{Error, Result};

/// Feed-forward elements and vocabulary rows are split in multiples of this: rows then start at whole cache lines.
const GRANULARITY: usize = 32;

/// A device's part of a model.
#[derive(Debug, Clone)]
pub(crate) struct ShardPlan {
    /// The model's configuration with this device's heads and feed-forward elements.
    pub config: Config,
    /// The device's index.
    index: usize,
    /// Rows of Q, and of K as of V, each counted from the first of its kind.
    q: Range<usize>,
    kv: Range<usize>,
    ffn: Range<usize>,
    vocab: Range<usize>,
    /// Rows of Q, K and the feed-forward in the whole model.
    totals: [usize; 3],
}

/// A device's part of a weight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Split {
    /// Every device has all of it.
    Replicated,
    /// The first device has it.
    First,
    /// Ranges of rows, concatenated.
    Rows(Vec<Range<usize>>),
    /// A range of columns.
    Columns(Range<usize>),
}

impl ShardPlan {
    /// Splits a model over devices.
    pub fn new(config: &Config, weights: &[TensorInfo], devices: usize) -> Result<Vec<ShardPlan>> {
        let Config { heads, kv_heads, head_dim, feed_forward, vocab, .. } = *config;
        if let Some(moe) = config.moe.as_ref().filter(|_| devices > 1) {
            return Err(Error::Split { what: "experts", count: moe.experts, granularity: 1, devices });
        }
        if config.mla.is_some() && devices > 1 {
            return Err(Error::Split { what: "heads of latent attention", count: heads, granularity: 1, devices });
        }
        let norm = weights.iter().find(|info| info.name == "blk.0.attn_q_norm.weight");
        if devices > 1 && norm.is_some_and(|norm| norm.shape != [head_dim]) {
            return Err(Error::Split { what: "heads normalized together", count: heads, granularity: 1, devices });
        }
        // Columns are split between quantization blocks.
        let block_of = |end: &str| {
            let blocks = weights.iter().filter(|info| info.name.ends_with(end)).map(|info| info.kind.block().0);
            blocks.max().unwrap_or(1).max(1)
        };
        let blocks = [block_of("attn_output.weight"), block_of("ffn_down.weight")];
        let group = heads / kv_heads.max(1);
        let heads_of = |index: usize| -> Result<[Range<usize>; 2]> {
            if devices <= kv_heads {
                let granularity = blocks[0] / gcd(blocks[0], (group * head_dim).max(1));
                let kv = range("KV heads", kv_heads, granularity, index, devices)?;
                return Ok([kv.start * group..kv.end * group, kv]);
            }
            // More devices than KV heads: some devices hold the same one, and split its queries.
            let (kv, granularity) = (index * kv_heads / devices, blocks[0] / gcd(blocks[0], head_dim.max(1)));
            let [first, end] = [kv, kv + 1].map(|kv| (kv * devices).div_ceil(kv_heads.max(1)));
            let q = range("heads", group, granularity, index - first, end - first).ok();
            let q = q.filter(|_| group.is_multiple_of(granularity));
            let q = q.ok_or(Error::Split { what: "heads", count: heads, granularity, devices })?;
            Ok([kv * group + q.start..kv * group + q.end, kv..kv + 1])
        };
        let rows = if devices > 1 { GRANULARITY } else { 1 };
        // A tied output is the embedding, which the first device has.
        let tied = !weights.iter().any(|info| info.name == "output.weight");
        let elements = |range: &Range<usize>| range.start * head_dim..range.end * head_dim;
        let plan = |index: usize| {
            let [q, kv] = heads_of(index)?;
            let ffn = range("feed-forward elements", feed_forward, blocks[1].max(rows), index, devices)?;
            let vocab = if tied { 0..0 } else { range("vocabulary rows", vocab, rows, index, devices)? };
            let config = Config { heads: q.len(), kv_heads: kv.len(), feed_forward: ffn.len(), ..config.clone() };
            let totals = [heads * head_dim, kv_heads * head_dim, feed_forward];
            Ok(ShardPlan { config, index, q: elements(&q), kv: elements(&kv), ffn, vocab, totals })
        };
        (0..devices).map(plan).collect()
    }

    /// Returns the device's part of a weight with this many rows.
    pub fn split(&self, name: &str, rows: usize) -> Split {
        let [q, kv, ffn] = self.totals;
        let from = |at: usize, range: &Range<usize>| at + range.start..at + range.end;
        let part = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.')).map_or(name, |(_, part)| part);
        match part {
            // The biases of products that are split by columns are added once.
            "token_embd.weight" | "attn_output.bias" | "ffn_down.bias" => Split::First,
            "output.weight" | "output.bias" => Split::Rows(vec![self.vocab.clone()]),
            "attn_q.weight" | "attn_q.bias" => Split::Rows(vec![self.q.clone()]),
            "attn_k.weight" | "attn_k.bias" | "attn_v.weight" | "attn_v.bias" => Split::Rows(vec![self.kv.clone()]),
            "attn_qkv.weight" | "attn_qkv.bias" => Split::Rows(vec![self.q.clone(), from(q, &self.kv), from(q + kv, &self.kv)]),
            // Fused: all gate rows, then all up rows.
            "ffn_up.weight" if rows > ffn => Split::Rows(vec![self.ffn.clone(), from(ffn, &self.ffn)]),
            "ffn_gate.weight" | "ffn_gate.bias" | "ffn_up.weight" | "ffn_up.bias" => Split::Rows(vec![self.ffn.clone()]),
            // Latent attention is not split.
            "attn_output.weight" if self.config.mla.is_none() => Split::Columns(self.q.clone()),
            "ffn_down.weight" => Split::Columns(self.ffn.clone()),
            _ => Split::Replicated,
        }
    }

    /// Returns the device's part of a bias.
    pub fn split_vector(&self, name: &str, vector: &[f32]) -> Vec<f32> {
        match self.split(name, vector.len()) {
            Split::Rows(ranges) => ranges.iter().flat_map(|range| &vector[range.clone()]).copied().collect(),
            Split::First if self.index > 0 => Vec::new(),
            Split::Replicated | Split::First | Split::Columns(_) => vector.to_vec(),
        }
    }

    /// Returns the bytes of the device's part of a weight.
    pub fn bytes(&self, info: &TensorInfo) -> u64 {
        let shape = self.shape(info);
        shape.map_or(0, |shape| info.kind.bytes(&shape).unwrap_or(0) as u64)
    }

    /// The shape of the device's part of a weight, if it has one.
    fn shape(&self, info: &TensorInfo) -> Option<Vec<usize>> {
        let mut shape = info.shape.clone();
        match self.split(&info.name, shape.first().copied().unwrap_or(0)) {
            Split::Replicated => {}
            Split::First => return (self.index == 0).then_some(shape),
            Split::Rows(rows) => shape[0] = rows.iter().map(Range::len).sum(),
            Split::Columns(columns) => *shape.last_mut()? = columns.len(),
        }
        Some(shape)
    }
}

impl Split {
    /// Returns this part of a matrix: borrowed if it is contiguous, otherwise a copy, for which `reserve` may refuse the memory.
    pub fn of_matrix<'a>(&self, weight: &'a Weight<'_>, reserve: impl FnOnce(usize) -> Result<()>) -> Result<Weight<'a>> {
        let [rows, columns] = weight.shape[..] else { return Ok(borrowed(weight.kind, weight.shape.clone(), &weight.bytes)) };
        let row = weight.bytes.len() / rows.max(1);
        let (shape, slices): (_, Vec<&[u8]>) = match self {
            Split::Rows(ranges) => {
                let slice = |range: &Range<usize>| &weight.bytes[range.start * row..range.end * row];
                (vec![ranges.iter().map(Range::len).sum(), columns], merge_adjacent(ranges).iter().map(slice).collect())
            }
            Split::Columns(range) if *range != (0..columns) => {
                let (block, bytes) = weight.kind.block();
                let [start, end] = [range.start, range.end].map(|column| column / block * bytes);
                (vec![rows, range.len()], weight.bytes.chunks_exact(row.max(1)).map(|row| &row[start..end]).collect())
            }
            Split::Columns(_) | Split::Replicated | Split::First => (weight.shape.clone(), vec![&*weight.bytes]),
        };
        if let [slice] = slices[..] {
            return Ok(borrowed(weight.kind, shape, slice));
        }
        reserve(slices.iter().map(|slice| slice.len()).sum())?;
        Ok(Weight { kind: weight.kind, shape, bytes: slices.concat().into() })
    }
}

fn borrowed(kind: Kind, shape: Vec<usize>, bytes: &[u8]) -> Weight<'_> {
    Weight { kind, shape, bytes: Cow::Borrowed(bytes) }
}

fn merge_adjacent(ranges: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut out: Vec<Range<usize>> = Vec::new();
    for range in ranges {
        match out.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => out.push(range.clone()),
        }
    }
    out
}

/// One device's range of `count` elements, split in multiples of `granularity`.
fn range(what: &'static str, count: usize, granularity: usize, index: usize, devices: usize) -> Result<Range<usize>> {
    let parts = count.div_ceil(granularity);
    if parts < devices {
        return Err(Error::Split { what, count, granularity, devices });
    }
    let at = |index: usize| (index * parts / devices * granularity).min(count);
    Ok(at(index)..at(index + 1))
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use warpwave_kernels::{DType, Quant};

    use super::*;

    /// For any number of devices, each head, element and vocabulary row is on a device, and only shared KV heads are on several.
    #[test]
    fn all_parts_are_assigned_exactly_once() {
        let mut splits = 0;
        for (heads, kv_heads, head_dim) in
            [(32, 8, 128), (9, 3, 64), (16, 1, 256), (12, 6, 64), (40, 10, 96), (1, 1, 16), (28, 4, 128), (12, 2, 64)]
        {
            let config = Config { heads, kv_heads, head_dim, feed_forward: 1280, vocab: 1003, layers: 1, ..Config::llama_8b() };
            for kind in [Kind::Plain(DType::Bf16), Kind::Quant(Quant::Q8_0), Kind::Quant(Quant::Q4K)] {
                let kind_of = |columns: usize| if columns.is_multiple_of(kind.block().0) { kind } else { Kind::Plain(DType::F32) };
                let info = |name: &str, columns: usize| TensorInfo {
                    name: format!("blk.0.{name}.weight"),
                    kind: kind_of(columns),
                    shape: vec![4096, columns],
                };
                let output = TensorInfo { name: "output.weight".to_owned(), kind, shape: vec![1003, 4096] };
                let infos = [info("attn_output", heads * head_dim), info("ffn_down", 1280), output];
                for devices in 1..=17 {
                    let Ok(plans) = ShardPlan::new(&config, &infos, devices) else { continue };
                    splits += 1;
                    let (mut q, mut ffn, mut vocab, mut kv) = (0, 0, 0, 0);
                    for plan in &plans {
                        assert_eq!([plan.q.start, plan.ffn.start, plan.vocab.start], [q, ffn, vocab], "{plan:?}");
                        [q, ffn, vocab] = [plan.q.end, plan.ffn.end, plan.vocab.end];
                        let Config { heads: mine, kv_heads: mine_kv, .. } = plan.config;
                        assert!(mine > 0 && !plan.ffn.is_empty() && !plan.vocab.is_empty(), "{plan:?}");
                        // The local grouping of heads maps each query head to the KV head it has in the whole model.
                        for query in 0..mine {
                            let of_all = (plan.q.start / head_dim + query) / (heads / kv_heads);
                            assert_eq!(plan.kv.start / head_dim + query / (mine / mine_kv), of_all, "{plan:?}");
                        }
                        assert!(plan.kv.start <= kv && plan.kv.end >= kv, "{plan:?}");
                        kv = plan.kv.end;
                        for info in &infos[..2] {
                            let Split::Columns(columns) = plan.split(&info.name, 4096) else { panic!("{}", info.name) };
                            let block = info.kind.block().0;
                            assert!(columns.start.is_multiple_of(block) && columns.end.is_multiple_of(block), "{plan:?} {}", info.name);
                        }
                    }
                    assert_eq!([q, ffn, vocab, kv], [heads * head_dim, 1280, 1003, kv_heads * head_dim]);
                }
            }
        }
        assert!(splits > 100, "{splits}");
    }
}
