//! `POST /v1/images/generations`.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use tokio::sync::mpsc::Receiver;
use warpwave_diffusion::MAX_IMAGES;

use super::{ImageEvent, request};
use crate::access::read_json;
use crate::app::{App, InFlight};
use crate::error::{ApiError, ApiResult};
use crate::fields::Fields;
use crate::model::unix_time;

pub(crate) async fn create(State(app): State<Arc<App>>, headers: HeaderMap, body: Body) -> ApiResult<Json<Value>> {
    let fields = read_json(&app, &headers, body).await?;
    let (mut events, _in_flight) = start(&app, &fields)?;
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

fn start(app: &App, fields: &Fields) -> ApiResult<(Receiver<ImageEvent>, InFlight)> {
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
    request::finish(&mut made, &service.info)?;
    let loras = request::loras(service, fields)?;
    let in_flight = app.enter()?;
    Ok((service.submit(made, loras, false, app.options.limits.image)?, in_flight))
}
