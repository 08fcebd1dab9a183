//! The instruction decoder.

use super::table::{Field, Format, InstDesc, lookup};
use super::{Dpp, Extension, Inst, Sdwa, flag, operand};
use crate::arch::Arch;

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
/// The value of the scalar base field of FLAT encodings for `off`.
const SADDR_OFF: u16 = 0x7f;
/// VOP3 opcodes of the interpolation instructions.
const VOP3_INTERPOLATION: std::ops::RangeInclusive<u32> = 624..=631;

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

/// Decodes the instruction that `words` begins with.
pub fn decode(arch: Arch, words: &[u32]) -> Result<Inst, DecodeError> {
    let mut inst = decode_fields(arch, words)?;
    check_operands(&inst)?;
    align_scalar_operands(&mut inst);
    Ok(inst)
}

/// Rejects reserved source operands, so that execution never has to make up a value.
fn check_operands(inst: &Inst) -> Result<(), DecodeError> {
    let literal = match inst.desc.format {
        Format::VOP1 | Format::VOP2 | Format::VOPC => inst.ext == Extension::None,
        Format::VOP3 | Format::VOP3P | Format::MUBUF => false,
        _ => true,
    };
    for operand in &inst.desc.operands {
        let number = match operand.field {
            Field::Src(n) => inst.src[usize::from(n)],
            Field::Soffset => inst.offset,
            _ => continue,
        };
        if matches!(number, RESERVED_FIRST..operand::SHARED_BASE | operand::SDWA | operand::DPP) || number == operand::LITERAL && !literal {
            return Err(DecodeError::ReservedOperand(inst.desc.name, number));
        }
    }
    Ok(())
}

/// Clears the low bits of multi-register scalar operands: pairs start at even registers, larger ranges at multiples of four.
fn align_scalar_operands(inst: &mut Inst) {
    for operand in &inst.desc.operands {
        let number = match operand.field {
            Field::Dst => &mut inst.dst,
            Field::Sdst => &mut inst.sdst,
            Field::Src(n) => &mut inst.src[usize::from(n)],
            Field::Base | Field::Resource => &mut inst.base,
            Field::Vcc if inst.desc.format == Format::VOPC => &mut inst.dst,
            _ => continue,
        };
        let wide = if operand.field == Field::Vcc { 2 } else { operand.registers };
        if matches!(*number, 0..operand::FLAT_SCRATCH | operand::TTMP0..operand::M0) && wide > 1 {
            *number &= if wide == 2 { !1 } else { !3 };
        }
    }
    if inst.desc.format == Format::GLOBAL && matches!(inst.base, 0..operand::FLAT_SCRATCH | operand::TTMP0..operand::M0) {
        inst.base &= !1;
    }
}

