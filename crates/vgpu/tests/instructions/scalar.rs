//! Scalar instructions with `scc`: AMD's pseudocode of SOP1, SOP2, SOPC and SOPK.

use super::asm::*;
use warpwave_vgpu::Arch;
use warpwave_vgpu::exec::TestWave;

const EDGES: [u32; 13] = [0, 1, 5, 31, 32, 63, 0x7f, 0x8080, 0x7fff_ffff, 0x8000_0000, 0xffff_8000, 0xffff_fffe, 0xffff_ffff];

fn wide() -> Vec<u64> {
    vec![0, 1, 31, 33, 63, 64, 0xff00_ff00_0f0f_1234, 0x7fff_ffff_ffff_ffff, 1 << 63, u64::MAX, 0xffff_ffff, 0xffff_ffff_0000_0000]
}

/// Sources in `s[4:5]` and `s[8:9]`, the destination `s[20:21]`.
fn bench(arch: Arch, a: u64, b: u64, d: u64, scc: bool) -> TestWave {
    let mut bench = TestWave::new(arch);
    for (register, value) in [(4, a), (8, b), (20, d)] {
        bench.set_s(register, value as u32);
        bench.set_s(register + 1, (value >> 32) as u32);
    }
    bench.set_scc(scc);
    bench
}

fn out(bench: &TestWave) -> u64 {
    u64::from(bench.s(20)) | u64::from(bench.s(21)) << 32
}

/// The new `scc`: a value, or as it was.
type Answer = (u32, Option<bool>);

