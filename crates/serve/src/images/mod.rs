//! Images: an image model on a thread of its own, which makes one request after the other.

pub(crate) mod jobs;
pub(crate) mod openai;
mod request;

use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use warpwave_diffusion::{Error, MAX_STEPS, Model, ModelInfo, Preview, Request, generate};

use crate::app::App;
use crate::error::{ApiError, ApiResult};
use crate::jobs::Jobs;
use crate::model::unix_time;
use crate::registry;

/// The least time between two previews of a job.
const PREVIEWS: Duration = Duration::from_millis(500);
/// The events of a job: progress and a preview for each step (`ddim_uniform` takes up to twice as many as asked for), and the end.
const EVENTS: usize = 4 * MAX_STEPS + 1;

/// An image model to serve.
#[derive(Debug)]
pub struct ImageModel {
    /// The name that requests use.
    pub id: String,
    /// The model.
    pub model: Model,
    /// What shows previews.
    pub preview: Preview,
    /// The folder of the LoRA files that requests may name; without one, requests with LoRAs are refused.
    pub loras: Option<PathBuf>,
    /// Requests that wait; further ones get 429.
    pub waiting: usize,
    /// CPU threads; 0: all cores.
    pub threads: usize,
}

/// What a job reports.
enum ImageEvent {
    Progress { step: usize, total: usize },
    Preview { step: usize, total: usize, png: Vec<u8> },
    Done { images: Vec<Vec<u8>>, seed: u64 },
    Failed { message: String },
}

/// A request on its way to the model.
struct Work {
    request: Box<Request>,
    /// LoRA files with their strengths.
    loras: Vec<(PathBuf, f32)>,
    previews: bool,
    events: mpsc::Sender<ImageEvent>,
    deadline: Instant,
    limit: Duration,
}

/// The image model of a server, if it has one.
#[derive(Default)]
pub(crate) struct Images {
    service: OnceLock<Service>,
    pub jobs: Jobs<jobs::ImageJob>,
}

struct Service {
    id: String,
    created: u64,
    info: ModelInfo,
    loras: Option<PathBuf>,
    waiting: usize,
    /// Held while a request's images are decoded and queued.
    decoding: Mutex<()>,
    queue: SyncSender<Work>,
    thread: JoinHandle<()>,
}

impl Images {
    pub fn add(&self, model: ImageModel) -> io::Result<()> {
        let (queue, work) = sync_channel(model.waiting.max(1));
        let (info, threads) = (model.model.info().clone(), model.threads);
        let painter = Painter { id: model.id.clone(), model: model.model, loras: Vec::new(), preview: model.preview };
        let run = move || warpwave_tensor::cpu::with_threads(threads, || painter.run(&work));
        let thread = std::thread::Builder::new().name("warpwave-image".to_owned()).spawn(run)?;
        let (id, created, loras, waiting) = (model.id, unix_time(), model.loras, model.waiting);
        let service = Service { id, created, info, loras, waiting, decoding: Mutex::new(()), queue, thread };
        self.service.set(service).map_err(|_| io::Error::new(io::ErrorKind::AlreadyExists, "the server already has an image model"))
    }

    /// Whether the model's thread ended, which only a bug in it does.
    pub fn has_failed(&self) -> bool {
        self.service.get().is_some_and(|service| service.thread.is_finished())
    }

    /// The model as `/v1/models` lists it.
    pub fn described(&self) -> Option<Value> {
        let service = self.service.get()?;
        Some(json!({
            "id": service.id, "object": "model", "created": service.created, "owned_by": "warpwave", "root": service.id, "parent": null,
            "max_model_len": null, "status": "loaded", "task": "text-to-image", "image": request::described(service),
        }))
    }

    /// The model of a request.
    fn service(&self, app: &App, name: Option<&str>) -> ApiResult<&Service> {
        let missing = || match app.not_ready() {
            Some("loading") => registry::loading(),
            _ => ApiError::new(StatusCode::NOT_FOUND, "this server has no image model").code("model_not_found"),
        };
        let service = self.service.get().ok_or_else(missing)?;
        match name {
            Some(name) if name != service.id => {
                let message = format!("model {name:?} not found; the image model is {:?}", service.id);
                Err(ApiError::new(StatusCode::NOT_FOUND, message).code("model_not_found"))
            }
            _ => Ok(service),
        }
    }
}

impl Service {
    /// Queues a request. Dropping the receiver cancels it.
    fn submit(
        &self,
        request: Request,
        loras: Vec<(PathBuf, f32)>,
        previews: bool,
        limit: Duration,
    ) -> ApiResult<mpsc::Receiver<ImageEvent>> {
        let (events, receiver) = mpsc::channel(EVENTS);
        let deadline = Instant::now() + limit;
        match self.queue.try_send(Work { request: Box::new(request), loras, previews, events, deadline, limit }) {
            Ok(()) => Ok(receiver),
            Err(TrySendError::Full(_)) => {
                let message = format!("the queue is full: {} requests are waiting", self.waiting);
                Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, message).code("queue_full"))
            }
            Err(TrySendError::Disconnected(_)) => {
                Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "the image model stopped; see the server's log"))
            }
        }
    }
}

/// The thread of the model.
struct Painter {
    /// The model's name, which the files of images state.
    id: String,
    model: Model,
    /// The LoRAs that are applied now.
    loras: Vec<(PathBuf, f32)>,
    preview: Preview,
}

impl Painter {
    fn run(mut self, work: &Receiver<Work>) {
        while let Ok(work) = work.recv() {
            let event = match self.paint(&work) {
                Ok(done) => done,
                Err(Error::Cancelled) if Instant::now() >= work.deadline => {
                    ImageEvent::Failed { message: format!("the image was not ready within {} s", work.limit.as_secs_f64()) }
                }
                Err(error) => ImageEvent::Failed { message: error.to_string() },
            };
            // Without a reader nobody wants it.
            let _ = work.events.try_send(event);
        }
    }

    fn paint(&mut self, work: &Work) -> Result<ImageEvent, Error> {
        let is_over = || work.events.is_closed() || Instant::now() >= work.deadline;
        if is_over() {
            return Err(Error::Cancelled);
        }
        if self.loras != work.loras {
            // After a failure the weights are in an unknown state, so that the next job applies its LoRAs.
            self.loras = vec![(PathBuf::new(), f32::NAN)];
            self.model.set_loras(&work.loras)?;
            self.loras.clone_from(&work.loras);
        }
        let mut last_preview: Option<Instant> = None;
        let made = generate(&self.model, &work.request, &mut |progress| {
            let (step, total) = (progress.step, progress.total);
            // The channel has room for all events.
            let _ = work.events.try_send(ImageEvent::Progress { step, total });
            let is_due = last_preview.is_none_or(|last| last.elapsed() >= PREVIEWS) && step < total;
            if work.previews && is_due {
                last_preview = Some(Instant::now());
                if let Ok(png) = progress.preview(&self.preview).and_then(|image| image.png(None)) {
                    let _ = work.events.try_send(ImageEvent::Preview { step, total, png });
                }
            }
            if is_over() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        let request = &work.request;
        let file = |(number, image): (usize, &warpwave_diffusion::Image)| {
            image.png(Some(&request.parameters(self.model.info(), &self.id, number)?))
        };
        let images = made.images.iter().enumerate().map(file).collect::<Result<_, Error>>()?;
        Ok(ImageEvent::Done { images, seed: request.seed })
    }
}
