//! Macro expansion of a translation unit.
//!
//! Handles conditions, object-like and function-like macros, `##` and the included files that the caller has. Malformed input is passed
//! through. A source that expands without end is cut off ([`Expanded::complete`]).

use std::borrow::Cow;
use std::collections::HashMap;
use std::rc::Rc;

use super::expression::{self, Item};
use super::{ConditionStack, Definition, Directive, definition, directive};
use crate::kernels::find::{self, Kernel, Word};
use crate::lex::{Kind, Lexed, TooLarge};

/// Limit of output tokens, and of expansion steps.
const WORDS: usize = 4 << 20;
/// Nesting limit of includes.
const INCLUDES: usize = 64;
/// Limit of files read, counting each inclusion.
const VISITS: usize = 4096;
/// Nesting limit of macro calls in each other's arguments.
const DEPTH: usize = 128;
/// Limit of tokens in a macro call's arguments: an unclosed parenthesis must not make every later use read the whole file.
const ARGUMENTS: usize = 1 << 16;

/// The files of a translation unit: the source first, then what it includes.
pub struct Unit<'a> {
    /// The file contents.
    pub files: Vec<&'a [u8]>,
    /// Resolves `#include "name"` (quoted) or `<name>` in file `from` to an index of `files`.
    #[allow(clippy::type_complexity)]
    pub include: Box<dyn Fn(usize, &str, bool) -> Option<usize> + 'a>,
    /// Macros defined before the first line.
    pub defines: Vec<(String, String)>,
}

/// The tokens after expansion, in order.
#[derive(Debug)]
pub struct Expanded<'a> {
    words: Vec<Tok<'a>>,
    /// Whether all of the source was expanded.
    pub complete: bool,
}

impl Expanded<'_> {
    /// Returns the kernels a compiler would generate. Offsets are in the file [`Kernel::file`].
    pub fn kernels(&self) -> Vec<Kernel> {
        let words: Vec<Word<'_>> = self.words.iter().map(|t| Word { text: &t.text, file: t.file, at: t.at }).collect();
        find::kernels_in(&words)
    }

    /// Every identifier, with repetitions.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.words.iter().filter(|word| word.name).map(|word| &*word.text)
    }
}

#[derive(Debug, Clone)]
struct Tok<'a> {
    text: Cow<'a, [u8]>,
    name: bool,
    /// Whether it touches the token before.
    glued: bool,
    /// Macros that are not expanded again here (the "hide set").
    hidden: Option<Rc<Hidden<'a>>>,
    file: u32,
    at: u32,
}

#[derive(Debug)]
struct Hidden<'a> {
    name: Cow<'a, [u8]>,
    rest: Option<Rc<Hidden<'a>>>,
}

impl Tok<'_> {
    fn hides(&self, name: &[u8]) -> bool {
        let mut at = self.hidden.as_deref();
        while let Some(hidden) = at {
            if *hidden.name == *name {
                return true;
            }
            at = hidden.rest.as_deref();
        }
        false
    }
}

#[derive(Debug, Clone)]
struct Macro<'a> {
    parameters: Option<Vec<Vec<u8>>>,
    variadic: bool,
    body: Rc<Vec<Tok<'a>>>,
}

struct Machine<'u, 'a> {
    unit: &'u Unit<'a>,
    lexed: Vec<Lexed<'a>>,
    macros: HashMap<Vec<u8>, Macro<'a>>,
    once: Vec<bool>,
    out: Vec<Tok<'a>>,
    steps: usize,
    depth: usize,
    visits: usize,
    complete: bool,
}

/// Expands a translation unit.
pub fn expand<'a>(unit: &Unit<'a>) -> Result<Expanded<'a>, TooLarge> {
    let lexed = unit.files.iter().map(|text| Lexed::new(text)).collect::<Result<Vec<_>, _>>()?;
    let once = vec![false; lexed.len()];
    let mut machine = Machine { unit, lexed, macros: HashMap::new(), once, out: Vec::new(), steps: 0, depth: 0, visits: 0, complete: true };
    for (name, value) in &unit.defines {
        let value = value.clone().into_bytes();
        let lexed = Lexed::new(&value)?;
        let body = (0..lexed.tokens.len())
            .map(|i| Tok {
                text: Cow::Owned(lexed.text(i).to_vec()),
                name: lexed.tokens[i].kind == Kind::Name,
                glued: false,
                hidden: None,
                file: 0,
                at: 0,
            })
            .collect();
        machine.macros.insert(name.clone().into_bytes(), Macro { parameters: None, variadic: false, body: Rc::new(body) });
    }
    if !machine.lexed.is_empty() {
        machine.file(0, 0);
    }
    Ok(Expanded { words: machine.out, complete: machine.complete })
}

