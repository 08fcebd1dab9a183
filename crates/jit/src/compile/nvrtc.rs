//! NVRTC, for NVIDIA: the source goes in as it is.
//!
//! `sm_NN` gives machine code, never PTX: what a driver compiles while it loads is a cost no cache of ours could save.

use warpwave_gpu::Vendor;

use super::{CompileError, Compiled, Job, beginning, defines};
use crate::headers;
use crate::rtc::{self, Output};
use crate::toolchain::RtcTool;

/// A name in a folder that is not there.
const TEXT_NAME: &str = "/warpwave/text/kernel.cu";

/// The options.
pub(super) fn flags(job: &Job<'_>, tool: &RtcTool) -> Vec<String> {
    let mut flags = vec![format!("--gpu-architecture={}", job.target), "--std=c++17".to_owned()];
    // Registers and spills come back in the log.
    if output(job) == Output::Code {
        flags.push("--ptxas-options=-v".to_owned());
    }
    flags.extend(defines(job));
    flags.extend(job.source.include_dirs().iter().map(|f| format!("-I{}", f.display())));
    flags.extend(tool.include_dirs.iter().map(|f| format!("-I{}", f.display())));
    flags.extend(job.source.options().iter().cloned());
    flags
}

/// Calls NVRTC. Returns the code and the messages.
pub(super) fn compile(job: &Job<'_>, tool: &RtcTool) -> Result<(Vec<u8>, String), CompileError> {
    let table = rtc::open(Vendor::Nvidia, &tool.path)?;
    // NVRTC has no C library headers of its own, and CUDA's headers include some; those the source does not bring come from here.
    // CUDA's cuda.h declares host functions, which NVRTC refuses.
    let brought = |name: &str| job.source.includes().iter().any(|file| file.path.ends_with(name));
    let library = headers::C_LIBRARY.iter().chain(&["cuda.h"]).filter(|name| !brought(name));
    let in_memory = job.source.includes().iter().filter(|file| file.in_memory);
    let given: Vec<(&str, &str)> = library
        .filter_map(|name| Some((*name, headers::text(name)?)))
        .chain(in_memory.filter_map(|file| Some((file.path.to_str()?, file.text.as_str()))))
        .collect();
    // NVRTC looks for quoted includes in the folder its program's name says. A text has none, and must not find files that no
    // cache key covers.
    let name = job.source.folder().map_or(TEXT_NAME, |_| job.source.name());
    let text = beginning(job.source) + job.source.text();
    let mut flags = flags(job, tool);
    // Newer ones have a cache of their own, and what comes out of it has no account of registers and spills.
    if rtc::version(&table)? >= (12, 9) {
        flags.push("--no-cache".to_owned());
    }
    let outcome = rtc::compile(&table, name, &text, &given, &flags, output(job))?;
    // NVRTC read the included files itself.
    if let Some(path) = job.source.changed_on_disk() {
        return Err(CompileError::SourceChanged { path: path.to_owned() });
    }
    match outcome.binary {
        Some(binary) => Ok((binary, outcome.log)),
        None => Err(failure(job, outcome.log, outcome.bad_option, rtc::version(&table).ok())),
    }
}

fn output(job: &Job<'_>) -> Output {
    if job.target.extension() == "ptx" { Output::Ptx } else { Output::Code }
}

fn failure(job: &Job<'_>, log: String, bad_option: bool, version: Option<(i32, i32)>) -> CompileError {
    let compiler = version.map_or("NVRTC".to_owned(), |(major, minor)| format!("NVRTC {major}.{minor}"));
    let target = job.target.to_string();
    if bad_option && log.contains("gpu-architecture") {
        let help = "this NVRTC version does not support that GPU: sm_90 needs CUDA 11.8 or later, sm_100 and sm_120 need 12.8 or later, \
                    and CUDA 13.0 dropped architectures older than sm_75";
        return CompileError::UnknownArchitecture { compiler, target, help: help.to_owned() };
    }
    let help = (log.contains("cannot open source file") && log.contains("cuda_"))
        .then(|| "CUDA's headers were not found: `pip install nvidia-cuda-runtime-cu12`, or set WARPWAVE_CUDA_INCLUDE".to_owned());
    CompileError::Failed { compiler, target, source_name: job.source.name().to_owned(), log, help: help.map(Into::into) }
}

/// Adds the spilled bytes of each kernel, which only the ptxas log reports.
pub(super) fn read_spills(compiled: &mut Compiled) {
    let mut current = None;
    for line in compiled.log.lines() {
        if let Some(name) = line.split("Function properties for ").nth(1) {
            current = compiled.code_object.kernels.iter().position(|k| k.name == name.trim());
        } else if let (Some(index), Some(bytes)) = (current, spill_bytes(line)) {
            // Registers are of 4 bytes.
            compiled.code_object.kernels[index].vgpr_spills = bytes.div_ceil(4);
            current = None;
        }
    }
}

/// `…, 16 bytes spill stores, …` → 16.
fn spill_bytes(line: &str) -> Option<u32> {
    let before = line.split(" bytes spill stores").next().filter(|b| b.len() < line.len())?;
    before.rsplit([' ', ',']).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::spill_bytes;

    #[test]
    fn spills_are_read_from_the_log() {
        assert_eq!(spill_bytes("ptxas         .     0 bytes stack frame, 16 bytes spill stores, 20 bytes spill loads"), Some(16));
        assert_eq!(spill_bytes("ptxas info    : Used 13 registers"), None);
    }
}
