//! Vector and scalar instructions of RDNA where they differ from GFX9: wave32 masks, EXEC-only compares, halves of registers, the new
//! dot products. AMD's pseudocode of RDNA 3; points that its hardware was looked at are named.

use super::asm::*;
use warpwave_vgpu::Arch;
use warpwave_vgpu::exec::TestWave;
use warpwave_vgpu::isa::Format;

const ARCHS: [Arch; 3] = [Arch::Gfx1030, Arch::Gfx1100, Arch::Gfx1201];
/// The architectures with halves of registers as operands.
const TRUE16: [Arch; 2] = [Arch::Gfx1100, Arch::Gfx1201];

/// Runs VOP3 in wave32 with the same sources in every lane and returns `v2`, which held `old`.
fn one(arch: Arch, mode: u32, inst: Vop3, sources: [u32; 3], old: u32) -> u32 {
    let mut bench = TestWave::wave32(arch);
    bench.set_mode(mode);
    for (register, value) in [(10, sources[0]), (20, sources[1]), (30, sources[2]), (2, old)] {
        bench.set_v(register, [value; 64]);
    }
    bench.run(&inst.words()).unwrap_or_else(|fault| panic!("{inst:x?}: {fault}"));
    assert_eq!(bench.v(2)[..32], [bench.v(2)[0]; 32]);
    bench.v(2)[0]
}

/// A carry mask of wave32 is one SGPR.
#[test]
fn carries() {
    for arch in ARCHS {
        let mut bench = TestWave::wave32(arch);
        bench.set_exec(0xffff_0ff0);
        bench.set_v(10, [u32::MAX - 5; 64]);
        bench.set_v(20, std::array::from_fn(|lane| lane as u32));
        (20..24).for_each(|register| bench.set_s(register, 0x5555_0000));
        let wraps = 0xffff_ffc0 & 0xffff_0ff0u32;
        bench.run(&Vop3 { sdst: Some(20), ..vop3(arch, "v_add_co_u32") }.words()).unwrap();
        assert_eq!((bench.s(20), bench.s(21)), (wraps, 0x5555_0000), "{arch:?}");
        assert_eq!(bench.v(2)[16], 10, "{arch:?}");
        // The carry of s20 goes in, the new one to s22.
        bench.set_v(10, [u32::MAX; 64]);
        bench.set_v(20, [0; 64]);
        let name = "v_add_co_ci_u32";
        bench.run(&Vop3 { sdst: Some(22), src: [V + 10, V + 20, 20], ..vop3(arch, name) }.words()).unwrap();
        assert_eq!((bench.s(22), bench.s(23)), (wraps, 0x5555_0000), "{arch:?}");
        assert_eq!((bench.v(2)[16], bench.v(2)[5]), (0, u32::MAX), "{arch:?}");
        bench.run(&Vop3 { sdst: Some(22), src: [V + 20, V + 10, 20], ..vop3(arch, "v_sub_co_ci_u32") }.words()).unwrap();
        assert_eq!((bench.s(22), bench.v(2)[16], bench.v(2)[5]), (0xffff_0ff0, 0, 1), "{arch:?}");
        bench.run(&Vop3 { sdst: Some(22), src: [V + 20, V + 10, 20], ..vop3(arch, "v_subrev_co_ci_u32") }.words()).unwrap();
        assert_eq!((bench.s(22), bench.v(2)[16], bench.v(2)[5]), (0, u32::MAX - 1, u32::MAX), "{arch:?}");
        for (name, carry) in [("v_sub_co_u32", 0xffff_0ff0), ("v_subrev_co_u32", 0)] {
            bench.run(&Vop3 { sdst: Some(22), src: [V + 20, V + 10, 0], ..vop3(arch, name) }.words()).unwrap();
            assert_eq!((bench.s(22), bench.s(23)), (carry, 0x5555_0000), "{arch:?} {name}");
        }
        // 0xffff_ffff² + 2⁶⁴ - 1 carries out of 64 bits.
        bench.set_v(30, [u32::MAX; 64]);
        bench.set_v(31, [u32::MAX; 64]);
        let name = if arch == Arch::Gfx1201 { "v_mad_co_u64_u32" } else { "v_mad_u64_u32" };
        bench.run(&Vop3 { sdst: Some(22), src: [V + 10, V + 10, V + 30], ..vop3(arch, name) }.words()).unwrap();
        assert_eq!((bench.s(22), bench.v(2)[16], bench.v(3)[16]), (0xffff_0ff0, 0, u32::MAX - 1), "{arch:?}");
    }
}