impl<'a> Machine<'_, 'a> {
    fn tok(&self, file: usize, index: usize) -> Tok<'a> {
        let lexed = &self.lexed[file];
        let token = lexed.tokens[index];
        Tok {
            text: Cow::Borrowed(lexed.text(index)),
            name: token.kind == Kind::Name,
            glued: index > 0 && lexed.tokens[index - 1].end == token.start,
            hidden: None,
            file: file as u32,
            at: token.start,
        }
    }

    fn file(&mut self, file: usize, depth: usize) {
        if self.once[file] {
            return;
        }
        // A file that includes itself twice would otherwise be read 2^64 times before the nesting limit.
        self.steps += self.lexed[file].tokens.len();
        self.visits += 1;
        self.complete &= self.visits <= VISITS && self.steps <= WORDS;
        if !self.complete {
            return;
        }
        let mut stack = ConditionStack::default();
        let mut pending: Vec<Tok<'a>> = Vec::new();
        let mut index = 0;
        while self.complete && index < self.lexed[file].tokens.len() {
            if self.lexed[file].tokens[index].kind != Kind::Hash {
                if stack.active() {
                    pending.push(self.tok(file, index));
                }
                index += 1;
                continue;
            }
            let directive = directive(&self.lexed[file], index);
            match directive.keyword {
                b"define" | b"undef" | b"include" if stack.active() => {
                    // The text before uses the macros as they were until here.
                    self.flush(&mut pending);
                    self.directive(file, &directive, depth);
                }
                b"pragma" if stack.active() && self.lexed[file].is(index + 2, b"once") => self.once[file] = true,
                _ => drop(stack.advance(&directive, || Some(self.condition(file, &directive)))),
            }
            index = directive.body.end;
        }
        self.flush(&mut pending);
    }

    fn flush(&mut self, pending: &mut Vec<Tok<'a>>) {
        if self.complete && !pending.is_empty() {
            let words = self.expand(std::mem::take(pending));
            self.out.extend(words);
            self.complete &= self.out.len() < WORDS;
        }
        pending.clear();
    }

    fn directive(&mut self, file: usize, directive: &Directive<'a>, depth: usize) {
        let lexed = &self.lexed[file];
        let argument = if directive.body.is_empty() { b"" } else { lexed.text(directive.body.start) };
        match directive.keyword {
            b"undef" => drop(self.macros.remove(argument)),
            b"include" => {
                let quoted = argument.first() == Some(&b'"');
                let inner = argument.get(1..argument.len().saturating_sub(1)).unwrap_or_default();
                let name = String::from_utf8_lossy(inner).into_owned();
                let found = (self.unit.include)(file, &name, quoted).filter(|found| *found < self.lexed.len());
                match found {
                    Some(found) if depth < INCLUDES => self.file(found, depth + 1),
                    Some(_) => self.complete = false,
                    None => {}
                }
            }
            _ => self.define(file, directive),
        }
    }

    fn define(&mut self, file: usize, directive: &Directive<'a>) {
        let lexed = &self.lexed[file];
        let Some(Definition { name, parameters, body }) = definition(lexed, directive) else { return };
        let name = lexed.text(name).to_vec();
        let variadic = parameters.iter().flatten().any(|parameter| *parameter == b"...");
        let named = |parameter: &[u8]| if parameter == b"..." { b"__VA_ARGS__".to_vec() } else { parameter.to_vec() };
        let parameters = parameters.map(|list| list.into_iter().map(named).collect());
        let body = body.map(|index| self.tok(file, index)).collect();
        self.macros.insert(name, Macro { parameters, variadic, body: Rc::new(body) });
    }

    fn condition(&mut self, file: usize, directive: &Directive<'a>) -> bool {
        let std::ops::Range { start: from, end } = directive.body;
        let name = if directive.body.is_empty() { b"" } else { self.lexed[file].text(from) };
        match directive.keyword {
            b"ifdef" | b"elifdef" => return self.macros.contains_key(name),
            b"ifndef" | b"elifndef" => return !self.macros.contains_key(name),
            b"else" => return true,
            _ => {}
        }
        // `defined X` is evaluated before macros are expanded.
        let mut tokens: Vec<Tok<'a>> = Vec::new();
        let mut at = from;
        while at < end {
            let mut tok = self.tok(file, at);
            if *tok.text == *b"defined" {
                let parenthesis = self.lexed[file].is(at + 1, b"(");
                at += 1 + usize::from(parenthesis);
                let known = at < end && self.macros.contains_key(self.lexed[file].text(at));
                at += usize::from(parenthesis);
                tok.text = Cow::Borrowed(if known { b"1" } else { b"0" });
                tok.name = false;
            }
            tokens.push(tok);
            at += 1;
        }
        let tokens = self.expand(tokens);
        let items: Vec<Item<'_>> = tokens.iter().map(|t| (&*t.text, t.glued)).collect();
        expression::evaluate(&items, &|_| Some(0), &|_| Some(false)).is_some_and(|value| value != 0)
    }

    /// Expands all macros in `tokens`.
    fn expand(&mut self, tokens: Vec<Tok<'a>>) -> Vec<Tok<'a>> {
        if self.depth > DEPTH {
            self.complete = false;
            return tokens;
        }
        self.depth += 1;
        let out = self.expand_here(tokens);
        self.depth -= 1;
        out
    }

    fn expand_here(&mut self, mut tokens: Vec<Tok<'a>>) -> Vec<Tok<'a>> {
        tokens.reverse();
        let mut out = Vec::new();
        while let Some(token) = tokens.pop() {
            self.steps += 1;
            if self.steps > WORDS || out.len() > WORDS || tokens.len() > WORDS {
                self.complete = false;
                return out;
            }
            let found = if token.name && !token.hides(&token.text) { self.macros.get(&*token.text).cloned() } else { None };
            let Some(found) = found else {
                out.push(token);
                continue;
            };
            let arguments = match &found.parameters {
                None => Vec::new(),
                Some(parameters) => {
                    let Some(arguments) = take_arguments(&mut tokens, parameters.len(), found.variadic, &mut self.steps) else {
                        out.push(token);
                        continue;
                    };
                    arguments
                }
            };
            let hidden = Some(Rc::new(Hidden { name: token.text.clone(), rest: token.hidden.clone() }));
            let mut body = self.substitute(&found, &arguments);
            for word in &mut body {
                // A token's position is that of the outermost macro use.
                (word.file, word.at) = (token.file, token.at);
                if word.hidden.is_none() {
                    word.hidden = hidden.clone();
                }
            }
            tokens.extend(body.into_iter().rev());
        }
        out
    }

    fn substitute(&mut self, found: &Macro<'a>, arguments: &[Vec<Tok<'a>>]) -> Vec<Tok<'a>> {
        let body = found.body.clone();
        let parameters = found.parameters.as_deref().unwrap_or_default();
        let place = |tok: &Tok<'a>| parameters.iter().position(|p| **p == *tok.text && tok.name);
        let mut out: Vec<Tok<'a>> = Vec::new();
        let mut expanded: Vec<Option<Vec<Tok<'a>>>> = vec![None; arguments.len()];
        let mut at = 0;
        while at < body.len() {
            let tok = &body[at];
            if *tok.text == *b"##" && !out.is_empty() && at + 1 < body.len() {
                let mut right = match place(&body[at + 1]).and_then(|p| arguments.get(p)) {
                    Some(argument) => argument.clone(),
                    None => vec![body[at + 1].clone()],
                };
                if let (Some(left), false) = (out.last_mut(), right.is_empty()) {
                    let first = right.remove(0);
                    left.text.to_mut().extend_from_slice(&first.text);
                    left.hidden = None;
                }
                out.extend(right);
                at += 2;
                continue;
            }
            if *tok.text == *b"#" && found.parameters.is_some() && at + 1 < body.len() {
                // No kernel name is a string: its content does not matter.
                out.push(Tok { text: Cow::Borrowed(b"\"\""), name: false, ..tok.clone() });
                at += 2;
                continue;
            }
            match place(tok) {
                Some(p) if p < arguments.len() => {
                    if body.get(at + 1).is_some_and(|next| *next.text == *b"##") {
                        out.extend(arguments[p].iter().cloned());
                        if arguments[p].is_empty() {
                            // An empty left operand of `##`.
                            at += 2;
                            continue;
                        }
                    } else {
                        if expanded[p].is_none() {
                            expanded[p] = Some(self.expand(arguments[p].clone()));
                        }
                        out.extend(expanded[p].iter().flatten().cloned());
                    }
                }
                _ => out.push(tok.clone()),
            }
            if out.len() > WORDS {
                self.complete = false;
                return out;
            }
            at += 1;
        }
        out
    }
}

