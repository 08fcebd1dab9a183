//! Constants, literals and scalar registers as sources: AMD's table of operand numbers.

use super::asm::*;
use warpwave_vgpu::Arch;
use warpwave_vgpu::exec::TestWave;

/// 240 to 248 as f16, f32 and f64.
const FLOATS: [(u16, u32, u64); 9] = [
    (0x3800, 0x3f00_0000, 0x3fe0_0000_0000_0000),
    (0xb800, 0xbf00_0000, 0xbfe0_0000_0000_0000),
    (0x3c00, 0x3f80_0000, 0x3ff0_0000_0000_0000),
    (0xbc00, 0xbf80_0000, 0xbff0_0000_0000_0000),
    (0x4000, 0x4000_0000, 0x4000_0000_0000_0000),
    (0xc000, 0xc000_0000, 0xc000_0000_0000_0000),
    (0x4400, 0x4080_0000, 0x4010_0000_0000_0000),
    (0xc400, 0xc080_0000, 0xc010_0000_0000_0000),
    // 1 / 2π
    (0x3118, 0x3e22_f983, 0x3fc4_5f30_6dc9_c882),
];

fn integers() -> impl Iterator<Item = (u16, i64)> {
    (128..=192).map(|n| (n, i64::from(n) - 128)).chain((193..=208).map(|n| (n, 192 - i64::from(n))))
}

#[test]
fn constants() {
    for arch in GFX9 {
        let one = |name: &str, number: u16, mode: u32| run(arch, mode, Vop3 { src: [number, 0, 0], ..vop3(arch, name) }, &[[0; 3]])[0].d;
        for (number, value) in integers() {
            assert_eq!(one("v_mov_b32", number, USUAL) as u32, value as u32, "{number}");
            // An integer constant is bits also for float instructions: a small denormal, or a NaN.
            if value > 0 {
                let inst = Vop3 { src: [number, 128, 0], ..vop3(arch, "v_max_f32") };
                assert_eq!(run(arch, USUAL, inst, &[[0; 3]])[0].d as u32, value as u32);
            }
            // 64 bits: sign-extended.
            let inst = Vop3 { src: [128, number, 0], ..vop3(arch, "v_ashrrev_i64") };
            assert_eq!(run(arch, USUAL, inst, &[[0; 3]])[0].d, value as u64, "{number}");
            let mut bench = TestWave::new(arch);
            bench.run(&[sop1(arch, "s_mov_b64", 20, number.into())]).unwrap();
            assert_eq!(u64::from(bench.s(20)) | u64::from(bench.s(21)) << 32, value as u64, "{number}");
        }
        for (n, (half, single, double)) in FLOATS.into_iter().enumerate() {
            let number = 240 + n as u16;
            assert_eq!(one("v_mov_b32", number, USUAL) as u32, single);
            assert_eq!(one("v_trunc_f64", number, USUAL), f64::from_bits(double).trunc().to_bits());
            let inst = Vop3 { src: [number, number, 0], ..vop3(arch, "v_max_f64") };
            assert_eq!(run(arch, USUAL, inst, &[[0; 3]])[0].d, double);
            let inst = Vop3 { src: [number, number, 0], ..vop3(arch, "v_max_f16") };
            assert_eq!(run(arch, USUAL, inst, &[[0; 3]])[0].d as u32, u32::from(half));
            let mut bench = TestWave::new(arch);
            bench.run(&[sop1(arch, "s_mov_b64", 20, number.into())]).unwrap();
            assert_eq!(u64::from(bench.s(20)) | u64::from(bench.s(21)) << 32, double);
            // Packed: the constant is in the low half, the high half of the operand is 0.
            for (op_sel_hi, high) in [(1u32, half), (3, 0)] {
                let inst = Vop3 { src: [V + 10, number, 0], op_sel_hi, ..vop3(arch, "v_pk_add_f16") };
                let out = run(arch, USUAL, inst, &[[0; 3]])[0].d as u32;
                assert_eq!(out, u32::from(half) | u32::from(high) << 16, "{arch:?} {number} {op_sel_hi}");
            }
        }
    }
}

