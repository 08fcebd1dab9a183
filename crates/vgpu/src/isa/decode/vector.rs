//! Vector instructions.

use super::super::table::{Field, Format, Half, InstDesc};
use super::super::{Dpp, Dpp8, Extension, Inst, Sdwa, operand};
use super::scalar::literal;
use super::{DecodeError, bit, bits, field, second};
use crate::arch::Arch;

/// Decodes VOP1, VOP2 and VOPC.
pub(super) fn vop(arch: Arch, mut inst: Inst, words: &[u32]) -> Result<Inst, DecodeError> {
    let word = words[0];
    inst.src[0] = field(word, 0, 9);
    match inst.desc.format {
        Format::VOP1 => inst.dst = destination(inst.desc, field(word, 17, 8)),
        Format::VOP2 => {
            inst.dst = destination(inst.desc, field(word, 17, 8));
            inst.src[1] = operand::VGPR + field(word, 9, 8);
        }
        _ => {
            inst.dst = compare_destination(inst.desc);
            inst.src[1] = operand::VGPR + field(word, 9, 8);
        }
    }
    if inst.desc.name == "v_accvgpr_mov_b32" {
        inst.dst = to_agpr(inst.dst);
        inst.src[0] = to_agpr(inst.src[0]);
    }
    match inst.src[0] {
        operand::SDWA if arch.has_sdwa() => sdwa(&mut inst, second(words)?),
        operand::DPP => dpp(arch, &mut inst, second(words)?),
        operand::DPP8 | operand::DPP8_FI if arch.is_rdna() => dpp8(&mut inst, second(words)?),
        _ => literal(&mut inst, words)?,
    }
    name_halves(&mut inst);
    Ok(inst)
}

/// Moves the halves that register numbers state (bit 7) to `op_sel`.
fn name_halves(inst: &mut Inst) {
    let desc = inst.desc;
    for operand in desc.operands.iter().filter(|operand| operand.half == Half::Named) {
        let (number, at) = match operand.field {
            Field::Dst => (&mut inst.dst, 3),
            Field::Src(n) => (&mut inst.src[usize::from(n)], n),
            _ => continue,
        };
        if *number >= operand::VGPR + 128 {
            *number -= 128;
            inst.op_sel |= 1 << at;
        }
    }
}

/// Returns the implicit destination of a compare: VCC, or EXEC for RDNA's `v_cmpx`.
fn compare_destination(desc: &InstDesc) -> u16 {
    if desc.registers(Field::Vcc) > 0 { operand::VCC } else { operand::EXEC }
}

/// Returns the destination's operand number: a VGPR, or an SGPR for lane reads.
fn destination(row: &InstDesc, number: u16) -> u16 {
    let scalar = row.operands.iter().any(|o| o.field == Field::Dst && o.scalar);
    if scalar { number } else { operand::VGPR + number }
}

fn sdwa(inst: &mut Inst, word: u32) {
    inst.words = 2;
    inst.src[0] = field(word, 0, 8) + if bit(word, 23) { 0 } else { operand::VGPR };
    if inst.desc.format != Format::VOP1 && bit(word, 31) {
        // The field names an SGPR instead of a VGPR.
        inst.src[1] -= operand::VGPR;
    }
    let mut sdwa = Sdwa {
        dst_sel: 6,
        dst_unused: 0,
        src_sel: [bits(word, 16, 3) as u8, bits(word, 24, 3) as u8],
        sext: [bit(word, 19), bit(word, 27)],
    };
    inst.neg = u8::from(bit(word, 20)) | u8::from(bit(word, 28)) << 1;
    inst.abs = u8::from(bit(word, 21)) | u8::from(bit(word, 29)) << 1;
    if inst.desc.format == Format::VOPC {
        if bit(word, 15) && inst.desc.registers(Field::Vcc) > 0 {
            inst.dst = field(word, 8, 7);
        }
    } else {
        // Conversions from fp8 and bf8 always write full registers.
        if !(inst.desc.name.ends_with("fp8") || inst.desc.name.ends_with("bf8")) {
            sdwa.dst_sel = bits(word, 8, 3) as u8;
            sdwa.dst_unused = bits(word, 11, 2) as u8;
        }
        inst.clamp = bit(word, 13);
        inst.omod = bits(word, 14, 2) as u8;
    }
    inst.ext = Extension::Sdwa(sdwa);
}

fn dpp(arch: Arch, inst: &mut Inst, word: u32) {
    inst.words += 1;
    inst.src[0] = operand::VGPR + field(word, 0, 8);
    if !matches!(inst.desc.format, Format::VOP3 | Format::VOP3P) {
        let taken = modifier_mask(inst.desc);
        inst.neg = taken & (u8::from(bit(word, 20)) | u8::from(bit(word, 22)) << 1);
        inst.abs = taken & (u8::from(bit(word, 21)) | u8::from(bit(word, 23)) << 1);
    }
    inst.ext = Extension::Dpp(Dpp {
        ctrl: field(word, 8, 9),
        bound_ctrl: bit(word, 19),
        bank_mask: bits(word, 24, 4) as u8,
        row_mask: bits(word, 28, 4) as u8,
        fetch_inactive: arch.is_rdna() && bit(word, 18),
    });
}

fn dpp8(inst: &mut Inst, word: u32) {
    inst.words += 1;
    inst.ext = Extension::Dpp8(Dpp8 { lanes: bits(word, 8, 24), fetch_inactive: inst.src[0] == operand::DPP8_FI });
    inst.src[0] = operand::VGPR + field(word, 0, 8);
}

