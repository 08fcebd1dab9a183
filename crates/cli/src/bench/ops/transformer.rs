//! Operations of transformers: rotary embedding, cache append, gated units, attention of few queries, sampling.

use warpwave_kernels::{
    AttentionOptions, CachePositions, DType, Glu, KeyValues, Layout, Penalties, Positions, RandomSource, Rope, RopeAngles, RopePairs,
    RopeScaling, Sampling, View, ViewMut,
};

use super::case::{Bench, Case, Run, Sizes, Work, scattered, torch_type};
use super::index::ids;

const DIM: usize = 128;
/// Keys of a pool's block.
const BLOCK: usize = 16;

pub fn cases(sizes: Sizes) -> Vec<Case> {
    use DType::{Bf16, F32};
    let mut cases = Vec::new();
    for dtype in [F32, Bf16] {
        cases.extend(
            [(Glu::Silu, "F.silu(a) * b"), (Glu::Gelu, "F.gelu(a, approximate='tanh') * b")].map(|(op, call)| glu(sizes, op, dtype, call)),
        );
    }
    for (op, call) in [(Glu::GeluErf, "F.gelu(a) * b"), (Glu::Relu, "F.relu(a) * b"), (Glu::Sigmoid, "torch.sigmoid(a) * b")] {
        cases.push(glu(sizes, op, Bf16, call));
    }
    cases.push(glu_halves(sizes, Bf16));
    for dtype in [F32, Bf16] {
        let halves = |[sequences, tokens]: [usize; 2]| rope(sizes, dtype, [sequences, tokens], RopePairs::Halves, false);
        cases.extend([[8, 4096], [32, 1]].map(halves));
    }
    cases.push(rope(sizes, Bf16, [8, 4096], RopePairs::Interleaved, false));
    cases.push(rope(sizes, Bf16, [8, 4096], RopePairs::Halves, true));
    cases.extend([[8, 4096], [32, 1]].map(|[sequences, tokens]| rope_append(sizes, Bf16, sequences, tokens)));
    cases.extend([[8, 4096], [32, 1]].map(|[sequences, tokens]| append(sizes, Bf16, sequences, tokens)));
    cases.extend([[16, 4096], [32, 1]].map(|[sequences, tokens]| append_to_pool(sizes, Bf16, sequences, tokens, false)));
    cases.push(append_to_pool(sizes, Bf16, 16, 4096, true));
    for (dtype, sequences, heads, kv_heads, keys, block) in [
        (Bf16, 32, 32, 8, 8192, 0),
        (DType::F16, 32, 32, 8, 8192, 0),
        (Bf16, 32, 32, 8, 8192, BLOCK),
        (Bf16, 32, 32, 32, 2048, 0),
        (Bf16, 1, 32, 8, 131_072, 0),
        (F32, 16, 32, 8, 8192, 0),
    ] {
        cases.push(decode(sizes, dtype, [sequences, heads, kv_heads, keys, block], 0));
    }
    cases.extend([8, 64].map(|drafts| decode(sizes, Bf16, [1, 32, 8, 8192, BLOCK], drafts)));
    cases.extend([true, false].map(|greedy| sample(sizes, greedy)));
    cases.push(penalize(sizes));
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
    Case::new(format!("swiglu packed {dtype} {rows}x{columns}"), Work::Bytes((3 * rows * columns * dtype.size()) as u64), make)
        .torch(format!("x = randn({rows}, {}, dtype={}); a, b = x.chunk(2, -1)", 2 * columns, torch_type(dtype)), "F.silu(a) * b")
}

/// PyTorch's cosines and sines of the given number of positions, for pairs of head halves or interleaved pairs.
fn torch_angles(dtype: DType, tokens: usize, pairs: RopePairs) -> String {
    let each = |f: &str| match pairs {
        RopePairs::Halves => format!("torch.cat((t.{f}(), t.{f}()), -1)"),
        RopePairs::Interleaved => format!("t.{f}()"),
    };
    format!(
        "w = 10000.0 ** (-torch.arange(0, {DIM}, 2, device='cuda') / {DIM}); \
         t = torch.arange({tokens}, device='cuda')[:, None] * w; \
         c = {1}.to({0})[None, :, None]; s = {2}.to({0})[None, :, None]; h = {3}",
        torch_type(dtype),
        each("cos"),
        each("sin"),
        DIM / 2
    )
}

