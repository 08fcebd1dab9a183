// Teaches: a language model in a program: open a file, load it on a device, stream an answer.
//
// The same code runs on a CPU and on a GPU of either vendor. The model is a GGUF file or a Hugging Face folder.
//
// Run it: `cargo run --release --example 11-language-model -- MODEL 'A question?'`; `warpwave model get` downloads a small model.

use std::error::Error;
use std::io::Write;

use warpwave::llm::{Chat, ChatTemplate, Event, ModelBuilder, Request};

fn main() -> Result<(), Box<dyn Error>> {
    let Some(path) = std::env::args().nth(1) else {
        println!("usage: cargo run --release --example 11-language-model -- MODEL 'A question?'");
        return Ok(());
    };
    let question = std::env::args().nth(2).unwrap_or_else(|| "What is the capital of France?".to_owned());
    // The first GPU, or the CPU; WARPWAVE_DEVICE overrides it.
    let device = warpwave::tensor_device("auto")?;

    // Opens the file, checks that the model fits into memory, and loads the weights. The context is prompt and answer together.
    let mut model = ModelBuilder::new(&path).device(device).context(512).load()?;
    let (config, weights) = (model.checkpoint.config(), model.budget.weights());
    println!("{:?} on {}, {:.1} MB of weights", config.family, model.runner.model().device_names(), weights as f64 / 1e6);

    // The question in the model's chat template.
    let template = ChatTemplate::of(model.tokenizer()?)?;
    let prompt = template.render(&Chat::new([("user", question.as_str())]))?;

    // Events stream as they are computed. Leaving the loop early stops the generation.
    let request = Request::default().max_tokens(48);
    for event in model.generate(&prompt, &request)? {
        let event = event?;
        print!("{}", event.text());
        std::io::stdout().flush()?;
        if let Event::Done { completion, .. } = event {
            println!("\n{} tokens, finished by {}", completion.tokens.len(), completion.finish_reason.name());
        }
    }
    Ok(())
}
