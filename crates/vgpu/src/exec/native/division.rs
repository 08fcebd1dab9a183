//! The steps of a correctly rounded f32 division, at 512 bits.

use iced_x86::RoundingControl;

use super::op;
use super::operands::*;
use super::valu::{Emit, Values, emitters};
use super::vector::{M, Relation, Run, V};
use super::wide;
use crate::exec::decoded::Step;
use crate::isa::operand;

const EXPONENT: u32 = 0x7f80_0000;
const ONE: u32 = 0x3f80_0000;
/// 2^64 and 2^-64, by which operands are scaled.
const UP: u32 = 0x5f80_0000;
const DOWN: u32 = 0x1f80_0000;
/// The NaN of 0 / 0 and of infinity / infinity.
const NO_NUMBER: u32 = 0xffc0_0000;

fn magnitude(run: &mut Run<'_>, v: V) -> V {
    let mask = run.constant(MAGNITUDE);
    run.binary(op::AND, v, mask)
}

/// `v_div_scale_f32`: the interpreter's function explains the rules. Each case replaces the result of those after it.
fn scale(run: &mut Run<'_>, s: &Step) {
    let (value, d, n) = (f32_source(run, s, 0), f32_source(run, s, 1), f32_source(run, s, 2));
    let (exponent, one, up, down) = (run.constant(EXPONENT), run.constant(ONE), run.constant(UP), run.constant(DOWN));
    let (d_bits, n_bits) = (run.binary(op::AND, d, exponent), run.binary(op::AND, n, exponent));
    let (d_magnitude, n_magnitude) = (magnitude(run, d), magnitude(run, n));
    let is_denominator = run.compare_f32(predicate::EQUAL, value, d);
    let up_denominator = run.select(is_denominator, up, one);
    let down_denominator = run.select(is_denominator, down, one);
    let up_numerator = choose(run, is_denominator, one, up);
    // A small numerator.
    let least = run.constant(23 << 23);
    let small = run.compare(Relation::LessEqual, true, n_bits, least);
    let factor = choose(run, small, up, one);
    run.release(least);
    // The quotient may be denormal: by the exponents, also those of denormals.
    let (n_exponent, d_exponent) = (run.unary(op::GET_EXPONENT_F32, n), run.unary(op::GET_EXPONENT_F32, d));
    let (distance, limit) = (run.binary(op::SUB_F32, n_exponent, d_exponent), run.constant((-126f32).to_bits()));
    let tiny_quotient = run.compare_f32(predicate::LESS_EQUAL, distance, limit);
    [n_exponent, d_exponent, distance, limit].into_iter().for_each(|v| run.release(v));
    let factor = kept(run, tiny_quotient, up_numerator, factor);
    // The reciprocal is denormal: above 2^126.
    let limit = run.constant(0x7e80_0000);
    let tiny_reciprocal = run.compare(Relation::Greater, true, d_magnitude, limit);
    run.release(limit);
    let both = run.select(tiny_quotient, down_denominator, down);
    let factor = replace(run, tiny_reciprocal, both, factor);
    run.release(both);
    let zero = run.constant(0);
    let denormal = run.compare(Relation::Equal, true, d_bits, zero);
    let factor = replace(run, denormal, up, factor);
    let normal = run.compare(Relation::NotEqual, true, d_bits, zero);
    let flag = run.and_masks(tiny_quotient, normal);
    // The quotient may overflow.
    let (difference, limit) = (run.binary(op::SUB_I32, n_bits, d_bits), run.constant(96 << 23));
    let far = run.compare(Relation::GreaterEqual, true, difference, limit);
    [difference, limit].into_iter().for_each(|v| run.release(v));
    let factor = kept(run, far, up_denominator, factor);
    let flag = run.or_masks(flag, far);
    let greatest = run.binary(op::MAX_I32, d_bits, n_bits);
    let special = run.compare(Relation::GreaterEqual, true, greatest, exponent);
    let factor = replace(run, special, one, factor);
    let finite = run.compare(Relation::Less, true, greatest, exponent);
    let flag = run.and_masks(flag, finite);
    let scaled = run.binary(op::MUL_F32, value, factor);
    let least = run.binary(op::MIN_U32, d_magnitude, n_magnitude);
    let is_zero = run.compare(Relation::Equal, true, least, zero);
    let nan = run.constant(0x7fc0_0000);
    let v = kept(run, is_zero, nan, scaled);
    let flag = run.or_masks(flag, is_zero);
    run.set_vgpr(s.inst.dst, v);
    run.store_mask(s.inst.sdst, flag);
}

/// Returns `yes` in lanes of the mask, `no`, which is not used any more, in others.
fn kept(run: &mut Run<'_>, mask: M, yes: V, no: V) -> V {
    let v = run.select(mask, yes, no);
    run.release(no);
    v
}