/// `v_cmp` writes one SGPR in wave32, with zeros for inactive lanes.
#[test]
fn compare_to_scalar_register() {
    for arch in ARCHS {
        let mut bench = TestWave::wave32(arch);
        bench.set_exec(0x7fff_fffe);
        bench.set_v(10, std::array::from_fn(|lane| lane as u32));
        bench.set_v(20, [8; 64]);
        bench.set_s(20, u32::MAX);
        bench.set_s(21, 77);
        bench.run(&Vop3 { dst: 20, ..vop3(arch, "v_cmp_lt_u32") }.words()).unwrap();
        assert_eq!((bench.s(20), bench.s(21)), (0xfe, 77), "{arch:?}");
        bench.set_s(107, 99);
        bench.run(&[vop32(arch, "v_cmp_le_u32", 0, 256 + 20, 10)]).unwrap();
        assert_eq!((bench.s(106), bench.s(107)), (0x7fff_ff00, 99), "{arch:?}");
        // Selection by a mask of 32 bits.
        bench.run(&Vop3 { src: [V + 10, V + 20, 20], ..vop3(arch, "v_cndmask_b32") }.words()).unwrap();
        assert_eq!((bench.v(2)[3], bench.v(2)[12]), (8, 12), "{arch:?}");
    }
}

/// RDNA's `v_cmpx` writes EXEC alone.
#[test]
fn compare_to_exec() {
    for arch in ARCHS {
        for e32 in [true, false] {
            let mut bench = TestWave::wave32(arch);
            bench.set_exec(0xffff_fff0);
            bench.set_v(10, std::array::from_fn(|lane| lane as u32));
            bench.set_v(20, [20; 64]);
            bench.set_s(106, 0xabcd);
            let name = "v_cmpx_gt_u32";
            let words = if e32 {
                vec![vop32(arch, name, 0, 256 + 20, 10)]
            } else {
                Vop3 { src: [V + 20, V + 10, 0], ..vop3(arch, name) }.words().to_vec()
            };
            bench.run(&words).unwrap();
            assert_eq!((bench.exec(), bench.s(106)), (0x000f_fff0, 0xabcd), "{arch:?} {e32}");
        }
        // Unordered operands: "not greater" holds.
        let mut bench = TestWave::wave32(arch);
        bench.set_v(10, std::array::from_fn(|lane| if lane % 2 == 0 { f32::NAN } else { 1.0 }.to_bits()));
        bench.set_v(20, [0; 64]);
        bench.run(&[vop32(arch, "v_cmpx_ngt_f32", 0, 256 + 10, 20)]).unwrap();
        assert_eq!(bench.exec(), 0x5555_5555, "{arch:?}");
    }
}

