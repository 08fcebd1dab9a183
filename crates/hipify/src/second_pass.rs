//! The second pass: what needs the whole file. Argument lists, launches, unknown names, the runtime header.

use std::collections::HashSet;
use std::ops::Range;

use crate::arguments::{Action, Call, Rule};
use crate::codes;
use crate::edit::Edits;
use crate::launch::{self, Launch};
use crate::lex::Kind;
use crate::names::{self, Family, Row, flag};
use crate::options::{COMPATIBILITY_HEADER, LaunchSyntax, RuntimeHeader, Target};
use crate::translate::{Draft, Translator};
use crate::{heuristics, macros, preprocessor};

impl Translator<'_> {
    pub(crate) fn second_pass(mut self) -> Draft {
        self.cublas_v1();
        self.rewrite_calls();
        self.rewrite_launches();
        self.report_unlisted();
        let wanted = match self.options.runtime_header {
            RuntimeHeader::WhenUsed => self.gpu_code || self.stats.references() > 0,
            RuntimeHeader::Always => true,
            RuntimeHeader::Never => false,
        };
        let runtime = wanted && !self.seen.has_runtime() && !heuristics::includes_runtime(self.lexed);
        let compatibility = wanted && !self.has_compatibility;
        if runtime || compatibility {
            let line_end = self.line_end();
            let mut text = line_end.to_owned();
            if runtime {
                text += &format!("#include <hip/hip_runtime.h>{line_end}");
            }
            if compatibility {
                text += &format!("#include \"{COMPATIBILITY_HEADER}\"{line_end}");
            }
            self.edits.insert(self.header_place(), text);
        }
        Draft { edits: self.edits, diagnostics: self.diagnostics, stats: self.stats }
    }

    /// Handles cuBLAS names that come before `cublas_v2.h`, or without it.
    fn cublas_v1(&mut self) {
        for (index, row) in std::mem::take(&mut self.blas_v1) {
            if self.seen.has_blas_v2() {
                self.listed(index, row);
                continue;
            }
            self.stats.untranslated[Family::Blas as usize] += 1;
            let message = format!("`{}` without `cublas_v2.h` is the legacy cuBLAS interface, which has no HIP equivalent", row.cuda());
            self.report(codes::BLAS_V1, index, message, Some("include `cublas_v2.h` and pass a handle".into()));
        }
    }

    fn rewrite_calls(&mut self) {
        let calls = std::mem::take(&mut self.calls);
        if calls.is_empty() {
            return;
        }
        let lexed = self.lexed;
        let mut edits = std::mem::take(&mut self.edits);
        for (index, row) in calls {
            let mode = match self.options.target {
                _ if !row.uses_roc(self.options.target) || row.roc().is_empty() => Target::Hip,
                Target::Miopen if row.family() != Family::Dnn => Target::Roc,
                target => target,
            };
            let changes = |rule: &&Rule| rule.mode == mode && rule.action != Action::RenameIfCount;
            let mut rules = row.rules().iter().filter(changes).peekable();
            if rules.peek().is_none() {
                continue;
            }
            let Some((close, arguments)) = self.argument_list(index) else {
                if !heuristics::declares(lexed, index) {
                    let message = format!("arguments of `{}` differ in HIP and could not be adapted here", row.cuda());
                    self.report(codes::ARGUMENTS, index, message, None);
                }
                continue;
            };
            let call = Call { lexed, close, arguments: &arguments };
            for rule in rules {
                let done = call.apply(rule, &mut edits, |range| self.text_of(range));
                if !done {
                    let message = format!("call to `{}` has fewer than {} arguments; left as is", row.cuda(), rule.argument + 1);
                    self.report(codes::ARGUMENTS, index, message, None);
                } else if rule.action == Action::Remove && mode == Target::Hip {
                    let message = format!("argument {} of `{}` removed; HIP does not take it", rule.argument + 1, row.cuda());
                    self.report(codes::DROPPED_ARGUMENT, index, message, None);
                }
            }
        }
        self.edits = edits;
    }

    /// Returns the closing parenthesis and the arguments of a call of the name at `index`.
    pub(crate) fn argument_list(&self, index: usize) -> Option<(usize, Vec<Range<usize>>)> {
        let brackets = self.brackets();
        let mut open = index + 1;
        if self.lexed.is(open, b"<") {
            open = brackets.template_end(self.lexed, open)? + 1;
        }
        if !self.lexed.is(open, b"(") {
            return None;
        }
        let close = brackets.partner(open)?;
        Some((close, brackets.split(self.lexed, open, close)?))
    }

    /// Returns the text of some tokens with their names translated, for arguments that move.
    fn text_of(&self, range: Range<usize>) -> Vec<u8> {
        if range.is_empty() {
            return Vec::new();
        }
        let mut edits = Edits::default();
        let base = self.lexed.tokens[range.start].start;
        for index in range.clone() {
            let token = self.lexed.tokens[index];
            if token.kind != Kind::Name {
                continue;
            }
            if let Some(row) = names::find(self.lexed.text(index)).map(|row| row.for_rocm(self.options.rocm))
                && self.renames(index, row)
            {
                edits.replace(token.start - base, token.end - base, self.new_name(index, row));
            }
        }
        let source = &self.lexed.source[base as usize..self.lexed.tokens[range.end - 1].end as usize];
        edits.apply(source)
    }

    /// Whether the first pass translates the name at `index`.
    fn renames(&self, index: usize, row: &'static Row) -> bool {
        let function = row.is_function();
        let here = match row.family() {
            Family::Device => (!function || heuristics::calls(self.lexed, index)) && !self.keeps_device_name(row),
            Family::Blas if row.flags & flag::V2_ONLY != 0 => self.seen.has_blas_v2(),
            _ => row.cuda() != "cub" || self.lexed.is(index + 1, b"::"),
        };
        here && !row.is_unsupported(self.options.target) && (self.options.experimental || row.flags & flag::EXPERIMENTAL == 0)
    }

    fn rewrite_launches(&mut self) {
        self.stats.kernels = self.kernels.len();
        self.stats.launches = self.launches.len();
        if self.launches.is_empty() {
            return;
        }
        let lexed = self.lexed;
        let mut edits = std::mem::take(&mut self.edits);
        let brackets = self.brackets();
        let mut templates: HashSet<&[u8]> = self
            .kernels
            .iter()
            .filter_map(|at| launch::declared_kernel(lexed, brackets, *at))
            .filter(|(_, template)| *template)
            .map(|(name, _)| lexed.text(name))
            .collect();
        let macros = macros::read(lexed, brackets, &self.launches, &mut templates);
        let mut unread = Vec::new();
        for at in &self.launches {
            match Launch::read(lexed, brackets, *at, &templates) {
                Some(launch) if self.options.launch == LaunchSyntax::Call => launch.rewrite(lexed, brackets, &mut edits),
                None if !macros.angles.contains(at) => unread.push(*at),
                _ => {}
            }
        }
        if self.options.launch == LaunchSyntax::Call && !(macros.open.is_empty() && macros.launchers.is_empty()) {
            for index in 0..lexed.tokens.len().saturating_sub(2) {
                let token = lexed.tokens[index];
                if token.kind != Kind::Name || token.in_directive || !lexed.is(index + 1, b"(") {
                    continue;
                }
                let text = |range| self.text_of(range);
                if let Some(launch) = macros.open.get(lexed.text(index)) {
                    launch.rewrite_use(lexed, brackets, index, &mut edits, &text);
                } else if let Some(launcher) = macros.launchers.get(lexed.text(index)) {
                    launcher.rewrite_use(lexed, brackets, index, &templates, &mut edits, &text);
                }
            }
        }
        self.edits = edits;
        for at in unread {
            self.report(codes::LAUNCH, at, "kernel launch could not be parsed and was left as is", None);
        }
    }

    fn report_unlisted(&mut self) {
        for (name, (index, count, declared)) in std::mem::take(&mut self.unlisted) {
            if declared {
                continue;
            }
            self.stats.unknown += count;
            let times = if count > 1 { format!(" ({count} times)") } else { String::new() };
            let message = format!("unknown CUDA name `{}`{times}", String::from_utf8_lossy(name));
            self.report(codes::UNKNOWN, index, message, None);
        }
    }

    /// The line ending of the source's first line.
    pub(crate) fn line_end(&self) -> &'static str {
        let first = self.lexed.source.iter().position(|byte| *byte == b'\n');
        if first.is_some_and(|at| self.lexed.source[..at].ends_with(b"\r")) { "\r\n" } else { "\n" }
    }

    /// The start of the `extern "C" {` that the token at `index` is behind, with the condition around it, or `index` itself: HIP's headers
    /// have templates, which need the linkage of C++.
    fn before_linkage_block(&self, index: usize) -> usize {
        let lexed = self.lexed;
        let opens = |at: &usize| lexed.is(*at, b"extern") && lexed.is(at + 1, b"\"C\"") && lexed.is(at + 2, b"{");
        let Some(block) = (0..index).find(opens) else { return index };
        let condition = lexed.tokens[..block].iter().rposition(|token| token.kind == Kind::Hash);
        let is_condition = |hash: &usize| {
            let whole_line = lexed.tokens[*hash..block].iter().all(|token| token.in_directive);
            whole_line && matches!(lexed.text(hash + 1), b"if" | b"ifdef")
        };
        condition.filter(is_condition).unwrap_or(block)
    }

    /// Where HIP's runtime header is inserted if no CUDA header is replaced by it.
    fn header_place(&self) -> u32 {
        let guard = preprocessor::include_guard(self.lexed).map(|index| self.lexed.tokens[index].end);
        let once = self.pragma_once.map(|index| self.lexed.tokens[index].end);
        match (guard, once) {
            (Some(guard), Some(once)) => guard.min(once),
            (Some(place), None) | (None, Some(place)) => place,
            (None, None) => match self.first_include {
                Some(hash) => self.lexed.tokens[self.before_linkage_block(hash)].start,
                None if self.lexed.source.starts_with(b"\xEF\xBB\xBF") => 3,
                None => 0,
            },
        }
    }
}
