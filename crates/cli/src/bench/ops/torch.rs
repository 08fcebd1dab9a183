//! PyTorch beside us: a process that times expressions, one after the other, in turn with our own.

use std::time::Duration;

use serde_json::json;

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
        let hint = "failed to run PyTorch; see the python3 output above. Install PyTorch with CUDA, or use --peer cpu";
        let (python, hello) = Python::start(include_str!("torch.py"), &[], hint)?;
        let text = |key: &str| hello[key].as_str().unwrap_or("?").to_owned();
        Ok(Peer { python, name: format!("PyTorch {} on {}", text("version"), text("device")) })
    }

    /// Seconds of one run, or why it has none. Without a case it is the same one again; `last` says that its memory is no longer needed.
    pub fn seconds(&mut self, case: Option<&Torch>, span: Duration, last: bool) -> Result<Result<f64, String>, Failure> {
        let mut question = json!({ "span": span.as_secs_f64(), "last": last });
        if let Some(Torch { setup, call }) = case {
            question["setup"] = json!(setup);
            question["call"] = json!(call);
        }
        let answer = self.python.request(&question)?;
        Ok(answer["seconds"].as_f64().ok_or_else(|| answer["error"].as_str().unwrap_or("no answer").to_owned()))
    }
}
