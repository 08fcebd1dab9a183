//! The `warpwave hipify` command.

use std::ffi::OsString;
use std::path::Path;

use serde_json::Value;
use warpwave_gpu::Devices;
use warpwave_test_support::workspace_root;

struct Answer {
    code: u8,
    out: String,
    err: String,
}

fn hipify(line: &[&str]) -> Answer {
    let args = ["warpwave", "hipify"].iter().chain(line).map(OsString::from);
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = warpwave_cli::main(args, Devices::default, &mut out, &mut err);
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
fn names_are_those_of_the_rocm_version_given() {
    let folder = folder(&[("a.cu", "#include <cublas_v2.h>\nvoid f() { cublasCgemm(); }\n")]);
    let file = folder.path().join("a.cu").display().to_string();
    let six = hipify(&[&file]);
    assert!(six.out.contains("hipblasCgemm_v2()") && six.err.contains("pass `--rocm 7` to use `hipblasCgemm`"), "{}{}", six.out, six.err);
    assert_eq!(hipify(&[&file, "--rocm", "6"]).out, six.out);
    let seven = hipify(&[&file, "--rocm", "7"]);
    assert!(seven.out.contains("hipblasCgemm()") && !seven.err.contains("WW0127"), "{}{}", seven.out, seven.err);
    let invalid = hipify(&[&file, "--rocm", "5"]);
    assert!(invalid.code == 2 && invalid.err.contains("expected 6 or 7"), "{}", invalid.err);
}

#[test]
fn folders_keep_their_structure_and_other_files_are_copied() {
    let folder = folder(&[
        ("src/a.cu", SOURCE),
        ("src/deep/b.cuh", "cudaStream_t s;\n"),
        ("src/c.cpp", "int main() {}\n"),
        ("src/d.h", "// cuda\n"),
    ]);
    let (src, out) = (folder.path().join("src").display().to_string(), folder.path().join("out"));
    assert_eq!(hipify(&[&src]).code, 2, "several files need an output folder");
    let answer = hipify(&[&src, "-o", &out.display().to_string(), "--print-stats"]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    assert!(text(&out.join("a.hip")).contains("hipMalloc") && text(&out.join("deep/b.cuh")).contains("hipStream_t s;"));
    assert!(out.join("d.h").exists() && text(&out.join("c.cpp")) == "int main() {}\n", "the folder builds by itself");
    assert!(answer.err.contains("3 files: 3 clean") && answer.err.contains("CONVERTED refs count"), "{}", answer.err);
    assert!(answer.err.contains("1 other file copied"), "{}", answer.err);
    let only = folder.path().join("src/only");
    assert_eq!(hipify(&[&src, "-o", &only.display().to_string(), "--converted-only"]).code, 0);
    assert!(only.join("a.hip").exists() && !only.join("c.cpp").exists());
    // An output folder inside the input is not copied into itself.
    assert_eq!(hipify(&[&src, "-o", &only.display().to_string()]).code, 0);
    assert!(only.join("c.cpp").exists() && !only.join("only").exists());
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
    assert!(fixed.out.contains("~0ull") && fixed.err.contains("1 place fixed"), "{}{}", fixed.out, fixed.err);
    let page = hipify(&["--explain", "WW0201"]);
    assert!(page.code == 0 && page.out.contains("before:") && page.out.contains("after:"), "{}", page.out);
    assert_eq!(hipify(&["--explain", "WW9999"]).code, 2);
}

#[test]
fn json_has_positions_and_verdicts() {
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
fn invalid_input_is_reported() {
    assert_eq!(hipify(&["/nonexistent/a.cu"]).code, 1);
    assert_eq!(hipify(&[]).code, 2);
    let empty = tempfile::tempdir().unwrap();
    let answer = hipify(&[&empty.path().display().to_string(), "--examine"]);
    assert!(answer.code == 1 && answer.err.contains("no CUDA files"), "{}", answer.err);
}

// ---- whole projects

/// A project with a header of its own that is called like one of CUDA's, a toolkit beside it, and files compiled in two ways.
fn project() -> tempfile::TempDir {
    let folder = folder(&[
        ("toolkit/include/cublas_v2.h", "// NVIDIA's\n"),
        ("toolkit/include/cuda_runtime.h", "// NVIDIA's\n"),
        (
            "p/src/main.cpp",
            "#include \"cuda_runtime.h\"\n#include <cufft.h>\n#include <cublas_v2.h>\n#include \"util.cuh\"\nint main() { return run(); }\n// cuda\n",
        ),
        (
            "p/src/a.cu",
            "#include \"cublas_v2.h\"\n#include \"b.cu\"\n#ifdef WIDE\ncudaStream_t wide;\n#else\ncudaStream_t narrow;\n#endif\n",
        ),
        ("p/src/b.cu", "#ifdef WIDE\ncudaEvent_t wide;\n#endif\n"),
        ("p/include/util.cuh", "#pragma once\n#include <cuda_runtime.h>\ncudaError_t run();\n"),
        ("p/include/cublas_v2.h", "// ours\n#include <cublas_v2.h>\n"),
        ("p/src/plain.cpp", "int f() { return 1; }\n"),
        ("p/CMakeLists.txt", "project(p LANGUAGES CXX CUDA)\nadd_executable(p src/main.cpp src/a.cu)\n"),
    ]);
    let root = folder.path().display().to_string();
    let database = serde_json::json!([
        { "directory": format!("{root}/p/build"), "file": "../src/main.cpp",
          "command": format!("g++ -I../include '-I{root}/toolkit/include' -DNAME=\\\"x\\\" -c ../src/main.cpp") },
        { "directory": format!("{root}/p/build"), "file": format!("{root}/p/src/a.cu"),
          "arguments": ["nvcc", "-DWIDE=1", "-I", "../include", "-isystem", format!("{root}/toolkit/include"), "-c", "../src/a.cu"] },
        { "directory": format!("{root}/p/build"), "file": "../src/./a.cu", "command": "nvcc -DWIDE=1 -c ../src/a.cu" },
        { "directory": format!("{root}/p/build"), "file": "../src/b.cu", "command": "nvcc -DWIDE -c ../src/b.cu" },
        { "directory": format!("{root}/p/build"), "file": "../src/b.cu", "command": "nvcc -c ../src/b.cu" },
        { "directory": format!("{root}/p/build"), "file": "../src/plain.cpp", "command": "g++ -c ../src/plain.cpp" },
        { "directory": format!("{root}/p/build"), "file": "gone.cu", "command": "nvcc -c gone.cu" },
    ]);
    std::fs::create_dir_all(folder.path().join("p/build")).unwrap();
    std::fs::write(folder.path().join("p/build/compile_commands.json"), database.to_string()).unwrap();
    folder
}

#[test]
fn a_compile_database_names_the_files_their_macros_and_their_headers() {
    let folder = project();
    let (build, out) = (folder.path().join("p/build").display().to_string(), folder.path().join("out"));
    assert_eq!(hipify(&["-p", &build]).code, 2, "a project needs a place");
    let answer = hipify(&["-p", &build, "-o", &out.display().to_string(), "--skip-excluded-preprocessor-conditional-blocks"]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    assert!(answer.err.contains("6 files:") && answer.err.contains("gone.cu: file not found"), "{}", answer.err);
    assert_eq!(text(&out.join("src/plain.cpp")), "int f() { return 1; }\n", "other files are copied");
    // What the compiler finds in the toolkit is CUDA's, what it finds in the project stays; a source with a new name is followed.
    let main = text(&out.join("src/main.cpp"));
    assert!(
        main.starts_with("#include \"hip/hip_runtime.h\"\n#include <hipfft/hipfft.h>\n#include <cublas_v2.h>\n#include \"util.cuh\"\n"),
        "{main}"
    );
    let a = text(&out.join("src/a.hip"));
    assert!(a.contains("#include \"cublas_v2.h\"\n#include \"b.hip\"\n"), "{a}");
    // WIDE is given for this file, so the other branch is left out.
    assert!(a.contains("hipStream_t wide;") && a.contains("cudaStream_t narrow;"), "{a}");
    assert!(text(&out.join("src/b.hip")).contains("hipEvent_t wide;"), "compiled with and without WIDE, so nothing is left out");
    assert!(text(&out.join("include/util.cuh")).contains("hipError_t run();"), "headers come along");
    assert!(text(&out.join("include/cublas_v2.h")).contains("#include <hipblas.h>"), "it stands before the toolkit's and includes that");
    let cmake = text(&out.join("CMakeLists.txt"));
    assert_eq!(cmake, "project(p LANGUAGES CXX HIP)\nadd_executable(p src/main.cpp src/a.hip)\n");
    // One file of it, by the database itself.
    let one = folder.path().join("p/src/a.cu").display().to_string();
    let answer =
        hipify(&[&one, "-p", &format!("{build}/compile_commands.json"), "--examine", "--skip-excluded-preprocessor-conditional-blocks"]);
    assert!(answer.code == 0 && answer.err.contains("a.cu: clean: 1 of 1"), "{}", answer.err);
}

#[test]
fn a_wrong_compile_database_is_named_with_its_entry() {
    let good = r#"{ "directory": "/d", "file": "a.cu", "command": "nvcc a.cu" }"#;
    let cases = [
        ("{", "invalid JSON"),
        ("{}", "expected an array"),
        ("[]", "no entries"),
        (&format!("[{good}, 7]"), "entry 2: expected an object"),
        (&format!("[{good}, {{ \"directory\": \"/d\", \"command\": \"nvcc\" }}]"), "entry 2: `file` is missing"),
        (r#"[{ "file": "a.cu" }]"#, "entry 1: `command` or `arguments` is missing"),
        (r#"[{ "file": "a.cu", "command": "nvcc 'a" }]"#, "entry 1: `command` has an unclosed quote"),
        (r#"[{ "file": "a.cu", "arguments": "nvcc" }]"#, "entry 1: `arguments` must be an array"),
        (r#"[{ "file": 1, "command": "nvcc" }]"#, "entry 1: `file` must be a string"),
    ];
    for (database, expected) in cases {
        let folder = folder(&[("compile_commands.json", database)]);
        let answer = hipify(&["-p", &folder.path().display().to_string(), "--examine"]);
        assert!(
            answer.code == 1 && answer.err.contains("compile_commands.json: ") && answer.err.contains(expected),
            "{expected}: {}",
            answer.err
        );
    }
    let empty = folder(&[]);
    let answer = hipify(&["-p", &empty.path().display().to_string(), "--examine"]);
    assert!(answer.code == 1 && answer.err.contains("CMAKE_EXPORT_COMPILE_COMMANDS"), "{}", answer.err);
}

#[test]
fn headers_of_the_project_stay_whatever_they_are_called() {
    let folder = folder(&[
        (
            "src/a.cu",
            "#include \"cuda_runtime.h\"\n#include <cuda_fp16.h>\n#include \"inc/cufft.h\"\n#include \"curand.h\"\ncublasSaxpy(h, n);\n",
        ),
        ("src/cuda_runtime.h", "#include <cublas_v2.h>\n// cuda\n"),
        ("src/inc/cufft.h", "// cuda\n"),
    ]);
    let out = folder.path().join("out");
    let answer = hipify(&[&folder.path().join("src").display().to_string(), "-o", &out.display().to_string()]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    let a = text(&out.join("a.hip"));
    assert!(
        a.contains("#include \"cuda_runtime.h\"\n#include <hip/hip_fp16.h>\n#include \"inc/cufft.h\"\n#include \"hiprand/hiprand.h\"\n"),
        "{a}"
    );
    assert!(a.contains("hipblasSaxpy"), "the project's header brings the second interface: {a}");
}

#[test]
fn what_is_hip_already_is_left_alone_and_clean() {
    let hip = "#include <hip/hip_runtime.h>\r\n__global__ void k(int *p) { p[0] += __shfl_xor_sync(0xffffffff, p[1], 1); }\r\nint f() { return hipFree(0); }";
    let both = "#include <hip/hip_runtime.h>\n#ifdef USE_HIP\n#define cudaFree hipFree\n#else\n#include <cuda.h>\nint x = cudaNewThing(0xffffffff);\n#endif\n\
        int f() { return cudaFree(0); }\n";
    let folder = folder(&[("hip.cu", hip), ("both.cu", both), ("Makefile", "CC = hipcc\nall:\n\t$(CC) a.cu\n")]);
    let answer = hipify(&[&folder.path().display().to_string(), "--inplace", "--fix"]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    assert!(
        answer.err.contains("hip.cu: already HIP, unchanged; 1 place may assume a warp size of 32")
            && answer.err.contains("Makefile: already HIP"),
        "{}",
        answer.err
    );
    assert!(answer.err.contains("3 files: 3 clean") && answer.err.contains("2 of them already HIP"), "{}", answer.err);
    assert_eq!(text(&folder.path().join("hip.cu")), hip);
    assert!(!folder.path().join("hip.cu.prehip").exists());
    assert_eq!(
        text(&folder.path().join("both.cu")),
        both.replace("return cudaFree", "return hipFree"),
        "branches stay, the rest is translated"
    );
    let answer = hipify(&[&folder.path().display().to_string(), "--json"]);
    let value: Value = serde_json::from_str(&answer.out).unwrap();
    assert_eq!(value["totals"]["already_hip"], 3);
}

#[test]
fn a_whole_folder_in_place_is_done_once() {
    let cmake = "find_package(CUDAToolkit REQUIRED)\nproject(p CUDA)\nadd_executable(p a.cu)\n";
    let files = [("a.cu", SOURCE), ("CMakeLists.txt", cmake), ("Makefile", "a: a.cu\n\tnvcc -arch=sm_80 a.cu -lcublas\n")];
    let folder = folder(&files);
    folder_has_build_folder(folder.path());
    let root = folder.path().display().to_string();
    assert_eq!(hipify(&[&root, "--inplace", "--offload-arch", "gfx942"]).code, 0);
    let after: Vec<String> = files.iter().map(|(name, _)| text(&folder.path().join(name))).collect();
    assert!(after[1].contains("set_source_files_properties(a.cu PROPERTIES LANGUAGE HIP)"), "the name stays: {}", after[1]);
    assert_eq!(after[2], "a: a.cu\n\thipcc --offload-arch=gfx942 a.cu -lhipblas\n");
    assert_eq!(hipify(&[&root, "--inplace"]).code, 0);
    for ((name, before), after) in files.iter().zip(&after) {
        assert_eq!(text(&folder.path().join(name)), *after, "{name}: a second run changes nothing");
        assert_eq!(text(&folder.path().join(format!("{name}.prehip"))), *before, "{name}: the original stays");
    }
    assert!(text(&folder.path().join("build/b.cu")).contains("cudaFree"), "what CMake made is not touched");
}

fn folder_has_build_folder(root: &Path) {
    std::fs::create_dir(root.join("build")).unwrap();
    std::fs::write(root.join("build/CMakeCache.txt"), "").unwrap();
    std::fs::write(root.join("build/b.cu"), "int x = cudaFree(0);\n").unwrap();
}

#[test]
fn in_place_without_a_backup_and_with_a_failing_write() {
    let folder = folder(&[("a.cu", SOURCE)]);
    let path = folder.path().join("a.cu");
    let file = path.display().to_string();
    assert_eq!(hipify(&[&file, "--no-backup"]).code, 2, "it belongs to --inplace");
    // Something stands where the new text would be written.
    let obstacle = folder.path().join(format!("a.cu.{}.tmp", std::process::id()));
    std::fs::create_dir(&obstacle).unwrap();
    assert_eq!(hipify(&[&file, "--inplace"]).code, 1);
    assert_eq!(text(&path), SOURCE, "a failed write leaves the old file");
    std::fs::remove_dir(&obstacle).unwrap();
    std::fs::remove_file(folder.path().join("a.cu.prehip")).unwrap();
    assert_eq!(hipify(&[&file, "--inplace", "--no-backup"]).code, 0);
    assert!(text(&path).contains("hipMalloc"));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no old file, no temporary one");
}

#[test]
fn inputs_with_the_same_output_are_rejected() {
    let folder = folder(&[("x/a.cu", SOURCE), ("y/a.cu", SOURCE)]);
    let path = |name: &str| folder.path().join(name).display().to_string();
    let answer = hipify(&[&path("x/a.cu"), &path("y/a.cu"), "-o", &path("out")]);
    assert!(answer.code == 2 && answer.err.contains("both map to a.hip"), "{}", answer.err);
}

#[test]
fn reports_are_pages_json_or_text() {
    let folder =
        folder(&[("src/a.cu", HAZARD), ("src/b.cu", "// </script><b>\nint x = cudaFree(0);\n"), ("src/Makefile", "a:\n\tnvcc a.cu\n")]);
    let src = folder.path().join("src").display().to_string();
    let path = |name: &str| folder.path().join(name);
    for name in ["r.html", "r.json", "r.txt"] {
        let answer = hipify(&[&src, "--examine", "-q", "--report", &path(name).display().to_string()]);
        assert_eq!(answer.code, 0, "{}", answer.err);
    }
    let page = text(&path("r.html"));
    assert_eq!(page.matches("</script>").count(), 1, "sources are escaped");
    assert!(page.contains("WW0201") && page.contains("<mark>hipFree</mark>") && page.contains("not portable") && !page.contains("http"));
    let value: Value = serde_json::from_str(&text(&path("r.json"))).unwrap();
    assert_eq!((value["totals"]["files"].as_u64(), value["files"][0]["build_file"].as_bool()), (Some(3), Some(true)));
    assert!(text(&path("r.txt")).contains("3 files:") && text(&path("r.txt")).contains("WW0201 error"));
    let answer = hipify(&[&src, "--examine", "--report", "r.docx"]);
    assert!(answer.code == 2 && answer.err.contains(".html, .json or .txt"), "{}", answer.err);
}

#[test]
fn help_shows_examples_of_projects() {
    let answer = hipify(&["--help"]);
    assert!(answer.out.contains("warpwave hipify -p build/ --inplace") && answer.out.contains("--report report.html"), "{}", answer.out);
}

#[test]
fn inline_ptx_becomes_cpp_and_unknown_instructions_are_named() {
    let text = "__global__ void k(unsigned *x) {\n  asm(\"popc.b32 %0, %1;\" : \"=r\"(x[0]) : \"r\"(x[1]));\n  \
        asm(\"movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;\" : \"=r\"(x[0]) : \"r\"(x[1]));\n}\n";
    let folder = folder(&[("a.cu", text)]);
    let answer = hipify(&[&folder.path().join("a.cu").display().to_string()]);
    assert!(answer.out.contains("__ww0 = __popc(__ww1);") && !answer.out.contains("asm(\"popc"), "{}", answer.out);
    assert!(answer.out.contains("asm(\"movmatrix"), "assembly without an equivalent stays: {}", answer.out);
    assert!(answer.err.contains("a.cu:3:3: WW0301 error: PTX instruction `movmatrix.sync"), "{}", answer.err);
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

/// Compiles a file with HIP's headers, for gfx90a and for the host, without making code.
fn compile_with_hip(path: &Path) {
    let clang = std::env::var_os("WARPWAVE_CLANG").unwrap_or_else(|| "clang-19".into());
    let runs = std::process::Command::new(&clang).arg("--version").output().is_ok_and(|output| output.status.success());
    if !runs || !Path::new("/usr/include/hip/hip_runtime.h").exists() {
        assert!(std::env::var_os("WARPWAVE_REQUIRE_ALL").is_none_or(|v| v != "1"), "no clang or no HIP headers");
        return;
    }
    for side in ["--offload-device-only", "--offload-host-only"] {
        let output = std::process::Command::new(&clang)
            .args(["-x", "hip", side, "--offload-arch=gfx90a", "-fsyntax-only", "-Wno-unused-result", "-D__HIP_PLATFORM_AMD__"])
            .args(["--rocm-path=/usr", "--rocm-device-lib-path=/usr/lib/x86_64-linux-gnu/amdgcn/bitcode"])
            .arg(path)
            .output()
            .unwrap();
        assert!(output.status.success(), "{side}: {}", String::from_utf8_lossy(&output.stderr));
    }
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
fn the_compatibility_header_supplies_what_hip_lacks() {
    let folder = folder(&[("a.cu", NEEDS_HEADER)]);
    let file = folder.path().join("a.cu").display().to_string();
    let plain = hipify(&[&file, "--no-header"]);
    assert!(!plain.out.contains("warpwave") && plain.err.contains("WW0112") && plain.err.contains("WW0113"), "{}", plain.err);
    assert!(plain.err.contains("a.cu:8:1: WW0306 warning") && plain.err.contains("WW0305 warning: `__dp4a`"), "{}", plain.err);
    assert!(plain.err.contains("help: use `--header`") && plain.err.contains("--header resolves "), "{}", plain.err);
    // By default it is included where it is needed, and only there.
    let needed = hipify(&[&file]);
    assert!(needed.out.contains("#include \"warpwave_cuda.h\"") && needed.err.contains("a.cu: clean"), "{}", needed.err);
    assert!(needed.err.contains("use -o to write it next to the output"), "{}", needed.err);

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
    compile_with_hip(&out);
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

/// The command adds nothing to the library: same bytes, same diagnostics, for every source of the translator's test corpus.
#[test]
fn command_and_library_give_the_same_bytes() {
    use warpwave_hipify::{Headers, Options, RuntimeHeader, UseHeader, convert};
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../hipify/tests");
    let mut files: Vec<_> = ["golden", "hazards", "kernels"]
        .iter()
        .flat_map(|folder| std::fs::read_dir(tests.join(folder)).unwrap().map(|entry| entry.unwrap().path()))
        .filter(|path| path.extension().is_some_and(|end| end == "cu"))
        .collect();
    files.sort();
    assert!(files.len() >= 160, "{} files", files.len());
    let base = Options { keep_ported: true, runtime_header: RuntimeHeader::Always, ..Options::default() };
    let modes: [(&[&str], Options); 4] = [
        (&[], Options { compatibility_header: UseHeader::WhenNeeded, ..base.clone() }),
        (&["--header"], Options { compatibility_header: UseHeader::Always, ..base.clone() }),
        (&["--no-header"], base.clone()),
        (
            &["--no-header", "--fix", "--hip-kernel-execution-syntax"],
            Options { fix: true, launch: warpwave_hipify::LaunchSyntax::Call, ..base },
        ),
    ];
    let compatibility = Some(warpwave_jit::compatibility_header());
    for path in &files {
        let (file, source) = (path.display().to_string(), std::fs::read(path).unwrap());
        let headers = Headers { source_folder: path.parent().map(Path::to_owned), compatibility, ..Headers::default() };
        for (flags, options) in &modes {
            let line: Vec<&str> = std::iter::once(file.as_str()).chain(flags.iter().copied()).collect();
            let (answer, library) = (hipify(&line), convert(&source, options, &headers));
            assert_eq!(answer.code, 0, "{}", answer.err);
            assert_eq!(answer.out.as_bytes(), library.output, "{file} {flags:?}");
            let json: Value = serde_json::from_str(&hipify(&[&line[..], &["--json"]].concat()).out).unwrap();
            assert_eq!(json["files"][0]["diagnostics"].as_array().unwrap().len(), library.diagnostics.len(), "{file} {flags:?}");
            if flags.is_empty() {
                let fixed = convert(&source, &Options { fix: true, ..options.clone() }, &headers);
                let better = if fixed.problems() < library.problems() { fixed } else { library };
                assert_eq!(json["files"][0]["minutes_after_remedies"], better.assessment().minutes, "{file}");
            }
        }
    }
}

#[test]
fn the_command_line_of_hipify_clang_is_accepted() {
    let folder = folder(&[("a.cu", "#ifdef WIDE\ncudaStream_t wide;\n#else\ncudaStream_t narrow;\n#endif\n#include \"mine.h\"\n")]);
    std::fs::create_dir_all(folder.path().join("inc")).unwrap();
    std::fs::write(folder.path().join("inc/mine.h"), "__device__ int __mine(int);\n").unwrap();
    let (file, include) = (folder.path().join("a.cu").display().to_string(), folder.path().join("inc").display().to_string());
    let out = folder.path().join("out");
    let line = [&file, "-cuda-path=/usr/local/cuda", "-o-dir", &out.join("a.hip").display().to_string(), "-default-preprocessor"];
    let rest = ["--cuda-gpu-arch=sm_80", "-v", "--", "-x", "cuda", "-std=c++17", "-DWIDE", "-I", &include];
    let spaced = hipify(&["--cuda-path", "/usr/local/cuda", &file, "--examine", "--", "--cuda-path=/other", "-std=c++17"]);
    assert!(spaced.code == 0 && spaced.err.contains("note: --cuda-path ignored"), "{}", spaced.err);
    let answer = hipify(&[&line[..], &rest[..]].concat());
    assert_eq!(answer.code, 0, "{}", answer.err);
    let ignored = "note: --cuda-path, --cuda-gpu-arch, --verbose ignored";
    assert!(answer.err.contains(ignored), "{}", answer.err);
    let hip = text(&out.join("a.hip"));
    assert!(hip.contains("hipStream_t wide;") && hip.contains("cudaStream_t narrow;"), "the macro behind -- is defined: {hip}");
}

#[test]
fn the_effort_after_the_fixes_is_that_of_the_fixed_source() {
    let file = workspace_root().join("examples/cuda/block_sum.cu").display().to_string();
    let summary = hipify(&[&file, "--examine"]).err;
    assert!(summary.contains(", 1 launch, about ") && summary.ends_with("; --fix resolves all 5 diagnostics\n"), "{summary}");
    let fixed = hipify(&[&file, "--examine", "--fix"]).err;
    assert!(fixed.contains("block_sum.cu: clean: ") && fixed.contains("2 places fixed"), "{fixed}");
    let without_header = hipify(&[&file, "--examine", "--no-header"]).err;
    assert!(without_header.contains("; --fix and --header resolve all 6 diagnostics\n"), "{without_header}");
}

#[test]
fn repeated_diagnostics_are_grouped_and_remedies_are_counted() {
    let line = "__device__ int f%(int v) { return __shfl_xor_sync(0xffffffff, v, 1); }\n";
    let source: String = (0..5).map(|number| line.replace('%', &number.to_string())).collect();
    let folder = folder(&[("a.cu", &source)]);
    let file = folder.path().join("a.cu").display().to_string();
    let grouped = hipify(&[&file, "--examine"]).err;
    assert_eq!(grouped.matches("WW0201").count(), 1, "{grouped}");
    assert!(grouped.contains("and 4 more, lines 2, 3, 4, 5 (--all shows each)"), "{grouped}");
    assert!(grouped.contains("--fix resolves all 5 diagnostics\n"), "{grouped}");
    assert_eq!(hipify(&[&file, "--examine", "--all"]).err.matches("WW0201").count(), 5);
    let without = hipify(&[&file, "--examine", "--no-header"]).err;
    assert!(without.contains("WW0119 warning: `__shfl_xor_sync` (5 calls) needs ROCm 6.2 or later"), "{without}");
    assert!(hipify(&[&file, "--fix"]).err.contains("a.cu: clean"), "fixed, and supplied by the header");
}

/// A header with device code is checked although it names nothing of the CUDA API.
#[test]
fn headers_with_device_code_only_are_checked() {
    let header = "#pragma once\n__device__ inline int lanes(int v) { return __popc(__ballot_sync(0xffffffff, v)); }\n";
    let folder = folder(&[("src/a.cu", SOURCE), ("src/lanes.h", header)]);
    let answer = hipify(&[&folder.path().join("src").display().to_string(), "--examine"]);
    assert!(answer.err.contains("lanes.h:2:") && answer.err.contains("WW0204 error"), "{}", answer.err);
}

/// Build files name the folder of a project's headers; without them a header that exists once is found all the same.
#[test]
fn headers_elsewhere_in_the_project_are_its_own() {
    let source = "#include <cuda_runtime.h>\n#include <helper_cuda.h>\n#include \"lib/lanes.h\"\n#include \"twice.h\"\n\
        __global__ void k(int *x) { *x = __mine(*x) + __other(*x); }\n";
    let folder = folder(&[
        ("p/src/a.cu", source),
        ("p/Common/helper_cuda.h", "#pragma once\ncudaError_t check(cudaError_t);\n"),
        ("p/deep/include/lib/lanes.h", "__device__ int __mine(int);\n"),
        ("p/one/twice.h", "__device__ int __other(int);\n"),
        ("p/two/twice.h", "__device__ int __other(int);\n"),
        ("p/stubs/cuda_runtime.h", "// for tests without CUDA\n"),
    ]);
    let out = folder.path().join("out");
    let answer = hipify(&[&folder.path().join("p").display().to_string(), "-o", &out.display().to_string()]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    assert!(!answer.err.contains("WW0112") && !answer.err.contains("`__mine`"), "{}", answer.err);
    assert!(answer.err.contains("WW0305 warning: `__other`"), "of two files neither is chosen: {}", answer.err);
    let hip = text(&out.join("src/a.hip"));
    assert!(hip.starts_with("#include <hip/hip_runtime.h>\n#include <helper_cuda.h>\n"), "{hip}");
    assert!(text(&out.join("Common/helper_cuda.h")).contains("hipError_t check"));
}

/// Warp functions of CUDA 9 and later: HIP 5 has none of them, ROCm 6.2 some, ROCm 7 most.
const WARP_FUNCTIONS: &str = "#include <cuda_runtime.h>\n__global__ void k(int *x, double *d) {\n  unsigned all = 0xffffffffu; int same;\n  \
    x[0] = __shfl_sync(all, x[0], 3) + __shfl_up_sync(all, x[1], 1) + __shfl_down_sync(all, x[2], 2, 16) + __shfl_xor_sync(all, x[3], 4);\n  \
    d[0] = __shfl_down_sync(~0ull, d[0], 1); x[1] = __any_sync(all, x[4]) + __all_sync(all, x[5]);\n  \
    x[2] = __popcll(__ballot_sync(__activemask(), x[6])); __syncwarp(); __syncwarp(all);\n  \
    x[3] = __popcll(__match_any_sync(all, x[7]) & __match_all_sync(all, x[8], &same)) + __reduce_add_sync(all, x[9]);\n}\n";

#[test]
fn warp_functions_compile_with_every_rocm_or_are_named() {
    let folder = folder(&[("a.cu", WARP_FUNCTIONS)]);
    let (file, out) = (folder.path().join("a.cu").display().to_string(), folder.path().join("out/a.hip"));
    let answer = hipify(&[&file, "-o", &out.display().to_string()]);
    assert!(answer.code == 0 && !answer.err.contains("WW0119"), "{}", answer.err);
    assert!(text(&out).contains("#include \"warpwave_cuda.h\""), "{}", text(&out));
    compile_with_hip(&out);
    let plain = hipify(&[&file, "--examine", "--no-header"]).err;
    let functions = ["shfl_sync", "shfl_up_sync", "shfl_down_sync", "shfl_xor_sync", "any_sync", "all_sync", "ballot_sync"];
    for name in functions.iter().chain(&["activemask", "syncwarp", "match_any_sync", "match_all_sync", "reduce_add_sync"]) {
        assert!(plain.contains(&format!("WW0119 warning: `__{name}`")), "{name}: {plain}");
    }
}

/// Code that CUDA accepts and HIP 5 refuses although it has every name.
#[test]
fn members_of_half2_and_ffsll_of_64_bits_compile_with_hip_5() {
    let source = "#include <cuda_fp16.h>\n#include <cstdint>\n\
        __global__ void k(const __half2 *h, float *x, uint64_t m) {\n  __half2 pair = h[threadIdx.x];\n  \
        x[0] = __half2float(pair.x) + __half2float(pair.y) + __ffsll(m);\n}\n";
    let folder = folder(&[("a.cu", source)]);
    let (file, out) = (folder.path().join("a.cu").display().to_string(), folder.path().join("out/a.hip"));
    assert_eq!(hipify(&[&file, "-o", &out.display().to_string()]).code, 0);
    compile_with_hip(&out);
}

#[test]
fn a_plain_source_that_includes_a_cuda_source_follows_its_new_name() {
    let folder =
        folder(&[("p/main.cpp", "#include \"work.cu\"\nint main() { return work(); }\n"), ("p/work.cu", "int work() { return 0; }\n")]);
    let out = folder.path().join("out");
    assert_eq!(hipify(&[&folder.path().join("p").display().to_string(), "-o", &out.display().to_string()]).code, 0);
    assert!(text(&out.join("main.cpp")).contains("#include \"work.hip\""), "{}", text(&out.join("main.cpp")));
}

/// clang does not read the split brackets that formatters make and nvcc accepts.
#[test]
fn split_launch_brackets_compile() {
    let source = SOURCE.replace("k<<<1, 64>>>(p)", "k << < 1, 64 >> > (p)");
    let folder = folder(&[("a.cu", &source)]);
    let (file, out) = (folder.path().join("a.cu").display().to_string(), folder.path().join("out/a.hip"));
    let answer = hipify(&[&file, "-o", &out.display().to_string()]);
    assert!(answer.err.contains("1 launch") && text(&out).contains("k <<< 1, 64 >>> (p);"), "{}{}", answer.err, text(&out));
    compile_with_hip(&out);
    assert!(hipify(&[&file, "--hip-kernel-execution-syntax"]).out.contains("hipLaunchKernelGGL(k, dim3(1), dim3(64), 0, 0, p)"));
}

/// Headers are included in C sources too, and in blocks with C's linkage.
#[test]
fn the_compatibility_header_can_be_included_anywhere() {
    let folder = folder(&[
        (
            "p/main.cu",
            "extern \"C\" {\n#include <stdio.h>\n#include \"api.h\"\n}\n__global__ void k(unsigned *x) { atomicInc_system(x, 7); atomicDec_system(x, 7); }\n",
        ),
        ("p/api.h", "#pragma once\n#include \"deep/types.h\"\ncudaError_t run(cudaStream_t stream);\n"),
        ("p/deep/types.h", "#pragma once\ntypedef cudaStream_t Queue;\n"),
    ]);
    let (p, out) = (folder.path().join("p").display().to_string(), folder.path().join("out"));
    let answer = hipify(&[&p, "--header", "-o", &out.display().to_string()]);
    assert!(answer.err.contains("3 files: 3 clean") && text(&out.join("deep/types.h")).contains("warpwave_cuda.h"), "{}", answer.err);
    compile_with_hip(&out.join("main.hip"));
    let plain = hipify(&[&p, "--examine", "--no-header"]);
    assert!(plain.err.contains("WW0113 warning: HIP has no device function or type `atomicInc_system`"), "{}", plain.err);
}
