//! The arithmetic of `#if`.
//!
//! Three-valued: a name with an unknown value makes the result unknown, unless the rest decides it (`0 && X`).

use std::ops::Range;

use crate::lex::Lexed;

/// A token of a condition, and whether it touches the one before (which tells `>=` from `> =`).
pub(crate) type Item<'a> = (&'a [u8], bool);

/// The tokens of a range as items.
pub(crate) fn items<'a>(lexed: &Lexed<'a>, range: Range<usize>) -> Vec<Item<'a>> {
    range.map(|index| (lexed.text(index), index > 0 && lexed.tokens[index - 1].end == lexed.tokens[index].start)).collect()
}

/// Nesting limit of parentheses; deeper conditions are unknown.
const MAX_DEPTH: usize = 200;

/// Evaluates a condition. `value` returns the value of a name, `defined` answers `defined(name)`; `None` is unknown.
pub(crate) fn evaluate(items: &[Item<'_>], value: &dyn Fn(&[u8]) -> Option<i64>, defined: &dyn Fn(&[u8]) -> Option<bool>) -> Option<i64> {
    let mut parser = Parser { items, at: 0, depth: 0, value, defined, failed: false };
    let result = parser.ternary();
    if parser.failed || parser.at != items.len() { None } else { result }
}

struct Parser<'a> {
    items: &'a [Item<'a>],
    at: usize,
    depth: usize,
    value: &'a dyn Fn(&[u8]) -> Option<i64>,
    defined: &'a dyn Fn(&[u8]) -> Option<bool>,
    failed: bool,
}

/// Operators by rising precedence.
const LEVELS: &[&[&str]] =
    &[&["||"], &["&&"], &["|"], &["^"], &["&"], &["==", "!="], &["<=", ">=", "<", ">"], &["<<", ">>"], &["+", "-"], &["*", "/", "%"]];

impl Parser<'_> {
    fn peek(&self) -> &[u8] {
        self.items.get(self.at).map_or(b"", |(text, _)| text)
    }

    fn take(&mut self, text: &str) -> bool {
        let found = self.peek() == text.as_bytes();
        self.at += usize::from(found);
        found
    }

    /// The operator here, joined from its parts: the lexer splits off every `>`.
    fn operator(&self) -> (String, usize) {
        let first = String::from_utf8_lossy(self.peek()).into_owned();
        if first == ">"
            && let Some((next, true)) = self.items.get(self.at + 1)
        {
            match *next {
                b">" => return (">>".to_owned(), 2),
                b"=" => return (">=".to_owned(), 2),
                b"==" => return (first, 1),
                _ => {}
            }
        }
        (first, 1)
    }

    fn ternary(&mut self) -> Option<i64> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            self.failed = true;
            self.at = self.items.len();
            return None;
        }
        let condition = self.binary(0);
        let result = if self.take("?") {
            let yes = self.ternary();
            if !self.take(":") {
                self.failed = true;
            }
            let no = self.ternary();
            match condition {
                Some(0) => no,
                Some(_) => yes,
                None => yes.filter(|_| yes == no),
            }
        } else {
            condition
        };
        self.depth -= 1;
        result
    }

    fn binary(&mut self, level: usize) -> Option<i64> {
        let Some(operators) = LEVELS.get(level) else { return self.unary() };
        let mut left = self.binary(level + 1);
        loop {
            let (operator, items) = self.operator();
            if !operators.contains(&operator.as_str()) {
                return left;
            }
            self.at += items;
            let right = self.binary(level + 1);
            left = apply(&operator, left, right);
        }
    }

    fn unary(&mut self) -> Option<i64> {
        // A loop, not recursion: a thousand `!` must not use a thousand stack frames.
        let mut operators = Vec::new();
        while matches!(self.peek(), b"!" | b"-" | b"+" | b"~") {
            operators.push(self.peek()[0]);
            self.at += 1;
        }
        let mut value = self.primary();
        for operator in operators.into_iter().rev() {
            value = value.map(|v| match operator {
                b'!' => i64::from(v == 0),
                b'-' => v.wrapping_neg(),
                b'~' => !v,
                _ => v,
            });
        }
        value
    }

    fn primary(&mut self) -> Option<i64> {
        if self.take("(") {
            let value = self.ternary();
            if !self.take(")") {
                self.failed = true;
            }
            return value;
        }
        let Some((text, _)) = self.items.get(self.at).copied() else {
            self.failed = true;
            return None;
        };
        self.at += 1;
        match text {
            b"defined" => {
                let parenthesis = self.take("(");
                let name = self.items.get(self.at).map_or(&b""[..], |(text, _)| text);
                self.at += 1;
                if parenthesis && !self.take(")") {
                    self.failed = true;
                }
                (self.defined)(name).map(i64::from)
            }
            b"true" => Some(1),
            b"false" => Some(0),
            [b'0'..=b'9', ..] => number(text),
            [b'a'..=b'z' | b'A'..=b'Z' | b'_', ..] => {
                let value = (self.value)(text);
                // `__has_builtin(x)` and the like: skip the call, its result is unknown.
                if self.peek() == b"(" {
                    self.skip_call();
                    return None;
                }
                value
            }
            _ => {
                self.failed = true;
                None
            }
        }
    }

    fn skip_call(&mut self) {
        let mut open = 0;
        while self.at < self.items.len() {
            match self.peek() {
                b"(" => open += 1,
                b")" => open -= 1,
                _ => {}
            }
            self.at += 1;
            if open == 0 {
                return;
            }
        }
        self.failed = true;
    }
}

