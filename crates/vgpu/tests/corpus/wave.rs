//! Wave-level operations.

use super::case::{Case, Gpu, Run};
use super::data::Elem;
use super::data::Tolerance::Near;
use super::rng::Rng;

const SOURCE: &str = "wave.cu";
const N: usize = 512;

fn run() -> Run {
    Run::blocks(N / 128, 128)
}

/// The value of each lane from the lane that `from` names, of the same wave.
fn lanes<T: Copy, R>(x: &[T], wave: usize, from: impl Fn(usize, &[T]) -> R) -> Vec<R> {
    (0..x.len()).map(|i| from(i % wave, &x[i / wave * wave..][..wave])).collect()
}

fn shuffle<T: Elem>(name: &str, make: fn(&mut Rng, usize) -> Vec<T>) -> Case {
    Case::new(format!("shuffle_{name}"), SOURCE, move |r, gpu| {
        let (x, from, w) = (make(r, N), r.indexes(N, gpu.wave), gpu.wave);
        let any: Vec<T> = (0..N).map(|i| x[i / w * w + from[i] as usize]).collect();
        let run = run().input(&x).input(&from).exact(&any);
        let run = run.exact(&lanes(&x, w, |l, wave| wave[if l < 3 { l } else { l - 3 }]));
        run.exact(&lanes(&x, w, |l, wave| wave[if l + 5 >= w { l } else { l + 5 }])).exact(&lanes(&x, w, |l, wave| wave[l ^ 9]))
    })
}

fn mask(wave: &[i32], test: impl Fn(i32) -> bool) -> u64 {
    wave.iter().enumerate().map(|(lane, x)| u64::from(test(*x)) << lane).sum()
}

fn wave_sum<T: Elem>(name: &str, make: fn(&mut Rng, usize) -> Vec<T>, relative: f64) -> Case {
    Case::new(format!("wave_sum_{name}"), SOURCE, move |r, gpu| {
        let x = make(r, N);
        let expected = lanes(&x, gpu.wave, |_, wave| wave.iter().map(|x| x.wide()).sum::<f64>());
        run().input(&x).close::<T>(expected, Near(0.0, relative * gpu.wave as f64))
    })
}

