//! nvcc flags and their HIP equivalents.

use std::collections::HashSet;

use super::codes;
use super::notes::Notes;

/// A word of a command line, with its span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Word<'a> {
    pub start: usize,
    pub end: usize,
    /// Without its quotes.
    pub text: &'a str,
}

/// The conversion of a flag.
#[derive(Clone, Copy)]
enum Mapping {
    /// Becomes another flag.
    Is(&'static str),
    /// Removed without loss.
    Dropped,
    /// Removed; the closest alternative.
    Lost(&'static str),
    /// Kept; the output it requests.
    Kept(&'static str),
}
use Mapping::{Dropped, Is, Kept, Lost};

/// Flags without a value. Those marked `true` exist in other programs too, so they are converted only where nvcc is called.
const PLAIN: &[(&str, bool, Mapping)] = &[
    ("--expt-relaxed-constexpr", false, Dropped),
    ("-expt-relaxed-constexpr", false, Dropped),
    ("--expt-extended-lambda", false, Dropped),
    ("-expt-extended-lambda", false, Dropped),
    ("--extended-lambda", false, Dropped),
    ("-extended-lambda", false, Dropped),
    ("-forward-unknown-to-host-compiler", false, Dropped),
    ("--forward-unknown-to-host-compiler", false, Dropped),
    ("-allow-unsupported-compiler", false, Dropped),
    ("--allow-unsupported-compiler", false, Dropped),
    ("-Wno-deprecated-gpu-targets", false, Dropped),
    ("--Wno-deprecated-gpu-targets", false, Dropped),
    ("--source-in-ptx", false, Dropped),
    ("-src-in-ptx", false, Dropped),
    ("--display-error-number", false, Dropped),
    ("--no-host-device-initializer-list", false, Dropped),
    ("--forward-unknown-to-host-linker", false, Dropped),
    ("-forward-unknown-to-host-linker", false, Dropped),
    ("--extra-device-vectorization", false, Dropped),
    ("--Wext-lambda-captures-this", false, Dropped),
    ("--disable-warnings", true, Is("-w")),
    ("-disable-warnings", true, Is("-w")),
    ("--profile", true, Is("-pg")),
    ("--lib", true, Kept("an archive of device code; build it with `ar`")),
    ("-lib", true, Kept("an archive of device code; build it with `ar`")),
    ("--dlink-time-opt", false, Is("-foffload-lto")),
    ("-dlto", false, Is("-foffload-lto")),
    ("--use_fast_math", false, Is("-ffast-math")),
    ("-use_fast_math", false, Is("-ffast-math")),
    ("-lineinfo", false, Is("-gline-tables-only")),
    ("--generate-line-info", false, Is("-gline-tables-only")),
    ("--device-debug", false, Is("-ggdb")),
    ("-G", true, Is("-ggdb")),
    ("--device-c", false, Is("-fgpu-rdc -c")),
    ("-dc", true, Is("-fgpu-rdc -c")),
    ("--resource-usage", false, Is("-Rpass-analysis=kernel-resource-usage")),
    ("-res-usage", false, Is("-Rpass-analysis=kernel-resource-usage")),
    ("--keep", true, Is("--save-temps")),
    ("-keep", true, Is("--save-temps")),
    ("--dryrun", true, Is("-###")),
    ("-dryrun", true, Is("-###")),
    ("--restrict", true, Lost("add `__restrict__` to the kernel's pointers")),
    ("-restrict", true, Lost("add `__restrict__` to the kernel's pointers")),
    ("--device-link", false, Kept("a separate device link step; with `-fgpu-rdc` it is part of linking")),
    ("-dlink", false, Kept("a separate device link step; with `-fgpu-rdc` it is part of linking")),
    ("--ptx", true, Kept("PTX")),
    ("-ptx", true, Kept("PTX")),
    ("--cubin", true, Kept("a cubin")),
    ("-cubin", true, Kept("a cubin")),
    ("--fatbin", true, Kept("a fatbin")),
    ("-fatbin", true, Kept("a fatbin")),
];

/// The names of a flag, whether it is converted only where nvcc is called, and the conversion of each value, `*` for any.
type Valued = (&'static [&'static str], bool, &'static [(&'static str, Mapping)]);