/// `v_div_fmas_f32`: a fused multiply-add, scaled in the lanes of VCC, where it still rounds once: from a sum in f64 that is rounded to odd.
fn multiply_add(run: &mut Run<'_>, s: &Step) {
    let (a, b, c) = (f32_source(run, s, 0), f32_source(run, s, 1), f32_source(run, s, 2));
    let plain = run.fused(op::FMA_F32, a, b, c);
    let (c_magnitude, two, up, down) = (magnitude(run, c), run.constant(0x4000_0000), run.constant(UP), run.constant(DOWN));
    let large = run.compare_f32(predicate::GREATER_EQUAL, c_magnitude, two);
    let factor = choose(run, large, up, down);
    [c_magnitude, two, up, down].into_iter().for_each(|v| run.release(v));
    // Each source again: they may be equal, and the conversion releases them.
    let [a, b, c] = [0, 1, 2].map(|n| {
        let v = f32_source(run, s, n);
        run.expand(v, wide::F32_TO_F64)
    });
    let factor = run.expand(factor, wide::F32_TO_F64);
    let (low, zero) = (run.constant(1), run.constant(0));
    let last = run.binary(op::UNPACK_LOW, low, zero);
    let scaled = [0, 1].map(|n| {
        let product = run.binary(op::MUL_F64, a[n], b[n]);
        let [below, above, sum] = [RoundingControl::RoundDown, RoundingControl::RoundUp, RoundingControl::RoundTowardZero]
            .map(|mode| run.rounded64(op::ADD_F64, product, c[n], mode));
        let inexact = run.different64(below, above);
        let odd = run.binary(op::OR, sum, last);
        let sum = run.select64(inexact, odd, sum);
        let scaled = run.binary(op::MUL_F64, sum, factor[n]);
        [a[n], b[n], c[n], factor[n], product, below, above, odd, sum].into_iter().for_each(|v| run.release(v));
        scaled
    });
    let scaled = run.contract(scaled, wide::F64_TO_F32);
    let mask = run.load_mask(operand::VCC);
    let v = run.select(mask, scaled, plain);
    run.set_vgpr(s.inst.dst, v);
}

/// `v_div_fixup_f32`: special values, else the quotient with the sign of the division. Later cases come first.
fn fix(run: &mut Run<'_>, s: &Step) {
    let (quotient, d, n) = (f32_source(run, s, 0), f32_source(run, s, 1), f32_source(run, s, 2));
    let (sign, infinity, zero) = (run.constant(SIGN), run.constant(EXPONENT), run.constant(0));
    let signs = run.binary(op::XOR, d, n);
    let signs = run.binary(op::AND, signs, sign);
    let infinite = run.binary(op::OR, signs, infinity);
    let positive = magnitude(run, quotient);
    let mut v = run.binary(op::OR, positive, signs);
    let (n_exponent, d_exponent) = (run.unary(op::GET_EXPONENT_F32, n), run.unary(op::GET_EXPONENT_F32, d));
    let distance = run.binary(op::SUB_F32, n_exponent, d_exponent);
    let (most, least) = (run.constant(129f32.to_bits()), run.constant((-150f32).to_bits()));
    let over = run.compare_f32(predicate::GREATER_EQUAL, distance, most);
    v = replace(run, over, infinite, v);
    let under = run.compare_f32(predicate::LESS, distance, least);
    v = replace(run, under, signs, v);
    let failed = run.compare_f32(predicate::UNORDERED, quotient, quotient);
    v = replace(run, failed, infinite, v);
    let (d_magnitude, n_magnitude) = (magnitude(run, d), magnitude(run, n));
    for (magnitude, special, result) in
        [(d_magnitude, infinity, signs), (n_magnitude, zero, signs), (d_magnitude, zero, infinite), (n_magnitude, infinity, infinite)]
    {
        let mask = run.compare(Relation::Equal, true, magnitude, special);
        v = replace(run, mask, result, v);
    }
    let no_number = run.constant(NO_NUMBER);
    for special in [zero, infinity] {
        let first = run.compare(Relation::Equal, true, d_magnitude, special);
        let second = run.compare(Relation::Equal, true, n_magnitude, special);
        let both = run.and_masks(first, second);
        v = replace(run, both, no_number, v);
    }
    let quiet = run.constant(0x0040_0000);
    for nan in [d, n] {
        let quieted = run.binary(op::OR, nan, quiet);
        let mask = run.compare_f32(predicate::UNORDERED, nan, nan);
        v = replace(run, mask, quieted, v);
        run.release(quieted);
    }
    f32_result(run, s, v);
}

emitters! {
    "v_div_scale_f32": Float, |run, s| scale(run, s);
    "v_div_fmas_f32": Float, |run, s| multiply_add(run, s);
    "v_div_fixup_f32": Float, |run, s| fix(run, s);
}
