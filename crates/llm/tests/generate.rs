//! Generation: events, finish reasons, cancellation, the context limit, and `ModelBuilder`.

#[path = "../../tensor/tests/common/mod.rs"]
mod common;

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::PathBuf;

use safetensors::SafeTensors;
use warpwave_kernels::DType;
use warpwave_llm::{
    Alternative, Checkpoint, Completion, Config, Error, Event, FinishReason, LoadOptions, Model, ModelBuilder, Precision, Request,
    RopeConfig, Runner, RunnerOptions, Sampler, Sequence, Tokenizer, Vocabulary,
};
use warpwave_tensor::Device;
use warpwave_test_support::{test_model, workspace_root};
use warpwave_weights::Kind;

/// Prompt tokens of [`text`].
const PROMPT: usize = 12;
/// The end-of-sequence token of the model's configuration.
const END: u32 = 2;

fn folder() -> PathBuf {
    workspace_root().join("crates/llm/tests/oracles/llama3")
}

/// A prompt of 12 tokens, and the 16 that greedy decoding adds.
fn text() -> Vec<u32> {
    let bytes = std::fs::read(folder().join("expected.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    file.tensor("greedy").unwrap().data().as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect()
}

fn runner_with(device: &Device, options: RunnerOptions) -> Runner {
    let checkpoint = Checkpoint::open(folder()).unwrap();
    let load = LoadOptions { precision: Precision::Exact, ..LoadOptions::default() };
    Runner::new(Model::load(&checkpoint, device, load, &mut |_| ()).unwrap(), options).unwrap()
}

fn runner(device: &Device, cache_tokens: usize, chunk: usize) -> Runner {
    runner_with(device, RunnerOptions { context: 64, cache_tokens: Some(cache_tokens), chunk: Some(chunk), ..RunnerOptions::default() })
}

fn request() -> Request {
    Request::default().max_tokens(16)
}

/// Generates, and cancels at the event of this number, counted from 1. Returns the number of events before `Done`.
fn generate(runner: &mut Runner, sequence: &mut Sequence, prompt: &[u32], request: &Request, cancel_at: usize) -> (Completion, usize) {
    let (mut events, mut done) = (0, 0);
    let generation = runner.generate(sequence, prompt, None, request).unwrap();
    let completion = generation.run(|event| {
        match event {
            Event::Done { .. } => done += 1,
            _ => events += 1,
        }
        if events == cancel_at { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(done, 1);
    (completion.unwrap(), events)
}

fn tokens(completion: &Completion) -> Vec<u32> {
    completion.tokens.iter().map(|token| token.id).collect()
}

#[test]
fn an_eos_token_ends_the_text_unless_it_is_ignored() {
    for device in common::devices() {
        let text = text();
        let mut runner = runner(&device, 64, 64);
        let sampler = Sampler { bias: HashMap::from([(END, 1000.0)]), ..Sampler::default() };
        let mut run = |ignore_eos: bool| {
            let request = request().max_tokens(3).sampler(sampler.clone()).ignore_eos(ignore_eos);
            let mut sequence = Sequence::default();
            let (made, events) = generate(&mut runner, &mut sequence, &text[..PROMPT], &request, 0);
            (tokens(&made), made.finish_reason, events, sequence.len())
        };
        assert_eq!(run(false), (vec![], FinishReason::Eos, 1, PROMPT), "{device}");
        assert_eq!(run(true), (vec![END; 3], FinishReason::Length, 4, PROMPT + 2), "{device}");
    }
}

#[test]
fn a_stop_string_ends_the_text() {
    let text = text();
    let mut runner = runner(&Device::Cpu, 64, 64);
    let spelling: Vec<String> = (0..320).map(|id| format!("w{id};")).collect();
    let vocabulary = spelling.iter().map(String::as_bytes).collect();
    let tokenizer = Tokenizer::from_gguf(&Vocabulary { model: "llama", tokens: vocabulary, ..Vocabulary::default() }).unwrap();
    let [first, second] = [PROMPT, PROMPT + 1].map(|at| &spelling[text[at] as usize]);
    // It spans two tokens: its possible start is held back.
    let request = request().stop(format!(";{second}"));
    let mut shown = String::new();
    let mut sequence = Sequence::default();
    let made = runner.generate(&mut sequence, &text[..PROMPT], Some(&tokenizer), &request).unwrap().run(|event| {
        shown.push_str(event.text());
        ControlFlow::Continue(())
    });
    let made = made.unwrap();
    assert_eq!((made.finish_reason, tokens(&made)), (FinishReason::Stop, text[PROMPT..PROMPT + 2].to_vec()));
    assert_eq!((made.text.as_str(), shown.as_str()), (&first[..first.len() - 1], &first[..first.len() - 1]));
}

/// Text that is held back for a stop string which never comes is in `Done`.
#[test]
fn the_texts_of_all_events_are_the_text() {
    let text = text();
    let mut runner = runner(&Device::Cpu, 64, 5);
    let spelling: Vec<String> = (0..320).map(|id| format!("w{id};")).collect();
    let vocabulary = spelling.iter().map(String::as_bytes).collect();
    let tokenizer = Tokenizer::from_gguf(&Vocabulary { model: "llama", tokens: vocabulary, ..Vocabulary::default() }).unwrap();
    let request = request().max_tokens(3).stop(";?");
    let mut sequence = Sequence::default();
    let events: Vec<Event> =
        runner.generate(&mut sequence, &text[..PROMPT], Some(&tokenizer), &request).unwrap().map(Result::unwrap).collect();
    let prompts = [0, 5, 10].map(|processed| Event::Prompt { processed, total: PROMPT });
    assert_eq!(events[..3], prompts);
    assert!(events[3..6].iter().all(|event| matches!(event, Event::Token { .. })), "{events:?}");
    let [Event::Done { text: rest, completion }] = &events[6..] else { panic!("{events:?}") };
    assert_eq!(rest, ";");
    assert_eq!(events.iter().map(Event::text).collect::<String>(), completion.text);
    assert_eq!(completion.text, text[PROMPT..PROMPT + 3].iter().map(|id| spelling[*id as usize].as_str()).collect::<String>());
}

/// The last token is not computed, so it needs no room in the cache.
#[test]
fn a_full_cache_ends_the_text() {
    for device in common::devices() {
        let text = text();
        let mut runner = runner(&device, 16, 64);
        let mut sequence = Sequence::default();
        let (made, _) = generate(&mut runner, &mut sequence, &text[..PROMPT], &request(), 0);
        assert_eq!((tokens(&made), made.finish_reason), (text[PROMPT..=16].to_vec(), FinishReason::Context), "{device}");
        assert_eq!((sequence.len(), runner.free_tokens_for(&sequence)), (16, 0), "{device}");
    }
}

/// Prompt and generated tokens together are at most the context, whatever the block size of the cache.
#[test]
fn the_context_limits_prompt_and_text() {
    let text = text();
    let mut runner = runner_with(&Device::Cpu, RunnerOptions { context: 15, cache_tokens: Some(64), ..RunnerOptions::default() });
    let mut sequence = Sequence::default();
    let (made, _) = generate(&mut runner, &mut sequence, &text[..PROMPT], &request(), 0);
    assert_eq!((tokens(&made), made.finish_reason), (text[PROMPT..15].to_vec(), FinishReason::Context));
    let (made, _) = generate(&mut runner, &mut Sequence::default(), &text[..PROMPT], &request().max_tokens(3), 0);
    assert_eq!((tokens(&made), made.finish_reason), (text[PROMPT..15].to_vec(), FinishReason::Length));
    let mut sequence = Sequence::default();
    let error = runner.generate(&mut sequence, &text[..15], None, &request()).unwrap_err();
    assert!(matches!(error, Error::PromptTooLong { tokens: 15, context: 15 }), "{error}");
}

#[test]
fn listeners_can_cancel() {
    for device in common::devices() {
        let text = text();
        let mut runner = runner(&device, 64, 64);
        let mut sequence = Sequence::default();
        // The first event is the prompt's.
        let (made, events) = generate(&mut runner, &mut sequence, &text[..PROMPT], &request(), 4);
        assert_eq!((tokens(&made), made.finish_reason), (text[PROMPT..PROMPT + 3].to_vec(), FinishReason::Cancelled), "{device}");
        assert_eq!((events, made.prompt_tokens, sequence.len()), (4, PROMPT, PROMPT + 2), "{device}");
    }
}

/// Between chunks of a prompt, too: what was computed stays, and the same call continues after it.
#[test]
fn listeners_can_cancel_a_prompt() {
    for device in common::devices() {
        let text = text();
        let mut runner = runner(&device, 64, 5);
        let request = request().max_tokens(4);
        for chunks in [0, 1, 2] {
            let mut sequence = Sequence::default();
            let (made, events) = generate(&mut runner, &mut sequence, &text[..PROMPT], &request, chunks + 1);
            assert_eq!((made.finish_reason, events), (FinishReason::Cancelled, chunks + 1), "{device}");
            assert_eq!((made.prompt_tokens, sequence.len()), (5 * chunks, 5 * chunks), "{device}");
            assert!(made.tokens.is_empty() && made.text.is_empty(), "{device}");
            let (made, events) = generate(&mut runner, &mut sequence, &text[..PROMPT], &request, 0);
            assert_eq!((tokens(&made), made.finish_reason), (text[PROMPT..PROMPT + 4].to_vec(), FinishReason::Length), "{device}");
            // The chunks left of the prompt, and four tokens.
            assert_eq!(events, 3 - chunks + 4, "{device}");
        }
    }
}

/// As an iterator: dropping it stops, and generating again continues from the KV cache.
#[test]
fn dropping_the_iterator_stops() {
    for device in common::devices() {
        let text = text();
        let (mut runner, request) = (runner(&device, 64, 64), request());
        let mut sequence = Sequence::default();
        let mut found = text[..PROMPT].to_vec();
        for event in runner.generate(&mut sequence, &text[..PROMPT], None, &request).unwrap() {
            if let Event::Token { token, .. } = event.unwrap() {
                found.push(token.id);
            }
            if found.len() == PROMPT + 5 {
                break;
            }
        }
        assert_eq!(sequence.len(), PROMPT + 4, "{device}");
        let rest = runner.generate(&mut sequence, &found, None, &request).unwrap().run(|_| ControlFlow::Continue(())).unwrap();
        assert_eq!(rest.prompt_tokens, 1, "{device}");
        assert_eq!(tokens(&rest)[..11], text[PROMPT + 5..], "{device}");
    }
}

/// Invalid prompts are refused before the first event.
#[test]
fn prompts_that_do_not_fit_are_refused_first() {
    let text = text();
    let mut runner = runner(&Device::Cpu, 16, 5);
    for prompt in [&[&text[..10], &text[..10]].concat(), &[&text[..10], &[320][..]].concat()] {
        let mut sequence = Sequence::default();
        assert!(runner.generate(&mut sequence, prompt, None, &request()).is_err());
        assert_eq!((sequence.len(), runner.free_tokens()), (0, 16));
    }
    assert!(matches!(runner.generate(&mut Sequence::default(), &[], None, &request()), Err(Error::NoTokens)));
}

#[test]
fn the_builder_opens_checks_and_loads() {
    let text = text();
    let (mut calls, mut last) = (0, (0, 0));
    let model = ModelBuilder::new(folder()).device(Device::Cpu).precision(Precision::Exact).context(40).progress(|done, total| {
        calls += 1;
        last = (done, total);
    });
    let mut model = model.load().unwrap();
    assert_eq!(model.runner.context(), 40);
    assert_eq!(model.budget.devices.len(), 1);
    assert_eq!(last, (model.budget.weights(), model.budget.weights()));
    assert!(calls > 10, "{calls}");
    let (made, _) = generate(&mut model.runner, &mut Sequence::default(), &text[..PROMPT], &request(), 0);
    assert_eq!(tokens(&made), text[PROMPT..]);
    // The folder has no tokenizer.
    assert!(model.generate("text", &request()).is_err());
    assert!(matches!(ModelBuilder::new("no such file").load(), Err(Error::Checkpoint(_))));
}

/// The estimate is checked before anything is loaded; the error has no command-line options.
#[test]
fn the_builder_refuses_what_does_not_fit() {
    let shape = Config { vocab: 1000, hidden: 256, layers: 2, heads: 4, kv_heads: 2, head_dim: 64, ..Config::llama_8b() };
    let config = Config { feed_forward: 512, rope: RopeConfig::plain(10_000.0, 64), sliding_layers: vec![false; 2], ..shape };
    let checkpoint = Checkpoint::random(config, Kind::Plain(DType::Bf16)).unwrap();
    let loaded = ModelBuilder::from_checkpoint(checkpoint).context(1 << 40).progress(|_, _| panic!("loading")).load();
    let error = loaded.map(drop).unwrap_err();
    let Error::DoesNotFit(shortage) = &error else { panic!("{error}") };
    assert_eq!(shortage.budget.fits(), Some(false));
    assert!(shortage.alternatives.iter().any(|alternative| matches!(alternative, Alternative::Context(_))), "{shortage:?}");
    let message = error.to_string();
    assert!(message.contains("does not fit") && message.contains("KV cache") && message.contains("a context of"), "{message}");
    assert!(!message.contains("--"), "{message}");
}

/// A text prompt, as a new user writes it.
#[test]
fn a_real_model_continues_a_text() {
    let Some(file) = test_model() else { return };
    let mut model = ModelBuilder::new(file).context(64).load().unwrap();
    let request = Request::default().max_tokens(4);
    let text: String =
        model.generate("The capital of France is", &request).unwrap().map(|event| event.unwrap().text().to_owned()).collect();
    assert!(text.starts_with(" Paris"), "{text:?}");
}
