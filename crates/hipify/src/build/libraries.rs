//! CUDA's libraries and what ROCm has for them: by CMake target, by linker name.

/// A library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Library {
    /// Without `lib` and `_static`.
    pub cuda: &'static str,
    /// The CMake target; empty where a plain linker name is used.
    pub target: &'static str,
    /// The CMake package that has it; empty for HIP itself.
    pub package: &'static str,
    /// What the linker calls it; empty where none is needed.
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

/// What only CUDA needs: HIP's device code links without it.
const NOT_NEEDED: &[&str] = &["cudadevrt", "culibos", "cudart_static_deps", "nvrtc_builtins", "nvrtc-builtins"];

/// Libraries for which ROCm has none with the same interface, each with what comes near.
const MISSING: &[(&str, &str)] = &[
    ("cudnn", "MIOpen has another interface; translate the sources with `--miopen`"),
    ("cupti", "rocprofiler is ROCm's, with another interface"),
    ("nvml", "amd_smi or rocm_smi is ROCm's, with another interface"),
    ("nvidia-ml", "amd_smi or rocm_smi is ROCm's, with another interface"),
    ("nvJitLink", "hipRTC links code objects"),
    ("nvjpeg", "rocJPEG is ROCm's, with another interface"),
    ("nvcuvid", "rocDecode is ROCm's, with another interface"),
    ("cutensor", "hipTensor is ROCm's, with another interface"),
    ("cusparseLt", "hipSPARSELt is ROCm's; its package is `hipsparselt`"),
    ("cufile", "there is no counterpart"),
    ("nvgraph", "there is no counterpart"),
    ("cuinj64", "there is no counterpart"),
    ("npp", "RPP is nearest, with another interface"),
];

/// What becomes of a library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Becomes(Library),
    NotNeeded,
    Missing(&'static str),
}

/// By its name: `cudart`, `cublas_static`, `nppc`. `None` for one that is not CUDA's.
pub(super) fn find(name: &str) -> Option<Fate> {
    let plain = name.strip_suffix("_static").unwrap_or(name);
    let plain = plain.strip_suffix("_static_nocallback").unwrap_or(plain);
    if NOT_NEEDED.contains(&plain) || NOT_NEEDED.contains(&name) {
        return Some(Fate::NotNeeded);
    }
    if let Some(library) = LIBRARIES.iter().find(|library| library.cuda == plain) {
        return Some(Fate::Becomes(*library));
    }
    let npp =
        plain.strip_prefix("npp").is_some_and(|rest| matches!(rest.len(), 1..=4) && rest.bytes().all(|byte| byte.is_ascii_lowercase()));
    let plain = if npp { "npp" } else { plain };
    let plain = if plain.starts_with("cudnn_") { "cudnn" } else { plain };
    MISSING.iter().find(|(missing, _)| *missing == plain).map(|(_, near)| Fate::Missing(near))
}

/// The library behind a variable of CMake's old module: `CUDA_CUBLAS_LIBRARIES`, `CUDA_curand_LIBRARY`.
pub(super) fn of_variable(name: &str) -> Option<Fate> {
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
        let target = |fate: Option<Fate>| match fate {
            Some(Fate::Becomes(library)) => library.target,
            _ => "",
        };
        assert_eq!(target(find("cublas_static")), "roc::hipblas");
        assert_eq!(target(of_variable("CUDA_CUFFT_LIBRARIES")), "hip::hipfft");
        assert_eq!(target(of_variable("CUDA_curand_LIBRARY")), "hip::hiprand");
        assert_eq!(target(of_variable("CUDA_LIBRARIES")), "hip::host");
        assert_eq!(find("cudadevrt"), Some(Fate::NotNeeded));
        assert!(matches!(find("nppicc"), Some(Fate::Missing(_))) && matches!(find("cudnn"), Some(Fate::Missing(_))));
        assert_eq!((find("curl"), find("m"), of_variable("CUDA_SOURCES")), (None, None, None));
    }
}
