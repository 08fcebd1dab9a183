//! Converts CMake files and Makefiles from CUDA to HIP.
//!
//! Contract: any bytes are accepted; bytes that no edit touches stay; CUDA names are converted or named in a diagnostic of [`codes`];
//! converting the output again changes nothing.
//!
//! ```
//! use warpwave_hipify::build::{BuildFile, BuildOptions, convert};
//! let hip = convert(b"find_package(CUDAToolkit REQUIRED)\n", BuildFile::CMake, &BuildOptions::default());
//! assert_eq!(hip.output, b"find_package(hip REQUIRED)\n");
//! ```

mod cmake;
pub mod codes;
mod flags;
mod libraries;
mod make;
mod notes;

use std::collections::BTreeSet;

use crate::convert::Conversion;
use crate::translate::Translation;

/// The language of a build file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BuildFile {
    /// `CMakeLists.txt`, `*.cmake`.
    CMake,
    /// `Makefile`, `GNUmakefile`, `*.mk`.
    Make,
}

impl BuildFile {
    /// Returns the language of a build file by its name.
    pub fn of(name: &str) -> Option<BuildFile> {
        match name {
            "CMakeLists.txt" => Some(BuildFile::CMake),
            "Makefile" | "makefile" | "GNUmakefile" => Some(BuildFile::Make),
            _ if name.ends_with(".cmake") => Some(BuildFile::CMake),
            _ if name.ends_with(".mk") => Some(BuildFile::Make),
            _ => None,
        }
    }
}

/// Options of a build file conversion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildOptions {
    /// The AMD architectures to build for.
    pub offload_arch: Vec<String>,
    /// The names of the sources that are renamed from `.cu` to `.hip`. `None`: sources keep their names and are marked as HIP.
    pub renamed: Option<BTreeSet<String>>,
}

impl Default for BuildOptions {
    fn default() -> Self {
        BuildOptions { offload_arch: ["gfx90a", "gfx942", "gfx1100"].map(str::to_owned).to_vec(), renamed: None }
    }
}

/// Converts a build file.
pub fn convert(source: &[u8], kind: BuildFile, options: &BuildOptions) -> Conversion {
    let Translation { mut output, diagnostics, stats } = once(source, kind, options);
    // A flag within the value of another appears only when the outer one is gone; real files need one pass.
    for _ in 0..8 {
        let again = once(&output, kind, options).output;
        if again == output {
            break;
        }
        output = again;
    }
    let already_hip = diagnostics.is_empty() && output == source && mentions_hip(source);
    Conversion { output, diagnostics, stats, already_hip, ..Conversion::unchanged(b"") }
}

fn once(source: &[u8], kind: BuildFile, options: &BuildOptions) -> Translation {
    // Keeps the length, so that offsets match the source; everything that matters here is ASCII.
    let text: String = source.iter().map(|byte| if byte.is_ascii() { char::from(*byte) } else { '?' }).collect();
    match kind {
        BuildFile::CMake => cmake::convert(source, &text, options),
        BuildFile::Make => make::convert(source, &text, options),
    }
}

/// Whether a build file mentions CUDA.
pub fn mentions_cuda(source: &[u8]) -> bool {
    let has = |word: &[u8]| source.windows(word.len()).any(|window| window.eq_ignore_ascii_case(word));
    has(b"cuda") || has(b"nvcc") || has(b".cu ") || has(b".cu)") || has(b".cu\n")
}

/// Whether a build file mentions HIP.
pub fn mentions_hip(source: &[u8]) -> bool {
    let has = |word: &[u8]| source.windows(word.len()).any(|window| window == word);
    [&b"HIP"[..], b"hip::", b"hipcc", b"amdhip64", b"find_package(hip"].iter().any(|word| has(word))
}

/// Whether `start..end` is a complete word of `text`.
fn is_whole(text: &str, start: usize, end: usize) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let bytes = text.as_bytes();
    let before = start.checked_sub(1).and_then(|at| bytes.get(at));
    ![before, bytes.get(end)].into_iter().flatten().any(|byte| word(*byte))
}

/// The identifiers of a text that start with `front`, with their offsets.
fn names_from<'a>(text: &'a str, front: &'a str) -> impl Iterator<Item = (usize, &'a str)> {
    text.match_indices(front).filter_map(move |(at, _)| {
        let length = text[at..].bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count();
        let end = at + length.max(front.len());
        is_whole(text, at, end).then(|| (at, &text[at..end]))
    })
}

/// Maps `/usr/local/cuda-12.4/lib64` to ROCm: the length of the old path, and the new path.
fn toolkit_path(text: &str) -> Option<(usize, String)> {
    let rest = text.strip_prefix("/usr/local/cuda").or_else(|| text.strip_prefix("/opt/cuda"))?;
    let version = rest.bytes().take_while(|byte| byte.is_ascii_digit() || matches!(byte, b'-' | b'.')).count();
    let below = &rest[version..];
    if below.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return None;
    }
    let (length, new) = below_toolkit(below)?;
    Some((text.len() - below.len() + length, format!("/opt/rocm{new}")))
}

/// Maps a subfolder of the CUDA toolkit: its length, and the ROCm folder; `None` if ROCm has no such folder.
fn below_toolkit(below: &str) -> Option<(usize, &'static str)> {
    const FOLDERS: [(&str, &str); 10] = [
        ("/targets/x86_64-linux/lib/stubs", "/lib"),
        ("/targets/x86_64-linux/lib", "/lib"),
        ("/targets/x86_64-linux/include", "/include"),
        ("/lib64/stubs", "/lib"),
        ("/lib64", "/lib"),
        ("/lib/stubs", "/lib"),
        ("/lib", "/lib"),
        ("/include", "/include"),
        ("/bin/nvcc", "/bin/hipcc"),
        ("/bin", "/bin"),
    ];
    let name = below.strip_prefix('/').map_or(0, |rest| rest.bytes().take_while(|byte| byte.is_ascii_alphanumeric()).count());
    let found = FOLDERS.iter().find(|(old, _)| below.starts_with(old) && is_whole(below, 1, old.len()));
    match found {
        Some((old, new)) => Some((old.len(), new)),
        None if name == 0 => Some((0, "")),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_files_are_known_by_name() {
        assert_eq!(BuildFile::of("CMakeLists.txt"), Some(BuildFile::CMake));
        assert_eq!(BuildFile::of("FindX.cmake"), Some(BuildFile::CMake));
        assert_eq!(BuildFile::of("rules.mk"), Some(BuildFile::Make));
        assert_eq!(BuildFile::of("a.cu"), None);
    }

    #[test]
    fn toolkit_paths_become_rocms() {
        let new = |text: &str| toolkit_path(text).map(|(length, new)| format!("{new}{}", &text[length..]));
        assert_eq!(new("/usr/local/cuda/lib64").as_deref(), Some("/opt/rocm/lib"));
        assert_eq!(new("/usr/local/cuda-12.4/include/x").as_deref(), Some("/opt/rocm/include/x"));
        assert_eq!(new("/usr/local/cuda/bin/nvcc").as_deref(), Some("/opt/rocm/bin/hipcc"));
        assert_eq!(new("/usr/local/cudax/include"), None);
        assert_eq!(new("/usr/local/cuda/samples/common"), None);
        assert_eq!(new("/usr/local/cuda").as_deref(), Some("/opt/rocm"));
    }
}
