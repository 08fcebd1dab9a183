//! `warpwave disasm` on the embedded bundle; needs no compiler.

use std::ffi::OsString;
use std::path::PathBuf;

use serde_json::Value;
use warpwave_jit::Bundle;
use warpwave_test_support::workspace_root;
use warpwave_vgpu::Arch;
use warpwave_vgpu::isa::{decode, disassemble};

/// Exit code and output of a command line.
struct Answer {
    code: u8,
    out: String,
    err: String,
}

fn warpwave(line: &[&str]) -> Answer {
    let args = ["warpwave", "disasm"].iter().chain(line).map(OsString::from);
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = warpwave_cli::main(args, warpwave::gpu::Devices::default, &mut out, &mut err);
    Answer { code, out: String::from_utf8(out).unwrap(), err: String::from_utf8(err).unwrap() }
}

fn bundle_file() -> PathBuf {
    workspace_root().join("examples/kernels/vector_add.wwb")
}

/// Returns the code for a target from the bundle.
fn code(target: &str) -> Vec<u8> {
    let bundle = Bundle::from_bytes(&std::fs::read(bundle_file()).unwrap()).unwrap();
    let part = bundle.parts.iter().find(|part| part.target.to_string() == target);
    part.unwrap_or_else(|| panic!("no {target} in the bundle")).code.to_vec()
}

/// Returns code for gfx1102, which the disassembler does not know. The bundle has none: that of gfx1100 gets the name and the number.
fn unknown_code() -> Vec<u8> {
    const E_FLAGS: usize = 48;
    const MACH_GFX1102: u8 = 0x47;
    let mut code = code("gfx1100");
    code[E_FLAGS] = MACH_GFX1102;
    while let Some(at) = code.windows(7).position(|window| window == b"gfx1100") {
        code[at + 6] = b'2';
    }
    code
}

/// Writes a temporary file.
fn file(folder: &tempfile::TempDir, name: &str, bytes: &[u8]) -> String {
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    path.display().to_string()
}

/// An offload bundle as clang writes it: an empty entry for the host, then the others.
fn offload_bundle(parts: &[(&str, &[u8])]) -> Vec<u8> {
    let names: Vec<String> = parts.iter().map(|(target, _)| format!("hipv4-amdgcn-amd-amdhsa--{target}")).collect();
    let mut entries = vec![("host-x86_64-unknown-linux-gnu-", &[][..])];
    entries.extend(names.iter().map(String::as_str).zip(parts.iter().map(|(_, code)| *code)));
    let mut table = b"__CLANG_OFFLOAD_BUNDLE__".to_vec();
    table.extend((entries.len() as u64).to_le_bytes());
    let mut data = Vec::new();
    for (name, code) in &entries {
        table.extend((4096 + data.len() as u64).to_le_bytes());
        table.extend((code.len() as u64).to_le_bytes());
        table.extend((name.len() as u64).to_le_bytes());
        table.extend(name.as_bytes());
        data.extend_from_slice(code);
    }
    table.resize(4096, 0);
    table.extend(data);
    table
}

#[test]
fn a_code_object_is_listed_with_addresses_words_and_branch_targets() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder, "add.hsaco", &code("gfx90a"));
    let answer = warpwave(&[&path]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    assert!(answer.out.starts_with(&format!("{path}: gfx90a\n")), "{}", answer.out);
    assert!(answer.out.contains(" <vector_add>:\n    // kernel: "), "{}", answer.out);
    for words in ["s_load_dword", "global_load_dword", "v_add_f32_e32", "s_endpgm", "BF810000", " <vector_add+0x"] {
        assert!(answer.out.contains(words), "{words} is not in: {}", answer.out);
    }
    assert!(!answer.out.contains(".long"), "{}", answer.out);
}

