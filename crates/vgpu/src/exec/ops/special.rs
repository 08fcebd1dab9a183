//! Vector instructions with carries, lane masks or several results: add with carry, select, division steps.

use super::convert::{E4M3, E5M2, f32_to_ocp, ocp_to_f32, stochastic8};
use super::{Semantics, lane_op, single};
use crate::exec::decoded::{OperandType, Step};
use crate::exec::float::{DOUBLE, F16, SINGLE, bf16_to_f32, f32_to_bf16, frexp_exponent, fused_scaled, ldexp64};
use crate::exec::simd::simd_variants;
use crate::exec::valu::{LaneType, Op, apply_output_modifiers, modified_source, pack_mask, source, source64, store_modified};
use crate::exec::wave::{LANES, Lanes, Lanes64, Wave};
use crate::exec::{Env, Outcome};
use crate::isa::Extension;

/// Addition or subtraction with a carry out.
pub trait Carry: 'static {
    /// Whether there is a carry in.
    const IN: bool;
    /// Computes the result and the carry.
    fn f(a: u32, b: u32, carry: u32) -> (u32, bool);
}

simd_variants!(carrying, carry, Carry);

#[inline(always)]
fn carry<O: Carry>(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    let carried = if O::IN { w.lane_mask(s.inst.src[2]) } else { 0 };
    let (mut a, mut b) = (Lanes([0; LANES]), Lanes([0; LANES]));
    if !s.plain {
        a = modified_source::<u32>(w, s, 0);
        b = modified_source::<u32>(w, s, 1);
    } else {
        a = *source(w, s, 0, &mut a);
        b = *source(w, s, 1, &mut b);
    }
    let mut out = Lanes([0; LANES]);
    let mut carries = [0u8; LANES];
    for lane in 0..LANES {
        let (value, carry) = O::f(a.0[lane], b.0[lane], (carried >> lane & 1) as u32);
        out.0[lane] = value;
        carries[lane] = u8::from(carry);
    }
    if s.inst.clamp {
        saturate(&mut out, &carries, s);
    }
    let carries = pack_mask(&carries) & w.exec;
    match s.inst.ext {
        Extension::None => w.write_vgpr(s.inst.dst, &out),
        _ => store_modified::<u32>(w, s, &out, false),
    }
    w.set_lane_mask(s.inst.sdst, carries);
    Outcome::Continue
}

/// Clamps: a carry gives the largest value after an addition, 0 after a subtraction.
fn saturate(out: &mut Lanes, carries: &[u8; LANES], s: &Step) {
    let limit = if s.inst.desc.semantics.starts_with("v_add") { u32::MAX } else { 0 };
    for lane in 0..LANES {
        if carries[lane] != 0 {
            out.0[lane] = limit;
        }
    }
}

macro_rules! carries {
    ($($name:ident, $in:literal, |$a:ident, $b:ident, $c:ident| $body:expr;)*) => {
        $(
            #[allow(non_camel_case_types)]
            struct $name;
            impl Carry for $name {
                const IN: bool = $in;
                #[inline(always)]
                #[allow(unused_variables)]
                fn f($a: u32, $b: u32, $c: u32) -> (u32, bool) { $body }
            }
        )*
        fn find_carry(name: &str) -> Option<Semantics> {
            let variants = match name {
                $( stringify!($name) => carrying::<$name>(), )*
                _ => return None,
            };
            Some(Semantics { variants, types: [OperandType::B32; 3], accumulate: false })
        }
    };
}

#[inline(always)]
fn add_with(a: u32, b: u32, carry: u32) -> (u32, bool) {
    let sum = u64::from(a) + u64::from(b) + u64::from(carry);
    (sum as u32, sum >> 32 != 0)
}

#[inline(always)]
fn sub_with(a: u32, b: u32, borrow: u32) -> (u32, bool) {
    (a.wrapping_sub(b).wrapping_sub(borrow), u64::from(a) < u64::from(b) + u64::from(borrow))
}

