//! A lossless lexer for C++ and CUDA.
//!
//! Tokens are spans of the source; white space, comments and line continuations between them are not tokens. Any bytes are
//! accepted: an unterminated literal ends with its line (a raw string or block comment with the file), and non-ASCII bytes count as
//! letters. All branches of `#if` are read.

use std::ops::Range;

/// The kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// An identifier or a keyword.
    Name,
    /// A number, with its suffix.
    Number,
    /// `"…"` with its prefix and suffix; raw strings too.
    String,
    /// `'…'`.
    Char,
    /// An operator or bracket, by longest match, `<<<` included. Every `>` is a token of its own: only a parser can tell a shift from
    /// the end of two template lists.
    Punct,
    /// The `#` of a directive.
    Hash,
    /// `<…>` after `#include`.
    HeaderName,
}

/// A token: its kind and its span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token {
    /// Start offset.
    pub start: u32,
    /// End offset.
    pub end: u32,
    /// The kind.
    pub kind: Kind,
    /// Whether it is part of a directive (with its continuation lines).
    pub in_directive: bool,
    /// Whether it is the first token of its line.
    pub first_on_line: bool,
}

/// A source with its tokens.
#[derive(Debug)]
pub struct Lexed<'a> {
    /// The source.
    pub source: &'a [u8],
    /// Its tokens, in order.
    pub tokens: Vec<Token>,
}

/// A source too large for 32-bit spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("source of {bytes} bytes is too large; the limit is 2 GiB")]
pub struct TooLarge {
    /// Its size in bytes.
    pub bytes: usize,
}

impl<'a> Lexed<'a> {
    /// Lexes a source.
    pub fn new(source: &'a [u8]) -> Result<Lexed<'a>, TooLarge> {
        if source.len() > i32::MAX as usize {
            return Err(TooLarge { bytes: source.len() });
        }
        let mut lexer = Lexer { source, at: 0, tokens: Vec::with_capacity(source.len() / 4), directive: false, fresh_line: true };
        lexer.run();
        Ok(Lexed { source, tokens: lexer.tokens })
    }

    /// The bytes of a token; empty if `index` is out of range.
    #[inline]
    pub fn text(&self, index: usize) -> &'a [u8] {
        self.tokens.get(index).map_or(&[], |token| &self.source[token.start as usize..token.end as usize])
    }

    /// Whether the token at `index` is this text.
    #[inline]
    pub fn is(&self, index: usize, text: &[u8]) -> bool {
        self.text(index) == text
    }

    /// The text of a range of tokens on one line, with white space and comments between them as one space.
    pub fn joined(&self, tokens: Range<usize>) -> String {
        let mut text = String::new();
        for index in tokens.clone() {
            if index > tokens.start && self.tokens[index].start > self.tokens[index - 1].end {
                text.push(' ');
            }
            text.push_str(&String::from_utf8_lossy(self.text(index)));
        }
        text
    }
}

struct Lexer<'a> {
    source: &'a [u8],
    at: usize,
    tokens: Vec<Token>,
    /// Inside a directive.
    directive: bool,
    /// No token on the current line yet.
    fresh_line: bool,
}

const fn is_letter(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_' || byte == b'$' || byte >= 0x80
}

/// Bytes that continue an identifier.
static IN_NAME: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = is_letter(byte as u8) || (byte as u8).is_ascii_digit();
        byte += 1;
    }
    table
};

