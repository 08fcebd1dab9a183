//! Small models of every family with known logits and greedy tokens, from safetensors and from GGUF files written by this crate.

#[path = "../../tensor/tests/common/mod.rs"]
mod common;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use safetensors::SafeTensors;
use warpwave_kernels::{DType, Quant};
use warpwave_llm::{
    Checkpoint, Config, Event, FinishReason, LoadOptions, Logits, Model, Request, RopeConfig, Runner, RunnerOptions, Sequence,
};
use warpwave_tensor::{Device, KvCacheType, Precision};
use warpwave_test_support::{full_run, workspace_root};
use warpwave_weights::Kind;

const FAMILIES: [&str; 25] = [
    "deepseek_v2",
    "deepseek_v3",
    "falcon",
    "gemma",
    "gemma2",
    "gemma3",
    "gpt_neox",
    "gpt_oss",
    "gpt_oss_mxfp4",
    "granite",
    "llama3",
    "llama_bias",
    "llama_headdim",
    "mistral",
    "mixtral",
    "olmo2",
    "phi",
    "phi3",
    "phimoe",
    "qwen2",
    "qwen2_moe",
    "qwen3",
    "qwen3_moe",
    "stablelm",
    "starcoder2",
];
/// Families for slow devices: each part of a layer is in one of them.
const SAMPLE: [&str; 10] =
    ["deepseek_v3", "gemma2", "gpt_neox", "gpt_oss_mxfp4", "llama3", "llama_bias", "olmo2", "phi", "qwen2_moe", "qwen3"];
const CLOSE: f32 = 2e-4;
/// Maximum relative RMS error of the logits of Q8_0 files, and of what Q4_K becomes: 1.5 times what was measured. Where experts are chosen by
/// rounded values, a token may get other ones.
const QUANTIZED: [(&str, f64, f64); 25] = [
    ("gpt_oss", 0.083, 0.64),
    ("gpt_oss_mxfp4", 0.11, 0.69),
    ("deepseek_v2", 0.11, 0.6),
    ("deepseek_v3", 0.21, 0.89),
    ("mixtral", 0.065, 0.5),
    ("phimoe", 0.29, 0.86),
    ("qwen2_moe", 0.24, 0.68),
    ("qwen3_moe", 0.083, 0.53),
    ("falcon", 0.026, 0.16),
    ("gemma", 0.09, 0.55),
    ("gpt_neox", 0.027, 0.22),
    ("granite", 0.051, 0.31),
    ("llama_headdim", 0.073, 0.52),
    ("olmo2", 0.049, 0.35),
    ("phi", 0.008, 0.063),
    ("stablelm", 0.081, 0.63),
    ("starcoder2", 0.036, 0.24),
    ("gemma2", 0.035, 0.21),
    ("gemma3", 0.03, 0.18),
    ("llama3", 0.06, 0.45),
    ("llama_bias", 0.072, 0.52),
    ("mistral", 0.09, 0.62),
    ("phi3", 0.07, 0.53),
    ("qwen2", 0.075, 0.38),
    ("qwen3", 0.05, 0.36),
];

/// Families that are not split over devices: heads are normalized together, there are experts, or attention is latent.
const WHOLE: [&str; 9] = ["deepseek_v2", "deepseek_v3", "gpt_oss", "gpt_oss_mxfp4", "mixtral", "olmo2", "phimoe", "qwen2_moe", "qwen3_moe"];

struct Expected {
    ids: Vec<Vec<u32>>,
    logits: Vec<Vec<f32>>,
    greedy: Vec<u32>,
}

fn folder(family: &str) -> PathBuf {
    workspace_root().join("crates/llm/tests/oracles").join(family)
}

