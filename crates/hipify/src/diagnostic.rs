//! Diagnostics: a numbered code, a position, a message and a fix.

use std::borrow::Cow;
use std::fmt;

/// The severity of a diagnostic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// For information; nothing to do.
    Note,
    /// May be wrong on AMD and should be checked.
    Warning,
    /// Does not work on AMD as it is.
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

/// An option that resolves a diagnostic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Remedy {
    /// [`crate::Options::fix`].
    Fix,
    /// [`crate::Options::compatibility_header`].
    Header,
}

/// A diagnostic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// The code: 107 for `WW0107`.
    pub code: u16,
    /// The severity.
    pub severity: Severity,
    /// Start offset in the source.
    pub start: u32,
    /// End offset in the source.
    pub end: u32,
    /// What is wrong, in one sentence.
    pub message: Cow<'static, str>,
    /// What to do.
    pub help: Option<Cow<'static, str>>,
    /// The option that resolves it.
    pub remedy: Option<Remedy>,
}

impl Diagnostic {
    /// The part of the source it points at.
    pub fn text<'s>(&self, source: &'s [u8]) -> &'s [u8] {
        source.get(self.start as usize..self.end as usize).unwrap_or_default()
    }
}

/// Returns the line and column of an offset, both from 1; columns count bytes.
pub fn line_and_column(source: &[u8], offset: u32) -> (usize, usize) {
    let before = &source[..(offset as usize).min(source.len())];
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    let column = before.len() - before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1) + 1;
    (line, column)
}

/// An index of the lines of a source, for many lookups.
#[derive(Debug)]
pub struct LineIndex {
    /// Start offset of each line.
    lines: Vec<u32>,
}

impl LineIndex {
    /// Indexes a source.
    pub fn new(source: &[u8]) -> LineIndex {
        let ends = source.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
        LineIndex { lines: std::iter::once(0).chain(ends.map(|(at, _)| at as u32 + 1)).collect() }
    }

    /// Returns line and column as [`line_and_column`] does.
    pub fn position(&self, offset: u32) -> (usize, usize) {
        let line = self.lines.partition_point(|start| *start <= offset);
        (line, (offset - self.lines[line - 1]) as usize + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_agrees_with_the_linear_search() {
        let source = b"a\n\nbc\n";
        let index = LineIndex::new(source);
        for offset in 0..=source.len() as u32 {
            assert_eq!(index.position(offset), line_and_column(source, offset), "{offset}");
        }
    }
}
