//! `warpwave serve`: language models over HTTP. `warpwave worker` shares it.

pub(super) mod worker;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use warpwave_llm::engine::{Engine, EngineOptions, EngineRequest};
use warpwave_llm::{ChatTemplate, Checkpoint, EncoderCheckpoint, MemoryBudget, MemoryPlan, Request};
use warpwave_serve::{AppOptions, Listen, ServedEncoder, ServedModel, Server};

use super::llm::{ModelArgs, device, devices, embed, locate, template::render_chat};
use super::{Context, Failure, Outcome, failed, usage};

/// KV cache sizes to try, in contexts: the first that fits into memory is used.
const CACHE_CONTEXTS: [usize; 6] = [32, 16, 8, 4, 2, 1];
/// The largest KV cache on a CPU, in contexts: memory is shared with everything else.
const CPU_CONTEXTS: usize = 8;

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    warpwave serve\n  \
    warpwave serve model.gguf --device cuda:0 --api-key secret\n  \
    warpwave serve one.gguf two.gguf --max-models 1\n  \
    warpwave serve model.gguf --socket /run/warpwave.sock\n\n\
    A chat page is at /. Endpoints: /v1/chat/completions, /v1/completions, /v1/embeddings, /v1/models, /tokenize, /detokenize, /v1/jobs, /health, /ready, /metrics,\n\
    /version, /openapi.json. On SIGTERM, requests in progress are finished and new ones get 503. For TLS, use a reverse proxy.")]
pub(crate) struct Args {
    #[command(flatten)]
    model_args: ModelArgs,
    /// Also serve these models; each is loaded on the first request for it.
    #[arg(value_name = "MODELS")]
    more: Vec<PathBuf>,
    /// Keep at most N models loaded; the least recently used is unloaded.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    max_models: u16,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    listen: ListenArgs,
    /// Listen on this Unix socket instead of TCP.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["host", "port"])]
    socket: Option<PathBuf>,
    /// Require this key as `Authorization: Bearer KEY`; repeatable.
    #[arg(long, value_name = "KEY", env = "WARPWAVE_API_KEY", hide_env_values = true)]
    api_key: Vec<String>,
    /// Set the name of the first model; default: the name of its file or directory.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Allow cross-origin (CORS) requests from this origin (* for any); repeatable.
    #[arg(long, value_name = "ORIGIN")]
    cors: Vec<String>,
    /// Use vLLM's metric names.
    #[arg(long)]
    vllm_metrics: bool,
}

/// Options of the engine.
#[derive(clap::Args, Clone)]
#[command(next_help_heading = "Engine")]
pub(crate) struct EngineArgs {
    /// Set the KV cache capacity in tokens, shared by all requests; default: up to 32 times the context length (8 times on the CPU), as memory allows.
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..))]
    cache_tokens: Option<u32>,
    /// Run at most N requests concurrently.
    #[arg(long, value_name = "N", default_value_t = 256)]
    max_running: usize,
    /// Reject new requests with HTTP 429 while N requests are queued.
    #[arg(long, value_name = "N", default_value_t = 512)]
    max_waiting: usize,
    /// Prefill at most N prompt tokens per step while other requests decode.
    #[arg(long, value_name = "N", default_value_t = 512)]
    prompt_tokens: usize,
    /// Draft up to N tokens per step by n-gram lookup (speculative decoding); does not change the output. Speeds up outputs that repeat the input, at small batch sizes.
    #[arg(long, value_name = "N", num_args = 0..=1, default_value_t = 0, default_missing_value = "4", require_equals = true, value_parser = clap::value_parser!(u8).range(0..=6))]
    speculative: u8,
    /// Disable prefix caching: KV cache reuse between requests with a common prefix.
    #[arg(long)]
    no_prefix_cache: bool,
}

/// Where to listen.
#[derive(clap::Args, Clone)]
#[command(next_help_heading = "Network")]
struct ListenArgs {
    /// Listen on this IP address.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    host: IpAddr,
    /// Listen on this port; 0 chooses a free one.
    #[arg(long, default_value_t = 8080)]
    port: u16,
    /// Accept this name in the Host header, besides localhost and IP addresses; repeatable.
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
    /// On shutdown, wait up to this many seconds for requests in progress.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    drain: u64,
}

impl EngineArgs {
    fn options(&self) -> EngineOptions {
        EngineOptions {
            max_running: self.max_running,
            max_waiting: self.max_waiting,
            prompt_tokens: self.prompt_tokens,
            prefix_cache: !self.no_prefix_cache,
            speculative: usize::from(self.speculative),
            ..EngineOptions::default()
        }
    }
}

