//! Vector instructions and their modifiers.

use std::fmt::Write as _;

use super::constant::{self, ConstKind};
use super::{push, register, scalar};
use crate::arch::Arch;
use crate::isa::table::{Field, Format, Operand};
use crate::isa::{Dpp, Extension, Inst, Sdwa};

pub(super) fn operands(line: &mut String, arch: Arch, inst: &Inst) {
    for operand in &inst.desc.operands {
        let text = match operand.field {
            Field::Dst => register::name(inst.dst, operand.registers),
            Field::Sdst => register::name(inst.sdst, operand.registers),
            Field::Vcc if inst.desc.format == Format::VOPC => register::name(inst.dst, 2),
            Field::Vcc => "vcc".to_owned(),
            Field::Src(n) => source(inst, operand, n),
            Field::Literal => format!("{:#x}", inst.literal),
            _ => continue,
        };
        push(line, &text);
    }
    match inst.ext {
        Extension::Sdwa(sdwa) => {
            output(line, inst);
            selections(line, inst, sdwa);
        }
        Extension::Dpp(dpp) => lanes(line, arch, dpp),
        Extension::None if inst.desc.format == Format::VOP3P => packed(line, arch, inst),
        Extension::None => {
            halves(line, inst);
            output(line, inst);
        }
    }
}

fn mixes(inst: &Inst) -> bool {
    inst.desc.name.starts_with("v_fma_mix")
}

/// Returns the number of sources.
fn sources(inst: &Inst) -> usize {
    inst.desc.operands.iter().filter(|operand| matches!(operand.field, Field::Src(_))).count()
}

fn source(inst: &Inst, operand: &Operand, n: u8) -> String {
    let number = inst.src[usize::from(n)];
    let text = scalar::source(inst, number, operand.registers, kind(inst, operand, n));
    if inst.desc.format == Format::VOP3P && !mixes(inst) {
        return text;
    }
    if let Extension::Sdwa(sdwa) = inst.ext
        && sdwa.sext.get(usize::from(n)).copied().unwrap_or(false)
    {
        return format!("sext({text})");
    }
    // `v_fma_mix*` has abs where packed instructions have neg_hi.
    let absolute = if mixes(inst) { inst.neg_hi } else { inst.abs };
    match (inst.neg >> n & 1 != 0, absolute >> n & 1 != 0) {
        (false, false) => text,
        (false, true) => format!("|{text}|"),
        (true, true) => format!("-|{text}|"),
        (true, false) if constant::is_constant(number) => format!("neg({text})"),
        (true, false) => format!("-{text}"),
    }
}

fn kind(inst: &Inst, operand: &Operand, n: u8) -> ConstKind {
    let name = inst.desc.name;
    match (operand.registers, inst.desc.source_type()) {
        (2.., "f64") => ConstKind::Double,
        (2, _) if inst.desc.format == Format::VOP3P => ConstKind::Bits32,
        (2, _) => ConstKind::Int64,
        (_, "f16") if name.starts_with("v_dot2c") || name.starts_with("v_pk_") => ConstKind::Halves,
        (_, "f16") => ConstKind::Half,
        // Packed values and dot products print as 32 bits.
        _ if inst.desc.format == Format::VOP3P || name.starts_with("v_dot") || name.starts_with("v_sa") => ConstKind::Bits32,
        // The addend has 32 bits.
        _ if n == 2 && matches!(name, "v_mad_u32_u16" | "v_mad_i32_i16") => ConstKind::Bits32,
        (_, "i16" | "u16" | "b16") => ConstKind::Int16,
        _ => ConstKind::Bits32,
    }
}

/// Prints clamp and omod.
fn output(line: &mut String, inst: &Inst) {
    if inst.clamp {
        line.push_str(" clamp");
    }
    line.push_str(["", " mul:2", " mul:4", " div:2"][usize::from(inst.omod & 3)]);
}

/// Prints the op_sel bits of VOP3: one per source, one for the destination.
fn halves(line: &mut String, inst: &Inst) {
    if inst.desc.format == Format::VOP3 {
        // Stochastic rounding uses the third source's bit to select the destination byte.
        let count = if inst.desc.name.starts_with("v_cvt_sr_") { 3 } else { sources(inst) };
        let mut all: Vec<u8> = (0..count).map(|n| inst.op_sel >> n & 1).collect();
        all.push(inst.op_sel >> 3 & 1);
        if all.contains(&1) {
            list(line, "op_sel", &all);
        }
    }
}

