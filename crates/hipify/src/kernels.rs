//! The kernel language: what stands in device code, and what becomes of it on AMD.
//!
//! [`rewrite`] collects the changes that device code needs beside the names of the runtime's calls: guards on `__CUDA_ARCH__`
//! ([`guards`]) and inline PTX ([`ptx`]). What cannot be done is told in the diagnostics of [`codes`], calls that no header answers
//! by [`intrinsics`]. [`find`] lists the kernels and device
//! functions of a text as it is written, [`expand`] those that come out of its macros and conditions.
//!
//! Promises: no change adds or removes a line; a statement that has no counterpart is not left out but replaced by one that does
//! not compile; any bytes may come in.

pub mod codes;
mod condition;
pub mod expand;
pub mod find;
pub mod guards;
pub mod intrinsics;
pub mod ptx;

use std::collections::HashMap;
use std::ops::Range;

use crate::diagnostic::Diagnostic;
use crate::edit::Edits;
use crate::lex::{Lexed, TooLarge};
use guards::Obstacle;

/// Part of every cache key of translated code: a change of what [`rewrite`] writes raises it.
pub const VERSION: u32 = 3;

/// A translated text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Translation {
    /// The text, with as many lines as the source.
    pub text: Vec<u8>,
    /// What a reader must know, in the order of the source.
    pub diagnostics: Vec<Diagnostic>,
}

/// Translates the device code of a source for Warpwave's headers.
pub fn translate(source: &[u8]) -> Result<Translation, TooLarge> {
    Ok(translate_for(&Lexed::new(source)?, ptx::Dialect::Warpwave))
}

/// The same, with C++ that calls functions of this dialect.
pub fn translate_for(lexed: &Lexed<'_>, dialect: ptx::Dialect) -> Translation {
    let (mut edits, mut diagnostics) = (Edits::default(), Vec::new());
    rewrite(lexed, dialect, &mut edits, &mut diagnostics);
    diagnostics.sort_by_key(|d| (d.start, d.code));
    Translation { text: edits.apply(lexed.source), diagnostics }
}

/// Translates the inline PTX of a file that is compiled with HIP's own headers: the C++ calls nothing else. Guards on `__CUDA_ARCH__`
/// stay, each with a diagnostic, and a statement without a counterpart stays as it is, named in one.
pub fn translate_ptx(lexed: &Lexed<'_>) -> Translation {
    let conditionals = guards::conditionals(lexed);
    let elsewhere = guards::not_for_amd(lexed, &conditionals);
    let (mut edits, mut diagnostics) = (Edits::default(), Vec::new());
    for statement in ptx::statements(lexed) {
        let token = *statement.as_ref().map_or_else(|(token, _)| token, |asm| &asm.tokens.start);
        if elsewhere.contains(token) {
            continue;
        }
        let asm = match statement {
            Ok(asm) => asm,
            Err((_, reason)) => {
                diagnostics.push(codes::unreadable_asm(lexed.tokens[token].start, lexed.tokens[token].end, reason));
                continue;
            }
        };
        let (start, end) = (lexed.tokens[asm.tokens.start].start, lexed.tokens[asm.tokens.end - 1].end);
        match ptx::translate(&asm, ptx::Dialect::Hip) {
            ptx::Outcome::Keep => {}
            ptx::Outcome::Unknown(name) => diagnostics.push(codes::unknown_ptx(start, end, &name)),
            ptx::Outcome::Cpp(text, notes) => {
                edits.replace(start, end, same_lines(lexed, &asm.tokens, text));
                diagnostics.extend(notes.into_iter().map(|note| codes::near_ptx(start, end, note)));
            }
        }
    }
    for branch in conditionals.iter().flat_map(|conditional| &conditional.branches).filter(|branch| branch.on_arch) {
        let Range { start, end } = branch.directive;
        if !elsewhere.contains(start) {
            diagnostics.push(codes::arch_guard(lexed.tokens[start].start, lexed.tokens[end - 1].end));
        }
    }
    diagnostics.sort_by_key(|d| (d.start, d.code));
    Translation { text: edits.apply(lexed.source), diagnostics }
}

