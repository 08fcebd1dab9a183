//! RDNA and GFX9 share the meaning of most instructions. Each RDNA row whose semantics GFX9 has too must give the same results on the
//! same registers in wave64. The differences that AMD documents are named here.

use super::asm::*;
use std::collections::BTreeSet;
use warpwave_vgpu::Arch;
use warpwave_vgpu::exec::TestWave;
use warpwave_vgpu::isa::{Field, Format, InstDesc, inst_descs};

/// Instructions whose result depends on the architecture, or on more than registers.
const EXCEPT: [&str; 13] = [
    // Move the program counter, or read state of the hardware.
    "s_getpc_b64",
    "s_setpc_b64",
    "s_swappc_b64",
    "s_call_b64",
    "s_getreg_b32",
    "s_setreg_b32",
    "s_setreg_imm32_b32",
    "s_cbranch_i_fork",
    "s_rfe_b64",
    // Index registers by M0, whose fields differ.
    "s_movrels_b64",
    "s_movreld_b64",
    "s_rfe_restore_b64",
    // Its sources are scalar on RDNA: `rdna_lanes::lane_access`.
    "v_writelane_b32",
];

/// `s_nop 0`.
const S_NOP: u32 = 0xbf80_0000;

/// Special values and random ones.
fn value(numbers: &mut Numbers) -> u32 {
    const EDGES: [u32; 16] = [
        0,
        1,
        u32::MAX,
        0x8000_0000,
        0x7fff_ffff,
        0x3f80_0000,
        0xbf80_0000,
        0x7f80_0000,
        0xff80_0000,
        0x7fc0_0000,
        0x0080_0000,
        0x3c00_bc00,
        0x7c00_fc00,
        0x0001_8000,
        0x4f00_0000,
        0x7bff_03ff,
    ];
    let random = numbers.next();
    match random >> 61 {
        0..=1 => EDGES[(random & 15) as usize],
        2..=3 => (random as u32 % 0x0800_0000) + 0x3d00_0000,
        4 => random as u32 & 31,
        _ => random as u32,
    }
}

/// The registers after an instruction.
#[derive(PartialEq, Debug)]
struct State {
    vgprs: Vec<[u32; 64]>,
    sgprs: Vec<u32>,
    scc: bool,
    exec: u64,
}

/// The destination's old value is in `v2` to `v5` and `s20` to `s23`.
fn run_on(arch: Arch, words: &[u32], seed: u64, exec: u64) -> Result<State, String> {
    let mut numbers = Numbers(seed);
    let mut bench = TestWave::new(arch);
    for base in [2, 10, 20, 30] {
        (base..base + 4).for_each(|register| bench.set_v(register, std::array::from_fn(|_| value(&mut numbers))));
    }
    (10..24).for_each(|register| bench.set_s(register, value(&mut numbers)));
    bench.set_s(106, numbers.next() as u32);
    bench.set_s(107, numbers.next() as u32);
    bench.set_scc(numbers.next() & 1 != 0);
    bench.set_exec(exec);
    bench.run(words).map_err(|fault| fault.to_string())?;
    Ok(State {
        vgprs: (2..6).map(|register| bench.v(register)).collect(),
        sgprs: (10..24).chain([106, 107]).map(|register| bench.s(register)).collect(),
        scc: bench.scc(),
        exec: bench.exec(),
    })
}

fn encode(arch: Arch, row: &InstDesc) -> Option<Vec<u32>> {
    Some(match row.format {
        Format::SOP1 => vec![sop1(arch, row.name, 20, 10)],
        Format::SOP2 if row.operands.iter().any(|operand| operand.field == Field::Literal) => return None,
        Format::SOP2 => vec![sop2(arch, row.name, 20, 10, 12)],
        Format::SOPC => vec![sopc(arch, row.name, 10, 12)],
        Format::VOP1 | Format::VOP2 | Format::VOPC | Format::VOP3 | Format::VOP3P => {
            // Few instructions lack VOP3; other tests have them.
            let long =
                |other: &InstDesc| other.name == row.name && matches!(other.format, Format::VOP3 | Format::VOP3P) && other.supports(arch);
            let literal = row.operands.iter().any(|operand| operand.field == Field::Literal);
            if literal || RDNA.contains(&arch) && !inst_descs().iter().any(long) {
                return None;
            }
            vop3_of(arch, row).words().to_vec()
        }
        _ => return None,
    })
}

