//! Scalar instructions: one value for the whole wave, and control flow.

use super::code::{From, Handler, Step};
use super::lanes::scalar_wide;
use super::wave::{Mode, State, Wave};
use super::{Env, Flow};
use crate::isa::operand;

/// A 32-bit source.
fn a32(w: &Wave, s: &Step, n: usize) -> u32 {
    match s.from[n] {
        From::Constant => s.constant[n] as u32,
        _ => match s.inst.src[n] {
            number @ 235..=238 => super::aperture(number) as u32,
            number => w.scalar(number),
        },
    }
}

fn a64(w: &Wave, s: &Step, n: usize) -> u64 {
    scalar_wide(w, s, n)
}

/// Two sources and a result, with the condition code.
macro_rules! two {
    ($($name:ident: $get:ident, $set:ident, |$a:ident, $b:ident, $scc:ident| $body:expr;)*) => {
        $(
            unsafe fn $name(w: &mut Wave, s: &Step, _: &mut Env) -> Flow {
                let ($a, $b, $scc) = ($get(w, s, 0), two!(@second $get, w, s, $name), w.scc);
                #[allow(clippy::redundant_locals)]
                let (value, scc) = $body;
                let _ = $scc;
                w.scc = scc;
                w.$set(s.inst.dst, value);
                Flow::Next
            }
        )*
        fn find_two(name: &str) -> Option<Handler> {
            Some(match name { $( stringify!($name) => $name, )* _ => return None })
        }
    };
    (@second $get:ident, $w:ident, $s:ident, $name:ident) => {
        if $s.inst.row.registers(crate::isa::Field::Src(1)) == 2 { a64($w, $s, 1) } else { u64::from(a32($w, $s, 1)) }
    };
}

fn flag32(value: u32) -> (u32, bool) {
    (value, value != 0)
}

fn flag64(value: u64) -> (u64, bool) {
    (value, value != 0)
}

/// A field: offset in the low bits, width from bit 16 on.
fn field64(value: u64, spec: u64, signed: bool) -> u64 {
    let (offset, width) = ((spec & 63) as u32, (spec >> 16 & 127) as u32);
    if width == 0 {
        return 0;
    }
    // Bits beyond the register count as its sign, or as 0.
    let shifted = if signed { (value as i64 >> offset) as u64 } else { value >> offset };
    if width >= 64 {
        return shifted;
    }
    let low = shifted & ((1 << width) - 1);
    if signed { ((low << (64 - width)) as i64 >> (64 - width)) as u64 } else { low }
}

fn field32(value: u32, spec: u32, signed: bool) -> u32 {
    let (offset, width) = (spec & 31, (spec >> 16 & 127).min(32));
    let wide = u64::from(offset) | u64::from(width) << 16;
    let extended = if signed { i64::from(value as i32) as u64 } else { u64::from(value) };
    field64(extended, wide, signed) as u32
}

