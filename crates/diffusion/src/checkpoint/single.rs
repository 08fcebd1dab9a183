//! Single files with original names.

use std::path::Path;
use std::sync::Arc;

use warpwave_kernels::DType;
use warpwave_tensor::{Device, Tensor};

use super::folder::{self, base_config, beside, info, open_file, other_vae, scheduler, tokenizers};
use super::{DenoiserConfig, OpenOptions, Parts, TextConfig, TextPart};
use crate::config::{ClipConfig, FluxConfig, UnetConfig, VaeConfig, unknown};
use crate::error::Result;
use crate::info::{Family, ModelInfo, Prediction};
use crate::names::Naming;
use crate::weights::{Part, WeightFile};

/// What precedes a denoiser's names: in checkpoints with all parts, and in files of the denoiser alone.
const DENOISER: [&str; 3] = ["model.diffusion_model.", "diffusion_model.", ""];
/// Standard deviation of a bias above which a version 2 model predicts velocity. Files do not say what they predict.
const V_DEVIATION: f64 = 0.09;

/// The autoencoder below a prefix, in the original or the diffusers layout.
pub(super) fn vae_part(path: &str, file: &Arc<WeightFile>, prefix: &str) -> Option<Part> {
    let has = |name: String| file.tensor(&format!("{prefix}{name}")).is_some();
    if !has("encoder.conv_in.weight".to_owned()) {
        return None;
    }
    let levels = (0..16).take_while(|level| has(format!("decoder.up.{level}.block.0.conv1.weight"))).count();
    let naming = if levels == 0 { Naming::Diffusers } else { Naming::Vae { levels } };
    Some(Part::new(path, file.clone(), prefix, naming))
}

/// The base's configuration, or what the shapes say.
pub(super) fn vae_config(part: &Part, base: Option<&Path>, family: Family) -> Result<VaeConfig> {
    if let Some(config) = base_config(base, "vae")? {
        return VaeConfig::read(&config);
    }
    let (scaling, shift) = match family {
        Family::Sd1 | Family::Sd2 => (0.18215, 0.0),
        Family::Sdxl => (0.13025, 0.0),
        Family::FluxSchnell | Family::FluxDev => (0.3611, 0.1159),
    };
    VaeConfig::infer(part, scaling, shift)
}

fn clip_part(path: &str, file: &Arc<WeightFile>, prefix: &str, naming: Naming) -> Option<Part> {
    let part = Part::new(path, file.clone(), prefix, naming);
    part.find("text_model.embeddings.token_embedding.weight").then_some(part)
}

/// Opens a single file.
pub(super) fn open(path: &Path, options: &OpenOptions) -> Result<(ModelInfo, Parts)> {
    let shown = path.display().to_string();
    let file = Arc::new(open_file(path)?);
    let has = |name: &str| file.tensor(name).is_some();
    if let Some(prefix) = DENOISER.iter().find(|prefix| has(&format!("{prefix}double_blocks.0.img_attn.qkv.weight"))) {
        return open_flux(path, &file, prefix, options);
    }
    let Some(prefix) = DENOISER.iter().find(|prefix| has(&format!("{prefix}input_blocks.0.0.weight"))) else {
        let reason = "not a known model: expected the tensor model.diffusion_model.input_blocks.0.0.weight (Stable Diffusion) or \
                      double_blocks.0.img_attn.qkv.weight (Flux)";
        return Err(unknown(&shown, reason));
    };
    let base = options.base.as_deref();
    let blind = Part::new(&shown, file.clone(), *prefix, Naming::Diffusers);
    let downsampling = (1..64).find(|i| blind.file_has(&format!("input_blocks.{i}.0.op.weight")));
    let layers = downsampling.ok_or_else(|| blind.bad("input_blocks.3.0.op.weight", "missing tensor"))? - 1;
    let denoiser = blind.named(Naming::Unet { layers });
    let unet = match base_config(base, "unet")? {
        Some(config) => UnetConfig::read(&config)?,
        None => UnetConfig::infer(&denoiser)?,
    };
    let family = match (unet.added, unet.cross == 1024 || has("cond_stage_model.model.ln_final.weight")) {
        (Some(_), _) => Family::Sdxl,
        (None, true) => Family::Sd2,
        (None, false) => Family::Sd1,
    };
    let vae = match (&options.vae, vae_part(&shown, &file, "first_stage_model.")) {
        (Some(other), _) => other_vae(other, base, family)?,
        (None, Some(part)) => {
            let config = vae_config(&part, base, family)?;
            (part, config)
        }
        (None, None) => folder::vae(need_base(base, &shown, "an autoencoder")?)?,
    };
    let mut text = Vec::new();
    for (i, (prefix, naming, unused)) in text_prefixes(family).iter().enumerate() {
        let name = ["text_encoder", "text_encoder_2"][i];
        text.push(match clip_part(&shown, &file, prefix, *naming) {
            Some(part) => {
                let config = match base_config(base, name)? {
                    Some(config) => ClipConfig::read(&config)?,
                    None => ClipConfig::infer(&part, *unused)?,
                };
                TextPart { part, config: TextConfig::Clip(config) }
            }
            None => folder::clip(need_base(base, &shown, "text encoders")?, name)?,
        });
    }
    let (scheduler_config, mut prediction) = match base {
        Some(base) => scheduler(base)?,
        None => (None, Prediction::Epsilon),
    };
    if scheduler_config.is_none() && predicts_velocity(&denoiser, family, has("v_pred"))? {
        prediction = Prediction::V;
    }
    let tokenizers = tokenizers(&beside(path, options), family)?;
    let parts = Parts { denoiser, denoiser_config: DenoiserConfig::Unet(unet), vae: vae.0, vae_config: vae.1, text, tokenizers };
    let mut info = info(family, prediction, &parts)?;
    info.scheduler_config = scheduler_config;
    Ok((info, parts))
}