fn expected(family: &str) -> Expected {
    let bytes = std::fs::read(folder(family).join("expected.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let words = |name: &str| -> Vec<[u8; 4]> { file.tensor(name).unwrap().data().as_chunks::<4>().0.to_vec() };
    let ids: Vec<u32> = words("input_ids").into_iter().map(u32::from_le_bytes).collect();
    let logits: Vec<f32> = words("logits").into_iter().map(f32::from_le_bytes).collect();
    let greedy = words("greedy").into_iter().map(u32::from_le_bytes).collect();
    Expected { logits: logits.chunks(40 * 320).map(<[f32]>::to_vec).collect(), ids: ids.chunks(40).map(<[u32]>::to_vec).collect(), greedy }
}

fn load(path: &Path, device: &Device, weights: Option<Kind>, context: usize) -> Runner {
    let checkpoint = Checkpoint::open(path).unwrap();
    let options = LoadOptions { weights, precision: Precision::Exact, context: None };
    let model = Model::load(&checkpoint, device, options, &mut |_| ()).unwrap();
    Runner::new(model, RunnerOptions { context, ..RunnerOptions::default() }).unwrap()
}

fn distance(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| if a.is_finite() { (a - b).abs() } else { f32::INFINITY }).fold(0.0, f32::max)
}

fn largest(logits: &[f32]) -> u32 {
    (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b]).then(b.cmp(a))).unwrap() as u32
}

/// The logits of both sequences, in one batch.
fn logits_of(runner: &mut Runner, expected: &Expected) -> Vec<f32> {
    let (mut a, mut b) = (Sequence::default(), Sequence::default());
    let logits =
        runner.forward(&mut [(&mut a, &expected.ids[0]), (&mut b, &expected.ids[1])], Logits::All).unwrap().to_vec::<f32>().unwrap();
    runner.release(a);
    runner.release(b);
    logits
}

/// The logits of both sequences, one token at a time, as in decoding.
fn step_by_step(runner: &mut Runner, texts: &[Vec<u32>]) -> Vec<f32> {
    let mut logits = Vec::new();
    for text in texts {
        let mut sequence = Sequence::default();
        for token in text.chunks(1) {
            logits.extend(runner.forward(&mut [(&mut sequence, token)], Logits::Last).unwrap().to_vec::<f32>().unwrap());
        }
        runner.release(sequence);
    }
    logits
}

/// The prompt and the tokens of greedy decoding.
fn greedy(runner: &mut Runner, prompt: &[u32], more: usize) -> Vec<u32> {
    let mut sequence = Sequence::default();
    let mut text = prompt.to_vec();
    let mut from = 0;
    while text.len() < prompt.len() + more {
        let logits = runner.forward(&mut [(&mut sequence, &text[from..])], Logits::Last).unwrap().to_vec::<f32>().unwrap();
        from = text.len();
        text.push(largest(&logits));
    }
    runner.release(sequence);
    text
}

#[test]
fn every_family_gives_the_known_logits_and_tokens() {
    for device in common::devices() {
        let here = if device.is_virtual() && !full_run() { &SAMPLE[..] } else { &FAMILIES };
        for family in here {
            let expected = expected(family);
            let mut runner = load(&folder(family), &device, None, 256);
            let far = distance(&logits_of(&mut runner, &expected), &expected.logits.concat());
            println!("{family:8} {device:12} logits within {far:.1e}");
            assert!(far <= CLOSE, "{family} on {device}: {far}");
            assert_eq!(greedy(&mut runner, &expected.greedy[..12], 16), expected.greedy, "{family} on {device}");
            assert_eq!(runner.free_tokens(), 256, "all blocks are free again");
        }
    }
}

