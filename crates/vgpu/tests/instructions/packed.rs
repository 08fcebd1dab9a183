//! VOP3P: AMD's pseudocode, and its chapter on `op_sel`, `op_sel_hi`, `neg` and `neg_hi`.

use super::asm::*;
use super::exact::{self, *};
use warpwave_vgpu::Arch;
use warpwave_vgpu::exec::TestWave;

fn pairs(kind: Kind, count: usize, seed: u64) -> Vec<[u64; 3]> {
    let mut numbers = Numbers(seed);
    let edges = kind.edges();
    (0..count)
        .map(|n| {
            std::array::from_fn(|_| {
                let mut half = || if n % 2 == 0 { edges[(numbers.next() % edges.len() as u64) as usize] } else { numbers.next() };
                half() & 0xffff | (half() & 0xffff) << 16
            })
        })
        .collect()
}

#[test]
fn integers() {
    type Expect = fn(i64, i64, i64) -> i64;
    // Signed, what is computed without bounds, whether the clamp bit saturates it.
    let table: [(&str, bool, Expect, bool); 14] = [
        ("v_pk_mad_i16", true, |a, b, c| a * b + c, true),
        ("v_pk_mad_u16", false, |a, b, c| a * b + c, true),
        ("v_pk_mul_lo_u16", false, |a, b, _| a * b, false),
        ("v_pk_add_i16", true, |a, b, _| a + b, true),
        ("v_pk_sub_i16", true, |a, b, _| a - b, true),
        ("v_pk_add_u16", false, |a, b, _| a + b, true),
        ("v_pk_sub_u16", false, |a, b, _| a - b, true),
        ("v_pk_lshlrev_b16", false, |a, b, _| b << (a & 15), false),
        ("v_pk_lshrrev_b16", false, |a, b, _| b >> (a & 15), false),
        ("v_pk_ashrrev_i16", true, |a, b, _| b >> (a & 15), false),
        ("v_pk_max_i16", true, |a, b, _| a.max(b), false),
        ("v_pk_min_i16", true, |a, b, _| a.min(b), false),
        ("v_pk_max_u16", false, |a, b, _| a.max(b), false),
        ("v_pk_min_u16", false, |a, b, _| a.min(b), false),
    ];
    let cases = pairs(F16, 600, 1);
    for arch in GFX9 {
        for (name, signed, expect, saturates) in table {
            for (op_sel, op_sel_hi, clamp) in [(0, 7, false), (7, 0, false), (5, 3, false), (2, 6, false), (0, 7, saturates)] {
                let inst = Vop3 { op_sel, op_sel_hi, clamp, ..vop3(arch, name) };
                for (case, out) in cases.iter().zip(run(arch, USUAL, inst, &cases)) {
                    for (half, selector) in [(0, op_sel), (1, op_sel_hi)] {
                        let part = |n: usize| {
                            let bits = (case[n] >> (16 * (selector >> n & 1))) as u16;
                            if signed { i64::from(bits as i16) } else { i64::from(bits) }
                        };
                        let mut value = expect(part(0), part(1), part(2));
                        if clamp {
                            value = if signed { value.clamp(-0x8000, 0x7fff) } else { value.clamp(0, 0xffff) };
                        }
                        assert_eq!((out.d >> (16 * half)) as u16, value as u16, "{arch:?} {name} {op_sel} {op_sel_hi} {clamp} {case:x?}");
                    }
                }
            }
        }
    }
}

