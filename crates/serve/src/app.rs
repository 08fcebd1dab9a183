//! The state that all requests share.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use sha2::{Digest, Sha256};

use crate::encoder::ServedEncoder;
use crate::error::{ApiError, ApiResult};
use crate::images::{ImageModel, Images};
use crate::jobs::{Job, Jobs};
use crate::metrics::Metrics;
use crate::model::ServedModel;
use crate::registry::{self, Registry};

/// Bounds of what a client may ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a request's headers; larger ones get 431.
    pub header_bytes: usize,
    /// Bytes of a request's body; larger ones get 413.
    pub body_bytes: usize,
    /// Connections at once; further ones wait.
    pub connections: usize,
    /// Time to send headers, and time to send a body.
    pub receive: Duration,
    /// Choices of a request (`n`, and prompts of a list).
    pub choices: usize,
    /// Bytes of a JSON schema or a grammar.
    pub grammar_bytes: usize,
    /// Nesting of a JSON schema.
    pub schema_depth: usize,
    /// How long a stream may stand still because its client does not read.
    pub stalled: Duration,
    /// How long a job waits for its reader.
    pub unread_job: Duration,
    /// How long an image may take, with the time it waits.
    pub image: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            header_bytes: 32 << 10,
            body_bytes: 8 << 20,
            connections: 1024,
            receive: Duration::from_secs(30),
            choices: 64,
            grammar_bytes: 256 << 10,
            schema_depth: 64,
            stalled: Duration::from_secs(60),
            unread_job: Duration::from_secs(60),
            image: Duration::from_secs(300),
        }
    }
}

/// Who may use a server, and how.
#[derive(Debug, Clone, Default)]
pub struct AppOptions {
    /// Bounds of requests.
    pub limits: Limits,
    /// Keys of which requests must send one; empty: no key is needed.
    pub api_keys: Vec<String>,
    /// Origins of web pages that may call the server; `*` for all.
    pub cors: Vec<String>,
    /// Names that clients may use for this host, besides `localhost` and IP addresses. Not checked if keys are required.
    pub hosts: Vec<String>,
    /// Whether metrics have the names of vLLM.
    pub vllm_metrics: bool,
    /// The version to report.
    pub version: String,
}

/// How far loading is.
#[derive(Debug, Default)]
pub struct Loading {
    loaded: AtomicU64,
    total: AtomicU64,
}

impl Loading {
    /// Reports the bytes of weights that are loaded, and those of all.
    pub fn report(&self, loaded: u64, total: u64) {
        self.total.store(total, Ordering::Relaxed);
        self.loaded.store(loaded, Ordering::Relaxed);
    }

    /// Returns the bytes that are loaded, and those of all.
    pub fn bytes(&self) -> (u64, u64) {
        (self.loaded.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed))
    }
}

pub(crate) struct App {
    pub options: AppOptions,
    pub metrics: Metrics,
    pub loading: Arc<Loading>,
    pub jobs: Jobs<Job>,
    pub images: Images,
    pub started: Instant,
    pub registry: Registry,
    encoders: RwLock<Vec<Arc<ServedEncoder>>>,
    /// Whether a model was ever loaded.
    opened: AtomicBool,
    draining: AtomicBool,
    in_flight: Arc<AtomicUsize>,
    ids: AtomicU64,
    keys: Vec<[u8; 32]>,
}

