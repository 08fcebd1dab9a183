//! Models with the sizes of published ones and random weights, for benchmarks.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::{Checkpoint, DenoiserConfig, Parts, TextConfig, TextPart, folder};
use crate::config::{ClipActivation, ClipConfig, FluxConfig, T5Config, UnetConfig, VaeConfig};
use crate::error::{Error, Result, bad_argument};
use crate::info::{Family, Prediction};
use crate::names::Naming;
use crate::weights::{Part, WeightFile};

/// A published model whose sizes [`Checkpoint::random`] takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RandomModel {
    /// Stable Diffusion 1.5.
    Sd15,
    /// Stable Diffusion XL.
    Sdxl,
    /// Flux dev.
    FluxDev,
}

impl RandomModel {
    /// All models.
    pub const ALL: [RandomModel; 3] = [RandomModel::Sd15, RandomModel::Sdxl, RandomModel::FluxDev];

    /// The name in options: `sd15`, `sdxl`, `flux`.
    pub fn name(self) -> &'static str {
        match self {
            RandomModel::Sd15 => "sd15",
            RandomModel::Sdxl => "sdxl",
            RandomModel::FluxDev => "flux",
        }
    }
}

impl fmt::Display for RandomModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for RandomModel {
    type Err = Error;

    fn from_str(name: &str) -> Result<RandomModel> {
        let found = RandomModel::ALL.into_iter().find(|model| model.name() == name);
        found.ok_or_else(|| bad_argument("random", format!("unknown model {name}; expected sd15, sdxl or flux")))
    }
}

impl Checkpoint {
    /// Returns a model with random weights, made on the device when it is loaded. It has no tokenizers.
    pub fn random(model: RandomModel) -> Result<Checkpoint> {
        let naming = Naming::Diffusers;
        let part = |name: &str| Part::new(format!("random {model} {name}"), Arc::new(WeightFile::Random), "", naming);
        let text = |name: &str, config: TextConfig| TextPart { part: part(name), config };
        let small = || text("text_encoder", TextConfig::Clip(clip_l()));
        let (family, denoiser, text) = match model {
            RandomModel::Sd15 => (Family::Sd1, DenoiserConfig::Unet(sd15()), vec![small()]),
            RandomModel::Sdxl => {
                let second = text("text_encoder_2", TextConfig::Clip(clip_big_g()));
                (Family::Sdxl, DenoiserConfig::Unet(sdxl()), vec![small(), second])
            }
            RandomModel::FluxDev => {
                let second = text("text_encoder_2", TextConfig::T5(t5_xxl()));
                (Family::FluxDev, DenoiserConfig::Flux(flux_dev()), vec![small(), second])
            }
        };
        let prediction = if family.is_flux() { Prediction::Flow } else { Prediction::Epsilon };
        let parts = Parts {
            denoiser: part("denoiser"),
            denoiser_config: denoiser,
            vae: part("vae"),
            vae_config: vae(family),
            tokenizers: text.iter().map(|_| None).collect(),
            text,
        };
        Ok(Checkpoint { info: folder::info(family, prediction, &parts)?, parts: Arc::new(parts) })
    }
}

fn sd15() -> UnetConfig {
    UnetConfig {
        in_channels: 4,
        out_channels: 4,
        channels: vec![320, 640, 1280, 1280],
        layers: 2,
        depth: vec![1, 1, 1, 0],
        mid_depth: 1,
        heads: vec![8; 4],
        cross: 768,
        groups: 32,
        eps: 1e-5,
        linear_projection: false,
        added: None,
    }
}

fn sdxl() -> UnetConfig {
    UnetConfig {
        channels: vec![320, 640, 1280],
        depth: vec![0, 2, 10],
        mid_depth: 10,
        heads: vec![5, 10, 20],
        cross: 2048,
        linear_projection: true,
        added: Some((256, 2816)),
        ..sd15()
    }
}

fn flux_dev() -> FluxConfig {
    FluxConfig {
        in_channels: 64,
        heads: 24,
        head_dim: 128,
        axes: vec![16, 56, 56],
        double_blocks: 19,
        single_blocks: 38,
        feed_forward: 12_288,
        text: 4096,
        pooled: 768,
        guidance: true,
    }
}

fn vae(family: Family) -> VaeConfig {
    let (latent_channels, scaling, shift) = match family {
        Family::FluxSchnell | Family::FluxDev => (16, 0.3611, 0.1159),
        Family::Sdxl => (4, 0.13025, 0.0),
        _ => (4, 0.18215, 0.0),
    };
    VaeConfig {
        latent_channels,
        channels: vec![128, 256, 512, 512],
        layers: 2,
        groups: 32,
        quant_convs: !family.is_flux(),
        scaling,
        shift,
        upcast: family == Family::Sdxl,
    }
}

fn clip_l() -> ClipConfig {
    ClipConfig {
        vocab: 49_408,
        width: 768,
        layers: 12,
        heads: 12,
        feed_forward: 3072,
        positions: 77,
        activation: ClipActivation::QuickGelu,
        eps: 1e-5,
        eos: None,
        projection: None,
    }
}

fn clip_big_g() -> ClipConfig {
    ClipConfig {
        width: 1280,
        layers: 32,
        heads: 20,
        feed_forward: 5120,
        activation: ClipActivation::Gelu,
        projection: Some(1280),
        ..clip_l()
    }
}

fn t5_xxl() -> T5Config {
    T5Config {
        vocab: 32_128,
        width: 4096,
        head_dim: 64,
        heads: 64,
        layers: 24,
        feed_forward: 10_240,
        buckets: 32,
        max_distance: 128,
        eps: 1e-6,
    }
}
