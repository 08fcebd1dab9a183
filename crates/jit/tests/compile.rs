//! The example kernels, compiled for many GPUs with the compilers that are installed.
//!
//! A compiler that is absent skips its tests with a line that says so; with `WARPWAVE_REQUIRE_ALL=1` its absence is a failure.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use warpwave_gpu::code_object::{ArgKind, CodeKind};
use warpwave_jit::{
    ClangTool, CompileError, Compiled, CompilerChoice, Job, KernelSource, NoVersionCache, Target, Tool, Toolchains, compile, compile_with,
    key_material,
};
use warpwave_test_support::{require, workspace_root};

const AMD: &[&str] = &["gfx906", "gfx908", "gfx90a", "gfx942", "gfx1010", "gfx1030", "gfx1100", "gfx1201"];
const NVIDIA: &[&str] = &["sm_80", "sm_90"];
const LIMIT: Duration = Duration::from_secs(5);

fn kernels_folder() -> PathBuf {
    workspace_root().join("examples/kernels")
}

fn target(name: &str) -> Target {
    name.parse().unwrap()
}

/// The tools, or a line that says why the test is skipped.
fn tools(choice: CompilerChoice) -> Option<Toolchains> {
    let found = Toolchains::find();
    let probe = if choice == CompilerChoice::Nvrtc { "sm_90" } else { "gfx90a" };
    match found.choose(&target(probe), choice) {
        Ok(_) => Some(found),
        Err(why) => {
            require(false, &why.to_string());
            None
        }
    }
}

fn run(source: &KernelSource, name: &str, compiler: CompilerChoice, tools: &Toolchains) -> Result<Compiled, CompileError> {
    compile(&Job { source, target: &target(name), compiler }, tools)
}

fn text(text: &str) -> KernelSource {
    KernelSource::from_text("folder/kernel.cu", text).unwrap()
}

/// Compiles every example for every target and returns (file, target, result).
fn all_examples(targets: &[&str], compiler: CompilerChoice, tools: &Toolchains) -> Vec<(String, String, Compiled)> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(kernels_folder()).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    let mut done = Vec::new();
    for file in files.iter().filter(|f| f.extension().is_some_and(|e| e == "cu")) {
        let source = KernelSource::from_file(file).unwrap();
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        let mut line = format!("{name:20}");
        // A file for one GPU alone says so at its beginning.
        let only_hopper = source.text().lines().take(5).any(|l| l.contains("sm_90a"));
        let targets = match (only_hopper, compiler) {
            (false, _) => targets,
            (true, CompilerChoice::Nvrtc) => &["sm_90a"],
            (true, _) => &[],
        };
        for target in targets {
            // On a busy machine a compile may take several times as long.
            let mut tries = 0;
            let (compiled, took) = loop {
                let start = Instant::now();
                let compiled = run(&source, target, compiler, tools).unwrap_or_else(|e| panic!("{name} for {target}: {e}"));
                tries += 1;
                if start.elapsed() <= LIMIT || tries == 3 {
                    break (compiled, start.elapsed());
                }
            };
            line += &format!(" {target} {:.2} s", took.as_secs_f64());
            assert!(took <= LIMIT, "{name} for {target} took {took:?}");
            done.push((name.clone(), (*target).to_owned(), compiled));
        }
        println!("{line}");
    }
    done
}

/// Name and number of arguments of the kernels in each example.
fn expected(file: &str) -> &'static [(&'static str, usize)] {
    match file {
        "block_reduce" => &[("block_reduce", 3)],
        "coalesced_access" => &[("copy_coalesced", 3), ("copy_strided", 4)],
        "half_axpy" => &[("half_axpy", 4), ("half_sum", 3)],
        "histogram" => &[("histogram", 3)],
        "index_times_two" => &[("index_times_two", 2)],
        "math_zoo" => &[("float_zoo", 3), ("double_zoo", 3), ("integer_zoo", 3), ("warp_zoo", 3), ("atomic_zoo", 5)],
        "saxpy" => &[("saxpy", 4)],
        "shared_memory_mean" => &[("mean3", 3)],
        "templates" => &[("ns::add_one", 2), ("_Z3mapIfN3ops6SquareEEvPKT_PS2_i", 3)],
        "vector_add" => &[("vector_add", 4)],
        other => panic!("say here which kernels {other}.cu has"),
    }
}

