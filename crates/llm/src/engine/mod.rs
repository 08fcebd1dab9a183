//! Continuous batching: many requests share a model and its KV cache.
//!
//! An [`Engine`] computes one step at a time. Each step first advances every running request by a token, then uses what is left of a token
//! budget for prompts, in chunks. A request starts when its whole prompt fits into the KV cache; if the cache is full later, requests are
//! preempted and computed again. Full blocks of the cache are kept for prompts that begin with the same tokens.
//!
//! # Contract
//!
//! - A request's tokens do not depend on what else is in the batch, as far as the device's products do not depend on the number of rows.
//! - The first request in order always advances, so every request ends. Order is arrival, moved by [`EngineRequest::priority`].
//! - A request whose sink is closed gives its blocks back before the next step.
//! - A step that fails ends the requests in it with [`EngineEvent::Failed`]; others continue.
//!
//! [`Engine::spawn`] runs steps on a thread; [`EngineClient`] submits to it from any thread.

mod blocks;
mod job;
mod pool;
mod request;
mod sample;
mod schedule;
mod speculate;
mod thread;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use warpwave_gpu::HostBuffer;
use warpwave_tensor::BLOCK_SIZE;

use self::blocks::Blocks;
use self::job::Job;
pub use self::pool::Pooling;
pub use self::request::{Constraint, EngineEvent, EngineRequest, EventSink, Refusal, Summary};
use self::sample::Sampled;
pub use self::thread::{EngineClient, EngineThread, RequestHandle};
use crate::error::{Error, Result};
use crate::generate::FinishReason;
use crate::model::Model;
use crate::runner::Runner;
use crate::tokenizer::Tokenizer;

/// Steps of waiting that one level of [`EngineRequest::priority`] outweighs.
pub const PRIORITY_STEPS: i64 = 1024;

/// The longest draft: readers keep room for as many events of a step.
const MAX_DRAFT: usize = 6;

/// Limits of an [`Engine`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineOptions {
    /// Requests that run at once. Limited to three quarters of a step's tokens, so that prompts always advance.
    pub max_running: usize,
    /// The maximum number of tokens computed in one step. Limited to [`RunnerOptions::chunk`](crate::RunnerOptions::chunk).
    pub step_tokens: usize,
    /// The maximum number of prompt tokens in a step while requests are generating: a long prompt delays their next token.
    pub prompt_tokens: usize,
    /// The maximum number of waiting requests; further ones are refused.
    pub max_waiting: usize,
    /// The maximum number of prompt tokens of waiting requests.
    pub max_waiting_tokens: usize,
    /// Whether prompts share the KV cache of their common beginning.
    pub prefix_cache: bool,
    /// The maximum number of tokens guessed from earlier text and computed with the next one, at most 6; 0 turns that off. The text does
    /// not change. Only small batches speculate.
    pub speculative: usize,
}

impl Default for EngineOptions {
    fn default() -> Self {
        EngineOptions {
            max_running: 256,
            step_tokens: 8192,
            prompt_tokens: 512,
            max_waiting: 512,
            max_waiting_tokens: 1 << 22,
            prefix_cache: true,
            speculative: 0,
        }
    }
}

/// Counters and sizes of an [`Engine`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EngineStats {
    /// Requests running.
    pub running: usize,
    /// Requests waiting, preempted ones included.
    pub waiting: usize,
    /// Blocks of the KV cache.
    pub blocks: usize,
    /// Blocks that no running request uses.
    pub free_blocks: usize,
    /// Steps computed.
    pub steps: u64,
    /// Prompt tokens computed or found in the cache, each request's counted once.
    pub prompt_tokens: u64,
    /// Tokens generated.
    pub generated_tokens: u64,
    /// Prompt tokens that were looked up in the prefix cache.
    pub prefix_queries: u64,
    /// Prompt tokens found in the prefix cache.
    pub prefix_hits: u64,
    /// Requests preempted.
    pub preemptions: u64,
    /// Draft tokens proposed by n-gram lookup.
    pub drafted_tokens: u64,
    /// Draft tokens accepted.
    pub accepted_tokens: u64,
    /// Tokens processed in the last engine step.
    pub last_step_tokens: usize,
}

/// What a call of [`Engine::step`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Tokens were computed, or requests ended.
    Advanced,
    /// All requests wait for their readers.
    Paused,
    /// No request is left.
    Idle,
}

/// What a request must satisfy, and the state of the queue. Shared with clients on other threads.
#[derive(Debug)]
struct Admission {
    vocab: usize,
    hidden: usize,
    context: usize,
    capacity: usize,
    options: EngineOptions,
    waiting: AtomicUsize,
    waiting_tokens: AtomicUsize,
}

