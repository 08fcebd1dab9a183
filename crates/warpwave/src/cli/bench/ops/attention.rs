//! Attention of many queries.

use warpwave_kernels::{AttentionOptions, DType, KeyValues, Layout, View, ViewMut};

use super::case::{Bench, Case, Run, Sizes, Work, torch_type};

/// A call: how many sequences of how many queries and keys, heads of both, the head's size.
#[derive(Clone, Copy)]
struct Call {
    dtype: DType,
    sequences: usize,
    len: usize,
    heads: (usize, usize),
    dim: usize,
    causal: bool,
}

pub fn cases(sizes: Sizes) -> Vec<Case> {
    let usual = Call { dtype: DType::Bf16, sequences: 2, len: 8192, heads: (16, 16), dim: 128, causal: false };
    let mut calls = Vec::new();
    for causal in [false, true] {
        let usual = Call { causal, ..usual };
        calls.extend([(8, 2048), (2, 8192), (1, 16384)].map(|(sequences, len)| Call { sequences, len, ..usual }));
        calls.extend([64, 256].map(|dim| Call { dim, heads: (2048 / dim, 2048 / dim), ..usual }));
    }
    let causal = Call { causal: true, ..usual };
    calls.extend([Call { dtype: DType::F16, ..causal }, Call { heads: (32, 8), sequences: 1, ..causal }]);
    calls.push(Call { dtype: DType::F32, len: 4096, ..usual });
    // PyTorch's own ways: FlashAttention-2, and cuDNN's; of f32 it has neither.
    let ways = |dtype| match dtype {
        DType::F32 => &[("EFFICIENT_ATTENTION", "memory-efficient")][..],
        _ => &[("FLASH_ATTENTION", "FlashAttention-2"), ("CUDNN_ATTENTION", "cuDNN")],
    };
    calls.into_iter().flat_map(|call| ways(call.dtype).iter().map(move |way| case(sizes, call, *way))).collect()
}

fn case(sizes: Sizes, call: Call, (backend, peer): (&str, &str)) -> Case {
    let Call { dtype, heads: (heads, kv_heads), dim, causal, .. } = call;
    let (sequences, len) = (sizes.of(call.sequences, 1), sizes.of(call.len, 64));
    let make = move |bench: &Bench| {
        let (kernels, stream) = (bench.kernels.clone(), bench.stream.clone());
        let shape = move |heads: usize| Layout::contiguous(&[sequences, len, heads, dim]);
        let (q_len, kv_len) = (sequences * len * heads * dim, sequences * len * kv_heads * dim);
        let (q, k, v) = (bench.normal(dtype, q_len)?, bench.normal(dtype, kv_len)?, bench.normal(dtype, kv_len)?);
        let mut out = bench.room(dtype, q_len)?;
        let options = AttentionOptions { causal, ..AttentionOptions::new(1.0 / (dim as f32).sqrt()) };
        let run: Run = Box::new(move || {
            let keys = View::of_bytes(&k, dtype, shape(kv_heads)?)?;
            let values = View::of_bytes(&v, dtype, shape(kv_heads)?)?;
            let keys = KeyValues { keys, values, table: None, lengths: None };
            let mut out = ViewMut::of_bytes(&mut out, dtype, shape(heads)?)?;
            Ok(kernels.attention(&stream, &View::of_bytes(&q, dtype, shape(heads)?)?, &keys, &options, &mut out, None)?)
        });
        Ok(run)
    };
    let flops = 4 * sequences * heads * len * len * dim / if causal { 2 } else { 1 };
    let shape = if heads == kv_heads { format!("{heads}") } else { format!("{heads}/{kv_heads}") };
    let name = format!("attention{} {dtype} {sequences}x{len}x{shape}x{dim}, {peer}", if causal { " causal" } else { "" });
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
    Case::new(name, Work::Flops(flops as u64), make).torch(setup, "run()")
}
