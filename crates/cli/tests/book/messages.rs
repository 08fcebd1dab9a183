//! Lists every `--help` page and every message of the libraries in `docs/reference/messages.md`, so that the wording can be read in one go;
//! the help pages alone in `commands.md`.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use crate::{REGENERATE, check_generated, checkout};

/// Crates without messages for users.
const SKIPPED: [&str; 2] = ["test-support", "candle-check"];

#[test]
fn the_page_of_commands_is_current() {
    let mut text = format!("# Commands\n\nExit codes: 0 success, 1 failure, 2 wrong usage. Generated with `{REGENERATE}`.\n");
    help_pages(&mut text);
    check_generated("commands.md", &text);
}

#[test]
fn the_list_of_messages_is_current() {
    let Some(root) = checkout() else { return };
    let mut text = format!(
        "# Messages\n\nLists every help page of `warpwave` and every message string in the CLI and library sources. Generated with `{REGENERATE}`.\n"
    );
    help_pages(&mut text);
    messages(&root, &mut text);
    check_generated("messages.md", &text);
}

fn help_pages(text: &mut String) {
    // Fixed width and no values of the environment, or the pages would depend on the machine.
    let mut command = warpwave_cli::command().term_width(110);
    command.build();
    text.push_str("\n## Help pages\n");
    help_page(&mut command, "warpwave", text);
}

fn help_page(command: &mut clap::Command, name: &str, text: &mut String) {
    let mut shown = command.clone().mut_args(|argument| argument.hide_env_values(true));
    let page = shown.render_long_help().to_string();
    let page: Vec<&str> = page.lines().map(str::trim_end).collect();
    write!(text, "\n### `{name}`\n\n```text\n{}\n```\n", page.join("\n").trim_end()).unwrap();
    for sub in command.get_subcommands_mut().filter(|sub| sub.get_name() != "help" && !sub.is_hide_set()) {
        let name = format!("{name} {}", sub.get_name());
        help_page(sub, &name, text);
    }
}

fn messages(root: &Path, text: &mut String) {
    text.push_str(
        "\n## Messages in the sources\n\nError texts and other string literals of three or more words, in source order; `\\n` is a line break.\n",
    );
    let mut crates: Vec<PathBuf> = std::fs::read_dir(root.join("crates")).unwrap().map(|entry| entry.unwrap().path()).collect();
    crates.sort();
    for folder in crates {
        if SKIPPED.iter().any(|name| folder.ends_with(name)) {
            continue;
        }
        let mut files = Vec::new();
        collect(&folder.join("src"), &mut files);
        files.sort();
        for file in files {
            let source = std::fs::read_to_string(&file).unwrap();
            let wanted = |literal: &Literal| literal.is_error || is_message(&literal.text);
            let found: Vec<String> = literals(&source).into_iter().filter(wanted).map(|literal| literal.text).collect();
            if !found.is_empty() {
                let name = file.strip_prefix(root).unwrap().display().to_string();
                write!(text, "\n### {name}\n\n```text\n{}\n```\n", found.join("\n")).unwrap();
            }
        }
    }
}

/// Collects the Rust files of a folder, without those of tests.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name().into_string().unwrap_or_default());
        if name == "tests" || name == "tests.rs" || name.ends_with("_tests.rs") {
            continue;
        }
        if path.is_dir() {
            collect(&path, files);
        } else if name.ends_with(".rs") {
            files.push(path);
        }
    }
}

/// Returns whether a literal is a message: three words in a row, and not source code.
fn is_message(text: &str) -> bool {
    let is_word = |word: &&str| word.chars().filter(|c| c.is_alphabetic()).count() >= 2 || matches!(*word, "a" | "A" | "{}");
    let words: Vec<&str> = text.split([' ', '\n']).collect();
    let code = ["#include", "#define", "extern \"C\"", "__global__", "import ", "();", ") {", "#pragma", "template <"];
    words.windows(3).any(|three| three.iter().all(&is_word)) && !code.iter().any(|mark| text.contains(mark))
}

struct Literal {
    text: String,
    /// Whether it is the text of an `#[error]` attribute.
    is_error: bool,
}

