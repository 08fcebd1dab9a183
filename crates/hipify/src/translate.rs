//! Translation of API names: a first pass over the tokens for names, strings and includes, a second pass for what needs the whole file
//! (launches, argument lists, the runtime header).
//!
//! Contract: any bytes are accepted; bytes that no edit touches stay; every CUDA name is translated, kept on purpose, or named in a
//! diagnostic; translating the output again changes nothing.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};

use crate::arguments::Action;
use crate::brackets::Brackets;
use crate::codes::{self, Code};
use crate::diagnostic::Diagnostic;
use crate::edit::Edits;
use crate::headers::CompatibilityHeader;
use crate::include::{REPLACED_BY_COMPATIBILITY, Seen, hip_guard};
use crate::lex::{Kind, Lexed, TooLarge};
use crate::names::{self, Family, Row, flag};
use crate::options::{COMPATIBILITY_HEADER, ExcludedBlocks, Options, RocmVersion, Target};
use crate::preprocessor::{self, platform};
use crate::stats::Stats;
use crate::{half2_members, heuristics};

/// Names of HIP's API later than this are reported for ROCm 6: 5.2, which Linux distributions still have.
const OLDEST_HIP: u32 = 5020;

/// Represents all version macros in the set of reported names.
const VERSION_NOTE: &str = "a version of CUDA";

/// A translated source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Translation {
    /// The new source.
    pub output: Vec<u8>,
    /// The diagnostics, in order of the source.
    pub diagnostics: Vec<Diagnostic>,
    /// Counts.
    pub stats: Stats,
}

/// Translates the names, includes and launches of a source from CUDA to HIP, and nothing else; [`crate::convert`] does the whole work.
///
/// ```
/// use warpwave_hipify::{translate, Options};
/// let hip = translate(b"#include <cuda_runtime.h>\nvoid f(void *p) { cudaFree(p); }\n", &Options::default());
/// assert_eq!(hip.output, b"#include <hip/hip_runtime.h>\nvoid f(void *p) { hipFree(p); }\n");
/// assert!(hip.diagnostics.is_empty());
/// ```
pub fn translate(source: &[u8], options: &Options) -> Translation {
    match Lexed::new(source) {
        Ok(lexed) => translate_lexed(&lexed, options),
        Err(error) => Translation { output: source.to_vec(), diagnostics: vec![too_large(error)], stats: Stats::default() },
    }
}

pub(crate) fn too_large(error: TooLarge) -> Diagnostic {
    let (code, severity) = (codes::TOO_LARGE.number, codes::TOO_LARGE.severity);
    Diagnostic { code, severity, start: 0, end: 0, message: error.to_string().into(), help: None, remedy: None }
}

/// [`translate`] for a lexed source.
pub fn translate_lexed(lexed: &Lexed<'_>, options: &Options) -> Translation {
    let Draft { mut edits, mut diagnostics, mut stats } = Translator::new(lexed, options, None).run();
    stats.count_changes(lexed.source, &mut edits);
    diagnostics.sort_by_key(|diagnostic| (diagnostic.start, diagnostic.code));
    Translation { output: edits.apply(lexed.source), diagnostics, stats }
}

/// A translation whose edits are not applied yet.
pub(crate) struct Draft {
    pub edits: Edits,
    pub diagnostics: Vec<Diagnostic>,
    pub stats: Stats,
}