/// Decoding uses other kernels than prefill, and graphs.
#[test]
fn every_family_gives_the_known_logits_token_by_token() {
    for device in common::devices() {
        let slow = device.is_virtual() && !full_run();
        for family in if slow { &["llama3"][..] } else { &FAMILIES } {
            let expected = expected(family);
            let (texts, tokens) = if slow { (1, 20) } else { (2, 40) };
            let ids: Vec<_> = expected.ids[..texts].iter().map(|ids| ids[..tokens].to_vec()).collect();
            let known: Vec<f32> = expected.logits[..texts].iter().flat_map(|logits| &logits[..tokens * 320]).copied().collect();
            let mut runner = load(&folder(family), &device, None, 256);
            let far = distance(&step_by_step(&mut runner, &ids), &known);
            println!("{family:8} {device:12} logits token by token within {far:.1e}");
            assert!(far <= CLOSE, "{family} on {device}: {far}");
            assert_eq!(runner.graphs() > 0, !device.is_cpu(), "graphs on {device}");
        }
    }
}

/// Largest relative RMS error of the logits with a quantized KV cache: about twice what was measured on the CPU. These models are random and
/// small: heads have 16 elements.
const CACHES: [(KvCacheType, f64); 2] = [(KvCacheType::Q8_0, 0.04), (KvCacheType::F8E4M3, 0.2)];

/// Quantized KV caches: logits stay close to those of an `f32` cache in prefill and in decoding, and greedy tokens differ only where two are
/// about as likely.
#[test]
fn quantized_caches_stay_close() {
    for device in common::devices() {
        let slow = device.is_virtual() && !full_run();
        let families: &[&str] = if slow { &["llama3"] } else { &["falcon", "gemma2", "gpt_neox", "llama3"] };
        for (family, (kind, allowed)) in families.iter().flat_map(|family| CACHES.map(|cache| (*family, cache))) {
            let expected = expected(family);
            let checkpoint = Checkpoint::open(folder(family)).unwrap();
            let with_cache = |kv_cache| {
                let options = LoadOptions { precision: Precision::Exact, ..LoadOptions::default() };
                let model = Model::load(&checkpoint, &device, options, &mut |_| ()).unwrap();
                Runner::new(model, RunnerOptions { context: 256, kv_cache: Some(kv_cache), ..RunnerOptions::default() }).unwrap()
            };
            let mut runner = with_cache(kind);
            let prefill = off(&logits_of(&mut runner, &expected), &expected.logits.concat());
            let tokens = if slow { 12 } else { 40 };
            let decode = off(&step_by_step(&mut runner, &[expected.ids[0][..tokens].to_vec()]), &expected.logits[0][..tokens * 320]);
            println!("{family:13} {device:12} {kind}: prefill {prefill:.4}, decode {decode:.4} of the logits' RMS");
            assert!(prefill <= allowed && decode <= allowed, "{family} on {device}, {kind}: {prefill}, {decode}");
            assert!(prefill > 0.0 && decode > 0.0, "{family} on {device}: the cache is not quantized");
            if slow {
                continue;
            }
            let found = greedy(&mut runner, &expected.greedy[..12], 16);
            if let Some(at) = (0..found.len()).find(|i| found[*i] != expected.greedy[*i]) {
                let mut sequence = Sequence::default();
                let mut plain = with_cache(KvCacheType::F32);
                let logits = plain.forward(&mut [(&mut sequence, &found[..at])], Logits::Last).unwrap().to_vec::<f32>().unwrap();
                let margin = logits[expected.greedy[at] as usize] - logits[found[at] as usize];
                let size = (logits.iter().map(|x| x * x).sum::<f32>() / logits.len() as f32).sqrt();
                // Two logits, each off by at most a few times the RMS error.
                assert!(
                    margin <= 8.0 * allowed as f32 * size,
                    "{family} on {device}, {kind}: token {at} differs with a margin of {margin}"
                );
            }
        }
    }
}

