//! What is HIP already: conditionals that keep a branch for HIP beside CUDA's, and whole files.
//!
//! A conditional with a branch on a macro of HIP's (`#ifdef __HIP_PLATFORM_AMD__`, `#if defined(USE_HIP)`) was ported by hand. All of its
//! branches are left alone: the one for HIP is right as it is, and the other is there for NVIDIA.

use std::ops::Range;

use crate::lex::{Kind, Lexed};
use crate::options::{Options, RuntimeHeader};
use crate::translate::translate;

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

/// Macros that stand for NVIDIA in HIP's world.
const DEFINED_FOR_NVIDIA: &[&[u8]] = &[b"__HIP_PLATFORM_NVIDIA__", b"__HIP_PLATFORM_NVCC__"];

/// Macros that projects define for themselves.
const CHOSEN: &[&[u8]] = &[
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

/// A branch of a conditional that was ported by hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Branch {
    /// Its tokens.
    pub tokens: Range<usize>,
    /// An AMD compiler reads it, as far as the conditions tell.
    pub for_amd: bool,
    /// The `#` of the conditional's first directive.
    pub conditional: usize,
    /// The macro that must be defined by the build; `None` where the compiler defines it.
    pub chosen: Option<Range<usize>>,
}

struct Open {
    hash: usize,
    from: usize,
    /// What the present branch's condition says of AMD.
    side: Option<bool>,
    branches: Vec<(Range<usize>, Option<bool>)>,
    chosen: Option<Range<usize>>,
}

/// What a condition says of AMD: `Some(true)` for it, `Some(false)` for others, `None` where it speaks of something else too.
fn side(lexed: &Lexed<'_>, word: &[u8], body: Range<usize>, chosen: &mut Option<Range<usize>>) -> Option<bool> {
    let mut sides = Vec::new();
    let mut not = word == b"ifndef" || word == b"elifndef";
    let starts_negated = not;
    for index in body {
        let text = lexed.text(index);
        match lexed.tokens[index].kind {
            Kind::Name if text == b"defined" => {}
            Kind::Name => {
                let amd = if DEFINED_FOR_AMD.contains(&text) {
                    true
                } else if CHOSEN.contains(&text) {
                    chosen.get_or_insert(index..index + 1);
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

/// The branches that were ported by hand, the outermost ones, in order.
pub fn branches(lexed: &Lexed<'_>) -> Vec<Branch> {
    let count = lexed.tokens.len();
    let mut found: Vec<Branch> = Vec::new();
    let mut stack: Vec<Open> = Vec::new();
    let mut index = 0;
    while index < count {
        if lexed.tokens[index].kind != Kind::Hash {
            index += 1;
            continue;
        }
        let hash = index;
        let mut end = hash + 1;
        while end < count && lexed.tokens[end].in_directive && lexed.tokens[end].kind != Kind::Hash {
            end += 1;
        }
        index = end;
        let body = (hash + 2).min(end)..end;
        match lexed.text(hash + 1) {
            word @ (b"if" | b"ifdef" | b"ifndef") => {
                let mut chosen = None;
                let side = side(lexed, word, body, &mut chosen);
                stack.push(Open { hash, from: end, side, branches: Vec::new(), chosen: chosen.filter(|_| side.is_some()) });
            }
            word @ (b"elif" | b"elifdef" | b"elifndef" | b"else") => {
                let Some(open) = stack.last_mut() else { continue };
                open.branches.push((open.from..hash, open.side));
                open.side = if word == b"else" {
                    // What is left when the branches before had their say.
                    let before = open.branches.iter().find_map(|(_, side)| *side);
                    before.map(|side| !side)
                } else {
                    let mut chosen = None;
                    let side = side(lexed, word, body, &mut chosen);
                    if side.is_some() && open.chosen.is_none() {
                        open.chosen = chosen;
                    }
                    side
                };
                open.from = end;
            }
            b"endif" => {
                if let Some(open) = stack.pop() {
                    close(open, hash, &mut found);
                }
            }
            _ => {}
        }
    }
    // A conditional that never ends cannot be trusted to be one.
    found
}

fn close(mut open: Open, hash: usize, found: &mut Vec<Branch>) {
    open.branches.push((open.from..hash, open.side));
    if open.branches.iter().all(|(_, side)| side.is_none()) {
        return;
    }
    // The outer one covers those inside.
    while found.last().is_some_and(|branch| branch.tokens.start > open.hash) {
        found.pop();
    }
    let amd_has_a_branch = open.branches.iter().any(|(_, side)| *side == Some(true));
    for (tokens, side) in open.branches {
        // `#if defined(USE_CUDA) … #elif defined(USE_HIP)`: the one that speaks of something else is CUDA's.
        let for_amd = side.unwrap_or(!amd_has_a_branch);
        found.push(Branch { tokens, for_amd, conditional: open.hash, chosen: open.chosen.clone() });
    }
}

/// Whether a source has something of HIP's in it.
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

/// Whether a source is HIP already: it has something of HIP's and nothing of CUDA's, but for branches that were ported by hand.
///
/// ```
/// use warpwave_hipify::{Options, already_hip};
/// assert!(already_hip(b"#include <hip/hip_runtime.h>\nvoid f(void *p) { hipFree(p); }\n", &Options::default()));
/// assert!(!already_hip(b"#include <hip/hip_runtime.h>\nvoid f(void *p) { cudaFree(p); }\n", &Options::default()));
/// assert!(!already_hip(b"int main() {}\n", &Options::default()));
/// ```
pub fn already_hip(source: &[u8], options: &Options) -> bool {
    if !source.windows(3).any(|three| three.eq_ignore_ascii_case(b"hip")) && !source.windows(3).any(|three| three == b"roc") {
        return false;
    }
    let Ok(lexed) = Lexed::new(source) else { return false };
    if !mentions_hip(&lexed) {
        return false;
    }
    // The launch syntax is a choice among two that are both HIP, and includes of other files may have to follow a new name.
    let options = Options {
        keep_ported: true,
        runtime_header: RuntimeHeader::Never,
        launch: crate::options::LaunchSyntax::Kept,
        local_includes: options.local_includes.iter().map(|(name, _)| (name.clone(), name.clone())).collect(),
        ..options.clone()
    };
    let translation = translate(source, &options);
    translation.output == source && translation.stats.untranslated_references() == 0
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
