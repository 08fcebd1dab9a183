//! Tokens without directives, with matched brackets and a list of functions, for the rules.
//!
//! Every scan is one pass over the tokens or limited to [`REACH`] of them, so time is linear.

use std::ops::Range;

use crate::lex::{Kind, Lexed};

/// The limit of a scan within one statement.
pub const REACH: usize = 256;

const NONE: u32 = u32::MAX;

/// A sequence of tokens with matched brackets.
pub struct Code<'a> {
    lexed: &'a Lexed<'a>,
    /// The tokens, as indices of `lexed.tokens`.
    at: Vec<u32>,
    /// Their spans and kinds, for direct access.
    tokens: Vec<(u32, u32, Kind)>,
    /// For a bracket, the matching one.
    partner: Vec<u32>,
    /// The innermost bracket around each token.
    parent: Vec<u32>,
}

/// A function, or the body of a macro.
pub struct Unit<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// Return type, name and parameters; empty for a macro.
    pub head: Range<usize>,
    /// The tokens between its braces.
    pub body: Range<usize>,
}

impl<'a> Code<'a> {
    /// Matches the brackets of these tokens. Unmatched brackets are ignored.
    pub fn new(lexed: &'a Lexed<'a>, at: Vec<u32>) -> Code<'a> {
        let tokens = at.iter().map(|index| &lexed.tokens[*index as usize]).map(|token| (token.start, token.end, token.kind)).collect();
        let mut code = Code { lexed, tokens, partner: vec![NONE; at.len()], parent: vec![NONE; at.len()], at };
        let mut open: Vec<u32> = Vec::new();
        for i in 0..code.at.len() {
            let (start, end, kind) = code.tokens[i];
            let byte = if kind == Kind::Punct && end - start == 1 { lexed.source[start as usize] } else { 0 };
            if let b')' | b']' | b'}' = byte {
                let opener = match byte {
                    b')' => b'(',
                    b']' => b'[',
                    _ => b'{',
                };
                // A brace closes whatever was left open inside; two branches of an `#if` may each open one.
                while byte == b'}' && open.last().is_some_and(|top| code.byte(*top as usize) != b'{') {
                    open.pop();
                }
                if open.last().is_some_and(|top| code.byte(*top as usize) == opener)
                    && let Some(top) = open.pop()
                {
                    code.partner[top as usize] = i as u32;
                    code.partner[i] = top;
                }
            }
            code.parent[i] = open.last().copied().unwrap_or(NONE);
            if matches!(byte, b'(' | b'[' | b'{') {
                open.push(i as u32);
            }
        }
        code
    }

    /// The number of tokens.
    pub fn len(&self) -> usize {
        self.at.len()
    }

    fn byte(&self, i: usize) -> u8 {
        self.text(i).first().copied().unwrap_or(0)
    }

    /// The bytes of a token; empty past the end.
    #[inline]
    pub fn text(&self, i: usize) -> &'a [u8] {
        self.tokens.get(i).map_or(&[], |(start, end, _)| &self.lexed.source[*start as usize..*end as usize])
    }

    /// Whether the token at `i` is this text.
    #[inline]
    pub fn is(&self, i: usize, text: &[u8]) -> bool {
        self.text(i) == text
    }

    /// Whether the token before `i` is this text.
    pub fn before(&self, i: usize, text: &[u8]) -> bool {
        i > 0 && self.is(i - 1, text)
    }

    /// Whether the token is of this kind.
    pub fn kind(&self, i: usize, kind: Kind) -> bool {
        self.tokens.get(i).is_some_and(|token| token.2 == kind)
    }

    /// Whether it is an identifier or keyword.
    pub fn is_name(&self, i: usize) -> bool {
        self.kind(i, Kind::Name)
    }

    /// The index of a token in the source.
    pub fn token(&self, i: usize) -> usize {
        self.at.get(i).map_or(usize::MAX, |index| *index as usize)
    }

    /// The span from one token to another, inclusive; an index past the end means the last token.
    pub fn span(&self, first: usize, last: usize) -> (u32, u32) {
        let place = |i: usize| self.tokens.get(i).or(self.tokens.last()).map_or((0, 0), |token| (token.0, token.1));
        let (first, last) = (place(first), place(last));
        (first.0, last.1.max(first.1))
    }

    /// The matching bracket.
    pub fn partner(&self, i: usize) -> Option<usize> {
        self.partner.get(i).filter(|p| **p != NONE).map(|p| *p as usize)
    }

    /// The innermost bracket around `i`.
    pub fn parent(&self, i: usize) -> Option<usize> {
        self.parent.get(i).filter(|p| **p != NONE).map(|p| *p as usize)
    }

    /// Whether `>>` starts at `i`: two adjacent tokens.
    pub fn shift_right(&self, i: usize) -> bool {
        self.is(i, b">") && self.is(i + 1, b">") && self.span(i, i).1 == self.span(i + 1, i + 1).0
    }

    /// The arguments between a `(` and its `)`.
    pub fn arguments(&self, open: usize) -> Vec<Range<usize>> {
        let Some(close) = self.partner(open).filter(|close| *close > open + 1) else { return Vec::new() };
        let (mut out, mut from, mut i) = (Vec::new(), open + 1, open + 1);
        while i < close {
            match self.byte(i) {
                b'(' | b'[' | b'{' => i = self.partner(i).unwrap_or(i).max(i),
                b',' => {
                    out.push(from..i);
                    from = i + 1;
                }
                _ => {}
            }
            i += 1;
        }
        out.push(from..close);
        out
    }

    /// The value of a number token.
    pub fn number(&self, i: usize) -> Option<u64> {
        if self.kind(i, Kind::Number) { parse(self.text(i)) } else { None }
    }

    /// The value of an expression that is one number, possibly in parentheses or with a cast.
    pub fn literal(&self, mut range: Range<usize>) -> Option<u64> {
        for _ in 0..4 {
            if range.len() > 2 && self.is(range.start, b"(") {
                match self.partner(range.start) {
                    Some(close) if close + 1 == range.end => range = range.start + 1..close,
                    Some(close) if close < range.end => range = close + 1..range.end,
                    _ => return None,
                }
            }
        }
        if range.len() == 1 { self.number(range.start) } else { None }
    }

    /// The first token of the statement around `i`, at most [`REACH`] tokens back.
    pub fn statement_start(&self, i: usize) -> usize {
        let mut k = i;
        for _ in 0..REACH {
            if k == 0 {
                return 0;
            }
            match self.byte(k - 1) {
                b';' | b'{' => return k,
                b'}' => return k,
                b')' | b']' => k = self.partner(k - 1).unwrap_or(k - 1),
                _ => k -= 1,
            }
        }
        k
    }

    /// The end of the statement that starts at `i`: after its `;` or `}`, including the body of a loop or condition.
    pub fn statement_end(&self, i: usize, limit: usize) -> usize {
        let mut k = i;
        let stop = limit.min(i.saturating_add(8 * REACH));
        while k < stop {
            match self.byte(k) {
                b'{' => return self.partner(k).map_or(limit, |close| (close + 1).min(limit)),
                b'(' | b'[' => k = self.partner(k).unwrap_or(k).max(k),
                b';' => return k + 1,
                b'}' => return k,
                _ => {}
            }
            k += 1;
        }
        stop
    }

    /// All functions, including class members. Code nested in a function is part of it.
    pub fn units(&self) -> Vec<Unit<'a>> {
        let mut units = Vec::new();
        let kernels: Vec<usize> = (0..self.len()).filter(|k| self.byte(*k) == b'_' && self.is(*k, b"__global__")).collect();
        let kernel_after = |k: usize| kernels.get(kernels.partition_point(|at| *at < k)).copied().unwrap_or(usize::MAX);
        let (mut i, mut from) = (0, 0);
        while i < self.len() {
            match self.byte(i) {
                b';' | b'}' => from = i + 1,
                // A bracket that contains a kernel was not meant to close there: macros, or a truncated file.
                b'(' | b'[' => i = self.partner(i).filter(|close| *close > i && kernel_after(i) > *close).unwrap_or(i),
                b'{' if self.text(i).len() == 1 => {
                    let mut close = self.partner(i).unwrap_or(self.len());
                    if let Some(name) = self.function_name(from, i) {
                        // Branches of an `#if` that open two braces for one: the next kernel ends this function.
                        close = close.min(kernel_after(i));
                        units.push(Unit { name: self.text(name), head: from..i, body: i + 1..close });
                        i = if self.is(close, b"__global__") { close - 1 } else { close };
                    } else if self.is_list(from, i) {
                        i = close;
                    }
                    from = i + 1;
                }
                _ => {}
            }
            i += 1;
        }
        units
    }

    /// Whether the tokens before a `{` make it an initializer list. A default template argument has an `=` too.
    fn is_list(&self, from: usize, brace: usize) -> bool {
        let has = |word: &[u8]| (from..brace).any(|k| self.is(k, word));
        has(b"enum") || has(b"=") && !(has(b"struct") || has(b"class") || has(b"union") || has(b"namespace"))
    }

    /// The position of the function's name before a `{`, if it is a function.
    fn function_name(&self, from: usize, brace: usize) -> Option<usize> {
        let mut k = from;
        let mut found = None;
        while k < brace {
            match self.text(k) {
                b"(" => {
                    if found.is_none() && k > from && self.is_name(k - 1) && !is_attribute(self.text(k - 1)) {
                        found = Some(k - 1);
                    }
                    k = self.partner(k).unwrap_or(k).max(k);
                }
                b"[" => k = self.partner(k).unwrap_or(k).max(k),
                b"namespace" => return None,
                // A class, unless a function returns an elaborated type.
                b"class" | b"struct" | b"union" | b"enum"
                    if found.is_none()
                        && !self.before(k, b"<")
                        && !self.before(k, b",")
                        && !(k..brace).take(REACH).any(|j| self.is(j, b"(")) =>
                {
                    return None;
                }
                b"=" if found.is_none() && !(from..k).take(REACH).any(|j| self.is(j, b"template")) => return None,
                _ => {}
            }
            k += 1;
        }
        found
    }
}

