//! Diagnostics of the name translation: their positions, and one per name.

use warpwave_hipify::{Options, Severity, Target, codes, translate};

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
        ("cudaThreadSynchronize();", 105, "cudaThreadSynchronize"),
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
    for target in [Target::Hip, Target::Roc, Target::Miopen] {
        let options = Options { target, experimental: true, ..Options::default() };
        for row in warpwave_hipify::names::rows() {
            let source = format!("#include <cuda.h>\n#include <cublas_v2.h>\nusing namespace {}; void f() {{ {0}(a); }}", row.cuda());
            let translation = translate(source.as_bytes(), &options);
            let kept = String::from_utf8_lossy(&translation.output).contains(&format!(" {}(a)", row.cuda()));
            let reported = translation.diagnostics.iter().any(|diagnostic| matches!(diagnostic.code, 101 | 113));
            let same = row.translated(target) == row.cuda() || row.cuda() == "cub";
            assert!(!kept || reported || same, "{} in {target:?}", row.cuda());
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
