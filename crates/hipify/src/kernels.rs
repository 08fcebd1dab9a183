//! Device code: what the kernel language needs beside the names of the API.
//!
//! [`rewrite`] collects the edits for compilation with the compatibility headers: `__CUDA_ARCH__` guards ([`guards`]) and inline PTX
//! ([`ptx`]). [`rewrite_ptx`] collects those for HIP's own headers. Diagnostics are listed in [`codes`]; [`intrinsics`] finds calls that
//! no header declares. [`find`] lists the kernels and device functions of a file as written, [`crate::preprocessor::expand`] those that
//! come out of its macros and conditions.
//!
//! Contract: no edit adds or removes a line; a statement without a HIP equivalent is never dropped, it is replaced by one that does not
//! compile; any bytes are accepted.

pub mod codes;
pub mod find;
pub mod guards;
pub mod intrinsics;
pub mod ptx;

use std::collections::HashMap;
use std::ops::Range;

use crate::diagnostic::Diagnostic;
use crate::edit::Edits;
use crate::lex::{Lexed, TooLarge};
use crate::preprocessor::{conditionals, never_on_amd};
use guards::Obstacle;

/// Part of every cache key of translated code: raise it when the output of [`rewrite`] changes.
pub const VERSION: u32 = 4;

/// Translated device code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Translation {
    /// The text, with as many lines as the source.
    pub text: Vec<u8>,
    /// The diagnostics, in order of the source.
    pub diagnostics: Vec<Diagnostic>,
}

/// Translates the device code of a source for Warpwave's headers.
pub fn translate(source: &[u8]) -> Result<Translation, TooLarge> {
    Ok(translate_for(&Lexed::new(source)?, ptx::Dialect::Warpwave))
}

/// Translates the device code of a lexed source for the headers of `dialect` and the compatibility header.
pub fn translate_for(lexed: &Lexed<'_>, dialect: ptx::Dialect) -> Translation {
    let (mut edits, mut diagnostics) = (Edits::default(), Vec::new());
    rewrite(lexed, dialect, &mut edits, &mut diagnostics);
    diagnostics.sort_by_key(|d| (d.start, d.code));
    Translation { text: edits.apply(lexed.source), diagnostics }
}

/// Translates the inline PTX of a file that is compiled with HIP's own headers; see [`rewrite_ptx`].
pub fn translate_ptx(lexed: &Lexed<'_>) -> Translation {
    let (mut edits, mut diagnostics) = (Edits::default(), Vec::new());
    rewrite_ptx(lexed, &mut edits, &mut diagnostics);
    diagnostics.sort_by_key(|d| (d.start, d.code));
    Translation { text: edits.apply(lexed.source), diagnostics }
}

/// Returns the text of some tokens on one line, with the edits that are already made within them.
fn edited_text(lexed: &Lexed<'_>, edits: &mut Edits, tokens: Range<usize>) -> String {
    if tokens.is_empty() {
        return String::new();
    }
    let span = lexed.tokens[tokens.start].start..lexed.tokens[tokens.end - 1].end;
    let edited = edits.apply_within(lexed.source, span);
    let relexed = edited.as_deref().and_then(|text| Lexed::new(text).ok());
    relexed.map_or_else(|| lexed.joined(tokens), |relexed| relexed.joined(0..relexed.tokens.len()))
}

/// Adds the edits that inline PTX needs when the file is compiled with HIP's own headers: the C++ calls nothing else. Guards on
/// `__CUDA_ARCH__` stay, with a diagnostic each; so do statements without a HIP equivalent.
///
/// Operands take over the edits that `edits` already has inside them.
pub fn rewrite_ptx(lexed: &Lexed<'_>, edits: &mut Edits, diagnostics: &mut Vec<Diagnostic>) {
    let conditionals = conditionals(lexed);
    let skipped = never_on_amd(lexed, &conditionals);
    for statement in ptx::statements(lexed, &mut |tokens| edited_text(lexed, edits, tokens)) {
        let token = *statement.as_ref().map_or_else(|(token, _)| token, |asm| &asm.tokens.start);
        if skipped.contains(token) {
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
                edits.replace_over(start, end, same_lines(lexed, &asm.tokens, text));
                diagnostics.extend(notes.into_iter().map(|note| codes::near_ptx(start, end, note)));
            }
        }
    }
    for branch in conditionals.iter().flat_map(|conditional| &conditional.branches).filter(|branch| branch.on_arch) {
        let Range { start, end } = branch.directive;
        if !skipped.contains(start) {
            diagnostics.push(codes::arch_guard(lexed.tokens[start].start, lexed.tokens[end - 1].end));
        }
    }
}

/// Adds the edits that the device code of `lexed` needs when it is compiled with the compatibility headers.
///
/// Operands of inline PTX take over the edits that `edits` already has inside them.
pub fn rewrite(lexed: &Lexed<'_>, dialect: ptx::Dialect, edits: &mut Edits, diagnostics: &mut Vec<Diagnostic>) {
    let conditionals = conditionals(lexed);
    let mut obstacles = Vec::new();
    let mut statements: HashMap<usize, ptx::Asm> = HashMap::new();
    for statement in ptx::statements(lexed, &mut |tokens| edited_text(lexed, edits, tokens)) {
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
                edits.replace_over(start, end, same_lines(lexed, &asm.tokens, text));
                diagnostics.extend(notes.into_iter().map(|note| codes::near_ptx(start, end, note)));
            }
        }
    }
    // Branches that AMD compilers never see cannot fail there.
    let skipped = never_on_amd(lexed, &conditionals);
    obstacles.retain(|obstacle| !skipped.contains(obstacle.token));
    for Obstacle { token, name } in guards::rewrite(lexed, &conditionals, obstacles, edits, diagnostics) {
        let Some(asm) = statements.get(&token) else { continue };
        let (start, end) = (lexed.tokens[asm.tokens.start].start, lexed.tokens[asm.tokens.end - 1].end);
        diagnostics.push(codes::unknown_ptx(start, end, &name));
        // A call that fails to compile only where it is reached: clang checks this attribute after dead code elimination.
        let shown: String = name.chars().filter(|c| c.is_ascii_graphic() && !matches!(c, '"' | '\\')).collect();
        let text = format!(
            "do {{ extern __device__ __attribute__((error(\"WW0301: PTX instruction {shown} has no AMD equivalent\"))) \
             void __warpwave_unsupported_{start}(); __warpwave_unsupported_{start}(); }} while (0)"
        );
        edits.replace_over(start, end, same_lines(lexed, &asm.tokens, text));
    }
}

/// Pads `text` to as many line ends as the tokens it replaces.
fn same_lines(lexed: &Lexed<'_>, tokens: &Range<usize>, mut text: String) -> String {
    let (first, last) = (lexed.tokens[tokens.start], lexed.tokens[tokens.end - 1]);
    let lines = lexed.source[first.start as usize..last.end as usize].iter().filter(|byte| **byte == b'\n').count();
    // An operand may contain line ends: in a literal, after a backslash.
    if text.contains('\n') {
        text = text.replace("\\\r\n", "").replace("\\\n", "").replace('\n', " ");
    }
    // The lines of a macro body need a continuation.
    text.push_str(&(if first.in_directive { " \\\n" } else { "\n" }).repeat(lines));
    text
}
