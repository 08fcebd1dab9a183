//! Converts CMake files: language, packages, targets, variables, properties and flags.

mod commands;
mod lex;
mod names;
mod sources;

use std::collections::HashSet;

use super::notes::Notes;
use super::{BuildOptions, codes};
use crate::translate::Translation;
use lex::{Argument, Command, Form};

/// Facts about the file, read before the conversion.
#[derive(Default)]
struct Facts<'a> {
    /// Variables that the file sets itself.
    own: HashSet<&'a str>,
    /// Targets that the file defines.
    targets: HashSet<&'a str>,
    /// Whether it enables the CUDA language.
    enables_cuda: bool,
    /// Whether it tests if CUDA was found.
    tests_found: bool,
    /// Whether it uses FindCUDA commands.
    old_commands: bool,
}

struct Convert<'a> {
    source: &'a [u8],
    text: &'a str,
    options: &'a BuildOptions,
    notes: Notes,
    facts: Facts<'a>,
    /// Packages that the file finds.
    packages: HashSet<&'static str>,
    /// Sources marked as HIP.
    marked: HashSet<&'a str>,
    /// The end of the converted `find_package`, and its indentation.
    package_place: Option<(usize, String)>,
    language_added: bool,
}

/// Converts a file; `text` is the source with non-ASCII bytes masked.
pub(super) fn convert(source: &[u8], text: &str, options: &BuildOptions) -> Translation {
    let (commands, stopped) = lex::read(text);
    let mut notes = Notes::default();
    if let Some(at) = stopped {
        let end = at + text[at..].bytes().take_while(|byte| *byte != b'\n').count();
        notes.report(codes::UNREADABLE, at, end, "syntax error; the rest of the file was left as is", None);
    }
    if let Some(command) = commands.iter().find(|command| is_hip(command)) {
        if let Some((start, end)) = commands.iter().find_map(first_cuda) {
            let line = text[..command.start].matches('\n').count() + 1;
            let message = format!("uses CUDA, but line {line} uses HIP already; file left unchanged");
            notes.report(codes::PORTED, start, end, message, None);
        }
        return notes.finish(source);
    }
    let mut convert = Convert {
        source,
        text,
        options,
        notes,
        facts: facts(&commands),
        packages: HashSet::new(),
        marked: HashSet::new(),
        package_place: None,
        language_added: false,
    };
    for command in &commands {
        convert.command(command);
    }
    convert.notes.finish(source)
}

/// Whether a command mentions HIP.
fn is_hip(command: &Command<'_>) -> bool {
    let first = command.arguments.first().map_or("", |argument| argument.text);
    let has = |word: &str| command.arguments.iter().any(|argument| argument.text == word);
    match command.name.to_ascii_lowercase().as_str() {
        "project" | "enable_language" | "check_language" => has("HIP"),
        "find_package" | "find_dependency" => first.eq_ignore_ascii_case("hip"),
        "set_source_files_properties" | "set_property" => has("LANGUAGE") && has("HIP"),
        _ => command.arguments.iter().any(|argument| {
            let text = argument.text;
            let target = |front: &str| text.match_indices(front).any(|(at, _)| super::is_whole(text, at, at + front.len() - 1));
            target("hip::") || target("roc::") || text.contains("CMAKE_HIP_") || text.contains("COMPILE_LANGUAGE:HIP")
        }),
    }
}

/// The first mention of CUDA in a command.
fn first_cuda(command: &Command<'_>) -> Option<(usize, usize)> {
    if command.name.to_ascii_lowercase().starts_with("cuda_") {
        return Some((command.start, command.start + command.name.len()));
    }
    if command.name.eq_ignore_ascii_case("message") {
        return None;
    }
    let cuda = |argument: &&Argument<'_>| {
        let text = argument.text;
        text == "CUDA" || ["CUDA::", "CMAKE_CUDA_", "CUDAToolkit", ":CUDA>", ",CUDA"].iter().any(|word| text.contains(word))
    };
    command.arguments.iter().find(cuda).map(|argument| (argument.start, argument.end))
}

