//! Function calls.

use bytemuck::{Pod, Zeroable};

use super::case::{Case, Gpu, Run};
use super::data::ROUNDED;
use super::data::Tolerance::Ulps;
use super::rng::Rng;

const SOURCE: &str = "calls.cu";

fn apply(which: i32, a: f32, b: f32) -> f32 {
    match which {
        0 => a + b,
        1 => a * b,
        2 => a.min(b),
        _ => a / b,
    }
}

fn integers(kernel: &'static str, make: fn(&mut Rng) -> i32, reference: fn(i32, i32) -> i32) -> Case {
    Case::new(kernel, SOURCE, move |r, _| {
        let n = r.range(100, 400);
        let x: Vec<i32> = (0..n).map(|_| make(r)).collect();
        let expected: Vec<i32> = x.iter().zip(0..).map(|(x, i)| reference(*x, i)).collect();
        Run::flat(n).input(&x).exact(&expected).n(n)
    })
}

fn many_arguments(x: i32, _: i32) -> i32 {
    let letters: i32 = (0..26).map(|j| (j + 1) * (x + j)).sum();
    let rest: i32 = (0..5).map(|j| (29 + j) * (x - 1 - j)).sum();
    letters + ((i64::from(x) << 4) >> 3) as i32 + (f64::from(x) * 0.5) as i32 + rest
}

fn fibonacci(n: i32, _: i32) -> i32 {
    (0..n).fold((0, 1), |(a, b), _| (b, a + b)).0
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Shape {
    kind: i32,
    a: f32,
    b: f32,
}

fn area(shape: &Shape) -> f64 {
    let (a, b) = (f64::from(shape.a), f64::from(shape.b));
    match shape.kind {
        0 => a * a,
        1 => a * b,
        2 => 0.5 * a * b,
        3 => 3.0 * a,
        4 => a - b,
        5 => b.abs(),
        6 => b / 2.0,
        7 => -a,
        _ => 0.0,
    }
}

pub fn cases() -> Vec<Case> {
    let case = |kernel: &'static str, make: fn(&mut Rng, &Gpu) -> Run| Case::new(kernel, SOURCE, make);
    let small = |r: &mut Rng| r.below(20001) as i32 - 10000;
    vec![
        integers("call_simple", small, |x, i| 2 * x + 2 * i + x / 2),
        case("call_struct", |r, _| {
            let x = r.f32s(900, -9.0, 9.0);
            let expected = x.chunks(3).map(|v| v.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>().sqrt()).collect();
            Run::flat(300).input(&x).close::<f32>(expected, Ulps(2.0)).n(300)
        }),
        case("call_big_struct", |r, _| {
            let x: Vec<i32> = r.many(300);
            let expected: Vec<f64> = x.iter().zip(0..).map(|(x, i)| (i64::from(*x) * (i % 6 + 1)) as f64 + i as f64 * 0.5).collect();
            Run::flat(300).input(&x).exact(&expected).n(300)
        }),
        integers("call_many_arguments", small, many_arguments),
        integers("call_recursive", |r| r.below(11) as i32, fibonacci),
        integers("call_mutual", |r| r.below(25) as i32, |x, _| if x % 2 == 0 { 2 } else { 1 }),
        case("call_pointers", |r, _| {
            let (which, a, b) = (r.indexes(300, 4), r.f32s(300, -9.0, 9.0), r.f32s(300, 1.0, 9.0));
            let expected: Vec<f32> = (0..300).map(|i| apply(which[i], a[i], b[i])).collect();
            Run::flat(300).input(&which).input(&a).input(&b).exact(&expected).n(300)
        }),
        case("call_uniform_pointer", |r, _| {
            let (which, a, b) = (r.below(4), r.f32s(300, -9.0, 9.0), r.f32s(300, 1.0, 9.0));
            let expected: Vec<f32> = (0..300).map(|i| apply(which as i32, a[i], b[i])).collect();
            Run::flat(300).input(&a).input(&b).exact(&expected).n(300).n(which)
        }),
        case("switch_table", |r, _| {
            let shapes: Vec<Shape> =
                (0..300).map(|_| Shape { kind: r.below(9) as i32, a: r.real(-9.0, 9.0) as f32, b: r.real(-9.0, 9.0) as f32 }).collect();
            let expected = shapes.iter().map(area).collect();
            Run::flat(300).input::<u32>(bytemuck::cast_slice(&shapes)).close::<f32>(expected, ROUNDED).n(300)
        }),
        integers("call_virtual", |r| r.below(1000) as i32, |x, i| if x % 2 != 0 { x * x } else { x + i }),
        integers("call_lambda", |r| r.below(1000) as i32, |x, i| (0..1 + i % 5).fold(x, |x, _| (x * 3 + i) % 1009)),
        case("call_out_pointers", |r, _| {
            let (a, b): (Vec<i32>, Vec<i32>) = (r.indexes(300, 1_000_000), r.indexes(300, 999).iter().map(|x| x + 1).collect());
            let expected: Vec<i32> = (0..300).map(|i| a[i] / b[i] * 7 + a[i] % b[i] + (a[i] ^ b[i])).collect();
            Run::flat(300).input(&a).input(&b).exact(&expected).n(300)
        }),
    ]
}