/// Parses an integer literal with its suffix.
pub(crate) fn number(text: &[u8]) -> Option<i64> {
    let text = String::from_utf8_lossy(text).replace('\'', "").to_ascii_lowercase();
    let text = text.trim_end_matches(['u', 'l', 'z']);
    let value = if let Some(hex) = text.strip_prefix("0x") {
        u64::from_str_radix(hex, 16)
    } else if let Some(binary) = text.strip_prefix("0b") {
        u64::from_str_radix(binary, 2)
    } else if text.len() > 1 && text.starts_with('0') {
        u64::from_str_radix(&text[1..], 8)
    } else {
        text.parse()
    };
    value.ok().map(|v| v as i64)
}

fn apply(operator: &str, left: Option<i64>, right: Option<i64>) -> Option<i64> {
    match (operator, left, right) {
        ("||", Some(v), _) | ("||", _, Some(v)) if v != 0 => return Some(1),
        ("&&", Some(0), _) | ("&&", _, Some(0)) => return Some(0),
        _ => {}
    }
    let (a, b) = (left?, right?);
    Some(match operator {
        "||" | "&&" => i64::from(operator == "&&"),
        "|" => a | b,
        "^" => a ^ b,
        "&" => a & b,
        "==" => i64::from(a == b),
        "!=" => i64::from(a != b),
        "<=" => i64::from(a <= b),
        ">=" => i64::from(a >= b),
        "<" => i64::from(a < b),
        ">" => i64::from(a > b),
        "<<" => a.wrapping_shl(b as u32),
        ">>" => a.wrapping_shr(b as u32),
        "+" => a.wrapping_add(b),
        "-" => a.wrapping_sub(b),
        "*" => a.wrapping_mul(b),
        "/" => a.checked_div(b)?,
        _ => a.checked_rem(b)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn eval(text: &str) -> Option<i64> {
        let lexed = Lexed::new(text.as_bytes()).unwrap();
        let items = items(&lexed, 0..lexed.tokens.len());
        let value = |name: &[u8]| (name == b"ARCH").then_some(900);
        let defined = |name: &[u8]| match name {
            b"ARCH" => Some(true),
            b"NONE" => Some(false),
            _ => None,
        };
        evaluate(&items, &value, &defined)
    }

    #[test]
    fn conditions_have_values() {
        for (text, expected) in [
            ("ARCH >= 800", Some(1)),
            ("ARCH > 900", Some(0)),
            ("1 + 2 * 3 == 7 && !0", Some(1)),
            ("defined(ARCH) && ARCH < 0x400", Some(1)),
            ("defined ARCH && !defined NONE", Some(1)),
            ("X && 0", Some(0)),
            ("X || ARCH", Some(1)),
            ("X && 1", None),
            ("(1 << 4) >> 2", Some(4)),
            ("1 ? 2 : 3", Some(2)),
            ("010 + 0b11 + 1'000ull", Some(1011)),
            ("1 / 0", None),
            ("__has_builtin(x, (y)) || 1", Some(1)),
            ("__has_builtin(x)", None),
            ("", None),
            ("(1", None),
            ("1 1", None),
            ("-1 < 0", Some(1)),
        ] {
            assert_eq!(eval(text), expected, "{text}");
        }
        assert_eq!(eval(&"(".repeat(100_000)), None);
        assert_eq!(eval(&format!("{}1", "!".repeat(100_001))), Some(0));
    }
}
