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
