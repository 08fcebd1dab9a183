//! Runs: from a request to images.

use std::ops::ControlFlow;

use warpwave_kernels::DType;
use warpwave_tensor::Tensor;

use crate::error::{Error, Result, bad_argument};
use crate::flux;
use crate::image::{Image, Mask};
use crate::info::{Family, ModelInfo, Prediction};
use crate::model::{Conditioning, Extra, Model};
use crate::noise::{Draw, Draws, Generator, Source};
use crate::preview::Preview;
use crate::prompt::{self, PromptOptions};
use crate::sampler::{Sampler, Solver};
use crate::schedule::{Level, Plan, Schedule};
use crate::session::Session;

/// The most images of a run.
pub const MAX_IMAGES: usize = 16;
/// The sides that images may have, in pixels.
pub const SIDES: std::ops::RangeInclusive<usize> = 32..=4096;
/// Images with more pixels than 1536² are decoded in tiles, which bounds the memory.
const UNTILED: usize = 1536 * 1536;
/// The side of a tile.
const TILE: usize = 1024;

/// What to generate.
#[derive(Debug, Clone)]
pub struct Request {
    /// What the image shows.
    pub prompt: String,
    /// What it does not show.
    pub negative: Option<String>,
    /// How prompts are encoded.
    pub text: PromptOptions,
    /// The width; by default that of the initial image, or the model's.
    pub width: Option<usize>,
    /// The height.
    pub height: Option<usize>,
    /// The sampler.
    pub sampler: Sampler,
    /// The schedule; by default the model's own.
    pub schedule: Option<Schedule>,
    /// Steps of a whole run.
    pub steps: usize,
    /// How much the prompt counts against the negative prompt; up to 1 it is not compared. Of Flux dev the guidance that it is given.
    pub guidance: f64,
    /// Flux only: as `guidance` of the other families, with a second run of the transformer for the negative prompt.
    pub true_guidance: f64,
    /// The seed of the first image; each further one has the next seed.
    pub seed: u64,
    /// The number of images.
    pub images: usize,
    /// An image to start from.
    pub init: Option<Image>,
    /// What of the initial image is repainted.
    pub mask: Option<Mask>,
    /// How much of the initial image is replaced: 1 starts from noise.
    pub strength: f64,
    /// Random numbers to use instead of those of the seed.
    pub draws: Option<Draws>,
    /// Whether to keep the latents of all steps.
    pub trajectory: bool,
}

impl Request {
    /// The request with the defaults of a model: 20 steps of Euler with guidance, or few steps without for models made for that.
    pub fn new(info: &ModelInfo, prompt: impl Into<String>) -> Request {
        let setting = |key: &str| info.scheduler_config.as_ref().and_then(|config| config.get(key)).and_then(serde_json::Value::as_str);
        // Turbo models are told only by their scheduler.
        let ancestral = setting("_class_name") == Some("EulerAncestralDiscreteScheduler");
        let turbo = ancestral && setting("timestep_spacing") == Some("trailing");
        let (steps, guidance) = match info.family {
            Family::FluxSchnell => (4, 0.0),
            Family::FluxDev => (20, 3.5),
            _ if turbo => (4, 0.0),
            Family::Sdxl => (20, 5.0),
            Family::Sd1 | Family::Sd2 => (20, 7.5),
        };
        Request {
            prompt: prompt.into(),
            negative: None,
            text: PromptOptions::default(),
            width: None,
            height: None,
            sampler: if turbo { Sampler::EulerAncestral } else { Sampler::Euler },
            schedule: None,
            steps,
            guidance,
            true_guidance: 1.0,
            seed: 0,
            images: 1,
            init: None,
            mask: None,
            strength: if info.inpaint { 1.0 } else { 0.8 },
            draws: None,
            trajectory: false,
        }
    }

    /// Returns width and height of the images.
    pub fn size(&self, info: &ModelInfo) -> Result<(usize, usize)> {
        let multiple = info.size_multiple.max(1);
        let default = |of_init: fn(&Image) -> usize| match &self.init {
            Some(image) => of_init(image) / multiple * multiple,
            None => info.default_size,
        };
        let width = self.width.unwrap_or_else(|| default(Image::width));
        let height = self.height.unwrap_or_else(|| default(Image::height));
        for (name, side) in [("width", width), ("height", height)] {
            if !SIDES.contains(&side) || side % multiple != 0 {
                let (low, high) = (SIDES.start(), SIDES.end());
                return Err(bad_argument(name, format!("expected a multiple of {multiple} from {low} to {high}, got {side}")));
            }
        }
        Ok((width, height))
    }

