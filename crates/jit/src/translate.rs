//! From CUDA C++ to what the AMD compilers accept.
//!
//! NVIDIA targets get the text as it is. For AMD the compatibility headers carry what the language lacks, and the text passes
//! through unchanged until a construct needs more than a header.

use std::borrow::Cow;

use crate::target::Target;

/// Part of every cache key: a change of what [`translate`] writes raises it.
pub const TRANSLATOR_VERSION: u32 = 1;

/// A source that cannot be translated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {reason}")]
pub struct TranslateError {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// What stands there that has no counterpart.
    pub reason: String,
}

/// The text of the file `name` for `target`, with the same number of lines.
pub fn translate<'a>(_name: &str, text: &'a str, _target: &Target) -> Result<Cow<'a, str>, TranslateError> {
    Ok(Cow::Borrowed(text))
}
