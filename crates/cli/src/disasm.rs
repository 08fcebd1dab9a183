//! `warpwave disasm`: disassembly of AMD GPU code objects.

use std::io::Write;
use std::path::PathBuf;

use serde_json::{Value, json};
use warpwave_gpu::code_object::{CodeObject, base_names};
use warpwave_jit::Bundle;
use warpwave_vgpu::Arch;
use warpwave_vgpu::descriptor::{DenormMode, KernelDescriptor};
use warpwave_vgpu::disasm::{DisasmError, DisasmLine, Disassembly, Function, code_objects};

use super::{Context, Failure, Outcome, failed, usage};

#[derive(clap::Args)]
#[command(after_help = "Example: warpwave disasm vector_add.gfx90a.hsaco --kernel vector_add\n\n\
    Prints LLVM assembler syntax. Supported: gfx906, gfx908, gfx90a, gfx942, gfx1010, gfx1030, gfx1100, gfx1201.")]
pub(super) struct Args {
    /// A .hsaco file, a clang offload bundle, or a .wwb bundle.
    file: PathBuf,
    /// Show only this kernel or function, by symbol or C++ name.
    #[arg(long, value_name = "NAME")]
    kernel: Option<String>,
    /// Show only the code for this architecture.
    #[arg(long, value_name = "ARCH")]
    arch: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// A disassembled code object and its target.
struct Code {
    target: String,
    disassembly: Disassembly,
}

pub(super) fn run(context: &mut Context<'_>, args: &Args) -> Outcome {
    let known = Arch::ALL.map(Arch::name).join(", ");
    let wanted = match &args.arch {
        None => None,
        Some(name) => Some(name.parse::<Arch>().map_err(|error| usage(error.to_string()))?),
    };
    let file = args.file.display();
    let bytes = std::fs::read(&args.file).map_err(|error| failed(format!("{file}: {error}")))?;
    let (codes, others) = read(&bytes).map_err(|error| failed(format!("{file}: {error}")))?;
    let mut found: Vec<String> = codes.iter().map(|code| code.target.clone()).chain(others.iter().cloned()).collect();
    found.dedup();
    let codes: Vec<Code> = codes.into_iter().filter(|code| wanted.is_none_or(|arch| code.disassembly.arch == arch)).collect();
    if codes.is_empty() {
        let expected = wanted.map_or_else(|| format!("one of {known}"), |arch| arch.to_string());
        let found = if found.is_empty() { "nothing".to_owned() } else { found.join(", ") };
        return Err(failed(format!("{file}: expected code for {expected}, got {found}")));
    }
    if wanted.is_none() && !others.is_empty() {
        writeln!(context.err, "warpwave: skipped unsupported targets: {}", others.join(", "))?;
    }
    let codes = match &args.kernel {
        Some(name) => only(codes, name).map_err(|names| failed(format!("{file}: unknown kernel or function `{name}`; found: {names}")))?,
        None => codes,
    };
    if args.json {
        let all: Vec<Value> = codes.iter().map(|code| code_json(&args.file.display().to_string(), code)).collect();
        return context.print_json(&json!(all));
    }
    for code in &codes {
        writeln!(context.out, "{file}: {}", code.target)?;
        for function in &code.disassembly.functions {
            print(context.out, &code.disassembly, function)?;
        }
    }
    Ok(())
}

/// Returns the supported code objects, and the targets of the unsupported ones.
fn read(bytes: &[u8]) -> Result<(Vec<Code>, Vec<String>), DisasmError> {
    let (mut codes, mut others) = (Vec::new(), Vec::new());
    if let Ok(bundle) = Bundle::from_bytes(bytes) {
        for part in &bundle.parts {
            let target = part.target.to_string();
            match target.parse::<Arch>() {
                Ok(_) => codes.push(Code { target, disassembly: Disassembly::read(&part.code)? }),
                Err(_) => others.push(target),
            }
        }
        return Ok((codes, others));
    }
    for part in code_objects(bytes)? {
        // The metadata includes target features; code without metadata still has an architecture.
        let target = CodeObject::parse(part.code).ok().map(|code| code.target()).or(part.target);
        match (target, Disassembly::read(part.code)) {
            (target, Ok(disassembly)) => {
                codes.push(Code { target: target.unwrap_or_else(|| disassembly.arch.name().to_owned()), disassembly })
            }
            (Some(target), Err(DisasmError::OtherArch { .. })) => others.push(target),
            (_, Err(error)) => return Err(error),
        }
    }
    Ok((codes, others))
}

/// Keeps the functions that match `name`; returns the available names if none match.
fn only(mut codes: Vec<Code>, name: &str) -> Result<Vec<Code>, String> {
    let all: Vec<String> = codes.iter().flat_map(|code| &code.disassembly.functions).map(|function| function.name.clone()).collect();
    let exact = all.iter().any(|known| known == name);
    let fits = |known: &str| known == name || !exact && base_names(known).is_some_and(|(full, last)| full == name || last == name);
    for code in &mut codes {
        code.disassembly.functions.retain(|function| fits(&function.name));
    }
    codes.retain(|code| !code.disassembly.functions.is_empty());
    if !codes.is_empty() {
        return Ok(codes);
    }
    let mut names = all;
    names.sort();
    names.dedup();
    Err(if names.is_empty() { "none".to_owned() } else { names.join(", ") })
}

fn print(out: &mut dyn Write, disassembly: &Disassembly, function: &Function) -> Result<(), Failure> {
    writeln!(out, "\n{:016x} <{}>:", function.address, function.name)?;
    if let Some(descriptor) = &function.descriptor {
        writeln!(out, "    // {}", summary(disassembly.arch, descriptor))?;
    }
    for line in function.instructions(disassembly.arch) {
        let words: Vec<String> = line.words.iter().map(|word| format!("{word:08X}")).collect();
        write!(out, "    {:<58} // {:012X}: {}", line.text, line.address, words.join(" "))?;
        match branch_target(disassembly, function, &line) {
            Some(target) => writeln!(out, " <{target}>")?,
            None => writeln!(out)?,
        }
    }
    Ok(())
}

/// Returns the symbolic branch target, e.g. `vector_add+0x7c`.
fn branch_target(disassembly: &Disassembly, function: &Function, line: &DisasmLine) -> Option<String> {
    let target = line.target?;
    let end = function.address + 4 * function.words.len() as u64;
    let own = (function.address..=end).contains(&target).then(|| (function, target - function.address));
    Some(match own.or_else(|| disassembly.symbolize(target)) {
        Some((function, 0)) => function.name.clone(),
        Some((function, distance)) => format!("{}+{distance:#x}", function.name),
        None => format!("{target:#x}"),
    })
}

/// Returns the registers, memory and denormal modes of a kernel descriptor in one line.
fn summary(arch: Arch, descriptor: &KernelDescriptor) -> String {
    let denormals = |mode: DenormMode| match mode {
        DenormMode::FlushSourceAndResult => "flushed to zero",
        DenormMode::FlushResult => "flushed to zero on output",
        DenormMode::FlushSource => "flushed to zero on input",
        DenormMode::Preserve => "kept",
    };
    let agprs = descriptor.agprs(arch);
    let agprs = if agprs > 0 { format!(", {agprs} AGPRs") } else { String::new() };
    format!(
        "kernel: {} VGPRs{agprs}, {} SGPRs ({} user); LDS {} B, scratch {} B, arguments {} B; denormals f32 {}, f16 and f64 {}",
        descriptor.vgprs(arch),
        descriptor.sgprs(arch),
        descriptor.user_sgprs(),
        descriptor.group_segment_fixed_size,
        descriptor.private_segment_fixed_size,
        descriptor.kernarg_size,
        denormals(descriptor.denorm_mode_32()),
        denormals(descriptor.denorm_mode_16_64()),
    )
}

fn descriptor_json(arch: Arch, descriptor: &KernelDescriptor) -> Value {
    json!({
        "vgprs": descriptor.vgprs(arch),
        "agprs": descriptor.agprs(arch),
        "sgprs": descriptor.sgprs(arch),
        "user_sgprs": descriptor.user_sgprs(),
        "shared_bytes": descriptor.group_segment_fixed_size,
        "private_bytes": descriptor.private_segment_fixed_size,
        "argument_bytes": descriptor.kernarg_size,
    })
}

fn code_json(name: &str, code: &Code) -> Value {
    let disassembly = &code.disassembly;
    let line = |function: &Function, line: DisasmLine| {
        json!({
            "address": line.address,
            "words": line.words,
            "text": line.text,
            "target": line.target,
            "target_symbol": branch_target(disassembly, function, &line),
        })
    };
    let functions: Vec<Value> = disassembly
        .functions
        .iter()
        .map(|function| {
            json!({
                "name": function.name,
                "address": function.address,
                "kernel": function.descriptor.as_ref().map(|descriptor| descriptor_json(disassembly.arch, descriptor)),
                "instructions": function.instructions(disassembly.arch).map(|each| line(function, each)).collect::<Vec<_>>(),
            })
        })
        .collect();
    json!({ "name": name, "target": code.target, "functions": functions })
}
