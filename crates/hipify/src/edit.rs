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
pub struct Edits {
    edits: Vec<Edit>,
    /// Those that win over all others.
    over: Vec<Edit>,
}

impl Edits {
    /// Replaces `start..end`. Of changes that overlap the one that begins first wins, then the one made first.
    pub fn replace(&mut self, start: u32, end: u32, text: impl Into<Cow<'static, str>>) {
        self.push(Edit::new(start, end, text));
    }

    /// Replaces `start..end` whatever other changes there are inside.
    pub fn replace_over(&mut self, start: u32, end: u32, text: impl Into<Cow<'static, str>>) {
        self.over.push(Edit::new(start, end, text));
    }

    /// Adds a change made elsewhere.
    pub fn push(&mut self, edit: Edit) {
        self.edits.push(edit);
    }

    /// Replaces `start..end` by bytes.
    pub fn replace_bytes(&mut self, start: u32, end: u32, text: Vec<u8>) {
        self.push(Edit { start, end, text: Cow::Owned(text) });
    }

    /// Inserts at `at`.
    pub fn insert(&mut self, at: u32, text: impl Into<Cow<'static, str>>) {
        self.replace(at, at, text);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.edits.len() + self.over.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Stable: of those that begin at one place the first made comes first, insertions before replacements.
    fn sort(&mut self) {
        if !self.over.is_empty() {
            self.over.append(&mut self.edits);
            std::mem::swap(&mut self.over, &mut self.edits);
        }
        self.edits.sort_by_key(|edit| (edit.start, edit.end != edit.start));
    }

    /// How many bytes of the source are replaced, and how many of its lines have a change.
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

    /// The source with all changes made.
    pub fn apply(mut self, source: &[u8]) -> Vec<u8> {
        self.sort();
        let grown: usize = self.edits.iter().map(|edit| edit.text.len()).sum();
        let mut out = Vec::with_capacity(source.len() + grown);
        let mut at = 0;
        for edit in &self.edits {
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

    #[test]
    fn a_change_over_others_wins_and_insertions_before_it_stay() {
        let mut edits = Edits::default();
        edits.replace(0, 1, "x");
        edits.insert(0, ">");
        edits.replace_over(0, 3, "-");
        edits.replace(3, 4, "y");
        assert_eq!(edits.len(), 4);
        assert_eq!(edits.touched(b"abcd"), (4, 1));
        assert_eq!(edits.apply(b"abcd"), b">-y");
    }
}
