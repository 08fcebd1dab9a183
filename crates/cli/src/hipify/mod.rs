//! The `warpwave hipify` command: reads files, calls [`warpwave_hipify::convert`], prints and writes.

mod database;
mod hipify_clang;
mod inputs;
mod show;
mod write;

use std::path::{Path, PathBuf};

use warpwave_hipify::build::{self, BuildOptions};
use warpwave_hipify::report;
use warpwave_hipify::{Conversion, ExcludedBlocks, Headers, IncludePath, LaunchSyntax, Options, Remedied, Target, UseHeader, convert};

use super::{Context, Failure, Outcome, failed, usage};
use database::Compiled;
pub(crate) use hipify_clang::normalize;
use inputs::{Input, Inputs};

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  warpwave hipify kernel.cu -o kernel.hip\n  warpwave hipify src/ -o hip/ --report report.html\n  \
    warpwave hipify -p build/ --inplace\n\n\
    Only HIP source goes to standard output; diagnostics go to standard error. Inputs are changed with --inplace only, which keeps a \
    backup as FILE.prehip. CMake files and Makefiles in folders and projects are converted too. The command line of hipify-clang is \
    accepted. Exit code 1 if a file could not be read or written.")]
pub(super) struct Args {
    /// CUDA files, CMake files or Makefiles, or folders that contain them
    #[arg(required_unless_present_any = ["explain", "project"])]
    files: Vec<PathBuf>,
    /// Convert the files of a compile_commands.json (or the build folder that has one) with their macros and include folders, and the
    /// headers and build files of the project; with FILES, only those
    #[arg(short = 'p', long, value_name = "PATH")]
    project: Option<PathBuf>,
    /// Write to this file, or to this folder if there are several inputs; without it one file goes to standard output
    #[arg(short, long, alias = "o-dir")]
    output: Option<PathBuf>,
    /// Write only converted files to the output folder; by default other files are copied, so that the folder builds by itself
    #[arg(long, requires = "output")]
    converted_only: bool,
    /// Convert files in place; the originals are kept as FILE.prehip
    #[arg(long, conflicts_with_all = ["output", "examine"])]
    inplace: bool,
    /// Keep no backups with --inplace
    #[arg(long, requires = "inplace")]
    no_backup: bool,
    /// Print diagnostics and statistics only, write nothing
    #[arg(long, alias = "no-output", conflicts_with = "output")]
    examine: bool,
    /// Write a report: a page with all changes side by side (.html), or the printed output (.json, .txt)
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// AMD architectures for build files
    #[arg(long, value_name = "GFX", value_delimiter = ',', default_value = "gfx90a,gfx942,gfx1100")]
    offload_arch: Vec<String>,
    /// Print statistics of each file and of all files
    #[arg(long)]
    print_stats: bool,
    /// Use the names of the ROCm libraries (rocblas…) where they exist
    #[arg(long)]
    roc: bool,
    /// Use MIOpen for cuDNN; implies --roc
    #[arg(long)]
    miopen: bool,
    /// Translate names that HIP marks as experimental too
    #[arg(long)]
    experimental: bool,
    /// Write launches as hipLaunchKernelGGL(…)
    #[arg(long, conflicts_with = "cuda_kernel_execution_syntax")]
    hip_kernel_execution_syntax: bool,
    /// Keep launches as <<<…>>> (the default)
    #[arg(long)]
    cuda_kernel_execution_syntax: bool,
    /// Leave blocks that the preprocessor skips as is
    #[arg(long, alias = "default-preprocessor")]
    skip_excluded_preprocessor_conditional_blocks: bool,
    /// With the option above, translate those blocks except for their includes
    #[arg(long)]
    amap: bool,
    /// Translate cudaDataType and its constants to hipDataType, even where the target has a type of its own
    #[arg(long)]
    use_hip_data_types: bool,
    /// Define a macro for the options above, NAME or NAME=VALUE
    #[arg(short = 'D', long)]
    define: Vec<String>,
    /// Search this folder for the project's own headers
    #[arg(short = 'I', long, value_name = "FOLDER")]
    include: Vec<PathBuf>,
    /// Include warpwave_cuda.h, which supplies what HIP lacks, in every CUDA file; by default only where it is needed
    #[arg(long)]
    header: bool,
    /// Do not include warpwave_cuda.h; diagnostics name what needs it
    #[arg(long, conflicts_with = "header")]
    no_header: bool,
    /// Apply the safe fixes for code that assumes 32 lanes per warp
    #[arg(long)]
    fix: bool,
    /// Print only the summary of each file
    #[arg(long, short)]
    quiet: bool,
    /// Print every diagnostic instead of grouping repeated ones
    #[arg(long)]
    all: bool,
    /// Explain a diagnostic code, such as WW0203
    #[arg(long, value_name = "CODE")]
    explain: Option<String>,
    /// Print diagnostics and statistics as JSON; HIP source is written with -o only
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    ignored: hipify_clang::Ignored,
    /// Compiler arguments: macros (-D) and include folders (-I) are used, others ignored
    #[arg(last = true, value_name = "COMPILER_ARGS")]
    compiler_args: Vec<String>,
}

/// A converted file.
struct Converted {
    input: Input,
    original: Vec<u8>,
    conversion: Conversion,
    /// The result with `--fix` and `--header`, if these resolve anything.
    remedied: Option<Remedied>,
}

impl Converted {
    /// The text that the offsets of the diagnostics refer to.
    fn source(&self) -> &[u8] {
        self.conversion.fixed_source.as_deref().unwrap_or(&self.original)
    }
}

