//! A lexer for CMake: commands with their arguments and spans; comments and white space are skipped.

/// The syntax of an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Plain,
    /// `"…"`.
    Quoted,
    /// `[[…]]`: nothing in it is evaluated.
    Bracket,
    /// `(` or `)` among the arguments.
    Paren,
}

/// An argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Argument<'a> {
    pub form: Form,
    /// With its quotes.
    pub start: usize,
    pub end: usize,
    /// Without them.
    pub text: &'a str,
    /// The offset of `text`.
    pub at: usize,
}

/// A command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Command<'a> {
    /// As written; CMake ignores case.
    pub name: &'a str,
    pub start: usize,
    /// After the `)`.
    pub end: usize,
    pub arguments: Vec<Argument<'a>>,
}

/// The commands of a file, and the offset of a syntax error.
pub(super) fn read(text: &str) -> (Vec<Command<'_>>, Option<usize>) {
    let mut reader = Reader { text, bytes: text.as_bytes(), at: 0 };
    let mut commands = Vec::new();
    loop {
        reader.skip();
        if reader.at >= reader.bytes.len() {
            return (commands, None);
        }
        let start = reader.at;
        match reader.command() {
            Some(command) => commands.push(command),
            None => return (commands, Some(start)),
        }
    }
}

struct Reader<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> u8 {
        self.bytes.get(self.at).copied().unwrap_or(0)
    }

    /// Skips white space and comments.
    fn skip(&mut self) {
        while self.at < self.bytes.len() {
            match self.peek() {
                b'#' => {
                    self.at += 1;
                    if let Some(end) = self.bracket() {
                        self.at = end;
                    } else {
                        let rest = &self.bytes[self.at..];
                        self.at += rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
                    }
                }
                byte if byte.is_ascii_whitespace() => self.at += 1,
                _ => return,
            }
        }
    }

    /// The end of the bracket argument that starts here.
    fn bracket(&self) -> Option<usize> {
        let rest = &self.bytes[self.at..];
        let equals = rest.strip_prefix(b"[")?.iter().take_while(|byte| **byte == b'=').count();
        if rest.get(equals + 1) != Some(&b'[') {
            return None;
        }
        let close = format!("]{}]", "=".repeat(equals));
        let from = self.at + equals + 2;
        self.text[from..].find(&close).map(|at| from + at + close.len())
    }

    fn command(&mut self) -> Option<Command<'a>> {
        let start = self.at;
        while self.peek().is_ascii_alphanumeric() || self.peek() == b'_' {
            self.at += 1;
        }
        let name = &self.text[start..self.at];
        while matches!(self.peek(), b' ' | b'\t') {
            self.at += 1;
        }
        if name.is_empty() || self.peek() != b'(' {
            return None;
        }
        self.at += 1;
        let mut arguments = Vec::new();
        let mut depth = 1;
        loop {
            self.skip();
            if self.at >= self.bytes.len() {
                return None;
            }
            let from = self.at;
            match self.peek() {
                b'(' => depth += 1,
                b')' => depth -= 1,
                _ => {
                    arguments.push(self.argument()?);
                    continue;
                }
            }
            self.at += 1;
            if depth == 0 {
                return Some(Command { name, start, end: self.at, arguments });
            }
            arguments.push(Argument { form: Form::Paren, start: from, end: self.at, text: &self.text[from..self.at], at: from });
        }
    }

    fn argument(&mut self) -> Option<Argument<'a>> {
        let start = self.at;
        if self.peek() == b'"' {
            self.quoted()?;
            return Some(Argument { form: Form::Quoted, start, end: self.at, text: &self.text[start + 1..self.at - 1], at: start + 1 });
        }
        if self.peek() == b'['
            && let Some(end) = self.bracket()
        {
            self.at = end;
            let marks = 2 + self.bytes[start + 1..].iter().take_while(|byte| **byte == b'=').count();
            let text = &self.text[start + marks..end - marks];
            return Some(Argument { form: Form::Bracket, start, end, text, at: start + marks });
        }
        while self.at < self.bytes.len() {
            match self.peek() {
                b'\\' => self.at = (self.at + 2).min(self.bytes.len()),
                // Legacy syntax: `-Da="b c"` and `$(MAKE)` are one argument.
                b'"' => self.quoted()?,
                b'$' if self.bytes.get(self.at + 1) == Some(&b'(') => {
                    self.at += self.text[self.at..].find(')')? + 1;
                }
                b'(' | b')' | b'#' => break,
                byte if byte.is_ascii_whitespace() => break,
                _ => self.at += 1,
            }
        }
        let text = &self.text[start..self.at];
        Some(Argument { form: Form::Plain, start, end: self.at, text, at: start })
    }

    /// Skips to after the closing quote.
    fn quoted(&mut self) -> Option<()> {
        self.at += 1;
        while self.at < self.bytes.len() {
            match self.peek() {
                b'\\' => self.at += 2,
                b'"' => {
                    self.at += 1;
                    return Some(());
                }
                _ => self.at += 1,
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Vec<String> {
        let (commands, stopped) = read(text);
        let mut lines: Vec<String> = commands
            .iter()
            .map(|command| {
                let arguments: Vec<&str> = command.arguments.iter().map(|argument| argument.text).collect();
                format!("{}:{}", command.name, arguments.join("|"))
            })
            .collect();
        lines.extend(stopped.map(|at| format!("stopped at {at}")));
        lines
    }

    #[test]
    fn commands_are_read_as_cmake_reads_them() {
        assert_eq!(shown("# c\nset(A \"b \\\" c\" d;e) # (\n"), ["set:A|b \\\" c|d;e"]);
        assert_eq!(shown("#[[ set(X) ]] IF ((A) AND [=[b ]] c]=])"), ["IF:(|A|)|AND|b ]] c"]);
        assert_eq!(shown("f(-Dx=\"a b\" $(MAKE) a\\ b #[[c]] d\n# e )\n)"), ["f:-Dx=\"a b\"|$(MAKE)|a\\ b|d"]);
        assert_eq!(shown("f(${A}/b.cu $<$<C:D>:e>)"), ["f:${A}/b.cu|$<$<C:D>:e>"]);
    }

    #[test]
    fn what_never_closes_is_where_reading_ends() {
        assert_eq!(shown("a()\nb(c"), ["a:", "stopped at 4"]);
        assert_eq!(shown("a(\"b)"), ["stopped at 0"]);
        assert_eq!(shown("a() ?"), ["a:", "stopped at 4"]);
        assert_eq!(shown("a(b\\"), ["stopped at 0"]);
        assert_eq!(shown("a(\"\\"), ["stopped at 0"]);
    }
}
