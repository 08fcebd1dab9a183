//! Collects the edits, diagnostics and counts of a conversion.

use std::borrow::Cow;

use crate::codes::Code;
use crate::diagnostic::{Diagnostic, Severity};
use crate::edit::Edits;
use crate::names::Family;
use crate::stats::Stats;
use crate::translate::Translation;

#[derive(Default)]
pub(super) struct Notes {
    pub edits: Edits,
    diagnostics: Vec<Diagnostic>,
    converted: usize,
    /// The end of the last removal: adjacent words share the space between them.
    removed_to: usize,
}

impl Notes {
    /// Replaces a span, and counts it as a converted CUDA reference.
    pub fn replace(&mut self, start: usize, end: usize, text: impl Into<Cow<'static, str>>) {
        self.converted += 1;
        self.edits.replace(start as u32, end as u32, text);
    }

    /// Removes a word with the white space before it, or with its line if it is alone on it.
    pub fn remove(&mut self, text: &str, start: usize, end: usize) {
        self.converted += 1;
        let (from, end) = removal(text.as_bytes(), start, end);
        let start = if self.removed_to <= start { from.max(self.removed_to) } else { from };
        self.removed_to = end;
        self.edits.replace(start as u32, end as u32, "");
    }

    pub fn report(&mut self, code: Code, start: usize, end: usize, message: impl Into<Cow<'static, str>>, help: Option<Cow<'static, str>>) {
        let (message, start, end) = (message.into(), start as u32, end as u32);
        // Two passes may find the same problem.
        let known = |known: &Diagnostic| known.code == code.number && known.start == start && known.message == message;
        if !self.diagnostics.iter().rev().take(64).any(known) {
            self.diagnostics.push(Diagnostic { code: code.number, severity: code.severity, start, end, message, help, remedy: None });
        }
    }

    pub fn finish(mut self, source: &[u8]) -> Translation {
        self.diagnostics.sort_by_key(|diagnostic| (diagnostic.start, diagnostic.code));
        let mut stats = Stats {
            bytes: source.len(),
            lines: source.iter().filter(|byte| **byte == b'\n').count() + usize::from(source.last().is_some_and(|byte| *byte != b'\n')),
            ..Stats::default()
        };
        (stats.bytes_changed, stats.lines_changed) = self.edits.touched(source);
        stats.translated[Family::Exceptions as usize] = self.converted;
        stats.untranslated[Family::Exceptions as usize] = self.diagnostics.iter().filter(|d| d.severity > Severity::Note).count();
        Translation { output: self.edits.apply(source), diagnostics: self.diagnostics, stats }
    }
}

fn removal(text: &[u8], start: usize, end: usize) -> (usize, usize) {
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let before = text[..start].iter().rev().take_while(|byte| blank(byte)).count();
    let after = text[end..].iter().take_while(|byte| blank(byte)).count();
    let first_on_line = start == before || text[start - before - 1] == b'\n';
    if !first_on_line {
        if before == 0 && after == 0 && start > 0 && text[start - 1] == b';' {
            return (start - 1, end);
        }
        if before == 0 && after == 0 && text.get(end) == Some(&b';') {
            return (start, end + 1);
        }
        // After an opening bracket or quote remove the space after the word.
        return if before == 0 { (start, end + after) } else { (start - before, end) };
    }
    let mut rest = end + after;
    if text.get(rest) == Some(&b'\\') {
        rest += 1;
    }
    if text.get(rest) == Some(&b'\r') {
        rest += 1;
    }
    match text.get(rest) {
        Some(b'\n') => (start - before, rest + 1),
        _ => (start, end + after),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_word_takes_its_space_or_its_line() {
        let without = |text: &str, word: &str| {
            let at = text.find(word).unwrap();
            let (start, end) = removal(text.as_bytes(), at, at + word.len());
            format!("{}{}", &text[..start], &text[end..])
        };
        assert_eq!(without("a -x b", "-x"), "a b");
        assert_eq!(without("(-x b)", "-x"), "(b)");
        assert_eq!(without("a \\\n  -x \\\n  b\n", "-x"), "a \\\n  b\n");
        assert_eq!(without("f(a\n  -x\n  b)", "-x"), "f(a\n  b)");
        assert_eq!(without("\"-x;a;b\"", "-x"), "\"a;b\"");
        assert_eq!(without("\"a;-x;b\"", "-x"), "\"a;b\"");
        assert_eq!(without("-x", "-x"), "");
    }
}
