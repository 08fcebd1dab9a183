//! The load: clients that stream completions from a server, and what they measured.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::workload::Job;

/// A server with OpenAI's API.
pub struct Target {
    pub url: String,
    model: Option<String>,
    key: Option<String>,
    agent: ureq::Agent,
}

/// What one answer was like. Times are in seconds.
#[derive(Debug, Default)]
pub struct Answer {
    pub prompt_tokens: usize,
    pub tokens: usize,
    /// From sending to the first text.
    pub first: f64,
    /// Between texts.
    pub gaps: Vec<f64>,
    pub total: f64,
}

/// The results of a run.
#[derive(Debug, Default)]
pub struct Results {
    pub answers: Vec<Answer>,
    /// Failures and how often they occurred.
    pub errors: BTreeMap<String, usize>,
    pub seconds: f64,
}

impl Target {
    pub fn new(url: &str, key: Option<String>, timeout: Duration) -> Target {
        let url = url.trim_end_matches('/').trim_end_matches("/v1").to_owned();
        let config = ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(timeout));
        // A connection for each client stays open.
        Target { url, model: None, key, agent: config.max_idle_connections_per_host(1024).max_idle_connections(1024).build().into() }
    }

    /// Finds out the name of the first model, unless one is given.
    pub fn named(self) -> Result<Target, String> {
        let model = match &self.model {
            Some(model) => model.clone(),
            None => self.first_model()?,
        };
        Ok(Target { model: Some(model), ..self })
    }

    fn first_model(&self) -> Result<String, String> {
        let mut request = self.agent.get(format!("{}/v1/models", self.url));
        if let Some(key) = &self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        let mut response = request.call().map_err(|error| format!("{}: {error}", self.url))?;
        let status = response.status();
        let text = response.body_mut().read_to_string().map_err(|error| format!("{}: {error}", self.url))?;
        let models: Value = serde_json::from_str(&text).unwrap_or_default();
        let name = models["data"][0]["id"].as_str().map(str::to_owned);
        name.ok_or_else(|| format!("{}/v1/models: expected a list of models, got status {status}: {}", self.url, short(&text)))
    }

    /// Streams one completion.
    pub fn ask(&self, job: &Job) -> Result<Answer, String> {
        let body = json!({
            "model": self.model, "prompt": job.prompt, "max_tokens": job.tokens, "temperature": 0, "ignore_eos": true,
            "stream": true, "stream_options": { "include_usage": true },
        });
        let mut request = self.agent.post(format!("{}/v1/completions", self.url)).header("content-type", "application/json");
        if let Some(key) = &self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        let started = Instant::now();
        let mut response = request.send(body.to_string()).map_err(|error| kind(&error))?;
        if !response.status().is_success() {
            let text = response.body_mut().read_to_string().unwrap_or_default();
            let message = serde_json::from_str::<Value>(&text).ok().and_then(|body| Some(body["error"]["message"].as_str()?.to_owned()));
            return Err(format!("status {}: {}", response.status().as_u16(), short(&message.unwrap_or(text))));
        }
        let mut answer = Answer::default();
        let mut last = None;
        let mut texts = 0;
        for line in BufReader::new(response.body_mut().as_reader()).lines() {
            let line = line.map_err(|error| format!("the stream was interrupted: {}", error.kind()))?;
            let Some(data) = line.strip_prefix("data:").map(str::trim) else { continue };
            if data == "[DONE]" {
                answer.total = started.elapsed().as_secs_f64();
                if answer.tokens == 0 {
                    // A server that does not count.
                    answer.tokens = texts;
                }
                return if texts > 0 { Ok(answer) } else { Err("the response has no text".to_owned()) };
            }
            let chunk: Value = serde_json::from_str(data).map_err(|_| "a chunk is not valid JSON".to_owned())?;
            if let Some(message) = chunk["error"]["message"].as_str() {
                return Err(format!("error in the stream: {}", short(message)));
            }
            if let Some(usage) = chunk.get("usage").filter(|usage| usage.is_object()) {
                let count = |name: &str| usage[name].as_u64().unwrap_or(0) as usize;
                (answer.prompt_tokens, answer.tokens) = (count("prompt_tokens"), count("completion_tokens"));
            }
            if chunk["choices"][0]["text"].as_str().is_some_and(|text| !text.is_empty()) {
                let now = Instant::now();
                match last.replace(now) {
                    None => answer.first = (now - started).as_secs_f64(),
                    Some(before) => answer.gaps.push((now - before).as_secs_f64()),
                }
                texts += 1;
            }
        }
        Err("the stream ended without [DONE]".to_owned())
    }

    /// Sends all requests, `streams` at a time; reports each end.
    pub fn load(&self, jobs: &[Job], streams: usize, ended: impl Fn() + Sync) -> Results {
        let next = AtomicUsize::new(0);
        let results = Mutex::new(Results::default());
        let started = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..streams.min(jobs.len()) {
                scope.spawn(|| {
                    while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let asked = self.ask(job);
                        let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                        match asked {
                            Ok(answer) => results.answers.push(answer),
                            Err(error) => *results.errors.entry(error).or_default() += 1,
                        }
                        drop(results);
                        ended();
                    }
                });
            }
        });
        let seconds = started.elapsed().as_secs_f64();
        Results { seconds, ..results.into_inner().unwrap_or_else(PoisonError::into_inner) }
    }
}

/// A connection's failure, without what differs from one to the next.
fn kind(error: &ureq::Error) -> String {
    match error {
        ureq::Error::Timeout(_) => "timeout".to_owned(),
        ureq::Error::Io(error) => format!("connection: {}", error.kind()),
        other => other.to_string(),
    }
}

fn short(text: &str) -> String {
    text.chars().take(120).collect()
}

impl Answer {
    /// Returns the mean time per token after the first.
    pub fn per_token(&self) -> Option<f64> {
        (self.tokens > 1).then(|| (self.total - self.first) / (self.tokens - 1) as f64)
    }
}

impl Results {
    pub fn failed(&self) -> usize {
        self.errors.values().sum()
    }

    /// Returns the generated tokens per second of all streams together.
    pub fn throughput(&self) -> f64 {
        self.answers.iter().map(|answer| answer.tokens).sum::<usize>() as f64 / self.seconds
    }

    pub fn first(&self) -> Vec<f64> {
        self.answers.iter().map(|answer| answer.first).collect()
    }

    pub fn gaps(&self) -> Vec<f64> {
        self.answers.iter().flat_map(|answer| answer.gaps.iter().copied()).collect()
    }

    pub fn per_token(&self) -> Vec<f64> {
        self.answers.iter().filter_map(Answer::per_token).collect()
    }

    pub fn totals(&self) -> Vec<f64> {
        self.answers.iter().map(|answer| answer.total).collect()
    }
}
