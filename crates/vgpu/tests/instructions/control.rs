//! Control flow and indexed registers: AMD's pseudocode of SOPP, and of the few of SOP1, SOPC and SOPK that are not arithmetic.

use super::asm::*;
use warpwave_vgpu::Arch;
use warpwave_vgpu::exec::TestWave;
use warpwave_vgpu::fault::Fault;
use warpwave_vgpu::isa::Format;

/// Address of the code.
const CODE: u64 = 0x1000;

fn sopp(arch: Arch, name: &str, imm: u16) -> u32 {
    0b1_0111_1111 << 23 | u32::from(row(arch, Format::SOPP, name).opcode) << 16 | u32::from(imm)
}

/// `s20 += value`, independent of SCC.
fn add(arch: Arch, value: u16) -> u32 {
    sopk(arch, "s_addk_i32", 20, value)
}

fn pair(bench: &TestWave, register: u16) -> u64 {
    u64::from(bench.s(register)) | u64::from(bench.s(register + 1)) << 32
}

/// Each condition, true and false: the target is the next instruction plus the immediate, in dwords.
#[test]
fn branches() {
    type State = (bool, u64, u64);
    type Taken = fn(State) -> bool;
    let table: [(&str, Taken); 7] = [
        ("s_branch", |_| true),
        ("s_cbranch_scc0", |(scc, ..)| !scc),
        ("s_cbranch_scc1", |(scc, ..)| scc),
        ("s_cbranch_vccz", |(_, vcc, _)| vcc == 0),
        ("s_cbranch_vccnz", |(_, vcc, _)| vcc != 0),
        ("s_cbranch_execz", |(.., exec)| exec == 0),
        ("s_cbranch_execnz", |(.., exec)| exec != 0),
    ];
    for arch in GFX9 {
        for (name, taken) in table {
            for scc in [false, true] {
                for vcc in [0u64, 1, 1 << 63] {
                    for exec in [0, 1, 1 << 63, u64::MAX] {
                        let mut bench = TestWave::new(arch);
                        bench.set_scc(scc);
                        bench.set_s(106, vcc as u32);
                        bench.set_s(107, (vcc >> 32) as u32);
                        bench.set_exec(exec);
                        bench.set_s(20, 0);
                        bench.run(&[sopp(arch, name, 1), add(arch, 1), add(arch, 2)]).unwrap();
                        assert_eq!(bench.s(20), if taken((scc, vcc, exec)) { 2 } else { 3 }, "{arch:?} {name} {scc} {vcc:x} {exec:x}");
                    }
                }
            }
        }
        // Backward: three iterations; `s_cmpk` sets SCC each time.
        let mut bench = TestWave::new(arch);
        bench.set_s(20, 0);
        bench
            .run(&[
                add(arch, 5),
                sopk(arch, "s_cmpk_lt_u32", 20, 15),
                sopp(arch, "s_cbranch_scc1", -3i16 as u16),
                sopp(arch, "s_endpgm", 0),
                add(arch, 100),
            ])
            .unwrap();
        assert_eq!(bench.s(20), 15, "{arch:?}");
        // A branch outside the code faults.
        for imm in [-2i16 as u16, 1, 0x7fff] {
            let fault = bench.run(&[sopp(arch, "s_branch", imm)]).unwrap_err();
            assert!(matches!(fault, Fault::Illegal { .. }), "{arch:?} {imm:x}: {fault}");
        }
    }
}

/// The program counter: the address of the next instruction is read or saved.
#[test]
fn jumps() {
    for arch in GFX9 {
        let mut bench = TestWave::new(arch);
        bench.run(&[add(arch, 0), sop1(arch, "s_getpc_b64", 24, 0)]).unwrap();
        assert_eq!(pair(&bench, 24), CODE + 8, "{arch:?}");
        // Over one instruction.
        for (name, saves) in [("s_setpc_b64", false), ("s_swappc_b64", true)] {
            bench.set_s(20, 0);
            bench.set_s(8, CODE as u32 + 8);
            bench.set_s(9, 0);
            bench.set_s(24, 7);
            bench.set_s(25, 7);
            bench.run(&[sop1(arch, name, if saves { 24 } else { 0 }, 8), add(arch, 1), add(arch, 2)]).unwrap();
            assert_eq!((bench.s(20), pair(&bench, 24)), (2, if saves { CODE + 4 } else { 7 << 32 | 7 }), "{arch:?} {name}");
        }
        // The destination may be the source, which is read first.
        bench.set_s(20, 0);
        bench.run(&[sop1(arch, "s_swappc_b64", 8, 8), add(arch, 1), add(arch, 2)]).unwrap();
        assert_eq!((bench.s(20), pair(&bench, 8)), (2, CODE + 4), "{arch:?}");
        // Call and return.
        bench.set_s(20, 0);
        let words =
            [sopk(arch, "s_call_b64", 24, 2), add(arch, 1), sopp(arch, "s_endpgm", 0), add(arch, 2), sop1(arch, "s_setpc_b64", 0, 24)];
        bench.run(&words).unwrap();
        assert_eq!((bench.s(20), pair(&bench, 24)), (3, CODE + 4), "{arch:?}");
        // An address between instructions or past the end.
        for to in [CODE + 2, CODE + 400, CODE - 4, u64::MAX - 3] {
            bench.set_s(8, to as u32);
            bench.set_s(9, (to >> 32) as u32);
            let fault = bench.run(&[sop1(arch, "s_setpc_b64", 0, 8), add(arch, 1)]).unwrap_err();
            assert!(matches!(fault, Fault::Illegal { .. }), "{arch:?} {to:x}: {fault}");
        }
    }
}

