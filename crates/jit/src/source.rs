//! Kernel sources and everything they include.
//!
//! Includes are followed through all branches of every `#if`: the result is a superset of what a compiler reads, which
//! is what a cache key needs. A header that is not found is left to the compiler, which has headers of its own, and is listed in
//! [`KernelSource::unresolved`].

use std::collections::HashSet;
use std::path::{Component, Path, PathBuf};

use warpwave_hipify::diagnostic::line_and_column;
use warpwave_hipify::{IncludePath, Resolved, included};

/// A kernel source with its included files, macros and compiler options.
///
/// ```
/// use warpwave_jit::KernelSource;
///
/// let source = KernelSource::from_text("scale.cu", "#include \"factor.cuh\"\n__global__ void scale(float *x) { x[threadIdx.x] *= FACTOR; }")?
///     .header("factor.cuh", "#pragma once\n#define FACTOR 2.0f\n")?;
/// assert_eq!(source.includes().len(), 1);
/// # Ok::<(), warpwave_jit::SourceError>(())
/// ```
#[derive(Debug, Clone)]
pub struct KernelSource {
    name: String,
    text: String,
    folder: Option<PathBuf>,
    path: IncludePath,
    defines: Vec<(String, String)>,
    options: Vec<String>,
    includes: Vec<Included>,
    unresolved: Vec<String>,
}

/// An included file.
#[derive(Debug, Clone)]
pub struct Included {
    /// The path the compiler looks it up by; for an in-memory header, its name.
    pub path: PathBuf,
    /// Its content when it was read.
    pub text: String,
    /// Whether it is an in-memory header ([`KernelSource::header`]) rather than a file on disk.
    pub in_memory: bool,
}

/// Why a kernel source cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The source file cannot be read.
    #[error("cannot read the kernel source {}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        #[source]
        error: std::io::Error,
    },
    /// An included file exists but cannot be read.
    #[error("{from}:{line}: cannot read the included file {}: {error}", path.display())]
    UnreadableInclude {
        /// The including file.
        from: String,
        /// The line of the `#include`, from 1.
        line: usize,
        /// The file.
        path: PathBuf,
        /// The I/O error.
        #[source]
        error: std::io::Error,
    },
    /// A name or text that cannot be passed to a compiler.
    #[error("{what} of the kernel source contains a NUL byte or a line break: {text:?}")]
    Unusable {
        /// The part.
        what: &'static str,
        /// Its value.
        text: String,
    },
    /// The name of an in-memory header is not a relative path.
    #[error("header name {name:?}: expected a relative path without `..`, as written in the #include")]
    HeaderName {
        /// The name.
        name: String,
    },
}

impl KernelSource {
    /// Creates a source from memory.
    ///
    /// `name` appears in messages like a file name. Includes are looked up in the in-memory headers, then in the include folders.
    pub fn from_text(name: impl Into<String>, text: impl Into<String>) -> Result<KernelSource, SourceError> {
        KernelSource::new(name.into(), text.into(), None)
    }

    /// Reads a source from a file. Quoted includes are looked up in its folder first.
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
        check_line("the name", &name)?;
        if text.contains('\0') {
            return Err(SourceError::Unusable { what: "the text", text: name });
        }
        let mut source = KernelSource {
            name,
            text,
            folder,
            path: IncludePath::default(),
            defines: Vec::new(),
            options: Vec::new(),
            includes: Vec::new(),
            unresolved: Vec::new(),
        };
        source.resolve()?;
        Ok(source)
    }

    /// Adds a folder to search for included files.
    pub fn include_dir(mut self, path: impl Into<PathBuf>) -> Result<KernelSource, SourceError> {
        self.path.folders.push(path.into());
        self.resolve()?;
        Ok(self)
    }

    /// Adds an in-memory header, or replaces the one of that name.
    ///
    /// `name` is a relative path spelled exactly as in the `#include` (`"tile.cuh"`, `<common/types.cuh>`). In-memory headers are searched
    /// after the folder of the source file and before the include folders. Those that are included are part of the cache key.
    pub fn header(self, name: impl Into<String>, text: impl Into<String>) -> Result<KernelSource, SourceError> {
        self.headers([(name, text)])
    }

    /// Adds several in-memory headers; see [`KernelSource::header`].
    pub fn headers<N: Into<String>, T: Into<String>>(
        mut self,
        headers: impl IntoIterator<Item = (N, T)>,
    ) -> Result<KernelSource, SourceError> {
        for (name, text) in headers {
            let (name, text) = (name.into(), text.into());
            check_line("a header name", &name)?;
            if name.is_empty() || !Path::new(&name).components().all(|part| matches!(part, Component::Normal(_))) {
                return Err(SourceError::HeaderName { name });
            }
            if text.contains('\0') {
                return Err(SourceError::Unusable { what: "a header", text: name });
            }
            self.path.headers.insert(name, text);
        }
        self.resolve()?;
        Ok(self)
    }

    /// Defines a macro, as `-Dname=value`.
    ///
    /// Headers that the compiler includes before every source see it only if its name starts like theirs (`_`, `CUDA`, `HIP`, ...).
    pub fn define(mut self, name: impl Into<String>, value: impl Into<String>) -> KernelSource {
        self.defines.push((name.into(), value.into()));
        self
    }

    /// Adds an option for the compiler, whichever is used.
    pub fn option(mut self, option: impl Into<String>) -> KernelSource {
        self.options.push(option.into());
        self
    }

    /// The path of the file as given, or the name of an in-memory source.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The source text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The folder of the source file; `None` for an in-memory source.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// The include folders, in search order.
    pub fn include_dirs(&self) -> &[PathBuf] {
        &self.path.folders
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

    /// Every file with its content, the source first: what a cache key covers.
    pub fn files(&self) -> Vec<(String, &str)> {
        let included = self.includes.iter().map(|file| (file.path.to_string_lossy().into_owned(), file.text.as_str()));
        std::iter::once((self.name.clone(), self.text.as_str())).chain(included).collect()
    }

    /// Returns the first included file on disk that was changed or deleted since it was read.
    pub fn changed_on_disk(&self) -> Option<&Path> {
        let changed = |file: &&Included| std::fs::read_to_string(&file.path).map_or(true, |now| now != file.text);
        self.includes.iter().filter(|file| !file.in_memory).find(changed).map(|file| file.path.as_path())
    }

    /// Whether an included file is an in-memory header.
    pub(crate) fn has_in_memory_includes(&self) -> bool {
        self.includes.iter().any(|file| file.in_memory)
    }

    /// Resolves all includes again: a new folder or header may change any of them.
    fn resolve(&mut self) -> Result<(), SourceError> {
        let mut resolver = Resolver { source: self, found: Vec::new(), seen: HashSet::new(), unresolved: Vec::new() };
        resolver.scan(&self.name, &self.text, self.folder.as_deref())?;
        // `found` grows during the loop: an index, not an iterator.
        let mut next = 0;
        while next < resolver.found.len() {
            let Included { path, text, in_memory } = resolver.found[next].clone();
            resolver.scan(&path.to_string_lossy(), &text, path.parent().filter(|_| !in_memory))?;
            next += 1;
        }
        let Resolver { found, unresolved, .. } = resolver;
        self.includes = found;
        self.unresolved = unresolved;
        Ok(())
    }
}

