//! Members of `half2` and `__half2`: `half` in CUDA, 16-bit integers in HIP 5, so reading them needs a cast.
//!
//! Variables are tracked by name from their declaration `half2 a, b[4];` until another declaration of the name.

use std::collections::HashSet;

use crate::brackets::Brackets;
use crate::lex::{Kind, Lexed};

/// The names of the current `half2` variables.
#[derive(Debug, Default)]
pub(crate) struct Half2Variables<'a> {
    names: HashSet<&'a [u8]>,
}

impl<'a> Half2Variables<'a> {
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Adds the names declared after the `half2` at `index`.
    pub fn declare(&mut self, lexed: &Lexed<'a>, index: usize) {
        let mut at = index + 1;
        if matches!(lexed.text(at), b"&" | b"const") {
            at += 1;
        }
        while lexed.tokens.get(at).is_some_and(|token| token.kind == Kind::Name) {
            // A function that returns `half2`.
            if lexed.is(at + 1, b"(") {
                return;
            }
            self.names.insert(lexed.text(at));
            if !(lexed.is(at + 1, b",") && lexed.tokens.get(at + 2).is_some_and(|token| token.kind == Kind::Name)) {
                return;
            }
            // `half2 a, float b` is a parameter list.
            if lexed.tokens.get(at + 3).is_some_and(|token| token.kind != Kind::Punct) {
                return;
            }
            at += 2;
        }
    }

    /// Removes the name at `index` if it follows another type.
    pub fn redeclared(&mut self, lexed: &Lexed<'_>, index: usize) {
        let Some(before) = index.checked_sub(1) else { return };
        if lexed.tokens[before].kind == Kind::Name
            && lexed.tokens[before].in_directive == lexed.tokens[index].in_directive
            && !matches!(lexed.text(before), b"half2" | b"__half2" | b"const" | b"return" | b"else" | b"case")
            && self.names.contains(lexed.text(index))
        {
            self.names.remove(lexed.text(index));
        }
    }

    /// The first token of the expression whose member is read at `dot`, if it is a `half2` and not cast yet.
    pub fn member(&self, lexed: &Lexed<'_>, brackets: &Brackets, dot: usize) -> Option<usize> {
        // A member that has members or elements, or is called, is not a `half`.
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
        // `&a.x` is the member's address, which the cast keeps.
        (!cast).then_some(name)
    }
}
