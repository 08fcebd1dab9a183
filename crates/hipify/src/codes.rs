//! Diagnostics of the name translation, WW0100 to WW0199.

use crate::diagnostic::Severity;

/// A diagnostic code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code {
    /// The number, such as 107 for WW0107.
    pub number: u16,
    /// The severity.
    pub severity: Severity,
    /// The title, one line.
    pub title: &'static str,
    /// What happened, why, and what to do.
    pub explanation: &'static str,
}

macro_rules! codes {
    ($($name:ident = $number:literal $severity:ident $title:literal $explanation:literal)*) => {
        $(#[doc = $title] pub const $name: Code = Code {
            number: $number, severity: Severity::$severity, title: $title, explanation: $explanation,
        };)*
        /// All codes, by number.
        pub const ALL: &[Code] = &[$($name),*];

        /// Returns the code with this number.
        pub fn find(number: u16) -> Option<&'static Code> {
            ALL.iter().find(|code| code.number == number)
        }
    };
}

pub(crate) use codes;

codes! {
    UNKNOWN = 100 Warning "Unknown CUDA-like name"
        "The name has a CUDA prefix, this file does not declare it, and the name tables do not list it. It was left as is. If it is your \
         own, ignore the warning; if it is newer than the tables, look up its HIP equivalent and rename it by hand."
    UNSUPPORTED = 101 Error "No HIP equivalent"
        "The name belongs to a part of CUDA that the chosen target does not have. It was left as is and will not compile. Guard it so \
         that it is compiled for NVIDIA only, or use the alternative that the message suggests."
    EXPERIMENTAL = 102 Warning "Experimental HIP equivalent"
        "HIP or the ROCm library has an equivalent that is marked experimental and may change, so the name was left as is. Pass \
         `--experimental` to translate it."
    BLAS_V1 = 103 Warning "Legacy cuBLAS interface"
        "Only the v2 interface (with a handle) has a HIP equivalent. Without `cublas_v2.h` this name means the legacy interface, so it \
         was left as is. Port the code to `cublas_v2.h`."
    UNSUPPORTED_HEADER = 104 Warning "Header without a HIP equivalent"
        "The header was left as is. Include it for NVIDIA only, or supply a header of the same name."
    CUDA_DEPRECATED = 105 Note "Deprecated in CUDA"
        "The name was translated. CUDA deprecates it, and later versions remove it."
    CUDA_REMOVED = 106 Note "Removed from CUDA"
        "The name was translated. Current CUDA versions no longer have it, so the original source does not build with them."
    HIP_DEPRECATED = 107 Note "HIP equivalent is deprecated"
        "The name was translated and works; HIP or the ROCm library has deprecated the equivalent."
    HIP_REMOVED = 108 Warning "HIP equivalent was removed"
        "The name was translated, but current versions of HIP or the ROCm library no longer have the equivalent."
    LAUNCH = 109 Warning "Kernel launch could not be parsed"
        "`<<<` is not followed by two to four launch parameters and an argument list, probably because a macro expands to part of the \
         launch. It was left as is; HIP compilers also accept `<<<…>>>`."
    ARGUMENTS = 110 Warning "Argument list could not be adapted"
        "The HIP function takes different arguments. This is not a call with a plain argument list (its address is taken, or a macro \
         generates the arguments), so only the name was changed. Adapt the arguments by hand."
    DROPPED_ARGUMENT = 111 Warning "Argument removed"
        "The HIP function does not take this argument, so it was removed. Check the call if the argument was not the default value."
    UNKNOWN_HEADER = 112 Warning "Unknown CUDA header"
        "The header is part of the CUDA toolkit and has no known HIP equivalent. It was left as is."
    DEVICE_FUNCTION = 113 Warning "Device function or type missing in HIP"
        "The name was left as is. The compatibility header (`--header`) may supply it; otherwise implement it with HIP functions."
    HALF2_MEMBER = 114 Note "Member of `half2`"
        "`x` and `y` of `half2` are `half` in CUDA and 16-bit integers in HIP 5. The member is read as `half` with a cast."
    TOO_LARGE = 115 Error "Source too large"
        "Sources must be smaller than 2 GiB. The file was left as is."
    VERSION_CHECK = 116 Warning "CUDA version check"
        "HIP does not define the macro, so the condition evaluates it as 0 and code for later CUDA versions is silently left out on AMD. \
         Add `|| defined(__HIP_PLATFORM_AMD__)` where the code is needed, or define the macro."
    PASTED = 117 Warning "CUDA name built with `##`"
        "A macro builds the name from parts, so it cannot be looked up. Parts that are CUDA names themselves were translated. Write \
         the full names, or check what the macro expands to."
    PORTED = 118 Note "Conditional with a HIP branch"
        "The conditional tests a HIP macro, so this code has already been ported. None of its branches was changed: one is for AMD, the other \
         for NVIDIA. If the project defines the macro itself, define it in the build for AMD."
    WARP_SYNC = 119 Warning "Warp intrinsic missing in older ROCm versions"
        "`_sync` shuffles and votes require ROCm 6.2 with `HIP_ENABLE_WARP_SYNC_BUILTINS` defined, or ROCm 7.0; `__syncwarp` and \
         `__reduce_*_sync` require ROCm 7.0. The compatibility header (`--header`) provides them from ROCm 5.0 on."
    MEMORY_LOCATION = 120 Error "`cudaMemLocation` argument"
        "CUDA 13 changed `cudaMemPrefetchAsync` and `cudaMemAdvise` to take a `cudaMemLocation`; `cudaMemPrefetchAsync` also takes \
         flags. HIP's functions take a device number: pass `location.id` (or `hipCpuDeviceId` for the host) and no flags. HIP \
         7.2 also has `hipMemPrefetchAsync_v2` and `hipMemAdvise_v2`, which take the location; `--rocm 7` uses `hipMemPrefetchAsync_v2`."
    AMBIGUOUS_CALL = 121 Note "Call that is ambiguous in HIP"
        "HIP overloads `__ffsll` for `long long` and `unsigned long long`, so an argument of type `uint64_t` (`unsigned long`) is \
         ambiguous. The argument was cast to `unsigned long long`, which has the same bits."
    VECTOR_OPERATOR = 122 Warning "Operator that HIP defines for its vector types"
        "HIP's vector types (`float4`, `int2`, …) have arithmetic and comparison operators; CUDA's do not. If the project defines the \
         same operator, it causes an ambiguity or redefinition error on AMD. Guard it with `#ifndef __HIP_PLATFORM_AMD__`."
    ATOMIC_REDEFINITION = 123 Error "Redefinition of an atomic function that HIP provides"
        "The project defines an overload of an atomic function that HIP's headers have, so it is a redefinition on AMD. Guard it with \
         `#ifndef __HIP_PLATFORM_AMD__`."
    DEVICE_PROPERTY = 124 Warning "Device property missing in older ROCm versions"
        "ROCm 6.0 added the missing members of `cudaDeviceProp` to `hipDeviceProp_t`. With ROCm 5 the member does not exist: query \
         the value with `hipDeviceGetAttribute`, or leave it out."
    NEWER_HIP = 125 Note "Name that requires a newer HIP version"
        "The name was translated. The equivalent requires the stated HIP version or later; older versions do not have it."
    DEVICE_POINTER = 126 Error "Arithmetic on a `CUdeviceptr`"
        "`CUdeviceptr` is an integer, but `hipDeviceptr_t` is `void *`, on which C++ does not allow arithmetic. Cast it, for example \
         `(hipDeviceptr_t)((char *)pointer + offset)`."
    REMOVED_LATER = 127 Warning "Name that ROCm 7 removed"
        "The name was translated to one that ROCm 6 has and ROCm 7 removed. Pass `--rocm 7` if the output is for ROCm 7."
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
