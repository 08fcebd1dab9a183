//! Scalar instructions: arithmetic on SGPRs, and control flow.

use super::decoded::{Handler, SourceKind, Step};
use super::valu::scalar64_source;
use super::wave::{Mode, State, Wave, gpr_index};
use super::{Env, Outcome};
use crate::bits::BitField;
use crate::isa::hwreg::{self, HwregOperand};
use crate::isa::{Field, operand};

/// Returns a 32-bit source.
fn src32(w: &Wave, s: &Step, n: usize) -> u32 {
    match s.kind[n] {
        SourceKind::Constant => s.constant[n] as u32,
        _ => match s.inst.src[n] {
            number @ operand::SHARED_BASE..=operand::PRIVATE_LIMIT => super::aperture_value(number) as u32,
            number => w.scalar(number),
        },
    }
}

fn src64(w: &Wave, s: &Step, n: usize) -> u64 {
    scalar64_source(w, s, n)
}

/// SOP2 instructions: two sources, a result, and SCC.
macro_rules! sop2 {
    ($($name:ident: $get:ident, $set:ident, |$a:ident, $b:ident, $scc:ident| $body:expr;)*) => {
        $(
            fn $name(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
                let ($a, $b, $scc) = ($get(w, s, 0), sop2!(@second $get, w, s, $name), w.scc);
                #[allow(clippy::redundant_locals)]
                let (value, scc) = $body;
                let _ = $scc;
                w.scc = scc;
                w.$set(s.inst.dst, value);
                Outcome::Continue
            }
        )*
        fn find_sop2(name: &str) -> Option<Handler> {
            Some(match name { $( stringify!($name) => $name, )* _ => return None })
        }
    };
    (@second $get:ident, $w:ident, $s:ident, $name:ident) => {
        if $s.inst.desc.registers(Field::Src(1)) == 2 { src64($w, $s, 1) } else { u64::from(src32($w, $s, 1)) }
    };
}

fn scc_if_nonzero32(value: u32) -> (u32, bool) {
    (value, value != 0)
}

fn scc_if_nonzero64(value: u64) -> (u64, bool) {
    (value, value != 0)
}

/// Extracts a bit field: the offset is in the low bits of `spec`, the width from bit 16 on.
fn bfe64(value: u64, spec: u64, signed: bool) -> u64 {
    let (offset, width) = ((spec & 63) as u32, (spec >> 16 & 127) as u32);
    if width == 0 {
        return 0;
    }
    // Bits beyond the register are its sign, or 0.
    let shifted = if signed { (value as i64 >> offset) as u64 } else { value >> offset };
    if width >= 64 {
        return shifted;
    }
    let low = shifted & ((1 << width) - 1);
    if signed { ((low << (64 - width)) as i64 >> (64 - width)) as u64 } else { low }
}

fn bfe32(value: u32, spec: u32, signed: bool) -> u32 {
    let (offset, width) = (spec & 31, (spec >> 16 & 127).min(32));
    let wide = u64::from(offset) | u64::from(width) << 16;
    let extended = if signed { i64::from(value as i32) as u64 } else { u64::from(value) };
    bfe64(extended, wide, signed) as u32
}

