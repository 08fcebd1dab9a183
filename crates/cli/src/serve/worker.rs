//! `warpwave worker`: a worker of a hive, which takes jobs over HTTP.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use warpwave_serve::{AppOptions, Heartbeat, Listen, Worker};

use super::super::llm::{ModelArgs, PrecisionArg};
use super::super::{Context, Outcome};
use super::{EngineArgs, ListenArgs, add_model, start};

/// The time between heartbeats.
const HEARTBEAT: Duration = Duration::from_secs(30);
/// The variable with the token that jobs must send.
const TOKEN: &str = "LLORCH_API_TOKEN";

#[derive(clap::Args)]
#[command(after_help = "Example: warpwave worker llm --worker-id w1 --model model.gguf --port 7855")]
pub(crate) struct Args {
    #[command(subcommand)]
    kind: Kind,
}

#[derive(clap::Subcommand)]
enum Kind {
    /// Run a worker for a language model.
    Llm(Box<LlmArgs>),
}

#[derive(clap::Args)]
#[command(after_help = "Example:\n  \
    warpwave worker llm --worker-id w1 --model model.gguf --model-ref hf:org/model --port 7855 --hive-url http://127.0.0.1:7835 --rocm-device 0\n\n\
    Jobs: POST /v1/jobs, then GET /v1/jobs/ID/stream. If LLORCH_API_TOKEN is set, clients must send it as a bearer token.\n\
    All endpoints of `warpwave serve` are available too.")]
struct LlmArgs {
    /// Set the worker ID.
    #[arg(long, value_name = "ID")]
    worker_id: String,
    /// Serve this model: a .gguf file, a directory or a Hugging Face Hub model.
    #[arg(long, value_name = "MODEL")]
    model: PathBuf,
    /// Set the model reference to report to the hive.
    #[arg(long, value_name = "REF")]
    model_ref: Option<String>,
    /// Send a heartbeat to the hive (the server that assigns jobs) every 30 s.
    #[arg(long, value_name = "URL")]
    hive_url: Option<String>,
    /// Run on this AMD GPU.
    #[arg(long, value_name = "N", group = "place")]
    rocm_device: Option<u32>,
    /// Run on this NVIDIA GPU.
    #[arg(long, value_name = "N", group = "place")]
    cuda_device: Option<u32>,
    /// Run on this device: cpu, cuda:0, rocm:1, vgpu:gfx90a (virtual), or auto (the first GPU, else the CPU).
    #[arg(long, env = "WARPWAVE_DEVICE", default_value = "auto", group = "place")]
    device: String,
    /// Set the context length in tokens (prompt plus output); default: 4096, or the model's limit if smaller.
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..))]
    context: Option<u32>,
    /// Set the number of CPU threads; default: all cores.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    listen: ListenArgs,
}

pub(crate) fn run(context: &mut Context<'_>, args: &Args) -> Outcome {
    let Kind::Llm(args) = &args.kind;
    let device = match (args.rocm_device, args.cuda_device) {
        (Some(number), _) => format!("rocm:{number}"),
        (_, Some(number)) => format!("cuda:{number}"),
        _ => args.device.clone(),
    };
    let model = ModelArgs {
        model: Some(args.model.clone()),
        device,
        context: args.context,
        cache_tokens: None,
        precision: PrecisionArg::Fast,
        kind: None,
        cache: None,
        chunk: None,
        threads: args.threads,
    };
    let token = std::env::var(TOKEN).ok().filter(|token| !token.is_empty());
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let options = AppOptions {
        api_keys: token.into_iter().collect(),
        hosts: args.listen.allow_host.clone(),
        version: version.clone(),
        ..AppOptions::default()
    };
    let server = start(context, &Listen::Tcp(SocketAddr::new(args.listen.host, args.listen.port)), options)?;
    let served = add_model(context, &server, &model, &args.engine, None, args.model_ref.iter().cloned().collect())?;
    let worker = Worker {
        id: args.worker_id.clone(),
        model: args.model_ref.clone().unwrap_or(served.id),
        device: served.device,
        port: server.address().map_or(args.listen.port, |address| address.port()),
        version,
    };
    let heartbeat = args.hive_url.as_ref().map(|hive| Heartbeat::start(hive, worker, HEARTBEAT, server.status())).transpose()?;
    let ended = server.wait(Duration::from_secs(args.listen.drain));
    drop(heartbeat);
    Ok(ended?)
}
