//! CUDA libraries and their ROCm equivalents, by CMake target and linker name.

/// A library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Library {
    /// Without `lib` and `_static`.
    pub cuda: &'static str,
    /// The CMake target; empty if the linker name is used.
    pub target: &'static str,
    /// The CMake package that has it; empty for HIP itself.
    pub package: &'static str,
    /// The linker name; empty if not needed.
    pub linker: &'static str,
}

macro_rules! libraries {
    ($($cuda:literal $target:literal $package:literal $linker:literal;)*) => {
        const LIBRARIES: &[Library] = &[$(Library { cuda: $cuda, target: $target, package: $package, linker: $linker }),*];
    };
}

libraries! {
    "cudart" "hip::host" "" "amdhip64";
    "cuda" "hip::host" "" "amdhip64";
    "cuda_driver" "hip::host" "" "amdhip64";
    "cublas" "roc::hipblas" "hipblas" "hipblas";
    "cublasLt" "roc::hipblaslt" "hipblaslt" "hipblaslt";
    "cufft" "hip::hipfft" "hipfft" "hipfft";
    "cufftw" "hip::hipfftw" "hipfft" "hipfftw";
    "curand" "hip::hiprand" "hiprand" "hiprand";
    "cusparse" "roc::hipsparse" "hipsparse" "hipsparse";
    "cusolver" "roc::hipsolver" "hipsolver" "hipsolver";
    "nvrtc" "hiprtc::hiprtc" "hiprtc" "hiprtc";
    "nccl" "roc::rccl" "rccl" "rccl";
    "nvToolsExt" "roctx64" "" "roctx64";
    "nvtx3" "roctx64" "" "roctx64";
}

/// Libraries that HIP does not need.
const NOT_NEEDED: &[&str] = &["cudadevrt", "culibos", "cudart_static_deps", "nvrtc_builtins", "nvrtc-builtins"];

/// Libraries without a ROCm library of the same interface, with the closest alternative.
const MISSING: &[(&str, &str)] = &[
    ("cudnn", "MIOpen has a different interface; convert the sources with `--miopen`"),
    ("cupti", "use rocprofiler, which has a different interface"),
    ("nvml", "use amd_smi or rocm_smi, which have a different interface"),
    ("nvidia-ml", "use amd_smi or rocm_smi, which have a different interface"),
    ("nvJitLink", "use hipRTC to link code objects"),
    ("nvjpeg", "use rocJPEG, which has a different interface"),
    ("nvcuvid", "use rocDecode, which has a different interface"),
    ("cutensor", "use hipTensor, which has a different interface"),
    ("cusparseLt", "use hipSPARSELt (package `hipsparselt`)"),
    ("cufile", "ROCm has no equivalent"),
    ("nvgraph", "ROCm has no equivalent"),
    ("cuinj64", "ROCm has no equivalent"),
    ("npp", "RPP is the closest library, with a different interface"),
];

/// The conversion of a library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mapping {
    Becomes(Library),
    NotNeeded,
    Missing(&'static str),
}

/// Finds a library by name: `cudart`, `cublas_static`, `nppc`. `None` if it is not a CUDA library.
pub(super) fn find(name: &str) -> Option<Mapping> {
    let plain = name.strip_suffix("_static").unwrap_or(name);
    let plain = plain.strip_suffix("_static_nocallback").unwrap_or(plain);
    if NOT_NEEDED.contains(&plain) || NOT_NEEDED.contains(&name) {
        return Some(Mapping::NotNeeded);
    }
    if let Some(library) = LIBRARIES.iter().find(|library| library.cuda == plain) {
        return Some(Mapping::Becomes(*library));
    }
    let npp =
        plain.strip_prefix("npp").is_some_and(|rest| matches!(rest.len(), 1..=4) && rest.bytes().all(|byte| byte.is_ascii_lowercase()));
    let plain = if npp { "npp" } else { plain };
    let plain = if plain.starts_with("cudnn_") { "cudnn" } else { plain };
    MISSING.iter().find(|(missing, _)| *missing == plain).map(|(_, near)| Mapping::Missing(near))
}

/// The library of a FindCUDA variable: `CUDA_CUBLAS_LIBRARIES`, `CUDA_curand_LIBRARY`.
pub(super) fn of_variable(name: &str) -> Option<Mapping> {
    let middle = match name {
        "CUDA_LIBRARIES" | "CUDAToolkit_LIBRARIES" => return find("cudart"),
        _ => name.strip_prefix("CUDA_")?,
    };
    let middle = middle.strip_suffix("_LIBRARIES").or_else(|| middle.strip_suffix("_LIBRARY"))?;
    find(middle).or_else(|| find(&middle.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_found_under_all_their_names() {
        let target = |mapping: Option<Mapping>| match mapping {
            Some(Mapping::Becomes(library)) => library.target,
            _ => "",
        };
        assert_eq!(target(find("cublas_static")), "roc::hipblas");
        assert_eq!(target(of_variable("CUDA_CUFFT_LIBRARIES")), "hip::hipfft");
        assert_eq!(target(of_variable("CUDA_curand_LIBRARY")), "hip::hiprand");
        assert_eq!(target(of_variable("CUDA_LIBRARIES")), "hip::host");
        assert_eq!(find("cudadevrt"), Some(Mapping::NotNeeded));
        assert!(matches!(find("nppicc"), Some(Mapping::Missing(_))) && matches!(find("cudnn"), Some(Mapping::Missing(_))));
        assert_eq!((find("curl"), find("m"), of_variable("CUDA_SOURCES")), (None, None, None));
    }
}