sop2! {
    s_add_u32: src32, set_scalar, |a, b, scc| a.overflowing_add(b as u32);
    s_sub_u32: src32, set_scalar, |a, b, scc| a.overflowing_sub(b as u32);
    s_add_i32: src32, set_scalar, |a, b, scc| { let (v, o) = (a as i32).overflowing_add(b as i32); (v as u32, o) };
    s_sub_i32: src32, set_scalar, |a, b, scc| { let (v, o) = (a as i32).overflowing_sub(b as i32); (v as u32, o) };
    s_addc_u32: src32, set_scalar, |a, b, scc| { let sum = u64::from(a) + b + u64::from(scc); (sum as u32, sum >> 32 != 0) };
    s_subb_u32: src32, set_scalar, |a, b, scc| {
        let (b, borrow) = (b as u32, u32::from(scc));
        (a.wrapping_sub(b).wrapping_sub(borrow), u64::from(a) < u64::from(b) + u64::from(borrow))
    };
    s_min_i32: src32, set_scalar, |a, b, scc| { let (a, b) = (a as i32, b as i32); (a.min(b) as u32, a < b) };
    s_min_u32: src32, set_scalar, |a, b, scc| { let b = b as u32; (a.min(b), a < b) };
    s_max_i32: src32, set_scalar, |a, b, scc| { let (a, b) = (a as i32, b as i32); (a.max(b) as u32, a >= b) };
    s_max_u32: src32, set_scalar, |a, b, scc| { let b = b as u32; (a.max(b), a >= b) };
    s_cselect_b32: src32, set_scalar, |a, b, scc| (if scc { a } else { b as u32 }, scc);
    s_cselect_b64: src64, set_scalar64, |a, b, scc| (if scc { a } else { b }, scc);
    s_and_b32: src32, set_scalar, |a, b, scc| scc_if_nonzero32(a & b as u32);
    s_and_b64: src64, set_scalar64, |a, b, scc| scc_if_nonzero64(a & b);
    s_or_b32: src32, set_scalar, |a, b, scc| scc_if_nonzero32(a | b as u32);
    s_or_b64: src64, set_scalar64, |a, b, scc| scc_if_nonzero64(a | b);
    s_xor_b32: src32, set_scalar, |a, b, scc| scc_if_nonzero32(a ^ b as u32);
    s_xor_b64: src64, set_scalar64, |a, b, scc| scc_if_nonzero64(a ^ b);
    s_andn2_b32: src32, set_scalar, |a, b, scc| scc_if_nonzero32(a & !(b as u32));
    s_andn2_b64: src64, set_scalar64, |a, b, scc| scc_if_nonzero64(a & !b);
    s_orn2_b32: src32, set_scalar, |a, b, scc| scc_if_nonzero32(a | !(b as u32));
    s_orn2_b64: src64, set_scalar64, |a, b, scc| scc_if_nonzero64(a | !b);
    s_nand_b32: src32, set_scalar, |a, b, scc| scc_if_nonzero32(!(a & b as u32));
    s_nand_b64: src64, set_scalar64, |a, b, scc| scc_if_nonzero64(!(a & b));
    s_nor_b32: src32, set_scalar, |a, b, scc| scc_if_nonzero32(!(a | b as u32));
    s_nor_b64: src64, set_scalar64, |a, b, scc| scc_if_nonzero64(!(a | b));
    s_xnor_b32: src32, set_scalar, |a, b, scc| scc_if_nonzero32(!(a ^ b as u32));
    s_xnor_b64: src64, set_scalar64, |a, b, scc| scc_if_nonzero64(!(a ^ b));
    s_lshl_b32: src32, set_scalar, |a, b, scc| scc_if_nonzero32(a << (b & 31));
    s_lshl_b64: src64, set_scalar64, |a, b, scc| scc_if_nonzero64(a << (b & 63));
    s_lshr_b32: src32, set_scalar, |a, b, scc| scc_if_nonzero32(a >> (b & 31));
    s_lshr_b64: src64, set_scalar64, |a, b, scc| scc_if_nonzero64(a >> (b & 63));
    s_ashr_i32: src32, set_scalar, |a, b, scc| scc_if_nonzero32((a as i32 >> (b & 31)) as u32);
    s_ashr_i64: src64, set_scalar64, |a, b, scc| scc_if_nonzero64((a as i64 >> (b & 63)) as u64);
    s_bfm_b32: src32, set_scalar, |a, b, scc| (((1u32 << (a & 31)) - 1) << (b & 31), scc);
    s_bfm_b64: src32, set_scalar64, |a, b, scc| (((1u64 << (a & 63)) - 1) << (b & 63), scc);
    s_mul_i32: src32, set_scalar, |a, b, scc| (a.wrapping_mul(b as u32), scc);
    s_mul_hi_u32: src32, set_scalar, |a, b, scc| ((u64::from(a) * (b & 0xffff_ffff) >> 32) as u32, scc);
    s_mul_hi_i32: src32, set_scalar, |a, b, scc| ((i64::from(a as i32) * i64::from(b as i32) >> 32) as u32, scc);
    s_bfe_u32: src32, set_scalar, |a, b, scc| scc_if_nonzero32(bfe32(a, b as u32, false));
    s_bfe_i32: src32, set_scalar, |a, b, scc| scc_if_nonzero32(bfe32(a, b as u32, true));
    s_bfe_u64: src64, set_scalar64, |a, b, scc| scc_if_nonzero64(bfe64(a, b, false));
    s_bfe_i64: src64, set_scalar64, |a, b, scc| scc_if_nonzero64(bfe64(a, b, true));
    s_absdiff_i32: src32, set_scalar, |a, b, scc| scc_if_nonzero32((a as i32).wrapping_sub(b as i32).wrapping_abs() as u32);
    s_lshl1_add_u32: src32, set_scalar, |a, b, scc| shift_add(a, b, 1);
    s_lshl2_add_u32: src32, set_scalar, |a, b, scc| shift_add(a, b, 2);
    s_lshl3_add_u32: src32, set_scalar, |a, b, scc| shift_add(a, b, 3);
    s_lshl4_add_u32: src32, set_scalar, |a, b, scc| shift_add(a, b, 4);
    s_pack_ll_b32_b16: src32, set_scalar, |a, b, scc| (a & 0xffff | (b as u32) << 16, scc);
    s_pack_lh_b32_b16: src32, set_scalar, |a, b, scc| (a & 0xffff | b as u32 & 0xffff_0000, scc);
    s_pack_hh_b32_b16: src32, set_scalar, |a, b, scc| (a >> 16 | b as u32 & 0xffff_0000, scc);
    s_pack_hl_b32_b16: src32, set_scalar, |a, b, scc| (a >> 16 | (b as u32) << 16, scc);
    s_add_nc_u64: src64, set_scalar64, |a, b, scc| (a.wrapping_add(b), scc);
    s_sub_nc_u64: src64, set_scalar64, |a, b, scc| (a.wrapping_sub(b), scc);
    s_mul_u64: src64, set_scalar64, |a, b, scc| (a.wrapping_mul(b), scc);
}

