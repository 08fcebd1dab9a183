//! Which blocks a preprocessor would leave out: `#if` and its kin, evaluated with the given macros and those the file defines on the
//! way. A condition on a version of CUDA that was not given is open, and so is one that cannot be read: both branches stay in. Every
//! other macro is undefined. Included files are not read.

use std::collections::HashMap;
use std::ops::Range;

use crate::lex::{Kind, Lexed};

/// Macros that CUDA's headers define; which version builds the source is not ours to know.
const VERSIONS: &[&str] = &[
    "CUDA_VERSION",
    "CUDART_VERSION",
    "CUBLAS_VERSION",
    "CUBLAS_VER_MAJOR",
    "CUBLAS_VER_MINOR",
    "CUDNN_VERSION",
    "CUDNN_MAJOR",
    "CUDNN_MINOR",
    "CUFFT_VERSION",
    "CURAND_VERSION",
    "CUSOLVER_VERSION",
    "CUSPARSE_VERSION",
    "CUSPARSE_VER_MAJOR",
    "CUSPARSE_VER_MINOR",
    "__CUDACC_VER_MAJOR__",
    "__CUDACC_VER_MINOR__",
];

/// Whether a macro tells a version of CUDA.
pub(crate) fn is_version(name: &[u8]) -> bool {
    VERSIONS.iter().any(|version| version.as_bytes() == name)
}

/// What the compiler itself would define.
const PREDEFINED: &[(&str, i64)] =
    &[("__CUDACC__", 1), ("__NVCC__", 1), ("__cplusplus", 201_703), ("__linux__", 1), ("__x86_64__", 1), ("__GNUC__", 4)];

/// How deep parentheses of a condition may nest; beyond it a condition is open.
const MAX_DEPTH: usize = 64;

/// Values of macros; `None` for one that is defined and not known.
type Macros<'a> = HashMap<&'a [u8], Option<i64>>;

struct Block {
    /// A branch has surely been taken.
    taken: bool,
    /// The block itself lies in an active place.
    outer: bool,
    active: bool,
    /// The first token of the present branch.
    from: usize,
}

/// The ranges of tokens that are left out, in order.
pub(crate) fn excluded(lexed: &Lexed<'_>, defines: &[(String, String)]) -> Vec<Range<usize>> {
    let mut macros: Macros<'_> = PREDEFINED.iter().map(|(name, value)| (name.as_bytes(), Some(*value))).collect();
    macros.extend(VERSIONS.iter().map(|name| (name.as_bytes(), None)));
    for (name, value) in defines {
        macros.insert(name.as_bytes(), Some(number(value.trim().as_bytes()).unwrap_or(1)));
    }
    let mut out: Vec<Range<usize>> = Vec::new();
    let mut blocks: Vec<Block> = Vec::new();
    let count = lexed.tokens.len();
    let mut index = 0;
    while index < count {
        if lexed.tokens[index].kind != Kind::Hash {
            index += 1;
            continue;
        }
        let hash = index;
        let mut end = hash + 1;
        while end < count && lexed.tokens[end].in_directive && lexed.tokens[end].kind != Kind::Hash {
            end += 1;
        }
        index = end;
        let active = blocks.last().is_none_or(|block| block.active);
        let body = hash + 2..end.max(hash + 2);
        let mut close = |block: &Block| {
            // Inside a block that is itself left out, the outer one covers it.
            if block.outer && !block.active && block.from < hash {
                out.push(block.from..hash);
            }
        };
        match lexed.text(hash + 1) {
            word @ (b"if" | b"ifdef" | b"ifndef") => {
                let holds = match word {
                    b"if" => evaluate(lexed, body, &macros),
                    b"ifdef" => Some(macros.contains_key(lexed.text(hash + 2))),
                    _ => Some(!macros.contains_key(lexed.text(hash + 2))),
                };
                let taken = active && holds == Some(true);
                blocks.push(Block { taken, outer: active, active: active && holds != Some(false), from: end });
            }
            word @ (b"elif" | b"elifdef" | b"elifndef" | b"else") => {
                let Some(block) = blocks.last_mut() else { continue };
                close(block);
                let holds = match word {
                    b"elif" => evaluate(lexed, body, &macros),
                    b"elifdef" => Some(macros.contains_key(lexed.text(hash + 2))),
                    b"elifndef" => Some(!macros.contains_key(lexed.text(hash + 2))),
                    _ => Some(true),
                };
                block.active = block.outer && !block.taken && holds != Some(false);
                block.taken |= block.outer && holds == Some(true);
                block.from = end;
            }
            b"endif" => {
                if let Some(block) = blocks.pop() {
                    close(&block);
                }
            }
            b"define" if active && hash + 2 < end => {
                let name = lexed.tokens[hash + 2];
                let function_like = lexed.is(hash + 3, b"(") && lexed.tokens[hash + 3].start == name.end;
                let value = if function_like { None } else { Evaluator { lexed, at: hash + 3, end, macros: &macros }.or(0) };
                macros.insert(lexed.text(hash + 2), value);
            }
            b"undef" if active => {
                macros.remove(lexed.text(hash + 2));
            }
            _ => {}
        }
    }
    // Blocks that never end reach to the end of the file.
    for block in &blocks {
        if block.outer && !block.active && block.from < count {
            out.push(block.from..count);
        }
    }
    out.sort_by_key(|range| range.start);
    out
}

