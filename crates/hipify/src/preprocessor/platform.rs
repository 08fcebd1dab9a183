//! Code that was ported before: conditionals with a HIP branch beside the CUDA one, and whole HIP files.
//!
//! A conditional on a HIP macro (`#ifdef __HIP_PLATFORM_AMD__`, `#if defined(USE_HIP)`) was ported by hand. None of its branches is
//! translated: the HIP one is right already, and the other is for NVIDIA.

use std::ops::Range;

use super::conditionals;
use crate::lex::{Kind, Lexed};
use crate::options::{Options, RuntimeHeader};
use crate::translate::translate_lexed;

/// Macros that HIP's compilers and headers define for AMD.
const DEFINED_FOR_AMD: &[&[u8]] = &[
    b"__HIP__",
    b"__HIPCC__",
    b"__HIP_PLATFORM_AMD__",
    b"__HIP_PLATFORM_HCC__",
    b"__HIP_DEVICE_COMPILE__",
    b"__HCC__",
    b"__AMDGCN__",
    b"HIP_VERSION",
    b"HIP_VERSION_MAJOR",
];

/// Macros that HIP's headers define for NVIDIA.
const DEFINED_FOR_NVIDIA: &[&[u8]] = &[b"__HIP_PLATFORM_NVIDIA__", b"__HIP_PLATFORM_NVCC__"];

/// Macros that projects define in their build for AMD.
const BUILD_MACROS: &[&[u8]] = &[
    b"USE_HIP",
    b"USE_ROCM",
    b"WITH_HIP",
    b"ENABLE_HIP",
    b"HAVE_HIP",
    b"USE_AMD",
    b"TORCH_HIP_VERSION",
    b"GGML_USE_HIP",
    b"GGML_USE_HIPBLAS",
];

/// A branch of a conditional that chooses between CUDA and HIP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlatformBranch {
    /// Its tokens.
    pub tokens: Range<usize>,
    /// Whether an AMD compiler reads it, as far as the conditions decide it.
    pub for_amd: bool,
    /// The `#` of the conditional's first directive.
    pub conditional: usize,
    /// The token of the macro that the build must define for AMD; `None` if the compiler defines it.
    pub build_macro: Option<usize>,
}

/// The side a condition selects: `Some(true)` for AMD, `Some(false)` for NVIDIA, `None` if it mentions other macros too.
fn side(lexed: &Lexed<'_>, keyword: &[u8], body: Range<usize>, build_macro: &mut Option<usize>) -> Option<bool> {
    let mut sides = Vec::new();
    let mut not = keyword == b"ifndef" || keyword == b"elifndef";
    let starts_negated = not;
    for index in body {
        let text = lexed.text(index);
        match lexed.tokens[index].kind {
            Kind::Name if text == b"defined" => {}
            Kind::Name => {
                let amd = if DEFINED_FOR_AMD.contains(&text) {
                    true
                } else if BUILD_MACROS.contains(&text) {
                    build_macro.get_or_insert(index);
                    true
                } else if DEFINED_FOR_NVIDIA.contains(&text) {
                    false
                } else {
                    return None;
                };
                sides.push(amd != not);
                not = starts_negated;
            }
            Kind::Punct if text == b"!" => not = !not,
            Kind::Punct if matches!(text, b"(" | b")" | b"||" | b"&&" | b">" | b"=" | b"==") => {}
            Kind::Number => {}
            _ => return None,
        }
    }
    let first = *sides.first()?;
    sides.iter().all(|side| *side == first).then_some(first)
}

/// Returns the branches of conditionals that have a HIP side, the outermost ones, in order. Unclosed conditionals are ignored.
pub fn branches(lexed: &Lexed<'_>) -> Vec<PlatformBranch> {
    let mut found: Vec<PlatformBranch> = Vec::new();
    for conditional in conditionals(lexed).iter().filter(|conditional| conditional.endif.is_some()) {
        let mut build_macro = None;
        let mut sides: Vec<Option<bool>> = Vec::with_capacity(conditional.branches.len());
        for branch in &conditional.branches {
            let side = if branch.is_else {
                // What the branches before leave over.
                sides.iter().find_map(|side| *side).map(|side| !side)
            } else {
                let mut name = None;
                let side = side(lexed, branch.keyword(lexed), branch.condition(), &mut name);
                build_macro = build_macro.or(name.filter(|_| side.is_some()));
                side
            };
            sides.push(side);
        }
        if sides.iter().all(Option::is_none) {
            continue;
        }
        let hash = conditional.branches[0].directive.start;
        // This conditional covers those inside.
        while found.last().is_some_and(|branch| branch.tokens.start > hash) {
            found.pop();
        }
        let has_amd_branch = sides.contains(&Some(true));
        for (branch, side) in conditional.branches.iter().zip(sides) {
            // `#if defined(USE_CUDA) … #elif defined(USE_HIP)`: the branch on another macro is CUDA's.
            let for_amd = side.unwrap_or(!has_amd_branch);
            found.push(PlatformBranch { tokens: branch.body.clone(), for_amd, conditional: hash, build_macro });
        }
    }
    found
}

