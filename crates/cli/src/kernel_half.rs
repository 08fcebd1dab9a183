//! What `warpwave hipify` does about device code beside the names: inline PTX, guards, intrinsics, the compatibility header.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use warpwave_hipify::kernels::{self, intrinsics, ptx::Dialect};
use warpwave_hipify::lex::{Kind, Lexed};
use warpwave_hipify::{COMPATIBILITY_HEADER, Diagnostic, Options, Translation, codes};

use super::Failure;

/// How many files of a project are read for what they declare.
const FILES: usize = 256;

/// Does the device code of the file `path` with the text `source`, whose names are translated.
pub(super) fn finish(
    path: &Path,
    lexed: &Lexed<'_>,
    folders: &[PathBuf],
    options: &Options,
    mut translation: Translation,
) -> Result<Translation, Failure> {
    let (source, header) = (lexed.source, options.compatibility_header);
    let half = |lexed: &Lexed<'_>| if header { kernels::translate_for(lexed, Dialect::Hip) } else { kernels::translate_ptx(lexed) };
    let kernels::Translation { text, mut diagnostics } = half(lexed);
    // Once more where something changed: the text that is written has its names translated, the places are those of the source.
    if text != source {
        translation.output = half(&Lexed::new(&translation.output)?).text;
    }
    let declared = declared_around(path, source, folders);
    let known =
        |name: &[u8]| intrinsics::hip_has(name) || header && warpwave_jit::compatibility_header_has(name) || declared.contains(name);
    diagnostics.extend(intrinsics::unknown(lexed, &known));
    if header {
        // What HIP lacks, or no table knows, and the header has.
        let supplied = |diagnostic: &Diagnostic| {
            let name = &source[diagnostic.start as usize..diagnostic.end as usize];
            let lacking = diagnostic.code == codes::DEVICE_FUNCTION.number || diagnostic.code == codes::UNKNOWN.number;
            lacking && warpwave_jit::compatibility_header_has(name)
        };
        translation.diagnostics.retain(|diagnostic| !supplied(diagnostic));
    }
    translation.diagnostics.extend(diagnostics);
    Ok(translation)
}

/// The reserved names that the files declare which a source includes with quotes, and those they include.
fn declared_around(path: &Path, source: &[u8], folders: &[PathBuf]) -> HashSet<Vec<u8>> {
    let mut names = HashSet::new();
    let mut seen: HashSet<PathBuf> = HashSet::new();
    let beside = path.parent().map(Path::to_owned).unwrap_or_default();
    let mut rest = included(source, &beside, folders);
    while let Some(file) = rest.pop() {
        if seen.len() >= FILES || !seen.insert(file.clone()) {
            continue;
        }
        let Ok(text) = std::fs::read(&file) else { continue };
        if let Ok(lexed) = Lexed::new(&text) {
            names.extend(intrinsics::declared(&lexed));
        }
        rest.extend(included(&text, file.parent().unwrap_or(Path::new("")), folders));
    }
    names
}

/// The files that a text includes, as far as they are found beside it or in the folders.
fn included(text: &[u8], beside: &Path, folders: &[PathBuf]) -> Vec<PathBuf> {
    let Ok(lexed) = Lexed::new(text) else { return Vec::new() };
    let mut found = Vec::new();
    for index in (2..lexed.tokens.len()).filter(|i| lexed.is(*i - 1, b"include") && lexed.tokens[*i].in_directive) {
        let name = lexed.text(index);
        let quoted = lexed.tokens[index].kind == Kind::String;
        let Some(name) = name.get(1..name.len().saturating_sub(1)).and_then(|name| std::str::from_utf8(name).ok()) else { continue };
        let own = quoted.then(|| beside.join(name));
        let places = own.into_iter().chain(folders.iter().map(|folder| folder.join(name)));
        found.extend(places.filter_map(|place| place.canonicalize().ok()).find(|place| place.is_file()));
    }
    found
}

/// The compatibility header's place beside a file that was written, if that file includes it.
pub(super) fn header_beside(output: &Path, text: &[u8]) -> Option<PathBuf> {
    let line = format!("#include \"{COMPATIBILITY_HEADER}\"");
    text.windows(line.len()).any(|window| window == line.as_bytes()).then(|| output.with_file_name(COMPATIBILITY_HEADER))
}
