//! Approximations: the examples in AMD's CDNA 3 document, its statements about denormals, and error bounds.

use super::asm::*;
use super::exact::*;
use warpwave_vgpu::Arch;

fn one(arch: Arch, name: &str, bits: u64) -> u64 {
    run(arch, USUAL, vop3(arch, name), &[[bits, 0, 0]])[0].d
}

/// Every example of the document. It has none for the `legacy` forms; gem5 computes them like the others.
#[test]
fn documented_examples() {
    let singles: &[(&str, &[(u32, u32)])] = &[
        ("v_exp_f32", &[(0xff80_0000, 0), (0x8000_0000, 0x3f80_0000), (0x7f80_0000, 0x7f80_0000)]),
        ("v_exp_legacy_f32", &[(0xff80_0000, 0), (0x8000_0000, 0x3f80_0000), (0x7f80_0000, 0x7f80_0000)]),
        ("v_log_f32", LOGARITHMS),
        ("v_log_legacy_f32", LOGARITHMS),
        ("v_rcp_f32", RECIPROCALS),
        ("v_rcp_iflag_f32", RECIPROCALS),
        (
            "v_rsq_f32",
            &[(0xff80_0000, 0xffc0_0000), (0x8000_0000, 0xff80_0000), (0, 0x7f80_0000), (0x4080_0000, 0x3f00_0000), (0x7f80_0000, 0)],
        ),
        (
            "v_sqrt_f32",
            &[(0xff80_0000, 0xffc0_0000), (0x8000_0000, 0x8000_0000), (0, 0), (0x4080_0000, 0x4000_0000), (0x7f80_0000, 0x7f80_0000)],
        ),
        (
            "v_sin_f32",
            &[
                (0xff80_0000, 0xffc0_0000),
                (0xff7f_ffff, 0),
                (0x8000_0000, 0x8000_0000),
                (0x3e80_0000, 0x3f80_0000),
                (0x7f80_0000, 0xffc0_0000),
            ],
        ),
        (
            "v_cos_f32",
            &[
                (0xff80_0000, 0xffc0_0000),
                (0xff7f_ffff, 0x3f80_0000),
                (0x8000_0000, 0x3f80_0000),
                (0x3e80_0000, 0),
                (0x7f80_0000, 0xffc0_0000),
            ],
        ),
    ];
    let halves: &[(&str, &[(u32, u32)])] = &[
        ("v_rcp_f16", &[(0xfc00, 0x8000), (0xc000, 0xb800), (0x8000, 0xfc00), (0, 0x7c00), (0x7c00, 0)]),
        ("v_sqrt_f16", &[(0xfc00, 0xfe00), (0x8000, 0x8000), (0, 0), (0x4400, 0x4000), (0x7c00, 0x7c00)]),
        ("v_rsq_f16", &[(0xfc00, 0xfe00), (0x8000, 0xfc00), (0, 0x7c00), (0x4400, 0x3800), (0x7c00, 0)]),
        ("v_log_f16", &[(0xfc00, 0xfe00), (0xbc00, 0xfe00), (0x8000, 0xfc00), (0, 0xfc00), (0x3c00, 0), (0x7c00, 0x7c00)]),
        ("v_exp_f16", &[(0xfc00, 0), (0x8000, 0x3c00), (0x7c00, 0x7c00)]),
        ("v_sin_f16", &[(0xfc00, 0xfe00), (0xfbff, 0), (0x8000, 0x8000), (0x3400, 0x3c00), (0x7bff, 0), (0x7c00, 0xfe00)]),
        ("v_cos_f16", &[(0xfc00, 0xfe00), (0xfbff, 0x3c00), (0x8000, 0x3c00), (0x3400, 0), (0x7bff, 0x3c00), (0x7c00, 0xfe00)]),
    ];
    for arch in GFX9 {
        for (name, examples) in singles.iter().chain(halves) {
            for &(from, to) in *examples {
                let got = one(arch, name, from.into()) as u32;
                assert_eq!(got, to, "{arch:?} {name} {from:x}: {got:x}, not {to:x}");
            }
        }
        // NaN stays NaN and becomes quiet.
        for (name, _) in singles {
            for bits in [0x7fc0_0000, 0xffc1_2345, 0x7f80_0001] {
                assert!(F32.is_quiet(one(arch, name, bits) & 0xffff_ffff), "{arch:?} {name} {bits:x}");
            }
        }
        for (name, _) in halves {
            for bits in [0x7e00, 0xfe12, 0x7c01] {
                assert!(F16.is_quiet(one(arch, name, bits) & 0xffff), "{arch:?} {name} {bits:x}");
            }
        }
    }
}