pub(crate) fn run(context: &mut Context<'_>, args: &Args) -> Outcome {
    let options = AppOptions {
        api_keys: args.api_key.clone(),
        cors: args.cors.clone(),
        hosts: args.listen.allow_host.clone(),
        vllm_metrics: args.vllm_metrics,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..AppOptions::default()
    };
    if args.api_key.iter().any(String::is_empty) {
        return Err(usage("--api-key: the key is empty"));
    }
    let listen = match &args.socket {
        Some(path) => Listen::Unix(path.clone()),
        None => Listen::Tcp(SocketAddr::new(args.listen.host, args.listen.port)),
    };
    if args.socket.is_none() && !args.listen.host.is_loopback() && args.api_key.is_empty() {
        writeln!(context.err, "warpwave: other machines can use this server without a key; set one with --api-key")?;
    }
    let server = start(context, &listen, options)?;
    let Models { models, encoders } = models(context, args)?;
    for (name, path) in encoders {
        add_encoder(context, &server, name, &path, &args.model_args.device)?;
    }
    models.iter().for_each(|(name, _)| server.declare_model(name));
    for (number, (name, model)) in models.iter().enumerate() {
        match number {
            0 => {
                let checkpoint = model.open(context)?;
                add_model(context, &server, model, &args.engine, checkpoint, Some(name.clone()), Vec::new())?;
            }
            _ => writeln!(context.err, "warpwave: {name} will be loaded on the first request for it")?,
        }
    }
    let loading = server.loading();
    let load = |name: &str, make_room: &mut dyn FnMut() -> bool| {
        let found = models.iter().find(|(own, _)| own == name);
        let (name, model) = found.ok_or_else(|| format!("{name} is not a model of this server"))?;
        let report = |done, total| loading.report(done, total);
        let checkpoint = model.open(context).map_err(|failure| failure.message)?;
        let loaded = load_model(context, model, &args.engine, checkpoint, Some(name.clone()), report, make_room);
        let (model, served) = loaded.map_err(|failure| failure.message)?;
        // Without a terminal to write to, serving goes on.
        let _ = writeln!(context.err, "warpwave: serving {}", served.note);
        Ok(model)
    };
    Ok(server.wait_loading(Duration::from_secs(args.listen.drain), usize::from(args.max_models), load)?)
}

/// What to serve, with its names.
struct Models {
    models: Vec<(String, ModelArgs)>,
    /// Encoders are small: they are loaded at once, and stay.
    encoders: Vec<(String, PathBuf)>,
}

/// The names and arguments of all models; finds out now what cannot be opened.
fn models(context: &mut Context<'_>, args: &Args) -> Result<Models, Failure> {
    let mut models: Vec<(String, ModelArgs)> = Vec::new();
    let mut encoders: Vec<(String, PathBuf)> = Vec::new();
    for (number, path) in std::iter::once(None).chain(args.more.iter().map(Some)).enumerate() {
        let mut model = args.model_args.clone();
        if let Some(path) = path {
            model.model = Some(path.clone());
        }
        let encoder = model.model.as_ref().map(|path| locate(context, path)).transpose()?;
        let encoder = encoder.filter(|path| EncoderCheckpoint::is_encoder(path));
        let name = args.name.clone().filter(|_| number == 0);
        let name = match (name, &encoder) {
            (Some(name), _) => name,
            (None, Some(path)) => model_name(&model, path),
            (None, None) => model_name(&model, Path::new(model.open(context)?.path())),
        };
        if models.iter().map(|(name, _)| name).chain(encoders.iter().map(|(name, _)| name)).any(|other| *other == name) {
            return Err(usage(format!("two models have the name {name}; rename a file, or set the name of the first with --name")));
        }
        match encoder {
            Some(path) => encoders.push((name, path)),
            None => models.push((name, model)),
        }
    }
    Ok(Models { models, encoders })
}

/// Loads an encoder and serves it.
fn add_encoder(context: &mut Context<'_>, server: &Server, name: String, path: &Path, place: &str) -> Outcome {
    let start = std::time::Instant::now();
    let device = device(context, place.split(',').next().unwrap_or(place))?;
    let (files, encoder) = embed::load(path, &device)?;
    let tokenizer = files.tokenizer().map_err(|error| failed(format!("cannot load the tokenizer: {error}")))?;
    server.catch_signals()?;
    server.add_encoder(ServedEncoder::new(name.clone(), tokenizer, encoder));
    let seconds = start.elapsed().as_secs_f64();
    writeln!(context.err, "warpwave: serving {name} on {} (encoder, loaded in {seconds:.1} s)", device.name())?;
    Ok(())
}

/// Starts to listen and says where.
fn start(context: &mut Context<'_>, listen: &Listen, options: AppOptions) -> Result<Server, Failure> {
    let place = match listen {
        Listen::Tcp(address) => address.to_string(),
        Listen::Unix(path) => path.display().to_string(),
    };
    let server = Server::start(listen, options).map_err(|error| failed(format!("cannot listen on {place}: {error}")))?;
    match server.address() {
        Some(address) => writeln!(context.err, "warpwave: listening on http://{address}")?,
        None => writeln!(context.err, "warpwave: listening on {place}")?,
    }
    Ok(server)
}

/// What is served.
pub(crate) struct Served {
    pub id: String,
    pub device: String,
    pub vocab: usize,
    pub context: usize,
    /// What to tell the user.
    note: String,
}