carries! {
    v_add_co_u32, false, |a, b, c| a.overflowing_add(b);
    v_sub_co_u32, false, |a, b, c| a.overflowing_sub(b);
    v_subrev_co_u32, false, |a, b, c| b.overflowing_sub(a);
    v_addc_co_u32, true, |a, b, c| add_with(a, b, c);
    v_subb_co_u32, true, |a, b, c| sub_with(a, b, c);
    v_subbrev_co_u32, true, |a, b, c| sub_with(b, a, c);
}

/// Bound of [`simd_variants!`] for handlers without a type parameter.
pub trait Any: 'static {}
struct One;
impl Any for One {}

simd_variants!(selecting, select_lanes, Any);

#[inline(always)]
fn select_lanes<O: Any>(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    let chosen = w.lane_mask(s.inst.src[2]);
    let (mut a, mut b) = (Lanes([0; LANES]), Lanes([0; LANES]));
    if !s.plain {
        // neg and abs act on the values as if they were floats.
        a = modified_source::<f32>(w, s, 0);
        b = modified_source::<f32>(w, s, 1);
    } else {
        a = *source(w, s, 0, &mut a);
        b = *source(w, s, 1, &mut b);
    }
    let mut out = Lanes([0; LANES]);
    for lane in 0..LANES {
        out.0[lane] = if chosen >> lane & 1 != 0 { b.0[lane] } else { a.0[lane] };
    }
    match s.inst.ext {
        Extension::None => w.write_vgpr(s.inst.dst, &out),
        _ => store_modified::<u32>(w, s, &out, false),
    }
    Outcome::Continue
}

/// `v_cndmask_b16`.
fn select_halves(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    let chosen = w.lane_mask(s.inst.src[2]);
    let (a, b) = (modified_source::<F16>(w, s, 0), modified_source::<F16>(w, s, 1));
    let out = Lanes(std::array::from_fn(|lane| if chosen >> lane & 1 != 0 { b.0[lane] } else { a.0[lane] }));
    store_modified::<F16>(w, s, &out, s.keep_high);
    Outcome::Continue
}

/// `v_dot2_f16_f16` and `v_dot2_bf16_bf16`: `op_sel` selects the halves of the addend and the result. The products are exact; the sums
/// round once.
fn dot2_to_half(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    let brain = s.inst.desc.semantics == "v_dot2_bf16_bf16";
    let (mut a, mut b) = (Lanes([0; LANES]), Lanes([0; LANES]));
    let (a, b) = (*source(w, s, 0, &mut a), *source(w, s, 1, &mut b));
    let c = modified_source::<F16>(w, s, 2);
    let wide = |bits: u16| f64::from(if brain { bf16_to_f32(bits) } else { F16(bits).to_f32() });
    let halves = |n: usize, value: u32| {
        let signed = |half: u32| {
            let absolute = if s.inst.abs >> n & 1 != 0 { half & 0x7fff } else { half };
            wide((absolute ^ u32::from(s.inst.neg >> n & 1) << 15) as u16)
        };
        (signed(value & 0xffff), signed(value >> 16))
    };
    let out = Lanes(std::array::from_fn(|lane| {
        let ((a0, a1), (b0, b1)) = (halves(0, a.0[lane]), halves(1, b.0[lane]));
        let sum = a0 * b0 + a1 * b1 + wide(c.0[lane] as u16);
        let half = if brain { f32_to_bf16(sum as f32) } else { F16::from_f64(sum).0 };
        apply_output_modifiers(half.into(), if brain { 0 } else { 16 }, w, s) as u32
    }));
    store_modified::<F16>(w, s, &out, s.keep_high);
    Outcome::Continue
}

/// `v_s_*` (gfx12): an operation on a scalar, with a scalar result.
fn scalar_result<O: Op>(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    let a = modified_source::<O::A>(w, s, 0);
    let (b, c) = (O::B::ZERO, O::C::ZERO);
    let mut out = O::D::ZERO;
    O::D::set(&mut out, 0, O::f(O::A::get(&a, 0), O::B::get(&b, 0), O::C::get(&c, 0)));
    let bits = apply_output_modifiers(O::D::bits(&out, 0), O::D::FLOAT, w, s);
    w.set_scalar(s.inst.dst, bits as u32);
    Outcome::Continue
}

