//! `#include` lines: CUDA headers become HIP headers, each once; the project's own stay.

use crate::lex::{Kind, Lexed};
use crate::preprocessor::{Directive, directives};

/// An `#include` of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Included {
    /// The name, as written.
    pub name: String,
    /// Whether it is in quotes, so that the file's own folder is searched first.
    pub quoted: bool,
    /// The offset of the name's opening quote or bracket in the source.
    pub offset: u32,
}

/// Returns the includes of a source, in all branches of its conditionals. Macros as names and unclosed names are skipped.
pub fn included(source: &[u8]) -> Vec<Included> {
    let Ok(lexed) = Lexed::new(source) else { return Vec::new() };
    let read = |directive: Directive<'_>| {
        let token = lexed.tokens[directive.body.clone()].first()?;
        let name = match lexed.text(directive.body.start) {
            [b'"', name @ .., b'"'] | [b'<', name @ .., b'>'] if !name.is_empty() => name,
            _ => return None,
        };
        let is_include = matches!(directive.keyword, b"include" | b"include_next" | b"import");
        let name = std::str::from_utf8(name).ok().filter(|_| is_include)?.to_owned();
        Some(Included { name, quoted: token.kind == Kind::String, offset: token.start })
    };
    directives(&lexed).filter_map(read).collect()
}

/// The include guards of CUDA's headers, which sources test to see what was included before them, and those of HIP's.
const GUARDS: &[(&str, &str)] = &[
    ("CUBLAS_API_H_", "HIPBLAS_H"),
    ("CUBLAS_V2_H_", "HIPBLAS_H"),
    ("CURAND_H_", "HIPRAND_H_"),
    ("CUSOLVER_COMMON_H_", "HIPSOLVER_H"),
    ("CUSPARSE_H_", "HIPSPARSE_H"),
    ("_CUFFT_H_", "HIPFFT_H_"),
    ("__CUDA_RUNTIME_API_H__", "HIP_INCLUDE_HIP_HIP_RUNTIME_API_H"),
    ("__CUDA_RUNTIME_H__", "HIP_INCLUDE_HIP_HIP_RUNTIME_H"),
    ("__DRIVER_TYPES_H__", "HIP_INCLUDE_HIP_DRIVER_TYPES_H"),
    ("__cuda_cuda_h__", "HIP_INCLUDE_HIP_HIP_RUNTIME_API_H"),
];

/// The include guard of the HIP header for a CUDA header's guard. `None` for other names, and where the file defines the name itself.
pub(crate) fn hip_guard(lexed: &Lexed<'_>, index: usize) -> Option<&'static str> {
    let name = lexed.text(index);
    let (_, hip) = GUARDS.iter().find(|(cuda, _)| cuda.as_bytes() == name).filter(|_| lexed.tokens[index].in_directive)?;
    let own = |directive: Directive<'_>| directive.keyword == b"define" && lexed.is(directive.body.start, name);
    (!directives(lexed).any(own)).then_some(*hip)
}

/// Whether this is the name of a CUDA header that the tables list.
pub fn is_cuda_header(name: &str) -> bool {
    crate::names::include(name.as_bytes()).is_some()
}

/// The role of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// A library's main header: kept once per file.
    Main,
    /// The main header of an interface's second version.
    MainV2,
    /// Any other header.
    Plain,
}

/// A CUDA header.
#[derive(Debug)]
pub(crate) struct Include {
    pub cuda: &'static str,
    /// Empty if HIP does not need it, or only HIP 7 has it.
    pub hip: &'static str,
    /// The name in HIP 7; empty if it is the same.
    pub hip_7: &'static str,
    pub roc: &'static str,
    pub role: Role,
    /// Headers of one group appear once; empty: not grouped.
    pub once: &'static str,
    pub once_roc: &'static str,
    pub family: u8,
    pub unsupported: bool,
}

impl Include {
    /// Whether only HIP 7 has such a header.
    pub fn is_new_in_7(&self) -> bool {
        self.hip.is_empty() && !self.hip_7.is_empty()
    }
}

/// CUDA headers that the compatibility header replaces.
pub(crate) const REPLACED_BY_COMPATIBILITY: &[&str] = &[
    "cooperative_groups.h",
    "cooperative_groups/reduce.h",
    "cooperative_groups/scan.h",
    "cuda/std/array",
    "cuda/std/complex",
    "cuda/std/limits",
    "cuda/std/type_traits",
    "cuda/std/utility",
    "cuda_bf16.h",
    "cuda_fp8.h",
    "mma.h",
];

/// Headers of [`REPLACED_BY_COMPATIBILITY`] that HIP has as well, with types of other names.
pub(crate) const TYPE_HEADERS: [&str; 2] = ["cuda_bf16.h", "cuda_fp8.h"];

/// The headers seen so far in a file.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    groups: Vec<(&'static str, bool)>,
    blas_v2: bool,
}

impl Seen {
    /// Adds a header. Returns whether its group had one already.
    fn again(&mut self, group: &'static str, v2: bool) -> bool {
        let known = self.groups.contains(&(group, v2));
        if !known {
            self.groups.push((group, v2));
        }
        known
    }

    /// Adds HIP's runtime header.
    pub fn note_runtime(&mut self) {
        self.again("runtime", false);
    }

    /// Records that a header of the project includes `cublas_v2.h`.
    pub fn note_blas_v2(&mut self) {
        self.blas_v2 = true;
    }

    pub fn has_runtime(&self) -> bool {
        self.groups.contains(&("runtime", false))
    }

    /// Whether the file includes `cublas_v2.h`.
    pub fn has_blas_v2(&self) -> bool {
        self.blas_v2 || self.groups.contains(&("blas", true))
    }

    /// Whether to remove this line, because the header is not needed or included already.
    pub fn drop(&mut self, include: &Include, roc: bool) -> bool {
        let group = if roc { include.once_roc } else { include.once };
        match include.role {
            Role::Plain if include.hip.is_empty() && include.hip_7.is_empty() => true,
            _ if group.is_empty() => false,
            Role::Plain | Role::Main => self.again(group, false),
            Role::MainV2 => self.again(group, true) || self.groups.contains(&(group, false)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_complete_include_lines_count() {
        let text = "#include\n#include \"\n#include \"x\n#include MACRO\nint include;\n// #include <c.h>\n#  include <y.h> // why\n#define X \"z\"\n";
        let found: Vec<_> = included(text.as_bytes()).into_iter().map(|include| (include.name, include.quoted)).collect();
        assert_eq!(found, [("y.h".to_owned(), false)]);
    }
}
