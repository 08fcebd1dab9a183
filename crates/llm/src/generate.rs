//! Text generation: a stream of events over a [`Runner`].

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use warpwave_gpu::{Event as GpuEvent, HostBuffer};
use warpwave_kernels::{DType, Layout, RandomSource, ViewMut};
use warpwave_tensor::{Device, Tensor};

use crate::detokenize::{Detokenizer, StopStrings};
use crate::error::{Error, Result};
use crate::runner::{Runner, Sequence};
use crate::sampling::{SampledToken, Sampler};
use crate::tokenizer::Tokenizer;

/// What to generate: length, sampling and stop conditions.
///
/// ```
/// let request = warpwave_llm::Request::default().max_tokens(64).temperature(0.7).seed(1).stop("\n\n");
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The maximum number of tokens to generate.
    pub max_tokens: usize,
    /// How tokens are sampled; greedy by default.
    pub sampler: Sampler,
    /// Strings that end the text. They are not part of it.
    pub stop: Vec<String>,
    /// Whether to continue past end-of-sequence tokens.
    pub ignore_eos: bool,
    /// The number of most likely tokens reported with each token.
    pub top_logprobs: usize,
}

impl Default for Request {
    /// Greedy decoding of at most 256 tokens.
    fn default() -> Self {
        Request { max_tokens: 256, sampler: Sampler::default(), stop: Vec::new(), ignore_eos: false, top_logprobs: 0 }
    }
}

impl Request {
    /// Sets the maximum number of tokens to generate.
    #[must_use]
    pub fn max_tokens(mut self, tokens: usize) -> Self {
        self.max_tokens = tokens;
        self
    }

    /// Sets all sampling parameters.
    #[must_use]
    pub fn sampler(mut self, sampler: Sampler) -> Self {
        self.sampler = sampler;
        self
    }

    /// Sets the temperature; 0 is greedy.
    #[must_use]
    pub fn temperature(mut self, temperature: f32) -> Self {
        self.sampler.sampling.temperature = temperature;
        self
    }

    /// Samples among the `k` most likely tokens; 0 means all.
    #[must_use]
    pub fn top_k(mut self, k: usize) -> Self {
        self.sampler.sampling.top_k = k;
        self
    }

    /// Sets nucleus sampling: the smallest set of tokens with cumulative probability >= `p`.
    #[must_use]
    pub fn top_p(mut self, p: f32) -> Self {
        self.sampler.sampling.top_p = p;
        self
    }

    /// Sets the random seed.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.sampler.seed = seed;
        self
    }

    /// Adds a stop string.
    #[must_use]
    pub fn stop(mut self, stop: impl Into<String>) -> Self {
        self.stop.push(stop.into());
        self
    }

    /// Sets whether to continue past end-of-sequence tokens.
    #[must_use]
    pub fn ignore_eos(mut self, ignore: bool) -> Self {
        self.ignore_eos = ignore;
        self
    }

    /// Sets the number of most likely tokens reported with each token.
    #[must_use]
    pub fn top_logprobs(mut self, count: usize) -> Self {
        self.top_logprobs = count;
        self
    }
}

/// Why generation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// The model sampled an end-of-sequence token.
    Eos,
    /// A stop string was generated.
    Stop,
    /// [`Request::max_tokens`] were generated.
    Length,
    /// The context or the KV cache is full.
    Context,
    /// The caller cancelled.
    Cancelled,
}

impl FinishReason {
    /// Returns the name: `eos`, `stop`, `length`, `context` or `cancelled`.
    pub fn name(self) -> &'static str {
        match self {
            FinishReason::Eos => "eos",
            FinishReason::Stop => "stop",
            FinishReason::Length => "length",
            FinishReason::Context => "context",
            FinishReason::Cancelled => "cancelled",
        }
    }
}

/// A step of a generation.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The prompt is being processed. Comes once before each chunk of the prompt.
    Prompt {
        /// Prompt tokens processed so far, including those already in the KV cache.
        processed: usize,
        /// Prompt tokens in total.
        total: usize,
    },
    /// A token was generated.
    Token {
        /// The token.
        token: SampledToken,
        /// The text it completes. Empty while a UTF-8 character or a possible stop string is incomplete.
        text: String,
    },
    /// The generation ended. Comes exactly once, unless it fails.
    Done {
        /// Text that was held back as the possible start of a stop string or character.
        text: String,
        /// Everything that was generated.
        completion: Completion,
    },
}

impl Event {
    /// Returns the new text. The texts of all events together are the completion's text.
    pub fn text(&self) -> &str {
        match self {
            Event::Prompt { .. } => "",
            Event::Token { text, .. } | Event::Done { text, .. } => text,
        }
    }
}

