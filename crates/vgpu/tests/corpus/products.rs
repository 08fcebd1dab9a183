//! Matrix products: tiled, on matrix cores, and attention.

use half::{bf16, f16};

use super::case::{Case, Gpu, Run};
use super::data::Tolerance::Near;
use super::data::{Elem, ElemType};
use super::rng::Rng;

const PLAIN: &str = "matmul.cu";
const CORES: &str = "mfma.cu";

/// a[m][k] b[k][n] + c[m][n].
pub fn product(a: &[f64], b: &[f64], c: Option<&[f64]>, [m, n, k]: [usize; 3]) -> Vec<f64> {
    let dot = |i: usize, j: usize| (0..k).map(|p| a[i * k + p] * b[p * n + j]).sum::<f64>();
    (0..m * n).map(|e| dot(e / n, e % n) + c.map_or(0.0, |c| c[e])).collect()
}

fn wide<T: Elem>(x: &[T]) -> Vec<f64> {
    x.iter().map(|x| x.wide()).collect()
}

type Make<T> = fn(&mut Rng, usize) -> Vec<T>;

/// Sizes with edges, a grid of tiles.
fn tiled<T: Elem, S: Elem>(kernel: &'static str, tile: usize, make: Make<T>, absolute: f64) -> Case {
    Case::new(kernel, PLAIN, move |r, _| {
        let [m, n, k] = [0; 3].map(|_| r.range(1, 70));
        let (a, b) = (make(r, m * k), make(r, k * n));
        let expected = product(&wide(&a), &wide(&b), None, [m, n, k]);
        let run = Run::shape([n.div_ceil(tile) as u32, m.div_ceil(tile) as u32, 1], [16, 16, 1]);
        run.input(&a).input(&b).close::<S>(expected, Near(0.0, absolute)).n(m).n(n).n(k)
    })
}

/// Multiples of 16, a group of `lanes` per tile.
fn fragments<T: Elem>(kernel: &'static str, source: &'static str, lanes: usize, make: Make<T>) -> Case {
    Case::new(kernel, source, move |r, _| {
        let [m, n, k] = [0; 3].map(|_| 16 * r.range(1, 4));
        let (a, b) = (make(r, m * k), make(r, k * n));
        let expected = product(&wide(&a), &wide(&b), None, [m, n, k]);
        let run = Run::blocks((m / 16 * (n / 16) * lanes).div_ceil(128), 128);
        run.input(&a).input(&b).close::<f32>(expected, Near(0.0, 1e-4)).n(m).n(n).n(k)
    })
}

/// One tile of a matrix core, k in a few steps. `value` tells what an element of a and of b means.
fn core<T: Elem, S: Elem>(
    kernel: &'static str,
    [size, depth]: [usize; 2],
    inputs: (Make<T>, Make<S>),
    value: fn(T, bool) -> f64,
    absolute: f64,
) -> Case {
    Case::new(kernel, CORES, move |r, gpu| {
        let k = depth * r.range(1, 5);
        let (a, b, c) = (inputs.0(r, size * k), inputs.0(r, size * k), inputs.1(r, size * size));
        // CDNA 2 takes denormal halves for zero.
        let flushed = |x: f64| if T::KIND == ElemType::F16 && gpu.arch == "gfx90a" && x.abs() < 2f64.powi(-14) { 0.0 } else { x };
        let [left, right] = [(&a, false), (&b, true)].map(|(x, second)| x.iter().map(|x| flushed(value(*x, second))).collect::<Vec<f64>>());
        let expected = product(&left, &right, Some(&wide(&c)), [size, size, k]);
        Run::blocks(1, 64).input(&a).input(&b).input(&c).close::<S>(expected, Near(1e-6, absolute)).n(k)
    })
}

/// Several products of `size` x `depth` x `size` at once.
fn blocks<T: Elem>(kernel: &'static str, count: usize, [size, depth]: [usize; 2], make: Make<T>, absolute: f64) -> Case {
    Case::new(kernel, CORES, move |r, _| {
        let (a, b, c) = (make(r, count * size * depth), make(r, count * size * depth), make(r, count * size * size));
        let one = |n: usize| {
            let part = |x: &[T], len: usize| wide(&x[n * len..][..len]);
            product(&part(&a, size * depth), &part(&b, size * depth), Some(&part(&c, size * size)), [size, size, depth])
        };
        let expected = (0..count).flat_map(one).collect();
        Run::blocks(1, 64).input(&a).input(&b).input(&c).close::<T>(expected, Near(1e-6, absolute))
    })
}

fn brain(bits: i16, _: bool) -> f64 {
    f64::from(bf16::from_bits(bits as u16))
}

/// CDNA 3's 8-bit formats: no infinities, no negative zero, one more in the exponent's bias.
fn fp8(bits: u8, mantissa: u32, bias: i32) -> f64 {
    let (exponent, fraction) = (i32::from(bits & 0x7f) >> mantissa, f64::from(bits & ((1 << mantissa) - 1)) / f64::from(1 << mantissa));
    let size = if exponent == 0 { fraction * 2f64.powi(1 - bias) } else { (1.0 + fraction) * 2f64.powi(exponent - bias) };
    if bits & 0x80 != 0 { -size } else { size }
}

