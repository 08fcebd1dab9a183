//! `warpwave image`: images from text.

mod info;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use warpwave_diffusion::{
    Checkpoint, Draws, Error, Image, ImageLimits, LoadOptions, MAX_IMAGES, MAX_STEPS, Mask, Model, OpenOptions, Preview, Request, Sampler,
    Schedule, TinyAutoencoder, Weighting, generate,
};
use warpwave_kernels::DType;
use warpwave_tensor::{Device, Tensor, safetensors};

use super::llm::device;
use super::llm::interrupt::Interrupt;
use super::{Context, Failure, Outcome, failed, human_bytes, usage};

#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:\n  \
    warpwave image 'a red bicycle' --model sd15.safetensors -o out.png --steps 30 --schedule karras --seed 1\n  \
    warpwave image 'a (red:1.3) bicycle' --model ./sdxl --lora style.safetensors:0.7 --batch 4\n  \
    warpwave image 'oil painting' --model ./sd15 --init photo.jpg --strength 0.6\n  \
    warpwave image 'a cat' --model ./sd15-inpaint --init photo.jpg --mask mask.png\n  \
    warpwave image info ./sdxl --json\n\n\
    Ctrl-C stops after the current step; a second Ctrl-C exits."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Show a model's family, sizes and supported features.
    #[command(after_help = "Example: warpwave image info sd15.safetensors --json")]
    Info(info::Args),
}

/// Where a model is, and what completes it.
#[derive(clap::Args, Clone)]
#[command(next_help_heading = "Loading")]
pub(crate) struct FileArgs {
    /// Read what a single-file model lacks (tokenizers, configurations) from this directory in the diffusers layout.
    #[arg(long, value_name = "DIR")]
    pub base: Option<PathBuf>,
    /// Load the autoencoder (VAE) from this file or directory.
    #[arg(long, value_name = "PATH")]
    pub vae: Option<PathBuf>,
}

/// How a model is loaded.
#[derive(clap::Args, Clone)]
#[command(next_help_heading = "Loading")]
pub(crate) struct LoadArgs {
    #[command(flatten)]
    pub files: FileArgs,
    /// Run on this device: cpu, cuda:0, rocm:1, vgpu:gfx90a (virtual), or auto (the first GPU, else the CPU).
    #[arg(long, env = "WARPWAVE_DEVICE", default_value = "auto")]
    pub device: String,
    /// Compute in this type; default: f32 on the CPU; on GPUs bf16 for Flux, else f16.
    #[arg(long, value_name = "f32|f16|bf16", value_parser = parse_dtype)]
    pub dtype: Option<DType>,
    /// Decode previews with this tiny autoencoder (TAESD), a directory in the diffusers layout; default: a low-resolution linear approximation.
    #[arg(long, value_name = "DIR")]
    pub taesd: Option<PathBuf>,
    /// Load text encoders and autoencoder (VAE) only while they are used, which is slower; auto: where not everything fits.
    #[arg(long, value_name = "auto|on|off", default_value = "auto")]
    pub low_memory: LowMemory,
    /// Set the number of CPU threads; default: all cores.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: Option<u16>,
}

/// When networks are loaded on demand.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LowMemory {
    Auto,
    On,
    Off,
}

#[derive(clap::Args)]
struct RunArgs {
    /// Text prompt; (x) gives x the weight 1.1, (x:1.3) the weight 1.3; \( and \) are literal parentheses.
    #[arg(required = true)]
    prompt: Option<String>,
    /// Use this model: a directory in the diffusers layout, or a .safetensors file.
    #[arg(long, short, value_name = "MODEL", required = true)]
    model: Option<PathBuf>,
    /// Write the image to this PNG file; an existing file is overwritten. With --batch, NAME.png becomes NAME-1.png, NAME-2.png, ...
    #[arg(short, long, value_name = "NAME.png", default_value = "out.png")]
    output: PathBuf,
    /// Set the negative prompt.
    #[arg(long, value_name = "TEXT")]
    negative: Option<String>,
    /// Apply a LoRA file; repeatable; default strength: 1.
    #[arg(long, value_name = "FILE[:STRENGTH]", value_parser = parse_lora)]
    lora: Vec<(PathBuf, f32)>,
    /// Write a preview of the first image to this PNG file after every step.
    #[arg(long, value_name = "FILE")]
    preview: Option<PathBuf>,
    /// Read all noise from this safetensors file instead of generating it from the seed.
    #[arg(long, value_name = "FILE")]
    draws: Option<PathBuf>,
    /// Save the initial latents and those after each step to this safetensors file (`latents`, `final`).
    #[arg(long, value_name = "FILE")]
    latents_out: Option<PathBuf>,
    /// Print JSON: files, seeds, settings, timings.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    image: ImageArgs,
    #[command(flatten)]
    load: LoadArgs,
}