/// Whether a condition holds; `None` where that is open.
fn evaluate(lexed: &Lexed<'_>, body: Range<usize>, macros: &Macros<'_>) -> Option<bool> {
    Evaluator { lexed, at: body.start, end: body.end, macros }.or(0).map(|value| value != 0)
}

/// A reader of constant expressions; every value may be open (`None`).
struct Evaluator<'a> {
    lexed: &'a Lexed<'a>,
    at: usize,
    end: usize,
    macros: &'a Macros<'a>,
}

impl Evaluator<'_> {
    fn peek(&self) -> &[u8] {
        if self.at < self.end { self.lexed.text(self.at) } else { b"" }
    }

    fn eat(&mut self, text: &[u8]) -> bool {
        let found = self.peek() == text;
        self.at += usize::from(found);
        found
    }

    fn or(&mut self, depth: usize) -> Option<i64> {
        let mut left = self.and(depth);
        while self.eat(b"||") {
            left = match (left, self.and(depth)) {
                (Some(0), Some(0)) => Some(0),
                (Some(0) | None, Some(0) | None) => None,
                _ => Some(1),
            };
        }
        if self.eat(b"?") {
            if depth >= MAX_DEPTH {
                return None;
            }
            let yes = self.or(depth + 1);
            if !self.eat(b":") {
                return None;
            }
            let no = self.or(depth + 1);
            return if left? != 0 { yes } else { no };
        }
        left
    }

    fn and(&mut self, depth: usize) -> Option<i64> {
        let mut left = self.compare(depth);
        while self.eat(b"&&") {
            left = match (left, self.compare(depth)) {
                (Some(0), _) | (_, Some(0)) => Some(0),
                (None, _) | (_, None) => None,
                _ => Some(1),
            };
        }
        left
    }

    fn compare(&mut self, depth: usize) -> Option<i64> {
        let left = self.sum(depth);
        // The lexer gives `>` alone, so `>=` is two tokens.
        let compare: fn(&i64, &i64) -> bool = if self.eat(b">") {
            if self.eat(b"=") { i64::ge } else { i64::gt }
        } else if self.eat(b"<") {
            i64::lt
        } else if self.eat(b"<=") {
            i64::le
        } else if self.eat(b"==") {
            i64::eq
        } else if self.eat(b"!=") {
            i64::ne
        } else {
            return left;
        };
        let right = self.sum(depth);
        Some(i64::from(compare(&left?, &right?)))
    }

    /// Arithmetic, all of one rank: conditions that mix ranks without parentheses are rare, and those get theirs wrong here.
    fn sum(&mut self, depth: usize) -> Option<i64> {
        let mut left = self.unary(depth);
        loop {
            let apply: fn(i64, i64) -> Option<i64> = match self.peek() {
                b"+" => i64::checked_add,
                b"-" => i64::checked_sub,
                b"*" => i64::checked_mul,
                b"/" => i64::checked_div,
                b"%" => i64::checked_rem,
                b"&" => |a, b| Some(a & b),
                b"|" => |a, b| Some(a | b),
                _ => return left,
            };
            self.at += 1;
            let right = self.unary(depth);
            left = left.zip(right).and_then(|(left, right)| apply(left, right));
        }
    }

    fn unary(&mut self, depth: usize) -> Option<i64> {
        let (mut not, mut minus) = (0, false);
        loop {
            if self.eat(b"!") {
                not += 1;
            } else if self.eat(b"-") {
                minus = !minus;
            } else if !self.eat(b"+") {
                break;
            }
        }
        let value = self.primary(depth).map(|value| if minus { value.wrapping_neg() } else { value });
        value.map(|value| if not > 0 { i64::from((value == 0) == (not % 2 == 1)) } else { value })
    }

    fn primary(&mut self, depth: usize) -> Option<i64> {
        if self.at >= self.end || depth >= MAX_DEPTH {
            return None;
        }
        if self.eat(b"(") {
            let value = self.or(depth + 1);
            return if self.eat(b")") { value } else { None };
        }
        if self.eat(b"defined") {
            let open = self.eat(b"(");
            let known = self.macros.contains_key(self.peek());
            self.at += 1;
            return (!open || self.eat(b")")).then_some(i64::from(known));
        }
        let token = self.lexed.tokens[self.at];
        let text = self.lexed.text(self.at);
        self.at += 1;
        match token.kind {
            Kind::Number => number(text),
            // `__has_include(…)` and other calls: open.
            Kind::Name if self.peek() == b"(" => {
                self.at = self.end;
                None
            }
            Kind::Name if text == b"true" => Some(1),
            Kind::Name => self.macros.get(text).copied().unwrap_or(Some(0)),
            _ => None,
        }
    }
}

