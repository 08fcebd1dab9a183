//! The documents against the code: links resolve, shown commands parse, generated pages are current, and what users must be able to look up
//! is there.
//!
//! The command in [`REGENERATE`] writes the generated pages.

mod messages;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use warpwave_test_support::{require, workspace_root};

/// Writes the generated pages.
const REGENERATE: &str = "WARPWAVE_BLESS=1 cargo test -p warpwave-cli --test book";

/// Variables of the project's own tests, for CONTRIBUTING.md rather than the reference.
const FOR_DEVELOPERS: &[&str] = &[
    "WARPWAVE_BLESS",
    "WARPWAVE_RECORD_INSTRUCTIONS",
    "WARPWAVE_CUBLAS_INCLUDE",
    "WARPWAVE_FACTS",
    "WARPWAVE_REQUIRE_ALL",
    "WARPWAVE_ROCBLAS_INCLUDE",
    "WARPWAVE_ROOT",
    "WARPWAVE_SEED",
    "WARPWAVE_TEST_FULL",
    "WARPWAVE_TEST_MODEL",
    "WARPWAVE_FUZZ_INSTRUCTIONS",
    "WARPWAVE_FUZZ_OBJECTS",
    "WARPWAVE_FUZZ_PROGRAMS",
    "WARPWAVE_FUZZ_SECONDS",
];

/// Macros that kernels see, not environment variables.
const MACROS: &[&str] =
    &["WARPWAVE_CUDA_ARCH", "WARPWAVE_AMD", "WARPWAVE_ISA_VERSION", "WARPWAVE_CUDA_H", "WARPWAVE_PRELUDE_H", "WARPWAVE_WAVE_SIZE"];

/// The checkout, or `None` where tests run without one.
fn checkout() -> Option<PathBuf> {
    let root = workspace_root();
    require(root.join("crates/cli/src").is_dir(), "the sources").then(|| root.canonicalize().unwrap())
}

/// The files below a folder with one of these extensions, without build output and hidden folders.
fn files(folder: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            found.extend(files(&path, extensions));
        } else if path.extension().is_some_and(|extension| extensions.iter().any(|one| extension == *one)) {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The text outside of code blocks and code spans.
fn prose(text: &str) -> String {
    let mut inside = false;
    let mut prose = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            inside = !inside;
        } else if !inside {
            // Every second part of a line is within backticks.
            line.split('`').step_by(2).for_each(|part| prose.push_str(part));
            prose.push('\n');
        }
    }
    prose
}

/// The targets of `[text](target)`.
fn links(text: &str) -> Vec<String> {
    let prose = prose(text);
    prose.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target.to_owned()).collect()
}

/// The anchors of a page's headings, as GitHub and mdBook make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let heading = |line: &str| line.strip_prefix('#').map(|rest| rest.trim_start_matches('#').trim().to_lowercase());
    let slug = |heading: String| -> String {
        heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c)).map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    text.lines().filter_map(heading).map(slug).collect()
}

/// The pages people read.
fn pages(root: &Path) -> Vec<PathBuf> {
    let mut pages = files(&root.join("docs"), &["md"]);
    pages.extend(
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "crates/hipify/COVERAGE.md"].map(|name| root.join(name)),
    );
    pages
}

#[test]
fn the_summary_names_every_page_and_only_pages() {
    let Some(root) = checkout() else { return };
    let docs = root.join("docs");
    let named: BTreeSet<PathBuf> = links(&read(&docs.join("SUMMARY.md"))).iter().map(|link| docs.join(link)).collect();
    let mut found: BTreeSet<PathBuf> = files(&docs, &["md"]).into_iter().collect();
    found.remove(&docs.join("SUMMARY.md"));
    assert_eq!(found.difference(&named).collect::<Vec<_>>(), Vec::<&PathBuf>::new(), "not in SUMMARY.md");
    assert_eq!(named.difference(&found).collect::<Vec<_>>(), Vec::<&PathBuf>::new(), "in SUMMARY.md and not there");
}

#[test]
fn links_between_pages_resolve() {
    let Some(root) = checkout() else { return };
    let mut broken = Vec::new();
    let mut checked = 0;
    for page in pages(&root) {
        for link in links(&read(&page)) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            checked += 1;
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if path.is_empty() { page.clone() } else { page.parent().unwrap().join(path) };
            let is_there = target.exists() && (anchor.is_empty() || anchors(&read(&target)).contains(anchor));
            if !is_there {
                broken.push(format!("{}: {link}", page.strip_prefix(&root).unwrap().display()));
            }
        }
    }
    assert!(checked > 30, "only {checked} links found");
    assert!(broken.is_empty(), "{broken:#?}");
}

/// The `$` lines of console blocks, with continued lines joined.
fn shell_lines(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut inside = false;
    let mut open = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with("```") {
            inside = line == "```console";
        } else if inside && (open || line.starts_with("$ ")) {
            let part = line.strip_prefix("$ ").unwrap_or(line);
            let (part, more) = part.strip_suffix('\\').map_or((part, false), |part| (part, true));
            if open {
                lines.last_mut().map(|last: &mut String| last.push_str(part)).unwrap()
            } else {
                lines.push(part.to_owned())
            }
            open = more;
        }
    }
    lines
}