fn e4m3(bits: u8) -> f64 {
    fp8(bits, 3, 8)
}

fn e5m2(bits: u8) -> f64 {
    fp8(bits, 2, 16)
}

/// Bytes whose meaning in either format is between 1/64 and 4 or so.
fn small_fp8(r: &mut Rng, n: usize) -> Vec<u8> {
    (0..n).map(|_| (0x30 + r.below(0x18)) as u8 | (r.below(2) as u8) << 7).collect()
}

fn plain_cases() -> Vec<Case> {
    let f32s: Make<f32> = |r, n| r.f32s(n, -1.0, 1.0);
    let f16s: Make<f16> = |r, n| r.f16s(n, -1.0, 1.0);
    let bf16s: Make<bf16> = |r, n| r.bf16s(n, -1.0, 1.0);
    vec![
        tiled::<f32, f32>("matmul_f32", 16, f32s, 1e-4),
        tiled::<f64, f64>("matmul_f64", 16, |r, n| r.f64s(n, -1.0, 1.0), 1e-12),
        tiled::<f16, f32>("matmul_f16", 16, f16s, 1e-4),
        tiled::<bf16, f32>("matmul_bf16", 16, bf16s, 1e-4),
        tiled::<i8, i32>("matmul_i8", 16, |r, n| r.many(n), 0.0),
        tiled::<f32, f32>("matmul_registers_f32", 64, f32s, 1e-4),
        fragments("wmma_f16", PLAIN, 32, f16s),
        fragments("wmma_bf16", PLAIN, 32, bf16s),
        Case::new("matmul_dp4a", PLAIN, |r, _| {
            let [m, n, k] = [0; 3].map(|_| r.range(1, 40));
            let (a, b): (Vec<i32>, Vec<i32>) = (r.many(m * k), r.many(n * k));
            let bytes = |x: &[i32]| x.iter().flat_map(|x| x.to_le_bytes()).map(|x| f64::from(x as i8)).collect::<Vec<_>>();
            let (left, right) = (bytes(&a), bytes(&b));
            let dot = |i: usize, j: usize| (0..4 * k).map(|p| left[i * 4 * k + p] * right[j * 4 * k + p]).sum::<f64>() as i32;
            let expected: Vec<i32> = (0..m * n).map(|e| dot(e / n, e % n)).collect();
            let run = Run::shape([n.div_ceil(16) as u32, m.div_ceil(8) as u32, 1], [16, 8, 1]);
            run.input(&a).input(&b).exact(&expected).n(m).n(n).n(k)
        }),
        Case::new("matvec_half2", PLAIN, |r, _| {
            let (m, k) = (r.range(1, 200), r.range(1, 40));
            let (a, x) = (r.f16s(2 * m * k, -1.0, 1.0), r.f16s(2 * k, -1.0, 1.0));
            let expected = product(&wide(&a), &wide(&x), None, [m, 1, 2 * k]);
            Run::flat(m).input(&a).input(&x).close::<f32>(expected, Near(0.0, 1e-4)).n(m).n(k)
        }),
    ]
}

