//! Each `golden/NAME.cu` translates to `golden/NAME.hip`. `WARPWAVE_BLESS=1` rewrites the expected files.
//!
//! The first line of a source may choose options: `// options: roc miopen call keep-excluded experimental hip-data-types`. The expected
//! file ends with the diagnostics, one comment each.

mod common;

use std::fmt::Write as _;
use std::path::Path;

use warpwave_hipify::diagnostic::line_and_column;
use warpwave_hipify::{ExcludedBlocks, LaunchSyntax, Options, Target, translate};

fn options(source: &str) -> Options {
    let mut options = Options::default();
    let Some(words) = source.lines().next().and_then(|line| line.strip_prefix("// options: ")) else { return options };
    for word in words.split_whitespace() {
        match word {
            "roc" => options.target = Target::Roc,
            "miopen" => options.target = Target::Miopen,
            "call" => options.launch = LaunchSyntax::Call,
            "keep-excluded" => options.excluded = ExcludedBlocks::Kept,
            "experimental" => options.experimental = true,
            "hip-data-types" => options.hip_data_types = true,
            _ => panic!("unknown option {word}"),
        }
    }
    options
}

#[test]
fn sources_translate_as_written_down() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let bless = std::env::var_os("WARPWAVE_BLESS").is_some();
    let (mut count, mut wrong) = (0, Vec::new());
    let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for path in files.iter().filter(|path| path.extension().is_some_and(|end| end == "cu")) {
        count += 1;
        let source = std::fs::read_to_string(path).unwrap();
        let options = options(&source);
        let translation = translate(source.as_bytes(), &options);
        let again = translate(&translation.output, &options);
        assert_eq!(again.output, translation.output, "{}: a second translation changes it", path.display());
        let mut actual = String::from_utf8(translation.output).unwrap();
        for diagnostic in &translation.diagnostics {
            let (line, column) = line_and_column(source.as_bytes(), diagnostic.start);
            writeln!(actual, "// {line}:{column} WW{:04} {}: {}", diagnostic.code, diagnostic.severity, diagnostic.message).unwrap();
        }
        let expected = path.with_extension("hip");
        if bless {
            std::fs::write(&expected, &actual).unwrap();
        } else if std::fs::read_to_string(&expected).unwrap_or_default() != actual {
            wrong.push(format!("{}:\n{actual}", expected.display()));
        }
    }
    assert!(count >= 20, "{count} sources");
    assert!(wrong.is_empty(), "{} differ; WARPWAVE_BLESS=1 rewrites them\n{}", wrong.len(), wrong.join("\n"));
}

/// Expected files that HIP 5.2's headers alone cannot compile, and why.
const NOT_COMPILED: &[(&str, &str)] = &[
    ("cublas", "needs hipBLAS"),
    ("cublas_v1", "needs hipBLAS"),
    ("data_types", "needs rocBLAS"),
    ("device_code", "HIP has __shfl_down_sync since 6.2"),
    ("includes", "shows headers that have no counterpart"),
    ("miopen_mode", "needs MIOpen"),
    ("namespaces", "needs hipCUB"),
    ("nvrtc", "includes <hiprtc.h>, which HIP 5.2 has as <hip/hiprtc.h>"),
    ("roc_mode", "needs rocBLAS"),
    ("unsupported", "shows names that have no counterpart"),
];

/// The translations compile: with clang and HIP's headers, where both are installed.
#[test]
fn translations_compile_for_an_amd_gpu() {
    let Some(clang) = common::hip_clang() else { return };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut compiled = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        if path.extension().is_none_or(|end| end != "hip") {
            continue;
        }
        if let Some((_, why)) = NOT_COMPILED.iter().find(|(exempt, _)| *exempt == name) {
            println!("{name}: not compiled: {why}");
            continue;
        }
        common::compile_hip(&clang, &path, &[]);
        compiled += 1;
    }
    println!("{compiled} translations compile for gfx90a");
    assert!(compiled >= 14);
}
