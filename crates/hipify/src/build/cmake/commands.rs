//! Converts the CMake commands that concern CUDA.

use super::super::codes;
use super::super::flags::Flags;
use super::super::libraries::{self, Mapping};
use super::{Argument, Command, Convert, Form};

/// FindCUDA commands without a HIP equivalent.
const LOST_COMMANDS: &[&str] = &[
    "cuda_build_clean_target",
    "cuda_compile",
    "cuda_compile_ptx",
    "cuda_compile_fatbin",
    "cuda_compile_cubin",
    "cuda_compute_separable_compilation_object_file_name",
    "cuda_link_separable_compilation_objects",
    "cuda_select_nvcc_arch_flags",
    "cuda_wrap_srcs",
];

/// Tools of the toolkit that a build may call.
const TOOLS: &[&str] = &[
    "bin2c",
    "cuda-gdb",
    "cuda-memcheck",
    "compute-sanitizer",
    "cuobjdump",
    "fatbinary",
    "nsys",
    "ncu",
    "nvcc",
    "nvdisasm",
    "nvlink",
    "nvprof",
    "ptxas",
];

/// Packages with another name.
const PACKAGES: &[(&str, &str)] = &[("NCCL", "rccl"), ("Thrust", "rocthrust"), ("CUB", "hipcub")];

/// Packages without a ROCm equivalent.
const LOST_PACKAGES: &[&str] =
    &["CUDNN", "cuDNN", "cudnn", "TensorRT", "CUTENSOR", "OptiX", "NvidiaCutlass", "CUTLASS", "libcudacxx", "CCCL"];

impl<'a> Convert<'a> {
    pub(super) fn command(&mut self, command: &Command<'a>) {
        let name = command.name.to_ascii_lowercase();
        match name.as_str() {
            "project" => self.project(command),
            "enable_language" | "check_language" => self.languages(&command.arguments),
            "cmake_minimum_required" => self.minimum(command),
            "find_package" | "find_dependency" => return self.find_package(command),
            "cuda_add_executable" | "cuda_add_library" => self.add_target(command, &name),
            "cuda_include_directories" => self.rename(command, "include_directories"),
            "cuda_add_cublas_to_target" => self.add_library_to_target(command, "cublas"),
            "cuda_add_cufft_to_target" => self.add_library_to_target(command, "cufft"),
            lost if LOST_COMMANDS.contains(&lost) => {
                let message = format!("`{}` has no HIP equivalent", command.name);
                self.notes.report(codes::COMMAND, command.start, command.start + command.name.len(), message, None);
            }
            "set"
            | "unset"
            | "option"
            | "mark_as_advanced"
            | "set_property"
            | "set_target_properties"
            | "set_source_files_properties"
            | "get_target_property"
            | "get_property"
            | "list"
            | "string"
            | "if"
            | "elseif"
            | "while" => self.assignment(command, &name),
            "target_link_libraries" | "link_libraries" => self.links(command, &name),
            "target_compile_options" | "add_compile_options" | "target_link_options" | "add_link_options" | "add_definitions" => {
                self.flags(&command.arguments, false);
            }
            "execute_process" | "add_custom_command" | "add_custom_target" | "find_program" => self.tools(command),
            "include" => self.include(command),
            _ => {}
        }
        for argument in &command.arguments {
            self.argument(command, argument);
            self.rest(command, &name, argument);
        }
        self.sources(command, &name);
    }

    fn rename(&mut self, command: &Command<'a>, new: &'static str) {
        self.notes.replace(command.start, command.start + command.name.len(), new);
    }

    // ---- languages and packages

