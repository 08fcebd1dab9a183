//! How vector arithmetic reads its sources, applies modifiers, and writes its results.
//!
//! An operation is a function of one lane's values ([`Op`]); everything around it is here, once. The plain path is
//! compiled for each level of the CPU's vector instructions; the path with modifiers is compiled once.

use super::code::{From, Step, Type};
use super::float::{F16, flush32, flush64, quiet16, quiet32, quiet64};
use super::level::leveled;
use super::wave::{LANES, Lanes, Wave, Wide};
use super::{Env, Flow};
use crate::isa::{Sdwa, Via};

/// A lane's operand type.
pub trait Ty: Copy + 'static {
    /// All lanes' raw bits.
    type Raw: Copy;
    /// How constants are read.
    const TYPE: Type;
    /// Float, and how many bits: sign handling, denormals, clamping. 0 for integers.
    const FLOAT: u32 = 0;
    /// Raw zeros.
    const ZERO: Self::Raw;
    /// The raw bits of a source.
    fn fetch<'a>(w: &'a Wave, s: &Step, n: usize, buffer: &'a mut Self::Raw) -> &'a Self::Raw;
    /// A lane's value.
    fn get(raw: &Self::Raw, lane: usize) -> Self;
    /// Sets a lane's value.
    fn set(raw: &mut Self::Raw, lane: usize, value: Self);
    /// Writes the active lanes of a destination.
    fn store(w: &mut Wave, number: u16, raw: &Self::Raw);
    /// A lane's bits.
    fn bits(raw: &Self::Raw, lane: usize) -> u64;
    /// Sets a lane's bits.
    fn set_bits(raw: &mut Self::Raw, lane: usize, bits: u64);
}

/// No operand.
#[derive(Clone, Copy)]
pub struct No;

impl Ty for No {
    type Raw = ();
    const TYPE: Type = Type::B32;
    const ZERO: () = ();
    #[inline(always)]
    fn fetch<'a>(_: &'a Wave, _: &Step, _: usize, buffer: &'a mut ()) -> &'a () {
        buffer
    }
    #[inline(always)]
    fn get((): &(), _: usize) -> No {
        No
    }
    #[inline(always)]
    fn set((): &mut (), _: usize, _: No) {}
    fn store(_: &mut Wave, _: u16, (): &()) {}
    fn bits((): &(), _: usize) -> u64 {
        0
    }
    fn set_bits((): &mut (), _: usize, _: u64) {}
}

/// All lanes of a 32-bit source.
#[inline(always)]
pub fn source<'a>(w: &'a Wave, s: &Step, n: usize, buffer: &'a mut Lanes) -> &'a Lanes {
    if s.from[n] == From::Vector {
        return w.reg(s.inst.src[n]);
    }
    let value = if s.from[n] == From::Constant { s.constant[n] as u32 } else { w.scalar(s.inst.src[n]) };
    *buffer = Lanes([value; LANES]);
    buffer
}

/// All lanes of a 64-bit source.
#[inline(always)]
pub fn source_wide<'a>(w: &'a Wave, s: &Step, n: usize, buffer: &'a mut Wide) -> &'a Wide {
    let number = s.inst.src[n];
    if s.from[n] == From::Vector {
        let (low, high) = (w.reg(number), w.reg(number + 1));
        for lane in 0..LANES {
            buffer.0[lane] = u64::from(low.0[lane]) | u64::from(high.0[lane]) << 32;
        }
    } else {
        *buffer = Wide([scalar_wide(w, s, n); LANES]);
    }
    buffer
}

/// A 64-bit scalar source.
pub fn scalar_wide(w: &Wave, s: &Step, n: usize) -> u64 {
    match s.from[n] {
        From::Constant => s.constant[n],
        _ => match s.inst.src[n] {
            number @ 235..=238 => super::aperture(number),
            number @ 251..=253 => u64::from(w.scalar(number)),
            number => w.pair(number),
        },
    }
}

