//! `warpwave bench llm --batch`: throughput of several sequences in each step.

use std::time::Instant;

use serde_json::{Value, json};
use warpwave_llm::{LanguageModel, Logits, Runner, Sequence};
use warpwave_tensor::{BLOCK_SIZE, Tensor};

use super::super::super::llm::advise;
use super::super::super::{Context, Failure, Outcome};
use super::{Options, Times, title};

/// Throughput with one batch size, in tokens per second of all sequences together.
struct Row {
    batch: usize,
    prefill: f64,
    decode: f64,
}

impl Row {
    /// Returns the decode tokens per second of one sequence.
    fn per_sequence(&self) -> f64 {
        self.decode / self.batch as f64
    }
}

/// Returns the tokens that the KV cache holds for the largest batch; `None` without `--batch`.
pub fn cache_tokens(options: &Options) -> Option<usize> {
    let each = (options.prompt as usize + options.tokens as usize).next_multiple_of(BLOCK_SIZE);
    options.batch.iter().max().map(|batch| usize::from(*batch) * each)
}

pub fn run(context: &mut Context<'_>, options: &Options, loaded: &mut LanguageModel, prompt: &[u32], threads: usize) -> Outcome {
    let mut rows = Vec::new();
    for batch in options.batch.iter().map(|batch| usize::from(*batch)) {
        // Warm up: compilation, graph capture and page faults are not measured.
        once(&mut loaded.runner, batch, prompt, options.tokens.min(4))?;
        let mut times = Times::default();
        for _ in 0..options.rounds {
            times.add(once(&mut loaded.runner, batch, prompt, options.tokens)?);
        }
        let [prefill, decode] = times.rates(options).map(|rate| rate * batch as f64);
        rows.push(Row { batch, prefill, decode });
    }
    report(context, options, loaded, threads, &rows)
}

/// Returns the seconds of the prefill and of all decode steps.
fn once(runner: &mut Runner, batch: usize, prompt: &[u32], tokens: u32) -> Result<(f64, f64), Failure> {
    let mut sequences: Vec<Sequence> = (0..batch).map(|_| Sequence::default()).collect();
    // Each sequence has the prompt rotated by its index, so that they differ.
    let prompts: Vec<Vec<u32>> =
        (0..batch).map(|index| [&prompt[index % prompt.len()..], &prompt[..index % prompt.len()]].concat()).collect();
    let started = Instant::now();
    let mut ids = step(runner, &mut sequences, prompts.iter().map(Vec::as_slice))?;
    let prefill = started.elapsed().as_secs_f64();
    let started = Instant::now();
    for _ in 0..tokens {
        ids = step(runner, &mut sequences, ids.chunks(1))?;
    }
    Ok((prefill, started.elapsed().as_secs_f64()))
}

/// Appends tokens to each sequence; returns the most likely next token of each.
fn step<'a>(runner: &mut Runner, sequences: &mut [Sequence], tokens: impl Iterator<Item = &'a [u32]>) -> Result<Vec<u32>, Failure> {
    let mut batch: Vec<(&mut Sequence, &[u32])> = sequences.iter_mut().zip(tokens).collect();
    let logits: Tensor = runner.forward(&mut batch, Logits::Last).map_err(advise)?;
    Ok(logits.argmax(-1)?.to_vec::<u32>()?)
}

fn report(context: &mut Context<'_>, options: &Options, loaded: &LanguageModel, threads: usize, rows: &[Row]) -> Outcome {
    let model = loaded.runner.model();
    if options.json {
        let row = |row: &Row| json!({ "batch": row.batch, "unit": "tokens/s", "prefill": row.prefill, "decode": row.decode, "decode_per_sequence": row.per_sequence() });
        return context.print_json(&json!({
            "device": model.device_names(),
            "threads": model.device().is_cpu().then_some(threads),
            "prompt": options.prompt,
            "tokens": options.tokens,
            "rounds": options.rounds,
            "rows": rows.iter().map(row).collect::<Vec<Value>>(),
        }));
    }
    writeln!(context.out, "{}", title(options, loaded, threads, ""))?;
    writeln!(
        context.out,
        "{:>5} {:>18} {:>18} {:>14} {:>10}",
        "batch", "prefill (tokens/s)", "decode (tokens/s)", "per sequence", "step (ms)"
    )?;
    for row in rows {
        let (per_sequence, step) = (row.per_sequence(), 1e3 / row.per_sequence());
        writeln!(context.out, "{:>5} {:>18.1} {:>18.1} {per_sequence:>14.1} {step:>10.3}", row.batch, row.prefill, row.decode)?;
    }
    Ok(())
}
