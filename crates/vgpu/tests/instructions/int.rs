//! Integer and bit instructions: AMD's pseudocode of VOP1, VOP2 and VOP3.

use super::asm::*;

/// Where carries, signs, widths and shifts turn.
const EDGES: &[u64] = &[
    0,
    1,
    2,
    7,
    31,
    32,
    33,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0x8000,
    0xffff,
    0x7f_ffff,
    0x80_0000,
    0xff_ffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
];
/// For three sources: fewer, or the grid grows too large.
const FEW: &[u64] = &[0, 1, 4, 31, 32, 0x80ff, 0x80_7f01, 0x7fff_ffff, 0x8000_0000, 0xff00_ff80, 0xffff_ffff];

fn i24(x: u32) -> i64 {
    i64::from((x << 8) as i32 >> 8)
}

fn u24(x: u32) -> u64 {
    u64::from(x & 0xff_ffff)
}

#[test]
fn one_source() {
    check32("v_mov_b32", 1, EDGES, |a, _, _| a);
    check32("v_not_b32", 1, EDGES, |a, _, _| !a);
    check32("v_bfrev_b32", 1, EDGES, |a, _, _| (0..32).fold(0, |r, n| r | (a >> n & 1) << (31 - n)));
    check32("v_ffbh_u32", 1, EDGES, |a, _, _| (0..32).find(|n| a >> (31 - n) & 1 != 0).unwrap_or(u32::MAX));
    check32("v_ffbl_b32", 1, EDGES, |a, _, _| (0..32).find(|n| a >> n & 1 != 0).unwrap_or(u32::MAX));
    check32("v_ffbh_i32", 1, EDGES, |a, _, _| (1..32).find(|n| a >> (31 - n) & 1 != a >> 31).unwrap_or(u32::MAX));
    check32("v_sat_pk_u8_i16", 1, EDGES, |a, _, _| {
        let sat = |x: u32| i32::from(x as u16 as i16).clamp(0, 255) as u32;
        // 16 bits are written; what becomes of the rest is not in the pseudocode, see the upper-half test.
        sat(a) | sat(a >> 16) << 8
    });
}

#[test]
fn two_sources() {
    check32("v_add_u32", 2, EDGES, |a, b, _| a.wrapping_add(b));
    check32("v_sub_u32", 2, EDGES, |a, b, _| a.wrapping_sub(b));
    check32("v_subrev_u32", 2, EDGES, |a, b, _| b.wrapping_sub(a));
    check32("v_add_i32", 2, EDGES, |a, b, _| a.wrapping_add(b));
    check32("v_sub_i32", 2, EDGES, |a, b, _| a.wrapping_sub(b));
    check32("v_mul_i32_i24", 2, EDGES, |a, b, _| (i24(a) * i24(b)) as u32);
    check32("v_mul_hi_i32_i24", 2, EDGES, |a, b, _| (i24(a) * i24(b) >> 32) as u32);
    check32("v_mul_u32_u24", 2, EDGES, |a, b, _| (u24(a) * u24(b)) as u32);
    check32("v_mul_hi_u32_u24", 2, EDGES, |a, b, _| (u24(a) * u24(b) >> 32) as u32);
    check32("v_mul_lo_u32", 2, EDGES, |a, b, _| a.wrapping_mul(b));
    check32("v_mul_hi_u32", 2, EDGES, |a, b, _| (u64::from(a) * u64::from(b) >> 32) as u32);
    check32("v_mul_hi_i32", 2, EDGES, |a, b, _| (i64::from(a as i32) * i64::from(b as i32) >> 32) as u32);
    check32("v_min_i32", 2, EDGES, |a, b, _| (a as i32).min(b as i32) as u32);
    check32("v_max_i32", 2, EDGES, |a, b, _| (a as i32).max(b as i32) as u32);
    check32("v_min_u32", 2, EDGES, |a, b, _| a.min(b));
    check32("v_max_u32", 2, EDGES, |a, b, _| a.max(b));
    check32("v_lshrrev_b32", 2, EDGES, |a, b, _| b >> (a & 31));
    check32("v_ashrrev_i32", 2, EDGES, |a, b, _| (b as i32 >> (a & 31)) as u32);
    check32("v_lshlrev_b32", 2, EDGES, |a, b, _| b << (a & 31));
    check32("v_and_b32", 2, EDGES, |a, b, _| a & b);
    check32("v_or_b32", 2, EDGES, |a, b, _| a | b);
    check32("v_xor_b32", 2, EDGES, |a, b, _| a ^ b);
    check32("v_xnor_b32", 2, EDGES, |a, b, _| !(a ^ b));
    check32("v_bfm_b32", 2, EDGES, |a, b, _| ((1u32 << (a & 31)) - 1) << (b & 31));
    check32("v_bcnt_u32_b32", 2, EDGES, |a, b, _| b.wrapping_add(a.count_ones()));
    check32("v_cvt_pk_u16_u32", 2, EDGES, |a, b, _| a.min(0xffff) | b.min(0xffff) << 16);
    check32("v_cvt_pk_i16_i32", 2, EDGES, |a, b, _| {
        let sat = |x: u32| (x as i32).clamp(-0x8000, 0x7fff) as u32 & 0xffff;
        sat(a) | sat(b) << 16
    });
    check32("v_pack_b32_f16", 2, &[0, 0x3c00, 0xbc01, 0x7bff_3555], |a, b, _| a & 0xffff | b << 16);
}