const LOGARITHMS: &[(u32, u32)] = &[
    (0xff80_0000, 0xffc0_0000),
    (0xbf80_0000, 0xffc0_0000),
    (0x8000_0000, 0xff80_0000),
    (0, 0xff80_0000),
    (0x3f80_0000, 0),
    (0x7f80_0000, 0x7f80_0000),
];

const RECIPROCALS: &[(u32, u32)] =
    &[(0xff80_0000, 0x8000_0000), (0xc000_0000, 0xbf00_0000), (0x8000_0000, 0xff80_0000), (0, 0x7f80_0000), (0x7f80_0000, 0)];

/// "Denormals are flushed" in single precision, in and out; in half precision they "are supported".
#[test]
fn denormals() {
    for arch in GFX9 {
        for (name, from, to) in [
            ("v_rcp_f32", 0x0040_0000, 0x7f80_0000),
            ("v_rcp_f32", 0x8000_0001, 0xff80_0000),
            // 2^127 and more have denormal reciprocals.
            ("v_rcp_f32", 0x7f00_0000, 0),
            ("v_rcp_f32", 0xff7f_ffff, 0x8000_0000),
            ("v_rcp_iflag_f32", 0x0040_0000, 0x7f80_0000),
            ("v_rsq_f32", 0x0040_0000, 0x7f80_0000),
            ("v_rsq_f32", 0x8040_0000, 0xff80_0000),
            ("v_sqrt_f32", 0x0040_0000, 0),
            ("v_sqrt_f32", 0x8040_0000, 0x8000_0000),
            ("v_log_f32", 0x0040_0000, 0xff80_0000),
            ("v_log_legacy_f32", 0x0040_0000, 0xff80_0000),
            // 2^-126 is the last normal number; half of it is not.
            ("v_exp_f32", (-126f32).to_bits(), 0x0080_0000),
            ("v_exp_f32", (-127f32).to_bits(), 0),
            ("v_exp_legacy_f32", (-127f32).to_bits(), 0),
            ("v_exp_f32", 0x0040_0000, 0x3f80_0000),
            ("v_exp_f32", 128f32.to_bits(), 0x7f80_0000),
        ] {
            let got = one(arch, name, from.into()) as u32;
            assert_eq!(got, to, "{arch:?} {name} {from:x}: {got:x}, not {to:x}");
        }
        for (name, from, to) in [
            // 2^-24 is the smallest half, 2^-15 a denormal of one bit.
            ("v_sqrt_f16", 0x0001, 0x0c00),
            ("v_rsq_f16", 0x0001, 0x6c00),
            ("v_log_f16", 0x0001, 0xce00),
            ("v_rcp_f16", 0x0200, 0x7800),
            ("v_rcp_f16", 0x7800, 0x0200),
            ("v_rcp_f16", 0x0001, 0x7c00),
            ("v_exp_f16", 0xcb80, 0x0200),
            ("v_exp_f16", 0xce00, 0x0001),
        ] {
            let got = one(arch, name, from) as u32;
            assert_eq!(got, to, "{arch:?} {name} {from:x}: {got:x}, not {to:x}");
        }
        // Double precision keeps them.
        for (name, from, to) in [
            ("v_rcp_f64", 0x8000_0000_0000_0000, 0xfff0_0000_0000_0000),
            ("v_rcp_f64", 0xfff0_0000_0000_0000, 0x8000_0000_0000_0000),
            ("v_rcp_f64", 0x0008_0000_0000_0000, 0x7fe0_0000_0000_0000),
            ("v_rcp_f64", 0x7fe0_0000_0000_0000, 0x0008_0000_0000_0000),
            ("v_rsq_f64", 0x8000_0000_0000_0000, 0xfff0_0000_0000_0000),
            ("v_rsq_f64", 0x0000_0000_0000_0004, 0x6170_0000_0000_0000),
            ("v_sqrt_f64", 0x8000_0000_0000_0000, 0x8000_0000_0000_0000),
            ("v_sqrt_f64", 0x0000_0000_0000_0004, 0x1e70_0000_0000_0000),
        ] {
            let got = one(arch, name, from);
            assert_eq!(got, to, "{arch:?} {name} {from:x}: {got:x}, not {to:x}");
        }
        for name in ["v_rsq_f64", "v_sqrt_f64"] {
            for bits in [0xfff0_0000_0000_0000, 0xbff0_0000_0000_0000, 0x7ff8_0000_0000_0000, 0x7ff0_0000_0000_0001] {
                assert!(F64.is_quiet(one(arch, name, bits)), "{arch:?} {name} {bits:x}");
            }
        }
    }
}

