//! `POST /v1/images/generations` and `POST /v1/images/edits`.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use tokio::sync::mpsc::Receiver;
use warpwave_diffusion::{MAX_IMAGES, Mask};

use super::{ImageEvent, request};
use crate::access::{read_form, read_json};
use crate::app::{App, InFlight};
use crate::error::{ApiError, ApiResult};
use crate::fields::Fields;
use crate::model::unix_time;

/// The numbers among the fields of an edit.
const NUMBERS: [&str; 7] = ["n", "steps", "guidance_scale", "seed", "width", "height", "strength"];

pub(crate) async fn create(State(app): State<Arc<App>>, headers: HeaderMap, body: Body) -> ApiResult<Json<Value>> {
    let fields = read_json(&app, &headers, body).await?;
    answer(start(&app, &fields, &HashMap::new())?).await
}

pub(crate) async fn edit(State(app): State<Arc<App>>, headers: HeaderMap, body: Body) -> ApiResult<Json<Value>> {
    let form = read_form(&app, &headers, body, &NUMBERS).await?;
    if !form.files.contains_key("image") {
        return Err(ApiError::invalid("image", "missing required file `image`"));
    }
    let started = tokio::task::spawn_blocking(move || start(&app, &form.fields, &form.files)).await;
    let failed = |_| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal error while decoding the images; see the server's log");
    answer(started.map_err(failed)??).await
}

async fn answer((mut events, _in_flight): (Receiver<ImageEvent>, InFlight)) -> ApiResult<Json<Value>> {
    // A client that leaves drops the receiver, which cancels the request.
    while let Some(event) = events.recv().await {
        match event {
            ImageEvent::Progress { .. } | ImageEvent::Preview { .. } => (),
            ImageEvent::Done { images, seed } => {
                let one =
                    |(number, image): (u64, &Vec<u8>)| json!({ "b64_json": request::encoded(image), "seed": seed.wrapping_add(number) });
                let data: Vec<Value> = (0..).zip(&images).map(one).collect();
                return Ok(Json(json!({ "created": unix_time(), "data": data, "output_format": "png" })));
            }
            ImageEvent::Failed { message } => return Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message)),
        }
    }
    Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "the image model stopped; see the server's log"))
}

/// Queues a request. With an image it starts from it; what is transparent in the mask, or in the image itself, is repainted.
fn start(app: &App, fields: &Fields, files: &HashMap<String, Bytes>) -> ApiResult<(Receiver<ImageEvent>, InFlight)> {
    let service = app.images.service(app, fields.string("model")?)?;
    let mut made = request::read(service, fields)?;
    made.images = fields.integer("n", 1, MAX_IMAGES as i64)?.unwrap_or(1) as usize;
    for (name, only) in [("response_format", "b64_json"), ("output_format", "png")] {
        if let Some(other) = fields.string(name)?.filter(|value| *value != only) {
            return Err(ApiError::invalid(name, format!("{name}: expected {only}, got {other:?}")));
        }
    }
    if let Some(size) = fields.string("size")?.filter(|size| *size != "auto") {
        let sides = size.split_once('x').and_then(|(width, height)| Some((width.parse().ok()?, height.parse().ok()?)));
        let Some((width, height)) = sides else {
            return Err(ApiError::invalid("size", format!("size: expected WIDTHxHEIGHT such as 512x512, got {size:?}")));
        };
        (made.width, made.height) = (Some(width), Some(height));
    }
    // Decoded images are large: one request at a time has them before the queue's limit holds.
    let _one = (!files.is_empty()).then(|| service.decoding.lock().unwrap_or_else(PoisonError::into_inner));
    if let Some(image) = files.get("image") {
        let init = request::image_of(image, "image")?;
        made.mask = match files.get("mask") {
            Some(mask) => {
                Some(request::transparency_of(mask, "mask")?.ok_or_else(|| ApiError::invalid("mask", "mask: no pixel is transparent"))?)
            }
            None => request::transparency_of(image, "image")?,
        };
        let (width, height) = (init.width(), init.height());
        if let Some((found_width, found_height)) = made.mask.as_ref().map(Mask::size).filter(|size| *size != (width, height)) {
            let message = format!("mask: expected the size of the image, {width}x{height}, got {found_width}x{found_height}");
            return Err(ApiError::invalid("mask", message));
        }
        made.strength = request::strength(fields)?.unwrap_or(if made.mask.is_some() { 1.0 } else { made.strength });
        made.init = Some(init);
    }
    request::finish(&mut made, &service.info)?;
    let loras = request::loras(service, fields)?;
    let in_flight = app.enter()?;
    Ok((service.submit(made, loras, false, app.options.limits.image)?, in_flight))
}
