//! Conversions: AMD's pseudocode of VOP1 and VOP3, and the formats' definitions.

use super::asm::*;
use super::exact::*;
use warpwave_vgpu::Arch;

fn rounding(mode: u32) -> u32 {
    USUAL | mode | mode << 2
}

/// Every half precision number becomes the same number, and comes back.
#[test]
fn halves_exhaustively() {
    let cases: Vec<[u64; 3]> = (0..=0xffff).map(|bits| [bits, 0, 0]).collect();
    for arch in GFX9 {
        for (&[bits, ..], out) in cases.iter().zip(run(arch, USUAL, vop3(arch, "v_cvt_f32_f16"), &cases)) {
            let got = out.d & 0xffff_ffff;
            if F16.is_nan(bits) {
                assert!(F32.is_quiet(got) && F32.sign(got) == F16.sign(bits), "{bits:x}: {got:x}");
            } else if F16.is_inf(bits) {
                assert_eq!(got, F32.infinity(F16.sign(bits)));
            } else {
                assert_eq!(got, Exact::of(F16, bits).round(F32, NEAREST), "{bits:x}");
            }
        }
        for mode in [NEAREST, UP, DOWN, ZERO] {
            let mut wide = Vec::new();
            for bits in (0..0x7c00u64).step_by(3) {
                let single = Exact::of(F16, bits).round(F32, NEAREST);
                for value in [single, single + 1, single.saturating_sub(1), single + 0x1000, single + 0xfff, single + 0x1001] {
                    wide.push([value & 0x7fff_ffff, 0, 0]);
                    wide.push([value | 0x8000_0000, 0, 0]);
                }
            }
            wide.extend(F32.edges().into_iter().map(|bits| [bits, 0, 0]));
            for (&[bits, ..], out) in wide.iter().zip(run(arch, rounding(mode), vop3(arch, "v_cvt_f16_f32"), &wide)) {
                let got = out.d & 0xffff_ffff;
                if F32.is_nan(bits) {
                    assert!(F16.is_quiet(got), "{bits:x}: {got:x}");
                } else if F32.is_inf(bits) {
                    assert_eq!(got, F16.infinity(F32.sign(bits)));
                } else {
                    assert_eq!(got, Exact::of(F32, bits).round(F16, mode), "mode {mode} {bits:x}");
                }
            }
        }
    }
}

/// `v_cvt_pkrtz_f16_f32` rounds toward zero whatever `MODE` says.
#[test]
fn packed_toward_zero() {
    let mut cases = grid(&F32.edges(), 2);
    let mut numbers = Numbers(6);
    cases.extend((0..2000).map(|_| std::array::from_fn(|_| 0x3800_0000 + numbers.next() % 0x1000_0000 | (numbers.next() & 1) << 31)));
    for arch in GFX9 {
        for mode in [NEAREST, UP] {
            for (case, out) in cases.iter().zip(run(arch, rounding(mode), vop3(arch, "v_cvt_pkrtz_f16_f32"), &cases)) {
                for n in 0..2 {
                    let (bits, got) = (case[n], out.d >> (16 * n) & 0xffff);
                    if F32.is_nan(bits) {
                        assert!(F16.is_quiet(got), "{bits:x}: {got:x}");
                    } else if F32.is_inf(bits) {
                        assert_eq!(got, F16.infinity(F32.sign(bits)));
                    } else {
                        assert_eq!(got, Exact::of(F32, bits).round(F16, ZERO), "{bits:x}");
                    }
                }
            }
        }
    }
}

/// Toward zero, saturated, and 0 for a NaN.
fn whole(kind: Kind, bits: u64, mode: u32, least: i64, most: i64) -> i64 {
    if kind.is_nan(bits) {
        return 0;
    }
    let negative = kind.sign(bits);
    if kind.biased(bits) > kind.bias() as u64 + 40 {
        return if negative { least } else { most };
    }
    let magnitude = Exact::of(kind, bits).integer(0, mode) as i64;
    (if negative { -magnitude } else { magnitude }).clamp(least, most)
}