#[derive(clap::Args)]
#[command(next_help_heading = "Sampling")]
struct Settings {
    /// Set the number of steps; default: 20 (schnell and turbo models: 4).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=MAX_STEPS as i64))]
    steps: Option<u16>,
    /// Set the sampler; default: euler (turbo models: euler_ancestral).
    #[arg(long, value_parser = sampler_parser())]
    sampler: Option<Sampler>,
    /// Set the noise schedule; default: the model's own.
    #[arg(long, value_parser = schedule_parser())]
    schedule: Option<Schedule>,
    /// Set the guidance scale (CFG); at 1 or less the negative prompt is ignored. Default: 7.5; XL: 5; Flux dev: 3.5; turbo models: 0.
    #[arg(long, value_name = "G")]
    guidance: Option<f64>,
    /// Set the true CFG scale, which uses the negative prompt (Flux only; doubles the time); 1 disables.
    #[arg(long, value_name = "G", default_value_t = 1.0)]
    true_guidance: f64,
    /// Set the random seed; image k of a batch has seed + k. Default: a new seed on each run.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Generate N images in one batch.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=MAX_IMAGES as i64))]
    batch: u16,
    /// Skip the last N - 1 layers of CLIP (SDXL and SD 2.x always skip one more).
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    clip_skip: u8,
    /// Apply prompt weights as ComfyUI or as A1111 does.
    #[arg(long, default_value = "comfyui", value_parser = weighting_parser())]
    weighting: Weighting,
    /// Set the T5 sequence length (Flux); default: 512 (schnell: 256). Shorter is faster, but changes the image.
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u16).range(1..=512))]
    t5_length: Option<u16>,
}

#[derive(clap::Args)]
#[command(next_help_heading = "Image")]
struct ImageArgs {
    /// Set the width in pixels; default: the width of --init, or the model's.
    #[arg(long, value_name = "PIXELS")]
    width: Option<usize>,
    /// Set the height in pixels; default: the height of --init, or the model's.
    #[arg(long, value_name = "PIXELS")]
    height: Option<usize>,
    /// Start from this image (PNG, JPEG or WebP): image-to-image.
    #[arg(long, value_name = "FILE")]
    init: Option<PathBuf>,
    /// Inpaint only where this mask image is white.
    #[arg(long, value_name = "FILE", requires = "init")]
    mask: Option<PathBuf>,
    /// Set the denoising strength: how much of --init is replaced, up to 1 (all); default: 0.8 (inpainting models: 1).
    #[arg(long, value_name = "S", requires = "init")]
    strength: Option<f64>,
}

/// A parser of names, which are listed in the help.
fn named<T: Copy + Send + Sync + 'static, const N: usize>(all: [T; N], name: fn(T) -> &'static str) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(all.map(name))
        .try_map(move |given| all.into_iter().find(|one| name(*one) == given).ok_or("expected one of the possible values"))
}

fn sampler_parser() -> impl TypedValueParser<Value = Sampler> {
    named(Sampler::ALL, Sampler::name)
}

fn schedule_parser() -> impl TypedValueParser<Value = Schedule> {
    named(Schedule::ALL, Schedule::name)
}

fn weighting_parser() -> impl TypedValueParser<Value = Weighting> {
    named([Weighting::ComfyUi, Weighting::A1111], Weighting::name)
}

fn parse_dtype(name: &str) -> Result<DType, String> {
    let types = [DType::F32, DType::F16, DType::Bf16];
    types.into_iter().find(|dtype| dtype.name() == name).ok_or_else(|| "expected f32, f16 or bf16".to_owned())
}

/// Parses `FILE` or `FILE:STRENGTH`.
fn parse_lora(text: &str) -> Result<(PathBuf, f32), String> {
    let split = text.rsplit_once(':').and_then(|(file, strength)| Some((file, strength.parse::<f32>().ok()?)));
    match split.unwrap_or((text, 1.0)) {
        ("", _) => Err("expected FILE or FILE:STRENGTH".to_owned()),
        (_, strength) if !strength.is_finite() => Err("the strength must be finite".to_owned()),
        (file, strength) => Ok((PathBuf::from(file), strength)),
    }
}

impl FileArgs {
    pub fn open(&self, path: &Path) -> Result<Checkpoint, Failure> {
        Ok(Checkpoint::open_with(path, &OpenOptions { base: self.base.clone(), vae: self.vae.clone() })?)
    }
}