/// Tensor parallel: heads, feed-forward and vocabulary are split.
#[test]
fn tensor_parallel_gives_the_same() {
    for devices in common::groups() {
        let here =
            if devices[0].is_virtual() && !full_run() { &["llama3", "llama_bias", "phi3", "gemma2", "gpt_neox"][..] } else { &FAMILIES };
        for family in here.iter().filter(|family| !WHOLE.contains(*family)) {
            let expected = expected(family);
            let checkpoint = Checkpoint::open(folder(family)).unwrap();
            let options = LoadOptions { precision: Precision::Exact, ..LoadOptions::default() };
            let model = Model::load_tensor_parallel(&checkpoint, &devices, options, &mut |_| ()).unwrap();
            assert_eq!(model.devices().len(), 2);
            let mut runner = Runner::new(model, RunnerOptions { context: 256, ..RunnerOptions::default() }).unwrap();
            let far = distance(&logits_of(&mut runner, &expected), &expected.logits.concat());
            println!("{family:8} {devices:?} logits within {far:.1e}");
            assert!(far <= CLOSE, "{family} on {devices:?}: {far}");
            assert_eq!(greedy(&mut runner, &expected.greedy[..12], 16), expected.greedy, "{family} on {devices:?}");
            assert_eq!(runner.free_tokens(), 256, "all blocks are free again");
        }
    }
}

#[test]
fn models_that_cannot_be_split_are_refused() {
    for (family, words) in [("olmo2", "4 heads normalized together"), ("mixtral", "4 experts"), ("deepseek_v2", "6 experts")] {
        let checkpoint = Checkpoint::open(folder(family)).unwrap();
        let devices = [Device::Cpu, Device::Cpu];
        let error = Model::load_tensor_parallel(&checkpoint, &devices, LoadOptions::default(), &mut |_| ()).err().unwrap().to_string();
        assert!(error.contains(words) && error.contains("over 2 devices"), "{error}");
    }
}

/// In F32 nothing changes. Quantized, the logits equal those of the dequantized weights; their error is large because the models are random
/// and small. Rows of 64 and 112 are not whole blocks of 256: Q4_K becomes Q5_0, Q8_0 and F16 here.
#[test]
fn gguf_files_give_the_same() {
    let dir = tempfile::tempdir().unwrap();
    for (family, q8_0, q4_k) in QUANTIZED {
        let expected = expected(family);
        let all = expected.logits.concat();
        let file = dir.path().join(format!("{family}.gguf"));
        let checkpoint = Checkpoint::open(folder(family)).unwrap();
        checkpoint.write_gguf(&file, Some(Kind::Plain(DType::F32)), |_, _| ()).unwrap();
        let slow_too = SAMPLE.contains(&family) || full_run();
        for device in common::devices().into_iter().filter(|device| !device.is_virtual() || slow_too) {
            let mut runner = load(&file, &device, None, 256);
            let far = distance(&logits_of(&mut runner, &expected), &all);
            assert!(far <= CLOSE, "{family} on {device}: {far}");
            if !device.is_virtual() {
                assert_eq!(greedy(&mut runner, &expected.greedy[..12], 16), expected.greedy, "{family} on {device}");
            }
        }
        for (quant, weights_off, logits_off) in [(Quant::Q8_0, 0.006, q8_0), (Quant::Q4K, 0.08, q4_k)] {
            checkpoint.write_gguf(&file, Some(Kind::Quant(quant)), |_, _| ()).unwrap();
            let written = Checkpoint::open(&file).unwrap();
            for name in checkpoint.names() {
                let share = off(&written.get_f32(name).unwrap(), &checkpoint.get_f32(name).unwrap());
                assert!(share <= weights_off, "{family} {name} as {quant}: {share}");
            }
            let fused = logits_of(&mut load(&file, &Device::Cpu, None, 256), &expected);
            let plain = logits_of(&mut load(&file, &Device::Cpu, Some(Kind::Plain(DType::F32)), 256), &expected);
            let (apart, share) = (distance(&fused, &plain), off(&fused, &all));
            println!("{family:8} {quant}: {share:.3} off; {apart:.1e} from the same weights in f32");
            assert!(apart <= CLOSE, "{family} as {quant}: {apart}");
            assert!(share <= logits_off, "{family} as {quant}: {share}");
        }
    }
}

