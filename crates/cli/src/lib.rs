//! The `warpwave` command: arguments, output and exit code.
//!
//! The binary calls [`main`]. The public modules are the parts of the command without a device: element values ([`value`]), arrays
//! ([`mod@array`]) and NumPy files ([`npy`]) of `warpwave-weights`, the syntax of `warpwave run --arg` ([`spec`]), and the comparison of results ([`compare`]).
//!
//! Exit codes: 0 success, 1 failure, 2 usage error. Results go to standard output, messages and progress to standard error. A closed
//! standard output (`| head`) does not change the work or the exit code; commands that only stream output stop quietly.
//!
//! ```
//! use warpwave_cli::{array::format_values, compare::compare, npy, spec::Spec};
//!
//! let Spec::Buffer(buffer) = Spec::parse("f32[2,3]=iota(0.5,1)")? else { panic!("a buffer") };
//! let array = buffer.materialize()?;
//! assert_eq!(format_values(&array, 2), "f32[2,3] = 0.5, 1.5, ... (4 more)");
//!
//! let mut file = Vec::new();
//! npy::write(&mut file, &array)?;
//! assert!(compare(&npy::read(&mut file.as_slice())?, &array, 0.0)?.is_match());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![warn(missing_docs)]

mod bench;
mod cache;
pub mod compare;
mod compile;
mod devices;
mod disasm;
mod doctor;
mod hipify;
mod image;
mod inspect;
mod kernel_library;
mod llm;
mod mpi;
mod plot;
mod run;
mod serve;
pub mod spec;
mod tune;
mod vgpu;

pub use warpwave_weights::{array, npy, value};

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write};

use clap::{CommandFactory, Parser, Subcommand};
use tracing_subscriber::EnvFilter;
use warpwave_gpu::{Device, DeviceSpec, Devices, Error};
use warpwave_jit::Jit;

/// Write GPU kernels once, in CUDA C++; compile and run them on NVIDIA and AMD GPUs.
#[derive(Parser)]
#[command(
    name = "warpwave",
    version,
    max_term_width = 110,
    after_help = "Example: warpwave devices\n\nWARPWAVE_LOG=debug prints debug logs."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List devices and the status of each backend.
    Devices(devices::Args),
    /// Diagnose drivers, permissions and compilers, and suggest fixes.
    Doctor(doctor::Args),
    /// Translate CUDA sources to HIP and report what needs manual work.
    Hipify(hipify::Args),
    /// Compile a CUDA C++ file, or the kernel library, for one or more GPU architectures.
    Compile(compile::Args),
    /// Show targets, kernels, registers and arguments of compiled code.
    Inspect(inspect::Args),
    /// Disassemble AMD GPU code objects.
    Disasm(disasm::Args),
    /// Compile and launch a kernel, then print or save its buffers.
    Run(run::Args),
    /// Inspect, verify or clear the kernel cache.
    Cache(cache::Args),
    /// Run benchmarks.
    Bench(bench::Args),
    /// Generate text from a prompt with a language model.
    Generate(llm::generate::Args),
    /// Chat with a language model.
    Chat(llm::chat::Args),
    /// Compute text embeddings with an encoder model.
    Embed(llm::embed::Args),
    /// Inspect, convert or download language models.
    Model(llm::model::Args),
    /// Generate images from text or other images.
    Image(Box<image::Args>),
    /// Serve language models over HTTP with an OpenAI-compatible API.
    Serve(serve::Args),
    /// Run a worker that takes jobs over HTTP.
    Worker(serve::worker::Args),
    /// Autotune kernel parameters for a GPU and save the result.
    Tune(tune::Args),
    /// Run MPI programs with a faster MPI_Allreduce; benchmark and tune it.
    Mpi(mpi::Args),
    /// Run ROCm programs on virtual AMD GPUs.
    Vgpu(vgpu::Args),
    /// Render a chat template read from standard input.
    #[command(name = llm::template::COMMAND, hide = true)]
    RenderTemplate,
    /// Generate a shell completion script.
    #[command(after_help = "Example: warpwave completions bash > ~/.local/share/bash-completion/completions/warpwave")]
    Completions {
        /// Shell to generate the script for.
        shell: clap_complete::Shell,
    },
}