fn check(file: &str, target_name: &str, compiled: &Compiled, kind: CodeKind) {
    let code = &compiled.code_object;
    assert_eq!((code.target().as_str(), code.kind), (target_name, kind), "{file}");
    for (kernel, args) in expected(file) {
        // Templates have longer symbols where a template is an argument.
        let found = if kernel.starts_with("_Z3map") {
            code.kernels.iter().find(|k| k.name.starts_with("_Z3mapIf")).unwrap()
        } else {
            code.find(kernel).unwrap()
        };
        assert_eq!(found.explicit_args().count(), *args, "{file}: {kernel} for {target_name}");
        assert_eq!(found.wave_size, target(target_name).wave_size(), "{kernel}");
        assert!(found.vgprs > 0, "{kernel}");
    }
    match file {
        "templates" => {
            assert_eq!(code.kernels.len(), 4);
            assert!(code.find("map").unwrap_err().to_string().contains("_Z3mapI"));
        }
        "shared_memory_mean" => {
            assert_eq!(code.kernels[0].static_shared, 258 * 4);
            assert_eq!(code.kernels[0].max_block, 256);
        }
        "saxpy" => {
            let places: Vec<_> = code.kernels[0].explicit_args().map(|a| (a.offset, a.size)).collect();
            assert_eq!(places, [(0, 4), (8, 8), (16, 8), (24, 4)]);
        }
        _ => {}
    }
}

#[test]
fn clang_compiles_every_example_for_every_amd_gpu() {
    let Some(tools) = tools(CompilerChoice::Clang) else { return };
    for (file, target, compiled) in all_examples(AMD, CompilerChoice::Clang, &tools) {
        check(&file, &target, &compiled, CodeKind::Hsaco);
        assert_eq!(compiled.log, "", "{file} for {target}");
        // The device library's switches were folded away.
        assert!(!compiled.binary.windows(7).any(|w| w == b"__oclc_"), "{file} for {target}");
        let kernel = &compiled.code_object.kernels[0];
        assert!(kernel.uniform_blocks && kernel.max_block > 0 && kernel.kernarg_size > 0, "{kernel:?}");
        if file == "saxpy" {
            let kinds: Vec<_> = kernel.explicit_args().map(|a| a.kind.clone()).collect();
            assert_eq!(kinds, [ArgKind::ByValue, ArgKind::GlobalBuffer, ArgKind::GlobalBuffer, ArgKind::ByValue]);
            assert!(kernel.args.iter().any(|a| a.kind == ArgKind::Hidden("hidden_block_count_x".to_owned())));
        }
    }
}

#[test]
fn nvrtc_compiles_every_example() {
    let Some(tools) = tools(CompilerChoice::Nvrtc) else { return };
    for (file, target, compiled) in all_examples(NVIDIA, CompilerChoice::Nvrtc, &tools) {
        check(&file, &target, &compiled, CodeKind::Cubin);
        // The registers read from the cubin are those ptxas reports.
        for kernel in &compiled.code_object.kernels {
            let block = compiled.log.split(&format!("Compiling entry function '{}'", kernel.name)).nth(1).unwrap();
            assert!(block.split("Used ").nth(1).unwrap().starts_with(&format!("{} registers", kernel.vgprs)), "{file}: {}", compiled.log);
        }
    }
}

#[test]
fn nvrtc_gives_ptx_when_asked_and_specific_code_for_hopper() {
    let Some(tools) = tools(CompilerChoice::Nvrtc) else { return };
    let source = KernelSource::from_file(kernels_folder().join("vector_add.cu")).unwrap();
    let ptx = run(&source, "compute_80", CompilerChoice::Auto, &tools).unwrap();
    assert_eq!((ptx.code_object.kind, ptx.code_object.target().as_str()), (CodeKind::Ptx, "compute_80"));
    assert!(ptx.code_object.find("vector_add").is_ok());
    let hopper = text("extern \"C\" __global__ void k() { asm volatile(\"setmaxnreg.dec.sync.aligned.u32 40;\"); }");
    // CUDA 13 does not mark such code in the file.
    assert!(run(&hopper, "sm_90a", CompilerChoice::Auto, &tools).unwrap().code_object.target().starts_with("sm_90"));
    assert!(matches!(run(&hopper, "sm_90", CompilerChoice::Auto, &tools), Err(CompileError::Failed { .. })));
    assert!(matches!(run(&hopper, "sm_99", CompilerChoice::Auto, &tools), Err(CompileError::UnknownArchitecture { .. })));
}

