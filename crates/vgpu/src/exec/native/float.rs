//! Float instructions in terms of the CPU's.

use super::op::{self, Op};
use super::operands::*;
use super::valu::{Emit, Values, emitters};
use super::vector::{M, Relation, Run, V, Width};
use crate::exec::decoded::{OperandType, SourceKind, Step, constant};
use crate::isa::Extension;

const INFINITY: u32 = 0x7f80_0000;
/// The bit that makes an f32 NaN quiet.
const QUIET: u32 = 0x0040_0000;

/// Flushes denormals to zero, keeping the sign. `v` is not used any more.
fn flushed(run: &mut Run<'_>, v: V) -> V {
    let (exponent, sign, zero) = (run.constant(0x7f80_0000), run.constant(SIGN), run.constant(0));
    let bits = run.binary(op::AND, v, exponent);
    let denormal = run.compare(Relation::Equal, true, bits, zero);
    let signed = run.binary(op::AND, v, sign);
    let result = choose(run, denormal, signed, v);
    [bits, signed, v].into_iter().for_each(|v| run.release(v));
    result
}

/// IEEE minimum or maximum: signaling NaNs win, quiet NaNs lose, and -0 is less than +0.
fn extreme(run: &mut Run<'_>, a: V, b: V, max: bool) -> V {
    if run.width == Width::W512 {
        // The CPU has it, but prefers the first of two quiet NaNs.
        let v = run.binary_immediate(op::RANGE_F32, a, b, 4 | i32::from(max));
        let first = run.quiet_nans(None, a);
        let both = run.quiet_nans(Some(first), b);
        run.release_mask(first);
        return replace(run, both, b, v);
    }
    let first = run.compare_f32(if max { predicate::GREATER } else { predicate::LESS }, a, b);
    let v = choose(run, first, a, b);
    // Equal numbers differ in the sign of zero at most.
    let equal = run.compare_f32(predicate::EQUAL, a, b);
    let tied = run.binary(if max { op::AND } else { op::OR }, a, b);
    let v = replace(run, equal, tied, v);
    run.release(tied);
    let b_nan = run.compare_f32(predicate::UNORDERED, b, b);
    let v = replace(run, b_nan, a, v);
    let a_nan = run.compare_f32(predicate::UNORDERED, a, a);
    let v = replace(run, a_nan, b, v);
    // A signaling NaN, first of all `a`.
    let v = prefer_signaling(run, b, v);
    let v = prefer_signaling(run, a, v);
    let nan = run.compare_f32(predicate::UNORDERED, v, v);
    let bit = run.constant(QUIET);
    let quiet = run.binary(op::OR, v, bit);
    replace(run, nan, quiet, v)
}

/// Returns `v` where it is a signaling NaN, else `other`.
fn prefer_signaling(run: &mut Run<'_>, v: V, other: V) -> V {
    // With the quiet bit flipped, signaling NaNs are the magnitudes above that of the first quiet NaN.
    let (magnitude, quiet, first) = (run.constant(MAGNITUDE), run.constant(QUIET), run.constant(0x7fc0_0000));
    let flipped = run.binary(op::XOR, v, quiet);
    let positive = run.binary(op::AND, flipped, magnitude);
    run.release(flipped);
    let signaling = run.compare(Relation::Greater, true, positive, first);
    run.release(positive);
    replace(run, signaling, v, other)
}

/// Returns the code generator of a float instruction.
pub fn find(name: &str) -> Option<(Values, Emit)> {
    match comparison(name) {
        Some((_, "f32")) => Some((Values::Float, compare)),
        Some((_, "f16")) => Some((Values::Half, compare)),
        Some(_) => Some((Values::Double, compare)),
        None => by_name(name),
    }
}

