//! Finding sources and what they include.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// Where to look for sources.
#[derive(Debug, Clone, Default)]
pub(crate) struct Selection {
    pub folders: Vec<PathBuf>,
    pub files: Vec<PathBuf>,
    pub patterns: Vec<String>,
    pub excluded: Vec<String>,
}

impl Selection {
    /// Returns the sources in order of their paths, each once.
    pub fn resolve(&self) -> Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for file in &self.files {
            if !file.exists() {
                return Err(Error::SourcePathNotFound(file.clone()));
            }
            found.push(file.clone());
        }
        let default = [PathBuf::from("src")];
        let none = self.folders.is_empty() && self.files.is_empty() && self.patterns.is_empty();
        for folder in if none { &default[..] } else { &self.folders } {
            if !folder.is_dir() {
                return Err(Error::SourcePathNotFound(folder.clone()));
            }
            walk(folder, &mut found)?;
        }
        for pattern in &self.patterns {
            // The part without wildcards says where to search.
            let fixed: PathBuf = Path::new(pattern).iter().take_while(|part| !part.to_string_lossy().contains(['*', '?'])).collect();
            let mut all = Vec::new();
            match fixed.is_file() {
                true => all.push(fixed),
                false => walk(if fixed.as_os_str().is_empty() { Path::new(".") } else { &fixed }, &mut all)?,
            }
            let plain = |path: &Path| path.strip_prefix(".").unwrap_or(path).to_string_lossy().into_owned();
            found.extend(all.into_iter().filter(|path| matches(pattern, &plain(path))));
        }
        found.retain(|path| !self.is_excluded(path));
        found.sort();
        found.dedup();
        Ok(found)
    }

    /// A pattern with a slash is for the path, another for the name.
    fn is_excluded(&self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let path = path.to_string_lossy();
        self.excluded.iter().any(|pattern| match pattern.contains('/') {
            true => matches(pattern, &path) || path.contains(pattern.as_str()),
            false => matches(pattern, &name),
        })
    }
}

/// Adds the `.cu` files below a folder.
fn walk(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    let fail = |error| Error::File { action: "read", path: folder.to_owned(), error };
    for entry in std::fs::read_dir(folder).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let path = entry.path();
        // Links to folders could form a circle.
        if entry.file_type().map_err(fail)?.is_dir() {
            walk(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "cu") {
            found.push(path);
        }
    }
    Ok(())
}

/// Whether a pattern with `*`, `?` and `**/` matches a whole text. Only `**/` matches slashes.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    // `reached[t]`: the pattern so far matches the first `t` characters.
    let mut reached = vec![false; text.len() + 1];
    reached[0] = true;
    let mut p = 0;
    while p < pattern.len() {
        let rest = &pattern[p..];
        if rest.starts_with(&['*', '*', '/']) {
            // Nothing, or anything up to a slash.
            let mut open = false;
            for t in 0..text.len() {
                open |= reached[t];
                reached[t + 1] |= open && text[t] == '/';
            }
            p += 3;
            continue;
        }
        match rest[0] {
            '*' => (0..text.len()).for_each(|t| reached[t + 1] |= reached[t] && text[t] != '/'),
            wanted => {
                for t in (0..text.len()).rev() {
                    reached[t + 1] = reached[t] && (text[t] == wanted || wanted == '?' && text[t] != '/');
                }
                reached[0] = false;
            }
        }
        p += 1;
    }
    reached[text.len()]
}

/// A name as in an `#include`, and a text.
type PackedFile = (String, String);

/// A source with everything it includes, the source first; and the files that were read.
pub(crate) fn gather(source: &Path, folders: &[PathBuf]) -> Result<(Vec<PackedFile>, Vec<PathBuf>)> {
    let name = source.to_string_lossy().into_owned();
    let mut paths = vec![source.to_owned()];
    let mut files = vec![(name, read(source)?)];
    let mut known: BTreeMap<String, PathBuf> = BTreeMap::new();
    let mut next = 0;
    while next < files.len() {
        let own = paths[next].parent().map(Path::to_owned).unwrap_or_default();
        for name in includes(&files[next].1) {
            let bad = |reason: String| Error::Include { source_file: source.to_owned(), name: name.clone(), reason };
            let candidates = std::iter::once(&own).chain(folders).map(|folder| folder.join(&name));
            let Some(path) = candidates.into_iter().find(|path| path.is_file()) else { continue };
            let path = path.canonicalize().map_err(|error| Error::File { action: "read", path: path.clone(), error })?;
            match known.get(&name) {
                Some(before) if *before == path => {}
                Some(before) => return Err(bad(format!("both {} and {} have this name", before.display(), path.display()))),
                None => {
                    files.push((name.clone(), read(&path)?));
                    paths.push(path.clone());
                    known.insert(name, path);
                }
            }
        }
        next += 1;
    }
    Ok((files, paths))
}

fn read(path: &Path) -> Result<String> {
    let fail = |error| Error::File { action: "read", path: path.to_owned(), error };
    String::from_utf8(std::fs::read(path).map_err(fail)?)
        .map_err(|_| fail(std::io::Error::new(std::io::ErrorKind::InvalidData, "the file is not UTF-8")))
}

/// The names in the `#include`s of a text, each once. One in a comment does no harm: its file is packed, too.
fn includes(text: &str) -> Vec<String> {
    let mut seen = HashSet::new();
    let name = |line: &str| {
        let rest = line.trim_start().strip_prefix('#')?.trim_start().strip_prefix("include")?.trim_start();
        let close = match rest.chars().next()? {
            '"' => '"',
            '<' => '>',
            _ => return None,
        };
        Some(rest[1..].split_once(close)?.0.to_owned())
    };
    text.lines().filter_map(name).filter(|name| seen.insert(name.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::{includes, matches};

    #[test]
    fn patterns_match_as_in_a_shell() {
        for (pattern, text, expected) in [
            ("moe_*.cu", "moe_wmma.cu", true),
            ("moe_*.cu", "xmoe_wmma.cu", false),
            ("mmvq_gguf.cu", "mmvq_gguf.cu", true),
            ("*.cu", "a/b.cu", false),
            ("**/*.cu", "a/b/c.cu", true),
            ("**/*.cu", "c.cu", true),
            ("src/**/x?.cu", "src/a/x1.cu", true),
            ("src/**/x?.cu", "src/x1.cu", true),
            ("src/**/x?.cu", "src/x/.cu", false),
            ("?", "/", false),
            ("", "", true),
            ("*", "", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn includes_are_found_in_both_forms() {
        let text = "#include \"a.cuh\"\n  #  include<b/c.h>\n#include \"a.cuh\"\nint include;\n#include MACRO\n#include \"open";
        assert_eq!(includes(text), ["a.cuh", "b/c.h"]);
    }
}
