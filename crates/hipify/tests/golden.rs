//! Each `golden/NAME.cu` translates to `golden/NAME.hip`. `WARPWAVE_BLESS=1` rewrites the expected files.
//!
//! The first line of a source may choose options: `// options: roc miopen call keep-excluded experimental hip-data-types`. The expected
//! file ends with the diagnostics of the translator and of the hazard checker, one comment each.

mod common;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use warpwave_hipify::diagnostic::line_and_column;
use warpwave_hipify::lex::Lexed;
use warpwave_hipify::{Diagnostic, ExcludedBlocks, LaunchSyntax, Options, Target, codes, hazard, translate};

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

fn sources() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|end| end == "cu"));
    files.sort();
    files
}

/// The translation, and its diagnostics with those of the hazard checker.
fn translated(source: &str) -> (Vec<u8>, Vec<Diagnostic>) {
    let translation = translate(source.as_bytes(), &options(source));
    let hazards = hazard::check(&Lexed::new(source.as_bytes()).unwrap());
    let diagnostics = translation.diagnostics.into_iter().chain(hazards.into_iter().map(|hazard| hazard.diagnostic));
    (translation.output, diagnostics.collect())
}

#[test]
fn sources_translate_as_expected() {
    let bless = std::env::var_os("WARPWAVE_BLESS").is_some();
    let (mut count, mut wrong) = (0, Vec::new());
    for path in sources() {
        count += 1;
        let source = std::fs::read_to_string(&path).unwrap();
        let (output, diagnostics) = translated(&source);
        let again = translate(&output, &options(&source));
        assert_eq!(again.output, output, "{}: a second translation changes it", path.display());
        let mut actual = String::from_utf8(output).unwrap();
        for diagnostic in diagnostics {
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

/// Diagnostics of names and headers that HIP lacks: the compiler must reject these, and nothing else.
const REFUSED: &[u16] = &[
    codes::UNKNOWN.number,
    codes::UNSUPPORTED.number,
    codes::BLAS_V1.number,
    codes::UNSUPPORTED_HEADER.number,
    codes::UNKNOWN_HEADER.number,
    codes::DEVICE_FUNCTION.number,
    // A mask of 32 bits.
    201,
];

/// The lines that the compiler rejects, each with its message.
///
/// A missing header ends a compilation. It is recorded, and the file compiled again with an empty header.
fn refused_lines(clang: &OsString, path: &Path, arguments: &[&str], empty: &Path) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(path).unwrap();
    let place = format!("{}:", path.display());
    let mut lines = Vec::new();
    while let Err(messages) = common::try_compile_hip(clang, path, arguments) {
        let mut missing = None;
        for message in messages.lines().filter(|line| line.contains("error: ")) {
            // The last line of all counts the errors.
            let Some(rest) = message.strip_prefix(&place) else {
                assert!(message.contains(" generated when compiling for "), "{message}");
                continue;
            };
            let number: usize = rest.split(':').next().unwrap().parse().unwrap();
            lines.push((text.lines().nth(number - 1).unwrap().to_owned(), message.to_owned()));
            missing = missing.or(rest.split_once("fatal error: '").and_then(|(_, rest)| rest.split_once("' file not found")));
        }
        let Some((header, _)) = missing else {
            assert!(!lines.is_empty(), "{}: {messages}", path.display());
            break;
        };
        let header = empty.join(header);
        assert!(!header.exists(), "{messages}");
        std::fs::create_dir_all(header.parent().unwrap()).unwrap();
        std::fs::write(header, "").unwrap();
    }
    lines
}

/// Each translation compiles, or the compiler rejects what a diagnostic names: with clang and HIP's headers, if installed, and with
/// `golden/stubs` for other libraries.
#[test]
fn translations_compile_for_an_amd_gpu() {
    let Some(clang) = common::hip_clang() else { return };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let stubs = folder.join("stubs");
    let empty = std::env::temp_dir().join(format!("warpwave-golden-{}", std::process::id()));
    let later = stubs.join("warp_sync.h");
    let (mut compiled, mut refused, mut wrong) = (0, 0, Vec::new());
    for path in sources() {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let source = std::fs::read_to_string(&path).unwrap();
        let (_, diagnostics) = translated(&source);
        let announced: Vec<&str> = diagnostics
            .iter()
            .filter(|diagnostic| REFUSED.contains(&diagnostic.code))
            .map(|diagnostic| &source[diagnostic.start as usize..diagnostic.end as usize])
            .collect();
        let empty = empty.join(&name);
        let folders = [&stubs, &empty, &later].map(|path| path.to_str().unwrap());
        let arguments = ["-ferror-limit=0", "-I", folders[0], "-idirafter", folders[1], "-include", folders[2]];
        let lines = refused_lines(&clang, &path.with_extension("hip"), &arguments, &empty);
        let unannounced = lines.iter().filter(|(line, _)| !announced.iter().any(|text| line.contains(text)));
        wrong.extend(unannounced.map(|(line, message)| format!("{message}\n{line}")));
        let accepted = announced.iter().filter(|text| !lines.iter().any(|(line, _)| line.contains(**text)));
        wrong.extend(accepted.map(|text| format!("{name}: {text} compiles although a diagnostic says it does not")));
        if lines.is_empty() {
            compiled += 1;
        } else {
            println!("{name}: refused as announced: {}", announced.join(", "));
            refused += 1;
        }
    }
    if empty.exists() {
        std::fs::remove_dir_all(&empty).unwrap();
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    println!("{compiled} translations compile for gfx90a, {refused} are refused as announced");
    assert!(compiled >= 21 && refused >= 4);
}
