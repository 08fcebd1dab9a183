//! Our headers' exchanges between lanes, and PTX translated for HIP, run on the host with a thread for each lane and compared with plain
//! loops.
//!
//! What a GPU's instructions do is not in question here; which lane holds, sends and gets what is.

use std::path::Path;
use std::process::Command;

use warpwave_test_support::require;

const HEADERS: &[&str] = &[
    "warpwave/beside_hip.h",
    "warpwave/beside_hip_names.h",
    "warpwave/traits.h",
    "cooperative_groups.h",
    "cooperative_groups/reduce.h",
    "cooperative_groups/scan.h",
    "mma.h",
];

#[test]
fn groups_and_matrix_tiles_compute_what_loops_compute() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().unwrap();
    for name in HEADERS {
        let to = folder.path().join(name);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(root.join("src/headers").join(name), to).unwrap();
    }
    // The element types of these are the GPU's; others stand for them.
    for name in ["cuda_bf16.h", "cuda_fp16.h"] {
        std::fs::write(folder.path().join(name), "").unwrap();
    }
    let ptx = std::fs::read(root.join("tests/host/ptx.cu")).unwrap();
    let ptx = warpwave_hipify::kernels::translate_ptx(&warpwave_hipify::lex::Lexed::new(&ptx).unwrap());
    assert!(!ptx.text.windows(4).any(|window| window == b"asm("), "{}", String::from_utf8_lossy(&ptx.text));
    std::fs::write(folder.path().join("ptx.inc"), ptx.text).unwrap();
    let clang = std::env::var_os("WARPWAVE_CLANG").unwrap_or_else(|| "clang-19".into());
    let compile = |source: &Path, program: &Path| {
        let mut command = Command::new(&clang);
        command.args(["-x", "c++", "-std=c++20", "-O1", "-w", "-pthread"]).arg("-I").arg(folder.path());
        command.arg(source).arg("-lstdc++").arg("-o").arg(program).output()
    };
    let (probe, program) = (folder.path().join("probe.cpp"), folder.path().join("lanes"));
    std::fs::write(&probe, "#include <barrier>\n#include <thread>\nint main() { std::thread([] {}).join(); }\n").unwrap();
    if !require(compile(&probe, &program).is_ok_and(|output| output.status.success()), "clang that compiles programs for this machine") {
        return;
    }
    let made = compile(&root.join("tests/host/lanes.cpp"), &program).unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let ran = Command::new(&program).output().unwrap();
    assert!(ran.status.success() && ran.stdout == b"all right\n", "{}", String::from_utf8_lossy(&ran.stdout));
}