/// Adds the changes that the device code of `lexed` needs.
pub fn rewrite(lexed: &Lexed<'_>, dialect: ptx::Dialect, edits: &mut Edits, diagnostics: &mut Vec<Diagnostic>) {
    let conditionals = guards::conditionals(lexed);
    let mut obstacles = Vec::new();
    let mut statements: HashMap<usize, ptx::Asm> = HashMap::new();
    for statement in ptx::statements(lexed) {
        let asm = match statement {
            Ok(asm) => asm,
            Err((token, reason)) => {
                let place = lexed.tokens[token];
                diagnostics.push(codes::unreadable_asm(place.start, place.end, reason));
                continue;
            }
        };
        let (start, end) = (lexed.tokens[asm.tokens.start].start, lexed.tokens[asm.tokens.end - 1].end);
        match ptx::translate(&asm, dialect) {
            ptx::Outcome::Keep => {}
            ptx::Outcome::Unknown(name) => {
                obstacles.push(Obstacle { token: asm.tokens.start, name });
                statements.insert(asm.tokens.start, asm);
            }
            ptx::Outcome::Cpp(text, notes) => {
                edits.replace(start, end, same_lines(lexed, &asm.tokens, text));
                diagnostics.extend(notes.into_iter().map(|note| codes::near_ptx(start, end, note)));
            }
        }
    }
    // An obstacle in a branch that AMD compilers never see is none.
    let elsewhere = guards::not_for_amd(lexed, &conditionals);
    obstacles.retain(|obstacle| !elsewhere.contains(obstacle.token));
    for Obstacle { token, name } in guards::rewrite(lexed, &conditionals, obstacles, edits, diagnostics) {
        let Some(asm) = statements.get(&token) else { continue };
        let (start, end) = (lexed.tokens[asm.tokens.start].start, lexed.tokens[asm.tokens.end - 1].end);
        diagnostics.push(codes::unknown_ptx(start, end, &name));
        // A call that does not compile where it is reached: clang checks this attribute after it has dropped dead code.
        let shown: String = name.chars().filter(|c| c.is_ascii_graphic() && !matches!(c, '"' | '\\')).collect();
        let text = format!(
            "do {{ extern __device__ __attribute__((error(\"WW0301: the PTX instruction {shown} has no counterpart on AMD\"))) \
             void __warpwave_no_counterpart_{start}(); __warpwave_no_counterpart_{start}(); }} while (0)"
        );
        edits.replace(start, end, same_lines(lexed, &asm.tokens, text));
    }
}

/// `text` with as many line ends as the tokens it replaces have between them.
fn same_lines(lexed: &Lexed<'_>, tokens: &Range<usize>, mut text: String) -> String {
    let (first, last) = (lexed.tokens[tokens.start], lexed.tokens[tokens.end - 1]);
    let lines = lexed.source[first.start as usize..last.end as usize].iter().filter(|byte| **byte == b'\n').count();
    // An operand may bring line ends of its own: within a literal, behind a backslash.
    if text.contains('\n') {
        text = text.replace("\\\r\n", "").replace("\\\n", "").replace('\n', " ");
    }
    // Within a macro's body a line must go on.
    text.push_str(&(if first.in_directive { " \\\n" } else { "\n" }).repeat(lines));
    text
}

/// The source of some tokens on one line, white space and comments between them as one space.
pub(crate) fn text_of(lexed: &Lexed<'_>, tokens: Range<usize>) -> String {
    let mut text = String::new();
    for index in tokens.clone() {
        if index > tokens.start && lexed.tokens[index].start > lexed.tokens[index - 1].end {
            text.push(' ');
        }
        text.push_str(&String::from_utf8_lossy(lexed.text(index)));
    }
    text
}
