//! Python peers: a child process that reads one line of JSON per request and answers with one.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;

use super::super::{Failure, failed};

/// A running Python process.
pub struct Python {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// Error message if it does not answer.
    hint: &'static str,
}

impl Python {
    /// Starts a script and returns its first line.
    pub fn start(script: &str, arguments: &[String], hint: &'static str) -> Result<(Python, Value), Failure> {
        let mut command = Command::new("python3");
        command.args(["-c", script]).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| failed(format!("python3: {error}")))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(failed("python3: cannot open pipes"));
        };
        let mut python = Python { child, input, output: BufReader::new(output), hint };
        let hello = python.read_line()?;
        Ok((python, hello))
    }

    /// Sends a request and returns the response.
    pub fn request(&mut self, request: &Value) -> Result<Value, Failure> {
        writeln!(self.input, "{request}")?;
        self.input.flush()?;
        self.read_line()
    }

    fn read_line(&mut self) -> Result<Value, Failure> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        if line.is_empty() {
            return Err(failed(self.hint));
        }
        Ok(serde_json::from_str(&line)?)
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
