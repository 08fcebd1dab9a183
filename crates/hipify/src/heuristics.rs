//! Heuristics on tokens: what a compiler knows and a translator must infer.

use crate::lex::{Kind, Lexed};

/// Whether a name has a CUDA prefix: `cudaMalloc`, `cuMemAlloc`, `CU_…`, `cublasSgemm`, `__nv_…`.
pub(crate) fn looks_like_cuda(name: &[u8]) -> bool {
    let upper = |at: usize| name.get(at).is_some_and(u8::is_ascii_uppercase);
    let lower = |at: usize| name.get(at).is_some_and(u8::is_ascii_lowercase);
    const LIBRARIES: [&[u8]; 9] = [b"cuda", b"cublas", b"cufft", b"curand", b"cusparse", b"cusolver", b"cudnn", b"nvrtc", b"nvml"];
    const CONSTANTS: [&[u8]; 9] =
        [b"CU_", b"CUDNN_", b"CUBLAS_", b"CUBLASLT_", b"CUSPARSE_", b"CUFFT_", b"CURAND_", b"CUSOLVER_", b"NVRTC_"];
    match name {
        [b'_', b'_', rest @ ..] => rest.starts_with(b"nv_"),
        [b'c', b'u', ..] if upper(2) && lower(3) => true,
        [b'c' | b'n', ..] => LIBRARIES.iter().any(|library| name.starts_with(library) && upper(library.len())),
        _ => CONSTANTS.iter().any(|prefix| name.starts_with(prefix)),
    }
}

/// Whether `##` joins the CUDA name at `index` with another token: `cuda##name`, `cudaMemcpy##kind`.
pub(crate) fn pasted(lexed: &Lexed<'_>, index: usize) -> bool {
    lexed.tokens[index].in_directive && (lexed.is(index + 1, b"##") || index > 0 && lexed.is(index - 1, b"##"))
}

/// Whether a name is the prefix of an API family.
pub(crate) fn is_family_prefix(name: &[u8]) -> bool {
    const FRONTS: [&[u8]; 12] =
        [b"cuda", b"cu", b"cublas", b"cufft", b"curand", b"cusparse", b"cusolver", b"cudnn", b"nvrtc", b"CU_", b"CUBLAS_", b"CUDNN_"];
    FRONTS.contains(&name)
}

/// Whether the name at `index` is declared there or is a member: a macro's name, a name after a type, `x.name` (the CUDA APIs are C).
pub(crate) fn declares(lexed: &Lexed<'_>, index: usize) -> bool {
    let Some(before) = index.checked_sub(1) else { return false };
    if lexed.tokens[before].in_directive != lexed.tokens[index].in_directive {
        return false;
    }
    let text = lexed.text(before);
    match lexed.tokens[before].kind {
        Kind::Name => {
            let keyword: &[&[u8]] =
                &[b"return", b"else", b"case", b"do", b"throw", b"sizeof", b"new", b"const", b"static", b"extern", b"inline", b"typename"];
            let directive: &[&[u8]] = &[b"ifdef", b"ifndef", b"if", b"elif", b"undef", b"defined"];
            !(keyword.contains(&text) || lexed.tokens[index].in_directive && directive.contains(&text))
        }
        Kind::Punct if matches!(text, b"." | b"->") => true,
        // `int cudaOne, cudaTwo;`
        Kind::Punct if text == b"," => {
            let mut first = index;
            while first >= 3 && index - first < 64 && lexed.is(first - 1, b",") && lexed.tokens[first - 2].kind == Kind::Name {
                first -= 2;
            }
            first != index && lexed.tokens[first - 1].kind == Kind::Name && !lexed.is(first - 1, b"return")
        }
        // `int *cudaThing = …`, `T &cudaThing(`; but `a * cudaThing` is a use.
        Kind::Punct if matches!(text, b"*" | b"&" | b">") => {
            let type_before = before > 0 && lexed.tokens[before - 1].kind == Kind::Name;
            type_before
                && matches!(lexed.text(index + 1), b"=" | b";" | b"(" | b"," | b")")
                && lexed.tokens[before].end == lexed.tokens[index].start
        }
        _ => false,
    }
}

/// Whether the name at `index` is called as a free function.
pub(crate) fn calls(lexed: &Lexed<'_>, index: usize) -> bool {
    lexed.is(index + 1, b"(")
        && index.checked_sub(1).is_none_or(|before| !matches!(lexed.text(before), b"." | b"->" | b"::"))
        && !declares(lexed, index)
}

/// Whether a header is part of the CUDA toolkit.
pub(crate) fn is_toolkit_header(name: &[u8], angled: bool) -> bool {
    const HEADERS: [&[u8]; 12] = [
        b"cuda_bf16.h",
        b"cuda_fp8.h",
        b"cuda_fp6.h",
        b"cuda_fp4.h",
        b"cuda_pipeline.h",
        b"cuda_awbarrier.h",
        b"cuda_occupancy.h",
        b"cudaProfiler.h",
        b"mma.h",
        b"nvml.h",
        b"nvToolsExt.h",
        b"helper_cuda.h",
    ];
    const FOLDERS: [&[u8]; 5] = [b"cuda/", b"cub/", b"nvtx3/", b"cooperative_groups/", b"cutlass/"];
    HEADERS.contains(&name) || angled && FOLDERS.iter().any(|folder| name.starts_with(folder))
}

/// Whether a file includes HIP's runtime header, even in a skipped block: a second translation must not add it again.
pub(crate) fn includes_runtime(lexed: &Lexed<'_>) -> bool {
    includes(lexed, "hip/hip_runtime.h")
}

/// Whether a file includes a header of this name.
pub(crate) fn includes(lexed: &Lexed<'_>, name: &str) -> bool {
    (0..lexed.tokens.len())
        .filter(|index| matches!(lexed.tokens[*index].kind, Kind::HeaderName | Kind::String) && lexed.tokens[*index].in_directive)
        .any(|index| matches!(lexed.text(index), [b'<' | b'"', inner @ .., b'>' | b'"'] if inner == name.as_bytes()))
}

/// Whether the token at `index` is part of an `#if` or `#elif` condition.
pub(crate) fn in_condition(lexed: &Lexed<'_>, index: usize) -> bool {
    let hash = (index.saturating_sub(64)..index).rev().find(|at| lexed.tokens[*at].kind == Kind::Hash);
    hash.is_some_and(|hash| matches!(lexed.text(hash + 1), b"if" | b"elif"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuda_like_names_are_recognized() {
        for name in ["cudaNewThing", "cuMemNew", "CU_NEW", "cublasNew", "__nv_new", "nvrtcNew", "CUDNN_NEW"] {
            assert!(looks_like_cuda(name.as_bytes()), "{name}");
        }
        for name in ["current", "cube", "custom", "cudalike", "CUDA_CHECK", "nvidia", "__syncthreads", "cublas", "curandom", "c", "cu"] {
            assert!(!looks_like_cuda(name.as_bytes()), "{name}");
        }
    }
}
