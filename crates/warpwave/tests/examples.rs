//! Every numbered example, run as a program on what this machine has. With a GPU they use it; without one they say so and end well.
//!
//! Cargo builds examples with the tests and leaves them beside the test programs: `target/<profile>/examples/NAME`. A folder of packed
//! tests keeps the same shape, or has no examples.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Whether a file is a numbered example; cargo's own copies have a hash in their name and an underscore for the first dash.
fn is_numbered(name: &str) -> bool {
    let digits = name.bytes().take_while(u8::is_ascii_digit).count();
    digits == 2 && name[digits..].starts_with('-') && !name.contains('.')
}

fn file_names(folder: &Path, ending: &str) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().to_str()?.strip_suffix(ending).map(str::to_owned));
    names.filter(|name| is_numbered(name)).collect()
}

/// The folder of the built examples: `deps/..` for a test program of cargo's, `tests/..` for a packed one.
fn built() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    program.parent().and_then(Path::parent).unwrap().join("examples")
}

#[test]
fn every_example_ends_well_and_says_something() {
    let folder = built();
    let programs = file_names(&folder, "");
    if programs.is_empty() {
        let required = std::env::var_os("WARPWAVE_REQUIRE_ALL").is_some_and(|value| value == "1");
        assert!(!required, "no examples in {}; `cargo test` without --test, or `cargo build --examples`, makes them", folder.display());
        eprintln!("skipped: no built examples in {}", folder.display());
        return;
    }
    // The sources, where available, say which programs there must be.
    let sources = file_names(&Path::new(env!("CARGO_MANIFEST_DIR")).join("examples"), ".rs");
    let missing: Vec<_> = sources.difference(&programs).collect();
    assert!(missing.is_empty(), "not built: {missing:?}; run `cargo build --examples`");
    for name in programs {
        let output = Command::new(folder.join(&name)).output().unwrap();
        let (said, complained) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{name} ended with {}:\n{said}{complained}", output.status);
        assert!(!said.trim().is_empty(), "{name} says nothing");
        println!("{name}:\n{said}");
    }
}

/// The example of a language model takes a file, which the others do without.
#[test]
fn a_language_model_answers_in_its_example() {
    let (program, model) = (built().join("11-language-model"), std::env::var_os("WARPWAVE_TEST_MODEL"));
    let Some(model) = model.filter(|_| program.is_file()) else {
        assert!(std::env::var_os("WARPWAVE_REQUIRE_ALL").is_none_or(|v| v != "1"), "no model, or no built example");
        eprintln!("skipped: no model, or no built example");
        return;
    };
    let output = Command::new(program).arg(model).output().unwrap();
    let (said, complained) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains("Paris"), "{said}{complained}");
}

#[test]
fn numbered_examples_are_told_from_cargo_s_copies() {
    for (name, numbered) in
        [("01-devices", true), ("08-compile-ahead", true), ("01_devices-3f2a", false), ("01-devices.d", false), ("1-x", false), ("", false)]
    {
        assert_eq!(is_numbered(name), numbered, "{name}");
    }
}
