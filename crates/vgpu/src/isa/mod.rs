//! The instruction set as data: the table of opcodes, and the decoder that turns words into [`Inst`].

mod decode;
mod printer;
mod table;

pub use decode::{DecodeError, decode};
pub use printer::{branch_target, disassemble};
pub use table::{Field, Format, InstDesc, Operand, inst_descs};

/// Operand numbers, as the 9-bit source fields of the hardware use them; accumulation registers follow.
pub mod operand {
    /// `flat_scratch`, low half.
    pub const FLAT_SCRATCH: u16 = 102;
    /// `xnack_mask`, low half.
    pub const XNACK_MASK: u16 = 104;
    /// `vcc`, low half.
    pub const VCC: u16 = 106;
    /// The first trap temporary.
    pub const TTMP0: u16 = 108;
    /// `m0`.
    pub const M0: u16 = 124;
    /// `null` in LLVM's words; the architectures here have nothing there.
    pub const NULL: u16 = 125;
    /// `exec`, low half.
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
    /// High half of the shared aperture's address, as a 64-bit value.
    pub const SHARED_BASE: u16 = 235;
    /// The last byte of the shared aperture.
    pub const SHARED_LIMIT: u16 = 236;
    /// The private aperture.
    pub const PRIVATE_BASE: u16 = 237;
    /// The last byte of the private aperture.
    pub const PRIVATE_LIMIT: u16 = 238;
    /// The wave's place in the order of pixel shaders.
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
    /// Whether `vcc` is 0.
    pub const VCCZ: u16 = 251;
    /// Whether `exec` is 0.
    pub const EXECZ: u16 = 252;
    /// The scalar condition code.
    pub const SCC: u16 = 253;
    /// A value from LDS, for pixel shaders.
    pub const LDS_DIRECT: u16 = 254;
    /// The 32-bit literal that follows the instruction.
    pub const LITERAL: u16 = 255;
    /// The first vector register.
    pub const VGPR: u16 = 256;
    /// The first accumulation register.
    pub const AGPR: u16 = 512;
    /// No operand: an absent scalar base (`off`, `null`).
    pub const NONE: u16 = 0xffff;
}

/// How the first source of a VOP1, VOP2 or VOPC is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Extension {
    /// As it is.
    #[default]
    None,
    /// Bytes and words selected: the fields of the extra word beyond the register.
    Sdwa(Sdwa),
    /// Lanes moved.
    Dpp(Dpp),
}

/// Sub-dword addressing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sdwa {
    /// 0..=3 bytes, 4 and 5 words, 6 the whole register.
    pub dst_sel: u8,
    /// What becomes of the rest of the destination: 0 zero, 1 sign, 2 kept.
    pub dst_unused: u8,
    /// As `dst_sel`, for each source.
    pub src_sel: [u8; 2],
    /// Sign-extend each source.
    pub sext: [bool; 2],
}

/// Data-parallel primitives: the first source comes from another lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Dpp {
    /// Which lane.
    pub ctrl: u16,
    /// Lanes outside read 0 instead of leaving the destination alone.
    pub bound_ctrl: bool,
    /// Which of each row's four banks are written.
    pub bank_mask: u8,
    /// Which of the four rows are written.
    pub row_mask: u8,
}

/// A decoded instruction. Fields an encoding does not have are 0.
///
/// Memory instructions use `src[0]` for the vector address, `src[1]` and `src[2]` for data, `dst` for what is read,
/// `base` for the scalar base or resource and `offset` for the scalar offset.
#[derive(Debug, Clone, Copy)]
pub struct Inst {
    /// What the table says of it.
    pub desc: &'static InstDesc,
    /// Its size in 32-bit words.
    pub words: u8,
    /// The destination's operand number.
    pub dst: u16,
    /// The scalar destination of VOP3B, VOPC and SDWA compares.
    pub sdst: u16,
    /// The sources' operand numbers.
    pub src: [u16; 3],
    /// A scalar base: `saddr`, `sbase`, a buffer resource; [`operand::NONE`] when there is none.
    pub base: u16,
    /// A scalar offset; [`operand::NONE`] when there is none.
    pub offset: u16,
    /// The literal, when a source is [`operand::LITERAL`] or the instruction has one of its own.
    pub literal: u32,
    /// An immediate: SOPK and SOPP's 16 bits, a memory offset (DS: `offset0 | offset1 << 8`).
    pub imm: i32,
    /// Bit per source: absolute value.
    pub abs: u8,
    /// Bit per source: negated (VOP3P: the low half). MFMA: `blgp`.
    pub neg: u8,
    /// VOP3P: bit per source, the high half negated; `v_fma_mix…`: the absolute value. MFMA: `cbsz`.
    pub neg_hi: u8,
    /// VOP3: bit per source and for the destination, the high half. MFMA: `abid`.
    pub op_sel: u8,
    /// VOP3P: bit per source, which half makes the high result.
    pub op_sel_hi: u8,
    /// Output modifier: 0 none, 1 ·2, 2 ·4, 3 ÷2.
    pub omod: u8,
    /// Clamp the result.
    pub clamp: bool,
    /// Bits of memory instructions; see [`flag`].
    pub flags: u16,
    /// SDWA or DPP.
    pub ext: Extension,
}

impl Inst {
    /// An instruction without operands or modifiers.
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
            ext: Extension::None,
        }
    }
}

/// Bits of [`Inst::flags`].
pub mod flag {
    /// `glc` (gfx942: `sc0`): atomics return the old value.
    pub const GLC: u16 = 1;
    /// `slc` (gfx942: `nt`).
    pub const SLC: u16 = 2;
    /// gfx942's `sc1`, gfx90a's `scc`.
    pub const SC1: u16 = 4;
    /// The data goes to LDS.
    pub const LDS: u16 = 8;
    /// MUBUF: the vector address holds an offset.
    pub const OFFEN: u16 = 16;
    /// MUBUF: the vector address holds an index.
    pub const IDXEN: u16 = 32;
    /// DS: global data share.
    pub const GDS: u16 = 64;
    /// SCRATCH: the vector address is used.
    pub const VADDR: u16 = 128;
    /// FLAT: `nv`, the non-volatile hint of gfx908.
    pub const NV: u16 = 256;
    /// MUBUF: texture fail enable (gfx908).
    pub const TFE: u16 = 512;
    /// SMEM: `imm` is the offset, not a register's number.
    pub const IMM: u16 = 1024;
}