fn shift_add(a: u32, b: u64, by: u32) -> (u32, bool) {
    let sum = (u64::from(a) << by) + (b & 0xffff_ffff);
    (sum as u32, sum >> 32 != 0)
}

/// SOP1 instructions: one source, a result, and SCC.
macro_rules! sop1 {
    ($($name:ident: $get:ident, $set:ident, |$a:ident, $scc:ident| $body:expr;)*) => {
        $(
            fn $name(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
                let ($a, $scc) = ($get(w, s, 0), w.scc);
                #[allow(clippy::redundant_locals)]
                let (value, scc) = $body;
                let _ = $scc;
                w.scc = scc;
                w.$set(s.inst.dst, value);
                Outcome::Continue
            }
        )*
        fn find_sop1(name: &str) -> Option<Handler> {
            Some(match name { $( stringify!($name) => $name, )* _ => return None })
        }
    };
}

fn whole_quads(value: u64) -> u64 {
    (0..16).filter(|n| value >> (4 * n) & 15 != 0).fold(0, |out, n| out | 15 << (4 * n))
}

fn quad_mask(value: u64) -> u64 {
    (0..16).filter(|n| value >> (4 * n) & 15 != 0).fold(0, |out, n| out | 1 << n)
}

/// Returns the position, from the top, of the first bit that differs from the sign; -1 when all are equal.
fn sign_bits(value: i64, width: u32) -> u32 {
    let folded = (if value < 0 { !value } else { value }) as u64;
    if folded == 0 { u32::MAX } else { folded.leading_zeros() - (64 - width) }
}

sop1! {
    s_mov_b32: src32, set_scalar, |a, scc| (a, scc);
    s_mov_b64: src64, set_scalar64, |a, scc| (a, scc);
    s_not_b32: src32, set_scalar, |a, scc| scc_if_nonzero32(!a);
    s_not_b64: src64, set_scalar64, |a, scc| scc_if_nonzero64(!a);
    s_wqm_b32: src32, set_scalar, |a, scc| scc_if_nonzero32(whole_quads(u64::from(a)) as u32);
    s_wqm_b64: src64, set_scalar64, |a, scc| scc_if_nonzero64(whole_quads(a));
    s_quadmask_b32: src32, set_scalar, |a, scc| scc_if_nonzero32(quad_mask(u64::from(a)) as u32);
    s_quadmask_b64: src64, set_scalar64, |a, scc| scc_if_nonzero64(quad_mask(a));
    s_brev_b32: src32, set_scalar, |a, scc| (a.reverse_bits(), scc);
    s_brev_b64: src64, set_scalar64, |a, scc| (a.reverse_bits(), scc);
    s_bcnt0_i32_b32: src32, set_scalar, |a, scc| scc_if_nonzero32(a.count_zeros());
    s_bcnt0_i32_b64: src64, set_scalar, |a, scc| scc_if_nonzero32(a.count_zeros());
    s_bcnt1_i32_b32: src32, set_scalar, |a, scc| scc_if_nonzero32(a.count_ones());
    s_bcnt1_i32_b64: src64, set_scalar, |a, scc| scc_if_nonzero32(a.count_ones());
    s_ff0_i32_b32: src32, set_scalar, |a, scc| (if a == u32::MAX { u32::MAX } else { a.trailing_ones() }, scc);
    s_ff0_i32_b64: src64, set_scalar, |a, scc| (if a == u64::MAX { u32::MAX } else { a.trailing_ones() }, scc);
    s_ff1_i32_b32: src32, set_scalar, |a, scc| (if a == 0 { u32::MAX } else { a.trailing_zeros() }, scc);
    s_ff1_i32_b64: src64, set_scalar, |a, scc| (if a == 0 { u32::MAX } else { a.trailing_zeros() }, scc);
    s_flbit_i32_b32: src32, set_scalar, |a, scc| (if a == 0 { u32::MAX } else { a.leading_zeros() }, scc);
    s_flbit_i32_b64: src64, set_scalar, |a, scc| (if a == 0 { u32::MAX } else { a.leading_zeros() }, scc);
    s_flbit_i32: src32, set_scalar, |a, scc| (sign_bits(i64::from(a as i32), 32), scc);
    s_flbit_i32_i64: src64, set_scalar, |a, scc| (sign_bits(a as i64, 64), scc);
    s_sext_i32_i8: src32, set_scalar, |a, scc| (a as u8 as i8 as i32 as u32, scc);
    s_sext_i32_i16: src32, set_scalar, |a, scc| (a as u16 as i16 as i32 as u32, scc);
    s_abs_i32: src32, set_scalar, |a, scc| scc_if_nonzero32((a as i32).wrapping_abs() as u32);
    s_bitreplicate_b64_b32: src32, set_scalar64, |a, scc| ((0..32).fold(0u64, |out, n| out | u64::from(a >> n & 1) * 3 << (2 * n)), scc);
}

