//! What can be wrong with a checkpoint.

use std::io;

/// What is wrong with a checkpoint, and where.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The file of weights is not as it should be.
    #[error(transparent)]
    File(#[from] warpwave_weights::Error),
    /// The system refused.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// The system's words.
        source: io::Error,
    },
    /// A key of `config.json`, `tokenizer.json` or of a GGUF file's metadata is wrong or missing.
    #[error("{path}: `{key}`: {reason}")]
    Key {
        /// The file.
        path: String,
        /// The key.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A tensor is wrong, missing or too many.
    #[error("{path}: tensor `{name}`: {reason}")]
    Tensor {
        /// The file or folder.
        path: String,
        /// The tensor, as the file calls it.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
}

pub(super) type Result<T, E = CheckpointError> = std::result::Result<T, E>;

pub(super) fn bad_key(path: &str, key: &str, reason: impl Into<String>) -> CheckpointError {
    CheckpointError::Key { path: path.to_owned(), key: key.to_owned(), reason: reason.into() }
}

pub(super) fn bad_tensor(path: &str, name: &str, reason: impl Into<String>) -> CheckpointError {
    CheckpointError::Tensor { path: path.to_owned(), name: name.to_owned(), reason: reason.into() }
}
