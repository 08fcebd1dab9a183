//! Measures the operations of a small language model on this processor: decoding one token, and a prompt of 512.
//!
//! `cargo run --release -p warpwave-tensor --example cpu_speed [-- ROUNDS ["Avx512 Int8 1"]]`

use std::time::{Duration, Instant};

use warpwave_kernels::{Glu, Quant, RopePairs, Window};
use warpwave_tensor::cpu::{
    Cache, CacheMut, Heads, Interleaved, Isa, Matrix, Precision, Sequence, add, append, attention, glu, matmul, rms_norm, rope,
    rope_tables, with_threads,
};

const LAYERS: usize = 30;
const HIDDEN: usize = 576;
const FORWARD: usize = 1536;
const VOCABULARY: usize = 49152;
const HEADS: Heads = Heads { heads: 9, kv_heads: 3, dim: 64, block: 16, scale: 0.125, window: Window::CAUSAL, soft_cap: None };

/// A model with the shapes of SmolLM2-135M and meaningless weights.
struct Model {
    layers: Vec<[Interleaved; 7]>,
    output: Interleaved,
    norm: Vec<f32>,
    keys: Vec<Vec<half::f16>>,
    values: Vec<Vec<half::f16>>,
    table: Vec<u32>,
}

fn weights(quant: Quant, rows: usize, columns: usize, seed: &mut u32) -> Interleaved {
    let mut data = vec![0; rows * quant.row_bytes(columns).unwrap_or(0)];
    for block in data.chunks_exact_mut(quant.block_bytes()) {
        for byte in &mut *block {
            *seed = seed.wrapping_mul(1664525).wrapping_add(1013904223);
            *byte = (*seed >> 24) as u8;
        }
        // Scales near 0.001.
        block[1] = 0x14;
        if quant == Quant::Q4_1 {
            block[3] = 0x94;
        }
    }
    Interleaved::new(quant, rows, columns, &data)
}

impl Model {
    fn new(context: usize) -> Model {
        let seed = &mut 1;
        let mut layer = |_| {
            let mut matrix = |rows, columns| weights(Quant::Q4_1, rows, columns, seed);
            [
                matrix(HIDDEN, HIDDEN),
                matrix(192, HIDDEN),
                matrix(192, HIDDEN),
                matrix(HIDDEN, HIDDEN),
                matrix(FORWARD, HIDDEN),
                matrix(FORWARD, HIDDEN),
                matrix(HIDDEN, FORWARD),
            ]
        };
        let layers: Vec<_> = (0..LAYERS).map(&mut layer).collect();
        let cache = || (0..LAYERS).map(|_| vec![half::f16::ZERO; context * 192]).collect();
        Model {
            layers,
            output: weights(Quant::Q8_0, VOCABULARY, HIDDEN, seed),
            norm: vec![1.0; HIDDEN],
            keys: cache(),
            values: cache(),
            table: (0..context as u32 / 16).collect(),
        }
    }

    fn bytes(&self) -> usize {
        self.layers.iter().flatten().map(Interleaved::size).sum::<usize>() + self.output.size()
    }

