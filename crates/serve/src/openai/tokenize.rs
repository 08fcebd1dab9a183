//! `POST /tokenize` and `/detokenize`, with the fields of vLLM (`prompt`, `messages`) and of llama.cpp (`content`).

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde_json::{Value, json};

use crate::access::read_json;
use crate::app::App;
use crate::error::{ApiError, ApiResult};
use crate::fields::Fields;
use crate::openai::chat::render;

pub(crate) async fn tokenize(State(app): State<Arc<App>>, headers: HeaderMap, body: Body) -> ApiResult<Json<Value>> {
    let fields = read_json(&app, &headers, body).await?;
    off_thread(move || encode(&app, &fields)).await
}

pub(crate) async fn detokenize(State(app): State<Arc<App>>, headers: HeaderMap, body: Body) -> ApiResult<Json<Value>> {
    let fields = read_json(&app, &headers, body).await?;
    off_thread(move || decode(&app, &fields)).await
}

async fn off_thread(work: impl FnOnce() -> ApiResult<Json<Value>> + Send + 'static) -> ApiResult<Json<Value>> {
    let failed = |_| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the text could not be tokenized");
    tokio::task::spawn_blocking(work).await.map_err(failed)?
}

fn encode(app: &App, fields: &Fields) -> ApiResult<Json<Value>> {
    let model = app.model(fields.string("model")?)?;
    let text = match (fields.get("messages"), fields.string("prompt")?, fields.string("content")?) {
        (Some(_), None, None) => {
            let tools = fields.array("tools")?.cloned().unwrap_or_default();
            render(&model, fields, &tools)?
        }
        (None, Some(text), None) | (None, None, Some(text)) => text.to_owned(),
        _ => return Err(ApiError::invalid("prompt", "expected exactly one of prompt, messages or content")),
    };
    // llama.cpp adds no special tokens by default, vLLM does.
    let special = match fields.boolean("add_special_tokens")? {
        Some(special) => special,
        None => fields.boolean("add_special")?.unwrap_or(fields.get("content").is_none()),
    };
    let tokens = if special { model.tokenizer.encode_prompt(&text, true)? } else { model.tokenizer.encode(&text, true)? };
    let mut answer = json!({ "count": tokens.len(), "max_model_len": model.client.context(), "tokens": tokens });
    if fields.boolean("return_token_strs")?.unwrap_or(false) || fields.boolean("with_pieces")?.unwrap_or(false) {
        let piece = |id: &u32| String::from_utf8_lossy(model.tokenizer.token(*id).unwrap_or_default()).into_owned();
        answer["token_strs"] = tokens.iter().map(piece).collect();
    }
    Ok(Json(answer))
}

fn decode(app: &App, fields: &Fields) -> ApiResult<Json<Value>> {
    let model = app.model(fields.string("model")?)?;
    let Some(tokens) = fields.token_ids("tokens", model.client.vocab())? else {
        return Err(ApiError::invalid("tokens", "missing required field `tokens`"));
    };
    let text = model.tokenizer.decode(&tokens, true);
    Ok(Json(json!({ "prompt": text, "content": text })))
}
