//! Parts of a model for several devices.
//!
//! Heads and the elements between feed-forward's matrices are divided: each device computes with its own, from what flows between the layers to
//! a term of it, and the terms of all devices are added. So each matrix is read once, by the device that has its part of it.

use std::borrow::Cow;
use std::ops::Range;

use warpwave_weights::{Kind, TensorInfo};

use crate::checkpoint::Weight;
use crate::config::Config;
use crate::error::{Error, Result};

/// Elements between feed-forward's matrices, and tokens of the vocabulary, that stay together: rows that begin at whole cache lines.
const TOGETHER: usize = 32;

/// What one of the devices has.
#[derive(Debug, Clone)]
pub(crate) struct Share {
    /// The model's config with this device's heads and elements in place of all.
    pub config: Config,
    /// Which device it is.
    pub number: usize,
    /// Its rows of queries, and of keys as of values, each counted from the first of its kind.
    queries: Range<usize>,
    keys: Range<usize>,
    feed: Range<usize>,
    vocab: Range<usize>,
    /// All of each.
    all: [usize; 3],
}

/// What a device has of a weight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cut {
    /// All of it, as every device.
    Whole,
    /// All of it, if it is the first device.
    First,
    /// These rows, one range behind the other.
    Rows(Vec<Range<usize>>),
    /// These columns.
    Columns(Range<usize>),
}

impl Share {
    /// Divides a model with these weights among devices.
    pub fn divide(config: &Config, weights: &[TensorInfo], devices: usize) -> Result<Vec<Share>> {
        let Config { heads, kv_heads, head_dim, feed_forward, vocab, .. } = *config;
        // Columns are divided between blocks.
        let block_of = |end: &str| {
            let blocks = weights.iter().filter(|info| info.name.ends_with(end)).map(|info| info.kind.block().0);
            blocks.max().unwrap_or(1).max(1)
        };
        let blocks = [block_of("attn_output.weight"), block_of("ffn_down.weight")];
        let group = heads / kv_heads.max(1);
        let queries_of = |number: usize| -> Result<[Range<usize>; 2]> {
            if devices <= kv_heads {
                let together = blocks[0] / gcd(blocks[0], (group * head_dim).max(1));
                let kv = range("heads of keys and values", kv_heads, together, number, devices)?;
                return Ok([kv.start * group..kv.end * group, kv]);
            }
            // More devices than heads of keys: some have the same one, and parts of its queries.
            let (kv, together) = (number * kv_heads / devices, blocks[0] / gcd(blocks[0], head_dim.max(1)));
            let [first, end] = [kv, kv + 1].map(|kv| (kv * devices).div_ceil(kv_heads.max(1)));
            let queries = range("heads", group, together, number - first, end - first).ok();
            let queries = queries.filter(|_| group.is_multiple_of(together));
            let queries = queries.ok_or(Error::Divide { what: "heads", count: heads, together, devices })?;
            Ok([kv * group + queries.start..kv * group + queries.end, kv..kv + 1])
        };
        let rows = if devices > 1 { TOGETHER } else { 1 };
        // The first device has the embedding.
        let tied = !weights.iter().any(|info| info.name == "output.weight");
        let times = |range: &Range<usize>| range.start * head_dim..range.end * head_dim;
        let share = |number: usize| {
            let [queries, kv] = queries_of(number)?;
            let feed = range("elements of the feed-forward", feed_forward, blocks[1].max(rows), number, devices)?;
            let vocab = if tied { 0..0 } else { range("tokens of the vocabulary", vocab, rows, number, devices)? };
            let mine = Config { heads: queries.len(), kv_heads: kv.len(), feed_forward: feed.len(), ..config.clone() };
            let all = [heads * head_dim, kv_heads * head_dim, feed_forward];
            Ok(Share { config: mine, number, queries: times(&queries), keys: times(&kv), feed, vocab, all })
        };
        (0..devices).map(share).collect()
    }

    /// What the device has of a weight of this name and so many rows.
    pub fn cut(&self, name: &str, rows: usize) -> Cut {
        let [queries, keys, feed] = self.all;
        let from = |at: usize, range: &Range<usize>| at + range.start..at + range.end;
        let part = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.')).map_or(name, |(_, part)| part);
        match part {
            "token_embd.weight" => Cut::First,
            "output.weight" => Cut::Rows(vec![self.vocab.clone()]),
            "attn_q.weight" | "attn_q.bias" => Cut::Rows(vec![self.queries.clone()]),
            "attn_k.weight" | "attn_k.bias" | "attn_v.weight" | "attn_v.bias" => Cut::Rows(vec![self.keys.clone()]),
            "attn_qkv.weight" => Cut::Rows(vec![self.queries.clone(), from(queries, &self.keys), from(queries + keys, &self.keys)]),
            // Gates lie before what they are multiplied with.
            "ffn_up.weight" if rows > feed => Cut::Rows(vec![self.feed.clone(), from(feed, &self.feed)]),
            "ffn_gate.weight" | "ffn_up.weight" => Cut::Rows(vec![self.feed.clone()]),
            "attn_output.weight" => Cut::Columns(self.queries.clone()),
            "ffn_down.weight" => Cut::Columns(self.feed.clone()),
            _ => Cut::Whole,
        }
    }