/// Counts a request that is being answered, until it is dropped.
pub(crate) struct InFlight(Arc<AtomicUsize>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl App {
    pub fn new(options: AppOptions) -> App {
        let keys = options.api_keys.iter().map(|key| Sha256::digest(key).into()).collect();
        App {
            options,
            metrics: Metrics::default(),
            loading: Arc::default(),
            jobs: Jobs::default(),
            images: Images::default(),
            started: Instant::now(),
            registry: Registry::default(),
            encoders: RwLock::default(),
            opened: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            in_flight: Arc::default(),
            ids: AtomicU64::new(0),
            keys,
        }
    }

    /// The model of a request; the first one if the request names none. May wait until it is loaded: not for threads that serve connections.
    pub fn model(&self, name: Option<&str>) -> ApiResult<Arc<ServedModel>> {
        if !self.opened.load(Ordering::Acquire) {
            return Err(registry::loading());
        }
        let encoders = self.encoders();
        let named = encoders.iter().find(|encoder| name.is_some_and(|name| encoder.id == name));
        let alone = if self.registry.slots().is_empty() { encoders.first() } else { None };
        if let Some(encoder) = named.or(alone) {
            let message = format!("model {:?} is an encoder; it supports only embeddings (/v1/embeddings)", encoder.id);
            return Err(ApiError::invalid("model", message));
        }
        let slot = self.registry.find(name)?;
        self.registry.get(&slot, || self.is_draining())
    }

    /// The models that are loaded.
    pub fn models(&self) -> Vec<Arc<ServedModel>> {
        self.registry.slots().iter().filter_map(|slot| slot.loaded()).collect()
    }

    /// Why new requests cannot be taken, if they cannot.
    pub fn not_ready(&self) -> Option<&'static str> {
        if self.is_draining() {
            Some("draining")
        } else if !self.opened.load(Ordering::Acquire) {
            Some("loading")
        } else if self.models().iter().any(|model| !model.engine.is_alive()) || self.images.has_failed() {
            Some("failed")
        } else {
            None
        }
    }

    /// Adds a loaded model. From the first one on the server is ready.
    pub fn add_model(&self, model: ServedModel) {
        self.registry.add(model);
        self.opened.store(true, Ordering::Release);
    }

    /// Adds the image model. From then on the server is ready.
    pub fn add_images(&self, model: ImageModel) -> std::io::Result<()> {
        self.images.add(model)?;
        self.opened.store(true, Ordering::Release);
        Ok(())
    }

    /// Adds a loaded encoder.
    pub fn add_encoder(&self, encoder: ServedEncoder) {
        self.encoders.write().unwrap_or_else(PoisonError::into_inner).push(Arc::new(encoder));
        self.opened.store(true, Ordering::Release);
    }

    /// The encoders.
    pub fn encoders(&self) -> Vec<Arc<ServedEncoder>> {
        self.encoders.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The encoder of a request; the first one if the request names no model.
    pub fn encoder(&self, name: Option<&str>) -> Option<Arc<ServedEncoder>> {
        let name = name.filter(|name| !name.is_empty());
        self.encoders().into_iter().find(|encoder| name.is_none_or(|name| encoder.id == name))
    }

    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
    }

    /// Counts a request that generates; refuses it while the server drains.
    pub fn enter(&self) -> ApiResult<InFlight> {
        self.in_flight.fetch_add(1, Ordering::AcqRel);
        let entered = InFlight(self.in_flight.clone());
        if self.is_draining() {
            return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "the server is shutting down").code("draining"));
        }
        Ok(entered)
    }

    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Acquire)
    }

    /// An identifier that cannot be guessed from others.
    pub fn new_id(&self, prefix: &str) -> String {
        let number = self.ids.fetch_add(1, Ordering::Relaxed);
        let random = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), number);
        let digest = Sha256::new()
            .chain_update(number.to_le_bytes())
            .chain_update(random.to_le_bytes())
            .chain_update(self.started.elapsed().as_nanos().to_le_bytes())
            .chain_update(std::process::id().to_le_bytes())
            .finalize();
        let hex: String = digest[..12].iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{prefix}{hex}")
    }

    pub fn needs_key(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Whether a key is one of the server's. The time does not depend on where keys differ: digests are compared, all bytes of all keys.
    pub fn accepts_key(&self, key: &str) -> bool {
        let digest: [u8; 32] = Sha256::digest(key).into();
        self.keys.iter().fold(false, |found, own| found | (own.iter().zip(&digest).fold(0, |bits, (a, b)| bits | (a ^ b)) == 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_compared_whole() {
        let app = App::new(AppOptions { api_keys: vec!["first".to_owned(), "second".to_owned()], ..AppOptions::default() });
        assert!(app.needs_key() && app.accepts_key("first") && app.accepts_key("second"));
        assert!(!app.accepts_key("") && !app.accepts_key("firs") && !app.accepts_key("first ") && !app.accepts_key("third"));
        assert!(!App::new(AppOptions::default()).accepts_key(""));
    }

    #[test]
    fn ids_differ() {
        let app = App::new(AppOptions::default());
        let ids: std::collections::HashSet<String> = (0..1000).map(|_| app.new_id("x-")).collect();
        assert!(ids.len() == 1000 && ids.iter().all(|id| id.len() == 26));
    }

    #[test]
    fn draining_refuses_and_counts() {
        let app = App::new(AppOptions::default());
        let one = app.enter().unwrap();
        app.drain();
        assert_eq!(app.enter().map(|_| ()).unwrap_err().status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!((app.in_flight(), app.not_ready()), (1, Some("draining")));
        drop(one);
        assert_eq!(app.in_flight(), 0);
    }
}