    /// Checks the request and plans its steps, without computing anything.
    pub fn plan(&self, info: &ModelInfo) -> Result<Plan> {
        let (width, height) = self.size(info)?;
        if self.images == 0 || self.images > MAX_IMAGES {
            return Err(bad_argument("images", format!("expected 1 to {MAX_IMAGES}, got {}", self.images)));
        }
        for (name, value) in [("guidance", self.guidance), ("true_guidance", self.true_guidance)] {
            if !(0.0..=100.0).contains(&value) {
                return Err(bad_argument(name, format!("expected a number from 0 to 100, got {value}")));
            }
        }
        if self.mask.is_some() && self.init.is_none() {
            return Err(bad_argument("mask", "a mask needs an initial image"));
        }
        if info.inpaint && self.mask.is_none() {
            return Err(bad_argument("mask", "an inpainting model needs an initial image and a mask"));
        }
        if !info.family.is_flux() && self.true_guidance > 1.0 {
            return Err(bad_argument("true_guidance", "only Flux supports true guidance; use `guidance` instead"));
        }
        let tokens = (width / 16) * (height / 16);
        let mut plan = Plan::new(info, self.sampler, self.schedule, self.steps, tokens)?;
        if self.init.is_some() {
            plan.shorten(self.strength, info.family.is_flux())?;
        }
        Ok(plan)
    }

    /// Returns the text that other programs read from an image: the prompt, and the settings of the image with this number.
    pub fn parameters(&self, info: &ModelInfo, model: &str, image: usize) -> Result<String> {
        let (width, height) = self.size(info)?;
        let mut text = self.prompt.clone();
        if let Some(negative) = &self.negative {
            text += &format!("\nNegative prompt: {negative}");
        }
        text += &format!("\nSteps: {}, Sampler: {}", self.steps, self.sampler.title());
        if let Some(schedule) = self.schedule {
            text += &format!(", Schedule type: {}", schedule.title());
        }
        let seed = self.seed.wrapping_add(image as u64);
        text += &format!(", CFG scale: {}, Seed: {seed}, Size: {width}x{height}, Model: {model}", self.guidance);
        if self.text.clip_skip > 0 {
            text += &format!(", Clip skip: {}", self.text.clip_skip + 1);
        }
        if self.init.is_some() {
            text += &format!(", Denoising strength: {}", self.strength);
        }
        Ok(text)
    }
}

/// How far a run is.
pub struct Progress<'a> {
    /// Steps that are done.
    pub step: usize,
    /// Steps in all.
    pub total: usize,
    run: &'a Run<'a>,
    image: &'a [f32],
}

impl Progress<'_> {
    /// Returns what the first image will about look like.
    pub fn preview(&self, preview: &Preview) -> Result<Image> {
        let one = self.image.len() / self.run.images;
        preview.image(&self.image[..one], &self.run.shape, self.run.model.device())
    }
}

/// What a run made.
#[derive(Debug)]
pub struct Generated {
    /// The images.
    pub images: Vec<Image>,
    /// The latents they were decoded from: `f32` of (images, channels, height, width), on the model's scale.
    pub latents: Tensor,
    /// The latents before the first step and after each, if the request asks for them: on the sampler's scale (Euler's grows with the noise),
    /// and of Flux in patches, as diffusers has them.
    pub trajectory: Vec<Tensor>,
}

