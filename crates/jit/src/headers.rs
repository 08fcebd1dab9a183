//! Warpwave's own headers, carried in the binary: the prelude and the CUDA headers as AMD compilers get them.
//!
//! clang sees them under [`FOLDER`], a name that exists only in the file system overlay of one compiler run, so messages and
//! results do not depend on where temporary files lie.

use std::collections::HashSet;
use std::sync::OnceLock;

use sha2::{Digest, Sha256};
use warpwave_hipify::CompatibilityHeader;
use warpwave_hipify::lex::{Kind, Lexed};
use warpwave_hipify::preprocessor::expand::{Unit, expand};

/// The folder the headers appear in.
pub(crate) const FOLDER: &str = "/warpwave/include";

/// The header included before the first line of a source.
pub(crate) const PRELUDE: &str = "warpwave_prelude.h";

macro_rules! files {
    ($($name:literal),* $(,)?) => { &[ $( ($name, include_str!(concat!("headers/", $name))) ),* ] };
}

/// Every header: its name below [`FOLDER`] and its text. Part of the cache key of everything compiled with them.
pub(crate) const FILES: &[(&str, &str)] = files![
    "warpwave_prelude.h",
    "warpwave/keywords.h",
    "warpwave/traits.h",
    "warpwave/device_library.h",
    "warpwave/types.h",
    "warpwave/index.h",
    "warpwave/bits.h",
    "warpwave/convert.h",
    "warpwave/math.h",
    "warpwave/math_fast.h",
    "warpwave/sync.h",
    "warpwave/atomics.h",
    "warpwave/simd.h",
    "warpwave/misc.h",
    "warpwave/hiprtc.h",
    "warpwave/beside_hip.h",
    "warpwave/beside_hip_names.h",
    "cuda_fp16.h",
    "cuda_bf16.h",
    "cuda_fp8.h",
    "assert.h",
    "cassert",
    "cfloat",
    "climits",
    "cmath",
    "cstddef",
    "cstdint",
    "cstdio",
    "cstdlib",
    "cstring",
    "cooperative_groups.h",
    "cooperative_groups/reduce.h",
    "cooperative_groups/scan.h",
    "cuda/std/array",
    "cuda/std/complex",
    "cuda/std/cstdint",
    "cuda/std/limits",
    "cuda/std/type_traits",
    "cuda/std/utility",
    "cuda.h",
    "cuda_runtime.h",
    "cuda_runtime_api.h",
    "device_functions.h",
    "device_launch_parameters.h",
    "float.h",
    "hip/hip_bf16.h",
    "hip/hip_fp16.h",
    "hip/hip_runtime.h",
    "limits.h",
    "math.h",
    "math_constants.h",
    "mma.h",
    "math_functions.h",
    "stddef.h",
    "stdint.h",
    "stdio.h",
    "stdlib.h",
    "string.h",
    "vector_functions.h",
    "vector_types.h",
];

/// The C library's headers that runtime compilers lack and that hold for both vendors.
pub(crate) const C_LIBRARY: &[&str] = &[
    "assert.h", "cassert", "cfloat", "climits", "cstddef", "cstdint", "cstdio", "cstdlib", "cstring", "float.h", "limits.h", "math.h",
    "stddef.h", "stdint.h", "stdio.h", "stdlib.h", "string.h",
];

/// Returns label and SHA-256 of each header, for cache keys. Computed once: every load needs a key, and the headers are long.
pub(crate) fn digests() -> &'static [(String, String)] {
    static DIGESTS: OnceLock<Vec<(String, String)>> = OnceLock::new();
    let hex = |text: &str| Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect();
    DIGESTS.get_or_init(|| FILES.iter().map(|(name, text)| (format!("header {name}"), hex(text))).collect())
}

/// The text of a header.
pub(crate) fn text(name: &str) -> Option<&'static str> {
    FILES.iter().find(|(n, _)| *n == name).map(|(_, text)| *text)
}

/// The parts of [`compatibility_header`] in their order: those behind the macros for CUDA's names use them.
const BESIDE_HIP: &[&str] = &[
    "warpwave/beside_hip.h",
    "warpwave/traits.h",
    "warpwave/simd.h",
    "cuda_bf16.h",
    "cuda_fp8.h",
    "warpwave/beside_hip_names.h",
    "cooperative_groups.h",
    "cooperative_groups/reduce.h",
    "cooperative_groups/scan.h",
    "mma.h",
    "cuda/std/limits",
    "cuda/std/type_traits",
    "cuda/std/utility",
    "cuda/std/array",
    "cuda/std/complex",
];

