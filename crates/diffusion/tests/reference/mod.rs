//! Tiny models with random weights, and what diffusers computes with them.
#![allow(dead_code)]

use std::path::PathBuf;

#[path = "../support/device.rs"]
mod device;

pub use device::device;
use warpwave_diffusion::{Checkpoint, Conditioning, Extra, LoadOptions, Model, Tokens};
use warpwave_kernels::DType;
use warpwave_tensor::{Device, Tensor};
use warpwave_test_support::workspace_root;
use warpwave_weights::{Kind, Safetensors};

/// The folder of a model.
pub fn folder(name: &str) -> PathBuf {
    workspace_root().join("crates/diffusion/tests/fixtures/models").join(name)
}

/// A model's expected tensors.
pub struct Expected(Safetensors);

impl Expected {
    pub fn of(name: &str) -> Expected {
        Expected(Safetensors::open(folder(name).join("expected.safetensors")).unwrap())
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.tensor(name).is_some()
    }

    /// A tensor on the tested device, in its type.
    pub fn get(&self, name: &str) -> Tensor {
        let tensor = self.0.tensor(name).unwrap_or_else(|| panic!("no expected tensor {name}"));
        let Kind::Plain(dtype) = tensor.kind else { panic!("{name} is quantized") };
        Tensor::from_bytes(tensor.bytes, dtype, tensor.shape, &device()).unwrap()
    }

    /// A row of padded token ids.
    pub fn ids(&self, name: &str) -> Vec<Vec<u32>> {
        let ids = self.get(name);
        let row = ids.size(-1);
        let ids: Vec<u32> = ids.to_vec::<i32>().unwrap().into_iter().map(|id| u32::try_from(id).unwrap()).collect();
        ids.chunks_exact(row).map(<[u32]>::to_vec).collect()
    }

    /// The image `vae/image` as the autoencoder takes it.
    pub fn image(&self) -> Tensor {
        let image = self.get("vae/image");
        let image = image.cast(DType::F32).unwrap().unsqueeze(0).unwrap().permute(&[0, 3, 1, 2]).unwrap();
        ((image / 127.5).unwrap() - 1.0).unwrap().contiguous().unwrap()
    }
}

/// A model in `f32` on the tested device.
pub fn load(name: &str) -> Model {
    Checkpoint::open(folder(name)).unwrap().load(&device(), LoadOptions { dtype: Some(DType::F32), ..LoadOptions::default() }).unwrap()
}

/// `case.json`.
pub fn case(name: &str) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(folder(name).join("case.json")).unwrap()).unwrap()
}

/// The tokens of a prompt.
pub fn tokens(model: &Model, expected: &Expected, prompt: usize) -> Tokens {
    let rows = ["tokens", "tokens_2"].map(|list| format!("{list}/{prompt}"));
    Tokens { encoders: rows[..model.info().text_encoders.len()].iter().map(|rows| expected.ids(rows)).collect() }
}

/// The expected conditioning of the prompt, on a device.
pub fn conditioning(expected: &Expected, device: &Device) -> Conditioning {
    let to = |name: &str| expected.get(name).to_device(device).unwrap();
    Conditioning { context: to("text/prompt"), pooled: expected.has("text/pooled").then(|| to("text/pooled")) }
}

/// The expected further inputs of the denoiser.
pub fn extra(name: &str, expected: &Expected) -> Extra {
    let time_ids = expected.has("text/time_ids").then(|| expected.get("text/time_ids").to_vec::<f32>().unwrap().try_into().unwrap());
    Extra { time_ids, guidance: (name == "flux-dev").then_some(3.5) }
}

/// The largest difference; fails for different shapes and for NaN.
pub fn gap(found: &Tensor, expected: &Tensor) -> f32 {
    assert_eq!(found.shape(), expected.shape());
    let (found, expected) = (found.to_vec::<f32>().unwrap(), expected.to_vec::<f32>().unwrap());
    assert!(found.iter().chain(&expected).all(|x| x.is_finite()), "not finite");
    found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// Fails if the difference exceeds a bound, or if there is nothing to see.
#[track_caller]
pub fn assert_close(found: &Tensor, expected: &Tensor, bound: f32, what: &str) {
    let gap = gap(found, expected);
    let scale = expected.to_vec::<f32>().unwrap().into_iter().fold(0.0, |max: f32, x| max.max(x.abs()));
    assert!(scale > 10.0 * bound, "{what}: the expected values are too small to compare: {scale}");
    assert!(gap <= bound, "{what}: differs by {gap}, at most {bound} allowed");
    eprintln!("{what}: gap {gap:.2e}, largest value {scale:.2}");
}

/// Steps of Euler's method with guidance over the scaled-linear schedule, from the reference's noise.
///
/// `leading` timesteps are 1 + i · ⌊1000 / steps⌋; the others divide 0 to 999 evenly.
pub fn euler(name: &str, model: &Model, steps: usize, guidance: f64, leading: bool) -> Tensor {
    let expected = Expected::of(name);
    let (mut sigmas, mut product) = (Vec::new(), 1.0f64);
    for i in 0..1000 {
        let root = 0.00085f64.sqrt() + (0.012f64.sqrt() - 0.00085f64.sqrt()) * i as f64 / 999.0;
        product *= 1.0 - root * root;
        sigmas.push(((1.0 - product) / product).sqrt());
    }
    let timestep = |i: usize| match leading {
        true => (1 + (steps - 1 - i) * (1000 / steps)) as f64,
        false => 999.0 * (1.0 - i as f64 / (steps - 1) as f64),
    };
    let sigma = |t: f64| {
        let low = (t.floor() as usize).min(998);
        sigmas[low] + (sigmas[low + 1] - sigmas[low]) * (t - low as f64)
    };
    let encode = |prompt| model.encode(&tokens(model, &expected, prompt), 0).unwrap();
    let (positive, negative, extra) = (encode(0), encode(1), extra(name, &expected));
    let first = sigma(timestep(0));
    let start = if leading { (first * first + 1.0).sqrt() } else { first };
    let mut x = (expected.get("noise/init") * start).unwrap();
    for i in 0..steps {
        let (t, from) = (timestep(i), sigma(timestep(i)));
        let to = if i + 1 == steps { 0.0 } else { sigma(timestep(i + 1)) };
        let input = (&x / (from * from + 1.0).sqrt()).unwrap();
        let out = |conditioning: &Conditioning| model.denoise(&input, t as f32, conditioning, &extra).unwrap();
        let (with, without) = (out(&positive), out(&negative));
        let noise = (&without + ((with - &without).unwrap() * guidance).unwrap()).unwrap();
        x = (x + (noise * (to - from)).unwrap()).unwrap();
    }
    x
}

/// Fails unless the end of a run agrees within 5e-5 of its largest value.
#[track_caller]
pub fn assert_same_run(found: &Tensor, expected: &Tensor, what: &str) {
    let largest = expected.to_vec::<f32>().unwrap().into_iter().fold(0.0, |max: f32, x| max.max(x.abs()));
    assert_close(found, expected, 5e-5 * largest, what);
}