/// Returns a source that is a lane mask: 64 bits, or 32 in the instructions of wave32.
fn src_mask(w: &Wave, s: &Step) -> u64 {
    if s.inst.desc.registers(Field::Src(0)) == 2 { src64(w, s, 0) } else { u64::from(src32(w, s, 0)) }
}

/// Writes a lane mask to an operand, in the width of the instruction's destination.
fn set_mask(w: &mut Wave, s: &Step, number: u16, mask: u64) {
    if s.inst.desc.registers(Field::Dst) == 2 {
        w.set_scalar64(number, mask);
    } else {
        w.set_scalar(number, mask as u32);
    }
}

/// `s_*_saveexec_b64` and `s_*_saveexec_b32`: save EXEC and combine it with the source.
macro_rules! saveexec {
    ($($wide:ident $narrow:ident: |$a:ident, $exec:ident| $body:expr;)*) => {
        $(
            fn $wide(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
                let ($a, $exec) = (src_mask(w, s), w.exec);
                let new: u64 = $body;
                set_mask(w, s, s.inst.dst, $exec);
                set_mask(w, s, operand::EXEC, new);
                w.scc = w.exec != 0;
                Outcome::Continue
            }
        )*
        fn find_saveexec(name: &str) -> Option<Handler> {
            Some(match name { $( stringify!($wide) | stringify!($narrow) => $wide, )* _ => return None })
        }
    };
}

saveexec! {
    s_and_saveexec_b64 s_and_saveexec_b32: |a, exec| a & exec;
    s_or_saveexec_b64 s_or_saveexec_b32: |a, exec| a | exec;
    s_xor_saveexec_b64 s_xor_saveexec_b32: |a, exec| a ^ exec;
    s_andn2_saveexec_b64 s_andn2_saveexec_b32: |a, exec| a & !exec;
    s_orn2_saveexec_b64 s_orn2_saveexec_b32: |a, exec| a | !exec;
    s_nand_saveexec_b64 s_nand_saveexec_b32: |a, exec| !(a & exec);
    s_nor_saveexec_b64 s_nor_saveexec_b32: |a, exec| !(a | exec);
    s_xnor_saveexec_b64 s_xnor_saveexec_b32: |a, exec| !(a ^ exec);
    s_andn1_saveexec_b64 s_andn1_saveexec_b32: |a, exec| !a & exec;
    s_orn1_saveexec_b64 s_orn1_saveexec_b32: |a, exec| !a | exec;
}

/// Writes a result to EXEC and to the destination.
fn write_exec(w: &mut Wave, s: &Step, value: u64) -> Outcome {
    set_mask(w, s, operand::EXEC, value);
    let exec = w.exec;
    set_mask(w, s, s.inst.dst, exec);
    w.scc = exec != 0;
    Outcome::Continue
}

fn andn1_wrexec(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    let value = !src_mask(w, s) & w.exec;
    write_exec(w, s, value)
}

fn andn2_wrexec(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    let value = src_mask(w, s) & !w.exec;
    write_exec(w, s, value)
}

fn s_cmov_b32(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    if w.scc {
        let value = src32(w, s, 0);
        w.set_scalar(s.inst.dst, value);
    }
    Outcome::Continue
}

fn s_cmov_b64(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    if w.scc {
        let value = src64(w, s, 0);
        w.set_scalar64(s.inst.dst, value);
    }
    Outcome::Continue
}

