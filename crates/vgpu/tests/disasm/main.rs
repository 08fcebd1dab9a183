//! The decoder and the disassembler against LLVM's, instruction by instruction.
//!
//! Needs `llvm-mc-19`, `llvm-objdump-19` and `clang-19`. Without them the tests are skipped, unless `WARPWAVE_REQUIRE_ALL=1`. Instructions are
//! random; `WARPWAVE_SEED` repeats a run, `WARPWAVE_TEST_FULL=1` tests many more.

mod generate;
mod listing;
mod llvm;
mod robust;

use std::collections::{BTreeMap, HashSet};

use generate::{Random, encodings, instruction};
use warpwave_test_support::{full_run, seed};
use warpwave_vgpu::arch::Generation;
use warpwave_vgpu::isa::{DecodeError, Extension, Field, Format, Half, Inst, InstDesc, decode, disassemble, flag, inst_descs, operand};
use warpwave_vgpu::{Arch, Target};

/// Returns every architecture with each of its wave sizes.
fn targets() -> impl Iterator<Item = Target> {
    Arch::ALL.into_iter().flat_map(targets_of)
}

/// The results of a comparison by encoding.
#[derive(Default)]
struct Tally {
    compared: BTreeMap<String, usize>,
    wrong: Vec<String>,
    kinds: BTreeMap<String, usize>,
}

impl Tally {
    /// Records a difference, but only a few of each kind.
    fn wrong(&mut self, kind: String, line: String) {
        let seen = self.kinds.entry(kind).or_default();
        *seen += 1;
        if *seen <= 2 {
            self.wrong.push(line);
        }
    }

    /// Fails on any difference, and when too few cases were compared.
    fn finish(self, what: &str, at_least: usize) {
        let total: usize = self.compared.values().sum();
        println!("{what}: {total} compared: {:?}", self.compared);
        let shown = self.wrong.iter().take(400).cloned().collect::<Vec<_>>().join("\n");
        let all: usize = self.kinds.values().sum();
        assert!(self.wrong.is_empty(), "{what}: {all} differences of {} kinds:\n{shown}", self.kinds.len());
        assert!(total >= at_least, "{what}: only {total} compared, {at_least} expected");
    }
}

/// Instructions of which LLVM accepts few random encodings.
const FEW_VALID_FIELDS: [&str; 2] = ["s_atc_probe", "s_atc_probe_buffer"];

/// Every opcode of every encoding with random fields, and random dwords.
fn cases(target: Target, random: &mut Random, each: usize) -> Vec<(Format, u32, Vec<u32>)> {
    let mut cases = Vec::new();
    for (format, _, opcodes) in encodings(target) {
        for opcode in 0..opcodes {
            let named = |row: &&InstDesc| row.supports(target.arch) && (row.format, u32::from(row.opcode)) == (format, opcode);
            let few = inst_descs().iter().find(named).is_some_and(|row| FEW_VALID_FIELDS.contains(&row.name));
            // Unknown opcodes are tried too: LLVM must not know them either.
            for n in 0..if few { 16 * each } else { each } {
                random.tame = n == 0;
                let words = instruction(random, target, format, opcode);
                match decode(target, &words) {
                    Ok(inst) => cases.push((format, opcode, words[..usize::from(inst.words)].to_vec())),
                    // It may have any size.
                    Err(_) => cases.extend((1..=words.len()).map(|size| (format, opcode, words[..size].to_vec()))),
                }
            }
        }
    }
    // Random dwords.
    for _ in 0..500 * each {
        let mut words = vec![random.word(), random.word(), random.word()];
        let inst = decode(target, &words);
        words.truncate(inst.map_or(2, |inst| usize::from(inst.words)));
        cases.push((inst.map_or(Format::SOPP, |inst| inst.desc.format), 0, words));
    }
    cases
}

fn hex(words: &[u32]) -> String {
    words.iter().map(|word| format!("{word:08x}")).collect::<Vec<_>>().join(" ")
}

/// Defines a test for each architecture.
macro_rules! on_each_arch {
    ($test:ident, $check:ident) => {
        mod $test {
            use warpwave_vgpu::Arch;

            on_each_arch!(@ $check gfx906 Gfx906 gfx908 Gfx908 gfx90a Gfx90a gfx942 Gfx942);
            on_each_arch!(@ $check gfx1010 Gfx1010 gfx1030 Gfx1030 gfx1100 Gfx1100 gfx1201 Gfx1201);
        }
    };
    (@ $check:ident $($name:ident $arch:ident)*) => {
        $(
            #[test]
            fn $name() {
                if super::llvm::available() {
                    super::$check(Arch::$arch);
                }
            }
        )*
    };
}

