//! Integers of every width, intrinsics, and SIMD-in-a-word operations.

use super::case::Case;
use super::elementwise::{binary, ternary, unary};
use super::rng::{Any, Rng};

const BITS: &str = "bits.cu";
const VIDEO: &str = "video.cu";

fn two<T: Any>(r: &mut Rng, n: usize) -> (Vec<T>, Vec<T>) {
    (r.many(n), r.many(n))
}

fn three<T: Any>(r: &mut Rng, n: usize) -> [Vec<T>; 3] {
    [r.many(n), r.many(n), r.many(n)]
}

/// Arithmetic of one type. Operands of less than 32 bits are widened, so only the result is cut off.
macro_rules! arithmetic {
    ($cases:ident, $($ty:ident)*) => { $({
        const SOURCE: &str = "integers.cu";
        const BITS: u32 = <$ty>::BITS - 1;
        let name = |operation: &str| format!("{operation}_{}", stringify!($ty));
        let divisors = |r: &mut Rng, n: usize| {
            let b: Vec<$ty> = r.many(n);
            // The lowest number by -1 has no result.
            let fits = |a: $ty, b: $ty| b != 0 && a.checked_div(b).is_some();
            let a: Vec<$ty> = r.many(n);
            let b = a.iter().zip(b).map(|(a, b)| if fits(*a, b) { b } else { 3 }).collect();
            (a, b)
        };
        $cases.extend([
            binary(name("add"), SOURCE, two::<$ty>, |a, b| a.wrapping_add(b)),
            binary(name("sub"), SOURCE, two::<$ty>, |a, b| a.wrapping_sub(b)),
            binary(name("mul"), SOURCE, two::<$ty>, |a, b| a.wrapping_mul(b)),
            binary(name("div"), SOURCE, divisors, |a, b| a / b),
            binary(name("rem"), SOURCE, divisors, |a, b| a % b),
            binary(name("min"), SOURCE, two::<$ty>, |a, b| a.min(b)),
            binary(name("max"), SOURCE, two::<$ty>, |a, b| a.max(b)),
            binary(name("logic"), SOURCE, two::<$ty>, |a, b| (a & b) ^ (a | !b)),
            binary(name("shl"), SOURCE, two::<$ty>, |a, b| a << (b as u32 & BITS)),
            binary(name("shr"), SOURCE, two::<$ty>, |a, b| a >> (b as u32 & BITS)),
            binary(name("compare"), SOURCE, |r, n| {
                let (a, mut b) = two::<$ty>(r, n);
                for i in (0..n).step_by(4) {
                    b[i] = a[i];
                }
                (a, b)
            }, |a, b| i32::from(a < b) | i32::from(a <= b) << 1 | i32::from(a == b) << 2 | i32::from(a > b) << 3),
        ]);
    })* };
}