/// `s_*_saveexec_b32`: the destination gets the old EXEC; SCC says whether the new one has lanes.
#[test]
fn saved_masks() {
    type Rule = fn(u32, u32) -> u32;
    let rules: [(&str, &str, Rule); 10] = [
        ("s_and_saveexec_b32", "", |s, exec| s & exec),
        ("s_or_saveexec_b32", "", |s, exec| s | exec),
        ("s_xor_saveexec_b32", "", |s, exec| s ^ exec),
        ("s_nand_saveexec_b32", "", |s, exec| !(s & exec)),
        ("s_nor_saveexec_b32", "", |s, exec| !(s | exec)),
        ("s_xnor_saveexec_b32", "", |s, exec| !(s ^ exec)),
        ("s_and_not1_saveexec_b32", "s_andn2_saveexec_b32", |s, exec| s & !exec),
        ("s_or_not1_saveexec_b32", "s_orn2_saveexec_b32", |s, exec| s | !exec),
        ("s_and_not0_saveexec_b32", "s_andn1_saveexec_b32", |s, exec| !s & exec),
        ("s_or_not0_saveexec_b32", "s_orn1_saveexec_b32", |s, exec| !s | exec),
    ];
    for arch in ARCHS {
        for (name, before_gfx11, rule) in rules {
            let name = if arch == Arch::Gfx1030 && !before_gfx11.is_empty() { before_gfx11 } else { name };
            for (source, exec) in [(0x1234_5678, 0xffff_0f0f), (0, 0xffff), (0xffff, 0xffff), (u32::MAX, u32::MAX), (0xffff_0000, 0xffff)] {
                let mut bench = TestWave::wave32(arch);
                bench.set_exec(exec.into());
                bench.set_s(10, source);
                bench.set_s(21, 5);
                bench.run(&[sop1(arch, name, 20, 10)]).unwrap();
                let expected = rule(source, exec);
                assert_eq!((bench.exec() as u32, bench.s(20), bench.s(21)), (expected, exec, 5), "{arch:?} {name} {source:x} {exec:x}");
                assert_eq!(bench.scc(), expected != 0, "{arch:?} {name}");
            }
        }
        let name = if arch == Arch::Gfx1030 { "s_andn2_wrexec_b32" } else { "s_and_not1_wrexec_b32" };
        let mut bench = TestWave::wave32(arch);
        bench.set_exec(0xff);
        bench.set_s(10, 0xf0f0);
        bench.run(&[sop1(arch, name, 20, 10)]).unwrap();
        assert_eq!((bench.exec(), bench.s(20), bench.scc()), (0xf000, 0xf000, true), "{arch:?}");
    }
}

/// A result of 16 bits leaves the other half of its register.
#[test]
fn other_half_is_kept() {
    for arch in ARCHS {
        let old = 0xabcd_1234;
        assert_eq!(one(arch, USUAL, vop3(arch, "v_add_f16"), [0x4000, 0x3c00, 0], old), 0xabcd_4200, "{arch:?}");
        assert_eq!(one(arch, USUAL, vop3(arch, "v_cvt_f16_f32"), [1.5f32.to_bits(), 0, 0], old), 0xabcd_3e00, "{arch:?}");
        assert_eq!(one(arch, USUAL, vop3(arch, "v_mul_lo_u16"), [300, 300, 0], old), 0xabcd_0000 | (90000 & 0xffff), "{arch:?}");
        for (name, expected) in [("v_add_nc_u16", 0x0001), ("v_sub_nc_u16", 0xffff)] {
            assert_eq!(one(arch, USUAL, vop3(arch, name), [0, 1, 0], old), 0xabcd_0000 | expected, "{arch:?} {name}");
            // With the high half of the first source, into the high half.
            let high = Vop3 { op_sel: 0b1001, ..vop3(arch, name) };
            let expected = if name.contains("add") { 0x7778 } else { 0x7776 };
            assert_eq!(one(arch, USUAL, high, [0x7777_0000, 1, 0], old), expected << 16 | 0x1234, "{arch:?} {name}");
        }
        let fma = Vop3 { op_sel: 0b1110, ..vop3(arch, "v_fma_f16") };
        assert_eq!(one(arch, USUAL, fma, [0x4000, 0x4200_0000, 0x3c00_0000], old), 0x4700_1234, "{arch:?}");
    }
    for arch in TRUE16 {
        assert_eq!(one(arch, USUAL, Vop3 { op_sel: 0b1000, ..vop3(arch, "v_mov_b16") }, [0x9999_8888, 0, 0], 0x1111_2222), 0x8888_2222);
        let mut bench = TestWave::wave32(arch);
        bench.set_s(106, 0xffff);
        bench.set_v(10, [0x1111_2222; 64]);
        bench.set_v(20, [0x3333_4444; 64]);
        bench.set_v(2, [0x5555_6666; 64]);
        bench.run(&Vop3 { op_sel: 0b1010, ..vop3(arch, "v_cndmask_b16") }.words()).unwrap();
        assert_eq!((bench.v(2)[0], bench.v(2)[20]), (0x3333_6666, 0x2222_6666), "{arch:?}");
    }
}

