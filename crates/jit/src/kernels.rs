//! Which kernels a source has, and which of them the compiled code lacks.
//!
//! The source is read as NVIDIA's compiler would: `__CUDA_ARCH__` is the number that the translation assumes, and none of AMD's
//! macros is defined. A kernel that is then there and is not in the code object was lost on the way, and is named.

use std::path::Path;

use warpwave_gpu::code_object::CodeObject;
use warpwave_hipify::kernels::codes;
use warpwave_hipify::kernels::find::Kernel;
use warpwave_hipify::preprocessor::expand::{Unit, expand};

use crate::source::KernelSource;
use crate::translate::Note;

/// The architecture that guards on `__CUDA_ARCH__` see on AMD where the source's macros do not say another.
const ARCH: &str = "900";

/// The kernels that a CUDA compiler makes of `source`, templates among them; their `file` counts the source as 0, then its
/// [`KernelSource::includes`]. `None` where its macros grow beyond reason.
pub fn kernels(source: &KernelSource) -> Option<Vec<Kernel>> {
    let mut files = vec![source.text().as_bytes()];
    files.extend(source.includes().iter().map(|file| file.text.as_bytes()));
    let mut defines: Vec<(String, String)> =
        [("__CUDACC__", "1"), ("__CUDACC_RTC__", "1"), ("__NVCC__", "1")].map(|(n, v)| (n.to_owned(), v.to_owned())).into();
    let arch = source.defines().iter().rev().find(|(name, _)| name == "WARPWAVE_CUDA_ARCH" || name == "__CUDA_ARCH__");
    defines.push(("__CUDA_ARCH__".to_owned(), arch.map_or(ARCH, |(_, value)| value).to_owned()));
    defines.extend(source.defines().iter().filter(|(name, _)| name != "__CUDA_ARCH__").cloned());
    let include = |from: usize, name: &str, quoted: bool| find_include(source, from, name, quoted);
    let expanded = expand(&Unit { files, include: Box::new(include), defines }).ok()?;
    expanded.complete.then(|| expanded.kernels())
}

/// The number of the file that an `#include` means, by the same order of folders as the compilers use.
fn find_include(source: &KernelSource, from: usize, name: &str, quoted: bool) -> Option<usize> {
    let included = source.includes();
    let own = match from.checked_sub(1) {
        None => source.folder(),
        Some(index) => included.get(index).filter(|file| !file.in_memory).and_then(|file| file.path.parent()),
    };
    // The empty folder stands for in-memory headers, whose path is their name.
    let folders = own.into_iter().chain(source.folder()).filter(|_| quoted).chain([Path::new("")]);
    let folders = folders.chain(source.include_dirs().iter().map(|p| p.as_path()));
    let by_folder = folders.map(|folder| folder.join(name)).find_map(|path| included.iter().position(|file| file.path == path));
    // A file reached by two names is listed under the first alone.
    let place = by_folder.or_else(|| included.iter().position(|file| file.path.ends_with(Path::new(name))));
    place.map(|index| index + 1)
}

/// A warning for each kernel of `source` that `code` lacks.
pub(crate) fn lost(source: &KernelSource, code: &CodeObject) -> Vec<Note> {
    let Some(expected) = kernels(source) else { return Vec::new() };
    let mut notes: Vec<Note> = Vec::new();
    for kernel in expected.iter().filter(|kernel| !kernel.template) {
        let mangled = format!("{}{}", kernel.name.len(), kernel.name);
        if code.kernels.iter().any(|k| k.name == kernel.name || (k.name.starts_with("_Z") && k.name.contains(&mangled))) {
            continue;
        }
        let (file, text) = match kernel.file.checked_sub(1).and_then(|index| source.includes().get(index as usize)) {
            Some(file) => (file.path.to_string_lossy().into_owned(), file.text.as_str()),
            None => (source.name().to_owned(), source.text()),
        };
        let (line, column) = warpwave_hipify::diagnostic::line_and_column(text.as_bytes(), kernel.at);
        notes.push(Note {
            file,
            line,
            column,
            code: format!("WW{:04}", codes::LOST_KERNEL),
            severity: "warning".to_owned(),
            message: format!("kernel `{}` is missing from the compiled code", kernel.name),
            help: Some("the usual cause is a condition on a macro that only NVIDIA compilers define".to_owned()),
        });
    }
    notes
}
