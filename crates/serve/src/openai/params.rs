//! Sampling and stopping fields that chats and completions share.

use std::collections::HashMap;

use serde_json::Value;
use warpwave_llm::engine::EngineRequest;
use warpwave_llm::{Request, Sampler};

use crate::app::Limits;
use crate::error::{ApiError, ApiResult};
use crate::fields::Fields;
use crate::grammar::Grammar;
use crate::model::ServedModel;

/// The most stop strings of a request.
const MAX_STOPS: usize = 64;
/// The largest size of a seed, priority and the like in JSON: integers that doubles represent.
const MAX_INTEGER: i64 = 1 << 53;

/// How to answer a request.
pub(crate) struct Params {
    pub request: Request,
    pub n: usize,
    pub stream: bool,
    /// Whether a stream ends with its usage.
    pub usage: bool,
    /// Whether log probabilities are reported.
    pub logprobs: bool,
    /// Whether token ids are reported.
    pub token_ids: bool,
    pub grammar: Option<Grammar>,
    priority: i32,
    salt: String,
    min_tokens: usize,
    stop_tokens: Vec<u32>,
    pub special: bool,
    include_stop: bool,
    reuse: bool,
}

impl Params {
    /// Reads the fields. `max_tokens` is the default number of tokens to generate.
    pub fn parse(fields: &Fields, limits: &Limits, model: &ServedModel, max_tokens: usize) -> ApiResult<Params> {
        for name in ["prompt_logprobs", "best_of", "suffix", "use_beam_search"] {
            let harmless = |value: &Value| value == &Value::Bool(false) || (name == "best_of" && Some(value) == fields.get("n"));
            if fields.get(name).is_some_and(|value| !harmless(value)) {
                return Err(ApiError::invalid(name, format!("{name} is not supported")));
            }
        }
        let vocab = model.client.vocab();
        let mut most = None;
        for name in ["max_completion_tokens", "max_tokens", "n_predict"] {
            most = most.or(fields.count(name, MAX_INTEGER as usize)?);
        }
        let sampler = sampler(fields, vocab)?;
        sampler.check()?;
        let stop = fields.strings("stop", MAX_STOPS)?;
        if stop.iter().any(|stop| stop.len() > 4096) {
            return Err(ApiError::invalid("stop", "stop: strings are limited to 4096 bytes"));
        }
        let n = fields.integer("n", 1, limits.choices as i64)?.unwrap_or(1) as usize;
        let stream = fields.boolean("stream")?.unwrap_or(false);
        let options = fields.object("stream_options")?.cloned().unwrap_or_default();
        let usage = Fields(options).boolean("include_usage")?.unwrap_or(false);
        let min_tokens = fields.count("min_tokens", MAX_INTEGER as usize)?.unwrap_or(0);
        let request = Request {
            max_tokens: most.unwrap_or(max_tokens),
            sampler,
            stop,
            ignore_eos: fields.boolean("ignore_eos")?.unwrap_or(false),
            top_logprobs: 0,
        };
        if min_tokens > request.max_tokens {
            return Err(ApiError::invalid("min_tokens", format!("min_tokens {min_tokens} exceeds max_tokens {}", request.max_tokens)));
        }
        Ok(Params {
            request,
            n,
            stream,
            usage,
            logprobs: false,
            token_ids: fields.boolean("return_token_ids")?.unwrap_or(false),
            grammar: Grammar::of(fields, limits)?,
            priority: fields.integer("priority", -1000, 1000)?.unwrap_or(0) as i32,
            salt: fields.string("cache_salt")?.unwrap_or_default().to_owned(),
            min_tokens,
            stop_tokens: fields.token_ids("stop_token_ids", vocab)?.unwrap_or_default(),
            special: !fields.boolean("skip_special_tokens")?.unwrap_or(true),
            include_stop: fields.boolean("include_stop_str_in_output")?.unwrap_or(false),
            reuse: fields.boolean("cache_prompt")?.unwrap_or(true),
        })
    }

    /// The request of one choice.
    pub fn engine_request(&self, model: &ServedModel, prompt: Vec<u32>, choice: usize) -> ApiResult<EngineRequest> {
        let mut params = self.request.clone();
        params.sampler.seed = params.sampler.seed.wrapping_add(choice as u64);
        let constraint = match &self.grammar {
            None => None,
            Some(grammar) => {
                let made = model.grammars.constraint(grammar, &model.tokenizer, model.client.vocab());
                Some(made.map_err(|error| ApiError::invalid("response_format", format!("the grammar cannot be used: {error}")))?)
            }
        };
        Ok(EngineRequest {
            priority: self.priority,
            salt: self.salt.clone(),
            min_tokens: self.min_tokens,
            stop_tokens: self.stop_tokens.clone(),
            special: self.special,
            include_stop: self.include_stop,
            reuse: self.reuse,
            constraint,
            ..EngineRequest::new(prompt, params)
        })
    }
}

fn sampler(fields: &Fields, vocab: usize) -> ApiResult<Sampler> {
    let mut sampler = Sampler::default();
    sampler.sampling.temperature = fields.number("temperature", 0.0, 100.0)?.unwrap_or(1.0);
    sampler.sampling.top_p = fields.number("top_p", 0.0, 1.0)?.unwrap_or(1.0);
    sampler.sampling.min_p = fields.number("min_p", 0.0, 1.0)?.unwrap_or(0.0);
    // -1 is vLLM's word for all.
    sampler.sampling.top_k = fields.integer("top_k", -1, MAX_INTEGER)?.unwrap_or(0).max(0) as usize;
    sampler.penalties.presence = fields.number("presence_penalty", -2.0, 2.0)?.unwrap_or(0.0);
    sampler.penalties.frequency = fields.number("frequency_penalty", -2.0, 2.0)?.unwrap_or(0.0);
    let repetition = fields.number("repetition_penalty", 0.01, 100.0)?;
    sampler.penalties.repetition = repetition.or(fields.number("repeat_penalty", 0.01, 100.0)?).unwrap_or(1.0);
    if let Some(window) = fields.integer("repeat_last_n", -1, MAX_INTEGER)? {
        sampler.penalty_window = if window < 0 { usize::MAX } else { window as usize };
    }
    let random = || std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0) >> 11;
    sampler.seed = fields.integer("seed", -MAX_INTEGER, MAX_INTEGER)?.map_or_else(random, |seed| seed as u64);
    sampler.bias = bias(fields, vocab)?;
    Ok(sampler)
}

/// `logit_bias`: ids as strings, from -100 to 100.
fn bias(fields: &Fields, vocab: usize) -> ApiResult<HashMap<u32, f32>> {
    let mut bias = HashMap::new();
    for (id, value) in fields.object("logit_bias")?.into_iter().flatten() {
        let parsed = id.parse::<u32>().ok().filter(|id| (*id as usize) < vocab);
        let Some(token) = parsed else {
            return Err(ApiError::invalid("logit_bias", format!("logit_bias: expected token ids below {vocab}, got {id:?}")));
        };
        let Some(value) = value.as_f64().filter(|value| (-100.0..=100.0).contains(value)) else {
            return Err(ApiError::invalid("logit_bias", format!("logit_bias: expected numbers from -100 to 100 for token {id}")));
        };
        bias.insert(token, value as f32);
    }
    Ok(bias)
}
