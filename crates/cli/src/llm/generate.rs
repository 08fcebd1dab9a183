//! `warpwave generate`: continues a prompt.

use std::io::{Read, Write};
use std::ops::ControlFlow;

use serde_json::{Value, json};
use warpwave_llm::{
    ChatTemplate, Checkpoint, Completion, Error, Event, FinishReason, LanguageModel, Request, SampledToken, Sequence, Tokenizer,
};

use super::super::{Context, Outcome, failed, usage};
use super::interrupt::Interrupt;
use super::sampling::SamplingArgs;
use super::template::render;
use super::{ModelArgs, advise, rate};

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    warpwave generate -p 'The capital of France is' --max-tokens 8\n  \
    warpwave generate model.gguf -p 'Why is the sky blue?' --chat --device cuda:0 --temperature 0.7\n  \
    warpwave generate model.gguf --ids 1,2,3 --json --logprobs 5\n\n\
    The prompt is passed to the model verbatim; with --chat it becomes a user message in the model's chat template.\n\
    Ctrl-C stops generation; a second Ctrl-C exits.")]
pub(crate) struct Args {
    #[command(flatten)]
    model_args: ModelArgs,
    /// Use this prompt; - reads it from standard input (a trailing newline is removed).
    #[arg(short, long, value_name = "TEXT", required_unless_present = "ids", conflicts_with = "ids")]
    prompt: Option<String>,
    /// Use these token ids as the prompt.
    #[arg(long, value_name = "1,2,3", value_delimiter = ',')]
    ids: Vec<u32>,
    /// Format the prompt as a user message with the chat template of the model.
    #[arg(long, conflicts_with = "ids")]
    chat: bool,
    /// Set the system prompt.
    #[arg(long, value_name = "TEXT", requires = "chat")]
    system: Option<String>,
    /// Generate at most N tokens.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 256)]
    max_tokens: usize,
    /// Stop at this string, which is not included in the output; repeatable.
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
    /// Ignore end-of-sequence tokens.
    #[arg(long)]
    ignore_eos: bool,
    /// Include the N most likely tokens at each position with their log probabilities (with --json).
    #[arg(long, value_name = "N", requires = "json")]
    logprobs: Option<usize>,
    /// Print JSON at the end: token ids, text, log probabilities, timings.
    #[arg(long)]
    json: bool,
    /// Print timings to standard error.
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    sampling: SamplingArgs,
}

pub(crate) fn run(context: &mut Context<'_>, args: &Args) -> Outcome {
    args.model_args.with_threads(|| generate(context, args))
}

fn generate(context: &mut Context<'_>, args: &Args) -> Outcome {
    let sampler = args.sampling.sampler(0.0)?;
    let text = match args.prompt.as_deref() {
        Some("-") => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text)?;
            Some(text.strip_suffix('\n').unwrap_or(&text).to_owned())
        }
        prompt => prompt.map(str::to_owned),
    };
    // Validate the prompt before loading the weights, which can take long.
    let checkpoint = args.model_args.open(context)?;
    args.sampling.check_tokens(checkpoint.config().vocab)?;
    let tokenizer = match checkpoint.tokenizer() {
        Ok(tokenizer) => Some(tokenizer),
        Err(error) if text.is_some() => return Err(failed(format!("cannot load the tokenizer: {error}; use --ids to pass token ids"))),
        Err(error) => {
            writeln!(context.err, "warpwave: cannot load the tokenizer ({error}); printing token ids instead")?;
            None
        }
    };
    let mut stop = args.stop.clone();
    let prompt = match (&text, &tokenizer) {
        (Some(text), Some(tokenizer)) if args.chat => {
            let template = ChatTemplate::of(tokenizer)?;
            warn_fallback(context, &template)?;
            stop.extend(template.stops().iter().map(|stop| (*stop).to_owned()));
            let system = args.system.as_deref().map(|text| ("system", text));
            tokenizer.encode_prompt(&render(&template, system.into_iter().chain([("user", text.as_str())]))?, true)?
        }
        (Some(text), Some(tokenizer)) => tokenizer.encode_prompt(text, true)?,
        _ => args.ids.clone(),
    };
    if prompt.is_empty() {
        return Err(usage("the prompt is empty (0 tokens)"));
    }
    let vocab = checkpoint.config().vocab;
    if let Some(token) = args.ids.iter().find(|token| **token as usize >= vocab) {
        return Err(usage(format!("--ids: {}", Error::TokenOutOfRange { token: *token, vocab })));
    }
    check_context(&checkpoint, prompt.len(), args.model_args.context(&checkpoint))?;
    let mut loaded = args.model_args.load_checkpoint(context, checkpoint)?;
    let top_logprobs = args.logprobs.unwrap_or(0);
    let request = Request { max_tokens: args.max_tokens, sampler, stop, ignore_eos: args.ignore_eos, top_logprobs };
    let mut sequence = Sequence::default();
    let interrupt = Interrupt::listen();
    let mut failure = None;
    let generation = loaded.runner.generate(&mut sequence, &prompt, tokenizer.as_ref(), &request).map_err(advise)?;
    let listen = |event: &Event| {
        if !args.json
            && let Err(error) = show(context.out, event, tokenizer.is_some())
        {
            failure = Some(error);
            return ControlFlow::Break(());
        }
        if interrupt.pressed() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let made = generation.run(listen).map_err(advise)?;
    drop(interrupt);
    if let Some(error) = failure {
        return Err(error.into());
    }
    let timings = timings(&loaded, &made);
    if args.json {
        let ids: Vec<u32> = made.tokens.iter().map(|token| token.id).collect();
        let logprobs: Value = made.tokens.iter().map(|token| token_json(token, tokenizer.as_ref(), args.logprobs.is_some())).collect();
        let answer = json!({
            "device": loaded.runner.model().device_names(),
            "prompt_ids": prompt,
            "ids": ids,
            "text": tokenizer.is_some().then_some(&made.text),
            "logprobs": logprobs,
            "finish_reason": made.finish_reason.name(),
            "seed": request.sampler.seed,
            "timings": timings,
        });
        return context.print_json(&answer);
    }
    if tokenizer.is_none() || !made.text.ends_with('\n') {
        writeln!(context.out)?;
    }
    if args.verbose {
        print_timings(context, &made, &timings)?;
    }
    Ok(())
}