/// Rows of whole blocks keep the requested type. The error of the logits is at most 1.5 times what was measured; zeros would give 1.
#[test]
fn quantized_matrices_give_nearly_the_same() {
    let shape = Config { vocab: 320, hidden: 256, layers: 2, heads: 4, kv_heads: 2, head_dim: 64, feed_forward: 512, ..Config::llama_8b() };
    let config =
        Config { context: 512, sliding_layers: vec![false; 2], attention_scale: 0.125, rope: RopeConfig::plain(10_000.0, 64), ..shape };
    let dir = tempfile::tempdir().unwrap();
    let plain = dir.path().join("f32.gguf");
    Checkpoint::random(config, Kind::Plain(DType::Bf16)).unwrap().write_gguf(&plain, Some(Kind::Plain(DType::F32)), |_, _| ()).unwrap();
    let checkpoint = Checkpoint::open(&plain).unwrap();
    let text = &expected("llama3").ids[0];
    let logits = |file: &Path, device: &Device, text: &[u32]| {
        let mut sequence = Sequence::default();
        load(file, device, None, 64).forward(&mut [(&mut sequence, text)], Logits::All).unwrap().to_vec::<f32>().unwrap()
    };
    let known = logits(&plain, &Device::Cpu, text);
    for (quant, output, bound) in [(Quant::Q8_0, Quant::Q8_0, 0.023), (Quant::Q4K, Quant::Q6K, 0.29)] {
        let file = dir.path().join(format!("{quant}.gguf"));
        checkpoint.write_gguf(&file, Some(Kind::Quant(quant)), |_, _| ()).unwrap();
        for info in Checkpoint::open(&file).unwrap().infos().filter(|info| info.shape.len() == 2) {
            let expected = if info.name == "output.weight" { output } else { quant };
            assert_eq!(info.kind, Kind::Quant(expected), "{}", info.name);
        }
        for device in common::devices() {
            // The virtual GPU is slow.
            let text = if device.is_virtual() && !full_run() { &text[..4] } else { text };
            let share = off(&logits(&file, &device, text), &known[..text.len() * 320]);
            println!("{quant} on {device}: {share:.4} off");
            assert!(share <= bound, "{quant} on {device}: {share}");
        }
    }
}

/// The relative RMS error.
fn off(found: &[f32], known: &[f32]) -> f64 {
    assert_eq!(found.len(), known.len());
    let mean = |squares: f64| (squares / known.len() as f64).sqrt();
    let square = |x: f32| f64::from(x) * f64::from(x);
    mean(found.iter().zip(known).map(|(a, b)| square(a - b)).sum()) / mean(known.iter().map(|b| square(*b)).sum())
}

/// Chunks, batches and graphs do not change the tokens.
#[test]
fn chunks_batches_and_graphs_give_the_same() {
    for device in common::devices() {
        let family = "llama3";
        let expected = expected(family);
        for (chunk, graphs) in [(5, false), (64, true), (5, true)] {
            let checkpoint = Checkpoint::open(folder(family)).unwrap();
            let model = Model::load(&checkpoint, &device, LoadOptions::default(), &mut |_| ()).unwrap();
            let mut runner =
                Runner::new(model, RunnerOptions { context: 512, chunk: Some(chunk), graphs, ..RunnerOptions::default() }).unwrap();
            assert_eq!(greedy(&mut runner, &expected.greedy[..12], 16), expected.greedy, "chunks of {chunk} on {device}");
            assert_eq!(runner.graphs() > 0, graphs && !device.is_cpu(), "graphs on {device}");
            assert_eq!(together(&mut runner, &expected.greedy), [expected.greedy.clone(), expected.greedy.clone()], "two on {device}");
        }
    }
}

