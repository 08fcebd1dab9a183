//! Why texts end, and what listeners hear until then.

#[path = "../../tensor/tests/common/mod.rs"]
mod common;

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use safetensors::SafeTensors;
use warpwave_llm::{
    Checkpoint, Ended, Generated, LoadOptions, Model, Piece, Precision, Request, Runner, RunnerOptions, Sampler, Sequence, Tokenizer,
    Vocabulary,
};
use warpwave_tensor::Device;

/// Tokens of the prompt of [`text`].
const PROMPT: usize = 12;
/// The token that ends a text, by the model's configuration.
const END: u32 = 2;

fn folder() -> PathBuf {
    let root = std::env::var_os("WARPWAVE_ROOT").map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."), PathBuf::from);
    root.join("crates/llm/tests/oracles/llama3")
}

/// A prompt of 12 tokens, and the 16 that greedy decoding adds.
fn text() -> Vec<u32> {
    let bytes = std::fs::read(folder().join("expected.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    file.tensor("greedy").unwrap().data().as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect()
}

fn runner(device: &Device, room: usize, chunk: usize) -> Runner {
    let checkpoint = Checkpoint::open(folder()).unwrap();
    let options = LoadOptions { precision: Precision::Exact, ..LoadOptions::default() };
    let model = Model::load(&checkpoint, device, options, &mut |_| ()).unwrap();
    Runner::new(model, RunnerOptions { room, chunk: Some(chunk), ..RunnerOptions::default() }).unwrap()
}

fn request() -> Request {
    Request { tokens: 16, sampler: Sampler::default(), stops: Vec::new(), ignore_eos: false, top: 0 }
}

/// Generates; of the pieces that the listener hears, numbered from 1, it breaks off at one.
fn generate(runner: &mut Runner, sequence: &mut Sequence, prompt: &[u32], request: &Request, last: usize) -> (Generated, usize) {
    let mut heard = 0;
    let listen = &mut |_: &Piece| {
        heard += 1;
        if heard == last { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let made = runner.generate(sequence, prompt, None, request, listen).unwrap();
    (made, heard)
}

fn tokens(made: &Generated) -> Vec<u32> {
    made.tokens.iter().map(|picked| picked.token).collect()
}

#[test]
fn the_end_of_a_text_ends_it_unless_it_is_ignored() {
    for device in common::devices() {
        let text = text();
        let mut runner = runner(&device, 64, 64);
        let sampler = Sampler { bias: HashMap::from([(END, 1000.0)]), ..Sampler::default() };
        let mut ask = |ignore_eos: bool| {
            let request = Request { tokens: 3, sampler: sampler.clone(), ignore_eos, ..request() };
            let mut sequence = Sequence::default();
            let (made, heard) = generate(&mut runner, &mut sequence, &text[..PROMPT], &request, 0);
            (tokens(&made), made.ended, heard, sequence.len())
        };
        assert_eq!(ask(false), (vec![], Ended::Eos, 0, PROMPT), "{device}");
        assert_eq!(ask(true), (vec![END; 3], Ended::Tokens, 3, PROMPT + 2), "{device}");
    }
}

#[test]
fn a_stop_string_ends_a_text() {
    let text = text();
    let mut runner = runner(&Device::Cpu, 64, 64);
    let spelt: Vec<String> = (0..320).map(|id| format!("w{id};")).collect();
    let tokens_of = spelt.iter().map(String::as_bytes).collect();
    let tokenizer = Tokenizer::from_gguf(&Vocabulary { model: "llama", tokens: tokens_of, ..Vocabulary::default() }).unwrap();
    let [first, second] = [PROMPT, PROMPT + 1].map(|at| &spelt[text[at] as usize]);
    // Over two tokens: what might become it was held back.
    let request = Request { stops: vec![format!(";{second}")], ..request() };
    let mut shown = String::new();
    let listen = &mut |piece: &Piece| {
        shown.push_str(&piece.text);
        ControlFlow::Continue(())
    };
    let made = runner.generate(&mut Sequence::default(), &text[..PROMPT], Some(&tokenizer), &request, listen).unwrap();
    assert_eq!((made.ended, tokens(&made)), (Ended::Stop, text[PROMPT..PROMPT + 2].to_vec()));
    assert_eq!((made.text.as_str(), shown.as_str()), (&first[..first.len() - 1], &first[..first.len() - 1]));
}

/// The last token did not go through the model: it needs no room.
#[test]
fn a_full_cache_ends_a_text() {
    for device in common::devices() {
        let text = text();
        let mut runner = runner(&device, 16, 64);
        let mut sequence = Sequence::default();
        let (made, _) = generate(&mut runner, &mut sequence, &text[..PROMPT], &request(), 0);
        assert_eq!((tokens(&made), made.ended), (text[PROMPT..=16].to_vec(), Ended::Room), "{device}");
        assert_eq!((sequence.len(), runner.room_for(&sequence)), (16, 0), "{device}");
    }
}

#[test]
fn listeners_end_a_text() {
    for device in common::devices() {
        let text = text();
        let mut runner = runner(&device, 64, 64);
        let mut sequence = Sequence::default();
        let (made, heard) = generate(&mut runner, &mut sequence, &text[..PROMPT], &request(), 3);
        assert_eq!((tokens(&made), made.ended, heard), (text[PROMPT..PROMPT + 3].to_vec(), Ended::Cancelled, 3), "{device}");
        assert_eq!((made.prompt, sequence.len()), (PROMPT, PROMPT + 2), "{device}");
    }
}

/// In the midst of a prompt, too: what went through stays, and the same call goes on behind it.
#[test]
fn listeners_end_a_prompt() {
    for device in common::devices() {
        let text = text();
        let mut runner = runner(&device, 64, 5);
        let request = Request { tokens: 4, ..request() };
        for last in [1, 2] {
            let mut sequence = Sequence::default();
            let (made, heard) = generate(&mut runner, &mut sequence, &text[..PROMPT], &request, last);
            assert_eq!((made.ended, heard, made.prompt, sequence.len()), (Ended::Cancelled, last, 5 * last, 5 * last), "{device}");
            assert!(made.tokens.is_empty() && made.text.is_empty(), "{device}");
            let (made, heard) = generate(&mut runner, &mut sequence, &text[..PROMPT], &request, 0);
            assert_eq!((tokens(&made), made.ended), (text[PROMPT..PROMPT + 4].to_vec(), Ended::Tokens), "{device}");
            // The pieces of the prompt that are left, all but the first of them, and four tokens.
            assert_eq!((made.prompt, heard), (PROMPT - 5 * last, 4 + 2 - last), "{device}");
        }
        assert_eq!(runner.room(), 64, "all blocks came back");
    }
}

/// Nobody is asked about what cannot be.
#[test]
fn prompts_that_do_not_fit_are_refused_first() {
    let text = text();
    let mut runner = runner(&Device::Cpu, 16, 5);
    for prompt in [&[&text[..10], &text[..10]].concat(), &[&text[..10], &[320][..]].concat()] {
        let mut sequence = Sequence::default();
        let listen = &mut |_: &Piece| panic!("{} tokens", prompt.len());
        assert!(runner.generate(&mut sequence, prompt, None, &request(), listen).is_err());
        assert_eq!((sequence.len(), runner.room()), (0, 16));
    }
}
