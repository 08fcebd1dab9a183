//! Runs other programs: error messages, printable command lines, and the time of each step.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// An error message: what failed and what to do next.
#[derive(Debug)]
pub struct Failure(pub String);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A result with a [`Failure`].
pub type Result<T> = std::result::Result<T, Failure>;

/// Returns a failure with this message.
pub fn failed<T>(message: impl Into<String>) -> Result<T> {
    Err(Failure(message.into()))
}

/// Adds context to an error.
pub trait Doing<T> {
    /// The message is `cannot DOING: REASON`.
    fn doing(self, doing: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: fmt::Display> Doing<T> for std::result::Result<T, E> {
    fn doing(self, doing: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| Failure(format!("cannot {}: {error}", doing())))
    }
}

/// The cargo workspace.
#[derive(Debug)]
pub struct Workspace {
    /// Folder of the top `Cargo.toml`.
    pub root: PathBuf,
    /// Cargo's target folder, wherever the user has put it.
    pub target: PathBuf,
    /// Version of the `warpwave` package.
    pub version: String,
    /// Cargo's id and the name of each member.
    pub members: Vec<(String, String)>,
    /// Name and folder of each member.
    pub folders: Vec<(String, PathBuf)>,
}

impl Workspace {
    /// Reads it from `cargo metadata`.
    pub fn find() -> Result<Workspace> {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml");
        let mut metadata = cargo();
        metadata.args(["metadata", "--no-deps", "--format-version", "1", "--manifest-path"]).arg(&manifest);
        let text = output(&mut metadata)?;
        let json: Value = serde_json::from_str(&text).doing(|| "parse the output of cargo metadata".into())?;
        let text_of = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let folder_of = |manifest: &str| Path::new(manifest).parent().map(Path::to_path_buf).unwrap_or_default();
        let packages = json["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
        let version = packages.iter().find(|p| p["name"] == "warpwave").map(|p| text_of(&p["version"]));
        let Some(version) = version else { return failed("the workspace has no package `warpwave`; run this in a full checkout") };
        Ok(Workspace {
            root: text_of(&json["workspace_root"]).into(),
            target: text_of(&json["target_directory"]).into(),
            version,
            members: packages.iter().map(|p| (text_of(&p["id"]), text_of(&p["name"]))).collect(),
            folders: packages.iter().map(|p| (text_of(&p["name"]), folder_of(&text_of(&p["manifest_path"])))).collect(),
        })
    }

    /// The virtual GPU as `libamdhip64.so`, as built with the tests.
    pub fn stand_in_library(&self) -> PathBuf {
        self.target.join("debug/deps/libamdhip64.so")
    }

    /// Creates or empties a folder in the target folder.
    pub fn empty_folder(&self, name: &str) -> Result<PathBuf> {
        let folder = self.target.join(name);
        if folder.exists() {
            std::fs::remove_dir_all(&folder).doing(|| format!("empty {}", folder.display()))?;
        }
        create_folder(&folder)?;
        Ok(folder)
    }

    /// The release build of `libwarpwave_mpi.so`.
    pub fn mpi_library(&self) -> PathBuf {
        self.target.join("release/libwarpwave_mpi.so")
    }

    /// The release build of the HSA library.
    pub fn hsa_library(&self) -> PathBuf {
        self.target.join("release/libhsa_runtime64.so")
    }

    /// The release build of the `warpwave` command.
    pub fn command(&self) -> PathBuf {
        self.target.join("release/warpwave")
    }

    /// Builds the release `warpwave` command.
    pub fn build_command(&self) -> Result<()> {
        say("building the release `warpwave` (a few minutes from scratch)");
        let packages = ["warpwave-cli", "warpwave-mpi", "warpwave-libhsa"];
        checked(cargo().current_dir(&self.root).args(["build", "--release"]).args(packages.iter().flat_map(|name| ["--package", name])))
    }
}

/// Returns the cargo that runs this command, so that `cargo +toolchain xtask` keeps its toolchain.
pub fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Prints what is about to be done.
pub fn say(step: impl fmt::Display) {
    println!("==> {step}");
}

/// Creates a folder and its parents.
pub fn create_folder(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).doing(|| format!("create the folder {}", folder.display()))
}

/// Copies a file.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::copy(from, to).doing(|| format!("copy {} to {}", from.display(), to.display())).map(drop)
}

