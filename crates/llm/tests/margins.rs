//! Below f32, the order of sums changes the rounding. All ways to compute a text must still give the same tokens, wherever plain greedy
//! decoding is decisive: where its two most likely tokens are at least [`MARGIN`] apart.
//!
//! Each run is fed the tokens of the plain run, so that positions after the first indecisive one can be compared, too. Before it, every
//! position must give the same token; after it, and within prompts, one in a hundred may differ.

#[path = "../../tensor/tests/common/mod.rs"]
mod common;

use warpwave_kernels::{DType, Quant};
use warpwave_llm::{Checkpoint, Config, LoadOptions, Logits, Model, RopeConfig, Runner, RunnerOptions, Sequence};
use warpwave_tensor::{Device, KvCacheType, Precision};
use warpwave_test_support::{full_run, test_model};
use warpwave_weights::Kind;

/// In nats.
const MARGIN: f32 = 0.05;
/// Tokens of the small model.
const VOCAB: u32 = 400;
const BF16: Kind = Kind::Plain(DType::Bf16);
const F16: Kind = Kind::Plain(DType::F16);
const Q8_0: Kind = Kind::Quant(Quant::Q8_0);
const Q4_K: Kind = Kind::Quant(Quant::Q4K);

/// Weight type, precision and KV cache type.
type Case = (Option<Kind>, Precision, KvCacheType);

const CASES: [Case; 8] = [
    (Some(BF16), Precision::Fast, KvCacheType::Bf16),
    (Some(BF16), Precision::Fast, KvCacheType::F16),
    (Some(F16), Precision::Fast, KvCacheType::F16),
    (Some(F16), Precision::Fast, KvCacheType::Bf16),
    (Some(Q8_0), Precision::Fast, KvCacheType::F16),
    (Some(Q8_0), Precision::Exact, KvCacheType::Bf16),
    (Some(Q4_K), Precision::Fast, KvCacheType::Bf16),
    (Some(Q4_K), Precision::Exact, KvCacheType::F16),
];

/// A text of plain greedy decoding; for each position the most likely next token and its margin over the second.
struct Plain {
    text: Vec<u32>,
    picks: Vec<(u32, f32)>,
    /// Prompt tokens.
    prompt: usize,
}

impl Plain {
    /// Whether all decisions up to this position were decisive.
    fn is_certain(&self, at: usize) -> bool {
        at + 1 >= self.prompt && self.picks[self.prompt - 1..=at].iter().all(|(_, margin)| *margin >= MARGIN)
    }
}

/// Compared positions, and those where tokens differ although the plain run was decisive.
#[derive(Default)]
struct Compared {
    certain: usize,
    sure: usize,
    unsure: usize,
    wrong: Vec<String>,
    wrong_elsewhere: usize,
}

impl Compared {
    fn add(&mut self, how: &str, plain: &Plain, at: usize, logits: &[f32]) {
        let (expected, margin) = plain.picks[at];
        let (found, here) = most_likely(logits);
        if margin < MARGIN {
            self.unsure += 1;
            return;
        }
        self.sure += 1;
        self.certain += usize::from(plain.is_certain(at));
        if found != expected && plain.is_certain(at) {
            self.wrong.push(format!("{how}, position {at}: token {found} by {here:.3}, plain {expected} by {margin:.3}"));
        } else if found != expected {
            self.wrong_elsewhere += 1;
        }
    }
}

/// The most likely token and its margin over the second. Differences of logits are differences of logprobs.
fn most_likely(logits: &[f32]) -> (u32, f32) {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.select_nth_unstable_by(1, |a, b| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b)));
    (order[0] as u32, logits[order[0]] - logits[order[1]])
}

fn feed(runner: &mut Runner, sequence: &mut Sequence, tokens: &[u32], wanted: Logits) -> Vec<f32> {
    runner.forward(&mut [(sequence, tokens)], wanted).unwrap().to_vec::<f32>().unwrap()
}