/// f16 pairs with every kind of modifier, in every rounding mode, with and without denormals.
#[test]
fn halves() {
    let cases = pairs(F16, 600, 2);
    for arch in GFX9 {
        for name in ["v_pk_fma_f16", "v_pk_add_f16", "v_pk_mul_f16"] {
            for mode in [USUAL, USUAL | 4, USUAL | 8, USUAL | 12, USUAL & !0xc0] {
                let (round, keep) = (mode >> 2 & 3, mode & 0xc0 != 0);
                for (op_sel, op_sel_hi, neg, neg_hi) in [(0, 7, 0, 0), (6, 1, 0, 0), (0, 7, 5, 2), (3, 4, 7, 7)] {
                    let inst = Vop3 { op_sel, op_sel_hi, neg, abs: neg_hi, ..vop3(arch, name) };
                    for (case, out) in cases.iter().zip(run(arch, mode, inst, &cases)) {
                        for (half, selector, neg) in [(0, op_sel, neg), (1, op_sel_hi, neg_hi)] {
                            let flush = |bits: u64| if !keep && F16.is_denormal(bits) { F16.zero(F16.sign(bits)) } else { bits };
                            let [a, b, c] = std::array::from_fn(|n| {
                                flush(case[n] >> (16 * (selector >> n & 1)) & 0xffff ^ u64::from(neg >> n & 1) << 15)
                            });
                            let expected = match name {
                                "v_pk_fma_f16" => exact::fma(F16, round, a, b, c),
                                "v_pk_add_f16" => plus(F16, round, a, b),
                                _ => mul(F16, round, a, b),
                            };
                            if !keep && expected.is_some_and(|bits| F16.magnitude(bits) == 0x400) {
                                continue;
                            }
                            let got = out.d >> (16 * half) & 0xffff;
                            let fine = expected.map_or(F16.is_quiet(got), |bits| got == flush(bits));
                            assert!(fine, "{arch:?} {name} mode {mode:x} {op_sel} {op_sel_hi} {case:x?}: {got:x}, not {expected:x?}");
                        }
                    }
                }
            }
        }
        for (name, min) in [("v_pk_min_f16", true), ("v_pk_max_f16", false)] {
            let single = if min { "v_min_f16" } else { "v_max_f16" };
            for mode in [USUAL, USUAL & !0x200] {
                let outs = run(arch, mode, vop3(arch, name), &cases);
                for half in 0..2 {
                    let one: Vec<[u64; 3]> = cases.iter().map(|case| case.map(|bits| bits >> (16 * half) & 0xffff)).collect();
                    for ((out, one), case) in outs.iter().zip(run(arch, mode, vop3(arch, single), &one)).zip(&cases) {
                        assert_eq!(out.d >> (16 * half) & 0xffff, one.d & 0xffff, "{arch:?} {name} {case:x?}");
                    }
                }
            }
        }
    }
}

/// Sums in 32 bits; the clamp bit saturates.
#[test]
fn dot_products() {
    let mut numbers = Numbers(4);
    let mut cases: Vec<[u64; 3]> = (0..500).map(|_| std::array::from_fn(|_| numbers.next() & 0xffff_ffff)).collect();
    cases.extend(grid(
        &[0, 0x7f7f_7f7f, 0x8080_8080, 0x7fff_7fff, 0x8000_8000, 0x7777_7777, 0x8888_8888, 0xffff_ffff, 0x7fff_ffff, 0x8000_0000],
        3,
    ));
    for arch in GFX9 {
        for (name, signed, bits) in [
            ("v_dot2_i32_i16", true, 16),
            ("v_dot2_u32_u16", false, 16),
            ("v_dot4_i32_i8", true, 8),
            ("v_dot4_u32_u8", false, 8),
            ("v_dot8_i32_i4", true, 4),
            ("v_dot8_u32_u4", false, 4),
        ] {
            for clamp in [false, true] {
                let inst = Vop3 { clamp, ..vop3(arch, name) };
                for (case, out) in cases.iter().zip(run(arch, USUAL, inst, &cases)) {
                    let expected = dot(*case, signed, bits, clamp);
                    assert_eq!(out.d as u32, expected, "{arch:?} {name} {clamp} {case:x?}");
                }
            }
        }
        for (name, bits) in [("v_dot2c_i32_i16", 16), ("v_dot4c_i32_i8", 8), ("v_dot8c_i32_i4", 4)] {
            if !having(name).contains(&arch) {
                continue;
            }
            let laid: Vec<[u64; 4]> = cases.iter().map(|&[a, b, c]| [a, b, 0, c]).collect();
            let words = [vop32(arch, name, 2, 256 + 10, 20)];
            for (case, out) in cases.iter().zip(run_with(arch, USUAL, &words, &laid, false)) {
                assert_eq!(out.d as u32, dot(*case, true, bits, false), "{arch:?} {name} {case:x?}");
            }
        }
        // Of halves: only sums that every order gives; the intermediate precision is not documented.
        for (a, b, c, expected) in
            [([1.0, 2.0], [3.0, 4.0], 5.0, 16.0f32), ([-1.5, 0.5], [2.0, 8.0], 0.25, 1.25), ([0.0, 0.0], [1.0, 1.0], -1.0, -1.0)]
        {
            let pack = |[x, y]: [f64; 2]| {
                let half = |x: f64| if x == 0.0 { 0 } else { Exact::of(F64, x.to_bits()).round(F16, NEAREST) };
                half(x) | half(y) << 16
            };
            let case = [pack(a), pack(b), u64::from((c as f32).to_bits())];
            let out = run(arch, USUAL, vop3(arch, "v_dot2_f32_f16"), &[case])[0];
            assert_eq!(f32::from_bits(out.d as u32), expected);
            if having("v_dot2c_f32_f16").contains(&arch) {
                let words = [vop32(arch, "v_dot2c_f32_f16", 2, 256 + 10, 20)];
                let out = run_with(arch, USUAL, &words, &[[case[0], case[1], 0, case[2]]], false)[0];
                assert_eq!(f32::from_bits(out.d as u32), expected);
            }
        }
        // Infinities and NaNs, and halves that are denormal: 2^-24 squared twice over is 2^-47.
        for (a, b, c, expected) in [
            (0x3c00_7c00u64, 0x3c00_3c00, 0u64, Some(0x7f80_0000u32)),
            (0x3c00_7c00, 0x3c00_0000, 0, None),
            (0xfc00_7c00, 0x3c00_3c00, 0, None),
            (0x3c00_7c00, 0x3c00_3c00, 0xff80_0000, None),
            (0x3c00_3c00, 0x3c00_3c00, 0x7f80_0000, Some(0x7f80_0000)),
            (0x3c00_7e00, 0x3c00_3c00, 0, None),
            (0x3c00_3c00, 0x7c01_3c00, 0, None),
            (0x3c00_3c00, 0x3c00_3c00, 0x7fc0_0000, None),
            (0x0001_0001, 0x0001_0001, 0, Some(0x2800_0000)),
            (0x7bff_7bff, 0x7bff_7bff, 0x7f7f_ffff, Some(0x7f7f_ffff)),
            (0, 0, 0, Some(0)),
        ] {
            let mut outs = vec![run(arch, USUAL, vop3(arch, "v_dot2_f32_f16"), &[[a, b, c]])[0]];
            if having("v_dot2c_f32_f16").contains(&arch) {
                let words = [vop32(arch, "v_dot2c_f32_f16", 2, 256 + 10, 20)];
                outs.push(run_with(arch, USUAL, &words, &[[a, b, 0, c]], false)[0]);
            }
            for got in outs.into_iter().map(|out| out.d & 0xffff_ffff) {
                let fine = expected.map_or(F32.is_quiet(got), |bits| got == u64::from(bits));
                assert!(fine, "{arch:?} {a:x} {b:x} {c:x}: {got:x}, not {expected:x?}");
            }
        }
    }
}

