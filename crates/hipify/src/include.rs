//! `#include` lines: CUDA's headers become HIP's, each once; the user's own stay.

use crate::lex::{Kind, Lexed};

/// A header that a source includes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Included {
    /// Its name, as written.
    pub name: String,
    /// Written in quotes, so looked for beside the source first.
    pub quoted: bool,
}

/// The headers that a source includes, in whichever branch of a condition.
pub fn included(source: &[u8]) -> Vec<Included> {
    let Ok(lexed) = Lexed::new(source) else { return Vec::new() };
    let directive = |index: &usize| {
        let word = index.checked_sub(1).map_or(&b""[..], |before| lexed.text(before));
        lexed.tokens[*index].in_directive && matches!(word, b"include" | b"include_next" | b"import")
    };
    let kind = |index: usize| lexed.tokens[index].kind;
    (0..lexed.tokens.len())
        .filter(|index| matches!(kind(*index), Kind::HeaderName | Kind::String) && directive(index))
        .filter_map(|index| {
            let text = lexed.text(index);
            let name = std::str::from_utf8(text.get(1..text.len() - 1)?).ok()?;
            Some(Included { name: name.to_owned(), quoted: kind(index) == Kind::String })
        })
        .collect()
}

/// What a header is to HIP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// A library's main header: once per file, further ones go.
    Main,
    /// The same for the second version of an interface.
    MainV2,
    /// Any other.
    Plain,
}

/// A header of CUDA.
#[derive(Debug)]
pub(crate) struct Include {
    pub cuda: &'static str,
    /// Empty where HIP needs none.
    pub hip: &'static str,
    pub roc: &'static str,
    pub role: Role,
    /// Headers of one group appear once; empty: not grouped.
    pub once: &'static str,
    pub once_roc: &'static str,
    pub family: u8,
    pub unsupported: bool,
}

/// Headers of CUDA that the compatibility header stands for.
pub(crate) const COMPATIBLE: &[&str] = &[
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

/// Which headers a file has had.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    groups: Vec<(&'static str, bool)>,
    blas_v2: bool,
}

impl Seen {
    /// Notes a header; whether its group had one already.
    fn again(&mut self, group: &'static str, v2: bool) -> bool {
        let known = self.groups.contains(&(group, v2));
        if !known {
            self.groups.push((group, v2));
        }
        known
    }

    /// HIP's own runtime header stands in the source, or will.
    pub fn note_runtime(&mut self) {
        self.again("runtime", false);
    }

    /// A header of the project brings `cublas_v2.h`.
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

    /// Whether this line goes, because what it brings is there already or not needed.
    pub fn drop(&mut self, include: &Include, roc: bool) -> bool {
        let group = if roc { include.once_roc } else { include.once };
        match include.role {
            Role::Plain if include.hip.is_empty() => true,
            _ if group.is_empty() => false,
            Role::Plain | Role::Main => self.again(group, false),
            Role::MainV2 => self.again(group, true) || self.groups.contains(&(group, false)),
        }
    }
}