/// Checks that the prompt fits into the context.
fn check_context(checkpoint: &Checkpoint, prompt: usize, context: usize) -> Outcome {
    if prompt < context {
        return Ok(());
    }
    let limit = checkpoint.config().context;
    Err(failed(format!(
        "the prompt has {prompt} tokens, but the context length is {context}; increase --context (the model supports up to {limit})"
    )))
}

pub(super) fn warn_fallback(context: &mut Context<'_>, template: &ChatTemplate) -> Outcome {
    if template.is_fallback() {
        writeln!(context.err, "warpwave: the model has no chat template; using ChatML, which may differ from its training format")?;
    }
    Ok(())
}

/// Prints the new text, or the token id without a tokenizer.
fn show(out: &mut dyn Write, event: &Event, text: bool) -> std::io::Result<()> {
    match event {
        Event::Token { token, .. } if !text => write!(out, "{} ", token.id)?,
        _ => write!(out, "{}", event.text())?,
    }
    out.flush()
}

fn token_json(sampled: &SampledToken, tokenizer: Option<&Tokenizer>, top: bool) -> Value {
    let one = |token: u32, log: f32| {
        let text = tokenizer.and_then(|tokenizer| tokenizer.token(token)).map(String::from_utf8_lossy);
        json!({ "id": token, "text": text, "logprob": log })
    };
    let mut value = one(sampled.id, sampled.logprob);
    if top {
        value["top"] = sampled.top_logprobs.iter().map(|(token, log)| one(*token, *log)).collect();
    }
    value
}

/// Returns timings as JSON.
///
/// The first token comes from the prefill; each further token, including end-of-sequence, takes one decode step.
pub(super) fn timings(loaded: &LanguageModel, made: &Completion) -> Value {
    let decoded = (made.tokens.len() + usize::from(made.finish_reason == FinishReason::Eos)).saturating_sub(1);
    json!({
        "load_seconds": loaded.load_time.as_secs_f64(),
        "prompt_tokens": made.prompt_tokens,
        "prompt_seconds": made.prompt_time.as_secs_f64(),
        "prompt_tokens_per_second": rate(made.prompt_tokens, made.prompt_time),
        "decode_tokens": decoded,
        "decode_seconds": made.decode_time.as_secs_f64(),
        "decode_tokens_per_second": rate(decoded, made.decode_time),
    })
}

pub(super) fn print_timings(context: &mut Context<'_>, made: &Completion, timings: &Value) -> Outcome {
    let number = |key: &str| timings[key].as_f64().unwrap_or(0.0);
    writeln!(
        context.err,
        "[{} prompt tokens, {:.1}/s; {} tokens, {:.1}/s; finish reason {}; loaded in {:.2} s]",
        made.prompt_tokens,
        number("prompt_tokens_per_second"),
        made.tokens.len(),
        number("decode_tokens_per_second"),
        made.finish_reason.name(),
        number("load_seconds"),
    )?;
    Ok(())
}
