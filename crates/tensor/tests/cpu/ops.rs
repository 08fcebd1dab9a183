//! Elementwise and row-wise operations on the CPU against `f64` references.

use crate::common::{Random, everywhere};
use warpwave_kernels::{Glu, RopePairs};
use warpwave_tensor::cpu;

fn near(what: &str, out: &[f32], expected: &[f64], bound: f64) {
    assert_eq!(out.len(), expected.len(), "{what}");
    for (i, (out, expected)) in out.iter().zip(expected).enumerate() {
        let off = (f64::from(*out) - expected).abs();
        assert!(off <= bound * expected.abs().max(1e-3), "{what}: element {i} is {out}, not {expected}");
    }
}

const COLUMNS: [usize; 6] = [1, 7, 32, 64, 100, 576];

#[test]
fn rms_norm_of_rows() {
    let mut random = Random::new("norm");
    for columns in COLUMNS {
        for rows in [1, 3, 70] {
            let (x, weight) = (random.normals(rows * columns), random.normals(columns));
            let row = |x: &[f32]| {
                let mean = x.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / columns as f64;
                let root = (mean + 1e-5).sqrt();
                x.iter().zip(&weight).map(|(x, w)| f64::from(*x) * f64::from(*w) / root).collect::<Vec<f64>>()
            };
            let expected: Vec<f64> = x.chunks(columns).flat_map(row).collect();
            everywhere(|isa, threads| {
                let mut out = vec![f32::NAN; x.len()];
                cpu::rms_norm(&x, &weight, 1e-5, &mut out);
                near(&format!("norm {columns} {isa:?} {threads}"), &out, &expected, 1e-6);
                let mut out = x.clone();
                cpu::rms_norm_in_place(&mut out, &weight, 1e-5);
                near(&format!("norm in place {columns} {isa:?} {threads}"), &out, &expected, 1e-6);
            });
        }
    }
}

#[test]
fn elementwise_operations() {
    let mut random = Random::new("each");
    for count in [0, 1, 15, 100, 5000, 40_000] {
        let (a, b) = (random.normals(count), random.normals(count));
        let a: Vec<f32> = a.iter().map(|v| v * 8.0).collect();
        let each = |f: &dyn Fn(f64, f64) -> f64| a.iter().zip(&b).map(|(a, b)| f(f64::from(*a), f64::from(*b))).collect::<Vec<f64>>();
        let gelu = |x: f64| 0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh());
        let expected = [
            each(&|a, b| a + b),
            each(&|a, b| a / (1.0 + (-a).exp()) * b),
            each(&|a, b| gelu(a) * b),
            each(&|a, _| 5.0 * (a / 5.0).tanh()),
            each(&|a, _| a * 1.5),
        ];
        everywhere(|isa, threads| {
            let what = |name: &str| format!("{name} of {count} {isa:?} {threads}");
            let mut out = a.clone();
            cpu::add(&mut out, &b);
            near(&what("sum"), &out, &expected[0], 1e-3);
            let mut out = a.clone();
            cpu::glu(Glu::Silu, &mut out, &b);
            near(&what("silu"), &out, &expected[1], 1e-6);
            let mut out = a.clone();
            cpu::glu(Glu::Gelu, &mut out, &b);
            near(&what("gelu"), &out, &expected[2], 2e-3);
            let mut out = a.clone();
            cpu::soft_cap(&mut out, 5.0);
            near(&what("cap"), &out, &expected[3], 1e-6);
            let mut out = a.clone();
            cpu::scale(&mut out, 1.5);
            near(&what("scale"), &out, &expected[4], 1e-6);
        });
    }
}

#[test]
fn glu_of_rows_and_bias() {
    let mut random = Random::new("rows");
    let (rows, columns) = (3, 37);
    let both = random.normals(2 * rows * columns);
    everywhere(|_, _| {
        let mut out = vec![0.0; rows * columns];
        cpu::glu_rows(Glu::Silu, &both, columns, &mut out);
        for (r, out) in out.chunks(columns).enumerate() {
            let mut gate = both[2 * r * columns..][..columns].to_vec();
            cpu::glu(Glu::Silu, &mut gate, &both[(2 * r + 1) * columns..][..columns]);
            assert_eq!(out, gate);
        }
        let bias = &both[..columns];
        cpu::add(&mut out, bias);
        let mut again = vec![0.0; rows * columns];
        cpu::glu_rows(Glu::Silu, &both, columns, &mut again);
        for (i, (out, again)) in out.iter().zip(again).enumerate() {
            assert_eq!(*out, again + bias[i % columns]);
        }
    });
}

