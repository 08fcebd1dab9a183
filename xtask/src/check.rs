//! `cargo xtask check`: the quick checks after an edit, on the crates that changed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

use crate::lint;
use crate::run::{self, Result, Steps, Workspace, cargo, failed, say};

/// Options of `cargo xtask check`.
#[derive(Args)]
pub struct Options {
    /// Compare with this commit [default: the merge base with origin/main or main]
    #[arg(long, value_name = "COMMIT")]
    base: Option<String>,
    /// Check these packages instead of the changed ones; repeatable
    #[arg(short, long, value_name = "NAME")]
    package: Vec<String>,
    /// Also run the integration tests of these packages
    #[arg(long)]
    tests: bool,
    /// Names of tests to run, and other arguments for the test programs
    #[arg(last = true, value_name = "FILTER")]
    filter: Vec<std::ffi::OsString>,
}

/// Runs the command.
pub fn main(options: &Options) -> Result<()> {
    let workspace = Workspace::find()?;
    let mut steps = Steps::default();
    let result = all_steps(&workspace, options, &mut steps);
    steps.print();
    result
}

fn all_steps(workspace: &Workspace, options: &Options, steps: &mut Steps) -> Result<()> {
    let changed = if options.package.is_empty() { changed_files(&workspace.root, options.base.as_deref())? } else { Vec::new() };
    let packages = if options.package.is_empty() { packages_of(workspace, &changed) } else { options.package.iter().cloned().collect() };
    if packages.is_empty() && changed.is_empty() {
        println!("no files changed; use --base COMMIT or --package NAME to check more");
        return Ok(());
    }
    say(format!("checking {}", if packages.is_empty() { "files outside of crates".to_owned() } else { join(&packages) }));
    let in_root = |command: &str| {
        let mut cargo = cargo();
        cargo.current_dir(&workspace.root).arg(command);
        cargo
    };
    let format = steps.step("format", || run::checked(in_root("fmt").args(["--all", "--check"])));
    format.or_else(|_| failed("the formatting differs; run: cargo fmt --all"))?;
    let files = if options.package.is_empty() { changed } else { lint::files(&workspace.root)? };
    steps.step("house rules", || lint::check_files(&workspace.root, &files))?;
    if packages.is_empty() {
        return Ok(());
    }
    let selected = || packages.iter().flat_map(|name| ["--package", name]);
    steps.step("clippy", || run::checked(in_root("clippy").args(selected()).args(["--all-targets", "--", "-D", "warnings"])))?;
    let kinds: &[&str] = if options.tests { &["--lib", "--bins", "--tests"] } else { &["--lib", "--bins"] };
    steps.step("tests", || run::checked(in_root("test").args(selected()).args(kinds).arg("--").args(&options.filter)))
}

fn join(names: &BTreeSet<String>) -> String {
    names.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// Returns the files that differ from `base` in commits, in the working tree, or are untracked.
fn changed_files(root: &Path, base: Option<&str>) -> Result<Vec<PathBuf>> {
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.current_dir(root).args(["-c", "safe.directory=*"]).args(arguments);
        command
    };
    let base = match base {
        Some(base) => base.to_owned(),
        None => {
            let merge_base = |branch: &str| run::quiet(&mut git(&["merge-base", "HEAD", branch]));
            let found = merge_base("origin/main").or_else(|| merge_base("main"));
            found.map_or_else(|| "HEAD".to_owned(), |commit| commit.trim().to_owned())
        }
    };
    let tracked = run::output(&mut git(&["diff", "--name-only", "-z", &base]))?;
    let untracked = run::output(&mut git(&["ls-files", "-z", "--others", "--exclude-standard"]))?;
    let names: BTreeSet<&str> = tracked.split_terminator('\0').chain(untracked.split_terminator('\0')).collect();
    Ok(names.into_iter().map(PathBuf::from).collect())
}

/// Returns the packages that own the files; all of them if a file outside of crates affects the build.
fn packages_of(workspace: &Workspace, files: &[PathBuf]) -> BTreeSet<String> {
    let affects_all = |file: &PathBuf| ["Cargo.toml", "clippy.toml", "rust-toolchain.toml"].iter().any(|name| file == Path::new(name));
    if files.iter().any(affects_all) {
        return workspace.folders.iter().map(|(name, _)| name.clone()).collect();
    }
    let owner = |file: &PathBuf| {
        let path = workspace.root.join(file);
        let owners = workspace.folders.iter().filter(|(_, folder)| path.starts_with(folder));
        owners.max_by_key(|(_, folder)| folder.as_os_str().len()).map(|(name, _)| name.clone())
    };
    files.iter().filter_map(owner).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace() -> Workspace {
        let folder = |name: &str| (format!("warpwave-{name}"), PathBuf::from("/w/crates").join(name));
        Workspace {
            root: "/w".into(),
            target: "/w/target".into(),
            version: "0.1.0".into(),
            members: Vec::new(),
            folders: vec![folder("gpu"), folder("jit"), ("inner".into(), "/w/crates/jit/inner".into())],
        }
    }

    fn packages(files: &[&str]) -> Vec<String> {
        packages_of(&workspace(), &files.iter().map(PathBuf::from).collect::<Vec<_>>()).into_iter().collect()
    }

    #[test]
    fn a_file_belongs_to_the_innermost_package() {
        assert_eq!(packages(&["crates/gpu/src/lib.rs", "README.md", "crates/gpu/Cargo.toml"]), ["warpwave-gpu"]);
        assert_eq!(packages(&["crates/jit/inner/src/lib.rs"]), ["inner"]);
        assert!(packages(&["README.md", "crates/other/x.rs"]).is_empty());
    }

    #[test]
    fn the_workspace_manifest_affects_every_package() {
        assert_eq!(packages(&["Cargo.toml"]).len(), 3);
    }

    #[test]
    fn committed_edited_and_new_files_have_changed() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let git = |arguments: &[&str]| {
            let mut command = Command::new("git");
            command.current_dir(folder.path()).args(["-c", "user.name=x", "-c", "user.email=x@x"]).args(arguments);
            run::output(&mut command).expect("git runs")
        };
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("written");
        git(&["init", "-q", "-b", "main"]);
        for name in ["same", "committed", "edited"] {
            write(name, "1");
        }
        git(&["add", "."]);
        git(&["commit", "-q", "-m", "one"]);
        git(&["checkout", "-q", "-b", "work"]);
        write("committed", "2");
        git(&["commit", "-q", "-a", "-m", "two"]);
        write("edited", "2");
        write("new", "1");
        let changed = changed_files(folder.path(), None).expect("git works");
        assert_eq!(changed, ["committed", "edited", "new"].map(PathBuf::from));
    }
}
