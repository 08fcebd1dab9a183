//! Blocks of 32 threads for kernels that use `warpSize` (0219).

use std::collections::HashMap;

use super::code::{Code, Unit};
use super::{Hazard, hazard};
use crate::diagnostic::Severity;
use crate::lex::{Kind, Lexed};
use crate::preprocessor::{Definition, definition, directives};

/// The longest launch configuration that is read.
const REACH: usize = 256;

/// Checks the launches of a file that uses `warpSize`.
pub fn check<'a>(lexed: &Lexed<'a>, code: &Code<'a>, units: &[Unit<'a>], found: &mut Vec<Hazard>) {
    let kernels: Vec<&[u8]> = units.iter().filter(|unit| uses_warp_size(code, unit)).map(|unit| unit.name).collect();
    if kernels.is_empty() {
        return;
    }
    let constants = constants_of_32(lexed, code);
    for open in (1..code.len()).filter(|i| code.is(*i, b"<<<")) {
        let Some(kernel) = kernel_name(code, open) else { continue };
        if !kernels.contains(&kernel) {
            continue;
        }
        let Some(block) = block_argument(code, open) else { continue };
        if is_32(code, block, &constants) {
            found.push(hazard(
                219,
                Severity::Warning,
                code.span(block, block),
                "kernel uses `warpSize` but is launched with 32 threads in x, half of a wave64",
                "use a multiple of the wave size, from `cudaDeviceProp::warpSize`",
            ));
        }
    }
}

fn uses_warp_size(code: &Code<'_>, unit: &Unit<'_>) -> bool {
    let kernel = unit.head.clone().any(|i| code.is(i, b"__global__"));
    kernel && unit.body.clone().any(|i| code.is(i, b"warpSize") && !code.before(i, b".") && !code.before(i, b"->"))
}

/// The kernel's name before `<<<`, without its template arguments.
fn kernel_name<'a>(code: &Code<'a>, open: usize) -> Option<&'a [u8]> {
    let mut name = open - 1;
    if code.is(name, b">") {
        name = (name.saturating_sub(REACH)..name).rev().find(|i| code.is(*i, b"<"))?.checked_sub(1)?;
    }
    code.is_name(name).then(|| code.text(name))
}

/// The first token of the launch's second argument.
fn block_argument(code: &Code<'_>, open: usize) -> Option<usize> {
    let mut i = open + 1;
    while i < code.len().min(open + REACH) {
        match code.text(i) {
            b"(" | b"[" | b"{" => i = code.partner(i)?,
            b"," => return Some(i + 1),
            b">" | b";" => return None,
            _ => {}
        }
        i += 1;
    }
    None
}

/// Whether the expression at `i` is 32, a constant of 32, or a `dim3` with 32 in x.
fn is_32(code: &Code<'_>, i: usize, constants: &HashMap<&[u8], bool>) -> bool {
    let ends = |i: usize| matches!(code.text(i), b"," | b">" | b")" | b"}");
    let inner = if code.is(i, b"dim3") && (code.is(i + 1, b"(") || code.is(i + 1, b"{")) { i + 2 } else { i };
    ends(inner + 1) && (code.number(inner) == Some(32) || constants.get(code.text(inner)) == Some(&true))
}

/// Names that the file defines as 32 or as a `dim3` with 32 in x; `false` for those that have another value as well.
fn constants_of_32<'a>(lexed: &Lexed<'a>, code: &Code<'a>) -> HashMap<&'a [u8], bool> {
    let mut constants: HashMap<&'a [u8], bool> = HashMap::new();
    let mut define = |name: &'a [u8], is_32: bool| {
        let known = constants.entry(name).or_insert(is_32);
        *known &= is_32;
    };
    for directive in directives(lexed) {
        if let Some(Definition { name, parameters: None, body }) = definition(lexed, &directive) {
            define(lexed.text(name), body.len() == 1 && lexed.is(body.start, b"32"));
        }
    }
    for i in 1..code.len() {
        if !code.is_name(i) {
            continue;
        }
        if code.is(i + 1, b"=") {
            let value = i + 2;
            let dim3 = code.is(value, b"dim3") && code.is(value + 1, b"(");
            let number = if dim3 { value + 2 } else { value };
            define(code.text(i), code.number(number) == Some(32) && matches!(code.text(number + 1), b";" | b"," | b")"));
        } else if code.is(i - 1, b"dim3") && (code.is(i + 1, b"(") || code.is(i + 1, b"{")) {
            define(code.text(i), code.number(i + 2) == Some(32) && matches!(code.text(i + 3), b"," | b")" | b"}"));
        } else if code.kind(i + 1, Kind::Punct) && matches!(code.text(i + 1), b"+=" | b"-=" | b"*=" | b"/=" | b"<<=") {
            define(code.text(i), false);
        }
    }
    constants
}
