//! Argument lists that differ between CUDA and HIP, as data: each function has rules, each rule changes one argument.
//!
//! The rules are rows of `data/arguments.tsv`. A rule for a missing argument changes nothing; the caller reports it.

use std::ops::Range;

use crate::edit::Edits;
use crate::lex::Lexed;
use crate::options::Target;

/// What happens to an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Wraps the argument: `a` becomes `text(a)`.
    Wrap,
    /// Removes the argument.
    Remove,
    /// Inserts `text` before the argument, or at the end of a shorter list; with a `count`, only in lists of that length.
    Add,
    /// Copies the argument before argument `to`.
    Copy,
    /// Moves the argument and the `count - 1` after it before argument `to`.
    Move,
    /// Replaces the argument with `text`.
    Replace,
    /// Renames the function to `text` if the call has `argument` arguments.
    RenameIfCount,
}

/// A change of one argument.
#[derive(Debug)]
pub(crate) struct Rule {
    pub mode: Target,
    pub argument: u16,
    pub action: Action,
    pub text: &'static str,
    pub to: u16,
    pub count: u16,
}

/// A call with a parsed argument list.
pub(crate) struct Call<'a> {
    pub lexed: &'a Lexed<'a>,
    pub close: usize,
    pub arguments: &'a [Range<usize>],
}

impl Call<'_> {
    fn start(&self, argument: usize) -> u32 {
        self.arguments
            .get(argument)
            .and_then(|range| self.lexed.tokens.get(range.start))
            .map_or(self.lexed.tokens[self.close].start, |token| token.start)
    }

    fn end(&self, argument: usize) -> u32 {
        self.lexed.tokens[self.arguments[argument].end - 1].end
    }

    /// Applies a rule. `text` returns the translated text of a range of tokens. Returns `false` if the argument is missing.
    pub fn apply(&self, rule: &Rule, edits: &mut Edits, text: impl Fn(Range<usize>) -> Vec<u8>) -> bool {
        let count = self.arguments.len();
        let at = usize::from(rule.argument);
        match rule.action {
            // The name's translation does it.
            Action::RenameIfCount => true,
            Action::Add => {
                if rule.count == 0 || count == usize::from(rule.count) {
                    self.put(edits, at, rule.text.as_bytes());
                }
                true
            }
            _ if at >= count => false,
            Action::Wrap => {
                let first = self.lexed.text(self.arguments[at].start);
                let head = rule.text.split('<').next().unwrap_or(rule.text);
                // Wrapped already, by hand or by an earlier translation; a string or another cast does not count.
                if first != head.as_bytes() {
                    edits.insert(self.start(at), format!("{}(", rule.text));
                    edits.insert(self.end(at), ")");
                }
                true
            }
            Action::Replace => {
                edits.replace_over(self.start(at), self.end(at), rule.text);
                true
            }
            Action::Remove => {
                if at + 1 < count {
                    edits.replace_over(self.start(at), self.start(at + 1), "");
                } else {
                    let from = if at > 0 { self.end(at - 1) } else { self.start(at) };
                    edits.replace_over(from, self.lexed.tokens[self.close].start, "");
                }
                true
            }
            Action::Copy => {
                let moved = text(self.arguments[at].clone());
                self.put(edits, usize::from(rule.to), &moved);
                true
            }
            Action::Move => {
                let length = usize::from(rule.count).max(1);
                // The last argument has no comma after it to remove.
                if at + length >= count {
                    return false;
                }
                let moved = text(self.arguments[at].start..self.arguments[at + length - 1].end);
                self.put(edits, usize::from(rule.to), &moved);
                edits.replace_over(self.start(at), self.start(at + length), "");
                true
            }
        }
    }

    /// Inserts a new argument before `argument`, or at the end.
    fn put(&self, edits: &mut Edits, argument: usize, text: &[u8]) {
        let at = self.start(argument);
        let new = if argument < self.arguments.len() {
            [text, b", "].concat()
        } else if self.arguments.is_empty() {
            text.to_vec()
        } else {
            [b", ", text].concat()
        };
        edits.replace_bytes(at, at, new);
    }
}
