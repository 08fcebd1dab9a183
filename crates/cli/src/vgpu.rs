//! `warpwave vgpu`: programs of ROCm on the virtual AMD GPU.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;
use warpwave_vgpu::Arch;
use warpwave_vgpu::hip::Config;
use warpwave_vgpu::hip::model::{GpuModel, default_memory};

use super::{Context, Failure, Outcome, failed, human_bytes, usage};

/// The library that replaces AMD's `libhsa-runtime64.so.1`, whose name the file states inside.
const NAME: &str = "libhsa_runtime64.so";
/// The environment variable with its path.
const VARIABLE: &str = "WARPWAVE_HSA_LIB";
const DEVICES: &str = "WARPWAVE_VGPU_DEVICES";
/// The card of programs that run without `--arch` and [`DEVICES`].
const DEFAULT: &str = "gfx90a";

#[derive(clap::Args)]
#[command(after_help = "Example: warpwave vgpu exec --arch gfx90a -- ./my_hip_program")]
pub(super) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Run a ROCm program with AMD's own HIP runtime on virtual AMD GPUs.
    Exec(ExecArgs),
    /// Show the library that `exec` uses and the virtual GPUs.
    Info(InfoArgs),
}

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  warpwave vgpu exec -- ./my_hip_program input.dat\n  \
    warpwave vgpu exec --arch gfx90a,gfx90a -- python3 test.py\n\n\
    AMD's HIP runtime must be installed (apt install libamdhip64-5). Exits with the exit code of the program.")]
struct ExecArgs {
    /// Set the virtual GPUs visible to the program, one per name; default: WARPWAVE_VGPU_DEVICES, or one gfx90a.
    #[arg(long, value_name = "ARCH[,ARCH]", value_parser = archs)]
    arch: Option<String>,
    /// Program and its arguments.
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

#[derive(clap::Args)]
#[command(after_help = "Example: warpwave vgpu info --json | jq -r .library")]
struct InfoArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(context: &mut Context<'_>, args: &Args) -> Outcome {
    match &args.action {
        Action::Exec(args) => exec(args),
        Action::Info(args) => info(context, args),
    }
}

/// Checks a list of architectures.
fn archs(text: &str) -> Result<String, String> {
    let known = Arch::ALL.map(Arch::name);
    match text.split(',').find(|name| !known.contains(name)) {
        Some(wrong) => Err(format!("unknown architecture `{wrong}`; expected one of {}", known.join(", "))),
        None => Ok(text.to_owned()),
    }
}

fn exec(args: &ExecArgs) -> Outcome {
    let library = find()?;
    // LD_PRELOAD is split at spaces and colons.
    if library.to_string_lossy().contains([' ', ':']) {
        let shown = library.display();
        return Err(failed(format!("{shown}: LD_PRELOAD does not support paths with spaces or colons; copy the library elsewhere")));
    }
    // Loaded first, the library is what every later request for AMD's name finds, also where a program has a search path of its own.
    let mut preload = OsString::from(library);
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|value| !value.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let mut command = Command::new(&args.program[0]);
    command.args(&args.program[1..]).env("LD_PRELOAD", preload);
    if let Some(arch) = &args.arch {
        command.env(DEVICES, arch);
    }
    // Replaces this process, so that signals and the exit code are the program's.
    let error = command.exec();
    Err(failed(format!("{}: {error}", args.program[0].to_string_lossy())))
}

fn info(context: &mut Context<'_>, args: &InfoArgs) -> Outcome {
    let config = Config::from_env_or(DEFAULT).map_err(usage)?;
    let library = find();
    let models = config.devices.iter().map(|arch| (arch, GpuModel::of(*arch)));
    if args.json {
        let devices: Vec<_> = models
            .map(|(arch, model)| {
                json!({
                    "arch": arch.name(),
                    "target_id": arch.target_id(),
                    "name": model.name,
                    "compute_units": model.compute_units,
                    "wave_size": model.wave_size,
                    "memory_bytes": config.memory.unwrap_or_else(|| default_memory(model)),
                })
            })
            .collect();
        return context.print_json(&json!({
            "library": library.as_ref().ok().map(|path| path.display().to_string()),
            "devices": devices,
            "architectures": Arch::ALL.map(Arch::name),
        }));
    }
    match &library {
        Ok(path) => writeln!(context.out, "library  {}", path.display())?,
        Err(failure) => writeln!(context.out, "library  {}", failure.message)?,
    }
    for (arch, model) in models {
        let memory = human_bytes(config.memory.unwrap_or_else(|| default_memory(model)) as usize);
        writeln!(context.out, "{:8} {}, {} compute units, {memory}", arch.name(), model.name, model.compute_units)?;
    }
    Ok(())
}

/// Returns the library.
fn find() -> Result<PathBuf, Failure> {
    let named = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
    let paths = named.clone().map_or_else(|| candidates(&std::env::current_exe().unwrap_or_default()), |path| vec![path]);
    let found = paths.iter().find_map(|path| path.canonicalize().ok().filter(|path| path.is_file()));
    found.ok_or_else(|| {
        let tried: String = paths.iter().map(|path| format!("\n  {}", path.display())).collect();
        let fix = match named {
            Some(_) => format!("\nCorrect or unset {VARIABLE}."),
            None => format!("\nBuild it with `cargo build --release -p warpwave-libhsa`, or set {VARIABLE} to its path."),
        };
        failed(format!("{NAME} not found; tried:{tried}{fix}"))
    })
}

/// Returns candidate paths relative to the executable: a release archive, an installation, cargo's target folder (`deps` in tests).
fn candidates(program: &Path) -> Vec<PathBuf> {
    let folder = program.parent().unwrap_or(Path::new("."));
    [folder.to_owned(), folder.with_file_name("lib"), folder.join("deps")].map(|folder| folder.join(NAME)).into()
}
