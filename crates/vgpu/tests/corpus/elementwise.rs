//! Cases for kernels with one thread per element.

use super::case::{Case, Run};
use super::data::{Elem, Tolerance};
use super::rng::Rng;

/// Makes the operands of a binary kernel.
type Pairs<T> = fn(&mut Rng, usize) -> (Vec<T>, Vec<T>);

/// Sizes that are not a multiple of the wave size.
fn size(rng: &mut Rng) -> usize {
    rng.range(200, 700)
}

/// `out[i] = f(in[i])`, exactly.
pub fn unary<T: Elem, R: Elem>(kernel: &str, source: &'static str, inputs: fn(&mut Rng, usize) -> Vec<T>, reference: fn(T) -> R) -> Case {
    Case::new(kernel, source, move |rng, _| {
        let n = size(rng);
        let x = inputs(rng, n);
        let expected: Vec<R> = x.iter().map(|x| reference(*x)).collect();
        Run::flat(n).input(&x).exact(&expected).n(n)
    })
}

/// `out[i] = f(in[i])`, nearly.
pub fn unary_near<T: Elem, R: Elem>(
    kernel: &str,
    source: &'static str,
    inputs: fn(&mut Rng, usize) -> Vec<T>,
    reference: fn(f64) -> f64,
    tolerance: Tolerance,
) -> Case {
    Case::new(kernel, source, move |rng, _| {
        let n = size(rng);
        let x = inputs(rng, n);
        let expected = x.iter().map(|x| reference(x.wide())).collect();
        Run::flat(n).input(&x).close::<R>(expected, tolerance).n(n)
    })
}

/// `out[i] = f(a[i], b[i])`, exactly.
pub fn binary<T: Elem, R: Elem>(kernel: impl Into<String>, source: &'static str, inputs: Pairs<T>, reference: fn(T, T) -> R) -> Case {
    Case::new(kernel, source, move |rng, _| {
        let n = size(rng);
        let (a, b) = inputs(rng, n);
        let expected: Vec<R> = a.iter().zip(&b).map(|(a, b)| reference(*a, *b)).collect();
        Run::flat(n).input(&a).input(&b).exact(&expected).n(n)
    })
}

/// `out[i] = f(a[i], b[i])`, nearly.
pub fn binary_near<T: Elem>(
    kernel: &str,
    source: &'static str,
    inputs: Pairs<T>,
    reference: fn(f64, f64) -> f64,
    tolerance: Tolerance,
) -> Case {
    Case::new(kernel, source, move |rng, _| {
        let n = size(rng);
        let (a, b) = inputs(rng, n);
        let expected = a.iter().zip(&b).map(|(a, b)| reference(a.wide(), b.wide())).collect();
        Run::flat(n).input(&a).input(&b).close::<T>(expected, tolerance).n(n)
    })
}

/// `out[i] = f(a[i], b[i], c[i])`, exactly.
pub fn ternary<T: Elem>(
    kernel: &str,
    source: &'static str,
    inputs: fn(&mut Rng, usize) -> [Vec<T>; 3],
    reference: fn(T, T, T) -> T,
) -> Case {
    Case::new(kernel, source, move |rng, _| {
        let n = size(rng);
        let [a, b, c] = inputs(rng, n);
        let expected: Vec<T> = (0..n).map(|i| reference(a[i], b[i], c[i])).collect();
        Run::flat(n).input(&a).input(&b).input(&c).exact(&expected).n(n)
    })
}