fn bits() -> Vec<Case> {
    vec![
        unary("clz32", BITS, |r, n| r.many::<i32>(n), |x| x.leading_zeros() as i32),
        unary("clz64", BITS, |r, n| r.many::<i64>(n), |x| x.leading_zeros() as i32),
        unary("ffs32", BITS, |r, n| r.many::<i32>(n), |x| if x == 0 { 0 } else { x.trailing_zeros() as i32 + 1 }),
        unary("ffs64", BITS, |r, n| r.many::<i64>(n), |x| if x == 0 { 0 } else { x.trailing_zeros() as i32 + 1 }),
        unary("popc32", BITS, |r, n| r.many::<u32>(n), |x| x.count_ones() as i32),
        unary("popc64", BITS, |r, n| r.many::<u64>(n), |x| x.count_ones() as i32),
        unary("brev32", BITS, |r, n| r.many::<u32>(n), u32::reverse_bits),
        unary("brev64", BITS, |r, n| r.many::<u64>(n), u64::reverse_bits),
        unary("byte_swap32", BITS, |r, n| r.many::<u32>(n), u32::swap_bytes),
        binary("mulhi_i32", BITS, two, |a: i32, b: i32| ((i64::from(a) * i64::from(b)) >> 32) as i32),
        binary("mulhi_u32", BITS, two, |a: u32, b: u32| ((u64::from(a) * u64::from(b)) >> 32) as u32),
        binary("mulhi_i64", BITS, two, |a: i64, b: i64| ((i128::from(a) * i128::from(b)) >> 64) as i64),
        binary("mulhi_u64", BITS, two, |a: u64, b: u64| ((u128::from(a) * u128::from(b)) >> 64) as u64),
        binary("mul24_i32", BITS, two, |a: i32, b: i32| (a << 8 >> 8).wrapping_mul(b << 8 >> 8)),
        binary("mul24_u32", BITS, two, |a: u32, b: u32| (a & 0xff_ffff).wrapping_mul(b & 0xff_ffff)),
        binary("hadd_i32", BITS, two, |a: i32, b: i32| ((i64::from(a) + i64::from(b)) >> 1) as i32),
        binary("rhadd_i32", BITS, two, |a: i32, b: i32| ((i64::from(a) + i64::from(b) + 1) >> 1) as i32),
        binary("uhadd_u32", BITS, two, |a: u32, b: u32| ((u64::from(a) + u64::from(b)) >> 1) as u32),
        ternary("funnel_l", BITS, three, |a: u32, b, c| ((join(a, b) << (c & 31)) >> 32) as u32),
        ternary("funnel_lc", BITS, shifts, |a: u32, b, c| ((join(a, b) << c.min(32)) >> 32) as u32),
        ternary("funnel_r", BITS, three, |a: u32, b, c| (join(a, b) >> (c & 31)) as u32),
        ternary("funnel_rc", BITS, shifts, |a: u32, b, c| (join(a, b) >> c.min(32)) as u32),
        ternary("byte_perm", BITS, three, byte_perm),
        ternary("dp4a_i32", BITS, three, |a: i32, b: i32, c: i32| {
            let products = a.to_le_bytes().into_iter().zip(b.to_le_bytes()).map(|(a, b)| i32::from(a as i8) * i32::from(b as i8));
            products.fold(c, i32::wrapping_add)
        }),
        ternary("dp4a_u32", BITS, three, |a: u32, b: u32, c: u32| {
            let products = a.to_le_bytes().into_iter().zip(b.to_le_bytes()).map(|(a, b)| u32::from(a) * u32::from(b));
            products.fold(c, u32::wrapping_add)
        }),
        ternary("dp2a_lo_i32", BITS, three, |a: i32, b: i32, c: i32| dp2a(a, b, c, 0)),
        ternary("dp2a_hi_i32", BITS, three, |a: i32, b: i32, c: i32| dp2a(a, b, c, 2)),
        ternary("usad_u32", BITS, three, |a: u32, b, c| a.abs_diff(b).wrapping_add(c)),
        ternary("bfe_u32", BITS, three, |a: u32, b, c| (a >> (b & 31)) & ((1 << (c & 31)) - 1)),
        ternary("bfi_u32", BITS, three, |a: u32, b, c| (a & b) | (!a & c)),
        unary("bfe_fixed_i32", BITS, |r, n| r.many::<i32>(n), |x| x << 7 >> 20),
        binary("rotate_u32", BITS, two, |a: u32, b: u32| a.rotate_left(b & 31)),
        binary("rotate_u64", BITS, two, |a: u64, b: u64| a.rotate_left((b & 63) as u32)),
        binary("add_saturate_u32", BITS, two, u32::saturating_add),
        binary("widening_mul_u32", BITS, two, |a: u32, b: u32| u64::from(a) * u64::from(b)),
        binary("widening_mul_i32", BITS, two, |a: i32, b: i32| i64::from(a) * i64::from(b)),
        ternary("add3_u32", BITS, three, |a: u32, b, c| a.wrapping_add(b).wrapping_add(c)),
        ternary("xor_add_u32", BITS, three, |a: u32, b, c| (a ^ b).wrapping_add(c)),
        ternary("median_i32", BITS, three, |a: i32, b, c| {
            let mut sorted = [a, b, c];
            sorted.sort_unstable();
            sorted[1]
        }),
        ternary("mad_u64", BITS, three, |a: u64, b, c| a.wrapping_mul(b).wrapping_add(c)),
    ]
}