#[test]
fn two_sources() {
    type Expect = fn(u32, u32, bool) -> Answer;
    fn logic(value: u32) -> Answer {
        (value, Some(value != 0))
    }
    fn field(value: u32, width: u32) -> u32 {
        if width >= 32 { value } else { value & ((1 << width) - 1) }
    }
    let table: [(&str, Expect); 38] = [
        ("s_add_u32", |a, b, _| (a.wrapping_add(b), Some(u64::from(a) + u64::from(b) >> 32 != 0))),
        ("s_sub_u32", |a, b, _| (a.wrapping_sub(b), Some(b > a))),
        ("s_add_i32", |a, b, _| (a.wrapping_add(b), Some((a as i32).checked_add(b as i32).is_none()))),
        ("s_sub_i32", |a, b, _| (a.wrapping_sub(b), Some((a as i32).checked_sub(b as i32).is_none()))),
        ("s_addc_u32", |a, b, c| {
            let sum = u64::from(a) + u64::from(b) + u64::from(c);
            (sum as u32, Some(sum >> 32 != 0))
        }),
        ("s_subb_u32", |a, b, c| (a.wrapping_sub(b).wrapping_sub(c.into()), Some(u64::from(b) + u64::from(c) > u64::from(a)))),
        ("s_min_i32", |a, b, _| ((a as i32).min(b as i32) as u32, Some((a as i32) < b as i32))),
        ("s_min_u32", |a, b, _| (a.min(b), Some(a < b))),
        ("s_max_i32", |a, b, _| ((a as i32).max(b as i32) as u32, Some(a as i32 >= b as i32))),
        ("s_max_u32", |a, b, _| (a.max(b), Some(a >= b))),
        ("s_cselect_b32", |a, b, c| (if c { a } else { b }, None)),
        ("s_and_b32", |a, b, _| logic(a & b)),
        ("s_or_b32", |a, b, _| logic(a | b)),
        ("s_xor_b32", |a, b, _| logic(a ^ b)),
        ("s_andn2_b32", |a, b, _| logic(a & !b)),
        ("s_orn2_b32", |a, b, _| logic(a | !b)),
        ("s_nand_b32", |a, b, _| logic(!(a & b))),
        ("s_nor_b32", |a, b, _| logic(!(a | b))),
        ("s_xnor_b32", |a, b, _| logic(!(a ^ b))),
        ("s_lshl_b32", |a, b, _| logic(a << (b & 31))),
        ("s_lshr_b32", |a, b, _| logic(a >> (b & 31))),
        ("s_ashr_i32", |a, b, _| logic((a as i32 >> (b & 31)) as u32)),
        ("s_bfm_b32", |a, b, _| (((1u32 << (a & 31)) - 1) << (b & 31), None)),
        ("s_mul_i32", |a, b, _| (a.wrapping_mul(b), None)),
        ("s_mul_hi_u32", |a, b, _| ((u64::from(a) * u64::from(b) >> 32) as u32, None)),
        ("s_mul_hi_i32", |a, b, _| ((i64::from(a as i32) * i64::from(b as i32) >> 32) as u32, None)),
        ("s_bfe_u32", |a, b, _| logic(field(a >> (b & 31), b >> 16 & 0x7f))),
        ("s_bfe_i32", |a, b, _| {
            let (value, width) = ((a as i32 >> (b & 31)) as u32, b >> 16 & 0x7f);
            logic(match width {
                0 => 0,
                1..=31 => ((field(value, width) << (32 - width)) as i32 >> (32 - width)) as u32,
                _ => value,
            })
        }),
        ("s_absdiff_i32", |a, b, _| {
            let difference = (a as i32).wrapping_sub(b as i32);
            logic(if difference < 0 { difference.wrapping_neg() } else { difference } as u32)
        }),
        ("s_lshl1_add_u32", |a, b, _| add_shifted(a, b, 1)),
        ("s_lshl2_add_u32", |a, b, _| add_shifted(a, b, 2)),
        ("s_lshl3_add_u32", |a, b, _| add_shifted(a, b, 3)),
        ("s_lshl4_add_u32", |a, b, _| add_shifted(a, b, 4)),
        ("s_pack_ll_b32_b16", |a, b, _| (a & 0xffff | b << 16, None)),
        ("s_pack_lh_b32_b16", |a, b, _| (a & 0xffff | b & 0xffff_0000, None)),
        ("s_pack_hh_b32_b16", |a, b, _| (a >> 16 | b & 0xffff_0000, None)),
        ("s_bfe_u32", |a, b, _| logic(field(a >> (b & 31), b >> 16 & 0x7f))),
        ("s_min_u32", |a, b, _| (a.min(b), Some(a < b))),
    ];
    fn add_shifted(a: u32, b: u32, by: u32) -> Answer {
        let sum = (u64::from(a) << by) + u64::from(b);
        (sum as u32, Some(sum >> 32 != 0))
    }
    for arch in GFX9 {
        for (name, expect) in table {
            let mut values = EDGES.to_vec();
            values.extend([0x0004_0000, 0x0008_0004, 0x0020_0000, 0x0021_0003, 0x001f_0001, 0x0001_001f]);
            for &a in &values {
                for &b in &values {
                    for scc in [false, true] {
                        let mut bench = bench(arch, a.into(), b.into(), 0, scc);
                        bench.run(&[sop2(arch, name, 20, 4, 8)]).unwrap();
                        let (value, new) = expect(a, b, scc);
                        assert_eq!((bench.s(20), bench.scc()), (value, new.unwrap_or(scc)), "{name} {a:x} {b:x} {scc}");
                    }
                }
            }
        }
    }
}

