//! The decoder and the disassembler against LLVM's, instruction by instruction.
//!
//! Needs `llvm-mc-19`, `llvm-objdump-19` and `clang-19`. Without them the tests are skipped, unless `WARPWAVE_REQUIRE_ALL=1`. Instructions are
//! random; `WARPWAVE_SEED` repeats a run, `WARPWAVE_TEST_FULL=1` tests many more.

mod generate;
mod listing;
mod llvm;
mod robust;

use std::collections::{BTreeMap, HashSet};

use generate::{FORMATS, Random, instruction};
use warpwave_test_support::{full_run, seed};
use warpwave_vgpu::Arch;
use warpwave_vgpu::isa::{DecodeError, Format, decode, disassemble, flag, inst_descs};

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
        for (format, ..) in FORMATS {
            assert!(self.compared.contains_key(&format!("{format:?}")), "{what}: no {format:?} was compared");
        }
    }
}

/// Every opcode of every encoding with random fields, and random dwords.
fn cases(arch: Arch, random: &mut Random, each: usize) -> Vec<(Format, u32, Vec<u32>)> {
    let mut cases = Vec::new();
    for (format, _, opcodes) in FORMATS {
        for opcode in 0..opcodes {
            // Unknown opcodes are tried too: LLVM must not know them either.
            for n in 0..each {
                random.tame = n == 0;
                let mut words = instruction(random, arch, format, opcode);
                if let Ok(inst) = decode(arch, &words) {
                    words.truncate(usize::from(inst.words));
                }
                cases.push((format, opcode, words));
            }
        }
    }
    // Random dwords.
    for _ in 0..500 * each {
        let mut words = vec![random.word(), random.word()];
        let inst = decode(arch, &words);
        words.truncate(inst.map_or(2, |inst| usize::from(inst.words)));
        cases.push((inst.map_or(Format::SOPP, |inst| inst.desc.format), 0, words));
    }
    cases
}

fn hex(words: &[u32]) -> String {
    words.iter().map(|word| format!("{word:08x}")).collect::<Vec<_>>().join(" ")
}

#[test]
fn every_instruction_disassembles_as_in_llvm() {
    if !llvm::available() {
        return;
    }
    let mut random = Random::new(seed());
    let each = if full_run() { 100 } else { 8 };
    let mut tally = Tally::default();
    let mut seen = HashSet::new();
    for arch in Arch::ALL {
        let cases = cases(arch, &mut random, each);
        let words: Vec<&[u32]> = cases.iter().map(|(.., words)| &words[..]).collect();
        let theirs = llvm::disassemble(arch, &words);
        for ((format, opcode, words), theirs) in cases.iter().zip(theirs) {
            let Some(theirs) = theirs else { continue };
            let at = format!("{arch} {format:?} {opcode} {}: ", hex(words));
            let name = theirs.split_whitespace().next().unwrap_or_default();
            if theirs.contains("sext(") && !name.ends_with("_sdwa") {
                // LLVM prints a negated integer source of `v_ldexp_f32` and similar, which has no effect.
                continue;
            }
            match decode(arch, words) {
                // Hardware ignores bit 12 of a FLAT offset; LLVM prints it.
                Ok(inst) if inst.desc.format == Format::FLAT && words[0] & 0x1000 != 0 => {}
                Ok(inst) => {
                    let ours = disassemble(arch, &inst, None);
                    seen.insert((arch, inst.desc.format, inst.desc.opcode));
                    *tally.compared.entry(format!("{format:?}")).or_default() += 1;
                    if ours != theirs {
                        tally.wrong(name.to_owned(), format!("{at}ours {ours}   theirs {theirs}"));
                    }
                }
                Err(DecodeError::GraphicsOnly(_)) => {}
                Err(DecodeError::UnknownOpcode(..)) => tally.wrong(format!("missing {name}"), format!("{at}missing: {theirs}")),
                Err(error) => tally.wrong(format!("error {name}"), format!("{at}{error}: {theirs}")),
            }
        }
    }
    let mut unseen = Vec::new();
    for arch in Arch::ALL {
        let rows = inst_descs().iter().filter(|row| row.supports(arch) && !seen.contains(&(arch, row.format, row.opcode)));
        unseen.extend(rows.map(|row| format!("{arch} {:?} {}", row.format, row.name)));
    }
    println!("{} opcodes compared", seen.len());
    assert!(unseen.is_empty(), "{} opcodes were not compared: {unseen:?}", unseen.len());
    tally.finish("disassembled", if full_run() { 250_000 } else { 20_000 });
}

#[test]
fn reassembled_text_is_the_same_instruction() {
    if !llvm::available() {
        return;
    }
    let mut random = Random::new(seed());
    let each = if full_run() { 20 } else { 2 };
    let mut tally = Tally::default();
    for arch in Arch::ALL {
        let mut lines = Vec::new();
        for (format, _, words) in cases(arch, &mut random, each) {
            // A literal may print like an inline constant; some atomics lose their `scc`.
            if let Ok(inst) = decode(arch, &words)
                && inst.flags & flag::SC1 == 0
                && (inst.literal == 0 || inst.literal & 0xffff > 64 && inst.literal < u32::MAX - 16)
                && inst.literal != 0x3e22_f983
            {
                lines.push((format, inst.desc, disassemble(arch, &inst, None)));
            }
        }
        // LLVM encodes some of these differently, with the same effect.
        lines.retain(|(.., line)| !line.contains("BITMASK_PERM"));
        let encoded = llvm::assemble(arch, lines.iter().map(|(.., line)| &line[..]));
        for ((format, row, line), words) in lines.iter().zip(encoded) {
            let Some(words) = words else { continue };
            *tally.compared.entry(format!("{format:?}")).or_default() += 1;
            match decode(arch, &words) {
                Ok(inst) => {
                    let again = disassemble(arch, &inst, None);
                    if inst.desc.name != row.name || again != *line || usize::from(inst.words) != words.len() {
                        tally.wrong(row.name.to_owned(), format!("{arch} {line}: {} is {again}", hex(&words)));
                    }
                }
                Err(error) => tally.wrong(row.name.to_owned(), format!("{arch} {line}: {}: {error}", hex(&words))),
            }
        }
    }
    tally.finish("assembled", if full_run() { 60_000 } else { 4_000 });
}