#[test]
fn features_of_the_target_are_in_the_code() {
    let Some(tools) = tools(CompilerChoice::Clang) else { return };
    let source = text("extern \"C\" __global__ void k(int *p) { *p = 1; }");
    for name in ["gfx942:sramecc+:xnack-", "gfx90a:xnack+", "gfx11-generic"] {
        assert_eq!(run(&source, name, CompilerChoice::Auto, &tools).unwrap().code_object.target(), name);
    }
}

#[test]
fn results_do_not_depend_on_temporary_names() {
    let Some(tools) = tools(CompilerChoice::Clang) else { return };
    let source = KernelSource::from_file(kernels_folder().join("histogram.cu")).unwrap();
    let [a, b] = [0, 1].map(|_| run(&source, "gfx90a", CompilerChoice::Clang, &tools).unwrap().binary);
    assert!(a == b);
}

/// An error on line 3 of the source and one on line 2 of a header it includes.
fn errors_carry_place(compiler: CompilerChoice, target: &str, at: impl Fn(&Path, usize) -> String) {
    let Some(tools) = tools(compiler) else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("my kernel.cu");
    std::fs::write(&file, "\n__global__ void k(float *p) {\n    p[0] = undefined_name;\n}\n").unwrap();
    let error = run(&KernelSource::from_file(&file).unwrap(), target, compiler, &tools).unwrap_err();
    let CompileError::Failed { log, source_name, target: named, compiler: name, .. } = &error else { panic!("{error}") };
    assert!(log.contains(&at(&file, 3)) && log.contains("undefined_name"), "{log}");
    assert_eq!((source_name.as_str(), named.as_str()), (&*file.to_string_lossy(), target));
    assert!(error.to_string().contains(name.as_str()));

    std::fs::create_dir(folder.path().join("inc")).unwrap();
    let header = folder.path().join("inc/deep.cuh");
    std::fs::write(&header, "#pragma once\n__device__ int broken() { return nothing_here; }\n").unwrap();
    std::fs::write(&file, "#include \"inc/deep.cuh\"\n__global__ void k(float *p) { p[0] = broken(); }\n").unwrap();
    let error = run(&KernelSource::from_file(&file).unwrap(), target, compiler, &tools).unwrap_err().to_string();
    assert!(error.contains(&at(&header, 2)) && error.contains("nothing_here"), "{error}");
}

#[test]
fn clang_errors_name_the_users_file_and_line() {
    errors_carry_place(CompilerChoice::Clang, "gfx90a", |file, line| format!("{}:{line}:", file.display()));
}

#[test]
fn nvrtc_errors_name_the_users_file_and_line() {
    errors_carry_place(CompilerChoice::Nvrtc, "sm_90", |file, line| format!("{}({line})", file.display()));
}

#[test]
fn hiprtc_errors_name_the_users_file_and_line() {
    errors_carry_place(CompilerChoice::HipRtc, "gfx90a", |file, line| format!("{}:{line}:", file.display()));
}

#[test]
fn warnings_are_kept_in_the_log() {
    let source = text("#warning mind the gap\nextern \"C\" __global__ void k(int *p) { *p = 1; }");
    for (compiler, target) in [(CompilerChoice::Clang, "gfx90a"), (CompilerChoice::Nvrtc, "sm_90")] {
        let Some(tools) = tools(compiler) else { continue };
        let log = run(&source, target, compiler, &tools).unwrap().log;
        assert!(log.contains("mind the gap") && log.contains("folder/kernel.cu"), "{log}");
    }
}

