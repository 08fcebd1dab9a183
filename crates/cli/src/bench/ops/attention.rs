//! Attention of many queries, whole and in its parts.

use warpwave_kernels::{AttentionOptions, DType, KeyValues, Layout, Varlen, View, ViewMut, Window};

use super::case::{Bench, Case, Run, Sizes, Work, scattered, torch_type};

/// The layout of the sequences: a batch, paged keys in blocks of this size, or packed (varlen).
#[derive(Clone, Copy)]
enum Lying {
    Batch,
    Blocks(usize),
    Packed,
}

/// What a call has besides a causal mask.
#[derive(Clone, Copy)]
enum Extra {
    Nothing,
    /// A sliding window of this size.
    Window(usize),
    Sinks,
}

/// A call: how many sequences of how many queries and keys, heads of both, the head's size.
#[derive(Clone, Copy)]
struct Call {
    dtype: DType,
    sequences: usize,
    len: usize,
    heads: (usize, usize),
    dim: usize,
    causal: bool,
    lying: Lying,
    extra: Extra,
}

pub fn cases(sizes: Sizes) -> Vec<Case> {
    let usual = Call {
        dtype: DType::Bf16,
        sequences: 2,
        len: 8192,
        heads: (16, 16),
        dim: 128,
        causal: false,
        lying: Lying::Batch,
        extra: Extra::Nothing,
    };
    let mut calls = Vec::new();
    for causal in [false, true] {
        let usual = Call { causal, ..usual };
        calls.extend([(8, 2048), (2, 8192), (1, 16384)].map(|(sequences, len)| Call { sequences, len, ..usual }));
        calls.extend([64, 256].map(|dim| Call { dim, heads: (2048 / dim, 2048 / dim), ..usual }));
    }
    let causal = Call { causal: true, ..usual };
    calls.extend([Call { dtype: DType::F16, ..causal }, Call { heads: (32, 8), sequences: 1, ..causal }]);
    calls.push(Call { dtype: DType::F32, len: 4096, ..usual });
    let blocks = Call { sequences: 1, lying: Lying::Blocks(16), ..causal };
    calls.extend([64, 128, 256].map(|dim| Call { dim, heads: (4096 / dim, 1024 / dim), ..blocks }));
    calls.push(Call { sequences: 8, len: 2048, lying: Lying::Packed, ..causal });
    // PyTorch has none of these.
    let extras = [Extra::Window(1024), Extra::Sinks].map(|extra| Call { extra, ..causal });
    let large = [320, 512].map(|dim| Call { dim, heads: (2560 / dim, 2560 / dim), len: 4096, ..usual });
    calls.extend(extras.into_iter().chain(large));
    // PyTorch's own ways: FlashAttention-2, and cuDNN's; of f32 it has neither.
    let ways = |call: Call| match call {
        Call { extra: Extra::Window(_) | Extra::Sinks, .. } | Call { dim: 257.., .. } => &[None][..],
        Call { dtype: DType::F32, .. } => &[Some(("EFFICIENT_ATTENTION", "memory-efficient"))],
        _ => &[Some(("FLASH_ATTENTION", "FlashAttention-2")), Some(("CUDNN_ATTENTION", "cuDNN"))],
    };
    let whole = calls.into_iter().flat_map(|call| ways(call).iter().map(move |way| case(sizes, call, *way)));
    whole.chain([true, false].map(|scores| part(sizes, scores))).collect()
}

/// Causal attention over a batch of prompts.
pub fn batch_cases(sizes: Sizes, batch: &[usize]) -> Vec<Case> {
    let len = sizes.of(2048, 64);
    let call = |sequences| Call {
        dtype: DType::Bf16,
        sequences,
        len,
        heads: (32, 8),
        dim: 128,
        causal: true,
        lying: Lying::Batch,
        extra: Extra::Nothing,
    };
    // The sizes above are final.
    let exact = Sizes { small: false };
    batch.iter().map(|sequences| case(exact, call(*sequences), Some(("FLASH_ATTENTION", "FlashAttention-2")))).collect()
}

