//! The job API of workers: `POST /v1/jobs` returns a job, `GET /v1/jobs/{id}/stream` its events.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tokio::sync::mpsc::Receiver;
use warpwave_llm::engine::{EngineEvent, EngineRequest};
use warpwave_llm::{FinishReason, Request, Sampler};

use crate::access::read_json;
use crate::app::{App, InFlight};
use crate::channel::channels;
use crate::error::{ApiError, ApiResult};
use crate::fields::Fields;
use crate::images::{self, jobs::Operation};
use crate::model::ServedModel;
use crate::openai::answer::{ACCEL_BUFFERING, KEEP_ALIVE};
use crate::time::rfc3339_now;

/// The operation of a language model.
const INFER: &str = "infer";
/// The time between events with the speed so far.
const METRICS: Duration = Duration::from_secs(1);

/// Jobs that nobody reads yet, and those that are read.
pub(crate) struct Jobs<J>(Mutex<HashMap<String, Slot<J>>>);

enum Slot<J> {
    Waiting(Box<J>, Instant),
    /// A reader has, or had, the events.
    Taken,
}

impl<J> Default for Jobs<J> {
    fn default() -> Self {
        Jobs(Mutex::default())
    }
}

impl<J> Jobs<J> {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Slot<J>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn has(&self, id: &str) -> bool {
        self.lock().contains_key(id)
    }

    pub fn insert(&self, id: String, job: J) {
        self.lock().insert(id, Slot::Waiting(Box::new(job), Instant::now()));
    }

    pub fn remove(&self, id: &str) {
        self.lock().remove(id);
    }

    /// Forgets jobs that waited too long for a reader, which cancels them.
    pub fn forget_old(&self, limit: Duration) {
        self.lock().retain(|_, slot| !matches!(slot, Slot::Waiting(_, since) if since.elapsed() > limit));
    }

    pub fn take(&self, id: &str) -> ApiResult<J> {
        let mut jobs = self.lock();
        match jobs.get_mut(id) {
            None => Err(ApiError::new(StatusCode::NOT_FOUND, format!("job {id:?} not found")).code("job_not_found")),
            Some(slot) => match std::mem::replace(slot, Slot::Taken) {
                Slot::Waiting(job, _) => Ok(*job),
                Slot::Taken => {
                    Err(ApiError::new(StatusCode::CONFLICT, format!("another client is already reading the events of job {id:?}"))
                        .code("job_taken"))
                }
            },
        }
    }
}

/// A job of a language model.
pub(crate) struct Job {
    id: String,
    /// Held so that it is not unloaded.
    model: Arc<ServedModel>,
    started_at: String,
    events: Receiver<(usize, EngineEvent)>,
    _in_flight: InFlight,
}

pub(crate) async fn create(State(app): State<Arc<App>>, headers: HeaderMap, body: Body) -> ApiResult<Response> {
    let fields = read_json(&app, &headers, body).await?;
    let prepared = tokio::task::spawn_blocking({
        let app = app.clone();
        move || prepare(&app, &fields)
    });
    let id = prepared
        .await
        .map_err(|_| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal error while preparing the job; see the server's log"))??;
    let answer = json!({ "job_id": id, "sse_url": format!("/v1/jobs/{id}/stream") });
    tokio::spawn(async move {
        let limit = app.options.limits.unread_job;
        tokio::time::sleep(limit + Duration::from_millis(1)).await;
        app.jobs.forget_old(limit);
        app.images.jobs.forget_old(limit);
    });
    Ok(Json(answer).into_response())
}

/// Starts a job and returns its name.
fn prepare(app: &Arc<App>, fields: &Fields) -> ApiResult<String> {
    let operation = fields.string("operation")?;
    if let Some(operation) = operation.and_then(Operation::from_name) {
        return images::jobs::start(app, operation, fields);
    }
    if operation != Some(INFER) {
        let expected = std::iter::once(INFER).chain(Operation::ALL.map(Operation::name)).collect::<Vec<_>>().join(", ");
        let found =
            operation.map_or("missing required field `operation`".to_owned(), |name| format!("operation {name:?} is not supported"));
        return Err(ApiError::invalid("operation", format!("{found}; expected one of: {expected}")));
    }
    let model = app.model(fields.string("model")?)?;
    let Some(prompt) = fields.string("prompt")? else { return Err(ApiError::invalid("prompt", "missing required field `prompt`")) };
    let tokens = model.tokenizer.encode_prompt(prompt, true)?;
    let sampler = sampler(fields)?;
    let max_tokens = fields.integer("max_tokens", 1, 1 << 31)?.unwrap_or(256) as usize;
    let params = Request { max_tokens, sampler, stop: fields.strings("stop", 4)?, ..Request::default() };
    let in_flight = app.enter()?;
    let (mut sinks, events) = channels(1);
    let Some(sink) = sinks.pop() else { return Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "no channel")) };
    model.client.submit_to(EngineRequest::new(tokens, params), Box::new(sink))?;
    let (id, started_at) = (app.new_id("job-"), rfc3339_now());
    app.jobs.insert(id.clone(), Job { id: id.clone(), model, started_at, events, _in_flight: in_flight });
    Ok(id)
}