/// Whether a source uses HIP.
fn mentions_hip(lexed: &Lexed<'_>) -> bool {
    const HEADERS: [&[u8]; 6] = [b"hip/", b"hipblas", b"hipfft", b"hiprand", b"hipcub", b"rocprim/"];
    let upper = |text: &[u8], at: usize| text.get(at).is_some_and(u8::is_ascii_uppercase);
    (0..lexed.tokens.len()).any(|index| {
        let text = lexed.text(index);
        match lexed.tokens[index].kind {
            Kind::Name => {
                text.starts_with(b"hip") && upper(text, 3)
                    || text.starts_with(b"__HIP")
                    || [&b"hipblas"[..], b"rocblas_", b"hipfft", b"hiprand", b"hipsparse", b"miopen"]
                        .iter()
                        .any(|front| text.starts_with(front) && text.len() > front.len())
            }
            Kind::HeaderName => HEADERS.iter().any(|header| text[1..].starts_with(header)),
            Kind::String if lexed.tokens[index].in_directive => HEADERS.iter().any(|header| text[1..].starts_with(header)),
            _ => false,
        }
    })
}

/// Whether a source is HIP already: it uses HIP and, outside of ported branches, nothing of CUDA.
///
/// ```
/// use warpwave_hipify::{Options, already_hip};
/// assert!(already_hip(b"#include <hip/hip_runtime.h>\nvoid f(void *p) { hipFree(p); }\n", &Options::default()));
/// assert!(!already_hip(b"#include <hip/hip_runtime.h>\nvoid f(void *p) { cudaFree(p); }\n", &Options::default()));
/// assert!(!already_hip(b"int main() {}\n", &Options::default()));
/// ```
pub fn already_hip(source: &[u8], options: &Options) -> bool {
    let mentioned = source.windows(3).any(|three| three.eq_ignore_ascii_case(b"hip") || three == b"roc");
    mentioned && Lexed::new(source).is_ok_and(|lexed| is_hip(&lexed, options))
}

/// The same for a lexed source.
pub(crate) fn is_hip(lexed: &Lexed<'_>, options: &Options) -> bool {
    if !mentions_hip(lexed) {
        return false;
    }
    // Both launch syntaxes are HIP, and includes of renamed files may change.
    let options = Options {
        keep_ported: true,
        runtime_header: RuntimeHeader::Never,
        launch: crate::options::LaunchSyntax::Kept,
        local_includes: options.local_includes.iter().map(|(name, _)| (name.clone(), name.clone())).collect(),
        ..options.clone()
    };
    let translation = translate_lexed(lexed, &options);
    translation.output == lexed.source && translation.stats.untranslated_references() == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sides(source: &str) -> Vec<(String, bool)> {
        let lexed = Lexed::new(source.as_bytes()).unwrap();
        let text =
            |range: &Range<usize>| range.clone().map(|i| String::from_utf8_lossy(lexed.text(i)).into_owned()).collect::<Vec<_>>().join(" ");
        branches(&lexed).iter().map(|branch| (text(&branch.tokens), branch.for_amd)).collect()
    }

    #[test]
    fn branches_on_macros_of_hip_are_told_from_others() {
        let pair = |a: &str, b: bool, c: &str, d: bool| vec![(a.to_owned(), b), (c.to_owned(), d)];
        assert_eq!(sides("#ifdef __HIP_PLATFORM_AMD__\na\n#else\nb\n#endif\nc"), pair("a", true, "b", false));
        assert_eq!(sides("#ifndef USE_HIP\na\n#else\nb\n#endif"), pair("a", false, "b", true));
        assert_eq!(sides("#if !defined(USE_ROCM) && !defined(__HIPCC__)\na\n#endif"), [("a".to_owned(), false)]);
        assert_eq!(sides("#if defined(USE_CUDA)\na\n#elif defined(USE_HIP)\nb\n#endif"), pair("a", false, "b", true));
        assert_eq!(sides("#ifdef __HIP_PLATFORM_NVIDIA__\na\n#else\nb\n#endif"), pair("a", false, "b", true));
        assert_eq!(sides("#if defined(__CUDACC__) || defined(__HIPCC__)\na\n#endif"), [], "code for both");
        assert_eq!(sides("#if MINE\na\n#else\nb\n#endif\n#ifdef USE_HIP\nnever ends"), []);
        assert_eq!(sides("#ifdef USE_HIP\n#ifdef __HIP__\na\n#endif\nb\n#endif").len(), 1, "the outer one covers the inner");
    }

    #[test]
    fn hip_without_its_runtime_header_is_hip() {
        assert!(already_hip(
            b"#pragma once\nvoid f(hipStream_t s);\n__global__ void k(int *x) { k<<<1, 2, 0, s>>>(x); }\n",
            &Options::default()
        ));
        let both = b"#ifdef __HIP_PLATFORM_AMD__\n#include <hip/hip_runtime.h>\n#else\n#include <cuda.h>\n#endif\nhipStream_t s;\n";
        assert!(already_hip(both, &Options::default()));
        assert!(!already_hip(b"hipStream_t s; cudaNewThing();\n", &Options::default()));
    }
}
