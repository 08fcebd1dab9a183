//! The preprocessor: directives, conditionals, expressions and macro expansion.
//!
//! Everything that looks at `#if` does it through this module:
//!
//! - [`directives`] and [`conditionals`] give the structure of one file, all branches of it;
//! - [`expression`] evaluates conditions with three-valued logic, [`ConditionStack`] tracks which branch is active;
//! - [`excluded`] lists the tokens a compiler skips for given macros, [`never_on_amd`] those that no AMD compiler reads;
//! - [`platform`] finds conditionals that already have a HIP branch;
//! - [`expand`] expands a whole translation unit with its macros and included files.

pub mod conditionals;
pub mod excluded;
pub mod expand;
pub(crate) mod expression;
pub mod platform;

pub use conditionals::{Branch, Conditional, conditionals, enclosing_conditions};
pub(crate) use conditionals::{ConditionStack, include_guard, never_on_amd};
pub(crate) use excluded::{excluded, is_version_macro};

use std::ops::Range;

use crate::lex::{Kind, Lexed};

/// One directive line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directive<'a> {
    /// The token index of its `#`.
    pub hash: usize,
    /// `if`, `define`, …; empty for a lone `#`.
    pub keyword: &'a [u8],
    /// The tokens behind the keyword.
    pub body: Range<usize>,
}

impl Directive<'_> {
    /// All of its tokens, `#` first.
    pub fn tokens(&self) -> Range<usize> {
        self.hash..self.body.end
    }
}

/// The directives of a file, in order.
pub fn directives<'a>(lexed: &Lexed<'a>) -> impl Iterator<Item = Directive<'a>> {
    (0..lexed.tokens.len()).filter(|index| lexed.tokens[*index].kind == Kind::Hash).map(|hash| directive(lexed, hash))
}

/// The directive whose `#` is at `hash`.
pub fn directive<'a>(lexed: &Lexed<'a>, hash: usize) -> Directive<'a> {
    let rest = &lexed.tokens[hash + 1..];
    let end = hash + 1 + rest.iter().position(|token| !token.in_directive || token.kind == Kind::Hash).unwrap_or(rest.len());
    let keyword = if end > hash + 1 { lexed.text(hash + 1) } else { b"" };
    Directive { hash, keyword, body: (hash + 2).min(end)..end }
}

/// A macro definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition<'a> {
    /// The token index of the macro's name.
    pub name: usize,
    /// The parameters of a function-like macro, `...` among them.
    pub parameters: Option<Vec<&'a [u8]>>,
    /// The replacement tokens.
    pub body: Range<usize>,
}

/// Reads a `#define`; `None` for other directives and for a `#define` without a name or with an unclosed parameter list.
pub fn definition<'a>(lexed: &Lexed<'a>, directive: &Directive<'a>) -> Option<Definition<'a>> {
    let Range { start: name, end } = directive.body;
    if directive.keyword != b"define" || name >= end {
        return None;
    }
    let open = name + 1;
    let function_like = open < end && lexed.is(open, b"(") && lexed.tokens[open].start == lexed.tokens[name].end;
    if !function_like {
        return Some(Definition { name, parameters: None, body: open..end });
    }
    let close = (open + 1..end).find(|index| lexed.is(*index, b")"))?;
    let parameters = (open + 1..close).map(|index| lexed.text(index)).filter(|text| *text != b",").collect();
    Some(Definition { name, parameters: Some(parameters), body: close + 1..end })
}