/// The result of a generation.
#[derive(Debug, Clone, PartialEq)]
pub struct Completion {
    /// The generated tokens, without the end-of-sequence token.
    pub tokens: Vec<SampledToken>,
    /// The generated text; empty without a tokenizer.
    pub text: String,
    /// Why generation ended.
    pub finish_reason: FinishReason,
    /// Prompt tokens that were computed, which excludes those already in the KV cache.
    pub prompt_tokens: usize,
    /// Time to the first token's logits.
    pub prompt_time: Duration,
    /// Time of all further tokens.
    pub decode_time: Duration,
}

/// A generation in progress: an iterator of [`Event`]s.
///
/// Each call of `next` does the work up to the next event. Dropping the iterator stops the generation; the sequence then holds all tokens
/// computed so far, and generating again with the same prompt continues from there. After an error the iterator ends.
pub struct Generation<'a> {
    runner: &'a mut Runner,
    sequence: &'a mut Sequence,
    tokenizer: Option<&'a Tokenizer>,
    request: &'a Request,
    /// Prompt and generated tokens.
    tokens: Vec<u32>,
    prompt_len: usize,
    /// Tokens that were in the KV cache before.
    cached: usize,
    /// The maximum of generated tokens that the context leaves room for.
    limit: usize,
    completion: Completion,
    detokenizer: Option<Detokenizer<'a>>,
    stop: StopStrings,
    started: Instant,
    /// Marks the GPU work up to the chunk before the last.
    queued: Option<GpuEvent>,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing was reported yet.
    Start,
    /// Prompt chunks or tokens remain to be computed.
    Running,
    /// The reason is known, `Done` was not reported yet.
    Finishing,
    Ended,
}

impl std::fmt::Debug for Generation<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Generation").field("completion", &self.completion).finish_non_exhaustive()
    }
}

impl Runner {
    /// Starts generating after `prompt`, token ids of which the first `sequence.len()` are already in the KV cache.
    ///
    /// Without a tokenizer there are tokens and no text. Afterwards the sequence holds prompt and generated tokens, except the last token
    /// unless the model ended the text itself. Fails if the prompt has no new tokens, an id out of range, or leaves no room in the context.
    pub fn generate<'a>(
        &'a mut self,
        sequence: &'a mut Sequence,
        prompt: &[u32],
        tokenizer: Option<&'a Tokenizer>,
        request: &'a Request,
    ) -> Result<Generation<'a>> {
        request.sampler.check()?;
        let (cached, context) = (sequence.len(), self.context());
        if prompt.len() <= cached {
            return Err(Error::NoTokens);
        }
        if prompt.len() >= context {
            return Err(Error::PromptTooLong { tokens: prompt.len(), context });
        }
        self.check(&[(sequence, &prompt[cached..])])?;
        let completion = Completion {
            tokens: Vec::new(),
            text: String::new(),
            finish_reason: FinishReason::Length,
            prompt_tokens: prompt.len() - cached,
            prompt_time: Duration::ZERO,
            decode_time: Duration::ZERO,
        };
        let limit = request.max_tokens.min(context - prompt.len());
        Ok(Generation {
            runner: self,
            sequence,
            tokenizer,
            request,
            tokens: prompt.to_vec(),
            prompt_len: prompt.len(),
            cached,
            limit,
            completion,
            detokenizer: tokenizer.map(Detokenizer::continuing),
            stop: StopStrings::new(request.stop.iter().cloned()),
            started: Instant::now(),
            queued: None,
            state: State::Start,
        })
    }

    /// Samples the token after `tokens`: on the GPU that holds the logits, if sampling depends on nothing else.
    fn sample(&mut self, logits: &Tensor, request: &Request, tokens: &[u32]) -> Result<SampledToken> {
        let (sampler, position) = (&request.sampler, tokens.len() as u64);
        match logits.device() {
            Device::Gpu(gpu) if request.top_logprobs == 0 && sampler.is_plain() => {
                // The kernel writes to pinned host memory, which saves a copy.
                let sampled = match &mut self.sampled {
                    Some(sampled) => sampled,
                    none => none.insert(HostBuffer::zeroed(gpu.stream.device(), 2)?),
                };
                let (id, logprob) = sampled.view_mut().split_at(1)?;
                let one = Layout::contiguous(&[1]).map_err(warpwave_tensor::Error::from)?;
                let view = |memory, dtype| ViewMut::of_bytes(memory, dtype, one).map_err(warpwave_tensor::Error::from);
                let (mut ids, mut logprobs) = (view(id.into_bytes(), DType::U32)?, view(logprob.into_bytes(), DType::F32)?);
                let random = RandomSource::Seed { seed: sampler.seed, offset: position };
                let launched = gpu.kernels.sample(&gpu.stream, &logits.view()?, &sampler.sampling, random, &mut ids, Some(&mut logprobs));
                launched.map_err(warpwave_tensor::Error::from)?;
                let sampled = sampled.as_slice()?;
                Ok(SampledToken { id: sampled[0], logprob: f32::from_bits(sampled[1]), top_logprobs: Vec::new() })
            }
            _ => Ok(sampler.sample(&mut logits.to_vec::<f32>()?, tokens, position, request.top_logprobs)?),
        }
    }
}