#[test]
fn json_holds_every_word_and_its_text() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder, "add.hsaco", &code("gfx942"));
    let answer = warpwave(&[&path, "--json", "--kernel", "vector_add"]);
    let value: Value = serde_json::from_str(&answer.out).unwrap();
    assert!(value[0]["target"].as_str().unwrap().starts_with("gfx942"), "{value}");
    let function = &value[0]["functions"][0];
    assert_eq!(function["name"], "vector_add");
    assert!(function["kernel"]["vgprs"].as_u64().unwrap() >= 4 && function["kernel"]["argument_bytes"].as_u64().unwrap() >= 28);
    let mut next = function["address"].as_u64().unwrap();
    let instructions = function["instructions"].as_array().unwrap();
    assert!(instructions.len() > 10, "{function}");
    for line in instructions {
        assert_eq!(line["address"].as_u64(), Some(next));
        let words: Vec<u32> = line["words"].as_array().unwrap().iter().map(|word| word.as_u64().unwrap() as u32).collect();
        assert_eq!(line["text"], disassemble(Arch::Gfx942, &decode(Arch::Gfx942, &words).unwrap(), None));
        next += 4 * words.len() as u64;
    }
    assert_eq!(instructions.iter().filter(|line| !line["target"].is_null()).count(), 1, "{function}");
}

#[test]
fn bundles_are_listed_for_every_supported_architecture() {
    let folder = tempfile::tempdir().unwrap();
    let ours = bundle_file().display().to_string();
    let parts = [("gfx90a:xnack-", code("gfx90a")), ("gfx942", code("gfx942")), ("gfx1102", unknown_code())];
    let bytes = offload_bundle(&parts.iter().map(|(name, code)| (*name, &code[..])).collect::<Vec<_>>());
    let clangs = file(&folder, "add.hipfb", &bytes);
    for (path, skipped) in [(&ours, "sm_90"), (&clangs, "gfx1102")] {
        let answer = warpwave(&[path]);
        assert_eq!(answer.code, 0, "{}", answer.err);
        assert!(answer.out.contains(": gfx90a") && answer.out.contains(": gfx942"), "{}", answer.out);
        assert!(answer.err.contains("skipped unsupported targets") && answer.err.contains(skipped), "{}", answer.err);
        let one = warpwave(&[path, "--arch", "gfx942"]);
        assert_eq!((one.code, one.err.as_str()), (0, ""));
        assert!(one.out.contains(": gfx942") && !one.out.contains(": gfx90a"), "{}", one.out);
    }
}

#[test]
fn unsupported_input_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let good = code("gfx90a");
    let hsaco = file(&folder, "add.hsaco", &good);
    let other = file(&folder, "other.hsaco", &unknown_code());
    let text = file(&folder, "kernel.cu", b"__global__ void k() {}");
    let compressed = file(&folder, "compressed.hipfb", b"CCOB\x02\0\x01\0");
    let cut = file(&folder, "cut.hsaco", &good[..200]);
    let host = std::env::current_exe().unwrap().display().to_string();
    let cases: [(&[&str], u8, &[&str]); 9] = [
        (&["missing.hsaco"], 1, &["missing.hsaco"]),
        (&[&text], 1, &["kernel.cu", "unknown file format"]),
        (&[&compressed], 1, &["compressed.hipfb", "--no-offload-compress"]),
        (&[&cut], 1, &["cut.hsaco"]),
        (&[&host], 1, &["expected an AMD GPU code object"]),
        (&[&other], 1, &["gfx1102", "gfx90a"]),
        (&[&hsaco, "--kernel", "nonsense"], 1, &["nonsense", "vector_add"]),
        (&[&hsaco, "--arch", "gfx942"], 1, &["gfx90a", "gfx942"]),
        (&[&hsaco, "--arch", "gfx1102"], 2, &["gfx1102", "gfx942"]),
    ];
    for (line, code, words) in cases {
        let answer = warpwave(line);
        assert_eq!((answer.code, answer.out.as_str()), (code, ""), "{line:?}: {}", answer.err);
        for word in words {
            assert!(answer.err.contains(word), "{line:?} should name {word}: {}", answer.err);
        }
    }
    assert_eq!(warpwave(&[]).code, 2);
}

#[test]
fn corrupt_files_never_panic() {
    let folder = tempfile::tempdir().unwrap();
    let elf = code("gfx90a");
    let bundle = offload_bundle(&[("gfx90a", &elf)]);
    for (name, bytes) in [("damaged.hsaco", &elf), ("damaged.hipfb", &bundle)] {
        for n in (0..bytes.len()).step_by(bytes.len() / 60) {
            let path = file(&folder, name, &bytes[..n]);
            assert!(warpwave(&[&path]).code <= 1, "{name} cut at {n}");
            let mut changed = bytes.clone();
            changed[n] ^= 0xff;
            changed[n / 16] ^= 0x80;
            let path = file(&folder, name, &changed);
            assert!(warpwave(&[&path]).code <= 1, "{name} changed at {n}");
        }
    }
}
