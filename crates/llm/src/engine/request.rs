//! What is asked of an engine, and what it reports.

use std::time::Duration;

use super::pool::Pooling;
use crate::generate::{FinishReason, Request};
use crate::sampling::SampledToken;

/// Restricts the tokens of an answer, as a grammar does.
pub trait Constraint: Send {
    /// Sets the logits of tokens that must not come next to negative infinity. An error ends the request.
    fn mask(&mut self, logits: &mut [f32]) -> Result<(), String>;

    /// Takes the token that was sampled; returns whether the answer is complete with it. An error ends the request.
    fn accept(&mut self, token: u32) -> Result<bool, String>;
}

/// A text to continue, by an [`Engine`](super::Engine).
pub struct EngineRequest {
    /// Token ids to continue.
    pub prompt: Vec<u32>,
    /// Length, sampling and stop strings.
    pub params: Request,
    /// Requests with a smaller number run earlier. A step of 1 outweighs [`PRIORITY_STEPS`](super::PRIORITY_STEPS) steps of waiting.
    pub priority: i32,
    /// Only requests with the same salt share the KV cache of common prompts.
    pub salt: String,
    /// End-of-sequence and stop tokens cannot be sampled before this many tokens.
    pub min_tokens: usize,
    /// Tokens that end the text, in addition to the model's own. They are not part of it.
    pub stop_tokens: Vec<u32>,
    /// Whether the text includes special tokens.
    pub special: bool,
    /// Whether the text includes the stop string that ended it.
    pub include_stop: bool,
    /// Whether the prompt may be taken from the KV cache of earlier requests.
    pub reuse: bool,
    /// What restricts the answer's tokens.
    pub constraint: Option<Box<dyn Constraint>>,
    /// Compute an embedding of the prompt instead of an answer.
    pub embed: Option<Pooling>,
}

impl EngineRequest {
    /// Continues a prompt, with default priority and without restrictions.
    pub fn new(prompt: Vec<u32>, params: Request) -> EngineRequest {
        EngineRequest {
            prompt,
            params,
            priority: 0,
            salt: String::new(),
            min_tokens: 0,
            stop_tokens: Vec::new(),
            special: false,
            include_stop: false,
            reuse: true,
            constraint: None,
            embed: None,
        }
    }

    /// Computes the embedding of a text.
    pub fn embedding(prompt: Vec<u32>, pooling: Pooling) -> EngineRequest {
        // The mean needs the states of all tokens, also of those that are in the cache.
        EngineRequest { embed: Some(pooling), reuse: pooling == Pooling::Last, ..EngineRequest::new(prompt, Request::default()) }
    }
}

impl std::fmt::Debug for EngineRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (prompt, params, priority) = (&self.prompt, &self.params, &self.priority);
        f.debug_struct("EngineRequest").field("prompt", prompt).field("params", params).field("priority", priority).finish_non_exhaustive()
    }
}

/// A step of a request.
#[derive(Debug, Clone, PartialEq)]
pub enum EngineEvent {
    /// The request left the queue.
    Started {
        /// Prompt tokens that were in the KV cache.
        cached: usize,
        /// Time in the queue.
        waited: Duration,
    },
    /// A token was generated.
    Token {
        /// The token.
        token: SampledToken,
        /// The text it completes. Empty while a character or a possible stop string is incomplete.
        text: String,
    },
    /// The embedding of the prompt, a vector of length 1.
    Embedding {
        /// As many elements as a hidden state.
        vector: Vec<f32>,
    },
    /// The request ended. Comes last.
    Done {
        /// Text that was held back.
        text: String,
        /// How it ended.
        summary: Summary,
    },
    /// The request failed. Comes last.
    Failed {
        /// Why.
        message: String,
    },
}

/// The end of a request.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// Why it ended.
    pub reason: FinishReason,
    /// The stop string that ended it.
    pub stop: Option<String>,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Prompt tokens that were in the KV cache.
    pub cached_tokens: usize,
    /// Generated tokens, without the one that ended the text.
    pub tokens: usize,
    /// How often the request was preempted.
    pub preemptions: usize,
    /// Time in the queue.
    pub waited: Duration,
    /// Prefill time: from leaving the queue to the first token.
    pub prompt_time: Duration,
    /// Time of all further tokens.
    pub decode_time: Duration,
}

/// Where the events of a request go.
pub trait EventSink: Send {
    /// Passes an event on; must not block.
    fn send(&mut self, event: EngineEvent);

    /// Returns whether nobody reads the events any more: the request is cancelled before the next step.
    fn is_closed(&self) -> bool;

    /// Returns whether the reader is too far behind: the request pauses until it is not.
    fn is_full(&self) -> bool {
        false
    }
}

/// Why a request was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Too many requests, or too many prompt tokens, are waiting.
    #[error("the queue is full: {waiting} requests with {tokens} prompt tokens are waiting")]
    QueueFull {
        /// Requests waiting.
        waiting: usize,
        /// Their prompt tokens.
        tokens: usize,
    },
    /// The engine stopped.
    #[error("the engine has stopped")]
    Stopped,
    /// The prompt is longer than the context or the KV cache.
    #[error("{0}")]
    TooLong(String),
    /// The request is invalid.
    #[error("{0}")]
    Invalid(String),
}