/// Returns the predicate of a comparison such as `v_cmp_lt_f32`, and its type.
fn comparison(name: &str) -> Option<(i32, &str)> {
    let (relation, ty) = name.strip_prefix("v_cmp_")?.split_once('_')?;
    if !matches!(ty, "f16" | "f32" | "f64") {
        return None;
    }
    let predicate = match relation {
        "lt" => predicate::LESS,
        "eq" => predicate::EQUAL,
        "le" => predicate::LESS_EQUAL,
        "gt" => predicate::GREATER,
        "lg" => predicate::LESS_OR_GREATER,
        "ge" => predicate::GREATER_EQUAL,
        "o" => predicate::ORDERED,
        "u" => predicate::UNORDERED,
        "nge" => predicate::NOT_GREATER_EQUAL,
        "nlg" => predicate::NOT_LESS_OR_GREATER,
        "ngt" => predicate::NOT_GREATER,
        "nle" => predicate::NOT_LESS_EQUAL,
        "neq" => predicate::NOT_EQUAL,
        "nlt" => predicate::NOT_LESS,
        _ => return None,
    };
    Some((predicate, ty))
}

fn compare(run: &mut Run<'_>, s: &Step) {
    let Some((predicate, ty)) = comparison(s.inst.desc.semantics) else { return };
    let mask = match ty {
        "f32" => {
            let (a, b) = (f32_source(run, s, 0), f32_source(run, s, 1));
            run.compare_f32(predicate, a, b)
        }
        "f16" => {
            let (a, b) = (f16_source(run, s, 0), f16_source(run, s, 1));
            run.compare_f32(predicate, a, b)
        }
        _ => {
            let (a, b) = (f64_source(run, s, 0), f64_source(run, s, 1));
            run.compare_f64(predicate, a, b)
        }
    };
    run.store_mask(s.inst.dst, mask);
}

/// An f16 operation, computed in f32 and rounded.
fn half_binary(run: &mut Run<'_>, s: &Step, op: Op, swapped: bool) {
    let (a, b) = (f16_source(run, s, 0), f16_source(run, s, 1));
    let v = if swapped { run.binary(op, b, a) } else { run.binary(op, a, b) };
    let v = run.float_to_half(v);
    result(run, s, v);
}

/// An f16 multiply-add that rounds twice.
fn half_multiply_add(run: &mut Run<'_>, s: &Step) {
    let (a, b, c) = (f16_source(run, s, 0), f16_source(run, s, 1), f16_source(run, s, 2));
    let product = run.binary(op::MUL_F32, a, b);
    run.release(a);
    run.release(b);
    let rounded = run.float_to_half(product);
    run.release(product);
    let product = run.half_to_float(rounded);
    run.release(rounded);
    let sum = run.binary(op::ADD_F32, product, c);
    run.release(product);
    run.release(c);
    let v = run.float_to_half(sum);
    run.release(sum);
    result(run, s, v);
}

/// An f32 multiply-add that rounds twice and flushes denormals.
fn float_multiply_add(run: &mut Run<'_>, s: &Step) {
    let [a, b] = [0, 1].map(|n| {
        let v = f32_source(run, s, n);
        flushed(run, v)
    });
    let product = run.binary(op::MUL_F32, a, b);
    run.release(a);
    run.release(b);
    let c = f32_source(run, s, 2);
    let (product, c) = (flushed(run, product), flushed(run, c));
    let sum = run.binary(op::ADD_F32, product, c);
    run.release(product);
    run.release(c);
    let v = flushed(run, sum);
    f32_result(run, s, v);
}

/// The smallest or greatest of three.
fn extreme_of_three(run: &mut Run<'_>, s: &Step, max: bool) {
    let (a, b) = (f32_source(run, s, 0), f32_source(run, s, 1));
    let v = extreme(run, a, b, max);
    run.release(a);
    run.release(b);
    let c = f32_source(run, s, 2);
    let v = extreme(run, v, c, max);
    f32_result(run, s, v);
}

