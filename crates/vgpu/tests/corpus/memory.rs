//! Memory spaces and access widths.

use bytemuck::{Pod, Zeroable};

use super::case::{Case, Gpu, Run};
use super::data::ROUNDED;
use super::data::Tolerance::Near;
use super::rng::Rng;

const SOURCE: &str = "memory.cu";

/// As the C++ compiler lays it out, its gaps spelled out.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Settings {
    flag: i8,
    gap: i8,
    offset: i16,
    count: i32,
    scale: f64,
    weights: [f32; 5],
    gap2: i32,
    big: i64,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Particle {
    position: [f32; 3],
    kind: u8,
    gap: u8,
    charge: i16,
    mass: f64,
}

pub fn cases() -> Vec<Case> {
    let case = |kernel: &'static str, make: fn(&mut Rng, &Gpu) -> Run| Case::new(kernel, SOURCE, make);
    vec![
        case("constant_polynomial", |r, _| {
            let (x, c) = (r.f32s(300, -1.0, 1.0), r.f32s(8, -1.0, 1.0));
            let expected: Vec<f32> = x.iter().map(|x| c.iter().rev().fold(0.0f32, |sum, c| sum.mul_add(*x, *c))).collect();
            Run::flat(300).global("coefficients", &c).input(&x).exact(&expected).n(300)
        }),
        case("constant_lookup", |r, _| {
            let (x, table): (Vec<u8>, Vec<i32>) = (r.many(300), r.many(256));
            let expected: Vec<i32> = x.iter().map(|x| table[usize::from(*x)]).collect();
            Run::flat(300).global("lookup", &table).input(&x).exact(&expected).n(300)
        }),
        case("device_globals", |r, _| {
            let (x, start) = (r.f64s(300, -1.0, 1.0), r.below(100) as i32);
            let expected = x.iter().enumerate().map(|(i, x)| x + ((i % 4) as f64 + 0.5) * f64::from(start)).collect();
            Run::flat(300).global("counter_start", &[start]).input(&x).close::<f64>(expected, Near(1e-15, 1e-15)).n(300)
        }),
        case("device_global_written", |r, _| {
            let x: Vec<u32> = r.many(64);
            let expected: Vec<u32> = (0..64).map(|t| x[(t + 17) % 64].wrapping_mul(3)).collect();
            Run::blocks(1, 64).input(&x).exact(&expected)
        }),
        case("static_table", |r, _| {
            let x = r.indexes(300, 1000);
            let primes = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29];
            let expected: Vec<i32> = x.iter().map(|x| primes[*x as usize % 10] * x).collect();
            Run::flat(300).input(&x).exact(&expected).n(300)
        }),
        case("dynamic_shared", |r, _| {
            let size = r.range(1, 257);
            let x: Vec<i32> = (0..size).map(|_| r.below(1 << 20) as i32).collect();
            let one = |x: &i32| f64::from(*x) * 0.5 + f64::from(*x) + f64::from(*x as u8);
            let expected: Vec<f64> = x.iter().rev().map(one).collect();
            Run::blocks(1, size).shared(size * 13).input(&x).exact(&expected)
        }),
        case("both_shared", |r, _| {
            let x = r.f32s(64, -1.0, 1.0);
            let expected = (0..64).map(|t| f64::from(x[63 - t]) - 2.0 * f64::from(x[(t + 1) % 64])).collect();
            Run::blocks(1, 64).shared(256).input(&x).close::<f32>(expected, ROUNDED)
        }),
        case("struct_argument", |r, _| {
            let weights = [0; 5].map(|_| r.real(-1.0, 1.0) as f32);
            let s = Settings {
                flag: r.below(2) as i8,
                gap: 0,
                offset: r.any(),
                count: r.below(1000) as i32,
                scale: r.real(-2.0, 2.0),
                weights,
                gap2: 0,
                big: r.below(1 << 30) as i64,
            };
            let x = r.f32s(300, -9.0, 9.0);
            let one = |(i, x): (usize, &f32)| {
                let x = f64::from(*x) * s.scale + f64::from(s.weights[i % 5]) + f64::from(s.offset);
                if s.flag != 0 { x + s.big as f64 } else { x - f64::from(s.count) }
            };
            let expected = x.iter().enumerate().map(one).collect();
            Run::flat(300).input(&x).close::<f64>(expected, Near(1e-12, 1e-12)).scalar(s).n(300)
        }),
        case("mixed_arguments", |r, _| {
            let (a, b, c, d, e, f): (i8, i64, i16, f64, u8, f32) =
                (r.any(), r.any(), r.any(), r.real(-1e6, 1e6), r.any(), r.real(0.0, 1e6) as f32);
            let (g, h, i): (u8, u16, u64) = (r.below(2) as u8, r.any(), r.any());
            let expected = [a.into(), b as i32, c.into(), d as i32, e.into(), f as i32, g.into(), h.into(), i as i32];
            let run = Run::blocks(1, 64).scalar(a).scalar(b).scalar(c).scalar(d).scalar(e).scalar(f);
            run.exact::<i32>(&expected).scalar(g).scalar(h).scalar(i)
        }),
        case("vector_access", |r, _| {
            let x = r.f32s(1200, -1.0, 1.0);
            let pairs: Vec<f32> = x.chunks(2).map(|v| v[0] + v[1]).collect();
            let triples: Vec<f32> = x.chunks(4).flat_map(|v| [v[3], v[0], v[1]]).collect();
            Run::flat(300).input(&x).exact(&pairs).exact(&triples).n(300)
        }),
        case("vector_integers", |r, _| {
            let x: Vec<i32> = r.many(1200);
            let bytes: Vec<u8> = x.iter().map(|x| *x as u8).collect();
            let shorts: Vec<i16> = x.chunks(4).flat_map(|v| [v[0] as i16, (v[1] >> 16) as i16]).collect();
            let wide: Vec<u64> = x.chunks(4).flat_map(|v| [u64::from(v[2] as u32) << 8, u64::from(v[3] as u32)]).collect();
            Run::flat(300).input(&x).exact(&bytes).exact(&shorts).exact(&wide).n(300)
        }),
        case("unaligned_words", |r, _| {
            let x: Vec<u8> = r.many(3 * 300 + 8);
            let word = |i: usize| u32::from_le_bytes([0, 1, 2, 3].map(|j| x[3 * i + 1 + j]));
            let expected: Vec<u32> = (0..300).map(word).collect();
            Run::flat(300).input(&x).exact(&expected).n(300)
        }),
        case("gather_scatter", |r, _| {
            let mut index: Vec<i32> = (0..300).collect();
            (1..300).for_each(|i| index.swap(i, r.below(i + 1)));
            let x: Vec<i64> = (0..300).map(|_| r.below(1 << 50) as i64).collect();
            let mut expected = vec![0i64; 300];
            for i in 0..300 {
                expected[index[i] as usize] = x[index[299 - i] as usize] - i as i64;
            }
            Run::flat(300).input(&index).input(&x).exact(&expected).n(300)
        }),
        case("particles", |r, _| {
            let make = |r: &mut Rng| {
                let position = [0; 3].map(|_| r.below(64) as f32);
                Particle { position, kind: r.any(), gap: 0, charge: r.below(200) as i16 - 100, mass: r.real(0.0, 9.0) }
            };
            let before: Vec<Particle> = (0..200).map(|_| make(r)).collect();
            let mut after = before.clone();
            for p in &mut after {
                p.position[0] += 0.25 * f32::from(p.charge);
                p.mass *= 2.0;
                p.kind ^= 0x5a;
                p.charge -= i16::from(p.kind);
            }
            // The gap may hold anything afterwards: field by field.
            let judge = move |bytes: &[u8]| {
                let got: Vec<Particle> = bytes.chunks(size_of::<Particle>()).map(bytemuck::pod_read_unaligned).collect();
                let fields = |p: &Particle| (p.position, p.kind, p.charge, p.mass);
                let wrong = got.iter().zip(&after).position(|(got, expected)| fields(got) != fields(expected));
                wrong.map_or(Ok(()), |i| Err(format!("particle {i} is {:?}, not {:?}", fields(&got[i]), fields(&after[i]))))
            };
            Run::flat(200).judged::<u8>(bytemuck::cast_slice(&before), judge).n(200).scalar(0.25f32)
        }),
        case("read_only", |r, _| {
            let x = r.f64s(300, -1.0, 1.0);
            let expected: Vec<f64> = (0..300).map(|i| x[i] + x[(i + 1) % 300]).collect();
            Run::flat(300).input(&x).exact(&expected).n(300)
        }),
        case("fill_bytes", |r, _| {
            let value = r.below(256);
            let expected: Vec<u8> = (0..1500).map(|i| (value + i / 5) as u8).collect();
            Run::flat(300).exact(&expected).n(300).n(value)
        }),
    ]
}