/// VOP1 and VOP2 name the high half of a register by its number plus 128. An accumulator is in the half that the result goes to.
#[test]
fn halves_in_short_encodings() {
    const HIGH: u32 = 128;
    for arch in TRUE16 {
        let run = |words: &[u32], old: u32| {
            let mut bench = TestWave::wave32(arch);
            for (register, value) in [(10, 0x4000_3c00), (20, 0x4200_4400), (2, old)] {
                bench.set_v(register, [value; 64]);
            }
            bench.run(words).unwrap();
            (bench.v(2)[0], bench.v(10)[0])
        };
        // 0.5 + 1 · 3 in the high half.
        assert_eq!(run(&[vop32(arch, "v_fmac_f16", 2 + HIGH, 256 + 10, 20 + HIGH)], 0x3800_dead).0, 0x4300_dead, "{arch:?}");
        assert_eq!(run(&[vop32(arch, "v_fmac_f16", 2, 256 + 10 + HIGH, 20)], 0xdead_3800).0, 0xdead_4840, "{arch:?}");
        let vop3_fmac = Vop3 { op_sel: 0b1000, ..vop3(arch, "v_fmac_f16") };
        assert_eq!(one(arch, USUAL, vop3_fmac, [0x3c00, 0x4200, 0], 0x3800_4000), 0x4300_4000, "{arch:?}");
        // 1 · k + 3, with the addend in a high half; 1 · 3 + k.
        let literal = 0x4000;
        assert_eq!(run(&[vop32(arch, "v_fmamk_f16", 2, 256 + 10, 20 + HIGH), literal], 0xdead_0000).0, 0xdead_4500, "{arch:?}");
        assert_eq!(run(&[vop32(arch, "v_fmaak_f16", 2 + HIGH, 256 + 10, 20 + HIGH), literal], 0xdead).0, 0x4500_dead, "{arch:?}");
        assert_eq!(run(&[vop32(arch, "v_mov_b16", 2, 256 + 10 + HIGH, 0)], 0x1111_2222).0, 0x1111_4000, "{arch:?}");
        assert_eq!(run(&[vop32(arch, "v_swap_b16", 2 + HIGH, 256 + 10, 0)], 0x1111_2222), (0x3c00_2222, 0x4000_1111), "{arch:?}");
        // The two halves of one register.
        assert_eq!(run(&[vop32(arch, "v_swap_b16", 2, 256 + 2 + HIGH, 0)], 0x1111_2222).0, 0x2222_1111, "{arch:?}");
    }
}

/// `omod` does nothing where results may be denormal or IEEE mode is on; gfx12 has no such mode.
#[test]
fn output_modifiers_that_hardware_ignores() {
    for arch in ARCHS {
        let double = Vop3 { omod: 1, ..vop3(arch, "v_add_f32") };
        let sum = |mode| f32::from_bits(one(arch, mode, double, [3f32.to_bits(), 1f32.to_bits(), 0], 0));
        assert_eq!((sum(USUAL), sum(0x1f0)), (4.0, 4.0), "{arch:?}");
        assert_eq!(sum(0x3c0), if arch == Arch::Gfx1201 { 8.0 } else { 4.0 }, "{arch:?}");
        assert_eq!(sum(0x1c0), 8.0, "{arch:?}");
    }
}

/// `v_pk_fmac_f16` with f32 denormals flushed, the mode that assemblers choose by default.
#[test]
fn packed_multiply_add_in_another_mode() {
    for arch in ARCHS {
        for mode in [USUAL, 0x3c0] {
            let mut bench = TestWave::wave32(arch);
            bench.set_mode(mode);
            for (register, value) in [(10, 0x4000_3c00), (20, 0x4200_4400), (2, 0x3c00_3800)] {
                bench.set_v(register, [value; 64]);
            }
            bench.run(&[vop32(arch, "v_pk_fmac_f16", 2, 256 + 10, 20)]).unwrap();
            assert_eq!(bench.v(2)[0], 0x4700_4480, "{arch:?} {mode:x}");
        }
    }
}