fn case(sizes: Sizes, call: Call, peer: Option<(&str, &str)>) -> Case {
    let Call { dtype, heads: (heads, kv_heads), dim, causal, lying, extra, .. } = call;
    let (sequences, len) = (sizes.of(call.sequences, 1), sizes.of(call.len, 64));
    let make = move |bench: &Bench| {
        let (kernels, stream) = (bench.kernels.clone(), bench.stream.clone());
        let rows = |heads: usize| match lying {
            Lying::Packed => Layout::contiguous(&[sequences * len, heads, dim]),
            _ => Layout::contiguous(&[sequences, len, heads, dim]),
        };
        let (q_layout, mut kv_layout) = (rows(heads)?, rows(kv_heads)?);
        // Where each sequence's blocks are, or where each sequence starts.
        let (table, table_layout) = match lying {
            Lying::Batch => (vec![], Layout::contiguous(&[0])?),
            Lying::Blocks(block) => {
                kv_layout = Layout::contiguous(&[sequences * len / block, block, kv_heads, dim])?;
                (scattered(sequences * len / block), Layout::contiguous(&[sequences, len / block])?)
            }
            Lying::Packed => ((0..=sequences).map(|i| (i * len) as u32).collect(), Layout::contiguous(&[sequences + 1])?),
        };
        let table = stream.upload(&table)?;
        let (q_len, kv_len) = (sequences * len * heads * dim, sequences * len * kv_heads * dim);
        let (q, k, v) = (bench.normal(dtype, q_len)?, bench.normal(dtype, kv_len)?, bench.normal(dtype, kv_len)?);
        let mut out = bench.room(dtype, q_len)?;
        let sinks = bench.normal(DType::F32, heads)?;
        let window = match extra {
            Extra::Window(keys) => Window::sliding(keys),
            _ if causal => Window::CAUSAL,
            _ => Window::FULL,
        };
        let run: Run = Box::new(move || {
            let (keys, values) = (View::of_bytes(&k, dtype, kv_layout)?, View::of_bytes(&v, dtype, kv_layout)?);
            let (q, mut out) = (View::of_bytes(&q, dtype, q_layout)?, ViewMut::of_bytes(&mut out, dtype, q_layout)?);
            let table = View::new(&table, table_layout)?;
            let sinks = View::of_bytes(&sinks, DType::F32, Layout::contiguous(&[heads])?)?;
            let sinks = matches!(extra, Extra::Sinks).then_some(sinks);
            let options = AttentionOptions { window, sinks, ..AttentionOptions::new(1.0 / (dim as f32).sqrt()) };
            let paged = matches!(lying, Lying::Blocks(_)).then_some(table);
            let keys = KeyValues { keys, values, table: paged, lengths: None };
            if let Lying::Packed = lying {
                let packed = Varlen { q_starts: table, max_q_len: len, kv_starts: Some(table) };
                return Ok(kernels.attention_varlen(&stream, &q, &keys, &packed, &options, &mut out, None)?);
            }
            Ok(kernels.attention(&stream, &q, &keys, &options, &mut out, None)?)
        });
        Ok(run)
    };
    // Pairs of a query and a key that it sees.
    let pairs = match extra {
        Extra::Window(keys) if keys < len => keys * (len - keys) + keys * keys / 2,
        _ => len * len / if causal { 2 } else { 1 },
    };
    let flops = 4 * sequences * heads * pairs * dim;
    let shape = if heads == kv_heads { format!("{heads}") } else { format!("{heads}/{kv_heads}") };
    // PyTorch has each sequence's keys in a row, and as many for each.
    let how = match lying {
        Lying::Batch => String::new(),
        Lying::Blocks(block) => format!(" in blocks of {block}"),
        Lying::Packed => " packed".to_owned(),
    };
    let extra = match extra {
        Extra::Nothing => String::new(),
        Extra::Window(keys) => format!(", window of {keys}"),
        Extra::Sinks => ", sinks".to_owned(),
    };
    let name = format!("attention{} {dtype} {sequences}x{len}x{shape}x{dim}{how}{extra}", if causal { " causal" } else { "" });
    let Some((backend, peer)) = peer else { return Case::new(name, Work::Flops(flops as u64), make) };
    let tensor = |heads: usize| format!("randn({sequences}, {len}, {heads}, {dim}, dtype={}).transpose(1, 2)", torch_type(dtype));
    let setup = format!(
        "from torch.nn.attention import sdpa_kernel, SDPBackend\n\
         q, k, v = {0}, {1}, {1}\n\
         def run():\n    \
         with sdpa_kernel([SDPBackend.{backend}]): return F.scaled_dot_product_attention(q, k, v, is_causal={2}, enable_gqa={3})",
        tensor(heads),
        tensor(kv_heads),
        if causal { "True" } else { "False" },
        if heads == kv_heads { "False" } else { "True" },
    );
    Case::new(format!("{name}, {peer}"), Work::Flops(flops as u64), make).torch(setup, "run()")
}

/// The scores alone, or the sum that they are the weights of.
fn part(sizes: Sizes, scores: bool) -> Case {
    let (dtype, len, heads, dim) = (DType::Bf16, sizes.of(1024, 16), sizes.of(16, 2), 128);
    let make = move |bench: &Bench| {
        let (kernels, stream) = (bench.kernels.clone(), bench.stream.clone());
        let (rows, square) = (Layout::contiguous(&[1, len, heads, dim])?, Layout::contiguous(&[1, heads, len, len])?);
        let (from, to) = if scores { (rows, square) } else { (square, rows) };
        let (a, b, mut out) = (bench.normal(dtype, from.len())?, bench.normal(dtype, rows.len())?, bench.room(dtype, to.len())?);
        let run: Run = Box::new(move || {
            let (a, b) = (View::of_bytes(&a, dtype, from)?, View::of_bytes(&b, dtype, rows)?);
            let mut out = ViewMut::of_bytes(&mut out, dtype, to)?;
            match scores {
                true => Ok(kernels.attention_scores(&stream, (&a, &b), 0.125, None, &mut out)?),
                false => Ok(kernels.weighted_sum(&stream, &a, &b, &mut out)?),
            }
        });
        Ok(run)
    };
    let (op, columns, call) = if scores { ("attention_scores", dim, "(a * 0.125) @ b.mT") } else { ("weighted_sum", len, "a @ b") };
    let setup =
        format!("a = randn(1, {heads}, {len}, {columns}, dtype={0}); b = randn(1, {heads}, {len}, {dim}, dtype={0})", torch_type(dtype));
    Case::new(format!("{op} {dtype} 1x{len}x{heads}x{dim}"), Work::Flops((2 * heads * len * len * dim) as u64), make).torch(setup, call)
}
