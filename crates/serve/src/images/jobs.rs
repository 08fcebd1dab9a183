//! Jobs for images, whose events have names: progress, preview, complete and error.

use std::convert::Infallible;
use std::sync::{Arc, PoisonError};

use axum::http::{HeaderValue, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use tokio::sync::mpsc::Receiver;

use super::{ImageEvent, request};
use crate::app::{App, InFlight};
use crate::error::{ApiError, ApiResult};
use crate::fields::Fields;
use crate::openai::answer::{ACCEL_BUFFERING, KEEP_ALIVE};

/// What a job does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// An image from text.
    Generation,
    /// An image from an image.
    Transform,
    /// A part of an image.
    Inpaint,
}

impl Operation {
    pub const ALL: [Operation; 3] = [Operation::Generation, Operation::Transform, Operation::Inpaint];

    pub fn name(self) -> &'static str {
        match self {
            Operation::Generation => "image_generation",
            Operation::Transform => "image_transform",
            Operation::Inpaint => "image_inpaint",
        }
    }

    /// The operation of a name, also as `ImageGeneration`.
    pub fn from_name(name: &str) -> Option<Operation> {
        let same = |own: &str| own == name || !name.contains('_') && own.replace('_', "").eq_ignore_ascii_case(name);
        Operation::ALL.into_iter().find(|operation| same(operation.name()))
    }
}

/// A job that waits for its reader.
pub(crate) struct ImageJob {
    id: String,
    events: Receiver<ImageEvent>,
    _in_flight: InFlight,
}

/// Starts a job and returns its name.
pub(crate) fn start(app: &App, operation: Operation, fields: &Fields) -> ApiResult<String> {
    // On a server of language models the operation is what is wrong.
    let service = app.images.service(app, None).map_err(|error| match error.status {
        StatusCode::NOT_FOUND => ApiError::invalid("operation", error.message),
        _ => error,
    })?;
    let mut request = request::read(service, fields)?;
    let loras = request::loras(service, fields)?;
    let in_flight = app.enter()?;
    // Decoded images are large: one request at a time has them before the queue's limit holds.
    let _one = service.decoding.lock().unwrap_or_else(PoisonError::into_inner);
    match operation {
        Operation::Generation => (),
        Operation::Transform => request.init = Some(request::image(fields, "input_image")?),
        Operation::Inpaint => {
            request.init = Some(request::image(fields, "init_image")?);
            request.mask = Some(request::mask(fields, "mask_image")?);
        }
    }
    if operation != Operation::Generation {
        request.strength = request::strength(fields)?.unwrap_or(request.strength);
    }
    request::finish(&mut request, &service.info)?;
    let events = service.submit(request, loras, true, app.options.limits.image)?;
    let id = app.new_id("job-");
    app.images.jobs.insert(id.clone(), ImageJob { id: id.clone(), events, _in_flight: in_flight });
    Ok(id)
}

/// Removes a job when its stream ends, or its reader leaves.
struct Reader {
    app: Arc<App>,
    job: ImageJob,
    ended: bool,
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.app.images.jobs.remove(&self.job.id);
    }
}

impl Reader {
    async fn next(&mut self) -> Option<Event> {
        if self.ended {
            return None;
        }
        let event = self.job.events.recv().await;
        let percent = |step: usize, total: usize| 100.0 * step as f64 / total.max(1) as f64;
        let (name, data) = match event {
            Some(ImageEvent::Progress { step, total }) => {
                ("progress", json!({ "step": step, "total": total, "percent": percent(step, total) }))
            }
            Some(ImageEvent::Preview { step, total, png }) => {
                let image = request::encoded(&png);
                ("preview", json!({ "step": step, "total": total, "image": image, "format": "png" }))
            }
            Some(ImageEvent::Done { images, seed }) => {
                self.ended = true;
                let image = images.first().map(|image| request::encoded(image));
                ("complete", json!({ "image": image, "format": "png", "seed": seed }))
            }
            Some(ImageEvent::Failed { message }) => {
                self.ended = true;
                ("error", json!({ "message": message }))
            }
            None => {
                self.ended = true;
                ("error", json!({ "message": "the worker stopped" }))
            }
        };
        Some(Event::default().event(name).data(data.to_string()))
    }
}

/// Streams a job's events.
pub(crate) fn stream(app: Arc<App>, id: &str) -> ApiResult<Response> {
    let job = app.images.jobs.take(id)?;
    let reader = Reader { app, job, ended: false };
    let events = futures_util::stream::unfold(reader, |mut reader| async move {
        let event = reader.next().await?;
        Some((Ok::<Event, Infallible>(event), reader))
    });
    let mut response = Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response();
    response.headers_mut().insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_have_two_spellings() {
        for (name, operation) in [
            ("image_generation", Some(Operation::Generation)),
            ("ImageGeneration", Some(Operation::Generation)),
            ("ImageTransform", Some(Operation::Transform)),
            ("image_inpaint", Some(Operation::Inpaint)),
            ("infer", None),
            ("image", None),
            ("", None),
        ] {
            assert_eq!(Operation::from_name(name), operation, "{name}");
        }
    }
}
