//! Division as LLVM expands `fdiv` of 32 and 64 bits: scale both, estimate, refine, `div_fmas`, `div_fixup`. The quotient must
//! be the correctly rounded one. The parts: AMD's pseudocode with the corrections that tinygrad's hardware runs showed.

use super::asm::*;
use super::exact::*;
use warpwave_vgpu::Arch;
use warpwave_vgpu::exec::TestWave;

/// `dst = name(sources)`, with negations; scales write `vcc` or `s[10:11]`.
fn step(arch: Arch, name: &str, dst: u16, src: [u16; 3], neg: u32, sdst: Option<u16>) -> [u32; 2] {
    Vop3 { dst, src, neg, sdst: sdst.or(vop3(arch, name).sdst), ..vop3(arch, name) }.words()
}

const ONE: u16 = 242;

/// Numerator `v10`, denominator `v20`, quotient `v2`.
fn single(arch: Arch) -> Vec<u32> {
    let (n, d) = (V + 10, V + 20);
    let fma = |dst, src, neg| step(arch, "v_fma_f32", dst, src, neg, None);
    [
        step(arch, "v_div_scale_f32", 40, [d, d, n], 0, Some(10)),
        step(arch, "v_div_scale_f32", 42, [n, d, n], 0, Some(106)),
        step(arch, "v_rcp_f32", 44, [V + 40, 0, 0], 0, None),
        fma(46, [V + 40, V + 44, ONE], 1),
        fma(44, [V + 46, V + 44, V + 44], 0),
        step(arch, "v_mul_f32", 48, [V + 42, V + 44, 0], 0, None),
        fma(50, [V + 40, V + 48, V + 42], 1),
        fma(48, [V + 50, V + 44, V + 48], 0),
        fma(50, [V + 40, V + 48, V + 42], 1),
        step(arch, "v_div_fmas_f32", 52, [V + 50, V + 44, V + 48], 0, None),
        step(arch, "v_div_fixup_f32", 2, [V + 52, d, n], 0, None),
    ]
    .concat()
}

fn double(arch: Arch) -> Vec<u32> {
    let (n, d) = (V + 10, V + 20);
    let fma = |dst, src, neg| step(arch, "v_fma_f64", dst, src, neg, None);
    [
        step(arch, "v_div_scale_f64", 40, [d, d, n], 0, Some(10)),
        step(arch, "v_div_scale_f64", 42, [n, d, n], 0, Some(106)),
        step(arch, "v_rcp_f64", 44, [V + 40, 0, 0], 0, None),
        fma(46, [V + 40, V + 44, ONE], 1),
        fma(44, [V + 44, V + 46, V + 44], 0),
        fma(46, [V + 40, V + 44, ONE], 1),
        fma(44, [V + 44, V + 46, V + 44], 0),
        step(arch, "v_mul_f64", 48, [V + 42, V + 44, 0], 0, None),
        fma(50, [V + 40, V + 48, V + 42], 1),
        step(arch, "v_div_fmas_f64", 52, [V + 50, V + 44, V + 48], 0, None),
        step(arch, "v_div_fixup_f64", 2, [V + 52, d, n], 0, None),
    ]
    .concat()
}

fn pairs(kind: Kind, count: usize) -> Vec<[u64; 4]> {
    let mut edges = kind.edges();
    edges.extend([2, 3, (1 << kind.fraction) / 3, (1 << kind.fraction) * 24 + 1, kind.infinity(false) - (1 << kind.fraction) * 30 + 77]);
    let mut cases: Vec<[u64; 4]> = grid(&edges, 2).into_iter().map(|[a, b, _]| [a, b, 0, OLD]).collect();
    let mut numbers = Numbers(99);
    let mask = kind.signed(true, kind.infinity(false) | ((1 << kind.fraction) - 1));
    for _ in 0..count {
        cases.push([numbers.next() & mask, numbers.next() & mask, 0, OLD]);
        // Quotients near the denormals, near overflow, and of denormals.
        let (a, b) = (numbers.next() & mask, numbers.next() & mask);
        let apart = [kind.bias() as u64 - 3, kind.bias() as u64 + u64::from(kind.fraction) / 2][(numbers.next() & 1) as usize];
        let low = numbers.next() % (kind.top() - apart - 2);
        let with =
            |bits: u64, exponent: u64| kind.signed(kind.sign(bits), exponent.min(kind.top() - 1) << kind.fraction | kind.mantissa(bits));
        cases.push([with(a, low), with(b, low + apart + numbers.next() % 8), 0, OLD]);
        cases.push([with(a, low + apart + numbers.next() % 8), with(b, low), 0, OLD]);
        cases.push([with(a, 0), b, 0, OLD]);
        cases.push([a, with(b, 0), 0, OLD]);
        cases.push([with(a, 0), with(b, 0), 0, OLD]);
    }
    cases
}