#[test]
fn sixty_four_bits() {
    type Expect = fn(u64, u64, bool) -> (u64, Option<bool>);
    fn logic(value: u64) -> (u64, Option<bool>) {
        (value, Some(value != 0))
    }
    let table: [(&str, Expect); 15] = [
        ("s_cselect_b64", |a, b, c| (if c { a } else { b }, None)),
        ("s_and_b64", |a, b, _| logic(a & b)),
        ("s_or_b64", |a, b, _| logic(a | b)),
        ("s_xor_b64", |a, b, _| logic(a ^ b)),
        ("s_andn2_b64", |a, b, _| logic(a & !b)),
        ("s_orn2_b64", |a, b, _| logic(a | !b)),
        ("s_nand_b64", |a, b, _| logic(!(a & b))),
        ("s_nor_b64", |a, b, _| logic(!(a | b))),
        ("s_xnor_b64", |a, b, _| logic(!(a ^ b))),
        ("s_lshl_b64", |a, b, _| logic(a << (b & 63))),
        ("s_lshr_b64", |a, b, _| logic(a >> (b & 63))),
        ("s_ashr_i64", |a, b, _| logic((a as i64 >> (b & 63)) as u64)),
        ("s_bfm_b64", |a, b, _| (((1u64 << (a & 63)) - 1) << (b & 63), None)),
        ("s_bfe_u64", |a, b, _| {
            let width = b as u32 >> 16 & 0x7f;
            logic(a >> (b & 63) & if width >= 64 { u64::MAX } else { (1 << width) - 1 })
        }),
        ("s_bfe_i64", |a, b, _| {
            let (value, width) = (a as i64 >> (b & 63), b as u32 >> 16 & 0x7f);
            logic(match width {
                0 => 0,
                1..=63 => (value << (64 - width) >> (64 - width)) as u64,
                _ => value as u64,
            })
        }),
    ];
    let mut values = wide();
    values.extend([0x0020_0008, 0x0040_0000, 0x0001_003f, 0x003f_0001]);
    for arch in GFX9 {
        for (name, expect) in table {
            for &a in &values {
                for &b in &values {
                    for scc in [false, true] {
                        let mut bench = bench(arch, a, b, 0, scc);
                        bench.run(&[sop2(arch, name, 20, 4, 8)]).unwrap();
                        let (value, new) = expect(a, b, scc);
                        assert_eq!((out(&bench), bench.scc()), (value, new.unwrap_or(scc)), "{name} {a:x} {b:x} {scc}");
                    }
                }
            }
        }
    }
}