/// State shared by all commands.
struct Context<'a> {
    gpus: &'a dyn Fn() -> Devices,
    jit: Jit,
    out: &'a mut dyn Write,
    err: &'a mut dyn Write,
}

/// A failed command: exit code and message.
#[derive(Debug)]
struct Failure {
    code: u8,
    message: String,
}

type Outcome = Result<(), Failure>;

/// Standard output that tolerates a closed pipe.
///
/// After the reader closes the pipe, writes are discarded so that the command still writes its files and sets its exit code. Only
/// [`Output::flush`] reports the closed pipe, so that streaming commands can stop.
struct Output<'a> {
    out: &'a mut dyn Write,
    closed: bool,
}

const STDOUT_CLOSED: &str = "standard output was closed";

impl Output<'_> {
    /// Returns `result`, or `Ok(fallback)` once the pipe is closed.
    fn ignore_closed<T>(&mut self, result: std::io::Result<T>, fallback: T) -> std::io::Result<T> {
        self.closed |= result.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe);
        if self.closed { Ok(fallback) } else { result }
    }
}

impl Write for Output<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let result = self.out.write(bytes);
        self.ignore_closed(result, bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        let result = self.out.flush();
        self.ignore_closed(result, ())?;
        if self.closed { Err(std::io::Error::new(std::io::ErrorKind::BrokenPipe, STDOUT_CLOSED)) } else { Ok(()) }
    }
}

/// Creates a usage error (exit code 2).
fn usage(message: impl Into<String>) -> Failure {
    Failure { code: 2, message: message.into() }
}

/// Creates a failure (exit code 1).
fn failed(message: impl Into<String>) -> Failure {
    Failure { code: 1, message: message.into() }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        failed(error.to_string())
    }
}

