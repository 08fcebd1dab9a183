//! `warpwave disasm`: disassembly of AMD GPU code objects.

use std::io::Write;
use std::path::PathBuf;

use serde_json::{Value, json};
use warpwave_gpu::code_object::{CodeObject, base_names};
use warpwave_jit::Bundle;
use warpwave_vgpu::Arch;
use warpwave_vgpu::listing::{Function, Line, Listing, ListingError, parts};
use warpwave_vgpu::program::Descriptor;

use super::{Context, Failure, Outcome, failed, usage};

#[derive(clap::Args)]
#[command(after_help = "Example: warpwave disasm vector_add.gfx90a.hsaco --kernel vector_add\n\n\
    Prints LLVM assembler syntax. Supported: gfx908, gfx90a, gfx942.")]
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
    listing: Listing,
}

pub(super) fn run(context: &mut Context<'_>, args: &Args) -> Outcome {
    let known = Arch::ALL.map(Arch::name).join(", ");
    let wanted = match &args.arch {
        None => None,
        Some(name) => Some(Arch::from_name(name).ok_or_else(|| usage(format!("unsupported architecture `{name}`; supported: {known}")))?),
    };
    let file = args.file.display();
    let bytes = std::fs::read(&args.file).map_err(|error| failed(format!("{file}: {error}")))?;
    let (codes, others) = read(&bytes).map_err(|error| failed(format!("{file}: {error}")))?;
    let mut found: Vec<String> = codes.iter().map(|code| code.target.clone()).chain(others.iter().cloned()).collect();
    found.dedup();
    let codes: Vec<Code> = codes.into_iter().filter(|code| wanted.is_none_or(|arch| code.listing.arch == arch)).collect();
    if codes.is_empty() {
        let expected = wanted.map_or_else(|| format!("one of {known}"), |arch| arch.to_string());
        let found = if found.is_empty() { "nothing".to_owned() } else { found.join(", ") };
        return Err(failed(format!("{file}: expected code for {expected}, found {found}")));
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
        for function in &code.listing.functions {
            print(context.out, &code.listing, function)?;
        }
    }
    Ok(())
}

/// Returns the supported code objects, and the targets of the unsupported ones.
fn read(bytes: &[u8]) -> Result<(Vec<Code>, Vec<String>), ListingError> {
    let (mut codes, mut others) = (Vec::new(), Vec::new());
    if let Ok(bundle) = Bundle::from_bytes(bytes) {
        for part in &bundle.parts {
            let target = part.target.to_string();
            match Arch::from_name(&target) {
                Some(_) => codes.push(Code { target, listing: Listing::read(&part.code)? }),
                None => others.push(target),
            }
        }
        return Ok((codes, others));
    }
    for part in parts(bytes)? {
        // The metadata includes target features; code without metadata still has an architecture.
        let target = CodeObject::parse(part.code).ok().map(|code| code.target()).or(part.target);
        match (target, Listing::read(part.code)) {
            (target, Ok(listing)) => codes.push(Code { target: target.unwrap_or_else(|| listing.arch.name().to_owned()), listing }),
            (Some(target), Err(ListingError::OtherArch { .. })) => others.push(target),
            (_, Err(error)) => return Err(error),
        }
    }
    Ok((codes, others))
}

/// Keeps the functions that match `name`; returns the available names if none match.
fn only(mut codes: Vec<Code>, name: &str) -> Result<Vec<Code>, String> {
    let all: Vec<String> = codes.iter().flat_map(|code| &code.listing.functions).map(|function| function.name.clone()).collect();
    let exact = all.iter().any(|known| known == name);
    let fits = |known: &str| known == name || !exact && base_names(known).is_some_and(|(full, last)| full == name || last == name);
    for code in &mut codes {
        code.listing.functions.retain(|function| fits(&function.name));
    }
    codes.retain(|code| !code.listing.functions.is_empty());
    if !codes.is_empty() {
        return Ok(codes);
    }
    let mut names = all;
    names.sort();
    names.dedup();
    Err(if names.is_empty() { "none".to_owned() } else { names.join(", ") })
}

