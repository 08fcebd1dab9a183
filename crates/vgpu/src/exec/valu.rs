//! Vector ALU instructions: reading sources, applying modifiers, writing results.
//!
//! An operation is a function of one lane's values ([`Op`]); everything around it is here. The path without modifiers is compiled for
//! each SIMD level, the path with modifiers once.

use super::decoded::{Nested, OperandType, SourceKind, Step};
use super::float::{F16, flush32, flush64, quiet16, quiet32, quiet64};
use super::simd::simd_variants;
use super::wave::{LANES, Lanes, Lanes64, REGISTERS, Wave};
use super::{Env, Outcome};
use crate::arch::Arch;
use crate::isa::{Dpp, Dpp8, Extension, Field, Sdwa, operand};

/// The type of a lane's operand.
pub trait LaneType: Copy + 'static {
    /// The raw bits of all lanes.
    type Raw: Copy;
    /// How constants are encoded.
    const TYPE: OperandType;
    /// Bits of a float type; 0 for integers.
    const FLOAT: u32 = 0;
    /// All lanes zero.
    const ZERO: Self::Raw;
    /// Returns the raw bits of a source.
    fn fetch<'a>(w: &'a Wave, s: &Step, n: usize, buffer: &'a mut Self::Raw) -> &'a Self::Raw;
    /// Returns a lane's value.
    fn get(raw: &Self::Raw, lane: usize) -> Self;
    /// Sets a lane's value.
    fn set(raw: &mut Self::Raw, lane: usize, value: Self);
    /// Writes the active lanes of a destination.
    fn store(w: &mut Wave, number: u16, raw: &Self::Raw);
    /// Returns a lane's bits.
    fn bits(raw: &Self::Raw, lane: usize) -> u64;
    /// Sets a lane's bits.
    fn set_bits(raw: &mut Self::Raw, lane: usize, bits: u64);
}

/// An operand that an operation does not have.
#[derive(Clone, Copy)]
pub struct Unused;

impl LaneType for Unused {
    type Raw = ();
    const TYPE: OperandType = OperandType::B32;
    const ZERO: () = ();
    #[inline(always)]
    fn fetch<'a>(_: &'a Wave, _: &Step, _: usize, buffer: &'a mut ()) -> &'a () {
        buffer
    }
    #[inline(always)]
    fn get((): &(), _: usize) -> Unused {
        Unused
    }
    #[inline(always)]
    fn set((): &mut (), _: usize, _: Unused) {}
    fn store(_: &mut Wave, _: u16, (): &()) {}
    fn bits((): &(), _: usize) -> u64 {
        0
    }
    fn set_bits((): &mut (), _: usize, _: u64) {}
}

/// Returns all lanes of a 32-bit source.
#[inline(always)]
pub fn source<'a>(w: &'a Wave, s: &Step, n: usize, buffer: &'a mut Lanes) -> &'a Lanes {
    if s.kind[n] == SourceKind::Vector {
        return w.vgpr(s.inst.src[n]);
    }
    let value = if s.kind[n] == SourceKind::Constant { s.constant[n] as u32 } else { w.scalar(s.inst.src[n]) };
    *buffer = Lanes([value; LANES]);
    buffer
}

/// Returns all lanes of a 64-bit source.
#[inline(always)]
pub fn source64<'a>(w: &'a Wave, s: &Step, n: usize, buffer: &'a mut Lanes64) -> &'a Lanes64 {
    let number = s.inst.src[n];
    if s.kind[n] == SourceKind::Vector {
        let (low, high) = (w.vgpr(number), w.vgpr(number + 1));
        for lane in 0..LANES {
            buffer.0[lane] = u64::from(low.0[lane]) | u64::from(high.0[lane]) << 32;
        }
    } else {
        *buffer = Lanes64([scalar64_source(w, s, n); LANES]);
    }
    buffer
}

