//! Where translations go: standard output, a file, a folder, or the place they came from.

use std::collections::HashMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use warpwave_hipify::COMPATIBILITY_HEADER;

use super::super::{Context, Outcome, failed, usage};
use super::inputs::Input;
use super::{Args, Converted};

/// Writes a translation; `folder`: the output is a folder that keeps the inputs' shape.
pub(super) fn write(context: &mut Context<'_>, args: &Args, folder: bool, converted: &Converted) -> Outcome {
    if args.examine {
        return Ok(());
    }
    if args.inplace {
        return in_place(converted, !args.no_backup);
    }
    let Some(output) = &args.output else {
        return if args.json { Ok(()) } else { Ok(context.out.write_all(&converted.conversion.output)?) };
    };
    let target = if folder { target(output, &converted.input.root, &converted.input.path) } else { output.clone() };
    if target.canonicalize().ok().is_some_and(|target| Some(target) == converted.input.path.canonicalize().ok()) {
        return Err(usage(format!("{} is the input; use --inplace to change it", target.display())));
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

/// The place of an input's output: `.cu` becomes `.hip`, other names stay.
fn target(output: &Path, root: &Path, input: &Path) -> PathBuf {
    let target = output.join(input.strip_prefix(root).unwrap_or(input));
    if target.extension().is_some_and(|end| end == "cu") { target.with_extension("hip") } else { target }
}

/// Two inputs must not go to one place.
pub(super) fn refuse_collisions(inputs: &[Input]) -> Outcome {
    let mut taken: HashMap<PathBuf, &Path> = HashMap::new();
    for input in inputs {
        let place = target(Path::new(""), &input.root, &input.path);
        if let Some(other) = taken.insert(place.clone(), &input.path) {
            let (other, this, place) = (other.display(), input.path.display(), place.display());
            return Err(usage(format!("{other} and {this} would both become {place}; name the folder above them instead")));
        }
    }
    Ok(())
}

fn in_place(converted: &Converted, backup: bool) -> Outcome {
    if converted.original == converted.conversion.output {
        return Ok(());
    }
    // The file behind a link is changed, not the link.
    let path = converted.input.path.canonicalize().unwrap_or_else(|_| converted.input.path.clone());
    let mut kept = path.clone().into_os_string();
    kept.push(".prehip");
    let kept = PathBuf::from(kept);
    // The first original is the one worth keeping.
    if backup && !kept.exists() {
        replace(&kept, &converted.original)?;
    }
    replace(&path, &converted.conversion.output)?;
    write_header(&path, converted)
}

/// Writes beside the file and renames: a failure leaves the old one.
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
