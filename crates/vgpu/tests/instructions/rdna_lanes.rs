//! DPP16, DPP8, permutations and lane access in wave32: AMD's chapters on data-parallel primitives and its pseudocode.

use super::asm::*;
use super::rdna_asm::*;
use warpwave_vgpu::Arch;
use warpwave_vgpu::exec::TestWave;

const ARCHS: [Arch; 3] = [Arch::Gfx1030, Arch::Gfx1100, Arch::Gfx1201];

/// A wavefront with `100 + lane` in `v10`, zeros in `v20` and sevens in `v2`.
fn bench(arch: Arch) -> TestWave {
    let mut bench = TestWave::wave32(arch);
    bench.set_v(10, std::array::from_fn(|lane| 100 + lane as u32));
    bench.set_v(20, [0; 64]);
    bench.set_v(2, [7; 64]);
    bench
}

/// `v2 = dpp(v10) | v20`.
fn with_dpp(arch: Arch, src0: u32, dword: u32) -> [u32; 2] {
    [vop32(arch, "v_or_b32", 2, src0, 20), dword]
}

/// The controls of RDNA: name, number, and the source lane of a lane (`None`: outside the row).
type Control = (&'static str, u32, fn(usize) -> Option<usize>);

const CONTROLS: [Control; 8] = [
    ("quad_perm:[3,2,1,0]", 0x1b, |lane| Some(lane & !3 | 3 - (lane & 3))),
    ("row_shl:3", 0x103, |lane| (lane % 16 + 3 < 16).then_some(lane + 3)),
    ("row_shr:5", 0x115, |lane| (lane % 16 >= 5).then(|| lane - 5)),
    ("row_ror:2", 0x122, |lane| Some(lane & !15 | (lane + 14) % 16)),
    ("row_mirror", 0x140, |lane| Some(lane ^ 15)),
    ("row_half_mirror", 0x141, |lane| Some(lane ^ 7)),
    ("row_share:9", 0x159, |lane| Some(lane & !15 | 9)),
    ("row_xmask:6", 0x166, |lane| Some(lane ^ 6)),
];

#[test]
fn rows_of_sixteen() {
    for arch in ARCHS {
        for (name, control, from) in CONTROLS {
            for exec in [u32::MAX, 0xfff0_ff7f] {
                for (fetch_inactive, bound_ctrl) in [(false, false), (true, false), (false, true), (true, true)] {
                    for (row_mask, bank_mask) in [(15, 15), (2, 15), (15, 5)] {
                        let mut bench = bench(arch);
                        bench.set_exec(exec.into());
                        let dword = dpp16(10, control, fetch_inactive, bound_ctrl, row_mask, bank_mask);
                        bench.run(&with_dpp(arch, 250, dword)).unwrap();
                        for lane in 0..32 {
                            let active = |lane: usize| exec >> lane & 1 != 0;
                            let enabled = row_mask >> (lane / 16) & 1 != 0 && bank_mask >> (lane % 16 / 4) & 1 != 0;
                            let source = from(lane).filter(|&from| fetch_inactive || active(from));
                            let expected = match source {
                                _ if !active(lane) || !enabled => 7,
                                Some(from) => 100 + from as u32,
                                None if bound_ctrl => 0,
                                None => 7,
                            };
                            assert_eq!(bench.v(2)[lane], expected, "{arch:?} {name} {exec:x} fi {fetch_inactive} bc {bound_ctrl} {lane}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn groups_of_eight() {
    let lanes = [7, 0, 6, 1, 5, 2, 4, 3];
    for arch in ARCHS {
        for exec in [u32::MAX, 0x7fff_fffe] {
            for (src0, fetch_inactive) in [(233, false), (234, true)] {
                let mut bench = bench(arch);
                bench.set_exec(exec.into());
                bench.run(&with_dpp(arch, src0, dpp8(10, lanes))).unwrap();
                for lane in 0..32 {
                    let from = lane & !7 | lanes[lane & 7] as usize;
                    let active = |lane: usize| exec >> lane & 1 != 0;
                    let read = if fetch_inactive || active(from) { 100 + from as u32 } else { 0 };
                    assert_eq!(bench.v(2)[lane], if active(lane) { read } else { 7 }, "{arch:?} {exec:x} {lane}");
                }
            }
        }
    }
}

/// A compare with DPP writes the mask of the lanes that take part.
#[test]
fn compares_with_dpp() {
    for arch in ARCHS {
        let mut bench = bench(arch);
        bench.set_v(20, [100 + 9; 64]);
        bench.run(&[vop32(arch, "v_cmp_eq_u32", 0, 250, 20), dpp16(10, 0x159, false, false, 15, 15)]).unwrap();
        assert_eq!(bench.vcc(), 0xffff, "{arch:?}");
        let mut bench = self::bench(arch);
        bench.set_v(20, [100 + 4; 64]);
        bench.set_s(106, 0x1234);
        bench.run(&[vop32(arch, "v_cmpx_eq_u32", 0, 233, 20), dpp8(10, [4; 8])]).unwrap();
        assert_eq!((bench.exec(), bench.vcc()), (0xff, 0x1234), "{arch:?}");
    }
}

/// `v_permlane16_b32` and `v_permlanex16_b32`: a selector of four bits for each lane of a row. `op_sel` holds `fi` and `bound_ctrl`.
#[test]
fn permutations_of_rows() {
    let selectors = 0x0f1e_2d3c_4b5a_6978_u64;
    for arch in ARCHS {
        for (name, other_row) in [("v_permlane16_b32", 0), ("v_permlanex16_b32", 16)] {
            for exec in [u32::MAX, 0xfeff_7ffd] {
                for op_sel in 0..4 {
                    let mut bench = bench(arch);
                    bench.set_exec(exec.into());
                    bench.set_s(12, selectors as u32);
                    bench.set_s(14, (selectors >> 32) as u32);
                    bench.run(&Vop3 { src: [V + 10, 12, 14], op_sel, ..vop3(arch, name) }.words()).unwrap();
                    for lane in 0..32 {
                        let active = |lane: usize| exec >> lane & 1 != 0;
                        let from = (lane & 16 ^ other_row) | (selectors >> (4 * (lane & 15)) & 15) as usize;
                        let expected = match (active(lane), active(from) || op_sel & 1 != 0) {
                            (false, _) => 7,
                            (true, true) => 100 + from as u32,
                            (true, false) if op_sel & 2 != 0 => 0,
                            (true, false) => 7,
                        };
                        assert_eq!(bench.v(2)[lane], expected, "{arch:?} {name} {exec:x} op_sel {op_sel} {lane}");
                    }
                }
            }
        }
    }
    for (name, other_row) in [("v_permlane16_var_b32", 0), ("v_permlanex16_var_b32", 16)] {
        let mut bench = bench(Arch::Gfx1201);
        bench.set_v(20, std::array::from_fn(|lane| (lane as u32 * 7 + 3) | 0xabc0));
        bench.run(&vop3(Arch::Gfx1201, name).words()).unwrap();
        let expected = |lane: usize| 100 + ((lane & 16 ^ other_row) | (lane * 7 + 3) & 15) as u32;
        assert!((0..32).all(|lane| bench.v(2)[lane] == expected(lane)), "{name}: {:?}", &bench.v(2)[..32]);
    }
}

/// `v_permlane64_b32` exchanges the halves of a wave64; in wave32 it does nothing.
#[test]
fn exchange_of_halves() {
    for arch in [Arch::Gfx1100, Arch::Gfx1201] {
        let words = [vop32(arch, "v_permlane64_b32", 2, 256 + 10, 0)];
        let mut wide = TestWave::new(arch);
        wide.set_v(10, std::array::from_fn(|lane| 100 + lane as u32));
        wide.run(&words).unwrap();
        assert_eq!(wide.v(2), std::array::from_fn(|lane| 100 + (lane as u32 ^ 32)), "{arch:?}");
        let mut narrow = bench(arch);
        narrow.run(&words).unwrap();
        assert_eq!(narrow.v(2)[..32], [7; 32], "{arch:?}");
    }
}

/// Lane numbers wrap at 32, and EXEC does not matter.
#[test]
fn lane_access() {
    for arch in ARCHS {
        let mut bench = bench(arch);
        bench.set_exec(0x10);
        bench.set_s(12, 37);
        bench.run(&Vop3 { dst: 20, src: [V + 10, 12, 0], ..vop3(arch, "v_readlane_b32") }.words()).unwrap();
        assert_eq!(bench.s(20), 105, "{arch:?}");
        bench.run(&Vop3 { src: [12, 128 + 40, 0], ..vop3(arch, "v_writelane_b32") }.words()).unwrap();
        assert_eq!((bench.v(2)[8], bench.v(2)[9]), (37, 7), "{arch:?}");
        bench.run(&[vop32(arch, "v_readfirstlane_b32", 21, 256 + 10, 0)]).unwrap();
        assert_eq!(bench.s(21), 104, "{arch:?}");
        bench.run(&[vop32(arch, "v_swap_b32", 2, 256 + 10, 0)]).unwrap();
        assert_eq!((bench.v(2)[4], bench.v(10)[4], bench.v(2)[5], bench.v(10)[5]), (104, 7, 7, 105), "{arch:?}");
        // Bits of the mask below the lane; the high half counts no lane of a wave32.
        bench.set_exec(u32::MAX.into());
        bench.set_v(20, [1000; 64]);
        bench.run(&Vop3 { src: [193, V + 20, 0], ..vop3(arch, "v_mbcnt_lo_u32_b32") }.words()).unwrap();
        assert!((0..32).all(|lane| bench.v(2)[lane] == 1000 + lane as u32), "{arch:?}");
        bench.run(&Vop3 { src: [193, V + 20, 0], ..vop3(arch, "v_mbcnt_hi_u32_b32") }.words()).unwrap();
        assert_eq!(bench.v(2)[..32], [1000; 32], "{arch:?}");
    }
}

/// `ds_permute_b32` and `ds_bpermute_b32`: byte addresses, modulo the 32 lanes of the wavefront.
#[test]
fn permutations_through_lds_hardware() {
    let mut numbers = Numbers(11);
    for arch in ARCHS {
        for exec in [u32::MAX, 0x0fff_3ffe] {
            let addresses: [u32; 64] = std::array::from_fn(|_| numbers.next() as u32 & 0x3ff);
            let on = |lane: usize| exec >> lane & 1 != 0;
            let lane_of = |lane: usize| ((addresses[lane] + 4) / 4 % 32) as usize;
            let mut bench = bench(arch);
            bench.set_exec(exec.into());
            bench.set_v(11, addresses);
            bench.run(&rdna_ds(arch, "ds_bpermute_b32", 2, 11, [10, 0], 4)).unwrap();
            for lane in 0..32 {
                let read = if on(lane_of(lane)) { 100 + lane_of(lane) as u32 } else { 0 };
                assert_eq!(bench.v(2)[lane], if on(lane) { read } else { 7 }, "{arch:?} {exec:x} {lane}");
            }
            bench.set_v(2, [7; 64]);
            bench.run(&rdna_ds(arch, "ds_permute_b32", 2, 11, [10, 0], 4)).unwrap();
            let mut pushed = [0; 32];
            (0..32).filter(|&lane| on(lane)).for_each(|lane| pushed[lane_of(lane)] = 100 + lane as u32);
            for lane in 0..32 {
                assert_eq!(bench.v(2)[lane], if on(lane) { pushed[lane] } else { 7 }, "{arch:?} {exec:x} {lane}");
            }
        }
        let mut bench = bench(arch);
        bench.run(&rdna_ds(arch, "ds_swizzle_b32", 2, 10, [0, 0], 0x1f | 16 << 10)).unwrap();
        assert!((0..32).all(|lane| bench.v(2)[lane] == 100 + (lane as u32 ^ 16)), "{arch:?}");
    }
}

/// LLVM's `AMDGPUDisassembler` and AMD's RDNA guides: `wave_shl` to `wave_ror`, `row_bcast:15` and `row_bcast:31` exist on GFX9 only.
#[test]
fn permutations_across_rows_are_reserved() {
    // v_mov_b32_dpp v0, v1
    let words = |control: u32| [0b0111111 << 25 | 1 << 9 | 250, 1 | control << 8 | 0xff << 24];
    for control in [0x130, 0x134, 0x138, 0x13c, 0x142, 0x143] {
        for arch in RDNA {
            let fault = TestWave::new(arch).run(&words(control)).unwrap_err();
            assert!(fault.to_string().contains("reserved"), "{arch} {control:#x}: {fault}");
        }
        TestWave::new(Arch::Gfx90a).run(&words(control)).unwrap();
    }
    TestWave::new(Arch::Gfx1030).run(&words(0x140)).unwrap();
}