impl Context<'_> {
    fn print_json(&mut self, value: &serde_json::Value) -> Outcome {
        Ok(writeln!(self.out, "{value:#}")?)
    }

    /// Resolves a `--device` name to a GPU.
    ///
    /// Without a physical GPU, `auto` falls back to the virtual GPU and prints a notice.
    fn device(&mut self, name: &str) -> Result<Device, Failure> {
        let spec: DeviceSpec = name.parse().map_err(|error: Error| usage(error.to_string()))?;
        match (self.gpus)().open(&spec) {
            Ok(device) => {
                if spec == DeviceSpec::Auto && device.info().is_virtual {
                    let (name, model) = (device.name(), &device.info().model);
                    writeln!(self.err, "warpwave: no GPU found; using the virtual GPU {name} ({model})")?;
                }
                Ok(device)
            }
            Err(Error::NoGpu { reasons }) => {
                let mut message = "no GPU found:".to_owned();
                reasons.iter().for_each(|reason| _ = write!(message, "\n  {reason}"));
                message.push_str("\nRun `warpwave doctor` to diagnose. `warpwave compile` works without a GPU.");
                Err(failed(message))
            }
            Err(error @ Error::UnknownDevice { .. }) => Err(usage(format!("{error}. Run `warpwave devices` for details"))),
            Err(error @ Error::NotAGpu { .. }) => Err(usage(error.to_string())),
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns the definition of the command line, for generated documentation.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Parses a command line without running it; an error is the message a user would see.
pub fn check_usage(args: impl IntoIterator<Item = OsString>) -> Result<(), String> {
    match Cli::try_parse_from(hipify::normalize(mpi::normalize_np(args))) {
        Err(error) if error.use_stderr() => Err(error.to_string()),
        _ => Ok(()),
    }
}

/// Runs a command line and returns the exit code.
pub fn main(args: impl IntoIterator<Item = OsString>, gpus: impl Fn() -> Devices, out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    let cli = match Cli::try_parse_from(hipify::normalize(mpi::normalize_np(args))) {
        Ok(cli) => cli,
        Err(error) => {
            let text = error.render();
            let _ = if error.use_stderr() { write!(err, "{text}") } else { write!(out, "{text}") };
            return if error.use_stderr() { 2 } else { 0 };
        }
    };
    let filter = log_filter(err, matches!(cli.command, Command::Serve(_) | Command::Worker(_)));
    // Fails if already set, by an earlier command in the same process (tests).
    let colors = std::io::stderr().is_terminal();
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colors);
    let _ = log.without_time().with_target(false).try_init();
    let mut out = Output { out, closed: false };
    let mut context = Context { gpus: &gpus, jit: Jit::default(), out: &mut out, err };
    let outcome = match cli.command {
        Command::Devices(args) => devices::run(&mut context, &args),
        Command::Doctor(args) => doctor::run(&mut context, &args),
        Command::Hipify(args) => hipify::run(&mut context, &args),
        Command::Compile(args) => compile::run(&mut context, &args),
        Command::Inspect(args) => inspect::run(&mut context, &args),
        Command::Disasm(args) => disasm::run(&mut context, &args),
        Command::Run(args) => run::run(&mut context, &args),
        Command::Cache(args) => cache::run(&mut context, &args),
        Command::Generate(args) => llm::generate::run(&mut context, &args),
        Command::Chat(args) => llm::chat::run(&mut context, &args),
        Command::Embed(args) => llm::embed::run(&mut context, &args),
        Command::Model(args) => llm::model::run(&mut context, &args),
        Command::Image(args) => image::run(&mut context, &args),
        Command::Serve(args) => serve::run(&mut context, &args),
        Command::Worker(args) => serve::worker::run(&mut context, &args),
        Command::Tune(args) => tune::run(&mut context, &args),
        Command::Bench(args) => bench::run(&mut context, &args),
        Command::Mpi(args) => mpi::run(&mut context, &args),
        Command::Vgpu(args) => vgpu::run(&mut context, &args),
        Command::RenderTemplate => llm::template::run(&mut context),
        Command::Completions { shell } => {
            // Buffered: the generator panics on a closed pipe.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut command(), "warpwave", &mut script);
            context.out.write_all(&script).map_err(Failure::from)
        }
    };
    match outcome {
        Ok(()) => 0,
        Err(failure) if failure.message == STDOUT_CLOSED => 0,
        Err(failure) => {
            let _ = writeln!(err, "warpwave: {}", failure.message.trim_end());
            failure.code
        }
    }
}

/// Returns the log filter of `WARPWAVE_LOG`; an invalid value is reported and ignored. By default, warnings are logged, and requests if the
/// command is a server.
fn log_filter(err: &mut dyn Write, is_server: bool) -> EnvFilter {
    let default = if is_server { "warn,warpwave_serve=info" } else { "warn" };
    let value = std::env::var("WARPWAVE_LOG").unwrap_or_default();
    let parsed = if value.is_empty() { Ok(EnvFilter::new(default)) } else { EnvFilter::try_new(&value) };
    parsed.unwrap_or_else(|error| {
        let _ = writeln!(err, "warpwave: ignoring invalid WARPWAVE_LOG={value}: {error}; examples: debug, warpwave_jit=trace");
        EnvFilter::new(default)
    })
}

/// Formats a byte count, e.g. `1.5 GiB`.
fn human_bytes(bytes: usize) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        command().debug_assert();
    }

    #[test]
    fn sizes_are_readable() {
        assert_eq!(human_bytes(0), "0 B");
        assert_eq!(human_bytes(1023), "1023 B");
        assert_eq!(human_bytes(1536), "1.5 KiB");
        assert_eq!(human_bytes(141 << 30), "141.0 GiB");
    }
}