#[test]
fn to_integers() {
    let (i32s, u32s) = ((i64::from(i32::MIN), i64::from(i32::MAX)), (0, i64::from(u32::MAX)));
    for (name, kind, mode, (least, most)) in [
        ("v_cvt_i32_f32", F32, ZERO, i32s),
        ("v_cvt_u32_f32", F32, ZERO, u32s),
        ("v_cvt_i32_f64", F64, ZERO, i32s),
        ("v_cvt_u32_f64", F64, ZERO, u32s),
        ("v_cvt_flr_i32_f32", F32, DOWN, i32s),
        ("v_cvt_i16_f16", F16, ZERO, (-0x8000, 0x7fff)),
        ("v_cvt_u16_f16", F16, ZERO, (0, 0xffff)),
    ] {
        let mut values = kind.edges();
        for value in
            [0.4999, 0.5, 0.75, 1.5, 2.5, 255.5, 2147483520.0, 2147483647.5, 2147483648.0, 4294967040.0, 4294967295.5, 4294967296.0, 1e20]
        {
            let bits = Exact::of(F64, f64::to_bits(value)).round(kind, NEAREST);
            values.extend([bits, kind.signed(true, bits)]);
        }
        let cases: Vec<[u64; 3]> = values.into_iter().map(|bits| [bits, 0, 0]).collect();
        for arch in GFX9 {
            for round in [NEAREST, UP] {
                for (&[bits, ..], out) in cases.iter().zip(run(arch, rounding(round), vop3(arch, name), &cases)) {
                    let expected = whole(kind, bits, mode, least, most);
                    let mask = if kind.fraction == 10 { 0xffff } else { 0xffff_ffff };
                    assert_eq!(out.d & mask, expected as u64 & mask, "{arch:?} {name} {bits:x}");
                }
            }
        }
    }
    // floor(x + 0.5), the sum in single precision.
    let cases: Vec<[u64; 3]> = [0.5f32, -0.5, 1.5, -1.5, 2.5, 0.25, 3e9, -3e9, f32::NAN, f32::INFINITY, 7.0, -7.75]
        .iter()
        .map(|x| [u64::from(x.to_bits()), 0, 0])
        .collect();
    for arch in GFX9 {
        for (&[bits, ..], out) in cases.iter().zip(run(arch, USUAL, vop3(arch, "v_cvt_rpi_i32_f32"), &cases)) {
            let x = f32::from_bits(bits as u32);
            assert_eq!(out.d as u32 as i32, (x + 0.5).floor() as i32, "{arch:?} {x}");
        }
    }
}

