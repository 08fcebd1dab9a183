//! Rewrites `kernel<<<grid, block, shared, stream>>>(…)` as `hipLaunchKernelGGL(…)`.
//!
//! Works on tokens, so also inside macro bodies. The kernel, the launch parameters and the arguments keep their text; what is between
//! them is replaced, except for comments.

use std::collections::HashSet;
use std::ops::Range;

use crate::brackets::Brackets;
use crate::edit::Edits;
use crate::lex::{Kind, Lexed};

/// A parsed launch.
pub(crate) struct Launch {
    /// The kernel's expression.
    callee: Range<usize>,
    /// Whether it is a template, by its argument list or its declaration in this file.
    template: bool,
    /// Grid, block, and optionally shared memory and stream.
    config: Vec<Range<usize>>,
    arguments: Range<usize>,
    /// The parenthesis after the arguments.
    close: usize,
}

/// The longest launch configuration whose brackets are joined, in tokens.
const REACH: usize = 512;

/// Joins the brackets of launches that a formatter split, `kernel << < grid, block >> > (x)`: nvcc accepts them, clang does not.
pub(crate) fn join_brackets(lexed: &Lexed<'_>) -> Edits {
    let mut edits = Edits::default();
    let blank = |at: usize| {
        let (Some(left), Some(right)) = (lexed.tokens.get(at), lexed.tokens.get(at + 1)) else { return false };
        lexed.source[left.end as usize..right.start as usize].iter().all(|byte| matches!(byte, b' ' | b'\t'))
    };
    let mut join = |at: usize| {
        let (start, end) = (lexed.tokens[at].end, lexed.tokens[at + 1].start);
        if start < end {
            edits.replace(start, end, "");
        }
    };
    for at in 1..lexed.tokens.len() {
        let split = lexed.is(at, b"<<") && lexed.is(at + 1, b"<") && blank(at);
        // `operator<< <T>` is a template.
        let after_kernel = lexed.is(at - 1, b">") || lexed.tokens[at - 1].kind == Kind::Name && !lexed.is(at - 1, b"operator");
        if !(split || lexed.is(at, b"<<<")) || !after_kernel {
            continue;
        }
        let Some(close) = split_end(lexed, at + 1 + usize::from(split)).filter(|close| blank(*close) && blank(close + 1)) else { continue };
        if split {
            join(at);
        }
        join(close);
        join(close + 1);
    }
    edits
}

/// The first of the three `>` that end a launch configuration which starts at `at`.
fn split_end(lexed: &Lexed<'_>, at: usize) -> Option<usize> {
    let mut depth = 0usize;
    for index in at..lexed.tokens.len().min(at + REACH) {
        match lexed.text(index) {
            b"(" | b"[" | b"{" => depth += 1,
            b")" | b"]" | b"}" => depth = depth.checked_sub(1)?,
            b";" | b"<<<" => return None,
            b">" if depth == 0 && (1..3).all(|next| lexed.is(index + next, b">")) && lexed.is(index + 3, b"(") => return Some(index),
            _ => {}
        }
    }
    None
}

/// Whether a keyword ends the expression to the left of a kernel's name.
fn is_keyword(text: &[u8]) -> bool {
    matches!(text, b"return" | b"else" | b"do" | b"case" | b"throw" | b"co_return")
}

impl Launch {
    /// Reads the launch whose `<<<` is the token `at`. `templates` are the names of kernels declared as templates.
    pub fn read(lexed: &Lexed<'_>, brackets: &Brackets, at: usize, templates: &HashSet<&[u8]>) -> Option<Launch> {
        let (callee, template) = callee(lexed, brackets, at, templates)?;
        let close_angle = closing_angle(lexed, brackets, at, lexed.tokens.len())?;
        let open = close_angle + 3;
        let close = brackets.partner(open)?;
        let config = brackets.split(lexed, at, close_angle)?;
        if !(2..=4).contains(&config.len()) {
            return None;
        }
        Some(Launch { callee, template, config, arguments: open + 1..close, close })
    }

    /// Reads a macro body, up to `end`, that is a launch without arguments: `#define CALL kernel<<<grid, block>>>`.
    pub fn read_open(lexed: &Lexed<'_>, brackets: &Brackets, at: usize, end: usize, templates: &HashSet<&[u8]>) -> Option<Launch> {
        let (callee, template) = callee(lexed, brackets, at, templates)?;
        let close_angle = closing_angle(lexed, brackets, at, end)?;
        let config = brackets.split(lexed, at, close_angle)?;
        let whole = close_angle + 3 == end && (2..=4).contains(&config.len());
        whole.then_some(Launch { callee, template, config, arguments: end..end, close: end })
    }

    /// The first token of the kernel's expression.
    pub fn start(&self) -> usize {
        self.callee.start
    }