/// Decodes VOP3.
pub(super) fn vop3(arch: Arch, mut inst: Inst, words: &[u32]) -> Result<Inst, DecodeError> {
    let (first, second) = (words[0], second(words)?);
    inst.words = 2;
    inst.src = [field(second, 0, 9), field(second, 9, 9), field(second, 18, 9)];
    inst.omod = bits(second, 27, 2) as u8;
    inst.neg = bits(second, 29, 3) as u8;
    inst.clamp = bit(first, 15);
    inst.dst = destination(inst.desc, field(first, 0, 8));
    let taken = modifier_mask(inst.desc);
    inst.neg &= taken;
    if inst.desc.registers(Field::Sdst) > 0 {
        inst.sdst = field(first, 8, 7);
    } else {
        inst.abs = bits(first, 8, 3) as u8 & taken;
        inst.op_sel = bits(first, 11, 4) as u8 & op_sel_mask(arch, inst.desc);
    }
    if arch.is_rdna() {
        if inst.desc.name.starts_with("v_cmpx_") {
            inst.dst = operand::EXEC;
        }
        third_dword(arch, &mut inst, words)?;
    }
    Ok(inst)
}

/// Decodes VOP3P of RDNA.
pub(super) fn packed(arch: Arch, mut inst: Inst, words: &[u32]) -> Result<Inst, DecodeError> {
    let (first, second) = (words[0], second(words)?);
    inst.words = 2;
    inst.dst = operand::VGPR + field(first, 0, 8);
    inst.src = [field(second, 0, 9), field(second, 9, 9), field(second, 18, 9)];
    inst.neg = bits(second, 29, 3) as u8;
    inst.neg_hi = bits(first, 8, 3) as u8;
    inst.clamp = bit(first, 15);
    inst.op_sel = bits(first, 11, 3) as u8;
    inst.op_sel_hi = (bits(second, 27, 2) | bits(first, 14, 1) << 2) as u8;
    third_dword(arch, &mut inst, words)?;
    Ok(inst)
}

/// Reads the literal or the DPP dword after VOP3 and VOP3P.
fn third_dword(arch: Arch, inst: &mut Inst, words: &[u32]) -> Result<(), DecodeError> {
    let third = || words.get(2).copied().ok_or(DecodeError::Truncated);
    let literal = inst.desc.operands.iter().any(|o| matches!(o.field, Field::Src(n) if inst.src[usize::from(n)] == operand::LITERAL));
    match inst.src[0] {
        operand::DPP if arch.has_vop3_dpp() => dpp(arch, inst, third()?),
        operand::DPP8 | operand::DPP8_FI if arch.has_vop3_dpp() => dpp8(inst, third()?),
        _ if literal => {
            inst.literal = third()?;
            inst.words = 3;
        }
        _ => {}
    }
    Ok(())
}

/// Returns the bits of `op_sel` that apply.
fn op_sel_mask(arch: Arch, desc: &InstDesc) -> u8 {
    if !arch.is_rdna() {
        return if has_op_sel(desc.name) { 0b1111 } else { 0 };
    }
    // The bits hold `fi` and `bound_ctrl`.
    if desc.name.starts_with("v_permlane16") || desc.name.starts_with("v_permlanex16") {
        return 0b11;
    }
    // They select a byte.
    if desc.name.starts_with("v_cvt_sr_") {
        return 0b1100;
    }
    if matches!(desc.name, "v_cvt_f32_fp8" | "v_cvt_f32_bf8") {
        return 0b11;
    }
    desc.operands.iter().filter(|operand| operand.is_half()).fold(0, |mask, operand| match operand.field {
        Field::Dst => mask | 0b1000,
        Field::Src(n) => mask | 1 << n,
        _ => mask,
    })
}

/// Returns a bit per source that takes neg and abs: the float sources.
fn modifier_mask(row: &InstDesc) -> u8 {
    match row.name {
        "v_cndmask_b32" | "v_cndmask_b16" => 0b11,
        "v_ldexp_f16" | "v_ldexp_f32" | "v_ldexp_f64" | "v_cvt_pk_u8_f32" | "v_cvt_pkaccum_u8_f32" | "v_trig_preop_f64" => 0b1,
        name if name.contains("_class_") || name.starts_with("v_cvt_sr_") => 0b1,
        "v_dot2_bf16_bf16" => 0b111,
        _ if row.source_type().starts_with('f') => 0b111,
        _ => 0,
    }
}

/// Returns whether op_sel applies on GFX9: true for the few 16-bit VOP3 instructions of gfx9.
fn has_op_sel(name: &str) -> bool {
    let sixteen = ["v_mad_", "v_min3_", "v_max3_", "v_med3_"].iter().any(|start| name.starts_with(start))
        && ["f16", "i16", "u16"].iter().any(|end| name.ends_with(end));
    let named = matches!(
        name,
        "v_fma_f16" | "v_div_fixup_f16" | "v_cvt_pknorm_i16_f16" | "v_cvt_pknorm_u16_f16" | "v_add_i16" | "v_sub_i16" | "v_pack_b32_f16"
    );
    let eight = ["v_cvt_pk_fp8_f32", "v_cvt_pk_bf8_f32", "v_cvt_sr_fp8_f32", "v_cvt_sr_bf8_f32"].contains(&name);
    (sixteen && !name.contains("legacy")) || named || eight
}

/// Returns the AGPR with the number of a VGPR.
pub(super) fn to_agpr(number: u16) -> u16 {
    if number >= operand::VGPR { number + (operand::AGPR - operand::VGPR) } else { number }
}