#[test]
fn from_integers_and_between_floats() {
    let integers: Vec<u64> = vec![
        0,
        1,
        0xff_ffff,
        0x100_0001,
        0x100_0003,
        0x7fff_ffff,
        0x7fff_ff40,
        0x8000_0000,
        0x8000_0080,
        0xffff_ff7f,
        0xffff_ff80,
        0xffff_ffff,
    ];
    for (name, signed, kind) in
        [("v_cvt_f32_i32", true, F32), ("v_cvt_f32_u32", false, F32), ("v_cvt_f64_i32", true, F64), ("v_cvt_f64_u32", false, F64)]
    {
        for mode in [NEAREST, UP, DOWN, ZERO] {
            for arch in GFX9 {
                let cases = grid(&integers, 1);
                for (&[bits, ..], out) in cases.iter().zip(run(arch, rounding(mode), vop3(arch, name), &cases)) {
                    let value = if signed { i64::from(bits as u32 as i32) } else { bits as i64 };
                    let got = if kind.fraction == 52 { out.d } else { out.d & 0xffff_ffff };
                    assert_eq!(got, Exact::int(value).round(kind, mode), "{arch:?} {name} mode {mode} {bits:x}");
                }
            }
        }
    }
    for (name, signed) in [("v_cvt_f16_u16", false), ("v_cvt_f16_i16", true)] {
        let cases: Vec<[u64; 3]> = (0..=0xffff).map(|bits| [bits, 0, 0]).collect();
        for mode in [NEAREST, UP, DOWN, ZERO] {
            for (&[bits, ..], out) in cases.iter().zip(run(Arch::Gfx90a, rounding(mode), vop3(Arch::Gfx90a, name), &cases)) {
                let value = if signed { i64::from(bits as u16 as i16) } else { bits as i64 };
                assert_eq!(out.d & 0xffff_ffff, Exact::int(value).round(F16, mode), "{name} mode {mode} {bits:x}");
            }
        }
    }
    let mut doubles = F64.edges();
    doubles
        .extend([1e-46, 1e-45, 1.1e-38, 1e38, 3.4028235677973366e38, 3.4028235e38, 1e39, 1.0 / 3.0, 0.1].iter().map(|x: &f64| x.to_bits()));
    for mode in [NEAREST, UP, DOWN, ZERO] {
        for arch in GFX9 {
            let cases = grid(&doubles, 1);
            for (&[bits, ..], out) in cases.iter().zip(run(arch, rounding(mode), vop3(arch, "v_cvt_f32_f64"), &cases)) {
                let got = out.d & 0xffff_ffff;
                if F64.is_nan(bits) {
                    assert!(F32.is_quiet(got), "{bits:x}: {got:x}");
                } else if F64.is_inf(bits) {
                    assert_eq!(got, F32.infinity(F64.sign(bits)));
                } else {
                    assert_eq!(got, Exact::of(F64, bits).round(F32, mode), "mode {mode} {bits:x}");
                }
            }
        }
    }
    for arch in GFX9 {
        let cases = grid(&F32.edges(), 1);
        for (&[bits, ..], out) in cases.iter().zip(run(arch, USUAL, vop3(arch, "v_cvt_f64_f32"), &cases)) {
            if F32.is_nan(bits) {
                assert!(F64.is_quiet(out.d), "{bits:x}: {:x}", out.d);
            } else if F32.is_inf(bits) {
                assert_eq!(out.d, F64.infinity(F32.sign(bits)));
            } else {
                assert_eq!(out.d, Exact::of(F32, bits).round(F64, NEAREST), "{bits:x}");
            }
        }
        for n in 0..4u32 {
            let cases = [[0x80ff_017f_u64, 0, 0]];
            let got = run(arch, USUAL, vop3(arch, &format!("v_cvt_f32_ubyte{n}")), &cases)[0].d as u32;
            assert_eq!(f32::from_bits(got), (0x80ff_017f_u32 >> (8 * n) & 0xff) as f32);
        }
        // Four bits of two's complement sixteenths.
        for n in 0..16u64 {
            let got = run(arch, USUAL, vop3(arch, "v_cvt_off_f32_i4"), &[[n | 0xabc0, 0, 0]])[0].d as u32;
            let expected = (if n < 8 { n as f32 } else { n as f32 - 16.0 }) / 16.0;
            assert_eq!(f32::from_bits(got), expected, "{n}");
        }
    }
}