/// One token at a time, including the prompt.
fn plain(runner: &mut Runner, prompt: &[u32], more: usize) -> Plain {
    let mut plain = Plain { text: prompt.to_vec(), picks: Vec::new(), prompt: prompt.len() };
    let mut sequence = Sequence::default();
    while plain.picks.len() < prompt.len() + more {
        let token = plain.text[plain.picks.len()];
        let pick = most_likely(&feed(runner, &mut sequence, &[token], Logits::Last));
        plain.picks.push(pick);
        if plain.text.len() == plain.picks.len() {
            plain.text.push(pick.0);
        }
    }
    runner.release(sequence);
    plain.text.pop();
    plain
}

/// The prompt in chunks, then one token at a time, as graphs if the runner uses them.
fn chunked(runner: &mut Runner, plain: &Plain, prompt: usize, how: &str, compared: &mut Compared) {
    let mut sequence = Sequence::default();
    compared.add(how, plain, prompt - 1, &feed(runner, &mut sequence, &plain.text[..prompt], Logits::Last));
    for at in prompt..plain.text.len() {
        compared.add(how, plain, at, &feed(runner, &mut sequence, &plain.text[at..at + 1], Logits::Last));
    }
    runner.release(sequence);
}

/// The whole text in one step.
fn one_step(runner: &mut Runner, plain: &Plain, compared: &mut Compared) {
    let mut sequence = Sequence::default();
    let logits = feed(runner, &mut sequence, &plain.text, Logits::All);
    let rows = logits.chunks(logits.len() / plain.text.len());
    rows.enumerate().for_each(|(at, row)| compared.add("one step", plain, at, row));
    runner.release(sequence);
}

/// All prompts in one batch, then one token of each at a time: their KV blocks are interleaved.
fn batched(runner: &mut Runner, all: &[Plain], prompts: &[&[u32]], compared: &mut Compared) {
    let mut sequences: Vec<Sequence> = all.iter().map(|_| Sequence::default()).collect();
    let more = all[0].text.len() - prompts[0].len();
    for step in 0..=more {
        let tokens = all.iter().zip(prompts).map(|(plain, prompt)| match step {
            0 => &plain.text[..prompt.len()],
            _ => &plain.text[prompt.len() + step - 1..prompt.len() + step],
        });
        let mut batch: Vec<(&mut Sequence, &[u32])> = sequences.iter_mut().zip(tokens).collect();
        let logits = runner.forward(&mut batch, Logits::Last).unwrap().to_vec::<f32>().unwrap();
        for ((plain, prompt), row) in all.iter().zip(prompts).zip(logits.chunks(logits.len() / all.len())) {
            compared.add("batched", plain, prompt.len() + step - 1, row);
        }
    }
    sequences.into_iter().for_each(|sequence| runner.release(sequence));
}

fn runner(checkpoint: &Checkpoint, device: &Device, (weights, precision, kv_cache): Case, chunk: usize, graphs: bool) -> Runner {
    let model = Model::load(checkpoint, device, LoadOptions { weights, precision, context: None }, &mut |_| ()).unwrap();
    Runner::new(model, RunnerOptions { context: 512, kv_cache: Some(kv_cache), chunk: Some(chunk), graphs, ..RunnerOptions::default() })
        .unwrap()
}

/// Compares every way of decoding with the plain one; returns the number of positions before the first indecisive one.
fn compare(name: &str, checkpoint: &Checkpoint, device: &Device, case: Case, prompts: &[&[u32]], more: usize) -> usize {
    let mut one_by_one = runner(checkpoint, device, case, 1, false);
    let all: Vec<Plain> = prompts.iter().map(|prompt| plain(&mut one_by_one, prompt, more)).collect();
    drop(one_by_one);
    let mut compared = Compared::default();
    let mut other = runner(checkpoint, device, case, 3, true);
    batched(&mut other, &all, prompts, &mut compared);
    for (plain, prompt) in all.iter().zip(prompts) {
        chunked(&mut other, plain, prompt.len(), "chunks of 3, as a graph", &mut compared);
        one_step(&mut other, plain, &mut compared);
    }
    assert_eq!(other.free_tokens(), 512, "all blocks are free again");
    let (weights, precision, cache) = case;
    let weights = weights.map_or_else(|| "unconverted".to_owned(), |kind| kind.to_string());
    let Compared { certain, sure, unsure, wrong, wrong_elsewhere } = compared;
    let here = format!("{name:8} {device:12} {weights:12} {precision:?} cache {cache}");
    println!(
        "{here}: {sure} decisive positions, {certain} before the first indecisive one; {unsure} indecisive; {wrong_elsewhere} differ after it"
    );
    assert!(wrong.is_empty(), "{here}:\n{}", wrong.join("\n"));
    assert!(wrong_elsewhere * 100 <= sure, "{here}: {wrong_elsewhere} of {sure} positions differ after the first indecisive one");
    certain
}