#[test]
fn one_source() {
    /// From the source, the old destination and `scc`: the destination, whether it is 64 bits, and `scc`.
    type Expect = fn(u64, u64, bool) -> (u64, bool, Option<bool>);
    fn quads(a: u64) -> u64 {
        (0..16).fold(0, |sum, n| sum | u64::from(a >> (4 * n) & 15 != 0) << n)
    }
    fn spread(a: u64) -> u64 {
        (0..16).fold(0, |sum, n| sum | if a >> (4 * n) & 15 != 0 { 15 << (4 * n) } else { 0 })
    }
    fn first(found: Option<u32>) -> u64 {
        u64::from(found.unwrap_or(u32::MAX))
    }
    let table: [(&str, Expect); 38] = [
        ("s_mov_b32", |a, _, _| (a as u32 as u64, false, None)),
        ("s_mov_b64", |a, _, _| (a, true, None)),
        ("s_cmov_b32", |a, d, c| (if c { a } else { d } as u32 as u64, false, None)),
        ("s_cmov_b64", |a, d, c| (if c { a } else { d }, true, None)),
        ("s_not_b32", |a, _, _| (!a as u32 as u64, false, Some(!a as u32 != 0))),
        ("s_not_b64", |a, _, _| (!a, true, Some(!a != 0))),
        ("s_wqm_b32", |a, _, _| (spread(a as u32 as u64), false, Some(a as u32 != 0))),
        ("s_wqm_b64", |a, _, _| (spread(a), true, Some(a != 0))),
        ("s_brev_b32", |a, _, _| ((a as u32).reverse_bits().into(), false, None)),
        ("s_brev_b64", |a, _, _| (a.reverse_bits(), true, None)),
        ("s_bcnt0_i32_b32", |a, _, _| ((a as u32).count_zeros().into(), false, Some(a as u32 != u32::MAX))),
        ("s_bcnt0_i32_b64", |a, _, _| (a.count_zeros().into(), false, Some(a != u64::MAX))),
        ("s_bcnt1_i32_b32", |a, _, _| ((a as u32).count_ones().into(), false, Some(a as u32 != 0))),
        ("s_bcnt1_i32_b64", |a, _, _| (a.count_ones().into(), false, Some(a != 0))),
        ("s_ff0_i32_b32", |a, _, _| (first((0..32).find(|n| a >> n & 1 == 0)), false, None)),
        ("s_ff0_i32_b64", |a, _, _| (first((0..64).find(|n| a >> n & 1 == 0)), false, None)),
        ("s_ff1_i32_b32", |a, _, _| (first((0..32).find(|n| a >> n & 1 != 0)), false, None)),
        ("s_ff1_i32_b64", |a, _, _| (first((0..64).find(|n| a >> n & 1 != 0)), false, None)),
        ("s_flbit_i32_b32", |a, _, _| (first((0..32).find(|n| a >> (31 - n) & 1 != 0)), false, None)),
        ("s_flbit_i32_b64", |a, _, _| (first((0..64).find(|n| a >> (63 - n) & 1 != 0)), false, None)),
        ("s_flbit_i32", |a, _, _| (first((1..32).find(|n| a >> (31 - n) & 1 != a >> 31 & 1)), false, None)),
        ("s_flbit_i32_i64", |a, _, _| (first((1..64).find(|n| a >> (63 - n) & 1 != a >> 63)), false, None)),
        ("s_sext_i32_i8", |a, _, _| (a as i8 as i32 as u32 as u64, false, None)),
        ("s_sext_i32_i16", |a, _, _| (a as i16 as i32 as u32 as u64, false, None)),
        ("s_bitset0_b32", |a, d, _| ((d as u32 & !(1 << (a & 31))).into(), false, None)),
        ("s_bitset0_b64", |a, d, _| (d & !(1 << (a & 63)), true, None)),
        ("s_bitset1_b32", |a, d, _| ((d as u32 | 1 << (a & 31)).into(), false, None)),
        ("s_bitset1_b64", |a, d, _| (d | 1 << (a & 63), true, None)),
        ("s_quadmask_b32", |a, _, _| (quads(a as u32 as u64), false, Some(a as u32 != 0))),
        ("s_quadmask_b64", |a, _, _| (quads(a), true, Some(a != 0))),
        ("s_abs_i32", |a, _, _| ((a as u32 as i32).wrapping_abs() as u32 as u64, false, Some(a as u32 != 0))),
        ("s_bitreplicate_b64_b32", |a, _, _| ((0..32).fold(0, |sum, n| sum | (a >> n & 1) * 3 << (2 * n)), true, None)),
        ("s_mov_b32", |a, _, _| (a as u32 as u64, false, None)),
        ("s_mov_b64", |a, _, _| (a, true, None)),
        ("s_not_b64", |a, _, _| (!a, true, Some(!a != 0))),
        ("s_not_b32", |a, _, _| (!a as u32 as u64, false, Some(!a as u32 != 0))),
        ("s_brev_b64", |a, _, _| (a.reverse_bits(), true, None)),
        ("s_brev_b32", |a, _, _| ((a as u32).reverse_bits().into(), false, None)),
    ];
    let mut values = wide();
    values.extend(EDGES.map(u64::from));
    for arch in GFX9 {
        for (name, expect) in table {
            for &a in &values {
                for d in [0, OLD] {
                    for scc in [false, true] {
                        let mut bench = bench(arch, a, 0, d, scc);
                        bench.run(&[sop1(arch, name, 20, 4)]).unwrap();
                        let (value, both, new) = expect(a, d, scc);
                        let expected = if both { value } else { value | d & !0xffff_ffff };
                        assert_eq!((out(&bench), bench.scc()), (expected, new.unwrap_or(scc)), "{name} {a:x} {d:x} {scc}");
                    }
                }
            }
        }
    }
}

