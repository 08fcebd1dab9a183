//! Counters and histograms in Prometheus' text format.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};

use warpwave_llm::FinishReason;
use warpwave_llm::engine::{EngineStats, Summary};

/// Upper bounds of histograms of seconds.
const SECONDS: [f64; 16] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];
/// Upper bounds of histograms of tokens.
const TOKENS: [f64; 16] = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5];

#[derive(Debug, Clone, Copy, Default)]
struct Histogram {
    /// Of each bound, and of everything above.
    counts: [u64; 17],
    sum: f64,
}

impl Histogram {
    fn add(&mut self, bounds: &[f64; 16], value: f64) {
        let place = bounds.iter().position(|bound| value <= *bound).unwrap_or(bounds.len());
        self.counts[place] += 1;
        self.sum += value;
    }
}

/// The histograms of one model: name, description, whether it counts tokens.
const HISTOGRAMS: [(&str, &str, bool); 9] = [
    ("time_to_first_token_seconds", "Time from arrival to the first token.", false),
    ("inter_token_latency_seconds", "Time between consecutive tokens of a request.", false),
    ("request_time_per_output_token_seconds", "Mean time per token after the first.", false),
    ("e2e_request_latency_seconds", "End-to-end request latency.", false),
    ("request_queue_time_seconds", "Time in the queue.", false),
    ("request_prefill_time_seconds", "Prefill time: from leaving the queue to the first token.", false),
    ("request_decode_time_seconds", "Decode time: from the first token to the last.", false),
    ("request_prompt_tokens", "Prompt tokens of a request.", true),
    ("request_generation_tokens", "Generated tokens of a request.", true),
];

#[derive(Default)]
struct ModelMetrics {
    histograms: [Histogram; HISTOGRAMS.len()],
    /// Requests by the reason they ended.
    finished: BTreeMap<&'static str, u64>,
}

/// A counter of an engine.
type Counter = fn(&EngineStats) -> u64;

