//! Hardware registers of `s_getreg` and `s_setreg`.

use crate::arch::{Arch, Generation};
use crate::bits::BitField;

pub const MODE: u32 = 1;
pub const STATUS: u32 = 2;
pub const TRAPSTS: u32 = 3;
pub const HW_ID: u32 = 4;
pub const GPR_ALLOC: u32 = 5;
pub const LDS_ALLOC: u32 = 6;
pub const IB_STS: u32 = 7;
pub const SH_MEM_BASES: u32 = 15;
pub const TBA_LO: u32 = 16;
pub const TBA_HI: u32 = 17;
pub const TMA_LO: u32 = 18;
pub const TMA_HI: u32 = 19;
pub const XCC_ID: u32 = 20;
pub const SQ_PERF_SNAPSHOT_DATA: u32 = 21;
pub const SQ_PERF_SNAPSHOT_DATA1: u32 = 22;
pub const SQ_PERF_SNAPSHOT_PC_LO: u32 = 23;
pub const SQ_PERF_SNAPSHOT_PC_HI: u32 = 24;

/// The names of GFX9's registers, without `HW_REG_`. gfx942 has the last five.
const GFX9: [(u32, &str); 17] = [
    (MODE, "MODE"),
    (STATUS, "STATUS"),
    (TRAPSTS, "TRAPSTS"),
    (HW_ID, "HW_ID"),
    (GPR_ALLOC, "GPR_ALLOC"),
    (LDS_ALLOC, "LDS_ALLOC"),
    (IB_STS, "IB_STS"),
    (SH_MEM_BASES, "SH_MEM_BASES"),
    (TBA_LO, "TBA_LO"),
    (TBA_HI, "TBA_HI"),
    (TMA_LO, "TMA_LO"),
    (TMA_HI, "TMA_HI"),
    (XCC_ID, "XCC_ID"),
    (SQ_PERF_SNAPSHOT_DATA, "SQ_PERF_SNAPSHOT_DATA"),
    (SQ_PERF_SNAPSHOT_DATA1, "SQ_PERF_SNAPSHOT_DATA1"),
    (SQ_PERF_SNAPSHOT_PC_LO, "SQ_PERF_SNAPSHOT_PC_LO"),
    (SQ_PERF_SNAPSHOT_PC_HI, "SQ_PERF_SNAPSHOT_PC_HI"),
];

/// The names of gfx10's registers. `XNACK_MASK` is gfx1010's, `SHADER_CYCLES` gfx1030's.
const GFX10: [(u32, &str); 18] = [
    (MODE, "MODE"),
    (STATUS, "STATUS"),
    (TRAPSTS, "TRAPSTS"),
    (GPR_ALLOC, "GPR_ALLOC"),
    (LDS_ALLOC, "LDS_ALLOC"),
    (IB_STS, "IB_STS"),
    (SH_MEM_BASES, "SH_MEM_BASES"),
    (TBA_LO, "TBA_LO"),
    (TBA_HI, "TBA_HI"),
    (TMA_LO, "TMA_LO"),
    (TMA_HI, "TMA_HI"),
    (20, "FLAT_SCR_LO"),
    (21, "FLAT_SCR_HI"),
    (22, "XNACK_MASK"),
    (23, "HW_ID1"),
    (24, "HW_ID2"),
    (25, "POPS_PACKER"),
    (29, "SHADER_CYCLES"),
];

/// The names of gfx11's registers.
const GFX11: [(u32, &str); 15] = [
    (MODE, "MODE"),
    (STATUS, "STATUS"),
    (TRAPSTS, "TRAPSTS"),
    (GPR_ALLOC, "GPR_ALLOC"),
    (LDS_ALLOC, "LDS_ALLOC"),
    (IB_STS, "IB_STS"),
    (SH_MEM_BASES, "SH_MEM_BASES"),
    (18, "PERF_SNAPSHOT_PC_LO"),
    (19, "PERF_SNAPSHOT_PC_HI"),
    (20, "FLAT_SCR_LO"),
    (21, "FLAT_SCR_HI"),
    (23, "HW_ID1"),
    (24, "HW_ID2"),
    (27, "PERF_SNAPSHOT_DATA"),
    (29, "SHADER_CYCLES"),
];

/// The names of gfx12's registers.
const GFX12: [(u32, &str); 22] = [
    (MODE, "MODE"),
    (STATUS, "STATUS"),
    (4, "STATE_PRIV"),
    (GPR_ALLOC, "GPR_ALLOC"),
    (LDS_ALLOC, "LDS_ALLOC"),
    (IB_STS, "IB_STS"),
    (10, "PERF_SNAPSHOT_DATA"),
    (11, "PERF_SNAPSHOT_PC_LO"),
    (12, "PERF_SNAPSHOT_PC_HI"),
    (15, "PERF_SNAPSHOT_DATA1"),
    (16, "PERF_SNAPSHOT_DATA2"),
    (17, "EXCP_FLAG_PRIV"),
    (18, "EXCP_FLAG_USER"),
    (19, "TRAP_CTRL"),
    (20, "SCRATCH_BASE_LO"),
    (21, "SCRATCH_BASE_HI"),
    (23, "HW_ID1"),
    (24, "HW_ID2"),
    (29, "SHADER_CYCLES_LO"),
    (30, "SHADER_CYCLES_HI"),
    (31, "DVGPR_ALLOC_LO"),
    (32, "DVGPR_ALLOC_HI"),
];

/// Returns the name of a register, without `HW_REG_`.
pub fn name(arch: Arch, id: u32) -> Option<&'static str> {
    let names: &[(u32, &str)] = match arch.generation() {
        Generation::Gfx9 if arch.has_gfx940_registers() => &GFX9,
        Generation::Gfx9 => &GFX9[..12],
        Generation::Gfx10 => &GFX10,
        Generation::Gfx11 => &GFX11,
        Generation::Gfx12 => &GFX12,
    };
    let name = names.iter().find(|(known, _)| *known == id)?.1;
    let exists = match name {
        "XNACK_MASK" => arch.has_xnack(),
        "SHADER_CYCLES" => arch.has_shader_cycles(),
        _ => true,
    };
    exists.then_some(name)
}

const ID: BitField = BitField::new(0, 6);
const OFFSET: BitField = BitField::new(6, 5);
const WIDTH_MINUS_1: BitField = BitField::new(11, 5);

/// The 16-bit operand that names bits of a hardware register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HwregOperand {
    pub id: u32,
    /// The lowest bit.
    pub offset: u32,
    /// The number of bits, 1 to 32.
    pub width: u32,
}

impl HwregOperand {
    /// Decodes the instruction's immediate.
    pub fn decode(imm: i32) -> HwregOperand {
        let imm = imm as u32;
        HwregOperand { id: ID.get(imm), offset: OFFSET.get(imm), width: WIDTH_MINUS_1.get(imm) + 1 }
    }

    /// Returns the mask of the bits, shifted to bit 0.
    pub fn mask(self) -> u32 {
        u32::MAX >> (32 - self.width)
    }
}
