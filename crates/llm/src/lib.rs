//! Language models: files to tensors, text to tokens, tokens to text.
#![warn(missing_docs)]

mod checkpoint;
mod config;
mod detokenise;
mod error;
mod generate;
mod model;
mod runner;
mod sampling;
mod share;
mod template;
mod text_error;
mod tokenizer;

pub use checkpoint::{Checkpoint, CheckpointError, Memory, Plan, Weight};
pub use config::{Config, Family, LongRope, RopeConfig};
pub use detokenise::{Detokenizer, StopStrings};
pub use error::{Error, Result};
pub use generate::{Ended, Generated, Piece, Request};
pub use model::{LoadOptions, Model, Wanted};
pub use runner::{Runner, RunnerOptions, Sequence};
pub use sampling::{Picked, Sampler};
pub use template::{Chat, ChatTemplate};
pub use text_error::TextError;
pub use tokenizer::{Tokenizer, Vocabulary};
pub use warpwave_tensor::Precision;
