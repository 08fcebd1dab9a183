//! The instruction decoder.

mod dual;
mod gfx9;
mod memory;
mod rdna;
mod scalar;
mod vector;

use super::table::{Field, Format, InstDesc, lookup};
use super::{Extension, Inst, operand};
use crate::arch::{Arch, Generation, Target};

/// Why dwords cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The code ends inside the instruction.
    #[error("truncated instruction at the end of the code")]
    Truncated,
    /// No encoding of the architecture matches.
    #[error("unknown encoding {0:#010x}")]
    UnknownEncoding(u32),
    /// A reserved source operand, or a literal in an encoding that has none.
    #[error("{0}: reserved source operand {1}")]
    ReservedOperand(&'static str, u16),
    /// An encoding that only graphics shaders use.
    #[error("{0} instructions are for graphics shaders, which are not supported")]
    GraphicsOnly(&'static str),
    /// An unknown opcode of a known encoding.
    #[error("unknown {0:?} opcode {1}")]
    UnknownOpcode(Format, u32),
}

/// The first reserved source operand, after the inline integers.
const RESERVED_FIRST: u16 = operand::INLINE_INT_MIN + 1;

fn bits(word: u32, low: u32, count: u32) -> u32 {
    word >> low & ((1 << count) - 1)
}

fn bit(word: u32, at: u32) -> bool {
    word >> at & 1 != 0
}

fn field(word: u32, low: u32, count: u32) -> u16 {
    bits(word, low, count) as u16
}

/// Sign-extends the low `count` bits.
fn signed(value: u32, count: u32) -> i32 {
    ((value << (32 - count)) as i32) >> (32 - count)
}

/// Decodes the instruction that `words` begins with. An architecture alone stands for its default wave size.
pub fn decode(target: impl Into<Target>, words: &[u32]) -> Result<Inst, DecodeError> {
    let target = target.into();
    let first = *words.first().ok_or(DecodeError::Truncated)?;
    let mut inst = match target.arch.generation() {
        Generation::Gfx9 => gfx9::fields(target.arch, first, words)?,
        _ => rdna::fields(target, first, words)?,
    };
    check_operands(&inst)?;
    align_scalar_operands(target, &mut inst);
    Ok(inst)
}

/// Returns the row of an opcode.
fn row(arch: Arch, format: Format, opcode: u32) -> Result<&'static InstDesc, DecodeError> {
    lookup(arch, format, opcode).ok_or(DecodeError::UnknownOpcode(format, opcode))
}

/// Returns the second dword.
fn second(words: &[u32]) -> Result<u32, DecodeError> {
    words.get(1).copied().ok_or(DecodeError::Truncated)
}

/// Rejects reserved source operands, so that execution never has to make up a value.
fn check_operands(inst: &Inst) -> Result<(), DecodeError> {
    // Encodings with a literal have counted it.
    let literal = match inst.desc.format {
        Format::VOP1 | Format::VOP2 | Format::VOPC => inst.ext == Extension::None,
        Format::VOP3 | Format::VOP3P => inst.words == 3 && inst.ext == Extension::None,
        Format::MUBUF => false,
        _ => true,
    };
    let reserved = |number| {
        matches!(number, RESERVED_FIRST..operand::SHARED_BASE | operand::SDWA | operand::DPP) || number == operand::LITERAL && !literal
    };
    for operand in &inst.desc.operands {
        let number = match operand.field {
            Field::Src(n) => inst.src[usize::from(n)],
            Field::Soffset => inst.offset,
            _ => continue,
        };
        if reserved(number) {
            return Err(DecodeError::ReservedOperand(inst.desc.name, number));
        }
    }
    if let Extension::Dual(other) = inst.ext
        && reserved(other.src[0])
    {
        return Err(DecodeError::ReservedOperand(other.desc.name, other.src[0]));
    }
    Ok(())
}

/// Clears the low bits of multi-register scalar operands: pairs start at even registers, larger ranges at multiples of four.
fn align_scalar_operands(target: Target, inst: &mut Inst) {
    let sgprs = if target.arch.has_special_sgprs() { operand::FLAT_SCRATCH } else { operand::VCC };
    let alignable = |number: u16| number < sgprs || (operand::TTMP0..operand::M0).contains(&number);
    for operand in &inst.desc.operands {
        let number = match operand.field {
            Field::Dst => &mut inst.dst,
            Field::Sdst => &mut inst.sdst,
            Field::Src(n) => &mut inst.src[usize::from(n)],
            Field::Base | Field::Resource => &mut inst.base,
            Field::Vcc if inst.desc.format == Format::VOPC => &mut inst.dst,
            _ => continue,
        };
        let mask = operand.field == Field::Vcc;
        let wide = if mask { target.wave_size.mask_registers() } else { operand.registers_in(target.wave_size) };
        if alignable(*number) && wide > 1 {
            *number &= if wide == 2 { !1 } else { !3 };
        }
    }
    if inst.desc.format == Format::GLOBAL && alignable(inst.base) {
        inst.base &= !1;
    }
}
