//! `GET /openapi.json`: the description of the API.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde_json::{Map, Value, json};
use warpwave_diffusion::{MAX_IMAGES, MAX_STEPS};

use crate::app::App;

/// Path, method, what it does, and the schema of its body.
const OPERATIONS: [(&str, &str, &str, Option<&str>); 20] = [
    ("/health", "get", "Liveness check.", None),
    ("/ready", "get", "Readiness check; 503 while loading or draining.", None),
    ("/v1/ready", "get", "As /ready.", None),
    ("/v1/loading/progress", "get", "Progress of loading the model.", None),
    ("/version", "get", "The version of the server.", None),
    ("/metrics", "get", "Metrics for Prometheus.", None),
    ("/openapi.json", "get", "This document.", None),
    ("/v1/models", "get", "The models that are served.", None),
    ("/v1/models/{name}", "get", "Returns a model.", None),
    ("/v1/chat/completions", "post", "Creates a chat completion.", Some("ChatRequest")),
    ("/v1/completions", "post", "Creates a text completion.", Some("CompletionRequest")),
    ("/v1/embeddings", "post", "Computes the embeddings of texts.", Some("EmbeddingRequest")),
    ("/v1/images/generations", "post", "Creates images.", Some("ImageRequest")),
    ("/v1/images/edits", "post", "Creates images from an image.", Some("ImageEditRequest")),
    ("/tokenize", "post", "Converts text to tokens.", Some("TokenizeRequest")),
    ("/detokenize", "post", "Converts tokens to text.", Some("DetokenizeRequest")),
    ("/v1/jobs", "post", "Creates a job.", Some("JobRequest")),
    ("/v1/inference", "post", "As /v1/jobs.", Some("JobRequest")),
    ("/v1/jobs/{id}/stream", "get", "Streams the events of a job, to one client.", None),
    ("/v1/inference/{id}/stream", "get", "As /v1/jobs/{id}/stream.", None),
];

pub(crate) async fn document(State(app): State<Arc<App>>) -> Json<Value> {
    Json(build(&app.options.version))
}