fn set_bit(w: &mut Wave, s: &Step, wide: bool, one: bool) -> Outcome {
    let at = src32(w, s, 0);
    if wide {
        let (old, bit) = (w.scalar64(s.inst.dst), 1u64 << (at & 63));
        w.set_scalar64(s.inst.dst, if one { old | bit } else { old & !bit });
    } else {
        let (old, bit) = (w.scalar(s.inst.dst), 1u32 << (at & 31));
        w.set_scalar(s.inst.dst, if one { old | bit } else { old & !bit });
    }
    Outcome::Continue
}

fn s_bitset0_b32(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    set_bit(w, s, false, false)
}

fn s_bitset0_b64(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    set_bit(w, s, true, false)
}

fn s_bitset1_b32(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    set_bit(w, s, false, true)
}

fn s_bitset1_b64(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    set_bit(w, s, true, true)
}

/// Returns a register number plus M0.
fn m0_relative(w: &Wave, number: u16) -> u16 {
    (u32::from(number).wrapping_add(w.sgprs[usize::from(operand::M0)]) & 127) as u16
}

fn s_movrels_b32(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    let value = w.scalar(m0_relative(w, s.inst.src[0]));
    w.set_scalar(s.inst.dst, value);
    Outcome::Continue
}

fn s_movrels_b64(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    let value = w.scalar64(m0_relative(w, s.inst.src[0]).min(126));
    w.set_scalar64(s.inst.dst, value);
    Outcome::Continue
}

fn s_movreld_b32(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    let value = src32(w, s, 0);
    w.set_scalar(m0_relative(w, s.inst.dst), value);
    Outcome::Continue
}

fn s_movreld_b64(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    let value = src64(w, s, 0);
    w.set_scalar64(m0_relative(w, s.inst.dst).min(126), value);
    Outcome::Continue
}

/// `s_movrelsd_2_b32`: M0 has one offset for the source and one for the destination.
fn s_movrelsd_2_b32(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    let m0 = w.sgprs[usize::from(operand::M0)];
    let value = w.scalar((u32::from(s.inst.src[0]).wrapping_add(m0 & 0x3ff) & 127) as u16);
    w.set_scalar((u32::from(s.inst.dst).wrapping_add(m0 >> 16 & 0x3ff) & 127) as u16, value);
    Outcome::Continue
}

/// Returns the address of a code dword.
fn address(e: &Env, pc: usize) -> u64 {
    e.code.start + 4 * pc as u64
}

/// Jumps to an address.
fn jump(w: &mut Wave, s: &Step, e: &mut Env, to: u64) -> Outcome {
    let offset = to.wrapping_sub(e.code.start);
    if !offset.is_multiple_of(4) || offset / 4 >= e.code.len() as u64 {
        return e.illegal(w, s, format!("jump to {to:#x}, outside the code object"));
    }
    w.pc = (offset / 4) as usize;
    Outcome::Continue
}

fn s_getpc_b64(w: &mut Wave, s: &Step, e: &mut Env) -> Outcome {
    w.set_scalar64(s.inst.dst, address(e, w.pc));
    Outcome::Continue
}

fn s_setpc_b64(w: &mut Wave, s: &Step, e: &mut Env) -> Outcome {
    let to = src64(w, s, 0);
    jump(w, s, e, to)
}

fn s_swappc_b64(w: &mut Wave, s: &Step, e: &mut Env) -> Outcome {
    let to = src64(w, s, 0);
    w.set_scalar64(s.inst.dst, address(e, w.pc));
    jump(w, s, e, to)
}

fn s_call_b64(w: &mut Wave, s: &Step, e: &mut Env) -> Outcome {
    w.set_scalar64(s.inst.dst, address(e, w.pc));
    let to = address(e, w.pc).wrapping_add_signed(4 * i64::from(s.inst.imm));
    jump(w, s, e, to)
}

fn branch(w: &mut Wave, s: &Step, e: &mut Env, taken: bool) -> Outcome {
    if taken {
        let to = w.pc as i64 + i64::from(s.inst.imm);
        if to < 0 || to >= e.code.len() as i64 {
            return e.illegal(w, s, "branch target outside the code object".to_owned());
        }
        w.pc = to as usize;
    }
    Outcome::Continue
}

macro_rules! branches {
    ($($name:ident: |$w:ident| $taken:expr;)*) => {
        $(
            fn $name($w: &mut Wave, s: &Step, e: &mut Env) -> Outcome {
                let taken = $taken;
                branch($w, s, e, taken)
            }
        )*
        fn find_branch(name: &str) -> Option<Handler> {
            Some(match name { $( stringify!($name) => $name, )* _ => return None })
        }
    };
}

branches! {
    s_branch: |w| { let _ = &w; true };
    s_cbranch_scc0: |w| !w.scc;
    s_cbranch_scc1: |w| w.scc;
    s_cbranch_vccz: |w| w.vcc() == 0;
    s_cbranch_vccnz: |w| w.vcc() != 0;
    s_cbranch_execz: |w| w.exec == 0;
    s_cbranch_execnz: |w| w.exec != 0;
}