/// Returns the semantics of a `v_s_*` instruction.
fn find_scalar_result(name: &str) -> Option<Semantics> {
    use super::float;
    fn of<O: Op>() -> Semantics {
        single(scalar_result::<O>, [O::A::TYPE; 3])
    }
    Some(match name {
        "v_s_exp_f32" => of::<float::v_exp_f32>(),
        "v_s_log_f32" => of::<float::v_log_f32>(),
        "v_s_rcp_f32" => of::<float::v_rcp_f32>(),
        "v_s_rsq_f32" => of::<float::v_rsq_f32>(),
        "v_s_sqrt_f32" => of::<float::v_sqrt_f32>(),
        "v_s_exp_f16" => of::<float::v_exp_f16>(),
        "v_s_log_f16" => of::<float::v_log_f16>(),
        "v_s_rcp_f16" => of::<float::v_rcp_f16>(),
        "v_s_rsq_f16" => of::<float::v_rsq_f16>(),
        "v_s_sqrt_f16" => of::<float::v_sqrt_f16>(),
        _ => return None,
    })
}

/// `v_cvt_f32_fp8` and `v_cvt_f32_bf8` of gfx12: `op_sel` selects the byte, its bits exchanged.
fn from_byte(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    let mut buffer = Lanes([0; LANES]);
    let values = *source(w, s, 0, &mut buffer);
    let format = if s.inst.desc.semantics == "v_cvt_f32_ocp_fp8" { E4M3 } else { E5M2 };
    let byte = (s.inst.op_sel & 1) << 1 | s.inst.op_sel >> 1 & 1;
    let out = Lanes(values.0.map(|value| {
        let bits = ocp_to_f32((value >> (8 * byte)) as u8, format).to_bits();
        apply_output_modifiers(bits.into(), 32, w, s) as u32
    }));
    w.write_vgpr(s.inst.dst, &out);
    Outcome::Continue
}

/// `v_mad_u64_u32`: a 32×32-bit product added to 64 bits, with carry.
fn mad_u64_u32(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    let (mut a, mut b, mut c) = (Lanes([0; LANES]), Lanes([0; LANES]), Lanes64([0; LANES]));
    a = *source(w, s, 0, &mut a);
    b = *source(w, s, 1, &mut b);
    c = *source64(w, s, 2, &mut c);
    let mut carries = 0;
    for lane in 0..LANES {
        let (sum, carry) = (u64::from(a.0[lane]) * u64::from(b.0[lane])).overflowing_add(c.0[lane]);
        c.0[lane] = if carry && s.inst.clamp { u64::MAX } else { sum };
        carries |= u64::from(carry) << lane;
    }
    w.write_vgpr_pair(s.inst.dst, &c);
    w.set_lane_mask(s.inst.sdst, carries & w.exec);
    Outcome::Continue
}

/// `v_mad_i64_i32`.
fn mad_i64_i32(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    let (mut a, mut b, mut c) = (Lanes([0; LANES]), Lanes([0; LANES]), Lanes64([0; LANES]));
    a = *source(w, s, 0, &mut a);
    b = *source(w, s, 1, &mut b);
    c = *source64(w, s, 2, &mut c);
    let mut carries = 0;
    for lane in 0..LANES {
        let product = i64::from(a.0[lane] as i32) * i64::from(b.0[lane] as i32);
        let sum = i128::from(product) + i128::from(c.0[lane] as i64);
        c.0[lane] = if s.inst.clamp { sum.clamp(i64::MIN.into(), i64::MAX.into()) } else { sum } as u64;
        // The carry is the 65th bit of the sum: its sign.
        carries |= u64::from(sum < 0) << lane;
    }
    w.write_vgpr_pair(s.inst.dst, &c);
    w.set_lane_mask(s.inst.sdst, carries & w.exec);
    Outcome::Continue
}

