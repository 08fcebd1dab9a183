//! `warpwave hipify`.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use warpwave_hipify::diagnostic::line_and_column;
use warpwave_hipify::hazard;
use warpwave_hipify::lex::Lexed;
use warpwave_hipify::report::{self, Assessment, Verdict};
use warpwave_hipify::{COMPATIBILITY_HEADER, Diagnostic, ExcludedBlocks, LaunchSyntax, Options, Severity, Stats, Target, translate};

use super::{Context, Failure, Outcome, failed, kernel_half, usage};

#[derive(clap::Args)]
#[command(after_help = "Example: warpwave hipify kernel.cu -o kernel.hip\n         warpwave hipify src/ -o hip/ --print-stats\n\n\
    Nothing but HIP text goes to standard output; diagnostics go to standard error. The input is only changed with --inplace, which \
    keeps the old file as FILE.prehip. Exit code 1 when a file could not be read or written.")]
pub(super) struct Args {
    /// CUDA files, or folders to take all CUDA files of.
    #[arg(required_unless_present = "explain")]
    files: Vec<PathBuf>,
    /// Where to write: a file for one input, a folder for several or for a folder. Without it one file goes to standard output.
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// Change the files themselves; the old ones stay as FILE.prehip.
    #[arg(long, conflicts_with_all = ["output", "examine"])]
    inplace: bool,
    /// Write nothing: diagnostics and figures only.
    #[arg(long, alias = "no-output", conflicts_with = "output")]
    examine: bool,
    /// Print figures of each file, and of all.
    #[arg(long)]
    print_stats: bool,
    /// Use the names of the ROCm libraries (rocblas…) where there are any.
    #[arg(long)]
    roc: bool,
    /// Use MIOpen for cuDNN; --roc too.
    #[arg(long)]
    miopen: bool,
    /// Translate names that HIP calls experimental too.
    #[arg(long)]
    experimental: bool,
    /// Write launches as hipLaunchKernelGGL(…).
    #[arg(long, conflicts_with = "cuda_kernel_execution_syntax")]
    hip_kernel_execution_syntax: bool,
    /// Keep launches as <<<…>>> (the default).
    #[arg(long)]
    cuda_kernel_execution_syntax: bool,
    /// Leave blocks alone that the preprocessor would leave out.
    #[arg(long, alias = "default-preprocessor")]
    skip_excluded_preprocessor_conditional_blocks: bool,
    /// With the option above: translate those blocks all the same, but for their includes.
    #[arg(long)]
    amap: bool,
    /// Turn variables of cudaDataType into hipDataType even where the target has a type of its own.
    #[arg(long)]
    use_hip_data_types: bool,
    /// Define a macro for the options above, NAME or NAME=VALUE.
    #[arg(short = 'D', long)]
    define: Vec<String>,
    /// Where included files are looked for, to know the device functions they declare.
    #[arg(short = 'I', long, value_name = "FOLDER")]
    include: Vec<PathBuf>,
    /// Include one header of Warpwave's, warpwave_cuda.h, with what HIP lacks of CUDA, and write it beside the output. Guards on
    /// __CUDA_ARCH__ then hold as for a recent GPU.
    #[arg(long)]
    header: bool,
    /// Apply the safe fixes for assumptions of 32 lanes.
    #[arg(long)]
    fix: bool,
    /// Say nothing about single places.
    #[arg(long, short)]
    quiet: bool,
    /// Explain a diagnostic, WW0203.
    #[arg(long, value_name = "CODE")]
    explain: Option<String>,
    /// Print diagnostics and figures as JSON, and no HIP text unless -o says where.
    #[arg(long)]
    json: bool,
}

/// A translated file.
struct Done {
    input: PathBuf,
    source: Vec<u8>,
    output: Vec<u8>,
    diagnostics: Vec<Diagnostic>,
    fixed: usize,
    stats: Stats,
    assessment: Assessment,
}

pub(super) fn run(context: &mut Context<'_>, args: &Args) -> Outcome {
    if let Some(code) = &args.explain {
        return explain(context, code);
    }
    let inputs = inputs(&args.files)?;
    let options = options(args);
    let several = inputs.len() > 1 || args.files.iter().any(|path| path.is_dir());
    if several && args.output.is_none() && !args.inplace && !args.examine && !args.json {
        return Err(usage(format!("{} files: name a folder with -o, or use --inplace or --examine", inputs.len())));
    }
    let mut total = Stats::default();
    let mut rows: Vec<Value> = Vec::new();
    let mut counts = [0usize; 3];
    for (root, path) in &inputs {
        let done = one(path, &options, args)?;
        write(context, args, root, several, &done)?;
        total.add(&done.stats);
        counts[done.assessment.verdict as usize] += 1;
        if args.json {
            rows.push(json(&done));
        } else {
            report_file(context, args, &done)?;
        }
    }
    let [clean, review, not_portable] = counts;
    if args.json {
        let totals = json!({ "files": inputs.len(), "clean": clean, "needs_review": review, "not_portable": not_portable });
        return context.print_json(&json!({ "files": rows, "totals": totals }));
    }
    if several {
        if args.print_stats {
            writeln!(context.err, "all files\n{total}")?;
        }
        writeln!(context.err, "{} files: {clean} clean, {review} need review, {not_portable} not portable", inputs.len())?;
    }
    Ok(())
}

