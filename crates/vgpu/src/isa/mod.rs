//! The instruction set: the table of instructions as data, the decoder, and the disassembler.

mod decode;
pub(crate) mod hwreg;
mod printer;
mod table;

pub use decode::{DecodeError, decode};
pub use printer::{branch_target, disassemble};
pub use table::{Field, Format, Half, InstDesc, Operand, inst_descs};

/// Operand numbers of the hardware's 9-bit source fields; AGPRs follow.
pub mod operand {
    /// `FLAT_SCRATCH`, low half; an ordinary SGPR on RDNA, as are the next three.
    pub const FLAT_SCRATCH: u16 = 102;
    /// `XNACK_MASK`, low half.
    pub const XNACK_MASK: u16 = 104;
    /// VCC, low half.
    pub const VCC: u16 = 106;
    /// The first trap temporary, `ttmp0`.
    pub const TTMP0: u16 = 108;
    /// M0. gfx11 and later encode it as 125; the decoder returns this number everywhere.
    pub const M0: u16 = 124;
    /// `null`: reads 0, ignores writes. gfx11 and later encode it as 124; reserved on GFX9.
    pub const NULL: u16 = 125;
    /// EXEC, low half.
    pub const EXEC: u16 = 126;
    /// EXEC, high half.
    pub const EXEC_HI: u16 = 127;
    /// Inline integer 0, the first inline constant.
    pub const INLINE: u16 = 128;
    /// Inline integer 64.
    pub const INLINE_INT_MAX: u16 = 192;
    /// Inline integer -1; -2 and below follow.
    pub const INLINE_INT_MINUS_1: u16 = 193;
    /// Inline integer -16.
    pub const INLINE_INT_MIN: u16 = 208;
    /// A source field that says that a DPP8 dword follows.
    pub const DPP8: u16 = 233;
    /// A source field that says that a DPP8 dword follows, with `fi`.
    pub const DPP8_FI: u16 = 234;
    /// Base of the shared aperture (64-bit).
    pub const SHARED_BASE: u16 = 235;
    /// Limit of the shared aperture.
    pub const SHARED_LIMIT: u16 = 236;
    /// Base of the private aperture.
    pub const PRIVATE_BASE: u16 = 237;
    /// Limit of the private aperture.
    pub const PRIVATE_LIMIT: u16 = 238;
    /// `src_pops_exiting_wave_id`.
    pub const POPS: u16 = 239;
    /// Inline float 0.5; -0.5, 1, -1, 2, -2, 4 and -4 follow.
    pub const INLINE_FLOAT: u16 = 240;
    /// Inline float -4.
    pub const INLINE_FLOAT_LAST: u16 = 247;
    /// Inline float 1/(2π).
    pub const INLINE_INV_2PI: u16 = 248;
    /// A source field that says that an SDWA dword follows.
    pub const SDWA: u16 = 249;
    /// A source field that says that a DPP dword follows.
    pub const DPP: u16 = 250;
    /// `src_vccz`: whether VCC is 0.
    pub const VCCZ: u16 = 251;
    /// `src_execz`: whether EXEC is 0.
    pub const EXECZ: u16 = 252;
    /// `src_scc`.
    pub const SCC: u16 = 253;
    /// `src_lds_direct`.
    pub const LDS_DIRECT: u16 = 254;
    /// The literal that follows the instruction.
    pub const LITERAL: u16 = 255;
    /// The first VGPR.
    pub const VGPR: u16 = 256;
    /// The first AGPR.
    pub const AGPR: u16 = 512;
    /// No operand: an absent scalar base (`off`).
    pub const NONE: u16 = 0xffff;
}

/// The extension dword of a vector instruction, or the second operation of a dual-issue instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Extension {
    /// None.
    #[default]
    None,
    /// Sub-dword addressing.
    Sdwa(Sdwa),
    /// Data-parallel primitives.
    Dpp(Dpp),
    /// Data-parallel primitives within eight lanes.
    Dpp8(Dpp8),
    /// The second operation of a dual-issue instruction (VOPD).
    Dual(Dual),
}

/// Fields of an SDWA dword.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sdwa {
    /// `BYTE_0..=3` are 0 to 3, `WORD_0` and `WORD_1` 4 and 5, `DWORD` 6.
    pub dst_sel: u8,
    /// The rest of the destination: 0 zero-filled, 1 sign-extended, 2 preserved.
    pub dst_unused: u8,
    /// The selection of each source, as for `dst_sel`.
    pub src_sel: [u8; 2],
    /// Whether each source is sign-extended.
    pub sext: [bool; 2],
}

/// Fields of a DPP dword: the first source comes from another lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Dpp {
    /// The permutation (`dpp_ctrl`).
    pub ctrl: u16,
    /// Whether invalid source lanes read 0 instead of disabling the write.
    pub bound_ctrl: bool,
    /// Enabled banks of each row.
    pub bank_mask: u8,
    /// Enabled rows.
    pub row_mask: u8,
    /// Whether disabled source lanes are read too (`fi`, RDNA).
    pub fetch_inactive: bool,
}

impl Dpp {
    /// Returns whether RDNA does not have the permutation: shifts and rotations of the wavefront, and broadcasts to other rows.
    pub fn is_reserved_on_rdna(self) -> bool {
        matches!(self.ctrl, 0x130..=0x13f | 0x142 | 0x143)
    }
}

