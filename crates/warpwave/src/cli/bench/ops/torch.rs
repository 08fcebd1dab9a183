//! PyTorch beside us: a process that times expressions, one after the other, in turn with our own.

use std::time::Duration;

use serde_json::{Value, json};

use super::super::super::Failure;
use super::super::python::Python;
use super::case::Torch;

/// The process.
pub struct Peer {
    python: Python,
    /// Its version and device.
    pub name: String,
}

impl Peer {
    pub fn start() -> Result<Peer, Failure> {
        let hint = "PyTorch did not answer; python3's message is above. It needs PyTorch with CUDA; `--peer cpu` needs neither";
        let (python, hello) = Python::start(include_str!("torch.py"), &[], hint)?;
        let text = |key: &str| hello[key].as_str().unwrap_or("?").to_owned();
        Ok(Peer { python, name: format!("PyTorch {} on {}", text("version"), text("device")) })
    }

    /// Seconds of one run, or why it has none.
    pub fn seconds(&mut self, case: &Torch, span: Duration) -> Result<Result<f64, String>, Failure> {
        self.ask(json!({ "setup": case.setup, "call": case.call, "span": span.as_secs_f64() }))
    }

    /// The same of the last case.
    pub fn again(&mut self, span: Duration) -> Result<Result<f64, String>, Failure> {
        self.ask(json!({ "span": span.as_secs_f64() }))
    }

    fn ask(&mut self, question: Value) -> Result<Result<f64, String>, Failure> {
        let answer = self.python.ask(&question)?;
        Ok(answer["seconds"].as_f64().ok_or_else(|| answer["error"].as_str().unwrap_or("no answer").to_owned()))
    }
}
