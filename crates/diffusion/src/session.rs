//! The denoiser's calls of a run: what stays the same is computed once, and on a GPU the calls become a captured graph.

use std::sync::Arc;

use warpwave_gpu::{GraphExec, HostBuffer};
use warpwave_kernels::DType;
use warpwave_tensor::{Device, Gpu, Tensor};

use crate::error::{Error, Result, bad_argument};
use crate::model::{Conditioning, Denoiser, Extra, Model};
use crate::unet::Added;
use crate::{flux, unet};

/// Calls of a denoiser with the same shapes and the same conditioning. See [`Model::session`].
pub struct Session<'a> {
    model: &'a Model,
    fixed: Fixed,
    shape: [usize; 4],
    state: State,
}

/// Inputs that are the same in all calls.
pub(crate) enum Fixed {
    Unet(Box<unet::Fixed>),
    Flux(Box<flux::Fixed>),
}

/// How the next call runs.
enum State {
    /// At once.
    Eager,
    /// At once, and then it is captured: kernels are compiled and selected at first use.
    First(Arc<Gpu>),
    Captured(Box<Captured>),
}

/// A captured call, with the memory it reads and writes.
struct Captured {
    gpu: Arc<Gpu>,
    input: HostBuffer<u8>,
    output: Tensor,
    graph: GraphExec,
}

impl Model {
    /// Starts calls of the denoiser for latents of this shape: see [`Model::denoise`]. On a GPU the second call is captured as a graph,
    /// which the later ones launch.
    pub fn session(&self, shape: [usize; 4], conditioning: &Conditioning, extra: &Extra) -> Result<Session<'_>> {
        let fixed = self.fixed(&shape, conditioning, extra)?;
        let state = match self.device() {
            Device::Gpu(gpu) => State::First(gpu.clone()),
            _ => State::Eager,
        };
        Ok(Session { model: self, fixed, shape, state })
    }

    /// Prepares what depends on the conditioning only.
    pub(crate) fn fixed(&self, shape: &[usize], conditioning: &Conditioning, extra: &Extra) -> Result<Fixed> {
        let pooled = conditioning.pooled.as_ref();
        match &self.denoiser {
            Denoiser::Unet(unet) => {
                let added = pooled.zip(extra.time_ids).map(|(pooled, sizes)| Added { pooled, sizes });
                let images = shape.first().copied().unwrap_or(0);
                Ok(Fixed::Unet(Box::new(unet.prepare(images, &conditioning.context, added.as_ref())?)))
            }
            Denoiser::Flux(flux) => {
                let pooled = pooled.ok_or_else(|| bad_argument("denoise", "this model needs pooled text"))?;
                Ok(Fixed::Flux(Box::new(flux.prepare(shape, &conditioning.context, pooled, extra.guidance)?)))
            }
        }
    }

    /// The input that a timestep becomes.
    pub(crate) fn time(&self, timestep: f32) -> Result<Vec<f32>> {
        if !timestep.is_finite() {
            return Err(bad_argument("denoise", format!("expected a finite timestep, got {timestep}")));
        }
        Ok(match &self.denoiser {
            Denoiser::Unet(unet) => unet.sinusoids(timestep),
            Denoiser::Flux(flux) => flux.sinusoids(timestep),
        })
    }

    /// Runs the denoiser.
    pub(crate) fn forward(&self, latents: &Tensor, time: &Tensor, fixed: &Fixed) -> Result<Tensor> {
        match (&self.denoiser, fixed) {
            (Denoiser::Unet(unet), Fixed::Unet(fixed)) => unet.forward(latents, time, fixed),
            (Denoiser::Flux(flux), Fixed::Flux(fixed)) => flux.forward(latents, time, fixed),
            _ => Err(bad_argument("denoise", "the inputs were prepared for another model")),
        }
    }
}

impl Session<'_> {
    /// Whether calls launch a captured graph.
    pub fn is_captured(&self) -> bool {
        matches!(self.state, State::Captured(_))
    }

    /// Returns the output for the elements of latents, as [`Model::denoise`] does.
    pub fn run(&mut self, latents: &[f32], timestep: f32) -> Result<Vec<f32>> {
        let expected: usize = self.shape.iter().product();
        if latents.len() != expected {
            return Err(bad_argument("denoise", format!("expected {expected} elements of latents, got {}", latents.len())));
        }
        let mut input = latents.to_vec();
        input.extend(self.model.time(timestep)?);
        let device = self.model.device();
        match &mut self.state {
            State::Eager => Ok(self.step(&Tensor::new(&input, &[input.len()], device)?)?.to_vec()?),
            State::First(gpu) => {
                let gpu = gpu.clone();
                let mut pinned = HostBuffer::zeroed(gpu.stream.device(), size_of_val(&input[..]))?;
                write(&mut pinned, &input)?;
                // The result is waited for: a capture can only take memory that no work uses.
                let result = self.step(&Tensor::from_pinned(&pinned, DType::F32, &[input.len()], &gpu)?)?.to_vec()?;
                let mut captured = self.capture(&gpu, &pinned, input.len());
                if let Ok(None) = captured {
                    // During a capture the pool cannot free memory.
                    device.trim()?;
                    captured = self.capture(&gpu, &pinned, input.len());
                }
                self.state = match captured {
                    Ok(Some((output, graph))) => State::Captured(Box::new(Captured { gpu, input: pinned, output, graph })),
                    // A graph keeps the memory of a call. Without that much, calls run without graph.
                    Ok(None) => State::Eager,
                    // Another thread synchronized the device: the next call tries again.
                    Err(Error::Gpu(warpwave_gpu::Error::CaptureEnded { .. })) => State::First(gpu),
                    Err(error) => return Err(error),
                };
                Ok(result)
            }
            State::Captured(captured) => {
                write(&mut captured.input, &input)?;
                captured.graph.launch(&captured.gpu.stream)?;
                Ok(captured.output.to_vec()?)
            }
        }
    }

    /// A call with latents and sinusoids in one tensor.
    fn step(&self, input: &Tensor) -> Result<Tensor> {
        let elements: usize = self.shape.iter().product();
        let latents = input.narrow(0, 0, elements)?.reshape(&self.shape)?;
        let length = input.size(0) - elements;
        let time = input.narrow(0, elements, length)?.reshape(&[1, length])?;
        self.model.forward(&latents, &time, &self.fixed)
    }

    /// Captures a call; `None` if the device has not the memory.
    fn capture(&self, gpu: &Arc<Gpu>, input: &HostBuffer<u8>, length: usize) -> Result<Option<(Tensor, GraphExec)>> {
        let mut output = None;
        let graph = gpu.stream.capture_graph(|_| {
            output = Some(Tensor::from_pinned(input, DType::F32, &[length], gpu).map_err(Error::from).and_then(|input| self.step(&input)));
            Ok(())
        });
        let graph = graph.and_then(|graph| graph.instantiate());
        match (output, graph) {
            // An error inside is the cause of the capture's failure.
            (Some(Err(Error::Tensor(error))), _) if error.is_out_of_device_memory() => Ok(None),
            (Some(Err(error)), _) => Err(error),
            (_, Err(error)) => Err(error.into()),
            (output, Ok(graph)) => Ok(output.transpose()?.map(|output| (output, graph))),
        }
    }
}

fn write(pinned: &mut HostBuffer<u8>, input: &[f32]) -> Result<()> {
    for (to, from) in pinned.as_mut_slice()?.chunks_exact_mut(4).zip(input) {
        to.copy_from_slice(&from.to_le_bytes());
    }
    Ok(())
}
