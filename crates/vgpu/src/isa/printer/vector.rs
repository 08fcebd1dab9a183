//! Vector instructions and their modifiers.

use std::fmt::Write as _;

use super::constant::{self, ConstKind};
use super::{push, register, scalar};
use crate::arch::{Arch, Generation, Target, WaveSize};
use crate::isa::table::{Field, Format, Half, InstDesc, Operand};
use crate::isa::{Dpp, Dual, Extension, Inst, Sdwa, operand};

pub(super) fn operands(line: &mut String, target: Target, inst: &Inst) {
    let arch = target.arch;
    let mask = target.wave_size.mask_registers();
    for operand in &inst.desc.operands {
        let registers = operand.registers_in(target.wave_size);
        let text = match operand.field {
            Field::Dst => half(inst, operand, register::name(arch, inst.dst, registers), inst.op_sel >> 3 & 1),
            Field::Sdst => register::name(arch, inst.sdst, registers),
            Field::Vcc if inst.desc.format == Format::VOPC => register::name(arch, inst.dst, mask),
            Field::Vcc => register::name(arch, operand::VCC, mask),
            Field::Src(n) => source(target, inst, operand, n),
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
        Extension::Dpp(_) | Extension::Dpp8(_) => {
            modifiers(line, arch, inst);
            lanes(line, arch, inst.ext);
        }
        Extension::None => modifiers(line, arch, inst),
        Extension::Dual(_) => {}
    }
}

/// Prints the modifiers of VOP3 and VOP3P.
fn modifiers(line: &mut String, arch: Arch, inst: &Inst) {
    if inst.desc.format == Format::VOP3P {
        packed(line, arch, inst);
    } else {
        halves(line, arch, inst);
        output(line, inst);
    }
}

/// Prints a dual-issue instruction's operands and its second operation.
pub(super) fn dual(line: &mut String, target: Target, inst: &Inst, other: Dual) {
    let text = |desc: &'static InstDesc, dst: u16, src: [u16; 2]| {
        let part = Inst { dst, src: [src[0], src[1], 0], literal: inst.literal, ..Inst::new(desc) };
        let mut text = desc.name.to_owned();
        operands(&mut text, target, &part);
        text
    };
    *line = format!("{} :: {}", text(inst.desc, inst.dst, [inst.src[0], inst.src[1]]), text(other.desc, other.dst, other.src));
}

/// Adds the half to a register's name, where names state it.
fn half(inst: &Inst, operand: &Operand, name: String, high: u8) -> String {
    match (operand.half, high) {
        (Half::Named, 1) => name + ".h",
        // LLVM 19 names the low half only here.
        (Half::Named, _) if inst.desc.name == "v_mov_b16" => name + ".l",
        _ => name,
    }
}

fn mixes(inst: &Inst) -> bool {
    inst.desc.name.starts_with("v_fma_mix")
}

/// Returns the number of sources.
fn sources(inst: &Inst) -> usize {
    inst.desc.operands.iter().filter(|operand| matches!(operand.field, Field::Src(_))).count()
}