macro_rules! ty32 {
    ($($ty:ty, $kind:ident, $float:expr, |$raw:ident| $get:expr, |$value:ident| $set:expr;)*) => {$(
        impl Ty for $ty {
            type Raw = Lanes;
            const TYPE: Type = Type::$kind;
            const FLOAT: u32 = $float;
            const ZERO: Lanes = Lanes([0; LANES]);
            #[inline(always)]
            fn fetch<'a>(w: &'a Wave, s: &Step, n: usize, buffer: &'a mut Lanes) -> &'a Lanes {
                source(w, s, n, buffer)
            }
            #[inline(always)]
            fn get(raw: &Lanes, lane: usize) -> $ty {
                let $raw = raw.0[lane];
                $get
            }
            #[inline(always)]
            fn set(raw: &mut Lanes, lane: usize, $value: $ty) {
                raw.0[lane] = $set;
            }
            #[inline(always)]
            fn store(w: &mut Wave, number: u16, raw: &Lanes) {
                w.write(number, raw);
            }
            fn bits(raw: &Lanes, lane: usize) -> u64 {
                u64::from(raw.0[lane])
            }
            fn set_bits(raw: &mut Lanes, lane: usize, bits: u64) {
                raw.0[lane] = bits as u32;
            }
        }
    )*};
}

ty32! {
    u32, B32, 0, |raw| raw, |value| value;
    i32, B32, 0, |raw| raw as i32, |value| value as u32;
    f32, B32, 32, |raw| f32::from_bits(raw), |value| value.to_bits();
    u16, B16, 0, |raw| raw as u16, |value| u32::from(value);
    i16, B16, 0, |raw| raw as i16, |value| u32::from(value as u16);
    F16, B16, 16, |raw| F16(raw as u16), |value| u32::from(value.0);
}

macro_rules! ty64 {
    ($($ty:ty, $kind:ident, $float:expr, |$raw:ident| $get:expr, |$value:ident| $set:expr;)*) => {$(
        impl Ty for $ty {
            type Raw = Wide;
            const TYPE: Type = Type::$kind;
            const FLOAT: u32 = $float;
            const ZERO: Wide = Wide([0; LANES]);
            #[inline(always)]
            fn fetch<'a>(w: &'a Wave, s: &Step, n: usize, buffer: &'a mut Wide) -> &'a Wide {
                source_wide(w, s, n, buffer)
            }
            #[inline(always)]
            fn get(raw: &Wide, lane: usize) -> $ty {
                let $raw = raw.0[lane];
                $get
            }
            #[inline(always)]
            fn set(raw: &mut Wide, lane: usize, $value: $ty) {
                raw.0[lane] = $set;
            }
            #[inline(always)]
            fn store(w: &mut Wave, number: u16, raw: &Wide) {
                w.write_wide(number, raw);
            }
            fn bits(raw: &Wide, lane: usize) -> u64 {
                raw.0[lane]
            }
            fn set_bits(raw: &mut Wide, lane: usize, bits: u64) {
                raw.0[lane] = bits;
            }
        }
    )*};
}

ty64! {
    u64, B64, 0, |raw| raw, |value| value;
    i64, B64, 0, |raw| raw as i64, |value| value as u64;
    f64, F64, 64, |raw| f64::from_bits(raw), |value| value.to_bits();
}

/// What an instruction computes in one lane.
pub trait Op: 'static {
    /// The first source.
    type A: Ty;
    /// The second.
    type B: Ty;
    /// The third; for `mac` and its like, the destination.
    type C: Ty;
    /// The result.
    type D: Ty;
    /// The third source is the destination's old value.
    const ACCUMULATE: bool = false;
    /// A 16-bit result leaves the register's other half alone.
    const KEEP: bool = false;
    /// The result.
    fn f(a: Self::A, b: Self::B, c: Self::C) -> Self::D;
    /// The result of an integer operation that clamps.
    fn saturated(a: Self::A, b: Self::B, c: Self::C) -> Self::D {
        Self::f(a, b, c)
    }
    /// The result when rounding is not to nearest (`mode` as [`super::float::rounding`] numbers it).
    fn rounded(a: Self::A, b: Self::B, c: Self::C, _mode: u32) -> Self::D {
        Self::f(a, b, c)
    }
}

