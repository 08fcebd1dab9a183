//! A HIP program with `<<<…>>>`, compiled by clang and linked against the library, runs on the virtual GPU.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const SOURCE: &str = include_str!("programs/add.hip");

fn library_folder() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let found = own.ancestors().skip(1).take(2).find(|folder| folder.join("libamdhip64.so").exists());
    found.expect("cargo builds the library before its tests").to_owned()
}

/// Returns a clang that supports AMD GPUs.
fn clang() -> Option<PathBuf> {
    let chosen = std::env::var_os("WARPWAVE_CLANG").map(PathBuf::from);
    let names = ["clang-22", "clang-21", "clang-20", "clang-19", "clang-18", "clang-17", "clang"].map(PathBuf::from);
    chosen.into_iter().chain(names).find(|name| {
        let asked =
            Command::new(name).args(["--target=amdgcn-amd-amdhsa", "-mcpu=gfx942", "-nogpulib", "-x", "c", "-E", "/dev/null"]).output();
        asked.is_ok_and(|answer| answer.status.success())
    })
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Writes an offload bundle, because not every clang comes with `clang-offload-bundler`.
fn bundle(folder: &Path, clang: &Path, archs: &[&str]) -> PathBuf {
    let (mut table, mut data) = (b"__CLANG_OFFLOAD_BUNDLE__".to_vec(), Vec::new());
    table.extend((archs.len() as u64 + 1).to_le_bytes());
    let mut add = |name: &str, code: &[u8]| {
        for number in [4096 + data.len() as u64, code.len() as u64, name.len() as u64] {
            table.extend(number.to_le_bytes());
        }
        table.extend(name.as_bytes());
        data.extend(code);
        data.resize(data.len().next_multiple_of(4096), 0);
    };
    add("host-x86_64-unknown-linux--", &[]);
    for arch in archs {
        let object = folder.join(format!("{arch}.co"));
        let mut command = Command::new(clang);
        command.args([
            "-x",
            "hip",
            "--offload-device-only",
            "--no-gpu-bundle-output",
            "--no-default-config",
            "-O2",
            "-nogpuinc",
            "-nogpulib",
        ]);
        run(command.arg(format!("--offload-arch={arch}")).arg("-o").arg(&object).arg(folder.join("add.hip")));
        add(&format!("hipv4-amdgcn-amd-amdhsa--{arch}"), &std::fs::read(object).unwrap());
    }
    table.resize(4096, 0);
    table.extend(data);
    let path = folder.join("add.hipfb");
    std::fs::write(&path, table).unwrap();
    path
}

#[test]
fn a_hip_program_runs_on_the_virtual_gpu_of_each_architecture() {
    let clang = clang();
    warpwave_test_support::require(clang.is_some(), "clang for AMD GPUs (apt install clang-19)");
    let Some(clang) = clang else { return };
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path();
    std::fs::write(folder.join("add.hip"), SOURCE).unwrap();
    let fat = bundle(folder, &clang, &["gfx90a", "gfx942"]);
    let (object, program) = (folder.join("add.o"), folder.join("add"));
    let mut command = Command::new(&clang);
    command.args(["-x", "hip", "--offload-host-only", "--no-default-config", "-O1", "-fPIC", "-nogpuinc", "-nogpulib"]);
    command.args(["-Xclang", "-fcuda-include-gpubinary", "-Xclang"]).arg(fat);
    run(command.arg("-c").arg("-o").arg(&object).arg(folder.join("add.hip")));
    run(Command::new(&clang).arg("-o").arg(&program).arg(&object).arg("-L").arg(library_folder()).arg("-lamdhip64"));
    let go = |devices: &str| {
        let mut command = Command::new(&program);
        command.env("LD_LIBRARY_PATH", library_folder()).env("WARPWAVE_VGPU_DEVICES", devices);
        String::from_utf8(run(&mut command).stdout).unwrap()
    };
    for arch in ["gfx90a", "gfx942"] {
        let said = go(arch);
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines[..2], ["0: 1112 1112 105, base 7, 32 blocks", "too large: 9"], "{said}");
        assert!(lines[2].starts_with("700: kernel `") && lines[2].contains("outside"), "{said}");
    }
    // Without code for gfx908 the program reports the error.
    assert!(go("gfx908").contains("no code for gfx908") || !go("gfx908").starts_with("0:"), "{}", go("gfx908"));
}
