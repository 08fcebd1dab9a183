//! The files a conversion can look at beside the source: the headers it includes, and the compatibility header.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use crate::include::{Included, included};
use crate::kernels::intrinsics;
use crate::lex::{Kind, Lexed};
use crate::preprocessor::expand::{Unit, expand};

/// Limit of header files read for one source.
const MAX_FILES: usize = 256;

/// Where `#include` looks for files: for a quoted include beside the including file, then in the in-memory headers, then in the folders.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IncludePath {
    /// In-memory headers, by the name in the `#include`.
    pub headers: BTreeMap<String, String>,
    /// Folders, in search order.
    pub folders: Vec<PathBuf>,
}

/// What an `#include` resolves to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolved<'a> {
    /// An in-memory header: its name and text.
    Memory(&'a str, &'a str),
    /// A file on disk.
    File(PathBuf),
}

impl IncludePath {
    /// Resolves an include. `beside` are the folders that are searched first for a quoted name.
    pub fn resolve(&self, include: &Included, beside: &[&Path]) -> Option<Resolved<'_>> {
        let find = |folder: &Path| Some(folder.join(&include.name)).filter(|path| path.is_file()).map(Resolved::File);
        let nearby = beside.iter().filter(|_| include.quoted).find_map(|folder| find(folder));
        let memory = || self.headers.get_key_value(&include.name).map(|(name, text)| Resolved::Memory(name, text));
        nearby.or_else(memory).or_else(|| self.folders.iter().find_map(|folder| find(folder)))
    }

    /// Calls `visit` with the text of every file that `source` includes, directly or through others, each once. `folder` is that of the
    /// source. Files that cannot be found or read are skipped; at most 256 files are read.
    pub fn for_each_included(&self, source: &[u8], folder: Option<&Path>, visit: &mut dyn FnMut(&[u8])) {
        let mut seen: HashSet<PathBuf> = HashSet::new();
        let mut pending: Vec<(Resolved<'_>, PathBuf)> = self.resolve_all(source, folder);
        while let Some((found, key)) = pending.pop() {
            if seen.len() >= MAX_FILES || !seen.insert(key) {
                continue;
            }
            let (text, folder) = match &found {
                Resolved::Memory(_, text) => (Cow::Borrowed(text.as_bytes()), None),
                Resolved::File(path) => match std::fs::read(path) {
                    Ok(text) => (Cow::Owned(text), path.parent()),
                    Err(_) => continue,
                },
            };
            visit(&text);
            pending.extend(self.resolve_all(&text, folder));
        }
    }

    /// The resolved includes of one file, each with the path that identifies it.
    fn resolve_all(&self, text: &[u8], folder: Option<&Path>) -> Vec<(Resolved<'_>, PathBuf)> {
        let beside: Vec<&Path> = folder.into_iter().collect();
        let resolved = included(text).into_iter().filter_map(|include| self.resolve(&include, &beside));
        let identify = |found: Resolved<'_>| match &found {
            Resolved::Memory(name, _) => PathBuf::from(name),
            Resolved::File(path) => path.canonicalize().unwrap_or_else(|_| path.clone()),
        };
        resolved.map(|found| (found.clone(), identify(found))).collect()
    }
}

/// A header that supplies what HIP lacks of CUDA, included by translated sources under [`crate::COMPATIBILITY_HEADER`].
#[derive(Debug, Clone)]
pub struct CompatibilityHeader {
    text: String,
    names: HashSet<Vec<u8>>,
}

impl CompatibilityHeader {
    /// Reads the names that a header's text supplies, with its macros expanded.
    pub fn new(text: String) -> CompatibilityHeader {
        let mut names = HashSet::new();
        if let Ok(lexed) = Lexed::new(text.as_bytes()) {
            names.extend((0..lexed.tokens.len()).filter(|i| lexed.tokens[*i].kind == Kind::Name).map(|i| lexed.text(i).to_vec()));
        }
        let defines = vec![("__cplusplus".to_owned(), "201703L".to_owned())];
        let unit = Unit { files: vec![text.as_bytes()], include: Box::new(|_, _, _| None), defines };
        names.extend(expand(&unit).iter().flat_map(|expanded| expanded.names()).map(<[u8]>::to_vec));
        drop(unit);
        CompatibilityHeader { text, names }
    }

    /// The header's text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it supplies a function, type or macro of this name.
    pub fn supplies(&self, name: &[u8]) -> bool {
        self.names.contains(name)
    }
}

/// The headers of a conversion. The default has none: quoted includes are not read, and the compatibility header is absent.
#[derive(Debug, Clone, Default)]
pub struct Headers<'a> {
    /// Where the source's includes are found.
    pub path: IncludePath,
    /// The folder of the source, searched first for quoted includes.
    pub source_folder: Option<PathBuf>,
    /// The compatibility header.
    pub compatibility: Option<&'a CompatibilityHeader>,
}

impl Headers<'_> {
    /// The reserved names (`__name`) that the included files declare.
    pub(crate) fn declared(&self, source: &[u8]) -> HashSet<Vec<u8>> {
        let mut names = HashSet::new();
        self.path.for_each_included(source, self.source_folder.as_deref(), &mut |text| {
            if let Ok(lexed) = Lexed::new(text) {
                names.extend(intrinsics::declared(&lexed));
            }
        });
        names
    }

    /// Whether the compatibility header supplies a name.
    pub(crate) fn supplies(&self, name: &[u8]) -> bool {
        self.compatibility.is_some_and(|header| header.supplies(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_memory_headers_come_before_folders_and_cycles_end() {
        let headers = [("a.h", "#include \"b.h\"\nint a;\n"), ("b.h", "#include <a.h>\nint b;\n")];
        let path = IncludePath { headers: headers.map(|(name, text)| (name.to_owned(), text.to_owned())).into(), folders: Vec::new() };
        let mut seen = Vec::new();
        path.for_each_included(b"#include <a.h>\n#include <missing.h>\n", None, &mut |text| seen.push(text.len()));
        assert_eq!(seen, [headers[0].1.len(), headers[1].1.len()]);
    }

    #[test]
    fn the_compatibility_header_supplies_names_that_its_macros_make() {
        let header = CompatibilityHeader::new("#define F(n) int __##n(int);\nF(dp4a)\n#define __other(x) x\n".to_owned());
        assert!(header.supplies(b"__dp4a") && header.supplies(b"__other") && !header.supplies(b"__missing"));
    }
}