/// `v_fma_mix*` of everything: zeros, denormals, infinities and NaNs of both widths.
#[test]
fn mixed_precision_edges() {
    let (singles, halves) = (F32.edges(), F16.edges());
    let mut numbers = Numbers(14);
    let mut pick = |from: &[u64]| from[(numbers.next() % from.len() as u64) as usize];
    for arch in GFX9 {
        for name in ["v_fma_mix_f32", "v_fma_mixlo_f16", "v_fma_mixhi_f16"] {
            for op_sel_hi in 0..8u32 {
                let cases: Vec<[u64; 3]> =
                    (0..256).map(|_| std::array::from_fn(|n| pick(if op_sel_hi >> n & 1 != 0 { &halves } else { &singles }))).collect();
                let inst = Vop3 { op_sel_hi, ..vop3(arch, name) };
                for (case, out) in cases.iter().zip(run(arch, USUAL, inst, &cases)) {
                    let [a, b, c] = std::array::from_fn(|n| match case[n] {
                        bits if op_sel_hi >> n & 1 == 0 => bits,
                        bits if F16.is_nan(bits) => 0x7fc0_0000,
                        bits if F16.is_inf(bits) => F32.infinity(F16.sign(bits)),
                        bits => Exact::of(F16, bits).round(F32, NEAREST),
                    });
                    let sum = exact::fma(F32, NEAREST, a, b, c);
                    let (kind, got) = match name {
                        "v_fma_mix_f32" => (F32, out.d & 0xffff_ffff),
                        "v_fma_mixlo_f16" => (F16, out.d & 0xffff),
                        _ => (F16, out.d >> 16 & 0xffff),
                    };
                    let expected = sum.map(|bits| match kind == F16 {
                        true if F32.is_inf(bits) => F16.infinity(F32.sign(bits)),
                        true => Exact::of(F32, bits).round(F16, NEAREST),
                        false => bits,
                    });
                    let fine = expected.map_or(kind.is_quiet(got), |bits| got == bits);
                    assert!(fine, "{arch:?} {name} {op_sel_hi} {case:x?}: {got:x}, not {expected:x?}");
                }
            }
        }
    }
}