/// `v_mqsad_u32_u8`: four sums of absolute differences into four registers.
fn mqsad_u32_u8(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    let (mut a, mut b) = (Lanes64([0; LANES]), Lanes([0; LANES]));
    a = *source64(w, s, 0, &mut a);
    b = *source(w, s, 1, &mut b);
    for n in 0..4u16 {
        let mut sums = *w.vgpr(s.inst.src[2] + n);
        for lane in 0..LANES {
            let (x, y) = ((a.0[lane] >> (8 * n)) as u32, b.0[lane]);
            for k in 0..4 {
                let (p, q) = (x >> (8 * k) & 0xff, y >> (8 * k) & 0xff);
                sums.0[lane] = sums.0[lane].wrapping_add(if q == 0 { 0 } else { p.abs_diff(q) });
            }
        }
        w.write_vgpr(s.inst.dst + n, &sums);
    }
    Outcome::Continue
}

/// Constants of `v_div_scale`, which scales operands so that the steps that follow neither overflow nor lose bits.
struct Scaling {
    /// Base-2 logarithm of the scale.
    step: i32,
    /// Exponent difference at which the quotient may overflow.
    far: i32,
    /// Biased numerator exponent up to which the steps may lose bits.
    least: i32,
}

const SCALE32: Scaling = Scaling { step: 64, far: 96, least: 23 };
const SCALE64: Scaling = Scaling { step: 128, far: 768, least: 53 };

/// Returns the power of two that this operand is scaled by, and whether `v_div_fmas` must undo it.
///
/// AMD's pseudocode scales the denominator up where both the quotient and the reciprocal are denormal. That would overflow; only scaling
/// down gives the correctly rounded quotient.
fn division_scale(denominator: f64, numerator: f64, of_denominator: bool, min_exponent: i32, rule: &Scaling) -> (i32, bool) {
    if denominator == 0.0 || numerator == 0.0 {
        // Hardware sets the flag here, which AMD's pseudocode does not; `v_div_fixup` replaces the result in any case.
        return (0, true);
    }
    if !denominator.is_finite() || !numerator.is_finite() {
        return (0, false);
    }
    // Biased exponents, as hardware compares them; denormals have 0.
    let biased = |x: f64| (frexp_exponent(x) - min_exponent).max(0);
    let denormal = |x: f64| frexp_exponent(x) - 1 < min_exponent;
    let tiny_reciprocal = denormal(1.0 / denominator);
    // By the exponents alone: hardware was seen to treat 2^-126 / 1 so, which a larger denominator of that exponent makes denormal.
    let tiny_quotient = frexp_exponent(numerator) - frexp_exponent(denominator) <= min_exponent;
    if biased(numerator) - biased(denominator) >= rule.far {
        (if of_denominator { rule.step } else { 0 }, true)
    } else if denormal(denominator) {
        (rule.step, false)
    } else if tiny_reciprocal && tiny_quotient {
        (if of_denominator { -rule.step } else { 0 }, true)
    } else if tiny_reciprocal {
        (-rule.step, false)
    } else if tiny_quotient {
        (if of_denominator { 0 } else { rule.step }, true)
    } else if biased(numerator) <= rule.least {
        (rule.step, false)
    } else {
        (0, false)
    }
}

/// `v_div_scale_f32`.
fn div_scale_f32(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    let (a, b, c) = (modified_source::<f32>(w, s, 0), modified_source::<f32>(w, s, 1), modified_source::<f32>(w, s, 2));
    let mut out = Lanes([0; LANES]);
    let mut flags = 0;
    for lane in 0..LANES {
        let [value, d, n] = [a, b, c].map(|x| f32::from_bits(x.0[lane]));
        let (scale, flag) = division_scale(f64::from(d), f64::from(n), value == d, -126, &SCALE32);
        let scaled = if d == 0.0 || n == 0.0 { f32::NAN } else { ldexp64(f64::from(value), scale) as f32 };
        out.0[lane] = scaled.to_bits();
        flags |= u64::from(flag) << lane;
    }
    w.write_vgpr(s.inst.dst, &out);
    w.set_lane_mask(s.inst.sdst, flags & w.exec);
    Outcome::Continue
}

