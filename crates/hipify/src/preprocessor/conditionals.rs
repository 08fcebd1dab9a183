//! `#if` … `#endif`: the structure of a file's conditionals, and which of their branches are active.

use std::ops::Range;

use super::{Directive, directives, expression};
use crate::lex::{Kind, Lexed};

/// One branch of a conditional.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Branch {
    /// The tokens of its directive, `#` first.
    pub directive: Range<usize>,
    /// The tokens it guards.
    pub body: Range<usize>,
    /// Whether it is an `#else`.
    pub is_else: bool,
    /// Whether its condition mentions `__CUDA_ARCH__`.
    pub on_arch: bool,
}

impl Branch {
    /// `if`, `ifdef`, `elif`, …
    pub fn keyword<'a>(&self, lexed: &Lexed<'a>) -> &'a [u8] {
        lexed.text(self.directive.start + 1)
    }

    /// The tokens of its condition.
    pub fn condition(&self) -> Range<usize> {
        (self.directive.start + 2).min(self.directive.end)..self.directive.end
    }
}

/// An `#if` with its branches, up to its `#endif`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Conditional {
    /// Its branches, in order; never empty.
    pub branches: Vec<Branch>,
    /// The `#` of its `#endif`; `None` if the file ends first.
    pub endif: Option<usize>,
}

/// All conditionals of a file, in the order of their `#endif`s, so inner ones come before the ones around them. An unclosed conditional
/// ends with the file; a stray `#else` or `#endif` is ignored.
pub fn conditionals(lexed: &Lexed<'_>) -> Vec<Conditional> {
    let (mut open, mut done): (Vec<Conditional>, Vec<Conditional>) = (Vec::new(), Vec::new());
    let close_branch = |conditional: &mut Conditional, at: usize| {
        if let Some(last) = conditional.branches.last_mut() {
            last.body.end = at;
        }
    };
    for Directive { hash, keyword, body } in directives(lexed) {
        let branch = || Branch {
            directive: hash..body.end,
            body: body.end..lexed.tokens.len(),
            is_else: keyword == b"else",
            on_arch: body.clone().any(|index| lexed.is(index, b"__CUDA_ARCH__")),
        };
        match keyword {
            b"if" | b"ifdef" | b"ifndef" => open.push(Conditional { branches: vec![branch()], endif: None }),
            b"elif" | b"elifdef" | b"elifndef" | b"else" => {
                if let Some(last) = open.last_mut() {
                    close_branch(last, hash);
                    last.branches.push(branch());
                }
            }
            b"endif" => {
                if let Some(mut last) = open.pop() {
                    close_branch(&mut last, hash);
                    last.endif = Some(hash);
                    done.push(last);
                }
            }
            _ => {}
        }
    }
    done.extend(open.into_iter().rev());
    done
}

/// The conditions around a token, the outermost first: the text of each directive, for an `#else` with the conditions it negates.
pub fn enclosing_conditions(lexed: &Lexed<'_>, all: &[Conditional], token: usize) -> Vec<String> {
    let mut around: Vec<(usize, String)> = Vec::new();
    for conditional in all {
        let Some(at) = conditional.branches.iter().position(|branch| branch.body.contains(&token)) else { continue };
        let words = |branch: &Branch| lexed.joined(branch.directive.start + 1..branch.directive.end);
        let text = if conditional.branches[at].is_else {
            let others: Vec<String> = conditional.branches[..at].iter().map(words).collect();
            format!("else of {}", others.join(", "))
        } else {
            words(&conditional.branches[at])
        };
        around.push((conditional.branches[0].directive.start, text));
    }
    around.sort();
    around.into_iter().map(|(_, text)| text).collect()
}

/// The macro name of the file's include guard: the first directive is `#ifndef NAME`, and nothing is outside of it.
pub(crate) fn include_guard(lexed: &Lexed<'_>) -> Option<usize> {
    let starts_guarded = lexed.tokens.first()?.kind == Kind::Hash && lexed.is(1, b"ifndef") && lexed.tokens.get(2)?.in_directive;
    if !starts_guarded {
        return None;
    }
    let all = conditionals(lexed);
    let first = all.iter().find(|conditional| conditional.branches[0].directive.start == 0)?;
    (first.branches.len() == 1 && first.endif? + 2 == lexed.tokens.len()).then_some(2)
}

/// Evaluates a condition of `keyword` (`if`, `ifdef`, `elifndef`, `else`, …); `None` if the macros do not decide it.
pub(crate) fn holds(
    lexed: &Lexed<'_>,
    keyword: &[u8],
    condition: Range<usize>,
    value: &dyn Fn(&[u8]) -> Option<i64>,
    defined: &dyn Fn(&[u8]) -> Option<bool>,
) -> Option<bool> {
    let name = if condition.is_empty() { b"" } else { lexed.text(condition.start) };
    match keyword {
        b"ifdef" | b"elifdef" => defined(name),
        b"ifndef" | b"elifndef" => defined(name).map(|defined| !defined),
        b"else" => Some(true),
        _ => expression::evaluate(&expression::items(lexed, condition), value, defined).map(|value| value != 0),
    }
}

/// An open conditional of a [`ConditionStack`].
struct Open {
    /// The conditional itself is in an active branch.
    outer: bool,
    /// The current branch may be compiled.
    active: bool,
    /// A branch was definitely taken.
    taken: bool,
    /// The first token of the current branch.
    from: usize,
}