fn dot(case: [u64; 3], signed: bool, bits: u32, clamp: bool) -> u32 {
    let part = |value: u64, n: u32| {
        let field = (value >> (bits * n)) as i64 & ((1 << bits) - 1);
        if signed && field >> (bits - 1) != 0 { field - (1 << bits) } else { field }
    };
    let addend = if signed { i64::from(case[2] as u32 as i32) } else { case[2] as i64 };
    let sum = (0..32 / bits).fold(addend, |sum, n| sum + part(case[0], n) * part(case[1], n));
    match (clamp, signed) {
        (false, _) => sum as u32,
        (true, true) => sum.clamp(i32::MIN.into(), i32::MAX.into()) as u32,
        (true, false) => sum.clamp(0, u32::MAX.into()) as u32,
    }
}

/// `v_fma_mix*`: `op_sel_hi` says f16, `op_sel` which half, `neg_hi` is the absolute value. The f16 forms convert the f32 result.
#[test]
fn mixed_precision() {
    let mut numbers = Numbers(12);
    let cases: Vec<[u64; 3]> = (0..600)
        .map(|_| {
            std::array::from_fn(|_| {
                let half = |bits: u64| 0x3000 + bits % 0x2000 | (bits >> 20 & 1) << 15;
                half(numbers.next()) | half(numbers.next()) << 16
            })
        })
        .collect();
    for arch in GFX9 {
        for (name, keep) in [("v_fma_mix_f32", 0u64), ("v_fma_mixlo_f16", 0xffff_0000), ("v_fma_mixhi_f16", 0xffff)] {
            for (op_sel, op_sel_hi, neg, abs) in [(0, 0, 0, 0), (0, 7, 0, 0), (7, 7, 0, 0), (2, 3, 0, 0), (1, 5, 6, 3), (0, 0, 5, 7)] {
                for round in [NEAREST, UP, ZERO] {
                    let inst = Vop3 { op_sel, op_sel_hi, neg, abs, ..vop3(arch, name) };
                    for (case, out) in cases.iter().zip(run(arch, USUAL | round | round << 2, inst, &cases)) {
                        let [a, b, c] = std::array::from_fn(|n| {
                            let bits = match (op_sel_hi >> n & 1, op_sel >> n & 1) {
                                (0, _) => case[n],
                                (_, half) => Exact::of(F16, case[n] >> (16 * half) & 0xffff).round(F32, NEAREST),
                            };
                            let bits = if abs >> n & 1 != 0 { bits & 0x7fff_ffff } else { bits };
                            bits ^ u64::from(neg >> n & 1) << 31
                        });
                        let sum = exact::fma(F32, round, a, b, c).unwrap();
                        let half = || Exact::of(F32, sum).round(F16, round);
                        let expected = match name {
                            "v_fma_mix_f32" => sum,
                            "v_fma_mixlo_f16" => OLD & keep | half(),
                            _ => OLD & keep | half() << 16,
                        };
                        assert_eq!(out.d as u32, expected as u32, "{arch:?} {name} {op_sel} {op_sel_hi} {neg} {abs} {case:x?}");
                    }
                }
            }
        }
    }
}

