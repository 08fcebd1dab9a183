//! `cargo xtask lint`: formatting, clippy, and house rules that other tools do not check.

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

use crate::run::{self, Doing, Result, Steps, Workspace, cargo, failed, say};
use crate::words;

/// Options of `cargo xtask lint`.
#[derive(Args)]
pub struct Options {
    /// Only list banned phrases, in all files, with counts
    #[arg(long)]
    words: bool,
}

/// Maximum length of a source file.
const MAX_LINES: usize = 800;

/// Extensions of files with that limit.
const MEASURED: [&str; 4] = ["rs", "cu", "cuh", "h"];

/// Macros that mark unfinished work. Split, or this file would break its own rule.
const UNFINISHED: [&str; 2] = [concat!("todo", "!("), concat!("unimplemented", "!(")];

/// Runs the command.
pub fn main(options: &Options) -> Result<()> {
    let workspace = Workspace::find()?;
    if options.words {
        return list_words(&workspace.root);
    }
    for (tool, component) in [("fmt", "rustfmt"), ("clippy", "clippy")] {
        if run::quiet(cargo().args([tool, "--version"])).is_none() {
            return failed(format!("cargo {tool} is missing; run: rustup component add {component}"));
        }
    }
    let mut steps = Steps::default();
    let result = all_steps(&workspace, &mut steps);
    steps.print();
    result
}

fn all_steps(workspace: &Workspace, steps: &mut Steps) -> Result<()> {
    let in_root = |arguments: &[&str]| {
        let mut command = cargo();
        command.current_dir(&workspace.root).args(arguments);
        command
    };
    say("checking the formatting");
    let format = steps.step("format", || run::checked(&mut in_root(&["fmt", "--all", "--check"])));
    say("checking the house rules");
    let rules = steps.step("house rules", || check_files(&workspace.root, &files(&workspace.root)?));
    say("running clippy");
    let clippy = steps.step("clippy", || run::checked(&mut in_root(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])));
    let fix_format = format.or_else(|_| failed("the formatting differs; run: cargo fmt --all"));
    fix_format.and(rules).and(clippy)
}

/// Prints every hit of the vocabulary rule, then the number of hits per file.
fn list_words(root: &Path) -> Result<()> {
    let read = |file: PathBuf| Some((file.clone(), String::from_utf8_lossy(&std::fs::read(root.join(&file)).ok()?).into_owned()));
    let counts = words::count(files(root)?.into_iter().filter_map(read));
    counts.values().flatten().for_each(|hit| println!("{hit}"));
    println!();
    counts.iter().for_each(|(file, hits)| println!("{:>5}  {file}", hits.len()));
    println!("{:>5}  total", counts.values().map(Vec::len).sum::<usize>());
    Ok(())
}

/// Checks the house rules in these files.
pub fn check_files(root: &Path, files: &[PathBuf]) -> Result<()> {
    let mut problems = Vec::new();
    for file in files {
        // Tracked, but deleted in the working tree.
        let Ok(bytes) = std::fs::read(root.join(file)) else { continue };
        let text = String::from_utf8_lossy(&bytes);
        problems.extend(problems_of(file, &text));
        problems.extend(words::problems_of(file, &text));
    }
    problems.iter().for_each(|problem| println!("{problem}"));
    if problems.is_empty() { Ok(()) } else { failed(format!("{} violations of the house rules, listed above", problems.len())) }
}

/// Returns the problems of one file.
fn problems_of(file: &Path, text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let lines = text.lines().count();
    if lines > MAX_LINES && file.extension().is_some_and(|e| MEASURED.iter().any(|m| e == *m)) {
        problems.push(format!("{}: {lines} lines; split it into files of at most {MAX_LINES}, one subject each", file.display()));
    }
    for (number, line) in text.lines().enumerate() {
        for mark in UNFINISHED.iter().filter(|mark| line.contains(**mark)) {
            problems.push(format!("{}:{}: {mark}…) must not be committed", file.display(), number + 1));
        }
    }
    problems
}

/// Returns the files tracked by git; without git or a repository, all files outside `target` and hidden folders.
pub fn files(root: &Path) -> Result<Vec<PathBuf>> {
    // CI often runs as another user than the owner of the checkout, which git rejects by default.
    let listed = run::quiet(Command::new("git").current_dir(root).args(["-c", "safe.directory=*", "ls-files", "-z"]));
    if let Some(text) = listed {
        return Ok(text.split_terminator('\0').map(PathBuf::from).collect());
    }
    let (mut files, mut folders) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(root.join(&folder)).doing(|| format!("read {}", root.join(&folder).display()))?.flatten() {
            let name = entry.file_name();
            let path = folder.join(&name);
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && name != "target" && !name.to_string_lossy().starts_with('.') => folders.push(path),
                Ok(kind) if kind.is_file() => files.push(path),
                _ => {}
            }
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_sources_are_reported_and_long_data_is_not() {
        let text = "x\n".repeat(MAX_LINES + 1);
        assert_eq!(problems_of(Path::new("a/long.cu"), &text).len(), 1);
        assert_eq!(problems_of(Path::new("a/long.tsv"), &text), Vec::<String>::new());
        assert_eq!(problems_of(Path::new("a/just.rs"), &text[2..]), Vec::<String>::new());
    }

    #[test]
    fn unfinished_work_is_reported_with_its_line() {
        let text = format!("fn a() {{\n    {})\n}}\n", UNFINISHED[0]);
        let problems = problems_of(Path::new("a.rs"), &text);
        assert!(matches!(problems.as_slice(), [one] if one.starts_with("a.rs:2: ")), "{problems:?}");
    }

    #[test]
    fn this_file_passes_its_own_rules() {
        assert_eq!(problems_of(Path::new("lint.rs"), include_str!("lint.rs")), Vec::<String>::new());
    }
}