impl Admission {
    fn check(&self, request: &EngineRequest) -> std::result::Result<(), Refusal> {
        let invalid = |error: Error| Err(Refusal::Invalid(error.to_string()));
        let too_long = |error: Error| Err(Refusal::TooLong(error.to_string()));
        let tokens = request.prompt.len();
        if tokens == 0 {
            return invalid(Error::NoTokens);
        }
        if let Some(token) = request.prompt.iter().find(|token| **token as usize >= self.vocab) {
            return invalid(Error::TokenOutOfRange { token: *token, vocab: self.vocab });
        }
        if request.embed.is_some() && tokens > self.context {
            return too_long(Error::ContextExceeded { tokens, context: self.context });
        }
        if request.embed.is_none() && tokens >= self.context {
            return too_long(Error::PromptTooLong { tokens, context: self.context });
        }
        if tokens > self.capacity {
            return too_long(Error::CacheFull { tokens, free: self.capacity });
        }
        request.params.sampler.check().map_err(|error| Refusal::Invalid(error.to_string()))
    }

    /// Checks a request and counts it as waiting.
    fn enter(&self, request: &EngineRequest) -> std::result::Result<(), Refusal> {
        self.check(request)?;
        let tokens = request.prompt.len();
        let waiting = self.waiting.fetch_add(1, Ordering::AcqRel);
        let waiting_tokens = self.waiting_tokens.fetch_add(tokens, Ordering::AcqRel);
        // A single request is never refused for its length.
        if waiting >= self.options.max_waiting || (waiting > 0 && waiting_tokens + tokens > self.options.max_waiting_tokens) {
            self.leave(tokens);
            return Err(Refusal::QueueFull { waiting, tokens: waiting_tokens });
        }
        Ok(())
    }

    fn leave(&self, tokens: usize) {
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        self.waiting_tokens.fetch_sub(tokens, Ordering::AcqRel);
    }
}

/// Computes the requests of a plan.
type Compute = fn(&mut Engine, &[(Order, usize)]) -> Result<()>;

/// The order of requests: the first component is the step of arrival, moved by priority; the second breaks ties.
type Order = (i64, u64);

/// Runs many requests on one model. See the [module](self).
pub struct Engine {
    runner: Runner,
    tokenizer: Option<Arc<Tokenizer>>,
    eos: Vec<u32>,
    options: EngineOptions,
    admission: Arc<Admission>,
    blocks: Blocks,
    waiting: BTreeMap<Order, Job>,
    running: BTreeMap<Order, Job>,
    arrivals: u64,
    stats: EngineStats,
    /// Pinned memory that a GPU writes sampled tokens and logprobs to.
    sampled: Option<HostBuffer<u32>>,
}

impl Engine {
    /// Creates an engine on a runner, whose free blocks it takes. Without a tokenizer, events have tokens and no text.
    pub fn new(mut runner: Runner, tokenizer: Option<Arc<Tokenizer>>, options: EngineOptions) -> Engine {
        let step_tokens = options.step_tokens.clamp(1, runner.chunk());
        let max_running = options.max_running.clamp(1, (step_tokens * 3 / 4).max(1));
        let speculative = options.speculative.min(MAX_DRAFT);
        let options = EngineOptions { step_tokens, max_running, prompt_tokens: options.prompt_tokens.max(1), speculative, ..options };
        let blocks = Blocks::new(runner.take_blocks());
        let mut eos = runner.model().config().eos.clone();
        eos.extend(tokenizer.iter().flat_map(|tokenizer| tokenizer.eos()).copied());
        eos.sort_unstable();
        eos.dedup();
        let admission = Arc::new(Admission {
            vocab: runner.model().config().vocab,
            hidden: runner.model().config().hidden,
            context: runner.context(),
            capacity: blocks.total() * BLOCK_SIZE,
            options,
            waiting: AtomicUsize::new(0),
            waiting_tokens: AtomicUsize::new(0),
        });
        let stats = EngineStats { blocks: blocks.total(), free_blocks: blocks.total(), ..EngineStats::default() };
        Engine {
            runner,
            tokenizer,
            eos,
            options,
            admission,
            blocks,
            waiting: BTreeMap::new(),
            running: BTreeMap::new(),
            arrivals: 0,
            stats,
            sampled: None,
        }
    }

    /// Returns the model.
    pub fn model(&self) -> &Model {
        self.runner.model()
    }

    /// Returns the limits in effect.
    pub fn options(&self) -> EngineOptions {
        self.options
    }

    /// Returns counters and sizes.
    pub fn stats(&self) -> EngineStats {
        let (running, waiting, free_blocks) = (self.running.len(), self.waiting.len(), self.blocks.available());
        EngineStats { running, waiting, free_blocks, ..self.stats }
    }

    /// Checks a request and queues it. Its events go to `sink`.
    pub fn submit_to(&mut self, request: EngineRequest, sink: Box<dyn EventSink>) -> std::result::Result<(), Refusal> {
        self.admission.enter(&request)?;
        self.enqueue(request, sink, Instant::now());
        Ok(())
    }