/// Returns a 64-bit scalar source.
pub fn scalar64_source(w: &Wave, s: &Step, n: usize) -> u64 {
    match s.kind[n] {
        SourceKind::Constant => s.constant[n],
        _ => match s.inst.src[n] {
            number @ operand::SHARED_BASE..=operand::PRIVATE_LIMIT => super::aperture_value(number),
            number @ operand::VCCZ..=operand::SCC => u64::from(w.scalar(number)),
            number => w.scalar64(number),
        },
    }
}

macro_rules! ty32 {
    ($($ty:ty, $kind:ident, $float:expr, |$raw:ident| $get:expr, |$value:ident| $set:expr;)*) => {$(
        impl LaneType for $ty {
            type Raw = Lanes;
            const TYPE: OperandType = OperandType::$kind;
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
                w.write_vgpr(number, raw);
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
        impl LaneType for $ty {
            type Raw = Lanes64;
            const TYPE: OperandType = OperandType::$kind;
            const FLOAT: u32 = $float;
            const ZERO: Lanes64 = Lanes64([0; LANES]);
            #[inline(always)]
            fn fetch<'a>(w: &'a Wave, s: &Step, n: usize, buffer: &'a mut Lanes64) -> &'a Lanes64 {
                source64(w, s, n, buffer)
            }
            #[inline(always)]
            fn get(raw: &Lanes64, lane: usize) -> $ty {
                let $raw = raw.0[lane];
                $get
            }
            #[inline(always)]
            fn set(raw: &mut Lanes64, lane: usize, $value: $ty) {
                raw.0[lane] = $set;
            }
            #[inline(always)]
            fn store(w: &mut Wave, number: u16, raw: &Lanes64) {
                w.write_vgpr_pair(number, raw);
            }
            fn bits(raw: &Lanes64, lane: usize) -> u64 {
                raw.0[lane]
            }
            fn set_bits(raw: &mut Lanes64, lane: usize, bits: u64) {
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

/// A lane-wise operation.
pub trait Op: 'static {
    /// The first source's type.
    type A: LaneType;
    /// The second source's type.
    type B: LaneType;
    /// The third source's type; for `mac` and similar, the destination's.
    type C: LaneType;
    /// The result's type.
    type D: LaneType;
    /// Whether the third source is the destination's old value.
    const ACCUMULATE: bool = false;
    /// Whether a 16-bit result preserves the other half of the register.
    const KEEP: bool = false;
    /// Computes the result.
    fn f(a: Self::A, b: Self::B, c: Self::C) -> Self::D;
    /// Computes the saturated result of an integer operation with clamp.
    fn saturated(a: Self::A, b: Self::B, c: Self::C) -> Self::D {
        Self::f(a, b, c)
    }
    /// Computes the result in a rounding mode other than nearest even ([`super::float::rounding`]).
    fn rounded(a: Self::A, b: Self::B, c: Self::C, _mode: u32) -> Self::D {
        Self::f(a, b, c)
    }
}

simd_variants!(arithmetic, run, Op);

#[inline(always)]
fn run<O: Op>(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    if !s.plain || O::KEEP || (!w.mode.is_default() && (O::A::FLOAT | O::D::FLOAT) != 0) {
        run_modified::<O>(w, s);
        return Outcome::Continue;
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
    if O::D::TYPE == OperandType::B16 && s.keep_high {
        let old = w.vgpr(s.inst.dst);
        for lane in 0..LANES {
            let kept = u64::from(old.0[lane] & 0xffff_0000);
            let value = O::D::bits(&out, lane) & 0xffff;
            O::D::set_bits(&mut out, lane, kept | value);
        }
    }
    O::D::store(w, s.inst.dst, &out);
    Outcome::Continue
}

/// Returns a source with SDWA, op_sel, abs, neg and the input part of `MODE` applied.
pub fn modified_source<T: LaneType>(w: &Wave, s: &Step, n: usize) -> T::Raw {
    let mut buffer = T::ZERO;
    let mut raw = *T::fetch(w, s, n, &mut buffer);
    if let Extension::Sdwa(sdwa) = s.inst.ext
        && n < 2
    {
        for lane in 0..LANES {
            let selected = sdwa_select(T::bits(&raw, lane) as u32, sdwa.src_sel[n], sdwa.sext[n]);
            T::set_bits(&mut raw, lane, selected.into());
        }
    }
    let inst = &s.inst;
    let high = T::TYPE == OperandType::B16 && s.inst.ext == Extension::None && inst.op_sel >> n & 1 != 0;
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
            if !w.mode.is_default() {
                bits = apply_input_mode(bits, T::FLOAT, w);
            }
        }
        T::set_bits(&mut raw, lane, bits);
    }
    raw
}

/// Applies `MODE` to a float source: flushes denormals and, without IEEE mode, quiets NaNs.
pub fn apply_input_mode(bits: u64, float: u32, w: &Wave) -> u64 {
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

/// Selects and extends a byte or word.
pub fn sdwa_select(value: u32, sel: u8, sext: bool) -> u32 {
    match (sel, sext) {
        (0..=3, false) => value >> (8 * sel) & 0xff,
        (0..=3, true) => (value >> (8 * sel)) as u8 as i8 as i32 as u32,
        (4 | 5, false) => value >> (16 * (sel - 4)) & 0xffff,
        (4 | 5, true) => (value >> (16 * (sel - 4))) as u16 as i16 as i32 as u32,
        _ => value,
    }
}

/// Inserts a result into the selected part of the destination.
fn sdwa_merge(old: u32, value: u32, sdwa: Sdwa) -> u32 {
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

/// Runs an operation with modifiers, SDWA, or a non-default `MODE`.
#[inline(never)]
fn run_modified<O: Op>(w: &mut Wave, s: &Step) {
    let a = modified_source::<O::A>(w, s, 0);
    let b = modified_source::<O::B>(w, s, 1);
    let c = modified_source::<O::C>(w, s, 2);
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
        O::D::set_bits(&mut out, lane, apply_output_modifiers(bits, O::D::FLOAT, w, s));
    }
    store_modified::<O::D>(w, s, &out, O::KEEP || s.keep_high);
}

/// Returns the output modifier, or 0 where hardware ignores it: if results may be denormal, and in IEEE mode, which gfx12 lacks.
fn effective_omod(float: u32, w: &Wave, s: &Step) -> u8 {
    let flushed = if float == 32 { w.mode.flush_out32() } else { w.mode.flush_out64() };
    let ieee = w.mode.ieee() && !s.inst.desc.supports(Arch::Gfx1201);
    if flushed && !ieee { s.inst.omod } else { 0 }
}

/// Applies omod, clamp and the denormal mode to a float result.
pub fn apply_output_modifiers(bits: u64, float: u32, w: &Wave, s: &Step) -> u64 {
    let (omod, clamp) = (effective_omod(float, w, s), s.inst.clamp);
    match float {
        32 => {
            let mut value = f32::from_bits(bits as u32);
            value *= [1.0, 2.0, 4.0, 0.5][usize::from(omod & 3)];
            if clamp {
                value = if value.is_nan() { if w.mode.dx10_clamp() { 0.0 } else { value } } else { value.clamp(0.0, 1.0) };
            }
            u64::from(if w.mode.flush_out32() { flush32(value.to_bits()) } else { value.to_bits() })
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

/// Writes a result with SDWA, or to one half of a register.
pub fn store_modified<D: LaneType>(w: &mut Wave, s: &Step, out: &D::Raw, keep: bool) {
    let number = s.inst.dst;
    match s.inst.ext {
        // 64-bit results ignore SDWA's 32-bit selection.
        Extension::Sdwa(sdwa) if D::TYPE == OperandType::B32 || D::TYPE == OperandType::B16 => {
            let mut merged = *w.vgpr(number);
            for lane in 0..LANES {
                merged.0[lane] = sdwa_merge(merged.0[lane], D::bits(out, lane) as u32, sdwa);
            }
            w.write_vgpr(number, &merged);
        }
        _ if D::TYPE == OperandType::B16 && (keep || s.inst.op_sel & 8 != 0) => {
            let mut merged = *w.vgpr(number);
            for lane in 0..LANES {
                let value = D::bits(out, lane) as u32 & 0xffff;
                merged.0[lane] =
                    if s.inst.op_sel & 8 != 0 { merged.0[lane] & 0xffff | value << 16 } else { merged.0[lane] & 0xffff_0000 | value };
            }
            w.write_vgpr(number, &merged);
        }
        _ => D::store(w, number, out),
    }
}

/// The register that holds the permuted first source of a DPP instruction, and the next one its high half.
pub const DPP_SOURCE: u16 = operand::VGPR + REGISTERS as u16 - 2;

/// Where the lanes of a DPP instruction read its first source.
#[derive(Clone)]
pub struct LanePermutation {
    /// The lane that each lane reads.
    from: [u8; LANES],
    /// The lanes whose source lane exists.
    exists: u64,
    /// The lanes that the row and bank masks enable.
    enabled: u64,
    /// Whether a lane without a source reads 0 instead of being disabled.
    zero_fill: bool,
    /// Whether inactive lanes are read too.
    fetch_inactive: bool,
}

impl LanePermutation {
    /// Returns the permutation of a DPP dword.
    pub fn dpp(dpp: Dpp) -> LanePermutation {
        let source = |lane| super::ops::cross_lane::dpp_source(dpp.ctrl, lane);
        LanePermutation {
            from: std::array::from_fn(|lane| source(lane).unwrap_or(lane) as u8),
            exists: (0..LANES).filter(|&lane| source(lane).is_some()).fold(0, |mask, lane| mask | 1 << lane),
            enabled: dpp_write_mask(dpp.row_mask, dpp.bank_mask),
            zero_fill: dpp.bound_ctrl,
            fetch_inactive: dpp.fetch_inactive,
        }
    }

    /// Returns the permutation of a DPP8 dword. A lane whose source is inactive reads 0.
    pub fn dpp8(dpp8: Dpp8) -> LanePermutation {
        LanePermutation {
            from: std::array::from_fn(|lane| (lane & !7) as u8 | (dpp8.lanes >> (3 * (lane & 7)) & 7) as u8),
            exists: u64::MAX,
            enabled: u64::MAX,
            zero_fill: true,
            fetch_inactive: dpp8.fetch_inactive,
        }
    }

    /// Returns the lanes that find a source.
    fn valid(&self, exec: u64) -> u64 {
        if self.fetch_inactive {
            return self.exists;
        }
        let active = self.from.iter().enumerate().fold(0, |mask, (lane, from)| mask | (exec >> from & 1) << lane);
        self.exists & active
    }
}

/// Runs an instruction with DPP: permutes the first source, disables the lanes that do not take part, and runs the instruction without
/// DPP.
pub fn run_dpp(w: &mut Wave, s: &Step, e: &mut Env) -> Outcome {
    let Some(Nested::Dpp(step, lanes)) = s.nested.as_deref() else { return super::ops::unsupported(w, s, e) };
    let exec = w.exec;
    let valid = lanes.valid(exec);
    for n in 0..u16::from(s.inst.desc.registers(Field::Src(0))).min(2) {
        let source = *w.vgpr(s.inst.src[0] + n);
        let permuted = w.vgpr_mut(DPP_SOURCE + n);
        for lane in 0..LANES {
            let found = 0u32.wrapping_sub((valid >> lane & 1) as u32);
            permuted.0[lane] = source.0[usize::from(lanes.from[lane]) % LANES] & found;
        }
    }
    w.set_exec(exec & lanes.enabled & if lanes.zero_fill { u64::MAX } else { valid });
    // SAFETY: the handler was compiled for the CPU's SIMD level.
    let outcome = unsafe { (step.run)(w, step, e) };
    // `v_cmpx` has written EXEC.
    if s.inst.dst != operand::EXEC {
        w.set_exec(exec);
    }
    outcome
}

/// Runs a dual-issue instruction: both operations read their sources before either writes its result.
pub fn run_dual(w: &mut Wave, s: &Step, e: &mut Env) -> Outcome {
    let Some(Nested::Dual { x, y, y_reads_x }) = s.nested.as_deref() else { return super::ops::unsupported(w, s, e) };
    let old = *w.vgpr(x.inst.dst);
    // SAFETY: the handler was compiled for the CPU's SIMD level.
    let outcome = unsafe { (x.run)(w, x, e) };
    if outcome != Outcome::Continue {
        return outcome;
    }
    let new = *w.vgpr(x.inst.dst);
    if *y_reads_x {
        *w.vgpr_mut(x.inst.dst) = old;
    }
    // SAFETY: the handler was compiled for the CPU's SIMD level.
    let outcome = unsafe { (y.run)(w, y, e) };
    if *y_reads_x {
        *w.vgpr_mut(x.inst.dst) = new;
    }
    outcome
}

/// Returns the lanes that DPP's row and bank masks enable.
pub fn dpp_write_mask(row_mask: u8, bank_mask: u8) -> u64 {
    (0..LANES)
        .filter(|lane| row_mask >> (lane / 16) & 1 != 0 && bank_mask >> (lane % 16 / 4) & 1 != 0)
        .fold(0, |mask, lane| mask | 1 << lane)
}

/// A lane-wise comparison.
pub trait Compare: 'static {
    /// The first source's type.
    type A: LaneType;
    /// The second source's type.
    type B: LaneType;
    /// Whether the result is also written to EXEC (`v_cmpx`).
    const EXEC: bool;
    /// Compares.
    fn f(a: Self::A, b: Self::B) -> bool;
}

simd_variants!(comparison, compare, Compare);

#[inline(always)]
fn compare<O: Compare>(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    let mask = if !s.plain || (!w.mode.is_default() && O::A::FLOAT != 0) {
        compare_modified::<O>(w, s)
    } else {
        let (mut a, mut b) = (O::A::ZERO, O::B::ZERO);
        let a = O::A::fetch(w, s, 0, &mut a);
        let b = O::B::fetch(w, s, 1, &mut b);
        let mut bits = [0u8; LANES];
        for lane in 0..LANES {
            bits[lane] = u8::from(O::f(O::A::get(a, lane), O::B::get(b, lane)));
        }
        pack_mask(&bits)
    };
    let mask = mask & w.exec;
    w.set_lane_mask(s.inst.dst, mask);
    if O::EXEC {
        w.set_exec(mask);
    }
    Outcome::Continue
}

#[inline(never)]
fn compare_modified<O: Compare>(w: &Wave, s: &Step) -> u64 {
    let a = modified_source::<O::A>(w, s, 0);
    let b = modified_source::<O::B>(w, s, 1);
    (0..LANES).filter(|&lane| O::f(O::A::get(&a, lane), O::B::get(&b, lane))).fold(0, |mask, lane| mask | 1 << lane)
}

/// Packs bytes of 0 and 1 into a bit mask.
#[inline(always)]
pub fn pack_mask(bits: &[u8; LANES]) -> u64 {
    let mut mask = 0u64;
    for (n, chunk) in bits.chunks_exact(8).enumerate() {
        let mut eight = [0u8; 8];
        eight.copy_from_slice(chunk);
        let packed = u64::from_le_bytes(eight).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        mask |= packed << (8 * n);
    }
    mask
}
