//! `warpwave hipify`.

mod database;
mod inputs;
mod show;
mod write;

use std::path::{Path, PathBuf};

use warpwave_hipify::build::{self, BuildOptions};
use warpwave_hipify::report;
use warpwave_hipify::{Conversion, ExcludedBlocks, Headers, IncludePath, LaunchSyntax, Options, Target, convert};

use super::{Context, Failure, Outcome, failed, usage};
use database::Compiled;
use inputs::{Input, Inputs};

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  warpwave hipify kernel.cu -o kernel.hip\n  warpwave hipify src/ -o hip/ --report report.html\n  \
    warpwave hipify -p build/ --inplace\n\n\
    Nothing but HIP text goes to standard output; diagnostics go to standard error. The input is only changed with --inplace, which \
    keeps the old file as FILE.prehip. In folders and projects CMake files and Makefiles are converted too. Exit code 1 when a file \
    could not be read or written.")]
pub(super) struct Args {
    /// CUDA files, CMake files or Makefiles, or folders to take all of these from.
    #[arg(required_unless_present_any = ["explain", "project"])]
    files: Vec<PathBuf>,
    /// A compile_commands.json, or the build folder that has one: translate the files it names, with their macros and header folders,
    /// and the headers and build files of the same project. With FILES: only these.
    #[arg(short = 'p', long, value_name = "PATH")]
    project: Option<PathBuf>,
    /// Where to write: a file for one input, a folder for several or for a folder. Without it one file goes to standard output.
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// Change the files themselves; the old ones stay as FILE.prehip.
    #[arg(long, conflicts_with_all = ["output", "examine"])]
    inplace: bool,
    /// With --inplace: keep no old files.
    #[arg(long, requires = "inplace")]
    no_backup: bool,
    /// Write nothing: diagnostics and figures only.
    #[arg(long, alias = "no-output", conflicts_with = "output")]
    examine: bool,
    /// Write a report: a page with all changes side by side (.html), or what is printed (.json, .txt).
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// AMD architectures that build files build for.
    #[arg(long, value_name = "GFX", value_delimiter = ',', default_value = "gfx90a,gfx942,gfx1100")]
    offload_arch: Vec<String>,
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
    /// Turn cudaDataType into hipDataType, and its constants into HIP's, even where the target has a type of its own.
    #[arg(long)]
    use_hip_data_types: bool,
    /// Define a macro for the options above, NAME or NAME=VALUE.
    #[arg(short = 'D', long)]
    define: Vec<String>,
    /// Look for the project's own headers here, so that they are not taken for CUDA's and what they declare is known.
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

/// A converted file.
struct Converted {
    input: Input,
    original: Vec<u8>,
    conversion: Conversion,
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
    let given = Compiled { defines: defines(args), folders: args.include.clone(), ambiguous: false };
    let inputs = match &args.project {
        Some(project) => Inputs::database(project, &args.files, &given)?,
        None => Inputs::named(&args.files, &given)?,
    };
    for missing in &inputs.missing {
        writeln!(context.err, "warpwave: {} does not exist, so it is left out", missing.display())?;
    }
    let several = inputs.all.len() > 1 || args.files.is_empty() || args.files.iter().any(|path| path.is_dir());
    if several && args.output.is_none() && !args.inplace && !args.examine && !args.json {
        return Err(usage(format!("{} files: name a folder with -o, or use --inplace or --examine", inputs.all.len())));
    }
    let folder = several || args.output.as_ref().is_some_and(|output| output.is_dir());
    let renames = folder && args.output.is_some();
    if renames {
        write::refuse_collisions(&inputs.all)?;
    }
    let build = BuildOptions { offload_arch: args.offload_arch.clone(), renamed: renames.then(|| inputs.cuda_names()) };
    let mut all = Vec::with_capacity(inputs.all.len());
    for input in &inputs.all {
        let converted = match input.build {
            Some(kind) => build_file(input, kind, &build)?,
            None => source_file(input, &inputs, args, renames)?,
        };
        write::write(context, args, folder, &converted)?;
        if !args.json {
            show::file(context.err, &converted, args.quiet, args.print_stats)?;
        }
        all.push(converted);
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
    let number = code.trim_start_matches("WW").parse().map_err(|_| usage(format!("`{code}` is no diagnostic; they look like WW0203")))?;
    let (title, text) = report::explain(number).ok_or_else(|| usage(format!("there is no diagnostic {code}")))?;
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
        compatibility_header: args.header,
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
    Ok(Converted { input: input.clone(), original, conversion })
}

fn build_file(input: &Input, kind: build::BuildFile, options: &BuildOptions) -> Result<Converted, Failure> {
    let original = read(&input.path)?;
    let conversion = build::convert(&original, kind, options);
    Ok(Converted { input: input.clone(), original, conversion })
}
