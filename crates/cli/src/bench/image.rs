//! `warpwave bench image`: steps and decoding of image models, beside diffusers.

use std::time::Instant;

use serde_json::{Value, json};
use warpwave_diffusion::{Checkpoint, Conditioning, Extra, Image, LoadOptions, Model, RandomModel, Tokens};
use warpwave_kernels::DType;
use warpwave_tensor::{Device, Random, Tensor};

use super::super::llm::device;
use super::super::{Context, Failure, Outcome, failed, usage};
use super::kernels::{self, KernelTotal};
use super::median;
use super::python::Python;

const SCRIPT: &str = include_str!("diffusers.py");

/// Tokens of CLIP's input.
const CLIP_TOKENS: usize = 77;
/// Kernels that are listed.
const KERNELS: usize = 16;
/// Tokens of T5's input.
const T5_TOKENS: usize = 512;

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  warpwave bench image --random sd15 --device cuda:0 --peer diffusers\n  \
    warpwave bench image --random sdxl,flux --device cuda:0 --json\n\n\
    The models have the published architectures and random weights. Times are medians in milliseconds. A step is one call of the denoiser; \
    for sd15 and sdxl with classifier-free guidance (batch 2). The image time of sd15 and sdxl covers text encoding, all steps, decoding and PNG encoding.")]
