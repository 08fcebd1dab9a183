//! Long chains of integer and float operations.

use super::case::{Case, Gpu, Run};
use super::data::Tolerance::{Near, Ulps};
use super::elementwise::binary;
use super::rng::Rng;

const SOURCE: &str = "numeric.cu";

/// The first 32 bits of the fractions of the roots of the first primes: how SHA-256's numbers are defined.
fn root_bits(count: usize, root: fn(f64) -> f64) -> Vec<u32> {
    let prime = |n: &u32| !(2..*n).any(|d| n.is_multiple_of(d));
    (2..).filter(prime).take(count).map(|p| (root(f64::from(p)).fract() * 4_294_967_296.0) as u32).collect()
}

fn sha256(words: &[u32], keys: &[u32]) -> Vec<u32> {
    let mut w = words.to_vec();
    for t in 16..64 {
        let small = |x: u32, a: u32, b: u32, c: u32| x.rotate_right(a) ^ x.rotate_right(b) ^ x >> c;
        let sum = small(w[t - 15], 7, 18, 3).wrapping_add(small(w[t - 2], 17, 19, 10));
        w.push(w[t - 16].wrapping_add(w[t - 7]).wrapping_add(sum));
    }
    let start = root_bits(8, f64::sqrt);
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = <[u32; 8]>::try_from(start.as_slice()).unwrap();
    for t in 0..64 {
        let big = |x: u32, p, q, r| x.rotate_right(p) ^ x.rotate_right(q) ^ x.rotate_right(r);
        let first = [big(e, 6, 11, 25), (e & f) ^ (!e & g), keys[t], w[t]].iter().fold(h, |sum, x| sum.wrapping_add(*x));
        let second = big(a, 2, 13, 22).wrapping_add((a & b) ^ (a & c) ^ (b & c));
        (h, g, f, e, d, c, b, a) = (g, f, e, d.wrapping_add(first), c, b, a, first.wrapping_add(second));
    }
    start.iter().zip([a, b, c, d, e, f, g, h]).map(|(x, y)| x.wrapping_add(y)).collect()
}

fn crc32(bytes: &[u8]) -> u32 {
    // By the table, as programs do it; the kernel goes bit by bit.
    let table: Vec<u32> = (0..256).map(|n| (0..8).fold(n, |c: u32, _| if c & 1 == 1 { 0xedb8_8320 ^ c >> 1 } else { c >> 1 })).collect();
    !bytes.iter().fold(!0, |crc, byte| table[usize::from(crc as u8 ^ byte)] ^ crc >> 8)
}

fn power_mod(base: u64, exponent: u32, modulus: u64) -> u64 {
    let (mut result, mut square) = (1u128, u128::from(base % modulus));
    for bit in 0..32 {
        if exponent >> bit & 1 == 1 {
            result = result * square % u128::from(modulus);
        }
        square = square * square % u128::from(modulus);
    }
    result as u64
}

/// Days since the calendar's beginning, counted by walking over the years.
fn julian_day(year: i32, month: i32, day: i32) -> i32 {
    let leap = |y: i32| y % 4 == 0 && (y % 100 != 0 || y % 400 == 0);
    let lengths = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let years: i32 = (2000..year).map(|y| if leap(y) { 366 } else { 365 }).sum::<i32>()
        - (year..2000).map(|y| if leap(y) { 366 } else { 365 }).sum::<i32>();
    let months: i32 = lengths[..month as usize - 1].iter().sum::<i32>() + i32::from(month > 2 && leap(year));
    // The first of January 2000 is day 2451545.
    2_451_545 + years + months + day - 1
}

