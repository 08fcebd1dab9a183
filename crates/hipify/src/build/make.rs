//! Makefiles: nvcc and its flags, libraries, the toolkit's folder.

use std::collections::HashSet;

use super::flags::{Flags, Word, words};
use super::libraries::{self, Mapping};
use super::notes::Notes;
use super::{BuildOptions, below_toolkit, codes, is_whole, names_from, toolkit_path};
use crate::translate::Translation;

/// Tools of the toolkit that a build may call.
const TOOLS: &[&str] =
    &["cuda-gdb", "cuda-memcheck", "compute-sanitizer", "cuobjdump", "nsys", "ncu", "nvdisasm", "nvlink", "nvprof", "ptxas"];

/// Variables for the CUDA toolkit folder, and for ROCm's.
const FOLDERS: &[(&str, &str)] = &[("CUDA_HOME", "ROCM_PATH"), ("CUDA_PATH", "HIP_PATH")];

/// Converts a file; `text` is the source with non-ASCII bytes masked.
pub(super) fn convert(source: &[u8], text: &str, options: &BuildOptions) -> Translation {
    let mut notes = Notes::default();
    let lines = lines(text);
    let line = |place: &(usize, usize)| &text[place.0..place.1.max(place.0)];
    let find = |words: &[&str]| {
        let in_line = |place: &(usize, usize)| words.iter().find_map(|word| Some((place.0 + line(place).find(word)?, word.len())));
        lines.iter().find_map(in_line)
    };
    let hip = find(&["hipcc", "amdhip64", "--offload-arch", "HIPCC"]);
    if let Some((hip, _)) = hip {
        if let Some((at, length)) = find(&["nvcc", "-lcudart", "CUDA_HOME", "CUDA_PATH", "-lcublas"]) {
            let line = text[..hip].matches('\n').count() + 1;
            let message = format!("uses CUDA, but line {line} uses HIP already; file left unchanged");
            notes.report(codes::PORTED, at, at + length, message, None);
        }
        return notes.finish(source);
    }
    let calls_nvcc = lines.iter().any(|place| names_from(line(place), "nvcc").next().is_some() || line(place).contains("(NVCC"));
    let mut convert =
        Convert { text, options, notes, calls_nvcc, compiler_is_nvcc: false, assigned: HashSet::new(), set_here: HashSet::new() };
    for place in &lines {
        let Some((name, value)) = assignment(line(place)) else { continue };
        convert.assigned.insert(name);
        convert.compiler_is_nvcc |= matches!(name, "CC" | "CXX" | "LD" | "LINK") && (value.contains("nvcc") || value.contains("NVCC"));
        if value.contains("sm_") || value.contains("compute_") {
            convert.set_here.insert(name);
        }
    }
    for (start, end) in lines {
        convert.line(start, end);
    }
    convert.notes.finish(source)
}

/// Lines with their continuations, without comments.
fn lines(text: &str) -> Vec<(usize, usize)> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let (mut start, mut at, mut comment) = (0, 0, None);
    while at <= bytes.len() {
        match bytes.get(at) {
            Some(b'\\') if bytes.get(at + 1).is_some_and(|next| matches!(next, b'\n' | b'#')) => at += 1,
            Some(b'\\') if bytes[at + 1..].starts_with(b"\r\n") => at += 2,
            Some(b'#') if comment.is_none() => comment = Some(at),
            Some(b'\n') | None => {
                found.push((start, comment.unwrap_or(at)));
                (start, comment) = (at + 1, None);
            }
            _ => {}
        }
        at += 1;
    }
    found
}

/// `NAME ?= value`, with or without `export`.
fn assignment(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once('=')?;
    let name = name.trim_end_matches([':', '?', '+', ' ', '\t']).trim_start();
    Some((name.trim_start_matches("export ").trim_start_matches("override ").trim(), value))
}

struct Convert<'a> {
    text: &'a str,
    options: &'a BuildOptions,
    notes: Notes,
    /// Whether the file calls nvcc.
    calls_nvcc: bool,
    /// Whether `CC` or the like is nvcc, so that all flags are for it.
    compiler_is_nvcc: bool,
    /// Variables that the file sets, and those among them that hold an architecture.
    assigned: HashSet<&'a str>,
    set_here: HashSet<&'a str>,
}

