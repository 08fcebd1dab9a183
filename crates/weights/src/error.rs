//! What can go wrong with a file.

use std::io;
use std::path::Path;

/// What went wrong, and where.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// The system's words.
        source: io::Error,
    },
    /// The file is not as it should be.
    #[error("{path}: {place}: {reason}")]
    Bad {
        /// The file.
        path: String,
        /// The byte, key or tensor.
        place: String,
        /// What is wrong there.
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

    pub(crate) fn bad(path: &str, place: impl Into<String>, reason: impl Into<String>) -> Error {
        Error::Bad { path: path.to_owned(), place: place.into(), reason: reason.into() }
    }
}
