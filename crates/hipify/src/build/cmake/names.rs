//! CMake variables, properties, features, and languages in generator expressions.

use super::super::libraries::{self, Mapping};
use super::super::{below_toolkit, codes, names_from, toolkit_path};
use super::{Argument, Command, Convert, Form};

/// Suffixes of `CMAKE_CUDA_` variables with a `CMAKE_HIP_` equivalent.
const SAME: &[&str] = &[
    "STANDARD",
    "STANDARD_REQUIRED",
    "EXTENSIONS",
    "ARCHITECTURES",
    "COMPILER",
    "COMPILER_LAUNCHER",
    "COMPILER_LOADED",
    "COMPILE_FEATURES",
    "COMPILE_OBJECT",
    "FLAGS",
    "LINK_EXECUTABLE",
    "SOURCE_FILE_EXTENSIONS",
    "STANDARD_INCLUDE_DIRECTORIES",
    "STANDARD_LIBRARIES",
    "VISIBILITY_PRESET",
];

/// Properties with a HIP equivalent.
const PROPERTIES: &[&str] = &["ARCHITECTURES", "STANDARD", "STANDARD_REQUIRED", "EXTENSIONS", "VISIBILITY_PRESET"];

/// Properties without a HIP equivalent.
const LOST_PROPERTIES: &[&str] = &[
    "CUDA_SEPARABLE_COMPILATION",
    "CUDA_RESOLVE_DEVICE_SYMBOLS",
    "CUDA_PTX_COMPILATION",
    "CUDA_CUBIN_COMPILATION",
    "CUDA_FATBIN_COMPILATION",
    "CUDA_OPTIX_COMPILATION",
    "CUDA_RUNTIME_LIBRARY",
    "CUDA_SOURCE_PROPERTY_FORMAT",
];

/// Variables that FindCUDA reads.
const MODULE_READS: &[&str] = &[
    "CUDA_HOST_COMPILER",
    "CUDA_PROPAGATE_HOST_FLAGS",
    "CUDA_SEPARABLE_COMPILATION",
    "CUDA_TOOLKIT_ROOT_DIR",
    "CUDA_USE_STATIC_CUDA_RUNTIME",
    "CUDA_VERBOSE_BUILD",
    "CUDAToolkit_ROOT",
];

/// Whether CMake reads a variable even though the file sets it.
fn is_read(name: &str) -> bool {
    name.starts_with("CMAKE_CUDA_") || name.starts_with("CUDA_NVCC_FLAGS") || MODULE_READS.contains(&name)
}

/// The conversion of a variable.
enum Variable {
    Is(String),
    Library(Mapping),
    Version,
    Lost,
}

fn variable(name: &str) -> Option<Variable> {
    if let Some(rest) = name.strip_prefix("CMAKE_CUDA_") {
        return Some(match rest {
            _ if SAME.contains(&rest) || rest.starts_with("FLAGS_") => Variable::Is(format!("CMAKE_HIP_{rest}")),
            "COMPILER_ID" | "COMPILER_VERSION" | "COMPILER_TOOLKIT_VERSION" => Variable::Version,
            _ => Variable::Lost,
        });
    }
    let is = |name: &str| Some(Variable::Is(name.to_owned()));
    match name {
        "CUDA_FOUND" | "CUDAToolkit_FOUND" => is("hip_FOUND"),
        "CUDA_INCLUDE_DIRS" | "CUDA_TOOLKIT_INCLUDE" | "CUDAToolkit_INCLUDE_DIRS" | "CUDAToolkit_INCLUDE_DIR" => is("hip_INCLUDE_DIRS"),
        "CUDA_NVCC_FLAGS" => is("CMAKE_HIP_FLAGS"),
        "CUDA_TOOLKIT_ROOT_DIR" | "CUDAToolkit_ROOT" | "CUDAToolkit_TARGET_DIR" | "CUDA_HOME" | "CUDA_PATH" => is("ROCM_PATH"),
        "CUDA_NVCC_EXECUTABLE" | "CUDAToolkit_NVCC_EXECUTABLE" => is("CMAKE_HIP_COMPILER"),
        "CUDAToolkit_BIN_DIR" => is("ROCM_PATH}/bin"),
        "CUDAToolkit_LIBRARY_DIR" => is("ROCM_PATH}/lib"),
        "CUDA_STANDARD" => is("HIP_STANDARD"),
        "CUDA_VERSION" | "CUDA_VERSION_MAJOR" | "CUDA_VERSION_MINOR" | "CUDA_VERSION_STRING" => Some(Variable::Version),
        _ if name.starts_with("CUDAToolkit_VERSION") => Some(Variable::Version),
        _ if name.starts_with("CUDA_NVCC_FLAGS_") => Some(Variable::Is(format!("CMAKE_HIP_FLAGS_{}", &name[16..]))),
        _ => match libraries::of_variable(name) {
            Some(mapping) => Some(Variable::Library(mapping)),
            None if name.starts_with("CUDA_") || name.starts_with("CUDAToolkit_") => Some(Variable::Lost),
            None => None,
        },
    }
}