/// Generates images. `progress` is called after every step, and may end the run, which is then [`Error::Cancelled`].
pub fn generate(model: &Model, request: &Request, progress: &mut dyn FnMut(&Progress<'_>) -> ControlFlow<()>) -> Result<Generated> {
    let info = model.info();
    let plan = request.plan(info)?;
    let (width, height) = request.size(info)?;
    let run = Run {
        model,
        request,
        shape: [1, info.latent_channels, height / info.latent_scale, width / info.latent_scale],
        images: request.images,
        tile: tile(width, height),
        extra: Extra {
            time_ids: (info.family == Family::Sdxl).then(|| {
                let (height, width) = (height as f32, width as f32);
                [height, width, 0.0, 0.0, height, width]
            }),
            guidance: (info.family == Family::FluxDev).then_some(request.guidance as f32),
        },
    };
    let mut denoiser = run.denoiser()?;
    let mut source = match &request.draws {
        Some(draws) => Source::File { draws, images: run.images },
        None => Source::Seeds((0..run.images as u64).map(|k| Generator::new(request.seed.wrapping_add(k))).collect()),
    };
    let init = request.init.as_ref().map(|image| image.resize(width, height)).transpose()?;
    let mask = request.mask.as_ref().map(|mask| mask.resize(width, height)).transpose()?;
    let (mut x, image) = run.start(&plan, init.as_ref(), mask.as_ref(), &mut source)?;
    let mut solver = Solver::new(request.sampler, info.prediction);
    let total = plan.steps.len();
    let mut trajectory = Vec::new();
    if let (true, Some(first)) = (request.trajectory, plan.steps.first()) {
        trajectory.push(run.state(&x, first.level)?);
    }
    for (i, step) in plan.steps.iter().enumerate() {
        let output = run.denoise(&mut denoiser, &x, step.timestep as f32, image.as_ref())?;
        if !output.iter().all(|value| value.is_finite()) {
            return Err(Error::NotFinite { step: i + 1 });
        }
        let noise = request.sampler.is_ancestral().then(|| source.draw(&Draw::Step(i), &run.shape)).transpose()?;
        let predicted = solver.step(step, total - 1 - i, &mut x, &output, noise.as_deref())?;
        if let Some(image) = image.as_ref().filter(|image| !image.is_input) {
            let level = if i + 1 == total { Level { signal: 1.0, noise: 0.0 } } else { step.next };
            image.keep(&mut x, level);
        }
        if request.trajectory {
            trajectory.push(run.state(&x, step.next)?);
        }
        let done = Progress { step: i + 1, total, run: &run, image: &predicted };
        if progress(&done).is_break() {
            return Err(Error::Cancelled);
        }
    }
    // The autoencoder may need the memory.
    drop(denoiser);
    let latents = run.tensor(&x)?;
    let mut images = run.decode(&latents)?;
    if let (Some(original), Some(mask)) = (&init, &mask) {
        images.iter_mut().for_each(|image| image.paste(original, mask));
    }
    Ok(Generated { images, latents, trajectory })
}

/// The tiles in which images of this size are encoded and decoded.
pub(crate) fn tile(width: usize, height: usize) -> Option<usize> {
    (width * height > UNTILED).then_some(TILE)
}

/// What stays the same in a run.
struct Run<'a> {
    model: &'a Model,
    request: &'a Request,
    /// The shape of one image's latents.
    shape: [usize; 4],
    images: usize,
    tile: Option<usize>,
    extra: Extra,
}

/// The initial image of inpainting.
struct Inpaint {
    /// Its latents.
    latents: Vec<f32>,
    /// The noise that was added to them.
    noise: Vec<f32>,
    /// Per position of the latents: 1 where it is repainted.
    mask: Vec<f32>,
    /// Whether the denoiser gets mask and image as input. If not, what is kept is put back after every step.
    is_input: bool,
    /// The latents of the image without what is repainted.
    masked: Vec<f32>,
}

impl Inpaint {
    /// Puts back what is not repainted, at a noise level.
    fn keep(&self, x: &mut [f32], level: Level) {
        let (signal, noise) = (level.signal as f32, level.noise as f32);
        for (i, x) in x.iter_mut().enumerate() {
            let mask = self.mask[i % self.mask.len()];
            let kept = signal * self.latents[i] + noise * self.noise[i];
            *x = (1.0 - mask) * kept + mask * *x;
        }
    }
}

/// The calls of the denoiser in a step.
struct Denoiser<'a> {
    /// One for all of the conditioning, or one for the prompt and one for the negative prompt.
    sessions: Vec<Session<'a>>,
    /// The guidance scale if there is a negative prompt.
    guidance: Option<f32>,
}

