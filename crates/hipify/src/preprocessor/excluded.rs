//! The tokens a preprocessor skips, for the given macros and those the file defines.
//!
//! A condition on a CUDA version that was not given is undecided, and so is one that cannot be evaluated: both branches stay in. Every
//! other macro is undefined. Included files are not read.

use std::collections::HashMap;
use std::ops::Range;

use super::conditionals::holds;
use super::{ConditionStack, Definition, definition, directives, expression};
use crate::lex::Lexed;

/// Version macros of the CUDA headers; the version that builds the source is unknown.
const VERSIONS: &[&str] = &[
    "CUDA_VERSION",
    "CUDART_VERSION",
    "CUBLAS_VERSION",
    "CUBLAS_VER_MAJOR",
    "CUBLAS_VER_MINOR",
    "CUDNN_VERSION",
    "CUDNN_MAJOR",
    "CUDNN_MINOR",
    "CUFFT_VERSION",
    "CURAND_VERSION",
    "CUSOLVER_VERSION",
    "CUSPARSE_VERSION",
    "CUSPARSE_VER_MAJOR",
    "CUSPARSE_VER_MINOR",
    "__CUDACC_VER_MAJOR__",
    "__CUDACC_VER_MINOR__",
];

/// Whether a macro holds a CUDA version.
pub(crate) fn is_version_macro(name: &[u8]) -> bool {
    VERSIONS.iter().any(|version| version.as_bytes() == name)
}

/// Macros that the compiler itself defines.
const PREDEFINED: &[(&str, i64)] =
    &[("__CUDACC__", 1), ("__NVCC__", 1), ("__cplusplus", 201_703), ("__linux__", 1), ("__x86_64__", 1), ("__GNUC__", 4)];

/// Returns the ranges of skipped tokens, in order.
pub(crate) fn excluded(lexed: &Lexed<'_>, defines: &[(String, String)]) -> Vec<Range<usize>> {
    // `None` for a macro that is defined with an unknown value.
    let mut macros: HashMap<&[u8], Option<i64>> = PREDEFINED.iter().map(|(name, value)| (name.as_bytes(), Some(*value))).collect();
    macros.extend(VERSIONS.iter().map(|name| (name.as_bytes(), None)));
    for (name, value) in defines {
        macros.insert(name.as_bytes(), Some(expression::number(value.trim().as_bytes()).unwrap_or(1)));
    }
    let mut skipped: Vec<Range<usize>> = Vec::new();
    let mut stack = ConditionStack::default();
    for directive in directives(lexed) {
        let value = |name: &[u8]| macros.get(name).copied().unwrap_or(Some(0));
        let defined = |name: &[u8]| Some(macros.contains_key(name));
        match directive.keyword {
            b"define" if stack.active() => {
                let Some(Definition { name, parameters, body }) = definition(lexed, &directive) else { continue };
                let new = if parameters.is_some() { None } else { expression::evaluate(&expression::items(lexed, body), &value, &defined) };
                macros.insert(lexed.text(name), new);
            }
            b"undef" if stack.active() && !directive.body.is_empty() => {
                macros.remove(lexed.text(directive.body.start));
            }
            keyword => skipped.extend(stack.advance(&directive, || holds(lexed, keyword, directive.body.clone(), &value, &defined))),
        }
    }
    skipped.extend(stack.finish(lexed.tokens.len()));
    skipped.sort_by_key(|range| range.start);
    skipped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(source: &str) -> String {
        let lexed = Lexed::new(source.as_bytes()).unwrap();
        let out = excluded(&lexed, &[("GIVEN".into(), "3".into())]);
        let tokens = 0..lexed.tokens.len();
        let kept = tokens.filter(|i| !lexed.tokens[*i].in_directive && !out.iter().any(|range| range.contains(i)));
        kept.map(|i| String::from_utf8_lossy(lexed.text(i)).into_owned()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn branches_are_chosen_like_a_preprocessor_does() {
        assert_eq!(kept("#ifdef A\n1\n#else\n2\n#endif"), "2");
        assert_eq!(kept("#if GIVEN >= 3 && !defined(B)\n1\n#elif 1\n2\n#else\n3\n#endif\n4"), "1 4");
        assert_eq!(kept("#if 0\n#if 1\n1\n#endif\n2\n#else\n3\n#endif"), "3");
        assert_eq!(kept("#define X 2\n#if X == 2\n1\n#undef X\n#ifndef X\n2\n#endif\n#endif"), "1 2");
        assert_eq!(kept("#if !defined GIVEN || GIVEN > 3\n1\n#endif\n2"), "2");
        assert_eq!(kept("#if (1 ? 0 : 1) || (2 * 3 - 6)\n1\n#endif\n2"), "2");
        assert_eq!(kept("#else\n1\n#endif\n2\n#if 0\n3"), "1 2");
    }

    #[test]
    fn versions_that_were_not_given_leave_both_branches_in() {
        assert_eq!(kept("#if CUDA_VERSION < 11000\n1\n#elif CUDA_VERSION < 12000\n2\n#else\n3\n#endif"), "1 2 3");
        assert_eq!(kept("#if CUDA_VERSION < 11000 && defined(_WIN32)\n1\n#endif\n2"), "2");
        assert_eq!(kept("#if CUDA_VERSION < 11000 || 1\n1\n#else\n2\n#endif"), "1");
        assert_eq!(kept("#ifndef CUDA_VERSION\n1\n#endif\n2"), "2");
    }

    #[test]
    fn deep_conditions_end() {
        let source = format!("#if {}1{}\n1\n#endif\n2", "(".repeat(100_000), ")".repeat(100_000));
        assert_eq!(kept(&source), "1 2");
    }
}
