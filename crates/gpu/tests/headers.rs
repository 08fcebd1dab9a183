//! Checks every row of the table and every enum value against the vendors' headers.
//!
//! The headers come from CUDA's runtime wheel (`WARPWAVE_CUDA_INCLUDE`) and Debian's `libamdhip64-dev`. Without
//! one, the test is skipped, or fails if `WARPWAVE_REQUIRE_ALL=1`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use warpwave_gpu::{Attribute, Row, Table, Vendor};
use warpwave_test_support::require;

/// Symbols that Debian's HIP 5.2 headers do not declare yet.
const NEWER_THAN_HIP_5_2: &[&str] = &[
    "hipGetDevicePropertiesR0600",
    "hipDrvGetErrorName",
    "hipDrvGetErrorString",
    "hipModuleLaunchCooperativeKernel",
    "hipMemPrefetchAsync_v2",
    "hipMemAdvise_v2",
    "hipDrvGraphAddMemcpyNode",
    "hipDrvGraphAddMemsetNode",
];

/// Functions that HIP's headers overload for C++: the type of the exported one.
const OVERLOADED: &[(&str, &str)] = &[
    ("hipMallocAsync", "hipError_t (*)(void **, size_t, hipStream_t)"),
    ("hipMallocFromPoolAsync", "hipError_t (*)(void **, size_t, hipMemPool_t, hipStream_t)"),
];

/// Reduces a function's parameters to their sizes. A class that is passed in registers differs from a pointer of the
/// same size only on paper: both travel in one integer register.
const SHAPE: &str = r"
template <class F> struct shape;
template <class R, class... A> struct shape<R (*)(A...)> {
    static_assert(sizeof(R) == 4, `the result is not a status`);
    static constexpr int count = sizeof...(A);
    static constexpr unsigned long sizes[] = {sizeof(A)..., 0};
};
template <class F, unsigned long... N> constexpr bool fits() {
    constexpr unsigned long wanted[] = {N..., 0};
    if (shape<F>::count != (int)sizeof...(N)) return false;
    for (int i = 0; i < shape<F>::count; ++i)
        if (shape<F>::sizes[i] != wanted[i]) return false;
    return true;
}
";

fn missing(what: &str) {
    require(false, what);
}

fn compiler() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    ["g++", "clang++", "c++", "clang++-19", "clang-19"]
        .iter()
        .find_map(|name| std::env::split_paths(&path).map(|p| p.join(name)).find(|p| p.exists()))
}

