//! What can be wrong with a tokenizer, a chat template or a way of sampling.

use std::path::PathBuf;

/// What can be wrong with a tokenizer, a chat template or a way of sampling.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// A file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A GGUF file's metadata are not what they should be.
    #[error(transparent)]
    Gguf(#[from] warpwave_weights::Error),
    /// A file or a part of it is not what it should be.
    #[error("{place}: {reason}")]
    Malformed {
        /// Which part of which file.
        place: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The tokenizer is of a kind that is not known.
    #[error("{place} is {found:?}, which is not known; known are {known}")]
    Unknown {
        /// Which part of which file.
        place: String,
        /// What is there.
        found: String,
        /// What could be.
        known: String,
    },
    /// A text cannot be made tokens.
    #[error("the tokenizer failed on a text of {bytes} bytes: {reason}")]
    Encode {
        /// The text's length.
        bytes: usize,
        /// Why.
        reason: String,
    },
    /// A chat template cannot be read or run.
    #[error("chat template, line {line}: {reason}")]
    Template {
        /// Counted from 1; 0 where it is not known.
        line: usize,
        /// Why not.
        reason: String,
    },
    /// A chat template refuses the messages, in its own words.
    #[error("the chat template refuses these messages: {0}")]
    Refused(String),
    /// A way of sampling is impossible.
    #[error("sampling: {name} is {value}; it must be {must}")]
    Sampling {
        /// Which number.
        name: &'static str,
        /// Its value.
        value: String,
        /// What it may be.
        must: &'static str,
    },
}

pub(crate) fn malformed(place: impl Into<String>, reason: impl Into<String>) -> TextError {
    TextError::Malformed { place: place.into(), reason: reason.into() }
}
