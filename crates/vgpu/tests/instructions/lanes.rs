//! SDWA, DPP and cross-lane instructions: AMD's chapters on them and its pseudocode.

use super::asm::*;
use warpwave_vgpu::Arch;
use warpwave_vgpu::exec::TestWave;

/// A byte (0..=3), a word (4, 5) or the whole of a register.
fn selected(value: u32, selector: u32, signed: bool) -> u32 {
    let (shift, width) = match selector {
        0..=3 => (8 * selector, 8),
        4 | 5 => (16 * (selector - 4), 16),
        _ => return value,
    };
    let field = value >> shift & ((1 << width) - 1);
    if signed && field >> (width - 1) != 0 { field | u32::MAX << width } else { field }
}

/// Into the selected part; the rest is 0, the sign above with zeros below, or kept.
fn placed(old: u32, value: u32, selector: u32, unused: u32) -> u32 {
    let (shift, width) = match selector {
        0..=3 => (8 * selector, 8),
        4 | 5 => (16 * (selector - 4), 16),
        _ => return value,
    };
    let mask = ((1u64 << width) - 1) << shift;
    let field = u64::from(value) << shift & mask;
    let above = !0u64 << (shift + width);
    match unused {
        0 => field as u32,
        1 => (field | if value >> (width - 1) & 1 != 0 { above } else { 0 }) as u32,
        _ => (u64::from(old) & !mask | field) as u32,
    }
}

