//! Any bytes are accepted: no panic, no lost byte, idempotent, and bounded time.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use warpwave_hipify::{ExcludedBlocks, LaunchSyntax, Options, RocmVersion, RuntimeHeader, Target, translate};

fn all_options() -> Vec<Options> {
    let mut all = Vec::new();
    for target in [Target::Hip, Target::Roc, Target::Miopen] {
        for excluded in [ExcludedBlocks::Translated, ExcludedBlocks::AllButIncludes, ExcludedBlocks::Kept] {
            for (launch, runtime_header) in [(LaunchSyntax::Call, RuntimeHeader::Always), (LaunchSyntax::Kept, RuntimeHeader::WhenUsed)] {
                let hip_data_types = target == Target::Roc;
                all.push(Options { target, excluded, launch, runtime_header, experimental: true, hip_data_types, ..Options::default() });
            }
        }
    }
    all.push(Options { rocm: RocmVersion::V7, ..all[0].clone() });
    all
}

/// Fragments that are combined in any order, so that calls, launches, brackets, literals and directives overlap.
const FRAGMENTS: &[&str] = &[
    "cudaMalloc(&p, n);",
    "cudaMemcpyToSymbol(",
    "cudaMallocHost(&p, 4)",
    "cudaEventCreate(&e, 1)",
    "cudaFuncSetCacheConfig(k<float, 2>, x)",
    "cusparseScsrilu02(a, b, c, d, e, f, g, h, i, j)",
    "cudnnSoftmaxForward(a, b, c, d, e, f, g, h, i)",
    "cusparseSgpsvInterleavedBatch(a, b, c, d, e, f, g, h, i, j, k)",
    "k<<<1, 2>>>(x)",
    "k<float><<<dim3(1), f(2, 3), 4, s>>>(x, y)",
    "<<<",
    ">>>",
    "(",
    ")",
    "{",
    "}",
    "[",
    "]",
    "<",
    ">",
    ",",
    ";",
    "::",
    ".x",
    "half2 pair;",
    "pair.x",
    "cub::Block",
    "using namespace cub;",
    "\"cudaMalloc failed\"",
    "R\"(cudaFree)\"",
    "'",
    "\"",
    "/*",
    "*/",
    "// cudaFree\n",
    "\\\n",
    "\r\n",
    "\n#include <cuda.h>\n",
    "\n#include \"cublas_v2.h\"\n",
    "\n#include <curand_kernel.h>\n",
    "\n#pragma once\n",
    "\n#ifndef GUARD\n",
    "\n#if CUDA_VERSION > 1\n",
    "\n#else\n",
    "\n#endif\n",
    "\n#define L(kern, ...) kern<<<1, 2>>>(__VA_ARGS__);\n",
    "\n#define F k<<<1, 2>>>\n",
    "\n#define ",
    "L(k, 1)",
    "L(k<float>)",
    "F(x)",
    "template <typename T> __global__ void k(T x)",
    "cudaDataType t",
    "cublasSaxpy(1)",
    " ",
    "x",
    "\u{FEFF}",
    "ä",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn any_bytes_are_accepted(source in proptest::collection::vec(any::<u8>(), 0..300)) {
        for options in all_options() {
            let once = translate(&source, &options);
            prop_assert_eq!(&translate(&once.output, &options).output, &once.output);
        }
    }

    #[test]
    fn fragments_of_cuda_in_any_order_are_accepted(pieces in proptest::collection::vec(proptest::sample::select(FRAGMENTS), 0..24)) {
        let source = pieces.concat();
        for options in all_options() {
            let once = translate(source.as_bytes(), &options);
            let twice = translate(&once.output, &options).output;
            prop_assert_eq!(String::from_utf8_lossy(&twice), String::from_utf8_lossy(&once.output), "{:?}", options);
            for diagnostic in &once.diagnostics {
                prop_assert!(diagnostic.start <= diagnostic.end && diagnostic.end as usize <= source.len());
            }
        }
    }

    /// What has nothing of CUDA's in it stays byte for byte.
    #[test]
    fn other_sources_stay(words in proptest::collection::vec("[a-b]{1,3}|[(){}<>;,#\"'/*\\\\ \n]", 0..60)) {
        let source = words.concat();
        // A launch is CUDA's.
        prop_assume!(!source.replace("\\\n", "").contains("<<<"));
        let translation = translate(source.as_bytes(), &Options::default());
        prop_assert_eq!(translation.output, source.as_bytes());
    }
}

#[test]
fn translating_the_output_again_changes_nothing() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            continue;
        }
        let source = std::fs::read(path).unwrap();
        for options in all_options() {
            let once = translate(&source, &options).output;
            assert_eq!(translate(&once, &options).output, once);
        }
    }
}

