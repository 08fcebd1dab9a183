//! Code objects for tests, compiled with clang.
#![allow(dead_code)]

pub mod hip;

use std::path::PathBuf;
use std::process::Command;

/// Kernels, variables and a function pointer for the loader.
pub const SOURCE: &str = r#"
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __constant__ __attribute__((constant))
#define __shared__ __attribute__((shared))
__device__ int counter = 7;
__device__ int zeroed[100];
__constant__ float table[4] = {1, 2, 3, 4};
__device__ int* where = &counter;
__device__ __attribute__((noinline)) int helper(int x) { return x * 3 + counter; }
__device__ int (*behind)(int) = helper;
extern "C" __global__ void scale(float* data, float factor, unsigned n) {
    unsigned i = __builtin_amdgcn_workgroup_id_x() * __builtin_amdgcn_workgroup_size_x() + __builtin_amdgcn_workitem_id_x();
    if (i < n) data[i] *= factor;
}
extern "C" __global__ void add_index(unsigned* data, unsigned n) {
    unsigned i = __builtin_amdgcn_workgroup_id_x() * __builtin_amdgcn_workgroup_size_x() + __builtin_amdgcn_workitem_id_x();
    if (i < n) data[i] += i;
}
extern "C" __global__ void calls(int* data) {
    __shared__ int shared[32];
    shared[data[0] & 31] = 1;
    data[0] = behind(data[1]) + *where + zeroed[3] + shared[3] + (int)table[data[2] & 3];
}
extern "C" __global__ void outside(int* data) { data[1 << 26] = 1; }
extern "C" __global__ void stops(int* data) { __builtin_trap(); }
extern "C" __global__ void endless(volatile int* data) { while (data[0] == 0) {} }
"#;

/// Returns a clang that supports AMD GPUs.
pub fn clang() -> Option<PathBuf> {
    let chosen = std::env::var_os("WARPWAVE_CLANG").map(PathBuf::from);
    let names = ["clang-22", "clang-21", "clang-20", "clang-19", "clang-18", "clang-17", "clang"].map(PathBuf::from);
    let found = chosen.into_iter().chain(names).find(|name| {
        let asked =
            Command::new(name).args(["--target=amdgcn-amd-amdhsa", "-mcpu=gfx942", "-nogpulib", "-x", "c", "-E", "/dev/null"]).output();
        asked.is_ok_and(|answer| answer.status.success())
    });
    warpwave_test_support::require(found.is_some(), "clang for AMD GPUs (apt install clang-19)");
    found
}

/// Compiles [`SOURCE`] for `target`; `None` without clang.
pub fn compile(target: &str, options: &[&str]) -> Option<Vec<u8>> {
    compile_text(SOURCE, target, options)
}

pub fn compile_text(source: &str, target: &str, options: &[&str]) -> Option<Vec<u8>> {
    let clang = clang()?;
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("kernels.hip"), folder.path().join("kernels.co"));
    std::fs::write(&input, source).unwrap();
    let mut command = Command::new(clang);
    command.args(["-x", "hip", "--offload-device-only", "--no-gpu-bundle-output", "--no-default-config", "-O2", "-nogpuinc", "-nogpulib"]);
    command.arg(format!("--offload-arch={target}")).args(options).arg("-o").arg(&output).arg(&input);
    let ran = command.output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    Some(std::fs::read(output).unwrap())
}

/// Creates an offload bundle.
pub fn bundle(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut bytes = b"__CLANG_OFFLOAD_BUNDLE__".to_vec();
    bytes.extend((entries.len() as u64).to_le_bytes());
    let table: usize = 32 + entries.iter().map(|(name, _)| 24 + name.len()).sum::<usize>();
    let mut offset = table.next_multiple_of(4096);
    for (name, code) in entries {
        bytes.extend((offset as u64).to_le_bytes());
        bytes.extend((code.len() as u64).to_le_bytes());
        bytes.extend((name.len() as u64).to_le_bytes());
        bytes.extend(name.as_bytes());
        offset = (offset + code.len()).next_multiple_of(4096);
    }
    for (_, code) in entries {
        bytes.resize(bytes.len().next_multiple_of(4096), 0);
        bytes.extend(*code);
    }
    bytes
}
