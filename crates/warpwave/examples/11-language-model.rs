// Teaches: a language model in a program: open a file, load it on a device, stream an answer.
//
// The same code runs on a CPU and on a GPU of either vendor. The file is a GGUF, or a folder of Hugging Face's.
//
// Run it: `cargo run --release --example 11-language-model -- MODEL 'A question?'`; `warpwave model get` fetches a small model.

use std::error::Error;
use std::io::Write;
use std::ops::ControlFlow;

use warpwave::llm::{Chat, ChatTemplate, Checkpoint, LoadOptions, Model, Request, Runner, RunnerOptions, Sampler, Sequence};

fn main() -> Result<(), Box<dyn Error>> {
    let Some(path) = std::env::args().nth(1) else {
        println!("give it a model: cargo run --release --example 11-language-model -- MODEL 'A question?'");
        return Ok(());
    };
    let question = std::env::args().nth(2).unwrap_or_else(|| "What is the capital of France?".to_owned());
    // The CPU where there is no GPU; WARPWAVE_DEVICE names another.
    let device = warpwave::tensor_device("auto")?;

    // Opening reads the head of the file; loading brings the weights to the device, and says how far it is.
    let checkpoint = Checkpoint::open(&path)?;
    let tokenizer = checkpoint.tokenizer()?;
    let mut loaded = 0;
    let model = Model::load(&checkpoint, &device, LoadOptions::default(), &mut |bytes| loaded += bytes)?;
    println!("{:?} on {}, {:.1} MB of weights", checkpoint.config().family, model.place(), loaded as f64 / 1e6);

    // A runner has the room for the tokens of its sequences: here 512 in all.
    let mut runner = Runner::new(model, RunnerOptions { room: 512, ..RunnerOptions::default() })?;
    let template = ChatTemplate::of(&tokenizer)?;
    let text = template.render(&Chat::new([("user", question.as_str())]))?;
    let prompt = tokenizer.encode_prompt(&text, true)?;

    let request = Request { tokens: 48, sampler: Sampler::default(), stops: vec![], ignore_eos: false, top: 0 };
    let mut show = |piece: &warpwave::llm::Piece| {
        print!("{}", piece.text);
        // A program that has enough says `Break`.
        if std::io::stdout().flush().is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    let mut sequence = Sequence::default();
    let answer = runner.generate(&mut sequence, &prompt, Some(&tokenizer), &request, &mut show)?;
    println!("\n{} tokens, ended by {}", answer.tokens.len(), answer.ended.name());

    // The sequence keeps what went through the model: a further question costs only what is new.
    runner.release(sequence);
    Ok(())
}
