//! RDNA: gfx10, gfx11 and gfx12.

use super::super::table::{Field, Format};
use super::super::{Extension, Inst, operand};
use super::dual::vopd;
use super::memory::{ds, flat, flat_gfx12, mubuf, smem, vbuffer};
use super::scalar::scalar;
use super::vector::{packed, vop, vop3};
use super::{DecodeError, bits, row};
use crate::arch::{Generation, Target};

/// Decodes the fields of the instruction that begins with `first`.
pub(super) fn fields(target: Target, first: u32, words: &[u32]) -> Result<Inst, DecodeError> {
    let mut inst = encoding(target, first, words)?;
    if target.arch.generation() >= Generation::Gfx11 {
        exchange_m0_and_null(&mut inst);
    }
    Ok(inst)
}

fn encoding(target: Target, first: u32, words: &[u32]) -> Result<Inst, DecodeError> {
    let (arch, generation) = (target.arch, target.arch.generation());
    let gfx12 = generation >= Generation::Gfx12;
    let new = |format, opcode| row(arch, format, opcode).map(Inst::new);
    match first >> 25 {
        0b011_1111 => return vop(arch, new(Format::VOP1, bits(first, 9, 8))?, words),
        0b011_1110 => return vop(arch, new(Format::VOPC, bits(first, 17, 8))?, words),
        0..0b011_1110 => return vop(arch, new(Format::VOP2, bits(first, 25, 6))?, words),
        _ => {}
    }
    match first >> 23 {
        0b1_0111_1101 => return scalar(new(Format::SOP1, bits(first, 8, 8))?, words),
        0b1_0111_1110 => return scalar(new(Format::SOPC, bits(first, 16, 7))?, words),
        0b1_0111_1111 => return scalar(new(Format::SOPP, bits(first, 16, 7))?, words),
        0b1_0110_0000..=0b1_0111_1100 => return scalar(new(Format::SOPK, bits(first, 23, 5))?, words),
        0b1_0000_0000..=0b1_0101_1111 => return scalar(new(Format::SOP2, bits(first, 23, 7))?, words),
        0b1_1001_1000 => return packed(arch, new(Format::VOP3P, bits(first, 16, 7))?, words),
        _ => {}
    }
    match first >> 26 {
        0b110010 if generation >= Generation::Gfx11 => vopd(target, words),
        0b110010 | 0b110011 => Err(DecodeError::GraphicsOnly("interpolation")),
        0b110101 => {
            let opcode = bits(first, 16, 10);
            if generation == Generation::Gfx10 && VOP3_INTERPOLATION.contains(&opcode) {
                return Err(DecodeError::GraphicsOnly("interpolation"));
            }
            vop3(arch, new(Format::VOP3, opcode)?, words)
        }
        0b110110 => ds(arch, new(Format::DS, bits(first, 18, 8))?, words),
        0b111101 if gfx12 => smem(arch, new(Format::SMEM, bits(first, 13, 6))?, words),
        0b111101 => smem(arch, new(Format::SMEM, bits(first, 18, 8))?, words),
        0b110111 if !gfx12 => {
            let segment = bits(first, if generation == Generation::Gfx10 { 14 } else { 16 }, 2);
            let format =
                *[Format::FLAT, Format::SCRATCH, Format::GLOBAL].get(segment as usize).ok_or(DecodeError::UnknownEncoding(first))?;
            flat(arch, new(format, bits(first, 18, 7))?, words)
        }
        0b111000 if !gfx12 => mubuf(arch, new(Format::MUBUF, bits(first, 18, 8))?, words),
        0b110001 if gfx12 && bits(first, 14, 8) < TYPED_BUFFER_FIRST => vbuffer(new(Format::MUBUF, bits(first, 14, 8))?, words),
        0b110001 if gfx12 => Err(DecodeError::GraphicsOnly("MTBUF")),
        0b111011 if gfx12 => {
            let segment = bits(first, 24, 2);
            let format =
                *[Format::FLAT, Format::SCRATCH, Format::GLOBAL].get(segment as usize).ok_or(DecodeError::UnknownEncoding(first))?;
            flat_gfx12(arch, new(format, bits(first, 14, 7))?, words)
        }
        0b110100 | 0b111001 if gfx12 => Err(DecodeError::GraphicsOnly("MIMG")),
        0b111010 if !gfx12 => Err(DecodeError::GraphicsOnly("MTBUF")),
        0b111100 if !gfx12 => Err(DecodeError::GraphicsOnly("MIMG")),
        0b111110 => Err(DecodeError::GraphicsOnly("EXP")),
        _ => Err(DecodeError::UnknownEncoding(first)),
    }
}

/// VOP3 opcodes of gfx10's interpolation instructions.
const VOP3_INTERPOLATION: [u32; 6] = [512, 513, 514, 834, 835, 858];

/// The first VBUFFER opcode of a typed buffer instruction.
const TYPED_BUFFER_FIRST: u32 = 128;

/// gfx11 exchanged the numbers of M0 and `null`; instructions have those of gfx10.
fn exchange_m0_and_null(inst: &mut Inst) {
    let exchange = |number: &mut u16| match *number {
        operand::M0 => *number = operand::NULL,
        operand::NULL => *number = operand::M0,
        _ => {}
    };
    inst.src.iter_mut().for_each(exchange);
    if inst.desc.registers(Field::DstImm) == 0 {
        exchange(&mut inst.dst);
    }
    exchange(&mut inst.sdst);
    exchange(&mut inst.base);
    exchange(&mut inst.offset);
    if let Extension::Dual(other) = &mut inst.ext {
        exchange(&mut other.src[0]);
    }
}
