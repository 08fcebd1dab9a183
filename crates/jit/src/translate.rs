//! From CUDA C++ to what the AMD compilers accept.
//!
//! NVIDIA targets get the text as it is. For AMD the compatibility headers carry what the language lacks, and
//! [`warpwave_hipify::kernels`] rewrites what no header can: guards on `__CUDA_ARCH__` and inline PTX. Lines stay where they are, so
//! the compiler's messages fit the user's file; what a reader must know about the translation comes as [`Note`]s.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::{Deserialize, Serialize};
use warpwave_gpu::Vendor;
use warpwave_hipify::diagnostic::{Diagnostic, Severity, line_and_column};
use warpwave_hipify::kernels::{self, intrinsics};
use warpwave_hipify::lex::Lexed;

use crate::headers;
use crate::source::KernelSource;
use crate::target::Target;

/// Part of every cache key: a change of what [`translate`] writes raises it.
pub const TRANSLATOR_VERSION: u32 = kernels::VERSION;

/// A source that cannot be translated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {reason}")]
pub struct TranslateError {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// What stands there that has no counterpart.
    pub reason: String,
}

/// A diagnostic of the translation at its place; prints as `file:line:column: WW0301 error: …`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column in bytes, from 1.
    pub column: usize,
    /// The number, `WW0301`.
    pub code: String,
    /// `note`, `warning` or `error`.
    pub severity: String,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub help: Option<String>,
}

impl Note {
    fn new(file: &str, text: &str, diagnostic: &Diagnostic) -> Note {
        let (line, column) = line_and_column(text.as_bytes(), diagnostic.start);
        Note {
            file: file.to_owned(),
            line,
            column,
            code: format!("WW{:04}", diagnostic.code),
            severity: diagnostic.severity.to_string(),
            message: diagnostic.message.clone().into_owned(),
            help: diagnostic.help.clone().map(Cow::into_owned),
        }
    }

    /// It is more than worth knowing.
    pub fn matters(&self) -> bool {
        self.severity != Severity::Note.to_string()
    }

    /// After a success: what would not have compiled was not reached.
    pub(crate) fn after_success(mut self) -> Note {
        if self.severity == Severity::Error.to_string() {
            self.severity = Severity::Warning.to_string();
            self.message += "; no compiled code reaches it";
        }
        self
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Note { file, line, column, code, severity, message, .. } = self;
        write!(f, "{file}:{line}:{column}: {code} {severity}: {message}")?;
        self.help.as_ref().map_or(Ok(()), |help| write!(f, "\n  {help}"))
    }
}

/// A file as the compiler gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Translated<'a> {
    /// The text, with as many lines as the source has.
    pub text: Cow<'a, str>,
    /// What a reader must know.
    pub notes: Vec<Note>,
}

/// The text of the file `name` for `target`, with the same number of lines.
pub fn translate<'a>(name: &str, text: &'a str, target: &Target) -> Result<Translated<'a>, TranslateError> {
    if target.vendor() != Vendor::Amd {
        return Ok(Translated { text: Cow::Borrowed(text), notes: Vec::new() });
    }
    let refuse = |reason: String| TranslateError { file: name.to_owned(), line: 1, reason };
    let translation = kernels::translate(text.as_bytes()).map_err(|error| refuse(error.to_string()))?;
    let notes = translation.diagnostics.iter().map(|d| Note::new(name, text, d)).collect();
    // Changes are whole tokens, and what is put there is UTF-8: so is the result.
    let new = String::from_utf8(translation.text).map_err(|error| refuse(error.to_string()))?;
    Ok(Translated { text: if new == text { Cow::Borrowed(text) } else { Cow::Owned(new) }, notes })
}

/// Calls in device code that neither our headers nor any file of the source declares.
fn undeclared(source: &KernelSource) -> Vec<Note> {
    let files = source.files();
    // A file too large for the lexer has been refused before.
    let lexed: Vec<_> = files.iter().filter_map(|(name, text)| Some((name, *text, Lexed::new(text.as_bytes()).ok()?))).collect();
    let declared: HashSet<Vec<u8>> = lexed.iter().flat_map(|(_, _, lexed)| intrinsics::declared(lexed)).collect();
    let defined = |name: &[u8]| source.defines().iter().any(|(define, _)| define.as_bytes() == name);
    let known = |name: &[u8]| declared.contains(name) || headers::mention(name) || defined(name);
    let told = |(name, text, lexed): &(&String, &str, Lexed<'_>)| -> Vec<Note> {
        intrinsics::unknown(lexed, &known).iter().map(|diagnostic| Note::new(name, text, diagnostic)).collect()
    };
    lexed.iter().flat_map(told).collect()
}

/// A source with everything it includes, translated.
#[derive(Debug)]
pub(crate) struct TranslatedSource<'a> {
    pub main: Cow<'a, str>,
    /// In the order of [`KernelSource::includes`].
    pub includes: Vec<Cow<'a, str>>,
    pub notes: Vec<Note>,
}

/// A file's name and its text as it was compiled for AMD.
pub type HipFile = (String, String);

impl<'a> TranslatedSource<'a> {
    pub(crate) fn new(source: &'a KernelSource, target: &Target) -> Result<TranslatedSource<'a>, TranslateError> {
        let Translated { text: main, mut notes } = translate(source.name(), source.text(), target)?;
        let mut includes = Vec::new();
        for file in source.includes() {
            let translated = translate(&file.path.to_string_lossy(), &file.text, target)?;
            notes.extend(translated.notes);
            includes.push(translated.text);
        }
        if target.vendor() == Vendor::Amd {
            notes.extend(undeclared(source));
        }
        Ok(TranslatedSource { main, includes, notes })
    }

    /// The source, and the included files that were changed.
    pub(crate) fn hip(&self, source: &KernelSource) -> Vec<HipFile> {
        let main = (source.name().to_owned(), self.main.clone().into_owned());
        let included = source.includes().iter().zip(&self.includes).filter(|(_, text)| matches!(text, Cow::Owned(_)));
        let included = included.map(|(file, text)| (file.path.to_string_lossy().into_owned(), text.clone().into_owned()));
        std::iter::once(main).chain(included).collect()
    }
}
