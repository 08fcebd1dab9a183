//! Sampling on the host: the CPU's implementation, and the reference for the GPU kernels `sample` and `penalize`.
//!
//! Host and kernels use the same random numbers: a seed gives the same tokens on every device, as far as logits and `exp` agree.

use std::collections::HashMap;

use warpwave_kernels::{Penalties, Philox, Sampling};

use crate::text_error::TextError;

type Result<T, E = TextError> = std::result::Result<T, E>;

/// The weight of the most likely token. Weights are integers: their sum does not depend on the order.
const ONE: u64 = 1 << 44;
/// The largest vocabulary whose weights sum within 64 bits.
const MAX_TOKENS: usize = (1 << 20) - 1;

/// Sampling parameters.
///
/// Applied in this order: logit bias, penalties, temperature, top-k, top-p (nucleus), min-p. Ties with the last kept token are kept. A
/// temperature of 0 selects the largest logit; of equal ones, the lowest token id.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampler {
    /// Temperature, top-k, top-p and min-p.
    pub sampling: Sampling,
    /// Penalties of tokens that already occurred.
    pub penalties: Penalties,
    /// The number of last tokens, of prompt and generated text, that penalties consider.
    pub penalty_window: usize,
    /// Values added to the logits of tokens. Out-of-range tokens are ignored.
    pub bias: HashMap<u32, f32>,
    /// The random seed.
    pub seed: u64,
}

impl Default for Sampler {
    /// Greedy, without bias and penalties.
    fn default() -> Self {
        Self {
            sampling: Sampling::GREEDY,
            penalties: Penalties { repetition: 1.0, presence: 0.0, frequency: 0.0 },
            penalty_window: usize::MAX,
            bias: HashMap::new(),
            seed: 0,
        }
    }
}

/// A sampled token.
#[derive(Debug, Clone, PartialEq)]
pub struct SampledToken {
    /// The token id.
    pub id: u32,
    /// The natural logarithm of its probability, after bias and penalties, before temperature, top-k, top-p and min-p.
    pub logprob: f32,
    /// The most likely tokens with their logprobs, most likely first.
    pub top_logprobs: Vec<(u32, f32)>,
}

impl Sampler {
    /// Checks the parameters.
    pub fn check(&self) -> Result<()> {
        let Sampling { temperature, top_p, min_p, .. } = self.sampling;
        let Penalties { repetition, presence, frequency } = self.penalties;
        let wrong = |name, value: f32, must| Err(TextError::Sampling { name, value: value.to_string(), must });
        if !(temperature == 0.0 || (temperature > 0.0 && temperature.is_finite() && (1.0 / temperature).is_finite())) {
            return wrong("temperature", temperature, "0, or finite and >= 3e-39");
        }
        for (name, share) in [("top_p", top_p), ("min_p", min_p)] {
            if !(0.0..=1.0).contains(&share) {
                return wrong(name, share, "from 0 to 1");
            }
        }
        if !(repetition > 0.0 && repetition.is_finite()) {
            return wrong("repetition penalty", repetition, "finite and > 0");
        }
        for (name, value) in [("presence penalty", presence), ("frequency penalty", frequency)] {
            if !value.is_finite() {
                return wrong(name, value, "finite");
            }
        }
        match self.bias.values().find(|bias| bias.is_nan()) {
            Some(bias) => wrong("logit bias", *bias, "a number"),
            None => Ok(()),
        }
    }

    /// Whether there is neither bias nor penalty, so that the result depends on the logits alone.
    pub(crate) fn is_plain(&self) -> bool {
        self.bias.is_empty() && self.penalties == Penalties { repetition: 1.0, presence: 0.0, frequency: 0.0 }
    }

    /// Samples the token after `tokens` from its logits, which are modified by bias and penalties.
    ///
    /// `position` selects the random number of the seed's sequence, usually the token's position. `top` is the number of most likely tokens
    /// to report.
    pub fn sample(&self, logits: &mut [f32], tokens: &[u32], position: u64, top: usize) -> Result<SampledToken> {
        self.check()?;
        let most = if self.sampling.temperature == 0.0 { u32::MAX as usize } else { MAX_TOKENS };
        if !(1..=most).contains(&logits.len()) {
            let value = logits.len().to_string();
            return Err(TextError::Sampling { name: "number of logits", value, must: "from 1 to 1048575" });
        }
        self.adjust(logits, tokens);
        // NaN is never selected.
        logits.iter_mut().filter(|x| x.is_nan()).for_each(|x| *x = f32::NEG_INFINITY);
        let (mut first, mut largest) = (0, logits[0]);
        for (token, x) in logits.iter().enumerate() {
            if *x > largest {
                (first, largest) = (token, *x);
            }
        }
        let token = if self.sampling.temperature == 0.0 { first } else { self.draw(logits, largest, position) };
        let sum: f64 = logits.iter().map(|x| if *x == largest { 1.0 } else { f64::from(*x - largest).exp() }).sum();
        let logprob = |x: f32| (if x == largest { -sum.ln() } else { f64::from(x - largest) - sum.ln() }) as f32;
        let top = most_likely(logits, top).into_iter().map(|token| (token, logprob(logits[token as usize]))).collect();
        Ok(SampledToken { id: token as u32, logprob: logprob(logits[token]), top_logprobs: top })
    }

    /// Applies bias and penalties.
    fn adjust(&self, logits: &mut [f32], tokens: &[u32]) {
        for (token, bias) in &self.bias {
            if let Some(logit) = logits.get_mut(*token as usize) {
                *logit += bias;
            }
        }
        let Penalties { repetition, presence, frequency } = self.penalties;
        if repetition == 1.0 && presence == 0.0 && frequency == 0.0 {
            return;
        }
        let mut counts: HashMap<u32, u32> = HashMap::new();
        for token in &tokens[tokens.len().saturating_sub(self.penalty_window)..] {
            *counts.entry(*token).or_default() += 1;
        }
        for (token, count) in counts {
            let Some(logit) = logits.get_mut(token as usize) else { continue };
            let x = if *logit > 0.0 { *logit / repetition } else { *logit * repetition };
            *logit = x - presence - frequency * count as f32;
        }
    }