/// Dot products of 8 and 4 bits: `neg` makes a source signed. With `clamp` the sum saturates.
#[test]
fn integer_dot_products() {
    let mut numbers = Numbers(17);
    let parts = |value: u32, bits: u32, signed: bool| -> Vec<i64> {
        (0..32 / bits)
            .map(|n| {
                let part = i64::from(value >> (n * bits) & ((1 << bits) - 1));
                if signed && part >> (bits - 1) != 0 { part - (1 << bits) } else { part }
            })
            .collect()
    };
    for arch in TRUE16 {
        for (name, bits) in [("v_dot4_i32_iu8", 8), ("v_dot8_i32_iu4", 4)] {
            for neg in 0..4 {
                for clamp in [false, true] {
                    for c in [0, 1000, i32::MAX as u32, i32::MIN as u32] {
                        let (a, b) = (numbers.next() as u32, numbers.next() as u32);
                        let products = parts(a, bits, neg & 1 != 0).into_iter().zip(parts(b, bits, neg & 2 != 0)).map(|(x, y)| x * y);
                        let sum = products.sum::<i64>() + i64::from(c as i32);
                        let expected = if clamp { sum.clamp(i32::MIN.into(), i32::MAX.into()) } else { sum };
                        let got = one(arch, USUAL, Vop3 { neg, clamp, ..vop3(arch, name) }, [a, b, c], 0);
                        assert_eq!(got, expected as u32, "{arch:?} {name} {neg} {clamp} {a:x} {b:x} {c:x}");
                    }
                }
            }
        }
        for (name, bits) in [("v_dot4_u32_u8", 8), ("v_dot8_u32_u4", 4)] {
            let (a, b) = (numbers.next() as u32, numbers.next() as u32);
            let sum: i64 = parts(a, bits, false).into_iter().zip(parts(b, bits, false)).map(|(x, y)| x * y).sum();
            assert_eq!(one(arch, USUAL, vop3(arch, name), [a, b, 7], 0), sum as u32 + 7, "{arch:?} {name}");
            assert_eq!(
                one(arch, USUAL, Vop3 { clamp: true, ..vop3(arch, name) }, [a | 1, b | 1, u32::MAX], 0),
                u32::MAX,
                "{arch:?} {name}"
            );
        }
    }
}

/// Float dot products: `op_sel` chooses the halves of the sources, as for other packed instructions.
#[test]
fn float_dot_products() {
    for arch in TRUE16 {
        let (a, b, c) = (0x4000_3f80, 0x4080_4040, 0.5f32.to_bits());
        let bf16 = vop3(arch, "v_dot2_f32_bf16");
        // (1, 2) · (3, 4) + 0.5; then with the first source's halves exchanged, and both from the second source's high half.
        let dot = |inst| f32::from_bits(one(arch, USUAL, inst, [a, b, c], 0));
        assert_eq!(dot(bf16), 11.5, "{arch:?}");
        assert_eq!(dot(Vop3 { op_sel: 1, op_sel_hi: 6, ..bf16 }), 10.5, "{arch:?}");
        assert_eq!(dot(Vop3 { op_sel: 2, ..bf16 }), 12.5, "{arch:?}");
        assert_eq!(dot(Vop3 { neg: 1, ..bf16 }), 5.5, "{arch:?}");
        let (a, b) = (0x4000_3c00, 0x4400_4200);
        assert_eq!(f32::from_bits(one(arch, USUAL, vop3(arch, "v_dot2_f32_f16"), [a, b, c], 0)), 11.5, "{arch:?}");
        let half = vop3(arch, "v_dot2_f16_f16");
        assert_eq!(one(arch, USUAL, half, [a, b, 0x3800], 0xdead_0000), 0xdead_49c0, "{arch:?}");
        assert_eq!(one(arch, USUAL, Vop3 { op_sel: 0b1100, ..half }, [a, b, 0x3800_0000], 0xdead), 0x49c0_dead, "{arch:?}");
        let brain = vop3(arch, "v_dot2_bf16_bf16");
        assert_eq!(one(arch, USUAL, brain, [0x4000_3f80, 0x4080_4040, 0x3f00], 0xdead_0000), 0xdead_4138, "{arch:?}");
    }
}

