//! What is translated: files and folders that were named, or the files of a compile database with the headers they share.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use warpwave_hipify::build::{self, BuildFile};
use warpwave_hipify::{COMPATIBILITY_HEADER, Included, included};

use super::super::{Failure, failed};
use super::database::{self, Compiled, plain};

/// A file to translate.
#[derive(Debug, Clone)]
pub(super) struct Input {
    /// The folder it was found through; outputs keep their place below it.
    pub root: PathBuf,
    pub path: PathBuf,
    pub compiled: Compiled,
    /// A build file's language.
    pub build: Option<BuildFile>,
}

/// The inputs of a run, and what can be told from them together.
pub(super) struct Inputs {
    pub all: Vec<Input>,
    /// Files of a database that do not exist.
    pub missing: Vec<PathBuf>,
    roots: Vec<PathBuf>,
    known: BTreeSet<PathBuf>,
}

fn build_kind(path: &Path) -> Option<BuildFile> {
    BuildFile::of(path.file_name()?.to_str()?)
}

impl Inputs {
    /// Files and folders as named.
    pub fn named(paths: &[PathBuf], compiled: &Compiled) -> Result<Inputs, Failure> {
        let mut found = Vec::new();
        let mut roots = Vec::new();
        let input = |root: &Path, path: &Path| Input {
            root: root.to_owned(),
            path: path.to_owned(),
            compiled: compiled.clone(),
            build: build_kind(path),
        };
        for path in paths {
            if !path.is_dir() {
                let root = path.parent().unwrap_or(Path::new(""));
                roots.push(root.to_owned());
                found.push(input(root, path));
                continue;
            }
            roots.push(path.clone());
            walk(path, &mut |file| found.push(input(path, file)))?;
        }
        if found.is_empty() {
            return Err(failed("no CUDA files (.cu, .cuh, C++ or build files that mention CUDA) in what was named"));
        }
        // Folders that the user names for headers, relative to where he stands, are the project's.
        roots.extend(compiled.folders.iter().filter(|folder| folder.is_relative()).cloned());
        Ok(Inputs::new(found, Vec::new(), roots))
    }

    /// The files of a database, or those of `paths` with what it knows of them. Headers and build files of the same project come along.
    pub fn database(database: &Path, paths: &[PathBuf], given: &Compiled) -> Result<Inputs, Failure> {
        let entries = database::read(database)?;
        let resolved: HashMap<PathBuf, &Compiled> = entries.iter().map(|(path, compiled)| (resolve(path), compiled)).collect();
        let with = |compiled: &Compiled| Compiled {
            defines: given.defines.iter().chain(&compiled.defines).cloned().collect(),
            folders: given.folders.iter().chain(&compiled.folders).cloned().collect(),
            ambiguous: compiled.ambiguous,
        };
        let missing: Vec<PathBuf> = entries.keys().filter(|path| !path.is_file()).cloned().collect();
        let there: Vec<(&PathBuf, &Compiled)> = entries.iter().filter(|(path, _)| path.is_file()).collect();
        let root = project_root(common(there.iter().map(|(path, _)| path.as_path())));
        if !paths.is_empty() {
            let mut inputs = Inputs::named(paths, given)?;
            inputs.roots.push(resolve(&root));
            for input in &mut inputs.all {
                if let Some(compiled) = resolved.get(&resolve(&input.path)) {
                    input.compiled = with(compiled);
                }
            }
            return Ok(inputs);
        }
        let mut sources: BTreeMap<PathBuf, Compiled> = BTreeMap::new();
        let mut queue: Vec<(PathBuf, Compiled)> = there.iter().rev().map(|(path, compiled)| ((*path).clone(), with(compiled))).collect();
        while let Some((path, compiled)) = queue.pop() {
            if let Some(known) = sources.get_mut(&path) {
                known.ambiguous |= known.defines != compiled.defines;
                continue;
            }
            let Ok(text) = std::fs::read(&path) else { continue };
            for include in included(&text) {
                if let Some(header) = find(&path, &include, &compiled.folders).filter(|header| header.starts_with(&root)) {
                    queue.push((header, compiled.clone()));
                }
            }
            sources.insert(path, compiled);
        }
        let mut found: Vec<Input> = Vec::new();
        let mut folders = BTreeSet::new();
        for (path, compiled) in sources {
            folders.extend(path.ancestors().skip(1).take_while(|folder| folder.starts_with(&root)).map(Path::to_owned));
            if is_cuda(&path) {
                found.push(Input { root: root.clone(), path, compiled, build: None });
            }
        }
        for folder in folders.iter().filter(|folder| !is_build_folder(folder)) {
            let Ok(entries) = std::fs::read_dir(folder) else { continue };
            let files = entries.flatten().map(|entry| entry.path()).filter(|path| build_kind(path).is_some() && is_cuda(path));
            found.extend(files.map(|path| Input { root: root.clone(), build: build_kind(&path), path, compiled: Compiled::default() }));
        }
        if found.is_empty() {
            return Err(failed(format!("{}: none of its files has to do with CUDA", database.display())));
        }
        Ok(Inputs::new(found, missing, vec![root]))
    }

    fn new(mut all: Vec<Input>, missing: Vec<PathBuf>, roots: Vec<PathBuf>) -> Inputs {
        all.sort_by(|a, b| (&a.root, &a.path).cmp(&(&b.root, &b.path)));
        let mut seen = BTreeSet::new();
        all.retain(|input| seen.insert(resolve(&input.path)));
        let roots = roots.iter().map(|root| resolve(root)).collect();
        Inputs { all, missing, roots, known: seen }
    }