/// SOPC instructions: comparisons into SCC.
macro_rules! sopc {
    ($($name:ident: $get:ident, |$a:ident, $b:ident| $body:expr;)*) => {
        $(
            fn $name(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
                let ($a, $b) = ($get(w, s, 0), $get(w, s, 1));
                w.scc = $body;
                Outcome::Continue
            }
        )*
        fn find_sopc(name: &str) -> Option<Handler> {
            Some(match name { $( stringify!($name) => $name, )* _ => return None })
        }
    };
}

sopc! {
    s_cmp_eq_i32: src32, |a, b| a == b;
    s_cmp_lg_i32: src32, |a, b| a != b;
    s_cmp_gt_i32: src32, |a, b| (a as i32) > b as i32;
    s_cmp_ge_i32: src32, |a, b| (a as i32) >= b as i32;
    s_cmp_lt_i32: src32, |a, b| (a as i32) < b as i32;
    s_cmp_le_i32: src32, |a, b| (a as i32) <= b as i32;
    s_cmp_eq_u32: src32, |a, b| a == b;
    s_cmp_lg_u32: src32, |a, b| a != b;
    s_cmp_gt_u32: src32, |a, b| a > b;
    s_cmp_ge_u32: src32, |a, b| a >= b;
    s_cmp_lt_u32: src32, |a, b| a < b;
    s_cmp_le_u32: src32, |a, b| a <= b;
    s_cmp_eq_u64: src64, |a, b| a == b;
    s_cmp_lg_u64: src64, |a, b| a != b;
    s_bitcmp0_b32: src32, |a, b| a >> (b & 31) & 1 == 0;
    s_bitcmp1_b32: src32, |a, b| a >> (b & 31) & 1 == 1;
}

fn s_bitcmp0_b64(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    w.scc = src64(w, s, 0) >> (src32(w, s, 1) & 63) & 1 == 0;
    Outcome::Continue
}

fn s_bitcmp1_b64(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    w.scc = src64(w, s, 0) >> (src32(w, s, 1) & 63) & 1 == 1;
    Outcome::Continue
}

/// SOPK comparisons of a register with the 16-bit immediate.
macro_rules! sopk_compares {
    ($($name:ident: |$a:ident, $k:ident| $body:expr;)*) => {
        $(
            fn $name(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
                let ($a, $k) = (w.scalar(s.inst.dst), s.inst.imm);
                w.scc = $body;
                Outcome::Continue
            }
        )*
        fn find_sopk_compare(name: &str) -> Option<Handler> {
            Some(match name { $( stringify!($name) => $name, )* _ => return None })
        }
    };
}

sopk_compares! {
    s_cmpk_eq_i32: |a, k| a as i32 == k;
    s_cmpk_lg_i32: |a, k| a as i32 != k;
    s_cmpk_gt_i32: |a, k| a as i32 > k;
    s_cmpk_ge_i32: |a, k| a as i32 >= k;
    s_cmpk_lt_i32: |a, k| (a as i32) < k;
    s_cmpk_le_i32: |a, k| a as i32 <= k;
    s_cmpk_eq_u32: |a, k| a == k as u32 & 0xffff;
    s_cmpk_lg_u32: |a, k| a != k as u32 & 0xffff;
    s_cmpk_gt_u32: |a, k| a > k as u32 & 0xffff;
    s_cmpk_ge_u32: |a, k| a >= k as u32 & 0xffff;
    s_cmpk_lt_u32: |a, k| a < k as u32 & 0xffff;
    s_cmpk_le_u32: |a, k| a <= k as u32 & 0xffff;
}

fn s_movk_i32(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    w.set_scalar(s.inst.dst, s.inst.imm as u32);
    Outcome::Continue
}

fn s_cmovk_i32(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    if w.scc {
        w.set_scalar(s.inst.dst, s.inst.imm as u32);
    }
    Outcome::Continue
}

fn s_addk_i32(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    let (value, overflow) = (w.scalar(s.inst.dst) as i32).overflowing_add(s.inst.imm);
    w.scc = overflow;
    w.set_scalar(s.inst.dst, value as u32);
    Outcome::Continue
}

fn s_mulk_i32(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    let value = w.scalar(s.inst.dst).wrapping_mul(s.inst.imm as u32);
    w.set_scalar(s.inst.dst, value);
    Outcome::Continue
}

/// Fields of the `HW_ID` register.
mod hw_id {
    use crate::bits::BitField;
    pub const WAVE_ID: BitField = BitField::new(0, 4);
    pub const CU_ID: BitField = BitField::new(8, 4);
}