/// Loads a model and serves it.
pub(crate) fn add_model(
    context: &mut Context<'_>,
    server: &Server,
    args: &ModelArgs,
    engine: &EngineArgs,
    checkpoint: Checkpoint,
    name: Option<String>,
    aliases: Vec<String>,
) -> Result<Served, Failure> {
    let loading = server.loading();
    let (mut model, served) =
        load_model(context, args, engine, checkpoint, name, |done, total| loading.report(done, total), &mut || false)?;
    model.aliases = aliases;
    server.catch_signals()?;
    server.add_model(model);
    writeln!(context.err, "warpwave: serving {}", served.note)?;
    Ok(served)
}

/// Loads a model and computes a first token with it. `make_room` unloads another model, if there is one.
fn load_model(
    context: &mut Context<'_>,
    args: &ModelArgs,
    engine: &EngineArgs,
    checkpoint: Checkpoint,
    name: Option<String>,
    report: impl Fn(u64, u64),
    make_room: &mut dyn FnMut() -> bool,
) -> Result<(ServedModel, Served), Failure> {
    let mut args = args.clone();
    let id = name.unwrap_or_else(|| model_name(&args, Path::new(checkpoint.path())));
    let tokenizer = Arc::new(checkpoint.tokenizer().map_err(|error| failed(format!("cannot load the tokenizer: {error}")))?);
    let template = ChatTemplate::of(&tokenizer)?;
    if template.is_fallback() {
        writeln!(context.err, "warpwave: {id} has no chat template; using ChatML, which may differ from its training format")?;
    }
    let cache_tokens = loop {
        match cache_tokens(context, &args, engine, &checkpoint)? {
            Some(tokens) => break tokens,
            None if make_room() => (),
            // Loading explains what is missing.
            None => break engine.cache_tokens.map_or_else(|| args.context(&checkpoint), |tokens| tokens as usize),
        }
    };
    args.cache_tokens = Some(cache_tokens);
    let vocab = checkpoint.config().vocab;
    let loaded = args.load_reporting(context, checkpoint, report)?;
    let device = loaded.runner.model().device_names();
    let seconds = loaded.load_time.as_secs_f64();
    let note = format!("{id} on {device} (loaded in {seconds:.1} s, KV cache of {cache_tokens} tokens)");
    let served = Served { id: id.clone(), device: device.clone(), vocab, context: loaded.runner.context(), note };
    let threads = args.threads.map_or(0, usize::from);
    let thread = Engine::new(loaded.runner, Some(tokenizer.clone()), engine.options()).spawn(threads)?;
    // Kernels are compiled and selected at first use: not while a client waits.
    let warm_up = EngineRequest { reuse: false, ..EngineRequest::new(vec![0; 2], Request::default().max_tokens(2).ignore_eos(true)) };
    let events = thread.client().submit(warm_up).map_err(|refusal| failed(format!("warm-up: {refusal}")))?;
    while let Some(event) = events.next_event() {
        if let warpwave_llm::engine::EngineEvent::Failed { message } = event {
            return Err(failed(format!("warm-up: {message}")));
        }
    }
    let mut model = ServedModel::new(id.clone(), tokenizer, template, thread)
        .render_with(Arc::new(|template, chat| render_chat(template, chat).map_err(|failure| failure.message)));
    model.device.clone_from(&device);
    Ok((model, served))
}

/// The name of a model: as given for hub models, else that of its file or directory.
fn model_name(args: &ModelArgs, path: &Path) -> String {
    if let Some(given) = args.model.as_ref().filter(|path| !path.exists()) {
        return given.display().to_string();
    }
    let name = if path.is_dir() { path.file_name() } else { path.file_stem() };
    name.map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}

/// The capacity of the KV cache: as many contexts as memory allows, within limits. `None` if not even one fits.
fn cache_tokens(
    context: &mut Context<'_>,
    args: &ModelArgs,
    engine: &EngineArgs,
    checkpoint: &Checkpoint,
) -> Result<Option<usize>, Failure> {
    let tokens = args.context(checkpoint);
    let devices = devices(context, &args.device)?;
    let most = if devices.iter().all(|device| device.is_cpu() || device.is_virtual()) { CPU_CONTEXTS } else { CACHE_CONTEXTS[0] };
    let sizes = match engine.cache_tokens {
        Some(tokens) => vec![tokens as usize],
        None => CACHE_CONTEXTS.into_iter().filter(|contexts| *contexts <= most).map(|contexts| contexts * tokens).collect(),
    };
    for cache_tokens in sizes {
        let plan = MemoryPlan {
            devices: devices.clone(),
            weights: args.kind,
            precision: args.precision(),
            kv_cache: args.cache,
            context: tokens,
            cache_tokens: Some(cache_tokens),
            chunk: args.chunk.map(|chunk| chunk as usize),
        };
        if MemoryBudget::new(checkpoint, plan)?.fits() != Some(false) {
            return Ok(Some(cache_tokens));
        }
    }
    Ok(None)
}
