//! `warpwave compile`.

use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use warpwave_jit::cache::Outcome as CacheOutcome;
use warpwave_jit::{Built, Bundle, Compiled, CompilerChoice, KernelSource, Part, Target};

use super::inspect::{kernels_json, print_kernels};
use super::{Context, Failure, Outcome, failed, kernel_library, usage};

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  warpwave compile kernel.cu --target gfx90a,gfx942,gfx1100,sm_90 -o build/\n  \
    warpwave compile --kernel-library --target gfx90a,sm_90a -o archives/\n\n\
    Archives of the kernel library let models run on machines without a compiler; set WARPWAVE_ARCHIVES to their directory.\n\n\
    Targets: gfx* (AMD, .hsaco), sm_* (NVIDIA, .cubin), compute_* (NVIDIA PTX). \
    AMD targets need clang and the ROCm device libraries, or hipRTC; NVIDIA targets need NVRTC. No GPU is required.")]
pub(super) struct Args {
    /// CUDA C++ source file.
    #[arg(required_unless_present = "kernel_library")]
    file: Option<PathBuf>,
    /// Compile the kernels that models use and write one archive per target (`kernels-TARGET.wwa`) to the --output directory.
    #[arg(long, requires = "output", conflicts_with_all = ["file", "bundle", "include", "define", "compiler", "show_hip"])]
    kernel_library: bool,
    /// Compile for these architectures (comma-separated).
    #[arg(long, short, value_delimiter = ',', required_unless_present = "device")]
    target: Vec<Target>,
    /// Compile for the architecture of this device, e.g. cuda:0 or vgpu:gfx942; repeatable.
    #[arg(long)]
    device: Vec<String>,
    /// Write one file per target to this directory (`NAME.TARGET.hsaco`, .cubin or .ptx); by default, code is stored only in the kernel
    /// cache.
    #[arg(long, short)]
    output: Option<PathBuf>,
    /// Write all targets to one bundle file for `warpwave_jit::embed!`.
    #[arg(long)]
    bundle: Option<PathBuf>,
    /// Add an include directory.
    #[arg(long, short = 'I')]
    include: Vec<PathBuf>,
    /// Define a macro: NAME or NAME=VALUE.
    #[arg(long, short = 'D')]
    define: Vec<String>,
    /// Select the compiler for AMD targets.
    #[arg(long, value_enum, default_value = "auto")]
    compiler: Compiler,
    /// Print the HIP translation of the source.
    #[arg(long)]
    show_hip: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Compiler {
    Auto,
    Clang,
    Hiprtc,
}

/// Reads a source file and adds include directories and macros.
pub(super) fn source(file: &Path, include: &[PathBuf], define: &[String]) -> Result<KernelSource, Failure> {
    let mut source = KernelSource::from_file(file)?;
    for folder in include {
        source = source.include_dir(folder)?;
    }
    for macro_ in define {
        let (name, value) = macro_.split_once('=').unwrap_or((macro_, "1"));
        if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        {
            return Err(usage(format!("-D {macro_}: invalid macro name `{name}`")));
        }
        source = source.define(name, value);
    }
    Ok(source)
}

/// Returns the targets of `--target` and `--device`, each once.
fn targets(context: &mut Context<'_>, args: &Args) -> Result<Vec<Target>, Failure> {
    let mut targets: Vec<Target> = Vec::new();
    let of_devices = args.device.iter().map(|name| Ok(Target::of(&context.device(name)?))).collect::<Result<Vec<_>, Failure>>()?;
    for target in args.target.iter().copied().chain(of_devices) {
        if !targets.contains(&target) {
            targets.push(target);
        }
    }
    Ok(targets)
}

pub(super) fn run(context: &mut Context<'_>, args: &Args) -> Outcome {
    let file = match (&args.file, &args.output) {
        (Some(file), _) => file,
        (None, Some(folder)) => {
            let targets = targets(context, args)?;
            return kernel_library::run(context, &targets, folder, args.json);
        }
        (None, None) => return Err(usage("expected a source file, or --kernel-library with --output")),
    };
    let source = source(file, &args.include, &args.define)?;
    let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    if let Some(folder) = &args.output {
        std::fs::create_dir_all(folder).map_err(|error| failed(format!("{}: {error}", folder.display())))?;
    }
    let choice = match args.compiler {
        Compiler::Auto => CompilerChoice::Auto,
        Compiler::Clang => CompilerChoice::Clang,
        Compiler::Hiprtc => CompilerChoice::HipRtc,
    };
    let targets = targets(context, args)?;
    let bar = ProgressBar::new(targets.len() as u64);
    bar.set_style(ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}").unwrap_or_else(|_| ProgressStyle::default_bar()));
    let mut rows = Vec::new();
    let mut failures = Vec::new();
    for target in &targets {
        bar.set_message(target.to_string());
        let choice = if target.extension() == "hsaco" { choice } else { CompilerChoice::Auto };
        match context.jit.build(&source, target, choice) {
            Err(error) => failures.push((target, error)),
            Ok(built) => {
                let path = args.output.as_ref().map(|folder| folder.join(format!("{stem}.{}.{}", file_name(target), target.extension())));
                if let Some(path) = &path {
                    write(path, &built.compiled.binary)?;
                }
                rows.push((target, built, path));
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    if args.json {
        let mut all: Vec<Value> = Vec::new();
        for (target, built, path) in &rows {
            let mut row = json!({
                "target": target.to_string(),
                "ok": true,
                "compiler": built.compiler,
                "bytes": built.compiled.binary.len(),
                "milliseconds": built.took.as_secs_f64() * 1e3,
                "cached": built.outcome == CacheOutcome::Hit,
                "file": path,
                "log": built.compiled.log,
                "kernels": kernels_json(&built.compiled.code_object),
                "notes": built.compiled.notes,
            });
            if args.show_hip {
                row["hip"] = hip_json(&built.compiled);
            }
            all.push(row);
        }
        for (target, error) in &failures {
            all.push(json!({ "target": target.to_string(), "ok": false, "error": error.to_string() }));
        }
        context.print_json(&json!({ "source": file, "targets": all }))?;
    } else {
        for (target, built, path) in &rows {
            let how = if built.outcome == CacheOutcome::Hit { "cached" } else { "compiled" };
            let ms = built.took.as_secs_f64() * 1e3;
            let place = path.as_ref().map(|path| format!(" -> {}", path.display())).unwrap_or_default();
            writeln!(context.out, "{target}: {how} in {ms:.1} ms, {} bytes, {}{place}", built.compiled.binary.len(), built.compiler)?;
            print_kernels(context.out, &built.compiled.code_object)?;
            print_notes(context, &built.compiled)?;
            let warnings = built.compiled.log.lines().filter(|line| line.contains("warning"));
            for line in warnings {
                writeln!(context.err, "{line}")?;
            }
        }
    }
    if args.show_hip && !args.json {
        // The translation is the same for all AMD targets.
        match rows.iter().find(|(_, built, _)| !built.compiled.hip.is_empty()) {
            Some((_, built, _)) => print_hip(context, &built.compiled)?,
            None => writeln!(
                context.err,
                "--show-hip: no AMD target; add one with --target, such as gfx90a (NVIDIA targets compile the source unchanged)"
            )?,
        }
    }
    if !failures.is_empty() {
        let all: Vec<String> = failures.iter().map(|(_, error)| error.to_string()).collect();
        return Err(failed(all.join("\n")));
    }
    if let Some(path) = &args.bundle {
        let part = |(target, built, _): (&Target, Built, _)| Part { target: *target, code: built.compiled.binary.into() };
        let bundle = Bundle::of(&source, rows.into_iter().map(part).collect());
        write(path, &bundle.to_bytes())?;
        writeln!(context.err, "wrote {} with {} targets", path.display(), bundle.parts.len())?;
    }
    Ok(())
}

/// Prints the diagnostics of the translation.
pub(super) fn print_notes(context: &mut Context<'_>, compiled: &Compiled) -> Outcome {
    for note in compiled.notes.iter().filter(|note| note.matters()) {
        writeln!(context.err, "{note}")?;
    }
    Ok(())
}

/// Prints the translated source, followed by each translated header.
pub(super) fn print_hip(context: &mut Context<'_>, compiled: &Compiled) -> Outcome {
    for (index, (name, text)) in compiled.hip.iter().enumerate() {
        if index > 0 {
            writeln!(context.out, "// included: {name}")?;
        }
        writeln!(context.out, "{}", text.trim_end_matches('\n'))?;
    }
    Ok(())
}

/// Returns the translated source and headers as JSON.
pub(super) fn hip_json(compiled: &Compiled) -> Value {
    compiled.hip.iter().map(|(name, text)| json!({ "file": name, "text": text })).collect::<Vec<_>>().into()
}

/// Returns the target as part of a file name.
pub(super) fn file_name(target: &Target) -> String {
    target.to_string().replace(':', "-")
}

fn write(path: &Path, bytes: &[u8]) -> Outcome {
    std::fs::write(path, bytes).map_err(|error| failed(format!("{}: {error}", path.display())))
}
