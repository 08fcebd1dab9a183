//! Folders in the diffusers layout.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::json;
use warpwave_weights::{Gguf, Safetensors};

use super::{DenoiserConfig, OpenOptions, Parts, TextConfig, TextPart, single};
use crate::config::{ClipConfig, FluxConfig, T5Config, UnetConfig, VaeConfig, unknown};
use crate::error::{Error, Result};
use crate::info::{Family, ModelInfo, Prediction, TextEncoderInfo, TextEncoderKind};
use crate::json::Config;
use crate::names::Naming;
use crate::tokenizer::Tokenizer;
use crate::weights::{Part, WeightFile};

/// Rows of T5: of Flux schnell and of Flux dev.
const T5_ROW: [usize; 2] = [256, 512];

/// Opens a file of weights by its kind.
pub(super) fn open_file(path: &Path) -> Result<WeightFile> {
    let gguf = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"));
    Ok(if gguf { WeightFile::Gguf(Gguf::open(path)?) } else { WeightFile::Safetensors(Safetensors::open(path)?) })
}

/// The weights of a network's folder.
pub(crate) fn part(folder: &Path) -> Result<Part> {
    let shown = folder.display().to_string();
    for stem in ["diffusion_pytorch_model", "model"] {
        for end in [
            "safetensors",
            "safetensors.index.json",
            "fp16.safetensors",
            "safetensors.index.fp16.json",
            "fp16.safetensors.index.json",
            "bf16.safetensors",
            "gguf",
        ] {
            let file = folder.join(format!("{stem}.{end}"));
            if file.is_file() {
                return Ok(Part::new(file.display().to_string(), Arc::new(open_file(&file)?), "", Naming::Diffusers));
            }
        }
    }
    Err(unknown(&shown, "no weights found: expected diffusion_pytorch_model.safetensors, model.safetensors, or an index of shards"))
}

fn config(folder: &Path) -> Result<Config> {
    Config::read(&folder.join("config.json"))
}

/// The configuration of a base folder's network.
pub(super) fn base_config(base: Option<&Path>, network: &str) -> Result<Option<Config>> {
    match base.map(|base| base.join(network)).filter(|folder| folder.join("config.json").is_file()) {
        Some(folder) => config(&folder).map(Some),
        None => Ok(None),
    }
}

pub(super) fn unet(folder: &Path) -> Result<(Part, DenoiserConfig)> {
    let unet = folder.join("unet");
    Ok((part(&unet)?, DenoiserConfig::Unet(UnetConfig::read(&config(&unet)?)?)))
}

pub(super) fn vae(folder: &Path) -> Result<(Part, VaeConfig)> {
    let vae = folder.join("vae");
    let config = VaeConfig::read(&config(&vae)?)?;
    Ok((part(&vae)?, config))
}

pub(super) fn clip(folder: &Path, name: &str) -> Result<TextPart> {
    let folder = folder.join(name);
    let config = config(&folder)?;
    config.expect("model_type", &serde_json::json!("clip_text_model"))?;
    Ok(TextPart { config: TextConfig::Clip(ClipConfig::read(&config)?), part: part(&folder)? })
}

pub(super) fn t5(folder: &Path, name: &str) -> Result<TextPart> {
    let folder = folder.join(name);
    Ok(TextPart { config: TextConfig::T5(T5Config::read(&config(&folder)?)?), part: part(&folder)? })
}

/// The tokenizers of a family, from the folders below `folder` as far as they exist.
pub(super) fn tokenizers(folder: &Path, family: Family) -> Result<Vec<Option<Tokenizer>>> {
    let load = |name: &str, t5: bool| -> Result<Option<Tokenizer>> {
        let folder = folder.join(name);
        match folder.is_dir() {
            true if t5 => Tokenizer::t5(&folder).map(Some),
            true => Tokenizer::clip(&folder).map(Some),
            false => Ok(None),
        }
    };
    let first = load("tokenizer", false)?;
    Ok(match family {
        Family::Sd1 | Family::Sd2 => vec![first],
        Family::Sdxl => vec![first, load("tokenizer_2", false)?],
        Family::FluxSchnell | Family::FluxDev => vec![first, load("tokenizer_2", true)?],
    })
}