two! {
    s_add_u32: a32, set_scalar, |a, b, scc| a.overflowing_add(b as u32);
    s_sub_u32: a32, set_scalar, |a, b, scc| a.overflowing_sub(b as u32);
    s_add_i32: a32, set_scalar, |a, b, scc| { let (v, o) = (a as i32).overflowing_add(b as i32); (v as u32, o) };
    s_sub_i32: a32, set_scalar, |a, b, scc| { let (v, o) = (a as i32).overflowing_sub(b as i32); (v as u32, o) };
    s_addc_u32: a32, set_scalar, |a, b, scc| { let sum = u64::from(a) + b + u64::from(scc); (sum as u32, sum >> 32 != 0) };
    s_subb_u32: a32, set_scalar, |a, b, scc| {
        let (b, borrow) = (b as u32, u32::from(scc));
        (a.wrapping_sub(b).wrapping_sub(borrow), u64::from(a) < u64::from(b) + u64::from(borrow))
    };
    s_min_i32: a32, set_scalar, |a, b, scc| { let (a, b) = (a as i32, b as i32); (a.min(b) as u32, a < b) };
    s_min_u32: a32, set_scalar, |a, b, scc| { let b = b as u32; (a.min(b), a < b) };
    s_max_i32: a32, set_scalar, |a, b, scc| { let (a, b) = (a as i32, b as i32); (a.max(b) as u32, a >= b) };
    s_max_u32: a32, set_scalar, |a, b, scc| { let b = b as u32; (a.max(b), a >= b) };
    s_cselect_b32: a32, set_scalar, |a, b, scc| (if scc { a } else { b as u32 }, scc);
    s_cselect_b64: a64, set_pair, |a, b, scc| (if scc { a } else { b }, scc);
    s_and_b32: a32, set_scalar, |a, b, scc| flag32(a & b as u32);
    s_and_b64: a64, set_pair, |a, b, scc| flag64(a & b);
    s_or_b32: a32, set_scalar, |a, b, scc| flag32(a | b as u32);
    s_or_b64: a64, set_pair, |a, b, scc| flag64(a | b);
    s_xor_b32: a32, set_scalar, |a, b, scc| flag32(a ^ b as u32);
    s_xor_b64: a64, set_pair, |a, b, scc| flag64(a ^ b);
    s_andn2_b32: a32, set_scalar, |a, b, scc| flag32(a & !(b as u32));
    s_andn2_b64: a64, set_pair, |a, b, scc| flag64(a & !b);
    s_orn2_b32: a32, set_scalar, |a, b, scc| flag32(a | !(b as u32));
    s_orn2_b64: a64, set_pair, |a, b, scc| flag64(a | !b);
    s_nand_b32: a32, set_scalar, |a, b, scc| flag32(!(a & b as u32));
    s_nand_b64: a64, set_pair, |a, b, scc| flag64(!(a & b));
    s_nor_b32: a32, set_scalar, |a, b, scc| flag32(!(a | b as u32));
    s_nor_b64: a64, set_pair, |a, b, scc| flag64(!(a | b));
    s_xnor_b32: a32, set_scalar, |a, b, scc| flag32(!(a ^ b as u32));
    s_xnor_b64: a64, set_pair, |a, b, scc| flag64(!(a ^ b));
    s_lshl_b32: a32, set_scalar, |a, b, scc| flag32(a << (b & 31));
    s_lshl_b64: a64, set_pair, |a, b, scc| flag64(a << (b & 63));
    s_lshr_b32: a32, set_scalar, |a, b, scc| flag32(a >> (b & 31));
    s_lshr_b64: a64, set_pair, |a, b, scc| flag64(a >> (b & 63));
    s_ashr_i32: a32, set_scalar, |a, b, scc| flag32((a as i32 >> (b & 31)) as u32);
    s_ashr_i64: a64, set_pair, |a, b, scc| flag64((a as i64 >> (b & 63)) as u64);
    s_bfm_b32: a32, set_scalar, |a, b, scc| (((1u32 << (a & 31)) - 1) << (b & 31), scc);
    s_bfm_b64: a32, set_pair, |a, b, scc| (((1u64 << (a & 63)) - 1) << (b & 63), scc);
    s_mul_i32: a32, set_scalar, |a, b, scc| (a.wrapping_mul(b as u32), scc);
    s_mul_hi_u32: a32, set_scalar, |a, b, scc| ((u64::from(a) * (b & 0xffff_ffff) >> 32) as u32, scc);
    s_mul_hi_i32: a32, set_scalar, |a, b, scc| ((i64::from(a as i32) * i64::from(b as i32) >> 32) as u32, scc);
    s_bfe_u32: a32, set_scalar, |a, b, scc| flag32(field32(a, b as u32, false));
    s_bfe_i32: a32, set_scalar, |a, b, scc| flag32(field32(a, b as u32, true));
    s_bfe_u64: a64, set_pair, |a, b, scc| flag64(field64(a, b, false));
    s_bfe_i64: a64, set_pair, |a, b, scc| flag64(field64(a, b, true));
    s_absdiff_i32: a32, set_scalar, |a, b, scc| flag32((a as i32).wrapping_sub(b as i32).wrapping_abs() as u32);
    s_lshl1_add_u32: a32, set_scalar, |a, b, scc| shift_add(a, b, 1);
    s_lshl2_add_u32: a32, set_scalar, |a, b, scc| shift_add(a, b, 2);
    s_lshl3_add_u32: a32, set_scalar, |a, b, scc| shift_add(a, b, 3);
    s_lshl4_add_u32: a32, set_scalar, |a, b, scc| shift_add(a, b, 4);
    s_pack_ll_b32_b16: a32, set_scalar, |a, b, scc| (a & 0xffff | (b as u32) << 16, scc);
    s_pack_lh_b32_b16: a32, set_scalar, |a, b, scc| (a & 0xffff | b as u32 & 0xffff_0000, scc);
    s_pack_hh_b32_b16: a32, set_scalar, |a, b, scc| (a >> 16 | b as u32 & 0xffff_0000, scc);
}