leveled!(arithmetic, run, Op);

#[inline(always)]
fn run<O: Op>(w: &mut Wave, s: &Step, _: &mut Env) -> Flow {
    if !s.plain || O::KEEP || (!w.mode.usual() && (O::A::FLOAT | O::D::FLOAT) != 0) {
        modified::<O>(w, s);
        return Flow::Next;
    }
    let (mut a, mut b, mut c, mut out) = (O::A::ZERO, O::B::ZERO, O::C::ZERO, O::D::ZERO);
    {
        let a = O::A::fetch(w, s, 0, &mut a);
        let b = O::B::fetch(w, s, 1, &mut b);
        let c = O::C::fetch(w, s, 2, &mut c);
        for lane in 0..LANES {
            O::D::set(&mut out, lane, O::f(O::A::get(a, lane), O::B::get(b, lane), O::C::get(c, lane)));
        }
    }
    O::D::store(w, s.inst.dst, &out);
    Flow::Next
}

/// A source with everything that modifies it applied.
pub fn prepared<T: Ty>(w: &Wave, s: &Step, n: usize) -> (T::Raw, u64) {
    let mut buffer = T::ZERO;
    let mut raw = *T::fetch(w, s, n, &mut buffer);
    let mut valid = u64::MAX;
    match s.inst.via {
        Via::Sdwa(sdwa) if n < 2 => {
            for lane in 0..LANES {
                let selected = select(T::bits(&raw, lane) as u32, sdwa.src_sel[n], sdwa.sext[n]);
                T::set_bits(&mut raw, lane, selected.into());
            }
        }
        Via::Dpp(dpp) if n == 0 => {
            let before = raw;
            for lane in 0..LANES {
                let from = super::ops::cross::dpp_source(dpp.ctrl, lane);
                let read = from.filter(|from| w.exec >> from & 1 != 0);
                match read {
                    Some(from) => T::set_bits(&mut raw, lane, T::bits(&before, from)),
                    None if dpp.bound_ctrl => T::set_bits(&mut raw, lane, 0),
                    None => valid &= !(1 << lane),
                }
            }
        }
        _ => {}
    }
    let inst = &s.inst;
    let high = T::TYPE == Type::B16 && s.inst.via == Via::Plain && inst.op_sel >> n & 1 != 0;
    let (absolute, negative) = (inst.abs >> n & 1 != 0, inst.neg >> n & 1 != 0);
    for lane in 0..LANES {
        let mut bits = T::bits(&raw, lane);
        if high {
            bits >>= 16;
        }
        if T::FLOAT != 0 {
            let sign = 1u64 << (T::FLOAT - 1);
            if absolute {
                bits &= !sign;
            }
            if negative {
                bits ^= sign;
            }
            if !w.mode.usual() {
                bits = enter(bits, T::FLOAT, w);
            }
        }
        T::set_bits(&mut raw, lane, bits);
    }
    (raw, valid)
}

/// Denormals and signalling NaNs of an input, as `MODE` treats them.
pub fn enter(bits: u64, float: u32, w: &Wave) -> u64 {
    match float {
        32 => {
            let bits = if w.mode.flush_in32() { flush32(bits as u32) } else { bits as u32 };
            u64::from(if w.mode.ieee() { bits } else { quiet32(bits) })
        }
        64 => {
            let bits = if w.mode.flush_in64() { flush64(bits) } else { bits };
            if w.mode.ieee() { bits } else { quiet64(bits) }
        }
        _ => {
            let half = bits as u16;
            let denormal = half & 0x7c00 == 0 && w.mode.flush_in64();
            let half = if denormal { half & 0x8000 } else { half };
            u64::from(if w.mode.ieee() { half } else { quiet16(half) }) | bits & 0xffff_0000
        }
    }
}