/// XCC dies over which workgroups are distributed.
const XCC_COUNT: u32 = 8;

fn s_getreg_b32(w: &mut Wave, s: &Step, e: &mut Env) -> Outcome {
    let operand = HwregOperand::decode(s.inst.imm);
    let value = match hwreg::name(e.code.arch, operand.id) {
        Some("MODE") => w.mode.0,
        // SCC is bit 0; compilers use nothing else of it.
        Some("STATUS") => u32::from(w.scc),
        // A compute unit for each workgroup index.
        Some("HW_ID" | "HW_ID1") => hw_id::WAVE_ID.encode(w.index) | hw_id::CU_ID.encode(e.workgroup_index() as u32),
        // The high words of the private and the shared aperture.
        Some("SH_MEM_BASES") => (super::PRIVATE_APERTURE >> 48) as u32 | ((super::SHARED_APERTURE >> 48) as u32) << 16,
        Some("XCC_ID") => e.workgroup_index() as u32 % XCC_COUNT,
        Some("SHADER_CYCLES") => cycles(e) as u32 & SHADER_CYCLES_MASK,
        Some("SHADER_CYCLES_LO") => cycles(e) as u32,
        Some("SHADER_CYCLES_HI") => (cycles(e) >> 32) as u32,
        Some("FLAT_SCR_LO" | "SCRATCH_BASE_LO") => w.scratch_base as u32,
        Some("FLAT_SCR_HI" | "SCRATCH_BASE_HI") => (w.scratch_base >> 32) as u32,
        Some("GPR_ALLOC" | "LDS_ALLOC" | "IB_STS" | "HW_ID2") => 0,
        _ => return e.unsupported(w, s, format!("reading hardware register {}", operand.id)),
    };
    w.set_scalar(s.inst.dst, value >> operand.offset & operand.mask());
    Outcome::Continue
}

/// `SHADER_CYCLES` has 20 bits before gfx12.
const SHADER_CYCLES_MASK: u32 = (1 << 20) - 1;

/// Returns the cycle counter, at a nominal 1 GHz.
pub fn cycles(e: &Env) -> u64 {
    e.clock.elapsed().as_nanos() as u64
}

/// Returns the constant clock of 100 MHz.
pub fn real_time(e: &Env) -> u64 {
    cycles(e) / 10
}

fn setreg(w: &mut Wave, s: &Step, e: &mut Env, value: u32) -> Outcome {
    let operand = HwregOperand::decode(s.inst.imm);
    match hwreg::name(e.code.arch, operand.id) {
        Some("MODE") => {
            let mask = operand.mask() << operand.offset;
            w.mode = Mode(w.mode.0 & !mask | value << operand.offset & mask);
            Outcome::Continue
        }
        // Exceptions are not implemented. Scratch is addressed by lane, whatever its base.
        Some("TRAPSTS" | "FLAT_SCR_LO" | "FLAT_SCR_HI") => Outcome::Continue,
        _ => e.unsupported(w, s, format!("writing hardware register {}", operand.id)),
    }
}

fn s_round_mode(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    w.mode = Mode(w.mode.0 & !0xf | s.inst.imm as u32 & 0xf);
    Outcome::Continue
}

fn s_denorm_mode(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    w.mode = Mode(w.mode.0 & !0xf0 | (s.inst.imm as u32 & 0xf) << 4);
    Outcome::Continue
}

/// Messages of `s_sendmsg_rtn` with their numbers.
mod message {
    pub const GET_REALTIME: i32 = 0x83;
}

fn s_sendmsg_rtn_b64(w: &mut Wave, s: &Step, e: &mut Env) -> Outcome {
    match s.inst.imm {
        message::GET_REALTIME => w.set_scalar64(s.inst.dst, real_time(e)),
        number => return e.unsupported(w, s, format!("message {number:#x}")),
    }
    Outcome::Continue
}

fn s_sendmsg_rtn_b32(w: &mut Wave, s: &Step, e: &mut Env) -> Outcome {
    match s.inst.imm {
        message::GET_REALTIME => w.set_scalar(s.inst.dst, real_time(e) as u32),
        number => return e.unsupported(w, s, format!("message {number:#x}")),
    }
    Outcome::Continue
}

fn s_setreg_b32(w: &mut Wave, s: &Step, e: &mut Env) -> Outcome {
    let value = w.scalar(s.inst.dst);
    setreg(w, s, e, value)
}

fn s_setreg_imm32_b32(w: &mut Wave, s: &Step, e: &mut Env) -> Outcome {
    setreg(w, s, e, s.inst.literal)
}

fn update_m0(w: &mut Wave, field: BitField, value: u32) {
    let m0 = &mut w.sgprs[usize::from(operand::M0)];
    *m0 = field.replace(*m0, value);
}