#[test]
fn three_sources() {
    check32("v_mad_i32_i24", 3, FEW, |a, b, c| (i24(a) * i24(b)).wrapping_add(i64::from(c)) as u32);
    check32("v_mad_u32_u24", 3, FEW, |a, b, c| (u24(a) * u24(b)).wrapping_add(u64::from(c)) as u32);
    check32("v_bfe_u32", 3, FEW, |a, b, c| a >> (b & 31) & ((1u32 << (c & 31)) - 1));
    check32("v_bfe_i32", 3, FEW, |a, b, c| {
        let width = c & 31;
        let field = (a as i32 >> (b & 31)) as u32 & ((1u32 << width) - 1);
        if width == 0 { 0 } else { ((field << (32 - width)) as i32 >> (32 - width)) as u32 }
    });
    check32("v_bfi_b32", 3, FEW, |a, b, c| a & b | !a & c);
    check32("v_lerp_u8", 3, FEW, |a, b, c| {
        (0..4).fold(0, |sum, n| sum | ((a >> (8 * n) & 0xff) + (b >> (8 * n) & 0xff) + (c >> (8 * n) & 1)) / 2 << (8 * n))
    });
    check32("v_alignbit_b32", 3, FEW, |a, b, c| ((u64::from(a) << 32 | u64::from(b)) >> (c & 31)) as u32);
    check32("v_alignbyte_b32", 3, FEW, |a, b, c| ((u64::from(a) << 32 | u64::from(b)) >> (8 * (c & 3))) as u32);
    check32("v_min3_i32", 3, FEW, |a, b, c| (a as i32).min(b as i32).min(c as i32) as u32);
    check32("v_max3_i32", 3, FEW, |a, b, c| (a as i32).max(b as i32).max(c as i32) as u32);
    check32("v_min3_u32", 3, FEW, |a, b, c| a.min(b).min(c));
    check32("v_max3_u32", 3, FEW, |a, b, c| a.max(b).max(c));
    check32("v_med3_i32", 3, FEW, |a, b, c| {
        let mut all = [a as i32, b as i32, c as i32];
        all.sort_unstable();
        all[1] as u32
    });
    check32("v_med3_u32", 3, FEW, |a, b, c| {
        let mut all = [a, b, c];
        all.sort_unstable();
        all[1]
    });
    check32("v_sad_u8", 3, FEW, sad);
    check32("v_sad_hi_u8", 3, FEW, |a, b, c| (sad(a, b, 0) << 16).wrapping_add(c));
    check32("v_sad_u16", 3, FEW, |a, b, c| c.wrapping_add((a & 0xffff).abs_diff(b & 0xffff)).wrapping_add((a >> 16).abs_diff(b >> 16)));
    check32("v_sad_u32", 3, FEW, |a, b, c| c.wrapping_add(a.abs_diff(b)));
    check32("v_msad_u8", 3, FEW, msad);
    check32("v_mad_u32_u16", 3, FEW, |a, b, c| ((a & 0xffff) * (b & 0xffff)).wrapping_add(c));
    check32("v_mad_i32_i16", 3, FEW, |a, b, c| (i32::from(a as u16 as i16) * i32::from(b as u16 as i16)).wrapping_add(c as i32) as u32);
    check32("v_xad_u32", 3, FEW, |a, b, c| (a ^ b).wrapping_add(c));
    check32("v_lshl_add_u32", 3, FEW, |a, b, c| (a << (b & 31)).wrapping_add(c));
    check32("v_add_lshl_u32", 3, FEW, |a, b, c| a.wrapping_add(b) << (c & 31));
    check32("v_add3_u32", 3, FEW, |a, b, c| a.wrapping_add(b).wrapping_add(c));
    check32("v_lshl_or_b32", 3, FEW, |a, b, c| a << (b & 31) | c);
    check32("v_and_or_b32", 3, FEW, |a, b, c| a & b | c);
    check32("v_or3_b32", 3, FEW, |a, b, c| a | b | c);
    check32("v_perm_b32", 3, FEW, permute);
    let selectors: Vec<u64> = (0..16).map(|n| n * 0x0101_0101 ^ 0x0001_0203).collect();
    let data = [0x8070_60f0_u64, 0x01ff_7f80];
    for arch in GFX9 {
        let cases: Vec<[u64; 3]> = selectors.iter().flat_map(|&c| [[data[0], data[1], c], [data[1], data[0], c]]).collect();
        for (case, out) in cases.iter().zip(run(arch, USUAL, vop3(arch, "v_perm_b32"), &cases)) {
            assert_eq!(out.d as u32, permute(case[0] as u32, case[1] as u32, case[2] as u32), "{case:x?}");
        }
    }
}

