//! A small command for scoring the library with HIPIFY's tests: the options of hipify-clang that change its output.
//!
//! `hipify [options] -o=OUT IN`; without `-o` the HIP source goes to standard output.

use std::io::Write as _;
use std::process::ExitCode;

use warpwave_hipify::diagnostic::line_and_column;
use warpwave_hipify::{ExcludedBlocks, Headers, LaunchSyntax, Options, RuntimeHeader, Target, convert};

fn main() -> ExitCode {
    let mut options = Options { runtime_header: RuntimeHeader::Always, ..Options::default() };
    let (mut input, mut output, mut stats, mut quiet) = (None, None, false, true);
    let (mut roc, mut miopen, mut skip, mut amap) = (false, false, false, false);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let name = word.trim_start_matches('-');
        match name.split_once('=').map_or((name, None), |(name, value)| (name, Some(value))) {
            _ if !word.starts_with('-') => input = Some(word),
            ("o", value) => output = value.map(str::to_owned).or_else(|| words.next()),
            ("roc", _) => roc = true,
            ("miopen", _) => miopen = true,
            ("rocm", value) => options.rocm = value.and_then(|version| version.parse().ok()).unwrap_or_default(),
            ("experimental", _) => options.experimental = true,
            ("hip-kernel-execution-syntax", _) => options.launch = LaunchSyntax::Call,
            ("cuda-kernel-execution-syntax", _) => {}
            ("skip-excluded-preprocessor-conditional-blocks" | "default-preprocessor", _) => skip = true,
            ("amap", _) => amap = true,
            ("use-hip-data-types", _) => options.hip_data_types = true,
            ("fix", _) => options.fix = true,
            ("print-stats", _) => stats = true,
            ("v" | "verbose", _) => quiet = false,
            ("D", _) => options.defines.extend(words.next().map(|text| define(&text))),
            ("I", _) => drop(words.next()),
            _ if name.starts_with('D') => options.defines.push(define(&name[1..])),
            _ if name.starts_with('I') => {}
            _ => eprintln!("warning: unknown option {word} ignored"),
        }
    }
    options.target = match (roc, miopen) {
        (_, true) => Target::Miopen,
        (true, false) => Target::Roc,
        _ => Target::Hip,
    };
    options.excluded = match (skip, amap) {
        (false, _) => ExcludedBlocks::Translated,
        (true, true) => ExcludedBlocks::AllButIncludes,
        (true, false) => ExcludedBlocks::Kept,
    };
    let Some(input) = input else {
        eprintln!("usage: hipify [options] [-o=OUT] IN");
        return ExitCode::from(2);
    };
    let source = match std::fs::read(&input) {
        Ok(source) => source,
        Err(error) => {
            eprintln!("error: {input}: {error}");
            return ExitCode::FAILURE;
        }
    };
    let conversion = convert(&source, &options, &Headers::default());
    let source = conversion.fixed_source.as_ref().unwrap_or(&source);
    if !quiet {
        for diagnostic in &conversion.diagnostics {
            let (line, column) = line_and_column(source, diagnostic.start);
            eprintln!("{input}:{line}:{column}: WW{:04} {}: {}", diagnostic.code, diagnostic.severity, diagnostic.message);
        }
    }
    if stats {
        eprint!("{}", conversion.stats);
    }
    let written = match &output {
        Some(path) => std::fs::write(path, &conversion.output),
        None => std::io::stdout().write_all(&conversion.output),
    };
    if let Err(error) = written {
        eprintln!("error: {}: {error}", output.as_deref().unwrap_or("standard output"));
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn define(text: &str) -> (String, String) {
    text.split_once('=').map_or((text.to_owned(), "1".to_owned()), |(name, value)| (name.to_owned(), value.to_owned()))
}
