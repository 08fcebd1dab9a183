//! Peers that are Python programs: a process that reads a line of JSON and answers with one.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;

use super::super::{Failure, failed};

/// The process.
pub struct Python {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// What to say when it does not answer.
    hint: &'static str,
}

impl Python {
    /// Starts a script, and gives what it says first.
    pub fn start(script: &str, arguments: &[String], hint: &'static str) -> Result<(Python, Value), Failure> {
        let mut command = Command::new("python3");
        command.args(["-c", script]).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| failed(format!("python3: {error}")))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else { return Err(failed("python3: no pipes")) };
        let mut python = Python { child, input, output: BufReader::new(output), hint };
        let hello = python.answer()?;
        Ok((python, hello))
    }

    /// What it answers to a line.
    pub fn ask(&mut self, question: &Value) -> Result<Value, Failure> {
        writeln!(self.input, "{question}")?;
        self.input.flush()?;
        self.answer()
    }

    fn answer(&mut self) -> Result<Value, Failure> {
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