fn print(out: &mut dyn Write, listing: &Listing, function: &Function) -> Result<(), Failure> {
    writeln!(out, "\n{:016x} <{}>:", function.address, function.name)?;
    if let Some(descriptor) = &function.descriptor {
        writeln!(out, "    // {}", Resources::of(listing.arch, descriptor).summary())?;
    }
    for line in function.lines(listing.arch) {
        let words: Vec<String> = line.words.iter().map(|word| format!("{word:08X}")).collect();
        write!(out, "    {:<58} // {:012X}: {}", line.text, line.address, words.join(" "))?;
        match branch_target(listing, function, &line) {
            Some(target) => writeln!(out, " <{target}>")?,
            None => writeln!(out)?,
        }
    }
    Ok(())
}

/// Returns the symbolic branch target, e.g. `vector_add+0x7c`.
fn branch_target(listing: &Listing, function: &Function, line: &Line) -> Option<String> {
    let target = line.target?;
    let end = function.address + 4 * function.words.len() as u64;
    let own = (function.address..=end).contains(&target).then(|| (function, target - function.address));
    Some(match own.or_else(|| listing.place(target)) {
        Some((function, 0)) => function.name.clone(),
        Some((function, distance)) => format!("{}+{distance:#x}", function.name),
        None => format!("{target:#x}"),
    })
}

/// Decoded resource usage of a kernel descriptor.
struct Resources {
    vgprs: u32,
    agprs: u32,
    sgprs: u32,
    user_sgprs: u32,
    lds: u32,
    scratch: u32,
    arguments: u32,
    denormals: [u32; 2],
}

impl Resources {
    fn of(arch: Arch, descriptor: &Descriptor) -> Resources {
        let bits = |word: u32, low: u32, count: u32| word >> low & ((1 << count) - 1);
        let unit = if arch.unified_registers() { 8 } else { 4 };
        let all = (bits(descriptor.rsrc1, 0, 6) + 1) * unit;
        // With a unified register file, the AGPRs start at an offset.
        let vectors = if arch.unified_registers() { all.min((bits(descriptor.rsrc3, 0, 6) + 1) * 4) } else { all };
        Resources {
            vgprs: vectors,
            agprs: all - vectors,
            sgprs: (bits(descriptor.rsrc1, 6, 4) / 2 + 1) * 16,
            user_sgprs: bits(descriptor.rsrc2, 1, 5),
            lds: descriptor.group_segment,
            scratch: descriptor.private_segment,
            arguments: descriptor.kernarg,
            denormals: [bits(descriptor.rsrc1, 16, 2), bits(descriptor.rsrc1, 18, 2)],
        }
    }

    fn summary(&self) -> String {
        let Resources { vgprs, agprs, sgprs, user_sgprs, lds, scratch, arguments, denormals: [single, wide] } = self;
        let word = |mode: &u32| ["flushed", "flushed on output", "flushed on input", "kept"][*mode as usize & 3];
        let accumulation = if *agprs > 0 { format!(", {agprs} AGPRs") } else { String::new() };
        format!(
            "kernel: {vgprs} VGPRs{accumulation}, {sgprs} SGPRs ({user_sgprs} user); LDS {lds} B, scratch {scratch} B, \
             arguments {arguments} B; denormals f32 {}, f16 and f64 {}",
            word(single),
            word(wide)
        )
    }

    fn json(&self) -> Value {
        json!({
            "vgprs": self.vgprs,
            "agprs": self.agprs,
            "sgprs": self.sgprs,
            "user_sgprs": self.user_sgprs,
            "shared_bytes": self.lds,
            "private_bytes": self.scratch,
            "argument_bytes": self.arguments,
        })
    }
}

fn code_json(name: &str, code: &Code) -> Value {
    let listing = &code.listing;
    let line = |function: &Function, line: Line| {
        json!({
            "address": line.address,
            "words": line.words,
            "text": line.text,
            "target": line.target,
            "target_symbol": branch_target(listing, function, &line),
        })
    };
    let functions: Vec<Value> = listing
        .functions
        .iter()
        .map(|function| {
            json!({
                "name": function.name,
                "address": function.address,
                "kernel": function.descriptor.as_ref().map(|descriptor| Resources::of(listing.arch, descriptor).json()),
                "instructions": function.lines(listing.arch).map(|each| line(function, each)).collect::<Vec<_>>(),
            })
        })
        .collect();
    json!({ "name": name, "target": code.target, "functions": functions })
}