pub(super) fn run(context: &mut Context<'_>, args: &Args) -> Outcome {
    if let Some(code) = &args.explain {
        return explain(context, code);
    }
    let format = args.report.as_deref().map(show::Format::of).transpose()?;
    let ignored = args.ignored.given();
    if !ignored.is_empty() && !args.json {
        writeln!(context.err, "warpwave: note: {} ignored: not needed for this translation", ignored.join(", "))?;
    }
    let after_dashes = database::compiled(&args.compiler_args, Path::new(""));
    let given = Compiled {
        defines: defines(args).into_iter().chain(after_dashes.defines).collect(),
        folders: args.include.iter().cloned().chain(after_dashes.folders).collect(),
        ambiguous: false,
    };
    let mut inputs = match &args.project {
        Some(project) => Inputs::database(project, &args.files, &given)?,
        None => Inputs::named(&args.files, &given)?,
    };
    if let Some(output) = &args.output {
        inputs.exclude(output);
    }
    for missing in &inputs.missing {
        writeln!(context.err, "warpwave: {} does not exist and is skipped", missing.display())?;
    }
    let several = inputs.all.len() > 1 || args.files.is_empty() || args.files.iter().any(|path| path.is_dir());
    if several && args.output.is_none() && !args.inplace && !args.examine && !args.json {
        return Err(usage(format!("{} input files: pass an output folder with -o, or use --inplace or --examine", inputs.all.len())));
    }
    let folder = several || args.output.as_ref().is_some_and(|output| output.is_dir());
    let renames = folder && args.output.is_some();
    if renames {
        write::check_collisions(&inputs.all)?;
    }
    let build = BuildOptions { offload_arch: args.offload_arch.clone(), renamed: renames.then(|| inputs.cuda_names()) };
    let detail = show::Detail { diagnostics: !args.quiet, each: args.all, statistics: args.print_stats };
    let mut all = Vec::with_capacity(inputs.all.len());
    for input in &inputs.all {
        let converted = match input.build {
            Some(kind) => build_file(input, kind, &build)?,
            None => source_file(input, &inputs, args, renames)?,
        };
        write::write(context, args, folder, &converted)?;
        if !args.json {
            show::file(context.err, &converted, &detail)?;
        }
        all.push(converted);
    }
    if let Some(output) = args.output.as_ref().filter(|_| folder && !args.converted_only) {
        let copied = write::copy_others(&inputs, output)?;
        if copied > 0 && !args.json {
            writeln!(context.err, "{} copied (--converted-only leaves them out)", show::counted(copied, "other file"))?;
        }
    }
    if let (Some(path), Some(format)) = (&args.report, format) {
        write::replace(path, &show::report(&all, format)?)?;
    }
    if args.json {
        return context.print_json(&show::json(&all));
    }
    if several { show::totals(context.err, &all, args.print_stats) } else { Ok(()) }
}

fn defines(args: &Args) -> Vec<(String, String)> {
    let define =
        |text: &String| text.split_once('=').map_or((text.clone(), String::new()), |(name, value)| (name.to_owned(), value.to_owned()));
    args.define.iter().map(define).collect()
}

fn explain(context: &mut Context<'_>, code: &str) -> Outcome {
    let number = code
        .trim_start_matches("WW")
        .parse()
        .map_err(|_| usage(format!("invalid diagnostic code `{code}`; expected a code such as WW0203")))?;
    let (title, text) = report::explain(number).ok_or_else(|| usage(format!("unknown diagnostic code {code}")))?;
    Ok(writeln!(context.out, "WW{number:04}: {title}\n\n{}", text.trim_end())?)
}

fn options(args: &Args, input: &Input) -> Options {
    let skip = args.skip_excluded_preprocessor_conditional_blocks && !input.compiled.ambiguous;
    Options {
        target: match (args.roc, args.miopen) {
            (_, true) => Target::Miopen,
            (true, false) => Target::Roc,
            _ => Target::Hip,
        },
        launch: if args.hip_kernel_execution_syntax { LaunchSyntax::Call } else { LaunchSyntax::Kept },
        excluded: match (skip, args.amap) {
            (false, _) => ExcludedBlocks::Translated,
            (true, true) => ExcludedBlocks::AllButIncludes,
            (true, false) => ExcludedBlocks::Kept,
        },
        experimental: args.experimental,
        hip_data_types: args.use_hip_data_types,
        compatibility_header: match (args.header, args.no_header) {
            (true, _) => UseHeader::Always,
            (_, true) => UseHeader::Never,
            _ => UseHeader::WhenNeeded,
        },
        fix: args.fix,
        defines: input.compiled.defines.clone(),
        keep_ported: true,
        ..Options::default()
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| failed(format!("{}: {error}", path.display())))
}

fn source_file(input: &Input, inputs: &Inputs, args: &Args, renames: bool) -> Result<Converted, Failure> {
    let original = read(&input.path)?;
    let mut options = options(args, input);
    (options.local_includes, options.blas_v2) = inputs.local(input, &original, renames);
    let headers = Headers {
        path: IncludePath { folders: input.compiled.folders.clone(), ..IncludePath::default() },
        source_folder: input.path.parent().map(Path::to_owned),
        compatibility: Some(warpwave_jit::compatibility_header()),
    };
    let conversion = convert(&original, &options, &headers);
    let remedied = conversion.with_remedies(&original, &options, &headers);
    Ok(Converted { input: input.clone(), original, conversion, remedied })
}

fn build_file(input: &Input, kind: build::BuildFile, options: &BuildOptions) -> Result<Converted, Failure> {
    let original = read(&input.path)?;
    let conversion = build::convert(&original, kind, options);
    Ok(Converted { input: input.clone(), original, conversion, remedied: None })
}