pub(crate) struct Translator<'a> {
    pub lexed: &'a Lexed<'a>,
    pub options: &'a Options,
    pub brackets: OnceCell<Brackets>,
    pub edits: Edits,
    pub diagnostics: Vec<Diagnostic>,
    pub stats: Stats,
    pub seen: Seen,
    /// Names whose notes were reported: once per file.
    pub noted: HashSet<&'static str>,
    /// Names reported as those of a newer HIP.
    pub newer: HashSet<&'static str>,
    /// Unknown CUDA-like names: first token, count, and whether the file declares them.
    pub unlisted: HashMap<&'a [u8], (usize, usize, bool)>,
    pub launches: Vec<usize>,
    pub calls: Vec<(usize, &'static Row)>,
    pub blas_v1: Vec<(usize, &'static Row)>,
    pub kernels: Vec<usize>,
    pub half2_variables: half2_members::Half2Variables<'a>,
    pub first_include: Option<usize>,
    pub pragma_once: Option<usize>,
    /// The file has device code, so it needs the runtime header.
    pub gpu_code: bool,
    /// The compatibility header is included already, or not used.
    pub has_compatibility: bool,
    /// The compatibility header, if the caller has it.
    pub compatibility: Option<&'a CompatibilityHeader>,
}

impl<'a> Translator<'a> {
    pub(crate) fn new(lexed: &'a Lexed<'a>, options: &'a Options, compatibility: Option<&'a CompatibilityHeader>) -> Translator<'a> {
        Translator {
            lexed,
            options,
            brackets: OnceCell::new(),
            edits: Edits::default(),
            diagnostics: Vec::new(),
            stats: Stats::default(),
            seen: Seen::default(),
            noted: HashSet::new(),
            newer: HashSet::new(),
            unlisted: HashMap::new(),
            launches: Vec::new(),
            calls: Vec::new(),
            blas_v1: Vec::new(),
            kernels: Vec::new(),
            half2_variables: half2_members::Half2Variables::default(),
            first_include: None,
            pragma_once: None,
            gpu_code: false,
            has_compatibility: !options.with_header() || heuristics::includes(lexed, COMPATIBILITY_HEADER),
            compatibility,
        }
    }

    /// Reads the tokens once, then does what needs the whole file.
    pub(crate) fn run(mut self) -> Draft {
        self.first_pass();
        self.second_pass()
    }

    fn first_pass(&mut self) {
        let lexed = self.lexed;
        let excluded = match self.options.excluded {
            ExcludedBlocks::Translated => Vec::new(),
            _ => preprocessor::excluded(lexed, &self.options.defines),
        };
        let mut excluded = excluded.into_iter().peekable();
        let mut ported = if self.options.keep_ported { platform::branches(lexed) } else { Vec::new() }.into_iter().peekable();
        if self.options.blas_v2 {
            self.seen.note_blas_v2();
        }
        let mut index = 0;
        while index < lexed.tokens.len() {
            if let Some(branch) = ported.next_if(|branch| index >= branch.tokens.start) {
                self.note_ported(&branch);
                index = index.max(branch.tokens.end);
                continue;
            }
            let mut left_out = false;
            if let Some(range) = excluded.peek() {
                if index >= range.end {
                    excluded.next();
                    continue;
                }
                if index >= range.start {
                    if self.options.excluded == ExcludedBlocks::Kept {
                        index = range.end;
                        continue;
                    }
                    left_out = true;
                }
            }
            match lexed.tokens[index].kind {
                Kind::Name => self.name(index),
                Kind::String if !lexed.tokens[index].in_directive || !self.after_word(index, b"include") => self.string(index),
                Kind::Punct => match lexed.text(index) {
                    // A condition has no launches.
                    b"<<<" if lexed.tokens[index].in_directive && heuristics::in_condition(lexed, index) => {}
                    b"<<<" => self.launches.push(index),
                    b"." if !self.half2_variables.is_empty() => self.half_member(index),
                    _ => {}
                },
                Kind::Hash if !left_out => self.directive(index),
                _ => {}
            }
            index += 1;
        }
    }

    /// Reports a conditional that was left as is, once.
    fn note_ported(&mut self, branch: &platform::PlatformBranch) {
        let place = branch.conditional + 1;
        let start = self.lexed.tokens.get(place).map(|token| token.start);
        let last = self.diagnostics.iter().rev().find(|told| told.code == codes::PORTED.number);
        if last.is_some_and(|last| Some(last.start) == start) {
            return;
        }
        let chosen = branch.build_macro.map(|token| String::from_utf8_lossy(self.lexed.text(token)).into_owned());
        let help = chosen.map(|name| format!("define `{name}` in the build for AMD").into());
        self.report(codes::PORTED, place, "conditional has a HIP branch; its branches were left as is", help);
    }

    fn after_word(&self, index: usize, word: &[u8]) -> bool {
        index > 0 && self.lexed.is(index - 1, word)
    }

    pub(crate) fn brackets(&self) -> &Brackets {
        self.brackets.get_or_init(|| Brackets::new(self.lexed))
    }

    pub(crate) fn report(&mut self, code: Code, index: usize, message: impl Into<Cow<'static, str>>, help: Option<Cow<'static, str>>) {
        let Some(token) = self.lexed.tokens.get(index) else { return };
        let (start, end) = (token.start, token.end);
        let message = message.into();
        self.diagnostics.push(Diagnostic { code: code.number, severity: code.severity, start, end, message, help, remedy: None });
    }

    // ---- names

    #[inline]
    fn name(&mut self, index: usize) {
        let text = self.lexed.text(index);
        if let Some(row) = names::find(text) {
            self.listed(index, row.for_rocm(self.options.rocm));
            if text == b"__half2" {
                self.half2_variables.declare(self.lexed, index);
            }
        } else if matches!(text[0], b'c' | b'C' | b'n' | b'N' | b'_' | b'h') {
            self.special(index, text);
        }
        if !self.half2_variables.is_empty() {
            self.half2_variables.redeclared(self.lexed, index);
        }
    }

    /// Handles names outside of the table.
    fn special(&mut self, index: usize, text: &'a [u8]) {
        let token = self.lexed.tokens[index];
        if token.in_directive
            && let Some(guard) = hip_guard(self.lexed, index)
        {
            return self.edits.replace(token.start, token.end, guard);
        }
        match text {
            b"__global__" => {
                self.gpu_code = true;
                self.kernels.push(index);
            }
            b"half2" => self.half2_variables.declare(self.lexed, index),
            b"__device__" | b"__host__" | b"__shared__" | b"__constant__" => self.gpu_code = true,
            b"cuda" if index >= 2 && self.lexed.is(index - 1, b"::") && self.lexed.is(index - 2, b"thrust") => {
                self.edits.replace(token.start, token.end, "hip");
            }
            _ if heuristics::is_family_prefix(text) && self.lexed.is(index + 1, b"##") => self.pasted(index, text),
            _ if preprocessor::is_version_macro(text) => self.version_check(index, text),
            _ if heuristics::looks_like_cuda(text) => {
                let declared = heuristics::declares(self.lexed, index);
                let entry = self.unlisted.entry(text).or_insert((index, 0, false));
                entry.1 += 1;
                entry.2 |= declared;
            }
            _ => {}
        }
    }

    fn pasted(&mut self, index: usize, text: &[u8]) {
        let message = format!("`##` builds a CUDA name from `{}`; the resulting name cannot be looked up", String::from_utf8_lossy(text));
        self.report(codes::PASTED, index, message, None);
    }

    /// Reports a CUDA version macro in a condition, once per file.
    fn version_check(&mut self, index: usize, text: &[u8]) {
        let in_condition = self.lexed.tokens[index].in_directive && heuristics::in_condition(self.lexed, index);
        if in_condition && self.noted.insert(VERSION_NOTE) {
            let message = format!("HIP does not define `{}`; this condition evaluates it as 0", String::from_utf8_lossy(text));
            self.report(codes::VERSION_CHECK, index, message, None);
        }
    }

    /// Handles a name of the table.
    pub(crate) fn listed(&mut self, index: usize, row: &'static Row) {
        let family = row.family();
        // `cub` is the namespace only before `::`.
        if row.cuda() == "cub" && !self.lexed.is(index + 1, b"::") && !self.after_word(index, b"namespace") {
            return;
        }
        if family == Family::Device {
            // `min` may be any name; only a call is CUDA's.
            if row.is_function() && !heuristics::calls(self.lexed, index) {
                return;
            }
            if self.keeps_device_name(row) {
                return;
            }
            if row.is_unsupported(self.options.target) {
                self.stats.untranslated[family as usize] += 1;
                let message = format!("HIP has no device function or type `{}`", row.cuda());
                return self.report(codes::DEVICE_FUNCTION, index, message, self.use_rocm_7(row));
            }
        }
        if self.blocked(index, row) {
            return;
        }
        self.notes(index, row);
        if heuristics::pasted(self.lexed, index) {
            self.pasted(index, row.cuda().as_bytes());
        }
        self.stats.translated[family as usize] += 1;
        let new = self.new_name(index, row);
        if !row.rules().is_empty() {
            self.calls.push((index, row));
        }
        if new != row.cuda() {
            let token = self.lexed.tokens[index];
            self.edits.replace(token.start, token.end, new);
        }
    }

    /// Whether the compatibility header supplies a device type or function under its CUDA name, which then stays.
    pub(crate) fn keeps_device_name(&self, row: &Row) -> bool {
        let renamed = row.translated(self.options.target) != row.cuda();
        let supplied = || self.compatibility.is_none_or(|header| header.supplies(row.cuda().as_bytes()));
        self.options.with_header() && (!row.is_function() || renamed && !row.is_unsupported(self.options.target)) && supplied()
    }

    /// The replacement of the name at `index`.
    pub(crate) fn new_name(&self, index: usize, row: &'static Row) -> &'static str {
        let target = self.options.target;
        if self.options.hip_data_types && (row.hip() == "hipDataType" || row.roc().starts_with("rocblas_datatype_")) {
            return row.hip();
        }
        let count_rule = row.rules().iter().find(|rule| rule.action == Action::RenameIfCount);
        if let Some(rule) = count_rule.filter(|_| target == Target::Hip || row.roc().is_empty()) {
            let count = self.argument_list(index).map(|(_, arguments)| arguments.len());
            if count == Some(usize::from(rule.argument)) {
                return rule.text;
            }
        }
        row.translated(target)
    }

    /// Whether a name stays as is; reports the reason.
    fn blocked(&mut self, index: usize, row: &'static Row) -> bool {
        let target = self.options.target;
        let side = if row.uses_roc(target) { "ROCm" } else { "HIP" };
        let family = row.family();
        if row.flags & flag::EXPERIMENTAL != 0 && !self.options.experimental {
            let message = format!("`{}` is experimental in {side}", row.cuda());
            self.report(codes::EXPERIMENTAL, index, message, Some("pass `--experimental` to translate it".into()));
        } else if row.flags & flag::V2_ONLY != 0 && family == Family::Blas && !self.seen.has_blas_v2() {
            // The header may come later.
            self.blas_v1.push((index, row));
            return true;
        } else if row.is_unsupported(target) {
            let message = format!("`{}` ({}) has no {side} equivalent", row.cuda(), family.title());
            let help = if !row.uses_roc(target) && !row.roc().is_empty() && row.flags & (flag::NO_ROC | flag::NONE) == 0 {
                format!("{} has `{}`; use `--roc`", family.title().replacen("cu", "ROCm's ", 1), row.roc()).into()
            } else {
                Cow::Borrowed("guard it with `#ifdef __HIP_PLATFORM_NVIDIA__`, or rewrite this part")
            };
            self.report(codes::UNSUPPORTED, index, message, Some(help));
        } else {
            return false;
        }
        self.stats.untranslated[family as usize] += 1;
        true
    }

    /// Reports deprecations, removals and names of newer versions, once per name.
    fn notes(&mut self, index: usize, row: &'static Row) {
        let new = row.translated(self.options.target);
        let [since, _, removed_in] = row.hip_versions();
        let oldest = match self.options.rocm {
            RocmVersion::V6 if matches!(row.family(), Family::Runtime | Family::Driver) => OLDEST_HIP,
            rocm => rocm.hip(),
        };
        if since > oldest && new == row.hip() && row.flags & flag::HIP_REMOVED == 0 && self.newer.insert(row.cuda()) {
            let message = format!("`{new}` requires HIP {}.{} or later", since / 1000, since % 1000 / 10);
            self.report(codes::NEWER_HIP, index, message, None);
        }
        let all = flag::CUDA_DEPRECATED
            | flag::HIP_DEPRECATED
            | flag::ROC_DEPRECATED
            | flag::DEPRECATED
            | flag::CUDA_REMOVED
            | flag::HIP_REMOVED
            | flag::ROC_REMOVED
            | flag::REMOVED;
        if row.flags & all == 0 || !self.noted.insert(row.cuda()) {
            return;
        }
        let own = row.family().has_own_versions();
        let product = if own { row.family().title() } else { "CUDA" };
        let cuda = |which: usize| match row.cuda_versions()[which] {
            0 => product.to_owned(),
            version if own => format!("{product} {}.{}", version / 10_000, version % 10_000 / 100),
            version => format!("{product} {}.{}", version / 10, version % 10),
        };
        if row.flags & (flag::CUDA_REMOVED | flag::REMOVED) != 0 {
            self.report(codes::CUDA_REMOVED, index, format!("{} removed `{}`", cuda(2), row.cuda()), None);
        } else if row.flags & (flag::CUDA_DEPRECATED | flag::DEPRECATED) != 0 {
            self.report(codes::CUDA_DEPRECATED, index, format!("{} deprecated `{}`", cuda(1), row.cuda()), None);
        }
        let roc = row.uses_roc(self.options.target);
        let (removed, deprecated) = if roc { (flag::ROC_REMOVED, flag::ROC_DEPRECATED) } else { (flag::HIP_REMOVED, flag::HIP_DEPRECATED) };
        let hip = |which: usize| match row.hip_versions()[which] {
            0 => String::new(),
            version => format!(" in {}.{}", version / 1000, version % 1000 / 10),
        };
        if row.flags & removed != 0 && !roc && removed_in > self.options.rocm.hip() {
            let message = format!("`{new}` was removed in ROCm {}", removed_in / 1000);
            self.report(codes::REMOVED_LATER, index, message, self.use_rocm_7(row));
        } else if row.flags & (removed | flag::REMOVED) != 0 {
            self.report(codes::HIP_REMOVED, index, format!("HIP equivalent `{new}` was removed{}", hip(2)), None);
        } else if row.flags & (deprecated | flag::DEPRECATED) != 0 {
            self.report(codes::HIP_DEPRECATED, index, format!("HIP equivalent `{new}` was deprecated{}", hip(1)), None);
        }
    }

    /// The advice to translate for ROCm 7, if HIP 7 has another name for it.
    fn use_rocm_7(&self, row: &'static Row) -> Option<Cow<'static, str>> {
        let new = row.for_rocm(RocmVersion::V7);
        let better = new.hip() != row.hip() && !new.is_unsupported(Target::Hip);
        better.then(|| format!("pass `--rocm 7` to use `{}`", new.hip()).into())
    }

    fn half_member(&mut self, dot: usize) {
        let Some(base) = self.half2_variables.member(self.lexed, self.brackets.get_or_init(|| Brackets::new(self.lexed)), dot) else {
            return;
        };
        let (start, end) = (self.lexed.tokens[base].start, self.lexed.tokens[dot + 1].end);
        self.edits.insert(start, "reinterpret_cast<half&>(");
        self.edits.insert(end, ")");
        self.report(codes::HALF2_MEMBER, dot + 1, "members of `half2` are integers in HIP 5; a cast to `half` was added", None);
    }

    // ---- strings

    /// Translates the host API names in a string literal.
    fn string(&mut self, index: usize) {
        let token = self.lexed.tokens[index];
        let text = self.lexed.text(index);
        if !text.windows(2).any(|pair| pair == b"cu" || pair == b"nv") {
            return;
        }
        let mut at = 0;
        while at < text.len() {
            let byte = text[at];
            if byte == b'\\' {
                at += 2;
                continue;
            }
            if !(byte.is_ascii_alphabetic() || byte == b'_') {
                at += 1;
                continue;
            }
            let length = text[at..].iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
            let word = &text[at..at + length];
            if word.starts_with(b"cu") || word.starts_with(b"nv") {
                let row = names::find(word).filter(|row| row.family() != Family::Device).map(|row| row.for_rocm(self.options.rocm));
                let row = row.filter(|row| !row.is_unsupported(self.options.target) && row.translated(self.options.target) != row.cuda());
                if let Some(row) = row {
                    let start = token.start + at as u32;
                    self.edits.replace(start, start + length as u32, row.translated(self.options.target));
                }
            }
            at += length;
        }
    }

    // ---- directives

    fn directive(&mut self, hash: usize) {
        match self.lexed.text(hash + 1) {
            b"include" | b"include_next" | b"import" => self.include(hash),
            b"pragma" if self.pragma_once.is_none() && self.lexed.is(hash + 2, b"once") => self.pragma_once = Some(hash + 2),
            _ => {}
        }
    }

    /// Removes a directive up to its last token: compilers ignore tokens after a header's name, and they must not become code.
    fn drop_directive(&mut self, hash: usize) {
        let tokens = &self.lexed.tokens[hash..];
        let more = tokens.iter().skip(1).take_while(|token| token.in_directive && !token.first_on_line).last();
        let end = more.unwrap_or(&tokens[0]).end;
        self.edits.replace(tokens[0].start, end, "");
    }

    fn include(&mut self, hash: usize) {
        let Some(token) = self.lexed.tokens.get(hash + 2).filter(|token| token.in_directive) else { return };
        if !matches!(token.kind, Kind::HeaderName | Kind::String) {
            return;
        }
        self.first_include.get_or_insert(hash);
        let text = self.lexed.text(hash + 2);
        let (open, close) = if token.kind == Kind::HeaderName { ('<', '>') } else { ('"', '"') };
        let Some(name) = text.get(1..text.len() - 1).filter(|_| text.len() > 2) else { return };
        if name == b"hip/hip_runtime.h" {
            self.seen.note_runtime();
        }
        let local = self.options.local_includes.iter().find(|(local, _)| local.as_bytes() == name);
        if let Some((local, new)) = local {
            if local != new {
                self.edits.replace(token.start, token.end, format!("{open}{new}{close}"));
            }
            return;
        }
        if self.options.with_header() && REPLACED_BY_COMPATIBILITY.iter().any(|known| known.as_bytes() == name) {
            self.stats.includes += 1;
            if self.has_compatibility {
                self.drop_directive(hash);
            } else {
                self.has_compatibility = true;
                self.edits.replace(token.start, token.end, format!("\"{COMPATIBILITY_HEADER}\""));
            }
            return;
        }
        let rocm = self.options.rocm;
        let Some(include) = names::include(name).filter(|include| rocm == RocmVersion::V7 || !include.is_new_in_7()) else {
            if heuristics::is_toolkit_header(name, open == '<') {
                let message = format!("header `{}` has no known HIP equivalent", String::from_utf8_lossy(name));
                self.report(codes::UNKNOWN_HEADER, hash + 2, message, None);
            }
            return;
        };
        let family = Family::ALL[usize::from(include.family)];
        let roc = self.options.target != Target::Hip && family.has_roc_names();
        let drop = self.seen.drop(include, roc);
        if include.unsupported {
            let message = format!("header `{}` has no HIP equivalent", include.cuda);
            return self.report(codes::UNSUPPORTED_HEADER, hash + 2, message, None);
        }
        self.stats.includes += 1;
        if drop {
            self.drop_directive(hash);
        } else {
            let name = match rocm {
                _ if roc && !include.roc.is_empty() => include.roc,
                RocmVersion::V7 if !include.hip_7.is_empty() => include.hip_7,
                _ => include.hip,
            };
            let more = if name == "hip/hip_runtime.h" && !self.has_compatibility {
                self.has_compatibility = true;
                format!("{}#include \"{COMPATIBILITY_HEADER}\"", self.line_end())
            } else {
                String::new()
            };
            self.edits.replace(token.start, token.end, format!("{open}{name}{close}{more}"));
        }
    }
}
