//! `warpwave bench serve`: a server under load, optionally against a peer in the same run.

mod client;
mod workload;

use std::io::IsTerminal;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};
use warpwave_kernels::DType;
use warpwave_llm::{Checkpoint, Config};
use warpwave_serve::{AppOptions, Listen, Server};
use warpwave_weights::Kind;

use super::super::llm::ModelArgs;
use super::super::plot::{self, Axes};
use super::super::serve::{EngineArgs, add_model};
use super::super::{Context, Failure, Outcome, failed};
use client::{Results, Target};
use workload::{Workload, WorkloadKind};

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    warpwave bench serve model.gguf --device cuda:0 --streams 1,8,32,64,256 --workload fixed --plot serve.svg\n  \
    warpwave bench serve --random --dtype q4_k --device cuda:0 --streams 1,32\n  \
    warpwave bench serve --url http://127.0.0.1:8080 --workload sharegpt --json\n  \
    warpwave bench serve model.gguf --peer http://127.0.0.1:8000\n\n\
    Without --url, the model is served by this process and measured over HTTP. TTFT is the time to the first token, ITL the time between streamed chunks, \
    TPOT the mean time per token after the first. Prompts are random token ids; temperature is 0 and end-of-sequence tokens are ignored, \
    so that all servers do the same work. With --peer, both servers are measured in turn at each number of streams.")]
pub(super) struct Options {
    #[command(flatten)]
    model_args: ModelArgs,
    /// Use a Llama 3.1 8B model with random weights of the type set by --dtype (bf16, q8_0 or q4_k; default: bf16).
    #[arg(long, conflicts_with_all = ["model", "url"])]
    random: bool,
    /// Measure the server at this URL instead of serving a model.
    #[arg(long, value_name = "URL", conflicts_with = "model")]
    url: Option<String>,
    /// Compare with the server at this URL.
    #[arg(long, value_name = "URL")]
    peer: Option<String>,
    /// Set the API key of --url.
    #[arg(long, value_name = "KEY", env = "WARPWAVE_API_KEY", hide_env_values = true)]
    api_key: Option<String>,
    /// Set the API key of --peer.
    #[arg(long, value_name = "KEY")]
    peer_key: Option<String>,
    /// Set the lengths and shared prefixes of the requests.
    #[arg(long, value_enum, default_value = "sharegpt")]
    workload: WorkloadKind,
    /// Set the prompt length in tokens, for fixed and prefix.
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..))]
    prompt: u32,
    /// Generate N tokens per request, for fixed and prefix.
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    tokens: u32,
    /// Measure with these numbers of concurrent streams.
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,4,16", value_parser = clap::value_parser!(u16).range(1..))]
    streams: Vec<u16>,
    /// Send N requests for each number of streams; default: 4 per stream, at least 8.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    requests: Option<u32>,
    /// Draw token ids below N; default: the vocabulary, or 20000 with --url.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    vocab: Option<u32>,
    /// Set the random seed of lengths and prompts.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Fail requests that take longer than this.
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    timeout: u64,
    /// Plot the throughput to an SVG file.
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    engine: EngineArgs,
}

/// The measurements with one number of streams.
struct Level {
    streams: usize,
    ours: Results,
    theirs: Option<Results>,
}

/// A server in this process.
struct Own {
    server: Server,
    url: String,
    title: String,
    vocab: u32,
    context: usize,
}

