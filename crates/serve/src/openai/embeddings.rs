//! `POST /v1/embeddings`: vectors of texts, of an encoder or pooled from a decoder's hidden states.

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
use crate::encoder::ServedEncoder;
use crate::error::{ApiError, ApiResult};
use crate::fields::Fields;
use crate::model::ServedModel;
use crate::openai::prompts::{inputs, prompts};

/// OpenAI's maximum of texts in a request.
const MAX_INPUTS: usize = 2048;
/// Texts of a request that are in the queue at once: a large request must not fill it.
const AT_ONCE: usize = 32;

struct Wanted {
    inputs: Vec<Vec<u32>>,
    dimensions: usize,
    base64: bool,
}

/// What makes the vectors.
enum Maker {
    Model(Arc<ServedModel>, Pooling),
    Encoder(Arc<ServedEncoder>),
}

pub(crate) async fn create(State(app): State<Arc<App>>, headers: HeaderMap, body: Body) -> ApiResult<Json<Value>> {
    let fields = read_json(&app, &headers, body).await?;
    let _in_flight = app.enter()?;
    let prepared = tokio::task::spawn_blocking({
        let app = app.clone();
        move || {
            let name = fields.string("model")?;
            let maker = match app.encoder(name) {
                Some(encoder) => Maker::Encoder(encoder),
                None => Maker::Model(app.model(name)?, pooling(&fields)?),
            };
            Ok::<_, ApiError>((Wanted::parse(&maker, &fields)?, maker))
        }
    });
    let (wanted, maker) = prepared.await.map_err(|_| failed("the texts could not be processed"))??;
    let tokens: usize = wanted.inputs.iter().map(Vec::len).sum();
    let mut data = Vec::new();
    let mut inputs = wanted.inputs.into_iter().peekable();
    while inputs.peek().is_some() {
        let some: Vec<Vec<u32>> = inputs.by_ref().take(AT_ONCE).collect();
        let vectors = match &maker {
            Maker::Model(model, pooling) => embed(&app, model, some, *pooling).await?,
            Maker::Encoder(encoder) => encoder.embed(some).await.map_err(failed)?,
        };
        for vector in vectors {
            let vector = shortened(vector, wanted.dimensions);
            let shown = if wanted.base64 { base64(&vector).into() } else { json!(vector) };
            data.push(json!({ "object": "embedding", "index": data.len(), "embedding": shown }));
        }
    }
    let usage = json!({ "prompt_tokens": tokens, "total_tokens": tokens });
    Ok(Json(json!({ "object": "list", "data": data, "model": maker.id(), "usage": usage })))
}

impl Maker {
    fn id(&self) -> &str {
        match self {
            Maker::Model(model, _) => &model.id,
            Maker::Encoder(encoder) => &encoder.id,
        }
    }
}

/// How the states of a decoder become a vector.
fn pooling(fields: &Fields) -> ApiResult<Pooling> {
    match fields.string("pooling")? {
        None | Some("last") => Ok(Pooling::Last),
        Some("mean") => Ok(Pooling::Mean),
        Some(_) => Err(ApiError::invalid("pooling", "pooling: expected last or mean")),
    }
}

impl Wanted {
    fn parse(maker: &Maker, fields: &Fields) -> ApiResult<Wanted> {
        let (inputs, size): (Vec<Vec<u32>>, usize) = match maker {
            Maker::Model(model, _) => {
                let prompts = prompts(model, fields, "input")?;
                (prompts.into_iter().map(|prompt| prompt.tokens).collect(), model.client.embedding_size())
            }
            Maker::Encoder(encoder) => {
                if fields.get("pooling").is_some() {
                    return Err(ApiError::invalid("pooling", "pooling: not supported for an encoder; its configuration sets the pooling"));
                }
                let inputs = inputs(fields, "input", encoder.config.vocab, |text| encoder.encode(text), |tokens| tokens)?;
                inputs.iter().try_for_each(|tokens| encoder.check(tokens))?;
                (inputs, encoder.config.hidden)
            }
        };
        if inputs.len() > MAX_INPUTS {
            return Err(ApiError::invalid("input", format!("input: expected at most {MAX_INPUTS} texts, got {}", inputs.len())));
        }
        if let Some(number) = inputs.iter().position(Vec::is_empty) {
            return Err(ApiError::invalid("input", format!("input: text {number} is empty")));
        }
        let base64 = match fields.string("encoding_format")? {
            None | Some("float") => false,
            Some("base64") => true,
            Some(_) => return Err(ApiError::invalid("encoding_format", "encoding_format: expected float or base64")),
        };
        let dimensions = fields.integer("dimensions", 1, size as i64)?.map_or(size, |dimensions| dimensions as usize);
        Ok(Wanted { inputs, dimensions, base64 })
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
        return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "the server stopped before the response was complete"));
    }
    Ok(vectors)
}

fn failed(message: impl Into<String>) -> ApiError {
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message)
}

/// The first elements of a vector, of length 1; a whole vector stays as it is.
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
