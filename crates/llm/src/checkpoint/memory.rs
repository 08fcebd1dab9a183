//! How much memory a model takes, before it is loaded.

use warpwave_kernels::DType;

use crate::config::Config;

/// Tokens that are computed together at most, as far as this estimate goes.
const CHUNK: u64 = 512;

/// Bytes that a model takes on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Weights.
    pub weights: u64,
    /// Keys and values of a token, in all layers.
    pub kv_per_token: u64,
    /// Keys and values of the whole context.
    pub kv: u64,
    /// What is between layers while 512 tokens are computed at once, as `f32`, with the logits of the last.
    pub activations: u64,
}

impl Memory {
    /// All of it.
    pub fn total(&self) -> u64 {
        self.weights.saturating_add(self.kv).saturating_add(self.activations)
    }

    /// Of a model with these bytes of weights, keys and values of a type, and a context.
    pub fn new(config: &Config, weights: u64, cache: DType, context: usize) -> Memory {
        let product = |numbers: &[usize]| numbers.iter().fold(1u64, |product, number| product.saturating_mul(*number as u64));
        let kv_per_token = product(&[2, config.layers, config.kv_heads, config.head_dim, cache.size()]);
        // The vector, its norm and what is added; queries, keys, values and the result; gate, up and their product.
        let parts = [
            &[3, config.hidden],
            &[2, config.heads, config.head_dim][..],
            &[2, config.kv_heads, config.head_dim],
            &[3, config.feed_forward],
        ];
        let each = parts.into_iter().fold(0u64, |sum, part| sum.saturating_add(product(part)));
        let tokens = CHUNK.min(context as u64);
        let activations = each.saturating_mul(tokens).saturating_add(config.vocab as u64).saturating_mul(4);
        Memory { weights, kv_per_token, kv: kv_per_token.saturating_mul(context as u64), activations }
    }
}
