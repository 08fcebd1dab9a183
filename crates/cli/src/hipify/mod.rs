//! The `warpwave hipify` command: reads files, calls [`warpwave_hipify::convert`], prints and writes.

mod database;
mod hipify_clang;
mod inputs;
mod show;
mod write;

use std::path::{Path, PathBuf};

use warpwave_hipify::build::{self, BuildOptions};
use warpwave_hipify::report;
use warpwave_hipify::{
    Conversion, ExcludedBlocks, Headers, IncludePath, LaunchSyntax, Options, Remedied, RocmVersion, RuntimeHeader, Target, UseHeader,
    convert,
};

use super::{Context, Failure, Outcome, failed, usage};
use database::Compiled;
pub(crate) use hipify_clang::normalize;
use inputs::{Input, Inputs};

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  warpwave hipify kernel.cu -o kernel.hip\n  warpwave hipify src/ -o hip/ --report report.html\n  \
    warpwave hipify -p build/ --inplace\n\n\
    HIP source goes to standard output, diagnostics to standard error. Input files are modified only with --inplace, which keeps \
    backups as FILE.prehip. CMake files and Makefiles in directories and projects are also converted. hipify-clang command lines are \
    accepted. Exit code: 1 if a file cannot be read or written.")]
pub(super) struct Args {
    /// CUDA files, CMake files or Makefiles, or directories that contain them
    #[arg(required_unless_present_any = ["explain", "project"])]
    files: Vec<PathBuf>,
    /// Convert the files listed in compile_commands.json (PATH is that file or its build directory), with their macros and include
    /// directories, plus the project's headers and build files; if FILES are given, convert only FILES
    #[arg(short = 'p', long, value_name = "PATH")]
    project: Option<PathBuf>,
    /// Write to this file, or to this directory for several inputs; by default, a single file is printed to standard output
    #[arg(short, long, alias = "o-dir")]
    output: Option<PathBuf>,
    /// Write only converted files to the output directory; by default, other files are copied too, so that the output is a complete
    /// source tree
    #[arg(long, requires = "output")]
    converted_only: bool,
    /// Convert files in place; the originals are kept as FILE.prehip
    #[arg(long, conflicts_with_all = ["output", "examine"])]
    inplace: bool,
    /// Do not write backups with --inplace
    #[arg(long, requires = "inplace")]
    no_backup: bool,
    /// Print diagnostics and statistics without writing files
    #[arg(long, alias = "no-output", conflicts_with = "output")]
    examine: bool,
    /// Write a report in the format given by the file extension: .html (side-by-side diff), .json or .txt (same as the printed output)
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Set the AMD architectures to write to build files
    #[arg(long, value_name = "GFX", value_delimiter = ',', default_value = "gfx90a,gfx942,gfx1100")]
    offload_arch: Vec<String>,
    /// Print statistics per file and in total
    #[arg(long)]
    print_stats: bool,
    /// Translate to roc* libraries (rocBLAS, …) instead of hip* libraries where possible
    #[arg(long)]
    roc: bool,
    /// Use MIOpen for cuDNN; implies --roc
    #[arg(long)]
    miopen: bool,
    /// Translate to the API names used in this ROCm release: 6 or 7
    #[arg(long, value_name = "VERSION", default_value_t)]
    rocm: RocmVersion,
    /// Also translate names that HIP marks as experimental
    #[arg(long)]
    experimental: bool,
    /// Write launches as hipLaunchKernelGGL(…)
    #[arg(long)]
    hip_kernel_execution_syntax: bool,
    /// Keep launches as <<<…>>> (the default)
    #[arg(long)]
    cuda_kernel_execution_syntax: bool,
    /// Do not translate code in inactive preprocessor branches
    #[arg(long, alias = "default-preprocessor")]
    skip_excluded_preprocessor_conditional_blocks: bool,
    /// Translate inactive branches except for their #include lines (with
    /// --skip-excluded-preprocessor-conditional-blocks)
    #[arg(long)]
    amap: bool,
    /// Translate cudaDataType and its constants to hipDataType, even if the library has its own type
    #[arg(long)]
    use_hip_data_types: bool,
    /// Define a macro for preprocessor conditionals: NAME or NAME=VALUE
    #[arg(short = 'D', long)]
    define: Vec<String>,
    /// Add an include directory for the project's headers
    #[arg(short = 'I', long, value_name = "DIR")]
    include: Vec<PathBuf>,
    /// Include warpwave_cuda.h (functions that HIP lacks) in every CUDA file; by default, only in files that need it
    #[arg(long)]
    header: bool,
    /// Never include warpwave_cuda.h; report the names that need it
    #[arg(long, conflicts_with = "header")]
    no_header: bool,
    /// Apply automatic fixes for code that assumes a warp size of 32, where they are safe
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
    /// Print diagnostics and statistics as JSON; the HIP source is written only if -o is given
    #[arg(long)]
    json: bool,
    /// Compiler arguments: -D and -I are used; others are ignored
    #[arg(last = true, value_name = "COMPILER_ARGS")]
    compiler_args: Vec<String>,
    #[command(flatten)]
    ignored: hipify_clang::Ignored,
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
        writeln!(context.err, "warpwave: skipping {}: file not found", missing.display())?;
    }
    let several = inputs.all.len() > 1 || args.files.is_empty() || args.files.iter().any(|path| path.is_dir());
    if several && args.output.is_none() && !args.inplace && !args.examine && !args.json {
        let count = inputs.all.len();
        return Err(usage(format!(
            "expected one input file, got {count}; for several, pass an output directory with -o, or use --inplace or --examine"
        )));
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
            writeln!(context.err, "{} copied unchanged (use --converted-only to omit them)", show::counted(copied, "other file"))?;
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
        rocm: args.rocm,
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
        // nvcc includes CUDA's runtime header in each of them, whether they use it or not.
        runtime_header: if input.path.extension().is_some_and(|ext| ext == "cu") { RuntimeHeader::Always } else { RuntimeHeader::WhenUsed },
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
