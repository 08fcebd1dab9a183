//! What a caller chooses.

/// Whose names a translation uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Target {
    /// HIP's own libraries (`hipblas…`), which work on both vendors.
    #[default]
    Hip,
    /// The ROCm libraries (`rocblas…`) where there are any; cuDNN stays with HIP's names.
    Roc,
    /// As [`Target::Roc`], and MIOpen for cuDNN.
    Miopen,
}

/// How a kernel launch is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum LaunchSyntax {
    /// `kernel<<<…>>>(…)` stays: HIP's compilers read it.
    #[default]
    Kept,
    /// `hipLaunchKernelGGL(…)`.
    Call,
}

/// What is done with blocks that a preprocessor would leave out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ExcludedBlocks {
    /// Translated like all others.
    #[default]
    Translated,
    /// Translated but for their `#include` lines, which would bring a header too many.
    AllButIncludes,
    /// Left as they are.
    Kept,
}

/// When `#include <hip/hip_runtime.h>` is added to a source that includes no CUDA header to put it for: CUDA's compiler brings its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum RuntimeHeader {
    /// When the source has something of CUDA's in it.
    #[default]
    WhenUsed,
    /// In every source.
    Always,
    /// Never: hipRTC brings its own.
    Never,
}

/// The one header of Warpwave's that a translation may include ([`Options::compatibility_header`]).
pub const COMPATIBILITY_HEADER: &str = "warpwave_cuda.h";

/// The choices of a translation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {
    /// Whose names are used.
    pub target: Target,
    /// How launches are written.
    pub launch: LaunchSyntax,
    /// Blocks that the preprocessor leaves out.
    pub excluded: ExcludedBlocks,
    /// Names that HIP calls experimental are translated too.
    pub experimental: bool,
    /// `cudaDataType` becomes `hipDataType`, and its constants HIP's, even where the target has a type of its own.
    pub hip_data_types: bool,
    /// When HIP's runtime header is added.
    pub runtime_header: RuntimeHeader,
    /// Includes [`COMPATIBILITY_HEADER`] in place of the CUDA headers it replaces. Device types (`__nv_bfloat16`, `__nv_fp8_e4m3`) keep
    /// their CUDA names, which the header supplies, and `__CUDA_ARCH__` guards hold as for a recent GPU.
    pub compatibility_header: bool,
    /// Applies the safe fixes of [`crate::hazard`] before the translation ([`crate::convert`] only).
    pub fix: bool,
    /// Macros, each with its value, for [`ExcludedBlocks`] other than `Translated`; an empty value defines a name alone.
    pub defines: Vec<(String, String)>,
    /// Conditionals that have a branch for HIP already are left alone ([`crate::ported`]).
    pub keep_ported: bool,
    /// Headers as the source names them that are files of its own project, each with what stands there instead (the same, where it
    /// keeps its name). They are not CUDA's, whatever they are called.
    pub local_includes: Vec<(String, String)>,
    /// Some header of the project includes `cublas_v2.h`, so that cuBLAS names mean the second interface.
    pub blas_v2: bool,
}
