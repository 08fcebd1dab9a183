//! Listens, serves connections within limits, and ends without losing requests.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::{get, post};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, UnixListener};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, Sleep, sleep};

use crate::app::{App, AppOptions, Loading};
use crate::encoder::ServedEncoder;
use crate::error::ApiError;
use crate::images::{self, ImageModel};
use crate::model::ServedModel;
use crate::openai::{chat, completions, embeddings, models, tokenize};
use crate::{access, jobs, openapi, page};

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// A TCP address; port 0 chooses a free one.
    Tcp(SocketAddr),
    /// A Unix socket. An existing one that nobody listens on is replaced.
    Unix(PathBuf),
}

/// A running server. It serves from the start, with 503 until a model is added.
pub struct Server {
    app: Arc<App>,
    runtime: Runtime,
    address: Option<SocketAddr>,
    socket: Option<PathBuf>,
    stop: watch::Sender<bool>,
    /// SIGTERM and SIGINT, once they are caught.
    signals: Mutex<Option<[Signal; 2]>>,
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Server {
    /// Starts to listen.
    pub fn start(listen: &Listen, options: AppOptions) -> io::Result<Server> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().thread_name("warpwave-serve").build()?;
        let app = Arc::new(App::new(options));
        let (listener, address, socket) = match listen {
            Listen::Tcp(address) => {
                let listener = runtime.block_on(TcpListener::bind(address))?;
                let address = listener.local_addr()?;
                (Listener::Tcp(listener), Some(address), None)
            }
            Listen::Unix(path) => {
                if std::os::unix::net::UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
                    std::fs::remove_file(path)?;
                }
                let _inside = runtime.enter();
                (Listener::Unix(UnixListener::bind(path)?), None, Some(path.clone()))
            }
        };
        let (stop, stopped) = watch::channel(false);
        runtime.spawn(accept(listener, app.clone(), router(app.clone()), stopped));
        Ok(Server { app, runtime, address, socket, stop, signals: Mutex::new(None) })
    }

    /// Returns the address, unless it is a Unix socket.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Returns where loading is reported to.
    pub fn loading(&self) -> Arc<Loading> {
        self.app.loading.clone()
    }

    /// Names a model that [`Server::wait_loading`] loads when a request needs it. The first model is the default.
    pub fn declare_model(&self, id: impl Into<String>) {
        self.app.registry.declare(id.into());
    }

    /// Serves a model from now on, also one that was declared.
    pub fn add_model(&self, model: ServedModel) {
        self.app.add_model(model);
    }

    /// Serves an image model from now on. A server has one; a further one is refused.
    pub fn add_images(&self, model: ImageModel) -> io::Result<()> {
        self.app.add_images(model)
    }

    /// Adds a loaded encoder. Embeddings use the first one if they name no model.
    pub fn add_encoder(&self, encoder: ServedEncoder) {
        self.app.add_encoder(encoder);
    }

    /// Returns a function for [`Heartbeat`](crate::Heartbeat): `starting`, `ready`, `busy` or `stopped`.
    pub fn status(&self) -> impl Fn() -> &'static str + Send + 'static {
        let app = self.app.clone();
        move || match app.not_ready() {
            Some("loading") => "starting",
            Some(_) => "stopped",
            None if app.in_flight() > 0 => "busy",
            None => "ready",
        }
    }

    /// Catches SIGTERM and SIGINT from now on: [`Server::wait`] handles them, also those that come before it. Until then they end the
    /// process, as is right while nothing is served.
    pub fn catch_signals(&self) -> io::Result<()> {
        let _inside = self.runtime.enter();
        let mut caught = self.signals.lock().unwrap_or_else(PoisonError::into_inner);
        if caught.is_none() {
            *caught = Some([signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?]);
        }
        Ok(())
    }

    /// Waits for SIGTERM or SIGINT, then drains: new requests get 503, those in progress have `drain` to end. A second signal ends at once.
    pub fn wait(self, drain: Duration) -> io::Result<()> {
        self.wait_loading(drain, usize::MAX, |id, _| Err(format!("this server cannot load {id}")))
    }

    /// As [`Server::wait`], and loads declared models on this thread when requests need them, at most `most` at once: the least recently
    /// used is unloaded after its requests have ended.
    ///
    /// `load` gets the name, and a function that unloads another model if memory is short and returns whether there was one.
    pub fn wait_loading(
        self,
        drain: Duration,
        most: usize,
        mut load: impl FnMut(&str, &mut dyn FnMut() -> bool) -> Result<ServedModel, String>,
    ) -> io::Result<()> {
        self.catch_signals()?;
        let caught = self.signals.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some([mut terminate, mut interrupt]) = caught else { return Ok(()) };
        let app = self.app.clone();
        let mut ending = self.runtime.spawn(async move {
            tokio::select! {
                _ = terminate.recv() => (),
                _ = interrupt.recv() => (),
            }
            tracing::info!(in_flight = app.in_flight(), "draining");
            app.drain();
            tokio::select! {
                () = drained(&app, drain) => (),
                _ = terminate.recv() => (),
                _ = interrupt.recv() => (),
            }
        });
        let registry = &self.app.registry;
        let mut requests = registry.requests();
        loop {
            let wanted = async {
                match &mut requests {
                    Some(requests) => requests.recv().await,
                    None => std::future::pending().await,
                }
            };
            let slot = self.runtime.block_on(async {
                tokio::select! {
                    _ = &mut ending => None,
                    slot = wanted => slot,
                }
            });
            let Some(slot) = slot else { break };
            if slot.loaded().is_some() {
                continue;
            }
            while registry.count() >= most && registry.unload_oldest() {}
            let started = Instant::now();
            let loaded = load(&slot.id, &mut || registry.unload_oldest());
            match &loaded {
                Ok(_) => tracing::info!(model = slot.id, seconds = started.elapsed().as_secs_f64(), "loaded"),
                Err(error) => tracing::warn!(model = slot.id, error, "loading failed"),
            }
            registry.finish(&slot, loaded);
        }
        self.shut_down();
        Ok(())
    }

    /// Drains and ends, without waiting for a signal.
    pub fn stop(self, drain: Duration) {
        self.app.drain();
        self.runtime.block_on(drained(&self.app, drain));
        self.shut_down();
    }

    fn shut_down(self) {
        // Connections end after their current response.
        let _ = self.stop.send(true);
        self.runtime.shutdown_timeout(Duration::from_millis(500));
        if let Some(path) = &self.socket {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Waits until no request is in progress, at most for `limit`.
async fn drained(app: &App, limit: Duration) {
    let end = Instant::now() + limit;
    while app.in_flight() > 0 && Instant::now() < end {
        sleep(Duration::from_millis(10)).await;
    }
    // The last bytes of the last response.
    sleep(Duration::from_millis(50)).await;
}

/// The routes.
pub(crate) fn router(app: Arc<App>) -> Router {
    page::routes(Router::new())
        .route("/health", get(models::health))
        .route("/ready", get(models::ready))
        .route("/v1/ready", get(models::ready))
        .route("/v1/loading/progress", get(models::loading))
        .route("/version", get(models::version))
        .route("/metrics", get(models::metrics))
        .route("/openapi.json", get(openapi::document))
        .route("/v1/models", get(models::list))
        .route("/v1/models/{*name}", get(models::show))
        .route("/v1/chat/completions", post(chat::create))
        .route("/v1/completions", post(completions::create))
        .route("/v1/embeddings", post(embeddings::create))
        .route("/v1/images/generations", post(images::openai::create))
        .route("/v1/images/edits", post(images::openai::edit))
        .route("/tokenize", post(tokenize::tokenize))
        .route("/detokenize", post(tokenize::detokenize))
        .route("/v1/jobs", post(jobs::create))
        .route("/v1/inference", post(jobs::create))
        .route("/v1/jobs/{id}/stream", get(jobs::stream))
        .route("/v1/inference/{id}/stream", get(jobs::stream))
        .fallback(|| async { ApiError::new(StatusCode::NOT_FOUND, "no such path").code("not_found") })
        .method_not_allowed_fallback(|| async { ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method not allowed for this path") })
        .layer(axum::middleware::from_fn_with_state(app.clone(), access::check))
        .with_state(app)
}

/// Accepts connections, at most as many at once as the limits say.
async fn accept(listener: Listener, app: Arc<App>, router: Router, mut stop: watch::Receiver<bool>) {
    let places = Arc::new(Semaphore::new(app.options.limits.connections.max(1)));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let stalled = app.options.limits.stalled;
        let accepted = tokio::select! {
            _ = stop.changed() => return,
            accepted = async {
                match &listener {
                    Listener::Tcp(listener) => listener.accept().await.map(|(stream, _)| {
                        // Tokens are small: waiting to fill a packet would delay them.
                        let _ = stream.set_nodelay(true);
                        Guarded::new(Box::new(stream) as Box<dyn Connection>, stalled)
                    }),
                    Listener::Unix(listener) => listener.accept().await.map(|(stream, _)| Guarded::new(Box::new(stream) as _, stalled)),
                }
            } => accepted,
        };
        match accepted {
            Ok(stream) => {
                let (app, router, stop) = (app.clone(), router.clone(), stop.clone());
                tokio::spawn(async move {
                    serve(stream, &app, router, stop).await;
                    drop(place);
                });
            }
            Err(error) => {
                // For example too many open files: others may close.
                tracing::warn!(%error, "cannot accept a connection");
                sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn serve(stream: Guarded, app: &App, router: Router, mut stop: watch::Receiver<bool>) {
    let limits = &app.options.limits;
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(limits.receive).max_buf_size(limits.header_bytes.max(8192)).max_headers(100);
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)));
    tokio::select! {
        served = connection.as_mut() => {
            if let Err(error) = served {
                tracing::debug!(%error, "connection ended");
            }
        }
        _ = stop.changed() => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}

trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// A connection that fails if its client does not read for a time: otherwise its requests would keep their memory forever.
struct Guarded {
    inner: Box<dyn Connection>,
    limit: Duration,
    /// Runs while a write waits for the client.
    timer: Option<Pin<Box<Sleep>>>,
}

impl Guarded {
    fn new(inner: Box<dyn Connection>, limit: Duration) -> Guarded {
        Guarded { inner, limit, timer: None }
    }

    /// Passes a result on; fails if the client kept a write waiting for too long.
    fn guard<T>(&mut self, context: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.timer = None;
            return result;
        }
        let limit = self.limit;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(limit)));
        match timer.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client stopped reading the response"))),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Guarded {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl AsyncWrite for Guarded {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.guard(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(context);
        self.guard(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
