//! `warpwave model info`: what a model is, and whether it fits.

use std::path::PathBuf;

use serde_json::{Value, json};
use warpwave_kernels::DType;
use warpwave_llm::{Checkpoint, Tokenizer};
use warpwave_tensor::Device;
use warpwave_weights::Kind;

use super::super::{Context, Failure, Outcome};
use super::memory::{Need, Part, human};
use super::{Exactness, Which, cache_type, kind};

#[derive(clap::Args)]
pub(super) struct Args {
    /// A .gguf file, a folder with config.json and safetensors, or a model of the Hugging Face hub (ORG/NAME, or ORG/NAME:FILE.gguf);
    /// without it the default model.
    #[arg(value_name = "MODEL")]
    model: Option<PathBuf>,
    /// Tokens of prompt and answer together; default 4096, or fewer if the model was made for fewer.
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..))]
    context: Option<u32>,
    /// As if the weights were converted while loading.
    #[arg(long = "as", value_name = "f32|f16|bf16|q8_0|q4_k", value_parser = kind)]
    kind: Option<Kind>,
    /// As if keys and values had this type.
    #[arg(long, value_name = "f16|bf16|f32", value_parser = cache_type)]
    cache: Option<DType>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Weights of one type.
struct Share {
    kind: Kind,
    tensors: usize,
    bytes: u64,
}

pub(super) fn run(context: &mut Context<'_>, args: &Args) -> Outcome {
    let Args { model, context: tokens, kind, cache, .. } = args;
    let (model, device) = (model.clone(), "cpu".to_owned());
    let which =
        Which { model, device, context: *tokens, precision: Exactness::Fast, kind: *kind, cache: *cache, chunk: None, threads: None };
    let (path, checkpoint) = which.open(context)?;
    let tokens = which.context(&checkpoint);
    let tokenizer = checkpoint.tokenizer();
    let shares = shares(&checkpoint, args.kind)?;
    let mut needs = vec![("cpu".to_owned(), "this computer".to_owned(), Need::of(&checkpoint, &[Device::Cpu], &which, tokens)?)];
    for gpu in (context.gpus)().devices().into_iter().flatten() {
        let (name, model) = (gpu.name().to_owned(), gpu.info().model.clone());
        needs.push((name, model, Need::of(&checkpoint, &[Device::gpu(&gpu, &context.jit)?], &which, tokens)?));
    }
    if args.json {
        let devices: Vec<Value> = needs.iter().map(|(name, model, need)| device_json(name, model, need)).collect();
        let mut value = facts(&checkpoint, &tokenizer, &shares);
        value["path"] = json!(path);
        value["devices"] = json!(devices);
        return context.print_json(&value);
    }
    print(context, &checkpoint, &tokenizer, &shares)?;
    for (name, model, need) in &needs {
        let fits = match (need.fits(), need.parts[0].free) {
            (Some(true), Some(free)) => format!("fits, {} free", human(free)),
            (Some(false), Some(free)) => format!("DOES NOT FIT: {} free", human(free)),
            _ => "free memory not known".to_owned(),
        };
        write!(context.out, "\n{name} ({model}): {fits}\n{}", need.arithmetic())?;
    }
    Ok(())
}

fn shares(checkpoint: &Checkpoint, to: Option<Kind>) -> Result<Vec<Share>, Failure> {
    let mut shares: Vec<Share> = Vec::new();
    for info in checkpoint.converted(to)? {
        let bytes = info.kind.bytes(&info.shape).unwrap_or(0) as u64;
        match shares.iter_mut().find(|share| share.kind == info.kind) {
            Some(share) => (share.tensors, share.bytes) = (share.tensors + 1, share.bytes + bytes),
            None => shares.push(Share { kind: info.kind, tensors: 1, bytes }),
        }
    }
    shares.sort_by_key(|share| std::cmp::Reverse(share.bytes));
    Ok(shares)
}

