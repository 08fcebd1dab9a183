//! Errors of tokenizers, chat templates and sampling parameters.

use std::path::PathBuf;

/// An invalid tokenizer, chat template or sampling parameter.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// A file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The metadata of a GGUF file are invalid.
    #[error(transparent)]
    Gguf(#[from] warpwave_weights::Error),
    /// A file, or a part of it, is invalid.
    #[error("{place}: {reason}")]
    Malformed {
        /// The file and the part of it.
        place: String,
        /// What is wrong.
        reason: String,
    },
    /// The tokenizer is of an unsupported type.
    #[error("{place}: unknown value {found:?}; expected one of {expected}")]
    Unknown {
        /// The file and the key.
        place: String,
        /// Its value.
        found: String,
        /// The supported values.
        expected: String,
    },
    /// A text cannot be tokenized.
    #[error("cannot tokenize text of {bytes} bytes: {reason}")]
    Encode {
        /// Length of the text.
        bytes: usize,
        /// Why.
        reason: String,
    },
    /// A chat template cannot be parsed or rendered.
    #[error("chat template{}: {reason}", if *line > 0 { format!(", line {line}") } else { String::new() })]
    Template {
        /// The line, counted from 1; 0 if unknown.
        line: usize,
        /// What failed.
        reason: String,
    },
    /// A chat template rejected the messages (`raise_exception`), with its message.
    #[error("the chat template rejected the messages: {0}")]
    Rejected(String),
    /// A sampling parameter is out of range.
    #[error("sampling: {name} must be {must}, got {value}")]
    Sampling {
        /// The parameter.
        name: &'static str,
        /// Its value.
        value: String,
        /// The valid values.
        must: &'static str,
    },
}

pub(crate) fn malformed(place: impl Into<String>, reason: impl Into<String>) -> TextError {
    TextError::Malformed { place: place.into(), reason: reason.into() }
}
