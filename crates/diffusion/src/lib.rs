//! Image generation with diffusion models: Stable Diffusion 1.x, 2.x, XL and Flux.
//!
//! [`Checkpoint::open`] recognizes a folder in the diffusers layout, or a single file in the original layout. [`Checkpoint::load`] gives a
//! [`Model`]: its tokenizers, text encoders, denoiser (a UNet or a transformer) and autoencoder, on any [`warpwave_tensor::Device`].
//!
//! What this crate promises: every file is checked before it is used; an error names the file and the key. A single file and a folder with
//! the same weights give bit-identical results. Latents and images are `f32` of (images, channels, height, width), whatever the type of the
//! weights.
//!
//! ```no_run
//! use warpwave_diffusion::{Checkpoint, Extra, LoadOptions, Tokens};
//! use warpwave_tensor::{Device, Tensor};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let model = Checkpoint::open("stable-diffusion-v1-5")?.load(&Device::Cpu, LoadOptions::default())?;
//! let ids = model.tokenize(0, "a red fox in the snow")?;
//! let row = model.row(0, &ids, 77)?;
//! let conditioning = model.encode(&Tokens { encoders: vec![vec![row]] }, 0)?;
//! let latents = Tensor::zeros(warpwave_kernels::DType::F32, &[1, 4, 64, 64], &Device::Cpu)?;
//! let noise = model.denoise(&latents, 999.0, &conditioning, &Extra::default())?;
//! # Ok(())
//! # }
//! ```
#![warn(missing_docs)]

mod checkpoint;
mod clip;
mod config;
mod error;
mod flux;
mod generate;
mod image;
mod info;
mod json;
mod lora;
mod memory;
mod model;
mod names;
mod nn;
mod noise;
mod preview;
mod prompt;
mod sampler;
mod schedule;
mod session;
mod t5;
mod tiles;
mod tiny;
mod tokenizer;
mod unet;
mod vae;
mod weights;

pub use checkpoint::{Checkpoint, LoadOptions, OpenOptions, RandomModel};
pub use error::{Error, Result};
pub use generate::{Generated, MAX_IMAGES, Progress, Request, SIDES, generate};
pub use image::{Image, ImageLimits, Mask};
pub use info::{Family, ModelInfo, Prediction, TextEncoderInfo, TextEncoderKind};
pub use memory::MemoryEstimate;
pub use model::{Conditioning, Extra, Model, Tokens};
pub use noise::{Draws, Generator};
pub use preview::Preview;
pub use prompt::{Part, PromptOptions, Weighting, encode as encode_prompt, parse as parse_prompt};
pub use sampler::{Sampler, Solver};
pub use schedule::{Level, MAX_STEPS, Plan, Schedule, Step};
pub use session::Session;
pub use tiny::TinyAutoencoder;