fn is_attribute(name: &[u8]) -> bool {
    matches!(
        name,
        b"__launch_bounds__" | b"__attribute__" | b"__align__" | b"alignas" | b"__declspec" | b"requires" | b"decltype" | b"noexcept"
    )
}

/// Parses an integer with any suffix and separators.
pub fn parse(text: &[u8]) -> Option<u64> {
    let (radix, digits) = match text {
        [b'0', b'x' | b'X', rest @ ..] => (16, rest),
        [b'0', b'b' | b'B', rest @ ..] => (2, rest),
        [b'0', rest @ ..] if rest.first().is_some_and(u8::is_ascii_digit) => (8, rest),
        _ => (10, text),
    };
    let mut value: u64 = 0;
    let mut any = false;
    for (k, byte) in digits.iter().enumerate() {
        match (*byte as char).to_digit(radix) {
            Some(digit) => {
                value = value.checked_mul(u64::from(radix))?.checked_add(u64::from(digit))?;
                any = true;
            }
            None if *byte == b'\'' => {}
            None => {
                let suffix = &digits[k..];
                return (any && suffix.iter().all(|b| matches!(b, b'u' | b'U' | b'l' | b'L'))).then_some(value);
            }
        }
    }
    any.then_some(value)
}

/// Whether `name` contains the lowercase `word`, ignoring case.
pub fn contains(name: &[u8], word: &[u8]) -> bool {
    name.len() >= word.len() && name.windows(word.len()).any(|window| window.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(source: &str) -> Vec<String> {
        let lexed = Lexed::new(source.as_bytes()).unwrap();
        let at = (0..lexed.tokens.len() as u32).filter(|i| !lexed.tokens[*i as usize].in_directive).collect();
        Code::new(&lexed, at).units().iter().map(|unit| String::from_utf8_lossy(unit.name).into_owned()).collect()
    }

    #[test]
    fn functions_are_found_in_namespaces_and_classes_and_not_in_initializers() {
        let source = "namespace a { struct S { int x = 3; __device__ int get() const { return x; } }; }\n\
            int table[] = {1, 2};\n\
            template <int N = 4> __global__ void __launch_bounds__(256) kernel(const float *x) { if (x) { } }\n\
            extern \"C\" { void host(void) { auto f = [] (int a) { return a; }; } }\n\
            struct P make(int a) { return {}; } enum class E { A, B };\n\
            template <typename T = int> struct Q { T v = 0; __device__ void push(T t) { v = t; } };";
        assert_eq!(names(source), ["get", "kernel", "host", "make", "push"]);
    }

    #[test]
    fn a_brace_opened_in_two_branches_ends_at_the_next_kernel() {
        let source = "__global__ void a() {\n#if X\n if (x) {\n#else\n if (y) {\n#endif\n }\n}\n__global__ void b() { }\n";
        assert_eq!(names(source), ["a", "b"]);
    }

    #[test]
    fn numbers_have_values() {
        for (text, value) in
            [("32", Some(32)), ("0x1fu", Some(31)), ("4'294'967'295UL", Some(0xffff_ffff)), ("1.5", None), ("0b11", Some(3))]
        {
            assert_eq!(parse(text.as_bytes()), value, "{text}");
        }
    }
}
