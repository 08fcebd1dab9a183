//! Errors as clients of OpenAI's API expect them.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use warpwave_llm::TextError;
use warpwave_llm::engine::Refusal;

/// Seconds after which a refused client should try again.
const RETRY_AFTER: u32 = 1;

/// An error response: `{"error": {"message", "type", "param", "code"}}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiError {
    pub status: StatusCode,
    pub message: String,
    /// The field of the request that is wrong.
    pub param: Option<String>,
    pub code: Option<&'static str>,
}

pub(crate) type ApiResult<T> = Result<T, ApiError>;

impl ApiError {
    pub fn new(status: StatusCode, message: impl Into<String>) -> ApiError {
        ApiError { status, message: message.into(), param: None, code: None }
    }

    /// An invalid field of a request.
    pub fn invalid(param: &str, message: impl Into<String>) -> ApiError {
        ApiError { param: Some(param.to_owned()), ..ApiError::new(StatusCode::BAD_REQUEST, message) }
    }

    pub fn code(self, code: &'static str) -> ApiError {
        ApiError { code: Some(code), ..self }
    }

    fn kind(&self) -> &'static str {
        match self.status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::FORBIDDEN => "permission_error",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        }
    }

    /// The body, which is also the last event of a stream that fails.
    pub fn body(&self) -> Value {
        json!({ "error": { "message": self.message, "type": self.kind(), "param": self.param, "code": self.code } })
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body())).into_response();
        let headers = response.headers_mut();
        if matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        let message = refusal.to_string();
        match refusal {
            Refusal::QueueFull { .. } => ApiError::new(StatusCode::TOO_MANY_REQUESTS, message).code("queue_full"),
            Refusal::TooLong(_) => ApiError::new(StatusCode::BAD_REQUEST, message).code("context_length_exceeded"),
            Refusal::Invalid(_) => ApiError::new(StatusCode::BAD_REQUEST, message),
            _ => ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message),
        }
    }
}

impl From<TextError> for ApiError {
    fn from(error: TextError) -> Self {
        ApiError::new(StatusCode::BAD_REQUEST, error.to_string())
    }
}
