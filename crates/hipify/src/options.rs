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
    /// Names are translated, launches, includes and argument lists are not.
    NamesOnly,
    /// Left as they are.
    Kept,
}

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
    /// Variables of `cudaDataType` become `hipDataType` even where the target has a type of its own.
    pub hip_data_types: bool,
    /// `#include <hip/hip_runtime.h>` is not added where the source includes no CUDA header (hipRTC brings its own).
    pub no_runtime_header: bool,
    /// Macros, each with its value, for [`ExcludedBlocks`] other than `Translated`; an empty value defines a name alone.
    pub defines: Vec<(String, String)>,
}