fn list(line: &mut String, name: &str, values: &[u8]) {
    let values: Vec<String> = values.iter().map(u8::to_string).collect();
    _ = write!(line, " {name}:[{}]", values.join(","));
}

fn packed(line: &mut String, arch: Arch, inst: &Inst) {
    let name = inst.desc.name;
    if name.contains("mfma") {
        // gfx942's f64 forms have neg where others have blgp.
        let negates = arch == Arch::Gfx942 && name.contains("f64");
        let permutes = if negates { 0 } else { inst.neg };
        for (name, value) in [("cbsz", inst.neg_hi), ("abid", inst.op_sel), ("blgp", permutes)] {
            if value != 0 {
                _ = write!(line, " {name}:{value}");
            }
        }
        if negates && inst.neg != 0 {
            list(line, "neg", &[inst.neg & 1, inst.neg >> 1 & 1, inst.neg >> 2 & 1]);
        }
        return;
    }
    if name.starts_with("v_accvgpr") {
        return;
    }
    let count = sources(inst);
    let bits = |value: u8| -> Vec<u8> { (0..count).map(|n| value >> n & 1).collect() };
    let all = (1 << count) - 1;
    if inst.op_sel & all != 0 {
        list(line, "op_sel", &bits(inst.op_sel));
    }
    let usual = if mixes(inst) { 0 } else { all };
    if inst.op_sel_hi & all != usual {
        list(line, "op_sel_hi", &bits(inst.op_sel_hi));
    }
    for (name, value) in [("neg_lo", inst.neg), ("neg_hi", inst.neg_hi)] {
        if value & all != 0 && !mixes(inst) {
            list(line, name, &bits(value));
        }
    }
    output(line, inst);
}

fn selections(line: &mut String, inst: &Inst, sdwa: Sdwa) {
    let name = |sel: u8| ["BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD", "RESERVED"][usize::from(sel & 7)];
    if sources(inst) == 0 {
        return;
    }
    // Conversions from fp8 and bf8 always write full registers.
    let whole = inst.desc.name.ends_with("fp8") || inst.desc.name.ends_with("bf8");
    if inst.desc.format != Format::VOPC && !whole {
        let unused = ["UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE", "UNUSED_PAD"][usize::from(sdwa.dst_unused & 3)];
        _ = write!(line, " dst_sel:{} dst_unused:{unused}", name(sdwa.dst_sel));
    }
    _ = write!(line, " src0_sel:{}", name(sdwa.src_sel[0]));
    if sources(inst) > 1 {
        _ = write!(line, " src1_sel:{}", name(sdwa.src_sel[1]));
    }
}

fn lanes(line: &mut String, arch: Arch, dpp: Dpp) {
    let ctrl = dpp.ctrl;
    _ = match ctrl {
        0..=0xff => write!(line, " quad_perm:[{},{},{},{}]", ctrl & 3, ctrl >> 2 & 3, ctrl >> 4 & 3, ctrl >> 6 & 3),
        0x101..=0x10f => write!(line, " row_shl:{}", ctrl & 15),
        0x111..=0x11f => write!(line, " row_shr:{}", ctrl & 15),
        0x121..=0x12f => write!(line, " row_ror:{}", ctrl & 15),
        0x130 => write!(line, " wave_shl:1"),
        0x134 => write!(line, " wave_rol:1"),
        0x138 => write!(line, " wave_shr:1"),
        0x13c => write!(line, " wave_ror:1"),
        0x140 => write!(line, " row_mirror"),
        0x141 => write!(line, " row_half_mirror"),
        0x142 => write!(line, " row_bcast:15"),
        0x143 => write!(line, " row_bcast:31"),
        0x150..=0x15f if arch.has_unified_vgprs() => write!(line, " row_newbcast:{}", ctrl & 15),
        _ => write!(line, " dpp_ctrl:{ctrl:#x}"),
    };
    _ = write!(line, " row_mask:{:#x} bank_mask:{:#x}", dpp.row_mask, dpp.bank_mask);
    if dpp.bound_ctrl {
        line.push_str(" bound_ctrl:1");
    }
}
