//! Options of a conversion.

use std::fmt;
use std::str::FromStr;

/// The libraries whose names the translation uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Target {
    /// HIP's own libraries (`hipblas…`), which work on both vendors.
    #[default]
    Hip,
    /// The ROCm libraries (`rocblas…`) where they exist; cuDNN keeps HIP names.
    Roc,
    /// [`Target::Roc`], and MIOpen for cuDNN.
    Miopen,
}

/// The ROCm release whose names the translation uses, where releases differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum RocmVersion {
    /// ROCm 6.3. Most of these names compile with ROCm 5 and 7 too.
    #[default]
    V6,
    /// ROCm 7.0.
    V7,
}

impl RocmVersion {
    /// The HIP version (`6030` is 6.3).
    pub(crate) fn hip(self) -> u32 {
        match self {
            RocmVersion::V6 => 6030,
            RocmVersion::V7 => 7000,
        }
    }
}

impl fmt::Display for RocmVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            RocmVersion::V6 => "6",
            RocmVersion::V7 => "7",
        })
    }
}

impl FromStr for RocmVersion {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<RocmVersion, &'static str> {
        match text {
            "6" => Ok(RocmVersion::V6),
            "7" => Ok(RocmVersion::V7),
            _ => Err("expected 6 or 7"),
        }
    }
}

/// How kernel launches are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum LaunchSyntax {
    /// Keeps `kernel<<<…>>>(…)`, which HIP compilers accept.
    #[default]
    Kept,
    /// Writes `hipLaunchKernelGGL(…)`.
    Call,
}

/// What happens to blocks that a preprocessor skips.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ExcludedBlocks {
    /// They are translated like all others.
    #[default]
    Translated,
    /// They are translated, except for their `#include` lines.
    AllButIncludes,
    /// They are left as is.
    Kept,
}

/// When `#include <hip/hip_runtime.h>` is added to a source without a CUDA header that it replaces: nvcc includes its own implicitly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum RuntimeHeader {
    /// When the source uses CUDA.
    #[default]
    WhenUsed,
    /// In every source.
    Always,
    /// Never: hipRTC includes its own implicitly.
    Never,
}

/// The name of the compatibility header ([`Options::compatibility_header`]).
pub const COMPATIBILITY_HEADER: &str = "warpwave_cuda.h";

/// When the compatibility header is included.
///
/// With it device types (`__nv_bfloat16`, `__nv_fp8_e4m3`) keep their CUDA names, which the header supplies, and `__CUDA_ARCH__` guards
/// hold as for a recent GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum UseHeader {
    /// Never; diagnostics name what needs it.
    #[default]
    Never,
    /// In sources that use something it supplies and HIP lacks, or that not every ROCm from 5.0 on has.
    WhenNeeded,
    /// In every CUDA source.
    Always,
}

/// Options of a conversion.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {
    /// The libraries whose names are used.
    pub target: Target,
    /// The ROCm release whose names are used.
    pub rocm: RocmVersion,
    /// How launches are written.
    pub launch: LaunchSyntax,
    /// What happens to blocks that the preprocessor skips.
    pub excluded: ExcludedBlocks,
    /// Translates names that HIP marks as experimental too.
    pub experimental: bool,
    /// Translates `cudaDataType` and its constants to `hipDataType`, even where the target has a type of its own.
    pub hip_data_types: bool,
    /// When HIP's runtime header is added.
    pub runtime_header: RuntimeHeader,
    /// When [`COMPATIBILITY_HEADER`] is included in place of the CUDA headers it replaces.
    pub compatibility_header: UseHeader,
    /// Applies the safe fixes of [`crate::hazard`] before the translation ([`crate::convert`] only).
    pub fix: bool,
    /// Macros with their values, for [`ExcludedBlocks`] other than `Translated`; an empty value defines the name only.
    pub defines: Vec<(String, String)>,
    /// Leaves conditionals that already have a HIP branch as is ([`crate::preprocessor::platform`]).
    pub keep_ported: bool,
    /// Includes that are files of the project itself, with their new names (the same if not renamed). They are not CUDA headers,
    /// whatever their names.
    pub local_includes: Vec<(String, String)>,
    /// A header of the project includes `cublas_v2.h`, so cuBLAS names mean the v2 interface.
    pub blas_v2: bool,
}

impl Options {
    /// Whether the translation itself includes the compatibility header; [`UseHeader::WhenNeeded`] is decided before.
    pub(crate) fn with_header(&self) -> bool {
        self.compatibility_header == UseHeader::Always
    }
}
