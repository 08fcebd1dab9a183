//! Scratch memory: local arrays and register spills.

use super::case::{Case, Gpu, Run};
use super::data::Elem;
use super::data::Tolerance::Near;
use super::rng::Rng;

const SOURCE: &str = "scratch.cu";

fn local_sort<T: Elem>(
    kernel: &'static str,
    count: usize,
    make: fn(&mut Rng, usize) -> Vec<T>,
    compare: fn(&T, &T) -> std::cmp::Ordering,
) -> Case {
    Case::new(kernel, SOURCE, move |r, _| {
        let n = r.range(50, 200);
        let x = make(r, n * count);
        let mut expected = x.clone();
        expected.chunks_mut(count).for_each(|part| part.sort_by(compare));
        Run::flat(n).input(&x).exact(&expected).n(n)
    })
}

/// 96 or 48 sums that all see the same numbers.
fn sums(x: &[f64], rounds: usize, count: usize, keep: f64, weight: usize, total: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let thread = |t: usize| {
        let mut sum: Vec<f64> = (0..count).map(|j| j as f64).collect();
        for round in 0..rounds {
            for (j, sum) in sum.iter_mut().enumerate() {
                *sum = *sum * keep + x[(round * 64 + t) % 512] * (j % weight) as f64;
            }
        }
        total(&sum)
    };
    (0..128).map(|i| thread(i % 64)).collect()
}

/// A program for the stack machine that never runs dry.
fn program(r: &mut Rng) -> Vec<(i32, i32)> {
    let (mut depth, mut code) = (1, Vec::new());
    for _ in 0..60 {
        let choice = if depth < 2 {
            [0, 5][r.below(2)]
        } else if depth > 30 {
            1 + r.below(3) as i32
        } else {
            r.below(6) as i32
        };
        depth = match choice {
            0 | 5 => depth + 1,
            4 => depth,
            _ => depth - 1,
        };
        code.push((choice, r.below(100) as i32));
    }
    code
}

fn interpret(code: &[(i32, i32)], input: i32, thread: i32) -> i32 {
    let mut stack = vec![input];
    for (choice, operand) in code {
        let top = stack.len();
        match choice {
            0 => stack.push(operand + thread),
            5 => stack.push(stack[top - 1]),
            4 => stack.swap(top - 1, top - 2),
            _ => {
                let (b, a) = (stack.pop().unwrap(), stack.pop().unwrap());
                stack.push(match choice {
                    1 => a.wrapping_add(b),
                    2 => a.wrapping_sub(b),
                    _ => a.wrapping_mul(b),
                });
            }
        }
    }
    stack[stack.len() - 1]
}

/// By minors: another way than the kernel's.
fn determinant(m: &[f64], n: usize) -> f64 {
    if n == 1 {
        return m[0];
    }
    let minor = |c: usize| (n..n * n).filter(|e| e % n != c).map(|e| m[e]).collect::<Vec<_>>();
    (0..n).map(|c| if c % 2 == 0 { m[c] } else { -m[c] } * determinant(&minor(c), n - 1)).sum()
}

pub fn cases() -> Vec<Case> {
    let case = |kernel: &'static str, make: fn(&mut Rng, &Gpu) -> Run| Case::new(kernel, SOURCE, make);
    vec![
        case("local_permute", |r, _| {
            let n = r.range(50, 200);
            let x: Vec<i32> = r.many(16 * n);
            let mut order: Vec<i32> = (0..16).collect();
            (1..16).for_each(|i| order.swap(i, r.below(i + 1)));
            let local = |i: usize, place: usize| x[i * 16 + order.iter().position(|p| *p as usize == place).unwrap()];
            let expected: Vec<i32> = (0..16 * n).map(|e| local(e / 16, (e % 16 * 5 + e / 16) % 16)).collect();
            Run::flat(n).input(&x).input(&order).exact(&expected).n(n)
        }),
        local_sort("local_sort_i32", 24, |r, n| r.many(n), i32::cmp),
        local_sort("local_sort_f64", 16, |r, n| r.f64s(n, -9.0, 9.0), f64::total_cmp),
        local_sort("local_sort_u8", 33, |r, n| r.many(n), u8::cmp),
        local_sort("local_sort_i16", 19, |r, n| r.many(n), i16::cmp),
        case("local_histogram", |r, _| {
            let (n, length) = (r.range(20, 150), r.range(10, 60));
            let x: Vec<u8> = r.many(n * length);
            let bins = |part: &[u8]| (0..32).map(|bin| part.iter().filter(|x| **x % 32 == bin).count() as u32).collect::<Vec<_>>();
            let expected: Vec<u32> = x.chunks(length).flat_map(bins).collect();
            Run::flat(n).input(&x).exact(&expected).n(n).n(length)
        }),
        case("many_sums", |r, _| {
            let (x, rounds) = (r.f32s(512, -1.0, 1.0), r.range(1, 9));
            let wide: Vec<f64> = x.iter().map(|x| x.wide()).collect();
            let expected = sums(&wide, rounds, 96, 0.5, 7, |sum| sum.iter().zip(0..).map(|(x, j)| x * f64::from(j % 5 + 1)).sum());
            Run::blocks(2, 64).input(&x).close::<f32>(expected, Near(2e-5, 2e-3)).n(rounds)
        }),
        case("many_doubles", |r, _| {
            let (x, rounds) = (r.f64s(512, -1.0, 1.0), r.range(1, 9));
            let expected = sums(&x, rounds, 48, 0.25, 5, |sum| sum.iter().fold(0.0, |total, x| total * 0.5 + x));
            Run::blocks(2, 64).input(&x).close::<f64>(expected, Near(1e-13, 1e-12)).n(rounds)
        }),
        case("stack_machine", |r, _| {
            let n = r.range(50, 300);
            let (code, x): (_, Vec<i32>) = (program(r), r.many(n));
            let flat: Vec<i32> = code.iter().flat_map(|(choice, operand)| [*choice, *operand]).collect();
            let expected: Vec<i32> = x.iter().zip(0..).map(|(x, i)| interpret(&code, *x, i)).collect();
            Run::flat(n).input(&flat).input(&x).exact(&expected).n(code.len()).n(n)
        }),
        case("determinant5", |r, _| {
            let x = r.f64s(25 * 150, -1.0, 1.0);
            let expected = x.chunks(25).map(|m| determinant(m, 5)).collect();
            Run::flat(150).input(&x).close::<f64>(expected, Near(1e-10, 1e-10)).n(150)
        }),
        case("generic_pointers", |r, _| {
            let before = r.indexes(64, 1000);
            let (mut after, mut out) = (before.clone(), vec![0; 64]);
            for t in 0..64i32 {
                let mut local = [100, 200, 300, 400];
                let value = match t % 3 {
                    0 => {
                        after[t as usize] += 7;
                        after[t as usize]
                    }
                    1 => 1000 + 63 - t + 7,
                    _ => {
                        local[t as usize % 4] += 7;
                        local[t as usize % 4]
                    }
                };
                out[t as usize] = value + local[(t as usize + 1) % 4];
            }
            Run::blocks(1, 64).update(&before, &after).exact(&out)
        }),
    ]
}