#[test]
fn includes_defines_and_options_reach_the_compiler() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("value.cuh"), "#define VALUE FROM_OUTSIDE\n").unwrap();
    let source = text("#include <value.cuh>\n#include <stdint.h>\n#ifndef OPTION\n#error no option\n#endif\nstatic_assert(VALUE == 42 && WARPWAVE_WAVE_SIZE >= 32, \"\");\nstruct S { T t; U u; };\nextern \"C\" __global__ void k(uint32_t *p, const __grid_constant__ S s) { *p = VALUE + s.t; }")
        .include_dir(folder.path())
        .unwrap()
        .define("FROM_OUTSIDE", "42")
        // Names that the compilers' own headers have for parameters of templates.
        .define("T", "unsigned")
        .define("U", "unsigned")
        .option("-DOPTION");
    for (compiler, target) in [(CompilerChoice::Clang, "gfx90a"), (CompilerChoice::Nvrtc, "sm_90"), (CompilerChoice::HipRtc, "gfx90a")] {
        let Some(tools) = tools(compiler) else { continue };
        run(&source, target, compiler, &tools).unwrap();
    }
}

#[test]
fn an_architecture_clang_does_not_know_is_named_with_the_version_that_does() {
    let Some(tools) = tools(CompilerChoice::Clang) else { return };
    let source = text("__global__ void k() {}");
    let error = run(&source, "gfx999", CompilerChoice::Clang, &tools).unwrap_err();
    assert!(matches!(error, CompileError::UnknownArchitecture { .. }), "{error}");
    let version = tools.clang[0].version(&NoVersionCache).unwrap();
    assert!(version.contains("clang version"), "{version}");
    if version.contains("version 19.") {
        let error = run(&source, "gfx950", CompilerChoice::Clang, &tools).unwrap_err().to_string();
        assert!(error.contains("gfx950") && error.contains("requires clang 20 or later"), "{error}");
    }
}

#[test]
fn hiprtc_compiles_what_it_knows_and_refuses_what_would_abort_it() {
    let Some(tools) = tools(CompilerChoice::HipRtc) else { return };
    for file in ["vector_add", "block_reduce", "histogram", "half_axpy"] {
        let source = KernelSource::from_file(kernels_folder().join(format!("{file}.cu"))).unwrap();
        let compiled = run(&source, "gfx90a", CompilerChoice::HipRtc, &tools).unwrap();
        for (kernel, args) in expected(file) {
            assert_eq!(compiled.code_object.find(kernel).unwrap().explicit_args().count(), *args);
        }
        assert!(compiled.code_object.target().starts_with("gfx90a"));
    }
    let version = tools.hiprtc[0].version(&NoVersionCache).unwrap();
    if version.starts_with("hipRTC 5.2") {
        for target in ["gfx1100", "gfx942", "gfx1299"] {
            let source = text("__global__ void k() {}");
            assert!(matches!(run(&source, target, CompilerChoice::HipRtc, &tools), Err(CompileError::UnknownArchitecture { .. })));
        }
    }
}

#[test]
fn compilers_may_be_called_from_many_threads() {
    for (compiler, target) in [(CompilerChoice::Clang, "gfx90a"), (CompilerChoice::Nvrtc, "sm_90"), (CompilerChoice::HipRtc, "gfx90a")] {
        let Some(tools) = tools(compiler) else { continue };
        std::thread::scope(|scope| {
            for id in 0..3 {
                let tools = &tools;
                scope.spawn(move || {
                    let name = format!("kernel_{id}");
                    let source = text(&format!("extern \"C\" __global__ void {name}(int *p) {{ *p = {id}; }}"));
                    assert!(run(&source, target, compiler, tools).unwrap().code_object.find(&name).is_ok());
                });
            }
        });
    }
}

