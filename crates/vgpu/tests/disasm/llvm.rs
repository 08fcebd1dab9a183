//! LLVM's tools as a reference.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

use warpwave_vgpu::arch::Generation;
use warpwave_vgpu::{Target, WaveSize};

const TOOLS: [&str; 3] = ["llvm-mc-19", "llvm-objdump-19", "clang-19"];

/// The separator instructions hold the case's number, from here on.
const MARK: u32 = 0x1000_0000;

/// Returns whether the tools are installed.
pub fn available() -> bool {
    let runs = |tool: &&str| Command::new(tool).arg("--version").output().is_ok_and(|output| output.status.success());
    TOOLS.iter().all(|tool| warpwave_test_support::require(runs(tool), &format!("{tool} (apt install llvm-19 clang-19)")))
}

/// Returns the option that selects the wave size.
pub fn wave_size(target: Target) -> Option<&'static str> {
    target.arch.is_rdna().then_some(match target.wave_size {
        WaveSize::Wave32 => "--mattr=+wavefrontsize32,-wavefrontsize64",
        WaveSize::Wave64 => "--mattr=-wavefrontsize32,+wavefrontsize64",
    })
}

/// Runs `llvm-mc`; returns stdout and stderr.
fn mc(target: Target, mode: &[&str], input: String) -> (String, String) {
    let mut command = Command::new("llvm-mc-19");
    command.args(mode).args(["-triple=amdgcn-amd-amdhsa", &format!("-mcpu={}", target.arch)]);
    command.args(wave_size(target));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Returns the input line that a message refers to.
fn line_of(message: &str) -> Option<usize> {
    message.strip_prefix("<stdin>:")?.split(':').next()?.parse().ok()
}

fn bytes(words: &[u32]) -> String {
    words.iter().flat_map(|word| word.to_le_bytes()).map(|byte| format!("{byte:#04x}")).collect::<Vec<_>>().join(",")
}

/// Returns the text of each case that LLVM disassembles to exactly one instruction without a warning.
pub fn disassemble(target: Target, cases: &[&[u32]]) -> Vec<Option<String>> {
    cases.chunks(5000).flat_map(|chunk| some(target, chunk)).collect()
}

/// LLVM crashes on a few invalid encodings: then each half is tried separately.
fn some(target: Target, cases: &[&[u32]]) -> Vec<Option<String>> {
    if let Some(answers) = batch(target, cases) {
        return answers;
    }
    if let [one] = cases {
        println!("llvm-mc dies of {} {one:08x?}", target.arch);
        return vec![None];
    }
    let (left, right) = cases.split_at(cases.len() / 2);
    [some(target, left), some(target, right)].concat()
}

fn batch(target: Target, cases: &[&[u32]]) -> Option<Vec<Option<String>>> {
    // `s_mov_b32 s101, literal`.
    let separator = if target.arch.generation() == Generation::Gfx10 { 0xbee5_03ff } else { 0xbee5_00ff };
    let mut input = String::new();
    for (words, mark) in cases.iter().zip(MARK..) {
        // Brackets are disassembled separately, so that a case cannot affect the next.
        _ = writeln!(input, "[{}]\n[{}]", bytes(words), bytes(&[separator, mark]));
    }
    let (out, err) = mc(target, &["--disassemble"], input);
    let mut refused = vec![false; cases.len()];
    err.lines().filter_map(line_of).for_each(|line| refused[(line - 1) / 2] = true);
    let mut answers = Vec::new();
    let mut lines = Vec::new();
    for line in out.lines().map(str::trim).filter(|line| !line.starts_with('.') && !line.is_empty()) {
        if line == format!("s_mov_b32 s101, {:#x}", MARK + answers.len() as u32) {
            let one = lines.len() == 1 && !refused[answers.len()] && !lines.iter().any(|line: &&str| line.contains("/*"));
            answers.push(one.then(|| lines[0].to_owned()));
            lines.clear();
        } else {
            lines.push(line);
        }
    }
    (answers.len() == cases.len()).then_some(answers)
}

/// Returns the dwords that each line assembles to, if it does.
pub fn assemble<'a>(target: Target, lines: impl Iterator<Item = &'a str>) -> Vec<Option<Vec<u32>>> {
    let mut input = String::new();
    let mut count = 0;
    for line in lines {
        _ = writeln!(input, "{line}\ns_mov_b32 s101, {:#x}", MARK + count);
        count += 1;
    }
    let (out, _) = mc(target, &["--assemble", "--show-encoding"], input);
    let mut answers = Vec::new();
    let mut found = None;
    for line in out.lines().map(str::trim) {
        let Some((_, encoding)) = line.split_once("encoding: [") else { continue };
        if line.starts_with(&format!("s_mov_b32 s101, {:#x} ", MARK + answers.len() as u32)) {
            answers.push(found.take());
            continue;
        }
        let bytes: Option<Vec<u8>> =
            encoding.trim_end_matches(']').split(',').map(|byte| u8::from_str_radix(byte.trim_start_matches("0x"), 16).ok()).collect();
        found = bytes.map(|bytes| bytes.chunks_exact(4).map(|four| u32::from_le_bytes(four.try_into().unwrap())).collect());
    }
    assert_eq!(answers.len(), count as usize, "llvm-mc lost count");
    answers
}