/// Fields of a DPP8 dword: the first source comes from another lane of the same eight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Dpp8 {
    /// The source lane of each lane, 3 bits each; the first in the lowest bits.
    pub lanes: u32,
    /// Whether disabled source lanes are read too (`fi`).
    pub fetch_inactive: bool,
}

/// The second operation of a dual-issue instruction. Both read their sources before either writes, and share one literal.
#[derive(Debug, Clone, Copy)]
pub struct Dual {
    /// The operation's row of the table.
    pub desc: &'static InstDesc,
    /// The destination operand.
    pub dst: u16,
    /// The source operands.
    pub src: [u16; 2],
}

impl PartialEq for Dual {
    fn eq(&self, other: &Dual) -> bool {
        std::ptr::eq(self.desc, other.desc) && (self.dst, self.src) == (other.dst, other.src)
    }
}

impl Eq for Dual {}

/// A decoded instruction. Fields that an encoding lacks are 0.
///
/// Memory instructions have the vector address in `src[0]`, data in `src[1]` and `src[2]`, the loaded value in `dst`, the scalar base or
/// resource in `base`, and the scalar offset in `offset`.
#[derive(Debug, Clone, Copy)]
pub struct Inst {
    /// The instruction's row of the table.
    pub desc: &'static InstDesc,
    /// Size in dwords.
    pub words: u8,
    /// The destination operand.
    pub dst: u16,
    /// The scalar destination of VOP3B, VOPC and SDWA compares.
    pub sdst: u16,
    /// The source operands.
    pub src: [u16; 3],
    /// A scalar base (`saddr`, `sbase`) or buffer resource; [`operand::NONE`] when absent.
    pub base: u16,
    /// A scalar offset; [`operand::NONE`] when absent.
    pub offset: u16,
    /// The literal, when a source is [`operand::LITERAL`] or the instruction has one implicitly.
    pub literal: u32,
    /// The immediate: 16 bits of SOPK and SOPP, a memory offset (DS: `offset0 | offset1 << 8`).
    pub imm: i32,
    /// A bit per source: abs.
    pub abs: u8,
    /// A bit per source: neg (VOP3P: `neg_lo`). MFMA: `blgp`.
    pub neg: u8,
    /// VOP3P: `neg_hi`, a bit per source; `v_fma_mix…`: abs. MFMA: `cbsz`.
    pub neg_hi: u8,
    /// `op_sel`: a bit per source and, in VOP3, one for the destination. It also holds the halves that VOP1, VOP2 and VOPC of gfx11 name in
    /// the register. MFMA: `abid`.
    pub op_sel: u8,
    /// VOP3P: `op_sel_hi`, a bit per source.
    pub op_sel_hi: u8,
    /// Output modifier: 0 none, 1 `mul:2`, 2 `mul:4`, 3 `div:2`.
    pub omod: u8,
    /// Whether the result is clamped.
    pub clamp: bool,
    /// Flags of memory instructions; see [`flag`].
    pub flags: u16,
    /// Temporal hint of memory instructions (`th`, gfx12).
    pub temporal_hint: u8,
    /// Scope of memory instructions (gfx12): 0 CU, 1 SE, 2 device, 3 system.
    pub scope: u8,
    /// The SDWA or DPP extension, or the second operation of VOPD.
    pub ext: Extension,
}

impl Inst {
    /// Creates an instruction without operands and modifiers.
    pub fn new(desc: &'static InstDesc) -> Inst {
        Inst {
            desc,
            words: 1,
            dst: 0,
            sdst: operand::VCC,
            src: [0; 3],
            base: operand::NONE,
            offset: operand::NONE,
            literal: 0,
            imm: 0,
            abs: 0,
            neg: 0,
            neg_hi: 0,
            op_sel: 0,
            op_sel_hi: 0,
            omod: 0,
            clamp: false,
            flags: 0,
            temporal_hint: 0,
            scope: 0,
            ext: Extension::None,
        }
    }
}

/// Bits of [`Inst::flags`].
pub mod flag {
    /// `glc` (gfx942: `sc0`, gfx12: bit 0 of an atomic's `th`): atomics return the old value.
    pub const GLC: u16 = 1;
    /// `slc` (gfx942: `nt`).
    pub const SLC: u16 = 2;
    /// gfx942's `sc1`, gfx90a's `scc`.
    pub const SC1: u16 = 4;
    /// The data goes to LDS.
    pub const LDS: u16 = 8;
    /// MUBUF `offen`: the vector address contains an offset.
    pub const OFFEN: u16 = 16;
    /// MUBUF `idxen`: the vector address contains an index.
    pub const IDXEN: u16 = 32;
    /// DS `gds`.
    pub const GDS: u16 = 64;
    /// SCRATCH: the vector address is used.
    pub const VADDR: u16 = 128;
    /// FLAT: `nv`, the non-volatile hint of gfx908.
    pub const NV: u16 = 256;
    /// MUBUF `tfe` (gfx908).
    pub const TFE: u16 = 512;
    /// SMEM: `imm` is the offset, not a register number.
    pub const IMM: u16 = 1024;
    /// `dlc` (gfx10 and gfx11).
    pub const DLC: u16 = 2048;
}