#[test]
fn literals() {
    for arch in GFX9 {
        let one =
            |name: &str, literal: u32| run_with(arch, USUAL, &[vop32(arch, name, 2, 255, 20), literal], &[[0, 0, 0, OLD]], false)[0].d;
        assert_eq!(one("v_mov_b32", 0x1234_5678) as u32, 0x1234_5678);
        assert_eq!(one("v_add_u32", 0xffff_fff0) as u32, 0xffff_fff0);
        // f64: the upper 32 bits; f16: the lower 16.
        assert_eq!(one("v_trunc_f64", 0x4004_0000), 2f64.to_bits());
        assert_eq!(one("v_add_f16", 0x3c01) as u32, 0x3c01);
        let mut bench = TestWave::new(arch);
        bench.set_s(4, 5);
        bench.run(&[sop2(arch, "s_add_u32", 20, 4, 255), 0xffff_ffff]).unwrap();
        assert_eq!((bench.s(20), bench.scc()), (4, true));
        // The multiply-adds with a constant of their own: a · k + b and a · b + k.
        let [mk, ak] = if arch == Arch::Gfx942 { ["v_fmamk_f32", "v_fmaak_f32"] } else { ["v_madmk_f32", "v_madak_f32"] };
        let case = [2.0f32, 3.0, 0.0, 0.0].map(|x| u64::from(x.to_bits()));
        for (name, expected) in [(mk, 2.0 * 10.0 + 3.0), (ak, 2.0 * 3.0 + 10.0)] {
            let out = run_with(arch, USUAL, &[vop32(arch, name, 2, 256 + 10, 20), 10f32.to_bits()], &[case], false)[0];
            assert_eq!(f32::from_bits(out.d as u32), expected, "{arch:?} {name}");
        }
        for (name, expected) in [("v_madmk_f16", 0x4dc0), ("v_madak_f16", 0x4c00)] {
            let out = run_with(arch, USUAL, &[vop32(arch, name, 2, 256 + 10, 20), 0x4900], &[[0x4000, 0x4200, 0, OLD]], false)[0];
            assert_eq!(out.d as u32, expected, "{arch:?} {name}");
        }
    }
}

#[test]
fn scalars() {
    for arch in GFX9 {
        let mut bench = TestWave::new(arch);
        bench.set_s(124, 0x1111);
        bench.set_s(106, 0x2222);
        bench.set_s(107, 0x3333);
        bench.set_scc(true);
        for (number, expected) in [(124u32, 0x1111u32), (106, 0x2222), (107, 0x3333), (126, u32::MAX), (251, 0), (252, 0), (253, 1)] {
            bench.run(&[vop32(arch, "v_mov_b32", 2, number, 0)]).unwrap();
            assert_eq!(bench.v(2)[3], expected, "{arch:?} {number}");
        }
        bench.set_s(106, 0);
        bench.set_s(107, 0);
        bench.set_exec(0);
        bench.set_scc(false);
        for (number, expected) in [(251u32, 1u32), (252, 1), (253, 0)] {
            bench.run(&[sop1(arch, "s_mov_b32", 20, number)]).unwrap();
            assert_eq!(bench.s(20), expected, "{arch:?} {number}");
        }
        // A pair of scalar registers for 64 bits.
        bench.set_exec(1);
        bench.set_s(6, 0x89ab_cdef);
        bench.set_s(7, 0x0123_4567);
        bench.run(&Vop3 { src: [132, 6, 0], ..vop3(arch, "v_lshlrev_b64") }.words()).unwrap();
        assert_eq!((bench.v(2)[0], bench.v(3)[0]), (0x9abc_def0, 0x1234_5678));
    }
}

/// Multiply-adds that are not fused flush denormals whatever `MODE` says (AMD's notes to `V_MAD_F32` and `V_MAC_F32`).
#[test]
fn unfused_multiply_adds_flush() {
    for arch in [Arch::Gfx908, Arch::Gfx90a] {
        for name in ["v_mad_f32", "v_mac_f32"] {
            for [a, b, c] in [[1u64, 0x3f80_0000, 0], [0x3f80_0000, 0x0040_0000, 0], [0x0080_0000, 0x3f00_0000, 0], [0, 0, 7]] {
                let out = run_with(arch, USUAL, &vop3(arch, name).words(), &[[a, b, c, c]], false)[0];
                assert_eq!(out.d as u32, 0, "{arch:?} {name} {a:x} {b:x} {c:x}");
            }
        }
    }
}

/// Approximations of 16 bits: at most one place off; AMD asks for that.
#[test]
fn half_precision_approximations() {
    let decode = |bits: u64| {
        let (e, m) = (bits as i32 >> 10 & 31, (bits & 1023) as f64);
        let value = if e == 0 { m * 2f64.powi(-24) } else { (1024.0 + m) * 2f64.powi(e - 25) };
        if bits & 0x8000 != 0 { -value } else { value }
    };
    type Real = fn(f64) -> f64;
    let table: [(&str, Real); 5] = [
        ("v_rcp_f16", |x| 1.0 / x),
        ("v_sqrt_f16", f64::sqrt),
        ("v_rsq_f16", |x| 1.0 / x.sqrt()),
        ("v_log_f16", f64::log2),
        ("v_exp_f16", f64::exp2),
    ];
    let cases: Vec<[u64; 3]> = (0x0400..0x4c00).map(|bits| [bits, 0, 0]).collect();
    for arch in GFX9 {
        for (name, real) in table {
            for (&[bits, ..], out) in cases.iter().zip(run(arch, USUAL, vop3(arch, name), &cases)) {
                let expected = real(decode(bits));
                let got = decode(out.d & 0xffff);
                if expected > 65504.0 {
                    assert!(out.d & 0x7fff >= 0x7bff, "{name} {bits:x}");
                    continue;
                }
                assert!(
                    (got - expected).abs() <= (expected.abs() / 1024.0).max(2f64.powi(-24)),
                    "{arch:?} {name} {bits:x}: {got}, {expected}"
                );
            }
        }
    }
}
