//! The files to convert: named files and folders, or the files of a compile database with their headers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use warpwave_hipify::build::{self, BuildFile};
use warpwave_hipify::{COMPATIBILITY_HEADER, IncludePath, Included, Resolved, included, is_cuda_header};

use super::super::{Failure, failed};
use super::database::{self, Compiled, plain};

/// A file to convert.
#[derive(Debug, Clone)]
pub(super) struct Input {
    /// The folder it was found in; output paths are relative to it.
    pub root: PathBuf,
    pub path: PathBuf,
    pub compiled: Compiled,
    /// The language of a build file.
    pub build: Option<BuildFile>,
}

/// The inputs of a run.
pub(super) struct Inputs {
    pub all: Vec<Input>,
    /// Files of a database that do not exist.
    pub missing: Vec<PathBuf>,
    /// Folders whose other files belong to the output too.
    folders: Vec<PathBuf>,
    roots: Vec<PathBuf>,
    known: BTreeSet<PathBuf>,
}

fn build_kind(path: &Path) -> Option<BuildFile> {
    BuildFile::of(path.file_name()?.to_str()?)
}

impl Inputs {
    /// Collects named files and folders.
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
            let (first, mut files) = (found.len(), Vec::new());
            walk_all(path, &mut |file| {
                if is_cuda(file) {
                    found.push(input(path, file));
                }
                files.push(file.to_owned());
            })?;
            add_header_folders(&mut found[first..], &files);
        }
        if found.is_empty() {
            return Err(failed("no CUDA files (.cu, .cuh, or C++ and build files that mention CUDA) in the given paths"));
        }
        // Relative include folders belong to the project.
        roots.extend(compiled.folders.iter().filter(|folder| folder.is_relative()).cloned());
        let folders = paths.iter().filter(|path| path.is_dir()).cloned().collect();
        Ok(Inputs { folders, ..Inputs::new(found, Vec::new(), roots) })
    }

    /// Collects the files of a compile database with the headers and build files of the project; with `paths`, those files with their
    /// entries.
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
            return Err(failed(format!("{}: no entry is a CUDA file", database.display())));
        }
        Ok(Inputs { folders: vec![root.clone()], ..Inputs::new(found, missing, vec![root]) })
    }

    fn new(mut all: Vec<Input>, missing: Vec<PathBuf>, roots: Vec<PathBuf>) -> Inputs {
        all.sort_by(|a, b| (&a.root, &a.path).cmp(&(&b.root, &b.path)));
        let mut seen = BTreeSet::new();
        all.retain(|input| seen.insert(resolve(&input.path)));
        let roots = roots.iter().map(|root| resolve(root)).collect();
        Inputs { all, missing, folders: Vec::new(), roots, known: seen }
    }

    /// Returns the includes of a source that are files of the project, with their new names, and whether one of them includes
    /// `cublas_v2.h`.
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
            // Stop at this many headers.
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

    /// Returns the project file that an include resolves to.
    fn own(&self, from: &Path, include: &Included, folders: &[PathBuf]) -> Option<PathBuf> {
        if include.quoted {
            let beside = from.parent().unwrap_or(Path::new("")).join(&include.name);
            if beside.is_file() {
                return Some(resolve(&beside));
            }
        }
        let found = resolve(&find(from, include, folders)?);
        // The CUDA toolkit may be among the folders: a file counts only if it is in the project, and for <…> if it is converted.
        let inside = include.quoted && self.roots.iter().any(|root| found.starts_with(root));
        // A header that shadows a toolkit header includes that one by its own name.
        let itself = found == resolve(from);
        (!itself && (inside || self.known.contains(&found))).then_some(found)
    }

    /// Removes the files of an earlier run: those below an output folder that is inside an input folder.
    pub fn exclude(&mut self, output: &Path) {
        let output = resolve(output);
        let inside = |folder: &PathBuf| {
            let folder = resolve(folder);
            output != folder && output.starts_with(&folder)
        };
        if self.folders.iter().any(inside) {
            self.all.retain(|input| !resolve(&input.path).starts_with(&output));
            self.known.retain(|path| !path.starts_with(&output));
        }
    }

    /// The files below the input folders that are not converted, each with its folder; those below `output` are left out.
    pub fn others(&self, output: &Path) -> Result<Vec<(PathBuf, PathBuf)>, Failure> {
        let output = resolve(output);
        let mut others = Vec::new();
        for folder in &self.folders {
            walk_all(folder, &mut |file| {
                let path = resolve(file);
                if !self.known.contains(&path) && !path.starts_with(&output) {
                    others.push((folder.clone(), file.to_owned()));
                }
            })?;
        }
        Ok(others)
    }

    /// The names of the `.cu` files.
    pub fn cuda_names(&self) -> BTreeSet<String> {
        let cuda = self.all.iter().filter(|input| input.path.extension().is_some_and(|end| end == "cu"));
        cuda.filter_map(|input| input.path.file_name()?.to_str().map(str::to_owned)).collect()
    }
}

