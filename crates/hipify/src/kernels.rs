//! The kernel language: what stands in device code, and what becomes of it on AMD.
//!
//! [`rewrite`] collects the changes that device code needs beside the names of the runtime's calls: guards on `__CUDA_ARCH__`
//! ([`guards`]) and inline PTX ([`ptx`]). What cannot be done is told in the diagnostics of [`codes`]. [`find`] lists the kernels and device
//! functions of a text as it is written, [`expand`] those that come out of its macros and conditions.
//!
//! Promises: no change adds or removes a line; a statement that has no counterpart is not left out but replaced by one that does
//! not compile; any bytes may come in.

pub mod codes;
mod condition;
pub mod expand;
pub mod find;
pub mod guards;

use std::ops::Range;

use crate::diagnostic::Diagnostic;
use crate::edit::Edits;
use crate::lex::{Lexed, TooLarge};

/// Part of every cache key of translated code: a change of what [`rewrite`] writes raises it.
pub const VERSION: u32 = 2;

/// A translated text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Translation {
    /// The text, with as many lines as the source.
    pub text: Vec<u8>,
    /// What a reader must know, in the order of the source.
    pub diagnostics: Vec<Diagnostic>,
}

/// Translates the device code of a source.
pub fn translate(source: &[u8]) -> Result<Translation, TooLarge> {
    let lexed = Lexed::new(source)?;
    let (mut edits, mut diagnostics) = (Edits::default(), Vec::new());
    rewrite(&lexed, &mut edits, &mut diagnostics);
    diagnostics.sort_by_key(|d| (d.start, d.code));
    Ok(Translation { text: edits.apply(source), diagnostics })
}

/// Adds the changes that the device code of `lexed` needs.
pub fn rewrite(lexed: &Lexed<'_>, edits: &mut Edits, diagnostics: &mut Vec<Diagnostic>) {
    let conditionals = guards::conditionals(lexed);
    guards::rewrite(lexed, &conditionals, Vec::new(), edits, diagnostics);
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
