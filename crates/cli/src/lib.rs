//! The `warpwave` command: arguments, output and exit code.
//!
//! The binary calls [`main`]. The public modules are the parts of the command without a device: element types ([`dtype`], [`scalar`]), arrays
//! ([`mod@array`]) and NumPy files ([`npy`]), the syntax of `warpwave run --arg` ([`spec`]), and the comparison of results ([`compare`]).
//!
//! Exit codes: 0 done, 1 failed, 2 used wrongly. Facts go to standard output, everything else to standard error. A reader that closes
//! standard output, as `head` does, has what it wanted: the work is done and judged all the same, and what only streams ends quietly.
//!
//! ```
//! use warpwave_cli::{array::format_values, compare::compare, npy, spec::Spec};
//!
//! let Spec::Buffer(buffer) = Spec::parse("f32[2,3]=iota(0.5,1)")? else { panic!("a buffer") };
//! let array = buffer.materialise()?;
//! assert_eq!(format_values(&array, 2), "f32[2,3] = 0.5, 1.5, ... (4 more)");
//!
//! let mut file = Vec::new();
//! npy::write(&mut file, &array)?;
//! assert!(compare(&npy::read(&mut file.as_slice())?, &array, 0.0)?.is_match());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![warn(missing_docs)]

pub mod array;
mod bench;
mod cache;
pub mod compare;
mod compile;
mod devices;
mod disasm;
mod doctor;
pub mod dtype;
mod hipify;
mod inspect;
mod kernel_half;
mod llm;
mod mpi;
pub mod npy;
mod run;
pub mod scalar;
pub mod spec;
mod tune;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::Write;

use clap::{CommandFactory, Parser, Subcommand};
use tracing_subscriber::EnvFilter;
use warpwave_gpu::{Device, Gpus, Preference, Selection};
use warpwave_jit::Jit;

/// Write GPU kernels once, in CUDA C++; compile and run them on NVIDIA and AMD GPUs.
#[derive(Parser)]
#[command(name = "warpwave", version, max_term_width = 110, after_help = "WARPWAVE_LOG=debug shows what happens below.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the GPUs of this machine, and why a backend is absent.
    Devices(devices::Args),
    /// Check each vendor's chain from device node to first launch, and name the fix for the first broken link.
    Doctor(doctor::Args),
    /// Translate CUDA files to HIP, and name what cannot be translated or assumes 32 lanes.
    Hipify(hipify::Args),
    /// Compile a CUDA C++ file for one or more GPUs, with no GPU needed.
    Compile(compile::Args),
    /// Show the targets, kernels, registers and arguments in compiled code.
    Inspect(inspect::Args),
    /// List the machine code of AMD GPUs, instruction by instruction.
    Disasm(disasm::Args),
    /// Compile a kernel, run it on a device, and show or save its buffers.
    Run(run::Args),
    /// Look into the kernel cache, or empty it.
    Cache(cache::Args),
    /// Measure this layer, the kernel library and language models.
    Bench(bench::Args),
    /// Go on with a text by a language model.
    Generate(llm::generate::Args),
    /// Talk with a language model.
    Chat(llm::chat::Args),
    /// Look at language models, convert them, fetch them.
    Model(llm::model::Args),
    /// Find the kernels' fastest settings on a GPU, and keep them for its model.
    Tune(tune::Args),
    /// Run MPI programs with a faster MPI_Allreduce, measure it and tune it.
    Mpi(mpi::Args),
    /// Run a chat template that comes on standard input.
    #[command(name = llm::template::COMMAND, hide = true)]
    RenderTemplate,
    /// Print a completion script for a shell.
    #[command(after_help = "Example: warpwave completions bash > ~/.local/share/bash-completion/completions/warpwave")]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

/// What commands work with.
struct Context<'a> {
    gpus: &'a dyn Fn() -> Gpus,
    jit: Jit,
    out: &'a mut dyn Write,
    err: &'a mut dyn Write,
}

/// A command that did not do its work: an exit code and a message.
#[derive(Debug)]
struct Failure {
    code: u8,
    message: String,
}

type Outcome = Result<(), Failure>;

/// Standard output, and whether its reader went away. What is written then goes nowhere: files are still to be written, and what was found
/// is still the exit code. [`Output::flush`] alone says it, for those who write as long as someone reads.
struct Output<'a> {
    out: &'a mut dyn Write,
    closed: bool,
}

const READER_LEFT: &str = "nobody reads standard output any more";

impl Output<'_> {
    /// What was done, or nothing where nobody reads it.
    fn unless_closed<T>(&mut self, done: std::io::Result<T>, nothing: T) -> std::io::Result<T> {
        self.closed |= done.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe);
        if self.closed { Ok(nothing) } else { done }
    }
}

