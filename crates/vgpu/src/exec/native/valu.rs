//! Vector ALU instructions in terms of the CPU's.
//!
//! Each function generates what the interpreter's function of the same name computes, bit for bit, in the default `MODE`.

use super::operands::has_half_result;
use super::vector::{Run, Width};
use super::{bytes, division, double, float, integer};
use crate::arch::WaveSize;
use crate::exec::decoded::{SourceKind, Step};
use crate::exec::ops::cross_lane::dpp_source;
use crate::exec::wave::LANES;
use crate::isa::{Extension, Field, Format, operand};

/// Generates an instruction.
pub type Emit = fn(&mut Run<'_>, &Step);

/// The kind of sources and result of an instruction.
#[derive(Clone, Copy, PartialEq)]
pub enum Values {
    /// 32-bit integers or bits: no modifiers.
    Bits,
    /// 32-bit integers, whose neg says that a source is signed.
    Typed,
    /// f32: neg, abs and clamp apply.
    Float,
    /// f16: neg and abs apply.
    Half,
    /// Pairs of f32: every modifier applies to each of them.
    Packed,
    /// f64: neg and abs apply.
    Double,
    /// 64-bit integers: no modifiers.
    Wide,
}

macro_rules! emitters {
    ($($name:literal: $values:ident, |$run:ident, $s:ident| $body:expr;)*) => {
        /// Returns the code generator of an instruction by name.
        pub fn by_name(name: &str) -> Option<(Values, Emit)> {
            Some(match name {
                $($name => {
                    fn emit($run: &mut Run<'_>, $s: &Step) { $body }
                    (Values::$values, emit as Emit)
                })*
                _ => return None,
            })
        }
    };
}
pub(super) use emitters;

/// Instructions that need AVX-512.
const NEED_AVX512: [&str; 16] = [
    "v_ashrrev_i64",
    "v_cvt_f64_u32",
    "v_cvt_u32_f64",
    "v_div_fixup_f32",
    "v_div_fmas_f32",
    "v_div_scale_f32",
    "v_ffbh_i32",
    "v_ffbh_u32",
    "v_ffbl_b32",
    "v_frexp_exp_i32_f32",
    "v_frexp_mant_f32",
    "v_ldexp_f32",
    "v_ldexp_f64",
    "v_max_f64",
    "v_min_f64",
    "v_rsq_f32",
];

/// Returns the code generator of a vector instruction; `None` if the interpreter's function has to be called.
pub fn find(s: &Step, width: Width, wave_size: WaveSize) -> Option<Emit> {
    let inst = &s.inst;
    if !inst.desc.format.is_valu() || inst.omod != 0 {
        return None;
    }
    let name = inst.desc.semantics;
    if width == Width::W256 && NEED_AVX512.contains(&name) {
        return None;
    }
    let found = integer::find(name).or_else(|| bytes::by_name(name)).or_else(|| float::find(name)).or_else(|| double::by_name(name));
    let (values, emit) = found.or_else(|| division::by_name(name))?;
    if name.starts_with("v_mbcnt") && !integer::counts_all_lanes(s) || name.starts_with("v_cmp_class") && !integer::has_constant_classes(s)
    {
        return None;
    }
    let modifiers = match values {
        Values::Bits | Values::Wide => inst.abs == 0 && inst.neg == 0 && !inst.clamp,
        Values::Typed => inst.abs == 0 && !inst.clamp,
        Values::Float | Values::Packed => true,
        Values::Double | Values::Half => !inst.clamp,
    };
    // Some results are 64 bits wide, or their sources.
    let narrow = !name.contains("f64") && matches!(values, Values::Bits | Values::Float | Values::Half) && !has_carry_out(name);
    let extension = match inst.ext {
        Extension::None => true,
        Extension::Sdwa(_) => narrow && !(s.keep_high && has_half_result(name)),
        Extension::Dpp(dpp) => narrow && inst.dst >= operand::VGPR && !dpp.fetch_inactive && stays_in_slice(dpp.ctrl, width),
        _ => false,
    };
    let modifiers = modifiers && (inst.op_sel == 0 || values == Values::Packed);
    // The interpreter ignores the clamp of `v_cndmask`, and the result of the conversion is f16.
    let modifiers = modifiers && !(inst.clamp && matches!(name, "v_cndmask_b32" | "v_cvt_f16_f32" | "v_fma_mixlo_f16" | "v_fma_mixhi_f16"));
    let scalars = (0..3).all(|n| s.kind[n] != SourceKind::Scalar || inst.src[n] + 1 < operand::EXEC || inst.src[n] == operand::EXEC);
    // Masks are in adjacent registers; those that go to EXEC change it. Even pairs are equal, or do not overlap.
    let is_mask = |number: u16| match wave_size {
        WaveSize::Wave32 => number < operand::NULL,
        WaveSize::Wave64 => number.is_multiple_of(2) && number < operand::M0,
    };
    let takes_mask = |number: u16| is_mask(number) || number == operand::NULL;
    let masks = (!has_carry_out(name) || takes_mask(inst.sdst))
        && (!has_mask_source(name) || is_mask(inst.src[2]) || inst.src[2] == operand::EXEC)
        && (inst.dst >= operand::VGPR || takes_mask(inst.dst));
    // A slice must not overwrite what the next one reads.
    let (read, _, written) = scalar_use(s, wave_size);
    (modifiers && extension && scalars && masks && read & written == 0).then_some(emit)
}

/// Returns whether a DPP control reads lanes of the same slice only, in the same way in every slice.
fn stays_in_slice(ctrl: u16, width: Width) -> bool {
    let lanes = width.lanes() as usize;
    (0..LANES).all(|lane| {
        let first = lane / lanes * lanes;
        let expected = dpp_source(ctrl, lane % lanes).map(|from| first + from);
        let from = dpp_source(ctrl, lane);
        from == expected && from.is_none_or(|from| (first..first + lanes).contains(&from))
    })
}

/// Returns whether the third source is a lane mask.
fn has_mask_source(name: &str) -> bool {
    matches!(name, "v_cndmask_b32" | "v_addc_co_u32" | "v_subb_co_u32" | "v_subbrev_co_u32")
}

/// Returns whether there is a lane mask besides the result.
fn has_carry_out(name: &str) -> bool {
    name.contains("_co_") || matches!(name, "v_mad_u64_u32" | "v_div_scale_f32")
}

/// Returns the scalar registers that an instruction reads as values, those it reads as masks, and those it writes as masks.
pub fn scalar_use(s: &Step, wave_size: WaveSize) -> (u128, u128, u128) {
    let bits = |number: u16, registers: u8| if number < 128 && number != operand::NULL { (1 << registers) - 1 << number } else { 0u128 };
    let mask = |number: u16| bits(number, wave_size.mask_registers());
    let name = s.inst.desc.semantics;
    let (mut values, mut masks, mut written) = (0, 0, 0);
    if name == "v_div_fmas_f32" {
        masks |= mask(operand::VCC);
    }
    for n in 0..3 {
        // The third source may be implicit.
        let implicit = n == 2 && matches!(s.inst.desc.format, Format::VOP2 | Format::VOPDX | Format::VOPDY);
        let used = s.inst.desc.registers(Field::Src(n as u8)) > 0 || implicit;
        if s.kind[n] == SourceKind::Scalar && used {
            if n == 2 && has_mask_source(name) {
                masks |= mask(s.inst.src[n]);
            } else {
                values |= bits(s.inst.src[n], 2);
            }
        }
    }
    if s.inst.dst < operand::VGPR {
        written |= mask(s.inst.dst);
    }
    if has_carry_out(name) {
        written |= mask(s.inst.sdst);
    }
    (values, masks, written)
}
