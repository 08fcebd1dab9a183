//! Instructions on the bytes of a lane: dot products and permutations.

use super::op;
use super::operands::{raw, result};
use super::valu::{Emit, Values, emitters};
use super::vector::{Run, V};
use crate::exec::decoded::Step;

/// Returns the even and the odd bytes as 16-bit integers. `v` is not used any more.
fn words(run: &mut Run<'_>, v: V, signed: bool) -> [V; 2] {
    let even = if signed {
        let up = run.immediate(op::SHL_16_IMM, v, 8);
        let even = run.immediate(op::SAR_16_IMM, up, 8);
        run.release(up);
        even
    } else {
        let mask = run.constant(0x00ff_00ff);
        run.binary(op::AND, v, mask)
    };
    let odd = run.immediate(if signed { op::SAR_16_IMM } else { op::SHR_16_IMM }, v, 8);
    run.release(v);
    [even, odd]
}

/// Adds the products of four bytes to `c`; sums wrap.
fn dot4(run: &mut Run<'_>, s: &Step, signed: [bool; 2], c: impl Fn(&mut Run<'_>) -> V) {
    let [a, b] = [0, 1].map(|n| {
        let v = raw(run, s, n);
        words(run, v, signed[n])
    });
    let mut sum = c(run);
    for n in 0..2 {
        // Two products, each of at most 17 bits.
        let products = run.binary(op::MULTIPLY_ADD_16, a[n], b[n]);
        run.release(a[n]);
        run.release(b[n]);
        sum = run.binary(op::ADD_I32, sum, products);
        run.release(products);
    }
    result(run, s, sum);
}

/// Selectors of `v_perm_b32` from this one on give a byte of ones.
const ONES: u32 = 13;

/// Returns a table of bytes for each selector up to [`ONES`]; a register of the CPU has it in each 128 bits.
fn of_selector(run: &mut Run<'_>, byte: impl Fn(u32) -> u32) -> V {
    run.table(|lane| (0..4).fold(0, |word, n| word | byte((4 * (lane % 4) + n).min(ONES)) << (8 * n)))
}

/// `v_perm_b32`: each byte is one of eight, a sign of them, or a constant.
fn permute(run: &mut Run<'_>, s: &Step) {
    /// As the index of a byte: zero.
    const NONE: u32 = 0x80;
    let (selector, most) = (raw(run, s, 2), run.constant(ONES * 0x0101_0101));
    let selector = run.binary(op::MIN_U8, selector, most);
    run.release(most);
    let constants = of_selector(run, |selector| if selector == ONES { 0xff } else { 0 });
    let mut v = run.binary(op::SHUFFLE_BYTES, constants, selector);
    run.release(constants);
    // The lane's first byte in its 128 bits.
    let first = run.table(|lane| lane % 4 * 0x0404_0404);
    for (source, low, sign) in [(1, 0, 8), (0, 4, 10)] {
        for signs in [false, true] {
            let indexes = of_selector(run, |selector| match selector {
                _ if !signs && (low..low + 4).contains(&selector) => selector - low,
                // The signs of the upper bytes of both words.
                _ if signs && (sign..sign + 2).contains(&selector) => 2 * (selector - sign),
                _ => NONE,
            });
            let chosen = run.binary(op::SHUFFLE_BYTES, indexes, selector);
            run.release(indexes);
            let index = run.binary(op::OR, chosen, first);
            run.release(chosen);
            let mut from = raw(run, s, source);
            if signs {
                from = run.immediate(op::SAR_16_IMM, from, 15);
            }
            let bytes = run.binary(op::SHUFFLE_BYTES, from, index);
            run.release(index);
            run.release(from);
            let both = run.binary(op::OR, v, bytes);
            run.release(bytes);
            run.release(v);
            v = both;
        }
    }
    result(run, s, v);
}

emitters! {
    "v_dot4_i32_i8": Bits, |run, s| dot4(run, s, [true; 2], |run| raw(run, s, 2));
    "v_dot4c_i32_i8": Bits, |run, s| dot4(run, s, [true; 2], |run| run.vgpr(s.inst.dst));
    "v_dot4_u32_u8": Bits, |run, s| dot4(run, s, [false; 2], |run| raw(run, s, 2));
    "v_dot4_i32_iu8": Typed, |run, s| dot4(run, s, [0, 1].map(|n| s.inst.neg >> n & 1 != 0), |run| raw(run, s, 2));
    "v_perm_b32": Bits, |run, s| permute(run, s);
    "v_alignbyte_b32": Bits, |run, s| {
        let (high, low, by, all) = (raw(run, s, 0), raw(run, s, 1), raw(run, s, 2), run.constant(32));
        let bytes = run.constant(3);
        let by = run.binary(op::AND, by, bytes);
        let by = run.immediate(op::SHL_IMM, by, 3);
        let low = run.binary(op::SHR, low, by);
        let up = run.binary(op::SUB_I32, all, by);
        // The CPU shifts by 32 to 0.
        let high = run.binary(op::SHL, high, up);
        let v = run.binary(op::OR, low, high);
        result(run, s, v)
    };
}