/// What is measured outside engines.
#[derive(Default)]
pub(crate) struct Metrics {
    models: Mutex<BTreeMap<String, ModelMetrics>>,
    responses: Mutex<BTreeMap<u16, u64>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Metrics {
    /// Counts a response.
    pub fn response(&self, status: u16) {
        *lock(&self.responses).entry(status).or_default() += 1;
    }

    /// Records the time between two tokens of a request.
    pub fn token_gap(&self, model: &str, seconds: f64) {
        let mut models = lock(&self.models);
        if !models.contains_key(model) {
            models.insert(model.to_owned(), ModelMetrics::default());
        }
        if let Some(metrics) = models.get_mut(model) {
            metrics.histograms[1].add(&SECONDS, seconds);
        }
    }

    /// Records the end of a request.
    pub fn finished(&self, model: &str, summary: &Summary) {
        let mut models = lock(&self.models);
        let metrics = models.entry(model.to_owned()).or_default();
        *metrics.finished.entry(reason_name(summary.reason)).or_default() += 1;
        if summary.reason == FinishReason::Cancelled {
            return;
        }
        let [waited, prompt, decode] = [summary.waited, summary.prompt_time, summary.decode_time].map(|time| time.as_secs_f64());
        let further = summary.tokens.saturating_sub(1);
        let per_token = (further > 0).then(|| decode / further as f64);
        let values = [
            Some(waited + prompt),
            None,
            per_token,
            Some(waited + prompt + decode),
            Some(waited),
            Some(prompt),
            Some(decode),
            Some(summary.prompt_tokens as f64),
            Some(summary.tokens as f64),
        ];
        for ((histogram, value), (_, _, tokens)) in metrics.histograms.iter_mut().zip(values).zip(HISTOGRAMS) {
            if let Some(value) = value {
                histogram.add(if tokens { &TOKENS } else { &SECONDS }, value);
            }
        }
    }

    /// Writes everything, with names that begin with `prefix`.
    pub fn text(&self, prefix: &str, engines: &[(String, EngineStats)]) -> String {
        let mut text = String::new();
        let gauge = |text: &mut String, name: &str, kind: &str, help: &str, value: &dyn Fn(&EngineStats) -> f64| {
            let _ = writeln!(text, "# HELP {prefix}{name} {help}\n# TYPE {prefix}{name} {kind}");
            for (model, stats) in engines {
                let _ = writeln!(text, "{prefix}{name}{{model_name=\"{}\"}} {}", escaped(model), value(stats));
            }
        };
        let used = |stats: &EngineStats| {
            if stats.blocks == 0 { 0.0 } else { 1.0 - stats.free_blocks as f64 / stats.blocks as f64 }
        };
        gauge(&mut text, "num_requests_running", "gauge", "Requests that are running.", &|stats| stats.running as f64);
        gauge(&mut text, "num_requests_waiting", "gauge", "Requests in the queue.", &|stats| stats.waiting as f64);
        gauge(&mut text, "kv_cache_usage_perc", "gauge", "Fraction of the KV cache in use, from 0 to 1.", &used);
        let counters: [(&str, &str, Counter); 9] = [
            ("prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.", |stats| stats.prefix_queries),
            ("prefix_cache_hits_total", "Prompt tokens found in the prefix cache.", |stats| stats.prefix_hits),
            ("num_preemptions_total", "Preempted requests.", |stats| stats.preemptions),
            ("prompt_tokens_total", "Prompt tokens.", |stats| stats.prompt_tokens),
            ("generation_tokens_total", "Generated tokens.", |stats| stats.generated_tokens),
            ("spec_decode_num_draft_tokens_total", "Draft tokens proposed by speculative decoding.", |stats| stats.drafted_tokens),
            ("spec_decode_num_accepted_tokens_total", "Draft tokens accepted.", |stats| stats.accepted_tokens),
            ("engine_steps_total", "Engine steps executed.", |stats| stats.steps),
            ("iteration_tokens", "Tokens processed in the last engine step.", |stats| stats.last_step_tokens as u64),
        ];
        for (name, help, value) in counters {
            let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
            gauge(&mut text, name, kind, help, &|stats| value(stats) as f64);
        }
        let models = lock(&self.models);
        let _ = writeln!(
            text,
            "# HELP {prefix}request_success_total Finished requests by reason.\n# TYPE {prefix}request_success_total counter"
        );
        for (model, metrics) in models.iter() {
            for (reason, count) in &metrics.finished {
                let model = escaped(model);
                let _ = writeln!(text, "{prefix}request_success_total{{model_name=\"{model}\",finished_reason=\"{reason}\"}} {count}");
            }
        }
        for (number, (name, help, tokens)) in HISTOGRAMS.into_iter().enumerate() {
            let _ = writeln!(text, "# HELP {prefix}{name} {help}\n# TYPE {prefix}{name} histogram");
            for (model, metrics) in models.iter() {
                let (model, Histogram { counts, sum }) = (escaped(model), metrics.histograms[number]);
                let mut all = 0;
                for (bound, count) in (if tokens { TOKENS } else { SECONDS }).iter().zip(counts) {
                    all += count;
                    let _ = writeln!(text, "{prefix}{name}_bucket{{model_name=\"{model}\",le=\"{bound}\"}} {all}");
                }
                all += counts[16];
                let _ = writeln!(text, "{prefix}{name}_bucket{{model_name=\"{model}\",le=\"+Inf\"}} {all}");
                let _ = writeln!(text, "{prefix}{name}_sum{{model_name=\"{model}\"}} {sum}");
                let _ = writeln!(text, "{prefix}{name}_count{{model_name=\"{model}\"}} {all}");
            }
        }
        drop(models);
        let _ = writeln!(text, "# HELP {prefix}http_responses_total HTTP responses.\n# TYPE {prefix}http_responses_total counter");
        for (status, count) in lock(&self.responses).iter() {
            let _ = writeln!(text, "{prefix}http_responses_total{{status=\"{status}\"}} {count}");
        }
        text
    }
}

/// The `finish_reason` of OpenAI's API.
pub(crate) fn reason_name(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Eos | FinishReason::Stop => "stop",
        FinishReason::Length | FinishReason::Context => "length",
        FinishReason::Cancelled => "abort",
    }
}

fn escaped(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn histograms_are_cumulative_and_labels_are_escaped() {
        let metrics = Metrics::default();
        let time = Duration::from_millis(20);
        let summary = Summary {
            reason: FinishReason::Length,
            stop: None,
            prompt_tokens: 3,
            cached_tokens: 0,
            tokens: 5,
            preemptions: 0,
            waited: time,
            prompt_time: time,
            decode_time: time,
        };
        metrics.finished("a\"b", &summary);
        metrics.finished("a\"b", &summary);
        metrics.response(200);
        let stats = EngineStats { blocks: 4, free_blocks: 1, ..EngineStats::default() };
        let text = metrics.text("warpwave_", &[("a\"b".to_owned(), stats)]);
        for line in [
            "warpwave_kv_cache_usage_perc{model_name=\"a\\\"b\"} 0.75",
            "warpwave_request_success_total{model_name=\"a\\\"b\",finished_reason=\"length\"} 2",
            "warpwave_request_queue_time_seconds_bucket{model_name=\"a\\\"b\",le=\"0.01\"} 0",
            "warpwave_request_queue_time_seconds_bucket{model_name=\"a\\\"b\",le=\"0.025\"} 2",
            "warpwave_request_generation_tokens_bucket{model_name=\"a\\\"b\",le=\"+Inf\"} 2",
            "warpwave_request_generation_tokens_sum{model_name=\"a\\\"b\"} 10",
            "warpwave_http_responses_total{status=\"200\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
    }
}
