//! Turns the events of a request's choices into a response, whole or streamed.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tokio::sync::mpsc::Receiver;
use warpwave_llm::SampledToken;
use warpwave_llm::engine::{EngineEvent, Summary};

use crate::app::{App, InFlight};
use crate::channel::channels;
use crate::error::{ApiError, ApiResult};
use crate::metrics::reason_name;
use crate::model::{ServedModel, unix_time};
use crate::openai::params::Params;
use crate::openai::prompts::Prompt;
use crate::output::{OutputParser, Parsed, ToolCall};

/// Silence after which a stream sends a comment, so that proxies keep it open.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(15);
pub(crate) const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Which of the two forms of OpenAI's answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Chat,
    Text,
}

/// One choice of an answer, as far as it was written.
struct Choice {
    parser: OutputParser,
    /// Text that the first delta begins with (`echo`).
    echo: String,
    content: String,
    reasoning: String,
    calls: Vec<Value>,
    logprobs: Vec<Value>,
    token_ids: Vec<u32>,
    /// Characters before the next token, for the old form of log probabilities.
    offset: usize,
    last_token: Option<Instant>,
    finish: Option<String>,
}

/// What an event adds to a choice.
#[derive(Default)]
struct Delta {
    content: String,
    reasoning: String,
    calls: Vec<Value>,
    logprobs: Vec<Value>,
    token_ids: Vec<u32>,
    finish: Option<String>,
}

/// An answer that is being written. Dropping it cancels its requests.
pub(crate) struct Answer {
    app: Arc<App>,
    model: Arc<ServedModel>,
    form: Form,
    id: String,
    created: u64,
    params: Params,
    events: Receiver<(usize, EngineEvent)>,
    choices: Vec<Choice>,
    running: usize,
    prompt_tokens: usize,
    cached_tokens: usize,
    completion_tokens: usize,
    _in_flight: InFlight,
}

impl Answer {
    /// Submits `params.n` requests for each prompt.
    pub fn submit(
        app: Arc<App>,
        model: Arc<ServedModel>,
        form: Form,
        params: Params,
        prompts: Vec<Prompt>,
        parser: &OutputParser,
    ) -> ApiResult<Answer> {
        let in_flight = app.enter()?;
        let count = prompts.len() * params.n;
        if count > app.options.limits.choices {
            let most = app.options.limits.choices;
            return Err(ApiError::invalid("n", format!("{count} choices requested; the maximum is {most}")));
        }
        let (sinks, events) = channels(count);
        let prompt_tokens = prompts.iter().map(|prompt| prompt.tokens.len()).sum();
        let mut choices = Vec::new();
        let mut sinks = sinks.into_iter();
        for prompt in prompts {
            for choice in 0..params.n {
                let request = params.engine_request(&model, prompt.tokens.clone(), choice)?;
                let Some(sink) = sinks.next() else { break };
                model.client.submit_to(request, Box::new(sink))?;
                choices.push(Choice {
                    parser: parser.clone(),
                    offset: prompt.echo.chars().count(),
                    echo: prompt.echo.clone(),
                    content: String::new(),
                    reasoning: String::new(),
                    calls: Vec::new(),
                    logprobs: Vec::new(),
                    token_ids: Vec::new(),
                    last_token: None,
                    finish: None,
                });
            }
        }
        let id = app.new_id(if form == Form::Chat { "chatcmpl-" } else { "cmpl-" });
        Ok(Answer {
            form,
            id,
            created: unix_time(),
            params,
            events,
            running: choices.len(),
            choices,
            prompt_tokens,
            cached_tokens: 0,
            completion_tokens: 0,
            model,
            app,
            _in_flight: in_flight,
        })
    }

    /// Responds as the request asks: with a stream, or with the whole answer.
    pub async fn respond(self) -> Response {
        if self.params.stream { self.stream() } else { self.whole().await.into_response() }
    }

    async fn whole(mut self) -> ApiResult<Json<Value>> {
        while self.running > 0 {
            let (index, event) = self.events.recv().await.ok_or_else(engine_stopped)?;
            let delta = self.handle(index, event)?;
            let choice = &mut self.choices[index];
            choice.content.push_str(&delta.content);
            choice.reasoning.push_str(&delta.reasoning);
            choice.calls.extend(delta.calls);
            choice.logprobs.extend(delta.logprobs);
            choice.token_ids.extend(delta.token_ids);
            choice.finish = delta.finish.or(choice.finish.take());
        }
        let choices: Vec<Value> = self.choices.iter().enumerate().map(|(index, choice)| self.choice_json(index, choice)).collect();
        let object = if self.form == Form::Chat { "chat.completion" } else { "text_completion" };
        Ok(Json(json!({
            "id": self.id, "object": object, "created": self.created, "model": self.model.id, "choices": choices, "usage": self.usage(),
        })))
    }