impl<'a> Convert<'a> {
    /// References `${…}` and `$ENV{…}` of an argument, languages of its expressions, targets, paths.
    pub(super) fn argument(&mut self, command: &Command<'a>, argument: &Argument<'a>) {
        if matches!(argument.form, Form::Paren | Form::Bracket) {
            return;
        }
        self.references(command, argument);
        self.environment(argument);
        self.expressions(argument);
        self.targets(command, argument);
        let text = argument.text;
        for (at, _) in text.match_indices("/usr/local/cuda").chain(text.match_indices("/opt/cuda")) {
            let (start, rest) = (argument.at + at, &text[at..]);
            match toolkit_path(rest) {
                Some((length, new)) => self.notes.replace(start, start + length, compiler_path(new)),
                None => self.notes.report(codes::PATH, start, argument.end, format!("path `{rest}` has no known ROCm equivalent"), None),
            }
        }
    }

    fn references(&mut self, command: &Command<'a>, argument: &Argument<'a>) {
        let text = argument.text;
        for (at, _) in text.match_indices("${") {
            let Some(length) = text[at + 2..].find(['}', '$']) else { continue };
            let name = &text[at + 2..at + 2 + length];
            let start = argument.at + at;
            let end = start + length + 3;
            if self.facts.own.contains(name) && !is_read(name) {
                continue;
            }
            match variable(name) {
                Some(Variable::Is(new)) if new.contains('}') => self.notes.replace(start + 2, end, new),
                Some(Variable::Is(new)) => {
                    let folder = new == "ROCM_PATH";
                    self.notes.replace(start + 2, end - 1, new);
                    if folder {
                        self.below(argument, end);
                    }
                }
                Some(Variable::Library(mapping)) => self.library(command, argument, (start, end), name, mapping),
                // Printing it is harmless.
                Some(_) if command.name.eq_ignore_ascii_case("message") => {}
                Some(Variable::Version) => self.version(start, end, name),
                Some(Variable::Lost) => self.lost(start, end, name),
                None => {}
            }
        }
    }

    fn version(&mut self, start: usize, end: usize, name: &str) {
        self.notes.report(codes::VERSION, start, end, format!("`{name}` holds a CUDA or nvcc version"), None);
    }

    fn lost(&mut self, start: usize, end: usize, name: &str) {
        let help = match name {
            "CMAKE_CUDA_SEPARABLE_COMPILATION" | "CUDA_SEPARABLE_COMPILATION" => {
                Some("for relocatable device code, pass `-fgpu-rdc` when compiling and `-fgpu-rdc --hip-link` when linking".into())
            }
            "CMAKE_CUDA_HOST_COMPILER" | "CUDA_HOST_COMPILER" => Some("HIP's compiler also compiles host code".into()),
            _ => None,
        };
        let known = name.starts_with("CMAKE_CUDA_") || MODULE_READS.contains(&name);
        let message = match known {
            true => format!("`{name}` has no HIP equivalent"),
            false => format!("`{name}` is not set in this file; if it is a CMake CUDA variable, it has no HIP equivalent"),
        };
        self.notes.report(codes::VARIABLE, start, end, message, help);
    }

    /// Converts a variable named without `${…}`: in `set`, `if`, `list`.
    pub(super) fn variable_name(&mut self, argument: &Argument<'a>) {
        let name = argument.text;
        if self.facts.own.contains(name) && !is_read(name) {
            return;
        }
        match variable(name) {
            Some(Variable::Is(new)) if !new.contains('}') => self.rewrite(argument, new),
            Some(Variable::Version) => self.version(argument.start, argument.end, name),
            Some(Variable::Library(Mapping::Becomes(library))) => {
                let message = format!("`{name}` is not set for HIP");
                self.notes.report(
                    codes::VARIABLE,
                    argument.start,
                    argument.end,
                    message,
                    Some(format!("use the target `{}`", library.target).into()),
                );
            }
            Some(_) => self.lost(argument.start, argument.end, name),
            None => {}
        }
    }

    /// Converts a toolkit subfolder at `start` after a variable.
    fn below(&mut self, argument: &Argument<'a>, start: usize) {
        let rest = &argument.text[start - argument.at..];
        match below_toolkit(rest) {
            Some((length, "/bin/hipcc")) => self.notes.replace(start, start + length, "/llvm/bin/clang++"),
            Some((length, folder)) if rest[..length] != *folder => self.notes.replace(start, start + length, folder),
            Some(_) => {}
            None => self.notes.report(codes::PATH, start, argument.end, format!("directory `{rest}` has no ROCm equivalent"), None),
        }
    }

    fn environment(&mut self, argument: &Argument<'a>) {
        for name in ["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT", "CUDA_TOOLKIT_ROOT_DIR"] {
            for (at, found) in argument.text.match_indices(&format!("ENV{{{name}}}")) {
                let start = argument.at + at + 4;
                self.notes.replace(start, start + found.len() - 5, "ROCM_PATH");
                self.below(argument, argument.at + at + found.len());
            }
        }
    }

