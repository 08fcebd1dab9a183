//! Samplers: one step from a noise level to the next, given the denoiser's output.
//!
//! All compute on the variance-preserving scale (or a flow's), where a latent is signal · image + noise · random numbers. The Euler
//! samplers, which are usually written for latents divided by the signal, give the same images there.

use crate::error::{Result, bad_argument};
use crate::info::Prediction;
use crate::schedule::{Level, Step};

/// A sampler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sampler {
    /// Denoising diffusion implicit models, deterministic (η = 0).
    Ddim,
    /// Euler's method.
    Euler,
    /// Denoising diffusion probabilistic models: adds noise on every step.
    Ddpm,
    /// Euler's method with noise added on every step.
    EulerAncestral,
    /// DPM-Solver++ of order 2 (2M, midpoint).
    DpmSolverMultistep,
    /// UniPC of order 2 (bh2).
    UniPc,
}

impl Sampler {
    /// All samplers.
    pub const ALL: [Sampler; 6] =
        [Sampler::Ddim, Sampler::Euler, Sampler::Ddpm, Sampler::EulerAncestral, Sampler::DpmSolverMultistep, Sampler::UniPc];

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Sampler::Ddim => "ddim",
            Sampler::Euler => "euler",
            Sampler::Ddpm => "ddpm",
            Sampler::EulerAncestral => "euler_ancestral",
            Sampler::DpmSolverMultistep => "dpm_solver_multistep",
            Sampler::UniPc => "uni_pc",
        }
    }

    /// Returns the sampler with a name.
    pub fn from_name(name: &str) -> Option<Sampler> {
        Sampler::ALL.into_iter().find(|sampler| sampler.name() == name)
    }

    /// The name that A1111 writes into images.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Sampler::Ddim => "DDIM",
            Sampler::Euler => "Euler",
            Sampler::Ddpm => "DDPM",
            Sampler::EulerAncestral => "Euler a",
            Sampler::DpmSolverMultistep => "DPM++ 2M",
            Sampler::UniPc => "UniPC",
        }
    }

    /// Whether steps draw random numbers.
    pub fn is_ancestral(self) -> bool {
        matches!(self, Sampler::Ddpm | Sampler::EulerAncestral)
    }

    /// Whether steps use the outputs of earlier ones.
    pub fn is_multistep(self) -> bool {
        matches!(self, Sampler::DpmSolverMultistep | Sampler::UniPc)
    }
}

/// A run of a sampler: what it remembers of earlier steps.
#[derive(Debug)]
pub struct Solver {
    sampler: Sampler,
    prediction: Prediction,
    last: Option<Last>,
}

/// The step before.
#[derive(Debug)]
struct Last {
    step: Step,
    /// The latents it started from; UniPC only.
    start: Vec<f32>,
    /// The image it predicted.
    image: Vec<f32>,
    /// The image and level of the step before that, if its order was 2; UniPC only.
    earlier: Option<(Vec<f32>, Level)>,
}

impl Solver {
    /// Starts a run.
    pub fn new(sampler: Sampler, prediction: Prediction) -> Solver {
        Solver { sampler, prediction, last: None }
    }

    /// Takes a step from `x`, given the denoiser's output there; `remaining` counts the steps that follow. Returns the predicted image.
    ///
    /// `noise` are the random numbers of an ancestral sampler.
    pub fn step(&mut self, step: &Step, remaining: usize, x: &mut [f32], output: &[f32], noise: Option<&[f32]>) -> Result<Vec<f32>> {
        if output.len() != x.len() || noise.is_some_and(|noise| noise.len() != x.len()) {
            return Err(bad_argument("step", format!("expected {} elements of model output and noise, got {}", x.len(), output.len())));
        }
        let (image, random) = self.predict(step.level, x, output);
        let (level, next) = (step.level, step.next);
        match self.sampler {
            Sampler::Ddim | Sampler::Euler => {
                combine(x, &[(next.signal, &image), (next.noise, &random)]);
            }
            Sampler::Ddpm | Sampler::EulerAncestral => {
                let Some(noise) = noise else { return Err(bad_argument("step", "an ancestral sampler needs random numbers")) };
                let (sigma, to) = (level.sigma(), next.sigma());
                let up = (to * to * (sigma * sigma - to * to) / (sigma * sigma)).max(0.0).sqrt();
                let down = (to * to - up * up).max(0.0).sqrt();
                combine(x, &[(next.signal, &image), (next.signal * down, &random), (next.signal * up, noise)]);
            }
            Sampler::DpmSolverMultistep => {
                let h = next.lambda() - level.lambda();
                let ratio = match &self.last {
                    Some(last) if remaining > 0 => h / (level.lambda() - last.step.level.lambda()),
                    _ => 0.0,
                };
                match &self.last {
                    _ if next.noise == 0.0 => x.copy_from_slice(&image),
                    Some(last) if ratio != 0.0 => {
                        let factor = -next.signal * (-h).exp_m1();
                        let own = next.noise / level.noise;
                        add_scaled(x, own, &[(factor * (1.0 + ratio / 2.0), &image), (-factor * ratio / 2.0, &last.image)]);
                    }
                    _ => add_scaled(x, next.noise / level.noise, &[(-next.signal * (-h).exp_m1(), &image)]),
                }
                self.last = Some(Last { step: *step, start: Vec::new(), image: image.clone(), earlier: None });
            }
            Sampler::UniPc => self.uni_pc(step, remaining, x, &image),
        }
        Ok(image)
    }

