//! `warpwave model info`: model parameters and memory requirements.

use std::path::PathBuf;

use serde_json::{Value, json};
use warpwave_llm::{Checkpoint, DeviceBudget, KvCacheType, MemoryBudget, MemoryPlan, Tokenizer};
use warpwave_tensor::Device;
use warpwave_weights::Kind;

use super::super::{Context, Failure, Outcome};
use super::memory::human;
use super::{ModelArgs, PrecisionArg, parse_cache_type, parse_weight_type};

#[derive(clap::Args)]
pub(super) struct Args {
    /// Model: a .gguf file, a directory with config.json and safetensors, or a Hugging Face Hub model (ORG/NAME or
    /// ORG/NAME:FILE.gguf); default: SmolLM2-135M-Instruct.
    #[arg(value_name = "MODEL")]
    model: Option<PathBuf>,
    /// Assume this context length in tokens; default: 4096, or the model's limit if smaller.
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..))]
    context: Option<u32>,
    /// Assume weights converted to this type.
    #[arg(long = "dtype", alias = "as", value_name = "f32|f16|bf16|q8_0|q4_k|...", value_parser = parse_weight_type)]
    kind: Option<Kind>,
    /// Assume this KV cache type.
    #[arg(long = "kv-cache-type", alias = "cache", value_name = "f32|f16|bf16|f8e4m3|q8_0", value_parser = parse_cache_type)]
    cache: Option<KvCacheType>,
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
        cache_tokens: None,
        precision: PrecisionArg::Fast,
        kind: *kind,
        cache: *cache,
        chunk: None,
        threads: None,
    };
    let checkpoint = model_args.open(context)?;
    let tokens = model_args.context(&checkpoint);
    let tokenizer = checkpoint.tokenizer();
    let totals = totals(&checkpoint, args.kind)?;
    let budget = |device: Device| {
        let plan = MemoryPlan { weights: *kind, kv_cache: *cache, ..MemoryPlan::new([device], tokens) };
        MemoryBudget::new(&checkpoint, plan)
    };
    let mut budgets = vec![("cpu".to_owned(), "host memory".to_owned(), budget(Device::Cpu)?)];
    for gpu in (context.gpus)().physical().into_iter().flatten() {
        let (name, model) = (gpu.name().to_owned(), gpu.info().model.clone());
        budgets.push((name, model, budget(Device::gpu(&gpu, &context.jit)?)?));
    }
    if args.json {
        let devices: Vec<Value> = budgets.iter().map(|(name, model, budget)| device_json(name, model, budget)).collect();
        let mut value = model_json(&checkpoint, &tokenizer, &totals);
        value["path"] = json!(checkpoint.path());
        value["devices"] = json!(devices);
        return context.print_json(&value);
    }
    print(context, &checkpoint, &tokenizer, &totals)?;
    for (name, model, budget) in &budgets {
        let fits = match (budget.fits(), budget.devices[0].free) {
            (Some(true), Some(free)) => format!("fits, {} free", human(free)),
            (Some(false), Some(free)) => format!("DOES NOT FIT, {} free", human(free)),
            _ => "free memory unknown".to_owned(),
        };
        write!(context.out, "\n{name} ({model}): {fits}\n{budget}")?;
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
        "window": config.sliding_window,
        "output_tied": checkpoint.is_tied(),
        "types": types,
        "tokenizer": tokenizer,
    })
}

fn device_json(name: &str, model: &str, budget: &MemoryBudget) -> Value {
    let DeviceBudget { estimate, free } = &budget.devices[0];
    json!({
        "name": name,
        "model": model,
        "context": budget.plan.context,
        "cache": budget.kv_cache.name(),
        "weights": estimate.weights,
        "kv_per_token": estimate.kv_per_token,
        "kv": estimate.kv,
        "chunk": budget.plan.chunk,
        "activations": estimate.activations,
        "scratch": estimate.scratch,
        "total": estimate.total(),
        "free": free,
        "fits": budget.fits(),
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
    let sliding = config.sliding_layers.iter().filter(|sliding| **sliding).count();
    let window = config.sliding_window.map(|keys| format!(", sliding window of {keys} tokens in {sliding} layers"));
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
