//! Operands of vector ALU instructions: sources with modifiers, and results.

use super::op;
use super::vector::{M, Run, V};
use crate::exec::decoded::{SourceKind, Step};
use crate::exec::ops::cross_lane::dpp_source;
use crate::exec::valu::dpp_write_mask;
use crate::isa::{Extension, Sdwa};

pub const SIGN: u32 = 0x8000_0000;
pub const MAGNITUDE: u32 = 0x7fff_ffff;

/// Predicates of `vcmpps`, quiet forms.
pub mod predicate {
    pub const EQUAL: i32 = 0x00;
    pub const LESS: i32 = 0x11;
    pub const LESS_EQUAL: i32 = 0x12;
    pub const UNORDERED: i32 = 0x03;
    pub const NOT_EQUAL: i32 = 0x04;
    pub const NOT_LESS: i32 = 0x15;
    pub const NOT_LESS_EQUAL: i32 = 0x16;
    pub const ORDERED: i32 = 0x07;
    pub const NOT_GREATER_EQUAL: i32 = 0x19;
    pub const NOT_GREATER: i32 = 0x1a;
    pub const LESS_OR_GREATER: i32 = 0x0c;
    pub const GREATER_EQUAL: i32 = 0x1d;
    pub const GREATER: i32 = 0x1e;
    pub const NOT_LESS_OR_GREATER: i32 = 0x08;
}

/// Returns a source as 32 bits, with SDWA and DPP applied.
pub fn raw(run: &mut Run<'_>, s: &Step, n: usize) -> V {
    let v = match s.kind[n] {
        SourceKind::Vector => run.vgpr(s.inst.src[n]),
        SourceKind::Scalar => run.scalar(s.inst.src[n]),
        SourceKind::Constant => run.constant(s.constant[n] as u32),
    };
    match s.inst.ext {
        Extension::Sdwa(sdwa) if n < 2 => selected(run, v, sdwa.src_sel[n], sdwa.sext[n]),
        Extension::Dpp(dpp) if n == 0 => {
            let (v, valid) = run.permuted(v, |lane| dpp_source(dpp.ctrl, lane));
            if dpp.bound_ctrl {
                let zero = run.constant(0);
                let or_zero = choose(run, valid, v, zero);
                run.release(v);
                return or_zero;
            }
            run.written = Some(valid);
            v
        }
        _ => v,
    }
}

/// Selects and extends a byte or word, as SDWA does.
pub fn selected(run: &mut Run<'_>, v: V, sel: u8, signed: bool) -> V {
    let (shift, width) = match sel {
        0..=3 => (8 * i32::from(sel), 8),
        4 | 5 => (16 * i32::from(sel - 4), 16),
        _ => return v,
    };
    let up = run.immediate(op::SHL_IMM, v, 32 - width - shift);
    let down = run.immediate(if signed { op::SAR_IMM } else { op::SHR_IMM }, up, 32 - width);
    run.release(up);
    down
}

/// Inserts a result into the selected part of the destination, as SDWA does.
pub fn inserted(run: &mut Run<'_>, s: &Step, sdwa: Sdwa, v: V) -> V {
    let (shift, width) = match sdwa.dst_sel {
        0..=3 => (8 * i32::from(sdwa.dst_sel), 8),
        4 | 5 => (16 * i32::from(sdwa.dst_sel - 4), 16),
        _ => return v,
    };
    let up = run.immediate(op::SHL_IMM, v, 32 - width);
    let below = 32 - width - shift;
    match sdwa.dst_unused {
        0 => run.immediate(op::SHR_IMM, up, below),
        1 => {
            // The sign fills the bits above, not those below.
            run.immediate(op::SAR_IMM, up, below)
        }
        _ => {
            let placed = run.immediate(op::SHR_IMM, up, below);
            let (old, keep) = (run.vgpr(s.inst.dst), run.constant(!(u32::MAX >> (32 - width) << shift)));
            let kept = run.binary(op::AND, old, keep);
            run.binary(op::OR, kept, placed)
        }
    }
}

/// Returns a result merged with the destination's old value where SDWA or DPP preserve it.
pub fn merged(run: &mut Run<'_>, s: &Step, v: V) -> V {
    match s.inst.ext {
        Extension::Sdwa(sdwa) => inserted(run, s, sdwa, v),
        Extension::Dpp(dpp) => {
            let enabled = dpp_write_mask(dpp.row_mask, dpp.bank_mask);
            let enabled = (enabled != u64::MAX).then(|| run.constant_mask(enabled));
            let written = match (run.written.take(), enabled) {
                (Some(valid), Some(enabled)) => run.and_masks(valid, enabled),
                (Some(mask), None) | (None, Some(mask)) => mask,
                (None, None) => return v,
            };
            let old = run.vgpr(s.inst.dst);
            choose(run, written, v, old)
        }
        _ => v,
    }
}