fn source(target: Target, inst: &Inst, operand: &Operand, n: u8) -> String {
    let number = inst.src[usize::from(n)];
    let registers = operand.registers_in(target.wave_size);
    let text = scalar::source(target.arch, inst, number, registers, kind(target, inst, operand, n));
    let text = if number >= operand::VGPR { half(inst, operand, text, inst.op_sel >> n & 1) } else { text };
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

/// Returns the type of the addend of WMMA. LLVM 19 prints gfx11's in wave32 as a plain number.
fn matrix_kind(target: Target, name: &str) -> ConstKind {
    match (target.arch.generation(), target.wave_size) {
        (Generation::Gfx11, WaveSize::Wave32) => ConstKind::Number,
        (Generation::Gfx12, _) if name.starts_with("v_wmma_f16_") => ConstKind::Half,
        (Generation::Gfx12, _) if name.starts_with("v_wmma_bf16_") => ConstKind::Bfloat,
        _ => ConstKind::Bits32,
    }
}

fn kind(target: Target, inst: &Inst, operand: &Operand, n: u8) -> ConstKind {
    let name = inst.desc.name;
    match (operand.registers, inst.desc.source_type()) {
        _ if mixes(inst) => ConstKind::Half,
        _ if name.starts_with("v_wmma_") => matrix_kind(target, name),
        // The class mask.
        _ if n == 1 && name.contains("_class_") => ConstKind::Bits32,
        (2.., "f64") => ConstKind::Double,
        (2, _) if inst.desc.format == Format::VOP3P => ConstKind::Bits32,
        (2, _) => ConstKind::Int64,
        // The addend is an f32.
        _ if n == 2 && name.starts_with("v_dot2_f32_") => ConstKind::Bits32,
        (_, "f16") if name.starts_with("v_pk_") => ConstKind::Halves,
        (_, "f16") if n < 2 && (name.starts_with("v_dot2") || name == "v_dual_dot2acc_f32_f16") => ConstKind::Halves,
        _ if name.ends_with("_bf16") && n == 2 => ConstKind::Bfloat,
        _ if name.ends_with("_bf16") => ConstKind::Bfloats,
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

/// Returns the byte that a conversion from or to fp8 and bf8 reads or writes on gfx12.
fn selected_byte(arch: Arch, inst: &Inst) -> Option<u8> {
    match inst.desc.name {
        _ if !arch.is_rdna() => None,
        "v_cvt_sr_fp8_f32" | "v_cvt_sr_bf8_f32" => Some(inst.op_sel >> 2),
        // The bits are in reverse order.
        "v_cvt_f32_fp8" | "v_cvt_f32_bf8" => Some((inst.op_sel & 1) << 1 | inst.op_sel >> 1 & 1),
        _ => None,
    }
}

/// Prints the op_sel bits of VOP3: one per source, one for the destination.
fn halves(line: &mut String, arch: Arch, inst: &Inst) {
    let named = inst.desc.operands.iter().any(|operand| operand.half == Half::Named);
    if inst.desc.format != Format::VOP3 || named || inst.op_sel == 0 {
        return;
    }
    let name = inst.desc.name;
    if let Some(byte) = selected_byte(arch, inst) {
        _ = write!(line, " byte_sel:{byte}");
        return;
    }
    let mut all: Vec<u8> = (0..4).map(|n| inst.op_sel >> n & 1).collect();
    if name.starts_with("v_permlane") {
        // The bits are `fi` and `bound_ctrl`.
        all.truncate(2);
    } else if !(name.starts_with("v_cvt_sr_") || name == "v_fmac_f16") {
        // Stochastic rounding uses the third source's bit to select the destination byte.
        all.drain(sources(inst)..3);
    }
    // A bit of a source that does not exist is not printed.
    if all.contains(&1) {
        list(line, "op_sel", &all);
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
    if name.starts_with("v_swmmac_") {
        // op_sel chooses the part of the index.
        if inst.op_sel != 0 {
            _ = write!(line, " index_key:{}", inst.op_sel);
        }
    } else if inst.op_sel & all != 0 {
        list(line, "op_sel", &bits(inst.op_sel));
    }
    let usual = if mixes(inst) { 0 } else { all };
    // Matrix instructions with results of 32 bits have no op_sel_hi.
    let selects = !name.starts_with("v_wmma_f32") && !name.starts_with("v_wmma_i32");
    if inst.op_sel_hi & all != usual && selects {
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

/// Prints the permutation of a DPP or DPP8 dword.
fn lanes(line: &mut String, arch: Arch, extension: Extension) {
    let fetch_inactive = match extension {
        Extension::Dpp(dpp) => {
            permutation(line, arch, dpp);
            dpp.fetch_inactive
        }
        Extension::Dpp8(dpp) => {
            let lanes: Vec<u8> = (0..8).map(|lane| (dpp.lanes >> (3 * lane) & 7) as u8).collect();
            list(line, "dpp8", &lanes);
            dpp.fetch_inactive
        }
        _ => false,
    };
    if fetch_inactive {
        line.push_str(" fi:1");
    }
}

fn permutation(line: &mut String, arch: Arch, dpp: Dpp) {
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
        0x150..=0x15f if arch.is_rdna() => write!(line, " row_share:{}", ctrl & 15),
        0x160..=0x16f if arch.is_rdna() => write!(line, " row_xmask:{}", ctrl & 15),
        _ => write!(line, " dpp_ctrl:{ctrl:#x}"),
    };
    _ = write!(line, " row_mask:{:#x} bank_mask:{:#x}", dpp.row_mask, dpp.bank_mask);
    if dpp.bound_ctrl {
        line.push_str(" bound_ctrl:1");
    }
}
