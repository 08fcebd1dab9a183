//! Kernel sources and everything they include.
//!
//! Includes are followed textually, through both branches of every `#if`: the result is a superset of what a compiler reads, which
//! is what a cache key needs. A file that is not found is left to the compiler, which has headers of its own, and is named in
//! [`KernelSource::unresolved`].

use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// A source with its included files read, and how it is to be compiled.
#[derive(Debug, Clone)]
pub struct KernelSource {
    name: String,
    text: String,
    folder: Option<PathBuf>,
    include_dirs: Vec<PathBuf>,
    defines: Vec<(String, String)>,
    options: Vec<String>,
    includes: Vec<Included>,
    unresolved: Vec<String>,
}

/// An included file.
#[derive(Debug, Clone)]
pub struct Included {
    /// Where it lies; the path the compiler will look it up by.
    pub path: PathBuf,
    /// What was in it when it was read.
    pub text: String,
}

/// A source that could not be read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The source file itself.
    #[error("cannot read the kernel source {}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        #[source]
        error: std::io::Error,
    },
    /// A file that is there, and is included, and cannot be read.
    #[error("{from}:{line}: cannot read the included file {}: {error}", path.display())]
    UnreadableInclude {
        /// The including file.
        from: String,
        /// The line of the `#include`, from 1.
        line: usize,
        /// The file.
        path: PathBuf,
        /// The system's answer.
        #[source]
        error: std::io::Error,
    },
    /// A name or text that no compiler call can carry.
    #[error("{what} of the kernel source holds a NUL byte or a line break: {text:?}")]
    Unusable {
        /// Which part.
        what: &'static str,
        /// The part.
        text: String,
    },
}

impl KernelSource {
    /// A source from memory. `name` stands in messages, as a file name would; quoted includes are looked up in include folders only.
    pub fn from_text(name: impl Into<String>, text: impl Into<String>) -> Result<KernelSource, SourceError> {
        KernelSource::new(name.into(), text.into(), None)
    }

    /// A source from a file. Quoted includes are looked up beside it first.
    pub fn from_file(path: impl AsRef<Path>) -> Result<KernelSource, SourceError> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path).map_err(|error| SourceError::Unreadable { path: path.to_owned(), error })?;
        let folder = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        KernelSource::new(path.to_string_lossy().into_owned(), text, Some(folder))
    }

    fn new(name: String, text: String, folder: Option<PathBuf>) -> Result<KernelSource, SourceError> {
        usable("the name", &name)?;
        if text.contains('\0') {
            return Err(SourceError::Unusable { what: "the text", text: name });
        }
        let mut source = KernelSource {
            name,
            text,
            folder,
            include_dirs: Vec::new(),
            defines: Vec::new(),
            options: Vec::new(),
            includes: Vec::new(),
            unresolved: Vec::new(),
        };
        source.resolve()?;
        Ok(source)
    }

    /// Adds a folder to look for included files in.
    pub fn include_dir(mut self, path: impl Into<PathBuf>) -> Result<KernelSource, SourceError> {
        self.include_dirs.push(path.into());
        self.resolve()?;
        Ok(self)
    }

    /// Defines a macro, as `-Dname=value`. Headers that the compiler puts in front of every source do not see it unless its name is like theirs.
    pub fn define(mut self, name: impl Into<String>, value: impl Into<String>) -> KernelSource {
        self.defines.push((name.into(), value.into()));
        self
    }

    /// Adds an option for the compiler, whichever is used.
    pub fn option(mut self, option: impl Into<String>) -> KernelSource {
        self.options.push(option.into());
        self
    }

    /// The file's path as given, or the name of a text.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The source text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The folder the source lies in; none for a text.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// The include folders, in order.
    pub fn include_dirs(&self) -> &[PathBuf] {
        &self.include_dirs
    }

    /// The macros, in order.
    pub fn defines(&self) -> &[(String, String)] {
        &self.defines
    }

    /// The compiler options, in order.
    pub fn options(&self) -> &[String] {
        &self.options
    }

    /// The included files that were found, each once.
    pub fn includes(&self) -> &[Included] {
        &self.includes
    }

    /// Names of included files that were not found and are left to the compiler.
    pub fn unresolved(&self) -> &[String] {
        &self.unresolved
    }

    /// Every file with its content, the source itself first: what a cache key covers.
    pub fn files(&self) -> Vec<(String, &str)> {
        let included = self.includes.iter().map(|file| (file.path.to_string_lossy().into_owned(), file.text.as_str()));
        std::iter::once((self.name.clone(), self.text.as_str())).chain(included).collect()
    }

    /// The first included file whose content is no longer what was read, or that is gone.
    pub fn changed_on_disk(&self) -> Option<&Path> {
        let changed = |file: &&Included| std::fs::read_to_string(&file.path).map_or(true, |now| now != file.text);
        self.includes.iter().find(changed).map(|file| file.path.as_path())
    }

    /// Follows the includes from the beginning: a new include folder may change any of them.
    fn resolve(&mut self) -> Result<(), SourceError> {
        let mut walk = Walk { source: self, found: Vec::new(), seen: HashMap::new(), unresolved: Vec::new() };
        walk.file(&self.name, &self.text, self.folder.as_deref())?;
        // `found` grows while it is walked: an index, not an iterator.
        let mut next = 0;
        while next < walk.found.len() {
            let Included { path, text } = walk.found[next].clone();
            walk.file(&path.to_string_lossy(), &text, path.parent())?;
            next += 1;
        }
        let Walk { found, unresolved, .. } = walk;
        self.includes = found;
        self.unresolved = unresolved;
        Ok(())
    }
}

