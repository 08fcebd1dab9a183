//! Peers of `warpwave bench llm`.

use serde_json::json;
use warpwave_llm::{Config, LanguageModel};

use super::super::super::{Failure, failed, usage};
use super::super::python::Python;
use super::Options;

/// Peer names for `--peer`.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum PeerName {
    /// llama.cpp on the CPU (pip install xllamacpp).
    #[value(name = "llama.cpp")]
    LlamaCpp,
    /// Hugging Face transformers on the same NVIDIA GPU, in bf16.
    Transformers,
}

/// A peer with its model loaded.
pub struct Peer {
    python: Python,
    /// Name and version.
    pub name: String,
}

impl Peer {
    pub fn start(name: PeerName, loaded: &LanguageModel, options: &Options, threads: usize) -> Result<Peer, Failure> {
        if loaded.budget.devices.len() > 1 {
            return Err(usage("--peer needs a single device; pass one with --device"));
        }
        match name {
            PeerName::LlamaCpp => Peer::llama_cpp(loaded, options, threads),
            PeerName::Transformers => Peer::transformers(loaded, options),
        }
    }

    fn llama_cpp(loaded: &LanguageModel, options: &Options, threads: usize) -> Result<Peer, Failure> {
        if !loaded.runner.model().device().is_cpu() {
            return Err(usage("--peer llama.cpp runs on the CPU only; pass --device cpu"));
        }
        let Some(file) = loaded.checkpoint.gguf() else {
            return Err(usage("--peer llama.cpp needs a GGUF file; create one with `warpwave model convert DIR model.gguf`"));
        };
        if options.model_args.kind.is_some() {
            return Err(usage("--peer llama.cpp cannot be combined with --dtype; convert the file first with `warpwave model convert`"));
        }
        let context = (options.prompt + options.tokens + 1).next_multiple_of(256);
        let arguments = [file.path().to_owned(), threads.to_string(), context.to_string()];
        let hint = "failed to run llama.cpp; see the python3 output above. To install it: `python3 -m pip install xllamacpp` \
                    (activate the virtual environment first, if you use one)";
        let (python, hello) = Python::start(include_str!("llama_cpp.py"), &arguments, hint)?;
        Ok(Peer { python, name: format!("llama.cpp (xllamacpp {})", hello["version"].as_str().unwrap_or("?")) })
    }

    fn transformers(loaded: &LanguageModel, options: &Options) -> Result<Peer, Failure> {
        let Some(number) = loaded.runner.model().device().name().strip_prefix("cuda:") else {
            return Err(usage("--peer transformers needs an NVIDIA GPU; pass --device cuda:0"));
        };
        let model = match (&options.model_args.model, options.random) {
            (_, true) => shape(loaded.checkpoint.config()).to_string(),
            (Some(path), _) if path.is_dir() => path.display().to_string(),
            _ => return Err(usage("--peer transformers needs a directory with config.json and safetensors, or --random")),
        };
        let hint = "failed to run transformers; see the python3 output above. To install it: `python3 -m pip install torch transformers`";
        let (python, hello) = Python::start(include_str!("transformers.py"), &[model, number.to_owned()], hint)?;
        let text = |key: &str| hello[key].as_str().unwrap_or("?").to_owned();
        Ok(Peer { python, name: format!("transformers {} (PyTorch {}, bf16)", text("version"), text("torch")) })
    }

    /// Returns prefill and decode time in seconds.
    pub fn once(&mut self, prompt: &[u32], tokens: usize) -> Result<(f64, f64), Failure> {
        let answer = self.python.request(&json!({ "prompt": prompt, "tokens": tokens + 1 }))?;
        let seconds = |key: &str| answer[key].as_f64().ok_or_else(|| failed(format!("{} failed: {answer}", self.name)));
        Ok((seconds("prefill")?, seconds("decode")?))
    }
}

/// Returns a Llama configuration in the format of transformers.
fn shape(config: &Config) -> serde_json::Value {
    json!({
        "vocab_size": config.vocab,
        "hidden_size": config.hidden,
        "intermediate_size": config.feed_forward,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "max_position_embeddings": config.context,
        "tie_word_embeddings": false,
    })
}