    /// Bytes of the device's part of a weight.
    pub fn bytes(&self, info: &TensorInfo) -> u64 {
        let shape = self.shape(info);
        shape.map_or(0, |shape| info.kind.bytes(&shape).unwrap_or(0) as u64)
    }

    /// The shape of the device's part of a weight, if it has one.
    fn shape(&self, info: &TensorInfo) -> Option<Vec<usize>> {
        let mut shape = info.shape.clone();
        match self.cut(&info.name, shape.first().copied().unwrap_or(0)) {
            Cut::Whole => {}
            Cut::First => return (self.number == 0).then_some(shape),
            Cut::Rows(rows) => shape[0] = rows.iter().map(Range::len).sum(),
            Cut::Columns(columns) => *shape.last_mut()? = columns.len(),
        }
        Some(shape)
    }
}

impl Cut {
    /// Its part of a matrix, in place where it lies in one piece; otherwise a copy, for which `ask` may refuse the memory.
    pub fn of<'a>(&self, weight: &'a Weight<'_>, ask: impl FnOnce(usize) -> Result<()>) -> Result<Weight<'a>> {
        let [rows, columns] = weight.shape[..] else { return Ok(borrowed(weight.kind, weight.shape.clone(), &weight.bytes)) };
        let row = weight.bytes.len() / rows.max(1);
        let (shape, pieces): (_, Vec<&[u8]>) = match self {
            Cut::Rows(ranges) => {
                let piece = |range: &Range<usize>| &weight.bytes[range.start * row..range.end * row];
                (vec![ranges.iter().map(Range::len).sum(), columns], joined(ranges).iter().map(piece).collect())
            }
            Cut::Columns(range) if *range != (0..columns) => {
                let (block, bytes) = weight.kind.block();
                let [start, end] = [range.start, range.end].map(|column| column / block * bytes);
                (vec![rows, range.len()], weight.bytes.chunks_exact(row.max(1)).map(|row| &row[start..end]).collect())
            }
            Cut::Columns(_) | Cut::Whole | Cut::First => (weight.shape.clone(), vec![&*weight.bytes]),
        };
        if let [piece] = pieces[..] {
            return Ok(borrowed(weight.kind, shape, piece));
        }
        ask(pieces.iter().map(|piece| piece.len()).sum())?;
        Ok(Weight { kind: weight.kind, shape, bytes: pieces.concat().into() })
    }

    /// Its part of a vector's numbers.
    pub fn of_numbers(&self, numbers: &[f32]) -> Vec<f32> {
        match self {
            Cut::Rows(ranges) => ranges.iter().flat_map(|range| &numbers[range.clone()]).copied().collect(),
            Cut::Whole | Cut::First | Cut::Columns(_) => numbers.to_vec(),
        }
    }
}

fn borrowed(kind: Kind, shape: Vec<usize>, bytes: &[u8]) -> Weight<'_> {
    Weight { kind, shape, bytes: Cow::Borrowed(bytes) }
}

/// Ranges that follow one another as one.
fn joined(ranges: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut out: Vec<Range<usize>> = Vec::new();
    for range in ranges {
        match out.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => out.push(range.clone()),
        }
    }
    out
}

/// One device's range of so many, of which some stay together.
fn range(what: &'static str, count: usize, together: usize, number: usize, devices: usize) -> Result<Range<usize>> {
    let parts = count.div_ceil(together);
    if parts < devices {
        return Err(Error::Divide { what, count, together, devices });
    }
    let at = |number: usize| (number * parts / devices * together).min(count);
    Ok(at(number)..at(number + 1))
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use warpwave_kernels::{DType, Quant};

    use super::*;

    /// However many devices there are, every head, element and token is somebody's, queries and what is not shared by design once.
    #[test]
    fn everything_is_divided_and_nothing_twice() {
        let mut divided = 0;
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
                    let Ok(shares) = Share::divide(&config, &infos, devices) else { continue };
                    divided += 1;
                    let (mut queries, mut feed, mut vocab, mut keys) = (0, 0, 0, 0);
                    for share in &shares {
                        assert_eq!([share.queries.start, share.feed.start, share.vocab.start], [queries, feed, vocab], "{share:?}");
                        [queries, feed, vocab] = [share.queries.end, share.feed.end, share.vocab.end];
                        let Config { heads: mine, kv_heads: mine_kv, .. } = share.config;
                        assert!(mine > 0 && !share.feed.is_empty() && !share.vocab.is_empty(), "{share:?}");
                        // Each of its queries finds the head of keys that it had: mine are to keys as all are.
                        for query in 0..mine {
                            let of_all = (share.queries.start / head_dim + query) / (heads / kv_heads);
                            assert_eq!(share.keys.start / head_dim + query / (mine / mine_kv), of_all, "{share:?}");
                        }
                        assert!(share.keys.start <= keys && share.keys.end >= keys, "{share:?}");
                        keys = share.keys.end;
                        for info in &infos[..2] {
                            let Cut::Columns(columns) = share.cut(&info.name, 4096) else { panic!("{}", info.name) };
                            let block = info.kind.block().0;
                            assert!(columns.start.is_multiple_of(block) && columns.end.is_multiple_of(block), "{share:?} {}", info.name);
                        }
                    }
                    assert_eq!([queries, feed, vocab, keys], [heads * head_dim, 1280, 1003, kv_heads * head_dim]);
                }
            }
        }
        assert!(divided > 100, "{divided}");
    }
}
