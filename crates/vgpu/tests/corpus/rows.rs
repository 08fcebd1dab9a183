//! Softmax, norms, rotary embeddings: rows of neural networks.

use super::case::{Case, Gpu, Run};
use super::data::Elem;
use super::data::Tolerance::{self, Near, Ulps};
use super::rng::Rng;

const SOURCE: &str = "rows.cu";

/// What f32 arithmetic over a row may lose; 16-bit results are rounded once more.
fn tolerance<T: Elem>() -> Tolerance {
    if size_of::<T>() == 2 { Ulps(1.0) } else { Near(2e-5, 2e-6) }
}

fn run(rows: usize) -> Run {
    Run::blocks(rows, 128)
}

fn wide<T: Elem>(x: &[T]) -> Vec<f64> {
    x.iter().map(|x| x.wide()).collect()
}

fn softmax<T: Elem>(kernel: &'static str, make: fn(&mut Rng, usize) -> Vec<T>, logarithm: bool) -> Case {
    Case::new(kernel, SOURCE, move |r, _| {
        let (rows, columns) = (r.range(1, 5), r.range(1, 400));
        let x = make(r, rows * columns);
        let expected = |row: &[f64]| {
            let most = row.iter().copied().fold(f64::MIN, f64::max);
            let sum: f64 = row.iter().map(|x| (x - most).exp()).sum();
            row.iter().map(|x| if logarithm { x - most - sum.ln() } else { (x - most).exp() / sum }).collect::<Vec<_>>()
        };
        let expected = wide(&x).chunks(columns).flat_map(expected).collect();
        run(rows).input(&x).close::<T>(expected, tolerance::<T>()).n(columns)
    })
}

const EPS: f32 = 1e-5;

/// (x - mean) / sqrt(variance + eps), or without the mean.
fn normalized(row: &[f64], centered: bool) -> Vec<f64> {
    let n = row.len() as f64;
    let mean = if centered { row.iter().sum::<f64>() / n } else { 0.0 };
    let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n;
    row.iter().map(|x| (x - mean) / (variance + f64::from(EPS)).sqrt()).collect()
}

fn layernorm<T: Elem>(kernel: &'static str, make: fn(&mut Rng, usize) -> Vec<T>) -> Case {
    Case::new(kernel, SOURCE, move |r, _| {
        let (rows, columns) = (r.range(1, 5), r.range(40, 400));
        let [x, gain, bias] = [rows * columns, columns, columns].map(|n| make(r, n));
        let scaled =
            |row: &[f64]| normalized(row, true).iter().enumerate().map(|(i, x)| x * gain[i].wide() + bias[i].wide()).collect::<Vec<_>>();
        let expected = wide(&x).chunks(columns).flat_map(scaled).collect();
        // A sum near zero keeps the error of its terms.
        let near = if size_of::<T>() == 2 { Near(1e-3, 2e-3) } else { Near(2e-5, 2e-5) };
        run(rows).input(&x).input(&gain).input(&bias).close::<T>(expected, near).n(columns).scalar(EPS)
    })
}

fn rmsnorm<T: Elem>(kernel: &'static str, make: fn(&mut Rng, usize) -> Vec<T>) -> Case {
    Case::new(kernel, SOURCE, move |r, _| {
        let (rows, columns) = (r.range(1, 5), r.range(40, 400));
        let (x, gain) = (make(r, rows * columns), make(r, columns));
        let scaled = |row: &[f64]| normalized(row, false).iter().zip(&gain).map(|(x, g)| x * g.wide()).collect::<Vec<_>>();
        let expected = wide(&x).chunks(columns).flat_map(scaled).collect();
        run(rows).input(&x).input(&gain).close::<T>(expected, tolerance::<T>()).n(columns).scalar(EPS)
    })
}

/// Turns pairs `(first(p), second(p))` of each row by angles that depend on the row and the pair.
fn rope(x: &[f64], size: usize, base: f64, first: fn(usize, usize) -> usize, second: fn(usize, usize) -> usize) -> Vec<f64> {
    let mut out = x.to_vec();
    for (row, out) in out.chunks_mut(size).enumerate() {
        for p in 0..size / 2 {
            let angle = row as f64 * base.powf(-2.0 * p as f64 / size as f64);
            let (u, v) = (out[first(p, size)], out[second(p, size)]);
            out[first(p, size)] = u * angle.cos() - v * angle.sin();
            out[second(p, size)] = u * angle.sin() + v * angle.cos();
        }
    }
    out
}