fn usable(what: &'static str, text: &str) -> Result<(), SourceError> {
    if text.contains(['\0', '\n', '\r']) { Err(SourceError::Unusable { what, text: text.to_owned() }) } else { Ok(()) }
}

struct Walk<'a> {
    source: &'a KernelSource,
    found: Vec<Included>,
    /// Canonical path to place in `found`: cycles end here, and a file reached by two names is read once.
    seen: HashMap<PathBuf, usize>,
    unresolved: Vec<String>,
}

impl Walk<'_> {
    fn file(&mut self, name: &str, text: &str, folder: Option<&Path>) -> Result<(), SourceError> {
        for (line, include) in includes_in(text) {
            let beside = folder.filter(|_| include.quoted);
            // The compilers are given the source's own folder for quoted includes, so it counts for nested files too.
            let main = self.source.folder.as_deref().filter(|_| include.quoted);
            let folders = beside.into_iter().chain(main).chain(self.source.include_dirs.iter().map(PathBuf::as_path));
            let Some(path) = folders.map(|f| f.join(include.name)).find(|p| p.is_file()) else {
                if !self.unresolved.iter().any(|n| n == include.name) {
                    self.unresolved.push(include.name.to_owned());
                }
                continue;
            };
            let unreadable = |error| SourceError::UnreadableInclude { from: name.to_owned(), line, path: path.clone(), error };
            let canonical = path.canonicalize().map_err(unreadable)?;
            if self.seen.contains_key(&canonical) {
                continue;
            }
            let text = std::fs::read_to_string(&path).map_err(unreadable)?;
            self.seen.insert(canonical, self.found.len());
            self.found.push(Included { path, text });
        }
        Ok(())
    }
}

struct Include<'a> {
    name: &'a str,
    quoted: bool,
}

/// The `#include` lines of a text, with their line numbers from 1. Those within comments count too: a superset does no harm.
fn includes_in(text: &str) -> impl Iterator<Item = (usize, Include<'_>)> {
    text.lines().enumerate().filter_map(|(index, line)| {
        let rest = line.trim_start().strip_prefix('#')?.trim_start().strip_prefix("include")?.trim_start();
        let quoted = rest.starts_with('"');
        let rest = rest.strip_prefix(['"', '<'])?;
        let name = &rest[..rest.find(if quoted { '"' } else { '>' })?];
        (!name.is_empty()).then_some((index + 1, Include { name, quoted }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn names(source: &KernelSource) -> Vec<String> {
        source.includes().iter().map(|f| f.path.file_name().unwrap().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn includes_are_found_beside_the_file_then_in_folders_and_cycles_end() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("inner");
        let elsewhere = root.path().join("elsewhere");
        fs::create_dir_all(&inner).unwrap();
        fs::create_dir_all(&elsewhere).unwrap();
        fs::write(inner.join("main.cu"), "#include \"a.cuh\"\n#if 0\n # include <b.cuh>\n#endif\n#include <cuda_fp16.h>\n").unwrap();
        fs::write(inner.join("a.cuh"), "#include \"main.cu\"\n#include \"c.cuh\"\n").unwrap();
        fs::write(elsewhere.join("b.cuh"), "#include \"c.cuh\"\n").unwrap();
        fs::write(elsewhere.join("c.cuh"), "").unwrap();
        let source = KernelSource::from_file(inner.join("main.cu")).unwrap().include_dir(&elsewhere).unwrap();
        assert_eq!(names(&source), ["a.cuh", "b.cuh", "main.cu", "c.cuh"]);
        assert_eq!(source.unresolved(), ["cuda_fp16.h"]);
        assert_eq!(source.files().len(), 5);
    }

    #[test]
    fn a_changed_header_is_noticed() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("a.cuh"), "1").unwrap();
        let source = KernelSource::from_text("k.cu", "#include <a.cuh>").unwrap().include_dir(root.path()).unwrap();
        assert_eq!(source.changed_on_disk(), None);
        fs::write(root.path().join("a.cuh"), "2").unwrap();
        assert!(source.changed_on_disk().is_some());
    }

    #[test]
    fn errors_name_the_file_and_the_line() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("bad.cuh"), [0xff, 0xfe, 0x00]).unwrap();
        let file = root.path().join("k.cu");
        fs::write(&file, "\n#include \"bad.cuh\"\n").unwrap();
        let error = KernelSource::from_file(&file).unwrap_err().to_string();
        assert!(error.contains("k.cu:2:") && error.contains("bad.cuh"), "{error}");
        let missing = KernelSource::from_file(root.path().join("none.cu")).unwrap_err().to_string();
        assert!(missing.contains("none.cu"), "{missing}");
        assert!(KernelSource::from_text("a\nb", "").is_err());
        assert!(KernelSource::from_text("a", "\0").is_err());
    }

    #[test]
    fn only_include_lines_count() {
        let text = "#include\n#include \"\n#include \"x\n#include MACRO\nint include;\n#  include <y.h> // why\n#include_next \"z\"\n";
        let found: Vec<_> = includes_in(text).map(|(line, i)| (line, i.name.to_owned(), i.quoted)).collect();
        assert_eq!(found, [(6, "y.h".to_owned(), false)]);
    }
}
