//! `warpwave bench llm`: prefill and decode throughput, optionally against a peer in the same run.

mod batch;
mod gpu;
mod peer;

use std::ops::ControlFlow;

use serde_json::{Value, json};
use warpwave_kernels::DType;
use warpwave_llm::{Checkpoint, Config, LanguageModel, Request, Sequence};
use warpwave_tensor::Device;
use warpwave_weights::Kind;

use super::super::llm::{ModelArgs, advise};
use super::super::{Context, Failure, Outcome, failed};
use super::median;
use gpu::{GpuReport, Memory};
use peer::{Peer, PeerName};

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    warpwave bench llm model.gguf --device cpu --threads 2 --peer llama.cpp\n  \
    warpwave bench llm model.gguf --device cuda:0 --prompt 4096 --json\n  \
    warpwave bench llm --random --dtype q4_k --device cuda:0 --peer transformers\n  \
    warpwave bench llm model.gguf --device cuda:0 --batch 1,4,16,64\n\n\
    Values are tokens per second (median of the rounds; rounds alternate between warpwave and the baseline, with the same token ids). \
    `x peer` above 1 means faster than the baseline. Baselines are Python packages: pip install xllamacpp, or torch and transformers. On \
    a GPU, the report also shows decode bandwidth as a fraction of copy bandwidth, prefill TFLOP/s as a fraction of vendor BLAS throughput, \
    measured and estimated memory, and the time of each kernel in a decode step. With --batch, each row decodes N sequences together, one \
    token of each per step.")]
pub(super) struct Options {
    #[command(flatten)]
    model_args: ModelArgs,
    /// Use a Llama 3.1 8B model with random weights of the type set by --dtype (bf16, q8_0 or q4_k; default: bf16).
    #[arg(long, conflicts_with = "model")]
    random: bool,
    /// Compare with this baseline.
    #[arg(long, value_name = "llama.cpp|transformers")]
    peer: Option<PeerName>,
    /// Set the prompt length in tokens.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    prompt: u32,
    /// Generate N tokens.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    tokens: u32,
    /// Repeat the measurement N times and report the median.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Benchmark these batch sizes (sequences per step) instead of a single sequence, e.g. 1,4,16.
    #[arg(long, value_name = "N,...", value_delimiter = ',', conflicts_with = "peer", value_parser = clap::value_parser!(u16).range(1..))]
    batch: Vec<u16>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Seconds of each round, prefill and decode.
#[derive(Default)]
struct Times {
    prefill: Vec<f64>,
    decode: Vec<f64>,
}

impl Times {
    fn add(&mut self, (prefill, decode): (f64, f64)) {
        self.prefill.push(prefill);
        self.decode.push(decode);
    }

    /// Returns prefill and decode tokens per second.
    fn rates(&self, options: &Options) -> [f64; 2] {
        [f64::from(options.prompt) / median(self.prefill.clone()), f64::from(options.tokens) / median(self.decode.clone())]
    }
}

pub(super) fn run(context: &mut Context<'_>, options: &Options) -> Outcome {
    options.model_args.with_threads(|| measure(context, options))
}

fn measure(context: &mut Context<'_>, options: &Options) -> Outcome {
    let mut model_args = options.model_args.clone();
    // One token more: the first comes from the prefill.
    model_args.context.get_or_insert(options.prompt + options.tokens + 1);
    model_args.cache_tokens = batch::cache_tokens(options);
    let mut loaded = if options.random {
        let kind = model_args.kind.take().unwrap_or(Kind::Plain(DType::Bf16));
        let checkpoint = Checkpoint::random(Config::llama_8b(), kind)?;
        model_args.load_checkpoint(context, checkpoint)?
    } else {
        model_args.load(context)?
    };
    let device = loaded.runner.model().device().clone();
    let vocab = loaded.checkpoint.config().vocab;
    let prompt = ids(options.prompt as usize, vocab);
    let threads = warpwave_tensor::cpu::threads();
    if !options.batch.is_empty() {
        return batch::run(context, options, &mut loaded, &prompt, threads);
    }
    let (mut ours, mut theirs) = (Times::default(), Times::default());
    // Warm up: compilation, graph capture and page faults are not measured.
    once(&mut loaded, &prompt, options.tokens.min(4) as usize)?;
    // Before a peer allocates on the same device.
    let memory = match &device {
        // Reported for a single device only.
        Device::Gpu(gpu) if loaded.budget.devices.len() == 1 => Some((gpu, Memory::used(gpu, &loaded)?)),
        _ => None,
    };
    let mut peer = options.peer.map(|name| Peer::start(name, &loaded, options, threads)).transpose()?;
    if let Some(peer) = &mut peer {
        peer.once(&prompt, options.tokens.min(4) as usize)?;
    }
    for _ in 0..options.rounds {
        ours.add(once(&mut loaded, &prompt, options.tokens as usize)?);
        if let Some(peer) = &mut peer {
            theirs.add(peer.once(&prompt, options.tokens as usize)?);
        }
    }
    let gpu_report = memory.map(|(gpu, memory)| GpuReport::of(context, gpu, &mut loaded, options, &prompt, memory)).transpose()?;
    let name = peer.as_ref().map(|peer| peer.name.clone());
    report(context, options, &loaded, threads, ours.rates(options), name.map(|name| (name, theirs.rates(options))), gpu_report.as_ref())
}

/// Returns deterministic pseudo-random token ids; skips the first ids, which are often special tokens.
fn ids(count: usize, vocab: usize) -> Vec<u32> {
    let first = if vocab > 1000 { 300 } else { 3.min(vocab - 1) };
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        first as u32 + ((state >> 33) % (vocab - first) as u64) as u32
    };
    (0..count).map(|_| next()).collect()
}

