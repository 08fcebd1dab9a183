//! Macros of the source that stand for a kernel or for the front of a launch.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use crate::brackets::Brackets;
use crate::edit::Edits;
use crate::launch::Launch;
use crate::lex::{Kind, Lexed};

/// `#define LAUNCH(kernel, grid, block, ...) kernel<<<grid, block>>>(__VA_ARGS__);`, where the kernel comes with the use.
pub(crate) struct Launcher<'a> {
    parameters: Vec<&'a [u8]>,
    launch: Launch,
    /// The body brings the semicolon.
    semicolon: bool,
}

/// The macros that launches are made of.
#[derive(Default)]
pub(crate) struct LaunchMacros<'a> {
    /// Those that launch a kernel given as an argument: each use is written out, so that it says which kernel it launches.
    pub launchers: HashMap<&'a [u8], Launcher<'a>>,
    /// `#define CALL kernel<<<grid, block>>>`: a use brings the arguments.
    pub open: HashMap<&'a [u8], Launch>,
    /// The `<<<` of those.
    pub angles: HashSet<usize>,
}

/// Name and body of the object-like macro that the `#` at `hash` defines.
fn definition(lexed: &Lexed<'_>, hash: usize) -> Option<(usize, Range<usize>)> {
    let name = hash + 2;
    let token = lexed.tokens.get(name)?;
    let object = lexed.is(hash + 1, b"define") && lexed.tokens.get(name + 1).is_none_or(|next| next.start != token.end);
    let of_directive = |index: &usize| lexed.tokens.get(*index).is_some_and(|token| token.in_directive && token.kind != Kind::Hash);
    let end = (name + 1..).find(|index| !of_directive(index))?;
    (object && of_directive(&name)).then_some((name, name + 1..end))
}

/// The launcher that the `#` at `hash` defines.
fn launcher<'a>(lexed: &Lexed<'a>, brackets: &Brackets, hash: usize, launches: &[usize]) -> Option<(usize, Launcher<'a>)> {
    let (name, open) = (hash + 2, hash + 3);
    if !lexed.is(hash + 1, b"define") || !lexed.is(open, b"(") || lexed.tokens[name].end != lexed.tokens[open].start {
        return None;
    }
    let close = brackets.partner(open)?;
    let parameters: Vec<&[u8]> = brackets.split(lexed, open, close)?.iter().map(|part| lexed.text(part.start)).collect();
    let at = *launches.get(launches.partition_point(|at| *at < close))?;
    if at != close + 2 || !parameters.contains(&lexed.text(close + 1)) {
        return None;
    }
    let launch = Launch::read(lexed, brackets, at, &HashSet::new())?;
    let in_body = |index: usize| lexed.tokens.get(index).is_some_and(|token| token.in_directive && token.kind != Kind::Hash);
    let after = launch.end();
    let semicolon = in_body(after) && lexed.is(after, b";");
    let whole = !in_body(after + usize::from(semicolon));
    let pastes = (close..after).any(|index| matches!(lexed.text(index), b"#" | b"##"));
    (whole && !pastes).then_some((name, Launcher { parameters, launch, semicolon }))
}

impl Launcher<'_> {
    /// Writes out the use at `name`. `text` gives the translated text of a range of tokens.
    pub fn rewrite_use(
        &self,
        lexed: &Lexed<'_>,
        brackets: &Brackets,
        name: usize,
        templates: &HashSet<&[u8]>,
        edits: &mut Edits,
        text: &impl Fn(Range<usize>) -> Vec<u8>,
    ) -> Option<()> {
        let close = brackets.partner(name + 1)?;
        let given = brackets.split(lexed, name + 1, close)?;
        let plain = self.parameters.iter().filter(|parameter| **parameter != b"...").count();
        if given.len() < plain || given.len() > plain && plain == self.parameters.len() {
            return None;
        }
        let kernel = self.parameters.iter().position(|parameter| *parameter == lexed.text(self.launch.start()))?;
        let last = given.get(kernel)?.end - 1;
        let template = lexed.is(last, b">") || templates.contains(lexed.text(last));
        let fill = |range: Range<usize>| -> Vec<u8> {
            let mut out = Vec::new();
            for index in range.clone() {
                let token = lexed.tokens[index];
                if index > range.start && lexed.tokens[index - 1].end != token.start {
                    out.push(b' ');
                }
                let word = lexed.text(index);
                let place = self.parameters.iter().position(|parameter| *parameter == word);
                if word == b"__VA_ARGS__" {
                    let rest: Vec<Vec<u8>> = given[plain..].iter().cloned().map(text).collect();
                    out.extend(rest.join(&b", "[..]));
                } else if let Some(argument) = place.and_then(|place| given.get(place)) {
                    out.extend(text(argument.clone()));
                } else {
                    out.extend(text(index..index + 1));
                }
            }
            out
        };
        let mut new = self.launch.as_call(template, &fill);
        if self.semicolon && !lexed.is(close + 1, b";") {
            new.push(b';');
        }
        edits.replace_bytes(lexed.tokens[name].start, lexed.tokens[close].end, new);
        Some(())
    }
}

/// Reads the macros; those that name a template join `templates`.
pub(crate) fn read<'a>(lexed: &Lexed<'a>, brackets: &Brackets, launches: &[usize], templates: &mut HashSet<&'a [u8]>) -> LaunchMacros<'a> {
    let mut macros = LaunchMacros::default();
    for hash in (0..lexed.tokens.len()).filter(|index| lexed.tokens[*index].kind == Kind::Hash) {
        if let Some((name, launcher)) = launcher(lexed, brackets, hash, launches) {
            macros.launchers.insert(lexed.text(name), launcher);
        }
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
