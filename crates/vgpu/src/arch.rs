//! The GPU architectures: what the instruction set and the devices of each have.

use std::fmt;
use std::str::FromStr;

/// An AMD GPU architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Arch {
    /// GCN 5: Vega 20, MI50.
    Gfx906,
    /// CDNA: MI100.
    Gfx908,
    /// CDNA 2: MI200.
    Gfx90a,
    /// CDNA 3: MI300.
    Gfx942,
    /// RDNA: Navi 10.
    Gfx1010,
    /// RDNA 2: Navi 21.
    Gfx1030,
    /// RDNA 3: Navi 31.
    Gfx1100,
    /// RDNA 4: Navi 48.
    Gfx1201,
}

/// A generation of the instruction set. Encodings are the same within one, up to added and removed instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Generation {
    /// GCN 5 and CDNA.
    Gfx9,
    /// RDNA and RDNA 2.
    Gfx10,
    /// RDNA 3.
    Gfx11,
    /// RDNA 4.
    Gfx12,
}

/// The number of lanes of a wavefront.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WaveSize {
    /// 32 lanes; lane masks are single SGPRs.
    Wave32,
    /// 64 lanes; lane masks are pairs of SGPRs.
    Wave64,
}

impl WaveSize {
    /// Returns the number of lanes.
    pub fn lanes(self) -> u32 {
        match self {
            WaveSize::Wave32 => 32,
            WaveSize::Wave64 => 64,
        }
    }

    /// Returns the SGPRs of a lane mask.
    pub fn mask_registers(self) -> u8 {
        match self {
            WaveSize::Wave32 => 1,
            WaveSize::Wave64 => 2,
        }
    }
}

/// What the meaning of machine code depends on: the architecture and the wave size that a kernel was compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Target {
    /// The architecture.
    pub arch: Arch,
    /// The wave size.
    pub wave_size: WaveSize,
}

impl From<Arch> for Target {
    /// Returns the architecture with its default wave size.
    fn from(arch: Arch) -> Target {
        Target { arch, wave_size: arch.wave_sizes()[0] }
    }
}

/// A name that is not one of [`Arch::ALL`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown architecture `{name}`; expected one of: {}", Arch::ALL.map(Arch::name).join(", "))]
pub struct UnknownArch {
    /// The name.
    pub name: String,
}

impl Arch {
    /// Every architecture: virtual devices have them all.
    pub const ALL: [Arch; 8] =
        [Arch::Gfx906, Arch::Gfx908, Arch::Gfx90a, Arch::Gfx942, Arch::Gfx1010, Arch::Gfx1030, Arch::Gfx1100, Arch::Gfx1201];