/// Normalized integers: -1..=1 to -32767..=32767 and 0..=1 to 0..=65535; RDNA 3's hardware gives 0x8001 for -1.
#[test]
fn normalized() {
    let values = [0.0f32, 1.0, -1.0, 2.0, -2.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.25, -0.25, 1.0 / 32767.0, 3.0 / 65535.0];
    for arch in GFX9 {
        for (name, scale, least) in [("v_cvt_pknorm_i16_f32", 32767.0, -1.0), ("v_cvt_pknorm_u16_f32", 65535.0f64, 0.0)] {
            let cases: Vec<[u64; 3]> = values.iter().map(|x| [u64::from(x.to_bits()), u64::from((-x).to_bits()), 0]).collect();
            for (case, out) in cases.iter().zip(run(arch, USUAL, vop3(arch, name), &cases)) {
                for n in 0..2 {
                    let x = f64::from(f32::from_bits(case[n] as u32));
                    let exact = if x.is_nan() { 0.0 } else { x.clamp(least, 1.0) * scale };
                    let got = (out.d >> (16 * n)) as u16;
                    let got = if least < 0.0 { f64::from(got as i16) } else { f64::from(got) };
                    // How a half is rounded is not documented.
                    assert!((got - exact).abs() <= 0.5, "{arch:?} {name} {x}: {got}");
                }
            }
        }
        for (name, scale, least) in [("v_cvt_norm_i16_f16", 32767.0, -1.0), ("v_cvt_norm_u16_f16", 65535.0f64, 0.0)] {
            for (bits, x) in
                [(0u64, 0.0), (0x3c00, 1.0), (0xbc00, -1.0), (0x4000, 2.0), (0xc000, -2.0), (0x7e00, 0.0), (0x3400, 0.25), (0xfc00, -9.0)]
            {
                let exact = f64::clamp(x, least, 1.0) * scale;
                let got = run(arch, USUAL, vop3(arch, name), &[[bits, 0, 0]])[0].d as u16;
                let got = if least < 0.0 { f64::from(got as i16) } else { f64::from(got) };
                assert!((got - exact).abs() <= 0.5, "{arch:?} {name} {x}: {got}");
            }
        }
        for (name, scale, least) in [("v_cvt_pknorm_i16_f16", 32767.0, -1.0), ("v_cvt_pknorm_u16_f16", 65535.0f64, 0.0)] {
            // Every half, with its opposite beside it.
            let cases: Vec<[u64; 3]> = (0..=0xffff).map(|bits| [bits, bits ^ 0x8000, 0]).collect();
            for (case, out) in cases.iter().zip(run(arch, USUAL, vop3(arch, name), &cases)) {
                for n in 0..2 {
                    let exact = match case[n] {
                        bits if F16.is_nan(bits) => 0.0,
                        bits if F16.is_inf(bits) => f64::clamp(if F16.sign(bits) { -2.0 } else { 2.0 }, least, 1.0) * scale,
                        bits if F16.is_zero(bits) => 0.0,
                        bits => f64::from(f32::from_bits(Exact::of(F16, bits).round(F32, NEAREST) as u32)).clamp(least, 1.0) * scale,
                    };
                    let got = (out.d >> (16 * n)) as u16;
                    let got = if least < 0.0 { f64::from(got as i16) } else { f64::from(got) };
                    assert!((got - exact).abs() <= 0.5, "{arch:?} {name} {:x}: {got}, not {exact}", case[n]);
                }
            }
        }
        // A byte put into a register: to the nearest, ties to even (as runs on a gfx90c and in a PS4 showed; the pseudocode does not
        // say), saturated to 0..=255. `pkaccum` puts it into the destination, which keeps the others.
        let values = [
            (0.0f32, 0u64),
            (-0.0, 0),
            (1e-40, 0),
            (0.5, 0),
            (0.75, 1),
            (1.5, 2),
            (2.5, 2),
            (-0.75, 0),
            (254.5, 254),
            (255.5, 255),
            (1.0, 1),
            (-1.0, 0),
            (-5.0, 0),
            (254.0, 254),
            (255.0, 255),
            (256.0, 255),
            (1e20, 255),
            (f32::INFINITY, 255),
            (f32::NEG_INFINITY, 0),
            (f32::NAN, 0),
            (200.0, 200),
        ];
        for (x, expected) in values {
            for byte in 0..4u64 {
                let place = |old: u64| old & !(0xffu64 << (8 * byte)) | expected << (8 * byte);
                let case = [u64::from(x.to_bits()), byte | 0xf0, 0x8899_aabb];
                let out = run(arch, USUAL, vop3(arch, "v_cvt_pk_u8_f32"), &[case])[0];
                assert_eq!(out.d & 0xffff_ffff, place(0x8899_aabb), "{arch:?} {x} {byte}");
                let out = run(arch, USUAL, vop3(arch, "v_cvt_pkaccum_u8_f32"), &[case])[0];
                assert_eq!(out.d & 0xffff_ffff, place(OLD & 0xffff_ffff), "{arch:?} accumulated {x} {byte}");
            }
        }
    }
}

