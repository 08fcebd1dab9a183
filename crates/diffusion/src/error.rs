//! Errors of this crate.

use std::io;

/// A result with this crate's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong when a model is loaded or run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A tensor operation failed.
    #[error(transparent)]
    Tensor(#[from] warpwave_tensor::Error),
    /// A GPU call failed.
    #[error(transparent)]
    Gpu(#[from] warpwave_gpu::Error),
    /// A weight file is invalid.
    #[error(transparent)]
    Weights(#[from] warpwave_weights::Error),
    /// A file cannot be read.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// The operating system's error.
        source: io::Error,
    },
    /// The path holds no model that is known.
    #[error("{path}: {reason}")]
    Unknown {
        /// The file or folder.
        path: String,
        /// What was expected.
        reason: String,
    },
    /// A key of a configuration file is invalid or missing.
    #[error("{path}: `{key}`: {reason}")]
    Key {
        /// The file.
        path: String,
        /// The key.
        key: String,
        /// What is wrong.
        reason: String,
    },
    /// A tensor of a weight file is invalid or missing.
    #[error("{path}: tensor `{name}`: {reason}")]
    Weight {
        /// The file or folder.
        path: String,
        /// The tensor's name in the file.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// A tokenizer's files are invalid, or a text cannot be tokenized.
    #[error("{path}: {reason}")]
    Tokenizer {
        /// The file or folder.
        path: String,
        /// What is wrong.
        reason: String,
    },
    /// An image file is invalid or too large.
    #[error("{reason}")]
    Image {
        /// What was expected, and what came.
        reason: String,
    },
    /// The caller ended the run.
    #[error("canceled")]
    Cancelled,
    /// The denoiser's numbers overflowed.
    #[error("step {step}: the model's output is not finite; load it with another type, such as f32 or bf16")]
    NotFinite {
        /// The step, from 1.
        step: usize,
    },
    /// An argument does not fit the model.
    #[error("{call}: {reason}")]
    Argument {
        /// The method.
        call: &'static str,
        /// What was expected, and what came.
        reason: String,
    },
}

pub(crate) fn bad_key(path: &str, key: &str, reason: impl Into<String>) -> Error {
    Error::Key { path: path.to_owned(), key: key.to_owned(), reason: reason.into() }
}

pub(crate) fn bad_weight(path: &str, name: &str, reason: impl Into<String>) -> Error {
    Error::Weight { path: path.to_owned(), name: name.to_owned(), reason: reason.into() }
}

pub(crate) fn bad_argument(call: &'static str, reason: impl Into<String>) -> Error {
    Error::Argument { call, reason: reason.into() }
}
