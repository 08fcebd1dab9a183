//! Writes conversions: to standard output, a file, a folder, or in place.

use std::collections::{HashMap, HashSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use warpwave_hipify::COMPATIBILITY_HEADER;

use super::super::{Context, Failure, Outcome, failed, usage};
use super::inputs::{Input, Inputs};
use super::{Args, Converted};

/// Writes a conversion. `folder`: the output is a folder with the structure of the inputs.
pub(super) fn write(context: &mut Context<'_>, args: &Args, folder: bool, converted: &Converted) -> Outcome {
    if args.examine {
        return Ok(());
    }
    if args.inplace {
        return in_place(converted, !args.no_backup);
    }
    let Some(output) = &args.output else {
        if args.json {
            return Ok(());
        }
        if converted.conversion.compatibility_header.is_some() {
            writeln!(context.err, "warpwave: note: the output includes {COMPATIBILITY_HEADER}; use -o to write it next to the output")?;
        }
        return Ok(context.out.write_all(&converted.conversion.output)?);
    };
    let target = if folder { target(output, &converted.input.root, &converted.input.path) } else { output.clone() };
    if target.canonicalize().ok().is_some_and(|target| Some(target) == converted.input.path.canonicalize().ok()) {
        return Err(usage(format!("output {} is the same file as the input; use --inplace to convert in place", target.display())));
    }
    if let Some(folder) = target.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(|error| failed(format!("{}: {error}", folder.display())))?;
    }
    replace(&target, &converted.conversion.output)?;
    write_header(&target, converted)
}

/// Writes the compatibility header beside an output that includes it.
fn write_header(target: &Path, converted: &Converted) -> Outcome {
    let header = converted.conversion.compatibility_header.as_ref();
    header.map_or(Ok(()), |text| replace(&target.with_file_name(COMPATIBILITY_HEADER), text.as_bytes()))
}

/// The output path of an input: `.cu` becomes `.hip`, other names stay.
fn target(output: &Path, root: &Path, input: &Path) -> PathBuf {
    let target = output.join(input.strip_prefix(root).unwrap_or(input));
    if target.extension().is_some_and(|end| end == "cu") { target.with_extension("hip") } else { target }
}

/// Fails if two inputs have the same output path.
pub(super) fn check_collisions(inputs: &[Input]) -> Outcome {
    let mut taken: HashMap<PathBuf, &Path> = HashMap::new();
    for input in inputs {
        let path = target(Path::new(""), &input.root, &input.path);
        if let Some(other) = taken.insert(path.clone(), &input.path) {
            let (other, this, path) = (other.display(), input.path.display(), path.display());
            return Err(usage(format!("{other} and {this} both map to {path}; pass their parent directory instead")));
        }
    }
    Ok(())
}

/// Copies the files below the input folders that were not converted. Returns their number.
pub(super) fn copy_others(inputs: &Inputs, output: &Path) -> Result<usize, Failure> {
    let written: HashSet<PathBuf> = inputs.all.iter().map(|input| target(output, &input.root, &input.path)).collect();
    let mut copied = 0;
    for (root, path) in inputs.others(output)? {
        let to = output.join(path.strip_prefix(&root).unwrap_or(&path));
        if written.contains(&to) {
            continue;
        }
        let fail = |error: std::io::Error| failed(format!("{} to {}: {error}", path.display(), to.display()));
        if let Some(folder) = to.parent() {
            std::fs::create_dir_all(folder).map_err(fail)?;
        }
        std::fs::copy(&path, &to).map_err(fail)?;
        copied += 1;
    }
    Ok(copied)
}

fn in_place(converted: &Converted, backup: bool) -> Outcome {
    if converted.original == converted.conversion.output {
        return Ok(());
    }
    // Change the file behind a link, not the link.
    let path = converted.input.path.canonicalize().unwrap_or_else(|_| converted.input.path.clone());
    let mut kept = path.clone().into_os_string();
    kept.push(".prehip");
    let kept = PathBuf::from(kept);
    // Keep the first original.
    if backup && !kept.exists() {
        replace(&kept, &converted.original)?;
    }
    replace(&path, &converted.conversion.output)?;
    write_header(&path, converted)
}

/// Writes a temporary file and renames it: a failure leaves the old file.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> Outcome {
    let fail = |error: std::io::Error| failed(format!("{}: {error}", path.display()));
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let beside = PathBuf::from(name);
    let written = std::fs::File::create(&beside).and_then(|mut file| file.write_all(bytes)).and_then(|()| {
        if let Ok(facts) = path.metadata() {
            std::fs::set_permissions(&beside, facts.permissions())?;
        }
        std::fs::rename(&beside, path)
    });
    written.map_err(|error| {
        let _ = std::fs::remove_file(&beside);
        fail(error)
    })
}
