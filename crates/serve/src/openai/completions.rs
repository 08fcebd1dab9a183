//! `POST /v1/completions`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};

use crate::access::read_json;
use crate::app::App;
use crate::error::{ApiError, ApiResult};
use crate::fields::Fields;
use crate::openai::answer::{Answer, Form};
use crate::openai::params::Params;
use crate::openai::prompts::prompts;
use crate::output::OutputParser;

/// OpenAI's default of `max_tokens` for completions.
const MAX_TOKENS: usize = 16;

pub(crate) async fn create(State(app): State<Arc<App>>, headers: HeaderMap, body: Body) -> Response {
    let fields = match read_json(&app, &headers, body).await {
        Ok(fields) => fields,
        Err(error) => return error.into_response(),
    };
    let prepared = tokio::task::spawn_blocking(move || prepare(&app, &fields)).await;
    match prepared {
        Ok(Ok(answer)) => answer.respond().await,
        Ok(Err(error)) => error.into_response(),
        Err(_) => ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal error while preparing the request; see the server's log")
            .into_response(),
    }
}

fn prepare(app: &Arc<App>, fields: &Fields) -> ApiResult<Answer> {
    let model = app.model(fields.string("model")?)?;
    let mut params = Params::parse(fields, &app.options.limits, &model, MAX_TOKENS)?;
    if let Some(top) = fields.count("logprobs", 5)? {
        params.logprobs = true;
        params.request.top_logprobs = top;
    }
    let echo = fields.boolean("echo")?.unwrap_or(false);
    if echo && params.logprobs {
        return Err(ApiError::invalid("echo", "echo with logprobs is not supported"));
    }
    let mut prompts = prompts(&model, fields, "prompt")?;
    if !echo {
        prompts.iter_mut().for_each(|prompt| prompt.echo.clear());
    }
    Answer::submit(app.clone(), model, Form::Text, params, prompts, &OutputParser::new(false, false, None, false))
}