fn facts<'a>(commands: &[Command<'a>]) -> Facts<'a> {
    let mut facts = Facts::default();
    for command in commands {
        let name = command.name.to_ascii_lowercase();
        let arguments = &command.arguments;
        let text = |at: usize| arguments.get(at).map(|argument| argument.text);
        match name.as_str() {
            "set" | "option" | "macro" | "function" | "foreach" => facts.own.extend(text(0)),
            "list" | "file" | "string" => facts.own.extend(text(1)),
            "add_executable" | "add_library" | "cuda_add_executable" | "cuda_add_library" => facts.targets.extend(text(0)),
            "project" => facts.enables_cuda |= arguments.iter().skip(1).any(|argument| argument.text == "CUDA"),
            "enable_language" => facts.enables_cuda |= arguments.iter().any(|argument| argument.text == "CUDA"),
            _ => {}
        }
        facts.old_commands |= name.starts_with("cuda_");
        facts.tests_found |= matches!(name.as_str(), "if" | "elseif")
            && arguments.iter().any(|a| a.text.contains("CUDA_FOUND") || a.text.contains("CUDAToolkit_FOUND"));
    }
    facts
}

impl<'a> Convert<'a> {
    fn indent(&self, command: &Command<'_>) -> String {
        let line = self.text[..command.start].rfind('\n').map_or(0, |at| at + 1);
        let before = &self.text[line..command.start];
        if before.trim().is_empty() { before.to_owned() } else { String::new() }
    }

    /// The offset for a new line after a command and its trailing comment.
    fn line_end(&self, command: &Command<'_>) -> usize {
        let rest = &self.text[command.end..];
        let line = rest[..rest.find('\n').unwrap_or(rest.len())].trim_end_matches('\r');
        let after = line.trim_start();
        let only_comment = after.is_empty() || after.starts_with('#') && !after.starts_with("#[");
        command.end + if only_comment { line.len() } else { 0 }
    }

    /// Inserts a line after a command.
    fn line_after(&mut self, command: &Command<'_>, mut line: Vec<u8>) {
        let at = self.line_end(command);
        let mut text = format!("\n{}", self.indent(command)).into_bytes();
        if self.text[at..].starts_with("\r\n") {
            text.insert(0, b'\r');
        }
        text.append(&mut line);
        self.notes.edits.replace_bytes(at as u32, at as u32, text);
    }

    fn line_before(&mut self, command: &Command<'_>, line: &str) {
        let end = if self.text[command.end..].starts_with("\r\n") { "\r\n" } else { "\n" };
        self.notes.edits.insert(command.start as u32, format!("{line}{end}{}", self.indent(command)));
    }

    /// Adds a `find_package` before the command that uses the package, if missing.
    fn need_package(&mut self, package: &'static str, command: &Command<'_>) {
        if package.is_empty() || !self.packages.insert(package) {
            return;
        }
        let line = format!("find_package({package} REQUIRED)");
        match self.package_place.clone() {
            Some((at, indent)) => self.notes.edits.insert(at as u32, format!("\n{indent}{line}")),
            None => self.line_before(command, &line),
        }
    }

    fn bytes(&self, argument: &Argument<'_>) -> &'a [u8] {
        &self.source[argument.start..argument.end]
    }

    fn remove(&mut self, argument: &Argument<'_>) {
        self.notes.remove(self.text, argument.start, argument.end);
    }

    /// Replaces the text of an argument, within its quotes.
    fn rewrite(&mut self, argument: &Argument<'_>, text: impl Into<std::borrow::Cow<'static, str>>) {
        self.notes.replace(argument.at, argument.at + argument.text.len(), text);
    }

    /// The words of an argument: of a list, of a string of flags, of what a generator expression holds.
    fn words(argument: &Argument<'a>) -> Vec<super::flags::Word<'a>> {
        if argument.form == Form::Paren {
            return Vec::new();
        }
        let mut words = Vec::new();
        for mut word in super::flags::words(argument.text, argument.at, &[';']) {
            // `$<…:flag>`: the text after the last colon of the conditions, before the closing `>`.
            let mut text = &argument.text[word.start - argument.at..word.end - argument.at];
            if text.starts_with("$<") || text.starts_with("SHELL:") {
                let behind = text.rfind(">:").map(|at| at + 2).or_else(|| text.starts_with("SHELL:").then_some(6));
                let Some(behind) = behind else { continue };
                word.start += behind;
                text = &text[behind..];
                word.text = text;
                if let Some(shell) = text.strip_prefix("SHELL:") {
                    word.start += 6;
                    word.text = shell;
                }
            }
            // Variable references have no `<`, so a remaining `>` closes an expression.
            let closing = word.text.bytes().rev().take_while(|byte| *byte == b'>').count();
            if closing > 0 && !word.text.contains("$<") {
                word.end -= closing;
                word.text = &word.text[..word.text.len() - closing];
            }
            words.push(word);
        }
        words
    }
}
