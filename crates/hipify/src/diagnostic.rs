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

impl Diagnostic {
    /// The part of the source it points at.
    pub fn text<'s>(&self, source: &'s [u8]) -> &'s [u8] {
        source.get(self.start as usize..self.end as usize).unwrap_or_default()
    }
}

/// Line and column of an offset, both from 1; the column counts bytes.
pub fn line_and_column(source: &[u8], offset: u32) -> (usize, usize) {
    let before = &source[..(offset as usize).min(source.len())];
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    let column = before.len() - before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1) + 1;
    (line, column)
}

/// Lines and columns of many places of one source.
#[derive(Debug)]
pub struct Places {
    /// Where each line begins.
    lines: Vec<u32>,
}

impl Places {
    /// Of a source.
    pub fn new(source: &[u8]) -> Places {
        let ends = source.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
        Places { lines: std::iter::once(0).chain(ends.map(|(at, _)| at as u32 + 1)).collect() }
    }

    /// As [`line_and_column`] gives them.
    pub fn of(&self, offset: u32) -> (usize, usize) {
        let line = self.lines.partition_point(|start| *start <= offset);
        (line, (offset - self.lines[line - 1]) as usize + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_agree_with_the_plain_way() {
        let source = b"a\n\nbc\n";
        let places = Places::new(source);
        for offset in 0..=source.len() as u32 {
            assert_eq!(places.of(offset), line_and_column(source, offset), "{offset}");
        }
    }
}
