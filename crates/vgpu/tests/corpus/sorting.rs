//! Sorting, histograms, selection.

use super::case::{Case, Gpu, Run};
use super::data::Elem;
use super::rng::Rng;

const SOURCE: &str = "sorting.cu";

fn sorted<T: Copy>(x: &[T], compare: fn(&T, &T) -> std::cmp::Ordering) -> Vec<T> {
    let mut x = x.to_vec();
    x.sort_by(compare);
    x
}

fn bitonic<T: Elem>(kernel: &'static str, make: fn(&mut Rng, usize) -> Vec<T>, compare: fn(&T, &T) -> std::cmp::Ordering) -> Case {
    Case::new(kernel, SOURCE, move |r, _| {
        let x = make(r, 1024);
        let expected: Vec<T> = x.chunks(512).flat_map(|part| sorted(part, compare)).collect();
        Run::blocks(2, 256).update(&x, &expected)
    })
}

pub fn cases() -> Vec<Case> {
    let case = |kernel: &'static str, make: fn(&mut Rng, &Gpu) -> Run| Case::new(kernel, SOURCE, make);
    let histogram: fn(&mut Rng, &Gpu) -> Run = |r, _| {
        let n = r.range(500, 3000);
        let x: Vec<u8> = r.many(n);
        let before: Vec<u32> = r.many(256);
        let mut after = before.clone();
        x.iter().for_each(|x| after[usize::from(*x)] = after[usize::from(*x)].wrapping_add(1));
        Run::blocks(3, 128).input(&x).update(&before, &after).n(n)
    };
    vec![
        bitonic("bitonic_i32", |r, n| r.many(n), i32::cmp),
        bitonic("bitonic_f32", |r, n| r.f32s(n, -100.0, 100.0), f32::total_cmp),
        bitonic("bitonic_u64", |r, n| r.many(n), u64::cmp),
        case("bitonic_global_u32", |r, _| {
            let x: Vec<u32> = r.many(256);
            Run::blocks(1, 128).update(&x, &sorted(&x, u32::cmp)).n(256)
        }),
        case("radix_sort", |r, _| {
            let n = r.range(100, 600);
            let keys: Vec<u32> = (0..n).map(|_| r.any::<u32>() & 0xff00_ff0f).collect();
            let values: Vec<u32> = (0..n as u32).collect();
            let mut pairs: Vec<(u32, u32)> = keys.iter().copied().zip(values.iter().copied()).collect();
            // Stable, as the kernel is.
            pairs.sort_by_key(|(key, _)| *key);
            let (sorted_keys, sorted_values): (Vec<u32>, Vec<u32>) = pairs.into_iter().unzip();
            let run = Run::blocks(1, 64).update(&keys, &sorted_keys).update(&values, &sorted_values);
            // The spare arrays end with the round before the last.
            run.judged(&vec![0u32; n], |_| Ok(())).judged(&vec![0u32; n], |_| Ok(())).n(n)
        }),
        case("odd_even_sort", |r, _| {
            let x: Vec<i16> = r.many(101);
            Run::blocks(1, 64).update(&x, &sorted(&x, i16::cmp)).n(101)
        }),
        case("histogram_global", histogram),
        case("histogram_shared", histogram),
        case("top4", |r, _| {
            let (rows, columns) = (r.range(1, 150), r.range(4, 60));
            let x = r.f32s(rows * columns, -5.0, 5.0);
            let best = |row: &[f32]| {
                let mut order: Vec<usize> = (0..columns).collect();
                order.sort_by(|a, b| row[*b].total_cmp(&row[*a]).then(a.cmp(b)));
                order[..4].iter().map(|i| (row[*i], *i as i32)).collect::<Vec<_>>()
            };
            let (values, places): (Vec<f32>, Vec<i32>) = x.chunks(columns).flat_map(best).unzip();
            Run::flat(rows).input(&x).exact(&values).exact(&places).n(rows).n(columns)
        }),
        case("lower_bound", |r, _| {
            let (n, count) = (r.range(1, 500), r.range(1, 300));
            let line = sorted(&r.indexes(n, 400), i32::cmp);
            let needles = r.indexes(count, 420);
            let expected: Vec<i32> = needles.iter().map(|x| line.partition_point(|y| y < x) as i32).collect();
            Run::flat(count).input(&line).input(&needles).exact(&expected).n(n).n(count)
        }),
    ]
}
