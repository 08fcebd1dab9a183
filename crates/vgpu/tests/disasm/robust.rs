//! Any dwords decode to an instruction or an error, never a panic.

use warpwave_vgpu::isa::{branch_target, decode, disassemble};
use warpwave_vgpu::{Arch, Target};

use super::generate::{Random, encodings, instruction};
use super::targets;

fn try_all(target: Target, words: &[u32]) {
    for length in 0..=words.len() {
        if let Ok(inst) = decode(target, &words[..length]) {
            assert!((1..=3).contains(&inst.words) && usize::from(inst.words) <= length, "{words:08x?}");
            let line = disassemble(target, &inst, None);
            assert!(line.starts_with(inst.desc.name) && line == line.trim() && !line.contains('\n'), "{words:08x?}: {line}");
            for pc in [0, 0x1000, u64::MAX - 3] {
                let _ = (disassemble(target, &inst, Some(pc)), branch_target(&inst, pc));
            }
        }
    }
}

#[test]
fn random_dwords_decode_or_fail() {
    let mut random = Random::new(warpwave_test_support::seed());
    for _ in 0..if warpwave_test_support::full_run() { 400_000 } else { 60_000 } {
        let words = [random.word(), random.word(), random.word()];
        targets().for_each(|target| try_all(target, &words));
    }
}

#[test]
fn every_opcode_with_random_fields_decodes_or_fails() {
    let mut random = Random::new(warpwave_test_support::seed());
    for target in targets() {
        for (format, _, opcodes) in encodings(target) {
            for opcode in 0..opcodes {
                let mut words = instruction(&mut random, target, format, opcode);
                try_all(target, &words);
                for fill in [0, u32::MAX] {
                    words[1..].fill(fill);
                    try_all(target, &words);
                }
            }
        }
    }
}

#[test]
fn truncated_instructions_are_errors() {
    // `s_mov_b32 s0, literal` and `v_fma_f32`, without their second dword.
    for word in [0xbe80_00ff, 0xd1cb_0000, 0x7e00_02f9, 0x7e00_02fa, 0xdc50_0000] {
        assert!(decode(Arch::Gfx90a, &[word]).is_err(), "{word:#x}");
        assert!(decode(Arch::Gfx90a, &[word, 0]).is_ok(), "{word:#x}");
    }
    assert!(decode(Arch::Gfx90a, &[]).is_err());
}
