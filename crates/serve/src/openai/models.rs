//! `GET /v1/models`, and what says how the server is: health, readiness, metrics and version.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::app::App;
use crate::encoder::ServedEncoder;
use crate::error::ApiError;
use crate::registry::Slot;

pub(crate) async fn list(State(app): State<Arc<App>>) -> Json<Value> {
    // No model is listed while the first one loads.
    let slots = if app.not_ready() == Some("loading") { Vec::new() } else { app.registry.slots() };
    let encoders = app.encoders();
    let encoders = encoders.iter().map(|encoder| described_encoder(encoder));
    let models: Vec<Value> = slots.iter().map(|slot| described(slot)).chain(encoders).chain(app.images.described()).collect();
    Json(json!({ "object": "list", "data": models }))
}

pub(crate) async fn show(State(app): State<Arc<App>>, Path(name): Path<String>) -> Result<Json<Value>, ApiError> {
    if let Some(encoder) = app.encoders().iter().find(|encoder| encoder.id == name) {
        return Ok(Json(described_encoder(encoder)));
    }
    match app.images.described() {
        Some(model) if model["id"] == name => Ok(Json(model)),
        _ => Ok(Json(described(&*app.registry.find(Some(&name))?))),
    }
}

fn described_encoder(encoder: &ServedEncoder) -> Value {
    json!({
        "id": encoder.id, "object": "model", "created": encoder.created, "owned_by": "warpwave", "root": encoder.id, "parent": null,
        "max_model_len": encoder.config.context, "status": "loaded", "task": "feature-extraction",
    })
}

fn described(slot: &Slot) -> Value {
    json!({
        "id": slot.id, "object": "model", "created": slot.created, "owned_by": "warpwave", "root": slot.id, "parent": null,
        "max_model_len": slot.loaded().map(|model| model.client.context()), "status": slot.status(), "task": "text-generation",
    })
}

/// The process answers, even while a long prompt is computed.
pub(crate) async fn health() -> Json<Value> {
    Json(json!({ "status": "healthy" }))
}

/// Whether new requests are welcome.
pub(crate) async fn ready(State(app): State<Arc<App>>) -> Response {
    match app.not_ready() {
        None => Json(json!({ "ready": true, "status": "ready" })).into_response(),
        Some(why) => {
            let mut response = ApiError::new(StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {why}")).into_response();
            *response.body_mut() = json!({ "ready": false, "status": why }).to_string().into();
            response
        }
    }
}

/// How far loading is.
pub(crate) async fn loading(State(app): State<Arc<App>>) -> Json<Value> {
    let (loaded, total) = app.loading.bytes();
    let status = app.not_ready().unwrap_or("ready");
    let percent = if status == "ready" { 100.0 } else { 100.0 * loaded as f64 / total.max(1) as f64 };
    Json(json!({ "status": status, "loaded_bytes": loaded, "total_bytes": total, "percent": percent.min(100.0) }))
}

pub(crate) async fn version(State(app): State<Arc<App>>) -> Json<Value> {
    Json(json!({ "version": app.options.version }))
}

pub(crate) async fn metrics(State(app): State<Arc<App>>) -> Response {
    let engines: Vec<_> = app.models().iter().map(|model| (model.id.clone(), model.client.stats())).collect();
    let prefix = if app.options.vllm_metrics { "vllm:" } else { "warpwave_" };
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], app.metrics.text(prefix, &engines)).into_response()
}