fn join(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// Shift amounts on both sides of 32.
fn shifts(r: &mut Rng, n: usize) -> [Vec<u32>; 3] {
    [r.many(n), r.many(n), (0..n).map(|_| r.below(40) as u32).collect()]
}

fn byte_perm(x: u32, y: u32, selector: u32) -> u32 {
    let bytes = join(x, y).to_le_bytes();
    let pick = |i: usize| {
        let nibble = selector >> (4 * i) & 15;
        let byte = bytes[(nibble & 7) as usize];
        if nibble < 8 {
            byte
        } else if byte < 128 {
            0
        } else {
            255
        }
    };
    u32::from_le_bytes([pick(0), pick(1), pick(2), pick(3)])
}

fn dp2a(a: i32, b: i32, c: i32, first: usize) -> i32 {
    let bytes = b.to_le_bytes().map(|byte| i32::from(byte as i8));
    let product = (a as i16 as i32).wrapping_mul(bytes[first]).wrapping_add((a >> 16).wrapping_mul(bytes[first + 1]));
    c.wrapping_add(product)
}

/// Each part of two words, widened.
fn parts<const WIDTH: u32, const SIGNED: bool>(a: u32, b: u32, f: impl Fn(i32, i32) -> i32) -> u32 {
    let part = |word: u32, at: u32| {
        let raw = (word >> at) & (u32::MAX >> (32 - WIDTH));
        if SIGNED && raw >> (WIDTH - 1) == 1 { raw as i32 - (1 << WIDTH) } else { raw as i32 }
    };
    let places = (0..32).step_by(WIDTH as usize);
    places.map(|at| (f(part(a, at), part(b, at)) as u32 & (u32::MAX >> (32 - WIDTH))) << at).sum()
}

fn video() -> Vec<Case> {
    vec![
        binary("vadd2", VIDEO, two, |a, b| parts::<16, false>(a, b, |x, y| x + y)),
        binary("vadd4", VIDEO, two, |a, b| parts::<8, false>(a, b, |x, y| x + y)),
        binary("vaddss2", VIDEO, two, |a, b| parts::<16, true>(a, b, |x, y| (x + y).clamp(-32768, 32767))),
        binary("vaddus4", VIDEO, two, |a, b| parts::<8, false>(a, b, |x, y| (x + y).min(255))),
        binary("vsub4", VIDEO, two, |a, b| parts::<8, false>(a, b, |x, y| x - y)),
        binary("vsubss4", VIDEO, two, |a, b| parts::<8, true>(a, b, |x, y| (x - y).clamp(-128, 127))),
        binary("vsubus2", VIDEO, two, |a, b| parts::<16, false>(a, b, |x, y| (x - y).max(0))),
        binary("vavgu4", VIDEO, two, |a, b| parts::<8, false>(a, b, |x, y| (x + y + 1) / 2)),
        binary("vabsdiffu4", VIDEO, two, |a, b| parts::<8, false>(a, b, |x, y| (x - y).abs())),
        binary("vabsdiffs2", VIDEO, two, |a, b| parts::<16, true>(a, b, |x, y| (x - y).abs())),
        binary("vmaxs2", VIDEO, two, |a, b| parts::<16, true>(a, b, i32::max)),
        binary("vmins4", VIDEO, two, |a, b| parts::<8, true>(a, b, i32::min)),
        binary("vmaxu4", VIDEO, two, |a, b| parts::<8, false>(a, b, i32::max)),
        binary("vcmpgts4", VIDEO, two, |a, b| parts::<8, true>(a, b, |x, y| if x > y { -1 } else { 0 })),
        binary(
            "vcmpeq2",
            VIDEO,
            |r, n| (vec![0x0001_0002; n], (0..n).map(|_| [0x1_0002, 0x1_0003, 0x2_0002, 0][r.below(4)]).collect()),
            |a, b| parts::<16, false>(a, b, |x, y| if x == y { -1 } else { 0 }),
        ),
        binary("vsetltu4", VIDEO, two, |a, b| parts::<8, false>(a, b, |x, y| i32::from(x < y))),
        binary("vsadu4", VIDEO, two, |a: u32, b: u32| {
            a.to_le_bytes().into_iter().zip(b.to_le_bytes()).map(|(x, y)| u32::from(x.abs_diff(y))).sum::<u32>()
        }),
        unary("vabsss4", VIDEO, |r, n| r.many::<u32>(n), |x| parts::<8, true>(x, 0, |x, _| x.abs().min(127))),
        unary("vneg2", VIDEO, |r, n| r.many::<u32>(n), |x| parts::<16, true>(x, 0, |x, _| -x)),
    ]
}

pub fn cases() -> Vec<Case> {
    let mut cases = [bits(), video()].into_iter().flatten().collect::<Vec<_>>();
    arithmetic!(cases, u8 i8 u16 i16 u32 i32 u64 i64);
    cases
}
