//! An engine on its own thread, and clients that submit to it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::{Admission, Engine, EngineEvent, EngineOptions, EngineRequest, EngineStats, EventSink, Progress, Refusal};

/// How long the thread waits before it looks at paused requests again.
const PAUSE: Duration = Duration::from_millis(2);
/// How often an idle thread looks for requests that nobody reads, and for the end.
const IDLE: Duration = Duration::from_millis(100);

/// The events of a request, and its cancellation: dropping the handle cancels.
#[derive(Debug)]
pub struct RequestHandle {
    events: Receiver<EngineEvent>,
    closed: Arc<AtomicBool>,
}

impl RequestHandle {
    /// Returns the next event if there is one.
    pub fn try_next(&self) -> Option<EngineEvent> {
        self.events.try_recv().ok()
    }

    /// Waits for the next event; `None` after the last.
    pub fn next_event(&self) -> Option<EngineEvent> {
        self.events.recv().ok()
    }
}

impl Drop for RequestHandle {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::Release);
    }
}

pub(super) struct ChannelSink {
    events: Sender<EngineEvent>,
    closed: Arc<AtomicBool>,
}

pub(super) fn channel() -> (ChannelSink, RequestHandle) {
    let (sender, events) = mpsc::channel();
    let closed = Arc::new(AtomicBool::new(false));
    (ChannelSink { events: sender, closed: closed.clone() }, RequestHandle { events, closed })
}

impl EventSink for ChannelSink {
    fn send(&mut self, event: EngineEvent) {
        // Without a reader the request is cancelled before the next step.
        let _ = self.events.send(event);
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}

struct Submission {
    request: EngineRequest,
    sink: Box<dyn EventSink>,
    submitted: Instant,
}

/// Submits requests to an engine on another thread.
#[derive(Clone)]
pub struct EngineClient {
    submissions: Sender<Submission>,
    admission: Arc<Admission>,
    stats: Arc<Mutex<EngineStats>>,
}

impl EngineClient {
    /// Checks a request and queues it. Its events go to `sink`.
    pub fn submit_to(&self, request: EngineRequest, sink: Box<dyn EventSink>) -> Result<(), Refusal> {
        self.admission.enter(&request)?;
        let tokens = request.prompt.len();
        let sent = self.submissions.send(Submission { request, sink, submitted: Instant::now() });
        sent.map_err(|_| {
            self.admission.leave(tokens);
            Refusal::Stopped
        })
    }

    /// Checks a request and queues it; returns its events. Dropping the handle cancels the request.
    pub fn submit(&self, request: EngineRequest) -> Result<RequestHandle, Refusal> {
        let (sink, handle) = channel();
        self.submit_to(request, Box::new(sink))?;
        Ok(handle)
    }

    /// Returns the counters after the last step. Waiting requests include those that the thread has not seen yet.
    pub fn stats(&self) -> EngineStats {
        let stats = *self.stats.lock().unwrap_or_else(PoisonError::into_inner);
        EngineStats { waiting: stats.waiting.max(self.admission.waiting.load(Ordering::Acquire)), ..stats }
    }

    /// Returns the limits in effect.
    pub fn options(&self) -> EngineOptions {
        self.admission.options
    }

    /// Returns the maximum number of tokens of a request, prompt and answer together.
    pub fn context(&self) -> usize {
        self.admission.context
    }

    /// Returns the number of elements of an embedding.
    pub fn embedding_size(&self) -> usize {
        self.admission.hidden
    }

    /// Returns the number of token ids.
    pub fn vocab(&self) -> usize {
        self.admission.vocab
    }
}

/// The thread of an engine. Dropping it cancels all requests and waits for the thread.
pub struct EngineThread {
    client: EngineClient,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl EngineThread {
    /// Returns a client.
    pub fn client(&self) -> EngineClient {
        self.client.clone()
    }

    /// Returns whether the thread runs. It ends by itself only if it panics.
    pub fn is_alive(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for EngineThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // A panic was reported on standard error.
            let _ = thread.join();
        }
    }
}

impl Engine {
    /// Runs the engine on a new thread, with this many CPU threads for a model on the CPU (0: all cores).
    pub fn spawn(self, cpu_threads: usize) -> std::io::Result<EngineThread> {
        let (submissions, received) = mpsc::channel();
        let stats = Arc::new(Mutex::new(self.stats()));
        let stop = Arc::new(AtomicBool::new(false));
        let client = EngineClient { submissions, admission: self.admission.clone(), stats: stats.clone() };
        let stopped = stop.clone();
        let run = move || warpwave_tensor::cpu::with_threads(cpu_threads, || self.run(&received, &stats, &stopped));
        let thread = std::thread::Builder::new().name("warpwave-engine".to_owned()).spawn(run)?;
        Ok(EngineThread { client, stop, thread: Some(thread) })
    }

    fn run(mut self, submissions: &Receiver<Submission>, stats: &Mutex<EngineStats>, stop: &AtomicBool) {
        let mut progress = Progress::Idle;
        while !stop.load(Ordering::Acquire) {
            let wait = match progress {
                Progress::Advanced => None,
                Progress::Paused => Some(PAUSE),
                Progress::Idle => Some(IDLE),
            };
            if let Some(wait) = wait {
                match submissions.recv_timeout(wait) {
                    Ok(Submission { request, sink, submitted }) => self.enqueue(request, sink, submitted),
                    Err(RecvTimeoutError::Timeout) => (),
                    // No client is left to submit more.
                    Err(RecvTimeoutError::Disconnected) if progress == Progress::Idle => return,
                    Err(RecvTimeoutError::Disconnected) => std::thread::sleep(wait),
                }
            }
            while let Ok(Submission { request, sink, submitted }) = submissions.try_recv() {
                self.enqueue(request, sink, submitted);
            }
            progress = self.step();
            *stats.lock().unwrap_or_else(PoisonError::into_inner) = self.stats();
        }
    }
}
