//! What happens to every request: key, host and origin checks, an id, a log line.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Number, Value};

use crate::app::App;
use crate::error::{ApiError, ApiResult};
use crate::fields::Fields;
use crate::page;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Paths that need no key, besides the page: what load balancers ask.
const PUBLIC: [&str; 3] = ["/health", "/ready", "/v1/ready"];
/// The most fields of a form.
const MAX_FORM_FIELDS: usize = 64;

/// Checks a request, passes it on and logs the response.
pub(crate) async fn check(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let given = request.headers().get(&REQUEST_ID).and_then(|id| id.to_str().ok());
    let plain = |id: &&str| (1..=128).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic());
    let id = given.filter(plain).map_or_else(|| app.new_id("req-"), str::to_owned);
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let origin = request.headers().get(header::ORIGIN).cloned().filter(|origin| is_allowed_origin(&app, origin));
    let preflight = method == Method::OPTIONS && origin.is_some();
    let mut response = match permit(&app, request.headers(), &path, preflight) {
        Err(error) => error.into_response(),
        Ok(()) if preflight => StatusCode::NO_CONTENT.into_response(),
        Ok(()) => next.run(request).await,
    };
    let status = response.status().as_u16();
    app.metrics.response(status);
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if let Some(origin) = origin {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::VARY, HeaderValue::from_static("origin"));
        if preflight {
            headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST"));
            headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static("authorization, content-type, x-request-id"));
        }
    }
    if let Ok(value) = HeaderValue::from_str(&id) {
        headers.insert(REQUEST_ID, value);
    }
    let ms = started.elapsed().as_secs_f64() * 1e3;
    // Balancers ask several times a second.
    if PUBLIC.contains(&path.as_str()) || path == "/metrics" || page::has(&path) {
        tracing::debug!(id, %method, path, status, ms, "response");
    } else {
        tracing::info!(id, %method, path, status, ms, "response");
    }
    response
}

fn permit(app: &App, headers: &HeaderMap, path: &str, preflight: bool) -> ApiResult<()> {
    if !app.needs_key() && !is_known_host(app, headers) {
        let message = "the host name in the Host header is not allowed; start the server with --allow-host NAME";
        return Err(ApiError::new(StatusCode::FORBIDDEN, message).code("unknown_host"));
    }
    if !app.needs_key() || preflight || PUBLIC.contains(&path) || page::has(path) {
        return Ok(());
    }
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let key = given.and_then(|value| value.split_once(' ')).filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    match key {
        Some((_, key)) if app.accepts_key(key.trim()) => Ok(()),
        Some(_) => Err(ApiError::new(StatusCode::UNAUTHORIZED, "the API key is invalid").code("invalid_api_key")),
        None => {
            let message = "an API key is required: send the header `Authorization: Bearer KEY`";
            Err(ApiError::new(StatusCode::UNAUTHORIZED, message).code("missing_api_key"))
        }
    }
}

/// A web page that points a host name of its own at this machine (DNS rebinding) is known by that name. Addresses cannot be rebound.
fn is_known_host(app: &App, headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST) else { return true };
    let Ok(host) = host.to_str() else { return false };
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<std::net::IpAddr>().is_ok()
        || app.options.hosts.iter().any(|known| known.eq_ignore_ascii_case(name))
}

fn is_allowed_origin(app: &App, origin: &HeaderValue) -> bool {
    app.options.cors.iter().any(|allowed| allowed == "*" || origin.as_bytes() == allowed.as_bytes())
}

/// Reads a JSON object from a request's body, within the server's limits.
pub(crate) async fn read_json(app: &App, headers: &HeaderMap, body: Body) -> ApiResult<Fields> {
    // Browsers send other types to any host without asking first.
    let kind = content_type(headers).unwrap_or("application/json");
    if !kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json")) {
        let message = format!("expected the content type application/json, got {kind}");
        return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    Fields::parse(&read_body(app, headers, body).await?)
}

/// Reads a `multipart/form-data` body, within the server's limits. The text fields named in `numbers` become numbers where they are some.
pub(crate) async fn read_form(app: &App, headers: &HeaderMap, body: Body, numbers: &[&str]) -> ApiResult<Form> {
    let kind = content_type(headers).unwrap_or("no content type");
    let Ok(boundary) = multer::parse_boundary(kind) else {
        let message = format!("expected the content type multipart/form-data with a boundary, got {kind}");
        return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    };
    // Browsers send forms of any page to any host without asking first.
    if let Some(origin) = headers.get(header::ORIGIN).filter(|origin| !is_allowed_origin(app, origin) && !is_same_origin(headers, origin)) {
        let message =
            format!("requests from pages of {} are not allowed; allow them with --cors", String::from_utf8_lossy(origin.as_bytes()));
        return Err(ApiError::new(StatusCode::FORBIDDEN, message).code("unknown_origin"));
    }
    let bytes = read_body(app, headers, body).await?;
    let invalid = |error: multer::Error| ApiError::new(StatusCode::BAD_REQUEST, format!("the form is invalid: {error}"));
    let mut parts = multer::Multipart::new(futures_util::stream::once(async { Ok::<_, Infallible>(bytes) }), boundary);
    let mut form = Form { fields: Fields(Map::new()), files: HashMap::new() };
    while let Some(part) = parts.next_field().await.map_err(invalid)? {
        // OpenAI's clients send lists as `name[]`.
        let name = part.name().map(|name| name.strip_suffix("[]").unwrap_or(name).to_owned());
        let name = name.ok_or_else(|| ApiError::new(StatusCode::BAD_REQUEST, "the form has a field without a name"))?;
        if form.fields.0.len() + form.files.len() == MAX_FORM_FIELDS {
            return Err(ApiError::new(StatusCode::BAD_REQUEST, format!("the form has more than {MAX_FORM_FIELDS} fields")));
        }
        let is_file = part.file_name().is_some();
        let value = part.bytes().await.map_err(invalid)?;
        let repeated = match is_file {
            true => form.files.insert(name.clone(), value).is_some(),
            false => {
                let text = String::from_utf8_lossy(&value).into_owned();
                let number = numbers.contains(&name.as_str()).then(|| text.trim().parse::<Number>().ok()).flatten();
                form.fields.0.insert(name.clone(), number.map_or(Value::String(text), Value::Number)).is_some()
            }
        };
        if repeated {
            return Err(ApiError::invalid(&name, format!("{name}: expected one value, got several")));
        }
    }
    Ok(form)
}

/// A form: text fields, and files by the names of their fields.
pub(crate) struct Form {
    pub fields: Fields,
    pub files: HashMap<String, Bytes>,
}

fn content_type(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok())
}

/// Whether a page's origin is this server, as the page's address names it.
fn is_same_origin(headers: &HeaderMap, origin: &HeaderValue) -> bool {
    let host = headers.get(header::HOST).map(HeaderValue::as_bytes);
    let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    host.is_some() && origin.map(|(_, host)| host.as_bytes()) == host
}

async fn read_body(app: &App, headers: &HeaderMap, body: Body) -> ApiResult<Bytes> {
    let limits = &app.options.limits;
    let too_large = || ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the body exceeds {} bytes", limits.body_bytes));
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|length| length > limits.body_bytes) {
        return Err(too_large());
    }
    match tokio::time::timeout(limits.receive, to_bytes(body, limits.body_bytes)).await {
        Ok(read) => read.map_err(|_| too_large()),
        Err(_) => {
            let message = format!("the body did not arrive within {} s", limits.receive.as_secs());
            Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, message))
        }
    }
}
