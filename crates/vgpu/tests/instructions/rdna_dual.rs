//! Dual-issue instructions (VOPD): both operations read before either writes. AMD's chapter on them and its pseudocode.

use super::asm::*;
use super::rdna_asm::*;
use warpwave_vgpu::Arch;
use warpwave_vgpu::exec::TestWave;

const ARCHS: [Arch; 2] = [Arch::Gfx1100, Arch::Gfx1201];

/// A wavefront with `v0` to `v7` holding `10 * register + lane`, as f32 if `float`.
fn bench(arch: Arch, float: bool) -> TestWave {
    let mut bench = TestWave::wave32(arch);
    for register in 0..8 {
        let number = |lane: usize| 10 * register + lane;
        bench.set_v(register, std::array::from_fn(|lane| if float { (number(lane) as f32).to_bits() } else { number(lane) as u32 }));
    }
    bench
}

fn half(name: &'static str, dst: u32, src0: u32, src1: u32) -> Half {
    Half { name, dst, src0, src1 }
}

fn float(bench: &TestWave, register: usize, lane: usize) -> f32 {
    f32::from_bits(bench.v(register)[lane])
}

#[test]
fn exchanges_two_registers() {
    for arch in ARCHS {
        let mut bench = bench(arch, false);
        bench.set_exec(0xffff_fffe);
        bench.run(&dual(arch, half("v_dual_mov_b32", 2, 256 + 5, 0), half("v_dual_mov_b32", 5, 256 + 2, 0))).unwrap();
        for lane in 0..32u32 {
            let expected = if lane == 0 { [20, 50] } else { [50 + lane, 20 + lane] };
            assert_eq!([bench.v(2)[lane as usize], bench.v(5)[lane as usize]], expected, "{arch:?} {lane}");
        }
    }
}

#[test]
fn the_second_operation_reads_what_the_first_overwrites() {
    for arch in ARCHS {
        let mut bench = bench(arch, true);
        // v4 = v0 * v1; v3 = v3 + v4 * v5, with the old v4.
        bench.run(&dual(arch, half("v_dual_mul_f32", 4, 256, 1), half("v_dual_fmac_f32", 3, 256 + 4, 5))).unwrap();
        for lane in 0..32 {
            let n = lane as f32;
            assert_eq!(float(&bench, 4, lane), n * (10.0 + n), "{arch:?}");
            assert_eq!(float(&bench, 3, lane), (40.0 + n).mul_add(50.0 + n, 30.0 + n), "{arch:?}");
        }
    }
}

#[test]
fn literals_are_shared() {
    for arch in ARCHS {
        let mut bench = bench(arch, true);
        // v2 = v0 * v1 + k; v7 = v4 * k + v5.
        let mut words = dual(arch, half("v_dual_fmaak_f32", 2, 256, 1), half("v_dual_fmamk_f32", 7, 256 + 4, 5)).to_vec();
        words.push(0.5f32.to_bits());
        bench.run(&words).unwrap();
        for lane in 0..32 {
            let n = lane as f32;
            assert_eq!(float(&bench, 2, lane), n.mul_add(10.0 + n, 0.5), "{arch:?}");
            assert_eq!(float(&bench, 7, lane), (40.0 + n).mul_add(0.5, 50.0 + n), "{arch:?}");
        }
    }
}

#[test]
fn selects_by_vcc() {
    for arch in ARCHS {
        let mut bench = bench(arch, false);
        bench.set_s(106, 0x0f0f_1234);
        bench.set_s(107, u32::MAX);
        bench.run(&dual(arch, half("v_dual_cndmask_b32", 2, 256, 1), half("v_dual_cndmask_b32", 5, 256 + 6, 7))).unwrap();
        for lane in 0..32u32 {
            let taken = 0x0f0f_1234u32 >> lane & 1;
            assert_eq!(bench.v(2)[lane as usize], 10 * taken + lane, "{arch:?}");
            assert_eq!(bench.v(5)[lane as usize], 60 + 10 * taken + lane, "{arch:?}");
        }
    }
}

/// The operations that only the second slot has, and the dot product.
#[test]
fn integer_operations_and_dot_product() {
    for arch in ARCHS {
        let mut bench = bench(arch, false);
        bench.run(&dual(arch, half("v_dual_mov_b32", 0, 256 + 1, 0), half("v_dual_add_nc_u32", 1, 256, 2))).unwrap();
        assert_eq!((bench.v(0)[3], bench.v(1)[3]), (13, 3 + 23), "{arch:?}");
        bench.run(&dual(arch, half("v_dual_mov_b32", 0, 128, 0), half("v_dual_lshlrev_b32", 1, 128 + 4, 3))).unwrap();
        assert_eq!((bench.v(0)[3], bench.v(1)[3]), (0, 33 << 4), "{arch:?}");
        bench.run(&dual(arch, half("v_dual_mov_b32", 0, 193, 0), half("v_dual_and_b32", 1, 128 + 12, 6))).unwrap();
        assert_eq!((bench.v(0)[3], bench.v(1)[3]), (u32::MAX, 63 & 12), "{arch:?}");
        if arch == Arch::Gfx1201 {
            continue;
        }
        // 1 · 3 + 2 · 4 + 0.5
        bench.set_v(2, [0x4000_3c00; 64]);
        bench.set_v(3, [0x4400_4200; 64]);
        bench.set_v(4, [0.5f32.to_bits(); 64]);
        bench.run(&dual(arch, half("v_dual_dot2acc_f32_f16", 4, 256 + 2, 3), half("v_dual_mov_b32", 5, 128, 0))).unwrap();
        assert_eq!(float(&bench, 4, 0), 11.5, "{arch:?}");
    }
}

/// The float operations of both slots against the single instructions of the same meaning.
#[test]
fn agrees_with_single_instructions() {
    let pairs = [
        ("v_dual_mul_f32", "v_mul_f32"),
        ("v_dual_add_f32", "v_add_f32"),
        ("v_dual_sub_f32", "v_sub_f32"),
        ("v_dual_subrev_f32", "v_subrev_f32"),
        ("v_dual_mul_dx9_zero_f32", "v_mul_dx9_zero_f32"),
    ];
    for arch in ARCHS {
        for (name, single) in pairs {
            let (mut one, mut two) = (bench(arch, true), bench(arch, true));
            one.run(&[vop32(arch, single, 2, 256 + 4, 3)]).unwrap();
            one.run(&[vop32(arch, single, 7, 256 + 5, 6)]).unwrap();
            two.run(&dual(arch, half(name, 2, 256 + 4, 3), half(name, 7, 256 + 5, 6))).unwrap();
            assert_eq!((one.v(2)[..32].to_vec(), one.v(7)[..32].to_vec()), (two.v(2)[..32].to_vec(), two.v(7)[..32].to_vec()), "{name}");
        }
    }
}
