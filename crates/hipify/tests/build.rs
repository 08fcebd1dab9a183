//! Build files `tests/build/X` with their conversion `X.hip` and diagnostics `X.diagnostics`.

use std::collections::BTreeSet;
use std::path::Path;

use proptest::prelude::*;
use warpwave_hipify::build::{BuildFile, BuildOptions, convert};
use warpwave_hipify::report;

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/build")
}

/// `WARPWAVE_BLESS=1` writes the expected files; review them before committing.
#[test]
fn build_files_convert_as_expected() {
    let bless = std::env::var_os("WARPWAVE_BLESS").is_some();
    let mut count = 0;
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let Some(kind) = BuildFile::of(&name) else { continue };
        let source = std::fs::read(&path).unwrap();
        let done = convert(&source, kind, &BuildOptions::default());
        let diagnostics: String = done.diagnostics.iter().map(|diagnostic| report::line(&name, &source, diagnostic) + "\n").collect();
        let (hip, expected) = (format!("{}.hip", path.display()), format!("{}.diagnostics", path.display()));
        if bless {
            std::fs::write(&hip, &done.output).unwrap();
            std::fs::write(&expected, &diagnostics).unwrap();
        }
        assert_eq!(String::from_utf8_lossy(&done.output), String::from_utf8_lossy(&std::fs::read(&hip).unwrap()), "{name}");
        assert_eq!(diagnostics, std::fs::read_to_string(&expected).unwrap(), "{name}");
        assert_eq!(
            convert(&done.output, kind, &BuildOptions::default()).output,
            done.output,
            "{name}: a second conversion changes nothing"
        );
        count += 1;
    }
    assert!(count >= 7, "{count}");
}

#[test]
fn renamed_sources_are_followed_and_others_named() {
    let options = BuildOptions { renamed: Some(BTreeSet::from(["a.cu".to_owned()])), offload_arch: vec!["gfx90a".to_owned()] };
    let cmake = "project(x CUDA)\nadd_library(a src/a.cu \"b.cu\" ${DIR}/$<CONFIG>.cu)\nfile(GLOB all *.cu)\n";
    let done = convert(cmake.as_bytes(), BuildFile::CMake, &options);
    let expected = "project(x HIP)\nadd_library(a src/a.hip \"b.cu\" ${DIR}/$<CONFIG>.hip)\nfile(GLOB all *.hip)\n";
    assert_eq!(String::from_utf8_lossy(&done.output), expected);
    assert!(matches!(done.diagnostics.as_slice(), [one] if one.code == 410 && one.message.contains("b.cu")), "{:?}", done.diagnostics);
    let make = "S = a.cu b.cu x.cuh\nO = $(S:.cu=.o)\n%.o: %.cu\n\tnvcc -c $<\n";
    let done = convert(make.as_bytes(), BuildFile::Make, &options);
    assert_eq!(String::from_utf8_lossy(&done.output), "S = a.hip b.cu x.cuh\nO = $(S:.hip=.o)\n%.o: %.hip\n\thipcc -c $<\n");
    assert!(matches!(done.diagnostics.as_slice(), [one] if one.code == 410), "{:?}", done.diagnostics);
}

/// A line continuation directly behind a word is not part of it.
#[test]
fn a_backslash_behind_a_flag_continues_the_line() {
    let options = BuildOptions { renamed: None, offload_arch: vec!["gfx90a".to_owned()] };
    let make = "ARCH = sm_80\nFLAGS = -O3 -arch=$(ARCH)\\\n  -lcublas\\\r\n  -lineinfo\n\nall:\n\tnvcc $(FLAGS) a.cu\n";
    let done = convert(make.as_bytes(), BuildFile::Make, &options);
    let expected =
        "ARCH = gfx90a\nFLAGS = -O3 --offload-arch=$(ARCH)\\\n  -lhipblas\\\r\n  -gline-tables-only\n\nall:\n\thipcc $(FLAGS) a.cu\n";
    assert_eq!(String::from_utf8_lossy(&done.output), expected);
}

