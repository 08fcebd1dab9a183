//! Diagnostics of the name translation: their positions, and one per name.

use warpwave_hipify::{CompatibilityHeader, Headers, Options, RocmVersion, Severity, Target, UseHeader, codes, convert, translate};

fn diagnostics_of(source: &str, options: &Options) -> Vec<(u16, String)> {
    let translation = translate(source.as_bytes(), options);
    let text = |d: &warpwave_hipify::Diagnostic| source[d.start as usize..d.end as usize].to_owned();
    translation.diagnostics.iter().map(|d| (d.code, text(d))).collect()
}

#[test]
fn each_code_points_at_its_cause() {
    let plain = Options::default();
    let cases: &[(&str, u16, &str)] = &[
        ("cudaNewThing();", 100, "cudaNewThing"),
        ("__nv_new_type x;", 100, "__nv_new_type"),
        ("cudaGraphicsD3D9RegisterResource(a, b, c);", 101, "cudaGraphicsD3D9RegisterResource"),
        ("#include <cublas.h>\nvoid f() { cublasSaxpy(n, a, x, 1, y, 1); }", 103, "cublasSaxpy"),
        ("#include <caffe2/core/context_gpu.h>\n", 104, "<caffe2/core/context_gpu.h>"),
        ("cusparseAxpby(h, a, x, b, y);", 105, "cusparseAxpby"),
        ("texture<float> t;", 106, "texture"),
        ("cuCtxCreate(&c, 0, d);", 107, "cuCtxCreate"),
        ("a <<< b;", 109, "<<<"),
        ("auto f = cudaFuncSetCacheConfig;", 110, "cudaFuncSetCacheConfig"),
        ("cuOccupancyMaxPotentialBlockSize(&a, &b, f, g, 0, 0);", 111, "cuOccupancyMaxPotentialBlockSize"),
        ("#include <cuda_bf16.h>\n", 112, "<cuda_bf16.h>"),
        ("x = __vsub4(x, 0);", 113, "__vsub4"),
        ("half2 v; float f = v.x;", 114, "x"),
        ("__half2 v; float f = v.x;", 114, "x"),
        ("#if CUDART_VERSION > 11000\n#endif\n", 116, "CUDART_VERSION"),
        ("#define CALL(name) cuda##name()\n", 117, "cuda"),
        ("cudaDeviceSetLimit(limit, 1);", 125, "cudaDeviceSetLimit"),
        ("cudaStreamGetId(s, &id);", 125, "cudaStreamGetId"),
        ("CUDA_MEMSET_NODE_PARAMS p;", 127, "CUDA_MEMSET_NODE_PARAMS"),
    ];
    for (source, code, place) in cases {
        let found = diagnostics_of(source, &plain);
        assert!(found.contains(&(*code, (*place).to_owned())), "{source}: {found:?}");
        assert!(codes::find(*code).is_some());
    }
}

#[test]
fn experimental_names_need_the_option() {
    let row = warpwave_hipify::names::rows()
        .iter()
        .find(|row| {
            let output = translate(row.cuda().as_bytes(), &Options::default());
            output.diagnostics.iter().any(|diagnostic| diagnostic.code == 102)
        })
        .expect("an experimental name");
    let yes = Options { experimental: true, ..Options::default() };
    assert!(diagnostics_of(row.cuda(), &yes).iter().all(|(code, _)| *code != 102));
    assert!(String::from_utf8_lossy(&translate(row.cuda().as_bytes(), &yes).output).contains(row.hip()));
}

#[test]
fn recent_equivalents_are_reported_with_their_version() {
    let note = |source: &str, target, rocm| {
        let translation = translate(source.as_bytes(), &Options { target, rocm, ..Options::default() });
        translation.diagnostics.iter().find(|d| d.code == 125).map(|d| d.message.clone().into_owned())
    };
    let (recent, older) = ("cudaStreamGetId(s, &id);", "cudaEventRecordWithFlags(e, s, 0);");
    for rocm in [RocmVersion::V6, RocmVersion::V7] {
        assert_eq!(note(recent, Target::Hip, rocm).as_deref(), Some("`hipStreamGetId` requires HIP 7.2 or later"));
    }
    assert_eq!(note(older, Target::Hip, RocmVersion::V6).as_deref(), Some("`hipEventRecordWithFlags` requires HIP 6.4 or later"));
    assert_eq!(note(older, Target::Hip, RocmVersion::V7), None);
    assert_eq!(note("cudaFree(p);", Target::Hip, RocmVersion::V6), None);
    assert_eq!(note("CUBLAS_OP_N", Target::Roc, RocmVersion::V6), None);
}