pub(super) fn run(context: &mut Context<'_>, options: &Options) -> Outcome {
    let timeout = Duration::from_secs(options.timeout);
    let own = if options.url.is_some() { None } else { Some(Own::start(context, options)?) };
    let target = |url: &str, key: Option<&String>| Target::new(url, key.cloned(), timeout).named().map_err(failed);
    let ours = match (&options.url, &own) {
        (None, Some(own)) => target(&own.url, None)?,
        (url, _) => target(url.as_deref().unwrap_or_default(), options.api_key.as_ref())?,
    };
    let peer = options.peer.as_ref().map(|url| target(url, options.peer_key.as_ref())).transpose()?;
    let vocab = options.vocab.unwrap_or(own.as_ref().map_or(20_000, |own| own.vocab));
    let workload =
        Workload { kind: options.workload, prompt: options.prompt as usize, tokens: options.tokens as usize, vocab, seed: options.seed };
    let needed = if options.workload == WorkloadKind::Sharegpt { 2048 } else { workload.prompt + workload.tokens };
    if let Some(own) = own.as_ref().filter(|own| own.context < needed) {
        return Err(failed(format!("requests have up to {needed} tokens, but the context length is {}; increase --context", own.context)));
    }
    // Kernels are compiled and selected at first use.
    for target in std::iter::once(&ours).chain(&peer) {
        target.ask(&workload.jobs(1, u64::MAX - 1).remove(0)).map_err(|error| failed(format!("{}: {error}", target.url)))?;
    }
    let title = own.as_ref().map_or_else(|| ours.url.clone(), |own| own.title.clone());
    let mut levels = Vec::new();
    for (number, streams) in options.streams.iter().map(|streams| usize::from(*streams)).enumerate() {
        let requests = options.requests.map_or((4 * streams).max(8), |requests| requests as usize);
        let jobs = workload.jobs(requests, number as u64);
        let measure = |target: &Target| {
            let bar = progress(requests, &format!("{streams} streams, {}", target.url));
            let results = target.load(&jobs, streams, || bar.inc(1));
            bar.finish_and_clear();
            results
        };
        levels.push(Level { streams, ours: measure(&ours), theirs: peer.as_ref().map(measure) });
    }
    if let Some(own) = own {
        own.server.stop(Duration::ZERO);
    }
    report(context, options, &title, peer.as_ref(), &levels)
}

impl Own {
    fn start(context: &mut Context<'_>, options: &Options) -> Result<Own, Failure> {
        let listen = Listen::Tcp(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0));
        let server =
            Server::start(&listen, AppOptions::default()).map_err(|error| failed(format!("cannot listen on 127.0.0.1: {error}")))?;
        let mut model = options.model_args.clone();
        let (checkpoint, name) = match options.random {
            true => {
                let kind = model.kind.take().unwrap_or(Kind::Plain(DType::Bf16));
                (Checkpoint::random(Config::llama_8b(), kind)?, Some(format!("llama-8b-{kind}")))
            }
            false => (model.open(context)?, None),
        };
        let served = add_model(context, &server, &model, &options.engine, checkpoint, name, Vec::new())?;
        let address = server.address().map_or_else(String::new, |address| address.to_string());
        let title = format!("{} on {}", served.id, served.device);
        Ok(Own { server, url: format!("http://{address}"), title, vocab: served.vocab as u32, context: served.context })
    }
}

fn progress(requests: usize, what: &str) -> ProgressBar {
    let bar = ProgressBar::new(requests as u64);
    if !std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    let style = ProgressStyle::with_template("{msg} {bar:30} {pos}/{len} requests, {eta} left");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message(what.to_owned());
    bar
}

/// The value below which a share of the sorted values lies.
fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    sorted.get((share * last as f64).round() as usize).copied()
}

/// Mean and quantiles in milliseconds.
fn summary(mut seconds: Vec<f64>) -> Value {
    seconds.sort_by(f64::total_cmp);
    let ms = |share: f64| quantile(&seconds, share).map(|value| value * 1e3);
    let mean = (!seconds.is_empty()).then(|| seconds.iter().sum::<f64>() / seconds.len() as f64 * 1e3);
    json!({ "mean": mean, "p50": ms(0.5), "p90": ms(0.9), "p99": ms(0.99), "max": ms(1.0) })
}

fn results_json(results: &Results) -> Value {
    let count = |tokens: fn(&client::Answer) -> usize| results.answers.iter().map(tokens).sum::<usize>();
    json!({
        "completed": results.answers.len(), "failed": results.failed(), "errors": results.errors, "seconds": results.seconds,
        "requests_per_second": results.answers.len() as f64 / results.seconds, "prompt_tokens": count(|answer| answer.prompt_tokens),
        "output_tokens": count(|answer| answer.tokens), "output_tokens_per_second": results.throughput(),
        "ttft_ms": summary(results.first()), "itl_ms": summary(results.gaps()), "tpot_ms": summary(results.per_token()),
        "latency_ms": summary(results.totals()),
    })
}

