//! What a reader must know about a translation: numbered, with a place, a reason and a way out.

use std::borrow::Cow;
use std::fmt;

/// How much it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Worth knowing; nothing to do.
    Note,
    /// Look at it: it may be wrong on AMD.
    Warning,
    /// It does not work on AMD as it stands.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        })
    }
}

/// A diagnostic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Its number, `WW0107` to a reader.
    pub code: u16,
    /// How much it matters.
    pub severity: Severity,
    /// Where it begins in the source.
    pub start: u32,
    /// Where it ends.
    pub end: u32,
    /// What is wrong, in one sentence.
    pub message: Cow<'static, str>,
    /// What to do.
    pub help: Option<Cow<'static, str>>,
}

/// Line and column of an offset, both from 1; the column counts bytes.
pub fn line_and_column(source: &[u8], offset: u32) -> (usize, usize) {
    let before = &source[..(offset as usize).min(source.len())];
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    let column = before.len() - before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1) + 1;
    (line, column)
}