/// A byte or word of a register, extended.
pub fn select(value: u32, sel: u8, sext: bool) -> u32 {
    match (sel, sext) {
        (0..=3, false) => value >> (8 * sel) & 0xff,
        (0..=3, true) => (value >> (8 * sel)) as u8 as i8 as i32 as u32,
        (4 | 5, false) => value >> (16 * (sel - 4)) & 0xffff,
        (4 | 5, true) => (value >> (16 * (sel - 4))) as u16 as i16 as i32 as u32,
        _ => value,
    }
}

/// The result put into the selected part of the destination.
fn merge(old: u32, value: u32, sdwa: Sdwa) -> u32 {
    let (shift, width) = match sdwa.dst_sel {
        0..=3 => (8 * u32::from(sdwa.dst_sel), 8),
        4 | 5 => (16 * u32::from(sdwa.dst_sel - 4), 16),
        _ => return value,
    };
    let mask = ((1u32 << width) - 1) << shift;
    let placed = value << shift & mask;
    match sdwa.dst_unused {
        0 => placed,
        1 => {
            let sign = 0u32.wrapping_sub(value >> (width - 1) & 1);
            let above = if shift + width == 32 { 0 } else { u32::MAX << (shift + width) };
            placed | sign & above
        }
        _ => old & !mask | placed,
    }
}

/// An operation with modifiers, SDWA, DPP, or an unusual `MODE`.
#[inline(never)]
fn modified<O: Op>(w: &mut Wave, s: &Step) {
    let (a, valid) = prepared::<O::A>(w, s, 0);
    let (b, _) = prepared::<O::B>(w, s, 1);
    let (c, _) = prepared::<O::C>(w, s, 2);
    let rounding = if O::D::FLOAT == 32 { w.mode.round32() } else { w.mode.round64() };
    let mut out = O::D::ZERO;
    for lane in 0..LANES {
        let (a, b, c) = (O::A::get(&a, lane), O::B::get(&b, lane), O::C::get(&c, lane));
        let value = match O::D::FLOAT {
            0 if s.inst.clamp => O::saturated(a, b, c),
            1.. if rounding != 0 => O::rounded(a, b, c, rounding),
            _ => O::f(a, b, c),
        };
        O::D::set(&mut out, lane, value);
        let bits = O::D::bits(&out, lane);
        O::D::set_bits(&mut out, lane, leave(bits, O::D::FLOAT, w, s));
    }
    store_modified::<O::D>(w, s, &out, valid, O::KEEP);
}

/// Output modifier, clamp and denormals of a float result.
pub fn leave(bits: u64, float: u32, w: &Wave, s: &Step) -> u64 {
    let (omod, clamp) = (s.inst.omod, s.inst.clamp);
    match float {
        32 => {
            let mut value = f32::from_bits(bits as u32);
            value *= [1.0, 2.0, 4.0, 0.5][usize::from(omod & 3)];
            if clamp {
                value = if value.is_nan() { if w.mode.dx10_clamp() { 0.0 } else { value } } else { value.clamp(0.0, 1.0) };
            }
            let flush = w.mode.flush_out32() || omod != 0;
            u64::from(if flush { flush32(value.to_bits()) } else { value.to_bits() })
        }
        64 => {
            let mut value = f64::from_bits(bits);
            value *= [1.0, 2.0, 4.0, 0.5][usize::from(omod & 3)];
            if clamp {
                value = if value.is_nan() { if w.mode.dx10_clamp() { 0.0 } else { value } } else { value.clamp(0.0, 1.0) };
            }
            if w.mode.flush_out64() { flush64(value.to_bits()) } else { value.to_bits() }
        }
        16 if omod != 0 || clamp || w.mode.flush_out64() => {
            let mut value = F16(bits as u16).to_f32() * [1.0, 2.0, 4.0, 0.5][usize::from(omod & 3)];
            if clamp {
                value = if value.is_nan() { if w.mode.dx10_clamp() { 0.0 } else { value } } else { value.clamp(0.0, 1.0) };
            }
            let half = F16::from_f32(value).0;
            u64::from(if half & 0x7c00 == 0 && w.mode.flush_out64() { half & 0x8000 } else { half })
        }
        _ => bits,
    }
}

