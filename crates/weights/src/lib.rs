//! Reads and writes files of tensors: GGUF, safetensors and NumPy's `.npy`.
//!
//! [`Gguf`] and [`Safetensors`] map a file into memory and return [`Tensor`]s that borrow their bytes from it. [`write_gguf`] writes one tensor
//! at a time, so a model is never in memory as a whole. [`npy`] reads and writes single arrays.
//!
//! # Contract
//!
//! - Opening a file validates all of it except the tensor elements: counts, lengths, strings, names, types, sizes and offsets.
//! - No allocation is larger than the file's size justifies.
//! - An invalid file is an [`Error`] with the byte, key or tensor.
//! - The caller makes sure that the file does not change while it is open, and interprets the tensors.
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

pub mod array;
mod error;
mod gguf;
mod kind;
mod map;
pub mod npy;
mod safetensors;
pub mod value;

pub use error::{Error, Result};
pub use gguf::{Array, Gguf, Strs, Value, write_gguf};
pub use kind::{Kind, Tensor, TensorInfo};
pub use safetensors::{NewTensor, Safetensors, write_safetensors};