#[test]
fn line_ends_byte_order_marks_and_non_utf8_bytes_stay() {
    let source = b"\xEF\xBB\xBF#include <cuda.h>\r\nvoid f() { cudaFree(0); } // \xFF\xFE caf\xE9\r\n\"\xC3\x28\"\r\n";
    let output = translate(source, &Options::default()).output;
    assert_eq!(output, b"\xEF\xBB\xBF#include <hip/hip_runtime.h>\r\nvoid f() { hipFree(0); } // \xFF\xFE caf\xE9\r\n\"\xC3\x28\"\r\n");
    let output = translate(b"\xEF\xBB\xBF__global__ void k();\r\n", &Options::default()).output;
    assert_eq!(output, b"\xEF\xBB\xBF\r\n#include <hip/hip_runtime.h>\r\n__global__ void k();\r\n");
    // An argument that moves keeps its bytes, and so does a comment inside a launch.
    let options =
        Options { target: Target::Miopen, launch: LaunchSyntax::Call, runtime_header: RuntimeHeader::Never, ..Options::default() };
    let output = translate(b"cudnnSoftmaxForward(h, \"\xFF\", m, c, d, e, f, g, i); k<<<1, /*\xFE*/ 2>>>(x);", &options).output;
    assert!(output.windows(3).any(|bytes| bytes == b"\"\xFF\""), "{}", String::from_utf8_lossy(&output));
    assert!(output.windows(5).any(|bytes| bytes == b"/*\xFE*/"), "{}", String::from_utf8_lossy(&output));
}

/// Adversarial sources. The time limit is loose, for test builds on busy machines; quadratic behavior takes minutes.
#[test]
fn adversarial_sources_take_linear_time() {
    const SIZE: usize = 2_000_000;
    let fill = |piece: &str| piece.repeat(SIZE / piece.len());
    let call = Options { launch: LaunchSyntax::Call, excluded: ExcludedBlocks::Kept, ..Options::default() };
    let sources = [
        fill("("),
        fill(")"),
        fill("k<<<"),
        fill("k<<<1,2>>>("),
        fill("a<"),
        fill("a>"),
        fill("cudaMemcpyToSymbol("),
        fill("cudaMemcpyToSymbol(a<b,"),
        fill("cudaEventCreate(a<"),
        fill("{(["),
        fill("a::"),
        fill("__global__ "),
        fill("template<class T> __global__ void k(T);"),
        fill("\n#if 1\n"),
        fill("\n#define L(k) k<<<1,2>>>()\nL(k)"),
        fill("half2 a; a[a.x"),
        fill("\""),
        fill("'"),
        fill("/*"),
        fill("R\"("),
        fill("\\\n"),
        format!("#if {}", fill("!(")),
        format!("k<<<1,2>>>({}", fill("a<")),
        format!("{}{}", fill("f("), fill(")")),
        fill("cudaGraphicsD3D9RegisterResource "),
        fill("cu0New,"),
    ];
    for source in &sources {
        let start = Instant::now();
        let translation = translate(source.as_bytes(), &call);
        let time = start.elapsed();
        assert!(translation.output.len() + 100 >= source.len() / 2);
        assert!(time < Duration::from_secs(20), "{time:?} for {}…", &source[..40]);
    }
}

#[test]
fn ten_megabytes_on_one_line_are_translated() {
    let source = "cudaMalloc(&p, 4); int current = 1; ".repeat(10_000_000 / 36);
    let start = Instant::now();
    let translation = translate(source.as_bytes(), &Options::default());
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    assert_eq!(translation.stats.translated.iter().sum::<usize>(), 10_000_000 / 36);
    assert_eq!(translation.stats.lines, 1);
    assert_eq!(translation.stats.lines_changed, 1);
}

#[test]
fn types_of_device_code_in_arguments_that_move_are_translated() {
    let source = b"#define LAUNCH(kernel, grid, ...) kernel<<<grid, 128>>>(__VA_ARGS__)\nvoid f() { LAUNCH(k<__nv_bfloat16>, 2, x); }\n";
    let options = Options { launch: LaunchSyntax::Call, ..Options::default() };
    let once = String::from_utf8(translate(source, &options).output).unwrap();
    assert!(once.contains("HIP_KERNEL_NAME(k<hip_bfloat16>), dim3(2)"), "{once}");
}

#[test]
fn an_array_called_x_is_not_a_half2_member() {
    let source = b"#include <hip/hip_runtime.h>\nvoid f() { half2 ret; } void g() { tile<half2> ret; ret.x[0] = 1; }\n";
    assert_eq!(translate(source, &Options::default()).output, source);
}