/// Batches of more tokens than a chunk: the same logits, of all tokens or of the last, and each sequence can continue.
#[test]
fn long_batches_are_chunked() {
    let expected = expected("llama3");
    let known = |text: usize, token: usize| &expected.logits[text][token * 320..][..320];
    for device in common::devices() {
        for chunk in [1, 7, 39, 40, 41, 79] {
            // The virtual GPU is slow.
            if device.is_virtual() && chunk < 39 && !full_run() {
                continue;
            }
            let checkpoint = Checkpoint::open(folder("llama3")).unwrap();
            let model = Model::load(&checkpoint, &device, LoadOptions::default(), &mut |_| ()).unwrap();
            let mut runner = Runner::new(model, RunnerOptions { context: 256, chunk: Some(chunk), ..RunnerOptions::default() }).unwrap();
            let far = distance(&logits_of(&mut runner, &expected), &expected.logits.concat());
            assert!(far <= CLOSE, "chunks of {chunk} on {device}: {far}");
            let (mut a, mut b, mut c) = (Sequence::default(), Sequence::default(), Sequence::default());
            let [one, two] = [&expected.ids[0], &expected.ids[1]];
            let mut feed = |batch: &mut [(&mut Sequence, &[u32])]| {
                let found = runner.forward(batch, Logits::Last).unwrap();
                assert_eq!(found.shape(), [batch.len(), 320]);
                found.to_vec::<f32>().unwrap()
            };
            let first = feed(&mut [(&mut a, &one[..3]), (&mut b, &two[..38]), (&mut c, &one[..25])]);
            assert!(distance(&first, &[known(0, 2), known(1, 37), known(0, 24)].concat()) <= CLOSE, "chunks of {chunk} on {device}");
            let next = feed(&mut [(&mut c, &one[25..26]), (&mut b, &two[38..]), (&mut a, &one[3..])]);
            assert!(distance(&next, &[known(0, 25), known(1, 39), known(0, 39)].concat()) <= CLOSE, "chunks of {chunk} on {device}");
            assert_eq!([a.len(), b.len(), c.len()], [40, 40, 26]);
            // A batch that does not fit changes nothing, even if some of its chunks would fit.
            let free = runner.free_tokens();
            let long = vec![1; 200];
            assert!(runner.forward(&mut [(&mut a, &one[..9]), (&mut c, &long)], Logits::Last).is_err());
            assert_eq!([a.len(), c.len(), runner.free_tokens()], [40, 26, free]);
        }
    }
}

/// Two sequences that start at different times, decoded in one batch.
fn together(runner: &mut Runner, text: &[u32]) -> [Vec<u32>; 2] {
    let (mut a, mut b) = (Sequence::default(), Sequence::default());
    let mut texts = [text[..12].to_vec(), text[..17].to_vec()];
    let first = runner.forward(&mut [(&mut a, &text[..12])], Logits::Last).unwrap().to_vec::<f32>().unwrap();
    let second = runner.forward(&mut [(&mut b, &text[..17])], Logits::Last).unwrap().to_vec::<f32>().unwrap();
    texts[0].push(largest(&first));
    texts[1].push(largest(&second));
    while texts[1].len() < text.len() {
        let last = [texts[0].len() - 1, texts[1].len() - 1];
        let mut batch = [(&mut a, &texts[0][last[0]..]), (&mut b, &texts[1][last[1]..])];
        let logits = runner.forward(&mut batch, Logits::Last).unwrap().to_vec::<f32>().unwrap();
        let (first, second) = logits.split_at(logits.len() / 2);
        texts[0].push(largest(first));
        texts[1].push(largest(second));
    }
    while texts[0].len() < text.len() {
        let last = texts[0].len() - 1;
        let logits = runner.forward(&mut [(&mut a, &texts[0][last..])], Logits::Last).unwrap().to_vec::<f32>().unwrap();
        texts[0].push(largest(&logits));
    }
    runner.release(a);
    runner.release(b);
    texts
}

