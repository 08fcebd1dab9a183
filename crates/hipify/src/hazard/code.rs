//! Tokens as the rules read them: directives set aside, brackets paired, functions found.
//!
//! Every scan is either one pass over the tokens or limited to [`REACH`] of them, so that no input takes more than linear time.

use std::ops::Range;

use crate::lex::{Kind, Lexed};

/// How far a rule looks within one statement.
pub const REACH: usize = 256;

const NONE: u32 = u32::MAX;

/// A run of tokens with its brackets paired.
pub struct Code<'a> {
    lexed: &'a Lexed<'a>,
    /// The tokens, as indices of `lexed.tokens`.
    at: Vec<u32>,
    /// Their spans and kinds, so that a rule's look costs one step.
    tokens: Vec<(u32, u32, Kind)>,
    /// For a bracket, its other half.
    partner: Vec<u32>,
    /// The innermost bracket around each token.
    parent: Vec<u32>,
}

/// A function, or the text of a macro.
pub struct Unit<'a> {
    /// What it is called.
    pub name: &'a [u8],
    /// Return type, name and parameters; empty for a macro.
    pub head: Range<usize>,
    /// What lies between its braces.
    pub body: Range<usize>,
}

impl<'a> Code<'a> {
    /// Pairs the brackets of these tokens. A bracket that does not match its opener is left alone.
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

    /// How many tokens there are.
    pub fn len(&self) -> usize {
        self.at.len()
    }

    fn byte(&self, i: usize) -> u8 {
        self.text(i).first().copied().unwrap_or(0)
    }

    /// A token's bytes; none past the end.
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

    /// Whether it is a name or keyword.
    pub fn is_name(&self, i: usize) -> bool {
        self.kind(i, Kind::Name)
    }

    /// A token's index in the whole source.
    pub fn token(&self, i: usize) -> usize {
        self.at.get(i).map_or(usize::MAX, |index| *index as usize)
    }

    /// The bytes from one token to another, both included; what is past the end counts as the last.
    pub fn span(&self, first: usize, last: usize) -> (u32, u32) {
        let place = |i: usize| self.tokens.get(i).or(self.tokens.last()).map_or((0, 0), |token| (token.0, token.1));
        let (first, last) = (place(first), place(last));
        (first.0, last.1.max(first.1))
    }

    /// The other half of a bracket.
    pub fn partner(&self, i: usize) -> Option<usize> {
        self.partner.get(i).filter(|p| **p != NONE).map(|p| *p as usize)
    }

    /// The innermost bracket that `i` is in.
    pub fn parent(&self, i: usize) -> Option<usize> {
        self.parent.get(i).filter(|p| **p != NONE).map(|p| *p as usize)
    }

    /// Whether `>>` begins at `i`: two tokens with nothing between.
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

    /// The value of an expression that is one number, in parentheses or behind a cast perhaps.
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

    /// The first token of the statement that `i` is in, no further back than [`REACH`].
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

    /// The end of the statement that begins at `i`: behind its `;` or its `}`. Loops and conditions take what they govern along.
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

    /// All functions, class members among them. Namespaces and classes are looked into; what lies in a function is part of it.
    pub fn units(&self) -> Vec<Unit<'a>> {
        let mut units = Vec::new();
        let kernels: Vec<usize> = (0..self.len()).filter(|k| self.byte(*k) == b'_' && self.is(*k, b"__global__")).collect();
        let kernel_after = |k: usize| kernels.get(kernels.partition_point(|at| *at < k)).copied().unwrap_or(usize::MAX);
        let (mut i, mut from) = (0, 0);
        while i < self.len() {
            match self.byte(i) {
                b';' | b'}' => from = i + 1,
                // A bracket that holds a kernel was never meant to close there: macros, or a cut file.
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

    /// Whether what precedes a `{` makes it a list of values. The default of a template's parameter has an `=` too.
    fn is_list(&self, from: usize, brace: usize) -> bool {
        let has = |word: &[u8]| (from..brace).any(|k| self.is(k, word));
        has(b"enum") || has(b"=") && !(has(b"struct") || has(b"class") || has(b"union") || has(b"namespace"))
    }

    /// Where a function's name stands in what precedes a `{`, if that is a function.
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
                // A class, unless a function returns it by its full name.
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

/// A whole number with any suffix and separators.
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

/// Whether `name` contains `word`, which is in lower case, whatever the case of `name`.
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
    fn functions_are_found_in_namespaces_and_classes_and_not_in_initialisers() {
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
