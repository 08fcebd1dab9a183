//! clang with HIP's headers, for the suites that compile what was translated.
#![allow(dead_code)]

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use warpwave_test_support::require;

/// The compiler, where it and HIP's headers are installed; without them the test skips, or fails if `WARPWAVE_REQUIRE_ALL=1`.
pub fn hip_clang() -> Option<OsString> {
    let clang = std::env::var_os("WARPWAVE_CLANG").unwrap_or_else(|| "clang-19".into());
    let runs = Command::new(&clang).arg("--version").output().is_ok_and(|output| output.status.success());
    if runs && Path::new("/usr/include/hip/hip_runtime.h").exists() {
        return Some(clang);
    }
    require(false, "clang or HIP's headers (apt install clang-19 libamdhip64-dev)");
    None
}

/// Compiles a file for gfx90a, without making code.
pub fn compile_hip(clang: &OsString, path: &Path, more: &[&str]) {
    if let Err(messages) = try_compile_hip(clang, path, more) {
        panic!("{}: {messages}", path.display());
    }
}

/// The same; the compiler's messages where it refuses.
pub fn try_compile_hip(clang: &OsString, path: &Path, more: &[&str]) -> Result<(), String> {
    let output = Command::new(clang)
        .args(["-x", "hip", "--offload-device-only", "--offload-arch=gfx90a", "-fsyntax-only", "-w", "-D__HIP_PLATFORM_AMD__"])
        .args(["--rocm-path=/usr", "--rocm-device-lib-path=/usr/lib/x86_64-linux-gnu/amdgcn/bitcode"])
        .args(more)
        .arg(path)
        .output()
        .unwrap();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}
