//! Estimates memory by running a request's networks on a device that only counts it.

use serde::Serialize;
use warpwave_kernels::DType;
use warpwave_tensor::{Device, Meta, Tensor};

use crate::checkpoint::{Checkpoint, LoadOptions};
use crate::error::{Result, bad_argument};
use crate::generate::{Request, tile};
use crate::info::{Family, TextEncoderKind};
use crate::model::{Conditioning, Extra, Model, Tokens};

/// On GPUs: code of kernels, workspace of the matrix library, and what a captured graph needs beside its tensors.
const CODE: u64 = 160 << 20;
/// A share of 4 % for unused memory in the pool of a GPU. It holds more while there is free memory.
const POOL_SHARE: u64 = 25;

/// Memory that a model and a request need, in bytes. See [`Checkpoint::memory`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct MemoryEstimate {
    /// Weights that stay loaded.
    pub weights: u64,
    /// The most that a phase takes beside them: encoding the text, encoding the start image, a step, or decoding. Networks that are loaded on
    /// demand count in their phase.
    pub phase: u64,
    /// Of a GPU: unused memory in the pool, code and workspaces.
    pub overhead: u64,
}

impl MemoryEstimate {
    /// Returns the sum of all parts.
    pub fn total(&self) -> u64 {
        [self.weights, self.phase, self.overhead].into_iter().fold(0, u64::saturating_add)
    }
}

/// Counts what a request takes.
pub(crate) fn estimate(checkpoint: &Checkpoint, device: &Device, options: LoadOptions, request: &Request) -> Result<MemoryEstimate> {
    let device = Device::meta(device);
    let Device::Meta(meta) = &device else { return Err(bad_argument("memory", "expected a meta device")) };
    let model = checkpoint.load(&device, options)?;
    let weights = meta.memory().current;
    let mut phases = Phases { meta, weights, most: 0 };
    meta.reset_peak();
    run(&model, request, &mut phases)?;
    let pool = if device.is_cpu() { 0 } else { (weights + phases.most) / POOL_SHARE };
    let code = if device.is_cpu() || device.is_virtual() { 0 } else { CODE };
    Ok(MemoryEstimate { weights, phase: phases.most, overhead: pool + code })
}

/// What is counted of each phase.
struct Phases<'a> {
    meta: &'a Meta,
    weights: u64,
    most: u64,
}

impl Phases<'_> {
    /// Ends a phase.
    fn end(&mut self) {
        self.most = self.most.max(self.meta.memory().peak.saturating_sub(self.weights));
        self.meta.reset_peak();
    }
}

/// The phases of [`crate::generate`], without its arithmetic on the host.
fn run(model: &Model, request: &Request, phases: &mut Phases<'_>) -> Result<()> {
    let (info, device) = (model.info(), model.device());
    let (width, height) = request.size(info)?;
    let tile = tile(width, height);
    let flux = info.family.is_flux();
    // Each text is encoded by itself.
    let row = |encoder: &crate::info::TextEncoderInfo| {
        let length = request.text.t5_length.filter(|_| encoder.kind == TextEncoderKind::T5).unwrap_or(encoder.row_length);
        vec![vec![encoder.pad; length]]
    };
    let tokens = Tokens { encoders: info.text_encoders.iter().map(row).collect() };
    let one = model.encode(&tokens, request.text.clip_skip)?;
    phases.end();
    let guided = if flux { request.true_guidance } else { request.guidance } > 1.0;
    let rows = request.images * if guided { 2 } else { 1 };
    let copies = |tensor: &Tensor| Tensor::cat(&vec![tensor.clone(); rows], 0);
    let conditioning = Conditioning { context: copies(&one.context)?, pooled: one.pooled.as_ref().map(copies).transpose()? };
    drop(one);
    let (down, channels) = (info.latent_scale, info.latent_channels);
    if request.init.is_some() {
        drop(model.vae_encode(&Tensor::zeros(DType::F32, &[1, 3, height, width], device)?, tile)?);
        phases.end();
    }
    let channels_in = if info.inpaint { 2 * channels + 1 } else { channels };
    let shape = [rows, channels_in, height / down, width / down];
    let extra =
        Extra { time_ids: (info.family == Family::Sdxl).then_some([0.0; 6]), guidance: (info.family == Family::FluxDev).then_some(1.0) };
    let fixed = model.fixed(&shape, &conditioning, &extra)?;
    let time = model.time(0.5)?;
    let step = || -> Result<()> {
        let latents = Tensor::zeros(DType::F32, &shape, device)?;
        model.forward(&latents, &Tensor::zeros(DType::F32, &[1, time.len()], device)?, &fixed).map(drop)
    };
    step()?;
    phases.end();
    drop((fixed, conditioning));
    let latents = Tensor::zeros(DType::F32, &[1, channels, height / down, width / down], device)?;
    drop(model.vae_decode(&latents, tile)?);
    drop(latents);
    phases.end();
    Ok(())
}
