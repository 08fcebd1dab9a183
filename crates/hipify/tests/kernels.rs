//! Device code constructs: `kernels/NAME.cu` translates to `kernels/NAME.hip`, whose first lines are the diagnostics. `WARPWAVE_BLESS=1`
//! rewrites the expected files.

mod common;

use std::path::Path;

use warpwave_hipify::diagnostic::line_and_column;
use warpwave_hipify::kernels::{intrinsics, translate, translate_ptx};

#[test]
fn constructs_translate_as_expected() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernels");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "cu"));
    assert!(files.len() >= 5);
    for path in files {
        let source = std::fs::read(&path).unwrap();
        let translation = translate(&source).unwrap();
        let lines = |text: &[u8]| text.iter().filter(|b| **b == b'\n').count();
        assert_eq!(lines(&translation.text), lines(&source), "{}: the number of lines changed", path.display());
        let mut diagnostics = String::new();
        for diagnostic in &translation.diagnostics {
            let (line, column) = line_and_column(&source, diagnostic.start);
            diagnostics += &format!("// {line}:{column}: WW{:04} {}: {}\n", diagnostic.code, diagnostic.severity, diagnostic.message);
        }
        let result = diagnostics + &String::from_utf8(translation.text).unwrap();
        let golden = path.with_extension("hip");
        if std::env::var_os("WARPWAVE_BLESS").is_some_and(|v| v == "1") {
            std::fs::write(&golden, &result).unwrap();
        }
        let expected = std::fs::read_to_string(&golden).unwrap_or_default();
        assert_eq!(result, expected, "{}", path.display());
    }
}

/// The same PTX in a file for HIP's own headers: `plain/NAME.hip`, compiled where clang and those headers are.
#[test]
fn ptx_becomes_plain_hip() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernels");
    let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "cu") && path.to_string_lossy().contains("ptx_"));
    assert!(files.len() >= 8);
    let clang = common::hip_clang();
    for path in files {
        let source = std::fs::read(&path).unwrap();
        let names = warpwave_hipify::translate(&source, &warpwave_hipify::Options::default());
        let done = translate_ptx(&warpwave_hipify::lex::Lexed::new(&names.output).unwrap());
        assert!(done.diagnostics.iter().all(|d| d.code != 301), "{}: {:?}", path.display(), done.diagnostics);
        let result = String::from_utf8(done.text).unwrap();
        let golden = folder.join("plain").join(path.file_name().unwrap()).with_extension("hip");
        if std::env::var_os("WARPWAVE_BLESS").is_some_and(|v| v == "1") {
            std::fs::write(&golden, &result).unwrap();
        }
        assert_eq!(result, std::fs::read_to_string(&golden).unwrap_or_default(), "{}", golden.display());
        if let Some(clang) = &clang {
            common::compile_hip(clang, &golden, &[]);
        }
    }
}

proptest::proptest! {
    /// The number of lines never changes.
    #[test]
    fn lines_stay_and_nothing_panics(
        parts in proptest::collection::vec(proptest::sample::select(vec![
            "asm", " volatile", "(", ")", "\"mov.u32 %0, %1;\"", "\"wgmma;\"", ":", "::", "\"=r\"", "(x)", ";", "\n", "#if __CUDA_ARCH__ >= 9\n",
            "#else\n", "#endif\n", "#define M ", "\\\n", "__CUDA_ARCH__", "{", "}", "\"", "#ifdef __CUDA_ARCH__\n", "é", "#elif X\n",
        ]), 0..50)
    ) {
        let source = parts.concat();
        let result = translate(source.as_bytes()).unwrap();
        let lines = |text: &[u8]| text.iter().filter(|b| **b == b'\n').count();
        proptest::prop_assert_eq!(lines(&result.text), lines(source.as_bytes()));
        proptest::prop_assert!(std::str::from_utf8(&result.text).is_ok());
    }
}

#[test]
fn an_operand_with_a_literal_over_two_lines_keeps_the_line_count() {
    let source = b"void f() {\n    asm(\"mov.u32 %0, %1;\" : \"=r\"(x[sizeof(\"a\\\nb\")]) : \"r\"(y));\n}\nint after;\n";
    let text = warpwave_hipify::kernels::translate(source).unwrap().text;
    let lines = |text: &[u8]| text.iter().filter(|byte| **byte == b'\n').count();
    assert_eq!(lines(&text), lines(source), "{}", String::from_utf8_lossy(&text));
    assert!(text.ends_with(b"}\nint after;\n"));
}

/// Names that the corpora use and HIP lacks; Warpwave's headers have them all.
const MISSING_IN_HIP: &[&str] =
    &["__cvta_generic_to_shared", "__dp2a_hi", "__dp2a_lo", "__dp4a", "__isGlobal", "__isShared", "__nanosleep"];

#[test]
fn no_intrinsic_of_the_corpora_is_a_false_alarm() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let (mut files, mut found) = (0, std::collections::BTreeSet::new());
    for folder in ["golden", "hazards", "kernels"] {
        for entry in std::fs::read_dir(tests.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|end| end != "cu") {
                continue;
            }
            files += 1;
            let source = std::fs::read(&path).unwrap();
            let lexed = warpwave_hipify::lex::Lexed::new(&source).unwrap();
            for diagnostic in intrinsics::unknown(&lexed, &intrinsics::hip_has) {
                found.insert(String::from_utf8_lossy(diagnostic.text(&source)).into_owned());
            }
        }
    }
    assert!(files >= 120, "{files} files");
    assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), MISSING_IN_HIP);
}