fn number(text: &[u8]) -> Option<i64> {
    let text: String = text.iter().filter(|byte| **byte != b'\'').map(|byte| char::from(*byte)).collect();
    let text = text.trim_end_matches(['u', 'U', 'l', 'L']);
    if let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return i64::from_str_radix(hex, 16).ok();
    }
    if text.len() > 1 && text.starts_with('0') { i64::from_str_radix(text, 8).ok() } else { text.parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(source: &str) -> String {
        let lexed = Lexed::new(source.as_bytes()).unwrap();
        let out = excluded(&lexed, &[("GIVEN".into(), "3".into())]);
        let tokens = 0..lexed.tokens.len();
        let kept = tokens.filter(|i| !lexed.tokens[*i].in_directive && !out.iter().any(|range| range.contains(i)));
        kept.map(|i| String::from_utf8_lossy(lexed.text(i)).into_owned()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn branches_are_chosen_like_a_preprocessor_does() {
        assert_eq!(kept("#ifdef A\n1\n#else\n2\n#endif"), "2");
        assert_eq!(kept("#if GIVEN >= 3 && !defined(B)\n1\n#elif 1\n2\n#else\n3\n#endif\n4"), "1 4");
        assert_eq!(kept("#if 0\n#if 1\n1\n#endif\n2\n#else\n3\n#endif"), "3");
        assert_eq!(kept("#define X 2\n#if X == 2\n1\n#undef X\n#ifndef X\n2\n#endif\n#endif"), "1 2");
        assert_eq!(kept("#if !defined GIVEN || GIVEN > 3\n1\n#endif\n2"), "2");
        assert_eq!(kept("#if (1 ? 0 : 1) || (2 * 3 - 6)\n1\n#endif\n2"), "2");
        assert_eq!(kept("#else\n1\n#endif\n2\n#if 0\n3"), "1 2");
    }

    #[test]
    fn versions_that_were_not_given_leave_both_branches_in() {
        assert_eq!(kept("#if CUDA_VERSION < 11000\n1\n#elif CUDA_VERSION < 12000\n2\n#else\n3\n#endif"), "1 2 3");
        assert_eq!(kept("#if CUDA_VERSION < 11000 && defined(_WIN32)\n1\n#endif\n2"), "2");
        assert_eq!(kept("#if CUDA_VERSION < 11000 || 1\n1\n#else\n2\n#endif"), "1");
        assert_eq!(kept("#ifndef CUDA_VERSION\n1\n#endif\n2"), "2");
    }

    #[test]
    fn deep_conditions_end() {
        let source = format!("#if {}1{}\n1\n#endif\n2", "(".repeat(100_000), ")".repeat(100_000));
        assert_eq!(kept(&source), "1 2");
    }
}