    /// The image and the random numbers that the denoiser sees in `x`.
    fn predict(&self, level: Level, x: &[f32], output: &[f32]) -> (Vec<f32>, Vec<f32>) {
        let Level { signal, noise } = level;
        let both = x.iter().zip(output).map(|(x, output)| {
            let (x, output) = (f64::from(*x), f64::from(*output));
            match self.prediction {
                Prediction::Epsilon => ((x - noise * output) / signal, output),
                Prediction::V => (signal * x - noise * output, signal * output + noise * x),
                Prediction::Flow => (x - noise * output, x + signal * output),
            }
        });
        both.map(|(image, random)| (image as f32, random as f32)).unzip()
    }

    fn uni_pc(&mut self, step: &Step, remaining: usize, x: &mut [f32], image: &[f32]) {
        if let Some(last) = &self.last {
            correct(x, last, image);
        }
        let start = x.to_vec();
        let (level, next) = (step.level, step.next);
        let h = next.lambda() - level.lambda();
        let earlier = self.last.take().filter(|_| remaining > 0).map(|last| (last.image, last.step.level));
        if next.noise == 0.0 {
            x.copy_from_slice(image);
        } else {
            let factor = -next.signal * (-h).exp_m1();
            let own = next.noise / level.noise;
            match &earlier {
                Some((before, at)) => {
                    let half = factor / (2.0 * (at.lambda() - level.lambda()) / h);
                    add_scaled(x, own, &[(factor - half, image), (half, before)]);
                }
                None => add_scaled(x, own, &[(factor, image)]),
            }
        }
        self.last = Some(Last { step: *step, start, image: image.to_vec(), earlier });
    }
}

/// UniPC's corrector: takes the last step again from its start, now with the image predicted at its end.
fn correct(x: &mut [f32], last: &Last, image: &[f32]) {
    let (level, next) = (last.step.level, last.step.next);
    let h = next.lambda() - level.lambda();
    let base = (-h).exp_m1();
    let factor = -next.signal * base;
    x.copy_from_slice(&last.start);
    let own = next.noise / level.noise;
    match &last.earlier {
        None => add_scaled(x, own, &[(factor * 0.5, &last.image), (factor * 0.5, image)]),
        Some((before, at)) => {
            let r = (at.lambda() - level.lambda()) / h;
            let phi = base / -h - 1.0;
            let (b1, b2) = (phi / base, 2.0 * (phi / -h - 0.5) / base);
            let rho1 = (b1 - b2) / (1.0 - r);
            let rho2 = b1 - rho1;
            let difference = rho1 / r;
            add_scaled(x, own, &[(factor * (1.0 - difference - rho2), &last.image), (factor * difference, before), (factor * rho2, image)]);
        }
    }
}

/// Writes a linear combination.
fn combine(x: &mut [f32], terms: &[(f64, &[f32])]) {
    add_scaled(x, 0.0, terms);
}

/// Multiplies `x` and adds a linear combination.
fn add_scaled(x: &mut [f32], factor: f64, terms: &[(f64, &[f32])]) {
    for (i, x) in x.iter_mut().enumerate() {
        let own = if factor == 0.0 { 0.0 } else { factor * f64::from(*x) };
        *x = (own + terms.iter().map(|(factor, values)| factor * f64::from(values[i])).sum::<f64>()) as f32;
    }
}