fn once(loaded: &mut LanguageModel, prompt: &[u32], tokens: usize) -> Result<(f64, f64), Failure> {
    let mut sequence = Sequence::default();
    let request = Request::default().max_tokens(tokens + 1).ignore_eos(true);
    let generation = loaded.runner.generate(&mut sequence, prompt, None, &request);
    let made = generation.and_then(|generation| generation.run(|_| ControlFlow::Continue(())));
    loaded.runner.release(sequence);
    let made = made.map_err(advise)?;
    if made.tokens.len() != tokens + 1 {
        let tokens = made.tokens.len();
        return Err(failed(format!("generation stopped after {tokens} tokens ({}); increase --context", made.finish_reason.name())));
    }
    Ok((made.prompt_time.as_secs_f64(), made.decode_time.as_secs_f64()))
}

/// Returns the line above the table.
fn title(options: &Options, loaded: &LanguageModel, threads: usize, versus: &str) -> String {
    let model = loaded.runner.model();
    let plural = if threads == 1 { "" } else { "s" };
    let threads = if model.device().is_cpu() { format!(", {threads} thread{plural}") } else { String::new() };
    let Options { prompt, tokens, rounds, .. } = options;
    format!("{}{threads}{versus}: prompt {prompt}, {tokens} generated tokens, median of {rounds} rounds", model.device_names())
}

fn report(
    context: &mut Context<'_>,
    options: &Options,
    loaded: &LanguageModel,
    threads: usize,
    ours: [f64; 2],
    peer: Option<(String, [f64; 2])>,
    gpu_report: Option<&GpuReport>,
) -> Outcome {
    let device = loaded.runner.model().device();
    let ratio = |i: usize| peer.as_ref().map(|(_, rates)| ours[i] / rates[i]);
    let names = ["prefill", "decode"];
    if options.json {
        let rows: Vec<Value> = (0..2)
            .map(|i| {
                let peer = peer.as_ref().map(|(_, rates)| rates[i]);
                json!({ "what": names[i], "unit": "tokens/s", "ours": ours[i], "peer": peer, "ratio": ratio(i) })
            })
            .collect();
        return context.print_json(&json!({
            "device": loaded.runner.model().device_names(),
            "threads": device.is_cpu().then_some(threads),
            "prompt": options.prompt,
            "tokens": options.tokens,
            "rounds": options.rounds,
            "peer": peer.as_ref().map(|(name, _)| name),
            "rows": rows,
            "gpu": gpu_report.map(|gpu_report| gpu_report.json(ours, options.prompt.into())),
        }));
    }
    let versus = peer.as_ref().map_or_else(String::new, |(name, _)| format!(", vs {name}"));
    writeln!(context.out, "{}", title(options, loaded, threads, &versus))?;
    writeln!(context.out, "{:20} {:>10} {:>10} {:>8}", "", "ours", "peer", "x peer")?;
    for (i, name) in names.iter().enumerate() {
        let number = |value: Option<f64>, digits: usize| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"));
        let (peer, ratio) = (number(peer.as_ref().map(|(_, rates)| rates[i]), 1), number(ratio(i), 3));
        writeln!(context.out, "{:20} {:>10.1} {peer:>10} {ratio:>8}", format!("{name} (tokens/s)"), ours[i])?;
    }
    match gpu_report {
        Some(gpu_report) => gpu_report.print(context.out, ours, options.prompt.into()),
        None => Ok(()),
    }
}