/// Names for ROCm 6 by default, for ROCm 7 with the option.
#[test]
fn names_are_those_of_the_rocm_version() {
    let output = |source: &str, target, rocm| {
        let options = Options { target, rocm, ..Options::default() };
        String::from_utf8(translate(format!("#include <cublas_v2.h>\n{source}").as_bytes(), &options).output).unwrap()
    };
    let cases = [
        ("cublasCgemm", "hipblasCgemm_v2", "hipblasCgemm"),
        ("cudaDevAttrPciDomainId", "hipDeviceAttributePciDomainID", "hipDeviceAttributePciDomainId"),
        ("CU_JIT_WALL_TIME", "HIPRTC_JIT_WALL_TIME", "hipJitOptionWallTime"),
        ("__nv_bfloat16", "hip_bfloat16", "__hip_bfloat16"),
        ("__nv_fp8_e4m3", "__nv_fp8_e4m3", "__hip_fp8_e4m3"),
        ("#include <nvrtc.h>", "#include <hiprtc.h>", "#include <hip/hiprtc.h>"),
        ("#include <cuda_bf16.h>", "#include <cuda_bf16.h>", "#include <hip/hip_bf16.h>"),
        ("cudaGetDriverEntryPoint(a, b, c, d);", "hipGetProcAddress(a, b, 603, c, d);", "hipGetProcAddress(a, b, 700, c, d);"),
        ("\"cublasCgemm\"", "\"hipblasCgemm_v2\"", "\"hipblasCgemm\""),
        ("cudaFree", "hipFree", "hipFree"),
    ];
    for (source, six, seven) in cases {
        for (rocm, expected) in [(RocmVersion::V6, six), (RocmVersion::V7, seven)] {
            let output = output(source, Target::Hip, rocm);
            assert!(output.ends_with(&format!("\n{expected}")), "{source} for ROCm {rocm}: {output}");
        }
    }
    assert!(output("cublasCgemm", Target::Roc, RocmVersion::V7).ends_with("\nrocblas_cgemm"));
    assert!(output("cudaStream_t", Target::Miopen, RocmVersion::V6).ends_with("\nmiopenAcceleratorQueue_t"));
    assert!(output("cudaStream_t", Target::Miopen, RocmVersion::V7).ends_with("\nhipStream_t"));
    assert_eq!(RocmVersion::default().to_string().parse(), Ok(RocmVersion::V6));
    assert_eq!("5".parse::<RocmVersion>(), Err("expected 6 or 7"));
}

#[test]
fn names_that_rocm_7_removed_are_reported_once() {
    let source = "#include <cublas_v2.h>\nvoid f() { cublasCgemm(a); cublasCgemm(b); cublasSgemm(c); }";
    let notes = |target, rocm| {
        let translation = translate(source.as_bytes(), &Options { target, rocm, ..Options::default() });
        let notes = translation.diagnostics.into_iter().filter(|d| d.code == 127);
        notes.map(|d| (d.message.into_owned(), d.help.unwrap_or_default().into_owned())).collect::<Vec<_>>()
    };
    let note = ("`hipblasCgemm_v2` was removed in ROCm 7".to_owned(), "pass `--rocm 7` to use `hipblasCgemm`".to_owned());
    assert_eq!(notes(Target::Hip, RocmVersion::V6), [note]);
    assert_eq!(notes(Target::Hip, RocmVersion::V7), []);
    assert_eq!(notes(Target::Roc, RocmVersion::V6), []);
}

#[test]
fn versions_of_a_library_are_its_own() {
    let message = |source: &str| translate(source.as_bytes(), &Options::default()).diagnostics[0].message.clone();
    assert_eq!(message("cudnnAddTensor(h, a, x, p, b, y, q);"), "cuDNN 9.0 deprecated `cudnnAddTensor`");
    assert_eq!(message("cudaThreadSynchronize();"), "CUDA 13.0 removed `cudaThreadSynchronize`");
}

#[test]
fn calls_with_the_arguments_of_cuda_13_are_adapted() {
    let options = Options { rocm: RocmVersion::V7, ..Options::default() };
    let output = |source: &str| String::from_utf8(translate(source.as_bytes(), &options).output).unwrap();
    let cases = [
        ("cudaMemPrefetchAsync(p, n, 0, s);", "hipMemPrefetchAsync(p, n, 0, s);"),
        ("cudaMemPrefetchAsync(p, n, where, 0, s);", "hipMemPrefetchAsync_v2(p, n, where, 0, s);"),
        ("cudaMemcpyBatchAsync(d, s, n, k, a, i, m, &bad, t);", "hipMemcpyBatchAsync(d, s, n, k, a, i, m, &bad, t);"),
        ("cudaMemcpyBatchAsync(d, s, n, k, a, i, m, t);", "hipMemcpyBatchAsync(d, s, n, k, a, i, m, nullptr, t);"),
        ("cudaMemcpy3DBatchAsync(n, list, 0, t);", "hipMemcpy3DBatchAsync(n, list, nullptr, 0, t);"),
    ];
    for (source, hip) in cases {
        assert!(output(source).ends_with(hip), "{source} became {}", output(source));
    }
    let reported = |rocm| {
        let options = Options { rocm, ..Options::default() };
        let found = convert(cases[1].0.as_bytes(), &options, &Headers::default()).diagnostics;
        found.iter().map(|diagnostic| diagnostic.code).collect::<Vec<_>>()
    };
    assert_eq!((reported(RocmVersion::V6), reported(RocmVersion::V7)), (vec![120], vec![125]));
}

