//! Sampling options of `generate` and `chat`.

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use warpwave_kernels::{Penalties, Sampling};
use warpwave_llm::{Error, Sampler};

use super::super::{Failure, Outcome, usage};

#[derive(clap::Args)]
#[command(next_help_heading = "Sampling")]
pub(super) struct SamplingArgs {
    /// Set the sampling temperature (0: greedy); default: 0.
    #[arg(long, value_name = "T")]
    temperature: Option<f32>,
    /// Sample from the N most likely tokens; 0 disables.
    #[arg(long, value_name = "N", default_value_t = 0)]
    top_k: usize,
    /// Sample from the smallest set of tokens with cumulative probability >= P (nucleus sampling); 1 disables.
    #[arg(long, value_name = "P", default_value_t = 1.0)]
    top_p: f32,
    /// Drop tokens with a probability below P times that of the most likely token; 0 disables.
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    min_p: f32,
    /// Divide positive logits of repeated tokens by X and multiply negative logits by X (repetition penalty); 1 disables.
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    repeat_penalty: f32,
    /// Subtract X from the logits of tokens that already occurred (presence penalty).
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true)]
    presence_penalty: f32,
    /// Subtract X from a token's logit for each earlier occurrence (frequency penalty).
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true)]
    frequency_penalty: f32,
    /// Apply penalties to the last N tokens only; default: all.
    #[arg(long, value_name = "N")]
    repeat_last_n: Option<usize>,
    /// Add X to the logit of token ID; repeatable.
    #[arg(long, value_name = "ID=X", value_parser = parse_bias)]
    logit_bias: Vec<(u32, f32)>,
    /// Set the random seed; default: a new seed on each run.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

fn parse_bias(text: &str) -> Result<(u32, f32), String> {
    let parsed = text.split_once('=').and_then(|(id, x)| Some((id.trim().parse().ok()?, x.trim().parse().ok()?)));
    parsed.ok_or_else(|| "expected ID=X, e.g. 42=-1.5".to_owned())
}

impl SamplingArgs {
    /// Returns the validated sampler.
    pub fn sampler(&self, default_temperature: f32) -> Result<Sampler, Failure> {
        let sampler = Sampler {
            sampling: Sampling {
                temperature: self.temperature.unwrap_or(default_temperature),
                top_k: self.top_k,
                top_p: self.top_p,
                min_p: self.min_p,
            },
            penalties: Penalties { repetition: self.repeat_penalty, presence: self.presence_penalty, frequency: self.frequency_penalty },
            bias: HashMap::from_iter(self.logit_bias.iter().copied()),
            seed: self.seed.unwrap_or_else(|| SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.subsec_nanos().into())),
            penalty_window: self.repeat_last_n.unwrap_or(usize::MAX),
        };
        sampler.check().map_err(|error| usage(error.to_string()))?;
        Ok(sampler)
    }

    /// Rejects a `--logit-bias` token that is out of range.
    pub fn check_tokens(&self, vocab: usize) -> Outcome {
        match self.logit_bias.iter().find(|(token, _)| *token as usize >= vocab) {
            Some((token, x)) => Err(usage(format!("--logit-bias {token}={x}: {}", Error::TokenOutOfRange { token: *token, vocab }))),
            None => Ok(()),
        }
    }

    /// Returns whether the user gave a seed.
    pub fn is_seeded(&self) -> bool {
        self.seed.is_some()
    }
}