fn sad(a: u32, b: u32, c: u32) -> u32 {
    (0..4).fold(c, |sum, n| sum.wrapping_add((a >> (8 * n) & 0xff).abs_diff(b >> (8 * n) & 0xff)))
}

fn msad(a: u32, b: u32, c: u32) -> u32 {
    (0..4).filter(|n| b >> (8 * n) & 0xff != 0).fold(c, |sum, n| sum.wrapping_add((a >> (8 * n) & 0xff).abs_diff(b >> (8 * n) & 0xff)))
}

fn permute(a: u32, b: u32, selector: u32) -> u32 {
    let data = u64::from(a) << 32 | u64::from(b);
    let byte = |n: u32| (data >> (8 * n)) as u32 & 0xff;
    let sign = |n: u32| if byte(n) & 0x80 != 0 { 0xff } else { 0 };
    (0..4).fold(0, |sum, n| {
        let value = match selector >> (8 * n) & 0xff {
            at @ 0..=7 => byte(at),
            8 => sign(1),
            9 => sign(3),
            10 => sign(5),
            11 => sign(7),
            12 => 0,
            _ => 0xff,
        };
        sum | value << (8 * n)
    })
}

/// Carries and borrows, the incoming ones from `vcc`.
#[test]
fn carries() {
    let cases: Vec<[u64; 4]> = grid(EDGES, 2).into_iter().map(|[a, b, c]| [a, b, c, OLD]).collect();
    type Expect = fn(u64, u64, u64) -> (u64, bool);
    let table: [(&str, Expect); 6] = [
        ("v_add_co_u32", |a, b, _| (a + b, a + b >= 1 << 32)),
        ("v_sub_co_u32", |a, b, _| (a.wrapping_sub(b), b > a)),
        ("v_subrev_co_u32", |a, b, _| (b.wrapping_sub(a), a > b)),
        ("v_addc_co_u32", |a, b, c| (a + b + c, a + b + c >= 1 << 32)),
        ("v_subb_co_u32", |a, b, c| (a.wrapping_sub(b).wrapping_sub(c), b + c > a)),
        ("v_subbrev_co_u32", |a, b, c| (b.wrapping_sub(a).wrapping_sub(c), a + c > b)),
    ];
    for arch in GFX9 {
        for (name, expect) in table {
            for carry in [false, true] {
                let long = vop3(arch, name).words();
                let short = [vop32(arch, name, 2, 256 + 10, 20)];
                for words in [&long[..], &short[..]] {
                    for (case, out) in cases.iter().zip(run_with(arch, USUAL, words, &cases, carry)) {
                        let (value, bit) = expect(case[0], case[1], u64::from(carry));
                        assert_eq!((out.d as u32, out.vcc), (value as u32, bit), "{name} {case:x?} {carry}");
                    }
                }
            }
        }
    }
}

