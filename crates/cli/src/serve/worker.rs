//! `warpwave worker`: a worker of a hive, which takes jobs over HTTP.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use warpwave_serve::{AppOptions, Heartbeat, ImageModel, Limits, Listen, Server, Worker};

use super::super::image::{LoadArgs, model_name};
use super::super::llm::{ModelArgs, PrecisionArg};
use super::super::{Context, Failure, Outcome};
use super::{EngineArgs, ListenArgs, add_model, start};

/// The time between heartbeats.
const HEARTBEAT: Duration = Duration::from_secs(30);
/// Bytes of a request with images.
const IMAGE_BYTES: usize = 64 << 20;
/// The variable with the token that jobs must send.
const TOKEN: &str = "LLORCH_API_TOKEN";

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    warpwave worker llm --worker-id w1 --model model.gguf --port 7855\n  \
    warpwave worker image --worker-id w2 --model ./sdxl --port 7856")]
pub(crate) struct Args {
    #[command(subcommand)]
    kind: Kind,
}

#[derive(clap::Subcommand)]
enum Kind {
    /// Run a worker for a language model.
    Llm(Box<LlmArgs>),
    /// Run a worker for an image model.
    Image(Box<ImageArgs>),
}

/// Who a worker is, and whom it tells.
#[derive(clap::Args)]
struct IdentityArgs {
    /// Set the worker ID.
    #[arg(long, value_name = "ID")]
    worker_id: String,
    /// Set the model reference to report to the hive.
    #[arg(long, value_name = "REF")]
    model_ref: Option<String>,
    /// Send a heartbeat to the hive (the server that assigns jobs) every 30 s.
    #[arg(long, alias = "callback-url", value_name = "URL")]
    hive_url: Option<String>,
    /// Run on this AMD GPU.
    #[arg(long, value_name = "N", group = "place")]
    rocm_device: Option<u32>,
    /// Run on this NVIDIA GPU.
    #[arg(long, value_name = "N", group = "place")]
    cuda_device: Option<u32>,
}

impl IdentityArgs {
    /// The device: a numbered one, or that of `--device`.
    fn device(&self, named: &str) -> String {
        match (self.rocm_device, self.cuda_device) {
            (Some(number), _) => format!("rocm:{number}"),
            (_, Some(number)) => format!("cuda:{number}"),
            _ => named.to_owned(),
        }
    }

    /// Sends heartbeats until the server ends.
    fn wait(&self, server: Server, listen: &ListenArgs, model: String, device: String) -> Outcome {
        let worker = Worker {
            id: self.worker_id.clone(),
            model: self.model_ref.clone().unwrap_or(model),
            device,
            port: server.address().map_or(listen.port, |address| address.port()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let heartbeat = self.hive_url.as_ref().map(|hive| Heartbeat::start(hive, worker, HEARTBEAT, server.status())).transpose()?;
        let ended = server.wait(Duration::from_secs(listen.drain));
        drop(heartbeat);
        Ok(ended?)
    }
}

#[derive(clap::Args)]
#[command(after_help = "Example:\n  \
    warpwave worker llm --worker-id w1 --model model.gguf --model-ref hf:org/model --port 7855 --hive-url http://127.0.0.1:7835 --rocm-device 0\n\n\
    Jobs: POST /v1/jobs, then GET /v1/jobs/ID/stream. If LLORCH_API_TOKEN is set, clients must send it as a bearer token.\n\
    All endpoints of `warpwave serve` are available too.")]
struct LlmArgs {
    #[command(flatten)]
    identity: IdentityArgs,
    /// Serve this model: a .gguf file, a directory or a Hugging Face Hub model.
    #[arg(long, value_name = "MODEL")]
    model: PathBuf,
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

#[derive(clap::Args)]
#[command(after_help = "Example:\n  \
    warpwave worker image --worker-id w2 --model ./sdxl --port 7856 --hive-url http://127.0.0.1:7835 --rocm-device 0\n\n\
    Jobs: POST /v1/jobs with the operation image_generation, image_transform or image_inpaint, then GET /v1/jobs/ID/stream.\n\
    OpenAI's /v1/images/generations is available too. If LLORCH_API_TOKEN is set, clients must send it as a bearer token.")]
struct ImageArgs {
    #[command(flatten)]
    identity: IdentityArgs,
    /// Serve this model: a directory in the diffusers layout, or a .safetensors file.
    #[arg(long, alias = "model-path", value_name = "MODEL")]
    model: PathBuf,
    /// Allow requests to use the LoRA files in this directory, by file name.
    #[arg(long, value_name = "DIR")]
    lora_dir: Option<PathBuf>,
    /// Reject new requests with HTTP 429 while N requests are queued.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..))]
    max_waiting: u16,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    listen: ListenArgs,
}

pub(crate) fn run(context: &mut Context<'_>, args: &Args) -> Outcome {
    match &args.kind {
        Kind::Llm(args) => run_llm(context, args),
        Kind::Image(args) => run_image(context, args),
    }
}

/// Starts to listen, with the token of workers.
fn start_worker(context: &mut Context<'_>, listen: &ListenArgs, limits: Limits) -> Result<Server, Failure> {
    let token = std::env::var(TOKEN).ok().filter(|token| !token.is_empty());
    let options = AppOptions {
        api_keys: token.into_iter().collect(),
        hosts: listen.allow_host.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        limits,
        ..AppOptions::default()
    };
    start(context, &Listen::Tcp(SocketAddr::new(listen.host, listen.port)), options)
}

fn run_llm(context: &mut Context<'_>, args: &LlmArgs) -> Outcome {
    let identity = &args.identity;
    let model = ModelArgs {
        model: Some(args.model.clone()),
        device: identity.device(&args.device),
        context: args.context,
        cache_tokens: None,
        precision: PrecisionArg::Fast,
        kind: None,
        cache: None,
        chunk: None,
        threads: args.threads,
    };
    let server = start_worker(context, &args.listen, Limits::default())?;
    let checkpoint = model.open(context)?;
    let served = add_model(context, &server, &model, &args.engine, checkpoint, None, identity.model_ref.iter().cloned().collect())?;
    identity.wait(server, &args.listen, served.id, served.device)
}

fn run_image(context: &mut Context<'_>, args: &ImageArgs) -> Outcome {
    let mut load = args.load.clone();
    load.device = args.identity.device(&load.device);
    // Files that cannot be opened are errors before a client connects.
    let checkpoint = load.files.open(&args.model)?;
    let server = start_worker(context, &args.listen, Limits { body_bytes: IMAGE_BYTES, ..Limits::default() })?;
    let usual = warpwave_diffusion::Request::new(checkpoint.info(), "");
    let model = load.with_threads(|| load.load(context, &checkpoint, &usual))?;
    let preview = load.preview(&model)?;
    let (id, device) = (model_name(&args.model), model.device().name().to_owned());
    server.catch_signals()?;
    server.add_images(ImageModel {
        id: id.clone(),
        model,
        preview,
        loras: args.lora_dir.clone(),
        waiting: usize::from(args.max_waiting),
        threads: load.threads.map_or(0, usize::from),
    })?;
    writeln!(context.err, "warpwave: serving {id} on {device}")?;
    args.identity.wait(server, &args.listen, id, device)
}
