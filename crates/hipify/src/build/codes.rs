//! Diagnostics of build files, 0400 to 0499.

use crate::codes::{Code, codes};
use crate::diagnostic::Severity;

codes! {
    UNREADABLE = 400 Warning "A build file that cannot be read from here on"
        "A bracket or a quote that opens here does not close, so what follows was left as it is. Mend the place and translate again."
    PORTED = 401 Warning "A build file that has HIP and CUDA"
        "The file names HIP already: it was ported by hand, or translated before. It was left as it is, and it still names CUDA. Look \
         whether that is the branch for NVIDIA, or a rest that the first translation named in its diagnostics."
    LIBRARY = 402 Error "A library without a counterpart"
        "ROCm has no library that does the same, or none with the same interface. The name was left as it is, and linking will fail."
    VARIABLE = 403 Warning "A variable of CUDA's without a counterpart"
        "CMake sets this variable for CUDA and has none of the same meaning for HIP. It was left as it is and will be empty."
    COMMAND = 404 Error "A command of CUDA's without a counterpart"
        "The command comes with CMake's module for CUDA, and HIP has none that does the same. It was left as it is and will fail. Write \
         this part anew: with the HIP language a `.hip` file is compiled like any other source."
    FLAG_DROPPED = 405 Note "A flag of nvcc that HIP does not need"
        "What the flag allows or asks for is how HIP's compiler works anyway, or it speaks to a part that HIP does not have. It was removed."
    FLAG_LOST = 406 Warning "A flag of nvcc without a counterpart"
        "The flag was removed, and what it asked for is lost. The message says what comes nearest."
    FLAG_KEPT = 407 Error "A flag of nvcc that asks for something HIP does not make"
        "The build asks for PTX, a cubin or a step of nvcc's own. The flag was left as it is, and the build will fail there. Code objects \
         for AMD are made with `--genco`."
    ARCHITECTURES = 408 Note "The GPUs to build for"
        "Compute capabilities of NVIDIA became a list of AMD architectures. Adapt it to the GPUs you have (`--offload-arch` of the \
         translator sets it); each architecture adds to build time and size."
    ARCHITECTURE_VARIABLE = 409 Warning "The GPUs to build for come from elsewhere"
        "A variable holds the architectures, and its value is not in this file. It must now hold AMD architectures such as `gfx90a`."
    SOURCES = 410 Warning "Sources that must be compiled as HIP"
        "CMake takes `.cu` for CUDA. Files named in the build file are marked as HIP where they are listed; this list cannot be marked, or \
         names a file that was not translated with it. Mark the files with `set_source_files_properties(… PROPERTIES LANGUAGE HIP)`, or \
         rename them to `.hip`."
    PROPERTY = 411 Warning "A property of CUDA's without a counterpart"
        "HIP has no property of the same meaning. It was left as it is and does nothing. Relocatable device code is asked for with \
         `-fgpu-rdc`, when compiling and when linking."
    VERSION = 412 Warning "A check for a version of CUDA or of nvcc"
        "With HIP the variable is empty, or holds HIP's or clang's value, so the comparison gives another result. It was left as it is."
    MINIMUM = 413 Note "The version of CMake"
        "CMake knows the HIP language since 3.21, so the minimum was raised."
    TOOL = 414 Warning "A tool of CUDA's"
        "The build calls a tool of the CUDA toolkit. It was left as it is; ROCm's tools have other names and options (rocprof, \
         roc-obj, rocgdb)."
    PACKAGE = 415 Warning "A package of CUDA's without a counterpart"
        "No package of ROCm stands for this one as it is used here. It was left as it is."
    PATH = 416 Warning "A path into the CUDA toolkit"
        "The path could not be mapped to one of ROCm's. It was left as it is."
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_in_order_and_in_their_range() {
        assert!(ALL.windows(2).all(|pair| pair[0].number < pair[1].number));
        assert!(ALL.iter().all(|code| (400..500).contains(&code.number) && code.explanation.len() > 40));
        assert_eq!(find(400), Some(&UNREADABLE));
    }
}