fn s_set_gpr_idx_on(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    let index = src32(w, s, 0);
    w.gpr_indexing = true;
    update_m0(w, gpr_index::INDEX, index);
    update_m0(w, gpr_index::MODE, s.inst.imm as u32);
    Outcome::Continue
}

fn s_set_gpr_idx_off(w: &mut Wave, _: &Step, _: &mut Env) -> Outcome {
    w.gpr_indexing = false;
    Outcome::Continue
}

fn s_set_gpr_idx_idx(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    let index = src32(w, s, 0);
    update_m0(w, gpr_index::INDEX, index);
    Outcome::Continue
}

fn s_set_gpr_idx_mode(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    // Selects the indexed operands; does not turn indexing on.
    update_m0(w, gpr_index::MODE, s.inst.imm as u32);
    Outcome::Continue
}

fn s_endpgm(w: &mut Wave, _: &Step, _: &mut Env) -> Outcome {
    w.state = State::Done;
    Outcome::Stop
}

fn s_barrier(w: &mut Wave, _: &Step, e: &mut Env) -> Outcome {
    if e.waves == 1 {
        return Outcome::Continue;
    }
    w.state = State::Barrier;
    Outcome::Stop
}

/// The barrier of the workgroup, as gfx12 names it.
const WORKGROUP_BARRIER: i32 = -1;

/// `s_barrier_signal`: the wait that follows does the work.
fn s_barrier_signal(w: &mut Wave, s: &Step, e: &mut Env) -> Outcome {
    match src32(w, s, 0) as i32 {
        WORKGROUP_BARRIER => Outcome::Continue,
        number => e.unsupported(w, s, format!("barrier {number}")),
    }
}

fn s_barrier_wait(w: &mut Wave, s: &Step, e: &mut Env) -> Outcome {
    match s.inst.imm {
        WORKGROUP_BARRIER => s_barrier(w, s, e),
        number => e.unsupported(w, s, format!("barrier {number}")),
    }
}

fn s_sleep(_: &mut Wave, _: &Step, _: &mut Env) -> Outcome {
    Outcome::Yield
}

fn s_trap(w: &mut Wave, s: &Step, e: &mut Env) -> Outcome {
    e.trap(w, s)
}

fn s_sendmsg(_: &mut Wave, _: &Step, _: &mut Env) -> Outcome {
    Outcome::Yield
}

fn nop(_: &mut Wave, _: &Step, _: &mut Env) -> Outcome {
    Outcome::Continue
}

/// Returns the handler of the instruction called `name`.
pub fn find(name: &str) -> Option<Handler> {
    let found = find_sop2(name)
        .or_else(|| find_sop1(name))
        .or_else(|| find_saveexec(name))
        .or_else(|| find_branch(name))
        .or_else(|| find_sopc(name))
        .or_else(|| find_sopk_compare(name))
        .or_else(|| super::salu_float::find(name));
    if found.is_some() {
        return found;
    }
    macro_rules! by_name {
        ($($name:ident)*) => { match name { $( stringify!($name) => Some($name as Handler), )* _ => None } };
    }
    let found = by_name! {
        s_cmov_b32 s_cmov_b64 s_bitset0_b32 s_bitset0_b64 s_bitset1_b32 s_bitset1_b64
        s_movrels_b32 s_movrels_b64 s_movreld_b32 s_movreld_b64 s_movrelsd_2_b32 s_getpc_b64 s_setpc_b64 s_swappc_b64 s_call_b64
        s_bitcmp0_b64 s_bitcmp1_b64 s_movk_i32 s_cmovk_i32 s_addk_i32 s_mulk_i32 s_getreg_b32 s_setreg_b32 s_setreg_imm32_b32
        s_set_gpr_idx_on s_set_gpr_idx_off s_set_gpr_idx_idx s_set_gpr_idx_mode s_endpgm s_barrier s_sleep s_trap s_sendmsg
        s_round_mode s_denorm_mode s_barrier_signal s_barrier_wait s_sendmsg_rtn_b32 s_sendmsg_rtn_b64
    };
    found.or(match name {
        "s_nop" | "s_waitcnt" | "s_setprio" | "s_icache_inv" | "s_incperflevel" | "s_decperflevel" | "s_ttracedata" => Some(nop),
        "s_andn1_wrexec_b64" | "s_andn1_wrexec_b32" => Some(andn1_wrexec),
        "s_andn2_wrexec_b64" | "s_andn2_wrexec_b32" => Some(andn2_wrexec),
        "s_wakeup" | "s_sleep_var" => Some(s_sleep),
        "s_endpgm_saved" => Some(s_endpgm),
        _ => None,
    })
}
