//! Changes to a source: replaced spans, applied at once; every other byte stays.

use std::borrow::Cow;

/// A span and what stands there instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// Where it begins.
    pub start: u32,
    /// Where it ends; the same as `start` for an insertion.
    pub end: u32,
    /// The new text: bytes, because what moves within a source need not be UTF-8.
    pub text: Cow<'static, [u8]>,
}

impl Edit {
    /// Replaces `start..end` by a text.
    pub fn new(start: u32, end: u32, text: impl Into<Cow<'static, str>>) -> Edit {
        let text = match text.into() {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        };
        Edit { start, end, text }
    }
}

/// Changes collected in any order.
#[derive(Debug, Default)]
pub struct Edits(Vec<Edit>);

impl Edits {
    /// Replaces `start..end`. Where two changes overlap, the first one made wins.
    pub fn replace(&mut self, start: u32, end: u32, text: impl Into<Cow<'static, str>>) {
        self.push(Edit::new(start, end, text));
    }

    /// Adds a change made elsewhere.
    pub fn push(&mut self, edit: Edit) {
        self.0.push(edit);
    }

    /// Replaces `start..end` by bytes.
    pub fn replace_bytes(&mut self, start: u32, end: u32, text: Vec<u8>) {
        self.0.push(Edit { start, end, text: Cow::Owned(text) });
    }

    /// Inserts at `at`.
    pub fn insert(&mut self, at: u32, text: impl Into<Cow<'static, str>>) {
        self.replace(at, at, text);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Stable: of those that begin at one place the first made comes first, insertions before replacements.
    fn sort(&mut self) {
        self.0.sort_by_key(|edit| (edit.start, edit.end != edit.start));
    }

    /// How many bytes of the source are replaced, and how many of its lines have a change.
    pub fn touched(&mut self, source: &[u8]) -> (usize, usize) {
        self.sort();
        let (mut bytes, mut lines, mut at, mut fresh) = (0, 0, 0, true);
        for edit in &self.0 {
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

    /// The source with all changes made.
    pub fn apply(mut self, source: &[u8]) -> Vec<u8> {
        self.sort();
        let grown: usize = self.0.iter().map(|edit| edit.text.len()).sum();
        let mut out = Vec::with_capacity(source.len() + grown);
        let mut at = 0;
        for edit in &self.0 {
            if (edit.start as usize) < at {
                continue;
            }
            out.extend_from_slice(&source[at..edit.start as usize]);
            out.extend_from_slice(&edit.text);
            at = edit.end as usize;
        }
        out.extend_from_slice(&source[at..]);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_outside_of_changes_stay() {
        let mut edits = Edits::default();
        edits.replace(4, 7, "HIP");
        edits.insert(0, ">");
        edits.insert(8, "<");
        assert_eq!(edits.apply(b"abc cud\xFF!"), b">abc HIP\xFF<!");
    }

    #[test]
    fn of_overlapping_changes_the_first_wins() {
        let mut edits = Edits::default();
        edits.replace(0, 3, "x");
        edits.replace(1, 2, "y");
        assert_eq!(edits.apply(b"abcd"), b"xd");
    }
}
