//! Checks the README against the code: everything documented exists, and everything user-visible is documented.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use warpwave_test_support::{require, workspace_root};

const README: &str = include_str!("../../../README.md");

/// Variables for the project's own tests, documented in CONTRIBUTING.md instead of the README.
const FOR_DEVELOPERS: &[&str] = &[
    "WARPWAVE_CUBLAS_INCLUDE",
    "WARPWAVE_FACTS",
    "WARPWAVE_REQUIRE_ALL",
    "WARPWAVE_ROCBLAS_INCLUDE",
    "WARPWAVE_ROOT",
    "WARPWAVE_TEST_FULL",
    "WARPWAVE_TEST_MODEL",
];

/// Macros defined for kernels, not environment variables.
const MACROS: &[&str] = &["WARPWAVE_CUDA_ARCH", "WARPWAVE_AMD", "WARPWAVE_ISA_VERSION", "WARPWAVE_PRELUDE_H", "WARPWAVE_WAVE_SIZE"];

/// Returns the checkout, or `None` if the tests run without one.
fn checkout() -> Option<PathBuf> {
    let root = workspace_root();
    require(root.join("crates/cli/src").is_dir(), "the sources").then_some(root)
}

/// Returns every `WARPWAVE_…` word of a text.
fn variables(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    // Skips `-DWARPWAVE_X` (a compiler macro) and the bare prefix.
    words
        .filter(|word| word.len() > "WARPWAVE_".len() && word.starts_with("WARPWAVE_"))
        .map(|word| word.trim_end_matches('_').to_owned())
        .collect()
}

fn read_all(folder: &Path, all: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            read_all(&path, all);
        } else if path.extension().is_some_and(|e| e == "rs" || e == "sh") {
            all.push_str(&std::fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn every_environment_variable_is_documented_and_every_documented_one_exists() {
    let Some(root) = checkout() else { return };
    let mut code = String::new();
    for entry in std::fs::read_dir(root.join("crates")).unwrap() {
        read_all(&entry.unwrap().path().join("src"), &mut code);
    }
    read_all(&root.join("xtask/src"), &mut code);
    let mut used = variables(&code);
    used.retain(|name| !MACROS.contains(&name.as_str()) && !FOR_DEVELOPERS.contains(&name.as_str()));
    assert!(used.len() > 10, "only found {used:?}");

    let mut explained = variables(README);
    explained.retain(|name| !MACROS.contains(&name.as_str()));
    let missing: Vec<_> = used.difference(&explained).collect();
    assert!(missing.is_empty(), "used in the code but not in the README: {missing:?}");
    let stale: Vec<_> = explained.difference(&used).collect();
    assert!(stale.is_empty(), "in the README but not used by the code: {stale:?}");
}

#[test]
fn every_numbered_example_is_in_the_readme() {
    let Some(root) = checkout() else { return };
    let entries = std::fs::read_dir(root.join("crates/warpwave/examples")).unwrap();
    let names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert!(names.len() >= 8, "only found {names:?}");
    for name in names {
        assert!(README.contains(&name), "{name} is not in the README");
    }
}

#[test]
fn every_card_of_the_hardware_matrix_is_in_the_readme() {
    for card in warpwave::gpu::hardware::cards() {
        let row = README.lines().find(|line| line.contains(card.arch) && line.contains(card.tier));
        let row = row.unwrap_or_else(|| panic!("no row with {} and {}", card.arch, card.tier));
        assert!(row.contains(card.word) && row.contains(card.generation), "{} ({}) is not in: {row}", card.name, card.generation);
    }
}

#[test]
fn every_command_is_in_the_readme() {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let arguments = ["warpwave", "--help"].map(Into::into);
    assert_eq!(warpwave_cli::main(arguments, warpwave::gpu::Devices::default, &mut out, &mut err), 0);
    let help = String::from_utf8(out).unwrap();
    let commands: Vec<&str> = help
        .lines()
        .skip_while(|line| !line.starts_with("Commands:"))
        .skip(1)
        .take_while(|line| !line.is_empty())
        // Continuation lines are indented further.
        .filter_map(|line| line.strip_prefix("  ").filter(|rest| !rest.starts_with(' '))?.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    assert!(commands.len() >= 7, "{help}");
    for command in commands {
        assert!(README.contains(&format!("warpwave {command}")), "`warpwave {command}` is not in the README");
    }
}
