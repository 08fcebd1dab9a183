//! GFX9: GCN 5 and CDNA.

use super::super::table::Format;
use super::super::{Inst, flag, operand};
use super::scalar::scalar;
use super::vector::{to_agpr, vop, vop3};
use super::{DecodeError, Field, bit, bits, field, row, second, signed};
use crate::arch::Arch;

/// The value of the scalar base field of FLAT encodings for `off`.
const SADDR_OFF: u16 = 0x7f;
/// VOP3 opcodes of the interpolation instructions.
const VOP3_INTERPOLATION: std::ops::RangeInclusive<u32> = 624..=631;

/// Decodes the fields of the instruction that begins with `first`.
pub(super) fn fields(arch: Arch, first: u32, words: &[u32]) -> Result<Inst, DecodeError> {
    let second = || second(words);
    let row = |format, opcode| row(arch, format, opcode);
    match first >> 23 {
        0b1_0111_1101 => return scalar(Inst::new(row(Format::SOP1, bits(first, 8, 8))?), words),
        0b1_0111_1110 => return scalar(Inst::new(row(Format::SOPC, bits(first, 16, 7))?), words),
        0b1_0111_1111 => return scalar(Inst::new(row(Format::SOPP, bits(first, 16, 7))?), words),
        0b1_1010_0111 => return Ok(packed(arch, Inst::new(row(Format::VOP3P, bits(first, 16, 7))?), first, second()?)),
        _ => {}
    }
    match first >> 26 {
        0b110000 => return Ok(smem(Inst::new(row(Format::SMEM, bits(first, 18, 8))?), first, second()?)),
        0b110100 if VOP3_INTERPOLATION.contains(&bits(first, 16, 10)) => return Err(DecodeError::GraphicsOnly("interpolation")),
        0b110100 => return vop3(arch, Inst::new(row(Format::VOP3, bits(first, 16, 10))?), words),
        0b110110 => return Ok(ds(arch, Inst::new(row(Format::DS, bits(first, 17, 8))?), first, second()?)),
        0b110111 => {
            let format = match bits(first, 14, 2) {
                0 => Format::FLAT,
                1 => Format::SCRATCH,
                2 => Format::GLOBAL,
                _ => return Err(DecodeError::UnknownEncoding(first)),
            };
            return Ok(flat(arch, Inst::new(row(format, bits(first, 18, 7))?), first, second()?));
        }
        0b110001 => return Err(DecodeError::GraphicsOnly("EXP")),
        0b110101 => return Err(DecodeError::GraphicsOnly("interpolation")),
        0b111010 => return Err(DecodeError::GraphicsOnly("MTBUF")),
        0b111100 => return Err(DecodeError::GraphicsOnly("MIMG")),
        0b111000 => return Ok(mubuf(arch, Inst::new(row(Format::MUBUF, bits(first, 18, 7))?), first, second()?)),
        _ => {}
    }
    match first >> 28 {
        0b1011 => return scalar(Inst::new(row(Format::SOPK, bits(first, 23, 5))?), words),
        0b1000..=0b1010 => return scalar(Inst::new(row(Format::SOP2, bits(first, 23, 7))?), words),
        _ => {}
    }
    if first >> 31 == 0 {
        let row = match first >> 25 {
            0b0111111 => row(Format::VOP1, bits(first, 9, 8))?,
            0b0111110 => row(Format::VOPC, bits(first, 17, 8))?,
            _ => row(Format::VOP2, bits(first, 25, 6))?,
        };
        return vop(arch, Inst::new(row), words);
    }
    Err(DecodeError::UnknownEncoding(first))
}

fn smem(mut inst: Inst, first: u32, second: u32) -> Inst {
    inst.words = 2;
    inst.dst = field(first, 6, 7);
    if inst.desc.registers(Field::Base) > 0 {
        inst.base = field(first, 0, 6) << 1;
    }
    inst.flags = if bit(first, 16) { flag::GLC } else { 0 };
    // With `soffset_en` immediate and register are added; without, `imm` selects one of them.
    if bit(first, 14) {
        inst.offset = field(second, 25, 7);
    }
    if bit(first, 17) {
        inst.flags |= flag::IMM;
        inst.imm = signed(second, 21);
    } else if !bit(first, 14) {
        inst.offset = field(second, 0, 7);
    }
    inst
}

