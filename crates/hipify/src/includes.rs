//! `#include` lines: CUDA's headers become HIP's, each once; the user's own stay.

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

    pub fn has_runtime(&self) -> bool {
        self.groups.contains(&("runtime", false))
    }

    /// Whether the file includes `cublas_v2.h`.
    pub fn has_blas_v2(&self) -> bool {
        self.groups.contains(&("blas", true))
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
