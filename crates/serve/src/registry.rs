//! The models of a server: those that are loaded, and those that are loaded when a request needs them.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::error::{ApiError, ApiResult};
use crate::model::{ServedModel, unix_time};

/// Requests that wait for models at once; each occupies a thread.
const MAX_WAITING: usize = 64;
/// How long a request waits for its model.
const PATIENCE: Duration = Duration::from_secs(600);
/// The time between looks at whether a model's requests ended.
const LOOK: Duration = Duration::from_millis(5);

/// A model by its name, loaded or not.
pub(crate) struct Slot {
    pub id: String,
    pub created: u64,
    aliases: Vec<String>,
    /// Whether it can be loaded again, and therefore be unloaded.
    reloadable: bool,
    state: Mutex<State>,
    changed: Condvar,
    /// When it was last used, by [`Registry::clock`].
    used: AtomicU64,
}

#[derive(Default)]
struct State {
    model: Option<Arc<ServedModel>>,
    /// Whether it is being loaded or unloaded.
    changing: bool,
    failures: usize,
    error: String,
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The model if it is loaded.
    pub fn loaded(&self) -> Option<Arc<ServedModel>> {
        self.lock().model.clone()
    }

    /// `loaded`, `loading` or `unloaded`.
    pub fn status(&self) -> &'static str {
        let state = self.lock();
        match (&state.model, state.changing) {
            (_, true) => "loading",
            (Some(_), false) => "loaded",
            (None, false) => "unloaded",
        }
    }

    fn is_named(&self, name: &str) -> bool {
        self.id == name || self.aliases.iter().any(|alias| alias == name)
    }
}

/// All models. The first is the default.
pub(crate) struct Registry {
    slots: RwLock<Vec<Arc<Slot>>>,
    clock: AtomicU64,
    waiting: AtomicUsize,
    wanted: UnboundedSender<Arc<Slot>>,
    /// For the one that loads.
    requests: Mutex<Option<UnboundedReceiver<Arc<Slot>>>>,
}

impl Default for Registry {
    fn default() -> Self {
        let (wanted, requests) = unbounded_channel();
        let (clock, waiting) = (AtomicU64::new(0), AtomicUsize::new(0));
        Registry { slots: RwLock::default(), clock, waiting, wanted, requests: Mutex::new(Some(requests)) }
    }
}

impl Registry {
    pub fn slots(&self) -> Vec<Arc<Slot>> {
        self.slots.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Names a model that is loaded when it is needed.
    pub fn declare(&self, id: String) {
        self.push(Slot::new(id, Vec::new(), true, None));
    }

    /// Adds a loaded model; a declared one of the same name becomes loaded.
    pub fn add(&self, model: ServedModel) {
        match self.slots().iter().find(|slot| slot.id == model.id) {
            Some(slot) => self.loaded(slot, model),
            None => self.push(Slot::new(model.id.clone(), model.aliases.clone(), false, Some(Arc::new(model)))),
        }
    }

    fn push(&self, slot: Slot) {
        self.slots.write().unwrap_or_else(PoisonError::into_inner).push(Arc::new(slot));
    }

    fn use_now(&self, slot: &Slot) {
        slot.used.store(self.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    }

    /// The place of a model; of the first if no name is given.
    pub fn find(&self, name: Option<&str>) -> ApiResult<Arc<Slot>> {
        let slots = self.slots();
        let Some(first) = slots.first() else { return Err(loading()) };
        let Some(name) = name.filter(|name| !name.is_empty()) else { return Ok(first.clone()) };
        slots.iter().find(|slot| slot.is_named(name)).cloned().ok_or_else(|| {
            let names: Vec<&str> = slots.iter().map(|slot| slot.id.as_str()).collect();
            let message = format!("model {name:?} not found; this server has {}", names.join(", "));
            ApiError { param: Some("model".to_owned()), ..ApiError::new(StatusCode::NOT_FOUND, message) }.code("model_not_found")
        })
    }

    /// The model in a place. Waits until it is loaded: not for threads that serve connections.
    pub fn get(&self, slot: &Arc<Slot>, is_draining: impl Fn() -> bool) -> ApiResult<Arc<ServedModel>> {
        self.use_now(slot);
        let mut state = slot.lock();
        if let Some(model) = state.model.as_ref().filter(|_| !state.changing) {
            return Ok(model.clone());
        }
        if self.waiting.fetch_add(1, Ordering::AcqRel) >= MAX_WAITING {
            self.waiting.fetch_sub(1, Ordering::AcqRel);
            return Err(loading());
        }
        let (before, end) = (state.failures, Instant::now() + PATIENCE);
        let found = loop {
            if let Some(model) = state.model.as_ref().filter(|_| !state.changing) {
                break Ok(model.clone());
            }
            if state.failures != before {
                let message = format!("model {:?} could not be loaded: {}", slot.id, state.error);
                break Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message).code("load_failed"));
            }
            if is_draining() || Instant::now() > end || (!state.changing && self.wanted.send(slot.clone()).is_err()) {
                break Err(loading());
            }
            state.changing = true;
            state = slot.changed.wait_timeout(state, Duration::from_secs(1)).unwrap_or_else(PoisonError::into_inner).0;
        };
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        found
    }

    /// The requests for models, for one who loads them.
    pub fn requests(&self) -> Option<UnboundedReceiver<Arc<Slot>>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn loaded(&self, slot: &Slot, model: ServedModel) {
        self.use_now(slot);
        let mut state = slot.lock();
        (state.model, state.changing) = (Some(Arc::new(model)), false);
        slot.changed.notify_all();
    }

    /// Ends a load that a request asked for.
    pub fn finish(&self, slot: &Slot, loaded: Result<ServedModel, String>) {
        match loaded {
            Ok(model) => self.loaded(slot, model),
            Err(error) => {
                let mut state = slot.lock();
                state.changing = false;
                state.failures += 1;
                state.error = error;
                slot.changed.notify_all();
            }
        }
    }

    /// Returns how many models are loaded that could be unloaded.
    pub fn count(&self) -> usize {
        self.slots().iter().filter(|slot| slot.reloadable && slot.loaded().is_some()).count()
    }

    /// Unloads the least recently used model once its requests have ended; returns whether there was one.
    pub fn unload_oldest(&self) -> bool {
        let candidates = self.slots().into_iter().filter(|slot| slot.reloadable && slot.status() == "loaded");
        let Some(slot) = candidates.min_by_key(|slot| slot.used.load(Ordering::Relaxed)) else { return false };
        tracing::info!(model = slot.id, "unloading");
        // From now on its requests wait.
        slot.lock().changing = true;
        loop {
            let mut state = slot.lock();
            // Requests hold the model too.
            if state.model.as_ref().is_none_or(|model| Arc::strong_count(model) == 1) {
                let model = state.model.take();
                drop(state);
                // Waits for the engine's thread.
                drop(model);
                break;
            }
            drop(state);
            std::thread::sleep(LOOK);
        }
        // Those that came in the meantime ask for it again.
        slot.lock().changing = false;
        slot.changed.notify_all();
        true
    }
}

impl Slot {
    fn new(id: String, aliases: Vec<String>, reloadable: bool, model: Option<Arc<ServedModel>>) -> Slot {
        let state = Mutex::new(State { model, ..State::default() });
        Slot { id, created: unix_time(), aliases, reloadable, state, changed: Condvar::new(), used: AtomicU64::new(0) }
    }
}

/// The answer to requests that come too early.
pub(crate) fn loading() -> ApiError {
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "the model is loading").code("loading")
}
