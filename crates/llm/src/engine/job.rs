//! A request in an engine: its tokens, its blocks, and the text generated so far.

use std::time::{Duration, Instant};

use warpwave_tensor::BLOCK_SIZE;

use super::blocks::{Blocks, Key, next_key, root_key};
use super::request::{EngineEvent, EngineRequest, EventSink, Summary};
use crate::detokenize::{DetokenizerState, StopStrings};
use crate::generate::FinishReason;
use crate::sampling::SampledToken;
use crate::tokenizer::Tokenizer;

pub(super) struct Job {
    pub request: EngineRequest,
    pub sink: Box<dyn EventSink>,
    /// Prompt and generated tokens.
    pub tokens: Vec<u32>,
    pub prompt_len: usize,
    /// Tokens in the KV cache.
    pub computed: usize,
    pub blocks: Vec<u32>,
    /// Keys of the full blocks of `tokens`.
    pub keys: Vec<Key>,
    /// The first blocks, which are in the prefix cache.
    pub published: usize,
    pub preemptions: usize,
    /// When it first left the queue.
    pub started: Option<Instant>,
    /// The last token and a draft of those that follow.
    pub ahead: Vec<u32>,
    /// How often in a row the first drafted token was wrong, doubling; and the steps left without a draft.
    pub misses: u32,
    pub pause: u32,
    /// The pooled hidden states so far, of embedding requests.
    pub pooled: Vec<f64>,
    /// The maximum of generated tokens that the context leaves room for.
    limit: usize,
    cached: usize,
    submitted: Instant,
    first_token: Option<Instant>,
    detokenizer: DetokenizerState,
    stop: StopStrings,
}

impl Job {
    pub fn new(mut request: EngineRequest, sink: Box<dyn EventSink>, submitted: Instant, context: usize) -> Job {
        let tokens = std::mem::take(&mut request.prompt);
        let stop = StopStrings::new(request.params.stop.iter().cloned());
        Job {
            prompt_len: tokens.len(),
            limit: request.params.max_tokens.min(context.saturating_sub(tokens.len())),
            detokenizer: DetokenizerState::continuing(request.special),
            request,
            sink,
            tokens,
            computed: 0,
            blocks: Vec::new(),
            keys: Vec::new(),
            published: 0,
            preemptions: 0,
            started: None,
            ahead: Vec::new(),
            misses: 0,
            pause: 0,
            pooled: Vec::new(),
            cached: 0,
            submitted,
            first_token: None,
            stop,
        }
    }

    /// Returns the number of generated tokens.
    pub fn generated(&self) -> usize {
        self.tokens.len() - self.prompt_len
    }

    /// Returns the number of tokens that may still be generated.
    pub fn remaining(&self) -> usize {
        self.limit.saturating_sub(self.generated())
    }

    /// Returns whether only the last token has to be computed, and it was generated.
    pub fn is_decoding(&self) -> bool {
        self.generated() > 0 && self.computed + 1 == self.tokens.len()
    }

    /// Returns why the request ends before anything is computed.
    pub fn ends_at_once(&self) -> Option<FinishReason> {
        (self.limit == 0 && self.request.embed.is_none()).then_some(if self.request.params.max_tokens == 0 {
            FinishReason::Length
        } else {
            FinishReason::Context
        })
    }

    /// Computes the keys of all full blocks.
    pub fn extend_keys(&mut self) {
        for number in self.keys.len()..self.tokens.len() / BLOCK_SIZE {
            let parent = self.keys.last().copied().unwrap_or_else(|| root_key(&self.request.salt));
            self.keys.push(next_key(&parent, &self.tokens[number * BLOCK_SIZE..][..BLOCK_SIZE]));
        }
    }

    /// Offers the full blocks that were computed to other requests.
    pub fn publish(&mut self, blocks: &mut Blocks) {
        let full = self.computed / BLOCK_SIZE;
        if full > self.published {
            self.extend_keys();
            for number in self.published..full {
                blocks.publish(self.blocks[number], self.keys[number]);
            }
            self.published = full;
        }
    }

    /// The request leaves the queue for the first time.
    pub fn start(&mut self, now: Instant) {
        self.started = Some(now);
        self.cached = self.computed;
        self.sink.send(EngineEvent::Started { cached: self.cached, waited: now - self.submitted });
    }

    /// Takes a sampled token; returns whether the request ended.
    pub fn accept(&mut self, token: SampledToken, tokenizer: Option<&Tokenizer>, eos: &[u32]) -> bool {
        self.first_token.get_or_insert_with(Instant::now);
        if self.request.stop_tokens.contains(&token.id) {
            self.finish(FinishReason::Stop, tokenizer);
            return true;
        }
        if !self.request.params.ignore_eos && eos.contains(&token.id) {
            self.finish(FinishReason::Eos, tokenizer);
            return true;
        }
        let complete = match &mut self.request.constraint {
            None => false,
            Some(constraint) => match constraint.accept(token.id) {
                Ok(complete) => complete,
                Err(message) => {
                    self.fail(&message);
                    return true;
                }
            },
        };
        self.tokens.push(token.id);
        let new = tokenizer.map(|tokenizer| self.detokenizer.push(tokenizer, token.id)).unwrap_or_default();
        let mut text = self.stop.push(&new);
        let reason = if let Some(stop) = self.stop.found() {
            if self.request.include_stop {
                text.push_str(stop);
            }
            Some(FinishReason::Stop)
        } else if complete {
            Some(FinishReason::Eos)
        } else if self.generated() >= self.limit {
            Some(if self.limit < self.request.params.max_tokens { FinishReason::Context } else { FinishReason::Length })
        } else {
            None
        };
        self.sink.send(EngineEvent::Token { token, text });
        if let Some(reason) = reason {
            self.finish(reason, tokenizer);
        }
        reason.is_some()
    }

    /// Reports the end, with the text that was held back.
    pub fn finish(&mut self, mut reason: FinishReason, tokenizer: Option<&Tokenizer>) {
        let mut text = String::new();
        if self.stop.found().is_none() {
            if tokenizer.is_some() {
                text = self.stop.push(&self.detokenizer.finish());
            }
            text.push_str(&self.stop.finish());
            if let Some(stop) = self.stop.found() {
                reason = FinishReason::Stop;
                if self.request.include_stop {
                    text.push_str(stop);
                }
            }
        }
        let now = Instant::now();
        let started = self.started.unwrap_or(now);
        let summary = Summary {
            reason,
            stop: self.stop.found().map(str::to_owned),
            prompt_tokens: self.prompt_len,
            cached_tokens: self.cached,
            tokens: self.generated(),
            preemptions: self.preemptions,
            waited: started - self.submitted,
            prompt_time: self.first_token.unwrap_or(now) - started,
            decode_time: self.first_token.map_or(Duration::ZERO, |first| now - first),
        };
        self.sink.send(EngineEvent::Done { text, summary });
    }

    /// Reports a failure.
    pub fn fail(&mut self, message: &str) {
        self.sink.send(EngineEvent::Failed { message: message.to_owned() });
    }
}