fn check(vendor: Vendor, prologue: &str, include: &Path, skip: &[&str]) {
    let Some(compiler) = compiler() else { return missing("no C++ compiler to read the headers with") };
    let mut text = format!("{prologue}\n{}", SHAPE.replace('`', "\""));
    let mut rows = 0;
    for (row, symbol) in Table::ROWS.iter().filter_map(|row: &Row| Some((row, row.symbol(vendor)?))) {
        if skip.contains(&symbol) {
            continue;
        }
        let sizes: String = row.parameters.iter().map(|n| format!(", {n}")).collect();
        let overloaded = OVERLOADED.iter().find(|(name, _)| *name == symbol);
        let function = overloaded.map_or(format!("&{symbol}"), |(_, kind)| format!("static_cast<{kind}>(&{symbol})"));
        writeln!(text, "static_assert(fits<decltype({function}){sizes}>(), \"{symbol} has another signature\");").unwrap();
        rows += 1;
    }
    for (_, cuda, hip) in Attribute::ALL {
        let (name, number) = if vendor == Vendor::Nvidia { cuda } else { hip };
        writeln!(text, "static_assert((int){name} == {number}, \"{name} has another number\");").unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("table.cpp");
    std::fs::write(&file, text).unwrap();
    let output = Command::new(compiler).args(["-std=c++17", "-fsyntax-only", "-w", "-I"]).arg(include).arg(&file).output().unwrap();
    assert!(output.status.success(), "{vendor}: {}", String::from_utf8_lossy(&output.stderr));
    eprintln!("{vendor}: {rows} rows and {} attributes agree with {}", Attribute::ALL.len(), include.display());
    assert!(rows > 105, "{rows}");
}

#[test]
fn the_cuda_column_agrees_with_cuda_h() {
    let found = std::env::var_os("WARPWAVE_CUDA_INCLUDE").map(PathBuf::from).into_iter();
    let usual = warpwave_gpu::library::versioned_folders("/usr/local", "cuda", "include");
    let wheels = warpwave_gpu::library::python_folders().into_iter().map(|p| p.join("nvidia/cuda_runtime/include"));
    let Some(include) = found.chain(usual).chain(wheels).find(|p| p.join("cuda.h").exists()) else {
        return missing("no cuda.h (pip install nvidia-cuda-runtime-cu12, or set WARPWAVE_CUDA_INCLUDE)");
    };
    // Declares the old forms beside the new ones, and no macro turns one into the other: every symbol means itself.
    let prologue = "#define __CUDA_API_VERSION_INTERNAL 1
        #include <cuda.h>
        static_assert(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN == 97, \"\");
        static_assert(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES == 8, \"\");
        static_assert(CU_POINTER_ATTRIBUTE_MEMORY_TYPE == 2 && CU_POINTER_ATTRIBUTE_IS_MANAGED == 8 && CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL == 9, \"\");
        static_assert(sizeof(CUlaunchConfig) == 56 && sizeof(CUlaunchAttribute) == 72, \"\");
        static_assert(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION == 6, \"\");
        static_assert(CU_MEMORYTYPE_HOST == 1 && CU_MEMORYTYPE_DEVICE == 2 && CU_MEMORYTYPE_UNIFIED == 4, \"\");
        static_assert(sizeof(CUDA_MEMCPY2D) == 128 && sizeof(CUmemLocation) == 8, \"\");
        static_assert(CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS == 1 && CUDA_ERROR_NOT_INITIALIZED == 3, \"\");
        static_assert(CUDA_ERROR_OUT_OF_MEMORY == 2 && CUDA_ERROR_NO_DEVICE == 100 && CUDA_ERROR_INVALID_DEVICE == 101, \"\");
        static_assert(CUDA_ERROR_NOT_FOUND == 500 && CUDA_ERROR_NOT_READY == 600 && CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED == 704, \"\");
        static_assert(CUDA_ERROR_INVALID_IMAGE == 200 && CUDA_ERROR_NO_BINARY_FOR_GPU == 209 && CUDA_ERROR_UNSUPPORTED_PTX_VERSION == 222, \"\");
        static_assert(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE == 910 && CUDA_ERROR_LAUNCH_FAILED == 719, \"\");
        static_assert(CU_STREAM_NON_BLOCKING == 1 && CU_EVENT_DISABLE_TIMING == 2 && CU_STREAM_CAPTURE_MODE_RELAXED == 2, \"\");
        static_assert(CU_MEMHOSTALLOC_PORTABLE == 1 && CU_MEMHOSTALLOC_DEVICEMAP == 2 && CU_MEMHOSTREGISTER_PORTABLE == 1, \"\");
        static_assert(CU_MEMHOSTREGISTER_DEVICEMAP == 2 && CU_MEM_ATTACH_GLOBAL == 1, \"\");";
    check(Vendor::Nvidia, prologue, &include, &[]);
}

#[test]
fn the_hip_column_agrees_with_hip_runtime_api_h() {
    let usual = warpwave_gpu::library::versioned_folders("/opt", "rocm", "include");
    let Some(include) = usual.into_iter().chain(["/usr/include".into()]).find(|p| p.join("hip/hip_runtime_api.h").exists()) else {
        return missing("no hip/hip_runtime_api.h (apt install libamdhip64-dev)");
    };
    let debian = include == Path::new("/usr/include");
    let prologue = "#define __HIP_PLATFORM_AMD__ 1
        #define __HIP_DISABLE_CPP_FUNCTIONS__ 1
        #include <hip/hip_runtime_api.h>
        static_assert(hipIpcMemLazyEnablePeerAccess <= 1 && hipErrorNotInitialized == 3, \"\");
        static_assert(hipErrorOutOfMemory == 2 && hipErrorNoDevice == 100 && hipErrorInvalidDevice == 101 && hipErrorRuntimeMemory == 1052, \"\");
        static_assert(hipErrorNotFound == 500 && hipErrorNotReady == 600 && hipErrorPeerAccessAlreadyEnabled == 704, \"\");
        static_assert(hipErrorInvalidImage == 200 && hipErrorNoBinaryForGpu == 209 && hipErrorLaunchFailure == 719, \"\");
        static_assert(hipErrorGraphExecUpdateFailure == 910, \"\");
        static_assert(hipStreamNonBlocking == 1 && hipEventDisableTiming == 2 && hipStreamCaptureModeRelaxed == 2, \"\");
        static_assert(hipHostMallocPortable == 1 && hipHostMallocMapped == 2 && hipHostRegisterPortable == 1 && hipHostRegisterMapped == 2, \"\");
        static_assert(sizeof(hip_Memcpy2D) == 128 && sizeof(hipPitchedPtr) == 32 && sizeof(hipExtent) == 24, \"\");
        static_assert(hipMemAttachGlobal == 1, \"\");";
    check(Vendor::Amd, prologue, &include, if debian { NEWER_THAN_HIP_5_2 } else { &[] });
}