impl<'a> Run<'a> {
    fn denoiser(&self) -> Result<Denoiser<'a>> {
        let (model, request) = (self.model, self.request);
        let repeat = |conditioning: Conditioning| -> Result<Conditioning> {
            let copies = |tensor: Tensor| Tensor::cat(&vec![tensor; self.images], 0);
            Ok(Conditioning { context: copies(conditioning.context)?, pooled: conditioning.pooled.map(copies).transpose()? })
        };
        let positive = repeat(prompt::encode(model, &request.prompt, &request.text)?)?;
        let guidance = if model.info().family.is_flux() { request.true_guidance } else { request.guidance };
        let negative = match &request.negative {
            _ if guidance <= 1.0 => None,
            None if model.info().zeros_for_no_negative => {
                let empty = repeat(prompt::encode(model, "", &request.text)?)?;
                let pooled = empty.pooled.map(|pooled| pooled.zeros_like()).transpose()?;
                Some(Conditioning { context: empty.context.zeros_like()?, pooled })
            }
            negative => Some(repeat(prompt::encode(model, negative.as_deref().unwrap_or_default(), &request.text)?)?),
        };
        let [_, mut channels, height, width] = self.shape;
        if model.info().inpaint {
            // The mask and the latents of the masked image.
            channels = 2 * channels + 1;
        }
        let session = |conditioning: &Conditioning| {
            let images = conditioning.context.size(0);
            model.session([images, channels, height, width], conditioning, &self.extra)
        };
        let sessions = match &negative {
            None => vec![session(&positive)?],
            Some(negative) if positive.context.shape() == negative.context.shape() => {
                // One call for both is faster.
                let both = |one: &Tensor, other: &Tensor| Tensor::cat(&[one.clone(), other.clone()], 0);
                let pooled = positive.pooled.as_ref().zip(negative.pooled.as_ref());
                vec![session(&Conditioning {
                    context: both(&positive.context, &negative.context)?,
                    pooled: pooled.map(|(one, other)| both(one, other)).transpose()?,
                })?]
            }
            Some(negative) => vec![session(&positive)?, session(negative)?],
        };
        Ok(Denoiser { sessions, guidance: negative.map(|_| guidance as f32) })
    }

    /// The tensor of all images' latents, or of other values of their height and width.
    fn tensor(&self, values: &[f32]) -> Result<Tensor> {
        let [_, _, height, width] = self.shape;
        let channels = values.len() / (self.images * height * width).max(1);
        Ok(Tensor::new(values, &[self.images, channels, height, width], self.model.device())?)
    }

    fn denoise(&self, denoiser: &mut Denoiser<'_>, x: &[f32], timestep: f32, image: Option<&Inpaint>) -> Result<Vec<f32>> {
        let mut input = Vec::new();
        let each = self.shape.iter().product::<usize>();
        for (k, x) in x.chunks_exact(each).enumerate() {
            input.extend_from_slice(x);
            if let Some(image) = image.filter(|image| image.is_input) {
                input.extend_from_slice(&image.mask);
                input.extend_from_slice(&image.masked[k * each..(k + 1) * each]);
            }
        }
        let outputs = match &mut denoiser.sessions[..] {
            [positive, negative] => [positive.run(&input, timestep)?, negative.run(&input, timestep)?].concat(),
            [both] if denoiser.guidance.is_some() => both.run(&input.repeat(2), timestep)?,
            [one] => one.run(&input, timestep)?,
            _ => return Err(bad_argument("denoise", "internal error: expected one or two calls per step")),
        };
        let Some(guidance) = denoiser.guidance else { return Ok(outputs) };
        let (positive, negative) = outputs.split_at(outputs.len() / 2);
        Ok(positive.iter().zip(negative).map(|(positive, negative)| negative + guidance * (positive - negative)).collect())
    }

    /// The latents as [`Generated::trajectory`] has them.
    fn state(&self, x: &[f32], level: Level) -> Result<Tensor> {
        let grows = matches!(self.request.sampler, Sampler::Euler | Sampler::EulerAncestral);
        let signal = if grows && self.model.info().prediction != Prediction::Flow { level.signal } else { 1.0 };
        let scaled: Vec<f32> = x.iter().map(|x| (f64::from(*x) / signal) as f32).collect();
        let latents = self.tensor(&scaled)?;
        if self.model.info().family.is_flux() { flux::pack(&latents) } else { Ok(latents) }
    }

    /// The latents that a run starts with, and the image of inpainting.
    fn start(
        &self,
        plan: &Plan,
        init: Option<&Image>,
        mask: Option<&Mask>,
        source: &mut Source<'_>,
    ) -> Result<(Vec<f32>, Option<Inpaint>)> {
        let scaled = |noise: &[f32], factor: f64| noise.iter().map(|value| value * factor as f32).collect::<Vec<_>>();
        let Some(init) = init else {
            return Ok((scaled(&source.draw(&Draw::Initial, &self.shape)?, plan.initial), None));
        };
        let strength = self.request.strength;
        let Some(mask) = mask else {
            let distribution = self.encode(&init.planes())?;
            let latents = self.sample(&distribution, &source.draw(&Draw::Posterior(strength), &self.shape)?);
            let noise = source.draw(&Draw::Added(strength), &self.shape)?;
            return Ok((noised(&latents, &noise, plan.steps[0].level), None));
        };
        let is_input = self.model.info().inpaint;
        let mut drawn = 0;
        let mut draw = || {
            drawn += 1;
            source.draw(&Draw::Inpaint(strength, drawn - 1), &self.shape)
        };
        // The order of the random numbers is diffusers': image, noise, masked image. Only what they are used for is encoded.
        let from_noise = strength == 1.0;
        let latents = if is_input && from_noise {
            Vec::new()
        } else {
            let distribution = self.encode(&init.planes())?;
            self.sample(&distribution, &draw()?)
        };
        let noise = draw()?;
        let posterior = draw()?;
        let x = if from_noise { scaled(&noise, plan.initial) } else { noised(&latents, &noise, plan.steps[0].level) };
        let masked = if is_input {
            let planes = init.planes();
            let kept: Vec<f32> = mask.repaint().map(|repaint| 1.0 - repaint).collect();
            let masked: Vec<f32> = planes.iter().enumerate().map(|(i, value)| value * kept[i % kept.len()]).collect();
            self.sample(&self.encode(&masked)?, &posterior)
        } else {
            Vec::new()
        };
        let mask = mask.resize(self.shape[3], self.shape[2])?.repaint().collect();
        Ok((x, Some(Inpaint { latents, noise, mask, is_input, masked })))
    }

    /// Mean and logarithm of the variance of an image's latents.
    fn encode(&self, planes: &[f32]) -> Result<(Vec<f32>, Vec<f32>)> {
        let scale = self.model.info().latent_scale;
        let shape = [1, 3, self.shape[2] * scale, self.shape[3] * scale];
        let (mean, variance) = self.model.vae_encode(&Tensor::new(planes, &shape, self.model.device())?, self.tile)?;
        Ok((mean.to_vec()?, variance.to_vec()?))
    }

    /// Latents from an image's distribution, for all images of the run.
    fn sample(&self, (mean, variance): &(Vec<f32>, Vec<f32>), random: &[f32]) -> Vec<f32> {
        let info = self.model.info();
        let one = |(i, random): (usize, &f32)| {
            let i = i % mean.len();
            let value = f64::from(mean[i]) + f64::from(variance[i].clamp(-30.0, 20.0) / 2.0).exp() * f64::from(*random);
            ((value - info.vae_shift) * info.vae_scaling) as f32
        };
        random.iter().enumerate().map(one).collect()
    }

    /// Decodes the images.
    fn decode(&self, latents: &Tensor) -> Result<Vec<Image>> {
        let info = self.model.info();
        let unscaled = |value: &f32| (f64::from(*value) / info.vae_scaling + info.vae_shift) as f32;
        let one = |index: usize| {
            let values = latents.narrow(0, index, 1)?.contiguous()?.to_vec::<f32>()?;
            Ok(Tensor::new(&values.iter().map(unscaled).collect::<Vec<_>>(), &self.shape, self.model.device())?)
        };
        self.model.vae_decode_each((0..self.images).map(one), self.tile, |image| {
            let image = image.cast(DType::F32)?;
            let (height, width) = (image.size(2), image.size(3));
            Image::from_planes(width, height, &image.to_vec::<f32>()?)
        })
    }
}

/// An image's latents with noise.
fn noised(latents: &[f32], noise: &[f32], level: Level) -> Vec<f32> {
    let (signal, scale) = (level.signal as f32, level.noise as f32);
    latents.iter().zip(noise).map(|(latent, noise)| signal * latent + scale * noise).collect()
}
