//! Scalar instructions.

use super::constant::{self, ConstKind};
use super::{immediate, push, register};
use crate::arch::{Arch, Target};
use crate::isa::table::{Field, Format};
use crate::isa::{Inst, operand};

/// Returns whether the immediate is a branch distance.
pub(super) fn is_branch(inst: &Inst) -> bool {
    match inst.desc.format {
        Format::SOPP => inst.desc.name == "s_branch" || inst.desc.name.starts_with("s_cbranch_"),
        Format::SOPK => matches!(inst.desc.name, "s_call_b64" | "s_cbranch_i_fork" | "s_subvector_loop_begin" | "s_subvector_loop_end"),
        _ => false,
    }
}

/// Prints a source: a register, an inline constant or the literal.
pub(super) fn source(arch: Arch, inst: &Inst, number: u16, registers: u8, kind: ConstKind) -> String {
    if number == operand::LITERAL {
        return constant::literal(inst.literal, kind);
    }
    constant::inline(number, kind).unwrap_or_else(|| register::name(arch, number, registers))
}

pub(super) fn operands(line: &mut String, target: Target, inst: &Inst, pc: Option<u64>) {
    let arch = target.arch;
    for operand in &inst.desc.operands {
        let text = match operand.field {
            Field::Dst => register::name(arch, inst.dst, operand.registers),
            Field::Src(n) => {
                // LLVM prints constants of f16 operands differently in each encoding.
                let kind = match (operand.registers, inst.desc.source_type(), inst.desc.format) {
                    (2, ..) => ConstKind::Int64,
                    (_, "f16", Format::SOP2) => ConstKind::Half,
                    (_, "f16", Format::SOPC) => ConstKind::Int16,
                    _ => ConstKind::Bits32,
                };
                source(arch, inst, inst.src[usize::from(n)], operand.registers, kind)
            }
            Field::Literal if inst.desc.format == Format::SOP2 => format!("{:#x}", inst.literal),
            Field::Literal => constant::literal(inst.literal, ConstKind::Bits32),
            Field::Imm => match immediate::text(arch, inst, pc) {
                Some(text) => text,
                None => continue,
            },
            _ => continue,
        };
        push(line, &text);
    }
}
