//! Grid and block shapes, and divergent control flow.

use super::case::{Case, Gpu, Run};
use super::data::Tolerance::Near;
use super::rng::Rng;

const SOURCE: &str = "shapes.cu";

/// A grid and a block of odd sizes.
fn odd(r: &mut Rng) -> ([u32; 3], [u32; 3]) {
    let grid = [0; 3].map(|_| 1 + r.below(4) as u32);
    let block = [[7, 5, 3], [1, 1, 64], [13, 11, 1], [3, 31, 2], [65, 1, 1], [1, 9, 17], [32, 3, 1]][r.below(7)];
    (grid, block)
}

fn integers(kernel: &'static str, make: fn(&mut Rng) -> i32, reference: fn(i32) -> i32) -> Case {
    Case::new(kernel, SOURCE, move |r, _| {
        let n = r.range(200, 500);
        let x: Vec<i32> = (0..n).map(|_| make(r)).collect();
        let expected: Vec<i32> = x.iter().map(|x| reference(*x)).collect();
        Run::flat(n).input(&x).exact(&expected).n(n)
    })
}

fn nested(mut x: i32) -> i32 {
    let mut result = 0i32;
    let mut round = 0;
    while round < (x & 7) + 1 {
        if x % 2 != 0 {
            match x % 3 {
                0 => result += 1,
                1 => (0..x % 11).take_while(|j| *j != 8).filter(|j| *j != 4).for_each(|j| result += j * round),
                _ => result -= 3,
            }
        } else {
            let mut y = x;
            loop {
                y /= 3;
                result ^= y;
                if y <= 2 {
                    break;
                }
            }
        }
        x = x / 2 + 1;
        round += 1;
    }
    result
}

fn switches(code: &[u8], i: i32) -> i32 {
    let (mut state, mut sum) = (0i32, 0i32);
    for (p, code) in code.iter().enumerate() {
        match (i32::from(*code) + state + i) % 6 {
            0 => state = 1,
            1 => {
                state += 2;
                sum += state;
                sum ^= p as i32;
            }
            2 => sum ^= p as i32,
            3 if sum & 1 != 0 => {}
            3 => sum += 5,
            4 => state = sum & 3,
            _ => sum -= state,
        }
    }
    sum * 16 + state
}