#[test]
fn key_material_covers_text_options_target_and_headers() {
    let Some(tools) = tools(CompilerChoice::Clang) else { return };
    let base = text("__global__ void k() {}");
    let key = |source: &KernelSource, name: &str| {
        let target = target(name);
        let job = Job { source, target: &target, compiler: CompilerChoice::Auto };
        key_material(&job, tools.choose(&target, job.compiler).unwrap())
    };
    let first = key(&base, "gfx90a");
    assert_eq!(first, key(&base, "gfx90a"));
    assert_ne!(first, key(&base, "gfx90a:xnack+"));
    assert_ne!(first, key(&base.clone().define("A", "1"), "gfx90a"));
    assert_ne!(first, key(&base.clone().option("-O1"), "gfx90a"));
    assert_ne!(first, key(&text("__global__ void k() { }"), "gfx90a"));
    assert!(first.iter().any(|(label, _)| label == "header cuda_fp16.h"));
}

#[test]
fn printf_and_assert_compile_for_amd() {
    let Some(tools) = tools(CompilerChoice::Clang) else { return };
    let source = text("#include <assert.h>\n#include <stdio.h>\n__global__ void k(int *p) { assert(*p > 0); printf(\"%d\\n\", *p); }");
    let compiled = run(&source, "gfx90a", CompilerChoice::Clang, &tools).unwrap();
    assert!(compiled.code_object.kernels[0].args.iter().any(|a| a.kind == ArgKind::Hidden("hidden_hostcall_buffer".to_owned())));
}

#[test]
fn a_source_may_define_what_older_cuda_lacks() {
    let Some(tools) = tools(CompilerChoice::Clang) else { return };
    let source =
        text("__device__ double atomicAdd(double *p, double v) { return *p += v; }\n__global__ void k(double *p) { atomicAdd(p, 1.0); }");
    run(&source, "gfx90a", CompilerChoice::Clang, &tools).unwrap();
}

#[test]
fn a_text_finds_no_file_that_its_key_does_not_cover() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("beside.cuh"), "").unwrap();
    let name = folder.path().join("kernel.cu").to_string_lossy().into_owned();
    for include in ["\"beside.cuh\"", "<beside.cuh>"] {
        let source = KernelSource::from_text(&name, format!("#include {include}\n__global__ void k() {{}}")).unwrap();
        assert_eq!(source.unresolved(), ["beside.cuh"]);
        for (compiler, target) in [(CompilerChoice::Clang, "gfx90a"), (CompilerChoice::Nvrtc, "sm_90"), (CompilerChoice::HipRtc, "gfx90a")]
        {
            let Some(tools) = tools(compiler) else { continue };
            assert!(matches!(run(&source, target, compiler, &tools), Err(CompileError::Failed { .. })), "{compiler:?} {include}");
            assert!(run(&source.clone().include_dir(folder.path()).unwrap(), target, compiler, &tools).is_ok());
        }
    }
}

/// In-memory headers reach every compiler, once each, and messages use their names.
#[test]
fn in_memory_headers_are_compiled_by_every_compiler() {
    let kernel = "#include \"common/scale.cuh\"\n#include <add.cuh>\n__global__ void k(float *p) { *p = add(scale(*p)); }";
    let scale = "#pragma once\n__device__ inline float scale(float x) { return 2 * x; }\n";
    let add = "#pragma once\n#include \"common/scale.cuh\"\n__device__ inline float add(float x) { return x + scale(x); }\n";
    let source = text(kernel).headers([("common/scale.cuh", scale), ("add.cuh", add)]).unwrap();
    let broken = source.clone().header("add.cuh", format!("{add}\n\nint broken = ;\n")).unwrap();
    for (compiler, target) in [(CompilerChoice::Clang, "gfx90a"), (CompilerChoice::Nvrtc, "sm_90"), (CompilerChoice::HipRtc, "gfx90a")] {
        let Some(tools) = tools(compiler) else { continue };
        let compiled = run(&source, target, compiler, &tools).unwrap_or_else(|error| panic!("{compiler:?}: {error}"));
        assert_eq!(compiled.code_object.kernels.len(), 1, "{compiler:?}");
        let error = run(&broken, target, compiler, &tools).unwrap_err().to_string();
        assert!(error.contains("add.cuh") && !error.contains("/warpwave/source"), "{compiler:?}: {error}");
    }
}