fn check_line(what: &'static str, text: &str) -> Result<(), SourceError> {
    if text.contains(['\0', '\n', '\r']) { Err(SourceError::Unusable { what, text: text.to_owned() }) } else { Ok(()) }
}

struct Resolver<'a> {
    source: &'a KernelSource,
    found: Vec<Included>,
    /// Canonical paths, and names of in-memory headers: ends include cycles, and a file reached by two names is read once.
    seen: HashSet<PathBuf>,
    unresolved: Vec<String>,
}

impl Resolver<'_> {
    /// Finds the includes of one file.
    fn scan(&mut self, name: &str, text: &str, folder: Option<&Path>) -> Result<(), SourceError> {
        // The compilers are given the source's own folder for quoted includes, so it counts for nested files too.
        let beside: Vec<&Path> = folder.into_iter().chain(self.source.folder.as_deref()).collect();
        for include in included(text.as_bytes()) {
            let path = match self.source.path.resolve(&include, &beside) {
                Some(Resolved::File(path)) => path,
                Some(Resolved::Memory(name, text)) => {
                    if self.seen.insert(PathBuf::from(name)) {
                        self.found.push(Included { path: PathBuf::from(name), text: text.to_owned(), in_memory: true });
                    }
                    continue;
                }
                None => {
                    if !self.unresolved.contains(&include.name) {
                        self.unresolved.push(include.name);
                    }
                    continue;
                }
            };
            let (line, _) = line_and_column(text.as_bytes(), include.offset);
            let unreadable = |error| SourceError::UnreadableInclude { from: name.to_owned(), line, path: path.clone(), error };
            let canonical = path.canonicalize().map_err(unreadable)?;
            if self.seen.contains(&canonical) {
                continue;
            }
            let text = std::fs::read_to_string(&path).map_err(unreadable)?;
            self.seen.insert(canonical);
            self.found.push(Included { path, text, in_memory: false });
        }
        Ok(())
    }
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
    fn in_memory_headers_are_found_between_the_folder_and_the_include_folders() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("a.cuh"), "disk").unwrap();
        let text = "#include \"a.cuh\"\n#include <common/b.cuh>\n#include \"missing.cuh\"\n";
        let headers =
            [("a.cuh", "memory"), ("common/b.cuh", "#include \"c.cuh\"\n"), ("c.cuh", "#include \"a.cuh\"\n"), ("unused.cuh", "")];
        let source = KernelSource::from_text("k.cu", text).unwrap().headers(headers).unwrap().include_dir(root.path()).unwrap();
        let found: Vec<_> = source.includes().iter().map(|f| (f.path.to_str().unwrap(), f.text.as_str(), f.in_memory)).collect();
        assert_eq!(found[0], ("a.cuh", "memory", true));
        assert_eq!(found[1..].iter().map(|f| f.0).collect::<Vec<_>>(), ["common/b.cuh", "c.cuh"]);
        assert_eq!((source.unresolved(), source.changed_on_disk()), (&["missing.cuh".to_owned()][..], None));
        let replaced = source.header("a.cuh", "other").unwrap();
        assert_eq!(replaced.files()[1], ("a.cuh".to_owned(), "other"));

        let main = root.path().join("main.cu");
        fs::write(&main, "#include \"a.cuh\"\n").unwrap();
        let beside = KernelSource::from_file(&main).unwrap().header("a.cuh", "memory").unwrap();
        assert_eq!((beside.includes()[0].text.as_str(), beside.includes()[0].in_memory), ("disk", false));
        for name in ["", "/a.cuh", "../a.cuh", "a/../b.cuh", "a\nb"] {
            assert!(KernelSource::from_text("k.cu", "").unwrap().header(name, "").is_err(), "{name:?}");
        }
        assert!(KernelSource::from_text("k.cu", "").unwrap().header("a", "\0").is_err());
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
}