#[test]
fn thirty_two_bits_are_correctly_rounded() {
    for arch in GFX9.into_iter().chain([Arch::Gfx1100]) {
        let cases = pairs(F32, 8000);
        for (&[a, b, ..], out) in cases.iter().zip(run_with(arch, USUAL, &single(arch), &cases, false)) {
            let (x, y) = (f32::from_bits(a as u32), f32::from_bits(b as u32));
            let (got, expected) = (f32::from_bits(out.d as u32), x / y);
            assert!(
                got.to_bits() == expected.to_bits() || got.is_nan() && expected.is_nan(),
                "{arch:?} {a:x} / {b:x} ({x:e} / {y:e}): {got:e}, not {expected:e}"
            );
        }
    }
}

#[test]
fn sixty_four_bits_are_correctly_rounded() {
    for arch in GFX9.into_iter().chain([Arch::Gfx1100]) {
        let cases = pairs(F64, 8000);
        for (&[a, b, ..], out) in cases.iter().zip(run_with(arch, USUAL, &double(arch), &cases, false)) {
            let (x, y) = (f64::from_bits(a), f64::from_bits(b));
            let (got, expected) = (f64::from_bits(out.d), x / y);
            assert!(
                got.to_bits() == expected.to_bits() || got.is_nan() && expected.is_nan(),
                "{arch:?} {a:x} / {b:x} ({x:e} / {y:e}): {got:e}, not {expected:e}"
            );
        }
    }
}

/// Points where hardware was looked at.
#[test]
fn scales() {
    for arch in GFX9.into_iter().chain(RDNA) {
        let scale = |s0: f32, s1: f32, s2: f32| {
            let mut bench = TestWave::new(arch);
            for (register, value) in [(10, s0), (20, s1), (30, s2)] {
                bench.set_v(register, [value.to_bits(); 64]);
            }
            bench.run(&vop3(arch, "v_div_scale_f32").words()).unwrap();
            (f32::from_bits(bench.v(2)[0]), bench.vcc() & 1 != 0)
        };
        assert_eq!(scale(4.0, 2.0, 4.0), (4.0, false));
        for (s0, s1, s2) in [(1.0, 0.0, 1.0), (0.0, 1.0, 0.0)] {
            let (value, flag) = scale(s0, s1, s2);
            assert!(value.is_nan() && flag, "{arch:?} {s0} {s1} {s2}");
        }
        // The least normal number: the quotient's exponent says that it may be denormal. One more, and only the numerator is tiny.
        assert_eq!(scale(f32::MIN_POSITIVE, 1.0, f32::MIN_POSITIVE), (2f32.powi(-62), true));
        assert_eq!(scale(1.0, 1.0, f32::MIN_POSITIVE), (1.0, true));
        assert_eq!(scale(2.0 * f32::MIN_POSITIVE, 1.0, 2.0 * f32::MIN_POSITIVE), (2f32.powi(-61), false));
        assert_eq!(scale(1.0, 1.0, f32::MAX), (2f32.powi(64), true));
        assert_eq!(scale(f32::MAX, 1.0, f32::MAX), (f32::MAX, true));
    }
}

/// `div_fmas` multiplies by 2^±64 (2^±128) where `vcc` says so, up when the addend is at least 2.
#[test]
fn scaled_multiply_add() {
    for arch in GFX9 {
        for (carry, addend, expected) in [(false, 1.0f32, 7.0f32), (true, 2.0, 8.0 * 2f32.powi(64)), (true, 1.0, 7.0 * 2f32.powi(-64))] {
            let case = [2.0f32, 3.0, addend, 0.0].map(|x| u64::from(x.to_bits()));
            let out = run_with(arch, USUAL, &vop3(arch, "v_div_fmas_f32").words(), &[case], carry)[0];
            assert_eq!(f32::from_bits(out.d as u32), expected, "{arch:?}");
        }
        for (carry, addend, expected) in [(false, 1.0f64, 7.0f64), (true, 2.0, 8.0 * 2f64.powi(128)), (true, 1.0, 7.0 * 2f64.powi(-128))] {
            let case = [2.0f64, 3.0, addend, 0.0].map(f64::to_bits);
            let out = run_with(arch, USUAL, &vop3(arch, "v_div_fmas_f64").words(), &[case], carry)[0];
            assert_eq!(f64::from_bits(out.d), expected, "{arch:?}");
        }
    }
}