    /// Rewrites the use at `name` of a macro that is a launch without arguments.
    pub fn rewrite_use(
        &self,
        lexed: &Lexed<'_>,
        brackets: &Brackets,
        name: usize,
        edits: &mut Edits,
        text: &impl Fn(Range<usize>) -> Vec<u8>,
    ) {
        let Some(close) = brackets.partner(name + 1) else { return };
        let first = name + 2;
        let mut new = self.head(self.template, text);
        if first < close {
            new.extend_from_slice(b", ");
        }
        edits.replace_bytes(lexed.tokens[name].start, lexed.tokens[first].start, new);
    }

    /// The call up to the kernel's arguments, without the comma before them.
    fn head(&self, template: bool, text: &impl Fn(Range<usize>) -> Vec<u8>) -> Vec<u8> {
        let mut new = b"hipLaunchKernelGGL(".to_vec();
        if template {
            new.extend_from_slice(b"HIP_KERNEL_NAME(");
        }
        new.extend(text(self.callee.clone()));
        if template {
            new.push(b')');
        }
        for index in 0..4 {
            new.extend_from_slice(b", ");
            let value = self.config.get(index).map_or_else(|| b"0".to_vec(), |part| text(part.clone()));
            let wrap = index < 2 && !(value.starts_with(b"dim3(") && value.ends_with(b")"));
            new.extend_from_slice(if wrap { b"dim3(" } else { b"" });
            new.extend(value);
            new.extend_from_slice(if wrap { b")" } else { b"" });
        }
        new
    }

    /// The complete call; `text` returns the text of a range of tokens.
    pub fn as_call(&self, template: bool, text: &impl Fn(Range<usize>) -> Vec<u8>) -> Vec<u8> {
        let mut call = self.head(template, text);
        let arguments = text(self.arguments.clone());
        if !arguments.is_empty() {
            call.extend_from_slice(b", ");
            call.extend(arguments);
        }
        call.push(b')');
        call
    }

    /// The token after it.
    pub fn end(&self) -> usize {
        self.close + 1
    }

    /// Rewrites it as a call.
    pub fn rewrite(&self, lexed: &Lexed<'_>, brackets: &Brackets, edits: &mut Edits) {
        let start = lexed.tokens[self.callee.start].start;
        edits.insert(start, if self.template { "hipLaunchKernelGGL(HIP_KERNEL_NAME(" } else { "hipLaunchKernelGGL(" });
        let mut last = self.callee.end - 1;
        // The end of the previous part.
        let mut ending = if self.template { ")" } else { "" };
        for (index, part) in self.config.iter().enumerate() {
            let wrap = index < 2 && !is_dim3(lexed, brackets, part);
            let between = format!("{ending}, {}", if wrap { "dim3(" } else { "" });
            gap(lexed, edits, last, part.start, &between);
            ending = if wrap { ")" } else { "" };
            last = part.end - 1;
        }
        let rest = if self.config.len() == 2 {
            ", 0, 0"
        } else if self.config.len() == 3 {
            ", 0"
        } else {
            ""
        };
        if self.arguments.is_empty() {
            gap(lexed, edits, last, self.close, &format!("{ending}{rest}"));
        } else {
            gap(lexed, edits, last, self.arguments.start, &format!("{ending}{rest}, "));
            gap(lexed, edits, self.arguments.end - 1, self.close, "");
        }
    }
}

/// Whether the part is one `dim3(…)`.
fn is_dim3(lexed: &Lexed<'_>, brackets: &Brackets, part: &Range<usize>) -> bool {
    lexed.is(part.start, b"dim3") && lexed.is(part.start + 1, b"(") && brackets.partner(part.start + 1) == Some(part.end - 1)
}

/// Replaces the text between two tokens, keeping comments.
fn gap(lexed: &Lexed<'_>, edits: &mut Edits, left: usize, right: usize, text: &str) {
    let (start, end) = (lexed.tokens[left].end, lexed.tokens[right].start);
    let mut text = text.to_owned();
    let mut from = start;
    for index in left..right {
        let base = lexed.tokens[index].end;
        let between = &lexed.source[base as usize..lexed.tokens[index + 1].start as usize];
        let Some(first) = between.iter().position(|byte| *byte == b'/') else { continue };
        let last = between.iter().rposition(|byte| !byte.is_ascii_whitespace()).unwrap_or(first);
        let comment = &between[first..=last];
        edits.replace(from, base + first as u32, format!("{} ", text.trim_end()));
        // A line comment needs its line end.
        let line = comment.windows(2).any(|pair| pair == b"//");
        text = if line { "\n" } else { " " }.to_owned();
        from = base + last as u32 + 1;
        if index + 1 == right {
            return;
        }
    }
    if from != end || !text.is_empty() {
        edits.replace(from, end, text);
    }
}

