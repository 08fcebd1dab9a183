//! Matrix products on the CPU against `f64` references.

use crate::common::{QUANTS, Random, everywhere, weights};
use half::{bf16, f16};
use warpwave_kernels::Quant;
use warpwave_tensor::cpu::{Interleaved, Matrix, Precision, dequantize, embedding, matmul};

const SIZES: [[usize; 3]; 6] = [[1, 1, 1], [1, 33, 2], [5, 16, 1], [19, 50, 3], [31, 7, 2], [130, 17, 1]];

/// Products in `f64`, and the sums of the magnitudes of their terms.
fn reference(w: &[f64], x: &[f64], [m, n, k]: [usize; 3]) -> Vec<(f64, f64)> {
    let row = |t: usize, r: usize| x[t * k..][..k].iter().zip(&w[r * k..][..k]);
    let product = |t: usize, r: usize| (row(t, r).map(|(x, w)| x * w).sum(), row(t, r).map(|(x, w)| (x * w).abs()).sum());
    (0..m).flat_map(|t| (0..n).map(move |r| (t, r))).map(|(t, r)| product(t, r)).collect()
}

fn compare(what: &str, out: &[f32], expected: &[(f64, f64)], bound: f64) {
    assert_eq!(out.len(), expected.len());
    for (i, (out, (value, size))) in out.iter().zip(expected).enumerate() {
        let off = (f64::from(*out) - value).abs();
        assert!(off <= bound * size + 1e-30, "{what}: element {i} is {out}, not {value}: relative error {}", off / size);
    }
}

/// The largest code of rounded activations.
const MAX_CODE: f32 = 127.0 * 128.0;

/// Activations rounded to two bytes.
fn rounded(x: &[f32]) -> Vec<f64> {
    let block = |x: &[f32]| {
        let most = x.iter().fold(0f32, |most, v| most.max(v.abs()));
        let factor = if most > 0.0 { MAX_CODE / most } else { 0.0 };
        x.iter().map(|v| f64::from((v * factor).round_ties_even()) * f64::from(most / MAX_CODE)).collect::<Vec<_>>()
    };
    x.chunks(32).flat_map(block).collect()
}

#[test]
fn quantized_weights_in_both_precisions() {
    let mut random = Random::new("quantized");
    for quant in QUANTS {
        for [m, n, blocks] in SIZES {
            let k = blocks * quant.block_size();
            let (data, x) = (random.blocks(quant, n * blocks), random.normals(m * k));
            let w = weights(quant, &data);
            let packed = Interleaved::new(quant, n, k, &data);
            let plain: Vec<f64> = x.iter().map(|v| f64::from(*v)).collect();
            let exact = reference(&w, &plain, [m, n, k]);
            let bytes = reference(&w, &rounded(&x), [m, n, k]);
            everywhere(|isa, threads| {
                for weights in [Matrix::Quant(quant, &data), Matrix::Interleaved(&packed)] {
                    let what = format!("{quant} {m}x{n}x{k} {isa:?} {threads} {}", matches!(weights, Matrix::Interleaved(_)));
                    let mut out = vec![f32::NAN; m * n];
                    matmul(weights, n, k, &x, m, &mut out, Precision::Exact);
                    compare(&format!("exact {what}"), &out, &exact, 4e-6);
                    out.fill(f32::NAN);
                    matmul(weights, n, k, &x, m, &mut out, Precision::Fast);
                    compare(&format!("fast {what}"), &out, &bytes, 1e-5);
                }
            });
        }
    }
}

#[test]
fn plain_weights() {
    let mut random = Random::new("dense");
    for [m, n, k] in [[1, 1, 1], [1, 70, 40], [2, 5, 16], [3, 33, 300], [40, 20, 513], [16, 16, 256], [9, 17, 31]] {
        let (w, x) = (random.normals(n * k), random.normals(m * k));
        let wide = |w: &[f32]| w.iter().map(|v| f64::from(*v)).collect::<Vec<f64>>();
        let (half, brain): (Vec<f16>, Vec<bf16>) = w.iter().map(|v| (f16::from_f32(*v), bf16::from_f32(*v))).unzip();
        let kinds = [
            (Matrix::F32(&w), wide(&w)),
            (Matrix::F16(&half), half.iter().map(|v| v.to_f64()).collect()),
            (Matrix::Bf16(&brain), brain.iter().map(|v| v.to_f64()).collect()),
        ];
        for (weights, w) in kinds {
            let expected = reference(&w, &wide(&x), [m, n, k]);
            everywhere(|isa, threads| {
                for activations in [Precision::Exact, Precision::Fast] {
                    let mut out = vec![f32::NAN; m * n];
                    matmul(weights, n, k, &x, m, &mut out, activations);
                    compare(&format!("{m}x{n}x{k} {isa:?} {threads}"), &out, &expected, 4e-6);
                }
            });
        }
    }
}

