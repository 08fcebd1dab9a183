//! Scalar float instructions (gfx12): the operations of the vector ALU on SGPRs.

use super::decoded::{Handler, OperandType, Step, constant};
use super::float::{F16, quiet16};
use super::ops::compare::plain;
use super::ops::{convert, float};
use super::valu::{Compare, LaneType, Op, apply_input_mode, apply_output_modifiers};
use super::wave::Wave;
use super::{Env, Outcome};
use crate::isa::{Field, operand};

/// Returns the bits of a source; a constant has the given type.
fn bits(w: &Wave, s: &Step, number: u16, ty: OperandType) -> u32 {
    match number {
        operand::LITERAL => s.inst.literal,
        operand::INLINE..=operand::INLINE_INT_MIN | operand::INLINE_FLOAT..=operand::INLINE_INV_2PI => constant(number, 0, ty) as u32,
        _ => w.scalar(number),
    }
}

/// Returns a source as a lane's value, with the input part of `MODE` applied.
fn value<T: LaneType>(w: &Wave, s: &Step, number: u16) -> T {
    let mut raw = T::ZERO;
    let mut bits = u64::from(bits(w, s, number, T::TYPE));
    if T::FLOAT != 0 {
        bits = apply_input_mode(bits, T::FLOAT, w);
    }
    T::set_bits(&mut raw, 0, bits);
    T::get(&raw, 0)
}

/// Runs a vector operation on scalars.
fn arithmetic<O: Op>(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    let [a, b, _] = s.inst.src;
    // The literal of a multiply-add is its second or third source.
    let literal = s.inst.desc.operands.iter().position(|operand| operand.field == Field::Literal);
    let sources = match literal {
        Some(2) => [a, operand::LITERAL, b],
        Some(_) => [a, b, operand::LITERAL],
        None => [a, b, s.inst.dst],
    };
    let (a, b, c) = (value::<O::A>(w, s, sources[0]), value::<O::B>(w, s, sources[1]), value::<O::C>(w, s, sources[2]));
    let rounding = if O::D::FLOAT == 32 { w.mode.round32() } else { w.mode.round64() };
    let result = if O::D::FLOAT != 0 && rounding != 0 { O::rounded(a, b, c, rounding) } else { O::f(a, b, c) };
    let mut raw = O::D::ZERO;
    O::D::set(&mut raw, 0, result);
    let bits = apply_output_modifiers(O::D::bits(&raw, 0), O::D::FLOAT, w, s);
    w.set_scalar(s.inst.dst, bits as u32);
    Outcome::Continue
}

/// Runs a vector comparison on scalars.
fn compare<O: Compare>(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    let (a, b) = (value::<O::A>(w, s, s.inst.src[0]), value::<O::B>(w, s, s.inst.src[1]));
    w.scc = O::f(a, b);
    Outcome::Continue
}

/// `s_cvt_hi_f32_f16`: converts the high half.
fn cvt_hi_f32_f16(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    let half = F16((bits(w, s, s.inst.src[0], OperandType::B16) >> 16) as u16);
    let bits = apply_input_mode(half.0.into(), 16, w) as u16;
    w.set_scalar(s.inst.dst, F16(quiet16(bits)).to_f32().to_bits());
    Outcome::Continue
}