/// The sampling parameters of a job. What it cannot set has the values that such workers use: a mild repetition penalty, a fixed seed.
fn sampler(fields: &Fields) -> ApiResult<Sampler> {
    let mut sampler = Sampler { penalty_window: 128, ..Sampler::default() };
    sampler.sampling.temperature = fields.number("temperature", 0.0, 2.0)?.unwrap_or(0.0);
    sampler.sampling.top_p = fields.number("top_p", 0.0, 1.0)?.unwrap_or(1.0);
    sampler.sampling.top_k = fields.count("top_k", 1 << 31)?.unwrap_or(0);
    sampler.penalties.repetition = fields.number("repetition_penalty", 0.01, 100.0)?.unwrap_or(1.1);
    sampler.seed = fields.integer("seed", 0, i64::MAX)?.unwrap_or(42) as u64;
    sampler.check()?;
    Ok(sampler)
}

pub(crate) async fn stream(State(app): State<Arc<App>>, Path(id): Path<String>) -> ApiResult<Response> {
    if app.images.jobs.has(&id) {
        return images::jobs::stream(app, &id);
    }
    let job = app.jobs.take(&id)?;
    let started = json!({ "type": "started", "job_id": job.id, "model": job.model.id, "started_at": job.started_at });
    let reader =
        Reader { app, job, ready: vec![started.to_string()], tokens: 0, first: None, measured: Instant::now(), state: Phase::Running };
    let events = futures_util::stream::unfold(reader, |mut reader| async move {
        let data = reader.next().await?;
        Some((Ok::<Event, Infallible>(Event::default().data(data)), reader))
    });
    let mut response = Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response();
    response.headers_mut().insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
    Ok(response)
}

/// Where a stream is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Running,
    /// `[DONE]` is to be sent.
    Ending,
    Ended,
}

struct Reader {
    app: Arc<App>,
    job: Job,
    /// Events to send, last first.
    ready: Vec<String>,
    tokens: usize,
    first: Option<Instant>,
    measured: Instant,
    state: Phase,
}

impl Reader {
    async fn next(&mut self) -> Option<String> {
        loop {
            if let Some(event) = self.ready.pop() {
                return Some(event);
            }
            match self.state {
                Phase::Ended => {
                    self.app.jobs.remove(&self.job.id);
                    return None;
                }
                Phase::Ending => {
                    self.state = Phase::Ended;
                    return Some("[DONE]".to_owned());
                }
                Phase::Running => {
                    let events = match self.job.events.recv().await {
                        Some((_, event)) => self.handle(event),
                        None => vec![self.error("CANCELLED", "the worker stopped")],
                    };
                    self.ready.extend(events.into_iter().rev().map(|event| event.to_string()));
                }
            }
        }
    }

    fn error(&mut self, code: &str, message: &str) -> Value {
        self.state = Phase::Ending;
        json!({ "type": "error", "code": code, "message": message })
    }

    fn metrics(&self) -> Value {
        let seconds = self.first.map_or(0.0, |first| first.elapsed().as_secs_f64());
        let speed = if self.tokens > 1 && seconds > 0.0 { (self.tokens - 1) as f64 / seconds } else { 0.0 };
        // Memory of the device is not tracked per worker: 0 says unknown.
        json!({ "type": "metrics", "tokens_per_sec": speed, "vram_bytes": 0 })
    }

    fn handle(&mut self, event: EngineEvent) -> Vec<Value> {
        match event {
            EngineEvent::Started { .. } | EngineEvent::Embedding { .. } => Vec::new(),
            EngineEvent::Token { text, .. } => {
                self.first.get_or_insert_with(Instant::now);
                let mut events = vec![json!({ "type": "token", "t": text, "i": self.tokens })];
                self.tokens += 1;
                if self.measured.elapsed() >= METRICS {
                    self.measured = Instant::now();
                    events.push(self.metrics());
                }
                events
            }
            EngineEvent::Done { text, summary } => {
                self.app.metrics.finished(&self.job.model.id, &summary);
                let mut events = Vec::new();
                if !text.is_empty() {
                    events.push(json!({ "type": "token", "t": text, "i": self.tokens }));
                }
                events.push(self.metrics());
                if summary.reason == FinishReason::Cancelled {
                    events.push(self.error("CANCELLED", "the job was canceled"));
                    return events;
                }
                let reason = match summary.reason {
                    FinishReason::Length => "MAX_TOKENS",
                    FinishReason::Context => "CONTEXT_FULL",
                    FinishReason::Stop => "STOP_SEQUENCE",
                    _ => "EOS",
                };
                let mut end = json!({
                    "type": "end", "tokens_out": summary.tokens, "decode_time_ms": summary.decode_time.as_millis() as u64, "stop_reason": reason,
                });
                if let Some(stop) = summary.stop {
                    end["stop_sequence_matched"] = stop.into();
                }
                events.push(end);
                self.state = Phase::Ending;
                events
            }
            EngineEvent::Failed { message } => {
                let code = if message.contains("out of memory") { "VRAM_OOM" } else { "INFERENCE_FAILED" };
                vec![self.error(code, &message)]
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // Of a job that ended, or whose reader left, nothing remains.
        self.app.jobs.remove(&self.job.id);
    }
}
