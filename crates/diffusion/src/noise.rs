//! Random numbers: PyTorch's normal numbers of a seed on a CPU, or numbers from a file.

use std::collections::HashMap;
use std::f64::consts::PI;
use std::path::Path;

use warpwave_tensor::{Device, Tensor, safetensors};

use crate::error::{Result, bad_argument};

const STATE: usize = 624;
const MIDDLE: usize = 397;

/// PyTorch's generator of normal numbers on a CPU: equal seeds give the numbers that `torch.randn` draws, to the last bits.
///
/// Numbers are drawn in calls: two calls of 16 do not give the numbers of one call of 32.
pub struct Generator {
    state: [u32; STATE],
    next: usize,
    /// The second number of the last pair that a short call drew.
    spare: Option<f64>,
}

impl Generator {
    /// Seeds the generator. As in PyTorch, only the lower 32 bits count.
    pub fn new(seed: u64) -> Generator {
        let mut state = [seed as u32; STATE];
        for i in 1..STATE {
            let last = state[i - 1];
            state[i] = (last ^ (last >> 30)).wrapping_mul(1_812_433_253).wrapping_add(i as u32);
        }
        Generator { state, next: STATE, spare: None }
    }

    /// Draws `count` numbers in one call.
    pub fn normal(&mut self, count: usize) -> Vec<f32> {
        if count < 16 {
            return (0..count).map(|_| self.single() as f32).collect();
        }
        let mut numbers: Vec<f32> = (0..count).map(|_| self.uniform()).collect();
        let (blocks, tail) = numbers.as_chunks_mut::<16>();
        blocks.iter_mut().for_each(transform);
        if !tail.is_empty()
            && let Some(last) = numbers.last_chunk_mut::<16>()
        {
            // The last 16 are drawn again, some of them for the second time.
            last.fill_with(|| self.uniform());
            transform(last);
        }
        numbers
    }

    /// One number of a short call, in double precision.
    fn single(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        let [angle, radius] = [self.uniform_double(), self.uniform_double()];
        let (radius, angle) = ((-2.0 * (-radius).ln_1p()).sqrt(), 2.0 * PI * angle);
        self.spare = Some(radius * angle.sin());
        radius * angle.cos()
    }

    /// A number of 0 to 1, 1 excluded, with 24 bits.
    fn uniform(&mut self) -> f32 {
        (self.word() & 0x00ff_ffff) as f32 / 16_777_216.0
    }

    fn uniform_double(&mut self) -> f64 {
        let (high, low) = (u64::from(self.word()), u64::from(self.word()));
        (((high << 32) | low) & ((1 << 53) - 1)) as f64 / (1u64 << 53) as f64
    }

    /// The next word of the Mersenne Twister MT19937.
    fn word(&mut self) -> u32 {
        if self.next == STATE {
            for i in 0..STATE {
                let joined = (self.state[i] & 0x8000_0000) | (self.state[(i + 1) % STATE] & 0x7fff_ffff);
                let twist = if joined & 1 == 1 { 0x9908_b0df } else { 0 };
                self.state[i] = self.state[(i + MIDDLE) % STATE] ^ (joined >> 1) ^ twist;
            }
            self.next = 0;
        }
        let mut word = self.state[self.next];
        self.next += 1;
        word ^= word >> 11;
        word ^= (word << 7) & 0x9d2c_5680;
        word ^= (word << 15) & 0xefc6_0000;
        word ^ (word >> 18)
    }
}

/// Box-Muller: the first 8 numbers give radii, the last 8 angles.
fn transform(block: &mut [f32; 16]) {
    for i in 0..8 {
        let radius = (-2.0 * (1.0 - f64::from(block[i])).ln()).sqrt();
        let angle = 2.0 * PI * f64::from(block[i + 8]);
        block[i] = (radius * angle.cos()) as f32;
        block[i + 8] = (radius * angle.sin()) as f32;
    }
}

