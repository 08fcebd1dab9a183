//! Diagnostics of device code, WW0300 to WW0399.

use crate::diagnostic::{Diagnostic, Severity};

/// A diagnostic code with its title and explanation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code {
    /// The number.
    pub code: u16,
    /// The title, one line.
    pub title: &'static str,
    /// Why it matters and what to do.
    pub explanation: &'static str,
}

/// PTX without an AMD equivalent.
pub const UNKNOWN_PTX: u16 = 301;
/// Inline assembly that cannot be parsed.
pub const UNREADABLE_ASM: u16 = 302;
/// The alternative branch of a guard is compiled.
pub const OTHER_BRANCH: u16 = 303;
/// PTX with an approximate equivalent.
pub const NEAR_PTX: u16 = 304;
/// A call of an undeclared function.
pub const UNKNOWN_INTRINSIC: u16 = 305;
/// A guard that is false for HIP compilers.
pub const ARCH_GUARD: u16 = 306;
/// A kernel is missing from the compiled code.
pub const LOST_KERNEL: u16 = 310;

/// Every code of this module.
pub const CODES: &[Code] = &[
    Code {
        code: UNKNOWN_PTX,
        title: "inline PTX without an AMD equivalent",
        explanation: "The PTX instruction has no translation. With the compatibility header, the statement is replaced by a call that \
            causes a compile error if compiled code reaches it; otherwise it is left as is. Write the operation in C++ for AMD, or put the assembly \
            under `#if __CUDA_ARCH__ …` with an `#else` branch that does not need it: that branch is then compiled for AMD.",
    },
    Code {
        code: UNREADABLE_ASM,
        title: "inline assembly that cannot be parsed",
        explanation: "The assembly text is not a string literal, or an operand does not have the form \
            \"constraint\"(expression). It is left as is, and AMD compilers will probably reject it.",
    },
    Code {
        code: OTHER_BRANCH,
        title: "alternative branch of a __CUDA_ARCH__ guard selected",
        explanation: "On AMD, `__CUDA_ARCH__` evaluates to 900, so guarded code is compiled. This guarded code uses an instruction \
            without an AMD equivalent, so the other branch is compiled instead.",
    },
    Code {
        code: NEAR_PTX,
        title: "inline PTX with an approximate AMD equivalent",
        explanation: "The instruction is translated to the closest AMD equivalent. Its effect on memory is preserved, and so are \
            its results, except with rounding modes other than round-to-nearest-even. Timing and cache hints are not preserved.",
    },
    Code {
        code: UNKNOWN_INTRINSIC,
        title: "undeclared device function",
        explanation: "The name starts with two underscores, like a CUDA intrinsic, but it is not declared in the AMD headers, in this \
            file, or in any file it includes. The compiler will reject it. Implement it with HIP functions, or put the code under \
            `#ifndef __HIP_PLATFORM_AMD__` with an alternative for AMD. `--header` supplies many functions that HIP lacks.",
    },
    Code {
        code: ARCH_GUARD,
        title: "__CUDA_ARCH__ guard",
        explanation: "HIP compilers do not define `__CUDA_ARCH__`, so the code under this guard, kernels included, is silently left out \
            on AMD. Add `|| defined(__HIP_DEVICE_COMPILE__)` where the code is needed. With `--header`, the guard tests a macro that \
            evaluates to a recent architecture.",
    },
    Code {
        code: LOST_KERNEL,
        title: "kernel missing from the compiled code",
        explanation: "This kernel is compiled for CUDA when `__CUDA_ARCH__` is 900, but is missing from the AMD build. The usual cause is \
            a condition on another macro that only NVIDIA compilers define.",
    },
];

/// Returns the entry of a code.
pub fn find(code: u16) -> Option<&'static Code> {
    CODES.iter().find(|entry| entry.code == code)
}

pub(crate) fn other_branch(start: u32, end: u32, instruction: &str) -> Diagnostic {
    Diagnostic {
        code: OTHER_BRANCH,
        severity: Severity::Warning,
        start,
        end,
        message: format!(
            "code under this guard uses `{instruction}`, which has no AMD equivalent; on AMD the other branch of the guard is compiled"
        )
        .into(),
        help: None,
        remedy: None,
    }
}

pub(crate) fn unknown_ptx(start: u32, end: u32, instruction: &str) -> Diagnostic {
    Diagnostic {
        code: UNKNOWN_PTX,
        severity: Severity::Error,
        start,
        end,
        message: format!("PTX instruction `{instruction}` has no AMD equivalent").into(),
        help: Some("write it in C++, or put it under `#if __CUDA_ARCH__ …` with an `#else` branch for AMD".into()),
        remedy: None,
    }
}

pub(crate) fn unreadable_asm(start: u32, end: u32, reason: &'static str) -> Diagnostic {
    Diagnostic {
        code: UNREADABLE_ASM,
        severity: Severity::Warning,
        start,
        end,
        message: format!("inline assembly left as is: {reason}").into(),
        help: None,
        remedy: None,
    }
}

pub(crate) fn near_ptx(start: u32, end: u32, note: &str) -> Diagnostic {
    Diagnostic { code: NEAR_PTX, severity: Severity::Note, start, end, message: note.to_owned().into(), help: None, remedy: None }
}

pub(crate) fn unknown_intrinsic(start: u32, end: u32, name: &str, count: usize) -> Diagnostic {
    let times = if count > 1 { format!(", {count} times") } else { String::new() };
    Diagnostic {
        code: UNKNOWN_INTRINSIC,
        severity: Severity::Warning,
        start,
        end,
        message: format!("`{name}` is called in device code{times}, but it is not declared in the AMD headers or in this source").into(),
        help: Some("implement it with HIP functions, or guard it with `#ifndef __HIP_PLATFORM_AMD__`".into()),
        remedy: None,
    }
}

pub(crate) fn arch_guard(start: u32, end: u32) -> Diagnostic {
    Diagnostic {
        code: ARCH_GUARD,
        severity: Severity::Warning,
        start,
        end,
        message: "HIP does not define `__CUDA_ARCH__`; the guarded code may be left out on AMD".into(),
        help: Some("add `|| defined(__HIP_DEVICE_COMPILE__)` where the code is needed, or use `--header`".into()),
        remedy: None,
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