#[test]
fn large_products_on_several_threads() {
    let mut random = Random::new("large");
    let (m, n, k) = (150, 300, 96);
    let (data, x) = (random.blocks(Quant::Q4_1, n * k / 32), random.normals(m * k));
    let packed = Interleaved::new(Quant::Q4_1, n, k, &data);
    let expected = reference(&weights(Quant::Q4_1, &data), &rounded(&x), [m, n, k]);
    everywhere(|isa, threads| {
        let mut out = vec![f32::NAN; m * n];
        matmul(Matrix::Interleaved(&packed), n, k, &x, m, &mut out, Precision::Fast);
        compare(&format!("{isa:?} {threads}"), &out, &expected, 1e-5);
    });
}

#[test]
fn nan_and_infinity_propagate() {
    let mut random = Random::new("not finite");
    let (m, n, k) = (3, 20, 64);
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let (data, mut x) = (random.blocks(Quant::Q4_1, n * k / 32), random.normals(m * k));
        x[k + 40] = bad;
        everywhere(|isa, threads| {
            for activations in [Precision::Exact, Precision::Fast] {
                let mut out = vec![0.0; m * n];
                matmul(Matrix::Quant(Quant::Q4_1, &data), n, k, &x, m, &mut out, activations);
                for (i, value) in out.iter().enumerate() {
                    assert_eq!(value.is_finite(), i / n != 1, "{bad} {activations:?} {isa:?} {threads}: element {i} is {value}");
                }
            }
        });
    }
}

#[test]
fn zeros_tiny_and_large_values() {
    let (n, k) = (16, 32);
    let mut random = Random::new("edges");
    let data = random.blocks(Quant::Q8_0, n);
    let w = weights(Quant::Q8_0, &data);
    for size in [0.0, 1e-44, 1e-38, 1e30] {
        let x: Vec<f32> = random.normals(k).iter().map(|v| v * size).collect();
        everywhere(|_, _| {
            let mut out = vec![f32::NAN; n];
            matmul(Matrix::Quant(Quant::Q8_0, &data), n, k, &x, 1, &mut out, Precision::Fast);
            let expected = reference(&w, &x.iter().map(|v| f64::from(*v)).collect::<Vec<_>>(), [1, n, k]);
            for (out, (value, parts)) in out.iter().zip(expected) {
                assert!((f64::from(*out) - value).abs() <= 0.02 * parts + 1e-35, "{size}: {out}, not {value}");
            }
        });
    }
}

#[test]
fn empty_products() {
    for (m, n, k) in [(0, 3, 32), (2, 0, 32), (2, 3, 0)] {
        let mut out = vec![1.0; m * n];
        let data = vec![0; n * k / 32 * 20];
        let x = vec![1.0; m * k];
        matmul(Matrix::Quant(Quant::Q4_1, &data), n, k, &x, m, &mut out, Precision::Fast);
        matmul(Matrix::Interleaved(&Interleaved::new(Quant::Q4_1, n, k, &data)), n, k, &x, m, &mut out, Precision::Exact);
        assert!(out.iter().all(|v| *v == 0.0));
    }
}

#[test]
fn rows_of_every_format() {
    let mut random = Random::new("rows");
    for quant in QUANTS {
        let (n, k) = (21, 2 * quant.block_size());
        let data = random.blocks(quant, n * 2);
        let packed = Interleaved::new(quant, n, k, &data);
        let bytes = data.len() / n;
        for r in 0..n {
            let mut row = vec![0; bytes];
            packed.row(r, &mut row);
            assert_eq!(row, data[r * bytes..][..bytes], "{quant} row {r}");
        }
        let mut all = vec![0.0; n * k];
        dequantize(quant, &data, &mut all);
        let ids = [20, 0, 7, 7];
        for matrix in [Matrix::Interleaved(&packed), Matrix::Quant(quant, &data), Matrix::F32(&all)] {
            let mut out = vec![0.0; ids.len() * k];
            embedding(matrix, k, &ids, &mut out);
            for (id, out) in ids.iter().zip(out.chunks(k)) {
                assert_eq!(out, &all[*id as usize * k..][..k]);
            }
        }
    }
}