/// The text encoders of a family.
pub(super) fn encoder_info(family: Family, tokenizers: &[Option<Tokenizer>]) -> Vec<TextEncoderInfo> {
    let info = |(i, tokenizer): (usize, &Option<Tokenizer>)| {
        let t5 = family.is_flux() && i == 1;
        // Without a tokenizer, what the published files have.
        let known = match (family, i) {
            (Family::Sd2, _) | (Family::Sdxl | Family::FluxSchnell | Family::FluxDev, 1) => 0,
            _ => 49407,
        };
        TextEncoderInfo {
            kind: if t5 { TextEncoderKind::T5 } else { TextEncoderKind::Clip },
            row_length: if t5 { T5_ROW[usize::from(family == Family::FluxDev)] } else { 77 },
            pad: tokenizer.as_ref().map_or(known, Tokenizer::pad),
        }
    };
    tokenizers.iter().enumerate().map(info).collect()
}

/// The scheduler's configuration and what it says about the prediction.
pub(super) fn scheduler(folder: &Path) -> Result<(Option<serde_json::Value>, Prediction)> {
    let path = folder.join("scheduler").join("scheduler_config.json");
    if !path.is_file() {
        return Ok((None, Prediction::Epsilon));
    }
    let config = Config::read(&path)?;
    if let Some(class) = config.string("_class_name")?.filter(|class| class.starts_with("EDM")) {
        return Err(config.bad("_class_name", format!("unsupported value `{class}`; EDM noise schedules are not supported")));
    }
    // The schedules are made for these.
    for (key, supported) in [
        ("beta_start", json!(0.00085)),
        ("beta_end", json!(0.012)),
        ("beta_schedule", json!("scaled_linear")),
        ("trained_betas", json!(null)),
        ("rescale_betas_zero_snr", json!(false)),
        ("num_train_timesteps", json!(1000)),
    ] {
        config.expect(key, &supported)?;
    }
    let prediction = match config.string("prediction_type")? {
        None | Some("epsilon") => Prediction::Epsilon,
        Some("v_prediction") => Prediction::V,
        Some(other) => {
            let reason = format!("unsupported value `{other}`; expected `epsilon` or `v_prediction`");
            return Err(config.bad("prediction_type", reason));
        }
    };
    Ok((Some(config.value()), prediction))
}

/// Another autoencoder: a folder, or a file in either layout.
pub(super) fn other_vae(path: &Path, base: Option<&Path>, family: Family) -> Result<(Part, VaeConfig)> {
    if path.is_dir() {
        return Ok((part(path)?, VaeConfig::read(&config(path)?)?));
    }
    let file = Arc::new(open_file(path)?);
    let shown = path.display().to_string();
    let found = ["", "first_stage_model.", "vae."].into_iter().find_map(|prefix| single::vae_part(&shown, &file, prefix));
    let part = found.ok_or_else(|| unknown(&shown, "expected the weights of an autoencoder, with encoder.conv_in.weight"))?;
    let config = single::vae_config(&part, base, family)?;
    Ok((part, config))
}

/// The folder's or the option's autoencoder.
fn chosen_vae(folder: &Path, options: &OpenOptions, family: Family) -> Result<(Part, VaeConfig)> {
    match &options.vae {
        Some(path) => other_vae(path, Some(folder), family),
        None => vae(folder),
    }
}