/// Returns the handler of the instruction called `name`.
pub fn find(name: &str) -> Option<Handler> {
    macro_rules! table {
        ($run:ident: $($text:literal $module:ident::$op:ident;)*) => {
            match name { $( $text => Some($run::<$module::$op> as Handler), )* _ => None }
        };
    }
    let found = table! { arithmetic:
        "s_add_f32" float::v_add_f32;
        "s_sub_f32" float::v_sub_f32;
        "s_mul_f32" float::v_mul_f32;
        "s_fmac_f32" float::v_fmac_f32;
        "s_fmaak_f32" float::v_fma_f32;
        "s_fmamk_f32" float::v_fma_f32;
        "s_min_num_f32" float::v_min_num_f32;
        "s_max_num_f32" float::v_max_num_f32;
        "s_minimum_f32" float::v_minimum_f32;
        "s_maximum_f32" float::v_maximum_f32;
        "s_ceil_f32" float::v_ceil_f32;
        "s_floor_f32" float::v_floor_f32;
        "s_trunc_f32" float::v_trunc_f32;
        "s_rndne_f32" float::v_rndne_f32;
        "s_add_f16" float::v_add_f16;
        "s_sub_f16" float::v_sub_f16;
        "s_mul_f16" float::v_mul_f16;
        "s_fmac_f16" float::v_fmac_f16;
        "s_min_num_f16" float::v_min_num_f16;
        "s_max_num_f16" float::v_max_num_f16;
        "s_minimum_f16" float::v_minimum_f16;
        "s_maximum_f16" float::v_maximum_f16;
        "s_ceil_f16" float::v_ceil_f16;
        "s_floor_f16" float::v_floor_f16;
        "s_trunc_f16" float::v_trunc_f16;
        "s_rndne_f16" float::v_rndne_f16;
        "s_cvt_f32_i32" convert::v_cvt_f32_i32;
        "s_cvt_f32_u32" convert::v_cvt_f32_u32;
        "s_cvt_i32_f32" convert::v_cvt_i32_f32;
        "s_cvt_u32_f32" convert::v_cvt_u32_f32;
        "s_cvt_f16_f32" convert::v_cvt_f16_f32;
        "s_cvt_f32_f16" convert::v_cvt_f32_f16;
        "s_cvt_pk_rtz_f16_f32" convert::v_cvt_pkrtz_f16_f32;
    };
    let compared = || {
        table! { compare:
            "s_cmp_lt_f32" plain::v_cmp_lt_f32;
            "s_cmp_eq_f32" plain::v_cmp_eq_f32;
            "s_cmp_le_f32" plain::v_cmp_le_f32;
            "s_cmp_gt_f32" plain::v_cmp_gt_f32;
            "s_cmp_lg_f32" plain::v_cmp_lg_f32;
            "s_cmp_ge_f32" plain::v_cmp_ge_f32;
            "s_cmp_o_f32" plain::v_cmp_o_f32;
            "s_cmp_u_f32" plain::v_cmp_u_f32;
            "s_cmp_nge_f32" plain::v_cmp_nge_f32;
            "s_cmp_nlg_f32" plain::v_cmp_nlg_f32;
            "s_cmp_ngt_f32" plain::v_cmp_ngt_f32;
            "s_cmp_nle_f32" plain::v_cmp_nle_f32;
            "s_cmp_neq_f32" plain::v_cmp_neq_f32;
            "s_cmp_nlt_f32" plain::v_cmp_nlt_f32;
            "s_cmp_lt_f16" plain::v_cmp_lt_f16;
            "s_cmp_eq_f16" plain::v_cmp_eq_f16;
            "s_cmp_le_f16" plain::v_cmp_le_f16;
            "s_cmp_gt_f16" plain::v_cmp_gt_f16;
            "s_cmp_lg_f16" plain::v_cmp_lg_f16;
            "s_cmp_ge_f16" plain::v_cmp_ge_f16;
            "s_cmp_o_f16" plain::v_cmp_o_f16;
            "s_cmp_u_f16" plain::v_cmp_u_f16;
            "s_cmp_nge_f16" plain::v_cmp_nge_f16;
            "s_cmp_nlg_f16" plain::v_cmp_nlg_f16;
            "s_cmp_ngt_f16" plain::v_cmp_ngt_f16;
            "s_cmp_nle_f16" plain::v_cmp_nle_f16;
            "s_cmp_neq_f16" plain::v_cmp_neq_f16;
            "s_cmp_nlt_f16" plain::v_cmp_nlt_f16;
        }
    };
    found.or_else(compared).or((name == "s_cvt_hi_f32_f16").then_some(cvt_hi_f32_f16))
}