/// A small random model whose rows are whole blocks of all types.
fn small(kind: Kind, layers: usize) -> Checkpoint {
    let shape = Config { vocab: VOCAB as usize, hidden: 256, layers, heads: 4, kv_heads: 2, head_dim: 64, ..Config::llama_8b() };
    let (rope, sliding_layers) = (RopeConfig::plain(10_000.0, 64), vec![false; layers]);
    Checkpoint::random(Config { feed_forward: 256, context: 512, sliding_layers, attention_scale: 0.125, rope, ..shape }, kind).unwrap()
}

/// Prompts of these lengths.
fn prompts(lengths: &[usize]) -> Vec<Vec<u32>> {
    let mut state = 0x2545_F491u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) % VOCAB
    };
    lengths.iter().map(|length| (0..*length).map(|_| next()).collect()).collect()
}

#[test]
fn lower_precisions_give_the_same_tokens_where_decoding_is_decisive() {
    for device in common::devices() {
        // The virtual GPU is slow. The batch has at least 32 rows, for which some devices use other kernels.
        let slow = device.is_virtual() && !full_run();
        let (lengths, more, layers, least) = if slow { (&[5, 29][..], 2, 1, 60) } else { (&[5, 17, 34][..], 24, 2, 300) };
        let prompts = prompts(lengths);
        let prompts: Vec<&[u32]> = prompts.iter().map(Vec::as_slice).collect();
        let mut sure = 0;
        for case in CASES.into_iter().step_by(if slow { 2 } else { 1 }).chain(slow.then_some(CASES[7])) {
            let kind = case.0.filter(|kind| *kind != F16).unwrap_or(BF16);
            sure += compare("small", &small(kind, layers), &device, case, &prompts, more);
        }
        println!("{device}: {sure} positions compared before the first indecisive one");
        assert!(sure >= least, "{device}: only {sure} positions");
    }
}

/// The comparison itself detects another model.
#[test]
fn another_model_is_noticed() {
    let prompts = prompts(&[5]);
    let of = |kind: Kind| runner(&small(kind, 2), &Device::Cpu, (Some(kind), Precision::Exact, KvCacheType::F16), 1, false);
    let plain = plain(&mut of(Q8_0), &prompts[0], 24);
    let mut compared = Compared::default();
    one_step(&mut of(Q4_K), &plain, &mut compared);
    let wrong = compared.wrong.len() + compared.wrong_elsewhere;
    assert!(compared.sure > 10 && wrong * 2 > compared.sure, "{wrong} of {}", compared.sure);
}

/// The same for a real model, which is more decisive.
#[test]
fn a_real_model_gives_the_same_tokens_where_decoding_is_decisive() {
    let Some(file) = test_model() else { return };
    let checkpoint = Checkpoint::open(&file).unwrap();
    let tokenizer = checkpoint.tokenizer().unwrap();
    let texts = ["The capital of France is", "Once upon a time there was a little girl who", "fn main() {\n    println!(\""];
    let prompts = texts.map(|text| tokenizer.encode_prompt(text, true).unwrap());
    let prompts: Vec<&[u32]> = prompts.iter().map(Vec::as_slice).collect();
    for device in common::devices().into_iter().filter(|device| !device.is_virtual()) {
        let (more, least) = if device.is_cpu() && !full_run() { (12, 100) } else { (24, 1000) };
        let unconverted = [(None, Precision::Fast, KvCacheType::F16), (None, Precision::Exact, KvCacheType::Bf16)];
        let converted = CASES.into_iter().filter(|_| full_run() || !device.is_cpu());
        let sure: usize =
            unconverted.into_iter().chain(converted).map(|case| compare("SmolLM2", &checkpoint, &device, case, &prompts, more)).sum();
        println!("{device}: {sure} positions compared before the first indecisive one");
        assert!(sure >= least, "{device}: only {sure} positions");
    }
}
