//! Wave-size hazards: code that assumes 32 lanes per warp and is wrong on wave64.
//!
//! [`check`] returns the hazards of one file as diagnostics WW0201 to WW0219, in order of the source. Contract:
//!
//! - any bytes are accepted, nothing panics, and time is linear in the source;
//! - it works on tokens and on simple assignments within a function, not on types: a rule prefers a miss to a false alarm;
//! - a constant is reported at its definition, not at each use, and each file is checked by itself;
//! - a fix is offered only if it changes nothing on 32 lanes and makes nothing worse on 64.
//!
//! Code that passes a width of 32 to all of its shuffles, or uses cooperative-groups tiles of 32, works in segments, two per wave64.
//! Lane indices computed with 32 are right there and are not reported.
//!
//! ```
//! use warpwave_hipify::{hazard, lex::Lexed};
//!
//! let source = b"__global__ void k(int *n, int x) { unsigned m = __ballot_sync(~0ull, x); *n = __popc(m); }";
//! let lexed = Lexed::new(source).unwrap();
//! let found: Vec<u16> = hazard::check(&lexed).iter().map(|hazard| hazard.diagnostic.code).collect();
//! assert_eq!(found, [203, 204]);
//! let fixed = hazard::fixes(&hazard::check(&lexed)).apply(source);
//! assert_eq!(fixed, b"__global__ void k(int *n, int x) { unsigned long long m = __ballot_sync(~0ull, x); *n = __popcll(m); }");
//! ```

use std::borrow::Cow;
use std::ops::Range;

use crate::diagnostic::{Diagnostic, Severity};
use crate::edit::{Edit, Edits};
use crate::lex::{Kind, Lexed};

pub(crate) mod code;
mod constants;
mod explain;
mod flow;
mod implicit;
mod lanes;
mod launches;
mod masks;
mod ptx;
mod shuffles;
mod warp;

use code::{Code, Unit};
use constants::Constants;
use flow::{Flow, Types};
use warp::Facts;

pub use explain::CODES;

/// Code that assumes 32 lanes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hazard {
    /// The diagnostic.
    pub diagnostic: Diagnostic,
    /// Edits that are right on 32 and on 64 lanes, if known.
    pub fix: Option<Vec<Edit>>,
}

/// Finds the hazards of a file.
pub fn check(lexed: &Lexed<'_>) -> Vec<Hazard> {
    let triggers = triggers(lexed);
    if triggers.is_empty() {
        return Vec::new();
    }
    let mut found = Vec::new();
    let plain = (0..lexed.tokens.len() as u32).filter(|i| !lexed.tokens[*i as usize].in_directive).collect();
    let code = Code::new(lexed, plain);
    let units = code.units();
    let mut constants = Constants::new(lexed, &code, &units);
    let macros: Vec<(Code<'_>, Unit<'_>)> = macros(lexed, &triggers);

    scan(&code, &units, &triggers, &mut constants, &mut found);
    for (code, unit) in &macros {
        scan(code, std::slice::from_ref(unit), &triggers, &mut constants, &mut found);
    }
    constants.report(lexed, &mut found);
    constants::compile_time(&code, &constants, &mut found);
    if constants.whole_waves {
        launches::check(lexed, &code, &units, &mut found);
    }

    found.sort_by_key(|hazard: &Hazard| (hazard.diagnostic.start, hazard.diagnostic.code));
    found.dedup_by_key(|hazard| (hazard.diagnostic.start, hazard.diagnostic.code));
    found
}

/// Returns the fixes of all hazards as one set of edits.
pub fn fixes(hazards: &[Hazard]) -> Edits {
    let mut edits = Edits::default();
    let mut made: Vec<&Edit> = hazards.iter().filter_map(|hazard| hazard.fix.as_ref()).flatten().collect();
    // Two hazards may have the same fix.
    made.sort_by_key(|edit| (edit.start, edit.end));
    made.dedup();
    for edit in made {
        edits.push(edit.clone());
    }
    edits
}

/// The analysis of one function.
struct View<'v, 'a> {
    code: &'v Code<'a>,
    unit: &'v Unit<'a>,
    facts: &'v Facts,
    flow: &'v Flow<'v, 'a>,
    types: &'v Types<'a>,
    /// The file uses `warpSize`: some of its code works on full waves, so a width of 32 may be wrong for the callers of a function.
    whole_waves: bool,
}

