//! `warpwave model info`: model parameters and memory requirements.

use std::path::PathBuf;

use serde_json::{Value, json};
use warpwave_kernels::DType;
use warpwave_llm::{Checkpoint, Tokenizer};
use warpwave_tensor::Device;
use warpwave_weights::Kind;

use super::super::{Context, Failure, Outcome};
use super::memory::{DeviceEstimate, MemoryEstimate, human};
use super::{ModelArgs, PrecisionArg, parse_cache_type, parse_weight_type};

#[derive(clap::Args)]
pub(super) struct Args {
    /// Model: a .gguf file, a directory with config.json and safetensors, or a Hugging Face hub model (ORG/NAME or
    /// ORG/NAME:FILE.gguf); default: the default model.
    #[arg(value_name = "MODEL")]
    model: Option<PathBuf>,
    /// Context length in tokens; default: 4096, or the limit of the model if smaller.
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..))]
    context: Option<u32>,
    /// Assume weights converted to this type.
    #[arg(long = "as", value_name = "f32|f16|bf16|q8_0|q4_k", value_parser = parse_weight_type)]
    kind: Option<Kind>,
    /// Assume this KV cache type.
    #[arg(long, value_name = "f16|bf16|f32", value_parser = parse_cache_type)]
    cache: Option<DType>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Total of the weights of one type.
struct TypeTotal {
    kind: Kind,
    tensors: usize,
    bytes: u64,
}

pub(super) fn run(context: &mut Context<'_>, args: &Args) -> Outcome {
    let Args { model, context: tokens, kind, cache, .. } = args;
    let (model, device) = (model.clone(), "cpu".to_owned());
    let model_args = ModelArgs {
        model,
        device,
        context: *tokens,
        precision: PrecisionArg::Fast,
        kind: *kind,
        cache: *cache,
        chunk: None,
        threads: None,
    };
    let (path, checkpoint) = model_args.open(context)?;
    let tokens = model_args.context(&checkpoint);
    let tokenizer = checkpoint.tokenizer();
    let totals = totals(&checkpoint, args.kind)?;
    let mut estimates =
        vec![("cpu".to_owned(), "host memory".to_owned(), MemoryEstimate::new(&checkpoint, &[Device::Cpu], &model_args, tokens)?)];
    for gpu in (context.gpus)().physical().into_iter().flatten() {
        let (name, model) = (gpu.name().to_owned(), gpu.info().model.clone());
        estimates.push((name, model, MemoryEstimate::new(&checkpoint, &[Device::gpu(&gpu, &context.jit)?], &model_args, tokens)?));
    }
    if args.json {
        let devices: Vec<Value> = estimates.iter().map(|(name, model, estimate)| device_json(name, model, estimate)).collect();
        let mut value = model_json(&checkpoint, &tokenizer, &totals);
        value["path"] = json!(path);
        value["devices"] = json!(devices);
        return context.print_json(&value);
    }
    print(context, &checkpoint, &tokenizer, &totals)?;
    for (name, model, estimate) in &estimates {
        let fits = match (estimate.fits(), estimate.devices[0].free) {
            (Some(true), Some(free)) => format!("fits, {} free", human(free)),
            (Some(false), Some(free)) => format!("DOES NOT FIT, {} free", human(free)),
            _ => "free memory unknown".to_owned(),
        };
        write!(context.out, "\n{name} ({model}): {fits}\n{}", estimate.breakdown())?;
    }
    Ok(())
}

fn totals(checkpoint: &Checkpoint, to: Option<Kind>) -> Result<Vec<TypeTotal>, Failure> {
    let mut totals: Vec<TypeTotal> = Vec::new();
    for info in checkpoint.converted(to)? {
        let bytes = info.kind.bytes(&info.shape).unwrap_or(0) as u64;
        match totals.iter_mut().find(|total| total.kind == info.kind) {
            Some(total) => (total.tensors, total.bytes) = (total.tensors + 1, total.bytes + bytes),
            None => totals.push(TypeTotal { kind: info.kind, tensors: 1, bytes }),
        }
    }
    totals.sort_by_key(|total| std::cmp::Reverse(total.bytes));
    Ok(totals)
}

fn parameters(checkpoint: &Checkpoint) -> u64 {
    checkpoint.infos().map(|info| info.shape.iter().map(|dim| *dim as u64).product::<u64>()).sum()
}

fn model_json(checkpoint: &Checkpoint, tokenizer: &warpwave_llm::Result<Tokenizer>, totals: &[TypeTotal]) -> Value {
    let config = checkpoint.config();
    let types: Vec<Value> =
        totals.iter().map(|total| json!({ "type": total.kind.to_string(), "tensors": total.tensors, "bytes": total.bytes })).collect();
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

fn device_json(name: &str, model: &str, estimate: &MemoryEstimate) -> Value {
    let DeviceEstimate { memory, free } = &estimate.devices[0];
    json!({
        "name": name,
        "model": model,
        "context": estimate.plan.context,
        "cache": estimate.cache.name(),
        "weights": memory.weights,
        "kv_per_token": memory.kv_per_token,
        "kv": memory.kv,
        "chunk": estimate.plan.chunk,
        "activations": memory.activations,
        "scratch": memory.scratch,
        "total": memory.total(),
        "free": free,
        "fits": estimate.fits(),
    })
}

fn print(context: &mut Context<'_>, checkpoint: &Checkpoint, tokenizer: &warpwave_llm::Result<Tokenizer>, totals: &[TypeTotal]) -> Outcome {
    let config = checkpoint.config();
    let out = &mut context.out;
    writeln!(
        out,
        "{}: family {}, {:.1}M parameters",
        config.name.as_deref().unwrap_or("unnamed model"),
        format!("{:?}", config.family).to_lowercase(),
        parameters(checkpoint) as f64 / 1e6
    )?;
    let window = config
        .window
        .map(|keys| format!(", sliding window of {keys} in {} layers", config.windowed.iter().filter(|windowed| **windowed).count()));
    let mut line = |label: &str, text: String| writeln!(out, "  {label:16} {text}");
    line("layers", format!("{}, hidden size {}, feed-forward {}", config.layers, config.hidden, config.feed_forward))?;
    line("heads", format!("{}, head_dim {}, {} KV heads{}", config.heads, config.head_dim, config.kv_heads, window.unwrap_or_default()))?;
    line("context", format!("{} tokens", config.context))?;
    line("vocabulary", format!("{}{}", config.vocab, if checkpoint.is_tied() { ", tied embeddings" } else { "" }))?;
    for (number, total) in totals.iter().enumerate() {
        let text = format!("{:6} {:>4} tensors {:>10}", total.kind.to_string(), total.tensors, human(total.bytes));
        line(if number == 0 { "types" } else { "" }, text)?;
    }
    match tokenizer {
        Ok(tokenizer) => {
            let template = if tokenizer.template().is_some() { "chat template" } else { "no chat template" };
            line("tokenizer", format!("{} tokens, eos {:?}, {template}", tokenizer.len(), tokenizer.eos()))?;
        }
        Err(error) => line("tokenizer", format!("none: {error}"))?,
    }
    Ok(())
}