/// Sine and cosine of turns. The document gives no error bound; 2^-22 absolute is tested here, plus half an ulp for f16. "Full range input
/// is supported": beyond 256 turns too, where earlier GPUs returned 0 and 1. (LLVM agrees: from gfx9 on it does not reduce arguments.)
#[test]
fn sines_and_cosines() {
    type Real = fn(f64) -> f64;
    let table: [(&str, &str, Real); 2] = [("v_sin_f32", "v_sin_f16", f64::sin), ("v_cos_f32", "v_cos_f16", f64::cos)];
    let mut points: Vec<f32> = (-64..=64).map(|n| n as f32 / 16.0).collect();
    points.extend([0.1, 0.3, 1.0 / 3.0, 0.70710677, 0.1249, 0.1251, 0.3749, 0.3751, 12.345, 100.77, 255.9, 256.0, 256.25, 300.3]);
    points.extend([1000.125, 4095.75, 65536.5, 1e6 + 0.0625, 4194304.5, 8388608.0, 1e10, 3e38]);
    let mut numbers = Numbers(55);
    points.extend((0..2000).map(|_| (numbers.next() % 0x2_0000) as f32 / 128.0 + (numbers.next() % 997) as f32 / 997.0));
    let points: Vec<f32> = points.into_iter().flat_map(|x| [x, -x]).collect();
    for arch in GFX9 {
        for (single, half, real) in table {
            let cases: Vec<[u64; 3]> = points.iter().map(|x| [u64::from(x.to_bits()), 0, 0]).collect();
            for (&x, out) in points.iter().zip(run(arch, USUAL, vop3(arch, single), &cases)) {
                // A float minus its integral part is a float: the remainder is exact.
                let expected = real(f64::from(x).rem_euclid(1.0) * std::f64::consts::TAU);
                let got = f64::from(f32::from_bits(out.d as u32));
                assert!((got - expected).abs() <= 2f64.powi(-22), "{arch:?} {single} {x}: {got}, not {expected}");
                assert!(got.abs() <= 1.0);
            }
            // Every f16.
            let cases: Vec<[u64; 3]> = (0..0x7c00).flat_map(|bits| [[bits, 0, 0], [bits | 0x8000, 0, 0]]).collect();
            for (&[bits, ..], out) in cases.iter().zip(run(arch, USUAL, vop3(arch, half), &cases)) {
                let value = |bits: u64| {
                    f64::from(f32::from_bits(if F16.is_zero(bits) { 0 } else { Exact::of(F16, bits).round(F32, NEAREST) } as u32))
                };
                let (x, got) = (value(bits), value(out.d & 0xffff));
                let expected = real(x.rem_euclid(1.0) * std::f64::consts::TAU);
                assert!((got - expected).abs() <= 2f64.powi(-12) + 2f64.powi(-25), "{arch:?} {half} {x}: {got}, not {expected}");
            }
        }
        // Denormals "are supported": near 0 the sine is 2π times the argument, to the nearest.
        for bits in [1u32, 0x1000, 0x0040_0000, 0x007f_ffff, 0x8000_0001, 0x8055_5555] {
            let got = one(arch, "v_sin_f32", bits.into()) as u32;
            let expected = (f64::from(f32::from_bits(bits)) * std::f64::consts::TAU) as f32;
            assert_eq!(got, expected.to_bits(), "{arch:?} {bits:x}");
            assert_eq!(one(arch, "v_cos_f32", bits.into()) as u32, 0x3f80_0000);
        }
    }
}
