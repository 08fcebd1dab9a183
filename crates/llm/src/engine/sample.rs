//! Samples the next tokens of a batch.

use warpwave_gpu::HostBuffer;
use warpwave_kernels::{DType, Layout, RandomSource, ViewMut};
use warpwave_tensor::{Device, Gpu, Tensor};

use super::{Engine, Order};
use crate::error::Result;
use crate::sampling::SampledToken;

/// A sampled token, or why the request cannot continue.
pub(super) type Sampled = std::result::Result<SampledToken, String>;

impl Engine {
    /// Samples from rows of the logits, for the requests with these orders.
    ///
    /// A GPU samples the rows that need nothing but their logits, and writes them to pinned memory; the host waits once for all of them.
    pub(super) fn sample(&mut self, logits: &Tensor, rows: &[(usize, Order)]) -> Result<Vec<Sampled>> {
        let mut sampled: Vec<Option<Sampled>> = rows.iter().map(|_| None).collect();
        if let Device::Gpu(gpu) = logits.device().clone() {
            self.sample_on_gpu(&gpu, logits, rows, &mut sampled)?;
        }
        for (slot, (row, order)) in sampled.iter_mut().zip(rows).filter(|(slot, _)| slot.is_none()) {
            let mut values = logits.narrow(0, *row, 1)?.to_vec::<f32>()?;
            *slot = Some(self.sample_on_host(&mut values, *order));
        }
        Ok(sampled.into_iter().flatten().collect())
    }

    fn sample_on_host(&mut self, logits: &mut [f32], order: Order) -> Sampled {
        let Some(job) = self.running.get_mut(&order) else { return Err("the request was canceled".to_owned()) };
        let early = job.generated() < job.request.min_tokens;
        if let Some(constraint) = &mut job.request.constraint {
            constraint.mask(logits)?;
        }
        if early {
            let ends = self.eos.iter().chain(&job.request.stop_tokens);
            ends.for_each(|token| _ = logits.get_mut(*token as usize).map(|logit| *logit = f32::NEG_INFINITY));
        }
        let (params, position) = (&job.request.params, job.tokens.len() as u64);
        params.sampler.sample(logits, &job.tokens, position, params.top_logprobs).map_err(|error| error.to_string())
    }

    fn sample_on_gpu(&mut self, gpu: &Gpu, logits: &Tensor, rows: &[(usize, Order)], sampled: &mut [Option<Sampled>]) -> Result<()> {
        let plain = |order: &Order| {
            let job = &self.running[order];
            let request = &job.request;
            request.params.top_logprobs == 0
                && request.params.sampler.is_plain()
                && request.constraint.is_none()
                && job.generated() >= request.min_tokens
        };
        let plain: Vec<usize> = (0..rows.len()).filter(|number| plain(&rows[*number].1)).collect();
        if plain.is_empty() {
            return Ok(());
        }
        // Ids, then logprobs.
        let needed = 2 * plain.len();
        let memory = match &mut self.sampled {
            Some(memory) if memory.len() >= needed => memory,
            other => other.insert(HostBuffer::zeroed(gpu.stream.device(), needed.next_power_of_two())?),
        };
        let one = Layout::contiguous(&[1]).map_err(warpwave_tensor::Error::from)?;
        for (place, number) in plain.iter().enumerate() {
            let (row, order) = &rows[*number];
            let job = &self.running[order];
            let (_, rest) = memory.view_mut().split_at(2 * place)?;
            let (id, rest) = rest.split_at(1)?;
            let (logprob, _) = rest.split_at(1)?;
            let view = |memory, dtype| ViewMut::of_bytes(memory, dtype, one).map_err(warpwave_tensor::Error::from);
            let (mut ids, mut logprobs) = (view(id.into_bytes(), DType::U32)?, view(logprob.into_bytes(), DType::F32)?);
            let sampler = &job.request.params.sampler;
            let random = RandomSource::Seed { seed: sampler.seed, offset: job.tokens.len() as u64 };
            let logits = logits.narrow(0, *row, 1)?;
            let launched = gpu.kernels.sample(&gpu.stream, &logits.view()?, &sampler.sampling, random, &mut ids, Some(&mut logprobs));
            launched.map_err(warpwave_tensor::Error::from)?;
        }
        let found = memory.as_slice()?;
        for (place, number) in plain.into_iter().enumerate() {
            let [id, logprob] = [found[2 * place], found[2 * place + 1]];
            sampled[number] = Some(Ok(SampledToken { id, logprob: f32::from_bits(logprob), top_logprobs: Vec::new() }));
        }
        Ok(())
    }
}