/// Takes the arguments of a call from a reversed token list; `None` if no call follows.
fn take_arguments<'a>(tokens: &mut Vec<Tok<'a>>, count: usize, variadic: bool, steps: &mut usize) -> Option<Vec<Vec<Tok<'a>>>> {
    if tokens.last().is_none_or(|t| *t.text != *b"(") {
        return None;
    }
    let mut depth = 0;
    let length = tokens.iter().rev().take(ARGUMENTS).position(|t| {
        *steps += 1;
        match &*t.text {
            b"(" => depth += 1,
            b")" => depth -= 1,
            _ => {}
        }
        depth == 0
    })?;
    let call: Vec<Tok<'a>> = tokens.drain(tokens.len() - length - 1..).rev().collect();
    let mut arguments: Vec<Vec<Tok<'a>>> = vec![Vec::new()];
    let mut depth = 0;
    for tok in call.into_iter().skip(1).take(length.saturating_sub(1)) {
        match &*tok.text {
            b"(" => depth += 1,
            b")" => depth -= 1,
            b"," if depth == 0 && !(variadic && arguments.len() == count) => {
                arguments.push(Vec::new());
                continue;
            }
            _ => {}
        }
        if let Some(last) = arguments.last_mut() {
            last.push(tok);
        }
    }
    arguments.resize(arguments.len().max(count), Vec::new());
    Some(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernels(files: &[(&str, &str)], defines: &[(&str, &str)]) -> Vec<String> {
        let unit = Unit {
            files: files.iter().map(|(_, text)| text.as_bytes()).collect(),
            include: Box::new(|_, name, _| files.iter().position(|(n, _)| *n == name)),
            defines: defines.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
        };
        let expanded = expand(&unit).unwrap();
        assert!(expanded.complete);
        expanded.kernels().into_iter().map(|k| k.name).collect()
    }

    #[test]
    fn kernels_come_out_of_macros_conditions_and_included_files() {
        let header = "#pragma once\n#define OP(T, NAME, BODY) extern \"C\" __global__ void NAME(T *x) { BODY; }\n\
            #define TWO(T, B) OP(T, B##_a, 1) OP(T, B##_b, 2)\n";
        let main = "#include \"ops.cuh\"\n#include \"ops.cuh\"\n#include <gone.h>\nOP(float, u_f32, x[0] = 1)\n\
            #if __CUDA_ARCH__ >= 800\nTWO(__half, h)\n#else\nOP(int, never, 0)\n#endif\n\
            #if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800\nOP(int, old, 0)\n#elif 1\nOP(int, newer, 0)\n#endif\n\
            #undef OP\nOP(int, not_one, 0)\n";
        let files = [("main.cu", main), ("ops.cuh", header)];
        assert_eq!(kernels(&files, &[("__CUDA_ARCH__", "900")]), ["u_f32", "h_a", "h_b", "newer"]);
        assert_eq!(kernels(&files, &[]), ["u_f32", "never", "newer"]);
    }

    #[test]
    fn a_name_is_expanded_before_it_is_passed_on_but_not_beside_a_paste() {
        let main = "#define N real\n#define CAT(a, b) a##b\n#define XCAT(a, b) CAT(a, b)\n#define K(n, ...) __global__ void n(__VA_ARGS__) {}\n\
            K(N)\nK(CAT(N, _x))\nK(XCAT(N, _y), int a, int b)\n#define SELF SELF\nK(SELF)\nK\n;";
        assert_eq!(kernels(&[("m", main)], &[]), ["real", "N_x", "real_y", "SELF"]);
    }

    #[test]
    fn growth_without_end_is_cut_off() {
        let mut bomb = String::from("#define A0 x x\n");
        for i in 1..40 {
            bomb += &format!("#define A{i} A{} A{}\n", i - 1, i - 1);
        }
        for text in [bomb + "A39", "#include \"m\"\n".to_owned(), format!("#define f(x) x\n{}", "f(".repeat(3000))] {
            let unit = Unit { files: vec![text.as_bytes()], include: Box::new(|_, _, _| Some(0)), defines: Vec::new() };
            let expanded = expand(&unit).unwrap();
            assert!(!expanded.complete || text.contains("f("), "{}", expanded.words.len());
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_expanded_without_a_panic(
            parts in proptest::collection::vec(proptest::sample::select(vec![
                "#define ", "#if ", "#else\n", "#endif\n", "f", "(x)", " x", "##", "#", "\n", "f(", ")", ",", "__global__ void ", "{", "}",
                "#include \"f\"\n", "#undef f\n", "...", "__VA_ARGS__", "defined(", "1", "?", ">", "template<", "extern \"C\" ",
            ]), 0..60)
        ) {
            let text = parts.concat();
            let unit = Unit { files: vec![text.as_bytes()], include: Box::new(|_, _, _| Some(0)), defines: Vec::new() };
            expand(&unit).unwrap().kernels();
        }
    }
}
