//! Operations of transformers: rotary embedding, cache append, gated units, attention of few queries, sampling.

use warpwave_kernels::{
    AppendAt, AttentionOptions, DType, Glu, KeyValues, Layout, Places, Randomness, Rope, RopeAngles, RopePairs, RopeScaling, Sampling,
    View, ViewMut,
};

use super::case::{Bench, Case, Run, Sizes, Work, torch_type};

const DIM: usize = 128;

pub fn cases(sizes: Sizes) -> Vec<Case> {
    use DType::{Bf16, F32};
    let mut cases = Vec::new();
    for dtype in [F32, Bf16] {
        cases.extend(
            [(Glu::Silu, "F.silu(a) * b"), (Glu::Gelu, "F.gelu(a, approximate='tanh') * b")].map(|(op, call)| glu(sizes, op, dtype, call)),
        );
    }
    cases.push(glu_halves(sizes, Bf16));
    for dtype in [F32, Bf16] {
        cases.extend([[8, 4096], [32, 1]].map(|[sequences, tokens]| rope(sizes, dtype, sequences, tokens)));
    }
    cases.extend([[8, 4096], [32, 1]].map(|[sequences, tokens]| append(sizes, Bf16, sequences, tokens)));
    for (dtype, sequences, heads, kv_heads, keys, block) in [
        (Bf16, 32, 32, 8, 8192, 0),
        (DType::F16, 32, 32, 8, 8192, 0),
        (Bf16, 32, 32, 8, 8192, 16),
        (Bf16, 32, 32, 32, 2048, 0),
        (Bf16, 1, 32, 8, 131_072, 0),
        (F32, 16, 32, 8, 8192, 0),
    ] {
        cases.push(decode(sizes, dtype, [sequences, heads, kv_heads, keys, block]));
    }
    cases.extend([true, false].map(|greedy| sample(sizes, greedy)));
    cases
}

fn glu(sizes: Sizes, op: Glu, dtype: DType, call: &str) -> Case {
    let len = sizes.of(1 << 30, 1 << 17) / 3 / dtype.size() / 4096 * 4096;
    let make = move |bench: &Bench| {
        let (kernels, stream) = (bench.kernels.clone(), bench.stream.clone());
        let (a, b, mut out) = (bench.normal(dtype, len)?, bench.normal(dtype, len)?, bench.room(dtype, len)?);
        let row = Layout::contiguous(&[len])?;
        let run: Run = Box::new(move || {
            let (a, b) = (View::of_bytes(&a, dtype, row)?, View::of_bytes(&b, dtype, row)?);
            Ok(kernels.glu(&stream, op, &a, &b, &mut ViewMut::of_bytes(&mut out, dtype, row)?)?)
        });
        Ok(run)
    };
    Case::new(format!("{} {dtype} {len}", op.name()), Work::Bytes((3 * len * dtype.size()) as u64), make)
        .torch(format!("a = randn({len}, dtype={0}); b = randn({len}, dtype={0})", torch_type(dtype)), call)
}

fn glu_halves(sizes: Sizes, dtype: DType) -> Case {
    let (rows, columns) = (sizes.of(16384, 4), 8192);
    let make = move |bench: &Bench| {
        let (kernels, stream) = (bench.kernels.clone(), bench.stream.clone());
        let (x, mut out) = (bench.normal(dtype, 2 * rows * columns)?, bench.room(dtype, rows * columns)?);
        let (from, to) = (Layout::contiguous(&[rows, 2 * columns])?, Layout::contiguous(&[rows, columns])?);
        let run: Run = Box::new(move || {
            let x = View::of_bytes(&x, dtype, from)?;
            Ok(kernels.glu_halves(&stream, Glu::Silu, &x, &mut ViewMut::of_bytes(&mut out, dtype, to)?)?)
        });
        Ok(run)
    };
    Case::new(format!("swiglu of halves {dtype} {rows}x{columns}"), Work::Bytes((3 * rows * columns * dtype.size()) as u64), make)
        .torch(format!("x = randn({rows}, {}, dtype={}); a, b = x.chunk(2, -1)", 2 * columns, torch_type(dtype)), "F.silu(a) * b")
}