/// The tokens of the kernel's expression to the left of `<<<`.
fn callee(lexed: &Lexed<'_>, brackets: &Brackets, at: usize, templates: &HashSet<&[u8]>) -> Option<(Range<usize>, bool)> {
    let mut index = at.checked_sub(1)?;
    let mut template = false;
    if lexed.is(index, b">") {
        index = brackets.template_start(lexed, index)?.checked_sub(1)?;
        template = true;
    } else if lexed.is(index, b")") {
        // `(*pointer)`, or a macro that expands to the kernel.
        let open = brackets.partner(index)?;
        let named = open > 0 && lexed.tokens[open - 1].kind == Kind::Name && !is_keyword(lexed.text(open - 1));
        return Some((if named { open - 1 } else { open }..at, false));
    }
    if lexed.tokens[index].kind != Kind::Name || is_keyword(lexed.text(index)) {
        return None;
    }
    template |= templates.contains(lexed.text(index));
    // Qualifiers of the name: `space::`, `Class<T>::`, `object.`, and pasted parts in a macro.
    while index >= 1 {
        match lexed.text(index - 1) {
            b"template" => index -= 1,
            b"::" => {
                index -= 1;
                let Some(before) = index.checked_sub(1) else { break };
                match lexed.text(before) {
                    b">" => match brackets.template_start(lexed, before) {
                        Some(open) if open > 0 && lexed.tokens[open - 1].kind == Kind::Name => index = open - 1,
                        _ => break,
                    },
                    text if lexed.tokens[before].kind == Kind::Name && !is_keyword(text) => index = before,
                    _ => break,
                }
            }
            b"." | b"->" | b"##" if index >= 2 && lexed.tokens[index - 2].kind == Kind::Name => index -= 2,
            _ => break,
        }
    }
    Some((index..at, template))
}

/// The first of the three `>` that close the launch parameters.
fn closing_angle(lexed: &Lexed<'_>, brackets: &Brackets, at: usize, limit: usize) -> Option<usize> {
    let mut index = at + 1;
    while index < limit && index < at + 4096 {
        if lexed.tokens[index].kind == Kind::Hash || lexed.tokens[index].in_directive != lexed.tokens[at].in_directive {
            return None;
        }
        match lexed.text(index) {
            b"(" | b"[" | b"{" => index = brackets.partner(index)?,
            b";" | b")" | b"]" | b"}" | b"<<<" => return None,
            b">" => {
                let adjacent = |i: usize| lexed.is(i + 1, b">") && lexed.tokens[i].end == lexed.tokens[i + 1].start;
                let run = (index..).take_while(|i| adjacent(*i)).count() + 1;
                let end = index + run;
                if run >= 3 && (lexed.is(end, b"(") || end == limit) {
                    return Some(end - 3);
                }
                index = end - 1;
            }
            _ => {}
        }
        index += 1;
    }
    None
}

/// Returns the name token of the kernel that the `__global__` at `at` declares, and whether it is a template.
pub(crate) fn declared_kernel(lexed: &Lexed<'_>, brackets: &Brackets, at: usize) -> Option<(usize, bool)> {
    let mut index = at + 1;
    let name = loop {
        if index > at + 96 {
            return None;
        }
        match lexed.text(index) {
            b"" | b";" | b"{" | b"}" => return None,
            b"(" => {
                let before = index - 1;
                // Attributes have their own argument lists.
                if matches!(lexed.text(before), b"__launch_bounds__" | b"__attribute__" | b"__declspec" | b"alignas" | b"(") {
                    index = brackets.partner(index)?;
                } else if lexed.tokens[before].kind == Kind::Name && before > at {
                    break before;
                } else if lexed.is(before, b">") {
                    // An explicit specialization is not a template.
                    let name = brackets.template_start(lexed, before)?.checked_sub(1)?;
                    return Some((name, false));
                } else {
                    return None;
                }
            }
            _ => {}
        }
        index += 1;
    };
    // Go back over the specifiers to a template list.
    let mut back = at;
    while back > 0 {
        back -= 1;
        match lexed.text(back) {
            b">" => {
                let open = brackets.template_start(lexed, back)?;
                return Some((name, open > 0 && lexed.is(open - 1, b"template") && back - open > 1));
            }
            b")" => back = brackets.partner(back)?,
            _ if lexed.tokens[back].kind == Kind::Name || lexed.tokens[back].kind == Kind::String => {}
            _ => break,
        }
        if at - back > 64 {
            break;
        }
    }
    Some((name, false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_launch_brackets_are_joined() {
        let joined = |source: &str| {
            let edits = join_brackets(&Lexed::new(source.as_bytes()).unwrap());
            String::from_utf8(if edits.is_empty() { source.into() } else { edits.apply(source.as_bytes()) }).unwrap()
        };
        for (source, expected) in [
            ("k << < g, b >> > (x);", "k <<< g, b >>> (x);"),
            ("k<T> << <dim3(g, 1), b[i >> 1]>> >(x);", "k<T> <<<dim3(g, 1), b[i >> 1]>>>(x);"),
            ("k<<<g, f<int>(b)>> >(x);", "k<<<g, f<int>(b)>>>(x);"),
        ] {
            assert_eq!(joined(source), expected);
            assert_eq!(joined(expected), expected);
        }
        for source in [
            "friend ostream &operator<< <T>(ostream &o, const T &t);",
            "k<<<g, b>>>(x);",
            "cout << a << (b < c); vector<vector<set<int> > > (d);",
            "x = a << /* by */ < b >> > (c);",
            "k << < g, b; c >> > (x);",
        ] {
            assert_eq!(joined(source), source);
        }
    }
}
