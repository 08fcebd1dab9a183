//! Embeddings: the model's last hidden states of a text, pooled to one vector.

use super::job::Job;
use super::{Engine, Order};
use crate::error::Result;
use crate::generate::FinishReason;
use crate::runner::Span;

use warpwave_tensor::BLOCK_SIZE;

/// How the hidden states of a text's tokens become one vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pooling {
    /// Their mean.
    Mean,
    /// That of the last token, which has seen all others.
    Last,
}

impl Engine {
    /// Computes the tokens of embedding requests in a plan, and ends those that are complete.
    pub(super) fn embed(&mut self, plan: &[(Order, usize)]) -> Result<()> {
        let spans: Vec<Span<'_>> = plan.iter().map(|(order, count)| self.running[order].span(*count)).collect();
        let hidden = self.runner.forward_hidden(&spans)?;
        let size = hidden.size(1);
        let mut states = hidden.to_vec::<f32>()?;
        let mut rest = states.as_mut_slice();
        for (order, count) in plan {
            let (own, behind) = std::mem::take(&mut rest).split_at_mut(count * size);
            rest = behind;
            let Some(job) = self.running.get_mut(order) else { continue };
            job.pool(own, size);
            job.computed += count;
            if self.options.prefix_cache {
                job.publish(&mut self.blocks);
            }
            if job.computed == job.tokens.len()
                && let Some(mut job) = self.running.remove(order)
            {
                self.blocks.release(job.blocks.drain(..));
                job.finish_embedding();
            }
        }
        Ok(())
    }
}

impl Job {
    /// The next `count` tokens to compute.
    pub fn span(&self, count: usize) -> Span<'_> {
        let len = self.computed + count;
        Span { blocks: &self.blocks[..len.div_ceil(BLOCK_SIZE)], len, tokens: &self.tokens[self.computed..len] }
    }

    /// Adds the hidden states of the next tokens, each of `size` elements.
    fn pool(&mut self, states: &[f32], size: usize) {
        if self.request.embed == Some(Pooling::Last) || self.pooled.is_empty() {
            self.pooled = vec![0.0; size];
        }
        let states = match self.request.embed {
            Some(Pooling::Last) => &states[states.len() - size..],
            _ => states,
        };
        for state in states.chunks(size) {
            // In f64: the sum of thousands of states does not lose what the last ones add.
            self.pooled.iter_mut().zip(state).for_each(|(sum, value)| *sum += f64::from(*value));
        }
    }

    fn finish_embedding(&mut self) {
        // A vector of length 1 is its direction: the mean needs no division.
        let norm = self.pooled.iter().map(|value| value * value).sum::<f64>().sqrt();
        let scale = if norm > 0.0 { norm.recip() } else { 0.0 };
        let vector = self.pooled.iter().map(|value| (value * scale) as f32).collect();
        self.sink.send(super::EngineEvent::Embedding { vector });
        self.finish(FinishReason::Length, None);
    }
}
