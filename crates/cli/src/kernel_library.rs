//! `warpwave compile --kernel-library`: archives of the kernel library, for machines without a compiler.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use warpwave_jit::archive::EXTENSION;
use warpwave_jit::{ArchiveBuilder, Target};
use warpwave_kernels::compile_archive;

use super::{Context, Outcome, failed, human_bytes};

/// An archive that was written.
struct Written {
    target: Target,
    path: PathBuf,
    programs: usize,
    bytes: usize,
    took: Duration,
}

/// Compiles the kernel library for each target and writes `kernels-TARGET.wwa` to a directory.
pub(super) fn run(context: &mut Context<'_>, targets: &[Target], folder: &Path, json: bool) -> Outcome {
    std::fs::create_dir_all(folder).map_err(|error| failed(format!("{}: {error}", folder.display())))?;
    let mut all = Vec::new();
    for target in targets {
        let written = write(context, *target, folder)?;
        if !json {
            let Written { path, programs, bytes, took, .. } = &written;
            let (size, seconds) = (human_bytes(*bytes), took.as_secs_f64());
            writeln!(context.out, "{target}: {programs} programs, {size}, {seconds:.1} s -> {}", path.display())?;
        }
        all.push(written);
    }
    if json {
        let row = |written: &Written| {
            json!({
                "target": written.target.to_string(),
                "file": written.path,
                "programs": written.programs,
                "bytes": written.bytes,
                "seconds": written.took.as_secs_f64(),
            })
        };
        return context.print_json(&json!({ "archives": all.iter().map(row).collect::<Vec<Value>>() }));
    }
    Ok(())
}

fn write(context: &Context<'_>, target: Target, folder: &Path) -> Result<Written, super::Failure> {
    let start = Instant::now();
    let bar = ProgressBar::new(0);
    let style = ProgressStyle::with_template("{msg:8} {bar:30} {pos}/{len} programs, {elapsed} ({eta} left)");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message(target.to_string());
    let mut archive = ArchiveBuilder::new();
    let compiled = compile_archive(&mut archive, &context.jit, target, &|progress| {
        bar.set_length(progress.total as u64);
        bar.set_position(progress.done as u64);
    });
    bar.finish_and_clear();
    compiled.map_err(|error| failed(error.to_string()))?;
    let programs = archive.len();
    let bytes = archive.finish();
    let path = folder.join(format!("kernels-{}.{EXTENSION}", super::compile::file_name(&target)));
    // A reader never sees half of it.
    let fresh = path.with_extension(format!("{EXTENSION}.{}", std::process::id()));
    std::fs::write(&fresh, &bytes)
        .and_then(|()| std::fs::rename(&fresh, &path))
        .map_err(|error| failed(format!("{}: {error}", path.display())))?;
    Ok(Written { target, path, programs, bytes: bytes.len(), took: start.elapsed() })
}
