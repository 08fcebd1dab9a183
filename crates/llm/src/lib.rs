//! Language models: files to tensors, text to tokens, tokens to text.
//!
//! A [`Checkpoint`] is a GGUF file or a folder of Hugging Face's, a [`Model`] its weights on a device or several, a [`Runner`] what takes
//! [`Sequence`]s of tokens through it, several at a time, and a [`Tokenizer`] and a [`ChatTemplate`] are what makes tokens of texts and
//! conversations.
//!
//! What this crate promises: the same code on a CPU and on GPUs of both vendors; a file that is wrong is an error that names the place, and
//! a model that does not fit is refused with the arithmetic; where memory ends in the middle, what was taken goes back and sequences are
//! as they were before the step.
//!
//! ```no_run
//! use std::ops::ControlFlow;
//! use warpwave_llm::{Checkpoint, LoadOptions, Model, Request, Runner, RunnerOptions, Sampler, Sequence};
//! use warpwave_tensor::Device;
//!
//! let checkpoint = Checkpoint::open("model.gguf")?;
//! let tokenizer = checkpoint.tokenizer()?;
//! let model = Model::load(&checkpoint, &Device::Cpu, LoadOptions::default(), &mut |_bytes| ())?;
//! let mut runner = Runner::new(model, RunnerOptions::default())?;
//! let prompt = tokenizer.encode_prompt("The capital of France is", true)?;
//! let request = Request { tokens: 16, sampler: Sampler::default(), stops: vec![], ignore_eos: false, top: 0 };
//! let mut print = |piece: &warpwave_llm::Piece| {
//!     print!("{}", piece.text);
//!     ControlFlow::Continue(())
//! };
//! runner.generate(&mut Sequence::default(), &prompt, Some(&tokenizer), &request, &mut print)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
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
