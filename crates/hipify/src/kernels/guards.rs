//! Conditional blocks, and what becomes of guards on `__CUDA_ARCH__`.
//!
//! No AMD compiler defines `__CUDA_ARCH__`, so whatever stands under `#if __CUDA_ARCH__ >= 800` would vanish without a word. The
//! name is replaced by [`ARCH_MACRO`], which the prelude defines as a recent architecture's number: guarded code stays. Where the
//! guarded code cannot be had on AMD (PTX that has no counterpart) and the same conditional offers another branch, the guard is
//! turned so that the other branch is compiled, and a diagnostic says so.

use std::ops::Range;

use super::{codes, condition};
use crate::diagnostic::Diagnostic;
use crate::edit::Edits;
use crate::lex::{Kind, Lexed};

/// What stands for `__CUDA_ARCH__` in the translation.
pub const ARCH_MACRO: &str = "WARPWAVE_CUDA_ARCH";

const ARCH: &[u8] = b"__CUDA_ARCH__";

/// One branch of a conditional.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Branch {
    /// The tokens of its directive's line, `#` first.
    pub directive: Range<usize>,
    /// The tokens it guards.
    pub body: Range<usize>,
    /// It is an `#else`.
    pub is_else: bool,
    /// Its condition speaks of `__CUDA_ARCH__`.
    pub on_arch: bool,
}

/// An `#if` with its branches, up to its `#endif`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Conditional {
    /// Its branches, in order; never empty.
    pub branches: Vec<Branch>,
}

/// The end of the directive whose `#` is at `hash`: the first token that is no part of it.
pub(crate) fn directive_end(lexed: &Lexed<'_>, hash: usize) -> usize {
    let rest = &lexed.tokens[hash + 1..];
    hash + 1 + rest.iter().position(|t| !t.in_directive || t.kind == Kind::Hash).unwrap_or(rest.len())
}

/// Every conditional of a source, in the order of their `#endif`s (so inner ones before those around them). One that is never
/// closed ends with the source; a stray `#else` or `#endif` is left to the compiler.
pub fn conditionals(lexed: &Lexed<'_>) -> Vec<Conditional> {
    let (mut open, mut done): (Vec<Conditional>, Vec<Conditional>) = (Vec::new(), Vec::new());
    let close_branch = |conditional: &mut Conditional, at: usize| {
        if let Some(last) = conditional.branches.last_mut() {
            last.body.end = at;
        }
    };
    for hash in (0..lexed.tokens.len()).filter(|i| lexed.tokens[*i].kind == Kind::Hash) {
        let end = directive_end(lexed, hash);
        let word = lexed.text(hash + 1);
        let branch = Branch {
            directive: hash..end,
            body: end..lexed.tokens.len(),
            is_else: word == b"else",
            on_arch: (hash + 2..end).any(|i| lexed.is(i, ARCH)),
        };
        match word {
            b"if" | b"ifdef" | b"ifndef" if end > hash + 1 => open.push(Conditional { branches: vec![branch] }),
            b"elif" | b"elifdef" | b"elifndef" | b"else" => {
                if let Some(last) = open.last_mut() {
                    close_branch(last, hash);
                    last.branches.push(branch);
                }
            }
            b"endif" => {
                if let Some(mut last) = open.pop() {
                    close_branch(&mut last, hash);
                    done.push(last);
                }
            }
            _ => {}
        }
    }
    done.extend(open.into_iter().rev());
    done
}

/// The conditions a token stands under, the outermost first: the text of the directives, an `#else` with all it excludes.
pub fn nest(lexed: &Lexed<'_>, all: &[Conditional], token: usize) -> Vec<String> {
    let mut around: Vec<(usize, String)> = Vec::new();
    for conditional in all {
        let Some(at) = conditional.branches.iter().position(|b| b.body.contains(&token)) else { continue };
        let words = |branch: &Branch| super::text_of(lexed, branch.directive.start + 1..branch.directive.end);
        let own = words(&conditional.branches[at]);
        let text = if conditional.branches[at].is_else {
            let others: Vec<String> = conditional.branches[..at].iter().map(words).collect();
            format!("else of {}", others.join(", "))
        } else {
            own
        };
        around.push((conditional.branches[0].directive.start, text));
    }
    around.sort();
    around.into_iter().map(|(_, text)| text).collect()
}