/// Tracks which branches are active while directives are read in order. An undecided condition leaves its branch and the following
/// ones active.
#[derive(Default)]
pub(crate) struct ConditionStack {
    open: Vec<Open>,
}

impl ConditionStack {
    /// Whether the current position may be compiled.
    pub fn active(&self) -> bool {
        self.open.last().is_none_or(|open| open.active)
    }

    /// Processes a directive of a conditional. Returns the tokens of the branch it ends, if a compiler skips them and the branch is not
    /// part of a skipped one. `holds` evaluates the condition and is called only where a compiler would.
    pub fn advance(&mut self, directive: &Directive<'_>, holds: impl FnOnce() -> Option<bool>) -> Option<Range<usize>> {
        let skipped = |open: &Open| (open.outer && !open.active && open.from < directive.hash).then_some(open.from..directive.hash);
        let from = directive.body.end;
        match directive.keyword {
            b"if" | b"ifdef" | b"ifndef" => {
                let outer = self.active();
                let holds = if outer { holds() } else { Some(false) };
                self.open.push(Open { outer, active: outer && holds != Some(false), taken: holds == Some(true), from });
                None
            }
            b"elif" | b"elifdef" | b"elifndef" | b"else" => {
                let open = self.open.last_mut()?;
                let range = skipped(open);
                let holds = if open.outer && !open.taken { holds() } else { Some(false) };
                open.active = holds != Some(false);
                open.taken |= holds == Some(true);
                open.from = from;
                range
            }
            b"endif" => self.open.pop().as_ref().and_then(skipped),
            _ => None,
        }
    }

    /// The skipped branches that the end of the file cuts off.
    pub fn finish(self, end: usize) -> Vec<Range<usize>> {
        let skipped = self.open.iter().filter(|open| open.outer && !open.active && open.from < end);
        skipped.map(|open| open.from..end).collect()
    }
}

/// Ranges of tokens that are not compiled.
pub(crate) struct SkippedTokens(Vec<Range<usize>>);

impl SkippedTokens {
    /// Whether a token is one of them.
    pub(crate) fn contains(&self, token: usize) -> bool {
        let at = self.0.partition_point(|range| range.start <= token);
        at > 0 && self.0[at - 1].contains(&token)
    }
}

/// The tokens that no AMD compiler reads, as far as AMD's own macros decide it.
pub(crate) fn never_on_amd(lexed: &Lexed<'_>, all: &[Conditional]) -> SkippedTokens {
    const DEFINED: &[&[u8]] = &[b"__HIP_PLATFORM_AMD__", b"__HIP__", b"__HIPCC__", b"__AMDGCN__", b"WARPWAVE_AMD", b"WARPWAVE"];
    let defined = |name: &[u8]| DEFINED.contains(&name).then_some(true);
    let value = |name: &[u8]| DEFINED.contains(&name).then_some(1);
    let mut skipped: Vec<Range<usize>> = Vec::new();
    for conditional in all {
        let mut taken = false;
        for branch in &conditional.branches {
            let holds = holds(lexed, branch.keyword(lexed), branch.condition(), &value, &defined);
            if taken || holds == Some(false) {
                skipped.push(branch.body.clone());
            }
            taken |= holds == Some(true);
        }
    }
    skipped.sort_by_key(|range| range.start);
    // Merge nested ranges: the binary search needs disjoint ones.
    let mut merged: Vec<Range<usize>> = Vec::new();
    for range in skipped {
        match merged.last_mut() {
            Some(last) if range.start < last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    SkippedTokens(merged)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "#if A\n#ifdef B\nx\n#elif __CUDA_ARCH__ >= 80\ny\n#else\nz\n#endif\n#endif\nw\n";

    fn token(lexed: &Lexed<'_>, text: &str) -> usize {
        (0..lexed.tokens.len()).find(|i| lexed.is(*i, text.as_bytes())).unwrap()
    }

    #[test]
    fn every_token_has_its_enclosing_conditions() {
        let lexed = Lexed::new(SOURCE.as_bytes()).unwrap();
        let all = conditionals(&lexed);
        assert_eq!(all.len(), 2);
        assert_eq!(enclosing_conditions(&lexed, &all, token(&lexed, "y")), ["if A", "elif __CUDA_ARCH__ >= 80"]);
        assert_eq!(enclosing_conditions(&lexed, &all, token(&lexed, "z")), ["if A", "else of ifdef B, elif __CUDA_ARCH__ >= 80"]);
        assert_eq!(enclosing_conditions(&lexed, &all, token(&lexed, "w")), [""; 0]);
    }

    #[test]
    fn stray_directives_are_ignored() {
        for source in ["#endif\n#else\n#if", "#if\n#else\n#else\n", "#", "# \n#elif x"] {
            let lexed = Lexed::new(source.as_bytes()).unwrap();
            conditionals(&lexed);
        }
    }

    #[test]
    fn include_guards_span_the_whole_file() {
        let guard = |source: &str| include_guard(&Lexed::new(source.as_bytes()).unwrap()).is_some();
        assert!(guard("// words\n#ifndef A_H\n#define A_H\n#if 1\n#endif\nint x;\n#endif // A_H\n"));
        assert!(!guard("#ifndef A_H\n#endif\nint x;\n"));
        assert!(!guard("int x;\n#ifndef A_H\n#endif\n"));
        assert!(!guard("#ifndef A_H\nint x;\n#else\nint y;\n#endif\n"));
    }
}
