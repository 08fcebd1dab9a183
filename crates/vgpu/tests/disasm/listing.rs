//! Code objects: our disassembly against `llvm-objdump`.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use object::{Object, ObjectSection};
use warpwave_vgpu::disasm::Disassembly;
use warpwave_vgpu::isa::{branch_target, decode, disassemble};
use warpwave_vgpu::{Arch, Target, WaveSize};

use super::{llvm, targets_of};

const KERNELS: &str = include_str!("kernels.hip");

/// A line of `llvm-objdump`: address, dwords, text, and branch target.
struct Line {
    address: u64,
    words: Vec<u32>,
    text: String,
    to: Option<u64>,
}

fn compile(folder: &Path, target: Target) -> std::path::PathBuf {
    let (source, code) = (folder.join("kernels.hip"), folder.join(format!("kernels.{}.co", target.arch)));
    std::fs::write(&source, KERNELS).unwrap();
    let mut clang = Command::new("clang-19");
    clang.args(["-x", "hip", "--offload-device-only", "--no-gpu-bundle-output", "-O3", "-nogpuinc", "-nogpulib", "-std=c++17", "-w"]);
    if target.arch.is_rdna() && target.wave_size == WaveSize::Wave64 {
        clang.arg("-mwavefrontsize64");
    }
    clang.arg(format!("--offload-arch={}", target.arch)).arg("-o").arg(&code).arg(&source);
    let output = clang.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    code
}

fn dump(code: &Path, target: Target) -> Vec<Line> {
    let output = Command::new("llvm-objdump-19").arg("-d").args(llvm::wave_size(target)).arg(code).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let listing = String::from_utf8(output.stdout).unwrap();
    let mut symbols = HashMap::new();
    for line in listing.lines().filter(|line| line.ends_with(">:")) {
        let (address, name) = line.split_once(" <").unwrap();
        symbols.insert(name.trim_end_matches(">:").to_owned(), u64::from_str_radix(address, 16).unwrap());
    }
    let mut lines = Vec::new();
    for line in listing.lines() {
        let Some((text, rest)) = line.split_once("// ") else { continue };
        let (address, rest) = rest.split_once(": ").unwrap();
        let (words, to) = rest.split_once(" <").map_or((rest, None), |(words, to)| (words, Some(to.trim_end_matches('>'))));
        let to = to.map(|to| {
            let (name, distance) = to.split_once("+0x").unwrap_or((to, "0"));
            symbols[name] + u64::from_str_radix(distance, 16).unwrap()
        });
        let words = words.split_whitespace().map(|word| u32::from_str_radix(word, 16).unwrap()).collect();
        lines.push(Line { address: u64::from_str_radix(address, 16).unwrap(), words, text: text.trim().to_owned(), to });
    }
    lines
}

pub fn compare_code_object(arch: Arch) {
    let folder = tempfile::tempdir().unwrap();
    for target in targets_of(arch) {
        let path = compile(folder.path(), target);
        let bytes = std::fs::read(&path).unwrap();
        let file = object::File::parse(&bytes[..]).unwrap();
        let section = file.section_by_name(".text").unwrap();
        let code: Vec<u32> = section.data().unwrap().chunks_exact(4).map(|four| u32::from_le_bytes(four.try_into().unwrap())).collect();

        let theirs = dump(&path, target);
        // The library finds architecture and wave size in the file.
        let library = Disassembly::read(&bytes).unwrap();
        let texts: HashMap<u64, String> =
            library.functions.iter().flat_map(|function| function.instructions(arch)).map(|line| (line.address, line.text)).collect();
        assert_eq!(library.arch, arch);
        let (mut branches, mut next) = (0, 0);
        for line in &theirs {
            let at = usize::try_from(line.address - section.address()).unwrap() / 4;
            let inst = decode(target, &code[at..]).unwrap_or_else(|error| panic!("{arch} {:#x} {}: {error}", line.address, line.text));
            assert_eq!(&code[at..at + usize::from(inst.words)], &line.words[..], "{arch} {:#x} {}", line.address, line.text);
            assert_eq!(disassemble(target, &inst, None), line.text, "{arch} {:#x}", line.address);
            // Padding after a function belongs to none.
            assert!(texts.get(&line.address).is_none_or(|text| *text == line.text), "{arch} {:#x} {}", line.address, line.text);
            // Only zeros between functions are omitted.
            assert!(code[next..at].iter().all(|word| *word == 0), "{arch} {:#x}", line.address);
            next = at + usize::from(inst.words);
            if let Some(to) = line.to {
                assert_eq!(branch_target(&inst, line.address), Some(to), "{arch} {:#x} {}", line.address, line.text);
                assert!(disassemble(target, &inst, Some(line.address)).ends_with(&format!("{to:#x}")), "{}", line.text);
                branches += 1;
            }
        }
        assert!(code[next..].iter().all(|word| *word == 0), "{arch}: the listing ends early");
        println!("{arch} wave{}: {} instructions of a code object compared, {branches} branches", target.wave_size.lanes(), theirs.len());
        assert!(texts.len() > 800, "{arch}: {} instructions in functions", texts.len());
        assert!(theirs.len() > 1000 && branches > 10, "{arch}: {} instructions, {branches} branches", theirs.len());
    }
}