/// The tokens in branches that no AMD compiler takes, as far as AMD's macros decide it.
pub(crate) struct NotForAmd(Vec<Range<usize>>);

impl NotForAmd {
    /// Whether a token is one of them.
    pub(crate) fn contains(&self, token: usize) -> bool {
        let at = self.0.partition_point(|range| range.start <= token);
        at > 0 && self.0[at - 1].contains(&token)
    }
}

/// Finds them.
pub(crate) fn not_for_amd(lexed: &Lexed<'_>, all: &[Conditional]) -> NotForAmd {
    const DEFINED: &[&[u8]] = &[b"__HIP_PLATFORM_AMD__", b"__HIP__", b"__HIPCC__", b"__AMDGCN__", b"WARPWAVE_AMD", b"WARPWAVE"];
    let defined = |name: &[u8]| DEFINED.contains(&name).then_some(true);
    let value = |name: &[u8]| DEFINED.contains(&name).then_some(1);
    let holds = |branch: &Branch| {
        let word = lexed.text(branch.directive.start + 1);
        let rest = branch.directive.start + 2..branch.directive.end;
        match word {
            b"ifdef" | b"elifdef" => defined(lexed.text(rest.start)),
            b"ifndef" | b"elifndef" => defined(lexed.text(rest.start)).map(|d| !d),
            b"else" => Some(true),
            _ => {
                let items: Vec<_> = rest.map(|i| (lexed.text(i), lexed.tokens[i - 1].end == lexed.tokens[i].start)).collect();
                condition::evaluate(&items, &value, &defined).map(|v| v != 0)
            }
        }
    };
    let mut dead: Vec<Range<usize>> = Vec::new();
    for conditional in all {
        let mut taken = false;
        for branch in &conditional.branches {
            let value = holds(branch);
            if taken || value == Some(false) {
                dead.push(branch.body.clone());
            }
            taken |= value == Some(true);
        }
    }
    dead.sort_by_key(|range| range.start);
    // Those that lie in others would hide them from a search.
    let mut apart: Vec<Range<usize>> = Vec::new();
    for range in dead {
        match apart.last_mut() {
            Some(last) if range.start < last.end => last.end = last.end.max(range.end),
            _ => apart.push(range),
        }
    }
    NotForAmd(apart)
}

/// Something in the source that AMD compilers cannot take: where, and its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Obstacle {
    pub token: usize,
    pub name: String,
}

/// Rewrites the guards. Returns the obstacles that no branch leads around.
pub(crate) fn rewrite(
    lexed: &Lexed<'_>,
    all: &[Conditional],
    obstacles: Vec<Obstacle>,
    edits: &mut Edits,
    diagnostics: &mut Vec<Diagnostic>,
) -> Vec<Obstacle> {
    let mut left = Vec::new();
    // By directive, so that ten obstacles in one branch turn it once.
    let mut turned: Vec<(usize, bool)> = Vec::new();
    for obstacle in obstacles {
        // Inner conditionals come first: the smallest block that can be left out is.
        let way = all.iter().find_map(|conditional| detour(conditional, obstacle.token));
        let Some((directive, taken)) = way else {
            left.push(obstacle);
            continue;
        };
        if !turned.iter().any(|(start, _)| *start == directive.start) {
            turn(lexed, &directive, taken, edits);
            turned.push((directive.start, taken));
            let token = lexed.tokens[directive.start];
            diagnostics.push(codes::other_branch(token.start, lexed.tokens[directive.end - 1].end, &obstacle.name));
        }
    }
    for (index, token) in lexed.tokens.iter().enumerate() {
        if token.kind == Kind::Name && lexed.is(index, ARCH) {
            edits.replace(token.start, token.end, ARCH_MACRO);
        }
    }
    left
}

/// The directive to turn so that the branch with the obstacle is not compiled, and whether its own branch then is.
fn detour(conditional: &Conditional, obstacle: usize) -> Option<(Range<usize>, bool)> {
    let at = conditional.branches.iter().position(|branch| branch.body.contains(&obstacle))?;
    let branch = &conditional.branches[at];
    if branch.is_else {
        // `#if __CUDA_ARCH__ < 900 … #else (here)`: an earlier branch on the architecture is the alternative.
        let earlier = conditional.branches[..at].iter().rev().find(|b| b.on_arch)?;
        return Some((earlier.directive.clone(), true));
    }
    let alternative = at + 1 < conditional.branches.len();
    (branch.on_arch && alternative).then(|| (branch.directive.clone(), false))
}