fn report(context: &mut Context<'_>, options: &Options, title: &str, peer: Option<&Target>, levels: &[Level]) -> Outcome {
    let lengths = match options.workload {
        WorkloadKind::Sharegpt => "ShareGPT-like lengths".to_owned(),
        WorkloadKind::Fixed => format!("{} prompt tokens, {} generated", options.prompt, options.tokens),
        WorkloadKind::Prefix => format!("{} prompt tokens, half of them in a shared prefix, {} generated", options.prompt, options.tokens),
    };
    if let Some(file) = &options.plot {
        let streams: Vec<u64> = levels.iter().map(|level| level.streams as u64).collect();
        let mut series = Vec::new();
        if let Some(peer) = peer {
            series.push((peer.url.clone(), levels.iter().map(|level| level.theirs.as_ref().map_or(0.0, Results::throughput)).collect()));
        }
        series.push((title.to_owned(), levels.iter().map(|level| level.ours.throughput()).collect()));
        let title = format!("Generated tokens per second; {lengths}");
        let axes = Axes { title: &title, x: "streams", label: |streams| streams.to_string(), unit: "tokens/s" };
        let text = plot::svg(&axes, &streams, &series);
        std::fs::write(file, text).map_err(|error| failed(format!("{}: {error}", file.display())))?;
    }
    if options.json {
        let level = |level: &Level| json!({ "streams": level.streams, "ours": results_json(&level.ours), "peer": level.theirs.as_ref().map(results_json) });
        context.print_json(&json!({
            "server": title, "peer": peer.map(|peer| &peer.url), "workload": lengths, "seed": options.seed,
            "levels": levels.iter().map(level).collect::<Vec<_>>(),
        }))?;
    } else {
        table(context, title, peer, &lengths, levels)?;
    }
    match levels.iter().find(|level| level.ours.answers.is_empty()) {
        Some(level) => Err(failed(format!("all requests failed at {} streams", level.streams))),
        None => Ok(()),
    }
}

fn table(context: &mut Context<'_>, title: &str, peer: Option<&Target>, lengths: &str, levels: &[Level]) -> Outcome {
    writeln!(context.out, "{title}; {lengths}")?;
    if let Some(peer) = peer {
        writeln!(context.out, "peer: {}", peer.url)?;
    }
    writeln!(
        context.out,
        "{:>7} {:>5} {:>8} {:>11} {:>17} {:>17} {:>9} {:>7}  {}",
        "streams",
        "",
        "req/s",
        "tokens/s",
        "TTFT p50/p99 ms",
        "ITL p50/p99 ms",
        "TPOT ms",
        "failed",
        if peer.is_some() { "x peer" } else { "" }
    )?;
    for level in levels {
        let ratio = level.theirs.as_ref().map(|theirs| level.ours.throughput() / theirs.throughput());
        let rows = std::iter::once(("ours", &level.ours, ratio)).chain(level.theirs.as_ref().map(|theirs| ("peer", theirs, None)));
        for (name, results, ratio) in rows {
            let pair = |seconds: Vec<f64>| {
                let times = summary(seconds);
                format!("{:.1} / {:.1}", times["p50"].as_f64().unwrap_or(f64::NAN), times["p99"].as_f64().unwrap_or(f64::NAN))
            };
            writeln!(
                context.out,
                "{:>7} {name:>5} {:>8.2} {:>11.1} {:>17} {:>17} {:>9.2} {:>7}  {}",
                level.streams,
                results.answers.len() as f64 / results.seconds,
                results.throughput(),
                pair(results.first()),
                pair(results.gaps()),
                summary(results.per_token())["p50"].as_f64().unwrap_or(f64::NAN),
                results.failed(),
                ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}")),
            )?;
            for (error, count) in &results.errors {
                writeln!(context.out, "{:>13} {count} x {error}", name)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_of_the_sample() {
        let values: Vec<f64> = (0..=100).map(f64::from).collect();
        assert_eq!([0.0, 0.5, 0.99, 1.0].map(|share| quantile(&values, share)), [0.0, 50.0, 99.0, 100.0].map(Some));
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!(summary(vec![0.002, 0.001])["mean"], 1.5);
    }
}