impl Iterator for Generation<'_> {
    type Item = Result<Event>;

    fn next(&mut self) -> Option<Result<Event>> {
        let event = match self.state {
            State::Start => {
                self.state = State::Running;
                self.started = Instant::now();
                Ok(Event::Prompt { processed: self.cached, total: self.prompt_len })
            }
            State::Running => self.advance(),
            State::Finishing => Ok(self.finish()),
            State::Ended => return None,
        };
        if event.is_err() {
            self.state = State::Ended;
        }
        Some(event)
    }
}

impl Generation<'_> {
    /// Runs to the end and reports each event to `listen`, which may cancel. The result is that of the last event.
    ///
    /// `Break` ends the generation with [`FinishReason::Cancelled`]; `Done` is still reported.
    pub fn run(mut self, mut listen: impl FnMut(&Event) -> ControlFlow<()>) -> Result<Completion> {
        loop {
            let Some(event) = self.next() else { return Ok(self.completion) };
            let event = event?;
            let flow = listen(&event);
            if let Event::Done { completion, .. } = event {
                return Ok(completion);
            }
            if flow.is_break() {
                self.cancel();
            }
        }
    }

    /// Cancels a generation that has not ended: the next event is [`Event::Done`].
    pub fn cancel(&mut self) {
        if !matches!(self.state, State::Start | State::Running) {
            return;
        }
        if self.completion.tokens.is_empty() {
            // During the prompt.
            self.completion.prompt_tokens = self.sequence.len() - self.cached;
            self.completion.prompt_time = self.started.elapsed();
        }
        self.finish_with(FinishReason::Cancelled);
    }

    fn finish_with(&mut self, reason: FinishReason) {
        self.completion.finish_reason = reason;
        self.state = State::Finishing;
    }

    /// Computes the next prompt chunk, or the next token.
    fn advance(&mut self) -> Result<Event> {
        let generated = self.completion.tokens.len();
        if generated >= self.limit {
            let reason = if self.limit < self.request.max_tokens { FinishReason::Context } else { FinishReason::Length };
            self.finish_with(reason);
            return Ok(self.finish());
        }
        if generated > 0 && self.runner.free_tokens_for(self.sequence) == 0 {
            self.finish_with(FinishReason::Context);
            return Ok(self.finish());
        }
        let logits = match self.runner.forward_chunk(self.sequence, &self.tokens) {
            Ok(logits) => logits,
            Err(error) => {
                if generated == 0 {
                    // The sequence is as before the prompt.
                    self.runner.truncate(self.sequence, self.cached);
                }
                return Err(error);
            }
        };
        if self.sequence.len() < self.tokens.len() {
            // A GPU queues work without waiting. At most one chunk runs ahead of what is reported, so that the GPU never idles and
            // cancelling takes effect soon.
            if let Device::Gpu(gpu) = self.runner.model().device()
                && let Some(before) = self.queued.replace(gpu.stream.record()?)
            {
                before.synchronize()?;
            }
            return Ok(Event::Prompt { processed: self.sequence.len(), total: self.prompt_len });
        }
        let token = self.runner.sample(&logits, self.request, &self.tokens)?;
        let elapsed = self.started.elapsed();
        self.started = Instant::now();
        match generated {
            0 => self.completion.prompt_time = elapsed,
            _ => self.completion.decode_time += elapsed,
        }
        if !self.request.ignore_eos && self.is_eos(token.id) {
            self.finish_with(FinishReason::Eos);
            return Ok(self.finish());
        }
        self.tokens.push(token.id);
        self.completion.tokens.push(token.clone());
        let new = self.detokenizer.as_mut().map(|detokenizer| detokenizer.push(token.id)).unwrap_or_default();
        let text = self.stop.push(&new);
        self.completion.text.push_str(&text);
        if self.stop.found().is_some() {
            self.finish_with(FinishReason::Stop);
        }
        Ok(Event::Token { token, text })
    }

    /// The last event, with the text that was held back.
    fn finish(&mut self) -> Event {
        self.state = State::Ended;
        let mut text = String::new();
        if self.stop.found().is_none() {
            text = self.stop.push(&self.detokenizer.as_mut().map(Detokenizer::finish).unwrap_or_default());
            text.push_str(&self.stop.finish());
            if self.stop.found().is_some() {
                self.completion.finish_reason = FinishReason::Stop;
            }
            self.completion.text.push_str(&text);
        }
        Event::Done { text, completion: self.completion.clone() }
    }

    /// Whether a token ends a text, by the tokenizer or by the model's configuration.
    fn is_eos(&self, token: u32) -> bool {
        self.runner.model().config().eos.contains(&token) || self.tokenizer.is_some_and(|tokenizer| tokenizer.eos().contains(&token))
    }
}
