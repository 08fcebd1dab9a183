//! Language models: loading, tokenization, chat templates and text generation.
//!
//! [`ModelBuilder`] opens a GGUF file or a Hugging Face folder, checks that it fits into memory, and loads it. [`LanguageModel::generate`]
//! returns an iterator of [`Event`]s.
//!
//! Below that, a [`Checkpoint`] is the model's files, a [`Model`] its weights on one or several devices, a [`Runner`] runs batches of
//! [`Sequence`]s with a paged KV cache, an [`engine`] serves many requests at once, and a [`Tokenizer`] and [`ChatTemplate`] turn text and
//! conversations into tokens. An [`Encoder`] turns texts into embeddings.
//!
//! # Contract
//!
//! - The same code runs on CPUs and on GPUs of both vendors.
//! - An invalid file is an error that names the file and the key or tensor.
//! - A model that does not fit is refused with an estimate per kind of memory. If memory runs out later, what was allocated is freed and
//!   sequences are as before the step.
//! - A runner never lets a sequence grow beyond its context.
//! - The caller chooses devices, does not modify model files while they are open, and limits the memory of untrusted chat templates, see
//!   [`ChatTemplate`].
//!
//! ```no_run
//! use warpwave_llm::{ModelBuilder, Request};
//!
//! let mut model = ModelBuilder::new("model.gguf").context(2048).load()?;
//! let request = Request::default().max_tokens(16).temperature(0.7).seed(1);
//! for event in model.generate("The capital of France is", &request)? {
//!     print!("{}", event?.text());
//! }
//! # Ok::<(), warpwave_llm::Error>(())
//! ```
#![warn(missing_docs)]

mod budget;
mod builder;
mod checkpoint;
mod config;
mod detokenize;
mod encoder;
pub mod engine;
mod error;
mod generate;
mod model;
mod runner;
mod sampling;
mod template;
mod tensor_parallel;
mod text_error;
mod tokenizer;

pub use budget::{Alternative, DeviceBudget, MemoryBudget, MemoryShortage};
pub use builder::{LanguageModel, ModelBuilder};
pub use checkpoint::{Checkpoint, CheckpointError, MemoryEstimate, MemoryPlan, Weight};
pub use config::{Config, Family, LongRope, MlaConfig, MoeConfig, NormKind, RopeConfig};
pub use detokenize::{Detokenizer, StopStrings};
pub use encoder::{Encoder, EncoderCheckpoint, EncoderConfig, EncoderInput, EncoderPooling, EncoderTokenizer};
pub use error::{Error, Result};
pub use generate::{Completion, Event, FinishReason, Generation, Request};
pub use model::{LoadOptions, Logits, Model};
pub use runner::{Runner, RunnerOptions, Sequence};
pub use sampling::{SampledToken, Sampler};
pub use template::{Chat, ChatTemplate};
pub use text_error::TextError;
pub use tokenizer::{Tokenizer, Vocabulary};
pub use warpwave_tensor::{KvCacheType, Precision};