#[test]
fn fixups() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    for arch in GFX9 {
        let fix = |quotient: f32, denominator: f32, numerator: f32| {
            let case = [quotient, denominator, numerator].map(|x| u64::from(x.to_bits()));
            run(arch, USUAL, vop3(arch, "v_div_fixup_f32"), &[case])[0].d as u32
        };
        assert_eq!(fix(1.5, 2.0, 3.0), 1.5f32.to_bits());
        assert_eq!(fix(1.5, -2.0, 3.0), (-1.5f32).to_bits());
        assert_eq!(fix(-1.5, -2.0, -3.0), 1.5f32.to_bits());
        assert_eq!(fix(1.0, 0.0, 0.0), 0xffc0_0000);
        assert_eq!(fix(1.0, inf, -inf), 0xffc0_0000);
        assert_eq!(fix(1.0, -0.0, 1.0), (-inf).to_bits());
        assert_eq!(fix(1.0, -3.0, inf), (-inf).to_bits());
        assert_eq!(fix(1.0, -inf, 1.0), (-0.0f32).to_bits());
        assert_eq!(fix(1.0, 5.0, -0.0), (-0.0f32).to_bits());
        assert!(F32.is_quiet(fix(1.0, 1.0, nan).into()));
        assert!(F32.is_quiet(fix(1.0, nan, 1.0).into()));
        assert_eq!(fix(1.0, 1.0, f32::from_bits(0x7f80_0005)), 0x7fc0_0005);
        // An estimate that failed.
        assert_eq!(fix(nan, 1.0, 1.0), inf.to_bits());
        assert_eq!(fix(nan, -1.0, 1.0), (-inf).to_bits());
        // Exponents too far apart for a quotient: AMD's text compares them as they are stored.
        assert_eq!(fix(1.0, f32::MAX, 1e-44), 0);
        assert_eq!(fix(1.0, -1e-44, f32::MAX), (-inf).to_bits());
        for name in ["v_div_fixup_f16", "v_div_fixup_legacy_f16"] {
            let half = |case: [u64; 3]| run(arch, USUAL, vop3(arch, name), &[case])[0].d & 0xffff;
            for (quotient, denominator, numerator, expected) in [
                (0x3e00, 0xc000, 0x4200, 0xbe00),
                (0xbe00, 0xc000, 0xc200, 0x3e00),
                (0x3c00, 0, 0, 0xfe00),
                (0x3c00, 0x7c00, 0xfc00, 0xfe00),
                (0x3c00, 0x8000, 0x3c00, 0xfc00),
                (0x3c00, 0xc200, 0x7c00, 0xfc00),
                (0x3c00, 0xfc00, 0x3c00, 0x8000),
                (0x3c00, 0x4500, 0x8000, 0x8000),
                (0x3c00, 0x3c00, 0x7c05, 0x7e05),
                (0x3c00, 0xfc07, 0x3c00, 0xfe07),
                // A NaN numerator wins over a NaN denominator.
                (0x3c00, 0x7e01, 0x7e02, 0x7e02),
            ] {
                assert_eq!(half([quotient, denominator, numerator]), expected, "{arch:?} {name} {numerator:x} / {denominator:x}");
            }
        }
        let double = |case: [f64; 3]| run(arch, USUAL, vop3(arch, "v_div_fixup_f64"), &[case.map(f64::to_bits)])[0].d;
        let (inf, nan) = (f64::INFINITY, f64::NAN);
        for (quotient, denominator, numerator, expected) in [
            (1.5, 2.0, 3.0, 1.5f64),
            (1.5, -2.0, 3.0, -1.5),
            (-1.5, -2.0, -3.0, 1.5),
            (1.0, -0.0, 1.0, -inf),
            (1.0, -3.0, inf, -inf),
            (1.0, -inf, 1.0, -0.0),
            (1.0, 5.0, -0.0, -0.0),
            (nan, 1.0, 1.0, inf),
            (1.0, f64::MAX, 5e-324, 0.0),
            (1.0, -5e-324, f64::MAX, -inf),
        ] {
            assert_eq!(double([quotient, denominator, numerator]), expected.to_bits(), "{arch:?} {numerator} / {denominator}");
        }
        assert_eq!(double([1.0, 0.0, 0.0]), 0xfff8_0000_0000_0000);
        assert_eq!(double([1.0, inf, -inf]), 0xfff8_0000_0000_0000);
        assert_eq!(double([1.0, 1.0, f64::from_bits(0x7ff0_0000_0000_0005)]), 0x7ff8_0000_0000_0005);
        assert_eq!(double([1.0, f64::from_bits(0xfff0_0000_0000_0005), 1.0]), 0xfff8_0000_0000_0005);
    }
}

/// `v_trig_preop_f64`: segments of 2/π that add up to it.
#[test]
fn segments_of_two_over_pi() {
    for arch in GFX9 {
        let piece = |x: f64, n: u64| f64::from_bits(run(arch, USUAL, vop3(arch, "v_trig_preop_f64"), &[[x.to_bits(), n, 0]])[0].d);
        let pieces = [piece(1.0, 0), piece(1.0, 1), piece(1.0, 2)];
        // The first 53 bits of 2/π after the point, not rounded; the next ones follow below.
        assert_eq!(pieces[0], f64::from_bits(0x3fe4_5f30_6dc9_c882));
        assert!(pieces[1] > 0.0 && pieces[1] < 2f64.powi(-53) && pieces[2] > 0.0 && pieces[2] < 2f64.powi(-106));
        assert_eq!(pieces[0] + (pieces[1] + pieces[2]), std::f64::consts::FRAC_2_PI);
        // A large argument drops the bits whose product is a multiple of 2π.
        assert!(piece(2f64.powi(200), 0) < piece(2f64.powi(20), 0));
    }
}
