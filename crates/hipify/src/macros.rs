//! Macros of the source that expand to a kernel launch or to the start of one.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use crate::brackets::Brackets;
use crate::edit::Edits;
use crate::launch::Launch;
use crate::lex::{Kind, Lexed};
use crate::preprocessor::{Definition, definition, directives};

/// `#define LAUNCH(kernel, grid, block, ...) kernel<<<grid, block>>>(__VA_ARGS__);`: the kernel is an argument.
pub(crate) struct Launcher<'a> {
    parameters: Vec<&'a [u8]>,
    launch: Launch,
    /// Whether the body ends with the semicolon.
    semicolon: bool,
}

/// The launch macros of a file.
#[derive(Default)]
pub(crate) struct LaunchMacros<'a> {
    /// Macros that launch a kernel given as an argument. Each use is expanded, so that it names the kernel it launches.
    pub launchers: HashMap<&'a [u8], Launcher<'a>>,
    /// `#define CALL kernel<<<grid, block>>>`: the use supplies the arguments.
    pub open: HashMap<&'a [u8], Launch>,
    /// The `<<<` tokens of `open`.
    pub angles: HashSet<usize>,
}

/// Reads a macro that launches one of its parameters.
fn launcher<'a>(lexed: &Lexed<'a>, brackets: &Brackets, definition: &Definition<'a>, launches: &[usize]) -> Option<Launcher<'a>> {
    let parameters = definition.parameters.clone()?;
    let Range { start, end } = definition.body;
    let at = *launches.get(launches.partition_point(|at| *at < start))?;
    if at != start + 1 || !parameters.contains(&lexed.text(start)) {
        return None;
    }
    let launch = Launch::read(lexed, brackets, at, &HashSet::new())?;
    let after = launch.end();
    let semicolon = after < end && lexed.is(after, b";");
    let whole = after + usize::from(semicolon) >= end;
    let pastes = (start..after).any(|index| matches!(lexed.text(index), b"#" | b"##"));
    (whole && !pastes).then_some(Launcher { parameters, launch, semicolon })
}

impl Launcher<'_> {
    /// Expands the use at `name`. `text` returns the translated text of a range of tokens.
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

/// Reads the macros; adds those that name a template to `templates`.
pub(crate) fn read<'a>(lexed: &Lexed<'a>, brackets: &Brackets, launches: &[usize], templates: &mut HashSet<&'a [u8]>) -> LaunchMacros<'a> {
    let mut macros = LaunchMacros::default();
    for definition in directives(lexed).filter_map(|directive| definition(lexed, &directive)) {
        let name = lexed.text(definition.name);
        if let Some(launcher) = launcher(lexed, brackets, &definition, launches) {
            macros.launchers.insert(name, launcher);
        }
        let Definition { parameters: None, body, .. } = definition else { continue };
        let Some(last) = body.clone().next_back() else { continue };
        let one_template = body.len() == 1 && templates.contains(lexed.text(last));
        let with_list = lexed.is(last, b">") && brackets.template_start(lexed, last) == Some(body.start + 1);
        if one_template || with_list && lexed.tokens[body.start].kind == Kind::Name {
            templates.insert(name);
        }
        let first = launches.partition_point(|at| *at < body.start);
        if let Some(at) = launches.get(first).filter(|at| body.contains(at))
            && let Some(launch) = Launch::read_open(lexed, brackets, *at, body.end, templates)
            && launch.start() == body.start
        {
            macros.open.insert(name, launch);
            macros.angles.insert(*at);
        }
    }
    macros
}
