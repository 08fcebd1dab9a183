//! `warpwave generate`: goes on with a text.

use std::io::{Read, Write};
use std::ops::ControlFlow;

use serde_json::{Value, json};
use warpwave_llm::{ChatTemplate, Checkpoint, Ended, Error, Generated, Picked, Piece, Request, Sequence, Tokenizer};

use super::super::{Context, Outcome, failed, usage};
use super::interrupt::Interrupt;
use super::picking::Picking;
use super::template::render;
use super::{Loaded, Which, rate};

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    warpwave generate -p 'The capital of France is' --max-tokens 8\n  \
    warpwave generate model.gguf -p 'Why is the sky blue?' --chat --device cuda:0 --temperature 0.7\n  \
    warpwave generate model.gguf --ids 1,2,3 --json --logprobs 5\n\n\
    A prompt goes to the model as it is; with --chat it is a user's message in the model's chat template.\n\
    Ctrl-C ends the text; a second one ends the program.")]
pub(crate) struct Args {
    #[command(flatten)]
    which: Which,
    /// The text to go on with; - reads it from standard input, without the last line's end.
    #[arg(short, long, value_name = "TEXT", required_unless_present = "ids", conflicts_with = "ids")]
    prompt: Option<String>,
    /// Token ids to go on with.
    #[arg(long, value_name = "1,2,3", value_delimiter = ',')]
    ids: Vec<u32>,
    /// The prompt is a user's message: put it into the model's chat template.
    #[arg(long, conflicts_with = "ids")]
    chat: bool,
    /// The system's message before it.
    #[arg(long, value_name = "TEXT", requires = "chat")]
    system: Option<String>,
    /// Tokens to add at most.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 256)]
    max_tokens: usize,
    /// End before this string; may be given several times.
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
    /// Go on where the model would end.
    #[arg(long)]
    ignore_eos: bool,
    /// Also the so many likeliest tokens of each position, with the logarithms of their probabilities (with --json).
    #[arg(long, value_name = "N", requires = "json")]
    logprobs: Option<usize>,
    /// Print JSON when all is done: ids, text, the logarithms of their probabilities, timings.
    #[arg(long)]
    json: bool,
    /// Print timings on standard error.
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    picking: Picking,
}

pub(crate) fn run(context: &mut Context<'_>, args: &Args) -> Outcome {
    args.which.with_threads(|| generate(context, args))
}