on_each_arch!(every_instruction_disassembles_as_in_llvm, compare_disassembly);
on_each_arch!(reassembled_text_is_the_same_instruction, compare_assembly);
on_each_arch!(a_compiled_code_object_disassembles_as_in_llvm, compare_code_object);

use listing::compare_code_object;

/// Returns an architecture with each of its wave sizes.
fn targets_of(arch: Arch) -> impl Iterator<Item = Target> {
    arch.wave_sizes().iter().map(move |&wave_size| Target { arch, wave_size })
}

/// Returns why LLVM's text of an instruction is not ours.
fn known_difference(target: Target, inst: &Inst, words: &[u32], ours: &str, theirs: &str) -> Option<&'static str> {
    let name = theirs.split_whitespace().next().unwrap_or_default();
    let arch = target.arch;
    if theirs.contains("sext(") && !name.ends_with("_sdwa") {
        return Some("LLVM prints a negated integer source of `v_ldexp_f32` and similar, which has no effect");
    }
    if name.starts_with("v_ldexp_f16") && inst.desc.format == Format::VOP3 && (words[0] >> 9 | words[1] >> 30) & 1 != 0 {
        return Some("LLVM prints abs and neg of the exponent of `v_ldexp_f16`, an integer, which have no effect");
    }
    let ignored = match arch.generation() {
        Generation::Gfx9 | Generation::Gfx11 => 0x1000,
        Generation::Gfx10 => 0x800,
        Generation::Gfx12 => 0,
    };
    if inst.desc.format == Format::FLAT && words[0] & ignored != 0 {
        return Some("hardware ignores the highest bit of a FLAT offset; LLVM prints it");
    }
    if ours.replace('|', "") == theirs.replace('|', "") && name == "v_cndmask_b32_dpp" {
        return Some("LLVM misplaces a bar of `|v0|` before the mask of `v_cndmask_b32_dpp`");
    }
    if inst.desc.format == Format::VOP1 && name.starts_with("v_cvt_pk_f32_") && inst.op_sel != 0 {
        return Some("LLVM 19 takes the 16-bit source of `v_cvt_pk_f32_fp8` for a whole register");
    }
    if matches!(inst.ext, Extension::Dual(_)) && theirs.contains("dot2acc") && (theirs.contains("fmamk") || theirs.contains("fmaak")) {
        let literal = "LLVM prints the literal that `v_dual_dot2acc_f32_f16` shares with `fmamk` or `fmaak` as an f32";
        let differs = |(ours, theirs): &(&str, &str)| ours != theirs;
        return (ours.split(", ").zip(theirs.split(", ")).filter(differs).count() == 1).then_some(literal);
    }
    let halves = inst.desc.operands.iter().any(|operand| operand.half == Half::Named);
    if halves && inst.op_sel != 0 && ours.replace(".h", "") == theirs {
        return Some("LLVM 19 drops op_sel of instructions whose registers later versions print as `v0.h`");
    }
    None
}

/// Opcodes that LLVM 19 does not disassemble by default: 16-bit registers are an option there, or it lacks them. From AMD's ISA guides.
const NOT_IN_LLVM: [(Format, &str); 2] = [(Format::VOP1, "v_swap_b16"), (Format::VOP3, "v_mov_b16")];

