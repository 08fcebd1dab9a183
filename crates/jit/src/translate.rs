//! Translates CUDA C++ kernels for the AMD compilers.
//!
//! NVIDIA targets get the source unchanged. For AMD the compatibility headers supply what the language lacks, and
//! [`warpwave_hipify::kernels`] rewrites what no header can: `__CUDA_ARCH__` guards and inline PTX. Line numbers do not change, so
//! compiler messages match the user's file. Diagnostics of the translation are [`Note`]s.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::{Deserialize, Serialize};
use warpwave_gpu::Vendor;
use warpwave_hipify::diagnostic::{Diagnostic, Severity, line_and_column};
use warpwave_hipify::kernels::{self, intrinsics, ptx::Dialect};
use warpwave_hipify::lex::Lexed;

use crate::headers;
use crate::source::KernelSource;
use crate::target::Target;

/// Version of the translation; part of every cache key.
pub const TRANSLATOR_VERSION: u32 = kernels::VERSION;

/// A source that could not be translated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {reason}")]
pub struct TranslateError {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// Why it could not be translated.
    pub reason: String,
}

impl TranslateError {
    fn new(file: &str, error: impl fmt::Display) -> TranslateError {
        TranslateError { file: file.to_owned(), line: 1, reason: error.to_string() }
    }
}

/// A translation diagnostic; displayed as `file:line:column: WW0301 error: …`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column in bytes, from 1.
    pub column: usize,
    /// The code, such as `WW0301`.
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

    /// Whether it is a warning or an error.
    pub fn matters(&self) -> bool {
        self.severity != Severity::Note.to_string()
    }

    /// Downgrades an error after a successful compilation: the code it is about was not reached.
    pub(crate) fn after_success(mut self) -> Note {
        if self.severity == Severity::Error.to_string() {
            self.severity = Severity::Warning.to_string();
            self.message += "; not reached by compiled code";
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

/// Translates one lexed file; the text keeps its number of lines.
fn translate<'a>(name: &str, text: &'a str, lexed: &Lexed<'_>) -> Result<(Cow<'a, str>, Vec<Note>), TranslateError> {
    let translation = kernels::translate_for(lexed, Dialect::Warpwave);
    let notes = translation.diagnostics.iter().map(|diagnostic| Note::new(name, text, diagnostic)).collect();
    // Edits replace whole tokens with UTF-8 text, so the result is UTF-8 too.
    let new = String::from_utf8(translation.text).map_err(|error| TranslateError::new(name, error))?;
    Ok((if new == text { Cow::Borrowed(text) } else { Cow::Owned(new) }, notes))
}

/// Finds calls in device code that neither our headers nor any file of the source declares.
fn undeclared(source: &KernelSource, files: &[(String, &str)], lexed: &[Lexed<'_>]) -> Vec<Note> {
    let declared: HashSet<Vec<u8>> = lexed.iter().flat_map(intrinsics::declared).collect();
    let defined = |name: &[u8]| source.defines().iter().any(|(define, _)| define.as_bytes() == name);
    let known = |name: &[u8]| declared.contains(name) || headers::mention(name) || defined(name);
    let mut notes = Vec::new();
    for ((name, text), lexed) in files.iter().zip(lexed) {
        notes.extend(intrinsics::unknown(lexed, &known).iter().map(|diagnostic| Note::new(name, text, diagnostic)));
    }
    notes
}

/// A source with everything it includes, translated.
#[derive(Debug)]
pub(crate) struct TranslatedSource<'a> {
    pub main: Cow<'a, str>,
    /// In the order of [`KernelSource::includes`].
    pub includes: Vec<Cow<'a, str>>,
    pub notes: Vec<Note>,
}

/// A file's name and its translated text.
pub type HipFile = (String, String);

impl<'a> TranslatedSource<'a> {
    /// Translates a source for `target`. NVIDIA targets get it unchanged.
    pub(crate) fn new(source: &'a KernelSource, target: &Target) -> Result<TranslatedSource<'a>, TranslateError> {
        let files = source.files();
        if target.vendor() != Vendor::Amd {
            let mut texts = files.into_iter().map(|(_, text)| Cow::Borrowed(text));
            let main = texts.next().unwrap_or_default();
            return Ok(TranslatedSource { main, includes: texts.collect(), notes: Vec::new() });
        }
        let (mut texts, mut notes, mut all) = (Vec::new(), Vec::new(), Vec::new());
        for (name, text) in &files {
            let lexed = Lexed::new(text.as_bytes()).map_err(|error| TranslateError::new(name, error))?;
            let (text, of_file) = translate(name, text, &lexed)?;
            texts.push(text);
            notes.extend(of_file);
            all.push(lexed);
        }
        notes.extend(undeclared(source, &files, &all));
        let mut texts = texts.into_iter();
        let main = texts.next().unwrap_or_default();
        Ok(TranslatedSource { main, includes: texts.collect(), notes })
    }

    /// The source, and the included files that were changed.
    pub(crate) fn hip(&self, source: &KernelSource) -> Vec<HipFile> {
        let main = (source.name().to_owned(), self.main.clone().into_owned());
        let included = source.includes().iter().zip(&self.includes).filter(|(_, text)| matches!(text, Cow::Owned(_)));
        let included = included.map(|(file, text)| (file.path.to_string_lossy().into_owned(), text.clone().into_owned()));
        std::iter::once(main).chain(included).collect()
    }
}
