//! The diagnostics of kernel code, WW0300 to WW0399.

use crate::diagnostic::{Diagnostic, Severity};

/// A diagnostic's number with its title and its explanation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code {
    /// The number.
    pub code: u16,
    /// What it is about, in a few words.
    pub title: &'static str,
    /// Why it matters and what to do.
    pub explanation: &'static str,
}

/// PTX without a counterpart.
pub const UNKNOWN_PTX: u16 = 301;
/// Inline assembly that cannot be read.
pub const UNREADABLE_ASM: u16 = 302;
/// Another branch is compiled.
pub const OTHER_BRANCH: u16 = 303;
/// PTX with a nearest counterpart.
pub const NEAR_PTX: u16 = 304;
/// A call that nothing declares.
pub const UNKNOWN_INTRINSIC: u16 = 305;
/// A guard that HIP's compilers do not take.
pub const ARCH_GUARD: u16 = 306;
/// A kernel is missing from the compiled code.
pub const LOST_KERNEL: u16 = 310;

/// Every code of this module.
pub const CODES: &[Code] = &[
    Code {
        code: UNKNOWN_PTX,
        title: "inline PTX without a counterpart",
        explanation: "The assembly names a PTX instruction for which there is no translation. The statement is replaced by a call \
            that does not compile, so nothing is lost silently: code that never reaches it still compiles. Write the operation \
            in C++ for AMD, or put the assembly under `#if __CUDA_ARCH__ …` with an `#else` that does without it; the `#else` \
            is then compiled for AMD.",
    },
    Code {
        code: UNREADABLE_ASM,
        title: "inline assembly that cannot be read",
        explanation: "The text of the assembly is not made of string literals alone, or an operand is not of the form \
            \"constraint\"(expression). It is left as it is, and an AMD compiler will most likely refuse it.",
    },
    Code {
        code: OTHER_BRANCH,
        title: "a guard on __CUDA_ARCH__ is turned for AMD",
        explanation: "For AMD `__CUDA_ARCH__` counts as 900, so guarded code is compiled. The code under this guard holds an \
            instruction that AMD lacks, and the same conditional has another branch: that one is compiled instead.",
    },
    Code {
        code: NEAR_PTX,
        title: "inline PTX with a nearest counterpart",
        explanation: "The instruction is translated to the nearest that AMD has: its effect on memory and results is kept, its \
            timing or its hint is not, or a rounding mode is the one to nearest even.",
    },
    Code {
        code: UNKNOWN_INTRINSIC,
        title: "a device function that nothing declares",
        explanation: "The name has two underscores, as CUDA's intrinsics do; neither the headers for AMD nor the source and the files \
            it includes declare it. The compiler will not know it where it is used. Write it with what HIP has, or put the code \
            under `#ifndef __HIP_PLATFORM_AMD__` with another way for AMD. `warpwave hipify --header` supplies many that HIP lacks.",
    },
    Code {
        code: ARCH_GUARD,
        title: "a guard on __CUDA_ARCH__",
        explanation: "HIP's compilers do not define `__CUDA_ARCH__`, so what stands under this guard vanishes on AMD without a word, \
            kernels too. Add `|| defined(__HIP_DEVICE_COMPILE__)` where the code belongs. `warpwave hipify --header` turns the name \
            into a macro that counts as a recent architecture.",
    },
    Code {
        code: LOST_KERNEL,
        title: "a kernel of the source is not in the compiled code",
        explanation: "With `__CUDA_ARCH__` as 900 a CUDA compiler would have made this kernel; the code for AMD does not have it. \
            Most often it stands under a condition on another macro that only NVIDIA's compilers define.",
    },
];

/// The entry of a code.
pub fn find(code: u16) -> Option<&'static Code> {
    CODES.iter().find(|entry| entry.code == code)
}

pub(crate) fn other_branch(start: u32, end: u32, instruction: &str) -> Diagnostic {
    Diagnostic {
        code: OTHER_BRANCH,
        severity: Severity::Warning,
        start,
        end,
        message: format!("the code under this guard uses `{instruction}`, which AMD lacks: the other branch is compiled").into(),
        help: None,
    }
}

pub(crate) fn unknown_ptx(start: u32, end: u32, instruction: &str) -> Diagnostic {
    Diagnostic {
        code: UNKNOWN_PTX,
        severity: Severity::Error,
        start,
        end,
        message: format!("the PTX instruction `{instruction}` has no counterpart on AMD").into(),
        help: Some("write it in C++, or under `#if __CUDA_ARCH__ …` with an `#else` that does without it".into()),
    }
}

pub(crate) fn unreadable_asm(start: u32, end: u32, reason: &'static str) -> Diagnostic {
    Diagnostic {
        code: UNREADABLE_ASM,
        severity: Severity::Warning,
        start,
        end,
        message: format!("this inline assembly is left as it is: {reason}").into(),
        help: None,
    }
}

pub(crate) fn near_ptx(start: u32, end: u32, note: &str) -> Diagnostic {
    Diagnostic { code: NEAR_PTX, severity: Severity::Note, start, end, message: note.to_owned().into(), help: None }
}

pub(crate) fn unknown_intrinsic(start: u32, end: u32, name: &str, count: usize) -> Diagnostic {
    let times = if count > 1 { format!(", {count} times") } else { String::new() };
    Diagnostic {
        code: UNKNOWN_INTRINSIC,
        severity: Severity::Warning,
        start,
        end,
        message: format!("`{name}` is called in device code{times}; neither the headers for AMD nor this source declares it").into(),
        help: Some("write it with what HIP has, or keep it for NVIDIA behind `#ifndef __HIP_PLATFORM_AMD__`".into()),
    }
}

pub(crate) fn arch_guard(start: u32, end: u32) -> Diagnostic {
    Diagnostic {
        code: ARCH_GUARD,
        severity: Severity::Warning,
        start,
        end,
        message: "HIP does not define `__CUDA_ARCH__`: this condition counts it as 0, and what it guards may vanish".into(),
        help: Some("add `|| defined(__HIP_DEVICE_COMPILE__)` where the code belongs, or translate with `--header`".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_in_order_and_in_range() {
        assert!(CODES.windows(2).all(|pair| pair[0].code < pair[1].code));
        assert!(CODES.iter().all(|c| (300..400).contains(&c.code) && !c.title.is_empty() && !c.explanation.is_empty()));
        assert_eq!(find(LOST_KERNEL).map(|c| c.code), Some(310));
        assert_eq!(find(1), None);
    }
}
