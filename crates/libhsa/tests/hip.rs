//! A HIP program runs with AMD's own HIP runtime, unmodified, over the library.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const CHECKS: usize = 14;

/// Returns the library that was built for this test.
fn library() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let found = own.ancestors().skip(1).take(2).map(|folder| folder.join("libhsa_runtime64.so")).find(|file| file.exists());
    found.expect("cargo builds the library before its tests")
}

/// Returns a clang that supports AMD GPUs.
fn clang() -> Option<PathBuf> {
    let chosen = std::env::var_os("WARPWAVE_CLANG").map(PathBuf::from);
    let names = ["clang-20", "clang-19", "clang-18", "clang-17", "clang-16", "clang-15", "clang"].map(PathBuf::from);
    chosen.into_iter().chain(names).find(|name| {
        let mut command = Command::new(name);
        command.args(["--target=amdgcn-amd-amdhsa", "-mcpu=gfx90a", "-nogpulib", "-x", "c", "-E", "/dev/null"]);
        command.output().is_ok_and(|output| output.status.success())
    })
}

/// Returns AMD's HIP runtime and the folder of its headers, as the distribution or AMD installs them.
fn hip() -> Option<(PathBuf, PathBuf)> {
    let places = [("/usr/lib/x86_64-linux-gnu", "/usr/include"), ("/opt/rocm/lib", "/opt/rocm/include")];
    let files = places.map(|(library, headers)| (Path::new(library).join("libamdhip64.so"), PathBuf::from(headers)));
    files.into_iter().find(|(library, headers)| library.exists() && headers.join("hip/hip_runtime_api.h").exists())
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{said}\n{errors}", output.status);
    output
}

/// Writes an offload bundle, because not every clang comes with `clang-offload-bundler`.
fn bundle(parts: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let (mut table, mut data) = (b"__CLANG_OFFLOAD_BUNDLE__".to_vec(), Vec::new());
    table.extend((parts.len() as u64 + 1).to_le_bytes());
    let mut add = |name: &str, code: &[u8]| {
        [4096 + data.len() as u64, code.len() as u64, name.len() as u64].iter().for_each(|n| table.extend(n.to_le_bytes()));
        table.extend(name.as_bytes());
        data.extend(code);
        data.resize(data.len().next_multiple_of(4096), 0);
    };
    add("host-x86_64-unknown-linux--", &[]);
    parts.iter().for_each(|(arch, code)| add(&format!("hipv4-amdgcn-amd-amdhsa--{arch}"), code));
    table.resize(4096, 0);
    table.extend(data);
    table
}

/// The program, the code objects of its module by architecture, and a folder with the library under AMD's name.
struct Built {
    folder: tempfile::TempDir,
}

impl Built {
    fn new(archs: &[&str]) -> Option<Built> {
        let (clang, hip) = (clang(), hip());
        let all_found = clang.is_some() && hip.is_some();
        warpwave_test_support::require(all_found, "clang and AMD's HIP runtime (apt install clang-19 lld-19 libamdhip64-dev)");
        let (clang, (library_file, headers)) = clang.zip(hip)?;
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
        let compile = |stage: &str, source: &str, out: &Path, more: &[&str]| {
            let mut command = Command::new(&clang);
            // Code objects of version 4 are what every HIP runtime since 5.0 loads.
            command.args(["-x", "hip", stage, "--no-default-config", "-O2", "-nogpuinc", "-nogpulib", "-mcode-object-version=4"]);
            command.args(["-D__HIP_PLATFORM_AMD__", "-Wno-unused-result", "-I"]).arg(&headers).args(more);
            run(command.arg("-o").arg(out).arg(sources.join(source)));
        };
        let mut parts = Vec::new();
        for arch in archs {
            let target = format!("--offload-arch={arch}");
            let device = ["--no-gpu-bundle-output", &target];
            compile("--offload-device-only", "hip.cpp", &at("device.co"), &device);
            compile("--offload-device-only", "module.cpp", &at(&format!("{arch}.co")), &device);
            parts.push((*arch, std::fs::read(at("device.co")).unwrap()));
        }
        std::fs::write(at("hip.fat"), bundle(&parts)).unwrap();
        let fat = at("hip.fat").display().to_string();
        let host = ["-c", "-fPIC", "-Xclang", "-fcuda-include-gpubinary", "-Xclang", &fat];
        compile("--offload-host-only", "hip.cpp", &at("hip.o"), &host);
        run(Command::new("c++").arg("-o").arg(at("hip")).arg(at("hip.o")).arg(library_file));
        std::fs::create_dir(at("rocr")).unwrap();
        std::os::unix::fs::symlink(library(), at("rocr/libhsa-runtime64.so.1")).unwrap();
        Some(Built { folder })
    }

    fn command(&self, arch: &str, devices: &str) -> Command {
        let at = |name: &str| self.folder.path().join(name);
        let mut command = Command::new(at("hip"));
        command.arg(at(&format!("{arch}.co"))).env("LD_LIBRARY_PATH", at("rocr")).env("WARPWAVE_VGPU_DEVICES", devices);
        command
    }
}

#[test]
fn a_hip_program_runs_with_amds_own_runtime() {
    let Some(built) = Built::new(&["gfx90a", "gfx908"]) else { return };
    for (arch, devices, count) in [("gfx90a", "gfx90a", 1), ("gfx908", "gfx908", 1), ("gfx90a", "gfx90a,gfx90a", 2)] {
        for native in ["0", "1"] {
            let output = run(built.command(arch, devices).env("WARPWAVE_VGPU_NATIVE", native));
            let text = String::from_utf8(output.stdout).unwrap();
            let (first, rest) = text.split_once('\n').unwrap();
            assert!(first.starts_with(&format!("{count} device(s), Virtual Instinct")) && first.contains(arch), "{text}");
            assert_eq!(rest.lines().filter(|line| line.starts_with("ok ")).count(), CHECKS, "{text}");
            assert_eq!(rest.lines().count(), CHECKS, "{text}");
            assert_eq!(String::from_utf8_lossy(&output.stderr), "", "the loader and the library have nothing to say");
            eprintln!("{first}, native code {native}");
        }
    }
}

#[test]
fn a_wrong_list_of_devices_leaves_the_program_without_one() {
    let Some(built) = Built::new(&["gfx90a"]) else { return };
    let output = built.command("gfx90a", "gfx90b").output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && errors.contains("WARPWAVE_VGPU_DEVICES") && errors.contains("gfx90b"), "{errors}");
}