/// Random numbers that are given, for runs that must repeat those of another program.
///
/// Names, each with the shape of one image's latents, or of all images of a batch: `noise/init`, and `noise/steps` with a further first
/// dimension; of a run from an image with strength 0.8, `img2img/0.8/posterior_noise` and `img2img/0.8/noise`; of inpainting,
/// `inpaint/0.8/draws`, whose first dimension are all draws in order.
#[derive(Debug, Clone, Default)]
pub struct Draws {
    name: String,
    tensors: HashMap<String, Tensor>,
}

impl Draws {
    /// Opens a safetensors file.
    pub fn open(path: impl AsRef<Path>) -> Result<Draws> {
        let tensors = safetensors::load(path.as_ref(), &Device::Cpu)?;
        Ok(Draws::new(path.as_ref().display().to_string(), tensors))
    }

    /// Creates draws from tensors on the CPU; `name` is used in errors.
    pub fn new(name: impl Into<String>, tensors: HashMap<String, Tensor>) -> Draws {
        Draws { name: name.into(), tensors }
    }

    /// The numbers of image `image` in a tensor, or in one of its rows.
    fn get(&self, name: &str, row: Option<usize>, image: usize, shape: &[usize]) -> Result<Vec<f32>> {
        let wrong = |reason: String| bad_argument("draws", format!("{}: tensor `{name}`: {reason}", self.name));
        let tensor = self.tensors.get(name).ok_or_else(|| wrong("missing".to_owned()))?;
        let tensor = match row {
            None => tensor.clone(),
            Some(row) if row < tensor.size(0) => tensor.narrow(0, row, 1)?.squeeze(0)?,
            Some(row) => return Err(wrong(format!("expected at least {} draws, got {}", row + 1, tensor.size(0)))),
        };
        let fits = tensor.rank() == 4 && tensor.shape()[1..] == shape[1..] && image < tensor.shape()[0];
        if !fits {
            return Err(wrong(format!("expected {shape:?} for image {image}, got {:?}", tensor.shape())));
        }
        Ok(tensor.narrow(0, image, 1)?.contiguous()?.floats()?)
    }
}

/// Where the random numbers of a batch come from. Image k draws what a single image with seed + k draws.
pub(crate) enum Source<'a> {
    Seeds(Vec<Generator>),
    File { draws: &'a Draws, images: usize },
}

/// What random numbers are for.
pub(crate) enum Draw {
    /// The noise of a run without an image.
    Initial,
    /// An ancestral step.
    Step(usize),
    /// The latents of an image, sampled from the autoencoder's distribution.
    Posterior(f64),
    /// The noise that is added to an image.
    Added(f64),
    /// A draw of inpainting, in order.
    Inpaint(f64, usize),
}

impl Source<'_> {
    /// Draws for all images, one after the other: `shape` is that of one image's latents, (1, channels, height, width).
    pub fn draw(&mut self, what: &Draw, shape: &[usize]) -> Result<Vec<f32>> {
        let count = shape.iter().product();
        match self {
            Source::Seeds(generators) => Ok(generators.iter_mut().flat_map(|generator| generator.normal(count)).collect()),
            Source::File { draws, images } => {
                let mut numbers = Vec::new();
                for image in 0..*images {
                    let (name, row) = match what {
                        Draw::Initial => ("noise/init".to_owned(), None),
                        Draw::Step(step) => ("noise/steps".to_owned(), Some(*step)),
                        Draw::Posterior(strength) => (format!("img2img/{strength:?}/posterior_noise"), None),
                        Draw::Added(strength) => (format!("img2img/{strength:?}/noise"), None),
                        Draw::Inpaint(strength, number) => (format!("inpaint/{strength:?}/draws"), Some(*number)),
                    };
                    numbers.extend(draws.get(&name, row, image, shape)?);
                }
                Ok(numbers)
            }
        }
    }
}