impl Write for Output<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let done = self.out.write(bytes);
        self.unless_closed(done, bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        let done = self.out.flush();
        self.unless_closed(done, ())?;
        if self.closed { Err(std::io::Error::new(std::io::ErrorKind::BrokenPipe, READER_LEFT)) } else { Ok(()) }
    }
}

/// The user asked for something that makes no sense.
fn usage(message: impl Into<String>) -> Failure {
    Failure { code: 2, message: message.into() }
}

/// It made sense, and did not work.
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

    /// The device of a `--device` name: a GPU, for kernels run on nothing else. Where there is none, `auto` is a virtual one, said aloud.
    fn device(&mut self, name: &str) -> Result<Device, Failure> {
        let gpus = (self.gpus)();
        match gpus.select(&Preference::from(name)) {
            Ok(Selection::Gpu(device)) => Ok(device),
            Ok(Selection::Cpu { why }) if why.is_empty() => {
                Err(usage(format!("kernels run on GPUs, not on `cpu`; known devices: {}", known(&gpus))))
            }
            Ok(Selection::Cpu { why }) => {
                if let Ok(device) = gpus.device(warpwave::DEFAULT_VIRTUAL) {
                    let (name, model) = (device.name(), &device.info().model);
                    writeln!(self.err, "warpwave: no GPU here; running on {name} ({model}): AMD's machine code, executed by the CPU")?;
                    return Ok(device);
                }
                let mut message = "no GPU to run on:".to_owned();
                why.iter().for_each(|reason| _ = write!(message, "\n  {reason}"));
                message.push_str("\nRun `warpwave doctor` for the fix, or `warpwave compile` to compile without a GPU.");
                Err(failed(message))
            }
            Err(warpwave_gpu::Error::UnknownDevice { wanted, .. }) => {
                Err(usage(format!("no device `{wanted}`; known: {}. `warpwave devices` tells why others are absent", known(&gpus))))
            }
            Err(error) => Err(error.into()),
        }
    }
}

fn known(gpus: &Gpus) -> String {
    let names = gpus.names();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Runs a command line and gives the exit code.
pub fn main(args: impl IntoIterator<Item = OsString>, gpus: impl Fn() -> Gpus, out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    let cli = match Cli::try_parse_from(mpi::spelled(args)) {
        Ok(cli) => cli,
        Err(error) => {
            let text = error.render();
            let _ = if error.use_stderr() { write!(err, "{text}") } else { write!(out, "{text}") };
            return if error.use_stderr() { 2 } else { 0 };
        }
    };
    let filter = log_filter(err);
    // A second command in the same process (tests) finds it set already.
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).without_time().with_target(false).try_init();
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
        Command::Model(args) => llm::model::run(&mut context, &args),
        Command::Tune(args) => tune::run(&mut context, &args),
        Command::Bench(args) => bench::run(&mut context, &args),
        Command::Mpi(args) => mpi::run(&mut context, &args),
        Command::RenderTemplate => llm::template::run(&mut context),
        Command::Completions { shell } => {
            // Into memory first: the generator panics when a pipe is closed.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "warpwave", &mut script);
            context.out.write_all(&script).map_err(Failure::from)
        }
    };
    match outcome {
        Ok(()) => 0,
        Err(failure) if failure.message == READER_LEFT => 0,
        Err(failure) => {
            let _ = writeln!(err, "warpwave: {}", failure.message.trim_end());
            failure.code
        }
    }
}

/// What to log; a `WARPWAVE_LOG` that makes no sense is said, not fatal.
fn log_filter(err: &mut dyn Write) -> EnvFilter {
    let wanted = std::env::var("WARPWAVE_LOG").unwrap_or_default();
    let parsed = if wanted.is_empty() { Ok(EnvFilter::new("warn")) } else { EnvFilter::try_new(&wanted) };
    parsed.unwrap_or_else(|error| {
        let _ = writeln!(err, "warpwave: WARPWAVE_LOG={wanted} is ignored: {error}; examples: debug, warpwave_jit=trace");
        EnvFilter::new("warn")
    })
}

/// `1.5 GiB`.
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
        Cli::command().debug_assert();
    }

    #[test]
    fn sizes_are_readable() {
        assert_eq!(human_bytes(0), "0 B");
        assert_eq!(human_bytes(1023), "1023 B");
        assert_eq!(human_bytes(1536), "1.5 KiB");
        assert_eq!(human_bytes(141 << 30), "141.0 GiB");
    }
}