    /// The headers of a source that are files of the project, each with its new name; and whether one of them brings `cublas_v2.h`.
    pub fn local(&self, input: &Input, source: &[u8], renames: bool) -> (Vec<(String, String)>, bool) {
        let mut local = Vec::new();
        let mut queue = Vec::new();
        for include in included(source) {
            let Some(path) = self.own(&input.path, &include, &input.compiled.folders) else { continue };
            let renamed = renames && include.name.ends_with(".cu") && self.known.contains(&path);
            let name = include.name.clone();
            let new = if renamed { format!("{}hip", &name[..name.len() - 2]) } else { name.clone() };
            queue.push(path);
            local.push((name, new));
        }
        (local, self.brings_blas(queue, &input.compiled.folders))
    }

    fn brings_blas(&self, mut queue: Vec<PathBuf>, folders: &[PathBuf]) -> bool {
        let mut seen = BTreeSet::new();
        while let Some(path) = queue.pop() {
            // Past this many headers the answer costs more than it is worth.
            if !seen.insert(path.clone()) || seen.len() > 256 {
                continue;
            }
            let Ok(text) = std::fs::read(&path) else { continue };
            for include in included(&text) {
                match self.own(&path, &include, folders) {
                    Some(header) => queue.push(header),
                    None if include.name == "cublas_v2.h" => return true,
                    None => {}
                }
            }
        }
        false
    }

    /// The file of the project that an include names.
    fn own(&self, from: &Path, include: &Included, folders: &[PathBuf]) -> Option<PathBuf> {
        if include.quoted {
            let beside = from.parent().unwrap_or(Path::new("")).join(&include.name);
            if beside.is_file() {
                return Some(resolve(&beside));
            }
        }
        let found = resolve(&find(from, include, folders)?);
        // The toolkit's own folder may be among those searched: only what lies in the project counts, and for <…> what is translated.
        let inside = include.quoted && self.roots.iter().any(|root| found.starts_with(root));
        // A header that stands before one of the toolkit's includes that one by its own name.
        let itself = found == resolve(from);
        (!itself && (inside || self.known.contains(&found))).then_some(found)
    }

    /// File names of the `.cu` files.
    pub fn cuda_names(&self) -> BTreeSet<String> {
        let cuda = self.all.iter().filter(|input| input.path.extension().is_some_and(|end| end == "cu"));
        cuda.filter_map(|input| input.path.file_name()?.to_str().map(str::to_owned)).collect()
    }
}

/// The real path, for comparisons.
fn resolve(path: &Path) -> PathBuf {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    path.canonicalize().unwrap_or_else(|_| plain(path))
}

fn find(from: &Path, include: &Included, folders: &[PathBuf]) -> Option<PathBuf> {
    let beside = from.parent().filter(|_| include.quoted).map(|folder| folder.join(&include.name));
    let below = folders.iter().map(|folder| folder.join(&include.name));
    beside.into_iter().chain(below).find(|path| path.is_file()).map(|path| plain(&path))
}

/// The folder that all of these files are below.
fn common<'p>(mut paths: impl Iterator<Item = &'p Path>) -> PathBuf {
    let mut folder = paths.next().and_then(Path::parent).unwrap_or(Path::new("")).to_owned();
    for path in paths {
        while !path.starts_with(&folder) {
            if !folder.pop() {
                return folder;
            }
        }
    }
    folder
}

/// The folder of the project whose sources are below `folder`: the topmost of those above it that have a build file, as long as
/// they follow each other.
fn project_root(folder: PathBuf) -> PathBuf {
    let marks = ["CMakeLists.txt", "Makefile", "GNUmakefile", ".git"];
    let is_marked = |folder: &Path| marks.iter().any(|mark| folder.join(mark).exists());
    let above = folder.ancestors().skip_while(|folder| !is_marked(folder)).take_while(|folder| is_marked(folder));
    above.last().map_or(folder.clone(), Path::to_owned)
}

/// A folder that CMake writes into.
fn is_build_folder(folder: &Path) -> bool {
    folder.join("CMakeCache.txt").is_file()
}

fn walk(root: &Path, found: &mut impl FnMut(&Path)) -> Result<(), Failure> {
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let fail = |error: std::io::Error| failed(format!("{}: {error}", folder.display()));
        for entry in std::fs::read_dir(&folder).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let (kind, file) = (entry.file_type()?, entry.path());
            if kind.is_dir() {
                // What CMake made is made anew, and what is hidden is not the project's.
                if !entry.file_name().to_string_lossy().starts_with('.') && !is_build_folder(&file) {
                    folders.push(file);
                }
            } else if kind.is_file() && is_cuda(&file) {
                found(&file);
            }
        }
    }
    Ok(())
}

/// CUDA's own endings, or C++ or a build file with something of CUDA's in it.
fn is_cuda(path: &Path) -> bool {
    if build_kind(path).is_some() {
        return std::fs::read(path).is_ok_and(|bytes| build::mentions_cuda(&bytes));
    }
    if path.file_name().is_some_and(|name| name == COMPATIBILITY_HEADER) {
        return false;
    }
    match path.extension().and_then(|e| e.to_str()) {
        Some("cu" | "cuh") => true,
        Some("c" | "cc" | "cpp" | "cxx" | "h" | "hh" | "hpp" | "hxx" | "inl") => std::fs::read(path).is_ok_and(|bytes| {
            let has = |word: &[u8]| bytes.windows(word.len()).any(|window| window == word);
            has(b"cuda") || has(b"__global__") || has(b"<<<") || has(b"cublas") || has(b"cufft") || has(b"curand")
        }),
        _ => false,
    }
}