/// The content of an included in-memory header is part of the cache key; that of others is not.
#[test]
fn in_memory_headers_are_part_of_the_key() {
    let Some(tools) = tools(CompilerChoice::Clang) else { return };
    let target = target("gfx90a");
    let tool = tools.choose(&target, CompilerChoice::Clang).unwrap();
    let key = |source: &KernelSource| warpwave_jit::key_material(&Job { source, target: &target, compiler: CompilerChoice::Clang }, tool);
    let source = text("#include \"a.cuh\"\n__global__ void k() {}").header("a.cuh", "// 1").unwrap();
    assert_ne!(key(&source), key(&source.clone().header("a.cuh", "// 2").unwrap()));
    assert_eq!(key(&source), key(&source.clone().header("b.cuh", "// 3").unwrap()));
}

#[test]
fn a_guard_on_an_nvidia_architecture_is_open_and_can_be_shut() {
    let Some(tools) = tools(CompilerChoice::Clang) else { return };
    let source = text(
        "#if __CUDA_ARCH__ >= 530\n#include <cuda_fp16.h>\n__global__ void guarded(__half *p) { *p += __half(1); }\n#endif\n__global__ void open(int *p) { *p = 1; }",
    );
    let names = |source: &KernelSource| run(source, "gfx90a", CompilerChoice::Clang, &tools).unwrap().code_object.kernels.len();
    assert_eq!(names(&source), 2);
    assert_eq!(names(&source.define("__CUDA_ARCH__", "520")), 1);
}

#[test]
fn a_device_library_that_cannot_be_read_is_passed_over_or_named() {
    let Some(tools) = tools(CompilerChoice::Clang) else { return };
    let Tool::Clang(good) = &tools.clang[0] else { panic!() };
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("ocml.bc"), "no bitcode").unwrap();
    let source = text("__global__ void k(float *p) { *p = sinf(*p); }");
    let target = target("gfx90a");
    let job = Job { source: &source, target: &target, compiler: CompilerChoice::Clang };
    let with = |device_libs: Vec<PathBuf>| compile_with(&job, &Tool::Clang(ClangTool { path: good.path.clone(), device_libs }));
    let only_bad = with(vec![folder.path().to_owned()]).unwrap_err().to_string();
    assert!(only_bad.contains("rocm-device-libs"), "{only_bad}");
    let none = with(vec![]).unwrap_err().to_string();
    assert!(none.contains("rocm-device-libs"), "{none}");
    let libs: Vec<PathBuf> = std::iter::once(folder.path().to_owned()).chain(good.device_libs.iter().cloned()).collect();
    if libs.len() > 1 {
        with(libs).unwrap();
    }
    assert!(matches!(
        compile_with(&job, &Tool::Clang(ClangTool { path: "/nowhere/clang".into(), device_libs: vec![] })),
        Err(CompileError::Io { .. })
    ));
}

#[test]
fn temporary_files_are_gone_afterwards() {
    let Some(tools) = tools(CompilerChoice::Clang) else { return };
    let left = || {
        std::fs::read_dir(std::env::temp_dir())
            .unwrap()
            .flatten()
            .filter(|e| e.file_name().to_string_lossy().starts_with("warpwave-"))
            .count()
    };
    // Other tests compile meanwhile: what must not happen is that folders pile up.
    let before = left();
    for code in ["__global__ void k() {}", "this is not C++"] {
        for _ in 0..4 {
            let _ = run(&text(code), "gfx90a", CompilerChoice::Clang, &tools);
        }
    }
    assert!(left() < before + 8);
}

#[test]
fn cudas_own_headers_compile_everywhere() {
    let source = text(
        "#include <cuda.h>\n#include <cuda_runtime.h>\n#include <device_launch_parameters.h>\n#include <math_constants.h>\n#include <cuda_fp8.h>\n#include <cuda/std/limits>\n__global__ void k(float *p) { *p = CUDART_PI_F + (float)__nv_fp8_e4m3(cuda::std::numeric_limits<float>::epsilon()); }",
    );
    for (compiler, target) in [(CompilerChoice::Clang, "gfx90a"), (CompilerChoice::Nvrtc, "sm_90")] {
        let Some(tools) = tools(compiler) else { continue };
        run(&source, target, compiler, &tools).unwrap_or_else(|e| panic!("{e}"));
    }
}