    fn languages(&mut self, arguments: &[Argument<'a>]) {
        for argument in arguments.iter().filter(|argument| argument.text == "CUDA") {
            self.rewrite(argument, "HIP");
        }
    }

    fn project(&mut self, command: &Command<'a>) {
        let mut described = false;
        for argument in command.arguments.iter().skip(1) {
            if argument.text == "CUDA" && !described {
                self.rewrite(argument, "HIP");
            }
            described = matches!(argument.text, "DESCRIPTION" | "HOMEPAGE_URL" | "VERSION");
        }
    }

    fn minimum(&mut self, command: &Command<'a>) {
        let Some(argument) = command.arguments.get(1).filter(|_| self.facts.enables_cuda || self.facts.old_commands) else { return };
        let (low, high) = argument.text.split_once("...").map_or((argument.text, None), |(low, high)| (low, Some(high)));
        let number = |text: &str| {
            let mut parts = text.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
            (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
        };
        if !low.starts_with(|first: char| first.is_ascii_digit()) || number(low) >= (3, 21) {
            return;
        }
        let high = high.filter(|high| number(high) > (3, 21)).map_or(String::new(), |high| format!("...{high}"));
        let message = format!("minimum CMake version raised from {low} to 3.21 for the HIP language");
        self.notes.report(codes::MINIMUM, argument.start, argument.end, message, None);
        self.rewrite(argument, format!("3.21{high}"));
    }

    fn find_package(&mut self, command: &Command<'a>) {
        let Some(first) = command.arguments.first() else { return };
        if let Some((_, new)) = PACKAGES.iter().find(|(old, _)| *old == first.text) {
            self.packages.insert(new);
            return self.rewrite(first, *new);
        }
        if LOST_PACKAGES.contains(&first.text) {
            let message = format!("this use of `{}` has no ROCm equivalent", first.text);
            return self.notes.report(codes::PACKAGE, command.start, command.end, message, None);
        }
        if !matches!(first.text, "CUDA" | "CUDAToolkit") {
            return;
        }
        let old_module = first.text == "CUDA";
        self.rewrite(first, "hip");
        // A dependency is required.
        let (mut quiet, mut required) = (false, command.name.eq_ignore_ascii_case("find_dependency"));
        for argument in &command.arguments[1..] {
            match argument.text {
                "QUIET" => quiet = true,
                "REQUIRED" => required = true,
                // Versions and components differ in HIP.
                _ => self.remove(argument),
            }
        }
        let optional = !required && (quiet || self.facts.tests_found);
        if !required && !optional {
            self.notes.edits.insert(first.end as u32, " REQUIRED");
        }
        if old_module && self.facts.old_commands && !self.facts.enables_cuda && !self.language_added {
            // FindCUDA compiled `.cu` files itself; now the HIP language does.
            self.language_added = true;
            if optional {
                let indent = self.indent(command);
                self.line_after(command, format!("if(hip_FOUND)\n{indent}  enable_language(HIP)\n{indent}endif()").into_bytes());
            } else {
                self.line_before(command, "enable_language(HIP)");
            }
        }
        if !optional && self.package_place.is_none() {
            self.package_place = Some((self.line_end(command), self.indent(command)));
        }
    }

    fn include(&mut self, command: &Command<'a>) {
        let Some(first) = command.arguments.first() else { return };
        if matches!(first.text, "FindCUDA" | "FindCUDA/select_compute_arch" | "FindCUDAToolkit" | "CUDA") {
            let message = format!("`{}` is a CUDA module", first.text);
            let help = Some("use `find_package(hip REQUIRED)` and the HIP language".into());
            self.notes.report(codes::COMMAND, first.start, first.end, message, help);
        }
    }

    // ---- targets

    /// `cuda_add_executable(name files… OPTIONS flags…)`.
    fn add_target(&mut self, command: &Command<'a>, name: &str) {
        self.rename(command, if name == "cuda_add_library" { "add_library" } else { "add_executable" });
        let Some(target) = command.arguments.first() else { return };
        let options = command.arguments.iter().position(|argument| argument.text == "OPTIONS");
        let mut lines = [b"target_link_libraries(".as_slice(), self.bytes(target), b" hip::host)"].concat();
        if let Some(at) = options {
            let flags = &command.arguments[at + 1..];
            let texts: Vec<&str> = flags.iter().map(|argument| argument.text).collect();
            let converted = self.converted_flags(command, &texts.join(" "));
            command.arguments[at..].iter().for_each(|argument| self.remove(argument));
            if !converted.is_empty() {
                let indent = self.indent(command);
                lines.extend_from_slice(format!("\n{indent}target_compile_options(").as_bytes());
                lines.extend_from_slice(self.bytes(target));
                let list: Vec<&str> = converted.split_ascii_whitespace().collect();
                lines.extend_from_slice(format!(" PRIVATE \"$<$<COMPILE_LANGUAGE:HIP>:{}>\")", list.join(";")).as_bytes());
            }
        }
        self.line_after(command, lines);
    }

    /// Converts flags that move; diagnostics refer to their original position.
    fn converted_flags(&mut self, command: &Command<'a>, text: &str) -> String {
        let mut notes = super::Notes::default();
        let mut flags = Flags {
            notes: &mut notes,
            text,
            nvcc: true,
            calls_nvcc: false,
            set_here: &std::collections::HashSet::new(),
            offload_arch: &self.options.offload_arch,
            has_architectures: false,
            separator: " ",
        };
        flags.convert(&super::super::flags::words(text, 0, &[';']));
        let done = notes.finish(text.as_bytes());
        for diagnostic in done.diagnostics {
            let place = text[diagnostic.start as usize..diagnostic.end as usize].split(' ').next().unwrap_or("");
            let start = command.start + self.text[command.start..command.end].find(place).unwrap_or(0);
            if let Some(code) = codes::find(diagnostic.code) {
                self.notes.report(*code, start, start + place.len(), diagnostic.message, diagnostic.help);
            }
        }
        String::from_utf8_lossy(&done.output).trim().to_owned()
    }

    fn add_library_to_target(&mut self, command: &Command<'a>, library: &str) {
        let (Some(Mapping::Becomes(library)), Some(target)) = (libraries::find(library), command.arguments.first()) else { return };
        self.need_package(library.package, command);
        self.rename(command, "target_link_libraries");
        self.notes.edits.insert(target.end as u32, format!(" {}", library.target));
    }

    fn links(&mut self, command: &Command<'a>, name: &str) {
        self.flags(&command.arguments, false);
        for argument in command.arguments.iter().skip(usize::from(name == "target_link_libraries")) {
            let bare = argument.text.strip_prefix("-l").unwrap_or(argument.text);
            if self.facts.targets.contains(bare) || bare == "cuda_driver" || argument.form == Form::Bracket {
                continue;
            }
            if let Some(mapping) = libraries::find(bare) {
                let place = (argument.at, argument.at + argument.text.len());
                self.library(command, argument, place, bare, mapping);
            }
        }
    }

    // ---- variables, properties and flags

    fn assignment(&mut self, command: &Command<'a>, name: &str) {
        let arguments = &command.arguments;
        match name {
            "set" => {
                let Some(variable) = arguments.first() else { return };
                self.variable_name(variable);
                if is_flags(variable.text) {
                    self.flag_list(command, variable, &arguments[1..]);
                } else if is_architectures(variable.text) {
                    self.architectures(&arguments[1..]);
                } else if variable.text.contains("OPTIONS") || variable.text.contains("FLAGS") {
                    self.flags(&arguments[1..], false);
                }
            }
            "list" | "string" => {
                let (Some(operation), Some(variable)) = (arguments.first(), arguments.get(1)) else { return };
                if !matches!(operation.text, "APPEND" | "PREPEND") {
                    return arguments[1..].iter().for_each(|argument| self.variable_name(argument));
                }
                self.variable_name(variable);
                if is_flags(variable.text) {
                    if name == "list" {
                        self.rename(command, "string");
                    }
                    self.append_flags(command, name, &arguments[2..]);
                } else if is_architectures(variable.text) {
                    self.architectures(&arguments[2..]);
                } else {
                    let nvcc = variable.text.contains("NVCC") || variable.text.contains("CUDA");
                    self.flags(&arguments[2..], nvcc);
                }
            }
            "if" | "elseif" | "while" => {
                for (at, argument) in arguments.iter().enumerate() {
                    if argument.text == "CUDA" && arguments.get(at + 1).is_some_and(|next| next.text == "IN_LIST") {
                        self.rewrite(argument, "HIP");
                    } else if argument.form == Form::Plain {
                        self.variable_name(argument);
                    }
                }
            }
            "unset" | "option" | "mark_as_advanced" => arguments.iter().take(1).for_each(|argument| self.variable_name(argument)),
            _ => self.properties(command),
        }
    }

    fn properties(&mut self, command: &Command<'a>) {
        let arguments = &command.arguments;
        let from = arguments.iter().position(|argument| matches!(argument.text, "PROPERTIES" | "PROPERTY"));
        let from = from.map_or(usize::from(command.name.eq_ignore_ascii_case("get_target_property")), |at| at + 1);
        let single = arguments.iter().any(|argument| argument.text == "PROPERTY");
        for (at, argument) in arguments.iter().enumerate().skip(from) {
            let value = arguments.get(at + 1);
            if matches!(argument.text, "LANGUAGE" | "LINKER_LANGUAGE") {
                if let Some(value) = value.filter(|value| value.text == "CUDA") {
                    self.rewrite(value, "HIP");
                    if argument.text == "LANGUAGE" {
                        self.marked.extend(arguments[..from].iter().map(|file| file.text));
                    }
                }
            } else if argument.text == "CUDA_ARCHITECTURES" && !command.name.to_ascii_lowercase().starts_with("get") {
                let end = if single { arguments.len() } else { (at + 2).min(arguments.len()) };
                self.property(argument);
                self.architectures(&arguments[at + 1..end]);
            } else {
                self.property(argument);
            }
        }
        self.flags(&arguments[from.min(arguments.len())..], false);
    }

    /// Replaces compute capabilities with AMD architectures.
    fn architectures(&mut self, values: &[Argument<'a>]) {
        let end = values.iter().position(|value| matches!(value.text, "CACHE" | "PARENT_SCOPE")).unwrap_or(values.len());
        let values = &values[..end];
        let Some(first) = values.first() else { return };
        let own = |value: &&Argument<'_>| value.text.contains('$') && !value.text.contains("CMAKE_CUDA_ARCHITECTURES");
        if let Some(variable) = values.iter().find(own) {
            let message = format!("`{}` must hold AMD architectures", variable.text);
            let help = Some(format!("for example `{}`", self.options.offload_arch.join(";")).into());
            return self.notes.report(codes::ARCHITECTURE_VARIABLE, variable.start, variable.end, message, help);
        }
        if values.iter().all(|value| value.text.contains('$')) {
            return;
        }
        let old: Vec<&str> = values.iter().map(|value| value.text).collect();
        let list = self.options.offload_arch.join(";");
        let message = format!("`{}` replaced by `{list}`", old.join(" "));
        self.notes.report(codes::ARCHITECTURES, first.start, values[values.len() - 1].end, message, None);
        self.notes.replace(first.start, first.end, format!("\"{list}\""));
        values[1..].iter().for_each(|value| self.remove(value));
    }

    fn flags(&mut self, arguments: &[Argument<'a>], nvcc: bool) {
        let mut words = Vec::new();
        for argument in arguments {
            words.append(&mut Self::words(argument));
        }
        let inside = arguments.iter().any(|argument| argument.text.contains("LANGUAGE:CUDA") || argument.text.contains("LANG_AND_ID:CUDA"));
        let lists = arguments.iter().any(|argument| argument.text.contains(';') || argument.text.contains("$<"));
        let mut flags = Flags {
            notes: &mut self.notes,
            text: self.text,
            nvcc: nvcc || inside,
            calls_nvcc: false,
            set_here: &std::collections::HashSet::new(),
            offload_arch: &self.options.offload_arch,
            has_architectures: false,
            separator: if lists { ";" } else { " " },
        };
        flags.convert(&words);
    }

    /// `set(CMAKE_CUDA_FLAGS "…")`: a string of flags. What was a list becomes one.
    fn flag_list(&mut self, command: &Command<'a>, variable: &Argument<'a>, values: &[Argument<'a>]) {
        let end = values.iter().position(|value| matches!(value.text, "CACHE" | "PARENT_SCOPE")).unwrap_or(values.len());
        let values = &values[..end];
        let is_list = values.len() > 1 || values.iter().any(|value| value.form == Form::Plain && value.text.contains(';'));
        let old = variable.text.starts_with("CUDA_NVCC_FLAGS");
        if !(old && is_list) {
            return self.string_of_flags(values);
        }
        self.joined(command, values, "");
    }

    fn string_of_flags(&mut self, values: &[Argument<'a>]) {
        let words: Vec<_> = values.iter().flat_map(|value| super::super::flags::words(value.text, value.at, &[])).collect();
        let mut flags = Flags {
            notes: &mut self.notes,
            text: self.text,
            nvcc: true,
            calls_nvcc: false,
            set_here: &std::collections::HashSet::new(),
            offload_arch: &self.options.offload_arch,
            has_architectures: false,
            separator: " ",
        };
        flags.convert(&words);
    }

    /// `list(APPEND CUDA_NVCC_FLAGS a b)` is `string(APPEND CMAKE_HIP_FLAGS " a b")`.
    fn append_flags(&mut self, command: &Command<'a>, name: &str, values: &[Argument<'a>]) {
        if name == "string" {
            return self.string_of_flags(values);
        }
        self.joined(command, values, " ");
    }

    /// Replaces several arguments with one quoted string of converted flags.
    fn joined(&mut self, command: &Command<'a>, values: &[Argument<'a>], front: &str) {
        let (Some(first), Some(last)) = (values.first(), values.last()) else { return };
        let text: Vec<String> = values.iter().map(|value| value.text.replace(';', " ")).collect();
        let converted = self.converted_flags(command, &text.join(" ")).replace("${CUDA_NVCC_FLAGS}", "${CMAKE_HIP_FLAGS}");
        if self.source[first.start..last.end].is_ascii() {
            self.notes.replace(first.start, last.end, format!("\"{front}{}\"", quotable(&converted)));
        } else {
            let message = "flag list contains non-ASCII characters and was left as is";
            self.notes.report(codes::FLAG_KEPT, command.start, command.end, message, None);
        }
    }

    // ---- the rest

    fn tools(&mut self, command: &Command<'a>) {
        for argument in &command.arguments {
            let tool = argument.text.rsplit('/').next().unwrap_or("");
            if TOOLS.contains(&tool) && !argument.text.starts_with("/usr/local/cuda/bin/nvcc") {
                let message = format!("`{}` is a CUDA tool", argument.text);
                self.notes.report(codes::TOOL, argument.start, argument.end, message, None);
            }
        }
    }

    /// Reports CUDA names that no other rule handles.
    fn rest(&mut self, command: &Command<'a>, name: &str, argument: &Argument<'a>) {
        if name == "message" || argument.form == Form::Bracket {
            return;
        }
        let met = matches!(name, "set" | "unset" | "option" | "mark_as_advanced" | "list" | "string" | "if" | "elseif" | "while");
        for (at, found) in argument.text.match_indices("-DCMAKE_CUDA_") {
            let message = "a CUDA variable is passed to another command here; left as is";
            self.notes.report(codes::VARIABLE, argument.at + at, argument.at + at + found.len(), message, None);
        }
        for (at, found) in super::super::names_from(argument.text, "CMAKE_CUDA_") {
            let referenced = argument.text[..at].ends_with("${");
            let named = met && argument.form == Form::Plain && found == argument.text;
            if !(referenced || named) {
                let start = argument.at + at;
                let message = format!("CUDA name `{found}` was left as is here");
                self.notes.report(codes::VARIABLE, start, start + found.len(), message, None);
            }
        }
        let property = name.contains("propert");
        let is_language = argument.text == "CUDA" && !property && !matches!(name, "project" | "enable_language" | "check_language");
        if is_language
            && command.arguments.first().is_some_and(|first| first.start != argument.start)
            && !matches!(name, "if" | "elseif" | "set" | "option")
        {
            let message = "`CUDA` may refer to the language here; left as is";
            self.notes.report(codes::VARIABLE, argument.start, argument.end, message, None);
        }
    }
}

/// Escapes the quotes of a text.
fn quotable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut escaped = false;
    for character in text.chars() {
        if character == '"' && !escaped {
            out.push('\\');
        }
        escaped = character == '\\' && !escaped;
        out.push(character);
    }
    out
}

fn is_flags(variable: &str) -> bool {
    variable.starts_with("CMAKE_CUDA_FLAGS") || variable.starts_with("CUDA_NVCC_FLAGS")
}

fn is_architectures(variable: &str) -> bool {
    matches!(variable, "CMAKE_CUDA_ARCHITECTURES" | "CUDA_ARCHITECTURES")
}