fn compare_disassembly(arch: Arch) {
    let mut random = Random::new(seed());
    let each = if full_run() { 100 } else { 8 };
    let mut tally = Tally::default();
    let mut seen = HashSet::new();
    for target in targets_of(arch) {
        let cases = cases(target, &mut random, each);
        let words: Vec<&[u32]> = cases.iter().map(|(.., words)| &words[..]).collect();
        let theirs = llvm::disassemble(target, &words);
        for ((format, opcode, words), theirs) in cases.iter().zip(theirs) {
            let Some(theirs) = theirs else { continue };
            let lanes = target.wave_size.lanes();
            let at = format!("{arch} wave{lanes} {format:?} {opcode} {}: ", hex(words));
            let name = theirs.split_whitespace().next().unwrap_or_default();
            match decode(target, words) {
                Ok(inst) => {
                    let ours = disassemble(target, &inst, None);
                    seen.insert((inst.desc.format, inst.desc.opcode));
                    if let Some(second) = dual(&inst) {
                        seen.insert((second.format, second.opcode));
                    }
                    *tally.compared.entry(format!("{format:?}")).or_default() += 1;
                    if ours != theirs && known_difference(target, &inst, words, &ours, &theirs).is_none() {
                        tally.wrong(name.to_owned(), format!("{at}ours {ours}   theirs {theirs}"));
                    }
                }
                Err(DecodeError::GraphicsOnly(_)) => {}
                // LLVM takes a literal for the scalar offset of a buffer instruction; hardware has none.
                Err(DecodeError::ReservedOperand(_, operand::LITERAL)) if *format == Format::MUBUF => {}
                Err(DecodeError::UnknownOpcode(..)) => tally.wrong(format!("missing {name}"), format!("{at}missing: {theirs}")),
                Err(error) => tally.wrong(format!("error {name}"), format!("{at}{error}: {theirs}")),
            }
        }
    }
    let rows = inst_descs().iter().filter(|row| row.supports(arch) && !seen.contains(&(row.format, row.opcode)));
    let rows = rows.filter(|row| !NOT_IN_LLVM.contains(&(row.format, row.name)));
    let unseen: Vec<String> = rows.map(|row| format!("{:?} {}", row.format, row.name)).collect();
    println!("{arch}: {} opcodes compared", seen.len());
    tally.finish(&format!("{arch}: disassembled"), if full_run() { 80_000 } else { 6_000 });
    assert!(unseen.is_empty(), "{arch}: {} opcodes were not compared: {unseen:?}", unseen.len());
}

/// Returns the row of a dual-issue instruction's second operation.
fn dual(inst: &Inst) -> Option<&'static InstDesc> {
    match inst.ext {
        Extension::Dual(second) => Some(second.desc),
        _ => None,
    }
}

fn compare_assembly(arch: Arch) {
    let mut random = Random::new(seed());
    let each = if full_run() { 20 } else { 2 };
    let mut tally = Tally::default();
    for target in targets_of(arch) {
        let mut lines = Vec::new();
        for (format, _, words) in cases(target, &mut random, each) {
            // A literal may print like an inline constant; some atomics lose their `scc` or `dlc`.
            if let Ok(inst) = decode(target, &words)
                && inst.flags & flag::SC1 == 0
                // LLVM encodes 5 bits of the immediate of prefetches and probes.
                && !(inst.desc.registers(Field::DstImm) > 0 && inst.dst > 31)
                && !(inst.flags & flag::DLC != 0 && inst.desc.name.starts_with("buffer_atomic_"))
                && (inst.literal == 0 || inst.literal & 0xffff > 64 && inst.literal < u32::MAX - 16)
                && inst.literal != 0x3e22_f983
            {
                lines.push((format, inst.desc, disassemble(target, &inst, None)));
            }
        }
        // LLVM encodes some of these differently, with the same effect.
        lines.retain(|(.., line)| !line.contains("BITMASK_PERM"));
        // LLVM's assembler encodes other registers than m0 as a number, and drops neg of the products.
        lines.retain(|(.., line)| !line.contains("barrier"));
        lines.retain(|(.., line)| !line.starts_with("v_dot4_f32_") || !line.contains("neg_"));
        let encoded = llvm::assemble(target, lines.iter().map(|(.., line)| &line[..]));
        for ((format, row, line), words) in lines.iter().zip(encoded) {
            let Some(words) = words else { continue };
            *tally.compared.entry(format!("{format:?}")).or_default() += 1;
            match decode(target, &words) {
                Ok(inst) => {
                    let again = disassemble(target, &inst, None);
                    if inst.desc.name != row.name || again != *line || usize::from(inst.words) != words.len() {
                        tally.wrong(row.name.to_owned(), format!("{arch} {line}: {} is {again}", hex(&words)));
                    }
                }
                Err(error) => tally.wrong(row.name.to_owned(), format!("{arch} {line}: {}: {error}", hex(&words))),
            }
        }
    }
    tally.finish(&format!("{arch}: assembled"), if full_run() { 15_000 } else { 1_000 });
}
