//! Macros of the source that stand for a kernel or for the front of a launch.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use crate::brackets::Brackets;
use crate::launch::Launch;
use crate::lex::{Kind, Lexed};

/// The object-like macros that launches are made of.
#[derive(Default)]
pub(crate) struct LaunchMacros<'a> {
    /// `#define CALL kernel<<<grid, block>>>`: a use brings the arguments.
    pub open: HashMap<&'a [u8], Launch>,
    /// The `<<<` of those.
    pub angles: HashSet<usize>,
}

/// Name and body of the object-like macro that the `#` at `hash` defines.
fn definition(lexed: &Lexed<'_>, hash: usize) -> Option<(usize, Range<usize>)> {
    let name = hash + 2;
    let token = lexed.tokens.get(name)?;
    let object = lexed.is(hash + 1, b"define") && !lexed.tokens.get(name + 1).is_some_and(|next| next.start == token.end);
    let of_directive = |index: &usize| lexed.tokens.get(*index).is_some_and(|token| token.in_directive && token.kind != Kind::Hash);
    let end = (name + 1..).find(|index| !of_directive(index))?;
    (object && of_directive(&name)).then_some((name, name + 1..end))
}

/// Reads the macros; those that name a template join `templates`.
pub(crate) fn read<'a>(lexed: &Lexed<'a>, brackets: &Brackets, launches: &[usize], templates: &mut HashSet<&'a [u8]>) -> LaunchMacros<'a> {
    let mut macros = LaunchMacros::default();
    for hash in (0..lexed.tokens.len()).filter(|index| lexed.tokens[*index].kind == Kind::Hash) {
        let Some((name, body)) = definition(lexed, hash) else { continue };
        let Some(last) = body.clone().next_back() else { continue };
        let one_template = body.len() == 1 && templates.contains(lexed.text(last));
        let with_list = lexed.is(last, b">") && brackets.template_start(lexed, last) == Some(body.start + 1);
        if one_template || with_list && lexed.tokens[body.start].kind == Kind::Name {
            templates.insert(lexed.text(name));
        }
        let first = launches.partition_point(|at| *at < body.start);
        if let Some(at) = launches.get(first).filter(|at| body.contains(at))
            && let Some(launch) = Launch::read_open(lexed, brackets, *at, body.end, templates)
            && launch.start() == body.start
        {
            macros.open.insert(lexed.text(name), launch);
            macros.angles.insert(*at);
        }
    }
    macros
}
