//! Lists of `.cu` files, which CMake compiles as CUDA: they are marked as HIP, or renamed to `.hip`.

use super::super::codes;
use super::{Argument, Command, Convert, Form};

/// The items of a list in an argument, with their spans.
fn items<'a>(argument: &Argument<'a>) -> Vec<(usize, &'a str, Argument<'a>)> {
    if !matches!(argument.form, Form::Plain | Form::Quoted) {
        return Vec::new();
    }
    let mut at = argument.at;
    let mut found = Vec::new();
    for item in argument.text.split(';') {
        found.push((at, item, *argument));
        at += item.len() + 1;
    }
    found
}

impl<'a> Convert<'a> {
    pub(super) fn sources(&mut self, command: &Command<'a>, name: &str) {
        let files: Vec<(usize, &'a str, Argument<'a>)> =
            command.arguments.iter().flat_map(items).filter(|(_, text, _)| text.ends_with(".cu")).collect();
        if files.is_empty() {
            return;
        }
        if self.options.renamed.is_some() {
            for (start, text, _) in files {
                self.follow(start, text, name);
            }
            return;
        }
        match name {
            "set" | "list" | "add_executable" | "add_library" | "cuda_add_executable" | "cuda_add_library" | "target_sources" => {
                if command.arguments.iter().any(|argument| argument.text == "PARENT_SCOPE") {
                    let reason = "the file list is used in another directory, where source file properties set here do not apply";
                    return self.unmarked(command, reason);
                }
                let fresh: Vec<&(usize, &str, Argument<'_>)> = files.iter().filter(|(_, text, _)| self.marked.insert(text)).collect();
                let mut line = b"set_source_files_properties(".to_vec();
                for (start, text, argument) in &fresh {
                    let quote: &[u8] = if argument.form == Form::Quoted { b"\"" } else { b"" };
                    line.extend([quote, &self.source[*start..*start + text.len()], quote, b" "].concat());
                }
                line.extend_from_slice(b"PROPERTIES LANGUAGE HIP)");
                if !fresh.is_empty() {
                    self.line_after(command, line);
                }
            }
            "file" => self.glob(command, &files),
            "set_source_files_properties" | "set_property" | "message" => {}
            lost if lost.starts_with("cuda_") => {}
            _ => self.unmarked(command, "CMake compiles these files as CUDA"),
        }
    }

    fn unmarked(&mut self, command: &Command<'_>, why: &'static str) {
        let help =
            "mark them with `set_source_files_properties(… PROPERTIES LANGUAGE HIP)` where the target is defined, or rename them to `.hip`";
        self.notes.report(codes::SOURCES, command.start, command.start + command.name.len(), why, Some(help.into()));
    }

    /// `file(GLOB SOURCES *.cu)`: marks all files as HIP, if it matches `.cu` only.
    fn glob(&mut self, command: &Command<'a>, files: &[(usize, &'a str, Argument<'a>)]) {
        let arguments = &command.arguments;
        let globs = arguments.first().is_some_and(|first| matches!(first.text, "GLOB" | "GLOB_RECURSE"));
        let variable = arguments.get(1).filter(|variable| variable.form == Form::Plain);
        let options = ["CONFIGURE_DEPENDS", "LIST_DIRECTORIES", "true", "false", "RELATIVE"];
        let others = arguments
            .iter()
            .skip(2)
            .filter(|argument| !files.iter().any(|(.., file)| file.start == argument.start))
            .filter(|argument| !options.contains(&argument.text) && !argument.text.ends_with("_DIR}"))
            .count();
        let Some(variable) = variable.filter(|_| globs && others == 0) else {
            return self.unmarked(command, "the file list also contains non-CUDA files, so it cannot be marked as HIP");
        };
        let line = [b"set_source_files_properties(${".as_slice(), self.bytes(variable), b"} PROPERTIES LANGUAGE HIP)"].concat();
        self.line_after(command, line);
    }

    /// Renames the files.
    fn follow(&mut self, start: usize, text: &str, name: &str) {
        let file = text.rsplit('/').next().unwrap_or(text);
        let pattern = file.contains(['*', '$', '?']);
        let renamed = self.options.renamed.as_ref().is_some_and(|renamed| pattern || renamed.contains(file));
        let end = start + text.len();
        if renamed {
            self.notes.replace(end - 3, end, ".hip");
        } else {
            let message = format!("`{text}` was not converted in this run; its name was left as is");
            let help = (name != "message").then(|| "convert it too, or mark it with `LANGUAGE HIP`".into());
            self.notes.report(codes::SOURCES, start, end, message, help);
        }
    }
}
