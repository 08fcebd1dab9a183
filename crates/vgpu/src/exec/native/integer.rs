//! Integer instructions in terms of the CPU's.

use super::op::{self, Op};
use super::operands::{raw, raw64, result, result64};
use super::valu::{Emit, Values, emitters};
use super::vector::{Relation, Run, V};
use crate::exec::decoded::{SourceKind, Step};
use crate::isa::Extension;

/// Masks a shift count, unless it is a constant.
fn count(run: &mut Run<'_>, s: &Step, n: usize) -> V {
    if s.kind[n] == SourceKind::Constant && s.inst.ext == Extension::None {
        return run.constant(s.constant[n] as u32 & 31);
    }
    let (v, mask) = (raw(run, s, n), run.constant(31));
    run.binary(op::AND, v, mask)
}

/// Extends the low 24 bits.
fn signed24(run: &mut Run<'_>, v: V) -> V {
    let shifted = run.immediate(op::SHL_IMM, v, 8);
    run.immediate(op::SAR_IMM, shifted, 8)
}

fn unsigned24(run: &mut Run<'_>, v: V) -> V {
    let mask = run.constant(0x00ff_ffff);
    run.binary(op::AND, v, mask)
}

/// Returns the high halves of 32×32-bit products.
fn multiply_high(run: &mut Run<'_>, a: V, b: V, wide: Op) -> V {
    let even = run.binary(wide, a, b);
    let (odd_a, odd_b) = (run.immediate(op::SHR_64_IMM, a, 32), run.immediate(op::SHR_64_IMM, b, 32));
    let odd = run.binary(wide, odd_a, odd_b);
    run.release(odd_a);
    run.release(odd_b);
    let even_high = run.immediate(op::SHR_64_IMM, even, 32);
    // The odd lanes' high halves are in place.
    let odd_low = run.immediate(op::SHR_64_IMM, odd, 32);
    let odd_high = run.immediate(op::SHL_64_IMM, odd_low, 32);
    run.binary(op::OR, even_high, odd_high)
}

/// Returns the relation of an integer comparison such as `v_cmp_lt_i32`, and its type.
fn comparison(name: &str) -> Option<(Relation, &str)> {
    let (relation, ty) = name.strip_prefix("v_cmp_")?.split_once('_')?;
    let relation = match relation {
        "lt" => Relation::Less,
        "eq" => Relation::Equal,
        "le" => Relation::LessEqual,
        "gt" => Relation::Greater,
        "ne" => Relation::NotEqual,
        "ge" => Relation::GreaterEqual,
        _ => return None,
    };
    matches!(ty, "i32" | "u32" | "i64" | "u64" | "i16" | "u16").then_some((relation, ty))
}

/// Returns whether the classes of `v_cmp_class` are constant.
pub fn has_constant_classes(s: &Step) -> bool {
    s.kind[1] == SourceKind::Constant
}

/// `v_cmp_class_f32` with constant classes: each class is a range of bit patterns.
fn is_of_class(run: &mut Run<'_>, s: &Step) {
    /// The bit of each class and its first pattern, by pattern.
    const CLASSES: [(u32, u32); 12] = [
        (6, 0),
        (7, 1),
        (8, 0x0080_0000),
        (9, 0x7f80_0000),
        (0, 0x7f80_0001),
        (1, 0x7fc0_0000),
        (5, 0x8000_0000),
        (4, 0x8000_0001),
        (3, 0x8080_0000),
        (2, 0xff80_0000),
        (0, 0xff80_0001),
        (1, 0xffc0_0000),
    ];
    let (a, wanted) = (raw(run, s, 0), s.constant[1] as u32);
    // The ranges of wanted classes that are adjacent.
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for (n, (_, first)) in CLASSES.into_iter().enumerate().filter(|(_, (bit, _))| wanted >> bit & 1 != 0) {
        let last = CLASSES.get(n + 1).map_or(u32::MAX, |(_, next)| next - 1);
        match ranges.last_mut() {
            Some(range) if range.1.wrapping_add(1) == first => range.1 = last,
            _ => ranges.push((first, last)),
        }
    }
    let zero = run.constant(0);
    // No lanes without classes.
    let mut mask = run.compare(Relation::Less, false, zero, zero);
    for (first, last) in ranges {
        let (start, length) = (run.constant(first), run.constant(last - first));
        let offset = run.binary(op::SUB_I32, a, start);
        let within = run.compare(Relation::LessEqual, false, offset, length);
        [start, length, offset].into_iter().for_each(|v| run.release(v));
        mask = run.or_masks(mask, within);
    }
    run.store_mask(s.inst.dst, mask);
}