fn shift_add(a: u32, b: u64, by: u32) -> (u32, bool) {
    let sum = (u64::from(a) << by) + (b & 0xffff_ffff);
    (sum as u32, sum >> 32 != 0)
}

/// One source and a result, with the condition code.
macro_rules! one {
    ($($name:ident: $get:ident, $set:ident, |$a:ident, $scc:ident| $body:expr;)*) => {
        $(
            unsafe fn $name(w: &mut Wave, s: &Step, _: &mut Env) -> Flow {
                let ($a, $scc) = ($get(w, s, 0), w.scc);
                #[allow(clippy::redundant_locals)]
                let (value, scc) = $body;
                let _ = $scc;
                w.scc = scc;
                w.$set(s.inst.dst, value);
                Flow::Next
            }
        )*
        fn find_one(name: &str) -> Option<Handler> {
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

/// The first bit that differs from the sign, counted from the top; -1 when none does.
fn sign_bits(value: i64, width: u32) -> u32 {
    let folded = (if value < 0 { !value } else { value }) as u64;
    if folded == 0 { u32::MAX } else { folded.leading_zeros() - (64 - width) }
}

one! {
    s_mov_b32: a32, set_scalar, |a, scc| (a, scc);
    s_mov_b64: a64, set_pair, |a, scc| (a, scc);
    s_not_b32: a32, set_scalar, |a, scc| flag32(!a);
    s_not_b64: a64, set_pair, |a, scc| flag64(!a);
    s_wqm_b32: a32, set_scalar, |a, scc| flag32(whole_quads(u64::from(a)) as u32);
    s_wqm_b64: a64, set_pair, |a, scc| flag64(whole_quads(a));
    s_quadmask_b32: a32, set_scalar, |a, scc| flag32(quad_mask(u64::from(a)) as u32);
    s_quadmask_b64: a64, set_pair, |a, scc| flag64(quad_mask(a));
    s_brev_b32: a32, set_scalar, |a, scc| (a.reverse_bits(), scc);
    s_brev_b64: a64, set_pair, |a, scc| (a.reverse_bits(), scc);
    s_bcnt0_i32_b32: a32, set_scalar, |a, scc| flag32(a.count_zeros());
    s_bcnt0_i32_b64: a64, set_scalar, |a, scc| flag32(a.count_zeros());
    s_bcnt1_i32_b32: a32, set_scalar, |a, scc| flag32(a.count_ones());
    s_bcnt1_i32_b64: a64, set_scalar, |a, scc| flag32(a.count_ones());
    s_ff0_i32_b32: a32, set_scalar, |a, scc| (if a == u32::MAX { u32::MAX } else { a.trailing_ones() }, scc);
    s_ff0_i32_b64: a64, set_scalar, |a, scc| (if a == u64::MAX { u32::MAX } else { a.trailing_ones() }, scc);
    s_ff1_i32_b32: a32, set_scalar, |a, scc| (if a == 0 { u32::MAX } else { a.trailing_zeros() }, scc);
    s_ff1_i32_b64: a64, set_scalar, |a, scc| (if a == 0 { u32::MAX } else { a.trailing_zeros() }, scc);
    s_flbit_i32_b32: a32, set_scalar, |a, scc| (if a == 0 { u32::MAX } else { a.leading_zeros() }, scc);
    s_flbit_i32_b64: a64, set_scalar, |a, scc| (if a == 0 { u32::MAX } else { a.leading_zeros() }, scc);
    s_flbit_i32: a32, set_scalar, |a, scc| (sign_bits(i64::from(a as i32), 32), scc);
    s_flbit_i32_i64: a64, set_scalar, |a, scc| (sign_bits(a as i64, 64), scc);
    s_sext_i32_i8: a32, set_scalar, |a, scc| (a as u8 as i8 as i32 as u32, scc);
    s_sext_i32_i16: a32, set_scalar, |a, scc| (a as u16 as i16 as i32 as u32, scc);
    s_abs_i32: a32, set_scalar, |a, scc| flag32((a as i32).wrapping_abs() as u32);
    s_bitreplicate_b64_b32: a32, set_pair, |a, scc| ((0..32).fold(0u64, |out, n| out | u64::from(a >> n & 1) * 3 << (2 * n)), scc);
}

/// `s_*_saveexec_b64`: the old `exec` is kept, a combination becomes the new one.
macro_rules! saveexec {
    ($($name:ident: |$a:ident, $exec:ident| $body:expr;)*) => {
        $(
            unsafe fn $name(w: &mut Wave, s: &Step, _: &mut Env) -> Flow {
                let ($a, $exec) = (a64(w, s, 0), w.exec);
                let new: u64 = $body;
                w.set_pair(s.inst.dst, $exec);
                w.set_exec(new);
                w.scc = new != 0;
                Flow::Next
            }
        )*
        fn find_saveexec(name: &str) -> Option<Handler> {
            Some(match name { $( stringify!($name) => $name, )* _ => return None })
        }
    };
}

saveexec! {
    s_and_saveexec_b64: |a, exec| a & exec;
    s_or_saveexec_b64: |a, exec| a | exec;
    s_xor_saveexec_b64: |a, exec| a ^ exec;
    s_andn2_saveexec_b64: |a, exec| a & !exec;
    s_orn2_saveexec_b64: |a, exec| a | !exec;
    s_nand_saveexec_b64: |a, exec| !(a & exec);
    s_nor_saveexec_b64: |a, exec| !(a | exec);
    s_xnor_saveexec_b64: |a, exec| !(a ^ exec);
    s_andn1_saveexec_b64: |a, exec| !a & exec;
    s_orn1_saveexec_b64: |a, exec| !a | exec;
}

/// The result goes to `exec` and to the destination.
fn write_exec(w: &mut Wave, s: &Step, value: u64) -> Flow {
    w.set_exec(value);
    w.set_pair(s.inst.dst, value);
    w.scc = value != 0;
    Flow::Next
}

unsafe fn s_andn1_wrexec_b64(w: &mut Wave, s: &Step, _: &mut Env) -> Flow {
    let value = !a64(w, s, 0) & w.exec;
    write_exec(w, s, value)
}

unsafe fn s_andn2_wrexec_b64(w: &mut Wave, s: &Step, _: &mut Env) -> Flow {
    let value = a64(w, s, 0) & !w.exec;
    write_exec(w, s, value)
}

unsafe fn s_cmov_b32(w: &mut Wave, s: &Step, _: &mut Env) -> Flow {
    if w.scc {
        let value = a32(w, s, 0);
        w.set_scalar(s.inst.dst, value);
    }
    Flow::Next
}

unsafe fn s_cmov_b64(w: &mut Wave, s: &Step, _: &mut Env) -> Flow {
    if w.scc {
        let value = a64(w, s, 0);
        w.set_pair(s.inst.dst, value);
    }
    Flow::Next
}

fn set_bit(w: &mut Wave, s: &Step, wide: bool, one: bool) -> Flow {
    let at = a32(w, s, 0);
    if wide {
        let (old, bit) = (w.pair(s.inst.dst), 1u64 << (at & 63));
        w.set_pair(s.inst.dst, if one { old | bit } else { old & !bit });
    } else {
        let (old, bit) = (w.scalar(s.inst.dst), 1u32 << (at & 31));
        w.set_scalar(s.inst.dst, if one { old | bit } else { old & !bit });
    }
    Flow::Next
}

unsafe fn s_bitset0_b32(w: &mut Wave, s: &Step, _: &mut Env) -> Flow {
    set_bit(w, s, false, false)
}

unsafe fn s_bitset0_b64(w: &mut Wave, s: &Step, _: &mut Env) -> Flow {
    set_bit(w, s, true, false)
}

unsafe fn s_bitset1_b32(w: &mut Wave, s: &Step, _: &mut Env) -> Flow {
    set_bit(w, s, false, true)
}

unsafe fn s_bitset1_b64(w: &mut Wave, s: &Step, _: &mut Env) -> Flow {
    set_bit(w, s, true, true)
}

/// A register whose number `m0` is added to.
fn relative(w: &Wave, number: u16) -> u16 {
    (u32::from(number).wrapping_add(w.s[usize::from(operand::M0)]) & 127) as u16
}

unsafe fn s_movrels_b32(w: &mut Wave, s: &Step, _: &mut Env) -> Flow {
    let value = w.scalar(relative(w, s.inst.src[0]));
    w.set_scalar(s.inst.dst, value);
    Flow::Next
}

unsafe fn s_movrels_b64(w: &mut Wave, s: &Step, _: &mut Env) -> Flow {
    let value = w.pair(relative(w, s.inst.src[0]).min(126));
    w.set_pair(s.inst.dst, value);
    Flow::Next
}

unsafe fn s_movreld_b32(w: &mut Wave, s: &Step, _: &mut Env) -> Flow {
    let value = a32(w, s, 0);
    w.set_scalar(relative(w, s.inst.dst), value);
    Flow::Next
}

unsafe fn s_movreld_b64(w: &mut Wave, s: &Step, _: &mut Env) -> Flow {
    let value = a64(w, s, 0);
    w.set_pair(relative(w, s.inst.dst).min(126), value);
    Flow::Next
}

/// The address of a word of the code.
fn address(e: &Env, pc: usize) -> u64 {
    e.code.start + 4 * pc as u64
}

/// Goes on at an address.
fn jump(w: &mut Wave, s: &Step, e: &mut Env, to: u64) -> Flow {
    let offset = to.wrapping_sub(e.code.start);
    if !offset.is_multiple_of(4) || offset / 4 >= e.code.len() as u64 {
        return e.illegal(w, s, format!("a jump to {to:#x}, outside the program"));
    }
    w.pc = (offset / 4) as usize;
    Flow::Next
}

unsafe fn s_getpc_b64(w: &mut Wave, s: &Step, e: &mut Env) -> Flow {
    w.set_pair(s.inst.dst, address(e, w.pc));
    Flow::Next
}

unsafe fn s_setpc_b64(w: &mut Wave, s: &Step, e: &mut Env) -> Flow {
    let to = a64(w, s, 0);
    jump(w, s, e, to)
}

unsafe fn s_swappc_b64(w: &mut Wave, s: &Step, e: &mut Env) -> Flow {
    let to = a64(w, s, 0);
    w.set_pair(s.inst.dst, address(e, w.pc));
    jump(w, s, e, to)
}

unsafe fn s_call_b64(w: &mut Wave, s: &Step, e: &mut Env) -> Flow {
    w.set_pair(s.inst.dst, address(e, w.pc));
    let to = address(e, w.pc).wrapping_add_signed(4 * i64::from(s.inst.imm));
    jump(w, s, e, to)
}

fn branch(w: &mut Wave, s: &Step, e: &mut Env, taken: bool) -> Flow {
    if taken {
        let to = w.pc as i64 + i64::from(s.inst.imm);
        if to < 0 || to >= e.code.len() as i64 {
            return e.illegal(w, s, "a branch outside the program".to_owned());
        }
        w.pc = to as usize;
    }
    Flow::Next
}

macro_rules! branches {
    ($($name:ident: |$w:ident| $taken:expr;)*) => {
        $(
            unsafe fn $name($w: &mut Wave, s: &Step, e: &mut Env) -> Flow {
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

/// Comparisons into the condition code.
macro_rules! compares {
    ($($name:ident: $get:ident, |$a:ident, $b:ident| $body:expr;)*) => {
        $(
            unsafe fn $name(w: &mut Wave, s: &Step, _: &mut Env) -> Flow {
                let ($a, $b) = ($get(w, s, 0), $get(w, s, 1));
                w.scc = $body;
                Flow::Next
            }
        )*
        fn find_compare(name: &str) -> Option<Handler> {
            Some(match name { $( stringify!($name) => $name, )* _ => return None })
        }
    };
}

compares! {
    s_cmp_eq_i32: a32, |a, b| a == b;
    s_cmp_lg_i32: a32, |a, b| a != b;
    s_cmp_gt_i32: a32, |a, b| (a as i32) > b as i32;
    s_cmp_ge_i32: a32, |a, b| (a as i32) >= b as i32;
    s_cmp_lt_i32: a32, |a, b| (a as i32) < b as i32;
    s_cmp_le_i32: a32, |a, b| (a as i32) <= b as i32;
    s_cmp_eq_u32: a32, |a, b| a == b;
    s_cmp_lg_u32: a32, |a, b| a != b;
    s_cmp_gt_u32: a32, |a, b| a > b;
    s_cmp_ge_u32: a32, |a, b| a >= b;
    s_cmp_lt_u32: a32, |a, b| a < b;
    s_cmp_le_u32: a32, |a, b| a <= b;
    s_cmp_eq_u64: a64, |a, b| a == b;
    s_cmp_lg_u64: a64, |a, b| a != b;
    s_bitcmp0_b32: a32, |a, b| a >> (b & 31) & 1 == 0;
    s_bitcmp1_b32: a32, |a, b| a >> (b & 31) & 1 == 1;
}

unsafe fn s_bitcmp0_b64(w: &mut Wave, s: &Step, _: &mut Env) -> Flow {
    w.scc = a64(w, s, 0) >> (a32(w, s, 1) & 63) & 1 == 0;
    Flow::Next
}

unsafe fn s_bitcmp1_b64(w: &mut Wave, s: &Step, _: &mut Env) -> Flow {
    w.scc = a64(w, s, 0) >> (a32(w, s, 1) & 63) & 1 == 1;
    Flow::Next
}

/// Comparisons and arithmetic with the 16-bit immediate.
macro_rules! immediates {
    ($($name:ident: |$a:ident, $k:ident| $body:expr;)*) => {
        $(
            unsafe fn $name(w: &mut Wave, s: &Step, _: &mut Env) -> Flow {
                let ($a, $k) = (w.scalar(s.inst.dst), s.inst.imm);
                w.scc = $body;
                Flow::Next
            }
        )*
        fn find_immediate(name: &str) -> Option<Handler> {
            Some(match name { $( stringify!($name) => $name, )* _ => return None })
        }
    };
}

immediates! {
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

unsafe fn s_movk_i32(w: &mut Wave, s: &Step, _: &mut Env) -> Flow {
    w.set_scalar(s.inst.dst, s.inst.imm as u32);
    Flow::Next
}

unsafe fn s_cmovk_i32(w: &mut Wave, s: &Step, _: &mut Env) -> Flow {
    if w.scc {
        w.set_scalar(s.inst.dst, s.inst.imm as u32);
    }
    Flow::Next
}

unsafe fn s_addk_i32(w: &mut Wave, s: &Step, _: &mut Env) -> Flow {
    let (value, overflow) = (w.scalar(s.inst.dst) as i32).overflowing_add(s.inst.imm);
    w.scc = overflow;
    w.set_scalar(s.inst.dst, value as u32);
    Flow::Next
}

unsafe fn s_mulk_i32(w: &mut Wave, s: &Step, _: &mut Env) -> Flow {
    let value = w.scalar(s.inst.dst).wrapping_mul(s.inst.imm as u32);
    w.set_scalar(s.inst.dst, value);
    Flow::Next
}

/// A hardware register: number, first bit, how many bits.
fn hardware(imm: i32) -> (u32, u32, u32) {
    let imm = imm as u32;
    (imm & 63, imm >> 6 & 31, (imm >> 11 & 31) + 1)
}

fn mask(offset: u32, size: u32) -> u32 {
    if size >= 32 { u32::MAX } else { ((1 << size) - 1) << offset }
}

unsafe fn s_getreg_b32(w: &mut Wave, s: &Step, e: &mut Env) -> Flow {
    let (number, offset, size) = hardware(s.inst.imm);
    let value = match number {
        1 => w.mode.0,
        // Status: only the condition code matters to programs.
        2 => u32::from(w.scc),
        // Where the group and its waves are: one compute unit per group number.
        4 => w.number & 15 | (e.group_number() as u32 & 15) << 8,
        // The apertures' high words: private, then shared.
        15 => (super::PRIVATE >> 48) as u32 | ((super::SHARED >> 48) as u32) << 16,
        20 => e.group_number() as u32 % 8,
        5..=7 => 0,
        other => return e.unsupported(w, s, format!("hardware register {other}")),
    };
    let value = value >> offset & (if size >= 32 { u32::MAX } else { (1 << size) - 1 });
    w.set_scalar(s.inst.dst, value);
    Flow::Next
}

fn setreg(w: &mut Wave, s: &Step, e: &mut Env, value: u32) -> Flow {
    let (number, offset, size) = hardware(s.inst.imm);
    match number {
        1 => {
            let mask = mask(offset, size);
            w.mode = Mode(w.mode.0 & !mask | value << offset & mask);
            Flow::Next
        }
        3 => Flow::Next,
        other => e.unsupported(w, s, format!("writing hardware register {other}")),
    }
}

unsafe fn s_setreg_b32(w: &mut Wave, s: &Step, e: &mut Env) -> Flow {
    let value = w.scalar(s.inst.dst);
    setreg(w, s, e, value)
}

unsafe fn s_setreg_imm32_b32(w: &mut Wave, s: &Step, e: &mut Env) -> Flow {
    setreg(w, s, e, s.inst.literal)
}

unsafe fn s_set_gpr_idx_on(w: &mut Wave, s: &Step, _: &mut Env) -> Flow {
    let index = a32(w, s, 0) & 0xff;
    w.indexing = true;
    w.s[usize::from(operand::M0)] = w.s[usize::from(operand::M0)] & !0xf0ff | index | (s.inst.imm as u32 & 15) << 12;
    Flow::Next
}

unsafe fn s_set_gpr_idx_off(w: &mut Wave, _: &Step, _: &mut Env) -> Flow {
    w.indexing = false;
    Flow::Next
}

unsafe fn s_set_gpr_idx_idx(w: &mut Wave, s: &Step, _: &mut Env) -> Flow {
    let index = a32(w, s, 0) & 0xff;
    w.s[usize::from(operand::M0)] = w.s[usize::from(operand::M0)] & !0xff | index;
    Flow::Next
}

unsafe fn s_set_gpr_idx_mode(w: &mut Wave, s: &Step, _: &mut Env) -> Flow {
    // Which operands, while indexing is on; this does not turn it on.
    w.s[usize::from(operand::M0)] = w.s[usize::from(operand::M0)] & !0xf000 | (s.inst.imm as u32 & 15) << 12;
    Flow::Next
}

unsafe fn s_endpgm(w: &mut Wave, _: &Step, _: &mut Env) -> Flow {
    w.state = State::Done;
    Flow::Stop
}

unsafe fn s_barrier(w: &mut Wave, _: &Step, e: &mut Env) -> Flow {
    if e.waves == 1 {
        return Flow::Next;
    }
    w.state = State::Barrier;
    Flow::Stop
}

unsafe fn s_sleep(_: &mut Wave, _: &Step, _: &mut Env) -> Flow {
    Flow::Yield
}

unsafe fn s_trap(w: &mut Wave, s: &Step, e: &mut Env) -> Flow {
    e.trap(w, s)
}

unsafe fn s_sendmsg(_: &mut Wave, _: &Step, _: &mut Env) -> Flow {
    Flow::Yield
}

unsafe fn nothing(_: &mut Wave, _: &Step, _: &mut Env) -> Flow {
    Flow::Next
}

/// The instruction called `name`.
pub fn find(name: &str) -> Option<Handler> {
    let found = find_two(name)
        .or_else(|| find_one(name))
        .or_else(|| find_saveexec(name))
        .or_else(|| find_branch(name))
        .or_else(|| find_compare(name))
        .or_else(|| find_immediate(name));
    if found.is_some() {
        return found;
    }
    macro_rules! by_name {
        ($($name:ident)*) => { match name { $( stringify!($name) => Some($name as Handler), )* _ => None } };
    }
    let found = by_name! {
        s_andn1_wrexec_b64 s_andn2_wrexec_b64 s_cmov_b32 s_cmov_b64 s_bitset0_b32 s_bitset0_b64 s_bitset1_b32 s_bitset1_b64
        s_movrels_b32 s_movrels_b64 s_movreld_b32 s_movreld_b64 s_getpc_b64 s_setpc_b64 s_swappc_b64 s_call_b64
        s_bitcmp0_b64 s_bitcmp1_b64 s_movk_i32 s_cmovk_i32 s_addk_i32 s_mulk_i32 s_getreg_b32 s_setreg_b32 s_setreg_imm32_b32
        s_set_gpr_idx_on s_set_gpr_idx_off s_set_gpr_idx_idx s_set_gpr_idx_mode s_endpgm s_barrier s_sleep s_trap s_sendmsg
    };
    found.or(match name {
        "s_nop" | "s_waitcnt" | "s_setprio" | "s_icache_inv" | "s_incperflevel" | "s_decperflevel" | "s_ttracedata" => Some(nothing),
        "s_wakeup" => Some(s_sleep),
        "s_endpgm_saved" => Some(s_endpgm),
        _ => None,
    })
}
