//! Errors of weight files.

use std::io;
use std::path::Path;

/// An error of a weight file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file cannot be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// The operating system's error.
        source: io::Error,
    },
    /// The file is invalid.
    #[error("{path}: {location}: {reason}")]
    Invalid {
        /// The file.
        path: String,
        /// The byte, key or tensor.
        location: String,
        /// What is wrong.
        reason: String,
    },
}

/// A result with this crate's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Error + use<> {
        let path = path.display().to_string();
        |source| Error::Io { path, source }
    }

    pub(crate) fn invalid(path: &str, location: impl Into<String>, reason: impl Into<String>) -> Error {
        Error::Invalid { path: path.to_owned(), location: location.into(), reason: reason.into() }
    }
}
