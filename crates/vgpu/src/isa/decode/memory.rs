//! Memory instructions of RDNA.

use super::super::table::{Field, Format};
use super::super::{Inst, flag, operand};
use super::{DecodeError, bit, bits, field, second, signed};
use crate::arch::{Arch, Generation};

/// The number of `null` in gfx11 and gfx12, before it is exchanged with M0.
const NULL_GFX11: u16 = 124;

/// The scalar address field of gfx10 for no scalar address; in SCRATCH, for no vector address either.
const NO_ADDRESS_GFX10: u16 = 0x7f;

/// Returns the scalar address operand of a field; none for `null`.
fn scalar_address(arch: Arch, number: u16) -> u16 {
    let null = if arch.generation() >= Generation::Gfx11 { NULL_GFX11 } else { operand::NULL };
    if number == null { operand::NONE } else { number }
}

/// Returns the flags whose bits are set.
fn flags(word: u32, at: &[(u32, u16)]) -> u16 {
    at.iter().filter(|(at, _)| bit(word, *at)).fold(0, |all, (_, flag)| all | flag)
}

pub(super) fn smem(arch: Arch, mut inst: Inst, words: &[u32]) -> Result<Inst, DecodeError> {
    let (first, second) = (words[0], second(words)?);
    inst.words = 2;
    inst.dst = field(first, 6, 7);
    if inst.desc.registers(Field::Base) > 0 {
        inst.base = field(first, 0, 6) << 1;
    }
    inst.offset = scalar_address(arch, field(second, 25, 7));
    inst.imm = signed(second, 21);
    if inst.offset == operand::NONE || inst.imm != 0 || arch.generation() >= Generation::Gfx12 {
        inst.flags |= flag::IMM;
    }
    match arch.generation() {
        Generation::Gfx12 => {
            inst.imm = signed(second, 24);
            inst.temporal_hint = bits(first, 23, 2) as u8;
            inst.scope = bits(first, 21, 2) as u8;
        }
        Generation::Gfx11 => inst.flags |= flags(first, &[(14, flag::GLC), (13, flag::DLC)]),
        _ => inst.flags |= flags(first, &[(16, flag::GLC), (14, flag::DLC)]),
    }
    Ok(inst)
}

pub(super) fn ds(arch: Arch, mut inst: Inst, words: &[u32]) -> Result<Inst, DecodeError> {
    let (first, second) = (words[0], second(words)?);
    inst.words = 2;
    inst.imm = bits(first, 0, 16) as i32;
    if arch.generation() < Generation::Gfx12 {
        inst.flags = flags(first, &[(17, flag::GDS)]);
    }
    let vgpr = |low| operand::VGPR + field(second, low, 8);
    inst.src = [vgpr(0), vgpr(8), vgpr(16)];
    inst.dst = vgpr(24);
    Ok(inst)
}

/// Decodes FLAT, GLOBAL and SCRATCH of gfx10 and gfx11.
pub(super) fn flat(arch: Arch, mut inst: Inst, words: &[u32]) -> Result<Inst, DecodeError> {
    let (first, second) = (words[0], second(words)?);
    let gfx10 = arch.generation() == Generation::Gfx10;
    inst.words = 2;
    let width = if gfx10 { 12 } else { 13 };
    // FLAT offsets are unsigned; the others are signed.
    inst.imm = if inst.desc.format == Format::FLAT { bits(first, 0, width - 1) as i32 } else { signed(first, width) };
    inst.flags = if gfx10 {
        flags(first, &[(16, flag::GLC), (17, flag::SLC), (12, flag::DLC), (13, flag::LDS)])
    } else {
        flags(first, &[(14, flag::GLC), (15, flag::SLC), (13, flag::DLC)])
    };
    if inst.desc.format != Format::FLAT {
        let base = field(second, 16, 7);
        inst.base = scalar_address(arch, base);
        if inst.desc.format == Format::SCRATCH {
            // gfx11 has a bit for it; before, a scalar base excludes a vector address, and 0x7f means neither.
            let vector = if gfx10 { inst.base == operand::NONE } else { bit(second, 23) };
            inst.flags |= if vector { flag::VADDR } else { 0 };
        }
        if gfx10 && base == NO_ADDRESS_GFX10 {
            inst.base = operand::NONE;
        }
    }
    inst.src = [operand::VGPR + field(second, 0, 8), operand::VGPR + field(second, 8, 8), 0];
    inst.dst = operand::VGPR + field(second, 24, 8);
    Ok(inst)
}

