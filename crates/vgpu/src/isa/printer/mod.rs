//! The disassembler: instructions in the syntax of LLVM's AMDGPU assembler.

mod constant;
mod memory;
mod register;
mod scalar;
mod vector;

use std::collections::HashSet;
use std::sync::LazyLock;

use super::table::{Format, inst_descs};
use super::{Extension, Inst};
use crate::arch::Arch;

/// Returns the instruction in LLVM's syntax, on one line.
///
/// With `pc`, the instruction's address, branches print their target address; without it, the encoded distance in dwords.
pub fn disassemble(arch: Arch, inst: &Inst, pc: Option<u64>) -> String {
    let mut line = mnemonic(arch, inst);
    let start = line.len();
    match inst.desc.format {
        Format::SOP1 | Format::SOP2 | Format::SOPC | Format::SOPK | Format::SOPP => scalar::operands(&mut line, arch, inst, pc),
        Format::VOP1 | Format::VOP2 | Format::VOPC | Format::VOP3 | Format::VOP3P => vector::operands(&mut line, arch, inst),
        Format::SMEM => memory::smem(&mut line, arch, inst),
        Format::DS => memory::ds(&mut line, arch, inst),
        Format::MUBUF => memory::mubuf(&mut line, arch, inst),
        Format::FLAT | Format::SCRATCH | Format::GLOBAL => memory::flat(&mut line, arch, inst),
    }
    // Modifiers without operands bring their own space.
    if line[start..].starts_with("  ") {
        line.remove(start);
    }
    line.truncate(line.trim_end().len());
    line
}

/// Returns the target address of a branch at `pc`.
pub fn branch_target(inst: &Inst, pc: u64) -> Option<u64> {
    scalar::is_branch(inst).then(|| pc.wrapping_add(4 * u64::from(inst.words)).wrapping_add_signed(4 * i64::from(inst.imm as i16)))
}

/// Returns the mnemonic with the suffix of its encoding.
fn mnemonic(arch: Arch, inst: &Inst) -> String {
    static SHORT: LazyLock<HashSet<(Arch, &str)>> = LazyLock::new(|| {
        let short = |format| matches!(format, Format::VOP1 | Format::VOP2 | Format::VOPC);
        let descs = || inst_descs().iter().filter(|desc| short(desc.format));
        Arch::ALL.into_iter().flat_map(|arch| descs().filter(move |desc| desc.supports(arch)).map(move |desc| (arch, desc.name))).collect()
    });
    let name = inst.desc.name;
    let suffix = match (inst.desc.format, inst.ext) {
        (Format::VOP1 | Format::VOP2 | Format::VOPC, Extension::Sdwa(_)) => "_sdwa",
        // LLVM prints `v_nop` alike in every encoding.
        (Format::VOP1, Extension::Dpp(_)) if inst.desc.name == "v_nop" => "",
        (Format::VOP1 | Format::VOP2 | Format::VOPC, Extension::Dpp(_)) => "_dpp",
        (Format::VOP1 | Format::VOP2 | Format::VOPC, Extension::None) if !alone(name) => "_e32",
        (Format::VOP3, _) if SHORT.contains(&(arch, name)) && !alone(name) => "_e64",
        _ => "",
    };
    format!("{name}{suffix}")
}

/// Returns whether a short encoding has no VOP3 form, and so no suffix.
fn alone(name: &str) -> bool {
    matches!(name, "v_nop" | "v_clrexcp" | "v_readfirstlane_b32" | "v_swap_b32" | "v_accvgpr_mov_b32")
        || ["v_madmk_", "v_madak_", "v_fmamk_", "v_fmaak_"].iter().any(|start| name.starts_with(start))
}

/// Appends an operand.
fn push(line: &mut String, operand: &str) {
    let first = !line.contains(' ');
    line.push_str(if first { " " } else { ", " });
    line.push_str(operand);
}