pub fn cases() -> Vec<Case> {
    let case = |kernel: &'static str, make: fn(&mut Rng, &Gpu) -> Run| Case::new(kernel, SOURCE, make);
    vec![
        case("all_indexes", |r, _| {
            let (grid, block) = odd(r);
            let places =
                |size: [u32; 3]| (0..size[0] * size[1] * size[2]).map(move |i| [i % size[0], i / size[0] % size[1], i / size[0] / size[1]]);
            let expected: Vec<u32> = places(grid).flat_map(|b| places(block).flat_map(move |t| [t, b].concat())).collect();
            Run::shape(grid, block).exact(&expected)
        }),
        case("all_sizes", |r, gpu| {
            let (grid, block) = odd(r);
            Run::shape(grid, block).exact(&[block.to_vec(), grid.to_vec(), vec![gpu.wave as u32]].concat())
        }),
        case("volume", |r, _| {
            let [w, h, d] = [0; 3].map(|_| r.range(1, 20));
            let x = r.f32s(w * h * d, -1.0, 1.0);
            let one = |i: usize| {
                let (px, py, pz) = (i % w, i / w % h, i / w / h);
                let mut sum = f64::from(x[i]);
                sum += if px > 0 { f64::from(x[i - 1]) } else { 0.0 };
                sum += if py + 1 < h { f64::from(x[i + w]) } else { 0.0 };
                sum + if pz > 0 { f64::from(x[i - w * h]) } else { 0.0 }
            };
            let expected = (0..x.len()).map(one).collect();
            let block = [5, 3, 7];
            let grid = [(w as u32).div_ceil(5), (h as u32).div_ceil(3), (d as u32).div_ceil(7)];
            Run::shape(grid, block).input(&x).close::<f32>(expected, Near(0.0, 1e-6)).n(w).n(h).n(d)
        }),
        case("grid_stride", |r, _| {
            let (n, blocks, size) = (r.range(1, 3000), r.range(1, 4), r.range(1, 257));
            let x: Vec<i32> = r.many(n);
            let expected: Vec<i64> = x.iter().zip(0..).map(|(x, i)| i64::from(*x) * i64::from(*x) - i).collect();
            Run::blocks(blocks, size).input(&x).exact(&expected).n(n)
        }),
        case("early_exit", |r, _| {
            let n = r.range(200, 500);
            let x: Vec<i32> = r.many(n);
            // Those that leave at once leave what was there.
            let before = vec![-77; n];
            let one = |x: i32| {
                let mut y = x;
                for step in 0..20 {
                    y = y.wrapping_mul(1_103_515_245).wrapping_add(12345);
                    if y & 7 == 3 {
                        return step;
                    }
                }
                y.wrapping_neg()
            };
            let after: Vec<i32> = x.iter().map(|x| if x % 5 == 0 { -77 } else { one(*x) }).collect();
            Run::flat(n).input(&x).update(&before, &after).n(n)
        }),
        case("collatz", |r, _| {
            let x: Vec<u32> = (0..300).map(|_| 1 + r.below(100_000) as u32).collect();
            let steps = |x: &u32| {
                let (mut x, mut count) = (u64::from(*x), 0);
                while x != 1 {
                    x = if x % 2 == 1 { 3 * x + 1 } else { x / 2 };
                    count += 1;
                }
                count
            };
            Run::flat(300).input(&x).exact::<i32>(&x.iter().map(steps).collect::<Vec<_>>()).n(300)
        }),
        integers("nested_branches", |r| r.below(5000) as i32, nested),
        case("switch_loop", |r, _| {
            let (n, length) = (r.range(100, 300), r.range(10, 60));
            let code: Vec<u8> = r.many(length);
            let expected: Vec<i32> = (0..n as i32).map(|i| switches(&code, i)).collect();
            Run::flat(n).input(&code).exact(&expected).n(n).n(length)
        }),
        case("mandelbrot", |r, _| {
            let (w, h, limit) = (r.range(20, 64), r.range(20, 64), r.range(10, 60));
            let one = |e: usize| {
                let (cr, ci) = ((e % w) as i64 * 3072 - 131_072, (e / w) as i64 * 2048 - 65536);
                let (mut zr, mut zi, mut steps) = (0i64, 0i64, 0);
                while steps < limit && zr * zr + zi * zi < 4 << 32 {
                    (zr, zi) = (((zr * zr - zi * zi) >> 16) + cr, ((2 * zr * zi) >> 16) + ci);
                    steps += 1;
                }
                steps as i32
            };
            let expected: Vec<i32> = (0..w * h).map(one).collect();
            Run::shape([(w as u32).div_ceil(8), (h as u32).div_ceil(8), 1], [8, 8, 1]).exact(&expected).n(w).n(h).n(limit)
        }),
        case("life", |r, _| {
            let (w, h) = (r.range(3, 40), r.range(3, 40));
            let x: Vec<u8> = (0..w * h).map(|_| u8::from(r.below(3) == 0)).collect();
            let one = |e: usize| {
                let around: u8 = (0..9).filter(|d| *d != 4).map(|d| x[(e / w + d / 3 + h - 1) % h * w + (e % w + d % 3 + w - 1) % w]).sum();
                u8::from(around == 3 || around == 2 && x[e] == 1)
            };
            let expected: Vec<u8> = (0..w * h).map(one).collect();
            Run::shape([(w as u32).div_ceil(16), (h as u32).div_ceil(8), 1], [16, 8, 1]).input(&x).exact(&expected).n(w).n(h)
        }),
    ]
}