/// Names that the compatibility header supplies stay; the others are HIP's.
#[test]
fn device_names_stay_where_the_compatibility_header_supplies_them() {
    let source =
        "#include <cuda_fp8.h>\n__device__ void f(__nv_fp8_storage_t *x, __nv_fp4_e2m1 *y) { *x = __nv_cvt_float_to_fp8(1, a, b); }\n";
    let header =
        CompatibilityHeader::new("typedef unsigned char __nv_fp8_storage_t; int __nv_cvt_float_to_fp8(float, int, int);".to_owned());
    let headers = Headers { compatibility: Some(&header), ..Headers::default() };
    let output = |compatibility_header, rocm| {
        let options = Options { compatibility_header, rocm, ..Options::default() };
        String::from_utf8(convert(source.as_bytes(), &options, &headers).output).unwrap()
    };
    let with = output(UseHeader::WhenNeeded, RocmVersion::V7);
    assert!(with.contains("f(__nv_fp8_storage_t *x, __hip_fp4_e2m1 *y) { *x = __nv_cvt_float_to_fp8("), "{with}");
    let without = output(UseHeader::Never, RocmVersion::V7);
    assert!(without.contains("#include <hip/hip_fp8.h>"), "{without}");
    assert!(without.contains("f(__hip_fp8_storage_t *x, __hip_fp4_e2m1 *y) { *x = __hip_cvt_float_to_fp8("), "{without}");
    for use_header in [UseHeader::WhenNeeded, UseHeader::Never] {
        let six = output(use_header, RocmVersion::V6);
        assert!(six.contains("f(__nv_fp8_storage_t *x, __nv_fp4_e2m1 *y) { *x = __nv_cvt_float_to_fp8("), "{six}");
    }
}

#[test]
fn names_of_the_project_are_not_reported() {
    let source = "#define cudaCheckMine(x) (x)\nint cuOwnThing(int);\nint cudaOne, cudaTwo;\n\
                  void f() { cudaCheckMine(cuOwnThing(cudaTwo)); int current = cursor + customers; }\n";
    assert_eq!(diagnostics_of(source, &Options::default()), []);
}

#[test]
fn notes_come_once_per_name_and_unknown_names_with_their_count() {
    let source = "cudaThreadSynchronize(); cudaThreadSynchronize(); cudaNewThing(); cudaNewThing();";
    let translation = translate(source.as_bytes(), &Options::default());
    assert_eq!(translation.diagnostics.len(), 2, "{:?}", translation.diagnostics);
    assert!(translation.diagnostics[1].message.contains("2 times"));
    assert_eq!(translation.diagnostics[0].severity, Severity::Note);
}

/// Every name of the table is translated, reported, or the same in HIP.
#[test]
fn every_name_of_the_table_is_translated_or_reported() {
    let targets = [Target::Hip, Target::Roc, Target::Miopen];
    for (target, rocm) in targets.into_iter().flat_map(|target| [(target, RocmVersion::V6), (target, RocmVersion::V7)]) {
        let options = Options { target, rocm, experimental: true, ..Options::default() };
        for row in warpwave_hipify::names::rows().iter().map(|row| row.for_rocm(rocm)) {
            let source = format!("#include <cuda.h>\n#include <cublas_v2.h>\nusing namespace {}; void f() {{ {0}(a); }}", row.cuda());
            let translation = translate(source.as_bytes(), &options);
            let kept = String::from_utf8_lossy(&translation.output).contains(&format!(" {}(a)", row.cuda()));
            let reported = translation.diagnostics.iter().any(|diagnostic| matches!(diagnostic.code, 101 | 113));
            let same = row.translated(target) == row.cuda() || row.cuda() == "cub";
            assert!(!kept || reported || same, "{} in {target:?} for ROCm {rocm}", row.cuda());
        }
    }
}

#[test]
fn counts_add_up() {
    let source =
        "#include <cuda.h>\n__global__ void k(int *x);\nint main() {\n  k<<<1, 2>>>(p);\n  cudaFree(p); cuInit(0);\n  cudaNewThing();\n}\n";
    let stats = translate(source.as_bytes(), &Options::default()).stats;
    assert_eq!((stats.lines, stats.lines_changed, stats.bytes), (7, 2, source.len()));
    assert_eq!((stats.launches, stats.kernels, stats.includes, stats.unknown), (1, 1, 1, 1));
    assert_eq!((stats.translated_references(), stats.untranslated_references()), (4, 1));
    let text = stats.to_string();
    assert!(text.contains("CONVERTED refs count: 4") && text.contains("CONVERSION %: 80.0"), "{text}");
    let mut twice = stats.clone();
    twice.add(&stats);
    assert_eq!(twice.references(), 2 * stats.references());
}
