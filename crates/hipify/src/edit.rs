//! Text edits: replaced spans of a source, applied together. All other bytes stay.

use std::borrow::Cow;
use std::ops::Range;

/// A span and its replacement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// Start offset.
    pub start: u32,
    /// End offset; equal to `start` for an insertion.
    pub end: u32,
    /// The new text. Bytes, because a source need not be UTF-8.
    pub text: Cow<'static, [u8]>,
}

impl Edit {
    /// Replaces `start..end` with `text`.
    pub fn new(start: u32, end: u32, text: impl Into<Cow<'static, str>>) -> Edit {
        let text = match text.into() {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        };
        Edit { start, end, text }
    }
}

/// A set of edits, collected in any order.
#[derive(Debug, Default)]
pub struct Edits {
    edits: Vec<Edit>,
    /// Edits that take precedence over those they contain.
    over: Vec<Edit>,
    sorted: bool,
}

impl Edits {
    /// Replaces `start..end`. Of overlapping edits the one that starts first wins, then the one added first.
    pub fn replace(&mut self, start: u32, end: u32, text: impl Into<Cow<'static, str>>) {
        self.push(Edit::new(start, end, text));
    }

    /// Replaces `start..end`, dropping the edits inside.
    pub fn replace_over(&mut self, start: u32, end: u32, text: impl Into<Cow<'static, str>>) {
        self.over.push(Edit::new(start, end, text));
        self.sorted = false;
    }

    /// Adds an edit.
    pub fn push(&mut self, edit: Edit) {
        self.edits.push(edit);
        self.sorted = false;
    }

    /// Replaces `start..end` with bytes.
    pub fn replace_bytes(&mut self, start: u32, end: u32, text: Vec<u8>) {
        self.push(Edit { start, end, text: Cow::Owned(text) });
    }

    /// Inserts at `at`.
    pub fn insert(&mut self, at: u32, text: impl Into<Cow<'static, str>>) {
        self.replace(at, at, text);
    }

    /// The number of edits.
    pub fn len(&self) -> usize {
        self.edits.len() + self.over.len()
    }

    /// Returns whether the list of edits is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Stable sort by start; insertions come before replacements.
    fn sort(&mut self) {
        if self.sorted {
            return;
        }
        if !self.over.is_empty() {
            self.over.append(&mut self.edits);
            std::mem::swap(&mut self.over, &mut self.edits);
        }
        self.edits.sort_by_key(|edit| (edit.start, edit.end != edit.start));
        self.sorted = true;
    }

    /// Returns how many bytes of the source are replaced, and how many of its lines change.
    pub fn touched(&mut self, source: &[u8]) -> (usize, usize) {
        self.sort();
        let (mut bytes, mut lines, mut at, mut fresh) = (0, 0, 0, true);
        for edit in &self.edits {
            let start = edit.start as usize;
            if start < at {
                continue;
            }
            fresh |= source[at..start].contains(&b'\n');
            lines += usize::from(fresh);
            fresh = false;
            let inside = &source[start..edit.end as usize];
            lines += inside.iter().filter(|byte| **byte == b'\n').count();
            bytes += inside.len();
            at = edit.end as usize;
        }
        (bytes, lines)
    }

    /// Returns the source with all changes made.
    pub fn apply(mut self, source: &[u8]) -> Vec<u8> {
        self.sort();
        apply_sorted(&self.edits, source, 0..source.len())
    }

    /// Returns `range` of the source with the changes that are within it; `None` without changes.
    pub fn apply_within(&mut self, source: &[u8], range: Range<u32>) -> Option<Vec<u8>> {
        self.sort();
        let from = self.edits.partition_point(|edit| edit.start < range.start);
        let inside = &self.edits[from..from + self.edits[from..].partition_point(|edit| edit.start <= range.end)];
        let inside: Vec<Edit> = inside.iter().filter(|edit| edit.end <= range.end).cloned().collect();
        (!inside.is_empty()).then(|| apply_sorted(&inside, source, range.start as usize..range.end as usize))
    }
}

/// Applies sorted edits to a range of the source.
fn apply_sorted(edits: &[Edit], source: &[u8], range: Range<usize>) -> Vec<u8> {
    let grown: usize = edits.iter().map(|edit| edit.text.len()).sum();
    let mut out = Vec::with_capacity(range.len() + grown);
    let mut at = range.start;
    for edit in edits {
        if (edit.start as usize) < at {
            continue;
        }
        out.extend_from_slice(&source[at..edit.start as usize]);
        out.extend_from_slice(&edit.text);
        at = edit.end as usize;
    }
    out.extend_from_slice(&source[at..range.end]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_outside_of_edits_stay() {
        let mut edits = Edits::default();
        edits.replace(4, 7, "HIP");
        edits.insert(0, ">");
        edits.insert(8, "<");
        assert_eq!(edits.apply(b"abc cud\xFF!"), b">abc HIP\xFF<!");
    }

    #[test]
    fn the_first_of_overlapping_edits_wins() {
        let mut edits = Edits::default();
        edits.replace(0, 3, "x");
        edits.replace(1, 2, "y");
        assert_eq!(edits.apply(b"abcd"), b"xd");
    }

    #[test]
    fn replace_over_drops_inner_edits_and_keeps_insertions_before_it() {
        let mut edits = Edits::default();
        edits.replace(0, 1, "x");
        edits.insert(0, ">");
        edits.replace_over(0, 3, "-");
        edits.replace(3, 4, "y");
        assert_eq!(edits.len(), 4);
        assert_eq!(edits.touched(b"abcd"), (4, 1));
        assert_eq!(edits.apply(b"abcd"), b">-y");
    }

    #[test]
    fn a_range_gets_only_the_edits_inside_it() {
        let mut edits = Edits::default();
        edits.replace(0, 2, "x");
        edits.replace(3, 4, "y");
        edits.insert(6, ")");
        edits.replace(5, 8, "long");
        assert_eq!(edits.apply_within(b"abcdefgh", 2..6), Some(b"cyef)".to_vec()));
        assert_eq!(edits.apply_within(b"abcdefgh", 1..3), None);
    }
}
