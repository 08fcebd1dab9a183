//! Errors of model files.

use std::io;

/// An invalid model file, and where.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The weight file is invalid.
    #[error(transparent)]
    File(#[from] warpwave_weights::Error),
    /// The file cannot be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// The operating system's error.
        source: io::Error,
    },
    /// A key of `config.json`, `tokenizer.json` or the GGUF metadata is invalid or missing.
    #[error("{path}: `{key}`: {reason}")]
    Key {
        /// The file.
        path: String,
        /// The key.
        key: String,
        /// What is wrong.
        reason: String,
    },
    /// A tensor is invalid, missing or unexpected.
    #[error("{path}: tensor `{name}`: {reason}")]
    Tensor {
        /// The file or folder.
        path: String,
        /// The tensor's name in the file.
        name: String,
        /// What is wrong.
        reason: String,
    },
}

pub(crate) type Result<T, E = CheckpointError> = std::result::Result<T, E>;

pub(crate) fn bad_key(path: &str, key: &str, reason: impl Into<String>) -> CheckpointError {
    CheckpointError::Key { path: path.to_owned(), key: key.to_owned(), reason: reason.into() }
}

pub(crate) fn bad_tensor(path: &str, name: &str, reason: impl Into<String>) -> CheckpointError {
    CheckpointError::Tensor { path: path.to_owned(), name: name.to_owned(), reason: reason.into() }
}