fn core_cases() -> Vec<Case> {
    let f32s: Make<f32> = |r, n| r.f32s(n, -1.0, 1.0);
    let ints: Make<i32> = |r, n| r.indexes(n, 1000);
    let plain32 = |x: f32, _: bool| f64::from(x);
    let halves = (|r: &mut Rng, n: usize| r.f16s(n, -1.0, 1.0)) as Make<f16>;
    let brains = (|r: &mut Rng, n: usize| r.bf16s(n, -1.0, 1.0).into_iter().map(|x| x.to_bits() as i16).collect()) as Make<i16>;
    let bytes = (|r: &mut Rng, n: usize| r.many(n)) as Make<i8>;
    // Ten bits of fraction: what is left of an f32 in this mode.
    let short32 = (|r: &mut Rng, n: usize| (0..n).map(|_| (r.below(2001) as f32 - 1000.0) / 1024.0).collect()) as Make<f32>;
    let whole = |x: i8, _: bool| f64::from(x);
    let all: &[&str] = &["gfx908", "gfx90a", "gfx942"];
    let first: &[&str] = &["gfx908", "gfx90a"];
    let later: &[&str] = &["gfx90a", "gfx942"];
    let last: &[&str] = &["gfx942"];
    let doubles = (|r: &mut Rng, n: usize| r.f64s(n, -1.0, 1.0)) as Make<f64>;
    vec![
        core("mfma_f32_16x16x4_f32", [16, 4], (f32s, f32s), plain32, 1e-5).only(all),
        core("mfma_f32_32x32x2_f32", [32, 2], (f32s, f32s), plain32, 1e-5).only(all),
        core("mfma_f32_16x16x16_f16", [16, 16], (halves, f32s), |x, _| f64::from(x), 1e-5).only(all),
        core("mfma_f32_32x32x8_f16", [32, 8], (halves, f32s), |x, _| f64::from(x), 1e-5).only(all),
        core("mfma_f32_16x16x8_bf16", [16, 8], (brains, f32s), brain, 1e-5).only(first),
        core("mfma_f32_32x32x4_bf16", [32, 4], (brains, f32s), brain, 1e-5).only(first),
        core("mfma_i32_16x16x16_i8", [16, 16], (bytes, ints), whole, 0.0).only(first),
        core("mfma_i32_32x32x8_i8", [32, 8], (bytes, ints), whole, 0.0).only(first),
        core("mfma_f32_16x16x16_bf16", [16, 16], (brains, f32s), brain, 1e-5).only(later),
        core("mfma_f32_32x32x8_bf16", [32, 8], (brains, f32s), brain, 1e-5).only(later),
        core("mfma_f64_16x16x4_f64", [16, 4], (doubles, doubles), |x, _| x, 1e-13).only(later),
        core("mfma_i32_16x16x32_i8", [16, 32], (bytes, ints), whole, 0.0).only(last),
        core("mfma_i32_32x32x16_i8", [32, 16], (bytes, ints), whole, 0.0).only(last),
        core("mfma_f32_16x16x8_xf32", [16, 8], (short32, f32s), plain32, 1e-5).only(last),
        core("mfma_f32_32x32x4_xf32", [32, 4], (short32, f32s), plain32, 1e-5).only(last),
        core("mfma_f32_16x16x32_fp8", [16, 32], (small_fp8, f32s), |x, _| e4m3(x), 1e-4).only(last),
        core("mfma_f32_16x16x32_bf8", [16, 32], (small_fp8, f32s), |x, _| e5m2(x), 1e-4).only(last),
        core("mfma_f32_32x32x16_fp8_bf8", [32, 16], (small_fp8, f32s), |x, second| if second { e5m2(x) } else { e4m3(x) }, 1e-4).only(last),
        blocks("mfma_f32_32x32x1_2b", 2, [32, 1], f32s, 1e-6).only(all),
        blocks("mfma_f32_16x16x1_4b", 4, [16, 1], f32s, 1e-6).only(all),
        blocks("mfma_f32_4x4x1_16b", 16, [4, 1], f32s, 1e-6).only(all),
        blocks("mfma_f64_4x4x4_4b", 4, [4, 4], doubles, 1e-14).only(later),
        fragments("mfma_matmul_f32", CORES, 64, f32s).only(all),
    ]
}

/// softmax(q k^T / sqrt(size)) v.
fn attend([q, k, v]: [&[f64]; 3], length: usize, size: usize, causal: bool) -> Vec<f64> {
    let mut out = Vec::with_capacity(length * size);
    for query in 0..length {
        let end = if causal { query + 1 } else { length };
        let score = |j: usize| (0..size).map(|d| q[query * size + d] * k[j * size + d]).sum::<f64>() / (size as f64).sqrt();
        let weights: Vec<f64> = (0..end).map(|j| score(j).exp()).collect();
        let total: f64 = weights.iter().sum();
        out.extend((0..size).map(|d| (0..end).map(|j| weights[j] * v[j * size + d]).sum::<f64>() / total));
    }
    out
}

fn flash<T: Elem>(kernel: &'static str, make: Make<T>) -> Case {
    Case::new(kernel, "attention.cu", move |r, _| {
        let (length, causal) = (r.range(1, 100), r.below(2) == 1);
        let [q, k, v] = [0; 3].map(|_| make(r, length * 32));
        let expected = attend([&wide(&q), &wide(&k), &wide(&v)], length, 32, causal);
        let run = Run::blocks(length.div_ceil(64), 64).input(&q).input(&k).input(&v);
        run.close::<f32>(expected, Near(2e-5, 2e-5)).n(length).n(usize::from(causal))
    })
}

fn attention_cases() -> Vec<Case> {
    vec![
        Case::new("attention_naive_f32", "attention.cu", |r: &mut Rng, _: &Gpu| {
            let (length, size, causal) = (r.range(1, 60), r.range(4, 70), r.below(2) == 1);
            let [q, k, v] = [0; 3].map(|_| r.f32s(length * size, -1.5, 1.5));
            let expected = attend([&wide(&q), &wide(&k), &wide(&v)], length, size, causal);
            let run = Run::blocks(length, 64).shared(4 * length).input(&q).input(&k).input(&v);
            run.close::<f32>(expected, Near(2e-5, 2e-5)).n(length).n(size).n(usize::from(causal))
        }),
        flash::<f32>("attention_flash_f32", |r, n| r.f32s(n, -1.5, 1.5)),
        flash::<f16>("attention_flash_f16", |r, n| r.f16s(n, -1.5, 1.5)),
    ]
}

pub fn cases() -> Vec<Case> {
    [plain_cases(), core_cases(), attention_cases()].into_iter().flatten().collect()
}