/// The clamp bit of integer additions saturates: "clamp" in AMD's chapter on VOP3.
#[test]
fn integer_clamp() {
    let cases = grid(EDGES, 2);
    type Expect = fn(u32, u32) -> u32;
    let table: [(&str, Expect); 5] = [
        ("v_add_u32", |a, b| a.saturating_add(b)),
        ("v_sub_u32", |a, b| a.saturating_sub(b)),
        ("v_subrev_u32", |a, b| b.saturating_sub(a)),
        ("v_add_i32", |a, b| (a as i32).saturating_add(b as i32) as u32),
        ("v_sub_i32", |a, b| (a as i32).saturating_sub(b as i32) as u32),
    ];
    for arch in GFX9 {
        for (name, expect) in table {
            let inst = Vop3 { clamp: true, ..vop3(arch, name) };
            for (case, out) in cases.iter().zip(run(arch, USUAL, inst, &cases)) {
                assert_eq!(out.d as u32, expect(case[0] as u32, case[1] as u32), "{name} {case:x?}");
            }
        }
        type Expect16 = fn(u16, u16) -> u16;
        let table: [(&str, Expect16); 5] = [
            ("v_add_u16", |a, b| a.saturating_add(b)),
            ("v_sub_u16", |a, b| a.saturating_sub(b)),
            ("v_subrev_u16", |a, b| b.saturating_sub(a)),
            ("v_add_i16", |a, b| (a as i16).saturating_add(b as i16) as u16),
            ("v_sub_i16", |a, b| (a as i16).saturating_sub(b as i16) as u16),
        ];
        for (name, expect) in table {
            let inst = Vop3 { clamp: true, ..vop3(arch, name) };
            for (case, out) in cases.iter().zip(run(arch, USUAL, inst, &cases)) {
                assert_eq!(out.d as u16, expect(case[0] as u16, case[1] as u16), "{name} {case:x?}");
            }
        }
    }
}

#[test]
fn sixty_four_bits() {
    let wide: Vec<u64> =
        vec![0, 1, 63, 64, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 1 << 32, 0x7fff_ffff_ffff_ffff, 1 << 63, u64::MAX, 0x0123_4567_89ab_cdef];
    let check = |name: &str, sources: usize, expect: &dyn Fn(u64, u64, u64) -> (u64, Option<bool>)| {
        for arch in having(name) {
            let cases = grid(&wide, sources);
            for (case, out) in cases.iter().zip(run(arch, USUAL, vop3(arch, name), &cases)) {
                let (value, bit) = expect(case[0], case[1], case[2]);
                assert_eq!(out.d, value, "{arch:?} {name} {case:x?}");
                if let Some(bit) = bit {
                    assert_eq!(out.vcc, bit, "{arch:?} {name} {case:x?}");
                }
            }
        }
    };
    check("v_lshlrev_b64", 2, &|a, b, _| (b << (a & 63), None));
    check("v_lshrrev_b64", 2, &|a, b, _| (b >> (a & 63), None));
    check("v_ashrrev_i64", 2, &|a, b, _| ((b as i64 >> (a & 63)) as u64, None));
    check("v_lshl_add_u64", 3, &|a, b, c| ((a << (b & 7)).wrapping_add(c), None));
    check("v_mov_b64", 1, &|a, _, _| (a, None));
    check("v_mad_u64_u32", 3, &|a, b, c| {
        let sum = u128::from(a as u32) * u128::from(b as u32) + u128::from(c);
        (sum as u64, Some(sum >> 64 & 1 != 0))
    });
    // The 65th bit of the signed sum: its sign.
    check("v_mad_i64_i32", 3, &|a, b, c| {
        let sum = i128::from(a as u32 as i32) * i128::from(b as u32 as i32) + i128::from(c as i64);
        (sum as u64, Some(sum >> 64 & 1 != 0))
    });
}

#[test]
fn quad_sad() {
    let mut numbers = Numbers(3);
    for arch in GFX9 {
        for name in ["v_qsad_pk_u16_u8", "v_mqsad_pk_u16_u8"] {
            let one = if name == "v_qsad_pk_u16_u8" { sad } else { msad };
            let cases: Vec<[u64; 3]> = (0..200).map(|_| [numbers.next(), numbers.next() & numbers.next(), numbers.next()]).collect();
            for (case, out) in cases.iter().zip(run(arch, USUAL, vop3(arch, name), &cases)) {
                let expected = (0..4).fold(0, |sum, n| {
                    let part = one((case[0] >> (8 * n)) as u32, case[1] as u32, (case[2] >> (16 * n)) as u32 & 0xffff);
                    sum | u64::from(part & 0xffff) << (16 * n)
                });
                assert_eq!(out.d, expected, "{name} {case:x?}");
            }
        }
        // Four destinations and four registers of the third source.
        let mut bench = warpwave_vgpu::exec::TestWave::new(arch);
        let draw = |numbers: &mut Numbers| std::array::from_fn(|_| (numbers.next() & numbers.next()) as u32);
        for register in [10, 11, 20, 30, 31, 32, 33] {
            bench.set_v(register, draw(&mut numbers));
        }
        bench.run(&vop3(arch, "v_mqsad_u32_u8").words()).unwrap();
        for lane in 0..64 {
            let window = u64::from(bench.v(10)[lane]) | u64::from(bench.v(11)[lane]) << 32;
            for n in 0..4 {
                assert_eq!(bench.v(2 + n)[lane], msad((window >> (8 * n)) as u32, bench.v(20)[lane], bench.v(30 + n)[lane]), "{n}");
            }
        }
    }
}