impl LoadArgs {
    /// Loads a model for requests like this one, while a bar is shown.
    pub fn load(&self, context: &mut Context<'_>, checkpoint: &Checkpoint, request: &Request) -> Result<Model, Failure> {
        let device = device(context, &self.device)?;
        let on_demand = self.on_demand(context, checkpoint, &device, request)?;
        let bar = ProgressBar::new_spinner().with_message(format!("loading to {device}"));
        bar.enable_steady_tick(std::time::Duration::from_millis(100));
        let model = checkpoint.load(&device, LoadOptions { dtype: self.dtype, on_demand });
        bar.finish_and_clear();
        Ok(model?)
    }

    /// Decides whether networks are loaded on demand. A model that does not fit even so is an error.
    fn on_demand(&self, context: &mut Context<'_>, checkpoint: &Checkpoint, device: &Device, request: &Request) -> Result<bool, Failure> {
        if self.low_memory != LowMemory::Auto {
            return Ok(self.low_memory == LowMemory::On);
        }
        let Some(free) = device.free_memory() else { return Ok(false) };
        let needed = |on_demand| -> Result<u64, Failure> {
            let options = LoadOptions { dtype: self.dtype, on_demand };
            Ok(checkpoint.memory(device, options, request).map_err(advise)?.total())
        };
        let all = needed(false)?;
        if all <= free {
            return Ok(false);
        }
        let least = needed(true)?;
        let bytes = |number: u64| human_bytes(usize::try_from(number).unwrap_or(usize::MAX));
        if least > free {
            let (width, height) = request.size(checkpoint.info()).map_err(advise)?;
            return Err(failed(format!(
                "the model does not fit into memory: an image of {width}x{height} needs {}, {device} has {} free; use a smaller image, a \
                 smaller --dtype, quantized weights, or another device",
                bytes(least),
                bytes(free),
            )));
        }
        let (all, free) = (bytes(all), bytes(free));
        writeln!(context.err, "warpwave: loading text encoders and autoencoder on demand: together {all} are needed, {free} are free")?;
        Ok(true)
    }

    /// Returns what shows previews.
    pub fn preview(&self, model: &Model) -> Result<Preview, Failure> {
        Ok(match &self.taesd {
            Some(path) => Preview::tiny(TinyAutoencoder::open(path, model.device())?),
            None => Preview::fit(model)?,
        })
    }

    pub fn with_threads<R>(&self, run: impl FnOnce() -> R) -> R {
        warpwave_tensor::cpu::with_threads(self.threads.map_or(0, usize::from), run)
    }
}

/// Invalid arguments are usage errors.
fn advise(error: Error) -> Failure {
    match error {
        Error::Argument { .. } => usage(error.to_string()),
        error => failed(error.to_string()),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| failed(format!("{}: {error}", path.display())))
}

fn write(path: &Path, bytes: &[u8]) -> Outcome {
    std::fs::write(path, bytes).map_err(|error| failed(format!("{}: {error}", path.display())))
}

/// The name of a model's file or directory.
pub(crate) fn model_name(path: &Path) -> String {
    let name = if path.is_dir() { path.file_name() } else { path.file_stem() };
    name.map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}

pub(crate) fn run(context: &mut Context<'_>, args: &Args) -> Outcome {
    match (&args.command, &args.run.prompt, &args.run.model) {
        (Some(Command::Info(args)), ..) => info::run(context, args),
        (None, Some(prompt), Some(model)) => args.run.load.with_threads(|| paint(context, &args.run, prompt, model)),
        _ => Err(usage("expected a prompt and --model")),
    }
}