fn explain(context: &mut Context<'_>, code: &str) -> Outcome {
    let number = code.trim_start_matches("WW").parse().map_err(|_| usage(format!("`{code}` is no diagnostic; they look like WW0203")))?;
    let (title, text) = report::explain(number).ok_or_else(|| usage(format!("there is no diagnostic {code}")))?;
    Ok(writeln!(context.out, "WW{number:04}: {title}\n\n{}", text.trim_end())?)
}

fn options(args: &Args) -> Options {
    let define =
        |text: &String| text.split_once('=').map_or((text.clone(), String::new()), |(name, value)| (name.to_owned(), value.to_owned()));
    Options {
        target: match (args.roc, args.miopen) {
            (_, true) => Target::Miopen,
            (true, false) => Target::Roc,
            _ => Target::Hip,
        },
        launch: if args.hip_kernel_execution_syntax { LaunchSyntax::Call } else { LaunchSyntax::Kept },
        excluded: match (args.skip_excluded_preprocessor_conditional_blocks, args.amap) {
            (false, _) => ExcludedBlocks::Translated,
            (true, true) => ExcludedBlocks::AllButIncludes,
            (true, false) => ExcludedBlocks::Kept,
        },
        experimental: args.experimental,
        hip_data_types: args.use_hip_data_types,
        compatibility_header: args.header,
        keep_device_types: args.header,
        defines: args.define.iter().map(define).collect(),
        ..Options::default()
    }
}

/// The files to translate, each with the folder it was found through.
fn inputs(paths: &[PathBuf]) -> Result<Vec<(PathBuf, PathBuf)>, Failure> {
    let mut found = Vec::new();
    for path in paths {
        if !path.is_dir() {
            found.push((path.parent().unwrap_or(Path::new("")).to_owned(), path.clone()));
            continue;
        }
        let mut folders = vec![path.clone()];
        while let Some(folder) = folders.pop() {
            let entries = std::fs::read_dir(&folder).map_err(|error| failed(format!("{}: {error}", folder.display())))?;
            for entry in entries {
                let entry = entry.map_err(|error| failed(format!("{}: {error}", folder.display())))?;
                let (kind, file) = (entry.file_type()?, entry.path());
                if kind.is_dir() {
                    folders.push(file);
                } else if kind.is_file() && is_cuda(&file) {
                    found.push((path.clone(), file));
                }
            }
        }
    }
    found.sort();
    if found.is_empty() {
        return Err(failed("no CUDA files (.cu, .cuh, or C++ that mentions CUDA) in what was named"));
    }
    Ok(found)
}

/// CUDA's own endings, or C++ with something of CUDA's in it.
fn is_cuda(path: &Path) -> bool {
    if path.file_name().is_some_and(|name| name == COMPATIBILITY_HEADER) {
        return false;
    }
    match path.extension().and_then(|e| e.to_str()) {
        Some("cu" | "cuh") => true,
        Some("c" | "cc" | "cpp" | "cxx" | "h" | "hh" | "hpp" | "hxx" | "inl") => std::fs::read(path).is_ok_and(|bytes| {
            let has = |word: &[u8]| bytes.windows(word.len()).any(|window| window == word);
            has(b"cuda") || has(b"__global__") || has(b"<<<")
        }),
        _ => false,
    }
}

fn one(path: &Path, options: &Options, args: &Args) -> Result<Done, Failure> {
    let source = std::fs::read(path).map_err(|error| failed(format!("{}: {error}", path.display())))?;
    let mut fixed = 0;
    let mut text = source.clone();
    let mut hazards = hazard::check(&Lexed::new(&text)?);
    if args.fix {
        fixed = hazards.iter().filter(|hazard| hazard.fix.is_some()).count();
        text = hazard::fixes(&hazards).apply(&text);
        hazards = hazard::check(&Lexed::new(&text)?);
    }
    let translation = kernel_half::finish(path, &text, &args.include, options, translate(&text, options))?;
    let mut diagnostics = translation.diagnostics;
    diagnostics.extend(hazards.into_iter().map(|hazard| hazard.diagnostic));
    diagnostics.sort_by_key(|diagnostic| (diagnostic.start, diagnostic.code));
    let assessment = Assessment::of(&diagnostics);
    // Places are those of the text that was translated.
    Ok(Done { input: path.to_owned(), source: text, output: translation.output, diagnostics, fixed, stats: translation.stats, assessment })
}