    /// Checks a request and queues it; returns its events. Dropping the handle cancels the request.
    pub fn submit(&mut self, request: EngineRequest) -> std::result::Result<RequestHandle, Refusal> {
        let (sink, handle) = thread::channel();
        self.submit_to(request, Box::new(sink))?;
        Ok(handle)
    }

    fn enqueue(&mut self, request: EngineRequest, sink: Box<dyn EventSink>, submitted: Instant) {
        self.arrivals += 1;
        let rank = self.stats.steps as i64 + i64::from(request.priority) * PRIORITY_STEPS;
        let job = Job::new(request, sink, submitted, self.runner.context());
        self.waiting.insert((rank, self.arrivals), job);
    }

    /// Computes one step. Failures of the device end the requests of the step and are reported to them, not here.
    pub fn step(&mut self) -> Progress {
        let mut ended = self.remove_closed();
        ended |= self.ensure_blocks();
        let plan = self.plan();
        if plan.is_empty() {
            return match (ended, self.running.is_empty() && self.waiting.is_empty()) {
                (true, _) => Progress::Advanced,
                (false, true) => Progress::Idle,
                (false, false) => Progress::Paused,
            };
        }
        self.stats.steps += 1;
        self.stats.last_step_tokens = plan.iter().map(|(_, tokens)| tokens).sum();
        let (embedding, generating): (Vec<_>, Vec<_>) =
            plan.into_iter().partition(|(order, _)| self.running.get(order).is_some_and(|job| job.request.embed.is_some()));
        let generate: Compute = if self.draft(&generating) { Engine::verify } else { Engine::compute };
        let computed: [(Vec<_>, Compute); 2] = [(generating, generate), (embedding, Engine::embed)];
        for (plan, compute) in computed.into_iter().filter(|(plan, _)| !plan.is_empty()) {
            let Err(error) = compute(self, &plan) else { continue };
            let message = error.to_string();
            for (order, _) in plan {
                if let Some(mut job) = self.running.remove(&order) {
                    self.blocks.release(job.blocks.drain(..));
                    job.fail(&message);
                }
            }
        }
        Progress::Advanced
    }

    /// Computes the tokens of a plan and samples those that follow.
    fn compute(&mut self, plan: &[(Order, usize)]) -> Result<()> {
        let mut spans = Vec::new();
        let mut rows = Vec::new();
        for (row, (order, count)) in plan.iter().enumerate() {
            let job = &self.running[order];
            spans.push(job.span(*count));
            if job.computed + count == job.tokens.len() {
                rows.push((row, *order));
            }
        }
        let logits = self.runner.forward_spans(&spans)?;
        for (order, count) in plan {
            let Some(job) = self.running.get_mut(order) else { continue };
            job.computed += count;
            if self.options.prefix_cache {
                job.publish(&mut self.blocks);
            }
        }
        let sampled = self.sample(&logits, &rows)?;
        for ((_, order), token) in rows.into_iter().zip(sampled) {
            self.take(order, token);
        }
        Ok(())
    }

    /// Takes a sampled token of a request; returns whether the request ended.
    fn take(&mut self, order: Order, token: Sampled) -> bool {
        let Some(job) = self.running.get_mut(&order) else { return true };
        let ended = match token {
            Ok(token) => job.accept(token, self.tokenizer.as_deref(), &self.eos),
            Err(message) => {
                job.fail(&message);
                true
            }
        };
        self.stats.generated_tokens += 1;
        if ended && let Some(mut job) = self.running.remove(&order) {
            self.blocks.release(job.blocks.drain(..));
        }
        ended
    }

    /// Ends requests that nobody reads, and those that may not generate anything.
    fn remove_closed(&mut self) -> bool {
        let before = self.running.len() + self.waiting.len();
        let (blocks, admission) = (&mut self.blocks, &self.admission);
        for jobs in [&mut self.running, &mut self.waiting] {
            jobs.retain(|_, job| {
                let reason = if job.sink.is_closed() { Some(FinishReason::Cancelled) } else { job.ends_at_once() };
                let Some(reason) = reason else { return true };
                if job.started.is_none() {
                    admission.leave(job.prompt_len);
                }
                blocks.release(job.blocks.drain(..));
                job.finish(reason, self.tokenizer.as_deref());
                false
            });
        }
        before != self.running.len() + self.waiting.len()
    }

    /// Checks that each block is held as often as it is counted; returns what is wrong.
    pub fn check_blocks(&self) -> std::result::Result<(), String> {
        self.blocks.check(self.running.values().chain(self.waiting.values()).flat_map(|job| &job.blocks))
    }

    /// Forgets the cached prefixes that no request uses.
    pub fn clear_prefix_cache(&mut self) {
        self.blocks.forget_unused();
    }
}