/// Returns the instruction of GFX9 with these semantics, in an encoding of the same kind.
fn counterpart(row: &InstDesc) -> Option<(Arch, &'static InstDesc)> {
    let scalar = |format| matches!(format, Format::SOP1 | Format::SOP2 | Format::SOPC);
    [Arch::Gfx942, Arch::Gfx90a, Arch::Gfx908, Arch::Gfx906].into_iter().find_map(|arch| {
        let found = inst_descs().iter().find(|other| {
            other.supports(arch)
                && other.name == row.semantics
                && if scalar(row.format) { other.format == row.format } else { other.format.is_valu() }
        });
        found.map(|other| (arch, other))
    })
}

/// Returns the rows of `arch` that [`agrees_with_gfx9`] compares.
pub fn compared(arch: Arch) -> Vec<&'static InstDesc> {
    inst_descs()
        .iter()
        .filter(|row| row.supports(arch) && !EXCEPT.contains(&row.semantics) && !row.name.contains("movrel"))
        // Their lane masks go to EXEC alone on RDNA, to VCC too on GFX9.
        .filter(|row| !row.name.starts_with("v_cmpx_"))
        .filter(|row| encode(arch, row).is_some() && counterpart(row).is_some_and(|(arch, other)| encode(arch, other).is_some()))
        .collect()
}

/// Removes what may differ: RDNA keeps the other half of a register that gets 16 bits.
fn without_kept_halves(row: &InstDesc, old: u32, gfx9: u32, rdna: u32) -> (u32, u32) {
    let half = row.name.ends_with("16")
        || row.name.starts_with("v_cvt_f16_")
        || row.operands.iter().any(|operand| operand.field == Field::Dst && operand.is_half());
    if half && rdna >> 16 == old >> 16 { (gfx9 & 0xffff, rdna & 0xffff) } else { (gfx9, rdna) }
}

#[test]
fn agrees_with_gfx9() {
    for arch in RDNA {
        let rows = compared(arch);
        let mut wrong = BTreeSet::new();
        for row in &rows {
            let Some((gfx9, other)) = counterpart(row) else { continue };
            let (Some(theirs), Some(ours)) = (encode(gfx9, other), encode(arch, row)) else { continue };
            for seed in 0..8 {
                let exec = if seed & 1 == 0 { u64::MAX } else { 0x0f0f_5a5a_ffff_0001 };
                let old = run_on(arch, &[S_NOP], seed, exec).unwrap();
                let (expected, got) = match (run_on(gfx9, &theirs, seed, exec), run_on(arch, &ours, seed, exec)) {
                    (Ok(expected), Ok(got)) => (expected, got),
                    (expected, got) => {
                        wrong.insert(format!("{} ({:?}): {:?} | {:?}", row.name, row.format, expected.err(), got.err()));
                        break;
                    }
                };
                let vectors = (0..4).flat_map(|n| (0..64).map(move |lane| (n, lane)));
                let same = vectors.into_iter().all(|(n, lane)| {
                    let (a, b) = without_kept_halves(row, old.vgprs[n][lane], expected.vgprs[n][lane], got.vgprs[n][lane]);
                    a == b
                });
                if !same || (expected.sgprs, expected.scc, expected.exec) != (got.sgprs, got.scc, got.exec) {
                    wrong.insert(format!("{} ({:?}) against {} of {gfx9:?}", row.name, row.format, other.name));
                    break;
                }
            }
        }
        println!("{arch:?}: {} instructions agree with GFX9", rows.len() - wrong.len());
        assert!(rows.len() > 350, "{arch:?}: only {} rows are compared", rows.len());
        assert!(
            wrong.is_empty(),
            "{arch:?}: {} of {} differ:\n{}",
            wrong.len(),
            rows.len(),
            wrong.into_iter().collect::<Vec<_>>().join("\n")
        );
    }
}

/// `v_cmpx` writes to EXEC what `v_cmp` writes to VCC, and leaves VCC.
#[test]
fn compares_to_exec_agree_with_those_to_vcc() {
    for arch in RDNA {
        let mut count = 0;
        for row in inst_descs().iter().filter(|row| row.format == Format::VOP3 && row.supports(arch)) {
            let Some(rest) = row.name.strip_prefix("v_cmpx_") else { continue };
            count += 1;
            for seed in 0..4 {
                let exec = if seed & 1 == 0 { u64::MAX } else { 0x0f0f_5a5a_ffff_0001 };
                let run = |words: &[u32]| run_on(arch, words, seed, exec).unwrap();
                let old = run(&[S_NOP]);
                let to_vcc = run(&vop3(arch, &format!("v_cmp_{rest}")).words());
                let to_exec = run(&vop3_of(arch, row).words());
                let mask = u64::from(to_vcc.sgprs[14]) | u64::from(to_vcc.sgprs[15]) << 32;
                assert_eq!((to_exec.exec, &to_exec.sgprs), (mask, &old.sgprs), "{arch:?} {}", row.name);
            }
        }
        assert!(count > 80, "{arch:?}: {count}");
    }
}
