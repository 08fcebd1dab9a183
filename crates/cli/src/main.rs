//! The `warpwave` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(warpwave_cli::main(std::env::args_os(), warpwave::devices, &mut std::io::stdout(), &mut std::io::stderr()))
}