/// No-ops for a wavefront alone in its workgroup, and the ends of a program.
#[test]
fn pauses_and_ends() {
    for arch in GFX9 {
        for name in [
            "s_nop",
            "s_wakeup",
            "s_barrier",
            "s_waitcnt",
            "s_sleep",
            "s_setprio",
            "s_icache_inv",
            "s_incperflevel",
            "s_decperflevel",
            "s_ttracedata",
            "s_sendmsg",
        ] {
            let mut bench = TestWave::new(arch);
            bench.set_s(20, 0);
            bench.run(&[sopp(arch, name, 0), add(arch, 1)]).unwrap_or_else(|fault| panic!("{arch:?} {name}: {fault}"));
            assert_eq!(bench.s(20), 1, "{arch:?} {name}");
        }
        for name in ["s_endpgm", "s_endpgm_saved"] {
            let mut bench = TestWave::new(arch);
            bench.set_s(20, 0);
            bench.run(&[sopp(arch, name, 0), add(arch, 1)]).unwrap();
            assert_eq!(bench.s(20), 0, "{arch:?} {name}");
        }
        // Trap 2 is `abort`; 3 is the debug trap, which is ignored.
        let mut bench = TestWave::new(arch);
        assert!(matches!(bench.run(&[sopp(arch, "s_trap", 2)]), Err(Fault::Trap { .. })), "{arch:?}");
        bench.run(&[sopp(arch, "s_trap", 3)]).unwrap();
        for name in ["v_nop", "v_clrexcp"] {
            bench.set_v(0, [7; 64]);
            bench.run(&[vop32(arch, name, 0, 0, 0)]).unwrap();
            assert_eq!(bench.v(0), [7; 64], "{arch:?} {name}");
        }
    }
}

/// M0 holds the index in its low byte, and in bits 12 to 15 the indexed operands: sources, then destination.
#[test]
fn indexed_registers() {
    const M0: u16 = 124;
    for arch in GFX9 {
        let on = |which: u32| sopc(arch, "s_set_gpr_idx_on", 4, which);
        let off = sopp(arch, "s_set_gpr_idx_off", 0);
        // v2 = v10 - v20, each or all of them indexed by five.
        let difference = vop32(arch, "v_sub_u32", 2, 256 + 10, 20);
        let value = |register: u32| register * register * 1000;
        for which in 0..16u32 {
            let mut bench = TestWave::new(arch);
            (0..40).for_each(|register| bench.set_v(register, [value(register as u32); 64]));
            bench.set_s(4, 0xab00 | 5);
            bench.set_s(M0, 0x1234_0fff);
            bench.run(&[on(which), difference, off]).unwrap();
            let moved = |bit: u32| if which >> bit & 1 != 0 { 5 } else { 0 };
            let expected = value(10 + moved(0)).wrapping_sub(value(20 + moved(1)));
            assert_eq!(bench.v(2 + moved(3) as usize)[9], expected, "{arch:?} {which:x}");
            assert_eq!(bench.s(M0), 0x1234_0f05 | which << 12, "the other bits stay");
            // Off again: nothing is indexed.
            bench.run(&[difference]).unwrap();
            assert_eq!(bench.v(2)[9], value(10).wrapping_sub(value(20)), "{arch:?} {which:x}");
        }
        // Index and mode can change while indexing is on; neither turns it on.
        let mut bench = TestWave::new(arch);
        for register in 0..40 {
            bench.set_v(register, [register as u32; 64]);
        }
        let copy = vop32(arch, "v_mov_b32", 2, 256 + 10, 0);
        bench.set_s(4, 3);
        bench.set_s(5, 7);
        bench.run(&[sopp(arch, "s_set_gpr_idx_mode", 1), sop1(arch, "s_set_gpr_idx_idx", 0, 5), copy]).unwrap();
        assert_eq!((bench.v(2)[0], bench.s(M0) & 0xf0ff), (10, 0x1007), "{arch:?}");
        bench.run(&[on(0), sop1(arch, "s_set_gpr_idx_idx", 0, 5), sopp(arch, "s_set_gpr_idx_mode", 1), copy, off]).unwrap();
        assert_eq!((bench.v(2)[0], bench.s(M0) & 0xf0ff), (17, 0x1007), "{arch:?}");
        bench.run(&[on(1), sop1(arch, "s_mov_b32", M0.into(), 4), copy, off]).unwrap();
        assert_eq!(bench.v(2)[0], 10, "{arch:?}: `m0` written, no operand chosen");
    }
}
