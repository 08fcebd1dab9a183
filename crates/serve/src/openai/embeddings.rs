//! `POST /v1/embeddings`: vectors of texts, pooled from a decoder's hidden states.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use warpwave_llm::engine::{EngineEvent, EngineRequest, Pooling};

use crate::access::read_json;
use crate::app::App;
use crate::channel::channels;
use crate::error::{ApiError, ApiResult};
use crate::fields::Fields;
use crate::model::ServedModel;
use crate::openai::prompts::{Prompt, prompts};

/// OpenAI's maximum of texts in a request.
const MAX_INPUTS: usize = 2048;
/// Texts of a request that are in the queue at once: a large request must not fill it.
const AT_ONCE: usize = 32;

struct Wanted {
    inputs: Vec<Prompt>,
    pooling: Pooling,
    dimensions: usize,
    base64: bool,
}

pub(crate) async fn create(State(app): State<Arc<App>>, headers: HeaderMap, body: Body) -> ApiResult<Json<Value>> {
    let fields = read_json(&app, &headers, body).await?;
    let _in_flight = app.enter()?;
    let prepared = tokio::task::spawn_blocking({
        let app = app.clone();
        move || {
            let model = app.model(fields.string("model")?)?;
            Ok::<_, ApiError>((Wanted::parse(&model, &fields)?, model))
        }
    });
    let (wanted, model) = prepared.await.map_err(|_| failed("the texts could not be processed"))??;
    let tokens: usize = wanted.inputs.iter().map(|input| input.tokens.len()).sum();
    let mut data = Vec::new();
    let mut inputs = wanted.inputs.into_iter().map(|input| input.tokens).peekable();
    while inputs.peek().is_some() {
        for vector in embed(&app, &model, inputs.by_ref().take(AT_ONCE).collect(), wanted.pooling).await? {
            let vector = shortened(vector, wanted.dimensions);
            let shown = if wanted.base64 { base64(&vector).into() } else { json!(vector) };
            data.push(json!({ "object": "embedding", "index": data.len(), "embedding": shown }));
        }
    }
    let usage = json!({ "prompt_tokens": tokens, "total_tokens": tokens });
    Ok(Json(json!({ "object": "list", "data": data, "model": model.id, "usage": usage })))
}

impl Wanted {
    fn parse(model: &ServedModel, fields: &Fields) -> ApiResult<Wanted> {
        let inputs = prompts(model, fields, "input")?;
        if inputs.len() > MAX_INPUTS {
            return Err(ApiError::invalid("input", format!("input: expected at most {MAX_INPUTS} texts, got {}", inputs.len())));
        }
        if let Some(number) = inputs.iter().position(|input| input.tokens.is_empty()) {
            return Err(ApiError::invalid("input", format!("input: text {number} is empty")));
        }
        let base64 = match fields.string("encoding_format")? {
            None | Some("float") => false,
            Some("base64") => true,
            Some(_) => return Err(ApiError::invalid("encoding_format", "encoding_format: expected float or base64")),
        };
        let pooling = match fields.string("pooling")? {
            None | Some("last") => Pooling::Last,
            Some("mean") => Pooling::Mean,
            Some(_) => return Err(ApiError::invalid("pooling", "pooling: expected last or mean")),
        };
        let size = model.client.embedding_size();
        let dimensions = fields.integer("dimensions", 1, size as i64)?.map_or(size, |dimensions| dimensions as usize);
        Ok(Wanted { inputs, pooling, dimensions, base64 })
    }
}

/// The vectors of some texts. Dropping the future cancels them.
async fn embed(app: &App, model: &ServedModel, inputs: Vec<Vec<u32>>, pooling: Pooling) -> ApiResult<Vec<Vec<f32>>> {
    let (sinks, mut events) = channels(inputs.len());
    let mut vectors = vec![Vec::new(); inputs.len()];
    for (input, sink) in inputs.into_iter().zip(sinks) {
        model.client.submit_to(EngineRequest::embedding(input, pooling), Box::new(sink))?;
    }
    // Every sink is gone once its request ended.
    while let Some((index, event)) = events.recv().await {
        match event {
            EngineEvent::Embedding { vector } => vectors[index] = vector,
            EngineEvent::Done { summary, .. } => app.metrics.finished(&model.id, &summary),
            EngineEvent::Failed { message } => return Err(failed(message)),
            EngineEvent::Started { .. } | EngineEvent::Token { .. } => (),
        }
    }
    if vectors.iter().any(Vec::is_empty) {
        return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "the server stopped before the answer was complete"));
    }
    Ok(vectors)
}

fn failed(message: impl Into<String>) -> ApiError {
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message)
}

/// The first elements of a vector, again of length 1.
fn shortened(mut vector: Vec<f32>, dimensions: usize) -> Vec<f32> {
    if dimensions < vector.len() {
        vector.truncate(dimensions);
        let norm = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
        if norm > 0.0 {
            vector.iter_mut().for_each(|value| *value /= norm);
        }
    }
    vector
}

/// The little-endian bytes of a vector in base64.
fn base64(vector: &[f32]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bytes: Vec<u8> = vector.iter().flat_map(|value| value.to_le_bytes()).collect();
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits = group.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for digit in 0..4 {
            let place = bits >> (18 - 6 * digit) & 63;
            text.push(if digit <= group.len() { char::from(DIGITS[place as usize]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_has_the_bytes_of_the_numbers() {
        // As Python's base64 gives them.
        assert_eq!(base64(&[1.0]), "AACAPw==");
        assert_eq!(base64(&[1.0, -2.5]), "AACAPwAAIMA=");
        assert_eq!(base64(&[0.1, 0.2, 0.3]), "zczMPc3MTD6amZk+");
        assert_eq!(base64(&[]), "");
    }

    #[test]
    fn shorter_vectors_have_length_one() {
        assert_eq!(shortened(vec![0.6, 0.0, 0.8], 3), [0.6, 0.0, 0.8]);
        assert_eq!(shortened(vec![0.6, 0.0, 0.8], 2), [1.0, 0.0]);
        assert_eq!(shortened(vec![0.0, 1.0], 1), [0.0]);
    }
}
