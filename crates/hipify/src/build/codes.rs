//! Diagnostics of build files, WW0400 to WW0499.

use crate::codes::{Code, codes};
use crate::diagnostic::Severity;

codes! {
    UNREADABLE = 400 Warning "Syntax error in a build file"
        "A bracket or quote that opens here is not closed, so the rest of the file was left as is. Fix it and convert again."
    PORTED = 401 Warning "Build file with both HIP and CUDA"
        "The file mentions HIP, so it has already been ported or converted, and was left as is. It still mentions CUDA: check whether that is \
         the NVIDIA branch, or something that the earlier conversion could not handle."
    LIBRARY = 402 Error "Library without a ROCm equivalent"
        "ROCm has no library with the same function and interface. The name was left as is, and linking will fail."
    VARIABLE = 403 Warning "CUDA variable without a HIP equivalent"
        "CMake sets this variable for CUDA only. It was left as is and will be empty."
    COMMAND = 404 Error "CUDA command without a HIP equivalent"
        "The command belongs to CMake's CUDA module and has no HIP equivalent. It was left as is and will fail. Rewrite this part: with \
         the HIP language a `.hip` file is compiled like any other source."
    FLAG_DROPPED = 405 Note "nvcc flag that HIP does not need"
        "The flag describes what the HIP compiler does by default, or applies to a stage that HIP does not have. It was removed."
    FLAG_LOST = 406 Warning "nvcc flag without a HIP equivalent"
        "The flag was removed, and its effect is lost. The message names the closest alternative."
    FLAG_KEPT = 407 Error "nvcc flag for an output that HIP does not produce"
        "The flag requests PTX, a cubin or another intermediate output of nvcc, which compilers for AMD do not produce. It was left unchanged, and the build will fail at this line. Use `--genco` to \
         build code objects for AMD."
    ARCHITECTURES = 408 Note "GPU architectures"
        "NVIDIA compute capabilities were replaced by a list of AMD architectures. Adapt it to your GPUs (`--offload-arch` sets it); \
         each architecture adds to build time and size."
    ARCHITECTURE_VARIABLE = 409 Warning "GPU architectures set elsewhere"
        "The architectures come from a variable that is not set in this file. Set that variable to AMD architectures such as `gfx90a`."
    SOURCES = 410 Warning "Sources that must be compiled as HIP"
        "CMake compiles `.cu` as CUDA. Files named in the build file are marked as HIP where they are listed; this list cannot be \
         marked, or names a file that was not converted with it. Mark the files with `set_source_files_properties(… PROPERTIES \
         LANGUAGE HIP)`, or rename them to `.hip`."
    PROPERTY = 411 Warning "CUDA property without a HIP equivalent"
        "The property was left as is and has no effect. For relocatable device code pass `-fgpu-rdc` when compiling and linking."
    VERSION = 412 Warning "CUDA or nvcc version check"
        "With HIP the variable is empty or holds the HIP or clang version, so the comparison may give a different result. It was \
         left as is."
    MINIMUM = 413 Note "CMake version"
        "CMake supports the HIP language from version 3.21 on, so the minimum version was raised."
    TOOL = 414 Warning "CUDA tool"
        "The build calls a CUDA toolkit tool. It was left as is; the ROCm tools (rocprof, roc-obj, rocgdb) have different names and \
         options."
    PACKAGE = 415 Warning "CUDA package without a ROCm equivalent"
        "This CUDA package has no ROCm equivalent for this use. The line was left unchanged."
    PATH = 416 Warning "Hard-coded path of the CUDA toolkit"
        "The path could not be mapped to a ROCm path. It was left as is."
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
