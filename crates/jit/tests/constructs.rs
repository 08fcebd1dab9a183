//! The translator's golden sources, compiled for AMD; and what reaches the user of a translation.

mod common;

use std::path::Path;

use common::clang_jit;
use warpwave_jit::cache::Outcome;
use warpwave_jit::{CompilerChoice, KernelSource, Note, Target};

fn target() -> Target {
    "gfx90a".parse().unwrap()
}

#[test]
fn golden_sources_compile() {
    let Some((jit, _folder)) = clang_jit(&target()) else { return };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../hipify/tests/kernels");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "cu"));
    assert!(files.len() >= 29, "{} files", files.len());
    let mut wrong = Vec::new();
    for path in files {
        let source = KernelSource::from_file(&path).unwrap();
        let built = match jit.build(&source, &target(), CompilerChoice::Auto) {
            Ok(built) => built,
            Err(error) => {
                wrong.push(error.to_string());
                continue;
            }
        };
        assert!(!built.compiled.code_object.kernels.is_empty(), "{}", path.display());
        let bad = |n: &&Note| n.severity == "error" || matches!(n.code.as_str(), "WW0305" | "WW0310");
        wrong.extend(built.compiled.notes.iter().filter(bad).map(ToString::to_string));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The texture units' functions are named: the GPUs for computing have no such units, and our headers no such functions.
#[test]
fn textures_are_named() {
    let Some((jit, _folder)) = clang_jit(&target()) else { return };
    let text = "extern \"C\" __global__ void k(unsigned long long image, float *x) {\n    x[0] = tex2D<float>(image, x[1], x[2]);\n}\n";
    let error = jit.build(&KernelSource::from_text("k.cu", text).unwrap(), &target(), CompilerChoice::Auto).unwrap_err().to_string();
    assert!(error.contains("k.cu:2:12: WW0305 warning: `tex2D` is called in device code"), "{error}");
}

#[test]
fn the_translation_and_its_notes_are_kept_in_the_cache() {
    let Some((jit, _folder)) = clang_jit(&target()) else { return };
    let text = "#if __CUDA_ARCH__ >= 800\nextern \"C\" __global__ void a(int *x) { *x = 1; }\n#endif\n\
        #ifndef __HIP_PLATFORM_AMD__\nextern \"C\" __global__ void lost(int *x) { *x = 2; }\n#endif\n";
    let source = KernelSource::from_text("k.cu", text).unwrap();
    for outcome in [Outcome::Miss, Outcome::Hit] {
        let built = jit.build(&source, &target(), CompilerChoice::Auto).unwrap();
        assert_eq!(built.outcome, outcome);
        assert_eq!(built.compiled.hip, [("k.cu".to_owned(), text.replace("__CUDA_ARCH__", "WARPWAVE_CUDA_ARCH"))]);
        let notes: Vec<String> = built.compiled.notes.iter().map(ToString::to_string).collect();
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(notes[0].starts_with("k.cu:5:28: WW0310 warning: kernel `lost` is missing from the compiled code"), "{notes:?}");
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
    assert!(error.contains("WW0301: PTX instruction movmatrix"), "{error}");
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
