//! The disassembler: instructions in the syntax of LLVM's AMDGPU assembler.

mod constant;
mod immediate;
mod memory;
mod register;
mod scalar;
mod vector;

use std::collections::HashSet;
use std::sync::LazyLock;

use super::table::{Format, inst_descs};
use super::{Extension, Inst};
use crate::arch::{Arch, Target};

/// Returns the instruction in LLVM's syntax, on one line.
///
/// With `pc`, the instruction's address, branches print their target address; without it, the encoded distance in dwords.
/// `target` must be the one that the instruction was decoded for; an architecture alone stands for its default wave size.
pub fn disassemble(target: impl Into<Target>, inst: &Inst, pc: Option<u64>) -> String {
    let target = target.into();
    let mut line = mnemonic(target.arch, inst);
    let start = line.len();
    match inst.desc.format {
        Format::SOP1 | Format::SOP2 | Format::SOPC | Format::SOPK | Format::SOPP => scalar::operands(&mut line, target, inst, pc),
        Format::VOP1 | Format::VOP2 | Format::VOPC | Format::VOP3 | Format::VOP3P => vector::operands(&mut line, target, inst),
        Format::SMEM => memory::smem(&mut line, target.arch, inst),
        Format::DS => memory::ds(&mut line, target.arch, inst),
        Format::MUBUF => memory::mubuf(&mut line, target.arch, inst),
        Format::FLAT | Format::SCRATCH | Format::GLOBAL => memory::flat(&mut line, target, inst),
        Format::VOPDX | Format::VOPDY => {
            if let Extension::Dual(other) = inst.ext {
                vector::dual(&mut line, target, inst, other);
            }
        }
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
    static SHORT: LazyLock<HashSet<(Arch, &str)>> =
        LazyLock::new(|| names(|format| matches!(format, Format::VOP1 | Format::VOP2 | Format::VOPC)));
    let name = inst.desc.name;
    let short = matches!(inst.desc.format, Format::VOP1 | Format::VOP2 | Format::VOPC);
    let suffix = match (inst.desc.format, inst.ext) {
        // LLVM prints `v_nop` alike in every encoding.
        (Format::VOP1, Extension::Dpp(_) | Extension::Dpp8(_)) if name == "v_nop" => "",
        (_, Extension::Sdwa(_)) => "_sdwa",
        (Format::VOP3 | Format::VOP3P, Extension::Dpp(_) | Extension::Dpp8(_)) => "_e64_dpp",
        // LLVM omits the suffix of compares, which GFX9 and gfx10 have no DPP form of.
        (Format::VOPC, Extension::Dpp(_) | Extension::Dpp8(_)) if arch.has_vop3_dpp() => "",
        (_, Extension::Dpp(_) | Extension::Dpp8(_)) => "_dpp",
        (_, Extension::None) if short && !alone(arch, inst) => "_e32",
        (Format::VOP3, _) if SHORT.contains(&(arch, name)) && !alone(arch, inst) => "_e64",
        _ => "",
    };
    format!("{name}{suffix}")
}

/// Returns the names of the instructions in some encodings.
fn names(wanted: impl Fn(Format) -> bool) -> HashSet<(Arch, &'static str)> {
    let descs: Vec<_> = inst_descs().iter().filter(|desc| wanted(desc.format)).collect();
    let of = |arch: Arch| descs.iter().filter(move |desc| desc.supports(arch)).map(move |desc| (arch, desc.name));
    Arch::ALL.into_iter().flat_map(of).collect()
}

/// Returns whether a short encoding has no VOP3 form, or the same syntax, and so no suffix.
fn alone(arch: Arch, inst: &Inst) -> bool {
    static LONG: LazyLock<HashSet<(Arch, &str)>> = LazyLock::new(|| names(|format| format == Format::VOP3));
    let name = inst.desc.name;
    if arch.is_rdna() {
        // LLVM 19 does not know the VOP3 form of `v_mov_b16`, but adds the suffix.
        return inst.desc.operands.is_empty() || !LONG.contains(&(arch, name)) && name != "v_mov_b16";
    }
    matches!(name, "v_nop" | "v_clrexcp" | "v_readfirstlane_b32" | "v_swap_b32" | "v_accvgpr_mov_b32")
        || ["v_madmk_", "v_madak_", "v_fmamk_", "v_fmaak_"].iter().any(|start| name.starts_with(start))
}

/// Appends an operand.
fn push(line: &mut String, operand: &str) {
    let first = !line.contains(' ');
    line.push_str(if first { " " } else { ", " });
    line.push_str(operand);
}