/// `v_div_scale_f64`.
fn div_scale_f64(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    let (a, b, c) = (modified_source::<f64>(w, s, 0), modified_source::<f64>(w, s, 1), modified_source::<f64>(w, s, 2));
    let mut out = Lanes64([0; LANES]);
    let mut flags = 0;
    for lane in 0..LANES {
        let [value, d, n] = [a, b, c].map(|x| f64::from_bits(x.0[lane]));
        let (scale, flag) = division_scale(d, n, value == d, -1022, &SCALE64);
        let scaled = if d == 0.0 || n == 0.0 { f64::NAN } else { ldexp64(value, scale) };
        out.0[lane] = scaled.to_bits();
        flags |= u64::from(flag) << lane;
    }
    w.write_vgpr_pair(s.inst.dst, &out);
    w.set_lane_mask(s.inst.sdst, flags & w.exec);
    Outcome::Continue
}

/// `v_div_fmas_f32`: a fused multiply-add, scaled in the lanes that VCC selects.
fn div_fmas_f32(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    let (a, b, c) = (modified_source::<f32>(w, s, 0), modified_source::<f32>(w, s, 1), modified_source::<f32>(w, s, 2));
    let scaled = w.vcc();
    let mut out = Lanes([0; LANES]);
    for lane in 0..LANES {
        let [x, y, z] = [a, b, c].map(|v| f32::from_bits(v.0[lane]));
        let scale = match scaled >> lane & 1 {
            0 => 0,
            _ if z.abs() >= 2.0 => 64,
            _ => -64,
        };
        out.0[lane] = match (scale, w.mode.round32()) {
            (0, 0) => x.mul_add(y, z).to_bits(),
            (_, mode) => fused_scaled([x.into(), y.into(), z.into()], scale, SINGLE, mode) as u32,
        };
    }
    w.write_vgpr(s.inst.dst, &out);
    Outcome::Continue
}

/// `v_div_fmas_f64`.
fn div_fmas_f64(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    let (a, b, c) = (modified_source::<f64>(w, s, 0), modified_source::<f64>(w, s, 1), modified_source::<f64>(w, s, 2));
    let scaled = w.vcc();
    let mut out = Lanes64([0; LANES]);
    for lane in 0..LANES {
        let [x, y, z] = [a, b, c].map(|v| f64::from_bits(v.0[lane]));
        let scale = match scaled >> lane & 1 {
            0 => 0,
            _ if z.abs() >= 2.0 => 128,
            _ => -128,
        };
        out.0[lane] = match (scale, w.mode.round64()) {
            (0, 0) => x.mul_add(y, z).to_bits(),
            (_, mode) => fused_scaled([x, y, z], scale, DOUBLE, mode),
        };
    }
    w.write_vgpr_pair(s.inst.dst, &out);
    Outcome::Continue
}

/// `v_mbcnt_lo_u32_b32`: counts the mask's bits below the lane, accumulated.
fn mbcnt_lo(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    count_below(w, s, |lane| if lane >= 32 { u32::MAX } else { (1u32 << lane) - 1 })
}

fn mbcnt_hi(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    count_below(w, s, |lane| if lane < 32 { 0 } else { (1u32 << (lane - 32)) - 1 })
}

fn count_below(w: &mut Wave, s: &Step, below: impl Fn(usize) -> u32) -> Outcome {
    let (mut a, mut b) = (Lanes([0; LANES]), Lanes([0; LANES]));
    a = *source(w, s, 0, &mut a);
    b = *source(w, s, 1, &mut b);
    for lane in 0..LANES {
        b.0[lane] = b.0[lane].wrapping_add((a.0[lane] & below(lane)).count_ones());
    }
    w.write_vgpr(s.inst.dst, &b);
    Outcome::Continue
}