pub fn cases() -> Vec<Case> {
    let case = |kernel: &'static str, make: fn(&mut Rng, &Gpu) -> Run| Case::new(kernel, SOURCE, make);
    let any64 = |r: &mut Rng, n: usize| (r.many(n), r.many(n));
    vec![
        case("sha256", |r, _| {
            let n = r.range(20, 150);
            let (x, keys): (Vec<u32>, _) = (r.many(16 * n), root_bits(64, f64::cbrt));
            let expected: Vec<u32> = x.chunks(16).flat_map(|words| sha256(words, &keys)).collect();
            Run::flat(n).global("sha_keys", &keys).input(&x).exact(&expected).n(n)
        }),
        case("crc32", |r, _| {
            let (n, length) = (r.range(20, 200), r.range(1, 40));
            let x: Vec<u8> = r.many(n * length);
            Run::flat(n).input(&x).exact(&x.chunks(length).map(crc32).collect::<Vec<_>>()).n(length).n(n)
        }),
        case("xorshift", |r, _| {
            let rounds = r.range(1, 50);
            let x: Vec<u64> = r.many(200);
            let step = |x: u64| {
                let x = x ^ x >> 12;
                let x = x ^ x << 25;
                x ^ x >> 27
            };
            let expected: Vec<u64> =
                x.iter().map(|x| (0..rounds).fold(*x, |x, _| step(x)).wrapping_mul(2_685_821_657_736_338_717)).collect();
            Run::flat(200).input(&x).exact(&expected).n(rounds).n(200)
        }),
        case("power_mod", |r, _| {
            let n = 40;
            let (base, exponent): (Vec<u64>, Vec<u32>) = (r.many(n), (0..n).map(|_| r.below(200) as u32).collect());
            let modulus: Vec<u64> = (0..n).map(|_| (r.next() >> (1 + r.below(40))) | 1).collect();
            let expected: Vec<u64> = (0..n)
                .map(|i| if modulus[i] == 1 { u64::from(exponent[i] == 0) } else { power_mod(base[i], exponent[i], modulus[i]) })
                .collect();
            Run::flat(n).input(&base).input(&exponent).input(&modulus).exact(&expected).n(n)
        }),
        case("gcd_i64", |r, _| {
            let make = |r: &mut Rng| (r.next() >> (2 + r.below(50))) as i64 * if r.below(2) == 0 { 1 } else { -1 };
            let (a, b): (Vec<i64>, Vec<i64>) = (0..200).map(|_| (make(r), make(r))).unzip();
            fn gcd(a: u64, b: u64) -> u64 {
                if b == 0 { a } else { gcd(b, a % b) }
            }
            let expected: Vec<i64> = a.iter().zip(&b).map(|(a, b)| gcd(a.unsigned_abs(), b.unsigned_abs()) as i64).collect();
            Run::flat(200).input(&a).input(&b).exact(&expected).n(200)
        }),
        binary("product_128", SOURCE, any64, |a: u64, b: u64| ((u128::from(a) * u128::from(b)) >> 37) as u64),
        binary(
            "difference_128",
            SOURCE,
            |r, n| (r.many(n), r.many(n)),
            |a: i64, b: i64| {
                if (i128::from(a) << 20) - (i128::from(b) << 19) > 0 { 1 } else { -1 }
            },
        ),
        case("newton_sqrt_f64", |r, _| {
            let x = r.f64s(200, 0.01, 1e6);
            Run::flat(200).input(&x).close::<f64>(x.iter().map(|x| x.sqrt()).collect(), Ulps(2.0)).n(200)
        }),
        case("horner_f64", |r, _| {
            let degree = r.range(1, 20);
            let (x, c) = (r.f64s(200, -1.0, 1.0), r.f64s(degree + 1, -1.0, 1.0));
            let expected: Vec<f64> = x.iter().map(|x| c.iter().rev().fold(0.0f64, |sum, c| sum.mul_add(*x, *c))).collect();
            Run::flat(200).input(&x).input(&c).exact(&expected).n(degree).n(200)
        }),
        case("kahan_f32", |r, _| {
            let (rows, columns) = (r.range(1, 100), r.range(10, 200));
            let x = r.f32s(rows * columns, 0.0, 1.0);
            let expected = x.chunks(columns).map(|row| row.iter().map(|x| f64::from(*x)).sum()).collect();
            Run::flat(rows).input(&x).close::<f32>(expected, Ulps(1.0)).n(columns).n(rows)
        }),
        case("nbody_f64", |r, _| {
            let n = r.range(10, 120);
            let (x, y, mass) = (r.f64s(n, -1.0, 1.0), r.f64s(n, -1.0, 1.0), r.f64s(n, 0.1, 1.0));
            let force = |i: usize| {
                let one = |j: usize| {
                    let (dx, dy) = (x[j] - x[i], y[j] - y[i]);
                    mass[j] * dx / (dx * dx + dy * dy + 0.01).powf(1.5)
                };
                (0..n).map(one).sum()
            };
            let expected = (0..n).map(force).collect();
            Run::flat(n).input(&x).input(&y).input(&mass).close::<f64>(expected, Near(1e-11, 1e-10)).n(n)
        }),
        case("denormals_f32", |r, _| {
            let x: Vec<f32> = (0..200).map(|_| f32::from_bits(r.below(0x0100_0000) as u32)).collect();
            let expected = x.iter().map(|x| f64::from(*x) * 1.5).collect();
            Run::flat(200).input(&x).close::<f32>(expected, Ulps(1.0)).n(200)
        }),
        case("denormals_f64", |r, _| {
            let x: Vec<f64> = (0..200).map(|_| f64::from_bits(r.next() >> 10)).collect();
            let expected: Vec<f64> = x.iter().map(|x| x * 0.5).collect();
            Run::flat(200).input(&x).exact(&expected).n(200)
        }),
        case("quantized_dot", |r, _| {
            let (rows, blocks) = (r.range(1, 90), r.range(1, 6));
            let packed: Vec<u8> = r.many(rows * blocks * 16);
            let (scales, x) = (r.f32s(rows * blocks, 0.01, 0.1), r.f32s(blocks * 32, -1.0, 1.0));
            let weight = |row: usize, e: usize| {
                let byte = packed[(row * blocks + e / 32) * 16 + e % 16];
                f64::from(if e % 32 < 16 { byte & 15 } else { byte >> 4 }) - 8.0
            };
            let dot =
                |row: usize| (0..blocks * 32).map(|e| weight(row, e) * f64::from(scales[row * blocks + e / 32]) * f64::from(x[e])).sum();
            let expected = (0..rows).map(dot).collect();
            Run::flat(rows).input(&packed).input(&scales).input(&x).close::<f32>(expected, Near(1e-5, 1e-4)).n(blocks).n(rows)
        }),
        case("julian_day", |r, _| {
            let (year, month, day): (Vec<i32>, Vec<i32>, Vec<i32>) = (
                (0..300).map(|_| 1600 + r.below(900) as i32).collect(),
                (0..300).map(|_| 1 + r.below(12) as i32).collect(),
                (0..300).map(|_| 1 + r.below(28) as i32).collect(),
            );
            let expected: Vec<i32> = (0..300).map(|i| julian_day(year[i], month[i], day[i])).collect();
            Run::flat(300).input(&year).input(&month).input(&day).exact(&expected).n(300)
        }),
    ]
}
