//! Files of model weights: GGUF and safetensors, read, checked and written.
//!
//! [`Gguf`] and [`Safetensors`] map a file into memory and give its [`Tensor`]s as bytes in place; [`write_gguf`] writes tensors one at
//! a time, so that a model is never whole in memory.
//!
//! What this crate promises: a file is checked whole when it is opened (counts, lengths, texts, names, types, sizes, places), nothing is
//! allocated by a number that the file's size does not bear out, and what is wrong is an [`Error`] that names the place. What it leaves to
//! the caller: that nobody changes the file while it is open, and what the tensors mean.
//!
//! ```no_run
//! let file = warpwave_weights::Gguf::open("model.gguf")?;
//! println!("{}", file.need_str("general.architecture")?);
//! for tensor in file.tensors() {
//!     println!("{} {} {:?}: {} bytes", tensor.name, tensor.kind, tensor.shape, tensor.bytes.len());
//! }
//! # Ok::<(), warpwave_weights::Error>(())
//! ```
#![warn(missing_docs)]

mod error;
mod gguf;
mod kind;
mod map;
mod safetensors;

pub use error::{Error, Result};
pub use gguf::{Array, Gguf, Strs, Value, write_gguf};
pub use kind::{Kind, Tensor, TensorInfo};
pub use safetensors::{NewTensor, Safetensors, write_safetensors};