/// Tokens are sampled on the GPU, or on the host with logprobs: the same tokens either way.
#[test]
fn sampling_on_gpu_and_host_gives_the_same_tokens() {
    for device in common::devices() {
        let expected = expected("llama3");
        let mut runner = load(&folder("llama3"), &device, None, 64);
        for top in [0, 2] {
            let request = Request::default().max_tokens(16).ignore_eos(true).top_logprobs(top);
            let mut sequence = Sequence::default();
            let mut heard = 0;
            let generation = runner.generate(&mut sequence, &expected.greedy[..12], None, &request).unwrap();
            let made = generation.run(|event| {
                heard += usize::from(matches!(event, Event::Token { .. }));
                ControlFlow::Continue(())
            });
            let made = made.unwrap();
            runner.release(sequence);
            let tokens: Vec<u32> = made.tokens.iter().map(|token| token.id).collect();
            assert_eq!((tokens.as_slice(), made.finish_reason, heard), (&expected.greedy[12..], FinishReason::Length, 16), "{device}");
            assert!(made.tokens.iter().all(|token| token.top_logprobs.len() == top && token.logprob < 0.0), "{device}: {:?}", made.tokens);
        }
    }
}

/// A graph writes its logits to one buffer: earlier results must not change.
#[test]
fn earlier_logits_do_not_change() {
    for device in common::devices() {
        let expected = expected("llama3");
        let mut runner = load(&folder("llama3"), &device, None, 64);
        let mut sequence = Sequence::default();
        let mut steps = Vec::new();
        for token in expected.greedy[..5].chunks(1) {
            let logits = runner.forward(&mut [(&mut sequence, token)], Logits::Last).unwrap();
            let then = logits.to_vec::<f32>().unwrap();
            steps.push((logits, then));
        }
        for (logits, then) in &steps {
            assert_eq!(&logits.to_vec::<f32>().unwrap(), then, "{device}");
        }
        assert_ne!(steps[3].1, steps[4].1);
    }
}

#[test]
fn batches_that_do_not_fit_change_nothing() {
    let expected = expected("llama3");
    let mut runner = load(&folder("llama3"), &Device::Cpu, None, 32);
    let mut sequence = Sequence::default();
    let error = runner.forward(&mut [(&mut sequence, &expected.ids[0])], Logits::Last).unwrap_err();
    assert!(error.to_string().contains("more than the context of 32"), "{error}");
    assert!(runner.forward(&mut [(&mut sequence, &[320])], Logits::Last).unwrap_err().to_string().contains("token id 320 is out of range"));
    assert!(runner.forward(&mut [(&mut sequence, &[])], Logits::Last).is_err());
    assert_eq!((sequence.len(), runner.free_tokens()), (0, 32));
    assert_eq!(greedy(&mut runner, &expected.greedy[..12], 16), expected.greedy);
}

/// Sequences of another runner are refused, and their blocks return to their own runner.
#[test]
fn sequences_of_other_runners_are_refused() {
    let expected = expected("llama3");
    let mut runners = [0, 1].map(|_| load(&folder("llama3"), &Device::Cpu, None, 64));
    let [one, other] = &mut runners;
    let mut sequence = Sequence::default();
    one.forward(&mut [(&mut sequence, &expected.ids[0][..20])], Logits::Last).unwrap();
    let error = other.forward(&mut [(&mut sequence, &[1])], Logits::Last).unwrap_err();
    assert!(matches!(error, warpwave_llm::Error::OtherRunner), "{error}");
    assert_eq!((sequence.len(), one.free_tokens(), other.free_tokens()), (20, 32, 64));
    other.truncate(&mut sequence, 3);
    assert_eq!((sequence.len(), one.free_tokens(), other.free_tokens()), (3, 48, 64));
    other.release(sequence);
    assert_eq!((one.free_tokens(), other.free_tokens()), (64, 64));
    let mut dropped = Sequence::default();
    one.forward(&mut [(&mut dropped, &[1, 2, 3])], Logits::Last).unwrap();
    drop(dropped);
    assert_eq!(one.free_tokens(), 64, "dropping frees the blocks");
}