/// Returns the lanes' leading zeros; -1 for 0.
fn leading_zeros(run: &mut Run<'_>, s: &Step, a: V) {
    let (zero, ones) = (run.constant(0), run.constant(u32::MAX));
    let count = run.unary(op::COUNT_LEADING_ZEROS, a);
    let none = run.compare(Relation::Equal, true, a, zero);
    let v = run.select(none, ones, count);
    result(run, s, v);
}

/// Returns the code generator of an integer instruction.
pub fn find(name: &str) -> Option<(Values, Emit)> {
    match comparison(name) {
        Some((_, "i64" | "u64")) => Some((Values::Wide, compare64)),
        Some(_) => Some((Values::Bits, compare)),
        None => by_name(name),
    }
}

fn compare(run: &mut Run<'_>, s: &Step) {
    let Some((relation, ty)) = comparison(s.inst.desc.semantics) else { return };
    let (mut a, mut b) = (raw(run, s, 0), raw(run, s, 1));
    if ty.ends_with("16") {
        (a, b) = (extended16(run, a, ty == "i16"), extended16(run, b, ty == "i16"));
    }
    let mask = run.compare(relation, ty.starts_with('i'), a, b);
    run.store_mask(s.inst.dst, mask);
}

/// Compares 64-bit integers: the high halves, and the low ones where those are equal.
fn compare64(run: &mut Run<'_>, s: &Step) {
    let Some((relation, ty)) = comparison(s.inst.desc.semantics) else { return };
    let ([a, a_high], [b, b_high]) = (raw64(run, s, 0), raw64(run, s, 1));
    let low = run.compare(relation, false, a, b);
    let strict = match relation {
        Relation::LessEqual => Relation::Less,
        Relation::GreaterEqual => Relation::Greater,
        other => other,
    };
    let equal = run.compare(Relation::Equal, true, a_high, b_high);
    let high = run.compare(strict, ty == "i64", a_high, b_high);
    let mask = match relation {
        Relation::Equal => run.and_masks(low, high),
        Relation::NotEqual => run.or_masks(low, high),
        _ => {
            let low = run.and_masks(low, equal);
            run.or_masks(low, high)
        }
    };
    run.store_mask(s.inst.dst, mask);
}

/// Extends the low 16 bits.
fn extended16(run: &mut Run<'_>, v: V, signed: bool) -> V {
    let up = run.immediate(op::SHL_IMM, v, 16);
    let down = run.immediate(if signed { op::SAR_IMM } else { op::SHR_IMM }, up, 16);
    run.release(up);
    down
}

/// A 16-bit operation: `op` of the extended sources, cut to 16 bits.
fn binary16(run: &mut Run<'_>, s: &Step, op: Op, signed: bool) {
    let (a, b) = (raw(run, s, 0), raw(run, s, 1));
    let (a, b) = (extended16(run, a, signed), extended16(run, b, signed));
    let v = run.binary(op, a, b);
    let v = extended16(run, v, false);
    result(run, s, v);
}

/// A 16-bit shift of the second source by the first.
fn shift16(run: &mut Run<'_>, s: &Step, op: Op, signed: bool) {
    let (by, b, mask) = (raw(run, s, 0), raw(run, s, 1), run.constant(15));
    let by = run.binary(op::AND, by, mask);
    let b = extended16(run, b, signed);
    let v = run.binary(op, b, by);
    let v = extended16(run, v, false);
    result(run, s, v);
}

/// The median of three: the greatest of the smallest of each pair.
fn median(run: &mut Run<'_>, s: &Step, min: Op, max: Op) {
    let (a, b, c) = (raw(run, s, 0), raw(run, s, 1), raw(run, s, 2));
    let (low, high) = (run.binary(min, a, b), run.binary(max, a, b));
    let bounded = run.binary(min, high, c);
    let v = run.binary(max, low, bounded);
    result(run, s, v);
}