fn rope(sizes: Sizes, dtype: DType, sequences: usize, tokens: usize) -> Case {
    let (sequences, tokens, heads) = (sizes.of(sequences, 1), sizes.of(tokens, 2), sizes.of(32, 4));
    let shape = [sequences, tokens, heads, DIM];
    let len: usize = shape.iter().product();
    let make = move |bench: &Bench| {
        let (kernels, stream) = (bench.kernels.clone(), bench.stream.clone());
        let (x, mut out) = (bench.normal(dtype, len)?, bench.room(dtype, len)?);
        let (frequencies, factor) = RopeScaling::None.frequencies(DIM, 10000.0);
        let table = stream.upload(&frequencies)?;
        let layout = Layout::contiguous(&shape)?;
        let run: Run = Box::new(move || {
            let frequencies = View::new(&table, Layout::contiguous(&[DIM / 2])?)?;
            let rope = Rope { pairs: RopePairs::Halves, angles: RopeAngles::Frequencies { frequencies, factor }, places: Places::From(0) };
            Ok(kernels.rope(&stream, &rope, &View::of_bytes(&x, dtype, layout)?, &mut ViewMut::of_bytes(&mut out, dtype, layout)?)?)
        });
        Ok(run)
    };
    let bytes = 2 * len * dtype.size();
    let work = if tokens == 1 { Work::Small } else { Work::Bytes(bytes as u64) };
    let setup = format!(
        "x = randn({sequences}, {tokens}, {heads}, {DIM}, dtype={0}); \
         w = 10000.0 ** (-torch.arange(0, {DIM}, 2, device='cuda') / {DIM}); \
         t = torch.arange({tokens}, device='cuda')[:, None] * w; \
         c = torch.cat((t.cos(), t.cos()), -1).to({0})[None, :, None]; s = torch.cat((t.sin(), t.sin()), -1).to({0})[None, :, None]; h = {1}",
        torch_type(dtype),
        DIM / 2
    );
    Case::new(format!("rope {dtype} {sequences}x{tokens}x{heads}x{DIM}"), work, make)
        .torch(setup, "x * c + torch.cat((-x[..., h:], x[..., :h]), -1) * s")
}

fn append(sizes: Sizes, dtype: DType, sequences: usize, tokens: usize) -> Case {
    let (sequences, tokens, heads) = (sizes.of(sequences, 1), sizes.of(tokens, 2), 8);
    let (shape, keys) = ([sequences, tokens, heads, DIM], tokens + 64);
    let (len, room) = (sequences * tokens * heads * DIM, sequences * keys * heads * DIM);
    let make = move |bench: &Bench| {
        let (kernels, stream) = (bench.kernels.clone(), bench.stream.clone());
        let (k, v) = (bench.normal(dtype, len)?, bench.normal(dtype, len)?);
        let (mut k_cache, mut v_cache) = (bench.room(dtype, room)?, bench.room(dtype, room)?);
        let (from, to) = (Layout::contiguous(&shape)?, Layout::contiguous(&[sequences, heads, keys, DIM])?.transpose(1, 2)?);
        let run: Run = Box::new(move || {
            let (k, v) = (View::of_bytes(&k, dtype, from)?, View::of_bytes(&v, dtype, from)?);
            let mut caches = (ViewMut::of_bytes(&mut k_cache, dtype, to)?, ViewMut::of_bytes(&mut v_cache, dtype, to)?);
            Ok(kernels.append(&stream, (&k, &v), AppendAt::Start(32), (&mut caches.0, &mut caches.1))?)
        });
        Ok(run)
    };
    let work = if tokens == 1 { Work::Small } else { Work::Bytes((4 * len * dtype.size()) as u64) };
    let setup = format!(
        "k = randn({sequences}, {tokens}, {heads}, {DIM}, dtype={0}); v = k.clone(); \
         p = torch.zeros({sequences}, {heads}, {keys}, {DIM}, dtype={0}, device='cuda').transpose(1, 2); q = torch.zeros_like(p)",
        torch_type(dtype)
    );
    Case::new(format!("append {dtype} {sequences}x{tokens}x{heads}x{DIM}"), work, make)
        .torch(setup, format!("(p[:, 32:32 + {tokens}].copy_(k), q[:, 32:32 + {tokens}].copy_(v))"))
}