/// Conversions of pairs saturate; a NaN becomes 0.
#[test]
fn conversions_of_pairs() {
    let (big, nan) = (1e9f32.to_bits(), f32::NAN.to_bits());
    for arch in ARCHS {
        let pk = |name: &str, a: u32, b: u32| one(arch, USUAL, vop3(arch, name), [a, b, 0], 0);
        assert_eq!(pk("v_cvt_pk_u16_u32", 70000, 5), 0x0005_ffff, "{arch:?}");
        assert_eq!(pk("v_cvt_pk_i16_i32", 40000, -40000i32 as u32), 0x8000_7fff, "{arch:?}");
        if arch != Arch::Gfx1030 {
            assert_eq!(pk("v_cvt_pk_i16_f32", big, (-1e9f32).to_bits()), 0x8000_7fff, "{arch:?}");
            assert_eq!(pk("v_cvt_pk_i16_f32", (-2.9f32).to_bits(), nan), 0x0000_fffe, "{arch:?}");
            assert_eq!(pk("v_cvt_pk_u16_f32", big, (-1f32).to_bits()), 0x0000_ffff, "{arch:?}");
        }
        let rtz = if arch == Arch::Gfx1030 { "v_cvt_pkrtz_f16_f32" } else { "v_cvt_pk_rtz_f16_f32" };
        // 65535 and 1 + 2⁻¹⁰ + 2⁻¹¹, toward zero.
        assert_eq!(pk(rtz, 65535f32.to_bits(), (1.0 + 1.5 * 2f32.powi(-10)).to_bits()), 0x3c01_7bff, "{arch:?}");
        let norm = if arch == Arch::Gfx1030 { "v_cvt_pknorm_i16_f32" } else { "v_cvt_pk_norm_i16_f32" };
        assert_eq!(pk(norm, 2f32.to_bits(), (-1f32).to_bits()), 0x8001_7fff, "{arch:?}");
        assert_eq!(one(arch, USUAL, vop3(arch, "v_cvt_pk_u8_f32"), [300f32.to_bits(), 1, 0x1122_3344], 0), 0x1122_ff44, "{arch:?}");
        for (name, expected) in [("v_cvt_norm_i16_f16", 0x8001), ("v_cvt_norm_u16_f16", 0)] {
            assert_eq!(one(arch, USUAL, vop3(arch, name), [0xbc00, 0, 0], 0xabcd_0000), 0xabcd_0000 | expected, "{arch:?} {name}");
        }
    }
}

/// Minima of maxima, and the other way round; median of 16 bits.
#[test]
fn clamping_between_two_bounds() {
    for arch in TRUE16 {
        let suffix = if arch == Arch::Gfx1201 { "_num" } else { "" };
        let at = |name: &str, values: [f32; 3]| f32::from_bits(one(arch, USUAL, vop3(arch, name), values.map(f32::to_bits), 0));
        assert_eq!(at(&format!("v_maxmin{suffix}_f32"), [1.0, 5.0, 3.0]), 3.0, "{arch:?}");
        assert_eq!(at(&format!("v_minmax{suffix}_f32"), [1.0, 5.0, 3.0]), 3.0, "{arch:?}");
        assert_eq!(at(&format!("v_minmax{suffix}_f32"), [4.0, 5.0, 3.0]), 4.0, "{arch:?}");
        let halves = [0x3c00, 0x4500, 0x4200];
        for (name, expected) in [("v_maxmin", 0x4200), ("v_minmax", 0x4200), ("v_med3", 0x4200), ("v_min3", 0x3c00), ("v_max3", 0x4500)] {
            let name = format!("{name}{suffix}_f16");
            assert_eq!(one(arch, USUAL, vop3(arch, &name), halves, 0xdead_0000), 0xdead_0000 | expected, "{arch:?} {name}");
        }
        if arch == Arch::Gfx1100 {
            for (name, expected) in [("v_maxmin_f16", 0x4200), ("v_minmax_f16", 0x4400)] {
                assert_eq!(one(arch, USUAL, vop3(arch, name), [0x4400, 0x4500, 0x4200], 0), expected, "{name}");
            }
        }
        for (name, values, expected) in [
            ("v_maxmin_i32", [-5i32, -9, -7], -7i32),
            ("v_minmax_i32", [-5, -9, -7], -7),
            ("v_maxmin_u32", [5, 9, 7], 7),
            ("v_minmax_u32", [5, 9, 2], 5),
        ] {
            assert_eq!(one(arch, USUAL, vop3(arch, name), values.map(|value| value as u32), 0), expected as u32, "{arch:?} {name}");
        }
    }
}