pub fn cases() -> Vec<Case> {
    let case = |kernel: &'static str, make: fn(&mut Rng, &Gpu) -> Run| Case::new(kernel, SOURCE, make);
    vec![
        softmax("softmax_f32", |r, n| r.f32s(n, -10.0, 10.0), false),
        softmax("softmax_f16", |r, n| r.f16s(n, -5.0, 5.0), false),
        softmax("softmax_bf16", |r, n| r.bf16s(n, -5.0, 5.0), false),
        softmax("log_softmax_f32", |r, n| r.f32s(n, -10.0, 10.0), true),
        layernorm("layernorm_f32", |r, n| r.f32s(n, -2.0, 3.0)),
        layernorm("layernorm_f16", |r, n| r.f16s(n, -2.0, 3.0)),
        rmsnorm("rmsnorm_f32", |r, n| r.f32s(n, -2.0, 2.0)),
        rmsnorm("rmsnorm_bf16", |r, n| r.bf16s(n, -2.0, 2.0)),
        case("groupnorm_f32", |r, _| {
            let (groups, channels, pixels) = (r.range(1, 4), r.range(1, 5), r.range(20, 90));
            let x = r.f32s(groups * channels * pixels, -2.0, 2.0);
            let (gain, bias) = (r.f32s(groups * channels, 0.5, 2.0), r.f32s(groups * channels, -1.0, 1.0));
            let flat: Vec<f64> = wide(&x).chunks(channels * pixels).flat_map(|group| normalized(group, true)).collect();
            let expected = flat.iter().enumerate().map(|(i, x)| x * gain[i / pixels].wide() + bias[i / pixels].wide()).collect();
            let run = run(groups).input(&x).input(&gain).input(&bias).close::<f32>(expected, Near(5e-5, 5e-5));
            run.n(channels).n(pixels).scalar(EPS)
        }),
        case("rope_pairs_f32", |r, _| {
            let (rows, size) = (r.range(1, 20), 2 * r.range(8, 64));
            let x = r.f32s(rows * size, -1.0, 1.0);
            let expected = rope(&wide(&x), size, 10000.0, |p, _| 2 * p, |p, _| 2 * p + 1);
            Run::blocks(rows, size / 2).input(&x).close::<f32>(expected, Near(0.0, 2e-5)).n(size).scalar(10000f32)
        }),
        case("rope_halves_f16", |r, _| {
            let (rows, size) = (r.range(1, 20), 2 * r.range(8, 64));
            let x = r.f16s(rows * size, -1.0, 1.0);
            let expected = rope(&wide(&x), size, 10000.0, |p, _| p, |p, size| p + size / 2);
            Run::blocks(rows, size / 2).input(&x).close::<half::f16>(expected, Near(6e-4, 2e-5)).n(size).scalar(10000f32)
        }),
        case("cross_entropy_f32", |r, _| {
            let (rows, columns) = (r.range(1, 6), r.range(2, 300));
            let (x, labels) = (r.f32s(rows * columns, -5.0, 5.0), r.indexes(rows, columns));
            let loss = |(row, label): (&[f32], &i32)| row.iter().map(|x| x.wide().exp()).sum::<f64>().ln() - row[*label as usize].wide();
            let expected = x.chunks(columns).zip(&labels).map(loss).collect();
            run(rows).input(&x).input(&labels).close::<f32>(expected, Near(1e-5, 1e-5)).n(columns)
        }),
        case("embedding_f32", |r, _| {
            let columns = r.range(3, 200);
            let (table, ids) = (r.f32s(30 * columns, -1.0, 1.0), r.indexes(7, 30));
            let expected: Vec<f32> = ids.iter().flat_map(|id| table[*id as usize * columns..][..columns].to_vec()).collect();
            run(7).input(&table).input(&ids).exact(&expected).n(columns)
        }),
    ]
}