/// By frequencies, or by tables of cosines and sines.
fn rope(sizes: Sizes, dtype: DType, [sequences, tokens]: [usize; 2], pairs: RopePairs, by_tables: bool) -> Case {
    let (sequences, tokens, heads) = (sizes.of(sequences, 1), sizes.of(tokens, 2), sizes.of(32, 4));
    let shape = [sequences, tokens, heads, DIM];
    let len: usize = shape.iter().product();
    let make = move |bench: &Bench| {
        let (kernels, stream) = (bench.kernels.clone(), bench.stream.clone());
        let (x, mut out) = (bench.normal(dtype, len)?, bench.room(dtype, len)?);
        let (frequencies, factor) = RopeScaling::None.frequencies(DIM, 10000.0);
        let angles = (0..if by_tables { tokens } else { 0 }).flat_map(|place| frequencies.iter().map(move |w| place as f32 * w));
        let (cos, sin): (Vec<f32>, Vec<f32>) = angles.map(|angle| (angle.cos(), angle.sin())).unzip();
        let (cos, sin, frequencies) = (stream.upload(&cos)?, stream.upload(&sin)?, stream.upload(&frequencies)?);
        let layout = Layout::contiguous(&shape)?;
        let run: Run = Box::new(move || {
            let angles = if by_tables {
                let table = Layout::contiguous(&[tokens, DIM / 2])?;
                RopeAngles::Tables { cos: View::new(&cos, table)?, sin: View::new(&sin, table)? }
            } else {
                RopeAngles::Frequencies { frequencies: View::new(&frequencies, Layout::contiguous(&[DIM / 2])?)?, factor }
            };
            let rope = Rope { pairs, angles, positions: Positions::From(0) };
            Ok(kernels.rope(&stream, &rope, &View::of_bytes(&x, dtype, layout)?, &mut ViewMut::of_bytes(&mut out, dtype, layout)?)?)
        });
        Ok(run)
    };
    let bytes = 2 * len * dtype.size();
    let work = if tokens == 1 { Work::Small } else { Work::Bytes(bytes as u64) };
    let setup = format!(
        "x = randn({sequences}, {tokens}, {heads}, {DIM}, dtype={}); a = x[..., 0::2]; b = x[..., 1::2]; {}",
        torch_type(dtype),
        torch_angles(dtype, tokens, pairs)
    );
    let (of, call) = match pairs {
        RopePairs::Halves => ("", "x * c + torch.cat((-x[..., h:], x[..., :h]), -1) * s"),
        RopePairs::Interleaved => (" interleaved", "torch.stack((a * c - b * s, b * c + a * s), -1).flatten(-2)"),
    };
    let by = if by_tables { " by tables" } else { "" };
    Case::new(format!("rope{of}{by} {dtype} {sequences}x{tokens}x{heads}x{DIM}"), work, make).torch(setup, call)
}