/// Runs a command on the user's terminal; fails unless it succeeds.
pub fn checked(command: &mut Command) -> Result<()> {
    let line = shown(command, Path::new(""));
    let status = command.status().doing(|| format!("run `{line}`"))?;
    if status.success() { Ok(()) } else { failed(format!("`{line}` failed ({status}); see its output above")) }
}

/// Returns the standard output of a command; on failure the error has the last line of its stderr.
pub fn output(command: &mut Command) -> Result<String> {
    let line = shown(command, Path::new(""));
    let out = command.stdin(Stdio::null()).output().doing(|| format!("run `{line}`"))?;
    if !out.status.success() {
        let stderr = String::from_utf8_lossy(&out.stderr);
        let last = stderr.lines().rev().find(|l| !l.trim().is_empty()).unwrap_or("no message");
        return failed(format!("`{line}` failed ({}): {last}", out.status));
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// Returns the standard output of a command, or `None` if it is missing or fails.
pub fn quiet(command: &mut Command) -> Option<String> {
    let out = command.stdin(Stdio::null()).output().ok()?;
    out.status.success().then(|| String::from_utf8_lossy(&out.stdout).into_owned())
}

/// Formats a command line for a shell; paths inside `root` are relative to it.
pub fn shown(command: &Command, root: &Path) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let shorten = |word: &std::ffi::OsStr| {
        let path = Path::new(word);
        // An empty root leaves all paths unchanged.
        path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned()
    };
    words.map(|word| quoted(&shorten(word))).collect::<Vec<_>>().join(" ")
}

/// Quotes the word if a shell needs it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

/// The steps so far and their times.
#[derive(Default)]
pub struct Steps(Vec<(String, Duration, bool)>);

impl Steps {
    /// Runs a step and records its time, also on failure.
    pub fn step<T>(&mut self, name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let start = Instant::now();
        let result = work();
        self.0.push((name.to_owned(), start.elapsed(), result.is_ok()));
        result
    }

    /// Prints the table.
    pub fn print(&self) {
        println!();
        for (name, time, ok) in &self.0 {
            println!("{:<28} {:>9}  {}", name, seconds(*time), if *ok { "ok" } else { "FAILED" });
        }
        let total: Duration = self.0.iter().map(|(_, time, _)| *time).sum();
        println!("{:<28} {:>9}", "total", seconds(total));
    }
}

/// Formats a time: `12 ms`, `1.3 s`, `4 min 05 s`.
pub fn seconds(time: Duration) -> String {
    match time.as_secs() {
        0 => format!("{} ms", time.as_millis()),
        whole @ 100.. => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{:.1} s", time.as_secs_f64()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_line_can_be_pasted_into_a_shell() {
        let mut command = Command::new("/repo/target/release/warpwave");
        command.args(["run", "/repo/a.cu", "--arg", "f32[4]=iota", "it's"]);
        assert_eq!(shown(&command, Path::new("/repo")), r"target/release/warpwave run a.cu --arg 'f32[4]=iota' 'it'\''s'");
        assert!(shown(&command, Path::new("")).starts_with("/repo/target"));
    }

    #[test]
    fn times_are_readable() {
        assert_eq!(seconds(Duration::from_millis(12)), "12 ms");
        assert_eq!(seconds(Duration::from_millis(1340)), "1.3 s");
        assert_eq!(seconds(Duration::from_secs(245)), "4 min 05 s");
    }

    #[test]
    fn a_failed_step_keeps_its_time_and_its_failure() {
        let mut steps = Steps::default();
        let result: Result<()> = steps.step("x", || failed("no"));
        assert_eq!(result.unwrap_err().0, "no");
        assert!(matches!(steps.0.as_slice(), [(name, _, false)] if name == "x"));
    }

    #[test]
    fn a_failing_program_is_reported_with_its_last_line() {
        let error = output(Command::new("sh").args(["-c", "echo first >&2; echo last >&2; exit 3"])).unwrap_err();
        assert!(error.0.ends_with("last") && error.0.contains("exit status: 3"), "{error}");
        assert!(output(&mut Command::new("/no/such/program")).unwrap_err().0.starts_with("cannot run"));
    }
}