#[test]
fn glu_and_soft_cap_of_extremes() {
    everywhere(|isa, _| {
        let x = [0.0, -0.0, 100.0, -100.0, 1e30, -1e30, f32::INFINITY, f32::NAN, -87.0, -89.0];
        let mut out = x;
        cpu::glu(Glu::Silu, &mut out, &[1.0; 10]);
        assert_eq!(out[..6], [0.0, -0.0, 100.0, out[3], 1e30, out[5]], "{isa:?}");
        assert!(out[3].abs() < 1e-36 && out[5].abs() < 1e-3 && out[6] == f32::INFINITY && out[7].is_nan(), "{out:?}");
        let mut out = x;
        cpu::soft_cap(&mut out, 30.0);
        assert_eq!(out[4..7], [30.0, -30.0, 30.0]);
        assert!(out[7].is_nan());
    });
}

#[test]
fn softmax_and_log_sum_exp() {
    let mut random = Random::new("softmax");
    for columns in COLUMNS {
        let x: Vec<f32> = random.normals(5 * columns).iter().map(|v| v * 10.0 + 300.0).collect();
        let wide: Vec<f64> = x.iter().map(|v| f64::from(*v)).collect();
        let log: Vec<f64> = wide.chunks(columns).map(|x| x.iter().map(|v| (v - 300.0).exp()).sum::<f64>().ln() + 300.0).collect();
        let expected: Vec<f64> = wide.iter().enumerate().map(|(i, v)| (v - log[i / columns]).exp()).collect();
        everywhere(|isa, threads| {
            let mut out = x.clone();
            cpu::softmax(&mut out, columns);
            near(&format!("softmax of {columns} {isa:?} {threads}"), &out, &expected, 1e-5);
            let logs: Vec<f32> = x.chunks(columns).map(cpu::log_sum_exp).collect();
            near(&format!("log of {columns} {isa:?} {threads}"), &logs, &log, 1e-6);
        });
    }
    everywhere(|_, _| {
        let mut none = [f32::NEG_INFINITY; 40];
        assert_eq!(cpu::log_sum_exp(&none), f32::NEG_INFINITY);
        cpu::softmax(&mut none, 40);
        assert_eq!(none, [0.0; 40]);
        let mut one = [f32::NEG_INFINITY, 2.0, f32::NEG_INFINITY];
        cpu::softmax(&mut one, 3);
        assert_eq!(one, [0.0, 1.0, 0.0]);
        let mut bad = [1.0, f32::NAN, 2.0];
        assert!(cpu::log_sum_exp(&bad).is_nan());
        cpu::softmax(&mut bad, 3);
        assert!(bad.iter().all(|v| v.is_nan()));
        assert_eq!(cpu::log_sum_exp(&[]), f32::NEG_INFINITY);
        assert_eq!(cpu::log_sum_exp(&[f32::INFINITY, 1.0]), f32::INFINITY);
    });
}

#[test]
fn argmax_returns_the_first_maximum() {
    let mut random = Random::new("argmax");
    for count in [1, 2, 31, 33, 1000] {
        let mut x = random.normals(count);
        let at = random.below(count);
        x[at] = 100.0;
        if at + 1 < count {
            x[count - 1] = 100.0;
        }
        everywhere(|_, _| assert_eq!(cpu::argmax(&x), at));
    }
    assert_eq!(cpu::argmax(&[]), 0);
    assert_eq!(cpu::argmax(&[f32::NAN, f32::NEG_INFINITY, f32::NAN]), 1);
    assert_eq!(cpu::argmax(&[f32::NAN, 1.0, f32::INFINITY, f32::INFINITY]), 2);
}

#[test]
fn rope_rotates_by_position() {
    let mut random = Random::new("rope");
    for (heads, dim, rotated) in [(1, 8, 8), (3, 64, 64), (2, 40, 24)] {
        let positions = [0, 1, 77, 4000, 8191];
        let frequencies: Vec<f32> = (0..rotated / 2).map(|i| 10000f64.powf(-2.0 * i as f64 / rotated as f64) as f32).collect();
        let x = random.normals(positions.len() * heads * dim);
        for pairs in [RopePairs::Interleaved, RopePairs::Halves] {
            let mut expected: Vec<f64> = x.iter().map(|v| f64::from(*v)).collect();
            for (row, head) in expected.chunks_mut(dim).enumerate() {
                for (i, frequency) in frequencies.iter().enumerate() {
                    let (sin, cos) = f64::from(positions[row / heads] as f32 * frequency).sin_cos();
                    let (a, b) = if pairs == RopePairs::Halves { (i, i + rotated / 2) } else { (2 * i, 2 * i + 1) };
                    let (x, y) = (head[a], head[b]);
                    (head[a], head[b]) = (1.5 * (x * cos - y * sin), 1.5 * (x * sin + y * cos));
                }
            }
            everywhere(|isa, threads| {
                let (cos, sin) = cpu::rope_tables(&frequencies, 1.5, &positions);
                let mut out = x.clone();
                cpu::rope(pairs, &mut out, heads * dim, heads, dim, &cos, &sin);
                near(&format!("{pairs:?} {heads}x{dim} {isa:?} {threads}"), &out, &expected, 3e-4);
            });
        }
    }
}
