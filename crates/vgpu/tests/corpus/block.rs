//! Block-level operations through shared memory.

use super::case::{Case, Gpu, Run};
use super::data::Tolerance::Near;
use super::rng::Rng;

pub fn cases() -> Vec<Case> {
    let case = |kernel: &'static str, make: fn(&mut Rng, &Gpu) -> Run| Case::new(kernel, "block.cu", make);
    vec![
        case("block_sum_f32", |r, _| {
            let (n, blocks, size) = (r.range(500, 2000), r.range(1, 5), [64, 100, 256, 333, 1024][r.below(5)]);
            let x = r.f32s(n, -1.0, 1.0);
            let mut sums = vec![0.0; blocks];
            for (i, x) in x.iter().enumerate() {
                sums[i / size % blocks] += f64::from(*x);
            }
            Run::blocks(blocks, size).input(&x).close::<f32>(sums, Near(0.0, 1e-4)).n(n)
        }),
        case("block_max_i64", |r, _| {
            let x: Vec<i64> = (0..777).map(|_| r.next() as i64).collect();
            Run::blocks(1, 256).input(&x).exact(&[*x.iter().max().unwrap()]).n(777)
        }),
        case("block_sum_waves_f64", |r, _| {
            let x = r.f64s(1000, -1.0, 1.0);
            Run::blocks(1, 256).input(&x).close::<f64>(vec![x.iter().sum()], Near(0.0, 1e-11)).n(1000)
        }),
        case("block_argmax_f32", |r, _| {
            let x: Vec<f32> = (0..900).map(|_| r.below(100) as f32 - 50.0).collect();
            let most = x.iter().copied().fold(f32::MIN, f32::max);
            let first = x.iter().position(|x| *x == most).unwrap() as i32;
            Run::blocks(1, 256).input(&x).exact(&[first]).n(900)
        }),
        case("block_scan_f32", |r, _| {
            let size = r.range(100, 257);
            let x = r.f32s(3 * size, -1.0, 1.0);
            let scan = |part: &[f32]| {
                part.iter()
                    .scan(0.0, |sum, x| {
                        *sum += f64::from(*x);
                        Some(*sum)
                    })
                    .collect::<Vec<f64>>()
            };
            Run::blocks(3, size).input(&x).close::<f32>(x.chunks(size).flat_map(scan).collect(), Near(0.0, 1e-4))
        }),
        case("block_scan_u32", |r, _| {
            let x: Vec<u32> = r.many(1024);
            let scan =
                |part: &[u32]| part.iter().scan(0u32, |sum, x| Some(std::mem::replace(sum, sum.wrapping_add(*x)))).collect::<Vec<_>>();
            Run::blocks(2, 256).input(&x).exact(&x.chunks(512).flat_map(scan).collect::<Vec<_>>())
        }),
        case("block_votes", |r, _| {
            let size = r.range(65, 300);
            let x: Vec<i32> = (0..4 * size).map(|i| r.below([100, 92, 60, 200][i / size]) as i32 - [100, 0, 50, 100][i / size]).collect();
            let each = |f: &dyn Fn(&[i32]) -> i32| x.chunks(size).flat_map(|part| vec![f(part); size]).collect::<Vec<_>>();
            let run = Run::blocks(4, size).input(&x).exact(&each(&|part| part.iter().filter(|x| **x > 0).count() as i32));
            let run = run.exact(&each(&|part| i32::from(part.iter().any(|x| *x > 90))));
            run.exact(&each(&|part| i32::from(part.iter().all(|x| *x > -90))))
        }),
        case("stencil_halo", |r, _| {
            let n = r.range(300, 700);
            let x = r.f32s(n, -1.0, 1.0);
            let at = |i: i64| if (0..n as i64).contains(&i) { f64::from(x[i as usize]) } else { 0.0 };
            let expected = (0..n as i64).map(|i| (-2..=2).map(|d| at(i + d)).sum()).collect();
            Run::blocks(n.div_ceil(128), 128).input(&x).close::<f32>(expected, Near(0.0, 1e-6)).n(n)
        }),
        case("shared_bytes", |r, _| {
            let x: Vec<u8> = r.many(384);
            let other = |i: usize| x[i / 192 * 192 + 191 - i % 192];
            let reversed: Vec<u8> = (0..384).map(other).collect();
            let sums: Vec<i16> = (0..384).map(|i| i16::from(x[i]) + i16::from(other(i)) - 200).collect();
            Run::blocks(2, 192).input(&x).exact(&reversed).exact(&sums)
        }),
        case("shared_vectors", |r, _| {
            let x = r.f32s(512, -9.0, 9.0);
            // Element e of thread t comes from the thread whose number differs in the bits of 21, backwards.
            let expected: Vec<f32> = (0..512).map(|i| x[i / 256 * 256 + ((i / 4 % 64) ^ 21) * 4 + 3 - i % 4]).collect();
            Run::blocks(2, 64).input(&x).exact(&expected)
        }),
    ]
}
