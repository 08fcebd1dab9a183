//! Comparisons: AMD's pseudocode of VOPC. Sixteen float relations, eight integer relations, classes; `v_cmpx` writes EXEC too, and inactive
//! lanes give 0.

use super::asm::*;
use super::exact::*;
use std::cmp::Ordering;
use warpwave_vgpu::exec::TestWave;
use warpwave_vgpu::isa::{Format, inst_descs};

fn order(kind: Kind, a: u64, b: u64) -> Option<Ordering> {
    if kind.is_nan(a) || kind.is_nan(b) {
        return None;
    }
    let key = |bits: u64| if kind.sign(bits) { -(kind.magnitude(bits) as i128) } else { kind.magnitude(bits) as i128 };
    Some(key(a).cmp(&key(b)))
}

fn holds(relation: &str, order: Option<Ordering>) -> bool {
    use Ordering::*;
    match relation {
        "f" => false,
        "t" | "tru" => true,
        "lt" => order == Some(Less),
        "eq" => order == Some(Equal),
        "le" => matches!(order, Some(Less | Equal)),
        "gt" => order == Some(Greater),
        "lg" => matches!(order, Some(Less | Greater)),
        "ge" => matches!(order, Some(Greater | Equal)),
        "o" => order.is_some(),
        "u" => order.is_none(),
        "ne" => order != Some(Equal),
        negated => !holds(&negated[1..], order),
    }
}

#[test]
fn every_relation() {
    let mut seen = 0;
    let integers: Vec<u64> =
        vec![0, 1, 0x7fff, 0x8000, 0xffff, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 1 << 32, i64::MAX as u64, 1 << 63, u64::MAX];
    for row in inst_descs().iter().filter(|row| row.format == Format::VOPC && !row.name.contains("class")) {
        let [_, which, relation, ty] = row.name.split('_').collect::<Vec<_>>()[..] else { panic!("{}", row.name) };
        let width: u32 = ty[1..].parse().unwrap();
        let kind = match width {
            16 => F16,
            32 => F32,
            _ => F64,
        };
        let mask = if width == 64 { u64::MAX } else { (1 << width) - 1 };
        let values = if ty.starts_with('f') { kind.edges() } else { integers.iter().map(|x| x & mask).collect() };
        let cases = grid(&values, 2);
        for arch in GFX9.into_iter().filter(|&arch| row.supports(arch)) {
            seen += 1;
            for chunk in cases.chunks(64) {
                let mut bench = TestWave::new(arch);
                bench.set_mode(USUAL);
                for (n, base) in [(0, 10), (1, 20)] {
                    let part = |shift: u32| std::array::from_fn(|lane| (chunk.get(lane).map_or(0, |case| case[n]) >> shift) as u32);
                    bench.set_v(base, part(0));
                    bench.set_v(base + 1, part(32));
                }
                let exec = 0xffff_ffff_ffff_fff7 & if chunk.len() == 64 { u64::MAX } else { (1 << chunk.len()) - 1 };
                let expected = chunk.iter().enumerate().fold(0u64, |sum, (lane, &[a, b, _])| {
                    let order = match &ty[..1] {
                        "f" => order(kind, a, b),
                        "i" => {
                            let wide = |x: u64| (x << (64 - width)) as i64;
                            Some(wide(a).cmp(&wide(b)))
                        }
                        _ => Some(a.cmp(&b)),
                    };
                    sum | u64::from(holds(relation, order)) << lane
                }) & exec;
                for words in [&vop3(arch, row.name).words()[..], &[vop32(arch, row.name, 0, 256 + 10, 20)][..]] {
                    bench.set_exec(exec);
                    bench.set_s(106, u32::MAX);
                    bench.set_s(107, u32::MAX);
                    bench.run(words).unwrap();
                    assert_eq!(bench.vcc(), expected, "{arch:?} {} {:x?}", row.name, chunk[0]);
                    let left = u64::from(bench.s(126)) | u64::from(bench.s(127)) << 32;
                    assert_eq!(left, if which == "cmpx" { expected } else { exec }, "{arch:?} {}", row.name);
                }
            }
        }
    }
    // Three widths of floats with sixteen relations, six integer types with eight, each also as `cmpx`.
    assert_eq!(seen, (3 * 16 + 6 * 8) * 2 * GFX9.len());
}

/// Bits of the mask: signaling NaN, quiet NaN, -inf, -normal, -denormal, -0, +0, +denormal, +normal, +inf.
#[test]
fn classes() {
    for (suffix, kind) in [("f32", F32), ("f64", F64), ("f16", F16)] {
        let class = |bits: u64| match (kind.sign(bits), bits) {
            (_, b) if kind.is_signaling(b) => 0,
            (_, b) if kind.is_nan(b) => 1,
            (negative, b) => {
                let n = match b {
                    b if kind.is_inf(b) => 3,
                    b if kind.is_zero(b) => 0,
                    b if kind.is_denormal(b) => 1,
                    _ => 2,
                };
                if negative { 5 - n } else { 6 + n }
            }
        };
        for arch in GFX9 {
            // One bit, none, all, several; bits above the tenth are ignored.
            for mask in (0..10u64).map(|bit| 1 << bit).chain([0, 0x3ff, 0x155, 0xffff_fc00]) {
                let cases: Vec<[u64; 4]> = kind.edges().into_iter().map(|bits| [bits, mask, 0, OLD]).collect();
                let outs = run_with(arch, USUAL, &vop3(arch, &format!("v_cmp_class_{suffix}")).words(), &cases, false);
                for (case, out) in cases.iter().zip(outs) {
                    assert_eq!(out.vcc, mask >> class(case[0]) & 1 != 0, "{arch:?} {suffix} {:x} mask {mask:x}", case[0]);
                }
                // `v_cmpx` writes EXEC too.
                let edges = kind.edges();
                let mut bench = TestWave::new(arch);
                let part = |shift: u32| std::array::from_fn(|lane| (edges[lane % edges.len()] >> shift) as u32);
                bench.set_v(10, part(0));
                bench.set_v(11, part(32));
                bench.set_v(20, [mask as u32; 64]);
                let exec = 0xffff_0f0f_ffff_fffe;
                bench.set_exec(exec);
                bench.run(&vop3(arch, &format!("v_cmpx_class_{suffix}")).words()).unwrap();
                let expected = (0..64).fold(0, |sum, lane| sum | (mask >> class(edges[lane % edges.len()]) & 1) << lane) & exec;
                let left = u64::from(bench.s(126)) | u64::from(bench.s(127)) << 32;
                assert_eq!((bench.vcc(), left), (expected, expected), "{arch:?} v_cmpx_class_{suffix} mask {mask:x}");
            }
        }
    }
}