    /// Returns the processor name: `gfx90a`.
    pub fn name(self) -> &'static str {
        match self {
            Arch::Gfx906 => "gfx906",
            Arch::Gfx908 => "gfx908",
            Arch::Gfx90a => "gfx90a",
            Arch::Gfx942 => "gfx942",
            Arch::Gfx1010 => "gfx1010",
            Arch::Gfx1030 => "gfx1030",
            Arch::Gfx1100 => "gfx1100",
            Arch::Gfx1201 => "gfx1201",
        }
    }

    /// Returns the target ID of the virtual devices: the processor with its features, `gfx90a:sramecc+:xnack-`.
    pub fn target_id(self) -> String {
        let features = match (self.has_sramecc(), self.has_xnack()) {
            (true, true) => ":sramecc+:xnack-",
            (true, false) => ":sramecc+",
            (false, true) => ":xnack-",
            (false, false) => "",
        };
        format!("{}{features}", self.name())
    }

    /// Returns the `EF_AMDGPU_MACH_*` value of ELF's `e_flags`.
    pub fn elf_mach(self) -> u32 {
        match self {
            Arch::Gfx906 => 0x2f,
            Arch::Gfx908 => 0x30,
            Arch::Gfx90a => 0x3f,
            Arch::Gfx942 => 0x4c,
            Arch::Gfx1010 => 0x33,
            Arch::Gfx1030 => 0x36,
            Arch::Gfx1100 => 0x41,
            Arch::Gfx1201 => 0x4e,
        }
    }

    /// Returns the generation of the instruction set.
    pub fn generation(self) -> Generation {
        match self {
            Arch::Gfx906 | Arch::Gfx908 | Arch::Gfx90a | Arch::Gfx942 => Generation::Gfx9,
            Arch::Gfx1010 | Arch::Gfx1030 => Generation::Gfx10,
            Arch::Gfx1100 => Generation::Gfx11,
            Arch::Gfx1201 => Generation::Gfx12,
        }
    }

    /// Returns whether the architecture is one of RDNA: gfx10 and later.
    pub fn is_rdna(self) -> bool {
        self.generation() >= Generation::Gfx10
    }

    /// Returns the wave sizes that kernels can be compiled for, the compiler's default first.
    pub fn wave_sizes(self) -> &'static [WaveSize] {
        if self.is_rdna() { &[WaveSize::Wave32, WaveSize::Wave64] } else { &[WaveSize::Wave64] }
    }

    /// Returns the lanes of a wavefront of the default size.
    pub fn wave_size(self) -> u32 {
        Target::from(self).wave_size.lanes()
    }

    /// Returns whether target IDs state whether ECC protects SRAM.
    pub fn has_sramecc(self) -> bool {
        self.generation() == Generation::Gfx9
    }

    /// Returns whether target IDs state whether page faults are replayed.
    pub fn has_xnack(self) -> bool {
        self.generation() == Generation::Gfx9 || self == Arch::Gfx1010
    }

    /// Returns whether `XNACK_MASK` and `FLAT_SCRATCH` are SGPR operands. RDNA has ordinary SGPRs there.
    pub fn has_special_sgprs(self) -> bool {
        self.generation() == Generation::Gfx9
    }

    /// Returns whether the instruction set has the additions of gfx10.3, RDNA 2.
    fn has_gfx10_3(self) -> bool {
        self.is_rdna() && self != Arch::Gfx1010
    }

    /// Returns whether `s_waitcnt_depctr` has the counter `hold_cnt`.
    pub fn has_depctr_hold_cnt(self) -> bool {
        self.has_gfx10_3()
    }

    /// Returns whether the cycle counter is a hardware register.
    pub fn has_shader_cycles(self) -> bool {
        self.has_gfx10_3()
    }

    /// Returns whether VOP1, VOP2 and VOPC have SDWA forms.
    pub fn has_sdwa(self) -> bool {
        self.generation() <= Generation::Gfx10
    }

    /// Returns whether VOP3 and VOP3P have DPP forms.
    pub fn has_vop3_dpp(self) -> bool {
        self.generation() >= Generation::Gfx11
    }

    /// Returns whether there are AGPRs and matrix instructions on them (MFMA).
    pub fn has_agprs(self) -> bool {
        matches!(self, Arch::Gfx908) || self.has_unified_vgprs()
    }

    /// Returns whether VGPRs and AGPRs share one register file of 512 registers per lane.
    pub fn has_unified_vgprs(self) -> bool {
        matches!(self, Arch::Gfx90a | Arch::Gfx942)
    }

    /// Returns the granule in which kernel descriptors count VGPRs.
    pub fn vgpr_encoding_granule(self, wave_size: WaveSize) -> u32 {
        match (self.is_rdna(), wave_size) {
            (true, WaveSize::Wave32) => 8,
            (false, _) if self.has_unified_vgprs() => 8,
            _ => 4,
        }
    }

    /// Returns the granule in which VGPRs are allocated.
    pub fn vgpr_granule(self, wave_size: WaveSize) -> u32 {
        let wave32 = match self {
            // 1,536 VGPRs of 32 lanes per SIMD.
            Arch::Gfx1100 | Arch::Gfx1201 => 24,
            Arch::Gfx1030 => 16,
            _ => return self.vgpr_encoding_granule(wave_size),
        };
        if wave_size == WaveSize::Wave32 { wave32 } else { wave32 / 2 }
    }

    /// Returns whether a workitem's three ids arrive packed in `v0`.
    pub fn has_packed_tid(self) -> bool {
        self.has_unified_vgprs() || self.generation() >= Generation::Gfx11
    }

    /// Returns whether scratch is addressed through `FLAT_SCRATCH`, which a wavefront starts with. Older architectures use a buffer
    /// resource in `s[0:3]`.
    pub fn has_architected_flat_scratch(self) -> bool {
        self == Arch::Gfx942 || self.generation() >= Generation::Gfx11
    }

    /// Returns whether workgroup ids arrive in trap temporaries (`ttmp9`, `ttmp7`) instead of SGPRs.
    pub fn has_architected_sgprs(self) -> bool {
        self.generation() >= Generation::Gfx12
    }

    /// Returns whether memory instructions have the fields of gfx940: cache policy `sc0`, `sc1`, `nt` and the bit that enables a scratch
    /// vector address. Other GFX9 architectures have `glc`, `scc`, `slc` and `lds`.
    pub fn has_gfx940_memory_fields(self) -> bool {
        self == Arch::Gfx942
    }

    /// Returns whether the hardware registers of gfx940 exist.
    pub fn has_gfx940_registers(self) -> bool {
        self == Arch::Gfx942
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_ids_state_the_features_that_the_architecture_has() {
        let ids = Arch::ALL.map(Arch::target_id);
        let gfx9 = ["gfx906:sramecc+:xnack-", "gfx908:sramecc+:xnack-", "gfx90a:sramecc+:xnack-", "gfx942:sramecc+:xnack-"];
        assert_eq!(ids[..4], gfx9);
        assert_eq!(ids[4..], ["gfx1010:xnack-", "gfx1030", "gfx1100", "gfx1201"]);
        assert!(ids.iter().zip(Arch::ALL).all(|(id, arch)| id.parse() == Ok(arch)));
    }

    #[test]
    fn vgprs_are_allocated_in_the_granules_of_llvm() {
        let of = |arch: Arch| arch.wave_sizes().iter().map(move |&size| (arch.vgpr_encoding_granule(size), arch.vgpr_granule(size)));
        let all: Vec<_> = Arch::ALL.into_iter().flat_map(of).collect();
        let gfx9 = [(4, 4), (4, 4), (8, 8), (8, 8)];
        let rdna = [(8, 8), (4, 4), (8, 16), (4, 8), (8, 24), (4, 12), (8, 24), (4, 12)];
        assert_eq!((&all[..4], &all[4..]), (&gfx9[..], &rdna[..]));
    }
}
