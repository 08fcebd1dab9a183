//! The translator's diagnostics, 0100 to 0199: what each number means, for messages and help pages.

use crate::diagnostic::Severity;

/// A kind of diagnostic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code {
    /// Its number.
    pub number: u16,
    /// How much it matters.
    pub severity: Severity,
    /// One line.
    pub title: &'static str,
    /// What happened, why, and what to do.
    pub explanation: &'static str,
}

macro_rules! codes {
    ($($name:ident = $number:literal $severity:ident $title:literal $explanation:literal)*) => {
        $(#[doc = $title] pub const $name: Code = Code {
            number: $number, severity: Severity::$severity, title: $title, explanation: $explanation,
        };)*
        /// All of them, by number.
        pub const ALL: &[Code] = &[$($name),*];

        /// The code of a number.
        pub fn find(number: u16) -> Option<&'static Code> {
            ALL.iter().find(|code| code.number == number)
        }
    };
}

pub(crate) use codes;

codes! {
    UNKNOWN = 100 Warning "A name that looks like CUDA's and is in no table"
        "The name begins like one of CUDA's, this file does not declare it, and no table knows it. It was left as it is. If it is your \
         own, nothing is wrong; if it is newer than the tables, look for its HIP counterpart and rename it by hand."
    UNSUPPORTED = 101 Error "HIP has nothing for this name"
        "The name belongs to a part of CUDA that has no counterpart in the chosen target. It was left as it is and will not compile. \
         Put it behind a check for the platform, or use what the message suggests."
    EXPERIMENTAL = 102 Warning "The counterpart is experimental"
        "HIP or the ROCm library has it, but its makers may still change or withdraw it, so it was left as it is. Allow it with \
         `--experimental`."
    BLAS_V1 = 103 Warning "The first cuBLAS interface"
        "Only the second interface (with a handle) has a counterpart. Without `cublas_v2.h` this name means the first one, so it was \
         left as it is. Move to `cublas_v2.h`."
    UNSUPPORTED_HEADER = 104 Warning "A header without a counterpart"
        "The header was left as it is. Include it only on NVIDIA, or supply a header of the same name."
    CUDA_DEPRECATED = 105 Note "Deprecated in CUDA"
        "It was translated; CUDA itself advises against it, and later versions drop it."
    CUDA_REMOVED = 106 Note "Removed from CUDA"
        "It was translated; present versions of CUDA no longer have it, so the source no longer builds there."
    HIP_DEPRECATED = 107 Note "Its counterpart is deprecated"
        "It was translated, and works; HIP or the ROCm library will drop it some day."
    HIP_REMOVED = 108 Warning "Its counterpart was removed"
        "It was translated; present versions of HIP or the ROCm library no longer have it."
    LAUNCH = 109 Warning "A launch that could not be read"
        "`<<<` stands here, but not a kernel, two to four values and an argument list as far as tokens tell (a macro may make a part \
         of it). It was kept; HIP's compilers read `<<<…>>>` too."
    ARGUMENTS = 110 Warning "Arguments that must change and could not be read"
        "The HIP function takes other arguments. This is no call with a plain list (its address is taken, or a macro makes the \
         list), so only the name was changed. Adapt the arguments by hand."
    DROPPED_ARGUMENT = 111 Warning "An argument that HIP does not take"
        "The argument was removed. If it was more than a default, the call now does something else."
    UNKNOWN_HEADER = 112 Warning "A header of CUDA that is in no table"
        "The header is part of CUDA's toolkit; no table knows a counterpart. It was left as it is."
    DEVICE_FUNCTION = 113 Warning "A device function that HIP does not have"
        "It was left as it is. The compatibility headers may supply it; where they do not, write it with what HIP has."
    HALF2_MEMBER = 114 Note "A member of `half2`"
        "HIP's `half2` holds plain 16-bit integers in `x` and `y`, CUDA's holds `half`. The member is now read as `half`."
    TOO_LARGE = 115 Error "The source is too large"
        "Sources are smaller than 2 GiB. It was left as it is."
    VERSION_CHECK = 116 Warning "A check for a version of CUDA"
        "HIP does not define the macro, so the condition counts it as 0: code for later versions of CUDA vanishes on AMD without a \
         word. Add `|| defined(__HIP_PLATFORM_AMD__)` where the block belongs, or give the macro a value."
    PASTED = 117 Warning "A name of CUDA's that `##` makes"
        "A macro puts the name together from parts, so it cannot be looked up. The parts that are names themselves were translated. \
         Write the whole names, or check what the macro makes of them."
    PORTED = 118 Note "A conditional with a branch for HIP"
        "The conditional asks for a macro of HIP's, so someone has ported this place already. All of its branches were left as they \
         are: one is for AMD, the other for NVIDIA. If the macro is one that the project defines for itself, define it for AMD."
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_in_order_and_in_their_range() {
        assert!(ALL.windows(2).all(|pair| pair[0].number < pair[1].number));
        assert!(ALL.iter().all(|code| (100..200).contains(&code.number) && !code.title.is_empty() && code.explanation.len() > 40));
        assert_eq!(find(101), Some(&UNSUPPORTED));
        assert_eq!(find(42), None);
    }
}