    fn choice_json(&self, index: usize, choice: &Choice) -> Value {
        let logprobs = self.logprobs_json(&choice.logprobs);
        let mut json = match self.form {
            Form::Text => {
                let text = format!("{}{}", choice.echo, choice.content);
                json!({ "index": index, "text": text, "logprobs": logprobs, "finish_reason": choice.finish })
            }
            Form::Chat => {
                let content =
                    if choice.content.is_empty() && !choice.calls.is_empty() { Value::Null } else { choice.content.clone().into() };
                let mut message = json!({ "role": "assistant", "content": content });
                if !choice.reasoning.is_empty() {
                    // Both names are in use.
                    message["reasoning"] = choice.reasoning.clone().into();
                    message["reasoning_content"] = choice.reasoning.clone().into();
                }
                if !choice.calls.is_empty() {
                    message["tool_calls"] = choice.calls.iter().map(without_index).collect();
                }
                json!({ "index": index, "message": message, "logprobs": logprobs, "finish_reason": choice.finish })
            }
        };
        if self.params.token_ids {
            json["token_ids"] = json!(choice.token_ids);
        }
        json
    }

    fn logprobs_json(&self, entries: &[Value]) -> Value {
        if !self.params.logprobs {
            return Value::Null;
        }
        if self.form == Form::Chat {
            return json!({ "content": entries });
        }
        let column = |name: &str| entries.iter().map(|entry| entry[name].clone()).collect::<Value>();
        json!({
            "tokens": column("token"), "token_logprobs": column("logprob"), "top_logprobs": column("top"), "text_offset": column("offset"),
        })
    }

    fn usage(&self) -> Value {
        json!({
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": { "cached_tokens": self.cached_tokens },
        })
    }

    /// Handles an event of a choice.
    fn handle(&mut self, index: usize, event: EngineEvent) -> ApiResult<Delta> {
        let mut delta = Delta::default();
        match event {
            EngineEvent::Started { .. } | EngineEvent::Embedding { .. } => (),
            EngineEvent::Token { token, text } => {
                let now = Instant::now();
                if let Some(last) = self.choices[index].last_token.replace(now) {
                    self.app.metrics.token_gap(&self.model.id, (now - last).as_secs_f64());
                }
                if self.params.logprobs {
                    delta.logprobs.push(self.token_json(index, &token));
                }
                if self.params.token_ids {
                    delta.token_ids.push(token.id);
                }
                let choice = &mut self.choices[index];
                choice.offset += text.chars().count();
                let parsed = choice.parser.push(&text);
                self.add(index, parsed, &mut delta);
            }
            EngineEvent::Done { text, summary } => {
                let choice = &mut self.choices[index];
                let parsed = choice.parser.push(&text);
                self.add(index, parsed, &mut delta);
                let parsed = self.choices[index].parser.finish();
                self.add(index, parsed, &mut delta);
                self.finish(index, &summary, &mut delta);
            }
            EngineEvent::Failed { message } => {
                tracing::warn!(id = self.id, message, "request failed");
                return Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message));
            }
        }
        Ok(delta)
    }

    fn finish(&mut self, index: usize, summary: &Summary, delta: &mut Delta) {
        self.running -= 1;
        self.cached_tokens += summary.cached_tokens;
        self.completion_tokens += summary.tokens;
        self.app.metrics.finished(&self.model.id, summary);
        let called = !self.choices[index].calls.is_empty();
        let reason = reason_name(summary.reason);
        delta.finish = Some(if called && reason == "stop" { "tool_calls" } else { reason }.to_owned());
    }

    /// Adds what a parser found.
    fn add(&mut self, index: usize, parsed: Parsed, delta: &mut Delta) {
        delta.content.push_str(&parsed.content);
        delta.reasoning.push_str(&parsed.reasoning);
        for ToolCall { name, arguments } in parsed.calls {
            let id = self.app.new_id("call_");
            let choice = &mut self.choices[index];
            let call = json!({
                "index": choice.calls.len() , "id": id, "type": "function", "function": { "name": name, "arguments": arguments },
            });
            if self.params.stream {
                // Only counted: the stream sends each once.
                choice.calls.push(Value::Null);
                delta.calls.push(call);
            } else {
                choice.calls.push(call);
            }
        }
    }

    /// The text of a token, or its bytes where it is not text by itself: keys of an object must differ.
    fn token_key(&self, id: u32) -> String {
        let bytes = self.model.tokenizer.token(id).unwrap_or_default();
        match std::str::from_utf8(bytes) {
            Ok("") => format!("token:{id}"),
            Ok(text) => text.to_owned(),
            Err(_) => bytes.iter().fold("bytes:".to_owned(), |text, byte| format!("{text}\\x{byte:02x}")),
        }
    }

    /// The log probabilities of a token, in the form of the answer.
    fn token_json(&self, index: usize, token: &SampledToken) -> Value {
        let bytes = |id: u32| self.model.tokenizer.token(id).unwrap_or_default();
        let text = |id: u32| String::from_utf8_lossy(bytes(id)).into_owned();
        // JSON has no infinity.
        let finite = |logprob: f32| logprob.max(-9999.0);
        if self.form == Form::Text {
            let top: serde_json::Map<String, Value> =
                token.top_logprobs.iter().map(|(id, logprob)| (self.token_key(*id), finite(*logprob).into())).collect();
            let offset = self.choices[index].offset;
            return json!({ "token": self.token_key(token.id), "logprob": finite(token.logprob), "top": top, "offset": offset });
        }
        let entry = |id: u32, logprob: f32| json!({ "token": text(id), "logprob": finite(logprob), "bytes": bytes(id) });
        let top: Vec<Value> = token.top_logprobs.iter().map(|(id, logprob)| entry(*id, *logprob)).collect();
        let mut own = entry(token.id, token.logprob);
        own["top_logprobs"] = top.into();
        own
    }

    fn stream(self) -> Response {
        let chunks = futures_util::stream::unfold(Streaming::new(self), |mut streaming| async move {
            let data = streaming.next().await?;
            Some((Ok::<Event, Infallible>(Event::default().data(data)), streaming))
        });
        let mut response = Sse::new(chunks).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response();
        response.headers_mut().insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
        response
    }

    fn chunk(&self, choices: &Value, usage: Option<Value>) -> String {
        let object = if self.form == Form::Chat { "chat.completion.chunk" } else { "text_completion" };
        let mut chunk = json!({ "id": self.id, "object": object, "created": self.created, "model": self.model.id, "choices": choices });
        if let Some(usage) = usage {
            chunk["usage"] = usage;
        }
        chunk.to_string()
    }

    /// The chunks of a delta; none if it adds nothing.
    fn delta_chunk(&mut self, index: usize, mut delta: Delta) -> Option<String> {
        let empty = delta.content.is_empty() && delta.reasoning.is_empty() && delta.calls.is_empty();
        if empty && delta.logprobs.is_empty() && delta.token_ids.is_empty() && delta.finish.is_none() {
            return None;
        }
        let logprobs = if delta.logprobs.is_empty() { Value::Null } else { self.logprobs_json(&delta.logprobs) };
        let mut choice = match self.form {
            Form::Text => {
                let echo = std::mem::take(&mut self.choices[index].echo);
                json!({ "index": index, "text": echo + &delta.content, "logprobs": logprobs, "finish_reason": delta.finish })
            }
            Form::Chat => {
                let mut fields = serde_json::Map::new();
                if !delta.content.is_empty() {
                    fields.insert("content".to_owned(), std::mem::take(&mut delta.content).into());
                }
                if !delta.reasoning.is_empty() {
                    fields.insert("reasoning".to_owned(), delta.reasoning.clone().into());
                    fields.insert("reasoning_content".to_owned(), delta.reasoning.into());
                }
                if !delta.calls.is_empty() {
                    fields.insert("tool_calls".to_owned(), delta.calls.into());
                }
                json!({ "index": index, "delta": fields, "logprobs": logprobs, "finish_reason": delta.finish })
            }
        };
        if self.params.token_ids {
            choice["token_ids"] = json!(delta.token_ids);
        }
        Some(self.chunk(&json!([choice]), None))
    }
}