/// One token of each sequence; keys in blocks of so many, or each sequence's in a row.
fn decode(sizes: Sizes, dtype: DType, [sequences, heads, kv_heads, keys, block]: [usize; 5]) -> Case {
    let (sequences, keys) = (sizes.of(sequences, 2), sizes.of(keys, 64));
    let (q_len, kv_len) = (sequences * heads * DIM, sequences * keys * kv_heads * DIM);
    let make = move |bench: &Bench| {
        let (kernels, stream) = (bench.kernels.clone(), bench.stream.clone());
        let (q, k, v) = (bench.normal(dtype, q_len)?, bench.normal(dtype, kv_len)?, bench.normal(dtype, kv_len)?);
        let mut out = bench.room(dtype, q_len)?;
        // Every block somewhere else: a step that shares no factor with their number visits them all.
        let blocks = (sequences * keys).checked_div(block).unwrap_or(0);
        let table: Vec<u32> = (0..blocks).map(|i| (i * 10_007 % blocks) as u32).collect();
        let table = stream.upload(&table)?;
        let q_layout = Layout::contiguous(&[sequences, 1, heads, DIM])?;
        let kv_layout = match block {
            0 => Layout::contiguous(&[sequences, kv_heads, keys, DIM])?.transpose(1, 2)?,
            _ => Layout::contiguous(&[blocks, block, kv_heads, DIM])?,
        };
        let run: Run = Box::new(move || {
            let each = keys.checked_div(block).map(|each| Layout::contiguous(&[sequences, each])).transpose()?;
            let table = each.map(|layout| View::new(&table, layout)).transpose()?;
            let kv = KeyValues {
                keys: View::of_bytes(&k, dtype, kv_layout)?,
                values: View::of_bytes(&v, dtype, kv_layout)?,
                table,
                lengths: None,
            };
            let options = AttentionOptions::new(1.0 / (DIM as f32).sqrt());
            let q = View::of_bytes(&q, dtype, q_layout)?;
            Ok(kernels.decode_attention(&stream, &q, &kv, &options, &mut ViewMut::of_bytes(&mut out, dtype, q_layout)?)?)
        });
        Ok(run)
    };
    let paged = if block > 0 { format!(" in blocks of {block}") } else { String::new() };
    let setup = format!(
        "q = randn({sequences}, {heads}, 1, {DIM}, dtype={0}); k = randn({sequences}, {kv_heads}, {keys}, {DIM}, dtype={0}); v = torch.randn_like(k)",
        torch_type(dtype)
    );
    // Without a mask the queries that share keys are as rows of one head, which PyTorch has a way for in f32 too.
    let call = match dtype {
        DType::F32 => format!("F.scaled_dot_product_attention(q.view({sequences}, {kv_heads}, -1, {DIM}), k, v)"),
        _ => "F.scaled_dot_product_attention(q, k, v, enable_gqa=True)".to_owned(),
    };
    let name = format!("decode attention {dtype} {sequences}x{heads}/{kv_heads}x{keys}x{DIM}{paged}");
    Case::new(name, Work::Bytes((2 * kv_len * dtype.size()) as u64), make).torch(setup, call)
}

fn sample(sizes: Sizes, greedy: bool) -> Case {
    let (rows, vocabulary) = (sizes.of(32, 2), sizes.of(128_256, 1000));
    let make = move |bench: &Bench| {
        let (kernels, stream) = (bench.kernels.clone(), bench.stream.clone());
        let logits = bench.normal(DType::F32, rows * vocabulary)?;
        let mut tokens = stream.alloc::<u32>(rows)?;
        let sampling = if greedy { Sampling::GREEDY } else { Sampling { temperature: 0.8, top_k: 50, top_p: 0.9, min_p: 0.0 } };
        let run: Run = Box::new(move || {
            let logits = View::of_bytes(&logits, DType::F32, Layout::contiguous(&[rows, vocabulary])?)?;
            let mut tokens = ViewMut::new(&mut tokens, Layout::contiguous(&[rows])?)?;
            Ok(kernels.sample(&stream, &logits, &sampling, Randomness::Seed { seed: 1, offset: 0 }, &mut tokens, None)?)
        });
        Ok(run)
    };
    let setup = format!("x = randn({rows}, {vocabulary})");
    let (name, setup, call) = match greedy {
        true => ("sample greedy", setup, "torch.argmax(x, -1)"),
        // What top-k leaves is sorted already: the sum of what lies before decides.
        false => (
            "sample top-k 50 top-p 0.9",
            setup
                + "\ndef f(x):\n    v, i = torch.topk(x, 50)\n    p = torch.softmax(v / 0.8, -1)\n    p = p * (p.cumsum(-1) - p < 0.9)\n    return i.gather(-1, torch.multinomial(p, 1))",
            "f(x)",
        ),
    };
    Case::new(format!("{name} f32 {rows}x{vocabulary}"), Work::Small, make).torch(setup, call)
}
