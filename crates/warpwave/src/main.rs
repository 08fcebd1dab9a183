//! The `warpwave` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    let gpus = warpwave_gpu::Gpus::discover;
    ExitCode::from(warpwave::cli::main(std::env::args_os(), gpus, &mut std::io::stdout(), &mut std::io::stderr()))
}