#[test]
fn files_that_do_not_mention_cuda_stay_as_they_are() {
    let cmake = "cmake_minimum_required(VERSION 3.5)\nproject(x CXX)\nadd_executable(x main.cpp)\ntarget_link_libraries(x curl m)\n";
    let make = "CC = gcc\nall:\n\t$(CC) -G -t -x c++ main.c -lm -arch x86_64 -o main\n";
    for (text, kind) in [(cmake, BuildFile::CMake), (make, BuildFile::Make)] {
        let done = convert(text.as_bytes(), kind, &BuildOptions::default());
        assert_eq!(String::from_utf8_lossy(&done.output), text);
        assert_eq!(done.diagnostics, []);
        assert!(!warpwave_hipify::build::mentions_cuda(text.as_bytes()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    /// Any fragments in any order: nothing panics, and the conversion is idempotent.
    #[test]
    fn conversion_accepts_anything_and_is_idempotent(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..24)) {
        let source = pieces.concat();
        for kind in [BuildFile::CMake, BuildFile::Make] {
            for renamed in [None, Some(BTreeSet::from(["a.cu".to_owned()]))] {
                let options = BuildOptions { renamed, ..BuildOptions::default() };
                let once = convert(source.as_bytes(), kind, &options).output;
                let twice = convert(&once, kind, &options).output;
                prop_assert_eq!(String::from_utf8_lossy(&once), String::from_utf8_lossy(&twice));
            }
        }
    }

    #[test]
    fn any_bytes_are_accepted(source in prop::collection::vec(any::<u8>(), 0..200)) {
        for kind in [BuildFile::CMake, BuildFile::Make] {
            convert(&source, kind, &BuildOptions::default());
        }
    }
}

const PIECES: &[&str] = &[
    " ",
    "\n",
    "\r\n",
    "\t",
    "(",
    ")",
    "\"",
    ";",
    "#",
    "\\",
    "$",
    "${",
    "}",
    "$<",
    ">",
    ":",
    "=",
    "\\\n",
    "[[",
    "]]",
    "a.cu",
    "b.cu",
    "*.cu",
    "project(a CUDA)\n",
    "enable_language(CUDA)\n",
    "find_package(CUDA)\n",
    "find_package(CUDAToolkit 11 REQUIRED)\n",
    "set(",
    "list(APPEND ",
    "CMAKE_CUDA_FLAGS ",
    "CUDA_NVCC_FLAGS ",
    "CMAKE_CUDA_ARCHITECTURES ",
    "70 ",
    "cuda_add_executable(t a.cu OPTIONS -arch=sm_70)\n",
    "target_link_libraries(t ",
    "CUDA::cudart",
    "CUDA::cublas ",
    "${CUDA_LIBRARIES}",
    "cublas ",
    "target_compile_options(t PRIVATE ",
    "$<$<COMPILE_LANGUAGE:CUDA>:",
    "-gencode ",
    "arch=compute_70,code=sm_70 ",
    "-arch=sm_70 ",
    "-Xcompiler ",
    "-fPIC ",
    "--use_fast_math ",
    "-lineinfo ",
    "-ccbin ",
    "-rdc=true ",
    "-maxrregcount 32 ",
    "-dc ",
    "nvcc ",
    "$(NVCC) ",
    "CUDA_HOME ",
    "$(CUDA_HOME)/lib64 ",
    "CUDA_PATH ?= ",
    "/usr/local/cuda/lib64 ",
    "-lcudart ",
    "-lcuda ",
    "-lcudnn ",
    "NVCCFLAGS = ",
    "ARCH = sm_70\n",
    "$(addprefix -Xcompiler ,$(X)) ",
    "if(",
    "CUDA_FOUND",
    "é",
    "PROPERTIES CUDA_ARCHITECTURES 70",
    "LANGUAGE CUDA",
];

/// Adversarial files. The time limit is loose, for test builds on busy machines; quadratic behavior takes minutes.
#[test]
fn adversarial_files_take_linear_time() {
    const SIZE: usize = 300_000;
    let fill = |piece: &str| piece.repeat(SIZE / piece.len());
    let sources = [
        fill("a("),
        fill("\""),
        fill("[["),
        fill("${"),
        fill("$<"),
        fill("find_package(CUDA)\n"),
        format!("target_link_libraries(a {})", fill("CUDA::cudart CUDA::cublas ")),
        format!("target_compile_options(a {})", fill("-Xcompiler -arch=sm_70 ")),
        format!("set(CUDA_NVCC_FLAGS {})", fill("-ptx -maxrregcount 3 ")),
        fill("add_library(a b.cu)\n"),
        fill("A = nvcc -arch=$(X) -lcudart\n"),
        fill("-L$(CUDA_ROOT)/lib64 "),
        fill("/usr/local/cuda/samples "),
        fill("$(addprefix -Xcompiler ,"),
        fill("\\\n"),
        fill("nvcc "),
    ];
    for source in &sources {
        for kind in [BuildFile::CMake, BuildFile::Make] {
            let start = std::time::Instant::now();
            convert(source.as_bytes(), kind, &BuildOptions::default());
            let time = start.elapsed();
            assert!(time < std::time::Duration::from_secs(20), "{time:?} for {kind:?} {}…", &source[..30]);
        }
    }
}