pub(super) struct Options {
    /// Benchmark these models with random weights (comma-separated): sd15, sdxl, flux.
    #[arg(long, value_name = "MODEL", value_delimiter = ',', required = true)]
    random: Vec<RandomModel>,
    /// Run on this device: cpu, cuda:0, rocm:1, vgpu:gfx90a (virtual), or auto.
    #[arg(long, env = "WARPWAVE_DEVICE", default_value = "auto")]
    device: String,
    /// Set the type of weights and activations: f32, f16 or bf16; default: bf16; on the CPU, f32.
    #[arg(long, value_name = "TYPE")]
    dtype: Option<DType>,
    /// Set the width and height in pixels; default: the model's.
    #[arg(long, value_name = "PIXELS")]
    size: Option<usize>,
    /// Set the number of timed steps, and the number of steps per image.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    steps: u16,
    /// Compare with this baseline in the same run.
    #[arg(long, value_parser = ["diffusers"])]
    peer: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Times in milliseconds.
#[derive(Default)]
struct Times {
    step: f64,
    decode: f64,
    image: Option<f64>,
    /// Kernels of a step and of decoding on a GPU, each timed alone.
    kernels: [Vec<KernelTotal>; 2],
}

pub(super) fn run(context: &mut Context<'_>, options: &Options) -> Outcome {
    let device = device(context, &options.device)?;
    let dtype = options.dtype.unwrap_or(if device.is_cpu() { DType::F32 } else { DType::Bf16 });
    let mut rows = Vec::new();
    for random in &options.random {
        let checkpoint = Checkpoint::random(*random)?;
        let info = checkpoint.info();
        let size = options.size.unwrap_or(info.default_size);
        if size == 0 || !size.is_multiple_of(info.size_multiple) {
            return Err(usage(format!("--size {size}: expected a multiple of {}", info.size_multiple)));
        }
        let start = Instant::now();
        let model = checkpoint.load(&device, LoadOptions { dtype: Some(dtype), ..LoadOptions::default() })?;
        device.synchronize()?;
        writeln!(context.err, "{random}: loaded in {:.1} s", start.elapsed().as_secs_f64())?;
        let ours = measure(&model, *random, size, usize::from(options.steps))?;
        drop(model);
        device.trim()?;
        let peer = match &options.peer {
            Some(_) => Some(diffusers(*random, size, dtype, &device, usize::from(options.steps))?),
            None => None,
        };
        if !options.json {
            print(context, *random, size, &ours, peer.as_ref())?;
        }
        rows.push(json!({
            "model": random.name(),
            "size": size,
            "step_ms": ours.step,
            "decode_ms": ours.decode,
            "image_ms": ours.image,
            "step_kernels": ours.kernels[0].iter().map(KernelTotal::json).collect::<Vec<_>>(),
            "decode_kernels": ours.kernels[1].iter().map(KernelTotal::json).collect::<Vec<_>>(),
            "peer": peer,
        }));
    }
    if options.json {
        let facts = json!({ "device": device.name(), "dtype": dtype.name(), "steps": options.steps, "peer": options.peer, "rows": rows });
        context.print_json(&facts)?;
    }
    Ok(())
}

fn print(context: &mut Context<'_>, random: RandomModel, size: usize, ours: &Times, peer: Option<&Value>) -> Outcome {
    writeln!(context.out, "{random} {size}x{size} {:>29} {:>12} {:>7}", "ours (ms)", "peer (ms)", "ratio")?;
    let of = |key: &str| peer.and_then(|peer| peer[key].as_f64());
    for (what, ours, peers) in [
        ("step", Some(ours.step), vec![("eager", of("step_ms")), ("graph", of("step_graph_ms"))]),
        ("decode", Some(ours.decode), vec![("eager", of("decode_ms")), ("graph", of("decode_graph_ms"))]),
        ("image", ours.image, vec![]),
    ] {
        let Some(ours) = ours else { continue };
        writeln!(context.out, "  {what:<34} {ours:>8.2}")?;
        for (how, peer) in peers {
            if let Some(peer) = peer {
                writeln!(context.out, "    diffusers, {how:<23} {:>8} {peer:>12.2} {:>7.2}", "", peer / ours)?;
            }
        }
    }
    for (what, totals) in ["step", "decode"].into_iter().zip(&ours.kernels) {
        if !totals.is_empty() {
            let sum: f64 = totals.iter().map(|total| total.seconds).sum();
            writeln!(context.out, "  kernels of one {what}, timed one by one: {:.2} ms", sum * 1e3)?;
            kernels::print(context.out, totals, KERNELS)?;
        }
    }
    Ok(())
}

fn measure(model: &Model, random: RandomModel, size: usize, steps: usize) -> Result<Times, Failure> {
    let (info, device) = (model.info(), model.device().clone());
    let side = size / info.latent_scale;
    let noise = Random::new(1);
    let normal = |shape: &[usize]| noise.normal(0.0, 1.0, DType::F32, shape, &device);
    let (images, tokens, width, pooled) = match random {
        RandomModel::Sd15 => (2, CLIP_TOKENS, 768, None),
        RandomModel::Sdxl => (2, CLIP_TOKENS, 2048, Some(1280)),
        RandomModel::FluxDev => (1, T5_TOKENS, 4096, Some(768)),
    };
    let conditioning =
        Conditioning { context: normal(&[images, tokens, width])?, pooled: pooled.map(|width| normal(&[images, width])).transpose()? };
    let extra = Extra {
        time_ids: (random == RandomModel::Sdxl).then_some([size as f32, size as f32, 0.0, 0.0, size as f32, size as f32]),
        guidance: (random == RandomModel::FluxDev).then_some(3.5),
    };
    let shape = [images, info.latent_channels, side, side];
    let latents = normal(&shape)?.to_vec::<f32>()?;
    let timestep = |step: usize| if info.family.is_flux() { 1.0 - step as f32 / steps as f32 } else { 999.0 - 10.0 * step as f32 };
    let mut session = model.session(shape, &conditioning, &extra)?;
    // Kernels are compiled and the graph is captured.
    for step in 0..3 {
        session.run(&latents, timestep(step))?;
    }
    let step = timed(steps, |step| session.run(&latents, timestep(step % steps)).map(drop))?;
    drop(session);
    let one = normal(&[1, info.latent_channels, side, side])?;
    let decode = || -> Result<Vec<f32>, Failure> { Ok(model.vae_decode(&one, None)?.to_vec()?) };
    for _ in 0..2 {
        decode()?;
    }
    let decoding = timed(5, |_| decode().map(drop))?;
    let mut times = Times { step, decode: decoding, image: None, kernels: Default::default() };
    if let Device::Gpu(gpu) = &device {
        let latents = Tensor::new(&latents, &shape, &device)?;
        let step = kernels::totals(&gpu.stream, 3, || Ok(model.denoise(&latents, timestep(0), &conditioning, &extra).map(drop)?))?;
        times.kernels = [step, kernels::totals(&gpu.stream, 3, || Ok(model.vae_decode(&one, None).map(drop)?))?];
    }
    if random != RandomModel::FluxDev {
        let image = || -> Result<(), Failure> {
            let rows: Vec<Vec<u32>> = (0..2).map(|row| (0..CLIP_TOKENS as u32).map(|i| 320 + 7 * i + row).collect()).collect();
            let encoded = model.encode(&Tokens { encoders: vec![rows; info.text_encoders.len()] }, 0)?;
            let mut session = model.session(shape, &encoded, &extra)?;
            for step in 0..steps {
                let output = session.run(&latents, timestep(step))?;
                if !output.iter().all(|value| value.is_finite()) {
                    return Err(failed(format!("{random}: the output is not finite")));
                }
            }
            drop(session);
            let image = Image::from_planes(size, size, &decode()?)?;
            image.png(None)?;
            Ok(())
        };
        image()?;
        times.image = Some(timed(3, |_| image())?);
    }
    Ok(times)
}

/// The median time of `count` calls in milliseconds.
fn timed<E>(count: usize, mut work: impl FnMut(usize) -> Result<(), E>) -> Result<f64, E> {
    let mut times = Vec::new();
    for number in 0..count {
        let start = Instant::now();
        work(number)?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    Ok(median(times))
}

/// The times of diffusers for networks of the same sizes.
fn diffusers(random: RandomModel, size: usize, dtype: DType, device: &Device, steps: usize) -> Result<Value, Failure> {
    let place = match device {
        Device::Gpu(_) => "cuda",
        _ => "cpu",
    };
    let arguments = [random.name().to_owned(), size.to_string(), dtype.name().to_owned(), place.to_owned(), steps.to_string()];
    let hint =
        "failed to run diffusers; see the python3 output above. To install it: `python3 -m pip install diffusers transformers torch`";
    let (_python, times) = Python::start(SCRIPT, &arguments, hint)?;
    Ok(times)
}
