//! `warpwave image info`: the facts about a model.

use std::path::PathBuf;

use super::super::{Context, Outcome, human_bytes};
use super::FileArgs;

#[derive(clap::Args)]
pub(super) struct Args {
    /// Model: a directory in the diffusers layout, or a .safetensors file.
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    files: FileArgs,
}

pub(super) fn run(context: &mut Context<'_>, args: &Args) -> Outcome {
    let checkpoint = args.files.open(&args.model)?;
    let info = checkpoint.info();
    let facts = serde_json::to_value(info)?;
    if args.json {
        return context.print_json(&facts);
    }
    let word = |key: &str| facts[key].as_str().unwrap_or_default().to_owned();
    let lines = [
        ("model", args.model.display().to_string()),
        ("family", word("family")),
        ("prediction", word("prediction")),
        ("inpainting", if info.inpaint { "yes; needs an image and a mask" } else { "yes, with a mask" }.to_owned()),
        ("image", format!("{0} x {0}, in multiples of {1} pixels", info.default_size, info.size_multiple)),
        ("latents", format!("{} channels, width and height 1/{} of the image's", info.latent_channels, info.latent_scale)),
        ("text encoders", info.text_encoders.iter().map(|one| format!("{} tokens", one.row_length)).collect::<Vec<_>>().join(", ")),
        ("parameters", format!("{:.1} million", info.parameters as f64 / 1e6)),
        ("weights", human_bytes(usize::try_from(info.bytes).unwrap_or(usize::MAX))),
    ];
    for (name, value) in lines {
        writeln!(context.out, "{name:<14} {value}")?;
    }
    Ok(())
}
