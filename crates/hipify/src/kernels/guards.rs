//! Rewrites `__CUDA_ARCH__` guards.
//!
//! AMD compilers do not define `__CUDA_ARCH__`, so code under `#if __CUDA_ARCH__ >= 800` would be silently left out. The name is replaced
//! by [`ARCH_MACRO`], which the prelude defines as a recent architecture, so guarded code is kept. If the guarded code has no AMD
//! equivalent (PTX) and the conditional has another branch, the condition is overridden to select that branch, with a diagnostic.

use std::ops::Range;

use super::codes;
use crate::diagnostic::Diagnostic;
use crate::edit::Edits;
use crate::lex::{Kind, Lexed};
use crate::preprocessor::Conditional;

/// The replacement of `__CUDA_ARCH__`.
pub const ARCH_MACRO: &str = "WARPWAVE_CUDA_ARCH";

const ARCH: &[u8] = b"__CUDA_ARCH__";

/// Code that AMD compilers reject: its token and a name for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Obstacle {
    pub token: usize,
    pub name: String,
}

/// Rewrites the guards. Returns the obstacles without an alternative branch.
pub(crate) fn rewrite(
    lexed: &Lexed<'_>,
    all: &[Conditional],
    obstacles: Vec<Obstacle>,
    edits: &mut Edits,
    diagnostics: &mut Vec<Diagnostic>,
) -> Vec<Obstacle> {
    let mut left = Vec::new();
    // By directive: several obstacles in one branch override it once.
    let mut overridden: Vec<(usize, bool)> = Vec::new();
    for obstacle in obstacles {
        // Inner conditionals come first, so the smallest possible block is skipped.
        let alternative = all.iter().find_map(|conditional| alternative(conditional, obstacle.token));
        let Some((directive, taken)) = alternative else {
            left.push(obstacle);
            continue;
        };
        if !overridden.iter().any(|(start, _)| *start == directive.start) {
            override_condition(lexed, &directive, taken, edits);
            overridden.push((directive.start, taken));
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

/// The directive to override so that the branch with the obstacle is not compiled, and the value to override it with.
fn alternative(conditional: &Conditional, obstacle: usize) -> Option<(Range<usize>, bool)> {
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
fn override_condition(lexed: &Lexed<'_>, directive: &Range<usize>, taken: bool, edits: &mut Edits) {
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
    use crate::preprocessor::conditionals;

    fn token(lexed: &Lexed<'_>, text: &str) -> usize {
        (0..lexed.tokens.len()).find(|i| lexed.is(*i, text.as_bytes())).unwrap()
    }

    #[test]
    fn the_alternative_branch_is_selected() {
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