fn write(context: &mut Context<'_>, args: &Args, root: &Path, several: bool, done: &Done) -> Outcome {
    if args.examine {
        return Ok(());
    }
    if args.inplace {
        let original = std::fs::read(&done.input).map_err(|error| failed(format!("{}: {error}", done.input.display())))?;
        if original == done.output {
            return Ok(());
        }
        let mut kept = done.input.clone().into_os_string();
        kept.push(".prehip");
        let kept = PathBuf::from(kept);
        // The first original is the one worth keeping.
        if !kept.exists() {
            replace(&kept, &original)?;
        }
        replace(&done.input, &done.output)?;
        return write_header(&done.input, &done.output);
    }
    let Some(output) = &args.output else {
        return if args.json { Ok(()) } else { Ok(context.out.write_all(&done.output)?) };
    };
    let target = if several || output.is_dir() {
        let below = done.input.strip_prefix(root).unwrap_or(&done.input);
        let target = output.join(below);
        if target.extension().is_some_and(|e| e == "cu") { target.with_extension("hip") } else { target }
    } else {
        output.clone()
    };
    if target.canonicalize().ok().is_some_and(|target| Some(target) == done.input.canonicalize().ok()) {
        return Err(usage(format!("{} is the input; use --inplace to change it", target.display())));
    }
    if let Some(folder) = target.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(|error| failed(format!("{}: {error}", folder.display())))?;
    }
    replace(&target, &done.output)?;
    write_header(&target, &done.output)
}

/// Writes the compatibility header beside a file that includes it.
fn write_header(target: &Path, output: &[u8]) -> Outcome {
    let header = kernel_half::header_beside(target, output);
    header.map_or(Ok(()), |header| replace(&header, warpwave_jit::compatibility_header().as_bytes()))
}

/// Writes beside the file and renames: a failure leaves the old one.
fn replace(path: &Path, bytes: &[u8]) -> Outcome {
    let fail = |error: std::io::Error| failed(format!("{}: {error}", path.display()));
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let beside = PathBuf::from(name);
    let written = std::fs::File::create(&beside).and_then(|mut file| file.write_all(bytes)).and_then(|()| {
        if let Ok(facts) = path.metadata() {
            std::fs::set_permissions(&beside, facts.permissions())?;
        }
        std::fs::rename(&beside, path)
    });
    written.map_err(|error| {
        let _ = std::fs::remove_file(&beside);
        fail(error)
    })
}

fn report_file(context: &mut Context<'_>, args: &Args, done: &Done) -> Outcome {
    let name = done.input.display().to_string();
    if !args.quiet {
        for diagnostic in done.diagnostics.iter().filter(|diagnostic| diagnostic.severity > Severity::Note) {
            writeln!(context.err, "{}", report::line(&name, &done.source, diagnostic))?;
        }
    }
    if args.print_stats {
        writeln!(context.err, "{name}\n{}", done.stats)?;
    }
    let Assessment { verdict, minutes } = done.assessment;
    let effort = if verdict == Verdict::Clean { String::new() } else { format!(", about {minutes} minutes of work left") };
    let fixed = if done.fixed > 0 { format!(", {} places fixed", done.fixed) } else { String::new() };
    let (converted, all) = (done.stats.translated_references(), done.stats.references());
    Ok(writeln!(
        context.err,
        "{name}: {verdict}: {converted} of {all} CUDA names translated, {} launches{fixed}{effort}",
        done.stats.launches
    )?)
}

fn json(done: &Done) -> Value {
    let diagnostics: Vec<Value> = done
        .diagnostics
        .iter()
        .map(|diagnostic| {
            let (line, column) = line_and_column(&done.source, diagnostic.start);
            json!({
                "code": format!("WW{:04}", diagnostic.code), "severity": diagnostic.severity.to_string(), "line": line, "column": column,
                "message": diagnostic.message, "help": diagnostic.help,
            })
        })
        .collect();
    json!({
        "file": done.input, "verdict": done.assessment.verdict.to_string(), "minutes": done.assessment.minutes, "fixed": done.fixed,
        "lines": done.stats.lines, "translated": done.stats.translated_references(), "untranslated": done.stats.untranslated_references(),
        "launches": done.stats.launches, "kernels": done.stats.kernels, "diagnostics": diagnostics,
    })
}
