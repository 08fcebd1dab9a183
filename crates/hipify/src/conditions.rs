//! Which blocks a preprocessor would leave out: `#if` and its kin, evaluated with the given macros, those the file defines on the
//! way, and the version macros of a present CUDA. Every other macro is undefined. Included files are not read.

use std::collections::HashMap;
use std::ops::Range;

use crate::lex::{Kind, Lexed};

/// Versions of CUDA 12.6 and its libraries, which the real headers would define.
const PREDEFINED: &[(&str, i64)] = &[
    ("CUDA_VERSION", 12_060),
    ("CUDART_VERSION", 12_060),
    ("CUBLAS_VERSION", 120_600),
    ("CUBLAS_VER_MAJOR", 12),
    ("CUDNN_VERSION", 90_500),
    ("CUDNN_MAJOR", 9),
    ("CUFFT_VERSION", 11_300),
    ("CURAND_VERSION", 10_307),
    ("CUSOLVER_VERSION", 11_604),
    ("CUSPARSE_VERSION", 12_503),
    ("CUSPARSE_VER_MAJOR", 12),
    ("CUSPARSE_VER_MINOR", 5),
    ("__CUDACC__", 1),
    ("__NVCC__", 1),
    ("__cplusplus", 201_703),
    ("__linux__", 1),
    ("__x86_64__", 1),
    ("__GNUC__", 4),
    ("__clang__", 1),
];

/// How deep parentheses of a condition may nest; beyond it a condition is false.
const MAX_DEPTH: usize = 64;

struct Block {
    /// A branch has been taken.
    taken: bool,
    /// The block itself lies in an active place.
    outer: bool,
    active: bool,
    /// The first token of the present branch.
    from: usize,
}

/// The ranges of tokens that are left out, in order.
pub(crate) fn excluded(lexed: &Lexed<'_>, defines: &[(String, String)]) -> Vec<Range<usize>> {
    let mut macros: HashMap<&[u8], i64> = PREDEFINED.iter().map(|(name, value)| (name.as_bytes(), *value)).collect();
    for (name, value) in defines {
        macros.insert(name.as_bytes(), value.trim().parse().unwrap_or(1));
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
                let holds = active
                    && match word {
                        b"if" => evaluate(lexed, body, &macros),
                        b"ifdef" => macros.contains_key(lexed.text(hash + 2)),
                        _ => !macros.contains_key(lexed.text(hash + 2)),
                    };
                blocks.push(Block { taken: holds, outer: active, active: holds, from: end });
            }
            word @ (b"elif" | b"elifdef" | b"elifndef" | b"else") => {
                let Some(block) = blocks.last_mut() else { continue };
                close(block);
                let holds = block.outer
                    && !block.taken
                    && match word {
                        b"elif" => evaluate(lexed, body, &macros),
                        b"elifdef" => macros.contains_key(lexed.text(hash + 2)),
                        b"elifndef" => !macros.contains_key(lexed.text(hash + 2)),
                        _ => true,
                    };
                block.taken |= holds;
                block.active = holds;
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
                let value = if function_like || hash + 3 >= end {
                    i64::from(!function_like)
                } else {
                    Evaluator { lexed, at: hash + 3, end, macros: &macros }.or(0).unwrap_or(0)
                };
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

fn evaluate(lexed: &Lexed<'_>, body: Range<usize>, macros: &HashMap<&[u8], i64>) -> bool {
    Evaluator { lexed, at: body.start, end: body.end, macros }.or(0).unwrap_or(0) != 0
}

struct Evaluator<'a> {
    lexed: &'a Lexed<'a>,
    at: usize,
    end: usize,
    macros: &'a HashMap<&'a [u8], i64>,
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
        let mut left = self.and(depth)?;
        while self.eat(b"||") {
            let right = self.and(depth)?;
            left = i64::from(left != 0 || right != 0);
        }
        if self.eat(b"?") {
            let yes = if depth < MAX_DEPTH { self.or(depth + 1)? } else { return None };
            if !self.eat(b":") {
                return None;
            }
            let no = self.or(depth + 1)?;
            return Some(if left != 0 { yes } else { no });
        }
        Some(left)
    }

    fn and(&mut self, depth: usize) -> Option<i64> {
        let mut left = self.compare(depth)?;
        while self.eat(b"&&") {
            let right = self.compare(depth)?;
            left = i64::from(left != 0 && right != 0);
        }
        Some(left)
    }

    fn compare(&mut self, depth: usize) -> Option<i64> {
        let left = self.sum(depth)?;
        // The lexer gives `>` alone, so `>=` is two tokens.
        let greater = self.eat(b">");
        let (or_equal, less, less_equal) = (greater && self.eat(b"="), !greater && self.eat(b"<"), !greater && self.eat(b"<="));
        let (equal, unequal) = (!greater && self.eat(b"=="), !greater && self.eat(b"!="));
        if !(greater || less || less_equal || equal || unequal) {
            return Some(left);
        }
        let right = self.sum(depth)?;
        Some(i64::from(match (greater, or_equal, less, less_equal, equal) {
            (true, true, ..) => left >= right,
            (true, false, ..) => left > right,
            (_, _, true, ..) => left < right,
            (_, _, _, true, _) => left <= right,
            (_, _, _, _, true) => left == right,
            _ => left != right,
        }))
    }

    fn sum(&mut self, depth: usize) -> Option<i64> {
        let mut left = self.unary(depth)?;
        loop {
            let op = self.peek();
            let apply: fn(i64, i64) -> Option<i64> = match op {
                b"+" => |a, b| Some(a.wrapping_add(b)),
                b"-" => |a, b| Some(a.wrapping_sub(b)),
                b"*" => |a, b| Some(a.wrapping_mul(b)),
                b"/" => i64::checked_div,
                b"%" => i64::checked_rem,
                b"&" => |a, b| Some(a & b),
                b"|" => |a, b| Some(a | b),
                _ => return Some(left),
            };
            self.at += 1;
            let right = self.unary(depth)?;
            left = apply(left, right)?;
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
        let mut value = self.primary(depth)?;
        if minus {
            value = value.wrapping_neg();
        }
        if not > 0 {
            value = i64::from((value == 0) == (not % 2 == 1));
        }
        Some(value)
    }

    fn primary(&mut self, depth: usize) -> Option<i64> {
        if self.at >= self.end || depth >= MAX_DEPTH {
            return None;
        }
        if self.eat(b"(") {
            let value = self.or(depth + 1)?;
            return self.eat(b")").then_some(value);
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
            Kind::Name => {
                // `__has_include(…)` and other calls: not known.
                if self.eat(b"(") {
                    let mut open = 1;
                    while open > 0 && self.at < self.end {
                        open += usize::from(self.peek() == b"(");
                        open -= usize::from(self.peek() == b")");
                        self.at += 1;
                    }
                    return Some(0);
                }
                Some(if text == b"true" { 1 } else { self.macros.get(text).copied().unwrap_or(0) })
            }
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
        assert_eq!(kept("#if CUDA_VERSION < 11000\n1\n#else\n2\n#endif"), "2");
        assert_eq!(kept("#if (1 ? 0 : 1) || (2 * 3 - 6)\n1\n#endif\n2"), "2");
        assert_eq!(kept("#else\n1\n#endif\n2\n#if 0\n3"), "1 2");
    }

    #[test]
    fn deep_conditions_end() {
        let source = format!("#if {}1{}\n1\n#endif\n2", "(".repeat(100_000), ")".repeat(100_000));
        assert_eq!(kept(&source), "2");
    }
}
