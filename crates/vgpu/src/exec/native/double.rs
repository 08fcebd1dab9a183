//! f64 instructions, and conversions between f64 and 32-bit types.

use super::op::{self, Op};
use super::operands::*;
use super::valu::{Emit, Values, emitters};
use super::vector::{Run, V};
use super::wide::{self, Conversion};
use crate::exec::decoded::Step;

/// The high half of 1.0.
const ONE: u32 = 0x3ff0_0000;

fn binary(run: &mut Run<'_>, s: &Step, op: Op) {
    let (a, b) = (f64_source(run, s, 0), f64_source(run, s, 1));
    let pair = run.binary64(op, a, b);
    result64(run, s, pair);
}

fn fused(run: &mut Run<'_>, s: &Step) {
    let (a, b, c) = (f64_source(run, s, 0), f64_source(run, s, 1), f64_source(run, s, 2));
    let pair = [run.fused(op::FMA_F64, a[0], b[0], c[0]), run.fused(op::FMA_F64, a[1], b[1], c[1])];
    result64(run, s, pair);
}

/// Rounds to an integer; `mode` is the immediate of `vroundpd`.
fn round(run: &mut Run<'_>, s: &Step, mode: i32) {
    let a = f64_source(run, s, 0);
    let pair = a.map(|a| run.immediate(op::ROUND_F64, a, mode));
    result64(run, s, pair);
}

/// The minimum or maximum; NaNs as for f32.
fn extreme(run: &mut Run<'_>, s: &Step, max: bool) {
    let (a, b) = (f64_source(run, s, 0), f64_source(run, s, 1));
    let pair = [0, 1].map(|n| run.binary_immediate(op::RANGE_F64, a[n], b[n], 4 | i32::from(max)));
    result64(run, s, pair);
}

fn divide_one(run: &mut Run<'_>, s: &Step, a: [V; 2]) {
    let one = run.constant64(ONE);
    let pair = a.map(|a| run.binary(op::DIV_F64, one, a));
    result64(run, s, pair);
}

fn square_root(run: &mut Run<'_>, s: &Step) -> [V; 2] {
    let a = f64_source(run, s, 0);
    a.map(|a| {
        let root = run.unary(op::SQRT_F64, a);
        run.release(a);
        root
    })
}

fn fraction(run: &mut Run<'_>, s: &Step) {
    let (a, most) = (f64_source(run, s, 0), [run.constant(u32::MAX), run.constant(ONE - 1)]);
    let most = run.binary(op::UNPACK_LOW, most[0], most[1]);
    let pair = a.map(|a| {
        let floor = run.immediate(op::ROUND_F64, a, 9);
        let fraction = run.binary(op::SUB_F64, a, floor);
        run.release(floor);
        // The second one if it is NaN.
        run.binary(op::MIN_F64, most, fraction)
    });
    result64(run, s, pair);
}

/// Converts to f64.
fn widened(run: &mut Run<'_>, s: &Step, float: bool, conversion: Conversion) {
    let a = if float { f32_source(run, s, 0) } else { raw(run, s, 0) };
    let pair = run.expand(a, conversion);
    result64(run, s, pair);
}

fn to_float(run: &mut Run<'_>, s: &Step) {
    let a = f64_source(run, s, 0);
    let v = run.contract(a, wide::F64_TO_F32);
    result(run, s, v);
}

/// Converts to an integer: saturates; NaN becomes 0.
fn to_integer(run: &mut Run<'_>, s: &Step, signed: bool) {
    let a = f64_source(run, s, 0);
    if !signed {
        let zero = run.constant(0);
        // The second one if the first is NaN. Out of range it is the greatest integer.
        let positive = a.map(|a| run.binary(op::MAX_F64, a, zero));
        let v = run.contract(positive, wide::F64_TO_U32);
        return result(run, s, v);
    }
    let nan = run.compare_f64(predicate::UNORDERED, a, a);
    // 2147483647.0. Below the range it is the smallest integer.
    let (low, high) = (run.constant(0xffc0_0000), run.constant(0x41df_ffff));
    let most = run.binary(op::UNPACK_LOW, low, high);
    let bounded = a.map(|a| run.binary(op::MIN_F64, most, a));
    [a[0], a[1], most].into_iter().for_each(|v| run.release(v));
    let v = run.contract(bounded, wide::F64_TO_I32);
    let zero = run.constant(0);
    let v = replace(run, nan, zero, v);
    result(run, s, v);
}

fn scale(run: &mut Run<'_>, s: &Step) {
    // Counts beyond these give the same result.
    let (by, least, most) = (raw(run, s, 1), run.constant(-2200i32 as u32), run.constant(2200));
    let by = run.binary(op::MAX_I32, by, least);
    let by = run.binary(op::MIN_I32, by, most);
    let by = run.expand(by, wide::I32_TO_F64);
    let a = f64_source(run, s, 0);
    let pair = run.binary64(op::SCALE_F64, a, by);
    result64(run, s, pair);
}

emitters! {
    "v_add_f64": Double, |run, s| binary(run, s, op::ADD_F64);
    "v_mul_f64": Double, |run, s| binary(run, s, op::MUL_F64);
    "v_fma_f64": Double, |run, s| fused(run, s);
    "v_fmac_f64": Double, |run, s| fused(run, s);
    "v_min_f64": Double, |run, s| extreme(run, s, false);
    "v_max_f64": Double, |run, s| extreme(run, s, true);
    "v_rndne_f64": Double, |run, s| round(run, s, 8);
    "v_floor_f64": Double, |run, s| round(run, s, 9);
    "v_ceil_f64": Double, |run, s| round(run, s, 10);
    "v_trunc_f64": Double, |run, s| round(run, s, 11);
    "v_fract_f64": Double, |run, s| fraction(run, s);
    "v_rcp_f64": Double, |run, s| { let a = f64_source(run, s, 0); divide_one(run, s, a) };
    "v_rsq_f64": Double, |run, s| { let root = square_root(run, s); divide_one(run, s, root) };
    "v_sqrt_f64": Double, |run, s| { let root = square_root(run, s); result64(run, s, root) };
    "v_ldexp_f64": Double, |run, s| scale(run, s);
    "v_cvt_f64_f32": Double, |run, s| widened(run, s, true, wide::F32_TO_F64);
    "v_cvt_f64_i32": Wide, |run, s| widened(run, s, false, wide::I32_TO_F64);
    "v_cvt_f64_u32": Wide, |run, s| widened(run, s, false, wide::U32_TO_F64);
    "v_cvt_f32_f64": Double, |run, s| to_float(run, s);
    "v_cvt_i32_f64": Double, |run, s| to_integer(run, s, true);
    "v_cvt_u32_f64": Double, |run, s| to_integer(run, s, false);
}