fn packed(arch: Arch, mut inst: Inst, first: u32, second: u32) -> Inst {
    inst.words = 2;
    inst.dst = operand::VGPR + field(first, 0, 8);
    inst.src = [field(second, 0, 9), field(second, 9, 9), field(second, 18, 9)];
    inst.neg = bits(second, 29, 3) as u8;
    inst.neg_hi = bits(first, 8, 3) as u8;
    if inst.desc.name.contains("mfma") || inst.desc.name.contains("smfmac") {
        inst.op_sel = bits(first, 11, 4) as u8;
        for n in 0..2 {
            if bit(second, 27 + n as u32) {
                inst.src[n] = to_agpr(inst.src[n]);
            }
        }
        // gfx908 always has C and D in AGPRs; later architectures choose.
        if bit(first, 15) || !arch.has_unified_vgprs() {
            inst.dst = to_agpr(inst.dst);
            // The index operand of sparse forms stays a VGPR.
            if !inst.desc.name.contains("smfmac") {
                inst.src[2] = to_agpr(inst.src[2]);
            }
        }
        return inst;
    }
    match inst.desc.name {
        "v_accvgpr_read_b32" => inst.src[0] = to_agpr(inst.src[0]),
        "v_accvgpr_write_b32" => inst.dst = to_agpr(inst.dst),
        _ => {
            inst.clamp = bit(first, 15);
            inst.op_sel = bits(first, 11, 3) as u8;
            inst.op_sel_hi = (bits(second, 27, 2) | bits(first, 14, 1) << 2) as u8;
        }
    }
    inst
}

/// Returns the data register of a memory instruction in the VGPR or AGPR file.
fn data_register(number: u16, acc: bool) -> u16 {
    number + if acc { operand::AGPR } else { operand::VGPR }
}

fn ds(arch: Arch, mut inst: Inst, first: u32, second: u32) -> Inst {
    inst.words = 2;
    let acc = arch.has_unified_vgprs() && bit(first, 25);
    inst.imm = bits(first, 0, 16) as i32;
    // gfx90a and later have no GDS except for GWS, whose data is in the address field.
    let semaphore = inst.desc.name.starts_with("ds_gws_");
    inst.flags = if bit(first, 16) && (semaphore || !arch.has_unified_vgprs()) { flag::GDS } else { 0 };
    inst.src = [operand::VGPR + field(second, 0, 8), data_register(field(second, 8, 8), acc), data_register(field(second, 16, 8), acc)];
    if semaphore {
        inst.src[0] = data_register(field(second, 0, 8), acc);
    }
    inst.dst = data_register(field(second, 24, 8), acc);
    inst
}

fn flat(arch: Arch, mut inst: Inst, first: u32, second: u32) -> Inst {
    inst.words = 2;
    let acc = arch.has_unified_vgprs() && bit(second, 23);
    // FLAT offsets are unsigned; the others are signed.
    inst.imm = if inst.desc.format == Format::FLAT { bits(first, 0, 12) as i32 } else { signed(first, 13) };
    let mut flags = 0;
    for (at, value) in [(16, flag::GLC), (17, flag::SLC)] {
        flags |= if bit(first, at) { value } else { 0 };
    }
    if arch.has_unified_vgprs() && bit(first, 25) {
        flags |= flag::SC1;
    }
    if !arch.has_gfx940_memory_fields() && bit(first, 13) {
        flags |= flag::LDS;
    }
    if !arch.has_unified_vgprs() && bit(second, 23) {
        flags |= flag::NV;
    }
    let saddr = field(second, 16, 7);
    match inst.desc.format {
        Format::GLOBAL if saddr != SADDR_OFF => inst.base = saddr,
        Format::SCRATCH => {
            if saddr != SADDR_OFF {
                inst.base = saddr;
            }
            // gfx942 has a bit for it; before, a scalar base excludes a vector address.
            let vector = if arch.has_gfx940_memory_fields() { bit(first, 13) } else { saddr == SADDR_OFF };
            flags |= if vector { flag::VADDR } else { 0 };
        }
        _ => {}
    }
    inst.flags = flags;
    inst.src = [operand::VGPR + field(second, 0, 8), data_register(field(second, 8, 8), acc), 0];
    inst.dst = data_register(field(second, 24, 8), acc);
    inst
}

fn mubuf(arch: Arch, mut inst: Inst, first: u32, second: u32) -> Inst {
    inst.words = 2;
    inst.imm = bits(first, 0, 12) as i32;
    let mut flags = 0;
    for (at, value) in [(12, flag::OFFEN), (13, flag::IDXEN), (14, flag::GLC), (16, flag::LDS), (17, flag::SLC)] {
        flags |= if bit(first, at) { value } else { 0 };
    }
    if arch.has_unified_vgprs() && bit(first, 15) {
        flags |= flag::SC1;
    }
    let acc = arch.has_unified_vgprs() && bit(second, 23);
    if !arch.has_unified_vgprs() && bit(second, 23) {
        flags |= flag::TFE;
    }
    inst.flags = flags;
    inst.src[0] = operand::VGPR + field(second, 0, 8);
    inst.dst = data_register(field(second, 8, 8), acc);
    inst.base = field(second, 16, 5) << 2;
    inst.offset = field(second, 24, 8);
    inst
}