/// 16-bit integers. In the first list the upper half becomes 0, in the second it is kept (LLVM's `zeroesHigh16BitsOfDest`),
/// and `op_sel` chooses halves of the sources and of the destination.
#[test]
fn sixteen_bits() {
    let values: Vec<u64> = vec![0, 1, 15, 16, 17, 0x7f, 0x80, 0xff, 0x7fff, 0x8000, 0xffff, 0x1234_0003, 0xffff_8001];
    type Expect = fn(u16, u16, u16) -> u16;
    let zeroing: [(&str, Expect); 13] = [
        ("v_add_u16", |a, b, _| a.wrapping_add(b)),
        ("v_sub_u16", |a, b, _| a.wrapping_sub(b)),
        ("v_subrev_u16", |a, b, _| b.wrapping_sub(a)),
        ("v_mul_lo_u16", |a, b, _| a.wrapping_mul(b)),
        ("v_lshlrev_b16", |a, b, _| b << (a & 15)),
        ("v_lshrrev_b16", |a, b, _| b >> (a & 15)),
        ("v_ashrrev_i16", |a, b, _| (b as i16 >> (a & 15)) as u16),
        ("v_max_u16", |a, b, _| a.max(b)),
        ("v_max_i16", |a, b, _| (a as i16).max(b as i16) as u16),
        ("v_min_u16", |a, b, _| a.min(b)),
        ("v_min_i16", |a, b, _| (a as i16).min(b as i16) as u16),
        ("v_mad_legacy_u16", |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
        ("v_mad_legacy_i16", |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
    ];
    for arch in GFX9 {
        for (name, expect) in zeroing {
            let cases = grid(&values, if name.contains("mad") { 3 } else { 2 });
            for (case, out) in cases.iter().zip(run(arch, USUAL, vop3(arch, name), &cases)) {
                let [a, b, c] = case.map(|value| value as u16);
                assert_eq!(out.d as u32, u32::from(expect(a, b, c)), "{arch:?} {name} {case:x?}");
            }
        }
    }
    let keeping: [(&str, usize, Expect); 10] = [
        ("v_add_i16", 2, |a, b, _| a.wrapping_add(b)),
        ("v_sub_i16", 2, |a, b, _| a.wrapping_sub(b)),
        ("v_mad_u16", 3, |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
        ("v_mad_i16", 3, |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
        ("v_min3_i16", 3, |a, b, c| (a as i16).min(b as i16).min(c as i16) as u16),
        ("v_max3_i16", 3, |a, b, c| (a as i16).max(b as i16).max(c as i16) as u16),
        ("v_min3_u16", 3, |a, b, c| a.min(b).min(c)),
        ("v_max3_u16", 3, |a, b, c| a.max(b).max(c)),
        ("v_med3_i16", 3, |a, b, c| {
            let mut all = [a as i16, b as i16, c as i16];
            all.sort_unstable();
            all[1] as u16
        }),
        ("v_med3_u16", 3, |a, b, c| {
            let mut all = [a, b, c];
            all.sort_unstable();
            all[1]
        }),
    ];
    for arch in GFX9 {
        for (name, sources, expect) in keeping {
            for op_sel in 0..16u32 {
                let cases = grid(&values, sources);
                let inst = Vop3 { op_sel, ..vop3(arch, name) };
                for (case, out) in cases.iter().zip(run(arch, USUAL, inst, &cases)) {
                    let half = |n: usize| (case[n] >> (16 * (op_sel >> n & 1))) as u16;
                    let value = u64::from(expect(half(0), half(1), half(2)));
                    let expected = if op_sel & 8 != 0 { OLD & 0xffff | value << 16 } else { OLD & 0xffff_0000 | value };
                    assert_eq!(out.d as u32, expected as u32, "{arch:?} {name} {op_sel:#x} {case:x?}");
                }
            }
        }
    }
}