/// Pairs of f32 in two registers each.
#[test]
fn singles() {
    let mut numbers = Numbers(8);
    let edges = F32.edges();
    for arch in [Arch::Gfx90a, Arch::Gfx942] {
        for name in ["v_pk_fma_f32", "v_pk_mul_f32", "v_pk_add_f32"] {
            for mode in [USUAL, USUAL | 1, USUAL | 2, USUAL | 3, USUAL & !0x30] {
                for (op_sel, op_sel_hi, neg, neg_hi) in [(0, 7, 0, 0), (7, 0, 0, 0), (1, 6, 0, 0), (0, 7, 3, 5)] {
                    let mut one = |_| edges[(numbers.next() % edges.len() as u64) as usize];
                    let cases: Vec<[u64; 3]> = (0..192).map(|_| std::array::from_fn(|_| one(0) | one(1) << 32)).collect();
                    let inst = Vop3 { op_sel, op_sel_hi, neg, abs: neg_hi, ..vop3(arch, name) };
                    for (case, out) in cases.iter().zip(run(arch, mode, inst, &cases)) {
                        for (half, selector, neg) in [(0, op_sel, neg), (1, op_sel_hi, neg_hi)] {
                            let keep = mode & 0x30 != 0;
                            let flush = |bits: u64| if !keep && F32.is_denormal(bits) { F32.zero(F32.sign(bits)) } else { bits };
                            let [a, b, c] = std::array::from_fn(|n| {
                                flush(case[n] >> (32 * (selector >> n & 1)) & 0xffff_ffff ^ u64::from(neg >> n & 1) << 31)
                            });
                            let expected = match name {
                                "v_pk_fma_f32" => exact::fma(F32, mode & 3, a, b, c),
                                "v_pk_add_f32" => plus(F32, mode & 3, a, b),
                                _ => mul(F32, mode & 3, a, b),
                            };
                            if !keep && expected.is_some_and(|bits| F32.magnitude(bits) == 0x80_0000) {
                                continue;
                            }
                            let got = out.d >> (32 * half) & 0xffff_ffff;
                            let fine = expected.map_or(F32.is_quiet(got), |bits| got == flush(bits));
                            assert!(fine, "{arch:?} {name} mode {mode:x} {op_sel} {op_sel_hi} {case:x?}: {got:x}, not {expected:x?}");
                        }
                    }
                }
            }
        }
        // `v_pk_mov_b32`: `op_sel` picks the register of each source.
        for op_sel in 0..4u32 {
            let inst = Vop3 { op_sel, ..vop3(arch, "v_pk_mov_b32") };
            let out = run(arch, USUAL, inst, &[[0x1111_1111_2222_2222, 0x3333_3333_4444_4444, 0]])[0];
            let low = if op_sel & 1 != 0 { 0x1111_1111 } else { 0x2222_2222 };
            let high = if op_sel & 2 != 0 { 0x3333_3333u64 } else { 0x4444_4444 };
            assert_eq!(out.d, low | high << 32, "{op_sel}");
        }
    }
}

/// `v_pk_fmac_f16` and accumulation registers.
#[test]
fn accumulators() {
    for arch in having("v_pk_fmac_f16") {
        let words = [vop32(arch, "v_pk_fmac_f16", 2, 256 + 10, 20)];
        let out = run_with(arch, USUAL, &words, &[[0x4000_3c00, 0x4200_4400, 0, 0x3c00_3800]], false)[0];
        // 1 * 4 + 0.5 and 2 * 3 + 1.
        assert_eq!(out.d as u32, 0x4700_4480);
        let cases = pairs(F16, 600, 3);
        let laid: Vec<[u64; 4]> = cases.iter().map(|&[a, b, c]| [a, b, 0, c]).collect();
        for (case, out) in cases.iter().zip(run_with(arch, USUAL, &words, &laid, false)) {
            for half in 0..2 {
                let [a, b, c] = case.map(|bits| bits >> (16 * half) & 0xffff);
                let (got, expected) = (out.d >> (16 * half) & 0xffff, exact::fma(F16, NEAREST, a, b, c));
                assert!(expected.map_or(F16.is_quiet(got), |bits| got == bits), "{arch:?} {case:x?}: {got:x}, not {expected:x?}");
            }
        }
        let mut bench = TestWave::new(arch);
        bench.set_v(10, std::array::from_fn(|lane| lane as u32 * 3));
        bench.set_exec(0xff);
        bench.run(&Vop3 { dst: 7, src: [V + 10, 0, 0], ..vop3(arch, "v_accvgpr_write_b32") }.words()).unwrap();
        bench.set_exec(u64::MAX);
        bench.run(&Vop3 { src: [V + 7, 0, 0], ..vop3(arch, "v_accvgpr_read_b32") }.words()).unwrap();
        assert_eq!((bench.v(2)[7], bench.v(2)[8], bench.v(256 + 7)[7]), (21, 0, 21));
        // From one accumulation register to another, lanes that are off left alone.
        if arch != Arch::Gfx908 {
            bench.set_v(256 + 9, [5; 64]);
            bench.set_exec(0xf0);
            bench.run(&[vop32(arch, "v_accvgpr_mov_b32", 9, 256 + 7, 0)]).unwrap();
            assert_eq!(bench.v(256 + 9), std::array::from_fn(|lane| if (4..8).contains(&lane) { 3 * lane as u32 } else { 5 }), "{arch:?}");
        }
    }
}
