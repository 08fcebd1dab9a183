//! Convolutions, pooling and transposes.

use super::case::{Case, Gpu, Run};
use super::data::Elem;
use super::data::Tolerance::Near;
use super::rng::Rng;

const SOURCE: &str = "convolution.cu";

/// A pixel, or zero beyond the edge.
fn at(image: &[f32], [height, width]: [usize; 2], y: i64, x: i64) -> f64 {
    let inside = (0..height as i64).contains(&y) && (0..width as i64).contains(&x);
    if inside { f64::from(image[y as usize * width + x as usize]) } else { 0.0 }
}

fn cover(width: usize, height: usize, block: [u32; 2]) -> Run {
    Run::shape([(width as u32).div_ceil(block[0]), (height as u32).div_ceil(block[1]), 1], [block[0], block[1], 1])
}

fn transpose<T: Elem>(kernel: &'static str, block: [u32; 2], tile: u32, make: fn(&mut Rng, usize) -> Vec<T>) -> Case {
    Case::new(kernel, SOURCE, move |r, _| {
        let (rows, columns) = (r.range(1, 90), r.range(1, 90));
        let x = make(r, rows * columns);
        let expected: Vec<T> = (0..rows * columns).map(|e| x[e % rows * columns + e / rows]).collect();
        let (width, height) = if tile > 0 { (tile, tile) } else { (block[0], block[1]) };
        let run = Run::shape([(columns as u32).div_ceil(width), (rows as u32).div_ceil(height), 1], [block[0], block[1], 1]);
        run.input(&x).exact(&expected).n(rows).n(columns)
    })
}

pub fn cases() -> Vec<Case> {
    let case = |kernel: &'static str, make: fn(&mut Rng, &Gpu) -> Run| Case::new(kernel, SOURCE, make);
    vec![
        case("conv1d", |r, _| {
            let (n, taps) = (r.range(50, 500), r.range(1, 12));
            let (x, w) = (r.f32s(n, -1.0, 1.0), r.f32s(taps, -1.0, 1.0));
            let expected = (0..=n - taps).map(|i| (0..taps).map(|t| f64::from(x[i + t]) * f64::from(w[t])).sum()).collect();
            Run::flat(n).input(&x).input(&w).close::<f32>(expected, Near(0.0, 1e-5)).n(n).n(taps)
        }),
        case("conv2d", |r, _| {
            let (filters, channels, height, width) = (r.range(1, 4), r.range(1, 4), r.range(3, 24), r.range(3, 24));
            let x = r.f32s(channels * height * width, -1.0, 1.0);
            let (w, bias) = (r.f32s(filters * channels * 9, -1.0, 1.0), r.f32s(filters, -1.0, 1.0));
            let pixel = |f: usize, py: usize, px: usize| {
                let tap = |c: usize, t: usize| {
                    let image = &x[c * height * width..][..height * width];
                    at(image, [height, width], (py + t / 3) as i64 - 1, (px + t % 3) as i64 - 1) * f64::from(w[(f * channels + c) * 9 + t])
                };
                f64::from(bias[f]) + (0..channels * 9).map(|e| tap(e / 9, e % 9)).sum::<f64>()
            };
            let size = height * width;
            let expected = (0..filters * size).map(|e| pixel(e / size, e % size / width, e % width)).collect();
            let grid = [(width as u32).div_ceil(9), (height as u32).div_ceil(7), filters as u32];
            let run = Run::shape(grid, [9, 7, 1]).input(&x).input(&w).input(&bias);
            run.close::<f32>(expected, Near(0.0, 1e-5)).n(channels).n(height).n(width)
        }),
        case("conv2d_tiled", |r, _| {
            let (height, width) = (r.range(5, 50), r.range(5, 50));
            let (x, w) = (r.f32s(height * width, -1.0, 1.0), r.f32s(25, -1.0, 1.0));
            let tap = |e: usize, t: usize| {
                at(&x, [height, width], (e / width + t / 5) as i64 - 2, (e % width + t % 5) as i64 - 2) * f64::from(w[t])
            };
            let expected = (0..height * width).map(|e| (0..25).map(|t| tap(e, t)).sum()).collect();
            let run = cover(width, height, [16, 16]).input(&x).input(&w);
            run.close::<f32>(expected, Near(0.0, 1e-5)).n(height).n(width)
        }),
        case("depthwise_i8", |r, _| {
            let (channels, n) = (r.range(1, 6), r.range(10, 200));
            let (x, w): (Vec<i8>, Vec<i8>) = (r.many(channels * n), r.many(channels * 3));
            let one = |c: usize, i: usize| {
                let tap =
                    |t: usize| (i + t).checked_sub(1).filter(|j| *j < n).map_or(0, |j| i32::from(x[c * n + j]) * i32::from(w[c * 3 + t]));
                (0..3).map(tap).sum::<i32>()
            };
            let expected: Vec<i32> = (0..channels * n).map(|e| one(e / n, e % n)).collect();
            let run = Run::shape([(n as u32).div_ceil(64), channels as u32, 1], [64, 1, 1]);
            run.input(&x).input(&w).exact(&expected).n(channels).n(n)
        }),
        case("maxpool2d", |r, _| {
            let (height, width) = (r.range(2, 50), r.range(2, 50));
            let x = r.f32s(height * width, -1.0, 1.0);
            let (h, w) = (height / 2, width / 2);
            let most = |e: usize| {
                let corner = e / w * 2 * width + e % w * 2;
                [0, 1, width, width + 1].iter().map(|d| x[corner + d]).fold(f32::MIN, f32::max)
            };
            let expected: Vec<f32> = (0..h * w).map(most).collect();
            cover(w, h, [16, 4]).input(&x).exact(&expected).n(height).n(width)
        }),
        case("im2col", |r, _| {
            let (height, width) = (r.range(2, 15), r.range(2, 15));
            let x = r.f32s(height * width, -1.0, 1.0);
            let size = height * width;
            let one = |t: usize, p: usize| at(&x, [height, width], (p / width + t / 3) as i64 - 1, (p % width + t % 3) as i64 - 1) as f32;
            let expected: Vec<f32> = (0..9 * size).map(|e| one(e / size, e % size)).collect();
            Run::flat(9 * size).input(&x).exact(&expected).n(height).n(width)
        }),
        transpose("transpose_naive_u8", [13, 7], 0, |r, n| r.many::<u8>(n)),
        transpose("transpose_tiled_f32", [32, 8], 32, |r, n| r.f32s(n, -1.0, 1.0)),
        transpose("transpose_tiled_f64", [32, 8], 32, |r, n| r.f64s(n, -1.0, 1.0)),
        transpose("transpose_tiled_u16", [32, 8], 32, |r, n| r.many::<u16>(n)),
        case("permute3", |r, _| {
            let [a, b, c] = [0; 3].map(|_| r.range(1, 13));
            let x: Vec<i32> = r.many(a * b * c);
            let mut expected = vec![0; x.len()];
            for (i, x) in x.iter().enumerate() {
                let (p, q, s) = (i / c / b, i / c % b, i % c);
                expected[(s * a + p) * b + q] = *x;
            }
            Run::flat(x.len()).input(&x).exact(&expected).n(a).n(b).n(c)
        }),
    ]
}