/// Converts to i32: saturates; NaN becomes 0.
fn to_signed(run: &mut Run<'_>, s: &Step) {
    let (a, limit, most) = (f32_source(run, s, 0), run.constant(0x4f00_0000), run.constant(0x7fff_ffff));
    let zero = run.constant(0);
    // Out of range it is the smallest integer.
    let v = run.unary(op::F32_TO_I32, a);
    let above = run.compare_f32(predicate::GREATER_EQUAL, a, limit);
    let v = replace(run, above, most, v);
    let nan = run.compare_f32(predicate::UNORDERED, a, a);
    let v = replace(run, nan, zero, v);
    result(run, s, v);
}

/// Converts to u32: saturates; NaN becomes 0.
fn to_unsigned(run: &mut Run<'_>, s: &Step) {
    let (a, zero) = (f32_source(run, s, 0), run.constant(0));
    // The second source if the first is NaN.
    let positive = run.binary(op::MAX_F32, a, zero);
    if run.width == Width::W512 {
        // Out of range it is the greatest integer.
        let v = run.unary(op::F32_TO_U32, positive);
        return result(run, s, v);
    }
    let (half, whole, ones) = (run.constant(0x4f00_0000), run.constant(0x4f80_0000), run.constant(u32::MAX));
    let sign = run.constant(SIGN);
    run.release(a);
    let upper = run.compare_f32(predicate::GREATER_EQUAL, positive, half);
    let reduced = run.binary(op::SUB_F32, positive, half);
    let part = run.select(upper, reduced, positive);
    run.release(reduced);
    let low = run.unary(op::F32_TO_I32, part);
    run.release(part);
    let high = run.binary(op::XOR, low, sign);
    let v = replace(run, upper, high, low);
    run.release(high);
    let above = run.compare_f32(predicate::GREATER_EQUAL, positive, whole);
    let v = replace(run, above, ones, v);
    run.release(positive);
    result(run, s, v);
}

/// Converts u32 to f32.
fn from_unsigned(run: &mut Run<'_>, s: &Step) {
    let a = raw(run, s, 0);
    if run.width == Width::W512 {
        let v = run.unary(op::U32_TO_F32, a);
        return result(run, s, v);
    }
    // Both halves are exact; the sum rounds once.
    let (mask, scale) = (run.constant(0xffff), run.constant(0x4780_0000));
    let (low, high) = (run.binary(op::AND, a, mask), run.immediate(op::SHR_IMM, a, 16));
    let (low, high) = (run.unary(op::I32_TO_F32, low), run.unary(op::I32_TO_F32, high));
    let v = run.fused(op::FMA_F32, high, scale, low);
    result(run, s, v);
}

/// `v_fma_mix_f32`, `v_fma_mixlo_f16`, `v_fma_mixhi_f16`: sources are f32, or half a register as f16; `neg_hi` is abs.
fn mixed(run: &mut Run<'_>, s: &Step) {
    let inst = &s.inst;
    let mut sources = [None; 3];
    for n in 0..3 {
        let is_half = inst.op_sel_hi >> n & 1 != 0;
        let mut v = match s.kind[n] {
            SourceKind::Vector => run.vgpr(inst.src[n]),
            SourceKind::Scalar => run.scalar(inst.src[n]),
            SourceKind::Constant => {
                let ty = if is_half { OperandType::B16 } else { OperandType::B32 };
                run.constant(constant(inst.src[n], inst.literal, ty) as u32)
            }
        };
        if is_half && inst.op_sel >> n & 1 != 0 {
            let high = run.immediate(op::SHR_IMM, v, 16);
            run.release(v);
            v = high;
        }
        if is_half {
            let wide = run.half_to_float(v);
            run.release(v);
            v = wide;
        }
        let signs = [(inst.neg_hi, op::AND, MAGNITUDE), (inst.neg, op::XOR, SIGN)];
        for (_, op, mask) in signs.into_iter().filter(|(bits, ..)| bits >> n & 1 != 0) {
            let mask = run.constant(mask);
            let changed = run.binary(op, v, mask);
            run.release(v);
            v = changed;
        }
        sources[n] = Some(v);
    }
    let [Some(a), Some(b), Some(c)] = sources else { return };
    let v = run.fused(op::FMA_F32, a, b, c);
    if inst.desc.semantics == "v_fma_mix_f32" {
        let v = if inst.clamp { clamped(run, v) } else { v };
        return run.set_vgpr(inst.dst, v);
    }
    let (half, old) = (run.float_to_half(v), run.vgpr(inst.dst));
    let high = inst.desc.semantics == "v_fma_mixhi_f16";
    let (placed, keep) = if high { (run.immediate(op::SHL_IMM, half, 16), 0xffff) } else { (half, 0xffff_0000) };
    let keep = run.constant(keep);
    let kept = run.binary(op::AND, old, keep);
    let v = run.binary(op::OR, kept, placed);
    run.set_vgpr(inst.dst, v);
}

