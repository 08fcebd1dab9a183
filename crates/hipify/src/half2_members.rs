//! Members of `half2`: CUDA's are `half`, HIP's are plain 16-bit integers, so reading them needs a cast.
//!
//! Variables are known by name from their declaration `half2 a, b[4];` until something else declares the name.

use std::collections::HashSet;

use crate::brackets::Brackets;
use crate::lex::{Kind, Lexed};

/// Names of variables that are `half2` now.
#[derive(Debug, Default)]
pub(crate) struct Half2Variables<'a> {
    names: HashSet<&'a [u8]>,
}

impl<'a> Half2Variables<'a> {
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Reads the names behind the `half2` at `index`.
    pub fn declare(&mut self, lexed: &Lexed<'a>, index: usize) {
        let mut at = index + 1;
        if matches!(lexed.text(at), b"&" | b"const") {
            at += 1;
        }
        while lexed.tokens.get(at).is_some_and(|token| token.kind == Kind::Name) {
            // A function that returns one is no variable.
            if lexed.is(at + 1, b"(") {
                return;
            }
            self.names.insert(lexed.text(at));
            if !(lexed.is(at + 1, b",") && lexed.tokens.get(at + 2).is_some_and(|token| token.kind == Kind::Name)) {
                return;
            }
            // `half2 a, float b` is a list of parameters.
            if lexed.tokens.get(at + 3).is_some_and(|token| token.kind != Kind::Punct) {
                return;
            }
            at += 2;
        }
    }

    /// Forgets the name at `index` when another type stands before it.
    pub fn redeclared(&mut self, lexed: &Lexed<'_>, index: usize) {
        let Some(before) = index.checked_sub(1) else { return };
        if lexed.tokens[before].kind == Kind::Name
            && lexed.tokens[before].in_directive == lexed.tokens[index].in_directive
            && !matches!(lexed.text(before), b"half2" | b"const" | b"return" | b"else" | b"case")
            && self.names.contains(lexed.text(index))
        {
            self.names.remove(lexed.text(index));
        }
    }

    /// The first token of the expression whose member is read at `dot`, if it is one of these and not cast yet.
    pub fn member(&self, lexed: &Lexed<'_>, brackets: &Brackets, dot: usize) -> Option<usize> {
        // What has members or elements or is called is no number.
        if !matches!(lexed.text(dot + 1), b"x" | b"y") || matches!(lexed.text(dot + 2), b"." | b"->" | b"::" | b"(" | b"[" | b"<<<" | b"##")
        {
            return None;
        }
        let mut name = dot.checked_sub(1)?;
        if lexed.is(name, b"]") {
            name = brackets.partner(name)?.checked_sub(1)?;
        }
        if lexed.tokens[name].kind != Kind::Name || !self.names.contains(lexed.text(name)) {
            return None;
        }
        let before = |back: usize| name.checked_sub(back).map_or(&b""[..], |at| lexed.text(at));
        if matches!(before(1), b"." | b"->" | b"::") {
            return None;
        }
        let cast = before(1) == b"(" && before(2) == b">" && before(3) == b"&";
        // `&a.x` is the address of the member, which a cast keeps.
        (!cast).then_some(name)
    }
}