#[test]
fn saved_masks() {
    type Expect = fn(u64, u64) -> u64;
    let table: [(&str, Expect, bool); 12] = [
        ("s_and_saveexec_b64", |a, e| a & e, true),
        ("s_or_saveexec_b64", |a, e| a | e, true),
        ("s_xor_saveexec_b64", |a, e| a ^ e, true),
        ("s_andn2_saveexec_b64", |a, e| a & !e, true),
        ("s_orn2_saveexec_b64", |a, e| a | !e, true),
        ("s_nand_saveexec_b64", |a, e| !(a & e), true),
        ("s_nor_saveexec_b64", |a, e| !(a | e), true),
        ("s_xnor_saveexec_b64", |a, e| !(a ^ e), true),
        ("s_andn1_saveexec_b64", |a, e| !a & e, true),
        ("s_orn1_saveexec_b64", |a, e| !a | e, true),
        ("s_andn1_wrexec_b64", |a, e| !a & e, false),
        ("s_andn2_wrexec_b64", |a, e| a & !e, false),
    ];
    for arch in GFX9 {
        for (name, expect, saves) in table {
            for a in wide() {
                for exec in [0, 1, u64::MAX, 0x00ff_00ff_f0f0_5555] {
                    let mut bench = bench(arch, a, 0, 0, false);
                    bench.set_exec(exec);
                    bench.run(&[sop1(arch, name, 20, 4)]).unwrap();
                    let new = expect(a, exec);
                    let left = u64::from(bench.s(126)) | u64::from(bench.s(127)) << 32;
                    assert_eq!((left, out(&bench), bench.scc()), (new, if saves { exec } else { new }, new != 0), "{name} {a:x} {exec:x}");
                }
            }
        }
        // The destination may be the source: it is read first.
        let mut bench = bench(arch, 0, 0, 0xf0, false);
        bench.set_exec(0x3c);
        bench.run(&[sop1(arch, "s_and_saveexec_b64", 20, 20)]).unwrap();
        assert_eq!((bench.s(126), bench.s(20)), (0x30, 0x3c));
    }
}

#[test]
fn comparisons() {
    type Expect = fn(u32, u32) -> bool;
    let table: [(&str, Expect); 6] = [
        ("eq", |a, b| a == b),
        ("lg", |a, b| a != b),
        ("gt", |a, b| a > b),
        ("ge", |a, b| a >= b),
        ("lt", |a, b| a < b),
        ("le", |a, b| a <= b),
    ];
    for arch in GFX9 {
        for &a in &EDGES {
            for &b in &EDGES {
                for (name, expect) in table {
                    for (ty, flip) in [("u32", 0), ("i32", 0x8000_0000)] {
                        let mut bench = bench(arch, a.into(), b.into(), a.into(), false);
                        bench.run(&[sopc(arch, &format!("s_cmp_{name}_{ty}"), 4, 8)]).unwrap();
                        assert_eq!(bench.scc(), expect(a ^ flip, b ^ flip), "s_cmp_{name}_{ty} {a:x} {b:x}");
                        // 16 bits, extended as the type says.
                        let k = if flip == 0 { b & 0xffff } else { b as u16 as i16 as i32 as u32 };
                        bench.run(&[sopk(arch, &format!("s_cmpk_{name}_{ty}"), 20, b as u16)]).unwrap();
                        assert_eq!(bench.scc(), expect(a ^ flip, k ^ flip), "s_cmpk_{name}_{ty} {a:x} {b:x}");
                    }
                }
                let mut bench = bench(arch, u64::from(a) << 32 | 5, u64::from(b) << 32 | 5, 0, false);
                bench.run(&[sopc(arch, "s_cmp_eq_u64", 4, 8)]).unwrap();
                assert_eq!(bench.scc(), a == b);
                bench.run(&[sopc(arch, "s_cmp_lg_u64", 4, 8)]).unwrap();
                assert_eq!(bench.scc(), a != b);
                let wide = u64::from(a) << 32 | 5;
                for (name, value, expected) in [
                    ("s_bitcmp0_b32", 5u64, 5u64 >> (b & 31) & 1 == 0),
                    ("s_bitcmp1_b32", 5, 5u64 >> (b & 31) & 1 != 0),
                    ("s_bitcmp0_b64", wide, wide >> (b & 63) & 1 == 0),
                    ("s_bitcmp1_b64", wide, wide >> (b & 63) & 1 != 0),
                ] {
                    let mut bench = self::bench(arch, value, b.into(), 0, !expected);
                    bench.run(&[sopc(arch, name, 4, 8)]).unwrap();
                    assert_eq!(bench.scc(), expected, "{name} {value:x} {b:x}");
                }
            }
        }
    }
}