fn build(version: &str) -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for (path, method, summary, body) in OPERATIONS {
        let error = json!({ "description": "An error.", "content": { "application/json": { "schema": reference("Error") } } });
        let kind = match path {
            "/metrics" => "text/plain",
            path if path.ends_with("/stream") => "text/event-stream",
            _ => "application/json",
        };
        let mut operation = json!({
            "summary": summary,
            "operationId": format!("{method}{}", path.replace(['/', '{', '}', '.'], "_")),
            "responses": { "200": { "description": "Success.", "content": { kind: {} } }, "default": error },
        });
        if let Some(schema) = body {
            let kind = if path == "/v1/images/edits" { "multipart/form-data" } else { "application/json" };
            operation["requestBody"] = json!({ "required": true, "content": { kind: { "schema": reference(schema) } } });
        }
        if let Some((_, name)) = path.split_once('{').and_then(|(_, rest)| rest.split_once('}').map(|(name, _)| ((), name))) {
            operation["parameters"] = json!([{ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }]);
        }
        if matches!(path, "/health" | "/ready" | "/v1/ready") {
            operation["security"] = json!([]);
        }
        paths.insert(path.to_owned(), json!({ method: operation }));
    }
    json!({
        "openapi": "3.1.0",
        "info": { "title": "Warpwave", "version": version, "description": "HTTP API for language models, compatible with OpenAI's." },
        "paths": paths,
        "security": [{}, { "key": [] }],
        "components": { "securitySchemes": { "key": { "type": "http", "scheme": "bearer" } }, "schemas": schemas() },
    })
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn schemas() -> Value {
    let number = |low: f64, high: f64| json!({ "type": ["number", "null"], "minimum": low, "maximum": high });
    let integer = |low: i64, high: i64| json!({ "type": ["integer", "null"], "minimum": low, "maximum": high });
    let whole = |low: i64, high: i64| json!({ "type": "integer", "minimum": low, "maximum": high });
    let flag = json!({ "type": ["boolean", "null"] });
    let text = json!({ "type": ["string", "null"] });
    let ids = json!({ "type": "array", "items": { "type": "integer", "minimum": 0 } });
    let large = 1 << 53;
    let sampling = json!({
        "model": text, "stream": flag, "stream_options": { "type": ["object", "null"], "properties": { "include_usage": flag } },
        "max_tokens": integer(0, large), "temperature": number(0.0, 100.0), "top_p": number(0.0, 1.0), "min_p": number(0.0, 1.0),
        "top_k": integer(-1, large), "n": integer(1, 64), "seed": integer(-large, large),
        "stop": { "anyOf": [text, { "type": "array", "maxItems": 64, "items": { "type": "string" } }] },
        "presence_penalty": number(-2.0, 2.0), "frequency_penalty": number(-2.0, 2.0), "repetition_penalty": number(0.01, 100.0),
        "logit_bias": { "type": ["object", "null"], "additionalProperties": { "type": "number", "minimum": -100, "maximum": 100 } },
        "min_tokens": integer(0, large), "stop_token_ids": { "anyOf": [ids, { "type": "null" }] }, "ignore_eos": flag,
        "skip_special_tokens": flag, "include_stop_str_in_output": flag, "priority": integer(-1000, 1000), "cache_salt": text,
        "cache_prompt": flag, "return_token_ids": flag,
        "structured_outputs": {
            "type": ["object", "null"],
            "properties": { "json": {}, "regex": text, "grammar": text, "choice": { "type": "array", "items": { "type": "string" } } },
        },
        "response_format": {
            "type": ["object", "null"], "required": ["type"],
            "properties": { "type": { "enum": ["text", "json_object", "json_schema"] }, "json_schema": { "type": "object" } },
        },
    });
    let with = |more: Value| {
        let mut all = sampling.as_object().cloned().unwrap_or_default();
        all.extend(more.as_object().cloned().unwrap_or_default());
        Value::Object(all)
    };
    let content = json!({ "anyOf": [text, { "type": "array", "items": { "type": "object" } }] });
    let message = json!({
        "type": "object", "required": ["role"],
        "properties": { "role": { "enum": ["system", "developer", "user", "assistant", "tool"] }, "content": content },
    });
    let messages = json!({ "type": "array", "minItems": 1, "items": message });
    let image = json!({
        "type": "object", "required": ["prompt"],
        "properties": {
            "model": text, "prompt": { "type": "string" }, "n": integer(1, MAX_IMAGES as i64), "size": text,
            "response_format": { "enum": ["b64_json", null] }, "output_format": { "enum": ["png", null] }, "user": text,
            "negative_prompt": text, "steps": integer(1, MAX_STEPS as i64), "guidance_scale": number(0.0, 20.0),
            "seed": integer(0, large), "sampler": text, "schedule": text,
        },
    });
    let file = json!({ "type": "string", "format": "binary" });
    let image_edit = json!({
        "type": "object", "required": ["prompt", "image"],
        "properties": {
            "image": file, "mask": file, "model": { "type": "string" }, "prompt": { "type": "string" }, "n": whole(1, MAX_IMAGES as i64),
            "size": { "type": "string" }, "negative_prompt": { "type": "string" }, "steps": whole(1, MAX_STEPS as i64),
            "guidance_scale": { "type": "number", "minimum": 0, "maximum": 20 }, "strength": { "type": "number", "minimum": 0, "maximum": 1 },
            "seed": whole(0, large), "sampler": { "type": "string" }, "schedule": { "type": "string" },
        },
    });
    let job = json!({
        "type": "object", "required": ["operation", "prompt"],
        "properties": {
            "operation": { "enum": ["infer", "image_generation", "image_transform", "image_inpaint"] }, "hive_id": text, "model": text,
            "prompt": { "type": "string" }, "device": text, "worker_id": text, "stream": flag, "seed": integer(0, large),
            "max_tokens": integer(1, 1 << 31), "temperature": number(0.0, 2.0), "top_p": number(0.0, 1.0), "top_k": integer(0, 1 << 31),
            "negative_prompt": text, "steps": integer(1, MAX_STEPS as i64), "guidance_scale": number(0.0, 20.0),
            "width": integer(256, 2048), "height": integer(256, 2048), "sampler": text, "schedule": text,
            "input_image": text, "init_image": text, "mask_image": text, "strength": number(0.0, 1.0),
            "loras": {
                "type": ["array", "null"],
                "items": { "type": "object", "required": ["path"], "properties": { "path": { "type": "string" }, "strength": number(-10.0, 10.0) } },
            },
        },
    });
    json!({
        "Error": {
            "type": "object", "required": ["error"],
            "properties": { "error": {
                "type": "object", "required": ["message", "type", "param", "code"],
                "properties": { "message": { "type": "string" }, "type": { "type": "string" }, "param": text, "code": text },
            } },
        },
        "ChatRequest": {
            "type": "object", "required": ["messages"],
            "properties": with(json!({
                "messages": messages, "max_completion_tokens": integer(0, large), "logprobs": flag, "top_logprobs": integer(0, 20),
                "tools": { "type": ["array", "null"], "items": { "type": "object" } }, "tool_choice": {}, "parallel_tool_calls": flag,
                "continue_final_message": flag, "chat_template_kwargs": { "type": ["object", "null"] }, "reasoning_effort": text,
            })),
        },
        "CompletionRequest": {
            "type": "object", "required": ["prompt"],
            "properties": with(json!({
                "prompt": { "anyOf": [{ "type": "string" }, { "type": "array", "items": {} }] }, "echo": flag, "logprobs": integer(0, 5),
            })),
        },
        "EmbeddingRequest": {
            "type": "object", "required": ["input"],
            "properties": {
                "model": text, "input": { "anyOf": [{ "type": "string" }, { "type": "array", "minItems": 1, "maxItems": 2048, "items": {} }] },
                "encoding_format": { "enum": ["float", "base64", null] }, "dimensions": integer(1, large), "pooling": { "enum": ["last", "mean", null] },
                "user": text,
            },
        },
        "TokenizeRequest": {
            "type": "object",
            "properties": { "model": text, "prompt": text, "content": text, "messages": messages, "add_special_tokens": flag },
        },
        "DetokenizeRequest": { "type": "object", "required": ["tokens"], "properties": { "model": text, "tokens": ids } },
        "ImageRequest": image, "ImageEditRequest": image_edit, "JobRequest": job,
    })
}