/// Writes a result through SDWA's or DPP's selection, or to a register's half.
pub fn store_modified<D: Ty>(w: &mut Wave, s: &Step, out: &D::Raw, valid: u64, keep: bool) {
    let number = s.inst.dst;
    let written = match s.inst.via {
        Via::Dpp(dpp) => valid & dpp_written(dpp.row_mask, dpp.bank_mask),
        _ => u64::MAX,
    };
    let exec = w.exec;
    w.set_exec(exec & written);
    match s.inst.via {
        // Two registers are written whole: the selection is of 32 bits.
        Via::Sdwa(sdwa) if D::TYPE == Type::B32 || D::TYPE == Type::B16 => {
            let mut merged = *w.reg(number);
            for lane in 0..LANES {
                merged.0[lane] = merge(merged.0[lane], D::bits(out, lane) as u32, sdwa);
            }
            w.write(number, &merged);
        }
        _ if D::TYPE == Type::B16 && (keep || s.inst.op_sel & 8 != 0) => {
            let mut merged = *w.reg(number);
            for lane in 0..LANES {
                let value = D::bits(out, lane) as u32 & 0xffff;
                merged.0[lane] =
                    if s.inst.op_sel & 8 != 0 { merged.0[lane] & 0xffff | value << 16 } else { merged.0[lane] & 0xffff_0000 | value };
            }
            w.write(number, &merged);
        }
        _ => D::store(w, number, out),
    }
    w.set_exec(exec);
}

/// Lanes that DPP's row and bank masks let through.
pub fn dpp_written(row_mask: u8, bank_mask: u8) -> u64 {
    (0..LANES)
        .filter(|lane| row_mask >> (lane / 16) & 1 != 0 && bank_mask >> (lane % 16 / 4) & 1 != 0)
        .fold(0, |mask, lane| mask | 1 << lane)
}

/// A comparison of one lane's values.
pub trait Compare: 'static {
    /// The first source.
    type A: Ty;
    /// The second.
    type B: Ty;
    /// `v_cmpx`: the result becomes `exec` too.
    const EXEC: bool;
    /// The answer.
    fn f(a: Self::A, b: Self::B) -> bool;
}

leveled!(comparison, compare, Compare);

#[inline(always)]
fn compare<O: Compare>(w: &mut Wave, s: &Step, _: &mut Env) -> Flow {
    let mask = if !s.plain || (!w.mode.usual() && O::A::FLOAT != 0) {
        compare_modified::<O>(w, s)
    } else {
        let (mut a, mut b) = (O::A::ZERO, O::B::ZERO);
        let a = O::A::fetch(w, s, 0, &mut a);
        let b = O::B::fetch(w, s, 1, &mut b);
        let mut answers = [0u8; LANES];
        for lane in 0..LANES {
            answers[lane] = u8::from(O::f(O::A::get(a, lane), O::B::get(b, lane)));
        }
        pack(&answers)
    };
    let mask = mask & w.exec;
    w.set_pair(s.inst.dst, mask);
    if O::EXEC {
        w.set_exec(mask);
    }
    Flow::Next
}

#[inline(never)]
fn compare_modified<O: Compare>(w: &Wave, s: &Step) -> u64 {
    let (a, valid) = prepared::<O::A>(w, s, 0);
    let (b, _) = prepared::<O::B>(w, s, 1);
    (0..LANES).filter(|&lane| O::f(O::A::get(&a, lane), O::B::get(&b, lane))).fold(0, |mask, lane| mask | 1 << lane) & valid
}

/// Bytes of 0 and 1 to bits.
#[inline(always)]
pub fn pack(answers: &[u8; LANES]) -> u64 {
    let mut mask = 0u64;
    for (n, chunk) in answers.chunks_exact(8).enumerate() {
        let mut eight = [0u8; 8];
        eight.copy_from_slice(chunk);
        let packed = u64::from_le_bytes(eight).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        mask |= packed << (8 * n);
    }
    mask
}
