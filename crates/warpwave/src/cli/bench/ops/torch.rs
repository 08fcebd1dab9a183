//! PyTorch beside us: a process that times expressions, one after the other, in turn with our own.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use super::super::super::{Failure, failed};
use super::case::Torch;

/// The process.
pub struct Peer {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// Its version and device.
    pub name: String,
}

impl Peer {
    pub fn start() -> Result<Peer, Failure> {
        let mut command = Command::new("python3");
        command.args(["-c", include_str!("torch.py")]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| failed(format!("python3: {error}")))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else { return Err(failed("python3: no pipes")) };
        let mut peer = Peer { child, input, output: BufReader::new(output), name: String::new() };
        let hello = peer.answer()?;
        let text = |key: &str| hello[key].as_str().unwrap_or("?").to_owned();
        peer.name = format!("PyTorch {} on {}", text("version"), text("device"));
        Ok(peer)
    }

    /// Seconds of one run, or why it has none.
    pub fn seconds(&mut self, case: &Torch) -> Result<Result<f64, String>, Failure> {
        writeln!(self.input, "{}", json!({ "setup": case.setup, "call": case.call }))?;
        self.input.flush()?;
        let answer = self.answer()?;
        Ok(answer["seconds"].as_f64().ok_or_else(|| answer["error"].as_str().unwrap_or("no answer").to_owned()))
    }

    fn answer(&mut self) -> Result<Value, Failure> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        if line.is_empty() {
            return Err(failed(
                "PyTorch did not answer; python3's message is above. It needs PyTorch with CUDA; `--peer cpu` needs neither",
            ));
        }
        Ok(serde_json::from_str(&line)?)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