impl RunArgs {
    fn request(&self, checkpoint: &Checkpoint, prompt: &str) -> Result<Request, Failure> {
        let (settings, image) = (&self.settings, &self.image);
        let mut request = Request::new(checkpoint.info(), prompt);
        request.negative.clone_from(&self.negative);
        request.steps = settings.steps.map_or(request.steps, usize::from);
        request.sampler = settings.sampler.unwrap_or(request.sampler);
        request.schedule = settings.schedule;
        request.guidance = settings.guidance.unwrap_or(request.guidance);
        request.true_guidance = settings.true_guidance;
        let fresh = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64 & 0xffff_ffff);
        request.seed = settings.seed.unwrap_or_else(fresh);
        request.images = usize::from(settings.batch);
        request.text.clip_skip = usize::from(settings.clip_skip) - 1;
        request.text.weighting = settings.weighting;
        request.text.t5_length = settings.t5_length.map(usize::from);
        (request.width, request.height) = (image.width, image.height);
        let limits = ImageLimits::default();
        let bad = |path: &Path| {
            let shown = path.display().to_string();
            move |error: Error| failed(format!("{shown}: {error}"))
        };
        if let Some(path) = &image.init {
            request.init = Some(Image::decode(&read(path)?, &limits).map_err(bad(path))?);
        }
        if let Some(path) = &image.mask {
            request.mask = Some(Mask::decode(&read(path)?, &limits).map_err(bad(path))?);
        }
        request.strength = image.strength.unwrap_or(request.strength);
        request.draws = self.draws.as_ref().map(Draws::open).transpose()?;
        request.trajectory = self.latents_out.is_some();
        Ok(request)
    }

    /// The files of the images.
    fn outputs(&self) -> Result<Vec<PathBuf>, Failure> {
        let path = &self.output;
        if path.extension().is_none_or(|extension| !extension.eq_ignore_ascii_case("png")) {
            return Err(usage(format!("{}: the output file must end in .png", path.display())));
        }
        if self.settings.batch == 1 {
            return Ok(vec![path.clone()]);
        }
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok((1..=self.settings.batch).map(|number| path.with_file_name(format!("{stem}-{number}.png"))).collect())
    }
}

fn paint(context: &mut Context<'_>, args: &RunArgs, prompt: &str, path: &Path) -> Outcome {
    let outputs = args.outputs()?;
    let checkpoint = args.load.files.open(path)?;
    let request = args.request(&checkpoint, prompt)?;
    // Checks the request before the weights are loaded, which can take long.
    let total = request.plan(checkpoint.info()).map_err(advise)?.steps.len();
    let (width, height) = request.size(checkpoint.info()).map_err(advise)?;
    let started = Instant::now();
    let mut model = args.load.load(context, &checkpoint, &request)?;
    model.set_loras(&args.lora)?;
    let load_time = started.elapsed();
    let preview = args.preview.as_ref().map(|path| Ok::<_, Failure>((path, args.load.preview(&model)?))).transpose()?;
    let bar = ProgressBar::new(total as u64);
    let style = ProgressStyle::with_template("{bar:30} step {pos}/{len} {per_sec} {eta}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(std::time::Duration::from_millis(200));
    let interrupt = Interrupt::listen();
    let (mut failure, mut denoised, started) = (None, Instant::now(), Instant::now());
    let made = generate(&model, &request, &mut |progress| {
        bar.set_position(progress.step as u64);
        denoised = Instant::now();
        if let Some((path, preview)) = &preview {
            let written = progress.preview(preview).and_then(|image| image.png(None)).map_err(Failure::from);
            if let Err(error) = written.and_then(|file| write(path, &file)) {
                failure = Some(error);
                return ControlFlow::Break(());
            }
        }
        if interrupt.pressed() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    bar.finish_and_clear();
    drop(interrupt);
    if let Some(failure) = failure {
        return Err(failure);
    }
    let made = made.map_err(|error| if matches!(error, Error::Cancelled) { failed("interrupted") } else { advise(error) })?;
    let seconds = (denoised - started).as_secs_f64();
    for (number, (image, output)) in made.images.iter().zip(&outputs).enumerate() {
        let parameters = request.parameters(checkpoint.info(), &model_name(path), number)?;
        write(output, &image.png(Some(&parameters))?)?;
    }
    if let Some(path) = &args.latents_out {
        let Some(last) = made.trajectory.last() else { return Err(failed("no steps were run")) };
        safetensors::save([("latents", &Tensor::stack(&made.trajectory, 0)?), ("final", last)], path)?;
    }
    let rate = if seconds > 0.0 { total as f64 / seconds } else { 0.0 };
    let seed = |number: usize| request.seed.wrapping_add(number as u64);
    if args.json {
        let files = outputs.iter().enumerate().map(|(number, path)| json!({ "path": path, "seed": seed(number) })).collect::<Vec<_>>();
        return context.print_json(&json!({
            "device": model.device().name(), "dtype": model.dtype().name(), "images": files, "width": width, "height": height,
            "sampler": request.sampler.name(), "schedule": request.schedule.map(Schedule::name), "steps": total,
            "guidance": request.guidance, "load_seconds": load_time.as_secs_f64(), "denoise_seconds": seconds,
            "steps_per_second": rate, "total_seconds": started.elapsed().as_secs_f64(),
        }));
    }
    for (number, output) in outputs.iter().enumerate() {
        writeln!(context.out, "{}: {width}x{height}, seed {}", output.display(), seed(number))?;
    }
    writeln!(context.err, "warpwave: {total} steps in {seconds:.1} s ({rate:.2} steps/s) on {}", model.device())?;
    Ok(())
}
