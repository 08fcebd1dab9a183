//! Every implemented instruction has a test: it is named by one of the tests here, or belongs to a family whose names a test generates.

use super::asm::*;
use std::collections::BTreeSet;
use warpwave_vgpu::exec::TestWave;
use warpwave_vgpu::fault::Fault;
use warpwave_vgpu::isa::{Format, InstDesc, inst_descs};

/// The tests. Lists of names for one property only do not count, and are cut out below.
const TESTS: [&str; 13] = [
    include_str!("approximate.rs"),
    include_str!("compare.rs"),
    include_str!("control.rs"),
    include_str!("convert.rs"),
    include_str!("division.rs"),
    include_str!("float.rs"),
    include_str!("int.rs"),
    include_str!("lanes.rs"),
    include_str!("matrix.rs"),
    include_str!("memory.rs"),
    include_str!("packed.rs"),
    include_str!("scalar.rs"),
    include_str!("spaces.rs"),
];

/// Instructions of the table that are not implemented.
const UNIMPLEMENTED: [&str; 17] = [
    "s_cbranch_i_fork",
    "s_cbranch_g_fork",
    "s_cbranch_join",
    "s_rfe_b64",
    "s_rfe_restore_b64",
    "s_setvskip",
    "s_cbranch_cdbgsys",
    "s_cbranch_cdbguser",
    "s_cbranch_cdbgsys_or_user",
    "s_cbranch_cdbgsys_and_user",
    "s_endpgm_ordered_ps_done",
    "s_sethalt",
    "s_setkill",
    "s_sendmsghalt",
    "s_atc_probe",
    "s_atc_probe_buffer",
    "v_screen_partition_4se_b32",
];

/// Returns quoted names.
fn named() -> BTreeSet<&'static str> {
    let mut names = BTreeSet::new();
    for text in TESTS {
        let upper = text
            .find("fn upper_half_of_halves")
            .map_or(text.len()..text.len(), |start| start..start + text[start..].find("\n}\n").unwrap());
        for part in [&text[..upper.start], &text[upper.end..]] {
            names.extend(part.split('"').skip(1).step_by(2).filter(|name| name.starts_with(['s', 'v'])));
        }
    }
    names
}

/// Returns whether a test generates the name.
fn family(name: &str) -> bool {
    let all = |stems: &[&str], types: &[&str]| stems.iter().any(|stem| types.iter().any(|ty| name == format!("{stem}_{ty}")));
    let parts = |prefix: &str| name.strip_prefix(prefix);
    // `convert::eight_bit_floats_exhaustively`, `float::rounding_to_integers` and `mantissas_and_exponents`, `scalar::comparisons`.
    all(&["v_cvt_f32", "v_cvt_pk_f32"], &["fp8", "bf8"])
        || ["v_cvt_pk_fp8_f32", "v_cvt_pk_bf8_f32", "v_cvt_sr_fp8_f32", "v_cvt_sr_bf8_f32"].contains(&name)
        || all(&["v_trunc", "v_ceil", "v_floor", "v_rndne", "v_fract", "v_frexp_mant"], &["f16", "f32", "f64"])
        || ["s_cmp", "s_cmpk"].iter().any(|stem| {
            ["eq", "lg", "gt", "ge", "lt", "le"].iter().any(|relation| all(&[&format!("{stem}_{relation}")], &["i32", "u32"]))
        })
        || all(&["v_cvt_f32"], &["ubyte0", "ubyte1", "ubyte2", "ubyte3"])
        // `compare::every_relation` and `classes`, `matrix::every_layout_and_product`: every instruction of the table.
        || parts("v_cmp_").or(parts("v_cmpx_")).is_some()
        || parts("v_mfma_").or(parts("v_smfmac_")).is_some()
        // `spaces`: every operation, of 32 and 64 bits, in memory and in buffers.
        || parts("s_atomic_").or(parts("s_buffer_atomic_")).is_some()
}

/// Returns the instructions of the architectures that execute.
fn executable() -> impl Iterator<Item = &'static InstDesc> {
    inst_descs().iter().filter(|row| GFX9.into_iter().any(|arch| row.supports(arch)))
}

#[test]
fn every_instruction_has_a_test() {
    let named = named();
    let mut demanded = BTreeSet::new();
    let mut missing = BTreeSet::new();
    for row in executable() {
        let arithmetic = matches!(
            row.format,
            Format::VOP1
                | Format::VOP2
                | Format::VOP3
                | Format::VOPC
                | Format::VOP3P
                | Format::SOP1
                | Format::SOP2
                | Format::SOPC
                | Format::SOPK
                | Format::SOPP
                | Format::SMEM
        );
        // Scalar scratch instructions and cache hints: compilers do not emit them, and they are not implemented.
        let unimplemented =
            UNIMPLEMENTED.contains(&row.name) || row.name.starts_with("s_scratch_") || row.name.starts_with("s_dcache_discard");
        if !arithmetic || unimplemented {
            continue;
        }
        demanded.insert(row.name);
        if !named.contains(row.name) && !family(row.name) {
            missing.insert(row.name);
        }
    }
    println!("{} instructions, each with a test", demanded.len());
    assert!(demanded.len() > 800, "only {} instructions are looked for", demanded.len());
    assert!(missing.is_empty(), "{} without a test: {missing:?}", missing.len());
}

/// Unimplemented instructions fault with their name.
#[test]
fn unimplemented_instructions_fault() {
    for name in UNIMPLEMENTED {
        for row in executable().filter(|row| row.name == name) {
            let opcode = u32::from(row.opcode);
            let words = match row.format {
                Format::SOP1 => vec![0b1_0111_1101 << 23 | opcode << 8],
                Format::SOP2 => vec![0b10 << 30 | opcode << 23],
                Format::SOPC => vec![0b1_0111_1110 << 23 | opcode << 16],
                Format::SOPK => vec![0b1011 << 28 | opcode << 23],
                Format::SOPP => vec![0b1_0111_1111 << 23 | opcode << 16],
                Format::VOP1 => vec![0b0111111 << 25 | opcode << 9],
                Format::VOP3 => vec![0b110100 << 26 | opcode << 16, 0],
                Format::SMEM => vec![0b110000 << 26 | opcode << 18, 0],
                other => panic!("{name} in {other:?}"),
            };
            for arch in GFX9.into_iter().filter(|&arch| row.supports(arch)) {
                let fault = TestWave::new(arch).run(&words).unwrap_err();
                assert!(matches!(fault, Fault::Unsupported { .. }) && fault.to_string().contains(name), "{arch:?} {name}: {fault}");
            }
        }
    }
    assert!(having("v_screen_partition_4se_b32").len() == GFX9.len());
}