fn generate(context: &mut Context<'_>, args: &Args) -> Outcome {
    let sampler = args.picking.sampler(0.0)?;
    let text = match args.prompt.as_deref() {
        Some("-") => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text)?;
            Some(text.strip_suffix('\n').unwrap_or(&text).to_owned())
        }
        prompt => prompt.map(str::to_owned),
    };
    // What cannot be gone on with is refused before the weights are loaded, which may take long.
    let (path, checkpoint) = args.which.open(context)?;
    args.picking.check_tokens(checkpoint.config().vocab)?;
    let tokenizer = match checkpoint.tokenizer() {
        Ok(tokenizer) => Some(tokenizer),
        Err(error) if text.is_some() => return Err(failed(format!("a text needs the model's tokenizer: {error}; --ids needs none"))),
        Err(error) => {
            writeln!(context.err, "warpwave: no tokenizer, so there are ids and no text: {error}")?;
            None
        }
    };
    let mut stops = args.stop.clone();
    let prompt = match (&text, &tokenizer) {
        (Some(text), Some(tokenizer)) if args.chat => {
            let template = ChatTemplate::of(tokenizer)?;
            say_fallback(context, &template)?;
            stops.extend(template.stops().iter().map(|stop| (*stop).to_owned()));
            let system = args.system.as_deref().map(|text| ("system", text));
            tokenizer.encode_prompt(&render(&template, system.into_iter().chain([("user", text.as_str())]))?, true)?
        }
        (Some(text), Some(tokenizer)) => tokenizer.encode_prompt(text, true)?,
        _ => args.ids.clone(),
    };
    if prompt.is_empty() {
        return Err(usage("the prompt has no tokens: there is nothing to go on with"));
    }
    let vocab = checkpoint.config().vocab;
    if let Some(token) = args.ids.iter().find(|token| **token as usize >= vocab) {
        return Err(usage(format!("--ids: {}", Error::NoToken { token: *token, vocab })));
    }
    check_room(&checkpoint, prompt.len(), args.which.context(&checkpoint))?;
    let mut loaded = args.which.load_checkpoint(context, &path.display().to_string(), checkpoint)?;
    let request = Request { tokens: args.max_tokens, sampler, stops, ignore_eos: args.ignore_eos, top: args.logprobs.unwrap_or(0) };
    let mut sequence = Sequence::default();
    let interrupt = Interrupt::listen();
    let mut failure = None;
    let made = loaded.generate(&mut sequence, &prompt, tokenizer.as_ref(), &request, &mut |piece| {
        if !args.json
            && let Err(error) = show(context.out, piece, tokenizer.is_some())
        {
            failure = Some(error);
            return ControlFlow::Break(());
        }
        if interrupt.pressed() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    drop(interrupt);
    if let Some(error) = failure {
        return Err(error.into());
    }
    let timings = timings(&loaded, &made);
    if args.json {
        let ids: Vec<u32> = made.tokens.iter().map(|picked| picked.token).collect();
        let logprobs: Value = made.tokens.iter().map(|picked| with_logs(picked, tokenizer.as_ref(), args.logprobs.is_some())).collect();
        let answer = json!({
            "device": loaded.runner.model().place(),
            "prompt_ids": prompt,
            "ids": ids,
            "text": tokenizer.is_some().then_some(&made.text),
            "logprobs": logprobs,
            "ended": made.ended.name(),
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

/// A prompt that does not fit is refused before it is computed.
fn check_room(checkpoint: &Checkpoint, prompt: usize, room: usize) -> Outcome {
    if prompt < room {
        return Ok(());
    }
    let most = checkpoint.config().context;
    Err(failed(format!(
        "the prompt has {prompt} tokens, and the context is {room}: give it more with --context (the model was made for {most})"
    )))
}

pub(super) fn say_fallback(context: &mut Context<'_>, template: &ChatTemplate) -> Outcome {
    if template.is_fallback() {
        writeln!(context.err, "warpwave: the model has no chat template: ChatML is used, which it may never have seen")?;
    }
    Ok(())
}

/// Text as it comes, or ids where there is none.
fn show(out: &mut dyn Write, piece: &Piece, text: bool) -> std::io::Result<()> {
    match &piece.picked {
        Some(picked) if !text => write!(out, "{} ", picked.token)?,
        _ => write!(out, "{}", piece.text)?,
    }
    out.flush()
}

fn with_logs(picked: &Picked, tokenizer: Option<&Tokenizer>, top: bool) -> Value {
    let one = |token: u32, log: f32| {
        let text = tokenizer.and_then(|tokenizer| tokenizer.token(token)).map(String::from_utf8_lossy);
        json!({ "id": token, "text": text, "logprob": log })
    };
    let mut value = one(picked.token, picked.log);
    if top {
        value["top"] = picked.top.iter().map(|(token, log)| one(*token, *log)).collect();
    }
    value
}

/// The first token comes out of the prompt's pass; each further one, and the one that ends the text, takes a pass.
pub(super) fn timings(loaded: &Loaded, made: &Generated) -> Value {
    let decoded = (made.tokens.len() + usize::from(made.ended == Ended::Eos)).saturating_sub(1);
    json!({
        "load_seconds": loaded.load_time.as_secs_f64(),
        "prompt_tokens": made.prompt,
        "prompt_seconds": made.prompt_time.as_secs_f64(),
        "prompt_tokens_per_second": rate(made.prompt, made.prompt_time),
        "decode_tokens": decoded,
        "decode_seconds": made.decode_time.as_secs_f64(),
        "decode_tokens_per_second": rate(decoded, made.decode_time),
    })
}

pub(super) fn print_timings(context: &mut Context<'_>, made: &Generated, timings: &Value) -> Outcome {
    let number = |key: &str| timings[key].as_f64().unwrap_or(0.0);
    writeln!(
        context.err,
        "[{} prompt tokens, {:.1}/s; {} tokens, {:.1}/s; ended by {}; loaded in {:.2} s]",
        made.prompt,
        number("prompt_tokens_per_second"),
        made.tokens.len(),
        number("decode_tokens_per_second"),
        made.ended.name(),
        number("load_seconds"),
    )?;
    Ok(())
}
