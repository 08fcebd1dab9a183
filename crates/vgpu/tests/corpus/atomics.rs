//! Atomics on global and shared memory.

use half::{bf16, f16};

use super::case::{Case, Run};
use super::data::Elem;
use super::rng::Rng;

const SOURCE: &str = "atomics.cu";

/// Thread i joins its value with cell i % cells; whatever the order, the result is the same.
fn joined<T: Elem>(kernel: String, make: fn(&mut Rng, usize) -> Vec<T>, join: fn(T, T) -> T) -> Case {
    Case::new(kernel.clone(), SOURCE, move |r, _| {
        let (n, cells) = (r.range(100, 600), r.range(1, 33));
        let (before, values) = (make(r, cells), make(r, n));
        let mut after = before.clone();
        for (i, value) in values.iter().enumerate() {
            after[i % cells] = join(after[i % cells], *value);
        }
        let run = if kernel.starts_with("shared") { Run::blocks(1, 128) } else { Run::flat(n) };
        run.update(&before, &after).input(&values).n(n).n(cells)
    })
}

/// On global and on shared memory.
fn both<T: Elem>(name: &str, make: fn(&mut Rng, usize) -> Vec<T>, join: fn(T, T) -> T) -> [Case; 2] {
    ["atomic", "shared"].map(|place| joined(format!("{place}_{name}"), make, join))
}

/// Floating-point numbers whose sums are exact in any order.
fn whole32(r: &mut Rng, n: usize) -> Vec<f32> {
    (0..n).map(|_| r.below(2001) as f32 - 1000.0).collect()
}

macro_rules! integers {
    ($cases:ident, $($ty:ident)*) => { $({
        let name = |operation: &str| format!("{operation}_{}", stringify!($ty));
        let any = |r: &mut Rng, n: usize| (0..n).map(|_| r.next() as $ty).collect::<Vec<$ty>>();
        $cases.extend(both(&name("min"), any, |a, b| a.min(b)));
        $cases.extend(both(&name("max"), any, |a, b| a.max(b)));
        // Sparse zeros and sparse ones, so that something is left to see.
        $cases.extend(both::<$ty>(&name("and"), |r, n| (0..n).map(|_| !(1 << r.below(<$ty>::BITS as usize))).collect(), |a, b| a & b));
        $cases.extend(both::<$ty>(&name("or"), |r, n| (0..n).map(|_| 1 << r.below(<$ty>::BITS as usize)).collect(), |a, b| a | b));
        $cases.extend(both(&name("xor"), any, |a, b| a ^ b));
    })* };
}