/// The calls of a whole message have no index.
fn without_index(call: &Value) -> Value {
    let mut call = call.clone();
    if let Some(fields) = call.as_object_mut() {
        fields.shift_remove("index");
    }
    call
}

fn engine_stopped() -> ApiError {
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "the server stopped before the response was complete")
}

/// An answer on its way to a client.
struct Streaming {
    answer: Answer,
    ready: VecDeque<String>,
    ended: bool,
}

impl Streaming {
    fn new(answer: Answer) -> Streaming {
        let mut ready = VecDeque::new();
        if answer.form == Form::Chat {
            for index in 0..answer.choices.len() {
                let delta = json!({ "role": "assistant", "content": "" });
                let choice = json!([{ "index": index, "delta": delta, "logprobs": null, "finish_reason": null }]);
                ready.push_back(answer.chunk(&choice, None));
            }
        }
        Streaming { answer, ready, ended: false }
    }

    /// The data of the next event.
    async fn next(&mut self) -> Option<String> {
        loop {
            if let Some(data) = self.ready.pop_front() {
                return Some(data);
            }
            if self.ended {
                return None;
            }
            if self.answer.running == 0 {
                if self.answer.params.usage {
                    self.ready.push_back(self.answer.chunk(&json!([]), Some(self.answer.usage())));
                }
                self.ready.push_back("[DONE]".to_owned());
                self.ended = true;
                continue;
            }
            let handled = match self.answer.events.recv().await {
                Some((index, event)) => self.answer.handle(index, event).map(|delta| (index, delta)),
                None => Err(engine_stopped()),
            };
            match handled {
                Ok((index, delta)) => self.ready.extend(self.answer.delta_chunk(index, delta)),
                Err(error) => {
                    // The status was sent long ago: the error is an event.
                    self.ready.push_back(error.body().to_string());
                    self.ended = true;
                }
            }
        }
    }
}
