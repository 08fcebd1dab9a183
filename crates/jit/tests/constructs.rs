//! The translator's golden sources, compiled for AMD; and what reaches the user of a translation.

mod common;

use std::path::Path;

use common::clang_jit;
use warpwave_jit::cache::Outcome;
use warpwave_jit::{CompilerChoice, KernelSource, Target};

fn target() -> Target {
    "gfx90a".parse().unwrap()
}

#[test]
fn golden_sources_compile() {
    let Some((jit, _folder)) = clang_jit(&target()) else { return };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../hipify/tests/kernels");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "cu"));
    for path in files {
        let source = KernelSource::from_file(&path).unwrap();
        let built = jit.build(&source, &target(), CompilerChoice::Auto).unwrap_or_else(|error| panic!("{error}"));
        assert!(!built.compiled.code_object.kernels.is_empty(), "{}", path.display());
        assert!(!built.compiled.notes.iter().any(|n| n.severity == "error" || n.code == "WW0310"), "{:?}", built.compiled.notes);
    }
}

#[test]
fn the_translation_and_its_notes_are_kept_in_the_cache() {
    let Some((jit, _folder)) = clang_jit(&target()) else { return };
    let text = "#if __CUDA_ARCH__ >= 800\nextern \"C\" __global__ void a(int *x) { *x = 1; }\n#endif\n\
        #ifndef __HIP_PLATFORM_AMD__\nextern \"C\" __global__ void lost(int *x) { *x = 2; }\n#endif\n";
    let source = KernelSource::from_text("k.cu", text).unwrap();
    for outcome in [Outcome::Made, Outcome::Hit] {
        let built = jit.build(&source, &target(), CompilerChoice::Auto).unwrap();
        assert_eq!(built.outcome, outcome);
        assert_eq!(built.compiled.hip, [("k.cu".to_owned(), text.replace("__CUDA_ARCH__", "WARPWAVE_CUDA_ARCH"))]);
        let notes: Vec<String> = built.compiled.notes.iter().map(ToString::to_string).collect();
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(notes[0].starts_with("k.cu:5:28: WW0310 warning: the kernel `lost` is not in the code for AMD"), "{notes:?}");
    }
}

#[test]
fn a_reached_instruction_without_counterpart_is_an_error_at_its_line() {
    let Some((jit, _folder)) = clang_jit(&target()) else { return };
    let text = "extern \"C\" __global__ void k(unsigned *x) {\n    unsigned y;\n    asm(\"movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;\"\n        \
        : \"=r\"(y) : \"r\"(*x));\n    *x = y;\n    undeclared();\n}\n";
    let source = KernelSource::from_text("k.cu", text).unwrap();
    let error = jit.build(&source, &target(), CompilerChoice::Auto).unwrap_err().to_string();
    assert!(error.contains("k.cu:3:5: WW0301 error: ") && error.contains("movmatrix"), "{error}");
    assert!(error.contains("k.cu:6:5: error: "), "lines moved: {error}");
    let source = KernelSource::from_text("k.cu", text.replace("    undeclared();\n", "")).unwrap();
    let error = jit.build(&source, &target(), CompilerChoice::Auto).unwrap_err().to_string();
    assert!(error.contains("WW0301: the PTX instruction movmatrix"), "{error}");
}

#[test]
fn a_call_that_nothing_declares_is_named_before_the_compilers_message() {
    let Some((jit, _folder)) = clang_jit(&target()) else { return };
    let text = "__device__ int __mine(int x) { return x; }\nextern \"C\" __global__ void k(int *x) {\n    *x = __mine(__popc(__new_thing(*x)));\n}\n";
    let source = KernelSource::from_text("k.cu", text).unwrap();
    let error = jit.build(&source, &target(), CompilerChoice::Auto).unwrap_err().to_string();
    assert!(error.contains("k.cu:3:24: WW0305 warning: `__new_thing` is called"), "{error}");
    assert_eq!(error.matches("WW0305").count(), 1, "{error}");
}

#[test]
fn the_architecture_that_guards_see_can_be_chosen() {
    let Some((jit, _folder)) = clang_jit(&target()) else { return };
    let text = "#if __CUDA_ARCH__ < 800\nextern \"C\" __global__ void old() {}\n#elif __CUDA_ARCH__ < 900\n\
        extern \"C\" __global__ void ampere() {}\n#else\nextern \"C\" __global__ void hopper() {}\n#endif\n";
    let name =
        |source: KernelSource| jit.build(&source, &target(), CompilerChoice::Auto).unwrap().compiled.code_object.kernels[0].name.clone();
    let source = KernelSource::from_text("k.cu", text).unwrap();
    assert_eq!(name(source.clone()), "hopper");
    assert_eq!(name(source.clone().define("WARPWAVE_CUDA_ARCH", "860")), "ampere");
    assert_eq!(name(source.define("__CUDA_ARCH__", "700")), "old");
}
