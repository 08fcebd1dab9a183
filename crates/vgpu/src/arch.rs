//! The GPU architectures that the virtual GPU implements.

use std::fmt;
use std::str::FromStr;

/// An AMD GPU architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Arch {
    /// CDNA: MI100.
    Gfx908,
    /// CDNA 2: MI200.
    Gfx90a,
    /// CDNA 3: MI300.
    Gfx942,
}

/// A name that is not one of [`Arch::ALL`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown architecture `{name}`; expected one of: {}", Arch::ALL.map(Arch::name).join(", "))]
pub struct UnknownArch {
    /// The name.
    pub name: String,
}

impl Arch {
    /// Every architecture.
    pub const ALL: [Arch; 3] = [Arch::Gfx908, Arch::Gfx90a, Arch::Gfx942];

    /// Returns the processor name: `gfx90a`.
    pub fn name(self) -> &'static str {
        match self {
            Arch::Gfx908 => "gfx908",
            Arch::Gfx90a => "gfx90a",
            Arch::Gfx942 => "gfx942",
        }
    }

    /// Returns the target ID of the virtual devices: the processor with its features, `gfx90a:sramecc+:xnack-`.
    pub fn target_id(self) -> String {
        format!("{}:sramecc+:xnack-", self.name())
    }

    /// Returns the `EF_AMDGPU_MACH_*` value of ELF's `e_flags`.
    pub fn elf_mach(self) -> u32 {
        match self {
            Arch::Gfx908 => 0x30,
            Arch::Gfx90a => 0x3f,
            Arch::Gfx942 => 0x4c,
        }
    }

    /// Returns the lanes of a wavefront.
    pub fn wave_size(self) -> u32 {
        64
    }

    /// Returns whether VGPRs and AGPRs share one register file of 512 registers per lane.
    pub fn has_unified_vgprs(self) -> bool {
        self >= Arch::Gfx90a
    }

    /// Returns the granule in which VGPRs are allocated.
    pub fn vgpr_granule(self) -> u32 {
        if self.has_unified_vgprs() { 8 } else { 4 }
    }

    /// Returns whether a workitem's three ids arrive packed in `v0`.
    pub fn has_packed_tid(self) -> bool {
        self >= Arch::Gfx90a
    }

    /// Returns whether scratch is addressed through `FLAT_SCRATCH`. Older architectures use a buffer resource in `s[0:3]`.
    pub fn has_architected_flat_scratch(self) -> bool {
        self >= Arch::Gfx942
    }

    /// Returns whether memory instructions have the fields of gfx940: cache policy `sc0`, `sc1`, `nt` and the bit that enables a scratch
    /// vector address. Older architectures have `glc`, `scc`, `slc` and `lds`.
    pub fn has_gfx940_memory_fields(self) -> bool {
        self >= Arch::Gfx942
    }

    /// Returns whether the hardware registers of gfx940 exist.
    pub fn has_gfx940_registers(self) -> bool {
        self >= Arch::Gfx942
    }
}

impl FromStr for Arch {
    type Err = UnknownArch;

    /// Parses `gfx90a`, or a target ID such as `gfx90a:sramecc+:xnack-`, whose features are ignored.
    fn from_str(name: &str) -> Result<Arch, UnknownArch> {
        let processor = name.split(':').next().unwrap_or(name);
        Arch::ALL.into_iter().find(|arch| arch.name() == processor).ok_or_else(|| UnknownArch { name: name.to_owned() })
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
