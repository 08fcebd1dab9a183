//! Scalar instructions and literals.

use super::super::table::{Field, Format};
use super::super::{Inst, operand};
use super::{DecodeError, field, signed};

pub(super) fn scalar(mut inst: Inst, words: &[u32]) -> Result<Inst, DecodeError> {
    let word = words[0];
    match inst.desc.format {
        Format::SOP2 => {
            inst.dst = field(word, 16, 7);
            inst.src = [field(word, 0, 8), field(word, 8, 8), 0];
        }
        Format::SOP1 => {
            inst.dst = field(word, 16, 7);
            inst.src[0] = field(word, 0, 8);
            if inst.desc.registers(Field::Imm) > 0 {
                // `s_sendmsg_rtn`: the source is the message.
                inst.imm = i32::from(inst.src[0]);
                inst.src[0] = operand::INLINE;
            }
        }
        Format::SOPC => {
            inst.src = [field(word, 0, 8), field(word, 8, 8), 0];
            if inst.desc.registers(Field::Imm) > 0 {
                // `s_set_gpr_idx_on`: the second source is an immediate.
                inst.imm = i32::from(inst.src[1]);
                inst.src[1] = operand::INLINE;
            }
        }
        Format::SOPK => {
            inst.dst = field(word, 16, 7);
            inst.imm = signed(word, 16);
        }
        _ => inst.imm = signed(word, 16),
    }
    literal(&mut inst, words)?;
    Ok(inst)
}

/// Reads the literal that follows, if there is one.
pub(super) fn literal(inst: &mut Inst, words: &[u32]) -> Result<(), DecodeError> {
    let own = inst.desc.registers(Field::Literal) > 0;
    let sources = inst.desc.operands.iter().any(|o| matches!(o.field, Field::Src(n) if inst.src[usize::from(n)] == operand::LITERAL));
    if own || sources {
        inst.literal = *words.get(1).ok_or(DecodeError::Truncated)?;
        inst.words = 2;
    }
    Ok(())
}
