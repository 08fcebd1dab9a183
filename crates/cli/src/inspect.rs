//! `warpwave inspect`, and the output format of compiled code shared with `compile`.

use std::io::Write;
use std::path::PathBuf;

use serde_json::{Value, json};
use warpwave_gpu::code_object::{ArgKind, CodeKind, CodeObject, KernelInfo};
use warpwave_jit::archive::EXTENSION;
use warpwave_jit::{Archive, Bundle, Target};

use super::{Context, Failure, Outcome, failed};

#[derive(clap::Args)]
#[command(after_help = "Example: warpwave inspect vector_add.gfx90a.hsaco\n\nWithout FILE, shows the embedded vector_add kernel.")]
pub(super) struct Args {
    /// Compiled code: .hsaco, .cubin, .ptx, .wwb (bundle) or .wwa (archive).
    file: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Returns `examples/kernels/vector_add.cu`, precompiled for all supported GPUs; works without a compiler.
pub(super) fn embedded() -> Result<Bundle, Failure> {
    Ok(warpwave_jit::embed!("../../../examples/kernels/vector_add.wwb")?)
}

pub(super) fn run(context: &mut Context<'_>, args: &Args) -> Outcome {
    if let Some(path) = args.file.as_ref().filter(|path| path.extension().is_some_and(|extension| extension == EXTENSION)) {
        return archive(context, &Archive::open(path).map_err(|error| failed(error.to_string()))?, args.json);
    }
    let codes: Vec<(String, CodeObject)> = match &args.file {
        None => bundle_codes(&embedded()?)?,
        Some(path) => {
            let bytes = std::fs::read(path).map_err(|error| failed(format!("{}: {error}", path.display())))?;
            let name = path.display().to_string();
            match Bundle::from_bytes(&bytes) {
                Ok(bundle) => bundle_codes(&bundle)?,
                Err(_) => vec![(name.clone(), CodeObject::parse(&bytes).map_err(|error| failed(format!("{name}: {error}")))?)],
            }
        }
    };
    if args.json {
        let all: Vec<Value> =
            codes.iter().map(|(name, code)| json!({ "name": name, "target": code.target(), "kernels": kernels_json(code) })).collect();
        return context.print_json(&json!(all));
    }
    for (name, code) in &codes {
        writeln!(context.out, "{name}: {}", code.target())?;
        print_kernels(context.out, code)?;
    }
    Ok(())
}

/// Prints the targets of an archive and how many programs it has for each.
fn archive(context: &mut Context<'_>, archive: &Archive, json: bool) -> Outcome {
    let counts = archive_counts(archive);
    if json {
        let targets: Vec<Value> =
            counts.iter().map(|(target, programs)| json!({ "target": target.to_string(), "programs": programs })).collect();
        return context.print_json(&json!({ "archive": archive.name(), "targets": targets }));
    }
    writeln!(context.out, "{}: kernel archive", archive.name())?;
    for (target, programs) in counts {
        writeln!(context.out, "    {target}: {programs} programs")?;
    }
    Ok(())
}

/// Returns the number of programs per target of an archive.
pub(super) fn archive_counts(archive: &Archive) -> Vec<(Target, usize)> {
    let of = |target: &Target| archive.contents().filter(|(_, part)| part == target).count();
    archive.targets().iter().map(|target| (*target, of(target))).collect()
}

fn bundle_codes(bundle: &Bundle) -> Result<Vec<(String, CodeObject)>, Failure> {
    bundle.parts.iter().map(|part| Ok((bundle.source.clone(), CodeObject::parse(&part.code)?))).collect()
}

/// Prints one line per kernel with its resource usage.
pub(super) fn print_kernels(out: &mut dyn Write, code: &CodeObject) -> std::io::Result<()> {
    for kernel in &code.kernels {
        let mut facts = Vec::new();
        match code.kind {
            CodeKind::Hsaco => {
                facts.push(format!("{} VGPR, {} SGPR", kernel.vgprs, kernel.sgprs));
                if kernel.agprs > 0 {
                    facts.push(format!("{} AGPR", kernel.agprs));
                }
                facts.push(format!("LDS {} B", kernel.static_shared));
                facts.push(format!("spills {} + {}", kernel.vgpr_spills, kernel.sgpr_spills));
                facts.push(format!("wave{}", kernel.wave_size));
            }
            CodeKind::Cubin => {
                facts.push(format!("{} registers", kernel.vgprs));
                facts.push(format!("shared {} B", kernel.static_shared));
                facts.push(format!("spills {}", kernel.vgpr_spills));
            }
            CodeKind::Ptx => facts.push("compiled by the driver at load time".to_owned()),
        }
        writeln!(out, "    {}({})  {}", kernel.name, arguments(code.kind, kernel), facts.join(", "))?;
    }
    Ok(())
}

fn arguments(kind: CodeKind, kernel: &KernelInfo) -> String {
    if kind == CodeKind::Ptx {
        return "…".to_owned();
    }
    let one = |arg: &warpwave_gpu::code_object::ArgInfo| match arg.kind {
        ArgKind::GlobalBuffer => "pointer".to_owned(),
        _ => format!("{} B", arg.size),
    };
    kernel.explicit_args().map(one).collect::<Vec<_>>().join(", ")
}

pub(super) fn kernels_json(code: &CodeObject) -> Vec<Value> {
    let amd = code.kind == CodeKind::Hsaco;
    let machine_code = code.kind != CodeKind::Ptx;
    let one = |kernel: &KernelInfo| {
        let args: Vec<Value> = kernel
            .explicit_args()
            .map(|arg| json!({ "offset": arg.offset, "size": arg.size, "pointer": amd.then_some(arg.kind == ArgKind::GlobalBuffer) }))
            .collect();
        json!({
            "name": kernel.name,
            "args": args,
            "registers": machine_code.then_some(kernel.vgprs),
            "sgprs": amd.then_some(kernel.sgprs),
            "agprs": amd.then_some(kernel.agprs),
            "shared_bytes": machine_code.then_some(kernel.static_shared),
            "private_bytes": machine_code.then_some(kernel.private_size),
            "register_spills": machine_code.then_some(kernel.vgpr_spills),
            "sgpr_spills": amd.then_some(kernel.sgpr_spills),
            "wave_size": kernel.wave_size,
        })
    };
    code.kernels.iter().map(one).collect()
}
