//! f16 and bf16. Sums, products, quotients and roots rounded to f32 first and then to 16 bits are correctly rounded: f32 has more than
//! twice their digits.

use half::{bf16, f16};

use super::case::{Case, Run};
use super::data::Tolerance::Ulps;
use super::data::{Elem, ROUNDED};
use super::elementwise::{binary, binary_near, unary, unary_near};
use super::rng::Rng;

const HALF: &str = "half_math.cu";
const BFLOAT: &str = "bfloat_math.cu";

fn halves(r: &mut Rng, n: usize) -> Vec<f16> {
    r.f16s(n, -60.0, 60.0)
}

/// Denormals and infinities too; no NaN.
fn any_halves(r: &mut Rng, n: usize) -> Vec<f16> {
    let one = |r: &mut Rng| f16::from_bits(r.next() as u16);
    (0..n).map(|_| one(r)).map(|x| if x.is_nan() { f16::ONE } else { x }).collect()
}

fn bfloats(r: &mut Rng, n: usize) -> Vec<bf16> {
    r.bf16s(n, -60.0, 60.0)
}

fn h(x: f32) -> f16 {
    f16::from_f32(x)
}

fn b(x: f32) -> bf16 {
    bf16::from_f32(x)
}

/// a b + c with one rounding.
fn fused<T: Elem>(kernel: &str, source: &'static str, pairs: usize, inputs: fn(&mut Rng, usize) -> Vec<T>) -> Case {
    Case::new(kernel, source, move |rng, _| {
        let n = rng.range(200, 500);
        let [x, y, z] = [0; 3].map(|_| inputs(rng, n * pairs));
        let expected = (0..n * pairs).map(|i| x[i].wide() * y[i].wide() + z[i].wide()).collect();
        Run::flat(n).input(&x).input(&y).input(&z).close::<T>(expected, Ulps(0.51)).n(n)
    })
}

/// Kernels that work on pairs: n counts pairs.
fn pairs<T: Elem>(kernel: &str, source: &'static str, inputs: fn(&mut Rng, usize) -> Vec<T>, reference: fn(T, T) -> T) -> Case {
    Case::new(kernel, source, move |rng, _| {
        let n = rng.range(200, 500);
        let (x, y) = (inputs(rng, 2 * n), inputs(rng, 2 * n));
        let expected: Vec<T> = x.iter().zip(&y).map(|(x, y)| reference(*x, *y)).collect();
        Run::flat(n).input(&x).input(&y).exact(&expected).n(n)
    })
}