/// Queries and keys are rotated, and keys and values go into a pool.
fn rope_append(sizes: Sizes, dtype: DType, sequences: usize, tokens: usize) -> Case {
    let (sequences, tokens) = (sizes.of(sequences, 1), sizes.of(tokens, 2));
    let (heads, kv_heads) = (sizes.of(32, 4), sizes.of(8, 2));
    let rows = sequences * tokens;
    let blocks = rows.div_ceil(BLOCK);
    let (q_len, kv_len, room) = (rows * heads * DIM, rows * kv_heads * DIM, blocks * BLOCK * kv_heads * DIM);
    let make = move |bench: &Bench| {
        let (kernels, stream) = (bench.kernels.clone(), bench.stream.clone());
        let (q, k, v) = (bench.normal(dtype, q_len)?, bench.normal(dtype, kv_len)?, bench.normal(dtype, kv_len)?);
        let (mut out, mut k_pool, mut v_pool) = (bench.room(dtype, q_len)?, bench.room(dtype, room)?, bench.room(dtype, room)?);
        let (frequencies, factor) = RopeScaling::None.frequencies(DIM, 10000.0);
        let table = stream.upload(&frequencies)?;
        let places = stream.upload(&(0..tokens as u32).collect::<Vec<_>>())?;
        let slots = scattered(blocks).into_iter().flat_map(|block| (0..BLOCK as u32).map(move |i| block * BLOCK as u32 + i));
        let slots = stream.upload(&slots.take(rows).collect::<Vec<_>>())?;
        let of = move |heads: usize| Layout::contiguous(&[sequences, tokens, heads, DIM]);
        let pool = Layout::contiguous(&[blocks, BLOCK, kv_heads, DIM])?;
        let run: Run = Box::new(move || {
            let frequencies = View::new(&table, Layout::contiguous(&[DIM / 2])?)?;
            let positions = Positions::Ids(View::new(&places, Layout::contiguous(&[tokens])?)?);
            let rope = Rope { pairs: RopePairs::Halves, angles: RopeAngles::Frequencies { frequencies, factor }, positions };
            let (k, v) = (View::of_bytes(&k, dtype, of(kv_heads)?)?, View::of_bytes(&v, dtype, of(kv_heads)?)?);
            let (q, mut out) = (View::of_bytes(&q, dtype, of(heads)?)?, ViewMut::of_bytes(&mut out, dtype, of(heads)?)?);
            let slots = View::new(&slots, Layout::contiguous(&[sequences, tokens])?)?;
            let mut pools = (ViewMut::of_bytes(&mut k_pool, dtype, pool)?, ViewMut::of_bytes(&mut v_pool, dtype, pool)?);
            Ok(kernels.rope_append(&stream, &rope, [&q, &k, &v], &slots, &mut out, (&mut pools.0, &mut pools.1))?)
        });
        Ok(run)
    };
    let work = if tokens == 1 { Work::Small } else { Work::Bytes((2 * (q_len + 2 * kv_len) * dtype.size()) as u64) };
    let setup = format!(
        "q = randn({sequences}, {tokens}, {heads}, {DIM}, dtype={0}); k = randn({sequences}, {tokens}, {kv_heads}, {DIM}, dtype={0}); \
         v = torch.randn_like(k); p = torch.zeros({1}, {kv_heads}, {DIM}, dtype={0}, device='cuda'); r = torch.zeros_like(p); \
         i = (torch.randperm({blocks}, device='cuda')[:, None] * {BLOCK} + torch.arange({BLOCK}, device='cuda')).flatten()[:{rows}]; {2}\n\
         def rotated(x): return x * c + torch.cat((-x[..., h:], x[..., :h]), -1) * s",
        torch_type(dtype),
        blocks * BLOCK,
        torch_angles(dtype, tokens, RopePairs::Halves)
    );
    Case::new(format!("rope_append {dtype} {sequences}x{tokens}x{heads}/{kv_heads}x{DIM}"), work, make)
        .torch(setup, "(rotated(q), p.index_copy_(0, i, rotated(k).flatten(0, 1)), r.index_copy_(0, i, v.flatten(0, 1)))")
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
            Ok(kernels.append(&stream, (&k, &v), CachePositions::Start(32), (&mut caches.0, &mut caches.1))?)
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

/// Into blocks all over a pool, by each sequence's table or by a slot for each token.
fn append_to_pool(sizes: Sizes, dtype: DType, sequences: usize, tokens: usize, by_slots: bool) -> Case {
    let (sequences, tokens, heads, start) = (sizes.of(sequences, 1), sizes.of(tokens, 2), 8, 32);
    let each = (start + tokens).div_ceil(BLOCK);
    let blocks = sequences * each;
    let (len, room) = (sequences * tokens * heads * DIM, blocks * BLOCK * heads * DIM);
    let make = move |bench: &Bench| {
        let (kernels, stream) = (bench.kernels.clone(), bench.stream.clone());
        let (k, v) = (bench.normal(dtype, len)?, bench.normal(dtype, len)?);
        let (mut k_pool, mut v_pool) = (bench.room(dtype, room)?, bench.room(dtype, room)?);
        let table = scattered(blocks);
        let slot = |sequence: usize, place: usize| table[sequence * each + place / BLOCK] * BLOCK as u32 + (place % BLOCK) as u32;
        let slots: Vec<u32> = (0..sequences * tokens).map(|row| slot(row / tokens, start + row % tokens)).collect();
        let (slots, table, starts) = (stream.upload(&slots)?, stream.upload(&table)?, stream.upload(&vec![start as u32; sequences])?);
        let (from, to) = (Layout::contiguous(&[sequences, tokens, heads, DIM])?, Layout::contiguous(&[blocks, BLOCK, heads, DIM])?);
        let run: Run = Box::new(move || {
            let (k, v) = (View::of_bytes(&k, dtype, from)?, View::of_bytes(&v, dtype, from)?);
            let mut pools = (ViewMut::of_bytes(&mut k_pool, dtype, to)?, ViewMut::of_bytes(&mut v_pool, dtype, to)?);
            let at = if by_slots {
                CachePositions::Slots(View::new(&slots, Layout::contiguous(&[sequences, tokens])?)?)
            } else {
                let starts = View::new(&starts, Layout::contiguous(&[sequences])?)?;
                CachePositions::Paged { starts, table: View::new(&table, Layout::contiguous(&[sequences, each])?)? }
            };
            Ok(kernels.append(&stream, (&k, &v), at, (&mut pools.0, &mut pools.1))?)
        });
        Ok(run)
    };
    let work = if tokens == 1 { Work::Small } else { Work::Bytes((4 * len * dtype.size()) as u64) };
    let setup = format!(
        "k = randn({sequences}, {tokens}, {heads}, {DIM}, dtype={0}); v = k.clone(); \
         p = torch.zeros({1}, {heads}, {DIM}, dtype={0}, device='cuda'); q = torch.zeros_like(p); \
         t = torch.randperm({blocks}, device='cuda').view({sequences}, {each}); n = torch.arange({start}, {2}, device='cuda'); \
         i = (t[:, n // {BLOCK}] * {BLOCK} + n % {BLOCK}).flatten()",
        torch_type(dtype),
        blocks * BLOCK,
        start + tokens
    );
    let by = if by_slots { " by slots" } else { "" };
    Case::new(format!("append{by} {dtype} {sequences}x{tokens}x{heads}x{DIM} in blocks of {BLOCK}"), work, make)
        .torch(setup, "(p.index_copy_(0, i, k.flatten(0, 1)), q.index_copy_(0, i, v.flatten(0, 1)))")
}

/// Decode attention over a batch of sequences, with a contiguous and a paged KV cache.
pub fn batch_cases(sizes: Sizes, batch: &[usize]) -> Vec<Case> {
    let keys = sizes.of(8192, 4 * BLOCK);
    // The sizes above are final.
    let exact = Sizes { small: false };
    let cases = |block| batch.iter().map(move |sequences| decode(exact, DType::Bf16, [*sequences, 32, 8, keys, block], 0));
    [0, BLOCK].into_iter().flat_map(cases).collect()
}

/// One token per sequence, or drafts with a tree mask; paged keys in blocks of the given size, or contiguous keys.
fn decode(sizes: Sizes, dtype: DType, [sequences, heads, kv_heads, keys, block]: [usize; 5], drafts: usize) -> Case {
    let tokens = drafts.max(1);
    let (sequences, keys) = (sizes.of(sequences, 2), sizes.of(keys, 64));
    let (q_len, kv_len) = (sequences * tokens * heads * DIM, sequences * keys * kv_heads * DIM);
    let make = move |bench: &Bench| {
        let (kernels, stream) = (bench.kernels.clone(), bench.stream.clone());
        let (q, k, v) = (bench.normal(dtype, q_len)?, bench.normal(dtype, kv_len)?, bench.normal(dtype, kv_len)?);
        let mut out = bench.room(dtype, q_len)?;
        // The drafts of a binary tree: each sees itself and those it follows from.
        let path =
            |draft: usize| std::iter::successors(Some(draft), |i| i.checked_sub(1).map(|i| i / 2)).fold(0i64, |word, i| word | 1 << i);
        let words: Vec<i64> = (0..sequences * tokens).map(|i| path(i % tokens)).collect();
        let words = stream.upload(&words)?;
        let blocks = (sequences * keys).checked_div(block).unwrap_or(0);
        let table = stream.upload(&scattered(blocks))?;
        let q_layout = Layout::contiguous(&[sequences, tokens, heads, DIM])?;
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
            let tree = View::new(&words, Layout::contiguous(&[sequences, tokens])?)?;
            let options = AttentionOptions { tree: (drafts > 0).then_some(tree), ..AttentionOptions::new(1.0 / (DIM as f32).sqrt()) };
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
    let work = Work::Bytes((2 * kv_len * dtype.size()) as u64);
    match drafts {
        0 => Case::new(name, work, make).torch(setup, call),
        _ => Case::new(format!("{name}, {drafts} drafts"), work, make),
    }
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
            Ok(kernels.sample(&stream, &logits, &sampling, RandomSource::Seed { seed: 1, offset: 0 }, &mut tokens, None)?)
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

fn penalize(sizes: Sizes) -> Case {
    let (rows, vocabulary, length) = (sizes.of(32, 2), sizes.of(128_256, 1000), sizes.of(512, 16));
    let make = move |bench: &Bench| {
        let (kernels, stream) = (bench.kernels.clone(), bench.stream.clone());
        let (mut logits, text) = (bench.normal(DType::F32, rows * vocabulary)?, ids(bench, rows * length, vocabulary)?);
        let penalties = Penalties { repetition: 1.1, presence: 0.1, frequency: 0.1 };
        let run: Run = Box::new(move || {
            let mut logits = ViewMut::of_bytes(&mut logits, DType::F32, Layout::contiguous(&[rows, vocabulary])?)?;
            Ok(kernels.penalize(&stream, &penalties, &View::new(&text, Layout::contiguous(&[rows, length])?)?, &mut logits)?)
        });
        Ok(run)
    };
    let setup = format!(
        "x = randn({rows}, {vocabulary}); t = randint(0, {vocabulary}, ({rows}, {length})); o = torch.ones({rows}, {length}, device='cuda')\n\
         def f():\n    \
         n = torch.zeros_like(x).scatter_add_(1, t, o).gather(1, t)\n    \
         y = x.gather(1, t)\n    \
         return x.scatter_(1, t, torch.where(y > 0, y / 1.1, y * 1.1) - 0.1 - 0.1 * n)"
    );
    Case::new(format!("sampling penalties f32 {rows}x{vocabulary}, {length} tokens"), Work::Small, make).torch(setup, "f()")
}
