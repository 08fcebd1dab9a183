//! HTTP servers for language models and image models: OpenAI's API and the job API of workers.
//!
//! A [`Server`] listens from its start and answers 503 until a [`ServedModel`] is added. It serves a chat page, chats,
//! completions, embeddings, tokenization, images of an [`ImageModel`], jobs with events, health, readiness, metrics and an OpenAPI document.
//!
//! # Contract
//!
//! - Every size that a client chooses is bounded by [`Limits`]; what exceeds them gets 4xx, a full queue gets 429 with `Retry-After`.
//! - A client that disconnects cancels its requests, streamed or not; one that stops reading pauses only its own, and is disconnected.
//! - An error has the shape of OpenAI's, also within a stream.
//! - Without keys, requests with an unknown `Host` are refused (DNS rebinding). Web pages of other origins are refused unless listed.
//! - TLS is left to a reverse proxy, and so is network access control.
//!
//! ```no_run
//! use std::sync::Arc;
//! use std::time::Duration;
//! use warpwave_llm::engine::{Engine, EngineOptions};
//! use warpwave_llm::{ChatTemplate, ModelBuilder};
//! use warpwave_serve::{AppOptions, Listen, ServedModel, Server};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = Server::start(&Listen::Tcp("127.0.0.1:8080".parse()?), AppOptions::default())?;
//! let model = ModelBuilder::new("model.gguf").cache_tokens(16_384).load()?;
//! let tokenizer = Arc::new(model.checkpoint.tokenizer()?);
//! let template = ChatTemplate::of(&tokenizer)?;
//! let engine = Engine::new(model.runner, Some(tokenizer.clone()), EngineOptions::default()).spawn(0)?;
//! server.add_model(ServedModel::new("model", tokenizer, template, engine));
//! server.wait(Duration::from_secs(30))?;
//! # Ok(())
//! # }
//! ```
#![warn(missing_docs)]

mod access;
mod app;
mod channel;
mod encoder;
mod error;
mod fields;
mod grammar;
mod heartbeat;
mod images;
mod jobs;
mod metrics;
mod model;
mod openai;
mod openapi;
mod output;
mod page;
mod registry;
mod server;
mod time;

pub use app::{AppOptions, Limits, Loading};
pub use encoder::ServedEncoder;
pub use heartbeat::{Heartbeat, Worker};
pub use images::ImageModel;
pub use model::{Render, ServedModel};
pub use output::{OutputParser, Parsed, ToolCall};
pub use server::{Listen, Server};