/// Of cells and old values together nothing is lost and nothing made.
fn exchange<T: Elem + PartialEq>(kernel: &'static str, make: fn(usize) -> T) -> Case {
    Case::new(kernel, SOURCE, move |r, _| {
        let (n, cells) = (r.range(100, 500), r.range(1, 33));
        let before: Vec<T> = (0..cells).map(make).chain((0..n).map(|_| make(0))).collect();
        let values: Vec<T> = (0..n).map(|i| make(1000 + i)).collect();
        let judge = move |after: &[T]| {
            let mut seen: Vec<usize> = after.iter().map(|x| x.wide() as usize).collect();
            seen.sort_unstable();
            let all: Vec<usize> = (0..cells).chain((0..n).map(|i| 1000 + i)).collect();
            // What thread i took was in cell i % cells.
            let misplaced = after[cells..].iter().enumerate().find(|(i, x)| {
                let value = x.wide() as usize;
                let home = if value < 1000 { value } else { (value - 1000) % cells };
                home != i % cells
            });
            match misplaced {
                Some((i, _)) => Err(format!("thread {i} took a value of another cell")),
                None if seen != all => Err("values were lost or doubled".to_owned()),
                None => Ok(()),
            }
        };
        Run::flat(n).judged(&before, judge).input(&values).n(n).n(cells)
    })
}

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    integers!(cases, i32 u32 i64 u64);
    cases.extend(both("add_i32", |r, n| r.many::<i32>(n), i32::wrapping_add));
    cases.extend(both("add_u32", |r, n| r.many::<u32>(n), u32::wrapping_add));
    cases.extend(both("add_u64", |r, n| r.many::<u64>(n), u64::wrapping_add));
    cases.extend(both("add_f32", whole32, |a, b| a + b));
    cases.extend(both("add_f64", |r, n| (0..n).map(|_| r.below(1 << 40) as f64 - 1e11).collect(), |a: f64, b| a + b));
    cases.extend(both("sub_i32", |r, n| r.many::<i32>(n), i32::wrapping_sub));
    cases.extend(both("sub_u32", |r, n| r.many::<u32>(n), u32::wrapping_sub));
    let turn = |r: &mut Rng, n: usize| (0..n).map(|_| r.below(20) as u32).collect::<Vec<u32>>();
    cases.extend(both("inc_u32", turn, |a, _| if a >= 12 { 0 } else { a + 1 }));
    cases.extend(both("dec_u32", turn, |a, _| if a == 0 || a > 12 { 12 } else { a - 1 }));
    cases.extend(both("cas_i32", |r, n| r.many::<i32>(n), i32::wrapping_add));
    cases.extend(both("cas_u64", |r, n| r.many::<u64>(n), u64::wrapping_add));
    let small16 = |r: &mut Rng, n: usize| (0..n).map(|_| f16::from_f32(r.below(3) as f32 - 1.0)).collect::<Vec<_>>();
    cases.push(joined("atomic_add_f16".to_owned(), small16, |a, b| a + b));
    cases.push(joined(
        "atomic_add_bf16".to_owned(),
        |r, n| (0..n).map(|_| bf16::from_f32(r.below(3) as f32 - 1.0)).collect(),
        |a, b| a + b,
    ));
    cases.push(Case::new("atomic_add_f16x2", SOURCE, move |r, _| {
        let (n, cells) = (r.range(100, 400), r.range(1, 20));
        let (before, values) = (small16(r, 2 * cells), small16(r, 2 * n));
        let mut after = before.clone();
        for (i, value) in values.iter().enumerate() {
            let place = i / 2 % cells * 2 + i % 2;
            after[place] += *value;
        }
        Run::flat(n).update(&before, &after).input(&values).n(n).n(cells)
    }));
    cases.extend([
        exchange("atomic_exch_i32", |x| x as i32),
        exchange("atomic_exch_u64", |x| x as u64),
        exchange("atomic_exch_f32", |x| x as f32),
        Case::new("atomic_tickets", SOURCE, |r, _| {
            let (n, start) = (r.range(100, 900), r.below(1000) as u32);
            let judge = move |tickets: &[u32]| {
                let mut tickets = tickets.to_vec();
                tickets.sort_unstable();
                if tickets.iter().copied().eq(start..start + n as u32) { Ok(()) } else { Err("a ticket twice, or left out".to_owned()) }
            };
            Run::flat(n).update(&[start], &[start + n as u32]).judged(&vec![u32::MAX; n], judge).n(n)
        }),
        Case::new("whole_words", SOURCE, |r, _| {
            let n = r.range(2000, 4000);
            // What was written last is of no matter, so that the halves are one number's.
            let judge = |cells: &[u64]| {
                if cells.iter().all(|x| x >> 32 == x & 0xffff_ffff) { Ok(()) } else { Err("halves of two numbers".to_owned()) }
            };
            Run::blocks(4, 64).judged(&[0u64; 64], judge).update(&[0u32], &[0]).n(n)
        }),
        Case::new("atomic_max_f32", SOURCE, |r, _| {
            let x = r.f32s(700, -100.0, 100.0);
            let most = x.iter().copied().fold(-3.0, f32::max);
            Run::blocks(3, 128).update(&[-3.0f32], &[most]).input(&x).n(700)
        }),
        Case::new("atomic_compact", SOURCE, |r, _| {
            let n = r.range(100, 700);
            let x = r.indexes(n, 10000);
            let mut passing: Vec<i32> = x.iter().copied().filter(|x| x % 3 == 0).collect();
            passing.sort_unstable();
            let judge = move |out: &[i32]| {
                let count = out[0] as usize;
                if count != passing.len() {
                    return Err(format!("{count} passed, {} should have", passing.len()));
                }
                let mut found = out[1..=count].to_vec();
                found.sort_unstable();
                if found == passing { Ok(()) } else { Err("not the numbers that should have passed".to_owned()) }
            };
            Run::flat(n).input(&x).judged(&vec![0i32; n + 1], judge).n(n)
        }),
    ]);
    cases
}