/// `v_pk_fma_f32` and similar: an operation on each register of the pairs.
fn packed(run: &mut Run<'_>, s: &Step, compute: impl Fn(&mut Run<'_>, [V; 3]) -> V) {
    let halves = [(s.inst.op_sel, s.inst.neg), (s.inst.op_sel_hi, s.inst.neg_hi)].map(|(select, negate)| {
        let sources: [V; 3] = std::array::from_fn(|n| {
            let number = s.inst.src[n] + u16::from(select >> n & 1);
            let v = match s.kind[n] {
                SourceKind::Vector => run.vgpr(number),
                SourceKind::Scalar => run.scalar(number),
                SourceKind::Constant => run.constant(s.constant[n] as u32),
            };
            if negate >> n & 1 == 0 {
                return v;
            }
            let sign = run.constant(SIGN);
            run.binary(op::XOR, v, sign)
        });
        let v = compute(run, sources);
        sources.into_iter().filter(|source| *source != v).for_each(|source| run.release(source));
        if s.inst.clamp { clamped(run, v) } else { v }
    });
    run.set_vgpr(s.inst.dst, halves[0]);
    run.set_vgpr(s.inst.dst + 1, halves[1]);
}

/// `v_pk_mov_b32`: a register of each source.
fn move_pair(run: &mut Run<'_>, s: &Step) {
    let [low, high] = [0, 1].map(|n| {
        let number = s.inst.src[n] + u16::from(s.inst.op_sel >> n & 1);
        let v = match s.kind[n] {
            SourceKind::Vector => run.vgpr(number),
            SourceKind::Scalar => run.scalar(number),
            SourceKind::Constant => run.constant(s.constant[n] as u32),
        };
        // The second one may be what the first one replaces.
        run.unary(op::MOVE, v)
    });
    run.set_vgpr(s.inst.dst, low);
    run.set_vgpr(s.inst.dst + 1, high);
}

fn float_binary(run: &mut Run<'_>, s: &Step, op: Op) {
    let (a, b) = (f32_source(run, s, 0), f32_source(run, s, 1));
    let v = run.binary(op, a, b);
    f32_result(run, s, v);
}

fn float_fused(run: &mut Run<'_>, s: &Step) {
    let accumulates = s.kind[2] == SourceKind::Vector && s.inst.src[2] == s.inst.dst && (s.inst.abs | s.inst.neg) >> 2 == 0;
    if accumulates && !s.inst.clamp && s.inst.ext == Extension::None {
        let (a, b) = (f32_source(run, s, 0), f32_source(run, s, 1));
        return run.accumulate(s.inst.dst, op::FMA_TO_C_F32, a, b);
    }
    let (a, b, c) = (f32_source(run, s, 0), f32_source(run, s, 1), f32_source(run, s, 2));
    let v = run.fused(op::FMA_F32, a, b, c);
    f32_result(run, s, v);
}

/// Returns the lanes with zeros, infinities and NaNs.
fn special_numbers(run: &mut Run<'_>, a: V) -> M {
    let (mask, zero, infinity) = (run.constant(MAGNITUDE), run.constant(0), run.constant(INFINITY));
    let magnitude = run.binary(op::AND, a, mask);
    let is_zero = run.compare(Relation::Equal, true, magnitude, zero);
    let is_infinite = run.compare(Relation::GreaterEqual, true, magnitude, infinity);
    run.release(magnitude);
    run.or_masks(is_zero, is_infinite)
}

