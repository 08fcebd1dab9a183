//! Translates inline PTX to C++.
//!
//! An `asm` statement becomes a block of C++: a variable for each operand, an assignment for each instruction ([`table`]), and a store for
//! each output at the end. Register declarations (`.reg`) and predicated instructions are supported; jumps and labels are not. A
//! statement with an unsupported instruction is not translated at all. AMD assembly and empty statements stay as they are.

mod arithmetic;
mod atomics;
mod convert;
mod lanes;
mod memory;
pub mod table;

use std::collections::HashMap;
use std::ops::Range;

use crate::lex::{Kind, Lexed};

/// The functions that the C++ may call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Dialect {
    /// Those of Warpwave's headers, which have CUDA names.
    #[default]
    Warpwave,
    /// Those of HIP's own headers since 5.2.
    Hip,
}

/// An `asm` statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asm {
    /// Its tokens, from `asm` to the closing parenthesis.
    pub tokens: Range<usize>,
    /// The assembly text, with escapes resolved.
    pub text: String,
    /// Outputs, then inputs.
    pub operands: Vec<Operand>,
}

/// An operand of an `asm` statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operand {
    /// `=r`, `+f`, `l`, …
    pub constraint: String,
    /// The C++ expression.
    pub expression: String,
    /// `[name]`, if given.
    pub name: Option<String>,
}

/// The translation of an `asm` statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// C++ on one line, without the closing `;`, and notes about it.
    Cpp(String, Vec<&'static str>),
    /// Nothing to do: empty, or AMD's own assembly.
    Keep,
    /// An instruction without an equivalent.
    Unknown(String),
}

/// Returns the `asm` statements of a source; `Err` with the first token and the reason for those that cannot be parsed. `text` returns
/// the text of an operand's expression.
pub fn statements(lexed: &Lexed<'_>, text: &mut dyn FnMut(Range<usize>) -> String) -> Vec<Result<Asm, (usize, &'static str)>> {
    let mut found = Vec::new();
    for at in 0..lexed.tokens.len() {
        if lexed.tokens[at].kind != Kind::Name || !matches!(lexed.text(at), b"asm" | b"__asm__" | b"__asm") {
            continue;
        }
        let mut open = at + 1;
        while matches!(lexed.text(open), b"volatile" | b"__volatile__" | b"__volatile" | b"inline") {
            open += 1;
        }
        if lexed.is(open, b"(") {
            found.push(statement(lexed, at, open, text).map_err(|reason| (at, reason)));
        }
    }
    found
}

fn statement(
    lexed: &Lexed<'_>,
    start: usize,
    open: usize,
    expression_text: &mut dyn FnMut(Range<usize>) -> String,
) -> Result<Asm, &'static str> {
    let mut text = String::new();
    let mut at = open + 1;
    while lexed.tokens.get(at).is_some_and(|t| t.kind == Kind::String) {
        text += &unquote(lexed.text(at));
        at += 1;
    }
    if at == open + 1 || !matches!(lexed.text(at), b":" | b"::" | b")") {
        return Err("the assembly text is not a string literal");
    }
    let (mut operands, mut section) = (Vec::new(), 0);
    let mut name = None;
    loop {
        match lexed.text(at) {
            b")" => return Ok(Asm { tokens: start..at + 1, text, operands }),
            b":" => section += 1,
            b"::" => section += 2,
            b"," => {}
            b"[" if lexed.is(at + 2, b"]") => {
                name = Some(String::from_utf8_lossy(lexed.text(at + 1)).into_owned());
                at += 2;
            }
            _ if lexed.tokens.get(at).is_some_and(|t| t.kind == Kind::String) => {
                if section < 3 {
                    let constraint = unquote(lexed.text(at));
                    let end = closing(lexed, at + 1).ok_or("an operand has no expression in parentheses")?;
                    let expression = expression_text(at + 2..end);
                    operands.push(Operand { constraint, expression, name: name.take() });
                    at = end;
                }
            }
            _ => return Err("an operand does not have the form \"constraint\"(expression)"),
        }
        at += 1;
    }
}

/// The parenthesis that matches the one at `open`.
fn closing(lexed: &Lexed<'_>, open: usize) -> Option<usize> {
    if !lexed.is(open, b"(") {
        return None;
    }
    let mut depth = 0usize;
    (open..lexed.tokens.len()).take(1 << 16).find(|i| {
        match lexed.text(*i) {
            b"(" => depth += 1,
            b")" => depth -= 1,
            _ => {}
        }
        depth == 0
    })
}

/// The content of a string literal.
fn unquote(literal: &[u8]) -> String {
    let text = String::from_utf8_lossy(literal);
    let Some(open) = text.find('"') else { return String::new() };
    if text[..open].ends_with('R') {
        let inner = text[open..].find('(').and_then(|from| text.rfind(')').map(|to| (open + from + 1, to)));
        return inner.and_then(|(from, to)| text.get(from..to)).unwrap_or_default().to_owned();
    }
    let mut out = String::new();
    let mut chars = text[open + 1..].chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => break,
            '\\' => match chars.next() {
                Some('n') => out.push('\n'),
                Some('t') => out.push('\t'),
                Some('\n') | Some('\r') | None => {}
                Some(other) => out.push(other),
            },
            other => out.push(other),
        }
    }
    out
}

/// AMD instructions start with the unit that executes them.
const AMD: &[&str] = &["v_", "s_", "ds_", "global_", "flat_", "buffer_", "tbuffer_", "scratch_", "image_", "exp "];