/// The canonical path, for comparisons.
fn resolve(path: &Path) -> PathBuf {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    path.canonicalize().unwrap_or_else(|_| plain(path))
}

fn find(from: &Path, include: &Included, folders: &[PathBuf]) -> Option<PathBuf> {
    let path = IncludePath { folders: folders.to_vec(), ..IncludePath::default() };
    let beside: Vec<&Path> = from.parent().into_iter().collect();
    match path.resolve(include, &beside)? {
        Resolved::File(path) => Some(plain(&path)),
        Resolved::Memory(..) => None,
    }
}

/// The deepest common folder of some files.
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

/// The project folder of `folder`: the topmost folder above it in an unbroken chain of folders with a build file.
fn project_root(folder: PathBuf) -> PathBuf {
    let marks = ["CMakeLists.txt", "Makefile", "GNUmakefile", ".git"];
    let is_marked = |folder: &Path| marks.iter().any(|mark| folder.join(mark).exists());
    let above = folder.ancestors().skip_while(|folder| !is_marked(folder)).take_while(|folder| is_marked(folder));
    above.last().map_or(folder.clone(), Path::to_owned)
}

/// Whether a folder is a CMake build folder.
fn is_build_folder(folder: &Path) -> bool {
    folder.join("CMakeCache.txt").is_file()
}

/// Adds the include folders that a folder's build files would name: for an include that is not found otherwise, the folder from which
/// it leads to a file of the project, if there is only one.
fn add_header_folders(inputs: &mut [Input], files: &[PathBuf]) {
    let mut named: HashMap<&std::ffi::OsStr, Vec<&Path>> = HashMap::new();
    for file in files {
        if let Some(name) = file.file_name() {
            named.entry(name).or_default().push(file);
        }
    }
    for input in inputs.iter_mut().filter(|input| input.build.is_none()) {
        let Ok(text) = std::fs::read(&input.path) else { continue };
        let mut folders: Vec<PathBuf> = Vec::new();
        for include in included(&text) {
            let path = Path::new(&include.name);
            let Some(files) = path.file_name().and_then(|name| named.get(name)).filter(|_| !is_cuda_header(&include.name)) else {
                continue;
            };
            if find(&input.path, &include, &input.compiled.folders).is_some() {
                continue;
            }
            let depth = path.components().count();
            let mut fitting = files.iter().filter(|file| file.ends_with(path)).filter_map(|file| file.ancestors().nth(depth));
            if let (Some(folder), None) = (fitting.next(), fitting.next())
                && !folders.iter().any(|known| known == folder)
            {
                folders.push(folder.to_owned());
            }
        }
        input.compiled.folders.extend(folders);
    }
}

/// Calls `found` with the files below a folder, except in hidden and build folders.
fn walk_all(root: &Path, found: &mut dyn FnMut(&Path)) -> Result<(), Failure> {
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let fail = |error: std::io::Error| failed(format!("{}: {error}", folder.display()));
        for entry in std::fs::read_dir(&folder).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let (kind, file) = (entry.file_type()?, entry.path());
            if kind.is_dir() {
                // Skip generated and hidden folders.
                if !entry.file_name().to_string_lossy().starts_with('.') && !is_build_folder(&file) {
                    folders.push(file);
                }
            } else if kind.is_file() {
                found(&file);
            }
        }
    }
    Ok(())
}

/// Text that marks a C++ file as CUDA: API names, device code, or the name of a CUDA source.
const CUDA_MARKS: &[&[u8]] = &[
    b"cuda",
    b"cublas",
    b"cufft",
    b"curand",
    b"<<<",
    b"__global__",
    b"__device__",
    b"__shared__",
    b"__syncthreads",
    b"__shfl",
    b"__ballot",
    b"threadIdx",
    b"__CUDA_ARCH__",
    // An include of a source that gets another name.
    b".cu\"",
    b".cu>",
];

/// Whether a file is to be converted: by its extension, or C++ or a build file that mentions CUDA.
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
            CUDA_MARKS.iter().any(|mark| has(mark))
        }),
        _ => false,
    }
}