fn half_cases() -> Vec<Case> {
    let two = |r: &mut Rng, n: usize| (halves(r, n), halves(r, n));
    let positive = |r: &mut Rng, n: usize| r.f16s(n, 0.01, 1000.0);
    vec![
        binary("add_f16", HALF, two, |x: f16, y| h(x.to_f32() + y.to_f32())),
        binary("sub_f16", HALF, two, |x: f16, y| h(x.to_f32() - y.to_f32())),
        binary("mul_f16", HALF, two, |x: f16, y| h(x.to_f32() * y.to_f32())),
        binary_near::<f16>("div_f16", HALF, |r, n| (halves(r, n), r.f16s(n, 0.1, 60.0)), |x, y| x / y, ROUNDED),
        binary_near::<f16>("min_f16", HALF, |r, n| (any_halves(r, n), any_halves(r, n)), f64::min, ROUNDED),
        binary_near::<f16>("max_f16", HALF, |r, n| (any_halves(r, n), any_halves(r, n)), f64::max, ROUNDED),
        fused::<f16>("fma_f16", HALF, 1, halves),
        unary("neg_f16", HALF, any_halves, |x: f16| -x),
        unary("abs_f16", HALF, any_halves, |x: f16| f16::from_bits(x.to_bits() & 0x7fff)),
        unary_near::<f16, f16>("exp_f16", HALF, |r, n| r.f16s(n, -10.0, 11.0), f64::exp, Ulps(0.51)),
        unary_near::<f16, f16>("log_f16", HALF, positive, f64::ln, Ulps(0.51)),
        unary_near::<f16, f16>("sin_f16", HALF, |r, n| r.f16s(n, -20.0, 20.0), f64::sin, Ulps(0.51)),
        unary_near::<f16, f16>("sqrt_f16", HALF, positive, f64::sqrt, Ulps(0.51)),
        unary_near::<f16, f16>("rsqrt_f16", HALF, positive, |x| 1.0 / x.sqrt(), Ulps(0.51)),
        unary_near::<f16, f16>("rcp_f16", HALF, positive, |x| 1.0 / x, Ulps(0.51)),
        unary("floor_f16", HALF, halves, |x: f16| h(x.to_f32().floor())),
        unary("ceil_f16", HALF, halves, |x: f16| h(x.to_f32().ceil())),
        unary("rint_f16", HALF, halves, |x: f16| h(x.to_f32().round_ties_even())),
        unary("trunc_f16", HALF, halves, |x: f16| h(x.to_f32().trunc())),
        binary(
            "compare_f16",
            HALF,
            |r, n| (any_halves(r, n), any_halves(r, n)),
            |x: f16, y: f16| i32::from(x < y) | i32::from(x == y) << 1 | i32::from(x > y) << 2 | i32::from(x != y) << 3,
        ),
        pairs("add_f16x2", HALF, halves, |x, y| h(x.to_f32() + y.to_f32())),
        pairs("mul_f16x2", HALF, halves, |x, y| h(x.to_f32() * y.to_f32())),
        pairs("max_f16x2", HALF, halves, |x, y| if x < y { y } else { x }),
        fused::<f16>("fma_f16x2", HALF, 2, halves),
        Case::new("swap_f16x2", HALF, |r, _| {
            let x = any_halves(r, 600);
            let swapped: Vec<f16> = (0..600).map(|i| x[i ^ 1]).collect();
            Run::flat(300).input(&x).exact(&swapped).n(300)
        }),
        Case::new("mixed_fma_f16", HALF, |r, _| {
            let (x, y, z) = (halves(r, 300), halves(r, 300), r.f32s(300, -10.0, 10.0));
            let expected = (0..300).map(|i| x[i].wide() * y[i].wide() + z[i].wide()).collect();
            Run::flat(300).input(&x).input(&y).update_close(&z, expected, ROUNDED).n(300)
        }),
    ]
}

fn bfloat_cases() -> Vec<Case> {
    let two = |r: &mut Rng, n: usize| (bfloats(r, n), bfloats(r, n));
    vec![
        binary("add_bf16", BFLOAT, two, |x: bf16, y| b(x.to_f32() + y.to_f32())),
        binary("sub_bf16", BFLOAT, two, |x: bf16, y| b(x.to_f32() - y.to_f32())),
        binary("mul_bf16", BFLOAT, two, |x: bf16, y| b(x.to_f32() * y.to_f32())),
        binary("div_bf16", BFLOAT, |r, n| (bfloats(r, n), r.bf16s(n, 0.1, 60.0)), |x: bf16, y| b(x.to_f32() / y.to_f32())),
        binary("min_bf16", BFLOAT, two, |x: bf16, y| if y < x { y } else { x }),
        binary("max_bf16", BFLOAT, two, |x: bf16, y| if x < y { y } else { x }),
        fused::<bf16>("fma_bf16", BFLOAT, 1, bfloats),
        unary("neg_bf16", BFLOAT, bfloats, |x: bf16| -x),
        unary("abs_bf16", BFLOAT, bfloats, |x: bf16| bf16::from_bits(x.to_bits() & 0x7fff)),
        unary_near::<bf16, bf16>("exp_bf16", BFLOAT, bfloats, f64::exp, Ulps(0.51)),
        unary("relu_bf16", BFLOAT, bfloats, |x: bf16| if x > bf16::ZERO { x } else { bf16::ZERO }),
        pairs("add_bf16x2", BFLOAT, bfloats, |x, y| b(x.to_f32() + y.to_f32())),
        pairs("mul_bf16x2", BFLOAT, bfloats, |x, y| b(x.to_f32() * y.to_f32())),
    ]
}

pub fn cases() -> Vec<Case> {
    [half_cases(), bfloat_cases()].into_iter().flatten().collect()
}