/// Translates a statement.
pub fn translate(asm: &Asm, dialect: Dialect) -> Outcome {
    let text: String = asm.text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join(" ");
    let body = text.trim();
    if body.is_empty() || AMD.iter().any(|prefix| body.starts_with(prefix)) {
        return Outcome::Keep;
    }
    let mut block = table::Block { registers: HashMap::new(), lines: Vec::new(), notes: Vec::new(), dialect };
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for (index, operand) in asm.operands.iter().enumerate() {
        let letter = operand.constraint.chars().last().unwrap_or(' ');
        let Some(kind) = table::Store::of_constraint(letter) else {
            return Outcome::Unknown(format!("constraint \"{}\"", operand.constraint));
        };
        // Reserved names: the user's expressions may use `x0`.
        let variable = format!("__ww{index}");
        let is_output = operand.constraint.contains(['=', '+']);
        let reads = !operand.constraint.contains('=');
        let (cpp, expression) = (kind.cpp(), &operand.expression);
        before.push(if reads { format!("{cpp} {variable} = ({cpp})({expression});") } else { format!("{cpp} {variable} = {{}};") });
        if is_output {
            after.push(match kind {
                table::Store::U64 => format!("({expression}) = (__typeof__({expression})){variable};"),
                _ => format!("({expression}) = {variable};"),
            });
        }
        block.registers.insert(format!("%{index}"), (variable.clone(), kind));
        if let Some(name) = &operand.name {
            block.registers.insert(format!("%[{name}]"), (variable, kind));
        }
    }
    for instruction in body.split(';') {
        // Braces of a scope are at the ends; those of a vector are between operands.
        let instruction = instruction.trim().trim_start_matches(|c: char| c == '{' || c.is_whitespace());
        let instruction = if instruction.matches('}').count() > instruction.matches('{').count() {
            instruction.trim_end().trim_end_matches('}').trim_end()
        } else {
            instruction
        };
        if instruction.is_empty() {
            continue;
        }
        if let Err(name) = block.instruction(instruction) {
            return Outcome::Unknown(name);
        }
    }
    let lines: Vec<String> = before.into_iter().chain(block.lines).chain(after).collect();
    Outcome::Cpp(format!("do {{ {} }} while (0)", lines.join(" ")), block.notes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(source: &str) -> Outcome {
        let lexed = Lexed::new(source.as_bytes()).unwrap();
        translate(&statements(&lexed, &mut |tokens| lexed.joined(tokens)).remove(0).unwrap(), Dialect::Warpwave)
    }

    #[test]
    fn a_statement_becomes_a_block() {
        let cpp = one(r#"asm volatile("popc.b32 %0, %1;\n" : "=r"(n) : "r"(x + 1) : "memory");"#);
        let expected = "do { unsigned int __ww0 = {}; unsigned int __ww1 = (unsigned int)(x + 1); \
            __ww0 = __popc(__ww1); (n) = __ww0; } while (0)";
        assert_eq!(cpp, Outcome::Cpp(expected.to_owned(), vec![]));
    }

    #[test]
    fn blocks_with_registers_and_predicates() {
        let cpp = one(r#"asm("{ .reg .pred p; setp.ne.b32 p, %1, 0; @p add.u32 %0, %0, 1; selp.b32 %0, %0, 7, p; }" : "+r"(a) : "r"(b));"#);
        let Outcome::Cpp(cpp, _) = cpp else { panic!("{cpp:?}") };
        assert!(cpp.contains("bool __ww_p = {};") && cpp.contains("if (__ww_p) { __ww0 = "), "{cpp}");
    }

    #[test]
    fn other_assembly_stays_and_unknown_instructions_are_named() {
        assert_eq!(one(r#"asm volatile("" ::: "memory");"#), Outcome::Keep);
        assert_eq!(one(r#"asm volatile("v_cvt_f16_f32 %0, %1;" : "=v"(x) : "v"(f));"#), Outcome::Keep);
        let unknown = one(r#"asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0}, {%1};" : "=r"(x) : "r"(y));"#);
        assert_eq!(unknown, Outcome::Unknown("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32".to_owned()));
    }

    #[test]
    fn modifiers_that_change_a_result_are_not_ignored() {
        for text in ["fma.rn.sat.f32 %0, %1, %1, %1;", "add.rz.f32 %0, %1, %1;", "max.NaN.f32 %0, %1, %1;", "add.cc.u32 %0, %1, %1;"] {
            let operand = |c: &str| Operand { constraint: c.to_owned(), expression: "x".to_owned(), name: None };
            let asm = Asm { tokens: 0..0, text: text.to_owned(), operands: vec![operand("=f"), operand("f")] };
            assert!(matches!(translate(&asm, Dialect::Warpwave), Outcome::Unknown(_)), "{text}");
        }
    }

    #[test]
    fn unreadable_statements_say_why() {
        for source in ["asm(NAME);", "asm(\"x\" : y);", "asm(\"x\" : \"=r\"(y", "asm(", "asm(\"x\" : \"=r\" z);"] {
            let lexed = Lexed::new(source.as_bytes()).unwrap();
            assert!(statements(&lexed, &mut |tokens| lexed.joined(tokens))[0].is_err(), "{source}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_assembly_is_translated_or_refused_without_a_panic(
            parts in proptest::collection::vec(proptest::sample::select(vec![
                "mov", ".b32", ".u64", ".f32", " %0", ", %1", ", [%1+4]", "{%0, %1}", ";", "@p ", "@", "%", "ld", ".global", ".v4", "cvt",
                ".rn", ".f16", "shfl.sync.bfly.b32", ".reg .b32 t<3>", "}", "{", "é", "\u{0}", "0f3f800000", ",", " ", "setp", ".eq",
            ]), 0..24)
        ) {
            let operand = |c: &str| Operand { constraint: c.to_owned(), expression: "x".to_owned(), name: None };
            translate(&Asm { tokens: 0..0, text: parts.concat(), operands: vec![operand("=r"), operand("l")] }, Dialect::Hip);
        }
    }
}