fn scan<'a>(code: &Code<'a>, units: &[Unit<'a>], triggers: &[u32], constants: &mut Constants<'a>, found: &mut Vec<Hazard>) {
    let whole_waves = constants.whole_waves;
    let types = Types::new(code, if units.first().is_some_and(|unit| unit.head.is_empty()) { &[] } else { units });
    let all = warp::facts(code, units, &|name| constants.is_warp_size(name));
    for (number, (unit, facts)) in units.iter().zip(&all).enumerate() {
        let first = code.token(unit.head.start.min(unit.body.start));
        let last = code.token(unit.body.end.saturating_sub(1));
        let from = triggers.partition_point(|trigger| (*trigger as usize) < first);
        let silent = triggers.get(from).is_none_or(|trigger| *trigger as usize > last);
        if silent && !facts.collective() {
            continue;
        }
        let flow = Flow::new(code, &types, unit, facts.device);
        let view = View { code, unit, facts, flow: &flow, types: &types, whole_waves };
        let guards = lanes::guards(&view, found);
        masks::check(&view, number, &guards, constants, found);
        let by_32 = lanes::check(&view, found);
        shuffles::check(&view, by_32, found);
        implicit::check(&view, found);
        ptx::check(&view, found);
    }
}

/// The bodies of macros that contain a trigger, each as a function of its own.
fn macros<'a>(lexed: &'a Lexed<'a>, triggers: &[u32]) -> Vec<(Code<'a>, Unit<'a>)> {
    let mut out = Vec::new();
    let mut done = 0;
    for trigger in triggers {
        let trigger = *trigger as usize;
        if trigger < done || !lexed.tokens[trigger].in_directive {
            continue;
        }
        let begin = (done..=trigger).rev().find(|i| lexed.tokens[*i].kind == Kind::Hash).unwrap_or(trigger);
        let directive = |i: usize| lexed.tokens.get(i).is_some_and(|t| t.in_directive && t.kind != Kind::Hash);
        let mut end = begin + 1;
        while directive(end) {
            end += 1;
        }
        done = end;
        // Function-like macros and those of several tokens are code; constants have their own rules.
        if lexed.is(begin + 1, b"define") && end > begin + 5 {
            let code = Code::new(lexed, (begin as u32 + 3..end as u32).collect());
            let unit = Unit { name: lexed.text(begin + 2), head: 0..0, body: 0..code.len() };
            out.push((code, unit));
        }
    }
    out
}

/// The tokens without which no rule applies. `threadIdx` is not one: its arithmetic matters only together with one of these.
fn triggers(lexed: &Lexed<'_>) -> Vec<u32> {
    let mut out = Vec::new();
    for (i, token) in lexed.tokens.iter().enumerate() {
        if token.kind == Kind::Name && token.end - token.start >= 3 && is_trigger(&lexed.source[token.start as usize..token.end as usize]) {
            out.push(i as u32);
        }
    }
    out
}

/// The start of `ballot`, in names of wrapper functions.
const BALLOT: u32 = u32::from_le_bytes(*b"ball");

/// `full`, as in `FULL_MASK`.
const FULL: u32 = u32::from_le_bytes(*b"full");

fn is_trigger(name: &[u8]) -> bool {
    match name {
        [b'_', b'_', rest @ ..] if warp::op(name).is_some() || rest == b"asm__" || rest == b"asm" => return true,
        b"asm" | b"coalesced_threads" | b"volatile" | b"__shared__" | b"wid" => return true,
        _ => {}
    }
    name.windows(4).any(|four| {
        let word = u32::from_le_bytes([four[0], four[1], four[2], four[3]]) | 0x2020_2020;
        word == u32::from_le_bytes(*b"warp") || word == u32::from_le_bytes(*b"lane") || word == FULL || word == BALLOT
    })
}

/// Creates a hazard without a fix.
fn hazard(code: u16, severity: Severity, span: (u32, u32), message: impl Into<Cow<'static, str>>, help: &'static str) -> Hazard {
    let (message, help) = (message.into(), Some(help.into()));
    let diagnostic = Diagnostic { code, severity, start: span.0, end: span.1, message, help, remedy: None };
    Hazard { diagnostic, fix: None }
}

fn edit(span: (u32, u32), text: impl Into<Cow<'static, str>>) -> Edit {
    Edit::new(span.0, span.1, text)
}

/// Whether a position may be in one of these ranges; `true` if there are too many to check.
fn within(ranges: &[Range<usize>], i: usize) -> bool {
    ranges.len() > code::REACH || ranges.iter().any(|range| range.contains(&i))
}