/// Flags with a value, `--flag=value` or `--flag value`.
const VALUED: &[Valued] = &[
    (&["-rdc", "--relocatable-device-code"], false, &[("true", Is("-fgpu-rdc")), ("false", Is("-fno-gpu-rdc"))]),
    // hipcc fuses by default; `-ffp-contract=fast` would also fuse inside the math library.
    (&["-fmad", "--fmad"], false, &[("true", Dropped), ("false", Is("-ffp-contract=off"))]),
    (&["-ftz", "--ftz"], false, &[("true", Is("-fgpu-flush-denormals-to-zero")), ("false", Dropped)]),
    (
        &["-prec-div", "--prec-div", "-prec-sqrt", "--prec-sqrt"],
        false,
        &[("false", Is("-fno-hip-fp32-correctly-rounded-divide-sqrt")), ("true", Dropped)],
    ),
    (
        &["-default-stream", "--default-stream"],
        false,
        &[("per-thread", Is("-fgpu-default-stream=per-thread")), ("legacy", Is("-fgpu-default-stream=legacy")), ("null", Dropped)],
    ),
    (&["-maxrregcount", "--maxrregcount"], false, &[("*", Lost("use `__launch_bounds__`, or `--gpu-max-threads-per-block=N`"))]),
    (
        &["-Xptxas", "--ptxas-options"],
        false,
        &[("-v", Is("-Rpass-analysis=kernel-resource-usage")), ("*", Lost("this is a PTX assembler option"))],
    ),
    (&["-Xnvlink", "--nvlink-options", "-Xfatbin", "--fatbin-options", "-Xnvvm"], false, &[("*", Dropped)]),
    (&["-Xcudafe", "--Xcudafe", "-diag-suppress", "--diag-suppress", "-diag-warn", "--diag-warn"], false, &[("*", Dropped)]),
    (&["-ccbin", "--compiler-bindir"], false, &[("*", Lost("HIP compiles host code with clang; a host compiler cannot be selected"))]),
    (&["-m", "--machine"], true, &[("64", Dropped)]),
    (&["-dopt", "--dopt", "-split-compile", "--split-compile"], true, &[("*", Dropped)]),
    (&["-odir", "--output-directory"], true, &[("*", Lost("name each output file with `-o`"))]),
    (&["-cudart", "--cudart"], false, &[("*", Dropped)]),
    (&["-t", "--threads"], true, &[("*", Lost("`-parallel-jobs=N` compiles for several architectures in parallel"))]),
    (&["-x"], true, &[("cu", Is("-x hip"))]),
    (&["-Werror", "--Werror"], false, &[("cross-execution-space-call", Dropped), ("all-warnings", Is("-Werror"))]),
];

/// Flags with the target GPUs.
const ARCHITECTURES: &[&str] = &["-arch", "--gpu-architecture", "-code", "--gpu-code", "-gencode", "--generate-code"];

/// Converts flags.
pub(super) struct Flags<'a> {
    pub notes: &'a mut Notes,
    /// The whole file.
    pub text: &'a str,
    /// Whether the words are definitely for nvcc.
    pub nvcc: bool,
    /// Whether the file calls nvcc, so that `-arch=$(ARCH)` is for it.
    pub calls_nvcc: bool,
    /// Variables that the file sets to an NVIDIA architecture, which is converted there.
    pub set_here: &'a HashSet<&'a str>,
    pub offload_arch: &'a [String],
    /// Whether this command line has its list of GPUs already.
    pub has_architectures: bool,
    /// The separator of flags: a space, or `;` in a CMake list.
    pub separator: &'a str,
}

/// The value of a flag, and whether it is the next word.
fn value<'w>(words: &[Word<'w>], index: usize, names: &[&str]) -> Option<(&'w str, bool)> {
    let text = words[index].text;
    for name in names {
        if text == *name {
            return words.get(index + 1).map(|next| (next.text, true));
        }
        if let Some(value) = text.strip_prefix(name).and_then(|rest| rest.strip_prefix('=')) {
            return Some((value.trim_matches(['"', '\'']), false));
        }
    }
    None
}