fn decode_fields(arch: Arch, words: &[u32]) -> Result<Inst, DecodeError> {
    let first = *words.first().ok_or(DecodeError::Truncated)?;
    let second = || words.get(1).copied().ok_or(DecodeError::Truncated);
    let row = |format, opcode| lookup(arch, format, opcode).ok_or(DecodeError::UnknownOpcode(format, opcode));
    match first >> 23 {
        0b1_0111_1101 => return scalar(Inst::new(row(Format::SOP1, bits(first, 8, 8))?), words),
        0b1_0111_1110 => return scalar(Inst::new(row(Format::SOPC, bits(first, 16, 7))?), words),
        0b1_0111_1111 => return scalar(Inst::new(row(Format::SOPP, bits(first, 16, 7))?), words),
        0b1_1010_0111 => return packed(arch, Inst::new(row(Format::VOP3P, bits(first, 16, 7))?), first, second()?),
        _ => {}
    }
    match first >> 26 {
        0b110000 => return Ok(smem(Inst::new(row(Format::SMEM, bits(first, 18, 8))?), first, second()?)),
        0b110100 if VOP3_INTERPOLATION.contains(&bits(first, 16, 10)) => return Err(DecodeError::GraphicsOnly("interpolation")),
        0b110100 => return Ok(vop3(Inst::new(row(Format::VOP3, bits(first, 16, 10))?), first, second()?)),
        0b110110 => return Ok(ds(arch, Inst::new(row(Format::DS, bits(first, 17, 8))?), first, second()?)),
        0b110111 => {
            let format = match bits(first, 14, 2) {
                0 => Format::FLAT,
                1 => Format::SCRATCH,
                2 => Format::GLOBAL,
                _ => return Err(DecodeError::UnknownEncoding(first)),
            };
            return Ok(flat(arch, Inst::new(row(format, bits(first, 18, 7))?), first, second()?));
        }
        0b110001 => return Err(DecodeError::GraphicsOnly("EXP")),
        0b110101 => return Err(DecodeError::GraphicsOnly("interpolation")),
        0b111010 => return Err(DecodeError::GraphicsOnly("MTBUF")),
        0b111100 => return Err(DecodeError::GraphicsOnly("MIMG")),
        0b111000 => return Ok(mubuf(arch, Inst::new(row(Format::MUBUF, bits(first, 18, 7))?), first, second()?)),
        _ => {}
    }
    match first >> 28 {
        0b1011 => return scalar(Inst::new(row(Format::SOPK, bits(first, 23, 5))?), words),
        0b1000..=0b1010 => return scalar(Inst::new(row(Format::SOP2, bits(first, 23, 7))?), words),
        _ => {}
    }
    if first >> 31 == 0 {
        let row = match first >> 25 {
            0b0111111 => row(Format::VOP1, bits(first, 9, 8))?,
            0b0111110 => row(Format::VOPC, bits(first, 17, 8))?,
            _ => row(Format::VOP2, bits(first, 25, 6))?,
        };
        return vop(Inst::new(row), words);
    }
    Err(DecodeError::UnknownEncoding(first))
}