/// Returns the halves of a 64-bit source.
pub fn raw64(run: &mut Run<'_>, s: &Step, n: usize) -> [V; 2] {
    match s.kind[n] {
        SourceKind::Vector => [run.vgpr(s.inst.src[n]), run.vgpr(s.inst.src[n] + 1)],
        SourceKind::Scalar => [run.scalar(s.inst.src[n]), run.scalar(s.inst.src[n] + 1)],
        SourceKind::Constant => [run.constant(s.constant[n] as u32), run.constant((s.constant[n] >> 32) as u32)],
    }
}

/// Returns an f32 source with abs and neg applied.
pub fn f32_source(run: &mut Run<'_>, s: &Step, n: usize) -> V {
    let v = raw(run, s, n);
    signs(run, s, n, v)
}

pub fn signs(run: &mut Run<'_>, s: &Step, n: usize, mut v: V) -> V {
    let masks = [(s.inst.abs, op::AND, MAGNITUDE), (s.inst.neg, op::XOR, SIGN)];
    for (_, op, mask) in masks.into_iter().filter(|(bits, ..)| bits >> n & 1 != 0) {
        let mask = run.constant(mask);
        let changed = run.binary(op, v, mask);
        run.release(v);
        v = changed;
    }
    v
}

/// Returns an f64 source, interleaved, with abs and neg applied.
pub fn f64_source(run: &mut Run<'_>, s: &Step, n: usize) -> [V; 2] {
    let [low, high] = raw64(run, s, n);
    let high = signs(run, s, n, high);
    run.widen(low, high)
}

/// Writes an f32 result, clamped if the instruction asks for it.
pub fn f32_result(run: &mut Run<'_>, s: &Step, v: V) {
    let v = if s.inst.clamp { clamped(run, v) } else { v };
    result(run, s, v);
}

/// Clamps to [0, 1]: NaN becomes 0, -0 stays.
pub fn clamped(run: &mut Run<'_>, v: V) -> V {
    let (zero, one) = (run.constant(0), run.constant(0x3f80_0000));
    let below = run.compare_f32(predicate::NOT_GREATER_EQUAL, v, zero);
    let positive = replace(run, below, zero, v);
    let above = run.compare_f32(predicate::GREATER, positive, one);
    replace(run, above, one, positive)
}

/// Returns an f16 source as f32, with abs and neg applied.
pub fn f16_source(run: &mut Run<'_>, s: &Step, n: usize) -> V {
    let bits = raw(run, s, n);
    let v = run.half_to_float(bits);
    run.release(bits);
    signs(run, s, n, v)
}

pub fn result(run: &mut Run<'_>, s: &Step, v: V) {
    let v = if s.keep_high && has_half_result(s.inst.desc.semantics) {
        let (old, mask) = (run.vgpr(s.inst.dst), run.constant(0xffff_0000));
        let kept = run.binary(op::AND, old, mask);
        let both = run.binary(op::OR, kept, v);
        run.release(kept);
        both
    } else {
        v
    };
    let v = merged(run, s, v);
    run.set_vgpr(s.inst.dst, v);
}

/// Returns whether the result of an instruction is 16 bits wide. The result of `v_fma_mixlo_f16` and `v_fma_mixhi_f16` is the whole register.
pub fn has_half_result(name: &str) -> bool {
    name == "v_cvt_f16_f32" || name.ends_with("16") && name != "v_cvt_f32_f16" && !name.contains("_mix") && !name.starts_with("v_cmp_")
}

pub fn result64(run: &mut Run<'_>, s: &Step, pair: [V; 2]) {
    let [low, high] = run.narrow(pair);
    run.set_vgpr(s.inst.dst, low);
    run.set_vgpr(s.inst.dst + 1, high);
}

/// Returns `yes` in lanes of the mask, which is not used any more, `no` in others.
pub fn choose(run: &mut Run<'_>, mask: M, yes: V, no: V) -> V {
    let v = run.select(mask, yes, no);
    run.release_mask(mask);
    v
}

/// As [`choose`], where `no` is not used any more.
pub fn replace(run: &mut Run<'_>, mask: M, yes: V, no: V) -> V {
    let v = choose(run, mask, yes, no);
    run.release(no);
    v
}