/// Where a family's text encoders are, and how many of their last layers are not used.
fn text_prefixes(family: Family) -> &'static [(&'static str, Naming, usize)] {
    match family {
        Family::Sd1 => &[("cond_stage_model.transformer.", Naming::Diffusers, 0)],
        Family::Sd2 => &[("cond_stage_model.model.", Naming::OpenClip, 1)],
        _ => &[("conditioner.embedders.0.transformer.", Naming::Diffusers, 0), ("conditioner.embedders.1.model.", Naming::OpenClip, 0)],
    }
}

fn need_base<'a>(base: Option<&'a Path>, path: &str, what: &str) -> Result<&'a Path> {
    base.ok_or_else(|| unknown(path, format!("the file has no {what}; pass a base directory in the diffusers layout that has them")))
}

fn predicts_velocity(denoiser: &Part, family: Family, marked: bool) -> Result<bool> {
    if family != Family::Sd2 {
        return Ok(marked && family == Family::Sdxl);
    }
    let name = "up_blocks.3.attentions.2.transformer_blocks.0.norm1.bias";
    if !denoiser.find(name) {
        return Ok(false);
    }
    let plain = denoiser.plain(name, &denoiser.shape(name)?)?;
    let bias = Tensor::from_bytes(&plain.bytes, plain.dtype, &plain.shape, &Device::Cpu)?.cast(DType::F32)?.to_vec::<f32>()?;
    let count = bias.len() as f64;
    let mean = bias.iter().map(|x| f64::from(*x)).sum::<f64>() / count;
    let variance = bias.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>() / (count - 1.0).max(1.0);
    Ok(variance.sqrt() > V_DEVIATION)
}

fn open_flux(path: &Path, file: &Arc<WeightFile>, prefix: &str, options: &OpenOptions) -> Result<(ModelInfo, Parts)> {
    let shown = path.display().to_string();
    let base = options.base.as_deref();
    let blind = Part::new(&shown, file.clone(), prefix, Naming::Diffusers);
    let width = blind.file_shape("img_in.weight").and_then(|shape| shape.first().copied());
    let width = width.ok_or_else(|| blind.bad("img_in.weight", "missing tensor"))?;
    let denoiser = blind.named(Naming::Flux { width });
    let flux = match base_config(base, "transformer")? {
        Some(config) => FluxConfig::read(&config)?,
        None => FluxConfig::infer(&denoiser)?,
    };
    let family = if flux.guidance { Family::FluxDev } else { Family::FluxSchnell };
    let (vae, vae_config) = match &options.vae {
        Some(other) => other_vae(other, base, family)?,
        None => match ["vae.", "first_stage_model."].into_iter().find_map(|prefix| vae_part(&shown, file, prefix)) {
            Some(part) => {
                let config = vae_config(&part, base, family)?;
                (part, config)
            }
            None => folder::vae(need_base(base, &shown, "an autoencoder")?)?,
        },
    };
    let text_base = need_base(base, &shown, "text encoders")?;
    let text = vec![folder::clip(text_base, "text_encoder")?, folder::t5(text_base, "text_encoder_2")?];
    let tokenizers = tokenizers(&beside(path, options), family)?;
    let parts = Parts { denoiser, denoiser_config: DenoiserConfig::Flux(flux), vae, vae_config, text, tokenizers };
    let mut info = info(family, Prediction::Flow, &parts)?;
    info.scheduler_config = folder::scheduler_value(text_base)?;
    Ok((info, parts))
}