    /// Runs tokens from a position on. Returns the time of products, of attention, and in total.
    fn run(&mut self, start: usize, tokens: usize, activations: Precision) -> [Duration; 3] {
        let begin = Instant::now();
        let (mut products, mut attending) = (Duration::ZERO, Duration::ZERO);
        let mut product = |w: &Interleaved, x: &[f32], out: &mut Vec<f32>| {
            let begin = Instant::now();
            let m = x.len() / w.columns();
            out.resize(m * w.rows(), 0.0);
            matmul(Matrix::Interleaved(w), w.rows(), w.columns(), x, m, out, activations);
            products += begin.elapsed();
        };
        let frequencies: Vec<f32> = (0..32).map(|i| 100000f32.powf(-(i as f32) / 32.0)).collect();
        let positions: Vec<u32> = (start..start + tokens).map(|position| position as u32).collect();
        let (cos, sin) = rope_tables(&frequencies, 1.0, &positions);
        let mut x: Vec<f32> = (0..tokens * HIDDEN).map(|i| ((i * 7919) % 1000) as f32 / 1000.0 - 0.5).collect();
        let (mut normed, mut mixed) = (vec![0.0; x.len()], vec![0.0; x.len()]);
        let (mut q, mut k, mut v, mut more, mut gate, mut up) = (vec![], vec![], vec![], vec![], vec![], vec![]);
        for (i, layer) in self.layers.iter().enumerate() {
            rms_norm(&x, &self.norm, 1e-5, &mut normed);
            product(&layer[0], &normed, &mut q);
            product(&layer[1], &normed, &mut k);
            product(&layer[2], &normed, &mut v);
            rope(RopePairs::Interleaved, &mut q, 9 * 64, 9, 64, &cos, &sin);
            rope(RopePairs::Interleaved, &mut k, 3 * 64, 3, 64, &cos, &sin);
            let begin = Instant::now();
            append(CacheMut::F16(&mut self.keys[i]), 16, &self.table, start, 192, &k);
            append(CacheMut::F16(&mut self.values[i]), 16, &self.table, start, 192, &v);
            let sequence = [Sequence { table: &self.table, keys: start + tokens, queries: tokens }];
            attention(&q, Cache::F16(&self.keys[i]), Cache::F16(&self.values[i]), &sequence, &HEADS, &mut mixed);
            attending += begin.elapsed();
            product(&layer[3], &mixed, &mut more);
            add(&mut x, &more);
            rms_norm(&x, &self.norm, 1e-5, &mut normed);
            product(&layer[4], &normed, &mut gate);
            product(&layer[5], &normed, &mut up);
            glu(Glu::Silu, &mut gate, &up);
            product(&layer[6], &gate, &mut more);
            add(&mut x, &more);
        }
        product(&self.output, &x[x.len() - HIDDEN..], &mut more);
        [products, attending, begin.elapsed()]
    }
}

/// The processor time of this process, where Linux reports it: other processes do not count.
fn processor_time() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let time = |path: std::path::PathBuf| std::fs::read_to_string(path.join("schedstat")).ok()?.split(' ').next()?.parse().ok();
    tasks.filter_map(|task| time(task.path())).map(Duration::from_nanos).sum()
}

fn median(mut all: Vec<[Duration; 3]>) -> ([f64; 3], f64) {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    all.sort_by_key(|times| times[2]);
    (all[all.len() / 2].map(ms), ms(all[0][2]))
}

fn main() {
    let rounds = std::env::args().nth(1).and_then(|rounds| rounds.parse().ok()).unwrap_or(5);
    let only = std::env::args().nth(2).unwrap_or_default();
    let mut model = Model::new(1024);
    let bytes = model.bytes() as f64;
    let macs = |m: usize| (LAYERS * (2 * HIDDEN * (HIDDEN + 192) + 3 * HIDDEN * FORWARD) * m + VOCABULARY * HIDDEN) as f64;
    println!("{:.1} MB of weights; times in ms: products, attention, total; median of {rounds} rounds, and the best", bytes / 1e6);
    for isa in Isa::available() {
        for activations in [Precision::Fast, Precision::Exact] {
            for threads in [1, 2] {
                if !format!("{isa:?} {activations:?} {threads}").contains(&only) || (isa == Isa::Portable && only.is_empty()) {
                    continue;
                }
                isa.force(|| {
                    with_threads(threads, || {
                        let begin = processor_time();
                        let prompts = (0..rounds).map(|_| model.run(0, 512, activations)).collect();
                        let between = processor_time();
                        let tokens = (0..rounds * 32).map(|i| model.run(512 + i % 500, 1, activations)).collect();
                        let end = processor_time();
                        let [prompt_cpu, token_cpu] = [(between - begin) / rounds as u32, (end - between) / (32 * rounds) as u32].map(|time| time.as_secs_f64() * 1e3);
                        let ([p, a, all], best) = median(prompts);
                        let rate = macs(512) / p / 1e6;
                        let what = format!("{isa:?} {activations:?} {threads} threads");
                        println!("{what}: prompt {p:.0} {a:.0} {all:.0}, best {best:.0}: {:.0} tok/s, {rate:.0} GMAC/s; processors {prompt_cpu:.0}", 512e3 / all);
                        let ([p, a, all], best) = median(tokens);
                        let rate = bytes / p / 1e6;
                        println!("{what}: token {p:.2} {a:.2} {all:.2}, best {best:.2}: {:.0} tok/s, {rate:.1} GB/s; processors {token_cpu:.2}", 1e3 / all);
                    })
                });
            }
        }
    }
}