fn scalar(mut inst: Inst, words: &[u32]) -> Result<Inst, DecodeError> {
    let word = words[0];
    match inst.desc.format {
        Format::SOP2 => {
            inst.dst = field(word, 16, 7);
            inst.src = [field(word, 0, 8), field(word, 8, 8), 0];
        }
        Format::SOP1 => {
            inst.dst = field(word, 16, 7);
            inst.src[0] = field(word, 0, 8);
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
fn literal(inst: &mut Inst, words: &[u32]) -> Result<(), DecodeError> {
    let own = inst.desc.registers(Field::Literal) > 0;
    let sources = inst.desc.operands.iter().any(|o| matches!(o.field, Field::Src(n) if inst.src[usize::from(n)] == operand::LITERAL));
    if own || sources {
        inst.literal = *words.get(1).ok_or(DecodeError::Truncated)?;
        inst.words = 2;
    }
    Ok(())
}

fn smem(mut inst: Inst, first: u32, second: u32) -> Inst {
    inst.words = 2;
    inst.dst = field(first, 6, 7);
    if inst.desc.registers(Field::Base) > 0 {
        inst.base = field(first, 0, 6) << 1;
    }
    inst.flags = if bit(first, 16) { flag::GLC } else { 0 };
    // With `soffset_en` immediate and register are added; without, `imm` selects one of them.
    if bit(first, 14) {
        inst.offset = field(second, 25, 7);
    }
    if bit(first, 17) {
        inst.flags |= flag::IMM;
        inst.imm = signed(second, 21);
    } else if !bit(first, 14) {
        inst.offset = field(second, 0, 7);
    }
    inst
}

fn vop(mut inst: Inst, words: &[u32]) -> Result<Inst, DecodeError> {
    let word = words[0];
    inst.src[0] = field(word, 0, 9);
    match inst.desc.format {
        Format::VOP1 => inst.dst = destination(inst.desc, field(word, 17, 8)),
        Format::VOP2 => {
            inst.dst = destination(inst.desc, field(word, 17, 8));
            inst.src[1] = operand::VGPR + field(word, 9, 8);
        }
        _ => {
            inst.dst = operand::VCC;
            inst.src[1] = operand::VGPR + field(word, 9, 8);
        }
    }
    if inst.desc.name == "v_accvgpr_mov_b32" {
        inst.dst = to_agpr(inst.dst);
        inst.src[0] = to_agpr(inst.src[0]);
    }
    match inst.src[0] {
        operand::SDWA => sdwa(&mut inst, *words.get(1).ok_or(DecodeError::Truncated)?),
        operand::DPP => dpp(&mut inst, *words.get(1).ok_or(DecodeError::Truncated)?),
        _ => literal(&mut inst, words)?,
    }
    Ok(inst)
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
        if bit(word, 15) {
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

fn dpp(inst: &mut Inst, word: u32) {
    inst.words = 2;
    inst.src[0] = operand::VGPR + field(word, 0, 8);
    let taken = modifier_mask(inst.desc);
    inst.neg = taken & (u8::from(bit(word, 20)) | u8::from(bit(word, 22)) << 1);
    inst.abs = taken & (u8::from(bit(word, 21)) | u8::from(bit(word, 23)) << 1);
    inst.ext = Extension::Dpp(Dpp {
        ctrl: field(word, 8, 9),
        bound_ctrl: bit(word, 19),
        bank_mask: bits(word, 24, 4) as u8,
        row_mask: bits(word, 28, 4) as u8,
    });
}

fn vop3(mut inst: Inst, first: u32, second: u32) -> Inst {
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
        if has_op_sel(inst.desc.name) {
            inst.op_sel = bits(first, 11, 4) as u8;
        }
    }
    inst
}

/// Returns a bit per source that takes neg and abs: the float sources.
fn modifier_mask(row: &InstDesc) -> u8 {
    match row.name {
        "v_cndmask_b32" => 0b11,
        "v_ldexp_f16" | "v_ldexp_f32" | "v_ldexp_f64" | "v_cvt_pk_u8_f32" | "v_cvt_pkaccum_u8_f32" | "v_trig_preop_f64" => 0b1,
        name if name.contains("_class_") || name.starts_with("v_cvt_sr_") => 0b1,
        _ if row.source_type().starts_with('f') => 0b111,
        _ => 0,
    }
}

/// Returns whether op_sel applies: true for the few 16-bit VOP3 instructions of gfx9.
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

fn packed(arch: Arch, mut inst: Inst, first: u32, second: u32) -> Result<Inst, DecodeError> {
    inst.words = 2;
    inst.dst = operand::VGPR + field(first, 0, 8);
    inst.src = [field(second, 0, 9), field(second, 9, 9), field(second, 18, 9)];
    inst.neg = bits(second, 29, 3) as u8;
    inst.neg_hi = bits(first, 8, 3) as u8;
    if inst.desc.name.contains("mfma") || inst.desc.name.contains("smfmac") {
        inst.op_sel = bits(first, 11, 4) as u8;
        for n in 0..2 {
            if bit(second, 27 + n as u32) {
                inst.src[n] = to_agpr(inst.src[n]);
            }
        }
        // gfx908 always has C and D in AGPRs; later architectures choose.
        if bit(first, 15) || !arch.has_unified_vgprs() {
            inst.dst = to_agpr(inst.dst);
            // The index operand of sparse forms stays a VGPR.
            if !inst.desc.name.contains("smfmac") {
                inst.src[2] = to_agpr(inst.src[2]);
            }
        }
        return Ok(inst);
    }
    match inst.desc.name {
        "v_accvgpr_read_b32" => inst.src[0] = to_agpr(inst.src[0]),
        "v_accvgpr_write_b32" => inst.dst = to_agpr(inst.dst),
        _ => {
            inst.clamp = bit(first, 15);
            inst.op_sel = bits(first, 11, 3) as u8;
            inst.op_sel_hi = (bits(second, 27, 2) | bits(first, 14, 1) << 2) as u8;
        }
    }
    Ok(inst)
}

/// Returns the AGPR with the number of a VGPR.
fn to_agpr(number: u16) -> u16 {
    if number >= operand::VGPR { number + (operand::AGPR - operand::VGPR) } else { number }
}

/// Returns the data register of a memory instruction in the VGPR or AGPR file.
fn data_register(number: u16, acc: bool) -> u16 {
    number + if acc { operand::AGPR } else { operand::VGPR }
}

fn ds(arch: Arch, mut inst: Inst, first: u32, second: u32) -> Inst {
    inst.words = 2;
    let acc = arch.has_unified_vgprs() && bit(first, 25);
    inst.imm = bits(first, 0, 16) as i32;
    // gfx90a and later have no GDS except for GWS, whose data is in the address field.
    let semaphore = inst.desc.name.starts_with("ds_gws_");
    inst.flags = if bit(first, 16) && (semaphore || !arch.has_unified_vgprs()) { flag::GDS } else { 0 };
    inst.src = [operand::VGPR + field(second, 0, 8), data_register(field(second, 8, 8), acc), data_register(field(second, 16, 8), acc)];
    if semaphore {
        inst.src[0] = data_register(field(second, 0, 8), acc);
    }
    inst.dst = data_register(field(second, 24, 8), acc);
    inst
}

fn flat(arch: Arch, mut inst: Inst, first: u32, second: u32) -> Inst {
    inst.words = 2;
    let acc = arch.has_unified_vgprs() && bit(second, 23);
    // FLAT offsets are unsigned; the others are signed.
    inst.imm = if inst.desc.format == Format::FLAT { bits(first, 0, 12) as i32 } else { signed(first, 13) };
    let mut flags = 0;
    for (at, value) in [(16, flag::GLC), (17, flag::SLC)] {
        flags |= if bit(first, at) { value } else { 0 };
    }
    if arch.has_unified_vgprs() && bit(first, 25) {
        flags |= flag::SC1;
    }
    if !arch.has_gfx940_memory_fields() && bit(first, 13) {
        flags |= flag::LDS;
    }
    if arch == Arch::Gfx908 && bit(second, 23) {
        flags |= flag::NV;
    }
    let saddr = field(second, 16, 7);
    match inst.desc.format {
        Format::GLOBAL if saddr != SADDR_OFF => inst.base = saddr,
        Format::SCRATCH => {
            if saddr != SADDR_OFF {
                inst.base = saddr;
            }
            // gfx942 has a bit for it; before, a scalar base excludes a vector address.
            let vector = if arch.has_gfx940_memory_fields() { bit(first, 13) } else { saddr == SADDR_OFF };
            flags |= if vector { flag::VADDR } else { 0 };
        }
        _ => {}
    }
    inst.flags = flags;
    inst.src = [operand::VGPR + field(second, 0, 8), data_register(field(second, 8, 8), acc), 0];
    inst.dst = data_register(field(second, 24, 8), acc);
    inst
}

fn mubuf(arch: Arch, mut inst: Inst, first: u32, second: u32) -> Inst {
    inst.words = 2;
    inst.imm = bits(first, 0, 12) as i32;
    let mut flags = 0;
    for (at, value) in [(12, flag::OFFEN), (13, flag::IDXEN), (14, flag::GLC), (16, flag::LDS), (17, flag::SLC)] {
        flags |= if bit(first, at) { value } else { 0 };
    }
    if arch.has_unified_vgprs() && bit(first, 15) {
        flags |= flag::SC1;
    }
    let acc = arch.has_unified_vgprs() && bit(second, 23);
    if arch == Arch::Gfx908 && bit(second, 23) {
        flags |= flag::TFE;
    }
    inst.flags = flags;
    inst.src[0] = operand::VGPR + field(second, 0, 8);
    inst.dst = data_register(field(second, 8, 8), acc);
    inst.base = field(second, 16, 5) << 2;
    inst.offset = field(second, 24, 8);
    inst
}