impl Convert<'_> {
    fn line(&mut self, start: usize, end: usize) {
        let line = &self.text[start..end.max(start)];
        if line.trim().is_empty() {
            return;
        }
        let words = words(line, start, &[]).into_iter().map(|word| trimmed(without_continuation(word, line, start)));
        let words: Vec<Word<'_>> = words.collect();
        let calls = |name: &str| {
            name.contains("NVCC")
                || name.contains("CCFLAGS")
                || name.contains("NVFLAGS")
                || name.contains("GENCODE")
                || name.contains("CUDA")
        };
        let assigned = assignment(line).map_or("", |(name, _)| name);
        let general = assigned.ends_with("FLAGS") || ["$(CC)", "$(CXX)", "$(LD)", "${CC}", "${CXX}"].iter().any(|name| line.contains(name));
        let nvcc = calls(assigned)
            || self.compiler_is_nvcc && general
            || names_from(line, "nvcc").next().is_some()
            || line.contains("$(NVCC")
            || line.contains("${NVCC");
        let mut flags = Flags {
            notes: &mut self.notes,
            text: self.text,
            nvcc,
            calls_nvcc: self.calls_nvcc,
            set_here: &self.set_here,
            offload_arch: &self.options.offload_arch,
            has_architectures: false,
            separator: " ",
        };
        flags.convert(&words);
        self.host_prefix(line, start);
        self.libraries(&words);
        self.architecture_names(assigned, &words);
        self.paths(line, start);
        for (at, found) in names_from(line, "nvcc") {
            // `nvcc` itself, not a file or folder of that name.
            if found == "nvcc" && !matches!(line.as_bytes().get(at + 4), Some(b'.' | b'-' | b'/')) && !line[..at].ends_with(['.', '-']) {
                self.notes.replace(start + at, start + at + 4, "hipcc");
            }
        }
        for tool in TOOLS {
            for (at, _) in line.match_indices(tool).filter(|(at, _)| is_whole(line, *at, at + tool.len())) {
                let message = format!("`{tool}` is a CUDA tool");
                self.notes.report(codes::TOOL, start + at, start + at + tool.len(), message, None);
            }
        }
        self.files(line, start);
    }

    /// `$(addprefix -Xcompiler ,$(FLAGS))` is `$(FLAGS)`.
    fn host_prefix(&mut self, line: &str, start: usize) {
        const CALL: &str = "$(addprefix -Xcompiler";
        for (at, _) in line.match_indices(CALL) {
            let Some(rest) = line[at + CALL.len()..].trim_start().strip_prefix(',') else { continue };
            let from = line.len() - rest.len();
            let mut depth = 0;
            // Limits the scan for the closing parenthesis.
            let close = rest.bytes().take(1024).position(|byte| {
                depth += i32::from(byte == b'(') - i32::from(byte == b')');
                depth < 0
            });
            if let Some(close) = close {
                self.notes.replace(start + at, start + from, "");
                self.notes.replace(start + from + close, start + from + close + 1, "");
            }
        }
    }

    fn libraries(&mut self, words: &[Word<'_>]) {
        let mut linked: Vec<&str> = Vec::new();
        for word in words {
            let Some(mapping) = word.text.strip_prefix("-l").and_then(libraries::find) else { continue };
            match mapping {
                Mapping::Becomes(library) if linked.contains(&library.linker) => self.notes.remove(self.text, word.start, word.end),
                Mapping::Becomes(library) => {
                    linked.push(library.linker);
                    self.notes.replace(word.start, word.end, format!("-l{}", library.linker));
                }
                Mapping::NotNeeded => self.notes.remove(self.text, word.start, word.end),
                Mapping::Missing(near) => {
                    let message = format!("`{}` has no ROCm equivalent", word.text);
                    self.notes.report(codes::LIBRARY, word.start, word.end, message, Some(near.into()));
                }
            }
        }
    }

    /// `ARCH = sm_70`: the value of a variable that a flag names elsewhere.
    fn architecture_names(&mut self, assigned: &str, words: &[Word<'_>]) {
        let number = |text: &str| {
            let digits = text.strip_prefix("sm_").or_else(|| text.strip_prefix("compute_"));
            digits.is_some_and(|digits| digits.len() >= 2 && digits.starts_with(|first: char| first.is_ascii_digit()))
        };
        let Some(target) = self.options.offload_arch.first().filter(|_| !assigned.is_empty()) else { return };
        let named: Vec<&Word<'_>> = words.iter().filter(|word| number(word.text.rsplit('=').next().unwrap_or(""))).collect();
        // Values of flags are converted with the flag.
        for word in named.into_iter().filter(|word| !word.text.starts_with('-')) {
            let value = word.text.rsplit('=').next().unwrap_or("");
            let before = self.text[..word.start].trim_end();
            if ["-arch", "-code", "-gencode", "--gpu-architecture", "--gpu-code"].iter().any(|flag| before.ends_with(flag))
                || value.contains(',')
                || word.text.starts_with("arch=")
            {
                continue;
            }
            let start = word.end - value.len();
            self.notes.report(codes::ARCHITECTURES, start, word.end, format!("`{value}` replaced by `{target}`"), None);
            self.notes.replace(start, word.end, target.clone());
        }
        let list = ["SMS", "SM", "GENCODE_SM", "CUDA_ARCH", "CUDA_ARCHS", "SM_ARCH", "COMPUTE_CAPABILITY"].contains(&assigned);
        let plain = |word: &&Word<'_>| word.text.len() >= 2 && word.text.bytes().all(|byte| byte.is_ascii_digit());
        if let Some(word) = words.iter().find(plain).filter(|_| list) {
            let message = format!("`{assigned}` holds NVIDIA compute capabilities");
            self.notes.report(codes::ARCHITECTURE_VARIABLE, word.start, word.end, message, Some(format!("for example `{target}`").into()));
        }
    }

    fn paths(&mut self, line: &str, start: usize) {
        for front in ["/usr/local/cuda", "/opt/cuda"] {
            for (at, _) in line.match_indices(front) {
                match toolkit_path(&line[at..]) {
                    Some((length, new)) => self.notes.replace(start + at, start + at + length, new),
                    None => {
                        let length = line[at..].bytes().take_while(|byte| !byte.is_ascii_whitespace()).count();
                        let message = format!("path `{}` has no known ROCm equivalent", &line[at..at + length]);
                        self.notes.report(codes::PATH, start + at, start + at + length, message, None);
                    }
                }
            }
        }
        for (old, new) in FOLDERS {
            for (at, found) in names_from(line, old) {
                if found != *old {
                    continue;
                }
                let end = at + old.len();
                self.notes.replace(start + at, start + end, *new);
                // `$(CUDA_HOME)/lib64`.
                let below = end + usize::from(matches!(line.as_bytes().get(end), Some(b')' | b'}')));
                if below > end {
                    self.below(line, start, below, old);
                }
            }
        }
        for name in ["CUDA_ROOT", "CUDA_DIR", "CUDA_INSTALL_PATH", "CUDA_TOOLKIT_ROOT_DIR", "CUDADIR", "CUDA"] {
            for front in ["$(", "${"] {
                let reference = format!("{front}{name}");
                for (at, _) in line.match_indices(&reference) {
                    let end = at + reference.len();
                    if !matches!(line.as_bytes().get(end), Some(b')' | b'}')) {
                        continue;
                    }
                    self.below(line, start, end + 1, name);
                    if !self.assigned.contains(name) {
                        let message = format!("`{name}` is not set in this file; set it to the ROCm directory");
                        self.notes.report(codes::PATH, start + at, start + end + 1, message, Some("/opt/rocm, or `$(ROCM_PATH)`".into()));
                    }
                }
            }
        }
    }

    /// Converts a subfolder of the toolkit after the variable `name`.
    fn below(&mut self, line: &str, start: usize, at: usize, name: &str) {
        match below_toolkit(&line[at..]) {
            Some((length, folder)) if line[at..at + length] != *folder => self.notes.replace(start + at, start + at + length, folder),
            Some(_) => {}
            None => {
                let length = line[at..].bytes().take_while(|byte| !byte.is_ascii_whitespace()).count();
                let message = format!("`{}` in `{name}` has no ROCm equivalent", &line[at..at + length]);
                self.notes.report(codes::PATH, start + at, start + at + length, message, None);
            }
        }
    }

    /// Renames `.cu` in names and patterns if the files are renamed; hipcc compiles `.cu` as HIP otherwise.
    fn files(&mut self, line: &str, start: usize) {
        let Some(renamed) = &self.options.renamed else { return };
        let mut unknown = Vec::new();
        for (at, _) in line.match_indices(".cu") {
            let end = at + 3;
            if line.as_bytes().get(end).is_some_and(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'/')) {
                continue;
            }
            let from = line[..at]
                .rfind(|byte: char| byte.is_whitespace() || matches!(byte, '/' | '=' | ':' | '(' | ',' | '"' | '\''))
                .map_or(0, |at| at + 1);
            let file = &line[from..end];
            let pattern = file == ".cu" || file.contains(['%', '*', '$', '<', '?', ')', '}']);
            if pattern || renamed.contains(file) {
                self.notes.replace(start + at, start + end, ".hip");
            } else {
                unknown.push((start + from, start + end, file));
            }
        }
        for (from, to, file) in unknown {
            let message = format!("`{file}` was not converted in this run; its name was left as is");
            self.notes.report(codes::SOURCES, from, to, message, Some("convert it too; hipcc compiles `.cu` as HIP".into()));
        }
    }
}

/// Removes the `\\` of a line continuation that touches the word: `-arch=$(ARCH)\\`.
fn without_continuation<'a>(mut word: Word<'a>, line: &str, start: usize) -> Word<'a> {
    let rest = line.get(word.end.saturating_sub(start)..).unwrap_or_default();
    let unquoted = word.end - word.start == word.text.len();
    if unquoted && (rest.starts_with('\n') || rest.starts_with("\r\n")) && word.text.ends_with('\\') {
        word.text = &word.text[..word.text.len() - 1];
        word.end -= 1;
    }
    word
}

/// Removes the closing brackets of functions around a word: `-lcudart))` in `$(if …)`.
fn trimmed(mut word: Word<'_>) -> Word<'_> {
    let mut depth = 0;
    for (at, byte) in word.text.bytes().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' if depth == 0 => {
                if word.end - word.start == word.text.len() {
                    word.end = word.start + at;
                    word.text = &word.text[..at];
                }
                return word;
            }
            b')' => depth -= 1,
            _ => {}
        }
    }
    word
}