    /// Draws a token among those kept. `largest` is the largest logit; none is NaN.
    fn draw(&self, logits: &[f32], largest: f32, position: u64) -> usize {
        let Sampling { temperature, top_k, top_p, min_p } = self.sampling;
        let sharpness = 1.0 / temperature;
        let weight = |x: f32| {
            // In f32, as in the kernel.
            if x == largest { ONE } else { (((x - largest) * sharpness * std::f32::consts::LOG2_E).exp2() * ONE as f32) as u64 }
        };
        let weights: Vec<u64> = logits.iter().map(|x| weight(*x)).collect();
        let keys: Vec<u32> = logits.iter().map(|x| key_of(*x)).collect();
        let mut least = 0;
        if top_k > 0 && top_k < logits.len() {
            least = threshold(&keys, |_| 1, top_k as u64);
        }
        if top_p < 1.0 {
            let kept = |token: usize| if keys[token] >= least { weights[token] } else { 0 };
            let all: u64 = (0..keys.len()).map(kept).sum();
            let mass = ((f64::from(top_p) * all as f64).ceil() as u64).clamp(1, all);
            least = threshold(&keys, kept, mass).max(least);
        }
        let least_weight = (min_p * ONE as f32) as u64;
        let kept = |token: usize| if keys[token] >= least && weights[token] >= least_weight { weights[token] } else { 0 };
        let total: u64 = (0..keys.len()).map(kept).sum();
        let mut target = ((u128::from(total) * u128::from(random(self.seed, position))) >> 64) as u64;
        // The target is below the sum of the weights: a token is always found.
        let found = (0..keys.len()).find(|token| {
            let weight = kept(*token);
            let found = target < weight;
            target -= if found { 0 } else { weight };
            found
        });
        found.unwrap_or(0)
    }
}

/// The tokens with the largest logits, largest first; of equal ones, lowest id first.
fn most_likely(logits: &[f32], count: usize) -> Vec<u32> {
    let count = count.min(logits.len());
    if count == 0 {
        return Vec::new();
    }
    let mut tokens: Vec<u32> = (0..logits.len() as u32).collect();
    let order = |a: &u32, b: &u32| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b));
    tokens.select_nth_unstable_by(count - 1, order);
    tokens.truncate(count);
    tokens.sort_by(order);
    tokens
}

/// Maps floats to integers of the same order; equal floats map to equal integers.
fn key_of(x: f32) -> u32 {
    let bits = if x == 0.0 { 0 } else { x.to_bits() };
    if bits >> 31 == 1 { !bits } else { bits | 1 << 31 }
}

/// Returns the largest key such that the tokens with this key or a larger one have at least `mass` weight together. A radix search, byte by
/// byte, without sorting.
fn threshold(keys: &[u32], weight: impl Fn(usize) -> u64, mut mass: u64) -> u32 {
    let mut prefix = 0;
    for shift in [24, 16, 8, 0] {
        let mut bins = [0u64; 256];
        for (token, key) in keys.iter().enumerate() {
            if shift == 24 || key >> shift >> 8 == prefix {
                bins[(key >> shift & 255) as usize] += weight(token);
            }
        }
        let mut digit = 255;
        while digit > 0 && bins[digit] < mass {
            mass -= bins[digit];
            digit -= 1;
        }
        prefix = prefix << 8 | digit as u32;
    }
    prefix
}

/// Returns 64 random bits for a seed and a counter, those of the sampling kernel.
fn random(seed: u64, counter: u64) -> u64 {
    let [low, high, ..] = Philox { seed, stream: 0, position: counter }.block(0);
    u64::from(high) << 32 | u64::from(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_are_those_of_the_published_test_vectors() {
        // Random123's kat_vectors: philox4x32-10 with counter and key 0.
        assert_eq!(random(0, 0), 0xe169_c58d_6627_e8d5);
        assert_ne!(random(0, 1), random(1, 0));
    }

    #[test]
    fn keys_are_in_the_order_of_floats() {
        let sorted = [f32::NEG_INFINITY, f32::MIN, -1.0, -f32::MIN_POSITIVE, 0.0, 1e-40, 1.0, f32::MAX, f32::INFINITY];
        assert!(sorted.windows(2).all(|pair| key_of(pair[0]) < key_of(pair[1])));
        assert_eq!(key_of(-0.0), key_of(0.0));
    }

    #[test]
    fn the_threshold_is_what_sorting_finds() {
        let mut state = 12345u64;
        for round in 0..200 {
            let mut next = || {
                state = random(state, round);
                state
            };
            let values: Vec<f32> = (0..50).map(|_| (next() % 17) as f32 - 8.0).collect();
            let weights: Vec<u64> = (0..50).map(|_| next() % 100).collect();
            let keys: Vec<u32> = values.iter().map(|x| key_of(*x)).collect();
            let all: u64 = weights.iter().sum();
            let wanted = 1 + next() % all;
            let mut sorted: Vec<usize> = (0..50).collect();
            sorted.sort_by(|a, b| values[*b].total_cmp(&values[*a]));
            let mut sum = 0;
            let last = sorted.into_iter().find(|token| {
                sum += weights[*token];
                sum >= wanted
            });
            assert_eq!(threshold(&keys, |token| weights[token], wanted), keys[last.expect("a token")], "round {round}");
        }
    }
}