/// Returns the string literals of a source, without those in other attributes than `error` and in test modules.
fn literals(source: &str) -> Vec<Literal> {
    let bytes = source.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    let mut is_error = false;
    while at < bytes.len() {
        let rest = &source[at..];
        match bytes[at] {
            b'/' if rest.starts_with("//") => at += rest.find('\n').unwrap_or(rest.len()),
            b'/' if rest.starts_with("/*") => at += rest.find("*/").map_or(rest.len(), |end| end + 2),
            b'#' if rest.starts_with("#[cfg(test)]") => at = skip_item(source, at + "#[cfg(test)]".len()),
            b'#' if rest.starts_with("#[") && !rest.starts_with("#[error") => at = skip_brackets(source, at + 1),
            b'#' if rest.starts_with("#[error(") => (is_error, at) = (!rest.starts_with("#[error(transparent"), at + "#[error(".len()),
            b'\'' => at += char_length(rest),
            b'"' => {
                let (text, end) = quoted(source, at + 1);
                found.push(Literal { text, is_error: std::mem::take(&mut is_error) });
                at = end;
            }
            b'r' if raw_hashes(rest).is_some() && !is_name(bytes, at) => {
                let (text, end) = raw(source, at);
                found.push(Literal { text, is_error: std::mem::take(&mut is_error) });
                at = end;
            }
            _ => at += rest.chars().next().map_or(1, char::len_utf8),
        }
    }
    found
}

/// Returns whether the byte before is part of a name, as in `for"`.
fn is_name(bytes: &[u8], at: usize) -> bool {
    at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_')
}

/// Returns the number of hashes of a raw string that begins here.
fn raw_hashes(rest: &str) -> Option<usize> {
    let hashes = rest[1..].bytes().take_while(|byte| *byte == b'#').count();
    (rest.as_bytes().get(1 + hashes) == Some(&b'"')).then_some(hashes)
}

fn raw(source: &str, at: usize) -> (String, usize) {
    let hashes = raw_hashes(&source[at..]).unwrap_or(0);
    let start = at + 2 + hashes;
    let end = source[start..].find(&format!("\"{}", "#".repeat(hashes))).map_or(source.len(), |end| start + end);
    (source[start..end].replace('\n', "\\n"), (end + 1 + hashes).min(source.len()))
}

/// Returns a string literal that begins after its quote, with line continuations joined, and the offset after it.
fn quoted(source: &str, start: usize) -> (String, usize) {
    let mut text = String::new();
    let mut chars = source[start..].char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (text, start + at + 1),
            '\n' => text.push_str("\\n"),
            '\\' => match chars.next() {
                Some((_, '\n')) => while chars.next_if(|(_, c)| c.is_whitespace()).is_some() {},
                Some((_, '"')) => text.push('"'),
                Some((_, escaped)) => text.extend(['\\', escaped]),
                None => {}
            },
            c => text.push(c),
        }
    }
    (text, source.len())
}

/// Returns the length of a character literal or of the quote of a lifetime.
fn char_length(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), Some(_)) => rest[3..].find('\'').map_or(1, |end| end + 4),
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 1,
    }
}

/// Returns the offset after the brackets that open here.
fn skip_brackets(source: &str, at: usize) -> usize {
    let mut depth = 0;
    let mut at = at;
    while at < source.len() {
        match source.as_bytes()[at] {
            b'[' => depth += 1,
            b']' => depth -= 1,
            b'"' => {
                at = quoted(source, at + 1).1;
                continue;
            }
            _ => {}
        }
        at += 1;
        if depth == 0 {
            break;
        }
    }
    at
}

/// Returns the offset after the item that begins here: to its semicolon, or over its braces.
fn skip_item(source: &str, at: usize) -> usize {
    let (mut depth, mut at) = (0usize, at);
    while at < source.len() {
        let rest = &source[at..];
        match source.as_bytes()[at] {
            b'/' if rest.starts_with("//") => at += rest.find('\n').unwrap_or(rest.len()),
            b'"' => at = quoted(source, at + 1).1,
            b'r' if raw_hashes(rest).is_some() && !is_name(source.as_bytes(), at) => at = raw(source, at).1,
            b'\'' => at += char_length(rest),
            b';' if depth == 0 => return at + 1,
            b'{' => (depth, at) = (depth + 1, at + 1),
            b'}' if depth <= 1 => return at + 1,
            b'}' => (depth, at) = (depth - 1, at + 1),
            _ => at += rest.chars().next().map_or(1, char::len_utf8),
        }
    }
    at
}

#[test]
fn literals_are_found_without_comments_attributes_and_tests() {
    let source = r###"
        //! "not this comment"
        #[arg(long = "not this attribute")]
        #[error("an error {name}; expected \"{}\"", "x")]
        fn a<'a>(c: char) { let quote = '"'; f("two lines \
            joined as one\n", r#"raw "text" here"#, '\''); }
        #[cfg(test)]
        mod tests { fn t() { assert!("not this } test"); } }
        const LAST: &str = "the last one";
    "###;
    let found = literals(source);
    assert_eq!(
        found.iter().map(|literal| literal.text.as_str()).collect::<Vec<_>>(),
        ["an error {name}; expected \"{}\"", "x", "two lines joined as one\\n", "raw \"text\" here", "the last one"]
    );
    assert_eq!(found.iter().filter(|literal| literal.is_error).count(), 1);
    assert!(is_message("the last one") && !is_message("two words") && !is_message("#include <a b c>"));
}