pub fn cases() -> Vec<Case> {
    let small = |r: &mut Rng, n: usize| (0..n).map(|_| r.below(2001) as i32 - 1000).collect::<Vec<i32>>();
    let case = |kernel: &'static str, make: fn(&mut Rng, &Gpu) -> Run| Case::new(kernel, SOURCE, make);
    vec![
        shuffle("i32", |r, n| r.many::<i32>(n)),
        shuffle("u32", |r, n| r.many::<u32>(n)),
        shuffle("i64", |r, n| r.many::<i64>(n)),
        shuffle("f32", |r, n| r.f32s(n, -9.0, 9.0)),
        shuffle("f64", |r, n| r.f64s(n, -9.0, 9.0)),
        shuffle("f16", |r, n| r.f16s(n, -9.0, 9.0)),
        case("shuffle_segments", |r, _| {
            let x: Vec<i32> = r.many(N);
            let pick = |from: &dyn Fn(usize) -> usize| (0..N).map(|i| x[from(i)]).collect::<Vec<_>>();
            let run = run().input(&x).exact(&pick(&|i| i / 16 * 16 + 3)).exact(&pick(&|i| if i % 8 < 2 { i } else { i - 2 }));
            run.exact(&pick(&|i| if i % 16 == 15 { i } else { i + 1 })).exact(&pick(&|i| i ^ 4))
        }),
        case("votes", |r, gpu| {
            // Whole waves that agree, and others.
            let x: Vec<i32> = (0..N).map(|i| [15, 0, r.below(16) as i32, 7 | r.below(2) as i32][i / gpu.wave % 4]).collect();
            let run = run().input(&x).exact(&lanes(&x, gpu.wave, |_, wave| mask(wave, |x| x & 1 != 0)));
            let run = run.exact(&lanes(&x, gpu.wave, |_, wave| i32::from(wave.iter().any(|x| x & 2 != 0))));
            let run = run.exact(&lanes(&x, gpu.wave, |_, wave| i32::from(wave.iter().all(|x| x & 4 != 0))));
            let uniform = |wave: &[i32]| wave.iter().all(|x| x & 8 != 0) || wave.iter().all(|x| x & 8 == 0);
            run.exact(&lanes(&x, gpu.wave, |_, wave| i32::from(uniform(wave))))
        }),
        case("active_lanes", |r, gpu| {
            let x = r.indexes(N, 9);
            let ones = |wave: &[i32], first: bool| mask(wave, |x| (x % 3 == 0) == first);
            let expected = lanes(&x, gpu.wave, |l, wave| if wave[l] % 3 == 0 { ones(wave, true) } else { !ones(wave, false) });
            run().input(&x).exact(&expected)
        }),
        case("match_any", |r, gpu| {
            let x = r.indexes(N, 6);
            run().input(&x).exact(&lanes(&x, gpu.wave, |l, wave| mask(wave, |x| x == wave[l])))
        }),
        case("match_all", |r, gpu| {
            let x: Vec<i32> = (0..N).map(|i| if i / gpu.wave % 2 == 0 { 5 } else { r.below(3) as i32 }).collect();
            let same = |wave: &[i32]| wave.iter().all(|x| *x == wave[0]);
            let all = u64::MAX >> (64 - gpu.wave);
            let run = run().input(&x).exact(&lanes(&x, gpu.wave, |_, wave| if same(wave) { all } else { 0 }));
            run.exact(&lanes(&x, gpu.wave, |_, wave| i32::from(same(wave))))
        }),
        case("reduce_sync", |r, gpu| {
            let x: Vec<u32> = r.many(N);
            let run = run().input(&x).exact(&lanes(&x, gpu.wave, |_, wave| wave.iter().fold(0u32, |a, b| a.wrapping_add(*b))));
            let run = run.exact(&lanes(&x, gpu.wave, |_, wave| wave.iter().copied().min().unwrap_or(0)));
            run.exact(&lanes(&x, gpu.wave, |_, wave| wave.iter().fold(0, |a, b| a ^ b)))
        }),
        wave_sum::<i32>("i32", small, 0.0),
        wave_sum::<i64>("i64", |r, n| (0..n).map(|_| r.below(1 << 40) as i64 - (1 << 39)).collect(), 0.0),
        wave_sum::<f32>("f32", |r, n| r.f32s(n, -1.0, 1.0), 1e-6),
        wave_sum::<f64>("f64", |r, n| r.f64s(n, -1.0, 1.0), 1e-14),
        case("wave_max_down_f32", |r, gpu| {
            let x = r.f32s(N, -50.0, 50.0);
            let most: Vec<f32> = x.chunks(gpu.wave).map(|wave| wave.iter().copied().fold(f32::MIN, f32::max)).collect();
            run().input(&x).exact(&most)
        }),
        Case::new("wave_scan_i32", SOURCE, move |r, gpu| {
            let x = small(r, N);
            let before = |l: usize, wave: &[i32]| wave[..l].iter().sum::<i32>();
            let inclusive = lanes(&x, gpu.wave, |l, wave| before(l, wave) + wave[l]);
            run().input(&x).exact(&inclusive).exact(&lanes(&x, gpu.wave, before))
        }),
        Case::new("compact_wave", SOURCE, move |r, gpu| {
            let x = small(r, N);
            let passing = |wave: &[i32]| wave.iter().filter(|x| **x > 0).count() as i32;
            let place = lanes(&x, gpu.wave, |l, wave| if wave[l] > 0 { passing(&wave[..l]) } else { -1 });
            run().input(&x).exact(&place).exact(&lanes(&x, gpu.wave, |_, wave| passing(wave)))
        }),
        case("shrinking_vote", |r, gpu| {
            let x = r.indexes(N, 20);
            // In round k those are left that stay longer than k.
            let left = |wave: &[i32], round: i32| wave.iter().filter(|x| **x > round).count() as i32;
            run().input(&x).exact(&lanes(&x, gpu.wave, |l, wave| (0..wave[l]).map(|round| left(wave, round)).sum::<i32>()))
        }),
        case("wave_argmin", |r, gpu| {
            let x: Vec<f32> = (0..N).map(|_| r.below(40) as f32 - 20.0).collect();
            let best = |wave: &[f32]| wave.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1)).map_or((0, 0.0), |(i, x)| (i, *x));
            let run = run().input(&x).exact(&lanes(&x, gpu.wave, |_, wave| best(wave).1));
            run.exact(&lanes(&x, gpu.wave, |_, wave| best(wave).0 as i32))
        }),
    ]
}
