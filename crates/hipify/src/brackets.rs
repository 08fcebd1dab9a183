//! Matches brackets and splits lists at their commas.
//!
//! Brackets of a directive match only within it: a macro body may open what it does not close. Unmatched brackets have no partner. Not
//! recursive, so nesting depth is unlimited.

use std::ops::Range;

use crate::lex::{Kind, Lexed};

/// The partner of every bracket token.
pub(crate) struct Brackets {
    partner: Vec<u32>,
}

const NONE: u32 = u32::MAX;

impl Brackets {
    pub(crate) fn new(lexed: &Lexed<'_>) -> Brackets {
        let mut partner = vec![NONE; lexed.tokens.len()];
        let mut open: Vec<(u32, u8)> = Vec::new();
        // The start of the current directive's brackets in `open`.
        let mut base = 0;
        let mut in_directive = false;
        for (index, token) in lexed.tokens.iter().enumerate() {
            if token.in_directive != in_directive || token.kind == Kind::Hash {
                open.truncate(if in_directive { base } else { open.len() });
                base = if token.in_directive { open.len() } else { 0 };
                in_directive = token.in_directive;
            }
            if token.kind != Kind::Punct || token.end - token.start != 1 {
                continue;
            }
            let wanted = match lexed.source[token.start as usize] {
                byte @ (b'(' | b'[' | b'{') => {
                    open.push((index as u32, byte));
                    continue;
                }
                b')' => b'(',
                b']' => b'[',
                b'}' => b'{',
                _ => continue,
            };
            // A brace closes what was left open inside it; other brackets only close their own kind.
            let found = match open.last() {
                Some((_, byte)) if *byte == wanted && open.len() > base => Some(open.len() - 1),
                _ if wanted == b'{' => {
                    let near = open.len().saturating_sub(64).max(base);
                    (near..open.len()).rev().find(|at| open[*at].1 == wanted)
                }
                _ => None,
            };
            if let Some(at) = found {
                let (other, _) = open[at];
                open.truncate(at);
                partner[index] = other;
                partner[other as usize] = index as u32;
            }
        }
        Brackets { partner }
    }

    /// The bracket that matches the one at `index`.
    pub(crate) fn partner(&self, index: usize) -> Option<usize> {
        self.partner.get(index).filter(|other| **other != NONE).map(|other| *other as usize)
    }

    /// The parts between `open` and `close`, split at commas outside of brackets and template lists, as token ranges; none for `()`.
    /// `None` if a part is empty, a bracket inside has no partner, or a directive is between.
    pub(crate) fn split(&self, lexed: &Lexed<'_>, open: usize, close: usize) -> Option<Vec<Range<usize>>> {
        let mut parts = Vec::new();
        let (mut start, mut index) = (open + 1, open + 1);
        while index < close {
            // The arguments depend on a condition inside the list.
            if lexed.tokens[index].in_directive != lexed.tokens[open].in_directive {
                return None;
            }
            match lexed.text(index) {
                b"(" | b"[" | b"{" => index = self.partner(index).filter(|end| *end < close)?,
                b")" | b"]" | b"}" => return None,
                b"<" => index = self.template_end(lexed, index).filter(|end| *end < close).unwrap_or(index),
                b"," => {
                    if start == index {
                        return None;
                    }
                    parts.push(start..index);
                    start = index + 1;
                }
                _ => {}
            }
            index += 1;
        }
        if start < close {
            parts.push(start..close);
        } else if !parts.is_empty() {
            return None;
        }
        Some(parts)
    }

    /// The end of the template list that starts at `open`, if it looks like one: after a name, with types and constants only, and
    /// followed by what can follow a template name.
    pub(crate) fn template_end(&self, lexed: &Lexed<'_>, open: usize) -> Option<usize> {
        if open == 0 || lexed.tokens[open - 1].kind != Kind::Name {
            return None;
        }
        let mut depth = 0;
        let mut index = open;
        while index < lexed.tokens.len() && index < open + 128 {
            match lexed.text(index) {
                b"<" => depth += 1,
                b">" => {
                    depth -= 1;
                    if depth == 0 {
                        let next = lexed.text(index + 1);
                        return matches!(next, b"(" | b"::" | b"," | b")" | b">" | b"{" | b"}" | b";" | b"[" | b"<<<" | b"*" | b"&")
                            .then_some(index);
                    }
                }
                b"(" | b"[" => index = self.partner(index)?,
                b";" | b"{" | b"}" | b")" | b"]" | b"&&" | b"||" | b"<<<" | b"=" => return None,
                _ => {}
            }
            index += 1;
        }
        None
    }

    /// The start of the template list that ends at `close`.
    pub(crate) fn template_start(&self, lexed: &Lexed<'_>, close: usize) -> Option<usize> {
        let mut depth = 0;
        let mut index = close;
        loop {
            match lexed.text(index) {
                b">" => depth += 1,
                b"<" => {
                    depth -= 1;
                    if depth == 0 {
                        return Some(index);
                    }
                }
                b")" | b"]" => index = self.partner(index)?,
                b";" | b"{" | b"}" | b"(" | b"[" | b"<<<" => return None,
                _ => {}
            }
            if index == 0 || close - index > 512 {
                return None;
            }
            index -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(source: &str) -> Option<Vec<String>> {
        let lexed = Lexed::new(source.as_bytes()).unwrap();
        let brackets = Brackets::new(&lexed);
        let open = (0..lexed.tokens.len()).find(|i| lexed.is(*i, b"("))?;
        let parts = brackets.split(&lexed, open, brackets.partner(open)?)?;
        let text = |part: &Range<usize>| {
            let (from, to) = (lexed.tokens[part.start].start as usize, lexed.tokens[part.end - 1].end as usize);
            source[from..to].to_owned()
        };
        Some(parts.iter().map(text).collect())
    }

    #[test]
    fn lists_split_at_their_own_commas() {
        assert_eq!(parts("f(a, g(b, c), h<d, 2>(e), {x, y}, z[i, j])").unwrap(), ["a", "g(b, c)", "h<d, 2>(e)", "{x, y}", "z[i, j]"]);
        assert_eq!(parts("f(k<float, 2>, b)").unwrap(), ["k<float, 2>", "b"]);
        assert_eq!(parts("f(a < b, c > d)").unwrap(), ["a < b", "c > d"]);
        assert_eq!(parts("f()").unwrap(), Vec::<String>::new());
        assert_eq!(parts("f(a, , b)"), None);
        assert_eq!(parts("f(a, b"), None);
    }

    #[test]
    fn a_directive_inside_a_call_does_not_disturb_its_brackets_but_its_list_is_not_read() {
        let source = "f(a,\n#define X (\n b)";
        let lexed = Lexed::new(source.as_bytes()).unwrap();
        assert_eq!(Brackets::new(&lexed).partner(1), Some(lexed.tokens.len() - 1));
        assert_eq!(parts(source), None);
    }
}
