//! How tokens are picked, as options.

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use warpwave_kernels::{Penalties, Sampling};
use warpwave_llm::{Error, Sampler};

use super::super::{Failure, Outcome, usage};

#[derive(clap::Args)]
#[command(next_help_heading = "Picking tokens")]
pub(super) struct Picking {
    /// 0 takes the likeliest token; above it, the larger the more surprising. Default: 0 for generate, 0.7 for chat.
    #[arg(long, value_name = "T")]
    temperature: Option<f32>,
    /// Only the so many likeliest tokens; 0 for all.
    #[arg(long, value_name = "N", default_value_t = 0)]
    top_k: usize,
    /// Only the likeliest tokens that have so much of the probability together.
    #[arg(long, value_name = "SHARE", default_value_t = 1.0)]
    top_p: f32,
    /// Only tokens at least so likely as this share of the likeliest.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    min_p: f32,
    /// What logits of tokens that are there already are divided by; 1 leaves them.
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    repeat_penalty: f32,
    /// What is taken off the logits of tokens that are there already.
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true)]
    presence_penalty: f32,
    /// What is taken off for each time that they are there.
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true)]
    frequency_penalty: f32,
    /// Only the last so many tokens of prompt and answer count for the penalties; without it all do.
    #[arg(long, value_name = "N")]
    repeat_last_n: Option<usize>,
    /// Add X to a token's logit; may be given several times.
    #[arg(long, value_name = "ID=X", value_parser = bias)]
    logit_bias: Vec<(u32, f32)>,
    /// The seed of the random numbers; another one each time without it.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

fn bias(text: &str) -> Result<(u32, f32), String> {
    let parsed = text.split_once('=').and_then(|(id, x)| Some((id.trim().parse().ok()?, x.trim().parse().ok()?)));
    parsed.ok_or_else(|| "a token's number, =, and a number: 42=-1.5".to_owned())
}

impl Picking {
    /// The sampler, checked before anything is loaded.
    pub fn sampler(&self, temperature: f32) -> Result<Sampler, Failure> {
        let sampler = Sampler {
            sampling: Sampling {
                temperature: self.temperature.unwrap_or(temperature),
                top_k: self.top_k,
                top_p: self.top_p,
                min_p: self.min_p,
            },
            penalties: Penalties { repetition: self.repeat_penalty, presence: self.presence_penalty, frequency: self.frequency_penalty },
            bias: HashMap::from_iter(self.logit_bias.iter().copied()),
            seed: self.seed.unwrap_or_else(|| SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.subsec_nanos().into())),
            window: self.repeat_last_n.unwrap_or(usize::MAX),
        };
        sampler.check().map_err(|error| usage(error.to_string()))?;
        Ok(sampler)
    }

    /// Refuses a bias of a token that the model does not have.
    pub fn check_tokens(&self, vocab: usize) -> Outcome {
        match self.logit_bias.iter().find(|(token, _)| *token as usize >= vocab) {
            Some((token, x)) => Err(usage(format!("--logit-bias {token}={x}: {}", Error::NoToken { token: *token, vocab }))),
            None => Ok(()),
        }
    }

    /// Whether the random numbers are to be the same each time.
    pub fn is_seeded(&self) -> bool {
        self.seed.is_some()
    }
}