/// Operators of more than one byte, the longest first; none starts with `>` (see [`Kind::Punct`]).
const OPERATORS: &[&[u8]] = &[
    b"<<<", b"<<=", b"...", b"->*", b"<=>", b"::", b"->", b"++", b"--", b"<<", b"<=", b"==", b"!=", b"&&", b"||", b"+=", b"-=", b"*=",
    b"/=", b"%=", b"&=", b"|=", b"^=", b"##", b".*",
];

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> u8 {
        self.source.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn run(&mut self) {
        // Skip a byte order mark.
        if self.source.starts_with(b"\xEF\xBB\xBF") {
            self.at = 3;
        }
        while self.at < self.source.len() {
            let byte = self.source[self.at];
            match byte {
                b'\n' => {
                    self.at += 1;
                    self.directive = false;
                    self.fresh_line = true;
                }
                b'\\' if self.continuation() > 0 => self.at += self.continuation(),
                b' ' | b'\t' | b'\r' | 0x0B | 0x0C => self.at += 1,
                b'/' if self.peek(1) == b'/' => self.line_comment(),
                b'/' if self.peek(1) == b'*' => self.block_comment(),
                b'#' if self.fresh_line => {
                    self.directive = true;
                    self.push(Kind::Hash, self.at + 1);
                }
                b'<' if self.after_include() => self.header_name(),
                b'"' => self.string(),
                b'\'' => self.quoted(b'\'', Kind::Char, self.at),
                b'0'..=b'9' => self.number(),
                b'.' if self.peek(1).is_ascii_digit() => self.number(),
                _ if is_letter(byte) => self.name(),
                _ => {
                    let rest = &self.source[self.at..];
                    let len = OPERATORS.iter().find(|op| rest.starts_with(op)).map_or(1, |op| op.len());
                    self.push(Kind::Punct, self.at + len);
                }
            }
        }
    }

    fn push(&mut self, kind: Kind, end: usize) {
        let (start, end) = (self.at as u32, end.min(self.source.len()) as u32);
        self.tokens.push(Token { start, end, kind, in_directive: self.directive, first_on_line: self.fresh_line });
        self.at = end as usize;
        self.fresh_line = false;
    }

    /// The length of a line continuation here, or 0.
    fn continuation(&self) -> usize {
        match (self.peek(0), self.peek(1), self.peek(2)) {
            (b'\\', b'\n', _) => 2,
            (b'\\', b'\r', b'\n') => 3,
            _ => 0,
        }
    }

    fn line_comment(&mut self) {
        while self.at < self.source.len() {
            match self.source[self.at] {
                b'\n' => return,
                b'\\' if self.continuation() > 0 => self.at += self.continuation(),
                _ => self.at += 1,
            }
        }
    }

    fn block_comment(&mut self) {
        let rest = &self.source[self.at + 2..];
        self.at = rest.windows(2).position(|pair| pair == b"*/").map_or(self.source.len(), |found| self.at + 2 + found + 2);
    }

    fn name(&mut self) {
        let mut end = self.at + 1;
        while self.source.get(end).is_some_and(|byte| IN_NAME[usize::from(*byte)]) {
            end += 1;
        }
        let quote = self.source.get(end).copied();
        let text = &self.source[self.at..end];
        match (text, quote) {
            (b"R" | b"LR" | b"uR" | b"UR" | b"u8R", Some(b'"')) => self.raw_string(end),
            (b"L" | b"u" | b"U" | b"u8", Some(b'"')) => self.quoted(b'"', Kind::String, end),
            (b"L" | b"u" | b"U" | b"u8", Some(b'\'')) => self.quoted(b'\'', Kind::Char, end),
            _ => self.push(Kind::Name, end),
        }
    }

    fn number(&mut self) {
        let mut end = self.at + 1;
        while let Some(byte) = self.source.get(end).copied() {
            let exponent = matches!(self.source[end - 1], b'e' | b'E' | b'p' | b'P') && matches!(byte, b'+' | b'-');
            // `1'000`, but not the quote of a character literal.
            let separator = byte == b'\'' && self.source.get(end + 1).is_some_and(u8::is_ascii_alphanumeric);
            if !(byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'_' || exponent || separator) {
                break;
            }
            end += 1;
        }
        self.push(Kind::Number, end);
    }

    fn string(&mut self) {
        self.quoted(b'"', Kind::String, self.at);
    }

    /// Reads a literal whose opening quote is at `quote_at`; it ends with its line at the latest.
    fn quoted(&mut self, quote: u8, kind: Kind, quote_at: usize) {
        let mut end = quote_at + 1;
        while let Some(byte) = self.source.get(end).copied() {
            match byte {
                b'\\' if self.source[end + 1..].starts_with(b"\r\n") => end += 3,
                b'\\' => end += 2,
                b'\n' => break,
                _ if byte == quote => {
                    end += 1;
                    break;
                }
                _ => end += 1,
            }
        }
        self.push(kind, end.min(self.source.len()));
    }

    /// Reads `R"mark(…)mark"` with its opening quote at `quote_at`.
    fn raw_string(&mut self, quote_at: usize) {
        let rest = &self.source[quote_at + 1..];
        let Some(open) = rest.iter().take(17).position(|byte| *byte == b'(') else {
            return self.quoted(b'"', Kind::String, quote_at);
        };
        let mut close = Vec::with_capacity(open + 2);
        close.push(b')');
        close.extend_from_slice(&rest[..open]);
        close.push(b'"');
        let found = rest.windows(close.len()).position(|window| window == close);
        let end = found.map_or(self.source.len(), |found| quote_at + 1 + found + close.len());
        self.push(Kind::String, end);
    }

    /// Whether the tokens before are `#include`.
    fn after_include(&self) -> bool {
        if !self.directive {
            return false;
        }
        let Some([hash, word]) = self.tokens.last_chunk::<2>() else { return false };
        let word = &self.source[word.start as usize..word.end as usize];
        hash.kind == Kind::Hash && matches!(word, b"include" | b"include_next" | b"import")
    }

    fn header_name(&mut self) {
        let rest = &self.source[self.at..];
        match rest.iter().position(|byte| matches!(byte, b'>' | b'\n')) {
            Some(end) if rest[end] == b'>' => self.push(Kind::HeaderName, self.at + end + 1),
            _ => self.push(Kind::Punct, self.at + 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str) -> Vec<String> {
        let lexed = Lexed::new(source.as_bytes()).unwrap();
        (0..lexed.tokens.len()).map(|i| String::from_utf8_lossy(lexed.text(i)).into_owned()).collect()
    }

    #[test]
    fn tokens_are_the_longest_but_angle_brackets_close_one_by_one() {
        assert_eq!(texts("k<<<g, b>>>(a->b);"), ["k", "<<<", "g", ",", "b", ">", ">", ">", "(", "a", "->", "b", ")", ";"]);
        assert_eq!(
            texts("a<b<c>> x; a <<= 2; y >>= 1;"),
            ["a", "<", "b", "<", "c", ">", ">", "x", ";", "a", "<<=", "2", ";", "y", ">", ">", "=", "1", ";"]
        );
    }

    #[test]
    fn literals_are_one_token_each() {
        assert_eq!(
            texts(r#"L"a\"b" u8'c' R"x(a)" )x" 0x1.8p+3f 1'000 .5e-3 "#),
            [r#"L"a\"b""#, "u8'c'", r#"R"x(a)" )x""#, "0x1.8p+3f", "1'000", ".5e-3"]
        );
        assert_eq!(texts("\"cut\nnext 'x\nend"), ["\"cut", "next", "'x", "end"]);
        assert_eq!(texts("R\"(never closed\nat all"), ["R\"(never closed\nat all"]);
    }

    #[test]
    fn comments_and_continuations_are_not_tokens() {
        assert_eq!(texts("a // b \\\n still\nc /* d\n e */ f /* never closed"), ["a", "c", "f"]);
        assert_eq!(texts("#define X \\\r\n 1\nY"), ["#", "define", "X", "1", "Y"]);
    }

    #[test]
    fn directives_reach_to_the_end_of_their_line() {
        let lexed = Lexed::new(b"  #define A b \\\n c\nd\n#include <x/y.h>\n a # b").unwrap();
        let marked: Vec<(String, bool)> =
            lexed.tokens.iter().enumerate().map(|(i, t)| (String::from_utf8_lossy(lexed.text(i)).into_owned(), t.in_directive)).collect();
        let expected = [
            ("#", true),
            ("define", true),
            ("A", true),
            ("b", true),
            ("c", true),
            ("d", false),
            ("#", true),
            ("include", true),
            ("<x/y.h>", true),
            ("a", false),
            ("#", false),
            ("b", false),
        ];
        assert_eq!(marked, expected.map(|(t, d)| (t.to_owned(), d)));
        assert_eq!(lexed.tokens.iter().filter(|t| t.kind == Kind::Hash).count(), 2);
    }

    proptest::proptest! {
        /// Any bytes: spans are in order, inside the source, and never empty.
        #[test]
        fn any_bytes_give_ordered_spans(source in proptest::collection::vec(proptest::num::u8::ANY, 0..400)) {
            let lexed = Lexed::new(&source).unwrap();
            let mut last = 0;
            for token in &lexed.tokens {
                proptest::prop_assert!(token.start >= last && token.end > token.start && token.end as usize <= source.len());
                last = token.end;
            }
        }
    }
}
