//! Dual-issue instructions (VOPD).

use super::super::table::{Field, Format};
use super::super::{Dual, Extension, Inst, operand};
use super::{DecodeError, bits, field, row, second};
use crate::arch::{Target, WaveSize};

/// Decodes VOPD: the first operation (X) becomes the instruction, the second (Y) its extension.
pub(super) fn vopd(target: Target, words: &[u32]) -> Result<Inst, DecodeError> {
    // Only wave32 has them.
    if target.wave_size != WaveSize::Wave32 {
        return Err(DecodeError::UnknownEncoding(words[0]));
    }
    let (first, second) = (words[0], second(words)?);
    let mut inst = Inst::new(row(target.arch, Format::VOPDX, bits(first, 22, 4))?);
    let other = row(target.arch, Format::VOPDY, bits(first, 17, 5))?;
    inst.words = 2;
    inst.dst = operand::VGPR + field(second, 24, 8);
    inst.src = [field(first, 0, 9), operand::VGPR + field(first, 9, 8), 0];
    // One destination is even and the other odd, so the second's lowest bit is not encoded.
    let dst = operand::VGPR + (field(second, 17, 7) << 1 | field(second, 24, 1) ^ 1);
    let src = [field(second, 0, 9), operand::VGPR + field(second, 9, 8)];
    let literal = [inst.src[0], src[0]].contains(&operand::LITERAL);
    if literal || inst.desc.registers(Field::Literal) > 0 || other.registers(Field::Literal) > 0 {
        inst.literal = *words.get(2).ok_or(DecodeError::Truncated)?;
        inst.words = 3;
    }
    inst.ext = Extension::Dual(Dual { desc: other, dst, src });
    Ok(inst)
}