#[test]
fn every_selection_of_sdwa() {
    let mut numbers = Numbers(1);
    let cases: Vec<[u64; 4]> = (0..64).map(|_| [numbers.next(), numbers.next(), 0, numbers.next()].map(|x| x & 0xffff_ffff)).collect();
    for arch in GFX9 {
        for dst_sel in 0..7u32 {
            for unused in 0..3u32 {
                for src0 in 0..7u32 {
                    for (src1, signs) in [(6, 0), (1, 1), (5, 2), (3, 3)] {
                        let word = 10 | dst_sel << 8 | unused << 11 | src0 << 16 | (signs & 1) << 19 | src1 << 24 | (signs >> 1 & 1) << 27;
                        let words = [vop32(arch, "v_add_u32", 2, 249, 20), word];
                        for (case, out) in cases.iter().zip(run_with(arch, USUAL, &words, &cases, false)) {
                            let a = selected(case[0] as u32, src0, signs & 1 != 0);
                            let b = selected(case[1] as u32, src1, signs & 2 != 0);
                            let expected = placed(case[3] as u32, a.wrapping_add(b), dst_sel, unused);
                            assert_eq!(out.d as u32, expected, "{arch:?} {dst_sel} {unused} {src0} {src1} {signs} {case:x?}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn sdwa_of_floats_and_compares() {
    for arch in GFX9 {
        // The upper halves, added, into the upper half; the lower half is kept. |a|, -b.
        let word = 10 | 5 << 8 | 2 << 11 | 5 << 16 | 1 << 21 | 5 << 24 | 1 << 28;
        let words = [vop32(arch, "v_add_f16", 2, 249, 20), word];
        let out = run_with(arch, USUAL, &words, &[[0xc400_1234, 0x3c00_4321, 0, 0xaaaa_bbbb]], false)[0];
        assert_eq!(out.d as u32, 0x4200_bbbb);
        // A scalar register as the first source.
        let mut bench = TestWave::new(arch);
        bench.set_s(7, 0x8070_6050);
        bench.set_v(20, [1; 64]);
        bench.run(&[vop32(arch, "v_add_u32", 2, 249, 20), 7 | 6 << 8 | 3 << 16 | 1 << 19 | 1 << 23 | 6 << 24]).unwrap();
        assert_eq!(bench.v(2)[9], 0xffff_ff81);
        // A compare may name its destination.
        bench.set_v(10, std::array::from_fn(|lane| (lane as u32) << 8));
        bench.set_v(20, [5; 64]);
        bench.run(&[vop32(arch, "v_cmp_lt_u32", 0, 249, 20), 10 | 30 << 8 | 1 << 15 | 1 << 16 | 6 << 24]).unwrap();
        assert_eq!((bench.s(30), bench.s(31)), (0x1f, 0));
        // Carries come out of selected parts too.
        let words = [vop32(arch, "v_add_co_u32", 2, 249, 20), 10 | 6 << 8 | 6 << 16 | 6 << 24];
        let out = run_with(arch, USUAL, &words, &[[0xffff_ffff, 1, 0, 0]], false)[0];
        assert_eq!((out.d as u32, out.vcc), (0, true));
    }
}

/// The lane that a control reads, or none.
fn from(control: u32, lane: usize) -> Option<usize> {
    let (row, at, n) = (lane / 16 * 16, lane % 16, (control & 15) as usize);
    match control {
        0..=0xff => Some(lane / 4 * 4 + (control >> (2 * (lane % 4)) & 3) as usize),
        0x101..=0x10f => (at + n < 16).then_some(lane + n),
        0x111..=0x11f => (at >= n).then(|| lane - n),
        0x121..=0x12f => Some(row + (at + 16 - n) % 16),
        0x130 => (lane < 63).then_some(lane + 1),
        0x134 => Some((lane + 1) % 64),
        0x138 => (lane > 0).then(|| lane - 1),
        0x13c => Some((lane + 63) % 64),
        0x140 => Some(row + 15 - at),
        0x141 => Some(lane / 8 * 8 + 7 - lane % 8),
        0x142 => (lane >= 16).then(|| row - 1),
        0x143 => (lane >= 32).then_some(31),
        _ => Some(row + n),
    }
}

#[test]
fn every_control_of_dpp() {
    let mut controls = vec![0x00, 0xe4, 0x1b, 0x4e, 0xb1, 0xff, 0x130, 0x134, 0x138, 0x13c, 0x140, 0x141, 0x142, 0x143];
    controls.extend((0x101..=0x10f).chain(0x111..=0x11f).chain(0x121..=0x12f));
    for arch in GFX9 {
        let mut controls = controls.clone();
        if arch != Arch::Gfx908 {
            controls.extend(0x150..=0x15f);
        }
        for &control in &controls {
            for (rows, banks) in [(15u32, 15u32), (5, 15), (15, 6), (10, 9)] {
                for bound in [0u32, 1] {
                    for exec in [u64::MAX, 0x7fff_fff0_ffff_5555] {
                        let mut bench = TestWave::new(arch);
                        bench.set_mode(USUAL);
                        bench.set_exec(exec);
                        let (a, b): ([u32; 64], [u32; 64]) =
                            (std::array::from_fn(|n| 1000 + n as u32), std::array::from_fn(|n| n as u32 * 7));
                        bench.set_v(10, a);
                        bench.set_v(20, b);
                        bench.set_v(2, [77; 64]);
                        let word = 10 | control << 8 | bound << 19 | banks << 24 | rows << 28;
                        bench.run(&[vop32(arch, "v_add_u32", 2, 250, 20), word]).unwrap();
                        for lane in 0..64 {
                            let on = exec >> lane & 1 != 0 && rows >> (lane / 16) & 1 != 0 && banks >> (lane % 16 / 4) & 1 != 0;
                            let read = from(control, lane).filter(|from| exec >> from & 1 != 0);
                            let expected = match read {
                                _ if !on => 77,
                                Some(from) => a[from] + b[lane],
                                None if bound != 0 => b[lane],
                                None => 77,
                            };
                            assert_eq!(bench.v(2)[lane], expected, "{arch:?} {control:#x} {rows} {banks} {bound} {exec:x} lane {lane}");
                        }
                    }
                }
            }
        }
        // |a| and -b of floats.
        let mut bench = TestWave::new(arch);
        bench.set_mode(USUAL);
        bench.set_v(10, std::array::from_fn(|lane| (-(lane as f32)).to_bits()));
        bench.set_v(20, [1f32.to_bits(); 64]);
        bench.run(&[vop32(arch, "v_add_f32", 2, 250, 20), 10 | 0xb1 << 8 | 1 << 21 | 1 << 22 | 0xff << 24]).unwrap();
        assert_eq!((f32::from_bits(bench.v(2)[4]), f32::from_bits(bench.v(2)[5])), (4.0, 3.0));
    }
}

#[test]
fn single_lanes() {
    for arch in GFX9 {
        let mut bench = TestWave::new(arch);
        bench.set_v(10, std::array::from_fn(|lane| 100 + lane as u32));
        let first = vop32(arch, "v_readfirstlane_b32", 20, 256 + 10, 0);
        for (exec, lane) in [(u64::MAX, 0), (0xff00, 8), (1 << 63, 63), (0, 0)] {
            bench.set_exec(exec);
            bench.run(&[first]).unwrap();
            assert_eq!(bench.s(20), 100 + lane, "{exec:x}");
        }
        // Reads and writes of a lane do not look at `exec`; the number is taken modulo 64.
        bench.set_exec(0);
        for (number, lane) in [(0u32, 0usize), (63, 63), (64 + 5, 5), (u32::MAX, 63)] {
            bench.set_s(8, number);
            bench.run(&Vop3 { dst: 20, src: [V + 10, 8, 0], ..vop3(arch, "v_readlane_b32") }.words()).unwrap();
            assert_eq!(bench.s(20), 100 + lane as u32);
            bench.set_v(2, [7; 64]);
            bench.set_s(9, 0xabcd);
            bench.run(&Vop3 { src: [9, 8, 0], ..vop3(arch, "v_writelane_b32") }.words()).unwrap();
            assert_eq!(bench.v(2), std::array::from_fn(|n| if n == lane { 0xabcd } else { 7 }));
        }
        // Lanes that are off keep what they have.
        bench.set_exec(0xf0);
        bench.set_v(2, [7; 64]);
        bench.run(&vop3(arch, "v_mov_b32").words()).unwrap();
        assert_eq!(bench.v(2), std::array::from_fn(|n| if (4..8).contains(&n) { 100 + n as u32 } else { 7 }));
        bench.set_v(2, [7; 64]);
        bench.run(&[vop32(arch, "v_swap_b32", 2, 256 + 10, 0)]).unwrap();
        assert_eq!((bench.v(2)[4], bench.v(10)[4], bench.v(2)[8], bench.v(10)[8]), (104, 7, 7, 108));
        // Bits of the mask below the lane.
        bench.set_exec(u64::MAX);
        let mask = 0xf0f0_1234_8000_00ff_u64;
        bench.set_v(10, [mask as u32; 64]);
        bench.set_v(20, [1000; 64]);
        bench.run(&vop3(arch, "v_mbcnt_lo_u32_b32").words()).unwrap();
        bench.set_v(20, bench.v(2));
        bench.set_v(10, [(mask >> 32) as u32; 64]);
        bench.run(&vop3(arch, "v_mbcnt_hi_u32_b32").words()).unwrap();
        for lane in 0..64 {
            assert_eq!(bench.v(2)[lane], 1000 + (mask & ((1u64 << lane) - 1)).count_ones(), "{lane}");
        }
        // `v_cndmask_b32`: the second source where the mask has a bit.
        bench.set_v(10, [1; 64]);
        bench.set_v(20, [2; 64]);
        bench.set_s(30, 0x5555_5555);
        bench.set_s(31, 0xffff_0000);
        bench.run(&Vop3 { src: [V + 10, V + 20, 30], ..vop3(arch, "v_cndmask_b32") }.words()).unwrap();
        assert_eq!(bench.v(2), std::array::from_fn(|n| if 0xffff_0000_5555_5555_u64 >> n & 1 != 0 { 2 } else { 1 }));
    }
}

#[test]
fn permutations() {
    let mut numbers = Numbers(5);
    for arch in GFX9 {
        for exec in [u64::MAX, 0xffff_0f0f_3333_fffe] {
            for offset in [0u32, 8] {
                let addresses: [u32; 64] = std::array::from_fn(|_| numbers.next() as u32 & 0x3ff);
                let data: [u32; 64] = std::array::from_fn(|lane| 500 + lane as u32);
                let lane_of = |lane: usize| ((addresses[lane] + offset) / 4 % 64) as usize;
                let mut bench = TestWave::new(arch);
                bench.set_v(10, addresses);
                bench.set_v(20, data);
                bench.set_v(2, [7; 64]);
                bench.set_exec(exec);
                let on = |lane: usize| exec >> lane & 1 != 0;
                bench.run(&ds(arch, "ds_bpermute_b32", 2, 10, [20, 0], offset)).unwrap();
                for lane in 0..64 {
                    let read = if on(lane_of(lane)) { data[lane_of(lane)] } else { 0 };
                    assert_eq!(bench.v(2)[lane], if on(lane) { read } else { 7 }, "{arch:?} {exec:x} {lane}");
                }
                bench.set_v(2, [7; 64]);
                bench.run(&ds(arch, "ds_permute_b32", 2, 10, [20, 0], offset)).unwrap();
                let mut pushed = [0; 64];
                (0..64).filter(|&lane| on(lane)).for_each(|lane| pushed[lane_of(lane)] = data[lane]);
                for lane in 0..64 {
                    assert_eq!(bench.v(2)[lane], if on(lane) { pushed[lane] } else { 7 }, "{arch:?} {exec:x} {lane}");
                }
            }
        }
        // `ds_swizzle_b32`: quads, or and/or/xor masks within 32 lanes (the assembler's documentation of "swizzle").
        let mut bench = TestWave::new(arch);
        bench.set_v(10, std::array::from_fn(|lane| lane as u32));
        for (offset, expect) in [
            (0x8000 | 0x1b, Box::new(|lane: u32| lane & !3 | 3 - (lane & 3)) as Box<dyn Fn(u32) -> u32>),
            (0x8000, Box::new(|lane| lane & !3)),
            (0x1f | 1 << 10, Box::new(|lane| lane ^ 1)),
            (0x1f | 16 << 10, Box::new(|lane| lane ^ 16)),
            (0x18 | 3 << 5, Box::new(|lane| lane & !31 | lane & 0x18 | 3)),
        ] {
            bench.run(&ds(arch, "ds_swizzle_b32", 2, 10, [0, 0], offset)).unwrap();
            assert_eq!(bench.v(2), std::array::from_fn(|lane| expect(lane as u32)), "{arch:?} {offset:#x}");
        }
    }
}