/// The 8-bit floats of gfx942 (OCP names them "fnuz"): exponent bias 8 and 16, no infinities, no -0, 0x80 is the NaN.
fn tiny(bits: u64, exponent: u32, fraction: u32) -> f64 {
    if bits == 0x80 {
        return f64::NAN;
    }
    let bias = 1 << (exponent - 1);
    let e = (bits >> fraction & ((1 << exponent) - 1)) as i32;
    let m = (bits & ((1 << fraction) - 1)) as f64 / f64::from(1 << fraction);
    let magnitude = if e == 0 { m * 2f64.powi(1 - bias) } else { (1.0 + m) * 2f64.powi(e - bias) };
    if bits & 0x80 != 0 { -magnitude } else { magnitude }
}

#[test]
fn eight_bit_floats_exhaustively() {
    let arch = Arch::Gfx942;
    for (suffix, exponent, fraction) in [("fp8", 4, 3), ("bf8", 5, 2)] {
        // Every byte, from every byte of the register by SDWA, and in pairs.
        for byte in 0..4u32 {
            let cases: Vec<[u64; 4]> =
                (0..256u64).map(|bits| [bits << (8 * byte) | !(0xff << (8 * byte)) & 0x1234_5678, 0, 0, OLD]).collect();
            let words = [vop32(arch, &format!("v_cvt_f32_{suffix}"), 2, 249, 0), 10 | 6 << 8 | byte << 16 | 6 << 24];
            for (bits, out) in run_with(arch, USUAL, &words, &cases, false).into_iter().enumerate() {
                let (got, expected) = (f32::from_bits(out.d as u32), tiny(bits as u64, exponent, fraction));
                assert!(f64::from(got) == expected || got.is_nan() && expected.is_nan(), "{suffix} {bits:x}: {got}, {expected}");
                assert!(expected != 0.0 || got.is_sign_positive());
            }
        }
        for word in 0..2u32 {
            let cases: Vec<[u64; 4]> = (0..256u64).map(|bits| [(bits | (255 - bits) << 8) << (16 * word), 0, 0, OLD]).collect();
            let words = [vop32(arch, &format!("v_cvt_pk_f32_{suffix}"), 2, 249, 0), 10 | 6 << 8 | (4 + word) << 16 | 6 << 24];
            for (bits, out) in run_with(arch, USUAL, &words, &cases, false).into_iter().enumerate() {
                for (got, bits) in [(out.d as u32, bits as u64), ((out.d >> 32) as u32, 255 - bits as u64)] {
                    let (got, expected) = (f32::from_bits(got), tiny(bits, exponent, fraction));
                    assert!(f64::from(got) == expected || got.is_nan() && expected.is_nan(), "pk {suffix} {bits:x}: {got}, {expected}");
                }
            }
        }
        // To the nearest, ties to even: around every number and every middle between two. What happens beyond the largest
        // depends on a clamp bit and is looked at apart.
        let name = format!("v_cvt_pk_{suffix}_f32");
        let mut cases = Vec::new();
        for bits in 0..0x7fu64 {
            let (low, high) = (tiny(bits, exponent, fraction) as f32, tiny(bits + 1, exponent, fraction) as f32);
            let middle = (low + high) / 2.0;
            let even = if bits & 1 == 0 { bits } else { bits + 1 };
            cases.push((low, bits));
            cases.push((middle, even));
            cases.push((middle.next_down(), bits));
            cases.push((middle.next_up(), bits + 1));
        }
        for op_sel in [0, 8] {
            let laid: Vec<[u64; 3]> = cases.iter().map(|(x, _)| [u64::from(x.to_bits()), u64::from((-x).to_bits()), 0]).collect();
            let inst = Vop3 { op_sel, ..vop3(arch, &name) };
            for ((x, bits), out) in cases.iter().zip(run(arch, USUAL, inst, &laid)) {
                let negative = if *bits == 0 { 0 } else { bits | 0x80 };
                let pair = bits | negative << 8;
                let expected = if op_sel == 8 { OLD & 0xffff | pair << 16 } else { OLD & 0xffff_0000 | pair };
                assert_eq!(out.d as u32, expected as u32, "{name} {x} op_sel {op_sel}: {:x}, not {expected:x}", out.d as u32);
            }
        }
        let nan = run(arch, USUAL, vop3(arch, &name), &[[0x7fc0_0000, 0xffc0_0000, 0]])[0];
        assert_eq!(nan.d & 0xffff, 0x8080, "{name} of NaN");
        // No infinities: beyond the largest (AMD's HIP headers clip before they convert when they want saturation).
        let most = tiny(0x7f, exponent, fraction) as f32;
        let step = most - tiny(0x7e, exponent, fraction) as f32;
        for (x, expected) in [(most + step / 2.0, 0x80), ((most + step / 2.0).next_down(), 0x7f), (1e30, 0x80), (f32::INFINITY, 0x80)] {
            let out = run(arch, USUAL, vop3(arch, &name), &[[u64::from(x.to_bits()), 0, 0]])[0];
            assert_eq!(out.d & 0xff, expected, "{name} {x}");
        }
        // Stochastic: the top bits of the noise, as many as the conversion drops of the mantissa, are added there; a carry goes up.
        let name = format!("v_cvt_sr_{suffix}_f32");
        let dropped = 23 - fraction;
        let mut numbers = Numbers(21);
        for _ in 0..500 {
            let (rest, noise) = (numbers.next() & ((1 << dropped) - 1), numbers.next() & 0xffff_ffff);
            let bits = 0x20 + numbers.next() % 0x40;
            let low = tiny(bits, exponent, fraction) as f32;
            let carry = rest + (noise >> (32 - dropped)) >> dropped;
            let out = run(arch, USUAL, vop3(arch, &name), &[[u64::from(low.to_bits()) + rest, noise, 0]])[0];
            assert_eq!(out.d & 0xff, bits + carry, "{name} {low} + {rest:x} noise {noise:x}");
        }
        for (x, expected) in [(f32::NAN, 0x80), (f32::INFINITY, 0x80), (0.0, 0), (-0.0, 0)] {
            let out = run(arch, USUAL, vop3(arch, &name), &[[u64::from(x.to_bits()), 0x1234_5678, 0]])[0];
            assert_eq!(out.d & 0xff, expected, "{name} {x}");
        }
        // What has no more than the format's bits is not changed by the noise below them.
        let name = format!("v_cvt_sr_{suffix}_f32");
        for byte in 0..4u32 {
            for bits in [0x08u64, 0x38, 0x41, 0x7e] {
                let x = tiny(bits, exponent, fraction) as f32;
                let inst = Vop3 { op_sel: byte << 2, ..vop3(arch, &name) };
                for noise in [0, 0x7fff_ffff, 0xffff_ffff] {
                    let out = run(arch, USUAL, inst, &[[u64::from(x.to_bits()), noise, 0]])[0];
                    let expected = OLD & 0xffff_ffff & !(0xff << (8 * byte)) | bits << (8 * byte);
                    assert_eq!(out.d & 0xffff_ffff, expected, "{name} {x} byte {byte} noise {noise:x}");
                }
            }
        }
    }
}