#[test]
fn immediates() {
    for arch in GFX9 {
        for &d in &EDGES {
            for imm in [0u16, 1, 0x7fff, 0x8000, 0xffff] {
                let k = imm as i16 as i32;
                for scc in [false, true] {
                    let run = |name: &str| {
                        let mut bench = bench(arch, 0, 0, d.into(), scc);
                        bench.run(&[sopk(arch, name, 20, imm)]).unwrap();
                        (bench.s(20), bench.scc())
                    };
                    assert_eq!(run("s_movk_i32"), (k as u32, scc));
                    assert_eq!(run("s_cmovk_i32"), (if scc { k as u32 } else { d }, scc));
                    assert_eq!(run("s_addk_i32"), (d.wrapping_add(k as u32), (d as i32).checked_add(k).is_none()), "{d:x} {imm:x}");
                    assert_eq!(run("s_mulk_i32"), (d.wrapping_mul(k as u32), scc));
                }
            }
        }
    }
}

/// `MODE` is hardware register 1; the immediate holds its number, the offset and the size less 1.
#[test]
fn mode_register() {
    for arch in GFX9 {
        let field = |offset: u16, size: u16| 1 | offset << 6 | (size - 1) << 11;
        let mut bench = bench(arch, 0, 0, 0, false);
        bench.set_mode(USUAL);
        bench.run(&[sopk(arch, "s_getreg_b32", 20, field(0, 10))]).unwrap();
        assert_eq!(bench.s(20), USUAL);
        bench.run(&[sopk(arch, "s_getreg_b32", 20, field(4, 4))]).unwrap();
        assert_eq!(bench.s(20), 0xf);
        // Rounding of 32 bits up, by a register; only the field changes.
        bench.set_s(22, 0xffff_fff1);
        bench.run(&[sopk(arch, "s_setreg_b32", 22, field(0, 2))]).unwrap();
        bench.run(&[sopk(arch, "s_getreg_b32", 20, field(0, 10))]).unwrap();
        assert_eq!(bench.s(20), USUAL | 1);
        bench.set_v(10, [1f32.to_bits(); 64]);
        bench.set_v(20, [0x2000_0000; 64]);
        bench.run(&vop3(arch, "v_add_f32").words()).unwrap();
        assert_eq!(bench.v(2)[5], 0x3f80_0001);
        // And back, by a literal.
        bench.run(&[sopk(arch, "s_setreg_imm32_b32", 0, field(0, 4)), 0]).unwrap();
        bench.run(&vop3(arch, "v_add_f32").words()).unwrap();
        assert_eq!(bench.v(2)[5], 0x3f80_0000);
    }
}

/// Relative registers.
#[test]
fn moves_by_m0() {
    for arch in GFX9 {
        let mut bench = bench(arch, 0x1111_2222_3333_4444, 0x5555_6666_7777_8888, 0, false);
        bench.set_s(124, 4);
        bench.run(&[sop1(arch, "s_movrels_b32", 20, 4)]).unwrap();
        assert_eq!(bench.s(20), 0x7777_8888);
        bench.run(&[sop1(arch, "s_movrels_b64", 20, 4)]).unwrap();
        assert_eq!(out(&bench), 0x5555_6666_7777_8888);
        bench.run(&[sop1(arch, "s_movreld_b32", 16, 4)]).unwrap();
        assert_eq!(bench.s(20), 0x3333_4444);
        bench.run(&[sop1(arch, "s_movreld_b64", 16, 4)]).unwrap();
        assert_eq!(out(&bench), 0x1111_2222_3333_4444);
    }
}
