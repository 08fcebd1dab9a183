//! `warpwave embed`: the embeddings of texts.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use warpwave_llm::{Encoder, EncoderCheckpoint, EncoderInput};
use warpwave_tensor::Device;

use super::super::{Context, Failure, Outcome, failed, usage};
use super::{advise, device, locate};

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    warpwave embed sentence-transformers/all-MiniLM-L6-v2 'a text' 'another one'\n  \
    warpwave embed ./bge-small --device cuda:0 --json - < lines.txt\n\n\
    Supports encoders (BERT). For embeddings from decoders, use `warpwave serve` (/v1/embeddings).")]
pub(crate) struct Args {
    /// Encoder: a .gguf file, a directory with config.json and safetensors, or a Hugging Face Hub model.
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    /// Embed these texts; - reads one text per line from standard input.
    #[arg(value_name = "TEXT", required = true)]
    texts: Vec<String>,
    /// Run on this device: cpu, cuda:0, rocm:1, vgpu:gfx90a (virtual), or auto (the first GPU, else the CPU).
    #[arg(long, env = "WARPWAVE_DEVICE", default_value = "auto")]
    device: String,
    /// Print JSON with the number of tokens of each text; default: one line of numbers per text.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(context: &mut Context<'_>, args: &Args) -> Outcome {
    let path = locate(context, &args.model)?;
    let device = device(context, &args.device)?;
    let (files, encoder) = load(&path, &device)?;
    let tokenizer = files.tokenizer().map_err(|error| failed(format!("cannot load the tokenizer: {error}")))?;
    let texts = match &args.texts[..] {
        [one] if one == "-" => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).map_err(|error| failed(format!("standard input: {error}")))?;
            text.lines().map(str::to_owned).collect()
        }
        texts => texts.to_vec(),
    };
    let tokens = texts.iter().map(|text| tokenizer.encode(text)).collect::<Result<Vec<_>, _>>()?;
    let inputs: Vec<EncoderInput<'_>> = tokens.iter().map(|tokens| EncoderInput::new(tokens)).collect();
    let vectors = encoder.embed(&inputs).map_err(advise)?;
    if args.json {
        let data: Vec<Value> =
            vectors.iter().zip(&tokens).map(|(vector, tokens)| json!({ "embedding": vector, "tokens": tokens.len() })).collect();
        return context.print_json(&json!({ "model": args.model, "device": encoder.device().name(), "data": data }));
    }
    for vector in vectors {
        let numbers: Vec<String> = vector.iter().map(f32::to_string).collect();
        writeln!(context.out, "{}", numbers.join(" "))?;
    }
    Ok(())
}

/// Opens and loads an encoder.
pub(crate) fn load(path: &Path, device: &Device) -> Result<(EncoderCheckpoint, Encoder), Failure> {
    if !EncoderCheckpoint::is_encoder(path) {
        return Err(usage(format!("{}: expected an encoder (BERT); for embeddings from decoders, use `warpwave serve`", path.display())));
    }
    let files = EncoderCheckpoint::open(path)?;
    let encoder = Encoder::load(&files, device).map_err(advise)?;
    Ok((files, encoder))
}