/// `v_mad_u64_u32`.
fn multiply_add_wide(run: &mut Run<'_>, s: &Step) {
    let [a, b] = [0, 1].map(|n| {
        let (v, zero) = (raw(run, s, n), run.constant(0));
        run.widen(v, zero)
    });
    let product = [run.binary(op::MUL_U32_WIDE, a[0], b[0]), run.binary(op::MUL_U32_WIDE, a[1], b[1])];
    [a, b].into_iter().flatten().for_each(|v| run.release(v));
    let [low, high] = raw64(run, s, 2);
    let addend = run.widen(low, high);
    let sum = [run.binary(op::ADD_I64, product[0], addend[0]), run.binary(op::ADD_I64, product[1], addend[1])];
    addend.into_iter().for_each(|v| run.release(v));
    let carry = run.less64(sum, product);
    product.into_iter().for_each(|v| run.release(v));
    result64(run, s, sum);
    run.store_mask(s.inst.sdst, carry);
}

/// `v_mbcnt_lo_u32_b32` and `v_mbcnt_hi_u32_b32` of all lanes: the lane's number, limited by `most`, less `first`.
fn count_below(run: &mut Run<'_>, s: &Step, first: u32, most: u32) {
    let (b, below) = (raw(run, s, 1), run.table(|lane| lane.saturating_sub(first).min(most)));
    let v = run.binary(op::ADD_I32, b, below);
    result(run, s, v);
}

/// Returns whether the mask of `v_mbcnt` has all lanes.
pub fn counts_all_lanes(s: &Step) -> bool {
    s.kind[0] == SourceKind::Constant && s.constant[0] as u32 == u32::MAX
}

fn binary(run: &mut Run<'_>, s: &Step, op: Op) {
    let (a, b) = (raw(run, s, 0), raw(run, s, 1));
    let v = run.binary(op, a, b);
    result(run, s, v);
}

/// The same with the sources swapped.
fn reversed(run: &mut Run<'_>, s: &Step, op: Op) {
    let (a, b) = (raw(run, s, 0), raw(run, s, 1));
    let v = run.binary(op, b, a);
    result(run, s, v);
}

/// A shift of the second source by the first.
fn shift(run: &mut Run<'_>, s: &Step, op: Op) {
    let (by, b) = (count(run, s, 0), raw(run, s, 1));
    let v = run.binary(op, b, by);
    result(run, s, v);
}

/// Two operations in a row: `second(first(a, b), c)`.
fn chained(run: &mut Run<'_>, s: &Step, first: Op, second: Op) {
    let (a, b, c) = (raw(run, s, 0), raw(run, s, 1), raw(run, s, 2));
    let v = run.binary(first, a, b);
    let v = run.binary(second, v, c);
    result(run, s, v);
}

/// A shift of a 64-bit source by the first.
fn shift64(run: &mut Run<'_>, s: &Step, op: Op) {
    let (by, mask, zero) = (raw(run, s, 0), run.constant(63), run.constant(0));
    let by = run.binary(op::AND, by, mask);
    let by = run.widen(by, zero);
    let [low, high] = raw64(run, s, 1);
    let value = run.widen(low, high);
    let pair = [run.binary(op, value[0], by[0]), run.binary(op, value[1], by[1])];
    result64(run, s, pair);
}

/// Addition with a carry out, and in if `carry_in`.
fn add_carry(run: &mut Run<'_>, s: &Step, carry_in: bool) {
    let (a, b) = (raw(run, s, 0), raw(run, s, 1));
    let sum = run.binary(op::ADD_I32, a, b);
    let carry = run.compare(Relation::Less, false, sum, a);
    if !carry_in {
        result(run, s, sum);
        return run.store_mask(s.inst.sdst, carry);
    }
    let carried = run.load_mask(s.inst.src[2]);
    let ones = run.ones(carried);
    let value = run.binary(op::SUB_I32, sum, ones);
    run.release(ones);
    // A carry of either addition: the second carries only if the sum was all ones.
    let again = run.compare(Relation::Less, false, value, sum);
    let carry = run.or_masks(carry, again);
    result(run, s, value);
    run.store_mask(s.inst.sdst, carry);
}

/// Subtraction `x - y` with a borrow out, and in if `borrow_in`.
fn sub_borrow(run: &mut Run<'_>, s: &Step, x: V, y: V, borrow_in: bool) {
    let difference = run.binary(op::SUB_I32, x, y);
    let borrow = run.compare(Relation::Less, false, x, y);
    if !borrow_in {
        result(run, s, difference);
        return run.store_mask(s.inst.sdst, borrow);
    }
    let borrowed = run.load_mask(s.inst.src[2]);
    let ones = run.ones(borrowed);
    let value = run.binary(op::ADD_I32, difference, ones);
    run.release(ones);
    let again = run.compare(Relation::Greater, false, value, difference);
    let borrow = run.or_masks(borrow, again);
    result(run, s, value);
    run.store_mask(s.inst.sdst, borrow);
}