/// Multiply-adds with a literal, and the multiplication of lighting.
#[test]
fn multiply_adds_of_their_own() {
    for arch in ARCHS {
        let mut bench = TestWave::wave32(arch);
        bench.set_v(10, [2f32.to_bits(); 64]);
        bench.set_v(20, [3f32.to_bits(); 64]);
        for (name, expected) in [("v_fmaak_f32", 16.0f32), ("v_fmamk_f32", 23.0)] {
            bench.run(&[vop32(arch, name, 2, 256 + 10, 20), 10f32.to_bits()]).unwrap();
            assert_eq!(f32::from_bits(bench.v(2)[0]), expected, "{arch:?} {name}");
        }
        let least = -f32::MAX;
        for (values, expected) in
            [([2.0, 3.0, 1.0], 6.0), ([2.0, 3.0, 0.0], least), ([2.0, least, 1.0], least), ([2.0, f32::NAN, 1.0], least)]
        {
            let got = one(arch, USUAL, vop3(arch, "v_mullit_f32"), values.map(f32::to_bits), 0);
            assert_eq!(f32::from_bits(got), expected, "{arch:?} {values:?}");
        }
    }
}

/// `s_pack_hl_b32_b16`, which GFX9 lacks.
#[test]
fn scalar_packing() {
    for arch in TRUE16 {
        let mut bench = TestWave::wave32(arch);
        bench.set_s(10, 0x1111_2222);
        bench.set_s(12, 0x3333_4444);
        bench.run(&[sop2(arch, "s_pack_hl_b32_b16", 20, 10, 12)]).unwrap();
        assert_eq!(bench.s(20), 0x4444_1111, "{arch:?}");
    }
}

fn sopp(arch: Arch, name: &str, imm: u32) -> u32 {
    0b1_0111_1111 << 23 | u32::from(row(arch, Format::SOPP, name).opcode) << 16 | imm
}

/// In wave32 a branch on VCC looks at 32 bits.
#[test]
fn branches_on_vcc() {
    for arch in ARCHS {
        for vcc in [0, 1 << 31] {
            for (name, taken) in [("s_cbranch_vccz", vcc == 0), ("s_cbranch_vccnz", vcc != 0)] {
                let mut bench = TestWave::wave32(arch);
                bench.set_s(106, vcc);
                bench.set_s(107, u32::MAX);
                bench.set_s(20, 5);
                bench.run(&[sopp(arch, name, 1), sop1(arch, "s_mov_b32", 20, 128 + 9), sopp(arch, "s_nop", 0)]).unwrap();
                assert_eq!(bench.s(20), if taken { 5 } else { 9 }, "{arch:?} {name} {vcc:x}");
            }
        }
    }
}

/// Waits let the instructions after them run; `s_endpgm` does not.
#[test]
fn waits() {
    for (arch, names) in [
        (Arch::Gfx1030, &["s_waitcnt", "s_nop"][..]),
        (Arch::Gfx1100, &["s_waitcnt", "s_wait_idle", "s_nop"]),
        (Arch::Gfx1201, &["s_wait_kmcnt", "s_wait_loadcnt", "s_wait_dscnt", "s_nop"]),
    ] {
        for name in names.iter().chain(&["s_endpgm"]) {
            let mut bench = TestWave::wave32(arch);
            bench.run(&[sopp(arch, name, 0), sop1(arch, "s_mov_b32", 20, 128 + 9)]).unwrap();
            assert_eq!(bench.s(20), if *name == "s_endpgm" { 0 } else { 9 }, "{arch:?} {name}");
        }
    }
}