/// Returns the header that translated sources include as [`warpwave_hipify::COMPATIBILITY_HEADER`]: HIP's own headers and what they lack of CUDA, in one
/// self-contained file. When Warpwave compiles the source, it forwards to the built-in headers.
pub fn compatibility_header() -> &'static CompatibilityHeader {
    static HEADER: OnceLock<CompatibilityHeader> = OnceLock::new();
    HEADER.get_or_init(|| CompatibilityHeader::new(compatibility_text()))
}

fn compatibility_text() -> String {
    let mut text = String::from(
        "// What CUDA sources need beside HIP's headers, written by Warpwave. It may be copied along with the sources that include it.\n\
         // A guard, not #pragma once: a project has a copy in each folder.\n\
         #ifndef WARPWAVE_CUDA_H\n#define WARPWAVE_CUDA_H\n\
         #ifdef __clang__\n#pragma clang system_header\n#endif\n\n\
         #ifndef __cplusplus\n#include <hip/hip_runtime.h>\n#else\n\
         // It may be included inside extern \"C\".\nextern \"C++\" {\n\
         #ifdef WARPWAVE_PRELUDE_H\n",
    );
    for name in BESIDE_HIP.iter().filter(|name| !name.starts_with("warpwave/")) {
        text += &format!("#include <{name}>\n");
    }
    text += "#else\n#include <hip/hip_runtime.h>\n#include <hip/hip_fp16.h>\n";
    for name in BESIDE_HIP {
        text += &format!("\n// {name}\n");
        let own = |line: &&str| !line.starts_with("#include") && !line.starts_with("#pragma once") && !line.contains("clang system_header");
        for line in self::text(name).unwrap_or_default().lines().filter(own) {
            text.push_str(line);
            text.push('\n');
        }
    }
    text + "#endif\n}\n#endif\n#endif\n"
}

/// Whether the headers say something about a name: as it is written, or as their macros make it.
pub(crate) fn mention(name: &[u8]) -> bool {
    static NAMES: OnceLock<HashSet<Vec<u8>>> = OnceLock::new();
    NAMES.get_or_init(mentioned).contains(name)
}

fn mentioned() -> HashSet<Vec<u8>> {
    let mut names = HashSet::new();
    for (_, text) in FILES {
        if let Ok(lexed) = Lexed::new(text.as_bytes()) {
            let words = lexed.tokens.iter().enumerate().filter(|(_, token)| token.kind == Kind::Name);
            names.extend(words.map(|(index, _)| lexed.text(index).to_vec()));
        }
    }
    let include = |_: usize, name: &str, _: bool| {
        let name = name.trim_start_matches("../");
        let below = |folder: &str| FILES.iter().position(|(file, _)| *file == format!("{folder}{name}"));
        below("").or_else(|| below("cooperative_groups/"))
    };
    let mut all: Vec<&[u8]> = FILES.iter().map(|(_, text)| text.as_bytes()).collect();
    let top: String = FILES.iter().map(|(name, _)| format!("#include \"{name}\"\n")).collect();
    all.push(top.as_bytes());
    // The expansion begins with the first file: one that includes all others.
    let last = all.len() - 1;
    all.swap(0, last);
    let swapped = move |from: usize, name: &str, quoted: bool| include(from, name, quoted).map(|at| if at == 0 { last } else { at });
    let unit = Unit { files: all, include: Box::new(swapped), defines: vec![("WARPWAVE_WAVE_SIZE".to_owned(), "64".to_owned())] };
    if let Ok(expanded) = expand(&unit) {
        names.extend(expanded.names().map(<[u8]>::to_vec));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::mention;

    #[test]
    fn names_that_macros_make_are_known() {
        for name in ["__syncthreads", "__heq", "__hbgtu2", "__shfl_xor_sync", "__vsub4", "__launch_bounds__", "__cvta_generic_to_shared"] {
            assert_eq!(mention(name.as_bytes()), name != "__hbgtu2", "{name}");
        }
    }
}