/// Opens a folder.
pub(super) fn open(folder: &Path, options: &OpenOptions) -> Result<(ModelInfo, Parts)> {
    let shown = folder.display().to_string();
    let index = folder.join("model_index.json");
    if !index.is_file() {
        return Err(unknown(&shown, "no model_index.json found: expected a folder in the diffusers layout, or a single .safetensors file"));
    }
    let index = Config::read(&index)?;
    let class = |name: &str| index.get(name).and_then(|pair| pair[1].as_str());
    if class("transformer").is_some() {
        return open_flux(folder, options, &index);
    }
    match class("unet") {
        Some("UNet2DConditionModel") => {}
        found => {
            let reason = format!("expected UNet2DConditionModel (or `transformer` with FluxTransformer2DModel), got {found:?}");
            return Err(index.bad("unet", reason));
        }
    }
    let (denoiser, denoiser_config) = unet(folder)?;
    let DenoiserConfig::Unet(config) = &denoiser_config else { return Err(unknown(&shown, "expected a UNet")) };
    let family = match (config.added, config.linear_projection || config.cross == 1024) {
        (Some(_), _) => Family::Sdxl,
        (None, true) => Family::Sd2,
        (None, false) => Family::Sd1,
    };
    let mut text = vec![clip(folder, "text_encoder")?];
    if family == Family::Sdxl {
        text.push(clip(folder, "text_encoder_2")?);
    }
    let (vae, vae_config) = chosen_vae(folder, options, family)?;
    let tokenizers = tokenizers(folder, family)?;
    let (scheduler_config, prediction) = scheduler(folder)?;
    let sample = Config::read(&folder.join("unet").join("config.json"))?.size_or("sample_size", 64)?;
    let zeros = index.flag("force_zeros_for_empty_prompt", family == Family::Sdxl)?;
    let parts = Parts { denoiser, denoiser_config, vae, vae_config, text, tokenizers };
    let mut info = info(family, prediction, &parts)?;
    info.default_size = sample * info.latent_scale;
    info.scheduler_config = scheduler_config;
    info.zeros_for_no_negative = zeros;
    Ok((info, parts))
}

fn open_flux(folder: &Path, options: &OpenOptions, index: &Config) -> Result<(ModelInfo, Parts)> {
    let transformer = folder.join("transformer");
    let config = config(&transformer)?;
    if config.string("_class_name")? != Some("FluxTransformer2DModel") {
        return Err(index.bad("transformer", "expected a FluxTransformer2DModel"));
    }
    let flux = FluxConfig::read(&config)?;
    let family = if flux.guidance { Family::FluxDev } else { Family::FluxSchnell };
    let text = vec![clip(folder, "text_encoder")?, t5(folder, "text_encoder_2")?];
    let (vae, vae_config) = chosen_vae(folder, options, family)?;
    let tokenizers = tokenizers(folder, family)?;
    let denoiser_config = DenoiserConfig::Flux(flux);
    let parts = Parts { denoiser: part(&transformer)?, denoiser_config, vae, vae_config, text, tokenizers };
    let mut info = info(family, Prediction::Flow, &parts)?;
    info.scheduler_config = scheduler_value(folder)?;
    Ok((info, parts))
}

/// The scheduler's configuration.
pub(super) fn scheduler_value(folder: &Path) -> Result<Option<serde_json::Value>> {
    let path = folder.join("scheduler").join("scheduler_config.json");
    if path.is_file() { Ok(Some(Config::read(&path)?.value())) } else { Ok(None) }
}

/// The facts that follow from the networks.
pub(super) fn info(family: Family, prediction: Prediction, parts: &Parts) -> Result<ModelInfo> {
    let vae = &parts.vae_config;
    let scale = 1 << (vae.channels.len() - 1);
    let channels = match &parts.denoiser_config {
        DenoiserConfig::Unet(config) => config.in_channels,
        DenoiserConfig::Flux(config) => config.in_channels / 4,
    };
    let latent = vae.latent_channels;
    let inpaint = !family.is_flux() && channels == 2 * latent + 1;
    if channels != latent && !inpaint {
        let reason = format!(
            "the denoiser has {channels} input channels; expected {latent}, the latent channels of the autoencoder, or 2 · {latent} + 1 for inpainting"
        );
        return Err(Error::Unknown { path: parts.denoiser.path().to_owned(), reason });
    }
    Ok(ModelInfo {
        family,
        prediction,
        inpaint,
        latent_channels: latent,
        latent_scale: scale,
        size_multiple: if family.is_flux() { 2 * scale } else { scale },
        default_size: match (family, prediction) {
            (Family::Sd2, Prediction::V) => 768,
            (Family::Sd1 | Family::Sd2, _) => 512,
            _ => 1024,
        },
        vae_scaling: vae.scaling,
        vae_shift: vae.shift,
        text_encoders: encoder_info(family, &parts.tokenizers),
        zeros_for_no_negative: family == Family::Sdxl,
        scheduler_config: None,
        parameters: 0,
        bytes: 0,
    })
}

/// The folder where a single file's tokenizers are.
pub(super) fn beside(path: &Path, options: &OpenOptions) -> PathBuf {
    options.base.clone().unwrap_or_else(|| path.parent().unwrap_or(Path::new(".")).to_owned())
}
