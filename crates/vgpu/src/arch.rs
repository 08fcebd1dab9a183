//! The architectures the virtual GPU knows.

use std::fmt;

/// An AMD architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Arch {
    /// CDNA: MI100.
    Gfx908,
    /// CDNA 2: MI200.
    Gfx90a,
    /// CDNA 3: MI300.
    Gfx942,
}

impl Arch {
    /// Every architecture.
    pub const ALL: [Arch; 3] = [Arch::Gfx908, Arch::Gfx90a, Arch::Gfx942];

    /// By name: `gfx90a`, or with features: `gfx90a:sramecc+:xnack-`.
    pub fn from_name(name: &str) -> Option<Arch> {
        let base = name.split(':').next().unwrap_or(name);
        Arch::ALL.into_iter().find(|arch| arch.name() == base)
    }

    /// `gfx90a`.
    pub fn name(self) -> &'static str {
        match self {
            Arch::Gfx908 => "gfx908",
            Arch::Gfx90a => "gfx90a",
            Arch::Gfx942 => "gfx942",
        }
    }

    /// With the features the virtual devices run with: `gfx90a:sramecc+:xnack-`.
    pub fn full_name(self) -> String {
        format!("{}:sramecc+:xnack-", self.name())
    }

    /// ELF's number for it (`EF_AMDGPU_MACH_*`).
    pub fn machine(self) -> u32 {
        match self {
            Arch::Gfx908 => 0x30,
            Arch::Gfx90a => 0x3f,
            Arch::Gfx942 => 0x4c,
        }
    }

    /// Vector and accumulation registers are one file: a wave may use 512 of them.
    pub fn unified_registers(self) -> bool {
        self >= Arch::Gfx90a
    }

    /// A work-item's three ids arrive packed in `v0`.
    pub fn packed_ids(self) -> bool {
        self >= Arch::Gfx90a
    }

    /// Scratch is addressed through the hardware's own `FLAT_SCRATCH`; before, through a buffer resource in `s[0:3]`.
    pub fn architected_scratch(self) -> bool {
        self >= Arch::Gfx942
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