/// Makes a condition true or false, keeping its text.
fn turn(lexed: &Lexed<'_>, directive: &Range<usize>, taken: bool, edits: &mut Edits) {
    let word = lexed.tokens[directive.start + 1];
    let last = lexed.tokens[directive.end - 1];
    let constant = if taken { "1 || " } else { "0 && " };
    let (keyword, before, after) = match lexed.text(directive.start + 1) {
        b"ifdef" => ("if ", "defined(", ")"),
        b"ifndef" => ("if ", "!defined(", ")"),
        b"elifdef" => ("elif ", "defined(", ")"),
        b"elifndef" => ("elif ", "!defined(", ")"),
        b"elif" => ("elif ", "(", ")"),
        _ => ("if ", "(", ")"),
    };
    edits.replace(word.start, word.end, format!("{keyword}{constant}{before}"));
    edits.insert(last.end, after);
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "#if A\n#ifdef B\nx\n#elif __CUDA_ARCH__ >= 80\ny\n#else\nz\n#endif\n#endif\nw\n";

    fn token(lexed: &Lexed<'_>, text: &str) -> usize {
        (0..lexed.tokens.len()).find(|i| lexed.is(*i, text.as_bytes())).unwrap()
    }

    #[test]
    fn every_token_knows_its_conditions() {
        let lexed = Lexed::new(SOURCE.as_bytes()).unwrap();
        let all = conditionals(&lexed);
        assert_eq!(all.len(), 2);
        assert_eq!(nest(&lexed, &all, token(&lexed, "y")), ["if A", "elif __CUDA_ARCH__ >= 80"]);
        assert_eq!(nest(&lexed, &all, token(&lexed, "z")), ["if A", "else of ifdef B, elif __CUDA_ARCH__ >= 80"]);
        assert_eq!(nest(&lexed, &all, token(&lexed, "w")), [""; 0]);
    }

    #[test]
    fn stray_directives_do_no_harm() {
        for source in ["#endif\n#else\n#if", "#if\n#else\n#else\n", "#", "# \n#elif x"] {
            let lexed = Lexed::new(source.as_bytes()).unwrap();
            conditionals(&lexed);
        }
    }

    #[test]
    fn an_obstacle_is_led_around_where_a_branch_allows() {
        for (source, expected, count) in [
            (
                "#if __CUDA_ARCH__ >= 900\nbad\n#else\ngood\n#endif\n",
                "#if 0 && ( WARPWAVE_CUDA_ARCH >= 900)\nbad\n#else\ngood\n#endif\n",
                0,
            ),
            ("#ifdef __CUDA_ARCH__\nbad\n#else\ngood\n#endif\n", "#if 0 && defined( WARPWAVE_CUDA_ARCH)\nbad\n#else\ngood\n#endif\n", 0),
            (
                "#if __CUDA_ARCH__ < 900 // why\ngood\n#else\nbad\n#endif\n",
                "#if 1 || ( WARPWAVE_CUDA_ARCH < 900) // why\ngood\n#else\nbad\n#endif\n",
                0,
            ),
            ("#if __CUDA_ARCH__ >= 900\nbad\n#endif\n", "#if WARPWAVE_CUDA_ARCH >= 900\nbad\n#endif\n", 1),
            ("#if X\nbad\n#else\ngood\n#endif\n", "#if X\nbad\n#else\ngood\n#endif\n", 1),
        ] {
            let lexed = Lexed::new(source.as_bytes()).unwrap();
            let all = conditionals(&lexed);
            let (mut edits, mut diagnostics) = (Edits::default(), Vec::new());
            let obstacle = Obstacle { token: token(&lexed, "bad"), name: "wgmma".to_owned() };
            let left = rewrite(&lexed, &all, vec![obstacle], &mut edits, &mut diagnostics);
            assert_eq!(String::from_utf8(edits.apply(source.as_bytes())).unwrap(), expected);
            assert_eq!((left.len(), diagnostics.len()), (count, 1 - count), "{source}");
        }
    }
}