/// Decodes VFLAT, VGLOBAL and VSCRATCH of gfx12.
pub(super) fn flat_gfx12(arch: Arch, mut inst: Inst, words: &[u32]) -> Result<Inst, DecodeError> {
    let [first, second, third] = three(words)?;
    inst.words = 3;
    inst.imm = signed(third >> 8, 24);
    policy(&mut inst, second);
    if inst.desc.format != Format::FLAT {
        inst.base = scalar_address(arch, field(first, 0, 7));
    }
    if inst.desc.format == Format::SCRATCH {
        inst.flags |= flags(second, &[(17, flag::VADDR)]);
    }
    inst.src = [operand::VGPR + field(third, 0, 8), operand::VGPR + field(second, 23, 8), 0];
    inst.dst = operand::VGPR + field(second, 0, 8);
    Ok(inst)
}

/// Decodes MUBUF of gfx10 and gfx11.
pub(super) fn mubuf(arch: Arch, mut inst: Inst, words: &[u32]) -> Result<Inst, DecodeError> {
    let (first, second) = (words[0], second(words)?);
    inst.words = 2;
    inst.imm = bits(first, 0, 12) as i32;
    inst.flags = if arch.generation() == Generation::Gfx10 {
        flags(first, &[(12, flag::OFFEN), (13, flag::IDXEN), (14, flag::GLC), (15, flag::DLC), (16, flag::LDS)])
            | flags(second, &[(22, flag::SLC), (23, flag::TFE)])
    } else {
        flags(first, &[(12, flag::SLC), (13, flag::DLC), (14, flag::GLC)])
            | flags(second, &[(21, flag::TFE), (22, flag::OFFEN), (23, flag::IDXEN)])
    };
    inst.src[0] = operand::VGPR + field(second, 0, 8);
    inst.dst = operand::VGPR + field(second, 8, 8);
    inst.base = field(second, 16, 5) << 2;
    inst.offset = field(second, 24, 8);
    Ok(inst)
}

/// Decodes VBUFFER of gfx12.
pub(super) fn vbuffer(mut inst: Inst, words: &[u32]) -> Result<Inst, DecodeError> {
    let [first, second, third] = three(words)?;
    inst.words = 3;
    inst.imm = signed(third >> 8, 24);
    policy(&mut inst, second);
    inst.flags |= flags(first, &[(22, flag::TFE)]) | flags(second, &[(30, flag::OFFEN), (31, flag::IDXEN)]);
    inst.src[0] = operand::VGPR + field(third, 0, 8);
    inst.dst = operand::VGPR + field(second, 0, 8);
    inst.base = field(second, 9, 9);
    inst.offset = field(first, 0, 7);
    Ok(inst)
}

fn three(words: &[u32]) -> Result<[u32; 3], DecodeError> {
    words.first_chunk().copied().ok_or(DecodeError::Truncated)
}

/// Reads gfx12's cache policy.
fn policy(inst: &mut Inst, second: u32) {
    inst.scope = bits(second, 18, 2) as u8;
    inst.temporal_hint = bits(second, 20, 3) as u8;
    let returns = inst.desc.name.contains("_atomic_") && inst.temporal_hint & 1 != 0;
    inst.flags = if returns { flag::GLC } else { 0 };
}
