//! Compilation targets: an architecture, and machine code or PTX for it.

use std::fmt;
use std::str::FromStr;

use warpwave_gpu::{Arch, ComputeCapability, Device, InvalidArch, Variant, Vendor};

use crate::source::KernelSource;

/// A target to compile for: `gfx90a`, `gfx942:sramecc+:xnack-` (AMD), `sm_90` (NVIDIA machine code), `compute_90` (NVIDIA PTX).
///
/// Parsing accepts every well-formed name; the compiler reports a target it does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Target {
    /// Machine code of an architecture.
    Machine(Arch),
    /// PTX for a compute capability and later ones.
    Ptx(ComputeCapability),
}

/// A name that is not a compilation target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid target `{name}`: {reason}. Examples: gfx90a, gfx942:sramecc+:xnack-, gfx11-generic (AMD); \
     sm_90, sm_90a (NVIDIA machine code); compute_90 (NVIDIA PTX)"
)]
pub struct InvalidTarget {
    /// What was given.
    pub name: String,
    /// What is wrong with it.
    pub reason: String,
}

impl Target {
    /// Returns the target for a device: machine code of its architecture with all target features.
    pub fn of(device: &Device) -> Target {
        Target::Machine(device.info().arch)
    }

    /// Returns the variant of this target that a source requires: a line `// warpwave: needs sm_90a` among its first ten turns `sm_90` into
    /// `sm_90a`, whose instructions (wgmma) exist on that architecture alone.
    pub fn for_source(self, source: &KernelSource) -> Target {
        let Target::Machine(Arch::Nvidia(own)) = self else { return self };
        let needs = source.text().lines().take(10).filter_map(|line| line.trim().strip_prefix("// warpwave: needs "));
        let specific = Target::Machine(Arch::Nvidia(ComputeCapability { variant: Variant::Architecture, ..own }));
        let required = needs.filter_map(|name| name.trim().parse::<Target>().ok()).any(|target| target == specific);
        if required && own.variant == Variant::Base { specific } else { self }
    }

    /// Returns the architecture.
    pub fn arch(self) -> Arch {
        match self {
            Target::Machine(arch) => arch,
            Target::Ptx(capability) => Arch::Nvidia(capability),
        }
    }

    /// Returns whose GPU it is.
    pub fn vendor(self) -> Vendor {
        self.arch().vendor()
    }

    /// Returns the wave (warp) size the compiler defaults to: 64 up to gfx9, 32 from gfx10 on, 32 on NVIDIA.
    pub fn wave_size(self) -> u32 {
        self.arch().wave_size()
    }

    /// Returns the file name extension of the compiled code: `hsaco`, `cubin` or `ptx`.
    pub fn extension(self) -> &'static str {
        match self {
            Target::Machine(Arch::Amd(_)) => "hsaco",
            Target::Machine(Arch::Nvidia(_)) => "cubin",
            Target::Ptx(_) => "ptx",
        }
    }

    /// Returns the name without target features: `gfx942` for `gfx942:sramecc+:xnack-`.
    pub fn base_name(self) -> String {
        match self {
            Target::Machine(arch) => arch.base().to_string(),
            Target::Ptx(_) => self.to_string(),
        }
    }

    /// Returns whether this is an AMD family (`gfx11-generic`) rather than one architecture. Its code needs code object version 6.
    pub fn is_generic(self) -> bool {
        self.arch().is_generic()
    }

    /// Returns AMD's ISA version as the device library counts it, 1000·major + 100·minor + stepping: `gfx90a` is 9010.
    pub(crate) fn amd_isa_version(self) -> Option<u32> {
        match self.arch() {
            Arch::Amd(gfx) => Some(gfx.major * 1000 + gfx.minor * 100 + gfx.stepping),
            Arch::Nvidia(_) => None,
        }
    }
}

impl FromStr for Target {
    type Err = InvalidTarget;

    fn from_str(name: &str) -> Result<Target, InvalidTarget> {
        let invalid = |reason: String| InvalidTarget { name: name.to_owned(), reason };
        match name.strip_prefix("compute_") {
            Some(capability) => capability.parse().map(Target::Ptx).map_err(|reason: &str| invalid(reason.to_owned())),
            None => name.parse().map(Target::Machine).map_err(|error: InvalidArch| invalid(error.reason)),
        }
    }
}

impl From<Arch> for Target {
    fn from(arch: Arch) -> Target {
        Target::Machine(arch)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Machine(arch) => arch.fmt(f),
            Target::Ptx(capability) => f.pad(&format!("compute_{capability}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(text: &str) -> Target {
        text.parse().unwrap()
    }

    #[test]
    fn names_round_trip() {
        for name in [
            "gfx90a",
            "gfx906",
            "gfx942:sramecc+:xnack-",
            "gfx1100",
            "gfx11-generic",
            "gfx9-4-generic",
            "sm_90",
            "sm_90a",
            "compute_75",
            "sm_120f",
        ] {
            assert_eq!(target(name).to_string(), name);
        }
        assert_eq!(target("gfx942:xnack-:sramecc+").to_string(), "gfx942:sramecc+:xnack-");
    }

    #[test]
    fn wave_sizes_follow_the_architecture() {
        for (name, wave) in [
            ("gfx803", 64),
            ("gfx906", 64),
            ("gfx950", 64),
            ("gfx9-generic", 64),
            ("gfx1010", 32),
            ("gfx1201", 32),
            ("gfx12-generic", 32),
            ("sm_80", 32),
        ] {
            assert_eq!(target(name).wave_size(), wave, "{name}");
        }
    }

    #[test]
    fn isa_versions_are_those_of_the_device_library() {
        for (name, version) in [("gfx90a", 9010), ("gfx942", 9402), ("gfx1030", 10300), ("gfx1201", 12001), ("gfx10-3-generic", 10300)] {
            assert_eq!(target(name).amd_isa_version(), Some(version), "{name}");
        }
        assert_eq!(target("sm_90").amd_isa_version(), None);
    }

    #[test]
    fn invalid_names_are_rejected_with_examples() {
        for name in [
            "",
            "90a",
            "gfx",
            "gfx9",
            "gfx90A",
            "gfxabc",
            "gfx90a:xnack",
            "gfx90a:fast+",
            "gfx90a:xnack+:xnack-",
            "sm_",
            "sm_9x",
            "sm_90aa",
            "sm_90af",
            "gfx-generic",
            "gfx9-é-generic",
            "gfxé0",
            "rtx4090",
        ] {
            let error = name.parse::<Target>().unwrap_err().to_string();
            assert!(error.contains("gfx90a") && error.contains("sm_90"), "{error}");
        }
    }

    #[test]
    fn extensions_name_the_kind_of_code() {
        assert_eq!([target("gfx90a"), target("sm_90"), target("compute_90")].map(|t| t.extension()), ["hsaco", "cubin", "ptx"]);
    }
}
