//! `warpwave hipify`, as a user meets it.

use std::ffi::OsString;
use std::path::Path;

use serde_json::Value;
use warpwave_gpu::Gpus;

struct Answer {
    code: u8,
    out: String,
    err: String,
}

fn hipify(line: &[&str]) -> Answer {
    let args = ["warpwave", "hipify"].iter().chain(line).map(OsString::from);
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = warpwave::cli::main(args, Gpus::default, &mut out, &mut err);
    Answer { code, out: String::from_utf8_lossy(&out).into_owned(), err: String::from_utf8_lossy(&err).into_owned() }
}

const SOURCE: &str = "#include <cuda_runtime.h>\n\
    __global__ void k(float *p) { p[threadIdx.x] *= 2; }\n\
    int main() {\n    float *p;\n    cudaMalloc(&p, 256);\n    k<<<1, 64>>>(p);\n    return cudaDeviceSynchronize();\n}\n";

const HAZARD: &str = "__global__ void k(int *p) { p[0] += __shfl_xor_sync(0xffffffff, p[1], 1); }\n";

fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    folder
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn one_file_goes_to_standard_output_and_nothing_else_does() {
    let folder = folder(&[("a.cu", SOURCE)]);
    let file = folder.path().join("a.cu").display().to_string();
    let answer = hipify(&[&file]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    assert!(answer.out.contains("#include <hip/hip_runtime.h>") && answer.out.contains("hipMalloc(&p, 256)"), "{}", answer.out);
    assert!(!answer.out.contains("clean") && answer.err.contains("clean: "), "{}", answer.err);
    let call = hipify(&[&file, "--hip-kernel-execution-syntax", "-q"]);
    assert!(call.out.contains("hipLaunchKernelGGL(k, dim3(1), dim3(64), 0, 0, p);"), "{}", call.out);
    assert_eq!(text(&folder.path().join("a.cu")), SOURCE, "the input stays");
}

#[test]
fn folders_keep_their_shape_and_foreign_files_stay_behind() {
    let folder = folder(&[
        ("src/a.cu", SOURCE),
        ("src/deep/b.cuh", "cudaStream_t s;\n"),
        ("src/c.cpp", "int main() {}\n"),
        ("src/d.h", "// cuda\n"),
    ]);
    let (src, out) = (folder.path().join("src").display().to_string(), folder.path().join("out"));
    assert_eq!(hipify(&[&src]).code, 2, "several files need a place");
    let answer = hipify(&[&src, "-o", &out.display().to_string(), "--print-stats"]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    assert!(text(&out.join("a.hip")).contains("hipMalloc") && text(&out.join("deep/b.cuh")).contains("hipStream_t s;"));
    assert!(out.join("d.h").exists() && !out.join("c.cpp").exists());
    assert!(answer.err.contains("3 files: 3 clean") && answer.err.contains("CONVERTED refs count"), "{}", answer.err);
}

#[test]
fn in_place_keeps_the_original_once_and_a_second_run_changes_nothing() {
    let folder = folder(&[("a.cu", SOURCE)]);
    let path = folder.path().join("a.cu");
    let file = path.display().to_string();
    assert_eq!(hipify(&[&file, "--inplace"]).code, 0);
    let first = text(&path);
    assert!(first.contains("hipMalloc"));
    assert_eq!(hipify(&[&file, "--inplace"]).code, 0);
    assert_eq!(text(&path), first);
    assert_eq!(text(&folder.path().join("a.cu.prehip")), SOURCE);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "no temporary files are left");
}

#[test]
fn the_input_is_never_overwritten_by_accident() {
    let folder = folder(&[("a.cu", SOURCE)]);
    let file = folder.path().join("a.cu").display().to_string();
    let answer = hipify(&[&file, "-o", &file]);
    assert_eq!(answer.code, 2);
    assert!(answer.err.contains("--inplace"), "{}", answer.err);
    assert_eq!(text(&folder.path().join("a.cu")), SOURCE);
    assert_eq!(hipify(&[&file, "-o", &format!("{file}/not/a/folder.hip")]).code, 1);
}

#[test]
fn hazards_are_named_explained_and_fixed() {
    let folder = folder(&[("a.cu", HAZARD)]);
    let file = folder.path().join("a.cu").display().to_string();
    let answer = hipify(&[&file, "--examine"]);
    assert_eq!((answer.code, answer.out.as_str()), (0, ""));
    assert!(answer.err.contains("a.cu:1:") && answer.err.contains("WW0201 error") && answer.err.contains("help:"), "{}", answer.err);
    assert!(answer.err.contains("minutes of work left"), "{}", answer.err);
    let fixed = hipify(&[&file, "--fix"]);
    assert!(fixed.out.contains("~0ull") && fixed.err.contains("1 places fixed"), "{}{}", fixed.out, fixed.err);
    let page = hipify(&["--explain", "WW0201"]);
    assert!(page.code == 0 && page.out.contains("before:") && page.out.contains("after:"), "{}", page.out);
    assert_eq!(hipify(&["--explain", "WW9999"]).code, 2);
}

#[test]
fn json_tells_places_and_verdicts() {
    let folder = folder(&[("a.cu", HAZARD), ("b.cu", SOURCE), ("c.cu", "void f() { cudaGraphicsD3D9RegisterResource(0, 0, 0); }\n")]);
    let answer = hipify(&[&folder.path().display().to_string(), "--json"]);
    let value: Value = serde_json::from_str(&answer.out).unwrap();
    assert_eq!(value["totals"]["files"], 3);
    assert!(value["files"][0]["diagnostics"].as_array().unwrap().iter().any(|d| d["code"] == "WW0201" && d["line"] == 1), "{value}");
    assert_eq!(value["files"][1]["verdict"], "clean");
    assert_eq!(value["files"][2]["verdict"], "not portable");
    assert!(value["files"][2]["minutes"].as_u64().unwrap() > 0);
}

#[test]
fn wrong_input_is_named() {
    assert_eq!(hipify(&["/nonexistent/a.cu"]).code, 1);
    assert_eq!(hipify(&[]).code, 2);
    let empty = tempfile::tempdir().unwrap();
    let answer = hipify(&[&empty.path().display().to_string(), "--examine"]);
    assert!(answer.code == 1 && answer.err.contains("no CUDA files"), "{}", answer.err);
}

#[test]
fn inline_ptx_becomes_cpp_and_what_is_not_known_is_named() {
    let text = "__global__ void k(unsigned *x) {\n  asm(\"popc.b32 %0, %1;\" : \"=r\"(x[0]) : \"r\"(x[1]));\n  \
        asm(\"movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;\" : \"=r\"(x[0]) : \"r\"(x[1]));\n}\n";
    let folder = folder(&[("a.cu", text)]);
    let answer = hipify(&[&folder.path().join("a.cu").display().to_string()]);
    assert!(answer.out.contains("__ww0 = __popc(__ww1);") && !answer.out.contains("asm(\"popc"), "{}", answer.out);
    assert!(answer.out.contains("asm(\"movmatrix"), "what has no counterpart stays: {}", answer.out);
    assert!(answer.err.contains("a.cu:3:3: WW0301 error: the PTX instruction `movmatrix.sync"), "{}", answer.err);
}

#[test]
fn an_undeclared_intrinsic_is_named_unless_an_included_file_declares_it() {
    let text = "#include \"mine.cuh\"\n#include \"below/other.cuh\"\n__global__ void k(int *x) {\n  *x = __mine(*x) + __other(*x) + __new_thing(*x);\n}\n";
    let files = [("a.cu", text), ("mine.cuh", "#pragma once\n__device__ int __mine(int);\n")];
    let folder = folder(&files);
    std::fs::create_dir_all(folder.path().join("inc/below")).unwrap();
    std::fs::write(folder.path().join("inc/below/other.cuh"), "#define __other(x) (x)\n").unwrap();
    let (file, include) = (folder.path().join("a.cu").display().to_string(), folder.path().join("inc").display().to_string());
    let answer = hipify(&[&file, "--examine", "-I", &include]);
    assert!(answer.err.contains("a.cu:4:35: WW0305 warning: `__new_thing` is called in device code"), "{}", answer.err);
    assert_eq!(answer.err.matches("WW0305").count(), 1, "{}", answer.err);
    assert_eq!(hipify(&[&file, "--examine"]).err.matches("WW0305").count(), 2, "without the folder there is one more");
}

const NEEDS_HEADER: &str = "#include <cuda_runtime.h>\n#include <cuda_bf16.h>\n#include <cuda_fp16.h>\n#include <mma.h>\n\
    #include <cooperative_groups.h>\n#include <cooperative_groups/reduce.h>\nnamespace cg = cooperative_groups;\n\
    #if __CUDA_ARCH__ >= 800\nextern \"C\" __global__ void k(float *x, int *i, __nv_bfloat16 *b, const half *h) {\n  \
    i[0] = __dp4a(i[1], i[2], (int)__vsub4(i[3], i[4]));\n  b[0] = __float2bfloat16(x[0]);\n  \
    x[1] = cg::reduce(cg::tiled_partition<32>(cg::this_thread_block()), x[1], cg::plus<float>());\n  \
    nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> c;\n  nvcuda::wmma::fill_fragment(c, (float)h[0]);\n  \
    nvcuda::wmma::store_matrix_sync(x, c, 16, nvcuda::wmma::mem_row_major);\n  \
    asm(\"popc.b32 %0, %1;\" : \"=r\"(i[5]) : \"r\"(i[6]));\n\
    }\n#endif\nint main() { return cudaDeviceSynchronize(); }\n";

#[test]
fn one_header_stands_for_what_hip_lacks() {
    let folder = folder(&[("a.cu", NEEDS_HEADER)]);
    let file = folder.path().join("a.cu").display().to_string();
    let plain = hipify(&[&file]);
    assert!(!plain.out.contains("warpwave") && plain.err.contains("WW0112") && plain.err.contains("WW0113"), "{}", plain.err);
    assert!(plain.err.contains("a.cu:8:1: WW0306 warning") && plain.err.contains("WW0305 warning: `__dp4a`"), "{}", plain.err);

    let out = folder.path().join("out/a.hip");
    let answer = hipify(&[&file, "--header", "-o", &out.display().to_string()]);
    assert!(answer.code == 0 && answer.err.contains("a.cu: clean"), "{}", answer.err);
    let text = std::fs::read_to_string(&out).unwrap();
    assert_eq!(text.matches("#include \"warpwave_cuda.h\"\n").count(), 1, "{text}");
    assert!(text.contains("#if WARPWAVE_CUDA_ARCH >= 800") && text.contains("__nv_bfloat16") && !text.contains("<mma.h>"), "{text}");
    assert!(folder.path().join("out/warpwave_cuda.h").exists());
    // A second translation changes nothing, and the header is not taken for a source.
    let again =
        hipify(&[&folder.path().join("out").display().to_string(), "--header", "-o", &folder.path().join("two").display().to_string()]);
    assert!(again.code == 1 || !again.err.contains("warpwave_cuda.h"), "{}", again.err);
    assert_eq!(hipify(&[&out.display().to_string(), "--header"]).out, text);

    // With HIP's own headers, for the GPU and for the host.
    let clang = std::env::var_os("WARPWAVE_CLANG").unwrap_or_else(|| "clang-19".into());
    let runs = std::process::Command::new(&clang).arg("--version").output().is_ok_and(|output| output.status.success());
    if runs && std::path::Path::new("/usr/include/hip/hip_runtime.h").exists() {
        for side in ["--offload-device-only", "--offload-host-only"] {
            let output = std::process::Command::new(&clang)
                .args(["-x", "hip", side, "--offload-arch=gfx90a", "-fsyntax-only", "-Wno-unused-result", "-D__HIP_PLATFORM_AMD__"])
                .args(["--rocm-path=/usr", "--rocm-device-lib-path=/usr/lib/x86_64-linux-gnu/amdgcn/bitcode"])
                .arg(&out)
                .output()
                .unwrap();
            assert!(output.status.success(), "{side}: {}", String::from_utf8_lossy(&output.stderr));
        }
    } else {
        assert!(std::env::var_os("WARPWAVE_REQUIRE_ALL").is_none_or(|v| v != "1"), "no clang or no HIP headers");
    }
    // With the headers that Warpwave compiles kernels with.
    let kernels = folder.path().join("out/kernels.hip");
    std::fs::write(&kernels, text.replace("int main() { return hipDeviceSynchronize(); }", "")).unwrap();
    let (tools, target) = (warpwave_jit::Toolchains::find(), "gfx90a".parse().unwrap());
    if tools.choose(&target, warpwave_jit::CompilerChoice::Clang).is_ok() {
        let source = warpwave_jit::KernelSource::from_file(&kernels).unwrap();
        let job = warpwave_jit::Job { source: &source, target: &target, compiler: warpwave_jit::CompilerChoice::Clang };
        let made = warpwave_jit::compile(&job, &tools).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(made.code_object.kernels[0].name, "k");
        assert_eq!(made.notes, []);
    }
}