emitters! {
    "v_cmp_class_f32": Bits, |run, s| is_of_class(run, s);
    "v_ffbh_u32": Bits, |run, s| { let a = raw(run, s, 0); leading_zeros(run, s, a) };
    "v_ffbh_i32": Bits, |run, s| {
        let a = raw(run, s, 0);
        let sign = run.immediate(op::SAR_IMM, a, 31);
        let folded = run.binary(op::XOR, a, sign);
        leading_zeros(run, s, folded)
    };
    "v_ffbl_b32": Bits, |run, s| {
        let (a, zero, most) = (raw(run, s, 0), run.constant(0), run.constant(31));
        let negative = run.binary(op::SUB_I32, zero, a);
        let lowest = run.binary(op::AND, a, negative);
        let count = run.unary(op::COUNT_LEADING_ZEROS, lowest);
        // It is 32 for 0.
        let v = run.binary(op::SUB_I32, most, count);
        result(run, s, v)
    };
    "v_mov_b32": Bits, |run, s| { let v = raw(run, s, 0); result(run, s, v) };
    "v_accvgpr_read_b32": Bits, |run, s| { let v = raw(run, s, 0); result(run, s, v) };
    "v_accvgpr_write_b32": Bits, |run, s| { let v = raw(run, s, 0); result(run, s, v) };
    "v_accvgpr_mov_b32": Bits, |run, s| { let v = raw(run, s, 0); result(run, s, v) };
    "v_mov_b64": Wide, |run, s| { let [low, high] = raw64(run, s, 0); let high = run.unary(op::MOVE, high); result(run, s, low); run.set_vgpr(s.inst.dst + 1, high) };
    "v_not_b32": Bits, |run, s| { let (a, ones) = (raw(run, s, 0), run.constant(u32::MAX)); let v = run.binary(op::XOR, a, ones); result(run, s, v) };
    "v_and_b32": Bits, |run, s| binary(run, s, op::AND);
    "v_or_b32": Bits, |run, s| binary(run, s, op::OR);
    "v_xor_b32": Bits, |run, s| binary(run, s, op::XOR);
    "v_add_u32": Bits, |run, s| binary(run, s, op::ADD_I32);
    "v_add_i32": Bits, |run, s| binary(run, s, op::ADD_I32);
    "v_sub_u32": Bits, |run, s| binary(run, s, op::SUB_I32);
    "v_sub_i32": Bits, |run, s| binary(run, s, op::SUB_I32);
    "v_subrev_u32": Bits, |run, s| reversed(run, s, op::SUB_I32);
    "v_mul_lo_u32": Bits, |run, s| binary(run, s, op::MUL_I32);
    "v_min_i32": Bits, |run, s| binary(run, s, op::MIN_I32);
    "v_max_i32": Bits, |run, s| binary(run, s, op::MAX_I32);
    "v_min_u32": Bits, |run, s| binary(run, s, op::MIN_U32);
    "v_max_u32": Bits, |run, s| binary(run, s, op::MAX_U32);
    "v_lshlrev_b32": Bits, |run, s| shift(run, s, op::SHL);
    "v_lshrrev_b32": Bits, |run, s| shift(run, s, op::SHR);
    "v_ashrrev_i32": Bits, |run, s| shift(run, s, op::SAR);
    "v_add3_u32": Bits, |run, s| chained(run, s, op::ADD_I32, op::ADD_I32);
    "v_or3_b32": Bits, |run, s| chained(run, s, op::OR, op::OR);
    "v_and_or_b32": Bits, |run, s| chained(run, s, op::AND, op::OR);
    "v_xad_u32": Bits, |run, s| chained(run, s, op::XOR, op::ADD_I32);
    "v_lshl_add_u32": Bits, |run, s| {
        let (a, by, c) = (raw(run, s, 0), count(run, s, 1), raw(run, s, 2));
        let shifted = run.binary(op::SHL, a, by);
        let v = run.binary(op::ADD_I32, shifted, c);
        result(run, s, v)
    };
    "v_lshl_or_b32": Bits, |run, s| {
        let (a, by, c) = (raw(run, s, 0), count(run, s, 1), raw(run, s, 2));
        let shifted = run.binary(op::SHL, a, by);
        let v = run.binary(op::OR, shifted, c);
        result(run, s, v)
    };
    "v_add_lshl_u32": Bits, |run, s| {
        let (a, b, by) = (raw(run, s, 0), raw(run, s, 1), count(run, s, 2));
        let sum = run.binary(op::ADD_I32, a, b);
        let v = run.binary(op::SHL, sum, by);
        result(run, s, v)
    };
    "v_mul_u32_u24": Bits, |run, s| {
        let (a, b) = (raw(run, s, 0), raw(run, s, 1));
        let (a, b) = (unsigned24(run, a), unsigned24(run, b));
        let v = run.binary(op::MUL_I32, a, b);
        result(run, s, v)
    };
    "v_mul_i32_i24": Bits, |run, s| {
        let (a, b) = (raw(run, s, 0), raw(run, s, 1));
        let (a, b) = (signed24(run, a), signed24(run, b));
        let v = run.binary(op::MUL_I32, a, b);
        result(run, s, v)
    };
    "v_mad_u32_u24": Bits, |run, s| {
        let (a, b, c) = (raw(run, s, 0), raw(run, s, 1), raw(run, s, 2));
        let (a, b) = (unsigned24(run, a), unsigned24(run, b));
        let product = run.binary(op::MUL_I32, a, b);
        let v = run.binary(op::ADD_I32, product, c);
        result(run, s, v)
    };
    "v_mad_i32_i24": Bits, |run, s| {
        let (a, b, c) = (raw(run, s, 0), raw(run, s, 1), raw(run, s, 2));
        let (a, b) = (signed24(run, a), signed24(run, b));
        let product = run.binary(op::MUL_I32, a, b);
        let v = run.binary(op::ADD_I32, product, c);
        result(run, s, v)
    };
    "v_mul_hi_u32": Bits, |run, s| {
        let (a, b) = (raw(run, s, 0), raw(run, s, 1));
        let v = multiply_high(run, a, b, op::MUL_U32_WIDE);
        result(run, s, v)
    };
    "v_mul_hi_i32": Bits, |run, s| {
        let (a, b) = (raw(run, s, 0), raw(run, s, 1));
        let v = multiply_high(run, a, b, op::MUL_I32_WIDE);
        result(run, s, v)
    };
    "v_bfi_b32": Bits, |run, s| {
        let (a, b, c) = (raw(run, s, 0), raw(run, s, 1), raw(run, s, 2));
        let (yes, no) = (run.binary(op::AND, a, b), run.binary(op::AND_NOT, a, c));
        let v = run.binary(op::OR, yes, no);
        result(run, s, v)
    };
    "v_bfe_u32": Bits, |run, s| {
        // A width of 0 gives no bits: the mask is 0.
        let (a, offset, width, one) = (raw(run, s, 0), count(run, s, 1), count(run, s, 2), run.constant(1));
        let shifted = run.binary(op::SHR, a, offset);
        let mask = run.binary(op::SHL, one, width);
        let mask = run.binary(op::SUB_I32, mask, one);
        let v = run.binary(op::AND, shifted, mask);
        result(run, s, v)
    };
    "v_lshlrev_b64": Wide, |run, s| shift64(run, s, op::SHL_64);
    "v_lshrrev_b64": Wide, |run, s| shift64(run, s, op::SHR_64);
    "v_lshl_add_u64": Wide, |run, s| {
        let (by, mask, zero) = (raw(run, s, 1), run.constant(7), run.constant(0));
        let by = run.binary(op::AND, by, mask);
        let by = run.widen(by, zero);
        let [low, high] = raw64(run, s, 0);
        let value = run.widen(low, high);
        let [low, high] = raw64(run, s, 2);
        let addend = run.widen(low, high);
        let shifted = [run.binary(op::SHL_64, value[0], by[0]), run.binary(op::SHL_64, value[1], by[1])];
        let pair = [run.binary(op::ADD_I64, shifted[0], addend[0]), run.binary(op::ADD_I64, shifted[1], addend[1])];
        result64(run, s, pair)
    };
    "v_add_co_u32": Bits, |run, s| add_carry(run, s, false);
    "v_addc_co_u32": Bits, |run, s| add_carry(run, s, true);
    "v_sub_co_u32": Bits, |run, s| { let (a, b) = (raw(run, s, 0), raw(run, s, 1)); sub_borrow(run, s, a, b, false) };
    "v_subrev_co_u32": Bits, |run, s| { let (a, b) = (raw(run, s, 0), raw(run, s, 1)); sub_borrow(run, s, b, a, false) };
    "v_subb_co_u32": Bits, |run, s| { let (a, b) = (raw(run, s, 0), raw(run, s, 1)); sub_borrow(run, s, a, b, true) };
    "v_subbrev_co_u32": Bits, |run, s| { let (a, b) = (raw(run, s, 0), raw(run, s, 1)); sub_borrow(run, s, b, a, true) };
    "v_xnor_b32": Bits, |run, s| {
        let (a, b, ones) = (raw(run, s, 0), raw(run, s, 1), run.constant(u32::MAX));
        let v = run.binary(op::XOR, a, b);
        let v = run.binary(op::XOR, v, ones);
        result(run, s, v)
    };
    "v_bfm_b32": Bits, |run, s| {
        let (width, offset, one) = (count(run, s, 0), count(run, s, 1), run.constant(1));
        let bits = run.binary(op::SHL, one, width);
        let bits = run.binary(op::SUB_I32, bits, one);
        let v = run.binary(op::SHL, bits, offset);
        result(run, s, v)
    };
    "v_bfe_i32": Bits, |run, s| {
        // The field moves to the top, or as far as its width allows; then down with its sign. A width of 0 gives 0.
        let (a, offset, width, all) = (raw(run, s, 0), count(run, s, 1), count(run, s, 2), run.constant(32));
        let zero = run.constant(0);
        let sum = run.binary(op::ADD_I32, offset, width);
        let end = run.binary(op::MIN_U32, sum, all);
        run.release(sum);
        let up = run.binary(op::SUB_I32, all, end);
        run.release(end);
        let raised = run.binary(op::SHL, a, up);
        let down = run.binary(op::ADD_I32, up, offset);
        run.release(up);
        let field = run.binary(op::SAR, raised, down);
        run.release(raised);
        run.release(down);
        let empty = run.compare(Relation::Equal, true, width, zero);
        let v = run.select(empty, zero, field);
        result(run, s, v)
    };
    "v_alignbit_b32": Bits, |run, s| {
        let (high, low, by, all) = (raw(run, s, 0), raw(run, s, 1), count(run, s, 2), run.constant(32));
        let low = run.binary(op::SHR, low, by);
        let up = run.binary(op::SUB_I32, all, by);
        // The CPU shifts by 32 to 0.
        let high = run.binary(op::SHL, high, up);
        let v = run.binary(op::OR, low, high);
        result(run, s, v)
    };
    "v_min3_i32": Bits, |run, s| chained(run, s, op::MIN_I32, op::MIN_I32);
    "v_min3_u32": Bits, |run, s| chained(run, s, op::MIN_U32, op::MIN_U32);
    "v_max3_i32": Bits, |run, s| chained(run, s, op::MAX_I32, op::MAX_I32);
    "v_max3_u32": Bits, |run, s| chained(run, s, op::MAX_U32, op::MAX_U32);
    "v_med3_i32": Bits, |run, s| median(run, s, op::MIN_I32, op::MAX_I32);
    "v_med3_u32": Bits, |run, s| median(run, s, op::MIN_U32, op::MAX_U32);
    "v_mad_u64_u32": Wide, |run, s| multiply_add_wide(run, s);
    "v_ashrrev_i64": Wide, |run, s| shift64(run, s, op::SAR_64);
    "v_mbcnt_lo_u32_b32": Bits, |run, s| count_below(run, s, 0, 32);
    "v_mbcnt_hi_u32_b32": Bits, |run, s| count_below(run, s, 32, 32);
    "v_add_u16": Bits, |run, s| binary16(run, s, op::ADD_I32, false);
    "v_sub_u16": Bits, |run, s| binary16(run, s, op::SUB_I32, false);
    "v_mul_lo_u16": Bits, |run, s| binary16(run, s, op::MUL_I32, false);
    "v_max_u16": Bits, |run, s| binary16(run, s, op::MAX_U32, false);
    "v_min_u16": Bits, |run, s| binary16(run, s, op::MIN_U32, false);
    "v_max_i16": Bits, |run, s| binary16(run, s, op::MAX_I32, true);
    "v_min_i16": Bits, |run, s| binary16(run, s, op::MIN_I32, true);
    "v_lshlrev_b16": Bits, |run, s| shift16(run, s, op::SHL, false);
    "v_lshrrev_b16": Bits, |run, s| shift16(run, s, op::SHR, false);
    "v_ashrrev_i16": Bits, |run, s| shift16(run, s, op::SAR, true);
    "v_cvt_f32_i32": Bits, |run, s| { let a = raw(run, s, 0); let v = run.unary(op::I32_TO_F32, a); result(run, s, v) };
}