impl Flags<'_> {
    /// Converts the flags among these words.
    pub fn convert(&mut self, words: &[Word<'_>]) {
        let mut index = 0;
        while index < words.len() {
            index += self.one(words, index).max(1);
        }
    }

    /// Returns the number of words used; 0 if the word is not an nvcc flag.
    fn one(&mut self, words: &[Word<'_>], index: usize) -> usize {
        let word = &words[index];
        if let Some((_, weak, mapping)) = PLAIN.iter().find(|(flag, ..)| *flag == word.text) {
            if *weak && !self.nvcc {
                return 0;
            }
            self.apply(word.start, word.end, word.text, *mapping);
            return 1;
        }
        let used = self.architectures(words, index);
        if used > 0 {
            return used;
        }
        let host = [("-Xcompiler", ""), ("--compiler-options", ""), ("-Xlinker", "-Wl,"), ("--linker-options", "-Wl,")];
        for (name, front) in host {
            // A value that starts with a comma belongs to a Make function.
            if let Some((text, next)) = value(words, index, &[name]).filter(|(text, _)| !text.starts_with(',')) {
                return self.unwrap(words, index, text, next, front);
            }
        }
        if let Some((text, true)) = value(words, index, &["-std", "--std"]).filter(|(text, _)| text.contains("++")) {
            self.notes.replace(word.start, word.end, format!("-std={text}"));
            self.notes.remove(self.text, words[index + 1].start, words[index + 1].end);
            return 2;
        }
        for (names, weak, fates) in VALUED {
            if *weak && !self.nvcc {
                continue;
            }
            let Some((text, next)) = value(words, index, names) else { continue };
            let Some((_, mapping)) = fates.iter().find(|(wanted, _)| *wanted == text || *wanted == "*") else { continue };
            let end = if next { words[index + 1].end } else { word.end };
            let shown = if next { format!("{} {text}", word.text) } else { word.text.to_owned() };
            // Two words may be two arguments, or quoted separately: handle each by itself.
            if next {
                self.apply(word.start, word.end, &shown, *mapping);
                self.notes.remove(self.text, words[index + 1].start, end);
                return 2;
            }
            self.apply(word.start, end, &shown, *mapping);
            return 1;
        }
        0
    }

    fn apply(&mut self, start: usize, end: usize, flag: &str, mapping: Mapping) {
        match mapping {
            Is(new) => self.notes.replace(start, end, new.replace(' ', self.separator)),
            Dropped => {
                self.notes.report(codes::FLAG_DROPPED, start, end, format!("`{flag}` removed; HIP does not need it"), None);
                self.notes.remove(self.text, start, end);
            }
            Lost(near) => {
                let message = format!("`{flag}` removed; HIP has no such flag");
                self.notes.report(codes::FLAG_LOST, start, end, message, Some(near.into()));
                self.notes.remove(self.text, start, end);
            }
            Kept(what) => {
                let message = format!("`{flag}` requests {what}");
                self.notes.report(codes::FLAG_KEPT, start, end, message, Some("rewrite this step; `--genco` builds a code object".into()));
            }
        }
    }

    /// `-Xcompiler -Wall,-fPIC` is `-Wall -fPIC`.
    fn unwrap(&mut self, words: &[Word<'_>], index: usize, text: &str, next: bool, front: &str) -> usize {
        let word = &words[index];
        let flags: Vec<String> = text
            .split([',', ' '])
            .map(|flag| flag.trim_matches(['"', '\'', '\\']))
            .filter(|flag| !flag.is_empty())
            .map(|flag| if flag.starts_with("-Wl,") { flag.to_owned() } else { format!("{front}{flag}") })
            .collect();
        let flags = flags.join(self.separator);
        if next {
            self.notes.remove(self.text, word.start, word.end);
            let value = &words[index + 1];
            self.notes.replace(value.start, value.end, flags);
            return 2;
        }
        self.notes.replace(word.start, word.end, flags);
        1
    }

    fn architectures(&mut self, words: &[Word<'_>], index: usize) -> usize {
        let word = &words[index];
        let Some((text, next)) = value(words, index, ARCHITECTURES) else { return 0 };
        let nvidia = ["sm_", "compute_", "arch=", "[arch=", "all", "native"].iter().any(|front| text.starts_with(front));
        let variable = text.starts_with('$');
        if !nvidia && !(variable && (self.nvcc || self.calls_nvcc)) {
            return 0;
        }
        let end = if next { words[index + 1].end } else { word.end };
        let used = 1 + usize::from(next);
        if variable {
            if !self.set_here.contains(text.trim_matches(['$', '(', ')', '{', '}'])) {
                let message = format!("`{text}` must hold an AMD architecture");
                self.notes.report(codes::ARCHITECTURE_VARIABLE, word.start, end, message, Some("for example `gfx90a`".into()));
            }
            let new = format!("--offload-arch={text}");
            self.notes.replace(word.start, word.end, new);
        } else if self.has_architectures {
            self.notes.remove(self.text, word.start, word.end);
        } else {
            self.has_architectures = true;
            let list: Vec<String> = self.offload_arch.iter().map(|target| format!("--offload-arch={target}")).collect();
            self.notes.report(
                codes::ARCHITECTURES,
                word.start,
                end,
                format!("`{}` replaced by {}", if next { format!("{} {text}", word.text) } else { word.text.to_owned() }, list.join(" ")),
                None,
            );
            self.notes.replace(word.start, word.end, list.join(self.separator));
        }
        if next {
            self.notes.remove(self.text, words[index + 1].start, end);
        }
        used
    }
}

/// Splits a text into words at white space (and at `more`); quotes are not part of a word's text.
pub(super) fn words<'a>(text: &'a str, offset: usize, more: &[char]) -> Vec<Word<'a>> {
    let bytes = text.as_bytes();
    let cuts = |byte: u8| byte.is_ascii_whitespace() || more.contains(&char::from(byte));
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        if cuts(bytes[at]) || bytes[at] == b'\\' && bytes.get(at + 1).is_some_and(|next| matches!(next, b'\n' | b'\r')) {
            at += 1;
            continue;
        }
        let start = at;
        let mut quote = None;
        while at < bytes.len() {
            match (quote, bytes[at]) {
                (Some(open), byte) if byte == open => quote = None,
                (None, byte @ (b'"' | b'\'')) if text[at + 1..].contains(char::from(byte)) => quote = Some(byte),
                (None, byte) if cuts(byte) => break,
                _ => {}
            }
            at += 1;
        }
        let whole = &text[start..at];
        let bare = |mark: char| whole.len() >= 2 && whole.starts_with(mark) && whole.ends_with(mark) && whole.matches(mark).count() == 2;
        let inner = if bare('"') || bare('\'') { &whole[1..whole.len() - 1] } else { whole };
        found.push(Word { start: offset + start, end: offset + at, text: inner });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hip(line: &str) -> String {
        let mut notes = Notes::default();
        let targets = ["gfx90a".to_owned(), "gfx1100".to_owned()];
        let mut flags = Flags {
            notes: &mut notes,
            text: line,
            nvcc: true,
            calls_nvcc: true,
            set_here: &HashSet::new(),
            offload_arch: &targets,
            has_architectures: false,
            separator: " ",
        };
        flags.convert(&words(line, 0, &[]));
        String::from_utf8(notes.finish(line.as_bytes()).output).unwrap()
    }

    #[test]
    fn flags_become_hips_and_others_stay() {
        let both = "--offload-arch=gfx90a --offload-arch=gfx1100";
        for (nvcc, expected) in [
            ("-O3 -std=c++17 -Wall -I. -DX=1", "-O3 -std=c++17 -Wall -I. -DX=1"),
            ("-O3 -arch=sm_70 -g", &format!("-O3 {both} -g")),
            ("-arch sm_70", both),
            ("-gencode arch=compute_70,code=sm_70 -gencode=arch=compute_80,code=sm_80 -g", &format!("{both} -g")),
            ("-arch=$(ARCH)", "--offload-arch=$(ARCH)"),
            ("-Xcompiler -fPIC -g", "-fPIC -g"),
            ("-Xcompiler \"-Wall -fPIC\"", "-Wall -fPIC"),
            ("-Xcompiler=-Wall,-Wextra", "-Wall -Wextra"),
            ("--compiler-options '-fopenmp'", "-fopenmp"),
            ("-Xlinker -rpath,/x", "-Wl,-rpath -Wl,/x"),
            ("--expt-relaxed-constexpr -O2 --extended-lambda", "-O2"),
            ("--use_fast_math -lineinfo -rdc=true", "-ffast-math -gline-tables-only -fgpu-rdc"),
            ("-dc a.cu", "-fgpu-rdc -c a.cu"),
            ("-Xptxas -v -maxrregcount=32 -O1", "-Rpass-analysis=kernel-resource-usage -O1"),
            ("--default-stream per-thread -x cu -ccbin g++ f", "-fgpu-default-stream=per-thread -x hip f"),
            ("-ptx a.cu", "-ptx a.cu"),
            ("--std c++20 --machine 64 -m 64 x", "-std=c++20 x"),
        ] {
            assert_eq!(hip(nvcc).trim(), expected, "{nvcc}");
            assert_eq!(hip(&hip(nvcc)), hip(nvcc), "{nvcc}");
        }
    }
}