/// Rounds to an integer; `mode` is the immediate of `vroundps`.
fn float_round(run: &mut Run<'_>, s: &Step, mode: i32) {
    let a = f32_source(run, s, 0);
    let v = run.immediate(op::ROUND_F32, a, mode);
    f32_result(run, s, v);
}

fn reciprocal(run: &mut Run<'_>, s: &Step) {
    let (a, one) = (f32_source(run, s, 0), run.constant(0x3f80_0000));
    let a = flushed(run, a);
    let v = run.binary(op::DIV_F32, one, a);
    let v = flushed(run, v);
    f32_result(run, s, v);
}

fn byte_to_float(run: &mut Run<'_>, s: &Step, n: i32) {
    let a = raw(run, s, 0);
    let shifted = if n == 0 { a } else { run.immediate(op::SHR_IMM, a, 8 * n) };
    let mask = run.constant(0xff);
    let byte = run.binary(op::AND, shifted, mask);
    let v = run.unary(op::I32_TO_F32, byte);
    f32_result(run, s, v);
}

emitters! {
    "v_cndmask_b32": Float, |run, s| {
        let (a, b) = (f32_source(run, s, 0), f32_source(run, s, 1));
        let mask = run.load_mask(s.inst.src[2]);
        let v = run.select(mask, b, a);
        result(run, s, v)
    };
    "v_add_f32": Float, |run, s| float_binary(run, s, op::ADD_F32);
    "v_sub_f32": Float, |run, s| float_binary(run, s, op::SUB_F32);
    "v_mul_f32": Float, |run, s| float_binary(run, s, op::MUL_F32);
    "v_subrev_f32": Float, |run, s| {
        let (a, b) = (f32_source(run, s, 0), f32_source(run, s, 1));
        let v = run.binary(op::SUB_F32, b, a);
        f32_result(run, s, v)
    };
    "v_fma_f32": Float, |run, s| float_fused(run, s);
    "v_fmac_f32": Float, |run, s| float_fused(run, s);
    "v_fmamk_f32": Float, |run, s| float_fused(run, s);
    "v_fmaak_f32": Float, |run, s| float_fused(run, s);
    "v_min_f32": Float, |run, s| { let (a, b) = (f32_source(run, s, 0), f32_source(run, s, 1)); let v = extreme(run, a, b, false); f32_result(run, s, v) };
    "v_max_f32": Float, |run, s| { let (a, b) = (f32_source(run, s, 0), f32_source(run, s, 1)); let v = extreme(run, a, b, true); f32_result(run, s, v) };
    "v_rcp_f32": Float, |run, s| reciprocal(run, s);
    "v_rcp_iflag_f32": Float, |run, s| reciprocal(run, s);
    "v_sqrt_f32": Float, |run, s| {
        let a = f32_source(run, s, 0);
        let a = flushed(run, a);
        let v = run.unary(op::SQRT_F32, a);
        f32_result(run, s, v)
    };
    "v_rndne_f32": Float, |run, s| float_round(run, s, 8);
    "v_floor_f32": Float, |run, s| float_round(run, s, 9);
    "v_ceil_f32": Float, |run, s| float_round(run, s, 10);
    "v_trunc_f32": Float, |run, s| float_round(run, s, 11);
    "v_fract_f32": Float, |run, s| {
        let (a, most) = (f32_source(run, s, 0), run.constant(0x3f7f_ffff));
        let floor = run.immediate(op::ROUND_F32, a, 9);
        let fraction = run.binary(op::SUB_F32, a, floor);
        // The second one if it is NaN.
        let v = run.binary(op::MIN_F32, most, fraction);
        f32_result(run, s, v)
    };
    "v_frexp_mant_f32": Float, |run, s| {
        let a = f32_source(run, s, 0);
        // In [0.5, 1), with its sign.
        let mantissa = run.immediate(op::GET_MANTISSA_F32, a, 2);
        let special = special_numbers(run, a);
        let v = replace(run, special, a, mantissa);
        f32_result(run, s, v)
    };
    "v_frexp_exp_i32_f32": Float, |run, s| {
        let (a, one, zero) = (f32_source(run, s, 0), run.constant(1), run.constant(0));
        let exponent = run.unary(op::GET_EXPONENT_F32, a);
        let exponent = run.unary(op::F32_TO_I32, exponent);
        let exponent = run.binary(op::ADD_I32, exponent, one);
        let special = special_numbers(run, a);
        let v = replace(run, special, zero, exponent);
        result(run, s, v)
    };
    "v_cvt_f32_ubyte0": Bits, |run, s| byte_to_float(run, s, 0);
    "v_cvt_f32_ubyte1": Bits, |run, s| byte_to_float(run, s, 1);
    "v_cvt_f32_ubyte2": Bits, |run, s| byte_to_float(run, s, 2);
    "v_cvt_f32_ubyte3": Bits, |run, s| byte_to_float(run, s, 3);
    "v_mac_f32": Float, |run, s| float_multiply_add(run, s);
    "v_mad_f32": Float, |run, s| float_multiply_add(run, s);
    "v_min3_f32": Float, |run, s| extreme_of_three(run, s, false);
    "v_max3_f32": Float, |run, s| extreme_of_three(run, s, true);
    "v_cvt_i32_f32": Float, |run, s| to_signed(run, s);
    "v_cvt_u32_f32": Float, |run, s| to_unsigned(run, s);
    "v_cvt_f32_u32": Bits, |run, s| from_unsigned(run, s);
    "v_cvt_f16_f32": Float, |run, s| { let a = f32_source(run, s, 0); let v = run.float_to_half(a); result(run, s, v) };
    "v_cvt_f32_f16": Half, |run, s| { let v = f16_source(run, s, 0); result(run, s, v) };
    "v_ldexp_f32": Float, |run, s| {
        // Counts beyond these give the same result, and f32 represents them.
        let (by, least, most) = (raw(run, s, 1), run.constant(-400i32 as u32), run.constant(400));
        let by = run.binary(op::MAX_I32, by, least);
        let by = run.binary(op::MIN_I32, by, most);
        let by = run.unary(op::I32_TO_F32, by);
        let a = f32_source(run, s, 0);
        let v = run.binary(op::SCALE_F32, a, by);
        f32_result(run, s, v)
    };
    "v_add_f16": Half, |run, s| half_binary(run, s, op::ADD_F32, false);
    "v_sub_f16": Half, |run, s| half_binary(run, s, op::SUB_F32, false);
    "v_subrev_f16": Half, |run, s| half_binary(run, s, op::SUB_F32, true);
    "v_mul_f16": Half, |run, s| half_binary(run, s, op::MUL_F32, false);
    "v_mac_f16": Half, |run, s| half_multiply_add(run, s);
    "v_mad_legacy_f16": Half, |run, s| half_multiply_add(run, s);
    "v_pk_fma_f32": Packed, |run, s| packed(run, s, |run, [a, b, c]| run.fused(op::FMA_F32, a, b, c));
    "v_pk_mul_f32": Packed, |run, s| packed(run, s, |run, [a, b, _]| run.binary(op::MUL_F32, a, b));
    "v_pk_add_f32": Packed, |run, s| packed(run, s, |run, [a, b, _]| run.binary(op::ADD_F32, a, b));
    "v_pk_mov_b32": Packed, |run, s| move_pair(run, s);
    "v_fma_mix_f32": Packed, |run, s| mixed(run, s);
    "v_fma_mixlo_f16": Packed, |run, s| mixed(run, s);
    "v_fma_mixhi_f16": Packed, |run, s| mixed(run, s);
}