    fn expressions(&mut self, argument: &Argument<'a>) {
        let text = argument.text;
        for front in ["COMPILE_LANGUAGE:", "LINK_LANGUAGE:", "COMPILE_LANG_AND_ID:", "LINK_LANG_AND_ID:"] {
            for (at, _) in text.match_indices(front) {
                let list = at + front.len();
                let length = text[list..].find('>').unwrap_or(text.len() - list);
                let items = &text[list..list + length];
                let both = items.split(',').any(|item| item == "HIP");
                let mut place = list;
                for item in items.split(',') {
                    let start = argument.at + place;
                    if item == "CUDA" && !both {
                        self.notes.replace(start, start + 4, "HIP");
                    } else if item == "NVIDIA" && front.ends_with("ID:") {
                        self.notes.replace(start, start + 6, "Clang");
                    }
                    place += item.len() + 1;
                }
            }
        }
        for (at, found) in text.match_indices("CUDA_COMPILER_ID:NVIDIA") {
            let start = argument.at + at;
            self.notes.replace(start, start + found.len(), "HIP_COMPILER_ID:Clang");
        }
        for (at, found) in text.match_indices("CUDA_COMPILER_VERSION:") {
            self.version(argument.at + at, argument.at + at + found.len(), "CUDA_COMPILER_VERSION");
        }
        for (at, _) in names_from(text, "cuda_std_") {
            self.notes.replace(argument.at + at, argument.at + at + 4, "hip");
        }
    }

    fn targets(&mut self, command: &Command<'a>, argument: &Argument<'a>) {
        let text = argument.text;
        for (at, _) in text.match_indices("CUDA::") {
            let name = &text[at + 6..];
            let name = &name[..name.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count()];
            let start = argument.at + at;
            let mut place = (start, start + 6 + name.len());
            // `CUDA::cublas${STATIC}`: ROCm's targets have no such endings.
            let rest = &text[at + 6 + name.len()..];
            if let Some(length) = rest.strip_prefix("${").and_then(|rest| rest.find('}')) {
                let message = format!("`{}` removed; ROCm targets have no such suffix", &rest[..length + 3]);
                self.notes.report(codes::VARIABLE, place.1, place.1 + length + 3, message, None);
                place.1 += length + 3;
            }
            match libraries::find(name) {
                Some(mapping) => self.library(command, argument, place, name, mapping),
                None => self.notes.report(codes::LIBRARY, place.0, place.1, format!("`CUDA::{name}` has no ROCm equivalent"), None),
            }
        }
    }

    /// Replaces `place` with the target of a library.
    pub(super) fn library(&mut self, command: &Command<'a>, argument: &Argument<'a>, place: (usize, usize), name: &str, mapping: Mapping) {
        let whole = place.0 == argument.at && place.1 == argument.at + argument.text.len();
        match mapping {
            Mapping::Becomes(library) => {
                self.need_package(library.package, command);
                let first = command.arguments.iter().find(|other| names_library(other.text, library.target));
                // Two CUDA libraries may map to one HIP library: list it once.
                if whole && first.is_some_and(|first| first.start < argument.start) {
                    self.remove(argument);
                } else {
                    self.notes.replace(place.0, place.1, library.target);
                }
            }
            Mapping::NotNeeded if whole => self.remove(argument),
            Mapping::NotNeeded => self.notes.replace(place.0, place.1, ""),
            Mapping::Missing(near) => {
                self.notes.report(codes::LIBRARY, place.0, place.1, format!("`{name}` has no ROCm equivalent"), Some(near.into()));
            }
        }
    }

    /// Converts a property name. Returns whether it is a CUDA property.
    pub(super) fn property(&mut self, argument: &Argument<'a>) -> bool {
        let name = argument.text;
        if LOST_PROPERTIES.contains(&name) {
            let help = match name {
                "CUDA_SEPARABLE_COMPILATION" | "CUDA_RESOLVE_DEVICE_SYMBOLS" => Some("use `-fgpu-rdc` when compiling and linking".into()),
                _ => None,
            };
            self.notes.report(codes::PROPERTY, argument.start, argument.end, format!("`{name}` has no HIP equivalent"), help);
            return true;
        }
        let Some(rest) = name.strip_prefix("CUDA_").filter(|rest| PROPERTIES.contains(rest)) else { return false };
        self.rewrite(argument, format!("HIP_{rest}"));
        true
    }
}

/// Whether an argument becomes this target.
fn names_library(text: &str, target: &str) -> bool {
    let mapping = match text.strip_prefix("CUDA::") {
        Some(name) => libraries::find(name),
        None => text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}')).and_then(libraries::of_variable),
    };
    matches!(mapping, Some(Mapping::Becomes(library)) if library.target == target)
}

/// CMake's HIP language needs clang itself, not hipcc.
fn compiler_path(path: String) -> String {
    path.strip_suffix("/bin/hipcc").map_or(path.clone(), |root| format!("{root}/llvm/bin/clang++"))
}
