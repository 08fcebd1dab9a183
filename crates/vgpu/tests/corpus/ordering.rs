//! Synchronization between blocks and waves, and clocks.

use super::case::{Case, Gpu, Run};
use super::rng::Rng;

const SOURCE: &str = "ordering.cu";

fn ints(r: &mut Rng, n: usize) -> Vec<i32> {
    (0..n).map(|_| r.below(2001) as i32 - 1000).collect()
}

pub fn cases() -> Vec<Case> {
    let case = |kernel: &'static str, make: fn(&mut Rng, &Gpu) -> Run| Case::new(kernel, SOURCE, make);
    vec![
        case("chain", |r, _| {
            let blocks = r.range(2, 20);
            let x = ints(r, blocks);
            let sums: Vec<i32> = x
                .iter()
                .scan(0, |sum, x| {
                    *sum += x;
                    Some(*sum)
                })
                .collect();
            Run::blocks(blocks, 64).input(&x).update(&vec![0; blocks], &vec![1; blocks]).update(&vec![0; blocks], &sums).exact(&sums)
        }),
        case("ping_pong", |r, _| {
            let rounds = r.range(3, 20);
            let caught = |who: i32| (0..rounds as i32).map(|round| 2 * round + who).sum::<i32>();
            Run::blocks(2, 64).update(&[0], &[2 * rounds as i32]).exact(&[caught(0), caught(1)]).n(rounds)
        }),
        case("last_block_sum", |r, _| {
            let (n, blocks) = (r.range(100, 2000), r.range(1, 9));
            let x = ints(r, n);
            let part = |b: usize| x.iter().enumerate().filter(|(i, _)| i / 128 % blocks == b).map(|(_, x)| x).sum::<i32>();
            let parts: Vec<i32> = (0..blocks).map(part).collect();
            Run::blocks(blocks, 128).input(&x).exact(&parts).update(&[0u32], &[0]).exact(&[x.iter().sum::<i32>()]).n(n)
        }),
        case("spin_lock", |r, _| {
            let (blocks, rounds) = (r.range(1, 9), r.range(1, 9));
            let account = [(blocks * rounds) as i32, (rounds * blocks * (blocks - 1) / 2) as i32];
            Run::blocks(blocks, 64).update(&[0], &[0]).update(&[0, 0], &account).n(rounds)
        }),
        case("wave_synchronous", |r, gpu| {
            let x = ints(r, 512);
            let sums: Vec<i32> = x.chunks(gpu.wave).map(|wave| wave.iter().sum()).collect();
            Run::blocks(2, 256).input(&x).exact(&sums)
        }),
        case("ring", |r, gpu| {
            let n = r.range(5, 60);
            let x = ints(r, n);
            let expected: Vec<i32> = x.iter().map(|x| 2 * x + 1).collect();
            Run::blocks(1, 2 * gpu.wave).input(&x).exact(&expected).n(n)
        }),
        case("uneven_barriers", |r, _| {
            let rounds = r.range(1, 12);
            let mut board: Vec<i32> = (0..256).collect();
            for _ in 0..rounds {
                let turn = |t: usize| (0..t / 64 * 3).fold(board[(t + 64) % 256], |x, _| x.wrapping_mul(5).wrapping_add(1)) & 0xffff;
                board = (0..256).map(turn).collect();
            }
            Run::blocks(1, 256).exact(&board).n(rounds)
        }),
        case("clocks", |r, _| {
            let work = r.range(5, 50) as i64;
            let judge = move |out: &[i64]| {
                let wrong = out.chunks(3).position(|t| t[1] <= t[0] || t[2] != work * (work - 1) / 2);
                wrong.map_or(Ok(()), |t| Err(format!("thread {t}: start, end and sum are {:?}", &out[3 * t..3 * t + 3])))
            };
            Run::blocks(1, 64).judged(&[0i64; 192], judge).scalar(work as i32)
        }),
    ]
}