/// `v_cvt_sr_fp8_f32` and `v_cvt_sr_bf8_f32`: write one byte of the destination.
fn stochastic(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    let a = {
        // `op_sel` selects the byte here, not a half of the sources.
        let mut plain = s.clone();
        plain.inst.op_sel = 0;
        modified_source::<f32>(w, &plain, 0)
    };
    let mut noise = Lanes([0; LANES]);
    noise = *source(w, s, 1, &mut noise);
    let shift = 8 * u32::from(s.inst.op_sel >> 2 & 3);
    let mut out = *w.vgpr(s.inst.dst);
    for lane in 0..LANES {
        let value = f32::from_bits(a.0[lane]);
        let byte = match s.inst.desc.semantics {
            "v_cvt_sr_ocp_fp8_f32" => f32_to_ocp(value, E4M3, Some(noise.0[lane])),
            "v_cvt_sr_ocp_bf8_f32" => f32_to_ocp(value, E5M2, Some(noise.0[lane])),
            name => stochastic8(value, noise.0[lane], name == "v_cvt_sr_bf8_f32"),
        };
        out.0[lane] = out.0[lane] & !(0xff << shift) | u32::from(byte) << shift;
    }
    w.write_vgpr(s.inst.dst, &out);
    Outcome::Continue
}

fn nop(_: &mut Wave, _: &Step, _: &mut Env) -> Outcome {
    Outcome::Continue
}

/// Returns the semantics of the instruction called `name`.
pub fn find(name: &str) -> Option<Semantics> {
    if let Some(entry) = find_carry(name).or_else(|| find_scalar_result(name)) {
        return Some(entry);
    }
    let (f32s, f64s) = ([OperandType::B32; 3], [OperandType::F64; 3]);
    Some(match name {
        "v_cndmask_b32" => Semantics { variants: selecting::<One>(), types: f32s, accumulate: false },
        "v_mad_u64_u32" => single(mad_u64_u32, [OperandType::B32, OperandType::B32, OperandType::B64]),
        "v_mad_i64_i32" => single(mad_i64_i32, [OperandType::B32, OperandType::B32, OperandType::B64]),
        "v_mqsad_u32_u8" => single(mqsad_u32_u8, [OperandType::B64, OperandType::B32, OperandType::B32]),
        "v_div_scale_f32" => single(div_scale_f32, f32s),
        "v_div_scale_f64" => single(div_scale_f64, f64s),
        "v_div_fmas_f32" => single(div_fmas_f32, f32s),
        "v_div_fmas_f64" => single(div_fmas_f64, f64s),
        "v_mbcnt_lo_u32_b32" => single(mbcnt_lo, f32s),
        "v_mbcnt_hi_u32_b32" => single(mbcnt_hi, f32s),
        "v_cvt_sr_fp8_f32" | "v_cvt_sr_bf8_f32" | "v_cvt_sr_ocp_fp8_f32" | "v_cvt_sr_ocp_bf8_f32" => single(stochastic, f32s),
        "v_cvt_f32_ocp_fp8" | "v_cvt_f32_ocp_bf8" => single(from_byte, f32s),
        "v_cndmask_b16" => single(select_halves, [OperandType::B16, OperandType::B16, OperandType::B32]),
        "v_dot2_f16_f16" | "v_dot2_bf16_bf16" => single(dot2_to_half, [OperandType::B16; 3]),
        "v_madmk_f32" | "v_madak_f32" => lane_op::<super::float::v_mad_f32>(),
        "v_fmamk_f32" | "v_fmaak_f32" => lane_op::<super::float::v_fma_f32>(),
        "v_madmk_f16" | "v_madak_f16" => lane_op::<super::float::v_mad_legacy_f16>(),
        "v_pk_fmac_f16" => Semantics { accumulate: true, ..super::packed::find("v_pk_fma_f16")? },
        "v_nop" | "v_clrexcp" => single(nop, f32s),
        _ => return None,
    })
}