/// The words of a simple command line, up to a comment, a pipe or a redirection.
fn words(line: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut quote = None;
    let mut within = false;
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                if !within {
                    words.push(String::new());
                    within = true;
                }
            }
            (None, ' ') => within = false,
            (None, '#' | '|' | '>' | ';' | '&') if !within => break,
            _ => {
                if !within {
                    words.push(String::new());
                    within = true;
                }
                words.last_mut().unwrap().push(c);
            }
        }
    }
    words
}

#[test]
fn every_shown_command_parses() {
    let Some(root) = checkout() else { return };
    let mut refused = Vec::new();
    let mut checked = 0;
    for page in pages(&root) {
        for line in shell_lines(&read(&page)) {
            let words: Vec<String> = words(&line).into_iter().skip_while(|word| word.contains('=') && !word.starts_with('-')).collect();
            if words.first().is_none_or(|word| word != "warpwave") {
                continue;
            }
            checked += 1;
            if let Err(error) = warpwave_cli::check_usage(words.iter().map(Into::into)) {
                refused.push(format!("{}: {line}\n{error}", page.strip_prefix(&root).unwrap().display()));
            }
        }
    }
    assert!(checked > 20, "only {checked} commands found");
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

/// Compares a generated page with the one in the book, or writes it where `WARPWAVE_BLESS=1`.
fn check_generated(name: &str, text: &str) {
    let Some(root) = checkout() else { return };
    let path = root.join("docs/reference").join(name);
    if std::env::var_os("WARPWAVE_BLESS").is_some_and(|value| value == "1") {
        std::fs::write(&path, text).unwrap();
    }
    let current = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = current.lines().zip(text.lines()).enumerate().find(|(_, (old, new))| old != new);
    assert!(current == text, "docs/reference/{name} is stale, first at {differs:?}; run: {REGENERATE}");
}

/// What a command prints on standard output, if it succeeds.
fn output(line: &[&str]) -> Option<String> {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = warpwave_cli::main(line.iter().map(Into::into), Default::default, &mut out, &mut err);
    (code == 0).then(|| String::from_utf8(out).unwrap())
}

#[test]
fn the_page_of_diagnostics_is_current() {
    let mut page =
        "# Diagnostics\n\nWhat `warpwave hipify` reports, by number. Generated from `warpwave hipify --explain CODE`.\n".to_owned();
    let mut count = 0;
    for number in 100..500 {
        let code = format!("WW{number:04}");
        if let Some(text) = output(&["warpwave", "hipify", "--explain", &code]) {
            count += 1;
            let _ = write!(page, "\n## {code}\n\n```text\n{}\n```\n", text.trim_end());
        }
    }
    assert!(count > 50, "only {count} diagnostics found");
    check_generated("diagnostics.md", &page);
}

/// Every `WARPWAVE_…` word of a text.
fn variables(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    // A prefix alone names no variable. `-DWARPWAVE_X` is a macro for a compiler: its first letter belongs to the option.
    words
        .filter(|word| word.len() > "WARPWAVE_".len() && word.starts_with("WARPWAVE_"))
        .map(|word| word.trim_end_matches('_').to_owned())
        .collect()
}

#[test]
fn every_environment_variable_is_documented_and_exists() {
    let Some(root) = checkout() else { return };
    let sources = std::fs::read_dir(root.join("crates")).unwrap().map(|entry| entry.unwrap().path().join("src"));
    let sources = sources.chain([root.join("xtask/src")]).filter(|folder| folder.is_dir());
    let code: String = sources.flat_map(|folder| files(&folder, &["rs", "sh"])).map(|file| read(&file)).collect();
    let is_variable = |name: &String| !MACROS.contains(&name.as_str()) && !FOR_DEVELOPERS.contains(&name.as_str());
    let used: BTreeSet<String> = variables(&code).into_iter().filter(is_variable).collect();
    assert!(used.len() > 10, "only found {used:?}");
    let page = read(&root.join("docs/reference/environment.md"));
    let documented: BTreeSet<String> = variables(&page).into_iter().filter(is_variable).collect();
    assert_eq!(used.difference(&documented).collect::<Vec<_>>(), Vec::<&String>::new(), "read by the code and not documented");
    assert_eq!(documented.difference(&used).collect::<Vec<_>>(), Vec::<&String>::new(), "documented and not read by the code");
}

#[test]
fn every_numbered_example_is_in_the_guide() {
    let Some(root) = checkout() else { return };
    let guide = read(&root.join("docs/guides/kernels-in-rust.md"));
    let examples = files(&root.join("crates/warpwave/examples"), &["rs"]);
    assert!(examples.len() >= 8, "only found {examples:?}");
    for example in examples {
        let name = example.file_name().unwrap().to_str().unwrap();
        assert!(guide.contains(name), "{name} is not in the guide");
    }
}

#[test]
fn every_known_card_is_in_the_support_matrix() {
    let Some(root) = checkout() else { return };
    let page = read(&root.join("docs/reference/support.md"));
    for card in warpwave::gpu::hardware::cards() {
        let row = page.lines().find(|line| line.contains(card.arch) && line.contains(card.tier));
        let row = row.unwrap_or_else(|| panic!("no row with {} and {}", card.arch, card.tier));
        assert!(row.contains(card.word) && row.contains(card.generation), "{} ({}) is not in: {row}", card.name, card.generation);
    }
}

#[test]
fn the_readme_is_short() {
    let Some(root) = checkout() else { return };
    let bytes = read(&root.join("README.md")).len();
    assert!(bytes <= 10_240, "README.md has {bytes} bytes; details belong into docs/");
}
