//! Texts, token by token.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use warpwave_gpu::HostBuffer;
use warpwave_kernels::{DType, Layout, RandomSource, ViewMut};
use warpwave_tensor::{Device, Tensor};

use crate::detokenise::{Detokenizer, StopStrings};
use crate::error::{Error, Result};
use crate::runner::{Runner, Sequence};
use crate::sampling::{Picked, Sampler};
use crate::tokenizer::Tokenizer;

/// What is to be generated.
#[derive(Debug, Clone)]
pub struct Request {
    /// Tokens to add at most.
    pub tokens: usize,
    /// How they are picked.
    pub sampler: Sampler,
    /// Strings that end the text; they are not part of it.
    pub stops: Vec<String>,
    /// Whether tokens that end a text are tokens like any other.
    pub ignore_eos: bool,
    /// So many of the likeliest tokens come with each token.
    pub top: usize,
}

/// Why a text ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The model ended it.
    Eos,
    /// A stop string came.
    Stop,
    /// It has as many tokens as were asked for.
    Tokens,
    /// The cache is full.
    Room,
    /// The listener had enough, of the text or while the prompt went through the model.
    Cancelled,
}

impl Ended {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Ended::Eos => "eos",
            Ended::Stop => "stop",
            Ended::Tokens => "length",
            Ended::Room => "context",
            Ended::Cancelled => "cancelled",
        }
    }
}

/// A token, and the text that is certain now.
#[derive(Debug, Clone)]
pub struct Piece {
    /// The token; none where the text ends with what was held back, and none between the pieces of a long prompt.
    pub picked: Option<Picked>,
    /// What it adds to the text. It may be nothing yet; between the pieces of a prompt it is nothing.
    pub text: String,
}

/// What was generated.
#[derive(Debug, Clone)]
pub struct Generated {
    /// The tokens, without the one that ended the text.
    pub tokens: Vec<Picked>,
    /// The text.
    pub text: String,
    /// Why it ended.
    pub ended: Ended,
    /// Tokens of the prompt that went through the model: those that were not there from before.
    pub prompt: usize,
    /// How long the prompt took, up to the first token's logits.
    pub prompt_time: Duration,
    /// How long all further tokens took.
    pub decode_time: Duration,
}

impl Runner {
    /// The token that follows a text, of its logits: on the GPU that has them, where only they and random numbers count.
    fn pick(&mut self, logits: &Tensor, request: &Request, text: &[u32]) -> Result<Picked> {
        let (sampler, number) = (&request.sampler, text.len() as u64);
        match logits.device() {
            Device::Gpu(gpu) if request.top == 0 && sampler.is_plain() => {
                // The kernel writes to the host's memory: no copy is to be waited for.
                let found = match &mut self.picked {
                    Some(found) => found,
                    none => none.insert(HostBuffer::zeroed(gpu.stream.device(), 2)?),
                };
                let (token, log) = found.view_mut().split_at(1)?;
                let one = Layout::contiguous(&[1]).map_err(warpwave_tensor::Error::from)?;
                let view = |place, dtype| ViewMut::of_bytes(place, dtype, one).map_err(warpwave_tensor::Error::from);
                let (mut tokens, mut logs) = (view(token.into_bytes(), DType::U32)?, view(log.into_bytes(), DType::F32)?);
                let random = RandomSource::Seed { seed: sampler.seed, offset: number };
                let sampled = gpu.kernels.sample(&gpu.stream, &logits.view()?, &sampler.sampling, random, &mut tokens, Some(&mut logs));
                sampled.map_err(warpwave_tensor::Error::from)?;
                let found = found.as_slice()?;
                Ok(Picked { token: found[0], log: f32::from_bits(found[1]), top: Vec::new() })
            }
            _ => Ok(sampler.pick(&mut logits.to_vec::<f32>()?, text, number, request.top)?),
        }
    }

    /// Goes on with a text of tokens, the first of which may have gone through the model before (`sequence`); without a tokenizer there is
    /// no text, only tokens. `listen` hears each piece and may break off. Afterwards the sequence has all
    /// tokens, but the last unless the model itself ended the text.
    ///
    /// Of a prompt that is too long to go through the model at once, `listen` hears between its pieces, too, of a piece without token and
    /// text. Where it breaks off there, nothing is generated, and the sequence has the beginning of the text that went through the model:
    /// the same call again goes on behind it.
    pub fn generate(
        &mut self,
        sequence: &mut Sequence,
        text: &[u32],
        tokenizer: Option<&Tokenizer>,
        request: &Request,
        listen: &mut dyn FnMut(&Piece) -> ControlFlow<()>,
    ) -> Result<Generated> {
        request.sampler.check()?;
        if text.len() <= sequence.len() {
            return Err(Error::NoTokens);
        }
        let mut all = text.to_vec();
        let mut made = Generated {
            tokens: Vec::new(),
            text: String::new(),
            ended: Ended::Tokens,
            prompt: text.len() - sequence.len(),
            prompt_time: Duration::ZERO,
            decode_time: Duration::ZERO,
        };
        let mut detokenizer = tokenizer.map(Detokenizer::continuing);
        let mut stops = StopStrings::new(request.stops.iter().cloned());
        let mut started = Instant::now();
        let already = sequence.len();
        while made.tokens.len() < request.tokens {
            let fed = sequence.len();
            let first = made.tokens.is_empty();
            if !first && self.room_for(sequence) == 0 {
                made.ended = Ended::Room;
                break;
            }
            let go_on = &mut || listen(&Piece { picked: None, text: String::new() }).is_continue();
            let Some(logits) = self.feed_while(sequence, &all[fed..], go_on)? else {
                (made.ended, made.prompt, made.prompt_time) = (Ended::Cancelled, sequence.len() - already, started.elapsed());
                break;
            };
            let picked = self.pick(&logits, request, &all)?;
            let passed = started.elapsed();
            started = Instant::now();
            match first {
                true => made.prompt_time = passed,
                false => made.decode_time += passed,
            }
            let token = picked.token;
            if !request.ignore_eos && self.ends(tokenizer, token) {
                made.ended = Ended::Eos;
                break;
            }
            all.push(token);
            made.tokens.push(picked.clone());
            let new = detokenizer.as_mut().map(|detokenizer| detokenizer.push(token)).unwrap_or_default();
            let shown = stops.push(&new);
            made.text.push_str(&shown);
            if listen(&Piece { picked: Some(picked), text: shown }).is_break() {
                made.ended = Ended::Cancelled;
                break;
            }
            if stops.found().is_some() {
                made.ended = Ended::Stop;
                break;
            }
        }
        if made.ended != Ended::Stop {
            let mut rest = stops.push(&detokenizer.map(|mut detokenizer| detokenizer.finish()).unwrap_or_default());
            rest.push_str(&stops.finish());
            if stops.found().is_some() {
                made.ended = Ended::Stop;
            }
            if !rest.is_empty() {
                made.text.push_str(&rest);
                let _ = listen(&Piece { picked: None, text: rest });
            }
        }
        Ok(made)
    }

    /// Whether a token ends a text, by the tokenizer or by the model's configuration.
    fn ends(&self, tokenizer: Option<&Tokenizer>, token: u32) -> bool {
        self.model().config().eos.contains(&token) || tokenizer.is_some_and(|tokenizer| tokenizer.eos().contains(&token))
    }
}