fn parameters(checkpoint: &Checkpoint) -> u64 {
    checkpoint.infos().map(|info| info.shape.iter().map(|dim| *dim as u64).product::<u64>()).sum()
}

fn facts(checkpoint: &Checkpoint, tokenizer: &warpwave_llm::Result<Tokenizer>, shares: &[Share]) -> Value {
    let config = checkpoint.config();
    let types: Vec<Value> =
        shares.iter().map(|share| json!({ "type": share.kind.to_string(), "tensors": share.tensors, "bytes": share.bytes })).collect();
    let tokenizer = match tokenizer {
        Ok(tokenizer) => json!({
            "tokens": tokenizer.len(), "bos": tokenizer.bos(), "adds_bos": tokenizer.adds_bos(), "eos": tokenizer.eos(),
            "chat_template": tokenizer.template().is_some(),
        }),
        Err(error) => json!({ "error": error.to_string() }),
    };
    json!({
        "name": config.name,
        "family": format!("{:?}", config.family).to_lowercase(),
        "format": if checkpoint.gguf().is_some() { "gguf" } else { "safetensors" },
        "parameters": parameters(checkpoint),
        "layers": config.layers,
        "hidden": config.hidden,
        "heads": config.heads,
        "kv_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "feed_forward": config.feed_forward,
        "vocabulary": config.vocab,
        "context": config.context,
        "window": config.window,
        "output_tied": checkpoint.is_tied(),
        "types": types,
        "tokenizer": tokenizer,
    })
}

fn device_json(name: &str, model: &str, need: &Need) -> Value {
    let Part { memory, free } = &need.parts[0];
    json!({
        "name": name,
        "model": model,
        "context": need.plan.context,
        "cache": need.cache.name(),
        "weights": memory.weights,
        "kv_per_token": memory.kv_per_token,
        "kv": memory.kv,
        "chunk": need.plan.chunk,
        "activations": memory.activations,
        "scratch": memory.scratch,
        "total": memory.total(),
        "free": free,
        "fits": need.fits(),
    })
}

fn print(context: &mut Context<'_>, checkpoint: &Checkpoint, tokenizer: &warpwave_llm::Result<Tokenizer>, shares: &[Share]) -> Outcome {
    let config = checkpoint.config();
    let out = &mut context.out;
    writeln!(
        out,
        "{}: family {}, {:.1} million parameters",
        config.name.as_deref().unwrap_or("a model without a name"),
        format!("{:?}", config.family).to_lowercase(),
        parameters(checkpoint) as f64 / 1e6
    )?;
    let window = config
        .window
        .map(|keys| format!(", a window of {keys} in {} layers", config.windowed.iter().filter(|windowed| **windowed).count()));
    let mut line = |what: &str, text: String| writeln!(out, "  {what:16} {text}");
    line("layers", format!("{} of {} wide, feed-forward {}", config.layers, config.hidden, config.feed_forward))?;
    line(
        "heads",
        format!("{} of {}, {} for keys and values{}", config.heads, config.head_dim, config.kv_heads, window.unwrap_or_default()),
    )?;
    line("context", format!("{} positions", config.context))?;
    line(
        "vocabulary",
        format!("{}{}", config.vocab, if checkpoint.is_tied() { ", the output shares the embedding's matrix" } else { "" }),
    )?;
    for (number, share) in shares.iter().enumerate() {
        let text = format!("{:6} {:>4} tensors {:>10}", share.kind.to_string(), share.tensors, human(share.bytes));
        line(if number == 0 { "types" } else { "" }, text)?;
    }
    match tokenizer {
        Ok(tokenizer) => {
            let template = if tokenizer.template().is_some() { "a chat template" } else { "no chat template" };
            line("tokenizer", format!("{} tokens, ends with {:?}, {template}", tokenizer.len(), tokenizer.eos()))?;
        }
        Err(error) => line("tokenizer", format!("none: {error}"))?,
    }
    Ok(())
}
