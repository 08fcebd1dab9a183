//! Reference pipelines: tiny models with random weights, and what diffusers 0.35.2 computes with them.

use std::collections::HashMap;
use std::ops::ControlFlow;

use serde_json::Value;
use warpwave_diffusion::{Checkpoint, Draws, Generated, Image, LoadOptions, Model, Request, generate};
use warpwave_kernels::DType;
use warpwave_tensor::{Device, Tensor, safetensors};

use super::device::device;
use super::{fixtures, load};

/// A model with its reference values.
pub struct Reference {
    pub name: &'static str,
    pub model: Model,
    pub case: Value,
    pub expected: HashMap<String, Tensor>,
    pub samplers: HashMap<String, Tensor>,
}

impl Reference {
    pub fn open(name: &'static str) -> Reference {
        let folder = fixtures().join("models").join(name);
        let model =
            Checkpoint::open(&folder).unwrap().load(&device(), LoadOptions { dtype: Some(DType::F32), ..LoadOptions::default() }).unwrap();
        let case = serde_json::from_slice(&std::fs::read(folder.join("case.json")).unwrap()).unwrap();
        let samplers = folder.join("samplers.safetensors");
        let samplers = if samplers.exists() { safetensors::load(samplers, &Device::Cpu).unwrap() } else { HashMap::new() };
        Reference { name, model, case, expected: load(&format!("models/{name}/expected.safetensors")), samplers }
    }

    pub fn number(&self, key: &str) -> f64 {
        self.case[key].as_f64().unwrap_or_else(|| panic!("{}: {key}", self.name))
    }

    /// The prompts, steps, guidance and random numbers of the references.
    pub fn request(&self) -> Request {
        let mut request = Request::new(self.model.info(), self.case["prompt"].as_str().unwrap());
        request.negative = Some(self.case["negative"].as_str().unwrap().to_owned());
        request.steps = self.number("steps") as usize;
        request.guidance = self.number("guidance");
        request.height = self.case["size"][0].as_u64().map(|side| side as usize);
        request.width = self.case["size"][1].as_u64().map(|side| side as usize);
        request.text.t5_length = self.case["t5_length"].as_u64().map(|length| length as usize);
        request.draws = Some(self.draws());
        request
    }

    /// All random numbers of the reference files.
    pub fn draws(&self) -> Draws {
        let tensors = self.expected.iter().chain(&self.samplers).map(|(name, tensor)| (name.clone(), tensor.clone()));
        Draws::new(self.name, tensors.collect())
    }

    pub fn generate(&self, request: &Request) -> Generated {
        generate(&self.model, request, &mut |_| ControlFlow::Continue(())).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    /// Compares latents, which are 5e-5 of the largest one apart at most (of Flux 2e-4).
    pub fn check_latents(&self, found: &Generated, expected: &[f32], case: &str) {
        let bound = if self.model.info().family.is_flux() { 2e-4 } else { 5e-5 };
        let found = found.latents.floats().unwrap();
        assert_eq!(found.len(), expected.len(), "{} {case}", self.name);
        let largest = expected.iter().fold(0.0f32, |most, value| most.max(value.abs()));
        let gap = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(largest > 0.0 && gap <= bound * largest, "{} {case}: {gap} apart, at most {} expected", self.name, bound * largest);
    }

    /// The last latents of a run, unpacked.
    pub fn last(&self, from: &HashMap<String, Tensor>, key: &str) -> Vec<f32> {
        let latents = from.get(&format!("{key}/final")).unwrap_or_else(|| panic!("{}: {key}", self.name)).floats().unwrap();
        if self.model.info().family.is_flux() { self.unpack(&latents) } else { latents }
    }

    /// From positions of 2 x 2 latents in 16 channels to channels.
    fn unpack(&self, packed: &[f32]) -> Vec<f32> {
        let [height, width] = [0, 1].map(|side| self.case["size"][side].as_u64().unwrap() as usize / 8);
        let value = |channel: usize, y: usize, x: usize| {
            let position = y / 2 * (width / 2) + x / 2;
            packed[position * 64 + channel * 4 + y % 2 * 2 + x % 2]
        };
        let rows = |channel: usize| (0..height).flat_map(move |y| (0..width).map(move |x| (channel, y, x)));
        (0..16).flat_map(rows).map(|(channel, y, x)| value(channel, y, x)).collect()
    }

    /// An image of the references.
    pub fn image(&self, key: &str) -> Image {
        let tensor = &self.expected[key];
        let shape = tensor.shape();
        let (height, width) = (shape[shape.len() - 3], shape[shape.len() - 2]);
        Image::new(width, height, tensor.to_vec().unwrap()).unwrap()
    }
}

/// 99.9 % of the values are at most 1 apart, none more than 2.
pub fn check_image(found: &Image, expected: &[u8], case: &str) {
    assert_eq!(found.rgb().len(), expected.len(), "{case}");
    let gaps = found.rgb().iter().zip(expected).map(|(a, b)| a.abs_diff(*b));
    let (near, most) = gaps.fold((0, 0), |(near, most), gap| (near + usize::from(gap <= 1), most.max(gap)));
    assert!(near * 1000 >= expected.len() * 999 && most <= 2, "{case}: {near} of {} values near, {most} at most", expected.len());
}
